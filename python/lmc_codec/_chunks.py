"""Chunks of array stores: an array in memory (spec 10), as blocks that no file contains. They tell its size."""

from __future__ import annotations

from . import _arrays, _lmc
from ._errors import LimitError, TruncatedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_dtype(dtype: Any) -> str | None:
    """LMC's name of the dtype that the caller chose; None if there is none."""
    return None if dtype is None else _arrays.dtype_name(dtype)


def find_dtype(their: Any) -> str:
    """LMC's name of a dtype of numpy; "AUTO" if LMC has none: for text, records, big-endian numbers."""
    if their.hasobject or their.byteorder == ">" or (_arrays.SWAPPED and their.byteorder == "="):
        return "AUTO"
    if their.kind in "Mm":  # times are integers
        return "I64"
    try:
        return _arrays.dtype_name(their)
    except TypeError:
        return "AUTO"


def check_width(dtype: str, their: Any) -> None:
    """Raises unless elements of that dtype of numpy can be coded as elements of `dtype`."""
    if not their.hasobject and their.itemsize and 8 * their.itemsize % max(8, _arrays.BITS[dtype]):
        raise ValueError(f"elements of {their} are not made of {dtype}")


def encode(data: Any, dtype: str, level: int) -> bytearray:
    """data: bytes of elements of dtype, unless an earlier codec has changed them."""
    view = memoryview(data)
    if dtype != "AUTO" and 8 * view.nbytes % max(8, _arrays.BITS[dtype]):
        dtype = "AUTO"
    made: bytearray = _lmc.tensor_encode(view, dtype, level=level)
    return made


def decode(data: Any, out: Any = None, max_size: int | None = None) -> Any:
    """Decodes to `out`, a writable buffer of exactly that size, or to a new bytearray of at most max_size bytes."""
    size = _lmc.tensor_size(data)
    if not memoryview(data).nbytes and (out is None or len(out)):
        raise TruncatedError("the chunk is empty: it was cut, or never written; fetch or write it again")
    if out is None:
        if max_size is not None and size > max_size:
            raise LimitError(f"a chunk claims {size} bytes, and at most {max_size} were expected")
        out = _lmc.new_bytes(size)
    elif len(out) != size:
        raise ValueError(f"out has {len(out)} bytes, and the chunk {size}")
    _lmc.tensor_decode(data, out)
    return out
