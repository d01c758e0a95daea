"""Bases that are no LMC files (foreign-bases.md). SPDX-License-Identifier: MIT"""
import os
import re

import ranges
from lmc_decode import (DIRECTORY, DTYPE_BITS, MAX_DTYPE_SIZE, MAX_NAME_SIZE, MAX_RANK, MAX_SIZE, REGULAR, File, LmcError, Snapshot, Tensor,
                        add_to_file, finish_file, require, set_items, size_of)


def find(path, wanted, cache, snapshot, stream):
    """A file, or the files and directories below a directory, as a Snapshot with the wanted fingerprint; None if it has another. snapshot, stream:
    the snapshot that needs the base, and its LMC file. cache: earlier results, by path."""
    if path not in cache:
        cache[path] = [list_files(os.fsencode(path)), {}]
    files, made = cache[path]
    tables, error = read_tables(snapshot, stream)
    found = tables and lay_out(files, tables)                                   # F-1
    if found and found.fingerprint == wanted:
        return found
    for find_tensors in (find_safetensors, find_nothing):                       # F-2, F-19
        found = made.get(find_tensors)
        if not found:
            found = made[find_tensors] = make_snapshot((path, kind, data, find_tensors(data)) for path, kind, data, is_link in files if not is_link)
        if found.fingerprint == wanted:
            return found
    if error:                                  # the LMC file is damaged: so it is not known whether this is its base
        raise error
    return None


def read_tables(snapshot, stream):
    """A Snapshot with the files of the LMC file in stream, from its index, and None; or None and the error."""
    if not stream.seekable():
        return None, None
    at = stream.tell()
    try:
        return ranges.Reader(stream, bits=snapshot.bits), None
    except LmcError as error:
        return None, error
    finally:
        stream.seek(at)


def list_files(path):
    """Path, kind and bytes of each, and whether it is a symbolic link to such a file (F-3, F-6)."""
    def load(full):
        with open(full, "rb") as stream:
            return stream.read()

    if not os.path.isdir(path):
        return [(b"", REGULAR, load(path), False)]
    files = []
    for folder, _, names in os.walk(path):
        if folder != path:
            files.append((folder, DIRECTORY, b"", False))
        files += [(full, REGULAR, load(full), os.path.islink(full)) for full in (os.path.join(folder, name) for name in names)
                  if os.path.isfile(full)]
    return [(os.path.relpath(full, path).replace(os.fsencode(os.sep), b"/"), *rest) for full, *rest in files] or [(b"", DIRECTORY, b"", False)]


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
    set_items(snapshot)
    return snapshot


def lay_out(files, tables):
    """The snapshot of these files with the tensors of tables, if the files are the same."""
    left, found, parents = {path: (kind, data) for path, kind, data, _ in files}, [], {path for path, _, _, is_link in files if is_link}
    for file in tables.files:
        kind, data = left.pop(file.path, (None, b""))
        if (kind, len(data)) != (file.kind, file.size):
            return None
        found.append((file.path, kind, data, [Tensor(t.name, t.dtype, t.shape, t.offset, t.size) for t in file.tensors]))
        parts = file.path.split(b"/")
        parents.update(b"/".join(parts[:i]) for i in range(1, len(parts)))      # F-3
    return make_snapshot(found) if left.keys() <= parents else None


# ---- Safetensors files ----

MAX_JSON_SIZE = 100000000
MAX_JSON_DEPTH = 64


class Number(str):
    """A number of JSON, as its text."""

    def whole(self):
        require(re.fullmatch("0|[1-9][0-9]*", self) and len(self) <= 19 and int(self) <= MAX_SIZE, "no whole number below 2^63 (F-16)")
        return int(self)


