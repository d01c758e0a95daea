#!/usr/bin/env python3
"""Puts the figures of the last benchmark into README.md and bench/README.md, and its first plot into bench/: readme.py

Text between <!-- NAME --> and <!-- end --> is replaced, from the results of bench/run (RESULTS; default: build/results), which REPORT.md there shows,
too. Run it after `make bench`, read the text around the figures, and commit."""
import json, os, re, shutil, subprocess, sys

from report import put_summary
from results import ROOT, WEIGHTS, build, find, load

PEERS = (  # of results.SHOWN: name; one tensor; delta; checksums. Their features are from their documentation and code
    ("LMC avx512", "**LMC**, AVX-512", "yes", "yes", "yes"),
    ("LMC avx2", "**LMC**, AVX2", "yes", "yes", "yes"),
    ("zipnn", "ZipNN 0.5.4", "no", "xor", "no"),
    ("OpenZL huffman", "OpenZL 0.3.0", "no", "no", "yes"),
    ("zstd -1, bytes", "zstd 1.5.4 -1", "no", "yes", "yes"))


def table(head, rows):
    lines = ["| %s |" % " | ".join(row) for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def percent(row):
    return "%.1f %%" % (100 * row["encoded"] / row["bytes"])


def stamp(part):
    with open(build(part + ".stamp"), encoding="utf-8") as file:
        return json.load(file)


def peer(name, data=WEIGHTS):
    """Its row, or None where it does not know the dtype."""
    return next(iter(find(load("peers.json"), data=data, codec=name)), None)


def cells(row):
    return [percent(row), "%.1f / %.1f" % (row["encode_gb_s"], row["decode_gb_s"])] if row else ["", ""]


def make_peers():
    rows = [[title, *cells(peer(name)), *cells(peer(name, "N(0, 1) fp8")), *features] for name, title, *features in PEERS]
    head = ["", "bf16", "in / out, GB/s", "fp8", "in / out, GB/s", "one tensor", "deltas", "checksums"]
    return table(head, rows) + "\n\nbf16: `examples/data`, repeated to %d MB; fp8: Gaussian. lmc.h %s, %s; codecs took turns." % (
        peer(PEERS[0][0])["bytes"] // 1000000, stamp("peers")["lmc.h"], stamp("peers")["machine"].partition(", L2")[0])


def real(*arguments):
    """A table of bench/real.py; this Python must have what it needs."""
    path = os.path.join(ROOT, "build") + os.pathsep + os.environ["PATH"]
    command = [sys.executable, os.path.join(ROOT, "bench/real.py"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=dict(os.environ, PATH=path)).stdout.strip()


def make_models():
    return real("models")


def make_steps():
    return real("steps", os.path.join(os.environ.get("LMC_DATA", os.path.join(ROOT, "../shared/data")), "series"))


def make_summary():
    of, lines = stamp("bench"), []
    put_summary(lines.append)
    return "lmc.h %s, commit %s, %s; %s; %s; %s.\n\n%s" % (*(of[key] for key in ("lmc.h", "commit", "ended", "machine", "compiler", "settings")), "\n".join(lines))


def fill(page, **places):
    path = os.path.join(ROOT, page)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, make in places.items():
        text, n = re.subn(r"(<!-- %s -->\n).*?(\n<!-- end -->)" % name, lambda found: found[1] + make() + found[2], text, flags=re.S)
        if n != 1:
            sys.exit("readme.py: %s has no place for %s" % (page, name))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    fill("README.md", models=make_models, steps=make_steps, peers=make_peers)
    fill("bench/README.md", summary=make_summary)
    shutil.copy(build("ratio-speed.svg"), os.path.join(ROOT, "bench"))
