#!/usr/bin/env python3
"""lmc diff.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import json
import os
import re
import shutil
import struct
import sys

from case import DATA, Case, bf16, f32, halved, main, moved, safetensors


class Diff(Case):
    def setUp(self):
        super().setUp()
        self.w, self.v = bf16(300000), f32(70000, 2)
        self.w2 = moved(self.w, 2, 0.02)
        self.write("old/1.safetensors", safetensors([("w", "BF16", [300, 1000], self.w), ("u", "BF16", [50, 100], self.w[:10000]), ("gone", "I8", [70], bytes(70))]))
        self.write("old/2.safetensors", safetensors([("v", "F32", [70000], self.v), ("short", "F32", [100], self.v[:400]), ("half", "F16", [5000], self.w[:10000])]))
        self.write("old/config.json", b"old")
        self.write("old/lost", b"lost")
        self.write("new/all.safetensors", safetensors([("v", "F32", [70000], self.v), ("more", "F32", [3000], self.v[:12000]), ("u", "BF16", [5000], self.w[:10000]),
                                                       ("short", "F32", [90], self.v[:360]), ("half", "BF16", [5000], self.w[:10000]), ("w", "BF16", [300, 1000], self.w2)]))
        self.write("new/config.json", b"new")

    def diff(self, *args):
        return json.loads(self.lmc("diff", "--json", *args).stdout)

    def test_what_is_found(self):
        want = {"w": "changed", "v": "same", "u": "reshaped", "short": "reshaped", "half": "retyped", "more": "added", "gone": "removed"}
        self.lmc("old")
        self.lmc("new", "--base", "old")
        results = []
        for a, b in (("old", "new"), ("old.lmc", "new.lmc"), ("old", "new.lmc"), ("old.lmc", "new")):
            o = self.diff(a, b)
            self.assertEqual({t["name"]: t["status"] for t in o["tensors"]}, want)
            self.assertEqual({f["name"]: f["status"] for f in o["files"]}, {"config.json": "changed", "lost": "removed"})
            self.assertEqual((o["from"]["snapshot"], o["to"]["snapshot"]), (a, b))
            self.assertEqual(o["to"]["fingerprint"], self.listing("new.lmc")["fingerprint"])
            results.append((o["tensors"], o["files"], o["delta_size"], o["direct_size"]))
        self.assertTrue(all(r == results[0] for r in results))
        self.assertEqual(self.diff("old", "new", "-T1"), self.diff("old", "new", "-T3"))
        t = {t["name"]: t for t in o["tensors"]}
        changed = sum(self.w[i:i + 2] != self.w2[i:i + 2] for i in range(0, len(self.w), 2))
        self.assertEqual([t["w"][k] for k in ("elements", "changed_elements", "size", "shape", "dtype")], [300000, changed, 600000, [300, 1000], "BF16"])
        for name, n in (("v", 0), ("u", 0), ("short", 0), ("half", 5000), ("more", 3000)):
            self.assertEqual(t[name]["changed_elements"], n)
        self.assertLess(t["w"]["delta_size"] * 8, t["w"]["direct_size"])
        self.assertLess(max(t["v"]["delta_size"], t["u"]["delta_size"]), 100)
        self.assertLess(t["short"]["delta_size"], t["short"]["direct_size"])  # of fewer rows
        self.assertLess(t["half"]["delta_size"], 100)  # a twin of u
        self.assertEqual(t["more"]["delta_size"], t["more"]["direct_size"])
        for key in ("elements", "changed_elements", "delta_size", "direct_size", "size"):
            self.assertEqual(o[key], sum(x[key] for x in o["tensors"] + o["files"] if x["status"] != "removed"))
        real = os.path.getsize(self.path("new.lmc"))  # the estimate is the real size without headers and the index
        self.assertLess(o["delta_size"], real)
        self.assertGreater(o["delta_size"], real - 3000)

    def test_counts(self):
        """All elements changed, and every third one, in their last byte; of each width."""
        tensors = [(dtype, width, n, step) for dtype, width in (("U8", 1), ("BF16", 2), ("F32", 4), ("F64", 8)) for n in (1, 127, 128, 129, 1000) for step in (1, 3)]
        for name, last in (("x", b"\0"), ("y", b"\1")):
            self.write(name, safetensors([("%s-%d-%d" % (dtype, n, step), dtype, [n], b"".join(bytes(width - 1) + (b"\0", last)[i % step == 0] for i in range(n)))
                                          for dtype, width, n, step in tensors]))
        found = {t["name"]: t["changed_elements"] for t in self.diff("x", "y")["tensors"]}
        self.assertEqual(found, {"%s-%d-%d" % (dtype, n, step): len(range(0, n, step)) for dtype, _, n, step in tensors})

    def test_estimates(self):
        """Small tensors share blocks, as in a snapshot: each was measured in a block of its own. Of large tensors a part is coded alone."""
        def tensors(step):
            w = [bf16(n, i) for i, n in enumerate([9000000] + [4000, 800, 30] * 60)]
            return safetensors([("w%03d" % i, "BF16", [len(x) // 2], moved(x, 2, 0.02 * (i % 4 != 1), i) if step else x) for i, x in enumerate(w)])

        self.write("a", tensors(0))
        self.write("b", tensors(1))
        self.lmc("a", "b")
        self.lmc("b", "-o", "d", "--base", "a.lmc")
        delta, direct = (os.path.getsize(self.path(x)) for x in ("d", "b.lmc"))
        o = self.diff("a.lmc", "b")
        self.assertLess(o["delta_size"], delta)
        self.assertLess(delta - 20000, o["delta_size"])
        self.assertLess(abs(direct - o["direct_size"]), direct // 200)
        for t in o["tensors"]:
            self.assertEqual(t["delta_size"] > 0, t["changed_elements"] > 0, t)
            self.assertTrue(t["size"] // 2 < t["direct_size"] <= t["size"], t)

    def test_it_is_matched_as_the_delta_is(self):
        """Renamed tensors, tensors that are cut in another way, and twins: diff said 'added', and a size of up to three times the delta's."""
        n = 100000
        layers, whole, master = [bf16(n, i) for i in range(3)], bf16(n, 7), f32(n, 9)
        self.write("a", safetensors([("l.%d.w" % i, "BF16", [1000, 100], w) for i, w in enumerate(layers)] + [("r", "BF16", [1000, 100], whole)]))
        self.write("b", safetensors([("module.l.%d.w" % i, "BF16", [1000, 100], moved(w, 2, 0.01, i)) for i, w in enumerate(layers)] +
                                    [("r[0:400]", "BF16", [400, 100], whole[:400 * 200]), ("r[400:1000]", "BF16", [600, 100], whole[400 * 200:]),
                                     ("m", "F32", [n], master), ("half", "F16", [n], halved(master))]))
        self.lmc("a")
        self.lmc("b", "--base", "a.lmc")
        real = os.path.getsize(self.path("b.lmc"))
        for names in ("a", "b"), ("a.lmc", "b.lmc"):
            o = self.diff(*names)
            t = {t["name"]: t for t in o["tensors"]}
            self.assertEqual({name: x["status"] for name, x in t.items()}, {
                **{"module.l.%d.w" % i: "changed" for i in range(3)}, "r[0:400]": "reshaped", "r[400:1000]": "reshaped", "m": "added", "half": "added"})
            self.assertEqual(t["module.l.1.w"]["old"], {"name": "l.1.w", "path": ""})
            self.assertEqual(t["module.l.1.w"]["changed_elements"], n // 100)
            self.assertEqual(t["half"]["twin"], {"name": "m", "path": ""})
            self.assertLess(real - 2000, o["delta_size"])
            self.assertLess(o["delta_size"], real)
        text = self.lmc("diff", "a", "b").stdout.decode()
        for line in "module.l.1.w  was l.1.w", "r[0:400]  part of r", "half  twin of m":
            self.assertIn("  %s\n" % line, text)
        listed = self.lmc("-l", "-v", "b.lmc").stdout.decode()
        for name, by in (("module.l.1.w", "base 'l.1.w'"), ("r[0:400]", "base 'r'"), ("half", "twin of 'm'")):
            self.assertRegex(listed, r"(?m) %s  offset \d+  [0-9a-f]{32}  %s$" % (re.escape(name), by))
        self.assertRegex(listed, r"(?m) m  offset \d+  [0-9a-f]{32}$")  # nothing predicts it
        t = {t["name"]: t for t in json.loads(self.lmc("-l", "-v", "--json", "b.lmc").stdout)["files"][0]["tensors"]}
        self.assertEqual((t["module.l.2.w"]["base"], t["half"]["twin"]), ({"name": "l.2.w", "path": ""}, {"name": "m", "path": ""}))
        self.write("away/a.lmc", self.read("a.lmc"))
        os.unlink(self.path("a.lmc"))
        self.assertNotIn("base 'l.1.w'", self.lmc("-l", "-v", "b.lmc").stdout.decode())
        self.assertIn("base 'l.1.w'", self.lmc("-l", "-v", "--search", "away", "b.lmc").stdout.decode())

    def test_table(self):
        text = self.lmc("diff", "old", "new").stdout.decode()
        self.assertRegex(text, r"(?m)^  changed  BF16     \[300,1000\] +600000    1\.99\d\d %.* w  in all.safetensors$|^  changed  BF16     \[300,1000\] +600000    2\.0000 %.* w  in all.safetensors$")
        self.assertRegex(text, r"(?m)^  removed  I8       \[70\] +70 +gone  in 1.safetensors$")
        self.assertRegex(text, r"(?m)^  all .*  1 same, 2 changed, 2 reshaped, 1 retyped, 1 added, 2 removed$")

    def test_equal_and_empty(self):
        o = self.diff("old", "old")
        self.assertEqual({t["status"] for t in o["tensors"] + o["files"]}, {"same"})
        self.assertEqual((o["changed_elements"], o["from"]["fingerprint"]), (0, o["to"]["fingerprint"]))
        self.write("empty", b"")
        self.write("one", b"1")
        self.assertEqual(self.diff("empty", "empty")["elements"], 0)
        self.assertEqual(self.diff("empty", "one")["files"][0]["status"], "changed")
        self.lmc("diff", "empty", "one")
        os.mkdir(self.path("nothing"))
        self.assertEqual(self.diff("nothing", "old")["tensors"][0]["status"], "added")
        self.assertEqual(self.diff("old", "nothing")["delta_size"], 0)

    def test_what_is_no_tensor(self):
        """Other metadata, and links that lead elsewhere, are not "same"."""
        w = [("w", "BF16", [100], self.w[:200])]
        for k in (0, 1):
            self.write("m%d/a" % k, safetensors(w, {"step": str(k)}))
            self.write("m%d/b" % k, safetensors(w, {"step": str(9 + k)}))  # a byte more
            self.write("m%d/same" % k, safetensors(w))
            self.write("m%d/moved%d" % (k, k), safetensors([("x", "BF16", [100], self.w[:200])]))
            for name, target in (("last", "ab"[k]), ("same-link", "a"), ("only%d" % k, "a")):
                os.symlink(target, self.path("m%d/%s" % (k, name)))
            self.lmc("m%d" % k)
        size = 8 + struct.unpack("<Q", self.read("m0/b")[:8])[0]
        for a, b in (("m0", "m1"), ("m0.lmc", "m1.lmc"), ("m0", "m1.lmc")):
            o = self.diff(a, b)
            self.assertEqual({t["status"] for t in o["tensors"]}, {"same"})
            found = {f.pop("path"): f for f in o["outside_tensors"]}
            self.assertEqual(found.pop("a"), {"status": "changed", "size": size, "old_size": size, "changed_bytes": 1})
            self.assertEqual(found.pop("b")["status"], "changed")
            self.assertEqual(found, {"moved0": {"status": "removed"}, "moved1": {"status": "added"}})
            self.assertEqual(o["links"], [{"path": "last", "status": "changed", "target": "b", "old_target": "a"}, {"path": "only1", "status": "added", "target": "a"},
                                          {"path": "only0", "status": "removed", "old_target": "a"}])
            text = self.lmc("diff", a, b).stdout.decode()
            self.assertIn("\n  changed  1 of %d bytes of headers, pickles and metadata  in a\n" % size, text)
            self.assertIn("\n  changed  link last to b, before to a\n", text)
        o = self.diff("m0", "m0.lmc")
        self.assertEqual((o["outside_tensors"], o["links"]), ([], []))
        o = self.diff("m0/a", "m1/b")["outside_tensors"]
        self.assertEqual([(f["path"], f["status"]) for f in o], [("", "changed")])

    def test_chains(self):
        self.lmc("old")
        self.lmc("new", "--base", "old.lmc")
        shutil.copytree(self.path("new"), self.path("newer"))
        self.lmc("newer", "--base", "new.lmc", "--base", "old.lmc")
        self.assertEqual(self.diff("new.lmc", "newer.lmc", "--base", "old.lmc")["changed_elements"], 0)
        self.assertEqual(self.diff("newer.lmc", "new", "--base", "old")["changed_elements"], 0)
        os.mkdir(self.path("away"))
        for name in ("old", "old.lmc"):
            os.rename(self.path(name), self.path("away/" + name))
        self.refuses("diff", "new.lmc", "newer.lmc", code=4, says="new.lmc: needs the base")
        self.lmc("diff", "new.lmc", "missing", code=1, says="missing: cannot open it")

    def test_usage(self):
        for args in (("old",), (), ("old", "new", "old"), ("-c", "old", "new"), ("-o", "x", "old", "new"), ("-d", "old", "new"), ("-", "new"), ("--rm", "old", "new")):
            self.refuses("diff", *args, code=2, says="lmc: ")

    def test_pieces(self):
        """Tensors of more than one piece of 16 MiB; raw files by their dtype."""
        part = bf16(1 << 20)
        self.write("a", part * 9)
        self.write("b", part * 8 + moved(part, 2, 0.5))
        o = self.diff("a", "b", "--dtype=BF16")["tensors"][0]
        self.assertEqual((o["elements"], o["changed_elements"]), (9 << 20, 1 << 19))
        self.assertLess(o["delta_size"] * 9, o["direct_size"])
        self.assertEqual(self.diff("a", "b")["files"][0]["elements"], 9 << 21)  # bytes

    def test_real_series(self):
        names = [os.path.join(DATA, "series", "step-%06d" % s, "model.bf16.safetensors") for s in (1700, 1701)]
        if not os.path.exists(names[0]):
            self.skipTest("no LMC_DATA")
        o = self.diff(*names)
        self.assertAlmostEqual(o["changed_elements"] / o["elements"], 0.155, delta=0.01)
        self.assertLess(o["delta_size"] * 18, o["size"])
        self.lmc(names[1], "--base", names[0], "-o", "x.lmc")
        self.assertLess(abs(os.path.getsize(self.path("x.lmc")) / o["delta_size"] - 1), 0.05)


if __name__ == "__main__":
    sys.exit(main())
