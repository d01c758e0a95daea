"""The section "hash" (hash.md). SPDX-License-Identifier: MIT"""
import hashlib
import struct

from lmc_decode import DIRECTORY, HAS_MODE, HAS_MTIME, IS_DIRECTORY, require

SHA256_HASHES = bytes([1, 0, 0, 0, 0, 0, 0, 0])


def keep_body(body, before):
    """The body of the section that is used. before: that of an earlier one, or None."""
    if body[:8] != SHA256_HASHES:
        return before                          # H-1
    require(before is None, "two sections hash of SHA-256 (H-4)")
    return body


def check_hashes(body, snapshot):
    """Checks Snapshot_Hash, and the SHA-256 of every tensor and of the other bytes of every file."""
    hashes = [list(hashes_of(file)) for file in snapshot.files]
    found = b"".join(part for of_file in hashes for part in of_file)
    require(len(body) == 40 + len(found), "size of the section hash (H-2)")
    require(body[40:] == found, "a hash of the section hash (H-3)")
    require(body[8:40] == hash_snapshot(snapshot, hashes), "Snapshot_Hash (H-5)")


def hashes_of(file):
    """The hashes of its tensors, then that of its other bytes."""
    data, outside, end = memoryview(file.data), hashlib.sha256(), 0
    for tensor in file.tensors:
        outside.update(data[end:tensor.offset])
        end = tensor.end
        yield hashlib.sha256(data[tensor.offset:end]).digest()
    outside.update(data[end:])
    yield outside.digest()


def hash_snapshot(snapshot, hashes):
    """The SHA-256 of the statement (hash.md)."""
    parts = [b"LMC content 1\0", struct.pack("<Q", len(snapshot.files))]
    for file, of_file in sorted(zip(snapshot.files, hashes), key=lambda pair: pair[0].path):
        form = IS_DIRECTORY * (file.kind == DIRECTORY) | HAS_MODE * (file.mode is not None) | HAS_MTIME * (file.mtime is not None)
        seconds, nanoseconds = divmod(file.mtime or 0, 10**9)
        parts += [struct.pack("<I", len(file.path)), file.path,
                  struct.pack("<BQIqIQ", form, file.size, file.mode or 0, seconds, nanoseconds, len(file.tensors))]
        for tensor, its_hash in zip(file.tensors, of_file):
            parts += [struct.pack("<I", len(tensor.name)), tensor.name, bytes([len(tensor.dtype)]), tensor.dtype,
                      struct.pack("<B%dQ" % len(tensor.shape), len(tensor.shape), *tensor.shape),
                      struct.pack("<QQBBI", tensor.offset, tensor.size, *tensor.loss), its_hash]
        parts.append(of_file[-1])
    for key, value in snapshot.metadata:
        if not key.startswith(b"lmc.") or key == b"lmc.links":
            parts += [struct.pack("<II", len(key), len(value)), key, value]
    return hashlib.sha256(b"".join(parts)).digest()
