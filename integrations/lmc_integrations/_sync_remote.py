"""Versions of weight sync in an object store, by fsspec. The index of a version is written last, so whoever sees it sees all
of the version: no store needs to rename anything."""

from __future__ import annotations

import os
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._stores import open_store
from ._sync_codecs import SyncError
from ._sync_files import INDEX
from ._sync_versions import CHECKSUMS_FILE, LAYOUTS, MANIFEST, read_version

LAST = (INDEX, MANIFEST, "model.safetensors")  # what marks a finished version, as in find_versions()
AT_ONCE = 8


def upload(version_dir: str | os.PathLike[str], url: str, *, storage_options: dict[str, Any] | None = None) -> str:
    """Copies a version that publish() has written to a store: URL/weight_v000002/. Its index comes last. Returns the URL of the copy.
    A copy that was interrupted can be repeated."""
    path = os.path.normpath(os.fspath(version_dir))
    name = os.path.basename(path)
    if not any(re.fullmatch(pattern, name) for _, pattern, _ in LAYOUTS.values()):
        raise SyncError("%s is not the directory of a version" % path)
    store, root = open_store(url, storage_options)
    files = sorted(os.listdir(path))
    last = [next(file for file in LAST if file in files)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in ([file for file in files if file not in last], last):
            list(pool.map(lambda file: store.put_file(os.path.join(path, file), posixpath.join(root, name, file)), some))
    return posixpath.join(url, name)


def fetch(url: str, options: dict[str, Any] | None, mirror: str, have: int | None, target: int | None) -> None:
    """Copies the versions that lead from `have` to the target (None: the newest) to a new directory: from the target down to a
    full version, or to the one after `have`. Of `have` itself only what says which version it is."""
    store, root = open_store(url, options)
    os.mkdir(mirror)
    store.invalidate_cache()
    try:
        remote = {number: path for path in store.ls(root, detail=False) for number in [match(posixpath.basename(path.rstrip("/")))] if number is not None}
    except FileNotFoundError:
        raise SyncError("%s is not a directory" % url) from None
    number = target
    if number is None:
        number = next((n for n in sorted(remote, reverse=True) if list_files(store, remote[n])), None)
    if have is not None and have in remote:
        download(store, remote[have], mirror, [x for x in list_files(store, remote[have]) if x in (INDEX, MANIFEST, CHECKSUMS_FILE)])
    while number is not None and number in remote and (have is None or number > have):
        files = list_files(store, remote[number])
        number = read_version(number, download(store, remote[number], mirror, files)).base if files else None


def match(name: str) -> int | None:
    return next((int(found[1]) for _, pattern, _ in LAYOUTS.values() if (found := re.fullmatch(pattern, name))), None)


def list_files(store: Any, path: str) -> list[str]:
    """Names of the files of a version; none, if it is not finished."""
    files = [posixpath.basename(x["name"]) for x in store.ls(path, detail=True) if x["type"] == "file"]
    return files if any(file in LAST for file in files) else []


def download(store: Any, remote: str, mirror: str, files: list[str]) -> str:
    path = os.path.join(mirror, posixpath.basename(remote.rstrip("/")))
    os.mkdir(path)

    def get(file: str) -> None:
        try:
            store.get_file(posixpath.join(remote, file), os.path.join(path, file))
        except FileNotFoundError:
            raise SyncError("%s is missing: it was there, and was removed" % os.path.join(path, file)) from None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(get, files))
    return path
