#!/usr/bin/env python3
"""How codecs handle damaged files: real tensors are packed, damaged in random ways, and decoded.

  corruption.py [--trials N] [--peer-trials N] [--seed N] [--only NAME] [--state FILE] [DIRECTORY]
                                                        markdown to stdout; exit 1 if LMC let any damage through

With --state, counts are stored in FILE every few hundred trials, and the same command continues from them.

DIRECTORY (default ../shared/data) has models/ and series/ of safetensors files. For LMC the command (build/lmc) packs the files: alone, against a
base, at level max, quantised; the other codecs get the bytes of the same tensors. All get the same kinds of damage, drawn in the same way:

  bits        1 to 8 bits flipped, anywhere
  truncated   cut off anywhere
  spliced     a piece of 1 byte to 64 KiB overwritten with, replaced by, or followed by a piece of this or of another packed file
  swapped     two pieces exchanged; of an LMC file, half of the time, two blocks (of any sizes)
  moved       (LMC only) a block of another packed file replaces a block
  wrong base  (deltas only) another snapshot, or a base with 1 to 8 flipped bits that claims its fingerprint
  the others  (LMC only) faults of disks, file systems and tools that mix two versions of a file: by blocks, sectors of 512 bytes, pages of 4 KiB, and
  in BLKS and the index with repaired CRCs. The donor is a file of the same tensors at another step: see class Mixed

and results are counted: harmless (all bytes right), detected (an error), silent (success, other bytes), crashed, hung (20 s without an answer,
twice). Detected late, only in a stream: wrong bytes were delivered before the error, so a caller must not use them before the end, as the command
does. A codec runs in its own process, so that a crash is one trial. LMC is called through build/liblmc.so."""
import argparse, ctypes, json, multiprocessing, os, random, shutil, struct, subprocess, sys, tempfile
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
OUTCOMES = ("harmless", "detected", "detected, late", "silent", "crashed", "hung")


# -- damage --

def flip_bits(rng, data):
    for at in rng.sample(range(len(data) * 8), min(rng.randint(1, 8), len(data) * 8)):
        data[at >> 3] ^= 1 << (at & 7)
    return data


def truncate(rng, data):
    return data[:rng.randrange(len(data))]


def splice(rng, data, others):
    n = min(1 << rng.randint(0, 16), len(data))
    source = rng.choice(others) if others and rng.random() < 0.5 else data
    start = rng.randrange(max(1, len(source) - n))
    piece, at = bytes(source[start:start + n]), rng.randrange(len(data))
    kept = (at + n, at, at + rng.randint(0, 2 * n))[rng.randrange(3)]  # overwritten, inserted, another number of bytes replaced
    return data[:at] + piece + data[kept:]


def swap(rng, data, blocks):
    if blocks and len(blocks) > 1 and rng.random() < 0.5:
        (a, a_end), (b, b_end) = sorted(rng.sample(blocks, 2))
    else:
        n = min(1 << rng.randint(0, 18), len(data) // 2)
        a = rng.randrange(len(data) - 2 * n + 1)
        b = rng.randrange(a + n, len(data) - n + 1)
        a_end, b_end = a + n, b + n
    return data[:a] + data[b:b_end] + data[a_end:b] + data[a:a_end] + data[b_end:]


def move(rng, data, blocks, others):
    """A whole block of another file, in place of one with the same number, if there is one."""
    other, other_blocks = rng.choice(others)
    i = rng.randrange(min(len(blocks), len(other_blocks))) if rng.random() < 0.5 else rng.randrange(len(blocks))
    j = i if i < len(other_blocks) and rng.random() < 0.7 else rng.randrange(len(other_blocks))
    (a, a_end), (b, b_end) = blocks[i], other_blocks[j]
    return data[:a] + other[b:b_end] + data[a_end:]


# -- LMC --

WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
GET_FILE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)


