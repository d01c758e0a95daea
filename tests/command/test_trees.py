#!/usr/bin/env python3
"""Directories that are compressed and restored as a whole, and --rm.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import unittest

from case import LMC, MB, Case, bf16, can_see_writers, f32, main, safetensors


class Directories(Case):
    def make_tree(self):
        files = {"d/model.safetensors": safetensors([("w", "BF16", [1000], bf16(1000))]), "d/config.json": b"{}",
                 "d/opt/shard-0.bin": f32(5000), "d/opt/deep/er/x": b"x", "d/empty": b"", "d/-odd name": b"o", "d/opt-a": b"z",
                 "d/\u00e4\u4e16": b"unicode"}
        for k, (name, data) in enumerate(files.items()):
            self.write(name, data)
            os.chmod(self.path(name), 0o600 + k)
            os.utime(self.path(name), ns=(0, 10**18 + 10**9 * k + k))
        for name, mode in (("d/none", 0o700), ("d/opt/nothing", 0o755)):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), mode)
            os.utime(self.path(name), ns=(0, 5 * 10**17))
        for k, name in enumerate(("d/opt/deep/er", "d/opt/deep", "d/opt")):  # from the leaves up: a new entry changes a directory's time
            os.chmod(self.path(name), (0o750, 0o555, 0o710)[k])
            os.utime(self.path(name), ns=(0, 6 * 10**17 + k))

    def state(self, name):
        out = {}
        for f in self.tree(name):
            st = os.stat(os.path.join(self.path(name), f))
            if stat.S_ISREG(st.st_mode):
                out[f] = (self.read(os.path.join(name, f)), st.st_mode, st.st_mtime_ns)
            else:
                out[f] = (st.st_mode, st.st_mtime_ns)
        return out

    def test_round_trip(self):
        self.make_tree()
        before = self.state("d")
        self.lmc("d/")
        self.assertEqual(self.state("d"), before)
        self.lmc("-t", "d.lmc")
        paths = [f["path"] for f in self.listing("d.lmc")["files"]]
        self.assertEqual(sorted(paths, key=os.fsencode), sorted(self.tree("d"), key=os.fsencode))
        self.assertIn("opt/deep", paths)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.state("e"), before)
        self.remove("e")
        p = self.lmc("-d", "-o", "e/", stdin=self.read("d.lmc"))
        self.assertEqual(self.state("e"), before)
        self.refuses("-d", "d.lmc", code=1, says="exists already")
        self.remove("d")
        self.lmc("-d", "d.lmc")
        self.assertEqual(self.state("d"), before)
        self.lmc("-c", "d", "-T1")
        self.assertEqual(self.lmc("-c", "d", "-T3").stdout, self.read("d.lmc"))

    def test_root_of_the_file_system(self):
        self.write("tmp", b"a file" * 100)
        self.lmc("tmp")
        self.refuses("-d", "-o", "/", "tmp.lmc", code=1, says="/tmp: is a directory")

    def remove(self, name):
        for base, dirs, _ in os.walk(self.path(name)):
            for d in dirs:
                os.chmod(os.path.join(base, d), 0o755)
        shutil.rmtree(self.path(name))

    def test_replace_with_force(self):
        self.make_tree()
        before = self.state("d")
        self.lmc("d")
        self.write("d/config.json", b"changed")
        os.unlink(self.path("d/opt-a"))
        self.lmc("-df", "d.lmc")
        self.assertEqual(self.state("d"), before)
        self.assertEqual(self.tree(""), sorted(["d", "d.lmc"] + ["d/" + f for f in self.tree("d")]))

    def test_force_does_not_remove_what_the_snapshot_lacks(self):
        self.write("d/sub/x", b"x")
        self.lmc("d")
        for name, make in (("d/precious", lambda p: self.write("d/precious", b"p")), ("d/sub/precious", lambda p: os.mkdir(p)),
                           ("d/sub/link", lambda p: os.symlink("x", p)), ("d/.hidden", lambda p: self.write("d/.hidden", b""))):
            make(self.path(name))
            self.refuses("-df", "d.lmc", code=1, says="it holds '%s'" % name[2:])
            os.rmdir(self.path(name)) if os.path.isdir(self.path(name)) else os.unlink(self.path(name))
        os.unlink(self.path("d/sub/x"))
        os.mkdir(self.path("d/sub/x"))  # a directory where the snapshot has a file
        self.refuses("-df", "d.lmc", code=1, says="it holds 'sub/x'")
        os.rmdir(self.path("d/sub/x"))
        os.mkfifo(self.path("d/sub/x"))
        self.refuses("-df", "d.lmc", code=1, says="which no snapshot can")
        os.unlink(self.path("d/sub/x"))
        self.lmc("-df", "d.lmc")
        self.assertEqual(self.read("d/sub/x"), b"x")

    def test_force_does_not_enter_other_file_systems(self):
        self.write("d/mounted/x", b"x")
        self.lmc("d")
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.path("d/mounted")], capture_output=True).returncode:
            self.skipTest("cannot mount a file system")
        try:
            self.write("d/mounted/x", b"on another file system")
            self.refuses("-df", "d.lmc", code=1, says="another file system is mounted at 'mounted'")
        finally:
            subprocess.run(["umount", self.path("d/mounted")], check=True)

    def test_old_directory_that_cannot_be_removed(self):
        self.write("d/x", b"x")
        self.write("d/y", b"y")
        self.lmc("d")
        if os.geteuid() or subprocess.run(["chattr", "+a", self.path("d/x")], capture_output=True).returncode:
            self.skipTest("cannot make a file that only grows")
        old = []
        try:
            self.lmc("-df", "d.lmc", code=1, says="what is left of it is ")
            old = [f for f in os.listdir(self.dir) if f.startswith(".lmc-")]
            self.assertEqual((self.tree("d"), len(old), self.read(old[0] + "/x")), (["x", "y"], 1, b"x"))
        finally:
            for d in old + ["d"]:
                subprocess.run(["chattr", "-a", self.path(d + "/x")], check=True)
        shutil.rmtree(self.path(old[0]))

    def test_outputs_of_others_are_passed_over(self):
        self.write("d/x", b"x")
        self.write("d/sub/.lmc-aB3xyZ", b"half")
        self.write("d/.lmc-abcdef/y", b"half")
        self.refuses("d", code=1, says="which lmc is writing, or left when it was killed")
        self.lmc("-r", "d")
        self.assertEqual([f for f in self.tree() if f.endswith(".lmc")], ["d/x.lmc"])
        shutil.rmtree(self.path("d/.lmc-abcdef"))
        os.unlink(self.path("d/sub/.lmc-aB3xyZ"))
        for name in ("d/.lmc-abcde", "d/.lmc-abcdefg", "d/.lmc-abc.ef", "d/x.lmc-abcdef"):
            self.write(name, b"another name")
        self.lmc("d")
        shutil.rmtree(self.path("d"))

    def change_while_it_is_read(self, mode, data, says):
        """Begins to compress 20 MB into a pipe, which holds much less, changes the source, and reads the rest."""
        self.write("d/x", random.Random(2).randbytes(20 * MB))
        for source in ("d", "d/x"):
            p = subprocess.Popen([LMC, "-c", source], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.read(100000)  # more than the bytes before the file's
            with open(self.path("d/x"), mode) as f:
                f.write(data)
            text = p.communicate()[1].decode()
            self.assertEqual(p.returncode, 1, text)
            self.assertIn(says, text)

    def test_file_that_is_rewritten(self):
        self.change_while_it_is_read("r+b", b"new", "was changed while it was being read")

    def test_force_loses_nothing_if_the_snapshot_is_bad(self):
        self.make_tree()
        self.lmc("d")
        data = bytearray(self.read("d.lmc"))
        data[-100] ^= 1
        self.write("bad.lmc", bytes(data))
        self.refuses("-df", "bad.lmc", "-o", "d", code=3)

    def test_force_does_not_replace_what_holds_the_snapshot(self):
        self.make_tree()
        self.lmc("d")
        os.rename(self.path("d.lmc"), self.path("d/d.lmc"))
        self.refuses("-df", "d/d.lmc", "-o", "d", code=1, says="holds the snapshot itself")

    def test_small_trees(self):
        os.mkdir(self.path("empty"))
        os.chmod(self.path("empty"), 0o750)
        self.write("one/file", b"single")
        os.makedirs(self.path("nested/a/b"))
        for name, tree in (("empty", []), ("one", ["file"]), ("nested", ["a", "a/b"])):
            self.lmc(name)
            shutil.rmtree(self.path(name))
            self.lmc("-d", name + ".lmc")
            self.assertEqual(self.tree(name), tree)
        self.assertEqual(os.stat(self.path("empty")).st_mode & 0o7777, 0o750)
        self.assertIn(b"(the directory itself)", self.lmc("-l", "empty.lmc").stdout)
        self.assertIn(b"0 files, 2 directories, 0 tensors", self.lmc("-l", "nested.lmc").stdout)
        self.lmc("-tv", "one.lmc", says="ok, 1 file, 6 bytes")

    def test_directory_that_its_owner_cannot_list(self):
        os.makedirs(self.path("d/closed"))
        self.write("d/x", b"x")
        self.lmc("d", "-o", "readable.lmc")
        os.chmod(self.path("d/closed"), 0o300)
        if os.geteuid() == 0:
            self.lmc("d")
            os.mkdir(self.path("u"))
            os.chown(self.path("u"), 65534, 65534)
            binary = self.path("copy-of-lmc")
            shutil.copy(LMC, binary)
            os.chmod(binary, 0o755)
            p = subprocess.run([binary, "-d", "d.lmc", "-o", "u/d"], cwd=self.dir, capture_output=True, user=65534, group=65534, extra_groups=[])
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertEqual(os.stat(self.path("u/d/closed")).st_mode & 0o7777, 0o300)
        else:
            self.refuses("d", code=1, says="cannot read the directory")

    def test_restored_root_has_the_mode_of_the_snapshot(self):
        self.write("d/x", b"x")
        for mode in (0o700, 0o750, 0o755, 0o500):
            os.chmod(self.path("d"), mode)
            self.lmc("-f", "d")
            self.lmc("-d", "d.lmc", "-o", "e")
            self.assertEqual(os.stat(self.path("e")).st_mode & 0o7777, mode)
            os.chmod(self.path("e"), 0o700)
            shutil.rmtree(self.path("e"))

    def test_umask_that_masks_the_owner(self):
        """An ordinary user could not enter the directories that the command makes. Root can."""
        self.write("d/a/b/f", b"f")
        self.lmc("d")
        user = dict(user=65534, group=65534, extra_groups=[]) if os.geteuid() == 0 else {}
        for path in ("", "d.lmc"):
            os.chmod(self.path(path), 0o755)
        shutil.copy(LMC, self.path("program"))
        os.mkdir(self.path("w"))
        os.chmod(self.path("w"), 0o777)
        for mask, mode in ((0o277, 0o500), (0o777, 0)):
            for args in (("-d", "-o", "all%o" % mask, "../d.lmc"), ("-d", "-o", "part%o" % mask, "../d.lmc", "a/*"),
                         ("series", "s%o" % mask, "add", "../d")):
                try:
                    p = subprocess.run(["../program", *args], cwd=self.path("w"), stderr=subprocess.PIPE, umask=mask, **user)
                except PermissionError:
                    self.skipTest("others may not run the program here")
                self.assertEqual((p.returncode, p.stderr), (0, b""), args)
            self.assertEqual(stat.S_IMODE(os.stat(self.path("w/all%o" % mask)).st_mode), mode)
            for path in os.listdir(self.path("w")):
                os.chmod(self.path("w/" + path), 0o755)
            self.assertEqual(self.read("w/all%o/a/b/f" % mask), b"f")

    def test_restored_root_follows_the_umask(self):
        self.write("d/x", b"x")
        self.lmc("d")
        shutil.rmtree(self.path("d"))
        subprocess.run(["sh", "-c", 'umask 077; exec "$0" -d d.lmc', LMC], cwd=self.dir, check=True)
        self.assertEqual(os.stat(self.path("d")).st_mode & 0o7777, 0o700)

    def test_to_standard_output(self):
        """A directory is written to standard output as a stream for tar; from a pipe, too."""
        self.make_tree()
        self.write("d/" + "n" * 120 + "/" + "m" * 120, b"long")
        os.utime(self.path("d/x"), ns=(1, 1234567890123456789)) if os.path.exists(self.path("d/x")) else None
        self.lmc("d")
        for p in (self.lmc("-dc", "d.lmc"), self.lmc("-d", stdin=self.read("d.lmc"))):
            os.mkdir(self.path("out"))
            subprocess.run(["tar", "-x", "-C", self.path("out")], input=p.stdout, check=True)
            self.assertEqual(self.snapshot("out"), self.snapshot("d"))
            for f in self.tree("d"):
                a, b = os.lstat(self.path("d/" + f)), os.lstat(self.path("out/" + f))
                self.assertEqual((a.st_mode, a.st_mtime_ns), (b.st_mode, b.st_mtime_ns), f)
            shutil.rmtree(self.path("out"))

    def test_links(self):
        self.write("blob", b"content")
        os.mkdir(self.path("d"))
        os.symlink("../blob", self.path("d/link"))
        self.lmc("d")
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.read("e/link"), b"content")
        self.assertFalse(os.path.islink(self.path("e/link")))

    def test_things_that_are_no_files(self):
        self.write("d/x", b"x")
        os.mkfifo(self.path("d/y"))
        s = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(self.dir)  # socket names are short
        s.bind("d/z")
        os.chdir(here)
        p = self.lmc("d", says="'y' is neither a file nor a directory nor a link, and is left out")
        self.assertIn("'z' is neither", p.stderr.decode())
        self.assertEqual([f["path"] for f in self.listing("d.lmc")["files"]], ["x"])
        self.refuses("-f", "--rm", "d", code=1, says="which a snapshot cannot hold; leave out --rm")
        self.refuses("-d", "-f", "d.lmc", code=1, says="which no snapshot can; move that away")
        s.close()
        os.unlink(self.path("d/y"))
        os.unlink(self.path("d/z"))
        self.write("d/back\\slash", b"1")  # an ordinary character here
        self.lmc("d", "-f")
        self.lmc("-d", "d.lmc", "-o", "again")
        self.assertEqual(self.read("again/back\\slash"), b"1")

    def test_names_that_make_no_output(self):
        self.write("d/x", b"x")
        self.refuses(".", code=1, says="name the output with -o")
        self.lmc(".", "-o", "../" + os.path.basename(self.dir) + ".lmc")
        out = self.dir + ".lmc"
        self.assertTrue(os.path.exists(out))
        os.unlink(out)

    def test_output_inside_of_the_directory(self):
        self.write("d/x", b"x")
        self.lmc("d", "-o", "d/s.lmc")
        self.refuses("d", "-f", "-o", "d/s.lmc", code=1, says="output and input are the same file")

    def test_directory_misuse(self):
        self.write("d/x", b"x")
        self.write("e", b"x")
        for args in (("-d", "d"), ("-t", "d")):
            self.refuses(*args, code=1, says="is a directory")
        self.lmc("e")
        self.refuses("-d", "e.lmc", "-o", "d", code=1, says="is a directory")
        self.refuses("-df", "e.lmc", "-o", "d", code=1, says="is a directory")
        self.lmc("d")
        self.refuses("-df", "d.lmc", "-o", "e", code=1, says="is not a directory")

    def test_recursive(self):
        self.make_tree()
        self.write("d/old.lmc", b"not touched")
        n = len([f for f in self.tree("d") if os.path.isfile(self.path("d/" + f))]) - 1
        self.lmc("-r", "d")
        self.assertEqual(len([f for f in self.tree("d") if f.endswith(".lmc")]), n + 1)
        os.unlink(self.path("d/old.lmc"))
        self.lmc("-tr", "d")
        self.assertEqual(len(self.lmc("-lr", "--json", "d").stdout.splitlines()), n)
        before = {f: self.read("d/" + f) for f in self.tree("d") if os.path.isfile(self.path("d/" + f)) and not f.endswith(".lmc")}
        for f in before:
            os.unlink(self.path("d/" + f))
        self.lmc("-dr", "--rm", "d")
        self.assertEqual({f: self.read("d/" + f) for f in self.tree("d") if os.path.isfile(self.path("d/" + f))}, before)

    def test_file_that_grows(self):
        self.change_while_it_is_read("ab", b"more", "grew while it was being read")

    def test_bad_container_in_a_directory(self):
        """An incomplete download must not prevent the rest from being stored. But a file that is named must be a container."""
        for name in ("sub/model.safetensors", "x.gguf", "y.npy"):
            self.write("d/" + name, b"<!DOCTYPE html><title>404: there is no such model here</title>\n")
            self.refuses("d/" + name, code=1, says="--opaque")
        self.write("d/good.safetensors", safetensors([("w", "BF16", [9], bf16(9))]))
        text = self.lmc("d", says="d/sub/model.safetensors: is not a valid safetensors file").stderr.decode()
        self.assertEqual(text.count("stored as plain bytes"), 3)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual({f: self.read("e/" + f) for f in self.tree("e") if "." in f}, {f: self.read("d/" + f) for f in self.tree("d") if "." in f})
        self.assertEqual([len(f["tensors"]) for f in self.listing("d.lmc")["files"] if f["kind"] == "file"], [1, 0, 0, 0])
        self.lmc("-qf", "d")
        self.lmc("-f", "--opaque", "d")
        self.lmc("-r", "d", says="d/y.npy: is not a valid NumPy file")
        self.assertEqual(self.lmc("-dc", "d/x.gguf.lmc").stdout, self.read("d/x.gguf"))

    def test_git_lfs_pointers(self):
        """What stands there until git LFS fetches the file: as safetensors, a header of 2336927755350992246 bytes."""
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345678\n" % (b"4d" * 32)
        says = "is a git LFS pointer, not the file; run 'git lfs pull'"
        for name in ("a.safetensors", "a.bin", "a.lmc"):
            self.write(name, pointer)
        self.write("good", b"good")
        for args in (("a.safetensors",), ("a.bin",), ("stats", "a.bin"), ("diff", "a.bin", "good"), ("--base", "a.bin", "good")):
            self.refuses(None, *args, code=1, says=says + ", or use --opaque")
        for args in (("-d", "a.lmc"), ("-d", "a.lmc", "w"), ("-t", "a.lmc"), ("-l", "a.lmc"), ("cat", "a.lmc", "w"), ("stats", "a.lmc"), ("verify", "a.lmc"),
                     ("salvage", "a.lmc"), ("apply", "a.lmc", "good"), ("--base", "a.lmc", "good"), ("rebase", "--onto", "none", "a.lmc", "-o", "b")):
            self.refuses(None, *args, code=3, says=says)
        self.refuses(None, "-d", "-o", "b", stdin=pointer, code=3, says=says)
        self.lmc("--opaque", "a.bin")
        self.assertEqual(self.lmc("-dc", "a.bin.lmc").stdout, pointer)
        self.write("d/a.gguf", pointer)
        self.write("d/b", pointer)
        self.assertEqual(self.lmc("d", says="d/a.gguf: " + says).stderr.count(b"git lfs pull"), 2)
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(self.read("e/b"), pointer)
        self.assertEqual(self.lmc("-r", "d", says=says).stderr.count(b"git lfs pull"), 2)

    def test_empty_files(self):
        self.write("e.lmc", b"")
        for args in (("-d",), ("-t",), ("-l",), ("cat",), ("stats",), ("verify",), ("salvage",)):
            self.refuses(None, *args, "e.lmc", code=3, says="e.lmc: is empty")

    def test_broken_file_name_is_shown_without_control_characters(self):
        self.write("d/\033[31m", b"x")
        self.lmc("d")
        self.assertNotIn(b"\033", self.lmc("-l", "d.lmc").stdout)


class Remove(Case):
    def test_removes(self):
        data = bf16(100000)
        self.write("a", data)
        self.lmc("--rm", "a")
        self.assertEqual(self.tree(), ["a.lmc"])
        self.lmc("-d", "--rm", "a.lmc")
        self.assertEqual((self.tree(), self.read("a")), (["a"], data))
        self.lmc("--rm", "-k", "a")
        self.assertEqual(self.tree(), ["a", "a.lmc"])

    @unittest.skipUnless(can_see_writers(), "the system does not tell who writes")
    def test_open_file_stays(self):
        """A file that is open for writing may grow, so it stays."""
        for name, file in (("a", "a"), ("d", "d/b")):
            self.write(file, bf16(1000))
            with open(self.path(file), "ab"):
                self.lmc("--rm", name, code=1, says="%s: is open for writing by another program, and is not removed; its snapshot is kept as %s.lmc" % (name, name))
            self.assertTrue(os.path.exists(self.path(file)))
            self.lmc("-f", "--rm", name)
        self.assertEqual(self.tree(), ["a.lmc", "d.lmc"])

    def test_removes_trees(self):
        self.write("d/a/b", b"b")
        self.write("d/c", b"")
        os.mkdir(self.path("d/e"))
        before = self.tree("d")
        self.lmc("--rm", "d")
        self.assertEqual(self.tree(), ["d.lmc"])
        self.lmc("--rm", "-d", "d.lmc")
        self.assertEqual((self.tree("d"), os.path.exists(self.path("d.lmc"))), (before, False))

    def test_does_not_remove_through_a_link(self):
        self.write("d/x", b"x")
        os.symlink("d", self.path("l"))
        for name in ("l", "l/"):
            self.refuses("--rm", name, code=1, says="is a link to a directory")
        self.lmc("l")
        self.assertEqual(self.tree(), ["d", "d/x", "l", "l.lmc"])

    def test_keeps_after_errors(self):
        self.write("a", b"a")
        self.write("a.lmc", b"precious")
        self.refuses("--rm", "a", code=1)
        self.write("b.safetensors", b"broken")
        self.refuses("--rm", "b.safetensors", code=1)
        self.refuses("--rm", "-d", "a.lmc", "-o", "out", code=3)


if __name__ == "__main__":
    sys.exit(main())
