#!/usr/bin/env python3
"""Decoding on a GPU: is every byte right, and how fast is it? For a machine with a GPU of NVIDIA. Experimental: NOT RUN on one yet.

    bench/gpu.py [MODEL.safetensors]     all parts, in this order; without MODEL it makes one of random weights
    bench/gpu.py --parts blocks,load     these only
    bench/gpu.py --make                  builds the programs that the parts run; this needs no GPU
    bench/gpu.py --dry                   all parts, small, with stand-ins for the driver and NVRTC; its figures mean nothing

Each part is a process of its own, which ends after at most so many seconds. Its output is on the screen and in gpu.txt at once, in the directory
--out ($OUT, or build/gpu-results), and in gpu.json when it has ended. The network is not used.

    machine      what GPU, driver, Python                                                                     20 s
    kernels      each kernel: all blocks of the vectors, made and damaged ones: the same bytes or refusal     90 s
    vectors      whole files of spec/vectors and tests/golden by lmc_cuda_read, against the CPU               60 s
    model        makes MODEL, compresses it                                                                   60 s
    blocks       the kernels alone, blocks in the memory of the device, all bytes checked: GB/s of each       90 s
                 dtype. --gb (2): so much at once, that no cache helps. Then packed bytes come from pinned
                 memory: copies and kernels in two streams
    load         from the file to tensors: decode="gpu", "cpu", and safetensors with 1, 4 and 16 threads;     90 s
                 of a file that the system has in memory
    delta        apply_file of a delta of 2 % of the elements, in place, on the GPU and by the CPU            60 s
    peers        nvCOMP's ANS (nvidia-nvcomp-cu12, -cu13) and DietGPU (DIETGPU: its .so), where they are      60 s
    memcheck, racecheck, initcheck, synccheck: compute-sanitizer over some cases of `kernels`, and memcheck   45 s each
                 over some of `vectors`, too

Medians of 10, GB/s of decoded bytes. load, delta and peers need PyTorch with CUDA and safetensors; all others only the driver, NVRTC and what --make
builds (without it: make, a C and a C++ compiler, Python.h). Wheels in build/gpu-check/wheels can be
imported, too: nvidia-nvcomp-cu13 and nvidia-libnvcomp-cu13 (34 MB), for example.
"""
import argparse
import ctypes
import glob
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MADE = os.path.join(TOP, "build/gpu-check")
SAMPLE = os.path.join(TOP, "examples/data/gpt-step-001000.bf16.safetensors")
DEVICE = "cuda:0"
ROW = struct.Struct("<QQQIIII")  # bench/gpu.c
BLOCK = struct.Struct("<QQQIIII")  # lmc__gpu_block
THREADS, PAD, NOT_HERE, STREAM_SIZE = 256, 16, 255, 64 << 20


class Library:
    """Functions that return 0, or an error, which becomes an exception."""

    def __init__(self, *names):
        for name in names:
            try:
                self.library = ctypes.CDLL(name)
                return
            except OSError as error:
                self.error = error
        raise SystemExit(f"{names[0]}: {self.error}")

    def __getattr__(self, name):
        def call(*args):
            code = getattr(self.library, name)(*args)
            if code:
                raise SystemExit(f"{name}: error {code}")

        return call


