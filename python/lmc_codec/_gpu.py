"""Tensors of PyTorch that a GPU decodes, by lmc_cuda.h. Experimental: no GPU has run it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from glob import glob
from typing import Any

import torch

from . import _arrays, _lmc
from ._errors import DeviceError, MissingBaseError, UnsupportedError
from ._reader import Reader, TensorInfo


def _find_device(device: Any) -> torch.device:
    found = torch.device("cuda" if device is None else device)
    if found.type != "cuda":
        raise ValueError(f"decode='gpu' makes tensors on a GPU: give device='cuda', not {str(found)!r}")
    if torch.version.cuda is None:
        raise DeviceError(f"PyTorch {torch.__version__} is built without CUDA: install one with CUDA, or take decode='cpu'")
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def _find_nvrtc() -> str | None:
    """That of the CUDA for which PyTorch was built, where pip has put it; None: where the system looks."""
    try:
        import nvidia
    except ImportError:
        return None
    major = str(torch.version.cuda).partition(".")[0]
    names = (f"lib/libnvrtc.so.{major}*", f"bin/nvrtc64_{major}?_0.dll", f"bin/x86_64/nvrtc64_{major}?_0.dll")
    return max((path for at in nvidia.__path__ for name in names for path in glob(f"{at}/*/{name}")), default=None)


def _open(device: torch.device) -> closing[_lmc.Cuda]:
    cache = os.environ.get("LMC_CUDA_CACHE")
    if cache is None:
        cache = os.path.join(os.path.expanduser("~"), ".cache", "lmc_codec")
        with suppress(OSError):  # then nothing is kept
            if os.path.isabs(cache):
                os.makedirs(cache, 0o700, exist_ok=True)  # a new home has no .cache
    return closing(_lmc.Cuda(device.index or 0, cache, _find_nvrtc()))


def _find_bases(reader: Reader, infos: list[TensorInfo], base: Mapping[str, Any] | None, device: torch.device) -> list[int]:
    """Their addresses; 0: they are the reader's."""
    if base is None:
        return [0] * len(infos)
    for x in infos:
        found = _arrays.describe_torch(base[x.name], str(device)) if x.name in base else None
        if found is None or (found.dtype, found.shape) != (x.dtype, x.shape):
            raise UnsupportedError(f"{reader._what(x)}: the base has none of that name, dtype and shape")
    return [base[x.name].data_ptr() for x in infos]


def _read(cuda: _lmc.Cuda, device: torch.device, reader: Reader, infos: list[TensorInfo], to: list[int], bases: list[int]) -> None:
    """To these addresses; 0: it is only checked."""
    rows = [(x.file_number, x.offset, x.size, at, base) for x, at, base in zip(infos, to, bases)]
    try:
        cuda.read(reader._object, rows, torch.cuda.current_stream(device).cuda_stream)
    except MissingBaseError:  # of what predicts by other tensors of the snapshot: the reader decodes those
        if not any(bases):
            raise
        what = "it has tensors that repeat others in it (twins), which are decoded on the CPU and need the base there"
        raise UnsupportedError(f"{reader.name}: {what}: take decode='cpu', and a base on the CPU") from None


def get_all(
    reader: Reader, infos: Iterable[TensorInfo], device: Any, most: int, base: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors, made by groups of `most` bytes, or of one. base: on that GPU. Files of torch.save(), whose tensors
    may be views of others, are decoded by the CPU."""
    at, left, archives = _find_device(device), list(infos), reader._find_views()
    with _open(at) as cuda:
        while left:
            group: list[TensorInfo] = []
            room = most
            while left and left[0].file_number not in archives and (not group or left[0].size <= room):
                group.append(left.pop(0))
                room -= group[-1].size
            made = [_arrays.new_torch(x.dtype, x.shape, device=at) for x in group]
            _read(cuda, at, reader, group, [t.data_ptr() for t in made], _find_bases(reader, group, base, at))
            for x in group:
                yield x.name, made.pop(0)
            while left and left[0].file_number in archives:
                x = left.pop(0)
                yield x.name, reader.get(x.name, file=x.file, device=at)


def apply(reader: Reader, infos: list[TensorInfo], tensors: Mapping[str, Any]) -> None:
    """In place. All is decoded once before, to be checked: whatever is refused has changed nothing."""
    if reader._find_views():
        raise UnsupportedError(f"{reader.name}: it has files of torch.save(), whose tensors may be views: take decode='cpu'")
    at = _find_device(next((t.device for t in tensors.values()), None))
    bases = _find_bases(reader, infos, tensors, at)
    with _open(at) as cuda:
        for to in [0] * len(infos), bases:
            _read(cuda, at, reader, infos, to, bases)