class Mixed:
    """20 kinds of damage by a file and its donor. Each method gets a bytearray, which it may change, and returns the result. Kinds with 'forged'
    repair the CRCs of BLKS and of the index: then only comparisons with other data find the damage."""
    SECTOR, PAGE = 512, 4096

    def __init__(self, crc, rng, packed, donor):
        self.crc, self.rng, self.blocks, self.donor, self.donor_blocks = crc, rng, packed.blocks, donor.data, donor.blocks
        self.n_common = min(len(packed.blocks), len(donor.blocks))

    @classmethod
    def kinds(cls):
        return [name[4:].replace("_", " ") for name in vars(cls) if name.startswith("mix_")]

    def make(self, kind, data):
        return getattr(self, "mix_" + kind.replace(" ", "_"))(data)

    # blocks

    def put(self, data, pieces):
        """The file with some blocks replaced; pieces: number -> bytes."""
        out, at = bytearray(), 0
        for i in sorted(pieces):
            out += data[at:self.blocks[i][0]] + pieces[i]
            at = self.blocks[i][1]
        return out + data[at:]

    def block(self, data, i): return data[slice(*self.blocks[i])]

    def donor_block(self, i): return self.donor[slice(*self.donor_blocks[i])]

    def mix_block_of_the_donor(self, data):
        i = self.rng.randrange(self.n_common)
        return self.put(data, {i: self.donor_block(i)})

    def mix_blocks_of_the_donor(self, data):
        chosen = self.rng.sample(range(self.n_common), self.rng.randint(1, self.n_common))
        return self.put(data, {i: self.donor_block(i) for i in chosen})

    def mix_blocks_swapped(self, data):
        if len(self.blocks) < 2: return data
        i, j = self.rng.sample(range(len(self.blocks)), 2)
        return self.put(data, {i: self.block(data, j), j: self.block(data, i)})

    def mix_blocks_rotated(self, data):
        first = self.rng.randrange(len(self.blocks))
        n = self.rng.randint(1, len(self.blocks) - first)
        return self.put(data, {first + i: self.block(data, first + (i + 1) % n) for i in range(n)})

    def mix_spliced_at_a_block(self, data):
        i = self.rng.randrange(self.n_common)
        return data[:self.blocks[i][0]] + self.donor[self.donor_blocks[i][0]:]

    # sectors and pages

    def place(self, data, size): return self.rng.randrange((len(data) + size - 1) // size) * size

    def mix_spliced_at_a_sector(self, data):
        at = self.place(data, self.SECTOR)
        return data[:at] + self.donor[at:]

    def mix_pages_zeroed(self, data):
        for _ in range(self.rng.randint(1, 4)):
            at = self.place(data, self.PAGE)
            n = min(self.PAGE, len(data) - at)
            data[at:at + n] = bytes(n)
        return data

    def mix_pages_of_the_donor(self, data):
        for _ in range(self.rng.randint(1, 4)):
            at = self.place(data, self.PAGE)
            n = max(0, min(self.PAGE, len(data) - at, len(self.donor) - at))
            data[at:at + n] = self.donor[at:at + n]
        return data

    def mix_sectors_of_two_versions(self, data):
        share = self.rng.random()
        for at in range(0, min(len(data), len(self.donor)) - self.SECTOR, self.SECTOR):
            if self.rng.random() < share: data[at:at + self.SECTOR] = self.donor[at:at + self.SECTOR]
        return data

    def mix_sector_doubled(self, data):
        a, b = self.place(data, self.SECTOR), self.place(data, self.SECTOR)
        data[b:b + self.SECTOR] = data[a:a + self.SECTOR]
        return data

    def mix_sectors_swapped(self, data):
        a, b = sorted((self.place(data, self.SECTOR), self.place(data, self.SECTOR)))
        first, second = data[a:a + self.SECTOR], data[b:b + self.SECTOR]
        return data if a == b else data[:a] + second + data[a + self.SECTOR:b] + first + data[b + self.SECTOR:]

    def mix_sector_lost_or_inserted(self, data):
        at = self.place(data, self.SECTOR)
        if self.rng.random() < 0.5: return data[:at] + data[at + self.SECTOR:]
        return data[:at] + self.rng.randbytes(self.SECTOR) + data[at:]

    def mix_tail_zeroed(self, data):
        at = self.rng.randrange(len(data))
        return data[:at] + bytes(len(data) - at)

    def mix_bytes_moved(self, data):
        n = min(1 << self.rng.randint(0, 16), len(data) // 2)
        a = self.rng.randrange(len(data) - n)
        piece = data[a:a + n]
        rest = data[:a] + data[a + n:]
        b = self.rng.randrange(len(rest))
        return rest[:b] + piece + rest[b:]

    def mix_header_of_the_donor(self, data): return self.donor[:64] + data[64:]

    # the table of blocks and the index: spec 8

    @staticmethod
    def index_of(data):
        """The beginning and end of the index's body."""
        at, size = struct.unpack_from("<QQ", data, len(data) - 40)
        return at + 20, at + size

    @classmethod
    def rows_of(cls, data, n_blocks):
        """The beginning and end of BLKS's body."""
        end = cls.index_of(data)[0] - 20
        return end - 8 * n_blocks, end

    def repair(self, data):
        for start, end in self.rows_of(data, len(self.blocks)), self.index_of(data):
            struct.pack_into("<I", data, start - 4, self.crc(0, bytes(data[start:end]), end - start))
        return data

    def rows(self, data): return list(range(*self.rows_of(data, len(self.blocks)), 8))

    def fingerprints(self, data):
        """The place of the fingerprints of the only file: behind its section and its CRC."""
        at = self.index_of(data)[0] + 88 + 4
        while data[at] > 127: at += 1  # Stored_Size
        at, size, shift = at + 1, 0, 0
        while True:
            size, shift, at = size | (data[at] & 127) << shift, shift + 7, at + 1
            if data[at - 1] < 128: break
        at, n = at + size + 4, 1
        while data[at + 16 * n:at + 16 * n + 4] != b"RUN ": n += 1
        return [at + 16 * i for i in range(n)]

    def turn(self, data, places, size, n):
        """Rotates n neighbours among the fields at these places."""
        first = self.rng.randrange(len(places) - n + 1) if len(places) > n else 0
        chosen = places[first:first + n]
        fields = [data[p:p + size] for p in chosen]
        for p, field in zip(chosen, fields[1:] + fields[:1]): data[p:p + size] = field
        return self.repair(data)

    def mix_forged_rows_rotated(self, data):
        places = self.rows(data)
        return self.turn(data, places, 8, self.rng.randint(1, len(places)))

    def mix_forged_rows_swapped(self, data):
        places = self.rows(data)
        return self.turn(data, self.rng.sample(places, min(2, len(places))), 8, min(2, len(places)))

    def mix_forged_fingerprints_rotated(self, data):
        places = self.fingerprints(data)
        return self.turn(data, places, 16, self.rng.randint(1, len(places)))

    def mix_forged_blocks_of_the_donor(self, data):
        """Blocks of the donor, with right rows of BLKS; if sizes differ, only BLKS has the donor's."""
        places = self.rows(data)
        for i in self.rng.sample(range(self.n_common), self.rng.randint(1, self.n_common)):
            block = self.donor_block(i)
            data[places[i]:places[i] + 8] = struct.pack("<I", len(block)) + block[20:24]
            a, b = self.blocks[i]
            if b - a == len(block): data[a:b] = block
        return self.repair(data)

    def mix_index_of_the_donor(self, data):
        """The donor's index and BLKS, directly behind the blocks, with a matching trailer."""
        start, donor_start = self.rows_of(data, len(self.blocks))[0] - 20, self.rows_of(self.donor, len(self.donor_blocks))[0] - 20
        index, donor_end = self.index_of(self.donor)
        out = data[:start] + self.donor[donor_start:donor_end]
        trailer = bytearray(self.donor[donor_end:donor_end + 40])
        struct.pack_into("<QQQ", trailer, 0, start + index - 20 - donor_start, donor_end - index + 20, len(out) + 40)
        struct.pack_into("<I", trailer, 28, self.crc(0, bytes(trailer[:28]), 28))
        return out + trailer


class Source(ctypes.Structure):
    _fields_ = [("read_at", ctypes.c_void_p), ("user", ctypes.c_void_p), ("size", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 2)]


class Stream(ctypes.Structure):
    _fields_ = [("read", ctypes.c_void_p), ("user", ctypes.c_void_p), ("reserved", ctypes.c_uint64 * 2)]


class Memory(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("cap", ctypes.c_size_t), ("position", ctypes.c_size_t),
                ("allocator", ctypes.c_void_p)]


class Base(ctypes.Structure):
    _fields_ = [("n_files", ctypes.c_size_t), ("get_file", GET_FILE), ("read", READ), ("user", ctypes.c_void_p),
                ("reserved", ctypes.c_uint64 * 2)]


class RestoreOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("parallel", ctypes.c_void_p), ("max_index_size", ctypes.c_uint64),
                ("max_total_size", ctypes.c_uint64), ("done_size", ctypes.c_uint64),
                ("base", ctypes.POINTER(Base)), ("in_place", ctypes.c_int), ("check_hashes", ctypes.c_int),
                ("begin_file", ctypes.c_void_p), ("write", WRITE), ("write_at", ctypes.c_void_p), ("end_file", ctypes.c_void_p), ("read_back", READ),
                ("metadata", ctypes.c_void_p), ("progress", ctypes.c_void_p), ("user", ctypes.c_void_p), ("allocator", ctypes.c_void_p)]


class ReaderOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("max_index_size", ctypes.c_uint64), ("max_total_size", ctypes.c_uint64),
                ("parallel", ctypes.c_void_p), ("base", ctypes.POINTER(Base)),
                ("skip_fingerprints", ctypes.c_int), ("parallel_reads", ctypes.c_int), ("lender", ctypes.c_void_p), ("allocator", ctypes.c_void_p)]


