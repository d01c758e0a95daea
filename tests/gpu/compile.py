#!/usr/bin/env python3
"""Compiles src/gpu/decode.cu and sums.cu by NVRTC for five GPUs, as lmc_cuda.h does on a machine that has one, and compares what the
kernels take with tests/gpu/budget.txt. No GPU is needed; but the package nvidia-cuda-nvrtc-cu12 (tests/install), which has the assembler in it.

Usage: compile.py             fails where a kernel takes more than the table has, or where the table has what is not there
       compile.py --record    writes the table
       compile.py --cubin DIR writes the binaries, for nvdisasm
       compile.py --is-installed   exits with 0 if that package is here

SPDX-License-Identifier: MIT
"""
import ctypes
import glob
import os
import re
import struct
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = [os.path.join(HERE, "..", "..", "src", "gpu", name) for name in ("decode.cu", "sums.cu")]
BUDGET = os.path.join(HERE, "budget.txt")
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
COLUMNS = ["registers", "spills", "stack", "instructions"]
HEAD = """\
# What the kernels of src/gpu take at most: made by tests/gpu/compile.py --record, checked by the suite gpu.
# Registers of a thread; bytes of them that are spilled (stores), and of the stack; instructions of 16 bytes: all with those of functions
# that are not inlined. Shared memory is of the host (src/gpu/kernels.h): it is dynamic.
"""


def find():
    return glob.glob(os.path.join(sysconfig.get_paths()["purelib"], "nvidia", "cuda_nvrtc", "lib", "libnvrtc.so.*"))


def load():
    files = find()
    if not files:
        sys.exit("compile.py: nvidia-cuda-nvrtc-cu12 is not installed: tests/install brings it")
    return ctypes.CDLL(files[0])


def compile_for(nvrtc, source, architecture):
    """The binary, and what the compiler said."""
    def call(name, *arguments):
        status = getattr(nvrtc, name)(*arguments)
        if status and name != "nvrtcCompileProgram":
            sys.exit("compile.py: %s: %d" % (name, status))
        return status

    def get(name, of):
        size = ctypes.c_size_t()
        call("nvrtcGet%sSize" % name, of, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        call("nvrtcGet" + name, of, text)
        return text.raw

    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), source, b"decode.cu", 0, None, None)
    options = [b"--gpu-architecture=" + architecture.encode(), b"--std=c++17", b"-default-device", b"-Xptxas=-v"]
    status = call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
    said = get("ProgramLog", program).rstrip(b"\0").decode()
    if status:
        sys.exit("compile.py: %s: NVRTC refuses src/gpu/*.cu:\n%s" % (architecture, said))
    return get("CUBIN", program), said


def code_sizes(cubin):
    """Bytes of code by the section's name: the binary is an ELF file of 64 bits."""
    at, = struct.unpack_from("<Q", cubin, 40)
    size, n, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, at + i * size) for i in range(n)]
    texts = sections[names][4]
    result = {}
    for name, _, _, _, _, length in sections:
        start = texts + name
        name = cubin[start:cubin.index(b"\0", start)].decode()
        if name.startswith(".text."):
            result[name[6:]] = length
    return result


def measure(cubin, said):
    """Of each kernel the columns."""
    rows, kernel = {}, None
    sizes = code_sizes(cubin)
    for line in said.splitlines():
        found = re.search(r"Compiling entry function '(\w+)'", line)
        if found:
            kernel = found.group(1)
            rows[kernel] = {"instructions": sizes[kernel] // 16}
        found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line)
        if found and kernel:  # of the kernel, and then of each function of it, whose stack is part of the kernel's
            rows[kernel].setdefault("stack", int(found.group(1)))
            rows[kernel]["spills"] = rows[kernel].get("spills", 0) + int(found.group(2))
        found = re.search(r"Used (\d+) registers", line)
        if found and kernel:
            rows[kernel]["registers"] = int(found.group(1))
    return rows


def main():
    if sys.argv[1:2] == ["--is-installed"]:
        return not find()
    nvrtc, failed, passed = load(), 0, 0
    source = b""
    for path in SOURCES:
        with open(path, "rb") as file:
            source += file.read()
    seen = {}
    for architecture in ARCHITECTURES:
        cubin, said = compile_for(nvrtc, source, architecture)
        if sys.argv[1:2] == ["--cubin"]:
            with open(os.path.join(sys.argv[2], architecture + ".cubin"), "wb") as file:
                file.write(cubin)
        for line in said.splitlines():
            if "warning" in line:
                print("%s: %s" % (architecture, line))
                failed += 1
        for kernel, row in measure(cubin, said).items():
            seen[architecture, kernel] = [row[c] for c in COLUMNS]
    width = max(len(kernel) for _, kernel in seen)
    lines = ["%-8s %-*s %s" % ("#", width, "", " ".join("%12s" % c for c in COLUMNS))]
    lines += ["%-8s %-*s %s" % (a, width, k, " ".join("%12d" % v for v in row)) for (a, k), row in sorted(seen.items(), key=lambda r: (ARCHITECTURES.index(r[0][0]), r[0][1]))]
    table = HEAD + "\n".join(lines) + "\n"
    if sys.argv[1:2] == ["--record"]:
        with open(BUDGET, "w", encoding="utf-8") as file:
            file.write(table)
        return 0
    budget = {}
    with open(BUDGET, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                architecture, kernel, *row = line.split()
                budget[architecture, kernel] = [int(v) for v in row]
    for key in sorted(set(seen) | set(budget)):
        if key not in seen or key not in budget:
            print("FAILED: %s %s is %s" % (*key, "not in the table" if key in seen else "in the table, and there is no such kernel"))
            failed += 1
            continue
        for column, value, most in zip(COLUMNS, seen[key], budget[key]):
            if value > most:
                print("FAILED: %s %s: %d %s, and the table has %d; if that is wanted: tests/gpu/compile.py --record" % (*key, value, column, most))
                failed += 1
            else:
                passed += 1
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
