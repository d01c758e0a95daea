#!/usr/bin/env python3
"""Files made to cost as much time and memory as they can, within hard limits: address space, CPU seconds, stack.

Usage: test_limits.py [--long] [-v] [NAME...]     NAME: only what has it in its name; --long: larger files; -v: prints what each took

Of each file, valid or not, the command is asked to check, list, restore and salvage it, and must end with an exit code of its own. What is
promised (docs/security.md):

  memory   at most 8 times the size of the file, and 128 MiB, with one thread
  time     in proportion to the file and to what it restores to: here 30 seconds, with files that take one or less
  stack    256 KiB are enough for the command

The limit of time is no measurement: it finds what grows with the square. The last line is "N passed, N failed". SPDX-License-Identifier: MIT
"""
import os, resource, struct, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "spec"))
import make_vectors as make
from make_vectors import Block, Group, Run, Src, T, build, gap_mode, nested_masks, plane_block, stored, tree

LMC = os.environ.get("LMC", os.path.join(ROOT, "build", "lmc"))
SECONDS, FACTOR, FIXED, STACK = 30, 8, 128 << 20, 256 << 10
LONG, VERBOSE = "--long" in sys.argv, "-v" in sys.argv
ONLY = [a for a in sys.argv[1:] if not a.startswith("-")]
SCALE = 10 if LONG else 1


def repeated(block, n, log2):
    """A snapshot of one block, n times, in one run: what make_vectors would take long for."""
    return build([Src(data=block.data * n), Run([block] * n, log2=log2)]).out


def constants(width, size):
    """The block that decodes to most for its size."""
    return Block(bytes(size), width, layout=1, payload=[("planes", b"\1\0" * width)])


def skewed(symbols=16):
    """Lengths 1, 2, 3 ... 15, 15: the longest way down."""
    return {s: min(s + 1, 15) for s in range(symbols)}


def fields(data, **at):
    """Little-endian fields put over a file's bytes: (offset, format, value)."""
    out = bytearray(data)
    for offset, form, value in at.values():
        struct.pack_into("<" + form, out, offset, value)
    return out


