#!/usr/bin/env python3
"""Directories: links, parts of snapshots, small files, and what is kept of a file apart from its content.

Usage: test_directories.py [--brief] [-v] [NAME...]      as case.py says
Docstrings in the past tense tell the fault that a test is for. SPDX-License-Identifier: MIT
"""
import errno
import io
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tarfile

import hostile
from case import LMC, ROOT, Case, bf16, f32, main, moved, safetensors


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


def metadata_replaced(data, key, value):
    """A snapshot whose metadata has another value of that key."""
    body = index_body(data)
    at = body.index(key) - 8
    key_size, value_size = struct.unpack("<II", body[at:at + 8])
    assert key_size == len(key)
    return index_replaced(data, body[:at] + struct.pack("<II", key_size, len(value)) + key + value + body[at + 8 + key_size + value_size:])


class ChosenFiles(Case):
    def test_directories_of_chosen_files(self):
        """A private directory stays private, and keeps its time, when a part of the snapshot is restored."""
        self.write("p/priv/deep/t", b"t")
        self.write("p/pub/u", b"u")
        for path, mode in (("p/priv/deep", 0o500), ("p/priv", 0o700)):
            os.utime(self.path(path), (1e9, 1e9))
            os.chmod(self.path(path), mode)
        self.lmc("p")
        self.lmc("-d", "-o", "x/", "p.lmc", "priv/deep/t")
        for path, mode in (("x/priv/deep", 0o500), ("x/priv", 0o700)):
            st = os.stat(self.path(path))
            self.assertEqual((st.st_mode & 0o777, st.st_mtime), (mode, 1e9), path)
        self.assertEqual(self.read("x/priv/deep/t"), b"t")
        for d in ("p", "x"):
            os.chmod(self.path(d + "/priv/deep"), 0o700)


class Exclude(Case):
    """--exclude leaves out names, and paths below the directory."""

    def setUp(self):
        super().setUp()
        for name in ("a.bin", "b", "d/a.bin", "d/c", "d/e/f", "g/c", ".git/x", "run-1/optimizer.pt", "run-1/w"):
            self.write("t/" + name, name.encode() * 9)
        os.symlink("b", self.path("t/link.bin"))

    def left(self, *patterns, says="", **more):
        self.lmc("-f", *(x for p in patterns for x in ("--exclude", p)), "t", says=says, **more)
        listing = self.listing("t.lmc")
        return sorted(f["path"] for f in listing["files"] if f["kind"] == "file") + [x["path"] for x in listing["links"]]

    def test_names_and_paths(self):
        self.assertEqual(self.left("*.bin", ".git", "d/e/", "run-*/optimizer.pt"), ["b", "d/c", "g/c", "run-1/w"])
        self.assertEqual(self.left("c", "[!d]", "[!d].bin", "g", "run-1", ".git", "?ink.bin"), [])
        self.assertEqual(self.left("c", "b", "[!d].bin", "run-1", ".git", "?ink.bin"), ["d/e/f"])
        self.assertEqual(self.left("?*", says="") + self.tree("t"), self.tree("t"))
        self.lmc("-t", "t.lmc")

    def test_unmatched(self):
        self.assertEqual(len(self.left("z*", "b", says="t: --exclude 'z*' matches nothing in it")), 9)
        self.lmc("-q", "-f", "--exclude", "z*", "t", says="")

    def test_what_cannot_be_read(self):
        """What is left out is not looked at."""
        for i in range(40):
            self.write("t/more/%d" % i, b"")
        os.symlink("nowhere", self.path("t/broken"))
        self.lmc("-f", "--dereference", "--max-files", "30", "t", code=1)
        self.lmc("-f", "--dereference", "--max-files", "30", "--exclude", "more", "--exclude", "broken", "t")

    def test_followed_twice(self):
        """A directory behind two links is filtered by each path."""
        os.symlink("d", self.path("t/again"))
        self.lmc("-f", "--dereference", "--exclude", "again/c", "--exclude", "d/e", "t")
        found = [f["path"] for f in self.listing("t.lmc")["files"] if f["path"].startswith(("again/", "d/")) and f["kind"] == "file"]
        self.assertEqual(sorted(found), ["again/a.bin", "again/e/f", "d/a.bin", "d/c"])

    def test_bases_and_series(self):
        """A base is not filtered; a series takes what is left."""
        self.lmc("t", "-o", "whole.lmc")
        self.write("t/b", b"new" * 30)
        self.lmc("--base", "whole.lmc", "--exclude", "*.bin", "t", "-o", "delta.lmc")
        self.lmc("-d", "--base", "whole.lmc", "delta.lmc", "-o", "out")
        self.assertEqual([f for f in self.tree("out") if f.endswith(".bin")], [])
        self.assertEqual(self.read("out/b"), b"new" * 30)
        self.lmc("series", "s", "add", "--verify", "--exclude", "*.bin", "--exclude", ".git", "t")
        self.lmc("series", "s", "restore", "t", "-o", "again", says="is restored")
        self.assertEqual(sorted(self.tree("again")), sorted(f for f in self.tree("t") if not f.endswith(".bin") and ".git" not in f))

    def test_recursive(self):
        self.lmc("-r", "--exclude", "*.bin", "--exclude", "run-1", "t")
        self.assertEqual(sorted(f for f in self.tree("t") if f.endswith(".lmc")), [".git/x.lmc", "b.lmc", "d/c.lmc", "d/e/f.lmc", "g/c.lmc"])

    def test_outputs(self):
        """What is left out is no input, which an output must not replace, and has no output."""
        self.write("t/b.lmc", b"old")
        self.refuses("-r", "-f", "t", "t/b.lmc", code=1, says="t/b.lmc: is the output of t/b and the input t/b.lmc")
        self.lmc("-r", "-f", "--exclude", "b", "t", "t/b.lmc", says="")
        self.assertEqual(self.read("t/b.lmc"), b"old")
        self.lmc("-d", "t/b.lmc.lmc", "-o", "again")
        self.assertEqual(self.read("again"), b"old")
        self.refuses("-f", "t/b", "t", code=1, says="t/b.lmc: is the output of t/b and the input t/b.lmc")
        self.lmc("-f", "--exclude", "*.lmc", "--exclude", "z*", "t/b", "t", says="t: --exclude 'z*' matches nothing in it")
        self.assertEqual([f["path"] for f in self.listing("t.lmc")["files"] if f["path"].endswith(".lmc")], [])
        self.lmc("-d", "-f", "t/b.lmc", "-o", "again")
        self.assertEqual(self.read("again"), self.read("t/b"))


