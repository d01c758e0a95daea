#!/usr/bin/env python3
"""Standard input and output: pipes, files, terminals.

Usage: as case.py says. SPDX-License-Identifier: MIT
"""
import fcntl
import os
import pty
import random
import stat
import struct
import subprocess
import sys
import termios
import threading
import time

from case import LMC, MB, Case, bf16, f32, gguf, main, npy, safetensors


class Pipes(Case):
    def test_both_directions(self):
        for data in (b"", b"x", b"text " * 1000, bf16(300000), safetensors([("w", "BF16", [1000], bf16(1000))])):
            packed = self.lmc(stdin=data).stdout
            self.assertEqual(self.lmc("-d", stdin=packed).stdout, data)
            self.assertEqual(self.lmc("-dc", "-", stdin=packed).stdout, data)
            self.lmc("-t", stdin=packed)

    def test_standard_input_may_be_a_file(self):
        self.write("a", b"0123456789" * 10000)
        with open(self.path("a"), "rb") as f:
            packed = self.lmc("-", stdin=f).stdout
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, self.read("a"))

    def test_slow_writer_and_unknown_length(self):
        data = bf16(400000)
        p = subprocess.Popen([LMC], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        packed = []
        reader = threading.Thread(target=lambda: packed.append(p.stdout.read()))
        reader.start()
        for i in range(0, len(data), 99991):
            p.stdin.write(data[i:i + 99991])
            p.stdin.flush()
            time.sleep(0.02)
        p.stdin.close()
        reader.join()
        p.stdout.close()
        self.assertEqual(p.wait(), 0)
        self.assertEqual(self.lmc("-d", stdin=packed[0]).stdout, data)

    def test_tensors_in_pipes(self):
        w = [("w", "BF16", [300, 300], bf16(90000))]
        for data, dtype in ((safetensors(w), "BF16"), (npy("<f4", (300, 300), f32(90000)), "F32"),
                            (gguf([("w", "BF16", [300, 300], bf16(90000))]), "BF16")):
            self.lmc("-o", "x.lmc", "-f", stdin=data)
            tensors = self.listing("x.lmc")["files"][0]["tensors"]
            self.assertEqual([(t["dtype"], t["shape"]) for t in tensors], [(dtype, [300, 300])])
            self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data)

    def test_pipe_that_does_not_hold_what_its_header_says(self):
        data = safetensors([("w", "BF16", [300, 300], bf16(90000))])
        self.refuses("-o", "x.lmc", code=1, says="goes on after the last tensor", stdin=data + b"tail")
        self.refuses("-o", "x.lmc", code=1, says="ends 5 bytes before the last tensor", stdin=data[:-5])
        self.lmc("--opaque", "-o", "x.lmc", stdin=data + b"tail")
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data + b"tail")
        small = safetensors([("w", "BF16", [3], bf16(3))], tail=b"tail")  # its size is known from the start
        self.assertEqual(self.lmc("-d", stdin=self.lmc(stdin=small).stdout).stdout, small)
        data = gguf([("w", "I8", [(1 << 63) - 1], b"")])  # no file can be so long: not a container
        data += bytes(200000)
        self.lmc("-o", "y.lmc", stdin=data)
        self.assertEqual(self.lmc("-dc", "y.lmc").stdout, data)

    def test_header_that_needs_several_looks(self):
        data = safetensors([("tensor.number.%d" % i, "U8", [2], b"ab") for i in range(20000)])
        self.assertGreater(len(data), 1000000)
        self.lmc("-o", "x.lmc", stdin=data)
        self.assertEqual(len(self.listing("x.lmc")["files"][0]["tensors"]), 20000)
        self.assertEqual(self.lmc("-dc", "x.lmc").stdout, data)

    def test_closed_pipe(self):
        self.write("a", random.Random(3).randbytes(3 * MB))
        self.lmc("a")
        for args in (["-c", "a"], ["-dc", "a.lmc"]):
            p = subprocess.Popen([LMC] + args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.close()
            text = p.stderr.read().decode()
            p.stderr.close()
            self.assertEqual(p.wait(), 1, text)
            self.assertEqual(text, "")
        p = subprocess.Popen([LMC, "-l"] + ["a.lmc"] * 3000, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.close()
        self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))  # the reader has ended
        p.stderr.close()

    def test_closed_standard_output(self):
        self.write("a", b"hello")
        p = subprocess.run(["sh", "-c", '"$0" -c a >&-', LMC], cwd=self.dir, stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, 1, p.stderr)

    def test_reader_that_stops_early_with_a_slow_writer(self):
        """The source blocks for ever, but the output fails: no deadlock."""
        p = subprocess.Popen([LMC, "-c"], stdin=subprocess.PIPE, stdout=open("/dev/full", "wb"), stderr=subprocess.PIPE)
        try:
            for _ in range(40):
                p.stdin.write(random.randbytes(MB))
        except BrokenPipeError:
            pass
        self.assertEqual(p.wait(timeout=20), 1)
        self.assertIn(b"No space left", p.stderr.read())
        p.stderr.close()
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass

    def test_fifo_as_a_file(self):
        os.mkfifo(self.path("f"))
        t = threading.Thread(target=lambda: open(self.path("f"), "wb").write(b"through a fifo"))
        t.start()
        packed = self.lmc("-c", "f").stdout
        t.join()
        self.assertEqual(self.lmc("-d", stdin=packed).stdout, b"through a fifo")

    def test_in_place_outputs(self):
        self.write("a", b"hello")
        self.lmc("a", "-o", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))


