"""Nothing is lost: the base, an old file when its writer gives up, the mode of a file."""

import errno
import gc
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading

import lmc_codec as lmc
import lmc_codec.numpy
import numpy as np
import pytest
from conftest import same


def changed(weights):
    new = weights.copy()
    new.view(np.uint16)[::9] ^= 1
    return new


@pytest.fixture
def chain(tmp_path, weights):
    """a.lmc, b.lmc made against it."""
    lmc.numpy.save_file({"w": weights}, tmp_path / "a.lmc")
    lmc.numpy.save_file({"w": changed(weights)}, tmp_path / "b.lmc", base=tmp_path / "a.lmc")
    return tmp_path


@pytest.mark.parametrize("how", ["path", "Reader", "symlink", "hard link", "chain", "safetensors", "file object"])
def test_a_base_is_not_replaced_by_its_delta(chain, weights, how):
    import safetensors.numpy

    a, b = chain / "a.lmc", chain / "b.lmc"
    target, base = a, a
    if how == "Reader":
        base = lmc.open(a)
    elif how == "symlink":
        base = chain / "link"
        base.symlink_to(a)
    elif how == "hard link":
        target = chain / "link"
        target.hardlink_to(a)
    elif how == "chain":
        base = lmc.open(b, base=a)
    elif how == "safetensors":
        target = base = chain / "m.safetensors"
        safetensors.numpy.save_file({"w": weights.view(np.uint16)}, base)
    elif how == "file object":
        target = open(a, "r+b")
    before = {x.name: x.read_bytes() for x in chain.iterdir()}
    with pytest.raises(ValueError, match="is the base|base needs"):
        with lmc.Writer(target, base=base) as w:
            w.add_arrays({"w": changed(weights)})
    if how == "file object":
        target.close()
    assert {x.name: x.read_bytes() for x in chain.iterdir()} == before


def test_a_target_that_becomes_the_base(chain, weights):
    with pytest.raises(ValueError, match="is the base"):
        with lmc.Writer(chain / "c.lmc", base=chain / "a.lmc") as w:
            w.add_arrays({"w": changed(weights)})
            os.rename(chain / "a.lmc", chain / "c.lmc")
    assert same(lmc.open(chain / "c.lmc")["w"], weights) and sorted(os.listdir(chain)) == ["b.lmc", "c.lmc"]


def test_abort_is_the_end(tmp_path, weights):
    with lmc.Writer(tmp_path / "x.lmc") as w:
        w.add("w", weights)
        w.abort()
        victim = open(tmp_path / "victim", "wb")  # gets the number that the writer's file had
        victim.write(b"precious")
        victim.flush()
        for call in (lambda: w.add("v", weights), w.finish, lambda: w.add_metadata("k", "v"), lambda: w.add_bytes("b", b"b")):
            with pytest.raises(lmc.CancelledError, match="aborted"):
                call()
        w.abort()
    victim.close()
    assert (tmp_path / "victim").read_bytes() == b"precious" and os.listdir(tmp_path) == ["victim"]
    out = io.BytesIO()
    w = lmc.Writer(out)
    w.abort()
    n = len(out.getvalue())
    with pytest.raises(lmc.CancelledError):
        w.finish()
    assert len(out.getvalue()) == n and w.fingerprint is None


def test_progress_of_several_files(tmp_path, weights):
    """The total counts what was added so far. It is None after a file of unknown size."""
    seen = []
    with lmc.Writer(tmp_path / "x.lmc", progress=lambda *x: seen.append(x)) as w:
        w.add_arrays({"w": weights}, "a")
        first = os.path.getsize(tmp_path) and max(done for done, _ in seen) if seen else 0
        w.add_bytes("b", bytes(1000))
    with lmc.open(tmp_path / "x.lmc") as r:
        sizes = [file.size for file in r.files]
        with lmc.Writer(tmp_path / "z.lmc", progress=lambda *x: seen.append(x)) as w:
            w.copy_from(r)
    assert first <= sizes[0] and {total for _, total in seen} <= {sizes[0], sum(sizes)} and seen[-1] == (sum(sizes), sum(sizes))
    seen.clear()
    with lmc.Writer(tmp_path / "y.lmc", progress=lambda *x: seen.append(x)) as w:
        w.add_file(io.BytesIO(bytes(5_000_000)), "stream")
    assert seen[-1] == (5_000_000, None)


