"""Finds memory, dtype and shape of arrays, and makes new arrays. Nothing is copied here."""

from __future__ import annotations

import sys
from functools import lru_cache

from . import _lmc
from ._arguments import check_name
from ._lmc import printable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from collections.abc import Mapping
    from typing import Any

    from ._types import Framework

#: By the name of the dtype ("BF16"): bits of one element; the number in files and in the C library.
BITS: dict[str, int] = {name: x[0] for name, x in _lmc.dtypes().items()}
NUMBERS: dict[str, int] = {name: x[1] for name, x in _lmc.dtypes().items()}

#: Names of dtypes in numpy, ml_dtypes, PyTorch and JAX, and the names in LMC.
_NAMES = {
    "bool": "BOOL", "float4_e2m1fn_x2": "F4", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16",
    "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "complex64": "C64", "float64": "F64", "complex128": "C128", "int64": "I64", "uint64": "U64",
}  # fmt: skip
_THEIR_NAMES = {ours: theirs for theirs, ours in _NAMES.items()}
#: Format letters of buffers (PEP 3118). The size of an item tells the bits of an integer.
_LETTERS = {"?": "BOOL", "e": "F16", "f": "F32", "d": "F64", **dict.fromkeys("bhilqn", "I"), **dict.fromkeys("BHILQN", "U")}

#: numpy and PyTorch store one such element in a byte, LMC two or four.
_UNPACKED = {"int4": "I4", "uint4": "U4", "int2": "I2", "uint2": "U2"}

SWAPPED = sys.byteorder != "little"


def order(dtype: str) -> int:
    """The sort key of safetensors, which puts the widest dtypes first. It knows no integers of less than a byte."""
    return -NUMBERS[dtype] if BITS[dtype] >= 8 else -min(NUMBERS[dtype], NUMBERS["F6_E3M2"])


def dtype_name(dtype: Any) -> str:
    """LMC's name of a dtype, which may be "BF16", "bfloat16", a dtype or scalar type of numpy, ml_dtypes, torch."""
    try:
        hash(dtype)
    except TypeError:
        return _find_name(dtype)
    return _kept_name(dtype)


def _find_name(dtype: Any) -> str:
    if isinstance(dtype, str):
        text = dtype
    else:
        text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    text = str(text).removeprefix("torch.")
    name = text if text in BITS else _NAMES.get(text) or text.upper()
    if text in _UNPACKED:
        packed, n = _UNPACKED[text], 8 // BITS[_UNPACKED[text]]
        raise TypeError(
            f"an array of {text} has a byte for each element, and LMC's {packed} has {n} in one: view it as {text.rstrip('42')}8,"
            f" or pack it to bytes, and give those with dtype={packed!r}"
        )
    if name not in BITS:
        raise TypeError(
            f"LMC has no dtype {text!r}. View the array as one of {', '.join(BITS)}"
            " (what is coded are its bytes), or give the dtype."
        )
    return name


_kept_name = lru_cache(1000)(_find_name)  # numpy takes some microseconds to make the name of a dtype


def count_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    n = 1
    for i in shape:
        n *= i
    return n * BITS[dtype] // 8


class Array:
    """An array's memory as a buffer of bytes, its dtype ("": bytes of unknown kind) and its shape."""

    __slots__ = ("buffer", "dtype", "shape", "nbytes")

    def __init__(self, buffer: Any, dtype: str, shape: tuple[int, ...], nbytes: int):
        self.buffer, self.dtype, self.shape, self.nbytes = buffer, dtype, shape, nbytes


def _refuse(what: str) -> ValueError:
    return ValueError(f"the array is not contiguous: call {what} first (LMC does not copy inputs)")


def describe_torch(t: Any, device: str = "cpu") -> Array:
    torch = sys.modules["torch"]
    if t.layout != torch.strided:
        raise ValueError("a sparse tensor: call .to_dense() first")
    if t.is_meta:
        raise ValueError("the tensor is on meta: it has a shape, but no data")
    if not (t.is_cpu and device == "cpu") and str(t.device) != device:
        raise ValueError(f"the tensor is on {t.device}: call {'.cpu()' if device == 'cpu' else f'.to({device!r})'} first")
    if t.is_conj() or t.is_neg():
        raise ValueError("a lazy tensor: call .resolve_conj().resolve_neg() first")
    if not t.is_contiguous():
        raise _refuse(".contiguous()")
    dtype, shape = dtype_name(t.dtype), tuple(t.shape)
    if dtype == "F4" and shape:  # an element of torch has two of them
        shape = (*shape[:-1], 2 * shape[-1])
    nbytes = t.numel() * t.element_size()
    address = t.data_ptr() if nbytes else 0
    if nbytes and not address:
        raise ValueError("the tensor has no memory: it is a meta, fake or distributed tensor")
    # the storage owns the memory: the tensor may get another one by .data
    return Array(_lmc.Memory(address, nbytes, False, t.untyped_storage() if nbytes else t), dtype, shape, nbytes)


