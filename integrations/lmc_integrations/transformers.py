"""Models of Hugging Face transformers from LMC files.

    model = lmc_integrations.transformers.from_pretrained(AutoModelForCausalLM, "model-dir")

The directory is that of save_pretrained(), with its *.safetensors as LMC files (`lmc --rm *.safetensors`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ._checkpoint import Checkpoint
from ._core import _arrays, printable
from ._hosts import Host
from ._stores import is_url, open_folder

with Host("transformers", "transformers") as host:
    from transformers import AutoConfig, GenerationConfig, PreTrainedModel

    host.calls(AutoConfig.from_pretrained, "pretrained_model_name_or_path", "return_unused_kwargs=")
    host.calls(GenerationConfig.from_pretrained, "pretrained_model_name")
    host.calls(PreTrainedModel.from_pretrained, "pretrained_model_name_or_path", "config=", "state_dict=")

__all__ = ["from_pretrained"]

MAX_JSON = 64 << 20  # of a configuration; larger files are none


class _Tensor:
    """A tensor that is still in its file, for transformers, which reads it by indexing, in its own threads."""

    def __init__(self, part: Any):
        self._slice = part

    def __getitem__(self, index: Any) -> torch.Tensor:
        found: torch.Tensor = self._slice[index]
        return found

    def get_shape(self) -> list[int]:
        return list(self._slice.shape)

    def get_dtype(self) -> str:
        return str(self._slice.dtype)

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self._slice.shape)

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = _arrays.torch_dtype(self._slice.dtype)
        return found

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def __getattr__(self, name: str) -> Any:  # other attributes need the whole tensor
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[...], name)


@contextmanager
def _find_config(checkpoint: Checkpoint) -> Iterator[Path]:
    """The directory with config.json: that of the file; or a temporary one, if it is in a store, or the file is a snapshot of
    a directory."""
    folder, reader = checkpoint.folder, checkpoint.readers[0]
    if folder is not None and not is_url(folder.path):
        yield Path(folder.path)
        return
    read: Callable[[str], Any] = reader.read if folder is None else folder.read
    if folder is not None:
        found = folder.names
    else:
        found = [x.path for x in reader.files if not x.is_directory and "/" not in x.path and x.size <= MAX_JSON]
        if "config.json" not in found:
            yield Path(checkpoint.path).parent
            return
    with tempfile.TemporaryDirectory() as directory:
        for name in found:
            if name.endswith((".json", ".py")):
                Path(directory, name).write_bytes(read(name))
        yield Path(directory)


#: Options of from_pretrained that choose other files, and the error for each.
_REFUSED = {
    "state_dict": "it comes from the LMC files",
    "gguf_file": "it is read by transformers itself",
    "variant": "give the LMC file of that variant, or a directory that has no others",
}
#: Options that are not of the configuration, though some configurations have attributes of that name.
_NOT_OF_CONFIG = ("dtype", "torch_dtype", "quantization_config", "generation_config", "output_loading_info", "device_map")


def _make_config(loader: Any, place: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The configuration, changed by its own options; and the other options."""
    kept = {name: options[name] for name in _NOT_OF_CONFIG if name in options}
    rest = {name: value for name, value in options.items() if name not in kept}
    config, unused = loader.from_pretrained(os.fspath(place), return_unused_kwargs=True, **rest)
    return config, {**unused, **kept}


def from_pretrained(
    model_class: Any,
    path: str | os.PathLike[str],
    *,
    base: Any = None,
    threads: int | None = None,
    config: Any = None,
    subfolder: str = "",
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Makes a model from LMC files, like model_class.from_pretrained(path, **options).

    model_class: AutoModelForCausalLM, LlamaForCausalLM, ... path: a directory with config.json and LMC files (with
    model.safetensors.index.json only those that it names), or an LMC file made from such a directory; or a URL of one of these,
    with storage_options for fsspec. base: for a delta: such a directory or file, or one of safetensors. threads: None is one for each usable CPU, at most 16. config: a configuration,
    or its path. subfolder: of the directory. options: of from_pretrained: dtype, device_map, attn_implementation, ...;
    those of the configuration (use_cache, num_labels, ...) change it, unless `config` is a configuration.

    Each tensor is decoded when transformers reads it. There is never a second copy of the model in memory.
    """
    for name, why in _REFUSED.items():
        if options.pop(name, None) is not None:
            raise TypeError(f"{name}: {why}")
    if subfolder:
        if open_folder(os.fspath(path), storage_options) is None:
            raise TypeError(f"subfolder: {printable(os.fspath(path))} is not a directory")
        path = os.path.join(path, subfolder)
    trust = options.pop("trust_remote_code", None)
    remote = {} if trust is None else {"trust_remote_code": trust}
    is_auto = not hasattr(model_class, "config_class") and hasattr(model_class, "from_config")
    with Checkpoint(path, base=base, threads=threads, storage_options=storage_options) as checkpoint:
        with _find_config(checkpoint) as directory:
            if config is None or isinstance(config, (str, os.PathLike)):
                loader = AutoConfig if is_auto else model_class.config_class
                config, options = _make_config(loader, directory if config is None else config, {**options, **remote})
                options.pop("trust_remote_code", None)
            generation_config = options.get("generation_config")
            if generation_config is None and (directory / "generation_config.json").exists():
                generation_config = GenerationConfig.from_pretrained(str(directory))
            if is_auto:  # finds the class by making a model without memory
                with torch.device("meta"):
                    model_class = type(model_class.from_config(config, **remote))
        state = {name: _Tensor(reader.get_slice(name)) for name, reader in checkpoint.tensors.items()}
        made = model_class.from_pretrained(None, config=config, state_dict=state, **options)
    model = made[0] if isinstance(made, tuple) else made  # a tuple with output_loading_info
    model.config._name_or_path = model.name_or_path = str(path)
    if generation_config is not None and getattr(model, "generation_config", None) is not None:
        model.generation_config = generation_config
    return made
