"""One tensor, one call: every kind of array, deltas, out=, errors, interruption."""

import array
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import lmc_codec as lmc
import ml_dtypes
import numpy as np
import pytest
import torch
from conftest import same

NUMPY_DTYPES = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
    np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu,
]  # fmt: skip
TORCH_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (70, 3, 50), (1, 1, 1, 1)])
def test_numpy(dtype, shape):
    n = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(2).integers(0, 2 if dtype is np.bool_ else 256, n, np.uint8)
    a = raw.view(dtype).reshape(shape)
    data = lmc.compress(a)
    assert same(lmc.decompress(data), a)
    assert len(data) <= lmc.bound(a.nbytes)
    out = np.empty_like(a)
    assert lmc.decompress(data, out=out) is out and same(out, a)
    assert lmc.decompress(data, framework="bytes") == a.tobytes()


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (70, 40)])
def test_torch(dtype, shape):
    if dtype == torch.float4_e2m1fn_x2 and not shape:
        return  # a scalar cannot have two elements
    n = int(np.prod(shape, dtype=int)) * torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (n,), dtype=torch.uint8)
    t = raw.view(dtype).reshape(shape)
    data = lmc.compress(t)
    back = lmc.decompress(data, framework="torch")
    assert back.dtype == dtype and back.shape == t.shape
    assert lmc.decompress(data, framework="bytes") == bytes(raw.numpy())
    out = torch.empty_like(t)
    assert lmc.decompress(data, out=out) is out
    assert bytes(out.reshape(-1).view(torch.uint8).numpy()) == bytes(raw.numpy())


def test_the_same_bytes_from_everything(weights):
    t = torch.from_numpy(weights.view(np.uint16)).view(torch.bfloat16)
    data = lmc.compress(weights)
    assert lmc.compress(t) == data
    assert lmc.compress(weights.view(np.uint16), dtype="BF16") == data
    assert lmc.compress(weights, threads=3) == data
    raw = lmc.compress(weights.tobytes(), dtype=ml_dtypes.bfloat16)
    assert lmc.decompress(raw).shape == (weights.size,)
    assert lmc.decompress(raw).tobytes() == weights.tobytes()


