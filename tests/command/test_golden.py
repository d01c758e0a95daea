#!/usr/bin/env python3
"""Files of earlier versions, decoded by this version.

Usage: test_golden.py           decode all of tests/golden: by the command (file, pipe, check, slices), by spec/lmc_decode.py and by the
                                decoders of PORTS, if set
       test_golden.py --make    pack them again with build/lmc, for a new format version; never to make this test pass

manifest.json has for each: what it is, its bases (other golden files, nearest first), and the SHA-256 of every file that it restores to. LMC names
the command (default build/lmc); PORTS: commands of other decoders, a line each, called as COMMAND {base} {in} {out} with
{base} being '-b FILE' for each base. The last line is "N passed, N failed". SPDX-License-Identifier: MIT
"""
import hashlib, json, os, random, shutil, struct, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests", "golden")
LMC = os.environ.get("LMC", os.path.join(ROOT, "build", "lmc"))


# -- making --

def bf16(values):
    return b"".join(struct.pack("<I", (struct.unpack("<I", struct.pack("<f", v))[0] + 0x8000) & 0xFFFFFFFF)[2:] for v in values)


def round_master(f32):
    """BF16 of F32 bytes, to nearest even: a twin."""
    out = bytearray()
    for (bits,) in struct.iter_unpack("<I", f32):
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF)
    return bytes(out)


