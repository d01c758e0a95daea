"""What the adapters take of lmc_codec beside its public names: all of it is here. It belongs to one minor version of
lmc-codec, which pyproject.toml names."""

from __future__ import annotations

from typing import IO, cast

from lmc_codec import Reader, _arrays, _chunks, _lmc
from lmc_codec.__main__ import command
from lmc_codec._arguments import count_threads, level_number
from lmc_codec._chain import _Link as Link
from lmc_codec._chain import _look_at as look_at
from lmc_codec._chain import _measure as measure_depths
from lmc_codec._lmc import printable
from lmc_codec._new_file import NewFile
from lmc_codec._new_file import _sync_directory as sync_directory
from lmc_codec._writer import write_all

__all__ = [
    "Link", "NewFile", "_arrays", "_chunks", "_lmc", "command", "count_threads", "level_number", "look_at", "measure_depths", "open_stored",
    "printable", "sync_directory", "write_all"
]  # fmt: skip


def open_stored(reader: Reader) -> IO[bytes]:
    """All files of a snapshot as one. It is there only where torch is."""
    from lmc_codec._checkpoint import Stored

    return cast(IO[bytes], Stored(reader))
