#!/usr/bin/env python3
"""What is verified can be restored: every command that checks a snapshot accepts it if lmc -d does, and refuses it with the same exit code if not.

Usage: test_verdicts.py [--long|--brief] [-v] [NAME...]      as case.py says
The snapshots are the vectors of spec/: of each rule of the page and its companions one file that breaks it; with --long all of them, --brief only
those of links and hashes. SPDX-License-Identifier: MIT
"""
import json
import os
import random
import shutil
import subprocess
import sys

from hostile import encoder
from case import LMC, LONG, ROOT, Case, bf16, main, safetensors
from test_directories import metadata_replaced

VECTORS = os.path.join(ROOT, "spec", "vectors")
PYTHON = os.path.join(ROOT, "build", "python")

# A reader of the index finds another fault first than one that reads from front to back. Those of "order" break two rules,
# by the second of which the index is wrong, or the file too short.
OTHER_FAULT = {
    "section_largest_missing": {1, 3}, "classes_end_empty": {3, 4},
    "order_section_4-3_4-5": {1, 3}, "order_section_4-3_4-6_cut": {1, 3}, "order_section_4-3_4-6": {1, 3},
    "order_cut_block_5-4_5-5": {1, 3}, "order_cut_block_5-4_5-9": {1, 3}, "order_cut_block_5-4_5-12": {1, 3},
}


