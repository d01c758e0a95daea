"""Deltas as patches of single elements, which the RL engines of vLLM (0.33), verl (0.9) and NeMo-RL (0.6) take.

    reader = lmc_codec.open("step-2.lmc", base="step-1.safetensors")   # or base=: the tensors, on the CPU
    load_checkpoint_weight_patches(model, vllm_patches(reader))        # vLLM, in each worker
    trainer.send_weights(vllm_nccl_patches(reader))                    # vLLM's sparse_nccl, from the trainer
    for named, is_last in verl_flushes(reader): ...                    # verl: for its apply_delta, and its engine of vLLM
    applier.update_weights_from_decoded_sparse_payload(*nemo_payloads(reader))     # NeMo-RL, in each worker of vLLM

In all, NaN means "not changed", so an element that became NaN is refused: by vLLM itself, before it changes anything; for
verl and NeMo-RL here. lmc_codec refuses a tensor that the base lacks or has with another shape: load all of it.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

from ._core import printable
from ._hosts import Host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmc_codec import Reader

__all__ = ["nemo_payloads", "verl_flushes", "vllm_nccl_patches", "vllm_patches"]


def vllm_patches(reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cpu") -> list[Any]:
    """For load_checkpoint_weight_patches: a CheckpointWeightPatch for each changed tensor. Each has all changes of its
    tensor, because vLLM makes a whole tensor of each patch. names: tensors; None: all. device: of indices and values."""
    with Host("vllm", "patches") as host:
        from vllm.model_executor.model_loader.checkpoint_weight_patch import CheckpointWeightPatch

        host.calls(CheckpointWeightPatch, "name", "shape", "dtype", "values", "indices")
    return [
        CheckpointWeightPatch(name, reader.info(name).shape, values.dtype, values, indices)
        for name, indices, values in _join(reader.changes(names, framework="torch"), device)
    ]


def vllm_nccl_patches(reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cuda") -> list[Any]:
    """For send_weights and send_weight_chunk of vLLM's backend sparse_nccl, on the trainer's side: SparseWeightPatch
    each."""
    with Host("vllm", "patches") as host:
        from vllm.distributed.weight_transfer.sparse_nccl_engine import SparseWeightPatch

        host.calls(SparseWeightPatch, "name", "indices", "values", "full_shape")
    return [
        SparseWeightPatch(name, indices, values, reader.info(name).shape)
        for name, indices, values in _join(reader.changes(names, framework="torch"), device)
    ]


def verl_flushes(
    reader: Reader, names: Iterable[str] | None = None, *, device: Any = "cpu", max_bytes: int = 256 << 20
) -> Iterator[tuple[list[tuple[str, torch.Tensor]], bool]]:
    """Yields, as verl's receive_weights: named tensors for its rollouts, and whether they are the last. Each flush has one
    dtype, as verl requires, and at most max_bytes plus one part of a tensor. No flush: nothing has changed."""
    with Host("verl", "patches") as host:
        from verl.checkpoint_engine.delta_sync.encode import DeltaParam, checksum

        host.calls(DeltaParam, "name", "dtype", "shape", "pos_start", "pos_end", "pos_width", "val_start", "val_end")
        host.calls(checksum, "_", "_")

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
        _check_floats(name, values, "verl", "" if indices.dtype == torch.int32 else "has more than 2**31 elements")
        its = str(values.dtype).removeprefix("torch.")
        if parts and (its != dtype or size > max_bytes):
            yield make(parts), False
            parts, size = [], 0
        parts.append((name, indices, values))
        dtype, size = its, size + indices.nbytes + values.nbytes
    if parts:
        yield make(parts), True


def nemo_payloads(reader: Reader, names: Iterable[str] | None = None, *, max_bytes: int = 256 << 20) -> Iterator[bytes]:
    """Yields, for update_weights_from_decoded_sparse_payload of NeMo-RL's workers: payloads of its sparse refit, before its zstd. Each
    has whole lists of changes, of at least max_bytes together but the last. The operation is "overwrite"."""
    with Host("nemo-rl", "patches") as host:
        from nemo_rl.utils.weight_transfer_sparse_codec import encode_sparse_infos, integer_view

        host.calls(encode_sparse_infos, "infos")
        host.calls(integer_view, "tensor")

    def make(infos: list[Any]) -> bytes:
        stream = io.BytesIO()
        torch.save(encode_sparse_infos(infos), stream)
        return stream.getvalue()

    infos: list[Any] = []
    size = 0
    for name, indices, values in _join(reader.changes(names, framework="torch"), "cpu"):
        _check_floats(name, values, "NeMo-RL")
        like = torch.empty(reader.info(name).shape, dtype=values.dtype, device="meta")  # it asks for shape and dtype alone
        infos.append((name, like, indices, integer_view(values), "overwrite"))
        size += indices.nbytes + values.nbytes
        if size >= max_bytes:
            yield make(infos)
            infos, size = [], 0
    if infos:
        yield make(infos)


def _check_floats(name: str, values: torch.Tensor, host: str, what: str = "") -> None:
    if not what and (not values.is_floating_point() or values.isnan().any()):
        what = "is of integers, or has become NaN in places"
    if what:
        raise ValueError(f"tensor {printable(repr(name))} {what}, which {host}'s patches cannot say: load all of it")


def _join(changes: Iterable[tuple[str, Any, Any]], device: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Joins all parts of a tensor."""
    for name, parts in groupby(changes, itemgetter(0)):
        _, indices, values = zip(*parts)
        yield name, torch.cat(indices).to(device), torch.cat(values).to(device)
