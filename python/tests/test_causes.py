"""Errors name their cause: which file, which argument, what to do. Also tests what may happen meanwhile: a fork, another
working directory, a killed writer."""

import gc
import io
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time

import lmc_codec as lmc
import numpy as np
import pytest
from lmc_codec import _chunks, _errors, _reader

X = np.random.default_rng(1).standard_normal(60_000).astype(np.float32)
Y, Z = X + (np.arange(60_000) % 50 == 0), X + (np.arange(60_000) % 20 == 0)


def write(path, array=X, **options):
    with lmc.Writer(path, **options) as w:
        w.add("w", array)
    return path


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# -- which file is damaged --


def test_a_damaged_base_is_named(place):
    write("b0.lmc")
    write("b1.lmc", Y, base="b0.lmc")
    write("b2.lmc", Z, base=lmc.open("b1.lmc", base="b0.lmc"))
    flip(place / "b0.lmc")
    for r, name in (
        (lmc.open("b1.lmc", base="b0.lmc"), "b1.lmc"),
        (lmc.open("b2.lmc", base=lmc.open("b1.lmc", base="b0.lmc", threads=1), threads=2), "b2.lmc"),
    ):
        with pytest.raises(lmc.ChecksumError, match=f"^b0.lmc: read as the base of {name}, tensor 'w': corrupt"):
            r.get("w")
    with pytest.raises(lmc.ChecksumError, match="^b0.lmc: read as the base of c.lmc"):
        write("c.lmc", Y, base="b0.lmc")
    with pytest.raises(lmc.ChecksumError, match="^the base: read as the base of b1.lmc"):
        lmc.open("b1.lmc", base=lmc.open((place / "b0.lmc").read_bytes())).get("w")
    with pytest.raises(lmc.ChecksumError, match="^b0.lmc: corrupt"), lmc.Writer("c.lmc") as w:
        w.copy_from(lmc.open("b0.lmc"))
    write("a.lmc", Y)
    with pytest.raises(lmc.ChecksumError, match="^b0.lmc: read as the base of c.lmc"), lmc.Writer("c.lmc", base="b0.lmc") as w:
        w.copy_from(lmc.open("a.lmc"))
    b1 = lmc.open("b1.lmc", base="b0.lmc")
    with pytest.raises(lmc.ChecksumError, match="^b0.lmc: read as the base of b1.lmc"), lmc.Writer("c.lmc", base="a.lmc") as w:
        w.copy_from(b1)
    flip(place / "b0.lmc")
    flip(place / "b1.lmc")
    with pytest.raises(lmc.CorruptError, match="^b1.lmc: tensor 'w'"):
        lmc.open("b1.lmc", base="b0.lmc").get("w")


