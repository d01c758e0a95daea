#!/usr/bin/env python3
"""How strong are the tests? Small bugs are put into the library, one at a time, and each must make a test fail.

Usage: mutate.py [OPTION...] [WHERE...]
    WHERE         where bugs are put: a file or a folder of src/, as codec or src/codec/get_list.h, or the name of a function;
                  default: everywhere
    --count=N     how many bugs, drawn at random (default 40; 0: all)
    --seed=N      the seed of the draw (default 1); the same seed and src/ give the same bugs
    --list        prints them, and ends
    --only=N,...  these numbers of the list
    --brief       only the brief tests
    --jobs=N      default 2

The library is compiled once with all bugs: a function with bugs becomes one that calls the original or, by the number in LMC_BUG, a copy with the
bug. So a bug costs a run of the tests, but no compilation. Tests run until one fails, crashes or hangs: brief ones, those of the bug's floor first. A
bug that passes all of them is run with the longer tests of its floor, some of them under the address sanitizer.

Bugs that survive are printed. tests/mutants.txt has those that are known to survive, with the reasons; exit status 1 if another one does. Code that
is not compiled here (other machines, other tiers) and macros get no bugs.
"""
import bisect
import collections
import concurrent.futures
import itertools
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "build", "mutate")
KNOWN = os.path.join(ROOT, "tests", "mutants.txt")
MEMORY = 8 << 30  # of a test with a bug; not under the address sanitizer, which maps terabytes

BUILDS = {"simd": ["gcc", "-O1"], "asan": ["gcc", "-O1", "-DLMC_NO_SIMD", "-fsanitize=address"]}
# The tests that are likely to find a bug in a floor of src/: test programs, "vectors" (through the library) and "digest"
FIRST = {"kernels": ["kernels", "digest"], "codec": ["block", "delta", "digest", "vectors", "corrupt"], "quantize": ["quantize"],
         "tensor": ["tensor"], "snapshot": ["snapshot", "corrupt", "vectors", "salvage", "in_place"], "base": ["block", "vectors"]}
ALL = ["kernels", "block", "tensor", "vectors", "delta", "snapshot", "corrupt", "in_place", "salvage", "quantize", "api", "changing", "digest"]
ONE_SPEED = {"vectors", "digest"}  # the same whether brief or quick
UNDER_ASAN = ["corrupt", "snapshot", "delta"]


def brief_suites(path):
    """(build, program, speed) in the order in which they are tried."""
    first = FIRST[path.split("/")[0]]
    return [("simd", name, "brief") for name in first + [name for name in ALL if name not in first]]


def longer_suites(path):
    return [("simd", name, "quick") for name in FIRST[path.split("/")[0]] if name not in ONE_SPEED] + [("asan", name, "brief") for name in UNDER_ASAN]


# -- the source: lmc.h, made of src/ --

def read_source():
    """Its text; and the same with spaces in place of comments, strings and preprocessor lines, so that places are the same."""
    subprocess.run([sys.executable, os.path.join(ROOT, "tools", "amalgamate.py")], check=True)
    text = ""
    for name in ("lmc.h", "include/lmc_salvage.h", "include/lmc_extra.h"):  # one behind the other, as they are included: #include then adds nothing
        with open(os.path.join(ROOT, name)) as file:
            text += file.read()
    hidden = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
    return text, hidden.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def compiled_lines(text):
    """The lines that are compiled in build simd; some within the arguments of a macro may be missing."""
    path = os.path.join(OUT, "lmc.h")
    with open(path, "w") as file:
        file.write(text)
    command = BUILDS["simd"] + ["-std=c99", "-E", "-DLMC_IMPLEMENTATION", "-xc", path]
    seen, number, here = set(), 0, False
    for line in subprocess.run(command, stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout.split("\n"):
        mark = re.match(r'# (\d+) "(.*?)"', line)
        if mark:
            number, here = int(mark[1]), mark[2] == path
            continue
        if here and line.strip():
            seen.add(number)
        number += 1
    return seen


Function = collections.namedtuple("Function", "start end before name parameters path")


def functions(text, code):
    head = re.compile(r"^(?![#/} \n]|typedef|struct|enum lmc_\w+ \{|enum \{)([^;{}=#\n()]*?[ *\n])(\w+)\(((?:[^;{}=\n]|\n )*?)\)\s*\{", re.M)
    files = [(match.start(), match[1]) for match in re.finditer(r"^/\* == (\S+) =+ \*/$", text, re.M)]
    start = 0
    while True:
        match = head.search(code, start)
        if not match:
            return
        line_end = code.index("\n", match.end())
        end = line_end + 1 if code[match.end():line_end].rstrip().endswith("}") else code.index("\n}\n", match.end()) + 3
        yield Function(match.start(), end, *match.groups(), [path for at, path in files if at < match.start()][-1])
        start = end


def parameter_names(parameters):
    flat = re.sub(r"(?<=\w\))\([^()]*\)|\[[^][]*\]", "", parameters)  # without parameters of pointers to functions, and sizes
    return [] if flat == "void" else [re.search(r"(\w+)\)?$", part.strip())[1] for part in flat.split(",")]


# -- bugs --

Bug = collections.namedtuple("Bug", "function start end new operator line changed")  # new stands for start .. end

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}


