"""register_modelexpress() with the receiver and trainer of ModelExpress 0.7, if they can be imported (they need no GPU);
and always the decompressor, called as the receiver calls it."""

import json
import sys
import types
import zlib

import lmc_codec
import numpy as np
import pytest
from lmc_integrations import weight_sync


@pytest.fixture
def theirs(monkeypatch, pretend):
    """ModelExpress' receiver and trainer module; without them, replacements with the attributes that are set."""
    try:
        from modelexpress_rl.inference import receiver
        from modelexpress_rl.train.methods import canonical_delta
    except ImportError:
        receiver = types.ModuleType("modelexpress_rl.inference.receiver")
        receiver._DECOMPRESSORS = {"zstd": None}
        canonical_delta = types.ModuleType("modelexpress_rl.train.methods.canonical_delta")
        canonical_delta.json, canonical_delta.compress_delta = json, None
        packages = ("", ".inference", ".train", ".train.methods")
        for name in packages:
            monkeypatch.setitem(sys.modules, "modelexpress_rl" + name, types.ModuleType("modelexpress_rl" + name))
        for module in (receiver, canonical_delta):
            parent, _, name = module.__name__.rpartition(".")
            monkeypatch.setitem(sys.modules, module.__name__, module)
            setattr(sys.modules[parent], name, module)
        pretend("modelexpress", "0.7.0")
    monkeypatch.setattr(receiver, "_DECOMPRESSORS", dict(receiver._DECOMPRESSORS))
    for name in ("compress_delta", "json"):
        monkeypatch.setattr(canonical_delta, name, getattr(canonical_delta, name))
    weight_sync.register_modelexpress()
    weight_sync.register_modelexpress()
    return receiver, canonical_delta


@pytest.fixture
def step():
    """A bf16 tensor and its next version, as bytes: 10 MB, of which 2 % change."""
    rng = np.random.default_rng(5)
    old = (rng.standard_normal(5_000_000).astype(np.float32) * 0.02).view(np.uint32) >> 16
    old = old.astype(np.uint16)
    new = old.copy()
    new[rng.random(new.size) < 0.02] += 1
    return old.view(np.uint8), new.view(np.uint8)


