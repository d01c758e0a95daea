"""Writing LMC files."""

from __future__ import annotations

import errno
import io
import operator
import os
import stat
from _thread import RLock
from collections.abc import Mapping

from . import _arrays, _lmc
from ._base import BASE_KEY, name_base, safetensors_rows, take_base
from ._codec import level_number
from ._errors import ArgumentError, CancelledError, NotFoundError, WrongBaseError
from ._lmc import printable
from ._names import check_key, check_name, check_names, check_path
from ._new_file import NewFile
from ._reader import Reader
from ._sources import refuse_url
from ._threads import check_progress, count_threads

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._policy import Row

    #: name, dtype, shape, first byte, bytes
    Place = tuple[str, str, tuple[int, ...], int, int]
    from ._types import Level, Progress

PIECE = 8 << 20


def safetensors_header(
    rows: Iterable[tuple[str, str, tuple[int, ...], int]], metadata: Mapping[str, str] | None
) -> bytes:
    """Of (name, dtype, shape, bytes) in their order, as safetensors writes it."""
    import json

    header: dict[str, Any] = {}
    if metadata is not None:
        header["__metadata__"] = dict(metadata)
    at = 0
    for name, dtype, shape, size in rows:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def check_metadata(metadata: Mapping[str, str] | None) -> None:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"argument 'metadata': strings by name are wanted, not {type(metadata).__name__}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"argument 'metadata': {key!r}: {value!r} are not both strings")


def write_all(target: Any, data: Any) -> None:
    """To an object with write(), which may take less than all at once, and says how much. None is all of it, as many say;
    but not from raw files, where it is nothing."""
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


