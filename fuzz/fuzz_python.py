#!/usr/bin/env python3
"""Differential fuzzing: lmc.h against spec/lmc_decode.py, two decoders that share nothing but the spec.

Usage: fuzz_python.py [--seconds N] [--files N] [--seed N] [--findings DIR] [--pure] [FILE or FILE.zip]...
       fuzz_python.py --alone ...            lmc_decode.py alone: it must raise nothing but LmcError, end in time, and read the same by ranges
       fuzz_python.py --replay FILE...       the results of both decoders for these files, one line each; with the bases of the vectors

Valid vectors (and the valid ones of FILEs) are taken apart, changed in fields, payloads and structure, and put together by the builder of
spec/encoder.py. Sizes, CRCs, index and fingerprints are then right again, so decoders do not refuse a change because of these. If a payload can still
be decoded, its block gets the CRC of the decoded bytes. Bodies of sections are changed as bytes, too. Both must accept the same files with the same
content, names, fingerprints and metadata, or both refuse them; pairs of statuses are counted (a file that breaks several rules may get the status of
any, R2-11).
Prints the table of statuses at the end; differences go to DIR, with exit code 1. It ends after --seconds (default 60) or --files.
--pure: CRCs by Python, too, slower. Needs build/fuzz/python.so, which fuzz/build makes, except with --alone. SPDX-License-Identifier: MIT
"""
import argparse
import collections
import copy
import ctypes
import hashlib
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import time
import zipfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "spec"))
import bases  # noqa: E402
import encoder  # noqa: E402
import lmc_decode  # noqa: E402
import make_vectors  # noqa: E402
import ranges  # noqa: E402

VECTORS = os.path.join(ROOT, "spec", "vectors")
FLAT_DIFFERS = 100
MAX_TOTAL_SIZE = 1 << 28                       # as python.c
MAX_CONTENT = 1 << 19                          # bytes: larger cases take Python too long
TIMEOUT = 60                                   # seconds for one file


# ---- The library ----

class Tensor(ctypes.Structure):
    """lmc_tensor"""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_uint), ("shape", ctypes.POINTER(ctypes.c_uint64)),
                ("offset", ctypes.c_uint64), ("size", ctypes.c_uint64), ("fingerprint", ctypes.c_uint8 * 16), ("generation", ctypes.c_uint), ("measure", ctypes.c_int), ("error", ctypes.c_double), ("reserved", ctypes.c_uint64 * 4)]


class Library:
    def __init__(self, path):
        self.so = ctypes.CDLL(path)
        self.so.flat_new_base.restype = ctypes.c_void_p
        self.so.lmc_status_name.restype = ctypes.c_char_p
        self.so.lmc_crc32c.restype = ctypes.c_uint32
        self.so.lmc_crc32c.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
        self.so.flat_decode.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                                        ctypes.POINTER(ctypes.c_size_t)]
        self.so.flat_decode_block.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
        self.so.flat_free.argtypes = [ctypes.c_void_p]
        self.so.flat_add_file.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p,
                                          ctypes.c_size_t]
        self.so.flat_identify_base.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self.tiers = [tier for tier in range(256) if self.so.lmc_tier_is_available(tier)]

    def status(self, number):
        return "DIFFERS" if number == FLAT_DIFFERS else self.so.lmc_status_name(number).decode().replace("LMC_ERR_", "").replace("LMC_", "")

    def crc(self, data, crc=0):
        data = bytes(data)
        return self.so.lmc_crc32c(crc, data, len(data))

    def decode(self, data, base, tier):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        status = self.so.flat_decode(data, len(data), base.flat if base else None, tier, ctypes.byref(text), ctypes.byref(size))
        found = ctypes.string_at(text, size.value) if text else b""
        self.so.flat_free(text)
        return self.status(status), found

    def decode_payload(self, block):
        """The payload's bytes as the library decodes it, or None."""
        builder = encoder.Builder()
        encoder.add_block(builder, "", 0, block)
        dst = ctypes.create_string_buffer(len(block.data) + 1)
        status = self.status(self.so.flat_decode_block(dst, len(block.data), bytes(builder.out), len(builder.out), block.base))
        return dst.raw[:-1] if status in ("OK", "CHECKSUM") else None

    def new_base(self, snapshot):
        base = self.so.flat_new_base()
        for file in snapshot.files:
            tensors = (Tensor * len(file.tensors))()
            for slot, t in zip(tensors, file.tensors):
                slot.name, slot.dtype, slot.rank, slot.shape = t.name, t.dtype, len(t.shape), (ctypes.c_uint64 * len(t.shape))(*t.shape)
                slot.offset, slot.size = t.offset, t.size
            snapshot.kept = getattr(snapshot, "kept", []) + [tensors]
            assert self.so.flat_add_file(base, file.path, file.kind, bytes(file.data), len(file.data), tensors, len(tensors)) == 0
        fingerprint = ctypes.create_string_buffer(16)
        assert self.so.flat_identify_base(base, fingerprint) == 0 and fingerprint.raw == snapshot.fingerprint, "the two disagree about a base"
        return base


