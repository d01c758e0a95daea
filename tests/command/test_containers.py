#!/usr/bin/env python3
"""How files are recognised and parsed: safetensors, GGUF, NumPy's .npy, and what is neither.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import json
import os
import random
import struct
import subprocess
import sys

from case import LMC, LONG, Case, bf16, f32, gguf, main, npy, safetensors, safetensors_raw


class Containers(Case):
    def tensors(self, name):
        self.round_trip(name)
        return {t["name"]: (t["dtype"], t["shape"], t["size"]) for t in self.listing(name + ".lmc")["files"][0]["tensors"]}

    def test_every_safetensors_dtype(self):
        bits = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
                "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
                "C64": 64, "F64": 64, "I64": 64, "U64": 64}
        rng = random.Random(2)
        self.write("a.safetensors", safetensors([(k, k, [8, 40], rng.randbytes(40 * b)) for k, b in bits.items()]))
        self.assertEqual(self.tensors("a.safetensors"), {k: (k, [8, 40], 40 * b) for k, b in bits.items()})

    def test_tolerated_safetensors(self):
        w = [("w", "F32", [25], f32(25))]
        cases = {"tail": safetensors(w, tail=b"abcd"), "unpadded": safetensors(w, pad=1), "no tensors": safetensors([]),
                 "metadata": safetensors(w, {"format": "pt"}), "scalar": safetensors([("s", "F64", [], bytes(8))]),
                 "empty tensor": safetensors([("e", "F32", [0, 3], b"")] + w), "unknown dtype": safetensors([("w", "F3_X", [5], b"abc")]),
                 "huge shape with a zero": safetensors([("w", "F32", [2**62, 2**62, 0], b"")]),
                 "odd names": safetensors([("", "U8", [1], b"a"), ("a[0]", "U8", [1], b"b"), ("\u4e16/..", "U8", [1], b"c")])}
        for name, data in cases.items():
            self.write("a.safetensors", data)
            found = self.tensors("a.safetensors")
            os.unlink(self.path("a.safetensors.lmc"))
            self.assertEqual(len(found), len(json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])) - (name == "metadata"))

    def test_refused_safetensors(self):
        entry = '{"dtype":"%s","shape":%s,"data_offsets":%s}'
        u8 = entry % ("U8", "[4]", "[0,4]")
        four = b"abcd"
        cases = [
            (b"", "ends within its header"), (b"\0\0\0", "ends within its header"),
            (struct.pack("<Q", 1 << 60) + b"{}", "claims 1152921504606846976 bytes"),
            (struct.pack("<Q", 100000001) + b"{}", "claims 100000001 bytes"), (struct.pack("<Q", 50000000) + b"{}", "ends within its header"),
            (safetensors_raw("[]"), "does not begin with '{'"), (safetensors_raw('{"a"'), "not valid JSON"),
            (safetensors_raw("{}" + " \0"), "not valid JSON"), (safetensors_raw("{}x"), "not valid JSON"),
            (safetensors_raw('{"w":%s,"w":%s}' % (u8, u8), four), "duplicate"), (safetensors_raw('{"a\\u0000b":%s}' % u8, four), "zero byte"),
            (safetensors_raw(b'{"\xff":' + u8.encode() + b"}", four), "not valid JSON"),
            (safetensors_raw('{"a":%s,"b":%s}' % (u8, entry % ("U8", "[4]", "[2,6]")), b"abcdef"), "overlaps"),
            (safetensors_raw('{"a":%s,"b":%s}' % (u8, u8), four), "overlaps"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[1,5]")), b"abcde"), "no tensor covers"),
            (safetensors_raw('{"a":%s}' % u8, b"abc"), "beyond the end"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[4,0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[-4,0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,4.0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,9223372036854775807]")), four), "beyond the end"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[4]", "[0,99999999999999999999]")), four), "no valid data_offsets"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[5]", "[0,4]")), four), "another size than its dtype U8 and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("F32", "[4611686018427387904,4]", "[0,4]")), four), "and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("F4", "[7]", "[0,4]")), four), "and shape give"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[-4]", "[0,4]")), four), "not a valid number"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "4", "[0,4]")), four), "no shape"),
            (safetensors_raw('{"a":%s}' % (entry % ("U8", "[" + ",".join(["1"] * 33) + "]", "[0,1]")), b"a"), "more than 32 dimensions"),
            (safetensors_raw('{"a":%s}' % (entry % ("", "[4]", "[0,4]")), four), "no dtype"),
            (safetensors_raw('{"a":%s}' % (entry % ("X" * 33, "[4]", "[0,4]")), four), "no dtype"),
            # lists of numbers that stand at the end of the memory for shapes, which has 64 numbers at first
            *((safetensors_raw('{%s,"z":{"dtype":"U8",%s}}' % (",".join('"%d":%s' % (i, entry % ("U8", "[1,1,1,1,1,1,1,1]", "[0,1]")) for i in range(7)), lists), four), "duplicate")
              for lists in ('"shape":[1,1,1,1,1,1,1],"data_offsets":[0],"data_offsets":[1]', '"data_offsets":[0,1],"shape":[1,1,1,1,1,1,1,1],"data_offsets":[]')),
            (safetensors_raw('{"a":7}'), "no dtype"), (safetensors_raw('{"a":' + "[" * 5000 + "]" * 5000 + "}"), "not valid JSON"),
            (safetensors_raw('{"%s":%s}' % ("n" * 70000, u8), four), "name of more than 65535 bytes"),
        ]
        for data, says in cases:
            self.write("a.safetensors", data)
            p = self.refuses("a.safetensors", code=1, says=says)
            self.assertIn(b"--opaque", p.stderr)
            self.lmc("--opaque", "a.safetensors")
            self.assertEqual(self.lmc("-dc", "a.safetensors.lmc").stdout, data)
            os.unlink(self.path("a.safetensors.lmc"))
            self.write("a.bin", data)  # under another name it is a plain file
            self.round_trip("a.bin", "-f")

    def test_content_decides(self):
        data = safetensors([("w", "BF16", [100], bf16(100))])
        self.write("blob", data)
        self.write("other.bin", gguf([("w", "F32", [10], f32(10))]))
        self.assertEqual(self.tensors("blob"), {"w": ("BF16", [100], 200)})
        self.assertEqual(self.tensors("other.bin"), {"w": ("F32", [10], 40)})
        self.write("blob2", data)
        self.lmc("--opaque", "blob2")
        self.assertEqual(self.listing("blob2.lmc")["files"][0]["tensors"], [])

    def test_gguf(self):
        rng = random.Random(4)
        values = [("s", struct.pack("<IQ", 8, 3) + b"abc"), ("f", struct.pack("<If", 6, 1.5)), ("b", struct.pack("<I?", 7, True)),
                  ("words", struct.pack("<IIQ", 9, 8, 3) + (struct.pack("<Q", 1) + b"x") * 3),
                  ("numbers", struct.pack("<IIQ", 9, 5, 1000) + bytes(4000)),
                  ("nested", struct.pack("<IIQ", 9, 9, 2) + (struct.pack("<IQ", 0, 2) + b"ab") * 2), ("u", struct.pack("<IQ", 10, 7))]
        tensors = [("a", "F32", [3, 5], rng.randbytes(60)), ("b", "BF16", [2, 3, 4], bf16(24)), ("q", "Q4_K", [2, 512], rng.randbytes(576)),
                   ("r", "Q8_0", [64], rng.randbytes(68)), ("u", "GGML_77", [8], rng.randbytes(32)), ("i", "I8", [7], rng.randbytes(7)),
                   ("h", "F16", [], rng.randbytes(2))]
        want = {n: (k, s, len(d)) for n, k, s, d in tensors}
        for version in (2, 3):
            for alignment in (8, 32, 1024):
                self.write("a.gguf", gguf(tensors, version, alignment, values))
                found = self.tensors("a.gguf")
                self.assertEqual(found.pop("u")[0], "GGML_77")
                self.assertEqual(found, {k: v for k, v in want.items() if k != "u"})
                os.unlink(self.path("a.gguf.lmc"))
        self.write("b.gguf", gguf([], values=values))
        self.assertEqual(self.tensors("b.gguf"), {})
        self.write("c.gguf", gguf([("a", "F32", [3], bytes(12))], pad_last=False))
        self.assertEqual(self.tensors("c.gguf"), {"a": ("F32", [3], 12)})

    def test_refused_gguf(self):
        good = gguf([("aaaa", "F32", [4], bytes(16)), ("bbbb", "F32", [4], bytes(16))], alignment=16)
        def patched(old, new):
            self.assertIn(old, good)
            return good.replace(old, new, 1)
        cases = [(b"", "ends within"), (good[:20], "ends within"), (b"GGML" + good[4:], "does not begin with GGUF"),
                 (good[:4] + struct.pack("<I", 1) + good[8:], "version 1"), (good[:4] + struct.pack(">I", 3) + good[8:], "version 50331648"),
                 (good[:8] + struct.pack("<Q", 1 << 62) + good[16:], "more than 2^28"), (good[:8] + struct.pack("<Q", 3) + good[16:], None),
                 (good[:16] + struct.pack("<Q", 1 << 62) + good[24:], None), (patched(b"bbbb", b"aaaa"), "two tensors have the name"),
                 (patched(b"bbbb", b"b\0bb"), "zero byte"), (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 8)), "overlaps"),
                 (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 1 << 63)), "beyond the end"),
                 (patched(struct.pack("<IQ", 0, 16), struct.pack("<IQ", 0, 32)), "beyond the end"), (good[:-1], "beyond the end"),
                 (patched(struct.pack("<II", 4, 16), struct.pack("<II", 4, 0)), "not a power of two"),
                 (patched(struct.pack("<II", 4, 16), struct.pack("<II", 4, 24)), "not a power of two"),
                 (gguf([("a", "Q4_K", [128], bytes(72))]), "not a multiple of 256"),
                 (gguf([("a", "F32", [1] * 33, bytes(4))]), "more than 32 dimensions"),
                 (gguf([], values=[("k", struct.pack("<I", 99))]), "unknown type 99"),
                 (gguf([], values=[("k", struct.pack("<IIQ", 9, 8, 1 << 60))]), "ends within|longer than"),
                 (gguf([], values=[("k", struct.pack("<IIQ", 9, 10, 1 << 62))]), "longer than"),
                 (gguf([], values=[("k" * 10, struct.pack("<IQ", 8, (1 << 64) - 1))]), "longer than"),
                 (gguf([], values=[("k", b"".join([struct.pack("<I", 9)] + [struct.pack("<IQ", 9, 1)] * 20))]), "unknown type 9"),
                 (gguf([("a", "F32", [1 << 40, 1 << 40], bytes(4))]), "too large")]
        for data, says in cases:
            self.write("a.gguf", data)
            text = self.refuses("a.gguf", code=1, says="--opaque").stderr.decode()
            if says:
                self.assertTrue(any(s in text for s in says.split("|")), (says, text))
            self.write("a.bin", data)
            self.round_trip("a.bin", "-f")

    def test_npy(self):
        codes = {"<f2": ("F16", 2), "<f4": ("F32", 4), "<f8": ("F64", 8), "|u1": ("U8", 1), "|i1": ("I8", 1), "<i2": ("I16", 2), "<u2": ("U16", 2),
                 "<i4": ("I32", 4), "<u4": ("U32", 4), "<i8": ("I64", 8), "<u8": ("U64", 8), "|b1": ("BOOL", 1), "<c8": ("C64", 8), "<c16": ("C128", 16)}
        rng = random.Random(9)
        for descr, (dtype, size) in codes.items():
            for version in ((1, 0), (2, 0), (3, 0)):
                self.write("a.npy", npy(descr, (6, 7), rng.randbytes(42 * size), version=version))
                self.assertEqual(self.tensors("a.npy"), {"": (dtype, [6, 7], 42 * size)})
                os.unlink(self.path("a.npy.lmc"))
        for shape, fortran, want in (((), False, []), ((0, 3), False, [0, 3]), ((5,), True, [5]), ((2, 3, 4), True, [4, 3, 2])):
            n = 1
            for k in shape:
                n *= k
            self.write("a.npy", npy("<f4", shape, bytes(4 * n), fortran))
            self.assertEqual(self.tensors("a.npy"), {"": ("F32", want, 4 * n)})
            os.unlink(self.path("a.npy.lmc"))
        for data in (npy(">f4", (3,), bytes(12)), npy("<U5", (3,), bytes(60)), npy("[('a', '<f4'), ('b', '<i2', (2,))]", (3,), bytes(24), descr_is_text=False),
                     npy("|V2", (3,), bytes(6))):
            self.write("a.npy", data)
            self.assertEqual(self.tensors("a.npy"), {})
            os.unlink(self.path("a.npy.lmc"))

    def test_refused_npy(self):
        good = npy("<f4", (3, 4), bytes(48))
        cases = [b"", good[:5], good[:30], b"\x93NUMPX" + good[6:], good[:6] + b"\x04" + good[7:], good[:-1], good.replace(b"'shape'", b"'shApe'"),
                 good.replace(b"(3, 4)", b"(3, x)"), good.replace(b"(3, 4)", b"(-3,4)"), good.replace(b"(3, 4)", b"(3  4)"), good.replace(b"False", b"Fals "),
                 good.replace(b"(3, 4)", b"(9999999999999999999999,)"), npy("<f4", (1 << 40, 1 << 40), b""), npy("<f4", (1,) * 33, bytes(4)),
                 good[:8] + b"\xff\xff" + good[10:], good.replace(b"{", b"["), good.replace(b"'shape'", b"'descr'"), npy("<f4", (3,), bytes(8))]
        for data in cases:
            self.write("a.npy", data)
            self.refuses("a.npy", code=1, says="--opaque")
            self.write("a.bin", data)
            self.round_trip("a.bin", "-f")

    def test_dtype_option(self):
        self.write("a", bf16(50000))
        auto = self.round_trip("a")
        os.unlink(self.path("a.lmc"))
        self.assertLessEqual(self.round_trip("a", "--dtype", "BF16"), auto + 200)
        self.assertEqual(self.lmc("cat", "a.lmc", "[5:9]").stdout, self.read("a")[10:18])
        for dtype in ("F32", "U8", "F4", "C64", "F6_E2M3"):
            self.write("b", os.urandom(100001))
            self.round_trip("b", "-f", "--dtype=" + dtype)
        packed = self.lmc("--dtype", "BF16", stdin=self.read("a") * 3 + b"x").stdout
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, self.read("a") * 3 + b"x")

    def test_levels(self):
        self.write("a", bf16(200000))
        args = {"fast": ["--fast"], "default": [], "max": ["--max"], "archive": ["--archive"]}
        sizes = {level: self.round_trip("a", "-f", *options, "--dtype", "BF16") for level, options in args.items()}
        self.assertGreater(sizes["fast"], sizes["default"])
        self.assertLess(sizes["fast"], sizes["default"] + 8000)
        self.assertLess(sizes["max"], sizes["default"])
        self.assertLess(sizes["archive"], sizes["max"])
        self.assertEqual(self.round_trip("a", "-f", "--archive", "--fast", "--dtype", "BF16"), sizes["fast"]) # the last option counts
        for level in ("--fast", "--max", "--archive"):
            self.refuses(level, "-d", "a.lmc", code=2, says=level)
        self.refuses("-9", "a", code=2, says="--max")

    def test_mutated_headers(self):
        """No mutation crashes; accepted files are restored."""
        rng = random.Random(11)
        seeds = [("a.safetensors", safetensors([("w", "BF16", [4, 2], bf16(8)), ("v", "F32", [2], f32(2))])),
                 ("a.gguf", gguf([("a", "F32", [3, 5], f32(15)), ("q", "Q8_0", [64], bytes(68))], values=[("s", struct.pack("<IQ", 8, 3) + b"abc")])),
                 ("a.npy", npy("<f4", (3, 5), f32(15)))]
        for name, seed in seeds:
            for _ in range(1000 if LONG else 60):
                data = bytearray(seed)
                for _ in range(rng.randint(1, 3)):
                    data[rng.randrange(min(len(data), 200))] = rng.choice((0, 1, 255, 127, 128, 34, 44, 58, rng.randrange(256)))
                self.write(name, bytes(data))
                p = subprocess.run([LMC, "-c", name], cwd=self.dir, capture_output=True)
                self.assertIn(p.returncode, (0, 1), p.stderr)
                if p.returncode == 0:
                    self.assertEqual(self.lmc("-d", stdin=p.stdout).stdout, bytes(data))


if __name__ == "__main__":
    sys.exit(main())
