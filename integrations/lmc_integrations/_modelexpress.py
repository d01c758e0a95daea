"""NVIDIA ModelExpress: xor deltas with LMC payloads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._core import _lmc
from ._hosts import Host


class _XorReader:
    """The stream from which ModelExpress reads a delta: bytes of the xor, decoded when they are read."""

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


class Json:
    """Replaces json in the trainer's module, which has the name of the compression as a literal."""

    def __init__(self, json_module: Any):
        self.json = json_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.json, name)

    def dumps(self, value: Any, **options: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and value["metadata"].get("compression_format") == "zstd":
            value = {**value, "metadata": {**value["metadata"], "compression_format": "lmc"}}
        return self.json.dumps(value, **options)


def register_modelexpress() -> None:
    """Makes ModelExpress read deltas of compression_format "lmc", and its trainer write them: call this in the
    processes of both. The rest of its format (index, xor, adler32) does not change. Repeated calls are allowed."""
    with Host("modelexpress", "weight_sync") as host:
        from modelexpress_rl.inference import receiver

        decompressors = receiver._DECOMPRESSORS
        try:
            from modelexpress_rl.train.methods import canonical_delta
        except ImportError:  # the trainer's side, or a package that it needs, is not installed
            canonical_delta = None
        else:
            host.calls(canonical_delta.compress_delta, "_")
            host.calls(canonical_delta.json.dumps, "_")
    decompressors["lmc"] = _XorReader
    if canonical_delta is None:
        return
    canonical_delta.compress_delta = lambda delta: np.frombuffer(_lmc.tensor_encode(delta, "AUTO"), np.uint8)
    if not isinstance(canonical_delta.json, Json):
        canonical_delta.json = Json(canonical_delta.json)