def test_the_directory_is_synced(tmp_path, monkeypatch):
    """The directory is synced after the file has its name: else a power cut may remove it."""
    called = []
    fsync, replace = os.fsync, os.replace

    def note(fd):
        called.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", lambda *names: called.append("name") or replace(*names))
    for _ in range(2):  # a new file, and one that replaces it
        with lmc.Writer(tmp_path / "x.lmc") as w:
            w.add_bytes("a", b"1")
        assert called == ["file", "name", "directory"]
        called.clear()

    def fail(number):
        def fsync(fd):
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))  # a file system that cannot: it is not told
    with lmc.Writer(tmp_path / "y.lmc") as w:
        w.add_bytes("a", b"1")
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), lmc.Writer(tmp_path / "z.lmc") as w:
        w.add_bytes("a", b"1")
    assert sorted(os.listdir(tmp_path)) == ["x.lmc", "y.lmc", "z.lmc"]


REFUSALS = [errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP]
FAILURES = [errno.EIO, errno.ENOSPC]


@pytest.mark.parametrize("is_unnamed", [True, False])
@pytest.mark.parametrize("call", ["fchmod", "fsync", "link", "replace", "open"])
@pytest.mark.parametrize("number", REFUSALS + FAILURES, ids=errno.errorcode.get)
def test_a_file_system_that_refuses_a_call(tmp_path, monkeypatch, call, number, is_unnamed):
    """A refusal is no error, if a file can do without the call; after an error the old file is as before. Nothing else is left."""
    path = tmp_path / "m.lmc"
    lmc.numpy.save_file({"w": np.zeros(9)}, path)
    old = path.read_bytes()
    if not is_unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    whole = getattr(os, call)

    def refuse(path, *args, **options):
        if call == "open" and not (args[0] & os.O_CREAT or args[0] & getattr(os, "O_TMPFILE", 0)):
            return whole(path, *args, **options)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)
    if call in ("fchmod", "fsync") and number in REFUSALS or call == "link":
        lmc.numpy.save_file({"w": np.ones(9)}, path)
        monkeypatch.undo()
        assert (lmc.numpy.load_file(path)["w"] == 1).all()
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            lmc.numpy.save_file({"w": np.ones(9)}, path)
        monkeypatch.undo()
        assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["m.lmc"]


def test_syncs_that_are_refused_are_told(tmp_path, monkeypatch):
    from lmc_codec._new_file import NewFile, attempt, sync_directory

    new = NewFile(str(tmp_path / "x"))
    assert new.sync() and sync_directory(str(tmp_path))
    monkeypatch.setattr(os, "fsync", lambda fd: os.stat("nothing/there"))  # ENOENT: SMB says so of directories
    assert not sync_directory(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        new.sync()
    new.remove()
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="no call 'chmod'"):
        attempt("chmod", os.stat, "nothing/there")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", ["callback", "thread"])
def test_abort_of_a_call_in_progress(tmp_path, how, threads):
    victims = []

    def give_up():
        w.abort()
        victims.append(open(tmp_path / "victim", "wb"))
        victims[0].write(b"precious")
        victims[0].flush()

    begun = threading.Event()

    def progress(done, total):
        begun.set()
        if how == "callback" and not victims:
            give_up()

    w = lmc.Writer(tmp_path / "x.lmc", progress=progress, threads=threads)
    other = threading.Thread(target=lambda: (begun.wait(), give_up()))
    if how == "thread":
        other.start()
    with pytest.raises(lmc.CancelledError):
        for i in range(1000):
            w.add(f"w{i}", np.random.default_rng(1).standard_normal(1_000_000))
    if how == "thread":
        other.join()
    victims[0].close()
    assert (tmp_path / "victim").read_bytes() == b"precious" and os.listdir(tmp_path) == ["victim"]


