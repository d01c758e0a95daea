#!/usr/bin/env python3
"""Tests of the command lmc, from outside: exit codes, messages, files, pipes, memory.

Usage: test_command.py [--long|--brief] [-v] [NAME...]      NAME: run only tests whose name contains it

LMC names the command (default build/lmc), LMC_DATA the directory of real data (default ../shared/data, both from the
root of the repository). --long adds files of 1 to 10 GB; --brief runs only what tests/brief.txt names. Docstrings in the past tense tell the fault
that a test is for. SPDX-License-Identifier: MIT
"""
import fcntl
import hashlib
import io
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
from array import array

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LMC = os.path.abspath(os.environ.get("LMC") or os.path.join(ROOT, "build", "lmc"))
DATA = os.path.abspath(os.environ.get("LMC_DATA") or os.path.join(ROOT, "..", "shared", "data"))
SAMPLE = os.path.join(ROOT, "examples", "data", "gpt-step-001000.bf16.safetensors")
DECODER = os.path.join(ROOT, "spec", "lmc_decode.py")
LONG = "--long" in sys.argv
BRIEF = os.path.join(ROOT, "tests", "brief.txt")
MB = 1 << 20
SANITIZED = os.environ.get("LMC_SANITIZED")  # a build under ASan or TSan: no statement about memory and time

# ---- data ----


def floats(n, seed=1, scale=0.02):
    rng = random.Random(seed)
    return array("f", (rng.gauss(0, scale) for _ in range(n)))


def f32(n, seed=1):
    return floats(n, seed).tobytes()


def bf16(n, seed=1):
    data = floats(n, seed).tobytes()
    out = bytearray(2 * n)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


def safetensors(tensors, metadata=None, pad=8, tail=b""):
    """tensors: list of (name, dtype, shape, bytes)."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return safetensors_raw(json.dumps(header), b"".join(t[3] for t in tensors) + tail, pad)


def safetensors_raw(text, data=b"", pad=1):
    text = text.encode() if isinstance(text, str) else text
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + data


GGUF_TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_K": (12, 256, 144), "Q8_0": (8, 32, 34), "I8": (24, 1, 1),
              "BF16": (30, 1, 2), "GGML_77": (77, 1, 3)}


def gguf(tensors, version=3, alignment=32, values=(), pad_last=True):
    """tensors: list of (name, type, shape outermost first, bytes)."""
    def string(s):
        s = s if isinstance(s, bytes) else s.encode()
        return struct.pack("<Q", len(s)) + s
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values) + 1)
    out += string("general.alignment") + struct.pack("<II", 4, alignment)
    for key, value in values:
        out += string(key) + value
    at, data = 0, b""
    for k, (name, kind, shape, content) in enumerate(tensors):
        out += string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        out += struct.pack("<IQ", GGUF_TYPES[kind][0], at)
        data += content
        if k + 1 < len(tensors) or pad_last:
            data += bytes(-len(data) % alignment)
        at = len(data)
    return out + bytes(-len(out) % alignment) + data


def npy(descr, shape, data, fortran=False, version=(1, 0), descr_is_text=True):
    shape_text = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
    text = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (repr(descr) if descr_is_text else descr, fortran, shape_text)
    field = 2 if version[0] == 1 else 4
    text += " " * (-(8 + field + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(field, "little") + text.encode() + data


def elements(data, size):
    return [data[i:i + size] for i in range(0, len(data), size)]


def python_slice(data, shape, size, key):
    """The bytes of data[key] and its shape; key: a tuple of slices and integers."""
    key = tuple(key) + (slice(None),) * (len(shape) - len(key))
    ranges = [[k % n] if isinstance(k, int) else list(range(*k.indices(n))) for k, n in zip(key, shape)]
    places = [0]
    for r, n in zip(ranges, shape):
        places = [p * n + i for p in places for i in r]
    out_shape = [len(r) for r, k in zip(ranges, key) if not isinstance(k, int)]
    return b"".join(data[p * size:(p + 1) * size] for p in places), out_shape


# ---- the test case ----


def compile_to(target, *args, cc=None):
    """The compiler makes a file beside target, which it replaces in one step: suites run at once, and share tools. Returns whether it could."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    beside = "%s.%d" % (target, os.getpid())
    try:
        if subprocess.run([*(cc or os.environ.get("CC", "cc").split()), *args, "-o", beside]).returncode:
            return False
        os.replace(beside, target)
        return True
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def take_signals():
    """For preexec_fn: a shell's background jobs ignore SIGINT, and those of nohup SIGHUP; what they start does, too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="lmc-test-")
        os.chmod(self.dir, 0o755)

    def tearDown(self):
        for base, dirs, _ in os.walk(self.dir):
            for d in dirs:
                os.chmod(os.path.join(base, d), 0o755)
        left = [os.path.join(b, f) for b, d, fs in os.walk(self.dir) for f in d + fs if f.startswith(".lmc-")]
        shutil.rmtree(self.dir)
        self.assertEqual(left, [], "temporary files left behind")

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, data, mode=None):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        if mode is not None:
            os.chmod(path, mode)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def lmc(self, *args, code=0, says=None, stdin=b"", **more):
        """Runs the command below self.dir; checks its exit code and its messages."""
        kind = {} if hasattr(stdin, "fileno") or stdin is None else {"input": stdin}
        if not kind:
            kind = {"stdin": stdin}
        more.setdefault("stdout", subprocess.PIPE)
        p = subprocess.run([LMC, *args], cwd=self.dir, stderr=subprocess.PIPE, timeout=600, **kind, **more)
        text = p.stderr.decode(errors="replace")
        self.assertEqual(p.returncode, code, "lmc %s: %s" % (" ".join(map(os.fsdecode, args)), text[-2000:]))
        if says is not None:
            self.assertIn(says, text)
        if code == 0 and says is None and not {"-v", "--progress"} & set(args):
            self.assertEqual(text, "")
        if code in (1, 3):
            self.assertRegex(text, r"^lmc: ")
        return p

    def dump(self, *args, code=0, says="", stdin=b""):
        """What spec/dump.py prints."""
        p = subprocess.run([sys.executable, os.path.join(ROOT, "spec", "dump.py"), *args], cwd=self.dir, input=stdin, capture_output=True, timeout=600)
        self.assertEqual(p.returncode, code, p.stderr)
        self.assertIn(says, p.stderr.decode())
        return p.stdout.decode()

    def listing(self, name, *args):
        return json.loads(self.lmc("-l", "--json", name, *args).stdout)

    def tree(self, name=""):
        return sorted(os.path.relpath(os.path.join(b, f), self.path(name)) for b, d, fs in os.walk(self.path(name)) for f in d + fs)

    def refuses(self, name, *args, code, says=None, **more):
        """Like lmc(), and nothing in the directory has changed."""
        def state():
            return {f: os.path.isfile(self.path(f)) and (os.lstat(self.path(f)).st_mtime_ns, self.read(f)) for f in self.tree()}
        before = state()
        p = self.lmc(*([name] if name else []), *args, code=code, says=says, **more)
        self.assertEqual(state(), before)
        return p

    def snapshot(self, name):
        if os.path.isfile(self.path(name)):
            return self.read(name)
        return {f: os.path.isfile(self.path(name + "/" + f)) and self.read(name + "/" + f) for f in self.tree(name)}

    def restores(self, name, want, *args, **more):
        self.lmc("-t", name, *args)
        self.lmc("-d", name, *args, "-o", "restored", **more)
        self.assertEqual(self.snapshot("restored"), want)
        shutil.rmtree(self.path("restored")) if isinstance(want, dict) else os.unlink(self.path("restored"))

    def round_trip(self, name, *args):
        """Compresses, tests and restores a file; returns the size of the .lmc."""
        data = self.read(name)
        self.lmc(*args, name)
        self.assertEqual(self.read(name), data)
        self.lmc("-t", name + ".lmc")
        self.lmc("-d", "-o", "restored", name + ".lmc")
        self.assertEqual(self.read("restored"), data)
        os.unlink(self.path("restored"))
        return os.path.getsize(self.path(name + ".lmc"))

    def max_rss(self, *args, stdin=None):
        """Peak memory in MB. A small Python starts the command, because the peak of the process that forks counts, too."""
        script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
                  "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        p = subprocess.run([sys.executable, "-c", script, LMC, *args], cwd=self.dir, stdin=stdin, stdout=subprocess.PIPE, check=True)
        return int(p.stdout) / 1024


# ---- verbs and options ----


class Verbs(Case):
    def test_hashes(self):
        """--hash: written, listed, checked; a snapshot keeps them when it is coded again."""
        parts = {"a": bf16(3000), "b": f32(500)}
        self.write("m.safetensors", safetensors([("a", "BF16", [3000], parts["a"]), ("b", "F32", [500], parts["b"])]))
        self.write("raw", b"raw bytes")
        self.lmc("m.safetensors", "-o", "plain.lmc")
        self.lmc("--hash", "m.safetensors")
        tensors = self.listing("m.safetensors.lmc")["files"][0]["tensors"]
        self.assertEqual({t["name"]: t["sha256"] for t in tensors}, {k: hashlib.sha256(v).hexdigest() for k, v in parts.items()})
        self.assertNotIn("sha256", json.dumps(self.listing("plain.lmc")))
        self.lmc("-t", "--hash", "m.safetensors.lmc")
        self.lmc("-t", "-v", "--hash", "m.safetensors.lmc", says="SHA-256 of all of them")
        self.assertNotIn(b"SHA-256", self.lmc("-t", "-v", "plain.lmc").stderr)
        self.lmc("-t", "--hash", "plain.lmc", code=1, says="has no hashes")
        self.lmc("--hash", "raw")
        self.assertEqual(self.listing("raw.lmc")["files"][0]["sha256"], hashlib.sha256(b"raw bytes").hexdigest())
        self.lmc("rebase", "--onto", "none", "m.safetensors.lmc", "-o", "again.lmc")
        self.lmc("-t", "--hash", "again.lmc")
        whole = self.listing("m.safetensors.lmc")["sha256"]
        self.assertEqual(self.listing("again.lmc")["sha256"], whole)
        self.lmc("--hash", "--base", "plain.lmc", "m.safetensors", "-o", "delta.lmc", says="")
        self.assertEqual(self.listing("delta.lmc")["sha256"], whole)  # with any coding
        self.write("m.safetensors", safetensors([("b", "BF16", [3000], parts["a"]), ("a", "F32", [500], parts["b"])]))
        self.lmc("--hash", "-f", "m.safetensors")
        self.assertNotEqual(self.listing("m.safetensors.lmc")["sha256"], whole)
        self.lmc("rebase", "--onto", "none", "plain.lmc", "-o", "still-plain.lmc")
        self.lmc("-t", "--hash", "still-plain.lmc", code=1)
        self.lmc("--hash", "-d", "raw.lmc", code=2)
        vector = os.path.join(ROOT, "spec", "vectors", "valid", "hash_wrong.lmc")
        self.lmc("-t", vector)
        self.lmc("-t", "--hash", vector, code=3)

    def test_round_trip_of_sizes(self):
        rng = random.Random(5)
        for n in (0, 1, 2, 3, 7, 8, 255, 256, 257, 16384, 65535, 65536, 65537, 131072, 262144, 300001, 1048577):
            self.write("a", rng.randbytes(n))
            self.assertLessEqual(self.round_trip("a"), n + n // 1000 + 800)
            os.unlink(self.path("a.lmc"))

    def test_files_around_windows(self):
        """New files are written in windows of 512 KiB; after each 16 windows writing to the disk starts."""
        rng = random.Random(6)
        for n in (MB // 2, MB, 8 * MB):
            for more in (-1, 0, 1):
                self.write("d/%d" % (n + more), rng.randbytes(n + more))
        self.lmc("d")
        self.lmc("-d", "d.lmc", "-o", "e")
        for name in os.listdir(self.path("d")):
            self.assertEqual(self.read("e/" + name), self.read("d/" + name), name)
            self.round_trip("d/" + name)

    def test_round_trip_of_kinds(self):
        for name, data in (("zeros", bytes(3 * MB)), ("text", b"the quick brown fox\n" * 30000), ("bf16", bf16(200000)),
                           ("f32", f32(100000)), ("x.safetensors", safetensors([("w", "BF16", [200, 500], bf16(100000))]))):
            self.write(name, data)
            size = self.round_trip(name)
            self.assertLess(size, len(data))
            if name == "zeros":
                self.assertLess(size * 1000, len(data))

    def test_zeros_become_holes(self):
        block = 65536
        for name, data in (("all", bytes(20 * MB)), ("end", b"x" * block + bytes(9 * MB + 5)), ("start", bytes(9 * MB) + b"x"),
                           ("middle", b"x" + bytes(9 * MB) + b"y"), ("small", bytes(block)), ("less", bytes(block - 1)),
                           ("between", (bytes(block) + b"x" * block + bytes(3 * block) + b"yz" * block) * 20 + bytes(7))):
            self.write("d/" + name, data)
            self.round_trip("d/" + name)
            os.unlink(self.path("d/" + name + ".lmc"))
        self.lmc("d")
        self.lmc("d/all")
        noise = random.Random(7).randbytes(MB + 40000)
        for kept in (1, 40000, len(noise)):  # bytes before a hole that begins within a window, and behind it
            self.write("d/%d" % kept, safetensors([("a", "U8", [kept], noise[:kept]), ("b", "U8", [9 * MB], bytes(9 * MB)), ("c", "U8", [len(noise)], noise)]))
        self.lmc("-f", "d")
        self.lmc("-d", "d.lmc", "-o", "e")
        self.lmc("-d", "d/all.lmc", "-o", "f")
        for name in os.listdir(self.path("e")):
            self.assertEqual(self.read("e/" + name), self.read("d/" + name), name)
        self.assertEqual(self.read("f"), self.read("d/all"))
        with open(self.path("hole"), "wb") as f:
            f.truncate(MB)
        if os.stat(self.path("hole")).st_blocks == 0:  # this file system has holes
            self.assertEqual(os.stat(self.path("f")).st_blocks, 0)
            for kept in (1, 40000, len(noise)):
                self.assertLess(os.stat(self.path("e/%d" % kept)).st_blocks * 512, kept + len(noise) + 4 * 65536)
            self.assertLess(os.stat(self.path("e/middle")).st_blocks, 1000)
        with open(self.path("g"), "wb") as f:  # a stream is written without holes
            f.write(b"before")
            f.flush()
            self.lmc("-dc", "d/all.lmc", stdout=f)
        self.assertEqual(self.read("g"), b"before" + bytes(20 * MB))

    def test_source_is_kept_and_attributes_follow(self):
        self.write("a", b"hello", 0o640)
        os.utime(self.path("a"), ns=(1, 1234567890123456789))
        self.lmc("a")
        for name in ("a", "a.lmc"):
            st = os.stat(self.path(name))
            self.assertEqual((st.st_mode & 0o7777, st.st_mtime_ns), (0o640, 1234567890123456789))
        os.chmod(self.path("a.lmc"), 0o600)
        os.rename(self.path("a"), self.path("b"))
        self.lmc("-d", "a.lmc")
        st = os.stat(self.path("a"))
        self.assertEqual((st.st_mode & 0o7777, st.st_mtime_ns), (0o640, 1234567890123456789))

    def test_output_of_a_pipe_has_the_mode_of_the_umask(self):
        p = subprocess.run(["sh", "-c", 'umask 027; exec "$0" -o x.lmc', LMC], cwd=self.dir, input=b"abc")
        self.assertEqual(p.returncode, 0)
        self.assertEqual(os.stat(self.path("x.lmc")).st_mode & 0o7777, 0o640)

    def test_stdout_and_output(self):
        self.write("a", b"hello")
        packed = self.lmc("-c", "a").stdout
        self.assertEqual(self.tree(), ["a"])
        self.lmc("a", "-o", "x.lmc")
        self.assertEqual(self.read("x.lmc"), packed)
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, b"hello")
        self.lmc("-d", "x.lmc", "-oy")
        self.assertEqual(self.read("y"), b"hello")
        self.assertEqual(self.lmc("-d", "-o", "-", "x.lmc").stdout, b"hello")
        self.lmc("-t", "x.lmc")

    def test_dev_stdout_is_standard_output(self):
        self.write("a", b"hello")
        for args in (("a", "-o", "/dev/stdout"), ("-d", "a.lmc", "-o", "/dev/stdout")):
            with open(self.path("all"), "wb") as f:
                f.write(b"before")
                f.flush()
                self.lmc(*args, stdout=f)
            self.write("a.lmc", self.read("all")[6:])
            self.assertEqual(self.read("all")[:6], b"before")
        self.assertEqual(self.read("all"), b"beforehello")
        self.refuses("--rm", "a", "-o", "/dev/stdout", code=2)

    def test_other_names_of_the_program(self):
        self.write("a", b"hello")
        self.lmc("a")
        for name in ("unlmc", "lmccat"):
            os.symlink(LMC, self.path(name))
        self.assertEqual(subprocess.run([self.path("lmccat"), "a.lmc", "a.lmc"], cwd=self.dir, stdout=subprocess.PIPE).stdout,
                         b"hellohello")
        os.unlink(self.path("a"))
        self.assertEqual(subprocess.run([self.path("unlmc"), "a.lmc"], cwd=self.dir).returncode, 0)
        self.assertEqual(self.read("a"), b"hello")

    def test_forms_of_options(self):
        self.write("a", b"hello")
        self.write("-x", b"dash")
        self.lmc("-fT2", "a")
        self.lmc("-f", "-T", "1", "a")
        self.lmc("--force", "--threads=2", "--keep", "--quiet", "a")
        self.lmc("-z", "-f", "-T0", "a", "--no-progress")
        self.lmc("--", "-x")
        self.assertEqual(self.lmc("-cd", "--", "-x.lmc").stdout, b"dash")
        self.lmc("-fv", "a", says="a: 5 -> ")
        self.lmc("-tv", "a.lmc", says="ok, 1 file, 5 bytes")
        self.lmc("-f", "--output=b.lmc", "a")

    def test_help_and_version(self):
        self.assertIn(b"compress each to FILE.lmc", self.lmc("-h").stdout)
        self.assertEqual(self.lmc("--help").stdout, self.lmc("help").stdout)
        self.assertRegex(self.lmc("-V").stdout, rb"^lmc \d+\.\d+\.\d+, format \d+\.\d+")
        for topic in ("formats", "directories", "quant", "deltas", "apply", "cat", "diff", "stats", "pipes", "memory", "exit"):
            self.assertGreater(len(self.lmc("help", topic).stdout), 200)
        self.lmc("help", "nonsense", code=2, says="no help on 'nonsense'")

    def test_usage_errors(self):
        self.write("a", b"hello")
        self.lmc("a")
        for args in (("--nonsense", "a"), ("-y", "a"), ("-T", "x", "a"), ("-T5000", "a"), ("-T",), ("-o",), ("-19", "a"),
                     ("--dtype", "BF17", "a"), ("-o", "x", "a", "a"), ("--rm", "-c", "a"), ("--rm", "-"), ("--json", "a"),
                     ("--npy", "a"), ("-t", "--rm", "a.lmc"), ("cat",), ("cat", "a", "b", "c"), ("-d", "--opaque", "a.lmc"),
                     ("--opaque", "--dtype=U8", "a"), ("-r", "-o", "x", "a"), ("-c", "a", "a"), ("-rc", "."), ("-t", "-c", "a.lmc"), ("-l", "-o", "x", "a.lmc"),
                     ("-t", "-o", "x", "a.lmc"), ("cat", "-d", "a.lmc"), ("cat", "-t", "a.lmc"), ("cat", "-l", "a.lmc"), ("cat", "-z", "a")):
            self.refuses(None, *args, code=2, says="lmc: ")
        self.assertEqual(self.lmc("-dc", "a.lmc", "a.lmc").stdout, b"hellohello")

    def test_several_files_one_bad(self):
        self.write("a", b"aaa")
        self.write("c", b"ccc")
        self.lmc("a", "missing", "c", code=1, says="missing: cannot open it")
        self.lmc("-t", "a.lmc", "c.lmc")
        self.write("bad.lmc", b"nonsense")
        self.lmc("-t", "a.lmc", "bad.lmc", "missing", "c.lmc", code=3, says="bad.lmc")
        os.unlink(self.path("a"))
        os.unlink(self.path("c"))
        self.lmc("-d", "a.lmc", "bad.lmc", "c.lmc", code=3)
        self.assertEqual(self.read("a") + self.read("c"), b"aaaccc")
        self.assertFalse(os.path.exists(self.path("bad")))

    def test_longest_names(self):
        """With the suffix, a name of 252 to 255 bytes has more than a file system allows."""
        for n in (251, 252, 255):
            self.write("n" * n, b"x")
            self.lmc("n" * n, code=int(n > 251), says="name another output with -o" if n > 251 else None)
        self.lmc("n" * 255, "-o", "short.lmc")
        self.restores("short.lmc", b"x")

    def test_existing_output(self):
        self.write("a", b"new")
        self.write("a.lmc", b"precious")
        self.refuses("a", code=1, says="exists already; use -f")
        self.lmc("-f", "a")
        self.write("a", b"precious")
        self.refuses("-d", "a.lmc", code=1, says="exists already; use -f")
        self.lmc("-df", "a.lmc")
        self.assertEqual(self.read("a"), b"new")

    def test_output_that_appears_meanwhile_is_kept(self):
        p = subprocess.Popen([LMC, "-o", "x.lmc"], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"data")
        p.stdin.flush()
        time.sleep(0.2)
        self.write("x.lmc", b"precious")
        _, text = p.communicate(b"more")
        self.assertEqual(p.returncode, 1, text)
        self.assertIn(b"exists already", text)
        self.assertEqual((self.read("x.lmc"), self.tree()), (b"precious", ["x.lmc"]))

    @unittest.skipUnless(sys.platform == "linux", "affinity and /proc are of Linux")
    def test_threads_are_those_of_the_affinity(self):
        """Without -T they were the CPUs of the machine, also where lmc may use one, and memory with them."""
        cpus = os.sched_getaffinity(0)

        def count_tasks(*args, cpus):
            """One task is the thread for signals. All have started when lmc reads more than a pipe holds."""
            p = subprocess.Popen([LMC, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
            with p:
                p.stdin.write(bytes(1 << 20))
                n = len(os.listdir("/proc/%d/task" % p.pid)) - 1
            self.assertEqual(p.returncode, 0)
            return n

        self.assertEqual(count_tasks("-c", cpus={min(cpus)}), 1)
        self.assertEqual(count_tasks("-c", "-T5", cpus={min(cpus)}), 5)
        self.assertLessEqual(count_tasks("-c", cpus=cpus), min(16, len(cpus)))

    def test_threads_give_equal_bytes(self):
        self.write("a", bf16(700000) + random.Random(1).randbytes(300000) + bytes(500000))
        one = self.lmc("-cT1", "a").stdout
        for n in ("2", "3", "4", "0", "16"):
            self.assertEqual(self.lmc("-cT" + n, "a").stdout, one)
        self.write("x.lmc", one)
        for n in ("1", "4"):
            self.assertEqual(self.lmc("-dcT" + n, "x.lmc").stdout, self.read("a"))

    def test_list(self):
        self.write("m.safetensors", safetensors([("a", "F32", [4, 25], f32(100)), ("b", "BF16", [], bf16(1)), ("e", "F16", [0, 5], b"")]))
        self.lmc("m.safetensors")
        text = self.lmc("-l", "m.safetensors.lmc").stdout.decode()
        self.assertRegex(text, r"1 file, 3 tensors, \d+ -> \d+ bytes")
        self.assertRegex(text, r"F32 +\[4,25\] +400 ")
        self.assertRegex(text, r"fingerprint [0-9a-f]{32}\n")
        self.assertRegex(self.lmc("-lv", "m.safetensors.lmc", says="").stdout.decode(), r"offset \d+  [0-9a-f]{32}\n")
        o = self.listing("m.safetensors.lmc")
        self.assertEqual([(t["name"], t["dtype"], t["shape"], t["size"]) for t in o["files"][0]["tensors"]],
                         [("a", "F32", [4, 25], 400), ("e", "F16", [0, 5], 0), ("b", "BF16", [], 2)]
                         if o["files"][0]["tensors"][1]["name"] == "e" else
                         [("a", "F32", [4, 25], 400), ("b", "BF16", [], 2), ("e", "F16", [0, 5], 0)])
        self.assertEqual(o["packed_size"], os.path.getsize(self.path("m.safetensors.lmc")))
        self.assertEqual(o["size"], os.path.getsize(self.path("m.safetensors")))
        self.write("m.txt", b"no tensors")
        self.lmc("-l", "m.txt", code=3, says="not an LMC file")
        self.lmc("-l", "-", code=1, says="save it to a file", stdin=b"abc")

    def test_no_escapes_reach_the_terminal(self):
        self.write("m.safetensors", safetensors([("name\x1b[1m", "\x1b[31mX", [4], b"abcd")], metadata={"a\x1b": "b\x1b"}))
        self.write("d\x1b/x\x07", b"x")
        self.lmc("m.safetensors", "-o", "m.lmc")
        self.lmc("d\x1b", "-o", "d.lmc")
        for args in (("-lv", "m.lmc", "d.lmc"), ("diff", "m.lmc", "m.safetensors"), ("stats", "m.lmc"), ("-t", "m.lmc", "d.lmc"), ("cat", "m.lmc", "no\x1b")):
            p = self.lmc(*args, code=1 if args[0] == "cat" else 0, says="")
            self.assertFalse(set(p.stdout + p.stderr) & {7, 27}, args)

    def test_json_of_what_is_no_utf8(self):
        self.write("x", b"x")
        odd = b"d\xff/\xfe\n.bin"
        os.mkdir(os.path.join(os.fsencode(self.dir), b"d\xff"))
        os.rename(self.path("x"), os.path.join(os.fsencode(self.dir), odd))
        self.lmc(b"d\xff", "-o", "d.lmc")
        o = self.listing("d.lmc")
        self.assertEqual((o["files"][0]["path"], o["files"][0]["path_hex"]), ("?\n.bin", odd[3:].hex()))
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(os.listdir(self.path("e").encode()), [odd[3:]])
        os.rename(self.path("d.lmc"), os.path.join(os.fsencode(self.dir), b"\xc3.lmc"))
        self.assertEqual(self.listing(b"\xc3.lmc")["snapshot_hex"], b"\xc3.lmc".hex())
        shutil.rmtree(os.path.join(os.fsencode(self.dir), b"d\xff"))

    def test_json_of_every_vector(self):
        with open(os.path.join(ROOT, "spec", "vectors", "manifest.json")) as f:
            valid = json.load(f)["valid"]
        for want in valid:
            damaged = want["section"] == "hash" and "or" in want and want["name"] not in ("hash_content_wrong", "hash_twice", "hash_twice_apart")
            path = os.path.join(ROOT, "spec", "vectors", "valid", want["name"] + ".lmc")
            p = self.lmc("-l", "--json", path, says="hashes are damaged" if damaged else None)
            o = json.loads(p.stdout)
            self.assertEqual(p.stderr.count(b"\n"), damaged)  # one line, however many items there are
            self.assertEqual(o.get("hashes") == "damaged", damaged)
            self.assertEqual(o.get("hashes") == "sha256", any("sha256" in part for file in o["files"] for part in [file] + file["tensors"]))
            for file, found in zip(want["files"], o["files"]):
                self.assertEqual(found.get("path_hex", file.get("path_hex")), file.get("path_hex"))
                for t, f in zip(file["tensors"], found["tensors"]):
                    self.assertEqual([int(n) for n in f["shape"]], t["shape"])
            self.assertEqual(len(o["metadata"]), len(want["metadata"]))

    def test_links_that_break_rules(self):
        """Verbs that restore, write an archive or test refuse them, and leave nothing."""
        vectors = os.path.join(ROOT, "spec", "vectors")
        with open(os.path.join(vectors, "manifest.json")) as f:
            wanted = [v for v in json.load(f)["valid"] if v["section"] == "links" and v["name"].startswith("links_")]
        self.assertGreater(len(wanted), 30)
        for v in wanted:
            path, bad = os.path.join(vectors, "valid", v["name"] + ".lmc"), "or" in v
            for how in (["-t", path], ["-dc", path], ["-d", path, "-o", "x"], ["-d", path, "-o", "x", "--", "a"])[:4 if "a" in [f["path"] for f in v["files"]] else 3]:
                p = subprocess.run([LMC, *how], cwd=self.dir, capture_output=True, timeout=60)
                self.assertEqual(p.returncode, 3 if bad else 0, (how, p.stderr))
                if bad:
                    self.assertIn(b"has a list of links ('lmc.links') that breaks the rules", p.stderr)
                    self.assertEqual(os.listdir(self.dir), [])
                else:
                    shutil.rmtree(self.path("x"), ignore_errors=True)

    def test_fingerprint_is_that_of_the_content(self):
        w = ("w", "BF16", [1000], bf16(1000))
        v = ("v", "F32", [10], f32(10))
        self.write("1.safetensors", safetensors([w, v]))
        self.write("2.safetensors", safetensors([v, w], metadata={"a": "b"}, pad=1))
        self.write("3.safetensors", safetensors([w, ("v", "F32", [5, 2], f32(10))]))
        self.lmc("1.safetensors", "2.safetensors", "3.safetensors")
        one, two, three = (self.listing("%d.safetensors.lmc" % i)["fingerprint"] for i in (1, 2, 3))
        self.assertEqual(one, two)
        self.assertNotEqual(one, three)


# ---- pipes ----


class Pipes(Case):
    def test_both_directions(self):
        for data in (b"", b"x", b"text " * 1000, bf16(300000), safetensors([("w", "BF16", [1000], bf16(1000))])):
            packed = self.lmc(stdin=data).stdout
            self.assertEqual(self.lmc("-d", stdin=packed).stdout, data)
            self.assertEqual(self.lmc("-dc", "-", stdin=packed).stdout, data)
            self.lmc("-t", stdin=packed)

    def test_standard_input_may_be_a_file(self):
        self.write("a", b"0123456789" * 10000)
        with open(self.path("a"), "rb") as f:
            packed = self.lmc("-", stdin=f).stdout
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, self.read("a"))

    def test_slow_writer_and_unknown_length(self):
        data = bf16(400000)
        p = subprocess.Popen([LMC], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        packed = []
        reader = threading.Thread(target=lambda: packed.append(p.stdout.read()))
        reader.start()
        for i in range(0, len(data), 99991):
            p.stdin.write(data[i:i + 99991])
            p.stdin.flush()
            time.sleep(0.02)
        p.stdin.close()
        reader.join()
        p.stdout.close()
        self.assertEqual(p.wait(), 0)
        self.assertEqual(self.lmc("-d", stdin=packed[0]).stdout, data)

    def test_tensors_in_pipes(self):
        w = [("w", "BF16", [300, 300], bf16(90000))]
        for data, dtype in ((safetensors(w), "BF16"), (npy("<f4", (300, 300), f32(90000)), "F32"),
                            (gguf([("w", "BF16", [300, 300], bf16(90000))]), "BF16")):
            self.lmc("-o", "x.lmc", "-f", stdin=data)
            tensors = self.listing("x.lmc")["files"][0]["tensors"]
            self.assertEqual([(t["dtype"], t["shape"]) for t in tensors], [(dtype, [300, 300])])
            self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data)

    def test_pipe_that_does_not_hold_what_its_header_says(self):
        data = safetensors([("w", "BF16", [300, 300], bf16(90000))])
        self.refuses("-o", "x.lmc", code=1, says="goes on after the last tensor", stdin=data + b"tail")
        self.refuses("-o", "x.lmc", code=1, says="ends 5 bytes before the last tensor", stdin=data[:-5])
        self.lmc("--opaque", "-o", "x.lmc", stdin=data + b"tail")
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data + b"tail")
        small = safetensors([("w", "BF16", [3], bf16(3))], tail=b"tail")  # its size is known from the start
        self.assertEqual(self.lmc("-d", stdin=self.lmc(stdin=small).stdout).stdout, small)
        data = gguf([("w", "I8", [(1 << 63) - 1], b"")])  # no file can be so long: not a container
        data += bytes(200000)
        self.lmc("-o", "y.lmc", stdin=data)
        self.assertEqual(self.lmc("-dc", "y.lmc").stdout, data)

    def test_header_that_needs_several_looks(self):
        data = safetensors([("tensor.number.%d" % i, "U8", [2], b"ab") for i in range(20000)])
        self.assertGreater(len(data), 1000000)
        self.lmc("-o", "x.lmc", stdin=data)
        self.assertEqual(len(self.listing("x.lmc")["files"][0]["tensors"]), 20000)
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data)

    def test_closed_pipe(self):
        self.write("a", random.Random(3).randbytes(3 * MB))
        self.lmc("a")
        for args in (["-c", "a"], ["-dc", "a.lmc"]):
            p = subprocess.Popen([LMC] + args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.close()
            text = p.stderr.read().decode()
            p.stderr.close()
            self.assertEqual(p.wait(), 1, text)
            self.assertEqual(text, "")
        p = subprocess.Popen([LMC, "-l"] + ["a.lmc"] * 3000, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.close()
        self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))  # the reader has ended
        p.stderr.close()

    def test_closed_standard_output(self):
        self.write("a", b"hello")
        p = subprocess.run(["sh", "-c", '"$0" -c a >&-', LMC], cwd=self.dir, stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, 1, p.stderr)

    def test_reader_that_stops_early_with_a_slow_writer(self):
        """The source blocks for ever, but the output fails: no deadlock."""
        p = subprocess.Popen([LMC, "-c"], stdin=subprocess.PIPE, stdout=open("/dev/full", "wb"), stderr=subprocess.PIPE)
        try:
            for _ in range(40):
                p.stdin.write(random.randbytes(MB))
        except BrokenPipeError:
            pass
        self.assertEqual(p.wait(timeout=20), 1)
        self.assertIn(b"No space left", p.stderr.read())
        p.stderr.close()
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass

    def test_fifo_as_a_file(self):
        os.mkfifo(self.path("f"))
        t = threading.Thread(target=lambda: open(self.path("f"), "wb").write(b"through a fifo"))
        t.start()
        packed = self.lmc("-c", "f").stdout
        t.join()
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, b"through a fifo")

    def test_in_place_outputs(self):
        self.write("a", b"hello")
        self.lmc("a", "-o", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))


class Terminals(Case):
    def setUp(self):
        super().setUp()
        try:
            for end in pty.openpty():
                os.close(end)
        except OSError as e:
            self.skipTest("this machine has no pseudo-terminals (%s); mount devpts at /dev/pts" % (e.strerror or e))

    def run_in_terminal(self, args, streams, columns=0, seen=None):
        """Runs with the named streams on a terminal; returns the exit code and what the terminal showed. seen: is called with all output so far,
        whenever there is more."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        kinds = {s: slave if s in streams else subprocess.DEVNULL for s in ("stdin", "stdout", "stderr")}
        p = subprocess.Popen([LMC] + args, cwd=self.dir, **kinds)
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
            if seen:
                seen(shown)
        os.close(master)
        return p.wait(timeout=20), shown.decode(errors="replace")

    def test_tables(self):
        """On a terminal of less than 132 columns they are at most 80 wide."""
        for k, name in enumerate(("a", "b")):
            self.write(name + "/m.st", safetensors([("w%d" % n, "BF16", [64, 64], bf16(4096, n + 10 * k)) for n in range(3)]))
            self.write(name + "/long.txt", b"x" * 5000)
        os.symlink("long.txt", self.path("a/link"))
        self.lmc("a")
        for args, columns in ((["-l", "a.lmc"], "ratio  name"), (["stats", "a"], "delta  name"), (["stats", "a", "b"], "delta  name"),
                              (["diff", "a", "b"], "delta  name")):
            wide = self.lmc(*args).stdout.decode()
            for width in (40, 80, 131):
                code, shown = self.run_in_terminal(["-q", *args], ["stdout"], columns=width)
                lines = [line for line in shown.replace("\r", "").split("\n") if "fingerprint" not in line]
                self.assertEqual(code, 0)
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertIn(columns, shown)
                self.assertEqual(len(lines), len([line for line in wide.split("\n") if "fingerprint" not in line]))
            self.assertEqual(self.run_in_terminal(["-q", *args], ["stdout"], columns=132)[1].replace("\r", ""), wide)

    def test_no_binary_to_a_terminal(self):
        self.write("a", b"hello")
        self.write("x.safetensors", safetensors([("w", "U8", [3], b"abc")]))
        self.lmc("a", "x.safetensors")
        for args in (["-c", "a"], ["-dc", "a.lmc"], ["cat", "x.safetensors.lmc", "w"]):
            code, shown = self.run_in_terminal(args, ("stdout", "stderr"))
            self.assertEqual(code, 1)
            self.assertIn("not written to a terminal", shown)
        self.assertEqual(self.run_in_terminal(["-dcf", "a.lmc"], ("stdout",)), (0, "hello"))

    def test_nothing_is_read_from_a_terminal(self):
        for args in ([], ["-d"], ["-t", "-"]):
            code, shown = self.run_in_terminal(args, ("stdin", "stderr"))
            self.assertEqual(code, 1)
            self.assertIn("standard input is a terminal", shown)

    def run_until_progress(self, name, columns):
        """Compresses a FIFO of that name, and writes a few bytes at a time into it until a line of progress appears."""
        data = safetensors([("w", "U8", [16 * MB], bytes(16 * MB))])
        os.mkfifo(self.path(name))
        is_seen = threading.Event()

        def feed():
            with open(self.path(name), "wb", buffering=0) as f:
                at = 0
                while at < len(data):
                    n = len(data) - at if is_seen.is_set() else 1 << 15
                    at += f.write(data[at:at + n])
                    is_seen.wait(0.01)
        feeder = threading.Thread(target=feed)
        feeder.start()
        code, shown = self.run_in_terminal(["-f", "-o", "x.lmc", name], ("stderr",), columns,
                                           lambda text: is_seen.set() if b" MB" in text else None)
        is_seen.set()
        feeder.join()
        os.unlink(self.path(name))
        return code, shown, len(data)

    def test_progress(self):
        code, shown, size = self.run_until_progress("a", 0)
        self.assertEqual(code, 0)
        self.assertRegex(shown, r"a: [0-9.]+ MB, \d+ MB/s, [0-9.]+ %, \d+:\d\d left")
        self.assertRegex(shown, r"\r\x1b\[Klmc: a: %d -> \d+ bytes \([0-9.]+ %%\), \d+ MB/s\r\n$" % size)
        for name, columns in (("a" * 200, 0), ("\u4e16" * 60, 50), ("b", 20), ("c" * 100, 100)):
            code, shown, size = self.run_until_progress(name, columns)
            lines = [s for s in shown.split("\r\033[K") if s and " -> " not in s]
            self.assertTrue(code == 0 and lines)
            for line in lines:
                self.assertNotIn("\ufffd", line)
                self.assertLess(len(line), columns or 80)
        self.write("a", bytes(MB))
        self.assertEqual(self.run_in_terminal(["-fq", "a"], ("stderr",)), (0, ""))
        code, shown = self.run_in_terminal(["-f", "--no-progress", "a"], ("stderr",))
        self.assertRegex(shown, r"^lmc: a: 1048576 -> [^\r]*\r\n$")


