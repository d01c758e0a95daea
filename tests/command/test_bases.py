#!/usr/bin/env python3
"""Bases of deltas: how they are found, messages about them, chains.

Usage: test_bases.py [--brief] [-v] [NAME...]      as case.py says
Docstrings in the past tense tell the fault that a test is for. SPDX-License-Identifier: MIT
"""
import json
import os
import re
import shutil
import subprocess
import sys

from case import LMC, ROOT, Case, bf16, f32, gguf, main, moved, npy, safetensors
from torch_files import torch_file


class Messages(Case):
    """Messages about a base that is missing, wrong, damaged or useless."""

    def test_why_a_pipe_has_no_delta(self):
        """The message names the pipe, not a missing name and size: the base may be the very same file."""
        data = bf16(600000)
        self.write("a.bin", data)
        p = self.lmc("--base", "a.bin", "-o", "x.lmc", stdin=data, says="it comes from a pipe")
        self.assertIn(b"save it to a file", p.stderr)
        self.assertNotIn(b"no tensor or file has the same name", p.stderr)
        self.lmc("-q", "-d", "x.lmc", "-o", "restored")
        self.assertEqual(self.read("restored"), data)
        self.write("other", bf16(300, 9))
        self.lmc("--base", "a.bin", "other", says="no tensor or file has the same name and size")

    def test_base_is_missing_and_nothing_has_changed(self):
        """A delta with the same fingerprint as its base, because only headers differ, is not a loop."""
        tensors = [("w", "BF16", [3000], bf16(3000))]
        self.write("0.safetensors", safetensors(tensors))
        for i in (1, 2, 3):
            self.write("%d.safetensors" % i, safetensors(tensors, metadata={"step": str(i)}))
            base = "%d.safetensors" % (i - 1) if i == 1 else "sg/%d.lmc" % (i - 1)
            os.makedirs(self.path("sg"), exist_ok=True)
            self.lmc("-q", "--base", base, *["--base", "0.safetensors"][:2 * (i > 1)], "%d.safetensors" % i, "-o", "sg/%d.lmc" % i)
        self.lmc("verify", "--base", "0.safetensors", "sg/3.lmc", "sg/2.lmc", "sg/1.lmc")
        for names in (["1"], ["1", "2"], ["3", "2", "1"], ["2", "3"]):
            p = self.lmc("verify", *["sg/%s.lmc" % n for n in names], code=4, says="needs the base")
            self.assertNotIn(b"loop", p.stderr)
        for n in "123":
            chain = [l for l in self.lmc("-l", "sg/%s.lmc" % n).stdout.decode().splitlines() if l.startswith("  chain")]
            self.assertEqual(chain[0].count("<-"), 0, chain)  # the others need the same base
            p = self.lmc("-t", "sg/%s.lmc" % n, code=4, says="needs the base")
            self.assertNotIn(b"loop", p.stderr)

    def test_a_needless_base_is_named(self):
        """The right base is beside the delta: the given one is not used."""
        os.mkdir(self.path("c"))
        for i in (0, 2):
            self.write("%d.safetensors" % i, safetensors([("w", "BF16", [3000], bf16(3000, i))]))
        self.lmc("-q", "0.safetensors", "-o", "c/0.lmc")
        self.write("1.safetensors", safetensors([("w", "BF16", [3000], moved(bf16(3000, 0), 2, 0.02))]))
        self.lmc("-q", "--base", "c/0.lmc", "1.safetensors", "-o", "c/1.lmc")
        self.lmc("-q", "2.safetensors", "-o", "o.lmc")
        self.lmc("-t", "--base", "o.lmc", "c/1.lmc", says="not the base that is needed: o.lmc; c/0.lmc was found and is used\n")
        self.lmc("salvage", "--base", "o.lmc", "c/1.lmc", "-o", "out", says="not the base that is needed: o.lmc; c/0.lmc was found and is used\n")
        self.lmc("-t", "--base", "c/0.lmc", "c/1.lmc")

    def test_bases_that_are_not_needed(self):
        """A base that is of no use is named, and --rm does not remove the source then."""
        weights = bf16(40000)
        self.write("a.st", safetensors([("w", "BF16", [40000], weights)]))
        self.write("b.st", safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01))]))
        self.write("c.st", safetensors([("other", "BF16", [40000], bf16(40000, 2))]))
        self.lmc("--base", "a.st", "--base", "c.st", "b.st", says="bases that are not needed: c.st")
        self.refuses("--rm", "--base", "a.st", "-o", "b.st.lmc", "c.st", code=1)
        self.lmc("--base", "a.st", "c.st", says="nothing of it was found in the base a.st")
        os.unlink(self.path("c.st.lmc"))
        self.lmc("--rm", "--base", "a.st", "c.st", code=1, says="is not removed: nothing of it was found in the base a.st")
        self.assertTrue(os.path.exists(self.path("c.st")))
        self.lmc("-v", "-f", "--base", "a.st", "b.st", says=" of the bytes are coded against a.st")
        self.lmc("--rm", "-f", "--base", "a.st", "b.st")
        self.assertFalse(os.path.exists(self.path("b.st")))

    def test_messages_about_bases(self):
        """-v says which base is found; a delta is not listed as a base of its own; a raw file beside a delta is found,
        also if the base was compressed."""
        weights = bf16(40000)
        self.write("x.pt", safetensors([("w", "BF16", [40000], weights)]))
        self.write("y.st", safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01))]))
        self.write("same.st", self.read("x.pt"))
        self.lmc("x.pt")
        self.lmc("--base", "x.pt.lmc", "y.st")
        self.lmc("--base", "x.pt.lmc", "same.st")
        self.lmc("-v", "-t", "y.st.lmc", says="y.st.lmc: its base is x.pt.lmc")
        os.unlink(self.path("x.pt.lmc"))
        self.lmc("-v", "-t", "y.st.lmc", says="y.st.lmc: its base is x.pt\n")
        os.makedirs(self.path("away"))
        os.rename(self.path("x.pt"), self.path("away/x.pt"))
        wanted = self.listing("same.st.lmc")["fingerprint"][:16]
        text = self.lmc("-t", "same.st.lmc", code=4).stderr.decode()
        self.assertIn("needs the base " + wanted, text)
        self.assertNotIn("is " + wanted, text)

    def test_a_damaged_base_hides_no_good_one(self):
        """An .lmc file with a damaged index, in a directory to search or beside its own source, does not hide a good one. One with a damaged block is an
        error; a file that is given is preferred."""
        weights = bf16(40000)
        self.write("a.st", safetensors([("w", "BF16", [40000], weights)]))
        self.write("b.st", safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01))]))
        self.write("else/raw.st", self.read("a.st"))
        self.lmc("a.st")
        self.lmc("--base", "a.st", "b.st")
        packed = self.read("a.st.lmc")
        for at in (5000, len(packed) - 100):  # a block, the index
            self.write("a.st.lmc", packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1:])
            for args in (("--base", "else/raw.st", "--search", "."), ("--base", ".", "--base", "else/raw.st"), (),
                         ("--no-search", "--base", "a.st.lmc", "--base", "else/raw.st")):
                self.lmc("-t", *args, "b.st.lmc", code=3 if at == 5000 else 0, says="a.st.lmc: corrupt")
            self.lmc("-t", "--base", "else/raw.st", "b.st.lmc")
            self.lmc("-t", "--no-search", "--base", "a.st.lmc", "b.st.lmc", code=3)
        self.write("else/raw.st", self.read("b.st"))  # it is another base
        os.unlink(self.path("a.st"))
        self.lmc("-t", "--base", "else/raw.st", "b.st.lmc", code=3, says="a.st.lmc: corrupt")

    def test_listing_tells_of_raw_bases(self):
        """The listing said 'is not beside it' about the file that -t found."""
        weights = bf16(40000)
        for k, name in enumerate(("a.st", "b.st", "c.st")):
            self.write(name, safetensors([("w", "BF16", [40000], moved(weights, k, 0.01) if k else weights)]))
        self.lmc("--base", "a.st", "b.st")
        self.lmc("--base", "b.st.lmc", "c.st")
        self.assertRegex(self.lmc("-l", "b.st.lmc").stdout, rb"chain    [0-9a-f]{16}, perhaps a.st \('lmc -t' reads it and tells\)\n")
        self.assertRegex(self.lmc("-l", "c.st.lmc").stdout, rb"chain    b.st.lmc <- [0-9a-f]{16}, perhaps a.st \(")
        self.write("raw", self.read("a.st"))
        os.unlink(self.path("a.st"))
        self.assertRegex(self.lmc("-l", "--base", "raw", "b.st.lmc").stdout, rb"chain    [0-9a-f]{16}, perhaps raw \(")
        self.assertRegex(self.lmc("-l", "b.st.lmc").stdout, rb"chain    [0-9a-f]{16} is not beside it\n")

    def test_a_base_that_cannot_be_read(self):
        """A read error of its first bytes is an error: the file is not taken for raw bytes."""
        if not os.path.exists("/proc/self/mem"):
            self.skipTest("no /proc")
        self.write("a", b"hello" * 1000)
        self.refuses("--base", "/proc/self/mem", "a", code=1, says="/proc/self/mem: the base cannot be read: Input/output error")

    def test_a_base_that_is_missing(self):
        """Neither the delta itself nor unrelated snapshots are listed as what was 'found there', and the message says what to do."""
        weights = bf16(40000)
        self.write("hf-1", safetensors([("w", "BF16", [40000], weights)]))
        self.write("hf-2", safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01))]))
        self.lmc("hf-1")
        os.makedirs(self.path("q"))
        self.lmc("--base", "hf-1.lmc", "hf-2", "-o", "q/hf-2.lmc")
        needs = "q/hf-2.lmc: needs the base %s (named 'hf-1.lmc' when this delta was made); " % self.listing("hf-1.lmc")["fingerprint"][:16]
        advice = "; name it with --base PATH or --search DIR\n"
        verbs = (("-d", "-o", "x"), ("-t",), ("cat",), ("rebase", "--onto", "none", "-o", "x"))

        def said(says, *more):
            for verb in verbs:
                self.refuses(None, *verb, "q/hf-2.lmc", *more, code=4, says="lmc: " + needs + says)
        said("no other .lmc file is beside it" + advice)
        self.write("other", b"something else" * 100)
        self.lmc("other", "-o", "q/other.lmc")
        other = self.listing("q/other.lmc")["fingerprint"][:16]
        said("the only other .lmc file beside it does not restore that: q/other.lmc is " + other + advice)
        for k in range(39):
            self.write("q/%d.lmc" % k, self.read("q/other.lmc"))
        said("none of the 40 other .lmc files beside it restores that" + advice)
        self.write("q/hf-1.lmc", self.read("q/other.lmc"))  # another snapshot has its name
        said("none of the 41 other .lmc files beside it restores that: q/hf-1.lmc is " + other + advice)
        os.makedirs(self.path("empty"))
        said("none of the 41 other .lmc files where it was looked for restores that: q/hf-1.lmc is " + other + advice, "--search", "empty")
        said("given: other is %s; none of the 41 " % other, "--base", "other")
        self.refuses("-t", "--no-search", "q/hf-2.lmc", code=4, says=needs[:-2] + "; name it with --base PATH\n")
        self.refuses("-t", code=4, says=needs[len("q/hf-2.lmc"):].split(" (")[0] + advice, stdin=self.read("q/hf-2.lmc"))
        many = [a for k in range(9) for a in ("--base", "q/%d.lmc" % k)]  # the advice is never cut off
        text = self.refuses("-t", *many, "q/hf-2.lmc", code=4).stderr.decode()
        self.assertIn(" and 6 more; none of the 41 ", text)
        self.assertTrue(text.endswith(advice + "lmc: q/hf-2.lmc: its payload is intact\n"))

    def test_what_is_not_compressed_has_no_base(self):
        """--base with such a file is an error."""
        self.write("x.safetensors", safetensors([("w", "BF16", [100], bytes(200))]))
        self.write("d/x.safetensors", self.read("x.safetensors"))
        self.write("b.safetensors", safetensors([("w", "BF16", [100], bytes(200))]))
        for args in (("-l", "x.safetensors"), ("-l", "--json", "x.safetensors"), ("-l", "d"), ("cat", "x.safetensors", "w")):
            self.lmc(*args)
            p = self.refuses(None, *args, "--base", "b.safetensors", code=1, says="is not compressed, so it has no base: leave out --base")
            self.assertEqual(p.stdout, b"")

    def test_many_files_each_with_its_base(self):
        """What one request may cost is counted for each run anew, so that all of many files are deltas."""
        for name in ("old", "new"):
            os.mkdir(self.path(name))
            for i in range(100):
                data = bytearray(bf16(65536, i))
                if name == "new":
                    data[i] ^= 1
                self.write("%s/%d" % (name, i), bytes(data))
        self.lmc("-q", "--base", "old", "new", "-o", "new.lmc")
        self.assertLess(os.path.getsize(self.path("new.lmc")), 100 * 400)
        self.lmc("-q", "-d", "--base", "old", "new.lmc", "-o", "again")
        self.assertEqual(self.read("again/99"), self.read("new/99"))

    def test_share_of_the_base_in_bytes(self):
        """-v counts bytes: blocks say nothing, as an element of a tensor is a byte or eight."""
        old, new = bf16(40000), f32(60000, 2)
        self.write("a.st", safetensors([("w", "BF16", [40000], old), ("x", "F32", [10], bytes(40))]))
        self.write("b.st", safetensors([("w", "BF16", [40000], moved(old, 2, 0.01)), ("new", "F32", [60000], new)]))
        text = self.lmc("-v", "--base", "a.st", "b.st").stderr.decode()
        share = float(re.search(r"b\.st: ([0-9.]+) % of the bytes are coded against a\.st", text).group(1))
        self.assertAlmostEqual(share, 100 * 80000 / (80000 + 240000), delta=0.2)  # 25 %; the share of blocks differs


