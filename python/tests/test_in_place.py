"""apply_file: deltas that are decoded over their base."""

import io

import lmc_codec as lmc
import pytest
import torch
from lmc_codec import _in_place
from lmc_codec.torch import apply_file, load_file, save_file


def make(seed=1):
    g = torch.Generator().manual_seed(seed)
    shapes = [(300,), (41, 100), (70_000,), (3, 5)] * 20 + [(600_000,), (), (0, 4), (400_000,)]
    kinds = torch.bfloat16, torch.float32, torch.float16
    return {f"t{i:02}": torch.randn(shape, generator=g).to(kinds[i // 30]) for i, shape in enumerate(shapes)}


def change(tensors, share, seed=2):
    """Changes this share of all elements, of two tensors of three."""
    g = torch.Generator().manual_seed(seed)
    return {
        name: t.clone() if i % 3 == 0 else torch.where(torch.rand(t.shape, generator=g) < share, t + t / 64, t)
        for i, (name, t) in enumerate(tensors.items())
    }


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name].view(-1).view(torch.uint8), t.view(-1).view(torch.uint8)) for name, t in b.items())


@pytest.mark.parametrize("share", [0.5, 0.002])
@pytest.mark.parametrize("staged, alone, small", [(4 << 20, 1 << 20, 64 << 10), (2000, 1000, 0), (64 << 10, 32 << 10, 1 << 30)])
def test_in_place(tmp_path, monkeypatch, share, staged, alone, small):
    """Whatever the pieces: tensors of one block in several pieces; unchanged ones between them, decoded or not."""
    for name, value in (("STAGED", staged), ("ALONE", alone), ("SMALL", small)):
        monkeypatch.setattr(_in_place, name, value)
    a = make()
    b = change(a, share)
    save_file(b, tmp_path / "b.lmc", base=a)
    held = {name: t.clone().requires_grad_() for name, t in a.items()}
    places, versions = {name: t.data_ptr() for name, t in held.items()}, {name: t._version for name, t in held.items()}
    apply_file(tmp_path / "b.lmc", held)
    assert same({name: t.detach() for name, t in held.items()}, b)
    assert all(t.data_ptr() == places[name] for name, t in held.items())
    assert all(t._version > versions[name] for name, t in held.items() if not torch.equal(t, a[name]))
    again = {name: t.clone() for name, t in a.items()}
    apply_file(io.BytesIO((tmp_path / "b.lmc").read_bytes()), again)
    assert same(again, b)


def test_exchanged(tmp_path):
    """Two tensors have changed places, and one is reversed."""
    a = make()
    b = {name: t.clone() for name, t in a.items()}
    b["t80"], b["t83"] = a["t80"].flip(0), a["t83"] + 1
    b["t02"], b["t06"] = b["t06"], b["t02"]
    save_file(b, tmp_path / "b.lmc", base=a)
    apply_file(tmp_path / "b.lmc", a)
    assert same(a, b)


def test_refused(tmp_path):
    """Neither a wrong base nor damage in any part changes anything."""
    a = make()
    save_file(change(a, 0.5), tmp_path / "b.lmc", base=a)
    data = (tmp_path / "b.lmc").read_bytes()
    held = {name: t.clone() for name, t in a.items()}
    for at in range(100, len(data), len(data) // 12):
        bad = bytearray(data)
        bad[at] ^= 16
        with pytest.raises(lmc.LMCError):
            apply_file(bytes(bad), held)
        assert same(held, a)
    held["t01"][3] += 1
    wrong = {name: t.clone() for name, t in held.items()}
    with pytest.raises(lmc.WrongBaseError):
        apply_file(data, held)
    assert same(held, wrong)
    save_file(a, tmp_path / "a.lmc")
    with pytest.raises(lmc.ArgumentError, match="is not a delta"):
        apply_file(tmp_path / "a.lmc", held)


def test_not_contiguous(tmp_path):
    a = {"w": torch.randn(50, 60)}
    save_file({"w": a["w"] + 1}, tmp_path / "b.lmc", base=a)
    with pytest.raises(ValueError, match="contiguous"):
        apply_file(tmp_path / "b.lmc", {"w": a["w"].t().contiguous().t()})
    before = a["w"].clone()
    apply_file(tmp_path / "b.lmc", a)
    assert torch.equal(a["w"], before + 1)
    assert torch.equal(load_file(tmp_path / "b.lmc", base={"w": before})["w"], before + 1)
