"""Files of weight sync: JSON, shards, checkpoints of safetensors files. After a crash each file is either old or new."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from ._sync_codecs import SyncCorrupt, SyncError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # the limit of safetensors' own reader
STATE_DIR = ".weight_sync"  # a directory in the local checkpoint; SGLang uses this name


def sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: str, value: Any) -> None:
    """Writes all or nothing, even if the machine crashes."""
    with open(path + ".tmp", "w") as f:
        json.dump(value, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)
    sync(os.path.dirname(path))


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None: there is no such file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as f: # opening a pipe would block
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise SyncCorrupt("%s is no file" % path)
            value = json.load(f)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise SyncCorrupt("%s is not JSON: %s" % (path, error))
    if not isinstance(value, dict):
        raise SyncCorrupt("%s holds no JSON object" % path)
    return value


def copy_file(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    shutil.copystat(source, target)
    sync(target)


def list_files(directory: str) -> list[str]:
    """Names of the regular files, without hidden files."""
    if not os.path.isdir(directory):
        raise SyncError("%s is no directory" % directory)
    with os.scandir(directory) as entries:
        return sorted(e.name for e in entries if e.is_file() and not e.name.startswith("."))


@contextlib.contextmanager
def locked(path: str, wait: bool) -> Iterator[None]:
    with open(path, "a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise SyncError("%s is locked: another process is at work there" % path)
        yield


class Tensor(NamedTuple):
    """A tensor of a safetensors file. offset, size: bytes; offset counts from the start of the file."""

    path: str
    name: str
    dtype: str
    shape: list[int]
    offset: int
    size: int


def read_shard(path: str) -> tuple[list[Tensor], dict[str, Any]]:
    """(tensors sorted by offset, metadata) of a safetensors file, which must be complete."""
    try:
        with open(path, "rb") as f:
            file_size = os.fstat(f.fileno()).st_size
            header_size = int.from_bytes(f.read(8), "little")
            at = 8 + header_size
            if file_size < 8 or header_size > MAX_HEADER or at > file_size:
                raise ValueError("its header is cut short, or it is no safetensors file")
            header = json.loads(f.read(header_size))
        metadata = header.pop("__metadata__", {})
        tensors = []
        for name, t in sorted(header.items(), key=lambda item: (item[1]["data_offsets"], item[0])):
            begin, end = t["data_offsets"]
            if not isinstance(begin, int) or not isinstance(end, int) or 8 + header_size + begin != at or end < begin:
                raise ValueError("tensor %s does not begin where the one before it ends" % ascii(name))
            tensors.append(Tensor(path, name, str(t["dtype"]), list(t["shape"]), at, end - begin))
            at += end - begin
        if at > file_size:
            raise ValueError("%d bytes are missing at its end" % (at - file_size))
        return tensors, dict(metadata)
    except FileNotFoundError:
        raise SyncError("%s is missing: not all of it has arrived, or it was removed" % path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SyncCorrupt("%s is damaged: %s" % (path, error))


def read_checkpoint(directory: str) -> dict[str, Tensor]:
    """name -> Tensor, for all safetensors files in a directory. No file may be missing."""
    if "commit" in (read_json(os.path.join(directory, STATE_DIR, "state.json")) or {}):
        raise SyncError("%s was left by a killed receive with files old and new: run receive again" % directory)
    tensors: dict[str, Tensor] = {}
    for file in list_files(directory):
        if file.endswith(".safetensors"):
            for t in read_shard(os.path.join(directory, file))[0]:
                if t.name in tensors:
                    raise SyncCorrupt("%s: tensor %s is there twice" % (directory, ascii(t.name)))
                tensors[t.name] = t
    if not tensors:
        raise SyncError("%s: no tensors in *.safetensors" % directory)
    weight_map = (read_json(os.path.join(directory, INDEX)) or {}).get("weight_map") or tensors
    if not isinstance(weight_map, dict) or set(weight_map) != set(tensors):
        raise SyncError("%s: its index and its files do not have the same tensors: not all of it has arrived, or it is no checkpoint" % directory)
    return tensors


def map_file(path: str, mode: Literal["r", "r+"] = "r") -> np.memmap[Any, np.dtype[np.uint8]]:
    return np.memmap(path, np.uint8, mode)


def get_bytes(mapped: Bytes, tensor: Tensor) -> Bytes:
    return mapped[tensor.offset:tensor.offset + tensor.size]


def make_file(path: str, size: int) -> np.memmap[Any, np.dtype[np.uint8]]:
    with open(path, "wb") as f:
        f.truncate(size)
        if hasattr(os, "posix_fallocate"): # a full disk gives an error now, not a signal later
            os.posix_fallocate(f.fileno(), 0, size)
    return map_file(path, "r+")
