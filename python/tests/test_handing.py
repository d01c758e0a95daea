"""Arguments of a wrong kind, and objects that are passed to another process."""

import io
import os
import pickle
import subprocess
import sys

import lmc_codec as lmc
import numpy as np
import pytest
import torch
from conftest import same

pytest.importorskip("safetensors")


@pytest.fixture
def files(tmp_path, weights, monkeypatch):
    """a.lmc and b.lmc, a delta of it."""
    monkeypatch.chdir(tmp_path)
    lmc.numpy.save_file({"w": weights}, "a.lmc")
    lmc.numpy.save_file({"w": weights[::-1].copy()}, "b.lmc", base="a.lmc")
    return tmp_path


# -- processes --


TAKE = """
import pickle, sys
reader, part, f = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(reader["w"].tobytes() + part[3:5].tobytes() + f.get_tensor("w").tobytes())
"""


def test_pickled_readers(files, weights):
    """Readers are opened again by absolute paths, for example in spawned workers."""
    with lmc.open("b.lmc", base=lmc.open("a.lmc"), threads=1) as r, lmc.safe_open("b.lmc", "np", base="a.lmc") as f:
        pickled = pickle.dumps((r, r.get_slice("w"), f))
    want = weights[::-1]
    done = subprocess.run([sys.executable, "-c", TAKE], input=pickled, capture_output=True, check=True, cwd="/")
    assert done.stdout == want.tobytes() + want[3:5].tobytes() + want.tobytes()


def test_what_is_not_pickled(files, weights):
    data = (files / "a.lmc").read_bytes()
    with open("a.lmc", "rb") as file:
        for source in (data, io.BytesIO(data), file):
            with lmc.open(source) as r, pytest.raises(TypeError, match="file object: open it where it is used"):
                pickle.dumps(r.get_slice("w"))
    for base in ({"w": weights}, lmc.Base({"w": weights})):
        with lmc.open("b.lmc", base=base) as r, pytest.raises(TypeError, match="its base is in memory: open it"):
            pickle.dumps(r)
    with pytest.raises(TypeError, match="make it where it is used"):
        pickle.dumps(lmc.Base({"w": weights}))
    lmc.numpy.save_file({"w": weights}, "c.lmc")
    pickled = pickle.dumps(lmc.open("c.lmc"))
    lmc.numpy.save_file({"w": weights[:5]}, "c.lmc")
    with pytest.raises(lmc.ReadError, match="c.lmc: it is another file"):
        pickle.loads(pickled)
    import safetensors.numpy

    safetensors.numpy.save_file({"a": np.arange(3)}, "a.safetensors")
    with lmc.safe_open("a.safetensors", "np") as f, pytest.raises(TypeError, match="open it where it is used"):
        pickle.dumps(f)


def test_pickled_errors():
    for kind in (lmc.LMCError, lmc.ReadError, lmc.NotFoundError, lmc.TruncatedError):
        back = pickle.loads(pickle.dumps(kind("what")))
        assert type(back) is kind and str(back) == "what"


# -- safetensors' error --

CATCH = """
import sys
import lmc_codec, lmc_codec.numpy
assert "safetensors" not in sys.modules
try:
    lmc_codec.open(b"not LMC")
except lmc_codec.NotLMCError:
    pass
import safetensors
for kind in (lmc_codec.ChecksumError, lmc_codec.NotFoundError, lmc_codec.ReadError):
    try:
        raise kind("x")
    except safetensors.SafetensorError as error:
        assert isinstance(error, lmc_codec.LMCError) and str(error) == "x"
try:
    with lmc_codec.safe_open({path!r}, "np") as f:
        f.get_tensor("nothing")
except safetensors.SafetensorError as error:
    assert "nothing" in str(error) and isinstance(error, KeyError)
try:
    lmc_codec.numpy.load(b"no LMC file at all")
except safetensors.SafetensorError as error:
    print(type(error).__name__)
"""


def test_code_that_catches_the_error_of_safetensors(files):
    """safetensors is not imported for this: a program that catches its errors has imported it."""
    done = subprocess.run(
        [sys.executable, "-c", CATCH.format(path=str(files / "a.lmc"))], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("NotLMCError\n", "")


# -- sources --


def test_data_is_no_name(files, weights):
    data = (files / "a.lmc").read_bytes()
    for function in (lmc.numpy.load, lmc.torch.load):
        for wrong in ("a.lmc", files / "a.lmc", "http://127.0.0.1:1/a.lmc", io.BytesIO(data)):
            with pytest.raises(TypeError, match="takes bytes, not .* takes paths, URLs and files"):
                function(wrong)
    for kind in (bytes, bytearray, memoryview):
        assert same(lmc.numpy.load(kind(data))["w"], weights)
        assert torch.equal(lmc.torch.load(kind(data))["w"].view(torch.int16), torch.from_numpy(weights.view(np.int16)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes(files):
    """Opening a pipe does not block."""
    os.mkfifo("pipe")
    said = "cannot seek, .* read it to its end, and give the bytes"
    with pytest.raises(OSError, match=f"pipe {said}"):
        lmc.open("pipe")
    ends = os.pipe()
    with os.fdopen(ends[1], "wb"), os.fdopen(ends[0], "rb") as file:
        for source in (file, file.raw):
            with pytest.raises(OSError, match=said):
                lmc.open(source)


def test_urls_are_not_written(files, weights):
    for url in ("memory://x/a.lmc", "http://127.0.0.1:1/a.lmc"):
        for write in (lmc.numpy.save_file, lambda tensors, path: lmc.Writer(path)):
            with pytest.raises(ValueError, match=f"{url}: URLs are not written: .* file object"):
                write({"w": weights}, url)


def test_urls_of_fsspec_name_themselves():
    pytest.importorskip("fsspec")
    with pytest.raises(FileNotFoundError, match="memory://nothing/here.lmc"):
        lmc.open("memory://nothing/here.lmc")
