"""Writes LMC files."""

from __future__ import annotations

import errno
import io
import operator
import os
import stat
from _thread import RLock
from collections.abc import Mapping
from functools import wraps

from . import _arrays, _lmc
from ._arguments import check_key, check_name, check_names, check_path, check_progress, check_time, count_threads, level_number
from ._base import BASE_KEY, Base, Shards, name_base, read_header
from ._errors import ArgumentError, CancelledError, NotFoundError, ReadError, WrongBaseError
from ._lmc import printable
from ._locks import locked
from ._new_file import NewFile
from ._reader import FEATURES, Reader, take_base
from ._sources import Source, name_kind, open_path, refuse_url

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    from ._policy import Place
    from ._types import Level, Progress

    F = TypeVar("F", bound=Callable[..., Any])

PIECE = 8 << 20
SMALL, JOINED = 16 << 10, 120 << 10  #: arrays of at most SMALL bytes are written together, some JOINED at once: malloc maps more anew each time


def safetensors_header(arrays: Mapping[str, _arrays.Array], metadata: Mapping[str, str] | None) -> bytes:
    """The header that safetensors writes for these arrays, in this order."""
    import json

    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    rows = [] if metadata is None else [f'"__metadata__":{encode(dict(metadata))}']
    at = 0
    for name, x in arrays.items():
        shape, end = ",".join(map(str, x.shape)), at + x.nbytes
        rows.append(f'{encode(name)}:{{"dtype":"{x.dtype or "U8"}","shape":[{shape}],"data_offsets":[{at},{end}]}}')
        at = end
    text = f"{{{','.join(rows)}}}".encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def check_metadata(metadata: Mapping[str, str] | None) -> None:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"argument 'metadata': must be strings by name, not {type(metadata).__name__}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"argument 'metadata': {key!r}: {value!r} are not both strings")


def copy_stream(file: Any, path: object, write: Callable[[Any], None]) -> None:
    piece = bytearray(PIECE)
    while True:
        if hasattr(file, "readinto"):
            n = file.readinto(piece)
            data: Any = None if n is None else memoryview(piece)[:n]
        else:
            data = file.read(PIECE)
        if data is None:  # None is not the end of the file
            raise BlockingIOError(errno.EAGAIN, f"{printable(path)}: the file is non-blocking, and has nothing now: make it blocking")
        if not len(data):
            return
        write(data)


def write_all(target: Any, data: Any) -> None:
    """Writes to an object whose write() may take only a part, and returns its size. None means all bytes, as for many
    objects; but for raw files it means none."""
    view = memoryview(data)
    while len(view):
        n = target.write(view)
        if n is None and not isinstance(target, io.RawIOBase):
            return
        if n is None:
            raise BlockingIOError(errno.EAGAIN, "the file is non-blocking, and takes nothing now: make it blocking")
        try:
            n = operator.index(n)
        except TypeError:
            raise TypeError(f"write() returned {n!r}, neither a number of bytes nor None") from None
        if not 0 < n <= len(view):
            raise OSError(errno.EIO, f"write() of {len(view)} bytes says that it wrote {n}")
        view = view[n:]


def _feature_bits(names: Iterable[str]) -> int:
    bits = 0
    for name in (names,) if isinstance(names, str) else names:
        if name not in FEATURES:
            raise ArgumentError(f"the format has no feature {name!r}, only {', '.join(FEATURES)}")
        bits |= 1 << FEATURES.index(name)
    return bits


def _step(method: F) -> F:
    """A lock around a method: adding a file takes several calls, and those of another thread must not come between. If
    abort() is called meanwhile, the file is removed when the method ends: until then the library may write to it."""

    def run(self: Writer, args: Any, options: Any) -> Any:
        is_outer = not self._is_busy
        try:
            self._is_busy = True
            if self._aborted:
                raise CancelledError(f"{self._path or 'the target'}: the writer was aborted")
            if self.fingerprint is not None:
                raise ArgumentError(f"{self._path or 'the snapshot'} is finished: nothing can be added")
            return method(self, *args, **options)
        finally:
            if is_outer:
                self._is_busy = False
                if self._aborted:
                    self._drop()

    @wraps(method)
    def step(self: Writer, *args: Any, **options: Any) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(f"the writer belongs to process {self._pid}, which this one was forked from")
        return locked(self._lock, run, self, args, options)

    return step  # type: ignore[return-value]