def test_read(theirs, step):
    receiver, trainer = theirs
    old, new = step
    payload = trainer.compress_delta(np.bitwise_xor(new, old))
    assert payload.dtype == np.uint8 and payload.size < new.size / 20
    for size in (2 << 20, 1 << 18, 1_000_001):
        reader = receiver._DECOMPRESSORS["lmc"](memoryview(payload))
        got = bytearray()
        while block := reader.read(min(size, new.size - len(got)) or 1):
            got += block
        assert bytes(got) == np.bitwise_xor(new, old).tobytes()
        reader.close()
    broken = payload.copy()
    broken[payload.size // 2] ^= 1
    with pytest.raises(lmc_codec.CorruptError):
        reader = receiver._DECOMPRESSORS["lmc"](memoryview(broken))
        while reader.read(2 << 20):
            pass


def test_index(theirs):
    _, trainer = theirs
    index = {"metadata": {"delta_encoding": "xor", "compression_format": "zstd"}, "weight_map": {}}
    said = json.loads(trainer.json.dumps(index, sort_keys=True))
    assert said["metadata"] == {"delta_encoding": "xor", "compression_format": "lmc"}
    assert index["metadata"]["compression_format"] == "zstd" and trainer.json.loads("[1]") == [1]
    assert trainer.json.dumps({"a": 1}) == '{"a": 1}'


def test_their_receiver(theirs, step, tmp_path):
    """The receiver's own loop decodes the output of the trainer's function, and reports a wrong base."""
    receiver, trainer = theirs
    if not hasattr(receiver, "_LocalCheckpoint"):
        pytest.skip("without modelexpress itself, of which a part stands in for it")
    from safetensors.numpy import save

    old, new = step
    payload = trainer.compress_delta(np.bitwise_xor(new, old))
    shard = save({"w": payload}, {"w": f"{zlib.adler32(new):08x}"})
    (tmp_path / "model").write_bytes(b"head" + old.tobytes())
    checkpoint = object.__new__(receiver._LocalCheckpoint)
    checkpoint.locations = {"w": (tmp_path / "model", 4, old.size)}
    metadata = {"compression_format": "lmc", "checksum_format": "adler32"}
    checkpoint._apply_shards({"s": (shard, ["w"])}, index_metadata=metadata)
    assert (tmp_path / "model").read_bytes() == b"head" + new.tobytes()
    with pytest.raises(ValueError, match="checksum differs"):
        checkpoint._apply_shards({"s": (shard, ["w"])}, index_metadata=metadata)


class Bucket:
    """Replaces their S3Client, in memory."""

    def __init__(self):
        self.objects = {}

    def put(self, *, uri, data):
        assert self.objects.setdefault(uri, bytes(data)) == data

    def get(self, uri):
        return self.objects[uri]

    def size(self, uri):
        return len(self.objects[uri])


@pytest.mark.filterwarnings("ignore")
def test_from_trainer_to_receiver(theirs, one_rank, tmp_path):
    """Their classes on both sides: two steps are published as xor deltas in lmc, and a receiver applies them in one
    call."""
    receiver, trainer = theirs
    if not hasattr(receiver, "_LocalCheckpoint"):
        pytest.skip("without modelexpress itself, of which a part stands in for it")
    import torch
    from modelexpress_rl import refit_pb2 as pb
    from modelexpress_rl.object_storage import ObjectStorageType
    from modelexpress_rl.train import WeightPayloadFormat
    from modelexpress_rl.version import WeightVersionRef
    from safetensors.torch import load_file, save_file

    def versions():
        for n in (1, 2):
            yield f"v{n}", f"v{n - 1}", f"s3://b/m/v{n}/model.safetensors.index.json"

    def answer(request, timeout):
        uid, base, uri = next(x for x in versions() if x[0] == request.uid)
        storage = pb.ObjectStorageSource(storage_type=pb.OBJECT_STORAGE_TYPE_S3, uri=uri)
        delta = pb.WEIGHT_PAYLOAD_FORMAT_XOR_DELTA
        version = pb.WeightVersion(uid=uid, model_name="m", object_storage=storage, payload_format=delta, base_version_id=base)
        return pb.GetWeightVersionResponse(version=version)

    torch.manual_seed(1)
    state = {"w": torch.randn(300, 400).to(torch.bfloat16), "frozen": torch.randn(50), "norm": torch.ones(77)}
    (tmp_path / "seed").mkdir()
    save_file(state, tmp_path / "seed" / "model.safetensors")
    bucket = Bucket()
    publication = trainer.CanonicalDeltaPublicationMethod(
        config=types.SimpleNamespace(initial_base_version_id="v0", uri_prefix="s3://b/m"),
        model_name="m",
        service=lambda: types.SimpleNamespace(GetWeightVersion=answer),
        rpc_timeout_seconds=1,
        process_group=None,
        read_seed_tensor=lambda name: state[name].reshape(-1).view(torch.uint8).numpy(),
        s3=bucket,
    )
    publication.prepare_base(hf_tensor_iter=[list(state.items())])
    for name, _, uri in versions():
        state = {**state, "w": state["w"].clone()}
        state["w"].view(-1)[::50] *= 1.01
        ref = WeightVersionRef(name)
        publication.publish(version=ref, staged=publication.stage(version=ref, hf_tensor_iter=[list(state.items())]))
        assert json.loads(bucket.objects[uri])["metadata"]["compression_format"] == "lmc"
    assert all(len(x) < 100_000 for x in bucket.objects.values())  # a whole version has 240,000 bytes
    config = receiver.ObjectStorageGeneratorConfig(
        storage_type=ObjectStorageType.S3,
        initial_base_version_id="v0",
        seed_checkpoint_path=tmp_path / "seed",
        refit_checkpoint_dir=tmp_path / "refit",
    )
    checkpoint = receiver._LocalCheckpoint(model_name="m", config=config, s3=bucket)
    checkpoint.initialize()
    chain = tuple(receiver._S3Version(uid, base, WeightPayloadFormat.XOR_DELTA, uri) for uid, base, uri in versions())
    prepared = checkpoint.prepare_chain(chain)
    found = load_file(prepared.path / "model.safetensors")
    assert prepared.target_version == "v2" and all(torch.equal(found[name], t) for name, t in state.items())
