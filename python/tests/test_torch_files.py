"""Files of torch.save(): tensors are equal to those of torch.load, for any order of bytes and any sharing."""

import importlib.util
import io
import json
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import OrderedDict

import fsspec
import lmc_codec
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint
from lmc_codec.torch import load_file, safe_open


def run_command(*arguments, cwd):
    said = subprocess.run([sys.executable, "-m", "lmc_codec", *arguments], cwd=cwd, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said.stdout


def flatten(x, path=""):
    if isinstance(x, torch.Tensor):
        return {path: x}
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, (list, tuple)) else ()
    found = {}
    for key, value in items:
        found.update(flatten(value, f"{path}.{key}" if path else str(key)))
    return found


def check(path, expected):
    """Compares all names, and all elements of each tensor, in every way of reading."""
    found = load_file(path)
    for name, t in expected.items():
        assert found[name].dtype == t.dtype and torch.equal(found[name], t), name
    with lmc_codec.open(path) as r, safe_open(path, "pt") as f:
        assert set(expected) <= set(r.keys()) and set(expected) <= set(f.keys())
        for name, t in expected.items():
            info = r.info(name)
            assert info.shape == tuple(t.shape) and info.size == t.numel() * t.element_size()
            assert torch.equal(f.get_tensor(name), t) and name in r
            assert r.get(name, framework="bytes") == t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            out = torch.empty(t.shape, dtype=t.dtype)
            assert torch.equal(r.get(name, out=out), t)
            if t.ndim:
                assert torch.equal(f.get_slice(name)[1:3], t[1:3]) and torch.equal(f.get_slice(name)[::2], t[::2])
            assert r.encoded_size(name) > 0 or t.numel() == 0


def make_object():
    g = torch.Generator().manual_seed(1)
    square = torch.randn(40, 40, generator=g)
    tied = torch.randn(50, 60, generator=g)
    conv = torch.randn(8, 6, 3, 3, generator=g).to(memory_format=torch.channels_last)
    whole = torch.randn(30, 70, generator=g)
    return {
        "t": square.t(),
        "w": square + 1,
        "embed": tied,
        "lm_head": tied,
        "part": tied[3:5],
        "columns": whole[:, 3:9],
        "conv": conv,
        "expanded": torch.randn(7, 1, generator=g).expand(7, 5),
        "half": torch.randn(64, 64, generator=g).to(torch.bfloat16).t(),
        "nested": OrderedDict(state={0: {"m": torch.randn(20, 30, generator=g).t(), "step": torch.tensor(3.0)}}),
        "list": [torch.arange(6).view(2, 3).t(), "text", None],
        "p": torch.nn.Parameter(torch.randn(5, 9, generator=g)).data.t(),
    }


@pytest.mark.parametrize("way", ["command", "writer", "delta"])
def test_views(tmp_path, way):
    made = make_object()
    torch.save(made, tmp_path / "v.pt")
    if way == "writer":
        with lmc_codec.Writer(tmp_path / "v.pt.lmc") as w:
            w.add_file(tmp_path / "v.pt")
    else:
        run_command("v.pt", cwd=tmp_path)
    check(tmp_path / "v.pt.lmc", flatten(made))
    if way == "delta":
        made["t"].add_(1)
        torch.save(made, tmp_path / "next.pt")
        run_command("--base", "v.pt", "next.pt", cwd=tmp_path)
        found = load_file(tmp_path / "next.pt.lmc", base=tmp_path / "v.pt.lmc")
        assert all(torch.equal(found[name], t) for name, t in flatten(made).items())
        with lmc_codec.open(tmp_path / "next.pt.lmc") as r, pytest.raises(lmc_codec.MissingBaseError):
            r.get("t")  # only the base tells whether it is transposed


