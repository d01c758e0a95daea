"""Releases of other projects. Each adapter imports all that it uses of its host within `with Host(...)`, which also compares
signatures. So the next release of a host either has what the adapter uses, and then the adapter loads, or the error says
what has changed.

    with Host("zarr", "zarr") as host:
        from zarr.abc.codec import BytesBytesCodec
        host.calls(BytesBytesCodec.method, "chunk", "spec=")      # one argument by position, one by its name

    @host.extends
    class LMCCodec(BytesBytesCodec): ...                          # its methods take what the host passes
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    Class = TypeVar("Class", bound=type)

#: Name of the distribution -> minor releases with which all tests passed: "5.23" means all versions that begin with "5.23.".
TESTED = {
    "lightning": ("2.6",),
    "miles": ("0.1",),
    "modelexpress": ("0.7",),
    "nemo-rl": ("0.6",),
    "torch": ("2.13",),
    "transformers": ("5.18", "5.19", "5.20", "5.21", "5.22", "5.23", "5.24"),
    "verl": ("0.9",),
    "vllm": ("0.33",),
    "zarr": ("3.1", "3.4"),
}

#: Name of the distribution -> release that failed, as in TESTED -> why. Those that lack what an adapter uses need no entry.
FAILED: dict[str, dict[str, str]] = {}

_said: set[str] = set()


class Host:
    """Raises ImportError if the release that is installed failed, or lacks what the adapter uses. If it was not tested,
    one line in the log "lmc_integrations" says so."""

    def __init__(self, name: str, adapter: str):
        self.name, self.adapter = name, f"lmc_integrations.{adapter}"

    def __enter__(self) -> Self:
        tested = ", ".join(TESTED[self.name])
        try:
            version = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            raise ImportError(f"{self.adapter} needs {self.name} {tested}, which is not installed") from None
        release = ".".join(re.split(r"[.+-]", version)[:2])
        self.is_tested = release in TESTED[self.name]
        self.said = f"{self.adapter} was tested with {self.name} {tested}; {self.name} {version} is installed"
        if release in FAILED.get(self.name, ()):
            raise ImportError(f"{self.said}, with which it does not work: {FAILED[self.name][release]}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, (ImportError, AttributeError)) and not isinstance(error, _Changed):
            raise _Changed(f"{self.said}, where something that it uses cannot be imported: {error}") from error
        if error is None and not self.is_tested and self.said not in _said:
            _said.add(self.said)
            logging.getLogger(__package__).warning("%s, which was not tested", self.said)

    def calls(self, function: Any, *arguments: str) -> None:
        """The adapter calls the function of the host with these arguments: by position, or "name=" by name. "_" at a
        position stands for any name."""
        self._require(function, not _refuses(function, *arguments), f"is not called with ({', '.join(arguments)})")

    def extends(self, ours: Class) -> Class:
        """A decorator: what methods of our class replace in classes of the host is called by the host."""
        missing = sorted(getattr(ours, "__abstractmethods__", ()))
        self._require(ours, not missing, f"lacks what its base class wants: {', '.join(missing)}")
        for method, theirs, own in find_overridden(ours):
            self._require(theirs, _takes_all(own, theirs), f"has other parameters, ({', '.join(_parameters(theirs))}), in {method}")
        return ours

    def _require(self, what: Any, is_met: bool, why: str) -> None:
        if not is_met and not self.is_tested:
            name = f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', what)}".lstrip(".")
            raise _Changed(f"{self.said}, where {name} {why}")


class _Changed(ImportError):
    pass


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C says nothing
        return {name: inspect.Parameter(name, kind) for name, kind in (("args", _ARGS), ("kwargs", _KWARGS))}


_ARGS, _KWARGS, _BY_NAME = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def _by_position(parameters: dict[str, inspect.Parameter]) -> list[str]:
    return [name for name, x in parameters.items() if x.kind not in (_ARGS, _KWARGS, _BY_NAME)]


def _refuses(function: Any, *arguments: str) -> bool:
    """Whether a call with these arguments raises TypeError, or an argument by position has another name there."""
    parameters = _parameters(function)
    by_name = [x[:-1] for x in arguments if x.endswith("=")]
    by_position = [x for x in arguments if not x.endswith("=")]
    try:
        inspect.Signature(list(parameters.values())).bind(*by_position, **dict.fromkeys(by_name))
    except TypeError:
        return True
    return any(wanted not in ("_", name) for wanted, name in zip(by_position, _by_position(parameters)))


def _takes_all(ours: Any, theirs: Any) -> bool:
    """Whether our function can be called in each way in which theirs can."""
    own, parameters = _parameters(ours), _parameters(theirs)
    kinds = {x.kind for x in own.values()}
    for at, (name, x) in enumerate(parameters.items()):
        if x.kind in (_ARGS, _KWARGS):
            return True  # what it takes is not said
        is_named = (name in own and own[name].kind is not _ARGS) or _KWARGS in kinds
        is_there = x.kind is _BY_NAME or _ARGS in kinds or _by_position(own)[at : at + 1] == [name]
        if not (is_named or x.kind is inspect.Parameter.POSITIONAL_ONLY) or not is_there:
            return False
    required = {name for name, x in own.items() if x.default is x.empty and x.kind not in (_ARGS, _KWARGS)}
    return required <= parameters.keys()


def find_overridden(ours: type) -> list[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """(name, the host's method, ours) of the methods that classes of this package replace; not of constructors, which the
    host does not call."""
    found = []
    for name in dir(ours):
        places = [x for x in ours.__mro__ if name in vars(x) and x is not object]
        if places and places[0].__module__.startswith(f"{__package__}.") and not name.startswith("__"):
            theirs = [x for x in places if not x.__module__.startswith(f"{__package__}.")]
            if theirs and callable(getattr(ours, name)):
                found.append((name, getattr(theirs[0], name), getattr(ours, name)))
    return found
