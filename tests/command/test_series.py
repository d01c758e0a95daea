#!/usr/bin/env python3
"""Tests of lmc series, from outside: every verb, every refusal, every pattern of forgetting, damaged lists, kills.

Usage: test_series.py [--kills=N] [--long] [-v] [NAME...]      NAME: run only tests whose name contains it

--kills: so many kills at random moments (default 40). --long adds a series of 100 snapshots of 24 MB. SPDX-License-Identifier: MIT
"""
import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
import zipfile
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from case import LMC, LONG, MB, Case, bf16, can_see_writers, f32, floats, main, moved, safetensors  # noqa: E402

KILLS = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--kills=")), 40)

# ---- data, similar to training ----


def step(data, rng, share=0.02):
    """A bf16 or fp32 array, a share of whose elements has changed a little."""
    data = bytearray(data)
    for _ in range(max(1, int(len(data) * share))):
        data[rng.randrange(len(data) // 4) * 4] ^= rng.randrange(1, 4)
    return bytes(data)


def model(weights, number, note=""):
    return safetensors([("w", "BF16", [len(weights) // 2], weights)], {"step": str(number), "note": note})


def checkpoint(weights, moments, number):
    """A directory: bf16 shards, fp32 optimizer shards, JSON."""
    half = len(weights) // 4 * 2
    return {"model-1.safetensors": safetensors([("a", "BF16", [half // 2], weights[:half])]),
            "model-2.safetensors": safetensors([("b", "BF16", [(len(weights) - half) // 2], weights[half:])]),
            "optimizer/rank0.safetensors": safetensors([("m", "F32", [len(moments) // 4], moments)]),
            "trainer_state.json": json.dumps({"global_step": number}).encode()}


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
            table.append(i)
    crc = 0xFFFFFFFF
    for b in data:
        crc = table[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def manifest(entries, head='{"lmc_series": 1, "every": 16, "snapshots": ['):
    """Entries as JSON, with the right checksum."""
    text = (head + "\n" + ",\n".join(e if isinstance(e, str) else json.dumps(e) for e in entries) + "\n],\n").encode()
    return text + b'"crc32c": "%08x"}\n' % crc32c(text)


class SeriesCase(Case):
    """self.want: what each snapshot of the series "s" must restore to, bytes or a dictionary of files."""

    def setUp(self):
        super().setUp()
        self.want = {}
        self.rng = random.Random(7)

    def series(self, *args, **more):
        if args[0] in ("prune", "gc", "restore", "rebuild"):  # they print what they do
            more.setdefault("says", "")
        return self.lmc("series", "s", *args, **more)

    def denies(self, *args, code, says):
        """An error with that text, and nothing has changed except, perhaps, the time of series.json."""
        def state():
            return {f: (os.path.isfile(self.path(f)) and self.read(f), os.lstat(self.path(f)).st_mtime_ns if not f.startswith("s/series.json") and
                        os.path.isfile(self.path(f)) else 0) for f in self.tree()}
        before = state()
        p = self.series(*args, code=code, says=says)
        self.assertEqual(state(), before)
        return p

    def put(self, name, content):
        """Writes a source: a file, or a directory."""
        for path, data in content.items() if isinstance(content, dict) else [("", content)]:
            self.write(name + "/" + path if path else name, data)

    def add(self, name, content, *args, **more):
        source = name if isinstance(content, dict) else name + ".safetensors"
        self.put(source, content)
        p = self.series("add", *args, source, **more)
        if p.returncode == 0:
            self.want[name] = content
        return p

    def listed(self, directory="s", code=0, says=None):
        return {e["name"]: e for e in json.loads(self.lmc("series", directory, "list", "--json", code=code, says=says).stdout)["snapshots"]}

    def kept(self, directory="s", **more):
        return {n for n, e in self.listed(directory, **more).items() if e["state"] == "kept"}

    def check_restore(self, name, directory="s"):
        if isinstance(self.want[name], dict):
            self.lmc("series", directory, "restore", name, "-o", "out", says="%s is restored to out" % name)
            self.assertEqual({f: d for f, d in self.snapshot("out").items() if d is not False}, self.want[name], name)
            shutil.rmtree(self.path("out"))
        else:
            self.assertEqual(self.lmc("series", directory, "restore", "-c", name).stdout, self.want[name], name)

    def check_all(self, names=None, directory="s"):
        """All kept snapshots restore what was added, and have these names."""
        kept = self.kept(directory)
        self.assertEqual(kept, set(self.want if names is None else names))
        for name in kept:
            self.check_restore(name, directory)

    def files(self, directory="s"):
        return {f[:-4] for f in os.listdir(self.path(directory)) if f.endswith(".lmc")}

    def chain(self, n, size=2000, kind=model, name="step_%d", *args):
        weights, moments = bf16(size, 3), f32(size // 2, 4)
        for i in range(n):
            content = model(weights, i) if kind is model else checkpoint(weights, moments, i)
            self.add(name % i, content, *args)
            weights, moments = step(weights, self.rng), step(moments, self.rng, 0.2)

    def entries(self):
        text = self.read("s/series.json")
        return json.loads(text)["snapshots"]


# ---- verbs ----


class Verbs(SeriesCase):
    def test_add_list_restore(self):
        self.chain(6, 2000, model, "step_%d", "--every", "4")
        self.check_all()
        entries = self.listed()
        self.assertEqual(list(entries), ["step_%d" % i for i in range(6)])
        self.assertEqual([e["depth"] for e in entries.values()], [0, 1, 2, 3, 0, 1])
        self.assertEqual([e["kind"] for e in entries.values()], ["anchor"] + ["delta"] * 3 + ["anchor", "delta"])
        self.assertEqual(entries["step_3"]["base"], "step_2")
        self.assertEqual(entries["step_3"]["source"], "step_3.safetensors")
        self.assertEqual(entries["step_3"]["size"], len(self.want["step_3"]))
        self.assertEqual(entries["step_3"]["packed_size"], os.path.getsize(self.path("s/step_3.lmc")))
        text = self.series("list").stdout.decode()
        self.assertEqual(len(text.splitlines()), 8)
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertIn("step_2", text)
        self.assertEqual(sorted(os.listdir(self.path("s"))), sorted([".lock", "series.json"] + ["step_%d.lmc" % i for i in range(6)]))
        # a file of the series is an ordinary one
        self.lmc("-d", "--base", "s/step_0.lmc", "s/step_1.lmc", "-o", "x")
        self.assertEqual(self.read("x"), self.want["step_1"])

    def test_restore_by_number_and_latest(self):
        self.chain(3, 500, model, "step-%06d")
        for name, wanted in (("0", 0), ("1", 1), ("00002", 2), ("latest", 2), ("step-000001", 1)):
            self.series("restore", name, "-o", "x")
            self.assertEqual(self.read("x"), self.want["step-%06d" % wanted], name)
            os.unlink(self.path("x"))
        self.add("gpt-step-000001.bf16", self.want["step-000000"], says="which stays 'latest'")
        self.denies("restore", "1", "-o", "x", code=1, says="several snapshots with that number")
        self.denies("restore", "16", "-o", "x", code=1, says="has no snapshot '16'")
        self.denies("restore", "7", "-o", "x", code=1, says="'lmc series DIR list' lists them")
        self.series("prune", "gpt-step-000001.bf16")
        self.assertEqual(self.series("restore", "-c", "1").stdout, self.want["step-000001"])
        self.assertEqual(self.series("restore", "-c", "gpt-step-000001.bf16").stdout, self.want["step-000000"])  # until gc
        self.assertEqual(self.series("restore", "-c", "latest").stdout, self.want["step-000002"])

    def test_restore_default_name(self):
        self.add("a", model(bf16(100), 1))
        self.add("d", checkpoint(bf16(100), f32(10), 1))
        os.mkdir(self.path("elsewhere"))
        for name in ("a", "d"):
            p = subprocess.run([LMC, "series", "../s", "restore", name], cwd=self.path("elsewhere"), stderr=subprocess.PIPE)
            self.assertEqual((p.returncode, p.stderr), (0, b"lmc: ../s: %s is restored to %s\n" %
                                                        (name.encode(), b"a.safetensors" if name == "a" else b"d")))
        self.assertEqual(self.read("elsewhere/a.safetensors"), self.want["a"])
        self.assertEqual(self.read("elsewhere/d/trainer_state.json"), self.want["d"]["trainer_state.json"])
        self.denies("restore", "a", code=1, says="exists already; use -f")
        self.write("a.safetensors", b"old")
        self.series("restore", "-f", "a")
        self.assertEqual(self.read("a.safetensors"), self.want["a"])
        self.denies("restore", "a", "-o", "s/x", code=1, says="lies in the series")
        self.denies("cat", "a", "-o", "s/x", code=1, says="lies in the series")

    def test_restore_to_the_name_of_the_snapshot(self):
        """It goes to the snapshot's own name, not to that of its source, which may be the same for all."""
        for k in (1001, 1701):
            self.write("step-%d/model.bf16.safetensors" % k, model(bf16(100, k), k))
            self.series("add", "step-%d/model.bf16.safetensors" % k, "--name", "step-%06d" % k)
        for name, source in (("k9", "x1"), ("k10", "x.pt"), ("k11.bin", "y.bin"), ("k12", "llama-3.1-8b")):
            self.write(source, source.encode() * 100)
            self.series("add", source, "--name", name, says="lower number than step-001701")
        os.makedirs(self.path("dir/x1"))
        self.write("dir/x1/f", b"f" * 100)
        self.series("add", "dir/x1", "--name", "k13", says="")
        before = self.tree()
        for name, full, target in (("1001", "step-001001", "step-001001.safetensors"), ("step-001701", "step-001701", "step-001701.safetensors"),
                                   ("k9", "k9", "k9"), ("k10", "k10", "k10.pt"), ("k11.bin", "k11.bin", "k11.bin"), ("k12", "k12", "k12"),
                                   ("13", "k13", "k13")):
            self.series("restore", name, says="lmc: s: %s is restored to %s\n" % (full, target))
        self.assertEqual(set(self.tree()) - set(before), {"step-001001.safetensors", "step-001701.safetensors", "k9", "k10.pt", "k11.bin", "k12", "k13", "k13/f"})
        self.assertEqual(self.read("step-001701.safetensors"), self.read("step-1701/model.bf16.safetensors"))
        self.denies("restore", "k9", code=1, says="k9: exists already; use -f")
        self.series("restore", "-f", "k9")
        self.assertEqual(self.read("k9"), self.read("x1"))
        self.assertEqual(self.series("restore", "-q", "-o", "quiet", "k9").stderr, b"")
        self.assertEqual(self.series("restore", "-c", "k9").stderr, b"")
        os.makedirs(self.path("out"))
        self.series("restore", "-o", "out/", "1701", says="lmc: s: step-001701 is restored to out/step-001701.safetensors\n")
        self.series("restore", "-o", "out/", "k13", says="lmc: s: k13 is restored to out/k13\n")
        self.denies("restore", "-o", "out", "k9", code=1, says="out: is a directory; did you mean -o out/ ?")
        self.denies("restore", "-o", "s/", "k9", code=1, says="lies in the series")

    def test_numbers_that_go_backwards(self):
        """The lower step is not 'latest', which a message says."""
        weights = [bf16(1000)]
        while len(weights) < 9:
            weights.append(step(weights[-1], self.rng))
        for k in (1701, 1750):
            self.add("step-%d" % k, model(weights.pop(), k))
        for name, args in (("step-1001", ()), ("step-1002", ("--anchor",)), ("other-7", ())):
            self.add(name, model(weights.pop(), 7), *args, says="s/%s.lmc: has a lower number than step-1750, which stays 'latest'; if a run was resumed, "
                     "see 'lmc help series'\n" % name)
        for name, args in (("step-3", ("-q",)), ("other", ()), ("step-1750@2", ()), ("step-1751", ())):
            self.add(name, model(weights.pop(), 7), *args)  # no message

    def test_cat(self):
        self.chain(5, 3000, checkpoint)
        weights = self.want["step_3"]["model-1.safetensors"][-3000:]
        self.assertEqual(self.series("cat", "step_3", "a").stdout, weights)
        self.assertEqual(self.series("cat", "3", "a[10:20]").stdout, weights[20:40])
        self.assertTrue(self.series("cat", "--npy", "latest", "m").stdout.startswith(b"\x93NUMPY"))
        self.assertEqual(self.series("cat", "--file", "optimizer/rank0.safetensors", "0", "m").stdout, self.want["step_0"]["optimizer/rank0.safetensors"][-6000:])
        self.series("cat", "-o", "x", "step_3", "a")
        self.assertEqual(self.read("x"), weights)
        self.denies("cat", "step_3", "zz", code=1, says="has no tensor 'zz'")

    def test_directories(self):
        self.chain(7, 3000, checkpoint, "checkpoint-%d", "--every", "3")
        self.check_all()
        self.series("verify")
        self.series("verify", "checkpoint-5", "2")
        self.series("prune", "0", "1", "4")
        self.series("gc")
        for n in (0, 1, 4):
            del self.want["checkpoint-%d" % n]
        self.check_all()
        self.assertEqual(self.files(), set(self.want))

    def test_names(self):
        self.put("dir.safetensors/x", b"x")
        self.put("plain", b"y" * 1000)
        self.series("add", "dir.safetensors///")
        self.series("add", "./plain", "--name", "other name")
        self.series("add", "plain", "--name", "żółć 7")
        self.assertEqual(list(self.listed()), ["dir", "other name", "żółć 7"])
        self.assertEqual(self.series("restore", "-c", "7").stdout, b"y" * 1000)
        for name, why in ((".x", "begins with '.'"), ("-x", "begins with '.' or '-'"), ("a/b", "a slash"), ("a\nb", "control character"),
                          ("x" * 201, "longer than 200"), (b"\xff\xfe", "UTF-8")):
            self.denies("add", b"--name=" + os.fsencode(name), "plain", code=2, says=why)
        self.denies("add", "--name", "", "plain", code=2, says="needs a value")
        self.series("add", "--name", "x" * 200, "plain")
        self.write(".hidden", b"z")
        self.denies("add", ".hidden", code=2, says="choose one with --name")
        self.series("add", ".hidden", "--name", "hidden")
        self.assertEqual(self.listed()["hidden"].get("source"), None)

    def test_natural_order_and_numbers(self):
        for name in ("b10", "b9", "a-2-fp32", "a-10-fp32", "x", "y1"):
            self.write("r/" + name, name.encode() * 50)
            self.lmc("r/" + name)
            os.unlink(self.path("r/" + name))
        self.lmc("series", "r", "rebuild", says="lmc: r: the new list has 6 snapshots\n")
        self.assertEqual(list(self.listed("r")), ["y1", "a-2-fp32", "b9", "a-10-fp32", "b10", "x"])
        self.lmc("series", "r", "prune", "--keep-every", "10", says="")  # snapshots without a number stay
        self.assertEqual(self.kept("r"), {"a-10-fp32", "b10", "x"})
        names = ["llama-3-8b-step500", "llama-3-8b-step1000", "global_step1500-fp32", "qwen-7b-iter_0002000", "epoch=3-Step=3000-v1", "epoch=4-Step=3500"]
        for i, name in enumerate(names):
            self.put("w", b"%d" % i)
            self.lmc("series", "n", "add", "--name", name, "w")
        for number, name in ((500, 0), (1000, 1), (1500, 2), (2000, 3), (3000, 4)):
            self.assertEqual(self.lmc("series", "n", "restore", "-c", str(number)).stdout, b"%d" % name)
        self.lmc("series", "n", "prune", "--keep-every", "1000", says="")
        self.assertEqual(self.kept("n"), {names[1], names[3], names[4]})

    def test_anchor_and_every(self):
        weights = bf16(500)
        for i, (args, depth) in enumerate([([], 0), ([], 1), (["--anchor"], 0), ([], 1), (["--every", "2"], 0), ([], 1), ([], 0), (["--every=5"], 1), ([], 2)]):
            weights = step(weights, self.rng)
            self.add("s%d" % i, model(weights, i), *args)
            self.assertEqual(self.listed()["s%d" % i]["depth"], depth, i)
        self.add("last", model(weights, 9), "--every", "1")
        self.assertEqual(self.listed()["last"]["depth"], 0)
        self.check_all()

    def test_rm_and_verify(self):
        weights, moments = bf16(2000), f32(100)
        self.add("a", model(weights, 0), "--rm")
        self.assertFalse(os.path.exists(self.path("a.safetensors")))
        self.add("d", checkpoint(weights, moments, 1), "--rm")
        self.assertFalse(os.path.exists(self.path("d")))
        self.add("e", checkpoint(step(weights, self.rng), moments, 2), "--verify")
        self.assertTrue(os.path.exists(self.path("e/trainer_state.json")))
        os.symlink("e", self.path("link"))
        self.denies("add", "--rm", "link", code=1, says="is a link")
        self.series("add", "link")
        self.want["link"] = self.want["e"]
        self.check_all()

    def test_add_again(self):
        weights, moments = bf16(2000), f32(100)
        self.add("a", model(weights, 0))
        self.add("d", checkpoint(weights, moments, 1))
        self.denies("add", "a.safetensors", code=1, says="already has a snapshot a; give the new one another name")
        self.series("add", "--rm", "a.safetensors")  # it is the same content
        self.assertFalse(os.path.exists(self.path("a.safetensors")))
        for content, says in ((model(step(weights, self.rng), 0), "differs from its snapshot"), (self.want["a"] + b"x", "longer"), (self.want["a"][:-1], "differs")):
            self.write("a.safetensors", content)
            self.denies("add", "--rm", "a.safetensors", code=1, says=says)
        self.put("a", {"x": b"1"})
        self.denies("add", "--rm", "a", code=1, says="nothing was removed")
        self.write("d/more", b"1")
        self.denies("add", "--rm", "d", code=1, says="holds something that s/d.lmc does not")
        os.unlink(self.path("d/more"))
        self.write("d/model-2.safetensors", b"other")
        self.denies("add", "--rm", "d", code=1, says="differs from its snapshot")
        os.unlink(self.path("d/model-2.safetensors"))  # a part is not the same
        self.denies("add", "--rm", "d", code=1, says="d/model-2.safetensors: is missing, but the snapshot has it")
        shutil.rmtree(self.path("d"))
        os.mkdir(self.path("d"))
        self.denies("add", "--rm", "d", code=1, says="nothing was removed")
        self.put("d", self.want["d"])
        self.series("add", "--rm", "d")
        self.assertFalse(os.path.exists(self.path("d")))
        self.series("prune", "d")
        self.put("d", self.want["d"])
        self.denies("add", "--rm", "d", code=1, says="is forgotten; 'lmc series DIR keep d' first")
        self.denies("add", "d", code=1, says="which is forgotten, but not removed yet")
        # an empty directory as a snapshot is not confused with an empty one inside another
        os.mkdir(self.path("empty"))
        self.series("add", "empty")
        self.write("empty/x", b"1")
        self.denies("add", "--rm", "empty", code=1, says="holds something")

    def test_prune_and_keep(self):
        self.chain(12, 300)
        self.assertEqual(self.series("prune", "--dry-run", "--keep-last", "3", "--keep-every", "5").stdout.decode().split(),
                         sum([["forget", "step_%d" % i] for i in (1, 2, 3, 4, 6, 7, 8)], []))
        self.assertEqual(len(self.kept()), 12)
        self.series("prune", "--keep-last", "3", "--keep-every", "5", "--keep", "step_2", "--keep", "3")
        self.assertEqual(self.kept(), {"step_%d" % i for i in (0, 2, 3, 5, 9, 10, 11)})
        self.assertEqual(len(self.files()), 12)
        self.series("keep", "step_1", "4")
        self.series("keep", "step_1", says="s: step_1 is kept already")
        self.assertEqual(self.kept(), {"step_%d" % i for i in (0, 1, 2, 3, 4, 5, 9, 10, 11)})
        p = self.series("prune", "step_6", "step_7", says="s: step_6 is forgotten already\nlmc: s: step_7 is forgotten already\n")
        self.assertEqual(p.stderr.count(b"\n"), 2)
        self.assertTrue(self.series("list").stdout.decode().splitlines()[-1].startswith("12 snapshots (3 forgotten), "))
        self.assertEqual(self.series("prune", "-q", "step_6").stderr, b"")
        self.denies("keep", "6", "nothing", code=1, says="has no snapshot 'nothing'")
        self.denies("prune", code=2, says="needs names to forget, or rules")
        self.denies("prune", "--keep-last", "3", "step_1", code=2, says="needs names")
        self.denies("prune", "--keep-last", "0", code=2, says="not a number from 1 up")
        self.denies("prune", "--keep", "none", code=1, says="has no snapshot 'none'")
        self.denies("prune", "step_1", "none", code=1, says="has no snapshot 'none'")
        self.denies("prune", "--keep-every", "100000000000000000000", code=2, says="not a number")
        self.series("prune", "0")
        self.denies("prune", "--keep-every", "100", code=1, says="keep no snapshot at all")
        self.want = {n: c for n, c in self.want.items() if n in self.kept()}
        self.check_all()
        self.assertIn("remove step_6.lmc", self.series("gc", "--dry-run").stdout.decode())
        self.series("gc")
        self.check_all()
        self.assertEqual(self.files(), set(self.want))
        self.series("gc")
        self.denies("prune", *self.want, code=1, says="use -f to forget them all the same")
        self.series("prune", "-f", *self.want)  # all, by name
        self.series("gc")
        self.assertEqual((self.files(), self.listed()), (set(), {}))
        self.want = {}
        self.chain(2, 300)
        self.check_all()

    def test_gc_dry_run(self):
        self.chain(4, 300)
        self.series("prune", "0", "2")
        before = self.snapshot("s")
        out = self.series("gc", "--dry-run").stdout.decode().splitlines()
        self.assertEqual(out, ["make an anchor of step_1", "re-code step_3 against step_1", "remove step_2.lmc", "remove step_0.lmc"])
        self.assertEqual(self.snapshot("s"), before)

    def test_gc_across_anchors(self):
        """The rest is coded against the rest, even if anchors between are removed; chains keep their limit."""
        self.chain(20, 3000, model, "step_%d", "--every", "4")
        self.series("prune", "--keep-every", "5")
        self.series("gc")
        self.want = {"step_%d" % i: self.want["step_%d" % i] for i in (0, 5, 10, 15)}
        self.check_all()
        self.assertEqual([e["depth"] for e in self.listed().values()], [0, 1, 2, 3])
        self.chain(24, 500, model, "other_%d", "-q")
        self.series("prune", "--keep-every", "3", "--keep-last", "2")
        self.series("gc")
        self.assertLessEqual(max(e["depth"] for e in self.listed().values()), 3)
        self.want = {n: c for n, c in self.want.items() if n in self.kept()}
        self.check_all()

    def test_gc_does_what_it_said(self):
        """Snapshots that gc codes again change the files that later ones use as bases."""
        self.chain(5, 300, model, "step_%d", "--every", "3")
        self.series("prune", "0", "2", "3")
        said = self.series("gc", "--dry-run").stdout.decode().splitlines()
        done = [line[5:] for line in self.series("gc", "-v").stderr.decode().splitlines()]
        self.assertEqual(said, ["make an anchor of step_1", "re-code step_4 against step_1"] + ["remove step_%d.lmc" % i for i in (2, 0, 3)])
        self.assertEqual([line for line in done if line in said], said)

    def test_gc_tells_mirrors(self):
        """A file that gc has coded again gets a new time, even if it has the old size, so that mirrors notice."""
        self.chain(3, 20000)
        for n in range(3):
            os.utime(self.path("s/step_%d.lmc" % n), (1000000000, 1000000000))
        self.series("prune", "1")
        self.series("gc")
        self.assertEqual(os.stat(self.path("s/step_0.lmc")).st_mtime, 1000000000)
        self.assertNotEqual(os.stat(self.path("s/step_2.lmc")).st_mtime, 1000000000)

    def test_every_pattern_of_forgetting(self):
        self.chain(7, 300, checkpoint)
        want = self.want
        for pattern in range(128):
            forgotten = ["step_%d" % i for i in range(7) if pattern >> i & 1]
            shutil.copytree(self.path("s"), self.path("t"))
            if forgotten:
                self.lmc("series", "t", "prune", "-f", *forgotten, says="")
            self.lmc("series", "t", "gc", says="")
            self.want = {n: c for n, c in want.items() if n not in forgotten}
            self.check_all(directory="t")
            self.assertEqual(self.files("t"), set(self.want))
            self.assertEqual(set(os.listdir(self.path("t"))) - {n + ".lmc" for n in self.want}, {".lock", "series.json"})
            for e in self.listed("t").values():
                self.assertTrue(e["depth"] == 0 or e["base"] in self.want)
            shutil.rmtree(self.path("t"))

    def test_same_content_again(self):
        """Fingerprints repeat: chains have no loops, and files that differ only in their headers are restored exactly."""
        a, b = bf16(1000, 1), bf16(1000, 2)
        for i, (weights, note) in enumerate([(a, ""), (b, ""), (a, ""), (a, "x"), (b, "y"), (b, ""), (a, "z"), (a, "")]):
            self.add("s%d" % i, model(weights, 0, note))
        self.check_all()
        want = self.want
        for pattern in range(1, 256):
            forgotten = ["s%d" % i for i in range(8) if pattern >> i & 1]
            if len(forgotten) not in (1, 2, 6):
                continue
            shutil.copytree(self.path("s"), self.path("t"))
            self.lmc("series", "t", "prune", "-f", *forgotten, says="")
            self.lmc("series", "t", "gc", says="")
            self.want = {n: c for n, c in want.items() if n not in forgotten}
            self.check_all(directory="t")
            self.assertEqual(self.files("t"), set(self.want))
            shutil.rmtree(self.path("t"))

    def test_random_operations(self):
        """Random operations, compared with a model."""
        weights, forgotten, n = bf16(300), {}, 0
        self.add("first", model(weights, 0), "--every", "4")
        for i in range(150):
            what = self.rng.random()
            if what < 0.5:
                weights = step(weights, self.rng) if self.rng.random() < 0.8 else weights
                self.add("s_%d" % n, model(weights, n, self.rng.choice(["", "note"])), *self.rng.choice([[], [], ["--anchor"], ["--verify"]]))
                n += 1
            elif what < 0.7 and len(self.want) > 1:
                for name in self.rng.sample(sorted(self.want), self.rng.randrange(1, len(self.want))):
                    self.series("prune", name)
                    forgotten[name] = self.want.pop(name)
            elif what < 0.8 and forgotten:
                name = self.rng.choice(sorted(forgotten))
                self.series("keep", name)
                self.want[name] = forgotten.pop(name)
            elif what < 0.9:
                self.series("gc")
                forgotten = {}
                self.assertEqual(self.files(), set(self.want))
            elif what < 0.92:
                self.series("rebuild")
                self.want.update(forgotten)
                forgotten = {}
            self.assertEqual(self.kept(), set(self.want))
            if i % 5 == 0:
                self.check_all()
        self.series("verify")
        self.check_all()

    def test_chain_of_100(self):
        self.chain(100, 200, model, "step_%d", "--every", "1000")
        self.assertEqual(max(e["depth"] for e in self.listed().values()), 99)
        self.series("verify")
        self.check_all()
        self.assertEqual(self.series("cat", "57", "w[7:9]").stdout, self.want["step_57"][-400:][14:18])
        self.series("prune", "--keep-every", "10", "--keep", "57")
        self.series("gc")
        self.want = {n: c for n, c in self.want.items() if n.endswith("0") or n == "step_57"}
        self.check_all()
        self.assertEqual(max(e["depth"] for e in self.listed().values()), 10)

    def test_rebuild(self):
        self.chain(5, 300)
        self.series("prune", "1")
        os.unlink(self.path("s/series.json"))
        self.denies("list", code=1, says="but no series.json; 'lmc series DIR rebuild'")
        self.denies("add", "step_1.safetensors", code=1, says="but no series.json; 'lmc series DIR rebuild'")
        self.series("rebuild", "--every", "7")
        self.check_all()  # forgotten snapshots are back
        self.write("s/series.json", b"{")
        self.series("rebuild")
        self.check_all()
        self.assertEqual(self.read("s/series.json.old"), b"{")
        self.assertEqual(self.series("rebuild", "-q").stderr, b"")
        self.write("s/x.lmc", b"no snapshot")
        self.denies("rebuild", code=3, says="move away what is not a snapshot")
        os.rename(self.path("s/x.lmc"), self.path("x.lmc"))
        os.mkfifo(self.path("s/x.lmc"))
        self.denies("rebuild", code=1, says="is not a file; move it away")
        os.unlink(self.path("s/x.lmc"))
        os.rename(self.path("s/step_2.lmc"), self.path("step_2.lmc"))
        self.lmc("series", "s", "rebuild", code=4, says="needs the base")
        self.assertEqual(self.kept(code=4, says="needs the base"), {"step_0", "step_1", "step_3", "step_4"})
        self.assertEqual(self.listed(code=4)["step_4"].get("depth"), None)
        self.denies("restore", "step_4", "-o", "x", code=4, says="needs the base")
        self.denies("gc", code=4, says="nothing was removed")
        os.rename(self.path("step_2.lmc"), self.path("s/step_2.lmc"))
        self.series("rebuild")
        self.check_all()

    def test_rebuild_says_what_is_lost(self):
        """A snapshot whose file is missing is named."""
        self.chain(9, 300, model, "step_%d", "--every", "3")
        self.series("prune", "step_2", "step_8")
        os.unlink(self.path("s/step_5.lmc"))  # nothing depends on it
        text = self.series("list", code=1, says="s/step_5.lmc: is missing").stdout.decode()
        self.assertTrue(text.splitlines()[-1].startswith("9 snapshots (2 forgotten, 1 missing), "))
        self.denies("verify", "step_5", code=1, says="is missing; bring it back")
        times = {n: e["time"] for n, e in self.listed(code=1).items()}
        self.series("rebuild", says="lmc: s: the new list has 8 snapshots; given up, for their files are missing: step_5; "
                    "forgotten before, and kept again: step_2, step_8; the old one is series.json.old\n")
        del self.want["step_5"], times["step_5"]
        self.check_all()
        self.assertEqual({n: e["time"] for n, e in self.listed().items()}, times)  # and the sources' names are kept
        self.denies("restore", "step_4", code=1, says="step_4.safetensors: exists already")
        self.series("prune", "step_2")
        self.series("gc")
        for k in (0, 1, 3, 4, 8):
            os.unlink(self.path("s/step_%d.lmc" % k))
        self.series("rebuild", code=0, says="the new list has 2 snapshots; given up, for their files are missing: step_0, step_1, step_3 and 2 more; "
                    "gone, and no longer known to watch: step_2; the old one is series.json.old\n")
        os.unlink(self.path("s/step_6.lmc"))  # step_7 depends on it
        self.series("rebuild", code=4, says="given up, for their files are missing: step_6; ")
        self.write("s/series.json", b"{")
        self.series("rebuild", code=4, says="s: the new list has 1 snapshot; the old one is series.json.old, and cannot be read\n")
        os.unlink(self.path("s/series.json"))
        self.series("rebuild", code=4, says="lmc: s: the new list has 1 snapshot\n")

    def test_options_of_compressing(self):
        weights = bf16(60000)
        self.add("a", model(weights, 0))
        self.add("b", model(weights, 0), "--anchor", "--max", "-T1")
        sizes = {n: e["packed_size"] for n, e in self.listed().items()}
        self.assertLess(sizes["b"], sizes["a"])
        self.write("raw", weights)
        self.series("add", "--anchor", "raw")
        self.series("add", "--anchor", "--dtype", "BF16", "--name", "typed", "raw")
        self.series("add", "--anchor", "--opaque", "--name", "opaque", "raw")
        self.assertEqual([len(self.listing("s/%s.lmc" % n)["files"][0]["tensors"]) for n in ("raw", "typed", "opaque")], [0, 1, 0])
        self.put("twins", {"1.safetensors": model(weights, 0), "2.safetensors": model(weights, 1)})
        self.series("add", "--anchor", "twins")
        self.series("add", "--anchor", "--no-twins", "twins", "--name", "alone")
        sizes = {n: e["packed_size"] for n, e in self.listed().items()}
        self.assertLess(sizes["twins"] * 1.5, sizes["alone"])
        p = self.series("add", "-v", "twins", "--name", "again")
        self.assertIn("a delta of twins", p.stderr.decode())


# ---- names are not content ----


class Names(SeriesCase):
    """Files of a series that were copied, moved or exchanged: what counts is their fingerprint, not their name."""

    OTHER = "is not the snapshot that was added under this name"

    def swap(self, a, b):
        for x, y in ((a, "t"), (b, a), ("t", b)):
            os.rename(self.path("s/%s.lmc" % x), self.path("s/%s.lmc" % y))

    def copy(self, a, b):
        shutil.copyfile(self.path("s/%s.lmc" % a), self.path("s/%s.lmc" % b))

    def check_verbs(self, name, code, says):
        """Each verb that reads this snapshot refuses it with that code and that message, and changes nothing."""
        for args in (["restore", "-f", "-o", "x", name], ["restore", "-c", name], ["cat", name, "w"], ["cat", "-o", "x", name, "w"], ["verify", name]):
            self.denies(*args, code=code, says=says)
        for args in (["verify"], ["gc"], ["gc", "--dry-run"]):
            self.assertIn(says, self.series(*args, code=self.worst, says=says).stderr.decode())

    def test_every_verb_with_another_file(self):
        """The verbs, with each file replaced by the file of each other snapshot."""
        self.chain(4, 2000, model, "step_%d", "--every", "3")  # anchor, delta, delta, anchor
        whole = {n: self.read("s/step_%d.lmc" % n) for n in range(4)}
        self.put("new.safetensors", model(bf16(2000), 9))
        for to in range(4):
            for of in set(range(4)) - {to}:
                self.copy("step_%d" % of, "step_%d" % to)
                self.worst = 4 if to < 2 else 3  # others need it
                says = "s/step_%d.lmc: %s (%s), but step_%d (%s); bring the right file back" % (
                    to, self.OTHER, self.entries()[to]["fingerprint"][:16], of, self.entries()[of]["fingerprint"][:16])
                self.check_verbs("step_%d" % to, 3, says)
                self.denies("restore", "-o", "x", str(to), code=3, says=self.OTHER)
                if to == 3:
                    self.denies("restore", "-o", "x", "latest", code=3, says=self.OTHER)
                listed = self.listed(code=3, says=says)
                self.assertEqual([e["kind"] == "other" for e in listed.values()], [n == to for n in range(4)])
                self.assertRegex(self.series("list", code=3, says=says).stdout.decode(), r"step_%d +other [^\0]*\(1 other\)" % to)
                for n in range(to + 1, 3 if to < 3 else 0):  # its deltas
                    self.denies("restore", "-o", "x", str(n), code=4, says="needs the base step_%d (" % to)
                    self.assertRegex(self.series("list", code=3, says=says).stdout.decode(), r"step_%d +delta +- .* \(other\)" % (to + 1))
                for n in set(range(4)) - set(range(to, 3 if to < 3 else 4)):
                    self.assertEqual(self.series("restore", "-c", str(n)).stdout, self.want["step_%d" % n])
                self.denies("add", "--rm", "step_%d.safetensors" % to, code=3, says=self.OTHER)
                self.series("prune", "step_%d" % to)
                self.denies("keep", "step_%d" % to, code=3, says=self.OTHER)
                self.series("gc", code=3 if to > 1 else 4, says=self.OTHER)  # also a forgotten file stays
                self.assertEqual(self.read("s/step_%d.lmc" % to), whole[of])
                self.write("s/step_%d.lmc" % to, whole[to])
                self.series("keep", "step_%d" % to)
                self.check_all()

    def test_add_against_another_file(self):
        """Nothing is coded against a file that is not the last snapshot."""
        self.chain(3, 2000)
        self.copy("step_0", "step_2")
        self.add("step_3", model(bf16(2000, 3), 3), says="s/step_2.lmc: cannot be restored, so the new snapshot is not coded against it")
        self.assertEqual(self.listed(code=3)["step_3"]["kind"], "anchor")
        self.check_restore("step_3")

    def test_exchanged_files(self):
        self.chain(3, 2000, checkpoint)
        self.swap("step_1", "step_2")
        for n, m in ((1, 2), (2, 1)):
            self.denies("restore", "-o", "x", str(n), code=3, says="s/step_%d.lmc: %s" % (n, self.OTHER))
            self.denies("cat", str(n), "a", code=3, says="but step_%d (" % m)
        self.assertEqual([e["kind"] for e in self.listed(code=3).values()], ["anchor", "other", "other"])
        self.swap("step_1", "step_2")
        self.check_all()

    def test_a_file_of_elsewhere(self):
        """An older copy, put back over a newer file; and what was never in the series."""
        self.chain(2, 2000)
        self.write("old.safetensors", model(bf16(2000, 77), 77))
        self.lmc("old.safetensors")
        whole = self.read("s/step_1.lmc")
        shutil.copyfile(self.path("old.safetensors.lmc"), self.path("s/step_1.lmc"))
        self.denies("restore", "-o", "x", "1", code=3, says="but another (")
        self.series("rebuild", says="other snapshots than before: step_1; ")
        self.assertEqual(self.series("restore", "-c", "1").stdout, self.read("old.safetensors"))
        self.write("s/step_1.lmc", whole)
        self.denies("restore", "-o", "x", "1", code=3, says=self.OTHER)

    def test_a_damaged_index_is_no_other_file(self):
        self.chain(1, 2000)
        whole = self.read("s/step_0.lmc")
        at = whole.rindex(bytes.fromhex(self.entries()[0]["fingerprint"]))
        self.write("s/step_0.lmc", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
        p = self.denies("restore", "-o", "x", "0", code=3, says="lmc salvage")
        self.assertNotIn(self.OTHER, p.stderr.decode())

    def test_the_same_content_again(self):
        """gc codes a file anew, rsync writes it anew: the content is the same, and nothing is said."""
        self.chain(3, 2000)
        self.series("prune", "1")
        self.series("gc")
        del self.want["step_1"]
        self.lmc("rebase", "--base", "s/step_0.lmc", "--onto", "none", "s/step_2.lmc", "-o", "x.lmc")
        os.rename(self.path("x.lmc"), self.path("s/step_2.lmc"))
        self.check_all()
        self.assertEqual(self.listed()["step_2"]["kind"], "anchor")


# ---- steps ----


class Steps(SeriesCase):
    """'latest' and retention follow the numbers in the names."""

    def put_all(self, names):
        for i, name in enumerate(names):
            self.write("w", name.encode() * 20 + b"%d" % i)
            self.lmc("series", "s", "add", "-q", "--name", name, "w")

    def check_order(self, added, steps):
        """steps: these names in the order of steps. It decides list, latest, and what each --keep-last keeps."""
        shutil.rmtree(self.path("s"), ignore_errors=True)
        self.put_all(added)
        self.assertEqual(list(self.listed()), steps)
        self.assertEqual([line.split()[0] for line in self.series("list").stdout.decode().splitlines()[1:-1]], steps)
        self.assertIn(steps[-1].encode() * 20, self.series("restore", "-c", "latest").stdout)
        for k in range(1, len(steps) + 1):
            forgets = self.series("prune", "--dry-run", "--keep-last", str(k)).stdout.decode().split()[1::2]
            self.assertEqual(sorted(forgets), sorted(steps[:-k]), k)

    def test_orders(self):
        big = "step-%d" % (1 << 64)
        for added, steps in (
                (["step-0110", "step-0120", "step-0020"], ["step-0020", "step-0110", "step-0120"]),
                (["step-9", "step-10", "step-8"], ["step-8", "step-9", "step-10"]),
                # equal numbers: the one added last; also a step that was written again
                (["step-30", "step-030", "step-29"], ["step-29", "step-30", "step-030"]),
                (["b-30", "a-30"], ["b-30", "a-30"]),
                (["step-0030", "step-0040", "step-0030@2", "step-0040@2", "step-0030@3"], ["step-0030", "step-0030@2", "step-0030@3", "step-0040", "step-0040@2"]),
                (["checkpoint-30", "checkpoint-40", "checkpoint-30@2"], ["checkpoint-30", "checkpoint-30@2", "checkpoint-40"]),
                (["step-30.2", "step-40", "step-30.1"], ["step-30.2", "step-30.1", "step-40"]),
                (["best", "step-1", "best@2", "@7", "run@2-step-0", "run@3"], ["best", "run@2-step-0", "step-1", "best@2", "@7", "run@3"]),
                # beyond 64 bits
                ([big + "7", big, "step-7"], ["step-7", big, big + "7"]),
                (["9" * 60, "1" + "0" * 60, "0" * 70 + "5"], ["0" * 70 + "5", "9" * 60, "1" + "0" * 60]),
                # names without a number stand where they were added, behind what was there
                (["init", "step-20", "best", "step-30", "step-10", "final"], ["init", "step-10", "step-20", "best", "step-30", "final"]),
                (["step-110", "final", "step-20"], ["step-20", "step-110", "final"]),
                (["x", "b", "a"], ["x", "b", "a"]),
                # several numbers
                (["epoch-2-batch-10", "epoch-1-batch-90", "epoch-2-batch-9"], ["epoch-1-batch-90", "epoch-2-batch-9", "epoch-2-batch-10"]),
                (["2026-12-01", "2026-11-28", "2025-12-31"], ["2025-12-31", "2026-11-28", "2026-12-01"]),
                (["epoch=1-step=200-v1", "epoch=0-step=300", "loss=0.25-step=100"], ["loss=0.25-step=100", "epoch=1-step=200-v1", "epoch=0-step=300"]),
                (["llama-3-8b-step1000-bf16", "llama-3-8b-step500-bf16"], ["llama-3-8b-step500-bf16", "llama-3-8b-step1000-bf16"]),
                (["llama-70b-2000", "llama-70b-1000"], ["llama-70b-1000", "llama-70b-2000"]),
                (["epoch_2.5", "epoch_1.5", "epoch_10.0"], ["epoch_1.5", "epoch_2.5", "epoch_10.0"])):
            self.check_order(added, steps)

    def test_a_number_finds(self):
        big = str(1 << 64)
        self.put_all(["step-030", "step-7", "step-" + big, "step-30@2", "step-8@2", "step-1" + big])
        for text, name in (("7", "step-7"), ("007", "step-7"), ("8", "step-8@2"), (big, "step-" + big), ("00" + big, "step-" + big), ("1" + big, "step-1" + big)):
            self.assertTrue(self.series("restore", "-c", text).stdout.startswith(name.encode() * 20), text)
        self.denies("restore", "30", "-o", "x", code=1, says="has several snapshots with that number, step-030 and step-30@2; give the name")
        self.denies("prune", "30", code=1, says="several snapshots with that number")
        self.denies("restore", "2", "-o", "x", code=1, says="has no snapshot '2'")
        self.assertTrue(self.series("restore", "-c", "step-030").stdout.startswith(b"step-030" * 20))

    def test_multiples(self):
        """--keep-every, with numbers and distances of any size."""
        numbers = [0, 1000, 1001, (1 << 64) * 1000, (1 << 64) * 1000 + 1, 10 ** 60, 7 * (2 ** 63 - 1), 7 * (2 ** 63 - 1) + 1]
        self.put_all(["step-%d" % n for n in numbers] + ["best"])
        for every in (1, 3, 1000, 2 ** 62 + 1, 2 ** 63 - 1):
            forgets = self.series("prune", "--dry-run", "--keep-every", str(every)).stdout.decode().split()[1::2]
            self.assertEqual(forgets, ["step-%d" % n for n in numbers if n % every])

    def test_what_is_forgotten_decides_no_order(self):
        self.put_all(["step-20", "step-30", "step-40", "best"])
        self.series("prune", "30", "40", says="")
        self.put_all(["step-25"])
        self.assertIn(b"step-25" * 20, self.series("restore", "-c", "latest").stdout)
        self.series("prune", "--keep-last", "1")
        self.assertEqual(self.kept(), {"step-25"})

    def test_never_a_higher_step_for_a_lower_one(self):
        """Any order of adding: what --keep-last forgets is lower than what it keeps."""
        for _ in range(12):
            shutil.rmtree(self.path("s"), ignore_errors=True)
            numbers = self.rng.sample(range(50), 6)
            self.put_all(["ckpt-%d" % n for n in numbers])
            k = self.rng.randrange(1, 6)
            self.series("prune", "--keep-last", str(k))
            self.assertEqual(self.kept(), {"ckpt-%d" % n for n in sorted(numbers)[-k:]})


# ---- refusals ----


class Refusals(SeriesCase):
    def test_usage(self):
        self.add("a", model(bf16(50), 0))
        for args, says in ((["series"], "usage: lmc series DIR VERB"), (["series", "s", "what"], "'what' is an unknown series command; after"),
                           (["series", "s", "ls"], "did you mean 'list'?"), (["series", "s", "log"], "did you mean 'list'?"), (["series", "s", "rm", "a"], "did you mean 'prune'?"),
                           (["series", "s", "restor", "a"], "did you mean 'restore'?"), (["series", "list"], "the directory comes before the command: 'lmc series DIR list'"),
                           (["series", "s", "add"], "usage: lmc series DIR add"), (["series", "s", "add", "a", "b"], "wrong number"),
                           (["series", "s", "list", "x"], "wrong number"), (["series", "s", "restore"], "wrong number"), (["series", "s", "cat"], "wrong number"),
                           (["series", "s", "gc", "x"], "wrong number"), (["series", "s", "keep"], "wrong number"), (["series", "s", "watch"], "wrong number"),
                           (["series", "s", "list", "--rm"], "does not take --rm"), (["series", "s", "gc", "--every", "3"], "does not take"),
                           (["series", "s", "add", "--base", "a", "a"], "does not take"), (["series", "s", "add", "-r", "a"], "does not take"),
                           (["series", "s", "list", "--npy"], "does not take"), (["series", "s", "restore", "--max", "a"], "does not take"),
                           (["series", "s", "add", "-o", "x", "a"], "does not take"), (["series", "s", "gc", "--json"], "does not take"),
                           (["series", "s", "restore", "--dry-run", "a"], "does not take"), (["series", "s", "prune", "--once", "a"], "does not take"),
                           (["series", "s", "add", "--every", "0", "a"], "not a number from 1 up"), (["series", "s", "add", "--every", "x", "a"], "not a number"),
                           (["series", "s", "add", "--every"], "needs a value"), (["series", "s", "watch", "--settle", "-1", "a"], "not a number of seconds"),
                           (["series", "s", "watch", "--interval", "0", "a"], "not a number from 1 up"), (["series", "-d", "s", "list"], "excludes -z, -d"),
                           (["series", "s", "add", "--nonsense", "a"], "no option '--nonsense'"), (["series", "s", "restore", "-c", "-o", "x", "a"], "exclude each other"),
                           (["series", "s", "add", "--opaque", "--dtype", "BF16", "a"], "exclude each other"), (["series", "s", "add", "-", "--name", "x"], "not standard input"),
                           (["-t", "--keep-last", "3", "a"], "no option '--keep-last'"), (["--once", "a"], "no option '--once'")):
            self.refuses(None, *args, code=2, says=says)

    def test_sources(self):
        self.add("a", model(bf16(50), 0))
        self.put("d", {"x": b"1"})
        self.denies("add", "none", code=1, says="cannot open it")
        self.denies("add", "s/a.lmc", code=1, says="restore it, and add the restored files")
        self.denies("add", ".", code=2, says="choose one with --name")
        self.denies("add", "--name", "x", ".", code=1, says="is or holds the series itself")
        self.denies("add", "--name", "x", "s", code=1, says="is or holds the series itself")
        self.denies("add", "--name", "x", self.dir, code=1, says="is or holds the series itself")
        self.refuses("series", "d/new", "add", "d", code=1, says="is or holds the series itself")
        self.assertFalse(os.path.exists(self.path("d/new")))
        self.denies("add", "--name", "x", "s/.lock", code=1, says="is or holds the series itself")
        self.refuses("series", "none/new", "add", "d", code=1, says="cannot create the directory")
        self.refuses("series", "a.safetensors", "add", "d", code=1, says="is not a directory, but a series must be one")
        os.mkfifo(self.path("pipe"))
        self.denies("add", "pipe", code=1, says="neither a file nor a directory")
        os.rename(self.path("pipe"), self.path("d/pipe"))
        self.series("add", "d", "--name", "without_pipe", says="'pipe' is neither a file nor a directory nor a link, and is left out")
        self.write("bad.safetensors", b"no header")
        self.denies("add", "bad.safetensors", code=1, says="is not a valid safetensors file")
        self.assertEqual([e["name"] for e in self.entries()][-2:], ["a", "without_pipe"])
        self.write("s/b.lmc", b"mine")
        self.write("b", b"1")
        self.denies("add", "b", code=1, says="is there already, but not in the list")
        self.assertEqual(self.read("s/b.lmc"), b"mine")

    def test_no_series(self):
        os.mkdir(self.path("e"))
        self.write("f", b"1")
        for verb in (["list"], ["restore", "x"], ["cat", "x"], ["prune", "x"], ["keep", "x"], ["gc"], ["verify"]):
            self.refuses("series", "none", *verb, code=1, says="No such file")
            self.refuses("series", "e", *verb, code=1, says="is not a series; 'lmc series DIR add SNAPSHOT' begins one")
            self.refuses("series", "f", *verb, code=1, says="is not a directory")
        self.assertEqual(os.listdir(self.path("e")), [])

    def test_damaged_files(self):
        self.chain(4, 400)
        self.series("prune", "3")
        whole = {n: self.read("s/step_%d.lmc" % n) for n in range(4)}
        os.unlink(self.path("s/step_1.lmc"))
        self.assertEqual(self.listed(code=1, says="is missing")["step_1"]["kind"], "missing")
        self.denies("restore", "1", "-o", "x", code=1, says="s/step_1.lmc: is missing")
        self.denies("restore", "2", "-o", "x", code=4, says="s/step_2.lmc: needs the base step_1 (")
        self.denies("gc", code=4, says="s: is damaged, so nothing was removed")
        self.denies("verify", code=4, says="is missing")
        self.denies("keep", "3", code=4, says="needs the base")
        self.assertIn("(missing)", self.series("list", code=1, says="is missing").stdout.decode())
        self.write("s/step_1.lmc", whole[1][:50])
        self.assertEqual(self.listed(code=3, says="is damaged or no snapshot")["step_1"]["kind"], "damaged")
        self.denies("restore", "1", "-o", "x", code=3, says="is damaged or no snapshot")
        self.denies("gc", code=4, says="nothing was removed")
        self.write("s/step_1.lmc", whole[0])
        self.denies("verify", "1", code=3, says="is not the snapshot that was added under this name")
        self.denies("gc", code=4, says="nothing was removed")
        damaged = bytearray(whole[1])
        damaged[200] ^= 1
        self.write("s/step_1.lmc", damaged)
        self.denies("verify", "1", code=3, says="lmc: ")
        for at in range(80, len(damaged)):  # not every byte of a base is needed, but most are
            damaged = bytearray(whole[1])
            damaged[at] ^= 1
            self.write("s/step_1.lmc", damaged)
            p = subprocess.run([LMC, "series", "s", "verify", "2"], cwd=self.dir, stderr=subprocess.PIPE)
            self.assertIn(p.returncode, (0, 3, 4))
            if p.returncode == 3:
                break
        self.denies("verify", "0", "2", code=3, says="lmc: ")
        self.denies("restore", "2", "-o", "x", code=3, says="lmc: ")
        # a broken last snapshot does not stop the series
        self.write("s/step_1.lmc", whole[1])
        os.unlink(self.path("s/step_2.lmc"))
        self.add("next", model(bf16(100), 9), says="is not coded against it")
        self.assertEqual(self.listed(code=1, says="step_2.lmc: is missing")["next"]["kind"], "anchor")
        self.write("s/step_2.lmc", whole[2])
        # a forgotten file that was replaced, or removed
        self.write("s/step_3.lmc", self.read("s/step_0.lmc"))
        self.denies("gc", code=3, says="is not the snapshot that was added")
        os.unlink(self.path("s/step_3.lmc"))
        self.series("gc")
        del self.want["step_3"]
        self.check_all()

    def test_add_when_the_base_is_damaged(self):
        """A damaged block is found only when the next snapshot is coded: the message names what was not added, and what to do."""
        self.chain(2, 40000)
        damaged = bytearray(self.read("s/step_0.lmc"))
        damaged[len(damaged) // 3] ^= 1
        self.write("s/step_0.lmc", damaged)
        self.put("in/next.safetensors", model(bf16(40000, 3), 3))
        for args in (["add", "in/next.safetensors"], ["watch", "--once", "--settle", "0", "in"]):
            p = self.denies(*args, code=3, says="in/next.safetensors: is not added: it was to be coded against step_1")
            self.assertIn(b"--anchor", p.stderr)
        self.series("add", "--anchor", "in/next.safetensors")
        self.series("verify", "next")

    def test_a_forgotten_number(self):
        self.chain(2, 100)
        self.series("prune", "step_1")
        self.denies("restore", "1", "-o", "x", code=1, says="has forgotten the snapshot with that number, step_1")
        self.denies("verify", "1", code=1, says="'lmc series DIR keep' takes it back")
        self.series("keep", "1")
        self.series("restore", "1", "-o", "x")

    def test_gc_with_a_damaged_forgotten_link(self):
        self.chain(4, 40000)
        self.series("prune", "1")
        whole = self.read("s/step_1.lmc")
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 4
        self.write("s/step_1.lmc", damaged)
        self.denies("gc", code=3, says="lmc: ")
        self.write("s/step_1.lmc", whole)
        self.series("gc")
        del self.want["step_1"]
        self.check_all()
        self.series("prune", "3")  # nothing needs it
        self.write("s/step_3.lmc", self.read("s/step_3.lmc")[:-7])
        self.denies("gc", code=3, says="is not the file that was added, so it stays; remove it yourself")
        os.unlink(self.path("s/step_3.lmc"))
        self.series("gc")
        del self.want["step_3"]
        self.check_all()

    def test_full_disk_and_permissions(self):
        self.chain(2, 400)
        self.write("big", random.Random(1).randbytes(300000))

        def limit():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        before = self.snapshot("s")
        self.series("add", "--rm", "big", code=1, says="ulimit -f", preexec_fn=limit)
        after = self.snapshot("s")
        self.assertEqual(after, before)
        self.assertTrue(os.path.exists(self.path("big")))
        self.check_all()

    def test_source_that_changes(self):
        """A source that changes while it is added stays, and the series does not change."""
        self.chain(1, 400)
        self.put("d", {"%03d" % i: os.urandom(60000) for i in range(60)})
        before = self.entries()
        grows = subprocess.Popen([sys.executable, "-c", "import time\nfor i in range(100000):\n open('d/059', 'ab').write(b'x')\n time.sleep(0.0005)"], cwd=self.dir)
        try:
            while os.path.getsize(self.path("d/059")) == 60000:
                time.sleep(0.01)
            p = subprocess.run([LMC, "series", "s", "add", "--rm", "d"], cwd=self.dir, stderr=subprocess.PIPE)
        finally:
            grows.kill()
            grows.wait()
        self.assertEqual(p.returncode, 1, p.stderr)
        self.assertEqual(len(os.listdir(self.path("d"))), 60)
        self.assertEqual(self.entries(), before)
        self.check_all()
        # only the directory's time changes: the snapshot is right, but later changes of the source are not known
        start = os.stat(self.path("d")).st_mtime_ns
        touches = subprocess.Popen([sys.executable, "-c", "import os, time\nwhile True:\n os.utime('d')\n time.sleep(0.0005)"], cwd=self.dir)
        try:
            while os.stat(self.path("d")).st_mtime_ns == start:
                time.sleep(0.01)
            self.series("add", "--rm", "d", code=1, says="d: was changed meanwhile, and is not removed; its snapshot, as it was before, is kept as s/d.lmc")
        finally:
            touches.kill()
            touches.wait()
        self.assertEqual(len(os.listdir(self.path("d"))), 60)
        self.assertEqual(self.kept(), {"step_0", "d"})
        self.series("add", "--rm", "d")
        self.assertFalse(os.path.exists(self.path("d")))


# ---- the list ----


class Manifest(SeriesCase):
    def test_every_byte_flipped(self):
        self.chain(3, 200)
        self.series("prune", "1")
        text = self.read("s/series.json")
        before = {f: d for f, d in self.snapshot("s").items() if f != "series.json"}
        for i in range(len(text)):
            for mask in (1 << i % 8, 0x80):
                self.write("s/series.json", text[:i] + bytes([text[i] ^ mask]) + text[i + 1:])
                p = subprocess.run([LMC, "series", "s", "gc"], cwd=self.dir, stderr=subprocess.PIPE)
                self.assertIn(p.returncode, (1, 3) if b'"lmc_series": ' in text[:i] and i < 16 else (3,), (i, p.stderr))
        for i in range(0, len(text), 3):
            self.write("s/series.json", text[:i])
            self.assertEqual(subprocess.run([LMC, "series", "s", "gc"], cwd=self.dir, stderr=subprocess.PIPE).returncode, 3)
        self.assertEqual({f: d for f, d in self.snapshot("s").items() if f != "series.json"}, before)
        self.series("rebuild")
        self.check_all()

    def test_hostile(self):
        self.chain(2, 200)
        good = self.entries()
        self.write("precious.lmc", b"precious")
        self.write("s/.hidden.lmc", b"precious")

        def changed(**more):
            e = {**good[1], **more}
            return {k: v for k, v in e.items() if v is not None}
        bad = [changed(name=n) for n in ("../precious", "/etc/passwd", ".hidden", "", "a\x00b", "a\nb", "-x", "x" * 201, "a\\b", 7, None, ["x"], good[0]["name"])]
        bad += [changed(state=s) for s in ("KEPT", "", "absent", 1, None, "adding")]
        bad += [changed(fingerprint=s) for s in ("", "00", good[0]["fingerprint"][:-1] + "g", good[0]["fingerprint"].upper() + "", "+" + good[0]["fingerprint"][1:], 5, None)]
        bad += [changed(size=s) for s in (-1, 1.5, "1", 1 << 70)] + [changed(time=s) for s in ("x", None, 1.5)]
        bad += [changed(source=s) for s in ("../x", "", 7, ".x")] + [changed(more=1), 5, "x", [], {}, None, '{"name": "a", "name": "b"}', "[" * 5000, '"\\ud800"']
        for entry in bad:
            self.write("s/series.json", manifest([good[0], entry if isinstance(entry, str) and entry[:1] in '{["' and entry else json.dumps(entry)]))
            for verb in (["list"], ["gc"], ["prune", "step_0"], ["add", "step_0.safetensors", "--name", "n"]):
                self.denies(*verb, code=3, says="is damaged")
        for head in ('{"lmc_series": 0, "every": 16, "snapshots": [', '{"every": 16, "snapshots": [', '{"lmc_series": 1, "snapshots": [',
                     '{"lmc_series": 1, "every": 0, "snapshots": [', '{"lmc_series": 1, "every": "x", "snapshots": [', '{"lmc_series": 1, "every": 4, "x": 1, "snapshots": [',
                     '{"lmc_series": 1, "every": 4, "every": 4, "snapshots": [', '{"lmc_series": 1, "every": 4, "snapshots": [[', '[[[['):
            self.write("s/series.json", manifest(good, head))
            self.denies("gc", code=3, says="is damaged")
        self.write("s/series.json", manifest(good, '{"lmc_series": 2, "every": 16, "future": [], "snapshots": ['))
        self.denies("gc", code=1, says="has version 2, which this lmc does not know")
        for junk in (b"", b"\0" * 100, b"null\n", b"[]", b'"crc32c": "00000000"}\n', manifest(good) + b" "):
            self.write("s/series.json", junk)
            self.denies("gc", code=3, says="is damaged")
        self.write("s/series.json", manifest([good[0], changed(time=1 << 62)]))  # unusual but harmless
        self.series("list")
        # a right checksum, and a fingerprint that is not the file's: the forgotten file is not removed
        self.write("s/series.json", manifest([good[0], changed(state="forgotten", fingerprint=good[0]["fingerprint"])]))
        self.denies("gc", code=3, says="is not the snapshot that was added")
        self.write("s/series.json", manifest([good[0], changed(state="forgotten", name="none")]))
        self.series("gc")
        self.assertEqual([e["state"] for e in self.entries()], ["kept", "gone"])
        os.unlink(self.path("s/series.json"))
        os.mkdir(self.path("s/series.json"))
        self.denies("gc", code=3, says="is not a file")
        os.rmdir(self.path("s/series.json"))
        os.unlink(self.path("s/.hidden.lmc"))
        self.series("rebuild")
        self.check_all()
        self.assertEqual(self.read("precious.lmc"), b"precious")

    def test_names_that_grow(self):
        """In the list, quotes and what a terminal interprets are escaped; other letters are not."""
        self.chain(2, 200)
        names = ['"' * 200, "\u200b" * 66, "\U000e0001" * 50, "é" * 100]
        rows = [{"name": n, "state": "gone", "fingerprint": "0f" * 16, "size": 2 ** 63 - 1, "time": -2 ** 63, "seen": -1, "source": n} for n in names]
        self.write("s/series.json", manifest(self.entries() + rows))
        self.series("prune", "step_0")
        want = [json.dumps(e, ensure_ascii="é" not in e["name"]) for e in rows]
        self.assertEqual(self.read("s/series.json").decode().split("\n")[3:-3], [row + "," for row in want[:-1]] + want[-1:])

    def test_a_new_series_is_on_the_disk(self):
        """Before the source is removed, the directory above a new series is synced, too."""
        if not shutil.which("strace"):
            return
        self.write("w", b"source")
        subprocess.run(["strace", "-f", "-y", "-o", "trace", "-e", "trace=fsync,rename,renameat,renameat2", LMC, "series", "s/", "add", "--rm", "w"], cwd=self.dir)
        trace = self.read("trace").decode()
        if "fsync(" in trace:  # if tracing is allowed
            self.assertIn("<%s>)" % os.path.realpath(self.dir), trace[:trace.index('"w"')])

    def test_what_a_kill_leaves(self):
        """Each state in turn, made by hand."""
        self.chain(2, 200)
        good = self.entries()
        adding = {"name": "new", "state": "adding", "time": 5, "source": "new"}
        self.write("s/series.json", manifest(good + [adding]))
        self.assertEqual(self.listed()["new"]["state"], "adding")
        self.check_all()
        self.denies("restore", "new", "-o", "x", code=1, says="has no snapshot 'new'")
        self.write("s/.lmc-abcDEF", b"half of it")
        self.write("s/new.lmc", self.read("s/step_1.lmc"))
        self.check_all()
        self.series("prune", "--dry-run", "0")
        self.assertTrue(os.path.exists(self.path("s/new.lmc")))
        self.series("prune", "1")  # every verb that changes the series cleans up
        self.assertEqual(self.files(), {"step_0", "step_1"})
        self.assertEqual([e["name"] for e in self.entries()], ["step_0", "step_1"])
        self.assertFalse(os.path.exists(self.path("s/.lmc-abcDEF")))
        self.write("s/.lmc-recode", b"half of it")
        self.put("s/.lmc-abcdef", {"x": b"somebody's directory"})
        self.series("gc")
        self.assertFalse(os.path.exists(self.path("s/.lmc-recode")))
        self.assertEqual(self.read("s/.lmc-abcdef/x"), b"somebody's directory")
        shutil.rmtree(self.path("s/.lmc-abcdef"))
        self.write("s/series.json", manifest([good[0], {**good[1], "state": "forgotten"}]))  # the file is removed, the list is not updated
        self.denies("keep", "step_1", code=1, says="is missing")
        self.series("gc")
        del self.want["step_1"]
        self.check_all()


# ---- several at once ----


class Together(SeriesCase):
    def lock(self, place):
        fd = os.open(self.path("s/.lock"), os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, place)
        return fd

    def start(self, *args, **more):
        return subprocess.Popen([LMC, "series", "s", *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def wait_for(self, p, text):
        line = p.stderr.readline()
        self.assertIn(text, line)

    def test_two_adds(self):
        self.chain(1, 300)
        fd = self.lock(0)
        for n in (1, 2, 3):
            self.want["a%d" % n] = model(moved(bf16(300, 3), 2, 0.05, n), n)
            self.put("a%d.safetensors" % n, self.want["a%d" % n])
        adds = [self.start("add", "a%d.safetensors" % n) for n in (1, 2, 3)]
        for p in adds:
            self.wait_for(p, b"another lmc changes the series; waiting")
        self.check_restore("step_0")  # readers continue
        os.close(fd)
        for p in adds:
            self.assertEqual(p.wait(), 0, p.stderr.read())
            p.stdout.close()
            p.stderr.close()
        self.check_all()
        self.assertEqual(sorted(e["depth"] for e in self.listed().values()), [0, 1, 2, 3])

    def test_the_first_two_adds(self):
        for n in (1, 2):
            self.put("a%d.safetensors" % n, model(bf16(30000, n), n))
            self.want["a%d" % n] = model(bf16(30000, n), n)
        adds = [self.start("add", "a%d.safetensors" % n) for n in (1, 2)]
        for p in adds:
            _, text = p.communicate()
            self.assertEqual(p.returncode, 0, text)
        self.check_all()

    def test_readers_and_gc(self):
        self.chain(4, 100000)
        self.series("prune", "0", "2")
        before = {f: self.read("s/%s.lmc" % f) for f in self.files()}
        reader = self.start("restore", "-c", "3")  # it waits when the pipe is full
        head = reader.stdout.read(10)
        gc = self.start("gc")
        self.wait_for(gc, b"the series is being read; waiting")
        self.assertEqual({f: self.read("s/%s.lmc" % f) for f in self.files()}, before)
        self.assertEqual(head + reader.stdout.read(), self.want["step_3"])
        self.assertEqual(reader.wait(), 0)
        self.assertEqual(gc.wait(), 0)
        for p in (reader, gc):
            p.stdout.close()
            p.stderr.close()
        self.assertEqual(self.files(), {"step_1", "step_3"})
        fd = self.lock(1)  # like gc
        reader = self.start("restore", "-c", "3")
        self.wait_for(reader, b"gc is running here; waiting")
        os.close(fd)
        self.assertEqual(reader.communicate()[0], self.want["step_3"])

    def test_read_only(self):
        self.chain(3, 300)
        os.unlink(self.path("s/.lock"))
        os.chmod(self.path("s"), 0o555)
        self.check_restore("step_2")
        if os.geteuid() != 0:
            self.assertFalse(os.path.exists(self.path("s/.lock")))
            self.series("gc", code=1, says="cannot lock it")
        os.chmod(self.path("s"), 0o755)


# ---- watch ----


class Watch(SeriesCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("in"))

    def once(self, *args, **more):
        return self.series("watch", "--once", *([] if "--settle" in args else ["--settle", "0"]), *args, "in", **more)

    def put_in(self, name, content):
        self.put("in/" + name, content)
        self.want[name.replace(".safetensors", "")] = content

    def test_what_is_gone_stays_away(self):
        weights = bf16(400)
        for n in range(1, 7):
            self.put_in("s-%d.safetensors" % n, model(weights, n))
        self.once()
        self.series("prune", "--keep-last", "2")
        self.series("gc")
        self.once()
        self.assertEqual(list(self.listed()), ["s-5", "s-6"])
        self.series("restore", "-o", "latest.out", "latest")
        self.assertEqual(self.read("latest.out"), self.want["s-6"])
        for verb in ("restore", "cat", "verify", "keep", "prune"):
            self.series(verb, "s-3", code=1)
        self.series("add", "in/s-3.safetensors", says="lower number than s-6")
        self.assertEqual(list(self.listed()), ["s-3", "s-5", "s-6"])
        self.series("restore", "-o", "3.out", "3")
        self.assertEqual(self.read("3.out"), self.want["s-3"])

    def test_once(self):
        self.once()
        self.assertFalse(os.path.exists(self.path("s")))
        weights = bf16(400)
        for n in (10, 9, 100):
            self.put_in("step_%d.safetensors" % n, model(weights, n))
        self.put_in("checkpoint-5", checkpoint(weights, f32(50), 5))
        self.write("in/.hidden", b"1")
        self.write("in/x.lmc", b"1")
        self.write("in/.tmp/x", b"1")
        os.mkdir(self.path("in/empty"))
        os.symlink("step_10.safetensors", self.path("in/latest"))
        self.once("--settle", "100000")
        self.assertFalse(os.path.exists(self.path("s")))
        self.once()
        self.check_all()
        self.assertEqual(list(self.listed()), ["checkpoint-5", "step_9", "step_10", "step_100"])
        self.once()
        self.assertEqual(len(self.listed()), 4)
        self.put_in("step_200.safetensors", model(weights, 200))
        self.lmc("series", "s", "watch", "--once", "--match", "[^x]*", "in", code=2, says="--match needs a pattern: '[^' is not known")
        self.once("--match", "other*")
        self.assertEqual(len(self.listed()), 4)
        self.once("--match", "step_2*")
        self.check_all()
        self.assertEqual(len(os.listdir(self.path("in"))), 10)
        self.once("--rm")
        self.assertEqual(sorted(os.listdir(self.path("in"))), [".hidden", ".tmp", "empty", "latest", "x.lmc"])
        self.check_all()

    def test_taken_names(self):
        weights = bf16(400)
        self.put_in("a.safetensors", model(weights, 1))
        self.once()
        self.put("in/a", {"x": b"another"})
        self.once(says="the series has a already, made of a.safetensors")
        self.write("in/a.safetensors", model(weights, 2))
        self.once("--rm", says="in/a.safetensors: is not what was added as a, so it is added as a@2")
        self.want["a@2"] = model(weights, 2)
        self.assertEqual(os.listdir(self.path("in")), ["a"])
        shutil.rmtree(self.path("in/a"))
        self.write("in/a.safetensors", model(weights, 1))
        self.once("--rm", says="is not what was added as a@2, so it is added as a@3")  # the newest is what the run has now
        self.assertEqual(os.listdir(self.path("in")), [])
        self.series("prune", "a@3")
        self.write("in/a.safetensors", model(weights, 1))
        os.utime(self.path("in/a.safetensors"), (1, 1))
        self.once("--rm")  # forgotten: stays
        self.assertEqual(os.listdir(self.path("in")), ["a.safetensors"])

    def test_trouble(self):
        self.put_in("a.safetensors", model(bf16(100), 1))
        self.write("in/bad.safetensors", b"no header")
        self.put_in("c.safetensors", model(bf16(100), 3))
        del self.want["c"]
        self.want["c"] = model(bf16(100), 3)
        self.once("--rm", code=1, says="bad.safetensors: is not a valid safetensors file")
        self.check_all()
        self.assertEqual(os.listdir(self.path("in")), ["bad.safetensors"])
        self.write("s/series.json", b"{}")
        self.lmc("series", "s", "watch", "in", code=3, says="is damaged")  # it ends
        self.refuses("series", "s", "watch", "none", code=1, says="No such file")
        self.refuses("series", "s", "watch", "in/bad.safetensors", code=1, says="is not a directory")
        self.refuses("series", "in", "watch", "in", code=1, says="is the series itself")

    def test_unfinished_is_left(self):
        """A truncated file may be half written, also below a directory: it is tried again, and never added as plain bytes."""
        whole, archive = model(bf16(4000), 1), io.BytesIO()
        with zipfile.ZipFile(archive, "w") as z:
            z.writestr("a/data.pkl", bytes(range(256)) * 400)
            z.comment = b"a comment behind the end"
        zipped = archive.getvalue()
        for args in ([], ["--rm"]):
            for name, content in (("d/model.safetensors", whole), ("f.safetensors", whole), ("t.pt", zipped), ("g.gguf", b"GGUF" + struct.pack("<IQQ", 3, 5, 2))):
                self.write("in/" + name, content[:len(content) // 2])
            self.write("in/empty.safetensors", b"")
            text = self.once(*args, code=1).stderr.decode()
            for name in ("d/model.safetensors: is not a valid safetensors", "f.safetensors: is not a valid safetensors", "t.pt: is not a valid ZIP",
                         "g.gguf: is not a valid GGUF", "empty.safetensors: is not a valid safetensors"):
                self.assertIn("in/" + name + " file: ", text)
            self.assertEqual((text.count("\n"), text.count("it may not be finished, so it is left, and tried again")), (5, 5))
            self.assertEqual(sorted(os.listdir(self.path("in"))), ["d", "empty.safetensors", "f.safetensors", "g.gguf", "t.pt"])
        for name in ("empty.safetensors", "g.gguf"):
            os.unlink(self.path("in/" + name))
        self.put_in("d", {"model.safetensors": whole})
        self.put_in("f.safetensors", whole)
        self.put_in("t.pt", zipped)
        self.once("--rm")
        self.assertEqual(os.listdir(self.path("in")), [])
        self.check_all()

    @unittest.skipUnless(can_see_writers(), "the system does not tell who writes")
    def test_open_file_is_left(self):
        """The writer pauses longer than --settle. Only closed files are added."""
        whole = model(bf16(4000), 1)
        self.put_in("d", {"model.safetensors": whole, "optimizer.bin": b"half"})
        self.put_in("f.safetensors", whole)
        with open(self.path("in/d/optimizer.bin"), "ab") as writer, open(self.path("in/f.safetensors"), "rb"):
            for args in ([], ["--rm"]):
                self.once(*args, says="in/d: is open for writing by another program, and is left until that is done")
                self.assertEqual(list(self.listed()), ["f"])
            self.series("add", "--rm", "in/d", code=1, says="in/d: is open for writing by another program, and is not removed; its snapshot is kept as s/d.lmc")
            self.assertEqual(self.read("in/d/optimizer.bin"), b"half")
            writer.write(b", and the rest")
        self.once("--rm", says="in/d: is not what was added as d, so it is added as d@2")
        self.assertEqual(os.listdir(self.path("in")), [])
        self.want["d@2"] = {"model.safetensors": whole, "optimizer.bin": b"half, and the rest"}
        self.check_all()

    def test_less_than_was_added(self):
        """A part of it is another checkpoint, which a resumed run may have written."""
        files = {"model.safetensors": model(bf16(400), 1), "sub/x": b"hello"}
        self.put_in("d", files)
        self.once("--rm")
        part = {"model.safetensors": files["model.safetensors"]}
        self.put("in/d", part)
        os.makedirs(self.path("in/empty"))
        self.once("--rm", says="in/d: is not what was added as d, so it is added as d@2")
        self.assertEqual(os.listdir(self.path("in")), ["empty"])
        self.want["d@2"] = part
        self.check_all()

    def test_link_that_leads_nowhere(self):
        """Such a directory is settled, too."""
        self.put_in("d", {"model.safetensors": model(bf16(400), 1)})
        os.symlink("nothing", self.path("in/d/link"))
        self.once("--rm")
        self.assertEqual((os.listdir(self.path("in")), list(self.listed())), ([], ["d"]))
        self.series("restore", "-o", "out", "d")
        self.assertEqual(os.readlink(self.path("out/link")), "nothing")

    def test_changed_later(self):
        """What counts is content: no change of it is skipped, and a change of times alone is none."""
        path = self.path("in/a.safetensors")
        self.put_in("a.safetensors", model(bf16(400), 1))
        self.put_in("d", {"x": b"1" * 100, "sub/y": b"2" * 100})
        self.once()

        def touch(name, seconds):
            for p in (name, os.path.dirname(name)):
                os.utime(p, (seconds, seconds))
        for seconds in (time.time() + 10, time.time() + 86400, 10 ** 10, 0, -1, -10 ** 9):
            touch(path, seconds)
            touch(self.path("in/d/sub/y"), seconds)
            for _ in range(2):
                self.once()  # says nothing
        os.chmod(path, 0o600)
        os.rename(path, path + "x")
        shutil.copyfile(path + "x", path)
        os.unlink(path + "x")
        self.once()
        self.assertEqual(list(self.listed()), ["a", "d"])
        # another header only; an old time; only a file deep in a directory, of the same size and time
        self.write("in/a.safetensors", model(bf16(400), 2))
        touch(path, 0)
        times = os.stat(self.path("in/d/sub/y")).st_mtime_ns
        self.write("in/d/sub/y", b"3" * 100)
        os.utime(self.path("in/d/sub/y"), ns=(times, times))
        text = self.once(says="").stderr.decode()
        self.assertEqual(text, "".join("lmc: in/%s: is not what was added as %s, so it is added as %s@2\n" % (f, n, n) for f, n in (("a.safetensors", "a"), ("d", "d"))))
        self.once()
        self.want.update({"a@2": model(bf16(400), 2), "d@2": {"x": b"1" * 100, "sub/y": b"3" * 100}})
        self.check_all()
        # also if it was forgotten, or gone
        self.series("prune", "a", "a@2", "d")
        self.series("gc")
        self.series("prune", "d@2", "-f")
        touch(path, 5)
        os.utime(self.path("in/d"), (5, 5))
        self.once("--rm")
        self.assertEqual((sorted(os.listdir(self.path("in"))), set(self.listed())), (["a.safetensors", "d"], {"d@2"}))
        self.write("in/a.safetensors", model(bf16(400), 3)[:-1] + b"3")
        self.write("in/d/x", b"4")
        self.once("--rm", says="is not what was added as a@2, so it is added as a@3")
        self.assertEqual((os.listdir(self.path("in")), set(self.listed())), ([], {"d@2", "a@3", "d@3"}))
        self.assertEqual(self.series("restore", "-c", "a@3").stdout, model(bf16(400), 3)[:-1] + b"3")

    def test_a_list_without_states(self):
        """Of an older lmc, or made by rebuild: then the content is compared once."""
        for n in range(2):
            self.put_in("s-%d.safetensors" % n, model(bf16(400), n))
        self.once()
        os.unlink(self.path("s/series.json"))
        self.series("rebuild")
        self.write("in/s-1.safetensors", model(bf16(400), 7))
        self.assertFalse(any("seen" in e for e in self.entries()))
        self.once(says="is not what was added as s-1, so it is added as s-1@2")
        self.assertEqual([e["name"] for e in self.entries() if "seen" in e], ["s-0", "s-1@2"])
        self.once()
        self.assertEqual(list(self.listed()), ["s-0", "s-1", "s-1@2"])

    def test_a_resumed_run(self):
        """It crashes behind step 40, goes on from 20, and writes 30 and 40 again: nothing is lost, and the same line of cron goes on."""
        for args in ([], ["--rm"]):
            for d in ("s", "in"):
                shutil.rmtree(self.path(d), ignore_errors=True)
            self.want, weights = {}, bf16(2000)

            def write(n, run, name=None):
                content = model(step(weights, random.Random(n * 10 + run), 0.1), n, "run %d" % run)
                self.put("in/step-%04d.safetensors" % n, content)
                self.want[name or "step-%04d" % n] = content
            for n in (10, 20, 30, 40):
                write(n, 1)
            self.once(*args)
            write(20, 1)  # as it was
            write(30, 2, "step-0030@2")
            self.once(*args, says="in/step-0030.safetensors: is not what was added as step-0030, so it is added as step-0030@2\n"
                      "lmc: s/step-0030@2.lmc: has a lower number than step-0040, which stays 'latest'; if a run was resumed, see 'lmc help series'\n")
            self.once(*args)
            write(40, 2, "step-0040@2")
            write(50, 2)
            self.once(*args, says="as step-0040@2\n")
            write(30, 3, "step-0030@3")
            self.once(*args, says="is not what was added as step-0030@2, so it is added as step-0030@3")
            self.once(*args)
            self.check_all()
            self.assertEqual(list(self.listed()), ["step-%04d" % n for n in (10, 20, 30)] + ["step-0030@2", "step-0030@3", "step-0040", "step-0040@2", "step-0050"])
            self.assertEqual(os.path.exists(self.path("in/step-0050.safetensors")), not args)
            self.assertEqual(self.series("restore", "-c", "latest").stdout, self.want["step-0050"])
            self.denies("restore", "-o", "x", "30", code=1, says="several snapshots with that number")
            self.series("prune", "--keep-last", "2")
            self.series("gc")
            self.once(*args)  # what is gone stays away
            self.want = {n: c for n, c in self.want.items() if n in ("step-0040@2", "step-0050")}
            self.check_all()
            self.series("verify")

    def test_quantised_tensors_are_not_compared(self):
        """They differ from their source, so a change of it cannot be seen in them: what was written again is added again."""
        quant = ("--quant", "*exp_avg*=bits:8")
        self.put_in("a.safetensors", safetensors([("m.exp_avg", "F32", [200, 200], f32(40000, 1))]))
        self.once(*quant)
        self.once(*quant)
        self.assertEqual(list(self.listed()), ["a"])
        self.write("in/a.safetensors", safetensors([("m.exp_avg", "F32", [200, 200], f32(40000, 2))]))
        self.once(*quant, says="so it is added as a@2")
        self.once(*quant)

    def test_times_ahead_of_the_clock(self):
        """Such a snapshot is neither skipped, nor told to have changed."""
        for i, ahead in enumerate((3600, 86400, 10 ** 9, 10 ** 10)):
            name = "in/s-%d.safetensors" % i
            self.put_in("s-%d.safetensors" % i, model(bf16(400), i))
            os.utime(self.path(name), (time.time() + ahead,) * 2)
            self.once("--settle", "1", says="in: s-%d.safetensors changed at a time that is ahead of the clock; looking again in 1 seconds\n" % i)
            for args in ([], ["--settle", "1"]):
                self.once(*args)
            self.check_all()
        self.once("--rm", "--settle", "1", says="s-0.safetensors, and others, changed")
        self.assertEqual(os.listdir(self.path("in")), [])
        for i, seconds in enumerate((0, -1, -10 ** 9)):
            self.put_in("t-1%d.safetensors" % i, model(bf16(400), i))
            os.utime(self.path("in/t-1%d.safetensors" % i), (seconds, seconds))
        self.once()
        self.once("--rm")
        self.assertEqual(os.listdir(self.path("in")), [])
        self.check_all()

    def test_a_series_that_cannot_be_written(self):
        """One message, not one for each source."""
        def limit():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        self.put_in("first.safetensors", model(bf16(400), 0))
        self.once()
        before = self.snapshot("s")
        for n in range(9):
            self.put("in/step_%d.safetensors" % n, model(bf16(400), n))
        for args in ([], ["--rm"]):
            p = self.once("--match", "step*", *args, code=1, says="s/series.json: cannot write", preexec_fn=limit)
            self.assertEqual(p.stderr.count(b"\n"), 1)
            self.assertEqual((self.snapshot("s"), len(os.listdir(self.path("in")))), (before, 10))
        os.rename(self.path("s/.lock"), self.path("lock"))
        os.mkdir(self.path("s/.lock"))
        p = self.once("--match", "step*", code=1, says="s/.lock: cannot lock it")
        self.assertEqual(p.stderr.count(b"\n"), 1)

    def test_two_watches(self):
        """Two at a time, for example from cron: what the other has done meanwhile is no error."""
        for args in ([], ["--rm"]):
            self.put_in("step%d.safetensors" % len(args), model(bf16(400), len(args)))
            if not args:
                self.add("first", model(bf16(400), 9))
            with open(self.path("s/.lock"), "r+b") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX, 1)
                two = [subprocess.Popen([LMC, "series", "s", "watch", "--once", "--settle", "0", *args, "in"], cwd=self.dir, stderr=subprocess.PIPE)
                       for _ in range(2)]
                for p in two:
                    self.assertIn(b"waiting", p.stderr.readline())
            for p in two:
                rest = p.communicate()[1]
                self.assertEqual((rest.count(b"\n"), p.returncode), (rest.count(b"waiting\n"), 0), rest)
        self.assertEqual(os.listdir(self.path("in")), [])
        self.check_all()

    def test_series_within(self):
        self.put_in("a.safetensors", model(bf16(100), 1))
        for _ in range(2):
            self.lmc("series", "in/s", "watch", "--once", "--settle", "0", "in")
        self.lmc("series", "in/deep/s", "watch", "--once", "--settle", "0", "in", code=1, says="cannot create the directory")
        self.check_all(directory="in/s")

    def test_slow_writer(self):
        weights = bf16(2000)
        whole = {"step_%d" % n: checkpoint(step(weights, self.rng), f32(100, n), n) for n in (1, 2)}
        watch = subprocess.Popen([LMC, "series", "s", "watch", "--rm", "--settle", "4", "--interval", "1", "in"], cwd=self.dir, stderr=subprocess.PIPE)
        try:
            for name, files in whole.items():
                for path, data in files.items():
                    for part in range(4):
                        os.makedirs(os.path.dirname(self.path("in/%s/%s" % (name, path))), exist_ok=True)
                        with open(self.path("in/%s/%s" % (name, path)), "ab") as f:
                            f.write(data[part * len(data) // 4:(part + 1) * len(data) // 4])
                        time.sleep(0.1)
            for _ in range(600):
                if not os.listdir(self.path("in")):
                    break
                time.sleep(0.1)
        finally:
            watch.send_signal(signal.SIGTERM)
            text = watch.communicate()[1]
        self.assertEqual((watch.returncode, text), (-signal.SIGTERM, b""))
        self.want = whole
        self.check_all()


# ---- kills ----


class Kills(SeriesCase):
    """kill -9 at a moment drawn uniformly from the run's duration; then the next command must work, and all snapshots in the list must restore. What
    a kill has left is classified from outside."""

    counts = {}

    def state_of(self, name):
        return next((e["state"] for e in self.entries() if e["name"] == name), None)

    def temporaries(self):
        return [f for f in os.listdir(self.path("s")) if f.startswith(".lmc-")]

    def phase_of_add(self, name, source):
        state = self.state_of(name)
        left = len(self.tree(source)) if os.path.isdir(self.path(source)) else int(os.path.exists(self.path(source)))
        if state is None:
            return "1 list being written" if self.temporaries() else "0 not begun"
        if state == "adding":
            if os.path.exists(self.path("s/%s.lmc" % name)):
                return "4 complete, not confirmed"
            return "3 snapshot being written" if self.temporaries() else "2 name reserved"
        return "5 confirmed, source whole" if left == self.whole else "6 source half removed" if left else "7 finished"

    def phase_of_prune(self, forgotten):
        if self.state_of(forgotten[0]) == "forgotten":
            return "2 finished"
        return "1 list being written" if self.temporaries() else "0 not begun"

    def phase_of_gc(self, forgotten, before):
        files, temporaries = self.files(), self.temporaries()
        if self.state_of(forgotten[0]) is None:
            return "7 finished"
        gone = sum(f not in files for f in forgotten)
        if gone == len(forgotten):
            return "6 all removed, list not yet"
        if gone:
            return "5 half removed"
        recoded = sum(self.read("s/%s.lmc" % f) != before[f + ".lmc"] for f in files)
        if ".lmc-recode" in temporaries:
            return "3 re-coded, not in place"
        if temporaries:
            return "2 being re-coded, the first" if not recoded else "2 being re-coded, others"
        return "4 some re-coded" if recoded else "0 not begun"

    def run_killed(self, args, moment):
        p = subprocess.Popen([LMC, "series", "s", *args], cwd=self.dir, stderr=subprocess.PIPE)
        time.sleep(moment)
        p.kill()
        text = p.communicate()[1]
        self.assertIn(p.returncode, (0, -9), text)

    def duration(self, prepare, args):
        """The median time of three complete runs."""
        times = []
        for _ in range(3):
            prepare()
            start = time.time()
            subprocess.run([LMC, "series", "s", *args], cwd=self.dir, check=True)
            times.append(time.time() - start)
        return sorted(times)[1]

    def count(self, what, phase):
        self.counts.setdefault(what, {}).setdefault(phase, 0)
        self.counts[what][phase] += 1

    def reset(self):
        shutil.rmtree(self.path("s"), ignore_errors=True)
        shutil.copytree(self.path("template"), self.path("s"))

    def make_template(self):
        self.chain(6, 60000, checkpoint, "step_%d", "--every", "5")
        self.all = dict(self.want)
        os.rename(self.path("s"), self.path("template"))

    def kill_adds(self, n, remove):
        content = checkpoint(step(bf16(60000, 3), self.rng), f32(30000, 4), 6)
        args = ["add", *(["--rm"] if remove else []), "step_6"]

        def prepare():
            self.reset()
            shutil.rmtree(self.path("step_6"), ignore_errors=True)
            self.put("step_6", content)
            self.whole = len(self.tree("step_6"))
        whole = self.duration(prepare, args)
        for _ in range(n):
            prepare()
            self.want = dict(self.all)
            self.run_killed(args, self.rng.uniform(0, 1.1 * whole))
            phase = self.phase_of_add("step_6", "step_6")
            self.count("add --rm" if remove else "add", phase)
            confirmed = phase[0] in "567"
            for f in os.listdir(self.dir) if confirmed and remove else ():
                if f.startswith(".lmc-"):  # the source, renamed before it is removed
                    shutil.rmtree(self.path(f))
            if confirmed:
                self.want["step_6"] = content
            else:
                self.assertEqual(self.snapshot("step_6"), {**content, "optimizer": False})
            if self.rng.random() < 0.3:
                self.check_all({n for n in self.want})  # readers need no cleaning up
            if os.path.exists(self.path("step_6")):
                again = self.lmc("series", "s", *args, code=1 if confirmed and not remove else 0, says="already" if confirmed and not remove else None)
                del again
                self.want["step_6"] = content
            else:
                self.series("gc")
            self.assertEqual(os.path.exists(self.path("step_6")), not remove)
            self.assertEqual(self.temporaries(), [])
            self.assertEqual(self.files(), set(self.want))
            self.check_all()

    def kill_prunes(self, n):
        forgotten = ["step_1", "step_3"]
        whole = self.duration(self.reset, ["prune", *forgotten])
        for _ in range(n):
            self.reset()
            self.want = dict(self.all)
            self.run_killed(["prune", *forgotten], self.rng.uniform(0, 1.1 * whole))
            phase = self.phase_of_prune(forgotten)
            self.count("prune", phase)
            names = set(self.all) - (set(forgotten) if phase[0] == "2" else set())
            self.check_all(names)
            self.series("prune", *forgotten)
            self.check_all(set(self.all) - set(forgotten))
            self.assertEqual(self.temporaries(), [])

    def kill_gcs(self, n):
        patterns = [["step_0", "step_2"], ["step_1", "step_2"], ["step_0", "step_1", "step_3", "step_5"]]
        for forgotten in patterns:
            def prepare():
                self.reset()
                self.series("prune", *forgotten)
            whole = self.duration(prepare, ["gc"])
            for _ in range(n // len(patterns) + (forgotten is patterns[0]) * (n % len(patterns))):
                prepare()
                before = self.snapshot("s")
                self.want = {f: c for f, c in self.all.items() if f not in forgotten}
                self.run_killed(["gc"], self.rng.uniform(0, 1.1 * whole))
                phase = self.phase_of_gc(forgotten, before)
                self.count("gc", phase)
                self.check_all()
                if self.rng.random() < 0.3:
                    self.put("more.safetensors", model(bf16(500), 9))
                    self.series("add", "more.safetensors")
                    self.want["more"] = model(bf16(500), 9)
                self.series("gc")
                self.assertEqual(self.temporaries(), [])
                self.assertEqual(self.files(), set(self.want))
                self.check_all()

    def test_kills(self):
        self.make_template()
        self.kill_adds(KILLS - KILLS * 3 // 4, False)
        self.kill_adds(KILLS // 4, True)
        self.kill_prunes(KILLS // 8)
        self.kill_gcs(KILLS // 2 - KILLS // 8)
        total = sum(sum(c.values()) for c in self.counts.values())
        print("  %d kills" % total)
        for what, phases in self.counts.items():
            for phase in sorted(phases):
                print("  %-9s %-30s %5d" % (what, phase[2:], phases[phase]))
        self.assertGreaterEqual(total, KILLS)
        self.assertGreater(len(self.counts["gc"]) + len(self.counts["add"]), 2)


# ---- 100 snapshots of 24 MB ----


class Long(SeriesCase):
    @unittest.skipUnless(LONG, "--long")
    def test_100_snapshots(self):
        """AdamW-like: fp32 master, 3 elements of 100 of its bf16 rounding change with each step."""
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        rng = numpy.random.default_rng(1)
        n, digests, seconds, begin = 12 << 20, {}, {}, time.time()
        master = rng.normal(0, 0.02, n).astype("<f4")
        velocity = rng.normal(0, 1, n).astype("<f4")
        for i in range(100):
            velocity = (0.9 * velocity + 0.45 * rng.standard_normal(n, "f4")).astype("<f4")
            master += numpy.float32(2e-6) * velocity
            bits = master.view("<u4")
            weights = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
            data = safetensors([("h.%d" % k, "BF16", [1024, n // 12 // 1024], weights[k * (n // 6):(k + 1) * (n // 6)]) for k in range(12)], {"step": str(i)})
            name = "step_%d" % i
            digests[name] = hashlib.sha256(data).digest()
            if i == 57:
                wanted = weights[5 * (n // 6):6 * (n // 6)]
            self.write(name + ".safetensors", data)
            start = time.time()
            self.series("add", "--rm", name + ".safetensors")
            seconds.setdefault("add --rm, each", []).append(time.time() - start)

        def timed(what, *args, **more):
            start = time.time()
            p = self.series(*args, **more)
            seconds.setdefault(what, []).append(time.time() - start)
            return p

        def total():
            return sum(e["size"] for e in self.listed().values()), sum(e["packed_size"] for e in self.listed().values())

        def check():
            for name in self.kept():
                out = timed("restore, each", "restore", "-c", name).stdout
                self.assertEqual(hashlib.sha256(out).digest(), digests[name], name)
        print("  100 snapshots: %d -> %d bytes" % total())
        entries = list(self.listed().values())
        print("  anchor %d, delta %d to %d bytes" % (entries[0]["packed_size"], min(e["packed_size"] for e in entries), max(e["packed_size"] for e in entries[1:16])))
        self.assertEqual(timed("cat of a tensor of step 57", "cat", "57", "h.5").stdout, wanted)
        text = timed("cat of 8 rows of a tensor of step 57", "cat", "-v", "57", "h.5[0:8]").stderr.decode()
        print("  " + text.strip())
        check()
        timed("verify, all 100", "verify")
        timed("prune", "prune", "--keep-last", "10", "--keep-every", "10", "--keep", "57")
        timed("gc, of 80", "gc")
        print("  after prune and gc %d snapshots: %d -> %d bytes" % ((len(self.kept()),) + total()))
        self.assertEqual(self.files(), self.kept())
        check()
        for what, times in seconds.items():
            print("  %-40s %7.2f s (at most %.2f s, %d times)" % (what, sum(times) / len(times), max(times), len(times)))
        print("  in all %.0f s" % (time.time() - begin))


if __name__ == "__main__":
    sys.exit(main())
