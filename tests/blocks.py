#!/usr/bin/env python3
"""Compare lmc_decode.h with the reference decoder, block by block, on all conformance vectors.

Usage: blocks.py OBJECT    OBJECT is tests/t_decode.c, compiled to a shared object

The reference decoder goes through each file; of each block that it meets, valid or not, lmc_decode.h must make the same.
"""
import ctypes
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "spec"))
import check_vectors  # noqa: E402
import lmc_decode  # noqa: E402

STATUS = {0: "OK", 22: "UNSUPPORTED", 23: "TRUNCATED", 24: "CORRUPT", 25: "CHECKSUM", 30: "BASE_MISSING", 31: "BASE_WRONG"}
# What a block alone cannot tell: its size, what its run says, what the header of the file says.
BY_THE_FILE = {"R5-5", "R5-6", "R5-8"}
passed = failed = 0


class Recorder:
    """The bytes that are read of a block."""

    def __init__(self, source):
        self.source, self.data = source, b""

    def read(self, size):
        data = self.source.read(size)
        self.data += data
        return data


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
                    prediction = run.predict(number * run.block_size, size, snapshot)
                except lmc_decode.LmcError:
                    raise error  # it was not the block that was wrong
            got = decode(recorder.data, number, prediction)
            if error is None:
                good = got == "OK" and dst.raw[:size] == data
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


def main():
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
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0 or passed < 1000


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
