"""A training state in one LMC file: the file of torch.save(), with its tensors by name.

torch.save() runs twice: first to learn where it puts each tensor, then to code what it writes. So no large tensor is in
memory twice, and `lmc -d` restores the exact file of torch.save(). As always, torch.load() decides what may be in it.
With wait=False it runs once, to memory, which a thread codes; so it does for many small tensors, because it takes longer for
them than a copy.
"""

from __future__ import annotations

import io
import operator
import os
import warnings
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from . import _arrays, _lmc
from ._arguments import check_progress
from ._base import starts_safetensors
from ._errors import CancelledError, ChangedError, NotFoundError
from ._lmc import printable
from ._reader import open as open_reader
from ._saving import Saving, begin, settle, turn
from ._writer import Writer, count_own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._reader import Reader
    from ._types import Level, Progress

PIECE = 4 << 20  #: bytes that are read at once: a block of a delta, or each small tensor would decode the block again
N_PIECES = 3  #: pieces that are kept: of the directory of a ZIP archive, and of the entries that it names
COPIED = 1 << 20, 64 << 20  #: bytes of the first piece of a copied state, and of the largest one, which a larger tensor exceeds
COPY_MOST, COPY_EACH = 256 << 20, 128 << 10  #: bytes of a state that is copied rather than saved twice, in all and for each tensor
LARGE = 1 << 14  #: a write of at least so many bytes may be a tensor; other bytes come in smaller writes


class _Layout:
    """Records what torch.save() writes: small writes, the pickle and the directory; of others the places."""

    def __init__(self) -> None:
        self.size = 0
        self.pieces: list[tuple[int, bytearray]] = []  # first byte, bytes; in order
        self._last = b""  # the end of the previous bytes: the name of the next entry

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            if len(view) < LARGE or b"/data.pkl" in self._last or bytes(view[:4]) == b"PK\1\2":  # the directory
                if not self.pieces or self.pieces[-1][0] + len(self.pieces[-1][1]) != self.size:
                    self.pieces.append((self.size, bytearray()))
                self.pieces[-1][1].extend(view)
            self._last = self._last[-128:] + bytes(view[-128:])
            self.size += len(view)
            return len(view)

    def flush(self) -> None:
        """For torch.save()."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes that were not kept are zeros."""
        result = bytearray(size)
        for i in range(max(0, bisect_right(self.pieces, offset, key=operator.itemgetter(0)) - 1), len(self.pieces)):
            start, piece = self.pieces[i]
            if start >= offset + size:
                break
            first, last = max(start, offset), min(start + len(piece), offset + size)
            if first < last:
                result[first - offset : last - offset] = piece[first - start : last - start]
        return bytes(result)


class Copy(_Layout):
    """All that torch.save() writes of an object, in pieces of memory; what it writes at once is in one of them. quantises: for a
    Writer that does so. most: of more bytes nothing is kept, and is_whole is False."""

    def __init__(self, obj: Any, quantises: bool, most: int | None = None):
        super().__init__()
        self._most, self.is_whole = most, True
        self._copied: deque[tuple[int, memoryview]] = deque()  # first byte, and bytes; in order
        self._free = memoryview(b"")  # the rest of the memory of the last one
        self.moments = {name: (tuple(t.shape), t.numel() * t.element_size()) for name, t in _find_moments(obj).items()} if quantises else {}
        _save(obj, self)
        self._end_piece()

    def _end_piece(self) -> None:
        if self._copied:
            at, memory = self._copied.pop()
            self._copied.append((at, memory[: self.size - at]))

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            if self._most is not None and self.size + len(view) > self._most:
                self.is_whole = False
                self.clear()
            if self.is_whole:
                self._keep(view)
            return super().write(view)

    def _keep(self, view: memoryview) -> None:
        if len(view) > len(self._free):
            self._end_piece()
            size = max(len(view), min(max(COPIED[0], self.size), COPIED[1]))
            memory: Any = _lmc.new_memory(size)
            self._free = memoryview(memory)
            self._copied.append((self.size, self._free))
        self._free[: len(view)] = view
        self._free = self._free[len(view) :]

    def take(self) -> Iterator[memoryview]:
        """All bytes; each piece is freed when the next one is taken."""
        while self._copied:
            yield self._copied.popleft()[1]

    def find(self, at: int, size: int) -> memoryview | None:
        """Bytes that are side by side in memory."""
        for start, piece in self._copied:
            if start <= at and at + size <= start + len(piece):
                return piece[at - start : at - start + size]
        return None

    def clear(self) -> None:
        self._copied.clear()
        self._free = memoryview(b"")


