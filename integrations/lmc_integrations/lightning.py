"""Checkpoints of PyTorch Lightning as a series. Only one import changes.

    from lmc_integrations.lightning import ModelCheckpoint   # was: from lightning.pytorch.callbacks

    trainer = Trainer(callbacks=[ModelCheckpoint("run", save_top_k=5, monitor="loss", save_last=True)])
    trainer.fit(model, ckpt_path="last")

Lightning decides names, rotation and the best model. The files are NAME.lmc; most of them are deltas.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lmc_codec.torch import load_checkpoint

from ._core import _saving
from ._hosts import Host
from .series import Series

with Host("lightning", "lightning") as host:
    import lightning.pytorch as pl
    from lightning.fabric.plugins import TorchCheckpointIO
    from lightning.pytorch import callbacks
    from lightning.pytorch.strategies import Strategy

    host.calls(callbacks.ModelCheckpoint, "dirpath", "filename=", "monitor=", "save_last=", "save_top_k=")
    host.calls(Strategy.load_checkpoint, "self", "checkpoint_path")
    host.calls(Strategy.save_checkpoint, "self", "checkpoint", "filepath")

__all__ = ["ModelCheckpoint", "SeriesIO"]


@host.extends
class SeriesIO(TorchCheckpointIO):
    """Trainer(plugins=[SeriesIO()]): files *.lmc are snapshots of the series in their directory; torch writes the others.
    wait=False: a thread codes a copy of the checkpoint while the training goes on. options: of lmc_integrations.series.Series."""

    def __init__(self, *, wait: bool = True, **options: Any):
        super().__init__()
        Series(".", **options)  # checks the options
        self._wait, self._options = wait, options

    def _series(self, path: Any) -> Series:
        return Series(Path(path).parent, **self._options)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if not str(path).endswith(".lmc") or storage_options is not None:
            return super().save_checkpoint(checkpoint, path, storage_options)
        self._series(path).save(Path(path).stem, checkpoint, wait=self._wait)

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = None) -> dict[str, Any]:
        if not str(path).endswith(".lmc"):
            return super().load_checkpoint(path, map_location, weights_only)
        self._series(path)._find(Path(path).stem)  # refuses a file that is not the snapshot of that name
        weights_only = weights_only is None or weights_only
        found: dict[str, Any] = load_checkpoint(path, map_location=map_location, weights_only=weights_only)
        return found

    def remove_checkpoint(self, path: Any) -> None:
        if not str(path).endswith(".lmc") or os.path.islink(path):  # save_last="link"
            return super().remove_checkpoint(path)
        self._series(path).forget(Path(path).stem)

    def teardown(self) -> None:
        """At the end of a training: waits for the last checkpoint, and raises its error."""
        _saving.settle()


class _CallbackIO(SeriesIO):
    """Replaces TorchCheckpointIO while a ModelCheckpoint saves."""


@host.extends
class ModelCheckpoint(callbacks.ModelCheckpoint):
    """Lightning's ModelCheckpoint, with options of lmc_integrations.series.Series: every, level, threads, quantize; and wait, of
    SeriesIO. If SeriesIO is a plugin, its options are used instead."""

    FILE_EXTENSION = ".lmc"

    def __init__(
        self, *args: Any, every: int | None = None, level: Any = 0, threads: int | None = None, quantize: Any = None, wait: bool = True,
        **options: Any
    ):
        super().__init__(*args, **options)
        keep = max(1, self.save_top_k) if self.save_top_k >= 0 else None
        self._io = _CallbackIO(wait=wait, keep=keep, every=every, level=level, threads=threads, quantize=quantize)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        strategy = trainer.strategy
        own = (type(strategy).load_checkpoint, type(strategy).save_checkpoint)
        if own != (Strategy.load_checkpoint, Strategy.save_checkpoint):
            raise ValueError(f"{type(strategy).__name__} writes shards, of which no series is made: see lmc_integrations.dcp")
        super().setup(trainer, pl_module, stage)
        if "://" in str(self.dirpath):
            raise ValueError(f"{self.dirpath}: a series is a directory of this machine")
        if type(strategy.checkpoint_io) is TorchCheckpointIO:
            strategy.checkpoint_io = self._io
        elif not isinstance(strategy.checkpoint_io, SeriesIO):
            raise ValueError(f"{type(strategy.checkpoint_io).__name__} writes checkpoints otherwise; leave it out")

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        if isinstance(trainer.strategy.checkpoint_io, _CallbackIO):  # that may be of another ModelCheckpoint
            trainer.strategy.checkpoint_io = self._io
        super()._save_checkpoint(trainer, filepath)
