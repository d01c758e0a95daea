"""Files of torch.save() within a snapshot. A snapshot has their tensors in the order of memory, each byte once; the pickle in
the file says how PyTorch has them: shapes, strides, several names for the same bytes. It is read as data, and runs nothing."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile

from . import _arrays
from ._errors import LMCError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._reader import FileInfo, TensorInfo

MAX_PICKLE = 256 << 20


class View:
    """A tensor as PyTorch has it. offset: bytes, in the file; strides: in elements; n: from its first to its last element."""

    __slots__ = ("name", "member", "offset", "shape", "strides", "n", "is_conjugated", "width")

    def __init__(self, name: str, member: str, tensor: _Tensor):
        self.name, self.member = name, member
        self.offset, self.shape, self.strides = tensor.offset, tensor.shape, tensor.strides
        self.is_conjugated, self.width = tensor.is_conjugated, 0
        self.n = 0 if 0 in self.shape else 1 + sum((d - 1) * s for d, s in zip(self.shape, self.strides))

    def is_plain(self) -> bool:
        n = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != n:
                return 0 in self.shape
            n *= extent
        return True


class _Tensor:
    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any):
        whole = (offset, *shape, *strides)
        if not isinstance(storage, _Storage) or len(shape) != len(strides) or not all(type(x) is int and x >= 0 for x in whole):
            raise ValueError("no tensor")
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)
        self.is_conjugated = any(isinstance(x, dict) and (x.get("conj") or x.get("neg")) for x in rest[2:])


class _Storage:
    def __init__(self, key: Any, n: Any):
        if not isinstance(key, str) or type(n) is not int or n < 0:
            raise ValueError("no storage")
        self.key, self.n = key, n


class _Unknown:
    """Whatever else: it takes everything, and keeps what it was set to."""

    state: Any = None

    def __init__(self, *arguments: Any, **named: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def _take(self, *unused: Any) -> None:
        pass

    append = extend = add = __setitem__ = _take


_MAKERS = {f"torch._utils._rebuild_tensor{x}" for x in ("", "_v2", "_v3")}
_WRAPPERS = {f"torch._utils._rebuild_parameter{x}" for x in ("", "_with_state")}


class _Unpickler(pickle._Unpickler):  # in Python: in that of C, places of a memo take memory whether they are used or not
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in _MAKERS:
            return lambda *arguments: _Tensor(*arguments)
        if full in _WRAPPERS:
            return lambda tensor, *unused: tensor
        if full == "torch._tensor._rebuild_from_type_v2":
            return lambda make, kind, arguments, state: make(*arguments)
        if full == "collections.OrderedDict":
            return lambda *items: collections.OrderedDict(*items)
        return type("Unknown", (_Unknown,), {})

    def persistent_load(self, pid: Any) -> Any:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise ValueError("no storage")
        return _Storage(pid[2], pid[4])


def _walk(root: Any) -> Iterator[tuple[str, _Tensor]]:
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, x = waiting.pop()
        if isinstance(x, _Tensor):
            yield path, x
            continue
        items: Any = ()
        if isinstance(x, _Unknown):
            x = x.state
        if id(x) in seen:
            continue
        if isinstance(x, dict):
            items = x.items()
        elif isinstance(x, (list, tuple)):
            items = enumerate(x)
        seen.add(id(x))
        dot = "." if path else ""
        for i, (key, value) in reversed(list(enumerate(items))):
            text = str(int(key)) if isinstance(key, int) else key if isinstance(key, str) else str(i)
            waiting.append((f"{path}{dot}{text}", value))


class _Part(io.RawIOBase):
    """The first `size` bytes of a file of a snapshot."""

    def __init__(self, read: Callable[[int, int], Any], size: int):
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, out: Any, /) -> int:
        n = max(0, min(len(out), self._size - self._at))
        if n:
            memoryview(out)[:n] = self._read(self._at, n)
        self._at += n
        return n


def _archive(file: Any) -> tuple[int, list[View]]:
    """Of the archive at its end: where it begins, and its tensors."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        name = next(x.filename for x in members if x.filename == "data.pkl" or x.filename.endswith("/data.pkl"))
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > MAX_PICKLE:
            raise ValueError("no pickle of PyTorch")
        root = _Unpickler(io.BytesIO(archive.read(name)), encoding="utf-8").load()
        prefix, views, starts = name.removesuffix("data.pkl") + "data/", [], {}
        for path, tensor in _walk(root):
            view = View(path, prefix + tensor.storage.key, tensor)
            member = archive.getinfo(view.member)
            if view.member not in starts:
                file.seek(member.header_offset)
                head = file.read(30)
                starts[view.member] = (
                    member.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
                )
            view.width = member.file_size // tensor.storage.n if tensor.storage.n else 0
            if tensor.offset + view.n > tensor.storage.n or member.file_size != view.width * tensor.storage.n:
                raise ValueError("a tensor does not lie within its storage")
            view.offset = starts[view.member] + tensor.offset * view.width
            views.append(view)
        begin = min(x.header_offset for x in members)
        if begin >= archive.start_dir:  # so each byte is in the directory of one archive, and time in proportion
            raise ValueError("the archive has no beginning")
        return begin, views


