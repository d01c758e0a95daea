"""Ranges of files on HTTP servers, by urllib. A long transfer must survive broken connections, servers that are busy or
silent for a while, and redirections. Connections are kept for the next request."""

from __future__ import annotations

import errno
import http.client
import io
import re
import socket
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from functools import partial

from . import _lmc
from ._errors import LMCError, ReadError
from ._lmc import printable
from ._ranges import TAIL, Ranges

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterator
    from typing import Any

LITTLE = 64 << 10  # an answer of fewer bytes than this, and than requested, is refused
STEP = 1 << 20  # bytes of one read; after each, a request has all its tries again
TIMEOUT = 30  # seconds without a byte
SLOWEST = 16 << 10  # bytes per second: a whole answer may take the timeout, and the time that its bytes take at this rate
TRIES = 4
FIRST_WAIT, LAST_WAIT = 0.5, 30.0  # seconds before the second try, and at most

PASSING = {408, 429, 500, 502, 503, 504}  # statuses that may change a moment later
KEPT = {"Range", "User-agent"}  # headers that are also sent to another server, after a redirection

CHANGED = "the file has changed since it was opened"
MORE = "the server sends more than it was asked for; download the file instead"

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*")


def _origin(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    return scheme.lower(), re.split("[/?#]", rest, maxsplit=1)[0].lower()


class _Limited(io.RawIOBase):
    """The bytes of an answer, until its time is over: a server that sends a byte now and then, or headers without end, would
    keep its reader for ever, since bytes flow."""

    def __init__(self, raw: Any, connection: Any, seconds: float):
        self.raw, self.connection, self.seconds = raw, connection, seconds
        self.end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> Any:
        left = self.end - time.monotonic()
        if left <= 0:
            raise _TooSlow(f"the answer was not complete after {self.seconds:.0f} s")
        if self.connection is not None:
            self.connection.settimeout(min(left, self.connection.gettimeout() or left))
        return self.raw.readinto(view)

    def close(self) -> None:
        self.raw.close()
        super().close()


class _TooSlow(TimeoutError):
    """The answer takes too long, though bytes come."""


def _limited(seconds: float, sock: Any, **options: Any) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(sock, **options)
    answer.fp = io.BufferedReader(_Limited(answer.fp.detach(), sock, seconds))
    return answer


class _Kept(urllib.request.HTTPRedirectHandler, urllib.request.HTTPHandler):
    """Keeps the connection to a server until `drop`. As in curl and requests, headers of the caller (a token) are not sent
    to another server."""

    handler_order = 400  # before urllib's own handler of https
    to: Any = None
    n_wanted = 0  # bytes of the next answer
    parent: Any = None

    def opener(self) -> urllib.request.OpenerDirector:
        """As urllib.request.build_opener(self), made once, and with no handlers for files and ftp."""
        if self.parent is None:
            others = urllib.request.ProxyHandler, urllib.request.UnknownHandler, urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPErrorProcessor
            opener = urllib.request.OpenerDirector()
            for handler in (*(x() for x in others), self):
                opener.add_handler(handler)
        found: urllib.request.OpenerDirector = self.parent
        return found

    def http_open(self, req: Any) -> Any:
        return self.ask(http.client.HTTPConnection, req)

    if hasattr(http.client, "HTTPSConnection"):  # Python may be without ssl

        def https_open(self, req: Any) -> Any:
            return self.ask(http.client.HTTPSConnection, req)

        https_request = urllib.request.HTTPHandler.http_request

    def ask(self, kind: Any, req: Any) -> Any:
        headers = {name.title(): value for name, value in (*req.unredirected_hdrs.items(), *req.headers.items())}
        tunnel = req._tunnel_host  # through a proxy; only the proxy gets the credentials
        proof = headers.pop("Proxy-Authorization", None) if tunnel else None
        if self.to != (kind, req.host, tunnel):
            self.drop()
            self.to, self.connection = (kind, req.host, tunnel), kind(req.host, timeout=req.timeout)
            if tunnel:
                self.connection.set_tunnel(tunnel, headers={"Proxy-Authorization": proof} if proof else {})
        if req.timeout is not None:
            self.connection.response_class = partial(_limited, req.timeout + self.n_wanted / SLOWEST)
        while True:
            is_kept = self.connection.sock is not None
            if is_kept:
                self.connection.sock.settimeout(req.timeout)  # the answer before has changed it
            try:
                self.connection.request(req.get_method(), req.selector, headers=headers)
                response = self.connection.getresponse()
            except BaseException as error:
                self.drop()
                if is_kept and isinstance(error, ConnectionError):
                    continue  # the server has closed the kept connection: try a new one
                raise
            response.url, response.msg = req.full_url, response.reason
            return response

    def drop(self) -> None:
        if self.to is not None:
            self.connection.close()

    __del__ = drop

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if fp.length != 0:  # urllib would read the whole body
            fp.close()
            self.drop()
        if not newurl.lower().startswith(("http://", "https://")):
            raise urllib.error.HTTPError(req.full_url, code, f"{msg}, to {newurl!r}", headers, fp)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            request.headers = {name: value for name, value in request.headers.items() if name in KEPT}
        return request


def take_options(options: dict[str, Any]) -> tuple[dict[str, str], float | None]:
    """Headers and timeout of `storage_options`. Headers by name are at the top level or, as in fsspec, in "headers"."""
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
    """Counts consecutive failures, and waits longer after each."""

    def __init__(self, http: HTTP):
        self.http, self.url, self.n_failed = http, http.url, 0

    @contextmanager
    def one(self) -> Iterator[None]:
        try:
            yield
        except LMCError:
            raise
        except (OSError, http.client.HTTPException) as error:
            self.http.place = self.url
            self._wait_after(error)

    def _wait_after(self, error: Exception) -> None:
        """Raises the error if another try would not help."""
        self.n_failed += 1
        if not _is_passing(error) or self.n_failed == TRIES:
            raise self._explain(error) from error
        import random

        wait = FIRST_WAIT * 2 ** (self.n_failed - 1) * (0.5 + random.random())  # random, so that many readers do not try again at the same time
        if isinstance(error, urllib.error.HTTPError):
            asked = error.headers.get("Retry-After", "")
            if asked.isascii() and asked.isdigit():
                wait = max(wait, int(asked[:9]))
            error.close()
        time.sleep(min(wait, LAST_WAIT))

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, urllib.error.HTTPError):
            text = printable(" ".join(f"HTTP {error.code} {error.reason}".split()))  # some of urllib's reasons have several lines
            error.close()
            if error.code in (404, 410):
                return FileNotFoundError(errno.ENOENT, text, self.url)
            if error.code in (401, 403):
                return PermissionError(errno.EACCES, text, self.url)
        elif isinstance(error, _TooSlow):
            text = f"{error}: it comes at less than {SLOWEST >> 10} KiB/s (storage_options={{'timeout': ...}} adds seconds)"
        elif isinstance(error, TimeoutError):
            text = f"no answer for {self.http.timeout} s (storage_options={{'timeout': ...}} says how long to wait)"
        elif isinstance(error, http.client.IncompleteRead):
            text = "the connection ended early"
        else:
            text = str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__
        tried = f", {self.n_failed} times" if self.n_failed > 1 else ""
        return ReadError(f"{self.url}: {text}{tried}")


