"""Weight sync for RL: the directories of slime, SGLang and SkyRL, with LMC's deltas in place of xor and zstd; ModelExpress.

    python -m lmc_codec.weight_sync publish --version N NEW_DIR SYNC_DIR                    a full version: everything begins anew
    python -m lmc_codec.weight_sync publish --version N --base OLD_DIR NEW_DIR SYNC_DIR     what became of version N - 1
    python -m lmc_codec.weight_sync receive SYNC_DIR LOCAL_DIR [--version N] [--base MODEL] brings LOCAL_DIR to the newest, or to N

The same in Python: publish(new_dir, sync_dir, version=...), receive(sync_dir, local_dir). NEW_DIR, OLD_DIR, MODEL and LOCAL_DIR are
checkpoints as Hugging Face lays them out: *.safetensors, an index if they are several, and whatever else. Needs numpy, xxhash (for
xxh3-128) and zstandard (for zstd only).

What is written is what slime publishes and SGLang's /pull_weights reads:

    SYNC_DIR/weight_v000002/
        model-00000-of-00002.safetensors    for each tensor that changed a U8 tensor of its name: the payload. __metadata__: for
        model-00001-of-00002.safetensors    each of them the checksum of its new bytes, in hexadecimal digits
        model.safetensors.index.json        weight_map: name -> file, and metadata, all of it strings:
            version             "000002"
            base_version        "000001"     what it must be applied to
            delta_encoding      "prediction" the difference is inside the codec, which is given the old tensor as its prediction
            compression_format  "lmc"        tensor_encode(): blocks, each with the CRC-32C of its old and its new bytes
            checksum_format     "xxh3-128", "adler32" or "blake3"

With compression="zstd" it is delta_encoding "xor" and compression_format "zstd", for receivers that know nothing else. receive reads
both, and "overwrite", and refuses any other. A version without delta_encoding is full: a plain checkpoint; ours have one file more
than NEW_DIR, weight_sync.json, with checksums of all tensors and headers, which receive checks where it is. Version 0 is the engine's
own model, never published. SkyRL has the same payloads under another name and index, v00000002/manifest.json: layout="skyrl"; receive
reads that, too.

publish writes into a hidden directory, payloads first and index last, syncs it, and renames it when it is finished. It refuses an
OLD_DIR that is not the base version, as far as the checksums there tell.

receive keeps its state where SGLang does, LOCAL_DIR/.weight_sync/state.json, and takes the same lock. It makes the new files beside
the old ones, for all versions up to the target at once, and checks every tensor of every version; only when all of that has been
synced, it renames them one after another. Whatever it refuses has changed nothing. Killed before the renames, nothing has changed;
killed amidst, each file is old or new, state.json says so ("commit"), and the next receive finishes it. Until then the files must not
be loaded: that it has returned (an exit code of 0) says that they may. It needs room for the new files beside the old, memory for the
payloads being worked on (one tensor a thread), and 22 MB a thread.

Exit codes: 0 done, or nothing to do; 1 error; 2 usage; 3 published data is corrupt; 4 the base is missing or not the one that is wanted.
In Python these are SyncError, SyncCorrupt and SyncWrongBase.

A receiver of your own needs this much. In SGLang's weight_sync/local_checkpoint.py, _apply_delta: allow "lmc" where compression_format
is checked, set apply_tensor to apply_lmc where it is "lmc", and beside apply_xor, whose item and open_mmaps these are:

    def apply_lmc(item):
        name, payload, path, offset, nbytes, want = item
        region = np.ndarray((nbytes,), np.uint8, buffer=open_mmaps[path][1], offset=offset)
        try:
            lmc_codec.tensor_decode(payload, region, region)     # in place: a wrong base is found before anything is written
            ok = _checksum(algorithm, region) == want
        except lmc_codec.LMCError:
            ok = False
        if not ok:
            with lock:
                mismatches.append(name)

and a publisher (slime, update_weight_from_disk_delta.py, in diff_and_compress; dtype as safetensors names it):

    changed = int(np.count_nonzero(new != old))
    compressed = np.frombuffer(lmc_codec.tensor_encode(new, old, dtype=dtype), np.uint8)

NVIDIA's ModelExpress, whose receiver is in vLLM, has a table of decompressors: register_modelexpress() enters "lmc" there (call it in
the processes of both sides), and its trainer then publishes such payloads.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import importlib
import json
import logging
import os
import re
import shutil
import stat
import sys
import zlib

import numpy as np

from . import _arrays, _lmc
from ._errors import BaseError, LMCError

INDEX = "model.safetensors.index.json"
LOGGER = logging.getLogger(__name__)
MANIFEST = "manifest.json"        # SkyRL's index
CHECKSUMS_FILE = "weight_sync.json"
STATE_DIR = ".weight_sync"        # in the local checkpoint; SGLang's name
COPY_SIZE = 8 << 20
MAX_HEADER_SIZE = 100_000_000     # as safetensors has it


class SyncError(LMCError):
    """Refused: nothing has changed. code: that of the command."""

    code = 1


class SyncCorrupt(SyncError):
    code = 3


class SyncWrongBase(SyncError):
    code = 4


# ---- codecs: what a payload is made of. encode(new, old, dtype) -> bytes; decode(out, old, payload), where out may be old ----


class LMC:
    def __init__(self, encoding):
        pass

    def encode(self, new, old, dtype):
        return _lmc.tensor_encode(new, dtype if dtype in _arrays.BITS else "AUTO", old)

    def decode(self, out, old, payload):
        try:
            _lmc.tensor_decode(payload, out, "AUTO", old)
        except BaseError as error:
            raise SyncWrongBase(str(error))
        except LMCError as error:
            raise SyncCorrupt(str(error))


class Zstd:
    """The incumbents'. It cannot tell a wrong base from corrupt data: both end in a wrong checksum."""

    def __init__(self, encoding):
        self.zstd, self.encoding = import_package("zstandard"), encoding

    def encode(self, new, old, dtype):
        return self.zstd.ZstdCompressor(level=1).compress(new ^ old) # slime's level

    def decode(self, out, old, payload):
        try:
            self.apply_xor(out, old, payload) if self.encoding == "xor" else self.apply_overwrite(out, old, payload)
        except (self.zstd.ZstdError, ValueError, IndexError) as error:
            raise SyncCorrupt("zstd + %s: %s" % (self.encoding, error))

    def apply_xor(self, out, old, payload):
        at = 0
        with self.zstd.ZstdDecompressor().stream_reader(payload) as stream:
            while chunk := stream.read(COPY_SIZE):
                end = at + len(chunk)
                np.bitwise_xor(old[at:end], np.frombuffer(chunk, np.uint8), out=out[at:end])
                at = end
        if at != out.size:
            raise ValueError("%d bytes in place of %d" % (at, out.size))

    def apply_overwrite(self, out, old, payload):
        """A count of 4 bytes, as many positions of 4, as many new bytes."""
        data = np.frombuffer(self.zstd.ZstdDecompressor().stream_reader(payload).read(5 + 5 * out.size), np.uint8)
        count = int.from_bytes(data[:4], "little")
        if data.size != 4 + 5 * count:
            raise ValueError("%d bytes for %d positions" % (data.size, count))
        out[:] = old
        out[data[4:4 + 4 * count].view("<u4")] = data[4 + 4 * count:]


