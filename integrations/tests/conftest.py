import faulthandler
import os
import signal
import time

import ml_dtypes
import numpy as np
import pytest
from lmc_integrations import _hosts

collect_ignore = ["test_weight_sync.py"]  # a program: tests/run has a suite for it


def pytest_configure(config):
    global stderr
    stderr = os.dup(2)  # pytest redirects it later


def pytest_runtest_logstart(nodeid, location):
    """A test that waits for ever ends all, after 15 minutes, and says where. This is kept by a thread that needs no GIL, and after the
    last test for the end of the process."""
    faulthandler.dump_traceback_later(900, exit=True, file=stderr)


@pytest.fixture
def one_rank():
    """torch.distributed with this process alone, by a backend without threads: PyTorch may keep the GIL while it joins those of gloo,
    which may wait for the GIL."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def pretend(monkeypatch):
    """pretend(HOST, VERSION): makes that release seem installed; None: none is installed."""

    def pretend(host, version):
        found = _hosts.metadata.version

        def find(name):
            if name != host:
                return found(name)
            if version is None:
                raise _hosts.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(_hosts.metadata, "version", find)

    return pretend


@pytest.fixture
def run_killed():
    """run_killed(WORK, RNG): runs WORK(REPORT) in a process, and kills it at a random time after its second REPORT();
    without RNG it is not killed. Returns True if it ended by itself."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork")

    def run_killed(work, rng=None):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                work(lambda: os.write(write_end, b"x"))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(write_end)
        if rng is not None:
            os.read(read_end, 1)
            start = time.monotonic()
            os.read(read_end, 1)
            time.sleep(rng.uniform(0, 1.5) * (time.monotonic() - start))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(read_end)
        return status == 0

    return run_killed


# -- of the codecs for arrays --

FLOATS = np.random.default_rng(1).standard_normal((256, 300)) * 0.02
# dtype -> upper limit of an encoded chunk, as a share of its size
SHARES = {
    "f2": 0.88,
    "f4": 0.86,
    "f8": 0.91,
    "i4": 0.45,
    "u2": 0.8,
    "i8": 0.32,
    "bool": 0.2,
    "c8": 0.86,
    "c16": 0.91,
}


def make(dtype):
    if dtype[0] in "iu":
        return (FLOATS * 50000).astype(dtype)
    if dtype[0] == "c":
        return (FLOATS + 1j * FLOATS[::-1]).astype(dtype)
    return (FLOATS > 0.03) if dtype == "bool" else FLOATS.astype(dtype)


def as_uint16(weights):
    return np.ascontiguousarray(weights[:512, :256]).view(np.uint16)


@pytest.fixture
def weights():
    """An array like weights: bf16, 700 x 300."""
    return (np.random.default_rng(1).standard_normal((700, 300)) * 0.02).astype(ml_dtypes.bfloat16)


def same(a, b):
    """Whether both are equal bit for bit, with equal dtype and shape."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
