"""A range reader (lmc-format.md, section 8). SPDX-License-Identifier: MIT"""
import bisect
import os

from lmc_decode import (ALL_BITS, FINGERPRINT_SIZE, HEADER_SIZE, ROW, SECTION_HEADER_SIZE, TENSOR, TRAILER_SIZE, Cursor, Input, LmcError, Snapshot,
                        Sums, fingerprint_of, is_ancillary, place_section, read_block, read_file_body, read_header,
                        read_metadata, read_run_body, read_section, read_trailer, require, set_items)

KEPT_BLOCKS = 16
WORK_FACTOR, WORK_START = 64, 1 << 22          # R9-5


class Reader(Snapshot):
    """Reads parts of a file by its index. stream must be seekable, and stays open. bases: paths; without any, only bytes that do not depend on the
    base can be read (R7-8)."""

    def __init__(self, stream, bases=(), bits=ALL_BITS, limit=None):
        super().__init__(bits=bits, limit=limit)
        self.stream, self.kept, self.status_of_wrong_reference = stream, {}, "BASE_WRONG"
        try:
            header = Input(stream, 0).read_up_to(HEADER_SIZE)
            read_header(header, self)
            if self.base_fingerprint and bases:
                import bases as of_callers
                self.base = of_callers.find_base(self, bases, stream, True)
            self.read_index(header)
        except (MemoryError, RecursionError):
            raise LmcError("LIMIT", "out of memory") from None
        self.chain, self.work = 1 + getattr(self.base, "chain", 0), None

    def read_index(self, header):
        size = self.stream.seek(0, os.SEEK_END)
        require(size >= HEADER_SIZE + TRAILER_SIZE, "the input ends early (R3-15)", "TRUNCATED")
        index_offset, index_size, total_size = read_trailer(Input(self.stream, size - TRAILER_SIZE).read(TRAILER_SIZE), "TRUNCATED")
        require(total_size <= size, "the input is smaller than Total_Size (R3-22)", "TRUNCATED")
        require(total_size == size == index_offset + index_size + TRAILER_SIZE, "trailer disagrees with the file (R3-21, R3-22)")
        source, outside = Input(self.stream, index_offset), Snapshot()
        outside.files, outside.has_blks = [None], True                          # so an INDX may come, and nothing else
        _, body = read_section(source, outside)
        require(source.at == index_offset + index_size, "Index_Size (R3-21)")
        body = Cursor(body, "index")
        require(body.take(HEADER_SIZE) == header, "index: copy of the header (R8-3)")
        fingerprint, n_sections, n_metadata = body.fields("16sII")
        at = HEADER_SIZE
        for _ in range(body.count(n_sections, 5, "N_Sections")):
            at += self.read_entry(body, at)
        place_section(b"BLKS", self)           # R8-7
        self.blks_at = at + SECTION_HEADER_SIZE
        require(self.blks_at + ROW.size * self.n_blocks == index_offset, "index: the sections do not reach to it (R8-6)")
        read_metadata(body, n_metadata, self)
        set_items(self)
        require(fingerprint == self.fingerprint, "index: Snapshot_Fingerprint (R8-4)")

    def read_entry(self, body, at):
        """Reads an entry; returns Stored_Size. at: the section's beginning."""
        kind, stored_size = body.take(4), body.varint()
        place_section(kind, self)
        require(kind != b"BLKS", "index: an entry of BLKS (R8-7)")
        if is_ancillary(kind):
            require(SECTION_HEADER_SIZE <= stored_size, "index: Stored_Size (R8-8)")
            return stored_size
        body_size = body.varint()
        part = Cursor(body.take(body_size), "%s body in the index" % kind.decode())
        if kind == b"RUN ":
            run = read_run_body(part, self)
            run.at, run.stored_size = at + SECTION_HEADER_SIZE + body_size, stored_size - SECTION_HEADER_SIZE - body_size
            return stored_size
        require(stored_size == SECTION_HEADER_SIZE + body_size, "index: Stored_Size (R8-8)")
        for file in read_file_body(part, self):
            file.size_in_index = body.fields("Q")[0] if file.unknown else None
            file.crc, = body.fields("I")
            for tensor in file.tensors or [file.whole]:
                tensor.fingerprint = body.take(FINGERPRINT_SIZE)
            if file.whole:
                file.fingerprint, file.whole.size = file.whole.fingerprint, file.size_in_index if file.unknown else file.size
        return stored_size

    def read(self, file, offset, size):
        """Reads bytes of a file, for a caller."""
        if not 0 <= offset <= offset + size <= file.size:
            raise ValueError("not within the file")
        reader, work = self, [WORK_FACTOR * (size + WORK_START) * self.chain]   # bytes that may be decoded, for the whole chain
        while isinstance(reader, Reader):
            reader.work, reader = work, reader.base
        try:
            return self.read_file(file, offset, size)
        except (MemoryError, RecursionError):
            raise LmcError("LIMIT", "out of memory") from None

    def read_file(self, file, offset, size):
        at, end, made = file.start + offset, file.start + offset + size, bytearray()
        while at < end:
            run = self.runs[bisect.bisect_right(self.run_ends, at)]
            number, first = divmod(at - run.start, run.block_size)
            piece = self.read_block(run, number)[first:first + end - at]
            made += piece
            at += len(piece)
        return made

    def read_block(self, run, number):
        key = run.start, number
        if key in self.kept:
            self.kept[key] = self.kept.pop(key)                                 # it is now the most recent one
            return self.kept[key]
        self.work[0] -= run.block_size_of(number)
        require(self.work[0] >= 0, "what segments refer to takes too long to decode (R9-5)", "LIMIT")
        if run.places is None:
            self.read_rows(run)
        row, place = run.places[number]
        real, data = read_block(Input(self.stream, place), self, run, number)
        require(real == row, "a block is not that of its row in BLKS (R8-2)")
        self.kept[key] = data
        if len(self.kept) > KEPT_BLOCKS:
            del self.kept[next(iter(self.kept))]
        return data

    def read_rows(self, run):
        rows = Input(self.stream, self.blks_at + ROW.size * run.first_block).read(ROW.size * run.n_blocks)
        places, at = [], run.at
        for size, header_crc in ROW.iter_unpack(rows):
            places.append((ROW.pack(size, header_crc), at))
            at += size
        require(at == run.at + run.stored_size, "index: Stored_Size of a run (R8-8)")
        run.places = places

    def find(self, name, path=None):
        """Pairs of file and tensor of that name."""
        return [(file, tensor) for file in self.files for tensor in file.tensors if tensor.name == name and path in (None, file.path)]

    def read_tensor(self, file, tensor):
        data = self.read(file, tensor.offset, tensor.size)
        sums = Sums()
        sums.add(data)
        require(fingerprint_of(tensor, TENSOR, tensor.shape, tensor.size, sums) == tensor.fingerprint, "index: fingerprint (R8-11)")
        return bytes(data)


def read_tensor(stream, name, bases=(), path=None, **how):
    """The bytes of the first tensor of that name (of the file of that path), by ranges of stream. KeyError if there is none."""
    reader = Reader(stream, bases, **how)
    for file, tensor in reader.find(name, path):
        return reader.read_tensor(file, tensor)
    raise KeyError(name)
