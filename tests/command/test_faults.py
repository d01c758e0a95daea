#!/usr/bin/env python3
"""Faults: every call of the command that the system can refuse fails in turn, or the command is killed at it, or the power is cut.

Usage: test_faults.py [--long] [--sanitize] [-v] [NAME...]      as case.py says

--sanitize: with a build of the command under ASan and UBSan, which finds memory that is freed twice or used after an error.

A scenario is a command and the state of its directory before it. It runs once undisturbed, which gives the new state and the list of its calls
(faults.c numbers them). Then it runs again for each call and each way in which that can fail. This must always hold:

  - the directory is in the old state or in the new one, byte for byte, or in an intermediate one that the scenario allows
  - exit code 0 means the new state; any other code comes with a message; nothing crashes
  - an error leaves no temporary file; a kill may, and then the same command, run again, makes the new state

For power cuts the calls that change the disk are replayed on a model of it, which loses and reorders what no fsync has made safe: see Disk. Without
--long, only each n-th run is done, different ones in each scenario. Needs Linux, glibc and a C compiler. SPDX-License-Identifier: MIT
"""
import collections
import copy
import hashlib
import os
import random
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

from case import LMC, LONG, ROOT, bf16, compile_to, f32, safetensors
import case

OUT = os.path.join(ROOT, "build", "tests", "faults")
FAULTS, SMALL_SLOTS = os.path.join(OUT, "faults.so"), os.path.join(OUT, "lmc")
SANITIZE = "--sanitize" in sys.argv
if SANITIZE:
    LMC = SMALL_SLOTS = os.path.join(OUT, "lmc-sanitize")
WRAPPED = """malloc calloc realloc open mkstemp opendir dup dup2 stat lstat fstat access realpath readdir lseek read pread write pwrite pwritev ftruncate
nanosleep openat fstatat fstatat64 mkdirat unlinkat linkat symlinkat fchmodat openat64 rename renameat link unlink rmdir mkdir chmod fchmod fchown futimens utimensat flock mkdtemp syscall fsync fdatasync fcntl close closedir pthread_create
open64 mkstemp64 stat64 lstat64 fstat64 readdir64 lseek64 pread64 pwrite64 pwritev64 ftruncate64 fcntl64""".split()  # all of faults.c
OLD_TIME = 10 ** 18  # in 2001, in ns
TEMPORARY = re.compile(r"^\.lmc-[A-Za-z0-9]{6}$")

# what can happen to a call of each kind; CUTS, too, to calls that change the disk
HOWS = {"alloc": ("fail", "memory"), "open": ("fail", "gone"), "look": ("fail", "gone"), "read": ("fail", "eintr", "short", "end", "gone"),
        "write": ("fail", "eintr", "short", "full", "gone", "tear"), "sync": ("fail", "gone"), "name": ("fail", "gone"),
        "attribute": ("fail", "gone"), "close": ("fail", "gone"), "lock": ("fail", "gone"), "thread": ("fail",)}
CUTS = ("kill", "after")
EVERY = {"alloc": 150, "gone": 17}  # without --long, one in so many of these is done; of others one in
EVERY_OTHER = 7

# ---- data ----


