#!/usr/bin/env python3
"""Puts the figures of the last benchmark into README.md and bench/README.md, and its first plot into bench/: readme.py

What stands between <!-- NAME --> and <!-- end --> is made anew from the results that bench/run left (RESULTS; default: build/results), the
same that REPORT.md there shows. Run it after `make bench`, read what stands around the figures, and commit."""
import json, os, re, shutil, sys

from report import put_summary
from results import ROOT, build, find, load

PEERS = (  # of results.SHOWN: name; one tensor; delta; checksums. What they can do is of their documentation and code
    ("LMC avx512", "**LMC**, AVX-512", "yes, or a slice", "yes, also in place", "always, per block"),
    ("LMC avx2", "**LMC**, AVX2", "yes, or a slice", "yes, also in place", "always, per block"),
    ("zipnn", "ZipNN 0.5.4", "no", "xor of whole files", "no"),
    ("OpenZL huffman", "OpenZL 0.3.0, huffman", "no", "no", "yes"),
    ("zstd -1, bytes", "zstd 1.5.4 -1, of the safetensors bytes", "no", "`--patch-from`", "by the command"),
    ("blosc2 bitshuffle, lz4", "blosc2 4.14.1, bitshuffle and lz4", "by block", "no", "no"))
FILES = (("bf16 weights", "step-001000/model.bf16.safetensors"), ("fp16 weights", "step-002000/model.f16.safetensors"),
         ("fp32 master weights", "step-001000/master.f32.safetensors"), ("fp32 Adam, first moment", "step-001000/exp_avg.f32.safetensors"),
         ("fp32 Adam, second moment", "step-001000/exp_avg_sq.f32.safetensors"), ("a vision network in uint8", "models/faceapi_ssd_mobilenetv1_model.u8.safetensors"))
TIERS = (("scalar", "scalar"), ("neon", "NEON"), ("avx2", "AVX2"), ("avx512", "AVX-512"))


def table(head, rows):
    lines = ["| %s |" % " | ".join(row) for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def percent(row):
    return "%.1f %%" % (100 * row["encoded"] / row["bytes"])


def stamp(part):
    with open(build(part + ".stamp"), encoding="utf-8") as file:
        return json.load(file)


def codec(data, tier):
    return (find(load("bench.json"), part="codec", data=data, tier=tier, level="default") or [None])[0]


def make_numbers():
    best, avx2 = (codec("N(0, 0.02) bf16", tier) for tier in ("avx512", "avx2"))
    if not best or not avx2:
        sys.exit("readme.py: the README wants figures of AVX-512 and AVX2, which were not measured")
    return ("* **%.1f GB/s** in and **%.1f GB/s** out on one AVX-512 core, checksums included; %.1f and %.1f GB/s with AVX2." %
            (best["encode_gb_s"], best["decode_gb_s"], avx2["encode_gb_s"], avx2["decode_gb_s"]))


def make_peers():
    rows = []
    for name, title, *features in PEERS:
        row, = find(load("peers.json"), data="N(0, 0.02) bf16", codec=name)
        rows.append([title, percent(row), "%.2f" % row["encode_gb_s"], "%.2f" % row["decode_gb_s"], *features])
    head = ["bf16 weights, one core", "size", "compress GB/s", "decompress GB/s", "reads one tensor", "delta against a base", "checksums"]
    return table(head, rows) + "\n\nThese took turns in one run, lmc.h %s, on %s." % (stamp("peers")["lmc.h"], stamp("peers")["machine"].partition(", L2")[0])


def make_files():
    with open(build("sizes.md"), encoding="utf-8") as file:
        sizes = dict((cells[1], cells[3:6]) for cells in (re.split(r" *\| *", line) for line in file if line.startswith("|")))
    rows = [[title, *(size.partition(" ")[0] for size in sizes[path])] for title, path in FILES]
    return table(["file", "lmc", "bzip2 -9", "zstd -19"], rows)


def make_speed():
    tiers = [(tier, title) for tier, title in TIERS if codec("N(0, 0.02) bf16", tier)]
    rows, copies = [], []
    for title, data in (("bf16", "N(0, 0.02) bf16"), ("fp16", "N(0, 0.02) fp16"), ("fp32", "N(0, 0.02) fp32"), ("fp8", "N(0, 1) fp8")):
        mine = [codec(data, tier) for tier, _ in tiers]
        copies.append(mine[0]["memcpy_gb_s"])
        rows.append([title, percent(mine[0]), *("%.2f / %.2f" % (row["encode_gb_s"], row["decode_gb_s"]) for row in mine)])
    text = table(["", "size", *(title for _, title in tiers)], rows)
    return text + "\n\nmemcpy: %.1f to %.1f GB/s in the same run, lmc.h %s." % (min(copies), max(copies), stamp("bench")["lmc.h"])


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
    fill("README.md", numbers=make_numbers, peers=make_peers, files=make_files, speed=make_speed)
    fill("bench/README.md", summary=make_summary)
    shutil.copy(build("ratio-speed.svg"), os.path.join(ROOT, "bench"))
