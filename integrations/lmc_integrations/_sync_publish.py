"""weight_sync.publish(): writes a version of a checkpoint, full or as a delta against another version."""

from __future__ import annotations

import collections
import errno
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from ._core import printable, sync_file
from ._sync_codecs import COPY_SIZE, SyncError, SyncWrongBase, find_checksum, find_codec, make_digest, xxh3
from ._sync_files import (
    INDEX,
    LOGGER,
    STATE_DIR,
    Checkpoint,
    Scratch,
    Tensor,
    copy_file,
    copy_shard,
    list_files,
    lock_file,
    make_name,
    naming,
    read_json,
    sync,
    write_json,
)
from ._sync_memory import Memory
from ._sync_pieces import Piece, Pieces, as_json, gather
from ._sync_report import Clock, Report
from ._sync_versions import CHECKSUMS_FILE, LAYOUTS, MANIFEST, Version, find_versions, read_digest, read_number, read_version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes

PHASES = ("read", "compare", "code", "write")
COMPARED = 1 << 20  # bytes: a part of two tensors that stays in a cache
ENCODINGS = {"lmc": "prediction", "zstd": "xor"}
Payload = tuple[Tensor, "bytes | bytearray", str]  # a changed tensor, its payload, the checksum of its new bytes


def write_shard(path: str, shard: Iterable[Payload], clock: Clock) -> list[tuple[Tensor, int, str]]:
    """shard: an iterator of (tensor, payload, digest); returns [(tensor, payload size, digest)]. Payloads are first written
    to another file, because the header in front of them has their sizes."""
    written: list[tuple[Tensor, int, str]] = []
    with naming(path), open(path + ".payload", "w+b") as payloads:
        for t, payload, digest in shard:
            with clock.phase("write"):
                payloads.write(payload)
            written.append((t, len(payload), digest))
        if written:
            header: dict[str, Any] = {"__metadata__": {t.name: digest for t, _, digest in written}}
            at = 0
            for t, size, _ in written:
                header[t.name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
                at += size
            text = json.dumps(header, separators=(",", ":")).encode()
            text += b" " * (-len(text) % 8)
            payloads.seek(0)
            with clock.phase("write"), open(path, "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text)
                shutil.copyfileobj(payloads, f, COPY_SIZE)
                f.flush()
                sync_file(f.fileno())
    os.unlink(path + ".payload")  # not while it is open: some file systems would leave it under another name
    return written


def map_ordered(
    pool: ThreadPoolExecutor, threads: int, function: Callable[[Tensor], Payload | None], items: Iterable[Tensor]
) -> Iterator[Payload | None]:
    """Yields the results in order. At most 2 * threads items are in progress, so few results are in memory."""
    pending: collections.deque[Future[Payload | None]] = collections.deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        wait(pending)


class Publication(NamedTuple):
    """The arguments of weight_sync.publish()."""

    new_dir: str | Memory
    sync_dir: str
    version: int
    base: str | Memory | None
    base_version: int
    checksum: str
    compression: str
    layout: str
    threads: int
    after_write: Callable[[str], object] | None = None


def publish(args: Publication) -> Report:
    clock = Clock(*PHASES)
    name = name_version(args)
    target, hidden = os.path.join(args.sync_dir, name), os.path.join(args.sync_dir, ".%s.%s.tmp" % (name, make_name()))
    stage = os.path.join(hidden, name)
    os.makedirs(args.sync_dir, exist_ok=True)
    with open(os.path.join(args.sync_dir, ".lock"), "a") as lock, ThreadPoolExecutor(args.threads) as pool:
        is_locked = lock_file(lock, wait=False)
        if os.path.lexists(target):
            raise SyncError("%s is there already: what was published is never changed" % target)
        for other in os.listdir(args.sync_dir) if is_locked else (): # files of killed publishers
            if re.fullmatch(r"\.(weight_)?v\d+(\.[0-9a-f]+)?\.tmp", other):
                shutil.rmtree(os.path.join(args.sync_dir, other), ignore_errors=True)
        try:
            os.makedirs(stage)
            if args.base is not None:
                with open_tensors(args.new_dir) as new, open_tensors(args.base) as old:
                    said, changed, metrics = write_delta(args, new, old, pool, stage, clock)
            elif isinstance(args.new_dir, Memory):
                raise SyncError("a full version has a configuration and a tokenizer, too: publish it from a directory, or name what the tensors build on: base=")
            else:
                said, changed, metrics = publish_full(args, args.new_dir, pool, stage, clock)
            show(args, stage, target, clock)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    metrics = {"version": args.version, "base_version": None if args.base is None else args.base_version, **metrics, "seconds": clock.seconds()}
    return Report(printable("%s: %s" % (target, said)), changed, metrics)


def show(args: Publication, stage: str, target: str, clock: Clock) -> None:
    """Renames a version that is complete, so that receivers see it. If the caller's function fails, they never do."""
    sync(stage)
    if args.after_write:
        with clock.phase("after_write"):
            args.after_write(stage)
        if not os.path.isdir(stage):
            raise SyncError("%s is gone after after_write" % stage)
    try:
        os.rename(stage, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise SyncError("%s is there already: another process has published it" % target)
        raise
    sync(args.sync_dir)


def name_version(args: Publication) -> str:
    if args.layout == "skyrl" and args.base is None:
        raise SyncError("SkyRL has no full versions: its receivers start from their model, version 0; name what this one builds on with --base")
    if args.layout == "skyrl" and args.checksum != "xxh3-128":
        raise SyncError("SkyRL knows no checksum %s: use xxh3-128" % args.checksum)
    return LAYOUTS[args.layout][0] % args.version


def open_tensors(where: str | Memory) -> Checkpoint | Memory:
    return where if isinstance(where, Memory) else Checkpoint(where)


def publish_full(args: Publication, new_dir: str, pool: ThreadPoolExecutor, stage: str, clock: Clock) -> tuple[str, list[str], dict[str, Any]]:
    checksum, scratch = find_checksum(args.checksum), Scratch()
    sums: dict[str, str] = {}
    checksums: dict[str, str] = {}
    others: dict[str, str] = {}
    with Checkpoint(new_dir) as new:
        def fill(t: Tensor, data: Bytes) -> None:
            with clock.phase("read"):
                new.read_into(data, t)
            with clock.phase("compare"):
                sums[t.name] = xxh3(data)
                checksums[t.name] = sums[t.name] if checksum is xxh3 else checksum(data)

        for file in list_files(new_dir):
            path, made = os.path.join(new_dir, file), os.path.join(stage, file)
            if path in new.shards:
                others[file] = checksum(copy_shard(new.shards[path], made, pool, scratch, fill, clock))
            elif file != CHECKSUMS_FILE:
                others[file] = copy_file(path, made, checksum) or ""
        new.check_unchanged()
        index = os.path.join(stage, INDEX)
        if INDEX not in others and "model.safetensors" not in others:  # these names mark a full version
            write_json(index, {"metadata": {"total_size": sum(t.size for t in new.tensors.values())},
                               "weight_map": {n: os.path.basename(t.path) for n, t in sorted(new.tensors.items())}})
        elif INDEX in others and "delta_encoding" in ((read_json(index) or {}).get("metadata") or {}):
            raise SyncError("%s holds a published delta, not a checkpoint" % new_dir)
        write_json(os.path.join(stage, CHECKSUMS_FILE),
                   {"version": "%06d" % args.version, "digest": make_digest(new.tensors, sums), "checksum_format": args.checksum,
                    "checksums": {n: checksums[n] for n in new.tensors}, "headers": others})
        size = sum(t.size for t in new.tensors.values())
        metrics = {"tensors": len(new.tensors), "tensors_changed": len(new.tensors), "bytes": size, "bytes_changed": size, "bytes_published": size,
                   "share_changed": 1.0}
        return "full, %d tensors, %d bytes" % (len(new.tensors), size), sorted(new.tensors), metrics


def write_delta(args: Publication, new: Checkpoint | Memory, old: Checkpoint | Memory, pool: ThreadPoolExecutor, stage: str,
                clock: Clock) -> tuple[str, list[str], dict[str, Any]]:
    stored_digest, known = check_base(args, new, old), find_known(args)
    coded = code(args, new, old, known, pool, stage, clock)
    made = new.pieces if isinstance(new, Memory) else {}
    pieces = gather_pieces(made)
    base_digest = check_base_digest(old.directory, make_digest(old.tensors, coded.old_sums), known, pieces)
    if stored_digest not in (None, base_digest):
        raise SyncWrongBase("%s was changed after version %d was received" % (old.directory, args.base_version))
    files = name_shards(args, stage, len(coded.shards))
    payloads = [(file, t, size, digest) for file, written in zip(files, coded.shards) for t, size, digest in written]
    write_index(args, stage, files, payloads, make_digest(new.tensors, coded.new_sums), base_digest, pieces)
    return describe(new.tensors, payloads, sum(os.path.getsize(os.path.join(stage, f)) for f in files), sum(coded.changed.values()), made)


def describe(tensors: dict[str, Tensor], payloads: list[tuple[str, Tensor, int, str]], packed: int,
             n_changed: int, pieces: dict[str, Piece]) -> tuple[str, list[str], dict[str, Any]]:
    """What to say of a delta: a text, the names of the tensors that changed, and numbers."""
    size = sum(t.size for t in tensors.values())
    names, changed = ({pieces[x].tensor if x in pieces else x for x in some} for some in (tensors, [t.name for _, t, _, _ in payloads]))
    metrics = {"tensors": len(names), "tensors_changed": len(changed), "bytes": size,
               "bytes_changed": sum(t.size for _, t, _, _ in payloads), "bytes_published": packed,
               "share_changed": n_changed / max(1, sum(math.prod(t.shape) for t in tensors.values()))}
    said = "%d of %d tensors changed, %d bytes as %d, %.2fx" % (len(changed), len(names), size, packed, size / max(packed, 1))
    return said, sorted(changed), metrics


def gather_pieces(pieces: dict[str, Piece]) -> Pieces:
    try:
        return gather(pieces.values())
    except ValueError as error:
        raise SyncError("%s: each process publishes its own, with part=" % error) from None


def find_known(args: Publication) -> Version | None:
    """The base, if it is published here."""
    versions = find_versions(args.sync_dir)
    if args.base_version in versions:
        return read_version(args.base_version, versions[args.base_version])
    if args.base_version:
        LOGGER.warning("note: version %d is not in %s: only receivers that have it can follow", args.base_version, printable(args.sync_dir))
    return None


def check_base_digest(where: str, digest: str, known: Version | None, pieces: Pieces) -> str:
    """If the base was published in other pieces, its digest is of those, and only receivers can compare."""
    if known is not None and known.pieces == pieces and known.digest not in (None, digest):
        raise SyncWrongBase("%s is not version %d as it was published: a tensor differs that version %d did not change" %
                            (where, known.number, known.number))
    return digest


class Coded(NamedTuple):
    """Files shard0, shard1, ... with payloads, and the checksums of all tensors, xxh3-128."""

    shards: list[list[tuple[Tensor, int, str]]]
    new_sums: dict[str, str]
    old_sums: dict[str, str]
    changed: dict[str, int]  # elements of each tensor


def code(args: Publication, new: Checkpoint | Memory, old: Checkpoint | Memory, known: Version | None, pool: ThreadPoolExecutor, stage: str,
         clock: Clock) -> Coded:
    codec, checksum, scratch = find_codec("publish", args.compression, ENCODINGS[args.compression]), find_checksum(args.checksum), Scratch()
    new_sums: dict[str, str] = {}
    old_sums: dict[str, str] = {}
    changed: dict[str, int] = {}

    def encode(t: Tensor) -> Payload | None:
        with clock.phase("read"):
            now = new.read_into(scratch.take("new", t.size), t)
            before = old.read_into(scratch.take("old", t.size), old.tensors[t.name])
        with clock.phase("compare"):
            new_sums[t.name], old_sums[t.name] = xxh3(now), xxh3(before)
            if known is not None and not known.check(t.name, before, old_sums[t.name]):
                raise SyncWrongBase("%s is not version %d as it was published: tensor %s differs" % (old.directory, known.number, ascii(t.name)))
            changed[t.name] = count_changed(t, now, before)
            if not changed[t.name]:
                return None
            digest = new_sums[t.name] if checksum is xxh3 else checksum(now)
        with clock.phase("code"):
            return t, codec.encode(now, before, t.dtype), digest

    shards: list[list[tuple[Tensor, int, str]]] = []
    for path in sorted(new.shards):
        coded = map_ordered(pool, args.threads, encode, sorted(new.shards[path].tensors))
        written = write_shard(os.path.join(stage, "shard%d" % len(shards)), (x for x in coded if x is not None), clock)
        if written:
            shards.append(written)
    new.check_unchanged()
    old.check_unchanged()
    return Coded(shards, new_sums, old_sums, changed)


def count_changed(t: Tensor, now: Bytes, before: Bytes) -> int:
    """Elements whose bits differ."""
    width = t.size // max(1, math.prod(t.shape))
    words = "u%d" % width if width in (1, 2, 4, 8) and width * math.prod(t.shape) == t.size else "u1"
    return sum(int(np.count_nonzero(now[i:i + COMPARED].view(words) != before[i:i + COMPARED].view(words))) for i in range(0, t.size, COMPARED))


def check_base(args: Publication, new: Checkpoint | Memory, old: Checkpoint | Memory) -> str | None:
    """Raises if the base has other tensors, or is a local checkpoint at another version. Returns the digest in its state, if any."""
    a, b = new.tensors, old.tensors
    other = sorted(n for n in set(a) | set(b) if n not in a or n not in b or a[n][2:4] != b[n][2:4] or a[n].size != b[n].size)
    if other:
        raise SyncError("%s and %s differ in more than values, e.g. in tensor %s: publish a full version (without --base)" %
                      (old.directory, new.directory, ascii(other[0])))
    if isinstance(old, Memory):
        return None
    state_path, state = os.path.join(old.directory, STATE_DIR, "state.json"), old.state
    if state and read_number(state_path, state, "version") != args.base_version:
        raise SyncWrongBase("%s is at version %d, not at %d" % (old.directory, int(state["version"]), args.base_version))
    return read_digest(state_path, state, "digest")


def name_shards(args: Publication, stage: str, n: int) -> list[str]:
    if args.layout == "skyrl":
        files = ["payload-rank000000-file%06d.safetensors" % i for i in range(n)]
    else:
        files = ["model-%05d-of-%05d.safetensors" % (i, n) for i in range(n)]
    for i, file in enumerate(files):
        os.rename(os.path.join(stage, "shard%d" % i), os.path.join(stage, file))
    return files


def write_index(args: Publication, stage: str, files: list[str], payloads: list[tuple[str, Tensor, int, str]], digest: str,
                base_digest: str, pieces: Pieces) -> None:
    how = {"delta_encoding": ENCODINGS[args.compression], "compression_format": args.compression, "digest": digest, "base_digest": base_digest}
    if args.layout == "skyrl":
        write_json(os.path.join(stage, MANIFEST), {
            "version": args.version, "base_version": args.base_version, **how, "payload_files": files,
            "tensors": [{"name": t.name, "dtype": name_torch_dtype(t.dtype), "shape": t.shape, "uncompressed_num_bytes": t.size,
                         "compressed_num_bytes": n, "payload_file": file, "payload_key": t.name, "checksum": digest,
                         "checksum_algorithm": args.checksum} for file, t, n, digest in payloads],
            "total_uncompressed_num_bytes": sum(t.size for _, t, _, _ in payloads), "total_compressed_num_bytes": sum(p[2] for p in payloads),
            **as_json(pieces)})
    else:
        write_json(os.path.join(stage, INDEX), {
            "metadata": {"version": "%06d" % args.version, "base_version": "%06d" % args.base_version, **how,
                         "checksum_format": args.checksum},
            "weight_map": {t.name: file for file, t, _, _ in payloads}, **as_json(pieces)})


def name_torch_dtype(dtype: str) -> str:
    kinds = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint"}
    return dtype.lower() if dtype == "BOOL" else re.sub("^(BF|F|I|U)", lambda m: kinds[m[1]], dtype).replace("E4M3", "e4m3fn").replace("E5M2", "e5m2")