class _Sink:
    """Passes on what torch.save() writes, at most `limit` bytes."""

    def __init__(self, write: Callable[[Any], Any], limit: int, changed: ChangedError):
        self._write, self._left, self._changed = write, limit, changed

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            self._left -= len(view)
            if self._left < 0:
                raise self._changed
            self._write(view)
            return len(view)

    def flush(self) -> None:
        """For torch.save()."""

    def finish(self) -> None:
        if self._left:
            raise self._changed


class Stored(io.RawIOBase):
    """The files of a snapshot as one file, for torch.load()."""

    def __init__(self, reader: Reader):
        self._reader, self._files = reader, reader.files
        self._at, self._size = 0, sum(file.size for file in reader.files)
        self._piece = lru_cache(N_PIECES)(lambda path, at, size: memoryview(reader.read(path, at, size)))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        data = bytearray(left if size is None or size < 0 else min(left, size))
        self.readinto(data)
        return bytes(data)

    def readinto(self, buffer: Any, /) -> int:
        done = first = 0
        with memoryview(buffer).cast("B") as view:
            for file in self._files:
                n = min(len(view) - done, first + file.size - self._at)
                if n > 0:
                    self._read(file.path, file.size, self._at - first, view[done : done + n])
                    done, self._at = done + n, self._at + n
                first += file.size
        return done

    def _read(self, path: str, size: int, offset: int, out: memoryview) -> None:
        if len(out) >= min(PIECE, size):
            self._reader.read(path, offset, len(out), out=out)
            return
        while out:
            at = offset % PIECE
            part = self._piece(path, offset - at, min(PIECE, size - offset + at))[at : at + len(out)]
            out[: len(part)] = part
            out, offset = out[len(part) :], offset + len(part)


class _Counted:
    """Calls progress() with the bytes that torch.load() has read, some of them twice."""

    def __init__(self, file: Any, total: int, progress: Progress):
        self._file, self._total, self._progress, self._done = file, total, progress, 0
        self.seek, self.tell = file.seek, file.tell

    def count(self, n: int) -> None:
        done = min(self._done + n, self._total)
        if done > self._done:
            self._done = done
            self._progress(done, self._total)

    def read(self, size: int | None = -1, /) -> bytes:
        data: bytes = self._file.read(size)
        self.count(len(data))
        return data

    def readinto(self, buffer: Any, /) -> int:
        n: int = self._file.readinto(buffer)
        self.count(n)
        return n

    def readline(self, size: int = -1, /) -> bytes:
        data: bytes = self._file.readline(size)
        self.count(len(data))
        return data


def _call_torch(function: Callable[..., Any], file: Any, *methods: str, **options: Any) -> Any:
    """Calls a function of torch with these methods of a file. torch hides their exceptions: the first one is raised."""
    errors: list[BaseException] = []
    try:
        try:
            result = function(SimpleNamespace(**{name: _lmc.Caught(getattr(file, name), errors) for name in methods}), **options)
        except Exception:
            if not errors:
                raise
        if errors:
            raise errors[0] from None
        return result
    finally:
        errors[:] = [CancelledError("it is over")]  # a destructor of torch may still call them, where they must do nothing


def _save(obj: Any, file: Any) -> None:
    _call_torch(partial(torch.save, obj), file, "write", "flush")