def cases():
    path = pathlib.Path(__file__).parents[2] / "tests/command/torch_files.py"
    if not path.exists():  # only the repository has it, not a package
        return []
    spec = importlib.util.spec_from_file_location("torch_files", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cases()


@pytest.mark.parametrize("way", ["command", "writer"])
@pytest.mark.parametrize("files,tensors", [pytest.param(*x[1:], id=x[0]) for x in cases()])
def test_what_the_command_finds(tmp_path, files, tensors, way):
    """tests/command/test_checkpoints.py runs the same list."""
    if way == "command":
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(data)
        name = min(files).split("/")[0]
        run_command(name, cwd=tmp_path)
        path = tmp_path / f"{name}.lmc"
    else:
        path = tmp_path / "x.lmc"
        with lmc_codec.Writer(path) as w:
            for name, data in files.items():
                w.add_bytes(name, data)
    with lmc_codec.open(path) as r:
        if way == "writer" and "x.pt" not in files:
            assert not r.keys()  # of .distcp files, only listed tensors count
            return
        for name, expected in tensors.items():
            if expected is None:
                with pytest.raises(lmc_codec.AmbiguousError):
                    r.get(name)
                continue
            x = r.info(name)
            assert (x.dtype, x.shape, r.get(name, framework="bytes")) == expected, name


def test_names(tmp_path):
    """The command lists the same names and shapes."""
    torch.save(make_object(), tmp_path / "v.pt")
    run_command("v.pt", cwd=tmp_path)
    listed = json.loads(run_command("-l", "--json", "v.pt.lmc", cwd=tmp_path))
    views = [x for f in listed["files"] for x in f.get("views", ())] if "files" in listed else listed["views"]
    with lmc_codec.open(tmp_path / "v.pt.lmc") as r:
        for x in views:
            assert r.info(x["name"]).shape == tuple(x["shape"])


def test_load_file_is_torch_load(tmp_path):
    """Lists no storages and no parts of the archive, even if pickle and directory are long."""
    many = {f"layer.{i}": torch.randn(30, 40).t() if i % 7 else torch.randn(90, 40)[:, :8] for i in range(200)}
    torch.save(many, tmp_path / "many.pt")
    run_command("many.pt", cwd=tmp_path)
    found = load_file(tmp_path / "many.pt.lmc")
    assert found.keys() == many.keys() and all(torch.equal(found[k], t) for k, t in many.items())
    with lmc_codec.open(tmp_path / "many.pt.lmc") as r:
        assert any(name.startswith("@") for name in r) and "layer.0@storage" in r


def test_one_tensor_and_flags(tmp_path):
    c = torch.randn(4, 5, dtype=torch.complex64)
    torch.save({"plain": c, "flag": c.conj()}, tmp_path / "c.pt")
    torch.save(torch.arange(12.0).view(3, 4).t(), tmp_path / "one.pt")
    run_command("c.pt", cwd=tmp_path)
    run_command("one.pt", cwd=tmp_path)
    with lmc_codec.open(tmp_path / "c.pt.lmc", framework="torch") as r:
        assert torch.equal(r.get("plain"), c) and torch.equal(r.get("flag"), c.conj())
    assert torch.equal(load_file(tmp_path / "one.pt.lmc")[""], torch.arange(12.0).view(3, 4).t())


def save(tmp_path, x, name="x.pt"):
    """As the command compresses it."""
    torch.save(x, tmp_path / name)
    run_command("-f", name, cwd=tmp_path)
    return tmp_path / f"{name}.lmc"


def make_odd():
    g = torch.Generator().manual_seed(5)
    c = {n: torch.randn(6, 5, dtype=n, generator=g) for n in (torch.complex64, torch.complex128)}
    odd = {}
    for n, t in c.items():
        conjugated = t.conj()
        odd.update({f"{n}": t, f"{n}.t": t.t(), f"{n}.conj": conjugated, f"{n}.conj.t": conjugated.t()})
        odd[f"{n}.imag"] = t.clone().conj().imag
        odd[f"{n}.both"] = torch._neg_view(conjugated)
        odd[f"{n}.neg"] = torch._neg_view(t)
        odd[f"{n}.many"] = conjugated[:, :1].expand(6, 7)
    odd["neg"] = torch._neg_view(torch.tensor([0.0, float("nan"), float("inf"), 5e-324], dtype=torch.float64))
    odd["bf16"] = torch._neg_view(torch.randn(9, generator=g).bfloat16())
    odd["expanded"] = torch.randn(1, generator=g).expand(1000, 1000)
    odd["huge"] = torch.randn(3, 1, generator=g).expand(3, 1 << 40)
    odd["windows"] = torch.arange(9.0).unfold(0, 4, 1)
    return odd


def test_files_that_nobody_compressed(tmp_path, monkeypatch):
    """The error says what the file is and what reads it, for every kind of source."""
    monkeypatch.chdir(tmp_path)
    torch.save({"a": torch.ones(3)}, "a.pt")
    torch.save({"a": torch.ones(3)}, "old.pt", _use_new_zipfile_serialization=False)
    np.save("a.npy", np.ones(3))
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(100))
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    said = "is a zip archive, as torch.save.. writes it, no LMC file: torch.load.. reads it"
    for name, what in (("a.pt", f"^a.pt {said}, and `lmc a.pt` makes a.pt.lmc of it"), ("old.pt", "old.pt is a pickle, .*: torch.load"),
                       ("a.npy", "a.npy is a NumPy array, .*: numpy.load"), ("a.gguf", "GGUF"), ("tiny.gguf", "GGUF")):  # fmt: skip
        for way in (load_file, lmc_codec.numpy.load_file, lmc_codec.open, lambda x: safe_open(x, "pt")):
            with pytest.raises(lmc_codec.NotLMCError, match=what):
                way(name)
    with pytest.raises(lmc_codec.NotLMCError, match=f"^this {said}$"):
        lmc_codec.open((tmp_path / "a.pt").read_bytes())
    with fsspec.open("memory://a.pt", "wb") as file:
        file.write((tmp_path / "a.pt").read_bytes())
    with pytest.raises(lmc_codec.NotLMCError, match=f"^memory://a.pt {said}$"):
        load_file("memory://a.pt")
    (tmp_path / "x").write_bytes(b"something else " * 9)
    with pytest.raises(lmc_codec.NotLMCError, match="x: no LMC file|x: .*LMC"):
        load_file("x")


