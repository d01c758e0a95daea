"""A class for each kind of error, with the library's text."""

from __future__ import annotations

import sys

from . import _lmc
from ._lmc import printable

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any


class _Root(Exception):
    """A base class that SafetensorError replaces, if safetensors is loaded. Python allows this for equal layouts."""


class LMCError(_Root):
    """An error of the library. `status` is its number and `status_name` its name in C; those of its class if no call of the
    C library failed.

    If safetensors is loaded, it is a SafetensorError, too. So code that only changes the import line still catches it.

    Its text is shown without control characters, which names from files may have. A text of this package is one line, so a line
    end in it is of a name, and is escaped when the error is made. Others may raise the class again with lines of their own, as
    PyTorch does with the traceback of a worker, and these stay lines."""

    status: int = 0
    status_name: str = ""

    def __init_subclass__(cls, status: int = 0, also: tuple[int, ...] = ()) -> None:
        """status: of the class; also: other statuses that are raised as this class."""
        if status:
            cls.status, cls.status_name = status, _lmc.status_name(status)
            _KINDS.update(dict.fromkeys((status, *also), cls))

    def __new__(cls, *args: Any) -> LMCError:
        if LMCError.__base__ is _Root and "safetensors" in sys.modules:
            _become_theirs(sys.modules["safetensors"])
        return super().__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if args and _is_ours(sys._getframe(1)):
            self.args = printable(args[0]), *args[1:]

    def __str__(self) -> str:  # KeyError would quote it
        return "\n".join(map(printable, str(self.args[0]).split("\n"))) if self.args else ""


_KINDS: dict[int, type[LMCError]] = {}


def _is_ours(frame: Any) -> bool:
    """Whether it is a function of this package or of its adapters."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("lmc_codec", "lmc_integrations")


def _become_theirs(safetensors: Any) -> None:
    theirs = getattr(safetensors, "SafetensorError", None)
    if isinstance(theirs, type) and theirs.__base__ is Exception:
        LMCError.__bases__ = (theirs,)


class ArgumentError(LMCError, ValueError, status=1):
    """Arguments that contradict each other or are out of range, or calls out of order."""


class OutputTooSmallError(LMCError, ValueError, status=2):
    """`out` has no room for the result."""


class ReadError(LMCError, OSError, status=5):
    """Reading failed; for example, the file has become shorter."""


class WriteError(LMCError, OSError, status=6):
    """Writing failed."""


class NotFoundError(LMCError, KeyError, status=7):
    """No such file, tensor, metadata entry or hash."""


class AmbiguousError(LMCError, KeyError, status=11):
    """Several tensors have that name: if they are in different files, say which file."""


class LimitError(LMCError, status=8, also=(9,)):
    """Over a limit of the format, of this machine, or of the caller."""


class SliceError(LMCError, IndexError):
    """An index that the tensor does not have."""


class CancelledError(LMCError, status=12):
    """A callback, or abort(), ended the call."""


class ChangedError(LMCError, status=15):
    """The data changed while it was saved."""


class FormatError(LMCError):
    """This version cannot read the input: it is no LMC file, or needs a newer version."""


class DeviceError(LMCError, RuntimeError, status=16):
    """No GPU, driver or NVRTC for decode="gpu" (experimental), or one of them failed."""


class NotLMCError(FormatError, status=20):
    """No LMC file."""

    is_safetensors = False  # True: the file is a safetensors file


class UnsupportedError(FormatError, status=22, also=(14, 21)):
    """A version of the format or a feature that this version does not know."""


class CorruptError(LMCError, status=24):
    """The input breaks a rule of the format."""


class TruncatedError(CorruptError, EOFError, status=23):
    """The input ends early."""


class ChecksumError(CorruptError, status=25):
    """A checksum does not match."""


class LostError(CorruptError, status=13):
    """These bytes are not in the damaged file any more."""


class BaseError(LMCError):
    """Something is wrong with the base of a delta."""


class MissingBaseError(BaseError, status=30):
    """A delta without its base."""


class WrongBaseError(BaseError, status=31):
    """A base other than the one that the delta was made against."""


def make_error(status: int, status_name: str, text: str, where: object, what: object) -> LMCError:
    if status == ArgumentError.status:  # the library's text is for programs in C
        text = "the arguments contradict each other or are out of range, or calls are out of order"
    if status == TruncatedError.status:
        text = "truncated: the data ends early, or something follows it; fetch or write the file again"
    if status == MissingBaseError.status and where is not None and str(where):  # data in memory has no directory to search
        text += " (base='auto' looks for it beside the file)"
    parts = [str(x) for x in (where, what) if x is not None and str(x)]
    error = _KINDS.get(status, LMCError)(": ".join([*parts, text]))
    error.status, error.status_name = status, status_name
    return error


_lmc.set_make_error(make_error)