def load_vectors():
    """(path, bases, vector) of each file that is refused, or that is refused by whoever makes links or checks hashes."""
    with open(os.path.join(VECTORS, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    kinds = (("invalid", manifest["invalid"]), ("valid", [v for v in manifest["valid"] if "rules" in v]))
    return [(os.path.join(VECTORS, kind, v["name"] + ".lmc"), [os.path.join(VECTORS, b) for b in v["base"]], v) for kind, some in kinds for v in some]


def one_of_each_rule(vectors):
    seen, chosen = set(), []
    for path, bases, v in vectors:
        if not seen.issuperset(v["rules"]):
            seen.update(v["rules"])
            chosen.append((path, bases, v))
    return chosen


class Verdicts(Case):
    def code(self, *args):
        p = subprocess.run([LMC, *args], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=600)
        self.assertIn(p.returncode, range(5), "%s: %s" % (args, p.stderr.decode(errors="replace")))
        return p.returncode

    def clean(self):
        for name in os.listdir(self.dir):
            path = self.path(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

    def series_codes(self, path, bases, *hashing):
        """The verdicts of a series that has the snapshot; of an add --rm that was interrupted, too."""
        os.mkdir(self.path("S"))
        shutil.copy(path, self.path("S/step.lmc"))
        for i, base in enumerate(bases):
            shutil.copy(base, self.path("S/base%d.lmc" % i))
        codes = {"series rebuild": self.code("series", "S", "rebuild", "-q")}
        if codes["series rebuild"]:
            return codes
        codes["series verify"] = self.code("series", "S", "verify", "-q", *hashing)
        codes["series verify NAME"] = self.code("series", "S", "verify", "-q", *hashing, "step")
        if not hashing:
            codes["series restore"] = self.code("series", "S", "restore", "-q", "-o", "out3", "step")
        return codes

    def add_again(self, is_refused):
        """add --rm removes a source that the series already has, here its files without the links, only if the snapshot can be restored."""
        self.code("salvage", "-q", "-o", "saved", "S/step.lmc")
        os.rename(self.path("saved/whole"), self.path("step"))
        code = self.code("series", "S", "add", "-q", "--rm", "step")
        self.assertEqual(os.path.isdir(self.path("step")), bool(code))
        self.assertEqual(bool(code), is_refused)
        return code

    def compare(self, vectors):
        for path, bases, v in vectors:
            with self.subTest(v["name"]):
                how = ["-q", "--no-search"] + [word for base in bases for word in ("--base", base)]
                want = self.code("-d", *how, "-o", "out", path)
                codes = {"-t": self.code("-t", *how, path), "verify": self.code("verify", *how, path)}
                if all(base.endswith(".lmc") for base in bases):
                    codes.update(self.series_codes(path, bases))
                    if not want:
                        codes.pop("series rebuild")
                if "links" in v.get("needs", ()):
                    codes["-dc"] = self.code("-dc", *how, path)
                    codes["-d PATH"] = self.code("-d", *how, "-o", "parts", path, "*")
                    codes["rebase"] = self.code("rebase", *how, "--onto", "none", "-o", "again.lmc", path)
                    codes["add --rm"] = self.add_again(bool(want))
                if v["name"] not in OTHER_FAULT and codes.get("series rebuild") == 0:
                    codes.pop("series rebuild")  # which reads only the index
                allowed = OTHER_FAULT.get(v["name"], {want})
                self.assertEqual({k: c for k, c in codes.items() if c not in allowed}, {}, "-d: %d" % want)
                self.assertEqual([f for f in os.listdir(self.dir) if want and f.startswith(("out", "again", "parts"))], [])
            self.clean()

    def test_links(self):
        """verify, series verify, add --verify and --rm accepted a list of links that -d and -t refuse."""
        vectors = [x for x in load_vectors() if "links" in x[2]["needs"]]
        self.assertGreater(len(vectors), 30)
        self.assertEqual({r for x in vectors for r in x[2]["rules"]}, {"L-%d" % i for i in range(1, 8)})
        self.compare(vectors)

    def test_hashes(self):
        """Only -t --hash compared them; rebase replaced hashes that did not fit the content by others."""
        vectors = [x for x in load_vectors() if "hash" in x[2]["needs"]]
        self.assertEqual({r for x in vectors for r in x[2]["rules"]}, {"H-%d" % i for i in range(2, 6)})
        for path, bases, v in vectors:
            with self.subTest(v["name"]):
                self.assertEqual(self.code("-d", "-q", "-o", "out", path), 0)  # checking them is optional
                codes = {"-t": self.code("-t", "-q", "--hash", path), "verify": self.code("verify", "-q", "--hash", path)}
                codes["rebase"] = self.code("rebase", "-q", "--onto", "none", "-o", "again.lmc", path)
                codes.update(self.series_codes(path, bases, "--hash"))
                self.assertEqual(codes.pop("series rebuild"), 0)
                self.assertEqual(set(codes.values()), {3}, codes)
                self.assertFalse(os.path.exists(self.path("again.lmc")))
            self.clean()
        for name, code in (("hash_all", 0), ("file_empty", 1)):  # the last one has none
            path = os.path.join(VECTORS, "valid", name + ".lmc")
            codes = {"-t": self.code("-t", "-q", "--hash", path), "verify": self.code("verify", "-q", "--hash", path)}
            codes.update(self.series_codes(path, [], "--hash"))
            self.assertEqual(codes.pop("series rebuild"), 0)
            self.assertEqual(set(codes.values()), {code}, (name, codes))
            self.clean()

    def test_every_rule(self):
        vectors = [x for x in load_vectors() if not {"links", "hash"} & set(x[2]["needs"])]
        self.compare(vectors if LONG else one_of_each_rule(vectors))

    def test_python(self):
        if not os.path.exists(os.path.join(PYTHON, "lmc_codec", "_lmc.abi3.so")):
            self.skipTest("build/python is not built")
        vectors = [x for x in load_vectors() if "hash" not in x[2]["needs"] and all(b.endswith(".lmc") for b in x[1])]
        script = """
import json, sys
import lmc_codec
for line in sys.stdin:
    path, bases = json.loads(line)
    try:
        said = lmc_codec.verify(path, base=bases[0] if bases else None).is_complete
    except Exception as e:
        said = type(e).__name__ + ": " + str(e)
    print(json.dumps(said))
"""
        vectors = [x for x in vectors if len(x[1]) < 2 and "base" not in "".join(x[2]["status"] if "status" in x[2] else []).lower()]
        p = subprocess.run([sys.executable, "-c", script], input="".join(json.dumps(x[:2]) + "\n" for x in vectors), stdout=subprocess.PIPE, text=True,
                           env={**os.environ, "PYTHONPATH": PYTHON}, timeout=600, check=True)
        said = [json.loads(line) for line in p.stdout.splitlines()]
        self.assertEqual(len(said), len(vectors))
        self.assertEqual([(x[2]["name"], s) for x, s in zip(vectors, said) if not isinstance(s, str) or not s.startswith(
            ("CorruptError", "ChecksumError", "TruncatedError", "UnsupportedError", "LimitError", "BaseError", "VersionError", "NotLMCError"))], [])


class Deltas(Case):
    """A delta whose list of links breaks a rule."""

    def setUp(self):
        super().setUp()
        for name in ("old", "new"):
            self.write(name + "/a", bf16(9000) if name == "old" else bf16(9000)[:-2] + b"xx")
            self.write(name + "/b", bf16(9000) if name == "old" else bf16(9000)[:-2] + b"xx")
            os.symlink("a", self.path(name + "/link"))
        self.lmc("old")
        self.lmc("--base", "old.lmc", "new", says="")
        broken = metadata_replaced(self.read("new.lmc"), b"lmc.links", b"sa/link\0a\0")  # below a file
        self.write("broken.lmc", broken)

    def test_apply_changes_nothing(self):
        """apply -f changed the files before it looked at the list of links."""
        before = self.snapshot("old")
        for force in ([], ["-f"]):
            self.lmc("apply", *force, "broken.lmc", "old", code=3, says="list of links")
            self.assertEqual(self.snapshot("old"), before)
            self.assertEqual(self.tree(), [f for f in self.tree() if ".lmc-apply" not in f])

    def test_verdicts(self):
        how = ("--no-search", "--base", "old.lmc")
        for verb in (["-t"], ["-d", "-o", "out"], ["verify"], ["rebase", "--onto", "none", "-o", "out"], ["fold", "-o", "out"]):
            self.lmc(*verb, *how, "broken.lmc", code=3, says="list of links")
        for verb in ("-t", "verify"):  # also without the base
            self.lmc(verb, "--no-search", "--no-base", "broken.lmc", code=3, says="list of links")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_hard_links_without_the_base(self):
        """The CRC of a file that needs the base is not known, so its hard links are not called damaged."""
        for i in range(2):
            self.write("more/%d" % i, bf16(9000 + i, seed=3))
        self.lmc("more")
        self.write("more/x.safetensors", safetensors([("w", "BF16", [9000], bf16(9000, seed=4))]))
        os.link(self.path("more/x.safetensors"), self.path("more/y.safetensors"))
        self.write("more/0", bf16(9000, seed=3)[:-2] + b"zz")
        os.link(self.path("more/0"), self.path("more/2"))
        self.lmc("--base", "more.lmc", "-f", "more", "-o", "delta.lmc", says="")
        self.assertEqual(len(self.listing("delta.lmc")["links"]), 2)
        self.lmc("-t", "--base", "more.lmc", "--no-search", "delta.lmc")
        for verb in ("-t", "verify"):
            self.lmc(verb, "--no-search", "--no-base", "delta.lmc", says="payload intact")


class Json(Case):
    """--json of -t, verify and apply: a line for each file, whatever is found."""

    def setUp(self):
        super().setUp()
        for k in range(3):
            self.write("s%d" % k, safetensors([("w", "BF16", [9000], bf16(9000)[:-2 * k - 2] + b"x" * (2 * k + 2))]))
        self.lmc("s0")
        self.lmc("--base", "s0.lmc", "s1")
        self.lmc("--base", "s1.lmc", "s2")
        data = bytearray(self.read("s2.lmc"))  # nobody's base: it has the fingerprint of its original
        data[len(data) // 2] ^= 1
        self.write("bad.lmc", data)
        self.write("none", b"no snapshot")

    def found(self, *args, code=0, says=None):
        p = self.lmc(*args, "--json", code=code, says=says)
        lines = [json.loads(x) for x in p.stdout.splitlines()]
        for x in lines:
            self.assertEqual(set(x), {"name", "result", "exit"} | ({"message"} if x["exit"] else set()))
            self.assertTrue(x.get("message", "x"))
        return [(x["name"], x["result"], x["exit"]) for x in lines]

    def test_each_file(self):
        ok, bad = ("s0.lmc", "ok", 0), ("bad.lmc", "damaged", 3)
        self.assertEqual(self.found("-t", "s0.lmc", "bad.lmc", "missing", "none", "s1.lmc", code=3),
                         [ok, bad, ("missing", "error", 1), ("none", "damaged", 3), ("s1.lmc", "ok", 0)])
        self.assertEqual(self.found("verify", "s2.lmc", "s1.lmc", "s0.lmc"), [ok, ("s1.lmc", "ok", 0), ("s2.lmc", "ok", 0)])
        self.assertEqual(sorted(self.found("verify", "s0.lmc", "bad.lmc", "missing", "none", code=3)),
                         sorted([ok, bad, ("missing", "error", 1), ("none", "damaged", 3)]))
        os.unlink(self.path("bad.lmc"))
        self.assertEqual(self.found("-t", "-r", "."), [("./s%d.lmc" % k, "ok", 0) for k in range(3)])

    def test_bases(self):
        os.unlink(self.path("s0.lmc"))
        for verb in ("-t", "verify"):
            self.assertEqual(self.found(verb, "--no-search", "s1.lmc", code=4), [("s1.lmc", "base missing", 4)])
            self.assertEqual(self.found(verb, "--no-base", "s1.lmc", says="payload intact"), [("s1.lmc", "payload intact", 0)])

    def test_what_needs_a_damaged_one(self):
        data = bytearray(self.read("s1.lmc"))
        data[len(data) // 2] ^= 1
        self.write("s1.lmc", data)
        found = dict((x[0], x[1:]) for x in self.found("verify", "s0.lmc", "s1.lmc", "s2.lmc", code=3))
        self.assertEqual(found["s0.lmc"] + found["s1.lmc"], ("ok", 0, "damaged", 3))
        self.assertIn(found["s2.lmc"], [("payload intact", 1), ("base missing", 4)])

    def test_apply(self):
        self.assertEqual(self.found("apply", "s2.lmc", "s0", code=4), [("s0", "base missing", 4)])
        self.assertEqual(self.found("apply", "s1.lmc", "s2.lmc", "s0"), [("s0", "ok", 0)])
        self.assertEqual(self.read("s0"), self.read("s2"))

    def test_series(self):
        self.lmc("series", "d", "add", "s0")
        self.lmc("series", "d", "add", "s1")
        for names in ((), ("s1",)):
            self.assertEqual(self.found("series", "d", "verify", *names)[-1], ("d/s1.lmc", "ok", 0))
        data = bytearray(self.read("d/s0.lmc"))
        data[-200] ^= 1
        self.write("d/s0.lmc", data)
        self.assertIn(("d/s0.lmc", "damaged", 3), self.found("series", "d", "verify", code=3))


class Limits(Case):
    """What -d refuses for its number or depth of files, the others refuse, too, and each can allow it."""

    def agree(self, options, code):
        says = "" if code == 0 else options[0]
        self.lmc("-d", *options, "-f", "-o", "out", "D.lmc", code=code, says=says)
        for verb in (["-t"], ["verify"]):
            self.lmc(*verb, *options, "D.lmc", code=code, says=says)
        self.lmc("series", "S", "verify", *options, code=code, says=says)
        self.lmc("series", "S", "verify", *options, "D", code=code, says=says)
        self.lmc("series", "S", "restore", *options, "-f", "-o", "out", "D", code=code, says="")

    def test_agree(self):
        for path in ("a/b/c/f", "a/b/g", "a-b/f", "h"):  # 4 files in 4 directories
            self.write("D/" + path, path.encode())
        os.symlink("h", self.path("D/a/b/l"))
        self.lmc("D")
        self.lmc("series", "S", "add", "D")
        for options, code in ((["--max-files", "8"], 0), (["--max-files", "7"], 1), (["--max-depth", "3"], 0), (["--max-depth", "2"], 1)):
            with self.subTest(options):
                self.agree(options, code)
        os.unlink(self.path("D/a/b/l"))
        self.lmc("-f", "--rm", "--max-depth", "2", "D", code=1, says="--max-depth")
        self.assertEqual(len(self.tree("D")), 8)
        self.lmc("series", "T", "add", "--verify", "--max-depth", "2", "D", code=1, says="--max-depth")
        self.lmc("-f", "--rm", "--max-depth", "3", "D")

    def test_directories_that_only_paths_name(self):
        """--max-files counts each of them once, in any order of the files."""
        names = [b"a/b/c", b"a/bc/d", b"a-/b", b"a/b.c", b"a/b/d/e", b"b"]
        rng = random.Random(1)
        for _ in range(4):
            rng.shuffle(names)
            self.write("x.lmc", encoder.build([part for name in names for part in (encoder.Src(name, b"x"), encoder.Run([encoder.stored(b"x")]))]).out)
            for n in (10, 11):  # 6 files; a, a/b, a/bc, a-, a/b/d
                code = int(n < 11)
                self.lmc("-d", "-f", "-o", "out", "--max-files", str(n), "x.lmc", code=code, says="")
                for verb in ("-t", "verify"):
                    self.lmc(verb, "--max-files", str(n), "x.lmc", code=code, says="")


class Foreign(Case):
    """What is not a snapshot, or only the beginning of one, has one exit code with every verb, 3; what is not a file that can be read has code 1."""

    VERBS = (["-t"], ["-t", "--no-base"], ["-d", "-o", "out"], ["-dc"], ["-d", "-o", "out/", "%", "w"], ["-l"], ["-l", "--json"], ["cat", "%", "w"], ["cat", "--safetensors", "-o", "out"],
             ["verify"], ["verify", "--no-base"], ["stats"], ["diff", "%", "w.lmc"], ["diff", "w.lmc", "%"], ["apply", "%", "v"], ["rebase", "--onto", "none", "-o", "out"],
             ["rebase", "--onto", "%", "-o", "out", "d.lmc"], ["fold", "--base", "w.lmc", "-o", "out"], ["fold", "--base", "w.lmc", "d.lmc", "%", "-o", "out"], ["salvage", "-o", "out"])
    TAKES_DIRECTORIES = ("-l", "stats", "diff", "rebase --onto %")

    def setUp(self):
        super().setUp()
        old, new = bf16(30000), bf16(30000)[:-2] + b"xx"
        self.write("w", old)
        self.lmc("w")
        self.write("v", new)
        self.lmc("--base", "w.lmc", "v", "-o", "d.lmc")
        whole = self.read("w.lmc")
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345678\n" % (b"4d" * 32)
        tensors = safetensors([("w", "BF16", [4], bytes(8))])
        self.foreign = {"text": (b"plain text\n" * 500, "not an LMC file"), "zeros": (bytes(100), "not an LMC file"), "tensors": (tensors, "not an LMC file"),
                        "short": (b"x", "not an LMC file"), "empty": (b"", "is empty"), "pointer": (pointer, "is a git LFS pointer"), "magic": (whole[:5], "not an LMC file"),
                        "header": (whole[:20], ""), "half": (whole[:len(whole) // 2], "")}
        for name, (data, _) in self.foreign.items():
            self.write(name + ".lmc", data)

    def verbs(self, name):
        for verb in self.VERBS:
            yield " ".join(verb), [name if word == "%" else word for word in (verb if "%" in verb else verb + [name])]

    def series(self, name):
        """What a series says if one of its files was replaced by this one, and if it is rebuilt from it."""
        self.lmc("series", "S", "add", "w")
        shutil.copy(self.path(name), self.path("S/w.lmc"))
        for verb in (["list"], ["verify"], ["restore", "w", "-o", "out"], ["cat", "w", "w"], ["gc"]):
            self.lmc("series", "S", *verb, code=3, says="is damaged or no snapshot")
        os.unlink(self.path("S/series.json"))
        self.lmc("series", "S", "rebuild", code=3, says="move away what is not a snapshot")
        shutil.rmtree(self.path("S"))

    def test_content(self):
        before = self.tree()
        for name, (data, says) in self.foreign.items():
            file = name + ".lmc"
            for what, args in self.verbs(file):
                with self.subTest(what, file=name):
                    words = "" if args[0] == "salvage" and not data.startswith(b"version") else says
                    self.lmc(*args, code=3, says=file + ": " + words)
                    self.assertEqual([f for f in self.tree() if f not in before and not (args[0] == "salvage" and name == "half")], [])
                    if os.path.exists(self.path("out")):  # the beginning, with all that is lost named
                        shutil.rmtree(self.path("out")) if os.path.isdir(self.path("out")) else os.unlink(self.path("out"))
            with self.subTest("other ways", file=name):
                self.series(file)
                for verb in (["-dc"], ["-t"]):
                    self.lmc(*verb, stdin=data, code=3, says="(standard input): " + says)
                self.lmc("-d", "--base", file, "--no-search", "-o", "out", "d.lmc", code=3, says=file)
                self.lmc("--base", file, "v", "-o", "out", code=3, says=file)
                self.assertEqual(self.tree(), before)
        for name in ("text", "pointer"):  # by another name
            os.rename(self.path(name + ".lmc"), self.path(name))
            for args in (["-d"], ["-t"], ["apply", name, "v"], ["fold", "--base", "w.lmc", "-o", "out"]):
                self.lmc(*args, *([] if name in args else [name]), code=3, says=name + ": " + self.foreign[name][1])

    def test_no_file(self):
        """A directory, a missing file, a FIFO, a device. A base is missing then, which has a code of its own, 4."""
        os.mkdir(self.path("x.lmc"))
        os.mkfifo(self.path("fifo"))
        for name in ("x.lmc", "gone.lmc", "fifo", "/dev/null"):
            for what, args in self.verbs(name):
                if name == "x.lmc" and what.startswith(self.TAKES_DIRECTORIES) or args[0] in ("-d", "-dc") and name in ("fifo", "/dev/null"):
                    continue  # which are read as pipes are
                with self.subTest(what, file=name):
                    self.lmc(*args, code=4 if "--onto %" in what else 1, says=name)
            if name != "x.lmc":  # in which bases are searched for
                self.lmc("--base", name, "v", "-o", "out", code=4, says=name)
        self.assertFalse(os.path.exists(self.path("out")))


SAME_INODES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
/* Regular files of mode 0604 have one inode number and two names, as on a file system that joins several. */
static int fake(int result, struct stat *st)
{
    if (result == 0 && S_ISREG(st->st_mode) && (st->st_mode & 07777) == 0604) {
        st->st_ino = 77;
        st->st_nlink = 2;
    }
    return result;
}
#define FAKE(name, kind, parameters, arguments) \
    int name parameters { int (*real) parameters = (int (*) parameters)dlsym(RTLD_NEXT, #name); return fake(real arguments, (struct stat *)st); }
#define FAKE_ALL(suffix, kind) \
    FAKE(stat##suffix, kind, (const char *path, kind *st), (path, st)) \
    FAKE(lstat##suffix, kind, (const char *path, kind *st), (path, st)) \
    FAKE(fstat##suffix, kind, (int fd, kind *st), (fd, st)) \
    FAKE(fstatat##suffix, kind, (int fd, const char *path, kind *st, int flags), (fd, path, st, flags))
FAKE_ALL(, struct stat)
FAKE_ALL(64, struct stat64) /* of the same form in 64 bits */
"""


class SameInodes(Case):
    """On some file systems several files have one inode number: a snapshot of them was one that -d refuses, and --rm removed the source."""

    def setUp(self):
        super().setUp()
        self.write("fake.c", SAME_INODES.encode())
        made = subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path("fake.so"), self.path("fake.c"), "-ldl"], stderr=subprocess.PIPE)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.content = {"a": bf16(9000), "b": bf16(8000, seed=2), "c/d": bf16(9000), "e": bf16(9000)[:-1] + b"x"}
        for name, data in self.content.items():
            self.write("run/" + name, data, 0o604)

    def faked(self, *args, **how):
        return self.lmc(*args, env={**os.environ, "LD_PRELOAD": self.path("fake.so")}, **how)

    def check(self, name):
        """The pair with equal contents may be a hard link."""
        self.lmc("-t", name)
        self.lmc("verify", name)
        self.assertEqual([(x["path"], x["target"]) for x in self.listing(name)["links"]], [("c/d", "a")])
        self.lmc("-d", "-o", "back", name)
        self.assertEqual({k: self.read("back/" + k) for k in self.content}, self.content)

    def test_rm(self):
        self.faked("--rm", "run", says="their contents differ")
        self.assertFalse(os.path.exists(self.path("run")))
        self.check("run.lmc")

    def test_series(self):
        self.faked("series", "S", "add", "--rm", "run", says="their contents differ")
        self.assertFalse(os.path.exists(self.path("run")))
        self.lmc("series", "S", "verify")
        self.check("S/run.lmc")

    def test_delta(self):
        self.faked("-q", "run", "-o", "old.lmc")
        self.content["a"] = self.content["c/d"] = bf16(9000)[:-2] + b"zz"
        for name in ("a", "c/d"):
            self.write("run/" + name, self.content[name], 0o604)
        self.faked("--rm", "--base", "old.lmc", "run", "-o", "new.lmc", says="their contents differ")
        self.assertFalse(os.path.exists(self.path("run")))
        self.lmc("-d", "--base", "old.lmc", "-o", "back", "new.lmc")
        self.assertEqual({k: self.read("back/" + k) for k in self.content}, self.content)

    def test_one_file(self):
        """All of a real hard link is kept."""
        shutil.rmtree(self.path("run"))
        self.write("run/a", b"x" * 1000)
        os.link(self.path("run/a"), self.path("run/b"))
        self.lmc("--rm", "run")
        self.lmc("-d", "run.lmc")
        self.assertTrue(os.path.samefile(self.path("run/a"), self.path("run/b")))


if __name__ == "__main__":
    sys.exit(main())
