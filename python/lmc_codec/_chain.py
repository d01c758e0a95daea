"""base="auto": finds the bases of a delta in its directory by their fingerprints, as the command does."""

from __future__ import annotations

import os
import stat

from . import _lmc
from ._base import BASE_KEY, Base
from ._errors import LMCError, MissingBaseError, NotLMCError
from ._sources import open_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than all of this
    from typing import Any

    from ._reader import Reader

SUFFIX = ".lmc"
MOST = 4  # bases that a message lists
FAR = 1 << 31  # from this depth on (DEPTH_LOOSE of store/) a chain ends in another directory


class _Link:
    """A snapshot that may be a base. What probe() finds is a hint, not checked."""

    def __init__(self, path: str):
        own = open_descriptor(path)
        found = os.fstat(own.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no file")
        self.path, self.file, self.depth = path, (found.st_dev, found.st_ino), FAR
        self.below: _Link | None = None  # its base
        self.fingerprint, self.base = _lmc.probe(own, found.st_size, path)[:2]


def _look_at(path: str) -> _Link | None:
    try:
        return _Link(path)
    except (OSError, LMCError, ValueError, OverflowError):
        return None


def _measure(links: list[_Link]) -> None:
    """Sets depth, the number of deltas between each link and a snapshot without a base, and the base of each."""
    bases = b"".join(x.base or bytes(16) for x in links)
    for link, (depth, below) in zip(links, _lmc.measure_chains(b"".join(x.fingerprint for x in links), bases)):
        link.depth, link.below = depth, None if below < 0 else links[below]


def _list_links(directory: str) -> dict[bytes, list[_Link]]:
    """The snapshots in a directory, by fingerprint."""
    names = sorted(x for x in os.listdir(directory or ".") if x.endswith(SUFFIX))
    links = [x for x in map(_look_at, (os.path.join(directory, x) for x in names)) if x is not None]
    _measure(links)
    result: dict[bytes, list[_Link]] = {}
    for link in links:
        result.setdefault(link.fingerprint, []).append(link)
    return result


def complete(delta: Reader, reader: type[Reader]) -> None:
    """Gives the delta its base, and each base that is a delta its own base. If one is not found, closes all of them.
    reader: the class, whose module needs this one."""
    chain: list[Any] = [delta]  # each is a delta against the next one
    try:
        search = _Search(delta, reader)
        while not isinstance(chain[-1], Base) and chain[-1].base_fingerprint is not None:
            chain.append(search.find(chain[-1]))
        for link, base in zip(chain[-2::-1], chain[:0:-1]):
            link._begin(base)
    except BaseException:
        for link in chain:
            if not isinstance(link, Base):
                link.close()
        raise


class _Search:
    def __init__(self, delta: Reader, reader: type[Reader]):
        self.reader = reader
        self.options: dict[str, Any] = {name: delta._how[2][name] for name in ("threads", "storage_options")}
        self.links: dict[str, dict[bytes, list[_Link]]] = {}  # by directory and fingerprint: chains may be long
        self.used: set[Any] = set()  # no file is used twice, so no chain is a circle

    def find(self, delta: Reader) -> Reader | Base:
        if delta.name is None or not isinstance(delta._how[0], (str, os.PathLike)):
            raise ValueError("base='auto' looks beside a file: give its path or URL, or the base itself")
        made_with = os.fsdecode(delta.metadata.get(BASE_KEY, b""))
        name = made_with if os.path.basename(made_with) == made_with and made_with not in (".", "..") and "\0" not in made_with else ""
        self.seen: list[str] = []
        self.why = ""
        found = self._find_far(delta, name) if "://" in delta.name else self._find_near(delta, name)
        if found is not None:
            return found
        wanted = (delta.base_fingerprint or b"").hex()[:16]
        named = f" (named {made_with!r} when this delta was made)" if made_with else ""
        more = f" and {len(self.seen) - MOST} more" if len(self.seen) > MOST else ""
        seen = f", only {', '.join(self.seen[:MOST])}{more}" if self.seen else ""
        raise MissingBaseError(f"{delta.name}: needs the base {wanted}{named}, which is not beside it{seen or self.why}; give base=")

    def _find_near(self, delta: Reader, name: str) -> Reader | Base | None:
        """Searches the snapshots of the directory, and the file whose name the delta's metadata has."""
        path = os.fsdecode(delta.name or "")
        directory = os.path.dirname(path)
        if directory not in self.links:
            self.links[directory] = _list_links(directory)
        links = self.links[directory]
        named = os.path.join(directory, name)
        other = _look_at(named) if name and not name.endswith(SUFFIX) and named not in self.used else None
        self.used.add(named)
        if other is not None:
            links.setdefault(other.fingerprint, []).append(other)
        found = os.stat(path)
        own = found.st_dev, found.st_ino
        self.used.add(own)

        def order(link: _Link) -> tuple[int, bool]:  # the shortest chain first
            return link.depth, link.path != named

        fitting = [x for x in links.get(delta.base_fingerprint or b"", ()) if x.file not in self.used]
        nearest = min(fitting, key=order, default=None)
        if nearest is not None and nearest.depth < FAR:
            return self.reader(nearest.path, **self.options)
        seen = sorted((x for same in links.values() for x in same if x.file != own), key=order)
        self.seen += [f"{x.path} ({x.fingerprint.hex()[:16]})" for x in seen]
        # this comes before a chain that leaves the directory, because such a chain may lead back
        for file in (named, named.removesuffix(SUFFIX)) if nearest is None else (named,):
            base = Base._of_safetensors(file, self.options["threads"]) if name and os.path.isfile(file) else None
            if base is not None and base.fingerprint == delta.base_fingerprint:
                return base
            if base is not None:
                self.seen.append(f"{file} ({base.fingerprint.hex()[:16]})")
        return None if nearest is None else self.reader(nearest.path, **self.options)

    def _find_far(self, delta: Reader, name: str) -> Reader | Base | None:
        """Tries the URL of that name in the same place: directories of servers cannot be listed."""
        url = delta.name or ""
        if url.startswith(("http://", "https://")):
            from urllib.parse import quote

            url, name = url.partition("#")[0].partition("?")[0], quote(name)
        place = f"{url.rpartition('/')[0]}/{name}"
        self.used.add(delta.name)
        if not name or "::" in url or place in self.used:
            return None
        found: Reader | Base | None
        try:
            found = self.reader(place, **self.options)
        except (FileNotFoundError, PermissionError) as error:
            self.why = f": {place}: {error.strerror or error}"
            return None
        except NotLMCError as error:
            found = Base._of_safetensors(place, **self.options) if error.is_safetensors else None
            if found is None:
                self.why = f": {error}"
                return None
        if found.fingerprint == delta.base_fingerprint:
            return found
        self.seen.append(f"{place} ({found.fingerprint.hex()[:16]})")
        if not isinstance(found, Base):
            found.close()
        return None
