"""The C extension. What it takes and gives is private to the package; lmc_codec has the interface."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, final, overload
from typing_extensions import Buffer

_Shape = tuple[int, ...]
#: name, dtype, shape, offset, size, quantizer, the file, offset and part of a moment's twin
_Tensor = tuple[str, str, _Shape, int, int, Quantizer | None, tuple[int, int, int] | None]
#: name, dtype, shape, offset, size, fingerprint, generation, measure and error of its loss
_TensorRow = tuple[str, str, _Shape, int, int, bytes, int, str, float]
#: path, kind, size, mode, seconds and nanoseconds of its time, CRC-32C, fingerprint, tensors
_FileRow = tuple[str, int, int, int | None, tuple[int, int] | None, int, bytes, tuple[_TensorRow, ...]]

def set_make_error(callable: Callable[[int, str, str, object, object], BaseException], /) -> None: ...
def dtypes() -> dict[str, tuple[int, int]]: ...
def versions() -> tuple[str, str, str]: ...
def parse_header(data: Buffer, /) -> tuple[bytes, int, int, int]: ...
def overlaps(a: Buffer, b: Buffer, /) -> int: ...
def new_bytes(size: int, /) -> bytearray: ...
def prepare(buffer: Buffer | Memory, /) -> None: ...
def from_dlpack(capsule: Any, /) -> tuple[Memory, str, _Shape]: ...
@overload
def tensor_encode(
    data: Buffer, dtype: str, base: Buffer | None = None, out: None = None, level: int = 0, threads: int = 1, log2_block: int = 0
) -> bytearray: ...
@overload
def tensor_encode(
    data: Buffer, dtype: str, base: Buffer | None, out: Buffer, level: int = 0, threads: int = 1, log2_block: int = 0
) -> int: ...
def tensor_decode(
    data: Buffer,
    out: Buffer,
    dtype: str,
    base: Buffer | None = None,
    offset: int = 0,
    total_size: int = -1,
    threads: int = 1,
    log2_block: int = 0,
) -> None: ...
def tensor_layout(data: Buffer, /) -> tuple[int, str, int]: ...
@final
class Memory:
    def __new__(cls, address: int, size: int, readonly: bool, owner: object) -> Memory: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Base:
    def __new__(cls, arrays: Sequence[tuple[str, str, _Shape, Buffer]], threads: int = 1) -> Base: ...
    @property
    def fingerprint(self) -> bytes: ...

@final
class Quantizer:
    def __new__(
        cls,
        elements: Buffer,
        dtype: str,
        role: int,
        bits: int,
        measure: int,
        bound: float,
        group: int = 0,
        eps: float = 0.0,
        second: Buffer | None = None,
        second_quantizer: Quantizer | None = None,
    ) -> Quantizer: ...
    def info(self) -> tuple[bool, str, float, int, float]: ...

@final
class Policy:
    def __new__(cls, rules: Sequence[str]) -> Policy: ...
    def is_lossy(self) -> bool: ...
    def find_meaning(self, path: str, name: str, dtype: str, /) -> tuple[str, str, bool]: ...
    def find_rule(
        self, role: str, path: str, name: str, dtype: str, shape: _Shape, size: int, /
    ) -> tuple[int, str | None]: ...
    def quantizer_options(
        self, rule: int, role: str, dtype: str, shape: _Shape, has_second: bool, /
    ) -> tuple[tuple[int, int, int, float, int], bool]: ...

@final
class Reader:
    def __new__(
        cls,
        source: int | Buffer | Callable[[int, int], Buffer],
        size: int = 0,
        base: Reader | Base | None = None,
        threads: int = 1,
        where: str | None = None,
        max_index_size: int = 0,
        max_total_size: int = 0,
    ) -> Reader: ...
    def close(self) -> None: ...
    def info(self) -> tuple[int, bytes, bytes, int, int, int, int]: ...
    def file(self, number: int, /) -> _FileRow: ...
    def archives(self) -> list[int]: ...
    def file_path(self, number: int, /) -> str: ...
    def find(self, name: str, path: str | None, /) -> tuple[int, _TensorRow]: ...
    def metadata(self) -> dict[str, bytes]: ...
    def encoded_size(self, file_number: int, offset: int, size: int, /) -> int: ...
    def encoded_range(self, file_number: int, offset: int, size: int, /) -> tuple[int, int]: ...
    def content_hash(self, file_number: int, tensor: int, /) -> bytes: ...
    def snapshot_hash(self) -> bytes: ...
    def read(self, file_number: int, offset: int, out: Buffer, what: str | None, /) -> None: ...
    def read_box(
        self,
        file_number: int,
        offset: int,
        width: int,
        shape: Sequence[int],
        start: Sequence[int],
        count: Sequence[int],
        out: Buffer,
        what: str | None,
        /,
    ) -> None: ...

@final
class Writer:
    def __new__(
        cls,
        sink: int | Buffer | Callable[[bytes], object] | None,
        capacity: int = 0,
        base: Reader | Base | None = None,
        level: int = 0,
        threads: int = 1,
        log2_block: int = 0,
        may_quantize: bool = False,
        content_hashes: bool = False,
        progress: Callable[[int], object] | None = None,
        read_back: Callable[[int, int, int], Buffer] | None = None,
        where: str | None = None,
    ) -> Writer: ...
    def begin_file(
        self,
        path: str,
        size: int,
        tensors: Sequence[_Tensor],
        dtype: str = "AUTO",
        kind: int = 0,
        mode: int = -1,
        mtime_ns: int | None = None,
    ) -> None: ...
    def write(self, data: Buffer, what: str | None = None, /) -> None: ...
    def end_file(self) -> None: ...
    def add_metadata(self, key: str, value: Buffer, /) -> None: ...
    def copy_file(self, reader: Reader, number: int, /) -> None: ...
    def finish(self) -> tuple[bytearray | int, bytes]: ...
    def abort(self) -> None: ...
