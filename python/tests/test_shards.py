"""A list as base=: its files are one base together, whichever has which tensors."""

import contextlib
import gc
import itertools
import os
import pickle
import sys
import threading
from pathlib import Path

import lmc_codec as lmc
import numpy as np
import pytest
import safetensors.numpy
from lmc_codec.numpy import load_file, safe_open, save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "command"))
hostile = pytest.importorskip("hostile")

rng = np.random.default_rng(3)
OLD = {f"t{i}": rng.normal(size=(300, 40)).astype("f4") for i in range(6)}
NEW = {name: x + np.float32(1e-6) for name, x in OLD.items()}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    assert all(x.dtype == wanted[name].dtype and np.array_equal(x, wanted[name]) for name, x in found.items())


def part(*numbers):
    return {f"t{i}": OLD[f"t{i}"] for i in numbers}


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """d.lmc is a delta against all of OLD, which is in three shards; also as a file."""
    monkeypatch.chdir(tmp_path)
    save_file(part(0, 3), "a.lmc")
    save_file(part(1, 2), "b.lmc")
    safetensors.numpy.save_file(part(4, 5), "c.safetensors")
    save_file(OLD, "whole.lmc")
    save_file(NEW, "d.lmc", base="whole.lmc")
    return ["a.lmc", "b.lmc", "c.safetensors"]


def test_shards_are_one_base(shards):
    for order in itertools.permutations(shards):
        same(load_file("d.lmc", base=list(order)), NEW)
    same(load_file("d.lmc", base=("a.lmc", part(1, 2, 4, 5))), NEW)  # two shards, one of arrays
    same(load_file("d.lmc", base=["whole.lmc"]), NEW)
    with safe_open("d.lmc", framework="np", base=shards) as f:
        assert np.array_equal(f.get_tensor("t4"), NEW["t4"]) and np.array_equal(f.get_slice("t2")[3:5], NEW["t2"][3:5])
    assert lmc.verify("d.lmc", base=shards).is_complete
    with lmc.open("d.lmc", base=shards) as reader:
        assert np.array_equal(pickle.loads(pickle.dumps(reader))["t5"], NEW["t5"])


def test_deltas_against_shards(shards):
    save_file(NEW, "e.lmc", base=shards)
    assert lmc.open("e.lmc").base_fingerprint == lmc.open("whole.lmc").fingerprint
    assert os.path.getsize("e.lmc") < os.path.getsize("whole.lmc") / 2
    same(load_file("e.lmc", base="whole.lmc"), NEW)
    with pytest.raises(ValueError, match="b.lmc is the base"):
        save_file(NEW, "b.lmc", base=shards)
    # a shard may be a delta itself, whose base is beside it or given with it
    save_file(part(0, 3), "a2.lmc", base={name: x + 1 for name, x in part(0, 3).items()})
    given = lmc.open("a2.lmc", base={name: x + 1 for name, x in part(0, 3).items()})
    same(load_file("d.lmc", base=[given, *shards[1:]]), NEW)


@pytest.mark.parametrize("wrong", [
    ["a.lmc", "b.lmc"],  # c's tensors are in none
    ["a.lmc", "b.lmc", "c.safetensors", "a.lmc"],  # some are in two: it is another base, as in the command
    ["a.lmc", "b.lmc", "whole.lmc"],
    ["a.lmc", "b.lmc", "other.lmc"],
])
def test_wrong_shards(shards, wrong):
    save_file({"t4": OLD["t4"] + 1, "t5": OLD["t5"]}, "other.lmc")
    with pytest.raises(lmc.WrongBaseError, match=f"^d.lmc: wrong base.*{' and '.join(wrong)} together are another"):
        load_file("d.lmc", base=wrong)


def test_a_tensor_in_two_shards(shards):
    """With the same fingerprint, or another one: refused, and the tensor is named. tests/command/test_bases.py has the same for the command."""
    save_file(part(1, 5), "b5.lmc")
    save_file({"t5": OLD["t5"] + 1}, "other.lmc")
    for wrong in ["a.lmc", "b.lmc", "c.safetensors", "b5.lmc"], [*shards, "other.lmc"], [*shards, part(5)]:
        with pytest.raises(lmc.WrongBaseError, match="together are another; 't[15]' is in two of them"):
            load_file("d.lmc", base=wrong)


def test_what_is_no_base(shards):
    with pytest.raises(FileNotFoundError, match="missing.lmc"):
        load_file("d.lmc", base=["a.lmc", "missing.lmc"])
    for bad in [], [None], ["a.lmc", None]:
        with pytest.raises(TypeError, match="^base: "):
            load_file("d.lmc", base=bad)
    with pytest.raises(ValueError, match="'auto' is for reading"):
        load_file("d.lmc", base=["a.lmc", "auto"])
    closed = lmc.open("a.lmc")
    closed.close()
    with pytest.raises(ValueError, match="the base is closed"):
        lmc.open("d.lmc", base=[closed, *shards[1:]])


def test_shards_that_go(shards):
    """A shard that is deleted stays open; one that is cut is named; one that is closed is an error. None of them is a leak."""
    before = len(os.listdir("/proc/self/fd"))
    reader = lmc.open("d.lmc", base=shards)
    os.rename("b.lmc", "b")
    assert np.array_equal(reader["t2"], NEW["t2"])
    os.rename("b", "b.lmc")
    os.truncate("b.lmc", 200)
    with pytest.raises(lmc.LMCError, match="b.lmc"):
        reader["t1"]
    reader.close()
    del reader
    with pytest.raises(lmc.LMCError, match="b.lmc"):
        load_file("d.lmc", base=shards)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_limit_of_work():
    """A chain through shards has one limit (spec R9-5), as any chain: 64 blocks of 4 MiB for each of its snapshots, 3 or 4 here, in which
    most of the blocks are decoded for a byte each. Shards with limits of their own allowed 64 for each block that their delta may decode."""
    a, b, both, middle, *tops = hostile.chain_of_far_bytes((18, 19, 30, 31), 20)
    for bases, reached, passed in (both, *tops[:2]), ([a, b], *tops[2:]), ([lmc.open(a), lmc.open(b)], *tops[2:]):
        for top in reached, passed:  # each with a chain that has decoded nothing yet
            with lmc.open(middle, base=bases, threads=1) as base, lmc.open(top, base=base, threads=1) as reader:
                with contextlib.nullcontext() if top is reached else pytest.raises(lmc.LimitError):
                    assert not any(reader.read())


def test_threads_share_shards(shards):
    """Deltas against the same shards, in other orders, are read by several threads: no deadlock, no wrong byte."""
    opened = [lmc.open(path) for path in shards[:2]] + [lmc.open("whole.lmc")]
    save_file(part(4, 5), "c.lmc")
    opened[2] = lmc.open("c.lmc")
    readers = [lmc.open("d.lmc", base=list(order)) for order in itertools.permutations(opened)]
    wrong = []

    def read(reader):
        wrong.extend(name for _ in range(5) for name in NEW if not np.array_equal(reader[name], NEW[name]))
    threads = [threading.Thread(target=read, args=[reader]) for reader in readers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
