#!/usr/bin/env python3
"""Tests of lmc --quant and --policy: rules, roles, pairs of moments, errors, and that nothing else changes.

Usage: test_quant.py [--long] [-v] [NAME...]      as case.py says

SPDX-License-Identifier: MIT
"""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
from array import array

from case import DECODER, LMC, Case, bf16, main, rounded, safetensors

ROWS, COLUMNS = 96, 192  # more than the smallest size that is quantised
EPS = 1e-8


def moments(seed=1, rows=ROWS, columns=COLUMNS):
    """First and second moments as Adam has them: each row has its own scale."""
    rng = random.Random(seed)
    m, v = array("f"), array("f")
    for _ in range(rows):
        scale = math.exp(rng.gauss(-20, 1.5))
        for _ in range(columns):
            x = scale * math.exp(rng.gauss(0, 0.6))
            v.append(x)
            m.append(math.sqrt(x) * rng.gauss(0, 0.3))
    return m.tobytes(), v.tobytes()


def floats_of(data):
    a = array("f")
    a.frombytes(data)
    return a


def words_of(data):
    a = array("I")
    a.frombytes(data)
    return a


def tensors_of(data):
    """{name: bytes} of a safetensors file."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {k: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for k, t in header.items() if k != "__metadata__"}


def update_error(m, v, new_m, new_v):
    """For u = m / (sqrt(v) + eps): the L2 norm of the difference, over that of u."""
    lost = whole = 0.0
    for a, b, c, d in zip(*map(floats_of, (m, v, new_m, new_v))):
        u = a / (math.sqrt(b) + EPS)
        lost += (u - c / (math.sqrt(d) + EPS)) ** 2
        whole += u * u
    return math.sqrt(lost / whole)


def nmse(old, new):
    pairs = list(zip(floats_of(old), floats_of(new)))
    return sum((a - b) ** 2 for a, b in pairs) / sum(a * a for a, _ in pairs)


def relative_error(old, new):
    """The largest relative error of all elements; zeros must be exact."""
    return max(0 if a == b else abs(a - b) / abs(a) if a else math.inf for a, b in zip(floats_of(old), floats_of(new)))


M, V = moments()
SHAPE = [ROWS, COLUMNS]
SLACK = 1.05  # the library measures by a histogram


class Quant(Case):
    def checkpoint(self, name="c", layers=2):
        """A checkpoint in files, one for each kind of state, with the same names in all of them."""
        names = ["layers.%d.weight" % i for i in range(layers)]
        kinds = {"exp_avg.f32": [], "exp_avg_sq.f32": [], "master.f32": []}
        for i, n in enumerate(names):
            m, v = moments(10 + i)
            for kind, data in zip(kinds, (m, v, floats_of(m).tobytes()[::-1])):
                kinds[kind].append((n, "F32", SHAPE, data if kind != "master.f32" else moments(50 + i)[0]))
        kinds["model.bf16"] = [(n, "BF16", s, rounded(d)) for n, _, s, d in kinds["master.f32"]]
        for kind, tensors in kinds.items():
            norm = ("norm.weight", tensors[0][1], [64], tensors[0][3][:64 * (2 if tensors[0][1] == "BF16" else 4)])
            self.write("%s/%s.safetensors" % (name, kind), safetensors(tensors + [norm]))
        return names

    def compress(self, name, *rules, out="x.lmc", args=()):
        self.lmc(name, "-q", "-f", "-o", out, *(a for r in rules for a in ("--quant", r)), *args, says="")
        return self.listing(out)

    def restore(self, packed="x.lmc", *args):
        """Restores; returns {path: {name: bytes}}, or {name: bytes} for a single file."""
        self.lmc("-d", "-q", "-f", packed, "-o", "r", *args)
        if os.path.isfile(self.path("r")):
            found = tensors_of(self.read("r"))
            os.unlink(self.path("r"))
        else:
            found = {p: tensors_of(self.read("r/" + p)) for p in self.tree("r") if p.endswith(".safetensors")}
            shutil.rmtree(self.path("r"))
        return found

    def file_of(self, *tensors, name="a.safetensors"):
        """Writes a file. tensors: (name, bytes) of the usual shape; or (name, dtype, shape, bytes)."""
        self.write(name, safetensors([t if len(t) == 4 else (t[0], "F32", SHAPE, t[1]) for t in tensors]))
        return name

    def choices(self, o):
        """{name: its entry in the policy's record}"""
        return {(t["path"] + "/" + t["name"]).lstrip("/"): t for t in o["policy"]["tensors"]}

    def losses(self, o):
        return {(f["path"] + "/" + t["name"]).lstrip("/"): t["loss"] for f in o["files"] for t in f["tensors"] if "loss" in t}


class Errors(Quant):
    def test_update(self):
        """Both moments together keep the bound, and the losses that the file states are right."""
        self.checkpoint(layers=1)
        old = {p: tensors_of(self.read("c/" + p)) for p in self.tree("c")}
        sizes = []
        for rule, bound in (("*=update:0.003", 0.003), ("*=update:0.01", 0.01), ("*=auto:0.1", 0.1)):
            o = self.compress("c", rule)
            new = self.restore()
            m, v = (x["layers.0.weight"] for x in (new["exp_avg.f32.safetensors"], new["exp_avg_sq.f32.safetensors"]))
            m0, v0 = (old[p]["layers.0.weight"] for p in ("exp_avg.f32.safetensors", "exp_avg_sq.f32.safetensors"))
            error, of_m, of_v = update_error(m0, v0, m, v), update_error(m0, v, m, v), update_error(m0, v0, m0, v)
            self.assertLess(error, bound * SLACK)
            self.assertGreater(error, bound / 4)  # and most of the bound is used
            losses = self.losses(o)
            for path, measured in (("exp_avg", of_m), ("exp_avg_sq", of_v)):
                loss = losses["%s.f32.safetensors/layers.0.weight" % path]
                self.assertEqual((loss["generation"], loss["measure"]), (1, "update"))
                self.assertLess(abs(loss["error"] / measured - 1), 0.1, path)
            sizes.append(o["packed_size"])
            for p in ("master.f32.safetensors", "model.bf16.safetensors"):  # as they were
                self.assertEqual(new[p], old[p])
            for p in ("exp_avg.f32.safetensors", "exp_avg_sq.f32.safetensors"):
                self.assertEqual(new[p]["norm.weight"], old[p]["norm.weight"])
        self.assertGreater(sizes[0], sizes[1])
        self.assertGreater(sizes[1], sizes[2])

    def test_update_without_second(self):
        """Without the second moment, its spread within a row must not break the promised bound."""
        rng = random.Random(9)
        v = array("f", (math.exp(rng.gauss(-20, 2)) for _ in range(ROWS * COLUMNS)))
        m = array("f", (math.sqrt(x) * rng.gauss(0, 0.3) for x in v)).tobytes()
        v = v.tobytes()
        name = self.file_of(("exp_avg", m), ("exp_avg_sq", v))
        for rule, measure, most in (("*=update:0.01", "relative", 0.01), ("*=auto:0.1", "relative", 0.1), ("*=bits:8", "nmse", 0.3)):
            losses = self.losses(self.compress(name, rule))
            self.assertEqual((losses["exp_avg"]["measure"], losses["exp_avg_sq"]["measure"]), (measure, "update"))
            new = self.restore()
            self.assertLess(update_error(m, v, new["exp_avg"], new["exp_avg_sq"]), most * SLACK)

    def test_bits(self):
        self.checkpoint(layers=1)
        old = {p: tensors_of(self.read("c/" + p))["layers.0.weight"] for p in ("exp_avg.f32.safetensors", "exp_avg_sq.f32.safetensors")}
        before = 1
        for bits, limit in ((4, 0.13), (6, 0.03), (8, 0.008)):
            o = self.compress("c", "*=bits:%d" % bits)
            new = {p: t["layers.0.weight"] for p, t in self.restore().items() if p in old}
            error = update_error(*old.values(), *new.values())
            self.assertLess(error, limit)
            self.assertLess(error, before)
            before = error
            for c in self.choices(o).values():
                if c["choice"] != "lossless":
                    self.assertEqual((c["choice"], c["rule"]), ("grid", "*=bits:%d" % bits))
                    self.assertLess(c["bits"], bits)
                    self.assertGreater(c["bits"], bits - 1)
        for path, data in new.items():
            self.assertEqual([a == 0 for a in floats_of(data)].count(True), 0 if "sq" in path else [a == 0 for a in floats_of(data)].count(True))

    def test_kmeans(self):
        """2^BITS values for a tensor, times the scales of its rows; the error is what was measured."""
        self.checkpoint(layers=1)
        old = {p: tensors_of(self.read("c/" + p))["layers.0.weight"] for p in ("exp_avg.f32.safetensors", "exp_avg_sq.f32.safetensors")}
        before = 1
        for bits, limit in ((1, 0.8), (2, 0.45), (4, 0.14), (8, 0.009)):
            o = self.compress("c", "*=kmeans:%d" % bits)
            new = {p: t["layers.0.weight"] for p, t in self.restore().items() if p in old}
            error = update_error(*old.values(), *new.values())
            self.assertLess(error, min(limit, before))
            before = error
            m, v = (self.losses(o)[p + "/layers.0.weight"] for p in old)
            self.assertEqual({m["measure"], v["measure"]}, {"update"})
            m0, v0 = old.values()
            measured = update_error(m0, v0, m0, new["exp_avg_sq.f32.safetensors"])
            self.assertLess(abs(v["error"] / measured - 1), 0.5 if bits < 4 else 0.15)
            chosen = [c for c in self.choices(o).values() if c["choice"] != "lossless"]
            self.assertEqual(len(chosen), 2)
            for c in chosen:
                self.assertEqual((c["choice"], c["rule"]), ("k-means", "*=kmeans:%d" % bits))
                self.assertLessEqual(c["codes"], 2 ** bits)
                self.assertLess(c["bits"], bits + 0.2)  # the scales of rows
                self.assertIn("k-means, %d values" % c["codes"], c["reason"])
        self.assertIn(b"k-means", self.lmc("-l", "-v", "x.lmc").stdout)

    def test_kmeans_of_few_values(self):
        """A tensor that has no more values than that is exact, and smaller than without a codebook. Not so multiples of one scale: these are smaller
        as codes with scales."""
        rng = random.Random(7)
        values = [rng.choice((-1, 1)) * rng.randrange(128, 256) * 2.0 ** rng.randrange(-18, -14) for _ in range(15)]
        data = array("f", (rng.choice(values) for _ in range(ROWS * COLUMNS))).tobytes()
        name = self.file_of(("w", data), ("grad", moments(4)[0]))
        o = self.compress(name, "*,role=any=kmeans:4")
        self.assertEqual(set(self.losses(o)), {"grad"})
        self.assertEqual((self.choices(o)["w"]["choice"], self.choices(o)["w"]["codes"]), ("k-means", 15))
        self.assertNotIn("error", self.choices(o)["w"])
        self.assertEqual(self.restore()["w"], data)
        self.lmc(name, "-f", "-vv", "-o", "x.lmc", "--quant", "*,role=any=kmeans:4", says="w (weight): exact: it has no more values")
        o = self.compress(name, "*,role=any=kmeans:3")
        self.assertEqual(set(self.losses(o)), {"grad", "w"})
        self.assertLessEqual(len(set(floats_of(self.restore()["grad"]))), 8 * ROWS)

    def test_hard_bound(self):
        rng = random.Random(3)
        wild = struct.pack("<%dI" % (ROWS * COLUMNS), *(rng.getrandbits(32) & 0xBFFFFFFF | 0x20000000 for _ in range(ROWS * COLUMNS)))
        name = self.file_of(("exp_avg", M), ("exp_avg_sq", V), ("grad", moments(4)[0]), ("w", wild))
        old = tensors_of(self.read(name))
        for bound in (0.1, 1e-2, 1e-3):
            o = self.compress(name, "*,role=any=rel:%g" % bound)
            new = self.restore()
            for t, loss in self.losses(o).items():
                self.assertEqual(loss["measure"], "relative")
                self.assertLessEqual(loss["error"], bound * 1.0001)
            for t in old:
                self.assertLessEqual(relative_error(old[t], new[t]), bound, t)
            self.assertEqual(len(self.losses(o)) >= 3, bound > 1e-3 or len(self.losses(o)) >= 3)

    def test_nmse(self):
        data = bf16(ROWS * COLUMNS, 5)
        name = self.file_of(("a.grad", moments(4)[0]), ("b.grad", "BF16", SHAPE, data), ("w", moments(5)[0]))
        for rule, bound in (("*=nmse:1e-3", 1e-3), ("*=update:0.05", 0.0025), ("*=auto:0.05", 0.0025)):
            o = self.compress(name, rule)
            new, old = self.restore(), tensors_of(self.read(name))
            wide = lambda b: b"".join(b"\0\0" + b[i:i + 2] for i in range(0, len(b), 2))
            self.assertEqual(set(self.losses(o)), {"a.grad", "b.grad"})
            self.assertLessEqual(nmse(old["a.grad"], new["a.grad"]), bound * SLACK)
            self.assertLessEqual(nmse(wide(old["b.grad"]), wide(new["b.grad"])), bound * SLACK)
            self.assertEqual(new["w"], old["w"])

    def test_exceptions_survive(self):
        """NaN with its payload, infinities, -0, subnormals, negative second moments; no positive second moment becomes zero."""
        odd = [0x7FC12345, 0xFF800001, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00000000]
        m, v = words_of(M), words_of(V)
        for i, x in enumerate(odd):
            m[100 * i + 7] = v[90 * i + 5] = x
        v[5000] = 0xB0000000
        name = self.file_of(("exp_avg", m.tobytes()), ("exp_avg_sq", v.tobytes()))
        for rule in ("*=bits:8", "*=bits:4", "*=kmeans:8", "*=kmeans:2", "*=update:0.05", "*=rel:0.01"):
            o = self.compress(name, rule)
            self.assertEqual(set(self.losses(o)), {"exp_avg", "exp_avg_sq"}, rule)
            new = {k: words_of(d) for k, d in self.restore().items()}
            self.assertEqual([new["exp_avg"][100 * i + 7] for i in range(len(odd))], odd)
            self.assertEqual([new["exp_avg_sq"][90 * i + 5] for i in range(len(odd))], odd)
            self.assertEqual(new["exp_avg_sq"][5000], 0xB0000000)
            self.assertTrue(all(b & 0x7FFFFFFF for a, b in zip(v, new["exp_avg_sq"]) if a & 0x7FFFFFFF))

    def test_too_many_exceptions(self):
        rng = random.Random(8)
        v = words_of(V)
        for i in rng.sample(range(len(v)), len(v) // 30):
            v[i] = 0x7FC00000 + i
        name = self.file_of(("exp_avg_sq", v.tobytes()))
        o = self.compress(name, "*=bits:8")
        self.assertEqual(self.losses(o), {})
        self.assertEqual(self.choices(o)["exp_avg_sq"]["choice"], "lossless")
        self.assertNotEqual(self.choices(o)["exp_avg_sq"]["reason"], "")
        self.assertEqual(self.restore()["exp_avg_sq"], v.tobytes())


class Roles(Quant):
    def roles(self, *names, policy=None):
        """{name: role} of tensors with these names, whose data is like m and like v in turn."""
        tensors = [(n, (M, V)[i % 2]) for i, n in enumerate(names)]
        name = self.file_of(*tensors)
        args = []
        if policy is not None:
            self.write("policy", policy.encode())
            args = ["--policy", "policy"]
        return {n: c for n, c in self.choices(self.compress(name, "*,role=any=bits:8", args=args)).items()}

    def test_names(self):
        for m, v in (("state.0.exp_avg", "state.0.exp_avg_sq"), ("optimizer.state.layer.w.exp_avg", "optimizer.state.layer.w.exp_avg_sq"),
                     ("optimizer.state.exp_avg.decoder.w", "optimizer.state.exp_avg_sq.decoder.w"),
                     ("base_optimizer_state.0.exp_avg", "base_optimizer_state.0.exp_avg_sq"),
                     ("opt_state/0/mu/params/kernel", "opt_state/0/nu/params/kernel"), ("0.mu.w", "0.nu.w"), ("exp_avg", "exp_avg_sq")):
            c = self.roles(m, v)
            self.assertEqual((c[m]["role"], c[v]["role"]), ("m", "v"))
            self.assertEqual((c[m]["partner"], c[v]["partner"]), (v, m))
        for name, role in (("model.w", "weight"), ("max_exp_avg_sq", "other"), ("state.0.max_exp_avg_sq", "other"), ("w.grad", "gradient"),
                           ("grads.w", "gradient"), ("encoder.mu.weight", "weight"), ("nu", "weight"), ("exp_avg_sq", "v"), ("exp_avg", "m"),
                           ("my_exp_avg", "weight"), ("exp_avgs", "weight"), ("optimizer.state.param.w", "weight"), ("upgrade.w", "weight"),
                           ("momentum_buffer", "other"), ("no-grad.w", "weight"), ("grad-accum.w", "weight"), ("a/grad", "gradient")):
            c = self.roles(name)
            self.assertEqual(c[name]["role"], role, name)
            self.assertNotIn("partner", c[name])

    def test_names_of_files(self):
        for m, v in (("exp_avg.f32.safetensors", "exp_avg_sq.f32.safetensors"), ("exp_avg/0.safetensors", "exp_avg_sq/0.safetensors"),
                     ("w/exp_avg.safetensors", "w/exp_avg_sq.safetensors")):
            for path, data in ((m, M), (v, V)):
                self.file_of(("a.weight", data), name="d/" + path)
            o = self.compress("d", "*=bits:8")
            c = self.choices(o)
            self.assertEqual([c[p + "/a.weight"]["role"] for p in (m, v)], ["m", "v"])
            self.assertEqual(c[m + "/a.weight"]["partner_path"], v)
            self.assertIn("scaled by the second moment", c[m + "/a.weight"]["reason"])
            paths = [f["path"] for f in o["files"]]
            self.assertLess(paths.index(v), paths.index(m))
            shutil.rmtree(self.path("d"))
        self.file_of(("a.weight", V), name="exp_avg_sq.safetensors")  # a single file, too
        self.assertEqual(self.choices(self.compress("exp_avg_sq.safetensors", "*=bits:8"))["a.weight"]["role"], "v")

    def test_names_of_files_with_weights(self):
        """A tensor that is no moment by its own name does not become one because of its file's name."""
        for path in ("exp_avg-exp_avg_sq.safetensors", "exp_avg/exp_avg_sq.safetensors", "no-grad.safetensors", "grad-accum-4/w.safetensors"):
            name = self.file_of(("w", M), name="d/" + path)
            self.assertEqual(self.compress("d", "*=bits:8")["lossy_tensors"], 0)
            self.assertEqual([c["role"] for c in self.choices(self.compress("d", "*,role=any=bits:8")).values()], ["weight"], path)
            os.unlink(self.path(name))
        self.file_of(("w", M), name="d/grads/rank0.safetensors")
        self.assertEqual([c["role"] for c in self.choices(self.compress("d", "*=bits:8")).values()], ["gradient"])

    def test_name_in_the_tensor_counts_more(self):
        self.file_of(("x.exp_avg_sq", V), ("x.grad", M), ("x", M), name="exp_avg.safetensors")
        c = self.choices(self.compress("exp_avg.safetensors", "*=bits:8"))
        self.assertEqual([c[n]["role"] for n in ("x.exp_avg_sq", "x.grad", "x")], ["v", "gradient", "m"])

    def test_pairs_across_shards(self):
        """Moments of one name in different files: one in the same file is preferred; of two in other files neither is used."""
        m2, v2 = moments(2)
        self.file_of(("0.exp_avg", M), name="d/b.safetensors")
        self.file_of(("0.exp_avg_sq", V), ("1.exp_avg", m2), ("1.exp_avg_sq", v2), name="d/z.safetensors")
        self.file_of(("1.exp_avg_sq", v2), ("2.exp_avg_sq", V), name="d/y.safetensors")
        self.file_of(("2.exp_avg_sq", V), ("3.exp_avg_sq", "F32", [COLUMNS, ROWS], V), name="d/x.safetensors")
        self.file_of(("2.exp_avg", M), ("3.exp_avg", M), name="d/a.safetensors")
        o = self.compress("d", "*=bits:8")
        c = self.choices(o)
        self.assertEqual(c["b.safetensors/0.exp_avg"]["partner_path"], "z.safetensors")
        self.assertIn("scaled by the second moment", c["b.safetensors/0.exp_avg"]["reason"])
        self.assertEqual(c["z.safetensors/1.exp_avg"]["partner_path"], "z.safetensors")
        self.assertIn("in the same file", c["z.safetensors/1.exp_avg"]["reason"])
        self.assertNotIn("partner", c["a.safetensors/2.exp_avg"])  # two of them
        self.assertNotIn("partner", c["a.safetensors/3.exp_avg"])  # of another shape
        self.assertIn("no second moment was found", c["a.safetensors/3.exp_avg"]["reason"])
        self.assertEqual([f["path"][0] for f in o["files"]], ["a", "z", "b", "x", "y"])  # only files that must move have moved
        new = self.restore()
        self.assertLess(update_error(M, V, new["b.safetensors"]["0.exp_avg"], new["z.safetensors"]["0.exp_avg_sq"]), 0.008)
        self.assertLess(update_error(m2, v2, new["z.safetensors"]["1.exp_avg"], new["z.safetensors"]["1.exp_avg_sq"]), 0.02)

    def test_pairs_of_ranks(self):
        """The same names in the files of each rank."""
        for k in range(2):
            for kind, data in zip(("exp_avg", "exp_avg_sq"), moments(k)):
                self.file_of(("optimizer.state.%s.w" % kind, data), name="d/rank_%d/%s.safetensors" % (k, kind))
        c = self.choices(self.compress("d", "*=bits:8"))
        for k in range(2):
            e = c["rank_%d/exp_avg.safetensors/optimizer.state.exp_avg.w" % k]
            self.assertEqual(e["partner_path"], "rank_%d/exp_avg_sq.safetensors" % k)
            self.assertIn("scaled by the second moment", e["reason"])

    def test_exact_second_moment(self):
        """The first moment is still coded with it."""
        self.checkpoint(layers=1)
        o = self.compress("c", "*,role=m=bits:8")
        self.assertEqual(set(self.losses(o)), {"exp_avg.f32.safetensors/layers.0.weight"})
        self.assertIn("scaled by the second moment", self.choices(o)["exp_avg.f32.safetensors/layers.0.weight"]["reason"])
        new = self.restore()
        self.assertEqual(new["exp_avg_sq.f32.safetensors"], tensors_of(self.read("c/exp_avg_sq.f32.safetensors")))

    def test_given_names(self):
        c = self.roles("0.first", "0.second", policy="m=first v=second\n")
        self.assertEqual([(c[n]["role"], c[n]["partner"]) for n in c], [("m", "0.second"), ("v", "0.first")])
        c = self.roles("x", "exp_avg_sq", "y", policy="role=v match=x\nrole=weight match=exp_*\n role=gradient\tmatch=a.safetensors/y # path\n")
        self.assertEqual([c[n]["role"] for n in ("x", "exp_avg_sq", "y")], ["v", "weight", "gradient"])

    def test_flat_and_small(self):
        """Flat parts of an optimizer's state are quantised in groups of 256, norms are not, with any rule."""
        m, v = moments(6, 512, 520)
        self.file_of(("flat.exp_avg_sq", "F32", [512 * 520], v), ("short.exp_avg_sq", "F32", [ROWS * COLUMNS], V), ("few.exp_avg_sq", "F32", [2, 64], V[:512]),
                     ("row.exp_avg_sq", "F32", [1, ROWS * COLUMNS, 1], V), ("conv.exp_avg_sq", "F32", [ROWS * 2, 4, 4, 6], V),
                     ("narrow.exp_avg_sq", "F32", [ROWS * COLUMNS // 32, 32], V), ("half.exp_avg_sq", "F16", SHAPE, bf16(ROWS * COLUMNS)),
                     ("step.exp_avg_sq", "I32", SHAPE, V))
        o = self.compress("a.safetensors", "*,role=any=bits:8")
        c = self.choices(o)
        self.assertEqual({n.split(".")[0] for n in self.losses(o)}, {"flat", "conv", "narrow"})
        for n, reason in (("flat", "groups of 256"), ("conv", "groups of 96"), ("narrow", "groups of 18432"), ("short", "one-dimensional"),
                          ("row", "one-dimensional"), ("few", "fewer than 16,384"), ("half", "only F32 and BF16"), ("step", "only F32 and BF16")):
            self.assertIn(reason, c[n + ".exp_avg_sq"]["reason"])
        self.assertEqual(c["step.exp_avg_sq"]["role"], "other")


class Rules(Quant):
    def test_last_rule_wins(self):
        names = self.checkpoint()
        o = self.compress("c", "*=bits:4", "*layers.1*=bits:8", "*exp_avg_sq*/*=lossless", "nothing*=bits:5")
        c = self.choices(o)
        rule = lambda path, i: c["%s.f32.safetensors/%s" % (path, names[i])]["rule"]
        self.assertEqual([rule("exp_avg", 0), rule("exp_avg", 1), rule("exp_avg_sq", 0)], ["*=bits:4", "*layers.1*=bits:8", "*exp_avg_sq*/*=lossless"])
        self.assertEqual(set(self.losses(o)), {"exp_avg.f32.safetensors/" + n for n in names})
        self.assertEqual(o["policy"]["rules"], ["*=bits:4", "*layers.1*=bits:8", "*exp_avg_sq*/*=lossless", "nothing*=bits:5"])
        self.assertLess(c["exp_avg.f32.safetensors/" + names[0]]["bits"], c["exp_avg.f32.safetensors/" + names[1]]["bits"])

    def test_fields(self):
        big = moments(7, 2 * ROWS)[0]
        name = self.file_of(("a.grad", M), ("b.grad", "F32", [2 * ROWS, COLUMNS], big), ("c.grad", "BF16", SHAPE, bf16(ROWS * COLUMNS)), ("d", M),
                            ("e.exp_avg", M), ("x,y=z.grad", M))
        for rule, want in (("*=bits:8", "abcex"), ("*,role=gradient=bits:8", "abcx"), ("*,dtype=BF16=bits:8", "c"), ("*,min=100K=bits:8", "b"),
                           ("*,max=40K=bits:8", "c"), ("*,max=73728,dtype=F32,role=gradient=bits:8", "ax"), ("*,role=weight=bits:8", "d"),
                           ("*,role=any=bits:8", "abcdex"), ("[ab].grad=bits:8", "ab"), ("a.safetensors/[ab].*=bits:8", "ab"), ("x,y=z*=bits:8", "x"),
                           ("*,role=weight=auto:0.1", ""), ("*=auto:0.1", "abcex")):
            o = self.compress(name, rule)
            self.assertEqual("".join(sorted(n[0] for n in self.losses(o))), want, rule)

    def test_weights_only_if_said(self):
        self.checkpoint(layers=1)
        for rule in ("*=bits:8", "*=rel:0.1", "*=auto:0.1", "*model*=bits:4"):
            o = self.compress("c", rule)
            self.assertFalse([n for n in self.losses(o) if n.startswith("m")])
        o = self.compress("c", "*,role=weight=bits:8")
        self.assertEqual({n.split("/")[0] for n in self.losses(o)}, {"master.f32.safetensors", "model.bf16.safetensors"})

    def test_blanks_behind_commas(self):
        """A field behind a blank is a field, and no part of the pattern."""
        self.file_of(("exp_avg", M))
        want = self.losses(self.compress("a.safetensors", "*,role=m,min=1K=bits:8"))
        self.assertEqual(len(want), 1)
        self.write("p", b"*, role=m,  min=1K=bits:8\n")
        for args in (("--quant", "*, role=m, min=1K=bits:8"), ("--policy", "p")):
            self.lmc("a.safetensors", "-f", "-o", "x.lmc", *args, says="")
            self.assertEqual(self.losses(self.listing("x.lmc")), want)

    def test_longest_words_of_rules(self):
        """Words at the sizes of the arrays in formats/policy.c."""
        self.file_of(("exp_avg", M))
        bound = "0." + "0" * 96 + "1"  # of 99 characters
        self.lmc("a.safetensors", "-f", "-o", "x.lmc", "--quant", "*=rel:" + bound, says="no tensor was quanti")
        self.refuses("a.safetensors", "-f", "-o", "x.lmc", "--quant", "*=rel:" + bound[:-1] + "01", code=2, says="a bound is")
        for size in (31, 32):  # no dtype has this length
            self.refuses("a.safetensors", "-f", "-o", "x.lmc", "--quant", "*,dtype=%s=bits:8" % ("F" * size), code=2, says="dtype= needs")

    def test_bad_rules(self):
        self.file_of(("exp_avg", M))
        for rule, says in (("*", "a rule is a pattern"), ("*=bits:9", "a number from 4 to 8"), ("*=bits:3", "a number from 4 to 8"), ("*=bits:", "a number"),
                           ("*=bits:88", "from 4 to 8"), *(("*=kmeans:" + bits, "a number of bits from 1 to 8") for bits in ("", "0", "9", "x", "16", " 4", "-1", "4.0")), ("*=kmeans", "kmeans:4"),
                           ("*=update:1", "above 0 and below 1"), ("*=update:0", "above 0"), ("*=rel:nan", "above 0"),
                           ("*=nmse:-1e-3", "above 0"), ("*=update:0x1p-3", "above 0"), ("*=update:0.1x", "above 0"), ("*=update: 0.1", "above 0"),
                           ("*=loss", "lossless"), ("*=", "lossless"), ("=bits:8", "begins with a pattern"), ("*,role=v", "lossless"), ("*=rel:" + "0" * 200 + ".1", "a bound is"),
                           ("*,role=w=bits:8", "role= needs"), ("*,dtype=F99=bits:8", "dtype= needs"), ("*,min=1T=bits:8", "min= and max="),
                           ("*,max=99999999999G=bits:8", "min= and max="), ("*,base=no=bits:8", "there is no base="), ("*,rol=any=lossless", "the fields are"), ("*,type=F32,role=m=bits:8", "the fields are"),
                           ("*, rol=any=lossless", "the fields are"), ("*,min=4097,max=4K=bits:8", "min= is more than max="), ("", "a rule is a pattern")):
            self.refuses("a.safetensors", "-o", "x.lmc", "--quant", rule, code=2, says=says)
            self.write("p", b"# a policy\n\n" + rule.encode() + b"x" * (not rule) + b"\n")
            self.refuses("a.safetensors", "-o", "x.lmc", "--policy", "p", code=2, says="p:3: ")
        for line in (b"role=v", b"role=any match=*", b"role=v glob=x", b"m=a v=a", b"m=a", b"default", b"d level=max", b"default level=9", b"default block=8K", b"default block=48K",
                     b"default block=2M"):
            self.write("p", line)
            self.refuses("a.safetensors", "-o", "x.lmc", "--policy", "p", code=2, says="p:1: ")
        self.write("p", b"*=bits:8\n\0")
        self.refuses("a.safetensors", "-o", "x.lmc", "--policy", "p", code=2, says="is not a policy")
        self.refuses("a.safetensors", "-o", "x.lmc", "--policy", "nowhere", code=1, says="nowhere: cannot open it")
        self.refuses("a.safetensors", "-o", "x.lmc", "--quant", code=2)
        for verb in (["-d"], ["-t"], ["-l"]):
            self.refuses(*verb, "x.lmc", "--quant", "*=bits:8", code=2, says="--quant is for compressing")
        for verb in ("fold", "rebase", "verify", "diff", "cat", "apply"):
            self.refuses(verb, "x.lmc", "y", "--quant", "*=bits:8", code=2, says="--quant is for compressing")

    def test_patterns(self):
        """patterns.txt, line by line; python/tests/test_patterns.py does the same."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "patterns.txt"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
        self.assertGreater(len(rows), 75)
        names = sorted({name for _, name, _ in rows})
        self.write("m.safetensors", safetensors([(name, "F32", [1], b"1234") for name in names]))
        found = {}
        for pattern in {pattern for pattern, *_ in rows}:
            p = subprocess.run([LMC, "-q", "-f", "m.safetensors", "--quant", pattern + ",role=any=lossless"], cwd=self.dir, capture_output=True)
            if p.returncode == 2:
                self.assertIn(("lmc: --quant: '%s,role=any=lossless': " % pattern).encode(), p.stderr)
                continue
            self.assertEqual((p.returncode, p.stderr), (0, b""), pattern)
            found[pattern] = {t["name"] for t in self.listing("m.safetensors.lmc").get("policy", {"tensors": []})["tensors"]}
        for pattern, name, says in rows:
            self.assertEqual("refused" if pattern not in found else "yes" if name in found[pattern] else "no", says, (pattern, name))

    def test_what_is_lossless_stays_exact(self):
        """Patterns of other languages had one meaning here and another in Python: now they are refused."""
        m = moments(rows=400, columns=300)[0]
        self.file_of(("layer.exp_avg", "F32", [400, 300], m), name="m.safetensors")
        for pattern in ("[!e]*", "layer.*", "*"):
            o = self.compress("m.safetensors", "*=rel:0.01", pattern + "=lossless")
            self.assertEqual((self.losses(o), self.restore()), ({}, {"layer.exp_avg": m}))
        for pattern, says in (("[^e]*", "begins with '[!'"), ("[[:lower:]]*", "write '[a-z]'"), ("layer\\.*", "stands for a '*'"), ("*.{a,b}", "a pattern for each")):
            self.refuses("m.safetensors", "-o", "y.lmc", "--quant", "*=rel:0.01", "--quant", pattern + "=lossless", code=2, says=says)
            self.write("p", ("role=v match=" + pattern).encode())
            self.refuses("m.safetensors", "-o", "y.lmc", "--policy", "p", code=2, says="p:1: ")

    def test_patterns_of_files_and_tensors(self):
        """One pattern language for all: a text that is not a pattern can still be a name."""
        names = ("a.0", "a.1", "b[0]", "b.c")
        for path in ("d/x[1]", "d/y/1", "d/y/2"):
            self.write(path, safetensors([(n, "F32", [1], b"1234") for n in names]))
        self.lmc("d")
        for pattern, wanted in (("y/[!1]", ["y", "y/2"]), ("x[[]*", ["x[1]"]), ("x[1]", ["x[1]"]), ("*", ["x[1]", "y", "y/1", "y/2"])):
            self.lmc("-d", "-q", "-o", "r", "d.lmc", pattern)
            self.assertEqual(self.tree("r"), wanted, pattern)
            shutil.rmtree(self.path("r"))
        self.refuses("-d", "-o", "r", "d.lmc", "[^x]*", code=1, says="has no file '[^x]*', which is not a pattern: '[^' is not known")
        self.refuses("-d", "-o", "r", "d.lmc", "q*", code=1, says="has no file 'q*'; 'lmc -l' lists them")
        for pattern, wanted in (("a.[1-9]", ["a.1"]), ("b[[]0]", ["b[0]"]), ("b[0]", ["b[0]"]), ("?.?", ["a.0", "a.1", "b.c"])):
            out = self.lmc("cat", "--safetensors", "--file", "y/1", "d.lmc", pattern).stdout
            self.assertEqual(sorted(tensors_of(out)), wanted, pattern)
        self.refuses("cat", "--safetensors", "d.lmc", "a\\.*", code=1, says="has no tensor 'a\\.*', which is not a pattern: '\\' is not known")

    def test_policy_file(self):
        self.checkpoint(layers=1)
        self.write("p", b"# for a training job\n*=bits:8   # all moments\n\n\t*_sq*=lossless\r\ndefault level=max\ndefault block=16K\n")
        o = self.compress("c", args=["--policy", "p"])
        self.assertEqual(set(self.losses(o)), {"exp_avg.f32.safetensors/layers.0.weight"})
        self.assertEqual(o["policy"]["rules"], ["*=bits:8", "*_sq*=lossless"])
        # without rows and columns: a block of one tensor may have them, a larger one, of several tensors, not
        self.compress("c", args=["--policy", "p", "--no-matrix"])
        self.lmc("c", "-o", "max.lmc", "--max", "--no-matrix", "--quant", "*=bits:8", "--quant", "*_sq*=lossless", "-q")
        self.assertLess(os.path.getsize(self.path("max.lmc")), os.path.getsize(self.path("x.lmc")))  # with larger blocks
        # rules are in the order of the command line
        o = self.compress("c", args=["--policy", "p", "--quant", "*_sq*=bits:4"])
        self.assertEqual(len(self.losses(o)), 2)
        o = self.compress("c", args=["--quant", "*_sq*=bits:4", "--policy", "p"])
        self.assertEqual(len(self.losses(o)), 1)
        # a policy without rules is the same as none
        self.write("p", b"# nothing\n")
        self.compress("c", args=["--policy", "p"])
        self.lmc("c", "-o", "y.lmc")
        self.assertEqual(self.read("x.lmc"), self.read("y.lmc"))

    def test_nothing_matches(self):
        self.file_of(("w", M))
        self.lmc("a.safetensors", "--quant", "*=bits:8", says="no tensor was quantised")
        self.lmc("-f", "-q", "a.safetensors", "--quant", "*=bits:8", says="no tensor was quantised")
        packed = self.read("a.safetensors.lmc")
        self.lmc("-f", "a.safetensors")
        self.assertEqual(packed, self.read("a.safetensors.lmc"))
        self.lmc("-f", "a.safetensors", "--quant", "*=lossless")  # as requested


class Command(Quant):
    def test_listing(self):
        self.checkpoint()
        self.lmc("c", "-o", "x.lmc", "--quant", "*=update:0.01", "-q")
        text = self.lmc("-l", "x.lmc").stdout.decode()
        self.assertIn(", LOSSY: 4 tensors quantised\n", text.splitlines()[0] + "\n")
        lossy = [line for line in text.splitlines()[1:] if "LOSSY" in line]
        self.assertEqual(len(lossy), 4)
        for line in lossy:
            self.assertRegex(line, r"layers\.\d\.weight  LOSSY update 0\.00[4-7]\d*$")
        more = self.lmc("-l", "-v", "x.lmc").stdout.decode()
        self.assertIn("role m, rule *=update:0.01, choice grid, reason a grid", more)
        self.assertIn("role v, rule *=update:0.01, choice lossless, reason fewer than 16,384 elements", more)
        o = self.listing("x.lmc")
        self.assertEqual(o["lossy_tensors"], 4)
        self.assertEqual(json.loads(o["metadata"]["lmc.policy"]), o["policy"])
        self.assertEqual(set(o["policy"]), {"rules", "tensors"})
        for c in o["policy"]["tensors"]:
            self.assertLessEqual({"path", "name", "role", "rule", "choice", "reason"}, set(c))
            self.assertEqual(c["choice"] != "lossless", {"measure", "error", "bits", "codes"} <= set(c))
        for f in o["files"]:
            for t in f["tensors"]:
                if "loss" in t:
                    self.assertLess(abs(self.choices(o)[f["path"] + "/" + t["name"]]["error"] / t["loss"]["error"] - 1), 0.01)
        self.lmc("c", "-o", "y.lmc")
        self.assertNotIn(b"LOSSY", self.lmc("-l", "-v", "y.lmc").stdout)
        self.assertEqual(self.listing("y.lmc")["lossy_tensors"], 0)
        self.assertNotIn("policy", self.listing("y.lmc"))

    def test_verbose(self):
        self.checkpoint(layers=1)
        text = self.lmc("-v", "c", "-o", "x.lmc", "--quant", "*=bits:8").stderr.decode()
        self.assertRegex(text, r"lmc: c: 2 tensors quantised, 2 exact: 2 \(fewer than 16,384 elements\)")
        self.assertNotIn("layers.0.weight", text)
        text = self.lmc("-v", "-v", "-f", "c", "-o", "x.lmc", "--quant", "*=bits:8").stderr.decode()
        self.assertRegex(text, r"lmc: exp_avg\.f32\.safetensors: layers\.0\.weight \(m\): update 0\.00\d+, \d\.\d\d bits: a grid, \d+ points in use, scaled by the second")
        self.assertIn("lmc: exp_avg_sq.f32.safetensors: norm.weight (v): exact: fewer than 16,384 elements", text)
        self.assertNotIn("master", text)
        self.assertIn("master.f32.safetensors: layers.0.weight (weight): exact: weights stay exact\n",
                      self.lmc("-v", "-v", "-f", "c", "-o", "x.lmc", "--quant", "*=auto:0.01").stderr.decode())

    def test_restoring_says_so(self):
        self.checkpoint(layers=1)
        self.compress("c", "*=bits:8")
        self.lmc("-d", "x.lmc", says="x.lmc: holds 2 quantised tensors, which differ from the compressed ones")
        self.lmc("-d", "-q", "-f", "x.lmc")
        self.lmc("-t", "x.lmc")
        with open(self.path("x.lmc"), "rb") as f:
            self.lmc("-d", "-o", "y", stdin=f, says="(standard input): holds 2 quantised tensors")

    def test_restore_is_what_cat_gives(self):
        names = self.checkpoint()
        o = self.compress("c", "*=bits:8")
        new = self.restore()
        for path, tensors in new.items():
            for name in names:
                self.assertEqual(self.lmc("cat", "--file", path, "x.lmc", name).stdout, tensors[name])
                rows = self.lmc("cat", "--file", path, "x.lmc", name + "[3:7,5:100]").stdout
                width = 2 if path.startswith("model") else 4
                self.assertEqual(rows, b"".join(tensors[name][(r * COLUMNS + 5) * width:(r * COLUMNS + 100) * width] for r in range(3, 7)))

    def test_python_decoder(self):
        self.checkpoint(layers=1)
        for rule in ("*=bits:8", "*=update:0.01", "*,role=any=rel:0.01"):
            self.compress("c", rule)
            self.lmc("-d", "-q", "-f", "x.lmc", "-o", "r")
            shutil.rmtree(self.path("p"), ignore_errors=True)
            self.assertEqual(os.system("python3 '%s' '%s' '%s'" % (DECODER, self.path("x.lmc"), self.path("p"))), 0)
            self.assertEqual(self.snapshot("r"), self.snapshot("p"))

    def test_threads_and_repetition(self):
        self.checkpoint()
        for rule in ("*=bits:8", "*=auto:0.01"):
            self.compress("c", rule, args=["-T1"])
            packed = self.read("x.lmc")
            for n in ("-T1", "-T4"):
                self.compress("c", rule, args=[n])
                self.assertEqual(self.read("x.lmc"), packed)

    def test_rm_is_refused(self):
        self.checkpoint(layers=1)
        self.write("p", b"*=bits:8\n")
        for args in (["--quant", "*=bits:8"], ["--policy", "p"]):
            self.refuses("--rm", "c", *args, code=2, says="--rm would remove the only exact copy")
            self.refuses("series", "s", "add", "--rm", "c", *args, code=2, says="--rm would remove")
            self.refuses("series", "s", "watch", "--once", "--rm", "c", *args, code=2, says="--rm would remove")
        self.lmc("--rm", "c", "--quant", "*=lossless")
        self.assertEqual(self.tree(), ["c.lmc", "p"])

    def test_pipes(self):
        name = self.file_of(("exp_avg", M), ("exp_avg_sq", V))
        data = self.read(name)
        self.refuses("-o", "x.lmc", "--quant", "*=bits:8", stdin=data, code=1, says="save it to a file first")
        with open(self.path(name), "rb") as f:
            self.refuses("-o", "x.lmc", "--quant", "*=bits:8", stdin=f, code=1, says="save it to a file first")
        os.mkfifo(self.path("fifo"))
        self.lmc("-o", "x.lmc", "--quant", "*=lossless", stdin=data)
        # in a pipe, no first moment needs its second one
        self.checkpoint(layers=1)
        for args in (["-c"], ["--no-twins", "-o", "-"]):
            packed = self.lmc("c", *args, "--quant", "*=bits:8").stdout
            self.write("y.lmc", packed)
            c = self.choices(self.listing("y.lmc"))
            self.assertIn("the output is a pipe, or --no-twins", c["exp_avg.f32.safetensors/layers.0.weight"]["reason"])
        name = self.file_of(("exp_avg", M), name="d/exp_avg.safetensors")
        self.file_of(("exp_avg", M), name="exp_avg.safetensors")
        packed = self.lmc("-c", "exp_avg.safetensors", "--quant", "*=bits:8").stdout
        self.lmc("-dc", stdin=packed, says="holds 1 quantised tensor,")
        # the same for a file in which nothing needs earlier bytes
        name = self.file_of(("exp_avg", M), ("exp_avg_sq", V))
        self.compress(name, "*=bits:8")
        packed = self.read("x.lmc")
        self.lmc("-dc", stdin=packed, says="holds 2 quantised tensors,")

    def test_the_rest_is_exact(self):
        """Bytes outside of tensors, and tensors that are not quantised, are restored exactly."""
        data = safetensors([("exp_avg_sq", "F32", SHAPE, V), ("w", "F32", SHAPE, M)], {"note": "x" * 1000}, tail=b"the end")
        self.write("a.safetensors", data)
        self.compress("a.safetensors", "*=bits:6")
        self.lmc("-d", "-q", "x.lmc", "-o", "r")
        new = self.read("r")
        at = data.index(V[:64])
        self.assertEqual(len(new), len(data))
        self.assertEqual(new[:at], data[:at])
        self.assertNotEqual(new[at:at + len(V)], V)
        self.assertEqual(new[at + len(V):], data[at + len(V):])

    def test_recursive(self):
        self.file_of(("exp_avg_sq", V), name="d/a.safetensors")
        self.file_of(("exp_avg", M), name="d/e/b.safetensors")
        self.lmc("-r", "-q", "d", "--quant", "*=bits:8")
        for name in ("d/a.safetensors.lmc", "d/e/b.safetensors.lmc"):
            self.assertEqual(self.listing(name)["lossy_tensors"], 1)


class Deltas(Quant):
    def generations(self, o):
        return {n: loss["generation"] for n, loss in self.losses(o).items()}

    def step(self, k):
        """Checkpoint number k: weights change a little, moments much."""
        master = words_of(moments(50)[0])
        for i in range(k, len(master), 5):
            master[i] += k
        m, v = moments(60 + k)
        for path, data in (("exp_avg", m), ("exp_avg_sq", v), ("master", master.tobytes())):
            self.file_of(("w", data), name="s%d/%s.safetensors" % (k, path))

    def test_against_a_base(self):
        """Weights are coded as a delta, quantised tensors are not."""
        for k in range(2):
            self.step(k)
        o = self.compress("s0", "*=bits:8", out="s0.lmc")
        whole = self.compress("s1", "*=bits:8", out="whole.lmc")
        for base in ("s0.lmc", "s0"):
            o = self.compress("s1", "*=bits:8", args=["--base", base])
            size = lambda o, path: next(f["packed_size"] for f in o["files"] if f["path"] == path + ".safetensors")
            self.assertLess(size(o, "master"), 0.4 * size(whole, "master"))
            self.assertEqual(size(o, "exp_avg"), size(whole, "exp_avg"))
            self.assertEqual(self.restore("x.lmc", "--base", base), self.restore("whole.lmc"))
        # a base with the same content: not more is taken from it
        o = self.compress("s1", "*=bits:8", args=["--base", "s1"])
        self.assertEqual(self.losses(o), self.losses(whole))
        self.assertEqual(o["fingerprint"], whole["fingerprint"])

    def test_restored_and_compressed_again(self):
        """The base tells what was quantised before: that is neither quantised again nor reported as exact. What has changed since is quantised."""
        self.step(0)
        first = self.compress("s0", "*=bits:8", out="s0.lmc")
        self.lmc("-d", "-q", "s0.lmc", "-o", "again")
        for rules in ([], ["*=bits:8"]):
            second = self.compress("again", *rules, args=["--base", "s0.lmc"])
            self.assertEqual(second["fingerprint"], first["fingerprint"])
            self.assertEqual(self.losses(second), self.losses(first))
            self.assertEqual(self.restore("x.lmc", "--base", "s0.lmc"), self.restore("s0.lmc"))
        data = bytearray(self.read("again/exp_avg_sq.safetensors"))
        data[-1] ^= 1
        self.write("again/exp_avg_sq.safetensors", bytes(data))
        second = self.compress("again", args=["--base", "s0.lmc"])
        self.assertEqual([k for k in self.losses(first) if k not in self.losses(second)], [k for k in self.losses(first) if "exp_avg_sq" in str(k)])

    def test_fold_and_rebase(self):
        """The same elements, size and generation; also to a pipe."""
        for k in range(3):
            self.step(k)
            self.compress("s%d" % k, "*=bits:8", out="s%d.lmc" % k, args=[a for i in range(k - 1, -1, -1) for a in ("--base", "s%d.lmc" % i)])
        want = self.restore("s2.lmc", "--base", "s1.lmc", "--base", "s0.lmc")
        o = self.listing("s2.lmc")
        self.lmc("fold", "--base", "s0.lmc", "s1.lmc", "s2.lmc", "-o", "folded.lmc")
        self.lmc("rebase", "--base", "s0.lmc", "--base", "s1.lmc", "--onto", "none", "s2.lmc", "-o", "whole.lmc")
        self.write("piped.lmc", self.lmc("rebase", "--base", "s0.lmc", "--base", "s1.lmc", "--onto", "none", "s2.lmc", "-c").stdout)
        self.lmc("rebase", "--onto", "s0.lmc", "whole.lmc", "-o", "again.lmc")
        for name, base in (("folded.lmc", ["--base", "s0.lmc"]), ("whole.lmc", []), ("again.lmc", ["--base", "s0.lmc"]), ("piped.lmc", [])):
            new = self.listing(name)
            self.assertEqual(new["fingerprint"], o["fingerprint"])
            self.assertEqual(self.losses(new), self.losses(o))
            self.assertEqual(set(self.generations(new).values()), {1})
            self.assertEqual(new["policy"], o["policy"])
            self.assertEqual(self.restore(name, *base), want)
            for a, b in zip(new["files"], o["files"]):
                self.assertEqual(a["path"], b["path"])
                if "exp_avg" in a["path"]:
                    self.assertLess(abs(a["packed_size"] - b["packed_size"]), 0.01 * b["packed_size"])
        self.lmc("verify", "s0.lmc", "s1.lmc", "s2.lmc", "folded.lmc", "whole.lmc")

    def test_apply(self):
        for k in range(2):
            self.step(k)
            self.compress("s%d" % k, "*=bits:8", out="s%d.lmc" % k, args=["--base", "s0.lmc"] * k)
        self.lmc("-d", "-q", "s0.lmc", "-o", "live")
        self.lmc("-d", "-q", "s1.lmc", "--base", "s0.lmc", "-o", "want")
        self.lmc("apply", "s1.lmc", "live")
        self.assertEqual(self.snapshot("live"), self.snapshot("want"))

    def test_twins(self):
        """Quantised tensors are no twins and have none; other twins are found as usual."""
        self.file_of(("exp_avg_sq", V), name="d/a.safetensors")
        self.file_of(("copy", V), ("small", "BF16", SHAPE, rounded(V)), ("same", V), name="d/b.safetensors")
        o = self.compress("d", "*=bits:8")
        new = self.restore()
        self.assertEqual((new["b.safetensors"]["copy"], new["b.safetensors"]["same"], new["b.safetensors"]["small"]), (V, V, rounded(V)))
        self.assertNotEqual(new["a.safetensors"]["exp_avg_sq"], V)
        sizes = {t["name"]: t["packed_size"] for f in o["files"] for t in f["tensors"]}
        self.assertLess(max(sizes["same"], sizes["small"]), 200)

    def test_series(self):
        for k in range(3):
            self.step(k)
        self.write("p", b"*=auto:0.02\n")
        self.lmc("series", "s", "add", "--policy", "p", "--verify", "s0")
        self.lmc("series", "s", "add", "--quant", "*=bits:8", "s1", "-q")
        self.write("from/s2/x", b"")
        shutil.rmtree(self.path("from/s2"))
        shutil.copytree(self.path("s2"), self.path("from/s2"))
        self.lmc("series", "s", "watch", "--once", "--settle", "0", "--policy", "p", "from", "-q")
        for k in range(3):
            self.assertEqual(self.listing("s/s%d.lmc" % k)["lossy_tensors"], 2)
        fingerprint = self.listing("s/s2.lmc")["fingerprint"]
        losses = self.losses(self.listing("s/s2.lmc"))
        self.lmc("series", "s", "prune", "s0", "s1", says="")
        self.lmc("series", "s", "gc", says="")
        self.lmc("series", "s", "verify")
        self.assertEqual(self.listing("s/s2.lmc")["fingerprint"], fingerprint)
        self.assertEqual(self.losses(self.listing("s/s2.lmc")), losses)
        self.lmc("series", "s", "list", "--quant", "*=bits:8", code=2, says="does not take --quant")
        # the rest of a source is removed only if its snapshot has all of it
        self.refuses("series", "s", "add", "--rm", "s2", code=1, says="exp_avg_sq.safetensors: differs from its snapshot; nothing was removed")
        self.lmc("series", "s", "restore", "s2", "-q", "-o", "r")
        self.assertEqual(tensors_of(self.read("r/master.safetensors")), tensors_of(self.read("s2/master.safetensors")))

    def test_what_is_left_after_a_kill(self):
        """With --rm all bytes are compared."""
        self.step(0)
        self.step(1)
        self.lmc("series", "s", "add", "-q", "--quant", "*,role=v=bits:8", "s0")
        self.refuses("series", "s", "add", "--rm", "s0", code=1, says="exp_avg_sq.safetensors: differs from its snapshot; nothing was removed")
        self.lmc("series", "s", "add", "s1")
        self.lmc("series", "s", "add", "--rm", "s1")
        self.assertFalse(os.path.exists(self.path("s1")))


if __name__ == "__main__":
    sys.exit(main())
