#!/usr/bin/env python3
"""Reference decoder of LMC files, format 1.0, in plain Python 3.8+; laid out in the order of lmc-format.md.

Usage: lmc_decode.py [OPTION]... FILE.lmc OUT      restore; OUT is a file if the snapshot is one file without a path, else a directory
       lmc_decode.py [OPTION]... --list FILE.lmc   check everything, print files and tensors as JSON
FILE.lmc may be - (standard input), OUT may be - (standard output; one regular file only).
--base BASE   for a delta: an LMC file, a safetensors file, any other file, or a directory of files. Of several the one with the right
              identity is taken, and again for a base that is a delta itself. It is held in memory.
--level N     be a decoder of conformance level N (0 .. 4, default 4): refuse what is above it
--limit N     restore at most N bytes in all (LIMIT): a small file can restore to a huge one
--hashes      check the SHA-256 hashes, too, if the file has them (section "hash")

Exit codes: 0 ok, 1 VERSION, UNSUPPORTED, LIMIT or an I/O error, 2 usage, 3 bad data, 4 BASE_MISSING or BASE_WRONG. After an error nothing
is left at OUT. As a module: decode(data, bases) returns a Snapshot or raises LmcError(status, text). SPDX-License-Identifier: MIT
"""
import filecmp
import functools
import hashlib
import io
import itertools
import json
import os
import re
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


