#!/usr/bin/env python3
"""The curve on which the encoder's levels are points, from the measurements of build/levels.

  bench/levels.py measure [OPTIONS]   runs build/levels with them; its results go to build/results/levels.json
  bench/levels.py page                prints a table of that file, and draws levels.svg beside it

SPDX-License-Identifier: MIT"""
import os, sys

from results import RESULTS, find, measure, measured

LEVELS = ("fast", "default", "max", "archive")


def size(row):
    """In % of the input, for deltas, too."""
    return 100 * row["encoded"] / row["bytes"]


def table(rows):
    out = ["| data | tier | " + " | ".join("%s: size, %%" % level + " | compress | decompress" for level in LEVELS) + " |",
           "|---|---|" + "---|---|---|" * len(LEVELS)]
    for data in dict.fromkeys(row["data"] for row in rows):
        for tier in dict.fromkeys(row["tier"] for row in find(rows, data=data)):
            cells = []
            for level in LEVELS:
                row = find(rows, data=data, tier=tier, level=level)[0]
                cells.append("%.3f | %.3f | %.3f" % (size(row), row["encode"], row["decode"]))
            out.append("| %s | %s | %s |" % (data, tier, " | ".join(cells)))
    return "\n".join(out) + "\n"


def draw(rows, path):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "lmc", "svg.fonttype": "none", "font.family": "sans-serif"})
    names = list(dict.fromkeys(row["data"] for row in rows))
    tier = "avx2" if find(rows, tier="avx2") else rows[0]["tier"]
    columns = 4
    figure, axes = plt.subplots(-(-len(names) // columns), columns, figsize=(13, 3.1 * -(-len(names) // columns)), squeeze=False)
    for axis in axes.flat[len(names):]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names):
        here = find(rows, data=name, tier=tier)
        default = find(here, level="default")[0]
        scale = 100 / default["encoded"] if default["is_delta"] else 100 / default["bytes"]
        for key, colour in (("encode", "tab:blue"), ("decode", "tab:red")):
            curve = [row for row in here if row["level"] == ""]
            axis.plot([row[key] for row in curve], [scale * (row["encoded"] - default["encoded"]) for row in curve], ".-", color=colour, linewidth=0.8, markersize=3)
            for level, marker in zip(LEVELS, ">osD"):
                row = find(here, level=level)[0]
                axis.plot(row[key], scale * (row["encoded"] - default["encoded"]), marker, color=colour, markersize=6)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("x memcpy", fontsize=8)
        axis.set_ylabel("size against the default,\n%% of the %s" % ("delta" if default["is_delta"] else "input"), fontsize=8)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
    handles = [plt.Line2D([], [], color="grey", marker=marker, linestyle="", label=level) for level, marker in zip(LEVELS, ">osD")]
    handles += [plt.Line2D([], [], color="tab:blue", label="compress"), plt.Line2D([], [], color="tab:red", label="decompress")]
    figure.legend(handles=handles, loc="lower center", ncol=6, fontsize=9)
    figure.suptitle("Levels, and the worth of a bit from 1 to 90 cycles (%s)" % tier, fontsize=11)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def page():
    rows = measured("levels")
    print(table(rows), end="")
    draw(rows, os.path.join(RESULTS, "levels.svg"))


if sys.argv[1:2] == ["measure"]:
    measure("levels", sys.argv[2:])
elif sys.argv[1:] == ["page"]:
    page()
else:
    sys.exit(__doc__)
