"""A delta as the patches of single elements that engines of RL take: of vLLM (0.33), and of verl (0.9).

    reader = lmc_codec.open("step-2.lmc", base="step-1.safetensors")   # or base=: the tensors, on the CPU
    load_checkpoint_weight_patches(model, vllm_patches(reader))        # vLLM, in each worker
    trainer.send_weights(vllm_nccl_patches(reader))                    # vLLM's sparse_nccl, from the trainer
    for named, is_last in verl_flushes(reader): ...                    # verl: for its apply_delta, and its engine of vLLM

Both take NaN for what has not changed, so an element that became NaN is refused: by vLLM itself, before it changes anything; here
for verl. A tensor that the base lacks, or that has another shape there, is refused by lmc_codec: load all of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from ._core import printable
from ._hosts import check_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmc_codec import Reader

__all__ = ["verl_flushes", "vllm_nccl_patches", "vllm_patches"]


def vllm_patches(reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cpu") -> list[Any]:
    """For load_checkpoint_weight_patches: a CheckpointWeightPatch of each tensor that has changed, all that has changed of it,
    for vLLM makes a whole tensor of each. names: of which tensors; None: all. device: where indices and values go."""
    check_host("vllm", "patches")
    from vllm.model_executor.model_loader.checkpoint_weight_patch import CheckpointWeightPatch

    return [
        CheckpointWeightPatch(name, reader.info(name).shape, values.dtype, values, indices)
        for name, indices, values in _join(reader.changes(names, framework="torch"), device)
    ]


def vllm_nccl_patches(reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cuda") -> list[Any]:
    """For send_weights and send_weight_chunk of the trainer's side of vLLM's backend sparse_nccl: a SparseWeightPatch each."""
    check_host("vllm", "patches")
    from vllm.distributed.weight_transfer.sparse_nccl_engine import SparseWeightPatch

    return [
        SparseWeightPatch(name, indices, values, reader.info(name).shape)
        for name, indices, values in _join(reader.changes(names, framework="torch"), device)
    ]


def verl_flushes(
    reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cpu", max_bytes: int = 256 << 20
) -> Iterator[tuple[list[tuple[str, torch.Tensor]], bool]]:
    """What verl's receive_weights yields, and its rollouts take: named tensors, and whether they are the last. Each flush is of
    one dtype, as verl has it, and of at most max_bytes and one more part of a tensor. None at all: nothing has changed."""
    check_host("verl", "patches")
    from verl.checkpoint_engine.delta_sync.encode import DeltaParam, checksum

    def make(parts: list[tuple[str, torch.Tensor, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
        at, params = 0, []
        for name, indices, _ in parts:
            end = at + indices.numel()
            shape = list(reader.info(name).shape)
            params.append(asdict(DeltaParam(name, dtype, shape, 4 * at, 4 * end, 4, at, end)))
            at = end
        positions = torch.cat([x[1] for x in parts]).view(torch.uint8).to(device)
        values = torch.cat([x[2] for x in parts]).to(device)
        spec = {"encoding": "indices", "params": params, "checksum": checksum(positions, values)}
        text = torch.frombuffer(bytearray(json.dumps(spec).encode()), dtype=torch.uint8).to(device)
        return [("__delta_spec__", text), ("__positions__", positions), ("__values__", values)]

    parts: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    size, dtype = 0, ""
    for name, indices, values in reader.changes(names, framework="torch"):
        if indices.dtype != torch.int32 or not values.is_floating_point() or values.isnan().any():
            what = "has more than 2**31 elements" if indices.dtype != torch.int32 else "is of integers, or has become NaN in places"
            raise ValueError(f"tensor {printable(repr(name))} {what}, which verl's patches cannot say: load all of it")
        its = str(values.dtype).removeprefix("torch.")
        if parts and (its != dtype or size > max_bytes):
            yield make(parts), False
            parts, size = [], 0
        parts.append((name, indices, values))
        dtype, size = its, size + indices.nbytes + values.nbytes
    if parts:
        yield make(parts), True


def _join(changes: Iterable[tuple[str, Any, Any]], device: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """All parts of a tensor at once."""
    name = ""
    parts: list[tuple[torch.Tensor, torch.Tensor]] = []

    def join() -> tuple[str, torch.Tensor, torch.Tensor]:
        return name, torch.cat([x[0] for x in parts]).to(device), torch.cat([x[1] for x in parts]).to(device)

    for new, indices, values in changes:
        if parts and new != name:
            yield join()
            parts.clear()
        name = new
        parts.append((indices, values))
    if parts:
        yield join()
