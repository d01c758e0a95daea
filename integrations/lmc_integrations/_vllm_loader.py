"""vLLM's model loader for --load-format lmc. See lmc_integrations.vllm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ._checkpoint import INDEX, Checkpoint, find_files
from ._hosts import Host

with Host("vllm", "vllm") as host:
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
    from vllm.model_executor.model_loader.weight_utils import (
        download_safetensors_index_file_from_hf,
        download_weights_from_hf,
    )

    place = ("subfolder=", "revision=")
    host.calls(download_safetensors_index_file_from_hf, "_", "_", "cache_dir=", *place)
    host.calls(download_weights_from_hf, "_", "_", "_", *place)
    host.calls(register_model_loader, "_")
    host.calls(should_skip_weight, "_", "_")

OWN_OPTIONS = ("base", "decode", "storage_options", "threads", "weights")


@host.extends
class LMCModelLoader(DefaultModelLoader):
    """Decodes tensors one after another, each with several threads, ahead of the model. Tensors that a rank does not need
    (experts of other ranks) are not read.

    --model-loader-extra-config '{"base": DIR, "threads": N}': base: of a delta; threads: None is one for each CPU, at most
    8. "decode": "gpu" (experimental): on the current GPU, 1 GiB of tensors at once. "weights": the directory or the file of the
    weights, if they are not in that of the model. It may be a URL, with "storage_options" for fsspec; so may base.

    If the model is an s3:// URL, vLLM brings its configuration to this machine, and names the URL as model_weights.
    """

    def __init__(self, load_config: Any):
        extra = dict(load_config.model_loader_extra_config or {})
        self._own = {name: extra.pop(name) for name in OWN_OPTIONS if name in extra}
        self._decode = self._own.pop("decode", "cpu")
        self._weights: str | None = self._own.pop("weights", None)
        self._place: tuple[str, str] | None = None  #: the model, and the place of its weights, if that is another
        if self._decode not in ("cpu", "gpu"):
            raise ValueError(f"decode is 'cpu' or 'gpu', not {self._decode!r}")
        super().__init__(replace(load_config, model_loader_extra_config=extra))

    def _prepare_weights(
        self,
        model_name_or_path: str,
        subfolder: str | None,
        revision: str | None,
        fall_back_to_pt: bool = False,
        allow_patterns_overrides: list[str] | None = None,
    ) -> tuple[str, list[str], bool, str]:
        if self._place is not None and self._place[0] == model_name_or_path:
            return self._place[1], find_files(self._place[1], self._own.get("storage_options")), False, INDEX
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

    def _find_weights(self, model_config: Any) -> None:
        place = self._weights or getattr(model_config, "model_weights", None)
        self._place = (model_config.model, place) if place else None

    def download_model(self, model_config: Any) -> None:
        self._find_weights(model_config)
        super().download_model(model_config)

    def get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        self._find_weights(model_config)
        yield from super().get_all_weights(model_config, model)

    def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, torch.Tensor]]:
        folder, *_ = self._prepare_weights(source.model_or_path, source.subfolder, source.revision)
        is_unused = getattr(source, "is_unused_weight", None)

        def is_wanted(name: str) -> bool:
            return not should_skip_weight(name, self.local_expert_ids) and not (is_unused and is_unused(name))

        with Checkpoint(folder, **self._own) as checkpoint:
            device = "cuda" if self._decode == "gpu" else None
            for name, tensor in checkpoint.iterate(is_wanted, device=device, decode=self._decode):
                yield source.prefix + name, tensor


def register() -> None:
    register_model_loader("lmc")(LMCModelLoader)
