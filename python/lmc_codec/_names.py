"""What files, tensors and metadata of a snapshot may be called (spec 4.1): said here, where it is known what is wrong."""

from __future__ import annotations

from ._errors import ArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIZE = 65535


def _check_size(text: str, what: str) -> None:
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > MAX_SIZE:
        raise ArgumentError(f"{what} {text[:40]!r}... has {size} bytes: at most {MAX_SIZE} are possible")
    if "\0" in text:
        raise ArgumentError(f"{what} {text!r} has a zero byte")


def check_path(path: str) -> None:
    if not isinstance(path, str):
        raise TypeError(f"a path in the snapshot is a string, not {path!r}")
    _check_size(path, "the path")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ArgumentError(
            f"{path!r} cannot be a path in the snapshot: it is relative, its parts have / between them, and none of them is"
            " empty, '.' or '..'",
        )


def check_names(names: Iterable[str]) -> None:
    for name in names:
        check_name(name)
        _check_size(name, "the name")


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name must be a string, not {name!r}")


def check_key(key: str, keys: set[str]) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key of metadata is a string, not {key!r}")
    _check_size(key, "the key")
    if not key or key.startswith("lmc."):
        raise ArgumentError(f"{key!r} cannot be a key of metadata: it is empty, or begins with 'lmc.', which is the format's")
    if key in keys:
        raise ArgumentError(f"the metadata have {key!r} already")
