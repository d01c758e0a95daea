"""Reads LMC files: any tensor, or a part of one, without the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping

from . import _arrays, _lmc
from ._arguments import count_threads
from ._base import AUTO, Base, Shards, find_files, name_other
from ._errors import (
    AmbiguousError, ArgumentError, BaseError, LimitError, LMCError, MissingBaseError, NotFoundError, NotLMCError, SliceError,
    TruncatedError, UnsupportedError, WrongBaseError
)
from ._lmc import printable
from ._sources import Source, open_source

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeVar, overload

    import torch
    from numpy.typing import NDArray

    from ._types import BytesName, Framework, NumpyName, TorchName

    _Out = TypeVar("_Out")


FEATURES = ("Base", "Own", "Quantised", "Zeros", "Matrix", "Codes")  # by the bits of Incompatible (spec 3.1)


class Loss:
    """What quantising has cost a tensor: how often it was quantised, and the error of the last time."""

    __slots__ = ("generation", "measure", "error")

    def __init__(self, generation: int, measure: str, error: float):
        self.generation, self.measure, self.error = generation, measure, error

    def __repr__(self) -> str:
        return f"Loss(generation={self.generation}, measure={self.measure!r}, error={self.error:.3g})"


class TensorInfo:
    """A tensor: name, dtype ("BF16"), shape, size and offset (bytes, within its file), file (its path), fingerprint (16
    bytes), loss (None: exact).

    strides: in elements, of a tensor of torch.save() whose elements are not stored in the order of its shape; else None.
    span: bytes from its first to its last element."""

    __slots__ = (
        "name", "dtype", "shape", "offset", "size", "fingerprint", "loss", "file", "file_number", "strides", "span", "flags"
    )  # fmt: skip

    def __init__(self, row: _lmc._TensorRow, file: str, file_number: int, view: _lmc._View | None = None):
        self.name, self.dtype, self.shape, self.offset, self.size, self.fingerprint, loss = row
        self.loss = Loss(*loss) if loss else None
        self.file, self.file_number = file, file_number
        # flags: PyTorch's lazy conjugation and negation, which the stored bytes lack
        self.strides, self.span, self.flags = view or (None, self.size, 0)

    def __repr__(self) -> str:
        return printable(f"TensorInfo({self.name!r}, {self.dtype}, {list(self.shape)}, file={self.file!r})")


class FileInfo:
    """A file: path, size, is_directory, mode and mtime_ns (None: not stored), tensors."""

    __slots__ = ("path", "size", "is_directory", "mode", "mtime_ns", "crc32c", "fingerprint", "tensors", "number")

    def __init__(self, row: _lmc._FileRow, number: int):
        self.path, kind, self.size, self.mode, mtime, self.crc32c, self.fingerprint, tensors = row
        self.is_directory = kind == 1
        self.mtime_ns = mtime[0] * 1_000_000_000 + mtime[1] if mtime else None
        self.number = number
        self.tensors = tuple(TensorInfo(x, self.path, number) for x in tensors)

    def __repr__(self) -> str:
        return printable(f"FileInfo({self.path!r}, {self.size} bytes, {len(self.tensors)} tensors)")


class Reader:
    """An open LMC file; `lmc_codec.open` is this class. Any thread may use it; one at a time reads.

    source: a path, a URL (http, or of fsspec), bytes, or a binary file that can seek. base: what a delta was made against: a
    path, a URL, bytes, a Reader, a Base, or arrays by name; or a list of them, which are one base together (shards). Without it
    a delta can be listed, but not read. "auto": the base is found beside the file, by its fingerprint. If the base is a delta
    itself, its own bases are found beside it, unless it is a Reader that has them: base=open("m2.lmc",
    base="elsewhere/m1.lmc"). threads: None is one for each usable CPU, at most 16. framework: of results, "numpy" (the
    default), "torch" or "bytes". max_index_size (1 GiB), max_total_size: limits for files of strangers. storage_options: for
    fsspec; for http: headers by name, or in "headers", and "timeout" (30): seconds without a byte.
    """

    def __init__(
        self, source: Any, *, base: Any = None, threads: int | None = None, framework: Framework | None = None,
        max_index_size: int = 0, max_total_size: int = 0, storage_options: dict[str, Any] | None = None
    ):
        is_auto = isinstance(base, str) and base == AUTO
        self._n_threads = count_threads(threads)
        self._limits = {"max_index_size": max_index_size, "max_total_size": max_total_size}
        self._how: tuple[Any, Any, dict[str, Any]] = (
            _lasting(source), base if is_auto else _lasting(base),
            {"threads": threads, "framework": framework, "storage_options": storage_options, **self._limits}
        )
        self._framework = None if framework is None else _arrays.framework_name(framework)
        base = None if is_auto else take_base(base, threads)
        self._source = open_source(source, storage_options)
        self._begin(base)
        if is_auto and self.base_fingerprint is not None:
            from ._chain import complete

            complete(self, Reader)

    def _begin(self, base: Reader | Base | Shards | None) -> None:
        """Opens the source with that base. If a base was found later (_chain.py), opens the same source again."""
        source = self._source
        self._base = base
        try:
            #: Files that Writers must not replace.
            files = find_files(source.fileno(), frozenset() if base is None else base._chain_files)
            self._chain_files: frozenset[tuple[int, int]] = files
            self._object: _lmc.Reader = _lmc.Reader(
                source.argument, source.size, None if base is None else base._object, self._n_threads, source.name, *self._limits.values()
            )
        except Exception as error:
            better = [x for x in (_explain(error, source, base, **self._limits),) if x is not None]
            source.close()
            if better:
                raise better.pop() from None  # a variable would keep it by this frame, to which it refers, with all files of the callers
            raise
        self._is_read_whole = False
        self._files: tuple[FileInfo, ...] | None = None
        self._table: dict[str, TensorInfo | None] | None = None
        self._views: dict[int, dict[str, TensorInfo | None] | LMCError] | None = None
        info = self._object.info()
        #: 16 bytes that identify all names and contents.
        self.fingerprint: bytes = info[1]
        #: The fingerprint of a delta's base; None if this is not a delta.
        self.base_fingerprint: bytes | None = info[2] or None
        #: Optional features of the format that it may use: "Base", "Own" (it predicts parts of itself), "Quantised",
        #: "Zeros" (zeros apart), "Matrix" (predictions by rows and columns),
        #: "Codes" (codes with scales).
        self.features: tuple[str, ...] = tuple(name for i, name in enumerate(FEATURES) if info[3] >> i & 1)
        self._n_files: int = info[0]

    # -- what is in it --

    @property
    def name(self) -> str | None:
        """Its path or URL, if it has one."""
        return self._source.name

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """All files, in their order."""
        if self._files is None:
            self._files = tuple(FileInfo(self._object.file(i), i) for i in range(self._n_files))
        return self._files

    @property
    def metadata(self) -> dict[str, bytes]:
        """Entries of Writer.add_metadata, by key."""
        return self._object.metadata()

    def _tensors(self) -> dict[str, TensorInfo | None]:
        if self._table is None:
            table: dict[str, TensorInfo | None] = {}
            for file in self.files:
                views = dict(self._views_of(file.number))
                # .distcp files list the bytes of a view again, under another name, in the order of memory; and bytes between tensors
                spans: set[tuple[int, int]] = set()
                if file.path.endswith(".distcp"):
                    spans.update((v.offset, v.span) for v in views.values() if v and v.strides)
                    spans.update((x.offset, x.size) for x in file.tensors if x.name.startswith("@") and x.dtype == "BYTES")
                for x in file.tensors:
                    if x.name in views or (x.offset, x.size) not in spans:
                        found = views.pop(x.name, x)  # a view of the same name replaces it
                        table[x.name] = None if x.name in table else found  # None: several tensors have this name
            own = set(table)
            for number in self._find_views():  # names in the list come before those that only a pickle has
                for name, view in self._views_of(number).items():
                    if name not in table:
                        table[name] = view
                    elif name not in own:
                        table[name] = None
            self._table = table
        return self._table

    # -- tensors of torch.save(), as PyTorch has them --

    def _find_views(self) -> dict[int, dict[str, TensorInfo | None] | LMCError]:
        """Views by file; an error if they cannot be known."""
        if self._views is None:
            self._views = {number: self._views_in(number) for number in self._object.archives()}
        return self._views

    def _views_of(self, number: int) -> dict[str, TensorInfo | None]:
        found = self._find_views().get(number)
        return found if isinstance(found, dict) else {}

    def _views_in(self, number: int) -> dict[str, TensorInfo | None] | LMCError:
        try:
            rows = self._object.views(number)
        except (UnsupportedError, BaseError) as error:
            return error
        path = self._object.file_path(number)
        rows.sort(key=lambda x: x[0][3])  # by their offsets
        return {row[0]: None if is_ambiguous else TensorInfo(row, path, number, view) for row, view, is_ambiguous in rows}

    def _check_known(self, x: TensorInfo) -> None:
        """Refuses a tensor that LMC would read differently from PyTorch."""
        found = self._find_views().get(x.file_number)
        if isinstance(found, LMCError):
            raise found
        if x.flags and not _lmc.resolve(bytearray(), x.dtype, x.flags):
            raise UnsupportedError(f"{self._what(x)} is conjugated or negated by a flag of PyTorch, and LMC cannot apply that to {x.dtype}")

    def keys(self) -> list[str]:
        """Names of all tensors, in the order of the files."""
        return list(self._tensors())

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors())

    def __len__(self) -> int:
        return len(self._tensors())

    def __contains__(self, name: object) -> bool:
        return name in self._tensors()

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def info(self, name: str, *, file: str | None = None) -> TensorInfo:
        """Describes a tensor. file: the path of its file, if several files have a tensor of that name."""
        if self._table is not None and file is None:
            found = self._table.get(name)
            if found is not None:
                return found
        if self._find_views():
            if file is None:
                views = self._tensors()
            else:
                views = next((self._views_of(i) for i in self._find_views() if self._object.file_path(i) == file), {})
            view = views.get(name)
            if view is not None:
                return view
            if name in views:
                what = "say which file" if file is None and len(self.files) > 1 else "restore the file, and torch.load() tells them apart"
                raise AmbiguousError(f"{self.name or 'the snapshot'}: several tensors are called {name!r}: {what}")
        try:
            number, row = self._object.find(name, file)
        except NotFoundError as error:
            near = self._find_near(name)
            if not near:
                raise
            raise NotFoundError(f"{self.name or 'the snapshot'}: no tensor {name!r}: did you mean {near}?") from error
        path = self._files[number].path if self._files is not None else self._object.file_path(number)
        return TensorInfo(row, path, number)

    def _find_near(self, name: str) -> str:
        """Names that may be meant. Not in long lists: programs may ask for many names that do not exist."""
        if not isinstance(name, str) or len(self) > 1000:
            return ""
        from difflib import get_close_matches

        return " or ".join(repr(x) for x in get_close_matches(name, self, 2, 0.8))

    def _is_archive_part(self, name: str) -> bool:
        """Whether the name is that of a storage, the pickle or the directory in a file of torch.save()."""
        if not (name.startswith("@") or name.endswith("@storage")):
            return False
        x = self._tensors().get(name)
        return x is not None and x.file_number in self._find_views()

    # -- reading --

    def _what(self, x: TensorInfo) -> str:
        return f"tensor {x.name!r}" if x.name else "the tensor"

    def _expect_all(self) -> None:
        """Tells the source that everything before the table of blocks will be read, in order."""
        self._is_read_whole = True
        if callable(self._source.argument):
            last = self.files[-1]
            at, encoded = self._object.encoded_range(last.number, 0, last.size) if last.size else (0, self._source.size)
            self._source.expect(0, at + encoded)

    def _expect(self, number: int, offset: int, size: int) -> None:
        if size and not self._is_read_whole and callable(self._source.argument):
            at, encoded = self._object.encoded_range(number, offset, size)
            self._source.expect(at, at + encoded)

    def prefetch(self, names: Iterable[str]) -> None:
        """For a remote file: reads the encoded bytes of these tensors at once, up to 32 requests at a time, to the memory,
        where they stay until close() or the next call. Then get() of each waits for no answer. Other files are not read
        ahead, and neither is a base."""
        names = [names] if isinstance(names, str) else names
        if not callable(self._source.argument):
            return
        ranges = []
        for name in names:
            x = self.info(name)
            at, encoded = self._object.encoded_range(x.file_number, x.offset, x.span)
            ranges.append((at, at + encoded))
        self._source.argument.prefetch(ranges)

    def _read_into(self, x: TensorInfo, buffer: Any, span: Any = None) -> None:
        """span: the tensor's bytes, from the first to the last element, if they were read already."""
        if span is None:
            span = buffer if x.strides is None else _lmc.new_bytes(x.span)
            self._expect(x.file_number, x.offset, x.span)
            self._object.read(x.file_number, x.offset, span, self._what(x))
        if x.strides is not None:
            _lmc.gather(span, buffer, x.shape, x.strides)
        elif span is not buffer and x.size:
            memoryview(buffer).cast("B")[:] = span
        if x.flags:
            _lmc.resolve(buffer, x.dtype, x.flags)

    def _name_damage(self, file: FileInfo, begin: int) -> None:
        """After several tensors were read at once: raises the error of the first damaged one from `begin` on."""
        for x in file.tensors:
            if x.offset >= begin:
                self._object.read(file.number, x.offset, _lmc.new_bytes(x.size), self._what(x))

    if TYPE_CHECKING:

        @overload
        def get(
            self, name: str, *, file: str | None = None, out: None = None, framework: TorchName, device: Any = None
        ) -> torch.Tensor: ...
        @overload
        def get(
            self, name: str, *, file: str | None = None, out: None = None, framework: NumpyName, device: None = None
        ) -> NDArray[Any]: ...
        @overload
        def get(
            self, name: str, *, file: str | None = None, out: None = None, framework: BytesName, device: None = None
        ) -> bytearray: ...
        @overload
        def get(
            self, name: str, *, file: str | None = None, out: None = None, framework: None = None, device: Any = None
        ) -> Any: ...
        @overload
        def get(
            self, name: str, *, file: str | None = None, out: _Out, framework: Framework | None = None, device: Any = None
        ) -> _Out: ...

    def get(
        self, name: str, *, file: str | None = None, out: Any = None, framework: Framework | None = None,
        device: Any = None
    ) -> Any:
        """Returns a tensor as an array of `framework` ("numpy", "torch", "bytes"), or in `out`. Without framework it is of
        numpy, or of PyTorch if only PyTorch has the dtype (bf16 without ml_dtypes).

        out: an array of the tensor's dtype, of its shape or of one dimension, or a writable buffer of its size; for example
        pinned memory. device: of torch; tensors are copied there through pinned memory.
        """
        x = self.info(name, file=file)
        self._check_known(x)
        if out is not None:
            dtype = x.dtype if x.dtype in _arrays.BITS else ""
            self._read_into(x, _arrays.describe_out(out, dtype, x.size, x.shape))
            return out
        is_bytes = (framework or self._framework) == "bytes"
        if x.strides is None or x.size <= x.span or (is_bytes and x.size <= max(x.span << 10, 1 << 20)):
            return self._make(x, x.shape, framework, device, lambda buffer: self._read_into(x, buffer))
        if is_bytes:
            raise LimitError(f"{self._what(x)} has {x.size} bytes, made of {x.span} by repeating them: ask for numpy or torch")
        shape = (x.span * 8 // _arrays.BITS[x.dtype],)
        flat = TensorInfo((x.name, x.dtype, shape, x.offset, x.span, b"", None), x.file, x.file_number, (None, x.span, x.flags))
        elements = self._make(flat, shape, framework, device, lambda buffer: self._read_into(flat, buffer))
        return _arrays.repeat(elements, x.shape, x.strides)

    def _make(self, x: TensorInfo, shape: tuple[int, ...], framework: Framework | None, device: Any, fill: Any) -> Any:
        framework = framework or self._framework or ("torch" if device is not None else None)
        framework = _arrays.choose_framework(x.dtype) if framework is None else _arrays.framework_name(framework)
        if framework != "bytes" and x.dtype not in _arrays.BITS:
            raise TypeError(f"{self._what(x)} is of {printable(x.dtype)}, which no framework has: ask for framework='bytes'")
        if device is not None and framework != "torch":
            raise ValueError("device is for framework='torch'")
        dtype, shape = (x.dtype, shape) if x.dtype in _arrays.BITS else ("", (x.size,))
        try:
            array, buffer = _arrays.make(framework, dtype, shape, device)
        except ImportError:
            if self.base_fingerprint and self._base is None:  # the missing base is reported first
                fill(_lmc.new_bytes(_arrays.count_bytes(dtype or "U8", shape)))
            raise
        fill(buffer)
        return _arrays.to_device(array, device)

    def get_slice(self, name: str, *, file: str | None = None, framework: Framework | None = None, device: Any = None) -> Slice:
        """An object that reads parts of a tensor when it is indexed: `r.get_slice("w")[10:20, :]`."""
        return Slice(self, self.info(name, file=file), framework, device)

    def read(self, path: str = "", offset: int = 0, size: int | None = None, *, out: Any = None) -> Any:
        """Reads bytes of a file, to a bytearray or to `out`. path "": the only file."""
        x = self._file(path)
        if out is not None:
            target = _arrays.describe(out)
            size = target.nbytes if size is None else size
            buffer = _arrays.describe_out(out, "", size)
        else:
            size = x.size - offset if size is None else size
            if size < 0 or offset < 0 or offset + size > x.size:
                raise ValueError(f"{printable(x.path)}: no bytes {offset} to {offset + size} in a file of {x.size}")
            out = buffer = _lmc.new_bytes(size)
        self._expect(x.number, offset, size)
        self._object.read(x.number, offset, buffer, path or None)
        return out

    def _file(self, path: str) -> FileInfo:
        if path == "" and len(self.files) == 1:
            return self.files[0]
        for x in self.files:
            if x.path == path:
                return x
        raise NotFoundError(f"{self.name or 'the snapshot'}: no file {path!r}")

    def encoded_size(self, name: str, *, file: str | None = None) -> int:
        """Size of a tensor in the LMC file, in bytes."""
        x = self.info(name, file=file)
        return self._object.encoded_size(x.file_number, x.offset, x.span)

    # -- what has changed --

    def changes(
        self, names: Iterable[str] | None = None, *, framework: Framework | None = None, out: tuple[Any, Any] | None = None
    ) -> Iterator[tuple[str, Any, Any]]:
        """The elements that differ from the base in any bit: (name, flat indices, new values) for each tensor that differs;
        if many elements differ, in several parts, in order. To update the base, write the values at the indices.

        names: the tensors to compare; None: all. framework: "numpy" (the default) or "torch". out: two arrays of bytes
        (uint8), for the indices and the values of a part; each part is then views of them, valid until the next part.
        Indices are int32, or int64 for more than 2**31 elements. The base must not change until the last part.

        A tensor is compared with the base's tensor of its name, and is not read if both have the same fingerprint. If the
        base lacks it, or has another dtype or shape: UnsupportedError, before anything is read.
        """
        if self._base is None:
            raise MissingBaseError(f"{self.name or 'the snapshot'}: changes() compares it with a base: give base=")
        if framework is None:
            framework = self._framework if out is None else "torch" if hasattr(out[0], "data_ptr") else "numpy"
        framework = _arrays.framework_name(framework or "numpy")
        if framework == "bytes":
            raise ValueError("changes need the framework numpy or torch")
        found = []
        for x, number, row in self._pair(names):
            dtype = _arrays.torch_dtype(x.dtype) if framework == "torch" else _arrays.numpy_dtype(x.dtype)
            if x.fingerprint != row[5]:
                found.append((x, _arrays.BITS[x.dtype] // 8, dtype, number, row[3]))
        return self._list_changes(found, framework, out)

    def _pair(self, names: Iterable[str] | None) -> list[tuple[TensorInfo, int, _lmc._TensorRow]]:
        """Tensors (None: all), each with the base's tensor of its name: file number, description."""
        names = [names] if isinstance(names, str) else names
        bases: dict[str, Any] = {}
        for number, row in self._object.base_tensors():
            bases[row[0]] = None if row[0] in bases else (number, row)
        found = []
        for name in [n for n in self if not self._is_archive_part(n)] if names is None else names:
            x, base = self.info(name), bases.get(name)
            why = ""
            if _arrays.BITS.get(x.dtype, 0) not in (8, 16, 32, 64):
                why = "its elements are not of 1, 2, 4 or 8 bytes each"
            elif x.strides is not None or x.flags or (base is None and not x.fingerprint):
                why = "it is a view: PyTorch has it as a part, another order or another name of what is stored"
            elif base is None or (x.dtype, x.shape) != base[1][1:3]:
                why = "the base has none of that name, dtype and shape"
            if why or base is None:
                todo = "give names= without it, and read all of it by get()"
                raise UnsupportedError(f"{self._what(x)}: {why}, so its changes cannot be listed: {todo}")
            found.append((x, *base))
        return found

    def _list_changes(self, found: list[Any], framework: str, out: tuple[Any, Any] | None) -> Iterator[tuple[str, Any, Any]]:
        if out is None:
            (places, at_places), (values, at_values) = (_arrays.make(framework, "U8", (_CHANGES * 8,)) for _ in range(2))
        else:
            (places, at_places), (values, at_values) = ((x, _arrays.describe_out(x, "U8", x.nbytes)) for x in out)
        new, before = (memoryview(_lmc.new_bytes(_COMPARED)) for _ in range(2))
        dtype_of = _arrays.torch_dtype if framework == "torch" else _arrays.numpy_dtype

        def take(x: TensorInfo, n: int, width: int, dtype: Any) -> tuple[str, Any, Any]:
            indices = places[: n * (8 if is_wide else 4)].view(dtype_of("I64" if is_wide else "I32"))
            now = values[: n * width].view(dtype)
            if out is None:
                indices, now = (indices.copy(), now.copy()) if framework == "numpy" else (indices.clone(), now.clone())
            return x.name, indices, now

        for x, width, dtype, number, base_offset in found:
            n, is_wide, what = 0, x.size // width > _INT32, self._what(x)
            self._expect(x.file_number, x.offset, x.size)
            for at in range(0, x.size, _COMPARED):
                size, done = min(_COMPARED, x.size - at), 0
                self._object.read(x.file_number, x.offset + at, new[:size], what)
                self._object.read_base(number, base_offset + at, before[:size], what)
                while done < size:
                    parts = new[done:size], before[done:size]
                    n_compared, n = _lmc.add_changes(*parts, width, (at + done) // width, at_places, is_wide, at_values, n)
                    done += n_compared * width
                    if done < size:
                        yield take(x, n, width, dtype)
                        n = 0
            if n:
                yield take(x, n, width, dtype)

    def content_hash(self, name: str, *, file: str | None = None) -> bytes:
        """SHA-256 of a tensor's bytes, as stored in the snapshot (Writer(content_hashes=True))."""
        x = self.info(name, file=file)
        names = [t.name for t in self.files[x.file_number].tensors]
        if name not in names:
            raise NotFoundError(f"{self.name or 'the snapshot'}: tensor {name!r}, a view of others, has no hash of its own")
        return self._object.content_hash(x.file_number, names.index(name))

    def snapshot_hash(self) -> bytes:
        """The SHA-256 to sign: it covers all names, contents, modes, times and metadata, but not how they are coded
        (Writer(content_hashes=True)). Compare what you read with content_hash()."""
        return self._object.snapshot_hash()

    def close(self) -> None:
        """Closes the file. Readers that have it as their base still work."""
        self._object.close()
        self._source.close()

    def __reduce__(self) -> Any:
        """For a path or a URL: unpickling (in a worker of a DataLoader) opens it again."""
        source, base, options = self._how
        if source is None or base is None:
            what = "it reads bytes or a file object" if source is None else "its base is in memory"
            raise TypeError(f"{self!r} cannot be pickled, since {what}: open it where it is used (in the worker)")
        return _reopen, (source, base, options, self.fingerprint)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return printable(f"<lmc_codec.Reader {self.name or ''} {self.fingerprint.hex()[:16]}>")


#: Bytes that changes() reads at once, a multiple of all block sizes; indices in a part; elements that int32 can number.
_COMPARED, _CHANGES, _INT32 = 4 << 20, 1 << 20, 1 << 31


def _explain(error: Exception, source: Source, base: Any, max_index_size: int, max_total_size: int) -> LMCError | None:
    """A better error than that of the library for a file that could not be opened, or None."""
    if isinstance(error, WrongBaseError) and base is not None:
        plain = _open_plain(source, max_index_size)
        if plain is None:
            return None
        if isinstance(base, Shards):
            wanted, why = plain.info()[2][:8].hex(), base._find_repeated()
            return WrongBaseError(f"{error} (the delta is of {wanted}..., and {base._name} together are another{why})")
        name, more = (base.name, "; `lmc -l` shows fingerprints") if isinstance(base, Reader) else (base._name, "")
        wanted, got = plain.info()[2][:8].hex(), base.fingerprint[:8].hex()
        return WrongBaseError(f"{error} (the delta is of {wanted}..., and {name or 'the base given'} is {got}...{more})")
    if isinstance(error, (NotLMCError, TruncatedError)):
        return name_other(source)
    if isinstance(error, LimitError):
        return _name_limit(error, source, max_index_size, max_total_size)
    return None


def _open_plain(source: Source, max_index_size: int) -> _lmc.Reader | None:
    """Opens the source without base and max_total_size, to find out what is wrong. None if it cannot be opened."""
    try:
        return _lmc.Reader(source.argument, source.size, None, 1, source.name, max_index_size)
    except (LMCError, OSError, MemoryError):
        return None


_CHEAP_INDEX = 1 << 22  # bytes that are read in a few milliseconds


def _name_limit(error: LimitError, source: Source, max_index_size: int, max_total_size: int) -> LimitError:
    """The error, with the limits. The needed size is added if it is cheap to find: a user who sets limits does not want
    work for refused files."""
    limit = f"max_index_size is {max_index_size or 1 << 30}"
    limit += f", max_total_size {max_total_size}" if max_total_size else ", and its index needs more"
    plain = _open_plain(source, min(max_index_size or _CHEAP_INDEX, _CHEAP_INDEX)) if max_total_size else None
    if plain is not None and plain.info()[5] > max_total_size:
        limit = f"max_total_size is {max_total_size}, and its files have {plain.info()[5]} bytes"
    named = LimitError(f"{error}: {limit}")
    named.status, named.status_name = error.status, error.status_name
    return named


class Slice:
    """Reads parts of a tensor. Numbers, slices with positive steps and Ellipsis read only the blocks that they need; other
    indices of the framework (lists, masks, None) read the whole tensor."""

    __slots__ = ("_reader", "info", "_framework", "_device")

    def __init__(self, reader: Reader, info: TensorInfo, framework: Framework | None, device: Any):
        self._reader, self.info, self._framework, self._device = reader, info, framework, device

    def __repr__(self) -> str:
        return printable(f"<lmc_codec.Slice of {self.info.name!r}, {self.info.dtype}, {list(self.info.shape)}>")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return self.info.shape

    @property
    def dtype(self) -> str:
        """Dtype of its elements, such as "BF16"."""
        return self.info.dtype

    def get_shape(self) -> list[int]:
        """`shape`, as safetensors gives it."""
        return list(self.info.shape)

    def get_dtype(self) -> str:
        """`dtype`, as safetensors gives it."""
        return self.info.dtype

    def __getitem__(self, index: Any) -> Any:
        x = self.info
        if not _is_basic(index) or x.strides is not None or x.flags:  # the framework indexes the whole tensor
            whole = self._reader.get(x.name, file=x.file, framework=self._framework, device=self._device)
            if isinstance(whole, bytearray):
                raise UnsupportedError(f"{x.name!r}: only numpy and torch can give such parts of it")
            try:
                return whole[index]
            except IndexError as error:
                raise SliceError(str(error)) from None
        self._reader._check_known(x)
        start, count, steps, keep = parse_index(index, x.shape)
        bits = _arrays.BITS.get(x.dtype)
        if bits is None:
            if count != list(x.shape):
                raise UnsupportedError(f"{x.name!r}: the size of an element of {x.dtype} is not known, so read all of it")
            return self._reader.get(x.name, file=x.file, framework=self._framework, device=self._device)
        shape, begin, n = list(x.shape), start, count
        if bits < 8:  # rows of bytes: no byte of several elements is split
            if not shape or n[-1] != shape[-1] or shape[-1] * bits % 8:
                raise UnsupportedError(f"{x.name!r}: parts of rows of {x.dtype} cannot be read: ask for whole rows")
            shape = [*shape[:-1], shape[-1] * bits // 8]
            n = [*n[:-1], shape[-1]]
        box = tuple(c for c, k in zip(count, keep) if k)
        width = max(bits // 8, 1)
        reader = self._reader

        def fill(buffer: Any) -> None:
            first, last = _span(shape, begin, n, width)
            reader._expect(x.file_number, x.offset + first, last - first)
            reader._object.read_box(x.file_number, x.offset, width, shape, begin, n, buffer, reader._what(x))

        result = reader._make(x, box, self._framework, self._device, fill)
        if all(s == 1 for s in steps):
            return result
        if isinstance(result, bytearray):
            raise UnsupportedError("slices with steps need the framework numpy or torch")
        return result[tuple(slice(None, None, s) for s, k in zip(steps, keep) if k)]


def _is_basic(index: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return all(
        x is Ellipsis or isinstance(x, slice) or (hasattr(x, "__index__") and not isinstance(x, bool) and not getattr(x, "ndim", 0))
        for x in items
    )


def _span(shape: list[int], start: list[int], count: list[int], width: int) -> tuple[int, int]:
    """The range from the first to the last byte of a box."""
    if 0 in count:
        return 0, 0
    first = last = 0
    for n, i, c in zip(shape, start, count):
        first, last = first * n + i, last * n + i + c - 1
    return first * width, (last + 1) * width


def parse_index(index: Any, shape: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Of each dimension: first element, elements (before steps), step, and whether the result has the dimension."""
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, x in enumerate(items) if x is Ellipsis]
    if len(dots) > 1:
        raise SliceError("an index can only have a single ellipsis ('...')")
    missing = len(shape) - (len(items) - len(dots))
    if missing < 0:
        raise SliceError(f"{len(items) - len(dots)} indices for a tensor of {len(shape)} dimensions")
    at = dots[0] if dots else len(items)
    items[at : at + len(dots)] = [slice(None)] * missing
    start, count, steps, keep = [], [], [], []
    for i, (x, n) in enumerate(zip(items, shape)):
        try:
            picked = range(n)[x]
        except IndexError:
            raise SliceError(f"index {x} is out of bounds for dimension {i} of size {n}") from None
        numbers = picked if isinstance(picked, range) else range(picked, picked + 1)
        if numbers.step < 0:
            raise ArgumentError("a slice's step must be positive")
        start.append(numbers[0] if numbers else 0)
        count.append(numbers[-1] - numbers[0] + 1 if numbers else 0)
        steps.append(numbers.step)
        keep.append(isinstance(x, slice))
    return start, count, steps, keep


def _lasting(x: Any) -> Any:
    """A form of a source or base that another process in another directory can open, or None. (): no base."""
    if x is None:
        return ()
    if isinstance(x, (str, os.PathLike)):
        return x if "://" in os.fsdecode(x) else os.path.abspath(x)
    if isinstance(x, (list, tuple)):
        return None if None in (found := [_lasting(y) for y in x]) else found
    return x if isinstance(x, Reader) else None


def _reopen(source: Any, base: Any, options: dict[str, Any], fingerprint: bytes) -> Reader:
    from ._errors import ReadError

    reader = Reader(source, base=None if base == () else base, **options)
    if reader.fingerprint != fingerprint:
        reader.close()
        raise ReadError(f"{reader.name}: it is another file than the one whose Reader was pickled")
    return reader


def take_base(base: Any, threads: int | None) -> Any:
    """Makes a base of a Reader, a Base, arrays by name, or an LMC or safetensors file (as open() takes it); or of a list."""
    if isinstance(base, str) and base == AUTO:
        raise ValueError("base='auto' is for reading: say what this is to be a delta of, or call a file of that name './auto'")
    if isinstance(base, Mapping):
        return Base(base, threads=threads)
    if isinstance(base, (list, tuple)) and base and not any(x is None or hasattr(x, "shape") for x in base):
        return Shards([take_base(x, threads) for x in base])
    if base is None or isinstance(base, Base):
        return base
    try:
        reader = base if isinstance(base, Reader) else Reader(base, threads=threads)
    except NotLMCError as error:
        found = Base._of_safetensors(base, threads) if error.is_safetensors else None
        if found is None:
            raise
        return found
    except TypeError as error:
        raise TypeError(f"base: {error}; or give arrays by name") from None
    if reader.base_fingerprint is None or reader._base is not None:
        return reader
    why = ""
    if isinstance(reader._how[0], (str, os.PathLike)):
        try:
            if reader is base:  # the caller's Reader is not changed
                return _reopen(reader._how[0], AUTO, reader._how[2], reader.fingerprint)
            from ._chain import complete

            complete(reader, Reader)
            return reader
        except MissingBaseError as error:  # its message would not say that the base's own base is missing
            why = f" ({error})"
    raise MissingBaseError(
        f"{reader.name or 'what'} is given as the base, but is a delta itself, and its own base is missing:"
        f" give base=lmc_codec.open({repr(reader.name) if reader.name else '...'}, base=...){why}"
    )


open = Reader


class Verified:
    """The result of verify(): an intact file. fingerprint: of its snapshot. is_complete: all of its content was checked. If
    not, it is a delta with intact payloads, and only the base with base_fingerprint can confirm the content. has_hashes: the
    file stores SHA-256 of its content (Writer(content_hashes=True)), and all of them were compared."""

    __slots__ = ("fingerprint", "base_fingerprint", "is_complete", "has_hashes")

    def __init__(self, reader: Reader):
        self.fingerprint, self.base_fingerprint = reader.fingerprint, reader.base_fingerprint
        self.is_complete, self.has_hashes = reader._object.verify()

    def __repr__(self) -> str:
        needs = (self.base_fingerprint or b"").hex()[:16]
        said = "intact" if self.is_complete else f"payload intact; content needs the base {needs}: give base=, or 'auto'"
        return f"<lmc_codec.Verified {self.fingerprint.hex()[:16]}: {said}>"


def verify(
    source: Any, *, base: Any = None, threads: int | None = None, max_index_size: int = 0, max_total_size: int = 0,
    storage_options: dict[str, Any] | None = None
) -> Verified:
    """Reads all of an LMC file, and checks all checksums and fingerprints in it, and the SHA-256 if it stores some. The
    arguments are those of open().

    Damage raises the same errors as reading. A delta without its base is no error: its headers and payloads are checked,
    and `is_complete` of the result is False.
    """
    with Reader(
        source, base=base, threads=threads, max_index_size=max_index_size, max_total_size=max_total_size,
        storage_options=storage_options
    ) as reader:
        reader._source.expect(0, reader._source.size)
        return Verified(reader)
