"""Files on which another program holds a lease (fcntl(2), F_SETLEASE), as servers of files do for their clients. Opening them without waiting failed."""

import os
import signal
import threading

import numpy as np
import pytest

import lmc_codec as lmc
from lmc_codec import _sources

fcntl = pytest.importorskip("fcntl")
pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETLEASE"), reason="this system has no leases")


class Holder:
    """Holds leases, which also this process must wait for, and gives them up if it may, when it is asked to. The names of the files: `asked`."""

    def __init__(self, *paths, gives_up=True):
        self.gives_up, self.asked, self.held = gives_up, [], {}
        self.paths = paths

    def __enter__(self):
        self.old = signal.signal(signal.SIGIO, self.answer)
        for path in self.paths:
            fd = self.held[path] = os.open(path, os.O_RDONLY)
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                pytest.skip(f"no leases on this file system: {error}")
        return self

    def answer(self, *_):
        for path, fd in self.held.items():
            if path not in self.asked and fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK:
                self.asked.append(path)
                if self.gives_up:
                    threading.Timer(0.2, fcntl.fcntl, (fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)).start()

    def __exit__(self, *_):
        for fd in self.held.values():
            os.close(fd)
        signal.signal(signal.SIGIO, self.old)


@pytest.fixture
def arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = {"w": np.arange(3000, dtype=np.float32)}
    lmc.numpy.save_file(arrays, "base.lmc")
    lmc.numpy.save_file({"w": arrays["w"] + 1}, "delta.lmc", base="base.lmc")
    return arrays


def test_waits(arrays):
    with Holder("base.lmc") as holder:
        assert np.array_equal(lmc.numpy.load_file("base.lmc")["w"], arrays["w"])
    assert holder.asked == ["base.lmc"]
    for base in ("base.lmc", "auto"):
        with Holder("base.lmc", "delta.lmc") as holder:
            assert np.array_equal(lmc.numpy.load_file("delta.lmc", base=base)["w"], arrays["w"] + 1)
        assert sorted(holder.asked) == ["base.lmc", "delta.lmc"]
    with Holder("base.lmc"):
        assert lmc.probe("base.lmc").fingerprint == lmc.open("base.lmc").fingerprint
    lmc.numpy.save_file(arrays, "base.lmc")
    with Holder("base.lmc"):
        lmc.numpy.save_file(arrays, "same.lmc", base="base.lmc")


def test_for_a_minute_at_most(arrays, monkeypatch):
    slept = []
    monkeypatch.setattr(_sources.time, "sleep", slept.append)
    with Holder("base.lmc", gives_up=False):
        with pytest.raises(BlockingIOError, match="another program holds a lease on it.*'base.lmc'"):
            lmc.open("base.lmc")
    assert sum(slept) == pytest.approx(60)


def test_interrupt(arrays):
    with Holder("base.lmc", gives_up=False):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            lmc.open("base.lmc")
        timer.join()
