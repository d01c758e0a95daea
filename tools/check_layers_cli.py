#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md for the command: a layer includes only files of itself and
of lower layers, only the verb series includes or calls other verbs (and mount those functions
of series that read its list), no file uses private names of lmc.h, and a source file includes
its own header first. Inside a layer no functions of two files call each other in a circle.
Below all layers are store/, which includes only itself, formats/ and the C library, and formats/,
which includes only itself and the C library: no I/O, nothing of POSIX. None of them, nor the
packages of Python, knows magics or offsets of the format.

    tools/check_layers_cli.py [DIRECTORY]     (default: cli/, beside which formats/ and store/ are)
"""

import functools
import os
import re
import sys

LAYERS = ["sys", "format", "input", "choose", "job", "verb", ""]  # "": cli/ itself
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLI = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "cli"))
BELOW = ["formats", "store"]  # beside cli/; each may use those before it


def family(path):
    """The verb that a file of verb/ belongs to: series_prune.c to series."""
    return re.split(r"[_.]", os.path.basename(path))[0]


def may_use(user, other):
    """Whether a verb may include headers of another one, and call its functions."""
    return user in (other, "series") or (user, other) == ("mount", "series")


def functions(text):
    """The names of the functions that are defined in this text and are not static."""
    return re.findall(r"^(?!static)\w[^\n;(]*?\b(\w+)\([^;{]*\)\n\{", text, re.M)


def functions_of_verbs():
    """-> {name: family}"""
    verbs = os.path.join(CLI, "verb")
    found = {}
    for name in sorted(os.listdir(verbs)):
        with open(os.path.join(verbs, name), encoding="utf-8") as file:
            found.update((function, family(name)) for function in functions(file.read()))
    return found


HEADERS = [os.path.join("..", *path) for path in (("lmc.h",), ("include", "lmc_salvage.h"),
                                                  ("include", "lmc_extra.h"))]


LIBRARY = ["../lmc.h", "../include/lmc_extra.h"]


def private_names(text):
    for name in sorted(set(re.findall(r"\b(?:lmc|LMC)__\w+", text))):
        yield "names %s, which is private" % name


def faults(path, text):
    layer = os.path.dirname(path)
    includes = re.findall(r'^#include "(.*)"', text, re.M)
    own = os.path.splitext(os.path.basename(path))[0] + ".h"
    has_own = path.endswith(".c") and os.path.exists(os.path.join(CLI, layer, own))
    if has_own and includes[:1] != [own]:
        yield "does not include %s first" % own
    for include in includes:
        target = os.path.normpath(os.path.join(layer, include))
        if target in HEADERS:
            continue
        if not os.path.exists(os.path.join(CLI, target)):
            yield "includes %s, which is not there" % include
            continue
        other = os.path.dirname(target)
        if other in [os.path.join("..", name) for name in BELOW]:
            continue
        if other not in LAYERS:
            yield "includes %s, which is neither in cli/ nor below it" % include
            continue
        if LAYERS.index(other) > LAYERS.index(layer):
            yield "includes %s, of a higher layer" % include
        if layer == other == "verb" and not may_use(family(path), family(target)):
            if family(target) != "verbs":
                yield "includes %s, of another verb" % include
    if layer == "verb" and path.endswith(".c"):
        for name, other in functions_of_verbs().items():
            if not may_use(family(path), other) and re.search(r"\b%s\(" % name, text):
                yield "calls %s, of another verb" % name
    yield from private_names(text)


# Headers of the C library, except those for files and processes.
PLAIN_HEADERS = """assert ctype errno float inttypes limits locale math stdarg stddef stdint stdio
stdlib string"""
# stdio.h is only for functions that write to strings.
INPUT_OUTPUT = r"\b(FILE|std(?:in|out|err)|f(?:open|printf|put[cs]|gets)|v?printf|puts)\b(?!,)"


def faults_below(folder, path, text):
    """Of a file in formats/ or store/."""
    top = os.path.join(os.path.dirname(CLI), folder)
    includes = re.findall(r'^#include "(.*)"', text, re.M)
    own = os.path.splitext(path)[0] + ".h"
    has_own = path.endswith(".c") and os.path.exists(os.path.join(top, own))
    lower = tuple("../%s/" % name for name in BELOW[:BELOW.index(folder)])
    if has_own and includes[:1] != [own]:
        yield "does not include %s first" % own
    for include in includes:
        if include in LIBRARY:
            continue
        if not os.path.exists(os.path.join(top, include)):
            yield "includes %s, which is not there" % include
        if "/" in include and not include.startswith(lower):
            yield "includes %s, of a folder that is not below %s/" % (include, folder)
    for header in re.findall(r"^#include <(.*)>", text, re.M):
        if header not in ["%s.h" % name for name in PLAIN_HEADERS.split()]:
            yield "includes <%s>: %s/ works only on texts in memory" % (header, folder)
    for name in sorted(set(re.findall(INPUT_OUTPUT, text))):
        yield "names %s: no I/O" % name
    yield from private_names(text)


def without_texts(text):
    """C without comments and strings."""
    return re.sub(r'/\*.*?\*/|"(?:[^"\\]|\\.)*"', " ", text, flags=re.S)


def find_circles(texts):
    """texts: {path: C} of one layer -> sets of files that call each other in a circle"""
    owners = {name: path for path, text in texts.items() for name in functions(text)}
    calls = {path: {owners[word] for word in set(re.findall(r"\w+", text)) if word in owners}
             for path, text in texts.items()}
    return circles_in(calls)


def circles_in(uses):
    """uses: {name: set of names} -> sets of names that need each other in a circle"""
    reached = {}
    for name in uses:
        found, more = set(), [x for x in uses[name] if x != name]
        while more:
            found.add(more[-1])
            more += uses[more.pop()] - found
        reached[name] = found
    return {frozenset(x for x in reached[name] if name in reached[x])
            for name in uses if name in reached[name]}


def check_circles(top):
    """-> the number of circles"""
    tried = {"a.c": "int f(void)\n{\n g(); }", "b.c": "int g(void)\n{\n h(); }",
             "c.c": "int h(void)\n{\n f(); }", "d.c": "int k(void)\n{\n f(); }"}
    if find_circles(tried) != {frozenset(["a.c", "b.c", "c.c"])}:
        raise SystemExit("a circle is not found")
    n = 0
    for at, _, names in os.walk(top):
        texts = {}
        for name in names:
            if name.endswith(".c"):
                with open(os.path.join(at, name), encoding="utf-8") as file:
                    texts[name] = without_texts(file.read())
        for circle in find_circles(texts):
            n += 1
            print("%s: in a circle: %s" % (at, ", ".join(sorted(circle))))
    return n


def check(top, say_faults):
    """-> files, faults"""
    n_files = n_faults = 0
    for at, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(at, name), top)
            if path.endswith((".c", ".h")):
                n_files += 1
                with open(os.path.join(top, path), encoding="utf-8") as file:
                    for fault in say_faults(path, file.read()):
                        n_faults += 1
                        print("%s/%s %s" % (os.path.basename(top), path, fault))
    return n_files, n_faults


# Bytes of the format, and offsets in it: only src/ knows them; others ask lmc_snapshot_probe.
FORMAT = re.compile("|".join((
    r"LMC\\r\\n|x9[45]LMC|0x9[45], *'L'", r"""["'](?:INDX|BLKS|RUN )["']""",
    r"\b(?:SECTION_HEADER|TRAILER)_SIZE", r"\bFINGERPRINT_AT|\bEND_MAGIC")))
