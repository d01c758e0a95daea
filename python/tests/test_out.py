"""load_file(out=) and load_model: what is decoded to memory that exists."""

import lmc_codec as lmc
import lmc_codec.numpy as lmc_numpy
import numpy as np
import pytest
import safetensors.torch
import torch
from lmc_codec.torch import apply_file, load_file, load_model, save_file, save_model

SHAPES = {f"t{i}": (7, 11) for i in range(40)} | {"large": (1200, 1000), "scalar": (), "empty": (0, 3), "last": (50,)}


def make(seed):
    g = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("kind", ["full", "arrays", "path"])
def test_out(tmp_path, kind):
    """Full files and deltas; some tensors of `out` are not contiguous, some are missing, and some are not in the file."""
    a, b = make(1), make(2)
    save_file(a, tmp_path / "a.lmc")
    save_file(b, tmp_path / "b.lmc", base=None if kind == "full" else a)
    out = {name: torch.zeros_like(t) for name, t in b.items() if name not in ("t5", "t6")}
    out["t3"] = torch.zeros(11, 7).t()
    out["large"].requires_grad_()
    out["other"] = torch.ones(3)
    before, version = {name: t.data_ptr() for name, t in out.items()}, out["large"]._version
    done = []
    base = {"full": None, "arrays": a, "path": tmp_path / "a.lmc"}[kind]
    found = load_file(tmp_path / "b.lmc", out=out, base=base, progress=lambda *x: done.append(x))
    assert found.keys() == b.keys() and out["large"]._version > version
    assert done[-1] == (sum(t.nbytes for t in b.values()),) * 2
    for name, t in b.items():
        assert torch.equal(found[name], t)
        assert (found[name] is out.get(name)) == (name in out)
        assert name not in out or out[name].data_ptr() == before[name]
    assert out["other"].tolist() == [1, 1, 1] and "t5" not in out


def test_out_of_numpy(tmp_path):
    arrays = {f"t{i}": np.full((3, 5), i, np.int16) for i in range(9)}
    lmc_numpy.save_file(arrays, tmp_path / "a.lmc")
    out = {name: np.zeros_like(x) for name, x in arrays.items() if name != "t4"}
    found = lmc_numpy.load_file(tmp_path / "a.lmc", out=out)
    assert all(np.array_equal(found[name], x) and found[name] is out.get(name, found[name]) for name, x in arrays.items())
    out["t2"].flags.writeable = False
    with pytest.raises(ValueError, match="'t2': it is read-only"):
        lmc_numpy.load_file(tmp_path / "a.lmc", out=out)


def test_out_of_safetensors(tmp_path):
    from safetensors.torch import save_file as save_theirs

    a = make(1)
    save_theirs(a, tmp_path / "a.safetensors")
    out = {name: torch.zeros_like(t) for name, t in a.items()}
    found = load_file(tmp_path / "a.safetensors", out=out)
    assert all(found[name] is out[name] and torch.equal(out[name], t) for name, t in a.items())


