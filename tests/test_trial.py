#!/usr/bin/env python3
"""What a new user tried and what surprised him: each finding with what happens now. And what the command does about links, chains
that are found by themselves, and parts of snapshots.

Usage: test_trial.py [--brief] [-v] [NAME...]      as tests/test_command.py, whose data and helpers it uses
SPDX-License-Identifier: MIT
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

import test_command
from test_command import LMC, ROOT, Case, bf16, f32, main, moved, safetensors

WORDS = ("cat", "diff", "stats", "fold", "rebase", "verify", "apply", "salvage", "dump", "series")


def index_body(data):
    index, size, _ = struct.unpack("<QQQ", data[-40:-16])
    return data[index + 20:index + size]


def index_replaced(data, body):
    """A snapshot with another body of its index: hand made, with the checksums that belong to it."""
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


class Arguments(Case):
    def test_standard_input_is_not_removed(self):
        """--rm with standard input that nobody has named: a file called "-" was removed, or lmc crashed."""
        self.write("-", b"precious")
        self.write("x", b"x" * 1000)
        self.lmc("./x")
        packed = self.read("x.lmc")
        self.refuses(None, "--rm", code=2, says="--rm cannot remove standard input", stdin=b"x" * 1000)
        for args in (("-d", "--rm"), ("-d", "--rm", "-o", "out")):
            self.refuses(None, *args, code=2, says="--rm cannot remove standard input", stdin=packed)
        self.assertEqual(self.read("-"), b"precious")

    def test_version_takes_no_files(self):
        self.write("f", b"x")
        self.refuses(None, "version", "f", code=2, says="takes no files")
        for word in ("--help", "-h"):
            self.assertEqual(self.lmc("version", word).stdout, self.lmc("--help").stdout)

    def test_a_verb_is_a_verb_wherever_it_stands(self):
        """Finding 3: 'lmc --rm -f diff live x.lmc' compressed and removed both."""
        self.write("live", b"one" * 1000)
        self.write("next", b"two" * 1000)
        self.lmc("next", "--base", "live", says="nothing of it was found")
        for args in (("-f", "-q", "apply"), ("--rm", "-f", "diff", "live", "next.lmc"), ("-T", "2", "-v", "series"), ("-o", "x", "fold")):
            topic = {"fold": "chains"}.get(*[[a, a] for a in args if a in WORDS][0])
            self.refuses(None, *args, code=2, says="See 'lmc help %s'" % topic)
        self.assertEqual(json.loads(self.lmc("--json", "diff", "live", "next").stdout)["size"], 3000)  # finding 32
        self.assertEqual(self.lmc("-q", "-f", "dump", "next.lmc").stdout, self.lmc("dump", "next.lmc").stdout)
        for args in (("live", "apply"), ("live", "next", "cat")):  # behind a file
            self.refuses(None, *args, code=2, says="is a command: it comes before the files")
        self.write("cat", b"a file")
        self.lmc("live", "cat")
        self.assertTrue(os.path.exists(self.path("cat.lmc")))

    def test_words_for_modes(self):
        """Finding 25: they were files that could not be opened, and what came behind them was compressed."""
        self.write("a", b"hello")
        self.lmc("compress", "a")
        for word in ("list", "ls", "info"):
            self.assertEqual(self.lmc(word, "a.lmc").stdout, self.lmc("-l", "a.lmc").stdout)
        self.lmc("test", "a.lmc")
        for word in ("decompress", "restore", "extract"):
            self.lmc("-f", word, "-o", "b", "a.lmc")
            self.assertEqual(self.read("b"), b"hello")
        self.assertEqual(self.lmc("version").stdout, self.lmc("--version").stdout)
        for args, says in ((("compres", "a"), "did you mean 'compress'"), (("verifi", "a.lmc"), "did you mean 'verify'"),
                           (("cta", "a.lmc"), "did you mean 'cat'"), (("nonsense", "a"), "is neither a command nor a file")):
            self.refuses(None, *args, code=2, says=says)
        self.write("test", b"a file")
        self.refuses("test", code=2, says="for the file write ./test")
        self.lmc("./test")
        self.lmc("test", "a.lmc", "test.lmc")

    def test_options_that_others_have(self):
        """Second trial, finding 12: "there is no option", and not what there is."""
        self.write("a", b"hello")
        self.lmc("a")
        for args, says in ((("--bse", "a"), "did you mean '--base'"), (("--thread", "2", "a"), "did you mean '--threads'"),
                           (("--compres", "a"), "did you mean '--compress'"), (("--hel",), "did you mean '--help'"),
                           (("--recur", "a"), "did you mean '--recursive'"), (("--ouptut=b", "a"), "no option '--ouptut'; did you mean '--output'"),
                           (("-j2", "a"), "-T sets the number of threads"), (("--jobs=2", "a"), "-T sets"),
                           (("--level", "3", "a"), "levels are --fast, --max and --archive"), (("--best", "a"), "levels are"),
                           (("-d", "-C", "out", "a.lmc"), "-o names the output"), (("-x", "a.lmc"), "-d restores"), (("-xf", "a.lmc"), "-d restores"),
                           (("x", "a.lmc"), "-d restores"), (("--exclude", "b", "a"), "a directory is compressed whole"),
                           (("-n", "a"), "nothing is removed without --rm"), (("--dry-run", "a"), "nothing is removed without --rm"),
                           (("series", "s", "gc", "--dryrun"), "did you mean '--dry-run'")):
            self.refuses(None, *args, code=2, says=says)
        for args in (("--no-", "a"), ("--xyz", "a"), ("-y", "a")):  # nothing near, or several
            self.assertNotIn(b"did you mean", self.lmc(*args, code=2).stderr)
        self.write("x", b"a file")
        self.lmc("x")
        self.refuses(None, "--" + 5000 * "x", "a", code=2, says="there is no option '--xxx")

    def test_two_modes(self):
        """Finding 32: the last one was taken."""
        self.write("a", b"hello")
        self.lmc("a")
        for args in (("-l", "-d", "a.lmc"), ("-dl", "a.lmc"), ("-t", "--list", "a.lmc"), ("list", "-d", "a.lmc"), ("-z", "test", "a.lmc")):
            self.refuses(None, *args, code=2, says="exclude each other")
        self.lmc("-d", "-d", "-f", "a.lmc")

    def test_help(self):
        """Findings 24, 31: the page of the verb, and all pages within 80 columns."""
        for word in WORDS:
            self.assertEqual(self.lmc(word, "--help").stdout, self.lmc("help", word).stdout)
            self.assertIn(b"lmc " + word.encode(), self.lmc("-v", word, "-h").stdout)
        self.assertEqual(self.lmc("series", "s", "add", "--help").stdout, self.lmc("help", "series").stdout)
        with open(os.path.join(ROOT, "cli", "help.c"), encoding="utf-8") as f:
            topics = re.findall(r'^    \{"(\w+)",', f.read(), re.M)
        self.assertGreater(len(topics), 12)
        for topic in [""] + topics:
            for line in self.lmc("help", *([topic] if topic else [])).stdout.decode().splitlines():
                self.assertLessEqual(len(line), 80, line)
        overview = self.lmc("help").stdout.decode()
        for word in WORDS:
            self.assertIn(word, overview)

    def test_names_of_dtypes(self):
        """Finding 30."""
        self.write("a", bf16(1000))
        for names, dtype in ((("BF16", "bf16", "bfloat16", "torch.bfloat16"), "BF16"), (("f32", "float32", "torch.float", "np.float32"), "F32"),
                             (("int8", "I8"), "I8"), (("half", "float16"), "F16"), (("float8_e4m3fn",), "F8_E4M3")):
            for name in names:
                self.lmc("-f", "--dtype", name, "a")
                self.assertEqual(self.listing("a.lmc")["files"][0]["tensors"][0]["dtype"], dtype)
        self.refuses("--dtype", "bf17", "a", code=2, says="--dtype wants")

    def test_why_a_pipe_has_no_delta(self):
        """Finding 6: it said that the base has no file of that name and size, and it was the very same file."""
        data = bf16(600000)
        self.write("a.bin", data)
        p = self.lmc("--base", "a.bin", "-o", "x.lmc", stdin=data, says="it comes from a pipe")
        self.assertIn(b"save it to a file", p.stderr)
        self.assertNotIn(b"no tensor or file of that name", p.stderr)
        self.lmc("-q", "-d", "x.lmc", "-o", "restored")
        self.assertEqual(self.read("restored"), data)
        self.write("other", bf16(300, 9))
        self.lmc("--base", "a.bin", "other", says="no tensor or file of that name and size")

    def test_a_lost_beginning(self):
        """The first page is gone: not "not an LMC file", when the end is one's."""
        self.write("a", safetensors([("w", "BF16", [60000], bf16(60000))]))
        self.lmc("a")
        self.write("b.lmc", bytes(4096) + self.read("a.lmc")[4096:])
        for args in (["-t", "b.lmc"], ["-d", "-o", "x", "b.lmc"], ["cat", "b.lmc", "w"]):
            self.refuses(None, *args, code=3, says="'lmc salvage' recovers it then")
        self.write("c.lmc", bytes(9000))
        self.assertNotIn(b"salvage", self.refuses(None, "-t", "c.lmc", code=3, says="").stderr)

    def test_base_is_missing_and_nothing_has_changed(self):
        """A delta with the fingerprint of its base, of which only the header differs, is no loop."""
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
            self.assertEqual(chain[0].count("<-"), 0, chain)  # the others need the same
            p = self.lmc("-t", "sg/%s.lmc" % n, code=4, says="needs the base")
            self.assertNotIn(b"loop", p.stderr)

    def test_a_needless_base_is_named(self):
        """The right one lies beside: the one that was given is not used."""
        os.mkdir(self.path("c"))
        for i in (0, 2):
            self.write("%d.safetensors" % i, safetensors([("w", "BF16", [3000], bf16(3000, i))]))
        self.lmc("-q", "0.safetensors", "-o", "c/0.lmc")
        self.write("1.safetensors", safetensors([("w", "BF16", [3000], moved(bf16(3000, 0), 2, 0.02))]))
        self.lmc("-q", "--base", "c/0.lmc", "1.safetensors", "-o", "c/1.lmc")
        self.lmc("-q", "2.safetensors", "-o", "o.lmc")
        self.lmc("-t", "--base", "o.lmc", "c/1.lmc", says="not needed of the bases: o.lmc")
        self.lmc("salvage", "--base", "o.lmc", "c/1.lmc", "-o", "out", says="not needed of the bases: o.lmc")
        self.lmc("-t", "--base", "c/0.lmc", "c/1.lmc")


