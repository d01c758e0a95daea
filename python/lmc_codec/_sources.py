"""Sources of files: paths, buffers, file objects, URLs. Each becomes a Source, which the reader takes."""

from __future__ import annotations

import errno
import io
import os
import time

from . import _lmc
from ._errors import TruncatedError, UnsupportedError
from ._lmc import printable
from ._ranges import Ranges

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any


class Source:
    """argument and size: for _lmc.Reader. name: for messages. expect: tells what will be read next, in order.

    argument: a Descriptor, Ranges, or a buffer. Readers refer to it, too: several may have the same one, and a Descriptor is
    closed when the last of them is."""

    __slots__ = ("argument", "size", "name")

    def __init__(self, argument: Any, size: int, name: str | None):
        self.argument, self.size, self.name = argument, size, name

    def fileno(self) -> int:
        """Of a file; else -1."""
        return self.argument.fileno() if isinstance(self.argument, _lmc.Descriptor) else -1

    def read(self, offset: int, size: int) -> bytes:
        out = bytearray(size)
        _lmc.read_at(self.argument, self.size, offset, out, self.name)
        return bytes(out)

    def load(self) -> None:
        """Reads all of it to the memory."""
        data = _lmc.new_bytes(self.size)
        self.expect(0, self.size)
        _lmc.read_at(self.argument, self.size, 0, data, self.name)
        self.close()
        self.argument = data

    def expect(self, start: int, end: int) -> None:
        if hasattr(self.argument, "expect"):
            self.argument.expect(start, end)

    def close(self) -> None:
        """Readers that others have as their base can go on: they keep what they need."""
        if isinstance(self.argument, Ranges):
            self.argument.close()
        else:
            self.argument = b""


class _File(Ranges):
    """A file object that can seek. Reading changes its position."""

    def __init__(self, file: Any, size: int) -> None:
        super().__init__(size)
        self.file = file

    def fetch(self, offset: int, view: memoryview) -> None:
        self.file.seek(offset)
        n = 0
        while n < len(view):
            part = self.file.read(len(view) - n)
            if not part:
                raise TruncatedError(f"truncated: {len(view)} bytes at {offset} were asked for, and {n} came")
            if not isinstance(part, bytes):
                raise TypeError("the file is not open in binary mode")
            view[n : n + len(part)] = part
            n += len(part)


class _Fsspec(Ranges):
    """A path of an fsspec file system. Each range is one request, without its caches."""

    def __init__(self, filesystem: Any, path: str, size: int) -> None:
        super().__init__(size)
        self.filesystem, self.path = filesystem, path
        self.can_fetch_at_once = bool(getattr(filesystem, "async_impl", False))

    def fetch(self, offset: int, view: memoryview) -> None:
        data = self.filesystem.cat_file(self.path, start=offset, end=offset + len(view))
        if len(data) != len(view):
            raise TruncatedError(
                f"{self.path}: truncated: {len(view)} bytes at {offset} were asked for, and {len(data)} came"
            )
        view[:] = data


def _is_plain_file(file: Any) -> bool:
    raw = getattr(file, "raw", file)
    return isinstance(file, (io.FileIO, io.BufferedReader, io.BufferedRandom)) and isinstance(raw, io.FileIO)


def _cannot_seek(name: str | None) -> OSError:
    return io.UnsupportedOperation(f"{printable(name or 'the file')} cannot seek, as a pipe cannot: read it to its end, and give the bytes")


def name_kind(x: Any) -> str:
    """The type of what is not a file, with the next step if it can be opened: fsspec.open() and zipfile.Path give such objects."""
    name = type(x).__name__
    return f"{name}, which is not open: give what its .open('rb') returns, or a with statement" if hasattr(type(x), "open") else name


def refuse_url(path: Any) -> None:
    """Raises if the output is a URL."""
    if isinstance(path, str) and "://" in path:
        raise ValueError(f"{printable(path)}: URLs are not written: give lmc_codec.Writer a file object, of fsspec.open(..., 'wb') for example")


