"""The interface of safetensors for LMC files: the same names, arguments and results."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

from . import _arrays, _lmc
from ._arguments import check_choice, check_progress
from ._base import Base, read_header
from ._errors import AmbiguousError, CorruptError, LimitError, LMCError, NotFoundError, NotLMCError, UnsupportedError
from ._lmc import printable
from ._reader import Reader, Slice, TensorInfo
from ._ranges import Ranges
from ._sources import open_source
from ._writer import Writer, count_own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ._types import Backend, Decode, Framework, Level, OnError, Progress


class safe_open:
    """Opens an LMC file lazily and reads single tensors, as `safetensors.safe_open` does.

    filename: a path, or another source of `lmc_codec.open`. framework: "pt" or "np". device: of torch. backend: "mmap" or
    "pread", for a safetensors file; an LMC file ignores it. base: of a delta. threads: None is one for each usable CPU, at most 16.

    safetensors itself reads a safetensors file: after you change the import line, existing files can still be read.
    """

    def __init__(
        self, filename: Any, framework: Framework, device: Any = "cpu", *, backend: Backend = "mmap", base: Any = None,
        threads: int | None = None, storage_options: dict[str, Any] | None = None
    ):
        self._framework, self._device = _arrays.FRAMEWORKS.get(framework), None
        self._reader: Reader | _Safetensors | None = _open(
            filename, framework, device, backend, base=base, threads=threads, storage_options=storage_options
        )
        if isinstance(self._reader, Reader) and self._framework is None:
            raise _wrong_framework(framework, "bytes")
        if isinstance(self._reader, Reader) and device != "cpu" and self._framework == "torch":
            self._device = _device(device)

    def _open(self) -> Reader | _Safetensors:
        if self._reader is None:
            raise LMCError("File is closed")
        return self._reader

    def __repr__(self) -> str:
        source = None if self._reader is None else self._reader.name if isinstance(self._reader, Reader) else self._reader._source.name
        return printable(f"<lmc_codec.safe_open {'(closed)' if self._reader is None else source or ''}>")

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, kind: Any = None, value: Any = None, traceback: Any = None) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def keys(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._open().keys())

    def offset_keys(self) -> list[str]:
        """Names of all tensors, in the order in which they are stored."""
        return self._open().keys()

    def metadata(self) -> dict[str, str] | None:
        """The metadata that save_file() got."""
        reader = self._open()
        return reader.metadata() if isinstance(reader, _Safetensors) else read_metadata(reader)

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name."""
        return self._open().get(name, framework=self._framework, device=self._device)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def prefetch(self, names: Iterable[str]) -> None:
        """Reads tensors of a remote LMC file ahead, all at once (see Reader.prefetch)."""
        reader = self._open()
        if isinstance(reader, Reader):
            reader.prefetch(names)

    def get_slice(self, name: str) -> Slice | Any:
        """An object that reads parts of a tensor when it is indexed."""
        return self._open().get_slice(name, framework=self._framework, device=self._device)


def _wrong_framework(framework: Any, *more: str) -> LMCError:
    names = [name for name, ours in _arrays.FRAMEWORKS.items() if ours in ("torch", "numpy", *more)]
    return LMCError(f"framework {framework} is invalid (expected one of: {', '.join(names)})")


def _device(device: Any) -> Any:
    import torch

    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise LMCError(f"device {device} is invalid") from None


def _open(source: Any, framework: str, device: Any, backend: Backend = "mmap", **options: Any) -> Reader | _Safetensors:
    """Opens an LMC file or a safetensors file. A safetensors file is not a delta, so base is ignored. options: of Reader."""
    if backend not in ("mmap", "pread"):  # an LMC file ignores it, but a wrong name is a mistake
        raise LMCError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    try:
        return Reader(source, framework=_arrays.FRAMEWORKS.get(framework), **options)  # safetensors may know others
    except NotLMCError as error:
        if not error.is_safetensors:
            raise
    return _Safetensors(source, framework, device, backend, options.get("storage_options"))


