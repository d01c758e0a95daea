"""test_sync_pieces.py runs this in several processes: python sync_ranks.py RANK RANKS DIRECTORY SHAPE [tp].

Each publishes its pieces of DTensors on a mesh of SHAPE ("2,3") as version 1, of DIRECTORY/0.pt and 1.pt, and as version 2.
tp: some of them are on the last dimension alone, so the first has replicas of which their mesh does not know; some are no DTensors.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from lmc_integrations.weight_sync import publish

PLACEMENTS = {  # by the tensor's name; of a mesh of one dimension and of two
    "rows": ([Shard(0)], [Shard(0), Replicate()]), "columns": ([Shard(1)], [Replicate(), Shard(1)]), "same": ([Replicate()], [Replicate(), Replicate()]),
    "uneven": ([Shard(0)], [Shard(0), Shard(1)]), "few": ([Shard(0)], [Shard(0), Shard(0)]), "cube": ([Shard(2)], [Shard(2), Shard(0)]),
    "frozen": ([Shard(1)], [Shard(1), Shard(0)]), "scale": ([Replicate()], [Replicate(), Replicate()]), "none": ([Shard(0)], [Shard(0), Shard(1)]),
    "twice": ([Shard(0)], [Shard(1), Shard(1)]),
}  # fmt: skip


ON_ALL, PLAIN = ("rows", "uneven"), ("same", "scale")  # with tp


def main(rank, n_ranks, directory, shape, is_tp):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=n_ranks)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")[-len(shape) :])

    def cut(name, t):
        if is_tp and name in PLAIN:
            return t
        on = mesh["tp"] if is_tp and name not in ON_ALL else mesh
        return distribute_tensor(t, on, PLACEMENTS[name][on.ndim - 1], src_data_rank=None)

    def load(i):
        return {name: cut(name, t) for name, t in torch.load(directory / f"{i}.pt").items()}

    steps = [load(i) for i in range(3)]
    for version in (1, 2):
        said = publish(steps[version], directory / "sync", version=version, base=steps[version - 1], part=(rank, n_ranks, "run"), threads=1)
        dist.barrier()
        found = [None] * n_ranks
        dist.all_gather_object(found, (said, said.changed, said.metrics))
        if rank == 0:
            torch.save(found, directory / f"said{version}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), tuple(map(int, sys.argv[4].split(","))), sys.argv[5:] == ["tp"])
    os._exit(0)  # threads of gloo may still run
