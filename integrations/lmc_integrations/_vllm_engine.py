"""vLLM's weight-transfer backend "lmc", which updates weights while vLLM serves. See lmc_integrations.vllm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ._checkpoint import run_ahead
from ._core import _arrays, count_threads, printable
from ._hosts import Host
from ._stores import is_url
from ._sync_codecs import SyncCorrupt
from ._sync_files import Checkpoint, Tensor
from ._sync_receive import Request, receive_open

with Host("vllm", "vllm") as host:
    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import reload

    host.calls(WeightTransferEngineFactory.register_engine, "name", "_")
    host.calls(reload.initialize_layerwise_reload, "_")
    host.calls(reload.finalize_layerwise_reload, "_", "_")


@dataclass
class InitInfo(WeightTransferInitInfo):
    """sync_dir: the output of weight_sync.publish(), or a URL of fsspec. local_dir: the checkpoint of this machine, shared by its
    workers. base: version 0, for an empty local_dir without a full version. threads: None is one for each usable CPU, at most 16.
    storage_options: for the URL."""

    sync_dir: str
    local_dir: str
    base: str | None = None
    threads: int | None = None
    storage_options: dict[str, Any] | None = None


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """version: None: the newest."""

    version: int | None = None


@host.extends
class LMCWeightTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """The backend "lmc". An update brings the checkpoint of the machine to a version: the first worker does this, the
    others wait. Then each worker loads that version, whatever another receiver does meanwhile. If the update of the
    checkpoint fails, checkpoint and model do not change."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        if not is_url(init_info.sync_dir) and not os.path.isdir(init_info.sync_dir):
            raise ValueError(f"sync_dir: {printable(init_info.sync_dir)} is not a directory")
        self._init = init_info

    def start_weight_update(self) -> None:
        reload.initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        init = self._init
        request = Request(
            sync_dir=init.sync_dir,
            local_dir=init.local_dir,
            version=update_info.version,
            base=init.base,
            threads=count_threads(init.threads),
            storage_options=init.storage_options,
        )
        with receive_open(request) as local, contextlib.closing(_read(local)) as tensors:
            self.model.load_weights(tensors)

    def finish_weight_update(self) -> None:
        reload.finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass

    @staticmethod
    def trainer_send_weights(*unused: Any, **unused_too: Any) -> None:
        """Some versions of vLLM require this method."""
        raise NotImplementedError("trainers call lmc_integrations.weight_sync.publish()")


def _read(local: Checkpoint) -> Generator[tuple[str, torch.Tensor], None, None]:
    """Programs that write into the files, as receive() never does, are found before a tensor is passed on."""

    def read(t: Tensor) -> tuple[tuple[str, torch.Tensor], int]:
        tensor, memory = _arrays.make("torch", t.dtype, tuple(t.shape))
        if tensor.nbytes != t.size:
            raise SyncCorrupt(f"{t.path}: tensor {ascii(t.name)} does not have the size of its shape")
        if t.size:
            local.read_into(np.frombuffer(memory, np.uint8), t)
        local.shards[t.path].check_unchanged()
        return (t.name, tensor), t.size

    yield from run_ahead(list(local.tensors.values()), read, 1 << 30)


def register() -> None:
    WeightTransferEngineFactory.register_engine("lmc", LMCWeightTransferEngine)
