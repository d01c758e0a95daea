"""A training state in one LMC file: the file of torch.save(), with its tensors by name.

No tensor is in memory twice, and `lmc -d` restores the exact file of torch.save(). As always, torch.load() decides what
may be in it. With wait=False a thread codes a copy of the tensors.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from . import _arrays, _lmc
from ._arguments import check_progress
from ._base import starts_safetensors
from ._errors import ChangedError, NotFoundError
from ._lmc import printable
from ._reader import open as open_reader
from ._saving import Saving, begin, in_turn, settle
from ._torch_save import Pickled, Written, call_torch
from ._writer import Writer, count_own_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._policy import Place
    from ._reader import Reader
    from ._types import Level, Progress

PIECE = 4 << 20  #: bytes that are read at once: a block of a delta, or each small tensor would decode the block again
N_PIECES = 3  #: pieces that are kept: of the directory of a ZIP archive, and of the entries that it names


class State(Pickled):
    """An object to save. quantises: for a Writer that does so."""

    def __init__(self, obj: Any, quantises: bool):
        super().__init__(obj)
        self.quantises = quantises
        self._moments = _find_moments(obj) if quantises else {}

    def copy(self) -> dict[int, memoryview]:
        copies = super().copy()
        for name, t in self._moments.items():
            whole = t.untyped_storage()
            if t.numel() and whole.data_ptr() in copies:
                part = torch.frombuffer(copies[whole.data_ptr()], dtype=t.dtype, count=t.numel(), offset=t.data_ptr() - whole.data_ptr())
                self._moments[name] = part.view(t.shape)
        return copies

    def clear(self) -> None:
        super().clear()
        self._moments.clear()

    def find_buffers(self, rows: list[Place]) -> dict[str, Any]:
        """The bytes of tensors that may be quantised."""
        found = {}
        for name, _, shape, _, size in rows:
            if name in self._moments and tuple(self._moments[name].shape) == shape:
                x = _arrays.describe(self._moments[name].detach())
                if x.nbytes == size:
                    found[name] = x.buffer
        return found


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


def _find_rows(file: Written, path: Any) -> list[Any]:
    rows, why = _lmc.find_tensors(file.read_at, file.size, "", True)  # without short descriptions: few arrays are the same base
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

    wait=False: copies the state, and returns; a thread codes the copy. The state may change then. wait() of
    the result waits for the file. Each save first waits for the one before, and raises its error if nobody has seen it.
    """
    how = {"base": base, "level": level, "threads": threads, "quantize": quantize, "progress": progress}
    if wait:
        settle()
        with Writer(path, **how) as writer:
            _write(writer, path, State(obj, quantize is not None))
        return None

    def prepare() -> Saving:
        writer = Writer(path, **how)  # first, because it refuses paths that cannot be written
        try:
            state = copy_state(obj, quantize is not None)
        except BaseException:
            writer.abort()
            raise
        return begin(partial(_finish, writer, path, state), writer.abort)

    return in_turn(prepare)


def copy_state(obj: Any, quantises: bool) -> State:
    """All that save_copy() needs of an object, which may change then. quantises: for a Writer that does so."""
    state = State(obj, quantises)
    state.copy()
    return state


def save_copy(state: State, path: Any, **how: Any) -> None:
    """save_checkpoint() of what was copied before, once. how: of Writer."""
    _finish(Writer(path, **how), path, state)


def _finish(writer: Writer, path: Any, state: State) -> None:
    with writer:
        _write(writer, path, state)


def _write(writer: Writer, path: Any, state: State) -> None:
    file = Written()
    try:
        state.save(file)
        rows = _find_rows(file, path)
        changed = ChangedError(f"{writer._path or 'the checkpoint'}: the state changed while it was saved")
        writer._add_known("", file.size, rows, state.find_buffers(rows), lambda write: file.pass_on(write, changed), file.list_between())
    finally:  # a traceback may be kept
        file.clear()
        state.clear()


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
        found = call_torch(torch.load, file, *methods, map_location=map_location, weights_only=weights_only)
        if isinstance(file, _Counted):
            file.count(files[0].size)  # torch.load() need not read all
        return found
