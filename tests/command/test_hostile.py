#!/usr/bin/env python3
"""Tests of the command with small files that need much work (hostile.py). Usage: test_hostile.py [--long] [-v] [NAME...]; as case.py says.

Time is not measured but limited, in seconds of CPU. Without the command's own limits these files would cost ten times that and more.
SPDX-License-Identifier: MIT
"""
import fcntl
import filecmp
import json
import os
import resource
import struct
import subprocess
import sys
import threading
import time

import hostile
from hostile import encoder
from torch_files import metadata, torch_file
from case import LMC, SANITIZED, Case, gguf, main, npy, safetensors, safetensors_raw

LONG = "--long" in sys.argv
if LONG: sys.argv.remove("--long")


def limit(seconds, stack=None, files=None):
    """A function to run before the command: it limits CPU time, stack and descriptors. Sanitizers take three times as long."""
    if SANITIZED: seconds *= 3
    def set_limits():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if stack: resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
        if files: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    return set_limits


class Hostile(Case):
    def call(self, *args, seconds=4, code=0, stack=None, files=None, env=None):
        """(standard output, standard error) as bytes."""
        p = subprocess.run([LMC, *args], cwd=self.dir, capture_output=True, preexec_fn=limit(seconds, stack, files), stdin=subprocess.DEVNULL, env=env)
        if code is not None: self.assertEqual(p.returncode, code, (args, p.stderr[-500:]))
        return p.stdout, p.stderr

    def clear(self, *names):
        for name in names:
            subprocess.run(["rm", "-rf", self.path(name)], check=True)

    def make_series(self, n):
        entries = []
        os.mkdir(self.path("s"))
        for k, (data, content) in enumerate(hostile.links(n)):
            self.write("s/c%06d.lmc" % k, data)
            entries.append(json.dumps({"name": "c%06d" % k, "state": "kept", "time": 1, "size": 64,
                                       "fingerprint": hostile.fingerprint_of_snapshot([(b"", hostile.fingerprint_of_file(content))]).hex()}))
        text = ('{"lmc_series": 1, "every": 1000000, "snapshots": [\n%s\n],\n' % ",\n".join(entries)).encode()
        self.write("s/series.json", text + b'"crc32c": "%08x"}\n' % hostile.crc(text))
        self.n, self.last = n, content


