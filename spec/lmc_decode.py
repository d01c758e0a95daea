#!/usr/bin/env python3
"""Decoder of LMC files, format 1.0, in plain Python 3.9+, in the order of lmc-format.md. Messages name the rule that is broken.

As a module: decode(data, bases) returns a Snapshot or raises LmcError(status, text). Other files: bases.py (7.3), ranges.py (range readers),
restore.py (the command), and for the companions of the page: quantised.py, zeros.py, matrix.py, codes.py, hashes.py, links.py, foreign_bases.py. SPDX-License-Identifier: MIT
"""
import bisect
import hashlib
import io
import itertools
import re
import struct
import sys

# ---- 2. Conventions ----
class LmcError(Exception):
    def __init__(self, status, text):
        super().__init__("%s: %s" % (status, text))
        self.status, self.text = status, text                                   # status: a name of section 2.2


def require(condition, text, status="CORRUPT"):
    if not condition:
        raise LmcError(status, text)


CRC_TABLES = [list(range(256))]                # CRC_TABLES[k]: CRC of a byte and k zero bytes
for _ in range(8):
    CRC_TABLES[0] = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in CRC_TABLES[0]]                              # 0x1EDC6F41, reflected
for _ in range(7):
    CRC_TABLES.append([CRC_TABLES[0][c & 255] ^ c >> 8 for c in CRC_TABLES[-1]])