CODECS = {("lmc", "prediction"): LMC, ("zstd", "xor"): Zstd, ("zstd", "overwrite"): Zstd}


def import_package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SyncError("the Python package %s is missing: python3 -m pip install %s" % (name, name))


def find_checksum(algorithm):
    """The function that takes a checksum; the names are slime's."""
    if algorithm == "adler32":
        return lambda data: "%08x" % zlib.adler32(data)
    if algorithm == "xxh3-128":
        xxhash = import_package("xxhash")
        return lambda data: xxhash.xxh3_128(data).hexdigest()
    if algorithm == "blake3":
        blake3 = import_package("blake3")
        return lambda data: blake3.blake3(data).hexdigest()
    raise SyncError("checksum_format %s is not one of xxh3-128, adler32, blake3" % ascii(algorithm))


# ---- files ----


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path, value):
    """Whole or not at all, also if the machine dies."""
    with open(path + ".tmp", "w") as f:
        json.dump(value, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)
    sync(os.path.dirname(path))


def read_json(path):
    """An object, or None if there is no such file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as f: # a pipe would be waited for
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                raise SyncCorrupt("%s is no file" % path)
            value = json.load(f)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise SyncCorrupt("%s is not JSON: %s" % (path, error))
    if not isinstance(value, dict):
        raise SyncCorrupt("%s holds no JSON object" % path)
    return value


def copy_file(source, target):
    shutil.copyfile(source, target)
    shutil.copystat(source, target)
    sync(target)


def list_files(directory):
    """Names of the regular files, hidden ones left out."""
    if not os.path.isdir(directory):
        raise SyncError("%s is no directory" % directory)
    with os.scandir(directory) as entries:
        return sorted(e.name for e in entries if e.is_file() and not e.name.startswith("."))


@contextlib.contextmanager
def locked(path, wait):
    with open(path, "a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise SyncError("%s is locked: another process is at work there" % path)
        yield


Tensor = collections.namedtuple("Tensor", "path name dtype shape offset size")


def read_shard(path):
    """(tensors by offset, metadata) of a safetensors file, which must be whole."""
    try:
        with open(path, "rb") as f:
            file_size = os.fstat(f.fileno()).st_size
            header_size = int.from_bytes(f.read(8), "little")
            at = 8 + header_size
            if file_size < 8 or header_size > MAX_HEADER_SIZE or at > file_size:
                raise ValueError("its header is cut short, or it is no safetensors file")
            header = json.loads(f.read(header_size))
        metadata = header.pop("__metadata__", {})
        tensors = []
        for name, t in sorted(header.items(), key=lambda item: (item[1]["data_offsets"], item[0])):
            begin, end = t["data_offsets"]
            if not isinstance(begin, int) or not isinstance(end, int) or 8 + header_size + begin != at or end < begin:
                raise ValueError("tensor %s does not begin where the one before it ends" % ascii(name))
            tensors.append(Tensor(path, name, str(t["dtype"]), list(t["shape"]), at, end - begin))
            at += end - begin
        if at > file_size:
            raise ValueError("%d bytes are missing at its end" % (at - file_size))
        return tensors, dict(metadata)
    except FileNotFoundError:
        raise SyncError("%s is missing: not all of it has arrived, or it was removed" % path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SyncCorrupt("%s is damaged: %s" % (path, error))


def read_checkpoint(directory):
    """name -> Tensor of all safetensors files in a directory, none of which may be missing."""
    if "commit" in (read_json(os.path.join(directory, STATE_DIR, "state.json")) or {}):
        raise SyncError("%s was left by a killed receive with files old and new: run receive again" % directory)
    tensors = {}
    for file in list_files(directory):
        if file.endswith(".safetensors"):
            for t in read_shard(os.path.join(directory, file))[0]:
                if t.name in tensors:
                    raise SyncCorrupt("%s: tensor %s is there twice" % (directory, ascii(t.name)))
                tensors[t.name] = t
    if not tensors:
        raise SyncError("%s: no tensors in *.safetensors" % directory)
    weight_map = (read_json(os.path.join(directory, INDEX)) or {}).get("weight_map") or tensors
    if not isinstance(weight_map, dict) or set(weight_map) != set(tensors):
        raise SyncError("%s: its index and its files do not have the same tensors: not all of it has arrived, or it is no checkpoint" % directory)
    return tensors


def map_file(path, mode="r"):
    return np.memmap(path, np.uint8, mode)


def get_bytes(mapped, tensor):
    return mapped[tensor.offset:tensor.offset + tensor.size]


# ---- published versions ----

# payloads: name -> Tensor, of the packed bytes; checksums: name -> hexadecimal digits, of the new ones
# if full: codec and base are None, there are no payloads, and headers: file -> digits, of what is before its tensors
Version = collections.namedtuple("Version", "number path base codec checksum payloads checksums headers", defaults=[None])

LAYOUTS = {"slime": ("weight_v%06d", r"weight_v(\d{6,})", INDEX), "skyrl": ("v%08d", r"v(\d{8,})", MANIFEST)}


def read_number(where, values, key):
    try:
        return int(values[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SyncCorrupt("%s: no number %s" % (where, key))


def find_versions(sync_dir):
    """number -> directory, of those that are finished: a delta's index is written last."""
    versions = {}
    for name in sorted(os.listdir(sync_dir)):
        for _, pattern, index in LAYOUTS.values():
            match, path = re.fullmatch(pattern, name), os.path.join(sync_dir, name)
            if match and (os.path.exists(os.path.join(path, index)) or os.path.exists(os.path.join(path, "model.safetensors"))):
                versions[int(match[1])] = path
    return versions