def test_readers_that_share_a_base(place):
    write("a.lmc")
    write("b.lmc", Y, base="a.lmc")
    a = lmc.open("a.lmc", threads=1)
    b = lmc.open("b.lmc", base=a, threads=2)
    write("c.lmc", Z, base=b)
    write("d.lmc", Z, base=a)
    wanted = [(b, Y), (lmc.open("c.lmc", base=b, threads=2), Z), (lmc.open("d.lmc", base=a), Z), (a, X)]
    b.close()  # its users still work
    wrong = []

    def read(r, array):
        wrong.extend(i for i in range(10) if r.get("w").tobytes() != array.tobytes())

    threads = [threading.Thread(target=read, args=x) for x in wanted[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with lmc.Writer("e.lmc", base=a) as w:  # reads one of a chain, and writes against another one
        w.copy_from(wanted[1][0])
    assert lmc.open("e.lmc", base="a.lmc").get("w").tobytes() == Z.tobytes()


def test_a_file_that_was_cut(place):
    write("a.lmc")
    write("b.lmc", Y, base="a.lmc")
    a, b = lmc.open("a.lmc"), lmc.open("b.lmc", base="a.lmc")
    size = os.path.getsize("a.lmc")
    os.truncate("a.lmc", 50_000)
    with pytest.raises(lmc.ReadError, match=f"^a.lmc: tensor 'w': .*had {size} bytes when it was opened, and now has 50000"):
        a.get("w")
    with pytest.raises(lmc.ReadError, match="^a.lmc: read as the base of b.lmc.*now has 50000"):
        b.get("w")


def test_wrong_bases_and_limits(place):
    write("a.lmc")
    write("b.lmc", Y, base="a.lmc")
    write("c.lmc", Z)
    a, c = lmc.open("a.lmc").fingerprint.hex()[:16], lmc.open("c.lmc").fingerprint.hex()[:16]
    for base in ("c.lmc", lmc.open("c.lmc")):
        with pytest.raises(lmc.WrongBaseError, match=rf"^b.lmc: wrong base.*is of {a}\.\.\., and c.lmc is {c}\.\.\."):
            lmc.open("b.lmc", base=base)
    with pytest.raises(lmc.WrongBaseError, match=f"is of {a}.*the base given is {lmc.Base({'w': Z}).fingerprint.hex()[:16]}") as error:
        lmc.open(io.BytesIO((place / "b.lmc").read_bytes()), base={"w": Z})
    assert error.value.status == 31
    with pytest.raises(lmc.WrongBaseError, match="is of .* the base given is"):
        lmc.decompress(lmc.compress(X, Y), Z)
    size = sum(x.size for x in lmc.open("a.lmc").files)
    gc.collect()  # frees what earlier errors hold
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(lmc.LimitError, match=f"^a.lmc.*max_total_size is 100, and its files have {size} bytes"):
        lmc.open("a.lmc", max_total_size=100)
    with pytest.raises(lmc.LimitError, match="^a.lmc.*max_index_size is 10,"):
        lmc.open("a.lmc", max_index_size=10)
    with pytest.raises(lmc.LimitError, match="^a.lmc.*max_index_size is 10, max_total_size 100$"):
        lmc.open("a.lmc", max_index_size=10, max_total_size=100)
    assert not before or len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(lmc.TruncatedError, match="the chunk is empty"):
        _chunks.decode(b"", max_size=4)
    with pytest.raises(lmc.TruncatedError, match="the chunk is empty"):
        _chunks.decode(b"", bytearray(4))
    assert _chunks.decode(b"", bytearray(0)) == b""


@pytest.mark.parametrize("kind", [lmc.LimitError, lmc.WrongBaseError])
def test_what_is_refused_is_looked_at_once(place, monkeypatch, kind):
    """A better message must not do the work that was refused, nor end in another error."""
    write("a.lmc")
    write("b.lmc", Y, base="a.lmc")
    refuse = (
        (lambda: lmc.open("b.lmc", base={"w": Z}))
        if kind is lmc.WrongBaseError
        else (lambda: lmc.open("a.lmc", max_total_size=100))
    )
    opened = []
    real = lmc._lmc.Reader

    class Second:
        def __new__(cls, *args):
            if opened:
                raise lmc.ReadError("gone")
            opened.append(args)
            return real(*args)

    monkeypatch.setattr(_reader._lmc, "Reader", Second)
    with pytest.raises(kind, match="^[ab].lmc: "):
        refuse()
    assert opened


def test_a_limit_of_many_tensors(place):
    """Rows of tensors that were refused are not made."""
    write("a.lmc")
    file = lmc._lmc.Reader.file
    calls = []
    sys.setprofile(lambda frame, event, what: calls.append(what) if event == "c_call" else None)
    try:
        with pytest.raises(lmc.LimitError):
            lmc.open("a.lmc", max_total_size=100)
    finally:
        sys.setprofile(None)
    assert calls and not any(getattr(what, "__name__", "") == file.__name__ for what in calls)


def test_each_kind_has_its_status(place):
    for status, kind in _errors._KINDS.items():
        error = _errors.make_error(status, "LMC_ERR_X", "text", None, None)
        assert type(error) is kind and (error.status, error.status_name) == (status, "LMC_ERR_X")
        assert kind.status in _errors._KINDS and kind.status_name.startswith("LMC_ERR_")
        assert _errors._KINDS[kind.status] is kind
    w = lmc.Writer("c.lmc")
    w.abort()
    with pytest.raises(lmc.CancelledError) as error:
        w.add("w", X)
    assert (error.value.status, error.value.status_name) == (12, "LMC_ERR_CANCELLED")
    assert pickle.loads(pickle.dumps(lmc.LimitError("text"))).status == 8


# -- which argument --


@pytest.mark.parametrize("threads", ["2", 1.0, True, 0, -1, 1025, 2**31])
def test_threads(threads, tmp_path):
    path = write(tmp_path / "a.lmc")
    data, coded = lmc.compress(X), lmc.tensor_encode(X)
    kind = ValueError if type(threads) is int else TypeError
    for call in (
        lambda: lmc.compress(X, threads=threads),
        lambda: lmc.decompress(data, threads=threads),
        lambda: lmc.tensor_encode(X, threads=threads),
        lambda: lmc.tensor_decode(coded, X.copy(), threads=threads),
        lambda: lmc.open(path, threads=threads),
        lambda: lmc.Writer(io.BytesIO(), threads=threads),
        lambda: lmc.Base({"w": X}, threads=threads),
    ):
        with pytest.raises(kind, match="^threads is .* 1 to 1024"):
            call()
    assert lmc.decompress(lmc.compress(X, threads=None), threads=np.int64(2)).tobytes() == X.tobytes()


def test_arrays_of_a_base(place):
    write("a.lmc")
    for base, kind, text in (
        ({"w": X[::2]}, ValueError, "^base: array 'w': the array is not contiguous"),
        ({"w": 3}, TypeError, "^base: array 'w': neither an array"),
        ({1: X}, TypeError, "^base: the name of an array"),
    ):
        for call in (lambda base=base: lmc.Writer("b.lmc", base=base), lambda base=base: lmc.open("a.lmc", base=base)):
            with pytest.raises(kind, match=text):
                call()
    with pytest.raises(TypeError, match="^base: arrays by name are needed, not list"):
        lmc.Base([X])
    for base in (3, [X], lmc):  # a model, say, in place of its state_dict()
        for call in (lambda base=base: lmc.Writer("b.lmc", base=base), lambda base=base: lmc.open("a.lmc", base=base)):
            with pytest.raises(TypeError, match=f"^base: a path, a URL, .*, not {type(base).__name__}; or give arrays by name"):
                call()


def test_arrays_and_rules(place):
    with pytest.raises(TypeError, match="^tensors by name are needed, not ndarray"), lmc.Writer("a.lmc") as w:
        w.add_arrays(X)
    for rules in (0.01, 8, True):
        with pytest.raises(TypeError, match=f"^quantize: rules are needed, such as '\\*=auto:0.01', not {rules}$"):
            lmc.Writer("a.lmc", quantize=rules)
    assert not os.path.exists("a.lmc")


def test_out_and_data():
    small = bytearray(100)
    for call in (lambda: lmc.compress(X, out=small), lambda: lmc.tensor_encode(X, out=small)):
        with pytest.raises(lmc.OutputTooSmallError, match=rf"out has 100 bytes.*lmc_codec.bound\({X.nbytes}\) = {lmc.bound(X.nbytes)}"):
            call()
    with pytest.raises(TypeError, match="^the bytes of an LMC file are needed, not str: lmc_codec.open"):
        lmc.decompress("name")


class Sink:
    def __init__(self, answer):
        self.answer = answer

    def write(self, data):
        return self.answer

    def flush(self):
        pass

    def close(self):
        pass


class Raw(Sink, io.RawIOBase):
    pass


@pytest.mark.parametrize("answer, kind", [(0, OSError), (-1, OSError), (10**9, OSError), (1.5, TypeError), ("x", TypeError)])
def test_what_sinks_answer(answer, kind):
    with pytest.raises(kind, match=r"write\(\)"):
        write(Sink(answer))


def test_sinks_that_say_nothing():
    write(Sink(None))
    with pytest.raises(BlockingIOError, match="non-blocking"):
        write(Raw(None))


def test_a_file_is_no_directory(tmp_path):
    for paths in (("a", "a/b"), ("a", "a/b/c"), ("a/b", "a"), ("a/b/c", "a/b")):
        with pytest.raises(ValueError, match="in this snapshot|of this snapshot"), lmc.Writer(tmp_path / "x.lmc") as w:
            for path in paths:
                w.add_bytes(path, b"1")
        source = io.BytesIO()
        with lmc.Writer(source) as w:
            w.add_bytes(paths[1], b"1")
        with pytest.raises(ValueError, match="in this snapshot|of this snapshot"), lmc.Writer(tmp_path / "x.lmc") as w:
            w.add_bytes(paths[0], b"1")
            w.copy_from(lmc.open(source))
    with lmc.Writer(tmp_path / "x.lmc") as w:
        for path in ("a/b", "a/c", "ab", "a/d/e"):
            w.add_bytes(path, b"1")
    assert [x.path for x in lmc.open(tmp_path / "x.lmc").files] == ["a/b", "a/c", "ab", "a/d/e"]


def test_rules_that_do_nothing(place, recwarn):
    m, half, few = X.reshape(300, 200), X.reshape(300, 200).astype(np.float16), X[:100].reshape(10, 10)
    for rule, name, array, text in (
        ("a.w=rel:0.01", "a.w", m, "'a.w': no moment or gradient: a rule for it says role=weight"),
        ("*=auto:0.01", "b.w", m, "'b.w': weights stay exact"),
        ("*,role=weight=auto:0.01", "a.w", m, "'a.w': weights stay exact"),
        ("b=bits:8", "exp_avg", m, "no rule matches one"),
        ("*=bits:8", "exp_avg", half, "'exp_avg': only F32 and BF16"),
        ("*=bits:8", "exp_avg", few, "'exp_avg': fewer than 16,384 elements"),
    ):
        recwarn.clear()
        with lmc.Writer("q.lmc", quantize=rule) as w:
            w.add_arrays({name: array})
        assert [str(x.message).startswith("q.lmc: no tensor was quantised: ") and text in str(x.message) for x in recwarn] == [True], rule
        assert recwarn[0].filename == __file__
    recwarn.clear()
    for rule, name in (("*=bits:8", "exp_avg"), ("a.w,role=weight=rel:0.01", "a.w"), ("*=lossless", "a.w")):
        with lmc.Writer("q.lmc", quantize=rule) as w:
            w.add_arrays({name: m})
    assert not recwarn


# -- what happens meanwhile --


def test_another_directory(place):
    w = lmc.Writer("a.lmc")
    w.add("w", X)
    os.mkdir("sub")
    os.chdir("sub")
    w.finish()
    assert sorted(os.listdir(place)) == ["a.lmc", "sub"] and not os.listdir()
    with pytest.raises(ZeroDivisionError), lmc.Writer("b.lmc") as w:
        os.chdir("..")
        raise ZeroDivisionError
    assert not os.listdir("sub")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is none")
def test_what_a_killed_writer_leaves(place):
    script = "import os, lmc_codec, signal; w = lmc_codec.Writer('a.lmc'); w.add_bytes('x', b'1'); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", script])
    for left in os.listdir():  # where the file system has files without a name: nothing
        assert left.startswith(".a.lmc.") and left.endswith(".part")
    assert not (os.listdir() and has_nameless_files("."))


