#!/usr/bin/env python3
"""Deltas against a base, and tensors that predict others of the same snapshot. How bases are found: test_bases.py.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from array import array

from case import DATA, LMC, LONG, Case, bf16, elements, f32, halved, main, moved, npy, python_slice, rounded, safetensors


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

    def test_tensors_of_40_kib_share_a_run_if_they_are_predicted(self):
        """Without a prediction each of them has trees of its own; with one, that would cost more than it saves."""
        tensors = [("t%d" % i, "BF16", [160, 128], bf16(160 * 128, 10 + i)) for i in range(6)]
        self.write("a.safetensors", safetensors(tensors))
        self.write("b.safetensors", safetensors([(name, dtype, shape, moved(data, 2, 0.02, 7)) for name, dtype, shape, data in tensors]))
        self.lmc("a.safetensors", "-o", "a.lmc")
        self.lmc("--base", "a.lmc", "b.safetensors", "-o", "b.lmc")
        runs = [self.dump(name).count('Kind "RUN "\n') // 2 for name in ("a.lmc", "b.lmc")]  # each is also in the index
        self.assertEqual(runs, [7, 2])  # one is the header's
        self.lmc("-t", "b.lmc", "--base", "a.lmc")

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

    def test_wide_rows(self):
        """A usual block has 8 rows of 8,000 elements: too few for what the numbers of the columns take."""
        r = random.Random(6)
        rows, columns = ([r.uniform(-7, 7) for _ in range(n)] for n in (32, 8000))
        v = struct.pack("<256000f", *(2 ** (a + b + r.uniform(-0.5, 0.5)) for a in rows for b in columns))
        self.write("v.safetensors", safetensors([("v", "F32", [32, 8000], v)]))
        self.lmc("v.safetensors")
        self.lmc("v.safetensors", "--no-matrix", "-o", "old_readers.lmc")
        self.assertLess(len(self.read("v.safetensors.lmc")), 0.95 * len(self.read("old_readers.lmc")))

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


if __name__ == "__main__":
    sys.exit(main())
