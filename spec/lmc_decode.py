#!/usr/bin/env python3
"""Reference decoder of LMC files, format 0.4, in plain Python 3.8+; laid out in the order of lmc-format.md.

Usage: lmc_decode.py [--base BASE]... FILE.lmc OUT      restore; OUT is a file if the snapshot is one file without a path, else a directory
       lmc_decode.py [--base BASE]... --list FILE.lmc   check everything, print files and tensors as JSON
FILE.lmc may be - (standard input), OUT may be - (standard output; one regular file only).
BASE, for a delta: an LMC file, a safetensors file, any other file, or a directory of files. Of several the one with the right identity is
taken, and again for a base that is a delta itself. It is held in memory.

Exit codes: 0 ok, 1 VERSION, UNSUPPORTED, LIMIT or an I/O error, 2 usage, 3 bad data, 4 BASE_MISSING or BASE_WRONG. After an error nothing
is left at OUT. As a module: decode(data, bases) returns a Snapshot or raises LmcError(status, text). SPDX-License-Identifier: MIT
"""
import functools
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
from bisect import bisect_left, bisect_right

# ---- 2. Conventions ----


class LmcError(Exception):
    """status is one of the names of section 11."""

    def __init__(self, status, text):
        super().__init__("%s: %s" % (status, text))
        self.status, self.text = status, text


def require(condition, text, status="CORRUPT"):
    if not condition:
        raise LmcError(status, text)


def make_crc_tables():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    tables = [table]                           # tables[k]: a byte followed by k zero bytes
    for _ in range(7):
        tables.append([table[c & 255] ^ c >> 8 for c in tables[-1]])
    return tables


CRC_TABLES = make_crc_tables()


