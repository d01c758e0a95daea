#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md for cli/. Its directories are layers ("rooms"), which include
only themselves and layers below them. No verb includes or calls another one, except series. No
private name of lmc.h is used. A source file includes its own header first. Below all of them is
formats/, which includes only itself, lmc.h and the C library: no I/O, nothing of POSIX.

    tools/check_layers_cli.py [DIRECTORY]     (default: cli/; formats/ lies beside it)
"""

import os
import re
import sys

ROOMS = ["sys", "format", "input", "choose", "job", "verb", ""]  # "": cli/ itself
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLI = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "cli"))
FORMATS = os.path.join(os.path.dirname(CLI), "formats")


def family(path):
    """The verb of a file in verb/: series for series_prune.c."""
    return re.split(r"[_.]", os.path.basename(path))[0]


def functions(text):
    """Names of the functions that are defined here and not static."""
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
    room = os.path.dirname(path)
    includes = re.findall(r'^#include "(.*)"', text, re.M)
    own = os.path.splitext(os.path.basename(path))[0] + ".h"
    has_own = path.endswith(".c") and os.path.exists(os.path.join(CLI, room, own))
    if has_own and includes[:1] != [own]:
        yield "does not include %s first" % own
    for include in includes:
        target = os.path.normpath(os.path.join(room, include))
        if target in HEADERS:
            continue
        if not os.path.exists(os.path.join(CLI, target)):
            yield "includes %s, which is not there" % include
            continue
        other = os.path.dirname(target)
        if other == os.path.join("..", "formats"):
            continue
        if other not in ROOMS:
            yield "includes %s, which is neither in cli/ nor in formats/" % include
            continue
        if ROOMS.index(other) > ROOMS.index(room):
            yield "includes %s, of a higher room" % include
        if room == other == "verb" and family(path) not in (family(target), "series"):
            if family(target) != "verbs":
                yield "includes %s, of another verb" % include
    if room == "verb" and path.endswith(".c") and family(path) != "series":
        for name, other in functions_of_verbs().items():
            if other != family(path) and re.search(r"\b%s\(" % name, text):
                yield "calls %s, of another verb" % name
    yield from private_names(text)


# Headers of the C library, without files and processes.
PLAIN_HEADERS = """assert ctype errno float limits locale math stdarg stddef stdint stdio stdlib
string"""
# Forbidden names: of stdio.h, formats/ may only use functions that write to strings.
INPUT_OUTPUT = r"\b(FILE|std(?:in|out|err)|f(?:open|printf|put[cs]|gets)|v?printf|puts)\b(?!,)"


def faults_of_format(path, text):
    includes = re.findall(r'^#include "(.*)"', text, re.M)
    own = os.path.splitext(path)[0] + ".h"
    has_own = path.endswith(".c") and os.path.exists(os.path.join(FORMATS, own))
    if has_own and includes[:1] != [own]:
        yield "does not include %s first" % own
    for include in includes:
        if include not in LIBRARY and not os.path.exists(os.path.join(FORMATS, include)):
            yield "includes %s, which is neither of the library nor in formats/" % include
        if "/" in include and include not in LIBRARY:
            yield "includes %s, of another room" % include
    for header in re.findall(r"^#include <(.*)>", text, re.M):
        if header not in ["%s.h" % name for name in PLAIN_HEADERS.split()]:
            yield "includes <%s>: what is here is of bytes and texts in memory" % header
    for name in sorted(set(re.findall(INPUT_OUTPUT, text))):
        yield "names %s: no I/O" % name
    yield from private_names(text)


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


def main():
    n_files, n_faults = check(CLI, faults)
    n_formats, n_more = check(FORMATS, faults_of_format)
    print("%d files, %d faults" % (n_files + n_formats, n_faults + n_more))
    return n_faults + n_more != 0 or n_files < 50 or n_formats < 8


if __name__ == "__main__":
    sys.exit(main())
