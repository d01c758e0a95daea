"""The interface of safetensors for LMC files: the same names, arguments and results."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

from . import _arrays, _lmc
from ._arguments import check_choice, check_progress
from ._base import read_header
from ._errors import AmbiguousError, CorruptError, LimitError, LMCError, NotFoundError, NotLMCError, UnsupportedError
from ._lmc import printable
from ._reader import Reader, Slice
from ._sources import Ranges, open_source
from ._writer import Writer, count_own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from ._reader import TensorInfo
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
    """Opens an LMC file or a safetensors file. A safetensors file is no delta, so base is ignored. options: of Reader."""
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
    staging: int = 0
) -> Iterator[tuple[str, Any]]:
    """names: tensors to read; None: all. most: bytes of tensors that a GPU decodes at once."""
    check_choice("on_error", on_error, "raise", "skip")
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
        else:
            reader._expect_all()
            infos = _find_all(reader, [name for name in wanted if not reader._is_archive_part(name)], framework, on_error)
            total = sum(x.size for x in infos)
            if decode == "gpu":
                from . import _gpu

                found = _gpu.get_all(reader, infos, device, most, staging)
            else:
                found = _get_all(reader, infos, device)
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


SMALL, FAR, TOGETHER = 64 << 10, 4 << 10, 8 << 20


def _group(infos: Iterable[TensorInfo]) -> Iterator[list[TensorInfo]]:
    """Groups small neighbours, which are read at once: each read by itself would decode their common block."""
    group: list[TensorInfo] = []
    for x in infos:
        if group:
            first, last = group[0], group[-1]
            gap = x.offset - last.offset - last.span
            is_near = x.file_number == last.file_number and 0 <= gap <= FAR and x.offset + x.span - first.offset <= TOGETHER
            is_repeated = x.size > x.span or last.size > last.span
            if not is_near or is_repeated or max(last.span, x.span) > SMALL:
                yield group
                group = []
        group.append(x)
    if group:
        yield group


def _get_all(reader: Reader, infos: Iterable[TensorInfo], device: Any) -> Iterator[tuple[str, Any]]:
    for group in _group(infos):
        if len(group) == 1:
            yield group[0].name, reader.get(group[0].name, file=group[0].file, device=device)
        else:
            yield from _get_together(reader, group, device)


def _get_together(reader: Reader, group: list[TensorInfo], device: Any) -> Iterator[tuple[str, Any]]:
    first, last = group[0], group[-1]
    file = reader.files[first.file_number]
    # a small file is read whole: then its fingerprints are checked, too
    begin, end = (0, file.size) if file.size <= TOGETHER else (first.offset, last.offset + last.span)
    try:
        data = memoryview(reader.read(file.path, begin, end - begin))
    except CorruptError:
        reader._name_damage(file, begin)
        raise
    for x in group:
        span = data[x.offset - begin : x.offset - begin + x.span]
        reader._check_known(x)
        yield x.name, reader._make(x, x.shape, None, device, lambda buffer: reader._read_into(x, buffer, span))