def test_abort_by_a_target(weights):
    class Target(io.BytesIO):
        def write(self, data):
            n = super().write(data)
            if w is not None:
                w.abort()
            return n

    w = None
    target = Target()
    w = lmc.Writer(target)
    with pytest.raises(lmc.CancelledError):
        w.add("w", weights)
    n = len(target.getvalue())
    with pytest.raises(lmc.CancelledError):
        w.finish()
    assert len(target.getvalue()) == n


def test_abort_after_finish(tmp_path, weights):
    w = lmc.Writer(tmp_path / "x.lmc")
    w.add("w", weights)
    w.finish()
    w.abort()
    assert same(lmc.open(tmp_path / "x.lmc")["w"], weights)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["del", "abort", "finish", "exit"])
def test_a_fork_leaves_the_file_alone(tmp_path, weights, how):
    w = lmc.Writer(tmp_path / "x.lmc", threads=1)
    w.add("w", weights)
    child = os.fork()
    if child == 0:
        try:
            if how == "del":
                del w
                gc.collect()
            elif how == "abort":
                w.abort()
            elif how == "exit":
                w.__exit__(SystemExit, SystemExit(), None)
            else:
                w.finish()
        except RuntimeError as error:
            os._exit(7 if "belongs to process" in str(error) else 1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (7 if how == "finish" else 0)
    w.finish()
    assert same(lmc.open(tmp_path / "x.lmc")["w"], weights)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("who", ["progress", "input"])
def test_a_fork_in_a_callback(tmp_path, who):
    """A child that returns from the fork must not write to the file, which belongs to the parent."""
    data = np.random.default_rng(1).bytes(3 << 20)
    children = []

    def fork():
        if not children:
            children.append(os.fork())
            if children == [0]:
                signal.alarm(20)  # killed, if it would wait forever

    class File(io.BytesIO):
        def readinto(self, buffer):
            fork()
            return super().readinto(buffer)

    try:
        w = lmc.Writer(tmp_path / "x.lmc", threads=2, progress=(lambda *x: fork()) if who == "progress" else None)
        w.add_file(File(data), "x")
        w.finish()
    except RuntimeError as error:
        if children == [0]:
            os._exit(7 if "belongs to process" in str(error) else 1)
        raise
    finally:
        if children == [0]:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
    assert lmc.open(tmp_path / "x.lmc").read("x") == data


def test_two_copies_between_the_same_readers():
    """Each reader is the base of one writer and the source of the other."""
    file = io.BytesIO()
    with lmc.Writer(file) as w:
        for i in range(100):
            w.add_bytes(f"{i}", bytes(10))
    a, b = lmc.open(file.getvalue()), lmc.open(file.getvalue())
    done = []

    def copy(base, source):
        with lmc.Writer(io.BytesIO(), base=base) as w:
            w.copy_from(source)
        done.append(w.size > 0)

    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in ((a, b), (b, a))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert done == [True, True]


@pytest.mark.parametrize("how", ["Base", "mapping"])
def test_a_base_that_changes(tmp_path, weights, how):
    live = weights.copy()
    base = lmc.Base({"w": live}) if how == "Base" else {"w": live}
    w = lmc.Writer(tmp_path / "x.lmc", base=base)
    live.view(np.uint16)[::7] ^= 1
    w.add_arrays({"w": live}, "")
    with pytest.raises(lmc.WrongBaseError, match="have changed"):
        w.finish()
    assert os.listdir(tmp_path) == []


def test_copy_from_a_file_that_is_not_there(chain, weights):
    with lmc.open(chain / "a.lmc") as r, lmc.Writer(chain / "c.lmc") as w:
        with pytest.raises(lmc.NotFoundError, match="no file 'nosuch'"):
            w.copy_from(r, "nosuch")
        w.copy_from(r)
    assert same(lmc.open(chain / "c.lmc")["w"], weights)


@pytest.mark.skipif(os.name == "nt", reason="modes")
def test_a_file_keeps_its_mode(tmp_path, weights):
    path = tmp_path / "x.lmc"
    before = os.umask(0o022)
    try:
        lmc.numpy.save_file({"w": weights}, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        for mode in (0o600, 0o664, 0o444):
            path.chmod(mode)
            w = lmc.Writer(path)
            assert all(stat.S_IMODE(x.stat().st_mode) == mode for x in tmp_path.iterdir())  # also the unfinished file
            w.add("w", weights)
            w.finish()
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_targets_that_are_no_files(tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        lmc.Writer(tmp_path / "directory")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            lmc.Writer(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["directory", "link", "pipe"]


class Untouched:
    """Must not be saved."""

    def __reduce__(self):
        pytest.fail("the work has begun")


def refuse_at_once(path, kind, number, text=None):
    """Every way to write to `path` ends before the work; nothing is left."""
    there = sorted(os.listdir(path.parent)) if os.path.isdir(path.parent) else None
    calls = [lambda: lmc.Writer(path), lambda: lmc.numpy.save_file(dict.fromkeys("a", np.zeros(9)), path)]
    try:
        from lmc_codec.torch import save_checkpoint
    except ImportError:
        pass
    else:
        calls.append(lambda: save_checkpoint(Untouched(), path))
    for call in calls:
        with pytest.raises(kind, match=text) as error:
            call()
        assert number in (None, error.value.errno) and path.name in str(error.value) and ".part" not in str(error.value)
        assert there is None or sorted(os.listdir(path.parent)) == there


def test_targets_that_cannot_be_replaced(tmp_path):
    refuse_at_once(tmp_path / ("n" * 256), OSError, errno.ENAMETOOLONG)
    deep = tmp_path
    while len(os.fspath(deep)) < 3800:
        deep /= "d" * 200
    deep /= "d" * (4079 - len(os.fspath(deep)))
    deep.mkdir(parents=True)
    refuse_at_once(deep / "m.lmc", OSError, errno.ENAMETOOLONG)  # with the temporary name beside it
    refuse_at_once(tmp_path / "none" / "m.lmc", FileNotFoundError, errno.ENOENT)
    (tmp_path / "file").touch()
    refuse_at_once(tmp_path / "file" / "m.lmc", NotADirectoryError, errno.ENOTDIR)
    (tmp_path / "directory").mkdir()
    refuse_at_once(tmp_path / "directory", IsADirectoryError, None)
    if os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "directory").chmod(0o500)
        refuse_at_once(tmp_path / "directory" / "m.lmc", PermissionError, errno.EACCES)


def test_a_target_that_is_mounted(tmp_path, monkeypatch):
    path = tmp_path / "m.lmc"
    lmc.numpy.save_file({"a": np.zeros(9)}, path)
    before = path.read_bytes()

    def refuse(old, new):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), old, None, new)

    with monkeypatch.context() as changed:  # a system that does not tell mounts
        changed.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match=f"mounted by itself.*: {str(path)!r}$"):
            lmc.numpy.save_file({"a": np.ones(9)}, path)
    assert os.listdir(tmp_path) == ["m.lmc"] and path.read_bytes() == before
    mounts = [tmp_path / "mounted.lmc"] if mount(path, tmp_path / "mounted.lmc") else []
    try:
        for found in mounts:
            refuse_at_once(found, OSError, errno.EBUSY, "mounted by itself")
            with open(found, "wb") as file, lmc.Writer(file) as w:  # what the message says
                w.add("a", np.ones(9))
            assert lmc.numpy.load_file(found)["a"].sum() == 9
    finally:
        for found in mounts:
            subprocess.run(["umount", found], check=True)


