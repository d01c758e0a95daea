#!/usr/bin/env python3
"""Sizes and speeds of codecs for kinds of tensors, all in one run on one core: kinds.py [--turns N] DATA > TABLE

DATA: a directory with series/ and models/, as LMC_DATA (docs/testing.md). Other kinds are made of its weights: FP8, weights that
were quantised and stored in wider elements, and zeros. Needs numpy, ml_dtypes, safetensors and lmc_codec, and takes what is
installed of z4ai, glyd, pcodec, openzl, zipnn and zstandard.

LMC codes one file of all tensors, with names and checksums. The others code each tensor by itself, and whoever uses them keeps
names and shapes. Each cell has the size in %, and GB/s of CPU time in and out, least of N turns (3). Slow codecs run once. All results
are decoded and compared; "not restored" is said where that fails."""
import argparse, multiprocessing, os, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ml_dtypes
import numpy as np
import safetensors.numpy

import lmc_codec.numpy as lmc
import peers

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
NAMES = {np.dtype(BF16): "BF16", np.dtype(np.float16): "F16", np.dtype(np.float32): "F32", np.dtype(E4M3): "F8_E4M3", np.dtype(E5M2): "F8_E5M2"}


# -- kinds: {name: matrix}, made of fp32 or bf16 weights --

