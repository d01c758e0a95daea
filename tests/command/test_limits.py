#!/usr/bin/env python3
"""Files made to cost as much time and memory as they can, within hard limits: memory, output, CPU seconds, stack.

Usage: test_limits.py [--brief | --long] [-v] [NAME...]     NAME: only what has it in its name; --brief: few files, small ones; --long: larger
files, and all verbs for each; -v: prints what each took

There are two tables of files and verbs. The first has files made block by block (spec/encoder.py), which the command must check, list, restore and
salvage. The second has small files with much content (hostile.py), for every verb that reads one. The command must end with an exit code of its own,
and keep these promises (docs/security.md):

  memory   FACTOR[verb] times the size of the files, and 128 MiB, with one thread
  output   a listing has at most 128 times the size of the files, and 128 MiB
  time     proportional to the file and to its restored size: here 30 seconds, with files that take one or less
  stack    256 KiB are enough for the command

The limit of time is no measurement: it finds quadratic growth. The last line is "N passed, N failed". SPDX-License-Identifier: MIT
"""
import json, os, resource, struct, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "spec"))
import hostile
import encoder as make
from encoder import Block, Group, Run, Src, T, build, gap_mode, nested_masks, pack, plane_block, predicted, stored, tree

LMC = os.environ.get("LMC", os.path.join(ROOT, "build", "lmc"))
SECONDS, FIXED, STACK, PRINTED = 30, 128 << 20, 256 << 10, 128
LOOK, COMPARE, MAKE = 32, 32, 64  # times the size: to check, list, restore, salvage; to compare, take out; to make another file of it
LONG, BRIEF, VERBOSE = "--long" in sys.argv, "--brief" in sys.argv, "-v" in sys.argv
ONLY = [a for a in sys.argv[1:] if not a.startswith("-")]
SCALE = 10 if LONG else 1


def repeated(block, n, log2, prediction=0):
    """A snapshot of one block, n times, in one run, which the encoder would take long to make."""
    return build([Src(data=block.data * n), Run([block] * n, log2=log2, prediction=prediction)]).out


def constants(width, size):
    """The block with the most decoded bytes for its size."""
    return Block(bytes(size), width, layout=1, payload=[("planes", b"\1\0" * width)])


def skewed(symbols=16):
    """Code lengths 1, 2, 3 ... 15, 15: the longest paths."""
    return {s: min(s + 1, 15) for s in range(symbols)}


def fields(data, **at):
    """Overwrites bytes of a file by little-endian fields: (offset, format, value)."""
    out = bytearray(data)
    for offset, form, value in at.values():
        struct.pack_into("<" + form, out, offset, value)
    return out


