"""A snapshot as a file system of fsspec, with the protocol lmc: `fsspec.open("lmc://model.safetensors::s3://bucket/model.lmc")`.
fsspec finds it by an entry point of this package."""

from __future__ import annotations

import errno
import os
import weakref
from datetime import datetime, timezone
from functools import lru_cache

from fsspec import AbstractFileSystem, filesystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile

from . import _lmc
from ._errors import LMCError
from ._lmc import printable
from ._reader import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable
    from typing import Any, NoReturn

WINDOW, N_WINDOWS = 4 << 20, 8  #: bytes that a small read decodes, and how many of these a file system keeps
NAME = "data"  #: of the only file, if neither the snapshot nor its own file says a name


class LMCFileSystem(AbstractFileSystem):
    """The files of a snapshot, read-only.

    fo: its path or URL, bytes, or an open file. target_protocol, target_options: of fsspec, for a path. base, threads,
    max_index_size, max_total_size: as for lmc_codec.open. A single file without a name has that of the snapshot, without .lmc.

    Any thread may use it. Small reads decode windows of 4 MiB, of which the last 8 are kept for all of its files.
    """

    protocol = "lmc"
    root_marker = ""
    cachable = False  # the same path may have another snapshot tomorrow

    def __init__(
        self, fo: Any, *, base: Any = None, threads: int | None = None, target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None, max_index_size: int = 0, max_total_size: int = 0, **storage_options: Any
    ):
        super().__init__(**storage_options)
        source = _open_target(fo, target_protocol, target_options or {})
        is_own = source is not fo and not isinstance(source, str)
        self._close_own = weakref.finalize(self, source.close) if is_own else None
        self._reader = Reader(source, base=base, threads=threads, max_index_size=max_index_size, max_total_size=max_total_size)
        self._stem = os.path.basename((self._reader.name or "").rstrip("/")).removesuffix(".lmc") or NAME
        self._table: tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]] | None = None
        self._window = lru_cache(N_WINDOWS)(_make_windows(self._reader))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(x) for x in path]
        return super()._strip_protocol(path).lstrip("/")

    # -- what is there --

    def _tables(self) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
        """Entries by path, and those in each directory."""
        if self._table is None:
            entries: dict[str, dict[str, Any]] = {"": {"name": "", "size": 0, "type": "directory"}}
            for file in self._reader.files:
                name, kind = file.path or self._stem, "directory" if file.is_directory else "file"
                mtime = None if file.mtime_ns is None else file.mtime_ns / 1e9
                entries[name] = {"name": name, "size": file.size, "type": kind, "mode": file.mode, "mtime": mtime, "number": file.number}
            for name in list(entries):
                while (name := name.rpartition("/")[0]) not in entries:
                    entries[name] = {"name": name, "size": 0, "type": "directory"}
            children: dict[str, list[dict[str, Any]]] = {name: [] for name, x in entries.items() if x["type"] == "directory"}
            for name in sorted(entries):
                if name:
                    children[name.rpartition("/")[0]].append(entries[name])
            self._table = entries, children
        return self._table

    def info(self, path: Any, **unused: Any) -> dict[str, Any]:
        found = self._tables()[0].get(self._strip_protocol(path))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return dict(found)

    def ls(self, path: Any, detail: bool = True, **unused: Any) -> list[Any]:
        found = self.info(path)
        below = self._tables()[1].get(found["name"], [found])
        return [dict(x) if detail else x["name"] for x in below]

    def modified(self, path: Any) -> datetime:
        mtime = self.info(path).get("mtime")
        if mtime is None:
            raise NotImplementedError("the snapshot does not have its time")
        return datetime.fromtimestamp(mtime, timezone.utc)

    def ukey(self, path: Any) -> str:
        return f"{self._reader.fingerprint.hex()}/{self.info(path)['name']}"

    # -- reading --

    def _find_file(self, path: Any) -> dict[str, Any]:
        found = self.info(path)
        if found["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found

    def _open(self, path: Any, mode: str = "rb", *unused: Any, **unused_too: Any) -> LMCFile:
        if mode != "rb":
            _refuse(path)
        return LMCFile(self, self._find_file(path))

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **unused: Any) -> bytes:
        found = self._find_file(path)
        first, last, _ = slice(start, end).indices(found["size"])
        out = _lmc.new_bytes(max(0, last - first))
        self._read_into(found["number"], first, memoryview(out))
        return bytes(out)

    def _read_into(self, number: int, offset: int, out: memoryview) -> None:
        if len(out) >= WINDOW:
            return _decode(self._reader, number, offset, out)
        while out:
            at = offset % WINDOW
            try:
                part = self._window(number, offset - at)[at : at + len(out)]
            except LMCError:  # perhaps of another part of the window
                return _decode(self._reader, number, offset, out)
            out[: len(part)] = part
            out, offset = out[len(part) :], offset + len(part)

    def close(self) -> None:
        """Closes the snapshot. Without it, that happens when nothing refers to the file system and its files any more."""
        self._window.cache_clear()
        self._reader.close()
        if self._close_own is not None:
            self._close_own()

    def __enter__(self) -> LMCFileSystem:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # -- nothing can be changed: methods that do nothing in the base class, or say less --

    def mkdir(self, path: Any, *unused: Any, **unused_too: Any) -> NoReturn:
        _refuse(path)

    makedirs = mkdirs = makedir = rmdir = rm = rm_file = _rm = touch = sign = cp_file = copy = cp = mv = move = rename = mkdir
    put = put_file = upload = pipe = pipe_file = mkdir


