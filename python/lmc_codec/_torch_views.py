"""The tensors of files that torch.save() has written, as PyTorch has them: shapes and strides over parts of storages.

The index of an LMC file has their bytes in the order of memory, and each of them once. What is transposed, tied to
another, or a part of one stands in the file's pickle, which is read here as data: nothing of it is run or imported.
"""

from __future__ import annotations

import io
import pickletools
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

    Read = Callable[[int, int], Any]  #: (offset, size) -> bytes of a file
    Rows = dict[str, tuple[str, tuple[int, ...]]]  #: dtype and shape of what the index lists, by name
    Known = dict[bytes, list[tuple[str, Any]]]  #: names and arguments of the tensors in a pickle

MAGIC = b"PK\x03\x04"
MAX_PICKLE = 64 << 20
MAX_DEPTH = 200
MAX_PATH = 4096
MAX_NAMES = 64 << 20
MAX_WRAPPERS = 16
MAX_RANK = 32

_DTYPES = {
    "FloatStorage": "F32",
    "BFloat16Storage": "BF16",
    "HalfStorage": "F16",
    "LongStorage": "I64",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "IntStorage": "I32",
    "DoubleStorage": "F64",
    "CharStorage": "I8",
    "ShortStorage": "I16",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "complex128": "C128",
}
_WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U64": 8, "F64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "C64": 8, "C128": 16}
_MAKERS = {f"torch._utils._rebuild_{x}" for x in ("tensor", "tensor_v2", "tensor_v3")}
_WRAPPERS = {f"torch._utils._rebuild_{x}" for x in ("parameter", "parameter_with_state")}


def width_of(dtype: str) -> int:
    return _WIDTHS.get(dtype, 1)


# Each for a file of so many bytes, as it lies on the disk: compressed, a small one can repeat itself for long.


def max_pickle(weight: int) -> int:
    return min(MAX_PICKLE, (8 << 20) + weight)


def max_opcodes(weight: int) -> int:
    return (1 << 20) + weight // 2


def max_names(weight: int) -> int:
    return min(MAX_NAMES, (16 << 20) + 4 * weight)


class View:
    """A tensor: elements of `width` bytes from `offset` (in its file) on; strides in elements."""

    __slots__ = ("name", "dtype", "width", "shape", "strides", "offset", "span", "flags")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], flags: Collection[str] = ()):
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides
        self.width = width_of(dtype)
        self.offset = 0
        #: Bytes from the first to the last of its elements.
        self.span = 0 if 0 in shape else self.width * (1 + sum((n - 1) * s for n, s in zip(shape, strides)))
        #: "conj", "neg": PyTorch has conjugated or negated it by a flag: its bytes are not its elements.
        self.flags = flags

    @property
    def is_contiguous(self) -> bool:
        n = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != n:
                return 0 in self.shape
            n *= extent
        return True


# -- the pickle --


class _Global(str):
    __slots__ = ()


class _Storage:
    def __init__(self, arguments: Any):
        self.arguments = arguments


class Object:
    """A dict, or what a call has made: keys and values, a state."""

    __slots__ = ("function", "arguments", "pairs", "state")

    def __init__(self, function: Any = None, arguments: Any = None):
        self.function, self.arguments = function, arguments
        self.pairs: list[tuple[Any, Any]] = []
        self.state: Any = None


