"""Where files are read from: paths, buffers, file objects, URLs. One object for each, as the reader wants it."""

from __future__ import annotations

import io
import os
from _thread import allocate_lock

from ._errors import TruncatedError, UnsupportedError, say

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

TAIL = 64 << 10  # what the library reads first
SKIP = 64 << 10  # rather read than asked for anew
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
        if hasattr(self.argument, "close") and isinstance(self.argument, _Ranges):
            self.argument.close()


class _Ranges:
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


class _File(_Ranges):
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
                raise say(TruncatedError, f"truncated: the file ends at {offset + size - left}, before {offset + size}")
            if not isinstance(part, bytes):
                raise TypeError("the file is not open in binary mode")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Fsspec(_Ranges):
    """A path of an fsspec file system: each range is one request, whatever its caches."""

    def __init__(self, filesystem: Any, path: str) -> None:
        super().__init__()
        self.filesystem, self.path = filesystem, path

    def fetch(self, offset: int, size: int) -> bytes:
        self.n_requests += 1
        data = self.filesystem.cat_file(self.path, start=offset, end=offset + size)
        if len(data) != size:
            raise say(
                TruncatedError, f"{self.path}: truncated: {size} bytes at {offset} were asked for, and {len(data)} came"
            )
        return bytes(data)


class _HTTP(_Ranges):
    """Ranges of a URL. The first request brings the file's end and tells its size; what is expected comes by one
    request, as it is needed."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        super().__init__()
        self.url, self.headers = url, headers
        self.response: Any = None
        self.at = self.end = 0
        self.tag: str | None = None
        response, start, self.size = self._get(f"bytes=-{TAIL}")
        with response:
            self.tail_at, self.tail = start, response.read()
        if len(self.tail) != self.size - start:
            raise EOFError(f"{url}: the connection ended early")

    def _get(self, wanted: str) -> tuple[Any, int, int]:
        import urllib.request

        request = urllib.request.Request(self.url, headers={**self.headers, "Range": wanted})
        self.n_requests += 1
        response = urllib.request.urlopen(request)
        length = response.headers.get("Content-Length")
        content_range = response.headers.get("Content-Range", "")
        tag = response.headers.get("ETag")
        if response.status == 200 and wanted.startswith("bytes=-") and length and int(length) <= TAIL:
            return response, 0, int(length)  # all of a small file
        if response.status != 206 or not content_range.startswith("bytes ") or "/" not in content_range:
            response.close()
            raise OSError(f"{self.url}: the server does not take requests for ranges; download the file instead")
        self.url = response.geturl()
        span, _, total = content_range[6:].partition("/")
        if self.tag is not None and tag != self.tag:
            response.close()
            raise OSError(f"{self.url}: the file has changed since it was opened")
        self.tag = tag
        return response, int(span.partition("-")[0]), int(total)

    def __call__(self, offset: int, size: int) -> bytes:
        with self.lock:
            if offset >= self.tail_at:
                tail: bytes = self.tail
                return tail[offset - self.tail_at : offset - self.tail_at + size]
            if self.response is None or not self.at <= offset <= self.at + SKIP or offset + size > self.end:
                self._stop()
                end = min(self.wanted_end(offset, size), self.size)
                self.response, self.at, total = self._get(f"bytes={offset}-{end - 1}")
                self.end = end
                if self.at != offset or total != self.size:
                    raise OSError(f"{self.url}: the file has changed since it was opened")
            self._read(offset - self.at)
            data = self._read(size)
            if self.at == self.end:
                self._stop()
            return data

    def _read(self, size: int) -> bytes:
        data: bytes = self.response.read(size) if size else b""
        self.at += len(data)
        if len(data) != size:
            self._stop()
            raise EOFError(f"{self.url}: the connection ended early")
        return data

    def _stop(self) -> None:
        if self.response is not None:
            self.response.close()
        self.response = None

    def close(self) -> None:
        self._stop()
        self.tail = b""
        super().close()


def _is_plain_file(file: Any) -> bool:
    raw = getattr(file, "raw", file)
    return isinstance(file, (io.FileIO, io.BufferedReader, io.BufferedRandom)) and isinstance(raw, io.FileIO)


def _of_path(path: Any) -> Source:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
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
        http = _HTTP(where, dict(storage_options or {}))
        return Source(http, http.size, where)
    if isinstance(where, str) and "://" in where:
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise ImportError(f"{where}: pip install fsspec, and what it needs for this protocol") from None
        filesystem, path = url_to_fs(where, **(storage_options or {}))
        return Source(_Fsspec(filesystem, path), filesystem.size(path), where)
    if isinstance(where, (str, os.PathLike)):
        return _of_path(where)
    if hasattr(where, "read") and hasattr(where, "seek"):
        return _of_file(where)
    try:
        memoryview(where)
    except TypeError:
        raise TypeError(f"a path, a URL, bytes or a file that can seek, not {type(where).__name__}") from None
    return Source(where, 0, None)
