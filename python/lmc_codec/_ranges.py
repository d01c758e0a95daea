"""Ranges of remote files: what is read ahead, kept, and fetched at once. _http.py and _sources.py have what fetches them."""

from __future__ import annotations

import os
from _thread import allocate_lock
from bisect import bisect_right
from operator import itemgetter

from . import _lmc
from ._locks import locked

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable

TAIL = 64 << 10  # bytes at the end that the library reads first
PIECE = 32 << 20  # the most bytes that are read ahead
PART, AT_ONCE = 4 << 20, 8  # bytes of a parallel request; number of them
SCATTERED = 32  # requests at a time for what prefetch() reads: most of their time is waiting
NEAR = 64 << 10  # a gap of at most so many bytes is read, not skipped


class Ranges:
    """Calls read ranges of a remote file. Expected bytes are read ahead in pieces. A piece is kept until its last byte was
    returned; the next piece is twice as long. Subclasses have fetch(offset, view), which fills the view."""

    can_fetch_at_once = False  # whether several threads may call fetch()

    def __init__(self, size: int) -> None:
        self.lock, self.pid = allocate_lock(), os.getpid()
        self.size = size
        self.piece, self.piece_at, self.piece_end = memoryview(b""), 0, 0
        self.aside_end = size  # of what was read aside last, if nothing of the piece was read since
        self.tail, self.tail_at = memoryview(b""), size  # the end of the file that was read already
        self.expected = (0, 0)
        self.kept: list[tuple[int, memoryview]] = []  # what prefetch() has read, in order

    def expect(self, start: int, end: int) -> None:
        self.expected = (start, end)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Reads ranges (first byte, end), as many as possible at once. They are kept until the next call."""
        self._check_pid()
        locked(self.lock, self._prefetch, ranges)

    def _prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.kept = []
        joined: list[list[int]] = []
        for start, end in sorted(ranges):
            if joined and start <= joined[-1][1] + NEAR:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        views = [(start, memoryview(_lmc.new_bytes(end - start))) for start, end in joined if start < self.tail_at]
        parts = []
        for start, view in views:
            n = min(len(view), self.tail_at - start)
            view[n:] = self.tail[: len(view) - n]
            parts += [(start + at, view[at : min(at + PART, n)]) for at in range(0, n, PART)]
        self._fetch_all(parts, SCATTERED)
        self.kept = views

    def __call__(self, offset: int, size: int) -> memoryview:
        self._check_pid()
        return locked(self.lock, self._get, offset, size)

    def _get(self, offset: int, size: int) -> memoryview:
        end = offset + size
        if offset >= self.tail_at:
            return self.tail[offset - self.tail_at : end - self.tail_at]
        number = bisect_right(self.kept, offset, key=itemgetter(0)) - 1
        if number >= 0:
            start, view = self.kept[number]
            if end <= start + len(view):
                return view[offset - start : end - start]
        if not self.piece or offset < self.piece_at or end > self.piece_end:
            is_next = self.piece_at <= offset <= self.piece_end + NEAR
            goes_on = self.aside_end <= offset <= self.aside_end + NEAR  # then the reader has left the piece
            if self.piece and size <= NEAR and not is_next and not goes_on and not self.expected[0] <= offset < self.expected[1]:
                return self._read_aside(offset, size)
            self._read(offset, size, is_next)
        self.aside_end = self.size
        found = self.piece[offset - self.piece_at : end - self.piece_at]
        if end == self.piece_end:
            self.piece = memoryview(b"")
        return found

    def _read_aside(self, offset: int, size: int) -> memoryview:
        """Reads a small range, such as rows of the table of blocks, and keeps the current piece for the next range."""
        data = memoryview(_lmc.new_bytes(size))
        n = min(size, self.tail_at - offset)
        self.fetch(offset, data[:n])
        data[n:] = self.tail[: size - n]
        self.aside_end = offset + size
        return data

    def _read(self, offset: int, size: int, is_next: bool) -> None:
        """Reads a piece that begins with that range. Bytes that are in memory already are not fetched again."""
        old, at = self.piece, offset - self.piece_at
        length = max(self.expected[1] - offset if self.expected[0] <= offset else 0, 2 * (self.piece_end - self.piece_at) * is_next)
        piece = memoryview(_lmc.new_bytes(max(size, min(length, PIECE, self.size - offset))))
        begin, end = 0, len(piece)
        if is_next and at < len(old):
            begin = len(old) - at
            piece[:begin] = old[at:]
        if offset + end > self.tail_at:
            end = self.tail_at - offset
            piece[end:] = self.tail[: len(piece) - end]
        self.piece = old = memoryview(b"")  # frees its memory before the next is used
        if begin < end:
            self._fetch(offset + begin, piece[begin:end])
        self.piece, self.piece_at, self.piece_end = piece, offset, offset + len(piece)

    def _fetch(self, offset: int, view: memoryview) -> None:
        """Fetches a large range in parallel parts: a single connection is often slower than the network."""
        if len(view) < 2 * PART or not self.can_fetch_at_once:
            return self.fetch(offset, view)
        self._fetch_all([(offset + at, view[at : at + PART]) for at in range(0, len(view), PART)], AT_ONCE)

    def _fetch_all(self, parts: list[tuple[int, memoryview]], at_once: int) -> None:
        if len(parts) < 2 or not self.can_fetch_at_once:
            for offset, view in parts:
                self.fetch(offset, view)
            return
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(min(at_once, len(parts)))
        try:
            list(pool.map(lambda part: self.fetch(*part), parts))
        except BaseException:
            pool.shutdown(False, cancel_futures=True)  # after an interruption, do not wait for the other parts
            raise
        pool.shutdown()

    def fetch(self, offset: int, view: memoryview) -> None:
        raise NotImplementedError

    def _check_pid(self) -> None:
        """After a fork, connections and perhaps the lock belong to the parent."""
        if self.pid != os.getpid():
            self.lock, self.pid = allocate_lock(), os.getpid()
            self.forget()

    def forget(self) -> None:
        """Frees bytes in memory; they can be fetched again."""
        self.piece = self.tail = memoryview(b"")
        self.tail_at, self.kept = self.size, []

    def close(self) -> None:
        """Readers with this base can go on; the end of the file is then read again, too."""
        self._check_pid()
        if not self.lock.locked():  # else a read is running: in another thread, or in this one, interrupted by a signal handler
            locked(self.lock, self.forget)  # waits at most for a read that another thread has begun meanwhile
