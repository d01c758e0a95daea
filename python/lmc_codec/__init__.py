"""Lossless compression of tensors and checkpoints: LMC files, and deltas between them.

    data = lmc_codec.compress(array)             # numpy, torch, ml_dtypes, DLPack, buffers
    array = lmc_codec.decompress(data)

    with lmc_codec.Writer("model.lmc") as w:     # many tensors, files, metadata
        w.add("embed.weight", array)
    with lmc_codec.open("model.lmc") as r:       # paths, URLs, file objects
        r.keys(), r.get("embed.weight"), r.get_slice("embed.weight")[10:20]

    from lmc_codec.torch import save_file, load_file, safe_open   # as in safetensors; lmc_codec.numpy, too

docs/python.md explains it.
"""

from __future__ import annotations

from . import _lmc

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

    from ._base import Base
    from ._codec import bound, compress, decompress, tensor_decode, tensor_encode
    from ._errors import *
    from ._probe import Probe, probe
    from ._reader import FileInfo, Loss, Reader, Slice, TensorInfo, Verified, open, verify
    from ._safetensors import safe_open
    from ._writer import Writer

__version__: str = _lmc.versions()[0]
#: The instruction set in use: "avx512", "avx2", "neon", "scalar".
tier: str = _lmc.versions()[2]

__all__ = [
    "AmbiguousError", "ArgumentError", "Base", "BaseError", "CancelledError", "ChangedError", "ChecksumError", "CorruptError",
    "DeviceError", "FileInfo", "FormatError", "LMCError", "LimitError", "Loss", "LostError", "MissingBaseError", "NotFoundError", "NotLMCError",
    "OutputTooSmallError", "Probe", "ReadError", "Reader", "Slice", "TensorInfo", "TruncatedError", "UnsupportedError", "Verified",
    "WriteError", "Writer", "WrongBaseError", "bound", "compress", "decompress", "open", "probe", "safe_open", "tensor_decode",
    "tensor_encode", "tier", "verify"
]  # fmt: skip
#: Each imports those before it.
_MODULES = ("_errors", "_codec", "_base", "_reader", "_writer", "_safetensors", "_probe")
_SUBMODULES = ("numpy", "torch")


def __getattr__(name: str) -> Any:
    """Modules are loaded when they are first used, so that importing the package takes next to no time."""
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    for module in _MODULES if name in __all__ else ():
        found = vars(import_module(f"{__name__}.{module}"))
        if name in found:
            globals()[name] = found[name]
            return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
