"""What safetensors offers, for LMC files: the same names, arguments and results."""

from __future__ import annotations

import os

from . import _arrays
from ._base import is_safetensors
from ._errors import LMCError, NotLMCError
from ._names import check_name
from ._reader import Reader, Slice
from ._writer import Writer, check_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from ._reader import TensorInfo


class safe_open:
    """Opens an LMC file lazily and returns tensors as asked, as `safetensors.safe_open` does.

    filename: a path, or whatever `lmc_codec.open` takes. framework: "pt" or "np". device: of torch. backend: taken, and
    ignored. base: of a delta. threads: None is as many as there are, at most 8.

    A safetensors file is opened by safetensors itself: who changes the import line goes on reading what is there.
    """

    def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        is_path = isinstance(filename, (str, os.PathLike))
        if is_path and is_safetensors(filename):  # which is no delta: it needs no base
            return _safetensors(filename).safe_open(filename, framework, device)
        return super().__new__(cls)

    def __init__(
        self,
        filename: Any,
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
        base: Any = None,
        threads: int | None = None,
        storage_options: dict[str, Any] | None = None,
    ):
        try:
            self._framework = _arrays.framework_name(framework)
        except ValueError:
            raise LMCError(f"framework {framework} is invalid") from None
        self._device = None if device == "cpu" or self._framework != "torch" else _device(device)
        self._reader: Reader | None = Reader(
            filename, base=base, threads=threads, framework=self._framework, storage_options=storage_options
        )

    def _open(self) -> Reader:
        if self._reader is None:
            raise LMCError("File is closed")
        return self._reader

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
        return read_metadata(self._open())

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name."""
        return self._open().get(name, framework=self._framework, device=self._device)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        """A tensor of which parts are read by indexing it."""
        return self._open().get_slice(name, framework=self._framework, device=self._device)


def _device(device: Any) -> Any:
    import torch

    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise LMCError(f"device {device} is invalid") from None


def _safetensors(source: Any, module: str = "safetensors") -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        name = "this" if isinstance(source, (bytes, bytearray, memoryview)) else os.fsdecode(source)
        raise ImportError(f"{name} is a safetensors file: pip install safetensors, which reads it") from None


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
    level: int | str = 0,
    threads: int | None = None,
    quantize: Any = None,
    progress: Callable[[int], Any] | None = None,
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
    level: int | str = 0,
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
    base: Any = None,
    threads: int | None = None,
    progress: Callable[[int], Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    result, done = {}, 0
    if is_safetensors(source):  # it is no delta, whatever the base
        return _read_safetensors(source, framework, device, progress)
    try:
        reader = Reader(source, base=base, threads=threads, framework=framework, storage_options=storage_options)
    except NotLMCError:
        fetched = _fetch_safetensors(source, storage_options)
        if fetched is None:
            raise
        return _read_safetensors(fetched, framework, device, progress)
    with reader:
        names = [name for name in reader.keys() if not reader._is_archive_part(name)]
        for group in _group(map(reader.info, names)):
            for x, array in zip(group, _get_together(reader, group, device)):
                result[x.name] = array
                done += x.size
                if progress is not None:
                    progress(done)
    return result


SMALL, FAR, TOGETHER = 64 << 10, 4 << 10, 8 << 20


def _group(infos: Iterable[TensorInfo]) -> Iterator[list[TensorInfo]]:
    """Small tensors side by side, which are read at once: each by itself would decode the block of all of them."""
    group: list[TensorInfo] = []
    for x in infos:
        if group:
            first, last = group[0], group[-1]
            gap = x.offset - last.offset - last.span
            is_near = x.file_number == last.file_number and 0 <= gap <= FAR and x.offset + x.span - first.offset <= TOGETHER
            if not (is_near and max(last.span, x.span) <= SMALL) or x.strides or last.strides:
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
    if file.size <= TOGETHER:  # all of it: then identities are compared, too
        begin, data = 0, memoryview(reader.read(file.path))
    else:
        data = memoryview(reader._read_range(first, last.offset + last.span - begin))
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


def _read_safetensors(source: Any, framework: str, device: Any, progress: Callable[[int], Any] | None) -> dict[str, Any]:
    """All tensors of a safetensors file, or of one in memory, by safetensors."""
    theirs = _safetensors(source, f"safetensors.{framework}")
    options = {} if device is None else {"device": device}
    if isinstance(source, (str, os.PathLike)):
        result: dict[str, Any] = theirs.load_file(source, **options)
    else:
        result = theirs.load(bytes(source))
    if progress is not None:
        progress(sum(x.nbytes for x in result.values()))
    return result