class Chains(Case):
    """The bases of a base are found without a --base of their own, and all that is missing is told at once."""

    def setUp(self):
        super().setUp()
        weights = bf16(40000)
        self.data = [safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01 * k, k))]) for k in range(5)]
        for k, d in enumerate(self.data):
            self.write("%d.st" % k, d)
            os.makedirs(self.path("s"), exist_ok=True)
            self.lmc("%d.st" % k, "-o", "s/%d.lmc" % k, *(["--base", "s/%d.lmc" % (k - 1)] if k else []))

    def away(self, name, to):
        os.makedirs(self.path(to), exist_ok=True)
        os.rename(self.path(name), self.path(os.path.join(to, os.path.basename(name))))

    def test_found_beside_and_elsewhere(self):
        self.restores("s/4.lmc", self.data[4])
        self.lmc("cat", "s/4.lmc", "w[3]")
        self.assertIn(b"  chain    s/3.lmc <- s/2.lmc <- s/1.lmc <- s/0.lmc\n", self.lmc("-l", "s/4.lmc").stdout)
        self.lmc("verify", "s/4.lmc")
        for k, to in ((0, "x"), (1, "x"), (2, "y/z")):
            self.away("s/%d.lmc" % k, to)
        self.refuses("-d", "-o", "out", "s/4.lmc", code=4, says="s/3.lmc: needs the base ")
        fingerprint = self.listing("y/z/2.lmc")["fingerprint"][:16]
        self.assertIn("s/3.lmc <- %s is not beside it\n" % fingerprint, self.lmc("-l", "s/4.lmc").stdout.decode())
        for args in (("--search", "x", "--search", "y/z"), ("--base", "x", "--base", "y/z"), ("--base", "x/0.lmc", "--base", "x/1.lmc", "--search=y/z")):
            self.restores("s/4.lmc", self.data[4], *args)
            self.lmc("verify", "s/4.lmc", *args)
            self.lmc("rebase", "-f", "--onto", "none", *args, "s/4.lmc", "-o", "whole.lmc")
        self.refuses("-t", "s/4.lmc", "--search", "nowhere", code=2, says="--search needs a directory")
        self.refuses("-t", "s/4.lmc", "--search", "x", "--search", "y/z", "--no-search", code=4)
        self.lmc("-d", "--base", "s", "--base", "x", "--base", "y/z", "-o", "s/out", "s/4.lmc")  # a directory to search is no base
        self.assertEqual(self.read("s/out"), self.data[4])

    def test_chain_of_deltas_against_raw_files(self):
        """Each delta was made against a raw file; the file that restores this raw file is a delta, too."""
        for k in range(4):
            os.makedirs(self.path("t"), exist_ok=True)
            self.lmc("%d.st" % k, "-o", "t/%d.lmc" % k, *(["--base", "%d.st" % (k - 1)] if k else []))
        for k in range(4):
            self.away("%d.st" % k, "raw")
        self.restores("t/3.lmc", self.data[3])
        self.assertIn(b"  chain    t/2.lmc <- t/1.lmc <- t/0.lmc\n", self.lmc("-l", "t/3.lmc").stdout)
        self.away("t/3.lmc", "u")
        self.restores("u/3.lmc", self.data[3], "--search", "t")
        self.lmc("cat", "--base", "t", "u/3.lmc", "w[3]")
        os.unlink(self.path("t/0.lmc"))
        self.refuses("-t", "u/3.lmc", "--search", "t", code=4, says="t/1.lmc: needs the base")
        self.write("u/same.lmc", self.read("u/3.lmc"))  # copies of it do not help
        self.refuses("-t", "u/3.lmc", code=4, says="needs the base")

    def test_all_that_is_missing(self):
        for k in (0, 2):
            self.away("s/%d.lmc" % k, "x")
        text = self.refuses("-t", "s/4.lmc", "--base", "s/3.lmc", "--base", "s/1.lmc", code=4).stderr.decode()
        for k, who in ((2, "s/3.lmc"), (0, "s/1.lmc")):
            self.assertIn("%s: needs the base %s" % (who, self.listing("x/%d.lmc" % k)["fingerprint"][:16]), text)
        self.assertIn("s/1.lmc is %s" % self.listing("s/1.lmc")["fingerprint"][:16], text)  # the snapshot that was found instead

    def test_a_file_beside_it(self):
        """The delta's base may be a plain file beside it; the content decides, not the name."""
        self.lmc("--base", "0.st", "1.st")
        self.restores("1.st.lmc", self.data[1])
        self.write("0.st", self.data[2])
        self.refuses("-t", "1.st.lmc", code=4, says="needs the base")
        self.write("sub/1.st.lmc", self.read("1.st.lmc"))
        self.refuses("-t", "sub/1.st.lmc", code=4)

    def test_what_was_found_is_not_overwritten(self):
        os.symlink("s/3.lmc", self.path("link"))
        before = self.read("s/3.lmc")
        self.lmc("cat", "-f", "-o", "s/3.lmc", "s/4.lmc", "w", code=1, says="would be changed")
        self.lmc("cat", "-f", "-o", "link", "s/4.lmc", "w", code=1, says="would be changed")
        self.assertEqual(self.read("s/3.lmc"), before)

    def test_no_link_is_overwritten_or_removed(self):
        """Links that were not named are protected like those of --base: all can still be restored, and nothing else has changed."""
        self.write("other.st", safetensors([("w", "BF16", [40000], moved(bf16(40000), 2, 0.1, 9))]))
        for args in (("-f", "--base", "s/3.lmc", "other.st", "-o", "s/1.lmc"), ("-f", "--rm", "--base", "s/3.lmc", "other.st", "-o", "s/0.lmc"),
                     ("rebase", "--onto", "none", "s/2.lmc", "-f", "-o", "s/1.lmc"), ("rebase", "--onto", "s/2.lmc", "s/4.lmc", "-f", "-o", "s/0.lmc"),
                     ("fold", "--base", "s/2.lmc", "s/3.lmc", "s/4.lmc", "-f", "-o", "s/1.lmc"), ("-d", "-f", "s/4.lmc", "-o", "s/2.lmc")):
            self.refuses(None, *args, code=1, says="is or belongs to a base")

    def test_what_its_own_base_needs(self):
        """--rm keeps a source where each snapshot would need the other. The base of the base is found: a file, a directory, a snapshot."""
        for k in range(2):
            self.write("ck-%d/m.st" % k, self.data[k])
            self.write("ck-%d/c.json" % k, b"{}")
        for old, new in (("0.st", "1.st"), ("ck-0", "ck-1")):
            self.lmc("--rm", "--base", old, new)
            for more in ((), ("--rm",), ("-f", "--rm", "-o", "x.lmc"), ("-c",)):
                self.refuses(old, *more, "--base", new + ".lmc", code=1, says="is needed to restore the base %s.lmc (%s)" % (new, old))
            self.lmc("-d", new + ".lmc")
        self.assertEqual(self.read("1.st"), self.data[1])
        self.assertEqual(self.read("ck-1/m.st"), self.data[1])
        self.refuses("ck-0/m.st", "--base", "ck-1.lmc", code=1, says="is needed to restore the base ck-1.lmc (ck-0)")
        self.refuses("s/1.lmc", "-f", "--rm", "--base", "s/3.lmc", code=1, says="is needed to restore the base s/3.lmc (s/1.lmc)")
        self.refuses("s", "--base", "s/3.lmc", code=1, says="is needed to restore the base")  # s contains it
        self.lmc("4.st", "--rm", "-f", "--base", "s/3.lmc")  # 4.st is not a link of the chain
        self.restores("4.st.lmc", self.data[4], "--search", "s")

    def test_a_base_that_is_damaged(self):
        """Of a damaged base the file that it was made from is named, and --rm leaves that."""
        self.lmc("0.st")
        good = self.read("0.st.lmc")
        self.write("0.st.lmc", good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1:])
        self.lmc("0.st", "--rm", "--base", "0.st.lmc", "-o", "again.lmc", code=3, says="0.st: may be what 0.st.lmc was made from")
        self.assertEqual(self.read("0.st"), self.data[0])
        self.assertFalse(os.path.exists(self.path("again.lmc")))

    def test_compressing_against_a_directory_of_snapshots(self):
        self.refuses("4.st", "-o", "x.lmc", "--base", "s", code=2, says="is a directory of snapshots; name the one")

    def test_a_good_copy_of_a_damaged_base(self):
        """A base with a damaged block is an error, which names a copy; one with a damaged index does not hide a copy."""
        for link in (0, 2):  # a whole snapshot, and a delta
            name = "s/%d.lmc" % link
            good = self.read(name)
            self.write("good/copy.lmc", good)
            for at in (len(good) // 2, len(good) - 150):  # of a block, and of the index
                self.write(name, good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
                self.refuses("-t", "s/3.lmc", code=3, says=name + ": ")
                for args in (("--search", "good"), ("--base", "good"), ("--base", "good/copy.lmc", "--base", "s/1.lmc"), ("--search", "good", "--search", "s")):
                    self.lmc("-d", "-f", "-o", "out", "s/3.lmc", *args, says="")
                    self.assertEqual(self.read("out"), self.data[3])
                shutil.copy(self.path("good/copy.lmc"), self.path("s/z.lmc"))
                self.write("s/y.lmc", good[:-150] + bytes([good[-150] ^ 1]) + good[-149:])  # its index is damaged, so it is none
                for args, copy in (((), "s/z.lmc"), (("--no-search", "--base", name, "--base", "good/copy.lmc", "--search", "s"), "good/copy.lmc")):
                    if at == len(good) // 2:
                        says = "%s: has the same content as %s by its index: put it in that place, or name it with --base" % (copy, name)
                        self.refuses("-t", "s/3.lmc", *args, code=3, says=says)
                    else:
                        self.lmc("-t", "s/3.lmc", *args, says="")
                os.unlink(self.path("s/z.lmc"))
                os.unlink(self.path("s/y.lmc"))
            self.write(name, good)
            os.unlink(self.path("good/copy.lmc"))

    def test_a_damaged_base_of_several_inputs(self):
        """The second input was said to be unreadable."""
        good = self.read("s/0.lmc")
        self.write("bad.lmc", good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1:])
        p = self.lmc("1.st", "2.st", "--no-search", "--base", "bad.lmc", code=3)
        self.assertIn("bad.lmc: is damaged, as was said before", p.stderr.decode())
        self.assertNotIn("2.st: ", p.stderr.decode())

    def test_a_damaged_link_of_several_deltas(self):
        """Each of them is said to fail, also those whose chain is long enough for a scratch copy, of which the first was half made."""
        weights = bf16(3000)
        os.mkdir(self.path("c"))
        os.mkdir(self.path("out"))
        for k in range(140):
            self.write("x", safetensors([("w", "BF16", [3000], moved(weights, 2, 0.003 * k, k))]))
            self.lmc("-q", "x", "-o", "c/%03d.lmc" % k, *(["--base", "c/%03d.lmc" % (k - 1)] if k else []))
        data = bytearray(self.read("c/060.lmc"))
        data[300] ^= 1
        self.write("c/060.lmc", data)
        names = ["c/%03d.lmc" % k for k in (139, 138, 100, 61)]
        p = self.lmc("-d", *names, "-o", "out/", code=3)
        lines = p.stderr.decode().splitlines()
        self.assertIn("c/060.lmc: corrupt", lines[0])
        self.assertEqual(lines[1:], ["lmc: c/060.lmc: is damaged, as was said before"] * 3)
        self.assertEqual(os.listdir(self.path("out")), [])

    def test_damaged_and_foreign_files_beside_it(self):
        data = bytearray(self.read("s/0.lmc"))
        self.write("s/a.lmc", b"")
        self.write("s/b.lmc", b"\x95LMC" * 100)
        self.write("s/c.lmc", data[:-1])
        os.mkdir(self.path("s/d.lmc"))
        os.mkfifo(self.path("s/e.lmc"))
        self.restores("s/4.lmc", self.data[4])


class Ways(Case):
    """A base of files is found in whatever way its files were read for the delta: by containers, as plain bytes, as arrays."""

    HOW = ((), ("--opaque",), ("--dtype", "BF16"))

    def contents(self, weights):
        n = len(weights) // 2
        return {
            "a.npy": npy("<f2", [n], weights),
            "a.safetensors": safetensors([("w", "BF16", [n], weights)]),
            "a.gguf": gguf([("w", "BF16", [n], weights)]),
            "a.pt": torch_file({"w": ("torch.BFloat16Storage", "0", n, 0, [n], [1])}, {"0": weights}),
        }

    def setUp(self):
        super().setUp()
        weights = bf16(9600)
        self.old, self.new = self.contents(weights), self.contents(moved(weights, 2, 0.01))

    def delta(self, how, base, new, *args):
        """Also checks that a delta is made."""
        self.lmc("-q", "-f", *how, "--base", base, new, "-o", "d.lmc", *args)
        self.assertIn("base_fingerprint", self.listing("d.lmc"))

    def test_files_by_every_verb(self):
        """lmc -d did not find plain bytes in a .npy or .pt file without --opaque, and a pipe found nothing by the delta's tables."""
        for name, old in self.old.items():
            new = self.new[name]
            self.assertEqual(len(old), len(new))
            self.write(name, old)
            self.write("new/" + name, new)
            for how in self.HOW:
                self.delta(how, name, "new/" + name)
                delta, options = self.read("d.lmc"), ("--no-search", "--base", name)
                for told in self.HOW:
                    self.restores("d.lmc", new, *told, *options)
                    self.assertEqual(self.lmc("-dc", *told, *options, stdin=delta).stdout, new)
                    self.lmc("-t", *told, *options, stdin=delta)
                self.lmc("verify", *options, "d.lmc")
                self.assertEqual(self.lmc("-dc", "-q", *options[1:], "d.lmc").stdout, new)
                self.lmc("rebase", "-f", "--onto", "none", *options, "d.lmc", "-o", "whole.lmc")
                self.restores("whole.lmc", new, "--no-search")
                self.lmc("salvage", *options[1:], "d.lmc", "-o", "saved", says="is whole")
                shutil.rmtree(self.path("saved"))
                self.write("live/" + name, old)
                self.lmc("apply", "d.lmc", "live/" + name)
                self.assertEqual(self.read("live/" + name), new)
                self.lmc("apply", "d.lmc", "live/" + name, says="holds what d.lmc restores already")

    def test_directories_whose_layout_changes(self):
        """Another size of one file: then the delta's tables do not fit, and the files must be read in the right way."""
        for name in self.old:
            self.write("old/" + name, self.old[name])
            self.write("new/" + name, self.new[name])
        self.write("old/log", b"step 1\n")
        self.write("new/log", b"step 1\nstep 2\n")
        for how in self.HOW:
            self.delta(how, "old", "new")
            for told in self.HOW:
                self.restores("d.lmc", self.snapshot("new"), *told, "--no-search", "--base", "old")
                self.lmc("-t", *told, "--no-search", "--base", "new", "--base", "old", "d.lmc")
                self.lmc("-t", *told, "--no-search", "--base", "old", stdin=self.read("d.lmc"))
            self.write("beside/d.lmc", self.read("d.lmc"))
            shutil.copytree(self.path("old"), self.path("beside/old"))
            self.lmc("-t", "beside/d.lmc")  # found by its name
            shutil.copytree(self.path("old"), self.path("live"))
            self.lmc("apply", "d.lmc", "live")
            self.assertEqual(self.snapshot("live"), self.snapshot("new"))
            # a chain
            shutil.copytree(self.path("new"), self.path("next"))
            self.write("next/a.npy", self.contents(moved(bf16(9600), 2, 0.01, 7))["a.npy"])
            self.lmc("-q", "-f", *how, "--base", "d.lmc", "--base", "old", "next", "-o", "e.lmc")
            self.restores("e.lmc", self.snapshot("next"), "--no-search", "--base", "d.lmc", "--base", "old")
            for path in ("live", "beside", "next"):
                shutil.rmtree(self.path(path))

    def test_shards_are_one_base_together(self):
        """A checkpoint whose shards are a snapshot each could not be the base of a delta against the whole."""
        parts = {k: [("%s.%d" % (k, i), "BF16", [4000], bf16(4000, 10 * ord(k) + i)) for i in range(2)] for k in "abc"}
        for k, tensors in parts.items():
            self.write("old/%s.safetensors" % k, safetensors(tensors))
            self.write("new/%s.safetensors" % k, safetensors([t[:3] + (moved(t[3], 2, 0.01),) for t in tensors]))
            self.lmc("-q", "old/%s.safetensors" % k, "-o", "%s.lmc" % k)
            self.write("shards/%s.lmc" % k, self.read(k + ".lmc"))
        self.lmc("-q", "old", "-o", "whole.lmc")
        self.lmc("-q", "--base", "whole.lmc", "new", "-o", "d.lmc")
        os.unlink(self.path("whole.lmc"))
        want, named = self.snapshot("new"), ["--base", "a.lmc", "--base", "c.lmc", "--base", "b.lmc"]
        self.lmc("-t", "--no-search", "--base", "shards", "--base", "a.lmc", "d.lmc", says="not the base that is needed: a.lmc")
        for options in (named, ["--base", "shards"]):
            self.restores("d.lmc", want, "--no-search", *options)
            self.lmc("-t", "--no-search", *options, stdin=self.read("d.lmc"))
            self.lmc("verify", "--no-search", *options, "d.lmc")
        self.assertEqual(self.lmc("cat", *named, "d.lmc", "b.1").stdout, moved(parts["b"][1][3], 2, 0.01))
        self.refuses("-t", "--no-search", *named[:4], "d.lmc", code=4, says="needs the base")  # one is missing
        self.write("again.safetensors", safetensors(parts["a"][1:]))
        self.lmc("-q", "again.safetensors", "-o", "again.lmc")
        for more in "again.lmc", "a.lmc":  # a tensor in two of them: another base; Python's list of them is refused, too (test_shards.py)
            self.refuses("-t", "--no-search", *named, "--base", more, "d.lmc", code=4, says="needs the base")
        data = bytearray(self.read("c.lmc"))
        data[len(data) // 2] ^= 1
        self.write("c.lmc", data)
        self.refuses("-t", "--no-search", *named, "d.lmc", code=3, says="c.lmc: ")  # damaged, and named

    def test_another_content_is_refused_in_every_way(self):
        for name, old in self.old.items():
            self.write(name, old)
            self.write("new/" + name, self.new[name])
            for how in self.HOW:
                self.delta(how, name, "new/" + name)
                wrong = bytearray(old)
                wrong[-len(old) // 3] ^= 1
                self.write("wrong/" + name, bytes(wrong))
                for told in self.HOW:
                    self.refuses("-t", *told, "--no-search", "--base", "wrong/" + name, "d.lmc", code=4, says="needs the base")
                    self.lmc("-t", *told, "--no-search", "--base", "wrong/" + name, code=4, says="needs the base", stdin=self.read("d.lmc"))

    def test_the_source_of_a_damaged_base(self):
        """The file beside a damaged base from which the base was made, also with --opaque, is named, and can be its base."""
        for how in self.HOW:
            self.write("a.npy", self.old["a.npy"])
            self.lmc("-q", "-f", *how, "a.npy")
            self.write("b.npy", self.new["a.npy"])
            self.delta(how, "a.npy.lmc", "b.npy")
            data = bytearray(self.read("a.npy.lmc"))
            data[len(data) // 2] ^= 1
            self.write("a.npy.lmc", data)
            self.refuses("-t", "d.lmc", code=3, says="a.npy: may be what a.npy.lmc was made from: name it with --base")
            self.lmc("-df", "d.lmc", "-o", "out", "--base", "a.npy", says="")
            self.assertEqual(self.read("out"), self.new["a.npy"])

    def test_a_base_is_read_again_only_if_need_be(self):
        """A base that is right at once is read once; a wrong one is not read again for each delta of a chain."""
        n = 200000
        big = npy("<f2", [n], bf16(n))
        self.write("0.npy", big)
        os.mkdir(self.path("s"))
        for i in range(1, 4):
            self.write("%d.npy" % i, npy("<f2", [n], moved(bf16(n), 2, 0.01 * i, i)))
            self.lmc("-q", "--base", "%d.npy" % (i - 1), "%d.npy" % i, "-o", "s/%d.lmc" % i)
        def count(base, code):
            return read("-q", "-t", "--base", base, "s/3.lmc", code=code) - read("--version", code=0)  # without libraries; a sanitizer's are large
        def read(*args, code):
            p = subprocess.Popen([LMC, *args], cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
            with open("/proc/%d/io" % p.pid) as file:
                n = int(re.search(r"rchar: (\d+)", file.read()).group(1))
            self.assertEqual(p.wait(), code)
            return n
        if not os.path.exists("/proc/self/io"):
            self.skipTest("no /proc/PID/io")
        other = 300000  # headers, indices, deltas
        self.assertLess(count("0.npy", 0), 2 * len(big) + other)  # for its fingerprint, and as a prediction
        self.write("wrong.npy", npy("<f2", [n], bf16(n, 5)))
        delta = os.path.getsize(self.path("s/3.lmc"))  # whose payload is checked
        self.assertLess(count("wrong.npy", 4), 2 * len(big) + delta + other)  # by its container, and as bytes

    def test_vectors_through_a_pipe(self):
        """Each valid vector whose base is files; some need tables that a pipe does not have yet."""
        later = "delta_base_torch", "delta_base_torch_parent", "delta_base_unknown_size"
        with open(os.path.join(ROOT, "spec", "vectors", "manifest.json")) as file:
            vectors = [v for v in json.load(file)["valid"] if v["name"].startswith("delta_base_") and "foreign" in v["needs"]]
        self.assertGreater(len(vectors), 12)
        root = os.path.join(ROOT, "spec", "vectors")
        for v in vectors:
            with open(os.path.join(root, "valid", v["name"] + ".lmc"), "rb") as file:
                bases = [x for path in v["base"] for x in ("--base", os.path.join(root, path))]
                self.lmc("-t", "--no-search", *bases, stdin=file.read(), code=4 if v["name"] in later else 0)


class Needless(Case):
    """A base of which nothing is used."""

    def test_a_base_without_use_is_not_needed(self):
        self.write("a", bf16(40000))
        self.write("b", bf16(30000, 2))
        self.lmc("-o", "alone.lmc", "a")
        self.lmc("--base", "b", "a", says="is written without it, and does not need it")
        self.assertEqual(self.read("a.lmc"), self.read("alone.lmc"))
        self.restores("a.lmc", self.read("a"))
        self.write("d/a", bf16(40000))
        self.lmc("--base", "b", "d", says="nothing of it was found in the base b")
        self.restores("d.lmc", self.snapshot("d"))
        self.lmc("--rm", "-f", "--base", "b", "d", code=1, says="is not removed")
        self.assertTrue(os.path.exists(self.path("d/a")))
        self.lmc("series", "S", "add", "a")
        self.lmc("series", "S", "add", "b")
        self.assertNotIn("delta", self.lmc("series", "S", "list").stdout.decode())

    def test_rebase_onto_what_is_of_no_use(self):
        self.write("a", bf16(40000))
        self.write("b", bf16(30000, 2))
        self.write("c", moved(bf16(40000), 2, 0.01))
        self.lmc("a")
        self.lmc("--base", "a.lmc", "c")
        self.lmc("rebase", "--onto", "none", "c.lmc", "-o", "alone.lmc")
        for args in (("-o", "x.lmc"), ("-c",)):  # a file, a pipe
            p = self.lmc("rebase", "--onto", "b", "c.lmc", *args, says="c.lmc: nothing of it was found in the base b")
            if args == ("-c",):
                self.write("x.lmc", p.stdout)
            self.assertIsNone(self.listing("x.lmc").get("base_fingerprint"))
            self.assertEqual(self.listing("x.lmc")["fingerprint"], self.listing("c.lmc")["fingerprint"])
            self.assertEqual(self.read("x.lmc"), self.read("alone.lmc"))
            self.restores("x.lmc", self.read("c"), "--no-search")

    def test_pipes_and_a_base_without_use(self):
        """What goes to standard output, or comes from a pipe, does not need a base of which nothing is used, or it says so."""
        weights = bf16(60000)
        self.write("a.st", safetensors([("w", "BF16", [60000], weights)]))
        self.write("near.st", safetensors([("w", "BF16", [60000], moved(weights, 2, 0.01))]))
        self.write("far.st", safetensors([("other", "BF16", [60000], bf16(60000, 3))]))
        self.write("d/far.st", self.read("far.st"))
        os.makedirs(self.path("o"))
        for name in ("near.st", "far.st", "d"):
            self.lmc("-q", "-o", "o/alone.lmc", "-f", name)
            for args, stdin in (((name, "-c"), b""), (("-o", "o/x.lmc", "-f", name), b""), (("-o", "/dev/stdout", name), b""),
                                ((), self.read(name) if name != "d" else None), (("-o", "o/x.lmc", "-f"), self.read(name) if name != "d" else None)):
                if stdin is None:
                    continue
                p = self.lmc("-v", "--base", "a.st", *args, stdin=stdin)
                out = p.stdout or self.read("o/x.lmc")
                text = p.stderr.decode()
                self.assertEqual(text.count(" -> "), 1, text)  # one summary
                self.write("o/y.lmc", out)
                if name == "near.st":
                    self.assertRegex(text, r"\d+\.\d\d % of the bytes are coded against a.st")
                    self.assertLess(len(out), len(self.read("o/alone.lmc")) / 2)
                    self.lmc("-t", "--no-search", "o/y.lmc", code=4)
                    self.lmc("-t", "--base", "a.st", "o/y.lmc")
                    continue
                self.assertIn("is written without it, and does not need it", text)
                self.lmc("-t", "--no-search", "o/y.lmc")
                if not stdin:
                    self.assertEqual(len(out), os.path.getsize(self.path("o/alone.lmc")))
        for name, seed in ("one", 5), ("other", 6):  # of the same size, so they match, but are not similar
            self.write(name, bf16(60000, seed))
        self.lmc("-q", "-o", "o/alone.lmc", "-f", "other")
        self.lmc("--base", "one", "other", says="nothing of it was found in the base one (no tensor or file has the same name and size, or none is similar): "
                 "other.lmc is written without it, and does not need it")
        self.assertEqual(self.read("other.lmc"), self.read("o/alone.lmc"))
        p = self.lmc("--base", "one", "-c", "other", says="needs it nevertheless, as standard output and pipes cannot be written again; leave out --base")
        self.write("o/y.lmc", p.stdout)
        self.lmc("-t", "--no-search", "o/y.lmc", code=4)
        self.restores("o/y.lmc", self.read("other"), "--base", "one")
        self.lmc("--rm", "-f", "--base", "one", "other", code=1, says="other: is not removed: nothing of it was found in the base one")
        big = os.urandom(3 << 20)  # a delta goes to a pipe at once
        self.write("big", big)
        self.write("next", big[:-5] + b"other")
        with subprocess.Popen([LMC, "-q", "--base", "big", "-c", "next"], cwd=self.dir, stdout=subprocess.PIPE) as p:
            self.write("o/next.lmc", p.stdout.read())
        self.lmc("-d", "--base", "big", "o/next.lmc")
        self.assertEqual(self.read("o/next"), self.read("next"))


if __name__ == "__main__":
    sys.exit(main())