def has_nameless_files(directory):
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR))
    except (AttributeError, OSError):
        return False
    return True


@pytest.mark.parametrize("way", ["without a name", "a name", "no link"])
def test_new_files(place, monkeypatch, way):
    if way == "a name":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif way == "no link":

        def link(*unused, **options):
            raise OSError("none here")

        monkeypatch.setattr(os, "link", link)
    elif not has_nameless_files("."):
        pytest.skip("no files without a name here")
    (place / "a.lmc").write_bytes(b"before")
    os.chmod("a.lmc", 0o640)
    w = lmc.Writer("a.lmc")
    w.add("w", X)
    inode = os.fstat(w._file.fileno()).st_ino
    assert len(os.listdir()) == (2 if way == "a name" else 1)
    assert (place / "a.lmc").read_bytes() == b"before"
    w.finish()
    assert os.listdir() == ["a.lmc"] and stat.S_IMODE(os.stat("a.lmc").st_mode) == 0o640
    assert (os.stat("a.lmc").st_ino == inode) == (way != "no link")
    with lmc.open("a.lmc") as r:
        assert np.array_equal(r.get("w"), X)

    w = lmc.Writer("a.lmc")
    w.abort()
    assert os.listdir() == ["a.lmc"]
    os.mkdir("b.lmc.d")
    w = lmc.Writer("b.lmc")
    w.add("w", X)
    os.mkdir("b.lmc")  # which nothing replaces
    with pytest.raises(OSError):
        w.finish()
    assert sorted(os.listdir()) == ["a.lmc", "b.lmc", "b.lmc.d"]