# ---- directories ----


class Directories(Case):
    def make_tree(self):
        files = {"d/model.safetensors": safetensors([("w", "BF16", [1000], bf16(1000))]), "d/config.json": b"{}",
                 "d/opt/shard-0.bin": f32(5000), "d/opt/deep/er/x": b"x", "d/empty": b"", "d/-odd name": b"o", "d/opt-a": b"z",
                 "d/\u00e4\u4e16": b"unicode"}
        for k, (name, data) in enumerate(files.items()):
            self.write(name, data)
            os.chmod(self.path(name), 0o600 + k)
            os.utime(self.path(name), ns=(0, 10**18 + 10**9 * k + k))
        for name, mode in (("d/none", 0o700), ("d/opt/nothing", 0o755)):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), mode)
            os.utime(self.path(name), ns=(0, 5 * 10**17))
        for k, name in enumerate(("d/opt/deep/er", "d/opt/deep", "d/opt")):  # from the leaves up: a new entry changes a directory's time
            os.chmod(self.path(name), (0o750, 0o555, 0o710)[k])
            os.utime(self.path(name), ns=(0, 6 * 10**17 + k))

    def state(self, name):
        out = {}
        for f in self.tree(name):
            st = os.stat(os.path.join(self.path(name), f))
            if stat.S_ISREG(st.st_mode):
                out[f] = (self.read(os.path.join(name, f)), st.st_mode, st.st_mtime_ns)
            else:
                out[f] = (st.st_mode, st.st_mtime_ns)
        return out

    def test_round_trip(self):
        self.make_tree()
        before = self.state("d")
        self.lmc("d/")
        self.assertEqual(self.state("d"), before)
        self.lmc("-t", "d.lmc")
        paths = [f["path"] for f in self.listing("d.lmc")["files"]]
        self.assertEqual(sorted(paths, key=os.fsencode), sorted(self.tree("d"), key=os.fsencode))
        self.assertIn("opt/deep", paths)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.state("e"), before)
        self.remove("e")
        p = self.lmc("-d", "-o", "e/", stdin=self.read("d.lmc"))
        self.assertEqual(self.state("e"), before)
        self.refuses("-d", "d.lmc", code=1, says="exists already")
        self.remove("d")
        self.lmc("-d", "d.lmc")
        self.assertEqual(self.state("d"), before)
        self.lmc("-c", "d", "-T1")
        self.assertEqual(self.lmc("-c", "d", "-T3").stdout, self.read("d.lmc"))

    def test_root_of_the_file_system(self):
        self.write("tmp", b"a file" * 100)
        self.lmc("tmp")
        self.refuses("-d", "-o", "/", "tmp.lmc", code=1, says="/tmp: is a directory")

    def remove(self, name):
        for base, dirs, _ in os.walk(self.path(name)):
            for d in dirs:
                os.chmod(os.path.join(base, d), 0o755)
        shutil.rmtree(self.path(name))

    def test_replace_with_force(self):
        self.make_tree()
        before = self.state("d")
        self.lmc("d")
        self.write("d/config.json", b"changed")
        os.unlink(self.path("d/opt-a"))
        self.lmc("-df", "d.lmc")
        self.assertEqual(self.state("d"), before)
        self.assertEqual(self.tree(""), sorted(["d", "d.lmc"] + ["d/" + f for f in self.tree("d")]))

    def test_force_does_not_remove_what_the_snapshot_lacks(self):
        self.write("d/sub/x", b"x")
        self.lmc("d")
        for name, make in (("d/precious", lambda p: self.write("d/precious", b"p")), ("d/sub/precious", lambda p: os.mkdir(p)),
                           ("d/sub/link", lambda p: os.symlink("x", p)), ("d/.hidden", lambda p: self.write("d/.hidden", b""))):
            make(self.path(name))
            self.refuses("-df", "d.lmc", code=1, says="it holds '%s'" % name[2:])
            os.rmdir(self.path(name)) if os.path.isdir(self.path(name)) else os.unlink(self.path(name))
        os.unlink(self.path("d/sub/x"))
        os.mkdir(self.path("d/sub/x"))  # a directory where the snapshot has a file
        self.refuses("-df", "d.lmc", code=1, says="it holds 'sub/x'")
        os.rmdir(self.path("d/sub/x"))
        os.mkfifo(self.path("d/sub/x"))
        self.refuses("-df", "d.lmc", code=1, says="which no snapshot can")
        os.unlink(self.path("d/sub/x"))
        self.lmc("-df", "d.lmc")
        self.assertEqual(self.read("d/sub/x"), b"x")

    def test_force_does_not_enter_other_file_systems(self):
        self.write("d/mounted/x", b"x")
        self.lmc("d")
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.path("d/mounted")], capture_output=True).returncode:
            self.skipTest("cannot mount a file system")
        try:
            self.write("d/mounted/x", b"on another file system")
            self.refuses("-df", "d.lmc", code=1, says="another file system is mounted at 'mounted'")
        finally:
            subprocess.run(["umount", self.path("d/mounted")], check=True)

    def test_old_directory_that_cannot_be_removed(self):
        self.write("d/x", b"x")
        self.write("d/y", b"y")
        self.lmc("d")
        if os.geteuid() or subprocess.run(["chattr", "+a", self.path("d/x")], capture_output=True).returncode:
            self.skipTest("cannot make a file that only grows")
        old = []
        try:
            self.lmc("-df", "d.lmc", code=1, says="what is left of it is ")
            old = [f for f in os.listdir(self.dir) if f.startswith(".lmc-")]
            self.assertEqual((self.tree("d"), len(old), self.read(old[0] + "/x")), (["x", "y"], 1, b"x"))
        finally:
            for d in old + ["d"]:
                subprocess.run(["chattr", "-a", self.path(d + "/x")], check=True)
        shutil.rmtree(self.path(old[0]))

    def test_outputs_of_others_are_passed_over(self):
        self.write("d/x", b"x")
        self.write("d/sub/.lmc-aB3xyZ", b"half")
        self.write("d/.lmc-abcdef/y", b"half")
        self.refuses("d", code=1, says="which lmc is writing, or left when it was killed")
        self.lmc("-r", "d")
        self.assertEqual([f for f in self.tree() if f.endswith(".lmc")], ["d/x.lmc"])
        shutil.rmtree(self.path("d/.lmc-abcdef"))
        os.unlink(self.path("d/sub/.lmc-aB3xyZ"))
        for name in ("d/.lmc-abcde", "d/.lmc-abcdefg", "d/.lmc-abc.ef", "d/x.lmc-abcdef"):
            self.write(name, b"another name")
        self.lmc("d")
        shutil.rmtree(self.path("d"))

    def change_while_it_is_read(self, mode, data, says):
        """Begins to compress 20 MB into a pipe, which holds much less, changes the source, and reads the rest."""
        self.write("d/x", random.Random(2).randbytes(20 * MB))
        for source in ("d", "d/x"):
            p = subprocess.Popen([LMC, "-c", source], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.read(100000)  # more than the bytes before the file's
            with open(self.path("d/x"), mode) as f:
                f.write(data)
            text = p.communicate()[1].decode()
            self.assertEqual(p.returncode, 1, text)
            self.assertIn(says, text)

    def test_file_that_is_rewritten(self):
        self.change_while_it_is_read("r+b", b"new", "was changed while it was being read")

    def test_force_loses_nothing_if_the_snapshot_is_bad(self):
        self.make_tree()
        self.lmc("d")
        data = bytearray(self.read("d.lmc"))
        data[-100] ^= 1
        self.write("bad.lmc", bytes(data))
        self.refuses("-df", "bad.lmc", "-o", "d", code=3)

    def test_force_does_not_replace_what_holds_the_snapshot(self):
        self.make_tree()
        self.lmc("d")
        os.rename(self.path("d.lmc"), self.path("d/d.lmc"))
        self.refuses("-df", "d/d.lmc", "-o", "d", code=1, says="holds the snapshot itself")

    def test_small_trees(self):
        os.mkdir(self.path("empty"))
        os.chmod(self.path("empty"), 0o750)
        self.write("one/file", b"single")
        os.makedirs(self.path("nested/a/b"))
        for name, tree in (("empty", []), ("one", ["file"]), ("nested", ["a", "a/b"])):
            self.lmc(name)
            shutil.rmtree(self.path(name))
            self.lmc("-d", name + ".lmc")
            self.assertEqual(self.tree(name), tree)
        self.assertEqual(os.stat(self.path("empty")).st_mode & 0o7777, 0o750)
        self.assertIn(b"(the directory itself)", self.lmc("-l", "empty.lmc").stdout)
        self.assertIn(b"0 files, 2 directories, 0 tensors", self.lmc("-l", "nested.lmc").stdout)
        self.lmc("-tv", "one.lmc", says="ok, 1 file, 6 bytes")

    def test_directory_that_its_owner_cannot_list(self):
        os.makedirs(self.path("d/closed"))
        self.write("d/x", b"x")
        self.lmc("d", "-o", "readable.lmc")
        os.chmod(self.path("d/closed"), 0o300)
        if os.geteuid() == 0:
            self.lmc("d")
            os.mkdir(self.path("u"))
            os.chown(self.path("u"), 65534, 65534)
            binary = self.path("copy-of-lmc")
            shutil.copy(LMC, binary)
            os.chmod(binary, 0o755)
            p = subprocess.run([binary, "-d", "d.lmc", "-o", "u/d"], cwd=self.dir, capture_output=True, user=65534, group=65534, extra_groups=[])
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertEqual(os.stat(self.path("u/d/closed")).st_mode & 0o7777, 0o300)
        else:
            self.refuses("d", code=1, says="cannot read the directory")

    def test_restored_root_has_the_mode_of_the_snapshot(self):
        self.write("d/x", b"x")
        for mode in (0o700, 0o750, 0o755, 0o500):
            os.chmod(self.path("d"), mode)
            self.lmc("-f", "d")
            self.lmc("-d", "d.lmc", "-o", "e")
            self.assertEqual(os.stat(self.path("e")).st_mode & 0o7777, mode)
            os.chmod(self.path("e"), 0o700)
            shutil.rmtree(self.path("e"))

    def test_umask_that_masks_the_owner(self):
        """An ordinary user could not enter the directories that the command makes. Root can."""
        self.write("d/a/b/f", b"f")
        self.lmc("d")
        user = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
        for path in ("", "d.lmc"):
            os.chmod(self.path(path), 0o755)
        shutil.copy(LMC, self.path("program"))
        os.mkdir(self.path("w"))
        os.chmod(self.path("w"), 0o777)
        for mask, mode in ((0o277, 0o500), (0o777, 0)):
            for args in (("-d", "-o", "all%o" % mask, "../d.lmc"), ("-d", "-o", "part%o" % mask, "../d.lmc", "a/*"),
                         ("series", "s%o" % mask, "add", "../d")):
                try:
                    p = subprocess.run(["../program", *args], cwd=self.path("w"), stderr=subprocess.PIPE, umask=mask, **user)
                except PermissionError:
                    self.skipTest("others may not run the program here")
                self.assertEqual((p.returncode, p.stderr), (0, b""), args)
            self.assertEqual(stat.S_IMODE(os.stat(self.path("w/all%o" % mask)).st_mode), mode)
            for path in os.listdir(self.path("w")):
                os.chmod(self.path("w/" + path), 0o755)
            self.assertEqual(self.read("w/all%o/a/b/f" % mask), b"f")

    def test_restored_root_follows_the_umask(self):
        self.write("d/x", b"x")
        self.lmc("d")
        shutil.rmtree(self.path("d"))
        subprocess.run(["sh", "-c", 'umask 077; exec "$0" -d d.lmc', LMC], cwd=self.dir, check=True)
        self.assertEqual(os.stat(self.path("d")).st_mode & 0o7777, 0o700)

    def test_to_standard_output(self):
        """A directory is written to standard output as a stream for tar; from a pipe, too."""
        self.make_tree()
        self.write("d/" + "n" * 120 + "/" + "m" * 120, b"long")
        os.utime(self.path("d/x"), ns=(1, 1234567890123456789)) if os.path.exists(self.path("d/x")) else None
        self.lmc("d")
        for p in (self.lmc("-dc", "d.lmc"), self.lmc("-d", stdin=self.read("d.lmc"))):
            os.mkdir(self.path("out"))
            subprocess.run(["tar", "-x", "-C", self.path("out")], input=p.stdout, check=True)
            self.assertEqual(self.snapshot("out"), self.snapshot("d"))
            for f in self.tree("d"):
                a, b = os.lstat(self.path("d/" + f)), os.lstat(self.path("out/" + f))
                self.assertEqual((a.st_mode, a.st_mtime_ns), (b.st_mode, b.st_mtime_ns), f)
            shutil.rmtree(self.path("out"))

    def test_links(self):
        self.write("blob", b"content")
        os.mkdir(self.path("d"))
        os.symlink("../blob", self.path("d/link"))
        self.lmc("d")
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.read("e/link"), b"content")
        self.assertFalse(os.path.islink(self.path("e/link")))

    def test_things_that_are_no_files(self):
        self.write("d/x", b"x")
        os.mkfifo(self.path("d/y"))
        s = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(self.dir)  # socket names are short
        s.bind("d/z")
        os.chdir(here)
        p = self.lmc("d", says="'y' is neither a file nor a directory nor a link, and is left out")
        self.assertIn("'z' is neither", p.stderr.decode())
        self.assertEqual([f["path"] for f in self.listing("d.lmc")["files"]], ["x"])
        self.refuses("-f", "--rm", "d", code=1, says="which a snapshot cannot hold; leave out --rm")
        self.refuses("-d", "-f", "d.lmc", code=1, says="which no snapshot can; move that away")
        s.close()
        os.unlink(self.path("d/y"))
        os.unlink(self.path("d/z"))
        self.write("d/back\\slash", b"1")  # an ordinary character here
        self.lmc("d", "-f")
        self.lmc("-d", "d.lmc", "-o", "again")
        self.assertEqual(self.read("again/back\\slash"), b"1")

    def test_names_that_make_no_output(self):
        self.write("d/x", b"x")
        self.refuses(".", code=1, says="name the output with -o")
        self.lmc(".", "-o", "../" + os.path.basename(self.dir) + ".lmc")
        out = self.dir + ".lmc"
        self.assertTrue(os.path.exists(out))
        os.unlink(out)

    def test_output_inside_of_the_directory(self):
        self.write("d/x", b"x")
        self.lmc("d", "-o", "d/s.lmc")
        self.refuses("d", "-f", "-o", "d/s.lmc", code=1, says="output and input are the same file")

    def test_directory_misuse(self):
        self.write("d/x", b"x")
        self.write("e", b"x")
        for args in (("-d", "d"), ("-t", "d")):
            self.refuses(*args, code=1, says="is a directory")
        self.lmc("e")
        self.refuses("-d", "e.lmc", "-o", "d", code=1, says="is a directory")
        self.refuses("-df", "e.lmc", "-o", "d", code=1, says="is a directory")
        self.lmc("d")
        self.refuses("-df", "d.lmc", "-o", "e", code=1, says="is no directory")

    def test_recursive(self):
        self.make_tree()
        self.write("d/old.lmc", b"not touched")
        n = len([f for f in self.tree("d") if os.path.isfile(self.path("d/" + f))]) - 1
        self.lmc("-r", "d")
        self.assertEqual(len([f for f in self.tree("d") if f.endswith(".lmc")]), n + 1)
        os.unlink(self.path("d/old.lmc"))
        self.lmc("-tr", "d")
        self.assertEqual(len(self.lmc("-lr", "--json", "d").stdout.splitlines()), n)
        before = {f: self.read("d/" + f) for f in self.tree("d") if os.path.isfile(self.path("d/" + f)) and not f.endswith(".lmc")}
        for f in before:
            os.unlink(self.path("d/" + f))
        self.lmc("-dr", "--rm", "d")
        self.assertEqual({f: self.read("d/" + f) for f in self.tree("d") if os.path.isfile(self.path("d/" + f))}, before)

    def test_file_that_grows(self):
        self.change_while_it_is_read("ab", b"more", "grew while it was being read")

    def test_bad_container_in_a_directory(self):
        """An incomplete download must not prevent the rest from being stored. But a file that is named must be a container."""
        for name in ("sub/model.safetensors", "x.gguf", "y.npy"):
            self.write("d/" + name, b"<!DOCTYPE html><title>404: there is no such model here</title>\n")
            self.refuses("d/" + name, code=1, says="--opaque")
        self.write("d/good.safetensors", safetensors([("w", "BF16", [9], bf16(9))]))
        text = self.lmc("d", says="d/sub/model.safetensors: is not a valid safetensors file").stderr.decode()
        self.assertEqual(text.count("stored as plain bytes"), 3)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual({f: self.read("e/" + f) for f in self.tree("e") if "." in f}, {f: self.read("d/" + f) for f in self.tree("d") if "." in f})
        self.assertEqual([len(f["tensors"]) for f in self.listing("d.lmc")["files"] if f["kind"] == "file"], [1, 0, 0, 0])
        self.lmc("-qf", "d")
        self.lmc("-f", "--opaque", "d")
        self.lmc("-r", "d", says="d/y.npy: is not a valid NumPy file")
        self.assertEqual(self.lmc("-dc", "d/x.gguf.lmc").stdout, self.read("d/x.gguf"))

    def test_git_lfs_pointers(self):
        """What stands there until git LFS fetches the file: as safetensors, a header of 2336927755350992246 bytes."""
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345678\n" % (b"4d" * 32)
        says = "is a git LFS pointer, not the file; run 'git lfs pull'"
        for name in ("a.safetensors", "a.bin", "a.lmc"):
            self.write(name, pointer)
        self.write("good", b"good")
        for args in (("a.safetensors",), ("a.bin",), ("stats", "a.bin"), ("diff", "a.bin", "good"), ("--base", "a.bin", "good")):
            self.refuses(None, *args, code=1, says=says + ", or use --opaque")
        for args in (("-d", "a.lmc"), ("-d", "a.lmc", "w"), ("-t", "a.lmc"), ("-l", "a.lmc"), ("cat", "a.lmc", "w"), ("stats", "a.lmc"), ("verify", "a.lmc"),
                     ("salvage", "a.lmc"), ("apply", "a.lmc", "good"), ("--base", "a.lmc", "good"), ("rebase", "--onto", "none", "a.lmc", "-o", "b")):
            self.refuses(None, *args, code=3, says=says)
        self.refuses(None, "-d", "-o", "b", stdin=pointer, code=3, says=says)
        self.lmc("--opaque", "a.bin")
        self.assertEqual(self.lmc("-dc", "a.bin.lmc").stdout, pointer)
        self.write("d/a.gguf", pointer)
        self.write("d/b", pointer)
        self.assertEqual(self.lmc("d", says="d/a.gguf: " + says).stderr.count(b"git lfs pull"), 2)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.read("e/b"), pointer)
        self.assertEqual(self.lmc("-r", "d", says=says).stderr.count(b"git lfs pull"), 2)

    def test_empty_files(self):
        self.write("e.lmc", b"")
        for args in (("-d",), ("-t",), ("-l",), ("cat",), ("stats",), ("verify",), ("salvage",)):
            self.refuses(None, *args, "e.lmc", code=3, says="e.lmc: is empty")

    def test_broken_file_name_is_shown_without_control_characters(self):
        self.write("d/\033[31m", b"x")
        self.lmc("d")
        self.assertNotIn(b"\033", self.lmc("-l", "d.lmc").stdout)


