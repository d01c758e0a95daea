"""Checkpoints of the Hugging Face Trainer as a series: each is one LMC file, and most are deltas.

    callback = SeriesCallback(args)                       # the TrainingArguments
    trainer = Trainer(model, args, callbacks=[callback], ...)
    trainer.train(resume_from_checkpoint=callback.restore())  # None before the first one: from the beginning

The Trainer writes a directory checkpoint-N, as usual. It becomes OUTPUT_DIR/series/checkpoint-N.lmc, which is verified.
Then it is removed. A directory that an earlier run has left is removed only if it equals the snapshot of its name.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from lmc_codec import NotFoundError

from ._core import _saving, printable
from ._hosts import Host
from .series import Series

with Host("transformers", "trainer") as host:
    from transformers import TrainerCallback, TrainingArguments

    host.calls(TrainingArguments.main_process_first, "self", "local=")

__all__ = ["SeriesCallback"]

SHARDS = ("*.distcp", "pytorch_model_fsdp*", "global_step*", "rank*-of-*")  # of FSDP, DeepSpeed, XLA


@host.extends
class SeriesCallback(TrainerCallback):  # type: ignore[misc]
    """args: the TrainingArguments. Their save_total_limit and the best model decide which checkpoints are kept. directory:
    of the series; None: OUTPUT_DIR/series. wait=False: a thread takes the checkpoint into the series while the training goes on;
    the next evaluation or checkpoint waits for it. options: of lmc_integrations.series.Series: every, level, threads, quantize."""

    def __init__(self, args: Any, directory: str | os.PathLike[str] | None = None, *, wait: bool = True, **options: Any):
        if getattr(args, "fsdp", None) or getattr(args, "deepspeed", None) or args.save_on_each_node:
            raise ValueError("FSDP, DeepSpeed, save_on_each_node: of shards no series is made: see lmc_integrations.dcp")
        if args.push_to_hub and args.hub_strategy in ("checkpoint", "all_checkpoints"):
            raise ValueError("hub_strategy: checkpoints are pushed while they would be removed; choose 'every_save' or 'end'")
        self._output = Path(args.output_dir)
        limit = args.save_total_limit
        self.series = Series(directory or self._output / "series", keep=limit if limit and limit > 0 else None, **options)
        self._args, self._wait = args, wait
        self._is_equal: dict[str, bool] = {}  # by name: whether the directory there has what the snapshot has

    def restore(self, name: str | None = None) -> str | None:
        """For resume_from_checkpoint: restores that checkpoint, or the last one, and returns its directory; None: there is
        none yet. All ranks must call it."""
        with self._args.main_process_first(local=False):
            names = self.series.names()
            try:
                directory = self._output / (name or self.series.path().stem)
            except NotFoundError:
                return None
            if self._args.process_index == 0:
                self._restore(directory)
                best = json.loads((directory / "trainer_state.json").read_text())["best_model_checkpoint"]
                best = Path(best or ".").name  # the Trainer forgets it if its directory is missing
                if best in names and best != directory.name:
                    self._restore(self._output / best)
            return str(directory)

    def _restore(self, directory: Path) -> None:
        self.series.restore(directory.name, directory)
        self._is_equal[directory.name] = True

    def on_save(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        if dist.is_available() and dist.is_initialized():
            dist.barrier()  # each rank first writes the state of its random numbers
        if not state.is_world_process_zero:
            return
        directory = self._output / f"checkpoint-{state.global_step}"
        if any(next(directory.rglob(shard), None) for shard in SHARDS):
            raise ValueError(f"{directory}: is made of shards, of which no series is made: see lmc_integrations.dcp")
        # after the last one the Trainer may remove directories at any time
        self.series.add(directory.name, directory, verify=True, wait=self._wait or control.should_training_stop)
        best, is_needed = Path(state.best_model_checkpoint or ".").name, args.load_best_model_at_end
        _saving.do_after(partial(self._finish, directory.name, best, is_needed))

    def _finish(self, name: str, best: str, is_needed: bool) -> None:
        self._is_equal[name] = True
        self._drop(best, is_needed)

    def _settle(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        """Before the Trainer saves: it may remove the directory that is being read."""
        if state.is_world_process_zero and (control.should_save or control.should_evaluate):
            _saving.settle()

    on_step_end = on_epoch_end = _settle

    def _drop(self, best: str, is_needed: bool) -> None:
        """Removes directories that have a snapshot, except the best one if the Trainer loads it at the end. The name of one
        that this run neither added nor restored says nothing of its content, which is compared once."""
        for name in self.series.names():
            directory = self._output / name
            if not directory.is_dir():
                self._is_equal.pop(name, None)
            elif name.startswith("checkpoint-") and (name != best or not is_needed):  # other names are not of the Trainer
                if name not in self._is_equal:
                    self._is_equal[name] = self.series._equals(name, directory)
                    if not self._is_equal[name]:
                        warnings.warn(printable(f"{directory}: is not what the series has under this name, and stays"), stacklevel=2)
                if self._is_equal[name]:
                    shutil.rmtree(directory, ignore_errors=True)
        self.series.rotate(best)

    def on_train_end(self, args: Any, state: Any, control: Any, **unused: Any) -> None:
        if state.is_world_process_zero:
            _saving.settle()
        best = Path(state.best_model_checkpoint or ".").name
        if state.is_world_process_zero and args.save_total_limit == 1 and best in self.series.names():
            self.series.forget(*(name for name in self.series.names() if name != best))  # as the Trainer does
