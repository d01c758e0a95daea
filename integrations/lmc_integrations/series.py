"""A directory of training states, most of them deltas against earlier ones. The command `lmc series` can list, restore and
check it.

    series = Series("run/states")
    series.save("step-100", {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = series.load()                                 # the last one; or series.load("step-100")

NAME.lmc is a snapshot; it is complete or does not exist. series.json is the list. If a process is killed between the two,
the next process completes the list. A snapshot that others need as a base is only marked as forgotten: its file is removed
when no kept snapshot needs it.

A name only finds a snapshot; its fingerprint in the list says what it is. A file that has another one is refused, as by
`lmc series`. The last snapshot is that with the highest number in its name, as 'latest' of `lmc help series`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import lmc_codec
from lmc_codec import CorruptError, LMCError, NotFoundError

from ._core import Link, NewFile, Saving, _lmc, _saving, copy_state, look_at, measure_depths, printable, sync_directory

__all__ = ["Series"]

T = TypeVar("T")

KEPT, FORGOTTEN, GONE = "kept", "forgotten", "gone"
PIECE = 8 << 20
CHANGES, READERS = 0, 1  # bytes of .lock, as in `lmc series`: one writer; any readers, or gc alone


def _lock(file: Any, byte: int, may_wait: bool = True) -> bool:
    """Locks a byte until the file is closed; False: others hold it. Systems without such locks: True."""
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | (0 if may_wait else fcntl.LOCK_NB), 1, byte)
    except (BlockingIOError, PermissionError):
        return False
    except (ImportError, OSError):
        pass
    return True


class _List:
    """series.json, compared with the files that exist."""

    def __init__(self, directory: Path):
        self.directory, self.path = directory, directory / "series.json"
        data = None
        while data is None or (self.others and self._read() != data):  # replaced between our two looks
            data = self._read()
            self._compare(data)

    def _read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _compare(self, data: bytes) -> None:
        directory = self.directory
        self.every: int | None = None
        self.entries: dict[str, dict[str, Any]] = {}  # in the order in which they were added
        #: The fingerprints of files that are not the snapshots that were added under their names.
        self.others: dict[str, bytes] = {}
        if data or self.path.exists():
            self._parse(data)
        files = [x for x in os.scandir(directory) if x.name.endswith(".lmc") and _lmc.is_snapshot_name(x.name[:-4])]
        paths = sorted((x.stat().st_mtime_ns, x.path, x.name[:-4]) for x in files if x.is_file(follow_symlinks=False))
        links = {name: look_at(path) for _, path, name in paths}
        #: The snapshots that can be read.
        self.links: dict[str, Link] = {name: link for name, link in links.items() if link is not None}
        for name, link in list(self.links.items()):
            old, found = self.entries.get(name, {}), link.fingerprint.hex()
            if old.get("state") in (KEPT, FORGOTTEN) and found not in (old.get("fingerprint"), old.get("next")):
                self.others[name] = self.links.pop(name).fingerprint
        measure_depths(list(self.links.values()))
        for entry in self.entries.values():
            if entry["state"] != KEPT and entry["name"] not in links:
                entry["state"] = GONE
        # entries without a fingerprint come from an `lmc` that was killed while it added
        self.entries = {name: entry for name, entry in self.entries.items() if "fingerprint" in entry}
        for name, link in self.links.items():
            old = self.entries.get(name, {"state": GONE})
            old.pop("next", None)
            if old["state"] == GONE or old["fingerprint"] != link.fingerprint.hex():  # new, or the next one
                with suppress(LMCError):  # a damaged snapshot is not listed
                    self.put(name, FORGOTTEN if old["state"] == FORGOTTEN else KEPT)

    def _parse(self, data: bytes) -> None:
        try:
            found = json.loads(_lmc.series_text(data, True))
        except ValueError as error:
            text = f"{self.path}: damaged, or of a newer lmc: {error}; 'lmc series DIR rebuild' makes it anew from the snapshots"
            raise CorruptError(printable(text)) from None
        self.every, self.entries = found["every"], {x["name"]: x for x in found["snapshots"]}

    def check(self, name: str) -> None:
        """Fails if the file of that name is not the snapshot that was added under it."""
        if name not in self.others:
            return
        path, found = self.directory / f"{name}.lmc", self.others[name].hex()
        with lmc_codec.open(str(path), threads=1):  # a damaged one is damaged, not another
            pass
        other = next((x["name"] for x in self.entries.values() if x.get("fingerprint") == found), "another")
        text = (
            f"{path}: is not the snapshot that was added under this name ({self.entries[name]['fingerprint'][:16]}), but {other} "
            f"({found[:16]}); bring the right file back from a copy, or take in this one with 'lmc series DIR rebuild'"
        )
        raise CorruptError(printable(text))

    def in_steps(self) -> list[str]:
        """The names of the kept ones, the latest one last, also if their files cannot be read."""
        names, marks = list(self.entries), bytes(x["state"] == KEPT for x in self.entries.values())
        return [names[i] for i, _ in _lmc.sort_series("\n".join(names), marks, 0)]

    def write(self, every: int) -> None:
        text = json.dumps({"lmc_series": 1, "every": self.every or every, "snapshots": list(self.entries.values())})
        new = NewFile(str(self.path))
        try:
            with open(new.fileno(), "wb", closefd=False) as file:
                file.write(_lmc.series_text(text.encode(), False))
            new.sync()
            new.appear()  # this also syncs the names of all earlier files
        except BaseException:
            new.remove()
            raise

    def put(self, name: str, state: str) -> None:
        """Makes the file of that name the last entry."""
        with lmc_codec.open(self.links[name].path, threads=1) as reader:
            entry = {"name": name, "state": state, "fingerprint": reader.fingerprint.hex(), "size": sum(x.size for x in reader.files)}
        self.entries.pop(name, None)
        self.entries[name] = {**entry, "time": int(time.time())}

    def names(self, state: str) -> list[str]:
        return [name for name, x in self.entries.items() if x["state"] == state and name in self.links]

    def chain_of(self, name: str) -> list[str]:
        """The snapshot and all bases that it needs and that are there."""
        below, chain = self.links[name].below, [name]
        while below is not None:
            chain.append(os.path.basename(below.path)[:-4])
            below = below.below
        return chain


class Series:
    """directory: made with the first snapshot. keep: how many are kept; None: all. every: snapshots in one chain, of which
    the first is not a delta; 1: no deltas. None: 16; or 1 if at most three are kept: deltas then take more than they save.
    level, threads, quantize: of lmc_codec.Writer; "*.exp_avg*=bits:8" quantises moments and keeps all else exactly.

    If all are kept, each is a delta against the one before; else against the first of its chain, so that no other file must
    stay for it. Only one process at a time changes a series; others wait. While a save of this process goes on in a thread
    (wait=False), what is forgotten is forgotten after it, unless it fails, and all other methods wait for it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        keep: int | None = None,
        every: int | None = None,
        level: Any = 0,
        threads: int | None = None,
        quantize: Any = None,
    ):
        if min(1 if every is None else every, 1 if keep is None else keep) < 1:
            raise ValueError(f"every and keep: 1 or more, not {every} and {keep}")
        self.directory = Path(directory).absolute()
        self._keep, self._every = keep, every or (16 if keep is None or keep > 3 else 1)
        self._how: dict[str, Any] = {"level": level, "threads": threads, "quantize": quantize}

    def _change(self, change: Callable[[_List], T]) -> T:
        """change(the list), which is then written, while no other process changes the series. No context manager of ours holds the lock: see
        lock_file of _sync_files."""
        os.makedirs(self.directory, exist_ok=True)
        with open(self.directory / ".lock", "a") as file:
            _lock(file, CHANGES)
            found = _List(self.directory)
            result = change(found)
            found.write(self._every)
            self._collect(found, file)
        return result

    def names(self) -> list[str]:
        """Names of the kept snapshots whose files are there, the latest one last."""
        _saving.await_end()
        if not self.directory.is_dir():
            return []
        found = _List(self.directory)
        for name in found.others:
            try:
                found.check(name)
            except LMCError as error:
                warnings.warn(f"{error}; it is left out", stacklevel=2)
        return [name for name in found.in_steps() if name in found.links]

    def path(self, name: str | None = None) -> Path:
        """The path of a snapshot, which need not exist; without a name, of the last one."""
        if name is None:
            _saving.await_end()
        names = [name] if name is not None else _List(self.directory).in_steps() if self.directory.is_dir() else []
        if not names:
            raise NotFoundError(printable(f"{self.directory}: no snapshot is there yet"))
        last = names[-1]
        if not _lmc.is_snapshot_name(last):
            raise ValueError(f"{last!r} cannot name a snapshot: 1 to 200 bytes without slashes, '.' and '-' not first")
        return self.directory / f"{last}.lmc"

    def _find(self, name: str | None) -> Path:
        """The path of a snapshot, whose file is the one that was added."""
        _saving.await_end()
        path = self.path(name)
        if self.directory.is_dir():
            _List(self.directory).check(path.name[:-4])
        return path

    # -- adding --

    @overload
    def save(self, name: str, state: Any, *, wait: Literal[True] = True) -> Path: ...

    @overload
    def save(self, name: str, state: Any, *, wait: Literal[False]) -> Saving: ...

    @overload
    def save(self, name: str, state: Any, *, wait: bool) -> Path | Saving: ...

    def save(self, name: str, state: Any, *, wait: bool = True) -> Path | Saving:
        """Adds an object as torch.save() saves it. A snapshot of that name is replaced when the new one is complete.
        wait=False: copies the state, and returns; a thread adds it (lmc_codec.torch.save_checkpoint())."""
        from lmc_codec.torch import save_checkpoint

        self.path(name)
        if wait:
            _saving.settle()
            return self._add(name, lambda path, base: save_checkpoint(state, path, base=base, **self._how))

        def prepare() -> Saving:
            save_copy = copy_state(state, self._how["quantize"] is not None)
            return _saving.begin(partial(self._add, name, lambda path, base: save_copy(path, base=base, **self._how)))

        return _saving.in_turn(prepare)

    @overload
    def add(self, name: str, source: str | os.PathLike[str], *, verify: bool = False, wait: Literal[True] = True) -> Path: ...

    @overload
    def add(self, name: str, source: str | os.PathLike[str], *, verify: bool = False, wait: Literal[False]) -> Saving: ...

    @overload
    def add(self, name: str, source: str | os.PathLike[str], *, verify: bool = False, wait: bool) -> Path | Saving: ...

    def add(self, name: str, source: str | os.PathLike[str], *, verify: bool = False, wait: bool = True) -> Path | Saving:
        """Adds the files of a directory. Finds the tensors of torch.save() and safetensors. verify: reads all back.
        wait=False: in a thread; the files must not change until it has ended."""
        source = Path(source).absolute()

        def write(path: Path, base: Path | None) -> None:
            with lmc_codec.Writer(path, base=base, **self._how) as w:
                for file in sorted(x for x in source.rglob("*") if not x.is_dir()):
                    w.add_file(file, file.relative_to(source).as_posix())
            if verify:
                lmc_codec.verify(path, base="auto")

        self.path(name)
        if wait:
            _saving.settle()
            return self._add(name, write)
        return _saving.in_turn(lambda: _saving.begin(partial(self._add, name, write)))

    def _choose_base(self, found: _List) -> Path | None:
        """The last snapshot that can be restored, or (with keep) the first one of its chain."""
        for name in reversed(found.names(KEPT)):
            chain = found.chain_of(name)
            if found.links[name].depth == len(chain) - 1 and found.entries.keys() >= set(chain):
                names = list(found.entries)
                n = len(chain) if self._keep is None else len(names) - names.index(chain[-1])
                return self.path(name if self._keep is None else chain[-1]) if n < self._every else None
        return None

    def _add(self, name: str, write: Callable[[Path, Path | None], None]) -> Path:
        path = self.path(name)
        latest = self._change(partial(self._add_to, name=name, path=path, write=write))
        if latest != name:
            text = f"{path}: has a lower number than {latest}, which stays the latest; if a run was resumed, forget() what it replaces"
            warnings.warn(printable(text), stacklevel=3)
        return path

    def _add_to(self, found: _List, name: str, path: Path, write: Callable[[Path, Path | None], None]) -> str:
        """Returns the latest name."""
        found.check(name)
        new = self.directory / ".lmc-saving"  # `lmc series` removes it if a killed process has left it
        try:
            write(new, self._choose_base(found))
            if name in found.links:
                self._set_aside(name, found, look_at(str(new)))
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
        link = look_at(str(path))
        if link is None:
            raise CorruptError(printable(f"{path}: what was written cannot be read"))
        found.links[name] = link
        measure_depths(list(found.links.values()))
        found.put(name, KEPT)
        return found.in_steps()[-1]

    def _set_aside(self, name: str, found: _List, new: Link | None) -> None:
        """Renames a snapshot that will be replaced, because others may need it as a base."""
        n, start = 1, name.encode()[:190].decode(errors="ignore")  # a name has at most 200 bytes
        while (aside := f"{start}-v{n}") in found.entries or os.path.lexists(self.path(aside)):
            n += 1
        found.entries[aside] = {**found.entries[name], "name": aside, "state": FORGOTTEN}
        if new is not None:  # until the file is replaced, and the list written again, it may be either
            found.entries[name]["next"] = new.fingerprint.hex()
        found.write(self._every)
        try:
            os.link(self.path(name), self.path(aside))
        except OSError:  # a file system without links
            part = self.directory / ".lmc-asided"  # like `.lmc-saving`
            with open(self.path(name), "rb") as old, open(part, "wb") as copy:
                shutil.copyfileobj(old, copy, PIECE)
                copy.flush()
                times = os.fstat(old.fileno())  # it must be older than the new file: Lightning resumes from the newest
                os.utime(part, ns=(times.st_atime_ns, times.st_mtime_ns))
                os.fsync(copy.fileno())
            os.replace(part, self.path(aside))
        sync_directory(str(self.directory))
        found.links[aside] = found.links[name]
        found.links[aside].path = str(self.path(aside))

    # -- forgetting --

    def forget(self, *names: str) -> None:
        """Marks these snapshots as forgotten."""
        _saving.do_after(partial(self._forget, names))

    def _forget(self, names: Iterable[str]) -> None:
        def forget(found: _List) -> None:
            for name in set(names).intersection(found.names(KEPT)):
                found.entries[name]["state"] = FORGOTTEN

        self._change(forget)

    def rotate(self, *protected: str) -> None:
        """Forgets the lowest steps until `keep` are left, but never the last one, the one added last, and the protected ones."""
        if self._keep is not None:
            _saving.do_after(partial(self._rotate, self._keep, protected))

    def _rotate(self, keep: int, protected: tuple[str, ...]) -> None:
        names = self.names()
        stay = {*protected, *names[-1:], *(_List(self.directory).names(KEPT)[-1:] if names else [])}
        marks = bytes(3 if name in stay else 1 for name in names)
        self._forget(names[i] for i, stays in _lmc.sort_series("\n".join(names), marks, keep) if not stays)

    def _collect(self, found: _List, lock: Any) -> None:
        """Removes files that nothing needs, unless somebody reads the series now, as `lmc series restore` does."""
        needed = {x for name in found.names(KEPT) for x in found.chain_of(name)}
        gone = [name for name in found.names(FORGOTTEN) if name not in needed]
        unread = [name for name, x in found.entries.items() if x["state"] != GONE and name not in found.links]
        if gone and unread:  # nobody knows which bases an unreadable snapshot needs
            text = f"{self.path(unread[0])}: cannot be read; while it is there, nothing that was forgotten is removed"
            warnings.warn(printable(text), stacklevel=2)
        if not gone or unread or not _lock(lock, READERS, may_wait=False):
            return
        for name in gone:
            os.unlink(self.path(name))
            found.entries[name]["state"] = GONE
        while found.entries and (first := next(iter(found.entries.values())))["state"] == GONE:
            del found.entries[first["name"]]
        found.write(self._every)

    # -- using --

    def load(self, name: str | None = None, **options: Any) -> Any:
        """Loads what save() has saved; without a name, the last one. options: of lmc_codec.torch.load_checkpoint()."""
        from lmc_codec.torch import load_checkpoint

        return load_checkpoint(self._find(name), **options)

    def restore(self, name: str | None, directory: str | os.PathLike[str]) -> None:
        """Writes the files of a snapshot. The directory appears when it is complete, and replaces an old one."""
        directory, source = Path(directory).absolute(), self._find(name)
        new = directory.with_name(f".{directory.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        os.makedirs(new)
        with lmc_codec.open(source, base="auto", threads=self._how["threads"]) as reader:
            for file in reader.files:
                # the only file of a snapshot, as of save(), has no path
                path = new / (file.path or ("" if file.is_directory else source.stem))
                os.makedirs(path if file.is_directory else path.parent, exist_ok=True)
                if not file.is_directory:
                    with open(path, "wb") as out:
                        for at in range(0, file.size, PIECE):
                            out.write(reader.read(file.path, at, min(PIECE, file.size - at)))
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(new, directory)

    def _equals(self, name: str, directory: str | os.PathLike[str]) -> bool:
        """Whether a directory has the files of a snapshot, and no others. A snapshot that cannot be read equals none."""
        files = {x.relative_to(directory).as_posix(): x for x in Path(directory).rglob("*") if not x.is_dir()}
        try:
            with lmc_codec.open(self._find(name), base="auto", threads=self._how["threads"]) as reader:
                sizes = {file.path: file.size for file in reader.files if not file.is_directory}
                if sizes != {path: file.stat().st_size for path, file in files.items()}:
                    return False
                for path, size in sizes.items():
                    with open(files[path], "rb") as file:
                        if any(file.read(PIECE) != reader.read(path, at, min(PIECE, size - at)) for at in range(0, size, PIECE)):
                            return False
        except (LMCError, OSError):
            return False
        return True
