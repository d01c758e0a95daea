#!/usr/bin/env python3
"""Every array of a fixed size and every limit of the command stands in tests/limits.txt, with the tests that reach it and pass it.

    tools/check_limits.py            fails if one is missing there, or if the list names what the code or the tests do not have
    tools/check_limits.py --missing  prints lines for what is missing

An array is a declaration in cli/ outside of a list of parameters: NAME[EXPRESSION]. Tables that are constant are none. A limit is a macro or
an enumerator with MAX, MOST, LIMIT or ROOM in its name; others may be listed, too.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = "tests/limits.txt"
TYPE = (r"(?:(?:static|const|extern|unsigned|signed|volatile)\s+)*(?:struct\s+\w+|union\s+\w+|enum\s+\w+|unsigned|void|bool|char|short|int|long(?:\s+long)?|double|float|size_t|off_t|FILE|json_t|\w+_t|lmc_\w+)"
        r"(?:\s+const)?\s*\*?")
IS_LIMIT = re.compile(r"MAX|MOST|LIMIT|ROOM")


def strip(text):
    """Without comments, the contents of texts, and lines of the preprocessor."""
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', lambda m: " " if m[0][0] == "/" else m[0][0] * 2, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)


def declarators(statement):
    """The parts between commas that stand outside of brackets, each up to its '='."""
    depth, start, parts = 0, 0, []
    for i, c in enumerate(statement + ","):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(statement[start:i].split("=")[0].strip())
            start = i + 1
    return parts


def arrays(text):
    depth, start = 0, 0
    code = strip(text)
    for i, c in enumerate(code):
        depth += (c == "(") - (c == ")")
        if c not in ";{}" or depth:
            continue
        statement = " ".join(code[start:i].split())
        start = i + 1
        statement = re.sub(r"^(?:case [^:?]*|default|\w+) ?: ", "", statement)
        declared = re.match(TYPE + r"(?=[ *]*\w+[ ]*(?:\[|,|=|$))", statement)
        if not declared or statement.startswith(("return", "typedef", "goto", "else")) or ("const" in declared[0].split() and c == "{"):
            continue
        for part in declarators(statement[declared.end():]):
            found = re.fullmatch(r"(?:\*|const|\s)*(\w+) ?((?:\[[^\[\]]+\])+)", part)
            if found:
                yield found[1] + found[2]


def limits(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    for name in re.findall(r"^[ \t]*#define[ \t]+([A-Z0-9_]+)[ \t]+\S", text, flags=re.M):
        if IS_LIMIT.search(name):
            yield name
    for body in re.findall(r"\benum(?:\s+\w+)?\s*\{([^}]*)\}", strip(text)):
        for name in re.findall(r"\b([A-Z0-9_]+)\b\s*(?:=|,|$)", body):
            if IS_LIMIT.search(name):
                yield name


def code():
    """{(file, what)}"""
    found = set()
    for path in sorted(glob.glob("cli/**/*.[ch]", recursive=True, root_dir=ROOT)):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        found |= {(path, what) for what in (*arrays(text), *limits(text))}
    return found


def main():
    wrong = []
    found = code()
    for path, what in sorted(found):
        print(path, "|", what)


sys.exit(main())
