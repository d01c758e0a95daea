"""base="auto": the bases of a chain of deltas are found in its directory by fingerprint, whichever program wrote them."""

import io
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import lmc_codec as lmc
import numpy as np
import pytest
import safetensors.numpy
from conftest import same
from lmc_codec import _reader
from lmc_codec.numpy import load_file, save_file
from test_far import arrays, server  # noqa: F401


def run_command(*arguments, cwd):
    said = subprocess.run([sys.executable, "-m", "lmc_codec", *arguments], cwd=cwd, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said.stdout


def steps(n):
    rng = np.random.default_rng(5)
    w = rng.standard_normal((200, 300), np.float32)
    for _ in range(n):
        yield {"w": w.copy(), "b": w[0] * 2}
        w[rng.integers(0, 200, 9)] += 1e-3


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """Makes w0.lmc to w4.lmc; returns their content."""
    monkeypatch.chdir(tmp_path)
    return make(5)


def make(n):
    made = list(steps(n))
    base = None
    for i, arrays in enumerate(made):
        save_file(arrays, f"w{i}.lmc", base=base)
        base = lmc.open(f"w{i}.lmc", base=base)
    return made


def check(path, arrays, **options):
    found = load_file(path, base="auto", **options)
    assert found.keys() == arrays.keys() and all(same(a, arrays[name]) for name, a in found.items())


def test_of_20(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make(21)
    check("w20.lmc", made[20])
    check(tmp_path / "w20.lmc", made[20])
    check("w0.lmc", made[0])  # it needs no base
    with lmc.open("w7.lmc", base="auto") as r:
        assert same(r.get_slice("w")[5:9], made[7]["w"][5:9])
        again = pickle.loads(pickle.dumps(r))  # it finds its base in the same way
        assert same(again["b"], made[7]["b"])
        again.close()
    with lmc.safe_open("w20.lmc", "np", base="auto") as f:
        assert same(f.get_tensor("w"), made[20]["w"])
    with lmc.Writer("next.lmc", base=lmc.open("w20.lmc", base="auto")) as w:
        w.add_arrays(made[3], "")
    check("next.lmc", made[3])
    with pytest.raises(ValueError, match="w3.lmc is the base, or what the base needs"):
        lmc.Writer("w3.lmc", base=lmc.open("w20.lmc", base="auto"))


def test_of_a_base(tmp_path, monkeypatch):
    """A base that is a delta itself, as a path, a URL or a Reader: its own bases are found beside it."""
    monkeypatch.chdir(tmp_path)
    made = list(steps(5))
    for i, arrays in enumerate(made):
        save_file(arrays, f"w{i}.lmc", base=f"w{i - 1}.lmc" if i else None)
    for base in ("w3.lmc", tmp_path / "w3.lmc", lmc.open("w3.lmc"), lmc.open("w3.lmc", base="auto")):
        found = load_file("w4.lmc", base=base)
        assert all(same(found[name], a) for name, a in made[4].items())
    assert lmc.verify("w4.lmc", base="w3.lmc").is_complete
    with lmc.safe_open("w4.lmc", "np", base="w3.lmc") as f:
        assert same(f.get_slice("w")[5:9], made[4]["w"][5:9])
    assert lmc.open("w4.lmc").metadata["lmc.base"] == b"w3.lmc"
    again = pickle.loads(pickle.dumps(lmc.open("w4.lmc", base="w3.lmc")))
    assert same(again["b"], made[4]["b"])
    with pytest.raises(ValueError, match="w0.lmc is the base, or what the base needs"):
        save_file(made[0], "w0.lmc", base="w3.lmc")
    with fsspec.open("memory://beside/w0.lmc", "wb") as a, fsspec.open("memory://beside/w1.lmc", "wb") as b:
        a.write(Path("w0.lmc").read_bytes())
        b.write(Path("w1.lmc").read_bytes())
    assert same(load_file("w2.lmc", base="memory://beside/w1.lmc")["w"], made[2]["w"])
    was = lmc.open("w3.lmc")
    shutil.copy("w1.lmc", "w3.lmc.new")
    os.replace("w3.lmc.new", "w3.lmc")
    with pytest.raises(lmc.ReadError, match="another file"):  # another file now has the name of the one that was opened
        load_file("w4.lmc", base=was)
    os.remove("w0.lmc")
    with pytest.raises(lmc.MissingBaseError, match=r"^w2.lmc is given as the base, .* is missing: .*w1.lmc: needs the base [0-9a-f]{16} \(named 'w0.lmc'"):
        save_file(made[4], "x.lmc", base="w2.lmc")
    assert not os.path.exists("x.lmc")


def test_each_is_opened_once(chain, server, monkeypatch):  # noqa: F811
    """Each file of a chain is opened once, wherever the bases are."""
    opened = []

    def open_source(where, *more, true=_reader.open_source):
        opened.append(os.path.basename(where))
        return true(where, *more)

    monkeypatch.setattr(_reader, "open_source", open_source)
    for i in range(5):
        server.files[f"/w{i}.lmc"] = Path(f"w{i}.lmc").read_bytes()
    for place in "", server.url + "/":
        for base in "auto", place + "w3.lmc":
            opened.clear(), server.requests.clear()
            with lmc.open(place + "w4.lmc", base=base) as r:
                assert sorted(opened) == [f"w{i}.lmc" for i in range(5)]
                assert server.requests == (["bytes=-65536"] * 5 if place else [])
                assert same(r["w"], chain[4]["w"])
    opened.clear()
    check("w0.lmc", chain[0])  # it needs no base
    assert opened == ["w0.lmc"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc/self/fd")
def test_nothing_stays_open(chain):
    def count():
        found = map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(x).startswith(os.getcwd() + os.sep) for x in found)

    with lmc.open("w4.lmc", base="auto") as r:
        assert count() == 5
    del r
    assert count() == 0
    os.remove("w1.lmc")
    for open_it in (lambda: lmc.open("w4.lmc", base="auto"), lambda: lmc.open("w4.lmc", base="w3.lmc")):
        with pytest.raises(lmc.MissingBaseError) as caught:
            open_it()
        assert count() == 0 and caught.value


def test_long_chains(tmp_path, monkeypatch):
    """A chain of twice the length takes twice the work. Calls are counted, because seconds vary."""
    monkeypatch.chdir(tmp_path)
    base, n_calls = None, []
    for i in range(201):
        save_file({"w": np.full(64, i, np.float32)}, f"w{i:03}.lmc", base=base)
        base = lmc.open(f"w{i:03}.lmc", base=base)
        if i in (100, 200):
            seen = []
            sys.setprofile(lambda frame, event, argument, seen=seen: seen.append(1))
            try:
                found = load_file(f"w{i:03}.lmc", base="auto")
            finally:
                sys.setprofile(None)
            assert found["w"][0] == i
            n_calls.append(len(seen))
    assert n_calls[1] < 2.1 * n_calls[0]


def test_moved_and_renamed(chain, tmp_path):
    """Names are hints: fingerprints count."""
    (tmp_path / "there").mkdir()
    for i, name in enumerate(("x", "y", "z")):
        os.rename(f"w{i}.lmc", f"there/{name}.lmc")
    check("there/z.lmc", chain[2])
    os.rename("there/x.lmc", "there/w0.lmc.bak")
    with pytest.raises(lmc.MissingBaseError, match=r"there/y.lmc: needs the base [0-9a-f]{16} \(named 'w0.lmc' when this delta was made\)"):
        load_file("there/z.lmc", base="auto")


def test_other_endings(tmp_path, monkeypatch):
    """The base is found by its name in the delta's metadata."""
    monkeypatch.chdir(tmp_path)
    made = list(steps(3))
    save_file(made[0], "a.bin")
    save_file(made[1], "b.bin", base="a.bin")
    save_file(made[2], "c.bin", base=lmc.open("b.bin", base="a.bin"))
    check("c.bin", made[2])
    assert lmc.open("c.bin").metadata["lmc.base"] == b"b.bin"


def test_missing_link(chain):
    os.remove("w2.lmc")
    with pytest.raises(lmc.MissingBaseError, match=r"w3.lmc: needs the base .* \(named 'w2.lmc' .*\), which is not beside it, only .*w0.lmc \([0-9a-f]{16}\)"):
        load_file("w4.lmc", base="auto")
    check("w1.lmc", chain[1])


def test_wrong_file_of_that_name(chain):
    other = {"w": chain[1]["w"] + 1, "b": chain[1]["b"]}
    save_file(other, "w1.lmc")
    with pytest.raises(lmc.MissingBaseError, match=r"w2.lmc: needs .*\(named 'w1.lmc'.* only .*w1.lmc \("):
        load_file("w4.lmc", base="auto")
    save_file(chain[1], "copy-of-1.lmc")  # a whole one: the shorter chain
    check("w4.lmc", chain[4])


def test_a_name_that_two_deltas_tell(tmp_path, monkeypatch):
    """A file without .lmc is read once, because the delta names it."""
    monkeypatch.chdir(tmp_path)
    made = list(steps(3))
    for directory in "first", "second":
        os.mkdir(directory)
    save_file(made[0], "first/x.bin")
    save_file(made[1], "d1.lmc", base="first/x.bin")
    shutil.copy("d1.lmc", "second/x.bin")
    save_file(made[2], "d2.lmc", base=lmc.open("second/x.bin", base="first/x.bin"))
    assert lmc.open("d1.lmc").metadata == lmc.open("d2.lmc").metadata == {"lmc.base": b"x.bin"}
    save_file(made[2], "x.bin")
    with pytest.raises(lmc.MissingBaseError, match=r"d1.lmc: needs the base .*, only x.bin \([0-9a-f]{16}\), d2.lmc \([0-9a-f]{16}\); give"):
        load_file("d2.lmc", base="auto")


def test_ends_that_lie(chain):
    """A fingerprint in another file's index is only a hint, and is checked."""
    data = bytearray(Path("w1.lmc").read_bytes())
    at = int.from_bytes(data[-40:-32], "little") + 84
    with lmc.open("w2.lmc") as r:
        wanted = r.base_fingerprint
    assert data[at : at + 16] == wanted
    os.rename("w1.lmc", "kept")
    fake = bytearray(lmc.numpy.save({"w": chain[1]["w"] + 1, "b": chain[1]["b"]}))
    at = int.from_bytes(fake[-40:-32], "little") + 84
    fake[at : at + 16] = wanted
    Path("w1.lmc").write_bytes(fake)
    with pytest.raises(lmc.LMCError):
        load_file("w2.lmc", base="auto")
    for content in (b"", b"LMC", bytes(200), fake[:-1], fake[:64] + b"\xff" * 32 + fake[-8:]):
        Path("w1.lmc").write_bytes(content)
        with pytest.raises(lmc.MissingBaseError):
            load_file("w2.lmc", base="auto")
    os.remove("w1.lmc")
    os.mkfifo("w1.lmc")
    with pytest.raises(lmc.MissingBaseError):
        load_file("w2.lmc", base="auto")
    os.rename("kept", "found.lmc")
    check("w2.lmc", chain[2])


def test_loops(chain):
    """A delta that has the fingerprint of its own base, while the base is missing."""
    same_again = lmc.open("w1.lmc", base="w0.lmc")
    save_file(chain[1], "same.lmc", base=same_again)  # nothing has changed, so it has the fingerprint of its base
    assert lmc.open("same.lmc").fingerprint == lmc.open("same.lmc").base_fingerprint
    check("same.lmc", chain[1])
    shutil.copy("same.lmc", "copy.lmc")
    os.remove("w1.lmc")
    with pytest.raises(lmc.MissingBaseError, match="(same|copy).lmc: needs the base"):
        load_file("same.lmc", base="auto")


def test_back_to_a_raw_file(tmp_path, monkeypatch):
    """A later delta with the raw file's content needs that file itself: the raw file is taken as the base, as in the
    command."""
    monkeypatch.chdir(tmp_path)
    first, second = steps(2)
    safetensors.numpy.save_file(first, "m.safetensors")
    save_file(second, "1.lmc", base="m.safetensors")
    save_file(first, "2.lmc", base="1.lmc")
    check("1.lmc", second)
    check("2.lmc", first)
    run_command("-t", "1.lmc", "2.lmc", cwd=tmp_path)


def test_raw_files_and_the_command(tmp_path, monkeypatch):
    """Python and the command find each other's bases."""
    monkeypatch.chdir(tmp_path)
    made = list(steps(4))
    for i in range(3):
        safetensors.numpy.save_file(made[i], f"m{i}.safetensors")
    run_command("m0.safetensors", cwd=tmp_path)
    run_command("--base", "m0.safetensors", "m1.safetensors", cwd=tmp_path)
    run_command("--base", "m1.safetensors.lmc", "m2.safetensors", cwd=tmp_path)
    check("m2.safetensors.lmc", made[2])
    os.remove("m0.safetensors.lmc")
    check("m2.safetensors.lmc", made[2])  # the base is found as the raw file
    os.remove("m0.safetensors")
    with pytest.raises(lmc.MissingBaseError, match="m1.safetensors.lmc: needs the base .*named 'm0.safetensors'"):
        load_file("m2.safetensors.lmc", base="auto")
    save_file(made[3], "p.lmc", base="m2.safetensors")  # Python's, of the raw file
    assert lmc.open("p.lmc").metadata["lmc.base"] == b"m2.safetensors"
    os.remove("m2.safetensors.lmc")
    run_command("-t", "p.lmc", cwd=tmp_path)  # the command finds it by the name
    safetensors.numpy.save_file(made[1], "m2.safetensors")
    with pytest.raises(lmc.MissingBaseError, match="only .*m2.safetensors"):
        load_file("p.lmc", base="auto")


def test_the_command_shortens_it(chain, tmp_path):
    run_command("fold", "--base", "w0.lmc", "w1.lmc", "w2.lmc", "w3.lmc", "-o", "folded.lmc", cwd=tmp_path)
    run_command("rebase", "--base", "w0.lmc", "--onto", "none", "folded.lmc", "-o", "whole.lmc", cwd=tmp_path)
    assert all(same(a, chain[3][name]) for name, a in load_file("whole.lmc").items())
    for i in range(4):
        os.remove(f"w{i}.lmc")
    check("w4.lmc", chain[4])  # its base has a new name, and needs no base


def test_the_shortest_chain(chain):
    """Of several bases with the same fingerprint, the one with the shortest complete chain is taken."""
    save_file(chain[3], "z.lmc")
    with lmc.open("w4.lmc", base="auto"):
        shutil.move("w0.lmc", "hidden")
    check("w4.lmc", chain[4])
    shutil.move("hidden", "w0.lmc")
    os.remove("z.lmc")
    check("w4.lmc", chain[4])


def test_what_is_recorded(chain, tmp_path):
    """A name without its directory, if the base has one: not of arrays, nor of bytes."""
    data = Path("w0.lmc").read_bytes()
    for base, name in (
        (str(tmp_path / "w0.lmc"), b"w0.lmc"), (tmp_path / "w0.lmc", b"w0.lmc"), (lmc.open("w0.lmc"), b"w0.lmc"),
        (lmc.open(data), None), (chain[0], None), (lmc.Base(chain[0]), None),
    ):  # fmt: skip
        with lmc.open(bytes(lmc.numpy.save(chain[1], base=base))) as r:
            assert r.metadata.get("lmc.base") == name and r.base_fingerprint == lmc.open("w0.lmc").fingerprint
    for evil in ("../w0.lmc", "/etc/passwd", "..", ".", "a\0b", "x/y"):
        with lmc.Writer("evil.lmc", base=lmc.open(data)) as w:
            w.add_arrays(chain[1], "")
            w._object.add_metadata("lmc.base", evil.encode())
        os.rename("w0.lmc", "hidden")
        os.makedirs("empty", exist_ok=True)
        os.rename("evil.lmc", "empty/evil.lmc")
        with pytest.raises(lmc.MissingBaseError, match="empty/evil.lmc: needs the base"):
            load_file("empty/evil.lmc", base="auto")
        os.rename("hidden", "w0.lmc")


def test_what_it_is_not_for(chain):
    with pytest.raises(ValueError, match="give its path or URL"):
        lmc.open(Path("w1.lmc").read_bytes(), base="auto")
    with open("w1.lmc", "rb") as file, pytest.raises(ValueError, match="give its path or URL"):
        lmc.open(file, base="auto")
    with pytest.raises(ValueError, match="base='auto' is for reading"):
        lmc.Writer("x.lmc", base="auto")
    with pytest.raises(lmc.MissingBaseError, match="base='auto'"):
        load_file("w1.lmc")
    with pytest.raises(lmc.MissingBaseError, match=r"is missing: give base=lmc_codec.open\(\.\.\., base=\.\.\.\)"):
        lmc.Writer("x.lmc", base=lmc.open(Path("w1.lmc").read_bytes()))
    assert not os.path.exists("x.lmc")
    shutil.copy("w0.lmc", "auto")
    assert same(load_file("w1.lmc", base="./auto")["w"], chain[1]["w"])
    with pytest.raises(lmc.LimitError):
        lmc.open("w1.lmc", base="auto", max_index_size=10)


def test_urls(chain, server):  # noqa: F811
    """The base's URL is its name in the same directory. Nothing else is requested, and no other server gets the headers."""
    server.files.clear()
    for i in range(5):
        server.files[f"/a%20b/w{i}.lmc"] = Path(f"w{i}.lmc").read_bytes()
    url = f"{server.url}/a%20b/w4.lmc"
    check(url, chain[4], storage_options={"Authorization": "Bearer x"})
    assert set(server.tokens) == {"Bearer x"}
    del server.files["/a%20b/w2.lmc"]
    with pytest.raises(lmc.MissingBaseError, match=r"w3.lmc: needs the base .*named 'w2.lmc'.*, which is not beside it: http.*w2.lmc: HTTP 404"):
        load_file(url, base="auto")
    server.files["/a%20b/w2.lmc"] = server.files["/a%20b/w1.lmc"]
    with pytest.raises(lmc.MissingBaseError, match=r"w3.lmc: needs the base .*, only http.*w2.lmc \([0-9a-f]{16}\)"):
        load_file(url, base="auto")
    for i in range(3):
        with fsspec.open(f"memory://chain/w{i}.lmc", "wb") as file:
            file.write(Path(f"w{i}.lmc").read_bytes())
    check("memory://chain/w2.lmc", chain[2])


def test_safetensors_bases_elsewhere(chain, server):  # noqa: F811
    """A safetensors file is a base from wherever it is read: a path, a URL, fsspec, a file object, bytes."""
    X = chain[0]["w"]
    safetensors.numpy.save_file({"w": X, "b": X[:9]}, "model.safetensors")
    save_file({"w": X + 1, "b": X[:9]}, "d1.lmc", base="model.safetensors")
    plain = Path("model.safetensors").read_bytes()
    server.files.clear()
    server.files.update({"/d1.lmc": Path("d1.lmc").read_bytes(), "/model.safetensors": plain, "/other.safetensors": plain[:-1]})
    with fsspec.open("memory://x/model.safetensors", "wb") as file:
        file.write(plain)
    url = f"{server.url}/d1.lmc"
    with open("model.safetensors", "rb") as file:
        for base in (f"{server.url}/model.safetensors", "memory://x/model.safetensors", file, io.BytesIO(plain), plain, "auto"):
            assert np.array_equal(load_file(url, base=base)["w"], X + 1)
            with lmc.safe_open(url, "np", base=base) as f:
                assert np.array_equal(f.get_tensor("w"), X + 1)
    with pytest.raises(lmc.CorruptError, match=f"{server.url}/other.safetensors is damaged, or no safetensors file"):
        load_file(url, base=f"{server.url}/other.safetensors")
    save_file({"w": X + 2}, "d2.lmc", base=f"{server.url}/model.safetensors")
    assert np.array_equal(load_file("d2.lmc", base="auto")["w"], X + 2)
