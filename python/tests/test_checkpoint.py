"""save_checkpoint() and load_checkpoint(): training states that torch.save() takes."""

import collections
import io
import os
import random
import shutil
import signal
import subprocess
import time

import pytest
import safetensors.torch
import torch

import lmc_codec
from lmc_codec.torch import apply_file, load_checkpoint, save_checkpoint, save_file


class Training:
    """AdamW on a small model, in bf16 with fp32 masters by hand."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.Linear(64, 500))
        self.model[1].bias.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        self.n = 0

    def step(self):
        x = torch.randint(0, 500, (8, 16), generator=torch.Generator().manual_seed(self.n))
        loss = torch.nn.functional.cross_entropy(self.model(x).flatten(0, 1), x.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.n += 1

    def state(self):
        return {
            "model": self.model.state_dict(),
            "copy": {k: v.to(torch.bfloat16) for k, v in self.model.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "step": self.n,
            "more": (1.5, [None, True, "text", b"bytes"], collections.OrderedDict(a=torch.arange(5), b=torch.zeros(0, 3))),
        }

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.n = state["step"]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def saved_by_torch(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def test_a_training_goes_on_from_each_step(tmp_path):
    training = Training()
    paths, states = [], []
    for n in range(4):
        training.step()
        path = tmp_path / f"{n}.lmc"
        save_checkpoint(training.state(), path, base=paths[-1] if n % 3 else None)
        if n == 1:
            save_checkpoint(training.state(), tmp_path / "alone.lmc")
        paths.append(path)
        states.append(saved_by_torch(training.state()))
        assert same(load_checkpoint(path), training.state())
    whole, delta = (p.stat().st_size for p in (tmp_path / "alone.lmc", paths[1]))
    assert delta < 0.8 * whole < 0.8 * 0.85 * len(states[1])
    for path, state in zip(paths, states):
        again = Training()
        again.load(load_checkpoint(path))
        while again.n < training.n:
            again.step()
        assert same(again.state()["model"], training.state()["model"])
        with lmc_codec.open(path, base="auto") as r:
            assert bytes(r.read()) == state  # equal to the file of torch.save()
            assert "optimizer.state.0.exp_avg" in r and torch.equal(
                r.get("copy.0.weight", framework="torch"), load_checkpoint(path)["copy"]["0.weight"]
            )


def test_progress(tmp_path):
    state, calls = Training().state(), []
    save_checkpoint(state, tmp_path / "x.lmc")
    assert same(load_checkpoint(tmp_path / "x.lmc", progress=lambda done, total: calls.append((done, total))), state)
    size = len(saved_by_torch(state))
    assert len(calls) > 10 and calls[-1] == (size, size) and {total for _, total in calls} == {size}
    assert all(a < b for (a, _), (b, _) in zip(calls, calls[1:]))

    def stop(done, total):
        if done > size // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_checkpoint(tmp_path / "x.lmc", progress=stop)
    with pytest.raises(TypeError, match="progress is 5"):
        load_checkpoint(tmp_path / "x.lmc", progress=5)


def test_shared_memory_and_devices(tmp_path):
    whole = torch.arange(10000.0)
    tied = torch.nn.Linear(30, 30)
    state = {"part": whole[100:200], "other": whole[::2], "t": torch.randn(40, 50).t(), "a": tied.weight, "b": tied.weight, "0": torch.tensor(3)}
    save_checkpoint(state, tmp_path / "x.lmc")
    again = load_checkpoint(tmp_path / "x.lmc", map_location="cpu")
    assert same({k: v.detach() for k, v in state.items()}, {k: v.detach() for k, v in again.items()})
    assert again["a"].data_ptr() == again["b"].data_ptr() and again["t"].stride() == (1, 50)


def test_tied_weights_in_place(tmp_path):
    """Tensors that share memory still share it after loading; then a delta in which they no longer do."""

    def state(shift=0, **more):
        w = torch.arange(6400.0).view(100, 64) + shift
        return {"e.weight": w, "h.weight": w, "g.weight": torch.arange(6400.0).view(100, 64) - 1, **more}

    other = state()["g.weight"] + 1
    save_checkpoint(state(), tmp_path / "0.lmc")
    save_checkpoint(state(shift=1), tmp_path / "1.lmc", base=tmp_path / "0.lmc")
    save_checkpoint(state(**{"g.weight": other, "h.weight": other}), tmp_path / "2.lmc", base=tmp_path / "0.lmc")
    save_checkpoint(state(1, **{"g.weight": other, "h.weight": other}), tmp_path / "3.lmc", base=tmp_path / "0.lmc")
    for step, wanted in (1, state(shift=1)), (2, state(**{"g.weight": other})):
        weights = state()
        apply_file(tmp_path / f"{step}.lmc", weights)
        assert all(t.equal(wanted[name]) for name, t in weights.items()) and weights["e.weight"] is weights["h.weight"]
    save_checkpoint(dict(reversed(state(1).items())), tmp_path / "4.lmc", base=tmp_path / "0.lmc")  # it stores the other name
    weights = state()
    apply_file(tmp_path / "4.lmc", weights)
    assert weights["e.weight"].equal(state(1)["e.weight"])
    weights = state()
    with pytest.raises(lmc_codec.ArgumentError, match="3.lmc: it has different values for tensors 'e.weight' and 'h.weight'"):
        apply_file(tmp_path / "3.lmc", weights)
    assert all(t.equal(state()[name]) for name, t in weights.items())


def test_the_rules_of_weights_only(tmp_path):
    save_checkpoint({"x": torch.zeros(3), "path": tmp_path}, tmp_path / "x.lmc")
    with pytest.raises(Exception, match="weights_only|Weights only"):
        load_checkpoint(tmp_path / "x.lmc")
    assert load_checkpoint(tmp_path / "x.lmc", weights_only=False)["path"] == tmp_path


def test_moments_by_rule(tmp_path):
    training = Training()
    for _ in range(3):
        training.step()
    state = training.state()
    save_checkpoint(state, tmp_path / "x.lmc")
    save_checkpoint(state, tmp_path / "q.lmc", quantize="*.exp_avg*=bits:8")
    again = load_checkpoint(tmp_path / "q.lmc")
    assert same(again["model"], state["model"]) and (tmp_path / "q.lmc").stat().st_size < 0.8 * (tmp_path / "x.lmc").stat().st_size
    before, after = (s["optimizer"]["state"][0]["exp_avg_sq"] for s in (state, again))
    assert not torch.equal(before, after) and torch.allclose(before, after, rtol=0.05, atol=float(before.max()) / 50)
    with pytest.warns(UserWarning, match="no rule matches"):
        save_checkpoint(state, tmp_path / "n.lmc", quantize="nothing=bits:8")


class Unwilling:
    def __reduce__(self):
        raise RuntimeError("cannot be pickled today")


def test_what_fails_leaves_the_last_one(tmp_path):
    path = tmp_path / "x.lmc"
    save_checkpoint({"x": torch.ones(3)}, path)
    with pytest.raises(RuntimeError, match="today"):
        save_checkpoint({"x": torch.zeros(100000), "bad": Unwilling()}, path)
    assert load_checkpoint(path)["x"].sum() == 3 and os.listdir(tmp_path) == ["x.lmc"]

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint({"x": torch.randn(3_000_000)}, path, progress=stop)
    assert load_checkpoint(path)["x"].sum() == 3 and os.listdir(tmp_path) == ["x.lmc"]
    with pytest.raises(ValueError, match="is the base"):
        save_checkpoint({"x": torch.zeros(3)}, path, base=path)


def test_what_cannot_be_loaded(tmp_path):
    a, b = tmp_path / "a.lmc", tmp_path / "b.lmc"
    x = torch.randn(100000)
    save_checkpoint({"x": x}, a)
    x[::100] += 1
    save_checkpoint({"x": x}, b, base=a)
    data = bytearray(a.read_bytes())
    data[len(data) // 2] ^= 1
    a.write_bytes(data)
    with pytest.raises(lmc_codec.LMCError):
        load_checkpoint(a)
    a.unlink()
    with pytest.raises(lmc_codec.MissingBaseError):
        load_checkpoint(b)
    with lmc_codec.Writer(a) as w:
        w.add_bytes("one", b"1")
        w.add_bytes("two", b"2")
    with pytest.raises(lmc_codec.NotFoundError, match="has 2 files"):
        load_checkpoint(a)
    found = set()
    for n in range(0, 256, 8):  # safetensors makes the length of its header a multiple of 8: one begins with 0x80
        save_file({"x" * (n + 1): torch.ones(3)}, a)
        with lmc_codec.open(a) as r:
            found.add(bytes(r.read(size=1)))
        with pytest.raises(lmc_codec.NotFoundError, match=r"a.lmc: has no file of torch.save\(\): load_file\(\) reads other"):
            load_checkpoint(a)
    assert b"\x80" in found


def test_names_that_are_not_its_own(tmp_path):
    x = torch.randn(1000)
    with pytest.warns(UserWarning, match="two tensors have the name '1'"):
        save_checkpoint({1: x, "1": x + 1}, tmp_path / "a.lmc")
    assert torch.equal(load_checkpoint(tmp_path / "a.lmc")["1"], x + 1)
    save_checkpoint({"\ud800x": x}, tmp_path / "b.lmc")
    assert torch.equal(load_checkpoint(tmp_path / "b.lmc")["\ud800x"], x)
    with pytest.warns(UserWarning, match=r"reads \*.pt knows"):
        save_checkpoint({"x": x}, tmp_path / "c.pt")
    w = torch.randn(200, 200)
    with pytest.warns(UserWarning, match="no tensor was quantised"):
        save_checkpoint({"exp_avg": w, "weight": w}, tmp_path / "d.lmc", quantize="exp_avg=bits:8")
    assert torch.equal(load_checkpoint(tmp_path / "d.lmc")["weight"], w)
    lmc_codec.torch.save_file({"x": x}, tmp_path / "e.lmc")
    with pytest.raises(lmc_codec.NotFoundError, match="load_file"):
        load_checkpoint(tmp_path / "e.lmc")


def test_many_small_tensors_of_a_delta(tmp_path):
    """Without the cache each read would decode a block of the base and of the delta again."""
    state = {f"{i}": torch.randn(500) for i in range(1000)}
    save_checkpoint(state, tmp_path / "a.lmc")
    for t in state.values():
        t[::7] += 1e-3
    save_checkpoint(state, tmp_path / "b.lmc", base=tmp_path / "a.lmc")
    reads = []

    class File(io.FileIO):
        def readinto(self, buffer):
            n = super().readinto(buffer)
            reads.append(n)
            return n

    with File(tmp_path / "b.lmc") as file, lmc_codec.open(tmp_path / "a.lmc") as base:
        assert same(load_checkpoint(file, base=base), state)
    assert len(reads) < 100


def test_a_safetensors_file_as_base(tmp_path, monkeypatch):
    """The weights before training are the base: tensors become deltas against them at any depth."""
    monkeypatch.chdir(tmp_path)
    before = {f"{i}.weight": torch.randn(300, 200).to(torch.bfloat16) for i in range(4)}
    safetensors.torch.save_file(before, "model.safetensors")
    after = {name: t.clone() for name, t in before.items()}
    for t in after.values():
        t.view(-1)[::50] += 1
    nested = {"step": 3, "model": after}
    save_checkpoint(after, "1.lmc", base="model.safetensors")
    save_checkpoint(nested, "2.lmc", base=tmp_path / "model.safetensors")
    save_checkpoint(before, "3.lmc", base="1.lmc")  # the base of this base is found
    for path, state in (("1.lmc", after), ("2.lmc", nested), ("3.lmc", before)):
        assert os.path.getsize(path) < 0.05 * len(saved_by_torch(state))
        assert same(load_checkpoint(path), state)
        with lmc_codec.open(path, base="auto") as r:
            assert r.read() == saved_by_torch(state)
    for base in ("model.safetensors", before):
        assert same(load_checkpoint("2.lmc", base=base), nested)
    tensors = safetensors.torch.load_file("model.safetensors")
    apply_file("1.lmc", tensors)
    assert same(tensors, after)

    # from here on, the file named as the base is another
    os.remove("3.lmc")
    shutil.copy("model.safetensors", "copy.safetensors")
    safetensors.torch.save_file(after, "model.safetensors")
    with pytest.raises(lmc_codec.WrongBaseError, match="2.lmc: wrong base: .* and model.safetensors is"):
        load_checkpoint("2.lmc", base="model.safetensors")
    with pytest.raises(lmc_codec.MissingBaseError, match="1.lmc: needs the base .*named 'model.safetensors'.* only .*model.safetensors"):
        load_checkpoint("1.lmc")
    with pytest.raises(lmc_codec.MissingBaseError, match="1.lmc: needs the base .*named 'model.safetensors'"):
        save_checkpoint(before, "4.lmc", base="1.lmc")
    os.truncate("model.safetensors", os.path.getsize("model.safetensors") - 1)
    with pytest.raises(lmc_codec.CorruptError, match="model.safetensors is damaged, or no safetensors file: tensor .* lies beyond the end"):
        save_checkpoint(before, "4.lmc", base="model.safetensors")
    os.remove("model.safetensors")
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        save_checkpoint(before, "4.lmc", base="model.safetensors")
    assert not os.path.exists("4.lmc") and sorted(os.listdir()) == ["1.lmc", "2.lmc", "copy.safetensors"]
    assert same(load_checkpoint("2.lmc", base="copy.safetensors"), nested)


def test_files_of_the_command(tmp_path):
    """Files of `lmc x.pt` are loaded, too, and the command restores files that were saved here."""
    state = Training().state()
    torch.save(state, tmp_path / "x.pt")
    with lmc_codec.Writer(tmp_path / "x.pt.lmc") as w:
        w.add_file(tmp_path / "x.pt", "")
    assert same(load_checkpoint(tmp_path / "x.pt.lmc"), state)
    with lmc_codec.open(tmp_path / "x.pt.lmc") as r:
        assert "model.0.weight" in r
    save_checkpoint(state, tmp_path / "y.lmc")
    assert (tmp_path / "y.lmc").stat().st_size < 1.01 * (tmp_path / "x.pt.lmc").stat().st_size


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_twenty_kills(tmp_path):
    """After a kill at any moment all finished checkpoints can be loaded."""
    rng = random.Random(1)
    torch.set_num_threads(1)
    n_finished = 0
    for turn in range(200):  # on a busy machine, few of them may finish
        directory = tmp_path / str(turn)
        directory.mkdir()
        told = tmp_path / f"{turn}.told"
        child = os.fork()
        if child == 0:
            try:
                state = {"w": torch.randn(200_000, generator=torch.Generator().manual_seed(turn)), "n": 0}
                while True:
                    state["w"][state["n"] :: 97] += 1
                    last = directory / f"{state['n']}.lmc"
                    state["n"] += 1
                    save_checkpoint(state, directory / f"{state['n']}.lmc", base=last if last.exists() else None, threads=1)
                    with open(told, "a") as file:
                        file.write(f"{state['n']} {state['w'].sum().item()!r}\n")
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0.02, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = told.read_text().splitlines() if told.exists() else []
        for line in lines:
            number, total = line.split()
            state = load_checkpoint(directory / f"{number}.lmc")
            assert state["n"] == int(number) and state["w"].sum().item() == float(total)
        n_finished += len(lines)
        if turn >= 19 and n_finished > 20:
            break
    assert n_finished > 20