class ChosenFiles(Case):
    def test_directories_of_chosen_files(self):
        """A private directory stays private, and has its time, when a part of the snapshot is restored."""
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


class Outputs(Case):
    run_in_terminal = test_command.Terminals.run_in_terminal

    def test_summary(self):
        """Finding 26: on a terminal nothing was shown after success."""
        self.write("a", b"hello" * 1000)
        code, shown = self.run_in_terminal(["a"], ("stderr",))
        self.assertRegex(shown, r"^lmc: a: 5000 -> \d+ bytes \([\d.]+ %\), \d+ MB/s\r\n$")
        self.assertRegex(self.run_in_terminal(["-t", "a.lmc"], ("stderr",))[1], r"a.lmc: ok, 1 file, 5000 bytes")
        self.assertRegex(self.run_in_terminal(["-d", "-f", "a.lmc"], ("stderr",))[1], r"a.lmc: \d+ -> 5000 bytes")
        self.assertEqual(self.run_in_terminal(["-q", "-d", "-f", "a.lmc"], ("stderr",)), (0, ""))
        self.write("none", b"")
        self.assertNotIn("%", self.run_in_terminal(["none"], ("stderr",))[1])  # finding 35

    def test_closed_pipe(self):
        """Finding 27."""
        self.write("a", b"hello")
        self.lmc("a")
        for args in (["-l"] + ["a.lmc"] * 3000, ["dump", "-v", "a.lmc"]):
            p = subprocess.Popen([LMC] + args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.close()
            self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))
            p.stderr.close()

    def test_not_a_regular_file(self):
        """Finding 6: /dev/null.lmc, and waiting for a FIFO."""
        os.mkfifo(self.path("fifo"))
        for name in ("fifo", "/dev/null", "/dev/zero"):
            self.refuses(name, code=1, says="is no regular file, and is skipped")
        self.write("a", b"hello")
        self.lmc("/dev/null", "a", code=1, says="skipped")
        self.assertEqual(sorted(self.tree()), ["a", "a.lmc", "fifo"])
        self.assertGreater(len(self.lmc("-c", "/dev/null").stdout), 200)
        self.lmc("-o", "null.lmc", "/dev/null")

    def test_through_a_link(self):
        """Finding 34: the link was replaced by a file."""
        self.write("a", b"hello")
        self.write("deep/real.lmc", b"old")
        os.symlink("deep/real.lmc", self.path("l.lmc"))
        os.symlink("deep/new.lmc", self.path("m.lmc"))
        self.refuses("-o", "l.lmc", "a", code=1, says="exists already")
        for link, real in (("l.lmc", "deep/real.lmc"), ("m.lmc", "deep/new.lmc")):
            self.lmc("-f", "-o", link, "a")
            self.assertTrue(os.path.islink(self.path(link)))
            self.lmc("-t", real)
        os.symlink("x", self.path("x"))
        self.refuses("-f", "-o", "x", "a", code=1, says="leads in a circle")

    def test_quantising_nothing(self):
        """Finding 5: with -q there was no message at all."""
        self.write("a.bin", f32(100000))
        for args in ((), ("-q",)):
            self.lmc("-f", *args, "--quant", "*=update:0.01", "a.bin", says="no tensor was quantised")

    def test_series(self):
        """Findings 4 and 35: naming all of a series and gc removed everything, and said nothing."""
        weights = bf16(3000)
        for k in range(2):
            self.write("s%d.safetensors" % k, safetensors([("w", "BF16", [3000], moved(weights, 2, 0.1 * k))]))
            self.lmc("series", "S", "add", "s%d.safetensors" % k)
            self.assertIn(b"%d snapshot%s, " % (k + 1, b"s" if k else b""), self.lmc("series", "S", "list").stdout)
        self.refuses("series", "S", "prune", "s0", "s1", code=1, says="these are all of its snapshots")
        self.assertRegex(self.lmc("series", "S", "prune", "s0", says="").stderr.decode(), r"S: 1 snapshot, \d+ bytes, forgotten")
        def size():
            return sum(os.path.getsize(self.path("S/" + f)) for f in self.tree("S") if f.endswith(".lmc"))
        before = size()  # a delta becomes a whole snapshot: that was not counted
        said = self.lmc("series", "S", "gc", "--dry-run", says="").stderr.decode()
        self.assertRegex(said, r"S: 1 snapshot would be removed, 1 would be coded again, at most \d+ bytes would be freed")
        said = self.lmc("series", "S", "gc", says="").stderr.decode()
        self.assertEqual(re.search(r"S: 1 snapshot removed, 1 coded again, (.*)\n", said)[1], "%d bytes freed" % (before - size()))
        self.lmc("series", "S", "prune", "-f", "s1", says="forgotten")

    def test_bases_that_are_not_needed(self):
        """Findings 1, 2 and 7: a base that is of no use was not told; --rm removed the source all the same."""
        weights = bf16(40000)
        self.write("a.st", safetensors([("w", "BF16", [40000], weights)]))
        self.write("b.st", safetensors([("w", "BF16", [40000], moved(weights, 2, 0.01))]))
        self.write("c.st", safetensors([("other", "BF16", [40000], bf16(40000, 2))]))
        self.lmc("--base", "a.st", "--base", "c.st", "b.st", says="not needed of the bases: c.st")
        self.refuses("--rm", "--base", "a.st", "-o", "b.st.lmc", "c.st", code=1)
        self.lmc("--base", "a.st", "c.st", says="nothing of it was found in the base a.st")
        os.unlink(self.path("c.st.lmc"))
        self.lmc("--rm", "--base", "a.st", "c.st", code=1, says="is not removed: nothing of it was found in the base a.st")
        self.assertTrue(os.path.exists(self.path("c.st")))
        self.lmc("-v", "-f", "--base", "a.st", "b.st", says=" of the bytes are coded against a.st")
        self.lmc("--rm", "-f", "--base", "a.st", "b.st")
        self.assertFalse(os.path.exists(self.path("b.st")))


