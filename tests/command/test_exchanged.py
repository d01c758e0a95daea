#!/usr/bin/env python3
"""Each verb that writes, while another program exchanges the directory of its output for a link to another directory, or back.

Usage: test_exchanged.py [--brief|--long] [-v] [NAME...]      as case.py says

The output is in "in", or below it. The link leads to "victim", which has the same files. Wherever the path leads at the moment that counts, of the
two directories one has the new content and the other the old one, whole, or an error leaves the old one in both: no file is replaced or removed
in one because of what was done in the other, and nothing temporary is left in either. Where a directory below the output's is exchanged, "victim"
stays as it was. The command is stopped at each of its calls (faults.c), and the names are exchanged there; and they are exchanged in a loop.
Without --long, a part of that. Needs Linux and a C compiler.
SPDX-License-Identifier: MIT
"""
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

from case import LMC, LONG, Case, main
from test_filesystems import FAULTS, compile_tools, model, state

LIBC = ctypes.CDLL(None, use_errno=True)
IS_BRIEF = "--brief" in sys.argv
ROUNDS = 200 if LONG else 2 if IS_BRIEF else 4
POINTS = None if LONG else 4 if IS_BRIEF else 10


def exchange(a, b):
    return LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2)


class Job:
    """args: the command; make: commands before it, which make what is in "in" when it begins. parts: after an error, files may be old or new."""

    def __init__(self, args, *make, parts=False, at="in"):
        self.args, self.make, self.parts, self.at = args.split(), [x.split() for x in make], parts, at


TREE = "-d -q -o in/t t1.lmc"
SERIES = "series in/s add -q t1", "series in/s add -q t2"
JOBS = {
    "file": Job("-f -o in/f t2/m", "-o in/f t1/m"),
    "new file": Job("-o in/f t2/m"),
    "directory": Job("-f -o in/f t2", "-o in/f t1"),
    "delta": Job("--base t1 -f -o in/f t2", "-o in/f t1"),
    "with --rm": Job("--rm in/t", TREE, parts=True),
    "restored file": Job("-d -f -o in/m m2.lmc", "-d -o in/m m1.lmc"),
    "restored tree": Job("-d -f -o in/t t2.lmc", TREE),
    "new tree": Job("-d -o in/t t2.lmc"),
    "parts": Job("-d -f -o in/t t2.lmc sub/g m sub/empty", TREE, parts=True),
    "new parts": Job("-d -o in/t t2.lmc m sub/g", TREE.replace("t1.lmc", "t1.lmc sub/h")),
    "cat": Job("cat --safetensors -f -o in/c t2.lmc", "cat --safetensors -o in/c t1.lmc"),
    "rebase": Job("rebase -f -o in/f --base t1 --onto none d.lmc", "-o in/f t1"),
    "fold": Job("fold -f -o in/f d.lmc d3.lmc --base t1", "-o in/f t1"),
    "salvage": Job("salvage -f -o in/t t2.lmc", "salvage -q -o in/t t1.lmc"),
    "apply": Job("apply -q d.lmc in/t", TREE),
    "apply to a file": Job("apply -q dm.lmc in/m", "-d -o in/m m1.lmc"),
    "apply beside": Job("apply -q d4.lmc in/t", TREE),
    "series add": Job("series in/s add -q t3", *SERIES),
    "series restore": Job("series s restore -q -f t2 -o in/t", TREE),
    "series prune": Job("series in/s prune -q t1", *SERIES),
    "series gc": Job("series in/s gc -q", *SERIES, "series in/s prune -q t1"),
    "series gc of the last": Job("series in/s gc -q", *SERIES, "series in/s prune -q t2"),
    "below a replaced tree": Job("-d -f -o in/t t2.lmc", TREE, at="in/t/sub"),
    "below parts": Job("-d -f -o in/t t2.lmc sub/g m sub/empty", TREE, at="in/t/sub"),
    "below an applied tree": Job("apply -q d.lmc in/t", TREE, at="in/t/sub"),
    "below -r": Job("-r -q --hash -f in/t", TREE, "-r -q in/t", at="in/t/sub"),
    "below -r --rm": Job("-r --rm -q in/t", TREE, at="in/t/sub"),
    "below -d -r --rm": Job("-d -r --rm -q in/t", TREE, "-r --rm -q in/t", at="in/t/sub"),
    "series rebuild": Job("series in/s rebuild -q", *SERIES),
}


