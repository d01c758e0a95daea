#!/usr/bin/env python3
"""Bytes and seconds for each step: LMC deltas compared with patches of indices and values, in memory, on one thread.

  bench/studies/patches.py MB PAIR...    PAIR: a directory with old.safetensors and new.safetensors, of bench/studies/sparse.py make; each is tiled to MB
                                 megabytes, every tile with the rows of its tensors in another order

The peers are what trainers send today: int32 indices and bf16 values of each tensor, uncompressed, with zstd, and with zstd and the gaps between
indices (2 bytes, if all are below 65536). All get the list of changes from the function that LMC uses, and have no checks; LMC checks the base, the
payload and the result. "make": from both steps to bytes. "apply": from bytes to the receiver's tensors, which have the old values. "list": LMC, until
all indices and values are there. It needs lmc_codec, zstandard, ml_dtypes. SPDX-License-Identifier: MIT
"""
import sys, time

import lmc_codec, ml_dtypes, numpy as np, zstandard
from lmc_codec import _lmc

REPEATS = 3


def read(path):
    """name -> array of uint16, rows and columns"""
    with open(path, "rb") as f:
        data = f.read()
    rows, _ = _lmc.find_tensors(data, len(data), "")
    return {r[0]: np.frombuffer(data, np.uint16, r[4] // 2, r[3]).reshape(-1, r[2][-1] if len(r[2]) > 1 else 1) for r in rows}


def tile(pair, size):
    old, new = (read(f"{pair}/{x}.safetensors") for x in ("old", "new"))
    n, rng, out = max(1, round(size / sum(x.nbytes for x in old.values()))), np.random.default_rng(1), ({}, {})
    for i in range(n):
        for name, a in old.items():
            order = rng.permutation(len(a))
            for to, x in zip(out, (a, new[name])):
                to[f"{i}.{name}"] = np.ascontiguousarray(x[order]).view(ml_dtypes.bfloat16)
    return out


def find(old, new):
    room = max(x.size for x in new.values())
    indices, values = np.empty(room, np.int32), np.empty(room, np.uint16)
    for name, x in new.items():
        _, n = _lmc.add_changes(x.view(np.uint8).reshape(-1), old[name].view(np.uint8).reshape(-1), 2, 0, indices, False, values, 0)
        yield name, indices[:n], values[:n]


def pack(level, as_gaps):
    z = zstandard.ZstdCompressor(level=level) if level else None

    def make(old, new):
        made = {}
        for name, i, v in find(old, new):
            if as_gaps:
                i = np.diff(i, prepend=np.int32(0))
                i = i.astype(np.uint16) if i.size and i.max() < 65536 else i
            parts = i.tobytes(), v.tobytes()
            made[name] = (i.dtype, *((z.compress(x) for x in parts) if z else parts))
        return made

    return make


def unpack(level, as_gaps):
    z = zstandard.ZstdDecompressor()

    def apply(made, state):
        for name, (dtype, i, v) in made.items():
            i, v = (np.frombuffer(z.decompress(x) if level else x, d) for x, d in ((i, dtype), (v, np.uint16)))
            state[name].reshape(-1).view(np.uint16)[np.cumsum(i, dtype=np.int32) if as_gaps else i] = v

    return apply


def lmc_make(old, new):
    with lmc_codec.Writer(None, base=lmc_codec.Base(old, threads=1), threads=1, _capacity=256 << 20) as w:
        w.add_arrays(new, "")
    return w.data


def lmc_list(made, state):
    with lmc_codec.open(made, base=lmc_codec.Base(state, threads=1), threads=1) as r:
        return list(r.changes(framework="numpy"))


def lmc_apply(made, state):
    for name, i, v in lmc_list(made, state):  # the base changes after the last of them
        state[name].reshape(-1).view(np.uint16)[i] = v.view(np.uint16)


def best(do, *given, before=lambda: None):
    seconds = []
    for _ in range(REPEATS):
        before()
        start = time.perf_counter()
        result = do(*given)
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def main(size, pairs):
    coders = [("index + value", pack(0, False), unpack(0, False)), ("zstd -1", pack(1, False), unpack(1, False))]
    coders += [("zstd -3", pack(3, False), unpack(3, False)), ("gaps, zstd -1", pack(1, True), unpack(1, True)), ("LMC", lmc_make, lmc_apply)]
    print("| changed | MB | coder | bytes | make, s | apply, s | list, s |\n|---|---|---|---|---|---|---|")
    for pair in pairs:
        old, new = tile(pair, size)
        state = {name: x.copy() for name, x in old.items()}
        total, n = sum(x.size for x in old.values()), sum(len(i) for _, i, _ in find(old, new))

        def reset():
            for name, x in old.items():
                state[name][...] = x

        for name, make, apply in coders:
            made_in, made = best(make, old, new)
            listed = "%.2f" % best(lmc_list, made, old)[0] if name == "LMC" else ""
            applied, _ = best(apply, made, state, before=reset)
            if any(not np.array_equal(x.view(np.uint16), new[k].view(np.uint16)) for k, x in state.items()):
                sys.exit(f"{pair}, {name}: not what it was made of")
            n_bytes = len(made) if name == "LMC" else sum(len(x) + len(y) for _, x, y in made.values())
            print("| %.2f %% | %.0f | %s | %d | %.2f | %.2f | %s |" % (100 * n / total, 2e-6 * total, name, n_bytes, made_in, applied, listed), flush=True)


if len(sys.argv) < 3:
    sys.exit(__doc__)
main(float(sys.argv[1]) * 1e6, sys.argv[2:])