def mount(source, target):
    target.touch()
    return os.geteuid() == 0 and subprocess.run(["mount", "--bind", source, target], stderr=subprocess.DEVNULL).returncode == 0


def test_out_of_another_shape(tmp_path, weights):
    lmc.numpy.save_file({"w": weights}, tmp_path / "x.lmc")
    data = lmc.compress(weights)
    with lmc.open(tmp_path / "x.lmc") as r:
        for out in (np.zeros(weights.shape[::-1], weights.dtype), np.zeros((1, *weights.shape), weights.dtype)):
            for call in (lambda: r.get("w", out=out), lambda: lmc.decompress(data, out=out)):
                with pytest.raises(ValueError, match=r"out is of shape \[.*and the result of \[700, 300\]"):
                    call()
            assert not out.view(np.uint16).any()
        for out in (np.zeros(weights.shape, weights.dtype), np.zeros(weights.size, weights.dtype), bytearray(weights.nbytes)):
            for call in (lambda: r.get("w", out=out), lambda: lmc.decompress(data, out=out)):
                memory = np.frombuffer(out, np.uint16) if isinstance(out, bytearray) else out.view(np.uint16)
                memory[...] = 0
                assert call() is out and memory.tobytes() == weights.tobytes()


@pytest.mark.parametrize("header", [{"a": 1}, {"a": {"dtype": "U8", "shape": [9], "data_offsets": [0, 99]}}, {"a": {"data_offsets": [0, 9]}}])
def test_a_damaged_safetensors_file(tmp_path, header):
    """As a base it is refused, with its name in the message; as a file its bytes are added."""
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + b"123456789"
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(lmc.CorruptError, match="x.safetensors is damaged"):
        lmc.Writer(tmp_path / "a.lmc", base=tmp_path / "x.safetensors")
    with lmc.Writer(tmp_path / "b.lmc") as w:
        w.add_file(tmp_path / "x.safetensors")
    with lmc.open(tmp_path / "b.lmc") as r:
        assert r.keys() == [] and r.read() == data


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("buffering", [0, -1])
def test_pipes_that_have_nothing_now(tmp_path, buffering):
    """None from a non-blocking file is not its end."""
    source, target = os.pipe()
    os.set_blocking(source, False)
    os.write(target, b"x" * 1000)
    with os.fdopen(source, "rb", buffering) as file, lmc.Writer(tmp_path / "a.lmc") as w:
        with pytest.raises(BlockingIOError, match="x.bin: the file is non-blocking"):
            w.add_file(file, "x.bin")
        w.abort()
    os.close(target)
    assert not (tmp_path / "a.lmc").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_no_base(tmp_path):
    """A pipe without a writer does not block."""
    os.mkfifo(tmp_path / "pipe")
    for make in (lambda: lmc.Writer(tmp_path / "b.lmc", base=tmp_path / "pipe"), lambda: lmc.open(lmc.numpy.save({"a": np.ones(3)}), base=tmp_path / "pipe")):
        with pytest.raises(OSError, match="pipe cannot seek"):
            make()


AT_THE_END = """
import lmc_codec as lmc, lmc_codec.numpy, numpy as np, atexit, os
class Trainer:
    def __del__(self):
        lmc.numpy.save_file({"a": np.ones(9)}, "del.lmc")
trainer = Trainer()
def use(): return trainer
atexit.register(lambda: lmc.numpy.save_file({"a": np.ones(9)}, "atexit.lmc"))
"""


def test_a_save_at_the_end_of_the_interpreter(tmp_path):
    done = subprocess.run([sys.executable, "-c", AT_THE_END], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "RuntimeError: Python is ending" in done.stderr and "atexit" in done.stderr
    assert [x.name for x in tmp_path.iterdir()] == ["atexit.lmc"]
