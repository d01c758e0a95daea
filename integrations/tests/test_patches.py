"""lmc_integrations.patches with vLLM's and verl's own modules, if they are installed; else with replacements that have the
same fields. Their whole packages are not imported: these modules need only PyTorch."""

import importlib
import importlib.util
import io
import json
import sys
import types
from typing import NamedTuple

import lmc_codec
import pytest
import torch
from lmc_codec.torch import save_file
from lmc_integrations import patches

PATCH = "vllm.model_executor.model_loader.checkpoint_weight_patch"
NCCL = "vllm.distributed.weight_transfer.sparse_nccl_engine"
ENCODE = "verl.checkpoint_engine.delta_sync.encode"
SPARSE = "nemo_rl.utils.weight_transfer_sparse_codec"
APPLIER = "nemo_rl.models.generation.vllm.vllm_sparse_delta"
LOADER = "verl.workers.rollout.sglang_rollout.delta_loader"


def open_packages(monkeypatch, host, *modules):
    """Makes parent packages of these modules without running their __init__. False: the host is not installed."""
    spec = importlib.util.find_spec(host)
    if spec is None or not spec.submodule_search_locations:
        return False
    root = spec.submodule_search_locations[0]
    for module in modules:
        for depth in range(1, module.count(".") + 1):
            name = ".".join(module.split(".")[:depth])
            package = types.ModuleType(name)
            package.__path__ = ["/".join((root, *name.split(".")[1:]))]
            monkeypatch.setitem(sys.modules, name, package)
        monkeypatch.delitem(sys.modules, module, raising=False)
    return True


def put_module(monkeypatch, name, parents=True, **content):
    parts = name.split(".")
    for i in range(1 if parents else len(parts), len(parts) + 1):
        path = ".".join(parts[:i])
        module = types.ModuleType(path)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, path, module)
    vars(module).update(content)


@pytest.fixture
def vllm(monkeypatch, pretend):
    """load_checkpoint_weight_patches."""
    if open_packages(monkeypatch, "vllm", PATCH):
        yield importlib.import_module(PATCH).load_checkpoint_weight_patches
        sys.modules.pop(PATCH)
        return

    class CheckpointWeightPatch(NamedTuple):
        name: str
        shape: tuple
        dtype: torch.dtype
        values: torch.Tensor
        indices: torch.Tensor

    def load(model, given):
        for x in given:
            assert x.indices.dtype in (torch.int32, torch.int64) and x.values.dtype == x.dtype and x.indices.shape == x.values.shape
            assert tuple(model.state[x.name].shape) == x.shape
        if any(x.values.isnan().any() for x in given):
            raise ValueError("NaN values")
        for x in given:
            model.state[x.name].view(-1)[x.indices.long()] = x.values

    put_module(monkeypatch, PATCH, CheckpointWeightPatch=CheckpointWeightPatch)
    pretend("vllm", "0.33.0")
    yield load


@pytest.fixture
def apply_delta(monkeypatch, pretend):
    """The function of verl that SGLang calls."""
    if open_packages(monkeypatch, "verl", ENCODE, LOADER):
        yield importlib.import_module(LOADER).apply_delta
        sys.modules.pop(ENCODE), sys.modules.pop(LOADER)
        return
    import dataclasses

    fields = ("name", "dtype", "shape", "pos_start", "pos_end", "pos_width", "val_start", "val_end")

    def checksum(positions, values):
        return int(torch.hash_tensor(positions).item()) ^ (int(torch.hash_tensor(values).item()) << 1)

    def apply(model, named):
        named = dict(named)
        spec = json.loads(bytes(named["__delta_spec__"].numpy()))
        assert spec["encoding"] == "indices" and spec["checksum"] == checksum(named["__positions__"], named["__values__"])
        for p in spec["params"]:
            indices = named["__positions__"][p["pos_start"] : p["pos_end"]].view(torch.int32).long()
            values = named["__values__"][p["val_start"] : p["val_end"]]
            assert str(values.dtype) == "torch." + p["dtype"] and list(model.state[p["name"]].shape) == p["shape"] and p["pos_width"] == 4
            model.state[p["name"]].view(-1)[indices] = values

    put_module(monkeypatch, ENCODE, DeltaParam=dataclasses.make_dataclass("DeltaParam", fields), checksum=checksum)
    pretend("verl", "0.9.1")
    yield apply


