"""Hugging Face checkpoints in LMC files: finds files and tensors, and decodes ahead of the consumer."""

from __future__ import annotations

import json
import os
import re
import threading
from queue import SimpleQueue

from lmc_codec import LMCError, Reader, probe

from ._core import decode_on_gpu, printable, take_base
from ._stores import Folder, is_url, open_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from lmc_codec._types import Decode

INDEX = "model.safetensors.index.json"
PLAIN = re.compile(r"model(-\d+-of-\d+)?\.safetensors")  # what is loaded where there are no LMC files
SINGLE = ("model.safetensors", "model.safetensors.lmc", "model.lmc")  # a checkpoint of one file, which needs no index
AHEAD = 1 << 30  # bytes of decoded tensors that may wait; one tensor may always wait


def find_files(path: str | os.PathLike[str], options: dict[str, Any] | None = None) -> list[str]:
    """The LMC files of a checkpoint. path: an LMC file, or a directory: then those that its index names
    (model-1.safetensors is model-1.safetensors.lmc or model-1.lmc), or all without an index. A directory with a second
    checkpoint is refused: neither names nor times say which of the two is meant. Both may be URLs; options: of fsspec."""
    path = os.fspath(path)
    folder = open_folder(path, options)
    return [path] if folder is None else _find_in(folder, options)


def _find_in(folder: Folder, options: dict[str, Any] | None) -> list[str]:
    if INDEX not in folder.names:
        names = [name for name in folder.names if name.endswith(".lmc")]
        if not names:
            raise FileNotFoundError(f"{printable(folder.path)}: no LMC files (*.lmc): `lmc model.safetensors` makes one")
        others = {name for name in folder.names if PLAIN.fullmatch(name)}.difference(_find_twin(folder, name) for name in names)
        if others:
            raise _two_checkpoints(folder.join(names[0]), folder.join(min(others)))
        return [folder.join(name) for name in names]
    wanted = set(_read_weight_map(folder).values())
    names = [_find_shard(folder, name, options) for name in sorted(wanted)]
    for name in SINGLE:
        if name in folder.names and name not in wanted and name not in names:
            raise _two_checkpoints(folder.join(INDEX), folder.join(name))
    return [folder.join(name) for name in names]


def _two_checkpoints(a: str, b: str) -> LMCError:
    when = ""
    if not is_url(a):
        a, b = sorted((a, b), key=os.path.getmtime)
        when = " (written later)"
    return LMCError(f"{a} and {b}{when} are of two checkpoints: remove the one that is out of date")


def _find_twin(folder: Folder, file: str) -> str | None:
    """The safetensors file beside an LMC file that has its name."""
    name = file.removesuffix(".lmc").removesuffix(".safetensors") + ".safetensors"
    return name if name != file and name in folder.names else None


def _read_weight_map(folder: Folder) -> dict[str, str]:
    found = json.loads(folder.read(INDEX)).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise ValueError(f"{printable(folder.join(INDEX))}: no weight_map that names a file for each tensor")
    return found


def _find_shard(folder: Folder, name: str, options: dict[str, Any] | None) -> str:
    if os.path.basename(name) != name:
        raise ValueError(f"{printable(folder.join(INDEX))}: {name!r} is not a file's name")
    stem = name.removesuffix(".lmc").removesuffix(".safetensors")
    files = [file for file in (stem + ".safetensors.lmc", stem + ".lmc") if file in folder.names]
    if not files:
        raise FileNotFoundError(printable(f"{folder.path}: {INDEX} names {name}, and there is no {name}.lmc"))
    if len(files) == 2 and len({_look_at(folder.join(file), options) for file in files}) > 1:
        raise _two_checkpoints(*map(folder.join, files))
    return files[0]


def _look_at(file: str, options: dict[str, Any] | None) -> bytes | None:
    """The fingerprint; None: it is no LMC file, or not whole."""
    try:
        return probe(file, storage_options=options).fingerprint
    except LMCError:
        return None


def _find_base(file: str, base: Any, options: dict[str, Any] | None) -> Any:
    """If base is a directory: its file of the same name, in LMC or not."""
    folder = open_folder(os.fspath(base), options) if isinstance(base, (str, os.PathLike)) else None
    if folder is not None:
        name = os.path.basename(file)
        names = (name, name.removesuffix(".lmc"), name.removesuffix(".lmc") + ".safetensors")
        found = next((x for x in names if x in folder.names), None)
        if found is None:
            raise FileNotFoundError(printable(f"{folder.path}: no {name}, which {file} is a delta of"))
        base = folder.join(found)
    return base


class Checkpoint:
    """Opens all files of a checkpoint, and finds tensors by name. base: a checkpoint, if this is a delta against it. Both are
    files or directories, or URLs of them; storage_options: for URLs."""

    def __init__(
        self, path: str | os.PathLike[str], *, base: Any = None, threads: int | None = None, storage_options: dict[str, Any] | None = None
    ):
        self.path = os.fspath(path)
        self.folder = open_folder(self.path, storage_options)
        self.readers: list[Reader] = []
        #: The reader of each tensor, in the order of the files.
        self.tensors: dict[str, Reader] = {}
        try:
            files = [self.path] if self.folder is None else _find_in(self.folder, storage_options)
            for file in files:
                delta_of = None if base is None else _find_base(file, base, storage_options)
                options = storage_options if is_url(file) else None
                reader = Reader(file, base=delta_of, threads=threads, framework="torch", storage_options=options)
                self.readers.append(reader)
                for name in reader:
                    if name in self.tensors:
                        raise LMCError(f"{file}: tensor {name!r} is in {self.tensors[name].name}, too")
                    self.tensors[name] = reader
            if self.folder is not None:
                self._check_index(self.folder)
                self._check_twins(self.folder, files, threads)
        except BaseException:
            self.close()
            raise

    def _check_index(self, folder: Folder) -> None:
        if INDEX in folder.names:
            missing = sorted(_read_weight_map(folder).keys() - self.tensors.keys())
            if missing:
                raise LMCError(f"{folder.join(INDEX)} names tensor {missing[0]!r}, which no file has: not all of it is there")

    def _check_twins(self, folder: Folder, files: list[str], threads: int | None) -> None:
        """A safetensors file beside its LMC file must have the same tensors: all of it is read."""
        for file, reader in zip(files, self.readers):
            name = _find_twin(folder, os.path.basename(file))
            if name is None:
                continue
            twin = folder.join(name)
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
    made: SimpleQueue[tuple[Any, int, BaseException | None]] = SimpleQueue()
    taken: SimpleQueue[int | None] = SimpleQueue()  # bytes of each result that was taken; None: no more are

    def work() -> None:
        waiting = 0
        for item in items:
            while waiting >= max(1, ahead) or not taken.empty():
                n = taken.get()
                if n is None:
                    return
                waiting -= n
            try:
                result, size = make(item)
            except BaseException as error:
                made.put((None, 0, error))
                return
            made.put((result, size, None))
            waiting += size
            del result

    thread, pid = threading.Thread(target=work, name="lmc_integrations.ahead", daemon=True), os.getpid()
    try:
        thread.start()
        for _ in items:
            if pid != os.getpid():
                raise RuntimeError("this process was forked while tensors were read ahead: open the checkpoint again")
            result, size, error = made.get()
            taken.put(size)
            if error is not None:
                raise error
            yield result
            del result
    finally:
        taken.put(None)  # first of all: another exception may come
        if pid == os.getpid() and thread.ident is not None:  # a forked child has no such thread
            thread.join()
