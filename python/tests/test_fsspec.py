"""The file system lmc:// of fsspec: with fsspec's own tests of what reads, and what reads through it."""

import gc
import hashlib
import io
import json
import os
import pickle
import random
import threading
import weakref
from pathlib import Path

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests
from lmc_codec import _fsspec
from lmc_codec.numpy import save
from test_far import arrays, server  # noqa: F401 # fixtures

TREE = ("file1", "file2", "subdir/subfile1", "subdir/subfile2", "subdir/nesteddir/nestedfile")
GLOB = ("file1", "file2", *(f"subdir{i}/{x}" for i in (0, 1) for x in ("subfile1", "subfile2", "nesteddir/nestedfile")))
HASHED = [hashlib.md5(str(i).encode()).hexdigest() + ".txt" for i in range(10)]


def snapshot(files, tmp_path=None, name="x.lmc"):
    with lmc.Writer(made := io.BytesIO()) as w:
        for path, data in files.items():
            w.add_bytes(path, data)
    if tmp_path is None:
        return made.getvalue()
    (tmp_path / name).write_bytes(made.getvalue())
    return str(tmp_path / name)


class TestGet(AbstractFixtures, AbstractGetTests):
    """fsspec's own tests; what they would write is there already."""

    test_get_directory_recursive = None  # writes by itself

    @pytest.fixture
    def fs(self):
        return fsspec.filesystem("lmc", fo=snapshot({
            **{f"0/source/{x}": b"" for x in TREE}, **{f"1/source/{x}": b"" for x in GLOB},
            "2/source/subdir.txt": b"", "2/source/subdir/subfile.txt": b"",
            **{f"3/source/{x}": str(i).encode() for i, x in enumerate(HASHED)},
        }))  # fmt: skip

    fs_path = pytest.fixture(lambda self: "")
    fs_join = pytest.fixture(lambda self: lambda *parts: "/".join(parts))
    fs_bulk_operations_scenario_0 = pytest.fixture(lambda self: "0/source")
    fs_glob_edge_cases_files = pytest.fixture(lambda self: "1/source")
    fs_dir_and_file_with_same_name_prefix = pytest.fixture(lambda self: "2/source")
    fs_10_files_with_hashed_names = pytest.fixture(lambda self: "3/source")


@pytest.fixture
def files():
    rng = np.random.default_rng(5)
    return {
        "model.safetensors": bytes(save_plain({f"w{i}": rng.standard_normal((300, 200 + i), np.float32) for i in range(4)})),
        "config.json": b'{"a": 1}\n', "deep/er/notes.txt": "änderung\nzwei\n".encode(), "deep/empty": b"",
    }  # fmt: skip


def save_plain(tensors):
    """A safetensors file."""
    header, at = {}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in tensors.values())


def test_what_is_there(files, tmp_path):
    fs = fsspec.filesystem("lmc", fo=snapshot(files, tmp_path))
    assert fs.ls("", detail=False) == ["config.json", "deep", "model.safetensors"]
    assert [x["type"] for x in fs.ls("/")] == ["file", "directory", "file"]
    assert fs.ls("lmc://deep/", detail=False) == ["deep/empty", "deep/er"] and fs.ls("config.json", detail=False) == ["config.json"]
    assert fs.find("") == sorted(files) and fs.find("deep") == ["deep/empty", "deep/er/notes.txt"]
    assert [(top, sorted(dirs), sorted(names)) for top, dirs, names in fs.walk("deep")] == [("deep", ["er"], ["empty"]), ("deep/er", [], ["notes.txt"])]
    assert fs.glob("**/*.txt") == ["deep/er/notes.txt"] and fs.du("") == sum(map(len, files.values()))
    assert fs.info("deep")["type"] == "directory" and fs.info("config.json")["size"] == 9 == fs.size("config.json")
    assert fs.exists("deep/er") and not fs.exists("deep/e") and fs.isdir("deep") and fs.isfile("deep/empty")
    assert fs.ukey("config.json") != fs.ukey("deep/empty") and fs.ukey("config.json") == fsspec.filesystem("lmc", fo=str(tmp_path / "x.lmc")).ukey("config.json")
    for call in (fs.info, fs.ls, fs.open, fs.cat_file, fs.modified):
        with pytest.raises(FileNotFoundError, match="deep/nothing"):
            call("deep/nothing")
    for call in (fs.open, fs.cat_file):
        with pytest.raises(IsADirectoryError):
            call("deep")
    fs.ls("")[0]["name"] = fs.info("deep")["type"] = "changed"  # of the caller
    assert fs.ls("", detail=False)[0] == "config.json" and fs.isdir("deep")


