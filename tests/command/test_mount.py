#!/usr/bin/env python3
"""Tests of lmc mount, with real programs on a real mount: every kind of source, what changes below it, damage, messages.

Usage: test_mount.py [--brief|--long] [-v] [NAME...]      as case.py says

--long: a gigabyte, rates (printed), PyTorch and safetensors of build/python-venv, a series that grows and is pruned meanwhile, as another user.
SPDX-License-Identifier: MIT
"""
import errno
import filecmp
import hashlib
import mmap
import os
import pwd
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from case import LMC, LONG, MB, ROOT, Case, bf16, f32, main, safetensors, take_signals  # noqa: E402
from test_filesystems import Holder  # noqa: E402

VENV = os.path.join(ROOT, "build", "python-venv", "bin", "python")
SANITIZED = "LMC_SANITIZED" in os.environ


def why_not():
    """Why nothing can be mounted here; None: it can."""
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse: a file system of its own cannot be mounted"
    if not shutil.which("fusermount3"):
        return "fuse3 is not installed"
    if b"without FUSE" in subprocess.run([LMC, "mount", "-f", "/none", "/none"], capture_output=True).stderr:
        return "this lmc was built without libfuse3-dev"
    with tempfile_dir() as d:
        os.mkdir(d + "/m")
        os.mkdir(d + "/d")
        p = subprocess.run([LMC, "mount", "-q", d + "/d", d + "/m"], capture_output=True)
        if p.returncode != 0:
            return "a file system of its own cannot be mounted"
        unmount(d + "/m")
    return None


class tempfile_dir:
    def __enter__(self):
        import tempfile
        self.name = tempfile.mkdtemp(prefix="lmc-mount-")
        return self.name

    def __exit__(self, *_):
        shutil.rmtree(self.name)


def unmount(path):
    for _ in range(100):
        if subprocess.run(["fusermount3", "-u", path], capture_output=True).returncode == 0:
            return
        time.sleep(0.05)  # somebody, such as an indexer, looks at it
    raise AssertionError("cannot unmount " + path)


REASON = why_not() if os.access(LMC, os.X_OK) else None


