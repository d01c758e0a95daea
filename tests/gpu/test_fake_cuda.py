#!/usr/bin/env python3
"""The stand-in for the driver: does it find the mistakes that it is there to find? See fake_cuda.cpp."""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cuda = ctypes.CDLL(os.path.join(TOP, "build/gpu/libcuda.so.1"))
nvrtc = ctypes.CDLL(os.path.join(TOP, "build/gpu/libnvrtc.so.12"))
for library in cuda, nvrtc:
    library.fake_cuda_says.restype = c_char_p
    library.fake_cuda_count.restype = library.fake_cuda_live.restype = c_long
cuda.fake_cuda_adopt.argtypes = c_void_p, c_size_t
for name, arguments in {
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t), "cuMemFree_v2": (c_uint64,), "cuMemFreeHost": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint), "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p), "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t), "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, c_size_t, c_void_p), "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint), "cuStreamDestroy_v2": (c_void_p,), "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p), "cuEventSynchronize": (c_void_p,), "cuStreamQuery": (c_void_p,),
    "cuModuleUnload": (c_void_p,), "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int), "cuCtxSetCurrent": (c_void_p,), "cuCtxPushCurrent_v2": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), c_void_p),
}.items():  # fmt: skip
    getattr(cuda, name).argtypes = arguments
nvrtc.nvrtcCompileProgram.argtypes = c_void_p, c_int, POINTER(c_char_p)
nvrtc.nvrtcGetCUBIN.argtypes = c_void_p, c_void_p
VALUE, MEMORY, CONTEXT, HANDLE, NOT_READY, ADDRESS = 1, 2, 201, 400, 600, 700
KERNEL = b"lmc_decode_any"


class Settings:
    def __init__(self, **settings):
        self.settings = settings

    def __enter__(self):
        for name, value in self.settings.items():
            os.environ["FAKE_CUDA_" + name] = str(value)

    def __exit__(self, *unused):
        for name in self.settings:
            del os.environ["FAKE_CUDA_" + name]


