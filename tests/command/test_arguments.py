#!/usr/bin/env python3
"""The command line: options, words, help, completions, messages, outputs.

Usage: test_arguments.py [--brief] [-v] [NAME...]      as case.py says
Docstrings in the past tense tell the fault that a test is for. SPDX-License-Identifier: MIT
"""
import json
import os
import re
import shutil
import subprocess
import sys

import case
import test_pipes
from case import LMC, ROOT, Case, bf16, f32, main, moved, safetensors


WORDS = ("cat", "diff", "stats", "fold", "rebase", "verify", "apply", "salvage", "mount", "series")


def ends(part):
    return part["offset"], part["offset"] + part["size"] - 1


class Arguments(Case):
    def test_standard_input_is_not_removed(self):
        """--rm is refused with standard input, also if nobody has named it, and a file called "-" stays."""
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
        """Also behind options: 'lmc --rm -f diff live x.lmc' neither compresses nor removes a file."""
        self.write("live", b"one" * 1000)
        self.write("next", b"two" * 1000)
        self.lmc("next", "--base", "live", says="nothing of it was found")
        for args in (("-f", "-q", "apply"), ("--rm", "-f", "diff", "live", "next.lmc"), ("-T", "2", "-v", "series"), ("-o", "x", "fold")):
            topic = {"fold": "chains"}.get(*[[a, a] for a in args if a in WORDS][0])
            self.refuses(None, *args, code=2, says="See 'lmc help %s'" % topic)
        self.assertEqual(json.loads(self.lmc("--json", "diff", "live", "next").stdout)["size"], 3000)
        for args in (("dump", "next.lmc"), ("-q", "-f", "dump", "next.lmc")):  # it is in the sources, and no verb
            self.refuses(None, *args, code=2, says="'python3 spec/dump.py FILE.lmc' in the sources of lmc prints every field")
        self.assertIn(b"spec/dump.py", self.lmc("help", "dump").stdout)
        for args in (("live", "apply"), ("live", "next", "cat")):  # behind a file
            self.refuses(None, *args, code=2, says="is a command: it comes before the files")
        self.write("cat", b"a file")
        self.lmc("live", "cat")
        self.assertTrue(os.path.exists(self.path("cat.lmc")))

    def test_words_for_modes(self):
        """Words of other programs stand for the options that mean the same."""
        self.write("a", b"hello")
        self.lmc("compress", "a")
        for word in ("list", "ls", "info"):
            self.assertEqual(self.lmc(word, "a.lmc").stdout, self.lmc("-l", "a.lmc").stdout)
        self.lmc("test", "a.lmc")
        self.lmc("-f", "pack", "a")
        for word in ("decompress", "restore", "extract", "unpack"):
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
        """The message was "There is no option", without the right one."""
        self.write("a", b"hello")
        self.lmc("a")
        for args, says in ((("--bse", "a"), "did you mean '--base'"), (("--thread", "2", "a"), "did you mean '--threads'"),
                           (("--compres", "a"), "did you mean '--compress'"), (("--hel",), "did you mean '--help'"),
                           (("--recur", "a"), "did you mean '--recursive'"), (("--ouptut=b", "a"), "no option '--ouptut'; did you mean '--output'"),
                           (("-j2", "a"), "-T sets the number of threads"), (("--jobs=2", "a"), "-T sets"),
                           (("--level", "3", "a"), "levels are --fast, --max and --archive"), (("--best", "a"), "levels are"),
                           (("-d", "-C", "out", "a.lmc"), "-o names the output"), (("-x", "a.lmc"), "-d restores"), (("-xf", "a.lmc"), "-d restores"),
                           (("x", "a.lmc"), "-d restores"), (("--include", "b", "a"), "--exclude leaves out"), (("-d", "--exclude", "b", "a"), "--exclude is for"),
                           (("--rm", "--exclude", "b", "a"), "leave out one of the two"), (("--exclude", "[b", "a"), "--exclude needs a pattern"),
                           (("-n", "a"), "nothing is removed without --rm"), (("--dry-run", "a"), "nothing is removed without --rm"),
                           (("series", "s", "gc", "--dryrun"), "did you mean '--dry-run'")):
            self.refuses(None, *args, code=2, says=says)
        for args in (("--no-", "a"), ("--xyz", "a"), ("-y", "a")):  # no similar option, or several
            self.assertNotIn(b"did you mean", self.lmc(*args, code=2).stderr)
        self.write("x", b"a file")
        self.lmc("x")
        self.refuses(None, "--" + 5000 * "x", "a", code=2, says="there is no option '--xxx")

    def test_two_modes(self):
        """Two different ones are refused in whatever form; one may be given twice."""
        self.write("a", b"hello")
        self.lmc("a")
        for args in (("-l", "-d", "a.lmc"), ("-dl", "a.lmc"), ("-t", "--list", "a.lmc"), ("list", "-d", "a.lmc"), ("-z", "test", "a.lmc")):
            self.refuses(None, *args, code=2, says="exclude each other")
        self.lmc("-d", "-d", "-f", "a.lmc")

    def test_help(self):
        """--help shows the page of the verb; all pages fit in 80 columns."""
        for word in WORDS:
            self.assertEqual(self.lmc(word, "--help").stdout, self.lmc("help", word).stdout)
            self.assertIn(b"lmc " + word.encode(), self.lmc("-v", word, "-h").stdout)
        self.assertEqual(self.lmc("series", "s", "add", "--help").stdout, self.lmc("help", "series").stdout)
        with open(os.path.join(ROOT, "cli", "help.txt"), encoding="utf-8") as f:
            text = f.read()
        topics = re.findall(r"^# (\w+)$", text, re.M)
        self.assertGreater(len(topics), 12)
        for topic in [""] + topics:
            for line in self.lmc("help", *([topic] if topic else [])).stdout.decode().splitlines():
                self.assertLessEqual(len(line), 80, line)
        overview = self.lmc("help").stdout.decode()
        self.assertIn(", ".join(topics), re.sub(r",\s+", ", ", overview))
        for word in WORDS:
            self.assertIn(word, overview)
        with open(os.path.join(ROOT, "cli", "option_table.c"), encoding="utf-8") as f:
            options = set(re.findall(r'^    \{(?:0|\'.\'), "([a-z0-9-]+)"', f.read(), re.M))
        self.assertEqual(set(re.findall(r"(?<![\w-])--([a-z0-9][a-z0-9-]*)", text)) - {"help"}, options - {"help"})

    def test_names_of_dtypes(self):
        self.write("a", bf16(1000))
        for names, dtype in ((("BF16", "bf16", "bfloat16", "torch.bfloat16"), "BF16"), (("f32", "float32", "torch.float", "np.float32"), "F32"),
                             (("int8", "I8"), "I8"), (("half", "float16"), "F16"), (("float8_e4m3fn",), "F8_E4M3")):
            for name in names:
                self.lmc("-f", "--dtype", name, "a")
                self.assertEqual(self.listing("a.lmc")["files"][0]["tensors"][0]["dtype"], dtype)
        self.refuses("--dtype", "bf17", "a", code=2, says="--dtype needs")

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

    def test_words_that_are_nothing(self):
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
        for args in (("-d", "log"), ("-v", "log"), ("./log",), ("log.txt",), ("log1",)):  # these are files
            self.refuses(None, *args, code=1, says="log")
        self.write("log", b"a file")
        self.lmc("log")
        self.write("a.npy", case.npy("<f4", [3], f32(3)))
        self.lmc("a.npy")
        self.assertEqual(self.lmc("cat", "a.npy.lmc", "").stdout, f32(3))


