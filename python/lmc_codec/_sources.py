"""Where files are read from: paths, buffers, file objects, URLs. One object for each, as the reader wants it."""

from __future__ import annotations

import errno
import io
import os
from _thread import allocate_lock

from ._errors import TruncatedError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

TAIL = 64 << 10  # what the library reads first
PIECE = 32 << 20  # of a range that is asked for in pieces


class Source:
    """argument and size: of _lmc.Reader. name: in messages. expect: says what will be read next, front to back."""

    __slots__ = ("argument", "size", "name", "owned")

    def __init__(self, argument: Any, size: int, name: str | None, owned: int = -1):
        self.argument, self.size, self.name, self.owned = argument, size, name, owned

    def expect(self, start: int, end: int) -> None:
        if hasattr(self.argument, "expect"):
            self.argument.expect(start, end)

    def give_up(self) -> None:
        """The reader did not take it."""
        if self.owned >= 0:
            os.close(self.owned)
        self.close()

    def close(self) -> None:
        if hasattr(self.argument, "close") and isinstance(self.argument, Ranges):
            self.argument.close()


class Ranges:
    """read(offset, size) of something far away. Subclasses have fetch()."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.window, self.window_at = b"", 0
        self.expected = (0, 0)
        self.n_requests = 0

    def expect(self, start: int, end: int) -> None:
        self.expected = (start, end)

    def wanted_end(self, offset: int, size: int) -> int:
        start, end = self.expected
        return max(offset + size, end) if start <= offset < end else offset + size

    def __call__(self, offset: int, size: int) -> bytes | memoryview:
        with self.lock:
            at = offset - self.window_at
            if at < 0 or at + size > len(self.window):
                end = min(self.wanted_end(offset, size), max(offset + size, offset + PIECE))
                self.window, self.window_at, at = self.fetch(offset, end - offset), offset, 0
            return memoryview(self.window)[at : at + size]

    def fetch(self, offset: int, size: int) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        self.window = b""


class _File(Ranges):
    """A file object that can seek. Its position moves."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self.file = file

    def fetch(self, offset: int, size: int) -> bytes:
        self.n_requests += 1
        self.file.seek(offset)
        parts, left = [], size
        while left:
            part = self.file.read(left)
            if not part:
                raise TruncatedError(f"truncated: {size} bytes at {offset} were asked for, and {size - left} came")
            if not isinstance(part, bytes):
                raise TypeError("the file is not open in binary mode")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Fsspec(Ranges):
    """A path of an fsspec file system: each range is one request, whatever its caches."""

    def __init__(self, filesystem: Any, path: str) -> None:
        super().__init__()
        self.filesystem, self.path = filesystem, path

    def fetch(self, offset: int, size: int) -> bytes:
        self.n_requests += 1
        data = self.filesystem.cat_file(self.path, start=offset, end=offset + size)
        if len(data) != size:
            raise TruncatedError(
                f"{self.path}: truncated: {size} bytes at {offset} were asked for, and {len(data)} came"
            )
        return bytes(data)


def check_bytes(data: Any, function: str, instead: str) -> None:
    """Of what takes no names: who was given data would otherwise open what they say."""
    try:
        memoryview(data)
    except TypeError:
        raise TypeError(f"{function}() takes bytes, not {type(data).__name__}: {instead}") from None


def _is_plain_file(file: Any) -> bool:
    raw = getattr(file, "raw", file)
    return isinstance(file, (io.FileIO, io.BufferedReader, io.BufferedRandom)) and isinstance(raw, io.FileIO)


def _cannot_seek(name: str | None) -> OSError:
    return io.UnsupportedOperation(f"{name or 'the file'} cannot seek, as a pipe cannot: read it to its end, and give the bytes")


def refuse_url(path: Any) -> None:
    """Of what is to be written."""
    if isinstance(path, str) and "://" in path:
        raise ValueError(f"{path}: URLs are not written: give lmc_codec.Writer a file object, of fsspec.open(..., 'wb') for example")


def open_fd(path: Any) -> int:
    """To read."""
    flags = ("O_BINARY", "O_CLOEXEC", "O_NONBLOCK")  # a pipe that nobody writes to would be waited for
    return os.open(path, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))


def _of_path(path: Any) -> Source:
    fd = open_fd(path)
    try:
        if os.path.isdir(path):
            name = os.fsdecode(path)
            is_checkpoint = os.path.exists(os.path.join(name, ".metadata"))
            reads = f"lmc_codec.dcp.Reader({name!r}) is for dcp.load(), and " if is_checkpoint else ""
            raise IsADirectoryError(f"{name} is a directory: {reads}`lmc {name}` makes an LMC file of it")
        return Source(fd, os.lseek(fd, 0, os.SEEK_END), os.fsdecode(path), fd)
    except BaseException:
        os.close(fd)
        raise


def _of_file(file: Any) -> Source:
    name = getattr(file, "name", None)
    name = name if isinstance(name, str) else None
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open in text mode: open it with 'rb'")
    inner = getattr(file, "file", None)  # of tempfile.NamedTemporaryFile
    if inner is not None and _is_plain_file(inner):
        file = inner
    if hasattr(file, "seekable") and not file.seekable():
        raise _cannot_seek(name)
    if _is_plain_file(file):
        if file.writable():
            file.flush()
        fd = os.dup(file.fileno())
        return Source(fd, os.fstat(fd).st_size, name, fd)
    if hasattr(file, "fs") and hasattr(file, "path") and hasattr(file.fs, "cat_file") and hasattr(file, "size"):
        return Source(_Fsspec(file.fs, file.path), file.size, str(file.path))
    size = file.seek(0, os.SEEK_END)
    if size is None:
        size = file.tell()
    return Source(_File(file), size, name)


def _refuse_part(name: str) -> None:
    """A file of torch.distributed.checkpoint has many items, each of them an LMC file if lmc_codec.dcp wrote it. What they
    are, and the order of their dimensions, stands elsewhere."""
    if name.endswith(".distcp") and ("://" in name or os.path.isfile(name)):
        directory = os.path.dirname(name) or "."
        raise UnsupportedError(
            f"{name} is a part of a checkpoint of torch.distributed.checkpoint: dcp.load() reads it with"
            f" lmc_codec.dcp.Reader({directory!r}), and `lmc {directory}` makes an LMC file of all of it"
        )


def open_source(where: Any, storage_options: dict[str, Any] | None = None) -> Source:
    """A path, URL, buffer or file object."""
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
            raise ImportError(f"{where}: pip install fsspec, and what it needs for this protocol") from None
        filesystem, path = url_to_fs(where, **(storage_options or {}))
        try:
            return Source(_Fsspec(filesystem, path), filesystem.size(path), where)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), where) from error
    if isinstance(where, (str, os.PathLike)):
        try:
            return _of_path(where)
        except OSError as error:
            if error.errno != errno.ESPIPE:
                raise
            raise _cannot_seek(os.fsdecode(where)) from None
    if hasattr(where, "read") and hasattr(where, "seek"):
        return _of_file(where)
    try:
        memoryview(where)
    except TypeError:
        raise TypeError(f"a path, a URL, bytes or a file that can seek, not {type(where).__name__}") from None
    return Source(where, 0, None)
