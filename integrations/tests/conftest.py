import os
import signal
import time

import pytest
from lmc_integrations import _hosts

collect_ignore = ["test_weight_sync.py"]  # a program, and a suite of its own


@pytest.fixture
def pretend(monkeypatch):
    """pretend(HOST, VERSION): that release is installed; of None, that there is none."""

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
    """run_killed(WORK, RNG): WORK(REPORT) in a process that is killed somewhere in the step after its second REPORT(); without
    RNG not at all. True: it came to its end."""
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
