"""Types that are for type checkers alone: nothing imports this when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

#: Bytes done, and of how many: None where that is not known.
Progress: TypeAlias = Callable[[int, int | None], Any]
#: Ever smaller, ever slower; as numbers: -1 to 2.
Level: TypeAlias = Literal["fast", "default", "max", "archive"] | int
NumpyName: TypeAlias = Literal["np", "numpy"]
TorchName: TypeAlias = Literal["pt", "torch", "pytorch"]
BytesName: TypeAlias = Literal["bytes"]
Framework: TypeAlias = NumpyName | TorchName | BytesName
Backend: TypeAlias = Literal["mmap", "pread"]
#: What happens with a tensor that cannot be given.
OnError: TypeAlias = Literal["raise", "skip"]
#: What decodes; "gpu" is experimental.
Decode: TypeAlias = Literal["cpu", "gpu"]
