#!/usr/bin/env python3
"""Tests of lmc stats: figures are compared with those computed here; table and JSON.

Usage: test_stats.py [-v] [NAME...]      as case.py says

SPDX-License-Identifier: MIT
"""
import json
import math
import os
import random
import re
import struct
import sys
from collections import Counter

from case import DATA, SANITIZED, Case, bf16, elements, f32, main, moved, safetensors

# dtype: width of a coded element, bits of the exponent, bias, whether it is rotated, has a sign, has a -0
KINDS = {"BF16": (2, 8, 127, 1, 1, 1), "F16": (2, 5, 15, 1, 1, 1), "F32": (4, 8, 127, 1, 1, 1), "C64": (4, 8, 127, 1, 1, 1),
         "F64": (8, 11, 1023, 1, 1, 1), "F8_E4M3": (1, 4, 7, 0, 1, 1), "F8_E5M2": (1, 5, 15, 0, 1, 1), "F8_E4M3FNUZ": (1, 4, 8, 0, 1, 0),
         "F8_E5M2FNUZ": (1, 5, 16, 0, 1, 0), "F8_E8M0": (1, 8, 127, 0, 0, 0), "I8": (1, 0, 0, 0, 1, 0), "I32": (4, 0, 0, 0, 1, 0),
         "U8": (1, 0, 0, 0, 0, 0), "I16": (2, 0, 0, 0, 1, 0), "U16": (2, 0, 0, 0, 0, 0), "I64": (8, 0, 0, 0, 1, 0), "BOOL": (1, 0, 0, 0, 0, 0),
         "F4": (1, 0, 0, 0, 0, 0), "": (1, 0, 0, 0, 0, 0)}


def entropy(counts):
    n = sum(counts)
    return -sum(c / n * math.log2(c / n) for c in counts if c)


def integers(data, width):
    return [int.from_bytes(e, "little") for e in elements(data, width)]


def expected(dtype, data, old=None):
    """What lmc stats --json must say about a tensor, except coded sizes."""
    width, exponent_bits, bias, rotated, signed, negative_zero = KINDS[dtype]
    bits = 8 * width
    values = integers(data, width)
    coded = [(v << 1 | v >> bits - 1) & (1 << bits) - 1 if rotated else v for v in values]
    planes = [entropy(Counter(v >> 8 * p & 255 for v in coded).values()) for p in range(width)]
    want = {"elements": len(values), "zeros": sum(v == 0 or (negative_zero and v == 1 << bits - 1) for v in values), "plane_entropies": planes,
            "entropy_size": int(sum(planes) * len(values) / 8 + 0.5)}
    if exponent_bits:
        counts = Counter((v & (1 << bits - signed) - 1) >> bits - signed - exponent_bits for v in values)
        first, last = (min(counts), max(counts)) if counts else (0, -1)
        want["exponents"] = {"bias": bias, "first": first, "counts": [counts[i] for i in range(first, last + 1)]}
    if old is not None:
        pairs = list(zip(values, integers(old, width)))
        want["compared_elements"] = len(pairs)
        want["changed_elements"] = sum(a != b for a, b in pairs)
        if signed:
            want["sign_flips"] = sum((a ^ b) >> bits - 1 for a, b in pairs)
    return want


def flipped(data, width, share, seed):
    """Some elements change, some only their sign."""
    rng, out = random.Random(seed), bytearray(data)
    for i in range(0, len(out), width):
        if rng.random() < share:
            out[i + width - 1] ^= 128
        elif rng.random() < share:
            out[i + rng.randrange(width)] ^= 1 << rng.randrange(7)
    return bytes(out)


class StatsCase(Case):
    def stats(self, *args, **more):
        return json.loads(self.lmc("stats", "--json", *args, **more).stdout)["snapshots"]

    def check_item(self, item, want):
        for key, value in want.items():
            if key == "plane_entropies":
                self.assertEqual(len(item[key]), len(value))
                for a, b in zip(item[key], value):
                    self.assertAlmostEqual(a, b, delta=1e-7)
            else:
                self.assertEqual(item[key], value, key)
        for key in ("exponents", "sign_flips", "changed_elements"):
            self.assertEqual(key in item, key in want, key)

    def tensors(self, snapshot, kept=lambda item: item.get("status") != "removed"):
        return {(t["path"], t["name"]): t for t in snapshot["tensors"] if kept(t)}


