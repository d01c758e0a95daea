"""Files that another process cuts or extends while they are read: an error that names the file and both sizes, never a signal."""

import gc
import os
import re

import lmc_codec as lmc
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from lmc_codec.numpy import save_file

N = 3 << 20
STATE = {f"l{i}": torch.arange(N // 2, dtype=torch.int16).view(torch.bfloat16) for i in range(3)}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    safetensors.torch.save_file(STATE, "x.safetensors")
    torch.save(STATE, "x.pt")
    return tmp_path


def refused(name, now):
    size = os.path.getsize(name)
    return pytest.raises(lmc.ReadError, match=f"^{re.escape(name)}: .*it had {size} bytes when it was opened, and now has {now}\\b")


def arrays():
    return {name: t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for name, t in STATE.items()}


def test_a_base_is_cut(place):
    base = lmc.Base._of_safetensors("x.safetensors", 1)
    with refused("x.safetensors", 1000):
        with lmc.Writer("new.lmc", base=base) as w:
            os.truncate("x.safetensors", 1000)
            w.add_arrays(arrays())
    assert sorted(os.listdir()) == ["x.pt", "x.safetensors"]


def test_a_base_of_a_reader_is_cut(place):
    save_file(arrays(), "d.lmc", base="x.safetensors")
    with lmc.open("d.lmc", base="x.safetensors") as r, refused("x.safetensors", 1000):
        os.truncate("x.safetensors", 1000)
        r.get("l2")


def test_a_base_is_rewritten_in_place(place):
    with pytest.raises(lmc.WrongBaseError, match="^new.lmc: x.safetensors, the base, has changed since it was opened"):
        with lmc.Writer("new.lmc", base="x.safetensors") as w:
            w.add_arrays(arrays())
            with open("x.safetensors", "r+b") as file:
                file.seek(-100, os.SEEK_END)
                file.write(b"x")


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
@pytest.mark.parametrize("rules", [None, "*=auto:0.01"])
@pytest.mark.parametrize("change", [-(N + 9), 9])
def test_a_file_that_is_added(place, monkeypatch, name, rules, change):
    size = os.path.getsize(name)
    read_at, n = lmc._lmc.read_at, []

    def change_it(source, size_, offset, out, where):
        if len(out) > 1 << 20 and not n:  # the first tensor, or piece
            n.append(os.truncate(name, size + change))
        return read_at(source, size_, offset, out, where)

    with refused(name, size + change):
        with lmc.Writer("new.lmc", quantize=rules) as w:
            monkeypatch.setattr(lmc._lmc, "read_at", change_it)
            w.add_file(name)
    assert not os.path.exists("new.lmc") and n


@pytest.mark.parametrize("rules", [None, "*=auto:0.01"])
def test_a_file_that_is_added_is_rewritten_in_place(place, monkeypatch, rules):
    """Its size stays, so only its time tells that what was read may be old and new."""
    read_at, n = lmc._lmc.read_at, []
    os.utime("x.safetensors", (1, 1))

    def change_it(source, size, offset, out, where):
        if len(out) > 1 << 20 and not n:
            with open("x.safetensors", "r+b") as file:
                file.seek(-100, os.SEEK_END)
                n.append(file.write(b"x"))
        return read_at(source, size, offset, out, where)

    with pytest.raises(lmc.ReadError, match="^x.safetensors: another process has changed it while it was read"):
        with lmc.Writer("new.lmc", quantize=rules) as w:
            monkeypatch.setattr(lmc._lmc, "read_at", change_it)
            w.add_file("x.safetensors")
    assert not os.path.exists("new.lmc") and n


def test_a_base_is_closed_with_its_user(place):
    """At once, not when the garbage collector comes: what was opened in vain before it is not kept by its own error."""
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        save_file(arrays(), "d.lmc", base="x.safetensors")
        lmc.open("d.lmc", base="x.safetensors").close()
        with pytest.raises(lmc.NotLMCError):
            lmc.open("x.safetensors")
        assert before in (0, len(os.listdir("/proc/self/fd")))
    finally:
        gc.enable()


def test_safe_open_of_numpy(place):
    with lmc.safe_open("x.safetensors", "np") as f, refused("x.safetensors", 1000):
        assert np.array_equal(f.get_tensor("l0").view(np.int16), STATE["l0"].view(torch.int16).numpy())
        os.truncate("x.safetensors", 1000)
        f.get_tensor("l2")


def test_nothing_is_mapped(place):
    """Only what safetensors itself reads."""
    save_file(arrays(), "d.lmc", base="x.safetensors")
    readers = [lmc.open("d.lmc", base="x.safetensors"), lmc.Base._of_safetensors("x.safetensors", 1)]
    w = lmc.Writer("new.lmc", base="x.safetensors", quantize="*=auto:0.01")
    w.add_file("x.safetensors")
    if os.path.exists("/proc/self/maps"):
        with open("/proc/self/maps") as file:
            assert str(place) not in file.read()
    w.abort()
    assert readers
