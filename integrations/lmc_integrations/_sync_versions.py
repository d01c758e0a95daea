"""Published versions: the layout of their directories, and their indexes."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ._sync_codecs import SyncCorrupt, SyncError, find_checksum, find_codec, xxh3
from ._sync_files import INDEX, Tensor, read_json, read_shard
from ._sync_pieces import Pieces, read_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._sync_codecs import Bytes, Checksum, Codec

MANIFEST = "manifest.json"  # SkyRL's index
CHECKSUMS_FILE = "weight_sync.json"


class Version(NamedTuple):
    """A version. If it is full, base and codec are None, and payloads is empty."""

    number: int
    path: str
    base: int | None
    codec: Codec | None
    checksum: Checksum | None
    payloads: dict[str, Tensor]  #: the encoded bytes
    checksums: dict[str, str]  #: of the decoded bytes
    others: dict[str, str] = {}  #: of a full version: checksums of each file's bytes that are of no tensor
    digest: str | None = None  #: make_digest() of all its tensors; None: its publisher computes none
    base_digest: str | None = None  #: that of its base
    pieces: Pieces = {}  #: tensors that several processes have published, each its piece

    def check(self, name: str, data: Bytes, digest: str) -> bool:
        """Whether a tensor, whose xxh3-128 is digest, is that of this version. True also if the version has no checksum of it."""
        if self.checksum is None or name not in self.checksums:
            return True
        return self.checksums[name] == (digest if self.checksum is xxh3 else self.checksum(data))


LAYOUTS = {"slime": ("weight_v%06d", r"weight_v(\d{6,})", INDEX), "skyrl": ("v%08d", r"v(\d{8,})", MANIFEST)}


def read_number(where: str, values: dict[str, Any], key: str) -> int:
    try:
        return int(values[key])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SyncCorrupt("%s: no number %s" % (where, key))


def read_digest(where: str, values: dict[str, Any], key: str) -> str | None:
    digest = values.get(key)
    if digest is not None and not isinstance(digest, str):
        raise SyncCorrupt("%s: %s is not a string" % (where, key))
    return digest


def find_versions(sync_dir: str) -> dict[int, str]:
    """number -> directory of the finished versions. The index of a delta is written last."""
    versions: dict[int, str] = {}
    for name in sorted(os.listdir(sync_dir)):
        for _, pattern, index in LAYOUTS.values():
            match, path = re.fullmatch(pattern, name), os.path.join(sync_dir, name)
            if match and (os.path.exists(os.path.join(path, index)) or os.path.exists(os.path.join(path, "model.safetensors"))):
                versions[int(match[1])] = path
    return versions


def read_index(path: str) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    """(file, its JSON object, its object about the version), of a version's directory. None: a full version by others, which
    says nothing about itself."""
    where = os.path.join(path, MANIFEST)
    manifest = read_json(where)
    if manifest is not None:
        return where, manifest, manifest
    where = os.path.join(path, INDEX)
    index = read_json(where) or {}
    meta = index.get("metadata") or {}
    if not isinstance(meta, dict):
        raise SyncCorrupt("%s: metadata is not an object" % where)
    if "delta_encoding" in meta:
        return where, index, meta
    if "base_version" in meta or "compression_format" in meta:
        raise SyncCorrupt("%s: a delta, and delta_encoding is missing" % where)
    where = os.path.join(path, CHECKSUMS_FILE)
    stored = read_json(where)
    return where, stored or {}, stored


def find_digest(path: str) -> str | None:
    """The digest of a version, of which nothing else is read."""
    where, _, meta = read_index(path)
    return read_digest(where, meta or {}, "digest")


def read_version(number: int, path: str) -> Version:
    """Reads and checks a version, except its payloads, which are read when they are applied."""
    where, index, meta = read_index(path)
    if meta is None:
        return Version(number, path, None, None, None, {}, {}, {})
    digests = read_digest(where, meta, "digest"), read_digest(where, meta, "base_digest")
    if os.path.basename(where) == MANIFEST:
        return read_manifest(number, path, where, meta, *digests)
    if os.path.basename(where) == CHECKSUMS_FILE:
        if not isinstance(meta.get("checksums"), dict) or not isinstance(meta.get("headers"), dict):
            raise SyncCorrupt("%s: no objects checksums and headers" % where)
        return check_number(where, Version(read_number(where, meta, "version"), path, None, None, find_checksum(meta.get("checksum_format")), {},
                                           meta["checksums"], meta["headers"], digests[0]), number)
    codec = find_codec(where, meta.get("compression_format"), meta["delta_encoding"])
    payloads: dict[str, Tensor] = {}
    checksums: dict[str, Any] = {}
    try:
        weight_map: dict[str, str] = index["weight_map"]
        files = sorted(set(weight_map.values()))
        for file in files:
            if os.path.basename(file) != file:
                raise ValueError("%s is not a file's name" % ascii(file))
            tensors, shard_sums = read_shard(os.path.join(path, file))
            for t in tensors:
                if weight_map.get(t.name) != file:
                    raise ValueError("tensor %s is in %s, which is not what weight_map says" % (ascii(t.name), file))
                payloads[t.name], checksums[t.name] = t, shard_sums.get(t.name)
        if len(payloads) != len(weight_map):
            raise ValueError("weight_map names tensors that are not there")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SyncCorrupt("%s: %s" % (where, error))
    return check_version(where, Version(read_number(where, meta, "version"), path, read_number(where, meta, "base_version"), codec,
                                        find_checksum(meta.get("checksum_format")), payloads, checksums, {}, *digests, read_pieces(where, index)), number)


def read_manifest(number: int, path: str, where: str, manifest: dict[str, Any], digest: str | None, base_digest: str | None) -> Version:
    """Reads SkyRL's index. SkyRL itself has no compression_format (always zstd + xor); publish() adds it."""
    codec = find_codec(where, manifest.get("compression_format", "zstd"), manifest.get("delta_encoding", "xor"))
    payloads: dict[str, Tensor] = {}
    checksums: dict[str, Any] = {}
    shards: dict[str, dict[str, Tensor]] = {}
    algorithms = {"xxh3-128"}
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
                                        find_checksum(algorithms.pop()), payloads, checksums, {}, digest, base_digest,
                                        read_pieces(where, manifest)), number)


def check_number(where: str, version: Version, number: int) -> Version:
    if version.number != number:
        raise SyncCorrupt("%s says that it is version %d" % (where, version.number))
    return version


def check_version(where: str, version: Version, number: int) -> Version:
    check_number(where, version, number)
    if version.base is None or not 0 <= version.base < version.number:
        raise SyncCorrupt("%s: version %d cannot build on %d" % (where, number, version.base or 0))
    for name, digest in version.checksums.items():
        if not isinstance(digest, str):
            raise SyncCorrupt("%s: no checksum for tensor %s" % (where, ascii(name)))
    return version
