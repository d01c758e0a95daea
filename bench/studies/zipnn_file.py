#!/usr/bin/env python3
"""ZipNN's C core on a file of bf16, for bench/studies/large: zipnn_file.py pack|unpack IN OUT THREADS

ZipNN has no command, so this is a minimal one: a file is read, coded and written at once, behind 8 bytes with its size."""
import sys

import zipnn_core

BF16 = 2, 1, 10  # buffers, reorder bits, reorder bytes: as zipnn's Python layer calls it
CHUNK = 256 << 10

what, source, target, threads = sys.argv[1:]
with open(source, "rb") as file:
    data = bytearray(file.read())
if what == "pack":
    parts = len(data).to_bytes(8, "little"), zipnn_core.zipnn_core(b"", data, *BF16, 0, CHUNK, 0.95, 10, int(threads))
else:
    parts = (zipnn_core.combine_dtype(memoryview(data)[8:], *BF16, CHUNK, int.from_bytes(data[:8], "little"), int(threads)),)
with open(target, "wb") as file:
    for part in parts:
        file.write(part)