def open_descriptor(path: Any) -> _lmc.Descriptor:
    """Opens a file for reading. With O_NONBLOCK, for opening a pipe without a writer would block. But then the system does not
    wait for a lease of another program, such as a server of files, either: so this does, for a minute at most."""
    flags = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK"))
    for _ in range(6000):
        try:
            return _lmc.Descriptor(os.open, path, flags)
        except BlockingIOError:
            if not os.path.isfile(path):
                raise
        time.sleep(0.01)
    raise BlockingIOError(errno.EWOULDBLOCK, "another program holds a lease on it, and does not give it up", os.fsdecode(path))


def open_path(path: Any) -> Source:
    """Opens a file of this machine."""
    file = open_descriptor(path)
    if os.path.isdir(path):
        name = os.fsdecode(path)
        is_checkpoint = os.path.exists(os.path.join(name, ".metadata"))
        reads = f"lmc_integrations.dcp.Reader({name!r}) is for dcp.load(), and " if is_checkpoint else ""
        raise IsADirectoryError(printable(f"{name} is a directory: {reads}`lmc {name}` makes an LMC file of it"))
    try:
        return Source(file, os.lseek(file.fileno(), 0, os.SEEK_END), os.fsdecode(path))
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        raise _cannot_seek(os.fsdecode(path)) from None


def _of_file(file: Any) -> Source:
    name = getattr(file, "name", None)
    name = name if isinstance(name, str) else None
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open in text mode: open it with 'rb'")
    inner = getattr(file, "file", None)  # tempfile.NamedTemporaryFile has one
    if inner is not None and _is_plain_file(inner):
        file = inner
    if hasattr(file, "seekable") and not file.seekable():
        raise _cannot_seek(name)
    if _is_plain_file(file):
        if file.writable():
            file.flush()
        own = _lmc.Descriptor(os.dup, file.fileno())
        return Source(own, os.fstat(own.fileno()).st_size, name)
    if hasattr(file, "fs") and hasattr(file, "path") and hasattr(file.fs, "cat_file") and hasattr(file, "size"):
        return Source(_Fsspec(file.fs, file.path, file.size), file.size, str(file.path))
    size = file.seek(0, os.SEEK_END)
    if size is None:
        size = file.tell()
    return Source(_File(file, size), size, name)


def _refuse_part(name: str) -> None:
    """A file of torch.distributed.checkpoint has many items, each of them an LMC file if lmc_integrations.dcp wrote it.
    Another file says what they are, and the order of their dimensions."""
    if name.endswith(".distcp") and ("://" in name or os.path.isfile(name)):
        directory = os.path.dirname(name) or "."
        raise UnsupportedError(
            f"{name} is a part of a checkpoint of torch.distributed.checkpoint: dcp.load() reads it with"
            f" lmc_integrations.dcp.Reader({directory!r}), and `lmc {directory}` makes an LMC file of all of it"
        )


def open_source(where: Any, storage_options: dict[str, Any] | None = None) -> Source:
    """Opens a path, URL, buffer or file object."""
    if isinstance(where, (str, os.PathLike)):
        _refuse_part(os.fsdecode(where))
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        from ._http import HTTP

        http = HTTP(where, dict(storage_options or {}))
        return Source(http, http.size, where)
    if isinstance(where, str) and "://" in where:
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise ImportError(f"{printable(where)}: pip install fsspec, and what it needs for this protocol") from None
        filesystem, path = url_to_fs(where, **(storage_options or {}))
        try:
            size = filesystem.size(path)
            return Source(_Fsspec(filesystem, path, size), size, where)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from error
    if isinstance(where, (str, os.PathLike)):
        return open_path(where)
    if hasattr(where, "read") and hasattr(where, "seek"):
        return _of_file(where)
    try:
        memoryview(where)
    except TypeError:
        raise TypeError(f"a path, a URL, bytes or a file that can seek, not {name_kind(where)}") from None
    return Source(where, memoryview(where).nbytes, None)