# ---- containers ----


class Containers(Case):
    def tensors(self, name):
        self.round_trip(name)
        return {t["name"]: (t["dtype"], t["shape"], t["size"]) for t in self.listing(name + ".lmc")["files"][0]["tensors"]}

    def test_every_safetensors_dtype(self):
        bits = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
                "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
                "C64": 64, "F64": 64, "I64": 64, "U64": 64}
        rng = random.Random(2)
        self.write("a.safetensors", safetensors([(k, k, [8, 40], rng.randbytes(40 * b)) for k, b in bits.items()]))
        self.assertEqual(self.tensors("a.safetensors"), {k: (k, [8, 40], 40 * b) for k, b in bits.items()})

    def test_tolerated_safetensors(self):
        w = [("w", "F32", [25], f32(25))]
        cases = {"tail": safetensors(w, tail=b"abcd"), "unpadded": safetensors(w, pad=1), "no tensors": safetensors([]),
                 "metadata": safetensors(w, {"format": "pt"}), "scalar": safetensors([("s", "F64", [], bytes(8))]),
                 "empty tensor": safetensors([("e", "F32", [0, 3], b"")] + w), "unknown dtype": safetensors([("w", "F3_X", [5], b"abc")]),
                 "huge shape with a zero": safetensors([("w", "F32", [2**62, 2**62, 0], b"")]),
                 "odd names": safetensors([("", "U8", [1], b"a"), ("a[0]", "U8", [1], b"b"), ("\u4e16/..", "U8", [1], b"c")])}
        for name, data in cases.items():
            self.write("a.safetensors", data)
            found = self.tensors("a.safetensors")
            os.unlink(self.path("a.safetensors.lmc"))
            self.assertEqual(len(found), len(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])) - (name == "metadata"))

    def test_refused_safetensors(self):
        entry = '{"dtype":"%s","shape":%s,"data_offsets":%s}'
        u8 = entry % ("U8", "[4]", "[0,4]")
        four = b"abcd"
        cases = [
            (b"", "ends within its header"), (b"\0\0\0", "ends within its header"),
            (struct.pack("<Q", 1 << 60) + b"{}", "claims 1152921504606846976 bytes"),
            (struct.pack("<Q", 100000001) + b"{}", "claims 100000001 bytes"), (struct.pack("<Q", 50000000) + b"{}", "ends within its header"),
            (safetensors_raw("[]"), "does not begin with '{'"), (safetensors_raw('{"a"'), "no valid JSON"),
            (safetensors_raw("{}" + " \0"), "no valid JSON"), (safetensors_raw("{}x"), "no valid JSON"),
            (safetensors_raw('{"w":%s,"w":%s}' % (u8, u8), four), "duplicate"), (safetensors_raw('{"a\\u0000b":%s}' % u8, four), "zero byte"),
            (safetensors_raw(b'{"\xff":' + u8.encode() + b"}", four), "no valid JSON"),
            (safetensors_raw('{"a":%s,"b":%s}' % (u8, entry % ("U8", "[4]", "[2,6]")), b"abcdef"), "overlaps"),
            (safetensors_raw('{"a":%s,"b":%s}' % (u8, u8), four), "overlaps"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[1,5]")), b"abcde"), "no tensor covers"),
            (safetensors_raw('{"a":%s}' % u8, b"abc"), "beyond the end"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[4,0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[-4,0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,4.0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,9223372036854775807]")), four), "beyond the end"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,99999999999999999999]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[5]", "[0,4]")), four), "another size than its dtype U8 and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("F32", "[4611686018427387904,4]", "[0,4]")), four), "and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("F4", "[7]", "[0,4]")), four), "and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[-4]", "[0,4]")), four), "no valid number"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "4", "[0,4]")), four), "no shape"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[" + ",".join(["1"] * 33) + "]", "[0,1]")), b"a"), "more than 32 dimensions"),
            (safetensors_raw('{"a":%s}' % (entry % ("", "[4]", "[0,4]")), four), "no dtype"),
            (safetensors_raw('{"a":%s}' % (entry % ("X" * 33, "[4]", "[0,4]")), four), "no dtype"),
            # lists of numbers that stand at the end of the memory for shapes, which has 64 numbers at first
            *((safetensors_raw('{%s,"z":{"dtype":"U8",%s}}' % (",".join('"%d":%s' % (i, entry % ("U8", "[1,1,1,1,1,1,1,1]", "[0,1]")) for i in range(7)), lists), four), "duplicate")
              for lists in ('"shape":[1,1,1,1,1,1,1],"data_offsets":[0],"data_offsets":[1]', '"data_offsets":[0,1],"shape":[1,1,1,1,1,1,1,1],"data_offsets":[]')),
            (safetensors_raw('{"a":7}'), "no dtype"), (safetensors_raw('{"a":' + "[" * 5000 + "]" * 5000 + "}"), "no valid JSON"),
            (safetensors_raw('{"%s":%s}' % ("n" * 70000, u8), four), "name of more than 65535 bytes"),
        ]
        for data, says in cases:
            self.write("a.safetensors", data)
            p = self.refuses("a.safetensors", code=1, says=says)
            self.assertIn(b"--opaque", p.stderr)
            self.lmc("--opaque", "a.safetensors")
            self.assertEqual(self.lmc("-dc", "a.safetensors.lmc").stdout, data)
            os.unlink(self.path("a.safetensors.lmc"))
            self.write("a.bin", data)  # under another name it is a plain file
            self.round_trip("a.bin", "-f")

    def test_content_decides(self):
        data = safetensors([("w", "BF16", [100], bf16(100))])
        self.write("blob", data)
        self.write("other.bin", gguf([("w", "F32", [10], f32(10))]))
        self.assertEqual(self.tensors("blob"), {"w": ("BF16", [100], 200)})
        self.assertEqual(self.tensors("other.bin"), {"w": ("F32", [10], 40)})
        self.write("blob2", data)
        self.lmc("--opaque", "blob2")
        self.assertEqual(self.listing("blob2.lmc")["files"][0]["tensors"], [])

    def test_gguf(self):
        rng = random.Random(4)
        values = [("s", struct.pack("<IQ", 8, 3) + b"abc"), ("f", struct.pack("<If", 6, 1.5)), ("b", struct.pack("<I?", 7, True)),
                  ("words", struct.pack("<IIQ", 9, 8, 3) + (struct.pack("<Q", 1) + b"x") * 3),
                  ("numbers", struct.pack("<IIQ", 9, 5, 1000) + bytes(4000)),
                  ("nested", struct.pack("<IIQ", 9, 9, 2) + (struct.pack("<IQ", 0, 2) + b"ab") * 2), ("u", struct.pack("<IQ", 10, 7))]
        tensors = [("a", "F32", [3, 5], rng.randbytes(60)), ("b", "BF16", [2, 3, 4], bf16(24)), ("q", "Q4_K", [2, 512], rng.randbytes(576)),
                   ("r", "Q8_0", [64], rng.randbytes(68)), ("u", "GGML_77", [8], rng.randbytes(32)), ("i", "I8", [7], rng.randbytes(7)),
                   ("h", "F16", [], rng.randbytes(2))]
        want = {n: (k, s, len(d)) for n, k, s, d in tensors}
        for version in (2, 3):
            for alignment in (8, 32, 1024):
                self.write("a.gguf", gguf(tensors, version, alignment, values))
                found = self.tensors("a.gguf")
                self.assertEqual(found.pop("u")[0], "GGML_77")
                self.assertEqual(found, {k: v for k, v in want.items() if k != "u"})
                os.unlink(self.path("a.gguf.lmc"))
        self.write("b.gguf", gguf([], values=values))
        self.assertEqual(self.tensors("b.gguf"), {})
        self.write("c.gguf", gguf([("a", "F32", [3], bytes(12))], pad_last=False))
        self.assertEqual(self.tensors("c.gguf"), {"a": ("F32", [3], 12)})

    def test_refused_gguf(self):
        good = gguf([("aaaa", "F32", [4], bytes(16)), ("bbbb", "F32", [4], bytes(16))], alignment=16)
        def patched(old, new):
            self.assertIn(old, good)
            return good.replace(old, new, 1)
        cases = [(b"", "ends within"), (good[:20], "ends within"), (b"GGML" + good[4:], "does not begin with GGUF"),
                 (good[:4] + struct.pack("<I", 1) + good[8:], "version 1"), (good[:4] + struct.pack(">I", 3) + good[8:], "version 50331648"),
                 (good[:8] + struct.pack("<Q", 1 << 62) + good[16:], "more than 2^28"), (good[:8] + struct.pack("<Q", 3) + good[16:], None),
                 (good[:16] + struct.pack("<Q", 1 << 62) + good[24:], None), (patched(b"bbbb", b"aaaa"), "two tensors have the name"),
                 (patched(b"bbbb", b"b\0bb"), "zero byte"), (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 8)), "overlaps"),
                 (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 1 << 63)), "beyond the end"),
                 (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 32)), "beyond the end"), (good[:-1], "beyond the end"),
                 (patched(struct.pack("<II", 4, 16), struct.pack("<II", 4, 0)), "no power of two"),
                 (patched(struct.pack("<II", 4, 16), struct.pack("<II", 4, 24)), "no power of two"),
                 (gguf([("a", "Q4_K", [128], bytes(72))]), "no multiple of 256"),
                 (gguf([("a", "F32", [1] * 33, bytes(4))]), "more than 32 dimensions"),
                 (gguf([], values=[("k", struct.pack("<I", 99))]), "unknown type 99"),
                 (gguf([], values=[("k", struct.pack("<IIQ", 9, 8, 1 << 60))]), "ends within|longer than"),
                 (gguf([], values=[("k", struct.pack("<IIQ", 9, 10, 1 << 62))]), "longer than"),
                 (gguf([], values=[("k" * 10, struct.pack("<IQ", 8, (1 << 64) - 1))]), "longer than"),
                 (gguf([], values=[("k", b"".join([struct.pack("<I", 9)] + [struct.pack("<IQ", 9, 1)] * 20))]), "unknown type 9"),
                 (gguf([("a", "F32", [1 << 40, 1 << 40], bytes(4))]), "too large")]
        for data, says in cases:
            self.write("a.gguf", data)
            text = self.refuses("a.gguf", code=1, says="--opaque").stderr.decode()
            if says:
                self.assertTrue(any(s in text for s in says.split("|")), (says, text))
            self.write("a.bin", data)
            self.round_trip("a.bin", "-f")

    def test_npy(self):
        codes = {"<f2": ("F16", 2), "<f4": ("F32", 4), "<f8": ("F64", 8), "|u1": ("U8", 1), "|i1": ("I8", 1), "<i2": ("I16", 2), "<u2": ("U16", 2),
                 "<i4": ("I32", 4), "<u4": ("U32", 4), "<i8": ("I64", 8), "<u8": ("U64", 8), "|b1": ("BOOL", 1), "<c8": ("C64", 8), "<c16": ("C128", 16)}
        rng = random.Random(9)
        for descr, (dtype, size) in codes.items():
            for version in ((1, 0), (2, 0), (3, 0)):
                self.write("a.npy", npy(descr, (6, 7), rng.randbytes(42 * size), version=version))
                self.assertEqual(self.tensors("a.npy"), {"": (dtype, [6, 7], 42 * size)})
                os.unlink(self.path("a.npy.lmc"))
        for shape, fortran, want in (((), False, []), ((0, 3), False, [0, 3]), ((5,), True, [5]), ((2, 3, 4), True, [4, 3, 2])):
            n = 1
            for k in shape:
                n *= k
            self.write("a.npy", npy("<f4", shape, bytes(4 * n), fortran))
            self.assertEqual(self.tensors("a.npy"), {"": ("F32", want, 4 * n)})
            os.unlink(self.path("a.npy.lmc"))
        for data in (npy(">f4", (3,), bytes(12)), npy("<U5", (3,), bytes(60)), npy("[('a', '<f4'), ('b', '<i2', (2,))]", (3,), bytes(24), descr_is_text=False),
                     npy("|V2", (3,), bytes(6))):
            self.write("a.npy", data)
            self.assertEqual(self.tensors("a.npy"), {})
            os.unlink(self.path("a.npy.lmc"))

    def test_refused_npy(self):
        good = npy("<f4", (3, 4), bytes(48))
        cases = [b"", good[:5], good[:30], b"\x93NUMPX" + good[6:], good[:6] + b"\x04" + good[7:], good[:-1], good.replace(b"'shape'", b"'shApe'"),
                 good.replace(b"(3, 4)", b"(3, x)"), good.replace(b"(3, 4)", b"(-3,4)"), good.replace(b"(3, 4)", b"(3  4)"), good.replace(b"False", b"Fals "),
                 good.replace(b"(3, 4)", b"(9999999999999999999999,)"), npy("<f4", (1 << 40, 1 << 40), b""), npy("<f4", (1,) * 33, bytes(4)),
                 good[:8] + b"\xff\xff" + good[10:], good.replace(b"{", b"["), good.replace(b"'shape'", b"'descr'"), npy("<f4", (3,), bytes(8))]
        for data in cases:
            self.write("a.npy", data)
            self.refuses("a.npy", code=1, says="--opaque")
            self.write("a.bin", data)
            self.round_trip("a.bin", "-f")

    def test_dtype_option(self):
        self.write("a", bf16(50000))
        auto = self.round_trip("a")
        os.unlink(self.path("a.lmc"))
        self.assertLessEqual(self.round_trip("a", "--dtype", "BF16"), auto + 200)
        self.assertEqual(self.lmc("cat", "a.lmc", "[5:9]").stdout, self.read("a")[10:18])
        for dtype in ("F32", "U8", "F4", "C64", "F6_E2M3"):
            self.write("b", os.urandom(100001))
            self.round_trip("b", "-f", "--dtype=" + dtype)
        packed = self.lmc("--dtype", "BF16", stdin=self.read("a") * 3 + b"x").stdout
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, self.read("a") * 3 + b"x")

    def test_levels(self):
        self.write("a", bf16(200000))
        args = {"fast": ["--fast"], "default": [], "max": ["--max"], "archive": ["--archive"]}
        sizes = {level: self.round_trip("a", "-f", *options, "--dtype", "BF16") for level, options in args.items()}
        self.assertGreater(sizes["fast"], sizes["default"])
        self.assertLess(sizes["fast"], sizes["default"] + 8000)
        self.assertLess(sizes["max"], sizes["default"])
        self.assertLess(sizes["archive"], sizes["max"])
        self.assertEqual(self.round_trip("a", "-f", "--archive", "--fast", "--dtype", "BF16"), sizes["fast"]) # the last option counts
        for level in ("--fast", "--max", "--archive"):
            self.refuses(level, "-d", "a.lmc", code=2, says=level)
        self.refuses("-9", "a", code=2, says="--max")

    def test_mutated_headers(self):
        """No mutation crashes; accepted files are restored."""
        rng = random.Random(11)
        seeds = [("a.safetensors", safetensors([("w", "BF16", [4, 2], bf16(8)), ("v", "F32", [2], f32(2))])),
                 ("a.gguf", gguf([("a", "F32", [3, 5], f32(15)), ("q", "Q8_0", [64], bytes(68))], values=[("s", struct.pack("<IQ", 8, 3) + b"abc")])),
                 ("a.npy", npy("<f4", (3, 5), f32(15)))]
        for name, seed in seeds:
            for _ in range(1000 if LONG else 60):
                data = bytearray(seed)
                for _ in range(rng.randint(1, 3)):
                    data[rng.randrange(min(len(data), 200))] = rng.choice((0, 1, 255, 127, 128, 34, 44, 58, rng.randrange(256)))
                self.write(name, bytes(data))
                p = subprocess.run([LMC, "-c", name], cwd=self.dir, capture_output=True)
                self.assertIn(p.returncode, (0, 1), p.stderr)
                if p.returncode == 0:
                    self.assertEqual(self.lmc("-d", stdin=p.stdout).stdout, bytes(data))


