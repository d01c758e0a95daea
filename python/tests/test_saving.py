"""save_checkpoint(wait=False): a thread codes a copy."""

import collections
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from interrupts import Armed, Stop, can_go_on
from test_checkpoint import Training, same, saved_by_torch

import lmc_codec
from lmc_codec import _lmc, _saving, _torch_save
from lmc_codec.torch import Saving, load_checkpoint, save_checkpoint


@pytest.fixture(autouse=True)
def settled():
    """What a test leaves in flight must not be the next one's."""
    yield
    _saving.settle()


@pytest.fixture
def held():
    """A progress function in which a save waits, until held.set()."""
    held = Held()
    yield held
    held.set()


class Held(threading.Event):
    def __call__(self, done, total):
        assert self.wait(60)


class Fails:
    """A progress function."""

    def __init__(self, error):
        self.error = error

    def __call__(self, done, total):
        raise self.error


def test_the_file_is_the_same(tmp_path):
    training = Training()
    for n in range(3):
        training.step()
        state, how = training.state(), {"base": tmp_path / f"{n - 1}.lmc"} if n else {}
        assert save_checkpoint(state, tmp_path / "x.lmc", **how) is None
        saving = save_checkpoint(state, tmp_path / f"{n}.lmc", **how, wait=False)
        assert isinstance(saving, Saving)
        saving.wait()
        saving.wait()
        assert saving.done
        assert (tmp_path / f"{n}.lmc").read_bytes() == (tmp_path / "x.lmc").read_bytes()
    with lmc_codec.open(tmp_path / "2.lmc", base="auto") as r:
        assert bytes(r.read()) == saved_by_torch(state)


def test_quantised_moments_are_the_same(tmp_path):
    training = Training()
    for _ in range(3):
        training.step()
    state, rules = {**training.state(), "long": torch.randn(3_000_000)}, ["*.exp_avg*=bits:8", "long,role=weight=bits:8"]
    save_checkpoint(state, tmp_path / "x.lmc", quantize=rules)
    save_checkpoint(state, tmp_path / "y.lmc", quantize=rules, wait=False).wait()
    assert (tmp_path / "x.lmc").read_bytes() == (tmp_path / "y.lmc").read_bytes()
    assert not same(load_checkpoint(tmp_path / "y.lmc"), state)


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 20) - 500, 1 << 20, 5 << 20])
def test_sizes_around_those_of_pieces(tmp_path, size):
    state = {"a": torch.arange(size, dtype=torch.uint8), "b": [torch.ones(3), torch.arange(200_000)], "c": torch.zeros(size, dtype=torch.uint8)}
    save_checkpoint(state, tmp_path / "x.lmc", wait=False).wait()
    with lmc_codec.open(tmp_path / "x.lmc") as r:
        assert bytes(r.read()) == saved_by_torch(state)


@pytest.mark.parametrize("wait", [True, False])
def test_objects_are_pickled_once(tmp_path, wait):
    n = []

    class Counted:
        def __reduce__(self):
            n.append(1)
            return bytes, (b"x" * 20_000,)

    saving = save_checkpoint({"w": torch.randn(1000), "x": Counted()}, tmp_path / "x.lmc", wait=wait)
    assert len(n) == 1
    if saving is not None:
        saving.wait()
    assert len(n) == 1 and load_checkpoint(tmp_path / "x.lmc", weights_only=False)["x"] == b"x" * 20_000


def test_only_the_thread_runs_torch_save(tmp_path, monkeypatch):
    """It takes longer than pickling and a copy."""
    threads, save = [], torch.save
    monkeypatch.setattr(torch, "save", lambda *args, **how: threads.append(threading.get_ident()) or save(*args, **how))
    for wait in (True, False):
        saving = save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", wait=wait)
        if saving is not None:
            saving.wait()
    assert len(threads) == 2 and [t == threading.get_ident() for t in threads] == [True, False]


class Sub(torch.Tensor):
    pass


