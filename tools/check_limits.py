#!/usr/bin/env python3
"""Checks that tests/limits.txt lists every array of a fixed size and every limit of the command,
with the tests that reach it and exceed it, or with the reason why no input can.

Fails if one is missing there, or if the list has names that are not in the code or the tests.

An array is a declaration NAME[EXPRESSION] in cli/, formats/ or store/ outside of a list of
parameters, except constant tables. A limit is a macro or an enumerator with MAX, MOST, LIMIT or
ROOM in its name; the list may have others, too.
"""
import ast
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = "tests/limits.txt"
WORDS = ("struct \\w+|union \\w+|enum \\w+|unsigned|void|bool|char|short|int|long(?: long)?|double|"
         "float|size_t|off_t|FILE|json_t|\\w+_t|lmc_\\w+")
TYPE = f"(?:(?:static|const|extern|unsigned|signed|volatile) )*(?:{WORDS})(?: const)? ?\\*?"
IS_LIMIT = re.compile("MAX|MOST|LIMIT|ROOM")
COMMENT, TEXT = r"/\*.*?\*/", r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'"


def strip(text):
    """The text without comments, contents of literals, and lines of the preprocessor."""
    text = re.sub(COMMENT + "|" + TEXT, lambda m: " " if m[0][0] == "/" else m[0][0] * 2, text,
                  flags=re.S)
    return re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)


def declarators(statement):
    """The parts between those commas that are outside of brackets, each up to its '='."""
    depth, start = 0, 0
    for i, c in enumerate(statement + ","):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            yield statement[start:i].split("=")[0].strip()
            start = i + 1


def statements(code):
    """Each with the character before it and after it, which is one of ; { }"""
    depth, start = 0, 0
    for i, c in enumerate(code):
        depth += (c == "(") - (c == ")")
        if c in ";{}" and not depth:
            yield code[start - 1:start], " ".join(code[start:i].split()), c
            start = i + 1


def arrays(text):
    for before, statement, behind in statements(strip(text)):
        statement = re.sub(r"^(?:case [^:?]*|default|\w+) ?: ", "", statement)
        declared = re.match(TYPE + r"(?=[ *]*\w+ ?(?:\[|,|=|$))", statement)
        if declared and "const" in declared[0].split() and behind == "{":
            continue
        if statement.startswith(("return", "typedef", "goto", "else")):
            continue
        if declared or (before == "}" and "=" not in statement):  # after a struct without a name
            for part in declarators(statement[declared.end() if declared else 0:]):
                found = re.fullmatch(r"(?:\*|const|\s)*(\w+) ?((?:\[[^\[\]]+\])+)", part)
                if found:
                    yield found[1] + found[2]


def limits(text):
    names = re.findall(r"^[ \t]*#define[ \t]+([A-Z0-9_]+)[ \t]+\S", text, flags=re.M)
    for body in re.findall(r"\benum(?:\s+\w+)?\s*\{([^}]*)\}", strip(text)):
        names += re.findall(r"\b([A-Z0-9_]+)\b\s*(?:=|,|$)", body)
    return {name for name in names if IS_LIMIT.search(name)}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def tests(script):
    body = ast.parse(read("tests/command/" + script)).body
    classes = [c for c in body if isinstance(c, ast.ClassDef)]
    return {f"{c.name}.{m.name}" for c in classes for m in c.body
            if isinstance(m, ast.FunctionDef)}


def check_line(fields, known):
    if len(fields) not in (3, 4) or not all(fields):
        yield "a line has three or four fields"
        return
    named = re.findall(r"(test_\w+\.py) (\w+\.\w+)", " ".join(fields))
    for script, test in named:
        if test not in known.setdefault(script, tests(script)):
            yield f"{script} has no {test}"
    if len(fields) == 4 and not named:
        yield "names no test"


def stands_for(pattern, text):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text)


def main():
    rows, wrong, known, used = [], [], {}, set()
    for number, line in enumerate(read(LIST).split("\n"), 1):
        if line and not line.startswith("#"):
            rows.append([field.strip() for field in line.split(" | ")])
            wrong += [f"{LIST}:{number}: {what}" for what in check_line(rows[-1], known)]
    for path in sorted(glob.glob("cli/**/*.[ch]", recursive=True, root_dir=ROOT) +
                       glob.glob("formats/*.[ch]", root_dir=ROOT) +
                       glob.glob("store/*.[ch]", root_dir=ROOT)):
        text = read(path)
        here = {row[1] for row in rows if row[0] == path and row[1].isidentifier()}
        here = {name for name in here if re.search(rf"\b{name}\b", text)}
        for what in sorted({*arrays(text), *limits(text), *here}):
            found = {i for i, row in enumerate(rows)
                     if stands_for(row[0], path) and stands_for(row[1], what)}
            used |= found
            if not found:
                wrong.append(f"{path}: {what} is not in {LIST}, which says what reaches it")
    wrong += [f"{LIST}: '{rows[i][0]} | {rows[i][1]}' is about nothing"
              for i in range(len(rows)) if i not in used]
    print("\n".join(wrong) or f"{len(rows)} lines of {LIST} are about all arrays and limits")
    return bool(wrong)


sys.exit(main())