class Writer:
    """Writes an LMC file: `with lmc_codec.Writer("model.lmc") as w: w.add(name, array)`.

    target: a path, or an object with write(). At a path the file appears when it is complete, and not if the block ends
    with an exception. base: makes this a delta against it: a path, a Reader, a Base, or arrays by name. level: "fast",
    "default", "max", "archive": each is smaller. threads: None is one for each usable CPU, at most 16. quantize: rules that say
    which tensors may lose how much, such as "*=auto:0.01" or {"*": "auto:0.01", "*router*": "lossless"}
    (docs/quantisation.md). content_hashes: adds the SHA-256 of each tensor. progress: called with the number of bytes done,
    and of all bytes added so far (None: the size of a file is unknown). without: features of the format (Reader.features) that
    the file must not need, for readers that lack them: "Zeros", "Matrix" and "Codes" can be left out.
    """

    def __init__(
        self, target: Any, *, base: Any = None, level: Level = 0, threads: int | None = None,
        quantize: str | Iterable[str] | Mapping[str, str] | None = None, content_hashes: bool = False,
        progress: Progress | None = None, without: Iterable[str] = ()
    ):
        check_time("written")
        from ._policy import Policy

        self._lock, self._is_busy = RLock(), False
        self._aborted = False
        self._pid = os.getpid()
        self._object: Any = None  # None until it was made
        self._policy = Policy(quantize)
        check_progress(progress)
        total: list[int | None] = [0]  # bytes of all that was added; None: the size of a file is unknown
        self._total = total
        self._names: set[str] = set()
        self._keys: set[str] = set()
        self._paths: set[str] = set()
        self._directories: set[str] = set()
        self._written: dict[int, list[tuple[int, Any]]] = {}  # first byte and buffer of what may be read back, by file
        self._n_files = 0
        self._unfinished: str | None = None  # the file that is being added
        self._path: str | None = None
        self._file: NewFile | None = None
        #: The snapshot's fingerprint, once it is finished.
        self.fingerprint: bytes | None = None
        #: Size of the LMC file in bytes, once it is finished.
        self.size: int | None = None
        self._base = take_base(base, threads)
        refuse_url(target)
        self._check_target(target)
        sink = self._open(target)
        may_quantize = self._policy.has_rules
        try:
            self._object = _lmc.Writer(
                sink, 0, None if self._base is None else self._base._object, level_number(level),
                count_threads(threads), 0, may_quantize, content_hashes,
                None if progress is None else lambda done: progress(done, total[0]),  # no self, which would make a cycle
                self._read_back if may_quantize else None, self._path,
                _feature_bits(without)
            )
            name = name_base(base)
            if name:
                self._object.add_metadata(BASE_KEY, os.fsencode(name))
        except BaseException:
            self.abort()
            raise

    def _check_target(self, target: Any) -> None:
        """Raises if writing `target` would destroy the base, or something that is not a regular file."""
        is_path = isinstance(target, (str, os.PathLike))
        try:
            found = os.stat(target if is_path else target.fileno())
        except (OSError, AttributeError, ValueError, TypeError):
            return  # it does not exist yet, or is not a file of the system
        path = os.fsdecode(target) if is_path else "the target"
        if self._base is not None and (found.st_dev, found.st_ino) in self._base._chain_files:
            raise ValueError(f"{printable(path)} is the base, or what the base needs: both would be lost; write to another path")
        if is_path and stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(f"{printable(path)} is a directory: say what the file in it is called")
        if is_path and not stat.S_ISREG(found.st_mode):
            raise OSError(f"{printable(path)} is not a regular file, and would be replaced by one: open it, and hand over the file")

    def _open(self, target: Any) -> Any:
        if isinstance(target, (str, os.PathLike)):
            path = os.fsdecode(target)
            suffix = _lmc.suffix(os.fsencode(path))
            if suffix not in ("", ".bin"):  # files of any kind have these
                import warnings

                text = f"{path} becomes an LMC file, which nothing that reads *{suffix} knows: give it a name that ends in .lmc"
                warnings.warn(printable(text), stacklevel=count_own_frames())
            self._place = os.path.abspath(path)  # the working directory may change until the end
            try:
                self._file = NewFile(self._place)
            except OSError as error:
                error.filename = path
                raise
            self._path = path
            return self._file.descriptor
        if not callable(getattr(target, "write", None)):
            raise TypeError(f"a path or an object with write(), not {name_kind(target).replace('rb', 'wb')}")
        return lambda data: write_all(target, data)

    def _read_back(self, file_number: int, offset: int, size: int) -> bytes:
        """Returns bytes that were written earlier, of a second moment."""
        for start, buffer in self._written.get(file_number, ()):
            view = memoryview(buffer)
            if start <= offset and offset + size <= start + len(view):
                return bytes(view[offset - start : offset - start + size])
        raise ValueError("nothing of that was kept")

    # -- tensors --

    @_step
    def add(self, name: str, array: Any, *, dtype: Any = None) -> None:
        """Adds an array and codes it at once: it may change after this returns.

        It becomes a separate safetensors file in the snapshot. If you have all arrays at once, use add_arrays().
        """
        check_name(name)
        if name in self._names:
            raise ValueError(f"there is a tensor {name!r} already; add_arrays() puts one of that name into another file")
        path = "".join(c if c.isascii() and c.isalnum() or c in "._-" else "_" for c in name).strip(".")[:200] or "tensor"
        if f"{path}.safetensors" in self._paths:
            path = f"{path}-{self._n_files}"
        self.add_arrays({name: array}, f"{path}.safetensors", dtype=dtype)

    @_step
    def add_arrays(
        self, arrays: Mapping[str, Any], path: str = "model.safetensors", *, metadata: Mapping[str, str] | None = None,
        dtype: Any = None
    ) -> None:
        """Adds a safetensors file of these arrays. metadata: its __metadata__. path "": for the only file of a snapshot."""
        check_metadata(metadata)
        described = _arrays.describe_all(arrays, "tensor", dtype=dtype)
        if "__metadata__" in described:
            raise ValueError("'__metadata__' cannot be the name of a tensor")
        # the order of safetensors: wide dtypes first, then by name
        names = sorted(sorted(described), key=lambda name: _arrays.order(described[name].dtype or "U8"))
        ordered = {name: described[name] for name in names}
        header = safetensors_header(ordered, metadata)
        rows, at = [], len(header)
        for name, x in ordered.items():
            rows.append((name, x.dtype or "U8", x.shape, at, x.nbytes))
            at += x.nbytes

        def write_file(write: Any) -> None:
            small, n = [header], len(header)
            for name, x in ordered.items():
                if x.nbytes <= SMALL:
                    small.append(x.buffer)
                    n += x.nbytes
                if n > JOINED or (small and x.nbytes > SMALL):
                    write(b"".join(small))
                    small, n = [], 0
                if x.nbytes > SMALL:
                    write(x.buffer, f"tensor {name!r}")
            if small:
                write(b"".join(small))

        self._add_known(path, at, rows, {name: x.buffer for name, x in ordered.items()}, write_file)

    @_step
    def _add_known(
        self, path: str, size: int, rows: list[Place], buffers: Mapping[str, Any], write_file: Callable[[Any], None],
        between: Iterable[tuple[int, Any]] = (), dtype: Any = None, **attributes: int
    ) -> None:
        """Adds a file of `size` bytes (-1: unknown), with these tensors at these places. buffers: bytes of the tensors that
        may be quantised. write_file() gets a function that takes the bytes of the file. between: bytes between tensors, by
        their first byte. dtype: of all bytes outside of tensors."""
        self._check_order()
        kind = "AUTO" if dtype is None else _arrays.dtype_name(dtype)
        number = self._n_files
        plans = self._policy.plan(path, number, rows, buffers)
        self._written[number] = list(between)
        check_path(path)
        self._check_place(path)
        names = {row[0] for row in rows}
        if len(names) != len(rows):
            raise ValueError(f"{printable(path)}: two tensors of one name")
        check_names(names)
        self._add_to_total(size)
        tensors = [(*row, *plan) for row, plan in zip(rows, plans)]
        self._object.begin_file(path, size, tensors, kind, 0, **attributes)
        self._unfinished = path
        self._take_place(path)
        self._names |= names
        self._n_files += 1
        write_file(self._object.write)
        self._object.end_file()
        self._unfinished = None
        self._written[number] += self._policy.end_file()

    # -- files --

    def add_file(self, source: Any, path: str | None = None, *, dtype: Any = None) -> None:
        """Adds a file from the disk, or from an object with read(). Finds the tensors of safetensors and torch.save().

        path: its path in the snapshot; None: its own name. dtype: of all its bytes (raw arrays).
        """
        if not isinstance(source, (str, os.PathLike)):
            if path is None:
                raise TypeError("path is missing: give the file's name in the snapshot")
            self._add_known(path, -1, [], {}, lambda write: copy_stream(source, path, write), dtype=dtype)
            return
        if path is None:
            path = os.path.basename(os.fsdecode(source))
        file = open_path(source)
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{printable(file.name)} is not a regular file: open it, and hand over the file object, with path=")
        rows: list[Place] = []
        if file.size > 16 and dtype is None:
            start = file.read(0, 9)
            if start.endswith(b"{"):  # may be of safetensors
                rows = _lmc.find_tensors(read_header(file), file.size, "")[0]
            elif start.startswith(b"PK\3\4"):  # of torch.save()
                rows = _lmc.find_tensors(file.argument, file.size, os.path.basename(path))[0]
        buffers: Mapping[str, Any] = {}
        between: list[tuple[int, Any]] = []
        if rows and self._policy.has_rules:
            buffers, between = _Stored(file, rows), _list_gaps(file, rows)

        def write_file(write: Any) -> None:
            piece = _lmc.new_bytes(min(PIECE, file.size))
            for at in range(0, file.size, PIECE):
                part = memoryview(piece)[: file.size - at]
                _lmc.read_at(file.argument, file.size, at, part, file.name)
                write(part)
            now = os.fstat(file.fileno())
            if now.st_size != file.size:
                text = f"it had {file.size} bytes when it was opened, and now has {now.st_size}: another process has changed it"
                raise ReadError(f"{file.name}: {text}")
            if now.st_mtime_ns != found.st_mtime_ns:  # a part of it may be old, and another new
                raise ReadError(f"{file.name}: another process has changed it while it was read")

        self._add_known(
            path, file.size, rows, buffers, write_file, between, dtype=dtype,
            mode=found.st_mode & 0o7777, mtime_ns=found.st_mtime_ns
        )

    @_step
    def add_bytes(self, path: str, data: Any, *, dtype: Any = None) -> None:
        """Adds a file of these bytes. dtype: of its elements (raw arrays)."""
        x = _arrays.describe(data)
        self._add_known(path, x.nbytes, [], {}, lambda write: write(x.buffer), dtype=dtype)

    @_step
    def copy_from(self, reader: Reader, path: str | None = None) -> None:
        """Adds a file of another snapshot (None: all files), coded again, with its tensors. Quantised tensors stay
        quantised if this writer has any rule, such as quantize="*=lossless"."""
        self._check_order()
        files = [file for file in reader.files if path is None or file.path == path]
        if path is not None and not files:
            raise NotFoundError(f"{reader.name or 'the snapshot'}: no file {path!r}")
        for file in files:
            self._check_place(file.path, file.is_directory)
            self._add_to_total(file.size)
            self._object.copy_file(reader._object, file.number)
            self._n_files += 1
            self._take_place(file.path, file.is_directory)

    def _check_order(self) -> None:
        if self._unfinished is not None:
            what = f"{self._unfinished!r} is not complete" if self._unfinished else "its file is not complete"
            raise ArgumentError(
                f"{self._path or 'the snapshot'}: {what}: a callback or a signal handler uses the Writer that it has interrupted,"
                " or an error came before, after which only abort() helps"
            )

    def __repr__(self) -> str:
        state = "finished" if self.fingerprint is not None else "aborted" if self._aborted else f"{self._n_files} files so far"
        return printable(f"<lmc_codec.Writer {self._path or ''}: {state}>")

    def _add_to_total(self, size: int) -> None:
        total = self._total[0]
        self._total[0] = None if size < 0 or total is None else total + size

    def _check_place(self, path: str, is_directory: bool = False) -> None:
        """Raises if another file has this path, or a path above it: no file system could store both."""
        if path in self._paths:
            raise ValueError(f"two files would be {path!r}")
        if path in self._directories and not is_directory:
            raise ValueError(f"{path!r} would be a file, and is a directory of files in this snapshot already")
        for directory in _directories_of(path):
            if directory in self._paths and directory not in self._directories:
                raise ValueError(f"{path!r} would be below {directory!r}, which is a file of this snapshot")

    def _take_place(self, path: str, is_directory: bool = False) -> None:
        self._paths.add(path)
        self._directories.update(_directories_of(path))
        if is_directory:
            self._directories.add(path)

    @_step
    def add_metadata(self, key: str, value: str | bytes) -> None:
        """Adds an entry about the snapshot. Keys that begin with "lmc." are reserved for the format."""
        self._check_order()
        check_key(key, self._keys)
        self._keys.add(key)
        self._object.add_metadata(key, value.encode() if isinstance(value, str) else value)

    # -- the end --

    @_step
    def finish(self) -> bytes:
        """Writes the end, and moves the file to its place. Returns the fingerprint of the snapshot."""
        try:
            self._check_order()
            if self._n_files == 0:
                raise ArgumentError(f"{self._path or 'the snapshot'}: nothing was added, but a snapshot needs at least one file")
            if isinstance(self._base, (Base, Shards)) and not self._base._is_unchanged():
                what = f"{self._base._name}, the base, has changed since it was opened, so this"
                if self._base._name is None:
                    what = "the arrays of the base have changed since it was made (give copies of them), so this"
                raise WrongBaseError(f"{self._path or 'the snapshot'}: {what} could never be restored")
            fingerprint: bytes
            self.size, fingerprint = self._object.finish()
            if self._file is not None:
                self._file.sync()
                self._check_target(self._place)  # it may have become the base meanwhile
                if self._aborted:
                    raise CancelledError(f"{self._path}: the writer was aborted")
                self._file.appear()
                self._file = None
            self.fingerprint = fingerprint
        except BaseException:
            self.abort()
            raise
        self._written.clear()
        said = self._policy.say_nothing_done()
        if said is not None:
            import warnings

            text = f"{self._path or 'the snapshot'}: {said} (docs/quantisation.md)"
            warnings.warn(printable(text), stacklevel=count_own_frames())
        return fingerprint

    def abort(self) -> None:
        """Stops writing: nothing appears at the path. Any thread and any callback may call this. A call in progress, and
        every later call, then raises CancelledError. After finish() it does nothing."""
        if self._pid != os.getpid():  # after a fork: the file belongs to the parent
            if self._file is not None:
                self._file.close()
                self._file = None
            return
        if self.fingerprint is not None:
            return
        self._aborted = True
        if self._object is not None:
            self._object.abort()
        locked(self._lock, self._drop_unless_busy)  # waits for other threads

    def _drop_unless_busy(self) -> None:
        if not self._is_busy:  # else this is a callback, and the outer step does it at its end
            self._drop()

    def _drop(self) -> None:
        if self._file is not None and self.fingerprint is None:
            self._file.remove()
            self._file = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.abort()
        elif self.fingerprint is None and not self._aborted:
            self.finish()