class Driver(unittest.TestCase):
    def setUp(self):
        cuda.fake_cuda_reset()
        self.stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # what it says there is asked for
        os.close(null)
        self.done(cuda.cuInit(0))
        self.context = c_void_p()
        self.done(cuda.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        self.done(cuda.cuCtxSetCurrent(self.context))
        self.to_free = []

    def tearDown(self):
        for call, what in self.to_free:
            call(what)
        self.done(cuda.cuDevicePrimaryCtxRelease_v2(0))
        self.done(cuda.cuCtxSetCurrent(None))
        os.dup2(self.stderr, 2)
        os.close(self.stderr)
        self.assertEqual(cuda.fake_cuda_live(), 0)

    def done(self, code):
        self.assertEqual(code, 0, cuda.fake_cuda_says())

    def refused(self, code, wanted, text):
        self.assertEqual(code, wanted)
        self.assertIn(text, cuda.fake_cuda_says())

    def device(self, size):
        at = c_uint64()
        self.done(cuda.cuMemAlloc_v2(byref(at), size))
        self.to_free.append((cuda.cuMemFree_v2, at))
        return at.value

    def pinned(self, size):
        at = c_void_p()
        self.done(cuda.cuMemHostAlloc(byref(at), size, 0))
        self.to_free.append((cuda.cuMemFreeHost, at))
        return at.value

    def made(self, create, destroy):
        handle = c_void_p()
        self.done(create(byref(handle), 0))
        self.to_free.append((destroy, handle))
        return handle

    def stream(self):
        return self.made(cuda.cuStreamCreate, cuda.cuStreamDestroy_v2)

    def event(self):
        return self.made(cuda.cuEventCreate, cuda.cuEventDestroy_v2)

    def test_work_waits_until_somebody_waits(self):
        a, d, s = self.pinned(100), self.device(100), self.stream()
        b = self.pinned(100)
        ctypes.memset(a, 7, 100)
        ctypes.memset(b, 0, 100)
        self.done(cuda.cuMemcpyHtoDAsync_v2(d, a, 100, s))
        ctypes.memset(a, 8, 100)  # too early: this is what arrives
        self.done(cuda.cuMemcpyDtoHAsync_v2(b, d, 100, s))
        self.assertEqual(ctypes.string_at(b, 100), bytes(100))
        self.assertEqual(cuda.cuStreamQuery(s), NOT_READY)  # runs one piece
        self.assertEqual(ctypes.string_at(b, 100), bytes(100))
        self.done(cuda.cuStreamSynchronize(s))
        self.assertEqual(ctypes.string_at(b, 100), b"\x08" * 100)
        self.assertEqual(cuda.fake_cuda_count(b"pageable"), 0)

    def test_streams_wait_for_events_alone(self):
        a, b, d, e = self.pinned(64), self.pinned(64), self.device(64), self.event()
        one, two = self.stream(), self.stream()
        ctypes.memset(a, 7, 64)
        self.done(cuda.cuMemcpyHtoDAsync_v2(d, a, 64, one))
        self.done(cuda.cuMemcpyDtoHAsync_v2(b, d, 64, two))
        self.done(cuda.cuStreamSynchronize(two))
        self.assertEqual(ctypes.string_at(b, 64), b"\xa5" * 64)  # new memory is garbage
        self.done(cuda.cuEventRecord(e, one))
        self.done(cuda.cuStreamWaitEvent(two, e, 0))
        self.done(cuda.cuMemcpyDtoHAsync_v2(b, d, 64, two))
        self.done(cuda.cuStreamSynchronize(two))
        self.assertEqual(ctypes.string_at(b, 64), b"\x07" * 64)
        self.done(cuda.cuEventSynchronize(e))

    def test_order_by_chance(self):
        found = set()
        d = self.device(1)
        one, two = self.stream(), self.stream()
        for seed in range(1, 40):  # fills in two streams that nothing orders
            with Settings(ORDER=seed):
                self.done(cuda.cuMemsetD8Async(d, 1, 1, one))
                self.done(cuda.cuMemsetD8Async(d, 2, 1, two))
                for s in one, two:
                    self.done(cuda.cuStreamSynchronize(s))
            b = (ctypes.c_ubyte * 1)()
            self.done(cuda.cuMemcpyDtoH_v2(b, d, 1))
            found.add(b[0])
        self.assertEqual(found, {1, 2})

    def test_host_memory_is_refused(self):
        d, host = self.device(10), ctypes.create_string_buffer(10)
        at, pinned = ctypes.addressof(host), self.pinned(10)
        for dst in at, pinned, 0, d + 1, d - 1:
            self.refused(cuda.cuMemcpyHtoDAsync_v2(dst, host, 10, None), VALUE, b"is no device memory")
            self.refused(cuda.cuMemcpyDtoDAsync_v2(d, dst, 10, None), VALUE, b"is no device memory")
            self.refused(cuda.cuMemsetD8Async(dst, 0, 10, None), VALUE, b"is no device memory")
        self.refused(cuda.cuMemcpyDtoHAsync_v2(d, d, 10, None), VALUE, b"is no memory of the host")
        self.refused(cuda.cuMemcpyDtoDAsync_v2(d, d + 1, 5, None), VALUE, b"overlap")
        self.done(cuda.cuMemcpyHtoDAsync_v2(d, host, 10, None))
        self.assertEqual(cuda.fake_cuda_count(b"pageable"), 1)
        cuda.fake_cuda_adopt(at, 10)
        self.done(cuda.cuMemcpyDtoD_v2(d, at, 10))
        self.done(cuda.cuStreamSynchronize(None))
        cuda.fake_cuda_adopt(at, 0)
        self.refused(cuda.cuMemcpyDtoD_v2(d, at, 10), VALUE, b"is no device memory")

    def test_memory_that_is_freed_too_early(self):
        for pinned in False, True:
            at, d = c_void_p(), c_uint64()
            self.done(cuda.cuMemHostAlloc(byref(at), 10, 0))
            self.done(cuda.cuMemAlloc_v2(byref(d), 10))
            self.done(cuda.cuMemcpyHtoDAsync_v2(d, at, 10, None))
            self.done(cuda.cuMemFreeHost(at) if pinned else cuda.cuMemFree_v2(d))
            self.assertEqual(cuda.cuStreamSynchronize(None), ADDRESS)
            self.assertEqual(cuda.cuStreamSynchronize(None), ADDRESS)  # broken, as it is there
            self.done(cuda.cuMemFree_v2(d) if pinned else cuda.cuMemFreeHost(at))
            self.done(cuda.cuDevicePrimaryCtxRelease_v2(0))
            self.done(cuda.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        self.refused(cuda.cuMemFreeHost(at), VALUE, b"or is freed")
        self.refused(cuda.cuMemFree_v2(d), VALUE, b"or is freed")

    def test_the_cpu_cannot_touch_device_memory(self):
        d = self.device(300)
        for at in d, d + 299:
            pid = os.fork()
            if pid == 0:
                ctypes.string_at(at, 1)
                os._exit(0)
            self.assertEqual(os.waitpid(pid, 0)[1] & 127, 11)

    def test_a_full_device(self):
        with Settings(MEMORY=1000):
            d, e = self.device(600), c_uint64()
            self.assertEqual(cuda.cuMemAlloc_v2(byref(e), 401), MEMORY)
            self.device(400)

    def test_chosen_calls_fail(self):
        d = c_uint64()
        with Settings(FAIL="cuMemAlloc_v2:2,cuStreamSynchronize:1+=719"):
            self.device(1)
            self.assertEqual(cuda.cuMemAlloc_v2(byref(d), 1), MEMORY)
            self.device(1)
            self.assertEqual([cuda.cuStreamSynchronize(None) for _ in range(3)], [719] * 3)
        self.done(cuda.cuStreamSynchronize(None))

    def test_context_and_handles(self):
        s, d = self.stream(), c_uint64()
        self.done(cuda.cuCtxSetCurrent(None))
        self.refused(cuda.cuMemAlloc_v2(byref(d), 1), CONTEXT, b"no context in this thread")
        self.done(cuda.cuCtxPushCurrent_v2(self.context))
        self.assertEqual(cuda.cuStreamSynchronize(0x1234), HANDLE)
        self.assertEqual(cuda.cuEventRecord(s, None), HANDLE)

    # -- kernels --

    def compile(self, text=None, options=(b"--gpu-architecture=sm_90",)):
        if text is None:
            text = b""
            for file in "decode.cu", "sums.cu":
                with open(os.path.join(TOP, "src/gpu", file), "rb") as f:
                    text += f.read()
        program, size = c_void_p(), c_size_t()
        self.done(nvrtc.nvrtcCreateProgram(byref(program), text, b"decode.cu", 0, None, None))
        self.code = nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*options))
        self.done(nvrtc.nvrtcGetProgramLogSize(program, byref(size)))
        log = ctypes.create_string_buffer(size.value)
        self.done(nvrtc.nvrtcGetProgramLog(program, log))
        self.done(nvrtc.nvrtcGetCUBINSize(program, byref(size)))
        cubin = ctypes.create_string_buffer(max(size.value, 256))
        self.done(nvrtc.nvrtcGetCUBIN(program, cubin))
        self.done(nvrtc.nvrtcDestroyProgram(byref(program)))
        self.assertEqual(nvrtc.fake_cuda_live(), 0)
        return cubin, log.value

    def function(self, cubin, name=KERNEL):
        module, function = c_void_p(), c_void_p()
        self.done(cuda.cuModuleLoadData(byref(module), cubin))
        self.to_free.append((cuda.cuModuleUnload, module))
        self.done(cuda.cuModuleGetFunction(byref(function), module, name))
        return function

    def launch(self, function, blocks, n, status, tables, shared=1000, threads=256, groups=1):
        values = c_uint64(blocks), c_uint32(n), c_uint64(status), c_uint64(tables), c_uint64(0), c_uint64(0)
        addresses = (c_void_p * 6)(*[ctypes.addressof(v) for v in values])
        return cuda.cuLaunchKernel(function, groups, 1, 1, threads, 1, 1, shared, None, addresses, None)

    def test_the_compiler(self):
        cubin, log = self.compile(b"other text")
        self.assertEqual(self.code, 6)
        self.assertIn(b"not the text", log)
        self.compile(options=(b"--gpu-architecture=compute_90",))
        self.assertEqual(self.code, 3)
        with Settings(FAIL="nvrtcCompileProgram"):
            _, log = self.compile()
        self.assertEqual(self.code, 6)
        self.assertIn(b"error", log)
        cubin, _ = self.compile()
        self.assertEqual(self.code, 0)
        module = c_void_p()
        with Settings(ARCH=80):
            self.refused(cuda.cuModuleLoadData(byref(module), cubin), 209, b"sm_90")
        self.refused(cuda.cuModuleLoadData(byref(module), bytes(300)), 200, b"no cubin")
        self.function(cubin)
        self.done(cuda.cuModuleLoadData(byref(module), cubin))
        self.refused(cuda.cuModuleGetFunction(byref(c_void_p()), module, b"lmc_other"), 500, b"lmc_other")
        self.done(cuda.cuModuleUnload(module))

    def test_launches_are_checked(self):
        f = self.function(self.compile()[0])
        host = ctypes.create_string_buffer(100000)
        at = ctypes.addressof(host)
        blocks, status, tables, data = self.device(48), self.device(4), self.device(100000), self.device(1024)
        self.refused(self.launch(f, blocks, 1, status, tables, shared=50000), VALUE, b"49152 are allowed")
        self.refused(cuda.cuFuncSetAttribute(f, 8, 300000), VALUE, b"attribute 8")
        self.done(cuda.cuFuncSetAttribute(f, 8, 50000))
        self.refused(self.launch(f, blocks, 1, status, tables, threads=33), VALUE, b"33")
        good = [data, data + 512, 0, 100, 64]  # in, out, base, in_size, out_size
        for wrong in (
            None, (0, at), (1, at), (2, at), (0, data + 1024 - 115), (1, data + 961), (3, 1009), (4, 513), "blocks", "status", "tables"
        ):  # fmt: skip
            row = list(good)
            if isinstance(wrong, tuple):
                row[wrong[0]] = wrong[1]
            block = (c_uint64 * 3)(*row[:3]), (c_uint32 * 4)(*row[3:], 0, 0)
            packed = b"".join(bytes(x) for x in block).ljust(48, b"\0")
            ctypes.memmove(host, packed, 48)
            self.done(cuda.cuMemcpyHtoD_v2(blocks, host, 48))
            self.done(cuda.cuMemsetD8Async(data, 0, 1024, None))
            places = {"blocks": blocks, "status": status, "tables": tables}
            if isinstance(wrong, str):
                places[wrong] = at
            with Settings(STATUS=77):
                self.done(self.launch(f, places["blocks"], 1, places["status"], places["tables"]))
                code = cuda.cuStreamSynchronize(None)
            if wrong is None:
                self.done(code)
                word = c_uint32()
                self.done(cuda.cuMemcpyDtoH_v2(byref(word), status, 4))
                self.assertEqual(word.value, 77)
                self.assertEqual((cuda.fake_cuda_count(b"kernel"), cuda.fake_cuda_count(b"block")), (1, 1))
                continue
            self.refused(code, ADDRESS, b"is no device memory")
            self.done(cuda.cuDevicePrimaryCtxRelease_v2(0))
            self.done(cuda.cuDevicePrimaryCtxRetain(byref(self.context), 0))

    def test_a_kernel_fails(self):
        f = self.function(self.compile()[0])
        blocks, status, tables = self.device(48), self.device(4), self.device(100000)
        with Settings(FAIL="kernel=719"):
            self.done(self.launch(f, blocks, 0, status, tables))
            self.assertEqual(cuda.cuStreamSynchronize(None), 719)
        self.assertEqual(cuda.cuMemsetD8Async(blocks, 0, 1, None), 719)


