"""Reader.changes(): the elements that differ from the base, as indices and values."""

import lmc_codec
import ml_dtypes
import numpy as np
import pytest
import torch
from lmc_codec import _lmc, _reader
from lmc_codec.torch import load_file, save_checkpoint, save_file
from safetensors.torch import save_file as save_safetensors

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


def bits(t):
    return t.contiguous().view(-1).view(torch.uint8)


def make_step():
    torch.manual_seed(7)
    old = {}
    for dtype in (*FLOATS, *INTEGERS):
        old[str(dtype)] = (torch.randn(300, 70) * 30).to(dtype)
    old["complex"], old["same"] = torch.randn(1000, dtype=torch.complex64), torch.randn(1000)
    old["one"], old["empty"], old["all"] = torch.tensor(1.5), torch.zeros(0, 4), torch.randn(5000, dtype=torch.bfloat16)
    new = {name: t.clone() for name, t in old.items()}
    for name, t in new.items():
        raw, width = bits(t), t.element_size()  # views of t
        if name not in ("same", "one", "empty", "all"):
            raw[torch.randint(0, t.numel(), (max(1, t.numel() // 100),)) * width] ^= 1
    new["one"].fill_(-1.5)
    new["all"] *= 3
    return old, new


def apply(tensors, changes, framework="torch"):
    """Indices rise within each part, and over the parts of a tensor."""
    last = ("", -1)
    for name, indices, values in changes:
        if framework == "numpy":
            indices, values = torch.from_numpy(indices), torch.from_numpy(values.view(np.uint8).copy()).view(tensors[name].dtype)
        assert indices.ndim == values.ndim == 1 and len(indices) == len(values) > 0 and values.dtype == tensors[name].dtype
        assert (indices[1:] > indices[:-1]).all() and (last[0] != name or indices[0] > last[1])
        last = name, int(indices[-1])
        tensors[name].view(-1)[indices.long()] = values
    return tensors


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(bits(a[name]), bits(b[name])) for name in a)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    d = tmp_path_factory.mktemp("changes")
    old, new = make_step()
    save_safetensors(old, d / "old.safetensors")
    save_file(old, d / "old.lmc")
    save_file(new, d / "new.lmc", base=d / "old.lmc")
    return d, old, new


def bases(d, old):
    return {
        "arrays": old, "Base": lmc_codec.Base(old), "safetensors": d / "old.safetensors", "path": d / "old.lmc",
        "Reader": lmc_codec.open(d / "old.lmc", threads=2),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["arrays", "Base", "safetensors", "path", "Reader"])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_what_differs(step, kind, framework):
    d, old, new = step
    with lmc_codec.open(d / "new.lmc", base=bases(d, old)[kind]) as reader:
        found = list(reader.changes(framework=framework))
    expected = {name: int((bits(old[name]).view(-1, t.element_size()) != bits(t).view(-1, t.element_size())).any(1).sum())
                for name, t in new.items() if t.numel() and not torch.equal(bits(old[name]), bits(t))}
    assert {name: len(indices) for name, indices, _ in found} == expected
    assert same(apply({name: t.clone() for name, t in old.items()}, found, framework), new)
    if framework == "numpy":
        assert {v.dtype for n, _, v in found if n == "torch.bfloat16"} == {np.dtype(ml_dtypes.bfloat16)}
        assert all(type(i) is np.ndarray and i.dtype == np.int32 for _, i, _ in found)


def test_parts(step, monkeypatch):
    d, old, new = step
    monkeypatch.setattr(_reader, "_COMPARED", 4096)
    for room in (1, 7, 1000):
        monkeypatch.setattr(_reader, "_CHANGES", room)
        with lmc_codec.open(d / "new.lmc", base=old, framework="pt") as reader:
            parts = list(reader.changes())
        assert max(len(indices) for _, indices, _ in parts) == 2 * room
        assert same(apply({name: t.clone() for name, t in old.items()}, parts), new)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_own_memory(step, framework):
    d, old, new = step
    if framework == "torch":
        out = torch.empty(400, dtype=torch.uint8), torch.empty(8000, dtype=torch.uint8)
    else:
        out = np.empty(400, np.uint8), np.empty(8000, np.uint8)
    now = {name: t.clone() for name, t in old.items()}
    with lmc_codec.open(d / "new.lmc", base=old) as reader:
        n = 0
        for name, indices, values in reader.changes(out=out):
            assert len(indices) <= 100
            if framework == "torch":
                assert indices.data_ptr() == out[0].data_ptr() and values.data_ptr() == out[1].data_ptr()
            else:
                assert np.shares_memory(indices, out[0]) and np.shares_memory(values, out[1])
            apply(now, [(name, indices, values)], framework)
            n += 1
    assert n > 50 and same(now, new)


def test_large_numbers(step, monkeypatch):
    """As of a tensor of more than 2**31 elements."""
    d, old, new = step
    monkeypatch.setattr(_reader, "_COMPARED", 4096)
    monkeypatch.setattr(_reader, "_INT32", 21000)
    with lmc_codec.open(d / "new.lmc", base=old) as reader:
        found = list(reader.changes(framework="torch"))
        assert {i.dtype for _, i, _ in found} == {torch.int32}
        monkeypatch.setattr(_reader, "_INT32", 20999)
        wide = list(reader.changes(framework="torch"))
        assert {i.dtype for _, i, _ in wide} == {torch.int32, torch.int64}
        assert same(apply({name: t.clone() for name, t in old.items()}, wide), new)
        room = torch.empty(8 * 10, dtype=torch.uint8), torch.empty(800, dtype=torch.uint8)
        assert same(apply({name: t.clone() for name, t in old.items()}, reader.changes(out=room)), new)
    memory = np.zeros(16, np.uint8), np.zeros(2, np.uint8)
    now, before = np.array([1, 2, 3], np.uint8), np.array([9, 2, 9], np.uint8)
    assert _lmc.add_changes(now, before, 1, 2**40, memory[0], True, memory[1], 0) == (3, 2)
    assert memory[0].view(np.int64).tolist() == [2**40, 2**40 + 2] and memory[1].tolist() == [1, 3]
    assert _lmc.add_changes(now, before, 1, 2**31 - 3, memory[0], False, memory[1], 0) == (3, 2)
    assert memory[0].view(np.int32)[:2].tolist() == [2**31 - 3, 2**31 - 1]


def test_by_bits(tmp_path):
    old = np.array([0x0000, 0x7FC0, 0x7FC0, 0x3F80, 0x8000], np.uint16).view(ml_dtypes.bfloat16)
    new = np.array([0x8000, 0x7FC0, 0x7FC1, 0x3F80, 0x8000], np.uint16).view(ml_dtypes.bfloat16)
    with lmc_codec.Writer(tmp_path / "d.lmc", base={"w": old}) as w:
        w.add("w", new)
    with lmc_codec.open(tmp_path / "d.lmc", base={"w": old}) as reader:
        ((name, indices, values),) = reader.changes()
    assert name == "w" and indices.tolist() == [0, 2] and values.view(np.uint16).tolist() == [0x8000, 0x7FC1]


class Spy:
    """A reader of C, and what was read through it."""

    def __init__(self, inner, log):
        self.inner, self.log = inner, log

    def __getattr__(self, name):
        def call(*arguments):
            if name.startswith("read"):
                self.log.append(arguments[-1])
            return getattr(self.inner, name)(*arguments)

        return call


def test_only_what_differs_is_read(step):
    d, old, new = step
    with lmc_codec.open(d / "new.lmc", base=old) as reader:
        log = []
        reader._object = Spy(reader._object, log)
        assert len(list(reader.changes(["same", "one"], framework="torch"))) == 1
        assert set(log) == {"tensor 'one'"}
        assert [name for name, *_ in reader.changes("one", framework="torch")] == ["one"]  # a str is one name


def test_chain(step, tmp_path):
    """A base that is a delta itself; one that was closed meanwhile; a snapshot that is not a delta."""
    d, old, new = step
    newest = {name: t.clone() for name, t in new.items()}
    newest["all"][17] = 5
    save_file(newest, tmp_path / "newest.lmc", base=lmc_codec.open(d / "new.lmc", base=old))
    base = lmc_codec.open(d / "new.lmc", base=d / "old.lmc")
    reader = lmc_codec.open(tmp_path / "newest.lmc", base=base)
    base.close()
    ((name, indices, values),) = reader.changes(framework="torch")
    assert name == "all" and indices.tolist() == [17] and values.tolist() == [5]
    save_file(newest, tmp_path / "whole.lmc")
    with lmc_codec.open(tmp_path / "whole.lmc", base=old) as reader:
        assert same(apply({name: t.clone() for name, t in old.items()}, reader.changes(framework="torch")), newest)


def test_refused_before_anything_is_read(step, tmp_path):
    d, old, new = step
    for name, other in (("more", {"more": torch.ones(3)}), ("one", {"one": torch.ones(2)}), ("same", {"same": old["same"].double()})):
        save_file({**new, **other}, tmp_path / "d.lmc", base=old)
        with lmc_codec.open(tmp_path / "d.lmc", base=old) as reader:
            with pytest.raises(lmc_codec.UnsupportedError, match=f"tensor '{name}': the base has none of that name, dtype and shape"):
                reader.changes(framework="torch")
            assert len(list(reader.changes(["complex"], framework="torch"))) == 1
            with pytest.raises(lmc_codec.NotFoundError, match="missing"):
                reader.changes(["missing"])
    small = {"w": np.zeros(8, np.uint8)}
    with lmc_codec.Writer(tmp_path / "f4.lmc", base=small) as w:
        w.add("w", np.ones(8, np.uint8), dtype="I4")
    with lmc_codec.open(tmp_path / "f4.lmc", base=small) as reader, pytest.raises(lmc_codec.UnsupportedError, match="not of 1, 2, 4 or 8"):
        reader.changes()
    with lmc_codec.open(d / "new.lmc") as reader, pytest.raises(lmc_codec.MissingBaseError, match="base="):
        reader.changes()


def test_views(tmp_path):
    """Tensors of torch.save() that are stored as parts of others: the message says what to do, and that works."""
    w = torch.randn(70, 90)
    state = {"w": w, "t": torch.randn(50, 40).T, "also": w, "part": w[3:7]}
    save_checkpoint(state, tmp_path / "0.lmc")
    w[5] += 1
    state["t"][2] += 1
    save_checkpoint(state, tmp_path / "1.lmc", base=tmp_path / "0.lmc")
    with lmc_codec.open(tmp_path / "1.lmc", base="auto", framework="torch") as reader:
        for name in "t", "also", "part":
            text = f"tensor '{name}': it is a view: .* give names= without it, and read all of it by get"
            with pytest.raises(lmc_codec.UnsupportedError, match=text):
                reader.changes([name])
            assert torch.equal(reader.get(name), state[name])
        ((name, indices, values),) = reader.changes(["w"])
        assert name == "w" and indices.tolist() == list(range(450, 540)) and torch.equal(values, w[5])


def test_arguments(step):
    d, old, new = step
    with lmc_codec.open(d / "new.lmc", base=old) as reader:
        with pytest.raises(ValueError, match="numpy or torch"):
            reader.changes(framework="bytes")
        good = np.empty(80, np.uint8)
        for bad in (np.empty(80, np.int32), np.empty(0, np.uint8), np.empty(3, np.uint8), np.empty(81, np.uint8)[1:]):
            with pytest.raises((ValueError, TypeError)):
                list(reader.changes(out=(bad, good)))
        for bad in (np.empty(80, np.float32), np.empty(0, np.uint8)):
            with pytest.raises((ValueError, TypeError)):
                list(reader.changes(out=(good, bad)))
        good.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            list(reader.changes(out=(good, good)))
    with pytest.raises(ValueError, match="closed"):
        reader.changes()
    a, b, room = np.zeros(8, np.uint8), np.ones(8, np.uint8), np.zeros(64, np.uint8)
    for width, first, n in ((3, 0, 0), (0, 0, 0), (16, 0, 0), (1, 2**31, 0), (1, 0, -1), (1, 0, 17)):
        with pytest.raises(ValueError, match="no such elements"):
            _lmc.add_changes(a, b, width, first, room, False, room.copy(), n)
    with pytest.raises(ValueError, match="no such elements"):
        _lmc.add_changes(a, b[:7], 1, 0, room, False, room.copy(), 0)


def test_damage(step, tmp_path):
    """Damage is found where it is read, and nothing of that part is returned."""
    d, old, new = step
    data = bytearray((d / "new.lmc").read_bytes())
    with lmc_codec.open(bytes(data), base=old) as reader:
        at, size = reader._object.encoded_range(0, reader.info("all").offset, reader.info("all").size)
    data[at + size // 2] ^= 16
    with lmc_codec.open(bytes(data), base=old) as reader, pytest.raises(lmc_codec.CorruptError):
        list(reader.changes(["all"], framework="torch"))
    changed = {**old, "all": old["all"] + 1}
    with pytest.raises(lmc_codec.WrongBaseError):
        lmc_codec.open(d / "new.lmc", base=changed)


def test_as_applied(step):
    """The result is equal to that of load_file."""
    d, old, new = step
    loaded = load_file(d / "new.lmc", base=d / "old.lmc")
    with lmc_codec.open(d / "new.lmc", base=d / "old.lmc") as reader:
        assert same(apply({name: t.clone() for name, t in old.items()}, reader.changes(framework="torch")), loaded)