def weights(n, seed=1):
    """bf16 as of a model: quickly, from a few repeated pieces."""
    piece = bf16(min(n, 50000), seed)
    return (piece * (2 * n // len(piece) + 1))[:2 * n]


def changed(data, rng, n=50):
    data = bytearray(data)
    for _ in range(n):
        data[rng.randrange(len(data) // 2) * 2] ^= 1
    return bytes(data)


class MountCase(Case):
    def setUp(self):
        super().setUp()
        if REASON:
            self.skipTest(REASON)
        self.at = self.path("m")
        os.mkdir(self.at)
        self.running = None

    def tearDown(self):
        if hasattr(self, "at") and os.path.ismount(self.at):
            self.end()
        if getattr(self, "running", None):
            self.running.kill()
            self.running.wait()
        if hasattr(self, "at"):
            subprocess.run(["fusermount3", "-u", self.at], capture_output=True)  # after a kill
        super().tearDown()

    def mount(self, *args):
        """In the foreground, so that its messages and its end can be seen: self.log()."""
        with open(self.path("log"), "ab") as log:
            self.running = subprocess.Popen([LMC, "mount", "-f", *args, self.at], cwd=self.dir, stdout=log, stderr=log, preexec_fn=take_signals)
        for _ in range(1200):
            if os.path.ismount(self.at) or self.running.poll() is not None:
                break
            time.sleep(0.02)
        self.assertTrue(os.path.ismount(self.at), self.log())

    def end(self, code=0):
        unmount(self.at)
        if self.running:
            self.assertEqual(self.running.wait(timeout=60), code, self.log())
            self.running = None

    def log(self):
        return self.read("log").decode(errors="replace") if os.path.exists(self.path("log")) else ""

    def seen(self, name=""):
        return self.read("m/" + name if name else "m")

    def fails(self, number, call, *args):
        with self.assertRaises(OSError) as caught:
            call(*args)
        self.assertEqual(caught.exception.errno, number)

    def same_tree(self, a, b):
        """Names, kinds, bytes, modes, times and links are equal."""
        def state(root):
            found = {}
            for base, dirs, files in os.walk(self.path(root)):
                for name in dirs + files:
                    full = os.path.join(base, name)
                    st = os.lstat(full)
                    what = os.readlink(full) if stat.S_ISLNK(st.st_mode) else hashlib.sha256(self.read(full)).hexdigest() if stat.S_ISREG(st.st_mode) else None
                    found[os.path.relpath(full, self.path(root))] = (what, st.st_mode) + (() if stat.S_ISLNK(st.st_mode) else (st.st_mtime_ns,)) + \
                        ((st.st_size, st.st_nlink) if stat.S_ISREG(st.st_mode) else ())
            return found
        self.assertEqual(state(a), state(b))

    def run_program(self, *command, code=0):
        p = subprocess.run(command, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(p.returncode, code, "%s: %s\n%s" % (" ".join(command), p.stdout.decode(errors="replace")[-2000:], self.log()))
        return p.stdout

    def tree_of_files(self):
        self.write("d/model.safetensors", safetensors([("a", "BF16", [70000], weights(70000)), ("b", "F32", [100], f32(100))]), 0o640)
        self.write("d/config.json", b'{"x": 1}', 0o444)
        self.write("d/sub/deep/er/file", b"x" * 1000)
        self.write("d/sub/deep.txt", b"")
        self.write("d/sub/run.sh", b"#!/bin/sh\necho run\n", 0o755)
        self.write("d/sub-2", b"2")
        os.makedirs(self.path("d/empty/below"))
        os.symlink("sub/deep/er/file", self.path("d/link"))
        os.symlink("/nowhere", self.path("d/sub/broken"))
        os.link(self.path("d/config.json"), self.path("d/sub/hard"))
        for i, path in enumerate(["model.safetensors", "sub/deep.txt", "sub/deep", "empty/below", "sub", "empty"]):
            os.utime(self.path("d/" + path), ns=(0, 1234567890123456789 + i))


class Sources(MountCase):
    def test_file(self):
        data = safetensors([("w", "BF16", [3000], weights(3000))])
        self.write("x.safetensors", data, 0o600)
        os.utime(self.path("x.safetensors"), ns=(0, 10 ** 18 + 7))
        self.lmc("x.safetensors")
        self.mount("x.safetensors.lmc")
        self.assertEqual(os.listdir(self.at), ["x.safetensors"])
        self.assertEqual(self.seen("x.safetensors"), data)
        st = os.stat(self.at + "/x.safetensors")
        self.assertEqual((st.st_mode, st.st_mtime_ns, st.st_size, st.st_uid), (stat.S_IFREG | 0o600, 10 ** 18 + 7, len(data), os.geteuid()))
        self.fails(errno.ENOENT, os.stat, self.at + "/y")
        self.fails(errno.EROFS, open, self.at + "/new", "w")
        self.fails(errno.EROFS, open, self.at + "/x.safetensors", "r+")
        self.fails(errno.EROFS, os.unlink, self.at + "/x.safetensors")
        self.fails(errno.EROFS, os.rename, self.at + "/x.safetensors", self.at + "/z")
        self.fails(errno.EROFS, os.chmod, self.at + "/x.safetensors", 0o777)
        self.fails(errno.EROFS, os.mkdir, self.at + "/d")
        self.end()
        self.assertEqual(os.listdir(self.at), [])
        self.assertEqual(self.log(), "")

    def test_tree(self):
        self.tree_of_files()
        self.lmc("d")
        self.mount("d.lmc")
        self.same_tree("m", "d")
        self.assertEqual(os.stat(self.at + "/config.json").st_ino, os.stat(self.at + "/sub/hard").st_ino)
        self.assertEqual(os.stat(self.at).st_mode, os.stat(self.path("d")).st_mode)

    def test_programs(self):
        self.tree_of_files()
        self.lmc("d")
        self.mount("d.lmc")
        self.run_program("cmp", "m/model.safetensors", "d/model.safetensors")
        self.run_program("diff", "-r", "--no-dereference", "m", "d")
        self.assertEqual(sorted(self.run_program("find", "m", "-printf", "%P %y %m\n").splitlines()), sorted(self.run_program("find", "d", "-printf", "%P %y %m\n").splitlines()))
        self.run_program("tar", "--format=posix", "-cf", "a.tar", "-C", "m", ".")
        os.mkdir(self.path("t"))
        self.run_program("tar", "-xpf", "a.tar", "-C", "t")
        self.same_tree("t", "d")
        self.run_program("cp", "-a", "m", "c")
        self.same_tree("c", "d")
        if shutil.which("rsync"):
            self.run_program("rsync", "-aH", "m/", "r")
            self.same_tree("r", "d")
            self.assertEqual(self.run_program("rsync", "-aHni", "--checksum", "m/", "r"), b"")
        self.assertEqual(self.run_program("sh", "m/sub/run.sh"), b"run\n")
        self.lmc("-o", "again.lmc", "m")  # lmc itself
        self.assertEqual(self.lmc("-l", "--json", "again.lmc").stdout.split(b'"fingerprint"')[1][:40], self.lmc("-l", "--json", "d.lmc").stdout.split(b'"fingerprint"')[1][:40])

    def test_windows(self):
        """Larger than a window, not a multiple of anything; every kind of read; maps."""
        data = safetensors([("w", "BF16", [5 * MB], weights(5 * MB)), ("v", "F32", [333333], f32(333333))]) + b"tail"
        self.write("x", data)
        self.lmc("x", "-o", "x.lmc")
        self.mount("x.lmc")
        self.assertEqual(self.seen("x"), data)
        rng = random.Random(3)
        with open(self.at + "/x", "rb", buffering=0) as f:
            self.assertEqual(os.fstat(f.fileno()).st_size, len(data))
            for at in [0, 4 * MB - 1, 4 * MB, len(data) - 3, len(data), len(data) + 5] + [rng.randrange(len(data)) for _ in range(30)]:
                n = rng.choice([1, 7, 4096, 100000, 3 * MB])
                self.assertEqual(os.pread(f.fileno(), n, at), data[at:at + n])
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
                for _ in range(30):
                    at = rng.randrange(len(data))
                    self.assertEqual(m[at:at + 9], data[at:at + 9])
                self.assertEqual(m[:], data)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        a = numpy.arange(300000, dtype="<f4").reshape(300, 1000)
        numpy.save(self.path("a.npy"), a)
        self.lmc("a.npy")
        self.mount("a.npy.lmc")
        m = numpy.load(self.at + "/a.npy", mmap_mode="r")
        self.assertTrue((m == a).all() and (m[200:210, ::7] == a[200:210, ::7]).all())

    def test_directory(self):
        """.lmc files are what they restore; other files, directories and links as they are."""
        rng = random.Random(1)
        one = safetensors([("w", "BF16", [20000], weights(20000))])
        two = safetensors([("w", "BF16", [20000], changed(weights(20000), rng))])
        self.tree_of_files()
        self.write("s/0.st", one)
        self.write("s/sub/1.st", two)
        self.write("s/notes.txt", b"notes")
        self.write("s/both", b"plain")
        os.symlink("notes.txt", self.path("s/link"))
        self.lmc("s/0.st", "-o", "s/0.st.lmc")
        self.lmc("--base", "s/0.st", "s/sub/1.st", "-o", "s/1.st.lmc")
        self.lmc("d", "-o", "s/tree.lmc")
        self.lmc("s/notes.txt", "-o", "s/both.lmc")
        self.lmc("s/notes.txt", "-o", "s/twice.lmc.lmc")
        os.mkfifo(self.path("s/pipe"))
        os.unlink(self.path("s/0.st"))
        os.unlink(self.path("s/sub/1.st"))
        self.mount("s")
        self.assertEqual(sorted(os.listdir(self.at)), sorted(["0.st", "1.st", "tree", "notes.txt", "both", "both.lmc", "link", "sub", "twice.lmc", "pipe"]))
        self.assertEqual((self.seen("0.st"), self.seen("1.st"), self.seen("notes.txt"), self.seen("link"), self.seen("twice.lmc")), (one, two, b"notes", b"notes", b"notes"))
        self.assertEqual((self.seen("both"), self.seen("both.lmc")), (b"plain", self.read("s/both.lmc")))
        self.same_tree("m/tree", "d")
        self.fails(errno.ENOENT, open, self.at + "/0.st.lmc")
        self.fails(errno.ENOENT, os.stat, self.at + "/pipe")
        # what changes is seen at once
        self.write("s/notes.txt", b"other")
        self.write("s/sub/new", b"new")
        self.assertEqual((self.seen("notes.txt"), self.seen("sub/new")), (b"other", b"new"))
        os.unlink(self.path("s/0.st.lmc"))
        self.fails(errno.ENOENT, open, self.at + "/0.st")
        self.assertEqual(self.log(), "")

    def test_link_to_itself(self):
        """A link that leads to the mount point does not make the process wait for itself."""
        os.mkdir(self.path("s"))
        os.symlink(self.at + "/x", self.path("s/x.lmc"))
        self.mount("s")
        start = time.time()
        with self.assertRaises(OSError):
            open(self.at + "/x")
        os.listdir(self.at)
        self.assertLess(time.time() - start, 20)

    def series_of(self, n, size=20000):
        rng, data, found = random.Random(5), weights(size), []
        for i in range(n):
            found.append(safetensors([("w", "BF16", [size], data)], {"step": str(i)}))
            self.write("step-%d.safetensors" % i, found[-1])
            self.lmc("series", "s", "add", "step-%d.safetensors" % i)
            data = changed(data, rng)
        return found

    def test_series(self):
        want = self.series_of(5)
        self.tree_of_files()
        self.lmc("series", "s", "add", "--name", "tree", "d")
        self.mount("s")
        self.assertEqual(sorted(os.listdir(self.at)), sorted(["step-%d" % i for i in range(5)] + ["tree", "latest"]))
        for i in (4, 0, 2, 1, 3):
            self.assertEqual(self.seen("step-%d/step-%d.safetensors" % (i, i)), want[i])
        self.same_tree("m/tree", "d")
        # it grows
        self.write("step-9.safetensors", want[0])
        self.lmc("series", "s", "add", "step-9.safetensors")
        self.assertEqual(os.readlink(self.at + "/latest"), "step-9")
        self.assertEqual(self.seen("latest/step-9.safetensors"), want[0])
        # a snapshot is removed: who has it open reads on
        with open(self.at + "/step-2/step-2.safetensors", "rb") as f:
            self.assertEqual(f.read(100), want[2][:100])
            self.lmc("series", "s", "prune", "step-2", "-q", "-f")
            self.lmc("series", "s", "gc", "-q")
            self.fails(errno.ENOENT, os.listdir, self.at + "/step-2")
            self.fails(errno.ENOENT, open, self.at + "/step-2/step-2.safetensors")
            self.assertEqual(f.read(), want[2][100:])
        for i in (3, 4):
            self.assertEqual(self.seen("step-%d/step-%d.safetensors" % (i, i)), want[i])
        self.assertEqual(self.log(), "")

    def test_series_below(self):
        """A series in a directory is shown as one."""
        want = self.series_of(2)
        os.makedirs(self.path("all/runs"))
        os.rename(self.path("s"), self.path("all/runs/a"))
        self.mount("all")
        self.assertEqual(self.seen("runs/a/latest/step-1.safetensors"), want[1])

    def test_many_snapshots(self):
        """More snapshots than stay open, by turns and all at once."""
        os.mkdir(self.path("s"))
        for i in range(12):
            self.write("x", b"%d" % i * 1000)
            self.lmc("x", "-o", "s/%d.lmc" % i)
        self.mount("s")
        for _ in range(2):
            for i in range(12):
                self.assertEqual(self.seen(str(i)), b"%d" % i * 1000)
        for _ in range(100):  # the system tells later that a file was closed
            if len(self.open_snapshots()) <= 8:
                break
            time.sleep(0.05)
        self.assertEqual(len(self.open_snapshots()), 8)
        files = [open(self.at + "/%d" % i, "rb") for i in range(12)]
        self.assertEqual(len(self.open_snapshots()), 12)
        for i in range(12):
            self.assertEqual(files[i].read(), b"%d" % i * 1000)
            files[i].close()

    def open_snapshots(self):
        d, names = "/proc/%d/fd/" % self.running.pid, []
        for f in os.listdir(d):
            try:
                names.append(os.readlink(d + f))
            except FileNotFoundError:
                pass  # it was closed meanwhile
        return [name for name in names if name.endswith(".lmc")]

    def test_two_processes(self):
        data = safetensors([("w", "BF16", [6 * MB], weights(6 * MB))])
        self.write("x", data)
        self.lmc("x")
        self.mount("x.lmc")
        readers = [subprocess.Popen(["cmp", self.at + "/x", self.path("x")]) for _ in range(2)]
        self.assertEqual([r.wait() for r in readers], [0, 0])


class Changes(MountCase):
    def test_replaced(self):
        """A file that is open stays what it was; a new open sees the new one, of another size, or of the same size and time."""
        contents = [safetensors([("w", "BF16", [30000], weights(30000, seed))]) for seed in (1, 2)] + [b"short"]
        for i, data in enumerate(contents):
            self.write("x", data)
            self.lmc("-q", "-f", "x", "-o", "%d.lmc" % i)
        shutil.copy(self.path("0.lmc"), self.path("x.lmc"))
        self.mount("x.lmc")
        with open(self.at + "/x", "rb") as f:
            self.assertEqual(f.read(10), contents[0][:10])
            os.rename(self.path("1.lmc"), self.path("x.lmc"))
            self.assertEqual(self.seen("x"), contents[1])
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
                self.assertEqual(m[:], contents[0])
            os.rename(self.path("2.lmc"), self.path("x.lmc"))
            self.assertEqual(self.seen("x"), contents[2])
            self.assertEqual(f.read(), contents[0][10:])
        os.unlink(self.path("x.lmc"))
        self.fails(errno.ENOENT, open, self.at + "/x")

    def test_damage(self):
        """EIO for what is damaged, with its name; all else can be read."""
        values = [weights(3 * MB, 1), weights(MB, 2), weights(MB, 3)]
        data = safetensors([(name, "BF16", [len(v) // 2], v) for name, v in zip("abc", values)])
        self.write("d/x", data)
        self.write("d/y", b"intact")
        self.lmc("d")
        snapshot = bytearray(self.read("d.lmc"))
        snapshot[len(snapshot) * 9 // 10 // 2] ^= 1
        self.write("d.lmc", snapshot)
        self.mount("d.lmc")
        bad = 0
        with open(self.at + "/x", "rb", buffering=0) as f:
            for at in range(0, len(data), 65536):
                try:
                    self.assertEqual(os.pread(f.fileno(), 65536, at), data[at:at + 65536])
                except OSError as e:
                    self.assertEqual(e.errno, errno.EIO)
                    bad += 1
        self.assertGreater(bad, 0)
        self.assertLess(bad, 12)
        self.fails(errno.EIO, self.seen, "x")
        self.assertEqual(self.seen("y"), b"intact")
        self.assertRegex(self.log(), r"^lmc: .*/d\.lmc: .*\(in the tensor '[abc]' of 'x'\); 'lmc salvage'")
        self.assertLess(self.log().count("\n"), 4)

    def test_damaged_base(self):
        self.write("x", safetensors([("w", "BF16", [300000], weights(300000))]))
        self.write("y", safetensors([("w", "BF16", [300000], changed(weights(300000), random.Random(1)))]))
        self.lmc("x", "-o", "s/x.lmc") if os.mkdir(self.path("s")) is None else None
        self.lmc("--base", "x", "y", "-o", "s/y.lmc")
        os.unlink(self.path("x"))
        snapshot = bytearray(self.read("s/x.lmc"))
        snapshot[len(snapshot) // 2] ^= 1
        self.write("s/x.lmc", snapshot)
        self.mount("s")
        self.fails(errno.EIO, self.seen, "x")
        self.fails(errno.EIO, self.seen, "y")
        self.assertRegex(self.log(), r"s/x\.lmc: .*tensor 'w'")

    def test_missing_base(self):
        self.write("x", safetensors([("w", "BF16", [30000], weights(30000))]))
        self.write("y", safetensors([("w", "BF16", [30000], changed(weights(30000), random.Random(1)))]))
        os.makedirs(self.path("s"))
        os.makedirs(self.path("b"))
        self.lmc("x", "-o", "b/x.lmc")
        self.lmc("--base", "x", "y", "-o", "s/y.lmc")
        want = self.read("y")
        os.unlink(self.path("x"))
        self.lmc("mount", "s/y.lmc", "m", code=4, says="named 'x' when this delta was made")
        self.mount("s")  # other files may be whole
        self.assertEqual(os.stat(self.at + "/y").st_size, len(want))
        self.fails(errno.EIO, self.seen, "y")
        self.assertIn("s/y.lmc", self.log())
        self.end()
        self.mount("--search", "b", "s")
        self.assertEqual(self.seen("y"), want)
        self.end()
        self.mount("--base", "b/x.lmc", "s/y.lmc")
        self.assertEqual(self.seen("y"), want)

    def test_not_snapshots(self):
        """A damaged index, an empty and a foreign file named .lmc."""
        self.write("x", b"x" * 1000)
        os.mkdir(self.path("s"))
        self.lmc("x", "-o", "s/x.lmc")
        self.write("s/cut.lmc", self.read("s/x.lmc")[:-9])
        self.write("s/empty.lmc", b"")
        self.write("s/other.lmc", b"something else")
        self.mount("s")
        self.assertEqual(sorted(os.listdir(self.at)), ["cut", "empty", "other", "x"])
        for name in ("cut", "empty", "other"):
            self.fails(errno.EIO, open, self.at + "/" + name)
            self.assertIn("s/%s.lmc: " % name, self.log())
        self.assertEqual(self.seen("x"), b"x" * 1000)
        self.end()
        self.lmc("mount", "s/other.lmc", "m", code=3, says="s/other.lmc: ")

    def test_cut_while_open(self):
        """A file that somebody cuts: an error, not wrong bytes, and no end of the mount."""
        data = safetensors([("w", "BF16", [8 * MB], os.urandom(16 * MB))])
        self.write("x", data)
        self.lmc("x")
        self.mount("x.lmc")
        with open(self.at + "/x", "rb", buffering=0) as f:
            self.assertEqual(f.read(10), data[:10])
            os.truncate(self.path("x.lmc"), 1000)
            self.fails(errno.EIO, os.pread, f.fileno(), 100, 14 * MB)
        self.assertIn("x.lmc: ", self.log())
        self.fails(errno.EIO, os.listdir, self.at)
        os.stat(self.at)
        self.assertLess(self.log().count("\n"), 5)


class Process(MountCase):
    def setUp(self):
        super().setUp()
        self.data = safetensors([("w", "BF16", [3000], weights(3000))])
        self.write("x", self.data)
        self.lmc("x")

    def background(self, *args):
        self.lmc("mount", "-q", *args, "x.lmc", "m")
        self.assertEqual(self.seen("x"), self.data)
        with open("/proc/self/mountinfo") as f:
            self.assertIn(" %s ro," % self.at, f.read())
        found = subprocess.run(["pgrep", "-f", "mount .*x.lmc m$"], stdout=subprocess.PIPE).stdout.split()
        return [int(p) for p in found if os.readlink("/proc/%s/cwd" % p.decode()) == self.dir][0]

    def wait_for_end(self, pid):
        for _ in range(500):
            if not os.path.exists("/proc/%d" % pid):
                return
            time.sleep(0.02)
        self.fail("the process goes on")

    def test_background(self):
        pid = self.background()
        for number in (0, 1, 2):
            self.assertEqual(os.readlink("/proc/%d/fd/%d" % (pid, number)), "/dev/null")
        self.end()
        self.wait_for_end(pid)

    def test_log(self):
        snapshot = bytearray(self.read("x.lmc"))
        snapshot[1000] ^= 1
        self.lmc("-q", "x", "-o", "good.lmc")
        self.write("x.lmc", snapshot)
        self.lmc("mount", "-q", "--log", "messages", "x.lmc", "m")
        self.fails(errno.EIO, self.seen, "x")
        self.assertRegex(self.read("messages").decode(), r"x\.lmc: .*(tensor 'w'|damaged)")
        self.end()
        self.lmc("mount", "-f", "--log", "messages", "x.lmc", "m", code=2, says="leave out --log")
        self.lmc("mount", "--log", "none/messages", "good.lmc", "m", code=1, says="none/messages: cannot open it")
        self.assertFalse(os.path.ismount(self.at))

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.mount("x.lmc")
            self.assertEqual(self.seen("x"), self.data)
            self.running.send_signal(number)
            self.assertEqual(self.running.wait(timeout=60), 0)
            self.running = None
            self.assertFalse(os.path.ismount(self.at))
            self.assertEqual(os.listdir(self.at), [])

    def test_leases(self):
        """Files that a server of files holds for its clients (test_filesystems.py) are waited for, but not when the mount is to end."""
        data = {"p": b"plain", "x.safetensors": safetensors([("w", "BF16", [3000], weights(3000))])}
        self.write("d/p", data["p"])
        self.write("x.safetensors", data["x.safetensors"])
        self.lmc("x.safetensors", "-o", "d/x.safetensors.lmc")
        paths = [self.path("d/p"), self.path("d/x.safetensors.lmc")]
        self.mount("d")
        for name in data:
            holder = Holder("F_WRLCK", 0.05, paths)
            self.assertEqual(self.seen(name), data[name])
            self.assertNotEqual(holder.end(), "")
        self.end()
        self.mount("d")
        for name, number in (("p", errno.EBUSY), ("x.safetensors", errno.EIO)):
            holder = Holder("F_WRLCK", 1000, paths)
            reader = subprocess.Popen([sys.executable, "-c", "import sys; open(sys.argv[1])", self.at + "/" + name], stderr=subprocess.PIPE)
            holder.wait()
            self.running.send_signal(signal.SIGINT)
            self.assertIn("[Errno %d]" % number, reader.communicate()[1].decode())
            self.assertEqual(self.running.wait(30), 0, self.log())
            holder.end()
            self.mount("d")
        self.end()

    def test_killed(self):
        """After a kill, reading fails and mount says what to do; then it works again."""
        self.mount("x.lmc")
        fd = os.open(self.at + "/x", os.O_RDONLY)
        self.running.kill()
        self.running.wait()
        self.running = None
        self.fails(errno.ENOTCONN, os.listdir, self.at)
        self.assertRaises(OSError, os.pread, fd, 10, 0)
        self.assertRaises(OSError, os.close, fd)
        self.lmc("mount", "x.lmc", "m", code=1, says="is a mount point whose program has ended: 'fusermount3 -u m'")
        unmount(self.at)
        self.mount("x.lmc")
        self.assertEqual(self.seen("x"), self.data)

    def test_unmount_in_use(self):
        self.mount("x.lmc")
        with open(self.at + "/x", "rb") as f:
            p = subprocess.run(["umount" if os.geteuid() == 0 else "fusermount3", *([] if os.geteuid() == 0 else ["-u"]), self.at], capture_output=True)
            self.assertNotEqual(p.returncode, 0)
            self.assertIn(b"busy", p.stderr)
            self.assertEqual(f.read(), self.data)
        self.end()

    def test_messages(self):
        os.mkdir(self.path("full"))
        self.write("full/file", b"")
        os.makedirs(self.path("s/inner"))
        for args, code, says in (
                (("none", "m"), 1, "none: cannot open it: No such file"), (("https://host/x.lmc", "m"), 1, "lmc reads no URLs"),
                (("x.lmc", "none"), 1, "none: does not exist; a mount point is an empty directory"), (("x.lmc", "x"), 1, "x: is not a directory"),
                (("x.lmc", "full"), 1, "full: is not empty"), (("s", "s/inner"), 1, "s/inner: lies within what is mounted"),
                (("x", "m"), 3, "x: "), (("/dev/null", "m"), 1, "neither"), (("x.lmc",), 2, "usage: lmc mount"), (("-", "m"), 2, "not standard input"),
                (("-r", "x.lmc", "m"), 2, "-r is"), (("-o", "x", "x.lmc", "m"), 2, "-o is not for 'lmc mount'"), (("--force", "x.lmc", "m"), 2, "not for 'lmc mount'"), (("--log",), 2, "--log needs")):
            with self.subTest(args):
                self.lmc("mount", *args, code=code, says=says)
                self.assertFalse(os.path.ismount(self.at))
        self.lmc("-t", "--allow-other", "x.lmc", code=2, says="--allow-other is for 'lmc mount'")
        self.lmc("mount", "--help", says="")
        # mounted already
        self.mount("x.lmc")
        self.lmc("mount", "x.lmc", "m", code=1, says="m: is not empty")

    def as_nobody(self, *args):
        nobody = pwd.getpwnam("nobody")
        return subprocess.run([shutil.which("setpriv") or "setpriv", "--reuid=%d" % nobody.pw_uid, "--regid=%d" % nobody.pw_gid, "--clear-groups", *args],
                              cwd=self.dir, capture_output=True)

    def test_users(self):
        """Only the user who mounts may look, but with --allow-other; and others than root may mount."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("only root can change users")
        if self.as_nobody(LMC, "--version").returncode != 0:
            self.skipTest("others may not run it here")
        self.mount("x.lmc")
        self.assertNotEqual(self.as_nobody("ls", self.at).returncode, 0)
        self.end()
        os.chmod(self.path("x"), 0o640)
        self.lmc("-q", "-f", "x")
        os.chmod(self.path("x.lmc"), 0o644)
        self.mount("--allow-other", "x.lmc")
        self.assertEqual(self.as_nobody("ls", self.at).stdout, b"x\n")
        self.assertNotEqual(self.as_nobody("cat", self.at + "/x").returncode, 0)  # its mode
        self.end()
        if not os.access("/dev/fuse", os.W_OK) or not os.stat("/dev/fuse").st_mode & 0o002 or not os.stat(shutil.which("fusermount3")).st_mode & stat.S_ISUID:
            self.assertIn(b"/dev/fuse" if not os.stat("/dev/fuse").st_mode & 0o002 else b"fuse", self.as_nobody(LMC, "mount", "x.lmc", "m").stderr)
            return
        os.chown(self.at, pwd.getpwnam("nobody").pw_uid, -1)
        p = self.as_nobody(LMC, "mount", "-q", "x.lmc", "m")
        self.assertEqual(p.returncode, 0, p.stderr)
        st = self.as_nobody("stat", "-c", "%U %s", "m/x")
        self.assertEqual(st.stdout.split(), [b"nobody", b"%d" % len(self.data)], st.stderr)
        self.assertEqual(self.as_nobody("cat", "m/x").stdout, self.data)
        self.assertEqual(self.as_nobody("fusermount3", "-u", "m").returncode, 0)


class Long(MountCase):
    def setUp(self):
        if not LONG:
            self.skipTest("--long")
        super().setUp()

    def venv(self, script, *args):
        if not os.path.exists(VENV):
            self.skipTest("torch and safetensors: build/python-venv, which tests/install makes, is not there")
        return self.run_program(VENV, "-c", script, *args)

    def test_pytorch(self):
        """safetensors and PyTorch, with their own maps; two processes at once."""
        make = """
import torch, sys
from safetensors.torch import save_file
torch.manual_seed(1)
t = {"a": torch.randn(1000, 900).bfloat16(), "b": torch.randn(77), "c": torch.arange(10)}
save_file(t, sys.argv[1] + "/d/m.safetensors")
torch.save(t, sys.argv[1] + "/d/m.pt")
"""
        os.mkdir(self.path("d"))
        self.venv(make, self.dir)
        self.lmc("d")
        self.mount("d.lmc")
        check = """
import torch, sys
from safetensors import safe_open
from safetensors.torch import load_file
d, m = sys.argv[1] + "/d/", sys.argv[1] + "/m/"
want = torch.load(d + "m.pt")
for got in (load_file(m + "m.safetensors"), torch.load(m + "m.pt"), torch.load(m + "m.pt", mmap=True)):
    assert sorted(got) == sorted(want) and all(torch.equal(got[k], want[k]) for k in want)
with safe_open(m + "m.safetensors", "pt") as f:
    assert all(torch.equal(f.get_tensor(k), want[k]) for k in f.keys())
    assert torch.equal(f.get_slice("a")[10:20, 5:], want["a"][10:20, 5:])
print("same")
"""
        found = []
        threads = [threading.Thread(target=lambda: found.append(self.venv(check, self.dir))) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [b"same\n"] * 2)

    def test_transformers(self):
        self.venv("")
        if subprocess.run([VENV, "-c", "import transformers"], capture_output=True).returncode != 0:
            self.skipTest("transformers is not in build/python-venv")
        make = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(1)
GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500)).save_pretrained(sys.argv[1] + "/d")
"""
        self.venv(make, self.dir)
        self.lmc("d")
        self.mount("d.lmc")
        check = """
import sys, torch
from transformers import GPT2LMHeadModel
a, b = (GPT2LMHeadModel.from_pretrained(sys.argv[1] + x).state_dict() for x in ("/d", "/m"))
assert sorted(a) == sorted(b) and all(torch.equal(a[k], b[k]) for k in a)
print("same")
"""
        self.assertTrue(self.venv(check, self.dir).endswith(b"same\n"))

    def test_gguf(self):
        """gguf's reader maps the file."""
        self.venv("")
        if subprocess.run([VENV, "-c", "import gguf"], capture_output=True).returncode != 0:
            self.skipTest("gguf is not in build/python-venv")
        make = """
import sys, numpy as np, gguf
w = gguf.GGUFWriter(sys.argv[1] + "/d/m.gguf", "llama")
for i in range(3):
    w.add_tensor("blk.%d.w" % i, (np.random.default_rng(i).standard_normal((300, 256)) * 0.02).astype(np.float16 if i else np.float32))
w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
"""
        os.mkdir(self.path("d"))
        self.venv(make, self.dir)
        self.lmc("d")
        self.mount("d.lmc")
        check = """
import sys, numpy as np, gguf
a, b = (gguf.GGUFReader(sys.argv[1] + x + "/m.gguf") for x in ("/d", "/m"))
assert len(a.tensors) == 3 and isinstance(b.data, np.memmap)
assert all(x.name == y.name and np.array_equal(x.data, y.data) for x, y in zip(a.tensors, b.tensors))
print("same")
"""
        self.assertTrue(self.venv(check, self.dir).endswith(b"same\n"))

    def test_series_meanwhile(self):
        """Readers of 'latest' while a series grows and is pruned: each reads one whole snapshot that was there."""
        rng, data, known, errors = random.Random(5), weights(500000), set(), []
        is_done = threading.Event()

        def step(i):
            content = safetensors([("w", "BF16", [len(data) // 2], data)], {"step": str(i)})
            known.add(hashlib.sha256(content).hexdigest())
            self.write("step-%d.safetensors" % i, content)
            self.lmc("series", "s", "add", "--every", "4", "step-%d.safetensors" % i)

        def read():
            n = 0
            while not is_done.is_set() or n == 0:
                try:
                    name = os.readlink(self.at + "/latest")
                    with open("%s/%s/%s.safetensors" % (self.at, name, name), "rb") as f:
                        if hashlib.sha256(f.read()).hexdigest() not in known:
                            errors.append("wrong bytes of " + name)
                    n += 1
                except OSError as e:
                    if e.errno != errno.ENOENT and e.errno != errno.ESTALE:
                        errors.append(repr(e))
        step(0)
        self.mount("s")
        readers = [threading.Thread(target=read) for _ in range(2)]
        for r in readers:
            r.start()
        for i in range(1, 25):
            data = changed(data, rng)
            step(i)
            if i % 5 == 4:
                self.lmc("series", "s", "prune", "-q", "-f", "--keep-last", "2")
                self.lmc("series", "s", "gc", "-q", says="")
        is_done.set()
        for r in readers:
            r.join()
        self.assertEqual(errors, [], self.log())
        self.assertEqual(sorted(os.listdir(self.at)), ["latest", "step-23", "step-24"])

    def test_many_files(self):
        for i in range(20000):
            self.write("d/%s%05d" % ("sub/" if i % 2 else "", i), b"%d" % i)
        self.lmc("d")
        self.mount("d.lmc")
        start = time.time()
        self.assertEqual(len(self.run_program("find", "m").splitlines()), 20002)
        found = time.time() - start
        start = time.time()
        self.run_program("ls", "-lR", "m")
        print("20,000 files: find %.2f s, ls -lR %.2f s" % (found, time.time() - start))
        self.run_program("diff", "-r", "m", "d")
        with open("/proc/%d/status" % self.running.pid) as f:
            peak = int(f.read().split("VmHWM:")[1].split()[0])
        print("memory of the process: %d MB" % (peak // 1024))

    def test_large(self):
        """A gigabyte in one tensor: rates, memory. On tmpfs if there is room."""
        room = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 3 << 30 else None
        if not room:
            self.skipTest("no room")
        with tempfile_dir() as d:
            big = os.path.join(room, os.path.basename(d))
            os.mkdir(big)
            try:
                self.read_large(big)
            finally:
                shutil.rmtree(big)

    def read_large(self, big):
        n = 1 << 29
        with open(big + "/x", "wb") as f:
            f.write(safetensors([("w", "BF16", [1], b"\0\0")])[:8])
            f.seek(0)
            head = b'{"w":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}' % (n, 2 * n)
            head += b" " * (-len(head) % 8)
            f.write(len(head).to_bytes(8, "little") + head)
            piece = weights(1 << 22)
            for i in range(2 * n // len(piece)):
                f.write(piece[i * 2000:] + piece[:i * 2000])
        self.lmc("-q", big + "/x")

        def rate(path):
            start, total = time.time(), 0
            with open(path, "rb", buffering=0) as f:
                block = bytearray(MB)
                while True:
                    got = f.readinto(block)
                    if not got:
                        return total / (time.time() - start) / 1e9
                    total += got
        plain = rate(big + "/x")
        start = time.time()
        self.lmc("cat", "-q", "-o", "/dev/null", "-f", big + "/x.lmc", "w")
        own = time.time() - start
        self.mount(big + "/x.lmc")
        start = time.time()
        first, again = rate(self.at + "/x"), rate(self.at + "/x")
        print("1 GB: plain file on tmpfs %.2f GB/s, by mount %.2f, cached %.2f; lmc cat %.2f s" % (plain, first, again, own))
        self.assertTrue(filecmp.cmp(self.at + "/x", big + "/x", shallow=False))
        with open("/proc/%d/status" % self.running.pid) as f:
            peak = int(f.read().split("VmHWM:")[1].split()[0])
        print("memory of the process: %d MB" % (peak // 1024))
        if not SANITIZED:
            self.assertLess(peak, 300 * 1024)


if __name__ == "__main__":
    sys.exit(main())
