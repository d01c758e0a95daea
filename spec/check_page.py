#!/usr/bin/env python3
"""Check that lmc-format.md, its companions and the vectors agree.

Usage: check_page.py                 each rule with a status has a vector that breaks it, or is in the list below; a vector has the statuses of its
rules; no text names a rule that does not exist; section 1.1 shows example_stored.lmc; the tables are those of the encoder; the pseudo code of the
pages, run on all vectors, gives the results of lmc_decode.py
       check_page.py --rules         print the table of rules: rule, statuses, vectors that break it
       check_page.py --examples      print the example files, with a note on each field
SPDX-License-Identifier: MIT
"""
import itertools
import json
import os
import re
import sys

import check_vectors
import encoder
import frozen_trees
import lmc_decode
import quantised

HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = "lmc-format.md", "quantised.md", "zeros.md", "matrix.md", "codes.md", "hash.md", "links.md", "foreign-bases.md", "salvage.md"
STATUSES = "NOT_LMC VERSION UNSUPPORTED TRUNCATED CORRUPT CHECKSUM LIMIT BASE_MISSING BASE_WRONG".split()
RULE = r"\b[RQZMKHLFS](?:[0-9]+)?-[0-9]+\b"
# Rules with a status that no vector breaks, and the reasons.
NO_VECTOR = {
    "R2-8": "each field has its own rule", "R2-9": "each field has its own rule",
    "R5-14": "what a decoder delivers is not seen from a file", "R7-9": "a choice of range readers",
    "R9-2": "what a caller allows", "R9-5": "depends on what a decoder keeps"}
OF_OTHER_RULES = {"R7-3", "R8-7", "R8-12"}     # "that status", "as there"
MOST = 3000                                    # elements of a list: longer ones are too slow with the pseudo code


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def rules_of(page):
    """Pairs of a rule and its text: a row of a table, or an item of a list."""
    found = re.split(r"^(?:\| |\* |)\*\*(%s)\*\*" % RULE, page, flags=re.M)
    for rule, text in zip(found[1::2], found[2::2]):
        yield rule, re.split(r"\n(?=[|*\n])", text)[0]
    for rule, text in re.findall(r"\*\*(%s)\*\*([^|]*\|[^|]*)\|$" % RULE, page, re.M):                        # in the last cells of a table's row
        yield rule, text


def load():
    """Returns texts of the pages; statuses by rule; the manifest's entries; names of vectors by rule."""
    pages = {name: read(name) for name in PAGES}
    statuses = {}
    for page in pages.values():
        for rule, text in rules_of(page):
            statuses.setdefault(rule, set()).update(set(re.findall("[A-Z_]+", text)) & set(STATUSES))
    manifest = json.loads(read("vectors/manifest.json"))
    entries = [dict(entry, kind=kind) for kind in ("valid", "invalid") for entry in manifest[kind]]
    vectors = {}
    for entry in entries:
        for rule in entry.get("rules", ()):
            vectors.setdefault(rule, []).append(entry["name"])
    return pages, statuses, entries, vectors


def check_rules(pages, statuses, entries, vectors):
    for rule in statuses:
        if statuses[rule] and rule not in vectors and rule not in NO_VECTOR:
            yield "no vector breaks %s" % rule
    for rule in NO_VECTOR:
        if rule in vectors or rule not in statuses:
            yield "%s needs no reason" % rule
    for name, text in list(pages.items()) + [(name, read(name)) for name in os.listdir(HERE) if name.endswith(".py")]:
        for rule in set(re.findall(RULE, text)) - statuses.keys():
            yield "%s: there is no rule %s" % (name, rule)
    for entry in entries:
        rules = set(entry.get("rules", ()))
        allowed = set().union(*(statuses.get(rule, ()) for rule in rules))
        said = entry.get("status") or entry.get("or", [])
        if rules and not set(said) <= allowed and not rules & OF_OTHER_RULES:
            yield "%s: %s, by %s" % (entry["name"], " ".join(said), " ".join(rules))


