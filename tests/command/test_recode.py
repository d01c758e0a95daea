#!/usr/bin/env python3
"""Tests of lmc fold, lmc rebase and lmc verify: chains of deltas.

Usage: test_recode.py [--long] [-v] [NAME...]      as case.py says

SPDX-License-Identifier: MIT
"""
import hashlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time

from hostile import encoder
from case import DATA, LMC, LONG, ROOT, Case, bf16, f32, main, moved, rounded, safetensors
from test_verdicts import OTHER_FAULT

N = 13  # a full snapshot, and a chain of 12 deltas


def make_steps():
    """Snapshots that change as in a training run, and in other ways, too; each is {path: bytes}."""
    master, moment, embedding, other = f32(40000), f32(40000, 2), bf16(60000, 3), bf16(30000, 4)
    steps = []
    for k in range(N):
        weights = [("layer.w" if k < 7 else "layer.weight", "BF16", [200, 200], rounded(master))]  # renamed once
        ends = [("embed", "BF16", [600, 100], embedding), ("head", "BF16", [600, 100], embedding)]  # tied
        if k != 9:
            ends.append(("other", "BF16", [30000], other))  # removed, later back again
        if k >= 8:
            ends.append(("added", "F32", [5000], f32(5000, 5)))
        header = {"step": "%d" % k, "note": "x" * (k * 37 % 100)}  # of another size, so tensors have other places in the file
        files = {"optimizer/master.safetensors": safetensors([("layer.w", "F32", [200, 200], master), ("layer.m", "F32", [200, 200], moment)], header),
                 "config.json": b'{"step": %d, "list": [%s]}' % (k, b"1, " * (k * 50)), "log": os.urandom(3) * 1000, "empty": b""}
        if k < 5:
            files["model-1-of-2.safetensors"] = safetensors(weights, header)
            files["model-2-of-2.safetensors"] = safetensors(ends, header, pad=1)
        else:  # other shards
            files["model.safetensors"] = safetensors(ends[::-1] + weights, header)
        steps.append(files)
        master, moment = moved(master, 4, 0.4, k), moved(moment, 4, 0.9, k)
        embedding, other = moved(embedding, 2, 0.02, k), moved(other, 2, 0.3, k)
    return steps


class Chain(Case):
    """s00 .. s12 are the snapshots. s00.lmc is full; the others are deltas, each against the one before."""
    made = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()

    def setUp(self):
        super().setUp()
        if Chain.made is None:
            Chain.made = {}
            for k, files in enumerate(make_steps()):
                for path, data in files.items():
                    self.write("s%02d/%s" % (k, path), data)
                os.mkdir(self.path("s%02d/nothing" % k), 0o750)
                self.lmc("s%02d" % k, *self.bases(range(k - 1, -1, -1)))
                Chain.made[k] = self.snapshot("s%02d" % k), self.read("s%02d.lmc" % k)
        else:
            for k, (_, packed) in Chain.made.items():
                self.write("s%02d.lmc" % k, packed)

    def bases(self, steps):
        return [a for k in steps for a in ("--base", "s%02d.lmc" % k)]

    def names(self, steps):
        return ["s%02d.lmc" % k for k in steps]

    def lay_out(self, k):
        """Restores the snapshot as files; returns its name."""
        name = "s%02d" % k
        if not os.path.exists(self.path(name)):
            chain = self.bases(i for i in range(N) if i != k)
            self.lmc("-d", name + ".lmc", *chain, says="")  # a message names bases that are not needed
        return name

    def damage(self, k, at):
        """Flips a bit; at: a share of the file, or negative bytes from its end."""
        data = bytearray(self.read("s%02d.lmc" % k))
        data[at if at < 0 else int(at * len(data))] ^= 16
        self.write("s%02d.lmc" % k, data)


