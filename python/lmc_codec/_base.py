"""Bases: what deltas are coded against."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _errors, _lmc  # _errors: the library raises them
from ._arguments import count_threads
from ._arrays import describe_all
from ._ranges import Ranges
from ._sources import Source, open_source

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

    from ._errors import NotLMCError
    from ._reader import Reader

AUTO = "auto"  # in place of a base: the base is found beside the file
BASE_KEY = "lmc.base"  # a key of the metadata: the name of the base, as a hint


class Base:
    """Arrays in memory as a base: to make deltas, and to read them.

    arrays: arrays by name (numpy, torch, DLPack, buffers). They must not change while this is in use: Writer.finish()
    raises WrongBaseError if they have changed. Making a Base reads all arrays once, for their fingerprint: if you use
    them several times, make only one Base.
    """

    __slots__ = ("_items", "_threads", "_object", "_name", "_chain_files", "_file")

    def __init__(self, arrays: Mapping[str, Any], *, threads: int | None = None):
        found = describe_all(arrays, "base: array", "base: the name of an array")
        self._set([(name, x.dtype or "U8", x.shape, x.buffer) for name, x in found.items()], threads)

    def _set(self, items: list[tuple[str, str, tuple[int, ...], Any]], threads: int | None, *on_gpu: Any) -> None:
        self._items, self._threads = items, count_threads(threads)
        self._file: dict[str, Any] = {}  # the file in which the arrays are, if they are not in memory
        self._object = _lmc.Base(items, self._threads, *on_gpu)
        self._name: str | None = None  # the file of the arrays, for messages
        self._chain_files: frozenset[tuple[int, int]] = frozenset()  # device, inode

    @classmethod
    def _of_safetensors(cls, where: Any, threads: int | None, storage_options: dict[str, Any] | None = None) -> Base | None:
        """None: it is not a safetensors file. A file of this machine is read when its bytes are needed, and not mapped, because
        another process may cut it. Others are read to the memory: all of them is needed for the fingerprint anyway."""
        source = open_source(where, storage_options)
        if not starts_safetensors(source.read(0, min(10, source.size))):
            source.close()
            return None
        base = cls.__new__(cls)
        if isinstance(source.argument, _lmc.Descriptor):
            rows = safetensors_rows(source)
            base._items, base._threads = [(name, dtype, shape, (at, size)) for name, dtype, shape, at, size in rows], count_threads(threads)
            base._file = {"file": source.argument, "size": source.size, "where": source.name}
            base._object = _lmc.Base(base._items, base._threads, **base._file)
        else:
            if isinstance(source.argument, Ranges):
                source.load()
            view = memoryview(source.argument).cast("B")
            base._set([(name, dtype, shape, view[at : at + size]) for name, dtype, shape, at, size in safetensors_rows(source)], threads)
        base._name, base._chain_files = source.name, find_files(source.fileno())
        return base

    def _is_unchanged(self) -> bool:
        """Whether the arrays are still the same. Reads all of them."""
        return _lmc.Base(self._items, self._threads, **self._file).fingerprint == self.fingerprint

    @property
    def fingerprint(self) -> bytes:
        """16 bytes: equal to `base_fingerprint` of deltas against this base."""
        return self._object.fingerprint

    def __reduce__(self) -> Any:
        raise TypeError("lmc_codec.Base cannot be pickled, since its arrays are in this process: make it where it is used, from them")

    def __repr__(self) -> str:
        return f"<lmc_codec.Base {self.fingerprint.hex()[:16]}>"


class Shards:
    """Several bases that are one together, such as the shards of a checkpoint."""

    def __init__(self, parts: list[Reader | Base]):
        self._parts = parts
        self._object: tuple[_lmc.Reader | _lmc.Base, ...] = _open_again(self, None)[0]
        self._name = " and ".join(x._name or "arrays" if isinstance(x, Base) else x.name or "a Reader" for x in parts)
        self._chain_files: frozenset[tuple[int, int]] = frozenset().union(*(x._chain_files for x in parts))

    def _is_unchanged(self) -> bool:
        return all(x._is_unchanged() for x in self._parts if isinstance(x, Base))

    def _find_repeated(self) -> str:
        """A tensor that is in two of them, for a message: then they are hardly shards."""
        owners: dict[str, int] = {}
        for i, part in enumerate(self._parts):
            names = [x[0] for x in part._items] if isinstance(part, Base) else [x.name for file in part.files for x in file.tensors]
            for name in names:
                if owners.setdefault(name, i) != i:
                    return f"; {name!r} is in two of them"
        return ""


def _open_again(base: Reader | Base | Shards, lender: _lmc.Reader | None) -> tuple[Any, _lmc.Reader | None]:
    """The object of a base whose readers, and those of its own bases, lend to each other, and the last of these readers. So they
    have one limit of work (spec R9-5), and a chain through shards costs no more than another chain: if each shard had its own
    limit, the limits would multiply. The caller's Readers are not changed, because he may read them at the same time."""
    if isinstance(base, Base):
        return base._object, lender
    if isinstance(base, Shards):
        objects = []
        for part in base._parts:
            found, lender = _open_again(part, lender)
            objects.append(found)
        return tuple(objects), lender
    below = None
    if base._base is not None:
        below, lender = _open_again(base._base, lender)
    reader = base._object.open_again(below, lender)
    return reader, reader


