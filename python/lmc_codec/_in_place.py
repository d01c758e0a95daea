"""Applies a delta to the arrays of its base, in place."""

from __future__ import annotations

from . import _arrays, _lmc
from ._safetensors import ALONE, STAGED, _cut, _get_new, _read_piece

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ._base import Base
    from ._reader import Reader, TensorInfo

SMALL = 64 << 10  #: an unchanged tensor of at most so many bytes is decoded with its neighbours


def check_payloads(reader: Reader) -> None:
    """Of a delta that was opened without its base. If they are intact, and the base is right, decoding gives the right values."""
    reader._source.expect(0, reader._source.size)
    reader._object.verify()


def apply(reader: Reader, names: Iterable[str], base: Base) -> list[str]:
    """Changes the base's arrays, which are in memory. Returns the names of those that may have changed.

    Arrays whose elements are not predicted by themselves (renamed, twins) are made before any is changed."""
    buffers = {name: buffer for name, _, _, buffer in base._items}
    infos, changed = [], []
    for x, _, row in reader._pair(names):
        differs = x.fingerprint != row[5]
        changed += [x.name] if differs else []
        if differs or 0 < x.size <= SMALL:
            infos.append(x)
    infos.sort(key=lambda x: (x.file_number, x.offset))
    apart = [x for x in infos if not reader._object.can_read_in_place(x.file_number, x.offset, x.size)]
    made = dict(_get_new(reader, apart, None))
    rest = [x for x in infos if x.name not in made]
    _overwrite(reader, rest, buffers)
    for name, array in made.items():
        memoryview(buffers[name]).cast("B")[:] = memoryview(_arrays.describe(array).buffer).cast("B")
    return changed


def _overwrite(reader: Reader, infos: list[TensorInfo], buffers: Mapping[str, Any]) -> None:
    """A block that crosses into the next piece is decoded again there, which takes the base's bytes of this piece: so what
    was decoded waits until no later piece has a block of it."""
    waiting: list[tuple[int, list[tuple[TensorInfo, Any]]]] = []  # end of its blocks in the file; tensors and their bytes
    for piece in _cut(infos, STAGED, ALONE):
        first, last = piece[0], piece[-1]
        size = last.offset + last.span - first.offset
        start, encoded = reader._object.encoded_range(first.file_number, first.offset, size)
        if first is last and not _shares_blocks(reader, first, start, start + encoded):
            reader._read_into(first, buffers[first.name])
            continue
        room: Any = _lmc.new_memory(size)
        staged = memoryview(room)
        _read_piece(reader, piece, staged)
        while waiting and waiting[0][0] <= start:
            _write(reader, waiting.pop(0)[1], buffers)
        parts = [(x, staged[x.offset - first.offset : x.offset - first.offset + x.span]) for x in piece]
        waiting.append((start + encoded, parts))
    for _, parts in waiting:
        _write(reader, parts, buffers)


def _shares_blocks(reader: Reader, x: TensorInfo, start: int, end: int) -> bool:
    """Whether a block of the tensor, at bytes [start, end) of the LMC file, has other bytes, too."""
    behind, size = x.offset + x.size, reader.files[x.file_number].size
    if x.offset > 0:
        at, n = reader._object.encoded_range(x.file_number, x.offset - 1, 1)
        if at + n > start:
            return True
    return behind < size and reader._object.encoded_range(x.file_number, behind, 1)[0] < end


def _write(reader: Reader, parts: list[tuple[TensorInfo, Any]], buffers: Mapping[str, Any]) -> None:
    for x, span in parts:
        reader._read_into(x, buffers[x.name], span)