class Fold(Chain):
    def fold(self, first, last, *args, base=None):
        steps = list(range(first + 1, last + 1))
        random.Random(first).shuffle(steps)
        self.lmc("fold", "--base", base or "s%02d.lmc" % first, *self.names(steps), "-o", "folded.lmc", *args)
        return self.read("folded.lmc")

    def test_is_the_direct_delta(self):
        for first, last, args in ((0, 1, []), (0, 12, []), (0, 12, ["--max"]), (0, 5, ["--fast"]), (0, 6, ["-T1"]), (0, 9, ["-T3"])):
            folded = self.fold(first, last, "-f", *args)
            self.lmc(self.lay_out(last), "-f", "--base", "s00.lmc", "-o", "direct.lmc", *(a for a in args if a[1] != "T"))
            self.assertEqual(folded, self.read("direct.lmc"))
            self.restores("folded.lmc", self.made[last][0], "--base", "s00.lmc")

    def test_middle_of_a_chain(self):
        """Against a base that is a delta itself, and from one that is restored as files."""
        self.lmc("fold", *self.bases([4, 3, 2, 1, 0]), *self.names([7, 5, 8, 6]), "-o", "x.lmc")
        self.lmc(self.lay_out(8), *self.bases([4, 0, 1, 2, 3]), "-o", "direct.lmc")
        self.assertEqual(self.read("x.lmc"), self.read("direct.lmc"))
        self.restores("x.lmc", self.made[8][0], *self.bases(range(5)))
        os.rename(self.path("direct.lmc"), self.path("kept.lmc"))
        self.lay_out(4)
        folded = self.fold(4, 8, "-f", base="s04")
        self.lmc("s08", "--base", "s04", "-o", "direct.lmc")
        self.assertEqual(folded, self.read("direct.lmc"))
        self.assertEqual(self.listing("folded.lmc")["base_fingerprint"], self.listing("s04.lmc")["fingerprint"])
        self.restores("folded.lmc", self.made[8][0], "--base", "s04")

    def test_links_among_the_bases(self):
        """The first base is that of the result; deltas may also be named as bases."""
        self.lmc("fold", *self.bases([0, 1, 2, 3]), *self.names([4, 5]), "-o", "x.lmc")
        self.lmc("fold", *self.bases([2, 5, 3, 4, 0, 1]), *self.names([5, 3, 4]), "-o", "y.lmc")
        self.assertEqual(self.listing("x.lmc")["base_fingerprint"], self.listing("s00.lmc")["fingerprint"])
        self.assertEqual(self.listing("y.lmc")["base_fingerprint"], self.listing("s02.lmc")["fingerprint"])
        self.restores("x.lmc", self.made[5][0], "--base", "s00.lmc")
        self.restores("y.lmc", self.made[5][0], *self.bases([0, 1, 2]))

    def test_what_is_kept(self):
        folded, direct = self.fold(0, 12), self.listing("s12.lmc", *self.bases([]))
        o = self.listing("folded.lmc")
        self.assertEqual(o["fingerprint"], direct["fingerprint"])
        self.assertEqual(o["metadata"], {"lmc.base": "s00.lmc"})
        for a, b in zip(o["files"], direct["files"]):
            for file in (a, b):
                for part in [file] + file["tensors"]:
                    del part["packed_size"]
            self.assertEqual(a, b)
        sizes = {t["name"]: t["packed_size"] for f in self.listing("folded.lmc")["files"] for t in f["tensors"]}
        self.assertLess(min(sizes["embed"], sizes["head"]), 100)  # twins are found again: a tied tensor, and the copy of a master
        self.assertLess(sizes["layer.weight"], 100)

    def test_standard_output(self):
        """Standard output has no twins, so that it can be restored from pipe to pipe, as with compressing."""
        p = self.lmc("fold", "-c", *self.bases([0]), *self.names([1, 2]))
        self.assertEqual(p.stdout, self.lmc("fold", "-o", "-", *self.bases([0]), *self.names([2, 1])).stdout)
        self.assertEqual(p.stdout, self.fold(0, 2, "--no-twins"))
        direct = self.lmc("-c", self.lay_out(2), "--base", "s00.lmc").stdout
        self.assertLess(abs(len(p.stdout) - len(direct)), 100)  # files are in the order of the chain, with masters first
        self.restores("folded.lmc", self.made[2][0], "--base", "s00.lmc")
        self.assertEqual(self.lmc("-dc", "--base", "s00.lmc", stdin=p.stdout).stdout[257:262], b"ustar")

    def test_missing_links(self):
        fingerprint = {k: self.listing("s%02d.lmc" % k)["fingerprint"][:16] for k in (0, 2, 3, 5)}
        refuse = lambda *args, **more: self.refuses("fold", *args, "-o", "x.lmc", **more).stderr.decode()
        text = refuse("--base", "s00.lmc", *self.names([1, 2, 4]), code=4)
        self.assertIn("s04.lmc: needs the base %s (named 's03.lmc' when this delta was made); given: s00.lmc is %s, " % (fingerprint[3], fingerprint[0]), text)
        self.assertIn("s02.lmc is %s" % fingerprint[2], text)
        text = refuse("--base", "s02.lmc", *self.names([1]), code=4)
        self.assertIn("s01.lmc: needs the base %s (named 's00.lmc' when this delta was made); given: s02.lmc is %s" % (fingerprint[0], fingerprint[2]), text)
        text = refuse("--base", "s05.lmc", "--no-search", *self.names([6, 7]), code=4)  # the base of which is missing
        self.assertIn("s05.lmc: needs the base ", text)
        refuse("--base", "nowhere", *self.names([1]), code=4, says="nowhere: the base cannot be opened")
        self.lmc("fold", "--base", "s00.lmc", *self.names([1, 2, 4]), "-c", code=4)

    def test_wrong_usage(self):
        for args, says in ((["--base", "s00.lmc", "s01.lmc", "s03.lmc", "s02.lmc", "s00.lmc"], "s00.lmc: is not a delta but a whole snapshot"),
                           (["--base", "s00.lmc", "s01.lmc", "s01.lmc"], "s01.lmc: is the same snapshot as s01.lmc"),
                           (["--base", "s01.lmc", "s01.lmc"], "needs --base with the base of the first"),
                           (["s01.lmc"], "usage: lmc fold"), (["--base", "s00.lmc"], "usage: lmc fold"),
                           (["--base", "s00.lmc", "-"], "not standard input"),
                           (["--base", "s00.lmc", "s01.lmc", "-r"], "-r is not for 'lmc fold'"),
                           (["--base", "s00.lmc", "s01.lmc", "--rm"], "--rm is for"),
                           (["--base", "s00.lmc", "s01.lmc", "--onto", "s00.lmc"], "--onto is for"),
                           (["--base", "s00.lmc", "s01.lmc", "--json"], "--json is not for"), (["--base", "s00.lmc", "s01.lmc", "-d"], "excludes -z")):
            self.refuses("fold", *args, "-o", "x.lmc", code=2, says=says)
        self.refuses("fold", "--base", "s00.lmc", "s01.lmc", code=2, says="'lmc fold' needs -o")
        # two ends
        self.lmc("fold", "--base", "s00.lmc", "s01.lmc", "s02.lmc", "-o", "short.lmc")
        self.lmc("rebase", *self.bases([0, 1, 2, 3, 4]), "--onto", "s01.lmc", "s05.lmc", "-o", "branch.lmc")
        self.refuses("fold", "--base", "s00.lmc", *self.names([1, 2, 3]), "branch.lmc", "-o", "x.lmc", code=2,
                     says="branch.lmc: is not a link of the chain that ends in s03.lmc")
        self.refuses("fold", "--base", "s00.lmc", *self.names([1, 2]), "short.lmc", "-o", "x.lmc", code=2,
                     says="short.lmc: is the same snapshot as s02.lmc")

    def test_loop(self):
        for a, b in ((1, 2), (2, 1)):
            self.lmc(self.lay_out(b), "--base", self.lay_out(a), "-o", "%d-of-%d.lmc" % (b, a))
        self.refuses("fold", "--no-search", "--base", "s00.lmc", "2-of-1.lmc", "1-of-2.lmc", "-o", "x.lmc", code=4, says="is in a loop of deltas")
        self.lmc(self.lay_out(3), "--base", "s02", "-o", "3-of-2.lmc")
        self.refuses("fold", "--no-search", "--base", "s00.lmc", "2-of-1.lmc", "1-of-2.lmc", "3-of-2.lmc", "-o", "x.lmc", code=4, says="form a loop")

    def test_what_changes_nothing(self):
        self.lmc("--base", "s01.lmc", "--base", "s00.lmc", self.lay_out(1), "-o", "same.lmc")
        self.lmc("fold", "--base", "s01.lmc", "--base", "s00.lmc", "same.lmc", "-o", "x.lmc")
        self.lmc("fold", "--base", "s01.lmc", "--base", "s00.lmc", "same.lmc", "s02.lmc", "-o", "y.lmc")
        self.assertEqual([self.listing(name)["fingerprint"] for name in ("x.lmc", "y.lmc")],
                         [self.listing(name)["fingerprint"] for name in ("s01.lmc", "s02.lmc")])

    def test_few_open_files(self):
        """A long chain has more files than a shell allows to open by default."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.lmc("fold", "--base", "s00.lmc", *self.names(range(1, N)), "-o", "x.lmc",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10, hard)))
        self.assertEqual(self.listing("x.lmc")["fingerprint"], self.listing("s12.lmc")["fingerprint"])

    def test_damage(self):
        """Damage anywhere in any link: exit code 3, the link's name, no output. Unneeded bytes of the first snapshot may be damaged."""
        for k in range(1, 5):
            shutil.rmtree(self.path("s%02d" % k), ignore_errors=True)  # it would be read instead of the damaged file
            for at in (20, 0.2, 0.5, 0.8, -10, -60):
                good = self.read("s%02d.lmc" % k)
                self.damage(k, at / len(good) if at == 20 else at)
                for more in ([], ["-c"]) if at == 0.5 else ([],):
                    p = self.refuses("fold", "--base", "s00.lmc", *self.names([4, 3, 2, 1]), *(more or ["-o", "x.lmc"]), code=3)
                    self.assertIn("s%02d.lmc: " % k, p.stderr.decode())
                self.write("s%02d.lmc" % k, good)
        self.write("s03.lmc", self.read("s03.lmc")[:-1])
        self.refuses("fold", "--base", "s00.lmc", *self.names([4, 3, 2, 1]), "-o", "x.lmc", code=3, says="s03.lmc: ")
        self.write("s03.lmc", b"")
        self.refuses("fold", "--base", "s00.lmc", *self.names([4, 3, 2, 1]), "-o", "x.lmc", code=3, says="s03.lmc: ")
        os.unlink(self.path("s03.lmc"))
        self.refuses("fold", "--base", "s00.lmc", *self.names([4, 3, 2, 1]), "-o", "x.lmc", code=1, says="s03.lmc: cannot open it")

    def test_inputs_are_never_touched(self):
        for out in self.names([0, 1, 2]):
            self.refuses("fold", "-f", "--base", "s00.lmc", *self.names([1, 2]), "-o", out, code=1)
        self.lay_out(0)
        self.refuses("fold", "-f", "--base", "s00", *self.names([1, 2]), "-o", "s00/x.lmc", code=1, says="belongs to a base")
        self.write("x.lmc", b"what was there")
        self.refuses("fold", "--base", "s00.lmc", *self.names([1, 2]), "-o", "x.lmc", code=1, says="exists already")
        self.lmc("fold", "-f", "--base", "s00.lmc", *self.names([1, 2]), "-o", "x.lmc")
        self.restores("x.lmc", self.made[2][0], "--base", "s00.lmc")
        os.mkdir(self.path("d"))
        self.refuses("fold", "-f", "--base", "s00.lmc", *self.names([1, 2]), "-o", "d", code=1, says="is a directory")

    def test_no_room(self):
        for args in (["fold", "--base", "s00.lmc", "s01.lmc", "-o", "x.lmc"], ["rebase", "--onto", "none", "s00.lmc", "-o", "x.lmc"]):
            before = self.tree()
            p = subprocess.run(["sh", "-c", 'ulimit -f 16; exec "$0" "$@"', LMC, *args], cwd=self.dir, capture_output=True)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(b"File too large", p.stderr)
            self.assertEqual(self.tree(), before)

    def test_real_series(self):
        series = os.path.join(DATA, "series")
        if not os.path.isdir(series):
            self.skipTest("no LMC_DATA")
        steps = sorted(os.listdir(series))
        for k, s in enumerate(steps):
            self.lmc(os.path.join(series, s), "-o", "r%02d.lmc" % k, *(a for i in range(k - 1, -1, -1) for a in ("--base", "r%02d.lmc" % i)), says="")
        whole = [k for k in range(len(steps)) if "base_fingerprint" not in self.listing("r%02d.lmc" % k)][-1]  # steps far apart share nothing
        self.assertLess(whole, len(steps) - 2)
        first, chain = "r%02d.lmc" % whole, ["r%02d.lmc" % k for k in range(whole + 1, len(steps))]
        self.lmc("fold", "--base", first, *chain[::-1], "-o", "folded.lmc")
        self.lmc(os.path.join(series, steps[-1]), "--base", first, "-o", "direct.lmc")
        self.assertEqual(self.read("folded.lmc"), self.read("direct.lmc"))
        self.lmc("verify", first, *chain, "folded.lmc")


