#!/usr/bin/env python3
"""Removing sources: --rm of files, directories and snapshots, series add --rm and series watch --rm.

Usage: test_removal.py [--long] [-v] [NAME...]      as case.py says

At any moment of a removal, and whatever others do to the source meanwhile, this must hold, also after the same command was given again with -f:

  - the source is whole under its own name, or the snapshot has all of it: never less
  - what is not as it was when it was compared stays; nothing outside of the source is touched
  - an error comes with a message that tells where the rest is

faults.c fails, kills or stops the command at each call; while it is stopped, the tests change its source. Without --long, some of all that
is done. Needs Linux, glibc and a C compiler. SPDX-License-Identifier: MIT
"""
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys

import case
import test_faults
from case import LMC, LONG, Case
from test_faults import FAULTS, TEMPORARY, FaultCase, model, series, sources

LIBC = ctypes.CDLL(None, use_errno=True)
FILES = {"a/one": b"1" * 3000, "a/two": b"2" * 100, "a/b/deep": b"3" * 200, "a/empty": b"", "a-b/x": b"4" * 50, "m": model(0), "z": b"5" * 99}


def exchange(a, b):
    return LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2)


def mount(*args):
    return subprocess.run(["mount", *args], capture_output=True).returncode == 0


class Job:
    """A command that removes the source x, and what must then have all of it. again: the command that is given again."""

    def __init__(self, name, make, args, again, kept, restore):
        self.name, self.make, self.args, self.again, self.kept, self.restore = name, make, args.split(), again.split(), kept, restore.split()

    def prepare(self, place, **more):
        self.place, self.more = place, more
        place.put({})
        self.make(place)
        place.make_old()
        self.old = place.take()
        self.source = {path: entry[3] for path, entry in self.old.items() if path.split("/")[0] == self.args[-1]}
        if self.args[-1] == "in":
            self.source = {path: content for path, content in self.source.items() if path != "in"}
        p = self.run(logs=True)
        assert p.code == 0, p.text
        with open(place.log) as f:
            lines = [line.split(" ") for line in f.read().splitlines()]
        first = next(i for i, line in enumerate(lines) if line[2] == "rename" and ".lmc-" in line[-1] and line[-2].endswith(place.path(min(self.source))))
        self.calls = [(int(line[0]), line[1], line[2]) for line in lines]
        self.begin = first - 3  # where the removal begins
        assert not self.whole()

    def run(self, args=None, **more):
        args = args or self.args
        words = 3 if args[0] == "series" else 0
        return self.place.run([*args[:words], "-T1", *args[words:]], **self.more, **more)

    def points(self):
        n = len(self.calls)
        return [c for i, c in enumerate(self.calls) if i >= self.begin and (LONG or n - i < 4 or (i - self.begin) < 9 or i % 4 == 0)
                or i < self.begin and i % (5 if LONG else 97) == 0]

    def whole(self, state=None):
        state = state or self.place.take()
        return all(path in state and state[path][3] == content for path, content in self.source.items())

    def judge(self):
        """A complaint about the present state."""
        state = self.place.take()
        for path, (kind, _, _, content) in state.items():
            parts = path.split("/")
            if kind == "file" and any(TEMPORARY.match(p) for p in parts) and content not in self.source.values() and not parts[-1].startswith(".lmc-"):
                return "%s is something new" % path
        if self.whole(state):
            return None
        if any(path in state for path in self.source if path == min(self.source)) and not any("lmc-rm" in path for path in state):
            return "a part of the source has its name"
        shutil.rmtree(self.place.path("back"), ignore_errors=True)
        if os.path.exists(self.place.path("back")):
            os.unlink(self.place.path("back"))
        p = self.place.run(self.restore)
        if p.code:
            return "the source is not whole, and cannot be restored: " + p.text
        back = self.place.take()
        top = min(self.source)
        for path, content in self.source.items():
            if path not in ("x", "step_2") or content is not None:
                if back.get("back" + path[len(top):], (0, 0, 0, b"-"))[3] != content:
                    return "the source is not whole, and its snapshot lacks %s" % path
        return None


def watched(place):
    series(1)(place)
    os.rename(place.path("step_1"), place.path("x"))
    os.mkdir(place.path("in"))
    os.rename(place.path("x"), place.path("in/step_1"))


def packed(place):
    test_faults.packed(FILES)(place)