def cases():
    n = 1 << 14
    # every element at the end of the longest path; 14 masks of all ones, each coded with the least and with the most bits, or not coded
    for name, modes in (("least", (20,)), ("most", (19, 19, 20)), ("raw", (0,))):
        lengths = skewed()
        plane = bytes([15]) * n
        yield "deepest tree, masks of all ones, %s bits" % name, lambda lengths=lengths, plane=plane, modes=modes: repeated(
            plane_block(plane, tree(lengths, masks=nested_masks(*modes)), 2 if name != "most" else 8), 32 * SCALE, 14 + (1 if name != "most" else 3))
    mixed = bytes((i * 2654435761 >> 7) % 16 for i in range(n))
    yield "deepest tree, all leaves, masks nested three times", lambda: repeated(plane_block(mixed, tree(skewed(), masks=nested_masks(1, 1, 1)), 8), 16 * SCALE, 17)
    for s in (0, 2):
        plane = bytes([15]) * n
        yield "deepest tree, masks of all ones as gaps, s %d" % s, lambda plane=plane, s=s: repeated(
            plane_block(plane, tree(skewed(), masks=nested_masks(gap_mode(s, s == 0))), 2 if s == 0 else 8), 16 * SCALE if s == 0 else SCALE, 15 if s == 0 else 17)
    wide = bytes((i * 2654435761 >> 5) & 255 for i in range(n))
    yield "256 leaves, nested masks", lambda: repeated(plane_block(wide, tree({s: 8 for s in range(256)}, masks=nested_masks(1)), 4), 16 * SCALE, 16)
    yield "constants: much out of little", lambda: repeated(constants(8, 1 << 23), 60 * SCALE, 23)
    yield "many empty files", lambda: build([Src(b"f%d" % i) for i in range(2000 * SCALE)]).out
    yield "many directories in each other's names", lambda: build([Src(b"a/" * i + b"f") for i in range(1, 300)]).out
    yield "many runs of a byte", lambda: build([Src(b"f", b"x" * 2000 * SCALE)] + [Run([stored(b"x")]) for _ in range(2000 * SCALE)]).out
    yield "many empty tensors", lambda: build([Src(b"f", tensors=[T(b"t%d" % i, b"F32", [0], 0, 0) for i in range(4000 * SCALE)])]).out
    long = b"n" * 65000
    yield "long names with one beginning", lambda: build([Src(b"f", tensors=[T(long + b"%d" % i, b"F32", [0], 0, 0) for i in range(30 * SCALE)])]).out
    by_reference = lambda i: T(b"n" * 255 + b"%05d" % i + b"m" * 255, b"F32", [0] * 32, 0, 0, back=int(i > 0), like=i > 0, prefix=255, suffix=255)
    yield "long names by reference", lambda: build([Src(b"f", tensors=[by_reference(i) for i in range(9000 * SCALE)])]).out
    yield "many files of a section", lambda: build([Group(*[Src(b"p" * 250 + b"%d" % i) for i in range(2000 * SCALE)])]).out
    text = Src(b"f", tensors=[by_reference(i) for i in range(2000 * SCALE)])

    def texts():
        """Every byte of a header text by its own run."""
        whole = make.header_text(text)
        parts = [bytes(whole[i:i + 1]) for i in range(0, len(whole), len(whole) // 500)]
        return build([text, Src(b"t", b"".join(parts))] + [Run([stored(part)], [(1, 1, i * (len(whole) // 500))], prediction=3) for i, part in enumerate(parts)]).out
    yield "runs of a byte of a long header text", texts
    yield "much metadata", lambda: build([Src(b"f")], metadata=[(b"k%08d" % i, b"") for i in range(8000 * SCALE)]).out
    data = bytes(range(256)) * 16

    def pieces():
        """Own predictions, byte by byte, from back to front."""
        source = Src(b"f", data + data[::-1])
        return build([source, Run([stored(data)]), make.own_run(data[::-1], [(1, 1, len(data) - 1 - i) for i in range(len(data))],
                                                                         sources=[source], width=1)]).out
    yield "segments of one byte", pieces
    small = bytes(build([Src(b"f", b"x"), Run([stored(b"x")])]).out)
    # counts that no bytes stand behind: with their CRCs right, the section's body ends at once
    # the index has what is true
    claims = lambda **fields: build([Src(b"f", b"x"), Run([stored(b"x")])], patch=dict({
        name.replace("_", ".", 1): n for name, n in fields.items()}, **{"entry0.Copy": small[80:small.index(b"RUN ")]})).out
    yield "2^28 tensors claimed", lambda: claims(file0_N_Tensors=1 << 28)
    yield "2^28 files claimed", lambda: claims(files0_N_Files=1 << 28)
    yield "2^63 bytes claimed", lambda: claims(file0_File_Size=(1 << 63) - 1)

    def large_body():
        out = fields(small, a=(88, "Q", 1 << 40))
        struct.pack_into("<I", out, 96, make.crc(bytes(out[80:96])))
        return out
    yield "a section of 2^40 bytes claimed", large_body
    end = len(small)

    def large_index():
        out = fields(small, a=(end - 32, "Q", 1 << 40), b=(end - 24, "Q", (1 << 40) + 1000))
        struct.pack_into("<I", out, end - 12, make.crc(bytes(out[end - 40:end - 12])))
        return out
    yield "an index of 2^40 bytes claimed", large_index
    yield "nothing but beginnings of blocks", lambda: small[:small.index(b"RUN ")] + b"\xb1" * (1 << 20) * SCALE
    yield "nothing but beginnings of sections", lambda: small[:small.index(b"RUN ")] + b"RUN FILE" * (1 << 17) * SCALE


def set_limits(size):
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * SCALE, SECONDS * SCALE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    resource.setrlimit(resource.RLIMIT_AS, (FACTOR * size + FIXED,) * 2)


def main():
    passed, failed = 0, 0
    scratch = tempfile.mkdtemp()
    verbs = [("check", ["-t"]), ("list", ["-l"]), ("restore", ["-d", "-o", "out"])]
    if b"salvage" in subprocess.run([LMC, "help"], stdout=subprocess.PIPE).stdout: verbs.append(("salvage", ["salvage", "-o", "out"]))
    for name, make_file in cases():
        if ONLY and not any(word in name for word in ONLY): continue
        data = bytes(make_file())
        with open(os.path.join(scratch, "x.lmc"), "wb") as file:
            file.write(data)
        for verb, words in verbs:
            for left in ("out", "out.partial"):
                left = os.path.join(scratch, left)
                subprocess.run(["rm", "-rf", left], check=True)  # deeper than shutil.rmtree goes
            if name.startswith("constants") and verb in ("restore", "salvage") and not LONG: continue  # half a GB on disk
            command = [LMC] + (words if verb == "salvage" else ["-q", "-T1"] + words) + ["x.lmc"]
            process = subprocess.Popen(command, cwd=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=lambda: set_limits(len(data)))
            said = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = status
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            is_hostile = "claimed" in name or name.startswith("nothing but")
            no_room = verb == "salvage" and b"cannot write it" in said  # a file of 2^63 - 1 bytes: no file system holds it
            good = code == 0 or (is_hostile and (code == 3 or (code == 1 and (b"exceeds a limit" in said or no_room))))
            passed, failed = passed + good, failed + (not good)
            if not good: print("FAILED: %s, %s: exit %d, %s" % (name, verb, code, said[-300:].decode("utf-8", "replace")))
            if VERBOSE: print("%-52s %-8s %9d bytes: exit %d, %6.2f s, %6.1f MB" % (name, verb, len(data), code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    subprocess.run(["rm", "-rf", scratch], check=True)
    if passed + failed < 10: failed += 1
    print("%d passed, %d failed" % (passed, failed))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