class Foreign:
    """An array that only has DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(weights):
    t = torch.from_numpy(weights.view(np.uint16)).view(torch.bfloat16)
    assert lmc.compress(Foreign(t)) == lmc.compress(weights)
    f = np.arange(1000, dtype=np.float32).reshape(10, 100)
    assert lmc.compress(Foreign(f)) == lmc.compress(f)
    with pytest.raises(ValueError, match="contiguous"):
        lmc.compress(Foreign(f.T))
    used = f.__dlpack__()
    lmc._lmc.from_dlpack(used)
    with pytest.raises(ValueError):
        lmc._lmc.from_dlpack(used)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.bool, torch.complex64, torch.complex128):
        t = torch.zeros(64, dtype=torch.uint8).view(dtype)
        try:
            t.__dlpack__()
        except BufferError:  # this torch does not export it
            continue
        assert lmc.compress(Foreign(t)) == lmc.compress(t)


def test_buffers():
    doubles = array.array("d", range(1000))
    back = lmc.decompress(lmc.compress(doubles))
    assert back.dtype == np.float64 and back.tolist() == list(range(1000))
    assert lmc.decompress(lmc.compress(b"abc" * 100)) == b"abc" * 100
    assert lmc.decompress(lmc.compress(bytearray(64), dtype="F32")).dtype == np.float32
    view = memoryview(bytes(range(64)))
    assert lmc.decompress(lmc.compress(view[8:16])) == bytes(range(8, 16))
    with pytest.raises(ValueError, match="contiguous"):
        lmc.compress(view[::2])
    assert lmc.decompress(lmc.compress(b"")) == b""


def test_what_is_no_array():
    for wrong in (None, 5, "text", object(), [1, 2]):
        with pytest.raises(TypeError):
            lmc.compress(wrong)
    with pytest.raises(TypeError, match="complex256" if hasattr(np, "complex256") else "clongdouble"):
        lmc.compress(np.zeros(3, np.clongdouble))
    for kind, hint in ((ml_dtypes.int4, "view it as int8, or pack it to bytes, and give those with dtype='I4'"), (ml_dtypes.uint2, "LMC's U2 has 4 in one")):
        with pytest.raises(TypeError, match=hint):
            lmc.compress(np.zeros(4, kind))
    with pytest.raises(TypeError, match="uint4 has a byte for each element"):
        lmc.compress(torch.empty(4, dtype=torch.uint4))
    with pytest.raises(ValueError, match="big-endian"):
        lmc.compress(np.zeros(3, ">f4"))
    with pytest.raises(ValueError, match="ascontiguousarray"):
        lmc.compress(np.zeros((3, 4)).T)
    with pytest.raises(ValueError, match=r"contiguous\(\)"):
        lmc.compress(torch.zeros(3, 4).T)
    with pytest.raises(ValueError, match="sparse"):
        lmc.compress(torch.zeros(3).to_sparse())
    with pytest.raises(ValueError, match="on meta: it has a shape, but no data"):
        lmc.compress(torch.zeros(3, device="meta"))
    with pytest.raises(ValueError, match="resolve_conj"):
        lmc.compress(torch.zeros(3, dtype=torch.complex64).conj())
    with pytest.raises(TypeError):
        lmc.compress(np.array([object()]))
    with pytest.raises(TypeError, match="no dtype 'nothing'"):
        lmc.compress(b"1234", dtype="nothing")
    with pytest.raises(ValueError):
        lmc.compress(b"123", dtype="F32")
    with pytest.raises(ValueError):
        lmc.compress(b"123", level=9)
    with pytest.raises(ValueError):
        lmc.compress(b"123", level="best")
    with pytest.raises(ValueError):
        lmc.compress(b"123", threads=0)


def test_levels(weights):
    sizes = [len(lmc.compress(weights, level=level)) for level in ("fast", "default", "max", "archive")]
    assert sizes == sorted(sizes, reverse=True) and sizes[3] < sizes[0]
    for level in (-1, 0, 1, 2):
        assert same(lmc.decompress(lmc.compress(weights, level=level)), weights)
    for level in (-2, 3):
        with pytest.raises(ValueError):
            lmc.compress(weights, level=level)


def changed(weights):
    new = weights.copy()
    new.view(np.uint16)[::7, ::5] ^= 1
    return new


def test_delta(weights):
    new = changed(weights)
    delta = lmc.compress(new, weights)
    assert len(delta) < new.nbytes // 10
    assert same(lmc.decompress(delta, weights), new)
    assert same(lmc.decompress(delta, weights, threads=2), new)
    with pytest.raises(lmc.MissingBaseError):
        lmc.decompress(delta)
    with pytest.raises(lmc.WrongBaseError) as caught:
        lmc.decompress(delta, new)
    assert caught.value.status_name == "LMC_ERR_BASE_WRONG" and isinstance(caught.value, lmc.BaseError)
    with pytest.raises(ValueError):
        lmc.compress(new, weights[:5])


def test_delta_in_place(weights):
    new = changed(weights)
    delta = lmc.compress(new, weights)
    live = weights.copy()
    assert lmc.decompress(delta, live, out=live) is live and same(live, new)
    other = changed(new)[::-1].copy()
    before = other.copy()
    with pytest.raises(lmc.WrongBaseError):
        lmc.decompress(delta, other, out=other)
    assert same(other, before)  # a wrong base is found before anything is written
    room = np.zeros(new.nbytes + 2, np.uint8)
    room[: new.nbytes] = weights.view(np.uint8).reshape(-1)
    with pytest.raises(ValueError, match="part of the base"):
        lmc.decompress(delta, room[:-2], out=room[2:])


def test_out(weights):
    data = lmc.compress(weights)
    room = bytearray(lmc.bound(weights.nbytes))
    n = lmc.compress(weights, out=room)
    assert room[:n] == data
    with pytest.raises(lmc.OutputTooSmallError):
        lmc.compress(weights, out=bytearray(100))
    with pytest.raises(ValueError, match="bytes, and the result"):
        lmc.decompress(data, out=np.empty(5, np.uint8))
    with pytest.raises(TypeError, match="F16"):
        lmc.decompress(data, out=np.empty(weights.shape, np.float16))
    with pytest.raises((ValueError, BufferError)):
        lmc.decompress(data, out=bytes(weights.nbytes))
    locked = np.empty_like(weights)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        lmc.decompress(data, out=locked)
    with pytest.raises(ValueError, match="overlap"):
        a = np.frombuffer(bytearray(4096), np.uint8)
        lmc.compress(a[:2000], out=a[1000:])
    base = np.concatenate([changed(weights).reshape(-1).view(np.uint8), np.zeros(4096, np.uint8)])
    with pytest.raises(ValueError, match="overlaps the base"):
        lmc.compress(weights, base[: weights.nbytes], out=base)


def test_a_mask_is_not_lost(weights):
    masked = np.ma.masked_less(weights.astype(np.float32), 0)
    with pytest.raises(TypeError, match="mask"):
        lmc.compress(masked)
    assert same(lmc.decompress(lmc.compress(masked.data)), masked.data)


def test_tensors_without_a_header(weights):
    new = changed(weights)
    coded = lmc.tensor_encode(weights)
    out = np.empty_like(weights)
    assert lmc.tensor_decode(coded, out) is out and same(out, weights)
    delta = lmc.tensor_encode(new, weights)
    live = weights.copy()
    lmc.tensor_decode(delta, live, live)
    assert same(live, new)
    as_bytes = live.view(np.uint8)  # neither the dtype nor the block size must be given
    lmc.tensor_decode(lmc.tensor_encode(weights, new, log2_block=21), as_bytes, as_bytes)
    assert same(live, weights)
    part = np.empty(1000, ml_dtypes.bfloat16)
    lmc.tensor_decode(coded, part, offset=600, total_size=weights.nbytes)
    assert same(part, weights.reshape(-1)[300:1300])
    with pytest.raises(lmc.CorruptError):
        lmc.tensor_decode(coded[:-1], out)
    with pytest.raises(lmc.WrongBaseError):
        lmc.tensor_decode(delta, out, new)


def test_damage(weights):
    data = lmc.compress(weights)
    bad = bytearray(data)
    bad[len(bad) // 2] ^= 1
    with pytest.raises(lmc.ChecksumError) as caught:
        lmc.decompress(bad)
    assert isinstance(caught.value, lmc.CorruptError) and caught.value.status == 25
    with pytest.raises(lmc.TruncatedError):
        lmc.decompress(data[:-1])
    with pytest.raises(lmc.NotLMCError):
        lmc.decompress(b"PK\3\4" + bytes(100))
    with pytest.raises(lmc.LimitError, match=r": max_size is 1000, and its files have \d+ bytes$"):
        lmc.decompress(data, max_size=1000)


def test_threads_do_not_wait_for_each_other(weights):
    """Codec calls run without the GIL: a counter in Python runs beside a long call."""
    big = np.tile(weights, (100, 1))
    n, running = 0, True

    def count():
        nonlocal n
        while running:
            n += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = n
    lmc.compress(big, level="archive")
    after = n
    running = False
    thread.join()
    assert after - before > 20


def test_progress(weights):
    big = np.tile(weights, (20, 1))
    seen = []
    lmc.compress(big, progress=lambda *x: seen.append(x))
    assert seen == sorted(seen) and len(seen) > 3 and seen[-1] == (big.nbytes, big.nbytes)
    assert {total for _, total in seen} == {big.nbytes}

    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop(done)

    with pytest.raises(Stop):
        lmc.compress(big, progress=stop)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("what", ["lmc.compress(a, level='max')", "lmc.Writer(open(os.devnull, 'wb')).add('a', a)"])
def test_interrupt(what):
    """Ctrl-C ends a long call at once with KeyboardInterrupt, and later calls work."""
    program = f"""
        import os, time, threading, signal, numpy as np, lmc_codec as lmc
        a = np.random.default_rng(1).standard_normal(60_000_000, np.float32)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are started without
        def run():  # CPython 3.13 may raise beside a try that is around the loop (github.com/python/cpython/issues/130279)
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            while True: {what}
        start = time.perf_counter()
        try:
            run()
        except KeyboardInterrupt:
            print(time.perf_counter() - start)
        assert lmc.decompress(lmc.compress(b"abc")) == b"abc"
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, timeout=100, check=True
    )
    assert float(said.stdout) < 5


