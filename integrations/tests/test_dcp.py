"""lmc_integrations.dcp with the real torch.distributed.checkpoint: in one process, and resharding between 1, 2 and 4
processes. The blocks of docs/dcp.md are run, too."""

import io
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.metadata import MetadataIndex  # noqa: E402

import lmc_codec  # noqa: E402
import lmc_integrations.dcp as lmc  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # torch: "assuming the intent is to save in a single process"
# torch raises CheckpointException, which is a BaseException but no Exception


def test_the_page_of_dcp(tmp_path):
    """Runs the blocks that begin with "# run". The others need packages that are not installed: they must compile."""
    text = (Path(__file__).parents[2] / "docs" / "dcp.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    run = [block for block in blocks if block.startswith("# run\n")]
    assert len(run) == 5 and len(blocks) == 7
    for block in blocks:
        compile(block, "dcp.md", "exec")
    (tmp_path / "page.py").write_text("\n".join(run))
    said = subprocess.run([sys.executable, "-W", "ignore", "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    sizes = {path.parent.name: path.stat().st_size for path in tmp_path.glob("*/*.distcp")}
    assert sizes["step-100"] < 0.8 * 2 * 2 * 512 * 513 and sizes["step-300"] < 0.3 * sizes["step-200"]
    assert sizes["step-400"] < 0.1 * sizes["step-200"] and sizes["plain"] < 0.8 * 2 * 2 * 512 * 513


@pytest.fixture
def state():
    torch.manual_seed(1)
    return {
        "bf16": (torch.randn(300, 200) * 0.02).to(torch.bfloat16),
        "f32": torch.randn(100, 200) * 0.02,
        "f16": torch.randn(50, 70).to(torch.float16),
        "fp8": torch.randn(300, 50).to(torch.float8_e4m3fn),
        "c128": torch.randn(30, 40, dtype=torch.complex128),
        "c32": torch.randn(3000, dtype=torch.float32).view(torch.float16).view(torch.complex32),
        "i64": torch.arange(5000),
        "bool": torch.rand(5000) > 0.5,
        "transposed": torch.randn(70, 60).t(),
        "view": torch.randn(100, 100)[10:60, :50],
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "text": "ab" * 3000,
        "number": 7,
    }


def as_bytes(t):
    return t.contiguous().reshape(-1).view(torch.uint8)


def check(reader, want):
    got = {name: torch.zeros_like(x) if isinstance(x, torch.Tensor) else None for name, x in want.items()}
    dcp.load(got, storage_reader=reader)
    for name, x in want.items():
        if isinstance(x, torch.Tensor):
            assert got[name].dtype == x.dtype and got[name].shape == x.shape
            assert torch.equal(as_bytes(got[name]), as_bytes(x)), name
        else:
            assert got[name] == x


def size_of(path):
    return sum(x.stat().st_size for x in Path(path).glob("*.distcp"))


def item(path, name):
    """An item of a checkpoint, cut out of its file. It is an LMC file."""
    where = lmc.Reader(path).read_metadata().storage_data[MetadataIndex(name, torch.Size([0, 0]))]
    assert where.transform_descriptors == ["stream.lmc/1"]
    return (Path(path) / where.relative_path).read_bytes()[where.offset : where.offset + where.length]


def save(state, path, **options):
    dcp.save(state, storage_writer=lmc.Writer(path, sync_files=False, **options))


def step(state):
    after = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in state.items()}
    for name in ("bf16", "f32"):
        after[name].view(-1)[::50] *= 1.01
    return after


def test_all_kinds(tmp_path, state):
    dcp.save(state, checkpoint_id=tmp_path / "plain")
    save(state, tmp_path / "lmc")
    check(lmc.Reader(tmp_path / "lmc"), state)
    check(lmc.Reader(tmp_path / "plain"), state)  # it reads files that are not LMC, too
    assert size_of(tmp_path / "lmc") < 0.85 * size_of(tmp_path / "plain")
    for name, dtype in {"bf16": "BF16", "f32": "F32", "fp8": "F8_E4M3", "c128": "C128"}.items():
        with lmc_codec.open(item(tmp_path / "lmc", name)) as r:  # with its own dtype and name
            assert r.info(name).dtype == dtype and r.info(name).size == as_bytes(state[name]).numel()
            assert bytes(r.get(name, framework="bytes")) == bytes(as_bytes(state[name]).numpy())


@pytest.mark.parametrize("level, single", [("fast", True), ("max", False)])
def test_threads_levels_files(tmp_path, state, level, single):
    save(state, tmp_path / "a", thread_count=3, level=level, threads=2, single_file_per_rank=single)
    check(lmc.Reader(tmp_path / "a", threads=2), state)
    assert len(list((tmp_path / "a").glob("*.distcp"))) == (3 if single else len(state))


def test_levels_differ(tmp_path, state):
    for level in ("fast", "archive"):
        save(state, tmp_path / level, level=level)
    assert size_of(tmp_path / "archive") < size_of(tmp_path / "fast")
    with pytest.raises(ValueError, match="none of fast, default"):
        lmc.Writer(tmp_path / "x", level="best")


def test_extension(tmp_path, state):
    """The extension in torch's own writers and readers: it finds dtypes in the output of torch.save."""
    writer = dcp.FileSystemWriter(tmp_path / "a", _extensions=[lmc.Extension()])
    dcp.save(state, storage_writer=writer)
    check(dcp.FileSystemReader(tmp_path / "a", _extension_registry=lmc.make_registry()), state)
    check(lmc.Reader(tmp_path / "a"), state)
    save(state, tmp_path / "b")
    assert abs(size_of(tmp_path / "a") - size_of(tmp_path / "b")) < 40 * len(state)
    for name, dtype in {"bf16": "BF16", "fp8": "F8_E4M3", "c128": "C128", "f32": "F32"}.items():
        with lmc_codec.open(item(tmp_path / "a", name)) as r:
            assert r.info("").dtype == dtype
    with pytest.raises(BaseException, match="Unknown extension"):
        check(dcp.FileSystemReader(tmp_path / "a"), state)
    with pytest.raises(ValueError, match="stream.lmc/2"):
        lmc.Extension.from_descriptor("2")


def test_transforms_for_others(tmp_path, state):
    """Transforms, as Megatron-core's writer and reader use them."""
    for path, base in ((tmp_path / "a", None), (tmp_path / "b", tmp_path / "a")):
        writer = dcp.FileSystemWriter(path)
        writer.transforms = lmc.SaveTransforms(path, base=base)
        dcp.save(state, storage_writer=writer)
        reader = dcp.FileSystemReader(path)
        reader.transforms = lmc.LoadTransforms(path)
        check(reader, state)
    assert size_of(tmp_path / "b") < 0.6 * size_of(tmp_path / "a")


def test_async(tmp_path, state):
    want = step(state)
    future = dcp.async_save(state, storage_writer=lmc.Writer(tmp_path / "a"))
    future.result()
    response = dcp.async_save(want, storage_writer=lmc.Writer(tmp_path / "b", base=tmp_path / "a"))
    response.result()
    check(lmc.Reader(tmp_path / "b"), want)
    again = pickle.loads(pickle.dumps(lmc.Writer(tmp_path / "c", base=tmp_path / "b")))  # to another process
    dcp.save(state, storage_writer=again)
    check(lmc.Reader(tmp_path / "c"), state)


def test_one_writer_for_many(tmp_path, state):
    writer, reader = lmc.Writer(tmp_path / "a"), lmc.Reader(tmp_path / "a")
    for name, x in (("b", state), ("c", step(state))):
        dcp.save(x, storage_writer=writer, checkpoint_id=tmp_path / name)
        got = {"bf16": torch.zeros_like(x["bf16"])}
        dcp.load(got, storage_reader=reader, checkpoint_id=tmp_path / name)
        assert torch.equal(got["bf16"], x["bf16"])
    assert not (tmp_path / "a").exists()


def test_deltas(tmp_path, state):
    states = [state, step(state), step(step(state))]
    dcp.save(state, checkpoint_id=tmp_path / "0")  # the base is not even an LMC checkpoint
    for i in (1, 2):
        save(states[i], tmp_path / str(i), base=tmp_path / str(i - 1), thread_count=2)
        check(lmc.Reader(tmp_path / str(i)), states[i])
    save(states[2], tmp_path / "whole")
    assert size_of(tmp_path / "2") < 0.4 * size_of(tmp_path / "whole")
    moved = tmp_path / "elsewhere"  # all are moved together
    moved.mkdir()
    for i in "012":
        shutil.move(tmp_path / i, moved / i)
    check(lmc.Reader(moved / "2"), states[2])
    shutil.move(moved / "1", tmp_path / "one")  # one of them
    with pytest.raises(BaseException, match="is a delta of the checkpoint .*elsewhere/1, which cannot be read"):
        check(lmc.Reader(moved / "2"), states[2])
    check(lmc.Reader(moved / "2", base=lmc.Reader(tmp_path / "one", base=moved / "0")), states[2])
    with pytest.raises(BaseException, match=r"elsewhere/2/__0_\d.distcp: (bf16|f32).*wrong base.*delta is of [0-9a-f]{16}"):
        check(lmc.Reader(moved / "2", base=moved / "0"), states[2])
    with pytest.raises(BaseException, match="MissingBaseError"):
        check(dcp.FileSystemReader(moved / "2", _extension_registry=lmc.make_registry()), states[2])


def test_delta_of_other_tensors(tmp_path, state):
    """A tensor that the base lacks, or has with another dtype or shape, is coded in full."""
    save(state, tmp_path / "a")
    after = step(state)
    after["f32"] = after["f32"].to(torch.float64)
    after["f16"] = torch.randn(51, 70).to(torch.float16)
    after["i64"] = after["i64"].reshape(50, 100)
    after["new"] = torch.randn(100, 100)
    del after["fp8"]
    save(after, tmp_path / "b", base=tmp_path / "a")
    check(lmc.Reader(tmp_path / "b"), after)
    with lmc_codec.open(item(tmp_path / "b", "new")) as r:
        assert r.base_fingerprint is None
    with lmc_codec.open(item(tmp_path / "b", "bf16")) as r:
        assert r.base_fingerprint is not None


def test_delta_of_itself(tmp_path, state):
    save(state, tmp_path / "a")
    before = item(tmp_path / "a", "bf16")
    with pytest.raises(BaseException, match="a checkpoint cannot be a delta of itself"):
        save(state, tmp_path / "a", base=tmp_path / "b" / ".." / "a")
    assert len(before)
    with pytest.raises(BaseException, match="is not a checkpoint"):
        save(state, tmp_path / "c", base=tmp_path / "none")


def test_a_base_that_is_a_link(tmp_path):
    states = [{"w": torch.arange(2000.0) + i} for i in range(4)]
    latest = tmp_path / "latest"

    def go_on(i):
        latest.unlink(missing_ok=True)
        latest.symlink_to(f"step-{i}")

    save(states[0], tmp_path / "step-0")
    for i in (1, 2):
        go_on(i - 1)
        save(states[i], tmp_path / f"step-{i}", base=latest)
    go_on(2)
    check(lmc.Reader(latest), states[2])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "step-2")
    check(lmc.Reader(tmp_path / "elsewhere" / "link"), states[2])
    # earlier versions stored a path that is relative to the link
    transforms = lmc.Reader(tmp_path / "elsewhere" / "link").transforms
    (tmp_path / "elsewhere" / "old").mkdir()
    assert transforms._open_base({"base": "../old"}).path == tmp_path / "elsewhere" / "old"
    # a chain that forms a cycle
    shutil.move(tmp_path / "step-0", tmp_path / "first")
    (tmp_path / "step-0").symlink_to("step-2")
    with pytest.raises(BaseException, match="MissingBaseError.*step-1: its bases go in a circle: .*step-2 -> .*step-1 -> .*step-2"):
        check(lmc.Reader(tmp_path / "step-2"), states[2])
    check(lmc.Reader(tmp_path / "step-2", base=lmc.Reader(tmp_path / "step-1", base=tmp_path / "first")), states[2])


def test_a_base_that_is_not_there(tmp_path, state):
    with pytest.raises(BaseException, match="MissingBaseError: the base .*typo is not a checkpoint, or is not finished"):
        save(state, tmp_path / "a", base=tmp_path / "typo")
    assert not (tmp_path / "a").exists()


def test_remote(tmp_path, state):
    pytest.importorskip("fsspec")
    after = step(state)
    save(state, "memory://dcp/a", thread_count=2)
    save(after, "memory://dcp/b", base="memory://dcp/a")
    check(lmc.Reader("memory://dcp/a"), state)
    check(lmc.Reader("memory://dcp/b"), after)
    with pytest.raises(BaseException, match="a checkpoint cannot be a delta of itself"):
        save(after, "memory://dcp/b", base="memory://dcp/b/")


def test_nothing_is_lost_in_silence(tmp_path, state, monkeypatch):
    """torch drops exceptions of a writer's threads, and replaces those of a stream by its own."""
    failed = []

    def fail(output, data):
        failed.append(1)
        raise OSError("the disk is full")

    monkeypatch.setattr(lmc, "write_all", fail)
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    for n in (1, 3):
        writer = lmc.Writer(tmp_path / f"a{n}", sync_files=False, thread_count=n)
        with pytest.raises(BaseException, match="the disk is full|items were not written"):
            dcp.save(state, storage_writer=writer)
        assert not writer.transforms.errors  # else the writer and the exception would form a cycle
        assert not (tmp_path / f"a{n}" / ".metadata").exists()
    assert failed


def test_an_error_lets_go_of_memory():
    """A traceback keeps the locals of its frames. With a view of a BytesIO among them, which torch hands over for what is
    no tensor, CPython 3.12.0 and 3.12.1 crash when they collect it as part of a cycle (github.com/python/cpython #111049),
    and torch makes that cycle of every error."""

    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError("the disk is full")

    for size in (5000, 2_000_000):
        data = io.BytesIO(bytes(size))
        with pytest.raises(OSError, match="the disk is full") as error:
            lmc.Extension().transform_to(Full()).write(data.getbuffer())
        assert error.traceback
        data.truncate(0)  # BufferError, where a view is left


def test_damage(tmp_path, state):
    save(state, tmp_path / "a")
    where = lmc.Reader(tmp_path / "a").read_metadata().storage_data[MetadataIndex("bf16", torch.Size([0, 0]))]
    file = tmp_path / "a" / where.relative_path
    data = bytearray(file.read_bytes())
    data[where.offset + where.length // 2] ^= 4
    file.write_bytes(data)
    with pytest.raises(BaseException, match=r"a/__0_\d.distcp: bf16.*(checksum|corrupt)"):
        check(lmc.Reader(tmp_path / "a"), state)
    file.write_bytes(data[: where.offset + where.length // 2])  # torch wraps it with where it was raised
    with pytest.raises(BaseException, match=r"TruncatedError: .*a/__0_\d.distcp: bf16: .*truncated"):
        check(lmc.Reader(tmp_path / "a"), {"bf16": state["bf16"]})


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="threads is 0"):
        lmc.Writer(tmp_path / "c", threads=0)
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError, match="_extensions"):
        lmc.Writer(tmp_path, _extensions=[lmc.Extension()])
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    with pytest.raises(ValueError, match="serialization_format"):
        lmc.Writer(tmp_path, serialization_format=SerializationFormat.SAFETENSORS)


class Sink:
    def __init__(self, answer):
        self.answer = answer

    def write(self, data):
        return self.answer

    def flush(self):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("answer, kind", [(0, OSError), (-1, OSError), (10**9, OSError), (1.5, TypeError), ("x", TypeError)])
def test_what_sinks_answer(answer, kind):
    with pytest.raises(kind, match=r"write\(\)"), lmc.Extension().transform_to(Sink(answer)) as stream:
        stream.write(bytes(5000))


def test_it_is_not_opened_in_parts(tmp_path, state):
    save(state, tmp_path / "a")
    with pytest.raises(lmc_codec.UnsupportedError, match="lmc_integrations.dcp.Reader"):
        lmc_codec.open(tmp_path / "a" / "__0_0.distcp")
    with pytest.raises(IsADirectoryError, match="lmc_integrations.dcp.Reader"):
        lmc_codec.open(tmp_path / "a")


class Pipe(io.RawIOBase):
    """A stream that reads and writes few bytes at a time, and cannot seek."""

    def __init__(self, data=b""):
        self.data, self.at = bytearray(data), 0

    def write(self, data):
        n = min(len(data), 1000)
        self.data += bytes(data[:n])
        return n

    def read(self, size=-1):
        assert size == -1
        return bytes(self.data)


@pytest.mark.parametrize("sizes", [[], [0], [5], [1023, 1024, 1025], [3_000_000], [100] * 20000, [200_000, 2_000_000], [700] * 3000 + [9000]])
def test_streams(sizes):
    """Any bytes in any pieces can be coded, not only those of torch.save()."""
    rng = random.Random(len(sizes))
    pieces = [rng.randbytes(n // 2) + bytes(n - n // 2) for n in sizes]
    whole = b"".join(pieces)
    pipe = Pipe()
    stream = lmc.Extension().transform_to(pipe)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
        stream.flush()
    stream.close()
    end = len(pipe.data)
    stream.close()
    assert len(pipe.data) == end
    for source in (Pipe(pipe.data), io.BytesIO(pipe.data)):
        reader = lmc.Extension().transform_from(source)
        assert reader.read(-1) == whole and reader.read(1) == b""
        for _ in range(20):
            at, n = rng.randrange(len(whole) + 1), rng.randrange(70_000)
            assert reader.seek(at) == at
            assert reader.read(n) == whole[at : at + n] and reader.tell() == min(at + n, len(whole))
        if whole:
            assert reader.seek(-1, os.SEEK_END) == len(whole) - 1 and reader.read() == whole[-1:]


def test_share_of_threads(monkeypatch):
    monkeypatch.setattr(lmc, "count_threads", lambda threads: threads or 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert lmc._share_threads(None) == 2 and lmc._share_threads(None, 2) == 1 and lmc._share_threads(5) == 5


def run_ranks(n, directory, source, target):
    program = Path(__file__).with_name("dcp_ranks.py")
    environment = {**os.environ, "LOCAL_WORLD_SIZE": str(n), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(rank), str(n), directory, source, target],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        for rank in range(n)
    ]
    try:
        said = [rank.communicate(timeout=300)[0].decode() for rank in ranks]
    finally:
        for rank in ranks:  # if one rank fails, the others wait for it
            rank.kill()
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(said)


@pytest.mark.long
def test_ranks(tmp_path):
    """FSDP2: 1 rank saves, 3 load it and save a delta, 2 load that and save another one by async_save, 1 loads it."""
    run_ranks(1, tmp_path, "-", "a")
    run_ranks(3, tmp_path, "a", "b")
    run_ranks(2, tmp_path, "b", "c")
    whole = torch.load(tmp_path / "c.pt")
    check(lmc.Reader(tmp_path / "c"), {"model.0.weight": whole["model/0.weight"], "model.1.bias": whole["model/1.bias"]})
    for name in "abc":
        assert (tmp_path / name / ".metadata").exists()
    metadata = lmc.Reader(tmp_path / "b").read_metadata()
    chunks = metadata.state_dict_metadata["model.0.weight"].chunks
    assert len(chunks) == 3
    for name, base in (("b", "a"), ("c", "b")):  # deltas across numbers of ranks
        data = item(tmp_path / name, "model.0.weight")
        with lmc_codec.open(data) as r:
            assert r.base_fingerprint is not None and f"../{base}".encode() in r.metadata["dcp"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_base_is_not_overwritten(tmp_path, state, n):
    """A base is not overwritten by a delta against it, nor by one further up the chain. Checked before any file is
    opened."""
    save(state, tmp_path / "0")
    for i in range(1, n):
        save(step(state), tmp_path / str(i), base=tmp_path / str(i - 1))
    before = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    (tmp_path / "link").symlink_to("0")
    for target in ("0", "link"):
        with pytest.raises(BaseException, match="a delta of itself" if n == 1 else "both would be lost"):
            save(step(state), tmp_path / target, base=tmp_path / str(n - 1))
        with pytest.raises(ValueError, match="a delta of itself" if n == 1 else "both would be lost"):
            lmc.SaveTransforms(tmp_path / target, base=tmp_path / str(n - 1))  # for other writers, which do not ask
    lmc.SaveTransforms(tmp_path / "another", base=tmp_path / str(n - 1))
    assert {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file() and "link" not in x.parts} == before
    check(lmc.Reader(tmp_path / "0"), state)
    save(state, tmp_path / "0")  # a save without a base may replace what is there
    save(step(state), tmp_path / "new", base=tmp_path / "0")
    save(state, tmp_path / "new", base=tmp_path / "0")
    check(lmc.Reader(tmp_path / "new"), state)