def find_views(
    file: FileInfo, read: Callable[[int, int], Any]
) -> tuple[dict[tuple[int, int], View], list[tuple[View, TensorInfo]]]:
    """Of a file of a snapshot, of which read(offset, size) gives bytes: how tensors are in truth, by their place (offset,
    size), where that differs from what the snapshot says; and views under names that it does not have, with the tensor
    whose bytes they are. Both are empty if it is none of torch.save()."""
    tensors = [x for x in file.tensors if x.dtype in _arrays.BITS and not x.name.startswith("@")]
    if not tensors or max(x.offset + x.size for x in file.tensors) >= file.size or bytes(read(0, 4)) != b"PK\3\4":
        return {}, []
    views: list[View] = []
    try:
        end, n_archives = file.size, 0
        while end > 0:  # a .distcp file is a row of archives
            begin, found = _archive(io.BufferedReader(_Part(read, end), 1 << 16))
            views += found
            n_archives += 1
            end = begin if 0 < begin < end else 0
        return _match(file, views, n_archives == 1 and not file.path.endswith(".distcp"))
    except (LMCError, MemoryError):
        raise
    except Exception as error:
        raise UnsupportedError(
            f"{file.path or 'the file'}: it is of PyTorch, and how its tensors lie is not understood ({error}):"
            " `lmc cat` may, or restore the file and load it with torch"
        ) from None


def _match(
    file: FileInfo, views: list[View], has_names: bool
) -> tuple[dict[tuple[int, int], View], list[tuple[View, TensorInfo]]]:
    by_place: dict[tuple[int, int], list[View]] = {}
    for view in views:
        by_place.setdefault((view.offset, view.n * view.width), []).append(view)
    others: dict[tuple[int, int], View] = {}
    names = {x.name for x in file.tensors}
    for x in file.tensors:
        same = by_place.get((x.offset, x.size), [])
        best = next((v for v in same if v.name == x.name), same[0] if same else None)
        is_record = best is not None and best.name != x.name and x.name.endswith("@storage")
        if best is not None and not is_record and x.size and (best.is_conjugated or not best.is_plain()):
            others[x.offset, x.size] = best
    more = []
    if has_names:  # else they are named after what another file says
        holders = sorted((x for x in file.tensors if x.size and x.dtype in _arrays.BITS), key=lambda x: x.offset)
        for view in views:
            if view.name in names:
                continue
            holder = _find_holder(holders, view)
            if holder is not None:
                names.add(view.name)
                more.append((view, holder))
    return others, more


def _find_holder(holders: list[TensorInfo], view: View) -> TensorInfo | None:
    from bisect import bisect_right

    i = bisect_right(holders, view.offset, key=lambda x: x.offset) - 1
    if i < 0 or holders[i].offset + holders[i].size < view.offset + view.n * view.width:
        return None
    return holders[i] if 8 * view.width == _arrays.BITS[holders[i].dtype] else None