# ---- The Python decoder ----

def find_base(snapshot, given, stream, reader=False):
    """Replaces that of bases.py: here the given bases are decoded already."""
    if not given:
        raise lmc_decode.LmcError("BASE_MISSING", "")
    for base in given:
        if base.fingerprint == snapshot.base_fingerprint:
            return base.snapshot
    raise lmc_decode.LmcError("BASE_WRONG", "")


def describe(snapshot):
    """The text of python.c."""
    out = bytearray()

    def number(*values):
        for value in values:
            out.extend(struct.pack("<Q", value & (1 << 64) - 1))

    def string(data):
        number(len(data))
        out.extend(data)

    out += snapshot.fingerprint
    number(len(snapshot.files))
    for f in snapshot.files:
        seconds, nanoseconds = divmod(f.mtime or 0, 10**9)
        number(f.kind)
        string(f.path)
        number(f.mode is not None, f.mode or 0, f.mtime is not None, seconds, nanoseconds, f.crc)
        out += f.fingerprint or bytes(16)
        string(f.data)
        number(len(f.tensors))
        for t in f.tensors:
            string(t.name)
            string(t.dtype)
            number(len(t.shape), *t.shape)
            number(t.offset, t.size)
            out += t.fingerprint
            number(*t.loss)
    for key, value in snapshot.metadata:
        string(key)
        string(value)
    return bytes(out)


def decode(data, base):
    """Status and, if it is OK, the text."""
    try:
        snapshot = lmc_decode.decode(data, [base] if base else [], limit=MAX_TOTAL_SIZE)
    except lmc_decode.LmcError as error:
        try:
            read_ranges(data, base)
        except lmc_decode.LmcError:
            pass
        return error.status, b""
    assert read_ranges(data, base) == [file.data for file in snapshot.files], "the whole-file decoder and the range reader differ"
    return "OK", describe(snapshot)


def read_ranges(data, base):
    """Reads the files by ranges."""
    reader = ranges.Reader(io.BytesIO(data), [base] if base else [], limit=MAX_TOTAL_SIZE)
    return [reader.read(file, 0, file.size) for file in reader.files]


def decode_payload(block):
    """As the end of lmc_decode.read_block; None if it does not decode."""
    payload = lmc_decode.Cursor(encoder.join(block.payload), "payload")
    if block.grouping >> 5 >= block.width:     # Natural, which read_block has checked by then
        return None
    try:
        return bytes(lmc_decode.decode_payload(payload, len(block.data) // block.width, block.width, block.order, block.layout, block.grouping,
                                               block.base))
    except (lmc_decode.LmcError, TypeError):   # the latter: classes, and no prediction
        return None


# ---- Cases: files taken apart ----

class Base:
    """A base as encoder.build and both decoders need it."""

    def __init__(self, library, snapshot):
        self.fingerprint, self.snapshot = snapshot.fingerprint, snapshot
        self.items = [bytes(file.data[t.offset:t.offset + t.size]) for file, t in snapshot.items]
        self.flat = library.new_base(snapshot) if library else None


