"""register_miles() with miles' own module of disk deltas, if miles can be found (its packages are not imported: Ray and Megatron are
replaced); else with a replacement of the class, which does what miles says that it does."""

import importlib
import importlib.util
import json
import os
import sys
import types

import lmc_codec
import numpy as np
import pytest
import torch
from lmc_integrations import weight_sync
from lmc_integrations._sync_codecs import find_checksum
from safetensors.numpy import save
from safetensors.torch import load_file, save_file

DELTA = "miles.backends.megatron_utils.update_weight.update_weight_from_distributed.delta"


def put_package(monkeypatch, name, **content):
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def open_package(monkeypatch, root):
    """The parents of DELTA, without what their __init__ import; and what delta.py imports that needs Ray, Megatron, or a GPU."""
    parts = DELTA.split(".")[:-1]
    for i in range(1, len(parts) + 1):
        put_package(monkeypatch, ".".join(parts[:i])).__path__ = ["/".join((root, *parts[1:i]))]
    put_package(monkeypatch, "miles.utils").__path__ = [f"{root}/utils"]
    put_package(monkeypatch, "ray", get=lambda x: x)
    put_package(monkeypatch, "ray.actor", ActorHandle=object)
    one = types.SimpleNamespace(rank=0)
    put_package(monkeypatch, "miles.backends.training_utils")
    put_package(monkeypatch, "miles.backends.training_utils.parallel", get_parallel_state=lambda: types.SimpleNamespace(intra_dp_cp=one, tp=one))
    put_package(monkeypatch, "miles.utils.distributed_utils", get_gloo_group=lambda: None)
    put_package(monkeypatch, "miles.utils.misc", load_function=lambda path: HOOKS[path])
    put_package(monkeypatch, ".".join(parts[:-1] + ["common"]), _check_weight_sync_results=lambda *unused, **more: None)
    put_package(monkeypatch, ".".join(parts + ["mixin"]), DistBucketedWeightUpdateMixin=Mixin)
    for name in (DELTA, "miles.utils.disk_delta"):
        monkeypatch.delitem(sys.modules, name, raising=False)


class Mixin:
    """Gives out the trainer's tensors in two buckets, as miles' does when they are gathered."""

    def _init_lora(self, **unused):
        pass

    def _gather_and_update_non_expert_weights(self, function, progress):
        function(list(self.model.items())[:2], progress)

    def _gather_and_update_expert_weights(self, function, progress):
        function(list(self.model.items())[2:], progress)


class StandIn(Mixin):
    _is_source = True

    def __init__(self, args, model, weights_getter, **unused):
        self.args, self.model, self.delta_dir = args, model, args.update_weight_disk_dir
        self.delta_encoding, self.checksum_algorithm, self.weight_version = "xor", args.update_weight_delta_checksum, 0
        self._post_write_hook = HOOKS.get(args.custom_update_weight_post_write_path)

    def _capture_baseline(self):
        self._snapshot = {name: t.view(torch.uint8).numpy().reshape(-1) for name, t in load_file(f"{self.args.hf_checkpoint}/model.safetensors").items()}

    def _for_each_hf_bucket(self, bucket_func):
        self._gather_and_update_non_expert_weights(bucket_func, None)
        self._gather_and_update_expert_weights(bucket_func, None)

    def _encode_delta(self):
        raise AssertionError("not replaced")

    def _publish(self):
        self._encode_delta()
        file = "model-00000-of-00001.safetensors"
        with open(os.path.join(self._version_dir, file), "wb") as f:
            f.write(save(self._delta, metadata=self._checksums))
        meta = {"version": f"{self.weight_version:06d}", "base_version": f"{self.weight_version - 1:06d}", "delta_encoding": self.delta_encoding,
                "compression_format": "zstd", "checksum_format": self.checksum_algorithm}  # fmt: skip
        with open(os.path.join(self._version_dir, "model.safetensors.index.json"), "w") as f:
            f.write(sys.modules[DELTA].json.dumps({"metadata": meta, "weight_map": dict.fromkeys(self._delta, file)}))

    def _reload_engines(self):
        self._post_write_hook(self.args, self._version_dir, [])


