"""publish() of tensors in memory, and what publish() and receive() report. test_weight_sync.py has all other tests."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from lmc_integrations import _sync_files, _sync_memory, weight_sync
from lmc_integrations.weight_sync import SyncError, SyncWrongBase, publish, receive
from safetensors.torch import load_file, save_file


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(*(t[x].reshape(-1).view(torch.uint8) for t in (a, b))) for x in b)


@pytest.fixture
def steps(tmp_path):
    """Three versions of the tensors; version 0 is also the directory 0."""
    torch.manual_seed(4)
    first = {
        "embed": torch.randn(300, 128, dtype=torch.bfloat16), "norm": torch.ones(128), "head": torch.randn(128, 300).t(), "scale": torch.tensor(3.0),
        "f8": torch.randn(64, 64).to(torch.float8_e4m3fn), "none": torch.empty(0, 5),
    }  # fmt: skip
    second = {**first, "embed": first["embed"].clone(), "scale": torch.tensor(4.0)}
    second["embed"][::7] += 1
    third = {**second, "head": second["head"] * (torch.rand(300, 128) > 0.01) * 1.5, "embed": second["embed"] * 2}
    (tmp_path / "0").mkdir()
    save_file({name: t.contiguous() for name, t in first.items()}, tmp_path / "0/model.safetensors")
    (tmp_path / "0/config.json").write_text("{}")
    return first, second, third


@pytest.mark.parametrize("is_near", [True, False])  # False: through the buffer that is pinned with a GPU
@pytest.mark.parametrize("layout, compression", [("slime", "lmc"), ("slime", "zstd"), ("skyrl", "lmc")])
def test_from_memory(monkeypatch, tmp_path, steps, is_near, layout, compression):
    monkeypatch.setattr(_sync_memory, "_is_near", lambda array: is_near)
    monkeypatch.setattr(_sync_memory, "STAGED", 10_000)
    first, second, third = steps
    sync, local = tmp_path / "sync", tmp_path / "local"
    how = {"layout": layout, "compression": compression}
    said = publish(second, sync, version=1, base=first, **how)
    assert said.changed == ["embed", "scale"] and "2 of 6 tensors changed" in said
    publish(third, sync, version=2, base=second, **how)
    assert receive(sync, local, version=1, base=tmp_path / "0").changed == sorted(first)  # all of it is new there
    assert same(load_file(local / "model.safetensors"), second)
    assert receive(sync, local).changed == ["embed", "head"]
    assert same(load_file(local / "model.safetensors"), third)
    assert receive(sync, local).changed == [] and (local / "config.json").read_text() == "{}"


def test_the_same_version_as_from_a_directory(tmp_path, steps):
    first, second, _ = steps
    (tmp_path / "1").mkdir()
    save_file({name: t.contiguous() for name, t in second.items()}, tmp_path / "1/model.safetensors")
    for name, new, old in (("a", second, first), ("b", tmp_path / "1", tmp_path / "0"), ("c", second, tmp_path / "0"), ("d", tmp_path / "1", first)):
        publish(new, tmp_path / name, version=1, base=old)
    made = {n: {p.name: p.read_bytes() for p in (tmp_path / n / "weight_v000001").glob("*.json")} for n in "abcd"}
    assert made["a"] == made["b"] == made["c"] == made["d"]
    publish({name: t.view(torch.uint8).numpy() if name == "f8" else t for name, t in second.items()} | {"norm": second["norm"].numpy()},
            tmp_path / "n", version=1, base={**first, "f8": first["f8"].view(torch.uint8).numpy()})  # fmt: skip


def test_what_is_refused(tmp_path, steps):
    first, second, _ = steps
    sync = tmp_path / "sync"
    with pytest.raises(SyncError, match="from a directory"):
        publish(first, sync, version=1)
    with pytest.raises(SyncError, match="no tensors"):
        publish({}, sync, version=1, base=first)
    with pytest.raises(TypeError, match="tensor 'x'"):
        publish({"x": "text"}, sync, version=1, base=first)
    with pytest.raises(SyncError, match="differ in more than values"):
        publish({**second, "more": torch.ones(3)}, sync, version=1, base=first)

    class Split(torch.Tensor):
        full_tensor = None

    with pytest.raises(TypeError, match="tensor 'x': .*no DTensor"):
        publish({"x": torch.ones(3).as_subclass(Split)}, sync, version=1, base=first)
    publish(second, sync, version=1, base=first)
    with pytest.raises(SyncWrongBase, match="tensor 'embed' differs"):
        publish(second, sync, version=2, base=first)  # not what was published as version 1
    assert sorted(p.name for p in sync.iterdir()) == [".lock", "weight_v000001"]


def test_several_versions_are_written_once(monkeypatch, tmp_path, steps):
    """A late receiver applies them in memory, one after another; in between nothing is written."""
    first, second, third = steps
    publish(second, tmp_path / "sync", version=1, base=first)
    publish(third, tmp_path / "sync", version=2, base=second)
    written, real = [], _sync_files.write_at
    monkeypatch.setattr(_sync_files, "write_at", lambda f, data, offset: (written.append(data.size), real(f, data, offset)))
    said = receive(tmp_path / "sync", tmp_path / "local", base=tmp_path / "0")
    assert said.metrics["versions"] == 2 and same(load_file(tmp_path / "local/model.safetensors"), third)
    assert sum(written) == sum((tmp_path / "0" / x).stat().st_size for x in ("model.safetensors", "config.json"))


def test_metrics(tmp_path, steps):
    first, second, third = steps
    sync, local = tmp_path / "sync", tmp_path / "local"
    size = sum(t.nbytes for t in first.values())
    said = publish(second, sync, version=1, base=first)
    published = sum(p.stat().st_size for p in (sync / "weight_v000001").glob("*.safetensors"))
    seconds = said.metrics.pop("seconds")
    assert said.metrics == {
        "version": 1, "base_version": 0, "tensors": 6, "tensors_changed": 2, "bytes": size,
        "bytes_changed": second["embed"].nbytes + second["scale"].nbytes, "bytes_published": published,
        "share_changed": sum(int((second[x] != first[x]).sum()) for x in ("embed", "scale")) / sum(t.numel() for t in first.values()),
    }  # fmt: skip
    assert seconds.keys() == {"read", "compare", "code", "write", "total"} and all(x > 0 for x in seconds.values())
    publish(third, sync, version=2, base=second)
    full = publish(tmp_path / "0", tmp_path / "full", version=1)
    assert full.metrics["bytes_published"] == size == full.metrics["bytes"] and full.metrics["base_version"] is None and full.metrics["share_changed"] == 1 and len(full.changed) == 6
    got = receive(sync, local, base=tmp_path / "0")
    assert (got.metrics["version"], got.metrics["from_version"], got.metrics["versions"], got.metrics["tensors_changed"]) == (2, None, 2, 6)
    assert 0 < got.metrics["bytes_received"] and got.metrics["seconds"].keys() == {"read", "apply", "write", "total"}
    again = receive(sync, local)
    assert (again.metrics["from_version"], again.metrics["versions"], again.metrics["bytes_received"]) == (2, 0, 0)
    command = [sys.executable, "-m", "lmc_integrations.weight_sync"]
    lines = subprocess.run([*command, "receive", "--json", sync, tmp_path / "other", "--base", tmp_path / "0"], capture_output=True, text=True, check=True).stdout
    found = json.loads(lines)
    assert lines.count("\n") == 1 and found["version"] == 2 and found["changed"] == sorted(first) and found["seconds"]["total"] > 0
    assert isinstance(got, weight_sync.Report) and isinstance(got, str) and np.isfinite(found["seconds"]["read"])
