#!/usr/bin/env python3
"""LMC compared with other codecs: same core, same run, same buffer.

  peers.py measure [--mb N] [--reps N] [--json FILE] [FILE...]   speeds and sizes, markdown to stdout
  peers.py pack|unpack NAME DTYPE IN OUT THREADS                  a library as a command, for bench/command; DTYPE: BF16, F16, F32
  peers.py checkpoint NEW OLD                                     sizes of a directory of safetensors files, alone and as xor with another directory
  peers.py make DTYPE MB FILE [FILE...]                           a safetensors file: synthetic, or from the tensor data of the FILEs that follow
  peers.py versions

C libraries are called through build/peers.so, the others through their Python packages; codecs that are not installed are left out.
All codecs take turns in each repetition; medians are shown. Each data set has its own process, pinned to one core.
Buffers are pre-faulted; memory that packages allocate and free is kept by the process, so that pages are faulted in only once. (zipnn never frees its
results: its pages are always new.)"""
import argparse, ctypes, glob, importlib.metadata, json, multiprocessing, os, statistics, struct, sys, time
os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0"  # usual pages, as in bench.c
import numpy as np

from results import ROOT, WEIGHTS

WIDTH = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def load_c():
    c = ctypes.CDLL(os.path.join(ROOT, "build", "peers.so"))
    pointer, size, text, index = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint
    for name, result, arguments in (
            ("peer_name", text, [index]), ("peer_available", ctypes.c_int, [index]), ("peer_versions", text, []),
            ("peer_fill", None, [pointer, size, text]), ("peer_entropy", ctypes.c_double, [pointer, size, text]),
            ("peer_bound", size, [size]), ("peer_workspace_size", size, [text]),
            ("peer_encode", size, [index, pointer, size, pointer, size, text, pointer, size]),
            ("peer_decode", ctypes.c_int, [index, pointer, size, pointer, size, text, pointer, size])):
        getattr(c, name).restype = result
        getattr(c, name).argtypes = arguments
    return c


# -- Python packages: pack(array) -> bytes-like, unpack(bytes-like, dtype, size) -> bytes-like --
# An array is a flat numpy array of unsigned integers of the element's width.

class Zipnn:
    """The C core, called as by zipnn's Python layer, without that layer's copies of the input."""
    ARGUMENTS = {"BF16": (2, 1, 10), "F16": (2, 0, 10), "F32": (4, 1, 220)}  # buffers, reorder bits, reorder bytes
    CHUNK = 256 << 10
    changes_input = True

    def __init__(self, threads):
        import zipnn_core
        self.core, self.threads = zipnn_core, threads

    def pack(self, array, dtype):
        return self.core.zipnn_core(b"", array.data.cast("B"), *self.ARGUMENTS[dtype], 0, self.CHUNK, 0.95, 10, self.threads)

    def unpack(self, packed, dtype, size):
        return self.core.combine_dtype(packed, *self.ARGUMENTS[dtype], self.CHUNK, size, self.threads)


class OpenZL:
    """Sign and mantissa are stored, exponents are coded; both of OpenZL's checksums are on, as by default."""

    def __init__(self, coder):
        import openzl.ext as zl
        self.zl, self.coder, self.contexts = zl, coder, {}

    def context(self, dtype):
        zl = self.zl
        if dtype not in self.contexts:
            compressor = zl.Compressor()
            coder = getattr(zl.graphs, self.coder)()(compressor) if self.coder[0].isupper() else compressor.get_graph(self.coder)
            if coder is None:
                raise ImportError(self.coder)
            node = {"BF16": zl.nodes.BFloat16Deconstruct, "F16": zl.nodes.Float16Deconstruct, "F32": zl.nodes.Float32Deconstruct}[dtype]
            compressor.select_starting_graph(node()(compressor, zl.graphs.Store()(compressor), coder))
            context = zl.CCtx()
            context.set_parameter(zl.CParam.StickyParameters, 1)
            context.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
            context.ref_compressor(compressor)
            self.contexts[dtype] = context, zl.DCtx(), compressor
        return self.contexts[dtype]

    def pack(self, array, dtype):
        return self.context(dtype)[0].compress([self.zl.Input(self.zl.Type.Numeric, array)])

    def unpack(self, packed, dtype, size):
        return self.context(dtype)[1].decompress(packed)[0].content.as_nparray()


