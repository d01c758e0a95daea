"""Checks of arguments, with the messages for wrong ones."""

from __future__ import annotations

import sys

from . import _lmc
from ._errors import ArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._types import Level

LEVELS = {"fast": -1, "default": 0, "max": 1, "archive": 2}
MAX_THREADS = 1024
MAX_SIZE = 65535  # of names (spec 4.1)


def check_time(what: str) -> None:
    """Raises at the end of the interpreter, where no module can be imported, and no other thread gets the GIL."""
    if sys.is_finalizing():
        raise RuntimeError(f"Python is ending, so no LMC file can be {what} any more, as in this __del__(): do it in a function of atexit")


def level_number(level: Level) -> int:
    number = LEVELS.get(level) if isinstance(level, str) else level
    if number is None or isinstance(number, bool) or number not in LEVELS.values():
        raise ValueError(f"level {level!r} is none of {', '.join(LEVELS)}, nor -1 to 2")
    return int(number)


def count_threads(threads: int | None) -> int:
    """None: the CPUs that this process may use (affinity, quota of a container), at most 16, as the command has it.

    Threads start when there is work.
    """
    if threads is not None:
        if isinstance(threads, bool) or not hasattr(threads, "__index__"):
            raise TypeError(f"threads is {threads!r}, not a number from 1 to {MAX_THREADS}, nor None")
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads is {threads}, not 1 to {MAX_THREADS}")
        return int(threads)
    return _lmc.default_workers()


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is {progress!r}: it must be a function that is called with (done, total), or None")


# -- names of files, tensors and metadata of a snapshot --


def _check_size(text: str, what: str) -> None:
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > MAX_SIZE:
        raise ArgumentError(f"{what} {text[:40]!r}... has {size} bytes: at most {MAX_SIZE} are possible")
    if "\0" in text:
        raise ArgumentError(f"{what} {text!r} has a zero byte")


def check_path(path: str) -> None:
    if not isinstance(path, str):
        raise TypeError(f"a path in the snapshot is a string, not {path!r}")
    _check_size(path, "the path")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ArgumentError(
            f"{path!r} cannot be a path in the snapshot: it is relative, its parts have / between them, and none of them is"
            " empty, '.' or '..'",
        )


def check_names(names: Iterable[str]) -> None:
    for name in names:
        _check_size(name, "the name")


def check_name(name: object, what: str = "a name") -> None:
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, not {name!r}")


def check_key(key: str, keys: set[str]) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key of metadata is a string, not {key!r}")
    _check_size(key, "the key")
    if not key or key.startswith("lmc."):
        raise ArgumentError(f"{key!r} cannot be a key of metadata: it is empty, or begins with 'lmc.', which is the format's")
    if key in keys:
        raise ArgumentError(f"the metadata have {key!r} already")


def check_choice(argument: str, value: object, *choices: str) -> None:
    if value not in choices:
        raise ValueError(f"{argument} is {' or '.join(map(repr, choices))}, not {value!r}")


# -- functions that take data must refuse names of files: else data from a stranger could open a file --


def check_bytes(data: Any, function: str, instead: str) -> None:
    try:
        memoryview(data)
    except TypeError:
        raise TypeError(f"{function}() takes bytes, not {type(data).__name__}: {instead}") from None
