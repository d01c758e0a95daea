"""lmc_codec.torch and lmc_codec.numpy beside safetensors: the same calls, the same results."""

import inspect
import io
import json
import mmap
import os
import sys

import lmc_codec
import lmc_codec.numpy
import lmc_codec.torch
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from conftest import same


@pytest.fixture
def tensors():
    torch.manual_seed(1)
    return {
        "model.embed.weight": torch.randn(300, 70).to(torch.bfloat16),
        "a": torch.randn(2, 3, 4),
        "s": torch.tensor(3.0),
        "e": torch.zeros(0, 3, dtype=torch.int8),
        "f8": torch.randn(64).to(torch.float8_e4m3fn),
        "f4": torch.zeros(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "c": torch.zeros(3, dtype=torch.complex64),
        "b": torch.ones(3, dtype=torch.bool),
        'ü"\\\n': torch.arange(5),
    }


def equal(a, b):
    if isinstance(a, np.ndarray):
        return same(a, b)
    if not isinstance(a, torch.Tensor):
        return a == b
    raw = [x.contiguous().reshape(-1).view(torch.uint8) if x.numel() else x for x in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and torch.equal(*raw)


def both(tmp_path, tensors, metadata=None):
    """Paths of the two files of these tensors: safetensors, LMC."""
    paths = tmp_path / "m.safetensors", tmp_path / "m.lmc"
    safetensors.torch.save_file(tensors, paths[0], metadata)
    lmc_codec.torch.save_file(tensors, paths[1], metadata)
    return paths


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_signatures(name):
    """Every function of safetensors exists with the same arguments; new arguments are keyword-only."""
    import importlib

    theirs, ours = importlib.import_module(f"safetensors.{name}"), importlib.import_module(f"lmc_codec.{name}")
    for function in ("save", "load", "save_file", "load_file") + (("save_model", "load_model") if name == "torch" else ()):
        want = inspect.signature(getattr(theirs, function)).parameters
        have = inspect.signature(getattr(ours, function)).parameters
        assert list(have)[: len([p for p in want.values() if p.kind is not p.KEYWORD_ONLY])] == [
            p.name for p in want.values() if p.kind is not p.KEYWORD_ONLY
        ]
        for p in want.values():
            assert p.default == have[p.name].default, (function, p)
        assert all(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for n, p in have.items() if n not in want)
    methods = {m for m in dir(safetensors.safe_open) if not m.startswith("_")}
    assert methods <= set(dir(lmc_codec.safe_open))


@pytest.mark.parametrize("metadata", [None, {"format": "pt", "ü": '"'}])
def test_safe_open(tmp_path, tensors, metadata):
    a, b = both(tmp_path, tensors, metadata)
    with safetensors.safe_open(a, "pt") as x, lmc_codec.safe_open(b, "pt") as y:
        assert x.keys() == y.keys() and x.offset_keys() == y.offset_keys() and x.metadata() == y.metadata()
        assert list(x.get_tensors()) == list(y.get_tensors())
        for name in x.keys():
            assert equal(x.get_tensor(name), y.get_tensor(name))
            s, t = x.get_slice(name), y.get_slice(name)
            assert s.get_shape() == t.get_shape() and s.get_dtype() == t.get_dtype()
    with pytest.raises(lmc_codec.LMCError, match="File is closed"):
        y.keys()


INDICES = [
    "0", "-1", "slice(0, 1)", "(slice(None), 1)", "(..., 1)", "slice(None, None, 2)", "(0, 1, 2)", "(0, 1, 2, 3)", "5", "[0, 1]",
    "(slice(None), slice(None), slice(1, 3))", "()", "...", "(0, ..., 1)", "(slice(0, 0),)", "-3", "(slice(None), -1)", "None",
    "1.5", "'x'", "slice(None, None, -1)", "(slice(None), slice(0, 3, 2), slice(1, None, 3))",
]  # fmt: skip


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("index", INDICES)
def test_slices(tmp_path, framework, index):
    """Results are equal to those of safetensors; where it raises, this raises. (Negative and too large bounds of slices,
    which it refuses, work as in numpy.)"""
    a, b = both(tmp_path, {"a": torch.randn(2, 3, 4)})
    index = eval(index)
    x, y = safetensors.safe_open(a, framework).get_slice("a"), lmc_codec.safe_open(b, framework).get_slice("a")
    try:
        want = x[index]
    except Exception:
        if index not in (None, [0, 1], (..., 1), (0, ..., 1), -3):  # some frameworks accept some of these
            with pytest.raises((lmc_codec.LMCError, IndexError, TypeError, ValueError)):
                y[index]
    else:
        assert equal(np.asarray(y[index]) if framework == "np" else y[index], want)


def test_files(tmp_path, tensors):
    a, b = both(tmp_path, tensors, {"format": "pt"})
    x, y = safetensors.torch.load_file(a), lmc_codec.torch.load_file(b)
    assert list(x) == list(y) and all(equal(x[name], y[name]) for name in x)
    y = lmc_codec.torch.load_file(str(b), device="cpu")
    assert all(equal(x[name], y[name]) for name in x)
    data = lmc_codec.torch.save(tensors, {"format": "pt"})
    assert type(data) is bytes and data == b.read_bytes()
    assert all(equal(x[name], t) for name, t in lmc_codec.torch.load(data).items())
    assert os.path.getsize(b) < os.path.getsize(a)


def test_numpy(tmp_path):
    arrays = {
        "a": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "bf16": np.arange(9).astype(ml_dtypes.bfloat16),
        "big": np.arange(5, dtype=">i4"),
        "s": np.array(2.5),
    }
    safetensors.numpy.save_file(arrays, tmp_path / "a", {"k": "v"})
    lmc_codec.numpy.save_file(arrays, tmp_path / "b", {"k": "v"})
    x, y = safetensors.numpy.load_file(tmp_path / "a"), lmc_codec.numpy.load_file(tmp_path / "b")
    assert list(x) == list(y) and all(same(x[name], y[name]) for name in x)
    y = lmc_codec.numpy.load(lmc_codec.numpy.save(arrays))
    assert all(same(x[name], y[name]) for name in x)
    with pytest.raises(ValueError):  # of which safetensors writes the bytes in another order
        lmc_codec.numpy.save_file({"a": arrays["a"].T}, tmp_path / "c")


def test_the_header_is_that_of_safetensors():
    """Order, names and shapes of all kinds, also of many small arrays, which are written together."""
    names = ['a"b', "c\\d/e", "line\nfeed\t\x01\x7f", "é漢😀\u2028", "", "z", "\uffff", "\U00010000", *map(str, range(300))]
    rng, dtypes = np.random.default_rng(3), ("f2", "f4", "u1", "i8", "?")
    arrays = {name: rng.integers(0, 2, rng.integers(0, 40, i % 4)).astype(dtypes[i % 5]) for i, name in enumerate(names)}
    for metadata in (None, {}, {'k"': "é\n"}):
        want = safetensors.numpy.save(arrays, metadata)
        with lmc_codec.open(lmc_codec.numpy.save(arrays, metadata)) as r:
            (file,) = r.files
            assert bytes(r.read(file.path, 0, file.size)) == want


def test_refusals(tmp_path):
    """The same kinds of errors."""
    t = torch.zeros(3, 4)
    path = tmp_path / "x"
    for wrong in (
        {"a": t.T},
        {"a": 1},
        [t],
        {"a": t.to_sparse()},
        {"a": t, "b": t},
        {"a": t, "b": t[1]},
        {"a": t[0], "b": t.reshape(-1)[2:8]},
    ):
        with pytest.raises(Exception) as theirs:
            safetensors.torch.save_file(wrong, path)
        with pytest.raises(theirs.type) as ours:
            lmc_codec.torch.save_file(wrong, path)
        assert str(ours.value)[:30].strip() == " ".join(str(theirs.value).split())[:30].strip()
    for wrong in ({"a": 1}, {1: "a"}):
        with pytest.raises(TypeError):
            safetensors.torch.save_file({"a": t}, path, wrong)
        with pytest.raises(TypeError):
            lmc_codec.torch.save_file({"a": t}, path, wrong)
    lmc_codec.torch.save_file({"a": t[0], "b": t[1]}, path)  # parts that do not overlap
    for function in (lambda f: f.get_tensor("zz"), lambda f: f.get_slice("zz")):
        with pytest.raises(lmc_codec.LMCError):
            function(lmc_codec.safe_open(path, "pt"))
    names = "pt, torch, pytorch, np, numpy"
    with pytest.raises(lmc_codec.LMCError, match=rf"framework xx is invalid \(expected one of: {names}, bytes\)"):
        lmc_codec.safe_open(path, "xx")
    with pytest.raises(lmc_codec.LMCError, match=rf"framework bytes is invalid \(expected one of: {names}\)"):
        lmc_codec.safe_open(safetensors.torch.save({"a": t}), "bytes")
    with pytest.raises(lmc_codec.LMCError, match="device xx is invalid"):
        lmc_codec.safe_open(path, "pt", device="xx")
    with pytest.raises(FileNotFoundError):
        lmc_codec.safe_open(tmp_path / "nothing", "pt")
    with pytest.raises(lmc_codec.LMCError):
        lmc_codec.torch.load(b"abc")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.norm = torch.nn.BatchNorm1d(4)


def test_models(tmp_path):
    model, other = Tied(), Tied()
    safetensors.torch.save_model(model, tmp_path / "a")
    lmc_codec.torch.save_model(model, tmp_path / "b")
    x = safetensors.safe_open(tmp_path / "a", "pt")
    y = lmc_codec.safe_open(tmp_path / "b", "pt")
    assert x.keys() == y.keys() and x.metadata() == y.metadata()
    assert lmc_codec.torch.load_model(other, tmp_path / "b") == safetensors.torch.load_model(Tied(), tmp_path / "a")
    assert all(equal(t, other.state_dict()[name]) for name, t in model.state_dict().items())
    with pytest.raises(RuntimeError) as theirs:
        safetensors.torch.load_model(torch.nn.Linear(3, 3), tmp_path / "a")
    with pytest.raises(RuntimeError) as ours:
        lmc_codec.torch.load_model(torch.nn.Linear(3, 3), tmp_path / "b")
    assert str(ours.value) == str(theirs.value)


def test_delta(tmp_path, tensors):
    lmc_codec.torch.save_file(tensors, tmp_path / "0.lmc")
    new = {name: t.clone() for name, t in tensors.items()}
    new["a"][0, 0, 0] += 1
    lmc_codec.torch.save_file(new, tmp_path / "1.lmc", base=tmp_path / "0.lmc")
    back = lmc_codec.torch.load_file(tmp_path / "1.lmc", base=tensors)
    assert all(equal(new[name], t) for name, t in back.items())
    with lmc_codec.safe_open(tmp_path / "1.lmc", "pt", base=tmp_path / "0.lmc") as f:
        assert equal(f.get_slice("a")[0], new["a"][0])


def test_progress(tmp_path, tensors):
    seen = []

    def show(done, total):  # as for a bar of tqdm: bar.total = total; bar.update(done - bar.n)
        seen.append((done, total))

    lmc_codec.torch.save_file(tensors, tmp_path / "x", progress=show)
    with lmc_codec.open(tmp_path / "x") as r:
        size = r.files[0].size
    assert seen == sorted(seen) and {total for _, total in seen} == {size} and seen[-1][0] == size
    seen.clear()
    lmc_codec.torch.load_file(tmp_path / "x", progress=show)
    size = sum(t.nbytes for t in tensors.values())
    assert len(seen) == len(tensors) and seen == sorted(seen) and seen[-1] == (size, size)
    seen.clear()
    size -= tensors.pop("f4").nbytes  # which safetensors saves, and does not load
    safetensors.torch.save_file(tensors, tmp_path / "y")
    for source in (tmp_path / "y", (tmp_path / "y").read_bytes()):
        lmc_codec.torch.load_file(source, progress=show)
        assert seen == sorted(seen) and seen[-1] == (size, size) and {total for _, total in seen} == {size}
        seen.clear()


@pytest.mark.parametrize("wrong", [True, 1, "bar", []])
def test_progress_that_is_no_function(tmp_path, tensors, wrong):
    """That is said at once, not when it is called."""
    path = tmp_path / "x.lmc"
    lmc_codec.torch.save_file(tensors, path)
    safetensors.torch.save_file(tensors, tmp_path / "x.st")
    for call in (
        lambda: lmc_codec.torch.save_file(tensors, tmp_path / "y", progress=wrong),
        lambda: lmc_codec.torch.load_file(path, progress=wrong),
        lambda: lmc_codec.torch.load_file(tmp_path / "x.st", progress=wrong),
        lambda: lmc_codec.Writer(tmp_path / "y", progress=wrong),
        lambda: lmc_codec.compress(np.zeros(9), progress=wrong),
    ):
        with pytest.raises(TypeError, match=r"progress is .*: it must be a function that is called with \(done, total\), or None"):
            call()
    assert not (tmp_path / "y").exists()


def test_meta_tensors_are_named(tmp_path):
    with pytest.raises(ValueError, match="tensor 'm': is on meta: it has a shape, but no data"):
        lmc_codec.torch.save_file({"x": torch.zeros(3), "m": torch.empty(3, device="meta"), "n": torch.empty(4, device="meta")}, tmp_path / "x")
    with lmc_codec.Writer(io.BytesIO()) as w:
        w.add("x", torch.zeros(3))
        with pytest.raises(ValueError, match="tensor 'm': the tensor is on meta: it has a shape"):
            w.add("m", torch.empty(3, device="meta"))


@pytest.mark.parametrize("large", [False, True])
def test_the_damaged_tensor_is_named(tmp_path, large):
    """Small tensors, and small files, are read at once; the error must still name the tensor."""
    path, bad = tmp_path / "x.lmc", tmp_path / "bad.lmc"
    saved = {f"t{i:02}": torch.randn(300 if i % 3 else (1 << 20 if large else 100000)).bfloat16() for i in range(12)}
    lmc_codec.torch.save_file(saved, path)
    data = path.read_bytes()
    with lmc_codec.open(path) as r:
        places = [r._object.encoded_range(0, x.offset, x.size) for x in r.files[0].tensors]
    for at, size in places:
        place = at + size // 2
        bad.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        for load in (lmc_codec.torch.load_file, lmc_codec.numpy.load_file):
            with pytest.raises(lmc_codec.CorruptError, match=r"bad.lmc: tensor 't\d\d': corrupt: ") as caught:
                load(bad)
            name = str(caught.value).split("'")[1]
            with lmc_codec.open(bad) as r, pytest.raises(lmc_codec.CorruptError):
                r.get(name)


def test_backend(tmp_path, tensors):
    del tensors["f4"]
    lmc_codec.torch.save_file(tensors, tmp_path / "x")
    safetensors.torch.save_file(tensors, tmp_path / "y")
    for path in (tmp_path / "x", tmp_path / "y"):
        for backend in ("mmap", "pread"):
            assert lmc_codec.torch.load_file(path, backend=backend).keys() == tensors.keys()
            with lmc_codec.safe_open(path, "pt", backend=backend) as f:
                assert set(f.keys()) == tensors.keys()
        for read in (lmc_codec.torch.load_file, lmc_codec.numpy.load_file, lambda path, **more: lmc_codec.safe_open(path, "pt", **more)):
            with pytest.raises(lmc_codec.LMCError, match='backend "nope" is invalid'):
                read(path, backend="nope")
    with pytest.raises(lmc_codec.LMCError, match='backend "nope"'):
        lmc_codec.torch.load_model(torch.nn.Linear(2, 2), tmp_path / "x", backend="nope")


def test_a_name_of_safetensors_is_warned_of(tmp_path, tensors, recwarn):
    path = tmp_path / "model.safetensors"
    for save in (lmc_codec.torch.save_file, lambda x, path: lmc_codec.numpy.save_file({"a": np.zeros(3)}, path), write_with_writer):
        recwarn.clear()
        save(tensors, path)
        assert [str(x.message) for x in recwarn] == [f"{path} becomes an LMC file, which nothing that reads *.safetensors knows: give it a name that ends in .lmc"]
        assert recwarn[0].category is UserWarning and recwarn[0].filename == __file__
    recwarn.clear()
    for name in ("a.safetensors.lmc", "a.lmc", "a"):
        lmc_codec.torch.save_file(tensors, tmp_path / name)
    assert not recwarn


def write_with_writer(tensors, path):
    with lmc_codec.Writer(path) as w:
        w.add_arrays(tensors)


def test_save_model_names_force_contiguous(tmp_path):
    model = torch.nn.Linear(3, 2)
    model.weight = torch.nn.Parameter(torch.zeros(3, 2).t())
    with pytest.raises(ValueError, match=r"non contiguous tensor: `weight`.* use save_model\(\.\.\., force_contiguous=True\)"):
        lmc_codec.torch.save_model(model, tmp_path / "x", force_contiguous=False)
    lmc_codec.torch.save_model(model, tmp_path / "x")
    assert torch.equal(lmc_codec.torch.load_file(tmp_path / "x")["weight"], model.weight)


def test_indices_that_are_not_there(tmp_path):
    """An IndexError, as in numpy, which code for safetensors also catches."""
    lmc_codec.numpy.save_file({"a": np.zeros((3, 4)), "e": np.zeros((0, 3))}, tmp_path / "x")
    with lmc_codec.safe_open(tmp_path / "x", "np") as f:
        a = f.get_slice("a")
        for index in (3, -4, (0, 4), (0, 0, 0), (..., ...), [3], (None, 7)):
            for kind in (IndexError, safetensors.SafetensorError, lmc_codec.LMCError):
                with pytest.raises(kind):
                    a[index]
        for kind in (ValueError, safetensors.SafetensorError):
            with pytest.raises(kind, match="step"):
                a[::-1]
        assert a[2, 3] == 0 and f.get_slice("e")[:].shape == (0, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu(tmp_path, tensors):
    on_gpu = {name: t.cuda() for name, t in tensors.items()}
    lmc_codec.torch.save_file(on_gpu, tmp_path / "x")
    back = lmc_codec.torch.load_file(tmp_path / "x", "cuda")
    assert all(t.is_cuda and equal(t.cpu(), tensors[name]) for name, t in back.items())


def test_files_that_are_still_safetensors(tmp_path, tensors):
    """After a change of the import line existing checkpoints can still be read."""
    path = tmp_path / "old.safetensors"
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    back = lmc_codec.torch.load_file(path)
    assert back.keys() == tensors.keys() and all(equal(t, tensors[name]) for name, t in back.items())
    assert equal(lmc_codec.torch.load(safetensors.torch.save({"a": tensors["a"]}))["a"], tensors["a"])
    with lmc_codec.safe_open(str(path), "pt") as f:
        assert f.metadata() == {"format": "pt"} and equal(f.get_slice("a")[1], tensors["a"][1])
    arrays = {"x": np.arange(6.0).reshape(2, 3)}
    safetensors.numpy.save_file(arrays, path)
    seen = []
    back = lmc_codec.numpy.load_file(path, progress=lambda *x: seen.append(x))
    assert same(back["x"], arrays["x"]) and seen == [(48, 48)]
    with pytest.warns(UserWarning, match="becomes an LMC file"):
        lmc_codec.torch.save_file(tensors, path)  # an LMC file, whatever it is called
    assert isinstance(lmc_codec.safe_open(path, "pt"), lmc_codec.safe_open)
    with pytest.raises(lmc_codec.NotLMCError):
        lmc_codec.numpy.load(b"neither of them")


def test_safetensors_file_without_safetensors(tmp_path, monkeypatch):
    safetensors.numpy.save_file({"x": np.zeros(3)}, tmp_path / "x")
    for name in ("safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    for read in (lmc_codec.numpy.load_file, lambda path: lmc_codec.safe_open(path, "np")):
        with pytest.raises(ImportError, match="x is a safetensors file: pip install safetensors"):
            read(tmp_path / "x")


def test_empty_safetensors_file(tmp_path):
    safetensors.numpy.save_file({}, tmp_path / "x")
    data = (tmp_path / "x").read_bytes()
    for ours in (lmc_codec.numpy, lmc_codec.torch):
        assert ours.load_file(tmp_path / "x") == {} == ours.load(data)
    with lmc_codec.safe_open(tmp_path / "x", "np") as f:
        assert f.keys() == [] and f.metadata() is None


ML_DTYPES = {
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}


def test_safetensors_of_ml_dtypes(tmp_path):
    """Dtypes that numpy has from ml_dtypes are also read from safetensors files, in every way."""
    arrays = {name: np.arange(48, dtype=np.uint8).view(dtype).reshape(2, -1) for name, dtype in ML_DTYPES.items()}
    arrays["e"], arrays["i"] = np.zeros((0, 3), ml_dtypes.bfloat16), np.arange(3)
    header, body = {"__metadata__": {"k": "v"}}, b""
    for name, x in arrays.items():
        dtype = {"e": "BF16", "i": "I64"}.get(name, name)
        header[name] = {"dtype": dtype, "shape": x.shape, "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + body
    path = tmp_path / "x"
    path.write_bytes(data)
    for back in (lmc_codec.numpy.load_file(path), lmc_codec.numpy.load(data), lmc_codec.safe_open(path, "np").get_tensors()):
        assert sorted(back) == sorted(arrays) and all(same(x, arrays[name]) for name, x in back.items())
    for source in (path, data):
        with lmc_codec.safe_open(source, "np") as f:
            assert f.metadata() == {"k": "v"} and f.keys() == sorted(arrays)
            s = f.get_slice("F8_E4M3")
            assert s.get_dtype() == "F8_E4M3" and s.get_shape() == [2, 24] and same(s[1, 2:4], arrays["F8_E4M3"][1, 2:4])
            with pytest.raises((lmc_codec.LMCError, safetensors.SafetensorError)):
                f.get_tensor("zz")
        with pytest.raises(lmc_codec.LMCError, match="closed"):
            f.keys()


@pytest.mark.parametrize("library", ["safetensors", "lmc_codec"])
def test_forms_of_sources(tmp_path, library):
    """Buffers and open files, of either format."""
    arrays = {"b": np.arange(12.0).reshape(3, 4), "a": np.arange(4, dtype=np.int8)}  # larger dtypes first, as in files
    data = (safetensors.numpy if library == "safetensors" else lmc_codec.numpy).save(arrays, {"k": "v"})
    path = tmp_path / "x"
    path.write_bytes(data)
    bytes_of_it = np.frombuffer(data, np.uint8)
    rows = bytes_of_it.reshape(1, -1)
    with open(path, "rb") as file, open(path, "rb") as other:
        other.seek(5)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for source in (data, bytearray(data), bytes_of_it, rows, memoryview(rows), mapped, other, io.BytesIO(data)):
            back = lmc_codec.numpy.load_file(source)
            assert list(back) == list(arrays) and all(same(x, arrays[name]) for name, x in back.items())
            back = lmc_codec.torch.load_file(source, "cpu")
            assert all(same(t.numpy(), arrays[name]) for name, t in back.items())
            with lmc_codec.safe_open(source, "pt") as f:
                assert f.keys() == sorted(arrays) and f.offset_keys() == list(arrays) and f.metadata() == {"k": "v"}
                assert same(f.get_slice("b")[1].numpy(), arrays["b"][1])
        assert other.tell() == 5


def test_a_directory_is_no_file(tmp_path):
    for read in (lmc_codec.open, lmc_codec.numpy.load_file, lmc_codec.torch.load_file, lambda path: lmc_codec.safe_open(path, "np")):
        with pytest.raises(IsADirectoryError, match="makes an LMC file of it"):
            read(tmp_path)
    lmc_codec.numpy.save_file({}, tmp_path / "x")
    with pytest.raises(IsADirectoryError, match="makes an LMC file of it"):
        lmc_codec.open(tmp_path / "x", base=tmp_path)


def test_safe_open_is_one_class(tmp_path):
    """The types and arguments are checked for every kind of file."""
    safetensors.numpy.save_file({"x": np.zeros(3)}, tmp_path / "a")
    lmc_codec.numpy.save_file({"x": np.zeros(3)}, tmp_path / "b")
    for path in (tmp_path / "a", tmp_path / "b"):
        for backend in ("mmap", "pread"):
            with lmc_codec.safe_open(path, "np", backend=backend, threads=2) as f:
                assert isinstance(f, lmc_codec.safe_open) and same(f.get_tensor("x"), np.zeros(3))
        with pytest.raises(TypeError, match="nonsense"):
            lmc_codec.safe_open(path, "np", nonsense=1)
        with pytest.raises((lmc_codec.LMCError, safetensors.SafetensorError), match="framework xx is invalid"):
            lmc_codec.safe_open(path, "xx")


@pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: x[:20], lambda x: x[:8] + b'{"' + x[12:] + b"  "])
def test_damaged_safetensors(tmp_path, damage):
    """The errors of safetensors, from a path and from memory."""
    data = damage(safetensors.numpy.save({"x": np.zeros(3)}))
    (tmp_path / "x").write_bytes(data)
    for source in (tmp_path / "x", data, io.BytesIO(data)):
        for ours in (lmc_codec.numpy, lmc_codec.torch):
            with pytest.raises(safetensors.SafetensorError):
                ours.load_file(source)


def test_names_of_iterate(tmp_path):
    """A string is one name: not all names that are a part of it."""
    lmc_codec.torch.save_file({"layer.norm.weight": torch.ones(3), "norm.weight": torch.zeros(2), "w": torch.zeros(1)}, tmp_path / "a.lmc")
    for names in "layer.norm.weight", ["layer.norm.weight"], {"layer.norm.weight": 1}:
        assert [name for name, _ in lmc_codec.torch.iterate(tmp_path / "a.lmc", names=names)] == ["layer.norm.weight"]