class BlockInfo(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint32), ("width", ctypes.c_uint), ("size", ctypes.c_size_t), ("encoded_size", ctypes.c_size_t),
                ("crc", ctypes.c_uint32), ("is_stored", ctypes.c_int), ("has_prediction", ctypes.c_int), ("payload_crc", ctypes.c_uint32),
                ("reserved", ctypes.c_uint64 * 4)]


def load_library():
    c = ctypes.CDLL(os.path.join(ROOT, "build", "liblmc.so"))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
            ("lmc_memory_source", Source, [pointer]), ("lmc_memory_stream", Stream, [pointer]), ("lmc_reader_base", Base, [pointer]),
            ("lmc_snapshot_restore", ctypes.c_int, [pointer] * 3), ("lmc_reader_open", ctypes.c_int, [pointer] * 3),
            ("lmc_reader_free", None, [pointer]), ("lmc_reader_get_file", pointer, [pointer, size]),
            ("lmc_reader_read_file", ctypes.c_int, [pointer, size, ctypes.c_uint64, pointer, size]),
            ("lmc_crc32c", ctypes.c_uint32, [ctypes.c_uint32, ctypes.c_char_p, size]), ("lmc_block_parse", ctypes.c_int, [pointer, size, ctypes.c_uint32, pointer])):
        getattr(c, name).restype = result
        getattr(c, name).argtypes = arguments
    return c


