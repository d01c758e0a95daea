"""weight_sync.receive(): updates a local checkpoint to another version."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from ._core import printable
from ._stores import is_url
from ._sync_codecs import SyncCorrupt, SyncError, SyncReadError, SyncWrongBase, make_digest, xxh3
from ._sync_files import (
    INDEX,
    STATE_DIR,
    Checkpoint,
    File,
    Scratch,
    Tensor,
    copy_file,
    copy_shard,
    list_files,
    lock_file,
    make_name,
    mark,
    read_json,
    run_all,
    sync,
    write_json,
)
from ._sync_pieces import View, cut
from ._sync_remote import fetch
from ._sync_report import Clock, Report
from ._sync_versions import CHECKSUMS_FILE, Version, find_digest, find_versions, read_digest, read_number, read_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes, Codec

Sums = dict[str, str]  # xxh3-128 of each tensor

T = TypeVar("T")


class Request(NamedTuple):
    """The arguments of weight_sync.receive()."""

    sync_dir: str
    local_dir: str
    version: int | None
    base: str | None
    threads: int
    storage_options: dict[str, Any] | None = None  # of fsspec, if sync_dir is a URL
    before_read: Callable[[str, int | None], object] | None = None


def receive_and(args: Request, use: Callable[[int, Report], T]) -> T:
    """Brings args.local_dir to a version, and returns use(the version, a report). Meanwhile no other receiver changes the
    directory, if its file system has locks."""
    if not args.before_read:
        check_directory(args.sync_dir, "")
    state_dir = os.path.join(args.local_dir, STATE_DIR)
    os.makedirs(state_dir, exist_ok=True)
    with open(os.path.join(state_dir, "lock"), "a") as lock:
        is_locked = lock_file(lock, wait=True)
        clock = Clock("read", "apply", "write")
        version, said, metrics, changed = bring(args, state_dir, is_locked, clock)
        metrics = {"version": version, **metrics, "tensors_changed": len(changed), "seconds": clock.seconds()}
        return use(version, Report("\n".join(map(printable, said)), changed, metrics))


def receive(args: Request) -> Report:
    return receive_and(args, lambda version, said: said)


def receive_open(args: Request) -> Checkpoint:
    """Opens the local checkpoint at the version to which it was brought. Later receivers do not change what is open."""

    def open_it(version: int, said: Report) -> Checkpoint:
        local = Checkpoint(args.local_dir)
        if read_number(args.local_dir, local.state, "version") != version:
            local.close()
            raise SyncReadError("%s: another process received version %s there, without a lock: repeat this" % (args.local_dir, local.state["version"]))
        return local

    return receive_and(args, open_it)


def bring(args: Request, state_dir: str, is_locked: bool, clock: Clock) -> tuple[int, list[str], dict[str, Any], list[str]]:
    """(the version, what to say, metrics, the tensors that the deltas change)"""
    state_path, said = os.path.join(state_dir, "state.json"), list[str]()
    state = read_json(state_path) or {}
    if "commit" in state:
        said.append("%s: at version %d: finished what a killed receive had begun" %
                    (args.local_dir, commit(args.local_dir, state_dir, state)))
        state = read_json(state_path) or {}
    have = read_number(state_path, state, "version") if state else None
    if is_locked and clean(state_dir):
        said.append("%s: a killed receive had changed nothing yet" % args.local_dir)
    if have is None and list_files(args.local_dir):
        raise SyncError("%s holds files, and no %s says which version: name an empty directory" % (args.local_dir, state_path))
    if args.before_read:
        with clock.phase("before_read"):
            args.before_read(args.sync_dir, args.version)
        check_directory(args.sync_dir, ": before_read brought nothing, of %s" % ("any version" if args.version is None else "version %d" % args.version))
    if not is_url(args.sync_dir):
        return bring_from(args, state_dir, state, have, said, clock)
    mirror = os.path.join(state_dir, "stage-%s-remote" % make_name())
    try:
        with clock.phase("read"):
            fetch(args.sync_dir, args.storage_options, mirror, have, args.version)
        version, said, metrics, changed = bring_from(args._replace(sync_dir=mirror), state_dir, state, have, said, clock)
        return version, [line.replace(mirror, args.sync_dir) for line in said], metrics, changed
    except SyncError as error:
        raise type(error)(str(error).replace(mirror, args.sync_dir)) from None
    finally:
        shutil.rmtree(mirror, ignore_errors=True)


def check_directory(sync_dir: str, why: str) -> None:
    if not is_url(sync_dir) and not os.path.isdir(sync_dir):
        raise SyncError("%s is not a directory%s" % (sync_dir, why))


def bring_from(args: Request, state_dir: str, state: dict[str, Any], have: int | None, said: list[str],
               clock: Clock) -> tuple[int, list[str], dict[str, Any], list[str]]:
    """The same, from a directory of this machine. state, have: of the local checkpoint, in which nothing is left to be done."""
    stage, state_path = os.path.join(state_dir, "stage-" + make_name()), os.path.join(state_dir, "state.json")
    versions = find_versions(args.sync_dir)
    target = max(versions, default=0 if have is None else have) if args.version is None else args.version
    if have is not None and target < have:
        raise SyncError("%s is at version %d, which is newer than %d: to go back, or where numbers began anew, receive into an empty directory" %
                      (args.local_dir, have, target))
    full, links = find_chain(args, versions, have, target)
    is_local = have is not None and full is None
    if have is not None and is_local:
        check_there(args.local_dir, state, have)
    begin_dir = full.path if full else args.local_dir if is_local else args.base or ""  # find_chain has checked args.base
    with ThreadPoolExecutor(args.threads) as pool, Checkpoint(begin_dir) as begin:
        sums: Sums = {}
        if have is not None and is_local:
            sums, complete = identify(begin, state_path, state, have, pool)
            check_number(args.local_dir, [complete["digest"], complete.get("published")], have, versions)
            if have == target:
                if state != complete:
                    write_json(state_path, complete)
                return target, [*said, "%s: at version %d already" % (args.local_dir, have)], {"from_version": have, "versions": 0, "bytes_received": 0}, []
            state = complete
        try:
            after = make_stage(args, stage, begin, sums, full, links, pool, clock)
            keep = None if is_local else set(list_files(begin_dir))
            remove = [f for f in list_files(args.local_dir) if keep is not None and f not in keep and (f.endswith(".safetensors") or f == INDEX)]
            state["commit"] = {**after, "version": "%06d" % target, "remove": remove, "stage": os.path.basename(stage)}
            write_json(state_path, state)
        except BaseException:
            if ((read_json(state_path) or {}).get("commit") or {}).get("stage") != os.path.basename(stage):
                shutil.rmtree(stage, ignore_errors=True)
            raise
        changed = sorted({t.name for t in begin.tensors.values() if any(name in link.payloads for link, view in zip(links, make_views(begin, links))
                                                                        for name, _ in view.names[t.name])} if is_local else begin.tensors)
    with clock.phase("write"):
        commit(args.local_dir, state_dir, state)
    metrics = {"from_version": have if is_local else None, "versions": len(links) + (full is not None),
               "bytes_received": sum(t.size for link in links for t in link.payloads.values()) + (begin.size if full else 0)}
    source = "version %s" % have if is_local else begin_dir
    said.append("%s: version %d, from %s by %d delta%s" % (args.local_dir, target, source, len(links), "s" * (len(links) != 1)))
    return target, said, metrics, changed


def check_there(local_dir: str, state: dict[str, Any], have: int) -> None:
    """Raises if files of the local checkpoint are gone. A state of other programs does not name them."""
    there, files = list_files(local_dir), state.get("files")
    gone = sorted(set(files) - set(there)) if isinstance(files, dict) else []
    if gone or not any(file.endswith(".safetensors") for file in there):
        raise SyncWrongBase("%s: %s of version %d, which was received there, gone: remove this directory, with %s in it, and receive again" %
                            (local_dir, "%s is" % ascii(gone[0]) if len(gone) == 1 else "the files are", have, STATE_DIR))


def identify(local: Checkpoint, state_path: str, state: dict[str, Any], have: int, pool: ThreadPoolExecutor) -> tuple[Sums, dict[str, Any]]:
    """(the checksums of the local checkpoint's tensors, a complete state). They are those of the state as long as size, time
    and inode of each file are as receive has left them; otherwise all is read, and must have the digest of the state. If the
    state has none, another program wrote it, and what is there is taken for that version."""
    digest, sums, pieces = read_digest(state_path, state, "digest"), state.get("checksums"), state.get("pieces")
    marks = {os.path.basename(path): mark(shard.status) for path, shard in local.shards.items()}
    if digest is None or state.get("files") != marks or not isinstance(sums, dict) or set(sums) != set(local.tensors):
        scratch = Scratch()
        found = run_all(pool, lambda t: xxh3(local.read_into(scratch.take("sum", t.size), t)), local.tensors.values())
        sums = dict(zip(local.tensors, found))
        local.check_unchanged()
    if digest not in (None, make_digest(local.tensors, sums)):
        before = state.get("checksums")
        other = sorted(n for n, s in sums.items() if isinstance(before, dict) and before.get(n) != s)
        raise SyncWrongBase("%s was changed after version %d was received%s: receive into an empty directory" %
                            (local.directory, have, ", e.g. tensor %s" % ascii(other[0]) if other else ""))
    if digest is None or not isinstance(pieces, dict):
        return sums, make_state(have, local.tensors, sums, marks)
    return {**pieces, **sums}, make_state(have, local.tensors, sums, marks, pieces, read_digest(state_path, state, "published"))


def make_state(version: int, tensors: dict[str, Tensor], sums: Sums, marks: dict[str, list[int]], pieces: Sums | None = None,
               published: str | None = None) -> dict[str, Any]:
    """What state.json says. SGLang reads and writes only the version. pieces: checksums, if the version was published in pieces, and
    then its digest, which is of them."""
    state = {"version": "%06d" % version, "digest": make_digest(tensors, sums), "checksums": {name: sums[name] for name in tensors}, "files": marks}
    return {**state, "pieces": pieces, "published": published} if published else state


def check_number(local_dir: str, digests: list[str | None], have: int, versions: dict[int, str]) -> None:
    """The number of a version does not say what it is: after a restart a publisher may use it again."""
    published = find_digest(versions[have]) if have in versions else None
    if published not in (None, *digests):
        raise SyncWrongBase("%s is at another version %d than %s: numbers began anew, or it was changed; receive into an empty directory" %
                            (local_dir, have, versions[have]))


def find_chain(args: Request, versions: dict[int, str], have: int | None, target: int) -> tuple[Version | None, list[Version]]:
    """(the full version to begin with, or None; the deltas from there or the local version to the target)."""
    links: list[Version] = []
    number = target
    while number != have:
        if have is not None and number < have:
            raise SyncWrongBase("out of order: version %d builds on version %d, and %s is at %d" % (links[0].number, number, args.local_dir, have))
        if number == 0:
            if not args.base:
                raise SyncWrongBase("the deltas begin at version 0, the engine's own model: name it with --base")
            return None, links
        if number not in versions:
            wanted_by = ", and version %d builds on it" % links[0].number if links else ""
            raise SyncWrongBase("version %d is missing in %s%s" % (number, args.sync_dir, wanted_by))
        version = read_version(number, versions[number])
        if version.base is None:
            return version, links
        links.insert(0, version)
        number = version.base
    return None, links


def make_stage(args: Request, stage: str, begin: Checkpoint, sums: Sums, full: Version | None, links: list[Version], pool: ThreadPoolExecutor,
               clock: Clock) -> dict[str, Any]:
    """Writes the files that differ from the local checkpoint to the stage. sums: the checksums of what is in begin, if it is
    the local checkpoint. Returns what the state will say of digest, checksums and files."""
    is_local, scratch = bool(sums), Scratch()
    views = [View(begin.tensors, {}), *make_views(begin, links)]
    check_tensors(begin, full, links, views)
    first = make_digest(begin.tensors, sums) if is_local else full.digest if full else None
    known = zip([first, *(link.digest for link in links)], views, views[1:])  # before all is decoded
    check_bases(begin, links, [digest if a.names == b.names else None for digest, a, b in known])
    os.mkdir(stage)
    marks = {}
    with contextlib.ExitStack() as stack:
        files = {p: File(p) for p in {t.path for link in links for t in link.payloads.values()}}
        for f in files.values():
            stack.enter_context(f.raw)
        chain = Chain(begin, full, links, views, sums, [{} for _ in views], lambda t: files[t.path].read(t.offset, t.size), clock)
        for file in list_files(begin.directory):
            path, made = os.path.join(begin.directory, file), os.path.join(stage, file)
            if full and os.path.islink(path): # publish() writes no links; a link might lead anywhere
                raise SyncCorrupt("%s is a link" % path)
            shard = begin.shards.get(path)
            if shard and is_local and not any(map(chain.changes, shard.tensors)):
                marks[file] = mark(shard.status)
                run_all(pool, lambda t: chain.keep(t, scratch), shard.tensors)
            elif shard:
                head = copy_shard(shard, made, pool, scratch, chain.make, clock)
                if full and full.checksum and full.checksum(head) != full.others.get(file):
                    raise SyncCorrupt("%s: its header has another checksum" % path)
                marks[file] = mark(os.stat(made))
            elif not is_local and file != CHECKSUMS_FILE:
                checksum = copy_file(path, made, full.checksum if full else None)
                if full and full.checksum and full.others.get(file, checksum) != checksum:
                    raise SyncCorrupt("%s has another checksum" % path)
    chain.check_digests()
    sync(stage)
    sync(os.path.dirname(stage)) # before state.json names it
    last = chain.sums[-1]
    pieces = {name: last[name] for name in views[-1].tensors if name not in begin.tensors}
    return make_state(0, begin.tensors, last, marks, pieces, make_digest(views[-1].tensors, last) if pieces else None)


def make_views(begin: Checkpoint, links: list[Version]) -> list[View]:
    views: list[View] = []
    for i, link in enumerate(links):
        try:
            views.append(views[-1] if i and link.pieces == links[i - 1].pieces else View(begin.tensors, link.pieces))
        except ValueError as error:
            raise SyncWrongBase("version %d and %s: %s" % (link.number, begin.directory, error))
    return views


def check_tensors(begin: Checkpoint, full: Version | None, links: list[Version], views: list[View]) -> None:
    for link, view in zip(links, views[1:]):
        other = sorted(set(link.payloads) - set(view.tensors))
        if other:
            raise SyncWrongBase("version %d has tensor %s, and %s has not" % (link.number, ascii(other[0]), begin.directory))
    for shard in begin.shards.values() if full else (): # a delta has checksums there
        if set(shard.metadata) & set(begin.tensors):
            raise SyncCorrupt("%s holds the payloads of a delta, and its index does not say so" % shard.path)
    if full and full.checksums and set(full.checksums) != set(begin.tensors):
        raise SyncCorrupt("%s: tensors and checksums are not the same" % full.path)


class Chain(NamedTuple):
    """All payloads that lead from the checkpoint at begin to the target, in order. views: how begin and each link name tensors, whole
    or in pieces. sums: the checksums at begin, and after each link, by the names of that view and of the next link's."""

    begin: Checkpoint
    full: Version | None
    links: list[Version]
    views: list[View]
    known: Sums
    sums: list[Sums]
    read_payload: Callable[[Tensor], Bytes]
    clock: Clock

    def make(self, t: Tensor, out: Bytes) -> None:
        """Makes a tensor of the target in out. After each version the checksum of the bytes in out is compared."""
        with self.clock.phase("read"):
            self.begin.read_into(out, t)
        known, is_checked = self.known.get(t.name), any(t.name in link.payloads for link in self.links)
        digest = known if known and is_checked else xxh3(out)  # of what a payload changes, the result is checked
        if known not in (None, digest):
            raise SyncWrongBase("%s was changed after it was received, e.g. tensor %s: receive into an empty directory" %
                                (self.begin.directory, ascii(t.name)))
        if self.full and not self.full.check(t.name, out, digest):
            raise SyncCorrupt("version %d, tensor %s: wrong checksum" % (self.full.number, ascii(t.name)))
        have = self.record(0, t, out, {**{name: self.known[name] for name in self.names(t) & self.known.keys()}, t.name: digest})
        is_changed = False
        for i, link in enumerate(self.links):
            new: Sums = {}
            for name, box in self.views[i + 1].names[t.name]:
                if name in link.payloads and link.codec:
                    piece, place = cut(t, out, box)
                    new[name] = self.apply(link, link.codec, name, piece, "what came before" if is_changed else self.begin.directory)
                    if place is not None:
                        place[...] = piece.reshape(place.shape)
            if new:  # what is known of other pieces of this view is still true
                have, is_changed = {**{name: have[name] for name, _ in self.views[i + 1].names[t.name]}, **new}, True
            have = self.record(i + 1, t, out, have)

    def record(self, i: int, t: Tensor, out: Bytes, have: Sums) -> Sums:
        """Notes the checksums of a tensor after link i, by all names that are asked for. have: what is known of out."""
        asked = dict(pair for view in [*self.views[i:i + 2], self.views[0]] for pair in view.names[t.name])
        found = {name: have[name] if name in have else xxh3(cut(t, out, box)[0]) for name, box in asked.items()}
        self.sums[i].update(found)
        return found

    def names(self, t: Tensor) -> set[str]:
        """All names by which versions know it, or its pieces."""
        return {name for view in self.views for name, _ in view.names[t.name]}

    def changes(self, t: Tensor) -> bool:
        return any(name in link.payloads for link, view in zip(self.links, self.views[1:]) for name, _ in view.names[t.name])

    def keep(self, t: Tensor, scratch: Scratch) -> None:
        """Of a tensor that no link changes. It is read if a version names it by pieces whose checksums are not known."""
        names = self.names(t)
        if names <= self.known.keys():
            for sums in self.sums:
                sums.update({name: self.known[name] for name in names})
        else:
            self.make(t, scratch.take("keep", t.size))

    def apply(self, link: Version, codec: Codec, name: str, out: Bytes, base: str) -> str:
        try:
            with self.clock.phase("read"):
                payload = self.read_payload(link.payloads[name])
            with self.clock.phase("apply"):
                codec.decode(out, out, payload)
                digest = xxh3(out)
                if not link.check(name, out, digest):
                    raise SyncCorrupt("wrong checksum after decoding")
        except SyncWrongBase:
            raise SyncWrongBase("version %d, tensor %s: %s is not version %d, which it was made against" % (link.number, ascii(name), base, link.base or 0))
        except SyncError as error:
            raise type(error)("version %d, tensor %s: %s" % (link.number, ascii(name), error))
        return digest

    def check_digests(self) -> None:
        """Each version and each base is what its publisher had, in all tensors. No digest: its publisher computes none."""
        check_bases(self.begin, self.links, [make_digest(view.tensors, sums) for view, sums in zip(self.views[1:], self.sums)])
        for version, view, sums in zip([self.full, *self.links], self.views, self.sums):
            if version and version.digest not in (None, make_digest(view.tensors, sums)):
                raise SyncCorrupt("%s: its digest is not that of its tensors" % version.path)


def check_bases(begin: Checkpoint, links: list[Version], digests: Sequence[str | None]) -> None:
    """digests: before each link, by its names; None: not known."""
    for link, digest in zip(links, digests):
        if digest is not None and link.base_digest not in (None, digest):
            raise SyncWrongBase("version %d was made against another version %d than %s: a tensor differs that it does not change" %
                                (link.number, link.base or 0, begin.directory if link is links[0] else "the one published here"))


def clean(state_dir: str) -> bool:
    """Removes what killed processes left. Returns whether they had begun a version."""
    left = [name for name in os.listdir(state_dir) if name.startswith("stage")]
    has_files = any(os.listdir(os.path.join(state_dir, name)) for name in left)
    for name in left:
        shutil.rmtree(os.path.join(state_dir, name))
    for name in os.listdir(state_dir):
        if name.endswith(".tmp"):
            os.unlink(os.path.join(state_dir, name))
    return has_files


def commit(local_dir: str, state_dir: str, state: dict[str, Any]) -> int:
    """Renames the files of the stage. It may be killed and repeated, by several processes at once if there are no locks.
    Returns the version."""
    state_path, said = os.path.join(state_dir, "state.json"), state["commit"]
    version = read_number("%s: commit" % state_path, said, "version")
    stage = os.path.join(state_dir, os.path.basename(str(said.get("stage", "stage"))))
    if not os.path.isdir(stage): # it is removed last
        raise SyncError("%s: its files may be old and new, and %s is gone: receive into an empty directory" % (local_dir, stage))
    for file in sorted(os.listdir(stage)):
        with contextlib.suppress(FileNotFoundError):
            os.replace(os.path.join(stage, file), os.path.join(local_dir, file))
    for file in said.get("remove", []):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(local_dir, os.path.basename(file)))
    sync(local_dir)
    write_json(state_path, {"version": "%06d" % version, **{key: said[key] for key in ("digest", "checksums", "files", "pieces", "published") if key in said}})
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(stage)
    return version