class Case:
    """bits: Incompatible, None for what the content needs. extra: extension records of the index. mangle: changes a section's body, by the
    name of its owner in encoder.build."""

    def __init__(self, items, metadata, base, extra=b""):
        self.items, self.metadata, self.base, self.patch, self.bits, self.extra, self.mangle = items, metadata, base, {}, None, extra, None

    def copy(self):
        case = Case([copy.copy(item) for item in self.items], list(self.metadata), self.base, self.extra)
        case.patch, case.bits = dict(self.patch), self.bits
        for item in case.items:
            if isinstance(item, encoder.Run):
                item.blocks, item.segments = [copy.copy(block) for block in item.blocks], list(item.segments or ())
            elif isinstance(item, encoder.Group):
                item.files = [copy.copy(source) for source in item.files]
                for source in item.files:
                    source.tensors = list(source.tensors)
        return case

    def runs(self):
        return [item for item in self.items if isinstance(item, encoder.Run)]

    def groups(self):
        return [item for item in self.items if isinstance(item, encoder.Group)]

    def sources(self):
        return [source for group in self.groups() for source in group.files]

    def blocks(self):
        return [block for run in self.runs() for block in run.blocks]

    def build(self):
        Recorder.mangle = self.mangle
        return encoder.build(self.items, self.metadata, self.patch, base=self.base, bits=self.bits, extra=self.extra)


class Recorder(encoder.Builder):
    """Keeps the value of each field, for patches."""
    mangle = None                              # pair of the owner of a section and a function of its body

    def __init__(self, patch=None):
        super().__init__(patch)
        self.fields, self.owners = {}, []

    def value(self, name, value):
        self.fields[name] = value
        return super().value(name, value)

    def section(self, owner, kind, body):
        self.owners.append(owner)
        if self.mangle and self.mangle[0] == owner:
            body = [("body", self.mangle[1](encoder.join(body)))]
        return super().section(owner, kind, body)


class Watch:
    """Keeps the extension records that lmc_decode reads."""

    def __init__(self):
        self.extras = []

    def __enter__(self):
        self.function, lmc_decode.read_extensions = lmc_decode.read_extensions, self.read_extensions
        return self

    def __exit__(self, *_):
        lmc_decode.read_extensions = self.function

    def read_extensions(self, body):
        self.extras.append(bytes(body.data[body.at:]))
        self.function(body)


def take_apart(data, base, rng):
    """A valid file as a Case. References between its tensor entries are chosen anew."""
    with Watch() as watch:
        snapshot = lmc_decode.decode(data, [base] if base else [])
    items, at, extras, runs = [], 64, iter(watch.extras), iter(snapshot.runs)
    for kind, stored_size, body, files in snapshot.sections:
        if kind == b"FILE":
            group, entries = encoder.Group(extra=next(extras)), []
            group.files = [encoder.Src(f.path, bytes(f.data), [entry_of(t, entries, rng) for t in f.tensors], f.kind, f.mode,
                                       f.mtime if f.mtime is None else divmod(f.mtime, 10**9), encoder.UNKNOWN if f.unknown else f.size)
                           for f in files]
            items.append(group)
        elif kind == b"RUN ":
            real = next(runs)
            sizes = [b - a for a, b in zip(real.segment_starts, real.segment_starts[1:])]
            segments = [(size, 0 if number is None else number + 1, offset) for size, (number, offset) in zip(sizes, real.segments)]
            run = encoder.Run([], segments, real.block_size.bit_length() - 1, real.prediction, extra=next(extras))
            block, end = at + 20 + len(body), at + stored_size
            while block < end:
                _, width, coding, grouping, n, payload_size = struct.unpack_from("<BBBBII", data, block)
                payload = [("payload", data[block + 24:block + 24 + payload_size])]
                run.blocks.append(encoder.Block(bytes(n * width), width, coding & 3, coding >> 5, payload, b"" if coding & 4 else None, grouping))
                block += 24 + payload_size
            items.append(run)
        else:
            items.append(encoder.Section(kind, data[at + 20:at + stored_size]))
        at += stored_size
    return Case(items, list(snapshot.metadata), base, next(extras))


def entry_of(t, entries, rng):
    back = min(rng.choice((0, 1, 1, 2, 5)), len(entries))
    like = back and rng.randrange(4) and (entries[-back].dtype, entries[-back].shape, entries[-back].size) == (t.dtype, t.shape, t.size)
    entries.append(t)
    return encoder.T(t.name, t.dtype, t.shape, t.offset, t.size, t.loss, back, bool(like))


