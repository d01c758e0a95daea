#!/usr/bin/env python3
"""Rates and memory of each phase of weight sync, and what they make of a larger model: docs/weight-sync.md, "1 TB on paper".

    bench/studies/weight_sync.py [--size MB] [--tensor MB] [--changed SHARE] [--runs N] [--dir DIRECTORY] [--model GB] [--cores N]

Tensors of bf16, N(0, 0.02), of which a share goes up or down by one unit in the last place, are published from memory and received by a host that
has the version before. One thread each; seconds are CPU time, medians of the runs, so other programs of the machine count little. --dir (default:
/dev/shm) should be in memory: the time of disks and networks comes on top. "Memory" is what a process needed at most, beyond what it had before.
It needs lmc_integrations, torch, safetensors. SPDX-License-Identifier: MIT
"""
import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
import types

import numpy as np
import torch
from lmc_integrations import _sync_report, weight_sync
from safetensors.torch import save_file


def make(size, tensor, share):
    rng = np.random.default_rng(1)
    old = {f"layers.{i}.weight": rng.normal(0, 0.02, tensor // 2).astype(np.float32) for i in range(size // tensor)}
    old = {name: (x.view(np.uint32) >> 16).astype(np.uint16).reshape(-1, 1024) for name, x in old.items()}
    new = {name: x + (rng.random(x.shape, np.float32) < share) * rng.choice(np.array([1, 65535], np.uint16), x.shape) for name, x in old.items()}
    return [{name: torch.from_numpy(x.astype(np.uint16).view(np.int16)).view(torch.bfloat16) for name, x in step.items()} for step in (old, new)]


def run_apart(work):
    """(what work() returns, the bytes of memory that it needed), in a process of its own."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = work().metrics
        found["memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        os.write(write_end, repr(found).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as f:
        text = f.read()
    os.waitpid(child, 0)
    return eval(text)  # of our own process


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, default in (("size", int, 1024), ("tensor", int, 32), ("changed", float, 0.01), ("runs", int, 3), ("model", float, 1000), ("cores", int, 64)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--dir", default="/dev/shm")
    args = parser.parse_args()
    _sync_report.time = types.SimpleNamespace(perf_counter=time.thread_time)  # phases in CPU time
    old, new = make(args.size << 20, args.tensor << 20, args.changed)
    with tempfile.TemporaryDirectory(dir=args.dir) as d:
        os.mkdir(f"{d}/base")
        save_file(old, f"{d}/base/model.safetensors")
        first = {name: t if i else t * 1 for i, (name, t) in enumerate(old.items())}
        weight_sync.publish(first, f"{d}/sync", version=1, base=f"{d}/base")
        weight_sync.receive(f"{d}/sync", f"{d}/first", base=f"{d}/base")
        found = {"publish": [], "receive": []}
        for _ in range(args.runs):
            shutil.rmtree(f"{d}/sync/weight_v000002", ignore_errors=True)
            shutil.rmtree(f"{d}/local", ignore_errors=True)
            shutil.copytree(f"{d}/first", f"{d}/local", copy_function=shutil.copy2)
            found["publish"].append(run_apart(lambda: weight_sync.publish(new, f"{d}/sync", version=2, base=first, threads=1)))
            found["receive"].append(run_apart(lambda: weight_sync.receive(f"{d}/sync", f"{d}/local", threads=1)))
    said = found["publish"][0]
    packed = said["bytes_published"] / said["bytes"]
    print(f"{said['bytes'] / 1e6:.0f} MB in tensors of {args.tensor} MiB, {said['share_changed']:.2%} of the elements changed, published: {packed:.3%}")
    print(f"| | phase | GB/s of one core | {args.model:g} GB: core seconds | with {args.cores} cores |\n|---|---|---|---|---|")
    for verb, runs in found.items():
        for phase in (x for x in runs[0]["seconds"] if x != "total"):
            rate = said["bytes"] / 1e9 / max(1e-9, statistics.median(x["seconds"][phase] for x in runs))
            print(f"| {verb} | {phase} | {rate:.2f} | {args.model / rate:.0f} | {args.model / rate / args.cores:.1f} |")
        memory = max(x["memory"] for x in runs)
        print(f"| {verb} | all | {said['bytes'] / 1e9 / statistics.median(sum(s for p, s in x['seconds'].items() if p != 'total') for x in runs):.2f} | "
              f"memory: {memory / 2**20:.0f} MiB | {memory / 2**20 / args.tensor:.1f} tensors |")
    print(f"{args.model:g} GB: {args.model * packed:.1f} GB are published")


if __name__ == "__main__":
    main()