class Blosc2:
    def __init__(self, threads, codec, level, bits):
        import blosc2
        self.blosc2, self.threads, self.level = blosc2, threads, level
        self.codec, self.filter = blosc2.Codec[codec], blosc2.Filter.BITSHUFFLE if bits else blosc2.Filter.SHUFFLE

    PIECE = 1 << 30  # a chunk must stay below 2 GiB

    def pack(self, array, dtype):
        step = self.PIECE // array.itemsize
        parts = [self.blosc2.compress2(array[i:i + step], codec=self.codec, clevel=self.level, filters=[self.filter],
                                       typesize=array.itemsize, nthreads=self.threads) for i in range(0, len(array), step)]
        return parts[0] if len(parts) == 1 else b"".join(struct.pack("<Q", len(p)) + p for p in parts)

    def unpack(self, packed, dtype, size):
        if size <= self.PIECE:
            return self.blosc2.decompress2(packed, nthreads=self.threads)
        out, at = [], 0
        while at < len(packed):
            n, = struct.unpack_from("<Q", packed, at)
            out.append(self.blosc2.decompress2(packed[at + 8:at + 8 + n], nthreads=self.threads))
            at += 8 + n
        return b"".join(out)


class Pco:
    """bf16 is coded as integers, because pcodec has no such type."""
    TYPES = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}

    def __init__(self):
        from pcodec import ChunkConfig, standalone
        self.coder, self.config = standalone, ChunkConfig()

    def pack(self, array, dtype):
        return self.coder.simple_compress(array.view(self.TYPES[dtype]), self.config)

    def unpack(self, packed, dtype, size):
        out = np.empty(size // WIDTH[dtype], self.TYPES[dtype])
        self.coder.simple_decompress_into(packed, out)
        return out


def python_peers(threads=1):
    """Name -> constructor. OpenZL and pcodec have no threads of their own."""
    return {
        "zipnn": lambda: Zipnn(threads),
        "OpenZL huffman": lambda: OpenZL("Huffman"),
        "OpenZL huffman, huf0": lambda: OpenZL("zl.huffman_huf0"),
        "OpenZL huffman, mask tree (pivco)": lambda: OpenZL("zl.huffman_pivco"),
        "OpenZL fse": lambda: OpenZL("Fse"),
        "blosc2 bitshuffle, lz4": lambda: Blosc2(threads, "LZ4", 5, True),
        "blosc2 shuffle, zstd -1": lambda: Blosc2(threads, "ZSTD", 1, False),
        "pcodec": lambda: Pco(),
    }


def versions():
    found = []
    try:
        found += ["%s %s" % pair for pair in zip(("lmc.h", "libzstd", "liblz4"), load_c().peer_versions().decode().split())]
    except OSError:
        found.append("no build/peers.so")
    for name in ("zipnn", "openzl", "blosc2", "pcodec", "numpy", "matplotlib"):
        try:
            found.append("%s %s" % (name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append("no %s" % name)
    return ", ".join(found)


# -- data --

def read_tensors(path, width):
    with open(path, "rb") as file:
        skip = 8 + struct.unpack("<Q", file.read(8))[0]
        file.seek(skip)
        data = np.frombuffer(file.read(), np.uint8)
    return data[:len(data) - len(data) % width]


def dtype_of(path):
    name = os.path.basename(path)
    return next((dtype for part, dtype in ((".bf16.", "BF16"), (".f16.", "F16"), (".f32.", "F32")) if part in name), None)


def aligned(size):
    """Pre-faulted bytes, aligned to a page."""
    buffer = np.full(size + 4096, 1, np.uint8)
    skip = -buffer.ctypes.data % 4096
    return buffer[skip:skip + size]


def synthetic(c, dtype, size):
    data = aligned(size)
    c.peer_fill(data.ctypes.data, size, dtype.encode())
    return data


# -- measuring --

def same(a, b):
    return np.array_equal(np.frombuffer(a, np.uint8) if not isinstance(a, np.ndarray) else np.ascontiguousarray(a).view(np.uint8), b)


def keep_memory():
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-4, 0)            # M_MMAP_MAX: nothing by mmap, which unmaps at once
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: give nothing back


def measure(label, dtype, source, mb, reps, results):
    """One data set, in a process of its own."""
    keep_memory()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    c, name = load_c(), dtype.encode()
    size = mb * 1000000 - mb * 1000000 % WIDTH[dtype]
    data = synthetic(c, dtype, size) if source is None else np.resize(np.concatenate([read_tensors(p, WIDTH[dtype]) for p in source]), size)
    work, out, coded, ws = (aligned(n) for n in (size, size, c.peer_bound(size), c.peer_workspace_size(name)))
    work[:] = data
    array = work.view(UNSIGNED[WIDTH[dtype]])

    codecs = {}  # name -> (C index or None, Python object or None)
    i = 0
    while c.peer_name(i):
        if c.peer_available(i):
            codecs[c.peer_name(i).decode()] = (i, None)
        i += 1
    for peer, make in python_peers().items():
        try:
            codecs[peer] = (None, make())
        except ImportError as error:
            print("%s is left out: %s" % (peer, error), file=sys.stderr)
    times = {peer: ([], []) for peer in codecs}
    sizes, spent, broken = {}, dict.fromkeys(codecs, 0.0), set()

    for rep in range(-1, reps):  # -1: warm-up
        for peer, (index, package) in codecs.items():
            if peer in broken or (rep >= 3 and spent[peer] > 20):  # slow ones are measured three times only
                continue
            try:
                if package is None:
                    start = time.perf_counter()
                    n = c.peer_encode(index, coded.ctypes.data, coded.size, work.ctypes.data, size, name, ws.ctypes.data, ws.size)
                    encode = time.perf_counter() - start
                    out.fill(0xEE)
                    start = time.perf_counter()
                    ok = n and c.peer_decode(index, out.ctypes.data, size, coded.ctypes.data, n, name, ws.ctypes.data, ws.size)
                    decode = time.perf_counter() - start
                    ok = ok and np.array_equal(out, data)
                else:
                    start = time.perf_counter()
                    packed = package.pack(array, dtype)
                    encode = time.perf_counter() - start
                    n = len(packed)
                    if getattr(package, "changes_input", False):
                        np.copyto(work, data)
                    start = time.perf_counter()
                    restored = package.unpack(packed, dtype, size)
                    decode = time.perf_counter() - start
                    ok = same(restored, data)
                    del packed, restored
            except (RuntimeError, KeyError) as error: # KeyError: it does not know the dtype
                print("%s is left out of %s: %s" % (peer, label, str(error).split("\n")[0]), file=sys.stderr)
                broken.add(peer)
                continue
            if not ok:
                sys.exit("%s: %s did not come back" % (label, peer))
            spent[peer] += encode + decode
            sizes[peer] = n
            if rep >= 0:
                times[peer][0].append(encode)
                times[peer][1].append(decode)
    entropy = c.peer_entropy(data.ctypes.data, size, name)
    copy = size / statistics.median(times["memcpy"][0]) / 1e9
    for peer in codecs:
        if peer not in broken:
            results.append({"data": label, "dtype": dtype, "codec": peer, "bytes": size, "encoded": sizes[peer], "memcpy_gb_s": copy,
                            "entropy": entropy, "encode_gb_s": size / statistics.median(times[peer][0]) / 1e9,
                            "decode_gb_s": size / statistics.median(times[peer][1]) / 1e9, "reps": len(times[peer][0])})


def main_measure(arguments):
    parser = argparse.ArgumentParser(prog="peers.py measure")
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--reps", type=int, default=7)
    parser.add_argument("--json")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args(arguments)
    sets = [("N(0, 0.02) bf16", "BF16", None), ("N(0, 0.02) fp16", "F16", None), ("N(0, 0.02) fp32", "F32", None),
            ("N(0, 1) fp8", "F8_E4M3", None)]
    sets.append((WEIGHTS, "BF16", sorted(glob.glob(os.path.join(ROOT, WEIGHTS, "*.bf16.safetensors")))))
    by_name = {}
    for path in sorted(options.files):
        by_name.setdefault(os.path.basename(path), []).append(path)
    sets += [(base.replace(".safetensors", ""), dtype_of(base), by_name[base]) for base in ("master.f32.safetensors",) if base in by_name]
    context = multiprocessing.get_context("fork")
    rows = []
    for label, dtype, source in sets:
        results = context.Manager().list()
        process = context.Process(target=measure, args=(label, dtype, source, options.mb, options.reps, results))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit("peers.py: %s failed" % label)
        mine = list(results)
        rows += mine
        print("\n**%s**, %d MB; memcpy %.2f GB/s; order-0 entropy of the planes %.3f %%\n" % (label, options.mb, mine[0]["memcpy_gb_s"],
                                                                                     100 * mine[0]["entropy"] / mine[0]["bytes"]))
        print("| codec | size | compress | x memcpy | decompress | x memcpy |\n|---|---|---|---|---|---|")
        for row in mine[1:]:
            print("| %s | %.3f %% | %.2f | %.3f | %.2f | %.3f |" % (row["codec"], 100 * row["encoded"] / row["bytes"], row["encode_gb_s"],
                  row["encode_gb_s"] / row["memcpy_gb_s"], row["decode_gb_s"], row["decode_gb_s"] / row["memcpy_gb_s"]))
        sys.stdout.flush()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


# -- as a command --

def main_pack(verb, name, dtype, source, target, threads):
    package = python_peers(int(threads))[name]()
    if verb == "pack":
        array = np.fromfile(source, UNSIGNED[WIDTH[dtype]])
        size = array.nbytes
        result = package.pack(array, dtype)
        with open(target, "wb") as file:
            file.write(struct.pack("<Q", size))
            file.write(result)
    else:
        with open(source, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            packed = file.read()
        with open(target, "wb") as file:
            file.write(package.unpack(packed, dtype, size))


def main_checkpoint(new, old):
    """Each file by itself, with its unchanged header; decoded and compared. A line for each: name, a tab, bytes."""
    codecs = {}
    try:
        c, i = load_c(), 0
        while c.peer_name(i) != b"zstd -1, planes":
            i += 1

        def zstd(data, dtype):
            width, out = dtype.encode(), aligned(data.size)
            coded, ws = aligned(c.peer_bound(data.size)), aligned(c.peer_workspace_size(width))
            size = c.peer_encode(i, coded.ctypes.data, coded.size, data.ctypes.data, data.size, width, ws.ctypes.data, ws.size)
            assert size and c.peer_decode(i, out.ctypes.data, data.size, coded.ctypes.data, size, width, ws.ctypes.data, ws.size) and same(out, data)
            return size
        codecs["xor with the base, planes, zstd -1"] = zstd, True
    except OSError as error:
        print("zstd is left out: %s" % error, file=sys.stderr)
    try:
        package = Zipnn(1)

        def zipnn(data, dtype):
            packed = package.pack(data.copy().view(UNSIGNED[WIDTH[dtype]]), dtype)
            assert same(package.unpack(packed, dtype, data.size), data)
            return len(packed)
        codecs["ZipNN (byte groups, Huffman)"] = zipnn, False
        codecs["xor with the base, ZipNN"] = zipnn, True
    except ImportError as error:
        print("zipnn is left out: %s" % error, file=sys.stderr)
    for what, (size_of, is_delta) in codecs.items():
        total = 0
        for name in sorted(os.listdir(new)):
            data, before = (read_tensors(os.path.join(folder, name), WIDTH[dtype_of(name)]) for folder in (new, old))
            total += os.path.getsize(os.path.join(new, name)) - data.size + size_of(data ^ before if is_delta else data, dtype_of(name))
        print("%s\t%d" % (what, total))


def main_make(dtype, mb, target, *files):
    """With files, their tensor data once, at most that many MB: repeated data would favour codecs that find repetitions."""
    size = int(mb) * 1000000 - int(mb) * 1000000 % 8
    if files:
        data = np.concatenate([read_tensors(path, 8) for path in files])[:size]
    else:
        data = synthetic(load_c(), dtype, size)
    header = json.dumps({"weights": {"dtype": dtype, "shape": [data.size // WIDTH[dtype]], "data_offsets": [0, data.size]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        data.tofile(file)


if __name__ == "__main__":
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "measure":
        main_measure(sys.argv[2:])
    elif verb in ("pack", "unpack") and len(sys.argv) == 7:
        main_pack(*sys.argv[1:])
    elif verb == "checkpoint" and len(sys.argv) == 4:
        main_checkpoint(*sys.argv[2:])
    elif verb == "make" and len(sys.argv) > 4:
        main_make(*sys.argv[2:])
    elif verb == "versions":
        print(versions())
    else:
        sys.exit(__doc__)
