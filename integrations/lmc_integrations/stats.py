"""Pictures of how snapshots compress and change, drawn by matplotlib from the output of `lmc stats --json`.

    python -m lmc_integrations.stats PREFIX SNAPSHOT...              # runs lmc stats --json SNAPSHOT...
    lmc stats --json SNAPSHOT... | python -m lmc_integrations.stats PREFIX

PREFIX-compressibility.svg: the entropy of each byte plane, and the size in LMC. PREFIX-density.svg, for two or more
snapshots: the share of changed elements, by tensor and snapshot.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from ._core import command, printable

_COLORS = ("#2a78d6", "#1baf7a", "#eda100", "#4a3aa7", "#e34948", "#008300", "#e87ba4", "#8a8984")  # also different for colour-blind people
_LONGEST_NAME = 72
_LONGEST_LABEL = 28


def labels(names: list[str]) -> list[str]:
    """Short names: without the directories that all have, and without a common end that begins with '/' or '.'."""
    start = os.path.commonprefix(names)
    start = start[: start.rfind("/") + 1]
    end = os.path.commonprefix([name[len(start) :][::-1] for name in names])[::-1] if len(names) > 1 else ""
    cut = min((at for at in (end.find("/"), end.find(".")) if at >= 0), default=len(end))
    return [name[len(start) : len(name) - len(end) + cut] or name for name in names]


def _last_characters(text: str, n: int) -> str:
    text = printable(text)
    return text if len(text) <= n else "…" + text[1 - n :]


def _percent(part: float, whole: float) -> float:
    return 100 * float(part) / float(whole) if whole else math.nan


@dataclass
class Compressibility:
    """For each snapshot, in % of its size."""

    planes: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)  # dtype, plane, number of planes
    alone: list[float] = field(default_factory=list)
    delta: list[float] = field(default_factory=list)  # NaN for the first


def compressibility(snapshots: list[dict[str, Any]]) -> Compressibility:
    found = Compressibility()
    for i, s in enumerate(snapshots):
        found.alone.append(_percent(s["direct_size"], s["size"]))
        found.delta.append(_percent(s["delta_size"], s["size"]) if i else math.nan)
        for d in s["dtypes"]:
            entropies = d["plane_entropies"]
            for p, bits in enumerate(entropies):
                shares = found.planes.setdefault((d["dtype"], p, len(entropies)), [0.0] * len(snapshots))
                shares[i] = _percent(bits * d["elements"] / 8, s["size"]) if s["size"] else 0.0
    return found


@dataclass
class Line:
    """A tensor, or a file without tensors, in all snapshots that have it."""

    path: str
    name: str
    last: int  # number of the last snapshot that has it
    changed: dict[int, float] = field(default_factory=dict)  # number of the snapshot -> %


def density(snapshots: list[dict[str, Any]]) -> list[Line]:
    """The lines that were compared, sorted by name; digits are sorted as numbers."""
    lines: list[Line] = []
    known: dict[tuple[str, str], Line] = {}  # the last line of each path and name
    before: dict[str, list[tuple[str, Line]]] = {}  # by name: path and line in the previous snapshot
    for i, s in enumerate(snapshots):
        items = [t for t in s["tensors"] + s["files"] if t.get("status") != "removed"]
        here = {(t["path"], t["name"]) for t in items}
        now: dict[str, list[tuple[str, Line]]] = {}
        for t in items:
            path, name, compared = str(t["path"]), str(t["name"]), t.get("compared_elements", 0)
            line = None
            if compared:  # with the tensor of the same path, else with one that has moved
                old = before.get(name, [])
                line = next((x for at, x in old if at == path), None)
                line = line or next((x for at, x in old if (at, name) not in here and x.last < i), None)
            if line is None:  # it is new, or has come back
                line = known.get((path, name))
            if line is None or line.last == i:
                line = Line(path, name, i)
                lines.append(line)
            line.last = i
            known[path, name] = line
            now.setdefault(name, []).append((path, line))
            if compared:
                line.changed[i] = _percent(t["changed_elements"], compared)
        before = now

    def order(line: Line) -> list[Any]:
        parts = [re.split("([0-9]+)", text) for text in (line.name, line.path)]
        return [[int(x) if k % 2 else x for k, x in enumerate(p)] for p in parts]

    return sorted((line for line in lines if line.changed), key=order)


def _name_line(lines: list[Line], i: int) -> str:
    """ "NAME in PATH" if several lines have that name."""
    line = lines[i]
    is_alone = sum(x.name == line.name for x in lines[max(i - 1, 0) : i + 2]) == 1
    name = line.name or "(all)"
    return _last_characters(name if is_alone or not line.path else f"{name} in {line.path}", _LONGEST_NAME)


def _figure(width: float, height: float) -> Any:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("lmc_integrations.stats draws with matplotlib, which is not installed: pip install matplotlib") from None
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lmc", "text.parse_math": False, "font.size": 9})
    return Figure(figsize=(width, height), layout="constrained")


def _label_snapshots(axes: Any, names: list[str], first: int) -> None:
    at = list(range(first, len(names), len(names) // 50 + 1))
    axes.set_xticks(at, [_last_characters(names[i], _LONGEST_LABEL) for i in at], rotation=45, ha="right", rotation_mode="anchor")
    axes.set_xlim(first - 0.5, len(names) - 0.5)


def draw_compressibility(found: Compressibility, names: list[str]) -> Any:
    figure = _figure(min(max(0.3 * len(names), 4), 14) + 3, 5)
    axes = figure.subplots()
    at, floor = range(len(names)), [0.0] * len(names)
    dtypes = list(dict.fromkeys(dtype for dtype, *_ in found.planes))
    for (dtype, plane, n), shares in found.planes.items():
        text = dtype if n == 1 else f"{dtype} plane {plane}"
        color = _COLORS[min(dtypes.index(dtype), len(_COLORS) - 1)]
        axes.bar(at, shares, 0.7, floor, color=color, alpha=1 - 0.7 * (n - 1 - plane) / n, label=printable(text))
        floor = [a + b for a, b in zip(floor, shares, strict=True)]
    axes.plot(at, found.alone, "_", color="black", markersize=10, markeredgewidth=2, label="coded alone")
    if len(names) > 1:
        axes.plot(at, found.delta, "o-", color="#eb6834", markersize=4, label="coded as a delta")
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of the input")
    axes.grid(axis="y", alpha=0.4)
    axes.set_axisbelow(True)
    axes.set_title("Compressibility: entropy of the byte planes, and what LMC takes", loc="left")
    handles, said = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], said[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
    _label_snapshots(axes, names, 0)
    return figure


def draw_density(lines: list[Line], names: list[str]) -> Any:
    figure = _figure(min(max(0.3 * len(names), 4), 14) + 4, 0.16 * len(lines) + 2)
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    axes = figure.subplots()
    shares = [[max(line.changed.get(i, math.nan), 1e-9) for i in range(1, len(names))] for line in lines]  # max(): 0 has no logarithm
    if lines:
        mesh = axes.pcolormesh(
            [i + 0.5 for i in range(len(names))],
            [k - 0.5 for k in range(len(lines) + 1)],
            shares,
            norm=LogNorm(0.01, 100),
            cmap=LinearSegmentedColormap.from_list("", ["#cfe1f7", "#2a78d6", "#0b2f5c"]).with_extremes(under="#d9d8d2"),
        )
        axes.set_ylim(len(lines) - 0.5, -0.5)
        figure.colorbar(mesh, label="%, grey: below 0.01 %", extend="min", ticks=[0.01, 0.1, 1, 10, 100], format="%g")
    axes.set_yticks(range(len(lines)), [_name_line(lines, i) for i in range(len(lines))])
    axes.set_title("Elements that differ from the snapshot before", loc="left")
    _label_snapshots(axes, names, 1)
    return figure


def _save(figure: Any, path: str, force: bool) -> None:
    picture = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the font here may lack letters of names; the viewer's font has them
        figure.savefig(picture, format="svg", metadata={"Date": None})
    with open(path, "wb" if force else "xb") as f:
        f.write(picture.getvalue())


def draw(text: str | bytes, prefix: str, force: bool = False) -> list[str]:
    """Draws pictures from the output of `lmc stats --json`. Returns their paths."""
    try:
        snapshots = json.loads(text)["snapshots"]
        names = labels([s["snapshot"] for s in snapshots])
        bars, lines = compressibility(snapshots), density(snapshots)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise SystemExit("lmc_integrations.stats: that is not what lmc stats --json prints") from None
    if not names:
        raise SystemExit("lmc_integrations.stats: there are no snapshots")
    paths = [f"{prefix}-compressibility.svg", f"{prefix}-density.svg"][: len(names)]
    for path in paths:
        if not force and os.path.lexists(path):
            raise SystemExit(f"{printable(path)}: exists already; use -f to overwrite it")
    try:
        _save(draw_compressibility(bars, names), paths[0], force)
        if len(names) > 1:
            _save(draw_density(lines, names), paths[1], force)
    except OSError as error:
        raise SystemExit(f"lmc_integrations.stats: {printable(error)}") from None
    return paths


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lmc_integrations.stats", description="Draws PREFIX-compressibility.svg and PREFIX-density.svg, with matplotlib."
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite them")
    parser.add_argument("prefix", metavar="PREFIX", help="what the names of the pictures begin with")
    parser.add_argument(
        "snapshots", metavar="SNAPSHOT", nargs=argparse.REMAINDER,
        help="what lmc stats takes: snapshots and options; none: what lmc stats --json prints is read from standard input"
    )
    args = parser.parse_args(arguments)
    if args.snapshots:
        run = subprocess.run([command(), "stats", "--json", *args.snapshots], stdout=subprocess.PIPE)
        if run.returncode:
            return run.returncode
        text = run.stdout
    else:
        if sys.stdin.isatty():
            parser.error("give snapshots, or what lmc stats --json prints on standard input")
        text = sys.stdin.buffer.read()
    draw(text, args.prefix, args.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
