#!/usr/bin/env python3
"""Fails if a page (*.md) links to a file or heading of the repository that does not exist, or names
a file that does not exist (`src/api.h`, for example); or if code or a page cites a rule of the
format (R4-8, for example) that spec/lmc-format.md does not have. SPDX-License-Identifier: MIT"""
import glob, os, re, sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
# NAME: any name
NAMED = re.compile(r"`((?:src|cli|tests|tools|spec|bench|fuzz|examples|docs)/[\w./*-]+)`")


def files(*suffixes):
    """The files of the tree, which need not be a clone, except those that were built."""
    for at, below, names in os.walk(TOP):
        below[:] = [d for d in below if re.match(r"(?!build$|dist$)\w|\.github$", d)]
        for name in names:
            if name.endswith(suffixes):
                yield os.path.relpath(os.path.join(at, name), TOP)


def read(page):
    with open(os.path.join(TOP, page), encoding="utf-8") as f:
        return f.read()


def headings(page):
    """The anchors that GitHub makes from headings."""
    titles = re.findall(r"^#+ (.*)$", read(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def prose(page):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)


def links(page):
    """(link, file, anchor in it or nothing) of what a page links to in the repository."""
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "`", prose(page))):
        path, _, anchor = link.partition("#")
        if not re.match(r"[a-z]+:", link):
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            yield link, target, anchor


def dead(page):
    for link, target, anchor in links(page):
        there = os.path.exists(os.path.join(TOP, target))
        if not there or anchor and anchor not in headings(target):
            yield "%s: link to %s" % (page, link)
    for path in NAMED.findall(prose(page)):
        if not glob.glob(os.path.join(TOP, path.replace("NAME", "*"))):
            yield "%s: names %s" % (page, path)


def unknown_rules(files):
    rules = set(re.findall(r"\*\*(R[0-9]+-[0-9]+)\*\*", read("spec/lmc-format.md")))
    for name in files:
        for rule in re.findall(r"\bR[0-9]+(?:\.[0-9]+)?-[0-9]+\b", read(name)):
            if rule not in rules:
                yield "%s: cites the rule %s" % (name, rule)


if __name__ == "__main__":
    pages = sorted(files(".md"))
    found = [line for page in pages for line in dead(page)]
    code = files(".c", ".h", ".in", ".py", ".rs", ".mjs", ".rb", ".md", ".1")
    found += unknown_rules(sorted(name for name in code if name != "lmc.h"))
    print("\n".join(found) or "%d pages: all links and names of files lead somewhere" % len(pages))
    sys.exit(bool(found))
