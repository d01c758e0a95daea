"""Locks that no exception leaves to nobody."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


def locked(lock: Any, call: Callable[..., T], *args: Any) -> T:
    """call(*args) while this thread has the lock. A signal handler may raise at the end of each call, Ctrl-C for one: so a function around
    a lock may be left before the lock is given back, and so may `with lock` in CPython 3.14 (github.com/python/cpython/issues/148874).
    Here one call in C, inside of try, takes the lock and notes it, and finally makes no other call before the release."""
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (True,)))
        return call(*args)
    finally:
        if taken:
            lock.release()
