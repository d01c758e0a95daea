"""What the adapters take of lmc_codec beside its public names: all of it is here. It belongs to one minor version of
lmc-codec, which pyproject.toml names."""

from __future__ import annotations

from lmc_codec import _arrays, _chunks, _lmc
from lmc_codec._arguments import count_threads, level_number
from lmc_codec._lmc import printable

__all__ = ["_arrays", "_chunks", "_lmc", "count_threads", "level_number", "printable"]
