"""test_sync_pieces.py runs this in several processes: python sync_ranks.py RANK RANKS DIRECTORY SHAPE.

Each publishes its pieces of DTensors on a mesh of SHAPE ("2,3") as version 1, of DIRECTORY/0.pt and 1.pt, and as version 2.
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


def main(rank, n_ranks, directory, shape):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=n_ranks)
    mesh = init_device_mesh("cpu", shape)

    def load(i):
        whole = torch.load(directory / f"{i}.pt")
        return {name: distribute_tensor(t, mesh, PLACEMENTS[name][len(shape) - 1], src_data_rank=None) for name, t in whole.items()}

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
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), tuple(map(int, sys.argv[4].split(","))))
    os._exit(0)  # threads of gloo may still run
