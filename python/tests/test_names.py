"""Names and files that cannot be added are refused at once, with the reason."""

import io

import lmc_codec as lmc
import numpy as np
import pytest
from lmc_codec.numpy import save, save_file

A = np.ones(3)


def begin():
    return lmc.Writer(io.BytesIO())


def finished():
    w = begin()
    w.add("a", A)
    w.finish()
    return w


@pytest.mark.parametrize("path", ["../x", "/abs", ".", "a//b", "a/", "x" * 65536])
def test_paths(path):
    w = begin()
    with pytest.raises(lmc.ArgumentError, match="at most 65535|relative") as error:
        w.add_bytes(path, b"1")
    assert error.value.status_name == "LMC_ERR_ARGUMENT"
    w.add_bytes("x/y", b"1")
    w.add_bytes("a\\b", b"1")  # a name on most systems
    w.finish()


def test_names():
    w = begin()
    with pytest.raises(lmc.ArgumentError, match="65536 bytes"):
        w.add("n" * 65536, A)
    with pytest.raises(lmc.ArgumentError, match="zero byte"):
        w.add("a\0b", A)
    for call in (lambda: w.add(None, A), lambda: save({1: A}), lambda: w.add_arrays({None: A})):
        with pytest.raises(TypeError, match="a name must be a string"):
            call()
    w.add("a", A)
    with pytest.raises(ValueError, match="'a' already"):
        w.add("a", A)
    w.add_arrays({"a": A}, "other.safetensors")  # in different files it is allowed
    w.finish()


def test_metadata():
    w = begin()
    w.add_metadata("a", "1")
    for key, said in (("a", "already"), ("", "empty"), ("lmc.x", "the format's")):
        with pytest.raises(lmc.ArgumentError, match=said):
            w.add_metadata(key, "v")
    with pytest.raises(TypeError, match="'metadata'.*list"):
        save({"a": A}, metadata=["x"])


def test_order(tmp_path):
    for call in (lambda w: w.add("b", A), lambda w: w.finish(), lambda w: w.add_metadata("k", "v")):
        with pytest.raises(lmc.ArgumentError, match="is finished"):
            call(finished())
    with pytest.raises(lmc.ArgumentError, match="nothing was added"):
        begin().finish()
    save_file({"a": A}, tmp_path / "a.lmc")
    w, r = begin(), lmc.open(tmp_path / "a.lmc")
    w.copy_from(r)
    with pytest.raises(ValueError, match="two files would be ''"):
        w.copy_from(r)


def test_arguments(tmp_path):
    with pytest.raises(TypeError, match="not NoneType"):
        lmc.Writer(None)
    save_file({"a": A}, tmp_path / "a.lmc")
    with pytest.raises(ValueError, match="'tf' is none of"):
        lmc.open(tmp_path / "a.lmc", framework="tf")
