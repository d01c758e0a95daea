"""safetensors.numpy for LMC files: `from lmc_codec.numpy import save_file, load_file`."""

from __future__ import annotations

from ._arguments import check_bytes
from ._safetensors import read_file, safe_open, write_bytes, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    import os
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from ._types import Backend, Level, OnError, Progress

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def _little(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Makes big-endian arrays little-endian, as safetensors does."""
    return {
        name: x.astype(x.dtype.newbyteorder("<")) if getattr(getattr(x, "dtype", None), "byteorder", "") == ">" else x
        for name, x in tensors.items()
    }


def save_file(
    tensor_dict: Mapping[str, Any], filename: str | os.PathLike[str], metadata: dict[str, str] | None = None, *,
    base: Any = None, level: Level = 0, threads: int | None = None, quantize: Any = None,
    progress: Progress | None = None
) -> None:
    """Saves arrays to an LMC file. The command `lmc -d` restores the file that safetensors would have written."""
    write_file(
        _little(tensor_dict), filename, metadata, base=base, level=level, threads=threads, quantize=quantize,
        progress=progress
    )


def save(
    tensor_dict: Mapping[str, Any], metadata: dict[str, str] | None = None, *, base: Any = None, level: Level = 0,
    threads: int | None = None
) -> bytes:
    """Like save_file, but returns bytes."""
    return write_bytes(_little(tensor_dict), metadata, base=base, level=level, threads=threads)


def load_file(
    filename: Any, *, backend: Backend = "mmap", base: Any = None, threads: int | None = None,
    progress: Progress | None = None, storage_options: dict[str, Any] | None = None, on_error: OnError = "raise",
    out: Mapping[str, NDArray[Any]] | None = None
) -> dict[str, NDArray[Any]]:
    """All arrays of an LMC file.

    out: arrays by name, to which those of the same names are decoded; the result has them, and new arrays for other names.
    Another dtype or shape is a ValueError before anything is read. If the file is damaged, arrays before the damage have
    been overwritten; the error names the damaged one.

    on_error: "skip" leaves out arrays that numpy cannot have, and names of several arrays, with a UserWarning.
    """
    return read_file(
        filename, "numpy", backend=backend, base=base, threads=threads, progress=progress,
        storage_options=storage_options, on_error=on_error, out=out
    )


def load(data: Any, *, base: Any = None, threads: int | None = None) -> dict[str, NDArray[Any]]:
    """Like load_file, but from bytes."""
    check_bytes(data, "load", "load_file() takes paths, URLs and files")
    return read_file(data, "numpy", base=base, threads=threads)
