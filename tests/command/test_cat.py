#!/usr/bin/env python3
"""lmc cat: tensors, slices and files.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import json
import os
import random
import struct
import sys
import time

from case import LONG, MB, Case, bf16, f32, gguf, main, npy, python_slice, safetensors


class Cat(Case):
    def setUp(self):
        super().setUp()
        self.shape = [5, 7, 6]
        self.data = bytes(i & 255 for i in range(5 * 7 * 6 * 4))
        self.data = random.Random(6).randbytes(len(self.data))
        self.write("m.safetensors", safetensors([("w", "F32", self.shape, self.data), ("s", "F64", [], b"12345678"), ("a[0]", "U8", [3], b"abc"),
                                                 ("a", "U8", [3], b"xyz"), ("f4", "F4", [4], b"pq"), ("odd", "ODD", [4], b"4444"),
                                                 ("b", "BF16", [2, 2], bf16(4)), ("none", "F32", [0, 4], b"")]))
        self.lmc("m.safetensors")

    def cat(self, tensor, *args, **more):
        return self.lmc("cat", "m.safetensors.lmc", tensor, *args, **more).stdout

    def test_files_that_are_not_compressed(self):
        """-l and cat read files that are not compressed, like stats, with the same tensors and bytes as from a snapshot."""
        def tensors(name):
            told = json.loads(self.lmc("-l", "--json", name).stdout)
            self.assertEqual(told["size"], sum(f["size"] for f in told["files"]))
            return [(f["path"], f["kind"], f["size"], [(t["name"], t["dtype"], t["shape"], t["offset"], t["size"]) for t in f["tensors"]]) for f in told["files"]]
        data = bf16(200)
        self.write("x.gguf", gguf([("g", "BF16", [10, 20], data)]))
        self.write("y.npy", npy("<f4", (5, 2), f32(10)))
        self.write("d/a/m.safetensors", self.read("m.safetensors"))
        self.write("d/x.gguf", self.read("x.gguf"))
        self.write("d/config.json", b"{}")
        os.makedirs(self.path("d/empty"))
        for name in ("m.safetensors", "x.gguf", "y.npy", "d"):
            self.lmc("-qf", name, "-o", "p.lmc")
            self.assertEqual(tensors(name), tensors("p.lmc"))
            for _, _, _, listed in tensors(name):
                for tensor, dtype, shape, _, _ in listed:
                    self.assertEqual(self.lmc("cat", name, tensor).stdout, self.lmc("cat", "p.lmc", tensor).stdout)
                    if tensor and shape and dtype in ("F32", "BF16"):
                        self.assertEqual(self.lmc("cat", "--npy", name, tensor + "[1:]").stdout, self.lmc("cat", "--npy", "p.lmc", tensor + "[1:]").stdout)
            text = self.lmc("-l", name).stdout.decode()
            self.assertIn(name + ": not compressed: ", text)
            for tensor in [t[0] for f in tensors(name) for t in f[3]]:
                self.assertIn(tensor, text)
        self.assertEqual(self.lmc("cat", "d", "--safetensors", "g").stdout, self.lmc("cat", "p.lmc", "--safetensors", "g").stdout)
        self.lmc("cat", "d", "--file", "config.json", code=2, says="--file needs a tensor, too")
        self.lmc("cat", "m.safetensors", "nothing", code=1, says="has no tensor 'nothing'; 'lmc -l' lists them")
        self.lmc("cat", "m.safetensors", tensors("m.safetensors")[0][3][0][0] + "x", code=1, says="'; did you mean '%s'?\n" % tensors("m.safetensors")[0][3][0][0])
        self.lmc("cat", "d", code=2, says="has several tensors; name one")
        for source, output in (("x.gguf", "x.gguf"), ("d", "d/x.gguf")):
            self.refuses(None, "cat", source, "g", "-f", "-o", output, code=1, says="same file")
        self.write("bad.safetensors", self.read("m.safetensors")[:20])
        for args in (("-l",), ("cat",)):
            self.lmc(*args, "bad.safetensors", code=1, says="is not a valid safetensors file")

    def test_whole_tensors(self):
        self.assertEqual(self.cat("w"), self.data)
        self.assertEqual(self.cat("s"), b"12345678")
        self.assertEqual(self.cat("f4"), b"pq")
        self.assertEqual(self.cat("odd"), b"4444")
        self.assertEqual(self.cat("none"), b"")
        self.lmc("cat", "m.safetensors.lmc", "w", "-o", "out")
        self.assertEqual(self.read("out"), self.data)

    def test_slices(self):
        rng = random.Random(8)
        for _ in range(150):
            key, text = [], []
            for n in self.shape[:rng.randint(0, 3)]:
                kind = rng.randrange(4)
                if kind == 0:
                    i = rng.randrange(-n, n)
                    key.append(i)
                    text.append(str(i))
                else:
                    a, b = (rng.choice([None, rng.randint(-n - 2, n + 2)]) for _ in range(2))
                    key.append(slice(a, b))
                    text.append("%s:%s%s" % ("" if a is None else a, "" if b is None else b, rng.choice(["", "", ":", ":1"])))
            want, shape = python_slice(self.data, self.shape, 4, key)
            got = self.cat("w[%s]" % ",".join(text))
            self.assertEqual(got, want, text)
            with_header = self.cat("w[%s]" % ",".join(text), "--npy")
            self.assertEqual(with_header, npy("<f4", shape, want), text)

    def test_names_with_brackets(self):
        self.assertEqual(self.cat("a[0]"), b"abc")
        self.assertEqual(self.cat("a[0:2]"), b"xy")
        self.assertEqual(self.cat("a[0][1:]"), b"bc")

    def test_refusals(self):
        for tensor, code, says in (("nothing", 1, "no tensor 'nothing'"), ("nothing[0]", 1, "no tensor 'nothing'"), ("f4[0:2]", 1, "not whole bytes"),
                                   ("odd[0:2]", 1, "element size is unknown"), ("w[0:5:2]", 2, "steps"), ("w[5]", 2, "has 5 elements in dimension 0, and the slice asks for number 5"), ("w[-6]", 2, "asks for number -6"),
                                   ("w[0,0,0,0]", 2, "3 dimensions"), ("w[x]", 2, "looks like"), ("w[0]]", 2, "ends with"), ("w[0 ]", 2, "looks like"),
                                   ("s[0]", 2, "0 dimensions"), ("w[99999999999999999999]", 2, "looks like")):
            self.assertEqual(self.cat(tensor, code=code, says=says), b"")
        self.cat("odd", "--npy", code=1, says="NumPy does not know")
        self.lmc("cat", "m.safetensors.lmc", code=2, says="has several tensors")

    def test_npy(self):
        self.assertEqual(self.cat("s", "--npy"), npy("<f8", (), b"12345678"))
        self.assertEqual(self.cat("b", "--npy"), npy("<V2", (2, 2), bf16(4)))
        self.assertEqual(self.cat("none", "--npy"), npy("<f4", (0, 4), b""))
        data = npy("<i4", (3, 4), random.Random(1).randbytes(48))
        self.write("x.npy", data)
        self.lmc("x.npy")
        self.assertEqual(self.lmc("cat", "--npy", "x.npy.lmc").stdout, data)
        self.assertEqual(self.lmc("cat", "x.npy.lmc", "[1,1:3]").stdout, data[-48:][20:28])

    def test_several_files(self):
        for name in ("d/1.safetensors", "d/2.safetensors"):
            self.write(name, safetensors([("w", "U8", [1], name[2:3].encode()), ("only" + name[2], "U8", [1], b"o")]))
        self.lmc("d")
        self.lmc("cat", "d.lmc", "w", code=1, says="choose one with --file")
        self.assertEqual(self.lmc("cat", "d.lmc", "w", "--file", "2.safetensors").stdout, b"2")
        self.assertEqual(self.lmc("cat", "d.lmc", "only1").stdout, b"o")
        self.lmc("cat", "d.lmc", "w", "--file", "3.safetensors", code=1, says="no tensor")

    def test_slices_of_a_large_tensor(self):
        rows, columns = 3000, 700
        data = bf16(rows * columns)
        self.write("l.safetensors", safetensors([("w", "BF16", [rows, columns], data)]))
        self.lmc("l.safetensors")
        for key, text in (((slice(None), slice(3, 5)), ":,3:5"), ((slice(None), 699), ":,-1"), ((slice(100, 2900),), "100:2900"), ((1500, slice(7, 9)), "1500,7:9")):
            want = python_slice(data, [rows, columns], 2, key)[0]
            self.assertEqual(self.lmc("cat", "l.safetensors.lmc", "w[%s]" % text).stdout, want)

    def check_few_reads(self, gigabytes):
        """A tensor of 1 MB of a sparse file: three reads to open it, few to read the tensor."""
        n = gigabytes << 30
        with open(self.path("big.safetensors"), "wb") as f:
            text = json.dumps({"a": {"dtype": "BF16", "shape": [n // 2], "data_offsets": [0, n]},
                               "w": {"dtype": "U8", "shape": [MB], "data_offsets": [n, n + MB]},
                               "z": {"dtype": "BF16", "shape": [n // 4], "data_offsets": [n + MB, n + MB + n // 2]}}).encode()
            f.write(struct.pack("<Q", len(text)) + text)
            f.seek(n, 1)
            tensor = random.Random(1).randbytes(MB)
            f.write(tensor)
            f.truncate(f.tell() + n // 2)
        self.lmc("big.safetensors")
        start = time.time()
        p = self.lmc("cat", "-v", "big.safetensors.lmc", "w", says="reads of")
        elapsed = time.time() - start
        self.assertEqual(p.stdout, tensor)
        words = p.stderr.decode().split()
        reads, size = int(words[words.index("reads") - 1]), int(words[words.index("reads") + 2])
        self.assertLessEqual(reads, 8, p.stderr)
        self.assertLess(size, 4 * MB + (gigabytes << 30) // 2000)
        if LONG:
            print("  %d GB: %d reads, %d bytes, %.1f ms" % (gigabytes * 3 / 2, reads, size, elapsed * 1e3), file=sys.stderr)

    def test_few_reads(self):
        self.check_few_reads(1)

    def test_long_few_reads_of_10_gb(self):
        if not LONG:
            self.skipTest("--long")
        self.check_few_reads(7)


if __name__ == "__main__":
    sys.exit(main())
