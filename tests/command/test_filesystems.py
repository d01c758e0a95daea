#!/usr/bin/env python3
"""File systems that are not a local disk: they refuse calls, and keep a file that is removed while it is open.

Usage: test_filesystems.py [--brief|--long] [-v] [NAME...]      as case.py says

Table: each verb meets each call that fails in each way, by a preload (faults.c). Every cell either works, and the content is right, or
ends with a message; nothing is lost, and nothing temporary is left. Without --long, one in several cells is done, others in each verb.
The others: real mounts. Needs Linux, glibc, a C compiler; what they need more, they name. SPDX-License-Identifier: MIT
"""
import errno
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from case import BRIEF, LMC, LONG, ROOT, Case, bf16, compile_to, f32, main, moved, safetensors, take_signals  # noqa: F401

OUT = os.path.join(ROOT, "build", "tests", "filesystems")
FAULTS, REFUSING = os.path.join(OUT, "faults.so"), os.path.join(OUT, "refusing")
IS_BRIEF = "--brief" in sys.argv
HIDDEN = re.compile(r"^\.(lmc-|fuse_hidden|nfs)")
RESULTS = {"works": 0, "ends with a message": 0}


def compile_tools():
    assert compile_to(FAULTS, "-O1", "-w", "-fPIC", "-shared", os.path.join(ROOT, "tests", "command", "faults.c"), "-ldl", "-lpthread")


# ---- data ----


def model(step, n=3000):
    a = bytearray(bf16(n, 1))
    for i in range(0, n, 7):
        a[2 * i] ^= step
    return safetensors([("a", "BF16", [n], bytes(a)), ("b", "F32", [50], f32(50, step))], {"step": "%04d" % step})