def cases():
    n = 1 << 14
    # every element at the end of the longest path; 14 masks of all ones, each coded with the least and with the most bits, or not coded
    for name, modes in (("least", (20,)), ("most", (19, 20)), ("raw", (0,))):
        lengths = skewed()
        plane = bytes([15]) * n
        yield "deepest tree, masks of all ones, %s bits" % name, lambda lengths=lengths, plane=plane, modes=modes: repeated(
            plane_block(plane, tree(lengths, masks=nested_masks(*modes)), 2 if name != "most" else 8), 32 * SCALE, 14 + (1 if name != "most" else 3))
    mixed = bytes((i * 2654435761 >> 7) % 16 for i in range(n))
    yield "deepest tree, all leaves, masks nested twice", lambda: repeated(plane_block(mixed, tree(skewed(), masks=nested_masks(1, 1)), 8), 16 * SCALE, 17)
    for s in (0, 2):  # a class's mask: all elements have changed, from zero
        yield "masks of all ones as gaps, s %d" % s, lambda s=s: repeated(
            predicted(pack([1] * n, 1), bytes(n), 1, 1, sparse=True, masks=nested_masks(gap_mode(s))), 16 * SCALE, 14, prediction=3)
    wide = bytes((i * 2654435761 >> 5) & 255 for i in range(n))
    yield "256 leaves, nested masks", lambda: repeated(plane_block(wide, tree({s: 8 for s in range(256)}, masks=nested_masks(1)), 4), 16 * SCALE, 16)
    yield "constants: much out of little", lambda: repeated(constants(1, 1 << 22), 60 * SCALE, 22)
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
        """Every byte of a header text has its own run."""
        whole = make.header_text(text)
        parts = [bytes(whole[i:i + 1]) for i in range(0, len(whole), len(whole) // 500)]
        return build([text, Src(b"t", b"".join(parts))] + [Run([stored(part)], [(1, 1, i * (len(whole) // 500))], prediction=2) for i, part in enumerate(parts)]).out
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
    # counts without data: CRCs are right, but the section's body ends at once
    # the index is right
    body = small[84:small.index(b"RUN ")]
    claims = lambda **fields: build([Src(b"f", b"x"), Run([stored(b"x")])], patch=dict({
        name.replace("_", ".", 1): n for name, n in fields.items()}, **{"entry0.Body": body, "entry0.Body_Size": len(body)})).out
    yield "2^28 tensors claimed", lambda: claims(file0_N_Tensors=1 << 28)
    yield "2^28 files claimed", lambda: claims(files0_N_Files=1 << 28)
    yield "2^63 bytes claimed", lambda: claims(file0_File_Size=(1 << 63) - 1)

    def large_body():
        out = fields(small, a=(68, "Q", 1 << 40))
        struct.pack_into("<I", out, 76, make.crc(bytes(out[64:76])))
        return out
    yield "a section of 2^40 bytes claimed", large_body
    end = len(small)

    def large_index():
        out = fields(small, a=(end - 32, "Q", 1 << 40), b=(end - 24, "Q", (1 << 40) + 1000))
        struct.pack_into("<I", out, end - 12, make.crc(bytes(out[end - 40:end - 12])))
        return out
    yield "an index of 2^40 bytes claimed", large_index
    yield "nothing but beginnings of blocks", lambda: small[:small.index(b"RUN ")] + b"\xb2" * (1 << 20) * SCALE
    yield "nothing but beginnings of sections", lambda: small[:small.index(b"RUN ")] + b"RUN FILE" * (1 << 17) * SCALE


# Runs the command again and again. It is a small process, because a child's peak includes the process that it was forked from.
LAUNCHER = """
import json, os, resource, sys
for line in sys.stdin:
    argv, at, stack, seconds, most = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(at)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for fd, name in (1, "printed"), (2, "said"): os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), fd)
        for what, n in (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_STACK, stack), (resource.RLIMIT_AS, most):
            if n is not None: resource.setrlimit(what, (n, n))
        os.execv(argv[0], argv)
    _, status, used = os.wait4(pid, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024, used.ru_utime + used.ru_stime]), flush=True)
"""


class Launcher:
    def __init__(self, at):
        self.at = at
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *argv, stack=STACK, most=None):
        """(exit code, peak of memory, CPU seconds, bytes printed, what was said)"""
        self.process.stdin.write(json.dumps([argv, self.at, stack, SECONDS * SCALE, most]) + "\n")
        self.process.stdin.flush()
        code, peak, seconds = json.loads(self.process.stdout.readline())
        with open(os.path.join(self.at, "said"), "rb") as file: said = file.read()
        return code, peak, seconds, os.path.getsize(os.path.join(self.at, "printed")), said

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def bombs():
    """(name, function that makes {name of file: bytes}, verbs or None for all). An LMC file is x.lmc; from other files, the command makes it."""
    n = 1 if BRIEF else 2
    usual = None

    def one(name, make, *numbers, verbs=None, **more):
        return name, lambda: {"x.lmc": make(*numbers, **more)}, verbs or usual

    def torch(name, make, *numbers):
        return name, lambda: {"x.pt": make(*numbers)}, usual

    def dcp(name_size, items):
        metadata, data = hostile.checkpoint(name_size, items)
        return {"x/.metadata": metadata, "x/__0_0.distcp": data}
    yield torch("a tensor often under one key", hostile.same_keys, 250000)
    yield torch("many names below a long key", hostile.torch_names, 70000, b"k" * 900)
    yield torch("pickle: kept", hostile.torch_opcodes, b"N\x94", 2000000 * n)
    yield torch("tensors side by side", hostile.torch_parts, 12000 * n)
    yield "files that are one", lambda: dict.fromkeys(("x/%03d.pt" % i for i in range(30)), hostile.torch_names(8000 * n, b"k" * 600)), None
    yield torch("members of a ZIP archive", hostile.torch_members, 10000 * n)
    yield one("names by Prefix and Suffix", hostile.prefix_names, 6000 * n * SCALE)
    yield one("deep directories", hostile.deep, 1, 900)
    yield one("segments of a byte", hostile.segments_of_one_byte, 10000 * n, 2)
    yield "a record of rules", lambda: {"x.lmc": hostile.with_metadata((b"lmc.policy", b"[" + b"{}," * (300000 * n * SCALE) + b"{}]"))}, ("-l",)
    yield "items with long names", lambda: dcp(60000, 500 * n), None
    if BRIEF: return
    if not LONG: usual = SOME_VERBS
    yield one("the same, more of them", hostile.prefix_names, 75000 * SCALE, verbs=("-l --json", "salvage --json"))
    yield one("the same, of many dimensions", hostile.prefix_names, 6000, rank=31)
    yield one("the same, of what is escaped", hostile.prefix_names, 6000, text=b"\x1b")
    yield one("empty files", hostile.many_files, 1000)
    yield one("long paths", hostile.many_files, 500, b"p" * 4000 + b"%06d")
    yield one("runs of a byte", hostile.many_runs, 5000 * SCALE)
    yield "metadata", lambda: {"x.lmc": hostile.with_metadata(*((b"%07d" % i, b"") for i in range(50000 * SCALE)))}, usual
    yield "a large value of metadata", lambda: {"x.lmc": hostile.with_metadata((b"\x1b[31m\xff", bytes(2000000 * SCALE)))}, usual
    yield one("links", hostile.many_links, [b"%06d" % i for i in range(1000)])
    yield one("links with long targets", hostile.many_links, [b"%06d" % i for i in range(20)], b"../" * 1300)
    yield torch("the same key, more often", hostile.same_keys, 1000000)
    yield torch("many names", hostile.torch_names, 300000 * SCALE)
    yield torch("names deep down", hostile.torch_deep, 1000, 190)
    yield torch("many dimensions", hostile.torch_ranks, 40000)
    yield torch("pickle: dicts", hostile.torch_opcodes, b"}", 8000000)
    yield torch("pickle: dicts and nothing", hostile.torch_opcodes, b"}NNNNNNN", 1000000)
    yield torch("pickle: marks", hostile.torch_opcodes, b"(", 8000000)
    yield torch("pickle: texts", hostile.torch_opcodes, b"\x8c\0", 4000000)
    yield "nested arrays of GGUF", lambda: {"x.gguf": hostile.gguf_nested(300000)}, usual
    yield "nested JSON", lambda: {"x.safetensors": hostile.json_header(b'{"a":' * 800000)}, usual
    yield "keys of JSON", lambda: {"x.safetensors": hostile.json_header(b"{" + b",".join(
        b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(15000 * SCALE)) + b"}")}, usual


VERBS = [  # words before the file; promised factor; whether it lists
    ("-t", (), LOOK, 0), ("-t", ("--hash",), LOOK, 0), ("-l", (), LOOK, 1), ("-l", ("-v",), LOOK, 1), ("-l", ("--json",), LOOK, 1), ("-d", ("-f", "-o", "out"), LOOK, 0),
    ("salvage", ("-f", "-o", "out"), LOOK, 1), ("salvage", ("--json", "-f", "-o", "out"), LOOK, 1), ("verify", (), LOOK, 0),
    ("stats", (), COMPARE, 1), ("stats", ("--json",), COMPARE, 1), ("diff", ("FIRST",), COMPARE, 1), ("diff", ("--json", "FIRST"), COMPARE, 1),
    ("cat", ("--safetensors", "-f", "-o", "out"), COMPARE, 0), ("cat", (), COMPARE, 0), ("-d", ("-f", "-o", "out", "LAST", "*"), COMPARE, 0),
    ("rebase", ("--onto", "none", "-f", "-o", "out"), MAKE, 0), ("-z", ("-f", "-o", "out"), MAKE, 0)]
BRIEF_VERBS = ("-l", "salvage", "diff", "cat")
SOME_VERBS = BRIEF_VERBS + ("-t", "-d", "-z")  # of the files that --brief leaves out


def remove(*paths):
    paths = [path for path in paths if os.path.lexists(path)]
    if paths: subprocess.run(["rm", "-rf", *paths], check=True)  # deeper than shutil.rmtree can go


def words_of(verb, words, file):
    """The command's words: FIRST is replaced by the file to compare with, LAST by the file, if others follow it."""
    words = [{"FIRST": "y.lmc", "TARGET": "d.lmc"}.get(w, w) for w in words]
    words = [w if w != "LAST" else file for w in words] if "LAST" in words else words + [file]
    return [LMC, verb, *(["-q"] if "-v" not in words and verb != "salvage" else []), "-T1", *words]


def explode(launcher, make_files, only):
    """Runs all verbs on a bomb; yields (what, whether it keeps the promises, what it took)."""
    at = launcher.at
    remove(*(os.path.join(at, x) for x in os.listdir(at)))
    size = 0
    for file, data in make_files().items():
        os.makedirs(os.path.dirname(os.path.join(at, file)), exist_ok=True)
        with open(os.path.join(at, file), "wb") as f: f.write(data)
        size += len(data)
    with open(os.path.join(at, "y.lmc"), "wb") as f: f.write(hostile.many_files(1))
    root = file.partition("/")[0]
    runs = []
    if root != "x.lmc":  # other files are compressed, and then once more, as an attacker would
        runs = [(size, "-z", ["-f", "-o", "made.lmc"], MAKE, 0, root), (size, "-z", ["-f", "--opaque", "-o", "x.lmc"], MAKE, 0, root)]
        # a delta in which it does not change, but another file does; the size of the base counts, too
        for old, content in ("old", b"old"), ("new", b"new"):
            os.makedirs(os.path.join(at, old))
            subprocess.run(["cp", "-r", os.path.join(at, root), os.path.join(at, old, root)], check=True)
            with open(os.path.join(at, old, "changes"), "wb") as f: f.write(content)
        runs += [(size, "-z", ["-f", "--base", "old", "-o", "d.lmc"], MAKE, 0, "new"), (size, "fold", ["-f", "--base", "old", "-o", "out"], MAKE, 0, "d.lmc"),
                 (size, "apply", ["TARGET"], MAKE, 0, "old")]
    runs += [(None, verb, words, factor, lists, "x.lmc") for verb, words, factor, lists in VERBS
             if (verb in BRIEF_VERBS if BRIEF else not only or " ".join([verb, *words]).startswith(only))]
    for size, verb, words, factor, lists, file in runs:
        remove(os.path.join(at, "out"), os.path.join(at, "out.partial"))
        if size is None: size = os.path.getsize(os.path.join(at, "x.lmc"))
        bound, most = factor * size + FIXED, PRINTED * size + FIXED
        code, peak, seconds, printed, said = launcher.run(*words_of(verb, words, file), most=2 * bound + (1 << 30))
        good = code in (0, 1, 2) and peak <= bound and (not lists or printed <= most) and b"out of memory" not in said
        yield " ".join([verb, *words]), good, "%9d bytes: exit %d, %6.2f s, %6.1f of %6.1f MiB, %5.1f MB printed" % (
            size, code, seconds, peak / (1 << 20), bound / (1 << 20), printed / 1e6), said


def set_limits(size):
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * SCALE, SECONDS * SCALE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    resource.setrlimit(resource.RLIMIT_AS, (LOOK * size + FIXED,) * 2)


def main():
    passed, failed = 0, 0
    scratch = tempfile.mkdtemp()
    launcher = Launcher(scratch)  # started now, while this process is small
    for name, make_files, only in bombs():
        if ONLY and not any(word in name for word in ONLY): continue
        for what, good, took, said in explode(launcher, make_files, only):
            passed, failed = passed + good, failed + (not good)
            if not good: print("FAILED: %s, %s: %s, %s" % (name, what, took, said[-300:].decode("utf-8", "replace")))
            elif VERBOSE: print("%-32s %-32s %s" % (name, what, took))
    launcher.close()
    verbs = [("check", ["-t"]), ("list", ["-l"]), ("restore", ["-d", "-o", "out"])]
    if b"salvage" in subprocess.run([LMC, "help"], stdout=subprocess.PIPE).stdout: verbs.append(("salvage", ["salvage", "-o", "out"]))
    for name, make_file in () if BRIEF else cases():
        if ONLY and not any(word in name for word in ONLY): continue
        data = bytes(make_file())
        with open(os.path.join(scratch, "x.lmc"), "wb") as file:
            file.write(data)
        for verb, words in verbs:
            for left in ("out", "out.partial"):
                remove(os.path.join(scratch, left))
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
    remove(scratch)
    if passed + failed < 10: failed += 1
    print("%d passed, %d failed" % (passed, failed))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