class Figures(StatsCase):
    def make(self, n=900):
        """Tensors of all kinds, with rare and frequent values, also 0 and -0."""
        rng, tensors = random.Random(1), []
        for dtype, (width, *_) in KINDS.items():
            if not dtype:
                continue
            some = [rng.randbytes(width) for _ in range(40)] + [bytes(width), bytes(width - 1) + b"\x80"] * 3
            data = b"".join(rng.choice(some) if k % 3 else rng.randbytes(width) for k in range(n))
            if dtype == "BOOL":
                data = bytes(b & 1 for b in data)
            n_logical = 2 * n if dtype == "F4" else n // 2 if dtype == "C64" else n
            tensors.append((dtype + ".x", dtype, [n_logical], data))
        return tensors + [("normal", "BF16", [20, 100], bf16(2000)), ("one", "F32", [], struct.pack("<f", 2.5)), ("none", "F32", [0, 7], b""),
                          ("equal", "F64", [5], struct.pack("<d", -3.0) * 5)]

    def test_of_each_dtype(self):
        tensors = self.make()
        self.write("a.safetensors", safetensors(tensors))
        got, = self.stats("a.safetensors")
        by_name = {t["name"]: t for t in got["tensors"]}
        for name, dtype, shape, data in tensors:
            self.assertEqual([by_name[name][k] for k in ("dtype", "shape", "size")], [dtype, shape, len(data)])
            if data:
                self.check_item(by_name[name], expected(dtype, data))
        self.assertEqual([by_name["none"][k] for k in ("elements", "zeros", "entropy_size", "direct_size")], [0] * 4)
        self.assertEqual(by_name["equal"]["entropy_size"], 0)
        self.assertEqual(by_name["equal"]["plane_entropies"], [0] * 8)
        self.assertEqual(by_name["normal"]["plane_entropies"][0] > 7, True)
        self.assertNotIn("status", by_name["normal"])

    def test_sums(self):
        tensors = self.make()
        self.write("a.safetensors", safetensors(tensors))
        self.write("b.safetensors", safetensors([(n, d, s, flipped(x, KINDS[d][0], 0.1, 5)) for n, d, s, x in tensors if d != "BOOL"] +
                                                [t for t in tensors if t[1] == "BOOL"]))
        for k, got in enumerate(self.stats("a.safetensors", "b.safetensors")):
            keys = ["size", "elements", "zeros", "direct_size"] + ["compared_elements", "changed_elements", "delta_size"] * k
            for key in keys:
                self.assertEqual(got[key], sum(t[key] for t in got["tensors"]), key)
            if k:
                self.assertEqual(got["sign_flips"], sum(t.get("sign_flips", 0) for t in got["tensors"]))
            self.assertAlmostEqual(got["entropy_size"], sum(t["entropy_size"] for t in got["tensors"]), delta=12)
            for d in got["dtypes"]:
                alike = [t for t in got["tensors"] if t["dtype"] == d["dtype"]]
                self.assertEqual(d["items"], len(alike))
                for key in keys:
                    self.assertEqual(d[key], sum(t[key] for t in alike), key)
                for p, value in enumerate(d["plane_entropies"]):
                    self.assertAlmostEqual(value * d["elements"], sum(t["plane_entropies"][p] * t["elements"] for t in alike), delta=1e-3)
                if "exponents" in d:
                    counts = Counter()
                    for t in alike:
                        for i, c in enumerate(t["exponents"]["counts"]):
                            counts[t["exponents"]["first"] + i] += c
                    first = d["exponents"]["first"]
                    self.assertEqual({first + i: c for i, c in enumerate(d["exponents"]["counts"]) if c}, {i: c for i, c in counts.items() if c})

    def test_changes(self):
        """Elements and signs that differ; coded sizes are those of lmc diff."""
        steps = [[(n, d, s, x) for n, d, s, x in self.make() if d != "BOOL"]]
        for k in range(3):
            steps.append([(n, d, s, flipped(x, KINDS[d][0], (0.3, 0, 0.02)[k], k)) for n, d, s, x in steps[-1]])
        names = ["%d.safetensors" % k for k in range(4)]
        for name, tensors in zip(names, steps):
            self.write(name, safetensors(tensors))
        got = self.stats(*names)
        self.assertEqual([s["snapshot"] for s in got], names)
        self.assertEqual(got, self.stats("-T1", *names))
        for k in range(1, 4):
            items = {t["name"]: t for t in got[k]["tensors"]}
            diff = json.loads(self.lmc("diff", "--json", *names[k - 1:k + 1]).stdout)
            self.assertEqual(got[k]["fingerprint"], diff["to"]["fingerprint"])
            for t in diff["tensors"]:
                self.assertEqual({key: items[t["name"]].get(key) for key in t}, t)
            for (name, dtype, _, data), old in zip(steps[k], steps[k - 1]):
                if data:
                    self.check_item(items[name], expected(dtype, data, old[3]))
        self.assertEqual((got[2]["changed_elements"], got[2]["sign_flips"]), (0, 0))
        self.assertGreater(got[1]["sign_flips"], 1000)

    def test_levels(self):
        self.write("a", bf16(300000))
        sizes = [self.stats("--dtype=BF16", "a", *args)[0]["direct_size"] for args in (("--archive",), ("--max",), (), ("--fast",))]
        self.assertEqual(sizes, sorted(set(sizes)))

    def test_pieces(self):
        """Tensors larger than one read; raw files by their dtype or as bytes."""
        part = bf16(100000)
        old, new = part * 90, part * 89 + flipped(part, 2, 0.5, 1)
        self.write("a", old)
        self.write("b", new)
        a, b = self.stats("--dtype=BF16", "a", "b")
        self.check_item(a["tensors"][0], {k: v if k == "plane_entropies" else v * 90 for k, v in expected("BF16", part).items()
                                          if k in ("elements", "zeros", "plane_entropies")} | {"exponents": a["tensors"][0]["exponents"]})
        change = expected("BF16", new[-len(part):], part)
        for key in ("changed_elements", "sign_flips"):
            self.assertEqual(b["tensors"][0][key], change[key])
        self.assertEqual(self.stats("a")[0]["files"][0]["elements"], len(old))
        self.write("d", struct.pack("<d", 1.5) * 2200000)
        self.assertEqual(self.stats("--dtype=F64", "d")[0]["tensors"][0]["exponents"], {"bias": 1023, "first": 1023, "counts": [2200000]})

    def test_real_series(self):
        names = [os.path.join(DATA, "series", "step-%06d" % s, "model.bf16.safetensors") for s in (1700, 1701)]
        if not os.path.exists(names[0]):
            self.skipTest("no LMC_DATA")
        a, b = self.stats(*names)
        self.assertAlmostEqual(b["changed_elements"] / b["elements"], 0.163, delta=0.001)
        self.assertAlmostEqual(b["entropy_size"] / b["direct_size"], 1, delta=0.01)
        self.assertLess(b["sign_flips"] * 1000, b["elements"])


