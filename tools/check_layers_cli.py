#!/usr/bin/env python3
"""That the command is built as cli/main.c says: a room includes only itself and those below it, no
verb includes another but series, nothing private of lmc.h is named, and a source file includes its
own header first.

    tools/check_layers_cli.py [DIRECTORY]     (default: cli/)
"""

import os
import re
import sys

ROOMS = ["sys", "format", "input", "choose", "job", "verb", ""]  # "": cli/ itself
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLI = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TOP, "cli")


def family(path):
    """The verb that a file of verb/ belongs to: series_gc.c to series."""
    return re.split(r"[_.]", os.path.basename(path))[0]


def faults(path, text):
    room = os.path.dirname(path)
    includes = re.findall(r'^#include "(.*)"', text, re.M)
    own = os.path.splitext(os.path.basename(path))[0] + ".h"
    has_own = path.endswith(".c") and os.path.exists(os.path.join(CLI, room, own))
    if has_own and includes[:1] != [own]:
        yield "does not include %s first" % own
    for include in includes:
        target = os.path.normpath(os.path.join(room, include))
        if target == os.path.join("..", "lmc.h"):
            continue
        if not os.path.exists(os.path.join(CLI, target)):
            yield "includes %s, which is not in cli/" % include
            continue
        other = os.path.dirname(target)
        if ROOMS.index(other) > ROOMS.index(room):
            yield "includes %s, of a higher room" % include
        if room == other == "verb" and family(path) not in (family(target), "series"):
            yield "includes %s, of another verb" % include
    for name in sorted(set(re.findall(r"\b(?:lmc|LMC)__\w+", text))):
        yield "names %s, which is private" % name


def main():
    n_files = n_faults = 0
    for at, _, names in os.walk(CLI):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(at, name), CLI)
            if path.endswith((".c", ".h")):
                n_files += 1
                with open(os.path.join(CLI, path), encoding="utf-8") as file:
                    for fault in faults(path, file.read()):
                        n_faults += 1
                        print("cli/%s %s" % (path, fault))
    print("%d files, %d faults" % (n_files, n_faults))
    return n_faults != 0 or n_files < 50


if __name__ == "__main__":
    sys.exit(main())
