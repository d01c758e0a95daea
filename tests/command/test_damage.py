#!/usr/bin/env python3
"""Damaged snapshots; full disks, refused calls, signals, little memory.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import fcntl
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

from case import LMC, LONG, MB, ROOT, SANITIZED, Case, bf16, main, safetensors, take_signals


class BadSnapshots(Case):
    def setUp(self):
        super().setUp()
        self.write("m.safetensors", safetensors([("w", "BF16", [300], bf16(300)), ("z", "F32", [500], bytes(2000))]))
        self.lmc("m.safetensors")
        self.good = self.read("m.safetensors.lmc")
        os.unlink(self.path("m.safetensors"))
        os.unlink(self.path("m.safetensors.lmc"))

    def check(self, data, codes, what):
        self.write("x.lmc", data)
        for args in (["-t", "x.lmc"], ["-d", "x.lmc"]):
            p = subprocess.run([LMC] + args, cwd=self.dir, capture_output=True, timeout=60)
            self.assertIn(p.returncode, codes, (what, args, p.stderr))
            self.assertRegex(p.stderr.decode(), r"^lmc: x\.lmc: ")
            self.assertEqual(self.tree(), ["x.lmc"], what)
        self.assertEqual(self.read("x.lmc"), data)

    def test_truncated(self):
        points = range(len(self.good)) if LONG else sorted(set(range(0, len(self.good), 13)) | {1, 7, 8, 79, 80, 81, len(self.good) - 1})
        for n in points:
            self.check(self.good[:n], (3,), "cut to %d" % n)

    def test_extended(self):
        self.check(self.good + b"x", (3,), "one byte more")
        self.check(self.good + self.good, (3,), "twice")

    def test_flipped_bits(self):
        rng = random.Random(10)
        bits = range(8 * len(self.good)) if LONG else rng.sample(range(8 * len(self.good)), 250)
        for bit in bits:
            data = bytearray(self.good)
            data[bit // 8] ^= 1 << bit % 8
            self.check(bytes(data), (1,) if bit // 8 == 8 else (3,), "bit %d" % bit)

    def test_flipped_bits_and_access_by_index(self):
        rng = random.Random(12)
        for bit in rng.sample(range(8 * len(self.good)), 300 if LONG else 60):
            data = bytearray(self.good)
            data[bit // 8] ^= 1 << bit % 8
            self.write("x.lmc", bytes(data))
            for args in (["-l", "x.lmc"], ["cat", "x.lmc", "w"], ["cat", "x.lmc", "z[5:9]"]):
                p = subprocess.run([LMC] + args, cwd=self.dir, capture_output=True, timeout=60)
                self.assertIn(p.returncode, (0, 1, 3), (bit, args, p.stderr))
                if args[0] == "cat" and p.returncode == 0:
                    self.assertEqual(p.stdout, bf16(300) if args[2] == "w" else bytes(16))

    def test_magic_and_version(self):
        self.check(b"", (3,), "empty")
        self.check(b"\x28\xb5\x2f\xfd" + self.good[4:], (3,), "magic of zstd")
        self.check(b"plain text, no snapshot\n" * 20, (3,), "text")
        self.check(b"\x8c" + self.good[1:], (3,), "another first byte")
        self.check(self.good[:8] + bytes([0]) + self.good[9:], (1,), "major version 0, and no CRC of it")
        self.check(self.good[:8] + bytes([2, 0]) + self.good[10:], (1,), "newer major version, and no CRC of it")
        self.check(self.good[:9] + bytes([self.good[9] + 1]) + self.good[10:], (3,), "newer minor version, and no CRC of it")
        for name, says in (("version_major_2", "written by a newer lmc, in format 2.0: update lmc"),
                           ("incompatible_bit_6", "a newer lmc and uses feature bit 6"), ("section_critical_sign", "a newer lmc and uses what this one does not know: update")):
            path = os.path.join(ROOT, "spec", "vectors", "invalid", name + ".lmc")
            for args in (["-t"], ["-d", "-o", "out"], ["-l"], ["cat"]):
                self.lmc(*args, path, code=1, says=says)
            with open(path, "rb") as f:
                self.lmc("-t", stdin=f.read(), code=1, says=says)
        self.dump(os.path.join(ROOT, "spec", "vectors", "invalid", "section_critical_sign.lmc"), code=1, says="the section SIGN is unknown")

    def test_blocks_in_the_wrong_order(self):
        data = random.Random(3).randbytes(400000)
        self.write("a", data)
        self.lmc("a")
        packed = self.read("a.lmc")
        os.unlink(self.path("a"))
        os.unlink(self.path("a.lmc"))
        first, second = packed.index(data[:64]), packed.index(data[70000:70064])
        self.assertGreater(second, first)
        swapped = bytearray(packed)
        size = 65536 + 20
        swapped[first - 20:first - 20 + size], swapped[first - 20 + size:first - 20 + 2 * size] = \
            packed[first - 20 + size:first - 20 + 2 * size], packed[first - 20:first - 20 + size]
        if bytes(swapped) != packed:
            self.check(bytes(swapped), (3,), "blocks swapped")

    def test_vectors_of_the_specification(self):
        vectors = os.path.join(ROOT, "spec", "vectors")
        with open(os.path.join(vectors, "manifest.json")) as f:
            manifest = json.load(f)
        for kind in ("valid", "invalid"):
            for v in manifest[kind]:
                path = os.path.join(vectors, kind, v["name"] + ".lmc")
                bases = ["--base=" + os.path.join(vectors, base) for base in v["base"]]
                p = subprocess.run([LMC, "-t", "--no-search", "--max-depth=40000", path] + bases, cwd=self.dir, capture_output=True, timeout=60)
                if kind == "valid":
                    self.assertIn(p.returncode, (0, 3) if v["section"] == "links" and "or" in v else (0,), (path, p.stderr))
                    if v["base_fingerprint"]:
                        self.assertEqual(subprocess.run([LMC, "-t", "--no-search", path], capture_output=True).returncode, 4, path)
                    continue
                codes = {4 if "BASE" in status else 3 if status in ("NOT_LMC", "TRUNCATED", "CORRUPT", "CHECKSUM") else 1 for status in v["status"]}
                self.assertIn(p.returncode, codes, (path, p.stderr))
                p = subprocess.run([LMC, "-d", "--no-search", "-o", "out", path] + bases, cwd=self.dir, capture_output=True, timeout=60)
                self.assertIn(p.returncode, codes, path)
                self.assertEqual(self.tree(), [], path)

    def test_suffix(self):
        self.write("x.lmc", self.good)
        self.refuses("x.lmc", code=1, says="is named .lmc already")
        self.write("y", self.good)
        self.refuses("-d", "y", code=1, says="is not named .lmc")
        self.write(".lmc", self.good)
        self.refuses("-d", ".lmc", code=1, says="is not named .lmc")


class Failures(Case):
    def test_same_input_and_output(self):
        self.write("a", b"hello")
        os.link(self.path("a"), self.path("b"))
        os.symlink("a", self.path("c"))
        for out in ("a", "./a", "b", "c"):
            self.refuses("-f", "a", "-o", out, code=1, says="output and input are the same file")
        with open(self.path("a"), "ab") as f:
            self.lmc("-c", "a", stdout=f, code=1, says="standard output and input are the same file")
        self.assertEqual(self.read("a"), b"hello")

    def test_full_device(self):
        self.write("a", random.Random(1).randbytes(MB))
        self.lmc("a")
        with open("/dev/full", "wb") as full:
            self.lmc("-c", "a", stdout=full, code=1, says="No space left on device; free some space")
            self.lmc("-dc", "a.lmc", stdout=full, code=1, says="No space left on device")
            self.lmc("cat", "--npy", "a.lmc", stdout=full, code=1)
            self.lmc("-l", "a.lmc", stdout=full, code=1, says="No space left on device")
            self.lmc("-h", stdout=full, code=1)

    def test_full_disk(self):
        os.mkdir(self.path("small"))
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.path("small")], capture_output=True).returncode:
            self.skipTest("cannot mount a small file system")
        try:
            self.write("b", random.Random(2).randbytes(MB + 1))
            for n in (MB + 1, 3 * MB):  # only the last bytes, written at the end, are too many; and earlier ones
                self.write("a", random.Random(1).randbytes(n))
                self.write("d/a", self.read("a"))
                for name in ("a", "d"):
                    self.lmc("-f", name)
                    for args in ((name,), (name, "--base", "b"), ("-d", name + ".lmc")):
                        self.lmc(*args, "-o", "small/x", code=1, says="No space left on device")
                        self.assertEqual(os.listdir(self.path("small")), [])
        finally:
            subprocess.run(["umount", self.path("small")], check=True)

    def test_file_size_limit(self):
        self.write("a", random.Random(1).randbytes(3 * MB))
        for args in ("a", "--rm a"):
            p = subprocess.run(["sh", "-c", 'ulimit -f 1000; exec "$0" %s' % args, LMC], cwd=self.dir, capture_output=True)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(b"File too large", p.stderr)
            self.assertEqual(self.tree(), ["a"])

    def test_no_directory(self):
        self.write("a", b"hello")
        self.refuses("a", "-o", "none/x.lmc", code=1, says="none/x.lmc: cannot create it: there is no directory none\n")

    def test_no_permission(self):
        self.write("a", b"hello")
        self.write("secret", b"hello", 0)
        self.write("ro/a", b"hello")
        binary = self.path("copy-of-lmc")
        shutil.copy(LMC, binary)
        os.chmod(binary, 0o755)
        os.chmod(self.path("ro"), 0o555)
        drop = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        before = self.tree()
        for args, says in ((["secret"], b"secret: cannot open it: Permission denied"), (["ro/a"], b"ro/a.lmc: cannot create a file beside it"),
                           (["-c", "missing"], b"missing: cannot open it: No such file"), (["a", "-o", "none/x"], b"there is no directory none")):
            p = subprocess.run([binary] + args, cwd=self.dir, capture_output=True, **drop)
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(says, p.stderr)
        self.assertEqual(self.tree(), before)

    def interrupt(self, args, feed, number, ready):
        def prepare():  # SIGQUIT would leave a core file
            take_signals()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        p = subprocess.Popen([LMC] + args, cwd=self.dir, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare)
        p.stdin.write(feed)
        p.stdin.flush()
        limit = time.time() + 20
        while not ready(p.pid) and time.time() < limit:
            time.sleep(0.01)
        self.assertTrue(ready(p.pid))
        p.send_signal(number)
        code = p.wait(timeout=20)
        p.stdin.close()
        p.stderr.close()
        return code

    def output_is_open(self, pid):
        """Whether the output is open, under a temporary name or without a name."""
        if any(f.startswith(".lmc-") for f in self.tree()):
            return True
        at = "/proc/%d/fd" % pid
        return os.path.isdir(at) and any(os.path.dirname(os.readlink(os.path.join(at, fd))) == self.dir for fd in os.listdir(at))

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL):
            self.assertEqual(self.interrupt(["-o", "x.lmc"], random.Random(1).randbytes(30 * MB), number, self.output_is_open), -number)
            self.assertEqual([f for f in self.tree() if number != signal.SIGKILL or self.has_unnamed_files()], [])
        for f in self.tree():
            os.unlink(self.path(f))
        self.write("x.lmc", b"old")
        self.assertEqual(self.interrupt(["-f", "-o", "x.lmc"], random.Random(1).randbytes(30 * MB), signal.SIGKILL, self.output_is_open), -signal.SIGKILL)
        self.assertEqual(self.read("x.lmc"), b"old")
        self.assertEqual([f for f in self.tree() if not f.startswith(".lmc-")], ["x.lmc"])
        for f in self.tree():
            os.unlink(self.path(f))

    def test_what_kill_leaves_of_a_directory(self):
        """A directory has a name while it is made. A later restore beside it reports it, unless its lmc is alive; nothing is removed."""
        for i in range(3):
            self.write("d/sub%d/x" % i, random.Random(i).randbytes(9 * MB))
        self.lmc("d")
        self.write("f", b"a file")
        os.mkdir(self.path(".lmc-models"))  # perhaps a user's
        self.write(".lmc-locked", b"of a running program")
        packed = self.read("d.lmc")
        with open(self.path(".lmc-locked")) as locked:
            fcntl.flock(locked, fcntl.LOCK_EX)
            p = subprocess.Popen([LMC, "-d", "-o", "e"], cwd=self.dir, stdin=subprocess.PIPE)
            p.stdin.write(packed[:len(packed) * 3 // 4])
            p.stdin.flush()
            limit = time.time() + 20
            while not any("sub1" in f for f in self.tree() if f.startswith(".lmc-")) and time.time() < limit:
                time.sleep(0.01)
            left = next(f for f in self.tree() if f.startswith(".lmc-") and "/sub1" in f).split("/")[0]
            text = self.lmc("-d", "-o", "while", "d.lmc", says="").stderr.decode()
            self.assertEqual(text, "lmc: ./.lmc-models: looks like what a killed lmc has left; FILES in 'man lmc' tells when to remove it\n")
            os.rmdir(self.path(".lmc-models"))
            p.kill()
            p.wait()
            p.stdin.close()
            text = self.lmc("-d", "-o", "after", "d.lmc", says="").stderr.decode()
            self.assertEqual(text, "lmc: ./%s: looks like what a killed lmc has left; FILES in 'man lmc' tells when to remove it\n" % left)
            self.assertTrue(os.path.exists(self.path(left)))
            os.mkdir(self.path(".lmc-abcdef"))
            text = self.lmc("-d", "-o", "two", "d.lmc", says="").stderr.decode()
            self.assertRegex(text, r"^lmc: \./\.lmc-\w{6}: and 1 more look like what a killed lmc has left; [^\n]*\n$")
            os.rmdir(self.path(".lmc-abcdef"))
            self.lmc("-q", "-d", "-o", "quiet", "d.lmc")
        os.unlink(self.path(".lmc-locked"))
        shutil.rmtree(self.path(left))
        self.lmc("-d", "-o", "clean", "d.lmc")

    def has_unnamed_files(self):
        try:
            os.close(os.open(self.dir, os.O_TMPFILE | os.O_RDWR))
            return os.path.isdir("/proc/self/fd")
        except (OSError, AttributeError):
            return False

    def test_signals_while_restoring_a_directory(self):
        for i in range(3):
            self.write("d/sub%d/x" % i, random.Random(i).randbytes(9 * MB))
        self.lmc("d")
        before = self.tree()
        packed = self.read("d.lmc")
        code = self.interrupt(["-d", "-o", "e"], packed[:len(packed) * 3 // 4], signal.SIGINT, lambda pid: any("sub1" in f for f in self.tree() if f.startswith(".lmc-")))
        self.assertEqual(code, -signal.SIGINT)
        self.assertEqual(self.tree(), before)

    def test_ignored_signals_stay_ignored(self):
        p = subprocess.Popen(["sh", "-c", 'trap "" INT; exec "$0" -o x.lmc', LMC], cwd=self.dir, stdin=subprocess.PIPE)
        p.stdin.write(b"abc")
        p.stdin.flush()
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        p.stdin.close()
        self.assertEqual(p.wait(), 0)

    def check_memory(self, megabytes, bound):
        with open(self.path("big"), "wb") as f:
            part = bf16(1 << 19)
            for k in range(megabytes // 2):
                f.write(part if k % 2 else bytes(len(part)))
            f.truncate(megabytes * MB)
        figures = {"compress": self.max_rss("-T4", "big"), "restore": self.max_rss("-d", "-T4", "-o", "out", "big.lmc"),
                   "test": self.max_rss("-t", "-T4", "big.lmc")}
        with open(self.path("big"), "rb") as f:
            cat = subprocess.Popen(["cat"], stdin=f, stdout=subprocess.PIPE)
            figures["pipe"] = self.max_rss("-T4", "-c", stdin=cat.stdout)
            cat.stdout.close()
            cat.wait()
        with open(self.path("new"), "wb") as f:
            for k in range(megabytes // 2):
                f.write(part if k % 3 else bytes(len(part)))
            f.truncate(megabytes * MB)
        deltas = {}
        for base in ("big", "big.lmc"):
            options = ["--dtype=BF16", "-T4", "--base", base]
            self.lmc("-f", "--dtype=BF16", "big")
            deltas["compress, base " + base] = self.max_rss("-f", *options, "new")
            deltas["restore, base " + base] = self.max_rss("-df", *options, "-o", "out", "new.lmc")
            self.assertEqual(subprocess.run(["cmp", "new", "out"], cwd=self.dir).returncode, 0)
        deltas["diff"] = self.max_rss("diff", "-T4", "--dtype=BF16", "big", "new.lmc", "--base", "big.lmc")
        if LONG:
            print("  memory, %d MB file, 4 threads: %s" % (megabytes, {k: "%.0f MB" % v for k, v in {**figures, **deltas}.items()}), file=sys.stderr)
        for name, value in figures.items():
            self.assertLess(value, bound, name)
        for name, value in deltas.items():
            self.assertLess(value, bound + 40 if name != "diff" else 2 * bound, name)  # blocks have 4 MiB if little has changed

    def test_memory(self):
        if SANITIZED:
            self.skipTest("sanitized build")
        self.check_memory(160, 80)

    def test_long_memory(self):
        if not LONG or SANITIZED:
            self.skipTest("--long")
        self.check_memory(1000, 80)


if __name__ == "__main__":
    sys.exit(main())