@pytest.fixture
def nemo(monkeypatch, pretend):
    """apply(model, payloads), by NeMo-RL's class that its workers of vLLM have."""
    if open_packages(monkeypatch, "nemo_rl", SPARSE, APPLIER):
        put_module(monkeypatch, "nemo_rl.models.generation.vllm.config", parents=False, VllmSparseRefitConfig=object)
        put_module(monkeypatch, "nemo_rl.utils.nsys", parents=False, wrap_with_nvtx_name=lambda name: lambda function: function)
        module = importlib.import_module(APPLIER)

        def apply(model, payloads):
            model.buffers = lambda: iter(())
            model.parameters = lambda: iter(model.state.values())
            applier = module.VllmSparseDeltaApplier(types.SimpleNamespace(model=model), torch.device("cpu"))
            infos = {name: (tuple(t.shape), t.dtype) for name, t in model.state.items()}
            applier.discover_native_skips(infos)
            return applier.update_weights_from_decoded_sparse_payload(*payloads)

        pretend("nemo-rl", "0.6.0")
        yield apply
        sys.modules.pop(SPARSE), sys.modules.pop(APPLIER)
        return

    def integer_view(t):
        return t.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])

    def encode_sparse_infos(infos):
        items = [(name, tuple(t.shape), str(t.dtype), op, i, v) for name, t, i, v, op in infos]
        assert all(v.dtype == integer_view(torch.empty(0, dtype=t.dtype)).dtype and i.shape == v.shape for _, t, i, v, _ in infos)
        return items

    def apply(model, payloads):
        for payload in payloads:
            for name, shape, dtype, operation, indices, values in torch.load(io.BytesIO(payload), weights_only=True):
                target = model.state[name]
                assert operation == "overwrite" and tuple(target.shape) == shape and str(target.dtype) == dtype
                integer_view(target.view(-1))[indices.long()] = values

    put_module(monkeypatch, SPARSE, encode_sparse_infos=encode_sparse_infos, integer_view=integer_view)
    pretend("nemo-rl", "0.6.0")
    yield apply


class Model(torch.nn.Module):
    """A model that loads a checkpoint: one tensor is half of a packed one, as in engines."""

    def __init__(self, tensors):
        super().__init__()
        self.state = {name: t.clone() for name, t in tensors.items()}

    def load_weights(self, weights):
        for name, t in weights:
            self.state[name].copy_(t)
        return {name for name, _ in weights}


def make_step(tmp_path, **more):
    """A base, its next version, and a reader of the delta."""
    torch.manual_seed(3)
    old = {
        "embed": torch.randn(700, 512, dtype=torch.bfloat16), "norm": torch.ones(512, dtype=torch.bfloat16),
        "head": torch.randn(512, 300, dtype=torch.bfloat16), "router": torch.randn(64, 512), "scale": torch.randn(1), **more,
    }  # fmt: skip
    new = {name: t.clone() for name, t in old.items()}
    for name in ("embed", "head", "router"):
        flat = new[name].view(-1)
        chosen = torch.rand(flat.numel()) < 0.01
        flat[chosen] *= 1.25
    new["embed"][0, 0], new["embed"][0, 1], new["embed"][699, 511] = -0.0, float("inf"), 7
    new["scale"][0] = 9
    save_file(new, tmp_path / "delta.lmc", base=old)
    return old, new, lmc_codec.open(tmp_path / "delta.lmc", base=old)


def same(a, b):
    return all(torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8)) for name in b)


def test_vllm(vllm, tmp_path):
    old, new, reader = make_step(tmp_path)
    given = patches.vllm_patches(reader)
    assert sorted(x.name for x in given) == ["embed", "head", "router", "scale"]
    assert sum(x.values.numel() for x in given) < 0.02 * sum(t.numel() for t in new.values())
    model = Model(old)
    vllm(model, given)
    assert same(model.state, new)
    model = Model(old)
    vllm(model, patches.vllm_patches(reader, ["router"]))
    assert torch.equal(model.state["router"], new["router"]) and torch.equal(model.state["embed"], old["embed"])


def test_vllm_joins_parts(vllm, tmp_path, monkeypatch):
    monkeypatch.setattr("lmc_codec._reader._CHANGES", 100)
    old, new, reader = make_step(tmp_path)
    assert len(list(reader.changes(framework="torch"))) > 20
    given = patches.vllm_patches(reader)
    assert sorted(x.name for x in given) == ["embed", "head", "router", "scale"]
    model = Model(old)
    vllm(model, given)
    assert same(model.state, new)


