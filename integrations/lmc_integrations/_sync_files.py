"""Files of weight sync: JSON, shards, checkpoints of safetensors files. After a crash each file is either old or new."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from io import FileIO
from typing import IO, Any, NamedTuple

import numpy as np

from ._core import attempt, open_descriptor, printable, sync_directory, sync_file
from ._sync_codecs import COPY_SIZE, SyncCorrupt, SyncError, SyncReadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes, Checksum
    from ._sync_report import Clock

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # the limit of safetensors' own reader
STATE_DIR = ".weight_sync"  # a directory in the local checkpoint; SGLang uses this name


LOGGER = logging.getLogger("lmc_integrations.weight_sync")


def make_name() -> str:
    """A part of a temporary name that no other process has, also where locks do not work."""
    return os.urandom(6).hex()


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Gives the file's name to the errors of calls that only have its descriptor."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise


def sync(directory: str) -> None:
    with naming(directory):
        sync_directory(directory)


def write_json(path: str, value: Any) -> None:
    """Writes all or nothing, even if the machine crashes."""
    part = "%s.%s.tmp" % (path, make_name())
    try:
        with naming(path), open(part, "w") as f:
            json.dump(value, f)
            f.flush()
            sync_file(f.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    sync(os.path.dirname(path))


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None: there is no such file."""
    try:
        opened = open_descriptor(path)
        with open(opened.fileno(), "rb", closefd=False) as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise SyncCorrupt("%s is not a file" % path)
            with naming(path):
                value = json.load(f)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise SyncCorrupt("%s is not JSON: %s" % (path, error))
    if not isinstance(value, dict):
        raise SyncCorrupt("%s holds no JSON object" % path)
    return value


def list_files(directory: str) -> list[str]:
    """Names of the regular files, without hidden files."""
    if not os.path.isdir(directory):
        raise SyncError("%s is not a directory" % directory)
    with os.scandir(directory) as entries:
        return sorted(e.name for e in entries if e.is_file() and not e.name.startswith("."))


_unlocked: set[str] = set()  # the files of which a warning has said that they cannot be locked


