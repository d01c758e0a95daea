"""What the suites of the command share: data for tests, the class Case, which runs the command in a directory of its own, and main().

Usage of each: test_NAME.py [--long|--brief] [-v] [NAME...]      NAME: run only tests whose name contains it

LMC names the command (default build/lmc), LMC_DATA the directory of real data (default ../shared/data, both from the
root of the repository). --long adds files of 1 to 10 GB; --brief runs only what brief.txt names. Docstrings in the past tense tell the fault
that a test is for. SPDX-License-Identifier: MIT
"""
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from array import array

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LMC = os.path.abspath(os.environ.get("LMC") or os.path.join(ROOT, "build", "lmc"))
DATA = os.path.abspath(os.environ.get("LMC_DATA") or os.path.join(ROOT, "..", "shared", "data"))
SAMPLE = os.path.join(ROOT, "examples", "data", "gpt-step-001000.bf16.safetensors")
DECODER = os.path.join(ROOT, "spec", "lmc_decode.py")
LONG = "--long" in sys.argv
BRIEF = os.path.join(ROOT, "tests", "command", "brief.txt")
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


def moved(data, size, share, seed=1):
    """Elements of that size; a share of them has changed a little."""
    rng = random.Random(seed)
    words = array({1: "B", 2: "H", 4: "I"}[size], data)
    for i in rng.sample(range(len(words)), int(len(words) * share)):
        words[i] = (words[i] + rng.choice((-2, -1, 1, 2))) % 256**size
    return words.tobytes()


def rounded(data):
    """F32 to BF16, to nearest, ties to even."""
    return array("H", [(v + 0x7FFF + (v >> 16 & 1)) >> 16 for v in array("I", data)]).tobytes()


def halved(data):
    """F32 to F16."""
    return b"".join(struct.pack("<e", v) for v in array("f", data))


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
