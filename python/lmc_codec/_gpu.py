"""Decodes tensors of PyTorch on a GPU, by lmc_cuda.h. Experimental."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import glob
from typing import Any

import torch

from . import _arrays, _lmc
from ._base import Base
from ._errors import DeviceError, UnsupportedError
from ._reader import Reader, TensorInfo


def _find_device(device: Any, what: str = "") -> torch.device:
    """what: the name of a tensor that must be on the device already, for the message."""
    found = torch.device("cuda" if device is None else device)
    if found.type != "cuda":
        if what:
            raise ValueError(f"decode='gpu' changes tensors on a GPU, and {what} is on {found}: move all there, or take decode='cpu'")
        raise ValueError(f"decode='gpu' makes tensors on a GPU: give device='cuda', not {str(found)!r}")
    if torch.version.cuda is None:
        raise DeviceError(f"PyTorch {torch.__version__} is built without CUDA: install one with CUDA, or take decode='cpu'")
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def _find_nvrtc() -> str | None:
    """NVRTC of PyTorch's version of CUDA, if pip has installed it; None: the system finds it."""
    try:
        import nvidia
    except ImportError:
        return None
    major = str(torch.version.cuda).partition(".")[0]
    names = (f"lib/libnvrtc.so.{major}*", f"bin/nvrtc64_{major}?_0.dll", f"bin/x86_64/nvrtc64_{major}?_0.dll")
    return max((path for at in nvidia.__path__ for name in names for path in glob(f"{at}/*/{name}")), default=None)


#: By process, device and staging; they stay open. A forked child must not use those of its parent.
_opened: dict[tuple[int, int, int], _lmc.Cuda] = {}


@contextmanager
def _use(device: torch.device, staging: int) -> Iterator[_lmc.Cuda]:
    key = os.getpid(), device.index or 0, staging
    cuda = _opened.get(key) or _opened.setdefault(key, _open(device, staging))
    try:
        yield cuda
    except DeviceError:  # it may not work any more
        _opened.pop(key, None)
        raise
    finally:
        cuda.trim()


def _open(device: torch.device, staging: int) -> _lmc.Cuda:
    if staging != 0 and not 8 << 20 <= staging <= 4 << 30:
        raise ValueError(f"staging is 0, or from {8 << 20} to {4 << 30} bytes, not {staging}")
    cache = os.environ.get("LMC_CUDA_CACHE")
    if cache is None:
        cache = os.path.join(os.path.expanduser("~"), ".cache", "lmc_codec")
        with suppress(OSError):  # then nothing is cached
            if os.path.isabs(cache):
                os.makedirs(cache, 0o700, exist_ok=True)  # a new home directory has no .cache
    return _lmc.Cuda(device.index or 0, cache, _find_nvrtc(), staging)


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def make_base(tensors: Mapping[str, Any], device: Any, staging: int, what: str = "") -> Base:
    """A Base of tensors on a GPU, which computes their fingerprints."""
    at = _find_device(device, what)
    found = _arrays.describe_all(
        tensors, "base: array", "base: the name of an array", describe=lambda t, _: _arrays.describe_torch(t, str(at))
    )
    base = Base.__new__(Base)
    with _use(at, staging) as cuda:
        base._set([(name, x.dtype, x.shape, x.buffer) for name, x in found.items()], 1, cuda, _stream(at))
    return base


def _read(cuda: _lmc.Cuda, device: torch.device, reader: Reader, infos: list[TensorInfo], to: list[int]) -> None:
    """Reads tensors to these addresses; 0: the tensor is only checked."""
    rows = [(x.file_number, x.offset, x.size, at) for x, at in zip(infos, to)]
    cuda.read(reader._object, rows, _stream(device))


def get_all(reader: Reader, infos: Iterable[TensorInfo], device: Any, most: int, staging: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors, made in groups of at most `most` bytes, or of one larger tensor. The CPU decodes files of
    torch.save(), because their tensors may be views of others."""
    at, left, archives = _find_device(device), list(infos), reader._find_views()
    with _use(at, staging) as cuda:
        while left:
            group: list[TensorInfo] = []
            room = most
            while left and left[0].file_number not in archives and (not group or left[0].size <= room):
                group.append(left.pop(0))
                room -= group[-1].size
            made = [_arrays.new_torch(x.dtype, x.shape, device=at) for x in group]
            _read(cuda, at, reader, group, [t.data_ptr() for t in made])
            for x in group:
                yield x.name, made.pop(0)
            while left and left[0].file_number in archives:
                x = left.pop(0)
                yield x.name, reader.get(x.name, file=x.file, device=at)


def apply(reader: Reader, infos: list[TensorInfo], tensors: Mapping[str, Any], base: Base, staging: int) -> None:
    """Changes tensors in place. First all are decoded once and checked, so a refusal changes nothing. Tensors that other
    tensors predict (twins) are made then, because the others change later. So are all, if several names share memory."""
    if reader._find_views():
        raise UnsupportedError(f"{reader.name}: it has files of torch.save(), whose tensors may be views: take decode='cpu'")
    known = {name: (dtype, shape) for name, dtype, shape, _ in base._items}
    for x in infos:
        if known.get(x.name) != (x.dtype, x.shape):
            what = f"{reader.name or 'the delta'}: {reader._what(x)}: none of the tensors has that name, dtype and shape"
            raise UnsupportedError(f"{what}, so it cannot be changed in place: load_file(..., base=tensors) makes a new one")
    at = _find_device(next((t.device for t in tensors.values()), None))
    places = [tensors[name].data_ptr() for name in known if tensors[name].nbytes]
    is_tied = len(set(places)) < len(places)
    with _use(at, staging) as cuda:
        made = {
            x.name: _arrays.new_torch(x.dtype, x.shape, device=at) for x in infos
            if is_tied or not reader._object.can_read_in_place(x.file_number, x.offset, x.size)
        }
        _read(cuda, at, reader, infos, [made[x.name].data_ptr() if x.name in made else 0 for x in infos])
        rest = [x for x in infos if x.name not in made]
        _read(cuda, at, reader, rest, [tensors[x.name].data_ptr() for x in rest])
        for name, t in made.items():
            tensors[name].detach().copy_(t)
