#!/usr/bin/env python3
"""Compressing, restoring, testing and listing files: options, outputs, messages, threads; samples and real data.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time
import unittest
from array import array

from case import DATA, DECODER, LMC, LONG, MB, ROOT, SAMPLE, Case, bf16, f32, floats, main, npy, safetensors


class Verbs(Case):
    def test_hashes(self):
        """--hash: written, listed, checked; a snapshot keeps them when it is coded again."""
        parts = {"a": bf16(3000), "b": f32(500)}
        self.write("m.safetensors", safetensors([("a", "BF16", [3000], parts["a"]), ("b", "F32", [500], parts["b"])]))
        self.write("raw", b"raw bytes")
        self.lmc("m.safetensors", "-o", "plain.lmc")
        self.lmc("--hash", "m.safetensors")
        tensors = self.listing("m.safetensors.lmc")["files"][0]["tensors"]
        self.assertEqual({t["name"]: t["sha256"] for t in tensors}, {k: hashlib.sha256(v).hexdigest() for k, v in parts.items()})
        self.assertNotIn("sha256", json.dumps(self.listing("plain.lmc")))
        self.lmc("-t", "--hash", "m.safetensors.lmc")
        self.lmc("-t", "-v", "--hash", "m.safetensors.lmc", says="SHA-256 of all of them")
        self.assertNotIn(b"SHA-256", self.lmc("-t", "-v", "plain.lmc").stderr)
        self.lmc("-t", "--hash", "plain.lmc", code=1, says="has no hashes")
        self.lmc("--hash", "raw")
        self.assertEqual(self.listing("raw.lmc")["files"][0]["sha256"], hashlib.sha256(b"raw bytes").hexdigest())
        self.lmc("rebase", "--onto", "none", "m.safetensors.lmc", "-o", "again.lmc")
        self.lmc("-t", "--hash", "again.lmc")
        whole = self.listing("m.safetensors.lmc")["sha256"]
        self.assertEqual(self.listing("again.lmc")["sha256"], whole)
        self.lmc("--hash", "--base", "plain.lmc", "m.safetensors", "-o", "delta.lmc", says="")
        self.assertEqual(self.listing("delta.lmc")["sha256"], whole)  # with any coding
        self.write("m.safetensors", safetensors([("b", "BF16", [3000], parts["a"]), ("a", "F32", [500], parts["b"])]))
        self.lmc("--hash", "-f", "m.safetensors")
        self.assertNotEqual(self.listing("m.safetensors.lmc")["sha256"], whole)
        self.lmc("rebase", "--onto", "none", "plain.lmc", "-o", "still-plain.lmc")
        self.lmc("-t", "--hash", "still-plain.lmc", code=1)
        self.lmc("--hash", "-d", "raw.lmc", code=2)
        vector = os.path.join(ROOT, "spec", "vectors", "valid", "hash_wrong.lmc")
        self.lmc("-t", vector)
        self.lmc("-t", "--hash", vector, code=3)

    def test_round_trip_of_sizes(self):
        rng = random.Random(5)
        for n in (0, 1, 2, 3, 7, 8, 255, 256, 257, 16384, 65535, 65536, 65537, 131072, 262144, 300001, 1048577):
            self.write("a", rng.randbytes(n))
            self.assertLessEqual(self.round_trip("a"), n + n // 1000 + 800)
            os.unlink(self.path("a.lmc"))

    def test_files_around_windows(self):
        """New files are written in windows of 512 KiB; after each 16 windows writing to the disk starts."""
        rng = random.Random(6)
        for n in (MB // 2, MB, 8 * MB):
            for more in (-1, 0, 1):
                self.write("d/%d" % (n + more), rng.randbytes(n + more))
        self.lmc("d")
        self.lmc("-d", "d.lmc", "-o", "e")
        for name in os.listdir(self.path("d")):
            self.assertEqual(self.read("e/" + name), self.read("d/" + name), name)
            self.round_trip("d/" + name)

    def test_round_trip_of_kinds(self):
        for name, data in (("zeros", bytes(3 * MB)), ("text", b"the quick brown fox\n" * 30000), ("bf16", bf16(200000)),
                           ("f32", f32(100000)), ("x.safetensors", safetensors([("w", "BF16", [200, 500], bf16(100000))]))):
            self.write(name, data)
            size = self.round_trip(name)
            self.assertLess(size, len(data))
            if name == "zeros":
                self.assertLess(size * 1000, len(data))

    def test_zeros_become_holes(self):
        block = 65536
        for name, data in (("all", bytes(20 * MB)), ("end", b"x" * block + bytes(9 * MB + 5)), ("start", bytes(9 * MB) + b"x"),
                           ("middle", b"x" + bytes(9 * MB) + b"y"), ("small", bytes(block)), ("less", bytes(block - 1)),
                           ("between", (bytes(block) + b"x" * block + bytes(3 * block) + b"yz" * block) * 20 + bytes(7))):
            self.write("d/" + name, data)
            self.round_trip("d/" + name)
            os.unlink(self.path("d/" + name + ".lmc"))
        self.lmc("d")
        self.lmc("d/all")
        noise = random.Random(7).randbytes(MB + 40000)
        for kept in (1, 40000, len(noise)):  # bytes before a hole that begins within a window, and behind it
            self.write("d/%d" % kept, safetensors([("a", "U8", [kept], noise[:kept]), ("b", "U8", [9 * MB], bytes(9 * MB)), ("c", "U8", [len(noise)], noise)]))
        self.lmc("-f", "d")
        self.lmc("-d", "d.lmc", "-o", "e")
        self.lmc("-d", "d/all.lmc", "-o", "f")
        for name in os.listdir(self.path("e")):
            self.assertEqual(self.read("e/" + name), self.read("d/" + name), name)
        self.assertEqual(self.read("f"), self.read("d/all"))
        with open(self.path("hole"), "wb") as f:
            f.truncate(MB)
        if os.stat(self.path("hole")).st_blocks == 0:  # this file system has holes
            self.assertEqual(os.stat(self.path("f")).st_blocks, 0)
            for kept in (1, 40000, len(noise)):
                self.assertLess(os.stat(self.path("e/%d" % kept)).st_blocks * 512, kept + len(noise) + 4 * 65536)
            self.assertLess(os.stat(self.path("e/middle")).st_blocks, 1000)
        with open(self.path("g"), "wb") as f:  # a stream is written without holes
            f.write(b"before")
            f.flush()
            self.lmc("-dc", "d/all.lmc", stdout=f)
        self.assertEqual(self.read("g"), b"before" + bytes(20 * MB))

    def test_source_is_kept_and_attributes_follow(self):
        self.write("a", b"hello", 0o640)
        os.utime(self.path("a"), ns=(1, 1234567890123456789))
        self.lmc("a")
        for name in ("a", "a.lmc"):
            st = os.stat(self.path(name))
            self.assertEqual((st.st_mode & 0o7777, st.st_mtime_ns), (0o640, 1234567890123456789))
        os.chmod(self.path("a.lmc"), 0o600)
        os.rename(self.path("a"), self.path("b"))
        self.lmc("-d", "a.lmc")
        st = os.stat(self.path("a"))
        self.assertEqual((st.st_mode & 0o7777, st.st_mtime_ns), (0o640, 1234567890123456789))

    def test_output_of_a_pipe_has_the_mode_of_the_umask(self):
        p = subprocess.run(["sh", "-c", 'umask 027; exec "$0" -o x.lmc', LMC], cwd=self.dir, input=b"abc")
        self.assertEqual(p.returncode, 0)
        self.assertEqual(os.stat(self.path("x.lmc")).st_mode & 0o7777, 0o640)

    def test_stdout_and_output(self):
        self.write("a", b"hello")
        packed = self.lmc("-c", "a").stdout
        self.assertEqual(self.tree(), ["a"])
        self.lmc("a", "-o", "x.lmc")
        self.assertEqual(self.read("x.lmc"), packed)
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, b"hello")
        self.lmc("-d", "x.lmc", "-oy")
        self.assertEqual(self.read("y"), b"hello")
        self.assertEqual(self.lmc("-d", "-o", "-", "x.lmc").stdout, b"hello")
        self.lmc("-t", "x.lmc")

    def test_dev_stdout_is_standard_output(self):
        self.write("a", b"hello")
        for args in (("a", "-o", "/dev/stdout"), ("-d", "a.lmc", "-o", "/dev/stdout")):
            with open(self.path("all"), "wb") as f:
                f.write(b"before")
                f.flush()
                self.lmc(*args, stdout=f)
            self.write("a.lmc", self.read("all")[6:])
            self.assertEqual(self.read("all")[:6], b"before")
        self.assertEqual(self.read("all"), b"beforehello")
        self.refuses("--rm", "a", "-o", "/dev/stdout", code=2)

    def test_other_names_of_the_program(self):
        self.write("a", b"hello")
        self.lmc("a")
        for name in ("unlmc", "lmccat"):
            os.symlink(LMC, self.path(name))
        self.assertEqual(subprocess.run([self.path("lmccat"), "a.lmc", "a.lmc"], cwd=self.dir, stdout=subprocess.PIPE).stdout,
                         b"hellohello")
        os.unlink(self.path("a"))
        self.assertEqual(subprocess.run([self.path("unlmc"), "a.lmc"], cwd=self.dir).returncode, 0)
        self.assertEqual(self.read("a"), b"hello")

    def test_forms_of_options(self):
        self.write("a", b"hello")
        self.write("-x", b"dash")
        self.lmc("-fT2", "a")
        self.lmc("-f", "-T", "1", "a")
        self.lmc("--force", "--threads=2", "--keep", "--quiet", "a")
        self.lmc("-z", "-f", "-T0", "a", "--no-progress")
        self.lmc("--", "-x")
        self.assertEqual(self.lmc("-cd", "--", "-x.lmc").stdout, b"dash")
        self.lmc("-fv", "a", says="a: 5 -> ")
        self.lmc("-tv", "a.lmc", says="ok, 1 file, 5 bytes")
        self.lmc("-f", "--output=b.lmc", "a")

    def test_help_and_version(self):
        self.assertIn(b"compress each to FILE.lmc", self.lmc("-h").stdout)
        self.assertEqual(self.lmc("--help").stdout, self.lmc("help").stdout)
        self.assertRegex(self.lmc("-V").stdout, rb"^lmc \d+\.\d+\.\d+, format \d+\.\d+")
        for topic in ("formats", "directories", "quant", "deltas", "apply", "cat", "diff", "stats", "pipes", "memory", "exit"):
            self.assertGreater(len(self.lmc("help", topic).stdout), 200)
        self.lmc("help", "nonsense", code=2, says="no help on 'nonsense'")

    def test_usage_errors(self):
        self.write("a", b"hello")
        self.lmc("a")
        for args in (("--nonsense", "a"), ("-y", "a"), ("-T", "x", "a"), ("-T5000", "a"), ("-T",), ("-o",), ("-19", "a"),
                     ("--dtype", "BF17", "a"), ("-o", "x", "a", "a"), ("--rm", "-c", "a"), ("--rm", "-"), ("--json", "a"),
                     ("--npy", "a"), ("-t", "--rm", "a.lmc"), ("cat",), ("cat", "a", "b", "c"), ("-d", "--opaque", "a.lmc"),
                     ("--opaque", "--dtype=U8", "a"), ("-r", "-o", "x", "a"), ("-c", "a", "a"), ("-rc", "."), ("-t", "-c", "a.lmc"), ("-l", "-o", "x", "a.lmc"),
                     ("-t", "-o", "x", "a.lmc"), ("cat", "-d", "a.lmc"), ("cat", "-t", "a.lmc"), ("cat", "-l", "a.lmc"), ("cat", "-z", "a")):
            self.refuses(None, *args, code=2, says="lmc: ")
        self.assertEqual(self.lmc("-dc", "a.lmc", "a.lmc").stdout, b"hellohello")

    def test_several_files_one_bad(self):
        self.write("a", b"aaa")
        self.write("c", b"ccc")
        self.lmc("a", "missing", "c", code=1, says="missing: cannot open it")
        self.lmc("-t", "a.lmc", "c.lmc")
        self.write("bad.lmc", b"nonsense")
        self.lmc("-t", "a.lmc", "bad.lmc", "missing", "c.lmc", code=3, says="bad.lmc")
        os.unlink(self.path("a"))
        os.unlink(self.path("c"))
        self.lmc("-d", "a.lmc", "bad.lmc", "c.lmc", code=3)
        self.assertEqual(self.read("a") + self.read("c"), b"aaaccc")
        self.assertFalse(os.path.exists(self.path("bad")))

    def test_longest_names(self):
        """With the suffix, a name of 252 to 255 bytes has more than a file system allows."""
        for n in (251, 252, 255):
            self.write("n" * n, b"x")
            self.lmc("n" * n, code=int(n > 251), says="name another output with -o" if n > 251 else None)
        self.lmc("n" * 255, "-o", "short.lmc")
        self.restores("short.lmc", b"x")

    def test_existing_output(self):
        self.write("a", b"new")
        self.write("a.lmc", b"precious")
        self.refuses("a", code=1, says="exists already; use -f")
        self.lmc("-f", "a")
        self.write("a", b"precious")
        self.refuses("-d", "a.lmc", code=1, says="exists already; use -f")
        self.lmc("-df", "a.lmc")
        self.assertEqual(self.read("a"), b"new")

    def test_output_that_appears_meanwhile_is_kept(self):
        p = subprocess.Popen([LMC, "-o", "x.lmc"], cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"data")
        p.stdin.flush()
        time.sleep(0.2)
        self.write("x.lmc", b"precious")
        _, text = p.communicate(b"more")
        self.assertEqual(p.returncode, 1, text)
        self.assertIn(b"exists already", text)
        self.assertEqual((self.read("x.lmc"), self.tree()), (b"precious", ["x.lmc"]))

    @unittest.skipUnless(sys.platform == "linux", "affinity and /proc are of Linux")
    def test_threads_are_those_of_the_affinity(self):
        """Without -T they were the CPUs of the machine, also where lmc may use one, and memory with them."""
        cpus = os.sched_getaffinity(0)

        def count_tasks(*args, cpus):
            """One task is the thread for signals. All have started when lmc reads more than a pipe holds."""
            p = subprocess.Popen([LMC, *args], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
            with p:
                p.stdin.write(bytes(1 << 20))
                n = len(os.listdir("/proc/%d/task" % p.pid)) - 1
            self.assertEqual(p.returncode, 0)
            return n

        self.assertEqual(count_tasks("-c", cpus={min(cpus)}), 1)
        self.assertEqual(count_tasks("-c", "-T5", cpus={min(cpus)}), 5)
        self.assertLessEqual(count_tasks("-c", cpus=cpus), min(16, len(cpus)))

    def test_threads_give_equal_bytes(self):
        self.write("a", bf16(700000) + random.Random(1).randbytes(300000) + bytes(500000))
        one = self.lmc("-cT1", "a").stdout
        for n in ("2", "3", "4", "0", "16"):
            self.assertEqual(self.lmc("-cT" + n, "a").stdout, one)
        self.write("x.lmc", one)
        for n in ("1", "4"):
            self.assertEqual(self.lmc("-dcT" + n, "x.lmc").stdout, self.read("a"))

    def test_list(self):
        self.write("m.safetensors", safetensors([("a", "F32", [4, 25], f32(100)), ("b", "BF16", [], bf16(1)), ("e", "F16", [0, 5], b"")]))
        self.lmc("m.safetensors")
        text = self.lmc("-l", "m.safetensors.lmc").stdout.decode()
        self.assertRegex(text, r"1 file, 3 tensors, \d+ -> \d+ bytes")
        self.assertRegex(text, r"F32 +\[4,25\] +400 ")
        self.assertRegex(text, r"fingerprint [0-9a-f]{32}\n")
        self.assertRegex(self.lmc("-lv", "m.safetensors.lmc", says="").stdout.decode(), r"offset \d+  [0-9a-f]{32}\n")
        o = self.listing("m.safetensors.lmc")
        self.assertEqual([(t["name"], t["dtype"], t["shape"], t["size"]) for t in o["files"][0]["tensors"]],
                         [("a", "F32", [4, 25], 400), ("e", "F16", [0, 5], 0), ("b", "BF16", [], 2)]
                         if o["files"][0]["tensors"][1]["name"] == "e" else
                         [("a", "F32", [4, 25], 400), ("b", "BF16", [], 2), ("e", "F16", [0, 5], 0)])
        self.assertEqual(o["packed_size"], os.path.getsize(self.path("m.safetensors.lmc")))
        self.assertEqual(o["size"], os.path.getsize(self.path("m.safetensors")))
        self.write("m.txt", b"no tensors")
        self.lmc("-l", "m.txt", code=3, says="not an LMC file")
        self.lmc("-l", "-", code=1, says="save it to a file", stdin=b"abc")

    def test_no_escapes_reach_the_terminal(self):
        self.write("m.safetensors", safetensors([("name\x1b[1m", "\x1b[31mX", [4], b"abcd")], metadata={"a\x1b": "b\x1b"}))
        self.write("d\x1b/x\x07", b"x")
        self.lmc("m.safetensors", "-o", "m.lmc")
        self.lmc("d\x1b", "-o", "d.lmc")
        for args in (("-lv", "m.lmc", "d.lmc"), ("diff", "m.lmc", "m.safetensors"), ("stats", "m.lmc"), ("-t", "m.lmc", "d.lmc"), ("cat", "m.lmc", "no\x1b")):
            p = self.lmc(*args, code=1 if args[0] == "cat" else 0, says="")
            self.assertFalse(set(p.stdout + p.stderr) & {7, 27}, args)

    def test_json_of_what_is_no_utf8(self):
        self.write("x", b"x")
        odd = b"d\xff/\xfe\n.bin"
        os.mkdir(os.path.join(os.fsencode(self.dir), b"d\xff"))
        os.rename(self.path("x"), os.path.join(os.fsencode(self.dir), odd))
        self.lmc(b"d\xff", "-o", "d.lmc")
        o = self.listing("d.lmc")
        self.assertEqual((o["files"][0]["path"], o["files"][0]["path_hex"]), ("?\n.bin", odd[3:].hex()))
        self.lmc("-d", "d.lmc", "-o", "e")
        self.assertEqual(os.listdir(self.path("e").encode()), [odd[3:]])
        os.rename(self.path("d.lmc"), os.path.join(os.fsencode(self.dir), b"\xc3.lmc"))
        self.assertEqual(self.listing(b"\xc3.lmc")["snapshot_hex"], b"\xc3.lmc".hex())
        shutil.rmtree(os.path.join(os.fsencode(self.dir), b"d\xff"))

    def test_json_of_every_vector(self):
        with open(os.path.join(ROOT, "spec", "vectors", "manifest.json")) as f:
            valid = json.load(f)["valid"]
        for want in valid:
            damaged = want["section"] == "hash" and "or" in want and want["name"] not in ("hash_content_wrong", "hash_twice", "hash_twice_apart")
            path = os.path.join(ROOT, "spec", "vectors", "valid", want["name"] + ".lmc")
            p = self.lmc("-l", "--json", path, says="hashes are damaged" if damaged else None)
            o = json.loads(p.stdout)
            self.assertEqual(p.stderr.count(b"\n"), damaged)  # one line, however many items there are
            self.assertEqual(o.get("hashes") == "damaged", damaged)
            self.assertEqual(o.get("hashes") == "sha256", any("sha256" in part for file in o["files"] for part in [file] + file["tensors"]))
            for file, found in zip(want["files"], o["files"]):
                self.assertEqual(found.get("path_hex", file.get("path_hex")), file.get("path_hex"))
                for t, f in zip(file["tensors"], found["tensors"]):
                    self.assertEqual([int(n) for n in f["shape"]], t["shape"])
            self.assertEqual(len(o["metadata"]), len(want["metadata"]))

    def test_links_that_break_rules(self):
        """Verbs that restore, write an archive or test refuse them, and leave nothing."""
        vectors = os.path.join(ROOT, "spec", "vectors")
        with open(os.path.join(vectors, "manifest.json")) as f:
            wanted = [v for v in json.load(f)["valid"] if v["section"] == "links" and v["name"].startswith("links_")]
        self.assertGreater(len(wanted), 30)
        for v in wanted:
            path, bad = os.path.join(vectors, "valid", v["name"] + ".lmc"), "or" in v
            for how in (["-t", path], ["-dc", path], ["-d", path, "-o", "x"], ["-d", path, "-o", "x", "--", "a"])[:4 if "a" in [f["path"] for f in v["files"]] else 3]:
                p = subprocess.run([LMC, *how], cwd=self.dir, capture_output=True, timeout=60)
                self.assertEqual(p.returncode, 3 if bad else 0, (how, p.stderr))
                if bad:
                    self.assertIn(b"has a list of links ('lmc.links') that breaks the rules", p.stderr)
                    self.assertEqual(os.listdir(self.dir), [])
                else:
                    shutil.rmtree(self.path("x"), ignore_errors=True)

    def test_fingerprint_is_that_of_the_content(self):
        w = ("w", "BF16", [1000], bf16(1000))
        v = ("v", "F32", [10], f32(10))
        self.write("1.safetensors", safetensors([w, v]))
        self.write("2.safetensors", safetensors([v, w], metadata={"a": "b"}, pad=1))
        self.write("3.safetensors", safetensors([w, ("v", "F32", [5, 2], f32(10))]))
        self.lmc("1.safetensors", "2.safetensors", "3.safetensors")
        one, two, three = (self.listing("%d.safetensors.lmc" % i)["fingerprint"] for i in (1, 2, 3))
        self.assertEqual(one, two)
        self.assertNotEqual(one, three)


class Together(Case):
    def all_data(self):
        files = [os.path.join(b, f) for b, _, fs in os.walk(DATA) for f in fs if f.endswith(".safetensors")]
        return sorted(files)

    def test_sample(self):
        if not os.path.exists(SAMPLE):
            self.skipTest("no sample")
        shutil.copyfile(SAMPLE, self.path("s.safetensors"))
        self.assertLess(self.round_trip("s.safetensors"), os.path.getsize(SAMPLE) * 0.72)

    def test_real_data(self):
        files = self.all_data()
        if not files:
            self.skipTest("no LMC_DATA")
        for path in files:
            shutil.copyfile(path, self.path("m.safetensors"))
            self.round_trip("m.safetensors", "-f")

    def test_real_directory(self):
        path = os.path.join(DATA, "series", "step-001000")
        if not os.path.isdir(path):
            self.skipTest("no LMC_DATA")
        self.lmc(path, "-o", "d.lmc")
        self.lmc("-d", "d.lmc")
        for f in os.listdir(path):
            with open(os.path.join(path, f), "rb") as source:
                self.assertEqual(self.read("d/" + f), source.read())

    def test_reference_decoder(self):
        if not os.path.exists(DECODER):
            self.skipTest("no reference decoder")
        cases = {"bf16.safetensors": safetensors([("w", "BF16", [9000], bf16(9000)), ("v", "F32", [50], f32(50))], tail=b"tail"), "text": b"to be or not\n" * 500,
                 "zeros": bytes(70000), "random": random.Random(1).randbytes(70001), "empty": b"", "f.npy": npy("<f8", (99,), bytes(range(99)) * 8)}
        for name, data in cases.items():
            self.write(name, data)
            self.lmc(name)
            subprocess.run([sys.executable, DECODER, name + ".lmc", "out"], cwd=self.dir, check=True)
            self.assertEqual(self.read("out"), data)
            os.unlink(self.path("out"))
        for name, data in cases.items():
            self.write("d/" + name, data)
        os.mkdir(self.path("d/nothing"))
        self.lmc("d")
        subprocess.run([sys.executable, DECODER, "d.lmc", "e"], cwd=self.dir, check=True)
        self.assertEqual({f: self.read("e/" + f) for f in os.listdir(self.path("e")) if f != "nothing"}, cases)

    def test_examples(self):
        cc = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if not cc:
            self.skipTest("no compiler")
        for name in ("embed", "read_tensor"):
            subprocess.run(cc.split() + ["-O0", "-std=c99", os.path.join(ROOT, "examples", name + ".c"), "-o", self.path(name), "-lm"], check=True)
        p = subprocess.run([self.path("embed")], stdout=subprocess.PIPE, check=True)
        self.assertIn(b"restored", p.stdout)
        self.write("m.safetensors", safetensors([("w", "F32", [5], b"a" * 20), ("v", "F32", [5], b"b" * 20)]))
        self.lmc("m.safetensors")
        p = subprocess.run([self.path("read_tensor"), "m.safetensors.lmc", "v"], cwd=self.dir, capture_output=True, check=True)
        self.assertEqual(p.stdout, b"b" * 20)
        p = subprocess.run([self.path("read_tensor"), "m.safetensors.lmc", "x"], cwd=self.dir, capture_output=True)
        self.assertEqual(p.returncode, 1)

    def test_long_gigabytes(self):
        if not LONG:
            self.skipTest("--long")
        n = 1000 * MB
        rng = random.Random(1)
        f = floats(1 << 21)
        text = b" ".join(rng.choice([b"the", b"weights", b"of", b"a", b"large", b"model", b"are", b"random"]) for _ in range(1 << 19))
        half = b"".join(struct.pack("<e", x) for x in f)
        int8 = bytes(min(255, max(0, int(x * 1500) + 128)) for x in f)
        kinds = {"bf16": (bf16(1 << 21), "BF16"), "fp16": (half, "F16"), "fp32": (f.tobytes(), "F32"), "fp8": (bytes(b >> 8 & 255 for b in array("H", half)), "F8_E5M2"),
                 "int8": (int8, "I8"), "text": (text, None), "zeros": (bytes(MB), None), "random": (None, None)}
        for name, (part, dtype) in kinds.items():
            with open(self.path("big"), "wb") as out:
                while out.tell() < n:
                    out.write(rng.randbytes(16 * MB) if part is None else part)
            start = time.time()
            self.lmc(*(["--dtype", dtype] if dtype else []), "big")
            middle = time.time()
            self.lmc("-d", "big.lmc", "-o", "out")
            end = time.time()
            self.assertEqual(subprocess.run(["cmp", "big", "out"], cwd=self.dir).returncode, 0)
            size, packed = os.path.getsize(self.path("big")), os.path.getsize(self.path("big.lmc"))
            print("  %-7s %d -> %d bytes (%.3f %%), %.1f s, %.1f s" % (name, size, packed, 100 * packed / size, middle - start, end - middle), file=sys.stderr)
            if name == "zeros":
                self.assertLess(packed * 1000, size)
            if name == "random":
                self.assertLess(packed, size * 1.001)
            for f_ in ("big", "big.lmc", "out"):
                os.unlink(self.path(f_))


if __name__ == "__main__":
    sys.exit(main())
