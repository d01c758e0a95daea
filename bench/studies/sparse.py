#!/usr/bin/env python3
"""How small are deltas, compared with the bound? For training steps and simulated steps of reinforcement learning.

  bench/studies/sparse.py make DIRECTORY DATA [MB [SHARE...]]
      writes pairs DIRECTORY/NAME/{old,new}.safetensors of MB megabytes (default 200), a pair for each share of changed elements (0.01: 1 %)
  bench/studies/sparse.py sizes LMC PAIR...          a table: the sizes of LMC (the command) and zstd for each pair OLD:NEW, or DIRECTORY/NAME

Reinforcement learning changes weights so little that most bf16 weights stay the same. No such checkpoints are free to distribute, so the pairs are
simulated. Real fp32 master weights and moments (DATA/series/step-001010) are tiled to the wanted size (8 tiles high, each with rows and columns in
its own order). Gradients are drawn with the real variance of each element. AdamW (0.9, 0.999) uses a learning rate that gives the wanted share of
changed elements. bf16 weights are rounded from the masters before and after.

The bound is for a coder that knows the exponent of each old element and all frequencies: for each exponent, the entropy of the distance in floats
between old and new, times its elements. Headers, names and everything else count for the coder, not for the bound. SPDX-License-Identifier: MIT
"""
import json, os, struct, subprocess, sys, tempfile

import numpy as np

SHARES = (0.00001, 0.0001, 0.001, 0.003, 0.009, 0.015, 0.03)
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def read(path):
    """name -> (dtype, shape, bytes as an array)"""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = np.frombuffer(f.read(), np.uint8)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items() if name != "__metadata__"}


def write(path, tensors):
    """tensors: name -> uint16 array of bf16"""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [at, at + tensors[name].nbytes]}
        at += tensors[name].nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            f.write(tensors[name].tobytes())


def to_bf16(x):
    """Rounds to nearest, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def step(w, m, v, g, rate):
    """One AdamW step after many: the corrections of the bias are 1."""
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    return (w - np.float32(rate) * (m / (np.sqrt(v) + EPS))).astype(np.float32)


def make(directory, data, megabytes, shares):
    def state(name):
        return {k: np.frombuffer(b.tobytes(), np.float32).reshape(shape) for k, (_, shape, b) in
                read("%s/series/step-001010/%s.f32.safetensors" % (data, name)).items()}

    master, moment1, moment2 = state("master"), state("exp_avg"), state("exp_avg_sq")
    n = sum(w.size for w in master.values())
    tiles = 8 * max(1, round(megabytes * 1e6 / 2 / n / 8))
    rng = np.random.default_rng(1)

    def changed(rate):
        """The share of elements of one tile that change."""
        r, count = np.random.default_rng(2), 0
        for k, w in master.items():
            g = r.standard_normal(w.shape, np.float32) * np.sqrt(moment2[k])
            count += np.count_nonzero(to_bf16(w) != to_bf16(step(w, moment1[k], moment2[k], g, rate)))
        return count / n

    for share in shares:
        low, high = 1e-10, 1e-3
        for _ in range(30):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if changed(middle) < share else (low, middle)
        old, new = {}, {}
        for k, w0 in master.items():
            parts = []
            for _ in range(tiles):
                w, m, v = w0, moment1[k], moment2[k]
                for axis in range(w.ndim):
                    order = rng.permutation(w.shape[axis])
                    w, m, v = (np.take(x, order, axis) for x in (w, m, v))
                g = rng.standard_normal(w.shape, np.float32) * np.sqrt(v)
                parts.append((to_bf16(w), to_bf16(step(w, m, v, g, low))))
            for tensors, part in ((old, 0), (new, 1)):  # 8 tiles high
                rows = [np.concatenate([p[part] for p in parts[i::8]], -1) for i in range(8 if w0.ndim > 1 else 1)]
                tensors[k] = np.concatenate(rows) if w0.ndim > 1 else np.concatenate([p[part] for p in parts])
        path = os.path.join(directory, "%g" % (100 * share))
        os.makedirs(path, exist_ok=True)
        write(path + "/old.safetensors", old)
        write(path + "/new.safetensors", new)
        print("%s: learning rate %.2g, %d tensors" % (path, low, len(old)), flush=True)


def bound(old, new):
    """(bytes of the bound, share of changed elements): entropy of the distance given the old exponent."""
    counts, n, n_changed = {}, 0, 0
    for k in old:
        a, b = (np.frombuffer(x[k][2].tobytes(), np.uint16).astype(np.int32) for x in (old, new))
        # floats of one sign are ordered like their bits; a change of sign continues below zero
        distance = np.where((b ^ a) & 0x8000, -(b & 0x7FFF) - (a & 0x7FFF) - 1, (b & 0x7FFF) - (a & 0x7FFF))
        keys, number = np.unique(((a >> 7) & 255).astype(np.int64) << 32 | (distance + (1 << 20)), return_counts=True)
        for key, c in zip(keys.tolist(), number.tolist()):
            counts[key] = counts.get(key, 0) + c
        n += a.size
        n_changed += np.count_nonzero(a != b)
    groups = {}
    for key, c in counts.items():
        groups.setdefault(key >> 32, []).append(c)
    bits = 0.0
    for c in groups.values():
        c = np.array(c, float)
        bits -= (c * np.log2(c / c.sum())).sum()
    return bits / 8, n_changed / n


def sizes(lmc, pairs):
    try:
        import zstandard
    except ImportError:
        zstandard = None
    print("| pair | changed | bound | default | max | % of bound: default | max | zstd -1 of the xor | zstd -19 |\n|---|---|---|---|---|---|---|---|---|")
    for pair in pairs:
        old, new = pair.split(":") if ":" in pair else (pair + "/old.safetensors", pair + "/new.safetensors")
        limit, share = bound(read(old), read(new))
        packed = []
        with tempfile.TemporaryDirectory() as d:
            for level in ([], ["--max"]):
                subprocess.run([lmc, *level, "-f", "-o", d + "/delta.lmc", "--base", old, new], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                packed.append(os.path.getsize(d + "/delta.lmc"))
        a, b = np.fromfile(old, np.uint8), np.fromfile(new, np.uint8)
        xor = (a ^ b).tobytes() if a.size == b.size else b.tobytes()
        other = [len(zstandard.ZstdCompressor(level=level).compress(xor)) for level in (1, 19)] if zstandard else ["", ""]
        print("| %s | %.4f %% | %d | %d | %d | %.1f | %.1f | %s | %s |" % (pair if ":" not in pair else os.path.dirname(old)[-11:] + " to " + os.path.dirname(new)[-6:],
              100 * share, limit, *packed, *(100 * limit / p for p in packed), *other), flush=True)


if len(sys.argv) >= 4 and sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3], float(sys.argv[4]) if len(sys.argv) > 4 else 200, [float(x) for x in sys.argv[5:]] or SHARES)
elif len(sys.argv) >= 4 and sys.argv[1] == "sizes":
    sizes(sys.argv[2], sys.argv[3:])
else:
    sys.exit(__doc__)
