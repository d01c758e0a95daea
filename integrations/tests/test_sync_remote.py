"""Versions in an object store: upload(), and receive() from a URL. fsspec's store in memory takes the place of a real one."""

import os

import fsspec
import pytest
import torch
from lmc_integrations import _sync_remote
from lmc_integrations.weight_sync import SyncCorrupt, SyncError, SyncWrongBase, publish, receive, upload
from safetensors.torch import load_file, save_file

URL = "memory://test_sync_remote"


@pytest.fixture
def store():
    store = fsspec.filesystem("memory")
    store.mkdirs("/test_sync_remote", exist_ok=True)
    yield store
    store.rm("/test_sync_remote", recursive=True)


@pytest.fixture
def steps(tmp_path):
    """Versions 0 to 5 as directories. 1 to 5 are published in "sync", 3 in full."""
    torch.manual_seed(6)
    steps = [{f"w{i}": torch.randn(200, 50 + i) for i in range(3)}]
    for i in range(5):
        steps.append({**steps[-1], f"w{i % 3}": steps[-1][f"w{i % 3}"] * 2})
    for i, step in enumerate(steps):
        (tmp_path / str(i)).mkdir()
        save_file(step, tmp_path / str(i) / "model.safetensors")
    for i in range(1, 6):
        publish(tmp_path / str(i), tmp_path / "sync", version=i, base=None if i == 3 else tmp_path / str(i - 1))
    return steps


def is_at(local, step):
    found = load_file(local / "model.safetensors")
    return found.keys() == step.keys() and all(torch.equal(found[x], t) for x, t in step.items())


def test_receive(monkeypatch, tmp_path, store, steps):
    local, fetched = tmp_path / "local", []
    real = _sync_remote.download
    monkeypatch.setattr(_sync_remote, "download", lambda store, remote, mirror, files: (fetched.append((remote[-1], len(files))), real(store, remote, mirror, files))[1])
    for i in (1, 2):
        assert upload(tmp_path / f"sync/weight_v00000{i}", URL) == f"{URL}/weight_v00000{i}"
    said = receive(URL, local, base=tmp_path / "0")
    assert is_at(local, steps[2]) and said.metrics["versions"] == 2 and [x for x, _ in fetched] == ["2", "1"]
    assert "at version 2 already" in receive(URL, local)
    upload(str(tmp_path / "sync/weight_v000003/"), URL)
    upload(tmp_path / "sync/weight_v000004", URL)
    fetched.clear()
    receive(URL, local, version=3)
    assert is_at(local, steps[3]) and [x for x, _ in fetched] == ["2", "3"] and fetched[0][1] == 1  # of the old version its index
    upload(tmp_path / "sync/weight_v000005", URL)
    receive(URL, local)
    assert is_at(local, steps[5])
    fetched.clear()
    receive(URL, tmp_path / "new")  # from the full version on
    assert is_at(tmp_path / "new", steps[5]) and [x for x, _ in fetched] == ["5", "4", "3"]
    with pytest.raises(SyncWrongBase, match=f"version 9 is missing in {URL}"):
        receive(URL, local, version=9)


def test_what_is_not_finished(tmp_path, store, steps):
    """The index comes last: without it there is no version; what is interrupted can be repeated."""
    local, written = tmp_path / "local", []
    real = store.put_file

    def put_file(path, where, **more):
        written.append(os.path.basename(path))
        if len(written) == 2:
            raise OSError("the connection is gone")
        real(path, where, **more)

    upload(tmp_path / "sync/weight_v000001", URL)
    type(store).put_file, before = lambda self, *args, **more: put_file(*args, **more), type(store).put_file
    try:
        with pytest.raises(OSError, match="the connection is gone"):
            upload(tmp_path / "sync/weight_v000002", URL)
    finally:
        type(store).put_file = before
    assert written[-1] == "model.safetensors.index.json"
    receive(URL, local, base=tmp_path / "0")
    assert is_at(local, steps[1])
    upload(tmp_path / "sync/weight_v000002", URL)
    receive(URL, local)
    assert is_at(local, steps[2])


def test_hooks(tmp_path, store, steps):
    """Trainer and engine have no directory in common: after_write uploads, before_read downloads."""
    sync, host, local = tmp_path / "own", tmp_path / "host", tmp_path / "local"

    def put(path):
        assert not (sync / os.path.basename(path)).exists()
        return upload(path, URL)

    def get(path, version):
        store.get(f"/test_sync_remote/weight_v{version:06d}", f"{path}/", recursive=True)

    def fail(*unused):
        raise ConnectionError("the store is gone")

    for compression, base in (("lmc", tmp_path / "0"), ("zstd", tmp_path / "1")):
        version = int(base.name) + 1
        how = {"version": version, "base": base, "compression": compression}
        with pytest.raises(ConnectionError, match="the store is gone"):
            publish(tmp_path / str(version), sync, after_write=fail, **how)
        assert len(os.listdir(sync)) == version  # the lock, and versions before
        said = publish(tmp_path / str(version), sync, after_write=put, **how)
        assert said.metrics["seconds"]["after_write"] > 0 and store.exists(f"/test_sync_remote/weight_v{version:06d}/model.safetensors.index.json")
        before = load_file(local / "model.safetensors") if version > 1 else None
        with pytest.raises(ConnectionError, match="the store is gone"):
            receive(host, local, base=tmp_path / "0", before_read=fail)
        assert before is None or is_at(local, before)
        with pytest.raises(SyncWrongBase if version > 1 else FileNotFoundError, match="host|version 2 is missing"):
            receive(host, local, version=version, base=tmp_path / "0", before_read=lambda *unused: None)
        host.mkdir(exist_ok=True)
        said = receive(host, local, version=version, base=tmp_path / "0", before_read=get)
        assert is_at(local, steps[version]) and said.metrics["seconds"]["before_read"] > 0
    full = publish(tmp_path / "3", sync, version=3, after_write=put)
    assert full.metrics["seconds"]["after_write"] > 0 and full.metrics["share_changed"] == 1
    receive(URL, local, before_read=lambda place, version: upload(tmp_path / "sync/weight_v000004", place))
    assert is_at(local, steps[4])


def test_faults(monkeypatch, tmp_path, store, steps):
    local = tmp_path / "local"
    with pytest.raises(SyncError, match="not the directory of a version"):
        upload(tmp_path / "0", URL)
    with pytest.raises(SyncError, match="is no directory"):
        receive("memory://test_sync_nowhere", local)
    for i in (1, 2):
        upload(tmp_path / f"sync/weight_v00000{i}", URL)
    receive(URL, local, version=1, base=tmp_path / "0")
    (file,) = [x for x in store.find("/test_sync_remote/weight_v000002") if x.endswith(".safetensors")]
    good = store.cat_file(file)
    store.pipe_file(file, good[:-20] + bytes([good[-20] ^ 8]) + good[-19:])
    with pytest.raises(SyncCorrupt, match="version 2, tensor"):
        receive(URL, local)
    assert is_at(local, steps[1])
    store.pipe_file(file, good)
    (local / ".weight_sync/stage-ab-remote/weight_v000002").mkdir(parents=True)  # of a killed process
    receive(URL, local)
    assert is_at(local, steps[2]) and sorted(os.listdir(local / ".weight_sync")) == ["lock", "state.json"]
