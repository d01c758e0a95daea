"""What torch.save() writes of an object, without a copy of its storages.

The pickle is made first, with the bytes that torch.save() would write, and lists the storages: the object may change then,
and so may the storages if they are copied. Then torch.save() itself makes the file, from a "pickle module" that has all
this ready. It writes to a list, in which a storage is only named.
"""

from __future__ import annotations

import io
import operator
import pickle
import re
from bisect import bisect_right
from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.serialization import DEFAULT_PROTOCOL, location_tag, normalize_storage_type

from . import _lmc
from ._errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 1 << 20  #: bytes of a storage that torch copies, with its threads and without the GIL; for smaller ones the call takes longer
SMALL = 512  #: bytes of a storage that is remembered as bytes
JOINED = 120 << 10  #: bytes that are passed on at once
HEAD = 256  #: bytes before a storage, at least: the end of its name, and padding
IS_STORAGE = re.compile(rb"/data/(\d+)(FB..Z*)?\Z", re.DOTALL)


def call_torch(function: Callable[..., Any], file: Any, *methods: str, **options: Any) -> Any:
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


class _Plain:
    """The storage of a plain tensor, in a pickle."""

    __slots__ = ("dtype", "storage")

    def __init__(self, storage: Any, dtype: torch.dtype):
        self.storage, self.dtype = storage, dtype


class _Pickler(pickle.Pickler):
    """Pickles as torch.save() does, with fewer steps for plain tensors: dense ones on the CPU, without attributes."""

    def __init__(self, file: Any):
        super().__init__(file, protocol=DEFAULT_PROTOCOL)
        self.storages: list[Any] = []
        self._keys: dict[int, str] = {}
        self._dtypes: dict[int, torch.dtype] = {}  # by the address of the data
        self._are_storages = {_Plain: True}  # by type
        self._plain: dict[torch.dtype, tuple[Any, Any, int] | None] = {}  # what rebuilds them, the class of their storages, bytes of an element

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor:
            return NotImplemented
        if not obj.is_cpu or obj.layout is not torch.strided or obj.is_nested or obj.is_neg() or obj._backward_hooks or obj.__dict__:
            return NotImplemented
        dtype = obj.dtype
        known = self._plain[dtype] if dtype in self._plain else self._learn(obj, dtype)
        if known is None:
            return NotImplemented
        storage = _Plain(obj.untyped_storage(), dtype)
        return known[0], (storage, obj.storage_offset(), tuple(obj.size()), obj.stride(), obj.requires_grad, OrderedDict())

    def _learn(self, t: Any, dtype: torch.dtype) -> tuple[Any, Any, int] | None:
        known = None
        if not (dtype.is_complex or t.is_quantized):  # these have more to tell
            rebuild, args = t.__reduce_ex__(DEFAULT_PROTOCOL)
            if len(args) == 6 and isinstance(args[0], torch.storage.TypedStorage):
                known = rebuild, _describe(args[0], True)[0], dtype.itemsize
        self._plain[dtype] = known
        return known

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind not in self._are_storages:
            self._are_storages[kind] = issubclass(kind, torch.storage.TypedStorage) or torch.is_storage(obj)
        if not self._are_storages[kind]:
            return None
        if kind is _Plain:
            storage, dtype = obj.storage, obj.dtype
            _, of_class, width = self._plain[dtype]  # type: ignore[misc]
            where, n = "cpu", storage.nbytes() // width
        else:
            is_typed = isinstance(obj, torch.storage.TypedStorage)
            of_class, n = _describe(obj, is_typed)
            storage, dtype = (obj._untyped_storage, obj.dtype) if is_typed else (obj, torch.uint8)
            where = location_tag(storage)
        address = storage.data_ptr()  # 0: on meta
        if address and self._dtypes.setdefault(address, dtype) != dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        key = self._keys.get(storage._cdata)
        if key is None:
            key = self._keys[storage._cdata] = str(len(self._keys))
            self.storages.append(storage)
        return "storage", of_class, key, where, n


def _describe(storage: Any, is_typed: bool) -> tuple[Any, int]:
    """Its class in a pickle, and the number of its elements."""
    if is_typed:
        return getattr(torch, storage._pickle_storage_type()), storage._size()
    normalize: Any = normalize_storage_type
    return normalize(type(storage)), storage.nbytes()