class Packed:
    """An LMC file and what it restores to: the bytes of its files, one after another."""

    def __init__(self, name, path, base=None, other_base=None, donor=None):
        """donor: a path, of the same tensors at another step."""
        with open(path, "rb") as file:
            self.data = file.read()
        self.name, self.base, self.other_base, self.files = name, base, other_base, None
        self.donor = Packed(name, donor, base, other_base) if donor else None

    def find_blocks(self, c):
        """Finds the blocks; a header's CRC tells whether a block is there."""
        self.blocks, at, block = [], 0, 0
        view = ctypes.create_string_buffer(self.data, len(self.data))
        info = BlockInfo()
        while True:
            at = self.data.find(b"\xb2", at)
            if at < 0:
                return
            for number in (block, 0):
                if c.lmc_block_parse(ctypes.addressof(view) + at, len(self.data) - at, number, ctypes.byref(info)) == 0:
                    block = number + 1
                    self.blocks.append((at, at + info.encoded_size))
                    at += info.encoded_size - 1
                    break
            at += 1


class LMC:
    """LMC: restored as a stream, with all checks; or by the reader, which checks what it reads."""

    def __init__(self, all_packed, by_reader):
        self.c, self.all, self.by_reader = load_library(), all_packed, by_reader
        for packed in self.all + [p.donor for p in self.all]:
            packed.find_blocks(self.c)
        self.open = {}  # readers of bases, and their sources
        for packed in self.all + [p.donor for p in self.all]:
            status, packed.files, _ = self.restore(packed, bytearray(packed.data), None)
            assert status == 0, "%s: status %d before any damage" % (packed.name, status)

    def reader_of(self, data):
        memory = Memory(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), len(data), 0, None)
        source, reader = self.c.lmc_memory_source(ctypes.byref(memory)), ctypes.c_void_p()
        assert self.c.lmc_reader_open(ctypes.byref(reader), ctypes.byref(source), None) == 0
        return reader, (memory, source, data)

    def base_of(self, data):
        if id(data) not in self.open:
            reader, keep = self.reader_of(data)
            self.open[id(data)] = self.c.lmc_reader_base(reader), keep
        return self.open[id(data)][0]

    def liar(self, rng, data):
        """A base that claims the right fingerprint, but flips bits in every read, so that all used bytes are damaged."""
        true = self.base_of(data)

        def read(user, number, offset, dst, size):
            status = true.read(user, number, offset, dst, size)
            if status == 0:
                for _ in range(rng.randint(1, 8)):
                    bit = rng.randrange(size * 8)
                    ctypes.c_uint8.from_address(dst + (bit >> 3)).value ^= 1 << (bit & 7)
            return status
        base = Base(true.n_files, true.get_file, READ(read), true.user)
        return base

    def restore(self, packed, data, base):
        """Status, bytes, and whether wrong bytes were delivered."""
        got, wrong = bytearray(), False

        def write(user, source, size):
            nonlocal wrong
            at = len(got)
            got.extend(ctypes.string_at(source, size))
            if packed.files is not None and got[at:] != packed.files[at:at + size]:
                wrong = True
            return 0

        def read_back(user, number, offset, dst, size):  # of snapshots of one file
            if number or offset + size > len(got):
                return 14
            ctypes.memmove(dst, bytes(got[offset:offset + size]), size)
            return 0
        buffer = (ctypes.c_uint8 * max(1, len(data))).from_buffer(data if data else bytearray(1))
        memory = Memory(ctypes.addressof(buffer), len(data), len(data), 0, None)
        stream = self.c.lmc_memory_stream(ctypes.byref(memory))
        options = RestoreOptions(struct_size=ctypes.sizeof(RestoreOptions))
        options.write, options.read_back = WRITE(write), READ(read_back)
        if base is None and packed.base is not None:
            base = self.base_of(packed.base)
        if base is not None:
            options.base = ctypes.pointer(base)
        status = self.c.lmc_snapshot_restore(ctypes.byref(stream), None, ctypes.byref(options))
        return status, bytes(got), wrong

    def read(self, packed, data, base):
        """Status and bytes of the reader; None if the files are not the original ones."""
        buffer = (ctypes.c_uint8 * max(1, len(data))).from_buffer(data if data else bytearray(1))
        memory = Memory(ctypes.addressof(buffer), len(data), len(data), 0, None)
        source, reader, options = self.c.lmc_memory_source(ctypes.byref(memory)), ctypes.c_void_p(), ReaderOptions(ctypes.sizeof(ReaderOptions))
        if base is None and packed.base is not None:
            base = self.base_of(packed.base)
        if base is not None:
            options.base = ctypes.pointer(base)
        status = self.c.lmc_reader_open(ctypes.byref(reader), ctypes.byref(source), ctypes.byref(options))
        if status:
            return status, None
        got = ctypes.create_string_buffer(len(packed.files))
        if self.c.lmc_reader_get_file(reader, 0) and not self.c.lmc_reader_get_file(reader, 1):
            status = self.c.lmc_reader_read_file(reader, 0, 0, got, len(packed.files))
        else:
            status = 1
        self.c.lmc_reader_free(reader)
        return status, got.raw

    def kinds(self, number):
        packed = self.all[number]
        return ["bits", "truncated", "spliced", "swapped", "moved"] + Mixed.kinds() + (["wrong base"] if packed.base is not None else [])

    def trial(self, number, kind, seed):
        packed, rng, base = self.all[number], random.Random(seed), None
        data = bytearray(packed.data)
        others = [p for p in self.all if p is not packed]
        if kind == "bits": data = flip_bits(rng, data)
        elif kind == "truncated": data = truncate(rng, data)
        elif kind == "spliced": data = splice(rng, data, [p.data for p in others])
        elif kind == "swapped": data = swap(rng, data, packed.blocks)
        elif kind == "moved": data = move(rng, data, packed.blocks, [(p.data, p.blocks) for p in others if p.blocks])
        elif kind != "wrong base": data = Mixed(self.c.lmc_crc32c, rng, packed, packed.donor).make(kind, data)
        elif rng.random() < 0.5: base = self.base_of(packed.other_base)
        else: base = self.liar(rng, packed.base)
        data = bytearray(data)
        if self.by_reader:  # with the donor's index it may read the donor's files, completely and right
            status, got = self.read(packed, data, base)
            return "detected" if status else "harmless" if got in (packed.files, packed.donor.files) else "silent"
        status, got, wrong = self.restore(packed, data, base)
        if status: return "detected, late" if wrong else "detected"
        if data == packed.donor.data: return "harmless" if got == packed.donor.files else "silent"
        # it checks everything, so it must succeed only with the unchanged file (a base that is not read does not count)
        return "harmless" if got == packed.files and data == packed.data else "silent"