class Rebase(Chain):
    def test_onto_another(self):
        for onto, chain in (("s00.lmc", []), ("s03.lmc", [1, 2]), ("s11.lmc", [])):
            self.lmc("rebase", "-f", *self.bases(k for k in range(12) if "s%02d.lmc" % k != onto), "--onto", onto, "s12.lmc", "-o", "x.lmc")
            self.lmc(self.lay_out(12), "-f", "--base", onto, *self.bases(range(11)), "-o", "direct.lmc", says="")
            self.assertEqual(self.read("x.lmc"), self.read("direct.lmc"))
        self.lay_out(5)
        self.lmc("rebase", "-f", *self.bases(range(12)), "--onto=s05", "s12.lmc", "-o", "x.lmc")
        self.restores("x.lmc", self.made[12][0], "--base", "s05")

    def test_onto_none(self):
        for k in (0, 1, 12):
            self.lmc("rebase", "-f", *self.bases(range(k)), "--onto", "none", "s%02d.lmc" % k, "-o", "x.lmc")
            self.lmc(self.lay_out(k), "-f", "-o", "direct.lmc")
            self.assertEqual(self.read("x.lmc"), self.read("direct.lmc"))
            self.restores("x.lmc", self.made[k][0])
        self.lmc("rebase", "-f", "--onto", "s00.lmc", "x.lmc", "-o", "y.lmc")  # a full snapshot becomes a delta
        self.restores("y.lmc", self.made[12][0], "--base", "s00.lmc")

    def test_single_files(self):
        """Files without a path, of any kind; attributes are kept."""
        old, new = bf16(60000), moved(bf16(60000), 2, 0.05)
        for name, a, b in (("x.safetensors", safetensors([("w", "BF16", [60000], old)]), safetensors([("w", "BF16", [60000], new)])),
                           ("x.bin", old, new), ("grown", b"ab" * 5000, b"ab" * 6000), ("empty", b"", b"")):
            self.write("old-" + name, a)
            self.write(name, b, 0o640)
            self.lmc(name, "--base", "old-" + name, says="nothing of it was found in the base" if name in ("grown", "empty") else None)
            if name in ("grown", "empty"):
                self.assertNotIn("base_fingerprint", self.listing(name + ".lmc"))
                continue
            self.lmc("rebase", "--base", "old-" + name, "--onto", "none", name + ".lmc", "-o", "whole-%s.lmc" % name)
            self.lmc(name, "-o", "direct.lmc", "-f")
            self.assertEqual(self.read("whole-%s.lmc" % name), self.read("direct.lmc"))
            self.assertEqual(os.stat(self.path("whole-%s.lmc" % name)).st_mode, os.stat(self.path(name)).st_mode)
            self.lmc("rebase", "--onto", "old-" + name, "direct.lmc", "-o", "again.lmc", "-f")
            self.assertEqual(self.read("again.lmc"), self.read(name + ".lmc"))

    def test_refusals(self):
        self.write("alone/s05.lmc", self.read("s05.lmc"))  # beside its base it would be found
        self.write("alone/s08.lmc", self.read("s08.lmc"))
        self.refuses("rebase", "--onto", "s00.lmc", "alone/s05.lmc", "-o", "x.lmc", code=4, says="s05.lmc: needs the base ")
        self.refuses("rebase", *self.bases(range(12)), "--onto", "nowhere", "s05.lmc", "-o", "x.lmc", code=4, says="nowhere: the base cannot be opened")
        self.refuses("rebase", *self.bases(range(12)), "--onto", "s08.lmc", "s05.lmc", "-o", "x.lmc", code=4,
                     says="s08.lmc: is a delta that needs s05.lmc")
        self.refuses("rebase", *self.bases(range(5)), "--onto", "s05.lmc", "s05.lmc", "-o", "x.lmc", code=4, says="s05.lmc: is s05.lmc")
        self.refuses("rebase", *self.bases(range(5)), "--onto", "alone/s08.lmc", "s05.lmc", "-o", "x.lmc", code=4, says="s08.lmc: needs the base")
        for out in ("s05.lmc", "s00.lmc", "s03.lmc"):
            self.refuses("rebase", "-f", *self.bases(range(5)), "--onto", "s00.lmc", "s05.lmc", "-o", out, code=1)
        self.lay_out(7)
        self.refuses("rebase", "-f", *self.bases(range(5)), "--onto", "s07", "s05.lmc", "-o", "s07/x.lmc", code=1, says="belongs to a base")
        self.write("plain", b"no snapshot at all")
        self.refuses("rebase", "--onto", "s00.lmc", "plain", "-o", "x.lmc", code=3, says="plain: ")
        self.refuses("rebase", "--onto", "none", "s07", "-o", "x.lmc", code=1, says="is a directory")
        for args in (["s05.lmc"], ["--onto", "s00.lmc"], ["--onto", "s00.lmc", "s01.lmc", "s02.lmc"]):
            self.refuses("rebase", *args, "-o", "x.lmc", code=2)
        for onto in ("", "-"):
            self.refuses("rebase", "--onto", onto, "s05.lmc", "-o", "x.lmc", code=2, says="--onto needs")
        self.refuses("rebase", "--onto", "none", "s05.lmc", code=2, says="'lmc rebase' needs -o")
        self.lmc("s05.lmc", "--onto", "s00.lmc", code=2, says="--onto is for 'lmc rebase'")

    def test_equal_content(self):
        """The same snapshot again, from another file, can be a base, too: a run may write one state twice."""
        shutil.copy(self.path("s05.lmc"), self.path("copy.lmc"))
        self.lmc("rebase", *self.bases(range(6)), "--onto", "s08.lmc", *self.bases([6, 7]), "copy.lmc", "-o", "x.lmc")
        self.restores("x.lmc", self.made[5][0], *self.bases(range(9)))
        self.lmc("rebase", *self.bases(range(5)), "--onto", "s05.lmc", "copy.lmc", "-o", "y.lmc")
        self.restores("y.lmc", self.made[5][0], *self.bases(range(6)))

    def test_index_that_lies(self):
        """All blocks are right, and so is the index, but they contradict each other."""
        sys.path.insert(0, os.path.join(ROOT, "spec"))
        import make_vectors as vectors
        data, wrong = b"what is there" * 100, bytes(range(32))
        for patch in ({}, {"entry0.File_CRC": lambda crc: crc ^ 1},
                      {"entry0.Fingerprint0": wrong, "index.Snapshot_Fingerprint": vectors.fingerprint_of_snapshot([(b"", wrong)])}):
            self.write("x.lmc", bytes(vectors.build([vectors.Src(b"", data), vectors.Run([vectors.stored(data)])], patch=patch).out))
            for args in (["rebase", "--onto", "none", "x.lmc", "-o", "y.lmc"], ["rebase", "-q", "--onto", "s00.lmc", "x.lmc", "-c"], ["verify", "x.lmc"]):
                self.lmc(*args, code=3 if patch else 0)
                self.assertEqual(os.path.exists(self.path("y.lmc")), not patch)
            if not patch:
                os.unlink(self.path("y.lmc"))

    def test_vectors_of_the_specification(self):
        vectors = os.path.join(ROOT, "spec", "vectors")
        with open(os.path.join(vectors, "manifest.json")) as f:
            manifest = json.load(f)

        def describe(path):
            o = json.loads(self.lmc("-l", "--json", path, says="").stdout)  # it may warn that hashes are damaged
            o["metadata"] = {k: v for k, v in o["metadata"].items() if not k.startswith("lmc.")}
            for file in o["files"]:
                for part in [file] + file["tensors"]:
                    del part["packed_size"]
                    part.pop("sha256", None)
            return o["fingerprint"], o["metadata"], sorted(o["files"], key=lambda f: f["path"])
        for v in manifest["valid"]:
            path = os.path.join(vectors, "valid", v["name"] + ".lmc")
            bases = ["--base=" + os.path.join(vectors, base) for base in v["base"]]
            if "rules" in v:  # links or hashes that break a rule: coded again, they would look right
                self.lmc("rebase", *bases, "--onto", "none", path, "-o", "x.lmc", code=3)
                continue
            process = self.lmc("rebase", "-f", *bases, "--onto", "none", path, "-o", "x.lmc", says="")
            self.assertEqual(describe("x.lmc"), describe(path))
            left_out = {k for k in json.loads(self.lmc("-l", "--json", path, says="").stdout)["metadata"] if k.startswith("lmc.")} - {"lmc.base", "lmc.links", "lmc.policy", "lmc.source"}
            self.assertEqual(left_out, set(re.findall(r"its metadata '(.*?)' describes the old file", process.stderr.decode())))
            self.assertFalse(left_out & set(self.listing("x.lmc")["metadata"]))
            deep = ["--max-depth", "32768"]  # one has a path of 65,535 bytes
            self.lmc("verify", *deep, "x.lmc")
            self.lmc("verify", *deep, path, *bases)
            os.unlink(self.path("x.lmc"))
        before = self.tree()
        for v in manifest["invalid"]:
            path = os.path.join(vectors, "invalid", v["name"] + ".lmc")
            bases = ["--base=" + os.path.join(vectors, base) for base in v["base"]]
            codes = {4 if "BASE" in status else 3 if status in ("NOT_LMC", "TRUNCATED", "CORRUPT", "CHECKSUM") else 1 for status in v["status"]}
            codes |= OTHER_FAULT.get(v["name"], set())
            p = subprocess.run([LMC, "verify", "--no-search", path] + bases, cwd=self.dir, capture_output=True, timeout=60)
            self.assertIn(p.returncode, codes, (path, p.stderr))
            p = subprocess.run([LMC, "rebase", "--no-search", "--onto", "none", path, "-o", "x.lmc"] + bases, cwd=self.dir, capture_output=True, timeout=60)
            if p.returncode == 0:  # faults that only reading from front to back finds
                self.lmc("-t", "x.lmc")
                os.unlink(self.path("x.lmc"))
            else:
                self.assertIn(p.returncode, codes, (path, p.stderr))
            self.assertEqual(self.tree(), before, path)


