"""The codec of zarr v3, with the real package. The blocks of docs/arrays.md are run, too."""

import re
import subprocess
import sys
from pathlib import Path

import lmc_codec
import ml_dtypes
import numpy as np
import pytest
import zarr
from conftest import SHARES, as_uint16, make, same
from lmc_integrations.zarr import LMCCodec

def stored(store):
    """The chunks of a zarr store in memory, by name."""
    return {k: v.to_bytes() for k, v in store._store_dict.items() if not k.startswith((".", "zarr.json"))}


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
    """The dtype of the spec reaches the encoder: the bytes are those of tensor_encode."""
    a, store = make("f4"), zarr.storage.MemoryStore()
    zarr.create_array(store, data=a, chunks=a.shape, compressors=LMCCodec(level="max"))
    assert stored(store)["c/0/0"] == bytes(lmc_codec.tensor_encode(a, level="max"))


def test_zarr_by_entry_point(tmp_path):
    """Reading needs no import of this package."""
    a = make("f4")
    zarr.create_array(str(tmp_path / "a.zarr"), data=a, chunks=(100, 100), compressors=LMCCodec())
    code = (
        "import sys, zarr; x = zarr.open_array(sys.argv[1], mode='r')[:]; sys.stdout.buffer.write(x.tobytes())"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.zarr")], capture_output=True, check=True)
    assert said.stdout == a.tobytes()


class CountingStore(zarr.storage.MemoryStore):
    """A store that counts the bytes that are read; zarr makes another one with the same content to read from."""

    n_read = 0

    def count(self, found):
        CountingStore.n_read += 0 if found is None else len(found)
        return found

    async def get(self, *args, **options):
        return self.count(await super().get(*args, **options))

    def get_sync(self, *args, **options):
        return self.count(super().get_sync(*args, **options))


def test_zarr_reads_a_part_of_a_shard():
    """Chunks are separate objects in a store; a shard of chunks is one object, of which zarr reads ranges."""
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
    """Shards (their index is not coded by LMC), a checksum before LMC, which makes sizes odd, a transposition, fill
    values."""
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


def test_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "arrays.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    (tmp_path / "page.py").write_text("\n".join(blocks))
    said = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
