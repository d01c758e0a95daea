"""NVIDIA ModelExpress: its xor deltas with payloads of LMC."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import _lmc
from ._hosts import check_host


class _XorReader:
    """What ModelExpress reads a delta from: bytes of the xor, decoded as they are read."""

    def __init__(self, payload: Any):
        self.payload, self.at = payload, 0
        self.size = _lmc.tensor_size(payload)

    def read(self, size: int) -> bytearray:
        out = bytearray(max(0, min(size, self.size - self.at)))
        if out:
            _lmc.tensor_decode(self.payload, out, offset=self.at, total_size=self.size)
        self.at += len(out)
        return out

    def close(self) -> None:
        self.payload = None


class _Json:
    """json for the trainer's module, whose index names its compression by a literal."""

    def __init__(self, json_module: Any):
        self.json = json_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.json, name)

    def dumps(self, value: Any, **options: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and value["metadata"].get("compression_format") == "zstd":
            value = {**value, "metadata": {**value["metadata"], "compression_format": "lmc"}}
        return self.json.dumps(value, **options)


def register_modelexpress() -> None:
    """ModelExpress (0.7) reads deltas whose compression_format is "lmc", and its trainer writes them: call it in the processes of both. Its
    index stays as it is, xor and adler32. May be called again."""
    check_host("modelexpress", "weight_sync")
    from modelexpress_rl.inference import receiver
    receiver._DECOMPRESSORS["lmc"] = _XorReader
    try:
        from modelexpress_rl.train.methods import canonical_delta
    except ImportError: # the trainer's side is not installed with all that it needs
        return
    canonical_delta.compress_delta = lambda delta: np.frombuffer(_lmc.tensor_encode(delta, "AUTO"), np.uint8)
    if not isinstance(canonical_delta.json, _Json):
        canonical_delta.json = _Json(canonical_delta.json)
