#!/usr/bin/env python3
"""Joins src/ to lmc.h, the one file that users include.

  tools/amalgamate.py           writes lmc.h
  tools/amalgamate.py --check   fails if lmc.h is not what src/ makes

src/lmc.h.in is the frame. Each #include "FILE" of a file below src/ is replaced by that file, once,
where it is first asked for, so that every file stands behind what it includes. A file that the
frame includes within an #if of its own (LMC_NO_SNAPSHOT) must find all that it includes in front of
that: it would pull it into the #if. Files keep their text; only their own #include "..." lines and
#pragma once go. @CONTENTS@ becomes the list of the files, floor by floor.

A template, FILE.inl, is what each #include "FILE.inl" is replaced by, as often as there are: once
for each tier. Its comments are kept the first time only.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SRC = os.path.join(TOP, "src")
INCLUDE = re.compile(r'#include "(.+)"$')
COMMENT_LINES = re.compile(r"^ */\*.*?\*/\n", re.M | re.S)


def expand(name, done):
    """The lines of a file, with those that it includes in front of its own."""
    with open(os.path.join(SRC, name), encoding="ascii") as f:
        lines = f.read().split("\n")
    out, own, depth = [], [], 0
    for line in lines:
        include = INCLUDE.match(line)
        depth += line.startswith("#if") - line.startswith("#endif")
        if not include:
            own.append(line)
        elif include[1].endswith(".inl"):
            own += expand_template(include[1], done)
        elif name.endswith(".in"):  # the frame's own lines stay where they are
            n_done = len(done)
            own += expand(include[1], done)
            pulled = [f for f in done[n_done:] if f.endswith(".h") and f != include[1]]
            if pulled and depth > 1:  # 1: within #ifdef LMC_IMPLEMENTATION
                sys.exit("src/lmc.h.in: %s stands in an #if, and so would %s, which it includes"
                         % (include[1], pulled[0]))
        elif include[1] not in done:
            out += expand(include[1], done)
    if name.endswith(".in"):
        return own
    if name in done:
        return []
    done.append(name)
    text = "\n".join(line for line in own if line != "#pragma once").strip("\n")
    return out + ["/* == %s %s */" % (name, "=" * (90 - len(name))), ""] + text.split("\n") + [""]


def expand_template(name, done):
    with open(os.path.join(SRC, name), encoding="ascii") as f:
        text = f.read().strip("\n")
    if name in done:
        text = COMMENT_LINES.sub("", text + "\n").strip("\n")
    else:
        done.append(name)
    return ["/* -- %s -- */" % name] + text.split("\n") + ["/* -- */"]


def contents(names):
    """' *   floor     file file ...' for each folder, in the order of the files."""
    floors = {}
    for name in names:
        if name.endswith(".inl"):
            continue
        floor, _, file = name.rpartition("/")
        floors.setdefault(floor or "interface", []).append(file.removesuffix(".h"))
    lines = []
    for floor, files in floors.items():
        line = " *   %-10s" % floor
        for file in files:
            if len(line) + 1 + len(file) > 98:
                lines.append(line)
                line = " *   %-10s" % ""
            line += " " + file
        lines.append(line)
    return "\n".join(lines)


def amalgamate():
    done = []
    text = "\n".join(expand("lmc.h.in", done))
    return re.sub(r"\n{3,}", "\n\n", text).replace("@CONTENTS@", contents(done))


def write(path, text):
    """A file that is right already is only touched: make then takes it for new. Whoever compiles
    at the same time sees the old file or the new one."""
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            if f.read() == text:
                os.utime(path)
                return
    new = "%s.%d" % (path, os.getpid())
    with open(new, "w", encoding="ascii") as f:
        f.write(text)
    os.replace(new, path)


def main():
    path = os.path.join(TOP, "lmc.h")
    text = amalgamate()
    if sys.argv[1:] == ["--check"]:
        with open(path, encoding="ascii") as f:
            if f.read() != text:
                sys.exit("lmc.h is not what src/ makes: run tools/amalgamate.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        write(path, text)


if __name__ == "__main__":
    main()
