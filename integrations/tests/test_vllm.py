"""lmc_integrations.vllm with vLLM's own classes, if vLLM can be imported; else with replacements of the classes that it
uses."""

import dataclasses
import importlib
import importlib.metadata
import json
import sys
import types

import fsspec
import lmc_codec
import pytest
import torch
from lmc_integrations import _hosts, _sync_files, weight_sync
from safetensors.torch import load_file, save_file


def make_stand_ins(monkeypatch):
    """The names and signatures of vLLM 0.33 that lmc_integrations.vllm uses."""

    class DefaultModelLoader:
        @dataclasses.dataclass
        class Source:
            model_or_path: str
            revision: str | None
            subfolder: str | None = None
            prefix: str = ""
            fall_back_to_pt: bool = True
            allow_patterns_overrides: list | None = None
            is_unused_weight: object = None

        def __init__(self, load_config):
            self.load_config, self.local_expert_ids = load_config, None
            assert not load_config.model_loader_extra_config

        def get_all_weights(self, model_config, model):
            is_unused = getattr(model, "is_unused_checkpoint_weight", None)
            yield from self._get_weights_iterator(self.Source(model_config.model, None, is_unused_weight=is_unused))

        def load_weights(self, model, model_config):
            model.load_weights(self.get_all_weights(model_config, model))

        def download_model(self, model_config):
            self._prepare_weights(model_config.model, None, None, True, None)

    class Engine:
        def __class_getitem__(cls, types):
            return cls

        def __init__(self, config, vllm_config, device, model):
            self.model, self.model_config = model, vllm_config.model_config

        def parse_init_info(self, info):
            return self.init_info_cls(**info)

        def update_weights(self, info):
            self.receive_weights(self.update_info_cls(**info))

    class Factory:
        registry = {}

        @classmethod
        def register_engine(cls, name, engine):
            if name in cls.registry:
                raise ValueError("registered")
            cls.registry[name] = engine

        @classmethod
        def create_engine(cls, config, *rest):
            return cls.registry[config.backend](config, *rest)

    def skip(name, local):
        return local is not None and ".experts." in name and int(name.split(".experts.")[1].split(".")[0]) not in local

    def nothing(*unused, **unused_too):
        pass

    loaders = {}
    content = {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {},
        "vllm.distributed.weight_transfer.base": {
            "WeightTransferEngine": Engine,
            "WeightTransferInitInfo": object,
            "WeightTransferUpdateInfo": object,
        },
        "vllm.distributed.weight_transfer.factory": {"WeightTransferEngineFactory": Factory},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {
            "register_model_loader": lambda name: lambda loader: loaders.setdefault(name, loader),
            "get_model_loader": lambda config: loaders[config.load_format](config),
        },
        "vllm.model_executor.model_loader.default_loader": {"DefaultModelLoader": DefaultModelLoader},
        "vllm.model_executor.model_loader.ep_weight_filter": {"should_skip_weight": skip},
        "vllm.model_executor.model_loader.weight_utils": dict.fromkeys(
            ("download_weights_from_hf", "download_safetensors_index_file_from_hf"), nothing
        ),
        "vllm.model_executor.model_loader.reload": dict.fromkeys(
            ("initialize_layerwise_reload", "finalize_layerwise_reload"), nothing
        ),
        "vllm.config.load": {
            "LoadConfig": dataclasses.make_dataclass(
                "LoadConfig", ["load_format", ("model_loader_extra_config", dict, None), ("download_dir", str, None)]
            )
        },
        "vllm.config.weight_transfer": {
            "WeightTransferConfig": dataclasses.make_dataclass("WeightTransferConfig", ["backend"])
        },
        "vllm.config": {},
    }
    for name, values in content.items():
        module = types.ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def vllm(monkeypatch, pretend):
    """The module lmc_integrations.vllm, registered."""
    try:
        importlib.import_module("vllm.model_executor.model_loader")
    except ImportError:
        make_stand_ins(monkeypatch)
        pretend("vllm", "0.33.0")
        forget_modules()
    else:
        monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)  # there is no accelerator
    module = importlib.import_module("lmc_integrations.vllm")
    module.register()
    module.register()  # vLLM may call it twice
    return module


def forget_modules():
    for name in ("vllm", "_vllm_loader", "_vllm_engine"):
        sys.modules.pop(f"lmc_integrations.{name}", None)


