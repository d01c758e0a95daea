"""How many threads."""

from __future__ import annotations

import os


def count_threads(threads: int | None) -> int:
    """None: as many as this process may use, at most 8. Threads start when there is work for them."""
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads is {threads}, not 1 to 1024")
        return threads
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)
