#!/usr/bin/env python3
"""Chunks that content-defined chunking shares between real files and changed ones, plain and compressed.

Usage: test_chunks.py LMC CHUNKS SCRATCH FILE.safetensors...   LMC: the command; CHUNKS: chunks.c, compiled
"""
import json
import os
import struct
import subprocess
import sys


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", None)
    tensors = [(name, entry, data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
               for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"])]
    return metadata, tensors


def write(path, metadata, tensors):
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, entry, data in tensors:
        header[name] = dict(entry, data_offsets=[at, at + len(data)])
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for name, entry, data in tensors))


def changes(tensors):
    """A tensor is added in front; three are removed; one in the middle has other values."""
    name, entry, data = max(tensors, key=lambda tensor: min(len(tensor[2]), 50000))
    yield "added", [("added", entry, data[::-1])] + tensors
    yield "removed", [t for i, t in enumerate(tensors) if i not in (len(tensors) // 5, len(tensors) // 2, len(tensors) * 4 // 5)]
    yield "changed", [(n, e, d[::-1]) if i == len(tensors) // 2 else (n, e, d) for i, (n, e, d) in enumerate(tensors)]


def main(lmc, chunks, scratch, paths):
    passed = failed = 0

    def share(names):
        return float(subprocess.check_output([chunks] + [os.path.join(scratch, name) for name in names]))

    def save(name, metadata, tensors):
        write(os.path.join(scratch, name), metadata, tensors)
        subprocess.check_call([lmc, "-q", "-k", "-f", os.path.join(scratch, name), "-o", os.path.join(scratch, name + ".lmc")])

    for path in paths:
        metadata, tensors = read(path)
        save("before", metadata, tensors)
        for what, changed in changes(tensors):
            save("after", metadata, changed)
            plain, packed = share(["before", "after"]), share(["before.lmc", "after.lmc"])
            print("%s, %s: %.1f %% of the file, %.1f %% of the snapshot" % (os.path.basename(path), what, 100 * plain, 100 * packed))
            if packed >= plain * 0.8:  # files of some megabytes: an edit costs a run and two chunks
                passed += 1
            else:
                failed += 1
                print("FAILED: %s, %s" % (path, what))
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