HOOKS = {}


@pytest.fixture
def updater(monkeypatch, pretend, one_rank):
    """The class, registered."""
    found = importlib.util.find_spec("miles")
    if found is not None and found.submodule_search_locations:
        open_package(monkeypatch, found.submodule_search_locations[0])
        module = importlib.import_module(DELTA)
    else:
        for i in range(1, DELTA.count(".") + 1):
            put_package(monkeypatch, ".".join(DELTA.split(".")[:i]))
        checksum = lambda algorithm, data: find_checksum(algorithm)(data)  # noqa: E731
        module = put_package(monkeypatch, DELTA, UpdateWeightFromDiskDelta=StandIn, checksum=checksum, json=json, NUM_WORKERS=2)
        monkeypatch.setattr(StandIn, "_encode_delta", StandIn._encode_delta)
        setattr(sys.modules[DELTA.rpartition(".")[0]], "delta", module)
    pretend("miles", "0.1.0")
    weight_sync.register_miles()
    weight_sync.register_miles()
    return module.UpdateWeightFromDiskDelta


@pytest.mark.parametrize("checksum", ["xxh3-128", "adler32"])
def test_two_steps(updater, tmp_path, checksum):
    torch.manual_seed(5)
    names = ("embed", "norm", "frozen", "head")
    steps = [{x: torch.randn(300, 100 + i).to(torch.float32 if x == "norm" else torch.bfloat16) for i, x in enumerate(names)}]
    for _ in range(2):
        steps.append({x: t if x == "frozen" else (t.float() * (1 + 0.3 * (torch.rand(t.shape) < 0.03))).to(t.dtype) for x, t in steps[-1].items()})
    (tmp_path / "hf").mkdir()
    save_file(steps[0], tmp_path / "hf/model.safetensors")
    hooked = []
    HOOKS["hook"] = lambda args, place, engines: hooked.append(os.path.basename(place))
    args = types.SimpleNamespace(update_weight_disk_dir=str(tmp_path / "sync"), update_weight_delta_encoding="xor", update_weight_delta_checksum=checksum,
                                 custom_update_weight_post_write_path="hook", hf_checkpoint=str(tmp_path / "hf"), check_weight_update_equal=False,
                                 pause_generation_mode="in_place", update_weight_local_checkpoint_dir="")  # fmt: skip
    os.makedirs(args.update_weight_disk_dir)
    made = updater(args, steps[0], None, model_name="m", quantization_config=None)
    made.rollout_engines, made._group_name = [], "test"
    made._capture_baseline()
    for version in (1, 2):
        made.model, made.weight_version = steps[version], version
        made._publish()
        made._reload_engines()
        assert made.total_bytes == sum(t.nbytes for t in steps[0].values()) and 0 < made.changed_bytes < 0.1 * made.total_bytes
        assert set(made._delta) == {"embed", "norm", "head"}
        meta = json.loads((tmp_path / f"sync/weight_v{version:06d}/model.safetensors.index.json").read_text())["metadata"]
        assert (meta["compression_format"], meta["delta_encoding"], meta["checksum_format"]) == ("lmc", "prediction", checksum)
        weight_sync.receive(tmp_path / "sync", tmp_path / "local", base=tmp_path / "hf")
        found = load_file(tmp_path / "local/model.safetensors")
        assert all(torch.equal(found[x], t) for x, t in steps[version].items())
    assert hooked[-2:] == ["weight_v000001", "weight_v000002"]
    old, new = (step["embed"].view(torch.uint8).numpy().reshape(-1).copy() for step in steps[1:])
    payload = made._delta["embed"]
    lmc_codec.tensor_decode(payload, old, old)  # as apply_lmc of SGLang's side does, in place
    assert np.array_equal(old, new)
    made.model, made.weight_version = {**steps[2], "norm": torch.zeros(3)}, 3
    with pytest.raises(weight_sync.SyncError, match="tensor 'norm' has 12 bytes"):
        made._publish()
