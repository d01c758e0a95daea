#!/usr/bin/env python3
"""Prints every field of an LMC file, front to back: offset, bytes, name as in lmc-format.md, value. Plain Python 3.9+; needs lmc_decode.py beside it.

Usage: dump.py [--headers] FILE.lmc     - is standard input
--headers     skip the payloads of blocks without checking them: for large files (lmc -t checks them faster)

No base is needed. Payloads, and more than 1024 bytes in a row, are only counted, never kept in memory; lmc_decode.py decodes payloads. A line with !!
says what is wrong at that offset, or what belongs to a newer version; the dump goes on while it can tell what follows. It checks the CRCs of the
header, the trailer, sections and headers of blocks; of a payload its Payload_CRC, if the block has a prediction, and its Content_CRC, if the block is
stored. It does not decode other payloads, so it cannot check them. lmc -t checks everything.

Exit codes, by the first line with !!: 0 none, 1 of a newer version (or an I/O error), 3 damaged; 2 usage. SPDX-License-Identifier: MIT
"""
import array
import math
import os
import struct
import sys

import lmc_decode as lmc

MOST_BYTES = 1024                              # in a row; more are only counted
PIECE = 1 << 16
MAX_BLOCK_SIZE = 1 << 22
NEWER, DAMAGED = 1, 3                          # exit codes


class BodyLost(Exception):
    """The rest of this body cannot be parsed."""


class FileLost(Exception):
    """The rest of the file cannot be parsed."""


def printable(data):
    """Text, with escapes for characters that control a terminal or are invisible."""
    return "".join(c if c.isprintable() else "\\x%02X" % (ord(c) & 255) if c < "\x80" or "\uDC80" <= c <= "\uDCFF" else "\\u{%04X}" % ord(c)
                   for c in data.decode("utf-8", "surrogateescape"))


