#!/usr/bin/env python3
"""Derive the frozen trees of section 6.4: for each of the 10 levels, how many leaves have length 1..15.

A frozen tree codes the bytes of a skewed mask whose bits are one with probability q, independently of each other:
a byte with k one bits has the weight (1-q)^(8-k) * q^k. Level L >= 2 is for q = 2^-(1 + L/2): two levels for each factor of 2, from 0.25 to 0.0221.
Sparser levels would repeat the last tree, because of the limit of 15 bits (--all shows it); nested masks, not lengths, save the rest. 2^(-1/2) is
taken as 181/256, so that every weight
is an exact rational (here: an exact integer, without the common denominator). The code lengths are those of an optimal prefix code of at most 15
bits, by package-merge (Larmore and Hirschberg, 1990). Symbols are sorted by ascending weight; in merges a symbol comes before a package of the same
weight. Symbols of equal weight are interchangeable, so only the counts matter. Lengths are assigned to symbols in the order (number of one bits,
value), shortest first.

Levels 0 and 1, for q around 0.42 and 0.36, are for the roots of ordinary planes, which are only slightly skewed: there an optimal tree saves little
and costs much time, because it has many nodes. They have few lengths, whose counts are multiples of 16, so that nearly all leaves are in flat nodes:
9 and 13 nodes instead of 43. --why shows their cost, compared with optimal trees.

Usage: frozen_trees.py [--c | --md | --all | --why]    the table as C or as Markdown; --all: 19 levels, as Markdown
"""
import math
import sys

MAX_LENGTH, LEVELS = 15, 10
FEW_NODES = ({7: 32, 8: 160, 9: 64}, {6: 16, 7: 32, 8: 64, 9: 112, 10: 32})     # levels 0 and 1


def weights(level):
    """Integer weights of a byte with k = 0..8 one bits, up to a common factor."""
    half_octaves = level
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
        if level < len(FEW_NODES):
            found = [length for length in sorted(FEW_NODES[level], reverse=True) for _ in range(FEW_NODES[level][length])]
        else:
            found = lengths(weights(level))
        assert sum(1 << (MAX_LENGTH - n) for n in found) == 1 << MAX_LENGTH
        assert found == sorted(found, reverse=True)
        rows.append([found.count(n) for n in range(1, MAX_LENGTH + 1)])
    return rows


def count_nodes(row, depth=0, x=0):
    """Nodes with bits in a tree of row[l - 1] leaves of length l: masks and flat nodes (section 6.2)."""
    starts, start = [], 0
    for length, count in enumerate(row, 1):
        for _ in range(count):
            starts.append((start, length))
            start += 1 << (MAX_LENGTH - length)
    leaves = [length for start, length in starts if x <= start < x + (1 << (MAX_LENGTH - depth))]
    if len(leaves) == 1:
        return 0
    if leaves[0] == leaves[-1] and 2 <= leaves[0] - depth <= 6:
        return 1
    return 1 + count_nodes(row, depth + 1, x) + count_nodes(row, depth + 1, x + (1 << (MAX_LENGTH - depth - 1)))


def cost(row, q):
    """Coded bits for each bit of a mask whose bits are one with probability q."""
    ascending = [length for length, count in enumerate(row, 1) for _ in range(count)]
    order = sorted(range(256), key=lambda v: (bin(v).count("1"), v))
    return sum(length * q ** bin(v).count("1") * (1 - q) ** (8 - bin(v).count("1")) for length, v in zip(ascending, order)) / 8


def why():
    for q in (0.46, 0.44, 0.42, 0.40, 0.38, 0.36, 0.34, 0.32, 0.30):
        scaled = round(q * 65536)
        best = lengths([(65536 - scaled) ** (8 - k) * scaled ** k for k in range(9)])
        rows = [[best.count(n) for n in range(1, MAX_LENGTH + 1)]] + table(3)
        entropy = -q * math.log2(q) - (1 - q) * math.log2(1 - q)
        print("q = %.2f, entropy %.4f; optimal: %.4f (%d nodes); levels 0, 1, 2: %s" % (q, entropy, cost(rows[0], q), count_nodes(rows[0]),
              ", ".join("%.4f (%d)" % (cost(row, q), count_nodes(row)) for row in rows[1:])))


if __name__ == "__main__":
    form = sys.argv[1] if len(sys.argv) > 1 else "--md"
    if form not in ("--c", "--md", "--all", "--why"):
        sys.exit(__doc__)
    if form == "--why":
        why()
        sys.exit()
    if form != "--c":
        print("| level | " + " | ".join(str(n) for n in range(1, MAX_LENGTH + 1)) + " |")
        print("|---" * (MAX_LENGTH + 1) + "|")
    for level, row in enumerate(table(19 if form == "--all" else LEVELS)):
        if form == "--c":
            print("    {" + ", ".join("%3d" % n for n in row) + "}, /* %2d */" % level)
        else:
            print("| %d | " % level + " | ".join(str(n) for n in row) + " |")