class Writer:
    """Makes an LMC file: `with lmc_codec.Writer("model.lmc") as w: w.add(name, array)`.

    target: a path, or an object with write(). At a path the file appears when it is whole, and not if the block ends
    with an exception. base: what it becomes a delta of: a path, a Reader, a Base, or arrays by name. level: "fast",
    "default", "max", "archive": ever smaller. threads: None is as many as there are, at most 8. quantize: rules of what may lose how much, such as
    "*=auto:0.01" or {"*": "auto:0.01", "*router*": "lossless"} (docs/quantisation.md). content_hashes: adds the
    SHA-256 of each tensor. progress: called with the bytes done so far, and those of all that was added so far (None: a
    file among them did not tell).
    """

    def __init__(
        self,
        target: Any,
        *,
        base: Any = None,
        level: Level = 0,
        threads: int | None = None,
        quantize: str | Iterable[str] | Mapping[str, str] | None = None,
        content_hashes: bool = False,
        progress: Progress | None = None,
        _capacity: int = 0,
    ):
        from ._policy import Policy

        self._step = _Step(self)
        self._aborted = False
        self._pid = os.getpid()
        self._object: Any = None  # None until it is made
        self._policy = Policy(quantize)
        check_progress(progress)
        self._progress = None if progress is None else _Progress(progress)
        self._names: set[str] = set()
        self._keys: set[str] = set()
        self._paths: set[str] = set()
        self._directories: set[str] = set()
        self._written: dict[int, list[tuple[int, Any]]] = {}  # what may be read back, by file
        self._n_files = 0
        self._path: str | None = None
        self._file: NewFile | None = None
        #: Of the snapshot, once it is finished.
        self.fingerprint: bytes | None = None
        #: Bytes of the LMC file, once it is finished.
        self.size: int | None = None
        self.data: Any = None  # of a file in memory
        base_object, self._base_files, self._base_arrays = take_base(base, threads)
        refuse_url(target)
        self._check_target(target)
        sink = self._open(target, _capacity > 0)
        may_quantize = self._policy.has_rules
        try:
            self._object = _lmc.Writer(
                sink,
                _capacity,
                base_object,
                level_number(level),
                count_threads(threads),
                0,
                may_quantize,
                content_hashes,
                self._progress,
                self._read_back if may_quantize else None,
                self._path,
            )
            name = name_base(base)
            if name:
                self._object.add_metadata(BASE_KEY, os.fsencode(name))
        except BaseException:
            self.abort()
            raise

    def _check_target(self, target: Any) -> None:
        """What would be lost if `target` were written: the base, or what is no file."""
        is_path = isinstance(target, (str, os.PathLike))
        try:
            found = os.stat(target if is_path else target.fileno())
        except (OSError, AttributeError, ValueError, TypeError):
            return  # it is not there yet, or not of the disk
        path = os.fsdecode(target) if is_path else "the target"
        if (found.st_dev, found.st_ino) in self._base_files:
            raise ValueError(f"{printable(path)} is the base, or what the base needs: both would be lost; write to another path")
        if is_path and stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(f"{printable(path)} is a directory: say what the file in it is called")
        if is_path and not stat.S_ISREG(found.st_mode):
            raise OSError(f"{printable(path)} is not a regular file, and would be replaced by one: open it, and hand over the file")

    def _open(self, target: Any, has_room: bool) -> Any:
        if isinstance(target, (str, os.PathLike)):
            path = os.fsdecode(target)
            if path.endswith((".safetensors", ".pt", ".pth", ".ckpt")):
                import warnings

                what = "safetensors" if path.endswith(".safetensors") else "files of torch.save()"
                text = f"{path} becomes an LMC file, which nothing that reads {what} knows: give it a name that ends in .lmc"
                warnings.warn(printable(text), stacklevel=count_own_frames())
            self._place = os.path.abspath(path)  # the working directory may be another one when it is finished
            try:
                self._file = NewFile(self._place)
            except OSError as error:
                error.filename = path
                raise
            self._path = path
            return self._file.fileno()
        if target is None and has_room:
            return None
        if not callable(getattr(target, "write", None)):
            raise TypeError(f"a path or an object with write(), not {type(target).__name__}")

        return lambda data: write_all(target, data)

    def _read_back(self, file_number: int, offset: int, size: int) -> bytes:
        """Of what was written earlier: a second moment."""
        for start, buffer in self._written.get(file_number, ()):
            view = memoryview(buffer)
            if start <= offset and offset + size <= start + len(view):
                return bytes(view[offset - start : offset - start + size])
        raise ValueError("nothing of that was kept")

    # -- tensors --

    def add(self, name: str, array: Any, *, dtype: Any = None) -> None:
        """Adds an array and codes it at once: it may change when this returns.

        It becomes a safetensors file of its own in the snapshot. Who has all arrays at hand uses add_arrays().
        """
        with self._step:
            check_name(name)
            if name in self._names:
                raise ValueError(f"there is a tensor {name!r} already; add_arrays() puts one of that name into another file")
            path = "".join(c if c.isascii() and c.isalnum() or c in "._-" else "_" for c in name).strip(".")[:200] or "tensor"
            if f"{path}.safetensors" in self._paths:
                path = f"{path}-{self._n_files}"
            self.add_arrays({name: array}, f"{path}.safetensors", dtype=dtype)

    def add_arrays(
        self,
        arrays: Mapping[str, Any],
        path: str = "model.safetensors",
        *,
        metadata: Mapping[str, str] | None = None,
        dtype: Any = None,
    ) -> None:
        """Adds a safetensors file of these arrays. metadata: its __metadata__. path "": it is the only file."""
        with self._step:
            check_metadata(metadata)
            described = {}
            for name, array in arrays.items():
                check_name(name)
                if name == "__metadata__":
                    raise ValueError("'__metadata__' cannot be the name of a tensor")
                try:
                    x = _arrays.describe(array, dtype)
                except (TypeError, ValueError) as error:
                    raise type(error)(f"tensor {name!r}: {printable(error)}") from None
                described[name] = x
            # as safetensors sorts: wide dtypes first, then by name
            order = sorted(described, key=lambda name: (_arrays.order(described[name].dtype or "U8"), name.encode()))
            sizes = [(n, described[n].dtype or "U8", described[n].shape, described[n].nbytes) for n in order]
            header = safetensors_header(sizes, metadata)
            rows, at = [], len(header)
            for name, kind, shape, size in sizes:
                rows.append((name, kind, shape, at, size))
                at += size

            def write_file(write: Any) -> None:
                write(header)
                for name in order:
                    write(described[name].buffer, f"tensor {name!r}")

            self._add_known(path, at, rows, {name: described[name].buffer for name in order}, write_file)

    def _add_known(
        self,
        path: str,
        size: int,
        rows: list[Place],
        buffers: Mapping[str, Any],
        write_file: Callable[[Any], None],
        between: Iterable[tuple[int, Any]] = (),
        attributes: Mapping[str, Any] = {},
    ) -> None:
        """A file of `size` bytes, with these tensors at these places. buffers: bytes of those that may be quantised. write_file() is
        handed a function that takes the bytes of the file. between: those that lie between tensors, by their first byte."""
        with self._step:
            number = self._n_files
            self._written[number] = list(between)
            kept: list[tuple[str, Any]] = []
            tensors = []
            if self._policy.has_rules:
                self._policy.look_at(path, [(*row[:3], row[4]) for row in rows])
            for name, kind, shape, at, nbytes in rows:
                quantizer = twin = None
                if name in buffers:
                    quantizer, twin = self._quantizer(path, (name, kind, shape, nbytes), buffers[name], number, at, kept)
                tensors.append((name, kind, shape, at, nbytes, quantizer, twin))
            self._begin(path, size, tensors, **attributes)
            write_file(self._object.write)
            self._object.end_file()
            for pair, second in kept:
                self._policy.seconds[pair] = second
                self._written[number].append((second.offset, second.buffer))

    def _quantizer(self, path: str, row: Row, buffer: Any, number: int, at: int, kept: Any) -> tuple[Any, Any]:
        found = self._policy.find(path, row) if self._policy.has_rules else None
        if not found:
            return None, None
        rule, role, pair = found
        quantizer, twin = self._policy.fit(rule, role, pair, row, buffer)
        if role == "v" and pair:
            from ._policy import Second

            kept.append((pair, Second(number, at, buffer, quantizer)))
        return quantizer, twin

    # -- files --

    def add_file(self, source: Any, path: str | None = None, *, dtype: Any = None) -> None:
        """Adds a file of the disk, or of an object with read(). Tensors of a safetensors file, or of torch.save(), are found.

        path: what it is called in the snapshot; its own name if it is None. dtype: of all its bytes (raw arrays).
        """
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:
                self._add_open_file(file, path if path is not None else os.path.basename(os.fsdecode(source)), dtype)
        else:
            if path is None:
                raise TypeError("path is missing: what the file is called in the snapshot")
            self._add_stream(source, path, -1, [], dtype)

    def _add_open_file(self, file: Any, path: str, dtype: Any) -> None:
        import mmap

        found = os.fstat(file.fileno())
        rows: list[Place] = []
        if found.st_size > 16 and dtype is None:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if bytes(view[8:9]) == b"{":
                try:
                    rows = safetensors_rows(view, path)
                except ValueError:
                    pass  # no safetensors file after all: plain bytes
            elif bytes(view[:4]) == b"PK\3\4":  # of torch.save(), perhaps
                rows = _lmc.find_tensors(view, len(view), os.path.basename(path))[0]
            if rows and self._policy.has_rules:
                buffers = {name: view[at : at + size] for name, _, _, at, size in rows}
                self._add_known(path, len(view), rows, buffers, lambda write: write(view), [(0, view)], _attributes(found))
                return
        self._add_stream(file, path, found.st_size, [(*row, None, None) for row in rows], dtype, found)

    def _add_stream(
        self, file: Any, path: str, size: int, tensors: list[Any], dtype: Any, found: os.stat_result | None = None
    ) -> None:
        with self._step:
            attributes = {} if found is None else _attributes(found)
            self._begin(path, size, tensors, "AUTO" if dtype is None else _arrays.dtype_name(dtype), **attributes)
            piece = bytearray(PIECE)
            while True:
                if hasattr(file, "readinto"):
                    n = file.readinto(piece)
                    data: Any = None if n is None else memoryview(piece)[:n]
                else:
                    data = file.read(PIECE)
                if data is None:  # which is not its end
                    raise BlockingIOError(errno.EAGAIN, f"{printable(path)}: the file is non-blocking, and has nothing now: make it blocking")
                if not len(data):
                    break
                self._object.write(data)
            self._object.end_file()

    def add_bytes(self, path: str, data: Any, *, dtype: Any = None) -> None:
        """Adds a file of these bytes. dtype: what they are (raw arrays)."""
        with self._step:
            x = _arrays.describe(data)
            self._begin(path, x.nbytes, [], "AUTO" if dtype is None else _arrays.dtype_name(dtype))
            self._object.write(x.buffer)
            self._object.end_file()

    def copy_from(self, reader: Reader, path: str | None = None) -> None:
        """Adds a file of another snapshot (None: all of them), coded anew, with its tensors. Tensors that were quantised
        stay as they are if this writer may quantise; it takes a rule for that, such as quantize="*=lossless"."""
        with self._step:
            files = [file for file in reader.files if path is None or file.path == path]
            if path is not None and not files:
                raise NotFoundError(f"{reader.name or 'the snapshot'}: no file {path!r}")
            for file in files:
                self._check_place(file.path, file.is_directory)
                if self._progress is not None:
                    self._progress.add(file.size)
                self._object.copy_file(reader._object, file.number)
                self._n_files += 1
                self._take_place(file.path, file.is_directory)

    def _begin(self, path: str, size: int, tensors: list[Any], dtype: str = "AUTO", **attributes: Any) -> None:
        check_path(path)
        self._check_place(path)
        names = {row[0] for row in tensors}
        if len(names) != len(tensors):
            raise ValueError(f"{printable(path)}: two tensors of one name")
        check_names(names)
        if self._progress is not None:
            self._progress.add(size)
        self._object.begin_file(path, size, tensors, dtype, 0, **attributes)
        self._take_place(path)
        self._names |= names
        self._n_files += 1

    def _check_place(self, path: str, is_directory: bool = False) -> None:
        """Where there is a file, nothing else can be, nor anything below it: no file system could hold both."""
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

    def add_metadata(self, key: str, value: str | bytes) -> None:
        """Says something about the snapshot; keys that begin with "lmc." are the format's."""
        with self._step:
            check_key(key, self._keys)
            self._keys.add(key)
            self._object.add_metadata(key, value.encode() if isinstance(value, str) else value)

    # -- the end --

    def finish(self) -> bytes:
        """Writes the end, and puts the file in its place. Returns the fingerprint of the snapshot."""
        with self._step:
            try:
                if self._n_files == 0:
                    raise ArgumentError(f"{self._path or 'the snapshot'}: nothing was added, and a snapshot has a file")
                self._check_base()
                fingerprint: bytes
                result, fingerprint = self._object.finish()
                if isinstance(result, bytearray):
                    self.data, self.size = result, len(result)
                else:
                    self.size = result
                if self._file is not None:
                    self._file.sync()
                    self._check_target(self._place)  # which may have become the base's since
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

    def _check_base(self) -> None:
        """Arrays that have changed since would make a delta that nothing restores."""
        if self._base_arrays is not None and self.fingerprint is None and not self._base_arrays.is_unchanged():
            raise WrongBaseError(
                f"{self._path or 'the snapshot'}: the arrays of the base have changed since it was made, so nothing would"
                " restore this: give copies of them"
            )

    def abort(self) -> None:
        """Gives up: nothing appears at the path. From any thread, and from a callback: a call in progress then ends with
        CancelledError, and every later one, too. After finish() it does nothing."""
        if self._pid != os.getpid():  # a fork: the file is the parent's
            if self._file is not None:
                self._file.close()
                self._file = None
            return
        if self.fingerprint is not None:
            return
        self._aborted = True
        if self._object is not None:
            self._object.abort()
        with self._step.lock:  # when what another thread does has ended
            if self._step.depth == 0:  # else this is a callback, and the step that called it has yet to end
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

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.abort()


