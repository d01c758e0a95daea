"""Directories of this machine, and of object stores by fsspec."""

from __future__ import annotations

import os
import posixpath
from typing import Any

from lmc_codec import LMCError

from ._core import printable


def is_url(place: str) -> bool:
    return "://" in place


def open_store(url: str, options: dict[str, Any] | None) -> tuple[Any, str]:
    """(a file system, the path in it)"""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise LMCError(printable("%s: python3 -m pip install fsspec, and what it needs for this protocol" % url)) from None
    store, root = url_to_fs(url, **(options or {}))
    return store, root.rstrip("/")


class Folder:
    """The files of a directory, by name. It is not read again."""

    def __init__(self, path: str, options: dict[str, Any] | None = None):
        self.path, self._store, self._root = path, None, path
        if is_url(path):
            self._store, self._root = open_store(path, options)
            self._store.invalidate_cache()
            names = [posixpath.basename(x["name"].rstrip("/")) for x in self._store.ls(self._root, detail=True) if x["type"] == "file"]
        else:
            names = os.listdir(path)
        self.names = sorted(names)

    def join(self, name: str) -> str:
        return posixpath.join(self.path, name) if self._store else os.path.join(self.path, name)

    def read(self, name: str) -> bytes:
        if self._store:
            return bytes(self._store.cat_file(posixpath.join(self._root, name)))
        with open(self.join(name), "rb") as file:
            return file.read()


def open_folder(path: str, options: dict[str, Any] | None = None) -> Folder | None:
    """None: it is a file. A URL is one if it ends as LMC or safetensors files do."""
    is_file = path.endswith((".lmc", ".safetensors")) if is_url(path) else not os.path.isdir(path)
    return None if is_file else Folder(path, options)
