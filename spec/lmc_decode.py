#!/usr/bin/env python3
"""Reference decoder of LMC files, format 0.1, in plain Python 3.8+; laid out in the order of lmc-format.md.

Usage: lmc_decode.py FILE.lmc OUT      restore; OUT is a file if the snapshot is one file without a path, else a directory
       lmc_decode.py --list FILE.lmc   check everything, print files and tensors as JSON
FILE.lmc may be - (standard input), OUT may be - (standard output; one regular file only).

Exit codes: 0 ok, 1 VERSION, UNSUPPORTED, LIMIT or an I/O error, 2 usage, 3 bad data. After an error nothing is left at OUT.
As a module: decode(data) returns a Snapshot or raises LmcError(status, text). SPDX-License-Identifier: MIT
"""
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
from bisect import bisect_left

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
    """files, metadata (pairs of key and value) and the identity."""

    def __init__(self):
        self.files, self.metadata, self.identity = [], [], None
        self.paths, self.runs, self.entries = set(), 0, []                      # entries: what the index must say (section 10)


def decode_stream(stream, deliver):
    """Decode and check a whole LMC file; deliver(file, data) gets the checked bytes of each file in order, first b"" for each."""
    source, snapshot = Input(stream), Snapshot()
    read_file_header(source)
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
            block_sizes = read_run(source, body, snapshot, deliver)
            snapshot.entries.append((offset, header + body, None, block_sizes))
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


def read_file_header(source):
    require(source.read_up_to(8) == MAGIC, "no LMC file", "NOT_LMC")
    version = source.read(2)
    require(version == b"\0\1", "format %d.%d; this decoder knows 0.1" % tuple(version), "VERSION")
    header = MAGIC + version + source.read(HEADER_SIZE - 10)
    size, flags, incompatible, _compatible, base, depth, reserved, crc = struct.unpack("<HIQQ32sIQI", header[10:])
    require(crc == crc32c(header[:76]), "file header", "CHECKSUM")
    require(size == HEADER_SIZE, "Header_Size")
    require(incompatible & ~KNOWN_INCOMPATIBLE == 0, "incompatible feature bits %x" % incompatible, "UNSUPPORTED")
    require(flags == FLAG_SEQUENTIAL, "Flags", "UNSUPPORTED")
    require(base == bytes(32) and depth == 0, "needs a base", "UNSUPPORTED")
    require(reserved == 0, "reserved field of the file header", "UNSUPPORTED")


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
DTYPE_BITS = {name.encode(): bits for bits, names in (
    (8, "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"), (4, "F4"), (6, "F6_E2M3 F6_E3M2"),
    (16, "I16 U16 F16 BF16"), (32, "I32 U32 F32"), (64, "C64 F64 I64 U64")) for name in names.split()}


class File:
    """path, kind, size, mode and mtime (None if not valid), tensors; crc and identity once decoded."""

    def __init__(self):
        self.crc = self.done = self.next_tensor = 0
        self.whole, self.identity = None, None


class Tensor:
    def __init__(self, name, dtype, shape, offset, size):
        self.name, self.dtype, self.shape, self.offset, self.size = name, dtype, shape, offset, size
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
    file.tensors = []
    end, names = 0, set()
    for _ in range(n_tensors):
        tensor = read_tensor_entry(body)
        require(tensor.offset >= end, "tensors overlap or are not sorted")
        end = tensor.offset + tensor.size
        require(end <= file.size, "tensor ends after its file")
        require(tensor.name not in names, "two tensors of the same name")
        names.add(tensor.name)
        file.tensors.append(tensor)
    body.finish()
    if n_tensors == 0:                         # section 9.2: the file as one tensor
        file.whole = Tensor(file.path, b"U8", None, 0, MAX_SIZE)
    return file


def check_path(path, snapshot):
    require(b"\\" not in path, "backslash in a Path")
    if path:
        require(all(part not in (b"", b".", b"..") for part in path.split(b"/")), "illegal Path")
    require(not snapshot.files or (path and snapshot.files[0].path), "empty Path beside other files")
    require(path not in snapshot.paths, "two files of the same Path")
    snapshot.paths.add(path)