class Links(Case):
    """A Hugging Face cache was restored as real files, and one link to a directory made lmc refuse the whole snapshot."""

    def setUp(self):
        super().setUp()
        self.write("hub/m/blobs/1", safetensors([("w", "BF16", [3000], bf16(3000))]))
        self.write("hub/m/blobs/2", b"{}")
        os.makedirs(self.path("hub/m/snapshots/a/sub"))
        for target, link in (("../../blobs/1", "snapshots/a/model.safetensors"), ("../../../blobs/2", "snapshots/a/sub/config.json"),
                             ("snapshots/a", "latest"), ("nowhere", "dangling"), ("loop", "loop"), ("..", "up"), ("caf\u00e9 \u4e16", "odd name"),
                             ("/absolute", "absolute")):
            os.symlink(target, self.path("hub/m/" + link))
        os.symlink(b"\xff\xfe", os.path.join(os.fsencode(self.path("hub")), b"bytes \xff"))
        self.write("outside", b"outside")

    def same(self, a, b):
        subprocess.run(["diff", "-r", "--no-dereference", self.path(a), self.path(b)], check=True)

    def test_round_trip(self):
        os.link(self.path("hub/m/blobs/1"), self.path("hub/m/blobs/3"))
        self.lmc("hub")
        listing = self.listing("hub.lmc")
        self.assertEqual(sorted(f["path"] for f in listing["files"] if f["kind"] == "file"), ["m/blobs/1", "m/blobs/2", "m/blobs/3"])
        self.assertEqual(sum(l["type"] == "symbolic" for l in listing["links"]), 9)
        self.assertIn(b"m/latest -> snapshots/a\n", self.lmc("-l", "hub.lmc").stdout)
        self.lmc("-t", "hub.lmc")
        self.lmc("-d", "-o", "out", "hub.lmc")
        self.same("hub", "out")
        self.assertEqual(os.stat(self.path("out/m/blobs/1")).st_ino, os.stat(self.path("out/m/blobs/3")).st_ino)
        self.assertLess(os.path.getsize(self.path("hub.lmc")), 9000)  # the content of both names is stored once
        self.lmc("-d", "-f", "-o", "out", "hub.lmc")  # over an equal directory
        self.lmc("-d", "-o", "piped", stdin=self.read("hub.lmc"))
        self.same("hub", "piped")
        os.mkdir(self.path("tar"))
        subprocess.run(["tar", "-x", "-C", self.path("tar")], input=self.lmc("-dc", "hub.lmc").stdout, check=True)
        self.same("hub", "tar")
        self.lmc("rebase", "--onto", "none", "hub.lmc", "-o", "again.lmc")
        self.assertEqual(self.listing("again.lmc")["links"], listing["links"])
        self.lmc("--rm", "-f", "hub")
        self.assertFalse(os.path.lexists(self.path("hub")))

    def test_links_to_devices(self):
        """They are stored as links, and named as what they are."""
        os.makedirs(self.path("d"))
        os.symlink("/dev/null", self.path("d/null"))
        for args in ((), ("--dereference",)):
            p = self.lmc("-f", *args, "d", says="d: holds 1 link to devices, pipes or sockets, which are stored as links")
            self.assertNotIn(b"directories", p.stderr)
            self.assertEqual(self.listing("d.lmc")["links"], [{"path": "null", "type": "symbolic", "target": "/dev/null"}])
        self.lmc("-f", "--no-dereference", "d")

    def test_only_links(self):
        os.mkdir(self.path("only"))
        os.symlink("x", self.path("only/x"))
        self.lmc("only")
        self.lmc("-d", "-o", "out", "only.lmc")
        self.same("only", "out")

    def test_what_lies_outside(self):
        """A snapshot has all data of its source: links to files elsewhere are stored as these files."""
        os.symlink("../outside", self.path("hub/file"))
        os.mkdir(self.path("elsewhere"))
        self.write("elsewhere/x", b"x")
        os.symlink("../elsewhere", self.path("hub/tree"))
        self.lmc("hub", says="1 link to directories outside of it")
        self.lmc("-d", "-o", "out", "hub.lmc")
        self.assertFalse(os.path.islink(self.path("out/file")))
        self.assertEqual(self.read("out/file"), b"outside")
        self.assertEqual(os.readlink(self.path("out/tree")), "../elsewhere")
        self.lmc("-f", "--no-dereference", "hub")
        self.lmc("-d", "-o", "kept", "hub.lmc")
        self.same("hub", "kept")
        self.lmc("hub/m/snapshots/a", "-o", "a.lmc")  # the path that huggingface_hub returns
        self.lmc("-d", "-o", "a", "a.lmc")
        self.assertEqual(self.read("a/model.safetensors"), self.read("hub/m/blobs/1"))

    def test_dereference(self):
        for name in ("loop", "up", "dangling", "odd name", "absolute"):
            self.refuses("--dereference", "-o", "x.lmc", "hub", code=1)
            os.unlink(self.path("hub/m/" + name))
        os.unlink(os.path.join(os.fsencode(self.path("hub")), b"bytes \xff"))
        self.lmc("--dereference", "hub")
        self.assertEqual(self.listing("hub.lmc")["links"], [])
        self.lmc("-d", "-o", "out", "hub.lmc")
        self.assertEqual(self.read("out/m/latest/sub/config.json"), b"{}")
        self.lmc("-t", "--base", "hub", "hub.lmc")
        self.lmc("-f", "--base", "hub", "-o", "d.lmc", "out")
        self.lmc("-t", "--base", "hub", "d.lmc", code=0)

    def test_dereference_by_several_ways(self):
        """Two links in each of 6 directories are 2^6 ways to the last one: each way has all entries, and a loop is found on each."""
        for i in range(7):
            self.write("t/d%d/f" % i, b"%d" % i)
            self.write("t/d%d/s/empty/g" % i, b"g%d" % i)
            for name in "ab" if i < 6 else "":
                os.symlink("../d%d" % (i + 1), self.path("t/d%d/%s" % (i, name)))
        self.lmc("--dereference", "t")
        self.lmc("-d", "-o", "out", "t.lmc")
        subprocess.run(["cp", "-rL", self.path("t"), self.path("copy")], check=True)
        self.same("copy", "out")
        n = sum(path.endswith("d6") or path.endswith(("/a", "/b")) for path, _, _ in os.walk(self.path("out")))
        self.assertEqual(n, 1 + sum(2 ** (7 - i) - 2 for i in range(6)))
        os.mkfifo(self.path("pipe"))
        os.symlink("../../pipe", self.path("t/d6/p"))
        self.lmc("-f", "--dereference", "t", says="links to devices, pipes or sockets")
        self.assertEqual(len(self.listing("t.lmc")["links"]), 2 ** 7 - 1)
        os.unlink(self.path("t/d6/p"))
        for to in "../d0", "../d5", "../d6":
            os.symlink(to, self.path("t/d6/back"))
            self.refuses("--dereference", "-f", "t", code=1, says="is a link to a directory that it is in")
            os.unlink(self.path("t/d6/back"))

    def test_deltas_and_apply(self):
        self.lmc("hub")
        shutil.copytree(self.path("hub"), self.path("next"), symlinks=True)
        os.unlink(self.path("next/m/latest"))
        os.symlink("snapshots", self.path("next/m/latest"))
        os.unlink(self.path("next/m/dangling"))
        os.symlink("new", self.path("next/m/new"))
        self.write("next/m/blobs/1", safetensors([("w", "BF16", [3000], moved(bf16(3000), 2, 0.2))]))
        for base in ("hub", "hub.lmc"):
            self.lmc("-f", "--base", base, "next")
            self.lmc("-d", "--base", base, "-f", "-o", "out", "next.lmc")
            self.same("next", "out")
        self.refuses("apply", "next.lmc", "hub", code=1, says="m/dangling: is a link that next.lmc does not have")
        self.lmc("apply", "-f", "next.lmc", "hub")
        self.same("next", "hub")
        os.unlink(self.path("next/m/new"))  # only a link
        self.lmc("-f", "--base", "hub", "next")
        self.refuses("apply", "next.lmc", "hub", code=1, says="m/new: is a link that next.lmc does not have")
        self.lmc("apply", "-f", "next.lmc", "hub", says="holds the files that next.lmc restores already; 1 link was changed")
        self.same("next", "hub")
        self.lmc("apply", "next.lmc", "hub", says="holds what next.lmc restores already")

    def test_cat_follows_links(self):
        """-dc of a link to nowhere wrote nothing, with exit code 0; cat knew no links at all."""
        os.symlink("/dev/null", self.path("hub/null"))
        os.symlink("there", self.path("hub/back"))
        os.symlink("back", self.path("hub/there"))
        self.lmc("--no-dereference", "hub", says="")
        data = self.read("hub/m/latest/model.safetensors")
        for path in ("m/latest/model.safetensors", "m/snapshots/a/model.safetensors"):
            self.refuses("cat", "hub.lmc", "--file", path, code=2, says="--file needs a tensor, too; 'lmc -dc FILE.lmc PATH' writes")
            self.assertEqual(self.lmc("-dc", "hub.lmc", path).stdout, data)
            self.assertEqual(self.lmc("cat", "hub.lmc", "--file", path, "w").stdout, self.lmc("cat", "hub.lmc", "--file", "m/blobs/1", "w").stdout)
            self.assertEqual(self.lmc("cat", "--safetensors", "hub.lmc", "--file", path).stdout,
                             self.lmc("cat", "--safetensors", "hub.lmc", "--file", "m/blobs/1").stdout)
        for path, target in (("m/dangling", None), ("null", "/dev/null"), ("back", "there")):
            target = target or os.readlink(self.path("hub/" + path))
            self.assertEqual(self.refuses("-dc", "hub.lmc", path, code=1, says="'%s' is a link to '%s', which the snapshot does not hold" %
                                          (path, target)).stdout, b"")
            self.refuses("cat", "hub.lmc", "--file", path, "w", code=1, says="'%s' is a link to '%s', which is not a file of the snapshot" % (path, target))
        self.refuses("cat", "hub.lmc", "--file", "m/latest", "w", code=1, says="which is not a file of the snapshot")
        self.lmc("-dc", "hub.lmc", "m/*", says="m/absolute: is a link to")

    def test_hostile_links(self):
        """No file is written through a link, and no link is made through another one."""
        os.mkdir(self.path("d"))
        self.write("d/dir/file", b"x")
        os.symlink("target-that-is-long-enough", self.path("d/link"))
        os.mkdir(self.path("outer"))
        self.lmc("d")
        data = self.read("d.lmc")

        def links(*entries):
            return metadata_replaced(data, b"lmc.links", b"".join(t + p + b"\0" + q + b"\0" for t, p, q in entries))
        self.write("good.lmc", links((b"s", b"a", b"b")))
        self.lmc("-d", "-o", "good", "good.lmc")
        self.assertEqual(os.readlink(self.path("good/a")), "b")
        for entries in ([(b"s", b"a", b"../outer"), (b"s", b"a/b", b"x")], [(b"s", b"dir/file", b"x")], [(b"s", b"dir/file/b", b"x")],
                        [(b"s", b"dir", b"../outer")], [(b"h", b"dir/file", b"missing")], [(b"h", b"no", b"dir/file")],
                        [(b"s", b"../outer/b", b"x")], [(b"s", b"/tmp/b", b"x")], [(b"s", b"dir//b", b"x")], [(b"s", b"./b", b"x")],
                        [(b"s", b"b", b"x"), (b"s", b"a", b"x")], [(b"s", b"a", b"x"), (b"s", b"a", b"x")], [(b"q", b"a", b"x")], [(b"s", b"a", b"")]):
            self.write("bad.lmc", links(*entries))
            p = subprocess.run([LMC, "-d", "-o", "out", "bad.lmc"], cwd=self.dir, capture_output=True)
            self.assertIn(p.returncode, (1, 3), entries)
            self.assertFalse(os.path.lexists(self.path("out")))
            self.assertEqual(os.listdir(self.path("outer")), [])
        for value in (b"s", b"sa", b"sa\0", b"sa\0b", b"\0\0\0"):
            self.write("bad.lmc", metadata_replaced(data, b"lmc.links", value))
            self.refuses("-d", "-o", "out", "bad.lmc", code=3, says="that breaks the rules")
            self.refuses("-t", "bad.lmc", code=3)

    def test_salvage(self):
        self.lmc("hub")
        self.lmc("salvage", "-q", "hub.lmc", "-o", "saved")
        self.same("hub", "saved/whole")