def check_walk(page):
    """Section 1.1: bytes at their offsets; ... is any byte."""
    data = check_vectors.read(os.path.join(check_vectors.VECTORS, "valid", "example_stored.lmc"))
    at = 0
    for line in re.findall(r"^    ([0-9A-F]{4}  .*)$", page.split("### 1.1")[1].split("\n## ")[0], re.M):
        offset, text = int(line[:4], 16), re.split(r"  +(?![0-9A-F]{2}\b)", line[6:])[0]
        if at not in (offset, None):
            yield "section 1.1, %04X: the line before ends at %04X" % (offset, at)
        for i, part in enumerate(text.split("...")):
            part = bytes.fromhex(part.replace(" ", ""))
            at = offset if i == 0 else data.index(part, at) if part else at
            if data[at:at + len(part)] != part:
                yield "section 1.1, %04X: %s" % (offset, part.hex(" "))
            at += len(part)
        at = None if text.endswith("...") else at
    if at != len(data):
        yield "section 1.1 is not all of the file"


def check_tables(page):
    table = re.findall(r"\| ([0-9]+) \| ([A-Z][A-Z0-9_]*) \| ([0-9]+) (?=\|)", page)
    if sorted((int(number), name) for number, name, _ in table) != list(enumerate(encoder.DTYPES, 1)):
        yield "the table of dtypes"
    if {name.encode(): int(bits) for _, name, bits in table} != lmc_decode.DTYPE_BITS:
        yield "the bits of dtypes"
    rows = [list(map(int, row.split("|"))) for row in re.findall(r"^\| ([0-9] \|(?: [0-9]+ \|){14} [0-9]+) \|$", page, re.M)]
    if [row[1:] for row in rows[-10:]] != frozen_trees.table():
        yield "the table of frozen trees"


# ---- Pseudo code ----

class Refused(Exception):
    pass


class Leaf:
    def __init__(self, symbol, length, start):
        self.symbol, self.length, self.start = symbol, length, start


def leaves_of(tree):
    return [Leaf(*leaf) for leaf in zip(tree.symbols, tree.lengths, tree.starts)]


def pseudo_code(page):
    """The functions of a page."""
    space = {}
    for lines in re.findall(r"(?:^     .*\n|^\n(?=     ))+", page, re.M):
        if "def " in lines:
            exec("\n".join(line[5:] for line in lines[lines.index("     def "):].split("\n")), space)
    return space


def run_section_6(space, payload, what, *arguments):
    """The result, and how many bytes were read; None if it refuses."""
    at = 0

    def take(k):
        nonlocal at
        if at + k > len(payload):
            raise Refused
        at += k
        return payload[at - k:at]

    def bits_of(data, n):
        bits = [byte >> i & 1 for byte in data for i in range(8)]
        if any(bits[n:]):
            raise Refused
        return bits[:n]

    def refuse(_):
        raise Refused

    space.update(take=take, bits_of=bits_of, refuse=refuse, FROZEN=FROZEN)
    try:
        return bytes(space[what](*arguments)), at
    except Refused:
        return None


FROZEN = [leaves_of(tree) for tree in lmc_decode.FROZEN_TREES]


