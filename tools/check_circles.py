#!/usr/bin/env python3
"""Checks that no modules need each other in a circle, beside what the checks of layers find: files
of the Python extension (python/src) that call each other, modules of the two packages that import
each other, also in functions, and functions of src/ that are called before their file comes.

    tools/check_circles.py

An import for types alone is none: if TYPE_CHECKING. SPDX-License-Identifier: MIT
"""
import ast
import os
import re
import sys

import check_layers
from check_layers_cli import check_circles, circles_in, without_texts

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = "python/lmc_codec", "integrations/lmc_integrations"


def imports(tree, package):
    """The modules of its own package that a module imports when it runs."""
    for node in tree:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(node.orelse, package)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in node.names:
                at = name.name.split(".")
                if isinstance(node, ast.ImportFrom):
                    start = [package] * node.level + (node.module or "").split(".")
                    at = [x for x in start if x] + at
                if at[0] == package:
                    yield at[1]
        else:
            yield from imports(ast.iter_child_nodes(node), package)


def circles_of_modules():
    for folder in PACKAGES:
        names = [x[:-3] for x in os.listdir(os.path.join(TOP, folder)) if x.endswith(".py")]
        uses = {}
        for name in names:
            with open(os.path.join(TOP, folder, name + ".py"), encoding="utf-8") as file:
                found = set(imports(ast.parse(file.read()).body, os.path.basename(folder)))
            uses[name] = found & set(names) - {name}
        for circle in circles_in(uses):
            yield f"{folder}: they import each other: {', '.join(sorted(circle))}"


def early_calls():
    """A prototype would hide these from the compiler."""
    order = [x for frame in ["lmc.h.in", *check_layers.BEHIND] for x in check_layers.named(frame)]
    texts = [without_texts(check_layers.read(name)) for name in order]
    seen = set()
    for name, text in reversed(list(zip(order, texts))):
        for early in sorted(seen & set(re.findall(r"\blmc__\w+", text))):
            yield f"src/{name} names {early}, which a later file defines"
        seen |= set(re.findall(r"^(?!#)[^\n;(){}=]*?\b(lmc__\w+)\([^;{}]*\)\s*\{", text, re.M))


def main():
    tried = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}
    lazy = "def f():\n from ._b import x\nif TYPE_CHECKING:\n import p.c\n"
    found = circles_in(tried), set(imports(ast.parse(lazy).body, "p"))
    if found != ({frozenset("abc")}, {"_b"}):
        raise SystemExit("a circle is not found")
    faults = [*circles_of_modules(), *early_calls()]
    n = check_circles(os.path.join(TOP, "python", "src"))
    print("\n".join([*faults, f"{len(faults) + n} circles beside layers"]))
    return len(faults) + n > 0


if __name__ == "__main__":
    sys.exit(main())
