#!/usr/bin/env python3
"""The Python package compared with other packages, and with the C library itself: one process, the same arrays, one thread.

    bench/studies/packages.py SERIES [--mb N] [--reps N] [--z4ai]

SERIES: step-*/{model.bf16,master.f32}.safetensors; markdown to stdout

Needs build/liblmc.so, and lmc_codec; and those of safetensors, zipnn, zstandard, openzl, blosc2 and z4ai that are installed. The data of all steps is
repeated up to --mb. All take turns in each repetition, with buffers that were used before. The output has medians, and for ratios the median of
ratios of neighbours. If a package returns a new object at each call, that is new memory, as for its users; LMC's `out=` avoids that.

"of C": the time of the corresponding function of lmc.h, called by ctypes in the same process and repetition, divided by the time of the call. C has
two: for elements alone (lmc_tensor_encode, _decode) and for whole files (lmc_compress, lmc_decompress; none for a delta)."""
import argparse, ctypes, glob, os, statistics, sys, time
import numpy as np
import ml_dtypes
import lmc_codec
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import peers  # noqa: E402

ROOT = peers.ROOT


def read_data(path):
    """The tensors of a safetensors file, as bytes."""
    with open(path, "rb") as f:
        f.seek(8 + int.from_bytes(f.read(8), "little"))
        return f.read()


def load(series, name, size):
    data = b"".join(read_data(path) for path in sorted(glob.glob(os.path.join(series, "step-*", name))))
    return repeat(np.frombuffer(data, np.uint8), size)