class Snapshots(StatsCase):
    """Which tensors are compared with which, in all kinds of files."""

    def setUp(self):
        super().setUp()
        self.w, self.m = [bf16(5000)], [f32(3000, 2)]
        for k in range(3):
            self.w.append(moved(self.w[-1], 2, 0.1, k))
            self.m.append(moved(self.m[-1], 4, 0.9, k))

    def lay_out(self, k):
        self.write("s%d/model.safetensors" % k, safetensors([("w", "BF16", [50, 100], self.w[k])]))
        self.write("s%d/m.safetensors" % k, safetensors([("w", "F32", [3000], self.m[k])]))
        self.write("s%d/config.json" % k, b"{%d}" % k)

    def test_forms(self):
        for k in range(4):
            self.lay_out(k)
            self.lmc("s%d" % k, "--no-twins", "-o", "whole%d.lmc" % k)
            self.lmc("s%d" % k, "--no-twins", "-o", "d%d.lmc" % k, *(a for i in range(k - 1, -1, -1) for a in ("--base", "d%d.lmc" % i)))
        def bare(snapshots):
            return [{k: v for k, v in s.items() if k != "snapshot"} for s in snapshots]
        want = bare(self.stats("s0", "s1", "s2", "s3"))
        self.assertEqual(bare(self.stats(*("whole%d.lmc" % k for k in range(4)))), want)
        self.assertEqual(bare(self.stats(*("d%d.lmc" % k for k in range(4)))), want)
        self.assertEqual(bare(self.stats("d0.lmc", "s1", "whole2.lmc", "s3/")), want)
        self.assertEqual(bare(self.stats("d3.lmc", *(a for i in range(3) for a in ("--base", "d%d.lmc" % i))))[0]["elements"], want[3]["elements"])
        self.assertEqual([t["changed_elements"] for t in self.stats("d3.lmc", "d2.lmc", "d1.lmc", "d0.lmc")[1]["tensors"]],
                         [t["changed_elements"] for t in want[3]["tensors"]])
        self.refuses("stats", "--no-search", "d2.lmc", "d3.lmc", code=4, says="d2.lmc: needs the base")

    def test_layouts_that_differ(self):
        self.lay_out(0)
        self.write("n/model.safetensors", safetensors([("more", "I8", [3], b"abc"), ("w", "F16", [50, 100], self.w[1])]))
        self.write("n/m.safetensors", safetensors([("w", "F32", [30, 100], self.m[1])]))
        a, b = self.stats("s0", "n")
        got = self.tensors(b)
        self.assertEqual({k: t["status"] for k, t in got.items()},
                         {("model.safetensors", "more"): "added", ("model.safetensors", "w"): "retyped", ("m.safetensors", "w"): "reshaped"})
        self.check_item(got["m.safetensors", "w"], expected("F32", self.m[1], self.m[0]))
        for name in ("more", "w"):
            t = got["model.safetensors", name]
            self.assertEqual([t["compared_elements"], t["changed_elements"], t["delta_size"]], [0, 0, t["direct_size"]])
        self.assertEqual([f["status"] for f in b["files"]], ["removed"])
        self.assertEqual([f["name"] for f in b["files"]], ["config.json"])
        self.assertEqual(b["compared_elements"], 3000)
        text = self.lmc("stats", "s0", "n").stdout.decode()
        self.assertRegex(text, r"(?m)^  F16 .* retyped +- .*  w  in model.safetensors$")
        self.assertRegex(text, r"(?m)^  file +3 +removed +config.json$")

    def test_one_is_compared_with_one(self):
        """A gradient that appears beside weights of its name and dtype is new; another order or another file makes no tensor new."""
        for k in range(2):
            self.lay_out(k)
        self.write("s1/grad.safetensors", safetensors([("w", "BF16", [50, 100], self.w[3])]))
        self.write("s2/a.safetensors", safetensors([("w", "BF16", [50, 100], self.w[1])]))
        self.write("s2/b.safetensors", safetensors([("w", "BF16", [50, 100], self.w[1])]))
        _, one, two = self.stats("s0", "s1", "s2")
        got = self.tensors(one)
        self.assertEqual(got["grad.safetensors", "w"]["status"], "added")
        self.check_item(got["model.safetensors", "w"], expected("BF16", self.w[1], self.w[0]))
        self.assertEqual(sorted(t["status"] for t in self.tensors(two).values()), ["added", "same"])  # of two weights, that which a delta takes
        self.write("t1/renamed.safetensors", safetensors([("w", "BF16", [50, 100], self.w[1])]))
        self.write("t2/shard.safetensors", safetensors([("w", "BF16", [50, 100], self.w[2])]))
        self.assertEqual([t["changed_elements"] for t in self.stats("t1", "t2")[1]["tensors"]],
                         [expected("BF16", self.w[2], self.w[1])["changed_elements"]])

    def test_empty(self):
        os.mkdir(self.path("nothing"))
        self.write("empty", b"")
        self.write("one", b"1")
        for names in (["nothing"], ["empty", "nothing", "one", "empty"]):
            got = self.stats(*names)
            self.assertEqual([s["elements"] for s in got], [1 if n == "one" else 0 for n in names])
            self.lmc("stats", *names)

    def test_memory(self):
        """Memory does not grow with a series, except by the index of each .lmc file and a little more."""
        if SANITIZED:
            self.skipTest("sanitized build")
        self.write("x", bf16(100000) * 40)
        self.lmc("--dtype=BF16", "x")
        for name in ("x", "x.lmc"):
            few, many = (self.max_rss("stats", "-T1", "--dtype=BF16", *[name] * n) for n in (2, 20))
            self.assertLess(many - few, 20, name)

    def test_table(self):
        values = [0.0] * 100 + [1.0] * 500 + [-6.0] * 350 + [1e-3] * 50
        self.write("a.safetensors", safetensors([("w", "F32", [10, 100], struct.pack("<1000f", *values)), ("q", "Q4_K", [64], bytes(range(64)))]))
        self.write("b.safetensors", safetensors([("w", "F32", [10, 100], struct.pack("<1000f", *(-v for v in values[:200] + values[200:])))]))
        self.write("c.safetensors", self.read("a.safetensors"))
        text = self.lmc("stats", "a.safetensors", "b.safetensors").stdout.decode()
        exponents = entropy([100, 500, 350, 50])
        self.assertRegex(text, r"(?m)^  F32      \[10,100\] +4000  10\.0000 %% + zero    0    2 +%.2f .* -  w$" % exponents)
        self.assertRegex(text, r"(?m)^  F32      \[10,100\] +4000 .* 100\.0000 % 100\.0000 % .*  w$")
        self.assertRegex(text, r"(?m)^  Q4_K     \[64\] +64 +removed +q$")
        self.assertRegex(text, r"(?m)^  bytes    all 1 +64 +1\.5625 % .*  6\.00   .* a.safetensors$")
        self.assertRegex(text, r"(?m)^           all 2 +4064 .* a.safetensors$")
        self.write("few.safetensors", safetensors([("w", "F32", [3], struct.pack("<3f", 4, 0, 1))]))
        self.assertRegex(self.lmc("stats", "few.safetensors").stdout.decode(), r"(?m)^  F32      \[3\] +12  33\.3333 % + zero    0    2 ")
        self.assertNotIn("[10,100]", self.lmc("stats", *"abc", stdin=b"", code=1, says="a: cannot open it").stdout.decode())
        names = ["a.safetensors", "b.safetensors", "c.safetensors"]
        self.assertNotIn("[10,100]", self.lmc("stats", *names).stdout.decode())
        self.assertEqual(self.lmc("stats", "-v", *names).stdout.decode().count("[10,100]"), 3)