class _Step:
    """What a method does. A file's steps are several calls, and another thread's must not come between. What abort() was
    asked for while it ran is done at its end: no sooner, for until then the library may write."""

    def __init__(self, writer: Writer):
        from weakref import ref  # a cycle would keep the writer, and its unfinished file, until the next collection

        self.lock, self.depth, self.writer = RLock(), 0, ref(writer)

    def __enter__(self) -> None:
        writer = self.writer()
        assert writer is not None
        if writer._pid != os.getpid():
            raise RuntimeError(f"the writer belongs to process {writer._pid}, which this one was forked from")
        self.lock.acquire()
        self.depth += 1
        if writer._aborted:
            self.__exit__()
            raise CancelledError(f"{writer._path or 'the target'}: the writer was aborted")
        if writer.fingerprint is not None:
            self.__exit__()
            raise ArgumentError(f"{writer._path or 'the snapshot'} is finished: nothing can be added")

    def __exit__(self, *unused: object) -> None:
        writer = self.writer()
        try:
            if self.depth == 1 and writer is not None and writer._aborted:
                writer._drop()
        finally:
            self.depth -= 1
            self.lock.release()


class _Progress:
    """What the library calls with the bytes done. Not a method of the writer, which would be a cycle."""

    __slots__ = ("_callback", "_total")

    def __init__(self, callback: Progress):
        self._callback = callback
        self._total: int | None = 0

    def add(self, size: int) -> None:
        """A file begins; -1: nobody knows how large it is."""
        self._total = None if size < 0 or self._total is None else self._total + size

    def __call__(self, done: int) -> None:
        self._callback(done, self._total)


def count_own_frames() -> int:
    """To whom a warning is: the first caller that is not of this package."""
    import sys

    n, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lmc_codec."):
        n, frame = n + 1, frame.f_back
    return n


def _attributes(found: os.stat_result) -> dict[str, int]:
    return {"mode": found.st_mode & 0o7777, "mtime_ns": found.st_mtime_ns}


def _directories_of(path: str) -> list[str]:
    """ "a/b/c": "a", "a/b"."""
    return [path[:i] for i, letter in enumerate(path) if letter == "/"]