class LMCFile(AbstractBufferedFile):
    """A file of a snapshot. Each read decodes what it needs; the file system keeps windows."""

    def __init__(self, fs: LMCFileSystem, found: dict[str, Any]):
        super().__init__(fs, found["name"], "rb", WINDOW, cache_type="none", size=found["size"])
        self._number = found["number"]

    def _fetch_range(self, start: int, end: int) -> bytes:
        out = _lmc.new_bytes(max(0, min(end, self.size) - start))
        self.fs._read_into(self._number, start, memoryview(out))
        return bytes(out)

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        with memoryview(buffer).cast("B") as view:
            n: int = max(0, min(len(view), self.size - self.loc))
            self.fs._read_into(self._number, self.loc, view[:n])
        self.loc += n
        return n


def _refuse(path: Any) -> NoReturn:
    raise OSError(errno.EROFS, "a snapshot cannot be changed: lmc_codec.Writer writes a new one", path)


def _open_target(fo: Any, protocol: str | None, options: dict[str, Any]) -> Any:
    """A path of this machine, or what is open already, or an open file of another file system."""
    if not isinstance(fo, (str, os.PathLike)):
        return fo
    where = os.fspath(fo)
    if protocol is None:
        target, path = url_to_fs(where, **options)
    else:
        target = filesystem(protocol, **options)
        path = target._strip_protocol(where)
    return path if isinstance(target, LocalFileSystem) else target.open(path, "rb")


def _make_windows(reader: Reader) -> Callable[[int, int], memoryview]:
    """A function that decodes a window of a file. It does not refer to the file system, which would be a cycle."""

    def decode_window(number: int, offset: int) -> memoryview:
        out = memoryview(_lmc.new_bytes(min(WINDOW, reader.files[number].size - offset)))
        reader._expect(number, offset, len(out))
        reader._object.read(number, offset, out, reader.files[number].path)
        return out

    return decode_window


def _decode(reader: Reader, number: int, offset: int, out: memoryview) -> None:
    """Decodes a range. Of damage, the error also names the tensor."""
    file, end = reader.files[number], offset + len(out)
    if not out:
        return
    try:
        reader._expect(number, offset, len(out))
        reader._object.read(number, offset, out, file.path or None)
    except LMCError:
        for x in file.tensors:
            first, last = max(x.offset, offset), min(x.offset + x.size, end)
            if first < last:
                what = f"{file.path}: tensor {x.name!r}" if file.path else f"tensor {x.name!r}"
                reader._object.read(number, first, out[first - offset : last - offset], printable(what))
        raise