def read_version(number, path):
    """Reads and checks all that is said of a version; its payloads are read when they are applied."""
    manifest = read_json(os.path.join(path, MANIFEST))
    if manifest is not None:
        return read_manifest(number, path, manifest)
    where = os.path.join(path, INDEX)
    index = read_json(where) or {}
    meta = index.get("metadata") or {}
    if not isinstance(meta, dict):
        raise SyncCorrupt("%s: metadata is no object" % where)
    if "delta_encoding" not in meta:
        if "base_version" in meta or "compression_format" in meta:
            raise SyncCorrupt("%s: a delta, and delta_encoding is missing" % where)
        where = os.path.join(path, CHECKSUMS_FILE)
        stored = read_json(where)
        if stored is None:
            return Version(number, path, None, None, None, {}, {}, {})
        if not isinstance(stored.get("checksums"), dict) or not isinstance(stored.get("headers"), dict):
            raise SyncCorrupt("%s: no objects checksums and headers" % where)
        return Version(number, path, None, None, find_checksum(stored.get("checksum_format")), {}, stored["checksums"], stored["headers"])
    codec = find_codec(where, meta.get("compression_format"), meta["delta_encoding"])
    payloads, checksums, weight_map = {}, {}, index.get("weight_map")
    try:
        files = sorted(set(weight_map.values()))
        for file in files:
            if os.path.basename(file) != file:
                raise ValueError("%s is not a file's name" % ascii(file))
            tensors, digests = read_shard(os.path.join(path, file))
            for t in tensors:
                if weight_map.get(t.name) != file:
                    raise ValueError("tensor %s is in %s, which is not what weight_map says" % (ascii(t.name), file))
                payloads[t.name], checksums[t.name] = t, digests.get(t.name)
        if len(payloads) != len(weight_map):
            raise ValueError("weight_map names tensors that are not there")
    except (ValueError, TypeError, AttributeError) as error:
        raise SyncCorrupt("%s: %s" % (where, error))
    return check_version(where, Version(read_number(where, meta, "version"), path, read_number(where, meta, "base_version"), codec,
                                        find_checksum(meta.get("checksum_format")), payloads, checksums), number)


