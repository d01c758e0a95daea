#!/usr/bin/env python3
"""spec/dump.py, which prints every field of a snapshot.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import io
import os
import random
import re
import struct
import subprocess
import sys

from case import LONG, ROOT, Case, main


class Dump(Case):
    def vector(self, kind, name):
        return os.path.join(ROOT, "spec", "vectors", kind, name + ".lmc")

    def test_every_byte_has_a_name_of_the_page(self):
        """For every vector: no line says !!, fields have no gaps, and the specification has their names."""
        with open(os.path.join(ROOT, "spec", "lmc-format.md"), encoding="utf-8") as f:
            page = f.read()
        names = [name[:-4] for name in sorted(os.listdir(os.path.join(ROOT, "spec", "vectors", "valid"))) if name.endswith(".lmc")]
        seen = set()
        for name in names[::1 if LONG else 9]:
            path = self.vector("valid", name)
            text, at = self.dump(path), 0
            self.assertNotIn("!!", text, name)
            for line in text.splitlines():
                if line.startswith("      -- "):
                    continue
                self.assertEqual(int(line.split()[0], 16), at, (name, line))
                field = line[6 + (line.index("  ") - 4):].lstrip()
                at += int(field[1:].split()[0]) if field.startswith("(") else len(field[:47].split("  ")[0].split())
                seen.update(line.split("  ")[-1].split()[:1] if len(line) > 54 else [])
            self.assertEqual(at, os.path.getsize(path), name)
        for name in seen - {"Record"}:
            self.assertIn(name, page)
        self.assertTrue({"Payload_CRC", "Snapshot_Fingerprint", "Stored_Size", "Dtype_String", "Mtime_Nanoseconds", "N_Segments", "Key_Size", "Tag", "Error", "Payload"} <= seen)
        with open(path, "rb") as f:
            self.assertEqual(self.dump("-", stdin=f.read()), text)

    def test_bad_vectors(self):
        """A dump reports what it checks."""
        for name, code, says in (("header_crc", 3, "at byte 60: Header_CRC should be"), ("section_head_crc", 3, "Head_CRC should be"),
                                 ("section_body_crc_run", 3, "Body_CRC should be"), ("truncated_0084", 3, "the file ends here"), ("no_lmc_file", 3, "this is no LMC file"),
                                 ("version_major_2", 1, "Format_Major"),
                                 ("incompatible_bit_6", 1, "Incompatible bit 6 is unknown: of a newer version"), ("records_critical_run", 1, "Tag 1 is unknown"),
                                 ("run_prediction_6", 1, "Prediction is unknown"), ("block_layout_6", 1, "Width or Coding is unknown")):
            self.assertIn("  !! ", self.dump(self.vector("invalid", name), code=code, says=says), name)

    def test_every_cut_and_flip(self):
        with open(self.vector("valid", "example_gaps"), "rb") as f:
            good = f.read()
        for size in range(0, len(good), 7):
            self.assertEqual(self.run_on(good[:size]), 3, size)
        for at in range(0, len(good), 5):
            self.assertIn(self.run_on(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1:]), (0, 1, 3), at)

    def run_on(self, data):
        sys.path.insert(0, os.path.join(ROOT, "spec"))
        import dump
        sys.path.pop(0)
        return dump.Dump(io.BufferedReader(io.BytesIO(data)), lambda text: None).all()

    def test_headers(self):
        """Payloads are skipped: damage there is not found, a missing end of the file is."""
        self.write("a", random.Random(1).randbytes(300000))
        self.lmc("a")
        good = self.read("a.lmc")
        at = int(re.findall(r"([0-9A-F]+)  \(\d+ bytes\) +Payload\n", self.dump("a.lmc"))[0], 16)
        self.assertEqual(self.dump("--headers", "a.lmc"), self.dump("a.lmc"))
        self.write("a.lmc", good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        self.dump("a.lmc", code=3, says="Content_CRC should be")
        self.dump("--headers", "a.lmc")
        with open(self.path("b.lmc"), "wb") as f:  # standard input that begins in the middle of a file
            f.write(bytes(9999) + good[:at + 1000])
        with open(self.path("b.lmc"), "rb") as f:
            f.seek(9999)
            p = subprocess.run([sys.executable, os.path.join(ROOT, "spec", "dump.py"), "--headers", "-"], stdin=f, capture_output=True)
        self.assertEqual((p.returncode, p.stderr), (3, b"dump: standard input: at byte %d: the file ends here, within Payload\n" % (at + 1000)))
        self.write("a.lmc", good[:at + 1000])
        self.dump("--headers", "a.lmc", code=3, says="at byte %d: the file ends here, within Payload" % (at + 1000))
        self.dump("--header", "a.lmc", code=2, says="Usage")
        self.dump("none.lmc", code=1, says="No such file")
        with subprocess.Popen([sys.executable, os.path.join(ROOT, "spec", "dump.py"), self.vector("valid", "group_many")], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
            p.stdout.close()
            self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))

    def test_a_field_longer_than_its_body(self):
        """It is an error, and nothing is read behind the body."""
        with open(self.vector("valid", "example_gaps"), "rb") as f:
            header = f.read(64)
        body = b"\1\0\0\xD0\x0F" + b"p" * 1500  # a path of 2,000 bytes
        self.write("p.lmc", header + b"FILE" + struct.pack("<QII", len(body), 0, 0) + body)
        self.assertIn("(1500 bytes)", self.dump("p.lmc", code=3, says="Head_CRC should be"))
        self.assertIn("!! the body ends within Path_Rest", self.dump("p.lmc", code=3))


if __name__ == "__main__":
    sys.exit(main())
