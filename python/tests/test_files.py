"""Files: Reader, Slice, Writer, bases, quantisation, limits."""

import gc
import io
import os
import subprocess
import sys
import tempfile
import threading

import lmc_codec as lmc
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import torch
from conftest import same


def run_lmc(*arguments):
    subprocess.run([sys.executable, "-m", "lmc_codec", *map(str, arguments)], check=True)


@pytest.fixture
def model(weights):
    return {
        "embed.weight": weights,
        "layer/0.bias": np.arange(300, dtype=np.float32),
        "ids": np.arange(24, dtype=np.int64).reshape(2, 3, 4),
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 5), np.uint8),
        "größe \"\n": np.arange(7, dtype=np.uint8),
    }


@pytest.fixture
def path(tmp_path, model):
    with lmc.Writer(tmp_path / "model.lmc") as w:
        w.add_arrays(model, metadata={"format": "np"})
        w.add_bytes("config.json", b"{}")
        w.add_metadata("step", "17")
    return tmp_path / "model.lmc"


def test_without_a_feature(tmp_path):
    """Half of the elements are zero: they are coded apart, unless readers lack that."""
    w = np.random.default_rng(1).standard_normal(40000, np.float32)
    w[::2] = 0
    for name, without in (("apart", ()), ("old", "Zeros"), ("list", ["Zeros"])):
        with lmc.Writer(tmp_path / name, without=without) as writer:
            writer.add("w", w)
        with lmc.open(tmp_path / name) as r:
            assert r.features == (("Matrix", "Codes") if without else ("Zeros", "Matrix", "Codes")) and (r["w"] == w).all()
    assert os.path.getsize(tmp_path / "apart") * 8 < os.path.getsize(tmp_path / "old") * 7
    with pytest.raises(lmc.ArgumentError, match="no feature 'Zeroes', only Base, Own, Quantised, Zeros, Matrix, Codes"):
        lmc.Writer(tmp_path / "x", without="Zeroes")


def test_what_is_in_it(path, model):
    with lmc.open(path) as r:
        assert set(r) == set(model) and len(r) == 6 and "ids" in r and "nothing" not in r
        assert [f.path for f in r.files] == ["model.safetensors", "config.json"]
        assert r.metadata == {"step": b"17"}
        assert len(r.fingerprint) == 16 and r.base_fingerprint is None and r.features == ("Zeros", "Matrix", "Codes")
        x = r.info("ids")
        assert (x.dtype, x.shape, x.size, x.file, x.loss) == ("I64", (2, 3, 4), 192, "model.safetensors", None)
        assert r.info("ids").fingerprint == {t.name: t for t in r.files[0].tensors}["ids"].fingerprint
        assert r.read("config.json") == b"{}"
        assert 0 < r.encoded_size("embed.weight") < r.info("embed.weight").size
        for name, array in model.items():
            assert same(r[name], array), name
        assert "model.lmc" in repr(r)


@pytest.mark.parametrize("how", ["path", "str", "bytes", "BytesIO", "file", "buffered", "temporary", "memoryview"])
def test_sources(path, model, how):
    data = path.read_bytes()
    source = {
        "path": lambda: path,
        "str": lambda: str(path),
        "bytes": lambda: data,
        "BytesIO": lambda: io.BytesIO(data),
        "file": lambda: open(path, "rb", buffering=0),
        "buffered": lambda: open(path, "rb"),
        "temporary": lambda: tempfile.NamedTemporaryFile(),
        "memoryview": lambda: memoryview(bytearray(data)),
    }[how]()
    if how == "temporary":
        source.write(data)
    with lmc.open(source) as r:
        if hasattr(source, "close"):
            if how != "BytesIO":
                source.close()  # the reader has its own descriptor
        assert same(r.get("embed.weight"), model["embed.weight"])
    with pytest.raises(ValueError, match="closed"):
        r.get("ids")


