"""vLLM: models from LMC files (`vllm serve DIR --load-format lmc`), and weights that come as deltas while it serves.

vLLM finds this by itself, by the entry point "vllm.general_plugins", in each of its processes. Written against vLLM 0.33.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
from vllm.model_executor.model_loader.weight_utils import (
    download_safetensors_index_file_from_hf,
    download_weights_from_hf,
)

from . import weight_sync
from ._checkpoint import INDEX, Checkpoint, find_files, run_ahead
from ._printable import printable

__all__ = ["LMCModelLoader", "LMCWeightTransferEngine", "register"]

OWN_OPTIONS = ("base", "threads")


class LMCModelLoader(DefaultModelLoader):
    """Tensors are decoded one after the other, by threads, ahead of the model that takes them. Those that a rank does not
    need (experts of others) are not read.

    --model-loader-extra-config '{"base": DIR, "threads": N}': the checkpoint that this is a delta of; how many threads (None: as
    many as there are, at most 8).
    """

    def __init__(self, load_config: Any):
        extra = dict(load_config.model_loader_extra_config or {})
        self._own = {name: extra.pop(name) for name in OWN_OPTIONS if name in extra}
        super().__init__(replace(load_config, model_loader_extra_config=extra))

    def _prepare_weights(
        self,
        model_name_or_path: str,
        subfolder: str | None,
        revision: str | None,
        fall_back_to_pt: bool = False,
        allow_patterns_overrides: list[str] | None = None,
    ) -> tuple[str, list[str], bool, str]:
        folder = model_name_or_path
        if not os.path.isdir(folder):
            options = {"subfolder": subfolder, "revision": revision}
            folder = download_weights_from_hf(folder, self.load_config.download_dir, ["*.lmc"], **options)
            download_safetensors_index_file_from_hf(
                model_name_or_path, INDEX, cache_dir=self.load_config.download_dir, **options
            )
        if subfolder is not None:
            folder = os.path.join(folder, subfolder)
        return folder, find_files(folder), False, INDEX

    def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, torch.Tensor]]:
        folder, *_ = self._prepare_weights(source.model_or_path, source.subfolder, source.revision)
        is_unused = getattr(source, "is_unused_weight", None)

        def is_wanted(name: str) -> bool:
            return not should_skip_weight(name, self.local_expert_ids) and not (is_unused and is_unused(name))

        with Checkpoint(folder, **self._own) as checkpoint:
            for name, tensor in checkpoint.iterate(is_wanted):
                yield source.prefix + name, tensor


@dataclass
class InitInfo(WeightTransferInitInfo):
    """sync_dir: what weight_sync.publish() writes. local_dir: the checkpoint of this machine, which its workers share. base: version
    0, where local_dir is empty and no full version was published. threads: None is as many as there are, at most 16."""

    sync_dir: str
    local_dir: str
    base: str | None = None
    threads: int | None = None


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """version: None is the newest."""

    version: int | None = None


class LMCWeightTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """The backend "lmc": an update brings the machine's checkpoint to a version (the first worker does it, the others wait), and
    each worker loads it from there. Where an update fails, checkpoint and model are as they were."""

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


def _read_checkpoint(directory: str) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    for file in sorted(name for name in os.listdir(directory) if name.endswith(".safetensors")):
        with safe_open(os.path.join(directory, file), framework="pt") as f:

            def read(name: str) -> tuple[tuple[str, torch.Tensor], int]:
                tensor = f.get_tensor(name)
                return (name, tensor), tensor.nbytes

            yield from run_ahead(list(f.keys()), read, 1 << 30)


_is_registered = False


def register() -> None:
    """What vLLM calls, in each process; it may call again."""
    global _is_registered
    if not _is_registered:
        register_model_loader("lmc")(LMCModelLoader)
        WeightTransferEngineFactory.register_engine("lmc", LMCWeightTransferEngine)
    _is_registered = True
