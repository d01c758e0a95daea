"""Saves that go on in a thread, after the call has returned: at most one in a process."""

from __future__ import annotations

import atexit
import os
from _thread import RLock, allocate_lock, get_ident, start_new_thread
from collections import deque

from ._locks import locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


class Saving:
    """A save that goes on in a thread. If it fails, wait() raises its error; if nobody calls that, the next save does, or the
    interpreter prints it at exit."""

    def __init__(self, work: Callable[[], Any]):
        self._pid = os.getpid()
        self._ident = 0  # of the thread
        self._lock = allocate_lock()  # of the next three
        self._todo = deque([work])
        self._has_begun = self._is_over = False
        self._busy = allocate_lock()  # locked from the start to the end, and in who looks whether it has ended
        self._has_ended = False
        self._error: BaseException | None = None
        self._is_told = False

    def wait(self) -> None:
        """Waits until all is on the disk. Raises what went wrong. Ctrl-C ends only the waiting."""
        if self._pid != os.getpid():
            raise RuntimeError(f"the save belongs to process {self._pid}, which this one was forked from")
        self._await()
        if self._error is not None:
            try:
                raise self._error
            finally:  # not before: an interrupt may come between
                self._is_told = True

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._pid == os.getpid() and self._has_ended

    def _await(self) -> None:
        while not self._has_ended:  # once more each second: an exception may leave the lock to nobody
            if self._busy.acquire(timeout=1):
                self._busy.release()

    def _start(self) -> None:
        global _last
        self._busy.acquire()
        _last = self
        start_new_thread(self._run, ())

    def _cancel(self) -> bool:
        """False: the thread has begun."""

        def cancel() -> bool:
            if self._has_begun:
                return False
            self._todo.clear()
            self._is_over = self._has_ended = True
            if self._busy.locked():
                self._busy.release()
            return True

        return locked(self._lock, cancel)

    def _next(self) -> Callable[[], Any] | None:
        with self._lock:  # in the thread, where no signal handler runs
            self._is_over = self._is_over or not self._todo
            if self._is_over:
                return None
            self._has_begun = True
            return self._todo.popleft()

    def _run(self) -> None:
        work = self._next()
        if work is None:  # it was cancelled
            return
        self._ident = get_ident()
        try:
            while work is not None:
                work()
                work = self._next()
        except BaseException as error:
            self._error = error
            with self._lock:
                self._todo.clear()
                self._is_over = True
        finally:
            del work  # it may hold a copy of a state
            self._ident = 0
            self._has_ended = True
            self._busy.release()

    def _then(self, work: Callable[[], Any]) -> bool:
        """Does this, too, unless something fails before. False: it is over."""

        def add() -> bool:
            if not self._is_over:
                self._todo.append(work)
            return not self._is_over

        return locked(self._lock, add)


_last: Saving | None = None
_turn = RLock()


def _in_flight() -> Saving | None:
    """The last save of this process, unless this is its own thread."""
    saving = _last
    return None if saving is None or saving._pid != os.getpid() or saving._ident == get_ident() else saving


def settle() -> None:
    """Waits for the save that goes on. Raises its error if nobody was told."""
    saving = _in_flight()
    if saving is not None:
        saving._await()
        if not saving._is_told:
            saving.wait()


def await_end() -> None:
    """Waits for the save that goes on. Its error is raised later."""
    saving = _in_flight()
    if saving is not None:
        saving._await()


def do_after(work: Callable[[], Any]) -> None:
    """Does this now, or in the thread of the save that goes on, after it. Not if that fails, or has failed and nobody was told."""
    saving = _in_flight()
    if saving is None or not (saving._then(work) or (saving._error is not None and not saving._is_told)):
        work()


def in_turn(prepare: Callable[[], T]) -> T:
    """Calls this, which begins a save in the end, when the save before has ended, and for one thread at a time."""

    def take_turn() -> T:
        settle()
        if _last is not None and _last._ident == get_ident():
            raise RuntimeError("wait=False: a callback of one save cannot begin another")
        return prepare()

    return locked(_turn, take_turn)


def begin(work: Callable[[], Any], abandon: Callable[[], Any] | None = None) -> Saving:
    """Does this in a thread. abandon: called before an exception if it will not be done."""
    saving = Saving(work)
    try:
        saving._start()
    except BaseException:
        if saving._cancel() and abandon is not None:
            abandon()
        raise
    return saving


def _after_fork() -> None:
    """A child has no such thread, and a lock of another thread would stay locked."""
    global _last, _turn
    _last, _turn = None, RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(settle)
