"""weight_sync.publish(): writes a version of a checkpoint, full or as a delta against another version."""

from __future__ import annotations

import collections
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ._core import printable
from ._sync_codecs import COPY_SIZE, SyncError, SyncWrongBase, find_checksum, find_codec
from ._sync_files import (
    INDEX,
    STATE_DIR,
    Tensor,
    copy_file,
    get_bytes,
    list_files,
    locked,
    map_file,
    read_checkpoint,
    read_json,
    sync,
    write_json,
)
from ._sync_versions import CHECKSUMS_FILE, LAYOUTS, MANIFEST, find_versions, read_number, read_version

LOGGER = logging.getLogger("lmc_integrations.weight_sync")

Payload = tuple[Tensor, "bytes | bytearray", str]  # a changed tensor, its payload, the checksum of its new bytes


def write_shard(path: str, shard: Iterable[Payload]) -> list[tuple[Tensor, int, str]]:
    """shard: an iterator of (tensor, payload, digest); returns [(tensor, payload size, digest)]. Payloads are first written
    to a file without a name, because the header in front of them has their sizes."""
    written: list[tuple[Tensor, int, str]] = []
    with open(path + ".payload", "w+b") as payloads:
        os.unlink(path + ".payload")
        for t, payload, digest in shard:
            payloads.write(payload)
            written.append((t, len(payload), digest))
        if not written:
            return written
        header: dict[str, Any] = {"__metadata__": {t.name: digest for t, _, digest in written}}
        at = 0
        for t, size, _ in written:
            header[t.name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        payloads.seek(0)
        with open(path, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            shutil.copyfileobj(payloads, f, COPY_SIZE)
            f.flush()
            os.fsync(f.fileno())
    return written


def map_ordered(
    pool: ThreadPoolExecutor, threads: int, function: Callable[[Tensor], Payload | None], items: Iterable[Tensor]
) -> Iterator[Payload | None]:
    """Yields the results in order. At most 2 * threads items are in progress, so few results are in memory."""
    pending: collections.deque[Future[Payload | None]] = collections.deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= 2 * threads:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


class Publication(NamedTuple):
    """The arguments of weight_sync.publish()."""

    new_dir: str
    sync_dir: str
    version: int
    base: str | None
    base_version: int
    checksum: str
    compression: str
    layout: str
    threads: int


def publish(args: Publication) -> str:
    if args.layout == "skyrl" and args.base is None:
        raise SyncError("SkyRL has no full versions: its receivers start from their model, version 0; name what this one builds on with --base")
    if args.layout == "skyrl" and args.checksum != "xxh3-128":
        raise SyncError("SkyRL knows no checksum %s: use xxh3-128" % args.checksum)
    naming = LAYOUTS[args.layout][0]
    target = os.path.join(args.sync_dir, naming % args.version)
    stage = os.path.join(args.sync_dir, ".%s.tmp" % os.path.basename(target))
    os.makedirs(args.sync_dir, exist_ok=True)
    with locked(os.path.join(args.sync_dir, ".lock"), wait=False), ThreadPoolExecutor(args.threads) as pool:
        if os.path.lexists(target):
            raise SyncError("%s is there already: what was published is never changed" % target)
        for name in os.listdir(args.sync_dir): # files of killed publishers
            if re.fullmatch(r"\.(weight_)?v\d+\.tmp", name):
                shutil.rmtree(os.path.join(args.sync_dir, name))
        os.mkdir(stage)
        try:
            said = publish_full(args, pool, stage) if args.base is None else publish_delta(args, args.base, pool, stage)
            sync(stage)
            os.rename(stage, target)
            sync(args.sync_dir)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
    return printable("%s: %s" % (target, said))


def publish_full(args: Publication, pool: ThreadPoolExecutor, stage: str) -> str:
    tensors = read_checkpoint(args.new_dir)
    files = [f for f in list_files(args.new_dir) if f != CHECKSUMS_FILE]
    for file in files:
        copy_file(os.path.join(args.new_dir, file), os.path.join(stage, file))
    size = sum(t.size for t in tensors.values())
    if INDEX not in files and "model.safetensors" not in files: # these names mark a full version
        write_json(os.path.join(stage, INDEX), {"metadata": {"total_size": size},
                                                "weight_map": {n: os.path.basename(t.path) for n, t in sorted(tensors.items())}})
    elif INDEX in files and "delta_encoding" in ((read_json(os.path.join(stage, INDEX)) or {}).get("metadata") or {}):
        raise SyncError("%s holds a published delta, not a checkpoint" % args.new_dir)
    maps, checksum = {t.path: map_file(t.path) for t in tensors.values()}, find_checksum(args.checksum)
    digests = pool.map(lambda t: checksum(get_bytes(maps[t.path], t)), tensors.values())
    firsts = {t.path: t.offset for t in reversed(tensors.values())}
    write_json(os.path.join(stage, CHECKSUMS_FILE),
               {"version": "%06d" % args.version, "checksum_format": args.checksum, "checksums": dict(zip(tensors, digests)),
                "headers": {os.path.basename(p): checksum(maps[p][:first]) for p, first in firsts.items()}})
    return "full, %d tensors, %d bytes" % (len(tensors), size)


def publish_delta(args: Publication, base_dir: str, pool: ThreadPoolExecutor, stage: str) -> str:
    new, old = read_checkpoint(args.new_dir), read_checkpoint(base_dir)
    check_base(args, base_dir, new, old)
    versions = find_versions(args.sync_dir)
    known = read_version(args.base_version, versions[args.base_version]) if args.base_version in versions else None
    if args.base_version and known is None:
        LOGGER.warning("note: version %d is not in %s: only receivers that have it can follow", args.base_version, printable(args.sync_dir))
    encoding = "prediction" if args.compression == "lmc" else "xor"
    codec, checksum = find_codec("publish", args.compression, encoding), find_checksum(args.checksum)

    def encode(t: Tensor) -> Payload | None:
        now, before = get_bytes(maps[t.path], t), get_bytes(maps[old[t.name].path], old[t.name])
        if known is not None and not known.check(t.name, before):
            raise SyncWrongBase("%s is not version %d as it was published: tensor %s differs" % (base_dir, known.number, ascii(t.name)))
        if all(np.array_equal(now[i:i + COPY_SIZE], before[i:i + COPY_SIZE]) for i in range(0, t.size, COPY_SIZE)):
            return None
        return t, codec.encode(now, before, t.dtype), checksum(now)

    shards: list[list[tuple[Tensor, int, str]]] = []
    for path in sorted({t.path for t in new.values()}):
        tensors = sorted(t for t in new.values() if t.path == path)
        maps = {p: map_file(p) for p in {path, *(old[t.name].path for t in tensors)}}
        coded = map_ordered(pool, args.threads, encode, tensors)
        written = write_shard(os.path.join(stage, "shard%d" % len(shards)), (x for x in coded if x is not None))
        if written:
            shards.append(written)
    files = name_shards(args, stage, len(shards))
    payloads = [(file, t, size, digest) for file, written in zip(files, shards) for t, size, digest in written]
    write_index(args, stage, encoding, files, payloads)
    size, packed = sum(t.size for t in new.values()), sum(os.path.getsize(os.path.join(stage, f)) for f in files)
    return "%d of %d tensors changed, %d bytes as %d, %.2fx" % (len(payloads), len(new), size, packed, size / max(packed, 1))


def check_base(args: Publication, base_dir: str, new: dict[str, Tensor], old: dict[str, Tensor]) -> None:
    """Raises if the base has other tensors, or is another version."""
    other = sorted(n for n in set(new) | set(old) if n not in new or n not in old or new[n][2:4] != old[n][2:4] or new[n].size != old[n].size)
    if other:
        raise SyncError("%s and %s differ in more than values, e.g. in tensor %s: publish a full version (without --base)" %
                      (base_dir, args.new_dir, ascii(other[0])))
    state_path = os.path.join(base_dir, STATE_DIR, "state.json")
    state = read_json(state_path)
    if state and read_number(state_path, state, "version") != args.base_version:
        raise SyncWrongBase("%s is at version %d, not at %d" % (base_dir, int(state["version"]), args.base_version))


def name_shards(args: Publication, stage: str, n: int) -> list[str]:
    if args.layout == "skyrl":
        files = ["payload-rank000000-file%06d.safetensors" % i for i in range(n)]
    else:
        files = ["model-%05d-of-%05d.safetensors" % (i, n) for i in range(n)]
    for i, file in enumerate(files):
        os.rename(os.path.join(stage, "shard%d" % i), os.path.join(stage, file))
    return files


def write_index(args: Publication, stage: str, encoding: str, files: list[str], payloads: list[tuple[str, Tensor, int, str]]) -> None:
    how = {"delta_encoding": encoding, "compression_format": args.compression}
    if args.layout == "skyrl":
        write_json(os.path.join(stage, MANIFEST), {
            "version": args.version, "base_version": args.base_version, **how, "payload_files": files,
            "tensors": [{"name": t.name, "dtype": name_torch_dtype(t.dtype), "shape": t.shape, "uncompressed_num_bytes": t.size,
                         "compressed_num_bytes": n, "payload_file": file, "payload_key": t.name, "checksum": digest,
                         "checksum_algorithm": args.checksum} for file, t, n, digest in payloads],
            "total_uncompressed_num_bytes": sum(t.size for _, t, _, _ in payloads), "total_compressed_num_bytes": sum(p[2] for p in payloads)})
    else:
        write_json(os.path.join(stage, INDEX), {
            "metadata": {"version": "%06d" % args.version, "base_version": "%06d" % args.base_version, **how,
                         "checksum_format": args.checksum},
            "weight_map": {t.name: file for file, t, _, _ in payloads}})


def name_torch_dtype(dtype: str) -> str:
    kinds = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint"}
    return dtype.lower() if dtype == "BOOL" else re.sub("^(BF|F|I|U)", lambda m: kinds[m[1]], dtype).replace("E4M3", "e4m3fn").replace("E5M2", "e5m2")