# -- others: a class each, with pack(array) and unpack(bytes); dtype and size are known --

class Zstd:
    def __init__(self, checksum):
        import zstandard
        self.c = zstandard.ZstdCompressor(level=3, write_checksum=checksum)
        self.d = zstandard.ZstdDecompressor()

    def pack(self, array, dtype): return self.c.compress(array.tobytes())

    def unpack(self, packed, dtype, size): return self.d.decompress(packed, max_output_size=size)


class Peer:
    def __init__(self, make, data):
        """data: list of (name, dtype, array)"""
        self.codec, self.data = make(), data
        self.packed = [bytes(self.codec.pack(array.copy(), dtype)) for _, dtype, array in data]

    def kinds(self, number): return ["bits", "truncated", "spliced", "swapped"]

    def trial(self, number, kind, seed):
        _, dtype, array = self.data[number]
        rng, data = random.Random(seed), bytearray(self.packed[number])
        if kind == "bits": data = flip_bits(rng, data)
        elif kind == "truncated": data = truncate(rng, data)
        elif kind == "spliced": data = splice(rng, data, [p for p in self.packed if p is not self.packed[number]])
        else: data = swap(rng, data, None)
        size = array.nbytes
        try:
            got = self.codec.unpack(bytes(data), dtype, size)
            got = got if isinstance(got, np.ndarray) else np.frombuffer(got, np.uint8)
            same = np.array_equal(np.ascontiguousarray(got).view(np.uint8).ravel(), array.view(np.uint8))
        except Exception:
            return "detected"
        return "harmless" if same else "silent"