def test_fork(tmp_path):
    """Threads of a pool do not survive a fork: the child makes its own."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    program = """
        import os, numpy as np, lmc_codec as lmc
        a = np.arange(3_000_000, dtype=np.float32)
        with lmc.Writer("fork.lmc") as w: w.add("a", a)
        r = lmc.open("fork.lmc", threads=4)
        assert (r["a"] == a).all()
        child = os.fork()
        ok = (r["a"] == a).all()
        if child == 0: os._exit(0 if ok else 1)
        assert ok and os.waitpid(child, 0)[1] == 0
        os.unlink("fork.lmc")
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], cwd=tmp_path, timeout=100, check=True)


def test_import_is_quick_and_lonely():
    program = """
        import sys, time
        cpu = time.process_time()
        import lmc_codec
        cpu = time.process_time() - cpu
        assert cpu < 0.02, cpu
        lmc_codec.compress(b"1234")
        assert not {"numpy", "torch", "ml_dtypes", "fsspec", "safetensors"} & set(sys.modules)
        print(lmc_codec.tier, lmc_codec.__version__)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_without_numpy():
    program = """
        import sys
        sys.modules["numpy"] = sys.modules["ml_dtypes"] = None
        import array, lmc_codec as lmc
        a = array.array("f", range(100))
        data = lmc.compress(a)
        assert lmc.decompress(data, framework="bytes") == a.tobytes()
        out = array.array("f", bytes(400))
        assert lmc.decompress(data, out=out) == a
        sys.modules["torch"] = None
        try: lmc.decompress(data)
        except ImportError as error: assert "framework='bytes'" in str(error)
        else: raise SystemExit("no error")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_bf16_without_ml_dtypes():
    """Without ml_dtypes the result is of PyTorch. Without both, the message says what to install. A missing base is
    reported first."""
    program = """
        import sys, torch
        sys.modules["ml_dtypes"] = None
        import lmc_codec as lmc
        t = torch.arange(100).to(torch.bfloat16)
        data, delta = lmc.compress(t), lmc.compress(t + 1, t)
        for dtype, kind in ((torch.bfloat16, torch.Tensor), (torch.float8_e4m3fn, torch.Tensor), (torch.float32, "ndarray")):
            found = lmc.decompress(lmc.compress(t.to(dtype)))
            assert type(found) is kind or type(found).__name__ == kind, found
            assert torch.equal(torch.as_tensor(found), t.to(dtype))
            with lmc.open(lmc.torch.save({"w": t.to(dtype)})) as r:
                assert type(r["w"]) is type(found) is type(r.get_slice("w")[3:5])
        assert torch.equal(lmc.decompress(delta, t), t + 1)
        def fails(kind, *texts, f=None):
            try: f()
            except kind as error: assert all(x in str(error) for x in texts), error
            else: raise SystemExit("no error")
        fails(ImportError, "ml_dtypes", "framework='torch'", f=lambda: lmc.decompress(data, framework="numpy"))
        fails(lmc.MissingBaseError, "give base=", f=lambda: lmc.decompress(delta, framework="numpy"))
        fails(lmc.MissingBaseError, "give base=", f=lambda: lmc.decompress(delta))
        sys.modules["torch"] = None
        fails(ImportError, "pip install ml_dtypes", "framework='torch'", "framework='bytes'", f=lambda: lmc.decompress(data))
        fails(lmc.MissingBaseError, "give base=", f=lambda: lmc.decompress(delta))
        fails(lmc.MissingBaseError, "give base=", f=lambda: lmc.open(delta).get(""))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_missing_base_is_named(tmp_path, weights):
    import lmc_codec.numpy as files

    files.save_file({"w": weights}, tmp_path / "a.lmc")
    new = weights.copy()
    new.view(np.uint16)[::9] ^= 1
    files.save_file({"w": new}, tmp_path / "b.lmc", base=tmp_path / "a.lmc")
    with lmc.open(tmp_path / "a.lmc") as r:
        fingerprint = r.fingerprint.hex()[:16]
    with pytest.raises(lmc.MissingBaseError) as caught:
        files.load_file(tmp_path / "b.lmc")
    assert str(caught.value) == (
        f"{tmp_path}/b.lmc: tensor 'w': this is a delta: its base, the snapshot {fingerprint}... (once called a.lmc), is needed: "
        "give base= (base='auto' looks for it beside the file)"
    )
    assert caught.value.status == 30
    command = os.path.join(os.path.dirname(lmc.__file__), "bin", "lmc")
    subprocess.run([command, "-d", "a.lmc", "-o", "a\x1b.st"], cwd=tmp_path, check=True)
    subprocess.run([command, "-d", "b.lmc", "--base", "a.lmc", "-o", "b.st"], cwd=tmp_path, check=True)
    subprocess.run([command, "--base", "a\x1b.st", "b.st"], cwd=tmp_path, check=True)
    with pytest.raises(lmc.MissingBaseError, match=r"b.st.lmc: tensor 'w': .* \(once called a\\x1B.st\), is needed: give base="):
        files.load_file(tmp_path / "b.st.lmc")


@pytest.mark.parametrize("dtype", ["float7", [1], ([1],)])
def test_what_is_no_dtype(dtype):
    with pytest.raises(TypeError, match="LMC has no dtype"):
        lmc.compress(b"1234", dtype=dtype)
