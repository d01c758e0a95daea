"""An exception at any moment of a call comes through as it is, and leaves no descriptor, no file and no lock. LMC_INTERRUPTS=all takes
every moment, else some dozens of each call."""

import gc
import os
import random
import signal
import threading
import time

import lmc_codec as lmc
import numpy as np
import pytest
import torch
from interrupts import Armed, Stop, can_go_on, check, count_descriptors
from lmc_codec import _saving
from lmc_codec._locks import locked
from lmc_codec._sources import _File
from lmc_codec.numpy import load_file, save_file
from lmc_codec.torch import iterate, load_checkpoint, save_checkpoint

MOST = 0 if os.environ.get("LMC_INTERRUPTS") == "all" else 40
ARRAYS = {"w": np.arange(3000, dtype=np.float32), "b": np.ones(7, np.float32)}
CHANGED = {"w": ARRAYS["w"] + (ARRAYS["w"] % 100 == 0), "b": ARRAYS["b"]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(ARRAYS, "base.lmc")
    save_file(CHANGED, "delta.lmc", base="base.lmc")
    save_checkpoint({"w": torch.ones(3000), "step": 1}, "state.lmc")
    return tmp_path


def opened():
    lmc.open("base.lmc").close()


def found_by_itself():
    with lmc.open("delta.lmc", base="auto") as r:
        r.get("w")


def loaded():
    load_file("delta.lmc", base="base.lmc")


def sliced():
    with lmc.safe_open("base.lmc", "np") as f:
        f.get_slice("w")[10:20]


def one_at_a_time():
    for _ in iterate("base.lmc"):
        pass


def refused():
    for wrong in ({"base": "state.lmc"}, {"max_total_size": 5}):
        with pytest.raises(lmc.LMCError):
            lmc.open("delta.lmc", **wrong)


def saved():
    save_file(ARRAYS, "new.lmc")


def saved_as_delta():
    save_file(CHANGED, "new.lmc", base="base.lmc")


def written():
    with lmc.Writer("new.lmc") as w:
        w.add("w", ARRAYS["w"])
        w.add_file("base.lmc")
        w.add_metadata("key", "value")


def given_up():
    w = lmc.Writer("given up.lmc")
    w.add("w", ARRAYS["w"])
    w.abort()


def state_saved():
    save_checkpoint({"w": torch.ones(3000), "step": 1}, "new.lmc")


def state_saved_later():
    try:
        save_checkpoint({"w": torch.ones(3000), "step": 1}, "new.lmc", wait=False).wait()
    finally:
        _saving.await_end()  # an exception may come after the thread has begun


def state_loaded():
    assert load_checkpoint("state.lmc")["step"] == 1


READS = [opened, found_by_itself, loaded, sliced, one_at_a_time, refused, state_loaded]
WRITES = [saved, saved_as_delta, written, given_up, state_saved, state_saved_later]

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python closes its own files when they are freed, too
needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")


def look():
    """What is wrong with the files."""
    left = set(os.listdir()) - {"base.lmc", "delta.lmc", "state.lmc", "new.lmc"}
    if left:
        return f"{left} are left"
    if os.path.exists("new.lmc"):  # it is whole
        lmc.verify("new.lmc", base="auto")
    sums = pytest.importorskip("torch.utils.serialization").config.save
    return None if getattr(sums, "compute_crc32", True) else "torch.save() computes no sums any more"


@needs_proc
@pytest.mark.parametrize("call", READS, ids=lambda call: call.__name__)
def test_reading(place, call):
    assert check(call, look, MOST) >= MOST // 2


@needs_proc
@pytest.mark.parametrize("call", WRITES, ids=lambda call: call.__name__)
@pytest.mark.parametrize("way", ["without a name", "a name", "no link"])
def test_writing(place, monkeypatch, call, way):
    if way == "a name":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif way == "no link":
        monkeypatch.setattr(os, "link", no_link)
    assert check(call, look, MOST) >= MOST // 2


def no_link(*unused, **options):
    raise OSError("none here")


def test_ranges_whose_end_is_interrupted(place, monkeypatch):
    """Who has them as the base of another reader can go on."""

    def stop():
        raise KeyboardInterrupt

    with open("base.lmc", "rb") as file:
        ranges = _File(file, os.path.getsize("base.lmc"))
        start = bytes(ranges(0, 9))
        with monkeypatch.context() as changed, pytest.raises(KeyboardInterrupt):
            changed.setattr(ranges, "forget", stop)
            ranges.close()
        assert not ranges.lock.locked() and ranges(0, 9) == start


@needs_proc
def test_a_writer_of_another_thread(place, monkeypatch):
    """No exception while a file is added leaves the writer's lock to nobody: another thread can give it up."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # then the unfinished file has a name
    n, before = 0, (count_descriptors(), sorted(os.listdir()))
    while True:
        n += 1
        armed, w = Armed(n), lmc.Writer("new.lmc")
        try:
            with armed:
                w.add_bytes("a", b"1")
        except Stop:
            pass
        assert can_go_on(w.abort), f"{n}, {armed.where}"
        assert (count_descriptors(), sorted(os.listdir())) == before, f"{n}, {armed.where}"
        if armed.where is None:
            break
    assert n > 50


class Alarm(Exception):
    pass


@needs_timer
@pytest.mark.parametrize("lock", [threading.Lock(), threading.RLock()], ids=["Lock", "RLock"])
def test_locked(lock):
    """From a signal handler, as fast as it can: the lock is always given back."""

    def use_often():
        for _ in range(1000):
            locked(lock, int)

    def take():
        taken.append(lock.acquire(timeout=0))

    def stop(number, frame):
        raise Alarm

    old, end, n_hit = signal.signal(signal.SIGALRM, stop), time.monotonic() + 0.7, 0
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 5e-5))
                use_often()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                n_hit += 1
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    taken: list[bool] = []
    assert can_go_on(take) and taken == [True] and n_hit > 10


@needs_proc
@needs_timer
def test_signals(place):
    """The same from a signal handler, beside threads that open and close files: a descriptor that is closed twice would be theirs."""
    armed, ends, lost = False, threading.Event(), []

    def handle(number, frame):
        nonlocal armed
        if armed:
            armed = False  # also if a finalizer swallows the exception
            raise Alarm

    def use_files():
        while not ends.is_set():
            fd = os.open("base.lmc", os.O_RDONLY)
            try:
                os.fstat(fd)
                os.close(fd)
            except OSError as error:
                lost.append(error)

    def open_often():  # CPython 3.13 may raise beside a try that is around the loop (github.com/python/cpython/issues/130279)
        while armed:
            lmc.open("base.lmc").close()

    old = signal.signal(signal.SIGALRM, handle)
    threads = [threading.Thread(target=use_files) for _ in range(2)]
    before = count_descriptors()
    for t in threads:
        t.start()
    n_stopped = 0
    try:
        for _ in range(20_000 if MOST == 0 else 200):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
                open_often()
            except Alarm:
                n_stopped += 1
            armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        ends.set()
        for t in threads:
            t.join()
        signal.signal(signal.SIGALRM, old)
    assert n_stopped and not lost
    gc.collect()
    assert count_descriptors() == before