# They read no numbers at offsets in bytes, either: no user of the public API needs to. (formats/
# does, as that is its work, and so does the journal of lmc apply, a format of its own.)
NUMBERS = re.compile("|".join((
    r"\bcontainer_number\(", r"\bunpack(?:_from)?\(", r"\bfrom_bytes\([^)]*[\[+] *[1-9]",
    r"\b(?:header|head|tail|trailer|data|raw)\[\d{2,} *:")))
OWN_FORMATS = (os.path.join("cli", "verb", "apply_journal.c"), "formats")
# Options are initialised by the function of their struct, which sets struct_size.
ZEROED = re.compile(r"\blmc_\w+_(?:options|hints) \w+ = *(?:\{|LMC_DEFAULTS)")
USERS = [("cli", ".c", ".h"), ("formats", ".c", ".h"), ("store", ".c", ".h"),
         ("python/src", ".c", ".h"),
         ("python/lmc_codec", ".py"), ("integrations/lmc_integrations", ".py")]


def find_knowledge(path, line):
    """-> what is wrong with a line, or None"""
    if FORMAT.search(line):
        return "knows the format"
    if NUMBERS.search(line) and not path.startswith(OWN_FORMATS):
        return "reads a number at an offset"
    if ZEROED.search(line):
        return "zeroes options"
    return None


def check_format():
    """-> the number of lines that know what only src/ knows"""
    for line in ("size = container_number(header + 20, 8);", "x = unpack_from('<Q', head, 84)",
                 "size = int.from_bytes(data[20:28], 'little')", "id = header[84:100]",
                 "lmc_reader_options options = {0};", "memcmp(tail, \"BLKS\", 4)"):
        if not find_knowledge("cli/input/walk.c", line):
            raise SystemExit("this is not found: " + line)
    n = 0
    for directory, *ends in USERS:
        for base, _, names in os.walk(os.path.join(os.path.dirname(CLI), directory)):
            for name in sorted(names):
                if not name.endswith(tuple(ends)):
                    continue
                path = os.path.join(base, name)
                with open(path, encoding="utf-8") as file:
                    for number, line in enumerate(file, 1):
                        fault = find_knowledge(os.path.relpath(path, os.path.dirname(CLI)), line)
                        if fault:
                            print("%s:%d: %s: %s" % (path, number, fault, line.strip()))
                            n += 1
    return n


def main():
    n_known = check_format()
    n_files, n_faults = check(CLI, faults)
    n_faults += check_circles(CLI)
    n_below = 0
    for folder in BELOW:
        top = os.path.join(os.path.dirname(CLI), folder)
        n, n_more = check(top, functools.partial(faults_below, folder))
        n_below += n
        n_faults += n_more + check_circles(top)
    print("%d files, %d faults" % (n_files + n_below, n_faults))
    return n_known + n_faults != 0 or n_files < 50 or n_below < 12


if __name__ == "__main__":
    sys.exit(main())
