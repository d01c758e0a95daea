#!/usr/bin/env python3
"""Decoding on a GPU: is every byte right, and how fast is it? For a machine that has a GPU of NVIDIA. Experimental: NOT RUN on one yet.

    bench/gpu.py MODEL.safetensors [--gb N] [--sanitize] [--quick]

The file is compressed first. Then, each only if what stands before was right:

    blocks       of the whole file, in the memory of the device: the kernels alone. --gb (2): of copies side by side, so that
                 no cache helps
    pinned       the same, with packed bytes from pinned memory: copies and kernels in two streams
    file         from the file to tensors (lmc_codec.torch.load_file): decode="gpu", decode="cpu", and safetensors with
                 1, 4 and 16 threads. All read a file that the system has in memory
    delta        apply_file of a delta of 2 % of the elements, in place
    peers        nvCOMP's ANS (nvidia-nvcomp-cu12) and DietGPU (DIETGPU: its .so) on the same tensors, where they are there

--sanitize runs the first four (the first two without PyTorch) under the four tools of compute-sanitizer, --quick everything once. Medians of 10 (delta: once), GB/s of decoded
bytes. `blocks` and `pinned` need the driver, NVRTC and a C compiler; the others PyTorch with CUDA, safetensors and lmc_codec.
"""
import argparse
import ctypes
import importlib.util
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICE = "cuda:0"
ROW = struct.Struct("<QQQIIII")  # bench/gpu.c
BLOCK = struct.Struct("<QQQIIII")  # lmc__gpu_block
THREADS, PAD, NOT_HERE, STREAM_SIZE = 256, 16, 255, 64 << 20


class Library:
    """Functions that return 0, or the error that becomes an exception."""

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
    """The driver, the kernels, and what is allocated."""

    def __init__(self, folder, kernels):
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
        """Median of seconds between two events."""
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
    rtc = Library("libnvrtc.so.13", "libnvrtc.so.12", *find_nvrtc())
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
    try:
        import nvidia
    except ImportError:
        return []
    import glob

    return [path for at in nvidia.__path__ for path in sorted(glob.glob(f"{at}/*/lib/libnvrtc.so.*"))]


def make_plan(packed, folder):
    """Compiles bench/gpu.c and runs it: kernels, and rows of blocks."""
    program = os.path.join(folder, "plan")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-std=c99", "-O0", "-w", os.path.join(HERE, "gpu.c"), "-o", program, "-lm", "-ldl"], check=True)
    said = subprocess.run([program, packed, folder], check=True, capture_output=True, text=True).stdout
    kernels = [(name, *map(int, rest)) for name, *rest in map(str.split, said.splitlines())]
    with open(os.path.join(folder, "blocks.bin"), "rb") as f:
        return kernels, list(ROW.iter_unpack(f.read()))


def pack(rows, source, target, copies=1, step_in=0, step_out=0):
    """The table of blocks for a kernel, of all copies."""
    return b"".join(
        BLOCK.pack(source + c * step_in + at, target + c * step_out + out, 0, in_size, size, number, flags)
        for c in range(copies)
        for at, out, _, in_size, size, number, flags in rows
    )


def bench_blocks(gpu, packed, wanted, rows, gigabytes, repetitions):
    """Each kernel with its blocks, then the next one with what that left. Returns the rows that each kernel did."""
    copies = max(1, int(gigabytes * 1e9 / len(wanted)))
    step_in, step_out = (len(packed) + PAD + 255) & ~255, (len(wanted) + 255) & ~255
    source, target = gpu.allocate(step_in * copies), gpu.allocate(step_out * copies)
    for c in range(copies):
        gpu.driver.cuMemcpyHtoD_v2(c_uint64(source + c * step_in), packed, c_size_t(len(packed)))
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
        speed = ""
        if ok:
            table = gpu.upload(pack(ok, source, target, copies, step_in, step_out))
            status = gpu.allocate(4 * len(ok) * copies)
            seconds = gpu.time(lambda: gpu.launch(k, table, len(ok) * copies, status, scratch), repetitions)
            speed = f", {sum(r[4] for r in ok) * copies / seconds / 1e9:.1f} GB/s of {sum(r[4] for r in ok) * copies / 1e9:.2f} GB"
            gpu.free(table, status)
        print(f"blocks: kernel {k}, {shared} bytes of shared memory, {groups} groups: {len(ok)} of {len(chosen)} right{speed}", flush=True)
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
        for event in free:  # what was timed before is over
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


