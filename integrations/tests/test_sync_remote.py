"""Versions in an object store: upload(), and receive() from a URL. fsspec's store in memory takes the place of a real one."""

import os
import shutil

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
        nothing = f"version 2 is missing in {host}" if version > 1 else f"{host} is not a directory: before_read brought nothing, of version 1"
        with pytest.raises(SyncError, match=nothing):
            receive(host, local, version=version, base=tmp_path / "0", before_read=lambda *unused: None)
        host.mkdir(exist_ok=True)
        said = receive(host, local, version=version, base=tmp_path / "0", before_read=get)
        assert is_at(local, steps[version]) and said.metrics["seconds"]["before_read"] > 0
    with pytest.raises(SyncError, match="weight_v000003 is gone after after_write"):
        publish(tmp_path / "3", sync, version=3, after_write=shutil.rmtree)
    full = publish(tmp_path / "3", sync, version=3, after_write=put)
    assert full.metrics["seconds"]["after_write"] > 0 and full.metrics["share_changed"] == 1
    receive(URL, local, before_read=lambda place, version: upload(tmp_path / "sync/weight_v000004", place))
    assert is_at(local, steps[4])


@pytest.mark.parametrize("make, why", [
    (lambda host, version: None, "is not a directory: before_read brought nothing, of any version"),
    (lambda host, version: host.write_bytes(b""), "is not a directory: before_read brought nothing, of any version"),
    (lambda host, version: os.unlink(version / "model-00000-of-00001.safetensors"), "is missing: not all of it has arrived"),
    (lambda host, version: os.truncate(version / "model-00000-of-00001.safetensors", 9), "is cut short"),
    (lambda host, version: os.truncate(version / "model.safetensors.index.json", 99), "is not JSON"),
])  # fmt: skip
def test_hooks_that_bring_half(tmp_path, steps, make, why):
    host, local = tmp_path / "host", tmp_path / "local"
    receive(tmp_path / "sync", local, version=1, base=tmp_path / "0")

    def get(place, version):
        if "brought nothing" not in why:
            shutil.copytree(tmp_path / "sync/weight_v000002", host / "weight_v000002")
        make(host, host / "weight_v000002")

    with pytest.raises(SyncError, match=f"{host}.*{why}"):
        receive(host, local, before_read=get)
    assert is_at(local, steps[1]) and sorted(os.listdir(local / ".weight_sync")) == ["lock", "state.json"]


@pytest.mark.parametrize("way", ["gone", "nothing", "half"])
def test_downloads_that_bring_half(monkeypatch, tmp_path, store, steps, way):
    """A version is removed, or files are damaged, while it is fetched."""
    local, real = tmp_path / "local", type(store).get_file
    for i in (1, 2, 3):
        upload(tmp_path / f"sync/weight_v00000{i}", URL)
    for version, files in ((2, ["model-00000-of-00001.safetensors", "model.safetensors.index.json"]), (3, ["model.safetensors"])):
        assert f"version {version - 1}, from" in receive(URL, local, version=version - 1, base=tmp_path / "0")
        for file in files:

            def get_file(self, source, target, file=file, **more):
                if os.path.basename(source) == file and way == "gone":
                    raise FileNotFoundError(source)
                if os.path.basename(source) != file or way != "nothing":
                    real(self, source, target, **more)
                if os.path.basename(source) == file and way == "half":
                    os.truncate(target, 60)

            with monkeypatch.context() as m:
                m.setattr(type(store), "get_file", get_file)
                with pytest.raises(SyncError, match=URL) as caught:
                    receive(URL, tmp_path / "new" if version == 3 else local, version=version, base=tmp_path / "0")
            assert ".weight_sync" not in str(caught.value) and (way != "gone" or f"{file} is missing" in str(caught.value))
        assert is_at(local, steps[version - 1])
    said = receive(URL, tmp_path / "new", version=3)
    assert f"from {URL}/weight_v000003" in said and ".weight_sync" not in said


def test_faults(monkeypatch, tmp_path, store, steps):
    local = tmp_path / "local"
    with pytest.raises(SyncError, match="not the directory of a version"):
        upload(tmp_path / "0", URL)
    with pytest.raises(SyncError, match="is not a directory"):
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
