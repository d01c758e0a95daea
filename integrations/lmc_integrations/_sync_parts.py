"""weight_sync.publish(part=...): one version by several processes, of which each publishes the tensors that it has.

Each codes its tensors into a hidden directory that all of them share, and then adds a description of its part. All of this
but the coding is done under the lock of the directory. Who finds all descriptions there writes the index, and renames the
version, so it appears as a whole. A process that was killed can repeat its part at any time before that. The
name of the directory is made of that of the run: so a part that a run has left is never joined with parts of another one.

Several processes may have the same tensor or piece, as replicas have. It is published once, by who comes first: the others
leave their payloads of it out, and describe it all the same, so that unequal replicas are found.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ._core import printable
from ._sync_codecs import SyncCorrupt, SyncError, make_digest, xxh3
from ._sync_files import File, Tensor, lock_file, make_name, read_json, read_shard, sync, write_json
from ._sync_memory import Memory
from ._sync_pieces import Piece
from ._sync_publish import PHASES, Publication, check_base, check_base_digest, code, describe, find_known, gather_pieces, name_version, show, write_index, write_shard
from ._sync_report import Clock, Report
from ._sync_versions import LAYOUTS


class Part(NamedTuple):
    """number: from 0 on, of n. run: the same text in all processes, and another one in every other attempt."""

    number: int
    n: int
    run: str


def publish_part(args: Publication, part: Part) -> Report:
    new, old = args.new_dir, args.base
    if not isinstance(new, Memory) or not isinstance(old, Memory):
        raise TypeError("a part is of tensors in memory, and so is its base")
    clock, name = Clock(*PHASES), name_version(args)
    target = os.path.join(args.sync_dir, name)
    place = os.path.join(args.sync_dir, ".%s.%s.parts" % (name, xxh3(part.run.encode())))
    made, stage = os.path.join(place, name), os.path.join(place, "%d.%s.tmp" % (part.number, make_name()))
    check_base(args, new, old)
    os.makedirs(args.sync_dir, exist_ok=True)
    check_new(target)
    os.makedirs(stage)
    os.makedirs(made, exist_ok=True)
    try:
        with ThreadPoolExecutor(args.threads) as pool:
            coded = code(args, new, old, find_known(args), pool, stage, clock)
        payloads = [row for shard in coded.shards for row in shard]  # of one shard, or of none
        file = name_file(args, part)
        how = [part.n, args.version, args.base_version, args.compression, args.checksum, args.layout]
        described = {
            "how": how, "file": file,
            "tensors": [[t.name, t.dtype, t.shape, t.size, coded.new_sums[t.name], coded.old_sums[t.name]] for t in new.tensors.values()],
            "pieces": list(new.pieces.values()),
        }
        with open(os.path.join(args.sync_dir, ".lock"), "a") as lock:
            lock_file(lock, wait=True)
            check_new(target)
            for path in (name_description(place, part.number), os.path.join(made, file)):  # of this part, from before it was killed
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            others = [x for i in range(part.n) if (x := read_json(name_description(place, i))) is not None]
            payloads = leave_out({name for x in others for name, *_ in x.get("payloads", ())}, payloads, os.path.join(stage, "shard0"), clock)
            if payloads:
                os.rename(os.path.join(stage, "shard0"), os.path.join(made, file))
            shutil.rmtree(stage)
            sync(made)
            described["payloads"] = [[t.name, size, digest, coded.changed[t.name]] for t, size, digest in payloads]
            with clock.phase("write"):
                write_json(name_description(place, part.number), described)
            if len(others) + 1 < part.n:
                size = os.path.getsize(os.path.join(made, file)) if payloads else 0
                n_changed = sum(coded.changed[t.name] for t, _, _ in payloads)
                said, changed, metrics = describe(new.tensors, [(file, *x) for x in payloads], size, n_changed, new.pieces)
                said = "part %d, %d of %d are there: %s" % (part.number, len(others) + 1, part.n, said)
            else:
                parts = [read_json(name_description(place, i)) or {} for i in range(part.n)]
                said, changed, metrics = join(args, place, target, parts, how, clock)
                clean(args)
    except FileNotFoundError:
        check_new(target)  # another process has renamed the directory meanwhile
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    metrics = {"version": args.version, "base_version": args.base_version, **metrics, "seconds": clock.seconds()}
    return Report(printable("%s: %s" % (target, said)), changed, metrics)


def check_new(target: str) -> None:
    if os.path.lexists(target):
        raise SyncError("%s is there already: what was published is never changed" % target)


def name_file(args: Publication, part: Part) -> str:
    return ("payload-rank%06d-file%06d.safetensors" % (part.number, 0) if args.layout == "skyrl" else
            "model-%05d-of-%05d.safetensors" % (part.number, part.n))


def name_description(place: str, number: int) -> str:
    return os.path.join(place, "part-%d.json" % number)


def leave_out(names: set[str], payloads: list[tuple[Tensor, int, str]], shard: str, clock: Clock) -> list[tuple[Tensor, int, str]]:
    """Writes the shard without the payloads of these tensors. Returns those that it has."""
    rest = [row for row in payloads if row[0].name not in names]
    if not rest or len(rest) == len(payloads):
        return rest
    source = File(shard)
    with source.raw:
        stored = {t.name: t for t in read_shard(shard)[0]}
        return write_shard(shard, ((t, source.read(stored[t.name].offset, size).tobytes(), digest) for t, size, digest in rest), clock)


def join(args: Publication, place: str, target: str, parts: list[dict[str, Any]], how: list[Any],
         clock: Clock) -> tuple[str, list[str], dict[str, Any]]:
    """Makes the version. If it is killed, whoever repeats a part does it again."""
    tensors: dict[str, Tensor] = {}
    new_sums: dict[str, str] = {}
    old_sums: dict[str, str] = {}
    payloads: list[tuple[str, Tensor, int, str]] = []
    pieces: dict[str, Piece] = {}
    first: dict[str, tuple[int, list[Any]]] = {}
    n_changed = 0
    for number, x in enumerate(parts):
        if x.get("how") != how:
            raise SyncError("part %d was published with other arguments: %s, not %s" % (number, x.get("how"), how))
        try:
            own = {piece.name: piece for piece in (Piece(*row) for row in x["pieces"])}
            for row in x["tensors"]:
                name, dtype, shape, size, new_sums[name], old_sums[name] = row
                before, what = first.setdefault(name, (number, [row, own.get(name)]))
                if what != [row, own.get(name)]:
                    raise SyncError("tensor %s is in two parts, %d and %d, which do not have the same of it" % (ascii(name), before, number))
                tensors[name] = Tensor("", name, dtype, shape, 0, size)
            for name, size, digest, n in x["payloads"]:
                payloads.append((x["file"], tensors[name], size, digest))
                n_changed += n
            pieces |= own
        except (KeyError, TypeError, ValueError) as error:
            raise SyncCorrupt("%s: %s" % (name_description(place, number), error))
    counts = collections.Counter(t.name for _, t, _, _ in payloads)
    for name in tensors:
        if counts[name] != (new_sums[name] != old_sums[name]):  # a part was repeated without it, or two came at once where there are no locks
            raise SyncError("tensor %s: %d parts have its payload: begin another run" % (ascii(name), counts[name]))
    both = {piece.tensor for piece in pieces.values()} & tensors.keys()
    if both:
        raise SyncError("tensor %s is in a part as a whole, and in pieces in others" % ascii(min(both)))
    wholes = gather_pieces(pieces)
    base_digest = check_base_digest("the base", make_digest(tensors, old_sums), find_known(args), wholes)
    files = sorted({file for file, _, _, _ in payloads})
    made = os.path.join(place, os.path.basename(target))
    write_index(args, made, files, payloads, make_digest(tensors, new_sums), base_digest, wholes)
    show(args, made, target, clock)
    return describe(tensors, payloads, sum(os.path.getsize(os.path.join(target, f)) for f in files), n_changed, pieces)


def clean(args: Publication) -> None:
    """Removes what is left of this version and of earlier ones, by this run and by others."""
    for other in os.listdir(args.sync_dir):
        found = re.fullmatch(r"\.%s\.[0-9a-f]+\.parts" % LAYOUTS[args.layout][1], other)
        if found and int(found[1]) <= args.version:
            shutil.rmtree(os.path.join(args.sync_dir, other), ignore_errors=True)