def bench_files(model, packed, folder, repetitions):
    import torch
    from concurrent.futures import ThreadPoolExecutor
    from lmc_codec.torch import apply_file, load_file, save_file
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
            want = f.get_tensor(name)
            if not torch.equal(ours[name].cpu().reshape(-1).view(torch.uint8), want.reshape(-1).view(torch.uint8)):
                raise SystemExit(f"file: tensor {name} is WRONG")
    print(f"file: all {len(ours)} tensors are right")
    rows = [(f'LMC, decode="{d}"', lambda d=d: read_ours(d)) for d in ("gpu", "cpu")]
    rows += [(f"safetensors, {n} threads", lambda n=n: read_theirs(n)) for n in (1, 4, 16)]
    for what, work in rows:
        print(f"file: {what}: {size / median_of(work, repetitions) / 1e9:.2f} GB/s", flush=True)

    after = {}
    for name, t in ours.items():
        after[name] = t.cpu().clone()
        if t.is_floating_point():
            at = torch.rand(t.shape) < 0.02
            after[name][at] = (after[name][at].float() * 1.01).to(t.dtype)
    delta = os.path.join(folder, "delta.lmc")
    save_file(after, delta, base=packed)
    start = time.perf_counter()
    apply_file(delta, ours, decode="gpu")
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    for name, t in ours.items():
        if not torch.equal(t.cpu().reshape(-1).view(torch.uint8), after[name].reshape(-1).view(torch.uint8)):
            raise SystemExit(f"delta: tensor {name} is WRONG")
    print(f"delta: {os.path.getsize(delta) / size:.2%} of the file, checked and applied at {size / seconds / 1e9:.2f} GB/s")
    return ours


def bench_peers(tensors, repetitions):
    """On the tensors of bf16, each by itself."""
    import torch

    chosen = [t for t in tensors.values() if t.dtype == torch.bfloat16 and t.numel() > 1 << 16]
    size = sum(t.nbytes for t in chosen)

    def show(what, packed, decode):
        def work():
            decode()
            torch.cuda.synchronize()

        work()
        print(f"peers: {what}: {packed / size:.1%}, {size / median_of(work, repetitions) / 1e9:.1f} GB/s", flush=True)

    try:
        from nvidia import nvcomp
    except ImportError as error:
        print(f"peers: nvCOMP: {error}")
    else:
        codec = nvcomp.Codec(algorithm="ANS")
        arrays = [codec.encode(nvcomp.as_array(t.view(torch.uint8).reshape(-1))) for t in chosen]
        show("nvCOMP ANS", sum(a.buffer_size for a in arrays), lambda: [codec.decode(a) for a in arrays])
    if "DIETGPU" not in os.environ:
        print("peers: DietGPU: DIETGPU does not name its .so")
        return
    torch.ops.load_library(os.environ["DIETGPU"])
    made = torch.ops.dietgpu.compress_data_simple(True, chosen)
    show("DietGPU", sum(t.nbytes for t in made), lambda: torch.ops.dietgpu.decompress_data_simple(True, made))


def sanitize(model):
    tool = shutil.which("compute-sanitizer")
    if not tool:
        raise SystemExit("compute-sanitizer is not on the path: it comes with the CUDA Toolkit")
    has_torch = all(importlib.util.find_spec(name) for name in ("torch", "safetensors", "lmc_codec"))
    how = ["--quick", "--no-peers" if has_torch else "--only-blocks"]
    for name in ("memcheck", "racecheck", "initcheck", "synccheck"):
        print(f"-- {name}", flush=True)
        subprocess.run([tool, "--tool", name, "--error-exitcode", "9", sys.executable, __file__, *how, model], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only-blocks", action="store_true", help="neither files nor peers")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    if args.sanitize:
        return sanitize(args.model)
    repetitions, gigabytes = (1, 0) if args.quick else (10, args.gb)
    with tempfile.TemporaryDirectory() as folder:
        packed = os.path.join(folder, "model.lmc")
        if shutil.which("lmc"):
            subprocess.run(["lmc", "-q", "-o", packed, args.model], check=True)
        else:
            subprocess.run([sys.executable, "-m", "lmc_codec", "-q", "-o", packed, args.model], check=True)
        kernels, rows = make_plan(packed, folder)
        gpu = GPU(folder, kernels)
        print(gpu.name)
        with open(packed, "rb") as f, open(args.model, "rb") as g:
            data, wanted = f.read(), g.read()
        done = bench_blocks(gpu, data, wanted, rows, gigabytes, repetitions)
        if any(done.values()):
            bench_pinned(gpu, data, wanted, done, repetitions)
        if not args.only_blocks:
            tensors = bench_files(args.model, packed, folder, repetitions)
            if not args.no_peers:
                bench_peers(tensors, repetitions)


if __name__ == "__main__":
    main()
