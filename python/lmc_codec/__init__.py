"""Lossless compression of tensors and checkpoints: LMC files, and deltas between them.

    data = lmc_codec.compress(array)             # numpy, torch, ml_dtypes, DLPack, buffers
    array = lmc_codec.decompress(data)

    with lmc_codec.Writer("model.lmc") as w:     # many tensors, files, metadata
        w.add("embed.weight", array)
    with lmc_codec.open("model.lmc") as r:       # paths, URLs, file objects
        r.keys(), r.get("embed.weight"), r.get_slice("embed.weight")[10:20]

    from lmc_codec.torch import save_file, load_file, safe_open   # as in safetensors; lmc_codec.numpy, too
"""

from __future__ import annotations

from typing import Any

from . import _lmc
from ._base import Base
from ._codec import bound, compress, decompress, tensor_decode, tensor_encode
from ._errors import (
    AmbiguousError,
    ArgumentError,
    BaseError,
    CancelledError,
    ChecksumError,
    CorruptError,
    FormatError,
    LimitError,
    LMCError,
    LostError,
    MissingBaseError,
    NotFoundError,
    NotLMCError,
    OutputTooSmallError,
    ReadError,
    TruncatedError,
    UnsupportedError,
    WriteError,
    WrongBaseError,
)
from ._reader import FileInfo, Loss, Reader, Slice, TensorInfo, open
from ._writer import Writer

__version__: str = _lmc.versions()[0]
#: The instruction set in use: "avx512", "avx2", "neon", "scalar".
tier: str = _lmc.versions()[2]

__all__ = [
    "AmbiguousError",
    "ArgumentError",
    "Base",
    "BaseError",
    "CancelledError",
    "ChecksumError",
    "CorruptError",
    "FileInfo",
    "FormatError",
    "LMCError",
    "LimitError",
    "Loss",
    "LostError",
    "MissingBaseError",
    "NotFoundError",
    "NotLMCError",
    "OutputTooSmallError",
    "ReadError",
    "Reader",
    "Slice",
    "TensorInfo",
    "TruncatedError",
    "UnsupportedError",
    "WriteError",
    "Writer",
    "WrongBaseError",
    "bound",
    "compress",
    "decompress",
    "open",
    "safe_open",
    "tensor_decode",
    "tensor_encode",
    "tier",
]


def __getattr__(name: str) -> Any:
    if name == "safe_open":  # what it needs is loaded when it is used
        from ._safetensors import safe_open

        return safe_open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