def read_tensor_entry(body):
    offset, size, name_size, dtype_size, rank, reserved = body.fields("QQIBBH")
    require(reserved == 0, "reserved field of a tensor", "UNSUPPORTED")
    require(name_size <= MAX_NAME_SIZE and 1 <= dtype_size <= MAX_DTYPE_SIZE and rank <= MAX_RANK, "size of name, dtype or shape")
    shape = body.fields("%dQ" % rank)
    name, dtype = body.string(name_size), body.string(dtype_size)
    if dtype in DTYPE_BITS:
        bits = DTYPE_BITS[dtype]
        for extent in shape:                   # Python's integers are exact
            bits *= extent
        require(bits == 8 * size, "size of a tensor is not what dtype and shape say")
    return Tensor(name, dtype, shape, offset, size)


# ---- 5.2 RUN body ----

MIN_LOG2_BLOCK_SIZE, MAX_LOG2_BLOCK_SIZE = 14, 23
MAX_SEGMENTS = 1 << 24
MAX_BLOCKS = (1 << 32) - 1


def read_run(source, body, snapshot, deliver):
    body = Cursor(body, "RUN body")
    run_size, log2_block_size, prediction, reserved, n_segments = body.fields("QBBHI")
    require(prediction == 0 and reserved == 0, "Prediction or reserved field of a RUN", "UNSUPPORTED")
    require(1 <= run_size <= MAX_SIZE, "Run_Size")
    require(MIN_LOG2_BLOCK_SIZE <= log2_block_size <= MAX_LOG2_BLOCK_SIZE, "Log2_Block_Size")
    require(1 <= n_segments <= MAX_SEGMENTS, "N_Segments")
    require(snapshot.files, "RUN before the first FILE")
    file, total = snapshot.files[-1], 0
    for _ in range(n_segments):
        number, base, offset, size = body.fields("IIQQ")
        require(base == 0, "Base of a segment", "UNSUPPORTED")
        require(size >= 1, "empty segment")
        # Section 6: segments follow one another in the latest file, so the run's bytes are simply the file's next bytes.
        require(number == len(snapshot.files) - 1 and offset == file.done + total, "segment out of order")
        total += size
        require(offset + size <= (MAX_SIZE if file.size is None else file.size), "segment ends after its file")
    body.finish()
    require(total == run_size, "Run_Size is not the sum of the segments")
    block_size = 1 << log2_block_size
    require((run_size - 1 >> log2_block_size) + 1 <= MAX_BLOCKS, "too many blocks")
    block_sizes, number = [], 0
    for start in range(0, run_size, block_size):
        encoded_size, data = read_block(source, snapshot.runs, number, min(block_size, run_size - start))
        block_sizes.append(encoded_size)
        add_to_file(file, data)
        deliver(file, data)
        number += 1
    return block_sizes


# ---- 6. Order (6.3 also in read_run) ----


def finish_file(snapshot):
    if snapshot.files:
        file = snapshot.files[-1]
        require(file.size is None or file.done == file.size, "the runs do not cover the file")
        file.size = file.done


# ---- 7. Block ----

BLOCK_HEADER_SIZE = 20
SYNC = 0xB1
MAX_ELEMENTS = 1 << 20
XOR, SUBTRACT = 0, 1
STORED, PLANES = 0, 1
MAX_JOINT = 2


def read_block(source, run, number, size):
    """One block that must decode to size bytes: returns its encoded size and the bytes."""
    header = source.read(BLOCK_HEADER_SIZE)
    sync, coding, prediction, grouping, n, payload_size, content_crc, header_crc = struct.unpack("<BBBBIIII", header)
    require(sync == SYNC, "no block where one should start")
    require(header_crc == crc32c(struct.pack("<II", run, number) + header[:16]), "block header", "CHECKSUM")
    width, residual, joint, layout = 1 << (coding & 3), coding >> 2 & 1, coding >> 3 & 3, coding >> 5
    require(joint <= MAX_JOINT and layout in (STORED, PLANES), "Coding %#x of a block" % coding, "UNSUPPORTED")
    require(prediction == 0 and grouping == 0, "Prediction or Grouping of a block", "UNSUPPORTED")
    require(1 <= n <= MAX_ELEMENTS and n * width == size, "N_Elements")
    if layout == STORED:
        require(payload_size == size and residual == XOR and joint == 0, "Payload_Size, Residual or Joint of a stored block")
        data = source.read(payload_size)
    else:
        require(payload_size < size, "Payload_Size")
        payload = Cursor(source.read(payload_size), "payload")
        require(joint == 0 or width > 1, "Joint planes of width 1")
        planes = read_joint_planes(payload, n, width, joint) if joint else [read_plane(payload, n) for _ in range(width)]
        data = join_planes(planes, n, residual)
        payload.finish()
    require(crc32c(data) == content_crc, "content of a block", "CHECKSUM")
    return BLOCK_HEADER_SIZE + payload_size, data


