"""Types for type checkers only: nothing imports this module at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

#: Bytes done, and all bytes (None: not known).
Progress: TypeAlias = Callable[[int, int | None], Any]
#: Each is smaller and slower than the one before; as numbers: -1 to 2.
Level: TypeAlias = Literal["fast", "default", "max", "archive"] | int
NumpyName: TypeAlias = Literal["np", "numpy"]
TorchName: TypeAlias = Literal["pt", "torch", "pytorch"]
BytesName: TypeAlias = Literal["bytes"]
Framework: TypeAlias = NumpyName | TorchName | BytesName
Backend: TypeAlias = Literal["mmap", "pread"]
#: What to do with a tensor that cannot be loaded.
OnError: TypeAlias = Literal["raise", "skip"]
#: Where tensors are decoded; "gpu" is experimental.
Decode: TypeAlias = Literal["cpu", "gpu"]