@pytest.mark.parametrize(
    "missing, fault",
    [
        ("vllm", None),
        ("vllm.distributed.weight_transfer", None),
        ("vllm.distributed.weight_transfer.factory", None),
        ("vllm.model_executor.model_loader.ep_weight_filter", None),
        ("vllm.model_executor.model_loader.default_loader", {"DefaultModelLoader": 5}),
        ("vllm.distributed.weight_transfer.factory", {"WeightTransferEngineFactory": object}),
    ],
)
def test_parts_that_vllm_lacks(monkeypatch, pretend, caplog, missing, fault):
    """register() runs in every process of vLLM: missing interfaces are left out, the others are registered, and nothing is
    raised."""
    make_stand_ins(monkeypatch)
    pretend("vllm", "0.33.0")
    for name in [name for name in sys.modules if name == missing or name.startswith(missing + ".")]:
        monkeypatch.setitem(sys.modules, name, None)
    if fault is not None:
        module = types.ModuleType(missing)
        module.__dict__.update(fault)
        monkeypatch.setitem(sys.modules, missing, module)
    forget_modules()
    caplog.set_level("INFO", "lmc_integrations.vllm")
    module = importlib.import_module("lmc_integrations.vllm")
    module.register()
    has_loader, has_engine = "weight_transfer" in missing, "model_loader" in missing
    wanted = {name for name, has in (("_vllm_loader", has_loader), ("_vllm_engine", has_engine)) if has}
    assert module._registered == wanted
    assert len(caplog.records) == 2 - len(wanted) and all("with this vLLM" in x.getMessage() for x in caplog.records)
    if has_engine:
        factory = sys.modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory
        assert list(factory.registry) == ["lmc"]
    module.register()  # once more
    forget_modules()


@pytest.mark.parametrize("version, is_there", [(None, False), ("0.32.4", False), ("dev", False), ("0.34.0", True)])
def test_other_releases_of_vllm(monkeypatch, pretend, caplog, version, is_there):
    """They are used if they have what is needed. Else a line in the log for each interface names the tested releases, and
    nothing is raised."""
    make_stand_ins(monkeypatch)
    for name in [] if is_there else [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.setitem(sys.modules, name, None)
    pretend("vllm", version)
    monkeypatch.setattr(_hosts, "_said", set())
    forget_modules()
    module = importlib.import_module("lmc_integrations.vllm")
    module.register()
    assert len(module._registered) == (2 if is_there else 0)
    assert len(caplog.records) == (1 if is_there else 2)
    assert all(line.levelname == "WARNING" and "vllm 0.33" in line.getMessage() for line in caplog.records)
    forget_modules()


@pytest.mark.parametrize("module, name, why", [
    ("weight_utils", "download_weights_from_hf", "is not called with"), ("ep_weight_filter", "should_skip_weight", "is not called with"),
    ("default_loader.DefaultModelLoader", "_prepare_weights", "has other parameters, (self, source), in _prepare_weights"),
])  # fmt: skip
def test_changes_of_vllm(monkeypatch, pretend, caplog, module, name, why):
    """The interface that they do not concern is still there."""
    make_stand_ins(monkeypatch)
    parts = module.split(".")
    place = sys.modules[f"vllm.model_executor.model_loader.{parts[0]}"]
    place = getattr(place, parts[1]) if parts[1:] else place
    monkeypatch.setattr(place, name, lambda self, source: None, raising=False)
    pretend("vllm", "0.34.0")
    forget_modules()
    vllm = importlib.import_module("lmc_integrations.vllm")
    vllm.register()
    assert vllm._registered == ({"_vllm_engine"} if name != "should_skip_weight" else {"_vllm_engine", "_vllm_loader"})
    assert any(why in line.getMessage() for line in caplog.records) == (name != "should_skip_weight")
    forget_modules()


class Model(torch.nn.Module):
    """A model that takes weights as vLLM's models do."""

    def __init__(self, tensors):
        super().__init__()
        for name, t in tensors.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.zeros_like(t), requires_grad=False))

    def load_weights(self, weights):
        loaded = set()
        own = dict(self.named_parameters())
        for name, t in weights:
            own[name.replace(".", "_")].data.copy_(t)
            loaded.add(name.replace(".", "_"))
        return loaded

    def has(self, tensors):
        return all(torch.equal(getattr(self, name.replace(".", "_")), t) for name, t in tensors.items())