def _of_numpy(a: Any) -> Array:
    numpy = sys.modules["numpy"]
    if not isinstance(a, numpy.ndarray):
        a = numpy.asarray(a)
    if not a.flags.c_contiguous:
        raise _refuse("numpy.ascontiguousarray()")
    if a.dtype.byteorder == ">" or (SWAPPED and a.dtype.byteorder == "="):
        raise ValueError("a big-endian array: LMC codes little-endian ones")
    if a.dtype.hasobject:
        raise TypeError("an array of Python objects: give numbers, or their bytes")
    if "numpy.ma" in sys.modules and isinstance(a, numpy.ma.MaskedArray):
        raise TypeError("a masked array, whose mask would be lost: give its .data, and its .mask by another name")
    return Array(a.reshape(-1).view(numpy.uint8), dtype_name(a.dtype), a.shape, a.nbytes)


def _of_dlpack(a: Any) -> Array:
    device = a.__dlpack_device__()[0] if hasattr(a, "__dlpack_device__") else 1
    if int(device) not in (1, 3, 11):
        raise ValueError("the array is on a device: copy it to the CPU first")
    memory, dtype, shape = _lmc.from_dlpack(a.__dlpack__())
    return Array(memory, dtype, shape, count_bytes(dtype, shape))


def _of_buffer(a: Any) -> Array:
    try:
        view = memoryview(a)
    except TypeError:
        raise TypeError(f"neither an array nor a buffer: {type(a).__name__}") from None
    if not view.c_contiguous:
        raise _refuse("a copy")
    dtype = ""
    if not isinstance(a, (bytes, bytearray)) and view.format and view.format not in ("B", "c", "<B"):
        dtype = _LETTERS.get(view.format.lstrip("@=<|"), "")
        dtype += str(8 * view.itemsize) if dtype in ("I", "U") else ""
        if dtype not in BITS:
            raise TypeError(f"a buffer of format {view.format!r}: give its dtype, and its bytes")
    shape, nbytes = view.shape or (), view.nbytes
    if view.ndim != 1 or view.format != "B":
        view = view.cast("B") if nbytes else memoryview(b"")
    return Array(view, dtype, tuple(shape), nbytes)