_MARK = object()
_OTHER = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = {"INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_PUTS, _GETS = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}


class Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def call(self, function: Any, arguments: Any) -> None:
        self.stack.append(Object(function, arguments))

    def set_items(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], Object):
            self.stack[-1].pairs += zip(items[::2], items[1::2])

    def extend(self, items: list[Any]) -> None:
        top = self.stack[-1]
        if isinstance(top, list):
            top.extend(items)
        elif isinstance(top, Object):
            top.pairs += ((_OTHER, x) for x in items)

    def run(self, data: bytes, weight: int) -> Any:
        arg: Any
        left = max_opcodes(weight)
        for op, arg, _ in pickletools.genops(data):
            left -= 1
            if left < 0:
                raise ValueError("it says too much for the size of its file")
            name = op.name
            if name == "STOP":
                return self.stack.pop()
            if name in _PUTS:
                self.memo[int(arg)] = self.stack[-1]
            elif name in _GETS:
                self.stack.append(self.memo[int(arg)])
            elif name in _NUMBERS or name in _TEXTS:
                self.stack.append(arg)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _BYTES:
                self.stack.append(_OTHER)
            else:
                self.step(name, arg)
        raise ValueError("it has no end")

    def step(self, name: str, arg: Any) -> None:
        s = self.stack
        if name == "MARK":
            s.append(_MARK)
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = s[-1]
        elif name == "EMPTY_TUPLE":
            s.append(())
        elif name == "TUPLE":
            s.append(tuple(self.pop_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(name[-1])
            s[-n:] = [tuple(s[-n:])]
        elif name == "EMPTY_LIST":
            s.append([])
        elif name == "LIST":
            s.append(self.pop_mark())
        elif name in ("EMPTY_DICT", "EMPTY_SET"):
            s.append(Object())
        elif name == "DICT":
            items = self.pop_mark()
            s.append(Object())
            self.set_items(items)
        elif name == "FROZENSET":
            items = self.pop_mark()
            s.append(Object())
            self.extend(items)
        elif name == "SETITEM":
            value, key = s.pop(), s.pop()
            self.set_items([key, value])
        elif name == "SETITEMS":
            self.set_items(self.pop_mark())
        elif name == "APPEND":
            value = s.pop()
            self.extend([value])
        elif name in ("APPENDS", "ADDITEMS"):
            self.extend(self.pop_mark())
        elif name == "GLOBAL":
            s.append(_Global(arg.replace(" ", ".", 1)))
        elif name == "STACK_GLOBAL":
            last, module = s.pop(), s.pop()
            s.append(_Global(f"{module}.{last}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = s.pop()
            self.call(s.pop(), arguments)
        elif name == "NEWOBJ_EX":
            s.pop()
            arguments = s.pop()
            self.call(s.pop(), arguments)
        elif name == "BUILD":
            state = s.pop()
            if isinstance(s[-1], Object):
                s[-1].state = state
        elif name == "BINPERSID":
            s.append(_Storage(s.pop()))
        elif name == "POP":
            s.pop()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the opcode {name} is not known")


# -- its tensors --


def _join(path: str, key: Any, number: int) -> str:
    if isinstance(key, int):
        text = str(int(key))
    else:
        text = key if isinstance(key, str) else str(number)
    joined = f"{path}.{text}" if path else text
    return joined if len(joined.encode(errors="surrogatepass")) <= MAX_PATH else path


def _parts(path: str, x: Any) -> Iterator[tuple[str, Any]]:
    """Items, then the state, then what it was made from."""
    if isinstance(x, Object):
        for i, (key, value) in enumerate(x.pairs):
            if isinstance(value, (Object, list, tuple)):
                yield _join(path, key, i), value
        yield path, x.state
        yield path, x.arguments
    else:
        for i, value in enumerate(x):
            if isinstance(value, (Object, list, tuple)):
                yield _join(path, None, i), value


def _find_arguments(x: Any) -> Any:
    """What makes a tensor, or None."""
    if not isinstance(x, Object) or not isinstance(x.function, _Global):
        return None
    function, arguments = x.function, x.arguments
    if function == "torch._tensor._rebuild_from_type_v2":
        function, arguments = arguments[0], arguments[2]
    return arguments if function in _MAKERS else None


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Names and (storage, offset, shape, strides, ...) of all tensors, in their order; each object is looked at once."""
    seen: set[int] = set()
    frames = [iter([("", root)])]
    while frames:
        path, x = next(frames[-1], ("", _MARK))
        if x is _MARK:
            frames.pop()
            continue
        for _ in range(MAX_WRAPPERS):
            if not isinstance(x, Object) or not isinstance(x.function, _Global) or x.function not in _WRAPPERS:
                break
            x = x.arguments[0]
        arguments = _find_arguments(x)
        if arguments is not None:
            yield path, arguments
        elif isinstance(x, (Object, list, tuple)) and id(x) not in seen:
            seen.add(id(x))
            if len(frames) > MAX_DEPTH:
                raise ValueError("its objects are nested too deep")
            frames.append(_parts(path, x))


def _count(x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or not 0 <= x < 1 << 63:
        raise ValueError("a tensor does not lie within its storage")
    return x


def _find_dtype(x: Any) -> str | None:
    return _DTYPES.get(x.removeprefix("torch.")) if isinstance(x, _Global) else None


def _make_view(name: str, arguments: Any) -> tuple[View, str, int] | None:
    """The view, the key of its storage, its first byte there; None if nobody knows its dtype."""
    storage: Any = arguments[0].arguments
    offset, shape, strides = arguments[1:4]
    dtype = _find_dtype(storage[1]) or (_find_dtype(arguments[6]) if len(arguments) > 6 else None)
    if storage[0] != "storage" or not isinstance(storage[2], str):
        raise ValueError("a storage is not described as known")
    if dtype is None:
        return None
    if len(shape) != len(strides) or len(shape) > MAX_RANK:
        raise ValueError("a tensor does not lie within its storage")
    flags = {key for x in arguments[6:8] if isinstance(x, Object) for key, value in x.pairs if key in ("conj", "neg") and value}
    view = View(name, dtype, tuple(map(_count, shape)), tuple(map(_count, strides)), flags)
    return view, storage[2], _count(offset) * view.width


# -- the archive --


class _File(io.RawIOBase):
    """A file of a snapshot, as zipfile reads it."""

    def __init__(self, read: Read, size: int):
        self._read, self.size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        if self._at < 0:
            raise ValueError("before the beginning of the file")
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self.size - self._at, 0)
        size = left if size is None or size < 0 else min(size, left)
        data = bytes(self._read(self._at, size)) if size else b""
        self._at += size
        return data


def find_views(read: Read, size: int, rows: Rows, weight: int | None = None) -> list[View] | None:
    """What a file of torch.save() has beside the tensors that the index lists and instead of them. None: it has others
    before its last archive, as a .distcp file has. weight: bytes on the disk that it was read from; None: its own.
    Raises ValueError if the file is not understood."""
    if bytes(read(0, 4)) != MAGIC:
        return []
    start, views = read_archive(read, 0, size, rows, {}, weight) or (0, [])
    return views if start == 0 else None


def is_listed(view: View, rows: Rows) -> bool:
    """As the index has it."""
    return view.is_contiguous and not view.flags and rows.get(view.name) == (view.dtype, view.shape)


def read_archive(
    read: Read, first: int, last: int, rows: Rows, known: Known, weight: int | None = None
) -> tuple[int, list[View]] | None:
    """Where the archive begins that ends at `last`, and not before `first`; its tensors but those of `rows`, with their
    places in the file. None: torch.save() has not written it, or on a machine whose numbers are big-endian. known: what
    was found in pickles before."""
    try:
        return _read_archive(_File(lambda at, n: read(first + at, n), last - first), first, rows, known, last - first if weight is None else weight)
    except (zipfile.BadZipFile, NotImplementedError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _read_archive(file: _File, first: int, rows: Rows, known: Known, weight: int) -> tuple[int, list[View]] | None:
    archive = zipfile.ZipFile(file)
    members = {x.filename: x for x in archive.infolist()}
    pickles = [x for x in archive.infolist() if x.filename.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1:
        return None
    begins = [x.header_offset for x in archive.infolist()]
    if min(begins) < 0 or max(begins) >= archive.start_dir:  # so directories of archives that follow each other do not overlap
        raise ValueError("its directory is not behind what it lists")
    start = first + min(begins)
    prefix = pickles[0].filename[: -len("data.pkl")]
    order = members.get(f"{prefix}byteorder")
    if order is not None and _read_member(file, order) != b"little":
        return None  # and all of it is listed as bytes
    data = _read_member(file, pickles[0], max_pickle(weight))
    if data not in known:
        known[data] = list(_find_tensors(Machine().run(data, weight), weight))
    storages: dict[str, tuple[int, int]] = {}
    views = []
    meeting = _find_meeting(known[data])
    for name, arguments in known[data]:
        made = _make_view(name, arguments)
        if made is None:
            continue
        view, key, offset = made
        if is_listed(view, rows) and name not in meeting:
            continue
        if key not in storages:
            storages[key] = _find_storage(file, members[f"{prefix}data/{key}"])
        begin, size = storages[key]
        if offset + view.span > size:
            raise ValueError("a tensor does not lie within its storage")
        view.offset = first + begin + offset
        views.append(view)
    return start, views


def _find_meeting(tensors: list[tuple[str, Any]]) -> set[str]:
    """Names that two tensors have: {"a": {"b.c": x}, "a.b": {"c": y}}."""
    seen: set[str] = set()
    twice: set[str] = set()
    for name, _ in tensors:
        (twice if name in seen else seen).add(name)
    places: dict[str, Any] = {}
    meeting = set()
    for made in (_make_view(name, arguments) for name, arguments in tensors if name in twice):
        if made is not None:
            view, *place = made
            place += view.dtype, view.shape, view.strides, sorted(view.flags)
            if places.setdefault(view.name, place) != place:
                meeting.add(view.name)
    return meeting


def _find_tensors(root: Any, weight: int) -> Iterator[tuple[str, Any]]:
    """One that stands under a name several times stands there once."""
    n_bytes = 0
    known: set[tuple[str, int]] = set()
    for name, arguments in _walk(root):
        if (name, id(arguments)) in known:  # the pickle's objects stay: no other gets the number
            continue
        known.add((name, id(arguments)))
        n_bytes += len(name) + 100
        if n_bytes > max_names(weight):
            raise ValueError("it has too many tensors for the size of its file, or their names are too long")
        yield name, arguments


def _read_member(file: _File, member: zipfile.ZipInfo, most: int = MAX_PICKLE) -> bytes:
    """As PyTorch writes it: zipfile would go on to what is compressed or encrypted. The LMC file has checksums; CRC-32 is
    none in files written after torch.serialization.set_crc32_options(False)."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > most:
        raise ValueError(f"its {member.filename.rpartition('/')[2]} is compressed or too large")
    begin, size = _find_storage(file, member)
    file.seek(begin)
    return file.read(size)


def _find_storage(file: _File, member: zipfile.ZipInfo) -> tuple[int, int]:
    """Its first byte, and its size."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError("a tensor does not lie within its storage")
    file.seek(member.header_offset)
    local = file.read(30)
    begin = member.header_offset + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    if local[:4] != MAGIC or begin + member.file_size > file.size:
        raise ValueError("a storage is not where the archive says")
    return begin, member.file_size


# -- their elements --

_FLIP = bytes(i ^ 0x80 for i in range(256))


def resolve(buffer: Any, dtype: str, flags: Collection[str]) -> None:
    """Conjugates and negates, as the flags say: by the signs, of which each is the first bit of the last byte."""
    data = memoryview(buffer).cast("B")
    width = _WIDTHS[dtype]
    ends = [width - 1] if "neg" in flags else []
    if dtype in ("C64", "C128"):  # the real part, and the other
        ends = [width // 2 - 1] * ("neg" in flags) + [width - 1] * (("neg" in flags) != ("conj" in flags))
    for end in ends:
        data[end::width] = data[end::width].tobytes().translate(_FLIP)


def repeat(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A view of these elements, as PyTorch has it (expand): it takes no more memory."""
    if hasattr(flat, "as_strided"):
        return flat.as_strided(shape, strides)
    from numpy.lib.stride_tricks import as_strided

    return as_strided(flat, shape, [s * flat.itemsize for s in strides], writeable=False)  # which would change several at once



def gather(span: Any, out: Any, width: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Copies the elements of a view, in the order of its shape. span: its bytes, from the first to the last."""
    if 0 in shape:
        return
    try:
        import numpy
    except ImportError:
        _gather(memoryview(span), memoryview(out).cast("B"), width, shape, strides)
        return
    kind = numpy.dtype(f"V{width}")
    source = numpy.lib.stride_tricks.as_strided(
        numpy.frombuffer(span, kind), shape, tuple(width * s for s in strides), writeable=False
    )
    numpy.frombuffer(out, kind).reshape(shape)[...] = source


def _gather(source: memoryview, out: memoryview, width: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if not shape:
        out[:width] = source[:width]
        return
    size = len(out) // shape[0]
    for i in range(shape[0]):
        _gather(source[i * strides[0] * width :], out[i * size : (i + 1) * size], width, shape[1:], strides[1:])