class Written:
    """A file of torch.save(), until clear(): the bytes that it has between storages, and the storages."""

    def __init__(self) -> None:
        self.size = 0
        self.storages: list[Any] = []
        self._pieces: list[tuple[int, Any]] = []  # first byte, and bytes or a storage; in order
        self._last: bytearray | None = None  # the last piece, if it is bytes

    def write(self, data: Any) -> int:
        size = len(data)
        storage = self._find_storage(size) if size >= SMALL and self._last else None
        if storage is not None:
            self._pieces.append((self.size, storage))
            self._last = None
        elif self._last is None:
            self._last = bytearray(data)
            self._pieces.append((self.size, self._last))
        else:
            self._last += data
        self.size += size
        return size

    def flush(self) -> None:
        """For torch.save()."""

    def _find_storage(self, size: int) -> Any:
        """The storage that is written now: its name and some padding come before it."""
        assert self._last is not None
        named = IS_STORAGE.search(self._last[-HEAD:])
        if named is None or int(named[1]) >= len(self.storages):
            return None
        storage = self.storages[int(named[1])]
        return storage if storage.nbytes() == size else None

    def read_at(self, offset: int, size: int) -> bytes:
        """Storages are zeros."""
        result = bytearray(size)
        for i in range(max(0, bisect_right(self._pieces, offset, key=operator.itemgetter(0)) - 1), len(self._pieces)):
            start, piece = self._pieces[i]
            if start >= offset + size:
                break
            if isinstance(piece, bytearray):
                first, last = max(start, offset), min(start + len(piece), offset + size)
                result[first - offset : last - offset] = piece[first - start : last - start]
        return bytes(result)

    def list_between(self) -> list[tuple[int, bytearray]]:
        """First bytes and bytes of what is between storages."""
        return [(at, piece) for at, piece in self._pieces if isinstance(piece, bytearray)]

    def pass_on(self, write: Callable[[Any], Any], changed: Exception) -> None:
        """Writes the file, what is small together. changed: raised if a storage has got another size."""
        small, ends = bytearray(), [at for at, _ in self._pieces[1:]] + [self.size]
        data: Any = b""
        try:
            for (at, piece), end in zip(self._pieces, ends):
                data = piece if isinstance(piece, bytearray) else _read_storage(piece)
                if len(data) != end - at:
                    raise changed
                if len(data) < JOINED:
                    small += data
                if small and (len(small) >= JOINED or len(data) >= JOINED):
                    write(small)
                    small = bytearray()
                if len(data) >= JOINED:
                    write(data)
            write(small)
        finally:
            piece = data = None  # a traceback may be kept

    def clear(self) -> None:
        self.storages.clear()
        self._pieces.clear()


def _read_storage(storage: Any) -> Any:
    if storage.device.type != "cpu":
        storage = storage.cpu()
    size = storage.nbytes()
    memory: Any = _lmc.Memory(storage.data_ptr() if size else 0, size, True, storage)
    return memoryview(memory)


class Pickled:
    """An object as torch.save() pickles it, and its storages, until clear()."""

    def __init__(self, obj: Any):
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(obj)
        self._pickle = file.getvalue()
        self._storages = pickler.storages  # of torch, or their bytes

    def save(self, written: Written) -> None:
        ready = [*map(_as_storage, self._storages), self._pickle]
        written.storages = ready[:-1]

        class Pickler:
            persistent_id: Callable[[Any], Any]  # is added by torch.save()

            def __init__(self, file: Any, protocol: int):
                self._file = file

            def dump(self, obj: Any) -> None:
                for i, storage in enumerate(ready[:-1]):
                    if self.persistent_id(storage)[2] != str(i):
                        raise RuntimeError("this version of torch.save() does not count storages")
                self._file.write(ready[-1])

        try:
            call_torch(partial(torch.save, None, pickle_module=SimpleNamespace(__name__="pickle", Pickler=Pickler)), written, "write", "flush")
        finally:
            ready.clear()  # a class lives until the next garbage collection

    def copy(self) -> dict[int, memoryview]:
        """Copies the storages, those of the CPU to one piece of memory. The latter by their old addresses."""
        sizes = [storage.nbytes() if storage.device.type == "cpu" else 0 for storage in self._storages]
        memory: Any = _lmc.new_memory(sum(map(_align, sizes)))
        room, copies = memoryview(memory), {}
        for i, (storage, size) in enumerate(zip(self._storages, sizes)):
            if storage.device.type != "cpu":
                self._storages[i] = storage.cpu()
                continue
            part, room = room[:size], room[_align(size) :]
            if size >= LARGE:
                _as_storage(part).copy_(storage)
            else:
                part[:] = _read_storage(storage)
            self._storages[i] = copies[storage.data_ptr()] = part
        return copies

    def clear(self) -> None:
        self._pickle = b""
        self._storages.clear()


def _align(size: int) -> int:
    return size + -size % 64


def _as_storage(storage: Any) -> Any:
    if not isinstance(storage, memoryview):
        return storage
    if not len(storage):
        return torch.empty(0).untyped_storage()
    return torch.frombuffer(storage, dtype=torch.uint8).untyped_storage()