JOBS = [
    Job("file", sources(x=model(0)), "--rm x", "-f --rm x", "x.lmc", "-d -f -o back x.lmc"),
    Job("directory", sources(x=FILES), "--rm x", "-f --rm x", "x.lmc", "-d -o back x.lmc"),
    Job("series_add", series(2), "series s add --rm step_2", "series s add --rm step_2", "s/step_2.lmc", "series s restore -o back step_2"),
    Job("series_add_file", series(2, kind=model), "series s add --rm step_2", "series s add --rm step_2", "s/step_2.lmc", "series s restore -o back step_2"),
    Job("series_watch", watched, "series s watch --rm --once --settle 0 in", "series s watch --rm --once --settle 0 in", "s/step_1.lmc", "series s restore -o back step_1"),
]


class Interrupted(FaultCase):
    """Every call of a removal is refused, or the command is killed before or after it. Then the same command is given again."""

    def check(self, job, **more):
        job.prepare(self.place, **more)
        complaints, n = [], 0
        for number, kind, _ in job.points():
            for how in ("kill", "after", "fail"):
                if kind == "alloc" and how != "fail" or how == "after" and kind not in ("name", "write", "open"):
                    continue
                n += 1
                self.place.put(job.old)
                p = job.run(number=number, how=how)
                complaint = None
                if how == "fail" and p.code and not re.search("^lmc: .", p.text):
                    complaint = "no message"
                complaint = complaint or job.judge()
                q = job.run(job.again)
                complaint = complaint or job.judge() and "again: %s" % job.judge()
                if complaint:
                    complaints.append("%d %s %s: %s\n    %s    %s" % (number, kind, how, complaint, p.text, q.text))
        self.assertGreater(n, 15)
        self.complain(complaints, n)

    def test_directory_without_renames(self):
        """As in a lower layer of overlayfs: a side file tells that the directory is not whole."""
        self.check(JOBS[1], refuse="renameat2=18")

    def test_directory_that_is_put_back(self):
        """Nothing can be removed, so it gets its name back: without an empty directory of that name, which would be taken for it."""
        job = JOBS[1]
        job.prepare(self.place)
        complaints = []
        for refuse in ("unlink=5", "unlink=5 renameat2=38", "unlink=5 renameat2=18"):
            self.place.put(job.old)
            p = job.run(logs=True, refuse=refuse)
            self.assertEqual(p.code, 1, p.text)
            self.assertTrue(job.whole())
            with open(self.place.log) as f:
                lines = [line.split(" ") for line in f.read().splitlines()]
            first = next(int(line[0]) for line in lines if line[2] == "unlink" and line[3] == "-1")
            for number in range(first, len(lines) + 1):
                for how in ("kill", "after"):
                    self.place.put(job.old)
                    job.run(number=number, how=how, refuse=refuse)
                    q = job.run(job.again, refuse=refuse.replace("unlink=5", "").strip() or None)
                    if job.judge():
                        complaints.append("%s: %d %s: %s\n    %s" % (refuse, number, how, job.judge(), q.text))
        self.complain(complaints, 1)

    def test_long_name_without_renames(self):
        """A name of 248 to 255 bytes leaves no room for that of a side file, which then has a hash of it."""
        lmc = lambda *args: subprocess.run([LMC, *args], cwd=self.place.dir, capture_output=True, text=True,
                                           env={**os.environ, "LD_PRELOAD": FAULTS, "FAULTS_REFUSE": "renameat2=18"})
        for size in 247, 248, 255:
            name, hashed = "d" * size, 0xCBF29CE484222325
            for c in name.encode():
                hashed = (hashed ^ c) * 0x100000001B3 % 2**64
            self.place.put({})
            self.place.put_file(name, FILES)
            p = lmc("--rm", "-o", "x.lmc", name)
            self.assertEqual((p.returncode, os.listdir(self.place.dir)), (0, ["x.lmc"]), p.stderr)
            side = ".%s.lmc-rm" % (name if size == 247 else "%016x" % hashed)
            self.place.put_file(name, FILES)
            self.place.put_file(side, b"")
            p = lmc("-f", "-o", "x.lmc", name)
            self.assertEqual(p.returncode, 1)
            self.assertIn(side, p.stderr)

    def test_series_without_renames(self):
        self.check(JOBS[2], refuse="renameat2=18")


for j in JOBS:
    setattr(Interrupted, "test_" + j.name, lambda self, j=j: self.check(j))


