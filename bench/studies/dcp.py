"""PyTorch Distributed Checkpoint with no compression, ZStandard and LMC: the table of docs/dcp.md.

    python bench/studies/dcp.py SERIES [--size MB] [--ranks N] [--runs N] [--dir DIRECTORY]
    python bench/studies/dcp.py SERIES --reshard ...      saved by --ranks ranks, loaded by one rank, and by twice as many

SERIES: a directory of training steps (step-001000/{model.bf16,master.f32,exp_avg.f32,exp_avg_sq.f32}.safetensors). The
state is that of step 1000, repeated under other names up to the size; for deltas, step 1001 against it. Items are coded one by one, so repetition
does not help. With several ranks each matrix is a DTensor, sharded by rows.
Times are medians of --runs (one run for the extension and the delta), for the slowest rank, without fsync.
"""

import argparse
import os
import shutil
import statistics
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from safetensors.torch import load_file
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import lmc_integrations.dcp

PARTS = ("model.bf16", "master.f32", "exp_avg.f32", "exp_avg_sq.f32")


def make_state(series, step, size, mesh):
    tensors = {}
    for part in PARTS:
        for name, t in load_file(f"{series}/step-{step:06}/{part}.safetensors").items():
            tensors[f"{part}.{name}"] = distribute_tensor(t, mesh, [Shard(0)]) if mesh else t
    one = sum(t.numel() * t.element_size() for t in tensors.values())
    return {f"{i}.{name}": t.clone() for i in range(size // one) for name, t in tensors.items()}


def measure(label, save, load, want, path, n):
    times = {"save": [], "load": []}
    for _ in range(n):
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
        got = {name: t.clone() for name, t in want.items()}
        for t in got.values():
            t.zero_()
        for what, call in (("save", lambda: dcp.save(want, storage_writer=save())), ("load", lambda: dcp.load(got, storage_reader=load()))):
            dist.barrier()
            start = time.perf_counter()
            call()
            dist.barrier()
            times[what].append(time.perf_counter() - start)
        assert all(torch.equal(_local(got[name]), _local(want[name])) for name in want)
    if dist.get_rank() == 0:
        size = sum(os.path.getsize(os.path.join(path, x)) for x in os.listdir(path))
        save_s, load_s = (statistics.median(times[what]) for what in ("save", "load"))
        print(f"{dist.get_world_size()} ranks  {label:22} {size / 1e6:8.1f} MB  save {save_s:6.2f} s  load {load_s:6.2f} s", flush=True)


def _local(t):
    return t.to_local() if hasattr(t, "to_local") else t


def begin(rank, options, n):
    """Makes this process one of n ranks; returns the state."""
    warnings.simplefilter("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), LOCAL_WORLD_SIZE=str(n))
    dist.init_process_group("gloo", rank=rank, world_size=n)
    torch.set_num_threads(1)
    options.mesh = init_device_mesh("cpu", (n,)) if n > 1 else None
    return make_state(options.series, 1000, options.size * 1_000_000, options.mesh)


def save_both(rank, options):
    state = begin(rank, options, options.ranks)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(options.dir + "/none", sync_files=False))
    dcp.save(state, storage_writer=lmc_integrations.dcp.Writer(options.dir + "/lmc", sync_files=False))
    dist.destroy_process_group()


def load_both(rank, options, n):
    want = begin(rank, options, n)
    for label, make in (("none", dcp.FileSystemReader), ("lmc", lmc_integrations.dcp.Reader)):
        times = []
        for _ in range(options.runs):
            got = {name: torch.zeros_like(t) for name, t in want.items()}
            dist.barrier()
            start = time.perf_counter()
            dcp.load(got, storage_reader=make(f"{options.dir}/{label}"))
            dist.barrier()
            times.append(time.perf_counter() - start)
            assert all(torch.equal(_local(got[name]), _local(want[name])) for name in want)
        if rank == 0:
            print(f"saved by {options.ranks}, loaded by {n}  {label:5} {statistics.median(times):6.2f} s", flush=True)
    dist.destroy_process_group()


def run(rank, options):
    state = begin(rank, options, options.ranks)
    registry = lmc_integrations.dcp.make_registry()
    a, b = options.dir + "/lmc-1000", options.dir + "/out"

    def file_writer(*extensions):
        return dcp.FileSystemWriter(b, sync_files=False, _extensions=list(extensions))

    measure("none", lambda: file_writer(), lambda: dcp.FileSystemReader(b), state, b, options.runs)
    measure("ZStandard", lambda: file_writer(ZStandard()), lambda: dcp.FileSystemReader(b), state, b, options.runs)
    for level in ("fast", "default"):
        save = lambda: lmc_integrations.dcp.Writer(a, sync_files=False, level=level)  # noqa: E731
        measure(f"LMC, {level}", save, lambda: lmc_integrations.dcp.Reader(a), state, a, options.runs)
    measure("LMC as an extension", lambda: file_writer(lmc_integrations.dcp.Extension()), lambda: dcp.FileSystemReader(b, registry), state, b, 1)
    state = make_state(options.series, 1001, options.size * 1_000_000, options.mesh)
    save = lambda: lmc_integrations.dcp.Writer(b, sync_files=False, base=a)  # noqa: E731
    measure("LMC, delta", save, lambda: lmc_integrations.dcp.Reader(b), state, b, 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--reshard", action="store_true")
    parser.add_argument("--dir", default="/dev/shm/lmc-bench-dcp")
    parser.add_argument("--port", type=int, default=29611)
    options = parser.parse_args()
    os.makedirs(options.dir, exist_ok=True)
    try:
        if options.reshard:
            torch.multiprocessing.spawn(save_both, (options,), options.ranks)
            for n in (1, options.ranks, 2 * options.ranks):
                torch.multiprocessing.spawn(load_both, (options, n), n)
        else:
            torch.multiprocessing.spawn(run, (options,), options.ranks)
    finally:
        shutil.rmtree(options.dir)