def test_sources_that_are_none(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        lmc.open(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        lmc.open(tmp_path)
    with pytest.raises(TypeError, match="text"):
        lmc.open(io.StringIO("x"))
    with pytest.raises(TypeError):
        lmc.open(5)
    with pytest.raises(lmc.NotLMCError):
        lmc.open(b"something else, and longer than a header is" * 4)
    with pytest.raises(lmc.LMCError):
        lmc.open(b"")


def test_errors_of_file_objects_come_through(path):
    class Broken(io.BytesIO):
        def read(self, n=-1):
            raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        lmc.open(Broken(path.read_bytes()))

    class Short(io.BytesIO):
        def read(self, n=-1):
            return b""

    with pytest.raises(EOFError):
        lmc.open(Short(path.read_bytes()))


def test_get(path, model):
    r = lmc.open(path, threads=2)
    w = model["embed.weight"]
    out = np.empty_like(w)
    assert r.get("embed.weight", out=out) is out and same(out, w)
    t = torch.empty(w.shape, dtype=torch.bfloat16)
    assert r.get("embed.weight", out=t) is t
    assert t.view(torch.uint16).numpy().tobytes() == w.tobytes()
    assert r.get("embed.weight", framework="torch").dtype == torch.bfloat16
    assert r.get("embed.weight", device="cpu").shape == w.shape
    assert r.get("embed.weight", framework="bytes") == w.tobytes()
    raw = bytearray(w.nbytes)
    r.get("embed.weight", out=raw)
    assert raw == w.tobytes()
    with pytest.raises(KeyError, match="nothing") as caught:
        r.get("nothing")
    assert isinstance(caught.value, lmc.NotFoundError) and "model.lmc" in str(caught.value)
    with pytest.raises(ValueError, match="out has"):
        r.get("ids", out=out)
    with pytest.raises(ValueError, match="framework"):
        r.get("ids", framework="jax")
    with pytest.raises(ValueError, match="device"):
        r.get("ids", framework="numpy", device="cpu")


INDICES = [
    np.s_[:], np.s_[...], np.s_[()], np.s_[3], np.s_[-1], np.s_[5:9], np.s_[5:9, 7], np.s_[:, 100:103], np.s_[-20:-3, -1],
    np.s_[::7], np.s_[3:600:11, 2:250:3], np.s_[..., 5], np.s_[5, ...], np.s_[9:5], np.s_[690:10000], np.s_[:, :1], np.s_[2, 3],
    np.s_[np.int64(4), 1:2],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_slices(path, model, index):
    r = lmc.open(path)
    w = model["embed.weight"]
    s = r.get_slice("embed.weight")
    assert s.shape == w.shape and s.dtype == "BF16" and s.get_shape() == [700, 300] and s.get_dtype() == "BF16"
    assert same(s[index], w[index])
    want = torch.from_numpy(w.view(np.uint16)).view(torch.bfloat16)[index]
    assert torch.equal(r.get_slice("embed.weight", framework="torch")[index], want)


def test_slices_of_many_shapes(tmp_path, rng):
    """Against numpy, with gaps, whole rows, single elements and dimensions of any kind."""
    arrays = {}
    for i in range(6):
        shape = tuple(rng.choice([1, 2, 3, 40, 70, 400]) for _ in range(rng.randint(1, 4)))
        if np.prod(shape) < 5_000_000:
            dtype = rng.choice([np.uint8, np.int16, np.float32, np.float64])
            arrays[f"a{i}"] = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add_arrays(arrays)
    with lmc.open(tmp_path / "x.lmc") as r:
        for _ in range(300):
            name = rng.choice(list(arrays))
            a = arrays[name]
            index = []
            for n in a.shape[: rng.randint(0, a.ndim)]:
                first = rng.randint(0, n - 1)
                kinds = [first, slice(None), slice(first, rng.randint(first, n)), slice(first, None, rng.randint(1, 4))]
                index.append(rng.choice(kinds))
            assert same(r.get_slice(name)[tuple(index)], a[tuple(index)]), (name, a.shape, index)


def test_other_indices(path, model):
    """Lists, masks and None read the whole tensor, and mean the same as in numpy."""
    w, s = model["embed.weight"], lmc.open(path).get_slice("embed.weight")
    for index in (None, [3, 1], (slice(None), [2, 5]), np.arange(700) % 3 == 0, True):
        assert same(s[index], w[index])


def test_slices_that_are_none(path):
    s = lmc.open(path).get_slice("embed.weight")
    for wrong in (700, (0, -301), (0, 0, 0), slice(None, None, -1), 1.5, "x", (..., ...), [700]):
        with pytest.raises((IndexError, ValueError, TypeError)):
            s[wrong]


def test_slices_read_what_they_need(tmp_path):
    class Counted(io.BytesIO):
        n = 0

        def read(self, size=-1):
            self.n += size
            return super().read(size)

    a = np.random.default_rng(3).standard_normal(4_000_000, np.float32)
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add("a", a)
    file = Counted((tmp_path / "x.lmc").read_bytes())
    r = lmc.open(file)
    assert file.n <= 65536  # only the tail was read
    file.n = 0
    assert same(r.get_slice("a")[1_000_000:1_000_010], a[1_000_000:1_000_010])
    assert 0 < file.n < 300_000  # one block was read


def test_sub_byte(tmp_path):
    t = torch.randint(0, 256, (6, 8), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add("f4", t)
    r = lmc.open(tmp_path / "x.lmc", framework="torch")
    assert r.info("f4").shape == (6, 16)
    assert torch.equal(r["f4"].view(torch.uint8), t.view(torch.uint8))
    assert torch.equal(r.get_slice("f4")[2:4].view(torch.uint8), t.view(torch.uint8)[2:4])
    with pytest.raises(lmc.UnsupportedError):
        r.get_slice("f4")[:, 1:3]


def test_it_restores_to_what_safetensors_writes(path, model, tmp_path):
    import safetensors.numpy

    run_lmc("-d", "-o", tmp_path / "out", path)
    safetensors.numpy.save_file(model, tmp_path / "want", {"format": "np"})
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (tmp_path / "want").read_bytes()
    assert (tmp_path / "out" / "config.json").read_bytes() == b"{}"


def test_add_one_by_one(tmp_path, model):
    target = io.BytesIO()
    buffer = np.empty((700, 300), ml_dtypes.bfloat16)
    with lmc.Writer(target, threads=3) as w:
        for i in range(5):
            buffer.view(np.uint16)[:] = i  # it may change as soon as add() has returned
            w.add(f"step {i}", buffer)
        w.add("a/b", buffer)
        w.add("a_b", buffer)  # it would have the same file name without a number
        w.add("../../etc/passwd", buffer)
    assert w.size == len(target.getvalue()) and w.fingerprint
    r = lmc.open(target.getvalue())
    assert r.fingerprint == w.fingerprint
    for i in range(5):
        assert (r[f"step {i}"].view(np.uint16) == i).all()
    assert len({f.path for f in r.files}) == 8 and not any("/" in f.path for f in r.files)
    assert r["../../etc/passwd"].shape == buffer.shape


def test_files(tmp_path, model):
    import safetensors.numpy

    safetensors.numpy.save_file(model, tmp_path / "m.safetensors")
    (tmp_path / "tokenizer.json").write_text("x" * 100_000)
    (tmp_path / "odd.safetensors").write_bytes(b"\xff\0\0\0\0\0\0\0{" + bytes(50))
    os.chmod(tmp_path / "tokenizer.json", 0o640)
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add_file(tmp_path / "m.safetensors")
        w.add_file(tmp_path / "tokenizer.json", "sub/tokenizer.json")
        w.add_file(tmp_path / "odd.safetensors")
        w.add_file(io.BytesIO(b"from a stream" * 1000), "stream")
        with pytest.raises(ValueError, match="two files"):
            w.add_bytes("stream", b"")
    with lmc.open(tmp_path / "x.lmc") as r:
        assert same(r["embed.weight"], model["embed.weight"])
        assert r.read("stream") == b"from a stream" * 1000
        assert r.read("stream", 5, 3) == b"a s"
        file = r.files[1]
        assert file.path == "sub/tokenizer.json" and (os.name == "nt" or file.mode == 0o640)
        assert file.mtime_ns == (tmp_path / "tokenizer.json").stat().st_mtime_ns
        with lmc.Writer(tmp_path / "copy.lmc") as w:
            w.copy_from(r, "m.safetensors")
        with pytest.raises(lmc.NotFoundError):
            r.read("nothing")
        with pytest.raises(ValueError):
            r.read("stream", 5, 1 << 40)
    with lmc.open(tmp_path / "copy.lmc") as r:
        assert same(r["embed.weight"], model["embed.weight"])


def test_it_appears_whole_or_not_at_all(tmp_path, model):
    path = tmp_path / "x.lmc"
    path.write_bytes(b"what was there")
    with pytest.raises(RuntimeError):
        with lmc.Writer(path) as w:
            w.add_arrays(model)
            raise RuntimeError
    assert path.read_bytes() == b"what was there" and os.listdir(tmp_path) == ["x.lmc"]
    w = lmc.Writer(path)
    w.add_arrays(model)
    del w
    gc.collect()
    assert os.listdir(tmp_path) == ["x.lmc"]
    with lmc.Writer(path) as w:
        w.add_arrays(model)
    assert path.read_bytes()[:1] == b"\x95"
    with pytest.raises(lmc.LMCError):
        w.add("more", np.zeros(3))


def test_errors_of_targets_come_through(model):
    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        with lmc.Writer(Full()) as w:
            w.add_arrays(model)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            lmc._lmc.Writer(lmc._lmc.Descriptor(os.dup, file.fileno()))

    class Slow(io.RawIOBase):
        def __init__(self):
            self.data = bytearray()

        def write(self, data):
            self.data += data[:1000]
            return min(len(data), 1000)

    slow = Slow()
    with lmc.Writer(slow) as w:
        w.add_arrays(model)
    assert same(lmc.open(bytes(slow.data))["embed.weight"], model["embed.weight"])


def changed(model):
    new = {name: array.copy() for name, array in model.items()}
    new["embed.weight"].view(np.uint16)[::9, ::7] ^= 1
    return new


@pytest.mark.parametrize("kind", ["path", "reader", "arrays", "Base", "safetensors", "torch"])
def test_bases(path, model, tmp_path, kind):
    """For writing and reading, the base may have any form with the same content."""
    import safetensors.numpy

    # every tensor of a base counts, and every file: this one has no other
    lmc.numpy.save_file(model, tmp_path / "base.lmc")
    safetensors.numpy.save_file(model, tmp_path / "base.safetensors")
    base = {
        "path": lambda: tmp_path / "base.lmc",
        "reader": lambda: lmc.open(tmp_path / "base.lmc"),
        "arrays": lambda: model,
        "Base": lambda: lmc.Base(model),
        "safetensors": lambda: tmp_path / "base.safetensors",
        "torch": lambda: __import__("safetensors.torch").torch.load_file(tmp_path / "base.safetensors"),
    }[kind]
    new = changed(model)
    with lmc.Writer(tmp_path / "delta.lmc", base=base()) as w:
        w.add_arrays(new, "")
    assert os.path.getsize(tmp_path / "delta.lmc") < 20_000
    with lmc.open(tmp_path / "delta.lmc", base=base()) as r:
        assert r.features == ("Base", "Zeros", "Matrix", "Codes") and r.base_fingerprint == lmc.Base(model).fingerprint
        for name in new:
            assert same(r[name], new[name])
        assert same(r.get_slice("embed.weight")[100:200, 5], new["embed.weight"][100:200, 5])
    with lmc.open(tmp_path / "delta.lmc") as r:
        assert set(r) == set(new)
        with pytest.raises(lmc.MissingBaseError, match="delta.lmc: tensor 'embed.weight'"):
            r["embed.weight"]
    with pytest.raises(lmc.WrongBaseError):
        lmc.open(tmp_path / "delta.lmc", base=new)


def test_chain(tmp_path, model):
    """A chain of deltas. Bases may be closed or deleted before the readers that use them."""
    steps = [model]
    reader = None
    for i in range(5):
        with lmc.Writer(tmp_path / f"{i}.lmc", base=reader) as w:
            w.add_arrays(steps[-1], "")
        reader = lmc.open(tmp_path / f"{i}.lmc", base=reader)
        steps.append(changed(steps[-1]))
        steps[-1]["embed.weight"].view(np.uint16)[i] += 1
    gc.collect()
    assert same(reader["embed.weight"], steps[4]["embed.weight"])
    base = lmc.open(tmp_path / "0.lmc")
    top = lmc.open(tmp_path / "1.lmc", base=base)
    base.close()
    with pytest.raises(ValueError, match="closed"):
        base["ids"]
    assert same(top["embed.weight"], steps[1]["embed.weight"])
    with pytest.raises(ValueError, match="closed"):
        lmc.open(tmp_path / "1.lmc", base=base)
    with lmc.open(tmp_path / "2.lmc", base=top) as r, lmc.Writer(tmp_path / "copy.lmc", base=top) as w:
        w.copy_from(r)
    with lmc.open(tmp_path / "copy.lmc", base=top) as r:
        assert same(r["embed.weight"], steps[2]["embed.weight"])


def test_one_name_in_several_files(tmp_path):
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add_arrays({"w": np.arange(3)}, "model.safetensors")
        w.add_arrays({"w": np.arange(4)}, "ema.safetensors")
        with pytest.raises(ValueError, match="'w'"):
            w.add_arrays({"w": np.arange(3).T[::-1]}, "x.safetensors")
    with lmc.open(tmp_path / "x.lmc") as r:
        with pytest.raises(lmc.AmbiguousError):
            r["w"]
        assert r.get("w", file="ema.safetensors").shape == (4,)
        assert r.get_slice("w", file="model.safetensors")[1] == 1


def moments():
    rng = np.random.default_rng(5)
    v = np.exp(rng.standard_normal((300, 200), np.float32) - 20)
    return v, np.sqrt(v) * rng.standard_normal((300, 200), np.float32) * np.float32(0.3)


@pytest.mark.parametrize("rules", ["*=update:0.01", {"*": "update:0.01"}, ["*=bits:4", "*=update:0.01"]])
def test_quantised(tmp_path, rules):
    v, m = moments()
    w = moments()[1]
    with lmc.Writer(tmp_path / "x.lmc", quantize=rules) as writer:
        writer.add_arrays({"l.exp_avg_sq": v}, "v.safetensors")
        writer.add_arrays({"l.exp_avg": m, "l.weight": w}, "m.safetensors")
    with lmc.open(tmp_path / "x.lmc") as r:
        loss = r.info("l.exp_avg").loss
        assert loss.generation == 1 and loss.measure == "update" and 0 < loss.error < 0.01
        assert r.encoded_size("l.exp_avg") < m.nbytes * 0.3
        step, want = r["l.exp_avg"] / (np.sqrt(r["l.exp_avg_sq"]) + 1e-8), m / (np.sqrt(v) + 1e-8)
        assert 0 < np.linalg.norm(step - want) / np.linalg.norm(want) < 0.0105
        assert same(r["l.weight"], w) and r.info("l.weight").loss is None


def test_files_by_rule(tmp_path):
    """Tensors of files are quantised as by the command, in any order, and all else does not change."""
    torch, st = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    v, m = map(torch.from_numpy, moments())
    state = {"exp_avg_sq": v, "exp_avg": m.T, "weight": m * 3, "step": torch.tensor(7.0)}
    torch.save(state, tmp_path / "a.pt")
    st.save_file({name: t.contiguous() for name, t in state.items()}, tmp_path / "b.safetensors")
    os.utime(tmp_path / "a.pt", ns=(7_000_000_000, 7_000_000_000))
    for file, load in (("a.pt", torch.load), ("b.safetensors", st.load_file)):
        with lmc.Writer(tmp_path / "x.lmc", quantize="*exp_avg*=bits:8") as w:
            w.add_file(tmp_path / file)
        with lmc.open(tmp_path / "x.lmc") as r:
            assert [x.name for x in r.files[0].tensors if x.loss] == [x.name for x in r.files[0].tensors if "exp" in x.name]
            assert r.files[0].mtime_ns == os.stat(tmp_path / file).st_mtime_ns and r.files[0].mode is not None
            (tmp_path / "y").write_bytes(r.read(file))
        again = load(tmp_path / "y")
        assert torch.equal(again["weight"], state["weight"]) and again["step"] == 7
        for name in ("exp_avg", "exp_avg_sq"):
            assert not torch.equal(again[name], state[name])
            assert torch.allclose(again[name], state[name], atol=float(state[name].abs().max()) / 10)
    (tmp_path / "b.safetensors").unlink()  # nothing keeps the file open


def test_rules(tmp_path):
    v, m = moments()
    with lmc.Writer(tmp_path / "x.lmc", quantize=["*,role=any=bits:8", "*keep*=lossless", "*,max=1K=bits:4"]) as w:
        w.add_arrays({"exp_avg_sq": v, "keep.exp_avg_sq": v, "weight": m, "small": m[0]})
    with lmc.open(tmp_path / "x.lmc") as r:
        assert [r.info(n).loss is not None for n in ("exp_avg_sq", "keep.exp_avg_sq", "weight", "small")] == [
            True, False, True, False,
        ]  # fmt: skip
    for wrong in ("*", "*=bits:9", "*=kmeans:0", "*=kmeans:9", "*=update:2", "=bits:8", "*,role=king=bits:8", "*=nmse:x", "*,min=1T=bits:8"):
        with pytest.raises(ValueError, match="quantize rule"):
            lmc.Writer(io.BytesIO(), quantize=wrong)


def test_content_hashes(tmp_path, weights):
    import hashlib

    with lmc.Writer(tmp_path / "x.lmc", content_hashes=True) as w:
        w.add("w", weights)
    with lmc.open(tmp_path / "x.lmc") as r:
        assert r.content_hash("w") == hashlib.sha256(weights.tobytes()).digest()
    with lmc.Writer(tmp_path / "y.lmc") as w:
        w.add("w", weights)
    with lmc.open(tmp_path / "y.lmc") as r:
        for call in (lambda: r.content_hash("w"), r.snapshot_hash):
            with pytest.raises(lmc.NotFoundError, match=r"y.lmc: the SHA-256 that Writer\(content_hashes=True\) stores: not found"):
                call()


def test_snapshot_hash(weights):
    """One hash for the whole snapshot, independent of how it is coded."""

    def make(name="w", value="1", **options):
        file = io.BytesIO()
        with lmc.Writer(file, content_hashes=True, **options) as w:
            w.add(name, weights)
            w.add_metadata("step", value)
        return file.getvalue()

    def hash_of(data, **options):
        with lmc.open(data, **options) as r:
            return r.snapshot_hash()

    base = lmc.Base({"w": weights[::-1].copy()})
    found = hash_of(make())
    assert len(found) == 32
    assert hash_of(make(level="max")) == found
    assert hash_of(make(base=base), base=base) == found
    assert len({found, hash_of(make(name="v")), hash_of(make(value="2"))}) == 3
    r = lmc.open(make())
    r.close()
    with pytest.raises(ValueError, match="closed"):
        r.snapshot_hash()
    with pytest.raises(ValueError, match="closed"):
        r.content_hash("w")


def test_limits(path):
    with pytest.raises(lmc.LimitError, match="model.lmc"):
        lmc.open(path, max_total_size=1000)
    with pytest.raises(lmc.LimitError):
        lmc.open(path, max_index_size=100)


def test_from_many_threads(path, model):
    r = lmc.open(path, threads=2)
    wrong = []

    def read():
        for _ in range(20):
            for name, array in model.items():
                if not same(r[name], array):
                    wrong.append(name)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_callbacks_that_use_their_own_object(path, weights):
    class Nested(io.BytesIO):
        reader = None

        def read(self, n=-1):
            if self.reader is not None:
                self.reader.get("ids")
            return super().read(n)

    file = Nested(path.read_bytes())
    file.reader = lmc.open(file)
    with pytest.raises(RuntimeError, match="callback"):
        file.reader.get("embed.weight")

    def again(done, total):
        writer.add("again", weights)

    writer = lmc.Writer(io.BytesIO(), progress=again)
    with pytest.raises(lmc.ArgumentError, match="callback"):
        writer.add("w", weights)


def test_the_command(path, tmp_path):
    said = subprocess.run([sys.executable, "-m", "lmc_codec", "-l", path], capture_output=True, text=True, check=True)
    assert "embed.weight" in said.stdout
    assert subprocess.run([sys.executable, "-m", "lmc_codec", "--wrong"], capture_output=True).returncode == 2


def test_version():
    import re
    from pathlib import Path

    root = Path(__file__).parents[2]
    assert lmc.__version__ == re.search(r'#define LMC_VERSION "(.*)"', (root / "lmc.h").read_text())[1]
    assert lmc.__version__ in (root / "python/pyproject.toml").read_text()


def test_names_as_long_as_names_can_be(weights, tmp_path):
    path = tmp_path / ("ü" * 125 + ".lmc")
    lmc.numpy.save_file({"w": weights}, path)
    assert same(lmc.numpy.load_file(path)["w"], weights)
    assert os.listdir(tmp_path) == [path.name]


def test_a_directory_that_is_not_there(weights, tmp_path):
    """The message has the path that the caller gave."""
    path = tmp_path / "no" / "x.lmc"
    with pytest.raises(FileNotFoundError) as error:
        lmc.numpy.save_file({"w": weights}, path)
    assert error.value.filename == str(path)


def test_the_command_where_there_is_none(monkeypatch):
    from lmc_codec import __main__

    with monkeypatch.context() as m:
        m.setattr(__main__.os, "name", "nt")
        error = pytest.raises(SystemExit, __main__.command)
    assert "WSL" in str(error.value)
    monkeypatch.setattr(__main__.os.path, "exists", lambda path: False)
    error = pytest.raises(SystemExit, __main__.command)
    monkeypatch.undo()
    assert "without the command" in str(error.value)


def test_verify(tmp_path, model):
    """verify() reads a whole file, with or without its base: every damaged byte is found."""
    lmc.numpy.save_file(model, tmp_path / "base.lmc")
    with lmc.Writer(tmp_path / "delta.lmc", base=tmp_path / "base.lmc") as w:
        w.add_arrays(changed(model))
        w.add_bytes("notes", b"as ever " * 99)
    path = tmp_path / "base.lmc"
    found = lmc.verify(path)
    assert found.is_complete and found.fingerprint == lmc.open(path).fingerprint and ": intact>" in repr(found)
    path = tmp_path / "delta.lmc"
    alone = lmc.verify(path)
    assert not alone.is_complete and alone.base_fingerprint == found.fingerprint
    assert f"payload intact; content needs the base {found.fingerprint.hex()[:16]}" in repr(alone)
    for base in (tmp_path / "base.lmc", "auto", model):
        assert lmc.verify(path, base=base, threads=2).is_complete
    with pytest.raises(lmc.WrongBaseError):
        lmc.verify(path, base=changed(model))
    data = path.read_bytes()
    assert not lmc.verify(io.BytesIO(data)).is_complete
    for at in (*range(0, len(data), 997), *range(len(data) - 300, len(data), 7)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        with pytest.raises((lmc.CorruptError, lmc.FormatError)):
            lmc.verify(bad)
    for size in (0, 63, 1000, len(data) - 1):
        with pytest.raises((lmc.CorruptError, lmc.FormatError)):
            lmc.verify(data[:size])
    with pytest.raises((lmc.CorruptError, lmc.FormatError)):
        lmc.verify(data + b"1")


def test_verify_hashes(tmp_path, model):
    """Stored SHA-256 are compared, except those of a delta without its base."""
    data = io.BytesIO()
    with lmc.Writer(data, content_hashes=True) as w:
        w.add_arrays(model)
    data = data.getvalue()
    found = lmc.verify(data)
    assert found.is_complete and found.has_hashes
    assert not lmc.verify(lmc.numpy.save(model)).has_hashes
    with lmc.Writer(tmp_path / "delta.lmc", base=data, content_hashes=True) as w:
        w.add_arrays(changed(model))
    alone = lmc.verify(tmp_path / "delta.lmc")
    assert not alone.is_complete and not alone.has_hashes
    found = lmc.verify(tmp_path / "delta.lmc", base=data)
    assert found.is_complete and found.has_hashes

    hashed = bytearray(data)  # another hash, with right checksums: readers that do not compare hashes accept this
    at = hashed.rindex(b"hash", 0, hashed.rindex(b"INDX"))
    size = int.from_bytes(hashed[at + 4 : at + 12], "little")
    hashed[at + 20 + size - 1] ^= 1
    hashed[at + 12 : at + 16] = crc32c(hashed[at + 20 : at + 20 + size])
    hashed[at + 16 : at + 20] = crc32c(hashed[at : at + 16])
    same(lmc.numpy.load(bytes(hashed)), model)
    with pytest.raises(lmc.CorruptError):
        lmc.verify(hashed)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("write", [lmc.numpy.save, safetensors.numpy.save])
def test_base_is_bytes(tmp_path, model, write, form):
    """The bytes of an LMC or safetensors file are a base wherever a path is one."""
    base, now = form(write(model)), changed(model)
    lmc.numpy.save_file(now, tmp_path / "delta.lmc", base=base)
    delta = lmc.numpy.save(now, base=base)
    assert delta == (tmp_path / "delta.lmc").read_bytes() == lmc.numpy.save(now, base=model)
    same(lmc.numpy.load(delta, base=base), now)
    same(lmc.numpy.load_file(tmp_path / "delta.lmc", base=base), now)
    assert set(lmc.torch.load_file(tmp_path / "delta.lmc", base=base)) == set(now)
    with lmc.torch.safe_open(tmp_path / "delta.lmc", "np", base=base) as f, lmc.open(delta, base=base) as r:
        assert np.array_equal(f.get_tensor("ids"), now["ids"]) and np.array_equal(r.get("ids"), now["ids"])
    assert lmc.verify(delta, base=base).is_complete
    with pytest.raises(lmc.WrongBaseError):
        lmc.numpy.load(delta, base=form(write(now)))
    with pytest.raises(lmc.LMCError):
        lmc.numpy.load(delta, base=base[:-1])
    with pytest.raises(lmc.NotLMCError):
        lmc.numpy.save(now, base=form(b"neither of them"))


def test_verify_what_repeats_itself(tmp_path, model):
    """Parts that predict others of the same file are decoded again; checking a delta without its base goes on after
    them."""
    rng = np.random.default_rng(8)
    (tmp_path / "m").mkdir()
    big = rng.standard_normal((400, 500), np.float32)
    for name in "abc":
        safetensors.numpy.save_file({"w": big, name: np.zeros(3000, np.float32)}, tmp_path / "m" / f"{name}.safetensors")
    run_lmc("-o", tmp_path / "m.lmc", tmp_path / "m")
    assert "Own" in lmc.open(tmp_path / "m.lmc").features
    assert lmc.verify(tmp_path / "m.lmc").is_complete and lmc.verify((tmp_path / "m.lmc").read_bytes(), threads=2).is_complete
    big[::50] += 1
    for name in "abc":
        safetensors.numpy.save_file({"w": big, name: np.ones(3000, np.float32)}, tmp_path / "m" / f"{name}.safetensors")
    run_lmc("--base", tmp_path / "m.lmc", "-o", tmp_path / "n.lmc", tmp_path / "m")
    assert lmc.open(tmp_path / "n.lmc").features == ("Base", "Own", "Zeros", "Matrix", "Codes")
    assert not lmc.verify(tmp_path / "n.lmc").is_complete
    assert lmc.verify(tmp_path / "n.lmc", base=tmp_path / "m.lmc").is_complete
    data = bytearray((tmp_path / "n.lmc").read_bytes())
    for at in range(0, len(data), 499):
        data[at] ^= 1
        with pytest.raises((lmc.CorruptError, lmc.FormatError)):
            lmc.verify(data)
        data[at] ^= 1