class Json:
    """Reads JSON (RFC 8259) from text; raises LmcError for anything else."""
    SPACE = re.compile(r"[ \t\n\r]*")
    NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
    PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
    ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u(?![dD][89a-fA-F])([0-9a-fA-F]{4}))')
    LONE = re.compile(r"\\u[0-9a-fA-F]{4}")
    SHORT = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t'))

    def __init__(self, text):
        self.text, self.at = text, 0

    def skip(self, token):
        """Whether the token comes next; if so, skips it and the white space behind it."""
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
        require(number, "no JSON value (F-11)")
        self.skip("")
        return Number(number.group())

    def members(self, depth):
        require(depth <= MAX_JSON_DEPTH, "JSON is nested too deep (F-12)")
        found = {}
        if self.skip("}"):
            return found
        while True:
            key = self.string()
            require(key not in found, "a key twice (F-14)")
            require(self.skip(":"), "no colon (F-11)")
            found[key] = self.value(depth + 1)
            if self.skip("}"):
                return found
            require(self.skip(","), "no comma (F-11)")

    def elements(self, depth):
        require(depth <= MAX_JSON_DEPTH, "JSON is nested too deep (F-12)")
        found = []
        if self.skip("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            if self.skip("]"):
                return found
            require(self.skip(","), "no comma (F-11)")

    def string(self):
        require(self.text.startswith('"', self.at), "no string (F-11)")
        self.at += 1
        pieces = []
        while True:
            pieces.append(self.match(self.PLAIN).group())
            if self.skip('"'):
                return "".join(pieces)
            escape = self.match(self.ESCAPE)
            require(escape, "a lone surrogate (F-13)" if self.text[self.at:self.at + 2] == "\\u" and self.LONE.match(self.text, self.at) else "no character or escape of a string (F-11)")
            short, high, low, unit = escape.groups()
            if short:
                pieces.append(self.SHORT[short])
            elif unit:
                pieces.append(chr(int(unit, 16)))
            else:
                pieces.append(chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00))


def find_nothing(data):
    """A file as plain bytes."""
    return []


def find_safetensors(data):
    """The tensors if data is a safetensors file."""
    try:
        return read_safetensors(data)
    except LmcError:
        return []                              # plain bytes


def read_safetensors(data):
    """Reads the u64 size of the JSON, the JSON, the tensors without gaps."""
    size = int.from_bytes(data[:8], "little")
    require(len(data) >= 8 and size <= min(len(data) - 8, MAX_JSON_SIZE), "N (F-9)")
    try:
        json_reader = Json(bytes(data[8:8 + size]).decode("utf-8"))
    except UnicodeDecodeError:
        raise LmcError("CORRUPT", "no UTF-8 (F-10)") from None
    require(json_reader.text.startswith("{"), "no JSON object (F-11)")
    members = json_reader.value()
    require(json_reader.at == len(json_reader.text), "something follows the JSON object (F-11)")
    tensors = [tensor_of(name, entry, 8 + size) for name, entry in members.items() if name != "__metadata__"]
    require(tensors, "no tensor (F-15)")
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.size, tensor.name))
    end = 8 + size
    for tensor in tensors:
        require(tensor.offset == end, "tensors are not side by side (F-17)")
        end = tensor.end
    require(end <= len(data), "tensor ends after its file (F-17)")
    return tensors


def tensor_of(name, entry, start):
    """start: the beginning of the tensors' bytes."""
    require(isinstance(entry, dict), "no object (F-15)")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    require(type(dtype) is str and type(shape) is list and type(offsets) is list and len(offsets) == 2, "dtype, shape or data_offsets (F-15)")
    require(all(type(number) is Number for number in shape + offsets), "no number (F-16)")
    name, dtype, shape, (first, last) = name.encode(), dtype.encode(), tuple(map(Number.whole, shape)), map(Number.whole, offsets)
    require(len(name) <= MAX_NAME_SIZE and 1 <= len(dtype) <= MAX_DTYPE_SIZE and len(shape) <= MAX_RANK, "size of a name or dtype, or rank (F-18)")
    require(b"\0" not in name + dtype, "zero byte (F-18)")
    require(first <= last, "data_offsets (F-17)")
    require(dtype not in DTYPE_BITS or size_of(dtype, shape) == last - first, "data_offsets (F-18)")
    return Tensor(name, dtype, shape, start + first, last - first)
