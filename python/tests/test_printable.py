"""Texts from files never reach a terminal unescaped: messages and reprs escape them readably."""

import importlib.util
import io
import os
import pathlib
import pickle
import subprocess
import warnings

import lmc_codec as lmc
import numpy as np
import pytest
from lmc_codec._lmc import printable

ROOT = pathlib.Path(__file__).parents[2]
BAD = "\x1b[31m\x9b2J\u202e\u2066\u200b\u2028\ufeff\u3164\n\udcff"


def hostile_names():
    path = ROOT / "tests/command/hostile.py"
    if not path.exists():
        pytest.skip("tests/command/hostile.py is of the clone")
    spec = importlib.util.spec_from_file_location("hostile", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.names()


def check(said):
    assert said.isprintable(), ascii(said)
    assert printable(said) == said, ascii(said)


def fails(call, *kinds):
    with pytest.raises(kinds) as error:
        call()
    assert not isinstance(error.value, UnicodeError), ascii(error.value)
    check(str(error.value))
    return str(error.value)


def test_what_is_escaped():
    assert printable(BAD) == (
        r"\x1B[31m\u{009B}2J\u{202E}\u{2066}\u{200B}\u{2028}\u{FEFF}\u{3164}\x0A\xFF"
    )
    assert printable(printable(BAD)) == printable(BAD)
    assert printable("layers.0/größe 重み") == "layers.0/größe 重み"
    assert printable("a\0\ud800") == r"a\x00\ud800" and printable(7) == "7"


def test_a_file_of_such_names(tmp_path):
    data = hostile_names()
    path = tmp_path / f"f{BAD[:12]}.lmc"
    path.write_bytes(data)
    for source in (path, data):
        with lmc.open(source) as r:
            assert len(r.files) == 1 and len(r.keys()) == 21
            for x in (r, r.files[0], *r.files[0].tensors):
                check(repr(x))
            assert r.read(r.files[0].path) == r.read() == bytes(84)
            fails(lambda: r.read(r.files[0].path, 82, 9), ValueError)
            fails(lambda: r.read(BAD), lmc.NotFoundError)
            for name in r.keys():
                x = r.info(name, file=r.files[0].path)
                assert r.info(name).offset == x.offset
                assert "framework='bytes'" in fails(lambda: r[name], TypeError)
                assert r.get(name, framework="bytes") == bytes(4)
                assert r.get_slice(name, framework="bytes")[:] == bytes(4)
                assert r.get(name, out=bytearray(4)) == bytes(4)
                fails(lambda: r.get_slice(name, framework="bytes")[1:], lmc.UnsupportedError)
                fails(lambda: r.encoded_size(name + BAD), lmc.NotFoundError)
                fails(lambda: r.content_hash(name), lmc.LMCError)
            for wrong in (lambda: r.info(3), lambda: r.info("a", file=3)):
                assert "are strings" in fails(wrong, TypeError)
            fails(lambda: lmc.Writer(io.BytesIO()).copy_from(r, [BAD]), lmc.NotFoundError)
            if source is data:
                fails(lambda: pickle.dumps(r), TypeError)


def test_the_command_shows_the_same(tmp_path):
    command = pathlib.Path(lmc.__file__).parent / "bin/lmc"
    if not command.exists():
        pytest.skip("the package has no command here")
    (tmp_path / "n.lmc").write_bytes(hostile_names())
    said = subprocess.run([command, "-l", tmp_path / "n.lmc"], stdout=subprocess.PIPE, check=True).stdout.decode()
    with lmc.open(tmp_path / "n.lmc") as r:
        for name in (*r.keys(), r.files[0].path):
            assert printable(name) in said


def test_damage(tmp_path):
    data = bytearray(hostile_names())
    at = data.index(bytes(84))
    data[at + 5] ^= 1
    path = tmp_path / f"{BAD[:12]}.lmc"
    path.write_bytes(data)
    with lmc.open(path) as r:
        fails(lambda: r.read(r.files[0].path), lmc.ChecksumError)
        for name in r.keys():
            fails(lambda: r.get(name, framework="bytes"), lmc.ChecksumError)
    path.write_bytes(data[:-9])
    fails(lambda: lmc.open(path), lmc.LMCError)
    path.write_bytes(b"no LMC file" * 9)
    fails(lambda: lmc.open(path), lmc.NotLMCError)
    fails(lambda: lmc.Writer(tmp_path / "d.lmc", base=path), lmc.LMCError, ValueError)
    fails(lambda: lmc.open(tmp_path / BAD[:12] / "no.lmc"), FileNotFoundError)
    os.mkdir(tmp_path / BAD)
    fails(lambda: lmc.open(tmp_path / BAD), IsADirectoryError)
    fails(lambda: lmc.Writer(tmp_path / BAD), IsADirectoryError)


def test_writers():
    w = lmc.Writer(io.BytesIO(), quantize=f"{BAD[:12]}*=update:0.1".replace("[", "[[]"))
    fails(lambda: w.add_bytes(f"../{BAD}", b"1"), lmc.ArgumentError)
    fails(lambda: w.add_metadata(f"lmc.{BAD}", b"1"), lmc.ArgumentError)
    fails(lambda: w.add(BAD[:12], object()), TypeError)
    w.add_bytes(BAD[:12], b"1")
    fails(lambda: w.add_bytes(BAD[:12], b"1"), ValueError)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        w.finish()
    for warning in said:
        check(str(warning.message))


def test_raised_again():
    """As PyTorch raises what failed in a worker: the class, with the traceback as its text."""
    with pytest.raises(lmc.NotFoundError) as error, lmc.open(hostile_names()) as r:
        r.info(BAD)
    for name in ("LMCError", "ReadError", "NotFoundError", "ChecksumError"):
        text = f"Caught {name} in DataLoader worker process 0.\nOriginal Traceback:\n  File {BAD[:9]}\n{name}: {error.value}\n"
        again = getattr(lmc, name)(text)
        for shown in (again, pickle.loads(pickle.dumps(again))):
            lines = str(shown).split("\n")
            assert len(lines) == 5 and lines[3] == f"{name}: {error.value}"
            for line in lines:
                check(line)
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value)
    assert str(lmc.LMCError()) == "" and str(lmc.LMCError(7)) == "7"


def test_a_worker_of_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(lmc.NotFoundError) as error:
        list(torch.utils.data.DataLoader(Missing(), num_workers=1, batch_size=None))
    lines = str(error.value).split("\n")
    assert lines[0].startswith("Caught NotFoundError in DataLoader worker") and len(lines) > 5
    for line in lines:
        check(line)
    assert sum(r"\x1b[31m" in line for line in lines) == 1


class Missing:
    def __len__(self):
        return 1

    def __getitem__(self, i):
        with lmc.open(hostile_names()) as r:
            return r.read(BAD)


def test_c():
    fails(lambda: lmc._lmc.tensor_encode(b"1", BAD[:12]), ValueError)
    row = (BAD[:12], "F32", (3,), np.zeros(1))
    assert r"\x1B" in fails(lambda: lmc._lmc.Base([row]), ValueError)
