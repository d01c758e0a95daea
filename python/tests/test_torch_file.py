"""Tensors of a torch.save() file are those that torch.load() gives, not those that lie in memory."""

import lmc_codec as lmc
import lmc_codec.torch
import numpy as np
import pytest
import torch
from test_files import run_lmc


def flat(path, x):
    if isinstance(x, torch.Tensor):
        yield path, x
        return
    for key, value in x.items() if isinstance(x, dict) else enumerate(x):
        yield from flat(f"{path}.{key}" if path else str(key), value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(1)
    path, w = tmp_path_factory.mktemp("torch"), torch.randn(50, 60)
    state = {
        "t": torch.arange(1600.0).reshape(40, 40).t(),  # square: its shape does not tell
        "plain": torch.randn(40, 40).to(torch.bfloat16),
        "channels_last": torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        "embed": w,
        "lm_head": w,
        "rows": w[3:5],
        "column": w[:, 3],
        "one": torch.ones(1).expand(5),
        "nested": {"list": [torch.ones(300, dtype=torch.int64), torch.nn.Parameter(torch.randn(30, 20).t())]},
    }
    torch.save(state, path / "v.pt")
    run_lmc("-o", path / "v.lmc", path / "v.pt")
    return path / "v.lmc", state


def test_what_torch_load_gives(saved):
    path, state = saved
    loaded = lmc.torch.load_file(path)
    for name, x in flat("", state):
        assert loaded[name].dtype == x.dtype and torch.equal(loaded[name], x), name
        with lmc.open(path, framework="torch") as r:  # by name alone, before anything was listed
            assert r.info(name).shape == tuple(x.shape)
            assert torch.equal(r[name], x) and torch.equal(r.get_slice(name)[0], x[0])
            out = torch.zeros(x.shape, dtype=x.dtype)
            assert r.get(name, out=out) is out and torch.equal(out, x)
            assert r.encoded_size(name) > 0
            if x.dtype != torch.bfloat16:
                assert np.array_equal(r.get(name, framework="numpy"), x.detach().numpy())
                out = np.zeros(tuple(x.shape), r.get(name, framework="numpy").dtype)
                assert np.array_equal(r.get(name, out=out), x.detach().numpy())
    with lmc.open(path) as r:
        assert r.get("embed", framework="bytes") == r.get("lm_head", framework="bytes") == state["embed"].numpy().tobytes()
        with pytest.raises(lmc.UnsupportedError, match="do not lie in order"):
            r.get("t", framework="bytes")
        with pytest.raises(lmc.NotFoundError):
            r["nosuch"]


def test_flags(tmp_path):
    torch.save({"c": torch.randn(500, dtype=torch.complex64).conj(), "w": torch.zeros(500)}, tmp_path / "v.pt")
    run_lmc("-o", tmp_path / "v.lmc", tmp_path / "v.pt")
    with lmc.open(tmp_path / "v.lmc", framework="torch") as r:
        assert torch.equal(r["w"], torch.zeros(500))
        with pytest.raises(lmc.UnsupportedError, match="conjugated"):
            r["c"]


def test_a_pickle_that_is_not_understood(saved, monkeypatch):
    """Rather no tensor than another one; what there is, is listed."""
    from lmc_codec import _torch_file

    path, _ = saved
    monkeypatch.setattr(_torch_file, "MAX_PICKLE", 10)
    with lmc.open(path, framework="torch") as r:
        assert "t" in r.keys()
        with pytest.raises(lmc.UnsupportedError, match="not understood"):
            r["t"]


def test_a_pickle_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    torch.save({"evil": Evil(), "t": torch.randn(40, 40).t()}, tmp_path / "v.pt")
    run_lmc("-o", tmp_path / "v.lmc", tmp_path / "v.pt")
    with lmc.open(tmp_path / "v.lmc") as r:
        list(r), [r.get(name) for name in r if not name.startswith(("@", "data/"))]
    assert not (tmp_path / "made").exists()


def test_distcp(tmp_path):
    import torch.distributed.checkpoint as dcp

    state = {"t": torch.randn(40, 40).t(), "w": torch.randn(30, 20)}
    with pytest.warns(UserWarning):
        dcp.save(state, checkpoint_id=tmp_path / "c")
    run_lmc("-o", tmp_path / "c.lmc", tmp_path / "c")
    with lmc.open(tmp_path / "c.lmc", framework="torch") as r:
        assert torch.equal(r["t"], state["t"]) and torch.equal(r["w"], state["w"])