class Settler:
    """Makes all fields of a case agree again, as far as possible."""

    def __init__(self, library):
        self.library, self.memory = library, {}

    def content_of(self, block):
        key = (encoder.join(block.payload), block.base, len(block.data), block.width, block.order, block.layout, block.grouping)
        if key not in self.memory:
            if len(self.memory) > 20000:
                self.memory.clear()
            data = decode_payload(block)
            # if Python refuses a payload and the library decodes it, these bytes let it get far in the library
            self.memory[key] = data if data is not None or not self.library else self.library.decode_payload(block)
        return self.memory[key]

    def settle(self, case):
        sources, stream, content = [], [], bytearray()
        for item in case.items:
            if isinstance(item, encoder.Group):
                self.fill(stream, content, True)
                stream, content = item.files, bytearray()
                sources += stream
                self.fill(stream, content, False)
            if not isinstance(item, encoder.Run):
                continue
            prediction = b""
            if item.prediction and any(block.base is not None for block in item.blocks):
                prediction = encoder.prediction_of(item, item.segments, sources, case.base)
            at = 0
            for block in item.blocks:
                if block.base is not None:
                    block.base = prediction[at:at + len(block.data)]
                    if len(block.base) != len(block.data):
                        raise ValueError("no prediction")
                data = self.content_of(block)
                if data is not None and (len(data) == len(block.data) or block.layout == 0):
                    block.data = data[:len(data) // block.width * block.width]
                at += len(block.data)
                content += block.data
            self.fill(stream, content, False)
        self.fill(stream, content, True)

    @staticmethod
    def fill(stream, content, complete):
        """Distributes the bytes of a stream to its files. The last one gets the rest, or has too few."""
        at, last = 0, [source for source in stream if not source.kind][-1:]
        for source in stream:
            size = len(content) if source in last else 0 if source.kind else source.size
            source.data = bytes(content[at:at + size])
            at += len(source.data)
            if complete and source in last and source.size != encoder.UNKNOWN:
                source.size = len(source.data)


# ---- Mutations ----

class Mutator:
    EDGES = [0, 1, 2, 3, 7, 8, 14, 15, 16, 20, 23, 24, 31, 32, 33, 63, 64, 127, 128, 255, 256, 257, 16383, 16384, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1,
             1 << 22, 1 << 24, 1 << 28, 1 << 30, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 40) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    SPARES = [b"", b"\0", b"a", b"a/b", b"..", b"F32", b"BF16", b"\\", b"x\0y", b"RUN ", b"FILE", b"INDX", b"hash", b"BLKS", b"\x80\0",
              b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\2", b"\0\0", b"\2\1x", b"\1\0"]

    def __init__(self, rng, donors):
        self.rng, self.donors = rng, donors

    def number(self, value):
        r = self.rng
        kind = r.randrange(6)
        if kind == 0:
            return value + r.choice((-2, -1, 1, 2))
        if kind == 1:
            return value ^ 1 << r.randrange(r.choice((8, 16, 32, 64)))
        if kind == 2:
            return r.choice(self.EDGES)
        if kind == 3:
            return value + r.choice((-1, 1)) * r.choice(self.EDGES)
        if kind == 4:
            return r.randrange(1 << r.choice((3, 8, 16)))
        return r.choice(list(self.fields.values())) if self.fields else 0

    def bytes(self, data, spare=()):
        """spare: other bytes, from which pieces are taken."""
        r, data = self.rng, bytearray(data)
        for _ in range(r.choice((1, 1, 1, 2, 4))):
            kind, at = r.randrange(9), r.randrange(len(data) + 1)
            if r.randrange(2):                 # headers are at the beginning
                at = min(at, r.randrange(48))
            end = min(len(data), at + r.choice((1, 1, 2, 4, 8, 32)))
            if kind <= 1 and at < len(data):
                data[at] ^= 1 << r.randrange(8)
            elif kind == 2 and at < len(data):
                data[at] = r.choice((0, 1, 2, 3, 4, 20, 21, 127, 128, 255, r.randrange(256)))
            elif kind == 3 and at < len(data):
                data[at] = data[at] + r.choice((-1, 1)) & 255
            elif kind == 4:
                data[at:at] = bytes(r.randrange(256) for _ in range(r.choice((1, 1, 2, 8))))
            elif kind == 5:
                del data[at:end]
            elif kind == 6:
                to = r.randrange(len(data) + 1)
                data[to:to + end - at] = data[at:end]
            elif kind == 7 and spare:
                start = r.randrange(len(spare))
                data[at:end] = spare[start:start + r.choice((1, 4, 16, 64))]
            elif kind == 8:
                data[at:end] = bytes([r.choice((0, 255, r.randrange(256)))]) * (end - at)
        return bytes(data)

    def value(self, value):
        r = self.rng
        if isinstance(value, int):
            return self.number(value)
        if isinstance(value, tuple):
            return tuple(self.number(v) & (1 << 32) - 1 if r.randrange(2) else v for v in value)
        return r.choice(self.SPARES) if r.randrange(4) == 0 else self.bytes(value)

    def field(self, case):
        """A field of header, sections, block headers, index or trailer; everything else is that of the unchanged file."""
        owners = collections.defaultdict(list)
        for name in self.fields:
            owners[name.split(".")[0].rstrip("0123456789")].append(name)
        name = self.rng.choice(owners[self.rng.choice(sorted(owners))])
        case.patch[name] = self.value(self.fields[name])

    def payload(self, case):
        blocks = case.blocks()
        if blocks:
            block = self.rng.choice(blocks)
            spare = encoder.join(self.rng.choice(self.donors).payload) if self.donors else b""
            block.payload = [("payload", self.bytes(encoder.join(block.payload), spare))]

    def manner(self, case):
        """Width, order, layout, classes of a block, and the number of its elements."""
        blocks, r = case.blocks(), self.rng
        if not blocks:
            return
        block, kind = r.choice(blocks), r.randrange(6)
        if kind == 0:
            block.order = r.randrange(3)
        elif kind == 1:
            block.layout = r.randrange(4)
        elif kind == 2:
            block.grouping = r.randrange(r.choice((16, 32, 256)))
        elif kind == 3 and block.base is not None:
            block.base = None
        elif kind == 3:
            block.base = b""
        elif kind == 4:
            n = max(1, len(block.data) // block.width + r.choice((-8, -1, 1, 8)))
            block.data = bytes(n * block.width)
        else:
            block.width = r.choice((1, 2, 4, 8))
            block.data = bytes(max(1, len(block.data) // block.width) * block.width)

    def transplant(self, case):
        """A block of another file, or a random one, replaces a block."""
        blocks, r = case.blocks(), self.rng
        if not blocks:
            return
        block = r.choice(blocks)
        other = make_vectors.random_block(encoder.Random(r.randrange(1 << 40))) if r.randrange(4) == 0 or not self.donors else r.choice(self.donors)
        block.data, block.width, block.order, block.layout = other.data, other.width, other.order, other.layout
        block.payload, block.grouping = other.payload, other.grouping
        if other.base is None:
            block.base = None

    def order(self, case):
        """Items, files, blocks, segments, tensors or metadata in another order, twice or not at all."""
        r = self.rng
        lists = [case.items, case.metadata] + [group.files for group in case.groups()] + [run.blocks for run in case.runs()]
        lists += [run.segments for run in case.runs()] + [s.tensors for s in case.sources()]
        chosen = r.choice([one for one in lists if one] or [[]])
        if not chosen:
            return
        a, b, kind = r.randrange(len(chosen)), r.randrange(len(chosen)), r.randrange(3)
        if kind == 0:
            chosen[a], chosen[b] = chosen[b], chosen[a]
        elif kind == 1:
            chosen.insert(b, copy.copy(chosen[a]))
        else:
            del chosen[a]

    def segments(self, case):
        """The prediction of a run, and its segments."""
        runs, r = case.runs(), self.rng
        if not runs:
            return
        run = r.choice(runs)
        kind, i = r.randrange(4), r.randrange(len(run.segments)) if run.segments else 0
        if kind == 0:
            run.prediction = r.randrange(6)
            run.segments = run.segments or [(sum(len(block.data) for block in run.blocks), 0, 0)]
        elif kind == 1:
            run.log2 = r.choice((14, 15, 16, 20, 22))
        elif run.segments:
            size, number, offset = run.segments[i]
            if kind == 2:
                run.segments[i] = (size, max(0, number + r.choice((-1, 0, 0, 1))), max(0, offset + r.choice((-16, -2, -1, 0, 1, 2, 16))))
            elif size > 1:
                cut = r.choice((1, size - 1, r.randrange(1, size)))
                run.segments[i:i + 1] = [(cut, number, offset), (size - cut, number, offset + cut * (number > 0))]

    def shell(self, case):
        """Sections, extension records, groups of files, Incompatible."""
        r, kind = self.rng, self.rng.randrange(6)
        if kind == 0:
            name = r.choice((b"note", b"hash", b"notE", b"zzzz", b"zZ9 ", b"DATA", b"FILX", b"1abc", b"a-bc"))
            body = bytes([1] + [0] * 7) + bytes(32) if name == b"hash" else bytes(r.randrange(9))
            case.items.insert(r.randrange(len(case.items) + 1), encoder.Section(name, body))
        elif kind == 1:
            case.bits = r.choice((None, r.randrange(32), 1 << r.randrange(64)))
        elif kind == 2:
            record = b"".join(encoder.record(r.choice((0, 1, 2, 4, 300, (1 << 64) - 2)), bytes(r.randrange(3))) for _ in range(r.randrange(1, 3)))
            owner = r.choice([case] + case.groups() + case.runs())
            owner.extra = self.bytes(record) if r.randrange(3) == 0 else record
        elif kind == 3 and len(case.groups()) > 1:                             # two sections become one
            i = r.choice([i for i, item in enumerate(case.items) if isinstance(item, encoder.Group)][1:])
            before = [item for item in case.items[:i] if isinstance(item, encoder.Group)][-1]
            before.files += case.items.pop(i).files
        elif kind == 4:                                                        # a file more, or one in two
            group = r.choice(case.groups())
            group.files.insert(r.randrange(len(group.files) + 1), encoder.Src(b"n%d" % r.randrange(9), kind=r.randrange(2)))
        elif case.groups():
            group = r.choice(case.groups())
            at = r.randrange(len(group.files)) if group.files else 0
            if group.files and group.files[at].path:
                source, cut = group.files[at], r.randrange(len(group.files[at].data) + 1)
                rest = encoder.Src(source.path + b"2", bytes(source.data[cut:]))
                source.size, source.tensors = cut, [t for t in source.tensors if t.offset + t.size <= cut]
                group.files.insert(at + 1, rest)

    def body(self, case):
        """The bytes of a section's body."""
        case.mangle = (self.rng.choice(self.owners), self.bytes)

    def names(self, case):
        """Paths, tensors, times, metadata."""
        r, source = self.rng, self.rng.choice(case.sources() or [None])
        if source is None:
            return
        kind = r.randrange(6)
        if kind == 0:
            source.path = self.value(source.path)
        elif kind == 1:
            source.mode = r.choice((None, 0, 0o644, 0o7777, 0o10000))
        elif kind == 2:
            source.mtime = r.choice((None, (0, 0), (-1, 999999999), (1 << 62, 1), (5, 1000000000)))
        elif kind == 3:
            case.metadata.append((self.value(b"key"), self.value(b"value")))
            if r.randrange(4):
                case.metadata.sort()
        elif kind == 4 and source.tensors:
            i = r.randrange(len(source.tensors))
            t, at = source.tensors[i], r.randrange(10)
            if at == 2:
                shape = tuple(self.number(n) & (1 << 64) - 1 if r.randrange(3) == 0 else n for n in t.shape) + ((1,) if r.randrange(4) == 0 else ())
                t = t._replace(shape=shape)
            elif at == 5:
                t = t._replace(loss=(r.randrange(3), r.randrange(5), r.randrange(1 << 32)))
            elif at == 6:
                t = t._replace(back=r.choice((0, 1, 1, 2, i, i + 1)))
            elif at == 7:
                t = t._replace(like=not t.like)
            elif at >= 8:
                t = t._replace(**{("prefix", "suffix")[at - 8]: r.choice((None, 0, 1, 2, 255))})
            else:
                field = t._fields[at]
                value = self.value(t[at])
                t = t._replace(**{field: value & (1 << 64) - 1 if isinstance(value, int) else value})
            source.tensors[i] = t
        else:
            size = len(source.data)
            start = r.randrange(size + 1)
            length = r.randrange(size - start + 1)
            more = encoder.T(b"t%d" % r.randrange(100), b"U8", (length,), start, length, back=r.randrange(2))
            source.tensors = sorted(source.tensors + [more], key=lambda t: (t.offset, t.size))

    def mutate(self, case, fields, owners):
        self.fields, self.owners = fields, owners
        ways = (self.field, self.field, self.payload, self.payload, self.payload, self.manner, self.transplant, self.order, self.segments, self.names,
                self.shell, self.body)
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.rng.choice(ways)(case)


# ---- The run ----

class Slow(Exception):
    pass


def give_up(*_):
    raise Slow()


class Fuzzer:
    def __init__(self, arguments):
        self.rng, self.arguments = random.Random(arguments.seed), arguments
        self.library = None if arguments.alone else Library(os.path.join(ROOT, "build", "fuzz", "python.so"))
        self.bases, self.cases, self.invalid = {}, [], []
        self.counts, self.examples, self.differences, self.dropped, self.slowest = collections.Counter(), {}, 0, 0, 0
        encoder.crc = lmc_decode.crc32c       # the faster one
        if self.library and not arguments.pure:
            lmc_decode.crc32c = encoder.crc = self.library.crc
        encoder.Builder = Recorder
        self.settler = Settler(self.library)
        os.makedirs(arguments.findings, exist_ok=True)
        signal.signal(signal.SIGALRM, give_up)

    # -- the files to begin with --

    def load_vectors(self):
        """Loads all vectors, and the bases that bases.py finds for them."""
        with open(os.path.join(VECTORS, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.files = [(kind, entry, self.read(os.path.join(VECTORS, kind, entry["name"] + ".lmc"))) for kind in ("valid", "invalid")
                      for entry in manifest[kind]]
        find_real, found = bases.find_base, {}

        def find_and_keep(snapshot, given, stream, reader=False):
            base = find_real(snapshot, given, stream, reader)
            found[base.fingerprint] = base
            return base

        bases.find_base = find_and_keep
        for _, entry, data in self.files:
            if entry["base"] and bytes(data[32:48]) not in found:
                try:
                    lmc_decode.decode(data, [os.path.join(VECTORS, path) for path in entry["base"]])
                except lmc_decode.LmcError:
                    pass
                if bytes(data[32:48]) in found:
                    self.bases[bytes(data[32:48])] = Base(self.library, found[bytes(data[32:48])])
        bases.find_base = find_base

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    def base_of(self, data):
        """The base that a file asks for; None if there is none, or none is known."""
        return self.bases.get(bytes(data[32:48]))

    def files_of(self, paths):
        for path in paths:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        yield archive.read(name)
            else:
                yield self.read(path)

    def begin(self):
        """Compares all given files, and takes apart the valid ones."""
        self.load_vectors()
        for data in [data for _, _, data in self.files] + list(self.files_of(self.arguments.files)):
            base = self.base_of(data)
            if self.compare(data, base) == "OK":
                self.add_case(data, base)
            else:
                self.invalid.append(data)

    def add_case(self, data, base):
        case = take_apart(data, base, self.rng)
        if sum(len(source.data) for source in case.sources()) <= MAX_CONTENT and len(case.items) < 200:
            start = time.perf_counter()
            self.settler.settle(case)
            builder = case.build()
            if self.library:
                self.library.decode(bytes(builder.out), base, 0)
            decode(bytes(builder.out), base)
            case.fields, case.owners, case.data, case.cost = builder.fields, builder.owners, bytes(builder.out), time.perf_counter() - start
            self.cases.append(case)

    # -- one file --

    def compare(self, data, base):
        """The status of the Python decoder; differences are kept."""
        start = time.process_time()
        signal.alarm(TIMEOUT)
        try:
            mine, mine_text = decode(data, base)
        except Slow:
            mine, mine_text = "SLOW", b""
        except Exception as error:             # lmc_decode must not raise anything but LmcError
            mine, mine_text = "CRASH %s" % type(error).__name__, b""
        signal.alarm(0)
        self.slowest = max(self.slowest, time.process_time() - start)
        theirs, their_text = mine, mine_text
        if self.library:
            theirs, their_text = self.library.decode(data, base, self.rng.choice(self.library.tiers))
        self.counts[mine, theirs] += 1
        self.examples.setdefault((mine, theirs), (data, base))
        if theirs == "LIMIT" and mine not in ("SLOW",) and not mine.startswith("CRASH"):
            return mine                        # a limit of size that lmc_decode does not have
        if (mine == "OK") != (theirs == "OK") or mine_text != their_text or mine == "SLOW" or mine.startswith("CRASH"):
            self.keep(data, base, mine, theirs)
        return mine

    def keep(self, data, base, mine, theirs):
        self.differences += 1
        name = "%s-%s-%s.lmc" % (mine.replace(" ", "_"), theirs, hashlib.sha256(data).hexdigest()[:12])
        if self.differences <= 1000:
            with open(os.path.join(self.arguments.findings, name), "wb") as file:
                file.write(data)
        print("DIFFERENCE: Python %s, library %s, base %s: %s" % (mine, theirs, base and base.fingerprint.hex()[:8], name), flush=True)

    def make(self):
        """Makes a file, and returns it with its base."""
        r = self.rng
        base = None
        if r.randrange(20) == 0:               # changed bytes, nothing repaired
            data = r.choice(self.invalid) if r.randrange(2) and self.invalid else r.choice(self.cases).data
            if len(data) < 100000:
                return self.mutator.bytes(data, r.choice(self.cases).data), self.base_of(data), None
        case = r.choices(self.cases, self.weights)[0]
        fields, owners = case.fields, case.owners
        case = case.copy()
        base = case.base
        self.mutator.mutate(case, fields, owners)
        self.settler.settle(case)
        data = bytes(case.build().out)
        if r.randrange(50) == 0:
            base = r.choice([None] + list(self.bases.values()))
        return data, base, case

    def run(self):
        self.begin()
        self.weights = [1 / (0.002 + case.cost) for case in self.cases]
        donors = [block for case in self.cases for block in case.blocks() if len(block.data) < 5000]
        self.mutator = Mutator(self.rng, donors)
        print("%d cases, %d bases; began with %d files" % (len(self.cases), len(self.bases), sum(self.counts.values())), flush=True)
        end, n_first = time.time() + self.arguments.seconds, len(self.cases)
        next_report = time.time() + 600
        n_begin = sum(self.counts.values())
        while time.time() < end and not 0 < self.arguments.files_wanted <= sum(self.counts.values()) - n_begin:
            try:
                data, base, case = self.make()
            except (AssertionError, ValueError, IndexError, struct.error, OverflowError, TypeError, ZeroDivisionError, AttributeError):
                self.dropped += 1              # the change cannot be encoded
                continue
            if len(data) > 1 << 20:
                self.dropped += 1
                continue
            status = self.compare(data, base)
            if status == "OK" and case and self.rng.randrange(8) == 0 and base is case.base:
                self.add_case(data, base)      # to be changed further
                self.weights.append(1 / (0.002 + self.cases[-1].cost))
                if len(self.cases) > 3 * n_first:
                    at = self.rng.randrange(n_first, len(self.cases))
                    self.cases[at], self.weights[at] = self.cases[-1], self.weights[-1]
                    self.cases.pop()
                    self.weights.pop()
            if time.time() > next_report:
                next_report += 600
                self.report()
        self.report()
        return 1 if self.differences else 0

    def report(self):
        print("%d files compared, %d accepted by both, %d differences; %d changes came to nothing" % (
            sum(self.counts.values()), self.counts["OK", "OK"], self.differences, self.dropped))
        print("Python took at most %.1f s of its own time for one file, and %d MB in all" % (
            self.slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10))
        for (mine, theirs), n in sorted(self.counts.items()):
            print("%-14s %-14s %8d" % (mine, theirs, n))
        sys.stdout.flush()

    def keep_examples(self):
        """One file for each pair of different statuses."""
        for (mine, theirs), (data, base) in self.examples.items():
            if mine != theirs:
                with open(os.path.join(self.arguments.findings, "example-%s-%s.lmc" % (mine, theirs)), "wb") as file:
                    file.write(data)

    def replay(self):
        self.load_vectors()
        for path in self.arguments.files:
            for data in self.files_of([path]):
                base = self.base_of(data)
                try:
                    mine = "OK" if lmc_decode.decode(data, [base] if base else []) else ""
                except lmc_decode.LmcError as error:
                    mine = str(error)
                print("%s: Python %s; library %s" % (path, mine, " ".join(self.library.decode(data, base, tier)[0] for tier in self.library.tiers)))
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--files", type=int, default=0, dest="files_wanted")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", default=os.path.join(ROOT, "build", "fuzz", "differences"))
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("files", nargs="*")
    fuzzer = Fuzzer(parser.parse_args())
    if fuzzer.arguments.replay:
        return fuzzer.replay()
    code = fuzzer.run()
    fuzzer.keep_examples()
    return code


if __name__ == "__main__":
    sys.exit(main())