class _Safetensors:
    """A safetensors file with those methods of Reader that are used here. For a path, safetensors reads the tensors. This
    class reads what safetensors cannot: file objects, buffers and URLs, and for numpy the dtypes of ml_dtypes."""

    def __init__(self, source: Any, framework: str, device: Any, backend: str, storage_options: dict[str, Any] | None):
        self._file: Any = None
        self._framework = _arrays.FRAMEWORKS.get(framework, "")
        self._device = device if self._framework == "torch" and device not in (None, "cpu") else None
        if isinstance(source, os.PathLike) or (isinstance(source, str) and "://" not in source):
            try:
                from safetensors import safe_open as open_theirs
            except ImportError:
                name = printable(os.fsdecode(source))
                raise ImportError(f"{name} is a safetensors file: pip install safetensors, which reads it") from None
            options: Any = {} if backend == "mmap" else {"backend": backend}
            self._file = open_theirs(source, framework, "cpu" if device is None else device, **options)
        elif self._framework not in ("numpy", "torch"):
            raise _wrong_framework(framework)
        self._source = open_source(source, storage_options)
        if isinstance(self._source.argument, Ranges):
            self._source.load()
        self._header = read_header(self._source)
        rows, why = _lmc.find_tensors(self._header, self._source.size, "")
        if why is not None and self._file is None:
            raise CorruptError(f"{self._source.name or 'this'} is damaged, or no safetensors file: {why}")
        self._rows = {row[0]: row for row in rows}

    def __reduce__(self) -> Any:
        raise TypeError("safe_open of a safetensors file cannot be pickled: open it where it is used")

    def __enter__(self) -> _Safetensors:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.__exit__(None, None, None)
        self._source.close()

    def keys(self) -> list[str]:
        """In the stored order."""
        return list(self._rows if self._file is None else self._file.offset_keys())

    def list(self, names: list[str]) -> list[TensorInfo]:
        rows = (self._rows[name] for name in names if name in self._rows)
        return [TensorInfo((*row, b"", None), "", 0) for row in rows]

    def count_bytes(self) -> int:
        """Size of all tensors: there are no gaps between them."""
        return self._source.size - len(self._header)

    def metadata(self) -> dict[str, str] | None:
        return _metadata_of(self._header[8:])

    def _is_theirs(self, name: str) -> bool:
        """Whether safetensors reads it: not if numpy has the dtype only from ml_dtypes."""
        is_ours = self._framework == "numpy" and name in self._rows and self._rows[name][1].startswith(_ML_DTYPES)
        return self._file is not None and not is_ours

    def get(self, name: str, **unused: Any) -> Any:
        if self._is_theirs(name):
            return self._file.get_tensor(name)
        if name not in self._rows:
            raise NotFoundError(f"{self._source.name or 'the file'}: no tensor {name!r}")
        _, dtype, shape, at, size = self._rows[name]
        array, buffer = _arrays.make(self._framework, dtype, shape)
        if size:
            _lmc.read_at(self._source.argument, self._source.size, at, buffer, self._source.name)
        return array if self._device is None else _arrays.to_device(array, _device(self._device))

    def get_slice(self, name: str, **unused: Any) -> Any:
        return self._file.get_slice(name) if self._is_theirs(name) else _LoadedSlice(self.get(name), self._rows[name][1])


class _LoadedSlice:
    """A Slice of a tensor in memory."""

    __slots__ = ("_tensor", "dtype")

    def __init__(self, tensor: Any, dtype: str):
        self._tensor, self.dtype = tensor, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tensor.shape)

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self.dtype

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[index]


_ML_DTYPES = ("BF16", "F8", "F6", "F4")  # first letters of the dtypes that numpy itself lacks


def _metadata_of(header: Any) -> dict[str, str] | None:
    """__metadata__ in the JSON header of a safetensors file; None: there is none, or the JSON is not valid."""
    import json

    try:
        found = json.loads(bytes(header))["__metadata__"]
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def read_metadata(reader: Reader) -> dict[str, str] | None:
    """__metadata__ of all safetensors files of the snapshot."""
    found: dict[str, str] | None = None
    for file in reader.files:
        if file.size >= 8 and (file.path.endswith(".safetensors") or (file.path == "" and file.tensors)):
            size = int.from_bytes(reader.read(file.path, 0, 8), "little")
            here = _metadata_of(reader.read(file.path, 8, size)) if size <= file.size - 8 else None
            found = found if here is None else {**(found or {}), **here}
    return found