class Parts(Case):
    """A single file could not be restored from a snapshot of a directory."""

    def setUp(self):
        super().setUp()
        self.w = bf16(60000)
        self.write("hf/config.json", b'{"a": 1}')
        self.write("hf/model.safetensors", safetensors([("w", "BF16", [60, 1000], self.w), ("b", "F16", [4], b"\x00\x3c\x00\xc0\x01\x00\x00\x7c"),
                                                        ("i", "I32", [2], b"abcdefgh"), ("e", "F8_E5M2", [4], b"\x3c\xbc\x01\x7c")]))
        self.write("hf/sub/deep/x.txt", b"x")
        self.write("hf/sub/y.txt", b"y", 0o640)
        self.lmc("hf")

    def test_files(self):
        shutil.move(self.path("hf"), self.path("whole"))
        self.lmc("-d", "hf.lmc", "config.json")
        self.assertEqual(self.tree("hf"), ["config.json"])
        self.refuses("-d", "hf.lmc", "config.json", code=1, says="exists already; use -f")
        self.lmc("-d", "-f", "hf.lmc", "sub", "*.safetensors")
        self.assertEqual(self.snapshot("hf"), self.snapshot("whole"))
        self.assertEqual(os.stat(self.path("hf/sub/y.txt")).st_mode & 0o777, 0o640)
        self.lmc("-d", "-o", "out", "hf.lmc", "*.txt")
        self.assertEqual(self.tree("out"), ["sub", "sub/deep", "sub/deep/x.txt", "sub/y.txt"])
        self.assertEqual(self.lmc("-dc", "hf.lmc", "sub/y.txt", "config.json").stdout, b'{"a": 1}y')
        self.assertEqual(self.lmc("-dc", "hf.lmc", "model.safetensors").stdout, self.read("whole/model.safetensors"))
        for args, code, says in ((("missing",), 1, "has no file 'missing'"), (("config.json", "b.lmc"), 2, "name one snapshot"), (("--rm", "config.json"), 2, "--rm and -r"),
                                 (("-o", "o", "nothing*"), 1, "has no file 'nothing*'")):
            self.refuses("-d", "hf.lmc", *args, code=code, says=says)
        self.lmc("whole/config.json", "-o", "single.lmc")
        self.refuses("-d", "single.lmc", "config.json", code=1, says="holds one file and no directory")

    def test_not_through_links(self):
        """Links that an earlier snapshot has left in the directory must not lead out of it."""
        os.rename(self.path("hf"), self.path("whole"))
        os.makedirs(self.path("outer"))
        os.makedirs(self.path("hf"))
        os.symlink("../outer", self.path("hf/sub"))
        os.symlink("../outer/config.json", self.path("hf/config.json"))
        self.lmc("-d", "-f", "hf.lmc", "sub/y.txt", code=1, says="nothing is restored below it")
        self.lmc("-d", "-f", "hf.lmc", "config.json")  # the link is removed, not its target
        self.assertEqual(os.listdir(self.path("outer")), [])
        self.assertEqual(self.read("hf/config.json"), b'{"a": 1}')

    def test_after_an_error(self):
        """The files written so far stayed, and the same command, run again, said that they exist already."""
        def full():  # limits the size of files: config.json is written, zz.safetensors is not
            resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))
        shutil.copy(self.path("hf/model.safetensors"), self.path("hf/zz.safetensors"))
        os.chmod(self.path("hf/sub"), 0o500)
        self.lmc("-f", "hf")
        for args in (("-o", "out"), ("-o", "there"), ("-f", "-o", "there")):
            if args[-1] == "there":
                self.write("there/sub/own", b"own")
            if "-f" in args:
                self.write("there/config.json", b"old")
            before = self.tree()
            self.lmc("-d", *args, "hf.lmc", "config.json", "sub/y.txt", "zz.safetensors", code=1, says="cannot write", preexec_fn=full, restore_signals=False)
            self.assertEqual(self.tree(), before)
        self.refuses("-d", "-o", "out", "hf.lmc", "config.json", "missing", code=1, says="has no file 'missing'")
        self.lmc("-d", "-o", "out", "hf.lmc", "config.json", "sub/y.txt", "zz.safetensors")
        self.assertEqual(self.tree("out"), ["config.json", "sub", "sub/y.txt", "zz.safetensors"])
        self.assertEqual(os.stat(self.path("out/sub")).st_mode & 0o777, 0o500)
        os.chmod(self.path("out/sub"), 0o700)
        os.chmod(self.path("hf/sub"), 0o700)

    def test_from_a_delta(self):
        shutil.copytree(self.path("hf"), self.path("next"))
        self.write("next/model.safetensors", safetensors([("w", "BF16", [60, 1000], moved(self.w, 2, 0.05))]))
        self.lmc("--base", "hf.lmc", "next")
        self.lmc("-d", "-o", "out", "next.lmc", "model.safetensors")
        self.assertEqual(self.snapshot("out"), {"model.safetensors": self.read("next/model.safetensors")})

    def test_damage(self):
        data = bytearray(self.read("hf.lmc"))
        at = data.index(b'{"a": 1}')
        data[at] ^= 1
        self.write("hf.lmc", data)
        self.lmc("-d", "-o", "out", "hf.lmc", "config.json", code=3)
        self.assertFalse(os.path.exists(self.path("out/config.json")))
        self.lmc("-d", "-o", "out", "hf.lmc", "model.safetensors")

    def test_numpy(self):
        """Bf16 as ml_dtypes does it, or as float32."""
        data = self.lmc("cat", "--npy", "hf.lmc", "w").stdout
        self.assertIn(b"{'descr': '<V2', 'fortran_order': False, 'shape': (60, 1000), }", data[:128])
        self.assertEqual(data[128:], self.w)
        wide = self.lmc("cat", "--npy", "--f32", "hf.lmc", "w[2:5,7]").stdout
        self.assertIn(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", wide[:128])
        self.assertEqual(wide[128:], b"".join(b"\0\0" + self.w[2 * (1000 * r + 7):][:2] for r in (2, 3, 4)))
        self.assertEqual(struct.unpack("<4f", self.lmc("cat", "--f32", "hf.lmc", "b").stdout), (1.0, -2.0, 2.0 ** -24, float("inf")))
        self.assertEqual(struct.unpack("<4f", self.lmc("cat", "--f32", "hf.lmc", "e").stdout), (1.0, -1.0, 2.0 ** -16, float("inf")))
        self.refuses("cat", "--f32", "hf.lmc", "i", code=1, says="--f32 is for BF16")
        try:
            import numpy
        except ImportError:
            return
        every = numpy.arange(65536, dtype=numpy.uint16)
        self.write("h.safetensors", safetensors([("h", "F16", [65536], every.tobytes()), ("b", "BF16", [65536], every.tobytes())]))
        self.lmc("h.safetensors")
        got = numpy.load(io.BytesIO(self.lmc("cat", "--npy", "--f32", "h.safetensors.lmc", "h").stdout))
        self.assertEqual(got.dtype, numpy.float32)
        numpy.testing.assert_array_equal(got, every.view(numpy.float16).astype(numpy.float32))
        got = numpy.load(io.BytesIO(self.lmc("cat", "--npy", "--f32", "h.safetensors.lmc", "b").stdout))
        numpy.testing.assert_array_equal(got.view(numpy.uint32), every.astype(numpy.uint32) << 16)

    def test_safetensors(self):
        data = self.lmc("cat", "--safetensors", "hf.lmc", "w", "?").stdout
        n = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + n])
        self.assertEqual(sorted(header), ["__metadata__", "b", "e", "i", "w"])
        begin, end = header["w"]["data_offsets"]
        self.assertEqual((header["w"]["dtype"], header["w"]["shape"], data[8 + n + begin:8 + n + end]), ("BF16", [60, 1000], self.w))
        data = self.lmc("cat", "--safetensors", "--f32", "hf.lmc", "w", "i").stdout
        n = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + n])
        self.assertEqual({k: v["dtype"] for k, v in header.items() if k != "__metadata__"}, {"w": "F32", "i": "I32"})
        self.write("x.safetensors", data)
        self.lmc("x.safetensors")  # its own reader accepts it
        self.assertEqual(len(self.listing("x.safetensors.lmc")["files"][0]["tensors"]), 2)
        for args, says in ((("w", "nothing"), "has no tensor 'nothing'"),):
            self.refuses("cat", "--safetensors", "hf.lmc", *args, code=1, says=says)
        self.refuses("cat", "hf.lmc", "w", "b", code=2, says="use --safetensors")
        self.refuses("cat", "--npy", "--safetensors", "hf.lmc", "w", code=2, says="exclude each other")

    def test_tar(self):
        """A stream for tar."""
        data = self.lmc("-dc", "hf.lmc").stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            self.assertEqual(sorted(m.name for m in t), ["config.json", "model.safetensors", "sub", "sub/deep", "sub/deep/x.txt", "sub/y.txt"])
            self.assertEqual(t.extractfile("sub/y.txt").read(), b"y")
        self.assertEqual(self.lmc("-d", stdin=self.read("hf.lmc")).stdout, data)

    def test_what_a_part_gets_where_the_snapshot_says_nothing(self):
        """Parts of files without a mode are as private as their snapshot."""
        self.write("s.lmc", hostile.many_files(2, b"f%06d"))
        os.chmod(self.path("s.lmc"), 0o600)
        self.lmc("-d", "s.lmc", "f*", "-o", "out")
        self.assertEqual(len(os.listdir(self.path("out"))), 2)
        for name in os.listdir(self.path("out")):
            self.assertEqual(os.stat(self.path("out/" + name)).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(self.path("out")).st_mode & 0o777, 0o700)

    def test_parts_of_an_empty_directory(self):
        os.mkdir(self.path("e"))
        os.mkdir(self.path("there"))
        self.lmc("e")
        self.lmc("-d", "e.lmc", "*", "-o", "there")
        self.assertEqual(os.listdir(self.path("there")), [])

    def test_a_link_and_what_is_below_it(self):
        self.write("t/a/b/x", b"hi")
        os.symlink("a", self.path("t/latest"))
        self.lmc("t")
        self.lmc("-d", "-f", "--dereference", "t.lmc", "latest", "latest/b/x", "-o", "o")
        self.assertEqual(self.read("o/latest/b/x"), b"hi")