class Roles(StatsCase):
    """Sums by role, and the largest tensors only."""

    def setUp(self):
        super().setUp()
        for k in range(2):
            self.write("s%d/w.safetensors" % k, safetensors([("a", "BF16", [4000], bf16(4000)), ("b", "BF16", [9000], bf16(9000, seed=k))]))
            self.write("s%d/m.safetensors" % k, safetensors([("a.exp_avg", "F32", [3000], f32(3000, 1)), ("a.exp_avg_sq", "F32", [1000], f32(1000, 2 + k))]))

    def sums(self, verb, *args):
        text = self.lmc(verb, *args).stdout.decode()
        return text, [line.split() for line in text.splitlines() if line.split()[-1] in ("weight", "m", "v") or line.split()[0] in ("weight", "m", "v")]

    def test_stats(self):
        text, rows = self.sums("stats", "s0")
        self.assertEqual([(x[0], x[2], x[3]) for x in rows], [("weight", "2", "26000"), ("m", "1", "12000"), ("v", "1", "4000")])
        found = json.loads(self.lmc("stats", "--json", "s0").stdout)["snapshots"][0]["roles"]
        self.assertEqual([(x["role"], x["items"], x["size"]) for x in found], [("weight", 2, 26000), ("m", 1, 12000), ("v", 1, 4000)])
        self.assertEqual(sum(x["direct_size"] for x in found), json.loads(self.lmc("stats", "--json", "s0").stdout)["snapshots"][0]["direct_size"])
        text, rows = self.sums("stats", "s0/w.safetensors")  # one role: no sums
        self.assertEqual(rows, [])
        text, _ = self.sums("stats", "--top", "1", "s0", "s1", "s0")
        self.assertEqual((text.count("and 3 more, without --top"), text.count("  b  in w.safetensors")), (3, 3))
        self.assertEqual(self.sums("stats", "--top", "4", "s0"), self.sums("stats", "--top", "99", "s0"))
        self.assertNotIn("more", self.sums("stats", "--top", "4", "s0")[0])

    def test_diff(self):
        text, rows = self.sums("diff", "s0", "s1")
        self.assertEqual([(x[-1], x[1]) for x in rows], [("weight", "26000"), ("m", "12000"), ("v", "4000")])
        text, _ = self.sums("diff", "--top", "2", "s0", "s1")
        self.assertEqual([line.split()[-3] for line in text.splitlines() if " in " in line], ["b", "a.exp_avg_sq"])
        self.assertIn("and 2 more, without --top", text)
        self.assertRegex(text, r"2 same, 2 changed")

    def test_usage(self):
        for args in (("--top", "0"), ("--top", "x"), ("--top", "2", "--json")):
            self.refuses("stats", *args, "s0", code=2)
        self.refuses("-l", "--top", "2", "s0", code=2, says="--top is for")


