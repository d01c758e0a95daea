#!/usr/bin/env python3
"""Medians of the output of bench/studies/large, as a table: large_table.py LIST...

A column for each LIST, named by its file name; a row for each command and number of threads: seconds and, in brackets, the speedup over cp in that
list. With --sync: until all is on the disk; with --system: system time until then. With --least: not medians."""
import argparse, os, statistics

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("lists", nargs="+")
parser.add_argument("--sync", dest="column", action="store_const", const=3, default=0)
parser.add_argument("--system", dest="column", action="store_const", const=2)
parser.add_argument("--least", dest="choose", action="store_const", const=min, default=statistics.median)
arguments = parser.parse_args()
columns, rows = {}, {}
for path in arguments.lists:
    taken = columns.setdefault(os.path.basename(path), {})
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, threads, size, *seconds = line.rstrip("\n").split("\t")
            row = name if name == "cp" else f"{name}, {threads} thread{'s' * (threads != '1')}"
            rows.setdefault(row, None if name == "cp" or name.endswith(" -d") else int(size))
            taken.setdefault(row, []).append(float(seconds[arguments.column]))
print("| |", " | ".join(columns), "|")
print("|---|" + "---:|" * len(columns))
for row in rows:
    cells = []
    for taken in columns.values():
        if row not in taken:
            cells.append("")
            continue
        time, cp = arguments.choose(taken[row]), arguments.choose(taken["cp"])
        cells.append(f"{time:.2f}" + (f" ({cp / time:.2f})" if row != "cp" else ""))
    print("|", row, "|", " | ".join(cells), "|")
print("\nRounds:", ", ".join(f"{name} {len(taken['cp'])}" for name, taken in columns.items()))
