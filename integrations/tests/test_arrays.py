"""The codec of numcodecs, with zarr v2, and the filter of HDF5, with the real packages."""

import os
import random
import subprocess
import sys

import h5py
import lmc_codec
import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import FLOATS, SHARES, as_uint16, make, same
from lmc_codec import _chunks
from lmc_integrations import hdf5
from lmc_integrations.numcodecs import LMC

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
    for out in (None, np.empty_like(a)):  # an empty chunk was cut off
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


def test_random_damage():
    """Each damage gives an error or (in unused bits) the same array: never a crash, never other content."""
    a, rng = make("f4"), random.Random(7)
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
    """Writes, closes and opens a file: (dataset, share of its size)."""
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
    """Other filters: checksums before and after, and a compressor before, whose output is no array of elements."""
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
    """Other programs find the plug-in by HDF5_PLUGIN_PATH, without this package."""
    a = make("f4")
    dataset(tmp_path, a)
    path = subprocess.run([sys.executable, "-m", "lmc_integrations.hdf5"], capture_output=True, text=True, check=True)
    assert path.stdout.strip() == hdf5.plugin_path() and len(os.listdir(hdf5.plugin_path())) == 1
    code = "import h5py, sys; sys.stdout.buffer.write(h5py.File(sys.argv[1])['x'][:].tobytes())"
    for plugin_path, works in ((path.stdout.strip(), True), (str(tmp_path), False)):
        said = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "a.h5"],
            capture_output=True,
            env={**os.environ, "HDF5_PLUGIN_PATH": plugin_path},
        )
        assert (said.returncode == 0 and said.stdout == a.tobytes()) == works
