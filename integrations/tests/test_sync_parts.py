"""publish(part=...): one version by several processes."""

import os
import random
import threading

import pytest
import torch
from lmc_integrations import _sync_parts, _sync_publish
from lmc_integrations.weight_sync import SyncError, SyncWrongBase, publish, receive
from safetensors.torch import load_file, save_file


@pytest.fixture
def steps(tmp_path):
    """Three versions of nine tensors; version 0 is also the directory 0."""
    torch.manual_seed(6)
    steps = [{f"w{i}": torch.randn(200, 50 + i, dtype=torch.bfloat16) for i in range(9)}]
    for step in (1, 2):
        steps.append({name: t + (torch.rand(t.shape) < 0.02) if int(name[1]) % 3 != step else t for name, t in steps[-1].items()})
    (tmp_path / "0").mkdir()
    save_file(steps[0], tmp_path / "0/model.safetensors")
    return [{name: t.to(torch.bfloat16) for name, t in step.items()} for step in steps]


def share(step, number, n=3):
    """The tensors of a process."""
    return {name: t for name, t in step.items() if int(name[1]) // 3 == number % n}


def put(sync, steps, version, number, run="a", n=3, **more):
    how = {"version": version, "base": share(steps[version - 1], number), "part": (number, n, run), **more}
    return publish(share(steps[version], number), sync, **how)


def names(sync):
    return sorted(x for x in os.listdir(sync) if x != ".lock")


def check(tmp_path, steps, version, local="local"):
    receive(tmp_path / "sync", tmp_path / local, version=version, base=tmp_path / "0")
    found = load_file(tmp_path / local / "model.safetensors")
    assert found.keys() == steps[version].keys() and all(torch.equal(found[x], t) for x, t in steps[version].items())


@pytest.mark.parametrize("layout, compression", [("slime", "lmc"), ("slime", "zstd"), ("skyrl", "lmc")])
def test_parts(tmp_path, steps, layout, compression):
    sync, how = tmp_path / "sync", {"layout": layout, "compression": compression}
    said = put(sync, steps, 1, 2, **how)
    assert "part 2, 1 of 3 are there: 2 of 3 tensors changed" in said and said.changed == ["w6", "w8"]
    put(sync, steps, 1, 0, **how)
    with pytest.raises(SyncError, match="version 1 is missing"):
        check(tmp_path, steps, 1)
    said = put(sync, steps, 1, 1, **how)
    assert "6 of 9 tensors changed" in said and said.metrics["tensors"] == 9 and len(said.changed) == 6
    (version,) = names(sync)
    assert not [x for x in os.listdir(sync / version) if x.startswith(".")]
    check(tmp_path, steps, 1)
    for number in (1, 2, 0):
        put(sync, steps, 2, number, **how)
    check(tmp_path, steps, 2)
    check(tmp_path, steps, 2, "other")
    with pytest.raises(SyncError, match="is there already"):
        put(sync, steps, 2, 0, **how)
    whole = publish(steps[1], tmp_path / "whole", version=1, base=steps[0], **how)
    assert whole.changed == said.changed and whole.metrics["bytes_changed"] == said.metrics["bytes_changed"]


@pytest.mark.parametrize("layout, compression", [("slime", "lmc"), ("slime", "zstd"), ("skyrl", "lmc")])
def test_replicas(tmp_path, steps, layout, compression):
    """Each tensor is published once, by who comes first: all of a process's payloads are left out, or some."""
    sync, how = tmp_path / "sync", {"layout": layout, "compression": compression}

    def give(version, number, n, *shares):
        new, old = ({x: t for i in shares for x, t in share(step, i).items()} for step in (steps[version], steps[version - 1]))
        return publish(new, sync, version=version, base=old, part=(number, n, "a"), **how)

    for version in (1, 2):
        give(version, 3, 4, 0)
        said = give(version, 0, 4, 0)
        assert said.changed == [] and said.metrics["bytes_published"] == 0
        said = give(version, 2, 4, 1, 0)
        assert said.changed == sorted(x for x in share(steps[1], 1) if int(x[1]) % 3 != version)
        give(version, 2, 4, 1, 0)  # again
        said = give(version, 1, 4, 2, 1, 0)
        assert len(said.changed) == 6 and said.metrics["tensors"] == 9
        whole = publish(steps[version], tmp_path / "whole", version=version, base=steps[version - 1], **how).metrics
        assert all(said.metrics[x] == whole[x] for x in ("bytes", "bytes_changed", "share_changed"))
        assert len([x for x in os.listdir(sync / names(sync)[-1]) if x.endswith(".safetensors")]) == 3
        check(tmp_path, steps, version)


def test_repeated_replicas(monkeypatch, tmp_path, steps):
    """A part may be repeated whoever has the payloads; but not without a tensor that others left out because it was there."""
    sync, number = tmp_path / "sync", [0]
    give = lambda i, step=1, less=(): publish({x: t for x, t in steps[step].items() if x not in less}, sync, version=1,
                                              base={x: t for x, t in steps[0].items() if x not in less}, part=(i, 3, str(number[0])))  # noqa: E731  # fmt: skip
    give(0), give(1), give(0, less=["w0"])
    with pytest.raises(SyncError, match="'w0' is in two parts, 1 and 2"):
        give(2, step=2)
    give(2)
    check(tmp_path, steps, 1)
    sync = tmp_path / "other"
    give(0), give(1), give(0, less=["w0"])
    with pytest.raises(SyncError, match="tensor 'w0': 0 parts have its payload: begin another run"):
        give(2, less=["w0"])
    give(2)
    number[0] += 1
    sync = tmp_path / "without locks"
    with monkeypatch.context() as m:
        m.setattr(_sync_parts, "leave_out", lambda names, payloads, *unused: payloads)
        give(0), give(1)
        with pytest.raises(SyncError, match="tensor 'w0': 3 parts have its payload"):
            give(2)


def test_after_write(tmp_path, steps):
    """Who finds the last part calls it, before the version appears; what it raises leaves no version, and the part is repeated."""
    sync, seen = tmp_path / "sync", []

    def look(path):
        seen.append(sorted(os.listdir(path)))
        assert os.path.basename(path) == "weight_v000001" and not (sync / "weight_v000001").exists()
        if len(seen) == 1:
            raise FileNotFoundError("no bucket")

    put(sync, steps, 1, 2, after_write=look), put(sync, steps, 1, 0, after_write=look)
    assert not seen
    with pytest.raises(FileNotFoundError, match="no bucket"):
        put(sync, steps, 1, 1, after_write=look)
    assert not (sync / "weight_v000001").exists()
    said = put(sync, steps, 1, 1, after_write=look)
    assert seen[0] == seen[1] == sorted(os.listdir(sync / "weight_v000001")) and said.metrics["seconds"]["after_write"] > 0
    check(tmp_path, steps, 1)
    changed = sum(int((steps[1][x] != t).sum()) for x, t in steps[0].items())
    assert said.metrics["share_changed"] == changed / sum(t.numel() for t in steps[0].values())


def test_at_once(tmp_path, steps):
    sync, said = tmp_path / "sync", []
    for version in (1, 2):
        threads = [threading.Thread(target=lambda i=i: said.append(put(sync, steps, version, i))) for i in range(3)]
        [t.start() for t in threads], [t.join() for t in threads]
    assert len(said) == 6 and sum("part" not in x for x in said) == 2
    check(tmp_path, steps, 2)


def test_other_runs_are_not_joined(tmp_path, steps):
    """A run was killed after two of its three parts, and the training was repeated with other values."""
    sync, other = tmp_path / "sync", [steps[0], {name: t * 3 for name, t in steps[1].items()}]
    put(sync, other, 1, 0, "first"), put(sync, other, 1, 1, "first")
    put(sync, steps, 1, 2, "second")
    assert len(names(sync)) == 2 and all(x.endswith(".parts") for x in names(sync))
    put(sync, steps, 1, 0, "second"), put(sync, steps, 1, 1, "second")
    assert names(sync) == ["weight_v000001"]  # what the first one has left is gone
    check(tmp_path, steps, 1)


def test_what_is_refused(tmp_path, steps):
    sync = tmp_path / "sync"
    for part in ((3, 3, "a"), (-1, 3, "a"), (0, 3, 5)):
        with pytest.raises(ValueError, match="part is"):
            publish(steps[1], sync, version=1, base=steps[0], part=part)
    with pytest.raises(TypeError, match="in memory"):
        publish(tmp_path / "0", sync, version=1, base=steps[0], part=(0, 3, "a"))
    put(sync, steps, 1, 0, n=2)
    for other in ([steps[1], {**steps[0], "w0": steps[0]["w0"] + 1}], [{**steps[1], "w0": steps[1]["w0"] + 1}, steps[0]]):
        new, old = (share(step, 0) for step in other)
        with pytest.raises(SyncError, match="tensor 'w0' is in two parts, 0 and 1, which do not have the same of it"):
            publish(new, sync, version=1, base=old, part=(1, 2, "a"))
    put(sync, steps, 1, 0, "b", n=2)
    with pytest.raises(SyncError, match="other arguments"):
        put(sync, steps, 1, 1, "b", n=2, checksum="adler32")
    for number in range(3):
        put(sync, steps, 1, number, "c")
    put(sync, steps, 2, 0, "d"), put(sync, steps, 2, 1, "d")
    with pytest.raises(SyncWrongBase, match="differs"):
        publish(share(steps[2], 2), sync, version=2, base=share(steps[0], 2), part=(2, 3, "d"))  # of version 1
    for number in (0, 1):  # a tensor of the base is missing in all parts
        less = [{x: t for x, t in share(step, number).items() if x != "w4"} for step in steps]
        try:
            publish(less[2], sync, version=2, base=less[1], part=(number, 2, "e"))
        except SyncWrongBase as error:
            assert "a tensor differs" in str(error) and number == 1
    assert "weight_v000002" not in names(sync)


def test_stops_at_each_step(monkeypatch, tmp_path, steps):
    """The process of the last part is stopped at each call that changes files, and repeats it: before, there is no version or
    the whole one; afterwards the whole one."""
    class Stop(BaseException):
        pass

    def count(limit, call):
        calls = []

        def stop(real):
            def wrapped(*args, **more):
                calls.append(real)
                if len(calls) > limit:
                    raise Stop
                return real(*args, **more)

            return wrapped

        with monkeypatch.context() as m:
            for module, name in ((os, "rename"), (os, "replace"), (os, "unlink"), (os, "makedirs"), (_sync_parts, "write_json"), (_sync_publish, "write_json"), (_sync_parts, "sync")):
                m.setattr(module, name, stop(getattr(module, name)))
            m.setattr(_sync_parts.shutil, "rmtree", lambda *unused, **unused_too: None)  # a killed process removes nothing
            try:
                call()
            except Stop:
                pass
            else:
                return True
        return False

    for limit in range(60):
        sync = tmp_path / f"{limit}"
        put(sync, steps, 1, 0), put(sync, steps, 1, 1)
        is_done = count(limit, lambda: put(sync, steps, 1, 2))
        is_there = (sync / "weight_v000001").exists()
        if not is_there:
            put(sync, steps, 1, 2)
        receive(sync, tmp_path / f"{limit}-local", base=tmp_path / "0")
        found = load_file(tmp_path / f"{limit}-local/model.safetensors")
        assert all(torch.equal(found[x], t) for x, t in steps[1].items()), limit
        if is_done:
            break
    assert is_done and limit > 8


@pytest.mark.long
def test_kills(run_killed, tmp_path, steps):
    rng = random.Random(1)
    for trial in range(60):
        sync = tmp_path / f"{trial}"
        put(sync, steps, 1, 0), put(sync, steps, 1, 1)
        run_killed(lambda report: (report(), report(), put(sync, steps, 1, 2, threads=1)), rng)
        if not (sync / "weight_v000001").exists():
            put(sync, steps, 1, 2)
        receive(sync, tmp_path / f"{trial}-local", base=tmp_path / "0")
        found = load_file(tmp_path / f"{trial}-local/model.safetensors")
        assert all(torch.equal(found[x], t) for x, t in steps[1].items()), trial