class Outputs(Case):
    run_in_terminal = test_pipes.Terminals.run_in_terminal

    def test_summary(self):
        """On a terminal a line is shown after success, but with -q."""
        self.write("a", b"hello" * 1000)
        code, shown = self.run_in_terminal(["a"], ("stderr",))
        self.assertRegex(shown, r"^lmc: a: 5000 -> \d+ bytes \([\d.]+ %\), \d+ MB/s\r\n$")
        self.assertRegex(self.run_in_terminal(["-t", "a.lmc"], ("stderr",))[1], r"a.lmc: ok, 1 file, 5000 bytes")
        self.assertRegex(self.run_in_terminal(["-d", "-f", "a.lmc"], ("stderr",))[1], r"a.lmc: \d+ -> 5000 bytes")
        self.assertEqual(self.run_in_terminal(["-q", "-d", "-f", "a.lmc"], ("stderr",)), (0, ""))
        self.write("none", b"")
        self.assertNotIn("%", self.run_in_terminal(["none"], ("stderr",))[1])

    def test_closed_pipe(self):
        self.write("a", b"hello")
        self.lmc("a")
        for args in (["-l"] + ["a.lmc"] * 3000, ["-l", "-v", "a.lmc"]):
            p = subprocess.Popen([LMC] + args, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            p.stdout.close()
            self.assertEqual((p.stderr.read(), p.wait()), (b"", 0))
            p.stderr.close()

    def test_urls(self):
        """They were files that do not exist."""
        for args in ("-l",), ("-d",), ("-t",), ("cat",), ("stats",), ("verify",), ("diff", "x"):
            self.write("x", b"x")
            for url in "https://host/model.lmc", "s3://bucket/model.lmc":
                self.refuses(*args, url, code=1, says="lmc reads no URLs: curl -L URL | lmc -d, or lmc_codec.open(URL) in Python")
        for url in "https://host/model.safetensors", "https://host/model.safetensors.lmc", "s3://bucket/model":
            for args in (url,), ("--rm", url), ("--base", url, "x"), ("x", "-o", url), ("series", "s", "add", url):
                self.refuses(*args, code=4 if "--base" in args else 1, says="lmc reads no URLs")

    def test_not_a_regular_file(self):
        """lmc made /dev/null.lmc, and waited for a FIFO."""
        os.mkfifo(self.path("fifo"))
        for name in ("fifo", "/dev/null", "/dev/zero"):
            self.refuses(name, code=1, says="is not a regular file, and is skipped")
        self.write("a", b"hello")
        self.lmc("/dev/null", "a", code=1, says="skipped")
        self.assertEqual(sorted(self.tree()), ["a", "a.lmc", "fifo"])
        self.assertGreater(len(self.lmc("-c", "/dev/null").stdout), 200)
        self.lmc("-o", "null.lmc", "/dev/null")

    def test_through_a_link(self):
        """The file that the link names is written, and the link stays."""
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
        """If no tensor is quantised, that is said, also with -q."""
        self.write("a.bin", f32(100000))
        for args in ((), ("-q",)):
            self.lmc("-f", *args, "--quant", "*=update:0.01", "a.bin", says="no tensor was quantised")

    def test_series(self):
        """Forgetting all snapshots of a series, then gc, removed everything without a message."""
        weights = bf16(3000)
        for k in range(2):
            self.write("s%d.safetensors" % k, safetensors([("w", "BF16", [3000], moved(weights, 2, 0.1 * k))]))
            self.lmc("series", "S", "add", "s%d.safetensors" % k)
            self.assertIn(b"%d snapshot%s, " % (k + 1, b"s" if k else b""), self.lmc("series", "S", "list").stdout)
        self.refuses("series", "S", "prune", "s0", "s1", code=1, says="these are all of its snapshots")
        self.assertRegex(self.lmc("series", "S", "prune", "s0", says="").stderr.decode(), r"S: 1 snapshot, \d+ bytes, forgotten")
        def size():
            return sum(os.path.getsize(self.path("S/" + f)) for f in self.tree("S") if f.endswith(".lmc"))
        before = size()  # a delta becomes a whole snapshot: that counts, too
        said = self.lmc("series", "S", "gc", "--dry-run", says="").stderr.decode()
        self.assertRegex(said, r"S: 1 snapshot would be removed, 1 would be coded again, at most \d+ bytes would be freed")
        said = self.lmc("series", "S", "gc", says="").stderr.decode()
        self.assertEqual(re.search(r"S: 1 snapshot removed, 1 coded again, (.*)\n", said)[1], "%d bytes freed" % (before - size()))
        self.lmc("series", "S", "prune", "-f", "s1", says="forgotten")

    def test_names_given_twice_and_odd_names(self):
        """A name given twice with --rm; '.' and '..' with -o; a damaged
        first byte; help of help; a link to nowhere."""
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
        os.symlink("nowhere", self.path("link"))  # like zstd: the link's target is written, and the link stays
        self.refuses("-o", "link", "c", code=1, says="as a link to nowhere; use -f")
        self.lmc("-f", "-o", "link", "c")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(self.lmc("-dc", "nowhere").stdout, self.read("c"))

    def test_into_a_directory(self):
        """'-o DIR/' puts outputs into the directory, as with cp, mv and tar."""
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
        self.refuses("-o", "two", "a", "d", code=2, says="if it is a directory for all outputs, end it with a slash")
        self.lmc("-d", "-o", "new/", "two/d.lmc")  # new/ is made
        self.assertEqual(self.tree("new"), ["f"])
        self.lmc("-d", "-o", "out/", "two/d.lmc", "f")  # parts go below what -o names
        self.assertTrue(os.path.exists(self.path("out/f")))
        self.refuses("-o", "two/", code=1, says="two/: is a directory; name a file with -o", stdin=b"from a pipe")
        self.refuses("-d", "-o", "two/", code=1, says="two: is a directory; name a file with -o", stdin=self.read("two/a.lmc"))
        self.refuses("-o", "two/", "d/..", code=1, says="has no name from which the output's can be made")

    def test_nothing_is_lost_on_the_way(self):
        """Two inputs with one name, or an output in place of an input: with --rm and -f one of them would be lost."""
        for name in ("one/x", "other/x", "y"):
            self.write(name, name.encode() * 100)
        os.makedirs(self.path("two"))
        self.refuses("--rm", "-f", "-o", "two/", "one/x", "other/x", code=1, says="two/x.lmc: is the output of other/x and that of one/x, which would be lost")
        self.lmc("--rm", "-o", "two/", "one/x", "other/x", code=1, says="two/x.lmc: exists already")
        self.assertEqual(self.tree(), ["one", "other", "other/x", "two", "two/x.lmc", "y"])
        self.refuses("--rm", "-f", "-o", "two/", "two/x.lmc", "other/x", code=1, says="would be lost")
        self.refuses("-d", "--rm", "-o", "two/", "y", "two/x.lmc", code=1, says="y: is not named .lmc; with --rm nothing is done unless")


class Table(Case):
    def test_each_option_does_something(self):
        """What a row of the table sets, by itself or by its function, is read by some verb, not only set and checked."""
        with open(os.path.join(ROOT, "cli", "option_table.c"), encoding="utf-8") as f:
            table = f.read()
        takes = dict(re.findall(r"^static int (take_\w+)\([^)]*\)\s*\{(.*?)\}$", table, re.M | re.S))
        rows = re.findall(r'^    \{(?:0|\'.\'), "[^}]*\}', table, re.M)
        fields = set()
        for row in rows:
            sets = re.findall(r"AT\(([\w.]+)\)", row)
            for function in re.findall(r"\btake_\w+", row):
                sets += re.findall(r"\ba->((?:o\.)?\w+)(?= *=[^=]|[,)])", takes[function])
            self.assertTrue(sets or " MODE," in row, row)
            fields |= set(sets)
        code = ""
        for at, _, names in os.walk(os.path.join(ROOT, "cli")):
            for name in names:
                if name.endswith(".c") and name not in ("option_table.c", "args.c"):
                    with open(os.path.join(at, name), encoding="utf-8") as f:
                        code += f.read()
        self.assertGreater(len(fields), 30)
        unread = [x for x in fields if not re.search(r"(->|\.)%s\b(?! *=[^=])" % x.split(".")[-1], code)]
        self.assertEqual(unread, [])


    def test_usage_has_options_of_its_verb(self):
        """A usage is what the verb's page begins with; its options are those that the table gives to the verb."""
        sys.path.insert(0, os.path.join(ROOT, "tools"))
        import completions
        words_of, commands = completions.verbs_of_table()
        takes = {**words_of, **{"series DIR " + x: "SERIES_" + x.upper() for x in commands}, "-d": "RESTORE", "-t": "TEST", "-l": "LIST"}
        options = completions.read_options()
        with open(os.path.join(ROOT, "cli", "help.txt"), encoding="utf-8") as f:
            forms = re.findall(r"^    lmc ((?:series DIR )?[a-z-]+)((?: .*)?(?:\n {8}.*)*)", f.read().split("\n# examples")[0], re.M)
        used = set()
        for words, text in forms:
            for option in re.findall(r"(?<![\w-])--?[a-z0-9][a-z0-9-]*", text if words in takes else ""):
                verbs = frozenset().union(*(o.verbs for o in options if option in o.words))
                self.assertTrue(takes[words] in verbs or option == "-f", (words, option))  # -f has two rows
            used.add(words)
        self.assertEqual(set(takes) - used, set())
        for args, words in ((["cat"], "cat [--npy]"), (["cat"], "cat --safetensors"), (["mount"], "mount"), (["series", "d", "gc", "x"], "series DIR gc")):
            self.lmc(*args, code=2, says="usage: lmc " + words)


class Completions(Case):
    """Completions of bash, zsh and fish have every verb and option."""

    FILES = ("lmc.bash", "_lmc", "lmc.fish")

    def test_they_know_all(self):
        with open(os.path.join(ROOT, "cli", "option_table.c"), encoding="utf-8") as f:
            options = set(re.findall(r"^    \{(?:0|'.'), \"([a-z0-9-]+)\"", f.read(), re.M))
        self.assertGreater(len(options), 45)
        for name in self.FILES:
            with open(os.path.join(ROOT, "cli", "completions", name), encoding="utf-8") as f:
                text = f.read()
            if name != "_lmc":  # _lmc completes no topics
                with open(os.path.join(ROOT, "cli", "help.txt"), encoding="utf-8") as f:
                    self.assertIn(" ".join(re.findall(r"^# (\w+)$", f.read(), re.M)), text)
            unknown = [word for word in sorted(options | set(WORDS)) if not re.search(r"(?<![a-z0-9-])(--)?%s(?![a-z0-9-])" % word, text)]
            self.assertEqual(unknown, [], name)

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
        """Behind a series bash offered files; behind 'restore' no names; behind --base also verbs."""
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
            words=("${@[2,-1]}"); CURRENT=$#words; complete() { local state; source $file }; file=$1; complete""" # the shell's own part

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


if __name__ == "__main__":
    sys.exit(main())
