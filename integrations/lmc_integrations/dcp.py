"""PyTorch Distributed Checkpoint in LMC: this Writer and Reader are for dcp.save, dcp.async_save and dcp.load.

    dcp.save(state, storage_writer=lmc_integrations.dcp.Writer("step-100"))
    dcp.save(state, storage_writer=lmc_integrations.dcp.Writer("step-200", base="step-100"))    # a delta
    dcp.load(state, storage_reader=lmc_integrations.dcp.Reader("step-200"))

Each item of a checkpoint (a tensor, a shard of one, an object) is a separate LMC file within the .distcp file. Its content
is that of torch.save(): a zip archive with one large record, the bytes of the tensor, which one write() passes.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from lmc_codec import Base, MissingBaseError, TruncatedError
from lmc_codec import Reader as _FileReader

from ._core import _arrays, _lmc, count_threads, level_number, open_stored, printable, write_all
from ._hosts import Host

with Host("torch", "dcp") as host:
    import torch
    from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
    from torch.distributed.checkpoint.filesystem import (
        FileSystem, FileSystemReader, FileSystemWriter, SerializationFormat, _StorageReaderTransforms, _StorageWriterTransforms
    )
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
    from torch.distributed.checkpoint.planner import ReadItem, SavePlan, SavePlanner, WriteItem
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future

    host.calls(ExtensionRegistry.from_descriptor_list, "self", "descriptors")
    host.calls(FileSystem.create_stream, "self", "path", "mode")
    host.calls(FileSystemReader, "path")
    host.calls(FileSystemReader._slice_file, "self", "file", "_")
    host.calls(FileSystemReader.read_metadata, "self")
    host.calls(FileSystemWriter, "path", "thread_count=", "sync_files=", "serialization_format=", "_extensions=")
    host.calls(_StorageReaderTransforms, "extension_registry")
    host.calls(_StorageWriterTransforms, "extensions")
    host.calls(MetadataIndex, "fqn", "offset")

if TYPE_CHECKING:
    from lmc_codec._types import Level

__all__ = ["Extension", "LoadTransforms", "Reader", "SaveTransforms", "Writer", "make_registry"]

NOTE = "dcp"  # key of a delta's metadata: where its base is
MIN_TENSOR = 1024  # a write of at least this size is the tensor; torch.save writes the bytes around it in smaller parts
MAX_KEPT = 1 << 20  # most bytes around it that are kept in memory; they come in many small writes


def _name_dtype(dtype: torch.dtype) -> str:
    """LMC's name, or "": then the bytes are coded as bytes of unknown kind."""
    try:
        return "F16" if dtype is torch.complex32 else _arrays.dtype_name(dtype)  # two F16 each
    except TypeError:
        return ""


def _find_dtype(head: bytes | bytearray) -> str:
    """The dtype of the tensor that torch.save() will write next: the pickle in front of it has the name."""
    for found in re.findall(rb"ctorch\n(\w+)\n", head):
        name = found.decode()
        if name.endswith("Storage"):
            return _lmc.torch_dtype(f"torch.{name}") or ""
        if isinstance(getattr(torch, name, None), torch.dtype):
            return _name_dtype(getattr(torch, name))
    return ""