class GPU:
    """The driver, the kernels (those of make_plan, or none), and allocated memory."""

    def __init__(self, folder=None, kernels=()):
        self.driver = cu = Library("libcuda.so.1")
        cu.cuInit(0)
        self.device, context = c_int(), c_void_p()
        cu.cuDeviceGet(byref(self.device), 0)
        cu.cuDevicePrimaryCtxRetain(byref(context), self.device)
        cu.cuCtxSetCurrent(context)
        name = ctypes.create_string_buffer(100)
        cu.cuDeviceGetName(name, 100, self.device)
        major, minor, self.n_multiprocessors, most = (self.attribute(i) for i in (75, 76, 16, 97))
        self.name = f"{name.value.decode()}, sm_{major}{minor}, {self.n_multiprocessors} multiprocessors"
        self.kernels = []
        if not folder:
            return
        module = c_void_p()
        with open(os.path.join(folder, "decode.cu"), "rb") as f:
            cu.cuModuleLoadData(byref(module), compile_text(f.read(), f"sm_{major}{minor}"))
        for name, shared, least, groups, following, scratch in kernels:
            function, shared = c_void_p(), min(shared, most)
            if shared >= least:
                cu.cuModuleGetFunction(byref(function), module, name.encode())
                cu.cuFuncSetAttribute(function, 8, min(most, max(k[1] for k in kernels if k[0] == name)))
            self.kernels.append((function, shared, groups, following, scratch))
        with open(os.path.join(folder, "tables.bin"), "rb") as f:
            self.tables = self.upload(f.read())

    def attribute(self, number):
        value = c_int()
        self.driver.cuDeviceGetAttribute(byref(value), number, self.device)
        return value.value

    def allocate(self, size):
        at = c_uint64()
        self.driver.cuMemAlloc_v2(byref(at), c_size_t(max(size, 1)))
        return at.value

    def free(self, *places):
        for at in places:
            self.driver.cuMemFree_v2(c_uint64(at))

    def upload(self, data):
        at = self.allocate(len(data))
        self.driver.cuMemcpyHtoD_v2(c_uint64(at), bytes(data), c_size_t(len(data)))
        return at

    def download(self, at, size):
        data = ctypes.create_string_buffer(size)
        self.driver.cuMemcpyDtoH_v2(data, c_uint64(at), c_size_t(size))
        return data.raw

    def pin(self, data):
        at = c_void_p()
        self.driver.cuMemHostAlloc(byref(at), c_size_t(len(data)), 0)
        ctypes.memmove(at, bytes(data), len(data))
        return at.value

    def made(self, call):
        handle = c_void_p()
        getattr(self.driver, call)(byref(handle), 1 if call == "cuStreamCreate" else 0)
        return handle

    def launch(self, kernel, blocks, n, status, scratch, stream=None):
        function, shared, groups, _, size = self.kernels[kernel]
        n_groups = min(n, self.n_multiprocessors * groups)
        values = c_uint64(blocks), c_uint32(n), c_uint64(status), c_uint64(self.tables), c_uint64(scratch), c_uint64(size)
        addresses = (c_void_p * 6)(*[ctypes.addressof(v) for v in values])
        self.driver.cuLaunchKernel(function, n_groups, 1, 1, THREADS, 1, 1, shared, stream, addresses, None)

    def scratch(self, kernel):
        _, _, groups, _, size = self.kernels[kernel]
        return self.allocate(size * groups * self.n_multiprocessors) if size else 0

    def time(self, work, repetitions):
        """The median of the seconds between two events."""
        times = []
        for _ in range(repetitions):
            begin, end, ms = self.made("cuEventCreate"), self.made("cuEventCreate"), c_float()
            self.driver.cuEventRecord(begin, None)
            work()
            self.driver.cuEventRecord(end, None)
            self.driver.cuEventSynchronize(end)
            self.driver.cuEventElapsedTime(byref(ms), begin, end)
            times.append(ms.value / 1e3)
            self.driver.cuEventDestroy_v2(begin)
            self.driver.cuEventDestroy_v2(end)
        return max(statistics.median(times), 1e-9)