@unittest.skipUnless(os.path.exists(f"{TOP}/build/gpu-check/made_of"), "bench/gpu.py --make was not run")
class Benchmark(unittest.TestCase):
    """bench/gpu.py, on the stand-ins: what needs no PyTorch. The suite python has the rest."""

    def run_it(self, *arguments, **settings):
        """Its exit code, what it says, and its parts by name."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, f"{TOP}/bench/gpu.py", "--dry", "--out", folder, *arguments]
            result = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
            with open(f"{folder}/gpu.json") as f, open(f"{folder}/gpu.txt") as g:
                parts, log = {part["part"]: part for part in json.load(f)}, g.read()
        self.assertEqual(log.split(), result.stdout.split())
        return result.returncode, log, parts

    def test_all_is_right(self):
        code, log, parts = self.run_it()
        self.assertEqual(code, 0, log)
        self.assertEqual({part["ended"] for part in parts.values()} - {"ok", "SKIPPED"}, set())
        for name in "machine", "kernels", "vectors", "model", "blocks":
            self.assertEqual(parts[name]["ended"], "ok", log)
        self.assertRegex(log, r"blocks: kernel 0, .*: (\d+) of \1 right")
        self.assertRegex(log, r"blocks: kernel 0, BF16: .* GB/s[^$]*pinned: .* GB/s")
        self.assertRegex(log, r"vectors: \d{3} right, \d{4} refused alike, 0 WRONG, \d{2} left out; blocks: \d{3} by the GPU")

    def test_sanitizers(self):
        """What is run under them; the stand-in of the tool says it. One fails."""
        with tempfile.TemporaryDirectory() as folder:
            tool = os.path.join(folder, "compute-sanitizer")
            with open(tool, "w") as f:
                f.write('#!/bin/sh\necho "ran $*"\ntest $2 != racecheck || exit 9\n')
            os.chmod(tool, 0o755)
            names = ["memcheck", "racecheck", "initcheck", "synccheck"]
            code, log, parts = self.run_it("--parts", ",".join(names), PATH=f"{folder}:{os.environ['PATH']}")
        self.assertEqual(code, 1)
        ran = re.findall(r"^ran --tool (\w+) --error-exitcode 9 .*?(test_kernel .*/blocks|gpu.py --parts vectors) .*--every 40$", log, re.M)
        self.assertEqual([name for name, _ in ran], ["memcheck", *names])
        self.assertEqual([parts[name]["ended"] for name in names], ["ok", "FAILED (1)", "ok", "ok"])

    def test_wrong_bytes_are_found(self):
        code, log, parts = self.run_it("--parts", "kernels,vectors,model,blocks", "--every", "20", FAKE_CUDA_STATUS="0")  # that all is well
        self.assertEqual(code, 1)
        self.assertEqual([part["ended"] for part in parts.values()], ["FAILED (1)", "FAILED (1)", "ok", "FAILED (1)"], log)
        self.assertRegex(log, r"spec/vectors/valid/\w+.lmc: WRONG: ")
        self.assertIn("WRONG BYTES", log)

    def test_limits_of_time(self):
        code, log, parts = self.run_it("--parts", "kernels,vectors", "--limit", "6", LMC_TEST_BRIEF="")  # all cases: they take minutes here
        self.assertEqual([part["ended"].split()[0] for part in parts.values()], ["killed", "SKIPPED:"], log)
        self.assertEqual(code, 1)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    n_failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.testsRun - n_failed, n_failed))
    sys.exit(n_failed != 0)