HOSTILE = "<script>alert('\"x\"')</script> & ]]> \x1b[31m \x01 \u202e \ufffe layers.10.w"


class Names(StatsCase):
    def setUp(self):
        super().setUp()
        self.data = [bf16(2000)]
        for k in range(11):
            self.data.append(moved(self.data[-1], 2, (0.5, 0.002, 0)[k % 3], k))
        for k, data in enumerate(self.data):
            self.write("run/step-%d.safetensors" % k, safetensors([(HOSTILE, "BF16", [2000], data), ("layers.9.w", "F32", [1000], data),
                                                                   ("layers.010.w", "F32", [1000], data),
                                                                   ("layers.11.w", "F32", [1000], data)]))
        self.names = ["run/step-%d.safetensors" % k for k in range(12)]

    def test_pictures_are_elsewhere(self):
        """--svg says what draws them; nothing is written."""
        before = self.tree()
        for args in (("--svg", "plot"), ("--svg=plot",)):
            self.refuses("stats", *args, *self.names[:2], code=2, says="there is no option '--svg'; 'python -m lmc_integrations.stats PREFIX SNAPSHOT...' draws")
        self.assertEqual(self.tree(), before)

    def test_hostile_names(self):
        """In the table and in JSON; also names of files, and bytes that are not UTF-8."""
        name = b"run/<&\"'>\xff\x1b[0m.safetensors"
        os.rename(os.fsencode(self.path(self.names[0])), os.path.join(os.fsencode(self.dir), name))
        p = self.lmc("stats", name, self.names[1])
        self.assertNotIn(b"\x1b", p.stdout)
        self.assertNotIn(b"\x01", p.stdout)
        a, b = self.stats(name, self.names[1])
        self.assertEqual(bytes.fromhex(a["snapshot_hex"]), name)
        self.assertIn(HOSTILE, [t["name"] for t in b["tensors"]])


