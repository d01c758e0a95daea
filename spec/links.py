"""Links of a directory (links.md). SPDX-License-Identifier: MIT"""
import filecmp
import os

from lmc_decode import REGULAR, require

MAX_SIZE = 65535


def links_of(value, files):
    """The links in a value of lmc.links, as (b"s" or b"h", Path, Target); refuses values that break a rule."""
    links, contents = [], {file.path: file for file in files}
    require(value[-1:] in (b"", b"\0") and value.count(b"\0") % 2 == 0, "lmc.links ends within a link (L-1)")
    parts = value.split(b"\0")[:-1]
    for head, target in zip(parts[0::2], parts[1::2]):
        kind, path = head[:1], head[1:]
        require(kind in (b"s", b"h"), "Type of a link (L-1)")
        require(1 <= len(path) <= MAX_SIZE and 1 <= len(target) <= MAX_SIZE, "size of a Path or Target (L-2)")
        for name in [path] + [target] * (kind == b"h"):
            require(not {b"", b".", b".."} & set(name.split(b"/")), "Path of a link (L-3)")
        require(not links or links[-1][1] < path, "links do not ascend (L-4)")
        links.append((kind, path, target))
    for kind, path, target in links:
        if kind == b"h":
            pair = [contents.get(name) for name in (path, target)]
            require(all(pair) and path != target and pair[0].kind == pair[1].kind == REGULAR and pair[0].crc == pair[1].crc and
                    pair[0].size == pair[1].size, "a hard link of two that are not one (L-5)")
    check_places({path for kind, path, _ in links if kind == b"s"}, contents)
    return links


def check_places(symbolic, contents):
    """If "/" sorts before all other bytes, paths below a path are directly behind it."""
    require(not symbolic & contents.keys(), "a symbolic link where a file is (L-6)")
    def key(path):
        return path.replace(b"/", b"\0")

    places = sorted([*contents, *symbolic], key=key)
    for above, below in zip(places, places[1:]):
        if key(below).startswith(key(above) + b"\0"):
            require(above not in symbolic, "something below a symbolic link (L-7)")
            require(above == b"" or contents[above].kind != REGULAR, "a symbolic link below a file (L-6)")


def make_links(root, value, files):
    """root: a new and private directory with all files. No link is made below another one, so none is followed (L-9)."""
    for kind, path, target in links_of(value, files):
        full = os.path.join(root, path)
        if kind == b"h":
            require(filecmp.cmp(full, os.path.join(root, target), shallow=False), "a hard link of two that are not one (L-5)")
            os.remove(full)
            os.link(os.path.join(root, target), full)
        else:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            os.symlink(target, full)
