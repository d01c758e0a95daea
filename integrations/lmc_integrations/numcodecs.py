"""A codec for numcodecs: zarr v2, kerchunk and others find it by its name, "lmc", without an import.

    zarr.create_array(..., zarr_format=2, compressors=lmc_integrations.numcodecs.LMC())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_contiguous_ndarray_like

from ._core import _chunks, level_number

if TYPE_CHECKING:
    from lmc_codec._types import Level

__all__ = ["LMC"]


class LMC(Codec):
    """level: as for lmc_codec.compress. dtype: of the elements ("BF16"), if the array has another type: bf16 that is stored
    as uint16 or bytes."""

    codec_id = "lmc"

    def __init__(self, level: Level = 0, dtype: Any = None):
        self.level = level_number(level)
        self.dtype = _chunks.check_dtype(dtype)

    def encode(self, buf: Any) -> bytearray:
        dtype = getattr(buf, "dtype", None)
        array = ensure_contiguous_ndarray(buf)  # times become integers
        return _chunks.encode(
            array.view("u1"), self.dtype or _chunks.find_dtype(array.dtype if dtype is None else dtype), self.level
        )

    def decode(self, buf: Any, out: Any = None) -> Any:
        data = ensure_contiguous_ndarray(buf).view("u1")
        if out is None:
            return _chunks.decode(data)
        _chunks.decode(data, ensure_contiguous_ndarray_like(out).view("u1"))
        return out