def edits(code, at):
    """(start, end, replacement, operator) of each bug in code, the body of a function; `at`: where it begins."""
    for match in re.finditer(r"(?<![<>=!&|-])(<=|>=|==|!=|&&|\|\||<|>)(?![<>=&|])", code):
        yield at + match.start(), at + match.end(), SWAPS[match[1]], "operator"
    for match in re.finditer(r"(?<![\w.])(0x[0-9A-Fa-f]+|0|[1-9]\d*)(?=[uUlL]*\b)(?![\w.]*\.)", code):
        value = int(match[1], 0)
        for new in (value + 1, value - 1) if value else (1,):
            yield at + match.start(), at + match.end(), "0x%X" % new if match[1].startswith("0x") else str(new), "constant"
    for match in re.finditer(r"\breturn ([01]);", code):
        yield at + match.start(1), at + match.end(1), "10"[int(match[1])], "returned"
    for match in re.finditer(r"\blmc__min(64)?\(", code):
        yield at + match.start(), at + match.end(), "lmc__bug_max(", "min"
    for match in re.finditer(r"\bLMC__(TRY|CHECK|VALID)(?=\()", code):  # an error is not passed on; a rule is not checked
        yield at + match.start(), at + match.end(), "lmc__bug_no_" + match[1].lower(), "removed"


def find_bugs(text, code, where):
    compiled, bugs = compiled_lines(text), []
    ends = [match.start() for match in re.finditer("\n", text)]

    def is_compiled(place):
        return bisect.bisect_left(ends, place) + 1 in compiled

    for function in functions(text, code):
        if where and not any(w == function.name or w == function.path or function.path.startswith(w.rstrip("/") + "/") for w in where):
            continue
        at = function.start + code[function.start:function.end].index("{")
        if not is_compiled(function.start):
            continue
        for start, end, new, operator in edits(code[at:function.end], at):
            begin, stop = text.rindex("\n", 0, start) + 1, text.index("\n", end)
            line = text[begin:stop]
            # not labels, sizes of tables and compile-time constants
            if is_compiled(start) and not re.search(r"\bcase\b|\bstatic\b|\benum\b|\w\[\d+\]( =|;)|\b_mm", line):
                bugs.append(Bug(function, start, end, new, operator, " ".join(line.split()),
                                " ".join((text[begin:start] + new + text[end:stop]).split())))
    return bugs


CHOOSE = """
#include <stdlib.h>
#define lmc__bug_max(a, b) ((a) < (b) ? (b) : (a))
#define lmc__bug_no_try(expression) (void)(expression)
#define lmc__bug_no_check(condition, status) (void)0
#define lmc__bug_no_valid(condition) (void)0
static int lmc__bug;
__attribute__((constructor)) static void lmc__choose_bug(void)
{
    const char *number = getenv("LMC_BUG");
    lmc__bug = number ? atoi(number) : 0;
}
"""