class Damage(Case):
    def test_what_is_damaged(self):
        """Findings 28, 29: file and tensor are named, and what helps; bytes after the end are counted, by all alike."""
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
        self.write("long.lmc", data + b"xyz")
        for args in (("-t",), ("-l",), ("-d", "-o", "out"), ("cat", "-o", "out")):
            self.refuses(None, *args, "long.lmc", *(["w1"] if args[0] == "cat" else []), code=3,
                         says="3 bytes follow the end of the snapshot, which is at %d: cut them off" % len(data))
        self.write("text.lmc", data.replace(b"\r\n", b"\n"))
        for args in (("-t",), ("-l",)):
            self.lmc(*args, "text.lmc", code=3, says="send it as binary data")
        self.write("version.lmc", data[:8] + b"\3" + data[9:])  # what follows the version of another format is not for this reader to check
        self.lmc("-t", "version.lmc", code=1, says="written by a newer lmc, in format 3.0: update lmc")
        for back in (200, 30):  # the index and the trailer: a file was named that is intact
            self.write("end.lmc", data[:-back] + bytes([data[-back] ^ 16]) + data[1 - back:])
            for args in (("-t",), ("-l",), ("-d", "-o", "out"), ("verify",), ("cat",)):
                p = self.refuses(None, *args, "end.lmc", *(["w1"] if args[0] == "cat" else []), code=3)
                self.assertIn("(in the index, the table at the end)", p.stderr.decode())
            self.write("both.lmc", data[:at] + bytes([data[at] ^ 1]) + data[at + 1:-back] + bytes([data[-back] ^ 16]) + data[1 - back:])
            text = self.refuses(None, "-t", "both.lmc", code=3).stderr.decode()
            self.assertRegex(text, r"\(bytes \d+ to \d+ of the tensor '%s' of 'a.safetensors'\)" % tensor)
        self.lmc("dump", "version.lmc", code=3, says="but was, as Header_CRC tells")
        self.lmc("-d", "d/config.json", code=3, says="not an LMC file")
        self.lmc("cat", "d.lmc", "w1[5000000]", code=2, says="has 100000 elements in dimension 1, and the slice asks for number 5000000")


    def test_cat_of_another_tensor(self):
        """Blocks of one snapshot with what the index of another one says of them: `cat`, which reads large tensors part by part,
        took them for the tensor that the index names."""
        packed = []
        for i in range(2):
            noise = bytes(random.Random(7).randbytes(5 << 20)[:-1]) + bytes([i]) # stored as it is: blocks of one size
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