@pytest.fixture
def tensors():
    torch.manual_seed(2)
    names = ("embed", "layers.0.mlp.experts.0.w1.weight", "layers.0.mlp.experts.1.w1.weight", "norm")
    return {name: torch.randn(40, 30).to(torch.bfloat16) for name in names}


def model_config(path):
    return types.SimpleNamespace(
        model=str(path), revision=None, quantization=None, multimodal_config=None, is_moe=False, dtype=torch.bfloat16
    )


@pytest.fixture(autouse=True)
def no_config_of_an_engine(monkeypatch):
    """The distribution of experts, which only a running engine has."""
    loader = sys.modules.get("vllm.model_executor.model_loader.default_loader")
    if loader is not None:
        monkeypatch.setattr(loader.DefaultModelLoader, "_init_ep_weight_filter", lambda *unused: None, raising=False)


def get_loader(**options):
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader import get_model_loader

    return get_model_loader(LoadConfig(load_format="lmc", **options))


def test_the_entry_point():
    points = [x for x in importlib.metadata.entry_points(group="vllm.general_plugins") if x.name == "lmc"]
    assert not points or points[0].value == "lmc_integrations.vllm:register"  # none if the package is not installed


def test_load(vllm, tensors, tmp_path, monkeypatch):
    names = list(tensors)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for file, part in zip(files, (names[:2], names[2:])):
        lmc_codec.torch.save_file({name: tensors[name] for name in part}, tmp_path / (file + ".lmc"))
    weight_map = dict.fromkeys(names[:2], files[0]) | dict.fromkeys(names[2:], files[1])
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    lmc_codec.torch.save_file({"embed": torch.zeros(3)}, tmp_path / "consolidated.lmc")  # the index does not name this file
    loader = get_loader()
    assert type(loader).__name__ == "LMCModelLoader"
    monkeypatch.setattr(loader, "_init_ep_weight_filter", lambda *unused: None, raising=False)
    loader.download_model(model_config(tmp_path))
    model = Model(tensors)
    loader.load_weights(model, model_config(tmp_path))
    assert model.has(tensors)
    loader.local_expert_ids = {1}
    model.is_unused_checkpoint_weight = lambda name: name == "norm"
    found = dict(loader.get_all_weights(model_config(tmp_path), model))
    assert list(found) == ["embed", "layers.0.mlp.experts.1.w1.weight"]


def test_load_a_delta(vllm, tensors, tmp_path, monkeypatch):
    for step in ("one", "two"):
        (tmp_path / step).mkdir()
    lmc_codec.torch.save_file(tensors, tmp_path / "one" / "model.lmc")
    new = {**tensors, "norm": tensors["norm"] + 1}
    lmc_codec.torch.save_file(new, tmp_path / "two" / "model.lmc", base=tmp_path / "one" / "model.lmc")
    loader = get_loader(model_loader_extra_config={"base": str(tmp_path / "one"), "threads": 2})
    monkeypatch.setattr(loader, "_init_ep_weight_filter", lambda *unused: None, raising=False)
    model = Model(tensors)
    loader.load_weights(model, model_config(tmp_path / "two"))
    assert model.has(new)
    with pytest.raises(lmc_codec.MissingBaseError):
        dict(get_loader().get_all_weights(model_config(tmp_path / "two"), model))


def put_in_store(path, url):
    store, root = fsspec.core.url_to_fs(url)
    store.put(str(path), root, recursive=True)


def test_load_from_a_store(vllm, tensors, tmp_path):
    """The weights by URL, shards and a delta; the model's directory has only its configuration."""
    new = {**tensors, "norm": tensors["norm"] + 1}
    for step in ("one", "two", "config"):
        (tmp_path / step).mkdir()
    lmc_codec.torch.save_file(tensors, tmp_path / "one" / "model.lmc")
    lmc_codec.torch.save_file(new, tmp_path / "two" / "model.lmc", base=tmp_path / "one" / "model.lmc")
    try:
        put_in_store(tmp_path / "one", "memory://test_vllm/one"), put_in_store(tmp_path / "two", "memory://test_vllm/two")
        where = model_config(tmp_path / "config")
        for place, base, wanted in (("one", None, tensors), ("two", "memory://test_vllm/one", new), ("two/model.lmc", str(tmp_path / "one"), new)):
            extra = {"weights": f"memory://test_vllm/{place}", "storage_options": {"skip_instance_cache": True}, **({"base": base} if base else {})}
            loader, model = get_loader(model_loader_extra_config=extra), Model(tensors)
            loader.download_model(where)
            loader.load_weights(model, where)
            assert model.has(wanted)
        where.model_weights = "memory://test_vllm/one"  # vLLM says so of a model at s3://
        model = Model(tensors)
        get_loader().load_weights(model, where)
        assert model.has(tensors)
        where.model_weights = "memory://test_vllm/nowhere"
        with pytest.raises(FileNotFoundError):
            get_loader().load_weights(model, where)
    finally:
        fsspec.filesystem("memory").rm("/test_vllm", recursive=True)