def crc32c(data, crc=0):
    """CRC of data; or, given the CRC of what came before, of both."""
    t0, t1, t2, t3, t4, t5, t6, t7 = CRC_TABLES
    crc ^= 0xFFFFFFFF
    whole = len(data) & ~7
    for a, e, f, g, h in struct.iter_unpack("<I4B", memoryview(data)[:whole]):
        a ^= crc
        crc = t7[a & 255] ^ t6[a >> 8 & 255] ^ t5[a >> 16 & 255] ^ t4[a >> 24] ^ t3[e] ^ t2[f] ^ t1[g] ^ t0[h]
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Cursor:
    """Reads a section's body or a block's payload, whose size is known and whose bytes are there."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def take(self, size):
        require(size <= len(self.data) - self.at, "%s ends early" % self.what)
        self.at += size
        return self.data[self.at - size:self.at]

    def fields(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def string(self, size):
        text = self.take(size)
        require(b"\0" not in text, "zero byte in a string")
        return text

    def finish(self):
        require(self.at == len(self.data), "%s is longer than its content" % self.what)


class Input:
    """The LMC file, front to back."""

    PIECE = 1 << 20                            # so that memory grows only with bytes that really come

    def __init__(self, stream):
        self.stream, self.at = stream, 0

    def read_up_to(self, size):
        pieces, missing = [], size
        while missing:
            piece = self.stream.read(min(missing, self.PIECE))
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        self.at += size - missing
        return b"".join(pieces)

    def read(self, size):
        data = self.read_up_to(size)
        require(len(data) == size, "the input ends at byte %d" % self.at, "TRUNCATED")
        return data


# ---- 3. Layout ----


class Snapshot:
    """files, metadata (pairs of key and value) and the identity; keep: whether each file keeps its bytes as .data."""

    def __init__(self, keep=True):
        self.files, self.metadata, self.identity, self.keep = [], [], None, keep
        self.paths, self.runs, self.entries = set(), 0, []                      # entries: what the index must say (section 10)


def decode_stream(stream, bases, deliver=lambda file, data: None, keep=False):
    """Decode and check a whole LMC file; deliver(file, data) gets the checked bytes of each file in order, first b"" for each."""
    source, snapshot = Input(stream), Snapshot(keep)
    read_file_header(source, snapshot)
    if snapshot.base_identity:
        snapshot.base_items = find_base(snapshot.base_identity, bases)
    while True:
        offset = source.at
        kind, header, body = read_section(source, snapshot)
        if kind == b"INDX":
            break
        if kind == b"FILE":
            finish_file(snapshot)
            file = read_file_body(body, snapshot)
            snapshot.files.append(file)
            snapshot.entries.append((offset, header + body, file, None))
            deliver(file, b"")
        else:
            blocks = read_run(source, body, snapshot, deliver)
            snapshot.entries.append((offset, header + body, None, blocks))
            snapshot.runs += 1
    require(snapshot.files, "no FILE section")
    finish_file(snapshot)
    check_index(body, snapshot)
    check_trailer(source, offset, source.at)
    return snapshot


# ---- 4. File_Header ----

MAGIC = bytes.fromhex("8C4C4D430D0A1A0A")
HEADER_SIZE = 80
FLAG_SEQUENTIAL = 1
KNOWN_INCOMPATIBLE = 0


def read_file_header(source, snapshot):
    require(source.read_up_to(8) == MAGIC, "no LMC file", "NOT_LMC")
    version = source.read(2)
    require(version == b"\0\4", "format %d.%d; this decoder knows 0.4" % tuple(version), "VERSION")
    header = MAGIC + version + source.read(HEADER_SIZE - 10)
    size, flags, incompatible, _compatible, base, depth, reserved, crc = struct.unpack("<HIQQ32sIQI", header[10:])
    require(crc == crc32c(header[:76]), "file header", "CHECKSUM")
    require(size == HEADER_SIZE, "Header_Size")
    require(incompatible & ~KNOWN_INCOMPATIBLE == 0, "incompatible feature bits %x" % incompatible, "UNSUPPORTED")
    require(flags & ~FLAG_SEQUENTIAL == 0 and reserved == 0, "reserved bits of the file header", "UNSUPPORTED")
    require((base == bytes(32)) == (depth == 0), "Chain_Depth")
    snapshot.base_identity = base if depth else None
    snapshot.sequential = flags == FLAG_SEQUENTIAL
    snapshot.keep = snapshot.keep or not snapshot.sequential                   # section 5.2, Prediction 2


# ---- 5. Sections ----

SECTION_HEADER_SIZE = 24
MAX_BODY_SIZE = 1 << 40
OWN_MAX_BODY_SIZE = 1 << 30                    # this decoder's own limit: LIMIT (section 12)
MAX_SIZE = (1 << 63) - 1


def read_section(source, snapshot):
    header = source.read(SECTION_HEADER_SIZE)
    kind, number, size, head_crc, body_crc = struct.unpack("<4sIQII", header)
    require(head_crc == crc32c(header[:16]), "section header", "CHECKSUM")
    numbers = {b"FILE": len(snapshot.files), b"RUN ": snapshot.runs, b"INDX": 0}
    require(kind in numbers, "unknown kind of section")
    require(number == numbers[kind], "number of section %s" % kind.decode())
    require(size <= MAX_BODY_SIZE, "Body_Size")
    require(size <= OWN_MAX_BODY_SIZE, "section of %d bytes" % size, "LIMIT")
    body = source.read(size)
    require(body_crc == crc32c(body), "body of section %s" % kind.decode(), "CHECKSUM")
    return kind, header, body


# ---- 5.1 FILE body ----

UNKNOWN_SIZE = (1 << 64) - 1
REGULAR, DIRECTORY = 0, 1
HAS_MODE, HAS_MTIME = 1, 2
MAX_PATH_SIZE = MAX_NAME_SIZE = 65535
MAX_TENSORS = 1 << 28
MAX_DTYPE_SIZE = MAX_RANK = 32
MEASURES = ("none", "update", "relative", "nmse")
MAX_MEASURE = len(MEASURES) - 1
DTYPE_BITS = {name.encode(): bits for bits, names in (
    (8, "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"), (4, "F4"), (6, "F6_E2M3 F6_E3M2"),
    (16, "I16 U16 F16 BF16"), (32, "I32 U32 F32"), (64, "C64 F64 I64 U64")) for name in names.split()}


class File:
    """path, kind, size, mode and mtime (None if not valid), tensors; crc and identity once decoded."""

    def __init__(self):
        self.crc = self.done = self.next_tensor = 0
        self.data, self.whole, self.identity = bytearray(), None, None
        self.own_starts, self.own_ends = [], []                                 # ranges of runs of Prediction 2


class Tensor:
    """loss: Generation, Measure and Error."""

    def __init__(self, name, dtype, shape, offset, size, loss=(0, 0, 0)):
        self.name, self.dtype, self.shape, self.offset, self.size, self.loss = name, dtype, shape, offset, size, loss
        self.leaves, self.identity = LeafCrcs(), None


def read_file_body(body, snapshot):
    body, file = Cursor(body, "FILE body"), File()
    (size, file.kind, attributes, reserved, mode, seconds, nanoseconds, path_size, n_tensors) = body.fields("QBBHIqIII")
    require(file.kind in (REGULAR, DIRECTORY), "File_Kind", "UNSUPPORTED")
    require(attributes & ~(HAS_MODE | HAS_MTIME) == 0 and reserved == 0, "reserved bits of a FILE", "UNSUPPORTED")
    require(size <= MAX_SIZE or size == UNKNOWN_SIZE, "File_Size")
    file.size = None if size == UNKNOWN_SIZE else size
    require(mode <= 0o7777 and (attributes & HAS_MODE or mode == 0), "Mode")
    file.mode = mode if attributes & HAS_MODE else None
    require(nanoseconds <= 999999999 and (attributes & HAS_MTIME or seconds == nanoseconds == 0), "Mtime")
    file.mtime = seconds * 10**9 + nanoseconds if attributes & HAS_MTIME else None
    require(path_size <= MAX_PATH_SIZE and n_tensors <= MAX_TENSORS, "Path_Size or N_Tensors")
    require(n_tensors == 0 or (file.kind == REGULAR and file.size is not None), "tensors of a directory or of an unknown size")
    require(file.kind == REGULAR or size == 0, "size of a directory")
    file.path = body.string(path_size)
    check_path(file.path, snapshot)
    tensors, end, names = [], 0, set()
    for _ in range(n_tensors):
        tensor = read_tensor_entry(body)
        require(tensor.offset >= end, "tensors overlap or are not sorted")
        end = tensor.offset + tensor.size
        require(end <= file.size, "tensor ends after its file")
        require(tensor.name not in names, "two tensors of the same name")
        names.add(tensor.name)
        tensors.append(tensor)
    body.finish()
    set_tensors(file, tensors)
    return file


def set_tensors(file, tensors):
    """tensors are sorted; section 9.2: without any the file counts as one."""
    file.tensors = tensors
    file.whole = None if tensors else Tensor(file.path, b"U8", None, 0, MAX_SIZE)


def check_path(path, snapshot):
    require(b"\\" not in path, "backslash in a Path")
    if path:
        require(all(part not in (b"", b".", b"..") for part in path.split(b"/")), "illegal Path")
    require(not snapshot.files or (path and snapshot.files[0].path), "empty Path beside other files")
    require(path not in snapshot.paths, "two files of the same Path")
    snapshot.paths.add(path)


def read_tensor_entry(body):
    offset, size, name_size, dtype_size, rank, generation, measure = body.fields("QQIBBBB")
    require(measure <= MAX_MEASURE and (measure > 0) == (generation > 0), "Generation or Measure of a tensor")
    require(name_size <= MAX_NAME_SIZE and 1 <= dtype_size <= MAX_DTYPE_SIZE and rank <= MAX_RANK, "size of name, dtype or shape")
    shape = body.fields("%dQ" % rank)
    name, dtype = body.string(name_size), body.string(dtype_size)
    error, = body.fields("I") if generation else (0,)
    require(is_size_right(dtype, shape, size), "size of a tensor is not what dtype and shape say")
    return Tensor(name, dtype, shape, offset, size, (generation, measure, error))


def is_size_right(dtype, shape, size):
    bits = DTYPE_BITS.get(dtype)
    for extent in shape if bits else ():       # Python's integers are exact
        bits *= extent
    return bits is None or bits == 8 * size


# ---- 5.2 RUN body ----

MIN_LOG2_BLOCK_SIZE, MAX_LOG2_BLOCK_SIZE = 14, 23
MAX_SEGMENTS = 1 << 24
MAX_BLOCKS = (1 << 32) - 1


ZERO, BASE, OWN = 0, 1, 2                      # Prediction
F32_TO_BF16, F32_TO_F16 = 1, 2                 # Conversion


def read_run(source, body, snapshot, deliver):
    body = Cursor(body, "RUN body")
    run_size, log2_block_size, prediction, conversion, reserved, n_segments = body.fields("QBBBBI")
    require(prediction <= OWN and reserved == 0, "Prediction or reserved field of a RUN", "UNSUPPORTED")
    require(conversion <= (F32_TO_F16 if prediction == OWN else 0), "Conversion of a RUN", "UNSUPPORTED")
    require(1 <= run_size <= MAX_SIZE, "Run_Size")
    require(MIN_LOG2_BLOCK_SIZE <= log2_block_size <= MAX_LOG2_BLOCK_SIZE, "Log2_Block_Size")
    require(1 <= n_segments <= MAX_SEGMENTS, "N_Segments")
    require(snapshot.files, "RUN before the first FILE")
    require(prediction != BASE or snapshot.base_identity, "Prediction 1 without a base")
    require(prediction != OWN or not snapshot.sequential, "Prediction 2 in a Sequential file")
    file, total, predicted = snapshot.files[-1], 0, Prediction(conversion)
    for _ in range(n_segments):
        number, base, offset, size, base_offset = body.fields("IIQQQ")
        require(size >= 1, "empty segment")
        # Section 6: segments follow one another in the latest file, so the run's bytes are simply the file's next bytes.
        require(number == len(snapshot.files) - 1 and offset == file.done + total, "segment out of order")
        total += size
        require(offset + size <= (MAX_SIZE if file.size is None else file.size), "segment ends after its file")
        require(conversion == 0 or size % 2 == 0, "segment of half an element")
        data = find_prediction(snapshot, prediction, base, base_offset, size * predicted.step)
        predicted.pieces.append((data, base_offset, size))
    body.finish()
    require(total == run_size, "Run_Size is not the sum of the segments")
    block_size = 1 << log2_block_size
    require((run_size - 1 >> log2_block_size) + 1 <= MAX_BLOCKS, "too many blocks")
    if prediction == OWN:
        file.own_starts.append(file.done)
        file.own_ends.append(file.done + run_size)
    blocks, number = b"", 0
    for start in range(0, run_size, block_size):
        size = min(block_size, run_size - start)
        entry, data = read_block(source, snapshot.runs, number, size, prediction, predicted)
        blocks += entry
        add_to_file(file, data, snapshot.keep)
        deliver(file, data)
        number += 1
    return blocks


def find_prediction(snapshot, prediction, base, offset, size):
    """The bytes of the item or file with which a segment is predicted, from offset to offset + size; None: zeros."""
    if base == 0:
        require(offset == 0, "Base_Offset without Base")
        return None
    require(prediction != ZERO, "Base in a run of Prediction 0")
    if prediction == BASE:
        require(base <= len(snapshot.base_items), "no such item in the base")
        require(offset + size <= len(snapshot.base_items[base - 1]), "segment ends after its item of the base")
        return snapshot.base_items[base - 1]
    require(base <= len(snapshot.files), "no such file before this run")
    file = snapshot.files[base - 1]
    require(offset + size <= file.done, "prediction from bytes that come later")
    own = bisect_right(file.own_ends, offset)
    require(own == len(file.own_ends) or file.own_starts[own] >= offset + size, "prediction from a run of Prediction 2")
    return file.data


class Prediction:
    """The prediction of a run; pieces: for each segment the data, where it lies there, and the size of the segment."""

    def __init__(self, conversion):
        self.pieces, self.next, self.used = [], 0, 0
        self.step, self.convert = ((1, None), (2, bf16_of_f32), (2, f16_of_f32))[conversion]

    def take(self, size):
        """The next size bytes."""
        taken = bytearray()
        while len(taken) < size:
            data, offset, segment_size = self.pieces[self.next]
            part = min(size - len(taken), segment_size - self.used)
            if data is None:
                taken += bytes(part)
            else:
                at = offset + self.used * self.step
                found = bytes(data[at:at + part * self.step])
                taken += convert_each(found, self.convert) if self.convert else found
            self.used += part
            if self.used == segment_size:
                self.next, self.used = self.next + 1, 0
        return bytes(taken)


def convert_each(data, convert):
    n = len(data) // 4
    return struct.pack("<%dH" % n, *map(convert, struct.unpack("<%dI" % n, data)))


def bf16_of_f32(x):
    if x & 0x7FFFFFFF > 0x7F800000:            # NaN
        return x >> 16 | 0x40
    return x + 0x7FFF + (x >> 16 & 1) >> 16


def f16_of_f32(x):
    sign, exponent, mantissa = x >> 16 & 0x8000, x >> 23 & 255, x & 0x7FFFFF
    if exponent == 255:
        return sign | 0x7C00 | (mantissa and mantissa >> 13 | 0x200)
    if exponent >= 113:                        # 2^-14, the least normal number, and above
        number, drop = (exponent - 112 << 23) + mantissa, 13
    else:                                      # mantissa, with its hidden bit if it has one, in units of 2^-24
        number, drop = mantissa | (exponent > 0) << 23, 126 - max(exponent, 1)
    return sign | min(number + (1 << drop - 1) - 1 + (number >> drop & 1) >> drop, 0x7C00)


# ---- 6. Order (6.3 also in read_run) ----


def finish_file(snapshot):
    if snapshot.files:
        file = snapshot.files[-1]
        require(file.size is None or file.done == file.size, "the runs do not cover the file")
        file.size = file.done


# ---- 7. Block ----

BLOCK_HEADER_SIZE = 24
SYNC = 0xB1
MAX_ELEMENTS = 1 << 20
XOR, SUBTRACT = 0, 1
STORED, PLANES, QUANTISED = 0, 1, 2
MAX_JOINT = 2


def read_block(source, run, number, size, run_prediction, predicted):
    """One block that must decode to size bytes: returns what the index must say of it, and the bytes."""
    header = source.read(BLOCK_HEADER_SIZE)
    sync, coding, prediction, grouping, n, payload_size, content_crc, base_crc, header_crc = struct.unpack("<BBBBIIIII", header)
    require(sync == SYNC, "no block where one should start")
    require(header_crc == crc32c(struct.pack("<II", run, number) + header[:20]), "block header", "CHECKSUM")
    width, residual, joint, layout = 1 << (coding & 3), coding >> 2 & 1, coding >> 3 & 3, coding >> 5
    n_classes, sparse, natural = (grouping & 7) + 1, grouping >> 3 & 1, grouping >> 4 & 7
    require(joint <= MAX_JOINT and layout <= QUANTISED, "Coding %#x of a block" % coding, "UNSUPPORTED")
    require(prediction <= 1 and grouping >> 7 == 0, "Prediction or Grouping of a block", "UNSUPPORTED")
    require(1 <= n <= MAX_ELEMENTS and n * width == size, "N_Elements")
    if layout == STORED:
        require(payload_size == size and residual == joint == prediction == grouping == 0, "Payload_Size or manner of a stored block")
    elif layout == QUANTISED:
        require(payload_size < size, "Payload_Size")
        require(width in (2, 4) and residual == joint == grouping == 0, "manner of a quantised block")
    else:
        require(payload_size < size, "Payload_Size")
        require(joint == 0 or (width > 1 and prediction == grouping == 0), "Joint planes")
        require(natural < width and (natural == 0 or (n_classes > 1 and not sparse)), "Natural")
        require(n_classes == 1 or prediction, "classes without prediction")
    require(prediction == 0 or run_prediction != ZERO, "block with Prediction in a run without")
    base = predicted.take(size)
    if prediction == 0:
        require(base_crc == 0, "Base_CRC without prediction")
    else:
        require(base_crc == crc32c(base), "prediction of a block", "BASE_WRONG" if run_prediction == BASE else "CORRUPT")
    data = source.read(payload_size)
    payload = Cursor(data, "payload")
    if layout == QUANTISED:
        data = read_quantised(payload, n, width, base if prediction else None)
        payload.finish()
    elif layout == PLANES:
        if grouping:
            planes = read_classes(payload, n, width, n_classes, sparse, natural, base if prediction else bytes(size))
        elif joint:
            planes = read_joint_planes(payload, n, width, joint)
        else:
            planes = [read_plane(payload, n) for _ in range(width)]
        data = join_planes(planes, n, residual, base if prediction else None)
        payload.finish()
    require(crc32c(data) == content_crc, "content of a block", "CHECKSUM")
    return struct.pack("<II", BLOCK_HEADER_SIZE + payload_size, header_crc), data


def integers(data, width):
    return struct.unpack("<%d%s" % (len(data) // width, {1: "B", 2: "H", 4: "I", 8: "Q"}[width]), data)


def join_planes(planes, n, residual, base):
    """Section 7.2; base: bytes of the prediction, or None."""
    width = len(planes)
    if residual == SUBTRACT and base is None:  # rotation: plane p gets bits 1-7 of plane p, and bit 0 of the next (after the last: the first)
        low_bits, high_bits = (int.from_bytes(bytes([b]) * n, "little") for b in (0x01, 0x7F))
        numbers = [int.from_bytes(plane, "little") for plane in planes]         # n bytes side by side in one integer
        planes = [(own >> 1 & high_bits | (after & low_bits) << 7).to_bytes(n, "little")
                  for own, after in zip(numbers, numbers[1:] + numbers[:1])]
    data = bytearray(n * width)
    for p, plane in enumerate(planes):
        data[p::width] = plane
    if base is None:
        return bytes(data)
    if residual == XOR:
        return (int.from_bytes(data, "little") ^ int.from_bytes(base, "little")).to_bytes(n * width, "little")
    top = 1 << 8 * width - 1
    return b"".join(add_residual(r, b, top).to_bytes(width, "little") for r, b in zip(integers(data, width), integers(base, width)))


def add_residual(r, b, top):
    """top: S of section 7.2."""
    sign = b & top
    difference = r >> 1 ^ -(r & 1)
    t = (b & top - 1) + difference & 2 * top - 1
    return sign ^ (t if t < top else t ^ top - 1)


def read_classes(source, n, width, n_classes, sparse, natural, base):
    """Section 7.3: the planes."""
    thresholds = source.take(n_classes - 1)
    require(all(a < b for a, b in zip(b"\0" + thresholds, thresholds)), "thresholds of classes")
    members = [[] for _ in range(n_classes)]
    for i, b in enumerate(integers(base, width)):
        key = b >> 8 * width - 9 & 255 if width > 1 else b << 1 & 255 | b >> 7
        members[bisect_right(thresholds, key)].append(i)
    if sparse:
        for own in filter(None, members):
            mask = read_mask(source, len(own), 0)
            own[:] = [i for i, bit in zip(own, mask) if bit]
    planes = [source.take(n) for _ in range(natural)] + [bytearray(n) for _ in range(width - natural)]
    for own in filter(None, members):
        for plane in planes[natural:]:
            for i, byte in zip(own, read_plane(source, len(own))):
                plane[i] = byte
    return planes


def read_joint_planes(source, n, width, joint):
    """Section 7.4."""
    offset, = source.fields("H")
    require(offset < 256 << joint, "Offset of joint planes")
    planes = [read_plane(source, n) for _ in range(width - 2)]
    rest = read_rest(source, n, joint)
    wide = [(offset + symbol) % (256 << joint) for symbol in read_plane(source, n)]
    return planes + [bytes(t << 8 - joint & 255 | v for t, v in zip(wide, rest)), bytes(t >> joint for t in wide)]


def read_rest(source, n, joint):
    rows = 8 // joint
    row = (n + rows - 1) // rows
    packed = source.take(row * (rows - 1))
    values = [byte & 255 >> joint for byte in packed]
    values += [sum(packed[c * row + i] >> 8 - joint << c * joint for c in range(rows - 1)) for i in range(row)]
    require(not any(values[n:]), "values of Rest beyond the elements")
    return values[:n]


# ---- 7.6 Quantised elements ----

LOG, SIGNED, TABLE = 1, 2, 4                   # Method
MAX_LOW_BITS = 8
MAX_TABLE_SIZE = 255
MAX_QUANTUM = 65535
MAX_STEP = 1 << 24
MAX_BIAS = 1 << 30
MAX_FLOOR = 0x7F800000
MAX_GROUP_SIZE = (1 << 31) - 1
MIN_SCALE, MAX_SCALE, MAX_LOG = 0x00800000, 0x77000000, 0x7F7F0000             # bits of F32: 2^-126, 2^111, the largest BF16


def read_quantised(source, n, width, base):
    """The bytes of the elements; base: those of the prediction, or None."""
    method, low_bits, table_size, least, step, bias, floor, group_size, first_group, n_exceptions = source.fields("BBHiIiIIII")
    require(method <= (LOG | SIGNED | TABLE) and (method & LOG or not method & SIGNED), "Method")
    require(low_bits <= (0 if method & TABLE else MAX_LOW_BITS), "Low_Bits")
    require(1 <= table_size <= MAX_TABLE_SIZE if method & TABLE else table_size == 0, "Table_Size")
    require(-MAX_QUANTUM <= least <= 0, "Min")
    require(1 <= step <= MAX_STEP if method & LOG else step == 0, "Step")
    if base is None:
        require(bias == floor == 0, "Bias or Floor without prediction")
        require(1 <= first_group <= group_size <= MAX_GROUP_SIZE, "Group_Size or First_Group")
    else:
        require(not method & LOG, "Log with prediction")
        require(-MAX_BIAS <= bias <= MAX_BIAS and floor <= MAX_FLOOR, "Bias or Floor")
        require(group_size == first_group == 0, "groups with prediction")
    require(n_exceptions <= n, "N_Exceptions")
    table = (0,) + source.fields("%dH" % table_size)
    require(all(a < b for a, b in zip(table, table[1:])), "Table does not ascend")
    positions = source.fields("%dI" % n_exceptions)
    require(all(a < b for a, b in zip((-1,) + positions, positions + (n,))), "Positions of exceptions")
    values = integers(source.take(n_exceptions * width), width)
    if base is None:
        scales = read_scales(source, n, group_size, first_group, method & LOG)
    else:
        scales = predict_scales(integers(base, width), width, bias, floor)
    symbols = read_symbols(source, n, low_bits, method & TABLE and table)
    elements = [dequantise(symbol, scale, method, least, step) for symbol, scale in zip(symbols, scales)]
    if width == 2:
        elements = [bf16_of_f32(element) for element in elements]
    for position, value in zip(positions, values):
        elements[position] = value
    return struct.pack("<%d%s" % (n, "H" if width == 2 else "I"), *elements)


def read_scales(source, n, group_size, first_group, is_log):
    """The bits of each element's G."""
    n_groups = 1 + max(n - first_group + group_size - 1, 0) // group_size
    scales = [low << 16 | high << 24 for low, high in zip(read_plane(source, n_groups), read_plane(source, n_groups))]
    require(MIN_SCALE <= min(scales) and max(scales) <= (MAX_LOG if is_log else MAX_SCALE), "scale of a group")
    return [scales[(i - first_group) // group_size + 1 if i >= first_group else 0] for i in range(n)]


def predict_scales(predictions, width, bias, floor):
    scales = []
    for p in predictions:
        p = (p << 16 if width == 2 else p) & 0x7FFFFFFF
        scales.append(clamp((max(p, floor) >> 1) + bias, MIN_SCALE, MAX_SCALE) & 0xFFFF0000)
    return scales


def clamp(v, a, b):
    return min(max(v, a), b)


def read_symbols(source, n, low_bits, table):
    """table: with a leading 0, or false."""
    low = read_plane(source, n) if low_bits else bytes(n)
    high = read_plane(source, n)
    if table:
        require(max(high) < len(table), "index beyond the Table")
        return [table[index] for index in high]
    return [h << low_bits | l for h, l in zip(high, low)]


def dequantise(symbol, scale, method, least, step):
    """The bits of an F32."""
    if symbol == 0:
        return 0
    t, sign = symbol - 1, 0
    if method & SIGNED:
        t, sign = t >> 1, t & 1
    q = least + t
    if method & LOG:
        return sign << 31 | clamp(scale + q * step, MIN_SCALE, MAX_LOG)
    return multiply(q, scale)


def multiply(q, scale):
    """The bits of q * G, which has at most 24 significant bits."""
    product = abs(q) * (scale >> 16 & 0x7F | 0x80)
    if product == 0:
        return 0
    top = product.bit_length() - 1             # 7 if q is 1
    return (q < 0) << 31 | (scale >> 23) + top - 7 << 23 | product << 23 - top & 0x7FFFFF


# ---- 8. Lists of bytes ----

MODE_RAW, MODE_CONSTANT, MODE_TREE, MODE_ESCAPE = 0, 1, 2, 3


def read_plane(source, n):
    mode = source.take(1)[0]
    require(mode <= MODE_ESCAPE, "mode of a plane")
    if mode == MODE_RAW:
        return source.take(n)
    if mode == MODE_CONSTANT:
        return source.take(1) * n
    return read_node(source, read_tree_header(source, mode == MODE_ESCAPE), 0, 0, n, 0)


# ---- 8.1 Tree_Header ----

MAX_LENGTH = 15
MAX_LEAVES = 256
ESCAPE = 256                                   # stands for the escape among the symbols; sorts after them


def read_tree_header(source, has_escape):
    first, count = source.fields("BB")
    count += 1
    require(first + count <= 256, "symbols of a tree")
    packed = source.take((count + has_escape + 1) // 2)
    lengths = [half for byte in packed for half in (byte & 15, byte >> 4)]
    require(not any(lengths[count + has_escape:]), "unused bits after the lengths of a tree")
    require(lengths[0] and lengths[count - 1], "first or last symbol of a tree has no code")
    leaves = sorted((length, first + i) for i, length in enumerate(lengths[:count]) if length)
    if has_escape:
        require(lengths[count] >= leaves[-1][0], "length of the escape")
        leaves.append((lengths[count], ESCAPE))
    require(2 <= len(leaves) <= MAX_LEAVES, "number of leaves")
    require(sum(1 << MAX_LENGTH - length for length, _ in leaves) == 1 << MAX_LENGTH, "the code is not complete")
    return Tree(leaves)


# ---- 8.2 The tree ----

MIN_FLAT, MAX_FLAT = 2, 6


class Tree:
    def __init__(self, leaves):
        """leaves: pairs of length and symbol, in the order of section 8.2."""
        self.lengths, self.symbols = zip(*leaves)
        self.starts, start = [], 0
        for length in self.lengths:
            self.starts.append(start)
            start += 1 << MAX_LENGTH - length


def read_node(source, tree, depth, start, n, nesting):
    """Node(depth, start, n) of a tree whose masks have that nesting: the n bytes."""
    if n == 0:
        return b""
    a = bisect_left(tree.starts, start)
    b = bisect_left(tree.starts, start + (1 << MAX_LENGTH - depth))
    last = tree.symbols[b - 1]
    if b - a == 1:
        return source.take(n) if last == ESCAPE else bytes([last]) * n
    extra = tree.lengths[a] - depth
    if last != ESCAPE and tree.lengths[a] == tree.lengths[b - 1] and MIN_FLAT <= extra <= MAX_FLAT:
        index = 0                              # of every element, in n bytes of one integer
        for _ in range(extra):
            index = index << 1 | int.from_bytes(unpack_bits(source.take((n + 7) // 8), n), "little")
        return index.to_bytes(n, "little").translate(bytes(tree.symbols[a:b]).ljust(256, b"\0"))
    bits = read_mask(source, n, nesting)
    ones = bits.count(1)
    left = read_node(source, tree, depth + 1, start, n - ones, nesting)
    right = read_node(source, tree, depth + 1, start + (1 << MAX_LENGTH - 1 - depth), ones, nesting)
    return merge(bits, left, right)


def merge(bits, left, right):
    """For each bit the next byte of left (0) or of right (1)."""
    if not left or not right:
        return left or right
    if left.count(left[0]) == len(left) and right.count(right[0]) == len(right):
        return bits.translate(bytes([left[0], right[0]]).ljust(256, b"\0"))
    left, right = iter(left), iter(right)
    return bytes([next(right) if bit else next(left) for bit in bits])


# ---- 8.3 Mask ----

MAX_NESTING = 3
MIN_NESTED_BITS = 256
COMPLEMENT = bytes(range(255, -1, -1))
SPREAD = [bytes(byte >> i & 1 for i in range(8)) for byte in range(256)]


def read_mask(source, n, nesting):
    """n bits, one a byte."""
    size, mode = (n + 7) // 8, 0
    if n >= MIN_NESTED_BITS and nesting < MAX_NESTING:
        mode = source.take(1)[0]
        require(mode <= 2 * len(FROZEN_TREES), "mode of a mask")
    if mode == 0:
        return unpack_bits(source.take(size), n)
    level, polarity = mode - 1 >> 1, mode - 1 & 1
    packed = read_node(source, FROZEN_TREES[level], 0, 0, size, nesting + 1)
    return unpack_bits(packed.translate(COMPLEMENT) if polarity else packed, n)


def unpack_bits(packed, n):
    require(n % 8 == 0 or packed[-1] >> n % 8 == 0, "unused bits of a list of bits")
    return b"".join(map(SPREAD.__getitem__, packed))[:n]


# ---- 8.4 Frozen trees ----

FROZEN_COUNTS = (                              # leaves of length 1 .. 15
    (0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0),
    (0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2),
    (0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34),
    (0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90),
    (1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92),
    (1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162),
    (1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162),
    (1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182),
    (1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214))
FROZEN_SYMBOLS = sorted(range(256), key=lambda symbol: (bin(symbol).count("1"), symbol))
FROZEN_TREES = [Tree(zip((length + 1 for length in range(MAX_LENGTH) for _ in range(counts[length])), FROZEN_SYMBOLS))
                for counts in FROZEN_COUNTS]

# ---- 9. Checks and identities ----

LEAF_SIZE = 262144


class LeafCrcs:
    """The leaf CRCs of section 9.2, of bytes that come in pieces."""

    def __init__(self):
        self.packed, self.crc, self.fill = bytearray(), 0, 0

    def add(self, data):
        at = 0
        while at < len(data):
            piece = data[at:at + LEAF_SIZE - self.fill]
            self.crc, at, self.fill = crc32c(piece, self.crc), at + len(piece), self.fill + len(piece)
            if self.fill == LEAF_SIZE:
                self.flush()

    def flush(self):
        if self.fill:
            self.packed += struct.pack("<I", self.crc)
            self.crc = self.fill = 0


def add_to_file(file, data, keep):
    """Sum up the file's next bytes."""
    if keep:
        file.data += data
    file.crc = crc32c(data, file.crc)
    start, end = file.done, file.done + len(data)
    if file.whole:
        file.whole.leaves.add(data)
    while file.next_tensor < len(file.tensors):
        tensor = file.tensors[file.next_tensor]
        tensor_end = tensor.offset + tensor.size
        if tensor.offset < end and tensor_end > start:
            tensor.leaves.add(data[max(tensor.offset - start, 0):tensor_end - start])
        if tensor_end > end:
            break
        file.next_tensor += 1
    file.done = end


def identify_tensor(tensor, shape, size):
    tensor.leaves.flush()
    tensor.identity = hashlib.sha256(b"LMC tensor 1\0" + tensor.leaves.packed + struct.pack("<B", len(tensor.dtype)) + tensor.dtype
                                     + struct.pack("<B%dQQ" % len(shape), len(shape), *shape, size)).digest()
    return tensor.identity


def identify_file(file):
    """All identities of a file, in the order of the index."""
    if file.whole:
        file.identity = identify_tensor(file.whole, (file.size,), file.size)
        return file.identity
    return b"".join(identify_tensor(tensor, tensor.shape, tensor.size) for tensor in file.tensors)


def sort_items(snapshot):
    """Pairs of file and tensor, of the files whose identities are known."""
    items = [(file, tensor) for file in snapshot.files for tensor in file.tensors or [file.whole]]
    return sorted(items, key=lambda item: (item[1].name, item[1].identity))


def identify_snapshot(snapshot):
    text = b"".join(struct.pack("<I", len(tensor.name)) + tensor.name + tensor.identity for _, tensor in sort_items(snapshot))
    return hashlib.sha256(b"LMC snapshot 1\0" + text).digest()


# ---- 9.4 Bases ----


def find_base(identity, paths):
    """The bytes of each item of the snapshot of that identity, which should be among those at paths."""
    require(paths, "the snapshot %s is needed as base (--base)" % identity.hex(), "BASE_MISSING")
    error = LmcError("BASE_WRONG", "the snapshot %s is needed as base, not what was given" % identity.hex())
    for path in paths:
        try:
            if not is_lmc(path):
                snapshot = read_plain(path)
            elif read_claim(path) == identity:
                with open(path, "rb") as stream:
                    snapshot = decode_stream(stream, [other for other in paths if other != path], keep=True)
            else:
                continue
        except LmcError as reason:             # another may do
            error = LmcError(reason.status, "base %s: %s" % (path, reason.text))
            continue
        if snapshot.identity == identity:
            return [memoryview(file.data)[tensor.offset:tensor.offset + tensor.size] for file, tensor in sort_items(snapshot)]
    raise error


def is_lmc(path):
    if os.path.isdir(path):
        return False
    with open(path, "rb") as stream:
        return stream.read(8) == MAGIC


def read_claim(path):
    """The identity of an LMC file as its index says; to decode it will show whether that is true."""
    try:
        with open(path, "rb") as stream:
            stream.seek(-TRAILER_SIZE, os.SEEK_END)
            stream.seek(int.from_bytes(stream.read(8), "little") + SECTION_HEADER_SIZE + 8)
            return stream.read(32)
    except (OSError, OverflowError):
        return None


@functools.lru_cache(maxsize=None)
def read_plain(path):
    """A file, or the files and directories below a directory, as the snapshot that a tool would make of it."""
    snapshot, path = Snapshot(), os.fsencode(path)
    if not os.path.isdir(path):
        read_plain_file(snapshot, path, b"", REGULAR)
    for folder, _, names in os.walk(path):
        if folder != path or not os.listdir(path):
            read_plain_file(snapshot, folder, os.path.relpath(folder, path) if folder != path else b"", DIRECTORY)
        for name in names:
            full = os.path.join(folder, name)
            read_plain_file(snapshot, full, os.path.relpath(full, path), REGULAR)
    snapshot.identity = identify_snapshot(snapshot)
    return snapshot


def read_plain_file(snapshot, path, name, kind):
    file = File()
    file.path, file.kind, data = name.replace(os.fsencode(os.sep), b"/"), kind, b""
    if kind == REGULAR:
        with open(path, "rb") as stream:
            data = stream.read()
    set_tensors(file, find_safetensors(data))
    add_to_file(file, data, True)
    file.size = len(data)
    identify_file(file)
    snapshot.files.append(file)


def find_safetensors(data):
    """The tensors if data is a valid safetensors file: u64 size of the JSON, the JSON, the tensors without gaps."""
    end = 8 + int.from_bytes(data[:8], "little")
    if data[8:9] != b"{" or end > len(data):
        return []
    tensors = []
    try:
        for name, entry in json.loads(data[8:end]).items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                tensors.append(Tensor(name.encode(), entry["dtype"].encode(), tuple(entry["shape"]), end + first, last - first))
        tensors.sort(key=lambda tensor: (tensor.offset, tensor.size, tensor.name))
        for tensor in tensors:
            require(tensor.offset == end and tensor.size >= 0, "tensors are not side by side")
            require(is_size_right(tensor.dtype, tensor.shape, tensor.size), "size of a tensor")
            end += tensor.size
        require(end <= len(data), "tensor ends after its file")
    except (LmcError, ValueError, KeyError, TypeError, AttributeError):
        return []                              # plain bytes
    return tensors


# ---- 10. Index and trailer ----

MAX_VALUE_SIZE = 1 << 28
TRAILER_SIZE = 40
END_MAGIC = bytes.fromhex("8D4C4D430D0A1A0A")


def check_index(body, snapshot):
    body = Cursor(body, "index")
    n_files, n_runs, identity, n_metadata, reserved = body.fields("II32sII")
    require(reserved == 0, "reserved field of the index", "UNSUPPORTED")
    require(n_files == len(snapshot.files) and n_runs == snapshot.runs, "index: N_Files or N_Runs")
    for offset, copy, file, blocks in snapshot.entries:
        require(body.fields("Q")[0] == offset, "index: Offset of a section")
        require(body.take(len(copy)) == copy, "index: Copy of a section")
        if file:
            size, crc, reserved = body.fields("QII")
            require(reserved == 0, "reserved field of an index entry")
            require(size == file.size and crc == file.crc, "index: File_Size or File_CRC")
            require(body.take(32 * (len(file.tensors) or 1)) == identify_file(file), "index: identity of a tensor or file")
        else:
            require(body.take(len(blocks)) == blocks, "index: size or Header_CRC of a block")
    snapshot.identity = identify_snapshot(snapshot)
    require(identity == snapshot.identity, "index: identity of the snapshot")
    for _ in range(n_metadata):
        key_size, value_size = body.fields("II")
        require(1 <= key_size <= MAX_NAME_SIZE and value_size <= MAX_VALUE_SIZE, "size of a metadata entry")
        key = body.string(key_size)
        require(not snapshot.metadata or snapshot.metadata[-1][0] < key, "metadata keys do not ascend")
        snapshot.metadata.append((key, body.take(value_size)))
    body.finish()


def check_trailer(source, index_start, index_end):
    trailer = source.read(TRAILER_SIZE)
    index_offset, index_size, total_size, reserved, crc, magic = struct.unpack("<QQQII8s", trailer)
    require(magic == END_MAGIC, "End_Magic")
    require(crc == crc32c(trailer[:28]), "trailer", "CHECKSUM")
    require(reserved == 0, "reserved field of the trailer", "UNSUPPORTED")
    require((index_offset, index_size, total_size) == (index_start, index_end - index_start, index_end + TRAILER_SIZE),
            "trailer disagrees with the file")
    require(not source.read_up_to(1), "bytes after the trailer")


# ---- As a module ----


class Memory:
    def __init__(self, data):
        self.data, self.at = memoryview(data), 0

    def read(self, size):
        self.at += size
        return bytes(self.data[self.at - size:self.at])


def decode(data, bases=()):
    """The Snapshot in data; each of its files has its bytes as .data. bases: paths. Raises LmcError."""
    return decode_stream(Memory(data), bases, keep=True)


# ---- As a command ----

EXIT_CODES = {"VERSION": 1, "UNSUPPORTED": 1, "LIMIT": 1, "BASE_MISSING": 4, "BASE_WRONG": 4}       # others: 3


class Restore:
    """Writes the files below a temporary directory beside OUT; publish() moves them there."""

    def __init__(self, out):
        self.out, self.open = out, None
        # mkdtemp makes it readable by us alone; root in it gets the usual mode.
        self.temporary = tempfile.mkdtemp(prefix=".lmc-", dir=None if out == "-" else os.path.dirname(os.path.abspath(out)))
        self.root = os.path.join(os.fsencode(self.temporary), b"root")
        os.mkdir(self.root)

    def deliver(self, file, piece):
        if piece:
            self.open.write(piece)
            return
        self.close()
        path = os.path.join(self.root, file.path or b"file")
        os.makedirs(path if file.kind == DIRECTORY else os.path.dirname(path), exist_ok=True)
        if file.kind == REGULAR:
            self.open = open(path, "xb")

    def publish(self, files):
        self.close()
        for file in sorted(files, key=lambda file: file.path, reverse=True):        # a directory after what is in it
            path = os.path.join(self.root, file.path or b"file")
            if file.mtime is not None:
                try:
                    os.utime(path, ns=(file.mtime, file.mtime))
                except (OverflowError, OSError):
                    pass                       # a time that this system does not have
            if file.mode is not None:
                os.chmod(path, file.mode & 0o777)                               # no set-user-ID bits from strangers
        single = not files[0].path                 # section 5.1
        path = os.path.join(self.root, b"file") if single else self.root
        if self.out != "-":
            os.rename(path, os.fsencode(self.out))
        elif len(files) == 1 and files[0].kind == REGULAR:
            with open(os.path.join(self.root, files[0].path or b"file"), "rb") as data:
                shutil.copyfileobj(data, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            raise OSError("the snapshot is a directory: standard output takes one file only")

    def close(self):
        if self.open:
            self.open.close()
            self.open = None

    def remove(self):
        if self.open:
            self.open.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


def describe(snapshot):
    def text(string):
        return string.decode("utf-8", "backslashreplace")
    base = snapshot.base_identity.hex() if snapshot.base_identity else None
    metadata = {text(k): text(v) for k, v in snapshot.metadata}
    return json.dumps({"identity": snapshot.identity.hex(), "base": base, "metadata": metadata, "files": [
        {"path": text(f.path), "kind": "directory" if f.kind == DIRECTORY else "regular", "size": f.size, "crc32c": "%08x" % f.crc,
         "mode": f.mode, "mtime_ns": f.mtime, "identity": f.identity.hex() if f.identity else None,
         "tensors": [{"name": text(t.name), "dtype": text(t.dtype), "shape": t.shape, "offset": t.offset, "size": t.size,
                      "identity": t.identity.hex(), "generation": t.loss[0], "measure": MEASURES[t.loss[1]], "error": t.loss[2] / 2**32}
                     for t in f.tensors]} for f in snapshot.files]}, indent=1)


def main(arguments):
    bases, listing = [], False
    while len(arguments) > 1 and arguments[0] in ("--base", "--list"):
        if arguments[0] == "--base":
            bases.append(arguments[1])
        listing = listing or arguments[0] == "--list"
        arguments = arguments[2 if arguments[0] == "--base" else 1:]
    if len(arguments) != (1 if listing else 2) or any(a.startswith("--") for a in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    restore = None
    try:
        with (sys.stdin.buffer if arguments[0] == "-" else open(arguments[0], "rb")) as stream:
            if listing:
                print(describe(decode_stream(stream, bases)))
            else:
                restore = Restore(arguments[1])
                restore.publish(decode_stream(stream, bases, restore.deliver).files)
    except LmcError as error:
        print("lmc_decode: %s" % error, file=sys.stderr)
        return EXIT_CODES.get(error.status, 3)
    except OSError as error:
        print("lmc_decode: IO: %s" % error, file=sys.stderr)
        return 1
    finally:
        if restore:
            restore.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
