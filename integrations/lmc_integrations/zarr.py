"""A codec for zarr v3. zarr finds it by its name in the metadata, "lmc", so reading needs no import.

    zarr.create_array(..., compressors=lmc_integrations.zarr.LMCCodec())
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._core import _chunks, level_number
from ._hosts import Host

with Host("zarr", "zarr") as host:
    from zarr.abc.codec import BytesBytesCodec

if TYPE_CHECKING:
    from typing import Self

    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

    from lmc_codec._types import Level

__all__ = ["LMCCodec"]


@host.extends
@dataclass(frozen=True)
class LMCCodec(BytesBytesCodec):
    """level: as for lmc_codec.compress. dtype: of the elements, if the array has another data type: "BF16" for bf16 that is
    stored as uint16. Put it directly after the codec that makes bytes: no other codec may shuffle them first."""

    is_fixed_size = False

    level: int = 0
    dtype: str | None = None

    def __init__(self, *, level: Level = 0, dtype: Any = None):
        object.__setattr__(self, "level", level_number(level))
        object.__setattr__(self, "dtype", _chunks.check_dtype(dtype))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        configuration = data.get("configuration") or {}
        if data.get("name") != "lmc" or not configuration.keys() <= {"level", "dtype"}:
            raise ValueError(f"no configuration of the codec lmc: {data!r}")
        return cls(**configuration)

    def to_dict(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {"level": self.level}
        if self.dtype is not None:
            configuration["dtype"] = self.dtype
        return {"name": "lmc", "configuration": configuration}

    def validate(self, *, dtype: Any, **kwargs: Any) -> None:
        if self.dtype is not None:
            _chunks.check_width(self.dtype, dtype.to_native_dtype())

    def _encode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        dtype = self.dtype or _chunks.find_dtype(chunk_spec.dtype.to_native_dtype())
        made = _chunks.encode(chunk_data.as_numpy_array(), dtype, self.level)
        return chunk_spec.prototype.buffer.from_bytes(made)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        made = _chunks.decode(chunk_data.as_numpy_array(), max_size=_most_bytes(chunk_spec))
        return chunk_spec.prototype.buffer.from_bytes(made)

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        raise NotImplementedError


def _most_bytes(spec: ArraySpec) -> int | None:
    """Upper bound of a chunk's bytes, with what earlier codecs may add (checksums). None: elements have no fixed size."""
    dtype = spec.dtype.to_native_dtype()
    if dtype.hasobject or dtype.kind == "T":
        return None
    n = dtype.itemsize
    for i in spec.shape:
        n *= i
    return n + n // 8 + 4096