class _Stored(Mapping[str, memoryview]):
    """Tensors of a file, by name. Each is read when it is asked for, to new memory."""

    def __init__(self, file: Source, rows: list[Place]):
        self._file, self._places = file, {name: (at, size) for name, _, _, at, size in rows}

    def __getitem__(self, name: str) -> memoryview:
        at, size = self._places[name]
        data = _lmc.new_bytes(size)
        _lmc.read_at(self._file.argument, self._file.size, at, data, self._file.name)
        return memoryview(data)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _list_gaps(file: Source, rows: list[Place]) -> list[tuple[int, Any]]:
    """The bytes between tensors, by their first byte."""
    gaps, at = [], 0
    for _, _, _, start, size in sorted(rows, key=operator.itemgetter(3)) + [("", "", (), file.size, 0)]:
        if start > at:
            gaps.append((at, file.read(at, start - at)))
        at = max(at, start + size)
    return gaps


def count_own_frames() -> int:
    """stacklevel for warnings.warn(): the first caller outside of this package."""
    import sys

    n, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lmc_codec."):
        n, frame = n + 1, frame.f_back
    return n


def _directories_of(path: str) -> list[str]:
    """ "a/b/c" gives "a", "a/b"."""
    return [path[:i] for i, letter in enumerate(path) if letter == "/"]
