"""One class for each kind of error, with the text of the library."""

from __future__ import annotations

import sys

from . import _lmc
from ._lmc import printable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any


class _Root(Exception):
    """Stands where SafetensorError will, if it comes. Python lets the base of a class be another one of the same layout."""


class LMCError(_Root):
    """What the library refuses or cannot do. `status` is its number, `status_name` its name in C; those of its class if
    no call of the library failed.

    Where safetensors is loaded it is a SafetensorError, too: code that changes the import line goes on catching it."""

    status: int = 0
    status_name: str = ""

    def __new__(cls, *args: Any) -> LMCError:
        if LMCError.__base__ is _Root and "safetensors" in sys.modules:
            _become_theirs(sys.modules["safetensors"])
        return super().__new__(cls, *args)

    def __str__(self) -> str:  # KeyError would quote it
        return printable(self.args[0]) if self.args else ""


def _become_theirs(safetensors: Any) -> None:
    theirs = getattr(safetensors, "SafetensorError", None)
    if isinstance(theirs, type) and theirs.__base__ is Exception:
        LMCError.__bases__ = (theirs,)


class ArgumentError(LMCError, ValueError):
    """Arguments that contradict each other or are out of range, or calls out of order."""

    status, status_name = 1, "LMC_ERR_ARGUMENT"


class OutputTooSmallError(LMCError, ValueError):
    """`out` has no room for the result."""

    status, status_name = 2, "LMC_ERR_DST_TOO_SMALL"


class ReadError(LMCError, OSError):
    """Reading failed: the file is shorter than it was, for example."""

    status, status_name = 5, "LMC_ERR_READ"


class WriteError(LMCError, OSError):
    """Writing failed."""

    status, status_name = 6, "LMC_ERR_WRITE"


class NotFoundError(LMCError, KeyError):
    """No such file, tensor, metadata entry or hash."""

    status, status_name = 7, "LMC_ERR_NOT_FOUND"


class AmbiguousError(LMCError, KeyError):
    """Several tensors have that name: say which file, if they are of several."""

    status, status_name = 11, "LMC_ERR_AMBIGUOUS"


class LimitError(LMCError):
    """Over a limit of the format, of this machine, or one that the caller has set."""

    status, status_name = 8, "LMC_ERR_LIMIT"


class SliceError(LMCError, IndexError):
    """An index that the tensor does not have."""


class CancelledError(LMCError):
    """A callback did not want to go on."""

    status, status_name = 12, "LMC_ERR_CANCELLED"


class ChangedError(LMCError):
    """What was to be saved has changed meanwhile."""

    status, status_name = 15, "LMC_ERR_CHANGED"


class FormatError(LMCError):
    """The input is not what this version reads: no LMC file, or one that needs something newer."""


class NotLMCError(FormatError):
    """No LMC file."""

    status, status_name = 20, "LMC_ERR_NOT_LMC"


class UnsupportedError(FormatError):
    """A version of the format or a feature that this version does not know."""

    status, status_name = 22, "LMC_ERR_UNSUPPORTED"


class CorruptError(LMCError):
    """The input breaks a rule of the format."""

    status, status_name = 24, "LMC_ERR_CORRUPT"


class TruncatedError(CorruptError, EOFError):
    """The input ends early."""

    status, status_name = 23, "LMC_ERR_TRUNCATED"


class ChecksumError(CorruptError):
    """A checksum does not match."""

    status, status_name = 25, "LMC_ERR_CHECKSUM"


class LostError(CorruptError):
    """These bytes are not in the damaged file any more."""

    status, status_name = 13, "LMC_ERR_LOST"


class BaseError(LMCError):
    """Something is wrong with the base of a delta."""


class MissingBaseError(BaseError):
    """A delta without its base."""

    status, status_name = 30, "LMC_ERR_BASE_MISSING"


class WrongBaseError(BaseError):
    """A base other than the one that the delta was made against."""

    status, status_name = 31, "LMC_ERR_BASE_WRONG"


_KINDS: dict[int, type[LMCError]] = {
    1: ArgumentError,
    2: OutputTooSmallError,
    5: ReadError,
    6: WriteError,
    7: NotFoundError,
    8: LimitError,
    9: LimitError,
    11: AmbiguousError,
    12: CancelledError,
    13: LostError,
    14: UnsupportedError,
    15: ChangedError,
    20: NotLMCError,
    21: UnsupportedError,
    22: UnsupportedError,
    23: TruncatedError,
    24: CorruptError,
    25: ChecksumError,
    30: MissingBaseError,
    31: WrongBaseError,
}


def make_error(
    status: int, status_name: str, text: str, where: object, what: object
) -> LMCError:
    if status == 23:
        text = "truncated: the data ends early, or something follows it; fetch or write the file again"
    if status == 30 and where is not None and str(where):  # what lies in memory has nothing beside it
        text += " (base='auto' looks for it beside the file)"
    parts = [str(x) for x in (where, what) if x is not None and str(x)]
    error = _KINDS.get(status, LMCError)(": ".join([*parts, text]))
    error.status = status
    error.status_name = status_name
    return error


_lmc.set_make_error(make_error)