class Terminals(Case):
    def setUp(self):
        super().setUp()
        try:
            for end in pty.openpty():
                os.close(end)
        except OSError as e:
            self.skipTest("this machine has no pseudo-terminals (%s); mount devpts at /dev/pts" % (e.strerror or e))

    def run_in_terminal(self, args, streams, columns=0, seen=None):
        """Runs with the named streams on a terminal; returns the exit code and what the terminal showed. seen: is called with all output so far,
        whenever there is more."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0))
        kinds = {s: slave if s in streams else subprocess.DEVNULL for s in ("stdin", "stdout", "stderr")}
        p = subprocess.Popen([LMC] + args, cwd=self.dir, **kinds)
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
            if seen:
                seen(shown)
        os.close(master)
        return p.wait(timeout=20), shown.decode(errors="replace")

    def test_tables(self):
        """On a terminal of less than 132 columns they are at most 80 wide."""
        for k, name in enumerate(("a", "b")):
            self.write(name + "/m.st", safetensors([("w%d" % n, "BF16", [64, 64], bf16(4096, n + 10 * k)) for n in range(3)]))
            self.write(name + "/long.txt", b"x" * 5000)
        os.symlink("long.txt", self.path("a/link"))
        self.lmc("a")
        for args, columns in ((["-l", "a.lmc"], "ratio  name"), (["stats", "a"], "delta  name"), (["stats", "a", "b"], "delta  name"),
                              (["diff", "a", "b"], "delta  name")):
            wide = self.lmc(*args).stdout.decode()
            for width in (40, 80, 131):
                code, shown = self.run_in_terminal(["-q", *args], ["stdout"], columns=width)
                lines = [line for line in shown.replace("\r", "").split("\n") if "fingerprint" not in line]
                self.assertEqual(code, 0)
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertIn(columns, shown)
                self.assertEqual(len(lines), len([line for line in wide.split("\n") if "fingerprint" not in line]))
            self.assertEqual(self.run_in_terminal(["-q", *args], ["stdout"], columns=132)[1].replace("\r", ""), wide)

    def test_no_binary_to_a_terminal(self):
        self.write("a", b"hello")
        self.write("x.safetensors", safetensors([("w", "U8", [3], b"abc")]))
        self.lmc("a", "x.safetensors")
        for args in (["-c", "a"], ["-dc", "a.lmc"], ["cat", "x.safetensors.lmc", "w"]):
            code, shown = self.run_in_terminal(args, ("stdout", "stderr"))
            self.assertEqual(code, 1)
            self.assertIn("not written to a terminal", shown)
        self.assertEqual(self.run_in_terminal(["-dcf", "a.lmc"], ("stdout",)), (0, "hello"))

    def test_nothing_is_read_from_a_terminal(self):
        for args in ([], ["-d"], ["-t", "-"]):
            code, shown = self.run_in_terminal(args, ("stdin", "stderr"))
            self.assertEqual(code, 1)
            self.assertIn("standard input is a terminal", shown)

    def run_until_progress(self, name, columns):
        """Compresses a FIFO of that name, and writes a few bytes at a time into it until a line of progress appears."""
        data = safetensors([("w", "U8", [16 * MB], bytes(16 * MB))])
        os.mkfifo(self.path(name))
        is_seen = threading.Event()

        def feed():
            with open(self.path(name), "wb", buffering=0) as f:
                at = 0
                while at < len(data):
                    n = len(data) - at if is_seen.is_set() else 1 << 15
                    at += f.write(data[at:at + n])
                    is_seen.wait(0.01)
        feeder = threading.Thread(target=feed)
        feeder.start()
        code, shown = self.run_in_terminal(["-f", "-o", "x.lmc", name], ("stderr",), columns,
                                           lambda text: is_seen.set() if b" MB" in text else None)
        is_seen.set()
        feeder.join()
        os.unlink(self.path(name))
        return code, shown, len(data)

    def test_progress(self):
        code, shown, size = self.run_until_progress("a", 0)
        self.assertEqual(code, 0)
        self.assertRegex(shown, r"a: [0-9.]+ MB, \d+ MB/s, [0-9.]+ %, \d+:\d\d left")
        self.assertRegex(shown, r"\r\x1b\[Klmc: a: %d -> \d+ bytes \([0-9.]+ %%\), \d+ MB/s\r\n$" % size)
        for name, columns in (("a" * 200, 0), ("\u4e16" * 60, 50), ("b", 20), ("c" * 100, 100)):
            code, shown, size = self.run_until_progress(name, columns)
            lines = [s for s in shown.split("\r\033[K") if s and " -> " not in s]
            self.assertTrue(code == 0 and lines)
            for line in lines:
                self.assertNotIn("\ufffd", line)
                self.assertLess(len(line), columns or 80)
        self.write("a", bytes(MB))
        self.assertEqual(self.run_in_terminal(["-fq", "a"], ("stderr",)), (0, ""))
        code, shown = self.run_in_terminal(["-f", "--no-progress", "a"], ("stderr",))
        self.assertRegex(shown, r"^lmc: a: 1048576 -> [^\r]*\r\n$")


if __name__ == "__main__":
    sys.exit(main())
