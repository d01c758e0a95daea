"""One tensor, one call."""

from __future__ import annotations

import os

from . import _arrays, _lmc
from ._arguments import check_progress, count_threads, level_number
from ._errors import LimitError, OutputTooSmallError, UnsupportedError, WrongBaseError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any, TypeVar, overload

    import torch
    from numpy.typing import NDArray

    from ._types import BytesName, Framework, Level, NumpyName, Progress, TorchName

    _Out = TypeVar("_Out")

def bound(nbytes: int) -> int:
    """The largest size of what compress() makes of nbytes bytes."""
    return nbytes + (nbytes >> 17) * 32 + 2048


if TYPE_CHECKING:

    @overload
    def compress(
        array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1, out: None = None,
        progress: Progress | None = None
    ) -> bytearray: ...
    @overload
    def compress(
        array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1, out: object,
        progress: Progress | None = None
    ) -> int: ...


def compress(
    array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1, out: Any = None,
    progress: Progress | None = None
) -> Any:
    """Compresses an array to an LMC file in memory. Returns a bytearray; with `out`, the number of bytes written to it.

    array: of numpy, torch, ml_dtypes, DLPack, or a buffer. dtype: of the elements of a buffer ("BF16"), if the buffer does
    not tell; without it, bytes are coded as bytes of unknown kind. base: an array of the same size: the result is then a
    delta, and decompress() needs the base, too. level: "fast", "default", "max" or "archive", or -1 to 2: each is smaller
    and slower than the one before. out: a writable buffer of bound(nbytes) bytes, or fewer if you know that they are
    enough. progress: called with the number of bytes done, and of all bytes.
    """
    threads = count_threads(threads)
    check_progress(progress)
    x = _arrays.describe(array, dtype)
    target = None if out is None else _arrays.describe(out).buffer
    base_object = None
    if base is not None:
        b = _arrays.describe(base, dtype)
        if target is not None and _lmc.overlaps(target, b.buffer):
            raise ValueError("out overlaps the base")
        if b.nbytes != x.nbytes:
            raise ValueError(f"the array has {x.nbytes} bytes, and the base {b.nbytes}")
        base_object = _lmc.Base([("", x.dtype or "U8", _shape(x), b.buffer)], threads)
    report = None if progress is None else lambda done: progress(done, x.nbytes)
    name = x.dtype or ("U8" if base is not None else "")
    writer = _lmc.Writer(target, bound(x.nbytes), base_object, level_number(level), threads, progress=report)
    tensors = [("", name, _shape(x), 0, x.nbytes, None, None)] if name else []
    try:
        writer.begin_file("", x.nbytes, tensors, name or "AUTO")
        writer.write(x.buffer)
        writer.end_file()
        return writer.finish()[0]
    except OutputTooSmallError:
        raise _too_small(out, x.nbytes) from None


def _too_small(out: Any, nbytes: int) -> OutputTooSmallError:
    return OutputTooSmallError(
        f"out has {_arrays.describe(out).nbytes} bytes, which the result does not fit into: lmc_codec.bound({nbytes}) ="
        f" {bound(nbytes)} always suffice"
    )


def _shape(x: _arrays.Array) -> tuple[int, ...]:
    return x.shape if x.dtype else (x.nbytes,)


if TYPE_CHECKING:

    @overload
    def decompress(
        data: Any, base: Any = None, *, out: None = None, framework: TorchName, device: Any = None, threads: int | None = 1, max_size: int = 0
    ) -> torch.Tensor: ...
    @overload
    def decompress(
        data: Any, base: Any = None, *, out: None = None, framework: NumpyName, device: None = None, threads: int | None = 1, max_size: int = 0
    ) -> NDArray[Any]: ...
    @overload
    def decompress(
        data: Any, base: Any = None, *, out: None = None, framework: BytesName, device: None = None, threads: int | None = 1, max_size: int = 0
    ) -> bytearray: ...
    @overload
    def decompress(
        data: Any, base: Any = None, *, out: None = None, framework: None = None, device: Any = None, threads: int | None = 1, max_size: int = 0
    ) -> Any: ...
    @overload
    def decompress(
        data: Any, base: Any = None, *, out: _Out, framework: Framework | None = None, device: Any = None, threads: int | None = 1, max_size: int = 0
    ) -> _Out: ...