def read_manifest(number, path, manifest):
    """SkyRL's index. It has no compression_format: ours says so beside the rest, theirs is always zstd + xor."""
    where = os.path.join(path, MANIFEST)
    codec = find_codec(where, manifest.get("compression_format", "zstd"), manifest.get("delta_encoding", "xor"))
    payloads, checksums, algorithms, shards = {}, {}, {"xxh3-128"}, {}
    try:
        algorithms = {r["checksum_algorithm"] for r in manifest["tensors"]} or algorithms
        for r in manifest["tensors"]:
            file = r["payload_file"]
            if os.path.basename(file) != file or not isinstance(r["name"], str):
                raise ValueError("%s is not a file's name, or %s not a tensor's" % (ascii(file), ascii(r["name"])))
            if file not in shards:
                shards[file] = {t.name: t for t in read_shard(os.path.join(path, file))[0]}
            payloads[r["name"]], checksums[r["name"]] = shards[file][r["payload_key"]], r["checksum"]
    except (ValueError, KeyError, TypeError) as error:
        raise SyncCorrupt("%s: %s" % (where, error))
    if len(algorithms) != 1:
        raise SyncError("%s: several checksum algorithms" % where)
    return check_version(where, Version(read_number(where, manifest, "version"), path, read_number(where, manifest, "base_version"), codec,
                                        find_checksum(algorithms.pop()), payloads, checksums), number)


def find_codec(where, compression, encoding):
    if compression not in ("lmc", "zstd"):
        raise SyncError("%s: compression_format %s is not one of lmc, zstd" % (where, ascii(compression)))
    if (compression, str(encoding)) not in CODECS:
        raise SyncError("%s: delta_encoding %s is not known with %s" % (where, ascii(encoding), compression))
    return CODECS[compression, encoding](encoding)


def check_version(where, version, number):
    if version.number != number:
        raise SyncCorrupt("%s says that it is version %d" % (where, version.number))
    if not 0 <= version.base < version.number:
        raise SyncCorrupt("%s: version %d cannot build on %d" % (where, number, version.base))
    for name, digest in version.checksums.items():
        if not isinstance(digest, str):
            raise SyncCorrupt("%s: no checksum for tensor %s" % (where, ascii(name)))
    return version


# ---- publish ----


def write_shard(path, shard):
    """shard: an iterator of (tensor, payload, digest); returns [(tensor, payload size, digest)]. Payloads go to a nameless file first, as
    the header, which comes before them, says how long each is."""
    written = []
    with open(path + ".payload", "w+b") as payloads:
        os.unlink(path + ".payload")
        for t, payload, digest in shard:
            payloads.write(payload)
            written.append((t, len(payload), digest))
        if not written:
            return written
        header, at = {"__metadata__": {t.name: digest for t, _, digest in written}}, 0
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