def safetensors(tensors, metadata=None):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def make():
    rng = random.Random(2026)
    gauss = lambda n, scale=0.02: [rng.gauss(0, scale) for _ in range(n)]
    f32 = lambda values: struct.pack("<%df" % len(values), *values)
    scratch = tempfile.mkdtemp()
    manifest = {"format": None, "files": []}
    for name in os.listdir(GOLDEN):
        if name.endswith(".lmc"):
            os.unlink(os.path.join(GOLDEN, name))

    def write(path, data, mode=0o644):
        path = os.path.join(scratch, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        os.utime(path, (1700000000, 1700000000))

    def pack(name, about, source, *options, bases=(), lossy=False, stdin=False):
        target = os.path.join(GOLDEN, name + ".lmc")
        if bases:
            options += tuple(base_options("--base", bases))
        if stdin:
            with open(os.path.join(scratch, source), "rb") as file:
                subprocess.run([LMC, "-q", "-f", *options, "-o", target, "-"], check=True, stdin=file)
        else:
            subprocess.run([LMC, "-q", "-k", "-f", *options, "-o", target, os.path.join(scratch, source)], check=True)
        out = os.path.join(scratch, "out")
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([LMC, "-q", "-d", *base_options("--base", bases), "-o", out, target], check=True)
        whole = os.path.join(scratch, source)
        if not lossy:
            assert digests(out) == digests(whole), name
        manifest["files"].append({"name": name, "about": about, "bases": list(bases), "content": digests(out)})
        shutil.rmtree(out) if os.path.isdir(out) else os.unlink(out)

    # a training step: master weights, their BF16 twin, moments
    n = 16 * 1024
    master = gauss(n)
    v = [(g * g + 1e-9) * 1e-4 for g in gauss(n, 0.1)]
    m = [x ** 0.5 * rng.gauss(0, 0.3) for x in v]

    def step(number):
        return {"model.safetensors": safetensors([("layer.weight", "BF16", [128, 128], round_master(f32(master)))], {"step": str(number)}),
                "optim/master.safetensors": safetensors([("layer.weight", "F32", [128, 128], f32(master))]),
                "optim/exp_avg.safetensors": safetensors([("layer.weight", "F32", [128, 128], f32(m))]),
                "optim/exp_avg_sq.safetensors": safetensors([("layer.weight", "F32", [128, 128], f32(v))]),
                "config.json": b'{"step": %d}\n' % number}

    for number in range(3):
        for path, data in step(number).items():
            write("step-%d/%s" % (number, path), data)
        os.makedirs(os.path.join(scratch, "step-%d" % number, "empty"), exist_ok=True)
        for i in range(n):
            if rng.random() < 0.6:
                master[i] -= 1e-4 * m[i] / (v[i] ** 0.5 + 1e-8)
            m[i] = 0.9 * m[i] + 0.1 * rng.gauss(0, 0.3) * v[i] ** 0.5
            v[i] = 0.95 * v[i] + 0.05 * (rng.gauss(0, 0.1) ** 2 + 1e-9) * 1e-4
    pack("step-0", "a directory: BF16 that is rounded from F32 (twin), moments, a small file, an empty directory", "step-0")
    pack("step-1", "a delta of a directory", "step-1", bases=["step-0"])
    pack("step-2", "a delta of a delta, level max", "step-2", "--max", bases=["step-1", "step-0"])
    pack("step-0-8bit", "moments of 8 bits by k-means, the first predicted by the second", "step-0", "--quant", "*=bits:8", lossy=True)
    pack("step-0-4bit", "moments of 4 bits", "step-0", "--quant", "*=bits:4", lossy=True)
    pack("step-0-update", "moments within a bound of the update", "step-0", "--quant", "*=update:0.01", lossy=True)
    pack("step-1-relative", "a delta with moments that are quantised with a hard bound", "step-1", "--quant", "*=rel:0.01", bases=["step-0"], lossy=True)

    sparse = [g if rng.random() < 0.03 else 0.0 for g in gauss(30000)]
    dtypes = [("bf16", "BF16", 2, bf16(gauss(20000))), ("f16", "F16", 2, struct.pack("<20000e", *gauss(20000))), ("f64", "F64", 8, struct.pack("<4000d", *gauss(4000))),
              ("f32.sparse", "F32", 4, f32(sparse)), ("i64", "I64", 8, struct.pack("<3000q", *(rng.randrange(50000) for _ in range(3000)))),
              ("u8", "U8", 1, bytes(min(255, int(abs(g) * 40)) for g in gauss(20000, 1))), ("bool", "BOOL", 1, bytes(rng.random() < 0.1 for _ in range(9000))),
              ("f8", "F8_E4M3", 1, bytes(rng.choice((0x28, 0x30, 0x31, 0xB0, 0x2A)) for _ in range(9000))), ("zero", "F32", 4, bytes(20000)),
              ("special", "F32", 4, struct.pack("<8I", 0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 1, 0x807FFFFF)),
              ("scalar", "F32", 4, f32([1.5])), ("none", "F32", 4, b"")]
    write("dtypes.safetensors", safetensors([(name, dtype, [] if name == "scalar" else [len(data) // width], data) for name, dtype, width, data in dtypes]))
    pack("dtypes", "many dtypes, special values, a scalar, an empty tensor", "dtypes.safetensors")
    pack("dtypes-max", "the same at the highest level: nested masks", "dtypes.safetensors", "--archive")
    frozen = b"".join(safetensors([("late", "BF16", [40000], bf16(gauss(40000)))]) for _ in range(1))
    write("late-0.safetensors", frozen)
    late = bytearray(frozen)
    for i in range(len(late) - 80000, len(late), 2):
        if rng.random() < 0.01:
            late[i] = late[i] + rng.choice((-1, 1)) & 255
    write("late-1.safetensors", bytes(late))
    pack("late-0", "BF16 weights, late in training", "late-0.safetensors")
    pack("late-1", "one in a hundred has changed: Sparse", "late-1.safetensors", bases=["late-0"])
    pack("late-1-max", "the same at level max", "late-1.safetensors", "--max", bases=["late-0"])
    for i in range(40):
        write("many/%d/%d.txt" % (i % 3, i), b"file %d\n" % i * (i % 5))
    pack("many", "small files, some of them empty", "many")
    write("text", b"the quick brown fox jumps over the lazy dog\n" * 200)
    pack("text", "bytes that are no tensors", "text")
    pack("pipe", "of unknown size", "text", stdin=True)
    write("nothing", b"")
    pack("nothing", "an empty file", "nothing")
    write("noise", rng.getrandbits(8 * 3001).to_bytes(3001, "little"))
    pack("noise", "bytes that do not compress: stored", "noise")
    with open(os.path.join(GOLDEN, "nothing.lmc"), "rb") as file:
        manifest["format"] = "%d.%d" % tuple(file.read(10)[8:])
    shutil.rmtree(scratch)
    with open(os.path.join(GOLDEN, "manifest.json"), "w") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")


# -- decoding --

def digests(path):
    """The digest of a file, or of every file and empty directory below a directory."""
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            return {"": hashlib.sha256(file.read()).hexdigest()}
    found = {}
    for folder, folders, names in os.walk(path):
        inner = os.path.relpath(folder, path)
        if not folders and not names:
            found[inner + "/"] = ""
        for name in names:
            found[os.path.normpath(os.path.join(inner, name))] = digests(os.path.join(folder, name))[""]
    return found


def base_options(option, bases):
    return [word for base in bases for word in (option, os.path.join(GOLDEN, base + ".lmc"))]


def main():
    if sys.argv[1:] == ["--make"]:
        make()
        return 0
    with open(os.path.join(GOLDEN, "manifest.json")) as file:
        manifest = json.load(file)
    files, counts = manifest["files"], {True: 0, False: 0}
    scratch = tempfile.mkdtemp()
    out = os.path.join(scratch, "out")

    def check(good, about):
        counts[bool(good)] += 1
        if not good: print("FAILED: " + about)

    def restored(about, command, content, **more):
        if os.path.isdir(out): shutil.rmtree(out)
        elif os.path.lexists(out): os.unlink(out)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
        check(done.returncode == 0 and digests(out) == content, "%s: exit %d, %s" % (about, done.returncode, done.stdout[-300:].decode("utf-8", "replace")))

    check({f["name"] + ".lmc" for f in files} | {"manifest.json"} == set(os.listdir(GOLDEN)), "the files are those of the manifest")
    check(len(files) >= 15, "there are golden files")
    for f in files:
        path, content, bases = os.path.join(GOLDEN, f["name"] + ".lmc"), f["content"], f["bases"]
        base = base_options("--base", bases)
        check(subprocess.run([LMC, "-q", "-t", *base, path]).returncode == 0, f["name"] + ": lmc -t")
        restored(f["name"] + ": lmc -d", [LMC, "-q", "-d", *base, "-o", out, path], content)
        with open(path, "rb") as file:
            restored(f["name"] + ": from a pipe, one thread", [LMC, "-q", "-d", "-T1", *base, "-o", out, "-"], content, stdin=file)
        restored(f["name"] + ": lmc_decode.py", [sys.executable, os.path.join(ROOT, "spec", "lmc_decode.py"), *base_options("--base", bases), path, out], content)
        for port in filter(None, os.environ.get("PORTS", "").split("\n")):
            words = [w for word in port.split() for w in ([path] if word == "{in}" else [out] if word == "{out}" else base_options("-b", bases) if word == "{base}" else [word])]
            restored("%s: %s" % (f["name"], port), words, content)
        if bases:  # in place, over the restored base
            if os.path.isdir(out): shutil.rmtree(out)
            elif os.path.lexists(out): os.unlink(out)
            below = os.path.join(GOLDEN, bases[0] + ".lmc")
            subprocess.run([LMC, "-q", "-d", *base_options("--base", bases[1:]), "-o", out, below], check=True)
            done = subprocess.run([LMC, "apply", "-q", path, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            check(done.returncode == 0 and digests(out) == content, f["name"] + ": lmc apply: " + done.stdout[-300:].decode("utf-8", "replace"))
    shutil.rmtree(scratch)
    print("%d passed, %d failed" % (counts[True], counts[False]))
    return int(counts[False] > 0)


if __name__ == "__main__":
    sys.exit(main())
