"""weight_sync.receive(): updates a local checkpoint to another version."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ._core import printable
from ._sync_codecs import SyncCorrupt, SyncError, SyncWrongBase
from ._sync_files import (
    INDEX,
    STATE_DIR,
    Tensor,
    copy_file,
    get_bytes,
    list_files,
    locked,
    make_file,
    map_file,
    read_checkpoint,
    read_json,
    read_shard,
    sync,
    write_json,
)
from ._sync_versions import CHECKSUMS_FILE, Version, find_versions, read_number, read_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes, Codec


class Request(NamedTuple):
    """The arguments of weight_sync.receive()."""

    sync_dir: str
    local_dir: str
    version: int | None
    base: str | None
    threads: int


def receive(args: Request) -> str:
    if not os.path.isdir(args.sync_dir):
        raise SyncError("%s is no directory" % args.sync_dir)
    state_dir = os.path.join(args.local_dir, STATE_DIR)
    stage, state_path = os.path.join(state_dir, "stage"), os.path.join(state_dir, "state.json")
    os.makedirs(state_dir, exist_ok=True)
    said = []
    with locked(os.path.join(state_dir, "lock"), wait=True):
        state = read_json(state_path) or {}
        if "commit" in state:
            version = commit(args.local_dir, stage, state_path, state)
            have: int | None = version
            said.append("%s: at version %d: finished what a killed receive had begun" % (args.local_dir, version))
        else:
            have = read_number(state_path, state, "version") if state else None
        if os.path.isdir(stage):
            if os.listdir(stage):
                said.append("%s: a killed receive had changed nothing yet" % args.local_dir)
            shutil.rmtree(stage)
        if have is None and list_files(args.local_dir):
            raise SyncError("%s holds files, and no %s says which version: name an empty directory" % (args.local_dir, state_path))
        versions = find_versions(args.sync_dir)
        target = max(versions, default=0 if have is None else have) if args.version is None else args.version
        if have is not None and target < have:
            raise SyncError("%s is at version %d, which is newer than %d: to go back, or where numbers began anew, receive into an empty directory" %
                          (args.local_dir, have, target))
        if have == target:
            return "\n".join(map(printable, [*said, "%s: at version %d already" % (args.local_dir, have)]))
        full, links = find_chain(args, versions, have, target)
        begin = full.path if full else args.local_dir if have is not None else args.base or ""  # find_chain has checked args.base
        try:
            make_stage(args, stage, begin, full, links)
            keep = set(list_files(begin)) if begin != args.local_dir else None
            remove = [f for f in list_files(args.local_dir) if keep is not None and f not in keep and (f.endswith(".safetensors") or f == INDEX)]
            state["commit"] = {"version": "%06d" % target, "remove": remove}
            write_json(state_path, state)
        except BaseException:
            if not (read_json(state_path) or {}).get("commit"):
                shutil.rmtree(stage, ignore_errors=True)
            raise
        commit(args.local_dir, stage, state_path, state)
        source = begin if begin != args.local_dir else "version %s" % have
        said.append("%s: version %d, from %s by %d delta%s" % (args.local_dir, target, source, len(links), "s" * (len(links) != 1)))
        return "\n".join(map(printable, said))


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


def make_stage(args: Request, stage: str, begin: str, full: Version | None, links: list[Version]) -> None:
    """Writes the files that differ from the local checkpoint to the stage."""
    tensors = read_checkpoint(begin)
    check_tensors(begin, tensors, full, links)
    os.mkdir(stage)
    with contextlib.ExitStack() as stack:
        files = {p: stack.enter_context(open(p, "rb")) for p in {t.path for link in links for t in link.payloads.values()}}
        pool = stack.enter_context(ThreadPoolExecutor(args.threads))  # it ends before the files are closed

        def read_payload(t: Tensor) -> bytes:
            payload = os.pread(files[t.path].fileno(), t.size, t.offset)
            if len(payload) != t.size:
                raise SyncCorrupt("%s was cut short" % t.path)
            return payload

        for file in list_files(begin):
            path, made = os.path.join(begin, file), os.path.join(stage, file)
            if full and os.path.islink(path): # publish() writes no links; a link might lead anywhere
                raise SyncCorrupt("%s is a link" % path)
            mine = [t for t in tensors.values() if t.path == path]
            if mine and (begin != args.local_dir or any(t.name in link.payloads for t in mine for link in links)):
                source = map_file(path)
                out = make_file(made, source.size)
                first, last = mine[0].offset, mine[-1].offset + mine[-1].size
                out[:first], out[last:] = source[:first], source[last:]
                if full and full.checksum and full.checksum(out[:first]) != full.headers.get(file):
                    raise SyncCorrupt("%s: its header has another checksum" % path)
                chain = Chain(begin, full, links, read_payload)
                list(pool.map(lambda t: chain.make(t, get_bytes(source, t), get_bytes(out, t)), mine))
                out.flush()
                shutil.copymode(path, made)
                sync(made)
            elif begin != args.local_dir and file != CHECKSUMS_FILE:
                copy_file(path, made)
    sync(stage)
    sync(os.path.dirname(stage)) # before state.json names it


def check_tensors(begin: str, tensors: dict[str, Tensor], full: Version | None, links: list[Version]) -> None:
    for link in links:
        other = sorted(set(link.payloads) - set(tensors))
        if other:
            raise SyncWrongBase("version %d has tensor %s, and %s has not" % (link.number, ascii(other[0]), begin))
    for path in sorted({t.path for t in tensors.values()} if full else ()): # a delta has checksums there
        if set(read_shard(path)[1]) & set(tensors):
            raise SyncCorrupt("%s holds the payloads of a delta, and its index does not say so" % path)
    if full and full.checksums and set(full.checksums) != set(tensors):
        raise SyncCorrupt("%s: tensors and checksums are not the same" % full.path)


class Chain(NamedTuple):
    """All payloads that lead from the checkpoint at begin to the target, in order."""

    begin: str
    full: Version | None
    links: list[Version]
    read_payload: Callable[[Tensor], bytes]

    def make(self, t: Tensor, source: Bytes, out: Bytes) -> None:
        """Makes a tensor of the target in out. After each version the checksum of the bytes in out is compared."""
        if self.full and self.full.checksums: # the checksum is that of the copy: the source may change
            out[:] = source
            source = out
            if not self.full.check(t.name, out):
                raise SyncCorrupt("version %d, tensor %s: wrong checksum" % (self.full.number, ascii(t.name)))
        for link in self.links:
            if t.name in link.payloads and link.codec:
                self.apply(link, link.codec, t.name, source, out)
                source = out
        if source is not out:
            out[:] = source

    def apply(self, link: Version, codec: Codec, name: str, source: Bytes, out: Bytes) -> None:
        try:
            codec.decode(out, source, self.read_payload(link.payloads[name]))
            if not link.check(name, out):
                raise SyncCorrupt("wrong checksum after decoding")
        except SyncWrongBase:
            raise SyncWrongBase("version %d, tensor %s: %s is not version %d, which it was made against" %
                                (link.number, ascii(name), self.begin if source is not out else "what came before", link.base or 0))
        except SyncError as error:
            raise type(error)("version %d, tensor %s: %s" % (link.number, ascii(name), error))


def commit(local_dir: str, stage: str, state_path: str, state: dict[str, Any]) -> int:
    """Renames the files of the stage. It may be killed and repeated. Returns the version."""
    where, said = "%s: commit" % state_path, state["commit"]
    version = read_number(where, said, "version")
    if not os.path.isdir(stage): # it is removed last
        raise SyncError("%s: its files may be old and new, and %s is gone: receive into an empty directory" % (local_dir, stage))
    for file in sorted(os.listdir(stage)):
        os.replace(os.path.join(stage, file), os.path.join(local_dir, file))
    for file in said.get("remove", []):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(local_dir, os.path.basename(file)))
    sync(local_dir)
    write_json(state_path, {"version": "%06d" % version})
    os.rmdir(stage)
    return version