def map_ordered(pool, threads, function, items):
    """The results in order; only some items are begun before the results are taken, so that few of them are in memory."""
    pending = collections.deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= 2 * threads:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _publish(args):
    if args.layout == "skyrl" and not args.base:
        raise SyncError("SkyRL has no full versions: its receivers start from their model, version 0; name what this one builds on with --base")
    if args.layout == "skyrl" and args.checksum != "xxh3-128":
        raise SyncError("SkyRL knows no checksum %s: use xxh3-128" % args.checksum)
    naming = LAYOUTS[args.layout][0]
    target = os.path.join(args.sync_dir, naming % args.version)
    stage = os.path.join(args.sync_dir, ".%s.tmp" % os.path.basename(target))
    os.makedirs(args.sync_dir, exist_ok=True)
    with locked(os.path.join(args.sync_dir, ".lock"), wait=False), concurrent.futures.ThreadPoolExecutor(args.threads) as pool:
        if os.path.lexists(target):
            raise SyncError("%s is there already: what was published is never changed" % target)
        for name in os.listdir(args.sync_dir): # what killed publishers left
            if re.fullmatch(r"\.(weight_)?v\d+\.tmp", name):
                shutil.rmtree(os.path.join(args.sync_dir, name))
        os.mkdir(stage)
        try:
            said = publish_delta(args, pool, stage) if args.base else publish_full(args, pool, stage)
            sync(stage)
            os.rename(stage, target)
            sync(args.sync_dir)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
    return "%s: %s" % (target, said)


def publish_full(args, pool, stage):
    tensors = read_checkpoint(args.new_dir)
    files = [f for f in list_files(args.new_dir) if f != CHECKSUMS_FILE]
    for file in files:
        copy_file(os.path.join(args.new_dir, file), os.path.join(stage, file))
    size = sum(t.size for t in tensors.values())
    if INDEX not in files and "model.safetensors" not in files: # by these a full version is known
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


def publish_delta(args, pool, stage):
    new, old = read_checkpoint(args.new_dir), read_checkpoint(args.base)
    base = args.version - 1 if args.base_version is None else args.base_version
    other = sorted(n for n in set(new) | set(old) if n not in new or n not in old or new[n][2:4] != old[n][2:4] or new[n].size != old[n].size)
    if other:
        raise SyncError("%s and %s differ in more than values, e.g. in tensor %s: publish a full version (without --base)" %
                      (args.base, args.new_dir, ascii(other[0])))
    state = read_json(os.path.join(args.base, STATE_DIR, "state.json"))
    if state and read_number(args.base, state, "version") != base:
        raise SyncWrongBase("%s is at version %d, not at %d" % (args.base, int(state["version"]), base))
    versions = find_versions(args.sync_dir)
    known = read_version(base, versions[base]) if base in versions else None
    if base and not known:
        LOGGER.warning("note: version %d is not in %s: only receivers that have it can follow", base, args.sync_dir)
    encoding = "prediction" if args.compression == "lmc" else "xor"
    codec, checksum = find_codec("publish", args.compression, encoding), find_checksum(args.checksum)

    def encode(t):
        now, before = get_bytes(maps[t.path], t), get_bytes(maps[old[t.name].path], old[t.name])
        if known and t.name in known.checksums and known.checksum(before) != known.checksums[t.name]:
            raise SyncWrongBase("%s is not version %d as it was published: tensor %s differs" % (args.base, base, ascii(t.name)))
        if all(np.array_equal(now[i:i + COPY_SIZE], before[i:i + COPY_SIZE]) for i in range(0, t.size, COPY_SIZE)):
            return None
        return t, codec.encode(now, before, t.dtype), checksum(now)

    shards = []
    for path in sorted({t.path for t in new.values()}):
        tensors = sorted(t for t in new.values() if t.path == path)
        maps = {p: map_file(p) for p in {path, *(old[t.name].path for t in tensors)}}
        written = write_shard(os.path.join(stage, "shard%d" % len(shards)), filter(None, map_ordered(pool, args.threads, encode, tensors)))
        if written:
            shards.append(written)
    files = [("payload-rank000000-file%06d.safetensors" if args.layout == "skyrl" else "model-%05d-of-{:05d}.safetensors".format(len(shards))) % i
             for i in range(len(shards))]
    for i, file in enumerate(files):
        os.rename(os.path.join(stage, "shard%d" % i), os.path.join(stage, file))
    how = {"delta_encoding": encoding, "compression_format": args.compression}
    payloads = [(file, t, size, digest) for file, written in zip(files, shards) for t, size, digest in written]
    size, packed = sum(t.size for t in new.values()), sum(os.path.getsize(os.path.join(stage, f)) for f in files)
    if args.layout == "skyrl":
        write_json(os.path.join(stage, MANIFEST), {
            "version": args.version, "base_version": base, **how, "payload_files": files,
            "tensors": [{"name": t.name, "dtype": name_torch_dtype(t.dtype), "shape": t.shape, "uncompressed_num_bytes": t.size,
                         "compressed_num_bytes": n, "payload_file": file, "payload_key": t.name, "checksum": digest,
                         "checksum_algorithm": args.checksum} for file, t, n, digest in payloads],
            "total_uncompressed_num_bytes": sum(t.size for _, t, _, _ in payloads), "total_compressed_num_bytes": sum(p[2] for p in payloads)})
    else:
        write_json(os.path.join(stage, INDEX), {
            "metadata": {"version": "%06d" % args.version, "base_version": "%06d" % base, **how, "checksum_format": args.checksum},
            "weight_map": {t.name: file for file, t, _, _ in payloads}})
    return "%d of %d tensors changed, %d bytes as %d, %.2fx" % (len(payloads), len(new), size, packed, size / max(packed, 1))


