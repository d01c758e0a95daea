"""Codecs for payloads of weight sync, and checksums of tensors."""

from __future__ import annotations

import importlib
import json
import zlib

import numpy as np

from lmc_codec import BaseError, LMCError, ReadError

from ._core import _arrays, _lmc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

    from ._sync_files import Tensor

    class Codec(Protocol):
        """Codes the difference of two tensors. out may be old."""

        def encode(self, new: Bytes, old: Bytes, dtype: str) -> bytes | bytearray: ...
        def decode(self, out: Bytes, old: Bytes, payload: Bytes) -> None: ...


COPY_SIZE = 8 << 20


class SyncError(LMCError):
    """A refused call: nothing has changed. code: the exit code of the command."""

    code = 1


class SyncCorrupt(SyncError):
    code = 3


class SyncWrongBase(SyncError):
    code = 4


class SyncReadError(SyncError, ReadError):
    """A file was cut or changed by another process while it was read."""


class LMC:
    """Blocks of LMC; the old tensor is their prediction."""

    def encode(self, new: Bytes, old: Bytes, dtype: str) -> bytes | bytearray:
        return _lmc.tensor_encode(new.data, dtype if dtype in _arrays.BITS else "AUTO", old.data)

    def decode(self, out: Bytes, old: Bytes, payload: Bytes) -> None:
        try:
            _lmc.tensor_decode(payload.data, out.data, old.data)
        except BaseError as error:
            raise SyncWrongBase(str(error))
        except LMCError as error:
            raise SyncCorrupt(str(error))


class Zstd:
    """zstd of the xor, as slime and SkyRL use it. A wrong base looks like corrupt data: wrong checksum."""

    encoding = "xor"

    def __init__(self) -> None:
        self.zstd = import_package("zstandard")

    def encode(self, new: Bytes, old: Bytes, dtype: str) -> bytes:
        data: bytes = self.zstd.ZstdCompressor(level=1).compress(new ^ old)  # slime's level
        return data

    def decode(self, out: Bytes, old: Bytes, payload: Bytes) -> None:
        try:
            self.apply(out, old, payload)
        except (self.zstd.ZstdError, ValueError, IndexError) as error:
            raise SyncCorrupt("zstd + %s: %s" % (self.encoding, error))

    def apply(self, out: Bytes, old: Bytes, payload: Bytes) -> None:
        at = 0
        with self.zstd.ZstdDecompressor().stream_reader(payload) as stream:
            while chunk := stream.read(COPY_SIZE):
                end = at + len(chunk)
                np.bitwise_xor(old[at:end], np.frombuffer(chunk, np.uint8), out=out[at:end])
                at = end
        if at != out.size:
            raise ValueError("%d bytes in place of %d" % (at, out.size))


class ZstdOverwrite(Zstd):
    """zstd of a count (4 bytes), that many positions (4 bytes each), and that many new bytes."""

    encoding = "overwrite"

    def apply(self, out: Bytes, old: Bytes, payload: Bytes) -> None:
        data = np.frombuffer(self.zstd.ZstdDecompressor().stream_reader(payload).read(5 + 5 * out.size), np.uint8)
        count = int.from_bytes(data[:4], "little")
        if data.size != 4 + 5 * count:
            raise ValueError("%d bytes for %d positions" % (data.size, count))
        out[:] = old
        out[data[4:4 + 4 * count].view("<u4")] = data[4 + 4 * count:]


CODECS: dict[tuple[str, str], type[LMC] | type[Zstd]] = {
    ("lmc", "prediction"): LMC,
    ("zstd", "xor"): Zstd,
    ("zstd", "overwrite"): ZstdOverwrite,
}


def find_codec(where: str, compression: Any, encoding: Any) -> Codec:
    if compression not in ("lmc", "zstd"):
        raise SyncError("%s: compression_format %s is not one of lmc, zstd" % (where, ascii(compression)))
    if (compression, str(encoding)) not in CODECS:
        raise SyncError("%s: delta_encoding %s is not known with %s" % (where, ascii(encoding), compression))
    return CODECS[compression, str(encoding)]()


def import_package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SyncError("the Python package %s is missing: python3 -m pip install %s" % (name, name))


class Checksum:
    """A function that returns the checksum of bytes, in hexadecimal digits. new() makes an object that gets them in pieces."""

    def __init__(self, new: Callable[[], Any]):
        self.new = new

    def __call__(self, data: Bytes | bytes) -> str:
        state = self.new()
        state.update(data)
        return str(state.hexdigest())


class Adler32:
    def __init__(self) -> None:
        self.value = 1

    def update(self, data: Any) -> None:
        self.value = zlib.adler32(data, self.value)

    def hexdigest(self) -> str:
        return "%08x" % self.value


xxh3 = Checksum(lambda: import_package("xxhash").xxh3_128())


def find_checksum(algorithm: Any) -> Checksum:
    """A checksum by its name, which is slime's."""
    if algorithm == "adler32":
        return Checksum(Adler32)
    if algorithm == "xxh3-128":
        import_package("xxhash")
        return xxh3
    if algorithm == "blake3":
        return Checksum(import_package("blake3").blake3)
    raise SyncError("checksum_format %s is not one of xxh3-128, adler32, blake3" % ascii(algorithm))


def make_digest(tensors: dict[str, Tensor], sums: dict[str, str]) -> str:
    """What a version is, in 32 hexadecimal digits: xxh3-128 of one line of JSON for each tensor, sorted by name: [name,
    dtype, shape, xxh3-128 of its bytes]. It does not depend on which file has which tensor, and covers nothing else of the
    files."""
    rows = ([name, tensors[name].dtype, tensors[name].shape, sums[name]] for name in sorted(tensors))
    return xxh3("".join(json.dumps(row) + "\n" for row in rows).encode())