class Twins(Case):
    """Looking for equal tensors in a snapshot takes few bytes of many blocks, and each block is decoded."""

    N, SIZE = 50, 200000

    def setUp(self):
        super().setUp()
        for name, seed in ("x", 1), ("y", 2):
            f = f32(self.SIZE, seed)
            b = rounded(f)
            k = [1009 * i for i in range(self.N)]  # so that no two tensors are equal
            masters = [("w%d" % i, "F32", [self.SIZE], f[4 * k[i]:] + f[:4 * k[i]]) for i in range(self.N)]
            copies = [("w%d" % i, "BF16", [self.SIZE], b[2 * k[i]:] + b[:2 * k[i]]) for i in range(self.N)]
            os.mkdir(self.path(name))
            for file, tensors in ("masters", masters), ("averages", masters), ("model", copies):
                self.write("%s/%s.safetensors" % (name, file), safetensors(tensors))
        self.lmc("-q", "x")

    def same_files(self, snapshot):
        self.lmc("-q", "-d", "--no-search", snapshot, "-o", "out")
        for file in os.listdir(self.path("x")):
            self.assertEqual(self.read("out/" + file), self.read("x/" + file))
        shutil.rmtree(self.path("out"))

    def test_useless_base(self):
        """The snapshot that is coded again without its base has the twins of the first time."""
        self.lmc("--base", "y", "x", "-o", "again.lmc", says="x: nothing of it was found in the base y")
        self.assertEqual(self.read("again.lmc"), self.read("x.lmc"))

    def test_more_than_the_limit_of_work(self):
        for onto in "none", "y":
            self.lmc("rebase", "--onto", onto, "x.lmc", "-o", onto + ".lmc", says="x.lmc: has too many tensors to look for equal ones in it")
            self.assertEqual(self.read(onto + ".lmc"), self.read("x.lmc"))
            self.same_files(onto + ".lmc")