def quantize(weights, to, largest, axes, dtype=None):
    """In `to`, with a scale for each part of a matrix; dtype: again as numbers. axes: None: one scale; 1: rows; (a, b): tiles."""
    result = {}
    for name, w in weights.items():
        a, b = (1, w.shape[1]) if axes == 1 else axes or w.shape
        padded = np.pad(w, ((0, -w.shape[0] % a), (0, -w.shape[1] % b)))
        tiles = padded.reshape(padded.shape[0] // a, a, padded.shape[1] // b, b)
        scale = np.maximum(np.abs(tiles).max((1, 3), keepdims=True) / np.float32(largest), np.float32(1e-12))
        codes = np.rint(tiles / scale) if to is int else (tiles / scale).astype(to)
        whole = (codes.astype(np.float32) * scale if dtype else codes).reshape(padded.shape)[:w.shape[0], :w.shape[1]]
        result[name] = np.ascontiguousarray(whole.astype(dtype) if dtype else whole)
    return result


def zeros(weights, which):
    random = np.random.default_rng(5)
    return {name: np.where(which(random, w), w.dtype.type(0), w) for name, w in weights.items()}


def two_of_four(random, w):
    order = np.abs(w.astype(np.float32)).reshape(-1, 4).argsort(1)
    mask = np.zeros(order.shape, bool)
    np.put_along_axis(mask, order[:, :2], True, 1)
    return mask.reshape(w.shape)


def kinds(data):
    def read(path):
        return {name: t for name, t in safetensors.numpy.load_file(os.path.join(data, path + ".safetensors")).items() if t.ndim == 2}

    master, bf16 = read("series/step-001000/master.f32"), read("series/step-002000/model.bf16")
    yield "bf16 weights", bf16
    yield "fp16 weights", read("series/step-002000/model.f16")
    yield "fp32 weights", master
    yield "first moments, fp32", read("series/step-001010/exp_avg.f32")
    yield "second moments, fp32", read("series/step-001010/exp_avg_sq.f32")
    yield "gradients, bf16", read("series/step-001001/grad.bf16")
    yield "E4M3, a scale per tensor", quantize(master, E4M3, 448, None)
    yield "E4M3, per row", quantize(master, E4M3, 448, 1)
    yield "E5M2, per tensor", quantize(master, E5M2, 57344, None)
    for dtype, name in (BF16, "bf16"), (np.float32, "fp32"):
        yield f"{name} of E4M3, tiles of 128 x 128", quantize(master, E4M3, 448, (128, 128), dtype)
        yield f"{name} of INT8, per row", quantize(master, int, 127, 1, dtype)
        yield f"{name} of INT4, groups of 32", quantize(master, int, 7, (1, 32), dtype)
    yield "bf16 of INT8, per tensor", quantize(master, int, 127, None, BF16)
    yield "bf16, 50 % zeros at random", zeros(bf16, lambda random, w: random.random(w.shape) < 0.5)
    yield "bf16, 80 % zeros at random", zeros(bf16, lambda random, w: random.random(w.shape) < 0.8)
    yield "bf16, smallest 50 % zero", zeros(bf16, lambda random, w: np.abs(w.astype(np.float32)) <= np.median(np.abs(w.astype(np.float32))))
    yield "bf16, 2 of 4 zero", zeros(bf16, two_of_four)


# -- codecs: function(tensors) -> (size, seconds in, seconds out) --

def take(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def by_file(level):
    def run(tensors):
        coding, packed = take(lambda: lmc.save(tensors, level=level, threads=1))
        decoding, restored = take(lambda: lmc.load(packed))
        assert all(restored[name].tobytes() == t.tobytes() for name, t in tensors.items())
        return len(packed), coding, decoding
    return run


def by_tensor(pack, unpack):
    """pack(array of unsigned integers, dtype's name) -> bytes-like; unpack(bytes-like, name, size) -> bytes-like"""
    def run(tensors):
        total, coding, decoding = 0, 0.0, 0.0
        for t in tensors.values():
            flat, name = t.reshape(-1).view(peers.UNSIGNED[t.itemsize]), NAMES[t.dtype]
            seconds, packed = take(lambda: pack(flat.copy(), name))  # zipnn changes its input
            coding += seconds
            total += min(len(packed), t.nbytes)
            try:
                seconds, restored = take(lambda: unpack(packed, name, t.nbytes))
            except Exception:
                restored = b""
            decoding += seconds if peers.same(restored, flat.view(np.uint8)) else float("inf")
        return total, coding, decoding
    return run


def by_zstd(level):
    import zstandard
    coder, decoder = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
    return by_tensor(lambda a, name: coder.compress(a), lambda packed, name, size: decoder.decompress(packed))


def by_z4ai():
    import z4ai
    dtypes = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
    return by_tensor(lambda a, name: z4ai.compress(a.tobytes(), dtype=dtypes.get(name), threads=1), lambda packed, name, size: z4ai.decompress(packed))


def by_glyd():
    import glyd
    return by_tensor(lambda a, name: glyd.compress(a.tobytes(), "max"), lambda packed, name, size: glyd.decompress(packed))


def by_peer(make):
    peer = make()
    return by_tensor(peer.pack, peer.unpack)


CODECS = {"LMC": lambda: by_file("default"), "LMC max": lambda: by_file("max"), "z4ai": by_z4ai, "glyd max": by_glyd,
          "pcodec": lambda: by_peer(peers.Pco), "OpenZL fse": lambda: by_peer(lambda: peers.OpenZL("Fse")), "ZipNN": lambda: by_peer(lambda: peers.Zipnn(1)),
          "zstd -1": lambda: by_zstd(1)}


def work(pipe, make, data):
    """A process for each codec, as some change what others do by libraries of one name. A turn is one message and its answer."""
    try:
        run = make()
    except ImportError as error:
        return pipe.send(str(error))
    pipe.send("")
    for _, tensors in kinds(data):
        while pipe.recv():
            try:
                pipe.send(run(tensors))
            except (KeyError, ValueError, RuntimeError):  # it does not know this dtype
                pipe.send(None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("data")
    args = parser.parse_args()
    codecs = {}
    for name, make in CODECS.items():
        codecs[name], theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=work, args=(theirs, make, args.data), daemon=True).start()
        lacks = codecs[name].recv()
        if lacks:
            print(f"kinds.py: {name} is left out: {lacks}", file=sys.stderr)
            del codecs[name]
    print("| %; GB/s in, out |", " | ".join(codecs), "|\n|---|" + "---:|" * len(codecs))
    for kind, tensors in kinds(args.data):
        size, found = sum(t.nbytes for t in tensors.values()), {name: [] for name in codecs}
        for turn in range(args.turns + 1):  # the first warms up
            for name, pipe in codecs.items():
                if turn == 0 or found[name][0] and found[name][0][1] < 2:
                    pipe.send(1)
                    found[name].append(pipe.recv())
        texts = []
        for name, results in found.items():
            codecs[name].send(0)
            if not results[0]:
                texts.append("")
                continue
            _, coding, decoding = (min(x) for x in zip(*(results[1:] or results)))
            out = f"{size / decoding / 1e9:.2f}" if decoding < float("inf") else "not restored"
            texts.append(f"{100 * results[0][0] / size:.2f}; {size / coding / 1e9:.2f}, {out}")
        print(f"| {kind} |", " | ".join(texts), "|", flush=True)


if __name__ == "__main__":
    main()