class Time(Hostile):
    def each_verb(self, name, code):
        """All verbs that read a snapshot; only a restore to a file need not decode again."""
        for args in (("-T1", "-t"), ("-T1", "-d", "-c"), ("salvage", "-q", "-o", "s"), ("verify",), ("stats",), ("diff", "none.lmc"), ("rebase", "--onto", "none", "-o", "r")):
            said = self.call(*args, name, code=code if args[0] != "salvage" else None)[1]
            if code: self.assertTrue(b"exceeds a limit" in said or args[0] == "salvage", said)
            self.clear("s", "r")

    def test_own_predictions_by_turns(self):
        """Each byte is predicted by another block of 4 MiB than the one before: 10 bytes of file for 4 MiB of work."""
        self.write("none.lmc", hostile.segments_of_one_byte(100, 1))
        self.write("own.lmc", hostile.segments_of_one_byte(40000, 2))
        self.each_verb("own.lmc", 0)
        self.write("many.lmc", hostile.segments_of_one_byte(40000, 6))  # more than are kept: a limit ends it
        self.each_verb("many.lmc", 1)
        self.call("-d", "-o", "restored", "many.lmc")  # bytes come from the restored file, so nothing is decoded again
        self.assertEqual(os.path.getsize(self.path("restored")), 6 * hostile.LARGEST + 40000)

    def test_predictions_by_turns(self):
        for blocks, code in (2, 0), (9, 1):
            base, delta = hostile.delta_of_one_byte(40000, blocks)
            self.write("base.lmc", base)
            self.write("delta.lmc", delta)
            for args in (("-T1", "-t"), ("-d", "-c"), ("salvage", "-q", "-o", "s"), ("rebase", "--onto", "none", "-o", "r")):
                self.call(*args, "--base", "base.lmc", "delta.lmc", code=code)
                self.clear("s", "r")

    def test_salvage_does_not_call_it_damage(self):
        """Blocks that need too much work were "damaged", or needed "another base", with exit code 3. Only what is damaged is."""
        self.write("many.lmc", hostile.segments_of_one_byte(40000, 6))
        for name, data in zip(("base.lmc", "delta.lmc"), hostile.delta_of_one_byte(40000, 9)): self.write(name, data)
        *lower, top = hostile.chain_of_far_bytes((20,), 20)
        for name, data in zip(("a.lmc", "b.lmc", "both.lmc", "middle.lmc"), lower): self.write(name, data)
        self.write("top.lmc", top)
        for args in (("many.lmc",), ("--base", "base.lmc", "delta.lmc"), ("--no-search", "--base", "both.lmc", "--base", "middle.lmc", "top.lmc"),
                     ("--no-search", "--base", "a.lmc", "--base", "b.lmc", "--base", "middle.lmc", "top.lmc")):
            out, said = self.call("salvage", "-o", "s", *args, code=1)
            self.assertIn(b"bytes are not decoded, as that exceeds a limit of work", said)
            with open(self.path("s/salvage.json")) as f: report = json.load(f)
            self.assertEqual({x["reason"] for file in report["files"] for x in file["lost"]}, {"not decoded, as that exceeds a limit of work"}, args)
            self.clear("s")
        data = bytearray(hostile.segments_of_one_byte(40000, 6))
        data[64 + data[64:].index(b"RUN ") + 40] ^= 1  # what describes the first run
        self.write("damaged.lmc", data)
        self.assertNotIn(b"limit of work", self.call("salvage", "-o", "s", "damaged.lmc", code=3)[1])
        self.clear("s")

    def refuse(self, *args):
        said = self.call(*args, code=1)[1]
        self.assertIn(b"exceeds a limit", said, args)
        self.clear("o")

    def test_members_share_one_account(self):
        """A verb that reads files or tensors one by one has one account for all: each alone is within the limit, but not all."""
        self.write("own.lmc", hostile.files_of_far_bytes(60, 5)[0])
        self.write("tensors.lmc", hostile.tensors_of_far_bytes(60, 5))
        for name, data in zip(("base.lmc", "delta.lmc"), hostile.files_of_far_bytes(60, 5, has_base=True)):
            self.write(name, data)
        self.refuse("rebase", "--onto", "none", "-o", "o", "own.lmc")
        self.refuse("rebase", "--onto", "none", "--base", "base.lmc", "-o", "o", "delta.lmc")
        self.refuse("fold", "--base", "base.lmc", "-o", "o", "delta.lmc")
        self.refuse("cat", "--safetensors", "-o", "o", "tensors.lmc", "t*")
        self.write("few.lmc", hostile.tensors_of_far_bytes(60, 4))  # as many blocks as are kept: each is decoded once
        self.call("cat", "--safetensors", "-o", "o", "few.lmc", "t*")
        self.clear("o")
        self.call("rebase", "--onto", "none", "-o", "o", "few.lmc")

    def write_chain(self, shards, deltas):
        """Returns the options that name all but the last delta, whose name is next."""
        for kind, files in ("shards/s", shards), ("d", deltas):
            for i, data in enumerate(files): self.write("%s%02d.lmc" % (kind, i), data)
        return ["--no-search", "--base", "shards"] + [x for i in range(len(deltas) - 1) for x in ("--base", "d%02d.lmc" % i)] + ["d%02d.lmc" % (len(deltas) - 1)]

    def test_limit_of_work_through_shards(self):
        """A chain has one limit (spec R9-5), also if shards are the base together: 64 blocks of 4 MiB for each snapshot that is read by its index, two
        or three here. Each shard had its own limit, and the delta against them, too: 64 blocks for each of 64 blocks."""
        sizes = 10, 11, 18, 19
        a, b, both, middle, *tops = hostile.chain_of_far_bytes(sizes, 20)
        for name, data in ("a", a), ("b", b), ("both", both), ("middle", middle), *zip(map(str, sizes), tops):
            self.write(name + ".lmc", data)
        for bases in ["both.lmc"], ["a.lmc", "b.lmc"]:
            # what finds the new base of no use writes it once more without it, with a new account: these verbs refused 10
            for n, *verb in (10, "-t"), (10, "-d", "-o", "o"), (10, "verify"), (18, "rebase", "--onto", "none", "-o", "o"), (18, "stats"), \
                    (18, "rebase", "--onto", bases[0], "-q", "-o", "o"), (18, "fold", "-q", "-o", "o", "middle.lmc"):
                options = [*verb, "-T1", "--no-search"] + [x for base in [*bases, "middle.lmc"] for x in ("--base", base)]
                self.call(*options, "%d.lmc" % n)
                self.clear("o")
                said = self.call(*options, "%d.lmc" % (n + 1), code=1)[1].decode()
                self.assertRegex(said, r"(both|a)\.lmc: exceeds a limit of work.*restore it by 'lmc -d' to a file")
                self.clear("o")
        self.call("-d", "-q", "both.lmc", "-o", "plain")  # what the message tells to do
        self.call("-d", "-q", "--no-search", "--base", "plain", "middle.lmc", "-o", "middle")
        self.call("-t", "--no-search", "--base", "middle", "19.lmc")

    def test_shards_below_a_chain(self):
        """The limits of deltas and shards multiplied: 11 seconds for 64 of each, 5 seconds for 16."""
        n, seconds = (64, 4) if LONG else (16, 2)
        for verb in ("-t",), ("rebase", "--onto", "none", "-o", "o"):
            said = self.call(*verb, "-T1", *self.write_chain(*hostile.shards_below_a_chain(n, n)), seconds=seconds, code=1)[1]
            self.assertIn(b"exceeds a limit of work", said)

    def test_tensors_of_a_byte_in_any_order(self):
        self.write("a.lmc", hostile.tensors_of_one_byte(1 << 14, 8))
        self.write("b.lmc", hostile.segments_of_one_byte(100, 1))
        self.call("diff", "b.lmc", "a.lmc")
        self.call("stats", "a.lmc")

    def test_directories(self):
        """38,020 directories, of 4 bytes each."""
        self.write("deep.lmc", hostile.deep(20, 1900))
        said = self.call("-d", "-o", "out", "deep.lmc", code=1)[1]
        self.assertIn(b"--max-depth", said)
        said = self.call("-d", "--max-depth", "3000", "--max-files", "38019", "-o", "out", "deep.lmc", seconds=20, code=1)[1]
        self.assertIn(b"--max-files", said)
        self.assertEqual(sorted(os.listdir(self.dir)), ["deep.lmc"])  # all output was removed again
        self.call("-d", "--max-depth", "3000", "--max-files", "38020", "-o", "out", "deep.lmc", seconds=20)
        n = subprocess.run("find out | wc -l", shell=True, cwd=self.dir, capture_output=True, text=True).stdout
        self.assertEqual(int(n), 38021)
        self.clear("out")

    def test_directories_of_parts(self):
        """As many and as deep by a pattern, with and without own entries; no path is looked up from the root."""
        self.write("deep.lmc", hostile.deep(20, 1900))
        said = self.call("-d", "-o", "out", "deep.lmc", "*", code=1)[1]
        self.assertIn(b"--max-depth", said)
        said = self.call("-d", "--max-depth", "3000", "--max-files", "1000", "-o", "out", "deep.lmc", "*", code=1)[1]
        self.assertIn(b"--max-files", said)
        self.assertEqual(sorted(os.listdir(self.dir)), ["deep.lmc"])
        f = hostile.File()
        for i in range(2):
            for depth in range(600):
                path = b"%d" % i + b"/a" * depth
                f.file(b"\1\1\0" + hostile.varint(len(path)) + path, 0, [(path, hostile.fingerprint(2, b"U8", (0,), b""))])
        self.write("entries.lmc", f.done())
        self.call("-d", "--max-depth", "4", "-o", "out", "entries.lmc", "*", code=1)
        self.assertNotIn("out", os.listdir(self.dir))
        self.call("-d", "--max-depth", "2000", "-o", "out", "entries.lmc", "*", seconds=2)
        n = subprocess.run("find out | wc -l", shell=True, cwd=self.dir, capture_output=True, text=True).stdout
        self.assertEqual(int(n), 1201)
        self.clear("out")

    def test_account_of_parts(self):
        """Files of 60 bytes, each byte predicted by another block of 4 MiB than the one before: one account for all of them."""
        for n, code in (1, 0), (100, 1):
            f = hostile.File(own=True)
            f.file(hostile.file_body(5 * hostile.LARGEST, b"a"), hostile.crc(bytes(5 * hostile.LARGEST)), [(b"a", hostile.fingerprint_of_file(bytes(5 * hostile.LARGEST)))])
            f.run(hostile.run_body(5 * hostile.LARGEST, 22), [hostile.zeros(i) for i in range(5)])
            zero = hostile.crc(bytes(60))
            for i in range(n):
                path = b"b%05d" % i
                f.file(hostile.file_body(60, path), zero, [(path, hostile.fingerprint_of_file(bytes(60)))])
                f.run(hostile.run_body(60, 14, 3, [(1, 0, k % 5 * hostile.LARGEST + 5 + k // 5) for k in range(60)]), [hostile.as_predicted(0, 60)])
            self.write("far.lmc", f.done())
            said = self.call("-d", "-o", "out", "far.lmc", "b*", code=code)[1]
            if code: self.assertIn(b"exceeds a limit", said)
            else: self.assertEqual(self.read("out/b00000"), bytes(60))
            self.clear("out")

    def test_metadata_is_read_once(self):
        """All .distcp files of a directory need its .metadata, whether it can be parsed or not: its time counted for each of them."""
        item = torch_file({"w": ("torch.FloatStorage", "0", 6, 0, (6,), (1,))}, {"0": bytes(range(24))})
        n = 300
        for directory, large in ("bad", b"\x80\2" + b"]" * 900_000), ("good", metadata([("w%d" % i, (6,), (0,), i, 1) for i in range(20_000)])):
            self.write(directory + "/.metadata", large)
            for i in range(n):  # by turns with those of other directories
                self.write("%s/%03d.distcp" % (directory, i), item * (1 + i % 3))
                self.write("%s/%03d/.metadata" % (directory, i), metadata([]))
                self.write("%s/%03d/__0_0.distcp" % (directory, i), item)
            self.call("-o", directory + ".lmc", directory)
            for file in directory, directory + ".lmc":
                self.call("-l", file)
                self.call("-l", "--json", file)
                self.call("cat", "--safetensors", "-o", "out", file, code=None)
                self.clear("out")

    def test_metadata_that_is_too_large_to_be_kept(self):
        """What is parsed of three .metadata takes more than 64 MiB: the first one is read again."""
        item = torch_file({"w": ("torch.FloatStorage", "0", 6, 0, (6,), (1,))}, {"0": bytes(range(24))})
        small = metadata([("w", (6,), (0,), 0, len(item))])
        unused = small.index(b"N", small.index(b"planner_data"))
        for i in "d", "d/A", "d/A/A":
            for name in "0", "__0_0":  # before and behind the inner directories; the second is the one that .metadata names
                self.write("%s/%s.distcp" % (i, name), item)
            self.write(i + "/.metadata", small[:unused] + b"(" + b"]" * 900_000 + b"t" + small[unused + 1:])
        for file in "d", "d.lmc":
            found = json.loads(self.call("-l", "--json", file)[0])["files"]
            self.assertEqual([[t["name"] for t in f["tensors"] if t["name"][0] != "@"] for f in found if f["path"].endswith(".distcp")], [["item-1.w"]] * 3 + [["w.w"]] * 3)
            self.call("-f", "d")

    def test_links_to_links(self):
        """n links to a directory of n links stand for n * n files."""
        self.write("t/f", b"x")
        for directory, target in ("t/q", "../d"), ("t/d", "../f"):
            os.mkdir(self.path(directory))
            for i in range(260): os.symlink(target, self.path("%s/%d" % (directory, i)))
        self.call("-o", "t.lmc", "t")
        for where in ("-o", "out"), ("-c",):
            said = self.call("-d", "--dereference", "--max-files", "60", *where, "t.lmc", "q", code=1)[1]
            self.assertIn(b"--max-files", said)
            self.assertNotIn("out", os.listdir(self.dir))
        self.call("-d", "--dereference", "-o", "out", "t.lmc", "./q/7/../7")
        self.assertEqual(sum(len(files) for _, _, files in os.walk(self.path("out"))), 260)
        self.assertEqual(self.read("out/q/7/259"), b"x")
        said = self.call("-d", "--max-files", "519", "-o", "links", "t.lmc", "*", code=1)[1]
        self.assertIn(b"--max-files", said)
        self.call("-d", "--max-files", "520", "-o", "links", "t.lmc", "*")

    def test_links_to_directories(self):
        """Two links in each of 40 directories are 2^39 ways to the file: the number of files from a directory is limited."""
        for i in range(40): os.makedirs(self.path("t/d%02d" % i))
        for i in range(39):
            for name in "ab": os.symlink("../d%02d" % (i + 1), self.path("t/d%02d/%s" % (i, name)))
        self.write("t/d39/f", b"x")
        self.write("x", b"x")
        follow = ("--dereference",) if LONG else ("--dereference", "--max-files", "3000")
        for args in (("-o", "t.lmc", "t"), ("diff", "x", "t"), ("stats", "t"), ("--base", "t", "-o", "t.lmc", "x"), ("series", "s", "add", "t")):
            said = self.call(*args, *follow, seconds=60 if LONG else 4, code=1)[1]
            self.assertIn(b"t: holds more than %d files and directories" % (1000000 if LONG else 3000), said, args)
            self.assertIn(b"--max-files", said)
            self.assertNotIn("t.lmc", os.listdir(self.dir))
        os.mkdir(self.path("w"))
        os.rename(self.path("t"), self.path("w/t"))
        said = self.call("series", "s", "watch", "--once", "--settle", "0", *follow, "w", seconds=60 if LONG else 4, code=None)[1]
        self.assertIn(b"--max-files", said)
        self.call("-o", "t.lmc", "--max-files", "119", "w/t")  # 40 directories, 78 links, a file
        self.call("-f", "-o", "t.lmc", "--max-files", "118", "w/t", code=1)

    def test_links_that_no_path_can_follow(self):
        """Listing went through all links of each path: beyond 40 it said so for each, and then opened each file that it had found."""
        for i in range(60):
            self.write("w/%d/f" % i, b"x")
            for name in "ab":
                os.symlink("../%d" % (i + 1), self.path("w/%d/%s" % (i, name)))
        self.write("w/60/f", b"x")
        said = self.call("--dereference", "--max-files", "3000", "-o", "t.lmc", "w/0", code=1)[1]
        self.assertEqual((said.count(b"\n"), b"--max-files" in said), (1, True), said[:300])

    def test_parts_in_what_is_there(self):
        """Existing directories keep their mode and are not removed; links are not followed; an error removes only what was made."""
        self.write("t/a/b/c/f", b"f")
        self.write("t/a/z", b"z")
        os.chmod(self.path("t/a"), 0o711)
        self.call("-o", "t.lmc", "t")
        self.write("out/a/mine", b"mine")
        os.chmod(self.path("out/a"), 0o750)
        self.write("out/a/z", b"old")
        said = self.call("-d", "-o", "out", "t.lmc", "*", code=1)[1]
        self.assertIn(b"a/z: exists already", said)
        self.assertEqual(sorted(os.listdir(self.path("out/a"))), ["mine", "z"])
        self.call("-d", "-f", "-o", "out", "t.lmc", "*")
        self.assertEqual((self.read("out/a/z"), self.read("out/a/b/c/f"), self.read("out/a/mine")), (b"z", b"f", b"mine"))
        self.assertEqual(os.stat(self.path("out/a")).st_mode & 0o777, 0o750)
        self.assertEqual(os.stat(self.path("out/a/b")).st_mtime_ns, os.stat(self.path("t/a/b")).st_mtime_ns)
        self.clear("out/a/b")
        os.mkdir(self.path("elsewhere"))
        os.symlink("../../elsewhere", self.path("out/a/b"))
        said = self.call("-d", "-f", "-o", "out", "t.lmc", "a/b/c/f", code=1)[1]
        self.assertIn(b"out/a/b: is not a directory", said)
        self.assertEqual(os.listdir(self.path("elsewhere")), [])
        os.symlink("elsewhere", self.path("root"))  # the target itself may be a link
        self.call("-d", "-o", "root", "t.lmc", "a/b")
        self.assertEqual(self.read("elsewhere/a/b/c/f"), b"f")

    def test_modes_of_what_is_made(self):
        """Directories without an entry have the umask's mode, others their own, for any number of directories."""
        for i in range(300):
            self.write("t/%03d/a/f" % i, b"x")
        os.chmod(self.path("t/007/a"), 0o500)
        os.chmod(self.path("t/008"), 0o711)
        self.call("-o", "t.lmc", "t")
        self.call("-d", "-o", "out", "t.lmc")
        for name in "007/a", "007", "008", "100/a":
            self.assertEqual(oct(os.stat(self.path("out/" + name)).st_mode), oct(os.stat(self.path("t/" + name)).st_mode), name)
        os.chmod(self.path("t/007/a"), 0o700), os.chmod(self.path("out/007/a"), 0o700)

    def test_series(self):
        """Before, listing took time by the cube, then the square of a chain's length, verifying by its square."""
        self.make_series(60000 if LONG else 5000)
        listed = json.loads(self.call("series", "s", "list", "--json", seconds=12 if LONG else 1)[0])
        self.assertEqual([e["depth"] for e in listed["snapshots"]], list(range(self.n + 1)))
        self.call("series", "s", "verify", seconds=200 if LONG else 15)
        numbers = [str(k) for k in range(1, self.n + 1, 2)] * (1 if LONG else 10)  # each may be given again
        said = self.call("series", "s", "prune", "--dry-run", *numbers, seconds=10 if LONG else 4)[0]
        self.assertEqual(said.split(), [a for k in range(1, self.n + 1, 2) for a in (b"forget", b"c%06d" % k)])


class Chains(Hostile):
    def test_stack_and_descriptors(self):
        """A chain needs neither a deep stack nor many descriptors: it is followed, and restored after each 64 links. Nor time by its square: 100,000
        links take 5 s."""
        self.make_series(100000 if LONG else 3000)
        last = "c%06d" % self.n
        limits = dict(stack=256 << 10, files=None if LONG else 4096, seconds=30 if LONG else 4)
        self.call("series", "s", "restore", last, "-o", "out", **limits)
        self.assertEqual(self.read("out"), self.last)
        self.call("-d", "--search", "s", "-o", "again", "s/%s.lmc" % last, **limits)
        self.assertEqual(self.read("again"), self.last)
        self.call("-t", "s/%s.lmc" % last, **limits)
        self.assertIn(b"%d in all" % self.n, self.call("-l", "-v", "s/%s.lmc" % last, **limits)[0])

    def test_links_of_files_are_shared(self):
        """Two deltas of one chain, one far above the other: the lower one's links stay open for it."""
        for k, (data, _) in enumerate(hostile.links(200)):
            self.write("c%d.lmc" % k, data)
        bases = [a for k in range(200) for a in ("--base", "c%d.lmc" % k)]
        for a, b in (60, 200), (200, 60), (130, 131):
            self.assertIn(b"1 changed", self.call("diff", *bases, "c%d.lmc" % a, "c%d.lmc" % b)[0])

    def test_stats_of_the_end_of_a_long_chain(self):
        """The first whole snapshot lent its buffers to the others, and was closed as the end of a chain of more than 64 links."""
        for k, (data, _) in enumerate(hostile.links(70)): self.write("c%d.lmc" % k, data)
        self.write("other.lmc", hostile.segments_of_one_byte(100, 1))
        self.call("stats", "c70.lmc", "c0.lmc", "other.lmc", env={**os.environ, "MALLOC_PERTURB_": "165"})  # else freed memory may seem to be good

    def test_broken_chain(self):
        """The message about snapshots that depend on a broken one follows the whole chain, too."""
        for k, (data, _) in enumerate(hostile.links(2000)):
            self.write("c%04d.lmc" % k, data if k else data[:200] + bytes([data[200] ^ 1]) + data[201:])
        said = self.call("verify", *("c%04d.lmc" % k for k in range(2001)), stack=256 << 10, code=3)[1]
        self.assertEqual(said.count(b"only its payload was verified"), 2000)


class Descriptors(Hostile):
    def test_deep_tree(self):
        """A deep tree is made, finished and removed after an error without a descriptor for each level."""
        self.write("deep.lmc", hostile.deep(1, 1500))
        args = ("-d", "--max-depth", "2000", "-o", "out", "deep.lmc")
        self.call(*args, files=24)
        self.clear("out")
        broken = bytearray(self.read("deep.lmc"))
        broken[-20] ^= 1
        self.write("deep.lmc", bytes(broken))
        self.call(*args, files=24, code=3)
        self.assertEqual(os.listdir(self.dir), ["deep.lmc"])

    def test_what_others_put_into_an_unfinished_tree(self):
        """It is removed, too, also deeper than a path can be; links are not followed."""
        self.write("d/a", os.urandom(1 << 20))
        self.write("kept/a", b"kept")
        self.call("d")
        packed = self.read("d.lmc")
        self.clear("d")
        with subprocess.Popen([LMC, "-d", "-o", "out"], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            p.stdin.write(packed[:len(packed) // 2])
            p.stdin.flush()
            end = time.monotonic() + 60
            while not (roots := [n for n in os.listdir(self.dir) if n.startswith(".lmc-")]) and time.monotonic() < end:
                time.sleep(0.01)
            fd = os.open(self.path(roots[0]), os.O_RDONLY)
            for _ in range(100):
                os.symlink(self.path("kept"), "link", dir_fd=fd)
                os.mkdir("d" * 100, dir_fd=fd)
                inner = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
                os.close(fd)
                fd = inner
            os.close(fd)
            self.assertNotIn(b"cannot be removed", p.communicate()[1])
        self.assertEqual(p.returncode, 3)
        self.assertEqual(sorted(os.listdir(self.dir)), ["d.lmc", "kept"])
        self.assertEqual(self.read("kept/a"), b"kept")


class Lists(Hostile):
    """Lists of small files of torch.save() with much to list. test_limits.py has the memory of each verb."""

    def names_of(self, data):
        """Names of the tensors and views of a file."""
        self.write("x.pt", data)
        self.call("-f", "x.pt")
        file = json.loads(self.call("-l", "--json", "x.pt.lmc")[0])["files"][0]
        return sorted(x["name"] for x in file["tensors"] + file["views"] if not x["name"].startswith("@"))

    def test_equal_names(self):
        """A tensor that has one name many times is listed once. Two tensors with one name stay two, unless one of them is equal to the listed one."""
        self.assertEqual(self.names_of(hostile.same_keys(1000)), ["a"])
        both = hostile.text(b"a") + hostile.ONE + b"q\0" + hostile.text(b"b") + hostile.ONE + b"q\1"
        again = b"".join(hostile.text(b"ab"[i % 2:i % 2 + 1]) + b"h" + bytes([i // 2 % 2]) for i in range(400))
        self.assertEqual(self.names_of(hostile.torch_file(b"}(" + both + again + b"u")), ["a", "b", "b"])

    def test_names_that_a_file_is_too_small_for(self):
        """Such names are not listed, and -v says so; the file itself is compressed and restored as usual."""
        data = hostile.torch_names(70000, b"k" * 900)
        self.write("x.pt", data)
        said = self.call("-v", "x.pt")[1]
        self.assertIn(b"names and shapes take too much for the size of the file", said)
        self.call("-f", "-o", "y", "-d", "x.pt.lmc")
        self.assertEqual(self.read("y"), data)
        self.assertEqual(self.call("-l", "x.pt.lmc")[1], b"")
        self.assertIn(b"names and shapes take too much for the size of the file", self.call("-l", "-v", "x.pt.lmc")[1])
        self.assertEqual(len(self.names_of(hostile.torch_names(700, b"k" * 900))), 700)

    def test_long_names_once(self):
        """Many views of one tensor: one line has its name."""
        self.write("x.pt", hostile.torch_names(50, b"k" * 600))
        self.call("x.pt")
        lines = self.call("-l", "x.pt.lmc")[0].splitlines()
        self.assertEqual(sum(line.count(b"k" * 600) for line in lines), 51)
        self.assertEqual(sum(line.endswith(b" of the same") for line in lines), 48)

    def test_message_behind_the_table(self):
        """If standard output and standard error are one file, the order of output is kept."""
        self.write("a/f", b"x" * 5000)
        self.call("a")
        with open(self.path("log"), "wb") as log:
            subprocess.run([LMC, "salvage", "-o", "out", "a.lmc"], cwd=self.dir, stdout=log, stderr=log, check=True)
        lines = self.read("log").splitlines()
        self.assertEqual(lines[0], b"a.lmc:")
        self.assertIn(b"is whole", lines[-1])


class Terminal(Hostile):
    def check(self, said):
        for line in said.split(b"\n"):
            text = line.decode("utf-8")  # otherwise this raises an error
            for c in text:
                self.assertTrue(c.isprintable(), (ascii(c), line))

    def test_names(self):
        """C1 controls, directions, joiners, line ends and invalid UTF-8 are escaped in every table and message."""
        self.write("n.lmc", hostile.names())
        self.write("o.lmc", hostile.segments_of_one_byte(100, 1))
        self.call("-d", "-o", "out", "n.lmc")
        for args in (("-l",), ("-l", "-v"), ("-l", "--json"), ("stats",), ("stats", "--json"), ("cat",), ("diff", "o.lmc"), ("diff", "--json", "o.lmc"), ("salvage", "-f", "-o", "s"), ("salvage", "--json"),
                     ("salvage", "--json", "-f", "-o", "s"), ("verify", "-v")):
            out, said = self.call(*args, "n.lmc", code=None)
            self.check(out)
            self.check(said)
            if args[0] == "-l" and "--json" not in args:
                for text in (rb"\u{009B}31m", rb"\x9B2J", rb"\u{202E}", rb"\u{2028}", rb"\xC0\xAF", rb"\xED\xA0\x80", rb"\x1B[31m", rb"\x0D", rb"\u{E0001}"):
                    self.assertIn(text, out)
            self.clear("s")
        self.check(self.dump("n.lmc").encode())

    def test_json(self):
        """salvage --json wrote C1 controls and changes of direction as they are, and all of JSON DEL. What JSON escapes, it reads as the same."""
        names = ["w%04x%sx" % (i, c) for i, c in enumerate("\x01\x1f\x7f\x80\x9b\x9f\xad\u061c\u200b\u200e\u2028\u202e\u2066\u206f\ufeff\ufffe\U000e0001\U0010ffff\U0001f600\u00e9")]
        self.write("n.safetensors", safetensors([(name, "U8", [1], b"x") for name in names], {"k\x9b": "v\u202e"}))
        for part in "abc":
            self.write("t/d\x7f\u202e\x9b" + part, part.encode() * 40)
        self.call("n.safetensors")
        self.call("t")
        self.call("series", "S", "add", "--name", "a\u202e\x9bb", "n.safetensors")
        data = self.read("n.safetensors.lmc")
        self.write("bad.lmc", data[:-200] + bytes(200))
        for args, wanted in ((("-l", "--json", "n.safetensors.lmc"), names), (("-l", "--json", "t.lmc"), ["d\x7f\u202e\x9ba"]), (("-l", "--json", "t"), ["d\x7f\u202e\x9ba"]),
                             (("stats", "--json", "n.safetensors"), []), (("diff", "--json", "t.lmc", "n.safetensors"), names), (("salvage", "--json", "n.safetensors.lmc"), names),
                             (("salvage", "--json", "-f", "-o", "s", "n.safetensors.lmc"), names), (("salvage", "--json", "bad.lmc"), names),
                             (("series", "S", "list", "--json"), ["a\u202e\x9bb"])):
            out, said = self.call(*args, code=None)
            self.check(out)
            self.check(said)
            texts = set()

            def collect(value):
                if isinstance(value, str): texts.add(value)
                for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else (): collect(part)
            for line in ([out] if args[0] == "salvage" else out.splitlines()): collect(json.loads(line))
            self.assertEqual([name for name in wanted if name not in texts], [], args)
        with open(self.path("s/salvage.json"), "rb") as f:
            self.assertEqual(json.load(f)["files"][0]["tensors"][0]["name"], names[0])

    def test_messages(self):
        for control in hostile.CONTROLS:
            name = b"x" + control.replace(b"/", b"") + b"y"
            for args in (("-t",), ("-d",), ("cat",), ("series",), ("--name",), ("verify",), ("--dtype",)):
                out, said = self.call(*args, name, code=None)
                self.check(out)
                self.check(said)

    def test_series(self):
        name = "a\u202eb\u009bc"
        self.write("a.bin", b"x" * 1000)
        self.call("series", "s", "add", "--name", name, "a.bin")
        for args in (("list",), ("prune", "-f", "--dry-run", name), ("prune", "-f", "-v", name)):
            for said in self.call("series", "s", *args): self.check(said)

    def test_every_verb(self):
        """Names of files, links, bases, snapshots, series and members, in the output and messages of all verbs."""
        bad = b"q\xc2\x9b31m\xe2\x80\xae\x9b2J\xe2\x80\xa8\x1b[31m\xe2\x80\x8b\n"
        here = os.fsencode(self.dir) + b"/"
        noise = os.urandom(3999)
        old, new, name, series = bad + b"old", bad + b"new", bad + b"w.safetensors", bad + b"s"
        for at, step in (old, 1), (new, 2):
            os.makedirs(here + at + b"/" + bad)
            with open(here + at + b"/" + name, "wb") as f:
                f.write(safetensors([("w\u202e\u009b", "F32", [1000], bytes([step]) + noise), ("g%d\u2028" % step, "F32", [10], bytes(40))], {"step\u202e": "\u009b%d" % step}))
            with open(here + at + b"/" + bad + b"%d" % step, "wb") as f: f.write(b"x" * 100)
            os.symlink(bad + b"to%d" % step, here + at + b"/" + bad + b"link")
            os.link(here + at + b"/" + name, here + at + b"/" + bad + b"hard")
        a, b, c = old + b".lmc", new + b".lmc", bad + b"c.lmc"
        n_said = 0

        def tell(code, *args):
            nonlocal n_said
            out, said = self.call(*args, code=code)
            self.check(out)
            self.check(said)
            n_said += b"\\x9B2J" in out + said or b"\\u{202E}" in out + said or b"\\u202e" in out + said
        tell(0, "-v", "-o", a, old)
        tell(0, "-v", "--base", a, "-o", b, new)
        self.assertIn(b"base", self.call("-l", b)[0])  # it is a delta
        tell(1, "-v", "--rm", "--base", a, "-f", "-o", a, new)
        tell(1, "--rm", "--base", a, a)
        kept = "n\u202e\u200b\u009b"
        for code, *args in ((0, "-l", "-v", a), (0, "-l", "-v", b), (0, "-l", "--json", b), (0, "-t", "-v", b), (0, "verify", "-v", a, b), (0, "diff", old, new), (0, "diff", a, b),
                            (0, "diff", "--json", old, new), (0, "stats", old, new), (0, "stats", a), (2, "cat", b), (1, "cat", b, bad), (1, "cat", a, "w"),
                            (1, "cat", "--file", bad + b"link", b, "w"), (0, "-d", "-v", "-o", bad + b"out", b), (1, "-d", "-o", bad + b"out", b), (0, "-d", "-o", bad + b"2", b, bad),
                            (0, "apply", "-v", b, old), (1, "apply", a, bad), (0, "fold", "-v", "--base", a, b, "-o", c), (4, "fold", "--base", bad, b, "-o", c),
                            (1, "rebase", "--onto", bad, "-o", c, b), (0, "rebase", "-v", "--onto", old, "-f", "-o", c, b), (1, "--policy", bad, "-o", c, old), (2, "--policy", a, "-f", "-o", c, old),
                            (2, b"--" + bad), (2, "series", series, "add", "-v", old), (2, "series", series, "add", "-v", "--name", bad, new), (0, "series", series, "add", "-v", "--name", kept, new),
                            (0, "series", series, "list"), (0, "series", series, "verify"), (1, "series", series, "restore", bad), (1, "series", series, "restore", "-v", kept, "-o", bad + b"out"),
                            (0, "series", series, "restore", "-v", kept, "-o", bad + b"restored"), (1, "series", series, "keep", bad), (0, "series", series, "keep", kept),
                            (1, "series", series, "prune", bad), (0, "series", series, "prune", "-f", "-v", kept), (0, "series", series, "gc", "-v"), (0, "series", series, "rebuild", "-v"),
                            (1, "series", a, "list")):
            tell(code, *args)
        for restored in b"out", b"restored":
            with open(here + bad + restored + b"/" + name, "rb") as got, open(here + new + b"/" + name, "rb") as true: self.assertEqual(got.read(), true.read())
        with open(here + b, "r+b") as f:
            f.seek(200)
            f.write(b"\xff" * 8)
        for code, *args in ((3, "-t", b), (3, "-d", "-o", bad + b"3", b), (3, "verify", b), (0, "salvage", "-f", "-o", bad + b"4", b), (0, "-l", b), (3, "apply", b, old), (0, "diff", a, b)):
            tell(code, *args)
        os.rename(here + a, here + bad + b"moved")
        for code, *args in ((3, "-t", b), (0, "-d", "-o", bad + b"5", c), (4, "verify", b, c), (0, "-l", "-v", b), (4, "diff", old, b),
                            (1, "--rm", "--base", bad + b"moved", "-f", "-o", bad + b"moved", new)):
            tell(code, *args)
        self.assertGreater(n_said, 40)

    def test_readable_names_stay(self):
        name = "h\u00e9llo-\u6a21\u578b-\U0001F600-\u05e9"
        self.write(name, b"x")
        self.call(name)
        self.assertIn(name.encode(), self.call("-l", name + ".lmc")[0])


class Inputs(Hostile):
    def test_rm_with_an_input_that_is_missing(self):
        """Then nothing is removed, and nothing compressed."""
        self.write("x", b"x" * 100)
        self.call("-T1", "./not", "./there", "--rm", "x", code=1)
        self.assertEqual(self.read("x"), b"x" * 100)
        self.assertEqual(os.listdir(self.dir), ["x"])
        self.call("--rm", "x")
        self.assertEqual(os.listdir(self.dir), ["x.lmc"])

    def refuse(self, *args):
        """Nothing changes, and a message says why."""
        def state():
            return sorted((at[len(self.dir):], name, os.path.isfile(os.path.join(at, name)) and open(os.path.join(at, name), "rb").read())
                          for at, directories, files in os.walk(self.dir) for name in directories + files)
        before = state()
        said = self.call("-T1", *args, code=1)[1]
        self.assertEqual(state(), before, (args, said))
        self.assertTrue(b"would be lost" in said or b"with --rm nothing is done" in said, (args, said))
        self.assertEqual(said.count(b"\n"), 1, said)

    def test_output_that_is_another_input(self):
        """-f allows replacing an output, but no input of the same command: not by its name, nor through links, nor in a directory that is read."""
        for name in "x", "d/x", "t/y":
            self.write(name, name.encode())
            self.write(name + ".lmc", b"precious")
        os.symlink("x.lmc", self.path("named"))
        for first in "x", "./x", "t/../x":
            self.refuse("-f", first, "x.lmc")
            self.refuse("-f", "--rm", "x.lmc", first)
        self.refuse("-f", "x", "named")
        self.refuse("-f", "d/x", "d")
        self.refuse("-rf", "d", "d/x.lmc")
        os.symlink("../x.lmc", self.path("t/link"))
        self.refuse("-f", "x", "t")  # t has links to x
        self.call("-f", "--no-dereference", "x", "t")
        self.write("a", b"a")
        self.write("b", b"b")
        os.symlink("a.lmc", self.path("b.lmc"))
        self.refuse("-f", "--rm", "a", "b")  # the snapshot of b would replace that of a, existing or not
        self.call("a")
        self.refuse("-f", "--rm", "a", "b")
        self.call("-f", "a", "./a", "x")  # one file twice

    def test_restored_output_that_is_another_input(self):
        self.write("d/x", b"x")
        self.write("y", b"y")
        self.call("--rm", "d", "y")
        self.call("-f", "y.lmc")
        self.call("-d", "d.lmc")
        os.rename(self.path("y.lmc.lmc"), self.path("d/z.lmc"))
        self.refuse("-d", "-f", "d.lmc", "d/z.lmc")  # d is replaced as a whole
        self.refuse("-drf", ".")
        os.rename(self.path("d/z.lmc"), self.path("y.lmc.lmc"))
        self.refuse("-d", "-f", "y.lmc.lmc", "y.lmc")
        self.call("-d", "-f", "d.lmc", "y.lmc")
        self.assertEqual(self.read("y"), b"y")

    def test_rm_with_an_input_that_cannot_be_used(self):
        """Then no other input is removed."""
        self.write("q", b"q")
        self.write("d/f", b"f")
        self.write("old.lmc", b"old")
        os.mkfifo(self.path("pipe"))
        os.symlink("d", self.path("link"))
        os.symlink("q", self.path("file"))
        os.link(self.path("q"), self.path("hard"))
        for names in (("q", "pipe"), ("d", "d/f"), ("d/f", "d"), ("d", "./d"), ("d", "d/../d"), ("q", "link"), ("q", "old.lmc"), ("q", "file"), ("q", "./q")):
            for more in (), ("-r",):
                if names[1] != "link" or not more: self.refuse("--rm", *more, *names)
        os.mkdir(self.path("e.lmc"))
        self.refuse("-d", "--rm", "old.lmc", "e.lmc")
        self.call("--rm", "q", "hard", "d")  # two names of a file: both are removed, nothing is lost
        self.assertEqual(sorted(os.listdir(self.dir)), ["d.lmc", "e.lmc", "file", "hard.lmc", "link", "old.lmc", "pipe", "q.lmc"])


class Races(Hostile):
    def test_target_of_apply_becomes_a_link(self):
        """After the check of a file and before its opening, somebody replaces it by a link: the link's target is not changed."""
        old, new = safetensors([("w", "F32", [50000], bytes(200000))]), safetensors([("w", "F32", [50000], b"\1" * 200000)])
        self.write("old/f", old)
        self.write("new/f", new)
        self.call("--base", "old", "-o", "d.lmc", "new")
        self.write("victim", old)
        target, aside, link = self.path("t/f"), self.path("t.f"), self.path("t.link")
        os.mkdir(self.path("t"))
        os.symlink(self.path("victim"), link)
        ended = threading.Event()

        def exchange():
            while not ended.is_set():
                try:
                    os.rename(target, aside), os.rename(link, target)
                    os.rename(target, link), os.rename(aside, target)
                except OSError:
                    pass
        for _ in range(400 if LONG else 60):
            for name in target, aside:
                if os.path.lexists(name): os.unlink(name)
            if not os.path.lexists(link): os.symlink(self.path("victim"), link)
            self.write("t/f", old)
            ended.clear()
            thread = threading.Thread(target=exchange)
            thread.start()
            self.call("apply", "--trust-base", "d.lmc", "t", code=None)
            ended.set()
            thread.join()
            self.assertEqual(self.read("victim"), old)
            for name in os.listdir(self.dir):
                if name.startswith(".") or "lmc-apply" in name: os.unlink(self.path(name))

    def test_lock_of_a_series_has_another_name(self):
        """Reading a source that is a hard link to the lock, and closing it, must not unlock the series."""
        self.write("a.bin", b"x" * 1000)
        self.call("series", "s", "add", "a.bin")
        os.mkdir(self.path("src"))
        os.link(self.path("s/.lock"), self.path("src/lock"))
        self.write("src/big", os.urandom(40 << 20))
        p = subprocess.Popen([LMC, "series", "s", "add", "-T1", "src"], cwd=self.dir, stderr=subprocess.DEVNULL)
        seen = False
        with open(self.path("s/.lock"), "r+b") as lock:
            while p.poll() is None:
                ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
                is_free = struct.unpack("hhqqi4x", fcntl.fcntl(lock, fcntl.F_GETLK, ask))[0] == fcntl.F_UNLCK
                listed = b'"adding"' in self.read("s/series.json")
                if listed and p.poll() is None and b'"adding"' in self.read("s/series.json"):
                    seen = True
                    self.assertFalse(is_free, "unlocked while it is at work")
                time.sleep(0.002)
        self.assertEqual(p.returncode, 0)
        self.assertTrue(seen)

    def test_lock_of_a_series_is_a_link(self):
        self.write("a.bin", b"x" * 1000)
        self.call("series", "s", "add", "a.bin")
        os.unlink(self.path("s/.lock"))
        os.symlink(self.path("elsewhere"), self.path("s/.lock"))
        self.write("b.bin", b"y" * 1000)
        self.assertIn(b"cannot lock it", self.call("series", "s", "add", "b.bin", code=1)[1])
        self.assertFalse(os.path.exists(self.path("elsewhere")))


class Limits(Hostile):
    """Each limit is reached, and passed by one: see limits.txt. Those of PyTorch's files are in test_checkpoints.py."""
    def tensors_of(self, name, data):
        """Compresses and restores it; returns the listing of its tensors, and messages."""
        self.write(name, data)
        said = self.call("-T1", "-v", "-f", "--fast", name, seconds=20)[1]
        self.call("-T1", "-d", "-f", "-o", "back", name + ".lmc", seconds=20)
        self.assertTrue(filecmp.cmp(self.path(name), self.path("back"), shallow=False))
        return json.loads(self.call("-l", "--json", name + ".lmc")[0])["files"][0]["tensors"], said.decode()

    def names(self, name, data):
        return [t["name"] for t in self.tensors_of(name, data)[0]]

    def refused(self, name, data):
        """The message about a file whose name claims a format."""
        self.write(name, data)
        return self.call("-T1", "-f", name, code=1)[1].decode()

    def test_names_and_dtypes(self):
        entry = lambda name, dtype: safetensors_raw('{"%s":{"dtype":"%s","shape":[1],"data_offsets":[0,1]}}' % (name, dtype), b"x")
        self.assertEqual(self.names("a.safetensors", entry("n" * 65535, "U8")), ["n" * 65535])
        self.assertIn("name of more than 65535", self.refused("a.safetensors", entry("n" * 65536, "U8")))
        self.assertEqual(self.names("a.safetensors", entry("n", "D" * 32)), ["n"])
        self.assertIn("1 to 32", self.refused("a.safetensors", entry("n", "D" * 33)))
        self.assertEqual(self.names("a.gguf", gguf([("n" * 65535, "I8", [1], b"x")])), ["n" * 65535])
        self.assertIn("too long", self.refused("a.gguf", gguf([("n" * 65536, "I8", [1], b"x")])))

    def test_dimensions(self):
        for name, made in (("a.safetensors", lambda shape: safetensors([("a", "U8", shape, b"x")])), ("a.gguf", lambda shape: gguf([("a", "I8", shape, b"x")])),
                           ("a.npy", lambda shape: npy("|u1", tuple(shape), b"x"))):
            self.assertEqual([t["shape"] for t in self.tensors_of(name, made([1] * 32))[0]], [[1] * 32])
            self.assertIn("header is not understood" if name == "a.npy" else "more than 32 dimensions", self.refused(name, made([1] * 33)))

    def test_depth_of_json(self):
        """64 levels are allowed; the object of the file is the first."""
        made = lambda n: safetensors_raw('{"__metadata__":%s1%s}' % ('{"a":' * n, "}" * n))
        self.assertEqual(self.names("a.safetensors", made(63)), [])
        self.assertIn("nested more than 64 deep", self.refused("a.safetensors", made(64)))

    def test_arrays_of_arrays(self):
        """GGUF: arrays within the eighth array are values."""
        def made(n):
            value = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * (n - 1) + struct.pack("<IQ", 0, 1) + b"x"
            return gguf([("a", "I8", [1], b"x")], values=[("key", value)])
        self.assertEqual(self.names("a.gguf", made(8)), ["a"])
        self.assertIn("unknown type 9", self.refused("a.gguf", made(9)))

    def test_claimed_tensors(self):
        good = gguf([("a", "I8", [1], b"x")])
        for n, why in (1 << 28, "its header is longer than"), ((1 << 28) + 1, "more than 2^28 tensors"):
            self.assertIn(why, self.refused("a.gguf", good[:8] + struct.pack("<Q", n) + good[16:]))

    def test_largest_sizes(self):
        """2^63 - 1 is a valid number of bytes, 2^63 is not, in each format."""
        made = lambda n: safetensors_raw('{"a":{"dtype":"X","shape":[1],"data_offsets":[0,%d]}}' % n)
        size = len(made(1 << 62))
        self.assertIn("beyond the end", self.refused("a.safetensors", made((1 << 63) - 1 - size)))
        self.assertIn("beyond the end", self.refused("a.safetensors", made((1 << 63) - size)))
        self.assertIn("no valid data_offsets", self.refused("a.safetensors", made(1 << 63)))
        self.assertIn("beyond the end", self.refused("a.npy", npy("|u1", ((1 << 63) - 1,), b"")))
        self.assertIn("too large", self.refused("a.npy", npy("|u1", (1 << 63,), b"")))
        one = gguf([("a", "I8", [1], b"x")])
        at = one.index(struct.pack("<IQ", 24, 0)) - 8
        for n, why in ((1 << 63) - 1, "beyond the end"), (1 << 63, "too large"):
            self.assertIn(why, self.refused("a.gguf", one[:at] + struct.pack("<Q", n) + one[at + 8:]))

    def test_longest_headers(self):
        """100,000,008 bytes: in safetensors eight, then the JSON."""
        most = 100000008
        text = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
        self.assertEqual(self.names("a.safetensors", safetensors_raw(text.ljust(most - 8), b"x")), ["a"])
        self.assertIn("more than the allowed 100000000", self.refused("a.safetensors", safetensors_raw(text.ljust(most - 7), b"x")))
        if not LONG: return
        short = npy("|u1", (1,), b"", version=(2, 0))
        made = lambda n: short[:8] + struct.pack("<I", n - 12) + short[12:].rstrip().ljust(n - 12) + b"x"
        self.assertEqual(self.names("a.npy", made(most)), [""])
        self.assertIn("longer than %d bytes" % most, self.refused("a.npy", made(most + 1)))
        header = gguf([("a", "I8", [1], b"x")], values=[("key", struct.pack("<IQ", 8, 0))]).index(struct.pack("<IQ", 24, 0)) + 12
        made = lambda n: gguf([("a", "I8", [1], b"x")], values=[("key", struct.pack("<IQ", 8, n - header) + b" " * (n - header))])
        self.assertEqual(self.names("a.gguf", made(most)), ["a"])
        self.assertIn("longer than %d bytes" % most, self.refused("a.gguf", made(most + 1)))

    def test_words_of_npy(self):
        """A type or a key that is too long is unknown, whatever it begins with; in a list of fields that is no error."""
        for size in 15, 16, 17, 300:
            self.assertEqual(self.names("a.npy", npy("|u1".ljust(size), (1,), b"x")), [])
            other = npy("|u1", (1,), b"x").replace(b"'shape'", b"'" + b"shape".ljust(size, b"x") + b"'")
            self.assertIn("not understood", self.refused("a.npy", other[:8] + struct.pack("<H", len(other) - 11) + other[10:]))
        for size in 3, 4, 5:
            said = self.tensors_of("a.npy", npy("[('%s', '<f4')]" % ("x" * size), (1,), bytes(4), descr_is_text=False))[1]
            self.assertNotIn("not understood", said)

    def test_threads(self):
        self.write("a", b"x")
        self.call("-T1024", "-f", "a")
        self.assertIn(b"1024", self.call("-T1025", "-f", "a", code=2)[1])

    def test_words_of_the_command_line(self):
        self.write("a", b"x")
        """Words that are too long for a message are cut."""
        for size in 31, 32, 33, 200, 256, 500, 1100, 5000:
            word = "x" * size
            for args in (word,), ("--" + word, "a"), ("--dtype", word, "a"), ("--quant", word, "a"), ("--quant", word + "=bits:9", "a"), ("help", word):
                said = self.call(*args, code=None)[1]
                self.assertTrue(said.startswith(b"lmc: ") and said.count(b"\n") <= 3, (args, said))

    def test_policy(self):
        self.write("a.safetensors", safetensors([("a", "F32", [1], bytes(4))]))
        for size, code in ((1 << 20) - 1, 0), (1 << 20, 2):
            self.write("p", b"# ".ljust(size - 1, b"x") + b"\n")
            self.call("-f", "--policy", "p", "a.safetensors", code=code)

    def test_directories_above_one_another(self):
        """At most 1000, without an option."""
        for n, code in (1000, 0), (1001, 1):
            self.write("deep.lmc", hostile.deep(1, n))
            said = self.call("-d", "-o", "out", "deep.lmc", code=code)[1]
            self.assertEqual(b"--max-depth" in said, code == 1)
            self.clear("out")

    def test_listed_chain(self):
        """Eight links are named, and more are counted."""
        for k, (data, _) in enumerate(hostile.links(10)):
            self.write("c%d.lmc" % k, data)
        for n, counted in (8, False), (9, True):
            said = self.call("-l", "-v", "c%d.lmc" % n)[0]
            self.assertEqual(b"... %d in all" % n in said, counted, said)
            self.assertEqual(said.count(b"c0.lmc"), not counted)

    def test_links_of_a_chain(self):
        """Beyond 64 links the base is restored."""
        for k, (data, content) in enumerate(hostile.links(67)):
            self.write("c%d.lmc" % k, data)
            if k >= 62:
                self.call("-d", "-f", "--search", ".", "-o", "out", "c%d.lmc" % k)
                self.assertEqual(self.read("out"), content)

    def test_texts_of_links(self):
        """A path and a target of 65,535 bytes are listed; of 65,536 they break a rule (also the vectors links_..._too_long)."""
        def made(path, target):
            value = b"s" + path + b"\0" + target + b"\0"
            return encoder.build([encoder.Src(b"f", b"data"), encoder.Run([encoder.stored(b"data")])], metadata=[(b"lmc.links", value)]).out
        for size, code in (65535, 0), (65536, 3):
            for data in made(b"p" * size, b"t"), made(b"l", b"t" * size):
                self.write("l.lmc", data)
                self.call("-t", "l.lmc", code=code)
                self.call("-l", "l.lmc")

    def test_tar_of_a_large_file(self):
        """11 octal digits are 8 GiB minus one; a larger size has its own header."""
        for size, kind in ((1 << 33) - 1, b"0"), (1 << 33, b"x"):
            n, rest = divmod(size, hostile.LARGEST)
            f = hostile.File()
            f.file(hostile.file_body(size, b"large"), 0, [(b"large", bytes(16))])
            f.run(hostile.run_body(size, 22), [hostile.zeros(i) for i in range(n)] + ([hostile.stored(n, bytes(rest))] if rest else []))
            self.write("large.lmc", f.done())
            p = subprocess.Popen([LMC, "-dc", "-T1", "large.lmc"], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            record = p.stdout.read(2048)
            p.kill()
            p.communicate()
            self.assertEqual(record[156:157], kind)
            if kind == b"x": self.assertIn(b"size=%d\n" % size, record)
            else: self.assertEqual(record[124:136], b"%011o\0" % size)

    def test_targets_of_links(self):
        """On Linux, targets have at most 4,095 bytes."""
        os.mkdir(self.path("d"))
        target = "./" * 2046 + "abc"
        os.symlink(target, self.path("d/link"))
        self.write("d/abc", b"old")
        self.call("-o", "d.lmc", "d")
        self.call("-d", "-o", "e", "d.lmc")
        self.assertEqual(os.readlink(self.path("e/link")), target)
        self.call("-t", "--base", "e", "d.lmc", code=None)
        self.write("new", b"new")
        self.call("-f", "-o", "d/link", "new")  # a path of a temporary file beside the link's target would be too long; its name is not
        self.assertEqual((os.readlink(self.path("d/link")), self.read("d/abc")[1:4]), (target, b"LMC"))
        self.call("-t", "d/abc")

    def test_manifest(self):
        os.mkdir(self.path("s"))
        for size, says in (256 << 20, b"it is not what lmc has written"), ((256 << 20) + 1, b"larger than any series"):
            with open(self.path("s/series.json"), "wb") as f:
                f.truncate(size)
            self.assertIn(says, self.call("series", "s", "list", code=3)[1])

    def test_bytes_of_a_field(self):
        """A dump shows 1,024 bytes of a field, and counts the others."""
        for size, digits in (1024, True), (1025, False):
            f = hostile.File()
            f.file(hostile.file_body(0, b"p" * size), 0, [(b"p" * size, hostile.fingerprint_of_file(b""))])
            self.write("p.lmc", f.done())
            said = self.dump("p.lmc")
            self.assertEqual("(%d bytes)" % size in said, not digits)
            self.assertEqual("70 70 70 70" in said, digits)


if __name__ == "__main__":
    sys.exit(main())