def changed(data, seed):
    """The next step: some elements differ a little."""
    rng, data = random.Random(seed), bytearray(data)
    for _ in range(len(data) // 50):
        data[rng.randrange(len(data) // 4) * 4] ^= rng.randrange(1, 4)
    return bytes(data)


def model(k, n=1500):
    """A file after k steps."""
    a, b = bf16(n, 1), bf16(n // 2, 2)
    for i in range(k):
        a, b = changed(a, i), changed(b, i)
    return safetensors([("a", "BF16", [n], a), ("b", "BF16", [n // 2], b)], {"step": "%04d" % k})


def tree(k):
    return {"model-1.safetensors": model(k), "model-2.safetensors": model(k, 400), "config.json": b'{"step": %04d}' % k, "empty": b"",
            "optimizer/state.safetensors": safetensors([("m", "F32", [600], changed(f32(600, 5), k))])}


# ---- the runner ----


class Result:
    """The result of a run."""

    def __init__(self, code, text, output):
        self.code, self.text, self.output = code, text, output


class Place:
    """A directory in which commands run, and whose state can be saved and restored: {path: (kind, mode, time, content)}."""

    def __init__(self):
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="lmc-faults-", dir=where))
        self.dir = os.path.join(self.root, "d")
        self.log = os.path.join(self.root, "log")
        os.mkdir(self.dir)

    def remove(self):
        shutil.rmtree(self.root)

    def path(self, name):
        return os.path.join(self.dir, name)

    def put_file(self, name, content):
        """A file, or a tree of them; with an old time."""
        for path, data in content.items() if isinstance(content, dict) else [("", content)]:
            full = self.path(name + "/" + path if path else name)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as f:
                f.write(data)

    def make_old(self):
        for base, dirs, files in os.walk(self.dir, topdown=False):
            for f in files + dirs:
                os.utime(os.path.join(base, f), ns=(OLD_TIME, OLD_TIME))

    def take(self):
        state = {}

        def look(prefix):
            for entry in os.scandir(self.path(prefix)):
                path, st = prefix + entry.name, entry.stat(follow_symlinks=False)
                time = st.st_mtime_ns if st.st_mtime_ns < 12 * 10 ** 17 else None  # None: now
                if stat.S_ISDIR(st.st_mode):
                    state[path] = ("dir", st.st_mode, time, None)
                    look(path + "/")
                else:
                    with open(self.path(path), "rb") as f:
                        state[path] = ("file", st.st_mode, time, f.read())
        look("")
        return state

    def put(self, state):
        now = self.take()
        for path in sorted(now, reverse=True):
            if path not in state or state[path][0] != now[path][0]:
                (os.rmdir if now[path][0] == "dir" else os.unlink)(self.path(path))
        for path in sorted(state):
            kind, mode, _, content = state[path]
            if now.get(path) != state[path] and kind == "file":
                with open(self.path(path), "wb") as f:
                    f.write(content)
            elif kind == "dir" and now.get(path, " ")[0] != "dir":
                os.mkdir(self.path(path))
        for path in sorted(state, reverse=True):
            if state[path][2] is not None:
                os.utime(self.path(path), ns=(state[path][2], state[path][2]))
            os.chmod(self.path(path), stat.S_IMODE(state[path][1]))

    def run(self, args, stdin=None, number=0, how="", data=False, logs=False, lmc=LMC, named=False, unlinked=False, refuse=None):
        env = dict(os.environ, MALLOC_PERTURB_="165", ASAN_OPTIONS="detect_leaks=0")  # without memory the process ends at once
        if number or logs:
            if os.path.exists(self.log):
                os.unlink(self.log)
            env.update(FAULTS_LOG=self.log)
            if not SANITIZE:
                env.update(LD_PRELOAD=FAULTS)
        if number:
            env.update(FAULTS_AT=str(number), FAULTS_HOW=how)
        if data:
            env.update(FAULTS_DATA="1")
        if named:
            env.update(FAULTS_NAMED="1")
        if refuse:
            env.update(FAULTS_REFUSE=refuse)
        if unlinked:
            env.update(FAULTS_UNLINKED="1")
        p = subprocess.run([lmc, *args], cwd=self.dir, env=env, input=stdin if stdin is not None else b"", capture_output=True, timeout=120)
        return Result(p.returncode, p.stderr.decode(errors="replace"), p.stdout)

    def fired(self):
        with open(self.log) as f:
            return any(line.startswith("! ") for line in f)


def without_temporaries(state):
    """*state, temporary files and all below them."""
    rest, left = {}, {}
    for path, entry in state.items():
        ours = any(TEMPORARY.match(part) or part == ".lmc-recode" for part in path.split("/"))
        (left if ours else rest)[path] = entry
    return rest, left


def normal(state):
    """A state for comparisons: without the times in the list of a series."""
    def entry(path, e):
        kind, mode, time, content = e
        if path.endswith("series.json"):
            content = re.sub(rb'"(time|seen)": -?\d+', b'"time": 0', content)  # the states of sources have inodes and times
            content = re.sub(rb'"crc32c": "[0-9a-f]*"', b"", content)
        return kind, mode, time if kind == "file" else None, content
    return {path: entry(path, e) for path, e in state.items() if not path.endswith((".lock", ".json.old"))}


# ---- correct states that are neither old nor new: functions of (scenario, state) that return a complaint or None ----


def none_between(scenario, state):
    return "neither old nor new"


def between(scenario, state):
    """All new files are there, and some that must be removed are left."""
    for path, entry in scenario.new.items():
        if state.get(path) != entry:
            return "%s is not there, or not as it should be, and something else is gone" % path
    for path, entry in state.items():
        if entry not in (scenario.new.get(path), scenario.old.get(path)):
            return "%s is something else" % path


def half_applied(scenario, state):
    """To be resumed: every state is tested for that. Or the first of several deltas is applied."""
    if ".t.lmc-apply" not in state and state["t"][3] != NEXT:
        return "half applied, and no side file"


def parts_of(scenario, state):
    """After a kill, without memory, or if the disk is gone, each file may be old or new; after an error, all are old."""
    return each_old_or_new(scenario, state) if scenario.is_cut else "is not as before, nor new"


def each_old_or_new(scenario, state):
    for path in set(scenario.old) | set(scenario.new) | set(state):
        if state.get(path) not in (scenario.old.get(path), scenario.new.get(path)):
            return "%s is neither old nor new" % path


def series_between(scenario, state):
    """Snapshots that were kept are kept and can be restored; the source is there unless its snapshot is in the list. verify checks the list."""
    if "s/series.json" in state or "s/series.json" in scenario.old:
        p = scenario.place.run(["series", "s", "verify"])
        if p.code:
            return "the series does not verify: " + p.text
    elif any(path.endswith(".lmc") for path in state):
        return "a snapshot without a list"
    for path, entry in scenario.old.items():
        is_confirmed = state.get("s/series.json") == scenario.new.get("s/series.json")
        if not path.startswith("s/") and path != "s" and not is_confirmed and state.get(path) != entry:
            return "%s has gone, and its snapshot is not confirmed" % path
        if path.endswith(".lmc") and path in scenario.new and state.get(path) not in (entry, scenario.new[path]):
            return "%s has changed" % path


# ---- correct results other than those of an undisturbed run: functions of (scenario, state, result) ----


def no_other(scenario, state, p):
    return False


def same_list(scenario, state, p):
    """A base that could not be read is not used, and a message says so: the snapshot is then an anchor. The list says what it restores."""
    def no_snapshots(state):
        return {path: e for path, e in state.items() if not path.endswith(".lmc")}
    return no_snapshots(state) == no_snapshots(scenario.new) and p.text and scenario.place.run(["series", "s", "verify"]).code == 0


def without_the_old_list(scenario, state, p):
    """The old list of a series could not be read, and a message says so: facts that only the list had are lost."""
    def others(state):
        return {path: e for path, e in state.items() if path != "s/series.json"}
    return others(state) == others(scenario.new) and "cannot be read" in p.text and scenario.place.run(["series", "s", "verify"]).code == 0


def tells_of_damage(scenario, state, p):
    return b'"damaged"' in p.output


# ---- power cuts ----


class Node:
    """A file or a directory of the model. entries and content: as every process sees them now."""

    def __init__(self, is_directory, content=b""):
        self.is_directory, self.entries = is_directory, {}
        self.content, self.safe, self.pending = bytearray(content), bytes(content), []  # pending: writes (offset, data) and sizes (None, size)

    def write(self, offset, data):
        self.content.extend(bytes(max(0, offset - len(self.content))))
        self.content[offset:offset + len(data)] = data
        self.pending.append((offset, data))

    def resize(self, size):
        self.content[size:] = bytes(max(0, size - len(self.content)))
        self.pending.append((None, size))

    def sync(self):
        self.safe, self.pending = bytes(self.content), []

    def after_cut(self, how, rng):
        """A possible content after a cut: each sector that was written since the last sync may be new or old, or zero where the file grew."""
        if not self.pending or how == "all":
            return bytes(self.content)
        if how == "none":
            return self.safe
        if how == "prefix":
            some, last = self.pending[:len(self.pending) // 2], self.pending[len(self.pending) // 2]
            if last[0] is not None:
                some = some + [(last[0], last[1][:len(last[1]) // 2])]
            file = Node(False, self.safe)
            for offset, data in some:
                file.resize(data) if offset is None else file.write(offset, data)
            return bytes(file.content)
        out = bytearray(self.safe[:len(self.content)])
        out.extend(bytes(len(self.content) - len(out)))  # the size was kept, the data was not
        if how == "sectors":
            for at in range(0, len(out), 512):
                if rng.random() < 0.5:
                    out[at:at + 512] = self.content[at:at + 512]
        return bytes(out)


class Disk:
    """Replays the calls of a run on a model of a file system that promises no more than POSIX does: fsync of a file makes its data safe, fsync of a
    directory the changes of its names. Until then each of these may be lost while others are kept; in particular, the data of a renamed file. A
    rename is done or not, never half."""

    def __init__(self, state, root):
        self.root, self.top = root, Node(True)
        self.nodes, self.fds, self.kept, self.pending = [self.top], {}, {}, []  # kept: {(directory, name): node} on the disk
        for path in sorted(state):
            kind, _, _, content = state[path]
            node = Node(kind == "dir", content or b"")
            self.nodes.append(node)
            directory, name = self.find_parent(path)
            directory.entries[name] = node
            self.kept[directory, name] = node

    def relative(self, path):
        """The path below the top; None: it is elsewhere."""
        path = os.path.relpath(os.path.normpath(os.path.join(self.root, path)), self.root)
        return None if path.split("/")[0] == ".." else "" if path == "." else path

    def find(self, path):
        node = self.top
        for part in filter(None, path.split("/")):
            node = node and node.entries.get(part)
        return node

    def find_parent(self, path):
        return self.find(os.path.dirname(path)), os.path.basename(path)

    def change(self, *changes):
        """One step: from now on each path is that node, or nothing."""
        names = [(*self.find_parent(path), node) for path, node in changes]
        for directory, name, node in names:
            directory.entries[name] = node
            if node is None:
                del directory.entries[name]
        self.pending.append(names)

    def create(self, path, is_directory):
        self.nodes.append(Node(is_directory))
        self.change((path, self.nodes[-1]))

    def sync_directory(self, directory):
        for names in [p for p in self.pending if any(n[0] is directory for n in p)]:
            self.keep(self.kept, names)
            self.pending.remove(names)

    @staticmethod
    def keep(kept, names):
        for directory, name, node in names:
            kept[directory, name] = node

    def replay(self, line):
        """Replays a call; returns whether it has changed anything."""
        _, kind, name, result, *args = line.split(" ")
        if int(result) < 0:
            return False
        if name in ("open", "mkstemp", "opendir"):
            path = self.relative(args[2])
            if args[0] == "2":  # a file without a name
                self.nodes.append(Node(False))
                self.fds[int(result)] = self.nodes[-1]
                return False
            if path is None:
                self.fds.pop(int(result), None)
                return False
            if args[0] == "1":
                self.create(path, False)
            self.fds[int(result)] = self.find(path)
            if args[1] == "1":
                self.find(path).resize(0)
            return args[0] == "1"
        if name in ("mkdir", "mkdtemp"):
            self.create(self.relative(args[0]), True)
        elif name in ("rename", "exchange", "link"):
            if args[0].startswith("/proc/self/fd/"):  # it gets a name
                self.change((self.relative(args[1]), self.fds[int(args[0].split("/")[-1])]))
                return True
            old, new = map(self.relative, args)
            node, other = self.find(old), self.find(new)
            self.change((new, node), *([] if name == "link" else [(old, other if name == "exchange" else None)]))
        elif name in ("unlink", "rmdir"):
            self.change((self.relative(args[0]), None))
        elif kind in ("write", "read", "sync", "close", "open") or name == "ftruncate":
            node = self.fds.get(int(args[0]))
            if name == "dup":
                self.fds[int(result)] = node
            elif kind == "close":
                self.fds.pop(int(args[0]), None)
            elif node is None or kind == "read":
                return False
            elif kind == "write":
                node.write(int(args[1]), bytes.fromhex(args[2]))
            elif name == "ftruncate":
                node.resize(int(args[1]))
            elif name == "syncfs":
                for n in self.nodes:
                    self.sync_directory(n) if n.is_directory else n.sync()
                self.sync_directory(self.top)
            elif node.is_directory:
                self.sync_directory(node)
            else:
                node.sync()
            return kind not in ("close", "open")
        else:
            return False
        return True

    def state(self, steps, how, rng):
        """The state after a cut that keeps these pending steps, and pending data as `how` says; without modes and times."""
        kept, state = dict(self.kept), {}
        for names in steps:
            self.keep(kept, names)
        below = collections.defaultdict(list)
        for (directory, name), node in kept.items():
            if node:
                below[directory].append((name, node))

        def walk(directory, prefix):
            for name, node in below[directory]:
                state[prefix + name] = None if node.is_directory else node.after_cut(how, rng)
                if node.is_directory:
                    walk(node, prefix + name + "/")
        walk(self.top, "")
        return state

    def cuts(self, rng, n_random):
        """States that a cut at this moment may leave."""
        n, choices = len(self.pending), []
        for k in range(n + 1):
            choices.append(self.pending[:k])
        for k in range(n):
            choices += [self.pending[:k] + self.pending[k + 1:], [self.pending[k]]]
        hows = ("none", "all", "zeros", "prefix", "sectors") if any(node.pending for node in self.nodes) else ("all",)
        for steps in choices:
            for how in hows:
                yield self.state(steps, how, rng)
        for _ in range(n_random if n or len(hows) > 1 else 0):
            yield self.state([p for p in self.pending if rng.random() < 0.5], rng.choice(hows), rng)


# ---- scenarios ----


class Scenario:
    """make(place): the old state. args: the command, run with -T1. again: the command that makes the new state from any state that is left.
    named: the system has no files without a name."""

    def __init__(self, name, make, args, again=None, stdin=None, between=none_between, other=no_other, lmc=LMC, named=False):
        self.name, self.make, self.args, self.stdin, self.may_be, self.other, self.lmc = name, make, args.split(), stdin, between, other, lmc
        self.named, self.is_cut = named, False
        self.again = again.split() if again else self.args
        self.changes = not name.endswith(READERS)

    def prepare(self, place, data=False, threads=1):
        """Runs the scenario undisturbed; self.calls: (number, kind, name, changes the disk)."""
        self.place, self.threads = place, ["-T%d" % threads]
        place.put({})
        self.make(place)
        place.make_old()
        self.whole_old = place.take()
        p = self.run(logs=True, data=data)
        if p.code != 0:
            raise AssertionError("%s: exit code %d: %s" % (self.name, p.code, p.text))
        self.new_whole = place.take()
        state, left = without_temporaries(self.new_whole)
        assert not left, left
        self.old, self.new, self.output = normal(self.whole_old), normal(state), p.output
        self.calls = []
        with open(place.log) as f:
            self.log = f.read().splitlines()
        for line in self.log:
            number, kind, name, result, *rest = line.split(" ")
            changes = kind in ("write", "name", "attribute") or name == "mkstemp" or (name == "open" and rest[0] == "1")
            self.calls.append((int(number), kind, name, changes))
        self.done_again = {}

    def run(self, args=None, **more):
        args = args or self.args
        words = 1 if args[0] in ("apply", "fold", "rebase", "diff", "verify", "cat", "stats") else 2 if args[0] == "series" else 0
        if args[0] == "series":
            words = 3
        return self.place.run([*args[:words], *self.threads, *args[words:]], stdin=self.stdin, lmc=self.lmc, named=self.named, **more)

    def judge(self, how, kind, p):
        """Judges a run: a complaint, or None."""
        whole = self.place.take()
        rest, left = without_temporaries(whole)
        state = normal(rest)
        killed = how in ("kill", "tear", "after")
        self.is_cut = killed or how == "gone" or kind == "alloc"
        if p.code < 0 and not (killed and p.code == -9):
            return "crashed with signal %d" % -p.code
        if p.code == 0:
            if (state, p.output) != (self.new, self.output):
                return None if self.other(self, state, p) else "exit code 0, but it is not the new state, or another output"
            if kind == "sync" and how == "fail":
                return "exit code 0, and a failed sync"
        elif not killed:
            if not re.search(r"^lmc: .", p.text):
                return "exit code %d without a text" % p.code
            side = self.old.keys() ^ state.keys()
            if how != "gone" and "half applied" not in p.text and side == {".t.lmc-apply"} and all(state.get(path) == entry for path, entry in self.old.items()):
                return "leaves a side file, though nothing has begun"
        said = p.text + " .lmc-recode"  # the next command that changes the series removes it
        if not killed and any(os.path.basename(path) not in said for path in left if os.path.dirname(path) not in left):
            return "leaves %s, and does not say so" % sorted(left)
        return self.judge_state(state, left, whole)

    def judge_state(self, state, left, whole):
        """Is the state correct, and can the command be run again from it?"""
        if state not in (self.old, self.new):
            complaint = self.may_be(self, state)
            if complaint:
                return complaint
        if state == self.new or (state == self.old and not left):
            return None
        left = sorted(left.values(), key=repr) if LONG else len(left)  # their content is not read again
        key = hashlib.sha256(repr((sorted(state.items()), left)).encode()).digest()
        if key not in self.done_again:
            self.done_again[key] = self.judge_again(whole)
        return self.done_again[key]

    def state_of(self, contents):
        """A state in the runner's form. Unchanged files have their modes and times."""
        state = {}
        for path, c in contents.items():
            known = [s[path] for s in (self.whole_old, self.new_whole) if path in s and s[path][3] == c]
            state[path] = known[0] if known else ("dir", 0o40755, None, None) if c is None else ("file", 0o100644, None, c)
        return state

    def judge_cut(self, contents):
        """Judges a power cut, without modes and times: a complaint, or None."""
        view = copy.copy(self)
        view.old, view.new, view.is_cut = plain(self.old), plain(self.new), True
        whole = self.state_of(contents)
        rest, left = without_temporaries(whole)
        state = plain(normal(rest))
        if state in (view.old, view.new) and not left:
            return None
        self.place.put(whole)
        return view.judge_state(state, left, whole)

    def judge_again(self, whole):
        if self.may_be == between and any(path not in whole for path in self.old):
            return None  # all new files are there; the user removes the rest of the source
        self.place.put(whole)
        p = self.run(self.again)
        if p.code != 0:
            return "cannot be gone on from: exit code %d: %s" % (p.code, p.text)
        state = normal(without_temporaries(self.place.take())[0])
        if normal_contents(state) != normal_contents(self.new):
            return "given again, it does not make the new state"


def plain(state):
    return {path: (kind, None, None, content) for path, (kind, _, _, content) in state.items()}


def normal_contents(state):
    """Without mode and time, which are new after another run."""
    return {path: entry[3] for path, entry in state.items()}


def lmc(place, *args):
    place.make_old()
    p = place.run(list(args))
    if p.code:
        raise AssertionError("lmc %s: %s" % (" ".join(args), p.text))


def keep_only(place, keeps):
    place.put({path: entry for path, entry in place.take().items() if keeps(path.split("/")[0])})


def sources(**files):
    def make(place):
        for name, content in files.items():
            place.put_file(name, content)
    return make


def packed(content, *args, base=None, **files):
    """x.lmc, its base if it has one, and more files."""
    def make(place):
        place.put_file("x", content)
        if base is not None:
            place.put_file("base", base)
        lmc(place, *args, *(["--base", "base"] if base is not None else []), "x", "-o", "x.lmc")
        keep_only(place, lambda name: name != "x")
        sources(**files)(place)
    return make


def deltas(old, *news):
    """The target t, and deltas d1, d2, ... from it."""
    def make(place):
        place.put_file("t", old)
        place.put_file("to", old)
        for k, new in enumerate(news):
            os.rename(place.path("to"), place.path("from"))
            place.put_file("to", new)
            lmc(place, "--base", "from", "to", "-o", "d%d" % (k + 1))
            keep_only(place, lambda name: name != "from")
        keep_only(place, lambda name: name != "to")
    return make


def interrupted(make_target):
    """An apply of d1 was killed while it wrote to the target."""
    def make(place):
        make_target(place)
        place.make_old()
        before = place.take()
        place.run(["apply", "-T1", "d1", "t"], logs=True, lmc=SMALL_SLOTS)
        with open(place.log) as f:
            writes = [int(line.split(" ")[0]) for line in f if " pwrite " in line]
        place.put(before)
        p = place.run(["apply", "-T1", "d1", "t"], number=writes[len(writes) * 2 // 3], how="kill", lmc=SMALL_SLOTS)
        assert p.code == -9 and os.path.exists(place.path(".t.lmc-apply"))
    return make


def chain(place):
    """s0, and deltas d1, d2, d3, each against the one before."""
    for k in range(4):
        place.put_file("s%d" % k, model(k))
        if k:
            lmc(place, "--base", "s%d" % (k - 1), *("--base=d%d" % i for i in range(1, k - 1)), "s%d" % k, "-o", "d%d" % k)
    keep_only(place, lambda name: name[0] == "d" or name == "s0")


def series(n, *more, kind=tree):
    """A series of n snapshots, and the source of the next one; more: verbs."""
    def make(place):
        for k in range(n):
            place.put_file("step_%d" % k, kind(k))
            lmc(place, "series", "s", "add", "--rm", "step_%d" % k)
        for verb in more:
            lmc(place, "series", "s", *verb.split())
        place.put_file("step_%d" % n, kind(n))
    return make


def moments(place):
    """Data for --quant: an optimizer's moments."""
    m = f32(16384, 8)
    v = struct.pack("<16384f", *(x * x * 0.1 + 1e-9 for x in struct.unpack("<16384f", m)))
    place.put_file("x/exp_avg.safetensors", safetensors([("w", "F32", [128, 128], m)]))
    place.put_file("x/exp_avg_sq.safetensors", safetensors([("w", "F32", [128, 128], v)]))


def other_layout(k):
    files = dict(tree(k), added=b"new")
    del files["empty"]
    files["model-2.safetensors"] = model(k, 500)
    return files


READERS = ("stdout", "verify", "test", "diff", "json", "cat", "list", "stats")
FILE, NEXT, TREE, NEXT_TREE, LARGE = model(0), model(1), tree(0), tree(1), model(0, 600000)

SCENARIOS = [
    Scenario("compress", sources(x=FILE), "x"),
    Scenario("compress_over", sources(x=FILE, **{"x.lmc": b"old"}), "-f x"),
    Scenario("compress_named", sources(x=FILE), "x", named=True),
    Scenario("compress_over_named", sources(x=FILE, **{"x.lmc": b"old"}), "-f x", named=True),
    Scenario("compress_rm", sources(x=FILE), "--rm x", again="-f --rm x", between=between),
    Scenario("compress_directory", sources(x=TREE), "x"),
    Scenario("compress_directory_rm", sources(x=TREE), "--rm x", again="-f --rm x", between=between),
    Scenario("compress_each", sources(x={"a": FILE, "b/c": NEXT}), "-r x", again="-f -r x", between=each_old_or_new),
    Scenario("compress_base", sources(x=NEXT, base=FILE), "--base base x"),
    Scenario("compress_base_rm", sources(x=NEXT_TREE, base=TREE), "--rm --base base x", again="-f --rm --base base x", between=between),
    Scenario("compress_quant", moments, "--quant *=update:0.01 x"),
    Scenario("compress_pipe", sources(), "-", stdin=FILE),
    Scenario("compress_to_stdout", sources(x=FILE), "-c x"),
    Scenario("restore", packed(FILE), "-d x.lmc"),
    Scenario("restore_large", packed(LARGE), "-d x.lmc"),
    Scenario("restore_over", packed(FILE, x=b"old"), "-d -f x.lmc"),
    Scenario("restore_rm", packed(FILE), "-d --rm x.lmc", again="-d -f --rm x.lmc", between=between),
    Scenario("restore_directory", packed(TREE), "-d x.lmc"),
    Scenario("restore_directory_over", packed(TREE, x=NEXT_TREE), "-d -f x.lmc"),
    Scenario("restore_directory_rm", packed(TREE), "-d --rm x.lmc", again="-d -f --rm x.lmc", between=between),
    Scenario("restore_base", packed(NEXT_TREE, base=TREE), "-d --base base x.lmc"),
    Scenario("restore_parts", packed(TREE, out={"own": b"own", "optimizer/own": b"own"}), "-d -o out x.lmc *", again="-d -f -o out x.lmc *", between=parts_of),
    Scenario("restore_parts_new", packed(TREE), "-d -o out x.lmc empty *2*"),
    Scenario("restore_to_stdout", packed(FILE), "-d -c x.lmc"),
    Scenario("apply", deltas(FILE, NEXT), "apply d1 t", between=half_applied, lmc=SMALL_SLOTS),
    Scenario("apply_trusting", deltas(FILE, NEXT), "apply --trust-base d1 t", between=half_applied, lmc=SMALL_SLOTS),
    Scenario("apply_directory", deltas(TREE, NEXT_TREE), "apply d1 t", between=half_applied, lmc=SMALL_SLOTS),
    Scenario("apply_two", deltas(FILE, NEXT, model(2)), "apply d1 d2 t", between=half_applied, lmc=SMALL_SLOTS),
    Scenario("apply_resumed", interrupted(deltas(TREE, NEXT_TREE)), "apply d1 t", between=half_applied, lmc=SMALL_SLOTS),
    Scenario("apply_other_file", deltas(FILE, model(1, 1700)), "apply d1 t"),
    Scenario("apply_other_directory", deltas(TREE, other_layout(1)), "apply d1 t"),
    Scenario("fold", chain, "fold --base s0 d1 d2 d3 -o out"),
    Scenario("rebase", chain, "rebase --onto none --base s0 --base d1 d2 -o out"),
    Scenario("verify", chain, "verify --base s0 d3 d2 d1"),
    Scenario("test", packed(TREE), "-t x.lmc"),
    Scenario("diff", sources(a=TREE, b=NEXT_TREE), "diff a b"),
    Scenario("diff_json", sources(a=TREE, b=NEXT_TREE), "diff --json a b"),
    Scenario("cat", packed(FILE), "cat x.lmc a"),
    Scenario("list", packed(TREE), "-l -v x.lmc"),
    Scenario("list_json", packed(TREE), "-l --json x.lmc"),
    Scenario("stats", sources(a=FILE, b=NEXT), "stats a b"),
    Scenario("series_first", series(0), "series s add step_0", between=series_between, other=same_list),
    Scenario("series_add", series(2), "series s add step_2", between=series_between, other=same_list),
    Scenario("series_add_rm", series(2), "series s add --rm step_2", between=series_between, other=same_list),
    Scenario("series_add_file_rm", series(2, kind=model), "series s add --rm step_2", between=series_between, other=same_list),
    Scenario("series_prune", series(3), "series s prune step_1", between=series_between),
    Scenario("series_gc", series(4, "prune step_1", "prune step_0"), "series s gc", between=series_between),
    Scenario("series_list", series(2), "series s list --json", other=tells_of_damage),
    Scenario("series_restore", series(2), "series s restore step_1 -o out", between=series_between),
    Scenario("series_rebuild", series(2), "series s rebuild", between=series_between, other=without_the_old_list),
]


# ---- the tests ----

counts = collections.defaultdict(collections.Counter)  # numbers of runs: counts[scenario][what happened to calls]
calls = {}  # of a run
cuts = {}  # moments, and states that differ


def is_old(path, made_of):
    return not os.path.exists(path) or os.path.getmtime(path) < max(map(os.path.getmtime, made_of))


def build():
    """Builds the shared object, and a command whose journals have small slots. Returns the reason if that fails."""
    os.makedirs(OUT, exist_ok=True)
    cc = os.environ.get("CC", "cc").split() if not SANITIZE else [next(filter(shutil.which, ("clang-19", "clang", "cc")))]
    flags = ["-std=c99", "-Wall", "-Wextra", "-I" + ROOT]
    source, rooms = os.path.join(ROOT, "tests", "command", "faults.c"), [os.path.join(ROOT, name) for name in ("cli", "formats", "store")]
    files = [os.path.join(at, name) for room in rooms for at, _, names in os.walk(room) for name in names if name[-2:] in (".c", ".h")]
    cli, help_text = rooms[0], os.path.join(OUT, "help_text.%d.c" % os.getpid())
    if is_old(FAULTS, [source]) and not compile_to(FAULTS, *flags, "-O2", "-fPIC", "-shared", source, "-ldl", "-pthread", cc=cc):
        return "faults.c cannot be compiled here"
    if is_old(SMALL_SLOTS, [os.path.join(ROOT, name) for name in ("lmc.h", "include/lmc_salvage.h", "include/lmc_extra.h")] + files):
        with open(help_text, "w", encoding="utf-8") as f:
            subprocess.run(["sed", "-f", os.path.join(cli, "help.sed"), os.path.join(cli, "help.txt")], stdout=f, check=True)
        small = ["-w", "-DLMC_NO_SIMD", "-DSLOT_SIZE=((size_t)1500)", "-DSLOT_SPAN=((uint64_t)4096)", "-DWINDOW_SIZE=((size_t)3000)", help_text, *sorted(f for f in files if f.endswith(".c"))]
        how = ["-O1"] if not SANITIZE else ["-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DFAULTS_WRAP", source,
                                            *("-Wl,--wrap=" + name for name in WRAPPED)]
        made = compile_to(SMALL_SLOTS, *flags, *small, *how, "-ljansson", "-pthread", cc=cc)
        os.unlink(help_text)
        if not made:
            return "the command cannot be compiled so here"


class FaultCase(unittest.TestCase):
    def setUp(self):
        if not sys.platform.startswith("linux"):
            self.skipTest("needs Linux")
        if not hasattr(FaultCase, "reason"):
            FaultCase.reason = build()
        if FaultCase.reason:
            self.skipTest(FaultCase.reason)
        self.place = Place()

    def tearDown(self):
        if hasattr(self, "place"):
            self.place.remove()

    def complain(self, complaints, n):
        if complaints:
            self.fail("%d of %d runs" % (len(complaints), n) + "".join("\n" + c for c in complaints[:LIMIT]))


LIMIT = 25


class EachCall(FaultCase):
    """One scenario: every call, every way."""

    def check(self, scenario):
        scenario.prepare(self.place)
        calls[scenario.name] = len(scenario.calls)
        points = [(call, how) for call in scenario.calls for how in HOWS[call[1]] + (CUTS if call[3] else ())]
        if scenario.stdin:  # an early end of a pipe cannot be noticed
            points = [p for p in points if p[1] != "end"]
        shift, complaints, n = zlib.crc32(scenario.name.encode()), [], collections.Counter()
        for call, how in points:
            number, kind, name, _ = call
            what = how if how == "gone" else kind
            n[what] += 1
            if not LONG and (n[what] + shift) % EVERY.get(what, EVERY_OTHER):
                continue
            self.place.put(scenario.whole_old)
            p = scenario.run(number=number, how=how)
            counts[scenario.name][how if how in ("gone", "full", "kill", "tear", "after", "memory") else kind] += 1
            complaint = scenario.judge(how, kind, p)
            if not complaint and not self.place.fired():
                complaint = "was not called"
            if complaint:
                complaints.append("%d (%s, %s) %s: %s\n    %s" % (number, kind, name, how, complaint, p.text.strip()[-300:]))
        self.complain(complaints, sum(n.values()))


for s in SCENARIOS:
    setattr(EachCall, "test_" + s.name, lambda self, s=s: self.check(s))


class Unnamed(FaultCase):
    """Outputs have no name until they are whole."""

    def test_nothing_is_left(self):
        """kill -9 at any call leaves the old files or the output; with -f over a file also a temporary name."""
        for scenario in [s for s in SCENARIOS if s.name in ("compress", "compress_over", "restore", "restore_over", "compress_directory")]:
            is_over = scenario.name.endswith("_over")
            scenario.prepare(self.place)
            if not is_over and not any(name == "link" for _, _, name, _ in scenario.calls):
                self.skipTest("there are no files without a name here")
            points = [c[0] for c in scenario.calls if c[3]]
            for number in sorted(set(points[::9] + points[-12:])):
                for how in ("kill", "after"):
                    self.place.put(scenario.whole_old)
                    self.assertEqual(scenario.run(number=number, how=how).code, -9)
                    state, left = without_temporaries(self.place.take())
                    self.assertIn(normal(state), (scenario.old, scenario.new))
                    self.assertLessEqual(len(left), is_over)

    def test_a_name_that_it_cannot_get(self):
        """If linking is refused at the end, the work is not lost: the output is copied."""
        for scenario in [s for s in SCENARIOS if s.name in ("compress", "restore", "series_add")]:
            scenario.prepare(self.place)
            links = [number for number, _, name, _ in scenario.calls if name == "link"]
            if not links:
                self.skipTest("there are no files without a name here")
            for number in links:
                self.place.put(scenario.whole_old)
                p = scenario.run(number=number, how="fail")
                self.assertEqual(p.code, 0, p.text)
                state, left = without_temporaries(self.place.take())
                self.assertEqual((normal(state), left), (scenario.new, {}))


    def test_apply_where_links_are_refused(self):
        """Then its side file is a copy, and records go there: after a kill apply goes on."""
        for scenario in [s for s in SCENARIOS if s.name in ("apply", "apply_directory", "apply_two")]:
            scenario.prepare(self.place)
            self.place.put(scenario.whole_old)
            self.assertEqual(scenario.run(logs=True, unlinked=True).code, 0)
            with open(self.place.log) as f:
                points = [int(line.split(" ")[0]) for line in f if line.split(" ")[1] in ("write", "name")]
            for number in points:
                self.place.put(scenario.whole_old)
                p = scenario.run(number=number, how="after", unlinked=True)
                self.assertEqual(p.code, -9)
                self.assertIsNone(scenario.judge("after", "name", p), "%s %d: %s" % (scenario.name, number, p.text))


class PowerCuts(FaultCase):
    """One scenario: the power is cut after each call that changes the disk."""

    def cut(self, scenario, without_sync=None):
        """Complaints, and the numbers of moments and of states. without_sync: the sync that is left out, to see that it matters."""
        disk = Disk(scenario.whole_old, self.place.dir)
        rng, seen, complaints, moments = random.Random(1), {}, [], 0
        for number, line in enumerate(scenario.log):
            if number == without_sync or not disk.replay(line):
                continue
            moments += 1
            for contents in disk.cuts(rng, 20 if LONG else 4):
                key = hashlib.sha256(repr(sorted(contents.items())).encode()).digest()
                if key not in seen:
                    seen[key] = scenario.judge_cut(contents)
                    if seen[key]:
                        complaints.append("after %s: %s" % (line[:100], seen[key]))
        return complaints, moments, len(seen), disk

    def check(self, scenario):
        scenario.prepare(self.place, data=True)
        complaints, moments, n, disk = self.cut(scenario)
        cuts[scenario.name] = (moments, n)
        # the model is right: without a cut it ends in the state of the run
        end = without_temporaries(scenario.state_of(disk.state(disk.pending, "all", None)))[0]
        self.assertEqual(set(end), set(scenario.new_whole))
        self.assertTrue(all(end[path][3] == scenario.new_whole[path][3] for path in end), "the model is wrong")
        self.complain(complaints, n)

    def matters(self, name, most):
        """Without one of its syncs a scenario fails. At most `most` syncs do not matter: they are for faults that the model does not have."""
        scenario = next(s for s in SCENARIOS if s.name == name)
        scenario.prepare(self.place, data=True)
        syncs = [i for i, line in enumerate(scenario.log) if line.split(" ")[1] == "sync"]
        useless = [scenario.log[i] for i in syncs if not self.cut(scenario, i)[0]]
        self.assertGreater(len(syncs), len(useless))
        self.assertLessEqual(len(useless), most, useless)

    def test_each_sync_matters(self):
        for name, most in (("compress", 1), ("compress_rm", 0), ("restore_directory", 9), ("apply", 9), ("series_add_rm", 9)):
            with self.subTest(name):
                self.matters(name, most)


for s in SCENARIOS:
    if s.changes:
        setattr(PowerCuts, "test_" + s.name, lambda self, s=s: self.check(s))


class Lies(FaultCase):
    """The disk reports success without writing: --rm reads again what it relies on."""

    def test_lost_writes(self):
        for name in ("compress_rm", "compress_directory_rm", "restore_rm", "restore_directory_rm", "series_add_rm"):
            scenario = next(s for s in SCENARIOS if s.name == name)
            scenario.prepare(self.place)
            for number, kind, call, _ in scenario.calls:
                if kind == "write":
                    self.place.put(scenario.whole_old)
                    p = scenario.run(number=number, how="lost")
                    counts[name]["lost"] += 1
                    rest = normal(without_temporaries(self.place.take())[0])
                    if p.code == 0:  # the output was read again; the list of a series can be rebuilt
                        wrong = [path for path, entry in scenario.new.items() if rest.get(path) != entry and not path.endswith(".json")]
                        self.assertEqual(wrong, [], "%s: write %d" % (name, number))
                    else:
                        for path, entry in scenario.old.items():
                            if path not in scenario.new:
                                self.assertEqual(rest.get(path), entry, "%s: %s has gone after write %d was lost" % (name, path, number))

    def test_they_are_seen(self):
        """Without --rm nothing is read again: so these tests can find a lost write."""
        scenario = next(s for s in SCENARIOS if s.name == "compress")
        scenario.prepare(self.place)
        number = [c[0] for c in scenario.calls if c[1] == "write"][-1]
        self.place.put(scenario.whole_old)
        self.assertIn("not the new state", scenario.judge("lost", "write", scenario.run(number=number, how="lost")))


class Threads(FaultCase):
    """With two threads calls come in no certain order: numbers are drawn at random, by a fixed seed; which call has that number depends on the
    threads."""

    def test_random_calls(self):
        rng = random.Random(2026)
        for scenario in SCENARIOS:
            scenario.prepare(self.place, threads=2)
            for _ in range(60 if LONG else 4):
                number, kind, name, changes = rng.choice(scenario.calls)
                # "gone" and "full" would also fail calls that only threads make, such as for their stacks
                how = rng.choice([h for h in HOWS[kind] if h not in ("gone", "full", "tear")] + ["kill"])
                self.place.put(scenario.whole_old)
                p = scenario.run(number=number, how=how)
                counts[scenario.name]["2 threads"] += 1
                # with two threads this number may be another call of that kind; without memory, parts may be old or new
                complaint = scenario.judge(how, kind if kind == "alloc" else None, p)
                self.assertIsNone(complaint, "%s: %d (%s) %s: %s" % (scenario.name, number, name, how, p.text[-300:]))


class FullDisk(FaultCase):
    """A real file system with few pages, which becomes full."""

    def test_full_disk(self):
        names = ("compress", "compress_over", "compress_rm", "compress_directory", "restore_rm", "restore_directory", "restore_directory_over", "apply",
                 "apply_directory", "apply_other_directory", "fold", "series_add_rm", "series_gc")
        small = os.path.join(self.place.root, "small")
        os.mkdir(small)
        for name in names:
            scenario = next(s for s in SCENARIOS if s.name == name)
            scenario.prepare(self.place)
            full = codes = 0
            for pages in range(1, 60):
                p = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%d" % (pages * 4096), "none", small], capture_output=True)
                if p.returncode:
                    self.skipTest("a file system of its own cannot be mounted")
                try:
                    codes = self.fill(scenario, small)
                finally:
                    subprocess.run(["umount", small], check=True)
                full += codes == 1
                if codes == 0:
                    break
            self.assertEqual(codes, 0, "never enough room")
            self.assertGreater(full, 0, name)
            counts[name]["full disk"] += full

    def fill(self, scenario, small):
        """The exit code there; None: the old state does not fit in."""
        there = copy.copy(self.place)
        there.dir = small
        try:
            there.put(scenario.whole_old)
        except OSError:
            return None
        scenario.place = there
        p = scenario.run()
        scenario.place = self.place  # where there is room to check it, and to run the command again
        self.place.put(there.take())
        self.assertIsNone(scenario.judge("full", None, p), scenario.name)
        if p.code:
            self.assertIn("No space left", p.text)
        return p.code


def print_table():
    kinds = [k for k in (*HOWS, "full", "gone", "memory", "kill", "tear", "after", "lost", "2 threads", "full disk") if any(k in c for c in counts.values())]
    rows = [["scenario", "calls", *kinds, "cuts at", "states"]]
    for s in SCENARIOS:
        c = counts[s.name]
        rows.append([s.name, calls.get(s.name, 0), *(c[k] for k in kinds), *cuts.get(s.name, (0, 0))])
    rows.append(["all"] + [sum(row[i] for row in rows[1:]) for i in range(1, len(rows[0]))])
    print("  runs with a fault, by its kind, and states after a power cut%s:" % ("" if LONG else "; a part of all"))
    for row in rows:
        print("  %-24s" % row[0] + "".join("%*s" % (len(str(head)) + 2 if len(str(head)) > 4 else 6, cell or "-") for head, cell in zip(rows[0][1:], row[1:])))


if __name__ == "__main__":
    sys.exit(case.main(at_end=print_table))