# ---- cat ----


class Cat(Case):
    def setUp(self):
        super().setUp()
        self.shape = [5, 7, 6]
        self.data = bytes(i & 255 for i in range(5 * 7 * 6 * 4))
        self.data = random.Random(6).randbytes(len(self.data))
        self.write("m.safetensors", safetensors([("w", "F32", self.shape, self.data), ("s", "F64", [], b"12345678"), ("a[0]", "U8", [3], b"abc"),
                                                 ("a", "U8", [3], b"xyz"), ("f4", "F4", [4], b"pq"), ("odd", "ODD", [4], b"4444"),
                                                 ("b", "BF16", [2, 2], bf16(4)), ("none", "F32", [0, 4], b"")]))
        self.lmc("m.safetensors")

    def cat(self, tensor, *args, **more):
        return self.lmc("cat", "m.safetensors.lmc", tensor, *args, **more).stdout

    def test_files_that_are_not_compressed(self):
        """-l and cat read files that are not compressed, like stats, with the same tensors and bytes as from a snapshot."""
        def tensors(name):
            told = json.loads(self.lmc("-l", "--json", name).stdout)
            self.assertEqual(told["size"], sum(f["size"] for f in told["files"]))
            return [(f["path"], f["kind"], f["size"], [(t["name"], t["dtype"], t["shape"], t["offset"], t["size"]) for t in f["tensors"]]) for f in told["files"]]
        data = bf16(200)
        self.write("x.gguf", gguf([("g", "BF16", [10, 20], data)]))
        self.write("y.npy", npy("<f4", (5, 2), f32(10)))
        self.write("d/a/m.safetensors", self.read("m.safetensors"))
        self.write("d/x.gguf", self.read("x.gguf"))
        self.write("d/config.json", b"{}")
        os.makedirs(self.path("d/empty"))
        for name in ("m.safetensors", "x.gguf", "y.npy", "d"):
            self.lmc("-qf", name, "-o", "p.lmc")
            self.assertEqual(tensors(name), tensors("p.lmc"))
            for _, _, _, listed in tensors(name):
                for tensor, dtype, shape, _, _ in listed:
                    self.assertEqual(self.lmc("cat", name, tensor).stdout, self.lmc("cat", "p.lmc", tensor).stdout)
                    if tensor and shape and dtype in ("F32", "BF16"):
                        self.assertEqual(self.lmc("cat", "--npy", name, tensor + "[1:]").stdout, self.lmc("cat", "--npy", "p.lmc", tensor + "[1:]").stdout)
            text = self.lmc("-l", name).stdout.decode()
            self.assertIn(name + ": not compressed: ", text)
            for tensor in [t[0] for f in tensors(name) for t in f[3]]:
                self.assertIn(tensor, text)
        self.assertEqual(self.lmc("cat", "d", "--safetensors", "g").stdout, self.lmc("cat", "p.lmc", "--safetensors", "g").stdout)
        self.lmc("cat", "d", "--file", "config.json", code=2, says="--file needs a tensor, too")
        self.lmc("cat", "m.safetensors", "nothing", code=1, says="has no tensor 'nothing'; 'lmc -l' lists them")
        self.lmc("cat", "m.safetensors", tensors("m.safetensors")[0][3][0][0] + "x", code=1, says="'; did you mean '%s'?\n" % tensors("m.safetensors")[0][3][0][0])
        self.lmc("cat", "d", code=2, says="has several tensors; name one")
        for source, output in (("x.gguf", "x.gguf"), ("d", "d/x.gguf")):
            self.refuses(None, "cat", source, "g", "-f", "-o", output, code=1, says="same file")
        self.write("bad.safetensors", self.read("m.safetensors")[:20])
        for args in (("-l",), ("cat",)):
            self.lmc(*args, "bad.safetensors", code=1, says="is not a valid safetensors file")

    def test_whole_tensors(self):
        self.assertEqual(self.cat("w"), self.data)
        self.assertEqual(self.cat("s"), b"12345678")
        self.assertEqual(self.cat("f4"), b"pq")
        self.assertEqual(self.cat("odd"), b"4444")
        self.assertEqual(self.cat("none"), b"")
        self.lmc("cat", "m.safetensors.lmc", "w", "-o", "out")
        self.assertEqual(self.read("out"), self.data)

    def test_slices(self):
        rng = random.Random(8)
        for _ in range(150):
            key, text = [], []
            for n in self.shape[:rng.randint(0, 3)]:
                kind = rng.randrange(4)
                if kind == 0:
                    i = rng.randrange(-n, n)
                    key.append(i)
                    text.append(str(i))
                else:
                    a, b = (rng.choice([None, rng.randint(-n - 2, n + 2)]) for _ in range(2))
                    key.append(slice(a, b))
                    text.append("%s:%s%s" % ("" if a is None else a, "" if b is None else b, rng.choice(["", "", ":", ":1"])))
            want, shape = python_slice(self.data, self.shape, 4, key)
            got = self.cat("w[%s]" % ",".join(text))
            self.assertEqual(got, want, text)
            with_header = self.cat("w[%s]" % ",".join(text), "--npy")
            self.assertEqual(with_header, npy("<f4", shape, want), text)

    def test_names_with_brackets(self):
        self.assertEqual(self.cat("a[0]"), b"abc")
        self.assertEqual(self.cat("a[0:2]"), b"xy")
        self.assertEqual(self.cat("a[0][1:]"), b"bc")

    def test_refusals(self):
        for tensor, code, says in (("nothing", 1, "no tensor 'nothing'"), ("nothing[0]", 1, "no tensor 'nothing'"), ("f4[0:2]", 1, "no whole bytes"),
                                   ("odd[0:2]", 1, "element size is unknown"), ("w[0:5:2]", 2, "steps"), ("w[5]", 2, "has 5 elements in dimension 0, and the slice asks for number 5"), ("w[-6]", 2, "asks for number -6"),
                                   ("w[0,0,0,0]", 2, "3 dimensions"), ("w[x]", 2, "looks like"), ("w[0]]", 2, "ends with"), ("w[0 ]", 2, "looks like"),
                                   ("s[0]", 2, "0 dimensions"), ("w[99999999999999999999]", 2, "looks like")):
            self.assertEqual(self.cat(tensor, code=code, says=says), b"")
        self.cat("odd", "--npy", code=1, says="NumPy does not know")
        self.lmc("cat", "m.safetensors.lmc", code=2, says="has several tensors")

    def test_npy(self):
        self.assertEqual(self.cat("s", "--npy"), npy("<f8", (), b"12345678"))
        self.assertEqual(self.cat("b", "--npy"), npy("<V2", (2, 2), bf16(4)))
        self.assertEqual(self.cat("none", "--npy"), npy("<f4", (0, 4), b""))
        data = npy("<i4", (3, 4), random.Random(1).randbytes(48))
        self.write("x.npy", data)
        self.lmc("x.npy")
        self.assertEqual(self.lmc("cat", "--npy", "x.npy.lmc").stdout, data)
        self.assertEqual(self.lmc("cat", "x.npy.lmc", "[1,1:3]").stdout, data[-48:][20:28])

    def test_several_files(self):
        for name in ("d/1.safetensors", "d/2.safetensors"):
            self.write(name, safetensors([("w", "U8", [1], name[2:3].encode()), ("only" + name[2], "U8", [1], b"o")]))
        self.lmc("d")
        self.lmc("cat", "d.lmc", "w", code=1, says="choose one with --file")
        self.assertEqual(self.lmc("cat", "d.lmc", "w", "--file", "2.safetensors").stdout, b"2")
        self.assertEqual(self.lmc("cat", "d.lmc", "only1").stdout, b"o")
        self.lmc("cat", "d.lmc", "w", "--file", "3.safetensors", code=1, says="no tensor")

    def test_slices_of_a_large_tensor(self):
        rows, columns = 3000, 700
        data = bf16(rows * columns)
        self.write("l.safetensors", safetensors([("w", "BF16", [rows, columns], data)]))
        self.lmc("l.safetensors")
        for key, text in (((slice(None), slice(3, 5)), ":,3:5"), ((slice(None), 699), ":,-1"), ((slice(100, 2900),), "100:2900"), ((1500, slice(7, 9)), "1500,7:9")):
            want = python_slice(data, [rows, columns], 2, key)[0]
            self.assertEqual(self.lmc("cat", "l.safetensors.lmc", "w[%s]" % text).stdout, want)

    def check_few_reads(self, gigabytes):
        """A tensor of 1 MB of a sparse file: three reads to open it, few to read the tensor."""
        n = gigabytes << 30
        with open(self.path("big.safetensors"), "wb") as f:
            text = json.dumps({"a": {"dtype": "BF16", "shape": [n // 2], "data_offsets": [0, n]},
                               "w": {"dtype": "U8", "shape": [MB], "data_offsets": [n, n + MB]},
                               "z": {"dtype": "BF16", "shape": [n // 4], "data_offsets": [n + MB, n + MB + n // 2]}}).encode()
            f.write(struct.pack("<Q", len(text)) + text)
            f.seek(n, 1)
            tensor = random.Random(1).randbytes(MB)
            f.write(tensor)
            f.truncate(f.tell() + n // 2)
        self.lmc("big.safetensors")
        start = time.time()
        p = self.lmc("cat", "-v", "big.safetensors.lmc", "w", says="reads of")
        elapsed = time.time() - start
        self.assertEqual(p.stdout, tensor)
        words = p.stderr.decode().split()
        reads, size = int(words[words.index("reads") - 1]), int(words[words.index("reads") + 2])
        self.assertLessEqual(reads, 8, p.stderr)
        self.assertLess(size, 4 * MB + (gigabytes << 30) // 2000)
        if LONG:
            print("  %d GB: %d reads, %d bytes, %.1f ms" % (gigabytes * 3 / 2, reads, size, elapsed * 1e3), file=sys.stderr)

    def test_few_reads(self):
        self.check_few_reads(1)

    def test_long_few_reads_of_10_gb(self):
        if not LONG:
            self.skipTest("--long")
        self.check_few_reads(7)


# ---- --rm ----


def can_see_writers():
    """Whether the system refuses a lease on a file that is open for writing."""
    with tempfile.NamedTemporaryFile() as f, open(f.name, "rb") as g:
        try:
            fcntl.fcntl(g, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return True
        except (AttributeError, OSError):
            pass
    return False


class Remove(Case):
    def test_removes(self):
        data = bf16(100000)
        self.write("a", data)
        self.lmc("--rm", "a")
        self.assertEqual(self.tree(), ["a.lmc"])
        self.lmc("-d", "--rm", "a.lmc")
        self.assertEqual((self.tree(), self.read("a")), (["a"], data))
        self.lmc("--rm", "-k", "a")
        self.assertEqual(self.tree(), ["a", "a.lmc"])

    @unittest.skipUnless(can_see_writers(), "the system does not tell who writes")
    def test_open_file_stays(self):
        """A file that is open for writing may grow, so it stays."""
        for name, file in (("a", "a"), ("d", "d/b")):
            self.write(file, bf16(1000))
            with open(self.path(file), "ab"):
                self.lmc("--rm", name, code=1, says="%s: is open for writing by another program, and is not removed; its snapshot is kept as %s.lmc" % (name, name))
            self.assertTrue(os.path.exists(self.path(file)))
            self.lmc("-f", "--rm", name)
        self.assertEqual(self.tree(), ["a.lmc", "d.lmc"])

    def test_removes_trees(self):
        self.write("d/a/b", b"b")
        self.write("d/c", b"")
        os.mkdir(self.path("d/e"))
        before = self.tree("d")
        self.lmc("--rm", "d")
        self.assertEqual(self.tree(), ["d.lmc"])
        self.lmc("--rm", "-d", "d.lmc")
        self.assertEqual((self.tree("d"), os.path.exists(self.path("d.lmc"))), (before, False))

    def test_does_not_remove_through_a_link(self):
        self.write("d/x", b"x")
        os.symlink("d", self.path("l"))
        for name in ("l", "l/"):
            self.refuses("--rm", name, code=1, says="is a link to a directory")
        self.lmc("l")
        self.assertEqual(self.tree(), ["d", "d/x", "l", "l.lmc"])

    def test_keeps_after_errors(self):
        self.write("a", b"a")
        self.write("a.lmc", b"precious")
        self.refuses("--rm", "a", code=1)
        self.write("b.safetensors", b"broken")
        self.refuses("--rm", "b.safetensors", code=1)
        self.refuses("--rm", "-d", "a.lmc", "-o", "out", code=3)


# ---- bad input ----


class BadSnapshots(Case):
    def setUp(self):
        super().setUp()
        self.write("m.safetensors", safetensors([("w", "BF16", [300], bf16(300)), ("z", "F32", [500], bytes(2000))]))
        self.lmc("m.safetensors")
        self.good = self.read("m.safetensors.lmc")
        os.unlink(self.path("m.safetensors"))
        os.unlink(self.path("m.safetensors.lmc"))

    def check(self, data, codes, what):
        self.write("x.lmc", data)
        for args in (["-t", "x.lmc"], ["-d", "x.lmc"]):
            p = subprocess.run([LMC] + args, cwd=self.dir, capture_output=True, timeout=60)
            self.assertIn(p.returncode, codes, (what, args, p.stderr))
            self.assertRegex(p.stderr.decode(), r"^lmc: x\.lmc: ")
            self.assertEqual(self.tree(), ["x.lmc"], what)
        self.assertEqual(self.read("x.lmc"), data)

    def test_truncated(self):
        points = range(len(self.good)) if LONG else sorted(set(range(0, len(self.good), 13)) | {1, 7, 8, 79, 80, 81, len(self.good) - 1})
        for n in points:
            self.check(self.good[:n], (3,), "cut to %d" % n)

    def test_extended(self):
        self.check(self.good + b"x", (3,), "one byte more")
        self.check(self.good + self.good, (3,), "twice")

    def test_flipped_bits(self):
        rng = random.Random(10)
        bits = range(8 * len(self.good)) if LONG else rng.sample(range(8 * len(self.good)), 250)
        for bit in bits:
            data = bytearray(self.good)
            data[bit // 8] ^= 1 << bit % 8
            self.check(bytes(data), (1,) if bit // 8 == 8 else (3,), "bit %d" % bit)

    def test_flipped_bits_and_access_by_index(self):
        rng = random.Random(12)
        for bit in rng.sample(range(8 * len(self.good)), 300 if LONG else 60):
            data = bytearray(self.good)
            data[bit // 8] ^= 1 << bit % 8
            self.write("x.lmc", bytes(data))
            for args in (["-l", "x.lmc"], ["cat", "x.lmc", "w"], ["cat", "x.lmc", "z[5:9]"]):
                p = subprocess.run([LMC] + args, cwd=self.dir, capture_output=True, timeout=60)
                self.assertIn(p.returncode, (0, 1, 3), (bit, args, p.stderr))
                if args[0] == "cat" and p.returncode == 0:
                    self.assertEqual(p.stdout, bf16(300) if args[2] == "w" else bytes(16))

    def test_magic_and_version(self):
        self.check(b"", (3,), "empty")
        self.check(b"\x28\xb5\x2f\xfd" + self.good[4:], (3,), "magic of zstd")
        self.check(b"plain text, no snapshot\n" * 20, (3,), "text")
        self.check(b"\x8c" + self.good[1:], (3,), "another first byte")
        self.check(self.good[:8] + bytes([0]) + self.good[9:], (1,), "major version 0, and no CRC of it")
        self.check(self.good[:8] + bytes([2, 0]) + self.good[10:], (1,), "newer major version, and no CRC of it")
        self.check(self.good[:9] + bytes([self.good[9] + 1]) + self.good[10:], (3,), "newer minor version, and no CRC of it")
        for name, says in (("version_major_2", "written by a newer lmc, in format 2.0: update lmc"),
                           ("incompatible_bit_6", "a newer lmc and uses feature bit 6"), ("section_critical_sign", "a newer lmc and uses what this one does not know: update")):
            path = os.path.join(ROOT, "spec", "vectors", "invalid", name + ".lmc")
            for args in (["-t"], ["-d", "-o", "out"], ["-l"], ["cat"]):
                self.lmc(*args, path, code=1, says=says)
            with open(path, "rb") as f:
                self.lmc("-t", stdin=f.read(), code=1, says=says)
        self.dump(os.path.join(ROOT, "spec", "vectors", "invalid", "section_critical_sign.lmc"), code=1, says="the section SIGN is unknown")

    def test_blocks_in_the_wrong_order(self):
        data = random.Random(3).randbytes(400000)
        self.write("a", data)
        self.lmc("a")
        packed = self.read("a.lmc")
        os.unlink(self.path("a"))
        os.unlink(self.path("a.lmc"))
        first, second = packed.index(data[:64]), packed.index(data[70000:70064])
        self.assertGreater(second, first)
        swapped = bytearray(packed)
        size = 65536 + 20
        swapped[first - 20:first - 20 + size], swapped[first - 20 + size:first - 20 + 2 * size] = \
            packed[first - 20 + size:first - 20 + 2 * size], packed[first - 20:first - 20 + size]
        if bytes(swapped) != packed:
            self.check(bytes(swapped), (3,), "blocks swapped")

    def test_vectors_of_the_specification(self):
        vectors = os.path.join(ROOT, "spec", "vectors")
        with open(os.path.join(vectors, "manifest.json")) as f:
            manifest = json.load(f)
        for kind in ("valid", "invalid"):
            for v in manifest[kind]:
                path = os.path.join(vectors, kind, v["name"] + ".lmc")
                bases = ["--base=" + os.path.join(vectors, base) for base in v["base"]]
                p = subprocess.run([LMC, "-t", "--no-search", "--max-depth=40000", path] + bases, cwd=self.dir, capture_output=True, timeout=60)
                if kind == "valid":
                    self.assertIn(p.returncode, (0, 3) if v["section"] == "links" and "or" in v else (0,), (path, p.stderr))
                    if v["base_fingerprint"]:
                        self.assertEqual(subprocess.run([LMC, "-t", "--no-search", path], capture_output=True).returncode, 4, path)
                    continue
                codes = {4 if "BASE" in status else 3 if status in ("NOT_LMC", "TRUNCATED", "CORRUPT", "CHECKSUM") else 1 for status in v["status"]}
                self.assertIn(p.returncode, codes, (path, p.stderr))
                p = subprocess.run([LMC, "-d", "--no-search", "-o", "out", path] + bases, cwd=self.dir, capture_output=True, timeout=60)
                self.assertIn(p.returncode, codes, path)
                self.assertEqual(self.tree(), [], path)

    def test_suffix(self):
        self.write("x.lmc", self.good)
        self.refuses("x.lmc", code=1, says="is named .lmc already")
        self.write("y", self.good)
        self.refuses("-d", "y", code=1, says="is not named .lmc")
        self.write(".lmc", self.good)
        self.refuses("-d", ".lmc", code=1, says="is not named .lmc")


# ---- deltas ----


def moved(data, size, share, seed=1):
    """Elements of that size; a share of them has changed a little."""
    rng = random.Random(seed)
    words = array({1: "B", 2: "H", 4: "I"}[size], data)
    for i in rng.sample(range(len(words)), int(len(words) * share)):
        words[i] = (words[i] + rng.choice((-2, -1, 1, 2))) % 256**size
    return words.tobytes()


class Dump(Case):
    def vector(self, kind, name):
        return os.path.join(ROOT, "spec", "vectors", kind, name + ".lmc")

    def test_every_byte_has_a_name_of_the_page(self):
        """For every vector: no line says !!, fields have no gaps, and the specification has their names."""
        with open(os.path.join(ROOT, "spec", "lmc-format.md"), encoding="utf-8") as f:
            page = f.read()
        names = [name[:-4] for name in sorted(os.listdir(os.path.join(ROOT, "spec", "vectors", "valid"))) if name.endswith(".lmc")]
        seen = set()
        for name in names[::1 if LONG else 9]:
            path = self.vector("valid", name)
            text, at = self.dump(path), 0
            self.assertNotIn("!!", text, name)
            for line in text.splitlines():
                if line.startswith("      -- "):
                    continue
                self.assertEqual(int(line.split()[0], 16), at, (name, line))
                field = line[6 + (line.index("  ") - 4):].lstrip()
                at += int(field[1:].split()[0]) if field.startswith("(") else len(field[:47].split("  ")[0].split())
                seen.update(line.split("  ")[-1].split()[:1] if len(line) > 54 else [])
            self.assertEqual(at, os.path.getsize(path), name)
        for name in seen - {"Record"}:
            self.assertIn(name, page)
        self.assertTrue({"Payload_CRC", "Snapshot_Fingerprint", "Stored_Size", "Dtype_String", "Mtime_Nanoseconds", "N_Segments", "Key_Size", "Tag", "Error", "Payload"} <= seen)
        with open(path, "rb") as f:
            self.assertEqual(self.dump("-", stdin=f.read()), text)

    def test_bad_vectors(self):
        """A dump reports what it checks."""
        for name, code, says in (("header_crc", 3, "at byte 60: Header_CRC should be"), ("section_head_crc", 3, "Head_CRC should be"),
                                 ("section_body_crc_run", 3, "Body_CRC should be"), ("truncated_0084", 3, "the file ends here"), ("no_lmc_file", 3, "this is no LMC file"),
                                 ("version_major_2", 1, "Format_Major"),
                                 ("incompatible_bit_6", 1, "Incompatible bit 6 is unknown: of a newer version"), ("records_critical_run", 1, "Tag 1 is unknown"),
                                 ("run_prediction_6", 1, "Prediction is unknown"), ("block_layout_6", 1, "Width or Coding is unknown")):
            self.assertIn("  !! ", self.dump(self.vector("invalid", name), code=code, says=says), name)

    def test_every_cut_and_flip(self):
        with open(self.vector("valid", "example_gaps"), "rb") as f:
            good = f.read()
        for size in range(0, len(good), 7):
            self.assertEqual(self.run_on(good[:size]), 3, size)
        for at in range(0, len(good), 5):
            self.assertIn(self.run_on(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1:]), (0, 1, 3), at)

    def run_on(self, data):
        sys.path.insert(0, os.path.join(ROOT, "spec"))
        import dump
        sys.path.pop(0)
        return dump.Dump(io.BufferedReader(io.BytesIO(data)), lambda text: None).all()

    def test_headers(self):
        """Payloads are skipped: damage there is not found, a missing end of the file is."""
        self.write("a", random.Random(1).randbytes(300000))
        self.lmc("a")
        good = self.read("a.lmc")
        at = int(re.findall(r"([0-9A-F]+)  \(\d+ bytes\) +Payload\n", self.dump("a.lmc"))[0], 16)
        self.assertEqual(self.dump("--headers", "a.lmc"), self.dump("a.lmc"))
        self.write("a.lmc", good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        self.dump("a.lmc", code=3, says="Content_CRC should be")
        self.dump("--headers", "a.lmc")
        with open(self.path("b.lmc"), "wb") as f:  # standard input that begins in the middle of a file
            f.write(bytes(9999) + good[:at + 1000])
        with open(self.path("b.lmc"), "rb") as f:
            f.seek(9999)
            p = subprocess.run([sys.executable, os.path.join(ROOT, "spec", "dump.py"), "--headers", "-"], stdin=f, capture_output=True)
        self.assertEqual((p.returncode, p.stderr), (3, b"dump: standard input: at byte %d: the file ends here, within Payload\n" % (at + 1000)))
        self.write("a.lmc", good[:at + 1000])
        self.dump("--headers", "a.lmc", code=3, says="at byte %d: the file ends here, within Payload" % (at + 1000))
        self.dump("--header", "a.lmc", code=2, says="Usage")
        self.dump("none.lmc", code=1, says="No such file")
        with subprocess.Popen([sys.executable, os.path.join(ROOT, "spec", "dump.py"), self.vector("valid", "group_many")], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            p.stdout.close()
            self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))

    def test_a_field_longer_than_its_body(self):
        """It is an error, and nothing is read behind the body."""
        with open(self.vector("valid", "example_gaps"), "rb") as f:
            header = f.read(64)
        body = b"\1\0\0\xD0\x0F" + b"p" * 1500  # a path of 2,000 bytes
        self.write("p.lmc", header + b"FILE" + struct.pack("<QII", len(body), 0, 0) + body)
        self.assertIn("(1500 bytes)", self.dump("p.lmc", code=3, says="Head_CRC should be"))
        self.assertIn("!! the body ends within Path_Rest", self.dump("p.lmc", code=3))


class Bases(Case):
    """The base is a directory of two shards, the new snapshot has its tensors in one file and in another order."""
    def setUp(self):
        super().setUp()
        self.w, self.v, self.u, self.gone = bf16(300000), f32(70000, 2), bf16(5000, 3), bf16(4000, 4)
        self.write("old/1.safetensors", safetensors([("w", "BF16", [300, 1000], self.w), ("u", "BF16", [50, 100], self.u)]))
        self.write("old/2.safetensors", safetensors([("v", "F32", [70000], self.v), ("gone", "BF16", [4000], self.gone)]))
        self.write("old/config.json", b'{"a": 1}' * 1000)
        self.w2, self.v2 = moved(self.w, 2, 0.02), moved(self.v, 4, 0.3)
        self.write("new/sub/all.safetensors", safetensors([("v", "F32", [700, 100], self.v2), ("extra", "F32", [3000], f32(3000, 5)),
                                                           ("u", "F16", [50, 100], self.u), ("w", "BF16", [300, 1000], self.w2)], pad=1))
        self.write("new/config.json", b'{"a": 1}' * 999 + b'{"a": 2}')
        self.new = self.snapshot("new")

    def fingerprint(self, name):
        return self.listing(name)["fingerprint"]

    def test_outputs_and_rm_leave_bases_alone(self):
        self.lmc("old")
        self.lmc("--base", "old", "new")
        before = self.snapshot("old"), self.read("old.lmc")
        for arguments in (("-d", "new.lmc", "-o", "old/restored"), ("-d", "-f", "new.lmc", "-o", "old/1.safetensors"),
                          ("cat", "-f", "-o", "old/1.safetensors", "new.lmc", "v")):
            self.lmc(*arguments, "--base", "old", code=1, says="belongs to a base")
        self.lmc("-d", "-f", "--rm", "--base", "old.lmc", "old.lmc", "new.lmc", code=1, says="leave --rm out")
        self.assertEqual((self.snapshot("old"), self.read("old.lmc")), before)

    def test_a_whole_base_is_taken_before_a_delta(self):
        self.lmc("--base", "old", "new")
        self.write("next/w.safetensors", safetensors([("w", "BF16", [300, 1000], moved(self.w2, 2, 0.02, 6))]))
        self.lmc("--base", "new", "next")
        self.lmc("-t", "next.lmc", "--base", "new", "--base", "new.lmc")  # the base of which is missing
        self.lmc("-t", "next.lmc", "--base", "new.lmc", "--base", "new")
        os.rename(self.path("old"), self.path("away"))  # beside the delta it would be found
        self.lmc("-t", "next.lmc", "--base", "new.lmc", code=4)

    def test_forms_of_a_base(self):
        self.lmc("old")
        os.makedirs(self.path("other/deep"))  # other shards, another order, without a directory
        self.write("other/z.safetensors", safetensors([("gone", "BF16", [4000], self.gone), ("w", "BF16", [300, 1000], self.w)], metadata={"x": "y"}))
        self.write("other/a.safetensors", safetensors([("u", "BF16", [50, 100], self.u), ("v", "F32", [70000], self.v)]))
        self.write("other/config.json", self.read("old/config.json"))
        os.rmdir(self.path("other/deep"))
        made = {}
        for base in ("old", "old/", "old.lmc", "other"):
            for option in (["--base", base], ["--base=" + base], ["--patch-from", base], ["--patch-from=" + base, "-T3"]):
                self.lmc("-f", "new", *option)
                made[base] = self.read("new.lmc")
                o = self.listing("new.lmc")
                self.assertEqual((o["base_fingerprint"], o["features"]), (self.fingerprint("old.lmc"), ["Base", "Zeros", "Matrix", "Codes"]))
                self.assertEqual(o["metadata"]["lmc.base"], base.rstrip("/"))
            self.lmc("-f", "new", "-o", "again.lmc", "--base", base, "-T1")
            self.assertEqual(self.read("again.lmc"), made[base])
        self.assertEqual(made["old"], made["old/"])
        for base in ("old", "old.lmc", "other"):
            self.restores("new.lmc", self.new, "--base", base)
            self.restores("new.lmc", self.new, "--patch-from=" + base, "-T1")
            self.assertEqual(self.lmc("cat", "new.lmc", "w[7:9,5:]", "--base", base).stdout,
                             python_slice(self.w2, [300, 1000], 2, (slice(7, 9), slice(5, None)))[0])
        self.lmc("new", "-o", "direct.lmc")
        sizes = {f: {t["name"]: t["packed_size"] for file in self.listing(f)["files"] for t in file["tensors"]} for f in ("new.lmc", "direct.lmc")}
        self.assertLess(sizes["new.lmc"]["w"] * 8, sizes["direct.lmc"]["w"])
        self.assertLess(sizes["new.lmc"]["v"] * 5, sizes["direct.lmc"]["v"] * 4)  # reshaped, with the same numbers
        for name in ("u", "extra"):  # of another dtype, added
            self.assertLess(sizes["new.lmc"][name], sizes["direct.lmc"][name] * 1.01 + 100)
        self.assertEqual(self.fingerprint("new.lmc"), self.fingerprint("direct.lmc"))

    def test_without_the_base(self):
        """Damage of a delta is found without its base."""
        self.lmc("old")
        os.mkdir(self.path("away"))
        self.lmc("new", "--base", "old.lmc", "-o", "away/new.lmc")
        wanted = self.fingerprint("old.lmc")[:16]
        named = "content needs the base %s (named 'old.lmc' when this delta was made)" % wanted
        for args in (["away/new.lmc"], ["-"]):
            stdin = self.read("away/new.lmc") if args == ["-"] else None
            self.lmc("-t", "--no-base", *args, says="payload intact; " + named, stdin=stdin)
            self.lmc("-q", "-t", "--no-base", *args, stdin=stdin)
            self.lmc("-t", *args, code=4, says="its payload is intact", stdin=stdin)
        self.lmc("-t", "--no-base", "old.lmc")
        self.lmc("verify", "--no-base", "away/new.lmc", says="payload intact; content needs the base " + wanted)
        self.lmc("verify", "away/new.lmc", code=4, says="its payload is intact, but it needs the base " + wanted)
        self.lmc("-d", "--no-base", "away/new.lmc", code=2, says="--no-base is for -t and 'lmc verify'")
        data = self.read("away/new.lmc")
        rng = random.Random(4)
        for at in [rng.randrange(64, len(data)) for _ in range(60)]:
            self.write("away/bad.lmc", data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:])
            for args in (["-t"], ["-t", "--no-base"], ["verify", "--no-base"]):
                p = subprocess.run([LMC, *args, "away/bad.lmc"], cwd=self.dir, capture_output=True)
                self.assertIn(p.returncode, (1, 3), (at, args, p.stderr))

    def test_listing_of_a_delta(self):
        self.lmc("new", "--base", "old")
        self.lmc("old")
        text = self.lmc("-l", "new.lmc").stdout.decode()
        self.assertIn("base     %s (named old when this delta was made)\n" % self.fingerprint("old.lmc"), text)
        self.assertNotIn("base", self.lmc("-l", "old.lmc").stdout.decode())
        o = self.listing("old.lmc")
        self.assertEqual((o["features"], "base_fingerprint" in o), (["Zeros", "Matrix", "Codes"], False))

    def test_no_matrix(self):
        """Elements are nearly products of a row's and a column's scale: they are predicted by these, unless readers lack that."""
        r = random.Random(4)
        rows, columns = ([r.uniform(-7, 7) for _ in range(300)] for _ in range(2))
        v = struct.pack("<90000f", *(2 ** (a + b + r.uniform(-0.5, 0.5)) for a in rows for b in columns))
        self.write("v.safetensors", safetensors([("v", "F32", [300, 300], v), ("flat", "F32", [90000], v), ("filters", "F32", [300, 20, 3, 5], v)]))
        self.lmc("v.safetensors", "--no-twins", "-o", "matrix.lmc")
        self.lmc("v.safetensors", "--no-twins", "--no-matrix", "-o", "old_readers.lmc")
        self.assertEqual([self.listing(name)["features"] for name in ("matrix.lmc", "old_readers.lmc")], [["Zeros", "Matrix", "Codes"], ["Zeros", "Codes"]])
        sizes = [[t["packed_size"] for t in self.listing(name)["files"][0]["tensors"]] for name in ("matrix.lmc", "old_readers.lmc")]
        self.assertEqual([a < 0.95 * b for a, b in zip(*sizes)], [True, False, True])
        for name in ("matrix.lmc", "old_readers.lmc"):
            self.lmc("-d", name, "-o", name + ".out")
            self.assertEqual(self.read(name + ".out"), self.read("v.safetensors"))

    def test_no_codes(self):
        """Elements that were quantised are codes and scales, unless readers lack that."""
        r = random.Random(5)
        w = b"".join(struct.pack("<f", scale * r.randint(-127, 127)) for scale in (struct.unpack("<f", struct.pack("<f", r.uniform(1, 2)))[0] for _ in range(300)) for _ in range(320))
        self.write("w.safetensors", safetensors([("w", "F32", [300, 320], w)]))
        self.lmc("w.safetensors", "-o", "codes.lmc")
        self.lmc("w.safetensors", "--no-codes", "-o", "old_readers.lmc")
        self.assertEqual([self.listing(name)["features"] for name in ("codes.lmc", "old_readers.lmc")], [["Zeros", "Matrix", "Codes"], ["Zeros", "Matrix"]])
        self.assertLess(2 * len(self.read("codes.lmc")), len(self.read("old_readers.lmc")))
        for name in ("codes.lmc", "old_readers.lmc"):
            self.lmc("-d", name, "-o", name + ".out")
            self.assertEqual(self.read(name + ".out"), self.read("w.safetensors"))

    def test_no_zeros(self):
        """Half of the elements are zero: they are coded apart, unless readers lack that."""
        draws = random.Random(3).choices(range(1 << 16), k=40000)
        words = [b"\0\0" if x & 1 else bytes([x >> 8, 0x3F if x & 2 else 0xBF]) for x in draws]
        self.write("half.safetensors", safetensors([("w", "BF16", [40000], b"".join(words))]))
        self.lmc("half.safetensors", "-o", "apart.lmc")
        self.lmc("half.safetensors", "--no-zeros", "-o", "old_readers.lmc")
        self.assertEqual([self.listing(name)["features"] for name in ("apart.lmc", "old_readers.lmc")], [["Zeros", "Matrix", "Codes"], ["Matrix", "Codes"]])
        self.assertLess(len(self.read("apart.lmc")) * 8, len(self.read("old_readers.lmc")) * 7)
        for name in ("apart.lmc", "old_readers.lmc"):
            self.lmc("-d", name, "-o", name + ".out")
            self.assertEqual(self.read(name + ".out"), self.read("half.safetensors"))

    def test_single_files(self):
        """Single files of any kind; their names and paths do not matter."""
        for name, old, new in (("x.safetensors", safetensors([("w", "BF16", [300000], self.w)]), safetensors([("w", "BF16", [300000], self.w2)])),
                               ("x.npy", npy("<f4", (70000,), self.v), npy("<f4", (70000,), self.v2)),
                               ("x.bin", self.w, self.w2), ("empty", b"", b""), ("grown", b"ab" * 5000, b"ab" * 6000)):
            self.write("old-" + name, old)
            self.write(name, new)
            self.lmc(name, "--base", "old-" + name, says="nothing of it was found in the base" if name in ("grown", "empty") else None)
            self.restores(name + ".lmc", new, *(() if name in ("grown", "empty") else ("--base", "old-" + name)))
            if len(new) > 20000:
                self.assertLess(os.path.getsize(self.path(name + ".lmc")) * 2, len(self.lmc("-c", name).stdout))
        self.lmc("--dtype", "BF16", "x.bin", "--base", "old-x.bin", "-o", "raw.lmc")
        self.restores("raw.lmc", self.w2, "--dtype", "BF16", "--base", "old-x.bin")
        self.restores("raw.lmc", self.w2, "--base", "old-x.bin")  # by the delta's own tables
        self.lmc("-t", "--base", "old-x.bin", stdin=self.read("raw.lmc"))  # of its first section

    def test_chains(self):
        data = [self.w] + [moved(self.w, 2, 0.01 * k, k) for k in range(1, 5)]
        for k, d in enumerate(data):
            self.write("%d.safetensors" % k, safetensors([("w", "BF16", [300000], d)]))
        self.lmc("0.safetensors")
        for k in range(1, 5):
            self.lmc("%d.safetensors" % k, *["--base=%d.safetensors.lmc" % i for i in range(k - 1, -1, -1)])
            o = self.listing("%d.safetensors.lmc" % k)
            self.assertEqual(o["base_fingerprint"], self.fingerprint("%d.safetensors.lmc" % (k - 1)))
            chain = " <- ".join("%d.safetensors.lmc" % i for i in range(k - 1, -1, -1))
            self.assertIn("  chain    %s\n" % chain, self.lmc("-l", "%d.safetensors.lmc" % k).stdout.decode())
            self.assertLess(o["packed_size"], 100000)
        want = self.read("4.safetensors")
        chain = ["--base=%d.safetensors.lmc" % k for k in (1, 3, 0, 2)]
        self.restores("4.safetensors.lmc", want, *chain)
        self.restores("4.safetensors.lmc", want, "--base", "3.safetensors.lmc", "--base", "2.safetensors")  # the chain ends in a file
        self.restores("4.safetensors.lmc", want, "--base", "3.safetensors")
        self.assertEqual(self.lmc("cat", *chain, "4.safetensors.lmc", "w[70000:70010]").stdout, data[4][140000:140020])
        self.assertEqual(self.lmc("-dc", *chain, stdin=self.read("4.safetensors.lmc")).stdout, want)
        os.mkdir(self.path("away"))
        for name in ("2.safetensors", "2.safetensors.lmc"):
            os.rename(self.path(name), self.path("away/" + name))
        self.refuses("-d", "-o", "out", "4.safetensors.lmc", chain[0], chain[1], chain[2], code=4,
                     says="3.safetensors.lmc: needs the base %s (named '2.safetensors.lmc' when this delta was made)" % self.fingerprint("away/2.safetensors.lmc")[:16])
        self.write("new.safetensors", safetensors([("w", "BF16", [300000], self.w2)]))
        self.refuses("new.safetensors", "--base", "3.safetensors.lmc", code=4, says="3.safetensors.lmc: needs the base ")
        # snapshots with one content, each a delta against the other
        self.lmc("1.safetensors", "--base", "away/2.safetensors", "-o", "1-of-2.lmc")
        self.lmc("away/2.safetensors", "--base", "1.safetensors", "-o", "2-of-1.lmc")
        for name in ("1.safetensors", "1.safetensors.lmc"):
            os.rename(self.path(name), self.path("away/" + name))
        self.refuses("-d", "-o", "out", "3.safetensors.lmc", "--base", "2-of-1.lmc", "--base", "1-of-2.lmc", code=4, says="form a loop")
        self.restores("3.safetensors.lmc", self.read("3.safetensors"), "--base", "2-of-1.lmc", "--base", "away/1.safetensors")

    def test_missing_and_wrong_bases(self):
        self.lmc("old")
        self.lmc("new", "--base", "old")
        os.mkdir(self.path("away"))  # beside the delta it would be found
        os.rename(self.path("old.lmc"), self.path("away/old.lmc"))
        os.rename(self.path("old"), self.path("away/old"))
        shutil.copytree(self.path("away/old"), self.path("flipped"))
        data = bytearray(self.read("flipped/1.safetensors"))
        data[-7] ^= 4
        self.write("flipped/1.safetensors", data)
        shutil.copytree(self.path("away/old"), self.path("less"))
        os.unlink(self.path("less/config.json"))
        self.lmc("flipped")
        want = "needs the base %s (named 'old' when this delta was made): that file or directory, or a .lmc file of it; " % self.fingerprint("away/old.lmc")[:16]
        given = self.fingerprint("flipped.lmc")[:16]
        for args in ((), ("--base", "flipped"), ("--base", "flipped.lmc"), ("--base", "less"), ("--base", "new.lmc"), ("--base", "nowhere"),
                     ("--base", "less", "--base", "flipped")):
            for verb in (["-d", "-o", "out"], ["-t"], ["-d", "-f", "-o", "away/old/config.json"], ["cat", "-o", "out", "--npy"]):
                says = "nowhere: the base cannot be opened" if "nowhere" in args else "new.lmc: " + want
                self.refuses(None, *verb, *args, "new.lmc", *(["w"] if verb[0] == "cat" else []), code=4, says=says)
            if args:
                self.refuses("-d", "-o", "out", *args, code=4, says=None, stdin=self.read("new.lmc"))
        p = self.refuses("-d", "new.lmc", "--base", "flipped", "--base", "less", "-o", "out", code=4)
        self.assertIn("given: flipped is %s, less is " % given, p.stderr.decode())
        self.refuses("-d", "-o", "out", code=4, says="(standard input): needs the base", stdin=self.read("new.lmc"))
        self.refuses("new", "-o", "x.lmc", "--base", "nowhere", code=4, says="nowhere: the base cannot be opened")
        for args in (("--base",), ("--base", ""), ("--base", "-"), ("--base=",)):
            self.refuses(None, *args, code=2, says="--base needs")
        os.mkfifo(self.path("fifo"))
        self.lmc("new", "-o", "x.lmc", "--base", "fifo", code=4, says="neither a file nor a directory")

    def test_damaged_base(self):
        """Damage is found although the index has the fingerprint."""
        self.lmc("old")
        self.lmc("new", "--base", "old.lmc")
        data = bytearray(self.read("old.lmc"))
        data[len(data) // 2] ^= 1
        self.write("old.lmc", data)
        self.lmc("-t", "new.lmc", "--base", "old.lmc", code=3, says="old: may be what old.lmc was made from")
        os.rename(self.path("old"), self.path("moved"))
        self.refuses("-d", "new.lmc", "--base", "old.lmc", "-o", "out", code=3, says="old.lmc: ")
        self.refuses("-t", "new.lmc", "--base", "old.lmc", code=3, says="old.lmc: ")
        self.refuses("new", "-f", "--base", "old.lmc", code=3, says="old.lmc: ")
        self.write("old.lmc", data[:1000])
        self.refuses("-d", "new.lmc", "--base", "old.lmc", "-o", "out", code=3, says="old.lmc: ")

    def test_pipes(self):
        old, new = safetensors([("w", "BF16", [300000], self.w)]), safetensors([("w", "BF16", [300000], self.w2)])
        self.write("a", old)
        packed = self.lmc("--base", "a", stdin=new).stdout
        self.assertLess(len(packed), 100000)
        self.assertEqual(self.lmc("-d", "--base", "a", stdin=packed).stdout, new)
        self.lmc("-t", "--base", "a", stdin=packed)
        odd = random.Random(1).randbytes(100001)  # of unknown length
        packed_odd = self.lmc("--base", "a", stdin=odd, says="is written without it").stdout
        self.assertEqual(self.lmc("-d", "--base", "a", stdin=packed_odd, says="bases that are not needed: a").stdout, odd)
        self.write("d.lmc", b"before" + packed)
        with open(self.path("d.lmc"), "rb") as f:  # standard input may be a file
            f.seek(6)
            self.assertEqual(self.lmc("-d", "--base", "a", stdin=f).stdout, new)
        with open(self.path("d.lmc"), "rb") as f:
            f.seek(6)
            self.assertEqual(self.lmc("cat", "--base", "a", "-", "w", stdin=f).stdout, self.w2)

    def test_several_deltas_at_once(self):
        self.lmc("old")
        for k in range(3):
            self.write("%d.safetensors" % k, safetensors([("w", "BF16", [300000], moved(self.w, 2, 0.1, k))]))
        self.lmc("0.safetensors", "1.safetensors", "2.safetensors", "--base", "old.lmc")
        want = b"".join(self.read("%d.safetensors" % k) for k in range(3))
        self.assertEqual(self.lmc("-dc", "--base", "old", *["%d.safetensors.lmc" % k for k in range(3)]).stdout, want)
        self.lmc("-t", "old.lmc", "0.safetensors.lmc")
        os.mkdir(self.path("away"))
        os.rename(self.path("old.lmc"), self.path("away/old.lmc"))
        self.lmc("-t", "away/old.lmc", "0.safetensors.lmc")  # the source of old.lmc is beside it
        os.rename(self.path("old"), self.path("away/old"))
        self.lmc("-t", "away/old.lmc", "0.safetensors.lmc", code=4)
        self.lmc("-t", "away/old.lmc", "0.safetensors.lmc", "--base", "away/old.lmc")

    def test_removal_wants_the_base(self):
        self.lmc("old")
        for name in ("old", "old/1.safetensors"):
            self.refuses("--rm", name, "-o", "x.lmc", "--base", "old", code=1, says="leave --rm out")
        self.refuses("--rm", "old", "-o", "x.lmc", "--base", "old/1.safetensors", code=1, says="leave --rm out")
        self.lmc("--rm", "new", "--base", "old.lmc")
        self.assertFalse(os.path.exists(self.path("new")))
        os.mkdir(self.path("away"))
        os.rename(self.path("old.lmc"), self.path("away/old.lmc"))
        os.rename(self.path("old"), self.path("away/old"))
        self.refuses("-d", "--rm", "new.lmc", code=4)
        self.lmc("-d", "--rm", "new.lmc", "--base", "away/old")
        self.assertEqual((self.snapshot("new"), os.path.exists(self.path("new.lmc"))), (self.new, False))

    def test_output_does_not_change_the_base(self):
        self.lmc("old")
        for out in ("old.lmc", "old/x.lmc", "old/config.json"):
            self.refuses("-f", "new", "-o", out, "--base", "old.lmc", "--base", "old", code=1, says="which would be changed")
        self.lmc("new", "--base", "old")
        self.lmc("-df", "new.lmc", "-o", "new", "--base", "old")
        self.write("a", self.w)
        self.write("b", self.w2)
        self.lmc("b", "--base", "a")
        self.lmc("-df", "b.lmc", "-o", "a", "--base", "a")  # the new file replaces its base
        self.assertEqual(self.read("a"), self.w2)
        self.lmc("-d", "b.lmc", "-o", "c", "--base", "a", code=4)

    def test_base_with_odd_entries(self):
        os.mkdir(self.path("old/nothing"))
        os.mkdir(self.path("old/.lmc-abcdef"))
        self.refuses("new", "-o", "x.lmc", "--base", "old", code=1, says="which lmc is writing, or left when it was killed")
        os.rmdir(self.path("old/.lmc-abcdef"))
        self.lmc("old")
        self.lmc("new", "--base", "old")
        self.assertEqual(self.listing("new.lmc")["base_fingerprint"], self.fingerprint("old.lmc"))
        self.write("broken/x.safetensors", b"no header")
        self.lmc("new", "-f", "--base", "broken", says="stored as plain bytes")
        self.lmc("-t", "new.lmc")  # it is a full snapshot
        self.lmc("new", "-f", "--base", "broken/x.safetensors", code=1, says="is not a valid safetensors file")

    def test_long_more_than_4_gb(self):
        if not LONG:
            self.skipTest("--long")
        part = bf16(1 << 20)
        for name, data in (("big", part), ("big2", moved(part, 2, 0.1))):
            with open(self.path(name), "wb") as f:
                f.write(b"ab" * 1000 + data)
                f.seek(9 << 29)
                f.write(data)
                f.truncate(5 << 30)
        for base in ("big", "big.lmc"):
            self.lmc("-f", "--dtype=BF16", "big")
            self.lmc("-f", "--dtype=BF16", "big2", "--base", base)
            self.lmc("-f", "--dtype=BF16", "-d", "big2.lmc", "-o", "out", "--base", base)
            self.assertEqual(subprocess.run(["cmp", "big2", "out"], cwd=self.dir).returncode, 0)
        self.assertLess(os.path.getsize(self.path("big2.lmc")), 1000000)

    def test_names_in_several_files(self):
        """Moments of an optimizer have the names of their weights: each is coded against its own predecessor."""
        for d, share in (("a", 0), ("b", 0.01)):
            for k in range(4):
                self.write("%s/%d.safetensors" % (d, k), safetensors([("w", "F32", [70000], moved(f32(70000, k), 4, share, k))]))
        self.lmc("b", "--base", "a")
        for f in self.listing("b.lmc")["files"]:
            self.assertLess(f["packed_size"], 20000)
        self.restores("b.lmc", self.snapshot("b"), "--base", "a")

    def test_real_series(self):
        series = os.path.join(DATA, "series")
        if not os.path.isdir(series):
            self.skipTest("no LMC_DATA")
        steps = {s: os.path.join(series, "step-%06d" % s) for s in (1000, 1001, 1010, 1700, 1701, 1950, 1951)}
        for old, new, most in ((1700, 1701, 0.06), (1950, 1951, 0.009), (1000, 1001, 0.18)):  # 1/20, 1/134, 1/6.4, and some tolerance
            names = [os.path.join(steps[s], "model.bf16.safetensors") for s in (old, new)]
            self.lmc("-f", names[1], "--base", names[0], "-o", "x.lmc")
            self.assertLess(os.path.getsize(self.path("x.lmc")), most * os.path.getsize(names[1]))
            with open(names[1], "rb") as f:
                self.restores("x.lmc", f.read(), "--base", names[0])
        self.lmc(steps[1000], "-o", "0.lmc")
        self.lmc(steps[1001], "--base", "0.lmc", "-o", "1.lmc")
        self.lmc(steps[1010], "--base", "1.lmc", "--base", "0.lmc", "-o", "2.lmc")
        for s, bases in ((1001, ["0.lmc"]), (1010, ["0.lmc", "1.lmc"])):
            want = {f: open(os.path.join(steps[s], f), "rb").read() for f in os.listdir(steps[s])}
            self.restores("1.lmc" if s == 1001 else "2.lmc", want, *["--base=" + b for b in bases])


def rounded(data):
    """F32 to BF16, to nearest, ties to even."""
    return array("H", [(v + 0x7FFF + (v >> 16 & 1)) >> 16 for v in array("I", data)]).tobytes()


def halved(data):
    """F32 to F16."""
    return b"".join(struct.pack("<e", v) for v in array("f", data))


class Twins(Case):
    def setUp(self):
        super().setUp()
        self.master, self.moment = f32(300000), f32(300000, 2)
        self.copy = rounded(self.master)

    def sizes(self, name):
        return {f["path"] + ":" + t["name"]: t["packed_size"] for f in self.listing(name)["files"] for t in f["tensors"]}

    def paths(self, name):
        return [f["path"] for f in self.listing(name)["files"]]

    def test_no_descriptor_is_kept(self):
        for i in range(60):
            data = bf16(4000, i)
            self.write("many/%02d.safetensors" % i, safetensors([("a", "BF16", [4000], data), ("b", "BF16", [4000], data)]))
        self.lmc("-r", "many", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        self.assertEqual(len([f for f in os.listdir(self.path("many")) if f.endswith(".lmc")]), 60)

    def test_what_is_not_written_yet(self):
        """Restoring reads back bytes that are still in a window, and bytes that are in the file."""
        a, b, rest = bf16(100000, 1), bf16(400000, 2), bf16(70000, 3)
        data = safetensors([(name, "BF16", [len(x) // 2], x) for name, x in
                            (("a", a), ("a2", a), ("b", b), ("a3", a), ("b2", b), ("rest", rest), ("a4", a))])
        self.write("d/m.safetensors", data)
        self.write("d/n.safetensors", data)
        want = self.snapshot("d")
        self.lmc("d")
        self.lmc("d/m.safetensors", "-o", "m.lmc")
        for name in ("a2", "a3", "a4", "b2"):
            self.assertLess(self.sizes("m.lmc")[":" + name], 300)
        for threads in ("-T1", "-T3"):
            self.restores("d.lmc", want, threads)
            self.lmc("-df", "m.lmc", "-o", "m", threads)
            self.assertEqual(self.read("m"), data)

    def test_masters_and_copies(self):
        self.write("d/copy.safetensors", safetensors([("w", "BF16", [300000], self.copy), ("norm", "BF16", [640], rounded(self.moment[:2560]))]))
        self.write("d/half.safetensors", safetensors([("x.w", "F16", [300000], halved(self.master))]))
        self.write("d/master.safetensors", safetensors([("norm", "F32", [640], self.moment[:2560]), ("w", "F32", [300000], self.master)]))
        self.write("d/moment.safetensors", safetensors([("w", "F32", [300000], self.moment)]))
        self.write("d/sub/a", b"a")
        want = self.snapshot("d")
        self.lmc("d", "-T1")
        packed = self.read("d.lmc")
        self.lmc("-f", "d", "-T3")
        self.assertEqual(self.read("d.lmc"), packed)
        self.assertEqual(self.paths("d.lmc"), ["master.safetensors", "copy.safetensors", "half.safetensors", "moment.safetensors", "sub", "sub/a"])
        sizes = self.sizes("d.lmc")
        for name in ("copy.safetensors:w", "copy.safetensors:norm", "half.safetensors:x.w"):
            self.assertLess(sizes[name], 300)
        self.restores("d.lmc", want)
        self.restores("d.lmc", want, "-T3")
        self.lmc("-d", "-o", "piped", stdin=packed)  # from a pipe to files
        self.assertEqual(self.snapshot("piped"), want)
        self.lmc("-v", "-t", says="cannot be read again from a pipe: they are kept in a scratch file", stdin=packed)
        with open(self.path("d.lmc"), "rb") as f:
            self.lmc("-t", stdin=f)
        self.write("odd", b"before" + packed)
        with open(self.path("odd"), "rb") as f:
            f.seek(6)
            self.lmc("-t", stdin=f)
        self.assertEqual(self.lmc("cat", "d.lmc", "x.w[70000:70100]").stdout, halved(self.master)[140000:140200])
        self.lmc("-f", "--no-twins", "d")
        self.assertGreater(os.path.getsize(self.path("d.lmc")), len(packed) + 600000)
        self.lmc("-t", stdin=self.read("d.lmc"))
        piped = self.lmc("-c", "d").stdout  # so that it can be restored from a pipe
        self.assertEqual(piped, self.read("d.lmc"))
        self.lmc("-d", "-o", "restored", "--rm", "d.lmc")
        self.assertEqual(self.snapshot("restored"), want)
        self.lmc("--rm", "-f", "d")
        self.assertFalse(os.path.exists(self.path("d")))
        self.lmc("-d", "--rm", "d.lmc")
        self.assertEqual(self.snapshot("d"), want)

    def test_one_file(self):
        """In one file only earlier tensors can be repeated; output may be anything."""
        tied = bf16(1000, 7)
        self.write("m.safetensors", safetensors([("early", "BF16", [300000], self.copy), ("m", "F32", [300000], self.master), ("late", "BF16", [300000], self.copy),
                                                 ("a", "BF16", [1000], tied), ("b", "BF16", [1000], tied), ("c", "BF16", [10, 100], tied),
                                                 ("x", "F32", [300000], self.moment), ("y", "F32", [300000], self.moment), ("z", "BF16", [300000], rounded(self.moment))]))
        data = self.read("m.safetensors")
        self.lmc("m.safetensors")
        sizes = self.sizes("m.safetensors.lmc")
        for name, most in (("late", 200), ("b", 200), ("c", 200), ("y", 300), ("z", 200)):
            self.assertLess(sizes[":" + name], most, name)
        self.assertGreater(min(sizes[":early"], sizes[":m"], sizes[":x"]), 300000)
        self.restores("m.safetensors.lmc", data)
        self.assertEqual(self.lmc("-dc", "m.safetensors.lmc").stdout, data)
        with open(self.path("all"), "wb") as f:
            f.write(b"before")
            f.flush()
            self.lmc("-dc", "m.safetensors.lmc", stdout=f)
        self.assertEqual(self.read("all"), b"before" + data)
        with open(self.path("m.safetensors.lmc"), "rb") as f:
            self.assertEqual(self.lmc("-d", stdin=f).stdout, data)
        self.lmc("-d", "m.safetensors.lmc", "-o", "/dev/null")
        self.lmc("-d", "-o", "out", stdin=self.read("m.safetensors.lmc"))
        self.assertEqual(self.read("out"), data)
        packed = self.read("m.safetensors.lmc")
        p = self.lmc("-v", "-d", says="%d -> %d bytes" % (len(packed), len(data)), stdin=packed)  # kept in a scratch file
        self.assertEqual(p.stdout, data)
        for args in (["-t"], ["-d", "-o", "/dev/null"]):
            self.lmc(*args, stdin=packed)
        self.refuses(None, "-d", code=1, says="scratch file there; TMPDIR names", stdin=packed, env={**os.environ, "TMPDIR": self.path("none")})
        self.lmc("--rm", "-f", "m.safetensors")
        self.lmc("--rm", "-d", "m.safetensors.lmc")
        self.assertEqual(self.read("m.safetensors"), data)
        self.assertEqual(self.lmc("-d", stdin=self.lmc(stdin=data).stdout).stdout, data)  # pipes have no twins

    def test_samples_may_deceive(self):
        """Samples agree, but other elements do not, or not all of them."""
        for share, most in ((0.00001, 30000), (0.001, 40000)):
            self.write("m.safetensors", safetensors([("m", "F32", [300000], self.master), ("w", "BF16", [300000], moved(self.copy, 2, share))]))
            self.lmc("-f", "m.safetensors")
            self.assertLess(self.sizes("m.safetensors.lmc")[":w"], most)
            self.restores("m.safetensors.lmc", self.read("m.safetensors"))
        other = bytearray(bf16(300000, 9))  # the copy's elements at all 64 samples and around them
        n = 300000
        for i in range(64):
            at = n - 1 if i == 63 else i * (n // 64) + i * 2654435761 % (n // 64)
            other[2 * at:2 * at + 2] = self.copy[2 * at:2 * at + 2]
        other[n - 64:n + 64] = self.copy[n - 64:n + 64]
        self.write("m.safetensors", safetensors([("m", "F32", [300000], self.master), ("w", "BF16", [300000], bytes(other))]))
        self.lmc("-f", "m.safetensors")
        self.lmc("--no-twins", "m.safetensors", "-o", "without.lmc")
        self.assertLess(os.path.getsize(self.path("m.safetensors.lmc")), os.path.getsize(self.path("without.lmc")) + 500)
        self.assertEqual((self.read("m.safetensors.lmc")[16] & 2, self.read("without.lmc")[16] & 2), (2, 0))  # the bit Own: twins were used
        self.restores("m.safetensors.lmc", self.read("m.safetensors"))

    def test_zeros_and_special_numbers(self):
        """No twins if there is little to gain; holes and odd patterns of floats are restored."""
        self.write("z.safetensors", safetensors([("a", "F32", [300000], bytes(1200000)), ("b", "BF16", [300000], bytes(600000))]))
        self.lmc("z.safetensors")
        self.lmc("-t", stdin=self.read("z.safetensors.lmc"))
        rng = random.Random(8)
        words = array("I", [rng.choice((0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0x00000001, 0x7F7FFFFF, 0x33000000, 0x38800000,
                                        0x477FF000, 0x3F808000, rng.getrandbits(32))) for _ in range(20000)])
        for dtype, data in (("BF16", array("H", [v >> 16 | 0x40 if v & 0x7FFFFFFF > 0x7F800000 else (v + 0x7FFF + (v >> 16 & 1)) >> 16 for v in words]).tobytes()),
                            ("F16", random.Random(1).randbytes(40000))):
            # the master ends with zeros, which are a hole of the unfinished file when it is read again
            master = words.tobytes() + bytes(400000)
            self.write("s.safetensors", safetensors([("m", "F32", [120000], master), ("w", dtype, [120000], data + bytes(200000))]))
            self.round_trip("s.safetensors", "-f")
        self.write("s.safetensors", safetensors([("m", "F32", [420000], self.master + bytes(480000)), ("w", "BF16", [420000], self.copy + bytes(240000))]))
        self.round_trip("s.safetensors", "-f")
        self.assertLess(self.sizes("s.safetensors.lmc")[":w"], 300)

    def test_files_in_a_circle(self):
        a, b = f32(50000, 3), f32(50000, 4)
        self.write("d/1.safetensors", safetensors([("x", "F32", [50000], a), ("y", "BF16", [50000], rounded(b))]))
        self.write("d/2.safetensors", safetensors([("y", "F32", [50000], b), ("x", "BF16", [50000], rounded(a))]))
        self.write("d/0.safetensors", safetensors([("x", "BF16", [50000], rounded(a)), ("y", "BF16", [50000], rounded(b)), ("m", "F32", [50000], self.master[:200000])]))
        self.write("d/00.safetensors", safetensors([("m", "BF16", [50000], rounded(self.master[:200000]))]))
        want = self.snapshot("d")
        self.lmc("d")
        self.restores("d.lmc", want)
        self.assertEqual(sum(s > 1000 for s in self.sizes("d.lmc").values()), 4)  # the masters, and one copy in the circle

    def test_unreadable_modes(self):
        """A master whose mode forbids reading it again."""
        if os.geteuid():
            self.skipTest("only root can read a file of mode 0 to compress it, and become somebody else")
        self.write("d/1.safetensors", safetensors([("w", "F32", [300000], self.master)]), 0)
        self.write("d/2.safetensors", safetensors([("w", "BF16", [300000], self.copy)]))
        self.lmc("d")
        os.chmod(self.dir, 0o777)
        try:
            p = subprocess.run([LMC, "-d", "-o", "e"], cwd=self.dir, input=self.read("d.lmc"), capture_output=True, user=65534, group=65534)
        except PermissionError:
            self.skipTest("others may not run the command")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(os.stat(self.path("e/1.safetensors")).st_mode & 0o777, 0)
        self.assertEqual(self.snapshot("e"), self.snapshot("d"))

    def test_damage(self):
        self.write("m.safetensors", safetensors([("m", "F32", [3000], self.master[:12000]), ("w", "BF16", [3000], self.copy[:6000])]))
        self.lmc("m.safetensors")
        good = self.read("m.safetensors.lmc")
        os.unlink(self.path("m.safetensors"))
        os.unlink(self.path("m.safetensors.lmc"))
        rng = random.Random(4)
        for bit in rng.sample(range(80 * 8, 8 * len(good)), 150):
            data = bytearray(good)
            data[bit // 8] ^= 1 << bit % 8
            self.write("x.lmc", bytes(data))
            for args in (["-t", "x.lmc"], ["-d", "x.lmc"], ["-dc", "x.lmc"]):
                p = subprocess.run([LMC] + args, cwd=self.dir, capture_output=True, timeout=60)
                self.assertEqual(p.returncode, 3, (bit, args, p.stderr))
                self.assertEqual(self.tree(), ["x.lmc"])

    def test_deltas_with_twins(self):
        master = moved(self.master, 4, 0.5)
        for d, m in (("old", self.master), ("new", master)):
            self.write(d + "/a-copy.safetensors", safetensors([("w", "BF16", [300000], rounded(m)), ("tied", "BF16", [600, 500], rounded(m))]))
            self.write(d + "/master.safetensors", safetensors([("w", "F32", [300000], m)]))
        self.lmc("old")
        for base in ("old", "old.lmc"):
            self.lmc("-f", "new", "--base", base)
            sizes = self.sizes("new.lmc")
            self.assertLess(max(sizes["a-copy.safetensors:w"], sizes["a-copy.safetensors:tied"]), 200)
            self.assertLess(sizes["master.safetensors:w"], 300000)
            for base in ("old", "old.lmc"):
                self.restores("new.lmc", self.snapshot("new"), "--base", base)
            self.lmc("-d", "-o", "piped", "--base", base, stdin=self.read("new.lmc"))
            self.assertEqual(self.snapshot("piped"), self.snapshot("new"))
            shutil.rmtree(self.path("piped"))
            self.assertEqual(self.lmc("cat", "new.lmc", "tied[7]", "--base", base).stdout, rounded(master)[7000:8000])
        want = self.snapshot("new")
        self.lmc("--rm", "-f", "new", "--base", "old.lmc")
        self.lmc("--rm", "-d", "new.lmc", "--base", "old.lmc")
        self.assertEqual(self.snapshot("new"), want)

    def test_real_checkpoint(self):
        series = os.path.join(DATA, "series")
        if not os.path.isdir(series):
            self.skipTest("no LMC_DATA")
        for s in (1000, 1001, 1010):  # tensors that steps 1000 and 1010 have, too
            os.mkdir(self.path("%d" % s))
            for name in ("model.bf16", "master.f32", "exp_avg.f32", "exp_avg_sq.f32"):
                shutil.copyfile(os.path.join(series, "step-%06d" % s, name + ".safetensors"), self.path("%d/%s.safetensors" % (s, name)))
        for new, ratio in ((1001, 1.72), (1010, 1.54)):  # of the study: 1.740, 1.558
            self.lmc("%d" % new, "--base", "1000")
            o = self.listing("%d.lmc" % new)
            self.assertGreater(o["size"], ratio * o["packed_size"])
            self.assertLess([f["packed_size"] for f in o["files"] if f["path"] == "model.bf16.safetensors"][0], 3000)
            self.restores("%d.lmc" % new, self.snapshot("%d" % new), "--base", "1000")


class Diff(Case):
    def setUp(self):
        super().setUp()
        self.w, self.v = bf16(300000), f32(70000, 2)
        self.w2 = moved(self.w, 2, 0.02)
        self.write("old/1.safetensors", safetensors([("w", "BF16", [300, 1000], self.w), ("u", "BF16", [50, 100], self.w[:10000]), ("gone", "I8", [70], bytes(70))]))
        self.write("old/2.safetensors", safetensors([("v", "F32", [70000], self.v), ("short", "F32", [100], self.v[:400]), ("half", "F16", [5000], self.w[:10000])]))
        self.write("old/config.json", b"old")
        self.write("old/lost", b"lost")
        self.write("new/all.safetensors", safetensors([("v", "F32", [70000], self.v), ("more", "F32", [3000], self.v[:12000]), ("u", "BF16", [5000], self.w[:10000]),
                                                       ("short", "F32", [90], self.v[:360]), ("half", "BF16", [5000], self.w[:10000]), ("w", "BF16", [300, 1000], self.w2)]))
        self.write("new/config.json", b"new")

    def diff(self, *args):
        return json.loads(self.lmc("diff", "--json", *args).stdout)

    def test_what_is_found(self):
        want = {"w": "changed", "v": "same", "u": "reshaped", "short": "reshaped", "half": "retyped", "more": "added", "gone": "removed"}
        self.lmc("old")
        self.lmc("new", "--base", "old")
        results = []
        for a, b in (("old", "new"), ("old.lmc", "new.lmc"), ("old", "new.lmc"), ("old.lmc", "new")):
            o = self.diff(a, b)
            self.assertEqual({t["name"]: t["status"] for t in o["tensors"]}, want)
            self.assertEqual({f["name"]: f["status"] for f in o["files"]}, {"config.json": "changed", "lost": "removed"})
            self.assertEqual((o["from"]["snapshot"], o["to"]["snapshot"]), (a, b))
            self.assertEqual(o["to"]["fingerprint"], self.listing("new.lmc")["fingerprint"])
            results.append((o["tensors"], o["files"], o["delta_size"], o["direct_size"]))
        self.assertTrue(all(r == results[0] for r in results))
        self.assertEqual(self.diff("old", "new", "-T1"), self.diff("old", "new", "-T3"))
        t = {t["name"]: t for t in o["tensors"]}
        changed = sum(self.w[i:i + 2] != self.w2[i:i + 2] for i in range(0, len(self.w), 2))
        self.assertEqual([t["w"][k] for k in ("elements", "changed_elements", "size", "shape", "dtype")], [300000, changed, 600000, [300, 1000], "BF16"])
        for name, n in (("v", 0), ("u", 0), ("short", 0), ("half", 5000), ("more", 3000)):
            self.assertEqual(t[name]["changed_elements"], n)
        self.assertLess(t["w"]["delta_size"] * 8, t["w"]["direct_size"])
        self.assertLess(max(t["v"]["delta_size"], t["u"]["delta_size"]), 100)
        self.assertLess(t["short"]["delta_size"], t["short"]["direct_size"])  # of fewer rows
        self.assertLess(t["half"]["delta_size"], 100)  # a twin of u
        self.assertEqual(t["more"]["delta_size"], t["more"]["direct_size"])
        for key in ("elements", "changed_elements", "delta_size", "direct_size", "size"):
            self.assertEqual(o[key], sum(x[key] for x in o["tensors"] + o["files"] if x["status"] != "removed"))
        real = os.path.getsize(self.path("new.lmc"))  # the estimate is the real size without headers and the index
        self.assertLess(o["delta_size"], real)
        self.assertGreater(o["delta_size"], real - 3000)

    def test_counts(self):
        """All elements changed, and every third one, in their last byte; of each width."""
        tensors = [(dtype, width, n, step) for dtype, width in (("U8", 1), ("BF16", 2), ("F32", 4), ("F64", 8)) for n in (1, 127, 128, 129, 1000) for step in (1, 3)]
        for name, last in (("x", b"\0"), ("y", b"\1")):
            self.write(name, safetensors([("%s-%d-%d" % (dtype, n, step), dtype, [n], b"".join(bytes(width - 1) + (b"\0", last)[i % step == 0] for i in range(n)))
                                          for dtype, width, n, step in tensors]))
        found = {t["name"]: t["changed_elements"] for t in self.diff("x", "y")["tensors"]}
        self.assertEqual(found, {"%s-%d-%d" % (dtype, n, step): len(range(0, n, step)) for dtype, _, n, step in tensors})

    def test_it_is_matched_as_the_delta_is(self):
        """Renamed tensors, tensors that are cut in another way, and twins: diff said 'added', and a size of up to three times the delta's."""
        n = 100000
        layers, whole, master = [bf16(n, i) for i in range(3)], bf16(n, 7), f32(n, 9)
        self.write("a", safetensors([("l.%d.w" % i, "BF16", [1000, 100], w) for i, w in enumerate(layers)] + [("r", "BF16", [1000, 100], whole)]))
        self.write("b", safetensors([("module.l.%d.w" % i, "BF16", [1000, 100], moved(w, 2, 0.01, i)) for i, w in enumerate(layers)] +
                                    [("r[0:400]", "BF16", [400, 100], whole[:400 * 200]), ("r[400:1000]", "BF16", [600, 100], whole[400 * 200:]),
                                     ("m", "F32", [n], master), ("half", "F16", [n], halved(master))]))
        self.lmc("a")
        self.lmc("b", "--base", "a.lmc")
        real = os.path.getsize(self.path("b.lmc"))
        for names in ("a", "b"), ("a.lmc", "b.lmc"):
            o = self.diff(*names)
            t = {t["name"]: t for t in o["tensors"]}
            self.assertEqual({name: x["status"] for name, x in t.items()}, {
                **{"module.l.%d.w" % i: "changed" for i in range(3)}, "r[0:400]": "reshaped", "r[400:1000]": "reshaped", "m": "added", "half": "added"})
            self.assertEqual(t["module.l.1.w"]["old"], {"name": "l.1.w", "path": ""})
            self.assertEqual(t["module.l.1.w"]["changed_elements"], n // 100)
            self.assertEqual(t["half"]["twin"], {"name": "m", "path": ""})
            self.assertLess(real - 2000, o["delta_size"])
            self.assertLess(o["delta_size"], real)
        text = self.lmc("diff", "a", "b").stdout.decode()
        for line in "module.l.1.w  was l.1.w", "r[0:400]  part of r", "half  twin of m":
            self.assertIn("  %s\n" % line, text)
        listed = self.lmc("-l", "-v", "b.lmc").stdout.decode()
        for name, by in (("module.l.1.w", "base 'l.1.w'"), ("r[0:400]", "base 'r'"), ("half", "twin of 'm'")):
            self.assertRegex(listed, r"(?m) %s  offset \d+  [0-9a-f]{32}  %s$" % (re.escape(name), by))
        self.assertRegex(listed, r"(?m) m  offset \d+  [0-9a-f]{32}$")  # nothing predicts it
        t = {t["name"]: t for t in json.loads(self.lmc("-l", "-v", "--json", "b.lmc").stdout)["files"][0]["tensors"]}
        self.assertEqual((t["module.l.2.w"]["base"], t["half"]["twin"]), ({"name": "l.2.w", "path": ""}, {"name": "m", "path": ""}))
        self.write("away/a.lmc", self.read("a.lmc"))
        os.unlink(self.path("a.lmc"))
        self.assertNotIn("base 'l.1.w'", self.lmc("-l", "-v", "b.lmc").stdout.decode())
        self.assertIn("base 'l.1.w'", self.lmc("-l", "-v", "--search", "away", "b.lmc").stdout.decode())

    def test_table(self):
        text = self.lmc("diff", "old", "new").stdout.decode()
        self.assertRegex(text, r"(?m)^  changed  BF16     \[300,1000\] +600000    1\.99\d\d %.* w  in all.safetensors$|^  changed  BF16     \[300,1000\] +600000    2\.0000 %.* w  in all.safetensors$")
        self.assertRegex(text, r"(?m)^  removed  I8       \[70\] +70 +gone  in 1.safetensors$")
        self.assertRegex(text, r"(?m)^  all .*  1 same, 2 changed, 2 reshaped, 1 retyped, 1 added, 2 removed$")

    def test_equal_and_empty(self):
        o = self.diff("old", "old")
        self.assertEqual({t["status"] for t in o["tensors"] + o["files"]}, {"same"})
        self.assertEqual((o["changed_elements"], o["from"]["fingerprint"]), (0, o["to"]["fingerprint"]))
        self.write("empty", b"")
        self.write("one", b"1")
        self.assertEqual(self.diff("empty", "empty")["elements"], 0)
        self.assertEqual(self.diff("empty", "one")["files"][0]["status"], "changed")
        self.lmc("diff", "empty", "one")
        os.mkdir(self.path("nothing"))
        self.assertEqual(self.diff("nothing", "old")["tensors"][0]["status"], "added")
        self.assertEqual(self.diff("old", "nothing")["delta_size"], 0)

    def test_what_is_no_tensor(self):
        """Other metadata, and links that lead elsewhere, are not "same"."""
        w = [("w", "BF16", [100], self.w[:200])]
        for k in (0, 1):
            self.write("m%d/a" % k, safetensors(w, {"step": str(k)}))
            self.write("m%d/b" % k, safetensors(w, {"step": str(9 + k)}))  # a byte more
            self.write("m%d/same" % k, safetensors(w))
            self.write("m%d/moved%d" % (k, k), safetensors([("x", "BF16", [100], self.w[:200])]))
            for name, target in (("last", "ab"[k]), ("same-link", "a"), ("only%d" % k, "a")):
                os.symlink(target, self.path("m%d/%s" % (k, name)))
            self.lmc("m%d" % k)
        size = 8 + struct.unpack("<Q", self.read("m0/b")[:8])[0]
        for a, b in (("m0", "m1"), ("m0.lmc", "m1.lmc"), ("m0", "m1.lmc")):
            o = self.diff(a, b)
            self.assertEqual({t["status"] for t in o["tensors"]}, {"same"})
            found = {f.pop("path"): f for f in o["outside_tensors"]}
            self.assertEqual(found.pop("a"), {"status": "changed", "size": size, "old_size": size, "changed_bytes": 1})
            self.assertEqual(found.pop("b")["status"], "changed")
            self.assertEqual(found, {"moved0": {"status": "removed"}, "moved1": {"status": "added"}})
            self.assertEqual(o["links"], [{"path": "last", "status": "changed", "target": "b", "old_target": "a"}, {"path": "only1", "status": "added", "target": "a"},
                                          {"path": "only0", "status": "removed", "old_target": "a"}])
            text = self.lmc("diff", a, b).stdout.decode()
            self.assertIn("\n  changed  1 of %d bytes of headers, pickles and metadata  in a\n" % size, text)
            self.assertIn("\n  changed  link last to b, before to a\n", text)
        o = self.diff("m0", "m0.lmc")
        self.assertEqual((o["outside_tensors"], o["links"]), ([], []))
        o = self.diff("m0/a", "m1/b")["outside_tensors"]
        self.assertEqual([(f["path"], f["status"]) for f in o], [("", "changed")])

    def test_chains(self):
        self.lmc("old")
        self.lmc("new", "--base", "old.lmc")
        shutil.copytree(self.path("new"), self.path("newer"))
        self.lmc("newer", "--base", "new.lmc", "--base", "old.lmc")
        self.assertEqual(self.diff("new.lmc", "newer.lmc", "--base", "old.lmc")["changed_elements"], 0)
        self.assertEqual(self.diff("newer.lmc", "new", "--base", "old")["changed_elements"], 0)
        os.mkdir(self.path("away"))
        for name in ("old", "old.lmc"):
            os.rename(self.path(name), self.path("away/" + name))
        self.refuses("diff", "new.lmc", "newer.lmc", code=4, says="new.lmc: needs the base")
        self.lmc("diff", "new.lmc", "missing", code=1, says="missing: cannot open it")

    def test_usage(self):
        for args in (("old",), (), ("old", "new", "old"), ("-c", "old", "new"), ("-o", "x", "old", "new"), ("-d", "old", "new"), ("-", "new"), ("--rm", "old", "new")):
            self.refuses("diff", *args, code=2, says="lmc: ")

    def test_pieces(self):
        """Tensors of more than one piece of 16 MiB; raw files by their dtype."""
        part = bf16(1 << 20)
        self.write("a", part * 9)
        self.write("b", part * 8 + moved(part, 2, 0.5))
        o = self.diff("a", "b", "--dtype=BF16")["tensors"][0]
        self.assertEqual((o["elements"], o["changed_elements"]), (9 << 20, 1 << 19))
        self.assertLess(o["delta_size"] * 9, o["direct_size"])
        self.assertEqual(self.diff("a", "b")["files"][0]["elements"], 9 << 21)  # bytes

    def test_real_series(self):
        names = [os.path.join(DATA, "series", "step-%06d" % s, "model.bf16.safetensors") for s in (1700, 1701)]
        if not os.path.exists(names[0]):
            self.skipTest("no LMC_DATA")
        o = self.diff(*names)
        self.assertAlmostEqual(o["changed_elements"] / o["elements"], 0.155, delta=0.01)
        self.assertLess(o["delta_size"] * 18, o["size"])
        self.lmc(names[1], "--base", names[0], "-o", "x.lmc")
        self.assertLess(abs(os.path.getsize(self.path("x.lmc")) / o["delta_size"] - 1), 0.05)


# ---- the world is bad ----


class Failures(Case):
    def test_same_input_and_output(self):
        self.write("a", b"hello")
        os.link(self.path("a"), self.path("b"))
        os.symlink("a", self.path("c"))
        for out in ("a", "./a", "b", "c"):
            self.refuses("-f", "a", "-o", out, code=1, says="output and input are the same file")
        with open(self.path("a"), "ab") as f:
            self.lmc("-c", "a", stdout=f, code=1, says="standard output and input are the same file")
        self.assertEqual(self.read("a"), b"hello")

    def test_full_device(self):
        self.write("a", random.Random(1).randbytes(MB))
        self.lmc("a")
        with open("/dev/full", "wb") as full:
            self.lmc("-c", "a", stdout=full, code=1, says="No space left on device; free some space")
            self.lmc("-dc", "a.lmc", stdout=full, code=1, says="No space left on device")
            self.lmc("cat", "--npy", "a.lmc", stdout=full, code=1)
            self.lmc("-l", "a.lmc", stdout=full, code=1, says="No space left on device")
            self.lmc("-h", stdout=full, code=1)

    def test_full_disk(self):
        os.mkdir(self.path("small"))
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.path("small")], capture_output=True).returncode:
            self.skipTest("cannot mount a small file system")
        try:
            self.write("b", random.Random(2).randbytes(MB + 1))
            for n in (MB + 1, 3 * MB):  # only the last bytes, written at the end, are too many; and earlier ones
                self.write("a", random.Random(1).randbytes(n))
                self.write("d/a", self.read("a"))
                for name in ("a", "d"):
                    self.lmc("-f", name)
                    for args in ((name,), (name, "--base", "b"), ("-d", name + ".lmc")):
                        self.lmc(*args, "-o", "small/x", code=1, says="No space left on device")
                        self.assertEqual(os.listdir(self.path("small")), [])
        finally:
            subprocess.run(["umount", self.path("small")], check=True)

    def test_file_size_limit(self):
        self.write("a", random.Random(1).randbytes(3 * MB))
        for args in ("a", "--rm a"):
            p = subprocess.run(["sh", "-c", 'ulimit -f 1000; exec "$0" %s' % args, LMC], cwd=self.dir, capture_output=True)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(b"File too large", p.stderr)
            self.assertEqual(self.tree(), ["a"])

    def test_no_directory(self):
        self.write("a", b"hello")
        self.refuses("a", "-o", "none/x.lmc", code=1, says="none/x.lmc: cannot create it: there is no directory none\n")

    def test_no_permission(self):
        self.write("a", b"hello")
        self.write("secret", b"hello", 0)
        self.write("ro/a", b"hello")
        binary = self.path("copy-of-lmc")
        shutil.copy(LMC, binary)
        os.chmod(binary, 0o755)
        os.chmod(self.path("ro"), 0o555)
        drop = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        before = self.tree()
        for args, says in ((["secret"], b"secret: cannot open it: Permission denied"), (["ro/a"], b"ro/a.lmc: cannot create a file beside it"),
                           (["-c", "missing"], b"missing: cannot open it: No such file"), (["a", "-o", "none/x"], b"there is no directory none")):
            p = subprocess.run([binary] + args, cwd=self.dir, capture_output=True, **drop)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(says, p.stderr)
        self.assertEqual(self.tree(), before)

    def interrupt(self, args, feed, number, ready):
        def prepare():  # SIGQUIT would leave a core file
            take_signals()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        p = subprocess.Popen([LMC] + args, cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare)
        p.stdin.write(feed)
        p.stdin.flush()
        limit = time.time() + 20
        while not ready(p.pid) and time.time() < limit:
            time.sleep(0.01)
        self.assertTrue(ready(p.pid))
        p.send_signal(number)
        code = p.wait(timeout=20)
        p.stdin.close()
        p.stderr.close()
        return code

    def output_is_open(self, pid):
        """Whether the output is open, under a temporary name or without a name."""
        if any(f.startswith(".lmc-") for f in self.tree()):
            return True
        at = "/proc/%d/fd" % pid
        return os.path.isdir(at) and any(os.path.dirname(os.readlink(os.path.join(at, fd))) == self.dir for fd in os.listdir(at))

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL):
            self.assertEqual(self.interrupt(["-o", "x.lmc"], random.Random(1).randbytes(30 * MB), number, self.output_is_open), -number)
            self.assertEqual([f for f in self.tree() if number != signal.SIGKILL or self.has_unnamed_files()], [])
        for f in self.tree():
            os.unlink(self.path(f))
        self.write("x.lmc", b"old")
        self.assertEqual(self.interrupt(["-f", "-o", "x.lmc"], random.Random(1).randbytes(30 * MB), signal.SIGKILL, self.output_is_open), -signal.SIGKILL)
        self.assertEqual(self.read("x.lmc"), b"old")
        self.assertEqual([f for f in self.tree() if not f.startswith(".lmc-")], ["x.lmc"])
        for f in self.tree():
            os.unlink(self.path(f))

    def test_what_kill_leaves_of_a_directory(self):
        """A directory has a name while it is made. A later restore beside it reports it, unless its lmc is alive; nothing is removed."""
        for i in range(3):
            self.write("d/sub%d/x" % i, random.Random(i).randbytes(9 * MB))
        self.lmc("d")
        self.write("f", b"a file")
        os.mkdir(self.path(".lmc-models"))  # perhaps a user's
        self.write(".lmc-locked", b"of a running program")
        packed = self.read("d.lmc")
        with open(self.path(".lmc-locked")) as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            p = subprocess.Popen([LMC, "-d", "-o", "e"], cwd=self.dir, stdin=subprocess.PIPE)
            p.stdin.write(packed[:len(packed) * 3 // 4])
            p.stdin.flush()
            limit = time.time() + 20
            while not any("sub1" in f for f in self.tree() if f.startswith(".lmc-")) and time.time() < limit:
                time.sleep(0.01)
            left = next(f for f in self.tree() if f.startswith(".lmc-") and "/sub1" in f).split("/")[0]
            text = self.lmc("-d", "-o", "while", "d.lmc", says="").stderr.decode()
            self.assertEqual(text, "lmc: ./.lmc-models: looks like what a killed lmc has left; FILES in 'man lmc' tells when to remove it\n")
            os.rmdir(self.path(".lmc-models"))
            p.kill()
            p.wait()
            p.stdin.close()
            text = self.lmc("-d", "-o", "after", "d.lmc", says="").stderr.decode()
            self.assertEqual(text, "lmc: ./%s: looks like what a killed lmc has left; FILES in 'man lmc' tells when to remove it\n" % left)
            self.assertTrue(os.path.exists(self.path(left)))
            os.mkdir(self.path(".lmc-abcdef"))
            text = self.lmc("-d", "-o", "two", "d.lmc", says="").stderr.decode()
            self.assertRegex(text, r"^lmc: \./\.lmc-\w{6}: and 1 more look like what a killed lmc has left; [^\n]*\n$")
            os.rmdir(self.path(".lmc-abcdef"))
            self.lmc("-q", "-d", "-o", "quiet", "d.lmc")
        os.unlink(self.path(".lmc-locked"))
        shutil.rmtree(self.path(left))
        self.lmc("-d", "-o", "clean", "d.lmc")

    def has_unnamed_files(self):
        try:
            os.close(os.open(self.dir, os.O_TMPFILE | os.O_RDWR))
            return os.path.isdir("/proc/self/fd")
        except (OSError, AttributeError):
            return False

    def test_signals_while_restoring_a_directory(self):
        for i in range(3):
            self.write("d/sub%d/x" % i, random.Random(i).randbytes(9 * MB))
        self.lmc("d")
        before = self.tree()
        packed = self.read("d.lmc")
        code = self.interrupt(["-d", "-o", "e"], packed[:len(packed) * 3 // 4], signal.SIGINT, lambda pid: any("sub1" in f for f in self.tree() if f.startswith(".lmc-")))
        self.assertEqual(code, -signal.SIGINT)
        self.assertEqual(self.tree(), before)

    def test_ignored_signals_stay_ignored(self):
        p = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$0" -o x.lmc', LMC], cwd=self.dir, stdin=subprocess.PIPE)
        p.stdin.write(b"abc")
        p.stdin.flush()
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        p.stdin.close()
        self.assertEqual(p.wait(), 0)

    def check_memory(self, megabytes, bound):
        with open(self.path("big"), "wb") as f:
            part = bf16(1 << 19)
            for k in range(megabytes // 2):
                f.write(part if k % 2 else bytes(len(part)))
            f.truncate(megabytes * MB)
        figures = {"compress": self.max_rss("-T4", "big"), "restore": self.max_rss("-d", "-T4", "-o", "out", "big.lmc"),
                   "test": self.max_rss("-t", "-T4", "big.lmc")}
        with open(self.path("big"), "rb") as f:
            cat = subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE)
            figures["pipe"] = self.max_rss("-T4", "-c", stdin=cat.stdout)
            cat.stdout.close()
            cat.wait()
        with open(self.path("new"), "wb") as f:
            for k in range(megabytes // 2):
                f.write(part if k % 3 else bytes(len(part)))
            f.truncate(megabytes * MB)
        deltas = {}
        for base in ("big", "big.lmc"):
            options = ["--dtype=BF16", "-T4", "--base", base]
            self.lmc("-f", "--dtype=BF16", "big")
            deltas["compress, base " + base] = self.max_rss("-f", *options, "new")
            deltas["restore, base " + base] = self.max_rss("-df", *options, "-o", "out", "new.lmc")
            self.assertEqual(subprocess.run(["cmp", "new", "out"], cwd=self.dir).returncode, 0)
        deltas["diff"] = self.max_rss("diff", "-T4", "--dtype=BF16", "big", "new.lmc", "--base", "big.lmc")
        if LONG:
            print("  memory, %d MB file, 4 threads: %s" % (megabytes, {k: "%.0f MB" % v for k, v in {**figures, **deltas}.items()}), file=sys.stderr)
        for name, value in figures.items():
            self.assertLess(value, bound, name)
        for name, value in deltas.items():
            self.assertLess(value, bound + 40 if name != "diff" else 2 * bound, name)  # blocks have 4 MiB if little has changed

    def test_memory(self):
        if SANITIZED:
            self.skipTest("sanitized build")
        self.check_memory(160, 80)

    def test_long_memory(self):
        if not LONG or SANITIZED:
            self.skipTest("--long")
        self.check_memory(1000, 80)


# ---- real data, the other programs ----


class Together(Case):
    def all_data(self):
        files = [os.path.join(b, f) for b, _, fs in os.walk(DATA) for f in fs if f.endswith(".safetensors")]
        return sorted(files)

    def test_sample(self):
        if not os.path.exists(SAMPLE):
            self.skipTest("no sample")
        shutil.copyfile(SAMPLE, self.path("s.safetensors"))
        self.assertLess(self.round_trip("s.safetensors"), os.path.getsize(SAMPLE) * 0.72)

    def test_real_data(self):
        files = self.all_data()
        if not files:
            self.skipTest("no LMC_DATA")
        for path in files:
            shutil.copyfile(path, self.path("m.safetensors"))
            self.round_trip("m.safetensors", "-f")

    def test_real_directory(self):
        path = os.path.join(DATA, "series", "step-001000")
        if not os.path.isdir(path):
            self.skipTest("no LMC_DATA")
        self.lmc(path, "-o", "d.lmc")
        self.lmc("-d", "d.lmc")
        for f in os.listdir(path):
            with open(os.path.join(path, f), "rb") as source:
                self.assertEqual(self.read("d/" + f), source.read())

    def test_reference_decoder(self):
        if not os.path.exists(DECODER):
            self.skipTest("no reference decoder")
        cases = {"bf16.safetensors": safetensors([("w", "BF16", [9000], bf16(9000)), ("v", "F32", [50], f32(50))], tail=b"tail"), "text": b"to be or not\n" * 500,
                 "zeros": bytes(70000), "random": random.Random(1).randbytes(70001), "empty": b"", "f.npy": npy("<f8", (99,), bytes(range(99)) * 8)}
        for name, data in cases.items():
            self.write(name, data)
            self.lmc(name)
            subprocess.run([sys.executable, DECODER, name + ".lmc", "out"], cwd=self.dir, check=True)
            self.assertEqual(self.read("out"), data)
            os.unlink(self.path("out"))
        for name, data in cases.items():
            self.write("d/" + name, data)
        os.mkdir(self.path("d/nothing"))
        self.lmc("d")
        subprocess.run([sys.executable, DECODER, "d.lmc", "e"], cwd=self.dir, check=True)
        self.assertEqual({f: self.read("e/" + f) for f in os.listdir(self.path("e")) if f != "nothing"}, cases)

    def test_examples(self):
        cc = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if not cc:
            self.skipTest("no compiler")
        for name in ("embed", "read_tensor"):
            subprocess.run(cc.split() + ["-O0", "-std=c99", os.path.join(ROOT, "examples", name + ".c"), "-o", self.path(name), "-lm"], check=True)
        p = subprocess.run([self.path("embed")], stdout=subprocess.PIPE, check=True)
        self.assertIn(b"restored", p.stdout)
        self.write("m.safetensors", safetensors([("w", "F32", [5], b"a" * 20), ("v", "F32", [5], b"b" * 20)]))
        self.lmc("m.safetensors")
        p = subprocess.run([self.path("read_tensor"), "m.safetensors.lmc", "v"], cwd=self.dir, capture_output=True, check=True)
        self.assertEqual(p.stdout, b"b" * 20)
        p = subprocess.run([self.path("read_tensor"), "m.safetensors.lmc", "x"], cwd=self.dir, capture_output=True)
        self.assertEqual(p.returncode, 1)

    def test_long_gigabytes(self):
        if not LONG:
            self.skipTest("--long")
        n = 1000 * MB
        rng = random.Random(1)
        f = floats(1 << 21)
        text = b" ".join(rng.choice([b"the", b"weights", b"of", b"a", b"large", b"model", b"are", b"random"]) for _ in range(1 << 19))
        half = b"".join(struct.pack("<e", x) for x in f)
        int8 = bytes(min(255, max(0, int(x * 1500) + 128)) for x in f)
        kinds = {"bf16": (bf16(1 << 21), "BF16"), "fp16": (half, "F16"), "fp32": (f.tobytes(), "F32"), "fp8": (bytes(b >> 8 & 255 for b in array("H", half)), "F8_E5M2"),
                 "int8": (int8, "I8"), "text": (text, None), "zeros": (bytes(MB), None), "random": (None, None)}
        for name, (part, dtype) in kinds.items():
            with open(self.path("big"), "wb") as out:
                while out.tell() < n:
                    out.write(rng.randbytes(16 * MB) if part is None else part)
            start = time.time()
            self.lmc(*(["--dtype", dtype] if dtype else []), "big")
            middle = time.time()
            self.lmc("-d", "big.lmc", "-o", "out")
            end = time.time()
            self.assertEqual(subprocess.run(["cmp", "big", "out"], cwd=self.dir).returncode, 0)
            size, packed = os.path.getsize(self.path("big")), os.path.getsize(self.path("big.lmc"))
            print("  %-7s %d -> %d bytes (%.3f %%), %.1f s, %.1f s" % (name, size, packed, 100 * packed / size, middle - start, end - middle), file=sys.stderr)
            if name == "zeros":
                self.assertLess(packed * 1000, size)
            if name == "random":
                self.assertLess(packed, size * 1.001)
            for f_ in ("big", "big.lmc", "out"):
                os.unlink(self.path(f_))


# ---- runner ----


def main(needs=LMC, left_out=(), at_end=None):
    """left_out: tests that are not expected to run everywhere. at_end: called before the last line."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    brief = [line.split(" ")[1] for line in open(BRIEF).read().splitlines() if line.startswith(os.path.basename(sys.argv[0]))] if "--brief" in sys.argv else None
    if not os.access(needs, os.X_OK):
        print("%s is missing: build it first" % needs)
        print("0 passed, 1 failed")
        return 1
    tests = []
    for suite in unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]):
        tests += [t for t in suite if not names or any(n in t.id() for n in names)]
    if brief is not None:
        missing = set(brief) - {t.id().replace("__main__.", "") for t in tests}
        assert not missing, "%s names what is no test: %s" % (BRIEF, sorted(missing))
        tests = [t for t in tests if t.id().replace("__main__.", "") in brief]
    passed = failed = skipped = 0
    for test in tests:
        result = unittest.TestResult()
        start = time.time()
        test.run(result)
        name = test.id().replace("__main__.", "")
        problems = result.failures + result.errors
        for _, text in problems:
            print("FAILED  %s\n%s" % (name, text))
        for _, reason in result.skipped:
            print("%s %s: %s" % ("left out" if reason == "--long" or name in left_out else "SKIPPED", name, reason))
        failed += bool(problems)
        skipped += bool(result.skipped)
        passed += not problems and not result.skipped
        if "-v" in sys.argv:
            print("%-60s %6.2f s" % (name, time.time() - start))
        sys.stdout.flush()
    if at_end:
        at_end()
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
