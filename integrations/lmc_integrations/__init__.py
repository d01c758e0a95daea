"""Adapters for LMC (the package lmc_codec) in other projects. Each needs its host project; lmc_integrations.TESTED lists the
releases that were tested. With another one an adapter loads if what it uses is there.

    lmc_integrations.series           training states in a directory of `lmc series`; needs no host
    lmc_integrations.trainer          the same as a callback of Hugging Face's Trainer
    lmc_integrations.lightning        the same as the ModelCheckpoint of PyTorch Lightning
    lmc_integrations.dcp              PyTorch's Distributed Checkpoint
    lmc_integrations.transformers     models of Hugging Face transformers from LMC files
    lmc_integrations.vllm             vLLM's --load-format lmc, and its weight-transfer backend lmc
    lmc_integrations.patches          deltas as the patches of single elements that vLLM and verl take
    lmc_integrations.weight_sync      weights for RL as deltas: directories of slime, SGLang and SkyRL; ModelExpress
    lmc_integrations.zarr             a codec of zarr v3
    lmc_integrations.numcodecs        the same for zarr v2, kerchunk and others
    lmc_integrations.hdf5             a filter of HDF5
    lmc_integrations.stats            pictures of `lmc stats`, by matplotlib

Nothing is loaded before it is used.
"""

from __future__ import annotations

from ._hosts import TESTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["TESTED"]

_ADAPTERS = ("dcp", "hdf5", "lightning", "numcodecs", "patches", "series", "stats", "trainer", "transformers", "vllm", "weight_sync", "zarr")


def __getattr__(name: str) -> ModuleType:
    from importlib import import_module

    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