def decompress(
    data: Any, base: Any = None, *, out: Any = None, framework: Framework | None = None, device: Any = None,
    threads: int | None = 1, max_size: int = 0
) -> Any:
    """Returns the array that compress() got, as an array of `framework` ("numpy", "torch", "bytes"), or in `out`.

    Without `framework` it is of numpy, or of PyTorch if only PyTorch has the dtype (bf16 without ml_dtypes). base: what the
    array was compressed against. It may be `out`, which is then updated in place; an error other than a wrong base leaves a
    mixture there. max_size: limit on the decoded bytes, for data of strangers.
    """
    from ._base import Base
    from ._reader import Reader

    if isinstance(data, (str, os.PathLike)):
        raise TypeError(f"the bytes of an LMC file are needed, not {type(data).__name__}: lmc_codec.open reads files")
    threads = count_threads(threads)
    try:
        plain = Reader(data, threads=threads, max_total_size=max_size, framework=framework)
    except LimitError as error:
        error.args = (str(error).replace("max_total_size", "max_size"),)  # the name of the argument here
        raise
    if len(plain.files) != 1 or len(plain.files[0].tensors) > 1 or plain.files[0].is_directory:
        raise UnsupportedError("this is not one tensor: lmc_codec.open reads it")
    file = plain.files[0]
    if not file.tensors or file.tensors[0].size != file.size:
        return plain.read(file.path, out=out)
    x, reader = file.tensors[0], plain
    if base is not None:
        b = _arrays.describe(base)
        if out is not None and _lmc.overlaps(_arrays.describe(out).buffer, b.buffer) == 1:
            raise ValueError("out is a part of the base, not all of it")
        if b.nbytes != x.size:
            raise WrongBaseError(f"wrong base: it has {b.nbytes} bytes, and the array {x.size}")
        arrays = Base({x.name: _arrays.Array(b.buffer, x.dtype, x.shape, x.size)}, threads=threads)
        reader = Reader(data, base=arrays, threads=threads, framework=framework)
    if out is not None and _lmc.overlaps(_arrays.describe_out(out, x.dtype, x.size, x.shape), memoryview(data)):
        raise ValueError("out overlaps the input")
    return reader.get(x.name, out=out, framework=framework, device=device)


if TYPE_CHECKING:

    @overload
    def tensor_encode(
        array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1,
        log2_block: int = 0, out: None = None
    ) -> bytearray: ...
    @overload
    def tensor_encode(
        array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1,
        log2_block: int = 0, out: object
    ) -> int: ...


def tensor_encode(
    array: Any, base: Any = None, *, dtype: Any = None, level: Level = 0, threads: int | None = 1, log2_block: int = 0,
    out: Any = None
) -> Any:
    """Codes an array without a file around it, for containers that store dtype and size themselves (layer 2 of lmc.h).

    Returns a bytearray; with `out`, the number of bytes written to it.
    """
    x = _arrays.describe(array, dtype)
    try:
        return _lmc.tensor_encode(
            x.buffer, x.dtype or "AUTO", None if base is None else _arrays.describe(base).buffer,
            None if out is None else _arrays.describe(out).buffer, level_number(level), count_threads(threads),
            log2_block
        )
    except OutputTooSmallError:
        if log2_block:  # smaller blocks may take more bytes
            raise
        raise _too_small(out, x.nbytes) from None


def tensor_decode(
    data: Any, out: _Out, base: Any = None, *, offset: int = 0, total_size: int | None = None, threads: int | None = 1
) -> _Out:
    """Decodes the result of tensor_encode() to `out`, an array or buffer, and returns `out`.

    offset, total_size: `out` gets the part from that byte on, of a tensor of total_size bytes. If the whole tensor is
    decoded, out may be the base.
    """
    x = _arrays.describe(out)
    _lmc.tensor_decode(
        data, _arrays.describe_out(out, "", x.nbytes), None if base is None else _arrays.describe(base).buffer, offset,
        -1 if total_size is None else total_size, count_threads(threads)
    )
    return out
