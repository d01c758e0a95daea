#!/usr/bin/env python3
"""Fails if a page (*.md under git) links to a file or heading of the repository that is not there. SPDX-License-Identifier: MIT"""
import os, re, subprocess, sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")


def read(page):
    """The page without its code blocks and code spans."""
    with open(os.path.join(TOP, page), encoding="utf-8") as f:
        return re.sub(r"^```.*?^```$|`[^`\n]*`", lambda m: "`" * m[0].count("`"), f.read(), flags=re.M | re.S)


def headings(page):
    """Anchors as GitHub makes them of headings."""
    with open(os.path.join(TOP, page), encoding="utf-8") as f:
        titles = re.findall(r"^#+ (.*)$", f.read(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def main():
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, check=True, capture_output=True, text=True).stdout.split()
    links = [(page, link) for page in pages for link in LINK.findall(read(page)) if not re.match(r"[a-z]+:", link)]
    dead = []
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(TOP, target)) or (anchor and anchor not in headings(target)):
            dead.append("%s: %s" % (page, link))
    print("\n".join(dead) or "%d links in %d pages are alive" % (len(links), len(pages)))
    sys.exit(bool(dead))


if __name__ == "__main__":
    main()