def write_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None, *,
    base: Any = None, level: Level = 0, threads: int | None = None, quantize: Any = None,
    progress: Progress | None = None
) -> None:
    if not isinstance(filename, (str, os.PathLike)):
        raise TypeError(f"argument 'filename': must be a path, not {type(filename).__name__}")
    with Writer(filename, base=base, level=level, threads=threads, quantize=quantize, progress=progress) as writer:
        writer.add_arrays(tensors, "", metadata=metadata)


def write_bytes(
    tensors: Mapping[str, Any], metadata: Mapping[str, str] | None, *, base: Any = None, level: Level = 0,
    threads: int | None = None
) -> bytes:
    sink = io.BytesIO()
    with Writer(sink, base=base, level=level, threads=threads) as writer:
        writer.add_arrays(tensors, "", metadata=metadata)
    return sink.getvalue()


def read_file(source: Any, framework: str, device: Any = None, **options: Any) -> dict[str, Any]:
    return dict(iterate_file(source, framework, device, **options))


def iterate_file(
    source: Any, framework: str, device: Any = None, *, backend: Backend = "mmap", base: Any = None,
    threads: int | None = None, progress: Progress | None = None, storage_options: dict[str, Any] | None = None,
    on_error: OnError = "raise", decode: Decode = "cpu", most: int = 1 << 30, names: Container[str] | None = None,
    staging: int = 0, out: Mapping[str, Any] | None = None, fits_all: bool = True
) -> Iterator[tuple[str, Any]]:
    """names: tensors to read; None: all. most: bytes of tensors that a GPU decodes at once. fits_all: False: tensors that
    those of `out` do not fit are made anew."""
    check_choice("on_error", on_error, "raise", "skip")
    if out is not None:
        if not hasattr(out, "keys"):
            raise TypeError(f"argument 'out': arrays by name are needed, not {type(out).__name__}")
        if decode == "gpu":
            raise ValueError('decode="gpu" makes new tensors: give no out')
        _check_apart(base, out)
    check_choice("decode", decode, "cpu", "gpu")
    check_progress(progress)
    done = 0
    if decode == "gpu" and isinstance(base, Mapping):
        from . import _gpu

        base = _gpu.make_base(base, device, staging)
    with _open(
        source, framework, device, backend, base=base, threads=threads, storage_options=storage_options
    ) as reader:
        names = [names] if isinstance(names, str) else names
        wanted = [name for name in reader.keys() if names is None or name in names]
        found: Iterable[tuple[str, Any]]
        if isinstance(reader, _Safetensors):
            total, found = reader.count_bytes(), ((name, reader.get(name)) for name in wanted)
            if out:
                taken = _take_out(reader.list(wanted), out, fits_all)
                found = _copy_all(found, {name: array for name, (array, _) in taken.items()})
        else:
            infos = _find_all(reader, [name for name in wanted if not reader._is_archive_part(name)], framework, on_error)
            total = sum(x.size for x in infos)
            is_part = len(wanted) < len(reader) and callable(reader._source.argument)
            if is_part and sum(reader.encoded_size(x.name) for x in infos) <= AHEAD:
                reader.prefetch([x.name for x in infos])
            else:
                reader._expect_all()
            if decode == "gpu":
                from . import _gpu

                found = _gpu.get_all(reader, infos, device, most, staging)
            else:
                found = _get_all(reader, infos, device, _take_out(infos, out or {}, fits_all))
        for name, array in found:
            done += array.nbytes
            yield name, array
            if progress is not None:
                progress(done, total)


def _find_all(reader: Reader, names: list[str], framework: str, on_error: OnError) -> list[TensorInfo]:
    """Checks all tensors before any is read, so that nobody waits and then gets an error."""
    found, left = [], []
    for name in names:
        try:
            found.append(_find(reader, name, framework))
        except (AmbiguousError, LimitError, UnsupportedError, TypeError) as error:
            if on_error == "raise":
                raise type(error)(f"{error}; on_error='skip' leaves it out") from None
            left.append(str(error))
    if left:
        import warnings

        more = f"; and {len(left) - 10} more" if len(left) > 10 else ""
        text = f"{reader.name or 'the file'}: left out: {'; '.join(left[:10])}{more}"
        warnings.warn(printable(text), stacklevel=count_own_frames())
    return found


