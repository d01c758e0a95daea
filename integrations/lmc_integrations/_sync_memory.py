"""Tensors in the memory of this process, as a checkpoint that weight_sync.publish() reads."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from ._core import _arrays
from ._sync_codecs import SyncError
from ._sync_files import Tensor
from ._sync_pieces import Piece

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._sync_codecs import Bytes

STAGED = 32 << 20  # bytes of a tensor of a GPU that are copied at once, through pinned memory


class Memory:
    """Has what a Checkpoint has. Tensors are copied when they are read; the caller must not change them before. Of a DTensor it has
    the piece of this process, under the piece's name; nothing, if another process has the same or this one has none."""

    def __init__(self, arrays: Any, directory: str):
        self.directory = directory  #: for messages
        self.tensors: dict[str, Tensor] = {}
        self.pieces: dict[str, Piece] = {}  #: by name
        self.elsewhere: list[str] = []  #: tensors that other processes publish
        if not arrays:
            raise SyncError("%s: no tensors" % directory)
        arrays = dict(self._cut(arrays))
        for name, x in _arrays.describe_all(arrays, "tensor", describe=_describe).items():
            self.tensors[name] = Tensor(directory, name, x.dtype, list(x.shape), 0, x.nbytes)
        order = sorted(self.tensors.values(), key=lambda t: t.name)
        self.shards: dict[str, Any] = {directory: SimpleNamespace(tensors=order)}
        self._arrays, self._stages = arrays, threading.local()

    def _cut(self, arrays: Any) -> Iterator[tuple[str, Any]]:
        for name, x in arrays.items():
            if not hasattr(x, "__create_chunk_list__"):
                yield name, x
                continue
            try:
                found = _find_piece(name, x)
            except (RuntimeError, ValueError, NotImplementedError) as error: # of torch, about placements
                raise TypeError("tensor %s: %s" % (ascii(name), error)) from error
            if found is None:
                self.elsewhere.append(name)
            else:
                piece, local = found
                is_whole = [b - a for a, b in piece.box] == piece.shape
                if not is_whole:
                    self.pieces[piece.name] = piece
                yield (name if is_whole else piece.name), local

    def read_into(self, out: Bytes, tensor: Tensor) -> Bytes:
        array = self._arrays[tensor.name]
        if not _is_torch(array):
            out[:] = np.frombuffer(_arrays.describe(array).buffer, np.uint8)
        elif tensor.size and _is_near(array):
            sys.modules["torch"].frombuffer(out.data, dtype=array.dtype).view(array.shape).copy_(array.detach())
        elif tensor.size:
            self._read_far(out, array)
        return out

    def _read_far(self, out: Bytes, array: Any) -> None:
        torch = sys.modules["torch"]
        stage = getattr(self._stages, "stage", None)
        if stage is None:
            stage = self._stages.stage = torch.empty(STAGED, dtype=torch.uint8, pin_memory=array.device.type == "cuda")
        flat = array.detach().contiguous().view(-1).view(torch.uint8)
        for at in range(0, out.size, STAGED):
            part = stage[: min(STAGED, out.size - at)]
            part.copy_(flat[at : at + STAGED])
            out[at : at + STAGED] = part.numpy()

    def check_unchanged(self) -> None:
        """Nothing tells."""

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *unused: object) -> None:
        self._stages = threading.local()


def _find_piece(name: str, x: Any) -> tuple[Piece, Any] | None:
    """The piece of a DTensor that this process is to publish. Of replicas it is the first."""
    coordinate = x.device_mesh.get_coordinate()
    if coordinate is None or any(at and placement.is_replicate() for at, placement in zip(coordinate, x.placements)):
        return None
    (chunk,), local = x.__create_chunk_list__(), x.to_local()
    if x.numel() == 0:  # of several processes that have nothing the first publishes all of it
        return None if any(coordinate) else (Piece(name, list(x.shape), [[0, n] for n in x.shape]), local.new_empty(x.shape))
    if local.numel() == 0:
        return None
    if tuple(local.shape) != tuple(chunk.sizes):
        raise ValueError("a DTensor whose local tensor has another shape than its piece")
    return Piece(name, list(x.shape), [[at, at + n] for at, n in zip(chunk.offsets, chunk.sizes)]), local


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_near(array: Any) -> bool:
    return bool(array.device.type == "cpu")


def _describe(array: Any, unused: Any) -> Any:
    if not _is_torch(array):
        return _arrays.describe(array)
    if hasattr(array, "full_tensor"):
        raise TypeError("of several processes, and no DTensor: give its full_tensor()")
    return SimpleNamespace(dtype=_arrays.dtype_name(array.dtype), shape=array.shape, nbytes=array.nbytes)
