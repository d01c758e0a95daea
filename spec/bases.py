"""Finds the base among the files that a caller gives (lmc-format.md, 7.3). SPDX-License-Identifier: MIT"""
import os

import foreign_bases
import ranges
from lmc_decode import FINGERPRINT_SIZE, HEADER_SIZE, MAGIC, SECTION_HEADER_SIZE, TRAILER_SIZE, LmcError, decode_stream, require

OWN_MAX_CHAIN = 100                            # this decoder's own limit (R9-2)


class Bases:
    """paths: all possible bases. in_use: LMC files that are being decoded, each the base of the one before. broken: errors of files that were tried;
    plain: the cache of foreign_bases."""

    def __init__(self, paths):
        self.paths, self.in_use, self.broken, self.plain = list(paths), [], {}, {}


def find_base(snapshot, bases, stream, reader=False):
    """The base of snapshot. bases: paths (or Bases). stream: its own LMC file. reader: see read_lmc_base."""
    bases = bases if isinstance(bases, Bases) else Bases(bases)
    wanted, paths = snapshot.base_fingerprint, [path for path in bases.paths if path not in bases.in_use]          # R7-7
    require(paths, "the snapshot %s is needed as base (--base) (R7-1)" % wanted.hex(), "BASE_MISSING")
    require(len(bases.in_use) < OWN_MAX_CHAIN, "the chain of deltas is too long (R9-2)", "LIMIT")
    error = LmcError("BASE_WRONG", "the snapshot %s is needed as base, not what was given (R7-2)" % wanted.hex())
    for path in paths:
        try:
            if not is_lmc(path):
                found = foreign_bases.find(path, wanted, bases.plain, snapshot, stream)
            elif claimed_fingerprint(path) == wanted:
                found = read_lmc_base(path, bases, snapshot, reader)
            else:
                continue
        except LmcError as reason:             # another path may be right (R7-3, R7-4)
            error = LmcError(reason.status, "base %s: %s" % (path, reason.text))
            continue
        if found and found.fingerprint == wanted:
            return found
    raise error


def is_lmc(path):
    if os.path.isdir(path):
        return False
    with open(path, "rb") as stream:
        return stream.read(8) == MAGIC


def claimed_fingerprint(path):
    """The fingerprint that the index of an LMC file claims; decoding shows whether it is right."""
    try:
        with open(path, "rb") as stream:
            stream.seek(-TRAILER_SIZE, os.SEEK_END)
            stream.seek(int.from_bytes(stream.read(8), "little") + SECTION_HEADER_SIZE + HEADER_SIZE)
            return stream.read(FINGERPRINT_SIZE)
    except (OSError, OverflowError, ValueError):
        return None


def read_lmc_base(path, bases, like, reader):
    """reader: whether to make a Reader, or a Snapshot that keeps its bytes."""
    if path in bases.broken:
        raise bases.broken[path]
    bases.in_use.append(path)
    try:
        if reader:
            return ranges.Reader(open(path, "rb"), bases, like.bits, like.limit)
        with open(path, "rb") as stream:
            return decode_stream(stream, bases, keep=True, bits=like.bits, limit=like.limit)
    except LmcError as error:
        bases.broken[path] = error
        raise
    finally:
        bases.in_use.pop()