class Chains(Case):
    """Finding 12: every link had a --base of its own, and what was missing was told one by one."""
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
        self.refuses("-t", "s/4.lmc", "--search", "nowhere", code=2, says="--search wants a directory")
        self.refuses("-t", "s/4.lmc", "--search", "x", "--search", "y/z", "--no-search", code=4)
        self.lmc("-d", "--base", "s", "--base", "x", "--base", "y/z", "-o", "s/out", "s/4.lmc")  # a place to look is no base
        self.assertEqual(self.read("s/out"), self.data[4])

    def test_chain_of_deltas_against_raw_files(self):
        """Each is one delta deep, as it was made; what restores the raw file of the next is a delta, too."""
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
        self.write("u/same.lmc", self.read("u/3.lmc"))  # no way round, however often it is there
        self.refuses("-t", "u/3.lmc", code=4, says="needs the base")

    def test_all_that_is_missing(self):
        for k in (0, 2):
            self.away("s/%d.lmc" % k, "x")
        text = self.refuses("-t", "s/4.lmc", "--base", "s/3.lmc", "--base", "s/1.lmc", code=4).stderr.decode()
        for k, who in ((2, "s/3.lmc"), (0, "s/1.lmc")):
            self.assertIn("%s: needs the base %s" % (who, self.listing("x/%d.lmc" % k)["fingerprint"][:16]), text)
        self.assertIn("s/1.lmc is %s" % self.listing("s/1.lmc")["fingerprint"][:16], text)  # what was found instead

    def test_a_file_beside_it(self):
        """What the delta names as its base, if that is no snapshot; it is known by its content, not by the name."""
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
        """Links that nobody has named are as dear as those of --base: all restore as before, and nothing else has changed."""
        self.write("other.st", safetensors([("w", "BF16", [40000], moved(bf16(40000), 2, 0.1, 9))]))
        for args in (("-f", "--base", "s/3.lmc", "other.st", "-o", "s/1.lmc"), ("-f", "--rm", "--base", "s/3.lmc", "other.st", "-o", "s/0.lmc"),
                     ("rebase", "--onto", "none", "s/2.lmc", "-f", "-o", "s/1.lmc"), ("rebase", "--onto", "s/2.lmc", "s/4.lmc", "-f", "-o", "s/0.lmc"),
                     ("fold", "--base", "s/2.lmc", "s/3.lmc", "s/4.lmc", "-f", "-o", "s/1.lmc"), ("-d", "-f", "s/4.lmc", "-o", "s/2.lmc")):
            self.refuses(None, *args, code=1, says="is or belongs to a base")

    def test_what_its_own_base_needs(self):
        """Both sources were removed, and each snapshot needed the other. The base of the base is found: a file, a directory, a snapshot."""
        for k in range(2):
            self.write("ck-%d/m.st" % k, self.data[k])
            self.write("ck-%d/c.json" % k, b"{}")
        for old, new in (("0.st", "1.st"), ("ck-0", "ck-1")):
            self.lmc("--rm", "--base", old, new)
            for more in ((), ("--rm",), ("-f", "--rm", "-o", "x.lmc"), ("-c",)):
                self.refuses(old, *more, "--base", new + ".lmc", code=1, says="is what the base %s.lmc itself is restored with (%s)" % (new, old))
            self.lmc("-d", new + ".lmc")
        self.assertEqual(self.read("1.st"), self.data[1])
        self.assertEqual(self.read("ck-1/m.st"), self.data[1])
        self.refuses("ck-0/m.st", "--base", "ck-1.lmc", code=1, says="is what the base ck-1.lmc itself is restored with (ck-0)")
        self.refuses("s/1.lmc", "-f", "--rm", "--base", "s/3.lmc", code=1, says="is what the base s/3.lmc itself is restored with (s/1.lmc)")
        self.refuses("s", "--base", "s/3.lmc", code=1, says="itself is restored with")  # holds it
        self.lmc("4.st", "--rm", "-f", "--base", "s/3.lmc")  # no link of it
        self.restores("4.st.lmc", self.data[4], "--search", "s")

    def test_what_stands_in_for_its_own_base(self):
        """A damaged base is read with the file that it was made from: that is not the one to go then."""
        self.lmc("0.st")
        good = self.read("0.st.lmc")
        self.write("0.st.lmc", good[:len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1:])
        self.lmc("0.st", "--rm", "--base", "0.st.lmc", "-o", "again.lmc", code=1, says="is what the base 0.st.lmc itself is restored with")
        self.assertEqual(self.read("0.st"), self.data[0])
        self.assertFalse(os.path.exists(self.path("again.lmc")))

    def test_compressing_against_a_directory_of_snapshots(self):
        self.refuses("4.st", "-o", "x.lmc", "--base", "s", code=2, says="is a directory of snapshots; name the one")

    def test_a_good_copy_of_a_damaged_base(self):
        """A damaged copy of the base hid a good one."""
        for link in (0, 2):  # a whole snapshot, and a delta
            good = self.read("s/%d.lmc" % link)
            self.write("good/copy.lmc", good)
            for at in (len(good) // 2, len(good) - 150):  # of a block, and of the index
                self.write("s/%d.lmc" % link, good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
                self.refuses("-t", "s/3.lmc", code=3, says="s/%d.lmc: " % link)
                for args in (("--search", "good"), ("--base", "good"), ("--base", "s/%d.lmc" % link, "--base", "good/copy.lmc"),
                             ("--base", "s/%d.lmc" % link, "--search", "good")):
                    self.lmc("-d", "-f", "-o", "out", "s/3.lmc", *args, says="")
                    self.assertEqual(self.read("out"), self.data[3])
                if link == 0 and at == len(good) // 2:
                    self.lmc("-t", "s/3.lmc", "--base", "s/%d.lmc" % link, "--search", "good",
                             says="s/%d.lmc: is damaged: corrupt: a checksum does not match; use another copy; its copy good/copy.lmc is read" % link)
                shutil.copy(self.path("good/copy.lmc"), self.path("s/z.lmc"))  # found without being named
                self.lmc("-t", "s/3.lmc", says="")
                os.unlink(self.path("s/z.lmc"))
            self.write("s/%d.lmc" % link, good)
            os.unlink(self.path("good/copy.lmc"))

    def test_damaged_and_foreign_files_beside_it(self):
        data = bytearray(self.read("s/0.lmc"))
        self.write("s/a.lmc", b"")
        self.write("s/b.lmc", b"\x95LMC" * 100)
        self.write("s/c.lmc", data[:-1])
        os.mkdir(self.path("s/d.lmc"))
        os.mkfifo(self.path("s/e.lmc"))
        self.restores("s/4.lmc", self.data[4])


class Links(Case):
    """Finding 8: a Hugging Face cache restored as real files, and one link to a directory refused the whole snapshot."""
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
        self.assertLess(os.path.getsize(self.path("hub.lmc")), 9000)  # what both names have is stored once
        self.lmc("-d", "-f", "-o", "out", "hub.lmc")  # in the place of what is the same
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
        """A link to /dev/null was one "to directories outside", or stored without a word."""
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
        """A snapshot holds the data of what it is made of: links to files elsewhere are stored as these."""
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
        self.lmc("hub/m/snapshots/a", "-o", "a.lmc")  # as huggingface_hub gives it
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
        os.unlink(self.path("next/m/new"))  # nothing but a link
        self.lmc("-f", "--base", "hub", "next")
        self.refuses("apply", "next.lmc", "hub", code=1, says="m/new: is a link that next.lmc does not have")
        self.lmc("apply", "-f", "next.lmc", "hub", says="holds the files that next.lmc restores already; 1 link was changed")
        self.same("next", "hub")
        self.lmc("apply", "next.lmc", "hub", says="holds what next.lmc restores already")

    def test_cat_follows_links(self):
        """-dc of a link that leads to nothing wrote nothing, with the code 0; cat knew no links at all."""
        os.symlink("/dev/null", self.path("hub/null"))
        os.symlink("there", self.path("hub/back"))
        os.symlink("back", self.path("hub/there"))
        self.lmc("--no-dereference", "hub", says="")
        data = self.read("hub/m/latest/model.safetensors")
        for path in ("m/latest/model.safetensors", "m/snapshots/a/model.safetensors"):
            self.assertEqual(self.lmc("cat", "hub.lmc", "--file", path).stdout, data)
            self.assertEqual(self.lmc("-dc", "hub.lmc", path).stdout, data)
            self.assertEqual(self.lmc("cat", "hub.lmc", "--file", path, "w").stdout, self.lmc("cat", "hub.lmc", "--file", "m/blobs/1", "w").stdout)
            self.assertEqual(self.lmc("cat", "--safetensors", "hub.lmc", "--file", path).stdout,
                             self.lmc("cat", "--safetensors", "hub.lmc", "--file", "m/blobs/1").stdout)
        for path, target in (("m/dangling", None), ("null", "/dev/null"), ("back", "there")):
            target = target or os.readlink(self.path("hub/" + path))
            self.assertEqual(self.refuses("-dc", "hub.lmc", path, code=1, says="'%s' is a link to '%s', which the snapshot does not hold" %
                                          (path, target)).stdout, b"")
            self.refuses("cat", "hub.lmc", "--file", path, code=1, says="'%s' is a link to '%s', which is no file of the snapshot" % (path, target))
        self.refuses("cat", "hub.lmc", "--file", "m/latest", code=1, says="which is no file of the snapshot")
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
    """Finding 13: no single file came out of a snapshot of a directory."""
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
        self.assertEqual(self.lmc("cat", "--file", "config.json", "hf.lmc").stdout, b'{"a": 1}')
        self.assertEqual(self.lmc("cat", "--file", "model.safetensors", "hf.lmc").stdout, self.read("whole/model.safetensors"))
        for args, code, says in ((("missing",), 1, "has no file 'missing'"), (("config.json", "b.lmc"), 2, "name one snapshot"), (("--rm", "config.json"), 2, "--rm and -r"),
                                 (("-o", "o", "nothing*"), 1, "has no file 'nothing*'")):
            self.refuses("-d", "hf.lmc", *args, code=code, says=says)
        self.lmc("whole/config.json", "-o", "single.lmc")
        self.refuses("-d", "single.lmc", "config.json", code=1, says="holds one file and no directory")

    def test_not_through_links(self):
        """What an earlier snapshot has left in the directory must not lead out of it."""
        os.rename(self.path("hf"), self.path("whole"))
        os.makedirs(self.path("outer"))
        os.makedirs(self.path("hf"))
        os.symlink("../outer", self.path("hf/sub"))
        os.symlink("../outer/config.json", self.path("hf/config.json"))
        self.lmc("-d", "-f", "hf.lmc", "sub/y.txt", code=1, says="nothing is restored below it")
        self.lmc("-d", "-f", "hf.lmc", "config.json")  # the link goes, not what it names
        self.assertEqual(os.listdir(self.path("outer")), [])
        self.assertEqual(self.read("hf/config.json"), b'{"a": 1}')

    def test_after_an_error(self):
        """The files written so far stayed, and the same command, run again, said that they exist already."""
        def full():  # no file of more bytes: config.json is written, zz.safetensors is not
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
        """Finding 10: bf16 as ml_dtypes writes it, or as float32."""
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
        self.lmc("x.safetensors")  # which its own reader takes
        self.assertEqual(len(self.listing("x.safetensors.lmc")["files"][0]["tensors"]), 2)
        for args, says in ((("w", "nothing"), "has no tensor 'nothing'"),):
            self.refuses("cat", "--safetensors", "hf.lmc", *args, code=1, says=says)
        self.refuses("cat", "hf.lmc", "w", "b", code=2, says="use --safetensors")
        self.refuses("cat", "--npy", "--safetensors", "hf.lmc", "w", code=2, says="exclude each other")

    def test_tar(self):
        """Finding 34: a stream for tar."""
        data = self.lmc("-dc", "hf.lmc").stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            self.assertEqual(sorted(m.name for m in t), ["config.json", "model.safetensors", "sub", "sub/deep", "sub/deep/x.txt", "sub/y.txt"])
            self.assertEqual(t.extractfile("sub/y.txt").read(), b"y")
        self.assertEqual(self.lmc("-d", stdin=self.read("hf.lmc")).stdout, data)


class Completions(Case):
    """Finding 15: of bash, zsh and fish; they know every verb and option."""
    FILES = ("lmc.bash", "_lmc", "lmc.fish")

    def test_they_know_all(self):
        with open(os.path.join(ROOT, "cli", "option_table.c"), encoding="utf-8") as f:
            options = set(re.findall(r"^    \{(?:0|'.'), \"([a-z0-9-]+)\"", f.read(), re.M))
        self.assertGreater(len(options), 45)
        for name in self.FILES:
            with open(os.path.join(ROOT, "cli", "completions", name), encoding="utf-8") as f:
                text = f.read()
            for word in sorted(options | set(WORDS)):
                self.assertRegex(text, r"(?<![a-z0-9-])(--)?%s(?![a-z0-9-])" % word, name)

    def test_shells_take_them(self):
        for shell, name in (("bash", "lmc.bash"), ("zsh", "_lmc"), ("fish", "lmc.fish")):
            if shutil.which(shell):
                subprocess.run([shell, "-n", os.path.join(ROOT, "cli", "completions", name)], check=True)

    def complete(self, *words):
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lmc; printf "%s\\n" "${COMPREPLY[@]}"')
        env = dict(os.environ, PATH=os.path.dirname(LMC) + ":" + os.environ["PATH"])
        p = subprocess.run(["bash", "-c", script, "bash", os.path.join(ROOT, "cli", "completions", "lmc.bash"), *words],
                           cwd=self.dir, env=env, capture_output=True, text=True, check=True)
        return p.stdout.split()

    def test_bash(self):
        if os.path.basename(LMC) != "lmc":
            self.skipTest("the command is not called lmc")
        self.write("d/config.json", b"{}")
        self.write("d/m.safetensors", safetensors([("wte.weight", "U8", [3], b"abc")]))
        self.lmc("d")
        self.assertEqual(self.complete("lmc", "sal"), ["salvage"])
        self.assertEqual(self.complete("lmc", "--no-s"), ["--no-search"])
        self.assertEqual(self.complete("lmc", "cat", "--np"), ["--npy"])
        self.assertEqual(self.complete("lmc", "cat", "d.lmc", "wt"), ["wte.weight"])
        self.assertEqual(self.complete("lmc", "-d", "d.lmc", "conf"), ["config.json"])
        self.assertEqual(self.complete("lmc", "--dtype", "BF"), ["BF16"])
        self.assertEqual(self.complete("lmc", "help", "sal"), ["salvage"])
        self.assertIn("d.lmc", self.complete("lmc", "-d", "d"))

    VERBS_OF_SERIES = ["add", "cat", "gc", "keep", "list", "prune", "rebuild", "restore", "verify", "watch"]

    def make_series(self):
        if os.path.basename(LMC) != "lmc":
            self.skipTest("the command is not called lmc")
        for name in ("step-1", "step-20"):
            self.write(name + ".safetensors", safetensors([("wte.weight", "BF16", [100], bf16(100))]))
            self.lmc("series", "s", "add", name + ".safetensors")
        os.makedirs(self.path("dir"))

    def test_series_in_bash(self):
        """Second trial, 23: behind a series it offered files; behind 'restore' no names; behind --base verbs, too."""
        self.make_series()
        self.assertEqual(sorted(self.complete("lmc", "series", "s", "")), self.VERBS_OF_SERIES)
        self.assertEqual(self.complete("lmc", "series", "s", "re"), ["restore", "rebuild"])
        for words in (("series", "s", "restore"), ("series", "s/", "restore", "-f"), ("-q", "series", "s", "verify"), ("series", "s", "prune", "step-1")):
            self.assertEqual(self.complete("lmc", *words, ""), ["step-1", "step-20", "latest"])
        self.assertEqual(self.complete("lmc", "series", "s", "cat", "step-2"), ["step-20"])
        self.assertEqual(self.complete("lmc", "series", "s", "cat", "step-20", "w"), ["wte.weight"])
        self.assertEqual(sorted(self.complete("lmc", "series", "")), ["dir", "s"])
        self.assertEqual(self.complete("lmc", "series", "s", "add", "step-2"), ["step-20.safetensors"])
        self.assertEqual(self.complete("lmc", "series", "s", "gc", ""), [])
        self.assertEqual(self.complete("lmc", "series", "s", "gc", "--dry"), ["--dry-run"])
        for option in ("--base", "-o", "--policy"):
            self.assertEqual(sorted(self.complete("lmc", option, "")), ["dir", "s", "step-1.safetensors", "step-20.safetensors"])
        self.assertIn("restore", self.complete("lmc", ""))

    def test_series_in_fish(self):
        if not shutil.which("fish"):
            self.skipTest("no fish")
        self.make_series()

        def complete(line):
            env = dict(os.environ, PATH=os.path.dirname(LMC) + ":" + os.environ["PATH"], HOME=self.dir, XDG_CONFIG_HOME=self.path(".c"), XDG_DATA_HOME=self.path(".d"))
            p = subprocess.run(["fish", "-c", "source $argv[1]; complete -C $argv[2]", "--", os.path.join(ROOT, "cli", "completions", "lmc.fish"), line],
                               cwd=self.dir, env=env, capture_output=True, text=True, check=True)
            return sorted(line.split("\t")[0] for line in p.stdout.splitlines())
        self.assertEqual(complete("lmc series s "), self.VERBS_OF_SERIES)
        self.assertEqual(complete("lmc series s restore "), ["latest", "step-1", "step-20"])
        self.assertEqual(complete("lmc series s prune step-1 step-2"), ["step-20"])
        self.assertEqual(complete("lmc series s gc "), [])
        self.assertEqual(complete("lmc series d"), ["dir/"])
        self.assertEqual([w for w in complete("lmc --base ") if w in WORDS], [])
        self.assertIn("salvage", complete("lmc sal"))

    def test_series_in_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("no zsh")
        self.make_series()
        script = """
            _arguments() { state=rest }; _files() { print files $* }; _values() { shift; print -l $* }; compadd() { print -l ${(P)2} }
            words=("${@[2,-1]}"); CURRENT=$#words; complete() { local state; source $file }; file=$1; complete"""  # what the shell itself does

        def complete(*words):
            env = dict(os.environ, PATH=os.path.dirname(LMC) + ":" + os.environ["PATH"])
            p = subprocess.run(["zsh", "-f", "-c", script, "zsh", os.path.join(ROOT, "cli", "completions", "_lmc"), "lmc", *words, ""], cwd=self.dir, env=env,
                               capture_output=True, text=True, check=True)
            return sorted(p.stdout.splitlines())
        self.assertEqual(complete("series", "s"), self.VERBS_OF_SERIES)
        self.assertEqual(complete("-q", "series", "s", "restore", "-f"), ["latest", "step-1", "step-20"])
        self.assertEqual(complete("series"), ["files -/"])
        self.assertEqual(complete("series", "s", "add"), ["files"])
        self.assertEqual(complete("series", "s", "gc"), [])
        self.assertEqual(complete("a", "b"), ["files"])


class Small(Case):
    """Many small files and tensors; tensors whose names got another prefix; bases that are of no use."""

    def small_files(self, name, n=300):
        text = b" ".join(b"%d lines of text" % (i * 7919 % 10007) for i in range(30000))
        for i in range(n):
            self.write("%s/sub-%d/%03d.%s" % (name, i % 3, i, ("txt", "json")[i % 2]), text[i * 911:][:1024])
        return b"".join(data for _, data in sorted(self.snapshot(name).items()) if data)

    def test_small_files_take_their_content(self):
        """300 files of 1 KB: no more than their bytes at the level of one file, plus 120 bytes each."""
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
        """Beside large files, those that stay where they are can be overwritten in place; once one grew, or if there is hardly
        anything else, all share blocks, and are found by path as before."""
        self.small_files("old", 40)
        shutil.copytree(self.path("old"), self.path("new"))
        self.write("new/sub-1/004.txt", self.read("new/sub-1/004.txt")[:-1] + b"!")
        self.lmc("--base", "old", "new")
        self.assertLess(os.path.getsize(self.path("new.lmc")), 40 * 100 + 700)  # 282 each, when each had a block of its own
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
        self.assertLess(os.path.getsize(self.path("lora.st.lmc")), os.path.getsize(self.path("opaque.lmc")))
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


def ends(part):
    return part["offset"], part["offset"] + part["size"] - 1


def place_of_damage(text):
    """(path, tensor or None, first byte, last byte), as a message has them."""
    place = re.search(r"\(bytes (\d+) to (\d+) of (?:the tensor '(\w+)')?(?: of )?(?:'([^']+)')?", text)
    return (place[4] or "", place[3], int(place[1]), int(place[2])) if place else text


class Surprises(Case):
    """What a second trial, and a review, found wrong."""

    def test_damage_is_in_the_tensor_that_is_named(self):
        """The place was found in steps of 64 KiB, so what was named was a tensor before it."""
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
        """Second trial, finding 10: -t counted from the start of the file, salvage from that of the tensor, and -t was a block too early
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

    def test_what_links_lead_to_is_restored_with_them(self):
        """A file of the hub's cache came out as a link to nowhere; --dereference was passed over."""
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

    def test_pipes_and_a_base_without_use(self):
        """What went to standard output, or came from a pipe, needed a base of which nothing was used, and nobody said so."""
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
        big = os.urandom(3 << 20)  # what a delta needs is known before its end: it does not wait for that
        self.write("big", big)
        self.write("next", big[:-5] + b"other")
        with subprocess.Popen([LMC, "-q", "--base", "big", "-c", "next"], cwd=self.dir, stdout=subprocess.PIPE) as p:
            self.write("o/next.lmc", p.stdout.read())
        self.lmc("-d", "--base", "big", "o/next.lmc")
        self.assertEqual(self.read("o/next"), self.read("next"))

    def test_hard_links_in_a_stream_of_tar(self):
        """Each name had all of the bytes."""
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
        piped = self.lmc("-dc", stdin=self.lmc("-c", "d").stdout).stdout  # without twins: nobody knows the links before the end
        with tarfile.open(fileobj=io.BytesIO(piped)) as t:
            self.assertEqual(t.extractfile("sub/c.bin").read(), data)

    def test_hard_links_and_copies_are_stored_once(self):
        """Files that are not tensors were stored once for each name, and chosen ones came back as copies."""
        data = os.urandom(400000)
        for name in ("d/a.bin", "d/copy", "d/z/small"):
            self.write(name, data if name != "d/z/small" else data[:1000])
        self.write("d/m.safetensors", safetensors([("w", "BF16", [60000], bf16(60000))]))
        for old, new in (("a.bin", "b.bin"), ("a.bin", "z/c.bin"), ("m.safetensors", "n.safetensors"), ("z/small", "small")):
            os.link(self.path("d/" + old), self.path("d/" + new))

        def names(where):
            """Those that are one file."""
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
        self.lmc("--base", "d", "e")  # one of the three against the base, the others by it
        self.assertLess(os.path.getsize(self.path("e.lmc")), 6000)
        self.restores("e.lmc", self.snapshot("e"))
        self.lmc("-f", "--no-twins", "d")
        self.assertGreater(os.path.getsize(self.path("d.lmc")), 4 * 400000)
        self.restores("d.lmc", self.snapshot("d"))

    def test_nothing_waits_for_a_fifo(self):
        self.write("a", b"hello")
        self.lmc("a")
        os.mkfifo(self.path("fifo"))
        for args in (("-d",), ("-t",), ("-l",), ("cat",), ("dump",), ("verify",), ("salvage",), ("stats",), ("diff", "a"), ("apply", "a.lmc"),
                     ("rebase", "--onto", "none", "-o", "x"), ("series", "S", "add"), ("--base",), ()):
            p = subprocess.run([LMC, *args, "fifo", *(["-o", "x", "a"] if args == ("--base",) else [])], cwd=self.dir, capture_output=True, timeout=20)
            self.assertIn(p.returncode, (1, 4), args)
            self.assertRegex(p.stderr, rb"fifo: is n(o regular file|either a file nor a directory)|a.lmc: is an LMC file", args)
        script = '"$0" -t <(cat a.lmc) && "$0" -dc <(cat a.lmc) && "$0" -d -o - /dev/stdin < a.lmc'
        p = subprocess.run(["bash", "-c", script, LMC], cwd=self.dir, capture_output=True)
        self.assertEqual((p.returncode, p.stdout, p.stderr), (0, b"hellohello", b""))

    def test_messages_about_bases(self):
        """-v did not say which base was found; what was listed as another one was the delta itself; a raw file beside a delta was not
        found if the base had been compressed."""
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
        """A damaged .lmc in a place to look, or beside its own source, was all that was looked at."""
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
                self.lmc("-t", *args, "b.st.lmc", says="a.st.lmc: is damaged" if at == 5000 else "a.st.lmc: corrupt")
            self.lmc("-t", "--no-search", "--base", "a.st.lmc", "b.st.lmc", code=3)
        self.write("else/raw.st", self.read("b.st"))  # it is another one
        os.unlink(self.path("a.st"))
        self.lmc("-t", "--base", "else/raw.st", "b.st.lmc", code=3, says="a.st.lmc: corrupt")

    def test_listing_tells_of_raw_bases(self):
        """'is not beside it', it said of the file that -t found."""
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

    def test_small_surprises(self):
        """A name given twice with --rm was missing the second time; '-d -f -o .' tripped over its own temporary directory; a damaged
        first byte gave no hint; 'lmc help --help' was an error; a link to nowhere."""
        for name in ("c", "b"):
            self.write(name, name.encode() * 1000)
        self.lmc("--rm", "c", "b", "c")
        self.assertEqual(self.tree(), ["b.lmc", "c.lmc"])
        self.lmc("-d", "--rm", "c.lmc", "c.lmc")
        self.assertEqual(self.read("c"), b"c" * 1000)
        self.write("d/a", b"a")
        self.lmc("d")
        os.mkdir(self.path("e"))
        for args in (("-f", "-o", "."), ("-o", "e/."), ("-f", "-o", "..")):
            self.refuses("-d", *args, "d.lmc", code=1, says="restore into it: lmc -d -o %s d.lmc '*'" % args[-1])
        self.lmc("-d", "-o", "./e/.", "d.lmc", "*")
        self.assertEqual(self.read("e/a"), b"a")
        packed = self.read("d.lmc")
        for k in (0, 2, 5):
            self.write("d.lmc", packed[:k] + bytes([packed[k] ^ 0x40]) + packed[k + 1:])
            for verb in ("-t", "-l", "-d"):
                self.lmc(verb, "-f", "d.lmc", code=3, says="'lmc salvage' recovers it then" if k != 5 else "line ends were changed")
        self.write("x.lmc", b"something else")
        self.assertNotIn("salvage", self.lmc("-t", "x.lmc", code=3).stderr.decode())
        for word in ("--help", "-h", "help"):
            self.assertEqual(self.lmc("help", word).stdout, self.lmc("help").stdout)
        os.symlink("nowhere", self.path("link"))  # as zstd: what the link names is written, and the link stays
        self.refuses("-o", "link", "c", code=1, says="as a link to nowhere; use -f")
        self.lmc("-f", "-o", "link", "c")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.lmc("-dc", "nowhere").stdout, self.read("c"))

    def test_a_base_that_cannot_be_read(self):
        """A read error of its first bytes was taken for 'no snapshot', and the file for raw bytes."""
        if not os.path.exists("/proc/self/mem"):
            self.skipTest("no /proc")
        self.write("a", b"hello" * 1000)
        self.refuses("--base", "/proc/self/mem", "a", code=1, says="/proc/self/mem: the base cannot be read: Input/output error")

    def test_help_of_words(self):
        """'lmc test --help' showed the overview."""
        overview = self.lmc("help").stdout
        pages = {}
        for words, topic in ((("compress",), "compress"), (("restore", "decompress", "extract", "-d"), "restore"), (("test", "-t"), "test"),
                             (("list", "ls", "info", "-l"), "list")):
            pages[topic] = self.lmc("help", topic).stdout
            for word in words:
                self.assertEqual(self.lmc(word, "--help").stdout, pages[topic])
        self.assertEqual(len({*pages.values(), overview}), 5)


class SecondTrial(Case):
    """The findings of a second user, by their numbers."""

    ACL = struct.pack("<IHHIHHIHHIHHIHHI", 2, 1, 6, 2**32 - 1, 2, 4, 1000, 4, 4, 2**32 - 1, 16, 4, 2**32 - 1, 32, 0, 2**32 - 1)

    def attach(self, name, key, value):
        try:
            os.setxattr(self.path(name), key, value)
        except OSError as e:
            self.assertEqual(e.errno, errno.ENOTSUP)
            self.skipTest("no extended attributes here")

    def lost(self, *args, **more):
        """What --rm says that it takes away, as a dictionary, and of which file first."""
        text = self.lmc(*args, says="", **more).stderr.decode()
        found = re.search(r"is removed with what a snapshot does not keep: ([^;\n]*)(?:; the first is (.*))?\n", text)
        self.assertEqual(text.count("\n"), 1 if found else 0, text)
        return found and ({k: int(n) for k, n in re.findall(r"([a-z, ]+) \((\d+)\)(?:, )?", found.group(1))}, found.group(2))

    def test_04_what_rm_takes_away(self):
        """Owner, extended attributes, ACLs, setuid and setgid bits went without a word."""
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
        self.assertIsNone(self.lost("--rm", "-f", "d"))  # what is lost once
        self.lmc("-d", "d.lmc")
        self.attach("d/g", "user.note", b"x")
        self.lmc("-f", "d")  # without --rm nothing is
        self.lmc("-q", "--rm", "-f", "d")
        self.lmc("-d", "d.lmc")
        self.attach("d/f", "user.note", b"x")
        self.assertEqual(self.lost("--rm", "d/f"), ({"extended attributes": 1}, None))
        for name in ("d/sub/h", "d"):  # in a series, too
            self.attach(name, "user.note", b"x")
            self.assertEqual(self.lost("series", "s", "add", "--rm", name)[0], {"extended attributes": 1})
        self.assertEqual(self.tree(), ["d.lmc", "s", "s/.lock", "s/d.lmc", "s/h.lmc", "s/series.json"])

    def test_04_owners(self):
        """As root: what belongs to others. As another user: what root has left; he is told of what he cannot keep, of files, too."""
        if os.geteuid() != 0:
            self.skipTest("only root can give files to others")
        me = {"user": 1234, "group": 1234, "extra_groups": []}
        self.write("d/f", b"hello" * 100)
        self.write("d/g", b"hello" * 100)
        os.chown(self.path("d/f"), 1234, 0)
        self.assertEqual(self.lost("--rm", "d"), ({"owner or group": 1}, "d/f"))
        self.lmc("-d", "d.lmc")
        os.chown(self.path("d/f"), 1234, 1234)
        self.assertIsNone(self.lost("--rm", "d/f"))  # a file gives its owner to the snapshot
        self.lmc("-d", "--rm", "d/f.lmc")
        self.assertEqual(os.stat(self.path("d/f")).st_uid, 1234)
        if subprocess.run([LMC, "--version"], capture_output=True, **me).returncode:
            self.skipTest("the command is where others cannot run it")
        for name in ("", "d"):
            os.chown(self.path(name), 1234, 1234)
        self.assertEqual(self.lost("--rm", "d/g", **me), ({"owner or group": 1}, None))
        os.chown(self.path("d/f"), 1234, 777)  # a group that he is not in
        self.assertEqual(self.lost("--rm", "-f", "d", **me), ({"owner or group": 1}, "d/f"))
        self.lmc("-d", "d.lmc", **me)
        os.chown(self.path("d/f"), 1234, 777)  # now the directory that all is in gives its group
        for name in ("d", "d/g.lmc"):
            os.chown(self.path(name), 1234, 777)
        os.chown(self.path(""), 1234, 777)
        os.chmod(self.path(""), 0o2755)
        self.assertIsNone(self.lost("--rm", "-f", "d", **me))
        self.lmc("-d", "d.lmc", **me)
        self.assertEqual([os.stat(self.path(n)).st_gid for n in ("d", "d/f")], [777, 777])

    def test_04_setgid_of_directories(self):
        """A shared tree lost its group below each restored directory: setgid and sticky come back, of directories only."""
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
        self.assertEqual(os.stat(self.path("whole")).st_mode & 0o7777, 0o2750)  # was 0750
        os.mkdir(self.path("shared"))
        os.chmod(self.path("shared"), 0o2755)
        self.lmc("-d", "-o", "shared/d", "d.lmc")
        self.assertTrue(os.stat(self.path("shared/d")).st_mode & 0o2000)  # as of each directory that is made there

    def test_05_links_that_become_files(self):
        """With --rm the link is gone for good, and only -v said so."""
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

    def test_06_a_base_that_is_missing(self):
        """It listed the delta itself and unrelated snapshots as what was 'found there', and did not say what to do."""
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
        self.write("q/hf-1.lmc", self.read("q/other.lmc"))  # another one took its name
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

    def test_13_into_a_directory(self):
        """'-o DIR/', as cp, mv and tar have taught, was 'a directory; name a file with -o'."""
        for name in ("a", "sub/b", "d/f"):
            self.write(name, name.encode() * 100)
        os.makedirs(self.path("two"))
        self.lmc("-o", "two/", "a")
        self.lmc("-o", "two//", "d/")
        self.lmc("-o", "./two/", "sub/b", "d/f")
        self.assertEqual(self.tree("two"), ["a.lmc", "b.lmc", "d.lmc", "f.lmc"])
        for name in ("a", "d"):
            self.refuses("-o", "two/", name, code=1, says="two/%s.lmc: exists already; use -f to overwrite it" % name)
            self.refuses("-o", "two", name, code=1, says="two: is a directory; did you mean -o two/ ?")
        os.makedirs(self.path("out"))
        self.lmc("-d", "-o", "out/", "two/a.lmc")
        self.lmc("-d", "-o", self.path("out/"), "two/b.lmc", "two/d.lmc")
        self.assertEqual(self.tree("out"), ["a", "b", "d", "d/f"])
        self.assertEqual(self.read("out/d/f"), self.read("d/f"))
        self.refuses("-d", "-o", "out", "two/a.lmc", code=1, says="out: is a directory; did you mean -o out/ ?")
        self.refuses("-d", "-o", "out", "two/d.lmc", code=1, says="out: exists already; use -f to replace it, or name another directory with -o; "
                     "-o out/ restores into it")
        self.refuses("-d", "-o", "out/", "two/d.lmc", code=1, says="out/d: exists already")
        for args in (("-o", "no/", "a"), ("-o", "no/", "d"), ("-o", "no/", "a", "d"), ("-d", "-o", "no/", "two/a.lmc"), ("-d", "-o", "no/", "two/d.lmc", "two/a.lmc")):
            self.refuses(None, *args, code=1, says="no/: there is no such directory; make it first")
        self.refuses("-o", "two", "a", "d", code=2, says="for a directory that they go into, end it with a slash")
        self.lmc("-d", "-o", "new/", "two/d.lmc")  # which is made, as before
        self.assertEqual(self.tree("new"), ["f"])
        self.lmc("-d", "-o", "out/", "two/d.lmc", "f")  # parts go below what -o names, as before
        self.assertTrue(os.path.exists(self.path("out/f")))
        self.refuses("-o", "two/", code=1, says="two/: is a directory; name a file with -o", stdin=b"from a pipe")
        self.refuses("-d", "-o", "two/", code=1, says="two: is a directory; name a file with -o", stdin=self.read("two/a.lmc"))
        self.refuses("-o", "two/", "d/..", code=1, says="has no name to derive that of the output from")

    def test_13_nothing_is_lost_on_the_way(self):
        """Two inputs of one name, or an output in the place of an input: with --rm and -f one would be lost."""
        for name in ("one/x", "other/x", "y"):
            self.write(name, name.encode() * 100)
        os.makedirs(self.path("two"))
        self.refuses("--rm", "-f", "-o", "two/", "one/x", "other/x", code=1, says="two/x.lmc: is the output of other/x and that of one/x, which would be lost")
        self.lmc("--rm", "-o", "two/", "one/x", "other/x", code=1, says="two/x.lmc: exists already")
        self.assertEqual(self.tree(), ["one", "other", "other/x", "two", "two/x.lmc", "y"])
        self.refuses("--rm", "-f", "-o", "two/", "two/x.lmc", "other/x", code=1, says="would be lost")
        self.refuses("-d", "--rm", "-o", "two/", "y", "two/x.lmc", code=1, says="y: is not named .lmc; with --rm nothing is done unless")

    def test_14_words_that_are_nothing(self):
        """'lmc log' and 'lmc \'\'' said 'cannot open it', the latter without any name."""
        self.write("x", b"hello" * 100)
        self.lmc("x")
        for args in (("",), ("-v", ""), ("x", ""), ("-d", ""), ("cat", ""), ("apply", "x.lmc", ""), ("verify", ""), ("series", "", "list"),
                     ("series", "s", "add", ""), ("series", "s", "restore", "")):
            self.refuses(None, *args, code=2, says="a name is empty: ''; is a variable of the shell not set?")
        for word in ("log", "fsck", "nonsense"):
            self.refuses(word, code=2, says="lmc: '%s' is neither a command nor a file\n" % word)
        for word in ("gc", "prune", "watch"):
            self.refuses(word, code=2, says="'%s' is neither a command nor a file; did you mean 'lmc series DIR %s'?" % (word, word))
        for args in (("-d", "log"), ("-v", "log"), ("./log",), ("log.txt",), ("log1",)):  # these are meant as files
            self.refuses(None, *args, code=1, says="log")
        self.write("log", b"a file")
        self.lmc("log")
        self.write("a.npy", test_command.npy("<f4", [3], f32(3)))
        self.lmc("a.npy")
        self.assertEqual(self.lmc("cat", "a.npy.lmc", "").stdout, f32(3))

    def test_what_is_not_compressed_has_no_base(self):
        """--base was ignored."""
        self.write("x.safetensors", safetensors([("w", "BF16", [100], bytes(200))]))
        self.write("d/x.safetensors", self.read("x.safetensors"))
        self.write("b.safetensors", safetensors([("w", "BF16", [100], bytes(200))]))
        for args in (("-l", "x.safetensors"), ("-l", "--json", "x.safetensors"), ("-l", "d"), ("cat", "x.safetensors", "w")):
            self.lmc(*args)
            p = self.refuses(None, *args, "--base", "b.safetensors", code=1, says="is not compressed, so it has no base: leave out --base")
            self.assertEqual(p.stdout, b"")

    def test_small_files_as_the_page_says(self):
        """It said 250 bytes for each file, and 45 for a tensor."""
        with open(os.path.join(os.path.dirname(LMC), "../docs/format.md"), encoding="utf-8") as f:
            said = re.search(r"A file of one byte takes (\d+)\. In a directory, a file takes (\d+) bytes more than its content, or (\d+) to (\d+) "
                             r"if there are 24 or\s+more \(of names of a few letters\)\. A small tensor takes some (\d+) bytes", f.read())
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
        usual = json.dumps(json.loads(whole[8:8 + n]), separators=(",", ":")).encode()  # as the package of that name writes it
        self.write("t.safetensors", len(usual).to_bytes(8, "little") + usual + whole[8 + n:])
        self.assertAlmostEqual(size("t.safetensors") / 1000 - 400, tensor, delta=15)

    def test_20_all_unreadable_files_are_named(self):
        """Of a directory with several files that cannot be read one was named at a time."""
        for k in range(30):
            self.write("d/%02d" % k, b"hello", 0 if k % 3 else 0o644)
        self.write("d/closed/f", b"hello")
        kind = {}
        if os.geteuid() == 0:  # whom modes do not stop
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

    def test_27_share_of_the_base_in_bytes(self):
        """-v counted blocks, which say nothing: an element of a tensor is a byte or eight."""
        old, new = bf16(40000), f32(60000, 2)
        self.write("a.st", safetensors([("w", "BF16", [40000], old), ("x", "F32", [10], bytes(40))]))
        self.write("b.st", safetensors([("w", "BF16", [40000], moved(old, 2, 0.01)), ("new", "F32", [60000], new)]))
        text = self.lmc("-v", "--base", "a.st", "b.st").stderr.decode()
        share = float(re.search(r"b\.st: ([0-9.]+) % of the bytes are coded against a\.st", text).group(1))
        self.assertAlmostEqual(share, 100 * 80000 / (80000 + 240000), delta=0.2)  # 25 %; of the blocks it is another share


if __name__ == "__main__":
    sys.exit(main())
