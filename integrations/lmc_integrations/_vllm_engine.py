"""vLLM's weight-transfer backend "lmc", which updates weights while vLLM serves. See lmc_integrations.vllm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from . import weight_sync
from ._checkpoint import run_ahead
from ._core import printable


@dataclass
class InitInfo(WeightTransferInitInfo):
    """sync_dir: the output of weight_sync.publish(). local_dir: the checkpoint of this machine, shared by its workers.
    base: version 0, for an empty local_dir without a full version. threads: None is one for each CPU, at most 8."""

    sync_dir: str
    local_dir: str
    base: str | None = None
    threads: int | None = None


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """version: None: the newest."""

    version: int | None = None


class LMCWeightTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """The backend "lmc". An update brings the checkpoint of the machine to a version: the first worker does this, the
    others wait. Then each worker loads it. If the update of the checkpoint fails, checkpoint and model do not change."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        if not os.path.isdir(init_info.sync_dir):
            raise ValueError(f"sync_dir: {printable(init_info.sync_dir)} is no directory")
        self._init = init_info

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        init = self._init
        options = {} if init.threads is None else {"threads": init.threads}
        weight_sync.receive(
            init.sync_dir, init.local_dir, version=update_info.version, base=init.base, **options
        )
        self.model.load_weights(_read_checkpoint(init.local_dir))

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass

    @staticmethod
    def trainer_send_weights(*unused: Any, **unused_too: Any) -> None:
        """Some versions of vLLM require this method."""
        raise NotImplementedError("trainers call lmc_integrations.weight_sync.publish()")


def _read_checkpoint(directory: str) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    for file in sorted(name for name in os.listdir(directory) if name.endswith(".safetensors")):
        with safe_open(os.path.join(directory, file), framework="pt") as f:

            def read(name: str) -> tuple[tuple[str, torch.Tensor], int]:
                tensor = f.get_tensor(name)
                return (name, tensor), tensor.nbytes

            yield from run_ahead(list(f.keys()), read, 1 << 30)


def register() -> None:
    WeightTransferEngineFactory.register_engine("lmc", LMCWeightTransferEngine)
