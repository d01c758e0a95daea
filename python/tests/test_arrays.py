"""Codecs of zarr and numcodecs, and the filter of HDF5, with the real packages. docs/arrays.md is a program, too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import same

import lmc_codec
from lmc_codec import _chunks, hdf5
from lmc_codec.numcodecs import LMC
from lmc_codec.zarr import LMCCodec

FLOATS = np.random.default_rng(1).standard_normal((256, 300)) * 0.02
# dtype -> what a chunk of it must at most take, of its own size
SHARES = {
    "f2": 0.88,
    "f4": 0.86,
    "f8": 0.91,
    "i4": 0.45,
    "u2": 0.8,
    "i8": 0.32,
    "bool": 0.2,
    "c8": 0.86,
    "c16": 0.91,
}


def make(dtype):
    if dtype[0] in "iu":
        return (FLOATS * 50000).astype(dtype)
    if dtype[0] == "c":
        return (FLOATS + 1j * FLOATS[::-1]).astype(dtype)
    return (FLOATS > 0.03) if dtype == "bool" else FLOATS.astype(dtype)


def as_uint16(weights):
    return np.ascontiguousarray(weights[:512, :256]).view(np.uint16)


def stored(store):
    """The chunks of a zarr store in memory, by name."""
    return {k: v.to_bytes() for k, v in store._store_dict.items() if not k.startswith((".", "zarr.json"))}


# -- zarr v3 --


@pytest.mark.parametrize("dtype", SHARES)
def test_zarr(dtype):
    a, store = make(dtype), zarr.storage.MemoryStore()
    z = zarr.create_array(store, shape=a.shape, chunks=(64, 300), dtype=a.dtype, compressors=LMCCodec())
    z[:] = a
    chunks = stored(store)
    assert len(chunks) == 4 and sum(map(len, chunks.values())) < SHARES[dtype] * a.nbytes
    again = zarr.open_array(store, mode="r")
    assert same(again[:], a) and same(again[70:75, 3], a[70:75, 3])
    assert again.metadata.to_dict()["codecs"][-1] == {"name": "lmc", "configuration": {"level": 0}}


def test_zarr_chunk_is_an_array_in_memory():
    """The dtype of the spec reaches the encoder: the bytes are just those of tensor_encode."""
    a, store = make("f4"), zarr.storage.MemoryStore()
    zarr.create_array(store, data=a, chunks=a.shape, compressors=LMCCodec(level="max"))
    assert stored(store)["c/0/0"] == bytes(lmc_codec.tensor_encode(a, level="max"))


def test_zarr_by_entry_point(tmp_path):
    """Who only reads imports nothing of ours."""
    a = make("f4")
    zarr.create_array(str(tmp_path / "a.zarr"), data=a, chunks=(100, 100), compressors=LMCCodec())
    code = (
        "import sys, zarr; x = zarr.open_array(sys.argv[1], mode='r')[:]; sys.stdout.buffer.write(x.tobytes())"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.zarr")], capture_output=True, check=True)
    assert said.stdout == a.tobytes()


class CountingStore(zarr.storage.MemoryStore):
    """Counts the bytes that are read from it; zarr makes another one of the same content to read from."""

    n_read = 0

    def count(self, found):
        CountingStore.n_read += 0 if found is None else len(found)
        return found

    async def get(self, *args, **options):
        return self.count(await super().get(*args, **options))

    def get_sync(self, *args, **options):
        return self.count(super().get_sync(*args, **options))


def test_zarr_reads_a_part_of_a_shard():
    """What a store can address are chunks; shards of them are one object, of which zarr reads ranges."""
    a, store = make("f4"), CountingStore()
    a = np.tile(a, (16, 1))
    n_rows = len(a) // 16
    z = zarr.create_array(store, data=a, chunks=(n_rows, a.shape[1]), shards=a.shape, compressors=LMCCodec())
    whole = z.nbytes_stored()
    z = zarr.open_array(store, mode="r")
    CountingStore.n_read = 0
    assert np.array_equal(z[3 * n_rows : 3 * n_rows + 5], a[3 * n_rows : 3 * n_rows + 5])
    assert 0 < CountingStore.n_read < whole / 8


def test_zarr_bf16(weights):
    a, sizes = as_uint16(weights), {}
    for dtype in (None, "BF16", ml_dtypes.bfloat16):
        store = zarr.storage.MemoryStore()
        codec = LMCCodec(dtype=dtype)
        zarr.create_array(store, data=a, chunks=(256, 256), compressors=codec)
        again = zarr.open_array(store)
        assert same(again[:], a) and again.compressors == (codec,)
        sizes[codec.dtype] = sum(map(len, stored(store).values()))
    assert sizes["BF16"] < 0.67 * a.nbytes and sizes["BF16"] < sizes[None]
    assert LMCCodec(dtype="BF16").to_dict()["configuration"] == {"level": 0, "dtype": "BF16"}


def test_zarr_levels():
    a, sizes = make("f4"), []
    for level in ("fast", "default", "archive"):
        store = zarr.storage.MemoryStore()
        zarr.create_array(store, data=a, chunks=a.shape, compressors=LMCCodec(level=level))
        sizes.append(len(stored(store)["c/0/0"]))
    assert sizes[0] > sizes[1] > sizes[2]


def test_zarr_shards_and_other_codecs():
    """Shards (whose index is not coded by us), a checksum before us, so that sizes are odd, a transposition, fill."""
    a = make("f4")
    for others in (
        {"shards": (128, 300), "compressors": LMCCodec()},
        {"compressors": [zarr.codecs.Crc32cCodec(), LMCCodec()]},
        {"compressors": [LMCCodec(), zarr.codecs.Crc32cCodec()]},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "compressors": LMCCodec()},
        {"serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": LMCCodec()},
    ):
        store = zarr.storage.MemoryStore()
        z = zarr.create_array(store, shape=a.shape, dtype=a.dtype, chunks=(64, 100), **others)
        z[:200] = a[:200]
        again = zarr.open_array(store)[:]
        assert same(again[:200], a[:200]) and not again[200:].any()
    store = zarr.storage.MemoryStore()
    times = np.arange(1000).astype("datetime64[s]")
    zarr.create_array(store, data=times, chunks=(300,), compressors=LMCCodec())
    assert same(zarr.open_array(store)[:], times)


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_zarr_without_numbers():
    for a in (np.array(["a", "bcd", "ef"] * 50, dtype="U3"), np.array([b"ab", b"c"] * 50, dtype="S2")):
        store = zarr.storage.MemoryStore()
        zarr.create_array(store, data=a, chunks=(70,), compressors=LMCCodec())
        assert same(zarr.open_array(store)[:], a)
    store = zarr.storage.MemoryStore()
    z = zarr.create_array(store, shape=(3,), chunks=(3,), dtype=str, compressors=LMCCodec())
    z[:] = np.array(["one", "", "three" * 100], dtype=object)
    assert list(zarr.open_array(store)[:]) == ["one", "", "three" * 100]


def test_zarr_refuses():
    with pytest.raises(ValueError, match="level"):
        LMCCodec(level=3)
    with pytest.raises(TypeError, match="no dtype"):
        LMCCodec(dtype="F17")
    with pytest.raises(ValueError, match="not made of"):
        zarr.create_array({}, shape=(8,), dtype="u2", compressors=LMCCodec(dtype="F32"))
    with pytest.raises(ValueError, match="configuration"):
        LMCCodec.from_dict({"name": "lmc", "configuration": {"speed": 1}})
    assert LMCCodec.from_dict({"name": "lmc"}) == LMCCodec()


def test_zarr_damage():
    a, store = make("f4"), zarr.storage.MemoryStore()
    zarr.create_array(store, data=a, chunks=a.shape, compressors=LMCCodec())
    good = stored(store)["c/0/0"]
    bomb = bytes(lmc_codec.tensor_encode(bytes(1 << 24), log2_block=22))
    assert len(bomb) < 2000
    for bad, error in (
        (good[:-1], lmc_codec.TruncatedError),
        (good[:100] + bytes([good[100] ^ 1]) + good[101:], lmc_codec.LMCError),
        (good + b"x", lmc_codec.LMCError),
        (bomb, lmc_codec.LimitError),
    ):
        store._store_dict["c/0/0"] = zarr.core.buffer.cpu.Buffer.from_bytes(bad)
        with pytest.raises(error):
            zarr.open_array(store)[:]


# -- numcodecs, zarr v2 --


@pytest.mark.parametrize("dtype", SHARES)
def test_numcodecs(dtype):
    a = make(dtype)
    codec = numcodecs.get_codec({"id": "lmc", "level": 1})  # by the entry point
    assert type(codec) is LMC and codec.get_config() == {"id": "lmc", "level": 1, "dtype": None}
    made = codec.encode(a)
    assert len(made) < SHARES[dtype] * a.nbytes
    assert codec.decode(made) == a.tobytes()
    out = np.empty_like(a)
    assert codec.decode(made, out) is out and same(out, a)
    with pytest.raises(ValueError, match="out has"):
        codec.decode(made, np.empty(3, a.dtype))
    for out in (None, np.empty_like(a)):  # a chunk of no bytes was cut
        with pytest.raises(lmc_codec.TruncatedError, match="the chunk is empty"):
            codec.decode(b"", out)
    empty = np.empty((0, 3), a.dtype)
    assert codec.decode(codec.encode(empty), empty) is empty


def test_numcodecs_dtype(weights):
    a = as_uint16(weights)
    codec = numcodecs.get_codec(LMC(dtype="BF16").get_config())
    assert len(codec.encode(a)) < 0.67 * a.nbytes and len(LMC().encode(weights)) < 0.67 * weights.nbytes
    assert len(codec.encode(a.tobytes())) == len(codec.encode(a)) == len(LMC().encode(a.view(ml_dtypes.bfloat16)))
    assert codec.decode(codec.encode(b"abc")) == b"abc" and codec.decode(codec.encode(b""), bytearray()) == b""
    times = np.arange(1000).astype("datetime64[s]")
    assert bytes(codec.decode(LMC().encode(times))) == times.tobytes()
    with pytest.raises(lmc_codec.LMCError):
        codec.decode(b"no blocks of LMC, but long enough for one")


@pytest.mark.parametrize("dtype", ["f4", ">f4", "u2"])
def test_zarr_v2(dtype, tmp_path):
    a, path = make(dtype.lstrip(">")).astype(dtype), str(tmp_path / "a.zarr")
    zarr.create_array(path, data=a, chunks=(64, 300), zarr_format=2, compressors=LMC())
    assert same(zarr.open_array(path, mode="r")[:], a)
    assert "lmc" in (tmp_path / "a.zarr" / ".zarray").read_text()
    assert sum(p.stat().st_size for p in (tmp_path / "a.zarr").iterdir() if p.name[0] != ".") < 0.87 * a.nbytes


def test_random_damage(rng):
    """An error each time, or (unused bits) the very same array: never a crash, never other content."""
    a = make("f4")
    good, n_errors = bytes(LMC().encode(a)), 0
    for _ in range(500):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.choice((rng.randrange(len(bad)), rng.randrange(40)))] = rng.randrange(256)
        try:
            assert _chunks.decode(bad, max_size=2 * a.nbytes) == a.tobytes()
        except lmc_codec.LMCError:
            n_errors += 1
    assert n_errors > 450


# -- HDF5 --


def dataset(tmp_path, a, chunks=(64, 300), **how):
    """Written, closed, opened: (dataset, share of its size)."""
    (tmp_path / "a.h5").unlink(missing_ok=True)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=a, chunks=chunks, **(how or hdf5.LMC()))
    f = h5py.File(tmp_path / "a.h5", "r")
    return f["x"], f["x"].id.get_storage_size() / a.nbytes


@pytest.mark.parametrize("dtype", SHARES)
def test_hdf5(tmp_path, dtype):
    a = make(dtype)
    x, share = dataset(tmp_path, a)
    assert share < SHARES[dtype] and same(x[:], a)
    number, _, values, name = x.id.get_create_plist().get_filter(0)
    assert (number, name) == (hdf5.ID, b"lmc") and values[2] == 64 * 300 * a.itemsize
    expected = {"bool": "I8", "c8": "F32", "c16": "F64"}.get(dtype) or lmc_codec._arrays.dtype_name(a.dtype)
    assert values[1] == lmc_codec._arrays.NUMBERS[expected]
    assert x.id.read_direct_chunk((64, 0))[1] == bytes(_chunks.encode(a[64:128].tobytes(), expected, 0))


def test_hdf5_bf16(tmp_path, weights):
    a = as_uint16(weights)
    x, share = dataset(tmp_path, a, (256, 256), **hdf5.LMC(dtype="BF16"))
    assert share < 0.67 and same(x[:], a)
    # the type that HDF5 itself has for bf16 needs no dtype
    bf16 = h5py.h5t.IEEE_F16LE.copy()
    bf16.set_fields(15, 7, 8, 0, 7)
    bf16.set_ebias(127)
    with h5py.File(tmp_path / "b.h5", "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((256, 256))
        plist.set_filter(hdf5.ID, 0, ())
        y = h5py.h5d.create(f.id, b"y", bf16, h5py.h5s.create_simple(a.shape), plist)
        y.write(h5py.h5s.ALL, h5py.h5s.ALL, a, mtype=bf16)
        f.flush()
        assert y.get_create_plist().get_filter(0)[2][1] == lmc_codec._arrays.NUMBERS["BF16"]
        assert y.get_storage_size() == x.id.get_storage_size()
        assert same(f["y"][:], weights[:512, :256].astype(np.float32))


def test_hdf5_other_types(tmp_path):
    records = np.zeros(1000, dtype=[("a", "f4"), ("b", "i2"), ("c", "S3")])
    records["a"] = FLOATS.ravel()[:1000]
    pairs = np.zeros(1000, dtype=[("x", "f4"), ("y", "f4", (3,))])
    pairs["y"] = FLOATS.ravel()[:3000].reshape(1000, 3)
    for a, dtype in (
        (make("f4").astype(">f4"), "AUTO"),
        (records, "AUTO"),
        (pairs, "F32"),
        (np.array([b"abc", b"de"] * 100), "AUTO"),
        (np.arange(600, dtype="i8").reshape(200, 3), "I64"),
    ):
        x, _ = dataset(tmp_path, a, chunks=(128, *a.shape[1:]))
        assert same(x[:], a)
        assert x.id.get_create_plist().get_filter(0)[2][1] == lmc_codec._arrays.NUMBERS.get(dtype, 0)


def test_hdf5_with_other_filters(tmp_path):
    """Checksums before and after; a compressor before, after which nothing has the size of an element."""
    a = make("f4")
    x, share = dataset(tmp_path, a, fletcher32=True, **hdf5.LMC(level="fast"))
    assert share < 0.86 and same(x[:], a)
    with h5py.File(tmp_path / "b.h5", "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((64, 300))
        plist.set_fletcher32()
        plist.set_deflate(1)
        plist.set_filter(hdf5.ID, 0, ())
        d = h5py.h5d.create(f.id, b"y", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(a.shape), plist)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, a)
    with h5py.File(tmp_path / "b.h5", "r") as f:
        assert same(f["y"][:], a)


def test_hdf5_refuses(tmp_path):
    a = make("f2")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        for values, text in (((9,), "level"), ((0, 99), "second value"), ((0, 18), "wider than an element")):
            with pytest.raises(ValueError, match=text):
                f.create_dataset("x", data=a, chunks=(64, 300), compression=hdf5.ID, compression_opts=values)
    with pytest.raises(ValueError, match="level"):
        hdf5.LMC(level="best")


def test_hdf5_damage(tmp_path):
    a = make("f4")
    dataset(tmp_path, a)
    with h5py.File(tmp_path / "a.h5", "r+") as f:
        d = f["x"].id
        good = d.read_direct_chunk((0, 0))[1]
        bomb = bytes(lmc_codec.tensor_encode(bytes(1 << 24), log2_block=22))
        for bad in (good[:-1], good[:100] + bytes([good[100] ^ 1]) + good[101:], good + b"x", bomb, b"no blocks"):
            d.write_direct_chunk((0, 0), bad)
            with pytest.raises(OSError, match="LMC: |filter returned failure"):
                f["x"][:]
        d.write_direct_chunk((0, 0), good)
        assert same(f["x"][:], a)


def test_hdf5_plugin_path(tmp_path):
    """Other programs find it by HDF5_PLUGIN_PATH, without our package."""
    a = make("f4")
    dataset(tmp_path, a)
    path = subprocess.run([sys.executable, "-m", "lmc_codec.hdf5"], capture_output=True, text=True, check=True)
    assert path.stdout.strip() == hdf5.plugin_path() and len(os.listdir(hdf5.plugin_path())) == 1
    code = "import h5py, sys; sys.stdout.buffer.write(h5py.File(sys.argv[1])['x'][:].tobytes())"
    for plugin_path, works in ((path.stdout.strip(), True), (str(tmp_path), False)):
        said = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "a.h5"],
            capture_output=True,
            env={**os.environ, "HDF5_PLUGIN_PATH": plugin_path},
        )
        assert (said.returncode == 0 and said.stdout == a.tobytes()) == works


# -- the page --


def test_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "arrays.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    (tmp_path / "page.py").write_text("\n".join(blocks))
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