class Unknown(Case):
    def test_sections_and_records(self):
        """Sections and records that depend only on content are copied; a message names the others (R4-56)."""
        valid = os.path.join(ROOT, "spec", "vectors", "valid")

        def kinds(path):
            text = self.dump(path)
            return re.findall('Kind "([a-z]...)"', text.split("body of BLKS")[0])
        for name in ("ancillary_several", "ancillary_everywhere", "ancillary_kind_note", "ancillary_kind_noTE", "ancillary_kind_notE", "ancillary_is_lmc"):
            path = os.path.join(valid, name + ".lmc")
            kept, dropped = [[k for k in kinds(path) if k[3].isupper() == is_dropped] for is_dropped in (False, True)]
            p = self.lmc("rebase", "--onto", "none", path, "-f", "-o", "x.lmc", says="is left out" if dropped else None)
            self.assertEqual(re.findall("its section '(....)' is of the old file, and is left out", p.stderr.decode()), dropped)
            self.assertEqual(kinds("x.lmc"), kept, name)
            self.lmc("-t", "x.lmc")

    def records(self, path):
        """[(Kind of the section, tag, bytes as the dump shows them)] of all extension records."""
        bodies = re.split("-- body of (\w+) --", self.dump(path))
        return [(kind, int(tag), data) for kind, body in zip(bodies[1::2], bodies[2::2])
                for tag, data in re.findall(r"Tag (\d+)\n.*(?:\n.* Record (\".*\"))?", body)]

    def recode(self, files, n_dropped=0, **records):
        """Rebases a snapshot of these sections to none, onto another snapshot, and folds that: -> the records before, and after (they are the same
        in all)."""
        blocks = [encoder.stored(b"".join(file.data for file in files.files))]
        self.write("made.lmc", encoder.build([files, encoder.Run(blocks, extra=records.get("run", b""))], extra=records.get("index", b"")).out)
        before = self.records("made.lmc")
        says = "made.lmc: %d of its %d extension records are of the old file" % (n_dropped, len(before)) if n_dropped else None
        self.lmc("rebase", "--onto", "none", "made.lmc", "-o", "full.lmc", says=says)
        self.lmc("rebase", "--onto", "other.lmc", "made.lmc", "-o", "delta.lmc", says=says)
        self.lmc("fold", "--base", "other.lmc", "delta.lmc", "-o", "folded.lmc")
        after = self.records("full.lmc")
        for name in ("full", "delta", "folded"):
            self.assertEqual(self.records(name + ".lmc"), after)
            self.lmc("-t", "--base=other.lmc", name + ".lmc")
            os.unlink(self.path(name + ".lmc"))
        return before, after

    def test_records(self):
        """Records of files and of the index whose bits 0 and 1 are clear are kept (4.5); all others are counted in a message. A record of a section
        counts its files and tensors: so it is kept with its file, and dropped if several files share the section."""
        r = random.Random(5)
        old = r.randbytes(8000)
        self.write("other/f", old)
        self.lmc("-q", "other", "-o", "other.lmc")
        f = encoder.Src(b"f", old[:7990] + b"0123456789")
        for tags in ((2,), (0, 2, 4, 6, 1 << 62, 2**64 - 4, 2**64 - 2)):
            extra = b"".join(encoder.record(tag, b"bytes of %d" % tag) for tag in tags)
            dropped = sum(tag % 4 != 0 for tag in tags)
            for place in ("FILE", "RUN", "INDX"):
                before, after = self.recode(encoder.Group(f, extra=extra if place == "FILE" else b""), len(tags) if place == "RUN" else dropped,
                    run=extra if place == "RUN" else b"", index=extra if place == "INDX" else b"")
                self.assertEqual([record[:2] for record in before], [(place, tag) for tag in tags])
                self.assertEqual(after, [record for record in before if record[1] % 4 == 0 and place != "RUN"])
        extra = encoder.record(4, b"two") + encoder.record(8)
        before, after = self.recode(encoder.Group(f, encoder.Src(b"g", b"g"), extra=extra), 2, index=encoder.record(0, b"kept"))
        self.assertEqual((len(before), after), (3, [("INDX", 0, '"kept"')]))


