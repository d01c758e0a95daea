"""Series: a directory of training states, which `lmc series` understands."""

import json
import os
import random
import resource
import subprocess
import sys
import threading

import lmc_codec
import pytest
import torch
from lmc_integrations import series as module
from lmc_integrations.series import Series


link = os.link


def state_of(n):
    w = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    for i in range(n + 1):
        w[i::50] += 0.1
    return {"w": w, "n": n}


def check(series, name, n):
    state = series.load(name)
    assert state["n"] == n and torch.equal(state["w"], state_of(n)["w"])


def command(*args, code=0):
    done = subprocess.run([sys.executable, "-m", "lmc_codec", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def listed(directory, code=0):
    found = json.loads(command("series", directory, "list", "--json", code=code))["snapshots"]
    return {x["name"]: (x["state"], x["kind"], x.get("base")) for x in found}


def test_the_command_understands_it(tmp_path):
    series = Series(tmp_path / "s", every=4)
    for n in range(6):
        assert series.save(f"step-{n}", state_of(n)) == tmp_path / "s" / f"step-{n}.lmc"
    bases = {f"step-{n}": ("kept", "delta", f"step-{n - 1}") if n % 4 else ("kept", "anchor", None) for n in range(6)}
    assert listed(tmp_path / "s") == bases
    command("series", tmp_path / "s", "restore", "3", "-o", tmp_path / "3.pt")
    assert torch.load(tmp_path / "3.pt")["n"] == 3
    series.forget("step-1", "step-3", "no such")
    assert series.names() == ["step-0", "step-2", "step-4", "step-5"]
    assert listed(tmp_path / "s")["step-1"] == ("forgotten", "delta", "step-0") and "step-3" not in listed(tmp_path / "s")
    command("series", tmp_path / "s", "verify")
    command("series", tmp_path / "s", "gc")  # step-2 is coded again
    torch.save(state_of(6), tmp_path / "step-6.pt")
    command("series", tmp_path / "s", "add", tmp_path / "step-6.pt", "--name", "step-6")
    series.save("step-7", state_of(7))
    command("series", tmp_path / "s", "verify")
    assert listed(tmp_path / "s")["step-2"][:2] == ("kept", "delta") and listed(tmp_path / "s")["step-7"][2] == "step-6"
    for n in (0, 2, 4, 5, 6, 7):
        check(series, f"step-{n}", n)
    check(series, None, 7)
    (tmp_path / "s" / "series.json").unlink()
    assert set(Series(tmp_path / "s").names()) == {f"step-{n}" for n in (0, 2, 4, 5, 6, 7)}
    series.save("step-8", state_of(8))
    command("series", tmp_path / "s", "verify")


def test_rotation(tmp_path):
    """Deltas against the first of their chain: one file more than are kept, two after a new chain has begun."""
    series, kept = Series(tmp_path, keep=4, every=6), []
    for n in range(20):
        name = "last" if n % 3 == 2 else f"{n}"
        series.save(name, state_of(n))
        series.rotate("0")
        kept = [x for x in kept if x[0] != name] + [(name, n)]
        while len(kept) > 4:
            kept.pop(1)
        assert series.names() == [x for x, _ in kept] and len(list(tmp_path.glob("*.lmc"))) <= 4 + 2
        for name, n in kept:
            check(series, name, n)
    command("series", tmp_path, "verify")
    assert sum(kind == "anchor" for _, kind, _ in listed(tmp_path).values()) in (2, 3)
    few = Series(tmp_path / "few", keep=3)
    few.rotate()  # before there is a directory
    for n in range(5):
        few.save(f"{n}", state_of(n))
        few.rotate()
    assert {x[1] for x in listed(tmp_path / "few").values()} == {"anchor"}
    assert sorted(x.name for x in (tmp_path / "few").glob("*.lmc")) == ["2.lmc", "3.lmc", "4.lmc"]


class Held(threading.Event):
    """Takes the place of Series._choose_base, where the thread waits."""

    choose = None

    def __call__(self, found):
        assert self.wait(60)
        return self.choose(found)


def hold(series):
    held = Held()
    held.choose, series._choose_base = series._choose_base, held
    return held


def test_saving_in_a_thread(tmp_path):
    """The files are those of wait=True, and what comes next finds the snapshot."""
    ours, theirs = Series(tmp_path / "ours", every=4), Series(tmp_path / "theirs", every=4)
    for n in range(6):
        state = state_of(n)
        theirs.save(f"step-{n}", state)
        saving = ours.save(f"step-{n}", state, wait=False)
        state["w"].zero_()
        if n % 2:
            saving.wait()
        else:
            check(ours, None, n)
    assert ours.names() == theirs.names()
    for name in ours.names():
        assert ours.path(name).read_bytes() == theirs.path(name).read_bytes()
    held = hold(ours)
    ours.save("step-6", state_of(6), wait=False)
    assert not ours.path("step-6").exists()
    threading.Timer(0.1, held.set).start()
    assert ours.path().stem == "step-6"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.json").write_text("{}")
    ours.add("step-7", tmp_path / "a", verify=True, wait=False)
    ours.restore("step-7", tmp_path / "b")
    assert (tmp_path / "b" / "x.json").read_text() == "{}"
    command("series", tmp_path / "ours", "verify")


def test_forgetting_comes_after_the_save(tmp_path):
    """It does not wait, and a save that fails forgets nothing."""
    series = Series(tmp_path, keep=2)
    for n in range(2):
        series.save(f"{n}", state_of(n))
    held = hold(series)
    saving = series.save("2", state_of(2), wait=False)
    series.forget("0")
    series.rotate()
    assert not saving.done and sorted(x.name for x in tmp_path.glob("*.lmc")) == ["0.lmc", "1.lmc"]
    held.set()
    saving.wait()
    assert series.names() == ["1", "2"] and not (tmp_path / "0.lmc").exists()

    def fail(found):
        raise OSError("no space")

    for is_over in (False, True):
        held.clear()
        held.choose, series._choose_base = fail, held
        saving = series.save("3", state_of(3), wait=False)
        if is_over:
            held.set()
            series.names()
        series.forget("1")
        series.rotate()
        held.set()
        assert series.names() == ["1", "2"] and saving.done
        with pytest.raises(OSError, match="no space"):
            series.save("3", state_of(3))
    with pytest.raises(ValueError, match="cannot name a snapshot"):
        series.save("a/b", state_of(3), wait=False)
    assert series.names() == ["1", "2"] and not list(tmp_path.glob(".lmc-*"))


def test_directories(tmp_path):
    series = Series(tmp_path / "s", quantize="*m.exp_avg=bits:8")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "x.json").write_text("{}")
    (tmp_path / "a" / "empty").touch()
    big = os.urandom(module.PIECE + 5)
    (tmp_path / "a" / "b" / "big").write_bytes(big)
    torch.save({"m.exp_avg": torch.randn(200, 200)}, tmp_path / "a" / "o.pt")
    series.add("one", tmp_path / "a")
    (tmp_path / "a" / "x.json").write_text("[]")
    series.add("two", tmp_path / "a")
    (tmp_path / "a" / "y").touch()
    series.restore("one", tmp_path / "a")
    assert sorted(os.listdir(tmp_path / "a")) == ["b", "empty", "o.pt", "x.json"] and (tmp_path / "a" / "x.json").read_text() == "{}"
    series.restore(None, tmp_path / "c")
    assert (tmp_path / "c" / "x.json").read_text() == "[]" and (tmp_path / "c" / "b" / "big").read_bytes() == big
    assert sorted(os.listdir(tmp_path)) == ["a", "c", "s"]
    with lmc_codec.open(series.path("one")) as r:
        assert r.info("m.exp_avg").loss is not None


def test_a_lone_file_is_restored(tmp_path):
    series = Series(tmp_path / "s")
    series.save("step-0.5", state_of(1))
    series.restore("step-0.5", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["step-0.5"] and torch.load(tmp_path / "out" / "step-0.5")["n"] == 1


@pytest.mark.parametrize("has_links", [True, False])
def test_what_is_replaced_stays_older(tmp_path, monkeypatch, has_links):
    """Lightning resumes from the newest of last*.lmc; a lost list is also made again by the times."""
    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    series = Series(tmp_path)
    for n in range(3):
        series.save("last", state_of(n))
    times = {path.stem: path.stat().st_mtime_ns for path in tmp_path.glob("*.lmc")}
    assert times["last-v1"] <= times["last-v2"] <= times["last"] and len(times) == 3
    assert sorted(x for x in os.listdir(tmp_path) if not x.endswith(".lmc")) == [".lock", "series.json"]
    os.unlink(tmp_path / "series.json")
    assert series.names()[-1] == "last"


def test_what_is_refused(tmp_path):
    for wrong in ("", ".x", "-x", "a/b", "a\\b", "a\nb", "x" * 201, "\ud800", "\udc80"):
        with pytest.raises(ValueError, match="cannot name a snapshot"):
            Series(tmp_path).save(wrong, {})
    with pytest.raises(ValueError, match="1 or more"):
        Series(tmp_path, every=0)
    with pytest.raises(lmc_codec.NotFoundError, match="no snapshot is there yet"):
        Series(tmp_path / "new").load()
    assert Series(tmp_path / "new").names() == [] and os.listdir(tmp_path) == []
    series = Series(tmp_path)
    series.save("a", state_of(0))
    whole = (tmp_path / "series.json").read_bytes()
    for bad in (b"", whole[:-5], whole.replace(b"kept", b"Kept"), b"{}", whole.replace(b'"lmc_series": 1', b'"lmc_series": 2')):
        (tmp_path / "series.json").write_bytes(bad)
        with pytest.raises(lmc_codec.CorruptError, match="series.json: damaged.*rebuild"):
            series.save("b", state_of(1))
    assert sorted(os.listdir(tmp_path)) == [".lock", "a.lmc", "series.json"]
    command("series", tmp_path, "rebuild")
    series.save("b", state_of(1))
    check(series, "a", 0)


def test_what_is_damaged_or_alone(tmp_path, monkeypatch):
    """Files that are not snapshots, or lack their base, do no harm; a broken chain is not continued."""
    series = Series(tmp_path / "s")
    for n in range(3):
        series.save(f"{n}", state_of(n))
    (tmp_path / "s" / "x.lmc").write_bytes(b"no snapshot")
    os.mkdir(tmp_path / "s" / "y.lmc")
    os.symlink("2.lmc", tmp_path / "s" / "z.lmc")
    os.unlink(tmp_path / "s" / "1.lmc")
    assert series.names() == ["0", "2"]
    series.save("3", state_of(3))
    assert listed(tmp_path / "s", code=1)["3"][2] == "0"  # 1 is missing
    check(series, None, 3)
    with pytest.raises(lmc_codec.MissingBaseError):
        series.load("2")
    alone = Series(tmp_path / "alone")
    os.mkdir(tmp_path / "alone")
    os.rename(tmp_path / "s" / "2.lmc", tmp_path / "alone" / "2.lmc")
    alone.save("4", state_of(4))
    assert alone.names() == ["2", "4"]
    check(alone, "4", 4)
    for name in (b"-x.lmc", b"\xff.lmc", b"x\n.lmc"):  # that `lmc series` would refuse
        os.link(tmp_path / "alone" / "4.lmc", os.fsencode(tmp_path / "alone") + b"/" + name)
    alone.save("4b", state_of(5))
    assert set(listed(tmp_path / "alone", code=4)) == {"2", "4", "4b"}  # 2 lacks its base
    alone.forget("4b")
    damaged = bytearray((tmp_path / "s" / "0.lmc").read_bytes())
    damaged[-60] ^= 1  # a byte of the index
    (tmp_path / "s" / "0.lmc").write_bytes(damaged)
    (tmp_path / "s" / "series.json").unlink()
    for n in (6, 7):
        Series(tmp_path / "s", keep=4).save(f"{n}", state_of(n))
        check(series, f"{n}", n)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_bytes(b"x")

    def fail(*args, **options):
        raise lmc_codec.CorruptError("as if memory were bad")

    monkeypatch.setattr(lmc_codec, "verify", fail)
    with pytest.raises(lmc_codec.CorruptError):
        alone.add("5", tmp_path / "d", verify=True)
    assert alone.names() == ["2", "4"]


def test_what_needs_a_base_is_not_known(tmp_path):
    """If a kept delta cannot be read, forgotten files are not removed."""
    series = Series(tmp_path)
    for n in range(3):
        series.save(f"{n}", state_of(n))
    whole = (tmp_path / "2.lmc").read_bytes()
    (tmp_path / "2.lmc").write_bytes(whole[:-5])
    with pytest.warns(UserWarning, match="2.lmc: cannot be read; while it is there, nothing"):
        series.forget("0", "1")
    assert series.names() == [] and len(list(tmp_path.glob("*.lmc"))) == 3
    (tmp_path / "2.lmc").write_bytes(whole)
    series.forget("1")
    check(series, "2", 2)
    series.forget("2")
    assert not list(tmp_path.glob("*.lmc"))


def test_nothing_goes_while_somebody_reads(tmp_path):
    pytest.importorskip("fcntl")
    series = Series(tmp_path, every=1)
    for n in range(3):
        series.save(f"{n}", state_of(n))
    code = "import fcntl, sys; f = open(sys.argv[1], 'a+'); fcntl.lockf(f, fcntl.LOCK_SH, 1, 1); print(flush=True); input()"
    reader = subprocess.Popen([sys.executable, "-c", code, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        reader.stdout.readline()
        series.forget("0")
        assert series.names() == ["1", "2"] and (tmp_path / "0.lmc").exists()
    finally:
        reader.communicate(b"\n")
    series.forget("1")
    assert [x.name for x in tmp_path.glob("*.lmc")] == ["2.lmc"]


def test_a_long_name_of_wide_letters(tmp_path):
    series = Series(tmp_path)
    for n in range(3):
        series.save("é" * 100, state_of(n))
    assert listed(tmp_path).keys() == {"é" * 100, "é" * 95 + "-v1", "é" * 95 + "-v2"}
    text = (tmp_path / "series.json").read_bytes()
    for verb in ("keep", "prune"):
        command("series", tmp_path, verb, "é" * 95 + "-v2")
        assert ((tmp_path / "series.json").read_bytes() == text) == (verb == "prune")  # both write the same list


def test_another_file(tmp_path):
    """A file that was copied over another, or exchanged, is refused: a name is not content."""
    series = Series(tmp_path / "s", every=1)
    for n in range(3):
        series.save(f"step-{n}", state_of(n))
    path = tmp_path / "s" / "step-2.lmc"
    whole, listed_before = path.read_bytes(), (tmp_path / "s" / "series.json").read_bytes()
    path.write_bytes((tmp_path / "s" / "step-1.lmc").read_bytes())
    match = r"step-2.lmc: is not the snapshot that was added under this name \([0-9a-f]{16}\), but step-1 \([0-9a-f]{16}\); bring the right file back"
    for name in ("step-2", None):
        with pytest.raises(lmc_codec.CorruptError, match=match):
            series.load(name)
        with pytest.raises(lmc_codec.CorruptError, match=match):
            series.restore(name, tmp_path / "out")
    with pytest.warns(UserWarning, match=match):
        assert series.names() == ["step-0", "step-1"]
    with pytest.raises(lmc_codec.CorruptError, match=match):
        series.save("step-2", state_of(5))
    with pytest.warns(UserWarning, match="step-2.lmc: cannot be read; while it is there, nothing"):
        series.forget("step-0")
    assert path.exists() and (tmp_path / "s" / "step-0.lmc").exists() and not (tmp_path / "out").exists()
    assert listed(tmp_path / "s", code=3)["step-2"] == ("kept", "other", None)
    path.write_bytes(whole)
    (tmp_path / "s" / "series.json").write_bytes(listed_before)
    for n in range(3):
        check(series, f"step-{n}", n)
    path.write_bytes((tmp_path / "s" / "step-1.lmc").read_bytes())
    command("series", tmp_path / "s", "rebuild")
    check(series, "step-2", 1)


def test_the_order_of_steps(tmp_path):
    """It is that of `lmc series`, for names of all kinds."""
    rng = random.Random(3)
    words = ["step", "iter_", "STEP=", "ckpt-", "b", "", "-", ".", "@", "@2", "@", "7", "007", "30", "30", "31", str(1 << 64), "1" + "0" * 60, "v", "é", "ſtep"]
    names = ["step-0110", "step-0120", "step-0020", "init", "step-30@2"]
    while len(names) < 40:
        name = "".join(rng.choices(words, k=rng.randrange(1, 5)))
        if module._lmc.is_snapshot_name(name) and name not in names:
            names.append(name)
    series = Series(tmp_path / "s", every=1)
    entries = []
    series.save("x", {})
    file, found = (tmp_path / "s" / "x.lmc").read_bytes(), module._List(tmp_path / "s")
    for name in names:
        (tmp_path / "s" / f"{name}.lmc").write_bytes(file)
        entries.append({**found.entries["x"], "name": name, "state": rng.choice(["kept", "kept", "forgotten"])})
    found.entries = {x["name"]: x for x in entries}
    (tmp_path / "s" / "x.lmc").unlink()
    found.write(16)
    rows = json.loads(command("series", tmp_path / "s", "list", "--json"))["snapshots"]
    assert series.names() == [x["name"] for x in rows if x["state"] == "kept"]
    assert series.path().stem == series.names()[-1]


def test_a_resumed_run(tmp_path):
    """The last one is the highest step; what was added last is not forgotten for it."""
    series = Series(tmp_path, keep=2, every=1)
    for n in (10, 20, 30, 40):
        series.save(f"step-{n}", state_of(n))
        series.rotate()
    assert series.names() == ["step-30", "step-40"]
    with pytest.warns(UserWarning, match="step-20.lmc: has a lower number than step-40, which stays the latest; if a run was resumed"):
        series.save("step-20", state_of(21))
    series.rotate()
    assert series.names() == ["step-20", "step-40"] and series.load()["n"] == 40
    series.forget("step-40")
    series.save("step-30", state_of(31))
    assert series.load()["n"] == 31


class Stop(BaseException):
    pass


def no_links(source, target, **options):
    if "aside" in sys._getframe(1).f_code.co_name:
        raise PermissionError
    return link(source, target, **options)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_stop_at_every_step(tmp_path, monkeypatch, has_links):
    """After a crash at any point of the writes all kept snapshots exist, and the next save works."""
    k, is_through = 0, False
    while not is_through:
        directory = tmp_path / f"{k}"
        series = Series(directory, keep=4, every=3)
        for n in range(4):
            series.save("last" if n % 2 else f"{n}", state_of(n))
        left = k

        def stop_at(function):
            def stopping(*args, **options):
                nonlocal left
                left -= 1
                if left == -1:
                    raise Stop
                return function(*args, **options)

            return stopping

        with monkeypatch.context() as m:
            for name in ("replace", "link", "unlink", "fsync"):
                m.setattr(os, name, stop_at(getattr(os, name)))
            if not has_links:
                m.setattr(os, "link", no_links)
            try:
                series.save("last", state_of(4))
                series.forget("2")
                is_through = True
            except Stop:
                pass
        assert not (directory / ".lmc-saving").exists()
        again = Series(directory, keep=4, every=3)
        assert {"0", "last"} <= set(again.names()) <= {"0", "2", "last"} and ("2" in again.names() or again.load("last")["n"] == 4)
        for name in again.names():
            check(again, name, again.load(name)["n"] if name == "last" else int(name))
        assert again.load("last")["n"] in (3, 4)
        again.save("last", state_of(5))
        again.save("6", state_of(6))
        assert again.load("last")["n"] == 5
        if k % 4 == 0:
            command("series", directory, "verify")
        check(again, "0", 0)
        k += 1
    assert k > 8


def test_twenty_kills(tmp_path, run_killed):
    """No finished snapshot is missing unless it was forgotten; `last` is replaced again and again."""
    rng, told, n = random.Random(1), tmp_path / "told", 0
    series = Series(tmp_path / "s", keep=4, every=5)

    def tell(*words):
        with open(told, "a") as file:
            print(*words, file=file)

    def work(report):
        torch.set_num_threads(1)
        for i in range(n, n + 99):
            for name in ("last", f"step-{i}"):
                tell("begin", name, i)
                series.save(name, state_of(i))
                tell("end", name, i)
                report()
            series.rotate()

    for _ in range(20):
        assert not run_killed(work, rng)
        lines = [x.split() for x in told.read_text().splitlines()]
        ends = {name: int(i) for what, name, i in lines if what == "end"}
        begun = {name: int(i) for what, name, i in lines}
        names = series.names()
        for name in names:
            found = series.load(name)["n"]
            assert ends.get(name, 0) <= found <= begun[name]
            check(series, name, found)
        assert {"last", *[name for name in ends if name != "last"][-2:]} <= set(names)
        n = max(begun.values()) + 1
    assert len(ends) > 20
    command("series", tmp_path / "s", "verify")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_full_disk(tmp_path):
    """A full disk, simulated by a limit on file sizes: nothing new, nothing lost, and saving works again later."""
    series = Series(tmp_path)
    series.save("a", state_of(0))
    before = sorted(os.listdir(tmp_path))
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
            series.save("b", {"w": torch.randn(100_000)})
        except OSError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert sorted(os.listdir(tmp_path)) == before and series.names() == ["a"]
    check(series, "a", 0)
    series.save("b", state_of(1))
    check(series, "b", 1)
