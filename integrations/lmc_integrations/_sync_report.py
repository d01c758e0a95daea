"""What weight_sync.publish() and receive() report: a line of text, which also has numbers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from ._core import locked


class Report(str):
    """The text that the command prints. changed: the names of the tensors that changed, sorted. metrics: numbers by name,
    and "seconds" by phase. Phases run in several threads, and their seconds are added up; "total" is that of the clock."""

    changed: list[str]
    metrics: dict[str, Any]

    def __new__(cls, text: str, changed: list[str], metrics: dict[str, Any]) -> Report:
        self = super().__new__(cls, text)
        self.changed, self.metrics = changed, metrics
        return self

    def __reduce__(self) -> Any:
        return Report, (str(self), self.changed, self.metrics)  # for pickle: ranks send them to each other

    def as_json(self) -> dict[str, Any]:
        return {**self.metrics, "changed": self.changed}


class Clock:
    """Seconds by phase, of all threads."""

    def __init__(self, *phases: str) -> None:
        self.start, self.lock = time.perf_counter(), threading.Lock()
        self.phases = dict.fromkeys(phases, 0.0)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            locked(self.lock, self._add, name, time.perf_counter() - start)

    def _add(self, name: str, seconds: float) -> None:
        self.phases[name] = self.phases.get(name, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        found = {**self.phases, "total": time.perf_counter() - self.start}
        return {name: round(x, 6) for name, x in found.items()}