class _ShortAnswer(OSError):
    """An answer that is complete, but much shorter than the request: going on would take a request for every few bytes."""


def _is_passing(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in PASSING
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    broken = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError, http.client.IncompleteRead, _ShortAnswer)
    return isinstance(error, broken) or type(error).__name__ == "SSLEOFError"


class HTTP(Ranges):
    """Ranges of a URL. The first request reads the end of the file and tells its size."""

    can_fetch_at_once = True

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__(-1)
        self.headers, self.timeout = take_options(options)
        self.url = self.place = url  # place: the URL of the last answer, after redirections; its signature may expire
        self.idle: list[_Kept] = []
        self.tag: str | None = None
        self._find_end()

    # -- requests --

    @contextmanager
    def _ask(self, wanted: str | None, method: str = "GET") -> Iterator[Any]:
        """The answer. If all of it was read, the next request gets its connection."""
        is_read = False
        try:
            kept = self.idle.pop()
        except IndexError:
            kept = _Kept()
        try:
            with closing(self._open(kept, wanted, method)) as answer:
                yield answer
                is_read = answer.isclosed()
        finally:
            if is_read:
                self.idle.append(kept)
            else:
                kept.drop()

    def _open(self, kept: _Kept, wanted: str | None, method: str) -> Any:
        opener = kept.opener()
        first, _, last = (wanted or "").partition("-")
        kept.n_wanted = int(last) + 1 - int(first or 1) if last else 0
        while True:
            place = self.place
            is_first = _origin(place) == _origin(self.url)
            headers = dict(self.headers) if is_first else {k: v for k, v in self.headers.items() if k.capitalize() in KEPT}
            if wanted is not None:
                headers["Range"] = f"bytes={wanted}"
            try:
                answer = opener.open(urllib.request.Request(place, headers=headers, method=method), timeout=self.timeout)
            except urllib.error.HTTPError as error:
                kept.drop()
                if place == self.url or not 400 <= error.code < 500 or error.code in PASSING:
                    raise  # PASSING: _Tries waits first
                error.close()
                self.place = self.url
                continue
            except ValueError as error:  # a redirection to no valid URL
                raise self._refuse(str(error)) from None
            self.place = answer.geturl()
            encoding = answer.headers.get("Content-Encoding") or "identity"
            if encoding.lower() in ("identity", "aws-chunked"):  # some stores repeat the aws-chunked of the upload
                return answer
            answer.close()
            raise self._refuse(
                f"the server sends the file compressed (Content-Encoding: {encoding[:40]}), though it was asked not to: have"
                " it stored and sent as it is, or download the file instead"
            )

    def _refuse(self, text: str) -> LMCError:
        return ReadError(f"{self.url}: {text}")

    def _take_range(self, answer: Any) -> tuple[int, int, int]:
        """Of an answer with a range: first byte, end, size of the file (-1: unknown)."""
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if answer.status != 206 or found is None or int(found[1]) > int(found[2]):
            raise self._refuse("the server does not take requests for ranges; download the file instead")
        tag = answer.headers.get("ETag")
        if self.tag is not None and tag != self.tag:
            raise self._refuse(CHANGED)
        self.tag = tag
        return int(found[1]), int(found[2]) + 1, -1 if found[3] == "*" else int(found[3])

    def _check_end(self, answer: Any) -> None:
        """Raises if the answer has more bytes than were requested."""
        if not answer.isclosed() and answer.read(1):
            raise self._refuse(MORE)

    # -- the end of the file, which is read first --

    def _find_end(self) -> None:
        tries = _Tries(self)
        while self.size < 0:
            with tries.one():
                if not self._read_end():
                    self.size = self._find_size()
        if self.tail_at < 0:
            start = max(self.size - TAIL, 0)
            self.tail = memoryview(_lmc.new_bytes(self.size - start))
            self.fetch(start, self.tail)
            self.tail_at = start

    def _read_end(self) -> bool:
        """Reads the end with one request. False: the server does not support requests for the last bytes."""
        try:
            with self._ask(f"-{TAIL}") as answer:
                start, end, size = (0, answer.length, answer.length) if answer.status == 200 else self._take_range(answer)
                if end is not None and (end - start > TAIL or size not in (-1, end)):
                    return False
                data = answer.read(TAIL + 1 if end is None else end - start)  # None: the whole file, in chunks
                if end is None and len(data) > TAIL:
                    return False
                self._check_end(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (400, 416, 501):
                raise
            error.close()
            return False
        if end is not None and len(data) < end - start:
            raise http.client.IncompleteRead(data, end - start - len(data))
        self.tail, self.tail_at, self.size = memoryview(data), start, start + len(data)
        return True

    def _find_size(self) -> int:
        with self._ask("0-0") as answer:
            size = self._take_range(answer)[2]
        if size >= 0:
            return size
        with self._ask(None, "HEAD") as answer:
            length = answer.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise self._refuse("the server does not tell the size of the file; download it instead")
        return int(length)

    # -- reading --

    def fetch(self, offset: int, view: memoryview) -> None:
        """After a broken connection, another one continues."""
        tries, n = _Tries(self), 0
        while n < len(view):
            with tries.one():
                with self._ask(f"{offset + n}-{offset + len(view) - 1}") as answer:
                    start, end, size = self._take_range(answer)
                    if start != offset + n or size not in (-1, self.size):
                        raise self._refuse(CHANGED)
                    if end > offset + len(view):
                        raise self._refuse(MORE)
                    while offset + n < end:
                        got = answer.readinto(view[n : min(n + STEP, end - offset)])
                        if not got:
                            raise http.client.IncompleteRead(b"", end - offset - n)
                        n += got
                        if got == STEP:
                            tries.n_failed = 0
                    self._check_end(answer)
                if n < len(view) and end - start < LITTLE:  # an answer may be shorter than the request
                    raise _ShortAnswer(f"the server gives only {end - start} bytes at a time; download the file instead")

    def forget(self) -> None:
        while self.idle:
            self.idle.pop().drop()
        super().forget()