def test_times(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    os.utime(tmp_path / "a.bin", ns=(0, 1_700_000_000_500_000_000))
    os.chmod(tmp_path / "a.bin", 0o640)
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add_file(tmp_path / "a.bin", "a.bin")
        w.add_bytes("b", b"")
    fs = fsspec.filesystem("lmc", fo=str(tmp_path / "x.lmc"))
    assert fs.modified("a.bin").timestamp() == 1_700_000_000.5 and fs.info("a.bin")["mode"] & 0o777 == 0o640
    with pytest.raises(NotImplementedError):
        fs.modified("b")


@pytest.mark.parametrize("window", [1 << 12, 100_003, _fsspec.WINDOW])
def test_reading(monkeypatch, files, window):
    monkeypatch.setattr(_fsspec, "WINDOW", window)
    fs, rng = fsspec.filesystem("lmc", fo=snapshot(files)), random.Random(3)
    data = files["model.safetensors"]
    n = len(data)
    with fs.open("model.safetensors") as f:
        assert (f.size, f.tell(), f.readable(), f.seekable(), f.writable()) == (n, 0, True, True, False)
        for _ in range(200):
            at, size = rng.choice([0, n, n + 9, rng.randrange(n), rng.randrange(n) // window * window]), rng.choice([0, 1, 7, 4096, window, 3 * window])
            assert f.seek(at) == at and f.read(size) == data[at : at + size] and f.tell() == min(max(at, 0), max(n, at)) + len(data[at : at + size])
            out = bytearray(size)
            f.seek(at)
            assert f.readinto(out) == len(data[at : at + size]) and out[: len(data[at : at + size])] == data[at : at + size]
        assert f.seek(-5, io.SEEK_END) == n - 5 and f.read() == data[-5:] and f.read() == b"" and type(f.read(0)) is bytes
        f.seek(0)
        assert f.read() == data
    with pytest.raises(ValueError):
        f.read(1)
    with pytest.raises(ValueError):
        f.readinto(bytearray(1))
    for start, end in ((None, None), (5, None), (None, 9), (-9, None), (5, -5), (7, 7), (9, 3), (0, n + 100), (-n - 5, 3)):
        assert fs.cat_file("model.safetensors", start, end) == data[start:end], (start, end)
    assert fs.cat(["config.json", "deep/empty"]) == {"config.json": files["config.json"], "deep/empty": b""}
    assert fs.cat_ranges(["config.json"] * 2, [0, 2], [3, 5]) == [b'{"a', b'a":']
    assert fs.read_block("model.safetensors", 8, 20) == data[8:28] and fs.head("config.json", 3) == b'{"a' and fs.tail("config.json", 2) == b"}\n"
    with fs.open("deep/er/notes.txt", "r", encoding="utf-8") as f:
        assert f.readlines() == ["änderung\n", "zwei\n"]
    with fs.open("deep/er/notes.txt") as f:
        assert list(f) == files["deep/er/notes.txt"].splitlines(True)


def test_urls(files, tmp_path, server):  # noqa: F811
    path = snapshot(files, tmp_path)
    server.files["/dir/x.lmc"] = Path(path).read_bytes()
    with fsspec.filesystem("memory").open("/test_urls/x.lmc", "wb") as f:
        f.write(server.files["/dir/x.lmc"])
    for url in (f"lmc://config.json::{path}", f"lmc://config.json::file://{path}", "lmc://config.json::memory://test_urls/x.lmc",
                f"lmc://config.json::{server.url}/dir/x.lmc", f"lmc://config.json::simplecache::{server.url}/dir/x.lmc"):  # fmt: skip
        with fsspec.open(url) as f:
            assert f.read() == files["config.json"]
        with fsspec.open(url, "rt") as f:
            assert json.load(f) == {"a": 1}
    fs, inside = fsspec.url_to_fs(f"lmc://deep::{server.url}/dir/x.lmc")
    server.requests.clear()
    assert inside == "deep" and fs.cat_file("model.safetensors", 100_000, 100_050) == files["model.safetensors"][100_000:100_050]
    assert 0 < len(server.requests) <= 2
    fsspec.filesystem("memory").rm("/test_urls", recursive=True)
    assert [f.read() for f in fsspec.open_files(f"lmc://deep/e*::{path}") for f in [f.open()]] == [b""]
    with open(path, "rb") as opened:
        for fo in (opened, server.files["/dir/x.lmc"], io.BytesIO(server.files["/dir/x.lmc"])):
            assert fsspec.filesystem("lmc", fo=fo).cat_file("config.json") == files["config.json"]
    for url in (tmp_path / "none.lmc", f"{server.url}/none.lmc", "memory://none.lmc"):
        with pytest.raises(FileNotFoundError):
            fsspec.filesystem("lmc", fo=str(url))
    with pytest.raises(lmc.NotLMCError):
        fsspec.filesystem("lmc", fo=b"no snapshot at all")


@pytest.mark.parametrize("name, inside", [("model.safetensors.lmc", "model.safetensors"), ("a.lmc", "a"), ("b", "b")])
def test_the_name_of_a_single_file(tmp_path, name, inside):
    (tmp_path / name).write_bytes(save({"x": np.arange(9)}))
    fs = fsspec.filesystem("lmc", fo=str(tmp_path / name))
    assert fs.find("") == [inside] and fs.open(inside).read(8)[:1] != b"{"
    assert fsspec.filesystem("lmc", fo=(tmp_path / name).read_bytes()).find("") == ["data"]


def test_deltas(tmp_path):
    rng = np.random.default_rng(6)
    old = {f"w{i}": rng.standard_normal((200, 300), np.float32) for i in range(3)}
    new = {name: a + (rng.random(a.shape) < 0.01) for name, a in old.items()}
    new = {name: a.astype(np.float32) for name, a in new.items()}
    lmc.numpy.save_file(old, tmp_path / "1.lmc")
    lmc.numpy.save_file(new, tmp_path / "2.lmc", base=tmp_path / "1.lmc")
    lmc.numpy.save_file(old, tmp_path / "plain.lmc")
    with lmc.open(tmp_path / "2.lmc", base=tmp_path / "1.lmc") as r:
        wanted = bytes(r.read())
    for base in (str(tmp_path / "1.lmc"), f"file://{tmp_path}/1.lmc", "auto", old, lmc.open(tmp_path / "1.lmc")):
        with fsspec.open(f"lmc://2::{tmp_path}/2.lmc", base=base) as f:
            assert f.read() == wanted
    with fsspec.open(f"lmc://2::file://{tmp_path}/2.lmc", lmc={"base": str(tmp_path / "1.lmc"), "threads": 1}) as f:
        f.seek(1000)
        assert f.read(100) == wanted[1000:1100]
    fs = fsspec.filesystem("lmc", fo=str(tmp_path / "2.lmc"))
    assert fs.find("") == ["2"]
    with pytest.raises(lmc.MissingBaseError):
        fs.cat_file("2")
    with pytest.raises(lmc.WrongBaseError):
        fsspec.filesystem("lmc", fo=str(tmp_path / "2.lmc"), base=new)


def test_damage(tmp_path):
    """The error names file and tensor; other tensors of the same window can be read; there are never wrong bytes."""
    rng = np.random.default_rng(8)
    tensors = {f"w{i}": rng.standard_normal((1 << 17,), np.float32) for i in range(4)}  # with blocks of their own
    data = save_plain(tensors)
    with lmc.Writer(path := tmp_path / "x.lmc") as w:
        (tmp_path / "model.safetensors").write_bytes(data)
        w.add_file(tmp_path / "model.safetensors", "sub/model.safetensors")
        w.add_bytes("other", b"x" * 999)
    with lmc.open(path) as r:
        info = {name: r.info(name) for name in tensors}
        at, _ = r._object.encoded_range(0, info["w2"].offset + info["w2"].size // 2, 1)
    broken = bytearray(path.read_bytes())
    broken[at + 2000] ^= 4
    fs = fsspec.filesystem("lmc", fo=bytes(broken))
    begin = info["w2"].offset
    for read in (lambda: fs.cat_file("sub/model.safetensors"), lambda: fs.open("sub/model.safetensors").read(),
                 lambda: fs.cat_file("sub/model.safetensors", begin + (1 << 18), begin + (1 << 18) + 5),
                 lambda: fs.open("sub/model.safetensors").readinto(bytearray(len(data)))):  # fmt: skip
        with pytest.raises(lmc.CorruptError, match=r"sub/model.safetensors: tensor 'w2'"):
            read()
    for name in ("w0", "w1", "w3"):
        x = info[name]
        assert fs.cat_file("sub/model.safetensors", x.offset, x.offset + 100) == data[x.offset : x.offset + 100]
    assert fs.cat_file("other") == b"x" * 999


@pytest.mark.parametrize("call", [
    lambda fs: fs.open("a", "wb"), lambda fs: fs.open("new", "ab"), lambda fs: fs.open("a", "xb"), lambda fs: fs.open("a", "r+b"),
    lambda fs: fs.open("a", "w"), lambda fs: fs.touch("new"), lambda fs: fs.mkdir("new"), lambda fs: fs.makedirs("a/b"), lambda fs: fs.rm("a"),
    lambda fs: fs.rm_file("a"), lambda fs: fs.rmdir("d"), lambda fs: fs.mv("a", "b"), lambda fs: fs.cp_file("a", "b"), lambda fs: fs.copy("a", "b"),
    lambda fs: fs.pipe_file("new", b"x"), lambda fs: fs.pipe({"new": b"x"}), lambda fs: fs.put_file(__file__, "new"), lambda fs: fs.put(__file__, "new"),
    lambda fs: fs.delete("a"), lambda fs: fs.rename("a", "b"), lambda fs: fs.move("a", "b"), lambda fs: fs.upload(__file__, "new"),
    lambda fs: fs.write_bytes("new", b"x"), lambda fs: fs.write_text("new", "x"), lambda fs: fs.mkdirs("new"), lambda fs: fs.makedir("new"),
])  # fmt: skip
def test_nothing_is_written(call):
    fs = fsspec.filesystem("lmc", fo=snapshot({"a": b"x", "d/b": b"y"}))
    with pytest.raises(OSError, match="cannot be changed"):
        call(fs)
    assert fs.find("") == ["a", "d/b"]


def test_nothing_leaks(files, tmp_path):
    """Files are closed by close(), or with the last reference, without the garbage collector; memory has a bound."""
    path = snapshot(files, tmp_path)
    fsspec.filesystem("lmc", fo=path).cat_file("config.json")
    gc.collect()
    opened = open(path, "rb")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    gc.disable()
    try:
        for fo in (path, "file://" + path, opened):
            fs = fsspec.filesystem("lmc", fo=fo)
            with fs.open("model.safetensors") as f:
                f.read(10)
            seen = weakref.ref(fs)
            del fs, f
            assert seen() is None
        for _ in range(20):
            with fsspec.open(f"lmc://config.json::{path}") as f:
                f.read()
        del f
        if before:
            assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
        opened.close()
    with fsspec.filesystem("lmc", fo=path) as fs:
        f = fs.open("model.safetensors")
        f.read(9)
    with pytest.raises(ValueError):
        f.read(9)
    with pytest.raises(lmc.LMCError), open(path, "rb") as f:
        fsspec.filesystem("lmc", fo=f, max_total_size=100)


def test_windows_are_few(monkeypatch, files):
    monkeypatch.setattr(_fsspec, "WINDOW", 1 << 12)
    fs = fsspec.filesystem("lmc", fo=snapshot(files))
    with fs.open("model.safetensors") as f:
        while f.read(100):
            pass
    cached = fs._window.cache_info()
    assert cached.currsize == _fsspec.N_WINDOWS and cached.misses == -(-len(files["model.safetensors"]) // (1 << 12))


def test_processes_and_threads(files, tmp_path):
    path = snapshot(files, tmp_path)
    fs = pickle.loads(pickle.dumps(fsspec.filesystem("lmc", fo=path)))
    with pytest.raises(TypeError):
        pickle.dumps(fsspec.filesystem("lmc", fo=path, base=lmc.open(save({"x": np.arange(3)}))))
    wrong = []

    def read(seed):
        rng, data = random.Random(seed), files["model.safetensors"]
        for _ in range(100):
            at = rng.randrange(len(data))
            wrong.extend([at] * (fs.cat_file("model.safetensors", at, at + 999) != data[at : at + 999]))

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_many_files():
    fs = fsspec.filesystem("lmc", fo=snapshot({f"{i % 300}/{i}": b"" for i in range(3000)}))
    assert len(fs.find("")) == 3000 and len(fs.ls("7")) == 10


# -- what reads through it --


def test_safetensors_and_torch(files, tmp_path):
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.numpy")
    torch.save({"a": torch.arange(5000)}, tmp_path / "a.pt")
    path = snapshot({**files, "a.pt": (tmp_path / "a.pt").read_bytes()}, tmp_path)
    with fsspec.open(f"lmc://model.safetensors::{path}") as f:
        found = safetensors.load(f.read())
    assert found.keys() == {"w0", "w1", "w2", "w3"} and found["w3"].shape == (300, 203)
    with fsspec.open(f"lmc://a.pt::{path}") as f:
        assert torch.equal(torch.load(f)["a"], torch.arange(5000))
    fsspec.filesystem("lmc", fo=path).get("deep", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/er/notes.txt").read_bytes() == files["deep/er/notes.txt"]


def test_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    a = np.random.default_rng(1).standard_normal((100, 50))
    zarr.create_array(tmp_path / "z.zarr", data=a, chunks=(30, 50))
    inside = {str(p.relative_to(tmp_path)): p.read_bytes() for p in (tmp_path / "z.zarr").rglob("*") if p.is_file()}
    path = snapshot(inside, tmp_path)
    assert np.array_equal(zarr.open_array(f"lmc://z.zarr::file://{path}", mode="r")[20:70], a[20:70])


@pytest.mark.long
def test_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(1000), "b": np.arange(1000) / 7})
    files = {"t.csv": frame.to_csv(index=False).encode()}
    try:
        files["t.parquet"] = frame.to_parquet()
    except ImportError:
        pass
    path = snapshot(files, tmp_path)
    assert pd.read_csv(f"lmc://t.csv::{path}").equals(frame)
    if "t.parquet" in files:
        assert pd.read_parquet(f"lmc://t.parquet::{path}").equals(frame)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of boto
def test_s3(files, monkeypatch):
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        s3 = {"endpoint_url": "http://{}:{}".format(*server.get_host_and_port()), "client_kwargs": {"region_name": "us-east-1"}}
        remote = fsspec.filesystem("s3", **s3)
        remote.call_s3("create_bucket", Bucket="bucket")
        remote.pipe_file("bucket/x.lmc", snapshot(files))
        with fsspec.open("lmc://model.safetensors::s3://bucket/x.lmc", s3=s3) as f:
            f.seek(5000)
            assert f.read(100) == files["model.safetensors"][5000:5100]
        fs = fsspec.filesystem("lmc", fo="s3://bucket/x.lmc", target_options=s3)
        assert fs.find("") == sorted(files) and fs.cat_file("model.safetensors") == files["model.safetensors"]
        with pytest.raises(FileNotFoundError):
            fsspec.filesystem("lmc", fo="s3://bucket/none.lmc", target_options=s3)
    finally:
        server.stop()