def lock_file(f: IO[str], wait: bool) -> bool:
    """Locks an open file until it is closed. Returns False if the file system has no locks. Then nothing that may be another
    process's is removed, and renaming decides whose files are there at the end. Whoever calls this opens the file himself, by `with`: an
    exception at the end of a context manager's __enter__, such as Ctrl-C, would leave it open as long as the traceback is kept."""
    try:
        with naming(f.name):
            is_locked = attempt("lock", fcntl.flock, f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise SyncError("%s is locked: another process is at work there" % f.name)
    if not is_locked and f.name not in _unlocked:
        _unlocked.add(f.name)
        LOGGER.warning("%s: its file system has no locks: see to it that only one process at a time changes this directory", printable(f.name))
    return is_locked


class Scratch(threading.local):
    """Memory for tensors in work. Each thread keeps its own, because the system must clear new memory first."""

    def __init__(self) -> None:
        self.arrays: dict[str, Bytes] = {}

    def take(self, use: str, size: int) -> Bytes:
        if use not in self.arrays or self.arrays[use].size < size:
            self.arrays.pop(use, None)
            self.arrays[use] = np.empty(size, np.uint8)
        return self.arrays[use][:size]


class File:
    """A file of another program, open for reading. It is never mapped: if another process cuts it, that is an error here,
    where a mapping would end the process by a signal."""

    def __init__(self, path: str):
        self.path = path
        self.raw = open(path, "rb", buffering=0)
        self.status = os.fstat(self.raw.fileno())
        self.size = self.status.st_size

    def read_into(self, out: Bytes, offset: int) -> Bytes:
        """Fills out. The system may give less than was asked for, never more than 2 GiB at once."""
        view, done = out.data, 0
        while done < out.size:
            with naming(self.path):
                n = os.preadv(self.raw.fileno(), [view[done:done + (1 << 30)]], offset + done)
            if n == 0:
                now = os.fstat(self.raw.fileno()).st_size
                raise SyncReadError("%s: it had %d bytes when it was opened, and now has %d: another process changed it" % (self.path, self.size, now))
            done += n
        return out

    def read(self, offset: int, size: int) -> Bytes:
        return self.read_into(np.empty(size, np.uint8), offset)

    def check_unchanged(self) -> None:
        """Raises if another process wrote to the file after it was opened: what was read may be old and new."""
        if mark(os.fstat(self.raw.fileno())) != mark(self.status):
            raise SyncReadError("%s was changed while it was read" % self.path)


def mark(status: os.stat_result) -> list[int]:
    """What changes if a file is written or replaced."""
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def write_at(f: FileIO, data: Bytes, offset: int) -> None:
    view, done = data.data, 0
    with naming(str(f.name)):
        while done < data.size:
            done += os.pwrite(f.fileno(), view[done:done + (1 << 30)], offset + done)


class Tensor(NamedTuple):
    """A tensor of a safetensors file. offset, size: bytes; offset counts from the start of the file."""

    path: str
    name: str
    dtype: str
    shape: list[int]
    offset: int
    size: int


class Shard(File):
    """A safetensors file, which must be complete. tensors: sorted by offset; they leave no gaps between them."""

    def __init__(self, path: str):
        try:
            super().__init__(path)
        except FileNotFoundError:
            raise SyncError("%s is missing: not all of it has arrived, or it was removed" % path)
        try:
            self.tensors, self.metadata = self._parse()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self.raw.close()
            raise SyncCorrupt("%s is damaged: %s" % (path, error))
        except BaseException:
            self.raw.close()
            raise
        self.first = self.tensors[0].offset if self.tensors else self.size  #: where the tensors begin
        self.last = self.tensors[-1].offset + self.tensors[-1].size if self.tensors else self.size  #: and end

    def _parse(self) -> tuple[list[Tensor], dict[str, Any]]:
        header_size = int.from_bytes(self.read(0, min(8, self.size)).tobytes(), "little")
        at = 8 + header_size
        if self.size < 8 or header_size > MAX_HEADER or at > self.size:
            raise ValueError("its header is cut short, or it is not a safetensors file")
        header = json.loads(self.read(8, header_size).tobytes())
        metadata = header.pop("__metadata__", {})
        tensors = []
        for name, t in sorted(header.items(), key=lambda item: (item[1]["data_offsets"], item[0])):
            begin, end = t["data_offsets"]
            if not isinstance(begin, int) or not isinstance(end, int) or 8 + header_size + begin != at or end < begin:
                raise ValueError("tensor %s does not begin where the one before it ends" % ascii(name))
            tensors.append(Tensor(self.path, name, str(t["dtype"]), list(t["shape"]), at, end - begin))
            at += end - begin
        if at > self.size:
            raise ValueError("%d bytes are missing at its end" % (at - self.size))
        return tensors, dict(metadata)


def read_shard(path: str) -> tuple[list[Tensor], dict[str, Any]]:
    """(tensors, metadata) of a safetensors file."""
    shard = Shard(path)
    shard.raw.close()
    return shard.tensors, shard.metadata


class Checkpoint:
    """All safetensors files in a directory, open. No file may be missing. They stay those of one version: receive() replaces
    files and never writes to them, and its state is the same before and after they are opened."""

    def __init__(self, directory: str):
        self.directory = directory
        self.state: dict[str, Any] = {}  #: of a local checkpoint of receive()
        self.shards: dict[str, Shard] = {}  #: by path
        self.tensors: dict[str, Tensor] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        directory, state_path = self.directory, os.path.join(self.directory, STATE_DIR, "state.json")
        self.state = read_json(state_path) or {}
        if "commit" in self.state:
            raise SyncError("%s has files old and new: a receive is at work there, or was killed: run receive again" % directory)
        for file in list_files(directory):
            if file.endswith(".safetensors"):
                shard = Shard(os.path.join(directory, file))
                self.shards[shard.path] = shard
                for t in shard.tensors:
                    if t.name in self.tensors:
                        raise SyncCorrupt("%s: tensor %s is there twice" % (directory, ascii(t.name)))
                    self.tensors[t.name] = t
        if not self.tensors:
            raise SyncError("%s: no tensors in *.safetensors" % directory)
        files = {t.name: os.path.basename(t.path) for t in self.tensors.values()}
        if ((read_json(os.path.join(directory, INDEX)) or {}).get("weight_map") or files) != files:
            raise SyncError("%s: its index and its files do not have the same tensors: not all of it has arrived, or the index is of another "
                            "checkpoint" % directory)
        if (read_json(state_path) or {}) != self.state:
            raise SyncReadError("%s: another process received a version there while its files were opened: repeat this" % directory)

    @property
    def size(self) -> int:
        return sum(t.size for t in self.tensors.values())

    def read_into(self, out: Bytes, tensor: Tensor) -> Bytes:
        return self.shards[tensor.path].read_into(out, tensor.offset)

    def check_unchanged(self) -> None:
        for shard in self.shards.values():
            shard.check_unchanged()

    def close(self) -> None:
        for shard in self.shards.values():
            shard.raw.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def run_all(pool: ThreadPoolExecutor, work: Callable[[Tensor], Any], tensors: Iterable[Tensor]) -> list[Any]:
    """The results, in order. When it returns or raises, none is at work any more, so that its caller may close files."""
    futures = [pool.submit(work, t) for t in tensors]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def copy_shard(source: Shard, target: str, pool: ThreadPoolExecutor, scratch: Scratch, fill: Callable[[Tensor, Bytes], None], clock: Clock) -> Bytes:
    """Writes a file with the header of source, and tensors that fill(t, data) puts into data. Returns the bytes before the tensors."""
    head = source.read(0, source.first)
    with open(target, "wb", buffering=0) as f:
        def copy(t: Tensor) -> None:
            data = scratch.take("copy", t.size)
            fill(t, data)
            with clock.phase("write"):
                write_at(f, data, t.offset)

        write_at(f, head, 0)
        write_at(f, source.read(source.last, source.size - source.last), source.last)
        run_all(pool, copy, source.tensors)
        with clock.phase("write"):
            finish_copy(f, source)
    return head


def copy_file(path: str, target: str, checksum: Checksum | None) -> str | None:
    """Copies a file that has no tensors. Returns its checksum."""
    source, state = File(path), checksum.new() if checksum else None
    with source.raw, open(target, "wb", buffering=0) as f:
        for at in range(0, source.size, COPY_SIZE):
            data = source.read(at, min(COPY_SIZE, source.size - at))
            write_at(f, data, at)
            if state:
                state.update(data)
        finish_copy(f, source)
    return state.hexdigest() if state else None


def finish_copy(f: FileIO, source: File) -> None:
    with naming(str(f.name)):
        attempt("mode", os.fchmod, f.fileno(), stat.S_IMODE(source.status.st_mode))
        sync_file(f.fileno())
