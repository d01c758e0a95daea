"""Hugging Face checkpoints in LMC files: finds files and tensors, and decodes ahead of the consumer."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import deque

from lmc_codec import LMCError, Reader

from ._core import decode_on_gpu, look_at, printable, take_base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from lmc_codec._types import Decode

INDEX = "model.safetensors.index.json"
PLAIN = re.compile(r"model(-\d+-of-\d+)?\.safetensors")  # what is loaded where there are no LMC files
SINGLE = ("model.safetensors", "model.safetensors.lmc", "model.lmc")  # a checkpoint of one file, which needs no index
AHEAD = 1 << 30  # bytes of decoded tensors that may wait; one tensor may always wait


def find_files(path: str | os.PathLike[str]) -> list[str]:
    """The LMC files of a checkpoint. path: an LMC file, or a directory: then those that its index names
    (model-1.safetensors is model-1.safetensors.lmc or model-1.lmc), or all without an index. A directory with a second
    checkpoint is refused: neither names nor times say which of the two is meant."""
    path = os.fspath(path)
    if not os.path.isdir(path):
        return [path]
    index = os.path.join(path, INDEX)
    if not os.path.exists(index):
        files = sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".lmc"))
        if not files:
            raise FileNotFoundError(f"{printable(path)}: no LMC files (*.lmc): `lmc model.safetensors` makes one")
        plain = [os.path.join(path, name) for name in sorted(os.listdir(path)) if PLAIN.fullmatch(name)]
        others = set(filter(os.path.exists, plain)).difference(map(_find_twin, files))
        if others:
            raise _two_checkpoints(files[0], min(others))
        return files
    names = set(_read_weight_map(index).values())
    files = [_find_shard(path, name) for name in sorted(names)]
    for name in SINGLE:
        other = os.path.join(path, name)
        if os.path.exists(other) and name not in names and other not in files:
            raise _two_checkpoints(index, other)
    return files


def _two_checkpoints(a: str, b: str) -> LMCError:
    a, b = sorted((a, b), key=os.path.getmtime)
    return LMCError(f"{a} and {b} (written later) are of two checkpoints: remove the one that is out of date")


def _find_twin(file: str) -> str | None:
    """The safetensors file beside an LMC file that has its name."""
    name = file.removesuffix(".lmc").removesuffix(".safetensors") + ".safetensors"
    return name if name != file and os.path.exists(name) else None


def _read_weight_map(index: str) -> dict[str, str]:
    with open(index, "rb") as file:
        found = json.load(file).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise ValueError(f"{printable(index)}: no weight_map that names a file for each tensor")
    return found


def _find_shard(directory: str, name: str) -> str:
    if os.path.basename(name) != name:
        raise ValueError(f"{printable(os.path.join(directory, INDEX))}: {name!r} is not a file's name")
    stem = name.removesuffix(".lmc").removesuffix(".safetensors")
    files = [os.path.join(directory, stem + suffix) for suffix in (".safetensors.lmc", ".lmc")]
    found = {file: look_at(file) for file in files if os.path.exists(file)}
    if len({None if x is None else x.fingerprint for x in found.values()}) > 1:
        raise _two_checkpoints(*files)
    if found:
        return next(iter(found))
    raise FileNotFoundError(printable(f"{directory}: {INDEX} names {name}, and there is no {name}.lmc"))


def _find_base(file: str, base: Any) -> Any:
    """If base is a directory: its file of the same name, in LMC or not."""
    if not isinstance(base, (str, os.PathLike)) or not os.path.isdir(base):
        return base
    name = os.path.basename(file)
    for candidate in (name, name.removesuffix(".lmc"), name.removesuffix(".lmc") + ".safetensors"):
        if os.path.exists(os.path.join(base, candidate)):
            return os.path.join(base, candidate)
    raise FileNotFoundError(printable(f"{os.fspath(base)}: no {name}, which {file} is a delta of"))


class Checkpoint:
    """Opens all files of a checkpoint, and finds tensors by name. base: a checkpoint, if this is a delta against it."""

    def __init__(self, path: str | os.PathLike[str], *, base: Any = None, threads: int | None = None):
        self.path = os.fspath(path)
        self.readers: list[Reader] = []
        #: The reader of each tensor, in the order of the files.
        self.tensors: dict[str, Reader] = {}
        try:
            files = find_files(path)
            for file in files:
                delta_of = None if base is None else _find_base(file, base)
                reader = Reader(file, base=delta_of, threads=threads, framework="torch")
                self.readers.append(reader)
                for name in reader:
                    if name in self.tensors:
                        raise LMCError(f"{file}: tensor {name!r} is in {self.tensors[name].name}, too")
                    self.tensors[name] = reader
            self._check_index()
            if os.path.isdir(path):
                self._check_twins(files, threads)
        except BaseException:
            self.close()
            raise

    def _check_index(self) -> None:
        index = os.path.join(self.path, INDEX)
        if os.path.exists(index):
            missing = sorted(_read_weight_map(index).keys() - self.tensors.keys())
            if missing:
                raise LMCError(f"{index} names tensor {missing[0]!r}, which no file has: not all of it is there")

    def _check_twins(self, files: list[str], threads: int | None) -> None:
        """A safetensors file beside its LMC file must have the same tensors: all of it is read."""
        for file, reader in zip(files, self.readers):
            twin = _find_twin(file)
            if twin is None:
                continue
            try:
                found = getattr(take_base(twin, threads), "fingerprint", None)
            except (LMCError, OSError) as error:
                raise LMCError(f"{twin}, beside {file}, cannot be read ({error}): remove the one that is out of date") from None
            if found != reader.fingerprint:
                raise _two_checkpoints(file, twin)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def iterate(
        self, is_wanted: Callable[[str], bool] | None = None, *, device: Any = None, ahead: int = AHEAD, decode: Decode = "cpu"
    ) -> Iterator[tuple[str, Any]]:
        """Yields (name, tensor of torch). A separate thread decodes the next tensors meanwhile, each with all threads of
        the reader. ahead: bytes that may wait. decode: "gpu" (experimental): on the device, `ahead` bytes at once."""
        names = [name for name in self.tensors if is_wanted is None or is_wanted(name)]
        if decode == "gpu":
            for reader in self.readers:
                infos = [reader.info(name) for name in names if self.tensors[name] is reader]
                yield from decode_on_gpu(reader, infos, device, ahead)
            return

        def read(name: str) -> tuple[tuple[str, Any], int]:
            reader = self.tensors[name]
            return (name, reader.get(name, device=device)), reader.info(name).size

        yield from run_ahead(names, read, ahead)


def run_ahead(items: list[Any], make: Callable[[Any], tuple[Any, int]], ahead: int) -> Iterator[Any]:
    """Yields the result of make() for each item, in order. A thread works ahead as long as less than `ahead` bytes wait.
    make: -> (result, its bytes). An exception of make() is raised in place of its result."""
    state = threading.Condition()
    made: deque[tuple[Any, int, BaseException | None]] = deque()
    waiting = 0
    is_over = False

    def work() -> None:
        nonlocal waiting
        for item in items:
            with state:
                state.wait_for(lambda: is_over or waiting < max(1, ahead))
                if is_over:
                    return
            result, size, error = None, 0, None
            try:
                result, size = make(item)
            except BaseException as raised:
                error = raised
            with state:
                made.append((result, size, error))
                waiting += size
                state.notify_all()
            if error is not None:
                return
            del result, error

    thread = threading.Thread(target=work, name="lmc_integrations.ahead", daemon=True)
    thread.start()
    pid = os.getpid()
    try:
        for _ in items:
            if pid != os.getpid():
                raise RuntimeError("this process was forked while tensors were read ahead: open the checkpoint again")
            with state:
                state.wait_for(lambda: made)
                result, size, error = made.popleft()
                waiting -= size
                state.notify_all()
            if error is not None:
                raise error
            yield result
            del result
    finally:
        if pid == os.getpid():  # a forked child has no such thread, and the lock may stay locked
            with state:
                is_over = True
                state.notify_all()
            thread.join()
