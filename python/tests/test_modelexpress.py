"""register_modelexpress() with the receiver and trainer of ModelExpress 0.7, where they can be imported; its decompressor as the
receiver calls it, anyway."""

import json
import sys
import types
import zlib

import lmc_codec
import numpy as np
import pytest
from lmc_codec import weight_sync


@pytest.fixture
def theirs(monkeypatch):
    """Their receiver, and their trainer's module; stand-ins with the attributes that are written to, where they are not there."""
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
    monkeypatch.setattr(receiver, "_DECOMPRESSORS", dict(receiver._DECOMPRESSORS))
    for name in ("compress_delta", "json"):
        monkeypatch.setattr(canonical_delta, name, getattr(canonical_delta, name))
    weight_sync.register_modelexpress()
    weight_sync.register_modelexpress()
    return receiver, canonical_delta


@pytest.fixture
def step():
    """A tensor of bf16 and what becomes of it, as bytes: 10 MB, of which 2 % change."""
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
    """It takes what its own trainer's function has made, in its own loop; and says so when the base is another."""
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