class Small(Case):
    """Many small files and tensors; tensors whose names got another prefix; useless bases."""

    def small_files(self, name, n=300):
        text = b" ".join(b"%d lines of text" % (i * 7919 % 10007) for i in range(30000))
        for i in range(n):
            self.write("%s/sub-%d/%03d.%s" % (name, i % 3, i, ("txt", "json")[i % 2]), text[i * 911:][:1024])
        return b"".join(data for _, data in sorted(self.snapshot(name).items()) if data)

    def test_small_files_take_their_content(self):
        """300 files of 1 KB take at most as much as one file with all their bytes, plus 120 bytes each."""
        one = self.small_files("many")
        os.makedirs(self.path("many/empty/directory"))
        self.write("many/nothing", b"")
        self.write("many/model.st", safetensors([("w", "BF16", [300, 100], bf16(30000))]))
        want = self.snapshot("many")
        self.lmc("many")
        self.write("one", one)
        self.lmc("one")
        self.lmc("-o", "model.lmc", "many/model.st")
        size = sum(os.path.getsize(self.path(f)) for f in ("one.lmc", "model.lmc"))
        self.assertLess(os.path.getsize(self.path("many.lmc")), size + 120 * 304)
        self.restores("many.lmc", want)
        self.assertEqual(sorted(f["path"] for f in self.listing("many.lmc")["files"] if "/0" in f["path"])[:1], ["sub-0/000.txt"])
        self.lmc("-d", "many.lmc", "sub-1/004.txt", "-o", "part")
        self.assertEqual(self.snapshot("part"), {k: v for k, v in want.items() if k in ("sub-1", "sub-1/004.txt")} if os.path.isdir(self.path("part"))
                         else want["sub-1/004.txt"])
        self.lmc("salvage", "many.lmc", "-o", "saved", says="is whole")
        self.assertTrue({k: v for k, v in self.snapshot("saved/whole").items() if v} == {k: v for k, v in want.items() if v})

    def test_deltas_of_small_files(self):
        """Among large files, small ones whose places do not change can be overwritten in place. If one grew, or if there is hardly anything else, all
        share blocks, and are found by path."""
        self.small_files("old", 40)
        shutil.copytree(self.path("old"), self.path("new"))
        self.write("new/sub-1/004.txt", self.read("new/sub-1/004.txt")[:-1] + b"!")
        self.lmc("--base", "old", "new")
        self.assertLess(os.path.getsize(self.path("new.lmc")), 40 * 100 + 700)  # 282 each if each had a block of its own
        self.restores("new.lmc", self.snapshot("new"), "--base", "old")
        subprocess.run([sys.executable, os.path.join(ROOT, "spec", "lmc_decode.py"), "--base", self.path("old"), self.path("new.lmc"),
                        self.path("decoded")], check=True)
        self.assertEqual(self.snapshot("decoded"), self.snapshot("new"))
        shutil.copytree(self.path("old"), self.path("live"))
        self.lmc("apply", "new.lmc", "live")
        self.assertEqual(self.snapshot("live"), self.snapshot("new"))
        for name in ("live", "new"):
            shutil.rmtree(self.path(name))
        os.unlink(self.path("new.lmc"))
        self.write("old/large", b"")
        os.truncate(self.path("old/large"), 17 << 20)
        shutil.copytree(self.path("old"), self.path("new"))
        self.write("new/sub-1/010.txt", b"x" + self.read("old/sub-1/010.txt")[1:])
        self.lmc("--base", "old", "new")
        shutil.copytree(self.path("old"), self.path("live"))
        before = os.stat(self.path("live/sub-1/010.txt")).st_ino
        self.lmc("apply", "new.lmc", "live")
        self.assertEqual(os.stat(self.path("live/sub-1/010.txt")).st_ino, before)  # in place
        self.assertEqual(self.snapshot("live"), self.snapshot("new"))
        self.write("new/sub-1/004.txt", self.read("new/sub-1/004.txt") + b"more")
        self.lmc("-f", "--base", "old", "new")
        self.assertLess(os.path.getsize(self.path("new.lmc")), 40 * 350)
        self.restores("new.lmc", self.snapshot("new"), "--base", "old")
        self.lmc("apply", "new.lmc", "old")
        self.assertEqual(self.snapshot("old"), self.snapshot("new"))
        self.lmc("rebase", "--base", "live", "--onto", "none", "new.lmc", "-o", "wrong.lmc", code=4)

    def test_small_tensors_are_no_larger_than_bytes(self):
        tensors = []
        for i in range(60):
            tensors.append(("layers.%d.a.weight" % i, "BF16", [8, 512], moved(bf16(4096, i), 2, 0.01, i)))
            tensors.append(("layers.%d.b.weight" % i, "BF16", [512, 8], bytes(2 * 4096) if i % 3 else bf16(4096, 100 + i)))
        self.write("lora.st", safetensors(tensors))
        self.lmc("lora.st")
        self.lmc("-o", "opaque.lmc", "--opaque", "lora.st")
        coded, opaque = [json.loads(self.lmc("-l", "--json", name).stdout)["files"][0]["packed_size"] for name in ("lora.st.lmc", "opaque.lmc")]
        self.assertLess(coded, opaque)
        # each tensor has a name and a fingerprint in the index
        self.assertLess(os.path.getsize(self.path("lora.st.lmc")), os.path.getsize(self.path("opaque.lmc")) + 40 * len(tensors))
        self.assertEqual(self.lmc("cat", "lora.st.lmc", "layers.31.a.weight").stdout, tensors[62][3])

    def test_prefixes_of_names(self):
        """A prefix that was added, dropped or replaced costs nothing; numbers of layers are no prefixes."""
        old = [("model.layers.%d.mlp.%s.weight" % (i, n), bf16(30000, 10 * i + k)) for i in range(3) for k, n in enumerate(("up", "down"))]
        old += [("model.norm.weight", bf16(512, 50)), ("lm_head.weight", bf16(40000, 51))]
        new = [(name, moved(data, 2, 0.01)) for name, data in old]
        sizes = {}
        self.write("old.st", safetensors([(name, "BF16", [len(data) // 2], data) for name, data in old]))
        renames = {"same": lambda n: n, "added": lambda n: "base_model." + n, "module": lambda n: "module." + n,
                   "dropped": lambda n: n.replace("model.", ""), "replaced": lambda n: n.replace("model.", "module.")}
        for key, rename in renames.items():
            self.write(key, safetensors([(rename(name), "BF16", [len(data) // 2], data) for name, data in new]))
            self.lmc("--base", "old.st", key)
            self.restores(key + ".lmc", self.read(key), "--base", "old.st")
            sizes[key] = os.path.getsize(self.path(key + ".lmc"))
        self.assertLess(max(sizes.values()), sizes["same"] + 100, sizes)
        layers = [(name.replace("layers.", "layers.1"), "BF16", [len(data) // 2], data) for name, data in old if "layers" in name]
        self.write("others", safetensors(layers))
        self.lmc("--base", "old.st", "others", says="nothing of it was found in the base old.st")

    def test_small_files_as_the_page_says(self):
        """The page said 250 bytes for each file, and 45 for a tensor."""
        with open(os.path.join(ROOT, "docs/format.md"), encoding="utf-8") as f:
            said = re.search(r"A file of one byte takes (\d+) bytes\. In a directory, a file takes (\d+) bytes more than its content, or (\d+) to (\d+) "
                             r"if there are 24 or more files \(with names of a few letters\)\. A small tensor takes some (\d+) bytes", " ".join(f.read().split()))
        alone, few, least, most, tensor = map(int, said.groups())

        def size(name):
            self.lmc("-f", name, "-o", "x")
            return os.path.getsize(self.path("x"))
        self.write("one", b"x")
        self.assertEqual(size("one"), alone)
        grown = {}
        for n in range(1, 1001):
            self.write("d/f%05d" % n, random.Random(n).randbytes(20))
            if n in (2, 3, 24, 1000):
                grown[n] = size("d") - 20 * n
        self.assertEqual(grown[3] - grown[2], few)
        self.assertAlmostEqual(grown[1000] / 1000, least, delta=3)
        self.assertAlmostEqual(grown[24] / 24, most, delta=3)
        whole = safetensors([("layer.%d.weight" % i, "F32", [100], random.Random(i).randbytes(400)) for i in range(1000)])
        n = int.from_bytes(whole[:8], "little")
        usual = json.dumps(json.loads(whole[8:8 + n]), separators=(",", ":")).encode()  # as the package safetensors writes it
        self.write("t.safetensors", len(usual).to_bytes(8, "little") + usual + whole[8 + n:])
        self.assertAlmostEqual(size("t.safetensors") / 1000 - 400, tensor, delta=15)


class MoreLinks(Case):
    """Hard links, and the targets of links."""

    def test_what_links_lead_to_is_restored_with_them(self):
        """A file of the hub's cache does not come out as a link to nowhere, and --dereference counts."""
        self.write("hub/blobs/1", b"one")
        self.write("hub/blobs/2", b"two")
        os.makedirs(self.path("hub/snapshots/a/sub"))
        for target, link in (("../../blobs/1", "snapshots/a/config.json"), ("../../../blobs/2", "snapshots/a/sub/x"), ("snapshots/a", "latest"),
                             ("nowhere", "dangling"), ("loop", "loop"), ("..", "snapshots/up"), ("../../snapshots/a", "snapshots/a/round")):
            os.symlink(target, self.path("hub/" + link))
        self.lmc("hub")

        def parts(*args, says=None, read=None):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            self.lmc("-d", "-o", "out", "hub.lmc", *args, says=says)
            return sorted(f for f in self.tree("out") if not os.path.isdir(self.path("out/" + f)) or os.path.islink(self.path("out/" + f)))
        self.assertEqual(parts("snapshots/a/config.json", says="which is restored with it"), ["blobs/1", "snapshots/a/config.json"])
        self.assertEqual(self.read("out/snapshots/a/config.json"), b"one")
        self.assertEqual(parts("latest/config.json", says="restored with it"), ["blobs/1", "latest", "snapshots/a/config.json"])
        self.assertEqual(self.read("out/latest/config.json"), b"one")
        self.assertEqual(parts("latest", says="one of 4 such links"),
                         ["blobs/1", "blobs/2", "latest", "snapshots/a/config.json", "snapshots/a/round", "snapshots/a/sub/x"])
        self.assertEqual(parts("dangling", says="is a link to 'nowhere', which the snapshot does not hold"), ["dangling"])
        self.assertEqual(parts("--dereference", "latest", says="does not hold"), ["latest/config.json", "latest/sub/x"])
        self.assertEqual(parts("--dereference", "snapshots/a/*.json"), ["snapshots/a/config.json"])
        self.assertFalse(os.path.islink(self.path("out/snapshots/a/config.json")))
        self.assertEqual(self.read("out/snapshots/a/config.json"), b"one")
        self.assertEqual(self.lmc("-dc", "hub.lmc", "latest/config.json").stdout, b"one")
        self.lmc("-d", "-o", "o2", "hub.lmc", "loop", says="does not hold")
        self.assertEqual(self.lmc("-dc", "hub.lmc", "snapshots/up/snapshots/up/blobs/2").stdout, b"two")
        self.refuses("-d", "--dereference", "-o", "whole", "hub.lmc", code=2, says="--dereference is for compressing")

    def test_hard_links_in_a_stream_of_tar(self):
        """One name has the bytes, and the others are links to it."""
        data = os.urandom(300000)
        self.write("d/b.bin", data)
        self.write("d/config.json", b"{}")
        os.makedirs(self.path("d/sub"))
        for name in ("a.bin", "sub/c.bin"):
            os.link(self.path("d/b.bin"), self.path("d/" + name))
        os.link(self.path("d/config.json"), self.path("d/again.json"))
        self.lmc("d")
        stream = self.lmc("-dc", "d.lmc").stdout
        self.assertLess(len(stream), 320000)
        os.mkdir(self.path("out"))
        subprocess.run(["tar", "-x", "-C", self.path("out")], input=stream, check=True)
        self.assertEqual(self.snapshot("out"), self.snapshot("d"))
        self.assertEqual({f: os.stat(self.path("out/" + f)).st_nlink for f in self.tree("out") if os.path.isfile(self.path("out/" + f))},
                         {"a.bin": 3, "b.bin": 3, "sub/c.bin": 3, "again.json": 2, "config.json": 2})
        self.assertEqual(self.lmc("-dc", stdin=self.read("d.lmc")).stdout, stream)
        piped = self.lmc("-dc", stdin=self.lmc("-c", "d").stdout).stdout  # without twins: the links are not known before the end
        with tarfile.open(fileobj=io.BytesIO(piped)) as t:
            self.assertEqual(t.extractfile("sub/c.bin").read(), data)

    def test_hard_links_and_copies_are_stored_once(self):
        """Also files that are not tensors; and chosen ones come back as links."""
        data = os.urandom(400000)
        for name in ("d/a.bin", "d/copy", "d/z/small"):
            self.write(name, data if name != "d/z/small" else data[:1000])
        self.write("d/m.safetensors", safetensors([("w", "BF16", [60000], bf16(60000))]))
        for old, new in (("a.bin", "b.bin"), ("a.bin", "z/c.bin"), ("m.safetensors", "n.safetensors"), ("z/small", "small")):
            os.link(self.path("d/" + old), self.path("d/" + new))

        def names(where):
            """Groups of names that are one file."""
            files = {}
            for f in self.tree(where):
                if os.path.isfile(self.path(where + "/" + f)):
                    files.setdefault(os.stat(self.path(where + "/" + f)).st_ino, []).append(f)
            return sorted(files.values())
        self.lmc("d")
        alone = 400000 + len(bf16(60000))
        self.assertLess(os.path.getsize(self.path("d.lmc")), alone + 8000)
        self.lmc("-d", "-o", "r", "d.lmc")
        self.assertEqual((self.snapshot("r"), names("r")), (self.snapshot("d"), names("d")))
        self.lmc("rebase", "--onto", "none", "--max", "-o", "again.lmc", "d.lmc")  # coded again from the snapshot
        self.assertLess(os.path.getsize(self.path("again.lmc")), alone + 8000)
        self.assertEqual(self.listing("again.lmc")["fingerprint"], self.listing("d.lmc")["fingerprint"])
        self.lmc("-d", "-o", "some", "d.lmc", "b.bin", "z", "copy", "n.safetensors")
        self.assertEqual(names("some"), [["b.bin", "z/c.bin"], ["copy"], ["n.safetensors"], ["z/small"]])
        self.lmc("-d", "-o", "some", "-f", "d.lmc", "*.bin", "small", "z/small")
        self.assertEqual(names("some"), [["a.bin", "b.bin", "z/c.bin"], ["copy"], ["n.safetensors"], ["small", "z/small"]])
        self.assertEqual([f for f in self.tree("some") if "lmc" in f], [])
        changed = bytearray(data)
        changed[1000::2000] = bytes(200)
        shutil.copytree(self.path("d"), self.path("e"))  # without links
        for name in ("a.bin", "b.bin", "z/c.bin"):
            self.write("e/" + name, bytes(changed))
        self.lmc("--base", "d", "e")  # one of the three against the base, the others as its twins
        self.assertLess(os.path.getsize(self.path("e.lmc")), 6000)
        self.restores("e.lmc", self.snapshot("e"))
        self.lmc("-f", "--no-twins", "d")
        self.assertGreater(os.path.getsize(self.path("d.lmc")), 4 * 400000)
        self.restores("d.lmc", self.snapshot("d"))

    def test_nothing_waits_for_a_fifo(self):
        self.write("a", b"hello")
        self.lmc("a")
        os.mkfifo(self.path("fifo"))
        for args in (("-d",), ("-t",), ("-l",), ("cat",), ("verify",), ("salvage",), ("stats",), ("diff", "a"), ("apply", "a.lmc"),
                     ("rebase", "--onto", "none", "-o", "x"), ("series", "S", "add"), ("--base",), ()):
            p = subprocess.run([LMC, *args, "fifo", *(["-o", "x", "a"] if args == ("--base",) else [])], cwd=self.dir, capture_output=True, timeout=20)
            self.assertIn(p.returncode, (1, 4), args)
            self.assertRegex(p.stderr, rb"fifo: is n(ot a regular file|either a file nor a directory)|a.lmc: is an LMC file", args)
        script = '"$0" -t <(cat a.lmc) && "$0" -dc <(cat a.lmc) && "$0" -d -o - /dev/stdin < a.lmc'
        p = subprocess.run(["bash", "-c", script, LMC], cwd=self.dir, capture_output=True)
        self.assertEqual((p.returncode, p.stdout, p.stderr), (0, b"hellohello", b""))


class Kept(Case):
    """What a snapshot of a directory keeps, and what is lost by --rm."""

    ACL = struct.pack("<IHHIHHIHHIHHIHHI", 2, 1, 6, 2**32 - 1, 2, 4, 1000, 4, 4, 2**32 - 1, 16, 4, 2**32 - 1, 32, 0, 2**32 - 1)

    def attach(self, name, key, value):
        try:
            os.setxattr(self.path(name), key, value)
        except OSError as e:
            self.assertEqual(e.errno, errno.ENOTSUP)
            self.skipTest("no extended attributes here")

    def lost(self, *args, **more):
        """What is lost by --rm, as its message says: a dictionary, and the first file."""
        text = self.lmc(*args, says="", **more).stderr.decode()
        found = re.search(r"is removed, and so is what a snapshot does not keep: ([^;\n]*)(?:; the first is (.*))?\n", text)
        self.assertEqual(text.count("\n"), 1 if found else 0, text)
        return found and ({k: int(n) for k, n in re.findall(r"([a-z, ]+) \((\d+) files?\)(?:, )?", found.group(1))}, found.group(2))

    def test_what_rm_takes_away(self):
        """Owner, extended attributes, ACLs, setuid and setgid bits were lost without a message."""
        def make():
            shutil.rmtree(self.path("d"), ignore_errors=True)
            self.write("d/f", b"hello" * 100, 0o4750)
            self.write("d/g", b"hello" * 100)
            self.write("d/sub/h", b"hello" * 100)
            os.symlink("g", self.path("d/link"))
        make()
        self.assertEqual(self.lost("--rm", "d"), ({"setuid, setgid or sticky bit": 1}, "d/f"))
        make()
        os.chmod(self.path("d/f"), 0o644)
        os.chmod(self.path("d/sub"), 0o3775)
        self.assertIsNone(self.lost("--rm", "-f", "d"))  # both are kept
        make()
        self.attach("d/g", "user.note", b"x")
        self.attach("d/sub", "user.note", b"x")
        self.attach("d/sub/h", "system.posix_acl_access", self.ACL)
        os.chmod(self.path("d"), 0o2755)
        self.assertEqual(self.lost("--rm", "-f", "d"), ({"setuid, setgid or sticky bit": 2, "extended attributes": 2, "access control list": 1}, "d"))
        self.lmc("-d", "d.lmc")
        self.assertIsNone(self.lost("--rm", "-f", "d"))  # what was lost already
        self.lmc("-d", "d.lmc")
        self.attach("d/g", "user.note", b"x")
        self.lmc("-f", "d")  # without --rm nothing is lost
        self.lmc("-q", "--rm", "-f", "d")
        self.lmc("-d", "d.lmc")
        self.attach("d/f", "user.note", b"x")
        self.assertEqual(self.lost("--rm", "d/f"), ({"extended attributes": 1}, None))
        for name in ("d/sub/h", "d"):  # in a series, too
            self.attach(name, "user.note", b"x")
            self.assertEqual(self.lost("series", "s", "add", "--rm", name)[0], {"extended attributes": 1})
        self.assertEqual(self.tree(), ["d.lmc", "s", "s/.lock", "s/d.lmc", "s/h.lmc", "s/series.json"])

    def test_owners(self):
        """As root: files of others. As another user: files that root has left; a message says what he cannot keep, also of files."""
        if os.geteuid() != 0:
            self.skipTest("only root can give files to others")
        me = {"user": 1234, "group": 1234, "extra_groups": []}
        self.write("d/f", b"hello" * 100)
        self.write("d/g", b"hello" * 100)
        os.chown(self.path("d/f"), 1234, 0)
        self.assertEqual(self.lost("--rm", "d"), ({"owner or group": 1}, "d/f"))
        self.lmc("-d", "d.lmc")
        os.chown(self.path("d/f"), 1234, 1234)
        self.assertIsNone(self.lost("--rm", "d/f"))  # the snapshot gets the file's owner
        self.lmc("-d", "--rm", "d/f.lmc")
        self.assertEqual(os.stat(self.path("d/f")).st_uid, 1234)
        if subprocess.run([LMC, "--version"], capture_output=True, **me).returncode:
            self.skipTest("the command is where others cannot run it")
        for name in ("", "d"):
            os.chown(self.path(name), 1234, 1234)
        self.assertEqual(self.lost("--rm", "d/g", **me), ({"owner or group": 1}, None))
        os.chown(self.path("d/f"), 1234, 777)  # a group without this user
        self.assertEqual(self.lost("--rm", "-f", "d", **me), ({"owner or group": 1}, "d/f"))
        self.lmc("-d", "d.lmc", **me)
        os.chown(self.path("d/f"), 1234, 777)  # now the group comes from the directory above
        for name in ("d", "d/g.lmc"):
            os.chown(self.path(name), 1234, 777)
        os.chown(self.path(""), 1234, 777)
        os.chmod(self.path(""), 0o2755)
        self.assertIsNone(self.lost("--rm", "-f", "d", **me))
        self.lmc("-d", "d.lmc", **me)
        self.assertEqual([os.stat(self.path(n)).st_gid for n in ("d", "d/f")], [777, 777])

    def test_setgid_of_directories(self):
        """A shared tree lost its group below each restored directory. Now setgid and sticky bits are restored, for directories only."""
        data = bf16(20000)
        self.write("d/sub/f", data, 0o6755)
        self.write("d/empty/f", b"")
        os.unlink(self.path("d/empty/f"))
        for name, mode in (("sub", 0o2775), ("empty", 0o7777)):
            os.chmod(self.path("d/" + name), mode)

        def modes(root):
            return [os.stat(self.path(root + n)).st_mode & 0o7777 for n in ("/sub", "/empty", "/sub/f")]
        self.lmc("d")
        self.lmc("-d", "-o", "whole", "d.lmc")
        self.lmc("-d", "-o", "parts", "d.lmc", "sub", "empty")
        with tarfile.open(fileobj=io.BytesIO(self.lmc("-dc", "d.lmc").stdout)) as t:
            self.assertEqual([t.getmember(n).mode for n in ("sub", "empty", "sub/f")], [0o2775, 0o3777, 0o755])
        for root in ("whole", "parts"):
            self.assertEqual(modes(root), [0o2775, 0o3777, 0o755])
        self.write("d/sub/f", moved(data, 2, 0.01))
        self.lmc("--base", "d.lmc", "-o", "next.lmc", "d")
        self.lmc("apply", "next.lmc", "whole")
        self.assertEqual(modes("whole")[:2], [0o2775, 0o3777])
        os.chmod(self.path("whole"), 0o2750)
        self.write("d/new", b"another layout")
        self.lmc("--base", "next.lmc", "-o", "last.lmc", "d")
        self.lmc("apply", "last.lmc", "whole")
        self.assertEqual(os.stat(self.path("whole")).st_mode & 0o7777, 0o2750)  # with the bit of set-group-ID
        os.mkdir(self.path("shared"))
        os.chmod(self.path("shared"), 0o2755)
        self.lmc("-d", "-o", "shared/d", "d.lmc")
        self.assertTrue(os.stat(self.path("shared/d")).st_mode & 0o2000)  # as for each directory that is made there

    def test_links_that_become_files(self):
        """With --rm the link is lost for ever, and only -v said so."""
        self.write("elsewhere", b"hello" * 100)
        for args in (("--rm", "d"), ("series", "s", "add", "--rm", "d")):
            os.makedirs(self.path("d"))
            os.symlink("../elsewhere", self.path("d/a"))
            os.symlink("../elsewhere", self.path("d/b"))
            self.lmc(*args, says="d: holds 2 links to files outside of it, which are stored as files; --no-dereference stores links; the first is 'a'")
            self.assertFalse(os.path.exists(self.path("d")))
        os.makedirs(self.path("d"))
        os.symlink("../elsewhere", self.path("d/a"))
        self.lmc("-f", "d")
        self.lmc("-f", "-v", "d", says="holds 1 link to files outside of it, which is stored as a file")
        self.lmc("-f", "--rm", "--no-dereference", "d")
        self.lmc("-d", "d.lmc")
        self.assertTrue(os.path.islink(self.path("d/a")))
        self.lmc("-f", "-q", "--rm", "d")

    def test_all_unreadable_files_are_named(self):
        """Of a directory with several files that cannot be read all are named at once."""
        for k in range(30):
            self.write("d/%02d" % k, b"hello", 0 if k % 3 else 0o644)
        self.write("d/closed/f", b"hello")
        kind = {}
        if os.geteuid() == 0:  # modes do not stop root
            kind = {"user": 1234, "group": 1234, "extra_groups": []}
            if subprocess.run([LMC, "--version"], capture_output=True, **kind).returncode:
                self.skipTest("the command is where others cannot run it")
            for base, dirs, files in os.walk(self.dir):
                for name in [base] + [os.path.join(base, f) for f in files]:
                    os.chown(name, 1234, 1234)
        names = ["d/%02d: cannot open it: Permission denied" % k for k in range(30) if k % 3]

        def said(*args):
            before = self.tree()
            lines = self.lmc(*args, code=1, **kind).stderr.decode().splitlines()
            self.assertEqual(self.tree(), before)
            self.assertTrue(all(line.startswith("lmc: ") for line in lines))
            return [line[5:] for line in lines]
        for args in (("d",), ("--rm", "d"), ("-o", "x.lmc", "d")):
            self.assertEqual(said(*args), names)  # 20 of them
        os.chmod(self.path("d/00"), 0)
        os.chmod(self.path("d/03"), 0)
        more = "d: holds 2 more files that cannot be opened"
        self.assertEqual(said("d"), sorted(["d/00" + names[0][4:], "d/03" + names[0][4:]] + names)[:20] + [more])
        os.chmod(self.path("d/closed"), 0)  # a directory that cannot be read, and the files beside it
        self.assertEqual(said("d")[0], "d/closed: cannot read the directory: Permission denied")
        self.assertEqual(len(said("d")), 22)
        for k in range(25):
            os.makedirs(self.path("e/%02d" % k))
            os.chmod(self.path("e/%02d" % k), 0)
        self.write("e/f", b"hello", 0)
        if kind:
            for name in ("e", "e/f", *("e/%02d" % k for k in range(25))):
                os.chown(self.path(name), 1234, 1234)
        self.assertEqual(len(said("e")), 20 + 1 + 1)
        self.assertIn("e: cannot read 5 more directories of it", said("e"))
        self.assertIn("e/f: cannot open it: Permission denied", said("e"))


if __name__ == "__main__":
    sys.exit(main())
