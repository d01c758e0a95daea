#!/usr/bin/env python3
"""The Python package beside other packages, and beside the C library itself: one process, the same arrays, one thread.

    bench/python.py SERIES [--mb N] [--reps N]       SERIES: step-*/{model.bf16,master.f32}.safetensors; markdown to stdout

Needs build/liblmc.so, and lmc_codec; of safetensors, zipnn, zstandard, openzl and blosc2 what is installed. All take turns
in each repetition, with buffers that were used before; medians are shown, and of ratios the median of ratios of neighbours. What
a package returns anew at each call is new memory, as its users have it; `out=` is LMC's own way around that."""
import argparse, ctypes, glob, os, statistics, sys, time
import numpy as np
import ml_dtypes
import lmc_codec
import peers

ROOT = peers.ROOT


def read_data(path):
    """The tensors of a safetensors file, as bytes."""
    with open(path, "rb") as f:
        f.seek(8 + int.from_bytes(f.read(8), "little"))
        return f.read()


def load(series, name, size):
    data = b"".join(read_data(path) for path in sorted(glob.glob(os.path.join(series, "step-*", name))))
    return np.frombuffer(data[:size // 4096 * 4096], np.uint8).copy()


class C:
    """examples/liblmc.c: the tensor layer, called as C calls it."""

    def __init__(self):
        self.lib = lib = ctypes.CDLL(os.path.join(ROOT, "build", "liblmc.so"))
        p, n = ctypes.c_void_p, ctypes.c_size_t
        lib.liblmc_encode.argtypes = [p, n, ctypes.POINTER(n), p, p, n, ctypes.c_char_p, ctypes.c_int]
        lib.liblmc_decode.argtypes = [p, p, n, p, n]

    def pack(self, data, base, dtype, room):
        size = ctypes.c_size_t()
        status = self.lib.liblmc_encode(room.ctypes.data, room.size, ctypes.byref(size), data.ctypes.data,
                                        None if base is None else base.ctypes.data, data.size, dtype.encode(), 0)
        assert status == 0
        return size.value

    def unpack(self, packed, size, base, out):
        assert self.lib.liblmc_decode(out.ctypes.data, None if base is None else base.ctypes.data, out.size, packed.ctypes.data, size) == 0


def rows(data, base, dtype):
    """Name -> (pack() -> anything with a size, unpack(packed)); what comes out is checked once."""
    typed = data.view(ml_dtypes.bfloat16 if dtype == "BF16" else np.float32)
    old = None if base is None else base.view(typed.dtype)
    room, out, c = np.zeros(2 * data.size + 65536, np.uint8), np.zeros_like(data), C()
    out_typed = out.view(typed.dtype)
    unsigned = data.view(peers.UNSIGNED[typed.itemsize])
    found = {"memcpy (numpy)": (lambda: np.copyto(out, data) or data, lambda p: out),
             "C library": (lambda: room[:c.pack(data, base, dtype, room)], lambda p: c.unpack(room, len(p), base, out) or out)}

    def ours_pack():
        return room[:lmc_codec.tensor_encode(typed, old, out=room)]

    found["lmc_codec.tensor_encode, _decode, out="] = ours_pack, lambda p: lmc_codec.tensor_decode(p, out_typed, old)
    found["lmc_codec.compress, decompress, out="] = (lambda: room[:lmc_codec.compress(typed, old, out=room)],
                                                     lambda p: lmc_codec.decompress(p, old, out=out_typed))
    found["lmc_codec.compress, decompress"] = lambda: lmc_codec.compress(typed, old), lambda p: lmc_codec.decompress(p, old)
    source = data if base is None else np.bitwise_xor(data, base)
    xor = "" if base is None else "xor, "
    for name, make in peers.python_peers().items():
        try:
            codec = make()
            if getattr(codec, "changes_input", False):
                keep = source.copy()
                array = keep.view(unsigned.dtype)

                def pack(codec=codec, keep=keep, array=array):
                    keep[:] = source
                    return codec.pack(array, dtype)
            else:
                array = source.view(unsigned.dtype)

                def pack(codec=codec, array=array):
                    return codec.pack(array, dtype)
            pack()
            found[xor + name] = pack, lambda p, codec=codec: codec.unpack(p, dtype, data.size)
        except Exception as error:
            print("%s is left out: %s" % (name, error), file=sys.stderr)
    try:
        import zstandard
        zc, zd = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
        found[xor + "zstandard -1"] = lambda: zc.compress(source), zd.decompress
    except ImportError as error:
        print("left out: %s" % error, file=sys.stderr)
    if base is None:
        try:
            import safetensors.numpy
            view = unsigned
            found["safetensors (no compression)"] = lambda: safetensors.numpy.save({"w": view}), lambda p: safetensors.numpy.load(p)["w"]
        except ImportError as error:
            print("left out: %s" % error, file=sys.stderr)
    return found, source


def measure(title, data, base, dtype, reps):
    found, source = rows(data, base, dtype)
    for name, (pack, unpack) in list(found.items()):
        try:
            result = unpack(pack())
            if not isinstance(result, np.ndarray):
                result = np.frombuffer(result, np.uint8)
            got = np.ascontiguousarray(result).reshape(-1).view(np.uint8)
            want = source if name.startswith("xor") else data
            if not np.array_equal(got, want):
                raise ValueError("other data came out")
        except Exception as error:
            print("%s is left out of %s: %s" % (name, title, error), file=sys.stderr)
            del found[name]
    times, sizes = {name: ([], []) for name in found}, {}
    for _ in range(reps):
        for name, (pack, unpack) in found.items():
            start = time.perf_counter()
            packed = pack()
            middle = time.perf_counter()
            unpack(packed)
            end = time.perf_counter()
            times[name][0].append(middle - start)
            times[name][1].append(end - middle)
            sizes[name] = len(packed) if not hasattr(packed, "nbytes") else packed.nbytes
    print("| %s, %.1f MB | size | pack | of C | unpack | of C |\n|---|---|---|---|---|---|" % (title, data.size / 1e6))
    for name, (packs, unpacks) in times.items():
        cells = []
        for mine, theirs in zip((packs, unpacks), times["C library"]):
            cells += ["%.2f GB/s" % (data.size / statistics.median(mine) / 1e9), "%.0f %%" % (100 * statistics.median(t / m for m, t in zip(mine, theirs)))]
        print("| %s | %.2f %% | %s |" % (name, 100 * sizes[name] / data.size, " | ".join(cells)))
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("series")
    parser.add_argument("--mb", type=int, default=16)
    parser.add_argument("--reps", type=int, default=9)
    args = parser.parse_args()
    size = args.mb << 20
    bf16 = load(args.series, "model.bf16.safetensors", size)
    measure("bf16 weights", bf16, None, "BF16", args.reps)
    measure("fp32 weights", load(args.series, "master.f32.safetensors", size), None, "F32", args.reps)
    old, new = (np.concatenate([np.frombuffer(read_data(p), np.uint8) for p in pairs]) for pairs in find_pairs(args.series))
    measure("bf16, delta of the step before", new, old, "BF16", args.reps)


def find_pairs(series):
    """Steps that are there with the step before."""
    steps = {int(os.path.basename(p)[5:]): os.path.join(p, "model.bf16.safetensors") for p in glob.glob(os.path.join(series, "step-*"))}
    pairs = [(steps[n - 1], steps[n]) for n in sorted(steps) if n - 1 in steps]
    return [p[0] for p in pairs], [p[1] for p in pairs]


if __name__ == "__main__":
    main()