def test_vllm_nccl(monkeypatch, pretend, tmp_path):
    class SparseWeightPatch(NamedTuple):
        name: str
        indices: torch.Tensor
        values: torch.Tensor
        full_shape: tuple

    put_module(monkeypatch, NCCL, SparseWeightPatch=SparseWeightPatch)
    pretend("vllm", "0.33.0")
    old, new, reader = make_step(tmp_path)
    for x in patches.vllm_nccl_patches(reader, device="cpu"):
        assert x.indices.dtype == torch.int32 and x.indices.ndim == x.values.ndim == 1 and x.full_shape == tuple(new[x.name].shape)
        old[x.name].view(-1)[x.indices.long()] = x.values
    assert same(old, new)


@pytest.mark.parametrize("max_bytes", [256 << 20, 1000])
def test_verl(apply_delta, tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr("lmc_codec._reader._CHANGES", 500)
    old, new, reader = make_step(tmp_path)
    model, last = Model(old), []
    for named, is_last in patches.verl_flushes(reader, max_bytes=max_bytes):
        apply_delta(model, named)
        last.append(is_last)
    assert same(model.state, new) and last == [False] * (len(last) - 1) + [True]
    assert len(last) == 2 if max_bytes > 1000 else len(last) > 4  # each flush has one dtype
    broken = dict(named)
    broken["__values__"] = broken["__values__"] + 1
    with pytest.raises((RuntimeError, AssertionError)):
        apply_delta(model, broken.items())


@pytest.mark.parametrize("max_bytes", [256 << 20, 1000])
def test_nemo(nemo, tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr("lmc_codec._reader._CHANGES", 500)
    old, new, reader = make_step(tmp_path)
    model = Model(old)
    payloads = list(patches.nemo_payloads(reader, max_bytes=max_bytes))
    assert len(payloads) == (1 if max_bytes > 1000 else 4) or max_bytes == 1000
    nemo(model, payloads)
    assert same(model.state, new)
    new["embed"][5, 5] = float("nan")
    save_file(new, tmp_path / "nan.lmc", base=old)
    with lmc_codec.open(tmp_path / "nan.lmc", base=old) as reader, pytest.raises(ValueError, match="'embed' .*become NaN in places, which NeMo-RL's"):
        list(patches.nemo_payloads(reader, ["embed"]))
    save_file(old, tmp_path / "same.lmc", base=old)
    with lmc_codec.open(tmp_path / "same.lmc", base=old) as reader:
        assert list(patches.nemo_payloads(reader)) == []


def test_nothing_has_changed(vllm, apply_delta, tmp_path):
    old = make_step(tmp_path)[0]
    save_file(old, tmp_path / "same.lmc", base=old)
    with lmc_codec.open(tmp_path / "same.lmc", base=old) as reader:
        assert patches.vllm_patches(reader) == [] and list(patches.verl_flushes(reader)) == []


def test_nan(vllm, apply_delta, tmp_path):
    """NaN means "not changed" there, so a new NaN is refused."""
    old, new, _ = make_step(tmp_path)
    new["embed"][5, 5] = float("nan")
    save_file(new, tmp_path / "nan.lmc", base=old)
    with lmc_codec.open(tmp_path / "nan.lmc", base=old) as reader:
        model = Model(old)
        with pytest.raises(ValueError, match="NaN"):
            vllm(model, patches.vllm_patches(reader))
        assert same(model.state, old)
        with pytest.raises(ValueError, match="'embed' is of integers, or has become NaN"):
            list(patches.verl_flushes(reader, ["embed"]))


def test_integers(apply_delta, tmp_path):
    old, new, _ = make_step(tmp_path, count=torch.zeros(3, dtype=torch.int32))
    new["count"] += 1
    save_file(new, tmp_path / "count.lmc", base=old)
    with lmc_codec.open(tmp_path / "count.lmc", base=old) as reader, pytest.raises(ValueError, match="'count' is of integers"):
        list(patches.verl_flushes(reader))


@pytest.mark.parametrize("host", ["vllm", "verl", "nemo-rl"])
def test_another_release(host, pretend, tmp_path):
    reader = make_step(tmp_path)[2]
    for version in (None, "0.1.0"):
        pretend(host, version)
        with pytest.raises(ImportError, match=host):
            list({"vllm": patches.vllm_patches, "verl": patches.verl_flushes, "nemo-rl": patches.nemo_payloads}[host](reader))