def test_odd_tensors(tmp_path):
    """Complex tensors, flags, and repeated elements: equal to torch.load, with no more memory."""
    odd = {name.replace(".", "_"): t for name, t in make_odd().items()}
    huge = odd.pop("huge")
    path = save(tmp_path, {**odd, "huge": huge})
    found = load_file(path)
    assert found["huge"].shape == huge.shape and torch.equal(found.pop("huge")[:, 12345], huge[:, 0])
    assert found.keys() == odd.keys()
    with lmc_codec.open(path) as r:
        for name, t in odd.items():
            a = found[name]
            assert a.dtype == t.dtype and a.shape == t.shape and not a.is_conj() and not a.is_neg(), name
            whole = t.resolve_conj().resolve_neg().contiguous()
            bits = whole.view(-1).view(torch.uint8).numpy().tobytes()
            assert a.contiguous().view(-1).view(torch.uint8).numpy().tobytes() == bits, name
            if name != "expanded":
                assert r.get(name, framework="bytes") == bits, name
            if t.dtype != torch.bfloat16:
                n = r.get(name, framework="numpy")
                assert n.dtype == whole.numpy().dtype and n.tobytes() == bits, name
                assert r.get_slice(name)[1:3].tobytes() == whole[1:3].numpy().tobytes(), name
            out = torch.empty(t.numel() * t.element_size(), dtype=torch.uint8)
            assert r.get(name, out=out).numpy().tobytes() == bits, name
        with pytest.raises(lmc_codec.LimitError, match="'expanded' has 4000000 bytes, made of 4"):
            r.get("expanded", framework="bytes")
        assert found["expanded"].untyped_storage().nbytes() == 4 and found["windows"].untyped_storage().nbytes() == 36
        with pytest.raises(ValueError):
            r.get("windows", framework="numpy")[0, 0] = 7  # this would change other elements