def test_weight_transfer_from_a_store(vllm, tensors, tmp_path):
    steps, local = make_steps(tensors), tmp_path / "host"
    model = Model(tensors)
    engine, sync, _ = make_engine(model, tmp_path, steps)
    url = "memory://test_vllm_sync"
    try:
        for version in sorted(sync.glob("weight_v*")):
            weight_sync.upload(version, url)
        engine.init_transfer_engine(engine.parse_init_info({"sync_dir": url, "local_dir": str(local), "storage_options": {}}))
        for info, step in (({"version": 1}, steps[1]), ({}, steps[2])):
            engine.update_weights(info)
            assert model.has(step)
    finally:
        fsspec.filesystem("memory").rm("/test_vllm_sync", recursive=True)


def test_load_on_the_gpu(vllm, tensors, tmp_path, monkeypatch):
    """Only the device and the amount at once are tested here; lmc_codec's tests cover decoding."""
    asked = []

    def get_all(reader, infos, device, most):
        asked.append((device, most))
        return ((x.name, reader.get(x.name)) for x in infos)

    monkeypatch.setattr("lmc_codec._gpu.get_all", get_all)
    lmc_codec.torch.save_file(tensors, tmp_path / "model.lmc")
    loader = get_loader(model_loader_extra_config={"decode": "gpu"})
    monkeypatch.setattr(loader, "_init_ep_weight_filter", lambda *unused: None, raising=False)
    model = Model(tensors)
    loader.load_weights(model, model_config(tmp_path))
    assert model.has(tensors) and asked == [("cuda", 1 << 30)]
    with pytest.raises(ValueError, match="decode is 'cpu' or 'gpu', not 'both'"):
        get_loader(model_loader_extra_config={"decode": "both"})


def test_weight_transfer(vllm, tensors, tmp_path, monkeypatch):
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import reload

    called = []
    for name in ("initialize_layerwise_reload", "finalize_layerwise_reload"):
        monkeypatch.setattr(reload, name, lambda *unused, name=name: called.append(name))
    steps = [{name: t + (i if name == "norm" else 0) for name, t in tensors.items()} for i in range(3)]
    for i, step in enumerate(steps):
        (tmp_path / str(i)).mkdir()
        save_file(step, tmp_path / str(i) / "model.safetensors", {"format": "pt"})
    sync, local = tmp_path / "sync", tmp_path / "local"
    for i in (1, 2):
        weight_sync.publish(tmp_path / str(i), sync, version=i, base=tmp_path / str(i - 1), checksum="adler32")
    model = Model(tensors)
    config = types.SimpleNamespace(model_config=model_config(tmp_path), parallel_config=None)
    engine = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend="lmc"), config, torch.device("cpu"), model
    )
    with pytest.raises(ValueError, match="sync_dir"):
        engine.init_transfer_engine(engine.parse_init_info({"sync_dir": "/nowhere", "local_dir": str(local)}))
    engine.init_transfer_engine(
        engine.parse_init_info({"sync_dir": str(sync), "local_dir": str(local), "base": str(tmp_path / "0")})
    )
    for info, step in (({"version": 1}, steps[1]), ({}, steps[2])):
        engine.start_weight_update()
        engine.update_weights(info)
        engine.finish_weight_update()
        assert model.has(step)
    assert load_file(local / "model.safetensors").keys() == tensors.keys()
    assert called == ["initialize_layerwise_reload", "finalize_layerwise_reload"] * 2
    with pytest.raises(weight_sync.SyncWrongBase):
        engine.update_weights({"version": 9})
    assert model.has(steps[2])
    engine.shutdown()


class SlowModel(torch.nn.Module):
    """Calls act() with the first tensor, while all others are still to come."""

    def __init__(self, act):
        super().__init__()
        self.act, self.got = act, {}

    def load_weights(self, weights):
        for name, tensor in weights:
            if not self.got:
                self.act()
            self.got[name] = tensor.clone()