def test_many_writers_at_once(place):
    """Writers of the same name, and of names with the same beginning: each file is complete when its writer says so."""
    script = """
import sys, lmc_codec
for i in range(60):
    for name in ("shared.lmc", "checkpoint-step-000100-of-the-run-rank-%s.lmc" % sys.argv[1]):
        with lmc_codec.Writer(name) as w:
            w.add_bytes("x", sys.argv[1].encode())
    with lmc_codec.open(name) as r:
        assert r.read("x") == sys.argv[1].encode()
"""
    children = [subprocess.Popen([sys.executable, "-c", script, str(i)]) for i in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert len(os.listdir()) == 5


class Waiting(io.BytesIO):
    """The second read waits until it is told to go on."""

    def __init__(self, data):
        super().__init__(data)
        self.is_armed, self.has_come, self.go_on = False, threading.Event(), threading.Event()

    def read(self, *size):
        if self.is_armed:
            self.has_come.set()
            self.go_on.wait(60)
        return super().read(*size)

    def write(self, data):
        self.read(0)
        return super().write(data)


def in_child(*calls):
    """The exceptions that they raise in a forked child."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # killed, if it would wait forever
        said = []
        for call in calls:
            try:
                call()
                said.append("")
            except BaseException as error:
                said.append(f"{type(error).__name__}: {error}")
        os.write(w, "\n".join(said).encode())
        os._exit(0)
    os.close(w)
    with open(r) as file:
        said = file.read().split("\n")
    assert os.waitpid(pid, 0)[1] == 0
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is none")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_fork_in_the_middle_of_a_call(tmp_path):
    base = Waiting(write(tmp_path / "a.lmc").read_bytes())
    write(tmp_path / "b.lmc", Y, base=tmp_path / "a.lmc")
    a = lmc.open(base)
    r = lmc.open(tmp_path / "b.lmc", base=a)
    unused = lmc.open(tmp_path / "a.lmc")
    sink = Waiting(b"")
    w = lmc.Writer(sink)
    base.is_armed = sink.is_armed = True
    threads = [threading.Thread(target=lambda: r.get("w")), threading.Thread(target=lambda: w.add("w", X))]
    for thread in threads:
        thread.start()
    assert base.has_come.wait(20) and sink.has_come.wait(20)
    start = time.monotonic()
    said = in_child(
        lambda: r.get("w"), lambda: r.info("w"), lambda: a.get("w"), lambda: lmc.Writer(io.BytesIO(), base=a),
        lambda: lmc.open(tmp_path / "b.lmc", base=a), lambda: w._object.end_file(), lambda: w.add("v", X),
        r.close, a.close, lambda: lmc.open(tmp_path / "b.lmc", base=tmp_path / "a.lmc").get("w"), lambda: unused.get("w"),
    )  # fmt: skip
    assert time.monotonic() - start < 10
    assert all("RuntimeError: this process was forked while" in x and "open it again" in x for x in said[:6]), said
    assert "RuntimeError: the writer belongs to process" in said[6]
    assert said[7:] == [""] * 4
    base.go_on.set()
    sink.go_on.set()
    for thread in threads:
        thread.join()
    assert r.get("w").tobytes() == Y.tobytes()
    w.finish()
    assert lmc.open(sink.getvalue()).get("w").tobytes() == X.tobytes()