def test_names_that_meet(tmp_path):
    g = torch.Generator().manual_seed(6)
    x, y, z = (torch.randn(3, 4, generator=g) for _ in range(3))
    for second in (y, torch.randn(5, generator=g), x.t(), x + 1):
        made = {"good": z, "n": {"a.b": x}, "n.a": {"b": second}}
        path = save(tmp_path, made)
        with lmc_codec.open(path) as r:
            assert "n.a.b" in r.keys() and "n.a.b" in r
            for ask in (lambda: r.get("n.a.b"), lambda: r.info("n.a.b"), lambda: r.info("n.a.b", file=""), lambda: load_file(path)):
                with pytest.raises(lmc_codec.AmbiguousError, match="x.pt.lmc: several tensors are called 'n.a.b': restore the file"):
                    ask()
            assert torch.equal(r.get("good", framework="torch"), z)
    made = {"good": z, "n": {"a.b": x}, "n.a": {"b": x}}  # the tensors of this name are the same tensor
    assert torch.equal(load_file(save(tmp_path, made))["n.a.b"], x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_cannot_be_given_is_left_out(tmp_path):
    """Tensors are skipped only on request; damaged ones, or those without a base, are never skipped."""
    good = {f"w{i}": torch.randn(30, 40) for i in range(200)}
    quantised = torch.quantize_per_tensor(torch.randn(4, 5), 0.1, 3, torch.qint8)
    path = save(tmp_path, {**good, "q": quantised, "n": {"a.b": good["w0"]}, "n.a": {"b": good["w1"]}})
    read = []
    with pytest.raises((TypeError, lmc_codec.AmbiguousError), match="'(q.0|n.a.b)'.*; on_error='skip' leaves it out"):
        load_file(path, progress=lambda *done: read.append(done))
    assert not read  # it is known before anything is read
    with pytest.warns(UserWarning, match=r"x.pt.lmc: left out: .*'q.0' is of BYTES.*") as caught:
        found = load_file(path, on_error="skip")
    assert "'n.a.b'" in str(caught[0].message) and caught[0].filename == __file__
    assert found.keys() == good.keys() and all(torch.equal(found[k], t) for k, t in good.items())
    with pytest.warns(UserWarning, match="left out"):
        assert lmc_codec.numpy.load_file(path, on_error="skip").keys() == good.keys()
    with pytest.raises(ValueError, match="on_error"):
        load_file(path, on_error="ignore")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(lmc_codec.CorruptError), pytest.warns(UserWarning, match="left out"):
        load_file(path, on_error="skip")


def test_gather():
    gather = lmc_codec._lmc.gather
    for dtype in ("u1", "u2", "u4", "u8", "V3", "V16"):
        a = np.frombuffer(bytes(i % 251 for i in range(60 * np.dtype(dtype).itemsize)), dtype).reshape(3, 4, 5)
        out = bytearray(a.nbytes)
        gather(a.tobytes(), out, (5, 3, 4), (1, 20, 5))
        assert out == a.transpose(2, 0, 1).tobytes()
    out = bytearray(24)
    gather(b"ab", out, (4, 2, 3), (0, 1, 0))
    assert out == b"aaabbb" * 4
    gather(b"abcdefgh", out := bytearray(8), (), ())
    assert out == b"abcdefgh"
    gather(b"", bytearray(), (0, 7), (1, 1))
    for span, out, shape, strides in (
        (b"abc", 4, (4,), (1,)), (b"abc", 4, (2, 2), (1, 2)), (b"abc", 3, (4,), (0,)), (b"abc", 5, (2,), (1,)), (b"", 1, (1,), (1,)),
        (b"abc", 4, (2, 2), (1,)), (b"abc", 2, (2,), (1 << 63,)), (b"abc", 2, (1 << 62, 1 << 62), (0, 0)), (b"abc", 0, (1,), (1,)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="in the span"):
            gather(span, bytearray(out), shape, strides)


def patch(data, change):
    """The archive with another pickle."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(target, "w") as new:
        for x in old.infolist():
            content = old.read(x)
            new.writestr(zipfile.ZipInfo(x.filename), change(content) if x.filename.endswith("data.pkl") else content)
    return target.getvalue()


HOSTILE = {
    "cut": lambda p: p[: len(p) // 2],
    "code": lambda p: b"cos\nsystem\n(S'touch hurt'\ntR.",
    "memo": lambda p: b"\x80\x02Nr\xff\xff\xff\xff.",
    "nested": lambda p: b"\x80\x02" + b"]" * 10000 + b"a" * 9999 + b".",
    "loop": lambda p: b"\x80\x02ctorch._utils\n_rebuild_parameter\n]q\x00R\x94h\x00h\x00a0.",
    "self": lambda p: b"\x80\x02]q\x00ctorch._utils\n_rebuild_parameter\nh\x00Rq\x01h\x00h\x01a0\x85h\x01\x86.",
    "huge": lambda p: p.replace(b"K(K(\x86", b"J\xff\xff\xff\x7fK(\x86"),
    "repeated": lambda p: p.replace(b"K(K(\x86", b"\x8a\x08" + b"\xff" * 7 + b"\x7fK(\x86").replace(b"K\x01K(\x86", b"K\0K\0\x86"),
    "number": lambda p: pickle.dumps(7, 2),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pickles(tmp_path, monkeypatch, kind):
    """Pickles are data: nothing is executed, and nothing takes long. The files themselves can be read."""
    monkeypatch.chdir(tmp_path)
    target = io.BytesIO()
    torch.save({"t": torch.zeros(40, 40).t()}, target)
    data = patch(target.getvalue(), HOSTILE[kind])
    with lmc_codec.Writer(tmp_path / "x.lmc") as w:
        w.add_bytes("x.pt", data)
        w.add("other", np.ones(3))
    with lmc_codec.open(tmp_path / "x.lmc") as r:
        assert r.keys() == ["other"] and r.read("x.pt") == data
        assert r.get("other").tolist() == [1, 1, 1]
    assert not (tmp_path / "hurt").exists()


def list_anyway(path, files):
    """A snapshot whose list of tensors is independent of its files. files: data and (name, shape, offset, size) by path."""
    writer = lmc_codec._lmc.Writer(None, 1 << 28)
    for name, (data, tensors) in files.items():
        writer.begin_file(name, len(data), [(n, "F32", shape, offset, size, None, None) for n, shape, offset, size in tensors])
        writer.write(data)
        writer.end_file()
    path.write_bytes(writer.finish()[0])
    return path


def test_what_is_not_understood_is_refused(tmp_path):
    """The index lists its tensors, but not whether they are transposed."""
    t = torch.arange(1600.0).view(40, 40)
    torch.save({"t": t.t()}, tmp_path / "v.pt")
    run_command("v.pt", cwd=tmp_path)
    with lmc_codec.open(tmp_path / "v.pt.lmc") as r:
        x = r.info("t")
        assert x.strides == (1, 40) and x.span == 6400
    data = (tmp_path / "v.pt").read_bytes()
    for change, name, why in ((HOSTILE["cut"], "t", "it ends early"), (HOSTILE["number"], "t", "describe tensor 't'"), (lambda p: p, "u", "describe tensor 'u'")):
        changed = patch(data, change)
        path = list_anyway(tmp_path / "x.lmc", {"v.pt": (changed, [(name, (40, 40), changed.index(t.numpy().tobytes()), 6400)])})
        with lmc_codec.open(path) as r, pytest.raises(lmc_codec.UnsupportedError, match=f"^v.pt: .*not understood.*{why}"):
            r.get(name)


def make_checkpoint():
    g = torch.Generator().manual_seed(4)
    return {
        "plain": torch.randn(30, 20, generator=g),
        "square": torch.randn(40, 40, generator=g).t(),
        "turned": torch.randn(50, 40, generator=g).to(torch.bfloat16).t(),
        "conv": torch.randn(8, 6, 3, 3, generator=g).to(memory_format=torch.channels_last),
        "optimizer": {"m": torch.randn(3, 4, generator=g).t(), "step": 7},
        "scalar": torch.tensor(3.5),
    }


@pytest.mark.filterwarnings("ignore")  # torch: "assuming the intent is to save in a single process"
@pytest.mark.parametrize("way", ["directory", "file"])
def test_distcp(tmp_path, way):
    """Files of torch.distributed.checkpoint: with .metadata in the snapshot, or read by the command from beside it."""
    state = make_checkpoint()
    torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path / "step")
    path = "step" if way == "directory" else "step/__0_0.distcp"
    run_command(path, cwd=tmp_path)
    found = load_file(tmp_path / f"{path}.lmc")
    expected = flatten(state)
    if way == "file":  # a tensor with other dimensions in memory has these in its name
        assert {name.partition("[")[0] for name in found} == set(expected)
        found = {name.partition("[")[0]: t for name, t in found.items()}
        for name, t in expected.items():
            assert found[name].dtype == t.dtype and torch.equal(found[name], t), name
        return
    check(tmp_path / "step.lmc", expected)
    with lmc_codec.open(tmp_path / "step.lmc") as r:
        assert set(r.keys()) == set(expected)
        assert r.get("turned[0:50,0:40]", framework="torch").shape == (50, 40)  # as `lmc -l` lists what is stored


@pytest.mark.filterwarnings("ignore")
def test_distcp_that_is_not_understood(tmp_path):
    """Tensors that may be transposed are refused: in a delta without its base, or if .metadata is of another checkpoint."""
    state = make_checkpoint()
    for step in ("one", "two"):
        torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path / step)
        state["plain"] = state["plain"] + 1
    run_command("--base", "one", "two", cwd=tmp_path)
    with lmc_codec.open(tmp_path / "two.lmc") as r, pytest.raises(lmc_codec.MissingBaseError):
        r.get("square")
    run_command("one", cwd=tmp_path)
    with lmc_codec.open(tmp_path / "two.lmc", base=tmp_path / "one.lmc") as r:
        assert torch.equal(r.get("square", framework="torch"), state["square"])
    meta = torch.distributed.checkpoint.metadata
    place = torch.distributed.checkpoint.filesystem._StorageInfo("__0_0.distcp", 64, 9000)
    other = meta.Metadata({}, storage_data={meta.MetadataIndex("square"): place})
    with lmc_codec.open(with_metadata(tmp_path, pickle.dumps(other))) as r, pytest.raises(lmc_codec.UnsupportedError, match="not understood"):
        r.get("square")


def with_metadata(tmp_path, metadata):
    """The checkpoint one.lmc, with another .metadata."""
    with lmc_codec.open(tmp_path / "one.lmc") as r, lmc_codec.Writer(tmp_path / "other.lmc") as w:
        for x in r.files:
            if x.path != ".metadata":
                w.copy_from(r, x.path)
        w.add_bytes(".metadata", metadata)
    return tmp_path / "other.lmc"


HOSTILE_METADATA = {
    **HOSTILE,
    "member": lambda p: p.replace(b"storage_data", b"storage-data"),
    "nothing": lambda p: b"",
}
del HOSTILE_METADATA["repeated"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", HOSTILE_METADATA.values(), ids=HOSTILE_METADATA)
def test_hostile_metadata(tmp_path, change):
    """Without .metadata only the index tells the items: tensors are right, or refused."""
    state = make_checkpoint()
    torch.distributed.checkpoint.save(state, checkpoint_id=tmp_path / "one")
    run_command("one", cwd=tmp_path)
    metadata = (tmp_path / "one/.metadata").read_bytes()
    assert change(metadata) != metadata
    with lmc_codec.open(with_metadata(tmp_path, change(metadata))) as r:
        try:
            found = {name.partition("[")[0]: name for name in r}  # after the dimensions in memory, as above
            for name, t in flatten(state).items():
                assert torch.equal(r.get(found[name], framework="torch"), t)
        except lmc_codec.UnsupportedError:
            assert change is HOSTILE["huge"]


def test_without_crc32(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"t": torch.arange(12.0).view(3, 4).t()}, tmp_path / "v.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with zipfile.ZipFile(tmp_path / "v.pt") as archive:
        assert archive.testzip() is not None
    run_command("v.pt", cwd=tmp_path)
    check(tmp_path / "v.pt.lmc", {"t": torch.arange(12.0).view(3, 4).t()})


def test_broken_archives(tmp_path):
    """Such files have no tensors; if the index lists some, they are refused."""
    t = torch.arange(20.0).view(4, 5)
    torch.save({"t": t.t()}, tmp_path / "v.pt")
    whole = (tmp_path / "v.pt").read_bytes()
    listed = [("t", (4, 5), whole.index(t.numpy().tobytes()), 80)]
    entry = whole.index(b"PK\1\2")  # of data.pkl, the first
    end = whole.rindex(b"PK\6\6")
    with lmc_codec.open(list_anyway(tmp_path / "x.lmc", {"v.pt": (whole, listed)})) as r:
        assert torch.equal(r.get("t", framework="torch"), t.t())
    for at, value in (
        (entry + 10, 8),  # compressed
        (entry + 10, 99),
        (entry + 26, 255),  # larger than the file
        (end + 55, 255),  # offsets before the beginning
    ):
        data = whole[:at] + bytes([value]) + whole[at + 1 :]
        with lmc_codec.open(list_anyway(tmp_path / "x.lmc", {"v.pt": (data, [])})) as r:
            assert r.keys() == [] and r.read("v.pt") == data
        with lmc_codec.open(list_anyway(tmp_path / "x.lmc", {"v.pt": (data, listed)})) as r, pytest.raises(lmc_codec.UnsupportedError):
            r.get("t")


def test_directories_that_overlap(tmp_path):
    """Each part contains all later ones, so reading all of them would take quadratic time."""
    name, content = b"x/data.pkl", pickle.dumps({}, 2)
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, zlib.crc32(content), len(content), len(content), len(name), 0)
    member = b"PK\3\4" + fields + name + content
    n = 500
    first, step = 46 + len(name), len(member) + 22
    last = first + (n - 1) * step
    data = b"PK\1\2\0\0" + fields + struct.pack("<HHHII", 0xFFFF, 0, 0, 0, last) + name
    for i in range(n):
        data += member
        data += b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(data), (n - 1 - i) * step, 0)
    path = list_anyway(tmp_path / "x.lmc", {"x.distcp": (data, [("t", (2,), 100, 8)])})
    with lmc_codec.open(path) as r, pytest.raises(lmc_codec.UnsupportedError, match="not understood"):
        r.get("t")


def test_names_that_parts_repeat(tmp_path):
    """Memory is in proportion to the file, not to its parts times the length of a name."""
    meta = torch.distributed.checkpoint.metadata
    target = io.BytesIO()
    torch.save(torch.zeros(2, 3).t(), target)
    part = target.getvalue()
    size, at = len(part), part.index(bytes(24))
    for name, n, why in (("a" * 70_000, 1, "very long name"), ("w" * 60_000, 1500, "too much"), ("w" * 60_000, 9, None)):
        storage = {
            meta.MetadataIndex(name, torch.Size([3 * i, 0])): torch.distributed.checkpoint.filesystem._StorageInfo("x.distcp", i * size, size)
            for i in range(n)
        }
        properties = meta.TensorProperties(dtype=torch.float32)
        tensors = {name: meta.TensorStorageMetadata(properties, torch.Size([3 * n, 2]), [])}
        names = [f"{name}[{3 * i}:{3 * i + 2},0:3]" if why is None else str(i) for i in range(n)]
        listed = [(names[i], (2, 3), i * size + at, 24) for i in range(n)]
        metadata = pickle.dumps(meta.Metadata(tensors, storage_data=storage))
        with lmc_codec.open(list_anyway(tmp_path / "x.lmc", {"x.distcp": (part * n, listed), ".metadata": (metadata, [])})) as r:
            if why is None:
                assert len(r) == 9 and r.info(f"{name}[24:27]").strides == (1, 3)
            else:
                with pytest.raises(lmc_codec.UnsupportedError, match=why):
                    r.get("0")


def test_names_of_several_files(tmp_path):
    """The sum over all files of a snapshot is limited, too."""
    directory = tmp_path / "abc"
    directory.mkdir()
    x = torch.arange(3300.0)
    for name in "abc":
        torch.save({name * 4000: list(x.view(-1, 1))}, directory / f"{name}.pt")
    run_command("abc", cwd=tmp_path)
    with lmc_codec.open(tmp_path / "abc.lmc") as r:
        assert r.get("a" * 4000 + ".7").tolist() == [7]
        found = [r._find_views()[x.number] for x in r.files]
    assert [isinstance(x, lmc_codec.UnsupportedError) or len(x) for x in found][:2] == [3300, 3300], found
    assert not found[2] or "with those of other files" in str(found[2])


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_of_dcp_are_not_opened_in_parts(tmp_path):
    torch.distributed.checkpoint.save({"a": torch.ones(3000)}, checkpoint_id=tmp_path / "a")
    for way in (lmc_codec.open, load_file):
        with pytest.raises(lmc_codec.UnsupportedError, match=r"lmc_integrations.dcp.Reader"):
            way(tmp_path / "a" / "__0_0.distcp")
        with pytest.raises(IsADirectoryError, match=r"lmc_integrations.dcp.Reader"):
            way(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        lmc_codec.open(tmp_path / "none.distcp")