def name_torch_dtype(dtype):
    kinds = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint"}
    return dtype.lower() if dtype == "BOOL" else re.sub("^(BF|F|I|U)", lambda m: kinds[m[1]], dtype).replace("E4M3", "e4m3fn").replace("E5M2", "e5m2")


# ---- receive ----


def _receive(args):
    if not os.path.isdir(args.sync_dir):
        raise SyncError("%s is no directory" % args.sync_dir)
    state_dir = os.path.join(args.local_dir, STATE_DIR)
    stage, state_path = os.path.join(state_dir, "stage"), os.path.join(state_dir, "state.json")
    os.makedirs(state_dir, exist_ok=True)
    said = []
    with locked(os.path.join(state_dir, "lock"), wait=True):
        state = read_json(state_path) or {}
        if "commit" in state:
            have = commit(args.local_dir, stage, state_path, state)
            said.append("%s: at version %d: finished what a killed receive had begun" % (args.local_dir, have))
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
            return "\n".join([*said, "%s: at version %d already" % (args.local_dir, have)])
        full, links = find_chain(args, versions, have, target)
        begin = args.local_dir if have is not None and not full else full.path if full else args.base
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
        said.append("%s: version %d, from %s by %d delta%s" % (args.local_dir, target, begin if begin != args.local_dir else "version %d" % have,
                                                                  len(links), "s" * (len(links) != 1)))
        return "\n".join(said)


def find_chain(args, versions, have, target):
    """(the full version to begin with or None, the deltas from there or from what the local copy has to the target, in order)."""
    links, number = [], target
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


