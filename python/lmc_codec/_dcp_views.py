"""The tensors of .distcp files, as PyTorch has them. torch.distributed.checkpoint writes a row of archives of torch.save()
into each, one for each item; the file .metadata beside it says whose they are."""

from __future__ import annotations

from ._torch_views import Machine, Object, View, is_listed, max_names, max_pickle, read_archive

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ._reader import TensorInfo
    from ._torch_views import Known, Read, Rows

MAX_NAME = 65535  # of a tensor of an LMC file
MAX_GAP = 1 << 20  # what lies between two tensors of a file is kept when it is read


class Item:
    """`size` bytes from `offset` on: a tensor, a part of one (from `position` in its `extents` on), another object."""

    __slots__ = ("name", "offset", "size", "position", "extents")

    def __init__(self, name: str, offset: int, size: int, position: tuple[int, ...], extents: tuple[int, ...]):
        self.name, self.offset, self.size, self.position, self.extents = name, offset, size, position, extents

    def name_view(self, view: View) -> str:
        """As the command has it: "w[0:512]" are its first rows; dimensions behind the last that is cut are left out."""
        if view.name:
            return f"{self.name}.{view.name}"
        parts = list(zip(self.position, view.shape, self.extents)) if len(self.extents) == len(view.shape) else []
        while parts and parts[-1][0] == 0 and parts[-1][1] == parts[-1][2]:
            parts.pop()
        return self.name + (f"[{','.join(f'{first}:{first + n}' for first, n, _ in parts)}]" if parts else "")


# -- .metadata --


def _member(x: Any, name: str) -> Any:
    """Of an object: of its state, which is a dict."""
    state = x.state if isinstance(x, Object) else None
    return next((value for key, value in state.pairs if key == name), None) if isinstance(state, Object) else None


def _tuple(x: Any) -> tuple[int, ...] | None:
    if isinstance(x, Object):  # torch.Size
        x = x.arguments[0]
    return x if isinstance(x, tuple) and all(isinstance(n, int) and 0 <= n < 1 << 63 for n in x) else None


def parse_metadata(data: bytes, weight: int | None = None) -> dict[str, list[Item]]:
    """The items of each file, in the order of their places. Raises ValueError; nothing of the pickle is run."""
    weight = len(data) if weight is None else weight
    if len(data) > max_pickle(weight):
        raise ValueError("its .metadata is too large")
    try:
        return _parse_metadata(Machine().run(data, weight))
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"its .metadata is not understood: {type(error).__name__}: {error}") from None


def _parse_metadata(root: Any) -> dict[str, list[Item]]:
    sizes = {name: _tuple(_member(x, "size")) or () for name, x in _member(root, "state_dict_metadata").pairs if isinstance(name, str)}
    files: dict[str, list[Item]] = {}
    for index, place in _member(root, "storage_data").pairs:
        name, file = _member(index, "fqn"), _member(place, "relative_path")
        where = _tuple((_member(place, "offset"), _member(place, "length")))
        if not isinstance(name, str) or not isinstance(file, str) or where is None:
            raise ValueError("its .metadata tells of items otherwise than is known")
        if len(name) > MAX_NAME:
            raise ValueError("its .metadata has a name that is too long")
        position = _tuple(_member(index, "offset"))
        extents = sizes.get(name, ()) if position is not None else ()
        files.setdefault(file, []).append(Item(name, where[0], where[1], position or (), extents))
    for items in files.values():
        items.sort(key=lambda item: (item.offset, item.size))
    return files


# -- items --


class _Gaps:
    """Reads a file. What lies between its tensors, the end of one archive and the beginning of the next, is read once for
    all that is asked of it."""

    def __init__(self, read: Read, size: int, tensors: Sequence[TensorInfo]):
        self._read, self._tensors, self._size = read, tensors, size
        self._kept = [(0, b""), (0, b"")]  # where an archive begins, and where it ends

    def __call__(self, offset: int, size: int) -> bytes:
        for first, data in self._kept:
            if first <= offset and offset + size <= first + len(data):
                return data[offset - first : offset - first + size]
        first, last = self._find(offset)
        if offset + size > last or last - first > MAX_GAP:
            return bytes(self._read(offset, size))
        self._kept = [self._kept[1], (first, bytes(self._read(first, last - first)))]
        return self(offset, size)

    def _find(self, offset: int) -> tuple[int, int]:
        from bisect import bisect_right

        i = bisect_right(self._tensors, offset, key=lambda x: x.offset)
        first = self._tensors[i - 1].offset + self._tensors[i - 1].size if i else 0
        return min(first, offset), self._tensors[i].offset if i < len(self._tensors) else self._size


