#!/usr/bin/env python3
"""Tests of what lmc finds in the files of PyTorch: torch.save archives, and the .distcp items of torch.distributed.checkpoint.

Usage: test_checkpoints.py [--long] [-v] [NAME...]      as case.py says

The samples in checkpoints.zip are made by PyTorch 2.13 and transformers 5.23: make_checkpoints.py --samples. With --long, full checkpoints are made
by the Python that LMC_TORCH names (default: python3), and 10,000 damaged files are tried instead of some.

Docstrings in the past tense tell the fault that a test is for. SPDX-License-Identifier: MIT
"""
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib

from case import LONG, ROOT, Case, f32, main, rounded, safetensors
from torch_files import archive, cases, metadata, pickled, torch_file

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = zipfile.ZipFile(os.path.join(HERE, "checkpoints.zip"))
ODD = "odd.pt"


def sample(name):
    return SAMPLES.read(name)


class Checkpoint(Case):
    def take(self, name, to=None):
        """Writes a sample file, or all below a directory; returns its name."""
        names = [n for n in SAMPLES.namelist() if n == name or n.startswith(name + "/")]
        for n in names:
            self.write((to or name) + n[len(name):], sample(n))
        self.assertTrue(names)
        return to or name

    def tensors(self, name, views=False):
        """{(path, tensor): (dtype, shape)} of a snapshot; views: also PyTorch's views."""
        return {(f["path"], t["name"]): (t["dtype"], t["shape"]) for f in self.listing(name)["files"] for t in f["tensors"] + (f["views"] if views else [])
                if not (t["name"].startswith("@") and t["dtype"] == "BYTES")}

    def cat(self, name, tensor, path=""):
        return self.lmc("cat", *(["--file", path] if path else []), name, tensor).stdout

    def size(self, *args, name="size.lmc"):
        self.lmc("-q", "-f", "-o", name, *args)
        return os.path.getsize(self.path(name))

    def names(self, data, name="x.pt"):
        self.write(name, data)
        self.lmc("-f", name)
        self.restores(name + ".lmc", data)
        return {k[1]: v for k, v in self.tensors(name + ".lmc", views=True).items()}


class Found(Checkpoint):
    """Every tensor is found, with the dtype, the shape and the bytes that PyTorch sees."""
    def check(self, way, steps=(0, 1)):
        for step in steps:
            name = self.take("%s/step-%d" % (way, step), "step")
            want = json.loads(sample("%s/step-%d.json" % (way, step)))
            self.lmc("-f", name)
            self.restores("step.lmc", self.snapshot("step"))
            found = self.tensors("step.lmc")
            for path, tensors in want.items():
                for tensor, (dtype, shape, crc) in tensors.items():
                    self.assertEqual(found.pop((path, tensor)), (dtype, shape), tensor)
                    self.assertEqual(zlib.crc32(self.cat("step.lmc", tensor, path)), crc, tensor)
            self.assertEqual({k for k, v in found.items() if v[0] == "BYTES"}, set())
            left = {k[1] for k in found} - {"rng", "rng_state.0.torch_rng_state"}
            self.assertEqual(left, set(), "more than PyTorch has")
            shutil.rmtree(self.path("step"))

    def test_torch_save(self):
        self.check("torch")

    def test_trainer(self):
        self.check("trainer")

    def test_zero(self):
        self.check("zero")

    def test_megatron(self):
        self.check("megatron", (0,))

    def check_items(self, way, step):
        """Items of a .distcp: the parts of each tensor, put together."""
        name = self.take("%s/step-%d" % (way, step), "step")
        want = json.loads(sample("%s/step-%d.json" % (way, step)))[""]
        self.lmc("-f", name)
        self.restores("step.lmc", self.snapshot("step"))
        parts = {}
        for path, tensor in self.tensors("step.lmc"):
            whole, _, place = tensor.partition("[")
            begin = int(place.split(":")[0]) if place else 0
            parts.setdefault(whole, []).append((begin, path, tensor))
        for tensor, (dtype, shape, crc) in want.items():
            found = [(self.tensors("step.lmc")[path, name], self.cat("step.lmc", name, path)) for _, path, name in sorted(parts.pop(tensor))]
            self.assertEqual({f[0][0] for f in found}, {dtype})
            self.assertEqual(sum(f[0][1][0] for f in found) if shape else 1, shape[0] if shape else 1)
            self.assertEqual(zlib.crc32(b"".join(f[1] for f in found)), crc, tensor)
        return parts

    def test_distributed(self):
        self.assertEqual(self.check_items("dcp-1", 0), {"model.head.weight": [(0, "__0_0.distcp", "model.head.weight")]})  # tied, and stored twice
        self.lmc("-q", "-f", "step")
        shutil.rmtree(self.path("step"))
        self.check_items("dcp-2", 1)

    def test_items_without_metadata(self):
        self.take("dcp-2/step-0/__1_0.distcp", "__1_0.distcp")
        found = self.names(self.read("__1_0.distcp"), "__1_0.distcp")
        with_names = self.take("dcp-2/step-0", "step")
        self.lmc(with_names)
        named = [v for k, v in self.tensors("step.lmc").items() if k[0] == "__1_0.distcp"]
        self.assertEqual(sorted(map(str, found.values())), sorted(map(str, named)))
        self.assertIn("item-1", found)
        self.assertIn("no .metadata", self.lmc("-v", "-f", "__1_0.distcp").stderr.decode())

    def test_metadata_of_others(self):
        """.metadata is checked: that of another checkpoint, or a broken one, gives no wrong result."""
        for what in (sample("dcp-1/step-0/.metadata"), sample("dcp-2/step-0/.metadata")[:-40], b"", b"\x80\x04N."):
            self.write("step/.metadata", what)
            self.write("step/__0_0.distcp", sample("dcp-2/step-0/__0_0.distcp"))
            self.lmc("-f", "step")
            self.restores("step.lmc", self.snapshot("step"))
        self.assertIn("is not understood", self.lmc("-f", "-v", "step").stderr.decode())

    def test_odd(self):
        """Every dtype, views, shared storages, orders of dimensions, keys of all kinds."""
        found = self.names(sample(ODD))
        for name, (dtype, shape, crc) in json.loads(sample("odd.json")).items():
            self.assertEqual(found[name], (dtype, shape))
            self.assertEqual(zlib.crc32(self.cat("x.pt.lmc", name)), crc)
        for name, dtype, shape in (("scalar", "F32", []), ("empty", "F32", [0, 3]), ("transposed", "F32", [5, 3]), ("last", "F32", [2, 3, 4, 5]),
                                   ("parameter", "F32", [2]), ("tied", "F32", [20, 30]), ("rows@storage", "F32", [1200]), ("columns@storage", "F32", [100]),
                                   ("parts.0", "F32", [100]), ("parts.1", "F32", [40, 10]), ("whole.qkv", "F32", [12, 4]), ("list.1.deep.0", "F32", [3]),
                                   ("7.exp_avg", "F32", [4]), ("a.b.c", "F32", [6]), ("\u00e4 b", "F32", [7]), ("", "F32", [5])):
            self.assertEqual(found[name], (dtype, shape), name)
        self.assertEqual([found[name][1] for name in ("tied again", "whole.k", "rows", "columns")], [[20, 30], [4, 4], [2, 30], [10, 2]])
        self.assertIn("share the bytes of others", self.lmc("-v", "-f", "x.pt").stderr.decode())

    def test_other_files(self):
        self.assertEqual(self.names(sample("alone.pt")), {"": ("F32", [3, 4])})
        self.assertEqual(self.names(sample("protocol4.pt")), {"w": ("F32", [5])})
        self.assertEqual(self.names(sample("legacy.pt")), {})
        self.assertIn("before 1.6", self.lmc("-v", "-f", "x.pt").stderr.decode())
        self.assertEqual(self.names(sample("quantised.pt"))["x"], ("F32", [9]))
        self.assertEqual({v[0] for k, v in self.names(sample("quantised.pt")).items() if k != "x"}, {"BYTES"})
        self.assertIn("quantised or of unknown types", self.lmc("-v", "-f", "x.pt").stderr.decode())
        self.assertIn(("F32", [3, 4]), self.names(sample("script.pt")).values())
        for name in ("x.bin", "x.ckpt", "x.pth", "no-suffix"):
            self.assertEqual(self.names(sample("alone.pt"), name), {"": ("F32", [3, 4])})
        self.assertEqual(self.names(b"PK\3\4"), {})
        self.assertEqual(self.names(archive({"data.txt": b"not of PyTorch"})), {})
        self.write("p.pt", sample(ODD))  # from a pipe: as bytes
        self.write("p.lmc", self.lmc("-c", stdin=sample(ODD)).stdout)
        self.restores("p.lmc", sample(ODD))
        self.assertEqual(self.listing("p.lmc")["files"][0]["tensors"], [])
        with open(self.path("p.pt"), "rb") as f:  # a redirected file is no pipe
            self.write("q.lmc", self.lmc("-c", stdin=f).stdout)
        self.assertGreater(len(self.listing("q.lmc")["files"][0]["tensors"]), 20)
        self.lmc("--opaque", "-f", "p.pt")
        self.assertEqual(self.tensors("p.pt.lmc"), {})


