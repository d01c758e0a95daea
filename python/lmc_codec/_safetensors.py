"""What safetensors offers, for LMC files: the same names, arguments and results."""

from __future__ import annotations

import os

from . import _arrays
from ._base import first_bytes, is_safetensors, parse_safetensors
from ._errors import (
    AmbiguousError,
    CorruptError,
    LimitError,
    LMCError,
    NotFoundError,
    NotLMCError,
    ReadError,
    TruncatedError,
    UnsupportedError,
)
from ._lmc import printable
from ._names import check_name
from ._reader import Reader, Slice
from ._threads import check_progress
from ._writer import Writer, check_metadata, count_own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from ._reader import TensorInfo
    from ._types import Backend, Framework, Level, OnError, Progress


class safe_open:
    """Opens an LMC file lazily and returns tensors as asked, as `safetensors.safe_open` does.

    filename: a path, or whatever `lmc_codec.open` takes. framework: "pt" or "np". device: of torch. backend: "mmap" or
    "pread", of a safetensors file; an LMC file is read as fits it. base: of a delta. threads: None is as many as there are, at most 8.

    A safetensors file is read by safetensors itself: who changes the import line goes on reading what is there.
    """

    def __init__(
        self,
        filename: Any,
        framework: Framework,
        device: Any = "cpu",
        *,
        backend: Backend = "mmap",
        base: Any = None,
        threads: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ):
        self._framework, self._device = framework, None
        self._reader: Reader | _Safetensors | None = _open(
            filename, framework, device, backend, base=base, threads=threads, storage_options=storage_options
        )
        if isinstance(self._reader, _Safetensors):
            return
        try:
            self._framework = _arrays.framework_name(framework)
        except ValueError:
            raise LMCError(f"framework {framework} is invalid") from None
        if device != "cpu" and self._framework == "torch":
            self._device = _device(device)

    def _open(self) -> Reader | _Safetensors:
        if self._reader is None:
            raise LMCError("File is closed")
        return self._reader

    def __reduce__(self) -> Any:
        reader = self._open()
        if isinstance(reader, _Safetensors):
            raise TypeError("safe_open of a safetensors file is not pickled: open it where it is used")
        return _make_safe_open, (reader, self._framework, self._device)

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
        """What save_file(..., metadata=) was given."""
        reader = self._open()
        return reader.metadata() if isinstance(reader, _Safetensors) else read_metadata(reader)

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name."""
        return self._open().get(name, framework=self._framework, device=self._device)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice | Any:
        """A tensor of which parts are read by indexing it."""
        return self._open().get_slice(name, framework=self._framework, device=self._device)


def _make_safe_open(reader: Reader, framework: Framework, device: Any) -> safe_open:
    made = safe_open.__new__(safe_open)
    made._reader, made._framework, made._device = reader, framework, device
    return made


def _device(device: Any) -> Any:
    import torch

    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise LMCError(f"device {device} is invalid") from None


def _open(source: Any, framework: str, device: Any, backend: Backend = "mmap", **options: Any) -> Reader | _Safetensors:
    """What reads an LMC file or, if it is none, a safetensors file, which is no delta: it needs no base. options: of
    Reader."""
    if backend not in ("mmap", "pread"):  # which both are read by what fits; one that is neither is a mistake
        raise LMCError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
    name: Framework | None = None
    try:
        name = _arrays.framework_name(framework)
    except ValueError:
        pass  # safetensors may know it
    try:
        return Reader(source, framework=name, **options)
    except (NotLMCError, TruncatedError):
        found = source if is_safetensors(source) else _fetch_safetensors(source, options.get("storage_options"))
        if found is None:
            raise
    return _Safetensors(found, framework, device, backend)


def _import(module: str, source: Any) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        name = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "this"
        raise ImportError(f"{printable(name)} is a safetensors file: pip install safetensors, which reads it") from None


class _Safetensors:
    """A safetensors file, with the methods of Reader that are used here. safetensors reads it and checks its header.
    What it lacks is added: files and buffers in place of a path, and for numpy the dtypes of ml_dtypes."""

    def __init__(self, source: Any, framework: str, device: Any, backend: str):
        package = _import("safetensors", source)
        self._is_numpy = framework in ("np", "numpy")
        self._file: Any = None
        self._loaded: dict[str, Any] = {}
        if isinstance(source, (str, os.PathLike)):
            self._path = source
            options = {} if backend == "mmap" else {"backend": backend}
            self._file = package.safe_open(source, framework, "cpu" if device is None else device, **options)
            if self._is_numpy:
                size = int.from_bytes(first_bytes(source, 8), "little")
                start = memoryview(first_bytes(source, 8 + size))
                self._header, self._data_at = parse_safetensors(start, os.fsdecode(source))
            return
        data = _read_all(source)
        if self._is_numpy:
            self._loaded = {name: _array(x["dtype"], x["shape"], x["data"]) for name, x in package.deserialize(data)}
        elif framework in ("pt", "torch", "pytorch"):
            self._loaded = _import("safetensors.torch", source).load(data)
            if device not in (None, "cpu"):
                self._loaded = {name: t.to(_device(device)) for name, t in self._loaded.items()}
        else:
            raise LMCError(f"framework {framework} is invalid")
        self._header = parse_safetensors(memoryview(data), "this")[0]

    def __enter__(self) -> _Safetensors:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.__exit__(None, None, None)
        self._loaded = {}

    def keys(self) -> list[str]:
        """In the order in which they are stored."""
        if self._file is not None:
            return list(self._file.offset_keys())
        return sorted(self._loaded, key=lambda name: self._header[name]["data_offsets"])

    def count_bytes(self) -> int:
        """Of all tensors, between which nothing lies."""
        if self._file is None:
            return sum(x.nbytes for x in self._loaded.values())
        return os.path.getsize(self._path) - 8 - int.from_bytes(first_bytes(self._path, 8), "little")

    def metadata(self) -> dict[str, str] | None:
        found: dict[str, str] | None = (
            self._header.get("__metadata__") if self._file is None else self._file.metadata()
        )
        return found

    def _is_ours(self, name: str) -> bool:
        """Whether safetensors cannot give this tensor of its file: of a dtype that numpy has from ml_dtypes."""
        return self._is_numpy and name in self._header and self._header[name]["dtype"].startswith(_ML_DTYPES)

    def get(self, name: str, **unused: Any) -> Any:
        if self._file is None:
            if name not in self._loaded:
                raise NotFoundError(f"no tensor {name!r}")
            return self._loaded[name]
        if not self._is_ours(name):
            return self._file.get_tensor(name)
        x = self._header[name]
        first, last = x["data_offsets"]
        with open(self._path, "rb") as file:
            file.seek(self._data_at + first)
            return _array(x["dtype"], x["shape"], file.read(last - first))

    def get_slice(self, name: str, **unused: Any) -> Any:
        if self._file is not None and not self._is_ours(name):
            return self._file.get_slice(name)
        return _LoadedSlice(self.get(name), self._header[name]["dtype"])


class _LoadedSlice:
    """Slice of a tensor that is in memory."""

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


_ML_DTYPES = ("BF16", "F8", "F6", "F4")  # the beginnings of the dtypes that numpy has not of itself


def _array(dtype: str, shape: list[int], data: Any) -> Any:
    array, buffer = _arrays.make("numpy", dtype, tuple(shape))
    if len(data) != buffer.size:
        raise ReadError(f"{buffer.size} bytes of a tensor were asked for, and {len(data)} came")
    buffer[:] = memoryview(data)
    return array


def _read_all(source: Any) -> bytes:
    if not (hasattr(source, "read") and hasattr(source, "seek")):
        return bytes(_arrays.describe(source).buffer)
    at = source.tell()
    source.seek(0)
    data: bytes = source.read()
    source.seek(at)
    return data


def read_metadata(reader: Reader) -> dict[str, str] | None:
    """__metadata__ of its safetensors files."""
    import json

    found: dict[str, str] | None = None
    for file in reader.files:
        if not file.path.endswith(".safetensors") and not (file.path == "" and file.tensors):
            continue
        if file.size < 8:
            continue
        size = int.from_bytes(reader.read(file.path, 0, 8), "little")
        if size > file.size - 8:
            continue
        try:
            header = json.loads(bytes(reader.read(file.path, 8, size)))
        except ValueError:
            continue
        if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
            found = {**(found or {}), **header["__metadata__"]}
    return found


def write_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None,
    *,
    base: Any = None,
    level: Level = 0,
    threads: int | None = None,
    quantize: Any = None,
    progress: Progress | None = None,
) -> None:
    check_metadata(metadata)
    if not isinstance(filename, (str, os.PathLike)):
        raise TypeError(f"argument 'filename': a path is wanted, not {type(filename).__name__}")
    with Writer(filename, base=base, level=level, threads=threads, quantize=quantize, progress=progress) as writer:
        writer.add_arrays(tensors, "", metadata=metadata)


def write_bytes(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None,
    *,
    base: Any = None,
    level: Level = 0,
    threads: int | None = None,
) -> bytes:
    check_metadata(metadata)
    capacity = 1 << 16
    for name, array in tensors.items():
        check_name(name)
        n = _arrays.describe(array).nbytes
        capacity += n + (n >> 12) + 2048 + 12 * len(name)
    capacity += sum(2 * (len(k) + len(v)) for k, v in (metadata or {}).items()) * 6
    with Writer(None, base=base, level=level, threads=threads, _capacity=capacity) as writer:
        writer.add_arrays(tensors, "", metadata=metadata)
    return bytes(writer.data)


def read_file(
    source: Any,
    framework: str,
    device: Any = None,
    *,
    backend: Backend = "mmap",
    base: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: dict[str, Any] | None = None,
    on_error: OnError = "raise",
) -> dict[str, Any]:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is 'raise' or 'skip', not {on_error!r}")
    check_progress(progress)
    result, done = {}, 0
    with _open(
        source, framework, device, backend, base=base, threads=threads, storage_options=storage_options
    ) as reader:
        if isinstance(reader, _Safetensors):
            total = reader.count_bytes()
            for name in reader.keys():
                result[name] = reader.get(name)
                done += result[name].nbytes
                if progress is not None:
                    progress(done, total)
            return result
        names = [name for name in reader.keys() if not reader._is_archive_part(name)]
        reader._expect_all()
        infos = _find_all(reader, names, framework, on_error)
        total = sum(x.size for x in infos)
        for group in _group(infos):
            for x, array in zip(group, _get_together(reader, group, device)):
                result[x.name] = array
                done += x.size
                if progress is not None:
                    progress(done, total)
    return result


def _find_all(reader: Reader, names: list[str], framework: str, on_error: OnError) -> list[TensorInfo]:
    """Before anything is read, so that nobody waits for what then fails for one of them."""
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
    """What can be given."""
    x = reader.info(name)
    reader._check_known(x)
    if x.dtype not in _arrays.BITS:
        raise TypeError(f"tensor {name!r} is of {printable(x.dtype)}, which no framework has (lmc_codec.open() gives its bytes)")
    try:
        _arrays.torch_dtype(x.dtype) if framework == "torch" else _arrays.numpy_dtype(x.dtype)
    except TypeError as error:
        raise TypeError(f"tensor {name!r}: {error}") from None
    except ImportError:
        pass  # that is said when it is made
    return x


SMALL, FAR, TOGETHER = 64 << 10, 4 << 10, 8 << 20


def _group(infos: Iterable[TensorInfo]) -> Iterator[list[TensorInfo]]:
    """Small tensors side by side, which are read at once: each by itself would decode the block of all of them."""
    group: list[TensorInfo] = []
    for x in infos:
        if group:
            first, last = group[0], group[-1]
            gap = x.offset - last.offset - last.span
            is_near = x.file_number == last.file_number and 0 <= gap <= FAR and x.offset + x.span - first.offset <= TOGETHER
            is_plain = x.strides is None and not x.flags and last.strides is None and not last.flags
            if not (is_near and is_plain and max(last.span, x.span) <= SMALL):
                yield group
                group = []
        group.append(x)
    if group:
        yield group


def _get_together(reader: Reader, group: list[TensorInfo], device: Any) -> Iterator[Any]:
    first, last = group[0], group[-1]
    if len(group) == 1:
        yield reader.get(first.name, file=first.file, device=device)
        return
    file, begin = reader.files[first.file_number], first.offset
    try:
        if file.size <= TOGETHER:  # all of it: then fingerprints are compared, too
            begin, data = 0, memoryview(reader.read(file.path))
        else:
            data = memoryview(reader._read_range(first, last.offset + last.span - begin))
    except CorruptError:
        reader._name_damage(file, 0 if file.size <= TOGETHER else begin)
        raise
    for x in group:
        start = x.offset - begin

        def fill(buffer: Any, part: Any = data[start : start + x.size]) -> None:
            if part.nbytes:
                memoryview(buffer).cast("B")[:] = part

        reader._check_known(x)
        yield reader._make(x, x.shape, None, device, fill)


def _fetch_safetensors(url: Any, storage_options: dict[str, Any] | None) -> bytes | None:
    """All of the safetensors file at a URL; None if it is none."""
    from ._sources import open_source

    if not isinstance(url, str) or "://" not in url:
        return None
    source = open_source(url, storage_options)
    try:
        if not is_safetensors(bytes(source.argument(0, min(10, source.size)))):
            return None
        source.expect(0, source.size)
        return bytes(source.argument(0, source.size))
    finally:
        source.close()
