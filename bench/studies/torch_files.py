#!/usr/bin/env python3
"""The speed of `lmc` with files of torch.save, compared with safetensors files of the same tensors.

    bench/studies/torch_files.py make DIR [COLUMNS [LAYERS]]   with PyTorch and safetensors: opt (fp32 moments) and bf (bf16 weights), as .pt and .safetensors
    bench/studies/torch_files.py measure DIR [ROUNDS]          in turns, on one thread and on two; DIR in memory (tmpfs)
    bench/studies/torch_files.py sizes DIR WAY...              where the bytes are, in files that tests/command/make_checkpoints.py DIR WAY... has made

Prints for each the median of the elapsed seconds, and of the CPU's; and the median of the ratios of neighbours.
Environment: LMC (default: build/lmc). SPDX-License-Identifier: MIT
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LMC = os.environ.get("LMC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "lmc"))


def make(folder, columns=1024, layers=5):
    import safetensors.torch
    import torch
    torch.manual_seed(1)
    d = columns
    shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "up": (4 * d, d), "down": (d, 4 * d), "norm1": (d,), "norm2": (d,)}
    weights = {"layers.%d.%s.weight" % (k, n): torch.randn(shape) * 0.02 * (1 + k % 3) for k in range(layers) for n, shape in shapes.items()}
    moments = {n + s: w * w if s == ".exp_avg_sq" else w * 0.1 * torch.rand_like(w) for n, w in weights.items() for s in (".exp_avg", ".exp_avg_sq")}
    for name, tensors in (("opt", moments), ("bf", {n: w.to(torch.bfloat16) for n, w in weights.items()})):
        torch.save(tensors, os.path.join(folder, name + ".pt"))
        safetensors.torch.save_file(tensors, os.path.join(folder, name + ".safetensors"))


def run(*args):
    """Elapsed seconds, and CPU seconds: the sum of user and system time, because only the sum is exact."""
    def used():
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime
    before, start = used(), time.perf_counter()
    subprocess.run([LMC, "-q", "-f", *args], check=True)
    return time.perf_counter() - start, used() - before


def measure(folder, rounds=9):
    print("| file | threads | | .pt | .safetensors | ratio | .pt, CPU | .safetensors, CPU | ratio |\n|---|---|---|---|---|---|---|---|---|")
    for name in ("opt", "bf"):
        n = rounds if name == "opt" else 2 * rounds
        files = [os.path.join(folder, name + suffix) for suffix in (".pt", ".safetensors")]
        for threads in (1, 2):
            for what, args in (("compress", lambda f: ("-o", f + ".lmc", f)), ("restore", lambda f: ("-d", "-o", f + ".restored", f + ".lmc"))):
                times = [[run("-T%d" % threads, *args(f)) for f in files] for _ in range(n + 1)][1:]
                row = []
                for k in (0, 1):
                    row += ["%.3f s" % statistics.median(t[i][k] for t in times) for i in (0, 1)] + ["%.3f" % statistics.median(t[0][k] / t[1][k] for t in times)]
                print("| %s | %d | %s | %s |" % (name, threads, what, " | ".join(row)), flush=True)
        for f in files:
            for suffix in (".lmc", ".restored"):
                os.unlink(f + suffix)


def weigh(source, base):
    """Bytes: total, .metadata, tensors, between tensors, the rest (sections, index); then the number of tensors."""
    with tempfile.TemporaryDirectory() as place:
        out, bases = os.path.join(place, "x.lmc"), ["--base", base] if base else []
        run(*bases, "-o", out, source)
        listing = json.loads(subprocess.run([LMC, "-l", "--json", *bases, out], check=True, capture_output=True).stdout)
        total, files = os.path.getsize(out), (listing[0] if isinstance(listing, list) else listing)["files"]
    metadata = sum(f["packed_size"] for f in files if f["path"].endswith(".metadata"))
    tensors = [t["packed_size"] for f in files for t in f["tensors"] if not t["name"].startswith("@")]
    all_files = sum(f["packed_size"] for f in files)
    return total, metadata, sum(tensors), all_files - metadata - sum(tensors), total - all_files, len(tensors)


def sizes(folder, *ways):
    print("| way | form | tensors | bytes | .metadata | of tensors | between them | rest | as safetensors | |\n|---|---|---|---|---|---|---|---|---|---|")
    for way in ways:
        path = os.path.join(folder, way)
        for form in ("full", "delta"):
            total, metadata, tensors, between, rest, n = weigh(path + "/step-1", path + "/step-0" if form == "delta" else None)
            safe = [path + "-safetensors/step-%d.safetensors" % k for k in (1, 0)]
            other = weigh(safe[0], safe[1] if form == "delta" else None)[0]
            print("| %s | %s | %d | %d | %d | %d | %d | %d | %d | %+.2f %% |" % (way, form, n, total, metadata, tensors, between, rest, other, 100 * total / other - 100))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "measure", "sizes"):
        sys.exit(__doc__)
    if sys.argv[1] == "sizes":
        sys.exit(sizes(*sys.argv[2:]))
    {"make": make, "measure": measure}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