class Stopped(FaultCase):
    def stop_at(self, number, change, sends=None, args=None):
        env = dict(os.environ, LD_PRELOAD=FAULTS, FAULTS_LOG=self.place.log, FAULTS_AT=str(number), FAULTS_HOW="stop")
        if "refuse" in self.job.more:
            env["FAULTS_REFUSE"] = self.job.more["refuse"]
        args = args or self.job.args
        words = 3 if args[0] == "series" else 0
        p = subprocess.Popen([LMC, *args[:words], "-T1", *args[words:]], cwd=self.place.dir, env=env, stderr=subprocess.PIPE)
        _, status = os.waitpid(p.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            change()
            if sends:
                os.kill(p.pid, sends)
            os.kill(p.pid, signal.SIGCONT)
            text = p.stderr.read().decode()
            _, status = os.waitpid(p.pid, 0)
        else:
            text = p.stderr.read().decode()
        p.returncode = os.waitstatus_to_exitcode(status)
        p.stderr.close()
        return p.returncode, text


class Compared(Stopped):
    """While the command is stopped between the moment at which its output gets its name and the comparison, somebody changes the source."""

    def check(self, args, output, change, keeps, says="nothing was removed"):
        self.place.make_old()
        old = self.place.take()
        p = self.place.run(["-T1", *args], logs=True)
        self.assertEqual(p.code, 0, p.text)
        with open(self.place.log) as f:
            lines = [line.split(" ") for line in f.read().splitlines()]
        named = max(i for i, line in enumerate(lines) if line[1] == "name" and line[-1] in (output, self.place.path(output)))
        self.place.put(old)
        done = []
        self.job = Job.__new__(Job)
        self.job.more = {}
        code, text = self.stop_at(int(lines[named + 1][0]), lambda: done.append(change()), args=args)
        self.assertEqual((len(done), code), (1, 1), text)
        self.assertIn(says, text)
        self.assertTrue(os.path.exists(self.place.path(output)))
        self.assertTrue(os.path.exists(self.place.path(keeps)))

    def write(self, name, how, content):
        with open(self.place.path(name), how) as f:
            f.seek(0)
            f.write(content)

    def test_source(self):
        self.place.put_file("a", b"1" * 3000)
        self.check(["--rm", "a"], "a.lmc", lambda: self.write("a", "r+b", b"!"), "a")

    def test_restored_file(self):
        self.place.put_file("a", b"1" * 3000)
        self.place.run(["-q", "--rm", "a"])
        self.check(["-d", "--rm", "a.lmc"], "a", lambda: self.write("a", "r+b", b"!"), "a.lmc")

    def test_new_file(self):
        self.place.put_file("d", {"x": b"1" * 3000})
        self.check(["--rm", "d"], "d.lmc", lambda: self.write("d/new", "wb", b"new"), "d/new", "d: was changed meanwhile, and is not removed")
        self.assertTrue(os.path.exists(self.place.path("d/x")))


class Changed(Stopped):
    """While the command is stopped at a call of the removal, somebody changes the source."""

    def here(self, *path):
        """The source's entry, by its own or its temporary name; None: it has gone."""
        for name in ["x", *os.listdir(self.place.dir)]:
            full = os.path.join(self.place.dir, name, *path)
            if (name == "x" or TEMPORARY.match(name)) and os.path.lexists(full):
                return full

    def check(self, change, verdict, is_file=False):
        """is_file: a file is changed, so it is done before each removal of one."""
        self.job = JOBS[1]
        self.job.prepare(self.place)
        complaints, n = [], 0
        points = [c for c in self.job.calls[self.job.begin - 4:] if c[1] != "alloc"]
        for number, _, _ in points if LONG else [c for i, c in enumerate(points) if i % 3 == 0 or is_file and c[2] == "unlink"]:
            shutil.rmtree(self.place.dir)
            os.mkdir(self.place.dir)
            self.place.put(self.job.old)
            os.mkdir(self.place.path("victim"))
            for name in ("one", "two", "empty", "deep"):
                with open(self.place.path("victim/" + name), "wb") as f:
                    f.write(b"precious " + name.encode())
            os.mkdir(self.place.path("victim/b"))
            with open(self.place.path("victim/b/deep"), "wb") as f:
                f.write(b"precious b")
            done = []
            code, text = self.stop_at(number, lambda: done.append(change(self)))
            n += 1
            complaint = verdict(self, done and done[0], code, text)
            if complaint:
                complaints.append("%d: %s\n    code %s %s" % (number, complaint, code, text))
        self.assertGreater(n, 8)
        self.complain(complaints, n)

    def precious(self):
        for name in ("one", "two", "empty", "deep", "b/deep"):
            try:
                with open(self.place.path("victim/" + name), "rb") as f:
                    if not f.read().startswith(b"precious"):
                        return "victim/%s is something else" % name
            except FileNotFoundError:
                return "victim/%s has gone" % name

    def snapshot_is_whole(self):
        shutil.rmtree(self.place.path("back"), ignore_errors=True)
        p = self.place.run(["-d", "-o", "back", "x.lmc"])
        if p.code:
            return p.text
        for path, content in FILES.items():
            with open(self.place.path("back/" + path), "rb") as f:
                if f.read() != content:
                    return path

    def test_a_directory_becomes_a_link(self):
        def change(self):
            at = self.here("a")
            if at:
                os.rename(at, self.place.path("moved"))
                os.symlink(self.place.path("victim"), at)
            return at
        self.check(change, lambda self, at, code, text: self.precious() or self.snapshot_is_whole() or
                   (at and code != 1 and os.path.exists(self.place.path("moved/one")) and "exit code %d" % code))

    def test_the_source_becomes_a_link(self):
        def change(self):
            at = self.here()
            if at:
                os.rename(at, self.place.path("moved"))
                os.symlink(self.place.path("victim"), at)
            return at
        self.check(change, lambda self, at, code, text: self.precious() or self.snapshot_is_whole())

    def test_a_file_is_replaced(self):
        def change(self):
            at = self.here("a", "one")
            if at:
                with open(self.place.path("new"), "wb") as f:
                    f.write(b"new content")
                os.rename(self.place.path("new"), at)
            return at
        self.check(change, lambda self, at, code, text: self.snapshot_is_whole() or
                   (at and (code != 1 or "changed" not in text) and "exit code %d" % code) or
                   (at and not self.here("a", "one") and "the new file has gone") or
                   (at and open(self.here("a", "one"), "rb").read() != b"new content" and "the new file has gone"), is_file=True)

    def test_a_file_is_written_to(self):
        def change(self):
            at = self.here("z")
            if at:
                with open(at, "ab") as f:
                    f.write(b"more")
            return at
        self.check(change, lambda self, at, code, text: self.snapshot_is_whole() or
                   (at and code != 1 and "exit code %d" % code) or (at and not self.here("z") and "the changed file has gone"), is_file=True)

    def test_a_file_is_added(self):
        def change(self):
            at = self.here("a")
            if at:
                with open(at + "/added", "wb") as f:
                    f.write(b"added")
            return at
        self.check(change, lambda self, at, code, text: self.snapshot_is_whole() or
                   (at and code != 1 and "exit code %d" % code) or (at and not self.here("a", "added") and "the new file has gone"))

    def test_a_signal(self):
        """It ends the command, which tells where the rest is."""
        self.job = JOBS[1]
        self.job.prepare(self.place)
        points = [c for c in self.job.calls[self.job.begin:] if c[1] != "alloc"]
        for number, _, _ in points if LONG else points[::5]:
            self.place.put(self.job.old)
            code, text = self.stop_at(number, lambda: None, signal.SIGTERM)
            self.assertIn(code, (-signal.SIGTERM, 0), text)
            self.assertIsNone(self.job.judge(), text)
            for name in os.listdir(self.place.dir):
                if TEMPORARY.match(name):
                    self.assertIn(name, text)
                    shutil.rmtree(self.place.path(name))

    def test_a_signal_without_renames(self):
        """The side file is told, too."""
        self.job = Job("many", sources(x={"%03d" % i: b"%d" % i for i in range(500)}), "--rm x", "-f --rm x", "x.lmc", "-d -f -o back x.lmc")
        self.job.prepare(self.place, refuse="renameat2=18")
        first = next(number for number, kind, call in self.job.calls[self.job.begin:] if call == "unlink")
        self.place.put(self.job.old)
        code, text = self.stop_at(first, lambda: None, signal.SIGTERM)
        self.assertEqual(code, -signal.SIGTERM)
        if os.path.exists(self.place.path(".x.lmc-rm")):
            self.assertIn("remove what is left of it, and then ./.x.lmc-rm", text)

    def test_a_removal_begins_while_another_lmc_lists(self):
        """What that has seen of the directory is not all of it."""
        self.job = JOBS[1]
        self.job.prepare(self.place)
        self.place.put(self.job.old)
        args = ["-o", "other.lmc", "x"]
        self.assertEqual(self.place.run(["-T1", *args], logs=True).code, 0)
        with open(self.place.log) as f:
            lines = [line.split() for line in f.read().splitlines()]
        first = next(line for line in lines if line[1] == "open" and line[-1] == "x")
        os.unlink(self.place.path("other.lmc"))

        def change():
            open(self.place.path(".x.lmc-rm"), "w").close()
            os.unlink(self.place.path("x/z"))
        code, text = self.stop_at(int(first[0]), change, args=args)
        self.assertEqual(code, 1)
        self.assertIn(".x.lmc-rm", text)
        self.assertFalse(os.path.exists(self.place.path("other.lmc")))


class Modes(FaultCase):
    """While the command is stopped between its look at a directory and the call that changes its mode, something else comes in its place: a foreign
    directory, or a link to one. That keeps its mode."""

    def at(self, *path):
        for base in ("out/locked", "out", "."):
            for name in sorted(os.listdir(self.place.path(base))) if os.path.isdir(self.place.path(base)) else ():  # temporary ones come first
                full = os.path.join(self.place.dir, base, name, *path)
                if (name in ("x", "out") or TEMPORARY.match(name)) and os.path.lexists(full):
                    return full

    def start(self, **faults):
        env = dict(os.environ, LD_PRELOAD=FAULTS, FAULTS_LOG=self.place.log, **faults)
        return subprocess.Popen([LMC, "-T1", *self.args], cwd=self.place.dir, env=env, stderr=subprocess.PIPE)

    def prepare(self):
        shutil.rmtree(self.place.dir)
        os.mkdir(self.place.dir)
        if os.path.exists(self.place.log):
            os.unlink(self.place.log)
        self.place.put_file("x", {"locked/f": b"f", "z": b"z"})
        self.place.run(["-q", "x"])
        os.mkdir(self.place.path("victim"))
        os.chmod(self.place.path("victim"), 0o500)
        self.make()

    def points(self):
        """The calls after the look, up to the one that changes the mode."""
        self.prepare()
        p = self.start()
        text = p.communicate()[1]
        self.assertEqual(p.returncode, 0, text)
        with open(self.place.log) as f:
            lines = [line.split(" ") for line in f.read().splitlines()]
        points = set()
        for i, line in enumerate(lines):
            if line[2] in ("chmod", "fchmodat"):
                while lines[i - 1][2] not in ("lstat", "fstatat", "stat"):
                    points.add(int(lines[i][0]))
                    i -= 1
                points.add(int(lines[i][0]))
        return sorted(points)

    def check(self, args, make, *path, links_only=False):
        """links_only: a directory that comes into a temporary one is removed with that."""
        self.args, self.make, n = args.split(), make, 0
        for number in self.points():
            for is_link in (True,) if links_only else (False, True):
                self.prepare()
                p = self.start(FAULTS_AT=str(number), FAULTS_HOW="stop")
                _, status = os.waitpid(p.pid, os.WUNTRACED)
                self.assertTrue(os.WIFSTOPPED(status))
                victim, place = os.open(self.place.path("victim"), os.O_PATH), self.at(*path)
                if place and is_link:
                    os.rename(place, self.place.path("moved"))
                    os.symlink(self.place.path("victim"), place)
                elif place:
                    exchange(place, self.place.path("victim"))
                n += bool(place)
                os.kill(p.pid, signal.SIGCONT)
                text = p.communicate()[1].decode()
                mode = os.fstat(victim).st_mode & 0o777
                os.close(victim)
                self.assertEqual(mode, 0o500, "%d, is_link %d: %s" % (number, is_link, text))
        self.assertGreater(n, 1)

    def test_directory_below_a_replaced_one(self):
        self.check("-d -f -o x x.lmc", lambda: os.chmod(self.place.path("x/locked"), 0), "locked")

    def test_replaced_directory(self):
        self.check("-d -f -o x x.lmc", lambda: os.chmod(self.place.path("x"), 0o555))

    def test_part(self):
        self.check("-d -o out x.lmc locked/f", lambda: os.mkdir(self.place.path("out")), "locked", links_only=True)

    def test_part_of_a_directory_that_exists(self):
        self.check("-d -o out x.lmc locked/f", lambda: os.makedirs(self.place.path("out/locked")), "locked", links_only=True)


class Targets(FaultCase):
    def test_a_target_becomes_a_link(self):
        """The temporary directory of parts is in the target, and goes with it, whether or not the target's name leads there."""
        args = ["-d", "-f", "-o", "O", "x.lmc", "*"]
        self.place.put({})
        self.place.put_file("x", FILES)
        self.place.run(["x"])
        env = dict(os.environ, LD_PRELOAD=FAULTS, FAULTS_LOG=self.place.log)

        def begin():
            for name in "O", "victim", "moved":
                full = self.place.path(name)
                os.unlink(full) if os.path.islink(full) else shutil.rmtree(full, ignore_errors=True)
            for name in "O", "victim":
                self.place.put_file(name, {"mine": b"precious"})

        begin()
        subprocess.run([LMC, "-T1", *args], cwd=self.place.dir, env=env, check=True)
        with open(self.place.log) as f:
            calls = [line.split(" ") for line in f.read().splitlines()]
        first = next(int(c[0]) for c in calls if c[2] == "mkdir" and TEMPORARY.match(os.path.basename(c[4])))
        points = [int(c[0]) for c in calls if int(c[0]) > first and c[1] != "alloc"]
        self.assertGreater(len(points), 20)
        complaints = []
        for number in points if LONG else points[::5]:
            begin()
            p = subprocess.Popen([LMC, "-T1", *args], cwd=self.place.dir, env={**env, "FAULTS_AT": str(number), "FAULTS_HOW": "stop"}, stderr=subprocess.PIPE)
            _, status = os.waitpid(p.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.rename(self.place.path("O"), self.place.path("moved"))
                os.symlink("victim", self.place.path("O"))
                os.kill(p.pid, signal.SIGCONT)
                text = p.stderr.read().decode()
                _, status = os.waitpid(p.pid, 0)
            else:
                text = p.stderr.read().decode()
            p.returncode = os.waitstatus_to_exitcode(status)
            p.stderr.close()
            left = [name for d in ("moved", "victim") if os.path.isdir(self.place.path(d)) for name in os.listdir(self.place.path(d)) if TEMPORARY.match(name)]
            if left or os.listdir(self.place.path("victim")) != ["mine"] or p.returncode not in (0, 1):
                complaints.append("%d: %s %s %s" % (number, left, p.returncode, text))
        self.complain(complaints, len(points))


class Exchanged(Case):
    """Directories, and files, are exchanged in a loop while the command removes."""
    ROUNDS = 200 if LONG else 5

    def exchange_while(self, args, last, pairs):
        """Exchanges the pairs (in the source, elsewhere) from the time that its last file has gone from there: so the source was compared. It may
        have its own name then, or a temporary one."""
        p = subprocess.Popen([LMC, "-q", *args], cwd=self.dir, stderr=subprocess.DEVNULL)
        n, source = 0, None
        while p.poll() is None:
            if source is None and not os.path.lexists(self.path(last)):
                source = "D" if os.path.exists(self.path("D")) else next((name for name in os.listdir(self.dir) if TEMPORARY.match(name)), None)
            if source:
                for a, b in pairs:
                    n += exchange(self.path(source + a), self.path(b)) == 0
        return n

    def check(self, args, last):
        total = 0
        for k in range(self.ROUNDS):
            for name in os.listdir(self.dir):
                shutil.rmtree(self.path(name)) if os.path.isdir(self.path(name)) and not os.path.islink(self.path(name)) else os.unlink(self.path(name))
            names = ["%02d" % i for i in range(20)]
            for name in names:
                self.write("D/sub/" + name, b"theirs " + name.encode())
                self.write("victim/" + name, b"precious")
                self.write("other/" + name, b"another " + name.encode())
                self.write("D/z" + name, b"z" + name.encode())
            for i in range(300):  # the time in which the exchange begins
                self.write("D/zzz%03d" % i, b"")
            os.symlink(self.path("victim"), self.path("elsewhere"))
            total += self.exchange_while(args, last, [("/sub", "elsewhere"), *(("/z" + name, "other/" + name) for name in names[::4])])
            self.assertEqual(sorted(os.listdir(self.path("victim"))), names)
            found = set()
            for base, _, files in os.walk(self.dir):
                for name in files:
                    if not os.path.islink(os.path.join(base, name)):
                        with open(os.path.join(base, name), "rb") as f:
                            found.add(f.read(20))
            self.assertLessEqual({b"another " + name.encode() for name in names}, found)
        self.assertGreater(total, 0)
        for name in os.listdir(self.dir):
            if TEMPORARY.match(name):
                shutil.rmtree(self.path(name))

    def test_compress(self):
        self.check(["--rm", "D"], "D/zzz299")

    def test_series(self):
        self.check(["series", "s", "add", "--rm", "D"], "D/zzz299")


class Refused(Case):
    def test_links(self):
        """Only the link would go: a cache of a hub has links to all files."""
        self.write("blobs/1", b"weights" * 1000)
        os.makedirs(self.path("snapshot"))
        os.symlink("../blobs/1", self.path("snapshot/model"))
        self.lmc("blobs/1", "-o", "model.lmc")
        os.symlink("../model.lmc", self.path("snapshot/packed.lmc"))
        before = self.tree()
        for args in (("--rm", "snapshot/model"), ("-f", "--rm", "snapshot/model"), ("-d", "--rm", "snapshot/packed.lmc"), ("-r", "--rm", "snapshot"),
                     ("-rd", "--rm", "snapshot"), ("--rm", "snapshot/model", "blobs/1"), ("series", "s", "add", "--rm", "snapshot/model")):
            self.lmc(*args, code=1, says="is a link")
            self.assertEqual(self.tree(), before, args)
        self.lmc("snapshot/model")
        self.lmc("--rm", "blobs/1")

    def test_dereference(self):
        """What links lead to is not removed."""
        self.write("elsewhere/f", b"precious")
        self.write("d/x", b"x")
        os.symlink("../elsewhere", self.path("d/l"))
        before = self.tree()
        for args in (("--rm", "d"), ("series", "s", "add", "--rm", "d"), ("series", "s", "watch", "--once", "--rm", ".")):
            self.lmc(*args, "--dereference", code=2, says="--rm does not remove what links lead to")
        self.assertEqual(self.tree(), before)

    def test_working_directory(self):
        for args in (("-o", "../x.lmc", "."), ("-o", "../x.lmc", "../d")):
            self.write("d/a", b"a")
            p = subprocess.run([LMC, "-f", "--rm", *args], cwd=self.path("d"), stderr=subprocess.PIPE)
            self.assertEqual(p.returncode, args[-1] == ".", p.stderr)
            self.assertEqual(os.path.exists(self.path("d/a")), args[-1] == ".")

    def test_unwritable(self):
        """A directory that cannot be emptied is found before anything is removed; then the same command can be given again."""
        self.write("d/a/f", b"f")
        self.write("d/z", b"z")
        os.chmod(self.path("d/a"), 0o555)
        env = {}
        if os.geteuid() == 0:
            for path in ("", "d", "d/a", "d/a/f", "d/z"):
                os.chown(self.path(path), 65534, 65534)
            os.chmod(self.dir, 0o755)
            shutil.copy(LMC, self.path("program"))
            os.chmod(self.path("program"), 0o755)
            env = dict(user=65534, group=65534, extra_groups=[])
        program = self.path("program") if env else LMC

        def run(*args):
            return subprocess.run([program, *args], cwd=self.dir, stderr=subprocess.PIPE, **env)
        try:
            p = run("--rm", "d")
        except PermissionError:
            self.skipTest("others may not run the program here")
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"d/a: what is in it cannot be removed, so nothing is", p.stderr)
        self.assertEqual((self.read("d/a/f"), self.read("d/z")), (b"f", b"z"))
        self.assertEqual(run("--rm", "d").returncode, 1)  # the snapshot is there
        os.chmod(self.path("d/a"), 0o755)
        self.assertEqual(run("-f", "--rm", "d").returncode, 0)
        self.lmc("-d", "d.lmc")
        self.assertEqual((self.read("d/a/f"), self.read("d/z")), (b"f", b"z"))

    def test_mounts(self):
        """A mount point cannot be renamed, and what is mounted below the source is another file system."""
        for at in ("d", "d/m"):
            self.write("d/a", b"a")
            os.makedirs(self.path(at), exist_ok=True)
            if not mount("-t", "tmpfs", "none", self.path(at)):
                self.skipTest("cannot be mounted")
            try:
                self.write(at + "/b", b"b")
                before = self.tree("d")
                self.lmc("-f", "--rm", "d", code=1)
                self.assertEqual(self.tree("d"), before)
                self.lmc("-f", "--rm", "d", code=1)
                self.assertEqual(self.tree("d"), before)
            finally:
                subprocess.run(["umount", self.path(at)], check=True)

    def test_mounts_of_the_same_file_system(self):
        """They have the device of the source; what is mounted has another place, too."""
        self.write("d/a", b"a")
        self.write("d/m/f", b"f")
        self.lmc("d", "-o", "old.lmc")
        self.write("elsewhere/f", b"precious")
        for at, what in (("d", "d"), ("d/m", "elsewhere"), ("d/a", "elsewhere/f")):
            if not mount("--bind", self.path(what), self.path(at)):
                self.skipTest("cannot be mounted")
            try:
                before = self.tree("d")
                self.lmc("-f", "--rm", "d", code=1, says=at + ": is a mount point")
                if at != "d":
                    self.lmc("-d", "-f", "-o", "d", "old.lmc", code=1, says="is mounted at '%s'" % at[2:])
                self.assertEqual((self.tree("d"), self.read("elsewhere/f")), (before, b"precious"))
            finally:
                subprocess.run(["umount", self.path(at)], check=True)

    def test_sticky_directory(self):
        """A file of somebody else can be linked there, but neither the file nor the link could be removed."""
        if os.geteuid():
            self.skipTest("only root can run lmc as somebody else")
        self.write("shared/f", b"f")
        os.mkdir(self.path("out"))
        shutil.copy(LMC, self.path("program"))
        for path, mode in (("", 0o755), ("program", 0o755), ("shared/f", 0o666), ("shared", 0o1777), ("out", 0o777)):
            os.chmod(self.path(path), mode)
        try:
            p = subprocess.run([self.path("program"), "--rm", "-o", "out/f.lmc", "shared/f"], cwd=self.dir, stderr=subprocess.PIPE, user=65534, group=65534,
                               extra_groups=[])
        except PermissionError:
            self.skipTest("others may not run the program here")
        self.assertEqual(p.returncode, 1)
        self.assertIn(b"shared/f: cannot remove it: Operation not permitted", p.stderr)
        self.assertEqual(os.listdir(self.path("shared")), ["f"])

    def test_overlay(self):
        """A directory of a lower layer is removed in its place, and a kill leaves a side file."""
        for name in ("lower/x/a", "lower/x/b/c"):
            self.write(name, name.encode())
        for name in ("upper", "work", "all"):
            os.mkdir(self.path(name))
        # not on an overlay, as the upper layer of one cannot be there
        if not mount("-t", "overlay", "overlay", "-o", "redirect_dir=off,lowerdir=%s,upperdir=%s,workdir=%s" % tuple(map(self.path, ("lower", "upper", "work"))),
                     self.path("all")):
            self.skipTest("cannot be mounted")
        try:
            self.lmc("all/x")
            self.lmc("-f", "--rm", "all/x")
            self.assertEqual(self.tree("all"), ["x.lmc"])
        finally:
            subprocess.run(["umount", self.path("all")], check=True)

    def test_side_file(self):
        self.write("d/x", b"x")
        self.write(".d.lmc-rm", b"")
        for args in (("d",), ("--rm", "d"), ("series", "s", "add", "d"), (".", "-o", "../never.lmc")):
            self.lmc(*args, code=1, says=".d.lmc-rm")

    def test_what_is_left_is_told(self):
        os.mkdir(self.path(".lmc-abc123"))
        self.lmc("--rm", "d", code=1, says=".lmc-abc123: looks like what a killed lmc has left")
        self.lmc("series", "s", "add", "--rm", "d", code=1, says=".lmc-abc123: looks like what a killed lmc has left")
        os.rmdir(self.path(".lmc-abc123"))

    def test_deep_and_hard_links(self):
        deep = "d/" + "/".join("x" * 20 for _ in range(120))
        self.write(deep + "/f", b"f")
        self.write("d/a", b"a")
        os.link(self.path("d/a"), self.path("d/b"))
        os.link(self.path("d/a"), self.path("outside"))
        subprocess.run(["sh", "-c", 'ulimit -n 16; exec "$0" -T1 --rm d', LMC], cwd=self.dir, check=True)
        self.assertEqual(self.tree(), ["d.lmc", "outside"])


if __name__ == "__main__":
    sys.exit(case.main())
