#!/usr/bin/env python3
"""Medians of what bench/large has printed, as a table: large_table.py LIST...

A column for each LIST, named by its file name; a row for each command and number of threads: seconds and, in brackets, how many times
as fast as cp in that list. With --sync: until all is on the disk."""
import argparse, os, statistics

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("lists", nargs="+")
parser.add_argument("--sync", action="store_true")
arguments = parser.parse_args()
columns, rows = {}, {}
for path in arguments.lists:
    taken = columns.setdefault(os.path.basename(path), {})
    with open(path, encoding="utf-8") as file:
        for line in file:
            name, threads, size, *seconds = line.rstrip("\n").split("\t")
            row = name if name == "cp" else f"{name}, {threads} thread{'s' * (threads != '1')}"
            rows.setdefault(row, None if name == "cp" or name.endswith(" -d") else int(size))
            taken.setdefault(row, []).append(float(seconds[3 if arguments.sync else 0]))
print("| |", " | ".join(columns), "|")
print("|---|" + "---:|" * len(columns))
for row in rows:
    cells = []
    for taken in columns.values():
        if row not in taken:
            cells.append("")
            continue
        median, cp = statistics.median(taken[row]), statistics.median(taken["cp"])
        cells.append(f"{median:.2f}" + (f" ({cp / median:.2f})" if row != "cp" else ""))
    print("|", row, "|", " | ".join(cells), "|")
print("\nRounds:", ", ".join(f"{name} {len(taken['cp'])}" for name, taken in columns.items()))