def join_planes(planes, n, residual):
    """Section 7.2. Plane p of the result gets bits 1-7 of plane p, and bit 0 of the next plane (after the last: the first) as bit 7."""
    if residual == SUBTRACT:
        low_bits, high_bits = (int.from_bytes(bytes([b]) * n, "little") for b in (0x01, 0x7F))
        numbers = [int.from_bytes(plane, "little") for plane in planes]         # n bytes side by side in one integer
        planes = [(own >> 1 & high_bits | (after & low_bits) << 7).to_bytes(n, "little")
                  for own, after in zip(numbers, numbers[1:] + numbers[:1])]
    data = bytearray(n * len(planes))
    for p, plane in enumerate(planes):
        data[p::len(planes)] = plane
    return bytes(data)


def read_joint_planes(source, n, width, joint):
    """Section 7.3."""
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


def add_to_file(file, data):
    """Sum up the file's next bytes."""
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


def identify_snapshot(snapshot):
    items = sorted((t.name, t.identity) for f in snapshot.files for t in (f.tensors or [f.whole]))
    text = b"".join(struct.pack("<I", len(name)) + name + identity for name, identity in items)
    return hashlib.sha256(b"LMC snapshot 1\0" + text).digest()


# ---- 10. Index and trailer ----

MAX_VALUE_SIZE = 1 << 28
TRAILER_SIZE = 40
END_MAGIC = bytes.fromhex("8D4C4D430D0A1A0A")


def check_index(body, snapshot):
    body = Cursor(body, "index")
    n_files, n_runs, identity, n_metadata, reserved = body.fields("II32sII")
    require(reserved == 0, "reserved field of the index", "UNSUPPORTED")
    require(n_files == len(snapshot.files) and n_runs == snapshot.runs, "index: N_Files or N_Runs")
    for offset, copy, file, block_sizes in snapshot.entries:
        require(body.fields("Q")[0] == offset, "index: Offset of a section")
        require(body.take(len(copy)) == copy, "index: Copy of a section")
        if file:
            size, crc, reserved = body.fields("QII")
            require(reserved == 0, "reserved field of an index entry")
            require(size == file.size and crc == file.crc, "index: File_Size or File_CRC")
            require(body.take(32 * (len(file.tensors) or 1)) == identify_file(file), "index: identity of a tensor or file")
        else:
            require(body.take(4 * len(block_sizes)) == struct.pack("<%dI" % len(block_sizes), *block_sizes), "index: block sizes")
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


def decode(data):
    """The Snapshot in data; each of its files has its bytes as .data. Raises LmcError."""
    def deliver(file, piece):
        file.__dict__.setdefault("data", bytearray()).extend(piece)
    return decode_stream(Memory(data), deliver)


# ---- As a command ----


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
    return json.dumps({"identity": snapshot.identity.hex(), "metadata": {text(k): text(v) for k, v in snapshot.metadata}, "files": [
        {"path": text(f.path), "kind": "directory" if f.kind == DIRECTORY else "regular", "size": f.size, "crc32c": "%08x" % f.crc,
         "mode": f.mode, "mtime_ns": f.mtime, "identity": f.identity.hex() if f.identity else None,
         "tensors": [{"name": text(t.name), "dtype": text(t.dtype), "shape": t.shape, "offset": t.offset, "size": t.size,
                      "identity": t.identity.hex()} for t in f.tensors]} for f in snapshot.files]}, indent=1)


def main(arguments):
    listing = arguments[:1] == ["--list"]
    arguments = arguments[listing:]
    if len(arguments) != (1 if listing else 2) or any(a.startswith("--") for a in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    restore = None
    try:
        with (sys.stdin.buffer if arguments[0] == "-" else open(arguments[0], "rb")) as stream:
            if listing:
                print(describe(decode_stream(stream, lambda file, data: None)))
            else:
                restore = Restore(arguments[1])
                restore.publish(decode_stream(stream, restore.deliver).files)
    except LmcError as error:
        print("lmc_decode: %s" % error, file=sys.stderr)
        return 1 if error.status in ("VERSION", "UNSUPPORTED", "LIMIT") else 3
    except OSError as error:
        print("lmc_decode: IO: %s" % error, file=sys.stderr)
        return 1
    finally:
        if restore:
            restore.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