class Verify(Chain):
    def verify(self, *args, code=0, **more):
        before = self.tree()
        p = self.lmc("verify", "-v", *args, code=code, **more)
        self.assertEqual(self.tree(), before)
        return [line for line in p.stderr.decode().splitlines() if ": its base is " not in line]  # the place of the base

    def test_chain_in_any_order(self):
        o = [self.listing("s%02d.lmc" % k) for k in range(N)]
        want = ["lmc: s00.lmc: ok, %s, no base" % o[0]["fingerprint"][:16]]
        want += ["lmc: s%02d.lmc: ok, %s, base %s" % (k, o[k]["fingerprint"][:16], o[k - 1]["fingerprint"][:16]) for k in range(1, N)]
        for seed in range(3):
            names = self.names(range(N))
            random.Random(seed).shuffle(names)
            self.assertEqual(self.verify(*names, "-T%d" % (seed + 1)), want)
        self.lmc("verify", *names)
        self.assertEqual(self.verify("s00.lmc"), want[:1])
        self.assertEqual(self.verify("s01.lmc", "--base", "s00.lmc"), want[1:2])
        self.assertEqual(self.verify("s07.lmc", "s08.lmc", *self.bases(range(7))), want[7:9])
        self.assertEqual(self.verify("s05.lmc", "s04.lmc", "--base", self.lay_out(3)), want[4:6])

    def test_branches(self):
        """Each file is verified once, in any tree."""
        self.lmc("rebase", *self.bases(range(9)), "--onto", "none", "s09.lmc", "-o", "anchor.lmc")
        made = []
        for k, onto in ((5, 2), (6, 2), (7, 2), (8, 0), (10, 4), (11, 4), (12, 1), (3, 2)):
            name = "s%02d-on-%02d.lmc" % (k, onto)
            self.lmc("rebase", *self.bases(i for i in range(N) if i != k), "--onto", "s%02d.lmc" % onto, "s%02d.lmc" % k, "-o", name)
            made.append(name)
        lines = self.verify(*made, "anchor.lmc", *self.names(range(N)))
        self.assertEqual(sorted(line.split(":")[1].strip() for line in lines), sorted(made + ["anchor.lmc"] + self.names(range(N))))
        self.assertTrue(all(": ok, " in line for line in lines))

    def test_each_link_is_decoded_once(self):
        """Bytes read grow with the chain, not with its square: each snapshot is read once for the next."""
        if not os.path.exists("/proc/self/io"):
            self.skipTest("no /proc/PID/io")
        def bytes_read(*args):
            p = subprocess.Popen([LMC, *args], cwd=self.dir)
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            with open("/proc/%d/io" % p.pid) as f:
                count = int(re.search(r"rchar: (\d+)", f.read()).group(1))
            self.assertEqual(p.wait(), 0)
            return count
        size = sum(len(d) for d in self.made[0][0].values() if d)
        packed = [len(self.made[k][1]) for k in range(N)]
        self.assertLess(bytes_read("verify", *self.names(range(N))), 2 * N * size + 3 * sum(packed) + 100000)
        self.assertLess(bytes_read("verify", *self.names(range(N))) - bytes_read("verify", *self.names(range(7))), 2 * 6 * size + 3 * sum(packed[7:]))

    def test_damage(self):
        for at in (0.3, 0.5, 0.7):
            good = self.read("s05.lmc")
            self.damage(5, at)
            self.lmc("rebase", *self.bases(range(3)), "--onto", "s01.lmc", "s03.lmc", "-o", "branch.lmc", "-f")
            lines = self.verify(*self.names(range(8)), "branch.lmc", code=3)
            self.assertEqual(sum(": ok, " in line for line in lines), 6)
            self.assertTrue(any(line.startswith("lmc: s05.lmc: ") and "ok" not in line for line in lines), lines)
            for k, needs in ((6, 5), (7, 5)):
                self.assertIn("lmc: s%02d.lmc: only its payload was verified: it needs s%02d.lmc" % (k, needs), lines)
            self.write("s05.lmc", good)

    def test_damaged_index(self):
        self.damage(2, -100)
        lines = self.verify(*self.names(range(5)), code=3)
        self.assertEqual(sum(": ok, " in line for line in lines), 2)
        self.assertTrue(any(line.startswith("lmc: s02.lmc: ") for line in lines))
        self.assertTrue(any(line.startswith("lmc: s03.lmc: its payload is intact, but it needs the base ") and line.endswith("unless it is a damaged one") for line in lines), lines)
        self.assertIn("lmc: s04.lmc: only its payload was verified: it needs s03.lmc", lines)
        self.write("s02.lmc", b"")
        self.assertEqual(sum(": ok, " in line for line in self.verify(*self.names(range(5)), code=3)), 2)

    def test_missing(self):
        wanted = self.listing("s02.lmc")["fingerprint"][:16]
        self.lay_out(0)
        os.mkdir(self.path("away"))  # beside the others it would be found
        os.rename(self.path("s02.lmc"), self.path("away/s02.lmc"))
        lines = self.verify(*self.names([0, 1, 3, 4, 5]), code=4)
        self.assertEqual(sum(": ok, " in line for line in lines), 2)
        needs = "lmc: s03.lmc: its payload is intact, but it needs the base %s (named 's02.lmc' when this delta was made), which is none of the files; give it, too, or name it with --base PATH" % wanted
        self.assertIn(needs + " or --search DIR", lines)
        self.assertIn(needs, self.verify("--no-search", *self.names([0, 1, 3, 4, 5]), code=4))
        self.verify(*self.names([0, 1, 3, 4, 5]), "--search", "away")  # as the message advises
        for k in (4, 5):
            self.assertIn("lmc: s%02d.lmc: only its payload was verified: it needs s%02d.lmc" % (k, k - 1), lines)
        self.verify(*self.names([0, 1, 3, 4, 5]), "--base", "s01.lmc", code=4, says="s03.lmc: its payload is intact, but it needs the base ")
        self.verify("s01.lmc", "--base", "nowhere", code=4, says="nowhere: the base cannot be opened")
        self.verify("s00.lmc", "nowhere", code=1, says="nowhere: cannot open it")
        self.verify(self.lay_out(0), code=1, says="is a directory")

    def test_unchanged(self):
        """A delta that changes nothing does not help where its own base is missing: that is what is asked for."""
        self.lmc(self.lay_out(2), "--base", "s02.lmc", "-o", "same.lmc")
        lines = self.verify("--no-search", "s00.lmc", "s01.lmc", "same.lmc", "s03.lmc", code=4)
        for name in ("same", "s03"):
            self.assertTrue(any(line.startswith("lmc: %s.lmc: its payload is intact, but it needs the base " % name) for line in lines), lines)
        self.assertEqual(sum(": ok, " in line for line in self.verify("--no-search", "same.lmc", *self.names(range(4)))), 5)

    def test_loop(self):
        for a, b in ((1, 2), (2, 1)):
            self.lmc(self.lay_out(b), "--base", self.lay_out(a), "-o", "%d-of-%d.lmc" % (b, a))
        lines = self.verify("--no-search", "s00.lmc", "1-of-2.lmc", "2-of-1.lmc", "s03.lmc", code=4, says="form a loop")
        self.assertEqual(sum(": ok, " in line for line in lines), 1)
        self.verify("s00.lmc", "1-of-2.lmc", "2-of-1.lmc", "s03.lmc", "s01.lmc")  # one of them can be restored in another way

    def test_usage(self):
        for args in ([], ["-"], ["s00.lmc", "-o", "x"], ["-r", "s00.lmc"], ["-c", "s00.lmc"], ["--rm", "s00.lmc"], ["--max", "s00.lmc"], ["-t", "s00.lmc"]):
            self.refuses("verify", *args, code=2)

    def test_scratch(self):
        """Scratch files are in TMPDIR, or beside the first file; for a single file there are none."""
        env = {k: v for k, v in os.environ.items() if k != "TMPDIR"}
        self.lmc("verify", *self.names(range(3)), env=env)
        self.lmc("verify", *self.names(range(3)), env=dict(env, TMPDIR=self.dir + "/nowhere"), code=1, says="TMPDIR names another directory")
        self.lmc("verify", "s00.lmc", env=dict(env, TMPDIR=self.dir + "/nowhere"))
        self.lmc("verify", "s01.lmc", "--base", "s00.lmc", env=dict(env, TMPDIR=self.dir + "/nowhere"))
        p = subprocess.run(["sh", "-c", 'ulimit -f 16; exec "$0" "$@"', LMC, "verify", *self.names(range(3))], cwd=self.dir, capture_output=True)
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertIn(b"File too large", p.stderr)
        self.assertIn(b"s02.lmc: only its payload was verified: it needs ", p.stderr)