def make_crc_tables(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    tables = [table]                           # tables[k]: a byte followed by k zero bytes
    for _ in range(7):
        tables.append([table[c & 255] ^ c >> 8 for c in tables[-1]])
    return tables


def crc(data, value, tables, ones):
    """The CRC of data after bytes of which value is the CRC. ones: its initial value and final exclusive or."""
    t0, t1, t2, t3, t4, t5, t6, t7 = tables
    value ^= ones
    whole = len(data) & ~7
    for x, in struct.iter_unpack("<Q", memoryview(data)[:whole]):
        x ^= value
        value = (t7[x & 255] ^ t6[x >> 8 & 255] ^ t5[x >> 16 & 255] ^ t4[x >> 24 & 255] ^ t3[x >> 32 & 255] ^ t2[x >> 40 & 255]
                 ^ t1[x >> 48 & 255] ^ t0[x >> 56])
    for byte in data[whole:]:
        value = t0[(value ^ byte) & 255] ^ value >> 8
    return value ^ ones


CRC32C_TABLES = make_crc_tables(0x82F63B78)
CRC64_TABLES = make_crc_tables(0x9A6C9329AC4BC9B5)


def crc32c(data, value=0):
    return crc(data, value, CRC32C_TABLES, (1 << 32) - 1)


def crc64(data, value=0):
    """CRC-64/NVME: that of the leaves of section 9.2."""
    return crc(data, value, CRC64_TABLES, (1 << 64) - 1)


class Cursor:
    """Reads a section's body or a block's payload, whose size is known and whose bytes are there."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def take(self, size):
        require(size <= len(self.data) - self.at, "%s ends early (R2.1-6, R2.1-7)" % self.what)
        self.at += size
        return self.data[self.at - size:self.at]

    def fields(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        """v: 7 bits a byte, in the shortest form."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            require(shift < 70, "varint of more than 10 bytes (R2.1-1)")
        require(value < 1 << 64 and (byte > 0 or shift == 7), "varint of 2^64 or more, or not in its shortest form (R2.1-1)")
        return value

    def string(self, size):
        text = self.take(size)
        require(b"\0" not in text, "zero byte in a string (R2.1-3)")
        return text

    def finish(self):
        require(self.at == len(self.data), "%s is longer than its content (R5-10, R7-15)" % self.what)


def unzigzag(number):
    return number >> 1 ^ -(number & 1)


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
        require(len(data) == size, "the input ends at byte %d (R2.1-5)" % self.at, "TRUNCATED")
        return data


# ---- 3. Layout ----

ALL_LEVELS = 4                                 # conformance levels: 0 Direct, 1 Joint, 2 Delta, 3 Own, 4 Quantised


class Snapshot:
    """files, metadata (pairs of key and value) and the identity; keep: whether each file keeps its bytes as .data."""

    def __init__(self, keep=True, level=ALL_LEVELS, limit=None):
        self.files, self.metadata, self.identity, self.keep, self.level, self.limit = [], [], None, keep, level, limit
        self.incompatible, self.base_identity, self.base_items = 0, None, []
        self.paths, self.numbers, self.entries = set(), dict.fromkeys((b"FILE", b"RUN ", None, b"INDX"), 0), []
        # entries: what the index must say (section 10). The bytes of all files are counted in one row, in which a stream is a part:
        self.done, self.filling = 0, 0         # bytes that there are; number of the file that gets the next one
        self.stream_end, self.borders = 0, []  # None: not known; where the pieces of the stream end (section 6.3)
        self.own_starts, self.own_ends = [], []                                 # ranges of runs of Prediction 2
        self.tables = 0                        # bytes of names and entries

    def uses(self, bit):
        return self.incompatible >> bit & 1

    def count_entry(self, name):
        """An entry of 5 bytes can have a name of 510."""
        self.tables += OWN_ENTRY_SIZE + len(name)
        require(self.tables <= OWN_MAX_TABLES, "names of more than %d bytes" % OWN_MAX_TABLES, "LIMIT")


def decode_stream(stream, bases, deliver=lambda file, data: None, keep=False, level=ALL_LEVELS, hashes=False, limit=None):
    """Decode and check a whole LMC file; deliver(file, data) gets the checked bytes of each file in order, first b"" for each.
    bases: paths (or Bases). Where the stream cannot be sought in, a base that is no LMC file is looked at by its containers only (section 9.4).
    """
    try:
        source, snapshot = Input(stream), Snapshot(keep, level, limit)
        header = read_file_header(source, snapshot)
        if snapshot.base_identity:
            base = find_base(snapshot, bases if isinstance(bases, Bases) else Bases(bases), stream)
            snapshot.base_items = [memoryview(file.data)[tensor.offset:tensor.offset + tensor.size] for file, tensor in sort_items(base)]
        hash_section = None                    # its body, once it has come
        while True:
            offset = source.at
            kind, section, body = read_section(source, snapshot)
            if kind in (b"FILE", b"INDX"):
                finish_stream(snapshot, deliver)
            if kind == b"INDX":
                break
            what = None
            if kind == b"FILE":
                what = read_file_body(Cursor(body, "FILE body"), snapshot)
                begin_stream(snapshot, what, deliver)
            elif kind == b"RUN ":
                what = read_run(source, Cursor(body, "RUN body"), snapshot, deliver)
            require(snapshot.files, "the first section is no FILE (R6.1-1)")
            if hashes and kind == b"hash" and body[:8] == SHA256_HASHES:
                require(hash_section is None, "two sections hash of SHA-256 (R9.5-4)")
                hash_section = body
            snapshot.entries.append((offset, section + (body if what is not None else b""), what))
        require(snapshot.files, "no FILE section (R6.1-1)")
        check_index(Cursor(body, "index"), header, snapshot)
        index_end = source.at
        check_trailer(source.read(TRAILER_SIZE), offset, index_end)
        require(not source.read_up_to(1), "bytes after the trailer (R10.3-6)")
        if hashes and hash_section is not None:
            check_hashes(hash_section, snapshot)
    except MemoryError:
        raise LmcError("LIMIT", "out of memory") from None
    return snapshot


# ---- 4. File_Header ----

MAGIC = bytes.fromhex("834C4D430D0A1A0A")
DRAFT_MAGIC = bytes.fromhex("8C4C4D430D0A1A0A")
FORMAT_MAJOR = 1
HEADER_SIZE = 80
JOINT_BIT, BASE_BIT, OWN_BIT, QUANTISED_BIT = range(4)                          # of Incompatible; level N knows the first N


def read_file_header(source, snapshot):
    magic = source.read_up_to(8)
    require(magic != DRAFT_MAGIC, "a draft of the format (0.x) (R4.1-1)", "VERSION")
    require(magic == MAGIC, "no LMC file (R4.1-1)", "NOT_LMC")
    major = source.read(1)
    require(major[0] == FORMAT_MAJOR, "format %d.x; this decoder knows %d.x (R4.1-2)" % (major[0], FORMAT_MAJOR), "VERSION")
    header = magic + major + source.read(HEADER_SIZE - 9)
    _minor, size, flags, incompatible, _compatible, base, depth, reserved, checksum = struct.unpack("<BHIQQ32sIQI", header[9:])
    require(checksum == crc32c(header[:76]), "file header (R4.1-4)", "CHECKSUM")
    require(size == HEADER_SIZE, "Header_Size (R4.1-5)")
    require(incompatible >> snapshot.level == 0, "incompatible feature bits %#x (R4.1-6)" % incompatible, "UNSUPPORTED")
    require(flags == reserved == 0, "reserved bits of the file header (R4.1-7)", "UNSUPPORTED")
    snapshot.incompatible = incompatible
    snapshot.base_identity = base if snapshot.uses(BASE_BIT) else None
    require((base != bytes(32)) == (depth != 0) == bool(snapshot.uses(BASE_BIT)),
            "Base_Identity, Chain_Depth or bit 1 of Incompatible (R4.1-8, R4.1-9)")
    snapshot.keep = snapshot.keep or snapshot.uses(OWN_BIT)                    # section 5.2, Prediction 2
    return header


# ---- 5. Sections ----

SECTION_HEADER_SIZE = 24
MAX_BODY_SIZE = 1 << 40
OWN_MAX_BODY_SIZE = 1 << 30                    # this decoder's own limit: LIMIT (section 12)
MAX_SIZE = (1 << 63) - 1
KIND = re.compile(rb"[A-Za-z][A-Za-z0-9 ]{3}")


def read_section(source, snapshot):
    header = source.read(SECTION_HEADER_SIZE)
    kind, number, size, head_crc, body_crc = struct.unpack("<4sIQII", header)
    require(head_crc == crc32c(header[:16]), "section header (R5-1)", "CHECKSUM")
    require(KIND.fullmatch(kind), "kind of a section (R5-2)")
    counted = None if kind[:1].islower() else kind                              # ancillary sections are counted together
    require(counted in snapshot.numbers, "section of the unknown kind %s (R5-3)" % kind.decode(), "UNSUPPORTED")
    require(number == snapshot.numbers[counted], "number of section %s (R5-4)" % kind.decode())
    snapshot.numbers[counted] += 1
    require(size <= MAX_BODY_SIZE, "Body_Size (R5-5)")
    require(size <= OWN_MAX_BODY_SIZE, "section of %d bytes (R5-6)" % size, "LIMIT")
    body = source.read(size)
    require(body_crc == crc32c(body), "body of section %s (R5-8)" % kind.decode(), "CHECKSUM")
    return kind, header, body


# ---- 5.1 FILE body ----

MAX_FILES = MAX_TENSORS = 1 << 28
OWN_MAX_TABLES = 1 << 32                       # this decoder's own limit of memory for names and entries: LIMIT (section 12)
OWN_ENTRY_SIZE = 256                           # about what an entry takes besides its name
REGULAR, DIRECTORY = 0, 1
IS_DIRECTORY, HAS_MODE, HAS_MTIME, IS_UNKNOWN = 1, 2, 4, 8                      # Form of a file entry
IS_LIKE, HAS_GAP, HAS_LOSS = 1, 2, 4                                            # Form of a tensor entry
MAX_PATH_SIZE = MAX_NAME_SIZE = 65535
MAX_DTYPE_SIZE = MAX_RANK = 32
MEASURES = ("none", "update", "relative", "nmse")
MAX_MEASURE = len(MEASURES) - 1
DTYPES = [None] + [name.encode() for name in (
    "BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64").split()]
DTYPE_BITS = dict(zip(DTYPES[1:], [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4))


class File:
    """path, kind, size (None: not known yet), mode and mtime (None if not valid), tensors; crc and identity once decoded.
    start: where its bytes begin among those of all files; done: how many of them there are."""

    def __init__(self, path=b"", kind=REGULAR, size=None):
        self.path, self.kind, self.size, self.mode, self.mtime = path, kind, size, None, None
        self.crc = self.start = self.done = self.next_tensor = 0
        self.data, self.text, self.identity = bytearray(), None, None
        self.outside, self.sha256 = hashlib.sha256(), None                      # section 9.5: of the bytes that are of no tensor
        self.set_tensors([])

    def set_tensors(self, tensors):
        """tensors are sorted; section 9.2: without any the file counts as one."""
        self.tensors = tensors
        self.whole = None if tensors else Tensor(self.path, b"U8", None, 0, MAX_SIZE)


class Tensor:
    """loss: Generation, Measure and Error; identity and sha256 once decoded."""
    __slots__ = "name", "dtype", "shape", "offset", "size", "loss", "sums", "identity", "sha256"

    def __init__(self, name, dtype, shape, offset, size, loss=(0, 0, 0)):
        self.name, self.dtype, self.shape, self.offset, self.size, self.loss = name, dtype, shape, offset, size, loss
        self.sums = self.identity = self.sha256 = None

    @property
    def end(self):
        return self.offset + self.size


def read_file_body(body, snapshot):
    """The files, which are added to those of the snapshot."""
    n_files = body.varint()
    require(1 <= n_files <= MAX_FILES, "N_Files (R5.1-1)")
    files, entries, start = [], [], snapshot.done                               # entries: all tensors of the section
    for _ in range(n_files):
        file = read_file_entry(body, files[-1].path if files else b"", entries, snapshot)
        require(file.size is not None or n_files == 1, "a file of unknown size with others in a section (R5.1-5)")
        check_path(file.path, snapshot)
        snapshot.count_entry(file.path)
        file.start, start = start, start + (file.size or 0)
        require(start - snapshot.done <= MAX_SIZE, "the files of a section have more than 2^63 - 1 bytes (R6.2-4)")
        files.append(file)
        snapshot.files.append(file)
    read_extensions(body)
    return files


def read_file_entry(body, path_before, entries, snapshot):
    form, prefix, rest_size = body.byte(), body.byte(), body.varint()
    require(form >> 4 == 0, "reserved bits of the Form of a file (R5.1-3)", "UNSUPPORTED")
    require(not form & IS_DIRECTORY or not form & IS_UNKNOWN, "a directory of unknown size (R5.1-4)")
    require(prefix <= len(path_before) and prefix + rest_size <= MAX_PATH_SIZE, "Path_Prefix or Path_Rest_Size (R5.1-6, R5.1-7)")
    file = File(path_before[:prefix] + body.string(rest_size), DIRECTORY if form & IS_DIRECTORY else REGULAR)
    if form & IS_DIRECTORY:
        file.size = 0
    elif not form & IS_UNKNOWN:
        file.size = body.varint()
        require(file.size <= MAX_SIZE, "File_Size (R5.1-8)")
    file.unknown = file.size is None
    if form & HAS_MODE:
        file.mode = body.varint()
        require(file.mode <= 0o7777, "Mode (R5.1-9)")
    if form & HAS_MTIME:
        seconds, nanoseconds = body.fields("qI")
        require(nanoseconds < 10**9, "Mtime_Nanoseconds (R5.1-10)")
        file.mtime = seconds * 10**9 + nanoseconds
    n_tensors = 0 if form & (IS_DIRECTORY | IS_UNKNOWN) else body.varint()
    require(n_tensors <= MAX_TENSORS, "N_Tensors (R5.1-11)")
    tensors, end, names = [], 0, set()
    for _ in range(n_tensors):
        tensor = read_tensor_entry(body, end, entries)
        snapshot.count_entry(tensor.name)
        end = tensor.end
        require(end <= file.size, "tensor ends after its file (R5.1-28)")
        require(tensor.name not in names, "two tensors of the same name (R5.1-29)")
        names.add(tensor.name)
        tensors.append(tensor)
        entries.append(tensor)
    file.set_tensors(tensors)
    return file


def check_path(path, snapshot):
    require(b"\\" not in path, "backslash in a Path (R5.1-12)")
    if path:
        require(all(part not in (b"", b".", b"..") for part in path.split(b"/")), "illegal Path (R5.1-12)")
    require(not snapshot.files or (path and snapshot.files[0].path), "empty Path beside other files (R5.1-13)")
    require(path not in snapshot.paths, "two files of the same Path (R5.1-14)")
    snapshot.paths.add(path)


def read_tensor_entry(body, end, entries):
    """end: of the entry before it in its file."""
    form, back = body.byte(), body.varint()
    require(form >> 3 == 0, "reserved bits of the Form of a tensor (R5.1-17)", "UNSUPPORTED")
    require(back <= len(entries) and (back or not form & IS_LIKE), "Back of a tensor (R5.1-18, R5.1-19)")
    like, prefix, suffix = entries[-back] if back else None, b"", b""
    if like:
        prefix_size, suffix_size = body.fields("BB")
        require(prefix_size + suffix_size <= len(like.name), "Prefix or Suffix of a Name (R5.1-20)")
        prefix, suffix = like.name[:prefix_size], like.name[len(like.name) - suffix_size:]
    middle_size = body.varint()
    require(len(prefix) + middle_size + len(suffix) <= MAX_NAME_SIZE, "size of a Name (R5.1-21)")
    name = prefix + body.string(middle_size) + suffix
    gap = body.varint() if form & HAS_GAP else 0
    require(gap or not form & HAS_GAP, "Gap of 0 (R5.1-22)")
    dtype, shape, size = (like.dtype, like.shape, like.size) if form & IS_LIKE else read_type(body)
    generation, measure, error = body.fields("BBI") if form & HAS_LOSS else (0, 0, 0)
    require(not form & HAS_LOSS or (generation and measure), "Generation or Measure 0 of a tensor (R5.1-30)")
    require(measure <= MAX_MEASURE, "Measure %d (R5.1-32)" % measure, "UNSUPPORTED")
    return Tensor(name, dtype, shape, end + gap, size, (generation, measure, error))


def read_type(body):
    """Dtype, Shape and Size."""
    number = body.byte()
    require(number < len(DTYPES), "Dtype %d (R5.1-23)" % number, "UNSUPPORTED")
    dtype = DTYPES[number]
    if number == 0:
        dtype_size = body.byte()
        require(1 <= dtype_size <= MAX_DTYPE_SIZE, "Dtype_Size (R5.1-24)")
        dtype = body.string(dtype_size)
        require(dtype not in DTYPES, "a Dtype that has a number (R5.1-25)")
    rank = body.byte()
    require(rank <= MAX_RANK, "Rank (R5.1-26)")
    shape = tuple([body.varint() for _ in range(rank)])
    size = body.varint() if number == 0 else size_of(dtype, shape)
    require(size is not None and size <= MAX_SIZE, "Size of a tensor, or no whole number of bytes (R5.1-27)")
    return dtype, shape, size


def size_of(dtype, shape):
    """Bytes of a tensor whose Dtype is in the table; None if they are no whole number."""
    bits = DTYPE_BITS[dtype]
    for extent in shape:                       # Python's integers are exact
        bits *= extent
    return None if bits % 8 else bits // 8


# ---- 5.2 RUN body ----

MIN_LOG2_BLOCK_SIZE, MAX_LOG2_BLOCK_SIZE = 14, 23
MAX_SEGMENTS = 1 << 24
MAX_BLOCKS = (1 << 32) - 1


ZERO, BASE, OWN, TEXT = 0, 1, 2, 3             # Prediction
F32_TO_BF16, F32_TO_F16 = 1, 2                 # Conversion


def read_run(source, body, snapshot, deliver):
    """What the index must say of the blocks."""
    run_size, (log2_block_size, prediction, conversion) = body.varint(), body.fields("BBB")
    require(prediction <= TEXT, "Prediction of a RUN (R5.2-3)", "UNSUPPORTED")
    require(conversion <= (F32_TO_F16 if prediction == OWN else 0), "Conversion of a RUN (R5.2-4)", "UNSUPPORTED")
    require(1 <= run_size <= MAX_SIZE, "Run_Size (R5.2-1)")
    require(MIN_LOG2_BLOCK_SIZE <= log2_block_size <= MAX_LOG2_BLOCK_SIZE, "Log2_Block_Size (R5.2-2)")
    require(snapshot.files, "RUN before the first FILE (R6.1-1)")
    require(prediction != BASE or snapshot.uses(BASE_BIT), "Prediction 1 without bit 1 of Incompatible (R5.2-5)")
    require(prediction != OWN or snapshot.uses(OWN_BIT), "Prediction 2 without bit 2 of Incompatible (R5.2-6)")
    start = snapshot.done
    if snapshot.stream_end is not None:
        require(run_size <= snapshot.stream_end - start, "run ends after its stream (R6.2-1)")
    else:
        require(snapshot.files[-1].done + run_size <= MAX_SIZE, "file of 2^63 bytes or more (R6.2-3)")
    require(snapshot.limit is None or start + run_size <= snapshot.limit, "more than %s bytes to restore" % snapshot.limit, "LIMIT")
    predicted = read_segments(body, snapshot, run_size, prediction, conversion) if prediction != ZERO else None
    read_extensions(body)
    block_size = 1 << log2_block_size
    require((run_size - 1 >> log2_block_size) + 1 <= MAX_BLOCKS, "too many blocks (R5.2-7)")
    if prediction == OWN:
        snapshot.own_starts.append(start)
        snapshot.own_ends.append(start + run_size)
    blocks, run = bytearray(), snapshot.numbers[b"RUN "] - 1
    for number in range((run_size - 1 >> log2_block_size) + 1):
        size = min(block_size, run_size - number * block_size)
        entry, data = read_block(source, snapshot, run, number, size, prediction, predicted)
        blocks += entry
        add_to_stream(snapshot, data, deliver)
    return blocks


def read_segments(body, snapshot, run_size, prediction, conversion):
    predicted, total, last_number = Prediction(conversion), 0, -1
    n_segments = body.varint()
    require(1 <= n_segments <= MAX_SEGMENTS, "N_Segments (R5.2-8)")
    for _ in range(n_segments):
        size, reference, number, offset = body.varint(), body.varint(), None, 0
        if size == 0:
            size = rest_of_piece(snapshot, snapshot.done + total)
        total += size
        require(total <= run_size, "Run_Size is less than the sum of the segments (R5.2-10)")
        require(conversion == 0 or size % 2 == 0, "segment of half an element (R5.2-18)")
        if reference:
            number = last_number = last_number + 1 + unzigzag(reference - 1 >> 1)
            if reference - 1 & 1:
                offset = body.varint()
                require(offset > 0, "Offset of 0 (R5.2-11)")
        data = find_prediction(snapshot, prediction, number, offset, size * predicted.step) if reference else None
        predicted.pieces.append((data, offset, size))
    require(total == run_size, "Run_Size is not the sum of the segments (R5.2-10)")
    return predicted


def find_prediction(snapshot, prediction, number, offset, size):
    """The bytes of the item, file or text with which a segment is predicted, from offset to offset + size."""
    require(0 <= number < len(snapshot.base_items if prediction == BASE else snapshot.files),
            "no such item in the base, or no such file yet (R5.2-12, R5.2-13)")
    if prediction == BASE:
        require(offset + size <= len(snapshot.base_items[number]), "segment ends after its item of the base (R5.2-14)")
        return snapshot.base_items[number]
    file = snapshot.files[number]
    if prediction == TEXT:
        file.text = file.text or HeaderText(file.tensors)
        require(offset + size <= file.text.size, "segment ends after the header text (R5.2-17)")
        return file.text
    first, end = file.start + offset, file.start + offset + size
    require(file.size is None or offset + size <= file.size, "segment ends after the file that it refers to (R5.2-15)")
    require(end <= snapshot.done, "prediction from bytes that come later (R5.2-15)")
    own = bisect_right(snapshot.own_ends, first)
    require(own == len(snapshot.own_ends) or snapshot.own_starts[own] >= end, "prediction from a run of Prediction 2 (R5.2-16)")
    return file.data


class Prediction:
    """The prediction of a run; pieces: for each segment the data (None: zeros), where it lies there, and the size of the segment."""

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


# ---- 5.4 Extension records ----


def read_extensions(body):
    """What follows the last field of a FILE, RUN or INDX body. Format 1.0 defines none, so a critical one is unknown."""
    last = -1
    while body.at < len(body.data):
        tag = body.varint()
        require(tag > last, "tags of extension records do not ascend (R5.4-1)")
        last = tag
        body.take(body.varint())
        require(tag & 1 == 0, "critical extension record %d (R5.4-3)" % tag, "UNSUPPORTED")


# ---- 5.5 Header text ----


class HeaderText:
    """What the header of a safetensors file says of these tensors. It can be hundreds of times as large as the FILE body, so it is
    made where it is asked for: text[a:b]."""

    def __init__(self, tensors):
        self.tensors, self.ends, self.size = tensors, [], 0
        for i in range(len(tensors)):
            self.size += sum(map(len, self.entry(i)))
            self.ends.append(self.size)

    def entry(self, i):
        """What stands in front of the name, the name, and the rest. They are not joined: a segment may ask for one byte, and the
        name have 65,535."""
        tensor = self.tensors[i]
        first = tensor.offset - self.tensors[0].offset
        return b',"' if i else b'"', tensor.name, b'":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
            tensor.dtype, ",".join(map(str, tensor.shape)).encode(), first, first + tensor.size)

    def __getitem__(self, places):
        i = bisect_right(self.ends, places.start)
        at, made = (self.ends[i - 1] if i else 0), bytearray()
        while at < places.stop:
            for part in self.entry(i):
                made += part[max(places.start - at, 0):max(places.stop - at, 0)]
                at += len(part)
            i += 1
        return made


# ---- 6. Order (see also decode_stream), streams, pieces ----


def begin_stream(snapshot, files, deliver):
    """files: those of a FILE section."""
    snapshot.filling = len(snapshot.files) - len(files)
    snapshot.stream_end, borders = None, []
    if files[-1].size is not None:
        snapshot.stream_end = files[-1].start + files[-1].size
        for file in files:
            for tensor in file.tensors:
                borders += [file.start + tensor.offset, file.start + tensor.end]
            borders.append(file.start + file.size)
    snapshot.borders = [border for border, _ in itertools.groupby(borders)]     # so no piece is empty
    deliver(files[0], b"")


def rest_of_piece(snapshot, at):
    i = bisect_right(snapshot.borders, at)
    require(i < len(snapshot.borders), "a segment of Size 0 that starts in no piece (R5.2-10)")
    return snapshot.borders[i] - at


def add_to_stream(snapshot, data, deliver):
    """Decoded bytes into the files in which they come next."""
    at = 0
    while at < len(data):
        file = snapshot.files[snapshot.filling]
        piece = data[at:] if file.size is None else data[at:at + file.size - file.done]
        if piece:
            add_to_file(file, piece, snapshot.keep)
            deliver(file, piece)
            at += len(piece)
        else:
            next_file(snapshot, deliver)
    snapshot.done += len(data)


def next_file(snapshot, deliver):
    finish_file(snapshot.files[snapshot.filling])
    snapshot.filling += 1
    deliver(snapshot.files[snapshot.filling], b"")


def finish_stream(snapshot, deliver):
    if snapshot.files:
        require(snapshot.stream_end in (None, snapshot.done), "the runs do not cover the files (R6.2-2)")
        while snapshot.filling < len(snapshot.files) - 1:
            next_file(snapshot, deliver)
        finish_file(snapshot.files[-1])


# ---- 7. Block ----

BLOCK_HEADER_SIZE = 24
SYNC = 0xB1
MAX_ELEMENTS = 1 << 22
XOR, SUBTRACT = 0, 1
STORED, PLANES, QUANTISED = 0, 1, 2
MAX_JOINT = 2


def read_block(source, snapshot, run, number, size, run_prediction, predicted):
    """One block that must decode to size bytes: returns what the index must say of it, and the bytes."""
    header = source.read(BLOCK_HEADER_SIZE)
    sync, coding, prediction, grouping, n, payload_size, content_crc, base_crc, header_crc = struct.unpack("<BBBBIIIII", header)
    require(sync == SYNC, "no block where one should start (R7-2)")
    require(header_crc == crc32c(struct.pack("<II", run, number) + header[:20]), "block header (R7-3)", "CHECKSUM")
    width, residual, joint, layout = 1 << (coding & 3), coding >> 2 & 1, coding >> 3 & 3, coding >> 5
    require(joint <= MAX_JOINT and layout <= QUANTISED, "Coding %#x of a block (R7-4)" % coding, "UNSUPPORTED")
    require(prediction <= 1, "Prediction of a block (R7-4)", "UNSUPPORTED")
    require(1 <= n <= MAX_ELEMENTS and n * width == size, "N_Elements (R7-5, R7-6)")
    require(joint == 0 or snapshot.uses(JOINT_BIT), "Joint planes without bit 0 of Incompatible (R7-11)")
    require(layout != QUANTISED or snapshot.uses(QUANTISED_BIT), "quantised elements without bit 3 of Incompatible (R7-11)")
    require(grouping == 0 or snapshot.uses(BASE_BIT) or snapshot.uses(OWN_BIT), "Grouping without bit 1 or 2 of Incompatible (R7-11)")
    require(grouping == 0 or prediction, "Grouping without prediction (R7-9)")
    if layout == STORED:
        require(payload_size == size and residual == joint == prediction == grouping == 0, "Payload_Size or manner of a stored block (R7-9)")
    elif layout == QUANTISED:
        require(payload_size < size, "Payload_Size (R7-9)")
        require(width in (2, 4) and residual == joint == grouping == 0, "manner of a quantised block (R7-9)")
    else:
        n_classes, sparse, natural = split_grouping(grouping)
        require(payload_size < size, "Payload_Size (R7-9)")
        require(joint == 0 or (width > 1 and prediction == grouping == 0), "Joint planes (R7-9)")
        require(natural < width and (natural == 0 or (n_classes > 1 and not sparse)), "Natural (R7-10)")
    require(prediction == 0 or run_prediction != ZERO, "block with Prediction in a run without (R7-7)")
    base = predicted.take(size) if predicted else None
    if prediction == 0:
        require(base_crc == 0, "Base_CRC without prediction (R7-8)")
        base = None
    else:
        require(base_crc == crc32c(base), "prediction of a block (R7-13)", "BASE_WRONG" if run_prediction == BASE else "CORRUPT")
    data = source.read(payload_size)
    if layout != STORED:
        payload = Cursor(data, "payload")
        if layout == QUANTISED:
            data = read_quantised(payload, n, width, base)
        else:
            if grouping:
                planes = read_classes(payload, n, width, n_classes, sparse, natural, base)
            elif joint:
                planes = read_joint_planes(payload, n, width, joint)
            else:
                planes = [read_plane(payload, n) for _ in range(width)]
            data = join_planes(planes, n, residual, base)
        payload.finish()
    require(crc32c(data) == content_crc, "content of a block (R7-16)", "CHECKSUM")
    return struct.pack("<II", BLOCK_HEADER_SIZE + payload_size, header_crc), data


def split_grouping(grouping):
    """Number of classes, Sparse and Natural."""
    return (grouping & 7 | grouping >> 4 & 8) + 1, grouping >> 3 & 1, grouping >> 4 & 7


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
    require(all(a < b for a, b in zip(b"\0" + thresholds, thresholds)), "thresholds of classes (R7.3-1)")
    keys = bytes([b >> 8 * width - 9 & 255 if width > 1 else b << 1 & 255 | b >> 7 for b in integers(base, width)])
    classes = keys.translate(bytes([bisect_right(thresholds, key) for key in range(256)]))
    sizes = [classes.count(c) for c in range(n_classes)]
    if sparse:
        masks = [read_mask(source, size, 0) if size else b"" for size in sizes]
        sizes = [mask.count(1) for mask in masks]
        # An element that is not coded goes to one class more, in which all is zero.
        classes = bytes([c if bit else n_classes for c, bit in zip(classes, deal(classes, masks))])
    planes = [source.take(n) for _ in range(natural)]
    lists = [[read_plane(source, size) if size else b"" for _ in range(natural, width)] for size in sizes]
    return planes + [deal(classes, [planes_of_class[p] for planes_of_class in lists]) for p in range(width - natural)]


def deal(classes, lists):
    """For each element the next byte of the list of its class; 0 for the class behind the last."""
    hands = [iter(one) for one in lists] + [itertools.repeat(0)]
    return bytes([next(hands[c]) for c in classes])


def read_joint_planes(source, n, width, joint):
    """Section 7.4."""
    offset, = source.fields("H")
    require(offset < 256 << joint, "Offset of joint planes (R7.4-1)")
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
    require(not any(values[n:]), "values of Rest beyond the elements (R7.4-2)")
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
    require(method <= (LOG | SIGNED | TABLE) and (method & LOG or not method & SIGNED), "Method (R7.6-1)")
    require(low_bits <= (0 if method & TABLE else MAX_LOW_BITS), "Low_Bits (R7.6-2)")
    require(1 <= table_size <= MAX_TABLE_SIZE if method & TABLE else table_size == 0, "Table_Size (R7.6-3)")
    require(-MAX_QUANTUM <= least <= 0, "Min (R7.6-4)")
    require(1 <= step <= MAX_STEP if method & LOG else step == 0, "Step (R7.6-5)")
    if base is None:
        require(bias == floor == 0, "Bias or Floor without prediction (R7.6-6, R7.6-7)")
        require(1 <= first_group <= group_size <= MAX_GROUP_SIZE, "Group_Size or First_Group (R7.6-8, R7.6-9)")
    else:
        require(not method & LOG, "Log with prediction (R7.6-1)")
        require(-MAX_BIAS <= bias <= MAX_BIAS and floor <= MAX_FLOOR, "Bias or Floor (R7.6-6, R7.6-7)")
        require(group_size == first_group == 0, "groups with prediction (R7.6-8, R7.6-9)")
    require(n_exceptions <= n, "N_Exceptions (R7.6-10)")
    table = (0,) + source.fields("%dH" % table_size)
    require(all(a < b for a, b in zip(table, table[1:])), "Table does not ascend (R7.6-11)")
    positions = source.fields("%dI" % n_exceptions)
    require(all(a < b for a, b in zip((-1,) + positions, positions + (n,))), "Positions of exceptions (R7.6-12)")
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
    require(MIN_SCALE <= min(scales) and max(scales) <= (MAX_LOG if is_log else MAX_SCALE), "scale of a group (R7.6-15)")
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
        require(max(high) < len(table), "index beyond the Table (R7.6-14)")
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
    mode = source.byte()
    require(mode <= MODE_ESCAPE, "mode of a plane (R8-1)")
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
    require(first + count <= 256, "symbols of a tree (R8.1-1)")
    packed = source.take((count + has_escape + 1) // 2)
    lengths = [half for byte in packed for half in (byte & 15, byte >> 4)]
    require(not any(lengths[count + has_escape:]), "unused bits after the lengths of a tree (R8.1-2)")
    require(lengths[0] and lengths[count - 1], "first or last symbol of a tree has no code (R8.1-3)")
    leaves = sorted((length, first + i) for i, length in enumerate(lengths[:count]) if length)
    if has_escape:
        require(lengths[count] >= leaves[-1][0], "length of the escape (R8.1-6)")
        leaves.append((lengths[count], ESCAPE))
    require(2 <= len(leaves) <= MAX_LEAVES, "number of leaves (R8.1-4)")
    require(sum(1 << MAX_LENGTH - length for length, _ in leaves) == 1 << MAX_LENGTH, "the code is not complete (R8.1-5)")
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


MAX_GAP_MODE = 64


def read_mask(source, n, nesting):
    """n bits, one a byte."""
    size, mode, nested_modes = (n + 7) // 8, 0, 2 * len(FROZEN_TREES)
    if n >= MIN_NESTED_BITS and nesting < MAX_NESTING:
        mode = source.byte()
        require(mode <= (nested_modes if nesting else MAX_GAP_MODE), "mode of a mask (R8.3-1, R8.3-2)")
    if mode == 0:
        return unpack_bits(source.take(size), n)
    if mode > nested_modes:
        return read_gaps(source, n, mode - nested_modes - 1 >> 1, mode - nested_modes - 1 & 1)
    level, polarity = mode - 1 >> 1, mode - 1 & 1
    packed = read_node(source, FROZEN_TREES[level], 0, 0, size, nesting + 1)
    return unpack_bits(packed.translate(COMPLEMENT) if polarity else packed, n)


def read_gaps(source, n, low_bits, polarity):
    """The gaps between the bits that differ from polarity, in Golomb-Rice codes."""
    count, = struct.unpack("<I", source.take(3) + b"\0")
    require(1 <= count <= n, "number of gaps (R8.3-4)")
    low = source.take((count * low_bits + 7) // 8)
    require(count * low_bits % 8 == 0 or low[-1] >> count * low_bits % 8 == 0, "unused bits of the low parts of gaps (R8.3-6)")
    bits, position, found, quotient = bytearray([polarity]) * n, -1, 0, 0
    while found < count:
        byte = source.byte()
        for i in range(8):
            if byte >> i & 1 == 0:
                quotient += 1
                continue
            require(found < count, "unused bits of the quotients of gaps (R8.3-6)")
            at = found * low_bits
            part = int.from_bytes(low[at >> 3:(at >> 3) + 4], "little") >> (at & 7) & (1 << low_bits) - 1
            position += 1 + (quotient << low_bits | part)
            require(position < n, "gaps reach beyond the mask (R8.3-5)")
            bits[position], found, quotient = 1 - polarity, found + 1, 0
        # Zeros behind the last one are unused bits; others that lead beyond the mask would cost time.
        require(found == count or position + (quotient << low_bits) < n, "gaps reach beyond the mask (R8.3-5)")
    return bytes(bits)


def unpack_bits(packed, n):
    require(n % 8 == 0 or packed[-1] >> n % 8 == 0, "unused bits of a list of bits (R2.1-2)")
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
TENSOR, WHOLE_FILE, WHOLE_DIRECTORY = 0, 1, 2  # Type


class Sums:
    """Of bytes that come in pieces: the leaves of section 9.2, and SHA-256."""

    def __init__(self):
        self.leaves, self.crc, self.fill, self.sha256 = bytearray(), 0, 0, hashlib.sha256()

    def add(self, data):
        self.sha256.update(data)
        at = 0
        while at < len(data):
            piece = data[at:at + LEAF_SIZE - self.fill]
            self.crc, at, self.fill = crc64(piece, self.crc), at + len(piece), self.fill + len(piece)
            if self.fill == LEAF_SIZE:
                self.flush()

    def flush(self):
        if self.fill:
            self.leaves += struct.pack("<Q", self.crc)
            self.crc = self.fill = 0


def add_to_file(file, data, keep):
    """Sum up the file's next bytes."""
    if keep:
        file.data += data
    file.crc = crc32c(data, file.crc)
    start, end = file.done, file.done + len(data)
    add_outside(file, data, start, end)
    if file.whole:
        add_to_tensor(file.whole, data)
    while file.next_tensor < len(file.tensors):
        tensor = file.tensors[file.next_tensor]
        if tensor.offset < end and tensor.end > start:
            add_to_tensor(tensor, data[max(tensor.offset - start, 0):tensor.end - start])
        if tensor.end > end:
            break
        identify_tensor(tensor, TENSOR, tensor.shape, tensor.size)
        file.next_tensor += 1
    file.done = end


def add_outside(file, data, start, end):
    """Sum up what is of no tensor; those before file.next_tensor end where these bytes start, or before."""
    for tensor in itertools.islice(file.tensors, file.next_tensor, None):
        if tensor.offset >= end:
            break
        if tensor.offset > start:
            file.outside.update(data[start - end + len(data):tensor.offset - end + len(data)])
        start = max(start, tensor.end)
    if start < end:
        file.outside.update(data[start - end + len(data):])


def add_to_tensor(tensor, data):
    tensor.sums = tensor.sums or Sums()
    tensor.sums.add(data)


def finish_file(file):
    file.size, file.sha256 = file.done, file.outside.digest()
    for tensor in file.tensors[file.next_tensor:]:                              # those of no bytes, if no byte came at all
        identify_tensor(tensor, TENSOR, tensor.shape, tensor.size)
    if file.whole:
        identify_tensor(file.whole, WHOLE_DIRECTORY if file.kind == DIRECTORY else WHOLE_FILE, (file.size,), file.size)
        file.identity = file.whole.identity


def identify_tensor(tensor, kind, shape, size):
    sums, tensor.sums = tensor.sums or Sums(), None
    sums.flush()
    tensor.sha256 = sums.sha256.digest()
    tensor.identity = hashlib.sha256(b"LMC tensor 2\0" + bytes([kind]) + sums.leaves + bytes([len(tensor.dtype)]) + tensor.dtype
                                     + struct.pack("<B%dQQ" % len(shape), len(shape), *shape, size)).digest()


def sort_items(snapshot):
    """Pairs of file and tensor, of the files whose identities are known."""
    items = [(file, tensor) for file in snapshot.files for tensor in file.tensors or [file.whole]]
    return sorted(items, key=lambda item: (item[1].name, item[1].identity))


def identify_snapshot(snapshot):
    text = b"".join(struct.pack("<I", len(tensor.name)) + tensor.name + tensor.identity for _, tensor in sort_items(snapshot))
    return hashlib.sha256(b"LMC snapshot 2\0" + text).digest()


# ---- 9.4 Bases ----

OWN_MAX_CHAIN = 100                            # this decoder's own limit: LIMIT (section 12)


class Bases:
    """paths: of all that may be a base. in_use: those of LMC files that are being decoded, each the base of the one before. broken: errors of
    those that were tried; plain: what was found at the other paths."""

    def __init__(self, paths):
        self.paths, self.in_use, self.broken, self.plain = list(paths), [], {}, {}


def find_base(snapshot, bases, stream):
    """The base of snapshot. stream: its own LMC file."""
    identity, paths = snapshot.base_identity, [path for path in bases.paths if path not in bases.in_use]
    require(paths, "the snapshot %s is needed as base (--base) (R9.4-1)" % identity.hex(), "BASE_MISSING")
    require(len(bases.in_use) < OWN_MAX_CHAIN, "the chain of deltas is too long", "LIMIT")
    error = LmcError("BASE_WRONG", "the snapshot %s is needed as base, not what was given (R9.4-2)" % identity.hex())
    tables = None
    if not all(map(is_lmc, paths)):
        try:
            tables = read_tables(snapshot, stream)
        except LmcError as reason:             # this file is damaged, but the rule of safetensors may tell the items
            error = reason
    for path in paths:
        try:
            if not is_lmc(path):
                found = find_plain_base(identity, path, bases, tables)
            elif read_claim(path) == identity:
                found = read_lmc_base(path, bases, level=snapshot.level, limit=snapshot.limit)
            else:
                continue
        except LmcError as reason:             # another may do
            error = LmcError(reason.status, "base %s: %s" % (path, reason.text))
            continue
        if found and found.identity == identity:
            return found
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
            stream.seek(int.from_bytes(stream.read(8), "little") + SECTION_HEADER_SIZE + IDENTITY_OFFSET)
            return stream.read(32)
    except (OSError, OverflowError, ValueError):
        return None


def read_lmc_base(path, bases, **how):
    if path in bases.broken:
        raise bases.broken[path]
    bases.in_use.append(path)
    try:
        with open(path, "rb") as stream:
            return decode_stream(stream, bases, keep=True, **how)
    except LmcError as error:
        bases.broken[path] = error
        raise
    finally:
        bases.in_use.pop()


def find_plain_base(identity, path, bases, tables):
    """A file, or the files and directories below a directory, as a snapshot: by the tables of the snapshot that needs it, or by containers."""
    if path not in bases.plain:
        bases.plain[path] = [list_plain(os.fsencode(path)), None]
    files, by_containers = bases.plain[path]
    found = tables and lay_out(files, tables)
    if found and found.identity == identity:
        return found
    if by_containers is None:
        by_containers = bases.plain[path][1] = make_snapshot((path, kind, data, find_safetensors(data)) for path, kind, data in files)
    return by_containers


def list_plain(path):
    """Path, kind and bytes of each."""
    def load(full):
        with open(full, "rb") as stream:
            return stream.read()

    if not os.path.isdir(path):
        return [(b"", REGULAR, load(path))]
    files = []
    for folder, _, names in os.walk(path):
        if folder != path:
            files.append((folder, DIRECTORY, b""))
        files += [(full, REGULAR, load(full)) for full in (os.path.join(folder, name) for name in names)]
    return [(os.path.relpath(full, path).replace(os.fsencode(os.sep), b"/"), kind, data) for full, kind, data in files] or [(b"", DIRECTORY, b"")]


def make_snapshot(files):
    """files: path, kind, bytes and tensors of each."""
    snapshot = Snapshot()
    for path, kind, data, tensors in files:
        file = File(path, kind, len(data))
        file.set_tensors(tensors)
        add_to_file(file, data, False)
        finish_file(file)
        file.data = data
        snapshot.files.append(file)
    snapshot.identity = identify_snapshot(snapshot)
    return snapshot


def lay_out(files, tables):
    """The snapshot of these files that has the tensors of tables, if they are the same files."""
    left, found, parents = {path: (kind, data) for path, kind, data in files}, [], set()
    for file in tables.files:
        kind, data = left.pop(file.path, (None, b""))
        if (kind, len(data)) != (file.kind, file.size):
            return None
        found.append((file.path, kind, data, [Tensor(t.name, t.dtype, t.shape, t.offset, t.size) for t in file.tensors]))
        parts = file.path.split(b"/")
        parents.update(b"/".join(parts[:i]) for i in range(1, len(parts)))
    return make_snapshot(found) if left.keys() <= parents else None


def read_tables(snapshot, stream):
    """A snapshot with the files of the one in stream, as its index says; None if that cannot be read yet."""
    if not stream.seekable():
        return None
    tables, at = Snapshot(level=snapshot.level), stream.tell()
    tables.incompatible = snapshot.incompatible
    size = stream.seek(0, os.SEEK_END)
    try:
        stream.seek(max(size - TRAILER_SIZE, 0))
        trailer = stream.read(TRAILER_SIZE)
        require(trailer[32:] == END_MAGIC, "no trailer", "TRUNCATED")
        offset, index_size, total_size = read_trailer(trailer)
        require(offset + index_size + TRAILER_SIZE == total_size == size, "trailer disagrees with the file (R10.3-5, R10.3-6)")
        stream.seek(offset)
        kind, _, body = read_section(Input(stream), tables)
    finally:
        stream.seek(at)
    require(kind == b"INDX", "the last section is no INDX")
    body = Cursor(body, "index")
    n_sections, = body.fields("%dx I %dx" % (HEADER_SIZE, 4 + 32))
    for _ in range(n_sections):
        kind, size = body.fields("8x 4s 4x Q 8x")
        if kind == b"FILE":
            for file in read_file_body(Cursor(body.take(size), "FILE body"), tables):
                if file.size is None:
                    file.size, = body.fields("Q")
                body.take(4 + 32 * (len(file.tensors) or 1))
        elif kind == b"RUN ":
            run = Cursor(body.take(size), "RUN body")
            run_size, log2_block_size = run.varint(), run.byte()
            require(run_size > 0 and log2_block_size <= MAX_LOG2_BLOCK_SIZE, "Run_Size or Log2_Block_Size")
            body.take(8 * ((run_size - 1 >> log2_block_size) + 1))
    return tables


# ---- 9.4 What is a safetensors file ----

MAX_JSON_SIZE = 100000000
MAX_JSON_DEPTH = 64


class Number(str):
    """A number of JSON, as it is written."""

    def whole(self):
        require(re.fullmatch("0|[1-9][0-9]*", self) and len(self) <= 19 and int(self) <= MAX_SIZE, "no whole number below 2^63")
        return int(self)


class Json:
    """Reads RFC 8259 from text. What is not: LmcError."""
    SPACE = re.compile(r"[ \t\n\r]*")
    NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
    PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
    ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u(?![dD][89a-fA-F])([0-9a-fA-F]{4}))')
    SHORT = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t'))

    def __init__(self, text):
        self.text, self.at = text, 0

    def skip(self, token):
        """Whether that comes next; if so, it and the white space behind it are taken."""
        if not self.text.startswith(token, self.at):
            return False
        self.at = self.SPACE.match(self.text, self.at + len(token)).end()
        return True

    def match(self, pattern):
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def value(self, depth=1):
        """depth: of the value, if it is an array or object."""
        if self.skip("{"):
            return self.members(depth)
        if self.skip("["):
            return self.elements(depth)
        if self.text.startswith('"', self.at):
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.skip(word):
                return value
        number = self.match(self.NUMBER)
        require(number, "no JSON value")
        self.skip("")
        return Number(number.group())

    def members(self, depth):
        require(depth <= MAX_JSON_DEPTH, "JSON is nested too deep")
        found = {}
        if self.skip("}"):
            return found
        while True:
            key = self.string()
            require(key not in found, "a key twice")
            require(self.skip(":"), "no colon")
            found[key] = self.value(depth + 1)
            if self.skip("}"):
                return found
            require(self.skip(","), "no comma")

    def elements(self, depth):
        require(depth <= MAX_JSON_DEPTH, "JSON is nested too deep")
        found = []
        if self.skip("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            if self.skip("]"):
                return found
            require(self.skip(","), "no comma")

    def string(self):
        require(self.text.startswith('"', self.at), "no string")
        self.at += 1
        pieces = []
        while True:
            pieces.append(self.match(self.PLAIN).group())
            if self.skip('"'):
                return "".join(pieces)
            escape = self.match(self.ESCAPE)
            require(escape, "no character that a string may have, or no escape: a lone surrogate is none")
            short, high, low, unit = escape.groups()
            if short:
                pieces.append(self.SHORT[short])
            elif unit:
                pieces.append(chr(int(unit, 16)))
            else:
                pieces.append(chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00))


def find_safetensors(data):
    """The tensors if data is a safetensors file: u64 size of the JSON, the JSON, the tensors without gaps."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, MAX_JSON_SIZE):
        return []
    try:
        json_reader = Json(bytes(data[8:8 + size]).decode("utf-8"))
        require(json_reader.text.startswith("{"), "no JSON object")
        members = json_reader.value()
        require(json_reader.at == len(json_reader.text), "something follows the JSON object")
        tensors = [tensor_of(name, entry, 8 + size) for name, entry in members.items() if name != "__metadata__"]
        tensors.sort(key=lambda tensor: (tensor.offset, tensor.size, tensor.name))
        end = 8 + size
        for tensor in tensors:
            require(tensor.offset == end, "tensors are not side by side")
            end = tensor.end
        require(end <= len(data), "tensor ends after its file")
    except (LmcError, UnicodeDecodeError):
        return []                              # plain bytes
    return tensors


def tensor_of(name, entry, start):
    """start: of the tensors' bytes."""
    require(isinstance(entry, dict), "no object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    require(type(dtype) is str and type(shape) is list and type(offsets) is list and len(offsets) == 2, "dtype, shape or data_offsets")
    require(all(type(number) is Number for number in shape + offsets), "no number")
    name, dtype, shape, (first, last) = name.encode(), dtype.encode(), tuple(map(Number.whole, shape)), map(Number.whole, offsets)
    require(len(name) <= MAX_NAME_SIZE and 1 <= len(dtype) <= MAX_DTYPE_SIZE and len(shape) <= MAX_RANK, "section 5.1: sizes")
    require(b"\0" not in name + dtype, "section 2: zero byte")
    require(first <= last and (dtype not in DTYPE_BITS or size_of(dtype, shape) == last - first), "data_offsets")
    return Tensor(name, dtype, shape, start + first, last - first)


# ---- 9.5 The hash section ----


SHA256_HASHES = bytes([1, 0, 0, 0, 0, 0, 0, 0])


def check_hashes(body, snapshot):
    """The section "hash" of Algorithm 1: Snapshot_Hash, and SHA-256 of every tensor and of what else is in every file."""
    hashes = b"".join(tensor.sha256 for file in snapshot.files for tensor in file.tensors + [file])
    require(body[8:] == hash_snapshot(snapshot) + hashes, "a hash of the section hash, or its size (R9.5-2, R9.5-3, R9.5-5)")


def hash_snapshot(snapshot):
    """Of what this function puts together: all that the snapshot says, in one form."""
    parts = [b"LMC content 1\0", struct.pack("<Q", len(snapshot.files))]
    for file in sorted(snapshot.files, key=lambda file: file.path):
        form = IS_DIRECTORY * (file.kind == DIRECTORY) | HAS_MODE * (file.mode is not None) | HAS_MTIME * (file.mtime is not None)
        seconds, nanoseconds = divmod(file.mtime or 0, 10**9)
        parts += [struct.pack("<I", len(file.path)), file.path,
                  struct.pack("<BQIqIQ", form, file.size, file.mode or 0, seconds, nanoseconds, len(file.tensors))]
        for tensor in file.tensors:
            parts += [struct.pack("<I", len(tensor.name)), tensor.name, bytes([len(tensor.dtype)]), tensor.dtype,
                      struct.pack("<B%dQ" % len(tensor.shape), len(tensor.shape), *tensor.shape),
                      struct.pack("<QQBBI", tensor.offset, tensor.size, *tensor.loss), tensor.sha256]
        parts.append(file.sha256)
    for key, value in snapshot.metadata:
        if not key.startswith(b"lmc.") or key == b"lmc.links":
            parts += [struct.pack("<II", len(key), len(value)), key, value]
    return hashlib.sha256(b"".join(parts)).digest()


# ---- 10. Index and trailer ----

IDENTITY_OFFSET = HEADER_SIZE + 8              # in the INDX body
MAX_VALUE_SIZE = 1 << 28
TRAILER_SIZE = 40
END_MAGIC = bytes.fromhex("824C4D430D0A1A0A")


def check_index(body, header, snapshot):
    require(body.take(HEADER_SIZE) == header, "index: copy of the file header (R10.1-1)")
    n_sections, n_metadata, identity = body.fields("II32s")
    require(n_sections == len(snapshot.entries), "index: N_Sections (R10.1-2)")
    for offset, copy, what in snapshot.entries:
        require(body.take(8) == struct.pack("<Q", offset), "index: Offset of a section (R10.1-4, R10.1-5)")
        require(body.take(len(copy)) == copy, "index: copy of a section (R10.1-6)")
        if isinstance(what, list):             # files
            for file in what:
                require(not file.unknown or body.take(8) == struct.pack("<Q", file.size), "index: File_Size (R10.1-10)")
                require(body.take(4) == struct.pack("<I", file.crc), "index: File_CRC (R10.1-11)")
                for tensor in file.tensors or [file.whole]:
                    require(body.take(32) == tensor.identity, "index: identity of a tensor or file (R10.1-12)")
        elif what is not None:                 # sizes and CRCs of blocks
            require(body.take(len(what)) == what, "index: size or Header_CRC of a block (R10.1-8, R10.1-9)")
    snapshot.identity = identify_snapshot(snapshot)
    require(identity == snapshot.identity, "index: identity of the snapshot (R10.1-3)")
    for _ in range(n_metadata):
        key_size, value_size = body.fields("II")
        require(1 <= key_size <= MAX_NAME_SIZE and value_size <= MAX_VALUE_SIZE, "size of a metadata entry (R10.2-1, R10.2-2)")
        key = body.string(key_size)
        require(not snapshot.metadata or snapshot.metadata[-1][0] < key, "metadata keys do not ascend (R10.2-3)")
        snapshot.metadata.append((key, body.take(value_size)))
    read_extensions(body)


def check_trailer(trailer, index_start, index_end):
    require(read_trailer(trailer) == (index_start, index_end - index_start, index_end + TRAILER_SIZE),
            "trailer disagrees with the file (R10.3-5, R10.3-6)")


def read_trailer(trailer):
    """Index_Offset, Index_Size and Total_Size."""
    index_offset, index_size, total_size, major, _minor, reserved, checksum, magic = struct.unpack("<QQQBBHI8s", trailer)
    require(magic == END_MAGIC, "End_Magic (R10.3-1)")
    require(checksum == crc32c(trailer[:28]), "trailer (R10.3-2)", "CHECKSUM")
    require(major == FORMAT_MAJOR, "format %d.x by the trailer (R10.3-3)" % major, "VERSION")
    require(reserved == 0, "reserved field of the trailer (R10.3-4)", "UNSUPPORTED")
    return index_offset, index_size, total_size


# ---- As a module ----


def decode(data, bases=(), **how):
    """The Snapshot in data; each of its files has its bytes as .data. bases: paths. how: level, hashes and limit, as the options of the command.
    Raises LmcError."""
    return decode_stream(io.BytesIO(data), bases, keep=True, **how)


# ---- As a command ----

EXIT_CODES = {"VERSION": 1, "UNSUPPORTED": 1, "LIMIT": 1, "BASE_MISSING": 4, "BASE_WRONG": 4}       # others: 3


def links_of(value, files):
    """The links of a directory (section 10.2), as (b"s" or b"h", Path, Target)."""
    links, contents = [], {file.path: file for file in files}
    require(value[-1:] in (b"", b"\0") and value.count(b"\0") % 2 == 0, "lmc.links ends within a link (R10.2-5)")
    parts = value.split(b"\0")[:-1]
    for head, target in zip(parts[0::2], parts[1::2]):
        kind, path = head[:1], head[1:]
        require(kind in (b"s", b"h") and 1 <= len(target) <= MAX_PATH_SIZE, "a link of another Type, or the size of its Target (R10.2-5)")
        for name in [path] + ([target] if kind == b"h" else []):
            require(len(name) <= MAX_PATH_SIZE and b"\\" not in name and not {b"", b".", b".."} & set(name.split(b"/")),
                    "Path of a link (R10.2-5, R10.2-6)")
        require(not links or links[-1][1] < path, "links do not ascend (R10.2-6)")
        links.append((kind, path, target))
    symbolic = {path for kind, path, _ in links if kind == b"s"}
    require(not symbolic & contents.keys(), "a link where a file is (R10.2-8)")
    require(not any(symbolic & parents_of(path) for path in [*contents, *symbolic]), "something below a link (R10.2-8)")
    for kind, path, target in links:
        if kind == b"h":
            pair = [contents.get(name) for name in (path, target)]
            require(all(pair) and path != target and pair[0].kind == pair[1].kind == REGULAR and pair[0].crc == pair[1].crc and
                    pair[0].size == pair[1].size, "a hard link of two that are not one (R10.2-7)")
        else:
            require(not any(contents[name].kind == REGULAR for name in parents_of(path) & contents.keys()), "a link below a file (R10.2-8)")
    return links


def parents_of(path):
    return {path[:i] for i, byte in enumerate(path) if byte == 0x2F}


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

    def publish(self, files, metadata=()):
        self.close()
        if files[0].path or files[0].kind == DIRECTORY:
            for kind, path, target in links_of(dict(metadata).get(b"lmc.links", b""), files):
                self.make_link(kind, path, target)
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

    def make_link(self, kind, path, target):
        """Section 10.2. The directory is new and private, and no link was made below another one: none is followed."""
        path, folder = os.path.join(self.root, path), os.path.dirname(path)
        if kind == b"h":
            require(filecmp.cmp(path, os.path.join(self.root, target), shallow=False), "a hard link of two that are not one (R10.2-7)")
            os.remove(path)
            os.link(os.path.join(self.root, target), path)
        else:
            os.makedirs(os.path.join(self.root, folder), exist_ok=True)
            os.symlink(target, path)

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
    bases, how, listing, restore = [], {}, False, None
    try:
        while arguments[0].startswith("--"):
            option, *arguments = arguments
            if option == "--base":
                bases.append(arguments.pop(0))
            elif option in ("--level", "--limit"):
                how[option[2:]] = int(arguments.pop(0))
            elif option == "--hashes":
                how["hashes"] = True
            elif option == "--list":
                listing = True
            else:
                raise ValueError
        if len(arguments) != (1 if listing else 2) or not 0 <= how.get("level", 0) <= ALL_LEVELS:
            raise ValueError
    except (IndexError, ValueError):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with (sys.stdin.buffer if arguments[0] == "-" else open(arguments[0], "rb")) as stream:
            if bases and not stream.seekable():
                stream = spool(stream)
            if listing:
                print(describe(decode_stream(stream, bases, **how)))
            else:
                restore = Restore(arguments[1])
                snapshot = decode_stream(stream, bases, restore.deliver, **how)
                restore.publish(snapshot.files, snapshot.metadata)
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


def spool(stream):
    """A pipe as a file, for read_tables."""
    file = tempfile.TemporaryFile()
    shutil.copyfileobj(stream, file)
    file.seek(0)
    return file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
