#!/usr/bin/env python3
"""Tests of lmc salvage. Usage: test_salvage.py [-v] [NAME...]; as case.py says."""
import json
import os
import random
import re
import shutil
import subprocess
import struct
import sys
from array import array

from case import LMC, Case, main, bf16, f32, halved, moved, safetensors

HEADER, SECTION_HEADER, BLOCK_HEADER, TRAILER = 64, 20, 24, 40


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def layout(data):
    """The sections and blocks of an intact snapshot, without BLKS and INDX: [(kind, at, size)], [(run, block, at, size)], the place of BLKS."""
    sections, blocks, at, run = [], [], HEADER, 0
    while data[at:at + 4] != b"BLKS":
        kind, size = struct.unpack("<4sQ", data[at:at + 12])
        body, size = at + SECTION_HEADER, SECTION_HEADER + size
        sections.append((kind, at, size))
        at += size
        if kind == b"RUN ":
            run_size, body = varint(data, body)
            block_size, _ = varint(data, body)
            for block in range(-(-run_size // block_size)):
                size = BLOCK_HEADER + struct.unpack("<I", data[at + 8:at + 12])[0]
                blocks.append((run, block, at, size))
                at += size
            run += 1
    return sections, blocks, at


def flipped(data, *places):
    data = bytearray(data)
    for at in places:
        data[at] ^= 0x10
    return bytes(data)


class Salvage(Case):
    def setUp(self):
        super().setUp()
        self.tensors = [("a", "BF16", [300, 400], bf16(120000, 1)), ("b", "F32", [90000], f32(90000, 2)), ("c", "F32", [50000], bytes(200000))]

    def pack(self, name="m.safetensors", data=None):
        self.write(name, data or safetensors(self.tensors))
        self.lmc("-q", name, "-o", "good.lmc")
        return self.read("good.lmc")

    def salvage(self, data, *args, code=0, says=None):
        """Salvages data to out/; returns the report. Whole files are right, and so are all bytes of others that are not reported as lost."""
        self.write("x.lmc", data)
        shutil.rmtree(self.path("out"), ignore_errors=True)
        self.lmc("salvage", "-o", "out", "x.lmc", *args, code=code, says=says or "")
        report = json.loads(self.read("out/salvage.json"))
        self.assertEqual(report["everything_recovered"], code == 0)
        return report

    def check(self, report, originals):
        for file in report["files"]:
            if "recovered_as" not in file or file["kind"] != "file" or "path" not in file:
                continue
            want = originals[file["path"]]
            got = self.read("out/" + file["recovered_as"])
            self.assertEqual(len(got), file["size"])
            want = bytearray(want)
            for lost in file["lost"]:
                want[lost["offset"]:lost["offset"] + lost["size"]] = bytes(lost["size"])
            self.assertEqual(got, bytes(want[:len(got)]))
            self.assertEqual(file["recovered_as"].startswith("whole/"), file["state"] == "intact")

    def test_whole_file(self):
        good = self.pack()
        before = self.read("good.lmc")
        p = self.lmc("salvage", "good.lmc", says="is whole")
        self.assertEqual(self.read("good.lmc"), before)
        self.assertEqual(self.tree("good.salvaged"), ["salvage.json", "whole", "whole/good"])
        self.assertEqual(self.read("good.salvaged/whole/good"), self.read("m.safetensors"))
        self.assertEqual(p.stdout.decode().count("intact"), 4)
        self.refuses(None, "salvage", "good.lmc", code=1, says="exists already")
        self.assertEqual(self.lmc("salvage", "-q", "-f", "good.lmc").stdout, b"")
        report = json.loads(self.lmc("salvage", "--json", "good.lmc", "-o", "o", says="is whole").stdout)
        self.assertEqual(report, json.loads(self.read("o/salvage.json")))
        self.assertTrue(report["file_is_whole"] and all(t["confirmed"] for t in report["files"][0]["tensors"]))
        self.assertEqual(len(good), len(before))

    def test_each_block(self):
        good = self.pack()
        sections, blocks, rows = layout(good)
        want = {"": self.read("m.safetensors")}
        self.assertGreater(len(blocks), 5)
        for cut in (0, TRAILER, TRAILER + 1, len(good) - rows):  # with the index, without the trailer, without both, without BLKS, too
            for run, block, at, size in blocks:
                for place in (at + 3, at + BLOCK_HEADER + (size - BLOCK_HEADER) // 2):
                    report = self.salvage(flipped(good, place)[:len(good) - cut], code=3)
                    self.check(report, want)
                    self.assertEqual(len(report["files"][0]["lost"]), 1)
                    self.assertEqual(report["files"][0]["lost"][0]["reason"], "missing" if place == at + 3 else "damaged")
                    self.assertLessEqual(report["bytes_lost"], 1 << 18)

    def test_cut(self):
        good = self.pack()
        rows = layout(good)[2]
        want = {"": self.read("m.safetensors")}
        rng = random.Random(3)
        last = None
        for n in sorted({400, rows, rows + 1, len(good) - TRAILER, len(good) - 1, *(rng.randrange(HEADER, rows) for _ in range(12))}):
            whole = n >= rows
            report = self.salvage(good[:n], code=0 if whole else 3, says="nothing is lost" if whole else None)
            self.check(report, want)
            if last is not None:
                self.assertLessEqual(report["bytes_lost"], last)
            last = report["bytes_lost"] if report["files"] else None
            if not whole and n > 1000:
                self.assertEqual([t["name"] for t in report["files"][0]["tensors"]], ["a", "b", "c"])
        self.write("x.lmc", good[:50])
        self.lmc("salvage", "x.lmc", code=3, says="nothing of a snapshot")
        self.write("x.lmc", os.urandom(5000))
        self.lmc("salvage", "x.lmc", code=3, says="nothing of a snapshot")
        self.assertNotIn("x.salvaged", self.tree())

    def test_sections_and_names(self):
        data = {"d/m.safetensors": safetensors(self.tensors), "d/n.bin": os.urandom(400000), "d/sub/empty": b"", "d/z.txt": b"text" * 90}
        for name, content in data.items():
            self.write(name, content)
        os.mkdir(self.path("d/void"))
        self.lmc("-q", "d", "-o", "good.lmc")
        good = self.read("good.lmc")
        data = {k[2:]: v for k, v in data.items()}
        sections, blocks, rows = layout(good)
        for kind, at, size in sections:  # the index has them all
            report = self.salvage(flipped(good, at + size // 2), code=0, says="nothing is lost")
            self.check(report, data)
            self.assertEqual({f["path"] for f in report["files"] if f["kind"] == "file"}, set(data))
        for kind, at, size in sections:
            report = self.salvage(flipped(good, at + size // 2)[:rows], code=3)
            self.check(report, data)
            if kind == b"FILE":
                self.assertEqual(sum("path" not in f for f in report["files"]), 1)
                unnamed = [f for f in report["files"] if "path" not in f][0]
                if unnamed["size"]:
                    self.assertIn(self.read("out/" + unnamed["recovered_as"]), data.values())
        # the first header, and all descriptions of files
        report = self.salvage(flipped(good, 20), code=0, says="nothing is lost")
        self.check(report, data)
        self.assertIn("whole/void", self.tree("out"))

    def test_safetensors_header_is_lost(self):
        good = self.pack()
        _, blocks, _ = layout(good)
        report = self.salvage(flipped(good, blocks[0][2] + 30), code=3)
        file = report["files"][0]
        if all(t["state"] == "intact" for t in file["tensors"]):
            self.assertGreater(file["lost_outside_tensors"], 0)
        self.assertEqual([t["shape"] for t in file["tensors"]], [[300, 400], [90000], [50000]])

    def test_elements(self):
        good = self.pack()
        for run, block, at, size in layout(good)[1]:
            for t in self.salvage(flipped(good, at + 5), code=3)["files"][0]["tensors"]:
                width = 2 if t["dtype"] == "BF16" else 4
                self.assertEqual(t["state"] == "intact", t["lost"] == [])
                for lost in t["lost"]:
                    self.assertEqual((lost["first_element"], lost["elements"]), (lost["offset"] // width, lost["size"] // width))

    def test_delta(self):
        base = safetensors(self.tensors)
        tensors = [(n, d, s, moved(b, 2 if d == "BF16" else 4, 0.02)) for n, d, s, b in self.tensors[:2]]
        tensors.append(("new", "F32", [60000], f32(60000, 9)))
        new = safetensors(tensors)
        self.write("base.safetensors", base)
        self.write("new.safetensors", new)
        self.lmc("-q", "new.safetensors", "--base", "base.safetensors", "-o", "good.lmc")
        good = self.read("good.lmc")
        self.check(self.salvage(good, "--base", "base.safetensors", says="is whole"), {"": new})
        report = self.salvage(good, "--no-search", code=4, says="2 tensors more")
        self.check(report, {"": new})
        states = {t["name"]: t["state"] for t in report["files"][0]["tensors"]}
        self.assertEqual(states["new"], "intact")
        self.assertNotEqual(states["a"], "intact")
        self.lmc("salvage", "--no-search", "good.lmc", "--base", "new.safetensors", code=4, says="needs the base")
        for run, block, at, size in layout(good)[1]:
            report = self.salvage(flipped(good, at + 30), "--base", "base.safetensors", code=3)
            self.check(report, {"": new})
        report = self.salvage(flipped(good, 40), "--base", "base.safetensors", code=0, says="nothing is lost")  # its header is damaged
        self.check(report, {"": new})
        report = self.salvage(flipped(good, 40), "--base", "new.safetensors", code=3)
        self.check(report, {"": new})

    def chain(self):
        """c/0.lmc, c/1.lmc (a delta), c/2.lmc (a delta of that); returns the files that they restore."""
        versions, tensors = [], self.tensors[:2]
        for i in range(3):
            versions.append(safetensors(tensors))
            self.write("%d.safetensors" % i, versions[-1])
            args = ["--base", "c/%d.lmc" % (i - 1)] if i else []
            os.makedirs(self.path("c"), exist_ok=True)
            self.lmc("-q", "%d.safetensors" % i, "-o", "c/%d.lmc" % i, *args)
            tensors = [(n, d, s, moved(b, 2 if d == "BF16" else 4, 0.02)) for n, d, s, b in tensors]
        return versions

    def test_base_is_found(self):
        """The base is not named: it is beside the delta, or in --search; a message says which one was used."""
        want = {"": self.chain()[2]}
        delta = self.read("c/2.lmc")
        self.write("c/x.lmc", delta)
        p = self.lmc("salvage", "c/x.lmc", "-o", "out", says="its base is c/1.lmc")
        self.assertIn(b"is whole", p.stderr)
        self.check(json.loads(self.read("out/salvage.json")), want)
        self.check(self.salvage(delta, "--search", "c", says="its base is c/1.lmc"), want)
        self.check(self.salvage(flipped(delta, 40), "--search", "c", says="its base is c/1.lmc"), want)  # the index names it
        self.check(self.salvage(delta, "--no-search", code=4, says="given by --base"), want)
        os.remove(self.path("c/0.lmc"))
        self.check(self.salvage(delta, "--search", "c", code=4, says="given by --base"), want)

    def test_base_is_damaged(self):
        """A lost block of the base loses only what is coded against it, in each link of the chain."""
        versions = self.chain()
        want, delta = {"": versions[2]}, self.read("c/2.lmc")
        for name in "01":
            good = self.read("c/%s.lmc" % name)
            run, block, at, size = layout(good)[1][2]
            os.remove(self.path("c/%s.lmc" % name))
            self.write("c/%s.lmc" % name, flipped(good, at + size // 2))
            for option in "--base", "--search":
                args = ["--base", "c/0.lmc", "--base", "c/1.lmc"] if option == "--base" else ["--search", "c"]
                report = self.salvage(delta, *args, code=3, says="c/%s.lmc: is damaged" % name)
                self.check(report, want)
                self.assertEqual({lost["reason"] for lost in report["files"][0]["lost"]}, {"payload intact; content needs another base"})
                self.assertLessEqual(report["bytes_lost"], 1 << 19)
                self.assertEqual(sum(t["state"] == "intact" for t in report["files"][0]["tensors"]), 1)
            self.write("copy/%s.lmc" % name, good)
            self.check(self.salvage(delta, "--search", "c", "--search", "copy", code=3, says="copy/%s.lmc: has the same content as c/%s.lmc" % (name, name)), want)
            self.check(self.salvage(delta, "--search", "copy", "--search", "c"), want)
            os.remove(self.path("c/%s.lmc" % name))
            self.write("c/%s.lmc" % name, good)

    def test_twins(self):
        master = f32(200000, 5)
        data = safetensors([("master", "F32", [200000], master), ("w", "BF16", [200000], halved(master))])
        good = self.pack(data=data)
        self.check(self.salvage(good, says="is whole"), {"": data})
        for run, block, at, size in layout(good)[1]:
            report = self.salvage(flipped(good, at + size // 2), code=3)
            self.check(report, {"": data})

    def test_quantised(self):
        rng = random.Random(8)
        second = array("f", (rng.random() ** 4 * 1e-6 for _ in range(150000))).tobytes()
        data = safetensors([("m.exp_avg_sq", "F32", [150000], second), ("w", "BF16", [100000], bf16(100000))])
        self.write("m.safetensors", data)
        self.lmc("-q", "--quant", "*=bits:8", "m.safetensors", "-o", "good.lmc", says="")
        self.lmc("-q", "-d", "good.lmc", "-o", "restored")
        want = {"": self.read("restored")}
        good = self.read("good.lmc")
        self.check(self.salvage(good, says="is whole"), want)
        for run, block, at, size in layout(good)[1]:
            self.check(self.salvage(flipped(good, at + size - 5), code=3), want)

    def test_moved_and_foreign_blocks(self):
        good = self.pack()
        sections, blocks, rows = layout(good)
        want = {"": self.read("m.safetensors")}
        a, b = blocks[1], blocks[2]
        swapped = bytearray(good)
        swapped[a[2]:b[2] + b[3]] = good[b[2]:b[2] + b[3]] + good[a[2]:a[2] + a[3]]
        if a[2] + a[3] == b[2]:
            self.check(self.salvage(bytes(swapped), says="nothing is lost"), want)
        for n in (1, 100, 5000):  # bytes before a block, bytes missing in one
            at = blocks[3][2]
            self.check(self.salvage(good[:at] + os.urandom(n) + good[at:], says="nothing is lost"), want)
            self.check(self.salvage(good[:at + 50] + good[at + 50 + n:], code=3), want)
        # blocks of another file with the same numbers and sizes: BLKS tells them apart
        self.write("other", bytes(x ^ 1 for x in os.urandom(300000)))
        self.write("ours", os.urandom(300000))
        self.lmc("-q", "other", "-o", "other.lmc")
        self.lmc("-q", "-f", "ours", "-o", "good.lmc")
        good, other = self.read("good.lmc"), self.read("other.lmc")
        _, _, at, size = layout(good)[1][1]
        report = self.salvage(good[:at] + other[at:at + size] + good[at + size:], code=3)
        self.check(report, {"": self.read("ours")})
        self.assertGreater(report["bytes_lost"], 0)

    def test_lost_run(self):
        self.write("d/a", os.urandom(600000))
        self.write("d/b", os.urandom(300000))
        self.lmc("-q", "d", "-o", "good.lmc")
        good = self.read("good.lmc")
        sections, blocks, rows = layout(good)
        at = [s[1] for s in sections if s[0] == b"RUN "]
        # its place is certain: nothing of it is lost
        self.check(self.salvage(flipped(good, at[0] + 20)[:rows], code=3), {"a": self.read("d/a"), "b": self.read("d/b")})
        # no section is left: the blocks become, one after another, a file without a name
        self.write("x.lmc", flipped(good, *(s[1] + 3 for s in sections))[:rows])
        self.lmc("salvage", "x.lmc", code=3, says="0 of 1 files intact")
        self.assertEqual(self.tree("x.salvaged"), ["salvage.json", "unnamed", "unnamed/file-0000"])
        self.assertEqual(self.read("x.salvaged/unnamed/file-0000"), self.read("d/a") + self.read("d/b"))

    def test_usage(self):
        self.pack()
        for args in (["-o", "-"], ["-c"], ["-r"], ["--rm"], ["good.lmc"]):
            self.refuses(None, "salvage", "good.lmc", *args, code=2, says="")
        self.refuses(None, "salvage", "-", code=2, says="")
        self.refuses(None, "salvage", "none.lmc", code=1, says="cannot open it")
        self.write("full/keep", b"x")
        self.refuses(None, "salvage", "-f", "good.lmc", "-o", "full", code=1, says="is not replaced")

    def test_damage_at_random(self):
        good = self.pack()
        want = {"": self.read("m.safetensors")}
        rng = random.Random(11)
        for i in range(40):
            data = bytearray(good)
            for _ in range(rng.choice((1, 2, 8, 40))):
                at, n = rng.randrange(len(data)), rng.choice((1, 1, 30, 4096))
                data[at:at + n] = rng.randbytes(len(data[at:at + n]))
            if i % 3 == 0:
                del data[rng.randrange(len(data)):]
            self.write("x.lmc", bytes(data))
            p = subprocess.run([LMC, "salvage", "-q", "-f", "-o", "out", "x.lmc"], cwd=self.dir, capture_output=True, timeout=100)
            self.assertIn(p.returncode, (0, 3), p.stderr)
            if os.path.exists(self.path("out/salvage.json")):
                self.check(json.loads(self.read("out/salvage.json")), want)
                shutil.rmtree(self.path("out"))


def index_body(data):
    index, size, _ = struct.unpack("<QQQ", data[-40:-16])
    return data[index + 20:index + size]


def index_replaced(data, body):
    """A snapshot with another body of its index, and with the right checksums for it."""
    def crc32c(b):
        crc = 0xFFFFFFFF
        for byte in b:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF
    index = struct.unpack("<Q", data[-40:-32])[0]
    head = b"INDX" + struct.pack("<Q", len(body))
    head += struct.pack("<II", crc32c(head), crc32c(body))
    trailer = struct.pack("<QQQBBH", index, 20 + len(body), index + 20 + len(body) + 40, 1, 0, 0)
    return data[:index] + head + body + trailer + struct.pack("<I", crc32c(trailer)) + b"\x94LMC\r\n\x1a\n"


def ends(part):
    return part["offset"], part["offset"] + part["size"] - 1


def place_of_damage(text):
    """(path, tensor or None, first byte, last byte), as a message states them."""
    place = re.search(r"\(bytes (\d+) to (\d+) of (?:the tensor '(\w+)')?(?: of )?(?:'([^']+)')?", text)
    return (place[4] or "", place[3], int(place[1]), int(place[2])) if place else text


class Places(Case):
    """All verbs name the same place of damage. Docstrings in the past tense tell the fault that a test is for."""

    def test_a_lost_beginning(self):
        """The first page is lost: this is not reported as "not an LMC file", because the end is that of an LMC file."""
        self.write("a", safetensors([("w", "BF16", [60000], bf16(60000))]))
        self.lmc("a")
        self.write("b.lmc", bytes(4096) + self.read("a.lmc")[4096:])
        for args in (["-t", "b.lmc"], ["-d", "-o", "x", "b.lmc"], ["cat", "b.lmc", "w"]):
            self.refuses(None, *args, code=3, says="'lmc salvage' recovers it then")
        self.write("c.lmc", bytes(9000))
        self.assertNotIn(b"salvage", self.refuses(None, "-t", "c.lmc", code=3, says="").stderr)

    def test_what_is_damaged(self):
        """Messages name file, tensor and remedy; all verbs count bytes after the end."""
        names = ["w%d" % i for i in range(5)]
        self.write("d/a.safetensors", safetensors([(n, "BF16", [100000], bf16(100000, i)) for i, n in enumerate(names)]))
        self.write("d/config.json", b"{}")
        self.lmc("d")
        data = self.read("d.lmc")
        at = len(data) * 6 // 10
        self.write("flip.lmc", data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
        for args in (("-t", "flip.lmc"), ("-d", "-o", "out", "flip.lmc")):
            text = self.refuses(None, *args, code=3).stderr.decode()
            self.assertIn("'lmc salvage' recovers what is intact", text)
            tensor = re.search(r"\(bytes \d+ to \d+ of the tensor '(w\d)' of 'a.safetensors'\)", text)[1]
            self.lmc("cat", "flip.lmc", tensor, code=3, says="of the tensor '%s'" % tensor)
        lost = json.loads(self.lmc("salvage", "--json", "flip.lmc", code=3).stdout)
        self.assertIn(tensor, [t["name"] for f in lost["files"] for t in f["tensors"] if t["state"] != "intact"])
        for more, says in (b"xyz", "3 bytes follow the end of the snapshot, which is at %d: cut them off"), (data, "split the file at byte %d"):
            self.write("long.lmc", data + more)
            for args in (("-t",), ("-l",), ("-d", "-o", "out"), ("cat", "-o", "out"), ("verify",), ("stats",)):
                self.refuses(None, *args, "long.lmc", *(["w1"] if args[0] == "cat" else []), code=3, says=says % len(data))
        self.write("text.lmc", data.replace(b"\r\n", b"\n"))
        for args in (("-t",), ("-l",)):
            self.lmc(*args, "text.lmc", code=3, says="send it as binary data")
        self.write("version.lmc", data[:8] + b"\3" + data[9:])  # this reader cannot check what follows another version
        self.lmc("-t", "version.lmc", code=1, says="written by a newer lmc, in format 3.0: update lmc")
        for back in (200, 30):  # the index and the trailer: no file is named, for all are intact
            self.write("end.lmc", data[:-back] + bytes([data[-back] ^ 16]) + data[1 - back:])
            for args in (("-t",), ("-l",), ("-d", "-o", "out"), ("verify",), ("cat",)):
                p = self.refuses(None, *args, "end.lmc", *(["w1"] if args[0] == "cat" else []), code=3)
                self.assertIn("(in the index, the table at the end)", p.stderr.decode())
            self.write("both.lmc", data[:at] + bytes([data[at] ^ 1]) + data[at + 1:-back] + bytes([data[-back] ^ 16]) + data[1 - back:])
            text = self.refuses(None, "-t", "both.lmc", code=3).stderr.decode()
            self.assertRegex(text, r"\(bytes \d+ to \d+ of the tensor '%s' of 'a.safetensors'\)" % tensor)
        self.dump("version.lmc", code=3, says="but was, as Header_CRC tells")
        self.lmc("-d", "d/config.json", code=3, says="not an LMC file")
        self.lmc("cat", "d.lmc", "w1[5000000]", code=2, says="has 100000 elements in dimension 0, and the slice asks for number 5000000")

    def test_cat_of_another_tensor(self):
        """Blocks of one snapshot with the index of another one. `cat`, which reads large tensors in parts, accepted them as the tensor that the index
        names."""
        packed = []
        for i in range(2):
            noise = bytes(random.Random(7).randbytes(5 << 20)[:-1]) + bytes([i]) # noise is stored: all blocks have one size
            self.write("n%d" % i, safetensors([("w", "U8", [5 << 20], noise)]))
            self.lmc("n%d" % i)
            packed.append(self.read("n%d.lmc" % i))
        bodies = [index_body(data) for data in packed]
        self.assertEqual(len(bodies[0]), len(bodies[1]))
        told = [json.loads(self.lmc("-l", "--json", "n%d.lmc" % i).stdout) for i in range(2)]
        body = bodies[1]
        for find in (lambda s: s["fingerprint"], lambda s: s["files"][0]["tensors"][0]["fingerprint"]):
            self.assertIn(bytes.fromhex(find(told[1])), body)
            body = body.replace(bytes.fromhex(find(told[1])), bytes.fromhex(find(told[0])))
        self.write("forged.lmc", index_replaced(packed[1], body))
        self.lmc("cat", "n1.lmc", "w", "-o", "w")
        self.assertEqual(self.read("w"), noise)
        self.refuses(None, "cat", "forged.lmc", "w", "-o", "v", code=3, says="in the tensor 'w'")
        self.assertFalse(os.path.exists(self.path("v")))

    def test_damage_is_in_the_tensor_that_is_named(self):
        """The place is exact: in steps of 64 KiB, a tensor before it would be named."""
        self.write("d/a.safetensors", safetensors(
            [("a", "BF16", [100000], bf16(100000))] + [("n%d" % i, "BF16", [3000], bf16(3000, i)) for i in range(4)] +
            [("f%d" % i, "F32", [2000], f32(2000)) for i in range(3)] + [("b", "BF16", [100000], bf16(100000, 7))]))
        self.write("d/z.txt", b"hello world " * 1000)
        self.lmc("d")
        data = self.read("d.lmc")
        for k in range(12):
            at = 800 + (len(data) - 1900) * k // 11
            self.write("flip.lmc", data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
            text = self.lmc("-t", "flip.lmc", code=3).stderr.decode()
            lost = json.loads(self.lmc("salvage", "--json", "-o", "saved%d" % k, "flip.lmc", code=3).stdout)["files"]
            self.assertIn(place_of_damage(text), [(f["path"], t["name"], *ends(part)) for f in lost for t in f["tensors"] for part in t["lost"]] +
                          [(f["path"], None, *ends(part)) for f in lost for part in f["lost"]], text)

    def test_one_place_for_one_damage(self):
        """All verbs name the same bytes of the tensor, also
        where blocks are decoded together."""
        sizes = [400000, 70000, 300000]
        self.write("a.safetensors", safetensors([("w%d" % i, "BF16", [n], bf16(n, i)) for i, n in enumerate(sizes)]))
        self.lmc("a.safetensors")
        data = self.read("a.safetensors.lmc")
        for k in range(10):
            at = 2000 + (len(data) - 4000) * k // 9
            self.write("flip.lmc", data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1:])
            lost = json.loads(self.lmc("salvage", "--json", "-o", "saved%d" % k, "flip.lmc", code=3).stdout)["files"][0]
            (tensor, part), = [(t["name"], part) for t in lost["tensors"] for part in t["lost"]]
            for args in (("-t", "flip.lmc"), ("-d", "-o", "out", "flip.lmc"), ("-dc", "flip.lmc"), ("verify", "flip.lmc"), ("cat", "flip.lmc", tensor),
                         ("cat", "flip.lmc", "%s[%d:%d]" % (tensor, part["first_element"] + 5, part["first_element"] + 6)), ("stats", "flip.lmc"),
                         ("diff", "flip.lmc", "a.safetensors"), ("rebase", "--onto", "none", "flip.lmc", "-o", "out"),
                         ("cat", "flip.lmc", "--safetensors", "-o", "out")):
                text = self.refuses(None, *args, code=3).stderr.decode()
                self.assertEqual(place_of_damage(text), ("", tensor, *ends(part)), text)


if __name__ == "__main__":
    sys.exit(main())
