"""Errors of reading say what is wrong, and in which file."""

import io
import os
import pathlib

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
from lmc_codec.numpy import load_file, safe_open, save_file


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """m3 is a delta against m2, and m2 one against m1."""
    monkeypatch.chdir(tmp_path)
    a = np.arange(5000.0)
    save_file({"a": a}, "m1.lmc")
    save_file({"a": a + 1}, "m2.lmc", base="m1.lmc")
    save_file({"a": a + 2}, "m3.lmc", base=lmc.open("m2.lmc", base="m1.lmc"))
    return a


def test_a_base_whose_base_is_missing(chain):
    os.rename("m1.lmc", "elsewhere")
    for base in ("m2.lmc", lmc.open("m2.lmc")):
        with pytest.raises(lmc.MissingBaseError, match=r"^m2.lmc .*open\('m2.lmc', base=.*m2.lmc: needs the base .*named 'm1.lmc'"):
            load_file("m3.lmc", base=base)
    os.rename("elsewhere", "m1.lmc")
    assert np.array_equal(load_file("m3.lmc", base=lmc.open("m2.lmc", base="m1.lmc"))["a"], chain + 2)
    assert np.array_equal(load_file("m2.lmc", base={"a": chain})["a"], chain + 1)
    save_file({"a": chain}, "m4.lmc", base=lmc.open("m2.lmc", base={"a": chain}))


def test_a_base_of_another_size(chain):
    delta = lmc.compress(chain + 1, chain)
    for base in (chain[:-1], np.append(chain, 0.0)):
        with pytest.raises(lmc.WrongBaseError, match="40000") as error:
            lmc.decompress(delta, base)
        assert error.value.status_name == "LMC_ERR_BASE_WRONG"


def test_safetensors_with_a_base_and_by_url(chain):
    st = pytest.importorskip("safetensors.numpy")
    st.save_file({"a": chain}, "m.safetensors")
    assert np.array_equal(load_file("m.safetensors", base="m1.lmc")["a"], chain)
    with safe_open("m.safetensors", "np", base="m1.lmc") as f:
        assert np.array_equal(f.get_tensor("a"), chain)
    memory = fsspec.filesystem("memory")
    memory.pipe("/m.safetensors", pathlib.Path("m.safetensors").read_bytes())
    memory.pipe("/bad.lmc", b"neither" * 100)
    assert np.array_equal(load_file("memory://m.safetensors")["a"], chain)
    with pytest.raises(lmc.NotLMCError):
        load_file("memory://bad.lmc")


def test_what_is_cut_or_has_more(chain):
    data = bytes(lmc.compress(chain))
    for wrong in (data[:-1], data + b"x"):
        with pytest.raises(lmc.TruncatedError, match="ends early, or something follows"):
            lmc.decompress(wrong)

    class Cut(io.BytesIO):
        """A file that claims to be longer than it is."""

        def seek(self, offset, whence=0):
            return super().seek(offset, whence) + (1000 if whence == 2 else 0)

    with pytest.raises(lmc.TruncatedError, match="truncated") as error:
        lmc.open(Cut(data))
    assert isinstance(error.value, EOFError) and error.value.status == 23


def test_many_small_tensors(tmp_path, monkeypatch):
    """Small neighbours are read at once, because each by itself would decode their common block. All are right, with large
    ones between them, from any kind of file."""
    import lmc_codec._safetensors as part

    rng = np.random.default_rng(5)
    arrays = {f"t{i}": np.full(4, i, np.float32) for i in range(900)}
    arrays |= {f"t{i}x": rng.standard_normal(30000, np.float32) for i in (5, 700)}
    arrays |= {"empty": np.zeros((0, 3), np.float32), "wide": np.arange(5.0), "odd": np.arange(3, dtype=np.int8)}
    save_file(arrays, tmp_path / "a.lmc")
    n_reads = []
    read = lmc.Reader.read
    monkeypatch.setattr(lmc.Reader, "read", lambda *x: n_reads.append(1) or read(*x))
    for together in (part.TOGETHER, 100_000):
        monkeypatch.setattr(part, "TOGETHER", together)
        done = []
        found = load_file(tmp_path / "a.lmc", progress=lambda *x: done.append(x))
        assert list(found) == lmc.open(tmp_path / "a.lmc").keys()
        assert all(np.array_equal(found[k], v) and found[k].dtype == v.dtype for k, v in arrays.items())
        size = sum(v.nbytes for v in arrays.values())
        assert done[-1] == (size, size) and len(done) == len(arrays)
    assert 2 <= len(n_reads) < 20
    import torch
    from lmc_codec.torch import load_file as load_torch

    assert all(np.array_equal(x.numpy(), arrays[k]) for k, x in load_torch(tmp_path / "a.lmc").items())
