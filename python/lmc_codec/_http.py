"""Ranges of files on HTTP servers, by urllib: a connection that breaks off, a server that is busy or silent for a while,
and one that sends on to another are all in a day's work of a long transfer."""

from __future__ import annotations

import errno
import http.client
import os
import re
import socket
import time
import urllib.error
import urllib.request
from _thread import allocate_lock

from . import _lmc
from ._errors import LMCError, ReadError
from ._sources import TAIL, Ranges

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

SKIP = 64 << 10  # rather read than asked for anew
STEP = 1 << 20  # of what is read at once; whoever brought so much gets on, and has all its tries again
TIMEOUT = 30  # seconds without a byte
TRIES = 4
FIRST_WAIT, LAST_WAIT = 0.5, 30.0  # seconds, before the second try, and at most

PASSING = {408, 429, 500, 502, 503, 504}  # statuses that may be others a moment later
KEPT = {"Range", "User-agent"}  # headers for a server that another one has sent us to

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*")


def _origin(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    return scheme.lower(), re.split("[/?#]", rest, maxsplit=1)[0].lower()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """What the caller says to one server (his token) is not said to another, as in curl and requests."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.lower().startswith(("http://", "https://")):
            raise urllib.error.HTTPError(req.full_url, code, f"{msg}, to {newurl!r}", headers, fp)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            request.headers = {name: value for name, value in request.headers.items() if name in KEPT}
        return request


def take_options(options: dict[str, Any]) -> tuple[dict[str, str], float | None]:
    """Headers and timeout of `storage_options`: headers by name, as they are or, as fsspec has them, in "headers"."""
    rest = dict(options)
    timeout = rest.pop("timeout", TIMEOUT)
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise TypeError(f"storage_options: 'timeout' is in seconds, or None, not {timeout!r}")
    headers = {**(rest.pop("headers", None) or {}), **rest}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"storage_options: of http and https there are headers, as text by name, and 'timeout'; not {name!r}: a"
                f" {type(value).__name__}"
            )
    return headers, timeout


class _Tries:
    """Counts failures in a row, and waits longer after each."""

    def __init__(self, url: str, timeout: float | None):
        self.url, self.timeout, self.n_failed = url, timeout, 0

    def wait_after(self, error: Exception) -> None:
        """Raises what is to be said, if another try would not help."""
        self.n_failed += 1
        if not _is_passing(error) or self.n_failed == TRIES:
            raise self._explain(error) from error
        import random

        wait = FIRST_WAIT * 2 ** (self.n_failed - 1) * (0.5 + random.random())  # many readers do not come back at once
        if isinstance(error, urllib.error.HTTPError):
            asked = error.headers.get("Retry-After", "")
            if asked.isascii() and asked.isdigit():
                wait = max(wait, int(asked[:9]))
            error.close()
        time.sleep(min(wait, LAST_WAIT))

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, urllib.error.HTTPError):
            text = f"HTTP {error.code} {error.reason}".rstrip()
            error.close()
            if error.code in (404, 410):
                return FileNotFoundError(errno.ENOENT, text, self.url)
            if error.code in (401, 403):
                return PermissionError(errno.EACCES, text, self.url)
        elif isinstance(_cause(error), TimeoutError):
            text = f"no answer for {self.timeout} s (storage_options={{'timeout': ...}} says how long to wait)"
        elif isinstance(error, _ShortAnswer):
            text = f"the server gives only {error.size} bytes at a time; download the file instead"
        elif isinstance(error, http.client.IncompleteRead):
            text = "the connection ended early"
        else:
            text = str(_cause(error)) or type(error).__name__
        tried = f", {self.n_failed} times" if self.n_failed > 1 else ""
        return ReadError(f"{self.url}: {text}{tried}")


class _ShortAnswer(http.client.IncompleteRead):
    """All of an answer, and so little of what was asked for that to go on so would take a request for every few bytes."""

    def __init__(self, size: int, wanted: int):
        super().__init__(b"", wanted - size)
        self.size = size


def _cause(error: Exception) -> Any:
    return error.reason if isinstance(error, urllib.error.URLError) else error


def _is_passing(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in PASSING
    cause = _cause(error)
    if isinstance(cause, socket.gaierror):
        return cause.errno == socket.EAI_AGAIN
    broken = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError, http.client.IncompleteRead)
    return isinstance(cause, broken) or type(cause).__name__ == "SSLEOFError"  # Python may be without ssl


class HTTP(Ranges):
    """Ranges of a URL. The first request brings the file's end and tells its size; what is expected comes by one
    request, as it is needed.

    The next bytes that come are those from `at`, until `until`, where the answer ends, which began at `begin`; the range
    that is wanted of the server ends at `end`."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.headers, self.timeout = take_options(options)
        self.url = self.place = url  # place: where the last answer came from; its signature may expire
        self.opener = urllib.request.build_opener(_Redirects)
        self.response: Any = None
        self.at = self.end = self.begin = self.until = 0
        self.tag: str | None = None
        self.size, self.tail = -1, b""
        self.tail_at = 0
        self.pid = os.getpid()
        self._find_end()

    # -- requests --

    def _ask(self, wanted: str | None, method: str = "GET") -> Any:
        while True:
            is_first = _origin(self.place) == _origin(self.url)
            headers = dict(self.headers) if is_first else {k: v for k, v in self.headers.items() if k.capitalize() in KEPT}
            if wanted is not None:
                headers["Range"] = f"bytes={wanted}"
            self.n_requests += 1
            request = urllib.request.Request(self.place, headers=headers, method=method)
            try:
                response = self.opener.open(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                if self.place == self.url or not 400 <= error.code < 500 or error.code in PASSING:
                    raise  # PASSING: the wait comes first
                error.close()
                self.place = self.url
                continue
            self.place = response.geturl()
            self._check_encoding(response)
            return response

    def _check_encoding(self, response: Any) -> None:
        """Python asks for none. "aws-chunked" is of an upload, and some stores go on saying it."""
        encoding = response.headers.get("Content-Encoding") or "identity"
        if encoding.lower() not in ("identity", "aws-chunked"):
            response.close()
            raise ReadError(
                f"{self.url}: the server sends the file compressed (Content-Encoding: {encoding[:40]}), though it was asked"
                " not to: have it stored and sent as it is, or download the file instead",
            )

    def _take_range(self, response: Any) -> tuple[int, int, int]:
        """First byte, end, size of the file (-1: it is not said), of an answer with a range."""
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if response.status != 206 or found is None or int(found[1]) > int(found[2]):
            response.close()
            raise ReadError(f"{self.url}: the server does not take requests for ranges; download the file instead")
        tag = response.headers.get("ETag")
        if self.tag is not None and tag != self.tag:
            response.close()
            raise self._changed()
        self.tag = tag
        return int(found[1]), int(found[2]) + 1, -1 if found[3] == "*" else int(found[3])

    def _changed(self) -> LMCError:
        return ReadError(f"{self.url}: the file has changed since it was opened")

    def _ask_for_range(self) -> None:
        response = self._ask(f"{self.at}-{self.end - 1}")
        self.begin, self.until, size = self._take_range(response)
        if self.begin != self.at or size not in (-1, self.size):
            response.close()
            raise self._changed()
        self.response = response

    # -- the end of the file, which is read first --

    def _find_end(self) -> None:
        tries = _Tries(self.url, self.timeout)
        while True:
            try:
                if self._read_end():
                    return
                self.size = self._find_size()
                break
            except LMCError:
                raise
            except (OSError, http.client.HTTPException) as error:
                self.place = self.url
                tries.wait_after(error)
        self.tail_at = self.at = self.size
        start = max(self.size - TAIL, 0)
        self.tail, self.tail_at = bytes(self(start, self.size - start)), start

    def _read_end(self) -> bool:
        """By one request. False: the server does not take requests for the last bytes, whatever their number."""
        try:
            response = self._ask(f"-{TAIL}")
        except urllib.error.HTTPError as error:
            if error.code not in (400, 416, 501):
                raise
            error.close()
            return False
        with response:
            if response.status == 200:
                length = response.length  # None: in chunks
                if length is not None and length > TAIL:
                    return False
                self.tail = response.read(TAIL + 1)  # all of a small file
                if len(self.tail) > TAIL:
                    return False
                self.size = length = len(self.tail) if length is None else length
            else:
                self.tail_at, end, self.size = self._take_range(response)
                self.size = end if self.size < 0 else self.size
                if end != self.size or end - self.tail_at > TAIL:
                    return False
                self.tail, length = response.read(), end - self.tail_at
        if len(self.tail) != length:
            raise http.client.IncompleteRead(self.tail, length - len(self.tail))
        return True

    def _find_size(self) -> int:
        with self._ask("0-0") as response:
            size = self._take_range(response)[2]
        if size >= 0:
            return size
        with self._ask(None, "HEAD") as response:
            length = response.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise ReadError(f"{self.url}: the server does not tell the size of the file; download it instead")
        return int(length)

    # -- reading --

    def __call__(self, offset: int, size: int) -> Any:
        self._check_pid()
        with self.lock:
            if offset >= self.tail_at:
                tail: bytes = self.tail
                return tail[offset - self.tail_at : offset - self.tail_at + size]
            if self.response is None or not self.at <= offset <= self.at + SKIP or offset + size > self.end:
                self._stop()
                self.at, self.end = offset, min(self.wanted_end(offset, size), self.size)
            try:
                self._read(offset - self.at)
                data = self._read(size)
            except BaseException:  # Ctrl-C, too: the answer may be further than `at`
                self._stop()
                raise
            if self.at == self.end:
                self._stop()
            return data

    def _read(self, size: int) -> bytearray:
        """What comes next; where the connection breaks off, another goes on from there."""
        data = _lmc.new_bytes(size)
        view, n = memoryview(data), 0
        tries = _Tries(self.url, self.timeout)
        while n < size:
            try:
                if self.response is None:
                    self._ask_for_range()
                got = self.response.readinto(view[n : n + min(STEP, self.until - self.at)])
                if not got:
                    raise http.client.IncompleteRead(b"", self.until - self.at)
            except LMCError:
                raise
            except (OSError, http.client.HTTPException) as error:
                self._stop()
                self.place = self.url
                tries.wait_after(error)
                continue
            n, self.at = n + got, self.at + got
            if got == STEP:
                tries.n_failed = 0
            if self.at == self.until:  # the server may send less than all of the range
                self._stop()
                if n < size and self.until - self.begin < SKIP:
                    tries.wait_after(_ShortAnswer(self.until - self.begin, self.end - self.begin))
        return data

    def _stop(self) -> None:
        response, self.response = self.response, None
        if response is not None:
            response.close()

    def _check_pid(self) -> None:
        """After a fork the connection is the parent's, and so may be the lock."""
        if self.pid != os.getpid():
            self.lock, self.pid = allocate_lock(), os.getpid()
            self._stop()

    def close(self) -> None:
        """Who has it as the base of a delta goes on: by requests, from here on for the end of the file, too."""
        self._check_pid()
        if not self.lock.acquire(blocking=False):
            return  # somebody reads: another thread, or this one before a signal's handler
        try:
            self._stop()
            self.tail, self.tail_at = b"", self.size
            super().close()
        finally:
            self.lock.release()
