#!/usr/bin/env python3
"""Compare lmc_decode.h with the reference decoder, block by block, on all conformance vectors.

Usage: blocks.py OBJECT          OBJECT is t_decode.c, compiled to a shared object
       blocks.py --write FILE    writes the blocks for tests/gpu/test_kernel.cpp instead, each once

The reference decoder reads each file; for each block in it, valid or not, lmc_decode.h must give the same result.

For each block FILE has 5 numbers of 32 bits: its size in the file, its decoded size by the run, its number in the run, flags (of lmc__gpu_block; 64:
there is a prediction), the reference's status; then the block, then the prediction.
"""
import ctypes
import json
import os
import re
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "spec"))
import check_vectors  # noqa: E402
import lmc_decode  # noqa: E402

STATUS = {0: "OK", 22: "UNSUPPORTED", 23: "TRUNCATED", 24: "CORRUPT", 25: "CHECKSUM", 30: "BASE_MISSING", 31: "BASE_WRONG"}
# Rules that need more than the block: its size by the run, the run's prediction, the header of the file.
BY_THE_FILE = {"R5-5", "R5-6", "R5-8"}
passed = failed = 0


class Recorder:
    """Records the bytes that are read from a block."""

    def __init__(self, source):
        self.source, self.data = source, b""

    def read(self, size):
        data = self.source.read(size)
        self.data += data
        return data


def prediction_of(snapshot, run, number):
    return run.predict(number * run.block_size, run.block_size_of(number), snapshot)


def make_read_block(library, reference):
    dst = ctypes.create_string_buffer(1 << 22)

    def decode(encoded, number, prediction):
        status = library.t_decode(dst, encoded, ctypes.c_size_t(len(encoded)), ctypes.c_uint32(number), prediction, ctypes.c_size_t(len(prediction or b"")))
        return STATUS.get(status, status)

    def read_block(source, snapshot, run, number):
        global passed, failed
        recorder, error, row, data = Recorder(source), None, None, b""
        try:
            row, data = reference(recorder, snapshot, run, number)
        except lmc_decode.LmcError as e:
            error = e
        rules = set(re.findall(r"R[0-9]+-[0-9]+", error.text)) if error else set()
        if error is None or (not rules & BY_THE_FILE and len(recorder.data) >= lmc_decode.BLOCK_HEADER_SIZE):
            size, prediction = run.block_size_of(number), None
            if recorder.data[2] & 4 and run.prediction != lmc_decode.ZERO:
                try:
                    prediction = prediction_of(snapshot, run, number)
                except lmc_decode.LmcError:
                    raise error  # the fault is not in the block
            got = decode(recorder.data, number, prediction)
            if error is None:
                good = got == "OK" and ctypes.string_at(dst, size) == data
            else:
                good = got == error.status or (got == "BASE_WRONG" and prediction is not None)
            if good:
                passed += 1
            else:
                failed += 1
                print("FAILED: block %d: %s, not %s" % (number, got, error or "what it holds"))
        if error:
            raise error
        return row, data

    return read_block


def make_write_block(file, reference):
    seen, numbers = set(), {name: status for status, name in STATUS.items()}

    def read_block(source, snapshot, run, number):
        recorder, error, result, prediction = Recorder(source), None, None, None
        try:
            result = reference(recorder, snapshot, run, number)
        except lmc_decode.LmcError as e:
            error = e
        may_group = snapshot.uses(lmc_decode.BASE_BIT) or snapshot.uses(lmc_decode.OWN_BIT)
        flags = (run.prediction != lmc_decode.ZERO) | may_group << 1 | snapshot.uses(lmc_decode.QUANTISED_BIT) << 2 \
            | snapshot.uses(lmc_decode.ZEROS_BIT) << 3 | snapshot.uses(lmc_decode.MATRIX_BIT) << 4 | snapshot.uses(lmc_decode.CODES_BIT) << 5
        if len(recorder.data) >= lmc_decode.BLOCK_HEADER_SIZE and recorder.data[2] & 4 and flags & 1:
            try:
                prediction = prediction_of(snapshot, run, number)
            except lmc_decode.LmcError:
                pass
        if prediction is not None:
            flags |= 64
        job = struct.pack("<IIIII", len(recorder.data), run.block_size_of(number), number, flags, numbers[error.status] if error else 0) + \
            recorder.data + (prediction or b"")
        if len(recorder.data) >= lmc_decode.BLOCK_HEADER_SIZE and job not in seen:
            seen.add(job)
            file.write(job)
        if error:
            raise error
        return result

    return read_block


def main():
    if sys.argv[1] == "--write":
        file = open(sys.argv[2], "wb")
        lmc_decode.read_block = make_write_block(file, lmc_decode.read_block)
    else:
        lmc_decode.read_block = make_read_block(ctypes.CDLL(os.path.abspath(sys.argv[1])), lmc_decode.read_block)
    with open(os.path.join(check_vectors.VECTORS, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    for kind in ("valid", "invalid"):
        for entry in manifest[kind]:
            entry["kind"] = kind
            try:
                lmc_decode.decode(check_vectors.read(check_vectors.path_of(entry)), check_vectors.bases_of(entry))
            except lmc_decode.LmcError:
                pass
    if sys.argv[1] == "--write":
        file.close()
        return 0
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0 or passed < 1000


if __name__ == "__main__":
    if len(sys.argv) != (3 if sys.argv[1:2] == ["--write"] else 2):
        sys.exit(__doc__)
    sys.exit(main())