def make_engine(model, tmp_path, steps):
    """The engine of a machine whose checkpoint is made of one file for each tensor, and all versions published."""
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    sync, local = tmp_path / "sync", tmp_path / "local"
    for i, step in enumerate(steps):
        (tmp_path / str(i)).mkdir()
        for n, name in enumerate(step):
            save_file({name: step[name]}, tmp_path / str(i) / f"model-{n}.safetensors", {"format": "pt"})
        base = tmp_path / str(i - 1) if i > 1 else None
        if i:
            weight_sync.publish(tmp_path / str(i), sync, version=i, base=base, checksum="adler32")
    config = types.SimpleNamespace(model_config=model_config(tmp_path), parallel_config=None)
    engine = WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend="lmc"), config, torch.device("cpu"), model
    )
    engine.init_transfer_engine(engine.parse_init_info({"sync_dir": str(sync), "local_dir": str(local)}))
    return engine, sync, local


def make_steps(tensors):
    return [{name: t + i if t.is_floating_point() else t for name, t in tensors.items()} for i in range(3)]


def test_weight_transfer_beside_another_receiver(vllm, tensors, tmp_path):
    """Each worker loads one version, the one it asked for, though another receiver replaces the files meanwhile."""
    steps = make_steps(tensors)
    model = SlowModel(lambda: weight_sync.receive(sync, local))
    engine, sync, local = make_engine(model, tmp_path, steps)
    engine.update_weights({"version": 1})
    assert model.got.keys() == steps[1].keys()
    assert all(torch.equal(model.got[name], t) for name, t in steps[1].items())
    name = next(iter(tensors))
    assert torch.equal(load_file(local / "model-0.safetensors")[name], steps[2][name])


def test_weight_transfer_opens_under_the_lock(vllm, tensors, tmp_path, monkeypatch):
    import fcntl

    steps, tried = make_steps(tensors), []
    model = SlowModel(lambda: None)
    engine, sync, local = make_engine(model, tmp_path, steps)
    real = _sync_files.Checkpoint._open

    def open_and_try(checkpoint):
        if checkpoint.directory == str(local):
            with open(local / ".weight_sync" / "lock", "a") as f, pytest.raises(BlockingIOError):
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tried.append(1)
        real(checkpoint)

    monkeypatch.setattr(_sync_files.Checkpoint, "_open", open_and_try)
    engine.update_weights({})
    assert tried and all(torch.equal(model.got[name], t) for name, t in steps[2].items())


@pytest.mark.parametrize("how", ["cut", "rewritten"])
def test_weight_transfer_of_files_that_others_write(vllm, tensors, tmp_path, monkeypatch, how):
    """Nothing is mapped: an error, no signal, and no tensor of a file that was written to."""
    steps = make_steps(tensors)
    model = SlowModel(lambda: None)
    engine, sync, local = make_engine(model, tmp_path, steps)
    real, changed = _sync_files.Checkpoint._open, local / "model-0.safetensors"

    def open_and_change(checkpoint):
        real(checkpoint)
        if checkpoint.directory == str(local):
            data = changed.read_bytes()
            changed.write_bytes(data[:-1] if how == "cut" else data[:-1] + bytes([data[-1] ^ 1]))

    monkeypatch.setattr(_sync_files.Checkpoint, "_open", open_and_change)
    with pytest.raises(weight_sync.SyncReadError, match="it had .* bytes when it was opened|changed while it was read"):
        engine.update_weights({})
    assert not model.got


def test_weight_transfer_without_locks(vllm, tensors, tmp_path, monkeypatch):
    """The files are opened again after another receiver had come between: the version is another one."""
    steps = make_steps(tensors)
    model = SlowModel(lambda: None)
    engine, sync, local = make_engine(model, tmp_path, steps)
    real, first = _sync_files.Checkpoint._open, []

    def receive_and_open(checkpoint):
        if checkpoint.directory == str(local) and not first:
            first.append(1)
            weight_sync.receive(sync, local)
        real(checkpoint)

    monkeypatch.setattr(_sync_files, "attempt", lambda *unused: False)
    monkeypatch.setattr(_sync_files.Checkpoint, "_open", receive_and_open)
    with pytest.raises(weight_sync.SyncReadError, match="received version 000002 there, without a lock: repeat this"):
        engine.update_weights({"version": 1})
    assert not model.got
