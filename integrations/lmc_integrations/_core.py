"""All private names of lmc_codec that the adapters use. They are those of one minor version of lmc-codec, which
pyproject.toml names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, cast

from lmc_codec import Reader, TensorInfo, _arrays, _chunks, _lmc, _saving
from lmc_codec.__main__ import command
from lmc_codec._arguments import count_threads, level_number
from lmc_codec._chain import _Link as Link
from lmc_codec._chain import _look_at as look_at
from lmc_codec._chain import _measure as measure_depths
from lmc_codec._lmc import printable
from lmc_codec._locks import locked
from lmc_codec._new_file import NewFile, attempt, sync_directory, sync_file
from lmc_codec._reader import take_base
from lmc_codec._saving import Saving
from lmc_codec._sources import open_descriptor
from lmc_codec._writer import write_all

__all__ = [
    "Link", "NewFile", "Saving", "_arrays", "_chunks", "_lmc", "_saving", "attempt", "command", "copy_state", "count_threads", "decode_on_gpu",
    "level_number", "locked", "look_at", "measure_depths", "open_descriptor", "open_stored", "printable", "sync_directory", "sync_file", "take_base", "write_all"
]  # fmt: skip


def decode_on_gpu(reader: Reader, infos: list[TensorInfo], device: Any, most: int) -> Iterator[tuple[str, Any]]:
    from lmc_codec._gpu import get_all

    return get_all(reader, infos, device, most)


def open_stored(reader: Reader) -> IO[bytes]:
    """All files of a snapshot as one file. Needs torch."""
    from lmc_codec._checkpoint import Stored

    return cast(IO[bytes], Stored(reader))


def copy_state(state: Any, quantises: bool) -> Callable[..., None]:
    """Copies what torch.save() writes of it. The result, called with a path and options of lmc_codec.Writer, saves that once."""
    from lmc_codec import _checkpoint

    return partial(_checkpoint.save_copy, _checkpoint.copy_state(state, quantises))