def find_item_views(
    read: Read, size: int, tensors: Iterable[TensorInfo], items: Sequence[Item] | None, weight: int | None = None
) -> tuple[list[View], set[str]]:
    """What a .distcp file has beside the tensors that the index lists, and instead of them: and the names of those that
    are a view's bytes in the order of memory. items: those of .metadata; None: archives are found from the end on, and
    named by the tensors in them. Raises ValueError."""
    tensors = sorted(tensors, key=lambda x: x.offset)
    rows: Rows = {x.name: (x.dtype, x.shape) for x in tensors}
    gaps = _Gaps(read, size, tensors)
    views: list[View] = []
    replaced: set[str] = set()
    n_bytes = 0  # of names, which an item's name is in as often as it has parts
    for first, last, found, item in (
        _read_from_end(gaps, size, weight) if items is None else _read_items(gaps, size, items, tensors, weight)
    ):
        named = {x.name: x for x in _inside(tensors, first, last) if x.dtype != "BYTES"}
        if not named:
            continue  # the command has not understood it, or it has no tensors
        prefix = "" if item else _find_prefix(next(iter(named.values())), found)
        for view in found:
            view.name = item.name_view(view) if item else ".".join(filter(None, (prefix, view.name)))
            n_bytes += len(view.name) + 100
            if n_bytes > max_names(size if weight is None else weight):
                raise ValueError("its tensors are too many, or their names too long")
            if is_listed(view, rows):
                named.pop(view.name, None)
            else:
                views.append(view)
        strided = {(view.offset, view.span) for view in found if not view.is_contiguous}
        replaced.update(name for name, x in named.items() if (x.offset, x.size) in strided)
    return views, replaced


def _read_items(
    read: Read, size: int, items: Sequence[Item], tensors: Sequence[TensorInfo], weight: int | None
) -> Iterator[tuple[int, int, list[View], Item | None]]:
    known: Known = {}
    end = 0
    for item in items:
        first, end, before = item.offset, item.offset + item.size, end
        if first < before or end > size:
            raise ValueError("its .metadata tells of items that overlap or are missing")
        if any(x.dtype != "BYTES" for x in _inside(tensors, first, end)):
            found = read_archive(read, first, end, {}, known, weight)
            if found is None or found[0] != first:
                raise ValueError("its .metadata is not of this file")
            yield first, end, found[1], item


def _read_from_end(read: Read, size: int, weight: int | None = None) -> Iterator[tuple[int, int, list[View], Item | None]]:
    known: Known = {}
    while size:
        found = read_archive(read, 0, size, {}, known, weight)
        if found is None:
            raise ValueError("not all of its items are archives of torch.save(), and no .metadata tells which")
        yield found[0], size, found[1], None
        size = found[0]


def _find_prefix(tensor: TensorInfo, views: Sequence[View]) -> str:
    """The item's name: that of a tensor in it without what the archive calls it."""
    name = tensor.name.removesuffix("@storage")
    for view in views:
        if tensor.offset <= view.offset < tensor.offset + max(tensor.size, 1) and name.endswith(view.name):
            return name[: -len(view.name)].removesuffix(".") if view.name else name
    raise ValueError(f"tensor {tensor.name!r} is not what its archive tells of")


def _inside(tensors: Sequence[TensorInfo], first: int, last: int) -> Sequence[TensorInfo]:
    from bisect import bisect_left

    begin = bisect_left(tensors, first, key=lambda x: x.offset)
    return tensors[begin : bisect_left(tensors, last, lo=begin, key=lambda x: x.offset)]