class Errors(StatsCase):
    def setUp(self):
        super().setUp()
        self.write("a.safetensors", safetensors([("w", "BF16", [30000], bf16(30000))]))
        self.lmc("a.safetensors")

    def test_usage(self):
        for args in ((), ("-",), ("-c", "a.safetensors"), ("-o", "x", "a.safetensors"), ("-r", "a.safetensors"), ("-d", "a.safetensors"),
                     ("--rm", "a.safetensors"), ("--npy", "a.safetensors"), ("--nonsense", "a.safetensors")):
            self.refuses("stats", *args, code=2, says="lmc: ")

    def test_missing(self):
        self.refuses("stats", "a.safetensors", "gone", code=1, says="gone: cannot open it")
        if os.geteuid() != 0:
            self.write("secret", b"x", 0)
            self.refuses("stats", "secret", code=1, says="secret: cannot open it")

    def test_damaged(self):
        data = self.read("a.safetensors.lmc")
        for at in (10, 3000, len(data) // 2, len(data) - 50):
            self.write("bad.lmc", data[:at] + bytes([data[at] ^ 64]) + data[at + 1:])
            for args in (["bad.lmc"], ["a.safetensors", "bad.lmc"], ["bad.lmc", "a.safetensors"]):
                self.assertEqual(self.refuses("stats", *args, code=3, says="bad.lmc: ").stdout, b"")
        self.write("short.lmc", data[:-1])
        self.refuses("stats", "short.lmc", code=3, says="short.lmc: ")
        self.write("bad.safetensors", self.read("a.safetensors")[:-1])
        self.refuses("stats", "a.safetensors", "bad.safetensors", code=1, says="bad.safetensors: is not a valid safetensors file")


if __name__ == "__main__":
    sys.exit(main())