def content(root):
    """state(), but of the lists of series only what they say."""
    found = state(root)
    for path, data in found.items():
        if os.path.basename(path).startswith("series.json"):
            found[path] = [(x["name"], x.get("state"), x.get("fingerprint")) for x in json.loads(data)["snapshots"]]
    return found


class Stopped(Case):
    def make_data(self):
        for k in (1, 2, 3, 4):
            self.write("t%d/m" % k, model(k))
            self.write("t%d/sub/g" % k, b"%d" % k * 1000)
            self.write("t%d/sub/h" % k, b"same")
            os.makedirs(self.path("t%d/sub/empty" % k))
        os.rename(self.path("t4/sub/g"), self.path("t4/sub/moved"))
        for args in ("t1", "t2", "t1/m -o m1.lmc", "t2/m -o m2.lmc", "--base t1 t2 -o d.lmc", "--base t1 t4 -o d4.lmc", "--base t1/m t2/m -o dm.lmc",
                     "--base t2 t3 -o d3.lmc", "series s add -q t1", "series s add -q t2"):
            self.lmc("-T1", *args.split()) if not args.startswith("series") else self.lmc(*args.split())

    def begin(self):
        """Makes "in" and "victim" anew, and "elsewhere", a link to "victim"."""
        for name in "in", "victim", "elsewhere":
            full = self.path(name)
            os.unlink(full) if os.path.islink(full) else shutil.rmtree(full, ignore_errors=True)
        subprocess.run(["cp", "-a", self.path("template"), self.path("in")], check=True)
        subprocess.run(["cp", "-a", self.path("template" + self.job.at[2:]), self.path("victim")], check=True)
        os.symlink(self.path("victim"), self.path("elsewhere"))

    def prepare(self, job):
        self.job = job
        os.makedirs(self.path("in"))
        for args in job.make:
            self.lmc(*args)
        os.rename(self.path("in"), self.path("template"))
        self.begin()
        p = self.start(FAULTS_LOG=self.path("log"))
        text = p.communicate()[1].decode()
        self.assertEqual(p.returncode, 0, text)
        with open(self.path("log")) as f:
            lines = [line.split(" ") for line in f.read().splitlines()]
        os.unlink(self.path("log"))
        self.calls = [int(line[0]) for line in lines if line[1] not in ("alloc", "thread") and not (line[1] == "write" and line[2] == "write")]
        self.old, self.new = content(self.path("template" + job.at[2:])), content(self.path(job.at))
        self.assertNotEqual(self.old, self.new)

    def start(self, **env):
        return subprocess.Popen([LMC, *(["-T1"] if self.job.args[0] != "series" else []), *self.job.args], cwd=self.dir, stderr=subprocess.PIPE,
                                env=dict(os.environ, LD_PRELOAD=FAULTS, **env) if env else None)

    def is_between(self, found):
        """Whether each file is the old or the new one."""
        return all(found.get(path) in (self.old.get(path), self.new.get(path)) for path in {**found, **self.old, **self.new})

    def exchange(self):
        exchange(self.path(self.job.at), self.path("elsewhere"))

    def judge(self, rc, text):
        if self.job.at != "in":  # below a directory no link is followed
            found = content(self.path("victim"))
            left = [name for name in os.listdir(self.path("in")) if name.startswith(".") and name not in text and "half applied" not in text]
            return None if found == self.old and rc in (0, 1, 3, 4) and not left else "exit %d: %s, %s: %s" % (rc, sorted(found), left, text)
        if os.path.islink(self.path("in")):
            self.exchange()
        states = [content(self.path(name)) for name in ("in", "victim")]
        n_new, n_old = (sum(found == x for found in states) for x in (self.new, self.old))
        if rc == 0 and n_new and n_old and (self.old == self.new or n_new == n_old == 1):
            return None
        if rc in (1, 3, 4) and n_old and (n_new + n_old >= 2 or self.job.parts and all(map(self.is_between, states))):
            return None
        more = [{p: (x or b"")[:9] if isinstance(x, bytes) else x for p, x in found.items() if x != self.old.get(p)} or "-" for found in states]
        lost = [sorted(set(self.old) - set(found)) for found in states]
        return "exit %d, not old: %s, gone: %s: %s" % (rc, more, lost, text)

    def check(self, name):
        self.make_data()
        self.prepare(JOBS[name])
        complaints, n = [], 0
        points = self.calls[::max(1, len(self.calls) // POINTS)] if POINTS else self.calls
        for k, number in enumerate(points):
            self.begin()
            named = {"FAULTS_NAMED": "1"} if k % 2 else {}
            p = self.start(FAULTS_AT=str(number), FAULTS_HOW="stop", **named)
            _, status = os.waitpid(p.pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self.exchange()
                os.kill(p.pid, signal.SIGCONT)
                text = p.communicate()[1].decode()
                n += 1
            else:
                p.returncode, text = os.waitstatus_to_exitcode(status), p.stderr.read().decode()
                p.stderr.close()
            wrong = self.judge(p.returncode, text)
            complaints += ["call %d: %s" % (number, wrong)] if wrong else []
        self.assertGreater(n, len(points) // 2)
        for k in range(ROUNDS):
            self.begin()
            p = self.start(**({"FAULTS_NAMED": "1"} if k % 2 else {}))
            for i in itertools.count():
                self.exchange()
                if i % 8 == 0 and p.poll() is not None:
                    break
            wrong = self.judge(p.returncode, p.stderr.read().decode())
            p.stderr.close()
            complaints += ["round %d: %s" % (k, wrong)] if wrong else []
        self.begin()  # some errors leave something, and name it
        self.assertEqual(complaints, [], "\n".join(["%d complaints" % len(complaints), *complaints[:5]]))


class Exchanged(Stopped):
    pass


class Fifos(Stopped):
    """A file that is read becomes a FIFO: opening it waited for ever for another program to write to it."""

    JOBS = {"source": ("--rm t", "t/sub/g"), "only file of a source": ("-r --rm t", "t/m"), "base": ("--base t t2 -o x", "t/sub/g"),
            "base of a file": ("--base t/m t2/m -o x", "t/m"), "base when restoring": ("-d --base t d.lmc -o x", "t/m"),
            "snapshot": ("-d --base t1.lmc d.lmc -o x", "t1.lmc"), "verified": ("verify t1.lmc d.lmc", "t1.lmc"),
            "restored": ("-d -f t1.lmc", "t1.lmc"), "restored and removed": ("-d -f --rm t1.lmc", "t1.lmc"),
            "delta that is applied": ("apply -q dm.lmc t/m", "dm.lmc"), "target": ("apply -q dm.lmc t/m", "t/m")}

    def begin(self):
        for name in ("t", "x", "t.lmc", "kept", *self.snapshots):
            full = self.path(name)
            shutil.rmtree(full) if os.path.isdir(full) else os.path.lexists(full) and os.unlink(full)
        subprocess.run(["cp", "-a", self.path("t1"), self.path("t")], check=True)
        for name, data in self.snapshots.items():
            self.write(name, data)

    def check_fifo(self, name):
        self.make_data()
        self.snapshots = {name: self.read(name) for name in ("t1.lmc", "dm.lmc")}
        args, path = self.JOBS[name]
        self.job = Job(args)
        self.begin()
        data = self.read(path)
        p = self.start(FAULTS_LOG=self.path("log"))
        self.assertEqual(p.communicate()[1], b"")
        with open(self.path("log")) as f:
            calls = [int(line[0]) for line in (line.split(" ") for line in f.read().splitlines()) if line[1] not in ("alloc", "thread", "write")]
        for number in calls[::max(1, len(calls) // POINTS)] if POINTS else calls:
            self.begin()
            p = self.start(FAULTS_AT=str(number), FAULTS_HOW="stop")
            _, status = os.waitpid(p.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                p.returncode = os.waitstatus_to_exitcode(status)
                p.stderr.close()
                continue
            if os.path.exists(self.path(path)):
                os.rename(self.path(path), self.path("kept"))
                os.mkfifo(self.path(path))
            os.kill(p.pid, signal.SIGCONT)
            try:
                text = p.communicate(timeout=60)[1].decode()
            except subprocess.TimeoutExpired:
                p.kill()
                self.fail("call %d of %s: it waits" % (number, args))
            self.assertIn(p.returncode, (0, 1, 3, 4), text)
            self.assertTrue(text or p.returncode == 0)
            if os.path.exists(self.path("kept")) and name != "target": # apply writes in place; what it has not finished is in its side file
                self.assertEqual(self.read("kept"), data)


for job_name in Fifos.JOBS:
    def wait_not(self, name=job_name):
        self.check_fifo(name)
    setattr(Fifos, "test_" + job_name.replace(" ", "_"), wait_not)
for job_name in JOBS:
    def run_it(self, name=job_name):
        self.check(name)
    setattr(Exchanged, "test_" + job_name.replace(" ", "_").replace("-", ""), run_it)


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        print("SKIPPED all: needs Linux\n0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    compile_tools()
    sys.exit(main())
