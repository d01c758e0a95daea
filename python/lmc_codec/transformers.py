"""Models of Hugging Face transformers from LMC files.

    model = lmc_codec.transformers.from_pretrained(AutoModelForCausalLM, "model-dir")

The directory has what save_pretrained() writes, its *.safetensors as LMC files (`lmc --rm *.safetensors`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig

from . import _arrays
from ._checkpoint import Checkpoint

__all__ = ["from_pretrained"]

MAX_JSON = 64 << 20  # configurations; what is larger is not one


class _Tensor:
    """What transformers takes for a tensor that is still in its file: it reads it by indexing, in threads of its own."""

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

    def __getattr__(self, name: str) -> Any:  # whatever else is asked of a tensor takes the tensor
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self[...], name)


@contextmanager
def _find_config(path: Path) -> Iterator[Path]:
    """The directory with config.json: where the file is, or inside, if it is a snapshot of a directory."""
    if path.is_dir():
        yield path
        return
    from ._reader import open

    with open(path) as reader, tempfile.TemporaryDirectory() as directory:
        inside = [file for file in reader.files if not file.is_directory and "/" not in file.path]
        if not any(file.path == "config.json" for file in inside):
            yield path.parent
            return
        for file in inside:
            if file.path.endswith((".json", ".py")) and file.size <= MAX_JSON:
                Path(directory, file.path).write_bytes(reader.read(file.path))
        yield Path(directory)


def from_pretrained(
    model_class: Any,
    path: str | os.PathLike[str],
    *,
    base: Any = None,
    threads: int | None = None,
    config: Any = None,
    **options: Any,
) -> Any:
    """A model, as model_class.from_pretrained(path, **options) makes it, from LMC files.

    model_class: AutoModelForCausalLM, LlamaForCausalLM, ... path: a directory with config.json and LMC files (with
    model.safetensors.index.json those that it names), or an LMC file that was made of such a directory. base: the checkpoint
    that this is a delta of, such a directory or file, or one of safetensors. threads: None is as many as there are, at most 8.
    options: of from_pretrained: dtype, device_map, attn_implementation, ...

    Each tensor is decoded when transformers asks for it; there is never a second copy of the model in memory.
    """
    if "state_dict" in options:
        raise TypeError("state_dict: it comes from the LMC files")
    remote = {name: options[name] for name in ("trust_remote_code",) if name in options}
    is_auto = not hasattr(model_class, "config_class") and hasattr(model_class, "from_config")
    with _find_config(Path(path)) as directory:
        if config is None:
            loader = AutoConfig if is_auto else model_class.config_class
            config = loader.from_pretrained(str(directory), **remote)
        generation = directory / "generation_config.json"
        generation_config = GenerationConfig.from_pretrained(str(directory)) if generation.exists() else None
        if is_auto:  # which class it is, by making one that holds nothing
            with torch.device("meta"):
                model_class = type(model_class.from_config(config, **remote))
    options.pop("trust_remote_code", None)
    with Checkpoint(path, base=base, threads=threads) as checkpoint:
        state = {name: _Tensor(reader.get_slice(name)) for name, reader in checkpoint.tensors.items()}
        made = model_class.from_pretrained(None, config=config, state_dict=state, **options)
    model = made[0] if isinstance(made, tuple) else made  # with output_loading_info
    model.config._name_or_path = model.name_or_path = str(path)
    if generation_config is not None and getattr(model, "generation_config", None) is not None:
        model.generation_config = generation_config
    return made
