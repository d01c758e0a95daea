"""decode="gpu" without a GPU: replacements of the driver and NVRTC run the kernels on the CPU (tests/gpu/fake_cuda.cpp),
and use tensors on the CPU as device memory. Only for tests, examples of pages, and bench/gpu.py --dry."""

import ctypes
import types
import weakref
from pathlib import Path

import torch
from lmc_codec import _arrays, _gpu

LIBRARIES = [Path(__file__).parents[2] / "build/gpu" / name for name in ("libcuda.so.1", "libnvrtc.so.12")]
CPU = torch.device("cpu")


def install(set_attribute=setattr):
    """Makes device="cuda" this replacement. Returns .lend(tensors): clones in device memory; .lent: bytes by address."""
    driver, nvrtc = (ctypes.CDLL(str(path)) for path in LIBRARIES)  # the package gets the same libraries by their names
    driver.fake_cuda_adopt.argtypes = ctypes.c_void_p, ctypes.c_size_t
    for library in driver, nvrtc:
        library.fake_cuda_count.restype = library.fake_cuda_live.restype = ctypes.c_long
        library.fake_cuda_reset()
    new_torch, lent = _arrays.new_torch, {}

    def adopt(t):
        if t.nbytes:
            lent[t.data_ptr()] = t.nbytes
            driver.fake_cuda_adopt(t.data_ptr(), t.nbytes)
            weakref.finalize(t, give_back, t.data_ptr())
        return t

    def give_back(at):
        del lent[at]
        driver.fake_cuda_adopt(at, 0)

    def new(dtype, shape, device=None, **where):
        t = new_torch(dtype, shape, **where)
        return t if device is None else adopt(t)

    set_attribute(_gpu, "_find_device", lambda device, what="": CPU)
    set_attribute(_gpu, "_opened", {})
    set_attribute(_arrays, "new_torch", new)
    set_attribute(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=0))
    set_attribute(torch.cuda, "synchronize", lambda device=None: None)
    return types.SimpleNamespace(
        driver=driver,
        nvrtc=nvrtc,
        lent=lent,
        lend=lambda tensors: {name: adopt(t.detach().clone()) for name, t in tensors.items()},
        count=lambda name: (nvrtc if "nvrtc" in name else driver).fake_cuda_count(name.encode()),
    )