def _save_without_sums(obj: Any, file: Any) -> None:
    """As _save(), but torch.save() computes no CRC-32: its file has the same layout. Not in versions where this would change other
    threads."""
    try:
        from torch.utils import _config_module
        from torch.utils.serialization import config
    except ImportError:
        return _save(obj, file)
    settings: Any = config
    if not hasattr(_config_module, "ContextVar"):
        return _save(obj, file)
    before = settings.save.compute_crc32
    try:
        try:
            settings.save.compute_crc32 = False
            _save(obj, file)
        finally:
            settings.save.compute_crc32 = before
    finally:  # an interrupt may have ended the first one
        settings.save.compute_crc32 = before


def _has_plain_bytes(t: torch.Tensor) -> bool:
    return (
        t.device.type == "cpu" and t.layout == torch.strided and t.is_contiguous() and not (t.is_quantized or t.is_conj() or t.is_neg())
    )


def _named(obj: Any, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of nested dicts, lists and tuples, named by the keys that lead to them."""
    if isinstance(obj, torch.Tensor):
        yield prefix, obj
    elif id(obj) in above:
        pass  # a list that contains itself
    elif isinstance(obj, Mapping):
        for key, value in obj.items():
            yield from _named(value, f"{prefix}.{key}" if prefix else str(key), (*above, id(obj)))
    elif isinstance(obj, (list, tuple)):
        for i, value in enumerate(obj):
            yield from _named(value, f"{prefix}.{i}" if prefix else str(i), (*above, id(obj)))


def _find_moments(obj: Any) -> dict[str, torch.Tensor]:
    """Tensors that may be quantised. One with a second name must not change under that name."""
    found = {name: t for name, t in _named(obj) if _has_plain_bytes(t)}
    n_names = Counter(t.untyped_storage().data_ptr() for t in found.values())
    return {name: t for name, t in found.items() if n_names[t.untyped_storage().data_ptr()] == 1}


def _has_small_tensors(obj: Any) -> bool:
    sizes = [t.numel() * t.element_size() for _, t in _named(obj)]
    return 0 < sum(sizes) <= min(COPY_MOST, len(sizes) * COPY_EACH)


def _find_rows(layout: _Layout, path: Any) -> list[Any]:
    rows, why = _lmc.find_tensors(layout.read_at, layout.size, "", True)  # without short descriptions: few arrays are the same base
    if why is not None:
        text = f"{os.fsdecode(path)}: its tensors have no names, and no deltas of their own: {why}"
        warnings.warn(printable(text), stacklevel=count_own_frames())
    return rows


@overload
def save_checkpoint(
    obj: Any, path: str | os.PathLike[str], *, base: Any = None, level: Level = 0, threads: int | None = None, quantize: Any = None,
    progress: Progress | None = None, wait: Literal[True] = True
) -> None: ...


@overload
def save_checkpoint(
    obj: Any, path: str | os.PathLike[str], *, base: Any = None, level: Level = 0, threads: int | None = None, quantize: Any = None,
    progress: Progress | None = None, wait: Literal[False]
) -> Saving: ...


def save_checkpoint(
    obj: Any,
    path: str | os.PathLike[str],
    *,
    base: Any = None,
    level: Level = 0,
    threads: int | None = None,
    quantize: Any = None,
    progress: Progress | None = None,
    wait: bool = True,
) -> Saving | None:
    """Saves an object as torch.save() does: a state of model, optimizer, scheduler, counters, nested in any way.

    base: the path of an earlier checkpoint or a safetensors file, against which this becomes a delta. quantize: rules that
    say which tensors may lose how much (docs/quantisation.md), such as "*.exp_avg*=auto:0.01", for tensors on the CPU in
    dicts, lists and tuples. The file appears at `path` when it is complete. The state must not change meanwhile.

    wait=False: copies what torch.save() writes, and returns; a thread codes the copy. The state may change then. wait() of
    the result waits for the file. Each save first waits for the one before, and raises its error if nobody has seen it.
    """
    how = {"base": base, "level": level, "threads": threads, "quantize": quantize, "progress": progress}
    if not wait:
        with turn():
            writer = Writer(path, **how)  # first, because it refuses paths that cannot be written
            try:
                copy = Copy(obj, quantize is not None)
            except BaseException:
                writer.abort()
                raise
            return begin(partial(_write_copy, writer, path, copy), writer.abort)
    settle()
    with Writer(path, **how) as writer:
        if _has_small_tensors(obj):
            copy = Copy(obj, quantize is not None, COPY_MOST)
            if copy.is_whole:
                _add_copy(writer, path, copy)
                return None
        layout = _Layout()
        (_save_without_sums if quantize is None else _save)(obj, layout)  # what quantising reads back must be right
        rows = _find_rows(layout, path)
        buffers = {}
        found = {} if quantize is None else _find_moments(obj)
        for name, _, shape, _, size in rows:
            if name in found and tuple(found[name].shape) == shape:
                x = _arrays.describe(found[name].detach())
                if x.nbytes == size:
                    buffers[name] = x.buffer

        def write_file(write: Callable[[Any], None]) -> None:
            changed = ChangedError(f"{writer._path or 'the checkpoint'}: the state changed while it was saved")
            sink = _Sink(write, layout.size, changed)
            _save(obj, sink)
            sink.finish()

        writer._add_known("", layout.size, rows, buffers, write_file, layout.pieces)
    return None


def save_copy(copy: Copy, path: Any, **how: Any) -> None:
    """save_checkpoint() of what was copied before. how: of Writer."""
    _write_copy(Writer(path, **how), path, copy)


def _write_copy(writer: Writer, path: Any, copy: Copy) -> None:
    try:
        with writer:
            _add_copy(writer, path, copy)
    finally:
        copy.clear()  # a traceback may be kept


def _add_copy(writer: Writer, path: Any, copy: Copy) -> None:
    rows = _find_rows(copy, path)
    places = {name: (at, size) for name, _, shape, at, size in rows if copy.moments.get(name) == (shape, size)}
    found = {name: copy.find(*place) for name, place in places.items()}
    buffers = {name: x for name, x in found.items() if x is not None}

    def write_file(write: Callable[[Any], None]) -> None:
        for piece in copy.take():
            write(piece)

    writer._add_known("", copy.size, rows, buffers, write_file, copy.pieces)


def load_checkpoint(
    path: Any,
    *,
    base: Any = "auto",
    map_location: Any = None,
    weights_only: bool = True,
    threads: int | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Loads what save_checkpoint() has saved, or any single file of torch.save() that lmc has compressed.

    base: of a delta; "auto" looks for it beside the file, where a run has its states: load_file(), which takes files from
    anywhere, does so only if told. map_location, weights_only: as for torch.load(). progress: called with the bytes of the
    file of torch.save() that were read, and all of them.
    """
    check_progress(progress)
    with open_reader(path, base=base, threads=threads, storage_options=storage_options) as reader:
        files = [file for file in reader.files if not file.is_directory]
        if len(files) != 1:
            raise NotFoundError(f"{reader.name or 'the snapshot'}: has {len(files)} files, but a checkpoint is one file")
        stored = Stored(reader)
        stored.tell = partial(int, 0)  # type: ignore[method-assign] # BufferedReader() would hide an exception of a signal handler there
        buffered = io.BufferedReader(stored, PIECE // 4)
        del stored.tell
        start = buffered.peek(10)
        if starts_safetensors(start[:10]) or not start.startswith((b"PK\3\4", b"\x80")):  # the size of a safetensors header may begin so, too
            raise NotFoundError(f"{reader.name or 'the snapshot'}: has no file of torch.save(): load_file() reads other tensors")
        file = buffered if progress is None else _Counted(buffered, files[0].size, progress)
        methods = "read", "readinto", "readline", "seek", "tell"
        found = _call_torch(torch.load, file, *methods, map_location=map_location, weights_only=weights_only)
        if isinstance(file, _Counted):
            file.count(files[0].size)  # torch.load() need not read all
        return found