def _share_threads(threads: int | None, n: int = 1) -> int:
    """None: the threads of the machine, divided by torchrun's processes on it and by `n` callers in this process."""
    if threads is not None:
        return count_threads(threads)
    return max(1, count_threads(None) // (n * max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))


class _Encoder(io.RawIOBase):
    """Codes what is written to it as a snapshot of up to three files: the large write, and the bytes before and after it.
    Only close() ends it: torch.save() flushes, and may then write more.

    base: the bytes of the base tensor; note: where the base is. errors: gets the exceptions, because torch hides them.
    """

    def __init__(
        self, output: Any, level: int, threads: int, dtype: str = "", name: str = "", base: torch.Tensor | None = None,
        note: bytes = b"", errors: list[BaseException] | None = None
    ):
        self._output, self._level, self._threads = output, level, threads
        self._dtype, self._name, self._base, self._note = dtype, name, base, note
        self._errors: list[BaseException] = [] if errors is None else errors
        self._kept = bytearray()
        self._writer: _lmc.Writer | None = None
        self._is_stream = False  # a file of unknown size is open
        self._failed = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            try:
                self._take(view)
            except BaseException as error:
                self._failed = True
                self._errors.append(error)
                del data  # a traceback keeps this frame, which must not keep the caller's buffer exported
                raise
            return len(view)

    def _take(self, view: memoryview) -> None:
        if self._writer is None and len(view) >= MIN_TENSOR:
            self._write_tensor(view)
        elif not self._is_stream and len(self._kept) + len(view) <= MAX_KEPT:
            self._kept += view
        else:
            if not self._is_stream:
                self._open().begin_file("rest", -1, [])
                self._open().write(self._kept)
                self._is_stream = True
            self._open().write(view)

    def _open(self, base: Base | None = None) -> _lmc.Writer:
        if self._writer is None:
            sink = partial(write_all, self._output)
            self._writer = _lmc.Writer(sink, 0, None if base is None else base._object, self._level, self._threads)
        return self._writer

    def _write_file(self, path: str, data: Any, tensors: Sequence[Any] = ()) -> None:
        writer = self._open()
        writer.begin_file(path, len(data), tensors)
        writer.write(data)
        writer.end_file()

    def _write_tensor(self, view: memoryview) -> None:
        size, dtype, base, tensors = len(view), self._dtype or _find_dtype(self._kept), None, []
        if dtype and 8 * size % _arrays.BITS[dtype] == 0:
            shape = (8 * size // _arrays.BITS[dtype],)  # in the order of memory, which may differ from the tensor's
            tensors = [(self._name, dtype, shape, 0, size, None, None)]
            if self._base is not None and self._base.numel() == size:
                base = _make_base(self._name, dtype, self._base, self._threads)
                self._open(base).add_metadata(NOTE, self._note)
        if self._kept:
            self._write_file("head", self._kept)
            self._kept.clear()
        self._write_file("data", view, tensors)
        self._base = None

    def flush(self) -> None:
        if not self.closed:
            self._output.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if not self._failed:
                self._failed = True  # unless all that follows succeeds
                if self._is_stream:
                    self._open().end_file()
                elif self._kept or self._writer is None:  # a snapshot has at least one file
                    self._write_file("tail", self._kept)
                self._open().finish()
                self._failed = False
        finally:
            super().close()
            self._output.close()


def _make_base(name: str, dtype: str, data: torch.Tensor, threads: int) -> Base:
    return Base({name: _arrays.describe(data, dtype)}, threads=threads)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


#: From the note of a delta to the bytes of its base, and their place for messages.
FindBase = Callable[[dict[str, Any]], tuple[torch.Tensor, str]]


def _section(file: Any, name: str) -> Any:
    """A source for lmc_codec.open from torch's view of a part of a file. name: for messages."""
    return _Section(file, name) if file.seekable() else file.read(-1)


class _Section:
    """The same view, but seek() returns the right position."""

    def __init__(self, file: Any, name: str):
        self._file, self.name = file, name
        self.read = file.read

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return cast(int, self._file.tell())


def _open_item(source: Any, threads: int, find_base: FindBase | None) -> IO[bytes]:
    reader = _FileReader(source, threads=threads)
    tensors = [x for file in reader.files for x in file.tensors]
    if reader.base_fingerprint is not None and find_base is not None and len(tensors) == 1:
        x = tensors[0]
        data, where = find_base(json.loads(reader.metadata[NOTE]))
        base = _make_base(x.name, x.dtype, data, threads)
        base._name = where
        reader = _FileReader(source, threads=threads, base=base)
    return open_stored(reader)


@host.extends
class Extension(StreamTransformExtension):
    """LMC as a stream extension, for other writers that take a list of extensions. It finds a tensor's dtype in the output
    of torch.save(). It cannot make deltas: use Writer or SaveTransforms.

    level: "fast", "default", "max" or "archive". threads: of each writer or reader; None: this process's share of the
    machine, at most 16.
    """

    def __init__(self, *, level: Level = 0, threads: int | None = None):
        self._level, self._threads = level_number(level), threads

    @staticmethod
    def registry_name() -> str:
        return "stream.lmc"

    @staticmethod
    def from_descriptor(version: str) -> Extension:
        if version.partition(".")[0] != "1":
            raise ValueError(f"this checkpoint is of stream.lmc/{printable(version)}, and this version reads stream.lmc/1")
        return Extension()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return cast(IO[bytes], _Encoder(output, self._level, _share_threads(self._threads)))

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return self._open(input, "an item of a checkpoint", None)

    def _open(self, source: IO[bytes], name: str, find_base: FindBase | None) -> IO[bytes]:
        try:
            return _open_item(_section(source, name), _share_threads(self._threads), find_base)
        except TruncatedError as error:  # the code that raises it does not have the name
            raise error if printable(name) in str(error) else TruncatedError(f"{name}: {error}") from None


def make_registry() -> ExtensionRegistry:
    """A registry that reads LMC checkpoints: FileSystemReader(path, _extension_registry=make_registry())."""
    registry = ExtensionRegistry()
    registry.register(Extension)
    return registry


def _is_url(path: Any) -> bool:
    return "://" in os.fspath(path)


def _place(path: Any) -> str:
    return str(path).rstrip("/") if _is_url(path) else str(os.path.realpath(path))


def _open_base(base: Any, storage_options: dict[str, Any] | None) -> Reader | None:
    return base if base is None or isinstance(base, Reader) else Reader(base, storage_options=storage_options)


def _relate(base: Any, path: Any) -> str:
    """The path of the base relative to the checkpoint, so that both can be moved together. Links are resolved, because
    "latest" may be another checkpoint tomorrow."""
    if _is_url(base) or _is_url(path):
        return _place(base)
    try:
        return os.path.relpath(_place(base), _place(path)).replace(os.sep, "/")
    except ValueError:  # on another drive
        return _place(base)


def _find_related(relative: str, path: Any) -> str:
    """The reverse of _relate. Earlier versions did not resolve links."""
    if _is_url(relative) or _is_url(path):
        return relative
    real = os.path.normpath(os.path.join(_place(path), relative))
    given = os.path.normpath(os.path.join(path, relative))
    return given if os.path.exists(given) and not os.path.exists(real) else real


@host.extends
class SaveTransforms(_StorageWriterTransforms):
    """The coding of Writer, for other subclasses of FileSystemWriter: `writer.transforms = SaveTransforms(path)`.

    path: that of the checkpoint. base, level, threads, storage_options: as for Writer. Make it before the writer opens a
    file: it checks that neither the base nor the bases that this needs are overwritten (ValueError).
    """

    def __init__(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | Reader | None = None, level: Level = 0,
        threads: int | None = None, storage_options: dict[str, Any] | None = None
    ):
        super().__init__(())
        self.path = path
        self._extension = Extension(level=level, threads=threads)
        self._base = _open_base(base, storage_options)
        #: torch hides exceptions in a writer's threads and in torch.save's stream, so they are kept here.
        self.errors: list[BaseException] | None = None  # None except while data is written; a thread may go on after that
        if self._base is not None:
            fs, where = _open_file_system(path, storage_options)
            self.check_base(is_deep=fs.exists(fs.concat_path(where, ".metadata")))  # else there is no checkpoint to lose

    def transform_save_stream(self, write_item: WriteItem, raw_stream: io.IOBase) -> tuple[IO[bytes], list[str]]:
        output, _ = super().transform_save_stream(write_item, raw_stream)
        extension, data, errors = self._extension, write_item.tensor_data, self.errors
        name, dtype, base, note = "", "", None, b""
        if data is not None:
            name, dtype = write_item.index.fqn, _name_dtype(data.properties.dtype)
        if data is not None and self._base is not None:
            try:
                base, note = self._find_base(name, data)
            except BaseException as error:
                if errors is not None:
                    errors.append(error)
                raise
        threads = _share_threads(extension._threads)
        encoder = _Encoder(output, extension._level, threads, dtype, name, base, note, errors)
        return cast(IO[bytes], encoder), [extension.get_descriptor()]

    def check_base(self, *, is_deep: bool = False) -> None:
        """Raises ValueError if writing would overwrite the base or (is_deep) one of the bases that this needs. Call it
        before any file is opened, because that would lose both."""
        reader, seen = self._base, set()
        while reader is not None and _place(reader.path) not in seen:
            seen.add(_place(reader.path))
            if _place(reader.path) == _place(self.path):
                if reader is self._base:
                    raise ValueError(f"{printable(self.path)}: a checkpoint cannot be a delta of itself")
                base = cast(Reader, self._base).path
                raise ValueError(f"{printable(self.path)}: the base {printable(base)} needs what is there, and both would be lost")
            reader = reader.find_base() if is_deep else None

    def _find_base(self, name: str, data: Any) -> tuple[torch.Tensor | None, bytes]:
        reader = cast(Reader, self._base)
        self.check_base()
        offsets, sizes = list(data.chunk.offsets), list(data.chunk.sizes)
        found = reader.read_chunk(name, offsets, sizes)
        if found is None or found.dtype != data.properties.dtype:
            return None, b""
        note = {"base": _relate(reader.path, self.path), "name": name, "offsets": offsets, "sizes": sizes}
        return _bytes_of(found), json.dumps(note).encode()


@host.extends
class Writer(FileSystemWriter):
    """Writes a checkpoint in LMC: `dcp.save(state, storage_writer=Writer("step-100"))`.

    path: a directory, or a URL of fsspec (s3://...). base: an earlier checkpoint (its path, or a Reader), in LMC or not, of
    any number of ranks: tensors that it has, too, become deltas against it, and loading needs it. It must be complete: wait
    for its async_save first. level: "fast", "default", "max" or "archive". threads: of each of the thread_count writers;
    None: this process's share of the machine, at most 16. storage_options: of fsspec, for path and base. options: of
    FileSystemWriter (thread_count, sync_files, ...).
    """

    def __init__(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | Reader | None = None, level: Level = 0,
        threads: int | None = None, storage_options: dict[str, Any] | None = None, **options: Any
    ):
        if options.get("_extensions"):
            raise ValueError("_extensions: what LMC has coded, others cannot make smaller")
        if options.get("serialization_format", SerializationFormat.TORCH_SAVE) is not SerializationFormat.TORCH_SAVE:
            raise ValueError("serialization_format: torch writes safetensors past every extension; leave it out")
        super().__init__("." if _is_url(path) else path, **options)
        self._storage_options = storage_options
        self.fs, self.path = _open_file_system(path, storage_options)
        threads = _share_threads(threads, self.thread_count)
        self.transforms: SaveTransforms = SaveTransforms(
            self.path, base=base, level=level, threads=threads, storage_options=storage_options
        )

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)
        if checkpoint_id:
            self.fs, self.path = _open_file_system(checkpoint_id, self._storage_options)
            self.transforms.path = self.path

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        is_there = is_coordinator and self.fs.exists(self.fs.concat_path(self.path, ".metadata"))
        self.transforms.check_base(is_deep=is_there)  # without a checkpoint there, none can be lost
        if self.transforms._base is not None:
            self.transforms._base.load_metadata()  # before anything is written
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        errors: list[BaseException] = []
        self.transforms.errors = errors
        try:
            try:
                future = super().write_data(plan, planner)
            except RuntimeError:
                if errors:
                    raise errors[0]  # torch raises "unexpected pos" instead of it
                raise
            n = len(future.value())
            if n != len(plan.items):
                error = f"{printable(self.path)}: {len(plan.items) - n} of {len(plan.items)} items were not written"
                raise RuntimeError(error) from (errors[0] if errors else None)
            return future
        finally:  # a cycle otherwise: a traceback keeps frames, these keep this writer
            self.transforms.errors = None
            errors.clear()


@host.extends
class LoadTransforms(_StorageReaderTransforms):
    """The decoding of Reader, for other subclasses of FileSystemReader: `reader.transforms = LoadTransforms(path)`.

    path: that of the checkpoint. base, threads, storage_options: as for Reader.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | Reader | None = None,
        threads: int | None = None, storage_options: dict[str, Any] | None = None
    ):
        super().__init__(make_registry())
        self.path = path
        self._threads, self._storage_options = threads, storage_options
        self._base = _open_base(base, storage_options)
        self._readers: dict[str, Reader] = {}
        self._chain: tuple[str, ...] = ()  # the checkpoints that have this as a base, from the newest on

    def transform_load_stream(
        self, read_item: ReadItem, transform_descriptors: Sequence[str], raw_stream: IO[bytes]
    ) -> IO[bytes]:
        file = getattr(getattr(raw_stream, "base_stream", raw_stream), "name", None)
        return self._open(read_item.storage_index.fqn, transform_descriptors, raw_stream, file)

    def _open(
        self, name: str, transform_descriptors: Sequence[str], raw_stream: IO[bytes], file: object = None
    ) -> IO[bytes]:
        stream, where = raw_stream, file if isinstance(file, str) else self.path
        for extension in self.extension_registry.from_descriptor_list(transform_descriptors):
            if isinstance(extension, Extension):
                extension._threads = self._threads
                stream = extension._open(stream, f"{where}: {name}", self._find_base)
            elif isinstance(extension, StreamTransformExtension):
                stream = extension.transform_from(stream)
        return stream

    def _open_base(self, note: dict[str, Any]) -> Reader:
        path = _find_related(note["base"], self.path)
        reader = self._base or self._readers.get(path)
        chain = (*self._chain, _place(self.path))
        if reader is None:
            if _place(path) in chain:
                names = " -> ".join((*chain[chain.index(_place(path)) :], _place(path)))
                raise MissingBaseError(
                    f"{self.path}: its bases go in a circle: {names}. One of them was replaced, or a link leads elsewhere"
                    " now: say where the base of each is, Reader(path, base=Reader(..., base=...))",
                )
            reader = Reader(path, threads=self._threads, storage_options=self._storage_options)
            reader.transforms._chain = chain
            self._readers[path] = reader
        return reader

    def _find_base(self, note: dict[str, Any]) -> tuple[torch.Tensor, str]:
        reader = self._open_base(note)
        try:
            found = reader.read_chunk(note["name"], note["offsets"], note["sizes"])
        except (FileNotFoundError, MissingBaseError) as error:
            if isinstance(error, MissingBaseError) and reader._metadata is not None:
                raise  # the error is about the base of the base
            raise MissingBaseError(
                f"{self.path}: tensor {note['name']!r} is a delta of the checkpoint {reader.path}, which cannot be read:"
                f" {error}. Say where it is: Reader(path, base=...)"
            ) from error
        if found is None:
            raise MissingBaseError(f"{self.path}: the base {reader.path} has no tensor {note['name']!r} of that shape")
        return _bytes_of(found), str(reader.path)


@host.extends
class Reader(FileSystemReader):
    """Reads a checkpoint, in LMC or not: `dcp.load(state, storage_reader=Reader("step-100"))`.

    path: a directory, or a URL of fsspec. base: the base of a delta, if it was moved relative to the checkpoint: a path, or
    a Reader. threads: None: this process's share of the machine, at most 16. storage_options: of fsspec, for path and base.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, base: str | os.PathLike[str] | Reader | None = None,
        threads: int | None = None, storage_options: dict[str, Any] | None = None
    ):
        super().__init__("." if _is_url(path) else path)
        self._storage_options = storage_options
        self.fs, self.path = _open_file_system(path, storage_options)
        self.transforms: LoadTransforms = LoadTransforms(
            self.path, base=base, threads=threads, storage_options=storage_options
        )
        self._metadata: Metadata | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)
        self._metadata = None
        if checkpoint_id:
            self.fs, self.path = _open_file_system(checkpoint_id, self._storage_options)
            self.transforms.path = self.path

    def load_metadata(self) -> Metadata:
        """Reads the metadata of a base. MissingBaseError: it is not a checkpoint, or not finished."""
        if self._metadata is None:
            try:
                self._metadata = self.read_metadata()
            except FileNotFoundError as error:
                what = f"the base {self.path} is not a checkpoint, or is not finished: it has no .metadata"
                raise MissingBaseError(what) from error
        return self._metadata

    def find_base(self) -> Reader | None:
        """The base of a delta, from the first item that has one. None: this is not a delta."""
        try:
            metadata = self.read_metadata()
        except FileNotFoundError as error:
            raise MissingBaseError(f"{self.path}, which the base needs, cannot be read: {error}") from error
        for index, where in metadata.storage_data.items():
            is_tensor = isinstance(metadata.state_dict_metadata.get(index.fqn), TensorStorageMetadata)
            if not is_tensor or list(where.transform_descriptors or ()) != [Extension().get_descriptor()]:
                continue
            with self.fs.create_stream(self.fs.concat_path(self.path, where.relative_path), "rb") as file:
                source = _section(self._slice_file(file, where), f"{self.path}: {index.fqn}")
                notes = _FileReader(source, threads=1).metadata
            if NOTE in notes:
                return self.transforms._open_base(json.loads(notes[NOTE]))
        return None

    def read_chunk(self, name: str, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor | None:
        """A part of a tensor, joined from all of its shards. None: the checkpoint does not have all of it."""
        entry = self.load_metadata().state_dict_metadata.get(name)
        if not isinstance(entry, TensorStorageMetadata) or len(entry.size) != len(sizes):
            return None
        result, n, n_found = None, 1, 0
        for size in sizes:
            n *= size
        for chunk in entry.chunks:
            if list(chunk.offsets) == list(offsets) and list(chunk.sizes) == list(sizes):
                return self._load_item(MetadataIndex(name, chunk.offsets))
            start = [max(a, b) for a, b in zip(chunk.offsets, offsets)]
            end = [min(a + i, b + j) for a, i, b, j in zip(chunk.offsets, chunk.sizes, offsets, sizes)]
            if any(a >= b for a, b in zip(start, end)):
                continue
            part = self._load_item(MetadataIndex(name, chunk.offsets))
            if result is None:
                result = torch.empty(list(sizes), dtype=part.dtype)
            source = part[tuple(slice(a - c, b - c) for a, b, c in zip(start, end, chunk.offsets))]
            result[tuple(slice(a - c, b - c) for a, b, c in zip(start, end, offsets))] = source
            n_found += source.numel()
        return result if n_found == n else None

    def _load_item(self, index: MetadataIndex) -> torch.Tensor:
        where = cast(Metadata, self._metadata).storage_data[index]
        with self.fs.create_stream(self.fs.concat_path(self.path, where.relative_path), "rb") as file:
            part = self._slice_file(file, where)
            path = str(self.fs.concat_path(self.path, where.relative_path))
            stream = self.transforms._open(index.fqn, where.transform_descriptors or (), part, path)
            whole: Any = stream if stream.seekable() else io.BytesIO(stream.read(-1))
            return cast(torch.Tensor, torch.load(whole, map_location="cpu", weights_only=True))


def _open_file_system(path: Any, options: dict[str, Any] | None) -> tuple[Any, Any]:
    if not _is_url(path):
        file_system = FileSystem()
        return file_system, file_system.init_path(path)
    from torch.distributed.checkpoint import _fsspec_filesystem  # later versions have a public name, too

    remote = _fsspec_filesystem.FileSystem()
    return remote, remote.init_path(path, **(options or {}))