def make_stage(args, stage, begin, full, links):
    """Makes the files that differ from those of the local copy."""
    tensors = read_checkpoint(begin)
    for link in links:
        other = sorted(set(link.payloads) - set(tensors))
        if other:
            raise SyncWrongBase("version %d has tensor %s, and %s has not" % (link.number, ascii(other[0]), begin))
    for path in sorted({t.path for t in tensors.values()} if full else ()): # a delta names its checksums there
        if set(read_shard(path)[1]) & set(tensors):
            raise SyncCorrupt("%s holds the payloads of a delta, and its index does not say so" % path)
    if full and full.checksums and set(full.checksums) != set(tensors):
        raise SyncCorrupt("%s: tensors and checksums are not the same" % full.path)
    os.mkdir(stage)
    with contextlib.ExitStack() as stack:
        files = {p: stack.enter_context(open(p, "rb")) for p in {t.path for link in links for t in link.payloads.values()}}
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(args.threads)) # ends before the files are closed

        def read_payload(t):
            payload = os.pread(files[t.path].fileno(), t.size, t.offset)
            if len(payload) != t.size:
                raise SyncCorrupt("%s was cut short" % t.path)
            return payload

        def make_tensor(t, source, out):
            if full and full.checksums: # of what stays here, not of what was read once before
                out[:] = source
                source = out
                if full.checksum(out) != full.checksums[t.name]:
                    raise SyncCorrupt("version %d, tensor %s: wrong checksum" % (full.number, ascii(t.name)))
            for link in links:
                if t.name not in link.payloads:
                    continue
                try:
                    link.codec.decode(out, source, read_payload(link.payloads[t.name]))
                    if link.checksum(out) != link.checksums[t.name]:
                        raise SyncCorrupt("wrong checksum after decoding")
                except SyncWrongBase:
                    raise SyncWrongBase("version %d, tensor %s: %s is not version %d, which it was made against" %
                                    (link.number, ascii(t.name), begin if source is not out else "what came before", link.base))
                except SyncError as error:
                    raise type(error)("version %d, tensor %s: %s" % (link.number, ascii(t.name), error))
                source = out
            if source is not out:
                out[:] = source

        for file in list_files(begin):
            path, made = os.path.join(begin, file), os.path.join(stage, file)
            if full and os.path.islink(path): # nobody publishes them; it might lead anywhere
                raise SyncCorrupt("%s is a link" % path)
            mine = [t for t in tensors.values() if t.path == path]
            if mine and (begin != args.local_dir or any(t.name in link.payloads for t in mine for link in links)):
                source = map_file(path)
                out = make_file(made, source.size)
                first, last = mine[0].offset, mine[-1].offset + mine[-1].size
                out[:first], out[last:] = source[:first], source[last:]
                if full and full.checksums and full.checksum(out[:first]) != full.headers.get(file):
                    raise SyncCorrupt("%s: its header has another checksum" % path)
                list(pool.map(lambda t: make_tensor(t, get_bytes(source, t), get_bytes(out, t)), mine))
                out.flush()
                shutil.copymode(path, made)
                sync(made)
            elif begin != args.local_dir and file != CHECKSUMS_FILE:
                copy_file(path, made)
    sync(stage)
    sync(os.path.dirname(stage)) # before the state says that it is there


def make_file(path, size):
    with open(path, "wb") as f:
        f.truncate(size)
        if hasattr(os, "posix_fallocate"): # a full disk is an error now, and not a signal later
            os.posix_fallocate(f.fileno(), 0, size)
    return map_file(path, "r+")


def commit(local_dir, stage, state_path, state):
    """The renames; may be killed and repeated. Returns the version."""
    where, said = "%s: commit" % state_path, state["commit"]
    version = read_number(where, said, "version")
    if not os.path.isdir(stage): # it goes last of all
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


# ---- in Python ----


def count_threads():
    return min(16, os.cpu_count() or 1)


def publish(
    new_dir: str | os.PathLike[str],
    sync_dir: str | os.PathLike[str],
    *,
    version: int,
    base: str | os.PathLike[str] | None = None,
    base_version: int | None = None,
    checksum: str = "xxh3-128",
    compression: str = "lmc",
    layout: str = "slime",
    threads: int | None = None,
) -> str:
    """Writes a version to sync_dir; a full one without base. base: the checkpoint that receivers have, of base_version (version - 1). Returns a line about it.

    checksum: "xxh3-128", "adler32" or "blake3". compression: "lmc" or "zstd". layout: "slime" or "skyrl". Raises SyncError.
    """
    base_version = version - 1 if base_version is None else base_version
    if version < 1 or not 0 <= base_version < version:
        raise ValueError("versions count from 1, and a base comes before what builds on it")
    from ._threads import count_threads as check_threads

    check_threads(threads)
    if layout not in LAYOUTS or compression not in ("lmc", "zstd"):
        raise ValueError("layout is slime or skyrl, and compression lmc or zstd")
    find_checksum(checksum)
    return _publish(argparse.Namespace(new_dir=os.fspath(new_dir), sync_dir=os.fspath(sync_dir), version=version,
                                       base=None if base is None else os.fspath(base), base_version=base_version, checksum=checksum,
                                       compression=compression, layout=layout, threads=threads or count_threads()))