def weave(text, bugs):
    """The text with all bugs (a dict by their numbers), and the first line of each copy of a function: [(line, number)]."""
    by_function, out, lines, done = collections.OrderedDict(), [], [], 0
    for number, bug in sorted(bugs.items(), key=lambda pair: pair[1].start):
        by_function.setdefault(bug.function, []).append(number)
    mark = text.index("#include <string.h>\n") + len("#include <string.h>\n")
    n_lines = 0

    def put(piece, number=0):
        nonlocal n_lines
        lines.append((n_lines + 1, number))
        n_lines += piece.count("\n")
        out.append(piece)

    for f, numbers in by_function.items():
        piece = text[done:f.start]
        put(piece if done else text[:mark] + CHOOSE + text[mark:f.start])
        names, is_void = ", ".join(parameter_names(f.parameters)), re.search(r"\bvoid\s*$", f.before.strip())
        own, rest = f.before.replace("LMC_API", "static"), f.start + len(f.before) + len(f.name)
        put("%s%s(%s);\n%s%s__0%s" % (f.before, f.name, f.parameters, own, f.name, text[rest:f.end]))
        calls = ""
        for n in numbers:
            bug = bugs[n]
            put("%s%s__%d%s%s%s" % (own, f.name, n, text[rest:bug.start], bug.new, text[bug.end:f.end]), n)
            calls += "    if (lmc__bug == %d) %s%s__%d(%s)%s\n" % (n, "{ " if is_void else "return ", f.name, n, names, "; return; }" if is_void else ";")
        put("%s%s(%s)\n{\n%s    %s%s__0(%s);\n}\n" % (f.before, f.name, f.parameters, calls, "" if is_void else "return ", f.name, names))
        done = f.end
    put(text[done:])
    return "".join(out), lines


# -- building and running --

class Library:
    """The library with all bugs, and the test programs with it."""

    def __init__(self, text, bugs):
        self.text, self.bugs, self.root = text, bugs, os.path.join(OUT, "tree")
        self.making, self.seconds = collections.defaultdict(threading.Lock), {}
        shutil.rmtree(self.root, ignore_errors=True)
        for name in ("tests", "fuzz"):  # they include lmc.h from the directory above
            shutil.copytree(os.path.join(ROOT, name), os.path.join(self.root, name), ignore=shutil.ignore_patterns("golden", "corpus", "*.py", "*.zip"))
        shutil.copy(os.path.join(ROOT, "tests", "codec", "vectors.py"), os.path.join(self.root, "tests", "codec"))
        for name in ("include", "spec"):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.root, name))
        self.build()

    def build(self):
        """Bugs that do not compile are dropped: the compiler names their lines."""
        while True:
            woven, lines = weave(self.text, self.bugs)
            with open(os.path.join(self.root, "lmc.h"), "w") as file:
                file.write(woven)
            result = self.compile("simd", "t_lmc")
            if result.returncode == 0:
                return
            wrong = set()
            for number in map(int, re.findall(r"lmc\.h:(\d+):\d+: error", result.stderr)):
                wrong.add([n for line, n in lines if line <= number][-1])
            wrong.discard(0)
            if not wrong:
                sys.exit("lmc.h does not compile with the bugs:\n" + result.stderr[:4000])
            for n in wrong:
                print("does not compile: " + describe(n, self.bugs.pop(n)), flush=True)

    def compile(self, build, name):
        command = BUILDS[build] + ["-std=c99", "-w", "-c", "tests/codec/%s.c" % name, "-o", "%s-%s.o" % (build, name)]
        return subprocess.run(command, cwd=self.root, stderr=subprocess.PIPE, universal_newlines=True)

    def program(self, build, name):
        program = os.path.join(self.root, "%s-%s" % (build, name))
        with self.making[build]:
            if not os.path.exists(program):
                source = name if name in ONE_SPEED else "test_" + name
                for part in ("t_lmc", source):
                    if not os.path.exists(os.path.join(self.root, "%s-%s.o" % (build, part))) and self.compile(build, part).returncode:
                        sys.exit("%s does not compile for %s" % (part, build))
                objects = ["%s-%s.o" % (build, part) for part in (source, "t_lmc")]
                subprocess.run(BUILDS[build] + objects + ["-o", program, "-lm", "-pthread"], cwd=self.root, check=True)
        return [program]

    def run(self, suite, number):
        """How the suite fails with this bug, as text, or None. Each suite must pass without a bug."""
        with self.making[suite]:
            if suite not in self.seconds:
                start = time.time()
                how = self.run_limited(suite, 0, 1200)
                if how:
                    sys.exit("%s fails without a bug: %s" % (" ".join(suite), how))
                self.seconds[suite] = time.time() - start
        return self.run_limited(suite, number, 5 * self.seconds[suite] + 20)

    def run_limited(self, suite, number, seconds):
        build, name, speed = suite
        command = self.program(build, name)
        environment = dict(os.environ, LMC_TEST_QUICK="1", LMC_TEST_BRIEF="1" if speed == "brief" and name != "digest" else "", LMC_BUG=str(number))
        environment.pop("LMC_TEST_TIER", None)
        if name == "vectors":
            command = [sys.executable, os.path.join(self.root, "tests", "codec", "vectors.py")] + command
        limit = None if build == "asan" else lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", env=environment, cwd=self.root,
                                    timeout=seconds, preexec_fn=limit)
        except subprocess.TimeoutExpired:
            return "hangs"
        if name == "digest":
            with open(os.path.join(self.root, "tests", "digests.txt")) as file:
                return None if result.returncode == 0 and result.stdout == file.read() else "other digests, exit status %d" % result.returncode
        if result.returncode == 0:
            return None
        failed = re.search(r"^.*FAILED.*$", result.stdout, re.M)
        return (failed[0] if failed else "exit status %d" % result.returncode)[:100]