def crc32c(data, value=0):
    """The CRC of bytes whose CRC is value, followed by data."""
    t0, t1, t2, t3, t4, t5, t6, t7 = CRC_TABLES
    value ^= 0xFFFFFFFF
    whole = len(data) & ~7
    for x, in struct.iter_unpack("<Q", memoryview(data)[:whole]):
        x ^= value
        value = (t7[x & 255] ^ t6[x >> 8 & 255] ^ t5[x >> 16 & 255] ^ t4[x >> 24 & 255] ^ t3[x >> 32 & 255] ^ t2[x >> 40 & 255]
                 ^ t1[x >> 48 & 255] ^ t0[x >> 56])
    for byte in data[whole:]:
        value = t0[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


class Cursor:
    """Reads a section's body or a block's payload, whose size is known and whose bytes are there."""

    def __init__(self, data, what):
        self.data, self.at, self.what = data, 0, what

    def take(self, size):
        require(size <= len(self.data) - self.at, "%s ends early (%s)" % (self.what, "R2-7" if self.what == "payload" else "R2-6"))
        self.at += size
        return self.data[self.at - size:self.at]

    def fields(self, layout):
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def byte(self):
        return self.take(1)[0]

    def varint(self):
        """v: 7 bits in each byte, in the shortest form."""
        value = shift = 0
        while True:
            byte = self.byte()
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
            require(shift < 70, "varint of more than 10 bytes (R2-1)")
        require(value < 1 << 64 and (byte > 0 or shift == 7), "varint of 2^64 or more, or not in its shortest form (R2-1)")
        return value

    def string(self, size):
        text = self.take(size)
        require(b"\0" not in text, "zero byte in a string (R2-3)")
        return text

    def count(self, n, least, what):
        """Checks that n things of at least so many bytes can follow."""
        require(n * least <= len(self.data) - self.at, "%s is more than the body holds (R4-8)" % what)
        return n

    def finish(self):
        require(self.at == len(self.data), "%s is longer than its content (R5-11)" % self.what)


def unzigzag(number):
    return number >> 1 ^ -(number & 1)


class Input:
    """The LMC file, read from front to back, from some place on."""

    PIECE = 1 << 20                            # so memory grows only with bytes that are really there

    def __init__(self, stream, at=None):
        self.stream, self.at = stream, at or 0
        if at is not None:
            stream.seek(at)

    def read_up_to(self, size):
        data, piece = bytearray(), b"more"
        while piece and len(data) < size:
            piece = self.stream.read(min(size - len(data), self.PIECE))
            data += piece
        self.at += len(data)
        return bytes(data)

    def read(self, size):
        data = self.read_up_to(size)
        require(len(data) == size, "the input ends at byte %d (R2-5)" % self.at, "TRUNCATED")
        return data


# ---- 3.1 Header ----
MAGIC = bytes.fromhex("954C4D430D0A1A0A")
FORMAT_MAJOR, HEADER_SIZE, FINGERPRINT_SIZE = 1, 64, 16
BASE_BIT, OWN_BIT, QUANTISED_BIT, ZEROS_BIT, MATRIX_BIT, CODES_BIT = range(6)  # of Incompatible
ALL_BITS = 63


class Snapshot:
    """The content of a file: files, metadata (pairs of key and value), fingerprint, base_fingerprint (None: no base). base: a Snapshot.
    keep: whether each file keeps its bytes as .data. The bytes of all files are counted one after another; a stream is a part of them."""

    def __init__(self, keep=True, bits=ALL_BITS, limit=None):
        self.keep, self.bits, self.limit = keep, bits, limit
        self.incompatible, self.base_fingerprint, self.base, self.fingerprint = 0, None, None, None
        self.files, self.runs, self.run_ends, self.sections, self.metadata = [], [], [], [], []
        self.own_starts, self.own_ends = [], []                                 # ranges of runs of Prediction 3 to 5
        self.paths, self.tables = [], 0        # of R4-25, sorted; bytes of names and entries
        self.start, self.end, self.done = 0, 0, 0                               # the stream's bounds (None: not known); end of the runs
        self.n_blocks, self.has_blks = 0, False
        self.filling = 0                       # number of the file that gets the next decoded byte
        self.items = []                        # of 7.2: pairs of file and tensor
        self.status_of_wrong_reference = "CORRUPT"                              # R4-49

    def uses(self, bit):
        return bool(self.incompatible >> bit & 1)

    def read_file(self, file, offset, size):
        return memoryview(file.data)[offset:offset + size]

    def count_entry(self, size):               # an entry of 5 bytes can have a name of 510
        self.tables += OWN_ENTRY_SIZE + size
        require(self.tables <= OWN_MAX_TABLES, "names of more than %d bytes (R9-1)" % OWN_MAX_TABLES, "LIMIT")


def read_header(header, snapshot):
    """header: the first 64 bytes, or less if the input ends."""
    require(header[:8] == MAGIC, "no LMC file (R3-1)", "NOT_LMC")
    require(header[8:9] in (b"", bytes([FORMAT_MAJOR])), "another major version than %d (R3-2)" % FORMAT_MAJOR, "VERSION")
    require(len(header) == HEADER_SIZE, "the input ends within the header (R3-3)", "TRUNCATED")
    _minor, algorithm, zeros, incompatible, _compatible, base, more_zeros, checksum = struct.unpack("<BB5sQQ16s12sI", header[9:])
    require(checksum == crc32c(header[:60]), "header (R3-4)", "CHECKSUM")
    require(algorithm == 1, "Algorithm %d of fingerprints (R3-6)" % algorithm, "UNSUPPORTED")
    require(not any(zeros), "reserved bytes of the header (R3-7)", "UNSUPPORTED")
    require(incompatible & ~snapshot.bits == 0, "bits %#x of Incompatible (R3-8)" % incompatible, "UNSUPPORTED")
    snapshot.incompatible = incompatible
    snapshot.base_fingerprint = base if snapshot.uses(BASE_BIT) else None
    require(any(base) == snapshot.uses(BASE_BIT), "Base_Fingerprint or bit 0 of Incompatible (R3-10)")
    require(not any(more_zeros), "reserved bytes of the header (R3-11)", "UNSUPPORTED")
    snapshot.keep = snapshot.keep or snapshot.uses(OWN_BIT)                    # own bytes are read again


# ---- 3.2 Trailer ----
TRAILER_SIZE = 40
END_MAGIC = bytes.fromhex("944C4D430D0A1A0A")


def read_trailer(trailer, status="CORRUPT"):
    """Index_Offset, Index_Size and Total_Size."""
    index_offset, index_size, total_size, major, _minor, reserved, checksum, magic = struct.unpack("<QQQBBHI8s", trailer)
    require(magic == END_MAGIC, "End_Magic (R3-15)", status)
    require(checksum == crc32c(trailer[:28]), "trailer (R3-16)", "CHECKSUM")
    require(major == FORMAT_MAJOR, "format %d.x by the trailer (R3-17)" % major, "VERSION")
    require(reserved == 0, "reserved bytes of the trailer (R3-19)", "UNSUPPORTED")
    return index_offset, index_size, total_size


# ---- 4. Sections ----
SECTION_HEADER_SIZE = 20
MAX_BODY_SIZE = 1 << 40
MAX_SIZE = (1 << 63) - 1
OWN_MAX_BODY_SIZE = 1 << 30                    # this decoder's own limit (R9-1)
KIND = re.compile(rb"[A-Za-z][A-Za-z0-9 ]{3}")
CRITICAL_KINDS = b"FILE", b"RUN ", b"BLKS", b"INDX"


def read_section(source, snapshot):
    """Kind and body."""
    header = source.read(SECTION_HEADER_SIZE)
    kind, size, head_crc, body_crc = struct.unpack("<4sQII", header)
    require(head_crc == crc32c(header[:12]), "section header (R4-1)", "CHECKSUM")
    place_section(kind, snapshot)
    require(size <= MAX_BODY_SIZE, "Body_Size (R4-5)")
    require(size <= OWN_MAX_BODY_SIZE, "section of %d bytes (R4-5)" % size, "LIMIT")
    body = source.read(size)
    require(body_crc == crc32c(body), "body of section %s (R4-6)" % kind.decode(), "CHECKSUM")
    return kind, body


def is_ancillary(kind):
    return kind[:1].islower()


def place_section(kind, snapshot):
    """Checks that a section of this Kind may come now."""
    require(KIND.fullmatch(kind), "Kind of a section (R4-2)")
    require(kind in CRITICAL_KINDS or is_ancillary(kind), "section of the unknown Kind %s (R4-3)" % kind.decode(), "UNSUPPORTED")
    require(kind == b"FILE" or snapshot.files, "the first section is no FILE (R4-9)")
    require((kind == b"INDX") == snapshot.has_blks, "the last two sections are not BLKS and INDX (R4-9, R4-10)")
    if kind in (b"FILE", b"BLKS"):
        require(snapshot.end in (None, snapshot.done), "the runs do not fill the files (R4-12)")
        if snapshot.end is None:
            file, size = snapshot.files[-1], snapshot.done - snapshot.start
            require(file.size_in_index in (None, size), "index: File_Size (R8-9)")
            file.size = size
    snapshot.has_blks = snapshot.has_blks or kind == b"BLKS"


# ---- 4.1 FILE body ----
MAX_FILES = MAX_TENSORS = 1 << 28
OWN_MAX_TABLES = 1 << 32                       # this decoder's own limit of memory for names and entries (R9-1)
OWN_ENTRY_SIZE = 256                           # about the size of an entry without its name
REGULAR, DIRECTORY = 0, 1
IS_DIRECTORY, HAS_MODE, HAS_MTIME, IS_UNKNOWN = 1, 2, 4, 8                      # Form of a file entry
IS_LIKE, HAS_GAP, HAS_LOSS = 1, 2, 4                                            # Form of a tensor entry
MAX_NAME_SIZE, MAX_DTYPE_SIZE, MAX_RANK = 65535, 32, 32
DTYPES = (b" BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64"
          b" I4 U4 I2 U2 C128").split(b" ")
DTYPE_BITS = dict(zip(DTYPES[1:], [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4 + [4, 4, 2, 2, 128]))


class File:
    """path, kind, size (None: not known yet), mode and mtime (None: not stored), tensors; crc and fingerprint (of a file without tensors). start: the
    place of its bytes among those of all files; done: how many were decoded."""

    def __init__(self, path=b"", kind=REGULAR, size=None):
        self.path, self.kind, self.size, self.mode, self.mtime = path, kind, size, None, None
        self.crc = self.start = self.done = self.next_tensor = 0
        self.data, self.text, self.fingerprint, self.unknown, self.size_in_index = bytearray(), None, None, size is None, None
        self.set_tensors([])

    def set_tensors(self, tensors):
        """tensors in order; without any the file counts as one tensor (section 7.1)."""
        self.tensors = tensors
        self.whole = None if tensors else Tensor(self.path, b"U8", None, 0, MAX_SIZE)


class Tensor:
    """loss: Generation, Measure and Error."""
    __slots__ = "name", "dtype", "shape", "offset", "size", "loss", "sums", "fingerprint"

    def __init__(self, name, dtype, shape, offset, size, loss=(0, 0, 0)):
        self.name, self.dtype, self.shape, self.offset, self.size, self.loss = name, dtype, shape, offset, size, loss
        self.sums = self.fingerprint = None

    @property
    def end(self):
        return self.offset + self.size


def read_file_body(body, snapshot):
    """Reads the files and adds them to the snapshot: a stream begins."""
    n_files = body.varint()
    require(1 <= n_files <= MAX_FILES, "N_Files (R4-14)")
    files, entries, start = [], [], snapshot.done                               # entries: all tensors of the section
    for _ in range(body.count(n_files, 3, "N_Files")):
        file = read_file_entry(body, files[-1].path if files else b"", entries, snapshot)
        require(file.size is not None or n_files == 1, "a file of Unknown size with others in a section (R4-16)")
        add_path(file, snapshot)
        file.start, start = start, start + (file.size or 0)
        files.append(file)
        snapshot.files.append(file)
    require(start - snapshot.done <= MAX_SIZE, "the files of a section have more than 2^63 - 1 bytes (R4-13)")
    snapshot.start, snapshot.end = snapshot.done, start if files[-1].size is not None else None
    read_extensions(body)
    return files


def read_file_entry(body, path_before, entries, snapshot):
    form, prefix, rest_size = body.byte(), body.byte(), body.varint()
    require(form >> 4 == 0, "reserved bits of the Form of a file (R4-15)", "UNSUPPORTED")
    require(not form & IS_DIRECTORY or not form & IS_UNKNOWN, "a directory of Unknown size (R4-16)")
    require(prefix <= len(path_before), "Path_Prefix (R4-17)")
    require(prefix + rest_size <= MAX_NAME_SIZE, "Path_Rest_Size (R4-18)")
    path, has_size = path_before[:prefix] + body.string(rest_size), not form & (IS_DIRECTORY | IS_UNKNOWN)
    snapshot.count_entry(len(path))
    file = File(path, DIRECTORY if form & IS_DIRECTORY else REGULAR, body.varint() if has_size else 0 if form & IS_DIRECTORY else None)
    require(not has_size or file.size <= MAX_SIZE, "File_Size (R4-19)")
    if form & HAS_MODE:
        file.mode = body.varint()
        require(file.mode <= 0o7777, "Mode (R4-20)")
    if form & HAS_MTIME:
        seconds, nanoseconds = body.fields("qI")
        require(nanoseconds < 10**9, "Mtime_Nanoseconds (R4-21)")
        file.mtime = seconds * 10**9 + nanoseconds
    n_tensors = body.varint() if has_size else 0
    require(n_tensors <= MAX_TENSORS, "N_Tensors (R4-22)")
    tensors, end, names = [], 0, set()
    for _ in range(body.count(n_tensors, 5, "N_Tensors")):
        tensor = read_tensor_entry(body, end, entries)
        snapshot.count_entry(len(tensor.name) + 8 * len(tensor.shape))
        end = tensor.end
        require(end <= file.size, "tensor ends after its file (R4-40)")
        require(tensor.name not in names, "two tensors of the same name (R4-41)")
        names.add(tensor.name)
        tensors.append(tensor)
        entries.append(tensor)
    file.set_tensors(tensors)
    return file


def add_path(file, snapshot):
    """snapshot.paths has all Paths in the order where "/" comes before all other bytes, so paths below a path are behind it."""
    require(not file.path or not {b"", b".", b".."} & set(file.path.split(b"/")), "illegal Path (R4-23)")
    require(not snapshot.files or (file.path and snapshot.files[0].path), "empty Path beside other files (R4-24)")
    key, paths = file.path.replace(b"/", b"\0"), snapshot.paths
    at = bisect.bisect_left(paths, (key,))
    require(at == len(paths) or paths[at][0] != key, "two files of the same Path (R4-25)")
    is_below = at > 0 and paths[at - 1][1] == REGULAR and key.startswith(paths[at - 1][0] + b"\0")
    is_above = at < len(paths) and file.kind == REGULAR and paths[at][0].startswith(key + b"\0")
    require(not is_below and not is_above, "a file below a file (R4-26)")
    paths.insert(at, (key, file.kind))


def read_tensor_entry(body, end, entries):
    """end: that of the entry before it in its file."""
    form, back = body.byte(), body.varint()
    require(form >> 3 == 0, "reserved bits of the Form of a tensor (R4-29)", "UNSUPPORTED")
    require(back <= len(entries) and (back or not form & IS_LIKE), "Back of a tensor (R4-30)")
    like, prefix, suffix = entries[-back] if back else None, b"", b""
    if like:
        prefix_size, suffix_size = body.fields("BB")
        require(prefix_size + suffix_size <= len(like.name), "Prefix or Suffix of a Name (R4-31)")
        prefix, suffix = like.name[:prefix_size], like.name[len(like.name) - suffix_size:]
    middle_size = body.varint()
    require(len(prefix) + middle_size + len(suffix) <= MAX_NAME_SIZE, "size of a Name (R4-32)")
    name = prefix + body.string(middle_size) + suffix
    gap = body.varint() if form & HAS_GAP else 0
    require(gap or not form & HAS_GAP, "Gap of 0 (R4-33)")
    dtype, shape, size = (like.dtype, like.shape, like.size) if form & IS_LIKE else read_type(body)
    loss = body.fields("BBI") if form & HAS_LOSS else (0, 0, 0)
    require(not form & HAS_LOSS or (loss[0] and loss[1]), "Generation or Measure 0 of a tensor (R4-38)")
    return Tensor(name, dtype, shape, end + gap, size, loss)


def read_type(body):
    """Dtype, Shape and Size."""
    number = body.byte()
    require(number < len(DTYPES), "Dtype %d (R4-34)" % number, "UNSUPPORTED")
    dtype = DTYPES[number]
    if number == 0:
        dtype_size = body.byte()
        require(1 <= dtype_size <= MAX_DTYPE_SIZE, "Dtype_Size (R4-35)")
        dtype = body.string(dtype_size)
        require(dtype not in DTYPE_BITS, "a Dtype that has a number (R4-36)")
    rank = body.byte()
    require(rank <= MAX_RANK, "Rank (R4-37)")
    shape = tuple([body.varint() for _ in range(rank)])
    size = body.varint() if number == 0 else size_of(dtype, shape)
    require(size is not None and (number == 0 or size <= MAX_SIZE), "Size of a tensor, or no whole number of bytes (R4-39)")
    return dtype, shape, size


def size_of(dtype, shape):
    """Bytes of a tensor whose Dtype is in the table; None if that is not an integer."""
    bits = DTYPE_BITS[dtype]
    for extent in shape:                       # Python's integers are exact
        bits *= extent
    return None if bits % 8 else bits // 8


# ---- 4.2 RUN body ----
BLOCK_SIZES = [1 << k for k in range(14, 23)]
MAX_SEGMENTS, MAX_BLOCKS = 1 << 24, (1 << 32) - 1
ZERO, BASE, TEXT, OWN, OWN_BF16, OWN_F16 = range(6)                             # Prediction


class Run:
    """start: the place of its bytes among those of all files. segment_starts: those of its segments, in the run, and its size; segments: number
    (None: zero bytes) and offset of each."""

    def __init__(self, size, block_size, prediction, start):
        self.size, self.block_size, self.prediction, self.start, self.end = size, block_size, prediction, start, start + size
        self.n_blocks = (size - 1) // block_size + 1
        self.segment_starts, self.segments = [], []
        self.convert = {OWN_BF16: bf16_of_f32, OWN_F16: f16_of_f32}.get(prediction)
        self.at, self.first_block, self.places = 0, 0, None                     # in the LMC file: for a range reader

    def predict(self, at, size, snapshot):
        """size bytes of its prediction, from at on."""
        made, i, step, end = bytearray(), bisect.bisect_right(self.segment_starts, at) - 1, 2 if self.convert else 1, at + size
        while at < end:
            number, offset = self.segments[i]
            part = min(end, self.segment_starts[i + 1]) - at
            if number is None:
                made += bytes(part)
            else:
                found = fetch(snapshot, self, number, offset + (at - self.segment_starts[i]) * step, part * step)
                made += struct.pack("<%dH" % (part // 2), *map(self.convert, integers(found, 4))) if self.convert else found
            at, i = at + part, i + 1
        return bytes(made)

    def block_size_of(self, number):
        return min(self.block_size, self.size - number * self.block_size)


def read_run_body(body, snapshot):
    """Reads the run and adds it to the snapshot."""
    run_size, block_size, prediction = body.varint(), body.varint(), body.byte()
    require(1 <= run_size <= MAX_SIZE, "Run_Size (R4-42)")
    require(block_size in BLOCK_SIZES, "Block_Size (R4-43)", "UNSUPPORTED")
    require(prediction <= OWN_F16, "Prediction of a RUN (R4-44)", "UNSUPPORTED")
    require(prediction != BASE or snapshot.uses(BASE_BIT), "Prediction 1 without bit 0 of Incompatible (R3-12)")
    require(prediction < OWN or snapshot.uses(OWN_BIT), "Prediction 3 to 5 without bit 1 of Incompatible (R3-12)")
    require(snapshot.end is None or run_size <= snapshot.end - snapshot.done, "run ends after its stream (R4-11)")
    require(snapshot.done - snapshot.start + run_size <= MAX_SIZE, "stream of 2^63 bytes or more (R4-13)")
    require(snapshot.limit is None or snapshot.done + run_size <= snapshot.limit, "more than %s bytes to restore" % snapshot.limit, "LIMIT")
    run = Run(run_size, block_size, prediction, snapshot.done)
    if prediction != ZERO:
        read_segments(body, snapshot, run)
    read_extensions(body)
    require(run.n_blocks <= MAX_BLOCKS, "number of blocks (R4-46)")
    run.first_block = snapshot.n_blocks
    snapshot.runs.append(run)
    snapshot.run_ends.append(run.end)
    if prediction >= OWN:
        snapshot.own_starts.append(run.start)
        snapshot.own_ends.append(run.end)
    snapshot.done, snapshot.n_blocks = run.end, snapshot.n_blocks + run.n_blocks
    return run


def read_segments(body, snapshot, run):
    n_segments = body.varint()
    require(1 <= n_segments <= MAX_SEGMENTS, "N_Segments (R4-45)")
    total, last_number = 0, -1
    for _ in range(body.count(n_segments, 2, "N_Segments")):
        size, reference, number, offset = body.varint(), body.varint(), None, 0
        require(size > 0 and (not run.convert or size % 2 == 0), "Size of a segment (R4-47)")
        require(total + size <= run.size, "the segments have more bytes than their run (R4-47)")
        if reference:
            number = last_number = last_number + 1 + unzigzag(reference - 1 >> 1)
            if reference - 1 & 1:
                offset = body.varint()
                require(offset > 0, "Offset of 0 (R4-48)")
            check_reference(snapshot, run, number, offset, size)
        run.segment_starts.append(total)
        run.segments.append((number, offset))
        total += size
    run.segment_starts.append(total)
    require(total == run.size, "the segments have less bytes than their run (R4-47)")


def check_reference(snapshot, run, number, offset, size):
    """Checks that the bytes that a segment refers to exist."""
    if run.prediction == BASE:
        if snapshot.base is not None:          # None: a range reader without it
            items = snapshot.base.items
            require(0 <= number < len(items) and offset + size <= items[number][1].size, "no such item in the base, or too few bytes (R4-49)",
                    snapshot.status_of_wrong_reference)
        return
    rule = {TEXT: "R4-50", OWN: "R4-51"}.get(run.prediction, "R4-52")
    require(0 <= number < len(snapshot.files), "no such file yet (%s)" % rule)
    file = snapshot.files[number]
    if run.prediction == TEXT:
        file.text = file.text or HeaderText(file.tensors)
        require(offset + size <= file.text.size, "segment ends after the header text (R4-50)")
        return
    size *= 2 if run.convert else 1
    first, end = file.start + offset, file.start + offset + size
    require(end <= snapshot.done and (file.size is None or offset + size <= file.size), "segment refers to what is not there yet (%s)" % rule)
    own = bisect.bisect_right(snapshot.own_ends, first)
    require(own == len(snapshot.own_ends) or snapshot.own_starts[own] >= end, "prediction from a run of Prediction 3 to 5 (%s)" % rule)


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


# ---- 4.3 Header text ----
class HeaderText:
    """It can be hundreds of times as large as the FILE body, so only requested parts are made (R9-7)."""

    def __init__(self, tensors):
        self.tensors, self.ends, self.size = tensors, [], 0
        for i in range(len(tensors)):
            self.size += sum(map(len, self.entry(i)))
            self.ends.append(self.size)

    def entry(self, i):
        """The text before the name, the name, and the rest. They are not joined, because a segment may need one byte of 65,535."""
        tensor = self.tensors[i]
        first = tensor.offset - self.tensors[0].offset
        return b',"' if i else b'"', tensor.name, b'":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
            tensor.dtype, ",".join(map(str, tensor.shape)).encode(), first, first + tensor.size)

    def cut(self, start, stop):
        i = bisect.bisect_right(self.ends, start)
        at, made = (self.ends[i - 1] if i else 0), bytearray()
        while at < stop:
            for part in self.entry(i):
                made += part[max(start - at, 0):max(stop - at, 0)]
                at += len(part)
            i += 1
        return made


# ---- 4.5 Extension records ----
def read_extensions(body):
    """Reads the records behind the last field of a FILE, RUN or INDX body. 1.0 defines none."""
    last = -1
    while body.at < len(body.data):
        tag = body.varint()
        require(tag > last, "tags of extension records do not ascend (R4-54)")
        last = tag
        body.take(body.varint())
        require(tag & 1 == 0, "critical extension record %d (R4-55)" % tag, "UNSUPPORTED")


# ---- 5. Blocks ----
BLOCK_HEADER_SIZE, SYNC = 24, 0xB2
NO_ORDER, TWOS_COMPLEMENT, SIGN_MAGNITUDE = 0, 1, 2
STORED, PLANES, QUANTISED, APART, MATRIX, CODES = 0, 1, 2, 3, 4, 5
ROW = struct.Struct("<II")                     # of BLKS


def read_block(source, snapshot, run, number):
    """Reads a block of a run; returns its row of BLKS, and its bytes."""
    size, header = run.block_size_of(number), source.read(BLOCK_HEADER_SIZE)    # R5-1
    sync, width, coding, grouping, n, payload_size, content_crc, payload_crc, header_crc = struct.unpack("<BBBBIIIII", header)
    require(sync == SYNC, "no block where one should start (R5-2)")
    require(header_crc == crc32c(struct.pack("<I", number) + header[:20]), "block header (R5-3)", "CHECKSUM")
    order, is_predicted, layout = coding & 3, coding >> 2 & 1, coding >> 5
    require(width in (1, 2, 4, 8) and order <= SIGN_MAGNITUDE and layout <= CODES and coding >> 3 & 3 == 0,
            "Width %d or Coding %#x of a block (R5-4)" % (width, coding), "UNSUPPORTED")
    require(n * width == size, "N_Elements (R5-5)")
    require(not is_predicted or run.prediction != ZERO, "Predicted in a run without prediction (R5-6)")
    require(is_predicted or payload_crc == 0, "Payload_CRC of a block without prediction (R5-6)")
    if layout == STORED:
        require(payload_size == size and order == is_predicted == grouping == 0, "Payload_Size or manner of a stored block (R5-7)")
    else:
        require(payload_size < size, "Payload_Size (R5-7)")
        require(grouping == 0 or is_predicted, "Grouping without prediction (R5-7)")
        require(grouping < 32 or (grouping >> 5 < width and 0 < grouping & 31 < 16), "Natural (R5-7)")         # 16 is Sparse
        require(layout != QUANTISED or (width in (2, 4) and order == grouping == 0), "manner of a quantised block (R5-7)")
        require(layout != CODES or (width in (2, 4) and order == is_predicted == 0), "manner of a block of codes (R5-7)")
        require(layout != PLANES or order or not is_predicted, "Order 0 with a prediction (R5-7)")
        require(layout != APART or not is_predicted, "zeros apart with a prediction (R5-7)")
        require(layout != MATRIX or (order and not is_predicted), "manner of a block by rows and columns (R5-7)")
    require(layout != QUANTISED or snapshot.uses(QUANTISED_BIT), "quantised elements without bit 2 of Incompatible (R5-8, R3-12)")
    require(layout != APART or snapshot.uses(ZEROS_BIT), "zeros apart without bit 3 of Incompatible (R5-8, R3-12)")
    require(layout != MATRIX or snapshot.uses(MATRIX_BIT), "rows and columns without bit 4 of Incompatible (R5-8, R3-12)")
    require(layout != CODES or snapshot.uses(CODES_BIT), "codes without bit 5 of Incompatible (R5-8, R3-12)")
    require(grouping == 0 or snapshot.uses(BASE_BIT) or snapshot.uses(OWN_BIT), "Grouping without bit 0 or 1 of Incompatible (R5-8, R3-13)")
    payload = source.read(payload_size)        # R5-9
    require(not is_predicted or payload_crc == crc32c(payload), "payload of a block (R5-10)", "CHECKSUM")
    base = run.predict(number * run.block_size, size, snapshot) if is_predicted else None
    needs_base = is_predicted and run.prediction == BASE
    try:
        data = decode_payload(Cursor(payload, "payload"), n, width, order, layout, grouping, base)              # R5-11
    except LmcError as error:
        raise LmcError("BASE_WRONG", "the base is another one: %s (R5-13)" % error.text) if needs_base else error
    require(crc32c(data) == content_crc, "content of a block (R5-12)" + " by this base (R5-13)" * needs_base,
            "BASE_WRONG" if needs_base else "CHECKSUM")
    return ROW.pack(BLOCK_HEADER_SIZE + payload_size, header_crc), data


def decode_payload(payload, n, width, order, layout, grouping, base):
    """base: the bytes of the prediction, or None."""
    if layout == STORED:
        return payload.data
    if layout == QUANTISED:
        import quantised
        data = quantised.read_quantised(payload, n, width, base)
    elif layout == CODES:
        import codes
        data = codes.read_codes(payload, n, width)
    elif layout == APART:
        import zeros
        data = join_planes(zeros.read_apart(payload, n, width), n, order, None)
    else:
        if layout == MATRIX:
            import matrix
            base = matrix.read_prediction(payload, n, width)
        planes = read_classes(payload, n, width, grouping, base) if grouping else [read_list(payload, n) for _ in range(width)]
        data = join_planes(planes, n, order, base)
    payload.finish()
    return data


# ---- 5.1 Planes ----
def integers(data, width):
    return struct.unpack("<%d%s" % (len(data) // width, "_BH_I___Q"[width]), data)


def join_planes(planes, n, order, base):
    """The decoded bytes. base: those of the prediction, or None."""
    width, data = len(planes), bytearray(n * len(planes))
    for p, plane in enumerate(planes):
        data[p::width] = plane
    if order == NO_ORDER:
        return bytes(data)
    pairs, sign = zip(integers(data, width), integers(base, width) if base else itertools.repeat(0)), 1 << 8 * width - 1
    if order == TWOS_COMPLEMENT:
        elements = [b + unzigzag(r) & 2 * sign - 1 for r, b in pairs]
    else:
        elements = [add_sign_magnitude(r, b, sign) for r, b in pairs]
    return struct.pack("<%d%s" % (n, "_BH_I___Q"[width]), *elements)


def add_sign_magnitude(r, b, sign):
    total = (b & sign - 1) + unzigzag(r) & 2 * sign - 1
    return b & sign ^ (total if total < sign else total ^ sign - 1)


# ---- 5.2 Classes ----
def read_classes(source, n, width, grouping, base):
    """The planes of the residuals."""
    n_classes, sparse = (grouping & 15) + 1, grouping >> 4 & 1
    thresholds = source.take(n_classes - 1)
    require(all(a < b for a, b in zip(b"\0" + thresholds, thresholds)), "thresholds of classes (R5-15)")
    keys = bytes([b >> 8 * width - 9 & 255 if width > 1 else b << 1 & 255 | b >> 7 for b in integers(base, width)])
    classes = keys.translate(bytes([bisect.bisect_right(thresholds, key) for key in range(256)]))
    sizes = [classes.count(c) for c in range(n_classes)]
    if sparse:
        masks = [read_mask(source, size, 0, True) if size else b"" for size in sizes]                          # R5-16
        sizes = [mask.count(1) for mask in masks]
        # Elements that are not coded get an extra class, in which all is zero.
        classes = bytes([c if bit else n_classes for c, bit in zip(classes, deal(classes, masks))])
    natural = [source.take(n) for _ in range(grouping >> 5)]
    lists = [[read_list(source, size) if size else b"" for _ in range(len(natural), width)] for size in sizes]
    return natural + [deal(classes, planes) for planes in zip(*lists)]


def deal(classes, lists):
    """For each element the next byte of the list of its class; 0 for the class behind the last."""
    hands = [iter(one) for one in lists] + [itertools.repeat(0)]
    return bytes([next(hands[c]) for c in classes])


# ---- 6. Lists, trees and masks ----
MODE_RAW, MODE_CONSTANT, MODE_TREE, MODE_ESCAPE = range(4)


def read_list(source, n):
    mode = source.byte()
    require(mode <= MODE_ESCAPE, "Mode of a list (R6-1)")
    if mode == MODE_RAW:
        return source.take(n)
    if mode == MODE_CONSTANT:
        return source.take(1) * n
    return read_node(source, read_tree_header(source, mode == MODE_ESCAPE), 0, 0, n, 0)


# ---- 6.1 Tree_Header ----
MAX_LENGTH, MAX_LEAVES = 15, 256
ESCAPE = 256                                   # the escape's symbol, which sorts behind all others


def read_tree_header(source, has_escape):
    first, count = source.fields("BB")
    count += 1
    require(first + count <= 256, "symbols of a tree (R6-2)")
    packed = source.take((count + has_escape + 1) // 2)
    lengths = [half for byte in packed for half in (byte & 15, byte >> 4)]
    require(not any(lengths[count + has_escape:]), "unused bits after the lengths of a tree (R6-3)")
    require(lengths[0] and lengths[count - 1], "first or last symbol of a tree has no code (R6-4)")
    leaves = sorted((length, first + i) for i, length in enumerate(lengths[:count]) if length)
    if has_escape:
        require(lengths[count] >= leaves[-1][0], "length of the escape (R6-7)")
        leaves.append((lengths[count], ESCAPE))
    require(2 <= len(leaves) <= MAX_LEAVES, "number of leaves (R6-5)")
    require(sum(1 << MAX_LENGTH - length for length, _ in leaves) == 1 << MAX_LENGTH, "the code is not complete (R6-6)")
    return Tree(leaves)


# ---- 6.2 The tree ----
MIN_FLAT, MAX_FLAT = 2, 6


class Tree:
    def __init__(self, leaves):
        """leaves: pairs of length and symbol, in the order of section 6.2."""
        self.lengths, self.symbols = zip(*leaves)
        self.starts, start = [], 0
        for length in self.lengths:
            self.starts.append(start)
            start += 1 << MAX_LENGTH - length


def read_node(source, tree, depth, start, n, nesting):
    """Node(depth, start, n) of a tree whose masks have that nesting: the n bytes."""
    if n == 0:
        return b""
    a, b = bisect.bisect_left(tree.starts, start), bisect.bisect_left(tree.starts, start + (1 << MAX_LENGTH - depth))
    last = tree.symbols[b - 1]
    if b - a == 1:
        return source.take(n) if last == ESCAPE else bytes([last]) * n
    extra = tree.lengths[a] - depth
    if last != ESCAPE and tree.lengths[a] == tree.lengths[b - 1] and MIN_FLAT <= extra <= MAX_FLAT:
        index = 0                              # of every element, in n bytes of one integer
        for _ in range(extra):
            index = index << 1 | int.from_bytes(read_bits(source, n), "little")
        return index.to_bytes(n, "little").translate(bytes(tree.symbols[a:b]).ljust(256, b"\0"))
    bits = read_mask(source, n, nesting, False)
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


# ---- 6.3 Masks ----
MAX_NESTING, MIN_NESTED_BITS = 2, 256
NESTED_MODES, GAP_MODES = 20, 64               # the last of each
COMPLEMENT = bytes(range(255, -1, -1))
SPREAD = [bytes(byte >> i & 1 for i in range(8)) for byte in range(256)]


def read_mask(source, n, nesting, is_of_class):
    """n bits, each in a byte."""
    if n < MIN_NESTED_BITS or nesting == MAX_NESTING:
        return read_bits(source, n)
    mode = source.byte()
    require(mode <= (GAP_MODES if is_of_class else NESTED_MODES), "Mode of a mask (R6-8)")
    if mode == 0:
        return read_bits(source, n)
    if mode > NESTED_MODES:
        return read_gaps(source, n, mode - NESTED_MODES - 1 >> 1, mode - NESTED_MODES - 1 & 1)
    packed = read_node(source, FROZEN_TREES[mode - 1 >> 1], 0, 0, (n + 7) // 8, nesting + 1)
    return unpack_bits(packed.translate(COMPLEMENT) if mode - 1 & 1 else packed, n, "R6-9")


def read_gaps(source, n, shift, polarity):
    count = int.from_bytes(source.take(3), "little")
    require(1 <= count <= n, "number of gaps (R6-10)")
    low = source.take((count * shift + 7) // 8)
    require(count * shift % 8 == 0 or low[-1] >> count * shift % 8 == 0, "unused bits of the low parts of gaps (R2-2)")
    start, ones = source.at, 0
    while ones < count:
        ones += bin(source.byte()).count("1")
    unary, bits, position, at = unpack_bits(source.data[start:source.at], 8 * (source.at - start), "R2-2"), bytearray([polarity]) * n, -1, -1
    require(ones == count, "unused bits of the quotients of gaps (R2-2)")
    for j in range(count):
        before, at, first = at, unary.index(1, at + 1), j * shift
        part = int.from_bytes(low[first >> 3:(first >> 3) + 4], "little") >> (first & 7) & (1 << shift) - 1
        position += 1 + (at - before - 1 << shift | part)
        require(position < n, "gaps reach beyond the mask (R6-10)")
        bits[position] = 1 - polarity
    return bytes(bits)


def read_bits(source, n):
    """A list of n bits, each in a byte."""
    return unpack_bits(source.take((n + 7) // 8), n, "R2-2")


def unpack_bits(packed, n, rule):
    require(n % 8 == 0 or packed[-1] >> n % 8 == 0, "unused bits of a list of bits (%s)" % rule)
    return b"".join(map(SPREAD.__getitem__, packed))[:n]


# ---- 6.4 Frozen trees ----
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
FROZEN_TREES = [Tree(list(zip((length + 1 for length in range(MAX_LENGTH) for _ in range(counts[length])), FROZEN_SYMBOLS)))
                for counts in FROZEN_COUNTS]

# ---- 7.1 Fingerprint of a tensor ----
CHUNK_SIZE = 262144
TENSOR, WHOLE_FILE, WHOLE_DIRECTORY = range(3)                                  # Type


class Sums:
    """The sums of chunks, for bytes that come in pieces."""

    def __init__(self):
        self.chunks, self.rest = bytearray(), bytearray()

    def add(self, data):
        self.rest += data
        while len(self.rest) >= CHUNK_SIZE:
            self.flush()

    def flush(self):
        chunk = bytes(self.rest[:CHUNK_SIZE])
        del self.rest[:CHUNK_SIZE]
        if chunk:
            words = integers(chunk + bytes(-len(chunk) % 8), 8)
            self.chunks += struct.pack("<IQ", crc32c(chunk), sum(words) & (1 << 64) - 1)


def fingerprint_of(tensor, kind, shape, size, sums):
    sums.flush()
    text = b"LMC tensor 3\0" + bytes([kind]) + sums.chunks + bytes([len(tensor.dtype)]) + tensor.dtype
    return hashlib.sha256(text + struct.pack("<B%dQQ" % len(shape), len(shape), *shape, size)).digest()[:FINGERPRINT_SIZE]


def add_to_file(file, data, keep):
    """Adds the file's next bytes to its sums."""
    if keep:
        file.data += data
    file.crc = crc32c(data, file.crc)
    start, end = file.done, file.done + len(data)
    file.done = end
    if file.whole:
        add_to_tensor(file.whole, data)
    while file.next_tensor < len(file.tensors):
        tensor = file.tensors[file.next_tensor]
        if tensor.offset < end and tensor.end > start:
            add_to_tensor(tensor, data[max(tensor.offset - start, 0):tensor.end - start])
        if tensor.end > end:
            break
        finish_tensor(tensor, TENSOR, tensor.shape, tensor.size)
        file.next_tensor += 1


def add_to_tensor(tensor, data):
    tensor.sums = tensor.sums or Sums()
    tensor.sums.add(data)


def finish_tensor(tensor, kind, shape, size):
    tensor.fingerprint, tensor.sums = fingerprint_of(tensor, kind, shape, size, tensor.sums or Sums()), None


def finish_file(file):
    for tensor in file.tensors[file.next_tensor:]:                              # empty tensors, if the file has no bytes
        finish_tensor(tensor, TENSOR, tensor.shape, tensor.size)
    if file.whole:
        file.whole.size = file.done
        finish_tensor(file.whole, WHOLE_DIRECTORY if file.kind == DIRECTORY else WHOLE_FILE, (file.done,), file.done)
        file.fingerprint = file.whole.fingerprint


# ---- 7.2 Fingerprint of a snapshot ----
def set_items(snapshot):
    """Sets snapshot.items and snapshot.fingerprint; the files' fingerprints are known."""
    items = [(file, tensor) for file in snapshot.files for tensor in file.tensors or [file.whole]]
    snapshot.items = sorted(items, key=lambda item: (item[1].name, item[1].fingerprint))
    text = b"".join(struct.pack("<I", len(tensor.name)) + tensor.name + tensor.fingerprint for _, tensor in snapshot.items)
    snapshot.fingerprint = hashlib.sha256(b"LMC snapshot 3\0" + text).digest()[:FINGERPRINT_SIZE]


# ---- 8. What a whole-file decoder does ----
MAX_VALUE_SIZE = 1 << 28


def decode_stream(stream, bases, deliver=lambda file, data: None, keep=False, bits=ALL_BITS, hashes=False, limit=None):
    """Decode and check a whole LMC file; deliver(file, data) gets the checked bytes of each file in order, first b"" for each.
    bases: paths (or Bases)."""
    try:
        source, snapshot, rows, hash_body = Input(stream), Snapshot(keep or hashes, bits, limit), bytearray(), None
        header = source.read_up_to(HEADER_SIZE)
        read_header(header, snapshot)
        if snapshot.base_fingerprint:
            import bases as of_callers
            snapshot.base = of_callers.find_base(snapshot, bases, stream)
        while True:
            offset, files = source.at, []
            kind, body = read_section(source, snapshot)
            if kind in (b"FILE", b"BLKS"):
                finish_files(snapshot, deliver)
            if kind == b"FILE":
                files = read_file_body(Cursor(body, "FILE body"), snapshot)
                deliver(files[0], b"")
            elif kind == b"RUN ":
                run = read_run_body(Cursor(body, "RUN body"), snapshot)
                for number in range(run.n_blocks):
                    row, data = read_block(source, snapshot, run, number)
                    rows += row
                    add_to_stream(snapshot, data, deliver)
            elif kind == b"BLKS":
                require(len(body) == len(rows), "size of BLKS (R8-1)")
                require(body == rows, "rows of BLKS (R8-2)")
                break
            elif kind == b"hash" and hashes:
                import hashes as companion
                hash_body = companion.keep_body(body, hash_body)
            snapshot.sections.append((kind, source.at - offset, b"" if is_ancillary(kind) else body, files))
        offset, (_, body) = source.at, read_section(source, snapshot)
        check_index(Cursor(body, "index"), header, snapshot)
        index_end = source.at
        for found, real, rule in zip(read_trailer(source.read(TRAILER_SIZE)), (offset, index_end - offset, index_end + TRAILER_SIZE),
                                     ("Index_Offset (R3-20)", "Index_Size (R3-21)", "Total_Size (R3-22)")):
            require(found == real, "trailer: " + rule)
        require(not source.read_up_to(1), "bytes after the trailer (R3-22)")
        if hash_body is not None:
            import hashes as companion
            companion.check_hashes(hash_body, snapshot)
    except (MemoryError, RecursionError):
        raise LmcError("LIMIT", "out of memory") from None
    return snapshot


def fetch(snapshot, run, number, offset, size):
    """The bytes that a segment refers to."""
    if run.prediction == BASE:
        require(snapshot.base is not None, "the base is needed (R7-1)", "BASE_MISSING")
        file, tensor = snapshot.base.items[number]
        return snapshot.base.read_file(file, tensor.offset + offset, size)
    if run.prediction == TEXT:
        return snapshot.files[number].text.cut(offset, offset + size)
    return snapshot.read_file(snapshot.files[number], offset, size)


def add_to_stream(snapshot, data, deliver):
    """Adds decoded bytes to the next files of the stream."""
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


def next_file(snapshot, deliver):
    finish_file(snapshot.files[snapshot.filling])
    snapshot.filling += 1
    deliver(snapshot.files[snapshot.filling], b"")


def finish_files(snapshot, deliver):
    """Finishes the files of a complete stream."""
    if snapshot.files:
        while snapshot.filling < len(snapshot.files) - 1:
            next_file(snapshot, deliver)
        finish_file(snapshot.files[-1])
        snapshot.filling += 1


def check_index(body, header, snapshot):
    require(body.take(HEADER_SIZE) == header, "index: copy of the header (R8-3)")
    fingerprint, n_sections, n_metadata = body.fields("16sII")
    set_items(snapshot)
    require(n_sections == len(snapshot.sections), "index: N_Sections (R8-5)")
    for kind, stored_size, section_body, files in snapshot.sections:
        require((body.take(4), body.varint()) == (kind, stored_size), "index: Kind or Stored_Size (R8-5)")
        if not is_ancillary(kind):
            require(body.varint() == len(section_body) and body.take(len(section_body)) == section_body, "index: body of a section (R8-5)")
        for file in files:
            require(not file.unknown or body.fields("Q") == (file.size,), "index: File_Size (R8-9)")
            require(body.fields("I") == (file.crc,), "index: File_CRC (R8-10)")
            for tensor in file.tensors or [file.whole]:
                require(body.take(FINGERPRINT_SIZE) == tensor.fingerprint, "index: fingerprint of a tensor or file (R8-11)")
    require(fingerprint == snapshot.fingerprint, "index: Snapshot_Fingerprint (R8-4)")
    read_metadata(body, n_metadata, snapshot)


def read_metadata(body, n_metadata, snapshot):
    """Reads the end of the index."""
    for _ in range(body.count(n_metadata, 9, "N_Metadata")):
        key_size, value_size = body.fields("II")
        require(1 <= key_size <= MAX_NAME_SIZE and value_size <= MAX_VALUE_SIZE, "size of a metadata entry (R8-13)")
        key = body.string(key_size)
        require(not snapshot.metadata or snapshot.metadata[-1][0] < key, "metadata keys do not ascend (R8-14)")
        snapshot.metadata.append((key, body.take(value_size)))
    read_extensions(body)


# ---- As a module ----
def decode(data, bases=(), **how):
    """The Snapshot in data; each of its files has its bytes as .data. bases: paths. how: bits, hashes and limit, like the command's options. Raises
    LmcError."""
    return decode_stream(io.BytesIO(data), bases, keep=True, **how)


if __name__ == "__main__":
    import restore
    sys.exit(restore.main(sys.argv[1:]))