# -- trials, in their own process --

def serve(make, connection):
    os.nice(5)
    sys.stderr = open(os.devnull, "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    subject = make()
    connection.send([subject.kinds(i) for i in range(len(getattr(subject, "all", getattr(subject, "data", ()))))])
    while True:
        request = connection.recv()
        if request is None: return
        connection.send(subject.trial(*request))


class Worker:
    RESTART = 300  # trials: some libraries keep what they allocate

    def __init__(self, make):
        self.make, self.process = make, None
        self.start()

    def start(self):
        self.stop()
        self.connection, child = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(self.make, child), daemon=True)
        self.process.start()
        child.close()
        self.kinds, self.done = self.connection.recv(), 0

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def trial(self, *request):
        if self.done >= self.RESTART: self.start()
        self.done += 1
        self.connection.send(request)
        if not self.connection.poll(20):
            self.start()
            return "hung"
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.start()
            return "crashed"


def choose(kinds, i, trials):
    """The file and the kind of trial i; kinds: for each file. Many trials go through all files, then to the next kind. Few trials, which would end
    before the last kind, go through all kinds, each with another file."""
    if trials >= sum(map(len, kinds)):
        number = i % len(kinds)
        return number, kinds[number][i // len(kinds) % len(kinds[number])]
    every = max(kinds, key=len)
    kind = every[i % len(every)]
    files = [number for number in range(len(kinds)) if kind in kinds[number]]
    return files[(i + i // len(every)) % len(files)], kind


def run(name, make, trials, seed, restart, state):
    worker = Worker(make)
    worker.RESTART = restart
    kept = state.kept.setdefault("%s, seed %d" % (name, seed), {"done": 0, "counts": {}, "examples": []})
    counts, examples = kept["counts"], kept["examples"]
    for i in range(kept["done"], trials):
        number, kind = choose(worker.kinds, i, trials)
        outcome = worker.trial(number, kind, seed + i)
        if outcome == "hung":  # a real hang repeats; the first time the machine may have stopped us
            outcome = worker.trial(number, kind, seed + i)
            if outcome != "hung": kept.setdefault("hung once", []).append("file %d, %s, seed %d" % (number, kind, seed + i))
        counts.setdefault(kind, dict.fromkeys(OUTCOMES, 0))[outcome] += 1
        if outcome in ("silent", "crashed", "hung") and len(examples) < 3: examples.append("%s: file %d, %s, seed %d" % (outcome, number, kind, seed + i))
        kept["done"] = i + 1
        if i % 256 == 255: state.save()
    worker.stop()
    state.save()
    for kind, count in counts.items():
        print("| %s | %s | %d | %s |" % (name, kind, sum(count.values()), " | ".join(str(count[o]) for o in OUTCOMES)))
    total = {o: sum(count[o] for count in counts.values()) for o in OUTCOMES}
    print("| **%s** | all | %d | %s |" % (name, sum(total.values()), " | ".join(str(total[o]) for o in OUTCOMES)), flush=True)
    for example in examples: print("%s: %s" % (name, example), file=sys.stderr)
    once = kept.get("hung once", [])
    if once: print("%s: %d hung once, and not when tried again: %s" % (name, len(once), "; ".join(once[:3])), file=sys.stderr)
    return total


class State:
    """The counts, stored in a file if one is given."""

    def __init__(self, path):
        self.path, self.kept = path, {}
        if path and os.path.exists(path):
            with open(path) as file: self.kept = json.load(file)

    def save(self):
        if not self.path: return
        with open(self.path + ".new", "w") as file: json.dump(self.kept, file)
        os.replace(self.path + ".new", self.path)


def pack_files(directory, scratch):
    """Returns the packed files, and the arrays for other codecs."""
    def pack(name, source, *options):
        path = os.path.join(scratch, name)
        subprocess.run([os.path.join(ROOT, "build", "lmc"), "-q", "-k", "-f", *options, "-o", path, source], check=True)
        return path

    def file(*parts): return os.path.join(directory, *parts)

    def content(path):
        with open(path, "rb") as stream: return stream.read()
    series = lambda step, name: file("series", "step-" + step, name)
    weights, other, far = (series(step, "model.bf16.safetensors") for step in ("001001", "001000", "002000"))
    master, moment = series("001001", "master.f32.safetensors"), series("001001", "exp_avg_sq.f32.safetensors")
    vision = file("models", "human_movenet-lightning.f16.safetensors"), file("models", "faceapi_ssd_mobilenetv1_model.u8.safetensors")
    base, wrong = content(pack("base.lmc", other)), content(pack("wrong.lmc", far))
    late = series("001950", "model.bf16.safetensors"), series("001951", "model.bf16.safetensors")
    late_base = content(pack("late-base.lmc", late[0]))
    def step(number, name, *options):
        """The same tensors at another step, packed in the same way."""
        return pack("donor-%s-%s%d.lmc" % (number, name, len(options)), series(number, name), *options)

    against, late_against = ("--base", os.path.join(scratch, "base.lmc")), ("--base", os.path.join(scratch, "late-base.lmc"))
    weights_name, master_name, moment_name = "model.bf16.safetensors", "master.f32.safetensors", "exp_avg_sq.f32.safetensors"
    packed = [
        ("BF16 weights", pack("bf16.lmc", weights), None, None, step("001000", weights_name)),
        ("F32 weights, level max", pack("f32.lmc", master, "--max"), None, None, step("001000", master_name, "--max")),
        ("F32 moments", pack("moments.lmc", moment), None, None, step("001000", moment_name)),
        ("F32 moments, 8 bits", pack("quantised.lmc", moment, "--quant", "*=bits:8"), None, None, step("001000", moment_name, "--quant", "*=bits:8")),
        ("F16 network", pack("f16.lmc", vision[0]), None, None, pack("f16-max.lmc", vision[0], "--max")),
        ("U8 network", pack("u8.lmc", vision[1]), None, None, pack("u8-max.lmc", vision[1], "--max")),
        ("BF16 delta, 57 % changed", pack("delta.lmc", weights, *against), base, wrong, step("001010", weights_name, *against)),
        ("BF16 delta, 1.5 % changed", pack("late.lmc", late[1], *late_against), late_base, wrong, step("002000", weights_name, *late_against)),
    ]
    import peers
    arrays = []
    for path in (weights, master, moment, vision[0]):
        dtype = peers.dtype_of(path)
        data = peers.read_tensors(path, peers.WIDTH[dtype])[:4 << 20]
        arrays.append((os.path.basename(path), dtype, np.ascontiguousarray(data).view(peers.UNSIGNED[peers.WIDTH[dtype]])))
    return [Packed(*p) for p in packed], arrays


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100000)
    parser.add_argument("--peer-trials", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--only", default="")
    parser.add_argument("--state", default="")
    parser.add_argument("directory", nargs="?", default=os.path.join(ROOT, "..", "shared", "data"))
    args = parser.parse_args()
    import peers
    multiprocessing.set_start_method("fork")
    scratch = tempfile.mkdtemp(prefix="corruption-")
    try:
        packed, arrays = pack_files(args.directory, scratch)
    finally:
        shutil.rmtree(scratch)
    print("| codec | damage | trials | %s |\n|---|---|---|%s" % (" | ".join(OUTCOMES), "---|" * len(OUTCOMES)), flush=True)
    failed, state = False, State(args.state)
    subjects = [("LMC, restored", lambda: LMC(packed, False), args.trials, 10 ** 9), ("LMC, read", lambda: LMC(packed, True), args.trials // 2, 10 ** 9)]
    for name, make, restart in (("zstd -3, library's default (no checksum)", lambda: Zstd(False), 10 ** 9), ("zstd -3, with checksum", lambda: Zstd(True), 10 ** 9),
                                ("ZipNN", lambda: peers.Zipnn(1), 100), ("OpenZL, huffman (checksums by default)", lambda: peers.OpenZL("Huffman"), 2000)):
        subjects.append((name, lambda make=make: Peer(make, arrays), args.peer_trials, restart))
    for name, make, trials, restart in subjects:
        if args.only and args.only not in name: continue
        try:
            total = run(name, make, trials, args.seed, restart, state)
        except (EOFError, ImportError):
            print("%s: not installed, or does not start" % name, file=sys.stderr)
            failed |= name.startswith("LMC")
            continue
        failed |= name.startswith("LMC") and (total["silent"] + total["crashed"] + total["hung"] > 0 or not total["detected"])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
