#!/usr/bin/env python3
"""Derive the frozen trees of section 8.4: for each of the 9 levels, how many leaves have length 1..15.

A frozen tree codes the bytes of a skewed mask whose bits are one with probability q, independently of each other:
a byte with k one bits has the weight (1-q)^(8-k) * q^k. Level L stands for q = 2^-(1 + (L+1)/2), two levels an
octave from 0.354 to 0.0221. Sparser levels would repeat the last tree: the limit of 15 bits makes them equal (--all
shows it), and the nested masks, not the lengths, carry the rest. 2^(-1/2) is taken as 181/256, so that every weight is an exact rational (here: an exact
integer, the common denominator left out). The code lengths are those of an optimal prefix code of at most 15 bits,
found by package-merge (Larmore and Hirschberg, 1990): symbols sorted by ascending weight, in merges a symbol goes
before a package of the same weight. As the symbols of equal weight are interchangeable, only the counts matter; the
lengths go to the symbols in the order (number of one bits, value), shortest first.

Usage: frozen_trees.py [--c | --md | --all]    the table as C or as Markdown; --all: 18 levels, as Markdown
"""
import sys

MAX_LENGTH, LEVELS = 15, 9


def weights(level):
    """Integer weights of a byte with k = 0..8 one bits, up to a common factor."""
    half_octaves = level + 1
    numerator, denominator = 1, 2 << (half_octaves // 2)
    if half_octaves % 2:                       # times 181/256, about 2^(-1/2)
        numerator, denominator = 181, denominator * 256
    return [(denominator - numerator) ** (8 - k) * numerator ** k for k in range(9)]


def lengths(by_popcount):
    """Optimal lengths, at most MAX_LENGTH, of the 256 symbols in ascending order of weight."""
    symbols = sorted((by_popcount[bin(s).count("1")], i) for i, s in enumerate(range(256)))
    leaves = [(w, (i,)) for i, (w, _) in enumerate(symbols)]
    packages = []
    for _ in range(MAX_LENGTH):
        merged, a, b = [], 0, 0
        while a < len(leaves) or b < len(packages):
            if b == len(packages) or (a < len(leaves) and leaves[a][0] <= packages[b][0]):
                merged.append(leaves[a])
                a += 1
            else:
                merged.append(packages[b])
                b += 1
        packages = [(merged[i][0] + merged[i + 1][0], merged[i][1] + merged[i + 1][1])
                    for i in range(0, len(merged) - 1, 2)]
    # After the last round the first 255 packages are the 2 * 256 - 2 cheapest items: a symbol's length is its number of uses.
    used = [0] * 256
    for _, members in packages[:255]:
        for i in members:
            used[i] += 1
    return used


def table(levels=LEVELS):
    rows = []
    for level in range(levels):
        found = lengths(weights(level))
        assert sum(1 << (MAX_LENGTH - n) for n in found) == 1 << MAX_LENGTH
        assert found == sorted(found, reverse=True)
        rows.append([found.count(n) for n in range(1, MAX_LENGTH + 1)])
    return rows


if __name__ == "__main__":
    form = sys.argv[1] if len(sys.argv) > 1 else "--md"
    if form not in ("--c", "--md", "--all"):
        sys.exit(__doc__)
    if form != "--c":
        print("| level | " + " | ".join(str(n) for n in range(1, MAX_LENGTH + 1)) + " |")
        print("|---" * (MAX_LENGTH + 1) + "|")
    for level, row in enumerate(table(18 if form == "--all" else LEVELS)):
        if form == "--c":
            print("    {" + ", ".join("%3d" % n for n in row) + "}, /* %2d */" % level)
        else:
            print("| %d | " % level + " | ".join(str(n) for n in row) + " |")