def make_all_kinds():
    w = torch.arange(6000.0).view(60, 100)
    leaf, hooked, attributed = (torch.ones(3, requires_grad=True) for _ in range(3))
    hooked.register_hook(print)
    attributed.attribute = "cpu"
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    parameter.attribute = [1]
    state = torch.nn.Linear(3, 4).state_dict()  # has an attribute
    kinds = {str(dtype): torch.zeros(700, dtype=dtype) for dtype in vars(torch).values() if isinstance(dtype, torch.dtype) and dtype.itemsize > 0
             and not any(x in str(dtype) for x in ("qint", "quint", "bits", "int1", "int2", "int3", "int4", "int5", "int6", "int7", "float4"))}  # fmt: skip
    c = torch.randn(5, dtype=torch.complex64)
    return {
        "views": [w, w[3:5], w.t(), w[::2, 7], w, w.flatten()[5], w[:0]], "long": torch.randn(700_000), "kinds": kinds, "state": state,
        "gradients": [leaf, leaf * 2, hooked, attributed, torch.nn.Parameter(w[1:3], requires_grad=False), parameter],
        "sub": torch.ones(4).as_subclass(Sub), "sparse": torch.eye(3).to_sparse(), "rows": torch.eye(3).to_sparse_csr(),
        "quantised": torch.quantize_per_tensor(torch.randn(5), 0.1, 2, torch.qint8), "meta": torch.ones(3, device="meta"),
        "lazy": [c.conj(), c, torch.randn(5, dtype=torch.complex64).conj().imag], "empty": [torch.zeros(0), torch.zeros(0, 3, dtype=torch.int8)],
        "storages": [w.untyped_storage(), torch.ones(3).untyped_storage(), torch.ones(5).untyped_storage(), torch.ones(3).storage()],
        "others": [torch.nn.Linear(2, 2), np.arange(3000), "cpu", "storage", "0", 0, torch.float32, collections.OrderedDict(a=leaf), {1: {2: (w,)}}],
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wait", [True, False])
def test_all_that_torch_save_takes(tmp_path, wait):
    """Each by itself, too: the first of a kind is another case than the next ones."""
    kinds = make_all_kinds()
    kinds["storages"] = [x for i, x in enumerate(kinds["storages"]) if i]  # w has another type elsewhere
    for state in [*kinds.values(), *kinds["views"], *kinds["gradients"], *kinds["storages"], kinds, list(reversed(kinds.values()))]:
        saving = save_checkpoint(state, tmp_path / "x.lmc", wait=wait)
        if saving is not None:
            saving.wait()
        with lmc_codec.open(tmp_path / "x.lmc") as r:
            assert bytes(r.read()) == saved_by_torch(state)


def test_one_storage_of_two_types(tmp_path):
    kinds = make_all_kinds()
    for state in ([kinds["views"], kinds["storages"]], [kinds["storages"], kinds["views"]], [torch.ones(6), torch.ones(6)]):
        if len(state[0]) == 6:
            state[1] = state[0].view(torch.int32)
        for save in (lambda: save_checkpoint(state, tmp_path / "x.lmc"), lambda: torch.save(state, tmp_path / "x.pt")):
            with pytest.raises(RuntimeError, match="view the same data as different types"):
                save()


@pytest.mark.parametrize("resize", [lambda t: t.untyped_storage().resize_(50), lambda t: t.untyped_storage().resize_(20_000_000)])
def test_a_tensor_that_gets_another_size(tmp_path, resize):
    state, path = {f"{i}": torch.randn(1_000_000) for i in range(8)}, tmp_path / "x.lmc"
    save_checkpoint({"0": torch.ones(3)}, path)

    def progress(done, total):
        if done < total:
            resize(state["7"])

    with pytest.raises(lmc_codec.ChangedError, match="x.lmc: the state changed"):
        save_checkpoint(state, path, progress=progress, threads=1)
    assert load_checkpoint(path)["0"].sum() == 3 and os.listdir(tmp_path) == ["x.lmc"]


def test_a_state_that_changes_afterwards(tmp_path, held):
    state = {"w": torch.arange(100_000.0), "list": [1, 2], "rng": torch.get_rng_state()}
    before = saved_by_torch(state)
    saving = save_checkpoint(state, tmp_path / "x.lmc", progress=held, wait=False)
    state["w"].zero_()
    state["list"].append(3)
    del state["rng"]
    assert not saving.done and not os.listdir(tmp_path)
    held.set()
    saving.wait()
    with lmc_codec.open(tmp_path / "x.lmc") as r:
        assert bytes(r.read()) == before


def test_a_delta_waits_for_its_base(tmp_path, held):
    save_checkpoint({"w": torch.arange(100_000.0)}, tmp_path / "0.lmc", progress=held, wait=False)
    threading.Timer(0.1, held.set).start()
    save_checkpoint({"w": torch.arange(100_000.0) + 1}, tmp_path / "1.lmc", base=tmp_path / "0.lmc", wait=False)
    save_checkpoint({"w": torch.arange(100_000.0) + 2}, tmp_path / "2.lmc", base=tmp_path / "1.lmc")
    assert load_checkpoint(tmp_path / "2.lmc")["w"][5] == 7


def test_one_at_a_time(tmp_path):
    """Also from many threads, and with no more than one copy in memory."""
    going, most = [0], []

    class Counted:
        def __reduce__(self):
            most.append((going[0], sum(isinstance(x, _saving.Saving) and not x.done for x in [_saving._last])))
            return int, ()

    def progress(done, total):
        going[0] = int(done != total)

    def save(n):
        for i in range(3):
            save_checkpoint({"w": torch.randn(20_000), "x": Counted()}, tmp_path / f"{n}-{i}.lmc", progress=progress, wait=False)

    threads = [threading.Thread(target=save, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    _saving.settle()
    assert len(most) == 12 and set(most) == {(0, 0)} and len(os.listdir(tmp_path)) == 12


def test_errors_are_told_once_and_not_lost(tmp_path):
    path, state = tmp_path / "x.lmc", {"w": torch.randn(100_000)}
    save_checkpoint({"w": torch.ones(3)}, path)
    for later in (
        lambda: save_checkpoint(state, path),
        lambda: save_checkpoint(state, path, wait=False),
        lambda: _saving.settle(),
    ):
        save_checkpoint(state, path, progress=Fails(OSError("no space")), wait=False)
        gc.collect()
        with pytest.raises(OSError, match="no space"):
            later()
        assert load_checkpoint(path)["w"].sum() == 3 and os.listdir(tmp_path) == ["x.lmc"]
        save_checkpoint({"w": torch.ones(3)}, path, wait=False).wait()  # the error was told
    saving = save_checkpoint(state, path, progress=Fails(KeyboardInterrupt()), wait=False)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            saving.wait()
    assert saving.done
    save_checkpoint({"w": torch.ones(3)}, path)


def test_what_is_refused_at_once(tmp_path):
    state = {"w": torch.ones(3)}
    save_checkpoint(state, tmp_path / "x.lmc")
    for path, how, error in (
        (tmp_path, {}, IsADirectoryError),
        (tmp_path / "none" / "x.lmc", {}, FileNotFoundError),
        (tmp_path / "y.lmc", {"base": tmp_path / "none.lmc"}, FileNotFoundError),
        (tmp_path / "x.lmc", {"base": tmp_path / "x.lmc"}, ValueError),
        (tmp_path / "y.lmc", {"progress": 5}, TypeError),
    ):
        with pytest.raises(error):
            save_checkpoint(state, path, wait=False, **how)

    class Unwilling:
        def __reduce__(self):
            raise RuntimeError("cannot be pickled today")

    with pytest.raises(RuntimeError, match="today"):
        save_checkpoint({"x": Unwilling()}, tmp_path / "y.lmc", wait=False)
    assert os.listdir(tmp_path) == ["x.lmc"]


def test_no_thread(tmp_path, monkeypatch):
    def refuse(*unused):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as changed, pytest.raises(RuntimeError, match="new thread"):
        changed.setattr(_saving, "start_new_thread", refuse)
        save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", wait=False)
    assert not os.listdir(tmp_path)
    save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", wait=False).wait()


def test_callbacks(tmp_path):
    """A callback of a save in flight may save, but not begin another one."""
    found = []

    def progress(done, total):
        if not found:
            save_checkpoint({"w": torch.ones(2)}, tmp_path / "y.lmc")
            with pytest.raises(RuntimeError, match="callback"):
                save_checkpoint({"w": torch.ones(2)}, tmp_path / "z.lmc", wait=False)
            found.append(done)

    save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", progress=progress, wait=False).wait()
    assert found and sorted(os.listdir(tmp_path)) == ["x.lmc", "y.lmc"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_interrupted_waiting(tmp_path, held):
    class Alarm(Exception):
        pass

    def stop(number, frame):
        raise Alarm

    old = signal.signal(signal.SIGALRM, stop)
    try:
        saving = save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", progress=held, wait=False)
        for wait in (saving.wait, _saving.settle):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Alarm):
                wait()
    finally:
        signal.signal(signal.SIGALRM, old)
    held.set()
    saving.wait()
    assert load_checkpoint(tmp_path / "x.lmc")["w"].sum() == 3


def test_an_exception_at_each_moment_of_waiting(tmp_path):
    """It may leave a lock to nobody: who waits afterwards, in this thread or another one, does not wait for ever."""
    n = 0
    while True:
        n += 1
        saving = save_checkpoint({"x": torch.ones(3)}, tmp_path / "x.lmc", wait=False)
        armed = Armed(n)
        try:
            with armed:
                saving.wait()
        except Stop:
            pass
        assert can_go_on(saving.wait) and can_go_on(_saving.settle), f"{n}, {armed.where}"
        assert saving.done
        if armed.where is None:
            break
    assert n > 3


def test_an_exception_at_each_moment_of_beginning():
    """Afterwards another thread can save."""

    def begin():
        _saving.in_turn(lambda: _saving.begin(int))

    n = 0
    while True:
        n += 1
        armed, kept = Armed(n), None  # as an interactive interpreter keeps the last exception, and all frames in it
        try:
            with armed:
                begin()
        except Stop as stopped:
            kept = stopped
        assert can_go_on(begin), f"{n}, {armed.where}"
        if armed.where is None:
            break
        del kept
    assert n > 20


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python closes its own files when they are freed, too
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_and_threads(tmp_path):
    """The same from a signal handler, in saves of a state, while other threads save."""

    def save(name):
        save_checkpoint({"x": torch.ones(3)}, tmp_path / name, wait=False)

    def save_all(name, ends):
        try:
            while not ends.is_set():
                save(name)
        except BaseException as error:
            lost.append(error)

    class Alarm(Exception):
        pass

    def stop(number, frame):
        raise Alarm

    ends, n_hit, lost = threading.Event(), 0, []
    threads = [threading.Thread(target=save_all, args=(f"{i}.lmc", ends), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    old, end = signal.signal(signal.SIGALRM, stop), time.monotonic() + 3
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-3))
                for _ in range(3):
                    save("x.lmc")
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                n_hit += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        ends.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not lost and can_go_on(lambda: save("y.lmc"))
    _saving.settle()
    assert n_hit and load_checkpoint(tmp_path / "y.lmc")["x"].sum() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_fork(tmp_path, held):
    """The save is the parent's; the child can make its own."""
    saving = save_checkpoint({"w": torch.ones(3)}, tmp_path / "x.lmc", progress=held, wait=False)
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(RuntimeError, match="forked"):
                saving.wait()
            save_checkpoint({"w": torch.ones(4)}, tmp_path / "y.lmc", threads=1, wait=False).wait()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert os.listdir(tmp_path) == ["y.lmc"]
    held.set()
    saving.wait()
    assert load_checkpoint(tmp_path / "x.lmc")["w"].sum() == 3 and load_checkpoint(tmp_path / "y.lmc")["w"].sum() == 4


EXITS = """
import sys, time, torch
from lmc_codec.torch import save_checkpoint
def slow(done, total):
    time.sleep(0.3)
    if sys.argv[2] == "fails":
        raise OSError("no space")
save_checkpoint({"w": torch.ones(3)}, sys.argv[1], progress=slow, wait=False)
if sys.argv[2] == "raises":
    raise ValueError("of the program")
"""


@pytest.mark.parametrize("how, says", [pytest.param("raises", "ValueError: of the program", marks=pytest.mark.long), ("fails", "OSError: no space")])
def test_exit(tmp_path, how, says):
    """The interpreter waits for the file, and prints its error."""
    done = subprocess.run([sys.executable, "-c", EXITS, tmp_path / "x.lmc", how], capture_output=True, text=True, timeout=120)
    assert says in done.stderr and (done.returncode == 1) == (how == "raises")
    if how == "fails":
        assert not os.listdir(tmp_path)
    else:
        assert load_checkpoint(tmp_path / "x.lmc")["w"].sum() == 3


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_memory_is_freed(tmp_path, monkeypatch, wait, fails):
    """Of the copy, when the file is there, also after an error that is kept; before garbage is collected."""
    made, new_memory = [], _lmc.new_memory
    monkeypatch.setattr(_torch_save._lmc, "new_memory", lambda size: made.append(new_memory(size)) or made[-1])
    state = {"w": torch.randn(100_000), "more": [torch.ones(5) for _ in range(100)]}
    gone = weakref.ref(state["w"].untyped_storage())
    gc.disable()
    try:
        with pytest.raises(OSError, match="no space") if fails else contextlib.nullcontext():
            saving = save_checkpoint(state, tmp_path / "x.lmc", progress=Fails(OSError("no space")) if fails else None, wait=wait)
            if not wait:
                saving.wait()
        alone = [new_memory(1)]
        counts, unshared = ([sys.getrefcount(memory) for memory in memories] for memories in (made, alone))
        assert counts == ([] if wait else unshared)
        del state
        if not (wait and fails):  # the traceback has the caller's state
            assert gone() is None
    finally:
        gc.enable()
