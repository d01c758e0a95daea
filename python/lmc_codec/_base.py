"""What a delta is coded against."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from . import _errors, _lmc  # _errors: the library raises them
from ._arrays import describe
from ._lmc import printable
from ._sources import open_fd
from ._threads import count_threads

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

    from ._errors import NotLMCError
    from ._reader import Reader
    from ._sources import Source

AUTO = "auto"  # in place of a base: it is found
BASE_KEY = "lmc.base"  # of the metadata: what the base was called, a hint
MAX_HEADER = 100_000_000  # of safetensors, as its own reader has it


class Base:
    """Arrays in memory, to make deltas against, and to restore them with.

    arrays: their names, and the arrays (numpy, torch, DLPack, buffers), which must not change as long as this is in
    use: Writer.finish() raises WrongBaseError if they have. It takes one pass over them to know their fingerprint; who uses
    them several times makes one Base.
    """

    __slots__ = ("_arrays", "_object", "_name", "_files")

    def __init__(self, arrays: Mapping[str, Any], *, threads: int | None = None):
        self._name: str | None = None  # where they are from, for messages
        self._files: frozenset[tuple[int, int]] = frozenset()  # device, inode
        if not isinstance(arrays, Mapping):
            raise TypeError(f"base: arrays by name are wanted, not {type(arrays).__name__}")
        items = []
        for name, array in arrays.items():
            if not isinstance(name, str):
                raise TypeError(f"base: the name of an array must be a string, not {name!r}")
            try:
                x = describe(array)
            except (TypeError, ValueError) as error:
                raise type(error)(f"base: array {name!r}: {printable(error)}") from None
            items.append((name, x.dtype or "U8", x.shape, x.buffer))
        self._arrays = Arrays(items, count_threads(threads))
        self._object = self._arrays.object

    @classmethod
    def _of_safetensors(cls, path: str | os.PathLike[str], threads: int | None) -> Base:
        found = os.stat(path)
        base = cls.__new__(cls)
        base._name, base._files = os.fsdecode(path), frozenset([(found.st_dev, found.st_ino)])
        base._arrays = _of_safetensors(path, count_threads(threads))
        base._object = base._arrays.object
        return base

    @property
    def fingerprint(self) -> bytes:
        """16 bytes: what a delta's `base_fingerprint` says."""
        return self._object.fingerprint

    def __reduce__(self) -> Any:
        raise TypeError("lmc_codec.Base is of arrays in this process, and not pickled: make it where it is used, from the arrays")

    def __repr__(self) -> str:
        return f"<lmc_codec.Base {self.fingerprint.hex()[:16]}>"


