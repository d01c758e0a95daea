#!/usr/bin/env python3
"""Checks the layers of src/: each file includes only files of lower layers, or earlier files of its
own layer, and compiles alone. The order within a layer is the order of the files in src/lmc.h.in.
The files of src/lmc_salvage.h.in, lmc_extra.h.in and lmc_cuda.h.in come after all these, layer by
layer.

  tools/check_layers.py [COMPILER]      default: cc
"""
import concurrent.futures
import os
import re
import subprocess
import sys

SRC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
# "": the public interface
LAYERS = ["", "base", "kernels", "codec", "quantize", "tensor", "snapshot", "gpu"]
INCLUDE = re.compile(r'^#include "(.+)"$', re.M)
BEHIND = ["lmc_salvage.h.in", "lmc_extra.h.in", "lmc_cuda.h.in"]  # lmc.h
OBJECTS = "objects"  # compiled by a developer's build (make dev), not a part of lmc.h


def read(name):
    with open(os.path.join(SRC, name), encoding="ascii") as f:
        return f.read()


def named(frame):
    return [name for name in INCLUDE.findall(read(frame)) if name != "lmc.h"]


def find_conditions():
    """For each file: the lines #if... of its frame that it stands in."""
    conditions = {}
    for frame in ["lmc.h.in"] + BEHIND:
        # these are refused where LMC_NO_SNAPSHOT is defined
        refused = frame in ("lmc_salvage.h.in", "lmc_cuda.h.in")
        stack = ["#ifndef LMC_NO_SNAPSHOT"] if refused else []
        for line in read(frame).split("\n"):
            if line.startswith("#if"):
                stack.append(line)
            elif line.startswith("#endif"):
                stack.pop()
            elif INCLUDE.match(line):
                conditions[INCLUDE.match(line)[1]] = {
                    line for line in stack if "IMPLEMENTATION" not in line and "_H" not in line}
    return conditions


def check_layers(order):
    errors = []
    conditions = find_conditions()
    for name in order:
        for other in INCLUDE.findall(read(name)):
            if other not in order:
                errors.append("src/%s includes %s, which src/lmc.h.in does not name"
                              % (name, other))
            elif order.index(other) >= order.index(name):
                errors.append("src/%s includes %s, which stands behind it" % (name, other))
            elif not other.endswith("api.h") and not conditions[other] <= conditions[name]:
                errors.append("src/%s includes %s, which src/lmc.h.in may leave out"
                              % (name, other))
    for frame in ["lmc.h.in"] + BEHIND:
        layers = [LAYERS.index(os.path.dirname(name)) for name in named(frame)
                  if not name.endswith("api.h")]
        if layers != sorted(layers):
            errors.append("src/%s does not name the files layer by layer: %s"
                          % (frame, " < ".join(LAYERS[1:])))
    return errors


def compile_alone(compiler, name):
    # whoever does not define kernels sees the same text without vectors, which is compiled in a
    # tenth of the time
    simd = [] if name.startswith("kernels/") else ["-DLMC_NO_SIMD"]
    command = [compiler, "-std=c99", "-w", "-fsyntax-only", *simd, "-I", SRC,
               "-include", os.path.join(SRC, name), "-x", "c", os.devnull]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return []
    return ["src/%s does not compile alone:\n%s" % (name, run.stderr[:1000])]


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CC", "cc")
    order = [name for frame in ["lmc.h.in"] + BEHIND for name in named(frame)]
    files = [os.path.relpath(os.path.join(d, f), SRC) for d, _, fs in os.walk(SRC) for f in fs
             if os.path.basename(d) != OBJECTS]
    errors = ["src/%s is named in no src/*.h.in" % f for f in files
              if f not in order and not f.endswith((".in", ".cu"))]
    errors += check_layers(order)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda name: compile_alone(compiler, name), order):
            errors += found
    print("\n".join(errors) or "%d files, each on its layer, each compiles alone" % len(order))
    sys.exit(len(errors) > 0)


if __name__ == "__main__":
    main()
