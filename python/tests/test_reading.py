"""Errors of reading say what is wrong, and in which file."""

import io
import os
import pathlib
import sys

import fsspec
import lmc_codec as lmc
import lmc_codec.numpy as lmc_numpy
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
    read = part._get_together
    monkeypatch.setattr(part, "_get_together", lambda *x: n_reads.append(1) or read(*x))
    for together in (part.PIECE, 100_000):
        monkeypatch.setattr(part, "PIECE", together)
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


def test_tensors_of_one_piece(tmp_path):
    """Neighbours share memory, but each has a storage of its own: a file of one has only its bytes, and it can be changed."""
    import pickle

    import torch
    from lmc_codec.torch import load_file as load_torch
    from lmc_codec.torch import save_file as save_torch

    tensors = {f"t{i}": torch.full((300,), float(i)) for i in range(50)}
    tensors |= {"large": torch.arange(600_000.0), "pair": torch.tensor([1 + 2j]), "one": torch.tensor(7), "odd": torch.tensor([True, False, True])}
    save_torch(tensors, tmp_path / "a.lmc")
    found = load_torch(tmp_path / "a.lmc")
    for name, t in found.items():
        assert torch.equal(t, tensors[name]) and t.dtype == tensors[name].dtype
        assert t.untyped_storage().nbytes() == t.nbytes and t.storage_offset() == 0 and t.data_ptr() % t.element_size() == 0
    assert len(pickle.dumps(found["t3"])) < 4000
    for t in found.values():
        t.fill_(1)
    kept = found["t3"].resize_(100)
    found.clear()
    assert kept.sum() == 100
    with pytest.raises(RuntimeError, match="not resizable"):  # as tensors of safetensors
        kept.resize_(10_000)
    arrays = load_file(tmp_path / "a.lmc")
    for name, x in arrays.items():
        assert x.flags.writeable and x.flags.aligned and np.array_equal(x, tensors[name].numpy())
        x[...] = 0
    assert len(pickle.dumps(arrays["t3"])) < 4000


def test_kept_memory(tmp_path):
    """A tensor that is kept keeps at most 16 MiB more."""

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    resource = pytest.importorskip("resource")
    if not sys.platform.startswith("linux"):
        pytest.skip("memory is measured by /proc")
    save_file({f"t{i:03}": np.full(1 << 18, i, np.uint8) for i in range(256)}, tmp_path / "a.lmc")  # 64 MiB
    before = resident()
    kept = load_file(tmp_path / "a.lmc")["t100"]
    assert kept[7] == 100 and resident() - before < 20 << 20


def test_fingerprints_of_small_tensors(tmp_path):
    """All tensors are checked that are read together: an index of another file is found, whose blocks have the same sizes."""
    rng = np.random.default_rng(8)
    arrays = {f"t{i}": rng.integers(0, 256, 1000, np.uint8) for i in range(40)}
    data = []
    for i in range(2):
        arrays["t7"][500] ^= 1
        data.append(lmc_numpy.save(arrays))
    at = int.from_bytes(data[0][-40:-32], "little")  # of the index
    assert len(data[0]) == len(data[1]) and data[0][-40:-32] == data[1][-40:-32]
    mixed = data[0][:at] + data[1][at:]
    with pytest.raises(lmc.CorruptError, match="t7"):
        lmc_numpy.load(mixed)
    with lmc.open(mixed) as r:
        assert r.get("t6").tobytes() == arrays["t6"].tobytes()
        first, last = (r.info(name).offset for name in ("t6", "t8"))
        r.read("", first, last - first - 1)
        with pytest.raises(lmc.CorruptError):
            r.read("", first, last - first)
