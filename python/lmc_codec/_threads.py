"""What calls take: how many threads, and who is told of progress."""

from __future__ import annotations

import os


MAX_THREADS = 1024


def count_threads(threads: int | None) -> int:
    """None: as many as this process may use, at most 8. Threads start when there is work for them."""
    if threads is not None:
        if isinstance(threads, bool) or not hasattr(threads, "__index__"):
            raise TypeError(f"threads is {threads!r}, not a number from 1 to {MAX_THREADS}, nor None")
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"threads is {threads}, not 1 to {MAX_THREADS}")
        return int(threads)
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is {progress!r}: it must be a function that is called with (done, total), or None")
