"""test_dcp.py runs this in several processes: python dcp_ranks.py RANK RANKS DIRECTORY FROM TO.

A model under FSDP2, with AdamW. FROM "-": it is new; else the checkpoint FROM is loaded, which other numbers of ranks
have saved, and compared with what was there. A step follows, and checkpoint TO, a delta of FROM.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from lmc_integrations.dcp import Reader, Writer


def make(n_ranks):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(60, 130), torch.nn.Linear(130, 50, dtype=torch.float32)).to(torch.bfloat16)
    mesh = init_device_mesh("cpu", (n_ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def take_step(model, optimizer):
    x = torch.randn(16, 60, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()


def flatten(state, prefix=""):
    for key, x in state.items():
        if isinstance(x, dict):
            yield from flatten(x, f"{prefix}{key}/")
        elif isinstance(x, torch.Tensor):
            yield f"{prefix}{key}", (x.full_tensor() if isinstance(x, DTensor) else x).clone()


def main(rank, n_ranks, directory, source, target):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/{target}.meet", rank=rank, world_size=n_ranks)
    model, optimizer = make(n_ranks)
    base = None
    if source == "-":
        take_step(model, optimizer)
    else:
        base = directory / source
        take_step(model, optimizer)  # so that there are optimizer states, and they differ
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        dcp.load(state, storage_reader=Reader(base))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        want = torch.load(directory / f"{source}.pt")
        got = dict(flatten({"model": get_state_dict(model, optimizer)[0], "optimizer": get_state_dict(model, optimizer)[1]}))
        assert got.keys() == want.keys()
        for name in want:
            assert got[name].dtype == want[name].dtype and torch.equal(got[name], want[name]), name
        take_step(model, optimizer)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    writer = Writer(directory / target, base=base, thread_count=2, sync_files=False)
    if n_ranks == 2:
        dcp.async_save(state, storage_writer=writer).result()
    else:
        dcp.save(state, storage_writer=writer)
    whole = dict(flatten(state))
    if rank == 0:
        torch.save(whole, directory / f"{target}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])
    os._exit(0)  # threads of gloo may still run
