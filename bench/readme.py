#!/usr/bin/env python3
"""Puts the figures of the last benchmark into README.md and bench/README.md, and its first plot into bench/: readme.py

Text between <!-- NAME --> and <!-- end --> is replaced, from the results of bench/run (RESULTS; default: build/results), which REPORT.md there shows,
too. Run it after `make bench`, read the text around the figures, and commit."""
import json, os, re, shutil, subprocess, sys, tempfile

from report import put_summary
from results import ROOT, WEIGHTS, build, find, load

PEERS = (  # of results.SHOWN: name; one tensor; delta; checksums. Their features are from their documentation and code
    ("LMC avx512", "**LMC**, AVX-512", "yes", "yes", "yes"),
    ("LMC avx2", "**LMC**, AVX2", "yes", "yes", "yes"),
    ("zipnn", "ZipNN 0.5.4", "no", "xor", "no"),
    ("OpenZL huffman", "OpenZL 0.3.0", "no", "no", "yes"),
    ("zstd -1, bytes", "zstd 1.5.4 -1", "no", "yes", "yes"))
DELTAS = (("bf16 weights", ["model.bf16"]), ("fp32 master weights", ["master.f32"]), ("Adam, first moment, fp32", ["exp_avg.f32"]),
          ("Adam, second moment, fp32", ["exp_avg_sq.f32"]), ("all four (bf16 follows from fp32)", ["model.bf16", "master.f32", "exp_avg.f32", "exp_avg_sq.f32"]))


def table(head, rows):
    lines = ["| %s |" % " | ".join(row) for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def percent(row):
    return "%.1f %%" % (100 * row["encoded"] / row["bytes"])


def stamp(part):
    with open(build(part + ".stamp"), encoding="utf-8") as file:
        return json.load(file)


def peer(name):
    row, = find(load("peers.json"), data=WEIGHTS, codec=name)
    return row


def make_numbers():
    best, avx2 = peer("LMC avx512"), peer("LMC avx2")
    return ("* One AVX-512 core compresses **%.1f GB/s** and decompresses **%.1f GB/s**, in memory, checksums included; with AVX2, %.1f and %.1f." %
            (best["encode_gb_s"], best["decode_gb_s"], avx2["encode_gb_s"], avx2["decode_gb_s"]))


def make_peers():
    rows = []
    for name, title, *features in PEERS:
        row = peer(name)
        rows.append([title, percent(row), "%.2f" % row["encode_gb_s"], "%.2f" % row["decode_gb_s"], *features])
    head = ["bf16 weights", "size", "in, GB/s", "out, GB/s", "reads one tensor", "deltas", "checksums"]
    return table(head, rows) + "\n\n`examples/data` (repeated to %d MB) in memory, on one core, codecs taking turns: lmc.h %s, %s." % (
        peer(PEERS[0][0])["bytes"] // 1000000, stamp("peers")["lmc.h"], stamp("peers")["machine"].partition(", L2")[0])


def compressed(new, *base):
    """The size of the command's file."""
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "x.lmc")
        subprocess.run([os.path.join(ROOT, "build/lmc"), "-q", "-o", out, *base, new], check=True)
        return os.path.getsize(out)


def make_deltas():
    """Each of DELTAS in its own directory, by steps: alone, and against step 1000."""
    series = os.path.join(os.environ.get("LMC_DATA", os.path.join(ROOT, "../shared/data")), "series")
    rows = []
    for title, kinds in DELTAS:
        with tempfile.TemporaryDirectory() as directory:
            def gather(step):
                path = os.path.join(directory, str(step))
                os.mkdir(path)
                return path, sum(os.path.getsize(shutil.copy(os.path.join(series, "step-%06d" % step, kind + ".safetensors"), path)) for kind in kinds)
            (base, _), (next_one, size), (tenth, _) = map(gather, (1000, 1001, 1010))
            sizes = compressed(next_one), compressed(next_one, "--base", base), compressed(tenth, "--base", base)
        rows.append([title, *("%.1f %%" % (100 * x / size) for x in sizes)])
    return table(["", "alone", "delta of one step", "of ten steps"], rows)


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
    fill("README.md", numbers=make_numbers, peers=make_peers, deltas=make_deltas)
    fill("bench/README.md", summary=make_summary)
    shutil.copy(build("ratio-speed.svg"), os.path.join(ROOT, "bench"))