def receive(
    sync_dir: str | os.PathLike[str],
    local_dir: str | os.PathLike[str],
    *,
    version: int | None = None,
    base: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> str:
    """Brings local_dir to a version, the newest by default; its files may be loaded when this has returned. base: version 0, where local_dir
    is empty and no full version was published. Raises SyncError, SyncCorrupt or SyncWrongBase; local_dir is then as it was."""
    from ._threads import count_threads as check_threads

    check_threads(threads)
    return _receive(argparse.Namespace(sync_dir=os.fspath(sync_dir), local_dir=os.fspath(local_dir), version=version,
                                       base=None if base is None else os.fspath(base), threads=threads or count_threads()))


# ---- ModelExpress ----


class _XorReader:
    """What ModelExpress reads a delta from: bytes of the xor, decoded as they are read."""

    def __init__(self, payload):
        self.payload, self.at = payload, 0
        self.size, self.dtype, self.log2_block = _lmc.tensor_layout(payload)

    def read(self, size):
        out = bytearray(max(0, min(size, self.size - self.at)))
        if out:
            _lmc.tensor_decode(self.payload, out, self.dtype, offset=self.at, total_size=self.size, log2_block=self.log2_block)
        self.at += len(out)
        return out

    def close(self):
        self.payload = None


class _Json:
    """json for the trainer's module, whose index names its compression by a literal."""

    def __init__(self, json_module):
        self.json = json_module

    def __getattr__(self, name):
        return getattr(self.json, name)

    def dumps(self, value, **options):
        if isinstance(value, dict) and isinstance(value.get("metadata"), dict) and value["metadata"].get("compression_format") == "zstd":
            value = {**value, "metadata": {**value["metadata"], "compression_format": "lmc"}}
        return self.json.dumps(value, **options)


def register_modelexpress() -> None:
    """ModelExpress (0.7) reads deltas whose compression_format is "lmc", and its trainer writes them: call it in the processes of both. Its
    index stays as it is, xor and adler32. May be called again."""
    from modelexpress_rl.inference import receiver
    receiver._DECOMPRESSORS["lmc"] = _XorReader
    try:
        from modelexpress_rl.train.methods import canonical_delta
    except ImportError: # the trainer's side is not installed with all that it needs
        return
    canonical_delta.compress_delta = lambda delta: np.frombuffer(_lmc.tensor_encode(delta, "AUTO"), np.uint8)
    if not isinstance(canonical_delta.json, _Json):
        canonical_delta.json = _Json(canonical_delta.json)


# ---- command ----


def parse_arguments():
    parser = argparse.ArgumentParser(prog="python -m lmc_codec.weight_sync", description="Publish and receive versions of a checkpoint as LMC deltas.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    threads = count_threads()

    def natural(text):
        if not text.isdigit():
            raise argparse.ArgumentTypeError("%s is no number" % text)
        return int(text)

    p = verbs.add_parser("publish", help="write a version")
    p.add_argument("new_dir", metavar="NEW_DIR", help="the checkpoint to publish")
    p.add_argument("sync_dir", metavar="SYNC_DIR", help="the directory that receivers read")
    p.add_argument("--version", type=natural, required=True, metavar="N")
    p.add_argument("--base", metavar="OLD_DIR", help="the checkpoint that receivers have; without it a full version is published")
    p.add_argument("--base-version", type=natural, metavar="M", help="its version (default: N - 1)")
    p.add_argument("--checksum", default="xxh3-128", choices=["xxh3-128", "adler32", "blake3"])
    p.add_argument("--compression", default="lmc", choices=["lmc", "zstd"], help="zstd: xor and zstd -1, for receivers that know no lmc")
    p.add_argument("--layout", default="slime", choices=list(LAYOUTS))
    p.set_defaults(run=_publish)
    r = verbs.add_parser("receive", help="bring a local checkpoint to a version")
    r.add_argument("sync_dir", metavar="SYNC_DIR")
    r.add_argument("local_dir", metavar="LOCAL_DIR")
    r.add_argument("--version", type=natural, metavar="N", help="default: the newest")
    r.add_argument("--base", metavar="MODEL", help="version 0, where an empty LOCAL_DIR begins unless a full version was published")
    r.set_defaults(run=_receive)
    for p_or_r in (p, r):
        p_or_r.add_argument("--threads", type=natural, default=threads, metavar="N", help="default: %d" % threads)
    args = parser.parse_args()
    if args.verb == "publish" and (args.version == 0 or (args.base_version is not None and args.base_version >= args.version)):
        parser.error("versions count from 1, and a base comes before what builds on it")
    if args.verb == "publish" and args.base_version is not None and not args.base:
        parser.error("--base-version without --base")
    args.threads = max(1, args.threads)
    return args


def main():
    args = parse_arguments()
    try:
        said = args.run(args)
        if said:
            print(said)
    except SyncError as error:
        print("weight_sync: %s" % error, file=sys.stderr)
        return error.code
    except (OSError, MemoryError) as error:
        print("weight_sync: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
