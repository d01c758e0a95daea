"""probe(): what a file is, from its two ends."""

from __future__ import annotations

from . import _lmc
from ._reader import FEATURES
from ._sources import open_source

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any


class Probe:
    """The result of probe(). fingerprint: of the snapshot, *unchecked*. base_fingerprint: of the base that it needs; None if it
    is not a delta. features: as of a Reader. format: the version that wrote it, (1, 0). size, index_size: bytes."""

    __slots__ = ("base_fingerprint", "features", "fingerprint", "format", "index_size", "size")

    def __init__(self, found: tuple[bytes, bytes, int, tuple[int, int], int, int]):
        self.fingerprint: bytes = found[0]
        self.base_fingerprint: bytes | None = found[1] or None
        self.features: tuple[str, ...] = tuple(name for i, name in enumerate(FEATURES) if found[2] >> i & 1)
        self.format, self.size, self.index_size = found[3:]

    def __repr__(self) -> str:
        base = "" if self.base_fingerprint is None else f", base {self.base_fingerprint.hex()[:16]}"
        return f"<Probe: {self.fingerprint.hex()[:16]}{base}, {self.size} bytes>"


def probe(source: Any, *, storage_options: dict[str, Any] | None = None) -> Probe:
    """Reads the two ends of an LMC file, at most 4 KiB, for lists and chains of snapshots. The arguments are those of open().

    The index, which has the fingerprint, is not checked, so use the result to choose a file, and open() to be sure of it.
    Raises NotLMCError for another file, TruncatedError for one without an end (its writer was interrupted, or is still
    writing), UnsupportedError for one of a newer version, and other FormatErrors if an end is damaged.
    """
    file = open_source(source, storage_options)
    try:
        return Probe(_lmc.probe(file.argument, file.size, file.name))
    finally:
        file.close()