def read_header(source: Source) -> bytes:
    """Of a safetensors file: its size, and the header."""
    size = int.from_bytes(source.read(0, min(8, source.size)), "little")
    return source.read(0, min(8 + size, source.size))


def safetensors_rows(source: Source) -> list[tuple[str, str, tuple[int, ...], int, int]]:
    """Of a safetensors file: name, dtype, shape, first byte and size of each tensor, sorted by first byte."""
    rows, why = _lmc.find_tensors(read_header(source), source.size, "")
    if why is not None:
        raise _errors.CorruptError(f"{source.name or 'this'} is damaged, or no safetensors file: {why}")
    return rows


#: Other kinds of files: first bytes, name, what reads them.
_OTHERS = (
    (b"PK\3\4", "a zip archive, as torch.save() writes it", "torch.load()"),
    (b"\x80", "a pickle, as torch.save() of before 1.6 writes it", "torch.load()"),
    (b"GGUF", "a GGUF file", "llama.cpp"), (b"\x93NUMPY", "a NumPy array", "numpy.load()"),
    (b"\x89HDF", "an HDF5 file", "h5py")
)


def name_other(source: Source) -> NotLMCError | None:
    """The error for a file of another kind, if its first bytes tell the kind."""
    if isinstance(source.argument, bytes) and source.size < 4096 and _is_path(source.argument):
        path = os.fsdecode(source.argument)
        return _errors.NotLMCError(f"these bytes are the path of a file, not an LMC file: give the path as a string, {path!r}")
    start = source.read(0, min(64, source.size))
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        where = "the server sends it in place of a file, e.g. to ask for a login, or the URL is that of a page about the file"
        return _errors.NotLMCError(f"{source.name or 'this'} looks like an HTML page, not an LMC file: {where}")
    what, reads = next((x[1:] for x in _OTHERS if start.startswith(x[0])), ("", ""))
    if starts_safetensors(start):
        what, reads = "a safetensors file", "load_file() of lmc_codec.torch or lmc_codec.numpy"
    if not what:
        return None
    name = source.name or "this"
    makes = f", and `lmc {name}` makes {name}.lmc of it" if source.name and "://" not in name else ""
    error = _errors.NotLMCError(f"{name} is {what}, no LMC file: {reads} reads it{makes}")
    error.is_safetensors = starts_safetensors(start)
    return error


def _is_path(data: bytes) -> bool:
    try:
        return os.path.isfile(data)
    except ValueError:
        return False


def starts_safetensors(start: bytes) -> bool:
    return start[8:10] in (b'{"', b"{}") or (start[8:9] == b"{" and start[9:10].isspace())


def name_base(base: Any) -> str:
    """The hint for the delta: the base's name without the directory; "": it has no name."""
    name = base.name if not isinstance(base, (str, os.PathLike)) and hasattr(base, "base_fingerprint") else base
    if not isinstance(name, (str, os.PathLike)):
        return ""
    text = os.fsdecode(name)
    if text.startswith(("http://", "https://")):
        from urllib.parse import unquote, urlsplit

        text = unquote(urlsplit(text).path)
    return os.path.basename(text)


def find_files(fd: int, bases: frozenset[tuple[int, int]] = frozenset()) -> frozenset[tuple[int, int]]:
    """Device and inode of `fd` (-1: no file), and those of the bases."""
    if fd < 0:
        return bases
    found = os.fstat(fd)
    return bases | {(found.st_dev, found.st_ino)} if found.st_ino else bases  # 0: the file system has no inode numbers