def repeat(data, size):
    """Repeats the data, in whole pages, to that many bytes."""
    return np.resize(data[:data.size // 4096 * 4096], size)


class C:
    """lmc.h, called through the shared library of examples/liblmc.c."""

    def __init__(self):
        self.lib = lib = ctypes.CDLL(os.path.join(ROOT, "build", "liblmc.so"))
        p, n, size = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)
        lib.liblmc_encode.argtypes = [p, n, size, p, p, n, ctypes.c_char_p, ctypes.c_int]
        lib.liblmc_decode.argtypes = [p, p, n, p, n]
        lib.lmc_dtype_find.argtypes = [ctypes.c_char_p]
        lib.lmc_compress.argtypes = [p, n, size, p, n, ctypes.c_int, p]
        lib.lmc_decompress.argtypes = [p, n, size, p, n, p]

    def encode(self, data, base, dtype, room):
        size = ctypes.c_size_t()
        status = self.lib.liblmc_encode(room.ctypes.data, room.size, ctypes.byref(size), data.ctypes.data,
                                        None if base is None else base.ctypes.data, data.size, dtype.encode(), 0)
        assert status == 0
        return room[:size.value]

    def decode(self, packed, base, out):
        assert self.lib.liblmc_decode(out.ctypes.data, None if base is None else base.ctypes.data, out.size, packed.ctypes.data, packed.size) == 0
        return out

    def compress(self, data, dtype, room):
        size = ctypes.c_size_t()
        assert self.lib.lmc_compress(room.ctypes.data, room.size, ctypes.byref(size), data.ctypes.data, data.size, self.lib.lmc_dtype_find(dtype.encode()), None) == 0
        return room[:size.value]

    def decompress(self, packed, out):
        size = ctypes.c_size_t()
        assert self.lib.lmc_decompress(out.ctypes.data, out.size, ctypes.byref(size), packed.ctypes.data, packed.size, None) == 0
        return out


TENSOR, FILE = "C: lmc_tensor_encode, _decode", "C: lmc_compress, lmc_decompress"


def rows(data, base, dtype, with_z4ai):
    """Name -> (pack() -> anything with a size, unpack(packed)); results are checked once."""
    typed = data.view(ml_dtypes.bfloat16 if dtype == "BF16" else np.float32)
    old = None if base is None else base.view(typed.dtype)
    room, out, c = np.zeros(2 * data.size + 65536, np.uint8), np.zeros_like(data), C()
    out_typed = out.view(typed.dtype)
    unsigned = data.view(peers.UNSIGNED[typed.itemsize])
    found = {"memcpy (numpy)": (lambda: data, lambda p: np.copyto(out, data) or out),
             TENSOR: (lambda: c.encode(data, base, dtype, room), lambda p: c.decode(p, base, out)),
             "lmc_codec.tensor_encode, _decode, out=": (lambda: room[:lmc_codec.tensor_encode(typed, old, out=room)],
                                                        lambda p: lmc_codec.tensor_decode(p, out_typed, old))}
    if base is None:
        found[FILE] = lambda: c.compress(data, dtype, room), lambda p: c.decompress(p, out)
    found["lmc_codec.compress, decompress, out="] = (lambda: room[:lmc_codec.compress(typed, old, out=room)],
                                                     lambda p: lmc_codec.decompress(p, old, out=out_typed))
    found["lmc_codec.compress, decompress"] = lambda: lmc_codec.compress(typed, old), lambda p: lmc_codec.decompress(p, old)
    source = data if base is None else np.bitwise_xor(data, base)
    xor = "" if base is None else "xor, "
    for name, make in ({} if with_z4ai else peers.python_peers()).items():
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
    if with_z4ai:
        import z4ai
        plain, before, code = data.tobytes(), None if base is None else base.tobytes(), dtype.lower().replace("f32", "fp32").replace("bfp", "bf")
        if base is None:
            for effort in (None, "fast"):
                found["z4ai" + (", fast" if effort else "")] = lambda effort=effort: z4ai.compress(plain, dtype=code, threads=1, effort=effort), z4ai.decompress
        else:
            found["z4ai, its delta"] = lambda: z4ai.compress_delta(plain, before, dtype=code, threads=1), lambda p: z4ai.decompress_delta(p, before)
    if base is None:
        try:
            import safetensors.numpy
            view = unsigned
            found["safetensors (no compression)"] = lambda: safetensors.numpy.save({"w": view}), lambda p: safetensors.numpy.load(p)["w"]
        except ImportError as error:
            print("left out: %s" % error, file=sys.stderr)
    return found, source


def measure(title, data, base, dtype, reps, with_z4ai):
    found, source = rows(data, base, dtype, with_z4ai)
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
    for name, mine in times.items():
        c = TENSOR if name in (TENSOR, "lmc_codec.tensor_encode, _decode, out=") else FILE if "ompress, " in name else None
        cells = []
        for i in (0, 1):
            cells.append("%.2f GB/s" % (data.size / statistics.median(mine[i]) / 1e9) if i or "memcpy" not in name else "")
            cells.append("%.0f %%" % (100 * statistics.median(t / m for m, t in zip(mine[i], times[c][i]))) if c in times and c != name else "")
        print("| %s | %.1f %% | %s |" % (name, 100 * sizes[name] / data.size, " | ".join(cells)))
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("series")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--z4ai", action="store_true", help="z4ai, and not the packages that bring a libzstd of their own: beside openzl 0.3.0, z4ai 0.2.0 crashes")
    args = parser.parse_args()
    size = args.mb << 20
    bf16 = load(args.series, "model.bf16.safetensors", size)
    measure("bf16 weights", bf16, None, "BF16", args.reps, args.z4ai)
    measure("fp32 weights", load(args.series, "master.f32.safetensors", size), None, "F32", args.reps, args.z4ai)
    old, new = (np.concatenate([np.frombuffer(read_data(p), np.uint8) for p in pairs]) for pairs in find_pairs(args.series))
    old, new = repeat(old, size), repeat(new, size)
    measure("bf16, delta of the step before", new, old, "BF16", args.reps, args.z4ai)


def find_pairs(series):
    """Steps whose previous step is there, too."""
    steps = {int(os.path.basename(p)[5:]): os.path.join(p, "model.bf16.safetensors") for p in glob.glob(os.path.join(series, "step-*"))}
    pairs = [(steps[n - 1], steps[n]) for n in sorted(steps) if n - 1 in steps]
    return [p[0] for p in pairs], [p[1] for p in pairs]


if __name__ == "__main__":
    main()