F = ("torch.FloatStorage", "0", 6, 0, (2, 3), (3, 1))


class Odd(Checkpoint):
    """Unknown structures stay bytes, and -v says so; there is never an error, nor a wrong result."""
    def notes(self, data, says, found):
        got = self.names(data)
        self.assertEqual(got, found)
        self.assertIn(says, self.lmc("-v", "-f", "x.pt").stderr.decode())

    def test_good(self):
        data = f32(6)[:24]
        self.assertEqual(self.names(torch_file({"w": F}, {"0": data})), {"w": ("F32", [2, 3])})
        self.assertEqual(self.cat("x.pt.lmc", "w"), data)
        # views side by side, and rows of a larger tensor
        half = {"a": ("torch.FloatStorage", "0", 6, 0, (3,), (1,)), "b": ("torch.FloatStorage", "0", 6, 3, (3,), (1,))}
        self.assertEqual(self.names(torch_file(half, {"0": data})), {"a": ("F32", [3]), "b": ("F32", [3])})
        self.assertEqual(self.cat("x.pt.lmc", "b"), data[12:])
        over = {"a": ("torch.FloatStorage", "0", 6, 0, (4,), (1,)), "b": ("torch.FloatStorage", "0", 6, 2, (4,), (1,))}
        self.assertEqual(self.names(torch_file(over, {"0": data})), {"a@storage": ("F32", [6]), "a": ("F32", [4]), "b": ("F32", [4])})
        self.assertEqual(self.cat("x.pt.lmc", "b"), data[8:])

    def test_pickles(self):
        record = {"0": f32(6)[:24]}
        raw = {"data/0": ("BYTES", [24])}
        for tensor in (("torch.FloatStorage", "0", 7, 0, (2, 3), (3, 1)),  # more than is there
                       ("torch.FloatStorage", "0", 6, 1, (2, 3), (3, 1)),  # reaches beyond
                       ("torch.FloatStorage", "0", 6, 0, (1 << 62, 1 << 62), (3, 1)), ("torch.FloatStorage", "0", 6, 0, (2, 3), (1 << 62, 1)),
                       ("torch.FloatStorage", "0", 6, -1, (2, 3), (3, 1)), ("torch.FloatStorage", "0", 6, 0, (2, 3), (3,)),
                       ("torch.FloatStorage", "0", 6, 0, (1,) * 33, (1,) * 33), ("torch.FloatStorage", "1", 6, 0, (2, 3), (3, 1))):
            self.notes(torch_file({"w": tensor}, record), "is not understood", raw)
        good = pickled({"w": F})
        for pickle in (b"", b".", good[:-1], good[:-5] + b".", good.replace(b"Q", b"P"), b"cos\nsystem\n(X\2\0\0\0idtRq\1" + good[2:], good.replace(b"tQ", b"tb"),
                       b"\x80\2" + b"(" * 100000 + b".", b"\x80\2" + b"]" * 5000 + b"a" * 4999 + b".", b"\x80\2r\xff\xff\xff\xff.", b"\x80\2j\0\0\0\0."):
            got = self.names(archive({"data.pkl": pickle, "data/0": record["0"]}))
            self.assertEqual(got, raw)
        for dtype in ("torch.QInt8Storage", "torch.NewStorage", "os.system"):
            self.assertEqual(self.names(torch_file({"w": (dtype, *F[1:])}, record)), {"w": ("BYTES", [24])})

    def test_zips(self):
        good, record = {"w": F}, {"0": f32(6)[:24]}
        self.notes(archive({"data.pkl": pickled(good), "byteorder": b"big", "data/0": record["0"]}), "big-endian", {"data/0": ("BYTES", [24])})
        self.assertEqual(self.names(torch_file(good, record, method=zipfile.ZIP_DEFLATED)), {})
        plain = torch_file(good, record)
        for data in (plain + b"x", b"x" + plain, plain[:-1], plain[:len(plain) // 2], plain[:-2] + b"\1\0x", plain.replace(b"PK\1\2", b"PK\1\3", 1),
                     plain.replace(b"a/data/0", b"a/data/1", 1), plain[:4] + plain):
            self.assertEqual(self.names(data), {})
        for data in (plain[:-1], plain[:len(plain) // 2], plain + b"x"):
            self.notes(data, "x.pt: is not read as a file of PyTorch: it has no directory at its end", {})
        self.write("z.zip", archive({"data.txt": b"other"}))
        self.assertNotIn("PyTorch", self.lmc("-v", "-f", "z.zip").stderr.decode())
        self.assertEqual(self.names(plain.replace(b"a/data/0", b"a/data/1")), {"data/1": ("BYTES", [24])})
        self.write("x/x.distcp", plain + plain)
        self.lmc("x")
        self.assertEqual({k[1] for k in self.tensors("x.lmc")}, {"item-1.w", "item-2.w"})

    def test_many_paths(self):
        """An object with 2^200 paths to it is visited once."""
        layers = b"\x80\2]q\0"
        for i in range(200):
            layers += b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
        pickle = layers + b"0" * 200 + b"."
        self.assertEqual(self.names(archive({"data.pkl": pickle, "data/0": bytes(24)})), {"data/0": ("BYTES", [24])})
        self.assertEqual(self.lmc("-v", "-f", "x.pt").stderr.decode().count("\n"), 1)  # the file is understood

    def test_names_that_do_not_fit(self):
        """A name has at most 4096 bytes. A key that would make it longer is left out with its dot; later keys may still be added."""
        tensor = pickled({"w": ("torch.FloatStorage", "0", 6, 0, (6,), (1,))})
        tensor = tensor[tensor.index(b"ctorch._utils"):tensor.rindex(b"R") + 1]
        def names(first, levels, key=b"k"):
            parts = b"".join(b"}X" + struct.pack("<I", len(k)) + k for k in [b"n" * first] + [key] * (levels - 1))
            return list(self.names(archive({"data.pkl": b"\x80\2" + parts + tensor + b"s" * levels + b".", "byteorder": b"little", "data/0": bytes(24)})))
        self.assertEqual(names(4096, 1), ["n" * 4096])
        self.assertEqual(names(4094, 2), ["n" * 4094 + ".k"])
        for first, levels in ((4095, 2), (4095, 190), (4096, 199)):
            self.assertEqual(names(first, levels), ["n" * first], (first, levels))
        self.assertEqual(names(4094, 190), ["n" * 4094 + ".k"])
        self.assertEqual(names(4000, 199, b""), ["n" * 4000 + "." * 96])
        self.assertEqual(names(4097, 190), ["k" + ".k" * 188])

    def damaged(self, n):
        chance = random.Random(5)
        names = [x for x in SAMPLES.namelist() if x.endswith((".pt", ".distcp", ".metadata")) and len(sample(x)) < 40000]
        samples = [(x, sample(x)) for x in names]
        for k in range(n):
            name, data = chance.choice(samples)
            data = bytearray(data)
            place = [i for i in range(len(data)) if data[i:i + 2] == b"PK"] or [0]
            for _ in range(chance.randrange(1, 6)):
                at = min(len(data) - 1, chance.choice((chance.randrange(len(data)), chance.choice(place) + chance.randrange(60), chance.randrange(1500))))
                how = chance.randrange(5)
                if how < 2:
                    data[at] = chance.randrange(256)
                elif how == 2:
                    data[at] ^= 1 << chance.randrange(8)
                elif how == 3:
                    size = chance.randrange(1, 200)
                    data[at:at + size] = chance.choice((b"", bytes(data[at:at + size]) * 2, bytes(min(size, len(data) - at)), b"\xff" * min(size, len(data) - at)))
                else:
                    del data[max(40, at):]
                if len(data) < 40:
                    break
            suffix = ".pt" if name.endswith(".pt") else ".distcp"
            place = "many/%d/" % (k // 50)
            if name.endswith(".metadata"):
                self.write("many/m%d/.metadata" % k, bytes(data))
                self.write("many/m%d/__0_0.distcp" % k, sample(name.replace(".metadata", "__0_0.distcp"))[:chance.choice((None, 20000))])
            else:
                self.write(place + "%d%s" % (k, suffix), bytes(data))

    def test_damaged(self):
        self.damaged(10000 if LONG else 300)
        self.lmc("-q", "many")
        self.restores("many.lmc", self.snapshot("many"))
        self.lmc("-q", "-o", "delta", "--base", "many.lmc", "many")
        self.restores("delta", self.snapshot("many"), "--base", "many")


class Limits(Checkpoint):
    """Each limit of the readers of PyTorch's files is reached, and passed by one: see limits.txt. Beyond a limit the data stays bytes."""
    DATA = f32(6)[:24]
    RAW = {"data/0": ("BYTES", [24])}
    GOOD = {"w": ("F32", [2, 3])}

    def tensor(self, *fields):
        """The opcodes of a tensor, without those around it."""
        made = pickled({"w": fields or F})
        return made[made.index(b"ctorch._utils"):made.rindex(b"R") + 1]

    def found(self, made, **more):
        """Names in a file with that object."""
        return self.names(archive({"data.pkl": b"\x80\2" + made + b".", "byteorder": b"little", "data/0": self.DATA}, **more))

    def listed(self, data):
        """Also names that lmc makes."""
        self.write("x.pt", data)
        self.lmc("-f", "x.pt")
        return {t["name"] for f in self.listing("x.pt.lmc")["files"] for t in f["tensors"] + f["views"]}

    def test_levels(self):
        for levels, found in ((200, {".".join("k" * 200): ("F32", [2, 3])}), (201, self.RAW)):
            self.assertEqual(self.found(b"}X\1\0\0\0k" * levels + self.tensor() + b"s" * levels), found)
        self.assertIn("nested too deep", self.lmc("-v", "-f", "x.pt").stderr.decode())

    def test_wrappers(self):
        """Within more than 16 wrappers, a tensor gets the name of an argument of a call."""
        for n, name in ((1, "w"), (16, "w"), (17, "w.0"), (18, "w.0")):
            wrapped = b"ctorch._utils\n_rebuild_parameter\n(" * n + self.tensor() + b"\x88NtR" * n
            self.assertEqual(self.found(b"}X\1\0\0\0w" + wrapped + b"s"), {name: ("F32", [2, 3])}, n)

    def test_dimensions(self):
        for rank, found in ((32, {"w": ("F32", [1] * 31 + [6])}), (33, self.RAW)):
            shape = (1,) * (rank - 1) + (6,)
            self.assertEqual(self.names(torch_file({"w": ("torch.FloatStorage", "0", 6, 0, shape, (6,) * (rank - 1) + (1,))}, {"0": self.DATA})), found)

    def test_elements_that_share_bytes(self):
        """`lmc cat` wrote 2^62 bytes of a file of 1 KB, whose tensors are expanded. Two names count twice for --safetensors."""
        def write(n):
            self.write("x.pt", torch_file({"w": ("torch.FloatStorage", "0", 6, 0, (n, 1), (0, 1)), "v": ("torch.FloatStorage", "0", 6, 0, (6,), (1,))}, {"0": self.DATA}))
            return os.path.getsize(self.path("x.pt"))
        most = (64 << 20) + 64 * write(1)
        self.assertEqual((write(most // 4), most % 4), ((most - (64 << 20)) // 64, 0))
        self.lmc("-f", "x.pt")
        for file in "x.pt", "x.pt.lmc":
            self.assertEqual(len(self.lmc("cat", file, "w").stdout), most, file)
            self.refuses("cat", "--safetensors", "-o", "out", file, code=1, says="without -f at most")  # v is 24 bytes more
        for n in most // 4 + 1, 1 << 60:
            write(n)
            self.lmc("-f", "x.pt")
            for file in "x.pt", "x.pt.lmc":
                self.refuses("cat", file, "w", code=1, says="without -f at most")
                self.assertEqual(self.lmc("cat", file, "w[%d:]" % (n - 2)).stdout, self.DATA[:4] * 2)
                self.assertEqual(self.lmc("cat", file, "v").stdout, self.DATA)
        write(most // 4 + 1)
        self.lmc("-f", "x.pt")
        self.lmc("cat", "-f", "-o", "out", "x.pt.lmc", "w")
        self.assertEqual(os.path.getsize(self.path("out")), most + 4)
        os.remove(self.path("out"))

    def test_storages_by_themselves(self):
        """A storage has a stride of its own, not that of the tensor before it."""
        storage = self.tensor()[len(b"ctorch._utils\n_rebuild_tensor_v2\n("):]
        storage = storage[:storage.index(b"tQ") + 2]
        found = self.found(b"}(X\1\0\0\0s" + storage + b"X\1\0\0\0t" + storage + b"u")
        self.assertEqual(found, {"s": ("F32", [6]), "t": ("F32", [6])})
        self.assertEqual([v["strides"] for v in self.listing("x.pt.lmc")["files"][0]["views"]], [[1]])
        self.assertEqual((self.cat("x.pt.lmc", "s"), self.cat("x.pt.lmc", "t")), (self.DATA, self.DATA))

    def test_no_dimension(self):
        """If no tensor has a dimension, the array of shapes is empty. tests/run fuzz has such a file for UBSan, too."""
        found = self.found(b"}X\1\0\0\0a" + self.tensor("torch.FloatStorage", "0", 6, 0, (), ()) + b"s")
        self.assertEqual(found, {"a@storage": ("F32", [6]), "a": ("F32", [])})

    def test_names_of_members(self):
        for size, found in ((254, self.GOOD), (255, {})):  # and a slash: find_prefix() has room for 255 bytes
            self.assertEqual(self.names(torch_file({"w": F}, {"0": self.DATA}, prefix="p" * size + "/")), found)
        for size, found in ((504, self.GOOD), (505, {"data/" + "k" * 505: ("BYTES", [24])})):  # 511 bytes with "a/data/"
            key = "k" * size
            self.assertEqual(self.names(torch_file({"w": ("torch.FloatStorage", key, *F[2:])}, {key: self.DATA})), found)
        # a cut name must not find the member with the shorter name
        key = "k" * 504
        self.assertEqual(self.names(torch_file({"w": ("torch.FloatStorage", key + "k", *F[2:])}, {key: self.DATA})), {"data/" + key: ("BYTES", [24])})
        for size in 255, 256, 257, 65535:  # local headers that fit on the stack, and others
            self.assertEqual(self.names(archive({"data.pkl": pickled({"w": F}), "data/0": self.DATA, "x" * (size - 2): b"x"})), self.GOOD)

    def test_members_of_metadata(self):
        """A flag behind 63 others is found, one behind 64 is not."""
        for n, views in ((63, ["w"]), (64, [])):
            about = b"}(" + b"".join(b"M" + struct.pack("<H", i) + b"N" for i in range(n)) + b"X\4\0\0\0conj\x88u"
            made = self.tensor().replace(b"\x89NtR", b"\x89N" + about + b"tR")
            self.assertEqual(self.found(b"}X\1\0\0\0w" + made + b"s"), self.GOOD)
            self.assertEqual([v["name"] for v in self.listing("x.pt.lmc")["files"][0]["views"]], views)

    def test_nodes_and_links(self):
        """The limit is 2^20 plus a quarter of the file's size, at most 2^22."""
        small = b"}X\1\0\0\0w" + self.tensor() + b"s"
        def found(made, rest):
            data = archive({"data.pkl": b"\x80\2" + made + b".", "byteorder": b"little", "data/0": self.DATA, "rest": bytes(rest)})
            return self.names(data), len(data)
        nodes, links = lambda n: b"(" + b")" * (n - 21) + b"1" + small, lambda n: b")\x940((" + b"h\0" * (n - 17) + b"t1" + small
        for made in nodes, links:
            self.assertEqual(found(made(1 << 22), 12 << 20)[0], self.GOOD)
            self.assertEqual(found(made((1 << 22) + 1), 12 << 20)[0], self.RAW)
            self.assertIn("it is too large", self.lmc("-v", "-f", "x.pt").stderr.decode())
            n = 1 << 20
            for _ in range(20):  # the file grows with its content
                n = (1 << 20) + len(archive({"data.pkl": b"\x80\2" + made(n) + b".", "byteorder": b"little", "data/0": self.DATA, "rest": b""})) // 4
            self.assertEqual(found(made(n), 0)[0], self.GOOD)
            self.assertEqual(found(made(n + 4), 0)[0], self.RAW)

    def test_budget(self):
        """Names and shapes may take four times the file and 16 MiB."""
        def found(n):
            tensor = self.tensor() + b"\x94"
            keys = b"".join(b"X\5\0\0\0%05dh\0" % i for i in range(n))
            return len(self.found(b"}(X" + struct.pack("<I", 4000) + b"n" * 4000 + b"}(X\1\0\0\0w" + tensor + keys + b"uu"))
        low, high = 2000, 20000
        self.assertGreater(found(low), low)
        self.assertEqual(found(high), 1)
        while high - low > 1:
            n = (low + high) // 2
            if found(n) > n: low = n
            else: high = n
        size = os.path.getsize(self.path("x.pt"))
        self.assertLess(abs(low * 4008 / (16 * 2 ** 20 + 4 * size) - 1), 0.1)

    def test_long_pickle(self):
        small = b"}X\1\0\0\0w" + self.tensor() + b"s"
        for size, found in ((64 << 20, self.GOOD), ((64 << 20) + 1, self.RAW)):
            filler = size - len(small) - 3 - 6
            self.assertEqual(self.found(b"B" + struct.pack("<I", filler) + bytes(filler) + b"0" + small), found)

    def test_long_names_of_globals(self):
        """Each name may be as long as its texts; all together are bounded by the size of the pickle."""
        small = b"}X\1\0\0\0w" + self.tensor() + b"s"
        text = b"X" + struct.pack("<I", 1000) + b"m" * 1000
        once = text + b"\x94" + text + b"\x94\x930"
        self.assertEqual(self.found(once + small), self.GOOD)
        self.assertEqual(self.found(once + b"h\0h\1\x930" * 100 + small), self.RAW)
        self.assertIn("long names", self.lmc("-v", "-f", "x.pt").stderr.decode())

    def test_byteorder(self):
        for order, found in ((b"little", self.GOOD), (b"x" * 16, self.RAW), (b"x" * 17, self.GOOD)):
            self.assertEqual(self.names(archive({"data.pkl": pickled({"w": F}), "byteorder": order, "data/0": self.DATA})), found)

    def test_descriptions(self):
        """The description of a file's tensors is itself a tensor from 2,048 bytes on; other bytes around tensors from 256 bytes on, if all of them
        are more than 1/64 of the file."""
        small = len(pickled({"w": F}))
        for size in 2047, 2048:
            n = size - small - 6
            made = b"\x80\2B" + struct.pack("<I", n) + bytes(n) + b"0" + pickled({"w": F})[2:]
            self.assertEqual(len(made), size)
            listed = self.listed(archive({"data.pkl": made, "data/0": self.DATA}))
            self.assertEqual(("@data.pkl" in listed, "@1" in listed), (size == 2048, size == 2047))
            self.assertNotIn("@1", self.listed(archive({"data.pkl": made, "data/0": self.DATA, "data/1": bytes(1 << 20)})))
        two = pickled({"w": F, "v": (F[0], "1", *F[2:])})
        for size in 255, 256:
            between = bytes(size - len("a/text") - len("a/data/1") - 2 * 30)
            made = archive({"data.pkl": two, "data/0": self.DATA, "text": between, "data/1": self.DATA})
            self.assertEqual("@2" in self.listed(made), size == 256)

    def test_tiny_tensors(self):
        """If a file has fewer than 3,072 bytes for each tensor, these are views; but tensors in files below 65,536 bytes."""
        def n_tensors(data):
            self.write("x.pt", data)
            self.lmc("-f", "x.pt")
            return sum(t["name"].startswith("t") for t in self.listing("x.pt.lmc")["files"][0]["tensors"])
        tensors, records = {"t%02d" % i: ("torch.FloatStorage", str(i), 6, 0, (6,), (1,)) for i in range(24)}, {str(i): self.DATA for i in range(24)}
        bare = len(torch_file(tensors, {**records, "rest": b""}))
        def sized(size):
            return torch_file(tensors, {**records, "rest": bytes(size - bare)})
        self.assertEqual(n_tensors(sized(65535)), 24)
        self.assertEqual(n_tensors(sized(65536)), 0)
        # "data/rest" and perhaps "@data.pkl", "@directory" are tensors, too
        n = 24 + len([x for x in self.listed(sized(1 << 20)) if not x.startswith("t")])
        self.assertEqual(n_tensors(sized(3072 * n)), 24)
        self.assertEqual(n_tensors(sized(3072 * n - 1)), 0)

    def test_metadata(self):
        """Parts with the most dimensions of a tensor, and items with the longest names."""
        def names(name, rank, n_items=2):
            shape = (1,) * (min(rank, 32) - 2) + (2, 3)
            tensor = self.tensor("torch.FloatStorage", "0", 6, 0, shape, (6,) * (len(shape) - 2) + (3, 1))
            item = archive({"data.pkl": b"\x80\2" + tensor + b".", "data/0": self.DATA}, prefix="archive/")
            items = [(name, [1] * (rank - 2) + [2 * n_items, 3], [0] * (rank - 2) + [2 * i, 0], i * len(item), len(item)) for i in range(n_items)]
            shutil.rmtree(self.path("x"), ignore_errors=True)
            self.write("x/.metadata", metadata(items))
            self.write("x/__0_0.distcp", item * n_items)
            self.lmc("-f", "x")
            self.restores("x.lmc", self.snapshot("x"))
            return {k[1] for k in self.tensors("x.lmc")}
        self.assertEqual(names("w", 2), {"w[0:2]", "w[2:4]"})
        ones = "0:1," * 30
        self.assertEqual(names("w", 32), {"w[%s0:2]" % ones, "w[%s2:4]" % ones})
        self.assertEqual(names("w", 33), set())  # no parts: two tensors of one name
        for size, found in ((65534, {"n" * 65534}), (65535, set())):
            self.assertEqual(names("n" * size, 2, 1), found)


class Shared(Checkpoint):
    """The cases that Python's tests have, too (torch_files.py)."""
    def test_cases(self):
        for case, files, tensors in cases():
            with self.subTest(case):
                for path, data in files.items():
                    self.write(path, data)
                name = os.path.dirname(min(files)) or min(files)
                self.lmc("-f", name)
                found = {k[1]: v for k, v in self.tensors(name + ".lmc", views=True).items()}
                for tensor, expected in tensors.items():
                    if expected is None:
                        self.lmc("cat", name + ".lmc", tensor, code=1)
                        continue
                    self.assertEqual((*found[tensor], self.cat(name + ".lmc", tensor)), (expected[0], list(expected[1]), expected[2]), tensor)


class Views(Checkpoint):
    """cat writes, and -l lists, what PyTorch sees: names that share bytes, other orders of dimensions."""
    def save(self, data, **tensors):
        self.write("x.pt", torch_file({name: ("torch.FloatStorage", "0", len(data) // 4, *place) for name, place in tensors.items()}, {"0": data}))
        self.lmc("-f", "x.pt")

    def test_orders(self):
        data = f32(24)[:96]
        at = lambda *places: b"".join(data[4 * i:4 * i + 4] for i in places)
        self.save(data, w=(0, (4, 6), (1, 4)), tied=(0, (4, 6), (1, 4)), row=(4, (4,), (1,)), wide=(8, (2, 3), (0, 2)))
        self.assertEqual(self.cat("x.pt.lmc", "w"), at(*(c * 4 + r for r in range(4) for c in range(6))))
        self.assertEqual(self.cat("x.pt.lmc", "w[1,2:4]"), at(9, 13))
        self.assertEqual(self.cat("x.pt.lmc", "tied"), self.cat("x.pt.lmc", "w"))
        self.assertEqual(self.cat("x.pt.lmc", "row"), data[16:32])
        self.assertEqual(self.cat("x.pt.lmc", "wide"), at(8, 10, 12, 8, 10, 12))
        listing = self.lmc("-l", "x.pt.lmc").stdout.decode()
        for name in ("w", "tied", "row", "wide"):
            self.assertRegex(listing, r"view +%s of (w|the same)\n" % name)
        npy = self.lmc("cat", "--npy", "x.pt.lmc", "w").stdout
        self.assertIn(b"'shape': (4, 6)", npy)
        self.assertTrue(npy.endswith(self.cat("x.pt.lmc", "w")))
        # and of a delta with its base
        self.write("y.pt", self.read("x.pt"))
        self.lmc("-o", "y.lmc", "--base", "x.pt", "y.pt")
        self.assertEqual(self.lmc("cat", "--base", "x.pt", "y.lmc", "row").stdout, data[16:32])

    def test_safetensors(self):
        data = f32(24)[:96]
        self.save(data, w=(0, (4, 6), (6, 1)), tied=(0, (4, 6), (6, 1)), turned=(0, (6, 4), (1, 6)))
        out = self.lmc("cat", "--safetensors", "x.pt.lmc").stdout
        size = int.from_bytes(out[:8], "little")
        header = json.loads(out[8:8 + size])
        self.assertEqual({k: v["shape"] for k, v in header.items() if k != "__metadata__"}, {"w": [4, 6], "tied": [4, 6], "turned": [6, 4]})
        for name in ("w", "tied", "turned"):
            begin, end = header[name]["data_offsets"]
            self.assertEqual(out[8 + size:][begin:end], self.cat("x.pt.lmc", name))
        for kind in ("torch.ComplexDoubleStorage", "torch.QInt8Storage"):
            self.write("x.pt", torch_file({"odd": (kind, "0", 6, 0, (6,), (1,))}, {"0": data}))
            self.lmc("-f", "x.pt")
            self.assertIn("which safetensors does not have", self.lmc("cat", "--safetensors", "x.pt.lmc", code=1).stderr.decode())

    def test_conjugated(self):
        pickle = pickled({"w": ("torch.ComplexFloatStorage", "0", 3, 0, (3,), (1,))}).replace(b"\x89NtR", b"\x89N}X\4\0\0\0conj\x88stR")
        data = bytearray(f32(6)[:24])
        self.write("x.pt", archive({"data.pkl": pickle, "byteorder": b"little", "data/0": bytes(data)}))
        self.lmc("x.pt")
        for last in range(7, 24, 8):  # signs of imaginary parts
            data[last] ^= 0x80
        self.assertEqual(self.cat("x.pt.lmc", "w"), data)
        self.lmc("-t", "x.pt.lmc")
        self.write("x.pt", archive({"data.pkl": pickle.replace(b"ComplexFloat", b"Long"), "byteorder": b"little", "data/0": bytes(data)}))
        self.lmc("-f", "x.pt")
        self.assertIn("marks it as conjugated", self.lmc("cat", "x.pt.lmc", "w", code=1).stderr.decode())

    def test_names_that_meet(self):
        """If two tensors have one name, neither is listed."""
        pickle = pickled({"a.b": F, "a_b": ("torch.FloatStorage", "0", 6, 0, (3, 2), (2, 1)), "c": F}).replace(b"a_b", b"a.b")
        self.write("x.pt", archive({"data.pkl": pickle, "byteorder": b"little", "data/0": f32(6)[:24]}))
        self.lmc("x.pt")
        self.assertIn("several tensors", self.lmc("cat", "x.pt.lmc", "a.b", code=1).stderr.decode())
        self.assertEqual(self.cat("x.pt.lmc", "c"), f32(6)[:24])


class Small(Checkpoint):
    """Many small tensors take no more than their file's size."""
    def test_many(self):
        values = f32(1 << 17)
        for n, size, kind, width in ((1500, 64, "Float", 4), (300, 1000, "BFloat16", 2), (300, 2000, "Float", 4), (40, 12000, "Float", 4)):
            names = ["layers.%d.weight" % i for i in range(n)]
            parts = {str(i): values[i * size % 65536:][:size] for i in range(n)}
            self.write("x.pt", torch_file({name: ("torch.%sStorage" % kind, str(i), size // width, 0, (size // width,), (1,)) for i, name in enumerate(names)}, parts, align=64))
            plain = self.size("--opaque", "x.pt")
            self.assertLessEqual(self.size("x.pt", name="x.lmc"), plain + plain // 200 + 64, (n, size, kind))
            self.restores("x.lmc", self.read("x.pt"))
            self.assertEqual(self.cat("x.lmc", names[17]), parts["17"])
            self.assertEqual(len(self.tensors("x.lmc", views=True)), n)
            self.write("y.pt", self.read("x.pt"))
            plain = self.size("--opaque", "--base", "x.pt", "y.pt")
            self.assertLessEqual(self.size("--base", "x.pt", "y.pt", name="d.lmc"), plain + (80 * n if size > 3000 else 64))
            self.restores("d.lmc", self.read("x.pt"), "--base", "x.lmc")
        self.write("x.pt", torch_file({str(i): ("torch.FloatStorage", str(i), 16, 0, (16,), (1,)) for i in range(1500)}, {str(i): values[:64] for i in range(1500)}))
        self.assertIn("so small", self.lmc("-v", "-f", "x.pt").stderr.decode())

    def test_delta(self):
        """Headers between small tensors, data.pkl and the directory cost little in a delta."""
        values, n, size = f32(40 * 3000), 40, 12000
        def save(name, k):
            self.write(name, torch_file({"layers.%d.weight" % i: ("torch.FloatStorage", str(i), 3000, 0, (3000,), (1,)) for i in range(n)},
                                        {str(i): values[i * size:i * size + 4 * k] + bytes(4) + values[i * size + 4 * k + 4:(i + 1) * size] for i in range(n)}, align=64))
        save("a.pt", 7)
        save("b.pt", 9)
        self.assertLess(self.size("--base", "a.pt", "b.pt"), 7000)
        self.restores("size.lmc", self.read("b.pt"), "--base", "a.pt")


class Shifted(Checkpoint):
    """Files that are no containers are found in their base across insertions, deletions and swaps."""
    def test_shifts(self):
        old = f32(100000)
        new = bytearray(old)
        new[4000:400000:2000] = bytes(len(range(4000, 400000, 2000)))
        new, chance = bytes(new), random.Random(3)
        head, more = chance.randbytes(3000), chance.randbytes(20000)
        middle = len(new) // 2 // 8 * 8
        self.write("a.bin", head + old)
        self.write("b.bin", head + new)
        limit = self.size("--base", "a.bin", "b.bin") + 1000
        for what, data, extra in (("insertion", more[:100] + head + new, 100), ("deletion", head[:-512] + new, 0), ("in the middle", head + new[:middle] + more + new[middle:], len(more)),
                                  ("gone", head + new[:middle - 4096] + new[middle:], 0), ("swapped", head + new[middle:] + new[:middle], 0), ("odd", b"x" + head + new, 1)):
            self.write("b.bin", data)
            self.assertLess(self.size("--base", "a.bin", "b.bin"), limit + extra + extra // 5, what)
            self.restores("size.lmc", data, "--base", "a.bin")
        self.lmc("-q", "a.bin")
        self.restores("size.lmc", data, "--base", "a.bin.lmc")

    def test_dense(self):
        """Every element has changed a little: exponents tell where it was."""
        old = f32(60000)
        new = b"".join(bytes((x ^ (i * 37 & 255), y, z, w)) for i, (x, y, z, w) in enumerate(zip(old[::4], old[1::4], old[2::4], old[3::4])))
        self.write("a.bin", bytes(500) + old)
        self.write("b.bin", bytes(500) + new)
        limit = self.size("--base", "a.bin", "b.bin")
        self.write("b.bin", bytes(612) + new)
        self.assertLess(self.size("--base", "a.bin", "b.bin"), limit + 500)
        self.restores("size.lmc", self.read("b.bin"), "--base", "a.bin")

    def test_borders(self):
        """The border between two shifts is searched in 65,536 bytes."""
        old, more = f32(100000), random.Random(4).randbytes(70000)
        self.write("a.bin", old)
        middle = len(old) // 2
        for size in 65535 - 512, 65536 - 512, 65535, 65536, 65537, 70000:  # 512: bytes to the first anchors behind it
            new = old[:middle] + more[:size] + old[middle:]
            self.write("b.bin", new)
            self.assertLess(self.size("--base", "a.bin", "b.bin"), size + 5000)
            self.restores("size.lmc", new, "--base", "a.bin")

    def test_nothing_alike(self):
        self.write("a.bin", f32(20000))
        self.write("b.bin", f32(20000, 2) + b"x")
        plain = self.size("b.bin")
        self.assertLess(self.size("--base", "a.bin", "b.bin"), plain + 300)
        for data in (bytes(300000), b"ab" * 150000):  # anchors everywhere, or nowhere
            self.write("a.bin", data)
            self.write("b.bin", b"x" * 100 + data)
            self.size("--base", "a.bin", "b.bin")
            self.restores("size.lmc", self.read("b.bin"), "-q", "--base", "a.bin")


class Used(Checkpoint):
    """Features that work with safetensors work here, too."""
    def make(self, note, weights, master=None):
        """A file whose pickle has a note of so many bytes."""
        tensors = {"w": ("torch.FloatStorage", "0", len(weights) // 4, 0, (len(weights) // 4,), (1,))}
        records = {"0": weights}
        if master is not None:
            tensors["half"] = ("torch.BFloat16Storage", "1", len(weights) // 4, 0, (len(weights) // 4,), (1,))
            records["1"] = master
        return archive({"data.pkl": pickled(tensors)[:-2] + b"X" + struct.pack("<I", note) + b"n" * note + b"Nu.", "byteorder": b"little",
                        **{"data/" + k: v for k, v in records.items()}})

    def test_delta_of_longer_pickle(self):
        """With 100 bytes more in data.pkl all tensors stand elsewhere, and the delta is found all the same."""
        old = f32(100000)
        new = bytearray(old)
        new[400:404] = bytes(4)
        self.write("a.pt", self.make(3, old))
        for more in (3, 5, 103):
            self.write("b.pt", self.make(more, bytes(new)))
            self.assertLess(self.size("--base", "a.pt", "b.pt"), 2000)
            self.restores("size.lmc", self.read("b.pt"), "--base", "a.pt")
        self.lmc("a.pt")
        self.assertLess(self.size("--base", "a.pt.lmc", "b.pt"), 2000)
        self.restores("size.lmc", self.read("b.pt"), "--base", "a.pt")
        # the same tensors in another container are the same base
        self.write("a.safetensors", safetensors([("w", "F32", [100000], old)]))
        self.assertLess(self.size("--base", "a.safetensors", "b.pt"), 2000)
        self.restores("size.lmc", self.read("b.pt"), "--base", "a.pt")

    def test_twins(self):
        master = f32(50000)
        self.write("a.pt", self.make(3, master, rounded(master)))
        self.write("b.pt", self.make(3, master))
        self.assertLess(self.size("a.pt", name="a.lmc") - self.size("b.pt", name="b.lmc"), 1500)
        self.restores("a.lmc", self.read("a.pt"))

    def test_what_describes_tensors(self):
        """The headers of archives, and a .metadata that got longer, take few bytes of a delta: the base has them."""
        def make(step):
            items, data = [], b""
            for i in range(12):
                item = torch_file({"": ("torch.FloatStorage", "0", 2, 0, (2,), (1,))}, {"0": struct.pack("<2f", i, step), "notes": b"x" * 90 * (i == 5) * step}, align=64)
                items.append(("w%d%s" % (i, ".new" * (i == 7) * step), [2], [0], len(data), len(item)))
                data += item
            shutil.rmtree(self.path("x%d" % step), ignore_errors=True)
            self.write("x%d/.metadata" % step, metadata(items))
            self.write("x%d/__0_0.distcp" % step, data)
            return len(data)
        self.assertGreater(make(0), 8000)
        make(1)
        self.assertLess(self.size("x0"), 4500)
        self.assertLess(self.size("--base", "x0", "x1"), 3500)
        self.restores("size.lmc", self.snapshot("x1"), "--base", "x0")
        self.lmc("-q", "-o", "x0.lmc", "x0")
        self.restores("size.lmc", self.snapshot("x1"), "--base", "x0.lmc")

    def test_quantize(self):
        """Moments have their roles by the names that the pickle gives them."""
        shape, strides, n = (128, 256), (256, 1), 128 * 256
        moments = {"w": f32(n), "exp_avg": f32(n, 2), "exp_avg_sq": b"".join(struct.pack("<f", abs(x)) for x in struct.unpack("<%df" % n, f32(n, 3)))}
        tensors = {name: ("torch.FloatStorage", str(i), n, 0, shape, strides) for i, name in enumerate(moments)}
        self.write("x.pt", torch_file(tensors, {str(i): v for i, v in enumerate(moments.values())}))
        self.assertNotIn("ZIP", self.lmc("-v", "-f", "-o", "exact.lmc", "x.pt").stderr.decode())
        self.lmc("-q", "--quant", "*=update:0.01", "x.pt")
        self.lmc("-t", "x.pt.lmc")
        self.lmc("-d", "-q", "-o", "near.pt", "x.pt.lmc")
        with zipfile.ZipFile(self.path("near.pt")) as z, self.assertRaises(zipfile.BadZipFile):  # this is documented
            z.read("a/data/1")
        lossy = {t["name"]: bool(t.get("generation") or t.get("loss")) for t in self.listing("x.pt.lmc", "-v")["files"][0]["tensors"]}
        self.assertEqual(lossy, {"w": False, "exp_avg": True, "exp_avg_sq": True})
        self.assertEqual(self.cat("x.pt.lmc", "w"), moments["w"])
        self.assertLess(os.path.getsize(self.path("x.pt.lmc")), len(self.read("x.pt")) * 6 // 10)

    def test_diff_stats_series_apply(self):
        for k in (0, 1):
            self.take("torch/step-%d" % k, "step-%d" % k)
            self.lmc("step-%d" % k)
            self.assertIn("optimizer.state.0.exp_avg", self.lmc("-l", "step-%d.lmc" % k).stdout.decode())
        self.assertIn("optimizer.state.0.exp_avg", self.lmc("diff", "step-0", "step-1").stdout.decode())
        self.assertIn("F32", self.lmc("stats", "step-1.lmc").stdout.decode())
        self.lmc("-o", "d.lmc", "--base", "step-0", "step-1")
        self.restores("d.lmc", self.snapshot("step-1"), "--base", "step-0")
        self.restores("d.lmc", self.snapshot("step-1"), "--base", "step-0.lmc")
        for k in (0, 1):
            self.lmc("series", "s", "add", "-q", "step-%d" % k)
        self.lmc("series", "s", "restore", "-q", "step-1", "-o", "again")
        self.assertEqual(self.snapshot("again"), self.snapshot("step-1"))

    def test_resharding(self):
        """One process, then two, and two, then one: the parts of a tensor are found in each other."""
        self.take("dcp-1/step-0", "one")
        self.take("dcp-2/step-0", "two")
        self.take("dcp-2/step-1", "next")
        # headers predict one another; "--no-twins" says that they may not
        self.assertLess(self.size("two"), self.size("--no-twins", "two") * 2 // 3)
        plain = self.size("--opaque", "two")
        for base, new in (("one", "two"), ("two", "one"), ("one", "next")):
            self.lmc("-q", "-f", "-o", "d.lmc", "--base", base, new)
            for form in (base, base + ".lmc"):
                if form.endswith("lmc"):
                    self.lmc("-q", "-f", base)
                self.restores("d.lmc", self.snapshot(new), "--base", form)
            self.assertLess(os.path.getsize(self.path("d.lmc")), plain)
        # the numbers are the same: the parts take nothing
        blocks = lambda name: sum(t["packed_size"] for f in self.listing(name)["files"] for t in f["tensors"] if t["name"].startswith("optimizer.state.embed"))
        self.lmc("-q", "-f", "-o", "d.lmc", "--base", "one", "two")
        self.lmc("-q", "-f", "two")
        self.assertLess(2 * blocks("d.lmc"), blocks("two.lmc"))

    def test_foreign_decoder(self):
        """A decoder that knows nothing of archives or pickles accepts the raw file as a base, by the delta's own tables (spec/foreign-bases.md)."""
        old = f32(5000)
        new = bytearray(old)
        new[1000:1100] = bytes(100)
        self.write("a.pt", self.make(3, old))
        self.write("b.pt", self.make(3, bytes(new)))
        self.assertLess(self.size("--base", "a.pt", "b.pt", name="d.lmc"), 3000)
        decoder = os.path.join(ROOT, "spec", "lmc_decode.py")
        done = subprocess.run([sys.executable, decoder, "--base", self.path("a.pt"), self.path("d.lmc"), self.path("out")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.read("out"), self.read("b.pt"))
        # with another layout it cannot be recognised; the base as a snapshot works for every decoder
        self.write("b.pt", self.make(203, bytes(new)))
        self.assertLess(self.size("--base", "a.pt", "b.pt", name="d.lmc"), 3000)
        self.lmc("-q", "a.pt")
        for base, code in (("a.pt", 4), ("a.pt.lmc", 0)):
            done = subprocess.run([sys.executable, decoder, "--base", self.path(base), self.path("d.lmc"), self.path("out2")], capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(self.read("out2"), self.read("b.pt"))


class Real(Checkpoint):
    """--long: checkpoints of a small model in training, each within 1 % of the size of its tensors as safetensors, alone and as a delta."""
    def try_way(self, way):
        python = os.environ.get("LMC_TORCH", "python3")
        if not LONG:
            self.skipTest("--long")
        if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
            self.skipTest("PyTorch is not installed")
        made = subprocess.run([python, os.path.join(HERE, "make_checkpoints.py"), "--width", "320", self.dir, way], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr[-3000:])
        if not os.path.isdir(self.path(way)):
            self.skipTest("transformers is not installed")
        sizes = {}
        for kind, suffix in ((way, ""), (way + "-safetensors", ".safetensors")):
            for step in range(3):
                name, base = ("%s/step-%d%s" % (kind, k, suffix) for k in (step, step - 1))
                sizes[suffix, step, "full"] = self.size(name)
                self.restores("size.lmc", self.snapshot(name))
                if step:
                    sizes[suffix, step, "delta"] = self.size("--base", base, name)
                    self.restores("size.lmc", self.snapshot(name), "--base", base)
        for (suffix, step, form), size in sizes.items():
            if suffix == "":
                other = sizes[".safetensors", step, form]
                print("%-8s step %d %-5s %10d, as safetensors %10d (%+.2f %%)" % (way, step, form, size, other, 100 * size / other - 100))
        for (suffix, step, form), size in sizes.items():
            self.assertLess(size, 1.01 * sizes[".safetensors", step, form])

    def test_torch(self):
        self.try_way("torch")

    def test_trainer(self):
        self.try_way("trainer")

    def test_zero(self):
        self.try_way("zero")

    def test_megatron(self):
        self.try_way("megatron")

    def test_one_process(self):
        self.try_way("dcp-1")

    def test_two_processes(self):
        self.try_way("dcp-2")

    def test_four_processes(self):
        self.try_way("dcp-4")


if __name__ == "__main__":
    sys.exit(main())