def state(root):
    """{path: content}; a link's text; hard links count as files."""
    found = {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files:
            full = os.path.join(base, name)
            path = os.path.relpath(full, root)
            if os.path.islink(full):
                found[path] = "-> " + os.readlink(full)
            elif os.path.isdir(full):
                found[path] = None
            else:
                with open(full, "rb") as f:
                    found[path] = f.read()
    return found


class Data:
    """What all verbs work with, made once on an ordinary disk: trees run-1 to run-3, their snapshots, deltas and a series of them."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="lmc-filesystems-")
        for k in (1, 2, 3):
            tree = self.path("run-%d" % k)
            os.makedirs(tree + "/sub/empty")
            for path, data in (("model.safetensors", model(k)), ("sub/g", b"%d" % k * 1000), ("sub/h", b"same")):
                with open(os.path.join(tree, path), "wb") as f:
                    f.write(data)
            os.link(tree + "/sub/h", tree + "/sub/linked")
            if k == 3:  # another layout
                os.rename(tree + "/sub/g", tree + "/moved")
        shutil.copytree(self.path("run-1"), self.path("linked"))
        os.symlink("sub/g", self.path("linked/link"))
        os.makedirs(self.path("many"))
        for i in range(300):
            with open(self.path("many/%d" % i), "w") as f:
                f.write(str(i))
        for args in (["run-1"], ["many"], ["linked"], ["run-1/model.safetensors", "-o", "f.lmc"], ["--base", "run-1", "-o", "2.lmc", "run-2"],
                     ["--base", "run-2", "-o", "23.lmc", "run-3"], ["--base", "run-1", "-o", "3.lmc", "run-3"], ["series", "s", "add", "run-1"],
                     ["series", "s", "add", "run-2"]):
            self.run(*args)

    def run(self, *args):
        subprocess.run([LMC, "-q", *args], cwd=self.dir, check=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def remove(self):
        shutil.rmtree(self.dir)


def restored(data, name):
    """A snapshot holds this tree or file."""
    def check(place):
        target = tempfile.mkdtemp(prefix="lmc-filesystems-") + "/x"
        try:
            subprocess.run([LMC, "-q", "-d", "-o", target, os.path.join(place, "o.lmc"), "--base", data.path("run-1")], check=True, stderr=subprocess.DEVNULL)
            return same(target, data.path(name))
        finally:
            shutil.rmtree(os.path.dirname(target))
    return check


def same(a, b):
    if os.path.isdir(b):
        return os.path.isdir(a) and state(a) == state(b)
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


class Verb:
    """args: of the command, in which {in} is the directory of the data and {w} the place, in which the copies stand. check(place): the result is
    right. sources: of the copies, what --rm removes."""

    def __init__(self, args, check, copies=(), sources=()):
        self.args, self.check, self.copies, self.sources = args.split(), check, copies, sources

    def is_done(self, place):
        try:
            return self.check(place)
        except (OSError, subprocess.SubprocessError):
            return False


def make_verbs(data):
    def tree(path, name):
        return lambda place: same(os.path.join(place, path), data.path(name))

    def in_series(name):
        def check(place):
            target = tempfile.mkdtemp(prefix="lmc-filesystems-") + "/x"
            try:
                subprocess.run([LMC, "-q", "series", place + "/s", "restore", "-o", target, name], check=True, stderr=subprocess.DEVNULL)
                return same(target, data.path(name))
            finally:
                shutil.rmtree(os.path.dirname(target))
        return check
    part = lambda place: same(place + "/part/sub/g", data.path("run-1/sub/g"))
    return {
        "compress a file": Verb("-o {w}/o.lmc {in}/run-1/model.safetensors", restored(data, "run-1/model.safetensors")),
        "compress a directory": Verb("-o {w}/o.lmc {in}/run-1", restored(data, "run-1")),
        "compress over a file": Verb("-f -o {w}/o.lmc {in}/run-2", restored(data, "run-2"), [("run-1.lmc", "o.lmc")]),
        "-d of a file": Verb("-d -o {w}/m {in}/f.lmc", tree("m", "run-1/model.safetensors")),
        "-d of a directory": Verb("-d -o {w}/run {in}/run-1.lmc", tree("run", "run-1")),
        "-d of many files": Verb("-d -o {w}/run {in}/many.lmc", tree("run", "many")),
        "-d of links": Verb("-d -o {w}/run {in}/linked.lmc", tree("run", "linked")),
        "-d over a directory": Verb("-d -f -o {w}/run {in}/run-1.lmc", tree("run", "run-1"), [("run-1", "run")]),
        "-d of a part": Verb("-d -o {w}/part/ {in}/run-1.lmc sub/g", part),
        "-d of a part into a directory": Verb("-d -o {w}/part/ {in}/run-1.lmc sub/*", part, [("many", "part")]),
        "salvage": Verb("salvage -o {w}/saved {in}/run-1.lmc", tree("saved/whole", "run-1")),
        "series add": Verb("series {w}/s add {in}/run-2", in_series("run-2")),
        "series add again": Verb("series {w}/s add {in}/run-3", in_series("run-3"), [("s", "s")]),
        "series restore": Verb("series {w}/s restore -o {w}/run run-2", tree("run", "run-2"), [("s", "s")]),
        "series prune, gc": Verb("series {w}/s prune run-1", in_series("run-2"), [("s", "s")]),
        "apply": Verb("apply {in}/2.lmc {w}/run", tree("run", "run-2"), [("run-1", "run")]),
        "apply of another layout": Verb("apply {in}/3.lmc {w}/run", tree("run", "run-3"), [("run-1", "run")]),
        "rebase": Verb("rebase --base {in}/run-1 --onto none {in}/2.lmc -o {w}/o.lmc", restored(data, "run-2")),
        "fold": Verb("fold --base {in}/run-1 {in}/2.lmc {in}/23.lmc -o {w}/o.lmc", restored(data, "run-3")),
        "--rm of a file": Verb("--rm -o {w}/o.lmc {w}/m", restored(data, "run-1/model.safetensors"), [("run-1/model.safetensors", "m")], ["m"]),
        "--rm of a directory": Verb("--rm -o {w}/o.lmc {w}/run", restored(data, "run-1"), [("run-1", "run")], ["run"]),
        "-d --rm": Verb("-d --rm -o {w}/run {w}/x.lmc", tree("run", "run-1"), [("run-1.lmc", "x.lmc")], ["x.lmc"]),
        "series add --rm": Verb("series {w}/s add --rm {w}/run-3", in_series("run-3"), [("s", "s"), ("run-3", "run-3")], ["run-3"]),
        "series watch --rm": Verb("series {w}/s watch --once --settle 0 --rm {w}/new", in_series("run-3"), [("s", "s"), ("run-3", "new/run-3")], ["new/run-3"]),
    }


# ---- what a call may fail with ----

LACKS = [errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP]
FAILS = [errno.EIO, errno.ENOSPC]
#: words of FAULTS_REFUSE: (by which a file system refuses it, errors)
CALLS = {
    "fsync": (LACKS, FAILS + [errno.EDQUOT, errno.EROFS]),
    "fsyncdir": (LACKS + [errno.EACCES, errno.ENOENT, errno.EBADF, errno.EISDIR, errno.EROFS], FAILS),
    "fdatasync": (LACKS, FAILS),
    "syncfs": (LACKS, FAILS),
    "chmod": (LACKS + [errno.EACCES], FAILS),
    "fchmod": (LACKS + [errno.EACCES], FAILS),
    "fchmodat": (LACKS + [errno.EACCES], FAILS),
    "fchown": (LACKS + [errno.EACCES], FAILS),
    "futimens": (LACKS + [errno.EACCES], FAILS),
    "utimensat": (LACKS + [errno.EACCES], FAILS),
    "flock": ([errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EIO], []),
    "lock": ([errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EIO], []),
    "link": (LACKS + [errno.EACCES, errno.EMLINK, errno.EXDEV], FAILS),
    "symlink": ([], LACKS + FAILS),
    "renameat2": (LACKS, FAILS),
}
SYNCS = ("fsync", "fsyncdir", "fdatasync", "syncfs")


class Place(Case):
    """A directory with what a verb needs, on any file system."""

    data = None

    @classmethod
    def setUpClass(cls):
        cls.use_data()

    @classmethod
    def use_data(cls):
        if Place.data is None:
            compile_tools()
            Place.data = Data()
            Place.verbs = make_verbs(Place.data)

    def setUp(self):
        self.use_data()
        super().setUp()

    def fill(self, verb, place):
        for name in os.listdir(place):
            full = os.path.join(place, name)
            shutil.rmtree(full) if os.path.isdir(full) and not os.path.islink(full) else os.unlink(full)
        for name, to in verb.copies:
            source, target = self.data.path(name), os.path.join(place, to)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy(source, target)

    def run_verb(self, verb, place, **environment):
        args = [x.replace("{in}", self.data.dir).replace("{w}", place) for x in verb.args]
        p = subprocess.run([LMC, "-q", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env={**os.environ, **environment})
        return p.returncode, p.stderr.decode()

    def check_cell(self, verb, place, what, code, text, refused):
        """refused: the file system lacks the call, else the call fails. A sync that was refused keeps the source of --rm."""
        is_kept = verb.sources and all(os.path.exists(os.path.join(place, x)) for x in verb.sources)
        self.assertIn(code, (0, 1), (what, code, text))
        if code == 0:
            self.assertTrue(verb.check(place), what)
            if verb.sources:
                self.assertFalse(is_kept, what)
        else:
            self.assertRegex(text, r"\Almc: [^\n]+\n", what)
            if refused is not None and refused:
                self.assertTrue(verb.sources and is_kept and "maybe not on the disk" in text, (what, text))
                self.assertTrue(verb.check(place), what)
        if verb.sources and code and not verb.is_done(place):
            for name, to in verb.copies:
                if to in verb.sources:
                    self.assertTrue(same(os.path.join(place, to), self.data.path(name)), (what, text))
        left = [os.path.join(b, n) for b, d, f in os.walk(place) for n in d + f if HIDDEN.match(n)]
        self.assertEqual(left, [], (what, text))
        RESULTS["works" if code == 0 else "ends with a message"] += 1


class Table(Place):
    every = 1 if LONG else 23 if IS_BRIEF else 5

    def cells(self):
        n = 0
        for v, verb in enumerate(self.verbs):
            for call, (lacks, fails) in CALLS.items():
                for number in lacks + fails:
                    n += 1
                    if (n + v) % self.every == 0:
                        yield verb, call, number, number in lacks

    def test_each_verb_with_each_call(self):
        for name, call, number, refused in self.cells():
            verb = self.verbs[name]
            self.fill(verb, self.dir)
            code, text = self.run_verb(verb, self.dir, LD_PRELOAD=FAULTS, FAULTS_REFUSE="%s=%d" % (call, number))
            what = "%s: %s %s" % (name, call, errno.errorcode[number])
            with self.subTest(what):
                self.check(name, call, number, refused, what, code, text)

    def check(self, name, call, number, refused, what, code, text):
        verb = self.verbs[name]
        if refused and (call not in SYNCS or not verb.sources):
            self.assertEqual(code, 0, (what, text))
        if call == "symlink" and name == "-d of links":
            self.assertEqual(code, 1, what)
            if number in LACKS:
                self.assertIn("lmc -d --dereference -o DIR/ ", text)
        self.check_cell(verb, self.dir, what, code, text, refused)

    def test_sync_that_fails(self):
        """EIO of a sync is never forgiven."""
        for name, verb in self.verbs.items():
            self.fill(verb, self.dir)
            code, text = self.run_verb(verb, self.dir, LD_PRELOAD=FAULTS, FAULTS_REFUSE="fsync=5 fsyncdir=5 fdatasync=5 syncfs=5")
            self.assertEqual(code, 1, name)
            self.assertIn("Input/output error", text, name)
            self.check_cell(verb, self.dir, name, code, text, None)


    def test_sync_that_only_the_source_refuses(self):
        """The output is on another file system, which syncs. A directory is removed in several steps, so it stays; a file goes in one."""
        os.mkdir(self.path("out"))
        os.mkdir(self.path("in"))
        shutil.copytree(self.data.path("run-1"), self.path("in/run"))
        shutil.copy(self.data.path("run-1/model.safetensors"), self.path("in/f"))
        refused = {**os.environ, "LD_PRELOAD": FAULTS, "FAULTS_REFUSE": "fsyncdir=22", "FAULTS_DIRECTORY": self.path("in")}

        def call(*args):
            p = subprocess.run([LMC, *args], cwd=self.dir, capture_output=True, text=True, env=refused)
            return p.returncode, p.stderr

        for args in (("--rm", "-o", "out/run.lmc", "in/run"), ("series", "out/s", "add", "--rm", "in/run")):
            code, text = call(*args)
            self.assertEqual(code, 1, text)
            self.assertRegex(text, r"in/run: is not removed, as its file system refuses to sync it \(Invalid argument\)[^\n]*\n\Z")
            self.assertTrue(same(self.path("in/run"), self.data.path("run-1")))
            self.assertEqual(sorted(os.listdir(self.path("in"))), ["f", "run"])
        self.assertEqual(call("--rm", "-o", "out/f.lmc", "in/f")[0], 0)
        self.assertEqual(os.listdir(self.path("in")), ["run"])

    def test_sync_that_is_refused_again(self):
        """What --rm could not sync, it cannot sync the next time, either: the source stays."""
        for name, verb in self.verbs.items():
            if not verb.sources:
                continue
            self.fill(verb, self.dir)
            for again in range(2):
                code, text = self.run_verb(verb, self.dir, LD_PRELOAD=FAULTS, FAULTS_REFUSE="fsync=22 fsyncdir=22 fdatasync=22 syncfs=22")
                with self.subTest("%s, %d" % (name, again)):
                    self.assertEqual(code, 1)
                    self.check_cell(verb, self.dir, name, code, text, None if again else True)


# ---- leases ----

#: As a server of files: holds leases of a kind on files, gives each up so many seconds after it is asked to, which it prints, and takes it again
#: as many seconds later, as soon as nobody has the file open. It ends when standard input does.
HOLDER = """
import fcntl, os, select, signal, sys, time
kind, delay, paths = getattr(fcntl, sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
held, ends = {}, {}
def take(path):
    try:
        held[path] = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        fcntl.fcntl(held[path], fcntl.F_SETLEASE, kind)
        return True
    except OSError:  # it is open, or another one's, or gone
        if path in held:
            os.close(held.pop(path))
        return False
if not all([take(path) for path in paths]):
    sys.exit("no lease")
print("ready", flush=True)
while not select.select([0], [], [], 0)[0]:
    signal.sigtimedwait([signal.SIGIO], 0.01)
    for path in paths:
        is_held, t = path in held, time.monotonic()
        if is_held and path not in ends and fcntl.fcntl(held[path], fcntl.F_GETLEASE) != kind:
            ends[path] = t + delay
            print(path, flush=True)
        elif path in ends and t >= ends[path]:
            if is_held:
                fcntl.fcntl(held[path], fcntl.F_SETLEASE, fcntl.F_UNLCK)
                os.close(held.pop(path))
                ends[path] = t + delay
            elif take(path):
                del ends[path]
"""


class Holder:
    def __init__(self, kind, delay, paths):
        self.p = subprocess.Popen([sys.executable, "-c", HOLDER, kind, str(delay), *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True)
        if self.p.stdout.readline() != "ready\n":
            why = self.end()
            raise unittest.SkipTest("no leases on this file system" if "no lease" in why else why)

    def wait(self):
        """Until somebody is waiting for a lease: its path."""
        return self.p.stdout.readline()[:-1]

    def end(self):
        return "".join(self.p.communicate())


def files_of(place):
    """Files that may be leased: of two names of a file only one."""
    found = {}
    for base, dirs, files in os.walk(place):
        for path in (os.path.join(base, name) for name in files if "/many" not in base):
            if not os.path.islink(path):
                found[os.stat(path).st_ino] = path
    return list(found.values())


class Leases(Place):
    """Samba and NFS servers hold leases (fcntl(2), F_SETLEASE) for their clients. Opening such a file with O_NONBLOCK, by which no FIFO is waited for,
    failed at once."""

    def setUp(self):
        super().setUp()
        self.place = self.path("place")
        os.mkdir(self.place)
        self.inputs = files_of(self.data.dir)
        self.readers = {name: Verb(args, lambda place: True, copies) for name, args, copies in (
            ("-t of a delta", "-t --base {in}/run-1 {in}/2.lmc", ()),
            ("-l", "-l {in}/2.lmc", ()),
            ("cat", "cat {in}/f.lmc a", ()),
            ("verify", "verify {in}/2.lmc --base {in}/run-1", ()),
            ("diff", "diff {in}/run-1 {in}/run-2", ()),
            ("stats", "stats {in}/run-1 {in}/run-1.lmc", ()),
            ("series list", "series {in}/s list", ()),
            ("series verify", "series {in}/s verify", ()),
            ("-d to a pipe", "-dc {in}/f.lmc", ()),
            ("compress to a pipe", "-c {in}/run-1/model.safetensors", ()),
            ("compress many", "-r {w}/run", [("run-1", "run")]),
            ("-d over a file", "-d -f -o {w}/m {in}/f.lmc", [("run-2/model.safetensors", "m")]),
            ("compress against a file", "--base {in}/run-1/model.safetensors -o {w}/o.lmc {in}/run-2/model.safetensors", ()),
            ("compress against a snapshot", "--base {in}/run-1.lmc -o {w}/o.lmc {in}/run-2", ()),
            ("quantise", "--quant *=bits:8 -o {w}/o.lmc {in}/run-1", ()),
            ("series rebuild", "series {w}/s rebuild", [("s", "s")]),
        )}

    def under_leases(self, kind, names):
        for name, verb in {**self.verbs, **self.readers}.items():
            if "many" in name or (names and name not in names):
                continue
            self.fill(verb, self.place)
            holder = Holder(kind, 0.2 if IS_BRIEF else 0.05, self.inputs + files_of(self.place))
            try:
                code, text = self.run_verb(verb, self.place)
            finally:
                asked = holder.end()
            with self.subTest(name):
                self.assertEqual(code, 0, text)
                if kind == "F_WRLCK" or name in ("apply", "series add again", "series restore"):
                    self.assertNotEqual(asked, "", name)
                self.assertTrue(verb.check(self.place))

    def test_that_forbid_to_read(self):
        self.under_leases("F_WRLCK", None if not IS_BRIEF else ("compress a directory", "apply", "series add again"))

    def test_that_forbid_to_write(self):
        self.under_leases("F_RDLCK", None if LONG else ("apply", "apply of another layout", "series add again", "series restore", "series prune, gc"))

    def test_that_are_not_given_up(self):
        """After a minute, which takes no time here, there is a message. A file that may be a FIFO, as it is named, is opened without O_NONBLOCK."""
        named = {"compress a file", "-d of a file", "-d of many files", "-d of links", "-d to a pipe", "compress to a pipe", "-d over a file"}
        for name, verb in {**self.verbs, **self.readers}.items():
            self.fill(verb, self.dir)
            code, text = self.run_verb(verb, self.dir, LD_PRELOAD=FAULTS, FAULTS_REFUSE="leased=%d" % errno.EWOULDBLOCK)
            with self.subTest(name):
                if name in named:
                    self.assertEqual(code, 0, text)
                    continue
                self.assertIn(code, (1, 4), (name, text))
                self.assertRegex(text, r"\Almc: [^:\n]+: [^\n]*: another program holds a lease on it, and does not give it up\n")
                for to in verb.sources:
                    self.assertTrue(os.path.exists(os.path.join(self.dir, to)))

    def test_signals(self):
        path = self.data.path("run-1/model.safetensors")
        for number in (signal.SIGINT, signal.SIGTERM):
            for name in ("run-1", "run-1/model.safetensors"):
                holder = Holder("F_WRLCK", 1000, [path])
                p = subprocess.Popen([LMC, "-q", "-o", self.path("o.lmc"), self.data.path(name)], stderr=subprocess.PIPE, preexec_fn=take_signals)
                self.assertEqual(holder.wait(), path)
                p.send_signal(number)
                self.assertEqual((p.communicate()[1], p.returncode), (b"", -number))
                holder.end()


# ---- real mounts ----


def is_there(program):
    return shutil.which(program) is not None


class Listed(Case):
    def test_each_directory_once(self):
        """Two links in each of 12 directories are 2^12 ways to the last one, and the system is asked about each directory twice:
        at its name, and for the first link to it."""
        for i in range(13):
            os.makedirs(self.path("t/d%02d" % i))
            for name in "ab" if i < 12 else "":
                os.symlink("../d%02d" % (i + 1), self.path("t/d%02d/%s" % (i, name)))
        self.write("t/d12/f", b"x")
        compile_tools()
        p = subprocess.run([LMC, "--dereference", "--max-files", "8000", "-o", "t.lmc", "t"], cwd=self.dir, stderr=subprocess.PIPE,
                           env={**os.environ, "LD_PRELOAD": FAULTS, "FAULTS_LOG": self.path("log")})
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertIn(b"holds more than 8000 files and directories", p.stderr)
        self.assertIn(self.read("log").count(b" opendir "), range(13, 27))


    def test_calls_for_each_restored_file(self):
        """Writing it, mode and time; only a hole at the end needs ftruncate(), which was called for each file."""
        for i in range(40):
            self.write("t/%02d" % i, b"%02d" % i * 50)
        self.write("t/hole", b"x" + bytes((1 << 20) - 1))
        self.lmc("t")
        compile_tools()
        p = subprocess.run([LMC, "-d", "-q", "-o", "u", "t.lmc"], cwd=self.dir, env={**os.environ, "LD_PRELOAD": FAULTS, "FAULTS_LOG": self.path("log")})
        self.assertEqual(p.returncode, 0)
        self.assertEqual({name: self.read("t/" + name) for name in os.listdir(self.path("t"))}, {name: self.read("u/" + name) for name in os.listdir(self.path("u"))})
        counts = [self.read("log").count(b" %s " % call) for call in (b"pwrite", b"fchmod", b"futimens", b"ftruncate")]
        self.assertTrue(all(41 <= n < 60 for n in counts[:3]) and counts[3] == 1, counts)


class Mounted(Place):
    """self.mnt is a file system of another kind, in which `run` is restored from standard input: it ends early, so lmc waits with a file open."""

    def setUp(self):
        super().setUp()
        self.ends = []
        for name in ("real", "mnt", "lower"):
            os.mkdir(self.path(name))
        self.mnt = self.path("mnt")

    def tearDown(self):
        for end in reversed(self.ends):
            end()
        super().tearDown()

    def mount(self, *command, unmount=("umount",), **more):
        """Mounts mnt, or skips the test: in a container this may not be allowed."""
        if os.geteuid():
            self.skipTest("only root can mount a file system")
        if command[0] != "mount" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("no /dev/fuse, so FUSE cannot mount a file system")
        p = subprocess.run(command, capture_output=True, **more)
        if p.returncode or not os.path.ismount(self.mnt):
            print(p.stderr.decode()[-300:])
            self.skipTest("%s cannot mount a file system" % os.path.basename(command[0]))
        self.ends.append(lambda: subprocess.run([*unmount, self.mnt], check=True))

    def mount_bindfs(self):
        if not is_there("bindfs"):
            self.skipTest("bindfs is not installed")
        self.mount("bindfs", self.path("real"), self.mnt)

    def mount_sshfs(self):
        """Its server needs no ssh: it speaks through a socket."""
        server = "/usr/lib/openssh/sftp-server"
        if not is_there("sshfs") or not os.access(server, os.X_OK):
            self.skipTest("sshfs or sftp-server is not installed")
        if os.geteuid():
            self.skipTest("only root can mount a file system")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("no /dev/fuse, so FUSE cannot mount a file system")
        ours, theirs = socket.socketpair()
        processes = [subprocess.Popen([server], stdin=theirs, stdout=theirs),
                     subprocess.Popen(["sshfs", "-f", "-o", "passive", ":" + self.path("real"), self.mnt], stdin=ours, stdout=ours, stderr=subprocess.PIPE)]
        ours.close()
        theirs.close()
        for _ in range(600):
            if os.path.ismount(self.mnt) or processes[1].poll() is not None:
                break
            time.sleep(0.05)

        def end():
            subprocess.run(["umount", self.mnt], check=True)
            for p in reversed(processes):
                p.wait()
        if not os.path.ismount(self.mnt):
            for p in processes:
                p.kill()
                p.wait()
            self.skipTest("sshfs cannot mount a file system")
        processes[1].stderr.close()
        self.ends.append(end)

    def mount_refusing(self, rules=""):
        self.rule(rules)
        if not os.path.exists(REFUSING):
            flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
            if flags.returncode:
                self.skipTest("libfuse3-dev is not installed")
            assert compile_to(REFUSING, "-O1", "-w", os.path.join(ROOT, "tests", "command", "refusing.c"), *flags.stdout.split())
        self.mount(REFUSING, self.path("real"), self.path("rules"), self.mnt, "-s")

    def rule(self, rules):
        with open(self.path("rules"), "w") as f:
            f.write(rules)

    KINDS = {"bindfs": mount_bindfs, "sshfs": mount_sshfs, "fuse": mount_refusing, "nfs": lambda self: self.mount_refusing("nfs=1")}

    def begin(self, *args, data=None):
        """Starts lmc with the first three quarters of a snapshot on its standard input, and waits until a file is being restored."""
        packed = data or self.big()
        p = subprocess.Popen([LMC, "-q", *args], cwd=self.mnt, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=take_signals)
        p.stdin.write(packed[:len(packed) * 3 // 4])
        p.stdin.flush()
        for _ in range(1200):
            if any(f == "w.bin" for _, _, files in os.walk(self.path("real")) for f in files):
                return p
            self.assertIsNone(p.poll(), "it has ended")
            time.sleep(0.05)
        raise AssertionError("nothing is restored")

    def big(self):
        if not hasattr(Mounted, "packed"):
            os.makedirs(self.path("big/deep"))
            self.write("big/deep/a.bin", os.urandom(100_000))
            self.write("big/deep/w.bin", os.urandom(3_000_000))
            subprocess.run([LMC, "-q", "big"], cwd=self.dir, check=True)
            Mounted.packed = self.read("big.lmc")
        return Mounted.packed

    def end(self, p):
        stuck = threading.Timer(120, p.kill)  # a command that does not end fails the test
        stuck.start()
        try:
            text = p.stderr.read().decode()
            code = p.wait()
        finally:
            stuck.cancel()
            p.kill()
            p.stdin.close()
            p.stderr.close()
        return code, text

    def left(self):
        return sorted(os.path.relpath(os.path.join(b, f), self.path("real")) for b, d, fs in os.walk(self.path("real")) for f in d + fs)

    def check_verbs(self):
        for name, verb in self.verbs.items():
            self.fill(verb, self.mnt)
            code, text = self.run_verb(verb, self.mnt)
            with self.subTest(name):
                self.assertEqual(code, 0, text)
                self.check_cell(verb, self.mnt, name, code, text, None)


class Signals(Mounted):
    """A file that is removed while it is open gets another name, on FUSE and NFS. A signal, or an error, was followed by removing that for ever."""

    def check(self, kind):
        self.KINDS[kind](self)
        for number in (signal.SIGINT, signal.SIGTERM):
            p = self.begin("-d", "-o", "out")
            p.send_signal(number)
            self.assertEqual(self.end(p), (-number, ""))
            self.assertEqual(self.left(), [])
        p = self.begin("-d", "-o", "out")  # an error
        p.stdin.close()
        code, text = self.end(p)
        self.assertIn(code, (1, 3))
        self.assertNotIn("cannot be removed", text)
        self.assertEqual(self.left(), [])
        p = self.begin("-d", "-o", "out")
        p.send_signal(signal.SIGTERM)
        p.send_signal(signal.SIGTERM)
        code, text = self.end(p)
        self.assertEqual(code, -signal.SIGTERM)
        if self.left():
            self.assertIn("is left there", text)

    def test_bindfs(self):
        self.check("bindfs")

    def test_sshfs(self):
        self.check("sshfs")

    def test_fuse(self):
        self.check("fuse")

    def test_nfs(self):
        self.check("nfs")

    def test_what_cannot_be_removed_is_named(self):
        """And a second signal ends lmc even then."""
        self.mount_refusing()
        p = self.begin("-d", "-o", "out")
        self.rule("unlink=13 rmdir=13")
        p.send_signal(signal.SIGTERM)
        code, text = self.end(p)
        self.assertEqual(code, -signal.SIGTERM)
        self.assertRegex(text, r"\Almc: \./\.lmc-\w{6}: cannot be removed: Permission denied\n\Z")
        self.rule("")
        for name in self.left():
            if "/" not in name:
                shutil.rmtree(self.path("real/" + name))

    def test_twins(self):
        """A file that is read again for others is open while an error is met."""
        self.mount_refusing("write=5")
        for args in (["-d", "-o", "run", self.data.path("run-1.lmc")], ["salvage", "-o", "run", self.data.path("run-1.lmc")]):
            p = subprocess.run([LMC, "-q", *args], cwd=self.mnt, capture_output=True, timeout=60)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertEqual(self.left(), [])


class Kinds(Mounted):
    """All verbs on other file systems."""

    def test_bindfs(self):
        self.mount_bindfs()
        self.check_verbs()

    def test_sshfs(self):
        self.mount_sshfs()
        self.check_verbs()

    def test_fuse(self):
        self.mount_refusing()
        self.check_verbs()

    def test_fuse_that_refuses(self):
        """All at once, with and without syncs; with --long also one after another."""
        self.mount_refusing()
        sure = ("chmod", "chown", "utimens", "flock", "lock", "link", "rename2")
        rules = ["%s=%d" % (call, number) for call in (*sure, "fsync", "fsyncdir")
                 for number in (errno.EOPNOTSUPP, errno.ENOLCK if call in ("flock", "lock") else errno.EPERM)]
        both = [" ".join("%s=%d" % (call, errno.EOPNOTSUPP) for call in calls) for calls in (sure, (*sure, "fsync", "fsyncdir"))]
        for rule in both + rules if LONG else both:
            self.rule(rule)
            for name, verb in self.verbs.items():
                self.rule("")
                self.fill(verb, self.mnt)
                self.rule(rule)
                code, text = self.run_verb(verb, self.mnt)
                self.rule("")
                refuses_sync = "sync" in rule
                with self.subTest("%s: %s" % (name, rule)):
                    if not (refuses_sync and verb.sources):
                        self.assertEqual(code, 0, text)
                    self.check_cell(verb, self.mnt, name, code, text, refuses_sync or None)

    def test_overlay(self):
        """A directory of a lower layer cannot be renamed. All that stands in the place comes from there."""
        for name, verb in self.verbs.items():
            self.fill(verb, self.path("lower"))
            tmp = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)  # layers on two file systems, as in a container
            try:
                for part in ("upper", "work"):
                    os.mkdir(os.path.join(tmp, part))
                self.mount("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s/upper,workdir=%s/work" % (self.path("lower"), tmp, tmp), self.mnt)
                code, text = self.run_verb(verb, self.mnt)
                with self.subTest(name):
                    if name in ("-d over a directory", "apply of another layout"):
                        self.assertEqual(code, 1, name)
                        self.assertIn("is of a lower layer of an overlay", text)
                        self.assertTrue(same(self.mnt + "/run", self.data.path("run-1")))
                    else:
                        self.assertEqual(code, 0, text)
                    self.check_cell(verb, self.mnt, name, code, text, None)
            finally:
                if self.ends:
                    self.ends.pop()()
                shutil.rmtree(tmp)

    def test_without_inodes(self):
        """Space is left, but no file can be made: the message does not send users to look for space alone."""
        self.mount("mount", "-t", "tmpfs", "-o", "nr_inodes=12,size=20m", "tmpfs", self.mnt)
        for name in ("-d of many files", "-d of a part into a directory", "salvage", "compress a directory"):
            verb = self.verbs[name]
            for f in os.listdir(self.mnt):
                os.unlink(os.path.join(self.mnt, f))
            if name == "-d of a part into a directory":
                continue
            fillers = 11 if name != "-d of many files" else 0
            for i in range(fillers):
                open(os.path.join(self.mnt, str(i)), "w").close()
            code, text = self.run_verb(verb, self.mnt)
            with self.subTest(name):
                self.assertEqual(code, 1)
                self.assertIn("df -i", text)
                self.assertEqual([f for f in os.listdir(self.mnt) if not f.isdigit()], [])


def table_end():
    if sum(RESULTS.values()):
        print("cells of the tables: " + ", ".join("%d %s" % (n, what) for what, n in RESULTS.items()))
    if Place.data:
        Place.data.remove()


if __name__ == "__main__":
    sys.exit(main(at_end=table_end))
