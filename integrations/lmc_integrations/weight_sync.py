"""Weight sync for RL: the directories of slime, SGLang and SkyRL, with LMC's deltas in place of xor and zstd; ModelExpress.

    python -m lmc_integrations.weight_sync publish --version N NEW_DIR SYNC_DIR                    a full version, which needs no other
    python -m lmc_integrations.weight_sync publish --version N --base OLD_DIR NEW_DIR SYNC_DIR     a delta against version N - 1
    python -m lmc_integrations.weight_sync receive SYNC_DIR LOCAL_DIR [--version N] [--base MODEL] brings LOCAL_DIR to the newest, or to N

The same in Python: publish(new_dir, sync_dir, version=...), receive(sync_dir, local_dir). There the new and the old checkpoint may
also be tensors in memory, by name. Both return a text with numbers, which --json prints. NEW_DIR, OLD_DIR, MODEL and LOCAL_DIR are
Hugging Face checkpoints: *.safetensors, an index if there are several, and any other files. Needs numpy, xxhash (for xxh3-128) and
zstandard (for zstd only).

The output has the layout that slime publishes and SGLang's /pull_weights reads:

    SYNC_DIR/weight_v000002/
        model-00000-of-00002.safetensors    the payload of each changed tensor, as a U8 tensor of its name. __metadata__ has the
        model-00001-of-00002.safetensors    checksum of its new bytes, in hexadecimal digits
        model.safetensors.index.json        weight_map: name -> file, pieces: see docs/weight-sync.md, and metadata, in which all values are strings:
            version             "000002"
            base_version        "000001"     the version to which it must be applied
            delta_encoding      "prediction" the codec gets the old tensor as its prediction, and codes the difference
            compression_format  "lmc"        tensor_encode(): blocks, each with the CRC-32C of its payload and of its new bytes
            checksum_format     "xxh3-128", "adler32" or "blake3"
            digest, base_digest of all tensors of the version, and of its base, with their names, dtypes and shapes: make_digest()

compression="zstd" writes delta_encoding "xor" and compression_format "zstd", for receivers that know nothing else. receive reads
both, and "overwrite"; it refuses any other. A version without delta_encoding is full: a plain checkpoint. publish adds the file
weight_sync.json to it, with the digest, and checksums of all tensors, headers and other files. If this file exists, receive
checks them. Version 0 is the engine's own model, and is never published. SkyRL has the same payloads with other names and another index,
v00000002/manifest.json: layout="skyrl". receive reads that, too.

publish writes to a hidden directory of its own, payloads first and the index last, syncs it, and then renames it. It refuses an OLD_DIR that
does not have the digest of the base version.

receive keeps its state where SGLang does, LOCAL_DIR/.weight_sync/state.json, and takes the same lock. It makes the new files beside
the old ones, for all versions up to the target at once, and checks every changed tensor and the digest of every version. When all of that is synced, it
renames the files one after another. If it raises an error, nothing has changed. If it is killed before the renames, nothing has
changed. If it is killed during the renames, each file is old or new, state.json says so ("commit"), and the next receive finishes
them. Load the files only after receive has returned (exit code 0), and before the next one begins. It needs disk space for the new files beside the old ones, and
for each thread 22 MB and memory for a tensor and its payload; publish for two tensors and a payload. Files of others are never
mapped, so if one of them is cut or rewritten while it is read, that is a SyncReadError.

Exit codes: 0 done, or nothing to do; 1 error; 2 usage; 3 published data is corrupt; 4 the base is missing or the wrong one. In
Python these are SyncError (with SyncReadError), SyncCorrupt and SyncWrongBase.

A receiver of your own needs these changes. In SGLang's weight_sync/local_checkpoint.py, _apply_delta: allow "lmc" where
compression_format is checked, then set apply_tensor to apply_lmc, and add this beside apply_xor (item and open_mmaps are the same):

    def apply_lmc(item):
        name, payload, path, offset, nbytes, want = item
        region = np.ndarray((nbytes,), np.uint8, buffer=open_mmaps[path][1], offset=offset)
        try:
            lmc_codec.tensor_decode(payload, region, region)     # in place: a block with another base is not changed
            ok = _checksum(algorithm, region) == want
        except lmc_codec.LMCError:
            ok = False
        if not ok:
            with lock:
                mismatches.append(name)

and a publisher (slime, update_weight_from_disk_delta.py, in diff_and_compress; dtype as safetensors names it):

    changed = int(np.count_nonzero(new != old))
    compressed = np.frombuffer(lmc_codec.tensor_encode(new, old, dtype=dtype), np.uint8)

NVIDIA's ModelExpress, whose receiver is in vLLM, has a table of decompressors. register_modelexpress() adds "lmc" to it, and makes
its trainer publish such payloads: call it in the processes of both sides. miles has slime's layout: register_miles(), in its trainers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lmc_codec import LMCError

from . import _sync_parts, _sync_publish, _sync_receive
from ._core import count_threads, printable
from ._miles import register_miles
from ._modelexpress import register_modelexpress
from ._sync_codecs import SyncCorrupt, SyncError, SyncReadError, SyncWrongBase, find_checksum
from ._sync_memory import Memory
from ._sync_publish import Publication
from ._sync_receive import Request
from ._sync_remote import upload
from ._sync_report import Report
from ._sync_versions import LAYOUTS

__all__ = ["Report", "SyncCorrupt", "SyncError", "SyncReadError", "SyncWrongBase", "main", "publish", "receive", "register_miles", "register_modelexpress", "upload"]


def publish(
    new_dir: str | os.PathLike[str] | Mapping[str, Any],
    sync_dir: str | os.PathLike[str],
    *,
    version: int,
    base: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    base_version: int | None = None,
    checksum: str = "xxh3-128",
    compression: str = "lmc",
    layout: str = "slime",
    threads: int | None = None,
    part: tuple[int, int, str] | None = None,
    after_write: Callable[[str], object] | None = None,
) -> Report:
    """Writes a version to sync_dir, full without base. base: the checkpoint of receivers, of base_version (None: version - 1). Returns a
    report: a text with `changed`, the names of the tensors that changed, and `metrics`.

    new_dir and base are directories, or tensors in memory by name (numpy, torch, also on a GPU): a trainer keeps the tensors of the last
    version, and publishes without a checkpoint on the disk. The tensors must not change meanwhile. A full version needs a directory.

    part: (number, how many, run): this process has only some of the tensors, and others have the rest, each under its number from 0 on.
    The version appears, as a whole, when the last part is there. run: a text that is the same in all processes, and another one in each
    attempt (a random number that one of them has sent to the others). A process that failed may repeat its part. Of DTensors each process
    passes its own, in new_dir and in base: it publishes the piece that it has. Of equal tensors and pieces, as replicas are, one is published.

    after_write: is called with the directory of the version when that is complete and synced, and before receivers see it: for example
    to upload() it. It has the name of the version, and is renamed afterwards. If the function raises an error, no version appears, and
    publish can be repeated. With part=, who finds the last part calls it.

    checksum: "xxh3-128", "adler32" or "blake3". compression: "lmc" or "zstd". layout: "slime" or "skyrl". Raises SyncError.
    """
    if base is None and base_version is not None:
        raise ValueError("base_version is that of base, which is missing")
    base_version = version - 1 if base_version is None else base_version
    if version < 1 or not 0 <= base_version < version:
        raise ValueError("versions count from 1, and a base comes before what builds on it")
    if layout not in LAYOUTS or compression not in ("lmc", "zstd"):
        raise ValueError("layout is slime or skyrl, and compression lmc or zstd")
    find_checksum(checksum)
    new = Memory(new_dir, "the tensors") if isinstance(new_dir, Mapping) else os.fspath(new_dir)
    old = Memory(base, "the base") if isinstance(base, Mapping) else None if base is None else os.fspath(base)
    publication = Publication(new_dir=new, sync_dir=os.fspath(sync_dir), version=version, base=old, base_version=base_version,
                              checksum=checksum, compression=compression, layout=layout, threads=count_threads(threads),
                              after_write=after_write)
    if part is None:
        for memory in (new, old):
            if isinstance(memory, Memory) and memory.elsewhere:
                name = ascii(memory.elsewhere[0])
                raise SyncError("tensor %s: another process has the piece of this DTensor that is to be published: all give part=" % name)
        return _sync_publish.publish(publication)
    number, n, run = part
    if not 0 <= number < n or not isinstance(run, str):
        raise ValueError("part is (number, how many, run): the number counts from 0, and run is a text")
    return _sync_parts.publish_part(publication, _sync_parts.Part(number, n, run))


def receive(
    sync_dir: str | os.PathLike[str],
    local_dir: str | os.PathLike[str],
    *,
    version: int | None = None,
    base: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    storage_options: dict[str, Any] | None = None,
    before_read: Callable[[str, int | None], object] | None = None,
) -> Report:
    """Brings local_dir to a version, the newest by default. Load its files only after this has returned. base: version 0, if local_dir is
    empty and no full version was published. Returns a report: a text with `changed`, the names of the tensors of which the new versions
    have new values, and `metrics`. sync_dir may be a URL of fsspec, with its storage_options, to which upload() copies versions.

    before_read: is called with sync_dir and version before versions are looked for, by one process of a machine at a time: for example to
    bring files there. Its errors are passed on. Raises SyncError, SyncCorrupt or SyncWrongBase; local_dir has then not changed."""
    return _sync_receive.receive(Request(sync_dir=os.fspath(sync_dir), local_dir=os.fspath(local_dir), version=version,
                                       base=None if base is None else os.fspath(base), threads=count_threads(threads), storage_options=storage_options,
                                       before_read=before_read))


# ---- command ----


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lmc_integrations.weight_sync", description="Publish and receive versions of a checkpoint as LMC deltas.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    threads = count_threads(None)

    def natural(text: str) -> int:
        if not text.isdigit():
            raise argparse.ArgumentTypeError("%s is not a number" % text)
        return int(text)

    def count(text: str) -> int:
        try:
            return count_threads(max(1, natural(text)))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error))

    p = verbs.add_parser("publish", help="write a version")
    p.add_argument("new_dir", metavar="NEW_DIR", help="the checkpoint to publish")
    p.add_argument("sync_dir", metavar="SYNC_DIR", help="the directory that receivers read")
    p.add_argument("--version", type=natural, required=True, metavar="N")
    p.add_argument("--base", metavar="OLD_DIR", help="the checkpoint that receivers have; without it a full version is published")
    p.add_argument("--base-version", type=natural, metavar="M", help="its version (default: N - 1)")
    p.add_argument("--checksum", default="xxh3-128", choices=["xxh3-128", "adler32", "blake3"])
    p.add_argument("--compression", default="lmc", choices=["lmc", "zstd"], help="zstd: xor and zstd -1, for receivers that know no lmc")
    p.add_argument("--layout", default="slime", choices=list(LAYOUTS))
    r = verbs.add_parser("receive", help="bring a local checkpoint to a version")
    r.add_argument("sync_dir", metavar="SYNC_DIR")
    r.add_argument("local_dir", metavar="LOCAL_DIR")
    r.add_argument("--version", type=natural, metavar="N", help="default: the newest")
    r.add_argument("--base", metavar="MODEL", help="version 0, where an empty LOCAL_DIR begins unless a full version was published")
    for p_or_r in (p, r):
        p_or_r.add_argument("--json", action="store_true", help="print a line of JSON: bytes, tensors that changed, seconds of each phase")
        p_or_r.add_argument("--threads", type=count, default=threads, metavar="N", help="default: %d" % threads)
    args = parser.parse_args()
    if args.verb == "publish" and (args.version == 0 or (args.base_version is not None and args.base_version >= args.version)):
        parser.error("versions count from 1, and a base comes before what builds on it")
    if args.verb == "publish" and args.base_version is not None and not args.base:
        parser.error("--base-version without --base")
    return args


def main() -> int:
    options = vars(_parse_arguments())
    try:
        is_json = options.pop("json")
        said = (publish if options.pop("verb") == "publish" else receive)(**options)
        print(json.dumps(said.as_json()) if is_json else said)
    except (LMCError, OSError, MemoryError) as error:
        print("weight_sync: %s" % printable(error), file=sys.stderr)
        return error.code if isinstance(error, SyncError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