def _find(reader: Reader, name: str, framework: str) -> TensorInfo:
    """Raises if the tensor cannot be loaded."""
    x = reader.info(name)
    reader._check_known(x)
    if x.dtype not in _arrays.BITS:
        raise TypeError(f"tensor {name!r} is of {printable(x.dtype)}, which no framework has (lmc_codec.open() gives its bytes)")
    try:
        _arrays.torch_dtype(x.dtype) if framework == "torch" else _arrays.numpy_dtype(x.dtype)
    except TypeError as error:
        raise TypeError(f"tensor {name!r}: {error}") from None
    except ImportError:
        pass  # the error comes when the array is made
    return x


AHEAD = 64 << 20  #: encoded bytes of a part of a remote file, at most, that are read at once
#: Neighbours of so many bytes together are read at once. They share the memory, so one that is kept keeps this much alive.
PIECE = 16 << 20
FAR = 4 << 10  #: bytes between neighbours, at most


#: Of tensors that have memory already: larger ones are decoded to it, others first together to a buffer of so many bytes.
ALONE, STAGED = 1 << 20, 4 << 20


def _cut(infos: Iterable[TensorInfo], most: int, largest: int) -> Iterator[list[TensorInfo]]:
    """Cuts into pieces of neighbours: each read by itself would decode their common blocks."""
    piece: list[TensorInfo] = []
    for x in infos:
        if piece and not (_is_next(piece[-1], x) and x.offset + x.span - piece[0].offset <= most
                          and max(piece[-1].span, x.span) <= largest
                          and (x.offset - piece[0].offset) % max(1, _arrays.BITS[x.dtype] // 8) == 0):  # fmt: skip
            yield piece
            piece = []
        piece.append(x)
    if piece:
        yield piece


def _is_next(last: TensorInfo, x: TensorInfo) -> bool:
    is_near = x.file_number == last.file_number and 0 <= x.offset - last.offset - last.span <= FAR
    return is_near and 0 < x.size <= x.span and 0 < last.size <= last.span  # one that repeats elements is read alone


def _read_piece(reader: Reader, piece: list[TensorInfo], buffer: Any) -> None:
    first, last = piece[0], piece[-1]
    try:
        reader._object.read(first.file_number, first.offset, buffer, reader._what(first) if first is last else first.file or None)
    except CorruptError:
        if first is not last:
            reader._name_damage(reader.files[first.file_number], first.offset)
        raise


def _get_new(reader: Reader, infos: Iterable[TensorInfo], device: Any) -> Iterator[tuple[str, Any]]:
    for piece in _cut(infos, PIECE, PIECE):
        first, last = piece[0], piece[-1]
        if first is last and (first.strides is not None or first.size == 0):
            yield first.name, reader.get(first.name, file=first.file, device=device)
        else:
            yield from _get_together(reader, piece, device)


def _get_together(reader: Reader, piece: list[TensorInfo], device: Any) -> Iterator[tuple[str, Any]]:
    first, last, framework = piece[0], piece[-1], reader._framework or "torch"
    memory, buffer = _arrays.new_memory(framework, last.offset + last.span - first.offset, device)
    _read_piece(reader, piece, buffer)
    for x in piece:
        reader._check_known(x)
        at = x.offset - first.offset
        if x.strides is not None:
            span = memoryview(buffer)[at : at + x.span]
            yield x.name, reader._make(x, x.shape, None, device, lambda buffer: reader._read_into(x, buffer, span))
            continue
        if x.flags:
            _lmc.resolve(memoryview(buffer)[at : at + x.size], x.dtype, x.flags)
        yield x.name, _arrays.to_device(_arrays.view(framework, memory, x.dtype, x.shape, at), device)


# -- into arrays that exist --


def _check_apart(base: Any, out: Mapping[str, Any]) -> None:
    """A base must not change while it is in use. If it does nevertheless, the checksum of a block finds it."""
    for part in base if isinstance(base, (list, tuple)) else [base]:
        arrays = part if isinstance(part, Mapping) else {x[0]: x[3] for x in part._items} if isinstance(part, Base) and not part._file else {}
        for name in arrays.keys() & out.keys():
            if out[name] is arrays[name] or (_is_plain(out[name]) and _overlaps(arrays[name], out[name])):
                raise ValueError(f"base: {name!r} has the memory of `out`, and must not change: apply_file() changes the tensors of a base in place")


def _overlaps(a: Any, b: Any) -> bool:
    buffers: list[Any] = [x if isinstance(x, (_lmc.Memory, memoryview)) else _arrays.describe(x).buffer for x in (a, b)]
    return bool(_lmc.overlaps(*buffers))


def _is_plain(array: Any) -> bool:
    """Whether it is memory that can be decoded to. Other tensors get copies: on devices, not contiguous, conjugated."""
    if not hasattr(array, "is_conj"):
        return True
    return array.is_cpu and array.is_contiguous() and not array.is_conj() and not array.is_neg()


def _take_out(infos: Iterable[TensorInfo], out: Mapping[str, Any], fits_all: bool) -> dict[str, tuple[Any, Any]]:
    """Those of `out` that are in the file, each with its memory, or None if it gets a copy. Before anything is read, raises if
    one has another dtype or shape."""
    found = {}
    for x in infos:
        if x.name in out:
            array = out[x.name]
            buffer, why = _find_memory(array, x.dtype, x.shape)
            if not why:
                found[x.name] = array, buffer
            elif fits_all:
                raise ValueError(f"out: {x.name!r}: {why}")
    return found


def _find_memory(array: Any, dtype: str, shape: tuple[int, ...]) -> tuple[Any, str]:
    """The memory of an array that takes a tensor of that dtype and shape (None: it gets a copy), and why it cannot; "": it can."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        return None, f"not an array: {type(array).__name__}"
    own, kind = tuple(array.shape), _arrays.dtype_name(array.dtype)
    if kind == "F4" and own:
        own = (*own[:-1], 2 * own[-1])
    if (kind, own) != (dtype, shape):
        return None, f"it is {kind} {list(own)}, and the tensor {dtype} {list(shape)}"
    if hasattr(array, "layout"):
        if str(array.layout) != "torch.strided" or array.is_meta:
            return None, "it has no plain memory"
    elif not (array.flags.c_contiguous and array.flags.writeable):
        return None, "it is read-only, or not contiguous"
    try:
        return _arrays.describe(array).buffer if _is_plain(array) else None, ""
    except (RuntimeError, TypeError, ValueError) as error:  # of a distributed tensor, for example
        return None, f"it cannot be written: {error}"


def _get_all(reader: Reader, infos: list[TensorInfo], device: Any, out: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """out: what _take_out() found."""
    left, plain = [], []
    by_device: dict[str, list[TensorInfo]] = {}
    for x in infos:
        array, buffer = out.get(x.name, (None, None))
        if buffer is not None:
            plain.append(x)
        elif array is None:
            left.append(x)
        else:
            by_device.setdefault(str(array.device), []).append(x)
    yield from _get_new(reader, left, device)
    yield from _fill(reader, plain, out)
    for where, group in by_device.items():
        yield from _copy_all(_get_new(reader, group, where), {x.name: out[x.name][0] for x in group})


def _copy_all(found: Iterable[tuple[str, Any]], out: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, array in found:
        if name in out:
            _copy(array, out[name])
        yield name, out.get(name, array)


def _copy(array: Any, to: Any) -> None:
    """Either may be a tensor or a NumPy array; dtypes and shapes are the same."""
    if hasattr(array, "copy_") != hasattr(to, "copy_"):
        memoryview(_arrays.describe(to).buffer).cast("B")[:] = memoryview(_arrays.describe(array).buffer).cast("B")
        note_change(to)
    elif hasattr(to, "copy_"):
        to.detach().copy_(array)
    else:
        to[...] = array


def _fill(reader: Reader, infos: list[TensorInfo], out: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    room: Any = None
    staged = memoryview(b"")
    for piece in _cut(infos, STAGED, ALONE):
        first, last = piece[0], piece[-1]
        if first is last:
            reader._read_into(first, out[first.name][1])
        else:
            if room is None:
                room = _lmc.new_memory(STAGED)
                staged = memoryview(room)
            _read_piece(reader, piece, staged[: last.offset + last.span - first.offset])
            for x in piece:
                at = x.offset - first.offset
                reader._read_into(x, out[x.name][1], staged[at : at + x.span])
        for x in piece:
            array = out[x.name][0]
            note_change(array)
            yield x.name, array


def note_change(tensor: Any) -> None:
    """Tells autograd that an array has changed, if it is a tensor."""
    if hasattr(tensor, "is_inference") and not tensor.is_inference():
        import torch

        torch.autograd.graph.increment_version(tensor)