class Watch:
    """Runs the pseudo code together with the same functions of the decoder."""

    def __init__(self, pages):
        self.page, self.quantised = pseudo_code(pages["lmc-format.md"]), pseudo_code(pages["quantised.md"])
        self.counts, self.wrong = dict.fromkeys(("lists", "masks", "elements", "residuals", "quantised elements", "scales"), 0), []
        for module, name in ((lmc_decode, "read_node"), (lmc_decode, "read_mask"), (lmc_decode, "join_planes"), (quantised, "dequantise"),
                             (quantised, "predict_scales")):
            setattr(module, name, self.beside(getattr(module, name), getattr(self, name)))
        self.depth = 0

    def beside(self, function, check):
        def both(*arguments):
            source, at = arguments[0], getattr(arguments[0], "at", 0)
            self.depth += 1
            try:
                found = function(*arguments)
            except lmc_decode.LmcError:
                found = None
            self.depth -= 1
            if self.depth == 0:                # not for nested calls
                check(found, at, *arguments)
            if found is None:
                source.at = at
                return function(*arguments)    # the decoder raises it again
            return found
        return both

    def compare(self, what, mine, pages):
        self.counts[what] += 1
        if mine != pages:
            self.wrong.append("pseudo code: %s" % what)

    def read_node(self, found, at, source, tree, depth, start, n, nesting):
        if n <= MOST:
            self.compare("lists", found and (found, source.at - at),
                         run_section_6(self.page, source.data[at:], "Node", leaves_of(tree), depth, start, n, nesting))

    def read_mask(self, found, at, source, n, nesting, is_of_class):
        if n <= MOST:
            self.compare("masks", found and (found, source.at - at), run_section_6(self.page, source.data[at:], "Mask", n, nesting, is_of_class))

    def join_planes(self, found, _, planes, n, order, base):
        if base and n > MOST:
            return
        width = len(planes)
        elements, predictions = lmc_decode.integers(found, width), lmc_decode.integers(base, width) if base else [0] * n
        for i in range(min(n, 300)):
            r, b, element = sum(plane[i] << 8 * p for p, plane in enumerate(planes)), predictions[i], elements[i]
            self.compare("elements", element, self.page["element"](r, b, 8 * width, order))
            self.compare("residuals", r, self.page["residual"](element, b, 8 * width, order))

    def dequantise(self, found, _, symbol, scale, method, least, step):
        self.compare("quantised elements", found, self.quantised["element"](symbol, scale, method, least, step))

    def predict_scales(self, found, _, predictions, width, bias, floor):
        self.compare("scales", found, [self.quantised["scale_of_prediction"](p, width, bias, floor) for p in predictions])


def check_pseudo_code(pages, entries):
    watch = Watch(pages)
    for entry in entries:
        try:
            lmc_decode.decode(check_vectors.read(check_vectors.path_of(entry)), check_vectors.bases_of(entry))
        except lmc_decode.LmcError:
            pass
    print("pseudo code: %s" % ", ".join("%d %s" % (n, what) for what, n in watch.counts.items()))
    return watch.wrong + ["pseudo code: no %s" % what for what, n in watch.counts.items() if n == 0]


def print_rules(statuses, vectors):
    print("| Rule | Status | Vectors |\n|---|---|---|")
    for rule in statuses:
        if statuses[rule] or rule in vectors:
            print("| %s | %s | %s |" % (rule, ", ".join(sorted(statuses[rule])), " ".join("`%s`" % name for name in vectors.get(rule, ())) or
                                        NO_VECTOR[rule]))


def print_examples():
    import make_vectors
    made = make_vectors.make()
    for entry in made.manifest["valid"]:
        if entry["name"].startswith("example_"):
            print("%s.lmc, section %s: %s\n\n%s\n" % (entry["name"], entry["section"], entry["exercises"], encoder.dump(made.builders[entry["name"]])))


def main(arguments):
    pages, statuses, entries, vectors = load()
    if arguments == ["--rules"]:
        print_rules(statuses, vectors)
    elif arguments == ["--examples"]:
        print_examples()
    elif arguments:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        page = pages["lmc-format.md"]
        wrong = sorted(set(itertools.chain(check_rules(pages, statuses, entries, vectors), check_walk(page), check_tables(page),
                                           check_pseudo_code(pages, entries))))
        for problem in wrong:
            print("FAILED " + problem)
        print("%d rules, %d with a status, %d vectors; %d failed" % (len(statuses), sum(map(bool, statuses.values())), len(entries), len(wrong)))
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
