#!/usr/bin/env python3
"""Does LMC reach its targets of speed? From the measurements of build/speed.

  bench/speed.py measure [OPTIONS]   runs build/speed with them; its results go to build/results/speed.json
  bench/speed.py page                prints a table of that file, with the targets

SPDX-License-Identifier: MIT"""
import sys

from results import find, measure, measured

PLANES = ["plane, %d %% one symbol" % share for share in (78, 95, 99)]
# data, tier, level, x memcpy of compressing and decompressing, x huff0 of both
TARGETS = [("N(0, 0.02) bf16", "avx2", "default", 0.32, 0.68, 2.1, 2.6), ("N(0, 0.02) bf16", "avx2", "fast", 0.40, 0.85, None, None),
           ("N(0, 0.02) fp32", "avx2", "default", 0.50, 0.95, 1.8, None), ("N(0, 0.02) fp16", "avx2", "default", 0.20, 0.50, 1.3, None),
           ("N(0, 1) fp8", "avx2", "default", 0.13, 0.25, None, None)]
TARGETS += [(plane, "avx2", "default", 0.35, 0.70, None, None) for plane in PLANES]
TARGETS += [("N(0, 0.02) bf16", "avx512", "default", 0.70, 1.10, None, None), ("N(0, 0.02) fp16", "avx512", "default", 0.45, 0.85, None, None)]
TARGETS += [(plane, "avx512", "default", 0.85, 1.3, None, None) for plane in PLANES]
for tier, targets in (("avx512", ((0.33, 0.45), (0.45, 0.60), (0.60, 0.90))), ("avx2", ((0.16, 0.28), (0.20, 0.32), (0.35, 0.50)))):
    TARGETS += [("bf16 " + pair, tier, "default") + both + (None, None) for pair, both in zip(("1000-1001", "1700-1701", "1950-1951"), targets)]
TARGETS += [("master " + pair, "avx512", "default", 0.35, 0.50, None, None) for pair in ("1000-1001", "1950-1951")]
CHANGED = {"1000-1001": "58 % changed", "1700-1701": "16 % changed", "1950-1951": "1.6 % changed"}


def title(data):
    kind, _, pair = data.partition(" ")
    if pair not in CHANGED:
        return data
    return "delta of fp32 masters, " + pair if kind == "master" else "delta of bf16, " + CHANGED[pair]


def judge(measured, target):
    return "%.3f (%.2f) %s" % (measured, target, "met" if measured >= target else "**missed**")


def table(rows):
    out, n_met, n_all = ["| | tier, level | compress, x memcpy (target) | decompress | compress, x huff0 | decompress |", "|---|---|---|---|---|---|"], 0, 0
    for data, tier, level, compress, decompress, *peer in TARGETS:
        row, = find(rows, data=data, tier=tier, level=level)
        huff0 = find(rows, data=data, tier="huff0")
        cells = [judge(row["encode"], compress), judge(row["decode"], decompress)]
        cells += [judge(row[key] / huff0[0][key], target) if target else "" for key, target in zip(("encode", "decode"), peer)]
        out.append("| %s | %s, %s | %s |" % (title(data), tier, level, " | ".join(cells)))
        n_met += sum(cell.endswith(" met") for cell in cells)
        n_all += sum(cell != "" for cell in cells)
    out += ["", "`max`, decompressing, by the default's speed (target 0.9):", "", "| | avx2 | avx512 |", "|---|---|---|"]
    for data in dict.fromkeys(row["data"] for row in rows):
        cells = []
        for tier in ("avx2", "avx512"):
            by, = find(rows, data=data, tier=tier, level="default")
            ratio = find(rows, data=data, tier=tier, level="max")[0]["decode"] / by["decode"]
            cells.append(judge(ratio, 0.9).replace(" (0.90)", ""))
            n_met += ratio >= 0.9
            n_all += 1
        out.append("| %s | %s |" % (title(data), " | ".join(cells)))
    return "\n".join(out) + "\n\n%d of %d met.\n" % (n_met, n_all)


if sys.argv[1:2] == ["measure"]:
    measure("speed", sys.argv[2:])
elif sys.argv[1:] == ["page"]:
    print(table(measured("speed")), end="")
else:
    sys.exit(__doc__)