class Wrapper(torch.Tensor):
    """As a distributed tensor, it has a shape, but no memory of its own."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (7, 11), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls()


def test_refused_out(tmp_path):
    """Nothing is changed if an array does not fit, or if the base would change under the delta."""
    a, b = make(1), make(2)
    save_file(a, tmp_path / "a.lmc")
    save_file(b, tmp_path / "b.lmc", base=a)
    for name, wrong in (("last", torch.zeros(49)), ("large", torch.zeros(1200, 1000, dtype=torch.float16)), ("t2", torch.zeros(7, 11, device="meta"))):
        out = {name: torch.zeros_like(t) for name, t in a.items()} | {name: wrong}
        with pytest.raises(ValueError, match=f"out: '{name}': it"):
            load_file(tmp_path / "a.lmc", out=out)
        assert not out["t1"].any()
    for wrong in (Wrapper(), torch.zeros(7, 11).to_sparse()):
        out = {name: torch.zeros_like(t) for name, t in a.items()} | {"t39": wrong}
        with pytest.raises(ValueError, match="out: 't39': it (cannot be written|has no plain memory)"):
            load_file(tmp_path / "a.lmc", out=out)
        assert not out["t1"].any()
    for base in (a, lmc.Base(a), [lmc.Base(a)]):
        with pytest.raises(ValueError, match="apply_file"):
            load_file(tmp_path / "b.lmc", out=a, base=base)
    assert torch.equal(a["large"], make(1)["large"])
    with pytest.raises(TypeError, match="arrays by name"):
        load_file(tmp_path / "a.lmc", out=[1])


def test_damage_with_out(tmp_path):
    """Tensors before the damage have their new values, and the error names the damaged one."""
    rng = np.random.default_rng(3)
    arrays = {f"t{i}": torch.from_numpy(rng.integers(0, 256, 2 << 20, np.uint8)) for i in range(4)}
    save_file(arrays, tmp_path / "a.lmc")
    data = bytearray((tmp_path / "a.lmc").read_bytes())
    data[data.index(arrays["t2"][-1000:].numpy().tobytes())] ^= 1
    out = {name: torch.zeros_like(t) for name, t in arrays.items()}
    with pytest.raises(lmc.CorruptError, match="'t2'"):
        load_file(bytes(data), out=out)
    assert torch.equal(out["t0"], arrays["t0"]) and torch.equal(out["t1"], arrays["t1"]) and not out["t3"].any()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = torch.nn.Linear(30, 40), torch.nn.Linear(40, 30), torch.nn.LayerNorm(30)
        self.tied = self.first


def test_load_model_to_its_memory(tmp_path, monkeypatch):
    a, b = Net(), Net()
    save_model(a, tmp_path / "a.lmc")
    places = {name: t.data_ptr() for name, t in b.state_dict().items()}
    with monkeypatch.context() as m:
        m.setattr(torch.nn.Module, "_load_from_state_dict", lambda *x: pytest.fail("it copies"))
        assert load_model(b, tmp_path / "a.lmc") == (set(), [])
    state = b.state_dict()
    assert all(torch.equal(t, state[name]) and state[name].data_ptr() == places[name] for name, t in a.state_dict().items())
    b.half()  # another dtype: load_state_dict() converts
    load_model(b, tmp_path / "a.lmc")
    assert torch.equal(b.first.weight, a.first.weight.half())
    calls = []
    b.second.register_load_state_dict_pre_hook(lambda *x: calls.append(1))
    load_model(b, tmp_path / "a.lmc")
    assert calls == [1]


def test_load_model_says_what_differs(tmp_path):
    a, b = Net(), torch.nn.Sequential()
    save_model(a, tmp_path / "a.lmc")
    b.add_module("first", torch.nn.Linear(30, 40))
    b.add_module("more", torch.nn.Linear(2, 2))
    missing, unexpected = load_model(b, tmp_path / "a.lmc", strict=False)
    assert missing == {"more.weight", "more.bias"} and "second.weight" in unexpected
    assert torch.equal(b.first.weight, a.first.weight)
    with pytest.raises(RuntimeError, match='Missing key.*"more.bias"'):
        load_model(b, tmp_path / "a.lmc")


def test_memory_that_is_given_up_meanwhile(tmp_path):
    """What a tensor of `out` had when loading began stays until it ends, even if the tensor gets other memory."""
    a = {"a": torch.ones(3_000_000), "b": torch.ones(3_000_000)}
    save_file(a, tmp_path / "a.lmc")
    out = {name: torch.nn.Parameter(torch.zeros_like(t)) for name, t in a.items()}

    def give_up(done, total):
        out["b"].data = torch.zeros(3)

    loaded = load_file(tmp_path / "a.lmc", out=out, progress=give_up)
    assert torch.equal(loaded["a"], a["a"]) and loaded["b"] is out["b"] and out["b"].shape == (3,)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("suffix", ["lmc", "safetensors"])
def test_out_of_both_kinds(tmp_path, suffix):
    """Tensors and arrays, also np.matrix, wherever they come from."""
    a = {"small": torch.randn(5, 4), "matrix": torch.randn(5, 4), "half": torch.randn(300).half(), "tensor": torch.randn(9)}
    path = tmp_path / f"a.{suffix}"
    (save_file if suffix == "lmc" else safetensors.torch.save_file)(a, path)
    for load in load_file, lmc_numpy.load_file:
        out = {"small": np.zeros((5, 4), np.float32), "matrix": np.matrix(np.zeros((5, 4), np.float32)), "half": np.zeros(300, np.float16), "tensor": torch.zeros(9)}
        version = out["tensor"]._version
        loaded = load(path, out=out)
        assert all(loaded[name] is out[name] and (np.asarray(out[name]) == t.numpy()).all() for name, t in a.items())
        assert out["tensor"]._version > version
