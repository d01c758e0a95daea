"""decode="gpu" without a GPU: see stand_in.py."""

import ctypes
import gc
import importlib.util
import io
import os
import re
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmc_codec
import pytest
import stand_in
import torch
from lmc_codec import _gpu
from lmc_codec.torch import apply_file, iterate, load_file, save_checkpoint, save_file, save_model
from stand_in import LIBRARIES

pytestmark = pytest.mark.skipif(not LIBRARIES[0].exists(), reason="the stand-ins for CUDA are not built: make gpu-stand-ins")

@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The stand-ins; gpu.used(): bytes of device memory."""
    monkeypatch.setenv("LMC_CUDA_CACHE", str(tmp_path / "cache"))
    gpu = stand_in.install(monkeypatch.setattr)
    driver = gpu.driver

    def used():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        context = ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxPushCurrent_v2(context)
        assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        driver.cuCtxPopCurrent_v2(ctypes.byref(context))
        driver.cuDevicePrimaryCtxRelease_v2(0)
        return total.value - free.value

    gpu.used = used
    yield gpu
    _gpu._opened.clear()
    gc.collect()
    assert [library.fake_cuda_live() for library in (driver, gpu.nvrtc)] == [0, 0]


def make_state(seed=0):
    """Tensors of all widths, of more than one block, of odd sizes, so that blocks cross tensor borders."""
    torch.manual_seed(seed)
    dtypes = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]
    state = {}
    for i, dtype in enumerate(dtypes):
        state[f"{i}.w"] = (torch.randn(61, 97) * 0.02 * (1000 if "int" in str(dtype) else 1)).to(dtype)
        state[f"{i}.b"] = torch.ones(i).to(dtype)
    state["large"] = (torch.randn(300, 300) * 0.02).bfloat16()
    state["other"] = torch.randn(300, 150) * 0.02
    state["scalar"] = torch.tensor(3.5)
    state["empty"] = torch.empty(0, 3)
    return state


def step(state, share=0.02):
    after = {name: t.clone() for name, t in state.items()}
    for name, t in after.items():
        if t.is_floating_point() and t.numel() > 1:
            at = torch.rand(t.shape) < share
            t[at] = (t[at].float() * 1.1 + 0.001).to(t.dtype)
    return after


def same(a, b):
    return a.keys() == b.keys() and all(
        x.dtype == b[n].dtype and x.shape == b[n].shape and x.reshape(-1).view(torch.uint8).equal(b[n].reshape(-1).view(torch.uint8))
        for n, x in a.items()
    )


@pytest.fixture
def files(tmp_path):
    state = make_state()
    save_file(state, tmp_path / "a.lmc", metadata={"format": "pt"})
    after = step(state)
    save_file(after, tmp_path / "b.lmc", base=tmp_path / "a.lmc")
    return types.SimpleNamespace(a=tmp_path / "a.lmc", b=tmp_path / "b.lmc", state=state, after=after)


def test_load(gpu, files):
    said = []
    loaded = load_file(files.a, "cuda", decode="gpu", progress=lambda done, total: said.append((done, total)))
    assert same(loaded, files.state) and list(loaded) == list(load_file(files.a))
    assert gpu.count("kernel") > 0 and gpu.count("nvrtcCompileProgram") == 1
    total = sum(t.nbytes for t in files.state.values())
    assert said[-1] == (total, total) and len(said) == len(loaded)
    assert same(load_file(files.a, "cuda", decode="gpu", threads=2), files.state)
    assert gpu.count("nvrtcCompileProgram") == 1  # the second time, the program came from the cache


def test_iterate(gpu, files):
    names = []
    for name, t in iterate(files.a, "cuda", decode="gpu", max_bytes=30_000):
        assert same({name: t}, {name: files.state[name]})
        names.append(name)
    assert names == list(load_file(files.a))
    assert gpu.count("cuMemcpyDtoHAsync_v2") >= 5  # a wait for each group
    some = dict(iterate(files.a, names={"large", "0.w"}, decode="gpu", device="cuda"))
    assert some.keys() == {"large", "0.w"} and same(some, {name: files.state[name] for name in some})
    assert same(dict(iterate(files.a)), files.state)


def test_few_at_a_time(gpu, files):
    """If each tensor is dropped, at most those of one group and the last one are in memory."""
    most, largest = 50_000, max(t.nbytes for t in files.state.values())
    held = []
    for _, t in iterate(files.a, "cuda", decode="gpu", max_bytes=most):
        del t
        held.append(sum(gpu.lent.values()))
    assert max(held) <= max(most, largest) + largest < sum(t.nbytes for t in files.state.values())


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
def test_apply(gpu, files, decode):
    weights = gpu.lend(files.state) if decode == "gpu" else {name: t.clone() for name, t in files.state.items()}
    places = {name: t.data_ptr() for name, t in weights.items()}
    apply_file(files.b, weights, decode=decode)
    assert same(weights, files.after) and places == {name: t.data_ptr() for name, t in weights.items()}
    with pytest.raises(lmc_codec.LMCError) as error:  # the weights are not the base of this delta any more
        apply_file(files.b, weights, decode=decode)
    assert isinstance(error.value, (lmc_codec.WrongBaseError, lmc_codec.CorruptError)), error.value
    assert same(weights, files.after)


def test_a_base_on_the_device(gpu, files):
    base = gpu.lend(files.state)
    assert same(load_file(files.b, "cuda", decode="gpu", base=base), files.after)
    assert same(base, files.state)
    # a base on the CPU: what it predicts is decoded there
    assert same(load_file(files.b, "cuda", decode="gpu", base=files.a), files.after)
    with pytest.raises(lmc_codec.MissingBaseError, match="needed: give base="):
        load_file(files.b, "cuda", decode="gpu")


@pytest.fixture
def checkpoints(gpu, tmp_path):
    """Two training states, made by the command; in the second one each tensor has another kind of prediction. Returns paths
    and content."""
    save = pytest.importorskip("safetensors.torch").save_file
    before = {"master": torch.randn(400, 400), "layers.z": (torch.randn(300, 300) * 0.02).bfloat16(), "x": torch.ones(7)}
    after = step(before)
    for name, tensors in ("a", before), ("b", after):
        tensors["twin"] = tensors["master"].bfloat16()
    other = {**after, "module.layers.z": after["layers.z"], "fresh": torch.randn(100, 100)}
    del other["layers.z"]
    for name, tensors in ("a", before), ("b", after), ("c", other):
        save(tensors, tmp_path / f"{name}.safetensors")
        base = [] if name == "a" else ["--base", tmp_path / "a.lmc"]
        command = [sys.executable, "-m", "lmc_codec", "-q", *base, "-o", tmp_path / f"{name}.lmc", tmp_path / f"{name}.safetensors"]
        subprocess.run(command, check=True)
    return types.SimpleNamespace(a=tmp_path / "a.lmc", b=tmp_path / "b.lmc", c=tmp_path / "c.lmc", before=before, after=after, other=other)


def test_twins_renamed_and_new_tensors(gpu, checkpoints, monkeypatch):
    """A base on the GPU gives the same result as one on the CPU."""
    x = checkpoints
    base = gpu.lend(x.before)
    assert same(load_file(x.a, "cuda", decode="gpu"), x.before)
    for path, right in (x.b, x.after), (x.c, x.other):
        assert same(load_file(path, base=x.before), right)
        assert same(load_file(path, "cuda", decode="gpu", base=x.a), right)
        assert same(load_file(path, "cuda", decode="gpu", base=base), right)
        assert same(dict(iterate(path, "cuda", decode="gpu", base=base, max_bytes=1)), right)
    assert same(base, x.before)
    some = dict(iterate(x.c, "cuda", decode="gpu", base=base, names={"twin", "module.layers.z"}))
    assert same(some, {name: x.other[name] for name in some}) and len(some) == 2


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
def test_apply_twins(gpu, checkpoints, decode):
    x = checkpoints
    weights = gpu.lend(x.before)
    places = {name: t.data_ptr() for name, t in weights.items()}
    with pytest.raises(lmc_codec.UnsupportedError, match="none of .*that name, dtype and shape"):
        apply_file(x.c, weights, decode=decode)
    assert same(weights, x.before)
    apply_file(x.b, weights, decode=decode)
    assert same(weights, x.after) and places == {name: t.data_ptr() for name, t in weights.items()}


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.h = torch.nn.Embedding(1000, 301), torch.nn.Linear(301, 1000)  # blocks cross from one to the next
        self.h.weight = self.e.weight


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
def test_apply_tied_weights(gpu, tmp_path, monkeypatch, decode):
    """Several names of one tensor. If the delta has several of them, a block of one may need the old bytes of another."""
    model = Tied()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    save_model(model, tmp_path / "sm0.lmc")
    with torch.no_grad():
        model.e.weight[::7] += 1
    after = {name: t.clone() for name, t in model.state_dict().items()}
    save_model(model, tmp_path / "sm1.lmc", base=tmp_path / "sm0.lmc")
    save_file(after, tmp_path / "both.lmc", base=before)
    save_file({**after, "h.weight": before["h.weight"]}, tmp_path / "differ.lmc", base=before)

    def tied(**more):
        tensors = gpu.lend({**{name: t for name, t in before.items() if name != "h.weight"}, **more})
        return {**tensors, "h.weight": tensors["e.weight"]}

    read, to_places = _gpu._read, []
    monkeypatch.setattr(_gpu, "_read", lambda *x: (to_places.extend(x[-1]), read(*x)))
    for path, is_in_place in ("sm1.lmc", decode == "gpu"), ("both.lmc", False):
        weights = tied()
        to_places.clear()
        place = weights["e.weight"].data_ptr()
        apply_file(tmp_path / path, weights, decode=decode)
        assert same(weights, after) and weights["e.weight"].data_ptr() == weights["h.weight"].data_ptr() == place
        assert (place in to_places) == is_in_place
    weights = tied()
    with pytest.raises(lmc_codec.ArgumentError, match="differ.lmc: it has different values for tensors 'e.weight' and 'h.weight'"):
        apply_file(tmp_path / "differ.lmc", weights, decode=decode)
    with pytest.raises(lmc_codec.WrongBaseError):
        apply_file(tmp_path / "sm1.lmc", tied(**{"e.weight": after["e.weight"]}), decode=decode)
    for other in weights["e.weight"][1:], weights["e.weight"].view(301, 1000), weights["e.weight"].view(torch.int32):
        with pytest.raises(ValueError, match="tensors '[eh].weight' and 'part' share memory, but are not the same"):
            apply_file(tmp_path / "sm1.lmc", {**weights, "part": other}, decode=decode)
    assert same(weights, before)


def test_it_stays_open(gpu, files):
    """There is one object for each process and device; a forked child opens its own."""
    for _ in range(3):
        assert same(load_file(files.a, "cuda", decode="gpu"), files.state)
    assert gpu.count("cuModuleLoadData") == 1 and len(_gpu._opened) == 1
    kept = gpu.used()
    weights = gpu.lend(files.state)
    apply_file(files.b, weights, decode="gpu")
    assert gpu.count("cuModuleLoadData") == 1 and gpu.used() == kept < 1 << 20  # on the device
    pid = os.fork()
    if pid == 0:
        try:
            ok = list(iterate(files.a, "cuda", names={"scalar"}, decode="gpu")) == [("scalar", 3.5)]
            opened = gpu.count("cuModuleLoadData")
            _gpu._opened.clear()  # what the parent has opened is not closed
            os._exit(0 if ok and (opened, gpu.count("cuModuleUnload")) == (2, 1) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert same(load_file(files.a, "cuda", decode="gpu"), files.state) and gpu.count("cuModuleLoadData") == 1


def test_threads(gpu, files):
    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load_file, files.a, "cuda", decode="gpu") for _ in range(6)]
        assert all(same(load.result(), files.state) for load in loads)
    assert len(_gpu._opened) == 1


def test_staging(gpu, files):
    assert same(load_file(files.a, "cuda", decode="gpu", staging=8 << 20), files.state)
    assert same(dict(iterate(files.a, "cuda", decode="gpu", staging=4 << 30)), files.state)
    weights = gpu.lend(files.state)
    apply_file(files.b, weights, decode="gpu", staging=8 << 20)
    assert same(weights, files.after)
    for bad in (8 << 20) - 1, (4 << 30) + 1, -1:
        with pytest.raises(ValueError, match=f"staging is 0, or from 8388608 to 4294967296 bytes, not {bad}"):
            load_file(files.a, "cuda", decode="gpu", staging=bad)


def test_the_page(gpu, tmp_path, monkeypatch):
    """docs/gpu.md, word for word."""
    page = (Path(__file__).parents[2] / "docs/gpu.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    state = {name: t for name, t in make_state().items() if t.is_floating_point()}
    save_file(state, "step-1.lmc")
    names = {}
    exec("\n".join(blocks), names)
    after = {name: (t.float() * 1.001).to(t.dtype) for name, t in state.items()}
    assert same(names["weights"], after) and same(load_file("step-2.lmc", base="step-1.lmc"), after)


def test_the_benchmark(gpu, files, tmp_path, monkeypatch, capsys):
    """The parts of bench/gpu.py that need PyTorch. The replacements of other codecs are called as their pages say."""
    save = pytest.importorskip("safetensors.torch").save_file
    path = Path(__file__).parents[2] / "bench/gpu.py"
    spec = importlib.util.spec_from_file_location("bench_gpu", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    model = tmp_path / "a.safetensors"
    save(files.state, model)
    monkeypatch.setattr(bench, "DEVICE", "cpu")
    bench.bench_load(str(model), str(files.a), 1)
    bench.bench_delta(str(files.a), str(tmp_path), 1)
    said = [re.sub(r"[0-9.]+ GB/s", "N GB/s", line) for line in capsys.readouterr().out.splitlines()]
    assert said[:-3] == [
        f"load: all {len(files.state)} tensors are right", 'load: LMC, decode="gpu": N GB/s', 'load: LMC, decode="cpu": N GB/s',
        *(f"load: safetensors, {n} threads: N GB/s" for n in (1, 4, 16))
    ]  # fmt: skip
    assert said[-2:] == [f'delta: checked and applied, decode="{how}": N GB/s' for how in ("gpu", "cpu")]

    class Codec:
        def __init__(self, algorithm, data_type="|u1"):
            assert algorithm == "ANS"

        def encode(self, arrays):
            return [types.SimpleNamespace(buffer_size=a.nbytes // 2) for a in arrays]

        def decode(self, arrays):
            assert all(a.buffer_size for a in arrays)

    nvcomp = types.SimpleNamespace(Codec=Codec, as_array=lambda t: t)
    monkeypatch.setitem(sys.modules, "nvidia", types.SimpleNamespace(nvcomp=nvcomp, __path__=[]))
    dietgpu = types.SimpleNamespace(compress_data_simple=lambda is_float, ts: ts, decompress_data_simple=lambda is_float, ts: ts)
    monkeypatch.setattr(torch.ops, "dietgpu", dietgpu, raising=False)
    monkeypatch.setattr(torch.ops, "load_library", lambda path: None)
    bench.bench_peers(str(model), 1)
    monkeypatch.setenv("DIETGPU", "dietgpu.so")
    bench.bench_peers(str(model), 1)
    said = capsys.readouterr().out.splitlines()
    nvcomp = [f"peers: nvCOMP ANS, {what}: 50.0%, N GB/s" for what in ("bytes", "byte planes", "<f2")]
    assert [re.sub(r"[0-9.]+ GB/s", "N GB/s", line) for line in said] == [
        *nvcomp, "peers: DietGPU: DIETGPU does not name its .so", *nvcomp, "peers: DietGPU: 100.0%, N GB/s"
    ]  # fmt: skip


# -- what is refused --


def flip(path, name, to):
    """A bit of that tensor's bytes, in a copy."""
    with lmc_codec.open(path) as reader:
        x = reader.info(name)
        at, size = reader._object.encoded_range(x.file_number, x.offset, x.size)
    data = bytearray(path.read_bytes())
    data[at + size // 2] ^= 1
    to.write_bytes(data)
    return to


def test_damage(gpu, files, tmp_path):
    bad = flip(files.a, "large", tmp_path / "bad.lmc")
    with pytest.raises(lmc_codec.ChecksumError) as by_cpu:
        load_file(bad)
    with pytest.raises(lmc_codec.ChecksumError, match="bad.lmc: .*tensor large") as by_gpu:
        load_file(bad, "cuda", decode="gpu")
    assert by_gpu.value.status == by_cpu.value.status
    assert str(by_gpu.value).rsplit(": ", 1)[1] == str(by_cpu.value).rsplit(": ", 1)[1]  # the words of the library
    found = []
    with pytest.raises(lmc_codec.ChecksumError):
        for name, _ in iterate(bad, "cuda", decode="gpu", max_bytes=1):
            found.append(name)
    assert "large" not in found and len(found) > 3
    weights = gpu.lend(files.state)
    with pytest.raises(lmc_codec.ChecksumError, match="bad.lmc: tensor .*, block"):
        apply_file(flip(files.b, "large", tmp_path / "bad.lmc"), weights, decode="gpu")
    assert same(weights, files.state)
    save_file({"\x1b[31m\n": files.state["large"]}, tmp_path / "hostile.lmc")
    with pytest.raises(lmc_codec.ChecksumError) as error:
        load_file(flip(tmp_path / "hostile.lmc", "\x1b[31m\n", tmp_path / "bad.lmc"), "cuda", decode="gpu")
    assert "tensor  [31m , block" in str(error.value)
    cut = tmp_path / "cut.lmc"
    cut.write_bytes(files.a.read_bytes()[:-100])
    with pytest.raises(lmc_codec.TruncatedError):
        load_file(cut, "cuda", decode="gpu")


@pytest.mark.parametrize("decode", ["cpu", "gpu"])
def test_wrong_bases(gpu, files, decode):
    lend = gpu.lend if decode == "gpu" else dict
    good = files.state

    def refused(tensors, kind, text, path=files.b):
        with pytest.raises(kind, match=text):
            apply_file(path, tensors, decode=decode)

    refused(lend(good), lmc_codec.ArgumentError, "a.lmc is not a delta: load_file", files.a)
    both = lend(good)
    refused({**both, "also": both["large"][1:]}, ValueError, "share memory")
    other = lend({**good, "large": make_state(1)["large"]})
    refused(other, lmc_codec.WrongBaseError, "base")
    assert other["large"].equal(make_state(1)["large"])
    for large in (good["large"].float(), good["large"][1:], None):
        tensors = lend({**good, "large": good["large"] if large is None else large})
        if large is None:
            del tensors["large"]
        refused(tensors, lmc_codec.WrongBaseError, "the delta is of .*, and the base given is")
        with pytest.raises(lmc_codec.WrongBaseError, match="the delta is of"):
            load_file(files.b, "cuda", decode=decode, base=tensors)
    if decode == "cpu":
        return
    transposed = lend({**good, "large": good["large"].T.contiguous()})
    refused({**transposed, "large": transposed["large"].T}, ValueError, "'large': .*not contiguous")
    refused({**lend(good), "large": torch.empty(300, 300, dtype=torch.bfloat16, device="meta")}, ValueError, "meta")


def test_what_the_kernels_leave(gpu, files, monkeypatch):
    """Refusals that only the GPU has: the CPU decodes these, and all is right."""
    for status in (255, 24):
        monkeypatch.setenv("FAKE_CUDA_STATUS", str(status))
        assert same(load_file(files.a, "cuda", decode="gpu"), files.state)
        weights = gpu.lend(files.state)
        apply_file(files.b, weights, decode="gpu")
        assert same(weights, files.after)


@pytest.mark.parametrize("seed", range(3))
def test_other_orders_of_streams(gpu, files, monkeypatch, seed):
    monkeypatch.setenv("FAKE_CUDA_ORDER", str(seed + 1))
    assert same(dict(iterate(files.a, "cuda", decode="gpu", max_bytes=50_000)), files.state)


@pytest.mark.parametrize("call", ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemHostAlloc", "cuModuleLoadData", "cuStreamCreate", "cuMemcpyHtoDAsync_v2:3", "cuLaunchKernel", "cuStreamSynchronize:2", "kernel"])
def test_calls_that_fail(gpu, files, monkeypatch, call):
    monkeypatch.setenv("FAKE_CUDA_FAIL", f"{call}=719")
    with pytest.raises(lmc_codec.DeviceError, match="CUDA: cu[A-Z].* failed") as error:
        load_file(files.a, "cuda", decode="gpu")
    assert isinstance(error.value, RuntimeError) and error.value.status_name == "LMC_ERR_DEVICE"
    assert not _gpu._opened  # the next call opens it anew
    del error  # the error holds what was opened: without it, the context is released
    gc.collect()
    monkeypatch.delenv("FAKE_CUDA_FAIL")
    assert same(load_file(files.a, "cuda", decode="gpu"), files.state)


def test_a_full_device(gpu, files, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MEMORY", "1000000")
    with pytest.raises(MemoryError, match=r"CUDA: cuMemAlloc.* failed: .*\(out of memory\): free memory of the GPU"):
        load_file(files.a, "cuda", decode="gpu")
    assert not gpu.lent


def test_the_compiler_fails(gpu, files, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "nvrtcCompileProgram")
    with pytest.raises(lmc_codec.DeviceError, match="error: FAKE_CUDA_FAIL"):
        load_file(files.a, "cuda", decode="gpu")


def test_the_cache(gpu, files, monkeypatch, tmp_path):
    """The cache directory must be the user's alone; otherwise it is not used."""
    def n_compiled():
        _gpu._opened.clear()
        before = gpu.count("nvrtcCompileProgram")
        assert list(iterate(files.a, "cuda", names={"scalar"}, decode="gpu")) == [("scalar", 3.5)]
        return gpu.count("nvrtcCompileProgram") - before

    assert (n_compiled(), n_compiled()) == (1, 0)
    cache = tmp_path / "cache"
    assert cache.stat().st_mode & 0o777 == 0o700 and len(list(cache.iterdir())) == 1
    cache.chmod(0o777)
    assert (n_compiled(), n_compiled()) == (1, 1)
    for bad in ("", str(tmp_path / "no" / "where"), str(files.a)):
        monkeypatch.setenv("LMC_CUDA_CACHE", bad)
        assert (n_compiled(), n_compiled()) == (1, 1)
    monkeypatch.delenv("LMC_CUDA_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))  # which has no .cache yet
    assert (n_compiled(), n_compiled()) == (1, 0)
    assert (tmp_path / ".cache/lmc_codec").stat().st_mode & 0o777 == 0o700


def test_sources(gpu, files, tmp_path):
    """Open files; files of others; files of torch.save(), which are for the CPU."""
    with open(files.a, "rb") as file:
        assert same(load_file(file, "cuda", decode="gpu"), files.state)
    assert same(load_file(files.a.read_bytes(), "cuda", decode="gpu"), files.state)

    class Broken:
        def __init__(self, n_good):
            self.data, self.n_good = io.BytesIO(files.a.read_bytes()), n_good
            self.seek, self.tell = self.data.seek, self.data.tell

        def read(self, n):
            self.n_good -= 1
            if self.n_good < 0:
                raise OSError("the network is gone")
            return self.data.read(n)

    for n_good in range(2):  # fails at the file's end, then at the rest
        with pytest.raises(OSError, match="the network is gone"):
            load_file(Broken(n_good), "cuda", decode="gpu")
    tied = {"a": files.state["large"], "b": files.state["large"].T, "c": files.state["large"][3:]}
    save_checkpoint(tied, tmp_path / "t.lmc")
    assert same(load_file(tmp_path / "t.lmc", "cpu", decode="gpu"), tied)
    with pytest.raises(lmc_codec.UnsupportedError, match="torch.save"):
        save_checkpoint({"a": tied["a"] + 1}, tmp_path / "u.lmc", base=tmp_path / "t.lmc")
        apply_file(tmp_path / "u.lmc", gpu.lend({"a": tied["a"]}), decode="gpu")


def test_many_files(gpu, tmp_path):
    """Tensors of several files in one snapshot, one of more than one group."""
    a, b = make_state(2), make_state(3)
    with lmc_codec.Writer(tmp_path / "m.lmc") as w:
        w.add_arrays({f"a.{k}": t for k, t in a.items()}, "a.safetensors")
        w.add_arrays({f"b.{k}": t for k, t in b.items()}, "b.safetensors")
    wanted = {**{f"a.{k}": t for k, t in a.items()}, **{f"b.{k}": t for k, t in b.items()}}
    assert same(load_file(tmp_path / "m.lmc", "cuda", decode="gpu"), wanted)


# -- without the stand-ins --


def test_arguments(files):
    for call in (load_file, iterate):
        with pytest.raises(ValueError, match="decode is 'cpu' or 'gpu', not 'GPU'"):
            list(call(files.a, decode="GPU"))
        with pytest.raises(ValueError, match="give device='cuda', not 'cpu'"):
            list(call(files.a, "cpu", decode="gpu"))
    with pytest.raises(ValueError, match="decode is"):
        apply_file(files.b, files.state, decode="GPU")
    with pytest.raises(ValueError, match="Key `w` is invalid, expected torch.Tensor but received .*numpy.ndarray"):
        apply_file(files.b, {"w": files.state["other"].numpy()})
    with pytest.raises(ValueError, match="Expected a dict of .* but received .*Linear"):
        apply_file(files.b, torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="decode='gpu' changes tensors on a GPU, and tensor '0.w' is on cpu: move all there"):
        apply_file(files.b, files.state, decode="gpu")
    with pytest.raises(ValueError, match="give device='cuda', not 'cpu'"):
        load_file(files.b, "cpu", decode="gpu", base=files.state)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA, so a GPU may be there")
def test_pytorch_without_cuda(files):
    with pytest.raises(lmc_codec.DeviceError, match="PyTorch .* is built without CUDA: install one with CUDA, or take decode='cpu'"):
        load_file(files.a, "cuda", decode="gpu")


def test_missing_libraries(files):
    """In a new process, whose loader has found no driver before."""
    code = f"""
import ctypes, sys, torch
from lmc_codec import _gpu, DeviceError
from lmc_codec.torch import load_file
_gpu._find_device = lambda device, what='': torch.device("cpu")
for path in None, {str(LIBRARIES[0])!r}:
    if path: ctypes.CDLL(path)
    try: load_file(sys.argv[1], "cuda", decode="gpu")
    except DeviceError as error: print(error)
"""
    said = subprocess.run([sys.executable, "-c", code, files.a], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(said) == 2 and "libcuda.so.1 cannot be opened: is there a GPU of NVIDIA, and its driver?" in said[0]
    assert "libnvrtc.so.13 cannot be opened: install NVRTC" in said[1]


def test_nvrtc_of_wheels(monkeypatch, tmp_path):
    """NVRTC that pip has installed beside PyTorch."""
    (tmp_path / "nvidia/cuda_nvrtc/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cu13/lib").mkdir(parents=True)
    for name in ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.8", "cu13/lib/libnvrtc.so.13", "cu13/lib/libnvrtc-builtins.so.13.0"):
        (tmp_path / "nvidia" / name).touch()
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert _gpu._find_nvrtc() is None
    monkeypatch.syspath_prepend(tmp_path)
    for version, name in (("12.8", "cuda_nvrtc/lib/libnvrtc.so.12"), ("13.0", "cu13/lib/libnvrtc.so.13"), ("11.8", None), (None, None)):
        monkeypatch.setattr(torch.version, "cuda", version)
        assert _gpu._find_nvrtc() == (None if name is None else str(tmp_path / "nvidia" / name))
    sys.modules.pop("nvidia", None)
