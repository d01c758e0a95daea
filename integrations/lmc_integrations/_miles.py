"""miles' weight sync "disk-delta" with LMC payloads."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ._hosts import Host
from ._modelexpress import Json
from ._sync_codecs import LMC, SyncError
from ._sync_memory import Memory


def register_miles() -> None:
    """Makes miles' UpdateWeightFromDiskDelta publish deltas of compression_format "lmc" and delta_encoding "prediction", in place of xor
    and zstd: call this in its trainers, before the first update. All else is miles' own: its snapshot of the last version, files, index,
    hook and reload. Its engines need what lmc_integrations.weight_sync says of SGLang, or receive(). Repeated calls are allowed."""
    with Host("miles", "weight_sync") as host:
        from miles.backends.megatron_utils.update_weight.update_weight_from_distributed import delta

        updater = delta.UpdateWeightFromDiskDelta
        host.calls(updater._encode_delta, "self")
        host.calls(updater._for_each_hf_bucket, "self", "_")
        host.calls(delta.checksum, "_", "_")
        host.calls(delta.json.dumps, "_")
        n_threads = delta.NUM_WORKERS

    def encode_delta(self: Any) -> None:
        """Payloads and checksums of the tensors that changed; the snapshot becomes what is published."""
        self._version_dir = os.path.join(self.delta_dir, f"weight_v{self.weight_version:06d}")
        if self._is_source:
            os.makedirs(self._version_dir, exist_ok=True)
        self._delta, self._checksums = {}, {}
        self.changed_bytes = self.total_bytes = 0
        self.delta_encoding, codec = "prediction", LMC()
        pending: deque[Future[tuple[str, Any, int, Any, str]]] = deque()

        def encode(name: str, dtype: str, new: Any) -> tuple[str, Any, int, Any, str]:
            old = self._snapshot[name]
            if old.size != new.size:
                raise SyncError("tensor %s has %d bytes, and had %d in the version before" % (ascii(name), new.size, old.size))
            n_changed = int(np.count_nonzero(new != old))
            if not n_changed:
                return name, new, 0, None, ""
            payload = np.frombuffer(codec.encode(new, old, dtype), np.uint8)
            return name, new, n_changed, payload, delta.checksum(self.checksum_algorithm, new)

        def collect() -> None:
            name, self._snapshot[name], n_changed, payload, checksum = pending.popleft().result()
            if n_changed:
                self._delta[name], self._checksums[name] = payload, checksum
                self.changed_bytes += n_changed

        def take(bucket: list[tuple[str, Any]], progress: Any = None) -> None:
            for name, tensor in bucket:
                with Memory({name: tensor}, "miles") as memory:
                    (t,) = memory.tensors.values()
                    new = memory.read_into(np.empty(t.size, np.uint8), t)  # before the trainer frees the bucket
                self.total_bytes += t.size
                pending.append(pool.submit(encode, name, t.dtype, new))
                if len(pending) >= 2 * n_threads:
                    collect()

        with ThreadPoolExecutor(n_threads) as pool:
            self._for_each_hf_bucket(take)
            while pending:
                collect()

    updater._encode_delta = encode_delta
    if not isinstance(delta.json, Json):
        delta.json = Json(delta.json)