def describe(number, bug):
    return "%d %s %s: %s: %s -> %s" % (number, bug.function.path, bug.function.name, bug.operator, bug.line, bug.changed)


def key(bug):
    return "%s: %s -> %s" % (bug.function.name, bug.line, bug.changed)


def read_known():
    """The parts before the reason of lines "FUNCTION: LINE -> LINE # REASON"."""
    with open(KNOWN) as file:
        return {line.rpartition(" # ")[0] for line in file if not line.startswith("#")}


def try_bugs(library, numbers, suites_of, jobs):
    """The numbers of bugs that survive all of their suites."""
    alive = []

    def attempt(number):
        start, suites = time.time(), suites_of(library.bugs[number].function.path)
        for suite in suites:
            how = library.run(suite, number)
            if how:
                return "%-22s %4.0f s  %s [%s]" % (" ".join(suite), time.time() - start, describe(number, library.bugs[number]), how)
        alive.append(number)
        return "%-22s %4.0f s  %s" % ("passed %d suites" % len(suites), time.time() - start, describe(number, library.bugs[number]))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(attempt, number) for number in numbers]
        for future in concurrent.futures.as_completed(futures):
            if future.exception():
                pool.shutdown(cancel_futures=True)
            print(future.result(), flush=True)
    return sorted(alive)


def main():
    where = [re.sub("^src/", "", word) for word in sys.argv[1:] if not word.startswith("--")]
    options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
    if options.keys() - {"count", "seed", "list", "only", "brief", "jobs"}:
        sys.exit(__doc__)
    os.makedirs(OUT, exist_ok=True)
    text, code = read_source()
    bugs, count = find_bugs(text, code, where), int(options.get("count", "40"))
    if not bugs:
        sys.exit("mutate.py: nothing to change there")
    print("%d bugs are possible" % len(bugs), flush=True)
    groups = collections.defaultdict(list)  # each operator gets its share, since most bugs are in constants
    for bug in bugs:
        groups[bug.operator].append(bug)
    chooser = random.Random(int(options.get("seed", "1")))
    for name in sorted(groups):
        chooser.shuffle(groups[name])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*(groups[name] for name in sorted(groups))))
    bugs = [bug for bug in turns if bug][:count or None]
    chosen = dict(enumerate(bugs, 1))
    if "only" in options:
        chosen = {n: chosen[n] for n in map(int, options["only"].split(","))}
    if "list" in options:
        print("\n".join(describe(*pair) for pair in chosen.items()))
        return 0
    library, known = Library(text, chosen), read_known()
    alive = try_bugs(library, list(library.bugs), brief_suites, int(options.get("jobs", "2")))
    if "brief" not in options:
        alive = try_bugs(library, alive, longer_suites, int(options.get("jobs", "2")))
    alive = [library.bugs[number] for number in alive]
    new = [bug for bug in alive if key(bug) not in known]
    print("\n%d bugs, %d caught, %d live and are known to; others that live: %d" %
          (len(library.bugs), len(library.bugs) - len(alive), len(alive) - len(new), len(new)))
    print("\n".join(map(key, new)))
    return bool(new)


if __name__ == "__main__":
    sys.exit(main())