def parse_safetensors(view: memoryview, name: str) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its data begins."""
    import json

    size = int.from_bytes(view[:8], "little")
    if len(view) < 8 or size > min(MAX_HEADER, len(view) - 8):
        raise ValueError(f"{printable(name)} is neither an LMC file nor a safetensors file")
    try:
        header = json.loads(bytes(view[8 : 8 + size]))
    except ValueError:
        raise ValueError(f"{printable(name)} is neither an LMC file nor a safetensors file") from None
    return header, 8 + size


def safetensors_rows(view: memoryview, name: str) -> list[tuple[str, str, tuple[int, ...], int, int]]:
    """Of a whole safetensors file: name, dtype, shape, first byte and size of each tensor, in the order of their places."""
    header, start = parse_safetensors(view, name)
    rows = []
    try:
        header.pop("__metadata__", None)
        for tensor, x in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            first, last = x["data_offsets"]
            if not 0 <= first <= last <= len(view) - start:
                raise ValueError(f"{printable(name)} is damaged: tensor {tensor!r} does not lie in it")
            rows.append((tensor, x["dtype"], tuple(x["shape"]), start + first, last - first))
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{printable(name)} is damaged, or no safetensors file: its header is not understood") from None
    return rows


def first_bytes(source: Any, n: int) -> bytes:
    """Of a path of this machine, a file that can seek, or a buffer; b"" of what cannot be read so."""
    if isinstance(source, (str, os.PathLike)):
        if "://" in os.fsdecode(source) or os.path.isdir(source):
            return b""
        with open(open_fd(source), "rb") as file:
            return file.read(n) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    if hasattr(source, "read") and hasattr(source, "seek"):
        at = source.tell()
        source.seek(0)
        start = source.read(n)
        source.seek(at)
        return start if isinstance(start, bytes) else b""
    try:
        return bytes(describe(source).buffer[:n])
    except (TypeError, ValueError):
        return b""


#: How files of others begin, what they are, and what reads them.
_OTHERS = (
    (b"PK\3\4", "a zip archive, as torch.save() writes it", "torch.load()"),
    (b"\x80", "a pickle, as torch.save() of before 1.6 writes it", "torch.load()"),
    (b"GGUF", "a GGUF file", "llama.cpp"),
    (b"\x93NUMPY", "a NumPy array", "numpy.load()"),
    (b"\x89HDF", "an HDF5 file", "h5py"),
)


def name_other(source: Source) -> NotLMCError | None:
    """The error for what is no LMC file but one of another kind, as its first bytes tell."""
    argument, n = source.argument, 10
    if isinstance(argument, int):
        start = os.pread(argument, n, 0) if hasattr(os, "pread") else b""
    else:
        start = bytes(argument(0, min(n, source.size)) if callable(argument) else memoryview(argument).cast("B")[:n])
    what, reads = next((x[1:] for x in _OTHERS if start.startswith(x[0])), ("", ""))
    if starts_safetensors(start):
        what, reads = "a safetensors file", "load_file() of lmc_codec.torch or lmc_codec.numpy"
    if not what:
        return None
    name = source.name or "this"
    makes = f", and `lmc {name}` makes {name}.lmc of it" if source.name and "://" not in name else ""
    return _errors.NotLMCError(f"{name} is {what}, no LMC file: {reads} reads it{makes}")


def starts_safetensors(start: bytes) -> bool:
    return start[8:10] in (b'{"', b"{}") or (start[8:9] == b"{" and start[9:10].isspace())


def is_safetensors(source: Any) -> bool:
    """Whether a path of this machine, a file or a buffer begins as a safetensors file does, and no LMC file."""
    return starts_safetensors(first_bytes(source, 10))


class Arrays:
    """Arrays that are a base, with what tells whether they are still what they were."""

    __slots__ = ("object", "_items", "_threads")

    def __init__(self, items: list[tuple[str, str, tuple[int, ...], Any]], threads: int):
        self.object = _lmc.Base(items, threads)
        self._items, self._threads = items, threads

    def is_unchanged(self) -> bool:
        """One pass over them."""
        return _lmc.Base(self._items, self._threads).fingerprint == self.object.fingerprint


def _of_safetensors(path: Any, threads: int) -> Arrays:
    import mmap

    with open(path, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    rows = safetensors_rows(view, os.fsdecode(path))
    return Arrays([(name, dtype, shape, view[at : at + size]) for name, dtype, shape, at, size in rows], threads)


def take_base(
    base: Any, threads: int | None
) -> tuple[_lmc.Base | _lmc.Reader | None, frozenset[tuple[int, int]], Arrays | None]:
    """What `base` stands for (a Reader, a Base, arrays by name, a path of an LMC or safetensors file): the object of _lmc;
    the files that it and its bases are read from (device, inode); and what of it is in memory."""
    from ._reader import Reader

    if base is None:
        return None, frozenset(), None
    if isinstance(base, str) and base == AUTO:
        raise ValueError("base='auto' is for reading: say what this is to be a delta of, or call a file of that name './auto'")
    if isinstance(base, Mapping):
        base = Base(base, threads=threads)
    if isinstance(base, (str, os.PathLike)) and is_safetensors(base):
        base = Base._of_safetensors(base, threads)
    if isinstance(base, Base):
        return base._object, base._files, base._arrays
    if not isinstance(base, Reader):
        base = Reader(base, threads=threads)
    return _check_complete(base)._object, base._chain_files, None


def name_base(base: Any) -> str:
    """What is said of it in a delta: its name without the directory; "": it has none."""
    name = base.name if not isinstance(base, (str, os.PathLike)) and hasattr(base, "base_fingerprint") else base
    if not isinstance(name, (str, os.PathLike)):
        return ""
    text = os.fsdecode(name)
    if text.startswith(("http://", "https://")):
        from urllib.parse import unquote, urlsplit

        text = unquote(urlsplit(text).path)
    return os.path.basename(text)


def _check_complete(base: Reader) -> Reader:
    """A delta without its base is none itself: what is said later would not tell whose is missing."""
    if base.base_fingerprint is not None and not base._has_base:
        name = base.name or "what"
        opened = f"lmc_codec.open({base.name!r}, base='auto'), which finds that beside it, or " if base.name else ""
        raise _errors.MissingBaseError(
            f"{name} is given as the base, but is a delta itself, and its own base is missing:"
            f" give base={opened}lmc_codec.open(..., base=...)"
        )
    return base


def find_files(fd: int, bases: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those of a reader of `fd` (-1: of no file) with these bases."""
    if fd < 0:
        return bases
    found = os.fstat(fd)
    return bases | {(found.st_dev, found.st_ino)} if found.st_ino else bases  # 0: the file system has no numbers