class Dump:
    def __init__(self, stream, write, headers_only=False):
        self.stream, self.write, self.headers_only = stream, write, headers_only
        self.at, self.left, self.crc = 0, math.inf, 0                           # left: bytes of the current body
        self.is_quiet = False                  # fields are read, but not printed
        self.code, self.fault_at, self.fault_text = 0, 0, ""                    # by the first fault
        self.files = array.array("Q")          # for each file of a FILE body: N_Tensors, and the highest bit if its size is Unknown
        self.n_blocks = 0                      # of the last RUN body

    # -- lines --

    def heading(self, text):
        self.write("      -- %s --\n" % text)

    def print_field(self, offset, name, data, value=None):
        """value: shown behind the name; None: the bytes as text, if they are text."""
        if self.is_quiet:
            return
        if value is None and data and all(byte >= 32 and byte != 127 for byte in data):
            value = '"%s"' % printable(data)
        for at in range(0, len(data), 16):
            line = "%04X  %-47s" % (offset + at, data[at:at + 16].hex(" ").upper())
            self.write((line.rstrip() if at else line + "  " + name + (" " + value if value else "")) + "\n")

    def print_count(self, offset, name, size):
        if size and not self.is_quiet:
            self.write("%04X  %-47s  %s\n" % (offset, "(%d bytes)" % size, name))

    def fault(self, code, at, text):
        """Prints a line with !!; the first one may cause the others."""
        if self.is_quiet:
            return                             # a copy: it was printed for the original
        self.write("%04X  !! %s\n" % (at, text))
        if not self.code:
            self.code, self.fault_at, self.fault_text = code, at, text

    def lose_file(self, code, at, text):
        self.is_quiet = False
        self.fault(code, at, text)
        raise FileLost

    def lose_body(self, code, at, text):
        self.fault(code, at, text)
        raise BodyLost

    def check_crc(self, at, name, stored, crc):
        if stored != crc:
            if self.code == NEWER:
                self.code = 0                  # not a newer version: the CRC proves it
            self.fault(DAMAGED, at, "%s should be %s" % (name, struct.pack("<I", crc).hex(" ").upper()))

    # -- bytes --

    def read(self, size):
        data = self.stream.read(size)
        self.crc = lmc.crc32c(data, self.crc)
        self.at += len(data)
        self.left -= len(data)
        return data

    def next_byte(self):
        """Returns the next byte without reading it; b"": the end."""
        return self.stream.peek(1)[:1]

    def skip(self, name, size):
        """Counts bytes without printing them."""
        start = self.at
        while self.at - start < size:
            if not self.read(min(size - (self.at - start), PIECE)):
                self.print_count(start, name, self.at - start)
                self.lose_file(DAMAGED, self.at, "the file ends here, within %s" % name)
        self.print_count(start, name, size)

    def skip_payload(self, size):
        """Skips a payload, by seeking if its CRC is not needed."""
        if not (self.headers_only and self.stream.seekable()):
            self.skip("Payload", size)
            return
        start = self.stream.tell()             # standard input may begin in the middle of a file
        n = min(size, max(self.stream.seek(0, os.SEEK_END) - start, 0))
        self.stream.seek(start + n)
        self.print_count(self.at, "Payload", n)
        self.at += n
        if n < size:
            self.lose_file(DAMAGED, self.at, "the file ends here, within Payload")

    def take(self, name, size):
        """Reads a field without printing it."""
        start, data = self.at, self.read(min(size, self.left))
        if len(data) < size:
            self.print_field(start, name, data)
            if self.left > 0:
                self.lose_file(DAMAGED, self.at, "the file ends here")
            self.lose_body(DAMAGED, start, "the body ends within %s" % name)
        return data

    def bytes(self, name, size):
        """Reads and prints a field of bytes; returns None if there are many."""
        start = self.at
        if min(size, self.left) > MOST_BYTES:
            self.skip(name, min(size, self.left))
            if self.at - start < size:
                self.lose_body(DAMAGED, self.at, "the body ends within %s" % name)
            return None
        data = self.take(name, size)
        self.print_field(start, name, data)
        return data

    def take_varint(self, name):
        start, data = self.at, b""
        while not data or (data[-1] & 128 and len(data) < 10):
            data += self.take(name, 1)
        if data[9:] > b"\1" or (len(data) > 1 and data[-1] == 0):
            self.fault(DAMAGED, start, "%s is not a varint in the shortest form below 2^64" % name)
        return data, sum((byte & 127) << 7 * i for i, byte in enumerate(data)) & (1 << 64) - 1

    def fields(self, layout):
        """Reads and prints fields "Name:kind Name:kind"; returns their values. kind is 1, 2, 4 or 8: a number of so many bytes; v: a varint; s: a
        signed number of 8 bytes; d: a Dtype; c: a CRC; x and a number: so many bytes."""
        values = []
        for name, kind in (field.split(":") for field in layout.split()):
            start, text = self.at, ""
            if kind == "v":
                data, value = self.take_varint(name)
                text = str(value)
            elif kind[0] == "x":
                data = value = self.take(name, int(kind[1:]))
            else:
                data = self.take(name, {"s": 8, "c": 4, "d": 1}.get(kind) or int(kind))
                value = int.from_bytes(data, "little", signed=kind == "s")
                text = "" if kind == "c" else str(value)
                if kind == "d" and 0 < value < len(lmc.DTYPES):
                    text += " (%s)" % lmc.DTYPES[value].decode()
            self.print_field(start, name, data, text)
            values.append(value)
        return values

    def field(self, layout):
        return self.fields(layout)[0]

    # -- 4.1 FILE --

    def form(self, known):
        form = self.field("Form:1")
        if form & ~known:
            self.lose_body(NEWER, self.at - 1, "Form has a bit that is unknown: of a newer version")
        return form

    def layout_of_tensor(self):
        dtype = self.field("Dtype:d")
        if dtype >= len(lmc.DTYPES):
            self.lose_body(NEWER, self.at - 1, "Dtype is unknown: of a newer version")
        if dtype == 0:
            self.bytes("Dtype_String", self.field("Dtype_Size:1"))
        rank = self.field("Rank:1")
        if rank > lmc.MAX_RANK:
            self.lose_body(DAMAGED, self.at - 1, "Rank is more than 32")
        self.fields("Shape:v " * rank)
        if dtype == 0:
            self.field("Size:v")

    def tensor(self):
        form = self.form(lmc.IS_LIKE | lmc.HAS_GAP | lmc.HAS_LOSS)
        if self.field("Back:v"):
            self.fields("Prefix:1 Suffix:1")
        self.bytes("Middle", self.field("Middle_Size:v"))
        if form & lmc.HAS_GAP:
            self.field("Gap:v")
        if not form & lmc.IS_LIKE:
            self.layout_of_tensor()
        if form & lmc.HAS_LOSS:
            self.fields("Generation:1 Measure:1 Error:4")

    def file(self):
        form, n_tensors = self.form(lmc.IS_DIRECTORY | lmc.HAS_MODE | lmc.HAS_MTIME | lmc.IS_UNKNOWN), 0
        has_size = not form & (lmc.IS_DIRECTORY | lmc.IS_UNKNOWN)
        self.bytes("Path_Rest", self.fields("Path_Prefix:1 Path_Rest_Size:v")[1])
        self.fields(" ".join(["File_Size:v"] * has_size + ["Mode:v"] * bool(form & lmc.HAS_MODE)
                             + ["Mtime_Seconds:s Mtime_Nanoseconds:4"] * bool(form & lmc.HAS_MTIME)))
        if has_size:
            n_tensors = self.field("N_Tensors:v")
        if self.is_quiet:
            self.files.append(min(n_tensors, lmc.MAX_SIZE) | bool(form & lmc.IS_UNKNOWN) << 63)
        while n_tensors:
            self.tensor()
            n_tensors -= 1

    def file_body(self):
        n = self.field("N_Files:v")
        while n:
            self.file()
            n -= 1

    # -- 4.2 RUN --

    def run_body(self):
        self.n_blocks = math.inf               # not known
        run_size, block_size, prediction = self.fields("Run_Size:v Block_Size:v Prediction:1")
        if block_size in lmc.BLOCK_SIZES and run_size:
            self.n_blocks = (run_size - 1) // block_size + 1
        else:
            self.fault(DAMAGED, self.at, "Run_Size or Block_Size is out of range")
        if prediction > lmc.OWN_F16:
            self.lose_body(NEWER, self.at - 1, "Prediction is unknown: of a newer version")
        n = self.field("N_Segments:v") if prediction else 0
        while n:
            _, reference = self.fields("Size:v Reference:v")
            if reference and reference - 1 & 1:
                self.field("Offset:v")
            n -= 1

    # -- 5 --

    def block(self, number):
        self.heading("block")
        self.crc, start = lmc.crc32c(struct.pack("<I", number & 0xFFFFFFFF)), self.at
        _, width, coding, _, n, size, content_crc, payload_crc = self.fields(
            "Sync:x1 Width:1 Coding:1 Grouping:1 N_Elements:4 Payload_Size:4 Content_CRC:c Payload_CRC:c")
        crc = self.crc
        self.check_crc(start + 20, "Header_CRC", self.field("Header_CRC:c"), crc)
        if width not in (1, 2, 4, 8) or coding >> 5 > lmc.CODES or coding & 0x18 or coding & 3 > lmc.SIGN_MAGNITUDE:
            self.fault(NEWER, start + 1, "Width or Coding is unknown: of a newer version")
        if n < 1 or n * width > MAX_BLOCK_SIZE or size > MAX_BLOCK_SIZE:
            self.fault(DAMAGED, start + 4, "N_Elements or Payload_Size is out of range")
        self.crc = 0
        self.skip_payload(size)
        if self.headers_only:
            return
        if coding & 4:
            self.check_crc(start + 16, "Payload_CRC", payload_crc, self.crc)
        elif coding >> 5 == lmc.STORED:
            self.check_crc(start + 12, "Content_CRC", content_crc, self.crc)

    def blocks(self):
        """Sync is no letter, so blocks differ from sections even if the run's body is damaged."""
        n = 0
        while n < self.n_blocks and self.next_byte() == bytes([lmc.SYNC]):
            self.block(n)
            n += 1
        if n < self.n_blocks < math.inf:
            self.fault(DAMAGED, self.at, "a block is missing: the run has %d, and this is number %d" % (self.n_blocks, n))

    # -- 8: BLKS and INDX --

    def table_body(self):
        while self.left >= lmc.ROW.size:
            self.fields("Size:4 Header_CRC:c")

    def copy(self, kind):
        """The copy of a body in the index: its bytes are counted, and its facts are kept."""
        start, size = self.at, self.field("Body_Size:v")
        if size > self.left:
            self.lose_body(DAMAGED, start, "Body_Size is more than the index has")
        outside, self.left, self.is_quiet = self.left - size, size, True
        try:
            if kind == b"FILE":
                self.file_body()
        except BodyLost:
            pass
        self.skip("Body", self.left)
        self.left, self.is_quiet = outside, False
        self.print_count(self.at - size, "Body", size)

    def entry(self):
        self.files = array.array("Q")
        kind = self.bytes("Kind", 4)
        self.field("Stored_Size:v")
        if not lmc.is_ancillary(kind):
            self.copy(kind)
        for file in self.files:
            self.fields("File_Size:8 File_CRC:c" if file >> 63 else "File_CRC:c")
            n = file & lmc.MAX_SIZE or 1
            while n:
                self.field("Fingerprint:x16")
                n -= 1

    def index_body(self):
        _, _, n_sections, n_metadata = self.fields("Header:x64 Snapshot_Fingerprint:x16 N_Sections:4 N_Metadata:4")
        for _ in range(n_sections):
            self.entry()
        for _ in range(n_metadata):
            key_size, value_size = self.fields("Key_Size:4 Value_Size:4")
            self.bytes("Key", key_size)
            self.bytes("Value", value_size)

    # -- 4. Sections --

    def records(self):
        last = -1
        while self.left:
            start, (tag, size) = self.at, self.fields("Tag:v Size:v")
            self.bytes("Record", size)
            if tag <= last:
                self.fault(DAMAGED, start, "Tags do not ascend")
            if tag & 1:
                self.fault(NEWER, start, "Tag %d is unknown: of a newer version" % tag)
            last = tag

    BODIES = {b"FILE": file_body, b"RUN ": run_body, b"BLKS": table_body, b"INDX": index_body}

    def body(self, kind, size):
        self.crc, self.left = 0, size
        self.heading("body of %s" % kind.decode().rstrip() if kind in self.BODIES else "body")
        try:
            if kind in self.BODIES:
                self.BODIES[kind](self)
                if kind != b"BLKS":
                    self.records()
            else:
                self.bytes("Body", size)
        except BodyLost:
            pass
        self.skip("the rest of the body", self.left)
        self.left = math.inf

    def section(self):
        """Dumps a section; returns its Kind."""
        self.heading("section")
        start, self.crc = self.at, 0
        kind, size = self.bytes("Kind", 4), self.field("Body_Size:8")
        crc = self.crc
        head_crc, body_crc = self.fields("Head_CRC:c Body_CRC:c")
        self.check_crc(start + 12, "Head_CRC", head_crc, crc)
        if not lmc.KIND.fullmatch(kind) or size > lmc.MAX_BODY_SIZE:
            self.lose_file(DAMAGED, start, "this is not a section; what follows is not read")
        if kind not in self.BODIES and not lmc.is_ancillary(kind):
            self.lose_file(NEWER, start, "the section %s is unknown: of a newer version; what follows is not read" % kind.decode())
        self.body(kind, size)
        self.check_crc(start + 16, "Body_CRC", body_crc, self.crc)
        if kind == b"RUN ":
            self.blocks()
        return kind

    # -- 3. Header and trailer --

    def other_version(self, minor):
        """A file whose header would be right with our Format_Major is damaged, not of another version."""
        self.is_quiet = True
        header = lmc.MAGIC + bytes([lmc.FORMAT_MAJOR, minor]) + self.take("the header", lmc.HEADER_SIZE - 10)
        try:
            lmc.read_header(header, lmc.Snapshot())
        except lmc.LmcError:
            self.lose_file(NEWER, 8, "Format_Major is not 1: of another version")
        self.lose_file(DAMAGED, 8, "Format_Major is not 1, but was, as Header_CRC tells")

    def header(self):
        self.heading("header")
        magic = self.field("Magic:x8")
        if magic != lmc.MAGIC:
            self.lose_file(DAMAGED, 0, "this is no LMC file")
        major, minor = self.fields("Format_Major:1 Format_Minor:1")
        if major != lmc.FORMAT_MAJOR:
            self.other_version(minor)
        algorithm, zeros, incompatible, _, _, more_zeros = self.fields(
            "Algorithm:1 Reserved:x5 Incompatible:8 Compatible:8 Base_Fingerprint:x16 Reserved:x12")
        crc = self.crc
        self.check_crc(60, "Header_CRC", self.field("Header_CRC:c"), crc)
        for bit in range(64):
            if incompatible & ~lmc.ALL_BITS & 1 << bit:
                self.fault(NEWER, 16, "Incompatible bit %d is unknown: %s" % (bit, "of a newer version" if bit < 48 else "an experiment"))
        if algorithm != 1 or any(zeros + more_zeros):
            self.fault(NEWER, 10, "Algorithm or Reserved is of a newer version")

    def trailer(self):
        self.heading("trailer")
        start, self.crc = self.at, 0
        index_offset, index_size, total_size, major, _, reserved = self.fields(
            "Index_Offset:8 Index_Size:8 Total_Size:8 Format_Major:1 Format_Minor:1 Reserved:2")
        crc = self.crc
        self.check_crc(start + 28, "Trailer_CRC", self.field("Trailer_CRC:c"), crc)
        if major != lmc.FORMAT_MAJOR or reserved:
            self.fault(NEWER, start + 24, "the trailer is of another version")
        if self.field("End_Magic:x8") != lmc.END_MAGIC:
            self.fault(DAMAGED, start + 32, "End_Magic is wrong")
        if index_offset + index_size != start or total_size != self.at:
            self.fault(DAMAGED, start, "the trailer does not say where the index and the file end")
        if self.next_byte():
            self.fault(DAMAGED, self.at, "bytes follow the end of the snapshot; they are not read")

    def all(self):
        """Dumps the file; returns the exit code."""
        try:
            self.header()
            while self.section() != b"INDX":
                if self.next_byte() in (b"", bytes([lmc.SYNC])):
                    self.lose_file(DAMAGED, self.at, "a block that belongs to no run; what follows is not read" if self.next_byte()
                                   else "the file ends here, without an index")
            self.trailer()
        except FileLost:
            pass
        return self.code


def main(arguments):
    headers_only = arguments[:1] == ["--headers"]
    if len(arguments) != 1 + headers_only or (arguments[-1][:1] == "-" and arguments[-1] != "-"):
        print(__doc__, file=sys.stderr)
        return 2
    path = arguments[-1]
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as stream:
            dump = Dump(stream, sys.stdout.write, headers_only)
            code = dump.all()
        sys.stdout.flush()
    except BrokenPipeError:                    # the reader has ended ("dump.py x.lmc | head"), which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print("dump: %s" % error, file=sys.stderr)
        return 1
    if code:
        print("dump: %s: at byte %d: %s" % ("standard input" if path == "-" else printable(os.fsencode(path)), dump.fault_at, dump.fault_text),
              file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