def compile_text(text, arch):
    rtc = Library(*filter(None, [os.environ.get("LMC_NVRTC")]), "libnvrtc.so.13", "libnvrtc.so.12")
    program, size = c_void_p(), c_size_t()
    rtc.nvrtcCreateProgram(byref(program), text, b"decode.cu", 0, None, None)
    options = [b"--gpu-architecture=" + arch.encode(), b"--std=c++17", b"-default-device"]
    code = rtc.library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    rtc.nvrtcGetProgramLogSize(program, byref(size))
    log = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetProgramLog(program, log)
    if code:
        raise SystemExit(f"NVRTC: {log.value.decode()}")
    rtc.nvrtcGetCUBINSize(program, byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetCUBIN(program, cubin)
    rtc.nvrtcDestroyProgram(byref(program))
    return cubin


def find_nvrtc():
    """NVRTC of pip and of the CUDA Toolkit: versions that the driver supports, the newest last."""
    version, folders = c_int(), ["/usr/local/cuda*/lib64"]
    Library("libcuda.so.1").cuDriverGetVersion(byref(version))
    if importlib.util.find_spec("nvidia"):
        import nvidia

        folders += [f"{at}/*/lib" for at in nvidia.__path__]
    found = [path for folder in folders for path in glob.glob(f"{folder}/libnvrtc.so.1[123]*")]
    return sorted((path for path in found if int(re.search(r"so\.(\d+)", path)[1]) <= version.value // 1000), key=os.path.basename)


def make_plan(packed, folder):
    """Kernels, and rows of blocks, from bench/gpu.c."""
    said = subprocess.run([os.path.join(MADE, "plan"), packed, folder], check=True, capture_output=True, text=True).stdout
    kernels = [(name, *map(int, rest)) for name, *rest in map(str.split, said.splitlines())]
    with open(os.path.join(folder, "blocks.bin"), "rb") as f:
        return kernels, list(ROW.iter_unpack(f.read()))


def dtypes_of(model):
    """(first byte behind a tensor, its dtype), sorted, of a safetensors file."""
    size, = struct.unpack("<Q", model[:8])
    tensors = [t for name, t in json.loads(model[8 : 8 + size]).items() if name != "__metadata__"]
    return sorted((8 + size + t["data_offsets"][1], t["dtype"]) for t in tensors)


def pack(rows, source, target, copies=1, step_in=0, step_out=0):
    """The table of blocks for a kernel, of all copies."""
    return b"".join(
        BLOCK.pack(source + c * step_in + at, target + c * step_out + out, 0, in_size, size, number, flags)
        for c in range(copies)
        for at, out, _, in_size, size, number, flags in rows
    )


def bench_blocks(gpu, packed, wanted, rows, gigabytes, repetitions):
    """Each kernel with its blocks, then the next kernel with those that the first left. Returns the rows that each kernel decoded."""
    copies = max(1, int(gigabytes * 1e9 / len(wanted)))
    step_in, step_out = (len(packed) + PAD + 255) & ~255, (len(wanted) + 255) & ~255
    source, target = gpu.allocate(step_in * copies), gpu.allocate(step_out * copies)
    for c in range(copies):
        gpu.driver.cuMemcpyHtoD_v2(c_uint64(source + c * step_in), packed, c_size_t(len(packed)))
    ends = dtypes_of(wanted)
    left, done = {k: [r for r in rows if r[2] == k] for k in range(len(gpu.kernels))}, {}
    n_cpu = len(rows) - sum(map(len, left.values()))
    for k, (function, shared, groups, following, _) in enumerate(gpu.kernels):
        chosen = left[k]
        if not chosen:
            continue
        if not function:
            left.setdefault(following, []).extend(chosen)
            continue
        scratch = gpu.scratch(k)
        table, status = gpu.upload(pack(chosen, source, target)), gpu.upload(b"\xff" * 4 * len(chosen))
        gpu.launch(k, table, len(chosen), status, scratch)
        gpu.driver.cuCtxSynchronize()
        codes = struct.unpack(f"<{len(chosen)}I", gpu.download(status, 4 * len(chosen)))
        gpu.free(table, status)
        ok = [r for r, code in zip(chosen, codes) if code == 0]
        others = sorted({code for code in codes if code not in (0, NOT_HERE)})
        if others:
            raise SystemExit(f"kernel {k} refuses blocks of a good file: statuses {others}")
        left.setdefault(following, []).extend(r for r, code in zip(chosen, codes) if code)
        got = gpu.download(target, len(wanted))
        for _, out, _, _, size, number, _ in ok:
            if got[out : out + size] != wanted[out : out + size]:
                raise SystemExit(f"kernel {k}: WRONG BYTES in the block at {out}, number {number}")
        done[k] = ok
        print(f"blocks: kernel {k}, {shared} bytes of shared memory, {groups} groups: {len(ok)} of {len(chosen)} right", flush=True)
        of_dtype = {}
        for row in ok:  # a block that crosses tensors counts for the first
            of_dtype.setdefault(next(dtype for end, dtype in ends[bisect(ends, (row[1], "~")) :]), []).append(row)
        for dtype, some in sorted(of_dtype.items()):
            size = sum(r[4] for r in some) * copies
            table, status = gpu.upload(pack(some, source, target, copies, step_in, step_out)), gpu.allocate(4 * len(some) * copies)
            seconds = gpu.time(lambda: gpu.launch(k, table, len(some) * copies, status, scratch), repetitions)
            print(f"blocks: kernel {k}, {dtype}: {size / seconds / 1e9:.1f} GB/s of {size / 1e9:.2f} GB in {len(some) * copies} blocks", flush=True)
            gpu.free(table, status)
        if scratch:
            gpu.free(scratch)
    print(f"blocks: {n_cpu + len(left.get(-1, []))} of {len(rows)} are for the CPU")
    gpu.free(source, target)
    return done


def bench_pinned(gpu, packed, wanted, done, repetitions):
    """Waves of blocks: while one is decoded, the next one is copied."""
    kernel = max(done, key=lambda k: sum(r[4] for r in done[k]))
    rows, waves = done[kernel], [[]]
    for row in rows:
        if sum(r[4] for r in waves[-1]) + row[4] > STREAM_SIZE and waves[-1]:
            waves.append([])
        waves[-1].append(row)
    host, target, scratch = gpu.pin(packed), gpu.allocate(len(wanted)), gpu.scratch(kernel)
    spans = [(w[0][0], w[-1][0] + w[-1][3]) for w in waves]
    room = max(end - begin for begin, end in spans) + PAD + 256
    halves = [gpu.allocate(room) for _ in range(2)]
    tables = [gpu.upload(pack(w, halves[i % 2] - spans[i][0], target)) for i, w in enumerate(waves)]
    status = gpu.allocate(4 * max(map(len, waves)))
    copying, copied, free = gpu.made("cuStreamCreate"), [gpu.made("cuEventCreate") for _ in range(2)], [gpu.made("cuEventCreate") for _ in range(2)]

    def run():
        cu = gpu.driver
        for event in free:  # earlier timed work has ended
            cu.cuEventRecord(event, None)
        for i, (begin, end) in enumerate(spans):
            cu.cuStreamWaitEvent(copying, free[i % 2], 0)
            cu.cuMemcpyHtoDAsync_v2(c_uint64(halves[i % 2]), c_void_p(host + begin), c_size_t(end - begin), copying)
            cu.cuEventRecord(copied[i % 2], copying)
            cu.cuStreamWaitEvent(None, copied[i % 2], 0)
            gpu.launch(kernel, tables[i], len(waves[i]), status, scratch)
            cu.cuEventRecord(free[i % 2], None)

    seconds, size = gpu.time(run, repetitions), sum(r[4] for r in rows)
    got = gpu.download(target, len(wanted))
    if any(got[r[1] : r[1] + r[4]] != wanted[r[1] : r[1] + r[4]] for r in rows):
        raise SystemExit("pinned: WRONG BYTES")
    link = sum(end - begin for begin, end in spans)
    print(f"pinned: {size / seconds / 1e9:.1f} GB/s; {link / seconds / 1e9:.1f} GB/s of packed bytes over the link")
    gpu.free(target, status, *halves, *tables, *([scratch] if scratch else []))
    gpu.driver.cuMemFreeHost(c_void_p(host))


def median_of(work, repetitions):
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def is_same(a, b):
    import torch

    return torch.equal(a.cpu().reshape(-1).view(torch.uint8), b.cpu().reshape(-1).view(torch.uint8))


def bench_load(model, packed, repetitions):
    import torch
    from concurrent.futures import ThreadPoolExecutor
    from lmc_codec.torch import load_file
    from safetensors import safe_open

    size = os.path.getsize(model)

    def read_theirs(n):
        def read(names):
            with safe_open(model, "pt", device=DEVICE) as f:
                return [f.get_tensor(name) for name in names]

        with safe_open(model, "pt") as f:
            names = list(f.keys())
        with ThreadPoolExecutor(n) as pool:
            list(pool.map(read, [names[i::n] for i in range(n)]))
        torch.cuda.synchronize()

    def read_ours(decode):
        tensors = load_file(packed, DEVICE, decode=decode)
        torch.cuda.synchronize()
        return tensors

    ours = read_ours("gpu")
    with safe_open(model, "pt") as f:
        for name in f.keys():
            if not is_same(ours[name], f.get_tensor(name)):
                raise SystemExit(f"load: tensor {name} is WRONG")
    print(f"load: all {len(ours)} tensors are right", flush=True)
    del ours
    rows = [(f'LMC, decode="{d}"', lambda d=d: read_ours(d)) for d in ("gpu", "cpu")]
    rows += [(f"safetensors, {n} threads", lambda n=n: read_theirs(n)) for n in (1, 4, 16)]
    for what, work in rows:
        print(f"load: {what}: {size / median_of(work, repetitions) / 1e9:.2f} GB/s", flush=True)


def bench_delta(packed, folder, repetitions):
    import torch
    from lmc_codec.torch import apply_file, load_file, save_file

    before = load_file(packed)
    after = {}
    for name, t in before.items():
        after[name] = t.clone()
        if t.is_floating_point():
            at = torch.rand(t.shape) < 0.02
            after[name][at] = (after[name][at].float() * 1.01).to(t.dtype)
    size, delta = sum(t.nbytes for t in before.values()), os.path.join(folder, "delta.lmc")
    save_file(after, delta, base=packed)
    print(f"delta: {os.path.getsize(delta) / size:.2%} of the tensors' size", flush=True)
    weights = load_file(packed, DEVICE, decode="gpu")

    def apply(decode):
        times = []
        for _ in range(repetitions):
            for name, t in before.items():
                weights[name].copy_(t)
            torch.cuda.synchronize()
            start = time.perf_counter()
            apply_file(delta, weights, decode=decode)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            if not all(is_same(t, after[name]) for name, t in weights.items()):
                raise SystemExit("delta: tensors are WRONG")
        return statistics.median(times)

    for decode in "gpu", "cpu":
        print(f'delta: checked and applied, decode="{decode}": {size / apply(decode) / 1e9:.2f} GB/s', flush=True)


def bench_peers(model, repetitions):
    """Peers on the bf16 tensors, each by itself."""
    import torch
    from safetensors.torch import load_file

    tensors = load_file(model, device=DEVICE)
    chosen = [t for t in tensors.values() if t.dtype == torch.bfloat16 and t.numel() > 1 << 16]
    size = sum(t.nbytes for t in chosen)

    def show(what, packed, decode):
        def work():
            decode()
            torch.cuda.synchronize()

        work()
        print(f"peers: {what}: {packed / size:.1%}, {size / median_of(work, repetitions) / 1e9:.1f} GB/s", flush=True)

    def flat(t):
        return t.view(torch.uint8).reshape(-1)

    def planes(t):
        return flat(t).reshape(-1, 2).T.contiguous().reshape(-1)

    try:
        from nvidia import nvcomp
    except ImportError as error:
        print(f"peers: nvCOMP: {error}")
    else:
        for what, view, options in ("bytes", flat, {}), ("byte planes", planes, {}), ("<f2", lambda t: flat(t).view(torch.float16), {"data_type": "<f2"}):
            try:
                codec = nvcomp.Codec(algorithm="ANS", **options)
                arrays = codec.encode([nvcomp.as_array(view(t)) for t in chosen])
                show(f"nvCOMP ANS, {what}", sum(a.buffer_size for a in arrays), lambda: codec.decode(arrays))
            except (RuntimeError, ValueError) as error:
                print(f"peers: nvCOMP ANS, {what}: {error}", flush=True)
    if "DIETGPU" not in os.environ:
        print("peers: DietGPU: DIETGPU does not name its .so")
        return
    torch.ops.load_library(os.environ["DIETGPU"])
    made = torch.ops.dietgpu.compress_data_simple(True, chosen)
    show("DietGPU", sum(t.nbytes for t in made), lambda: torch.ops.dietgpu.decompress_data_simple(True, made))


# -- right or not --


def check_vectors(every):
    """Whole files: lmc_cuda_read and the CPU give the same bytes, or the same refusal."""
    import lmc_codec

    gpu, n_right, n_refused, n_left, n_wrong = GPU(), 0, 0, 0, 0
    cuda = lmc_codec._lmc.Cuda(0, os.environ.get("LMC_CUDA_CACHE"), os.environ.get("LMC_NVRTC"))
    with open(os.path.join(TOP, "spec/vectors/manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    at = os.path.join(TOP, "spec/vectors", "")
    cases = [(f"{at}{kind}/{x['name']}.lmc", [at + base for base in x["base"]]) for kind in ("valid", "invalid") for x in manifest[kind]]
    cases += [(os.path.join(TOP, "tests/golden", name), []) for name in sorted(os.listdir(os.path.join(TOP, "tests/golden"))) if name.endswith(".lmc")]

    def by_gpu(reader):
        places = [gpu.upload(b"\xa5" * x.size) for x in reader.files]
        try:
            cuda.read(reader._object, [(x.number, 0, x.size, to) for x, to in zip(reader.files, places)], 0)
            return [gpu.download(to, x.size) for x, to in zip(reader.files, places)]
        finally:
            gpu.free(*places)

    def by_cpu(reader):
        return [bytes(reader.read(x.path)) for x in reader.files]

    def outcome(path, bases, how):
        try:
            with lmc_codec.open(path, base=bases or None, threads=1) as reader:
                return how(reader)
        except lmc_codec.LMCError as error:
            return error
        except (ValueError, OSError):  # this package cannot open the base
            return None

    for path, bases in cases[::every]:
        wanted = outcome(path, bases, by_cpu)
        if wanted is None or (isinstance(wanted, lmc_codec.BaseError) and "/valid/" in path):
            n_left += 1
            continue
        got = outcome(path, bases, by_gpu)
        is_refused = isinstance(wanted, lmc_codec.LMCError)
        is_right = isinstance(got, lmc_codec.LMCError) and got.status == wanted.status if is_refused else got == wanted
        n_right, n_refused, n_wrong = n_right + (is_right and not is_refused), n_refused + (is_right and is_refused), n_wrong + (not is_right)
        if not is_right:
            print(f"vectors: {path}: WRONG: {got if isinstance(got, Exception) else 'other bytes'}; the CPU: {wanted if is_refused else 'accepts it'}", flush=True)
    blocks, others = cuda.counts()[:2]
    print(f"vectors: {n_right} right, {n_refused} refused alike, {n_wrong} WRONG, {n_left} left out; blocks: {blocks[0]} by the GPU, {others[0]} by the CPU")
    if n_wrong or not n_right or not n_refused:
        raise SystemExit(1)


def show_machine():
    import torch  # nothing else is used without it

    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, PyTorch {torch.__version__}")


# -- parts --


def make_model(model, gigabytes):
    """Tensors like those of an LLM: 70 % bf16, the rest fp32, fp16, fp8."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    tensors = {}
    for dtype, share in (torch.bfloat16, 0.7), (torch.float32, 0.15), (torch.float16, 0.1), (torch.float8_e4m3fn, 0.05):
        n = max(1, int(gigabytes * 1e9 * share / dtype.itemsize) >> 12)
        n_each = max(1, n // 8)
        for i in range(min(n, 8)):
            data = torch.randn(n_each, 4096, device=DEVICE) * (1.0 if dtype.itemsize == 1 else 0.02)
            tensors[f"layers.{i}.{str(dtype)[6:]}"] = data.to(dtype).cpu()
    save_file(tensors, model)


def compress(model, packed):
    import lmc_codec

    with lmc_codec.Writer(packed) as writer:
        writer.add_file(model, os.path.basename(model))


def has_torch():
    return all(importlib.util.find_spec(name) for name in ("torch", "safetensors"))


def sanitizer(tool):
    """The commands of a part."""
    path = shutil.which("compute-sanitizer") or next(iter(glob.glob("/usr/local/cuda*/bin/compute-sanitizer")), None)
    if not path:
        raise SystemExit("SKIPPED: compute-sanitizer is not on the path: it comes with the CUDA Toolkit")
    front = [path, "--tool", tool, "--error-exitcode", "9"]
    yield [*front, os.path.join(MADE, "test_kernel"), os.path.join(MADE, "blocks"), "--every", "40"]
    if tool == "memcheck":
        yield [*front, sys.executable, __file__, "--parts", "vectors", "--here", "--every", "40"]


def run_here(name, args, folder):
    """Runs a part in this process."""
    model, packed, repetitions = args.model or os.path.join(folder, "model.safetensors"), os.path.join(folder, "model.lmc"), 1 if args.dry else 10
    if name in ("load", "delta", "peers") and not has_torch():
        raise SystemExit("SKIPPED: PyTorch or safetensors is not installed")
    if args.dry and has_torch():
        lend_memory()
    if name == "machine":
        subprocess.run(["nvidia-smi"], check=False) if shutil.which("nvidia-smi") else print("no nvidia-smi")
        print(GPU().name)
        if has_torch():
            show_machine()
    elif name == "kernels":
        command = [os.path.join(MADE, "test_kernel"), os.path.join(MADE, "blocks")]
        raise SystemExit(subprocess.run(command, check=False).returncode)
    elif name == "vectors":
        check_vectors(args.every)
    elif name == "model":
        if not args.model and has_torch():
            make_model(model, 0.004 if args.dry else args.gb / 2)
        elif not args.model:
            shutil.copyfile(SAMPLE, model)
        compress(model, packed)
        print(f"model: {os.path.getsize(model) / 1e9:.3f} GB, compressed to {os.path.getsize(packed) / os.path.getsize(model):.2%}")
    elif name == "blocks":
        kernels, rows = make_plan(packed, folder)
        gpu = GPU(folder, kernels)
        with open(packed, "rb") as f, open(model, "rb") as g:
            data, wanted = f.read(), g.read()
        done = bench_blocks(gpu, data, wanted, rows, 0 if args.dry else args.gb, repetitions)
        if any(done.values()):
            bench_pinned(gpu, data, wanted, done, repetitions)
    elif name == "load":
        bench_load(model, packed, repetitions)
    elif name == "delta":
        bench_delta(packed, folder, min(repetitions, 3))
    elif name == "peers":
        bench_peers(model, repetitions)
    else:
        for command in sanitizer(name):
            subprocess.run(command, check=True, env={**os.environ, "LMC_TEST_BRIEF": "1"})


def lend_memory():
    """For --dry: tensors on the CPU are used as the device's memory."""
    global DEVICE
    sys.path.insert(0, os.path.join(TOP, "python/tests"))
    import stand_in

    stand_in.install()
    DEVICE = "cpu"


SECONDS = {
    "machine": 20, "kernels": 90, "vectors": 60, "model": 60, "blocks": 90, "load": 90, "delta": 60, "peers": 60,
    "memcheck": 45, "racecheck": 45, "initcheck": 45, "synccheck": 45
}  # fmt: skip


def run_part(name, args, folder, seconds, log):
    """Runs a part in a process of its own; returns how it has ended, and its output."""
    options = [x for x in (args.model, "--dry" if args.dry else None) if x]
    command = [sys.executable, __file__, "--parts", name, "--here", "--folder", folder, "--gb", str(args.gb), "--every", str(args.every), *options]
    start, lines = time.monotonic(), []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0)
    watch = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    watch.start()
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        for to in log, sys.stdout:
            to.write(line)
            to.flush()
    code, took = process.wait(), time.monotonic() - start
    watch.cancel()
    ended = "SKIPPED" if any(x.startswith("SKIPPED") for x in lines[-1:]) else {0: "ok", -signal.SIGKILL: f"killed after {took:.0f} s"}.get(code, f"FAILED ({code})")
    return {"part": name, "ended": ended, "seconds": round(took, 1), "said": lines[-200:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--parts", default=",".join(SECONDS))
    parser.add_argument("--out", default=os.environ.get("OUT") or os.path.join(TOP, "build/gpu-results"))
    parser.add_argument("--limit", type=float, help="seconds for all parts (540)")
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--every", type=int, default=1, help="of the vectors, one in so many")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    parts = args.parts.split(",")
    if not set(parts) <= set(SECONDS):
        parser.error(f"parts are {', '.join(SECONDS)}")
    if args.here:
        return run_here(parts[0], args, args.folder)
    if args.make or not is_made():
        make()
    if args.make:
        return None
    os.makedirs(args.out, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(args.out, "gpu.txt"), "w", encoding="utf-8") as log:
        set_environment(args, folder)
        slack = 10 if args.dry else 1  # a CPU, which may be busy
        end = time.monotonic() + (args.limit or 540 * slack)
        for name in parts:
            seconds = min(SECONDS[name] * slack, end - time.monotonic())
            log.write(f"== {name}\n")
            print(f"== {name}", flush=True)
            found.append(run_part(name, args, folder, seconds, log) if seconds > 5 else {"part": name, "ended": "SKIPPED: no time is left"})
            last = f"== {name}: {found[-1]['ended']}, {found[-1].get('seconds', 0)} s\n"
            log.write(last)
            log.flush()
            print(last, flush=True)
            with open(os.path.join(args.out, "gpu.json"), "w", encoding="utf-8") as f:
                json.dump(found, f, indent=1)
    return 1 if any(x["ended"].startswith(("FAILED", "killed")) for x in found) else 0


def made_of():
    """A digest of the programs' sources; in a copied tree, times mean nothing."""
    digest = hashlib.sha256()
    for pattern in "lmc.h", "include/*.h", "bench/gpu.c", "tests/codec/*.[ch]", "tests/gpu/*.cpp", "python/src/*", "python/lmc_codec/*.py":
        for path in sorted(glob.glob(os.path.join(TOP, pattern))):
            with open(path, "rb") as f:
                digest.update(f.read())
    return digest.hexdigest()


def is_made():
    """Whether --make has built these sources; and programs that another machine has built can start here."""
    try:
        with open(os.path.join(MADE, "made_of"), encoding="ascii") as f:
            is_ours = f.read() == made_of()
        return is_ours and subprocess.run([os.path.join(MADE, "test_kernel")], capture_output=True, check=False).returncode == 2
    except OSError:
        return False


def make():
    subprocess.run(["make", "-s", "-C", TOP, "gpu-check", f"PYTHON={sys.executable}"], check=True)
    with open(os.path.join(MADE, "made_of"), "w", encoding="ascii") as f:
        f.write(made_of())


def set_environment(args, folder):
    """Sets the environment of the parts."""
    site = os.path.join(folder, "site")
    for wheel in glob.glob(os.path.join(MADE, "wheels/*.whl")):
        shutil.unpack_archive(wheel, site, "zip")
    paths = [os.path.join(TOP, "build/python"), site, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["LMC_CUDA_CACHE"] = os.path.join(folder, "kernels")
    os.mkdir(os.environ["LMC_CUDA_CACHE"], 0o700)
    if args.dry:
        os.environ["LD_LIBRARY_PATH"] = os.path.join(TOP, "build/gpu")
        os.environ.setdefault("LMC_TEST_BRIEF", "1")
    else:
        for path in find_nvrtc()[-1:]:
            os.environ.setdefault("LMC_NVRTC", path)


if __name__ == "__main__":
    sys.exit(main())