class Single(Chain):
    def test_a_tensor_of_a_step(self):
        """Reads what it needs from the links below, and only the index of those above."""
        want = dict((t, self.made[7][0]["model.safetensors"]) for t in ("other", "embed"))
        o = {f["path"]: f for f in self.listing("s07.lmc")["files"]}["model.safetensors"]
        for t in o["tensors"]:
            if t["name"] not in want:
                continue
            p = self.lmc("cat", "-v", "s07.lmc", t["name"], *self.bases(k for k in range(N) if k != 7))
            self.assertEqual(p.stdout, want[t["name"]][t["offset"]:t["offset"] + t["size"]])
            self.assertLess(int(re.search(r"reads of (\d+) bytes", p.stderr.decode()).group(1)), sum(len(self.made[k][1]) for k in range(N)) * 0.9)  # each file is opened by a read of its last 64 KiB


class Long(Case):
    """A chain of 100 deltas, of the simulated run of steps.c."""
    N = 100

    def measure(self, what, *args):
        start = time.time()
        p = subprocess.Popen([LMC, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, text = p.stdout.read(), p.stderr.read().decode()  # one of them is short
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        p.stdout.close()
        p.stderr.close()
        self.assertEqual(p.returncode, 0, text)
        print("%-30s %7.2f s, %4d MiB" % (what, time.time() - start, usage.ru_maxrss // 1024))
        return out, text, usage.ru_maxrss

    def digest(self, name):
        with open(self.path(name), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def test_long_chain(self):
        if not LONG:
            self.skipTest("--long")
        subprocess.run(["cc", "-O2", os.path.join(ROOT, "tests", "command", "steps.c"), "-o", self.path("steps"), "-lm"], check=True)
        run = subprocess.Popen([self.path("steps"), str(self.N)], cwd=self.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        names, digests = [], []
        for k in range(self.N + 1):
            name = "%03d.safetensors" % k
            run.stdin.write(name + "\n")
            run.stdin.flush()
            self.assertEqual(run.stdout.readline(), "ok\n")
            self.lmc(name, *(["--base", "%03d.safetensors" % (k - 1)] if k else []))
            names.append(name + ".lmc")
            digests.append(self.digest(name))
            if k == 57:
                with open(self.path(name), "rb") as f:
                    step_57 = f.read()
            if k:
                os.unlink(self.path("%03d.safetensors" % (k - 1)))
        run.stdin.close()
        run.wait()
        run.stdout.close()
        chain = [a for n in names for a in ("--base", n)]
        size, packed = os.path.getsize(self.path(name)), [os.path.getsize(self.path(n)) for n in names]
        print("%d deltas of %d bytes: %d bytes, %.1f %% of them, from %.1f to %.1f %%" % (
            self.N, size, sum(packed[1:]), 100 * sum(packed[1:]) / size / self.N, 100 * max(packed[1:]) / size, 100 * min(packed[1:]) / size))

        self.lmc(name, "--base", names[0], "-o", "direct.lmc")
        os.unlink(self.path(name))
        self.measure("restored", "-d", *chain[:-2], names[-1], "-o", "restored")
        self.assertEqual(self.digest("restored"), digests[-1])

        _, _, memory = self.measure("folded", "fold", *chain[:2], *names[1:], "-o", "folded.lmc")
        folded, direct = os.path.getsize(self.path("folded.lmc")), os.path.getsize(self.path("direct.lmc"))
        print("the fold takes %d bytes, the direct delta %d: %.4f" % (folded, direct, folded / direct))
        self.assertLessEqual(folded, 1.1 * direct)
        self.assertEqual(self.read("folded.lmc"), self.read("direct.lmc"))
        self.lmc("-d", "-f", "--base", names[0], "folded.lmc", "-o", "restored")
        self.assertEqual(self.digest("restored"), digests[-1])
        self.measure("half of it folded", "fold", *chain[:102], *names[51:], "-o", "half.lmc")
        self.lmc("-d", "-f", "--base", names[0], "half.lmc", "-o", "restored")
        self.assertEqual(self.digest("restored"), digests[-1])

        _, text, _ = self.measure("verified", "verify", "-v", *names)
        self.assertEqual(text.count(": ok, "), self.N + 1)
        at = json.loads(step_57[8:8 + int.from_bytes(step_57[:8], "little")])["layer.3.weight"]["data_offsets"]
        start = 8 + int.from_bytes(step_57[:8], "little")
        out, text, _ = self.measure("a tensor of step 57", "cat", "-v", names[57], "layer.3.weight", *chain)
        self.assertEqual(out, step_57[start + at[0]:start + at[1]])
        n_bytes = int(re.search(r"reads of (\d+) bytes", text).group(1))
        print("read %d bytes of %d; the tensor is %.1f %% of the snapshot" % (n_bytes, sum(packed), 100 * len(out) / size))
        self.assertLess(n_bytes, sum(packed[:58]) * 0.25)  # it shares blocks with its neighbours
        self.assertLess(memory, 320 << 10)  # it grows by 2 MiB for each link


if __name__ == "__main__":
    sys.exit(main())