def describe(a: Any, dtype: Any = None) -> Array:
    """Memory, dtype and shape of an array (numpy, torch, ml_dtypes, DLPack) or buffer, without a copy.

    dtype: of its elements, if the object has no dtype (bytes) or another one of the same width.
    """
    if isinstance(a, Array):
        return a
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(a, torch.Tensor):
        x = describe_torch(a)
    elif numpy is not None and isinstance(a, (numpy.ndarray, numpy.generic)):
        x = _of_numpy(a)
    elif hasattr(a, "__dlpack__"):
        x = _of_dlpack(a)
    else:
        x = _of_buffer(a)
    if dtype is None:
        return x
    name = dtype_name(dtype)
    if x.dtype and BITS[name] == BITS[x.dtype]:
        return Array(x.buffer, name, x.shape, x.nbytes)
    if x.dtype not in ("", "U8", "I8") or 8 * x.nbytes % BITS[name]:
        raise ValueError(f"{x.nbytes} bytes of {x.dtype or 'raw bytes'} cannot be elements of {name}")
    return Array(x.buffer, name, (8 * x.nbytes // BITS[name],), x.nbytes)


def describe_all(
    arrays: Mapping[str, Any], what: str, named: str = "a name", dtype: Any = None, describe: Any = describe
) -> dict[str, Array]:
    """Describes arrays by name. what, named: words for an array and its name, in messages. describe: called for each."""
    found = {}
    if not hasattr(arrays, "items"):
        raise TypeError(f"{what}s by name are needed, not {type(arrays).__name__}")
    for name, array in arrays.items():
        check_name(name, named)
        try:
            found[name] = describe(array, dtype)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what} {name!r}: {printable(error)}") from None
    return found


def describe_out(out: Any, dtype: str, nbytes: int, shape: tuple[int, ...] | None = None) -> Any:
    """The writable memory of `out`, which must have nbytes bytes, and be of that dtype or bytes. shape: must be that of
    `out` if it has this dtype and more than one dimension."""
    x = describe(out)
    if x.nbytes != nbytes:
        raise ValueError(f"out has {x.nbytes} bytes, and the result {nbytes}")
    if shape is not None and x.dtype == dtype and len(x.shape) != 1 and x.shape != tuple(shape):
        raise ValueError(f"out is of shape {list(x.shape)}, and the result of {list(shape)}")
    if dtype and x.dtype not in ("", "U8", "I8", dtype):
        raise TypeError(f"out is of {x.dtype}, and the result of {dtype}")
    numpy = sys.modules.get("numpy")
    is_array = numpy is not None and isinstance(out, numpy.ndarray)
    if (is_array and not out.flags.writeable) or (isinstance(x.buffer, memoryview) and x.buffer.readonly):
        raise ValueError("out is read-only")
    return x.buffer


FRAMEWORKS: dict[str, Framework] = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy", "bytes": "bytes"}


def framework_name(framework: str) -> Framework:
    if framework not in FRAMEWORKS:
        raise ValueError(f"framework {framework!r} is none of {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[framework]


def choose_framework(dtype: str) -> Framework:
    """The framework if the caller chose none: numpy, if it has the dtype, by itself or with ml_dtypes; else PyTorch, if
    it is installed; else numpy, whose error says what to install."""
    try:
        numpy_dtype(dtype)
    except ImportError:
        from importlib.util import find_spec

        if sys.modules.get("torch") is not None or find_spec("torch") is not None:
            return "torch"
    except TypeError:
        pass
    return "numpy"


def numpy_dtype(dtype: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "results are numpy arrays, or of PyTorch, unless you ask for framework='bytes': pip install numpy"
        ) from None
    their = _THEIR_NAMES.get(dtype)
    if their is None or dtype == "F4":
        raise TypeError(f"numpy has no dtype for {printable(dtype)}: ask for framework='bytes'")
    if hasattr(numpy, their):
        return numpy.dtype(getattr(numpy, their))
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"numpy has {dtype} by the package ml_dtypes: pip install ml_dtypes, or ask for framework='torch' or"
            " framework='bytes'"
        ) from None
    return numpy.dtype(getattr(ml_dtypes, their))


def torch_dtype(dtype: str) -> Any:
    import torch

    found = getattr(torch, _THEIR_NAMES.get(dtype, ""), None)
    if found is None:
        raise TypeError(f"this torch has no dtype for {printable(dtype)}: ask for framework='bytes'")
    return found


def make(framework: str, dtype: str, shape: tuple[int, ...], device: Any = None) -> tuple[Any, Any]:
    """A new array, and its memory. dtype "": bytes, for any framework. device: where to_device() will copy it."""
    if framework == "bytes" or not dtype:
        data = _lmc.new_bytes(count_bytes(dtype or "U8", shape))
        return data, data
    if framework == "numpy":
        found = numpy_dtype(dtype)
        import numpy

        array = numpy.empty(shape, found)
        return array, array.reshape(-1).view(numpy.uint8)
    import torch

    pin = _is_pinned(device)
    tensor = new_torch(dtype, shape, pin_memory=pin)
    nbytes = tensor.numel() * tensor.element_size()
    memory = _lmc.Memory(tensor.data_ptr() if nbytes else 0, nbytes, False, tensor)
    if not pin:
        _lmc.prepare(memory)
    return tensor, memory


def _is_pinned(device: Any) -> bool:
    """Whether memory that to_device() will copy to that device is pinned."""
    import torch

    return device is not None and torch.device(device).type == "cuda" and torch.cuda.is_available()


def new_memory(framework: str, size: int, device: Any = None) -> tuple[Any, Any]:
    """Memory for several arrays of one framework (for view()), and the same as a buffer."""
    if framework == "torch" and _is_pinned(device):
        import torch

        pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)  # the allocator of pinned memory knows this by its own address
        return pinned, _lmc.Memory(pinned.data_ptr(), size, False, pinned)
    memory = _lmc.new_memory(size)
    return memory, memory


def view(framework: str, memory: Any, dtype: str, shape: tuple[int, ...], at: int) -> Any:
    """The array of which byte `at` of the memory is the first. It has a storage of its own, which keeps the memory alive."""
    size = count_bytes(dtype, shape)
    if framework == "numpy":
        import numpy

        found = numpy_dtype(dtype)
        return numpy.frombuffer(memory, found, size // found.itemsize, at).reshape(shape)
    import torch

    their = torch_dtype(dtype)
    if dtype == "F4" and shape:
        shape = (*shape[:-1], shape[-1] // 2)
    if isinstance(memory, torch.Tensor):
        return memory[at : at + size].view(their).view(shape)
    return torch.frombuffer(memory, dtype=their, count=size // their.itemsize, offset=at).view(shape)


def new_torch(dtype: str, shape: tuple[int, ...], **where: Any) -> Any:
    import torch

    if dtype == "F4" and shape:
        shape = (*shape[:-1], shape[-1] // 2)
    return torch.empty(shape, dtype=torch_dtype(dtype), **where)


def to_device(array: Any, device: Any) -> Any:
    """From pinned memory the copy runs while the next tensor is decoded."""
    if device is None or str(device) == "cpu":
        return array
    return array.to(device, non_blocking=array.is_pinned())


def repeat(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """A view that repeats these elements, like expand() of PyTorch: it takes no more memory."""
    if hasattr(flat, "as_strided"):
        return flat.as_strided(shape, strides)
    from numpy.lib.stride_tricks import as_strided

    return as_strided(flat, shape, [s * flat.itemsize for s in strides], writeable=False)  # a write would change several elements
