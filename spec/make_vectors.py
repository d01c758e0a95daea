#!/usr/bin/env python3
"""Make the conformance vectors of the LMC format: vectors/valid, vectors/invalid and vectors/manifest.json.

Usage: make_vectors.py                  write all of them, and the bases of deltas to vectors/bases
       make_vectors.py --check-only     compare with the existing files; exit code 1 if they differ

vectors/README.md describes the manifest. encoder.py makes the files. An invalid vector is a valid file with one broken rule; all that depends on it
is right. SPDX-License-Identifier: MIT
"""
import hashlib
import itertools
import json
import os
import shutil
import struct
import sys

import base_variants
from encoder import *  # noqa: F401,F403

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_BIN = 2000                             # bytes; larger expected outputs are given by their SHA-256 only
MAGIC = bytes.fromhex("954C4D430D0A1A0A")
BITS = "base", "own", "quantised", "zeros", "matrix", "codes"     # of Incompatible
EITHER = ["CORRUPT", "BASE_WRONG"]             # R5-13


# ---- The set ----

class Vectors:
    def __init__(self):
        self.outputs, self.manifest, self.builders = {}, {"format": "1.0", "valid": [], "invalid": []}, {}

    def valid(self, name, section, what, b, bases=None, rule=None, refusable=()):
        """bases: paths that the decoder gets, if not only the base. rule: a broken rule of a companion of the page, so a decoder with that companion
        refuses it. refusable: statuses that any decoder may report instead."""
        entry = {"name": name, "section": section, "exercises": what, "size": len(b.out), "sha256": hashlib.sha256(b.out).hexdigest(),
                 "base": b.base.paths if b.base and bases is None else bases or [],
                 "base_fingerprint": b.base.fingerprint.hex() if b.base else None,
                 "fingerprint": fingerprint_of_snapshot(items_of(b.files)).hex(), "files": []}
        for f in b.files:
            item = text("path", f.path)
            item.update({"kind": "directory" if f.kind else "regular", "size": len(f.data), "sha256": hashlib.sha256(f.data).hexdigest(),
                         "mode": f.mode, "mtime": f.mtime, "tensors": []})
            for t, (_, fingerprint) in zip(f.tensors, items_of([f])):
                item["tensors"].append(dict(text("name", t.name), dtype=t.dtype.decode(), shape=t.shape, offset=t.offset, size=t.size,
                                            fingerprint=fingerprint.hex(), loss=t.loss))
            if not f.tensors:
                item["fingerprint"] = next(items_of([f]))[1].hex()
            entry["files"].append(item)
        entry["metadata"] = [dict(text("key", key), **text("value", value)) for key, value in b.metadata]
        if len(b.files) == 1 and not b.files[0].kind and len(b.files[0].data) <= LARGEST_BIN:
            entry["output"] = "valid/%s.bin" % name
            self.outputs[entry["output"]] = b.files[0].data
        if rule:
            entry.update({"or": ["CORRUPT"], "rules": rule.split()})
        if refusable:
            entry["or"] = list(refusable)
        self.put(name, "valid", entry, b.out)
        self.builders[name] = b

    def invalid(self, name, rule, what, status, data, bases=None):
        """rule: that of the page, or several if either may be named. status: a name, or several where decoders may differ. bases: as above."""
        base = data.base if isinstance(data, Builder) else None
        rule += " R5-13" * (status is EITHER and "R5-13" not in rule)
        data = data.out if isinstance(data, Builder) else data
        entry = {"name": name, "rules": rule.split(), "breaks": what, "status": status if isinstance(status, list) else [status],
                 "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "base": base.paths if base and bases is None else bases or []}
        self.put(name, "invalid", entry, data)

    def base(self, path, data):
        """Adds a base that is no vector itself; data None: it is a vector."""
        if data is not None:
            assert path not in self.outputs, path
            self.outputs[path] = bytes(data)
        return path

    def put(self, name, kind, entry, data):
        path = "%s/%s.lmc" % (kind, name)
        assert path not in self.outputs, name
        self.outputs[path] = bytes(data)
        self.manifest[kind].append(entry)

    def add_needs(self):
        """Sets what a decoder must have for a vector: bits of Incompatible, of it and of its bases, and companions of the page."""
        for kind in ("valid", "invalid"):
            for entry in self.manifest[kind]:
                bits, needs = 0, []
                for path in ["%s/%s.lmc" % (kind, entry["name"])] + entry["base"]:
                    data = self.outputs.get(path, b"")
                    if data[:8] == MAGIC:
                        bits |= int.from_bytes(data[16:24], "little")
                    elif path in entry["base"]:
                        needs = ["foreign"]
                companion = entry["section"] if entry.get("section") in ("hash", "links") else None
                entry["needs"] = [name for bit, name in enumerate(BITS) if bits >> bit & 1] + [companion] * (companion is not None) + needs


def text(name, data):
    """A byte string for JSON: as text if it is UTF-8, else in hexadecimal under name_hex."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_hex": data.hex()}


def random_block(random):
    width, n = 1 << random.below(4), 3 + random.below(60 if random.below(2) else 900)
    lists, coders = [], {}

    def policy(n_bits, nesting, depth):
        return random.below(21) if random.below(3) else 0

    for p in range(width):
        kind = random.below(4)
        if kind == 0 or n < 40:
            lists.append(bytes([random.below(256)]) * n)
        elif kind == 1:
            lists.append(random.data(n))
        else:
            lengths = random_code(random, 2 + random.below((5, 20, 40)[random.below(3)]))
            escape = lengths.pop() if random.below(2) else None
            base, step = random.below(60), 1 + random.below(3)
            lengths = {base + i * step: lengths[(i * 7 + 3) % len(lengths)] if len(lengths) % 7 else lengths[i] for i in range(len(lengths))}
            lists.append(draw(random, lengths, n, range(256) if escape else ()))
            coders[p] = tree(lengths, escape, policy, to_escape=[base] if escape and random.below(4) == 0 else ())
    block = planes(lists, coders, random.below(3))
    return block if len(join(block.payload)) < len(block.data) else stored(block.data, width)


def valid_vectors(v):
    r = Random(1)
    # 3, 4.1: header, files
    v.valid("file_empty", "4.1", "one empty file: no run at all", build([Src()]))
    v.valid("incompatible_unused", "3", "Own and Quantised are set, and not used: an encoder that did not know it yet",
            one(stored(b"pipe"), bits=6))
    for bit, name in enumerate(BITS):
        if name != "base":
            v.valid("incompatible_unused_" + name, "3", "Incompatible bit %d is set, and not used" % bit, one(stored(b"pipe"), bits=1 << bit))
    v.valid("minor_255", "3", "Format_Minor 255 in the header and the trailer", one(stored(b"minor"), patch={
        "header.Format_Minor": 255, "trailer.Format_Minor": 255}))
    v.valid("minor_differs", "3", "Format_Minor 1 in the header, 7 in the trailer", one(stored(b"minor"), patch={
        "header.Format_Minor": 1, "trailer.Format_Minor": 7}))
    v.valid("compatible_bits", "3", "all Compatible bits set: they do not matter",
            one(stored(b"compatible"), patch={"header.Compatible": UNKNOWN}))
    v.valid("file_unknown_size", "4.1", "File_Size unknown in the FILE section",
        build([Src(b"pipe", b"from a pipe", size=UNKNOWN), Run([stored(b"from a pipe")])]))
    v.valid("file_unknown_size_empty", "4.1", "File_Size unknown, and zero in the index", build([Src(size=UNKNOWN)]))
    v.valid("file_mode_mtime", "4.1", "Mode and Mtime valid",
        build([Src(b"m", b"mode", mode=0o640, mtime=(1700000000, 123456789)), Run([stored(b"mode")])]))
    v.valid("file_mode_only", "4.1", "Mode valid, with the set-user-ID bit; Mtime not",
        build([Src(b"m", b"mode", mode=0o4755), Run([stored(b"mode")])]))
    v.valid("file_mtime_negative", "4.1", "Mtime before 1970", build([Src(b"m", b"old", mtime=(-2, 999999999)), Run([stored(b"old")])]))
    v.valid("file_mtime_limits", "4.1", "Mtime_Seconds -2^63", build([Src(b"m", b"older", mtime=(-1 << 63, 0)), Run([stored(b"older")])]))
    v.valid("directory_only", "4.1", "a snapshot of one empty directory", build([Src(b"empty", kind=1)]))
    v.valid("directory_root", "4.1", "a directory with an empty path: the snapshot is an empty directory", build([Src(b"", kind=1)]))
    v.valid("paths_beside", "4.1", "paths that sort beside one another, of which none is below a file", build([
        Group(Src(b"a", kind=1), Src(b"a-"), Src(b"a/b"), Src(b"a0"), Src(b"ab/c"), Src(b"ab-", kind=1), Src(b"ab/c-/d"))]))
    v.valid("path_longest", "4.1", "a Path of 65,535 bytes", build([Src(b"p/" * 32767 + b"q")]))
    v.valid("path_backslash", "4.1", "a backslash in a Path is a character like others", build([Src(b"a\\b"), Src(b"\\", kind=1)]))
    v.valid("directory_mode", "4.1", "an empty directory with Mode and Mtime beside a file", build([
        Src(b"d/e", kind=1, mode=0o750, mtime=(1600000000, 5)), Src(b"f", b"file"), Run([stored(b"file")])]))
    v.valid("files_several", "4.1", "several files, empty ones among them, in no order of their paths", build([
        Src(b"z/last", b"one"), Run([stored(b"one")]), Src(b"a/empty"), Src(b"a/b/c/deep", b"three"), Run([stored(b"th")]), Run([stored(b"ree")]),
        Src(b"dir", kind=1), Src(b"zz")]))
    v.valid("paths_odd", "4.1", "legal paths of odd looks", build([
        item for path in (b"...", b".hidden", b"a..b/..c", b"with space", "\u00e9\u4e2d".encode(), b"-dash", b"a/" + b"x" * 255, b"q\"'$*?")
        for item in (Src(path, path[:3]), Run([stored(path[:3])]))]))
    v.valid("path_not_utf8", "4.1", "a path that is not UTF-8", build([Src(b"\xff\xfe.bin", b"bytes"), Run([stored(b"bytes")])]))
    # 4.1: tensors
    names = [("BOOL", 8), ("U8", 8), ("I8", 8), ("F8_E5M2", 8), ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8), ("F4", 4),
             ("F6_E2M3", 6), ("F6_E3M2", 6), ("I16", 16), ("U16", 16), ("F16", 16), ("BF16", 16), ("I32", 32), ("U32", 32), ("F32", 32), ("C64", 64),
             ("F64", 64), ("I64", 64), ("U64", 64), ("I4", 4), ("U4", 4), ("I2", 2), ("U2", 2), ("C128", 128)]
    tensors, at = [], 3
    for name, bits in names:
        tensors.append(T(("t." + name).encode(), name.encode(), (2, 4), at, bits))
        at += bits
    data = r.data(at + 2)
    v.valid("tensors_dtypes", "4.1", "a tensor of every dtype, bytes before and after that belong to none",
        build([Src(b"x.safetensors", data, tensors), Run([stored(data)])]))
    data = r.data(60)
    v.valid("tensors_odd", "4.1", "unknown dtypes, rank 0 and 32, zero sizes, empty and odd names", build([Src(b"odd", data, [
        T(b"", b"F32", (), 0, 4), T(b"unknown", b"F7_E9M9", (3, 1 << 60), 4, 5), T(b"x" * 300, b"D" * 32, (), 9, 0),
        T(b"\xff\x01/../", b"I64", (1,) * 32, 9, 8),
        T(b"zero", b"BF16", (0,), 17, 0), T(b"zero too", b"F64", (1 << 63, 1 << 63, 0, UNKNOWN), 17, 0), T(b"gap", b"F4", (1, 2), 20, 1),
        T(b"lower", b"bf16", (9,), 21, 1), T(b"end", b"U8", (0,), 60, 0)]), Run([stored(data)])]))
    v.valid("tensors_same_name", "7.2", "tensors of the same name in two files; order of the items of the fingerprint", build([
        Src(b"b", b"22", [T(b"w", b"U8", (2,), 0, 2)]), Run([stored(b"22")]), Src(b"w", b"no tensor"), Run([stored(b"no tensor")]),
        Src(b"a", b"11", [T(b"w", b"U8", (1,), 0, 1), T(b"w.b", b"U8", (1, 1), 1, 1)]), Run([stored(b"11")])]))
    v.valid("metadata", "8", "keys that are prefixes of others, empty and binary values", build([Src(data=b"m"), Run([stored(b"m")])], metadata=[
        (b"a", b""), (b"a b", b"text"), (b"ab", b"\0\1\2binary\xff"), (b"b", b"v" * 300), (b"\xff", b"\n")]))
    linked = [Src(b"d", kind=1), Src(b"d/one", b"1"), Run([stored(b"1")]), Src(b"d/same", b"1"), Run([stored(b"1")]), Src(b"e", kind=1)]
    v.valid("metadata_links", "links", "links: symbolic, dangling, to a directory, to what is no UTF-8, in a directory of its own; hard", build(linked, metadata=[
        (b"lmc.links", b"".join(b"%c%s\0%s\0" % link for link in [
            (b"h", b"d/same", b"d/one"), (b"s", b"dangling", b"no/where"), (b"s", b"e/file", b"../d/one"), (b"s", b"latest", b"d"), (b"s", b"odd", b"\xff")]))]))
    links_vectors(v)
    v.valid("metadata_links_broken", "links", "a value of lmc.links that breaks its rules, in a snapshot of one file without a Path: handed out, and not looked at", build([Src(data=b"m"), Run([stored(b"m")])], metadata=[
        (b"lmc.links", b"sa")]))
    # 4.2: runs
    for log2 in range(14, 23):
        v.valid("run_log2_%d" % log2, "4.2", "Block_Size 2^%d, one short block" % log2,
            build([Src(data=b"log2"), Run([stored(b"log2")], log2=log2)]))
    v.valid("run_blocks", "4.2", "three full blocks of different widths and a tail",
        build([Src(b"r", bytes(16384) + b"\1" * 16384 + b"\2" * 16384 + b"\3\4\5\6\7"), Run([
        planes([bytes(16384)]), planes([b"\1" * 2048] * 8), planes([b"\2" * 8192] * 2), stored(b"\3\4\5\6\7")])]))
    v.valid("run_exact", "4.2", "a run of exactly two blocks", build([Src(b"r", bytes(65536)), Run([planes([bytes(8192)] * 4)] * 2, log2=15)]))
    v.valid("run_several", "4.2", "several runs in a file, over tensor borders", build([
        Src(b"f", b"0123456789abcdef", [T(b"a", b"U8", (5,), 1, 5), T(b"b", b"U8", (9,), 7, 9)]),
        Run([stored(b"0123456789", 2)]), Run([stored(b"a")]), Run([stored(b"bcdef")])]))
    v.valid("run_unknown_size", "4.2", "several runs in a file of unknown size, then another file", build([
        Src(b"p", bytes(20000) + b"tail", size=UNKNOWN), Run([planes([bytes(16384)]), planes([bytes(3616)])]), Run([stored(b"tail")]),
        Src(b"q", b"q"), Run([stored(b"q")])]))
    v.valid("block_largest", "5", "2^19 elements of 8 bytes in 16 bytes of payload",
        build([Src(data=b"\5" * (1 << 22)), Run([Block(b"\5" * (1 << 22), 8, 0, 1, [("eight constant planes", b"\1\5" * 8)])], log2=22)]))
    v.valid("block_elements_2_20", "5", "2^20 elements of one byte", build([Src(data=bytes(1 << 20)), Run([planes([bytes(1 << 20)])], log2=20)]))
    v.valid("block_most_elements", "5", "2^22 elements of one byte", build([Src(data=bytes(1 << 22)), Run([planes([bytes(1 << 22)])], log2=22)]))
    n = (1 << 20) + 77
    v.valid("block_elements_over_2_20", "5", "2^20 + 77 elements: a plane with a raw mask, another with a nested one", build([
        Src(data=b"\1\2" * n), Run([Block(b"\1\2" * n, 2, 0, 1, [("bytes", b"\1\1")] + tree({2: 1, 3: 1}, masks=nested_masks(19))(b"\2" * n))],
                                    log2=22)]))
    data = bytes(262144) + b"\1" * 262144 + b"\2" * 3
    v.valid("fingerprint_chunks", "7.1", "tensors around the size of a chunk of the sums", build([
        Src(b"f", data, [T(b"less", b"U8", (262143,), 0, 262143), T(b"more", b"U8", (262145,), 262143, 262145)]),
        Run([planes([data[i:i + 131072]], {0: constant}) for i in range(0, 524288, 131072)] + [planes([b"\2\2\2"])], log2=17),
        Src(b"exact", bytes(262144)), Run([planes([bytes(131072)])] * 2, log2=17)]))
    # 5: stored, residuals, widths
    for width in (1, 2, 4, 8):
        v.valid("stored_w%d" % width, "5", "a stored block of width %d" % width, one(stored(r.data(3 * width), width)))
        v.valid("one_element_w%d" % width, "5", "N_Elements 1", one(stored(r.data(width), width)))
        for order in (0, 1, 2):
            lists = [r.data(21) if p else bytes([0x81]) * 21 for p in range(width)] if width > 1 else [b"\x81" * 21]
            v.valid("planes_w%d_order%d" % (width, order), "5.1", "width %d, Order %d: raw and constant planes" % (width, order),
                one(planes(lists, {}, order)))
            lengths = {0x80: 1, 0x01: 2, 0xFF: 3, 0x7F: 3}
            lists = [draw(r, lengths, 200) for _ in range(width)]
            v.valid("trees_w%d_order%d" % (width, order), "5.1", "width %d, Order %d: a tree in every plane" % (width, order),
                    one(planes(lists, {p: tree(lengths) for p in range(width)}, order)))
        for at in {0, width - 1}:
            lengths = {7: 1, 9: 2}
            plane = draw(r, lengths, 50, (0, 8, 255))
            v.valid("escape_w%d_plane%d" % (width, at), "5.1", "a tree with escape in plane %d, the others constant" % at,
                    one(plane_block(plane, tree(lengths, 2), width, at, 2)))
            if width > 1:
                v.valid("raw_w%d_plane%d" % (width, at), "5.1", "a raw plane %d, the others constant" % at,
                    one(plane_block(plane, raw, width, at, 1)))
    v.valid("raw_though_constant", "6", "a raw plane whose bytes are all equal", one(plane_block(bytes(9), raw, 2)))
    v.valid("planes_n2", "5.1", "two elements of 8 bytes cannot be planes; three of 8 bytes can",
        one(stored(r.data(16), 8), planes([b"abc"] + [b"\1\1\1"] * 7)))
    # 6.1, 6.2: trees
    def shape(name, what, lengths, escape=None, plane=None, n=64, others=(), **options):
        plane = plane if plane is not None else draw(r, lengths, n, others)
        width = options.pop("width", 8)        # so that the payload is smaller than the data with any tree
        v.valid("tree_" + name, "6.2", what, one(plane_block(plane, tree(lengths, escape, **options), width, width - 1)))

    shape("two_leaves", "two leaves: one mask", {65: 1, 66: 1})
    shape("two_far_leaves", "the symbols 0 and 255", {0: 1, 255: 1}, width=8, n=60)
    shape("one_symbol_escape", "one symbol and the escape", {200: 1}, 1, others=range(256))
    shape("only_255_escape", "First = 255", {255: 1}, 1, others=range(256))
    shape("escape_unused", "an escape of population zero", {1: 1, 2: 2}, 2)
    shape("escape_all", "every element escapes", {1: 1, 2: 2}, 2, plane=r.data(50).replace(b"\1", b"\3").replace(b"\2", b"\3"))
    shape("escape_coded", "coded symbols that go through the escape all the same", {1: 1, 2: 2}, 2, to_escape=[1])
    shape("escape_not_flat", "four leaves of equal length, one of them the escape: not flat", {1: 2, 2: 2, 3: 2}, 2, others=range(256))
    shape("escape_in_128", "127 symbols and the escape, all of length 7: flat nodes but where the escape is", even(range(100, 227), 7), 7, n=200,
        others=range(256))
    shape("single_symbol", "a list of one symbol, coded as a tree", {5: 1, 6: 2, 7: 2}, plane=b"\6" * 50)
    shape("unused_symbols", "coded symbols that do not occur: nodes of population zero", even(range(32), 5), plane=bytes(50))
    shape("gaps", "zero lengths within the range", {3: 2, 9: 2, 10: 2, 250: 2})
    shape("even_fields", "an even number of lengths", {3: 1, 4: 2, 5: 3, 6: 3})
    shape("odd_fields", "an odd number of lengths", {3: 1, 4: 2, 5: 2})
    shape("even_fields_escape", "an odd number of symbols and the escape", {3: 1, 4: 2, 5: 3}, 3, others=(9,))
    shape("order", "lengths that fall and rise with the symbol", {10: 3, 11: 1, 12: 4, 13: 3, 14: 4, 15: 3})
    for depth in range(1, 9):
        shape("flat_%d" % depth, "%d leaves of equal length at the root%s" % (1 << depth, ": flat" if 2 <= depth <= 6 else ": not flat"),
              even(range(0, 1 << depth), depth), n=150)
    for depth in range(2, 7):
        lengths = merged({255 - i: depth + 1 for i in range(1 << depth)}, {0: 1})
        shape("flat_%d_below" % depth, "a flat node of %d leaves below the root" % (1 << depth), lengths, n=170)
    v.valid("tree_flat_tail", "6.2", "flat lists of n bits, n = 1 .. 17 in one block each", one(*[
        plane_block(bytes(16) + r.data(n).translate(bytes([1, 2, 3, 4]) * 64), tree({0: 1, 1: 3, 2: 3, 3: 3, 4: 3}), 4) for n in range(1, 18)]))
    shape("deepest", "lengths 1, 2, ... 15, 15", merged({i: i + 1 for i in range(15)}, {15: 15}), plane=bytes(range(16)) * 5)
    shape("deepest_escape", "lengths 1, 2, ... 15 and the escape of 15", {30 - i: i + 1 for i in range(15)}, 15, plane=bytes(range(10, 31)) * 5)
    shape("deepest_flat", "64 leaves of length 15", merged({i: i + 1 for i in range(9)}, {100 + i: 15 for i in range(64)}),
        plane=bytes(range(9)) * 10 + bytes(range(100, 164)))
    code = random_code(r, 256)
    shape("256_leaves", "256 leaves, some deep", {(i * 77) & 255: length for i, length in enumerate(code)}, plane=r.data(300))
    code = random_code(r, 256)
    shape("255_leaves_escape", "255 symbols and the escape", {(i * 77) & 255: length for i, length in enumerate(code[:255])}, code[255],
        plane=r.data(300))
    # 6.3: masks
    two = {0: 1, 1: 1}

    def mask(name, what, n, ones, modes, width=1):
        """A list of zeros and ones, so that the root's mask is the list."""
        block = plane_block(bytes(1 if ones(i) else 0 for i in range(n)), tree(two, masks=nested_masks(*modes)), width)
        v.valid("mask_" + name, "6.3", what, build([Src(data=block.data), Run([block], log2=17)]))

    for level in range(len(FROZEN)):
        for polarity in (0, 1):
            rare = lambda i, level=level: i % (2 + 5 * level) == 1
            mask("level%d_polarity%d" % (level, polarity), "nested, level %d, polarity %d" % (level, polarity), 300,
                 (lambda i, rare=rare: not rare(i)) if polarity else rare, [1 + 2 * level + polarity])
    mask("wrong_polarity", "nested in the polarity that costs more", 1000, lambda i: i % 20 == 0, [2 * 8 + 2])
    mask("wrong_level", "a dense mask in the sparsest tree: larger than raw", 2000, lambda i: i % 3 > 0, [19])
    mask("raw_though_sparse", "a raw mask where nested would be smaller", 1000, lambda i: i == 500, [0])
    for n in (255, 256, 257):
        mask("%d_bits" % n, "%d bits%s" % (n, ": no Mode byte" if n < 256 else ": Mode raw"), n, lambda i: i % 3 == 0, [0])
        if n > 255:
            mask("%d_bits_nested" % n, "%d bits: nested" % n, n, lambda i: i % 30 == 0, [9])
    for tail in range(1, 8):
        mask("tail_%d" % tail, "nested, polarity 1, %d bits in the last byte" % tail, 256 + tail, lambda i: i % 40 > 0, [10])
    mask("all_zero", "nested, all bits zero", 800, lambda i: False, [19])
    mask("all_one", "nested, all bits one, polarity 1", 801, lambda i: True, [20])
    mask("all_one_polarity0", "nested, all bits one, polarity 0: the longest code", 801, lambda i: True, [19])
    mask("nesting_2047", "nested: a list of 256 bytes, whose masks have Mode bytes, raw", 2047, lambda i: i % 50 == 0, [9, 0])
    mask("nesting_2040", "nested: a list of 255 bytes, whose masks have none", 2040, lambda i: i % 50 == 0, [9, 19])
    mask("nesting_2", "nested twice", 2500, lambda i: i % 60 == 0, [15, 10])
    mask("nesting_2_long", "nested twice; at nesting 2 masks of 256 bits and more have no Mode byte", 20000, lambda i: i % 400 == 0, [19, 17])
    mask("nesting_2_longer", "the same with 131,072 bits", 131072, lambda i: i % 3000 == 7, [19, 19])
    mask("nesting_2_mixed", "as before, levels and polarities mixed", 131072, lambda i: i % 900 == 7, [20, 1])
    gap_vectors(v)
    plane = bytes(r.below(8) for _ in range(3000))
    v.valid("mask_by_depth", "6.3", "masks of a tree in modes that change with the depth",
            one(plane_block(plane, tree({i: min(i + 1, 7) for i in range(8)}, masks=lambda n, nesting, depth: (0, 1, 4,
            7)[depth % 4] if nesting == 0 else 0), 2)))
    # Anything
    for seed in range(40):
        random = Random(1000 + seed)
        items = []
        for f in range(1 + random.below(3)):
            blocks = [random_block(random) for _ in range(1 + random.below(3))]
            data = b"".join(block.data for block in blocks)
            tensors, at = [], 0
            while random.below(3) and at < len(data):
                start = at + random.below(len(data) - at)
                at = start + random.below(len(data) - start + 1)
                tensors.append(T(b"f%d.t%d" % (f, len(tensors)), random.pick([b"U8", b"F8_E4M3", b"mystery"]), (at - start,), start, at - start))
            unknown = not tensors and random.below(3) == 0
            items += [Src(b"dir/f%d" % f, data, tensors, size=UNKNOWN if unknown else None)] + [Run([block],
                log2=14 + random.below(9)) for block in blocks]
        v.valid("random_%02d" % seed, "all", "random choices, seed %d" % seed,
            build(items, metadata=[(b"seed", b"%d" % seed)] if seed % 4 == 0 else []))
    # 1: worked examples
    bf16 = struct.pack("<4H", 0x3F80, 0xBF00, 0x0000, 0x4049)
    v.valid("example_stored", "1.1", "worked example: a bf16 tensor of four elements, stored",
            build([Src(b"w.bin", bf16, [T(b"w", b"BF16", (2, 2), 0, 8)]), Run([stored(bf16, 2)])]))
    plane = bytes.fromhex("7A7A797A787A7A777A7A7A7B797A7A107A76797A7A7D7A79")
    lengths = {0x76: 4, 0x77: 4, 0x78: 4, 0x79: 4, 0x7A: 1, 0x7B: 4, 0x7C: 4, 0x7D: 4}
    v.valid("example_tree", "6.2", "worked example: a block of 24 elements with a tree, a flat node and an escape",
            one(planes([b"\x40" * 24, plane], {1: tree(lengths, 4)}, 2)))


def gap_vectors(v):
    """6.3: masks of classes as gaps; predictions are zeros."""
    def mask(name, what, n, ones, mode, width=1, log2=14):
        """An element of 1 is coded, one of 0 is not: so the class's mask is the list."""
        bits = [int(bool(ones(i))) for i in range(n)]
        block = predicted(pack(bits, width), bytes(n * width), width, 1, sparse=True, masks=nested_masks(mode))
        v.valid("mask_gaps_" + name, "6.3", what, build([Src(data=block.data), Run([block], log2=log2, prediction=3)]))

    for s in range(22):
        for polarity in (0, 1):
            rare = lambda i, s=s: i % (3 + 7 * s) == s % 3
            mask("s%d_polarity%d" % (s, polarity), "gaps, Shift %d, Polarity %d" % (s, polarity), 700,
                 (lambda i, rare=rare: not rare(i)) if polarity else rare, gap_mode(s, polarity), 4)
    for s in (0, 3, 8, 21):
        for name, at in (("first", 0), ("last", 599), ("middle", 300)):
            mask("one_%s_s%d" % (name, s), "gaps, K 1: the %s of 600 bits, Shift %d" % (name, s), 600, lambda i, at=at: i == at, gap_mode(s))
        mask("ends_s%d" % s, "gaps, K 2: the first and the last of 600 bits, Shift %d" % s, 600, lambda i: i in (0, 599), gap_mode(s))
        mask("zero_last_s%d" % s, "gaps, Polarity 1, K 1: all bits but the last, Shift %d" % s, 600, lambda i: i < 599, gap_mode(s, 1))
        mask("all_s%d" % s, "gaps, K = n: all bits are one, Shift %d" % s, 300, lambda i: True, gap_mode(s), 8)
        mask("none_s%d" % s, "gaps, Polarity 1, K = n: all bits are zero, Shift %d" % s, 300, lambda i: False, gap_mode(s, 1), 8)
    mask("dense", "gaps though two of three bits are one", 900, lambda i: i % 3 > 0, gap_mode(0), 2)
    mask("255_bits", "255 bits: no Mode byte, whatever would be best", 255, lambda i: i == 77, gap_mode(6))
    for n in (256, 257):
        mask("%d_bits" % n, "gaps: %d bits" % n, n, lambda i: i % 51 == 0, gap_mode(5))
    for k in range(1, 10):
        mask("k%d" % k, "gaps, K %d, Shift 3: the last bytes of both lists" % k, 260, lambda i, k=k: i % 26 == 11 and i < 26 * k, gap_mode(3))
    rare = {5, 1 << 16, 1 << 20, (1 << 20) + 1, (1 << 21) - 1, 1500000}
    mask("large", "gaps in a mask of 2^21 + 3 bits", (1 << 21) + 3, lambda i: i in rare, gap_mode(16), log2=22)


def sparse_gaps(pool, r):
    """5.2, 6.3: the masks of Sparse as gaps."""
    base = pack([element(r, 100, 2) for _ in range(2600)], 2)
    new = pack([b + (i % 260 == 77) for i, b in enumerate(split(base, 2))], 2)
    for s in (0, 4, 7, 21):
        pool.one("sparse_gaps_s%d" % s, "5.2", "Sparse: a mask of 2,600 bits as gaps, Shift %d" % s,
                 predicted(new, base, 2, sparse=True, masks=nested_masks(gap_mode(s))))
    pool.one("sparse_gaps_polarity", "5.2", "Sparse: gaps, Polarity 1: nearly all are coded", predicted(
        pack([b + (i % 260 != 77) for i, b in enumerate(split(base[:1200], 2))], 2), base[:1200], 2, sparse=True,
        masks=nested_masks(gap_mode(7, 1))))
    pool.one("sparse_gaps_none", "5.2", "Sparse: gaps, Polarity 1, K = n: none is coded",
             predicted(base[:1200], base[:1200], 2, sparse=True, masks=nested_masks(gap_mode(0, 1))))
    for n in (255, 256):
        pool.one("sparse_gaps_n%d" % n, "5.2", "Sparse: a mask of %d bits%s" % (n, " as gaps" * (n > 255)),
                 predicted(new[:2 * n], base[:2 * n], 2, sparse=True, masks=nested_masks(gap_mode(6))))
    size = 1 << 22
    block = Block(b"\x81" + bytes(size - 2) + b"\x7f", 1, 1, 1, [
        ("class 0: mask, Mode: gaps", bytes([gap_mode(21)]))] + gap_lists([0, size - 1], 21) + [("class 0, plane 0", b"\0\xfd\xfe")], bytes(
            size), 16)
    pool.zeros("sparse_gaps_most", "5.2", "Sparse: the first and the last of 2^22 elements, Shift 21", block, 22)


# ---- Deltas ----

SPECIALS = {                                   # sign, zero, subnormals, least and largest normal, infinity, NaN
    1: [0x00, 0x80, 0x01, 0x83, 0x04, 0x38, 0xB9, 0x7B, 0x7C, 0xFC, 0x7D, 0xFF],
    2: [0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x3F80, 0xBF81, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF],
    4: [0, 1 << 31, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF],
    8: [0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, 0xBFF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52, 0xFFF8 << 48,
        UNKNOWN]}

# F32 for all cases of rounding to BF16 and to F16: ties to even in both directions, values next to ties, carries into the exponent, overflow, the
# largest finite results, subnormal results and their ties, too small values, infinity, NaN with payloads above and below the cut.
TO_ROUND = [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x3FFFFFFF, 0x3F801000,
            0x3F803000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x387FC000,
            0x387FE000, 0x387FF000, 0x38800000, 0x33800000, 0x33000000, 0x33000001, 0x32FFFFFF, 0x33C00000, 0x33BFFFFF, 0x34200000, 0x34200001,
            0x00008000, 0x00018000, 0x00017FFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7F802000, 0x7FBFE000, 0x7FFFFFFF]


def against(random, keys, n, width, **options):
    """A block of n elements: `keys` are those of the base, and few elements differ a little from it."""
    own = Random(100 * width + keys[0])        # so that blocks share their bases
    base = [element(own, own.pick(keys), width) for _ in range(n)]
    return predicted(pack([step(random, b, width) for b in base], width), pack(base, width), width, **options)


class Pool:
    """A base of one file without tensors, parts of which predict blocks."""

    def __init__(self, path="bases/pool.bin"):
        self.path, self.data, self.later = path, bytearray(), []

    def place(self, data):
        if self.data.find(data) < 0:
            self.data += data
        return self.data.find(data)

    def one(self, name, section, what, *blocks):
        """A snapshot of one nameless file, each block in its own run, predicted by a part of the pool."""
        assert all(block.layout == 0 or block.size() < len(block.data) for block in blocks), "planes must be smaller: %s" % name
        starts = [block.base is not None and self.place(block.base) for block in blocks]
        self.later.append((name, section, what, blocks, starts, 14))

    def zeros(self, name, section, what, block, log2=14):
        """The same for a block whose prediction is zeros."""
        self.later.append((name, section, what, [block], [None], log2))

    def emit(self, v):
        base = Base([Src(data=self.data)], [v.base(self.path, self.data)])
        for name, section, what, blocks, starts, log2 in self.later:
            runs = [Run([block], log2=log2, prediction=0 if block.base is None else 1, base=() if block.base is None or start is None else (1, start))
                    for block, start in zip(blocks, starts)]
            v.valid(name, section, what, build([Src(data=b"".join(block.data for block in blocks))] + runs, base=base))
        return base


def delta_vectors(v):
    r = Random(3)
    pool = Pool()
    # 5.1: residuals
    for width in (1, 2, 4, 8):
        for order in (1, 2):
            pool.one("delta_w%d_order%d" % (width, order), "5.1", "width %d against a base, Order %d" % (width, order),
                     against(r, range(112, 130), 40 + 110 // width, width, order=order))
            pairs, same = [(x, b) for x in SPECIALS[width] for b in SPECIALS[width]], 30 + 300 // width
            base = pack([b for _, b in pairs] + [0] * same, width)
            pool.one("delta_specials_w%d_order%d" % (width, order), "5.1", "width %d, Order %d: every special float against every other" % (
                width, order), predicted(pack([x for x, _ in pairs] + [0] * same, width), base, width, order))
        top = 1 << 8 * width
        integers = [0, 1, 2, 127 % top, top // 2 - 1, top // 2, top // 2 + 1, top - 128, top - 2, top - 1]
        pairs, same = [(x, b) for x in integers for b in integers], 30 + 300 // width
        base = pack([b for _, b in pairs] + [0] * same, width)
        for order in (1, 2):
            pool.one("delta_integers_w%d_order%d" % (width, order), "5.1", "width %d, Order %d: least, largest and small integers of both signs" % (
                width, order), predicted(pack([x for x, _ in pairs] + [0] * same, width), base, width, order))
    # 5.2: classes
    keys = list(range(100, 132))
    for n_classes in range(2, 17):
        thresholds = [101 + (4 if n_classes < 9 else 2) * i for i in range(n_classes - 1)]
        pool.one("classes_%d" % n_classes, "5.2", "%d classes, width 2" % n_classes, against(r, keys, 400, 2, thresholds=thresholds))
    for width in (1, 4, 8):
        for order in (1, 2):
            pool.one("classes_w%d_order%d" % (width, order), "5.2", "three classes, width %d, Order %d" % (width, order),
                     against(r, keys, 200, width, thresholds=[110, 120], order=order))
    edges = [0, 1, 2, 127, 128, 253, 254, 255]
    for width in (1, 2, 4):
        pool.one("classes_edges_w%d" % width, "5.2", "thresholds 1, 2, 128, 254 and 255, width %d: keys beside each" % width,
                 against(r, edges, 160, width, thresholds=[1, 2, 128, 254, 255]))
    for name, thresholds in (("first", [50, 115]), ("middle", [115, 116, 117]), ("last", [115, 200]),
                             ("all_but_one", [1, 50, 99, 200, 220, 230, 255]), ("several", [10, 20, 30, 115, 240, 250])):
        pool.one("classes_empty_" + name, "5.2", "empty classes: %s" % name.replace("_", " "),
                 against(r, [k for k in keys if k not in (115, 116)], 120, 2, thresholds=thresholds))
    pool.one("classes_one_element", "5.2", "classes of one element each", predicted(
        pack([0x3F80, 0x4000, 0x4081, 0x4100], 2) + bytes(20), pack([0x3F80, 0x4000, 0x4080, 0x4100], 2) + bytes(20), 2,
        thresholds=[1, 0x80, 0x81, 0x82]))
    coders = {(0, 0): raw, (0, 1): constant, (1, 0): tree({0: 1, 1: 2, 2: 3}, 3), (1, 1): tree({0: 1}, 1)}
    pool.one("classes_coders", "5.2", "planes that are raw, constant, a tree and a tree with escape in one block",
             against(r, [112, 120], 300, 2, thresholds=[118], coders=coders))
    for width in (1, 4, 8):
        pool.one("classes_16_w%d" % width, "5.2", "16 classes, width %d" % width,
                 against(r, keys, 300, width, thresholds=range(101, 131, 2)))
    pool.one("classes_16_edges", "5.2", "16 classes, most of them empty, the thresholds 1 and 255 among them",
             against(r, edges, 160, 2, thresholds=[1, 2, 3, 50, 60, 70, 80, 90, 100, 127, 128, 129, 200, 254, 255]))
    pool.one("classes_9_sparse", "5.2", "nine classes and Sparse", against(r, keys, 400, 2, sparse=True, thresholds=range(102, 126, 3)))
    pool.one("classes_16_sparse_gaps", "5.2", "16 classes and Sparse; masks as gaps where they have 256 bits",
             against(r, [99] * 40 + keys, 900, 2, sparse=True, thresholds=range(101, 131, 2), masks=nested_masks(gap_mode(2))))
    # 5.2: sparse
    for width in (1, 2, 4, 8):
        pool.one("sparse_w%d" % width, "5.2", "Sparse, one class, width %d: a mask of less than 256 bits" % width,
                 against(r, keys, 203, width, sparse=True))
    for n in (255, 256, 257, 263):
        pool.one("sparse_n%d" % n, "5.2", "Sparse, a mask of %d bits" % n, against(r, keys, n, 2, sparse=True))
        pool.one("sparse_n%d_nested" % n, "5.2", "Sparse, a mask of %d bits%s" % (n, ": nested" if n > 255 else ""),
                 against(r, keys, n, 2, sparse=True, masks=nested_masks(4)))
    pool.one("sparse_classes", "5.2", "Sparse, four classes", against(r, keys, 300, 2, sparse=True, thresholds=[105, 112, 120]))
    pool.one("sparse_classes_nested", "5.2", "Sparse, three classes: masks nested and raw",
             against(r, [90] * 4 + [100] * 4 + [110], 900, 2, sparse=True, thresholds=[95, 105], masks=nested_masks(5)))
    base = pack([element(r, 100, 2) for _ in range(2600)], 2)
    new = pack([b + (i % 60 == 0) for i, b in enumerate(split(base, 2))], 2)
    pool.one("sparse_nested_1", "5.2", "Sparse: a mask of 600 bits, nested",
             predicted(new[:1200], base[:1200], 2, sparse=True, masks=nested_masks(15)))
    pool.one("sparse_polarity", "5.2", "Sparse: nested, polarity 1, though most bits are zero",
             predicted(new[:1200], base[:1200], 2, sparse=True, masks=nested_masks(16)))
    pool.one("sparse_nested_2", "5.2", "Sparse: a mask of 2,600 bits, nested twice",
             predicted(new, base, 2, sparse=True, masks=nested_masks(15, 10)))
    pool.one("sparse_none_coded", "5.2", "Sparse: no element is coded",
             predicted(base[:1200], base[:1200], 2, sparse=True, masks=nested_masks(19)))
    bases = split(base[:160], 2)
    bases = [b ^ i % 2 << 11 for i, b in enumerate(bases)]                     # keys 100 and 116
    one_class = lambda c: [b + (key_of(b, 2) >= 112 if c else key_of(b, 2) < 112) for b in bases]
    for c in (0, 1):
        pool.one("sparse_all_of_class_%d" % c, "5.2", "Sparse: all elements of class %d are coded, none of the other" % c,
                 predicted(pack(one_class(c), 2), pack(bases, 2), 2, sparse=True, thresholds=[112]))
    pool.one("sparse_empty_classes", "5.2", "Sparse: classes without elements have no mask",
             predicted(pack(one_class(0), 2), pack(bases, 2), 2, sparse=True, thresholds=[1, 2, 112, 254, 255]))
    pool.one("sparse_all_coded", "5.2", "Sparse: all are coded, those of residual zero, too",
             predicted(pack(one_class(0), 2), pack(bases, 2), 2, sparse=True, thresholds=[112], coded=lambda residual: True))
    pool.one("sparse_some_zeros_coded", "5.2", "Sparse: some residuals of zero are coded",
             predicted(pack(one_class(1), 2), pack(bases, 2), 2, sparse=True, coded=lambda residual: residual or r.below(2)))
    for width in (2, 4, 8):
        pool.one("sparse_one_element_w%d" % width, "5.2", "N_Elements 1, width %d, Sparse: equal to the base" % width,
                 predicted(base[:width], base[:width], width, sparse=True))
    for width in (1, 2, 4, 8):
        few = pack([r.below(1 << 8 * width) if r.below(9) == 0 else 0 for _ in range(150)], width)
        pool.zeros("sparse_zeros_w%d" % width, "5.2", "Sparse against zeros, width %d" % width,
                   predicted(few, bytes(len(few)), width, sparse=True))
    few = pack([r.below(200) + 1 if r.below(19) == 0 else 0 for _ in range(900)], 2)
    pool.zeros("sparse_zeros_nested", "5.2", "Sparse against zeros: a nested mask",
               predicted(few, bytes(len(few)), 2, sparse=True, masks=nested_masks(9)))
    sparse_gaps(pool, r)
    # Anything
    for seed in range(24):
        random = Random(3000 + seed)
        blocks = []
        for _ in range(1 + random.below(3)):
            width, n = 1 << random.below(4), 20 + random.below(300)
            at = random.below(len(pool.data) - n * width)
            base = split(bytes(pool.data[at:at + n * width]), width)
            thresholds = sorted({1 + random.below(255) if random.below(3) else 100 + random.below(32) for _ in range(random.below(16))})
            sparse = random.below(3) == 0
            modes = [0 if random.below(3) == 0 else 1 + random.below(20) for _ in range(3)]
            modes[0] = random.pick([modes[0], gap_mode(random.below(9), random.below(2))])
            block = predicted(pack([step(random, b, width) for b in base], width), pack(base, width), width, 1 + random.below(2), thresholds, sparse,
                              None, nested_masks(*modes))
            blocks.append(block if block.size() < len(block.data) else stored(block.data, width))
        pool.one("delta_random_%02d" % seed, "all", "random choices against a base, seed %d" % seed, *blocks)
    return pool.emit(v)


def natural_vectors(v):
    """5.2: natural planes, which are noise; the next plane has few values."""
    r, pool = Random(21), Pool("bases/natural.bin")

    def pair(n, width, natural, keys=range(100, 132), more=4):
        base = [element(r, r.pick(keys), width) for _ in range(n)]
        residuals = [r.below(1 << 8 * natural + r.below(more)) for _ in base]
        return pack([b + (z >> 1 ^ -(z & 1)) for b, z in zip(base, residuals)], width), pack(base, width)

    def one(name, what, n, width, natural, keys=range(100, 132), thresholds=(110, 120), more=4, **options):
        new, base = pair(n, width, natural, keys, more)
        pool.one("natural_" + name, "5.2", what, predicted(new, base, width, thresholds=thresholds, natural=natural, **options))

    for width in (2, 4, 8):
        for natural in range(1, width):
            for order in (1, 2):
                one("w%d_%d_order%d" % (width, natural, order), "width %d, Order %d: Natural %d, three classes" % (width, order, natural),
                    100, width, natural, order=order)
    one("n3", "Natural 2, three elements: with less the payload is not smaller than the elements", 3, 4, 2, [110], [1], 1)
    one("n4", "Natural 3, width 4, four elements", 4, 4, 3, [110], [1], 1)
    for n in (63, 64, 65, 255, 256, 257, 1000):
        one("n%d" % n, "Natural 2, %d elements" % n, n, 4, 2)
    for name, thresholds in (("first", [50, 115]), ("middle", [115, 116, 117]), ("last", [115, 200]), ("all_but_one", [1, 50, 99, 200, 220, 230, 255])):
        one("empty_" + name, "Natural 2, empty classes: %s" % name.replace("_", " "), 120, 4, 2, [*range(100, 115), *range(117, 132)], thresholds)
    one("16_classes", "Natural 3, 16 classes", 300, 4, 3, thresholds=range(101, 131, 2))
    coders = {(0, 1): tree({0: 1, 1: 2, 2: 3, 3: 3}), (0, 2): raw, (0, 3): constant, (1, 1): tree({0: 1}, 1), (1, 2): constant, (1, 3): tree({0: 1, 1: 1})}
    one("coders", "Natural 1: above it planes that are raw, constant, a tree and a tree with escape", 300, 4, 1, thresholds=[116], more=2, coders=coders)
    one("nested", "Natural 1: above it trees with nested masks", 900, 4, 1, thresholds=[116], coders={
        1: tree(dict(enumerate((1, 2, 3, 4, 5, 6, 7, 7))), masks=nested_masks(5, 3))})
    base = pair(80, 4, 3)[1]
    pool.one("natural_zeros", "5.2", "Natural 3, all residuals zero", predicted(base, base, 4, thresholds=[115], natural=3))
    for seed in range(8):
        blocks, random = [], Random(3100 + seed)
        for _ in range(1 + random.below(3)):
            width = 2 << random.below(3)
            natural = 1 + random.below(width - 1)
            new, base = pair(60 + random.below(300), width, natural, range(90, 90 + random.below(50) + 1), 1 + random.below(8))
            thresholds = sorted({80 + random.below(70) for _ in range(1 + random.below(15))})
            blocks.append(predicted(new, base, width, 1 + random.below(2), thresholds, natural=natural))
        pool.one("natural_random_%02d" % seed, "5.2", "random choices with natural planes, seed %d" % seed, *blocks)
    new, old = pair(5000, 4, 2)
    at = pool.place(old)
    base, src = pool.emit(v), Src(data=new, tensors=[T(b"w", b"F32", (5000,), 0, 20000)])
    v.valid("natural_blocks", "5.2", "Natural 2 in two blocks of a tensor", build([src, delta_run(
        src, [(20000, 1, at)], base, 4, thresholds=[105, 115, 125], natural=2)], base=base))
    new, old = pair(80, 4, 2)
    first = [Src(b"a", old), Run([stored(old, 4)])]
    v.valid("natural_own", "5.2", "Prediction 3: Natural 2", build(first + [Src(b"b", new), own_run(
        new, [(320, 1, 0)], sources=[Src(data=old)], width=4, thresholds=[110, 120], natural=2)]))
    new = convert(new, 1)
    v.valid("natural_own_bf16", "5.2", "Prediction 4: Natural 1", build(first + [Src(b"b", new), own_run(
        new, [(160, 1, 0)], 1, [Src(data=old)], thresholds=[110, 120], natural=1)]))


def base_vectors(v, pool):
    """Segments with a base, and the forms of a base."""
    r = Random(4)
    pool_data = pool.items[0]
    # 4.2: segments
    segments = [(7, 1, 900), (1, 0, 0), (30, 1, 500), (13, 1, 0), (64, 0, 0), (5, 1, len(pool_data) - 5), (90, 1, 893), (3, 1, 899)]
    size = sum(p[0] for p in segments)
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 11 == 0) for i, b in enumerate(data)))
    v.valid("delta_segments", "4.2", "a block over segments whose bases lie in another order, overlap, or are zero",
            build([src, delta_run(src, segments, pool, 1, order=1)], base=pool))
    src = Src(data=src.data[:212])
    cut = segments[:-1] + [(2,) + segments[-1][1:]]
    assert sum(s[0] for s in cut) == 212 == size - 1
    v.valid("delta_segments_w4", "4.2", "the same in elements of four bytes, which the segments cut, with classes", build([src, delta_run(
        src, cut, pool, 4, order=1, sparse=True, thresholds=[64, 128])], base=pool))
    start = 500
    segments = [(10001, 1, start), (9000, 0, 0), (17000, 1, 10000), (3, 1, 1)]
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 1000 == 999) for i, b in enumerate(data)))
    blocks = delta_run(src, segments, pool, 1, order=1, sparse=True, masks=nested_masks(19)).blocks
    v.valid("delta_blocks", "4.2", "blocks and segments whose borders do not meet", build([src, Run(blocks, segments, 14, 1)], base=pool))
    segments = [(32768, 0, 0), (16384, 1, 5000), (100, 1, 77), (20, 0, 0)]
    data = bytes(16384) + b"\7" * 16384 + pool_data[5000:21384] + pool_data[77:177] + b"end of the last block"[:20]
    v.valid("delta_block_zero", "5", "blocks that are not Predicted, planes and stored, in a run of Prediction 1", build([Src(data=data), Run([
        planes([bytes(8192)] * 2), planes([b"\7" * 2048] * 8), predicted(data[32768:49152], pool_data[5000:21384], 4), stored(data[49152:])],
        segments, 14, 1)], base=pool))
    blocks = [plane_block(b"\6\7\7\7" * 30, fitted, 2, 0, order) for order in (0, 1, 2)]
    v.valid("delta_block_zero_orders", "5", "blocks of each Order that are not Predicted, in runs of Prediction 1", build(
        [Src(data=b"".join(block.data for block in blocks))] + [Run([block], prediction=1, base=(1, 40)) for block in blocks], base=pool))
    zero = predicted(pack([3, 1, 4, 1, 5, 9, 2, 6] * 5, 2), bytes(80), 2)
    v.valid("delta_base_zero", "4.2", "a run of Prediction 1 in which every Reference is 0, a block that is Predicted",
            build([Src(data=zero.data), Run([zero], prediction=1)], base=pool))
    src = Src(b"pipe", weights(r, 0, 2, pool_data[100:300]), size=UNKNOWN)
    v.valid("delta_unknown_size", "4.2", "a delta of a file of unknown size", build([src, delta_run(src, [(200, 1, 100)], pool)], base=pool))
    # 3: a base that is not used, equal, not needed
    data = b"nothing of the base"
    v.valid("delta_base_unused", "3", "a file with a base and no run of Prediction 1", build([Src(data=data), Run([stored(data)])], base=pool))
    v.valid("delta_empty", "3", "a file with a base and no run", build([Src(b"empty")], base=pool))
    v.valid("base_not_needed", "3", "a file without a base does not mind one", one(stored(b"no delta")), pool.paths)
    # 7.2, 7.3: forms of a base
    tensors = [("z.norm", "F32", [8], weights(r, 8, 4)), ("a.weight", "BF16", [20, 10], weights(r, 200, 2)),
               ("m.bias", "BF16", [30], weights(r, 30, 2)), ("scalar", "I64", [], struct.pack("<q", -3)), ("m.empty", "F16", [2, 0], b"")]
    file, entries = safetensors(tensors)
    whole = Src(data=file, tensors=entries)
    v.valid("base_weights", "7.2", "a base of tensors, itself without a base", build([whole, Run([stored(file)])]))
    base = Base([whole], [v.base("bases/weights.safetensors", file)])
    other = safetensors([t[:3] + (weights(r, 0, 4 if t[1] == "F32" else 2, t[3]),) for t in tensors])

    def delta_of_tensors(base, file, entries):
        """Tensors are predicted by those of their names, the header by zeros."""
        segments = [(entries[0].offset, 0, 0)] + [(t.size, base.item(t.name), 0) for t in entries if t.size]
        src = Src(data=file, tensors=entries)
        return build([src, delta_run(src, segments, base)], base=base)

    v.valid("delta_base_safetensors", "7.3", "a base of tensors, numbered by name, as a safetensors file", delta_of_tensors(base, *other))
    v.valid("delta_base_lmc", "7.3", "the same as an LMC file", delta_of_tensors(base, *other), ["valid/base_weights.lmc"])
    v.valid("delta_base_several", "7.3", "the same among others that are not it", delta_of_tensors(base, *other), pool.paths + [
        "valid/example_stored.lmc", "bases/weights.safetensors"])
    v.valid("delta_equal", "3", "a delta whose content is that of its base: one fingerprint", delta_of_tensors(base, file, entries))
    weight, bias, scalar = (base.item(name) for name in (b"a.weight", b"m.bias", b"scalar"))
    segments = [(1, 0, 0), (39, weight, 361), (20, bias, 40), (2, scalar, 6), (30, weight, 1)]
    data = prediction_of(Run([], segments, prediction=1), segments, [], base)
    src = Src(data=bytes(b + (i % 9 == 0) & 255 for i, b in enumerate(data)))
    v.valid("delta_parts_of_items", "4.2", "parts of items, up to their ends", build([src, delta_run(src, segments, base, 4, thresholds=[60, 90],
            sparse=True)], base=base))
    shards = [safetensors(tensors[:2]), safetensors(tensors[2:])]
    files = [Src(b"model-1.safetensors", *shards[0]), Src(b"model-2.safetensors", *shards[1]), Src(b"config.json", b'{"layers": 1}\n'),
             Src(b"tokenizer", kind=1), Src(b"tokenizer/vocab.txt", b"the\na\nof\n")]
    for f in files:
        if not f.kind:
            v.base("bases/directory/" + f.path.decode(), f.data)
    base = Base(files, ["bases/directory"])
    text = [Src(b"config.json", b'{"layers": 2}\n'), Src(b"vocab.txt", b"the\na\nof\n" * 3)]
    runs = [delta_run(text[0], [(14, base.item(b"config.json"), 0)], base, 2, order=1),
            delta_run(text[1], [(9, base.item(b"tokenizer/vocab.txt"), 0)] * 3, base, 1)]
    v.valid("delta_base_directory", "7.3", "a base of several files: tensors, plain files, a directory",
            build([text[0], runs[0], text[1], runs[1]], base=base))
    files = [Src(b"w", b"no tensor")] + [Src(b"f%d" % i, b"w%d" % i, [T(b"w", b"U8", (2,), 0, 2)]) for i in range(3)]
    files.sort(key=lambda f: list(items_of([f])), reverse=True)
    v.valid("base_same_names", "7.2", "four items of the same name, not in the order of their fingerprints", build([
        item for f in files for item in (f, Run([stored(f.data)]))]))
    base = Base(files, ["valid/base_same_names.lmc"])
    src = Src(data=b"".join(base.items) * 6)
    segments = [(len(item), i + 1, 0) for i, item in enumerate(base.items)] * 6
    v.valid("delta_same_names", "7.2", "items of the same name, by their fingerprints", build([src, delta_run(src, segments, base, 1)], base=base))


def example_delta(v):
    old, new = struct.pack("<4H", 0x3F80, 0xBF00, 0x0000, 0x4049), struct.pack("<4H", 0x3F81, 0xBF00, 0x0000, 0x4048)
    old, new = (Src(b"w.bin", data, [T(b"w", b"BF16", (2, 2), 0, 8)]) for data in (old, new))
    base = Base([old], ["valid/example_stored.lmc"])
    v.valid("example_delta", "5.2", "worked example: a delta of four elements, of which two have changed",
            build([new, delta_run(new, [(8, base.item(b"w"), 0)], base, sparse=True, coders={0: raw})], base=base))


def chain_vectors(v):
    """A base, two deltas on it and one back. Returns the base, for invalid vectors."""
    r = Random(5)
    data = [weights(r, 150, 2)]
    for _ in range(2):
        data.append(weights(r, 0, 2, data[-1]))
    path = "valid/chain_%d.%s"
    sources = [Src(data=d) for d in data]
    bases = [Base([src], [path % (j, "lmc") for j in range(i, -1, -1)]) for i, src in enumerate(sources)]

    def link(i, base):
        base = bases[base]
        return build([Src(data=data[i]), delta_run(sources[i], [(300, 1, 0)], base, thresholds=[112, 116])], base=base)

    v.valid("chain_0", "3", "the base of a chain", one(stored(data[0], 2)))
    v.valid("chain_1", "3", "a delta", link(1, 0))
    v.valid("chain_2", "3", "a delta on a delta", link(2, 1))
    v.valid("chain_2_other_order", "3", "the bases given in another order, among others", link(2, 1),
            ["bases/pool.bin", path % (0, "bin"), path % (1, "lmc")])
    v.valid("chain_2_plain", "3", "the base, once a delta, is a plain file now", link(2, 1), [path % (1, "bin")])
    chain, links, paths = Random(64).data(24), [], []
    for i in range(65):
        here = Src(data=chain)
        made = one(stored(chain)) if i == 0 else build([here, delta_run(here, [(24, 1, 0)], Base([links[-1]], []), 1)], base=Base([links[-1]], []))
        if i < 64:
            paths.append(v.base("bases/chain/%02d.lmc" % i, made.out))
        links.append(here)
        chain = bytes(x + (i % 24 == at) & 255 for at, x in enumerate(chain))
    v.valid("chain_64", "9", "a chain of 64 deltas", made, paths[::-1])
    v.valid("chain_back", "3", "a delta on a delta, whose content is that of the first base", link(0, 1))
    return bases, link


def own_vectors(v, pool):
    r = Random(6)
    a, b = weights(r, 100, 2), weights(r, 60, 4)
    near = weights(r, 0, 2, a)
    first = lambda: [Src(b"a", a), Run([stored(a)])]
    v.valid("own_copy", "4.2", "Prediction 3: a file that is equal to another", build(
        first() + [Src(b"b", a), own_run(a, [(200, 1, 0)], sources=[Src(data=a)])]))
    v.valid("own_near", "4.2", "Prediction 3: a file that is near another, with classes", build(
        first() + [Src(b"b", near), own_run(near, [(200, 1, 0)], sources=[Src(data=a)], thresholds=[112, 116, 118])]))
    src = Src(data=a + a[20:], size=UNKNOWN)
    v.valid("own_same_file", "4.2", "Prediction 3: bytes of an earlier run of the same file, whose size is unknown", build(
        [src, Run([stored(a)]), own_run(a[20:], [(180, 1, 20)], sources=[src])]))
    sources = [Src(b"a", a), Src(b"b", b), Src(b"c")]
    segments = [(31, 2, 9), (7, 0, 0), (60, 1, 140), (1, 1, 0), (80, 2, 160), (45, 1, 3), (3, 0, 0)]
    data = prediction_of(Run([], segments, prediction=3), segments, sources, None)
    data = bytes(x ^ (i % 13 == 0) for i, x in enumerate(data))
    v.valid("own_segments", "4.2", "Prediction 3: a block over pieces of several files, in another order, zeros between", build(
        first() + [Src(b"b", b), Run([stored(b)]), Src(b"c", data), own_run(data, segments, 0, sources, width=1, order=1)]))
    src = Src(data=a[:100] + a[:100] + b"between" + a[:100] + b"between")
    v.valid("own_beside_own", "4.2", "Prediction 3: references that end and start where runs of Prediction 3 do", build([
        src, Run([stored(a[:100])]), own_run(a[:100], [(60, 1, 0), (40, 1, 60)], sources=[src]), Run([stored(b"between")]),
        own_run(a[:100] + b"between", [(100, 1, 0), (7, 1, 200)], sources=[src], width=1)]))
    new = weights(r, 0, 2, pool.items[0][:200])
    middle = b"not predicted"
    tied = new[100:] + middle
    sources = [Src(b"a", new + middle), Src(b"b", tied)]
    v.valid("own_in_delta", "4.2", "a delta with tied tensors: Prediction 3 from bytes of a run of Prediction 1 and one of Prediction 0", build([
        sources[0], delta_run(Src(data=new), [(200, 1, 0)], pool), Run([stored(middle)]), sources[1],
        own_run(tied, [(113, 1, 100)], sources=sources, width=1, sparse=True)], base=pool))
    zeros = own_run(bytes(16384) + a[:50], [(16384, 0, 0), (50, 1, 10)], sources=[Src(data=a)])
    v.valid("own_block_zero", "5", "blocks that are not Predicted, planes and stored, in a run of Prediction 3", build(
        first() + [Src(b"b", bytes(16384) + a[:50]), Run([planes([bytes(4096)] * 4), stored(a[:50])], zeros.segments, 14, 3)]))
    # conversions
    floats = pack(TO_ROUND + [x | 1 << 31 for x in TO_ROUND], 4)
    for conversion, name in ((1, "bf16"), (2, "f16")):
        rounded = convert(floats, conversion)
        n, master = len(rounded), Src(b"master", floats)
        start = [master, Run([stored(floats, 4)])]
        v.valid("own_%s" % name, "4.2", "Conversion %d: all ways to round, both signs" % conversion, build(
            start + [Src(b"w", rounded), own_run(rounded, [(n, 1, 0)], conversion, [master])]))
        new = weights(r, 0, 2, rounded)
        v.valid("own_%s_near" % name, "4.2", "conversion %d: near the rounded ones, with classes" % conversion, build(
            start + [Src(b"w", new), own_run(new, [(n, 1, 0)], conversion, [master], thresholds=[30, 100, 140])]))
        data = convert(floats[4:44], conversion) + bytes(6) + convert(floats[:12], conversion)
        v.valid("own_%s_parts" % name, "4.2", "conversion %d: parts, zeros between" % conversion, build(
            start + [Src(b"w", data), own_run(data, [(20, 1, 4), (6, 0, 0), (6, 1, 0)], conversion, [master])]))
        shifted = Src(b"master", b"\x5a" + floats)
        v.valid("own_%s_unaligned" % name, "4.2", "conversion %d: F32 elements at an odd offset" % conversion, build([
            shifted, Run([stored(shifted.data)]), Src(b"w", rounded), own_run(rounded, [(n, 1, 1)], conversion, [shifted])]))
        values = [pack([value], 4) for value in (0x3F80C000, 0xBF000123, 0x42F6E666)]
        counts = (8190, 8192, 8)               # elements of each value; with the zeros before them one block of each
        sources = [planes([bytes([x]) * n for x in value]) for value, n in zip(values, counts)]
        data = bytes(4) + b"".join(convert(value, conversion) * n for value, n in zip(values, counts))
        master = Src(b"master", b"".join(block.data for block in sources))
        v.valid("own_%s_blocks" % name, "4.2", "conversion %d over several blocks" % conversion, build(
            [master] + [Run([block], log2=15) for block in sources] + [Src(b"w", data), own_run(
                data, [(4, 0, 0), (32780, 1, 0)], conversion, [Src(data=master.data)], order=1)]))
    base = pool.items[0]
    master = Src(b"master", weights(r, 0, 4, base[:400]))
    data = convert(master.data, 1)
    v.valid("own_bf16_in_delta", "4.2", "a delta of a master copy, and the weights rounded from it", build([
        master, delta_run(master, [(400, 1, 0)], pool, 4), Src(b"w", data), own_run(data, [(200, 1, 0)], 1, [master])], base=pool))


# ---- Sections, tables, groups, text ----

def section_vectors(v):
    r = Random(10)
    # 2: varints
    limits = [x for k in range(1, 10) for x in ((1 << 7 * k) - 1, 1 << 7 * k)] + [(1 << 63) - 1, UNKNOWN, 1, 0]
    v.valid("varint_limits", "2", "varints of one to ten bytes, in a Shape", build([
        Src(data=b"abc", tensors=[T(b"t", b"shape", limits, 0, 3)]), Run([stored(b"abc")])]))
    v.valid("varint_two_bytes", "2", "lengths of 127, 128 and 300 bytes", build([
        Src(b"d/" + b"p" * 126, b"x" * 300, [T(b"n" * 127, b"U8", (128,), 0, 128), T(b"m" * 128, b"U8", (2, 64), 128, 128)]), Run([stored(
            b"x" * 300)])]))
    # 4: ancillary sections
    two = lambda *extra: [Src(b"a", b"ab"), extra[0], Run([stored(b"a")]), extra[1], Run([stored(b"b")]), extra[2], Src(b"b"), extra[3], Src(b"d",
        kind=1)]
    note = Section(b"note", b"some text")
    v.valid("ancillary_everywhere", "4.4", "an unknown ancillary section in every place", build([item for item in two(note, note, note, note)] + [
        note]))
    for i, where in enumerate(("before a run", "between runs", "between files", "between empty files")):
        items = two(*[note if j == i else None for j in range(4)])
        v.valid("ancillary_" + where.replace(" ", "_"), "4.4", "an unknown ancillary section %s" % where, build([item for item in items if item]))
    v.valid("ancillary_before_index", "4.4", "an unknown ancillary section before the INDX", build([Src(data=b"a"), Run([stored(b"a")]), note]))
    v.valid("ancillary_several", "4.4", "several ancillary sections in one place, empty ones among them", build([
        Src(data=b"a"), note, Section(b"pad0"), Section(b"note"), Run([stored(b"a")]), Section(b"pad0", bytes(100)), note]))
    v.valid("ancillary_many", "4.4", "130 empty ancillary sections", build([Src(data=b"a")] + [Section(b"pad0")] * 130 + [Run([stored(b"a")])]))
    for kind in (b"file", b"run ", b"indx", b"fILE", b"iNDX", b"a1 9", b"z   ", b"note", b"noTe", b"notE", b"noTE", b"not9", b"x000"):
        name = kind.decode().strip().replace(" ", "_")
        v.valid("ancillary_kind_" + name, "4.4", "an ancillary section of Kind \"%s\"" %
                kind.decode(), build([Src(data=b"a"), Section(kind, b"whatever"), Run([stored(b"a")])]))
    v.valid("ancillary_is_lmc", "4.4", "an ancillary section that holds an LMC file", build([
        Src(data=b"a"), Run([stored(b"a")]), Section(b"old ", bytes(v.builders["file_empty"].out))]))
    v.valid("ancillary_unknown_size", "4.4", "an ancillary section in a file of Unknown size", build([
        Src(data=b"ab", size=UNKNOWN), note, Run([stored(b"a")]), note, Run([stored(b"b")]), note]))
    v.valid("pad", "4.4", "an unknown ancillary section of 4,096 zeros", build([Src(data=b"a"), Section(b"pad0", bytes(4096)), Run([stored(b"a")])]))
    # 7: hashes
    data = r.data(70)
    files = [Src(b"f", data[:40], [T(b"b", b"U8", (20,), 0, 20), T(b"a", b"F32", (5,), 20, 20)]), Src(b"c", data[40:]), Src(b"e", kind=1),
             Src(b"g", data[40:])]
    whole = lambda *last: [files[0], Run([stored(data[:40])]), files[1], Run([stored(data[40:])]), files[2], files[3], Run([stored(data[40:])]),
        *last]
    good = hash_section(files)
    named = [Src(b"f", data[:40], [T(b"b", b"U8", (20,), 4, 20, (3, 1, 1 << 31)), T(b"a", b"F32", (), 30, 4), T(b"", b"odd", (2, 3), 36, 1)],
                 mode=0o640, mtime=(-5, 999999999)), Src(b"e", kind=1, mode=0o755, mtime=(1 << 40, 0)), Src(b"d/x", data[40:], mtime=(1, 2)),
             Src(b"d/w"), Src(b"d.y", data[:4], size=UNKNOWN)]
    said = [(b"key", b"value"), (b"lmc.base", b"a hint"), (b"lmc.links", b"sl\0e\0"), (b"lmc.writer", b"me"), (b"z", b"")]
    put = lambda *last: [Group(*named[:4]), Run([stored(data)]), named[4], Run([stored(data[:4])]), *last]
    v.valid("hash", "hash", "a \"hash\" section: tensors, files and a directory", build(whole(good)))
    v.valid("hash_all", "hash", "Snapshot_Hash: modes, times, losses, gaps, a file of Unknown size, metadata that counts and such that does not", build(
        put(hash_section(named, said)), said))
    for name, rule, metadata in (("metadata", "another value of metadata", said[:4] + [(b"z", b"y")]),
                                 ("links", "other links", said[:2] + [(b"lmc.links", b"sl\0f\0")] + said[3:]),
                                 ("metadata_missing", "an entry of metadata less", said[1:])):
        v.valid("hash_of_other_" + name, "hash", "Snapshot_Hash: %s. CORRUPT for who checks it" % rule, build(put(hash_section(named, said)), metadata),
                rule="H-5")
    v.valid("hash_of_other_hint", "hash", "Snapshot_Hash: another hint, which does not count", build(
        put(hash_section(named, said)), said[:1] + [(b"lmc.base", b"another hint")] + said[2:]))
    for name, rule, change in (("path", "another Path", {"path": b"d/v"}), ("mode", "a mode", {"mode": 0o600}), ("time", "another time", {"mtime": (1, 3)}),
                               ("tensor_name", "another Name", {"tensors": [T(b"t", b"U8", (5,), 0, 5)]}),
                               ("dtype", "another dtype", {"tensors": [T(b"s", b"I8", (5,), 0, 5)]}),
                               ("shape", "another shape", {"tensors": [T(b"s", b"U8", (1, 5), 0, 5)]})):
        first = dict(dict(path=b"d/u", data=data[:5], tensors=[T(b"s", b"U8", (5,), 0, 5)], mtime=(1, 2)))
        v.valid("hash_of_other_" + name, "hash", "Snapshot_Hash: %s. CORRUPT for who checks it" % rule, build([
            Src(**dict(first, **change)), Run([stored(data[:5])]), hash_section([Src(**first)])]), rule="H-5")
    v.valid("hash_other_algorithm", "hash", "a \"hash\" section of an unknown algorithm and any size", build(whole(Section(b"hash", b"\2abc"))))
    v.valid("hash_reserved", "hash", "a \"hash\" section whose reserved bytes are not zero: skipped, whatever else it holds", build(
        whole(Section(b"hash", b"\1\0\0\1\0\0\0\0wrong"))))
    other = Section(b"hash", b"\2" + bytes(7) + b"other hashes")
    for name, rule, last in (
            ("not_last", "another section between it and INDX", [good, note]), ("and_other", "and one of another algorithm behind it", [good, other]),
            ("after_other", "one of another algorithm before it, and one between sections", [other, note, good, other]),
            ("tiny", "of 7 bytes, which are no Algorithm 1", [Section(b"hash", b"\1" + bytes(6))]),
            ("empty", "of no bytes, beside one", [Section(b"hash", b""), good])):
        v.valid("hash_" + name, "hash", "a \"hash\" section: %s" % rule, build(whole(*last)))
    v.valid("hash_first", "hash", "a \"hash\" section behind the first file", build([files[0], Run([stored(data[:40])]), good] + whole()[2:]))
    for name, rule, what, last in (
            ("wrong", "H-3", "a wrong hash", [Section(b"hash", flip_bit(good.body, 40 + 32 * 3 + 5, 2))]),
            ("snapshot_wrong", "H-5", "a wrong Snapshot_Hash", [Section(b"hash", flip_bit(good.body, 8 + 5, 2))]),
            ("content_wrong", "H-3", "a wrong hash, and the Snapshot_Hash of it", [hash_section(files[:1] + [Src(b"c", data[39:-1])] + files[2:])]),
            ("order", "H-3", "the hashes of the two tensors in the order of their names", [Section(b"hash", good.body[:40] + good.body[72:104] + good.body[
                40:72] + good.body[104:])]),
            ("head_only", "H-2", "no hashes at all", [Section(b"hash", good.body[:8])]), ("snapshot_only", "H-2", "Snapshot_Hash only", [Section(
                b"hash", good.body[:40])]),
            ("short", "H-2", "a hash too few", [Section(b"hash", good.body[:-32])]), ("long", "H-2", "a hash too many", [Section(b"hash", good.body + bytes(32))]),
            ("ends", "H-2", "half a hash", [Section(b"hash", good.body[:-16])]),
            ("twice", "H-4", "two of them", [good, good]), ("twice_apart", "H-4", "two of them, a note between them", [good, note, good])):
        v.valid("hash_" + name, "hash", "a \"hash\" section: %s. CORRUPT for who checks it" % what, build(whole(*last)), rule=rule)
    # 4.5: extension records
    records = (("empty", record(0)), ("one", record(2, b"ten bytes!")), ("several", record(0, b"x") + record(2) + record(126, b"y" * 200) + record(
        128, b"z")),
               ("to_keep_and_to_drop", record(4, b"keep") + record(6, b"drop") + record(8, b"keep") + record(10, b"drop")),
               ("largest_tag", record(UNKNOWN - 1, b"tag")), ("looks_critical", record(0, b"\1\1\1\1\3\0")))
    for name, extra in records:
        v.valid("records_file_" + name, "4.5", "extension records of a FILE: %s" % name.replace("_", " "), build([
            Group(Src(b"f", b"ab", [T(b"t", b"U8", (1,), 0, 1)]), extra=extra), Run([stored(b"ab")])]))
        v.valid("records_run_" + name, "4.5", "extension records of a RUN: %s" % name.replace("_", " "), build([
            Src(b"f", b"ab"), Run([stored(b"ab")], extra=extra)]))
        v.valid("records_index_" + name, "4.5", "extension records of the INDX: %s" % name.replace("_", " "), build([
            Src(b"f", b"ab"), Run([stored(b"ab")])], [(b"key", b"value")], extra=extra))
    attribute = lambda n, key, value: varint(n) + varint(len(key)) + key + varint(len(value)) + value
    v.valid("records_attributes", "4.5", "attributes of tensors: two of one tensor, an alias", build([Group(
        Src(b"f", b"ab", [T(b"t", b"U8", (1,), 0, 1), T(b"u", b"U8", (1,), 1, 1)]), Src(b"g", b"c", [T(b"t", b"U8", (1,), 0, 1)]), extra=record(
            4, attribute(0, b"alias", b"tied") + attribute(0, b"unit", b"m") + attribute(2, b"", b"\0\xff"))), Run([stored(b"abc")])]))
    extra = records[2][1]
    v.valid("records_empty_files", "4.5", "extension records after a directory, an empty file and one of Unknown size", build([
        Group(Src(b"d", kind=1), extra=extra), Group(Src(b"e"), extra=extra), Group(Src(b"u", b"u", size=UNKNOWN), extra=extra), Run([stored(
            b"u")])]))
    v.valid("records_index_no_metadata", "4.5", "extension records of an INDX without metadata", build([Src()], extra=extra))
    # An imagined version 1.1
    future = lambda **options: build([
        Group(Src(b"f", b"abcd", [T(b"t", b"F5_E2M2", (2,), 1, 3)]), extra=record(2, b"new field")), Section(b"tree", b"shared trees"),
        Run([stored(b"abcd")], extra=record(4) + record(200, b"x")), Section(b"sign", bytes(64))],
        [(b"lmc.created", b"2031-01-01T00:00:00Z"), (b"lmc.future", b"\xff\x00")], extra=record(6, b"more"),
        patch={"header.Format_Minor": 1, "header.Compatible": 1 << 5, "trailer.Format_Minor": 1}, **options)
    v.valid("future_1_1", "10", "an imagined file of 1.1: ancillary sections, extension records, metadata, a Compatible bit", future())


def invalid_sections(v, simple):
    bad = lambda name, rule, what, status, patch, **options: v.invalid(name, rule, what, status, simple(patch, **options))
    # 2: varints
    old = Base([Src(data=b"base" * 10)], [v.base("bases/forty.bin", b"base" * 10)])
    block = predicted(b"base" * 9, b"base" * 9, 1)
    fields = {"files0.N_Files": 1, "file0.Path_Rest_Size": 1, "file0.File_Size": 36, "file0.Mode": 0o644, "file0.N_Tensors": 2, "tensor0.0.Back": 0,
              "tensor0.0.Middle_Size": 2, "tensor0.0.Size": 4, "tensor0.1.Gap": 2, "tensor0.1.Shape0": 3, "tensor0.1.Back": 1,
              "entry0.Stored_Size": 1, "entry0.Body_Size": 1, "entry1.Stored_Size": 1, "run0.Block_Size": 1,
              "run0.Run_Size": 36, "run0.N_Segments": 2, "segment0.0.Size": 9, "segment0.0.Reference": 1, "segment0.1.Reference": 2,
              "segment0.1.Offset": 4}

    def varints(patch):
        return build([Src(b"f", b"base" * 9, [T(b"tt", b"odd", (4,), 0, 4), T(b"t", b"U8", (3, 1), 6, 3, back=1)], mode=0o644), Run(
            [block], [(9, 1, 0), (27, 1, 1)], prediction=1, extra=record(2, b"x"))], base=old, patch=patch, extra=record(4))

    for name in fields:
        what, field = name.rsplit(".", 1)
        kind = what.rstrip("0123456789.").rstrip("s")
        field = "%s_%s" % (kind, field.lower()) + "_second" * (name in ("tensor0.1.Back", "segment0.1.Reference", "entry1.Stored_Size"))

        def overlong(value):
            short = varint(value)
            return short[:-1] + bytes([short[-1] | 128, 0])
        v.invalid("varint_overlong_" + field, "R2-1", "%s is not in the shortest form" % name.rsplit(".", 1)[1], "CORRUPT", varints({name: overlong}))
    for owner, tag, size in (("run0", 2, b"x"), ("index", 4, b"")):
        v.invalid("varint_overlong_%s_tag" % owner.rstrip("0"), "R2-1", "the Tag of a record is not in the shortest form", "CORRUPT", varints({
            owner + ".Extra": bytes([tag | 128, 0, len(size)]) + size}))
        v.invalid("varint_overlong_%s_record_size" % owner.rstrip("0"), "R2-1", "the Size of a record is not in the shortest form", "CORRUPT", varints({
            owner + ".Extra": bytes([tag, len(size) | 128, 0]) + size}))
    for name, what, value in (("zeros", "zero in ten bytes", b"\x80" * 9 + b"\0"), ("11_bytes", "eleven bytes", b"\x80" * 10 + b"\1"),
                              ("2_64", "2^64", b"\x80" * 9 + b"\2"), ("2_64_and_more", "2^64 + 3", b"\x83" + b"\x80" * 8 + b"\2"),
                              ("2_70", "2^70 - 1", b"\xff" * 9 + b"\x7f"), ("100_bytes", "a hundred bytes", b"\xff" * 99 + b"\1"),
                              ("36_and_2_64", "36 + 2^64, which is 36 modulo 2^64", b"\xa4" + b"\x80" * 8 + b"\2")):
        v.invalid("varint_%s_file_size" % name, "R2-1", "File_Size is %s" % what, "CORRUPT", varints({"file0.File_Size": value}))
        v.invalid("varint_%s_run_size" % name, "R2-1", "Run_Size is %s" % what, "CORRUPT", varints({"run0.Run_Size": value}))
        v.invalid("varint_%s_tag" % name, "R2-1", "the Tag of a record is %s" % what, "CORRUPT", varints({"index.Extra": value + b"\0"}))
    # and in a file without a base
    made = b'"t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}'
    fields = {"file0.File_Size": ("file_size", len(made)), "run0.Run_Size": ("run_size", len(made)), "segment0.0.Size": ("segment_size", len(made)),
              "segment0.0.Reference": ("reference", 1), "index.Extra": ("tag", 4)}
    for name, what, more in (("overlong", "in one byte too many", b"\0"), ("zeros", "in ten bytes", b"\x80" * 8 + b"\0"),
                             ("11_bytes", "in eleven bytes", b"\x80" * 9 + b"\0"), ("plus_2_64", "plus 2^64", b"\x80" * 8 + b"\2"),
                             ("plus_2_64_11_bytes", "plus 2^64, in eleven bytes", b"\x80" * 8 + b"\x82\0"),
                             ("plus_2_70", "plus 2^70", b"\x80" * 9 + b"\1")):
        for field, (short, value) in fields.items():
            v.invalid("varint_direct_%s_%s" % (name, short), "R2-1", "%s is %d %s; the file has no base" % (field.rsplit(".", 1)[1], value, what),
                      "CORRUPT", build([Src(b"f", made, [T(b"t", b"U8", (3,), 0, 3)]), Run([predicted(made, made, 1)], prediction=2, base=(1, 0))],
                                       patch={field: bytes([value | 128]) + more + b"\0" * (short == "tag")}, extra=record(4)))
    for name, end in (("file", {"file1.N_Tensors": b"\x80"}), ("run_tag", {"run0.Extra": b"\x82"}), ("run_record_size", {"run0.Extra": b"\2\x81"}),
                      ("index_tag", {"index.Extra": b"\xfe\xff"}), ("file_many", {"file1.N_Tensors": b"\xff" * 7})):
        bad("varint_ends_" + name, "R2-6", "a varint that the body ends in", "CORRUPT", end)
    # 4: kinds
    note = Section(b"note", b"some text")
    items = lambda *more: [Src(b"a", b"ab"), Run([stored(b"ab")]), *more, Src(b"b")]
    for kind in (b"SIGN", b"Note", b"RUN2", b"TREE"):
        v.invalid("section_critical_" + kind.decode().lower(), "R4-3", "an unknown critical section, \"%s\"" % kind.decode(), "UNSUPPORTED",
                  build(items(Section(kind, b"you must know this"))))
    v.invalid("section_critical_before_index", "R4-3", "an unknown critical section before the INDX", "UNSUPPORTED", build(
        [Src(data=b"a"), Run([stored(b"a")]), Section(b"MORE", b"")]))
    for name, rule, patch, status in (
            ("head_crc", "R4-1", {"other0.Head_CRC": 0}, "CHECKSUM"), ("body_crc", "R4-6", {"other1.Body_CRC": 0}, "CHECKSUM"),
            ("size_overflow", "R4-5", {"other0.Body_Size": UNKNOWN}, ["CORRUPT", "LIMIT"]),
            ("too_large", "R4-5", {"other0.Body_Size": (1 << 40) + 1}, ["CORRUPT", "LIMIT"]),
            ("largest_missing", "R4-5 R4-6", {"other1.Body_Size": 1 << 40}, ["TRUNCATED", "LIMIT"]),
            ("longer", "R4-6", {"other0.Body_Size": 10}, "CHECKSUM"),
            ("entry_kind", "R8-5", {"entry2.Kind": b"notf"}, "CORRUPT"),
            ("entry_stored_size", "R8-5", {"entry2.Stored_Size": lambda size: size + 1, "entry3.Stored_Size": lambda size: size - 1}, "CORRUPT"),
            ("entry_stored_size_19", "R8-5 R8-8", {"entry2.Stored_Size": 19, "entry3.Stored_Size": lambda size: size + 10}, "CORRUPT"),
            ("entry_with_body", "R8-5", {"entry2.Stored_Size": lambda size: varint(size) + varint(9) + note.body}, "CORRUPT")):
        v.invalid("ancillary_" + name, rule, "an ancillary section: %s" % name.replace("_", " "), status, build(items(note, note), patch=patch))
    for name, kind in (("in_kind", b"no"), ("behind_kind", b"note")):
        v.invalid("index_ends_" + name, "R2-6", "an INDX body that ends %s of the last entry" % name.replace("_", " the "), "CORRUPT", build(
            [Src(b"a", b"ab"), Run([stored(b"ab")]), note], patch={"entry2.Kind": kind, "entry2.Stored_Size": b""}))
    v.invalid("ancillary_first", "R4-9", "an ancillary section before the first FILE", "CORRUPT", build([note, Src(data=b"a"), Run([stored(b"a")])]))
    zeros = Run([planes([bytes(16384)]), stored(b"end")], between={1: note})
    v.invalid("ancillary_between_blocks", "R4-10 R5-2", "an ancillary section between the blocks of a run", "CORRUPT", build([
        Src(data=bytes(16384) + b"end"), zeros]))
    zeros = Run([planes([bytes(16384)]), stored(b"end")], between={0: note})
    v.invalid("ancillary_before_blocks", "R4-10 R5-2", "an ancillary section between a run and its blocks", "CORRUPT", build([
        Src(data=bytes(16384) + b"end"), zeros]))
    b = build([Src(data=b"a"), Run([stored(b"a")])])
    end = len(b.out) - 40
    section = bytes(build([Src(), note], index=False, trailer=False).out[-29:])
    v.invalid("ancillary_after_index", "R4-9 R3-15", "an ancillary section after the INDX", "CORRUPT", fixed_trailer(b.out[:end] + section, b.out[end:], 29))
    v.invalid("ancillary_not_in_index", "R8-5", "an ancillary section that the index does not have", "CORRUPT", build(
        items(note), entries=lambda told: told[:2] + told[3:]))
    # 4.5: extension records
    def both(name, rule, what, status, extra):
        for owner, where in (("files0", "FILE"), ("run0", "RUN"), ("index", "INDX")):
            bad("records_%s_%s" % (name, owner.rstrip("s0")), rule, "extension records of a %s: %s" % (where, what), status, {
                owner + ".Extra": extra})

    both("critical", "R4-55", "a critical one", "UNSUPPORTED", record(1))
    both("critical_large_tag", "R4-55", "a critical one of Tag 2^64 - 1", "UNSUPPORTED", record(UNKNOWN, b"x"))
    both("critical_last", "R4-55", "a critical one after others", "UNSUPPORTED", record(0) + record(2, b"abc") + record(129, b"x"))
    both("same_tag", "R4-54", "the same Tag twice", "CORRUPT", record(2) + record(2))
    both("order", "R4-54", "Tags descend", "CORRUPT", record(4) + record(2))
    both("order_zero", "R4-54", "Tag 0 after another", "CORRUPT", record(4) + record(0))
    both("no_size", "R4-54 R2-6", "no Size", "CORRUPT", b"\2")
    both("beyond", "R4-54 R2-6", "Size is one more than the body has", "CORRUPT", b"\2\4abc")
    both("huge", "R4-54 R2-6", "Size 2^64 - 1", "CORRUPT", b"\2" + varint(UNKNOWN))
    both("second_beyond", "R4-54 R2-6", "the second one ends after the body", "CORRUPT", record(0, b"abc") + b"\2\1")
    # An imagined version 1.1 that this decoder must refuse
    patch = {"header.Format_Minor": 1, "trailer.Format_Minor": 1}
    v.invalid("future_critical_record", "R4-55", "an imagined file of 1.1 with a critical extension record", "UNSUPPORTED", build(
        items(), extra=record(2, b"fine") + record(3, b"not fine"), patch=patch))
    v.invalid("future_critical_section", "R4-3", "an imagined file of 1.1 with a critical section", "UNSUPPORTED", build(
        items(note, Section(b"DICT", b"shared trees")), patch=patch))
    v.invalid("future_incompatible", "R3-8", "an imagined file of 1.1 with an Incompatible bit", "UNSUPPORTED", build(items(note), bits=1 << 47,
        patch=patch))
    v.invalid("future_dtype", "R4-34", "an imagined file of 1.1 with a Dtype number", "UNSUPPORTED", build(
        [Src(data=b"a", tensors=[T(b"t", b"U8", (1,), 0, 1)]), Run([stored(b"a")])], patch=dict(patch, **{"tensor0.0.Dtype": 28})))


def fixed_trailer(front, trailer, more):
    """A trailer for a file that has become longer by so many bytes, all of which count as index."""
    offset, size, total = struct.unpack("<3Q", trailer[:24])
    parts = struct.pack("<3Q", offset, size + more, total + more) + trailer[24:28]
    return bytes(front) + parts + struct.pack("<I", crc(parts)) + bytes(trailer[32:])


def name_vectors(v):
    """4.1: tensor entries that refer to others."""
    r = Random(11)

    def valid(name, what, tensors, size=None, **options):
        size = size or tensors[-1].offset + tensors[-1].size
        data = r.data(size)
        v.valid("tensors_" + name, "4.1", what, build([Src(b"f", data, tensors), Run([stored(data)])], **options))

    def layers(n, **options):
        """n tensors, each similar to the one before."""
        return [T(b"model.layers.%d.weight" % i, b"BF16", (2, 1), 4 * i, 4, **(options if i else {})) for i in range(n)]

    valid("back", "Back 1: Prefix and Suffix", layers(12, back=1))
    valid("like", "Back 1 and Like", layers(12, back=1, like=True))
    valid("like_no_names", "Back and Like, nothing of the Name", [T(b"a", b"F32", (2,), 0, 8), T(b"b", b"F32", (2,), 8, 8, back=1, like=True)])
    valid("like_dtype_string", "Like an entry whose Dtype is not in the table: its Size, too", [
        T(b"a", b"odd", (3, 9), 0, 7), T(b"b", b"odd", (3, 9), 7, 7, back=1, like=True), T(b"bc", b"odd", (3, 9), 14, 7, back=2, like=True)])
    valid("like_scalar", "Like an entry of Rank 0, and of Rank 32", [
        T(b"a", b"F32", (), 0, 4), T(b"b", b"U8", (1,) * 32, 4, 1), T(b"c", b"F32", (), 5, 4, back=2, like=True),
        T(b"d", b"U8", (1,) * 32, 9, 1, back=2, like=True)])
    valid("like_empty", "Like entries of no bytes", [T(b"a", b"F32", (0, 5), 0, 0), T(b"b", b"F32", (0, 5), 0, 0, back=1, like=True),
                                                     T(b"c", b"F32", (0, 5), 0, 0, back=2, like=True), T(b"d", b"U8", (1,), 0, 1)])
    valid("like_gap", "Like and Gap", [T(b"a", b"F32", (1,), 3, 4), T(b"ab", b"F32", (1,), 8, 4, back=1, like=True),
                                       T(b"abc", b"F32", (1,), 212, 4, back=1, like=True)])
    valid("like_loss", "Like: Loss is its own", [
        T(b"a", b"F32", (1,), 0, 4, (1, 2, 3)), T(b"b", b"F32", (1,), 4, 4, back=1, like=True), T(b"c", b"F32", (1,), 8, 4, (7, 1, 9), 1, True),
        T(b"d", b"F32", (1,), 12, 4, (7, 1, 9), 2)])
    valid("like_chain", "100 entries, each Like the one before, the first a little different",
          [T(b"x%d" % i, b"F16", (1,), 2 * i, 2, back=int(i > 0), like=i > 0) for i in range(100)])
    valid("back_far", "Back 1 .. 139, the first entry each time", [T(b"first.%d.x" % i if i else b"first.x", b"U8", (1,), i, 1, back=i, like=i > 0)
                                                                 for i in range(140)])
    valid("back_other_shape", "Back without Like: only the Name", [T(b"a.weight", b"F32", (1,), 0, 4), T(b"a.bias", b"BF16", (1, 1), 4, 2, back=1),
                                                                  T(b"a.scale", b"odd", (), 6, 1, back=2)])
    valid("back_no_name", "Back, Prefix 0, Suffix 0", [T(b"abc", b"U8", (1,), 0, 1), T(b"abd", b"U8", (1,), 1, 1, back=1, prefix=0, suffix=0)])
    valid("back_empty_name", "Back to an entry of empty Name", [T(b"", b"U8", (1,), 0, 1), T(b"x", b"U8", (1,), 1, 1, back=1),
                                                               T(b"y", b"U8", (1,), 2, 1, back=2)])
    valid("prefix_only", "Prefix is all of the reference's Name", [T(b"abc", b"U8", (1,), 0, 1), T(b"abcabc", b"U8", (1,), 1, 1, back=1, suffix=0)])
    valid("suffix_only", "Suffix is all of the reference's Name", [T(b"abc", b"U8", (1,), 0, 1), T(b"abcabc", b"U8", (1,), 1, 1, back=1, prefix=0)])
    valid("name_shorter", "Names without a Middle, shorter than the reference's", [
        T(b"layer.100.w", b"U8", (1,), 0, 1), T(b"layer.10.w", b"U8", (1,), 1, 1, back=1), T(b"layer.1.w", b"U8", (1,), 2, 1, back=1),
        T(b"w", b"U8", (1,), 3, 1, back=1), T(b"layer.", b"U8", (1,), 4, 1, back=4), T(b"", b"U8", (1,), 5, 1, back=5, prefix=0, suffix=0)])
    long = b"0123456789" * 60
    valid("prefix_255", "Prefix 255 and Suffix 255", [
        T(long, b"U8", (1,), 0, 1), T(long[:300] + b"x" + long[300:], b"U8", (1,), 1, 1, back=1),
        T(long[:255] + long[-255:], b"U8", (1,), 2, 1, back=2), T(long + b"y", b"U8", (1,), 3, 1, back=3, suffix=0)])
    valid("name_bytes", "Prefix and Suffix that cut a character of UTF-8", [
        T("\u00e9\u4e2d".encode(), b"U8", (1,), 0, 1), T("\u00e8\u4e2e".encode(), b"U8", (1,), 1, 1, back=1),
        T("\u00e9\u4e2e".encode(), b"U8", (1,), 2, 1, back=1)])
    valid("name_longest", "a Name of 65,535 bytes, by a Prefix of 255", [
        T(b"x" * 255, b"U8", (1,), 0, 1), T(b"x" * 255 + b"y" * 65280, b"U8", (1,), 1, 1, back=1, suffix=0)])
    valid("gaps", "Gaps of 1, 127, 128 and behind the last", [
        T(b"a", b"U8", (1,), 1, 1), T(b"b", b"U8", (1,), 129, 1), T(b"c", b"U8", (1,), 258, 1), T(b"d", b"U8", (0,), 300, 0)], 301)
    valid("like_gap_empty", "an empty tensor after a Gap", [T(b"a", b"U8", (0,), 5, 0), T(b"b", b"U8", (0,), 9, 0, back=1, like=True)], 9)
    valid("dtype_almost", "Dtypes that are not in the table", [
        T(name, name, (1,), i, 1) for i, name in enumerate((b"bf16", b"BF16 ", b"F8", b"U5", b"F8_E4M3FN", b"MXFP4", b"B", b"F32\n", b"D" * 32))])
    data = r.data(40)
    files = [Src(b"m-1", data[:20], [T(b"layer.0.w", b"BF16", (2,), 0, 4), T(b"layer.1.w", b"BF16", (2,), 4, 4, back=1, like=True)]),
             Src(b"m-2", data[20:], [T(b"layer.2.w", b"BF16", (2,), 0, 4, back=2, like=True), T(b"layer.3.w", b"BF16", (2,), 8, 4, back=3, like=True),
                                     T(b"layer.1.w", b"BF16", (2,), 12, 4, back=3, like=True)])]
    v.valid("tensors_back_across_files", "4.1", "Back to entries of an earlier file of the section; the same Name in two files", build(
        [Group(*files), Run([stored(data)])]))


def invalid_names(v):
    data = b"0123456789ABCDEF"
    first = T(b"layer.0.w", b"BF16", (2,), 0, 4)
    second = T(b"layer.1.w", b"BF16", (2,), 4, 4, back=1, like=True)

    def bad(name, rule, what, tensors, patch=None, status="CORRUPT", data=data):
        v.invalid("tensor_" + name, rule, what, status, build([Src(b"f", data, tensors), Run([stored(data)])], patch=patch))

    bad("like_without_back", "R4-30", "Like without a reference", [first, second._replace(back=0)])
    bad("like_without_back_first", "R4-30", "Like of the first entry", [first._replace(like=True)])
    bad("back_first", "R4-30", "Back 1 of the first entry", [first._replace(back=1)])
    for back in (2, 3, 1 << 32, UNKNOWN):
        bad("back_%d" % back, "R4-30", "Back %d of the second entry" % back, [first, second], {"tensor0.1.Back": back})
    v.invalid("tensor_back_other_section", "R4-30", "Back to an entry of an earlier section", "CORRUPT", build([
        Src(b"f", data, [first]), Run([stored(data)]), Src(b"g", data, [T(b"layer.1.w", b"BF16", (2,), 0, 4, back=1, like=True)]), Run([stored(
            data)])]))
    for name, prefix, suffix in (("prefix", 10, 0), ("suffix", 0, 10), ("prefix_suffix", 5, 5), ("prefix_255", 255, 0), ("suffix_255", 0, 255),
                                 ("both_255", 255, 255)):
        bad(name + "_too_long", "R4-31", "Prefix %d, Suffix %d of a Name of 9 bytes" % (prefix, suffix), [first, second], {
            "tensor0.1.Prefix": prefix, "tensor0.1.Suffix": suffix})
    bad("prefix_of_empty_name", "R4-31", "Prefix 1 of an empty Name", [first._replace(name=b""), second], {"tensor0.1.Prefix": 1})
    bad("same_name_by_back", "R4-41", "the Name of the reference", [first, second._replace(name=first.name)])
    bad("same_name_by_prefix", "R4-41", "a Name that another entry has, too", [first, second, T(b"layer.0.w", b"U8", (1,), 8, 1, back=1)])
    bad("name_zero_byte_middle", "R2-3", "zero byte in a Middle", [first, second._replace(name=b"layer.\0.w")])
    bad("middle_beyond", "R2-6", "Middle_Size beyond the body", [first], {"tensor0.0.Middle_Size": 10000})
    bad("middle_huge", "R4-32", "Middle_Size 2^64 - 1", [first], {"tensor0.0.Middle_Size": UNKNOWN})
    bad("name_too_long_by_prefix", "R4-32", "a Name of 65,536 bytes, by a Prefix of 255", [
        first._replace(name=b"x" * 255), second._replace(name=b"x" * 255 + b"y" * 65281, suffix=0)])
    bad("like_beyond_file", "R4-40", "Like: the end is after File_Size", [first._replace(shape=(5,), size=10), second._replace(offset=10, shape=(5,),
        size=10)])
    bad("like_string_beyond_file", "R4-40", "Like of a Dtype that is not in the table: the end is after File_Size", [
        T(b"a", b"odd", (5,), 0, 9), T(b"b", b"odd", (5,), 9, 9, back=1, like=True)])
    bad("entry_ends", "R2-6", "the body ends within the last entry", [first], {"tensor0.0.Shape0": b""})
    bad("shape_ends", "R2-6", "the body ends within Shape", [first], {"tensor0.0.Rank": 2})


def links_vectors(v):
    """Links that fit their directory, and links that do not. Files: a, b (the same bytes), c (others), d/e; directory: d."""
    same, other = b"the same", b"not same"
    files = lambda: [Group(Src(b"a", same), Src(b"b", same), Src(b"c", other), Src(b"d", kind=1), Src(b"d/e", same)),
        Run([stored(same * 2 + other + same)])]

    def put(name, rule, what, *links, value=None, items=None):
        value = b"".join(b"%s%s\0%s\0" % link for link in links) if value is None else value
        v.valid("links_" + name, "links", what + (". CORRUPT for who makes links" if rule else ""), build(items or files(), [(b"lmc.links", value)]),
                rule=rule)

    s, h = b"s", b"h"
    put("none", None, "an empty list of links")
    put("new_directory", None, "a link in a directory that is not there otherwise; one beside a directory with the start of its name", (
        s, b"d-", b"d"), (s, b"n/o/l", b"../../a"))
    put("backslash", None, "a backslash in a Path is a character like others", (s, b"l\\m", b"a"))
    put("hard_two", None, "two hard links to one file, one of them in a directory", (h, b"b", b"a"), (h, b"d/e", b"a"))
    put("hard_chain", None, "a hard link to the path of another", (h, b"b", b"a"), (h, b"d/e", b"b"))
    put("root", None, "a snapshot of a directory without a Path, which has nothing but a link", (s, b"l", b"a"), items=[Src(b"", kind=1)])
    put("root_type_unknown", "L-1", "a broken value in a snapshot of a directory without a Path", value=b"xl\0a\0", items=[Src(b"", kind=1)])
    put("single", None, "in a snapshot of one regular file with a Path it counts", (s, b"l", b"f"), items=[Src(b"f")])
    for name, rule, what, value in (
            ("type_unknown", "L-1", "Type `x`", b"xl\0a\0"), ("ends_type", "L-1", "the value ends behind Type", b"s"),
            ("ends_path", "L-1", "the value ends within Path", b"sl"), ("ends_between", "L-1", "the value ends behind Path", b"sl\0"),
            ("ends_target", "L-1", "the value ends within Target", b"sl\0a"), ("zero", "L-1", "a zero byte", b"\0"),
            ("target_missing", "L-2", "an empty Target", b"sl\0\0"), ("path_missing", "L-2", "an empty Path", b"s\0a\0"),
            ("target_too_long", "L-2", "a Target of 65,536 bytes", b"sl\0" + b"t" * 65536 + b"\0"),
            ("path_too_long", "L-2", "a Path of 65,536 bytes", b"s" + b"p/" * 32767 + b"pp\0a\0"),
            ("hard_target_missing", "L-2", "an empty Target of a hard link", b"hb\0\0")):
        put(name, rule, what, value=value)
    for name, rule, what, links in (
            ("twice", "L-4", "a Path twice", [(s, b"l", b"a"), (s, b"l", b"a")]),
            ("order", "L-4", "Paths do not ascend", [(s, b"m", b"a"), (s, b"l", b"a")]),
            ("order_prefix", "L-4", "a longer Path before the one that it starts with", [(s, b"ll", b"a"), (s, b"l", b"a")]),
            ("absolute", "L-3", "an absolute Path", [(s, b"/l", b"a")]), ("dotdot", "L-3", "a Path with a component ..", [(s, b"d/../l", b"a")]),
            ("dot", "L-3", "a Path with a component .", [(s, b"./l", b"a")]), ("slash", "L-3", "a Path that ends with /", [(s, b"l/", b"a")]),
            ("where_file", "L-6", "a symbolic link where a file is", [(s, b"a", b"b")]),
            ("where_directory", "L-6", "a symbolic link where a directory is", [(s, b"d", b"a")]),
            ("below_file", "L-6", "a symbolic link below a file", [(s, b"a/l", b"b")]),
            ("below_link", "L-7", "a symbolic link below another", [(s, b"l", b"d"), (s, b"l/m", b"a")]),
            ("below_link_deep", "L-7", "a symbolic link two levels below another, with a name between them", [(s, b"l", b"d"), (s, b"l-", b"d"), (
                s, b"l/m/n", b"a")]),
            ("hard_itself", "L-5", "a hard link to its own Path", [(h, b"a", b"a")]),
            ("hard_no_path", "L-5", "a hard link where no file is", [(h, b"l", b"a")]),
            ("hard_no_target", "L-5", "a hard link to no file", [(h, b"b", b"l")]),
            ("hard_directory", "L-5", "a hard link to a directory", [(h, b"b", b"d")]),
            ("hard_of_directory", "L-5", "a hard link where a directory is", [(h, b"d", b"a")]),
            ("hard_other_bytes", "L-5", "a hard link of two files with different bytes", [(h, b"c", b"a")]),
            ("hard_to_symbolic", "L-5", "a hard link to a symbolic one", [(h, b"b", b"l"), (s, b"l", b"a")]),
            ("hard_target_dotdot", "L-3", "a hard link whose Target has a component ..", [(h, b"b", b"d/../a")]),
            ("hard_target_absolute", "L-3", "a hard link whose Target is absolute", [(h, b"b", b"/a")])):
        put(name, rule, what, *links)
    put("above_file", "L-7", "a symbolic link where the directory of a file is, which is not stored", (s, b"d", b"x"), items=[
        Src(b"d/e", same), Run([stored(same)])])


def group_vectors(v, pool):
    """4.1, 4.2: several files in one FILE section."""
    r = Random(12)
    a, b, c = r.data(90), weights(r, 60, 2), r.data(33)
    v.valid("group_two", "4.1", "two files of one section, a run each", build([Group(Src(b"a", a), Src(b"b", b)), Run([stored(a)]), Run([stored(b,
        2)])]))
    v.valid("group_one_run", "4", "two files of one section in one block", build([Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])]))
    mixed = lambda: [Src(b"", kind=1, size=0)][1:] + [
        Src(b"dir", kind=1, mode=0o755), Src(b"dir/a", a, [T(b"t", b"U8", (9,), 3, 9)], mode=0o600, mtime=(7, 8)), Src(b"dir/b", mtime=(-1, 0)),
        Src(b"dir/empty", kind=1), Src(b"dir/sub/b", b, [T(b"u", b"BF16", (60,), 0, 120)]), Src(b"e"), Src(b"z", c), Src(b"zz"), Src(b"zzz", kind=1)]
    whole = a + b + c
    v.valid("group_mixed", "4.1", "files, empty ones and directories of one section, in one run", build([Group(*mixed()), Run([stored(whole)])]))
    for name, sizes in (("within", (40, 100, 103)), ("ends", (90, 120, 33)), ("bytes", (89, 2, 119, 33))):
        runs, at = [], 0
        for size in sizes:
            runs.append(Run([stored(whole[at:at + size])]))
            at += size
        v.valid("group_runs_" + name, "4", "runs that cut the files of a section: %s" % (sizes,), build([Group(*mixed())] + runs))
    files = [Src(b"%02d" % i, bytes([i]) * (1000 * i)) for i in range(14)]
    stream = b"".join(f.data for f in files)
    v.valid("group_blocks", "4", "blocks over several files, files over several blocks", build([Group(*files), Run([
        plane_block(stream[i:i + 16384], fitted) for i in range(0, len(stream), 16384)])]))
    v.valid("group_empty", "4.1", "empty files and directories only", build([Group(Src(b"a"), Src(b"b", kind=1), Src(b"c")), Group(Src(b"d",
        kind=1), Src(b"e"))]))
    v.valid("file_unknown_nameless", "4.1", "a file of Unknown size without a Path: an entry of three bytes", build([Src(data=a, size=UNKNOWN), Run(
        [stored(a)])]))
    v.valid("group_several", "4.1", "sections of several files, of one, of one of Unknown size", build([
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)]), Src(b"c", c), Run([stored(c)]), Src(b"u", a, size=UNKNOWN), Run([stored(a)]),
        Group(Src(b"x"), Src(b"y", b), Src(b"z")), Run([stored(b)])]))
    v.valid("group_many", "4.1", "130 empty files", build([Group(*[Src(b"%d" % i) for i in range(130)])]))
    prefixes = [b"model-00001-of-00002.safetensors", b"model-00002-of-00002.safetensors", b"model", b"model.safetensors", b"mode", b"x"]
    v.valid("paths_prefix", "4.1", "Path_Prefix: paths that share their start", build([Group(*[Src(path) for path in prefixes])]))
    v.valid("paths_prefix_less", "4.1", "Path_Prefix less than it could be", build([Group(*[Src(path, prefix=min(i, 3)) for i, path in enumerate(
        prefixes[:4])])]))
    v.valid("paths_prefix_whole", "4.1", "Path_Prefix is all of a Path: an entry of three bytes", build([
        Group(Src(b"a/b", kind=1), Src(b"a", kind=1), Src(b"ab", kind=1))]))
    long = b"d/" + b"p" * 200 + b"/" + b"q" * 100
    v.valid("paths_prefix_255", "4.1", "Path_Prefix 255, though more are shared", build([Group(Src(long), Src(long + b"q"), Src(long[:-1]))]))
    v.valid("paths_prefix_utf8", "4.1", "Path_Prefix cuts a character of UTF-8", build([Group(*[Src(x.encode()) for x in ("\u00e9", "\u00e8",
        "\u00e8x")])]))
    copy = lambda n, start=0: own_run((a + b + c)[start:start + n], [(n, 1, start)], sources=[Src(data=a + b + c)], width=1)
    v.valid("group_own", "4.2", "Prediction 3: a file of the same section, and one of another", build([
        Group(Src(b"a", a), Src(b"b", a[:40] + b[:20])), Run([stored(a)]), copy(40), Run([stored(b[:20])]), Group(Src(b"c", a), Src(b"d", a[50:])),
        own_run(a + a[50:], [(90, 1, 0), (40, 1, 50)], sources=[Src(data=a)], width=1)]))
    base = pool.items[0][:150]
    near = bytes(x ^ (i % 17 == 0) for i, x in enumerate(base))
    v.valid("group_delta", "4.2", "a delta of several files in one run", build([
        Group(Src(b"a", near[:77]), Src(b"d", kind=1), Src(b"e"), Src(b"f", near[77:])), delta_run(
            Src(data=near), [(50, 1, 0), (100, 1, 50)], pool, 1, order=1)], base=pool))
    # 4.2: numbers by their differences
    tensors, at = [], 0
    order = [5, 0, 9, 1, 2, 3, 8, 7, 6, 4]
    items = [bytes([65 + i]) * (i + 1) for i in range(10)]
    for i in order:
        tensors.append(T(b"t%d" % i, b"U8", (i + 1,), at, i + 1))
        at += i + 1
    old = Src(data=b"".join(items[i] for i in order), tensors=tensors)
    v.valid("base_ten_items", "7.2", "ten tensors, not in the order of their names", build([old, Run([stored(old.data)])]))
    base = Base([old], ["valid/base_ten_items.lmc"])
    for name, numbers in (("ascending", range(10)), ("descending", range(9, -1, -1)), ("same", [4] * 8), ("mixed", order),
                          ("zeros", [3, None, 4, None, None, 9, None, 0])):
        segments = [(5, 0, 0) if i is None else (i + 1, i + 1, 0) for i in numbers]
        data = prediction_of(Run([], prediction=1), segments, [], base)
        v.valid("segments_" + name, "4.2", "numbers of items: %s" % list(numbers), build([Src(data=data), delta_run(Src(data=data), segments, base,
            1)], base=base))
    segments = [(1, 10, 9), (2, 10, 8), (3, 3, 0), (1, 5, 1), (1, 5, 4)]
    data = prediction_of(Run([], prediction=1), segments, [], base)
    v.valid("segments_offsets", "4.2", "Offsets to the ends of items", build([Src(data=data), delta_run(Src(data=data), segments, base, 1)],
        base=base))
    # A file of an earlier section, by a negative difference
    v.valid("own_numbers", "4.2", "Prediction 3: numbers of files, up and down", build([
        Src(b"a", a), Run([stored(a)]), Src(b"b", b), Run([stored(b)]), Src(b"c", c), Run([stored(c)]), Src(b"d", c + a + b + a[9:]), own_run(
            c + a + b + a[9:], [(33, 3, 0), (90, 1, 0), (120, 2, 0), (81, 1, 9)], sources=[Src(data=x) for x in (a, b, c)], width=1)]))


def invalid_groups(v):
    a, b = b"first file", b"second"
    group = lambda *names: Group(*[Src(name) for name in names])

    def bad(name, rule, what, items, status="CORRUPT", **options):
        v.invalid("group_" + name, rule, what, status, build(items, **options))

    bad("of_none", "R4-14", "N_Files 0", [Src(b"a", a), Run([stored(a)]), Group()])
    bad("of_none_first", "R4-14", "N_Files 0, no file at all", [Group()])
    bad("unknown_first", "R4-16", "a file of Unknown size and another", [Group(Src(b"a", a, size=UNKNOWN), Src(b"b", b)), Run([stored(a + b)])])
    bad("unknown_last", "R4-16", "a file, and one of Unknown size", [Group(Src(b"a", a), Src(b"b", b, size=UNKNOWN)), Run([stored(a + b)])])
    bad("unknown_and_directory", "R4-16", "a directory, and a file of Unknown size", [Group(Src(b"a", kind=1), Src(b"b", b, size=UNKNOWN)), Run([stored(b)])])
    bad("path_empty_first", "R4-24", "an empty Path, then another file", [group(b"", b"b")])
    bad("path_empty_second", "R4-24", "a file, then an empty Path", [group(b"a", b"")])
    bad("path_empty_directory", "R4-24", "an empty directory without a name, then a file", [Group(Src(b"", kind=1), Src(b"b"))])
    bad("path_twice", "R4-25", "the same Path twice in a section", [group(b"a", b"b", b"a")])
    bad("path_twice_next", "R4-25", "Path_Prefix is all of the Path, and nothing follows", [group(b"a", b"a")])
    bad("path_twice_other_section", "R4-25", "the same Path in two sections", [group(b"a", b"b"), group(b"c", b"b")])
    bad("path_twice_directory", "R4-25", "a file and a directory of the same Path in a section", [Group(Src(b"a"), Src(b"a", kind=1))])
    bad("prefix_first", "R4-17", "Path_Prefix 1 of the first file", [group(b"a", b"b")], patch={"file0.Path_Prefix": 1})
    bad("prefix_first_of_second", "R4-17", "Path_Prefix of the first file of the second section", [Src(b"abc"), Src(b"abd")], patch={
        "file1.Path_Prefix": 2, "file1.Path_Rest_Size": 1, "file1.Path_Rest": b"d"})
    for prefix in (2, 255):
        bad("prefix_%d" % prefix, "R4-17", "Path_Prefix %d, the Path before has one byte" % prefix, [group(b"a", b"b")], patch={"file1.Path_Prefix": prefix})
    bad("path_too_long", "R4-18", "Path_Prefix + Path_Rest_Size = 65,536", [group(b"p" * 255, b"p" * 255 + b"q" * 65281)])
    for name, paths in (("dotdot", (b"a/..b", b"a/..")), ("slash", (b"a/b", b"a/")), ("slash_start", (b"a", b"/b")),
                        ("zero_byte", (b"a", b"a\0"))):
        bad("path_" + name, "R2-3" if b"\0" in paths[1] else "R4-23", "Path_Prefix: the second Path is %r" % paths[1].decode(), [group(*paths)])
    bad("run_beyond", "R4-11", "a run that ends after the last file of its section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b + b"x")])])
    bad("run_beyond_into_next", "R4-11", "a run that ends in the next section", [
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b + a)]), Src(b"c", a)])
    bad("incomplete", "R4-12", "a section's last file is not complete when the next section starts", [
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b[:3])]), Src(b"c", a), Run([stored(a)])])
    bad("incomplete_last", "R4-12", "a section's last file is not complete when the index starts", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a)])])
    big = (1 << 63) - 1
    bad("sizes_overflow", "R4-13", "File_Sizes whose sum is 2^64 + 10, and a run of ten bytes", [
        Group(Src(b"a", a), Src(b"b", size=big), Src(b"c", size=18)), Run([stored(a)])], patch={"file0.File_Size": big})
    bad("sizes_overflow_63", "R4-13", "File_Sizes whose sum is 2^63", [Group(Src(b"a", size=big), Src(b"b", size=1))])
    bad("entry_file_crc", "R8-10", "File_CRC of the second file of a section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])],
        patch={"entry0.1.File_CRC": 5})
    bad("entry_fingerprint", "R8-11", "fingerprint of the second file of a section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])],
        patch={"entry0.1.Fingerprint0": bytes(32)})
    bad("entry_swapped", "R8-10", "File_CRCs and fingerprints of two files in each other's place", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])], patch={"entry0.File_CRC": crc(b), "entry0.1.File_CRC": crc(a), "entry0.Fingerprint0": next(items_of([Src(b"b", b)]))[1],
                             "entry0.1.Fingerprint0": next(items_of([Src(b"a", a)]))[1]})
    bad("own_itself", "R4-51", "Prediction 3 from the same run, in another file of the section", [
        Group(Src(b"a", a), Src(b"b", a)), Run([stored(a + a)], [(10, 0, 0), (10, 1, 0)], prediction=3)])
    bad("own_later_file", "R4-51", "Prediction 3 from a later file of the section", [
        Group(Src(b"a", a), Src(b"b", a)), Run([stored(a)], prediction=3, base=(2, 0)), Run([stored(a)])])

def text_vectors(v, pool):
    """4.2: Prediction 2."""
    r = Random(13)
    data = r.data(64)
    tensors = [T(b"model.0.w", b"BF16", (4, 2), 0, 16), T(b"model.1.w", b"BF16", (4, 2), 16, 16, back=1, like=True), T(b"norm", b"F32", (8,), 32, 32)]
    f = safetensors_of(tensors, data)
    named = lambda f, path: Src(path, f.data, f.tensors)
    body = lambda f: Run([stored(f.data[f.tensors[0].offset:])])
    v.valid("text", "4.3", "Prediction 2: the header of a file", build([f, text_run(f, 1), body(f)]))
    g = safetensors_of(tensors, data, b'"__metadata__":{"format":"pt"},', b"tail")
    v.valid("text_metadata", "4.3", "Prediction 2: a header with other members in front", build([g, text_run(g, 1, 9 + 31), body(g)]))
    g = safetensors_of([t._replace(name=b"x" + t.name) for t in tensors], data[::-1])
    h = Src(b"other", f.data, f.tensors)
    v.valid("text_of_another_file", "4.3", "Prediction 2: the text of another file that is nearly the same", build([
        named(g, b"g"), text_run(g, 1), body(g), h, Run([stored(h.data)])], bits=0))
    text_size = len(header_text(f))
    segments = [(9, 0, 0), (text_size, 1, 0), (1 + len(data), 0, 0)]
    wrong = prediction_of(Run([], prediction=2), segments, [f], None)
    near = bytes(wrong[:9]) + header_text(f).replace(b"norm", b"nOrm") + f.data[9 + text_size:]
    v.valid("text_near", "4.3", "Prediction 2: a name differs from the text's", build([
        named(f, b"f"), text_run(f, 1), body(f), Src(b"near", near), Run([predicted(near, wrong, 1, order=1)], segments, prediction=2)]))
    parts = [(20, 1, 30), (1, 0, 0), (7, 1, text_size - 7), (5, 1, 0), (9, 2, 3)]
    sources = [named(f, b"f"), named(g, b"g")]
    made = prediction_of(Run([], prediction=2), parts, sources, None)
    v.valid("text_parts", "4.3", "Prediction 2: parts of the texts of two files, up to the end", build([
        sources[0], Run([stored(f.data)]), sources[1], Run([stored(g.data)]), Src(b"h", made), Run([predicted(made, made, 1)], parts, prediction=2)]))
    v.valid("text_group", "4.3", "Prediction 2: the headers of two files of a section, the text of the later one, too", build([
        Group(named(f, b"f"), named(g, b"g")), text_run(f, 1), body(f), text_run(g, 2), body(g)]))
    made = header_text(g)
    v.valid("text_group_forward", "4.3", "Prediction 2: the text of a later file of the section", build([
        Group(Src(b"a", made), named(g, b"g")), Run([predicted(made, made, 1)], [(len(made), 2, 0)], prediction=2), Run([stored(g.data)])]))
    odd = [T(b'quote"d', b"BF16", (1,), 5, 2), T(b"back\\slash", b"F32", (), 7, 4), T("\u00e9\u4e2d".encode(), b"odd,}", (0, 5, UNKNOWN), 20, 3),
           T(b"\xff\x01\n", b"F4", (3, 1 << 40, 0), 23, 0), T(b"", b"U8", (0,), 23, 0), T(b"big", b"\"", (), 100, 1), T(b"z", b"I64", (1, 1, 1),
               101, 8)]
    odd = Src(b"odd", header_text(Src(tensors=odd)), odd)
    v.valid("text_odd", "4.3", "Prediction 2: names and dtypes verbatim, never escaped; Gaps, Rank 0, empty tensors, odd dtypes", build([
        odd, Run([predicted(odd.data, odd.data, 1)], [(len(odd.data), 1, 0)], prediction=2)]))
    single = Src(b"one", data[:7], [T(b"w", b"U8", (3,), 4, 3)])
    made = header_text(single)
    v.valid("text_one_tensor", "4.3", "Prediction 2: one tensor; B is 0 wherever it stands", build([
        single, Run([stored(single.data)]), Src(b"t", made), Run([predicted(made, made, 1)], [(len(made), 1, 0)], prediction=2)]))
    v.valid("text_block_zero", "5", "a stored block in a run of Prediction 2", build([
        f, Run([stored(f.data[:f.tensors[0].offset])], text_run(f, 1).segments, prediction=2), body(f)]))
    many = [T(b"layers.%d.weight" % i, b"U8", (1,), i, 1, back=int(i > 0), like=i > 0) for i in range(260)]
    many = safetensors_of(many, r.data(260))
    v.valid("text_many", "4.3", "Prediction 2: the header of 260 tensors, in several blocks", build([many, text_run(many, 1), body(many)]))
    copy = f.data[:f.tensors[0].offset]
    v.valid("text_own", "4.3", "Prediction 3 from bytes of a run of Prediction 2", build([
        named(f, b"f"), text_run(f, 1), body(f), Src(b"copy", copy), own_run(copy, [(len(copy), 1, 0)], sources=[f], width=1)]))
    v.valid("text_sparse", "4.3", "Prediction 2 with Sparse and classes, in a file with Own", build([
        f, text_run(f, 1, sparse=True, thresholds=[60, 200]), body(f)], bits=2))
    near = bytes(x ^ (i % 9 == 0) for i, x in enumerate(pool.items[0][:64]))
    g = safetensors_of(tensors, near)
    v.valid("text_in_delta", "4.3", "Prediction 2 in a delta", build([g, text_run(g, 1, sparse=True), delta_run(
        Src(data=near), [(16, 1, 0), (16, 1, 16), (32, 1, 32)], pool, 1, order=1)], base=pool))
    v.valid("text_unknown_size", "4.3", "Prediction 2 of a file of Unknown size, from the text of another", build([
        named(f, b"f"), Run([stored(f.data)]), Src(b"u", header_text(f), size=UNKNOWN), Run(
            [predicted(header_text(f), header_text(f), 1)], [(text_size, 1, 0)], prediction=2)]))


def invalid_texts(v):
    tensors = [T(b"model.0.w", b"BF16", (4, 2), 0, 16), T(b"model.1.w", b"BF16", (4, 2), 16, 16)]
    f = Src(b"f", bytes(range(32)), tensors)
    made = header_text(f)
    n = len(made)

    def bad(name, rule, what, patch=None, status="CORRUPT", block=None, front=None, later=(), **options):
        block = block or predicted(made, made, 1)
        v.invalid("text_" + name, rule, what, status, build((front or [f, Run([stored(f.data)])]) + [Src(b"t", made), Run(
            [block], prediction=2, base=(1, 0), **options), *later], patch=patch))

    reference = lambda number, *offset: {"segment1.0.Reference": b"".join(map(varint, ((zigzag(number) << 1 | len(offset)) + 1, *offset)))}
    bad("beyond", "R4-50", "Offset + Size is one more than the text has", reference(0, 1))
    bad("offset_beyond", "R4-50", "Offset is beyond the text", reference(0, 1 << 40))
    bad("overflow", "R4-50", "Offset + Size = 2^64 + Size - 1", reference(0, UNKNOWN))
    bad("offset_0", "R4-48", "an Offset of 0 that is stored", reference(0, 0))
    bad("no_file", "R4-50", "number 2 of a file: there are two", reference(2))
    bad("negative", "R4-50", "number -1 of a file", reference(-1))
    bad("of_no_tensors", "R4-50", "the text of a file without tensors", reference(1))
    bad("of_directory", "R4-50", "the text of a directory", reference(1), front=[f, Run([stored(f.data)]), Src(b"d", kind=1)])
    bad("later_file", "R4-50", "the text of a file that a later section describes", reference(2), later=[Src(b"g", f.data, tensors), Run([stored(f.data)])])
    bad("payload_crc", "R5-10", "Payload_CRC in a run of Prediction 2", {"block1.0.Payload_CRC": 1}, "CHECKSUM")
    for name, options in (("sparse", {"sparse": True}), ("classes", {"thresholds": [100]}), ("classes_9", {"thresholds": range(100, 108)})):
        bad(name + "_without_bit", "R5-8 R3-13", "%s in a file without Incompatible bits 0 and 1" % name, block=predicted(made, made, 1, **options))
    bad("no_segments", "R4-45", "N_Segments 0", {"run1.Run_Size": n}, block=stored(made), segments=[])
    bad("segments_too_many", "R4-45", "N_Segments 2^24 + 1", {"run1.N_Segments": (1 << 24) + 1})
    bad("own_of_own", "R4-51", "Prediction 3 from a run of Prediction 3, beside one of Prediction 2", later=[
        Src(b"u", made), Run([stored(made)], prediction=3, base=(2, 0)), Src(b"w", made), Run([stored(made)], prediction=3, base=(3, 0))])


def fingerprint_vectors(v, pool):
    """7.1, 7.3: kinds of items, files as a base by the tables of the snapshot."""
    r = Random(14)
    v.valid("fingerprint_empty_file", "7.1", "an empty file \"x\"", build([Src(b"x")]))
    v.valid("fingerprint_empty_directory", "7.1", "an empty directory \"x\": another fingerprint than that of the empty file", build([Src(b"x", kind=1)]))
    data = r.data(30)
    v.valid("fingerprint_file", "7.1", "a file \"x\" without tensors", build([Src(b"x", data), Run([stored(data)])]))
    v.valid("fingerprint_tensor", "7.1", "a file with a tensor \"x\" of U8: another fingerprint than that of the file \"x\"", build([
        Src(b"y", data, [T(b"x", b"U8", (30,), 0, 30)]), Run([stored(data)])]))
    v.valid("fingerprint_tensor_empty", "7.1", "a file with an empty tensor \"x\" of U8", build([Src(b"y", b"", [T(b"x", b"U8", (0,), 0, 0)])]))
    empty = {"file": Src(b"x"), "directory": Src(b"x", kind=1), "tensor": Src(b"y", tensors=[T(b"x", b"U8", (0,), 0, 0)])}
    paths = {"file": "valid/fingerprint_empty_file.lmc", "directory": "valid/fingerprint_empty_directory.lmc", "tensor": "valid/fingerprint_tensor_empty.lmc"}
    for kind, f in empty.items():
        delta = build([Src(data=b"delta"), Run([stored(b"delta")])], base=Base([f], [paths[kind]]))
        v.valid("delta_empty_" + kind, "7.1", "a delta against an empty %s \"x\"" % kind, delta)
        for other in empty:
            if other != kind:
                v.invalid("base_wrong_empty_%s_for_%s" % (other, kind), "R7-2", "a delta against an empty %s \"x\", given an empty %s \"x\"" % (kind,
                    other),
                          "BASE_WRONG", delta, [paths[other]])
    own = [Src(b"x", data), Src(b"y", data, [T(b"x", b"U8", (30,), 0, 30)])]
    for f, name, other in ((own[0], "file", "tensor"), (own[1], "tensor", "file")):
        delta = build([Src(data=b"delta"), Run([stored(b"delta")])], base=Base([f], ["valid/fingerprint_%s.lmc" % name]))
        v.valid("delta_of_" + name, "7.1", "a delta against a %s \"x\"" % name, delta)
        v.invalid("base_wrong_%s_for_%s" % (other, name), "R7-2", "a delta against a %s \"x\", given a %s \"x\" of the same bytes" % (name, other),
                  "BASE_WRONG", delta, ["valid/fingerprint_%s.lmc" % other])
    # 7.3: by the snapshot's own tables
    def array(random, change=None):
        header = b"\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }"
        header += b" " * (127 - len(header)) + b"\n"
        return header, weights(random, 20, 4, change)

    def against_tables(name, what, old, new, paths, extra=(), refusable=()):
        """Each tensor is predicted by that of its name; other bytes are stored. old, new: files of the same paths, kinds and sizes."""
        base, items = Base(list(old), paths), list(extra)
        for f in new:
            items.append(f)
            at = 0
            for t in f.tensors:
                if t.offset > at:
                    items.append(Run([stored(f.data[at:t.offset])]))
                if t.size:
                    items.append(delta_run(Src(data=f.data[t.offset:t.offset + t.size]), [(t.size, base.item(t.name), 0)], base, 4))
                at = t.offset + t.size
            if at < len(f.data):
                items.append(Run([stored(f.data[at:])]))
        b = build(items, base=base)
        v.valid(name, "7.3", what, b, refusable=refusable)
        return b

    header, old = array(r)
    new = array(r, old)[1]
    tensors = [T(b"w", b"F32", (5, 4), 128, 80)]
    v.base("bases/array.npy", header + old)
    delta = against_tables("delta_base_npy", "a .npy file as a base, by the tables of the snapshot", [Src(data=header + old, tensors=tensors)],
                           [Src(data=header + new, tensors=tensors)], ["bases/array.npy"])
    v.base("bases/array_longer.npy", header + old + b"\0")
    v.invalid("base_wrong_npy_longer", "R7-2", "a .npy file with a byte more: the tables of the snapshot do not fit", "BASE_WRONG", delta, [
        "bases/array_longer.npy"])
    v.base("bases/array_wrong.npy", header + flip_bit(old, 7, 1))
    v.invalid("base_wrong_npy_bit", "R7-2", "a .npy file in which a bit of a tensor is wrong", "BASE_WRONG", delta, ["bases/array_wrong.npy"])
    other = header.replace(b"False", b"True ") + old
    v.base("bases/array_header.npy", other)
    v.valid("delta_base_npy_header", "7.3", "a .npy file whose header differs: bytes of no tensor do not matter", delta, ["bases/array_header.npy"])
    v.valid("delta_base_npy_among", "7.3", "the same among others", delta, ["bases/pool.bin", "bases/array_longer.npy", "bases/array.npy"])
    # a directory like that of torch
    blob = b"PK\3\4" + r.data(61)
    tables = lambda: [T(b"layer.0", b"F32", (6,), 65, 24), T(b"layer.1", b"F32", (6,), 96, 24), T(b"empty", b"F32", (0,), 120, 0)]
    first, second = weights(r, 6, 4), weights(r, 6, 4)
    fill = lambda a, b: blob + a + bytes(7) + b + b"PK\1\2 end"
    folder = lambda a, b, text: [Src(b"data", kind=1), Src(b"data/archive.pt", fill(a, b), tables()), Src(b"notes.txt", text), Src(b"empty")]
    old = folder(first, second, b"step 1\n")
    new = folder(weights(r, 0, 4, first), weights(r, 0, 4, second), b"step 2\n")
    for name, change in (("torch", {}), ("torch_more", {"more.txt": b"?"}), ("torch_text", {"notes.txt": b"step 9\n"}),
                         ("torch_size", {"notes.txt": b"step 10\n"}), ("torch_less", {"empty": None}), ("torch_kind", {"empty": None,
                             "empty/x": b"x"}),
                         ("torch_name", {"empty": None, "emptY": b""})):
        for f in old:
            content = change.get(f.path.decode(), f.data)
            if not f.kind and content is not None:
                v.base("bases/%s/%s" % (name, f.path.decode()), content)
        for path, content in change.items():
            if content is not None and "bases/%s/%s" % (name, path) not in v.outputs:
                v.base("bases/%s/%s" % (name, path), content)
    delta = against_tables("delta_base_torch", "a directory of files in an unknown format as a base, by the tables of the snapshot; a pipe cannot", old, new, [
        "bases/torch"], refusable=["BASE_WRONG"])
    against_tables("delta_base_torch_parent", "the same; the snapshot does not store the directory that files of the base are in", old[1:], new[1:], [
        "bases/torch"], refusable=["BASE_WRONG"])
    for name, rule in (("torch_more", "a file too many"), ("torch_less", "a file is missing"), ("torch_size", "a file of another size"),
                       ("torch_text", "a file without tensors has another content"), ("torch_kind", "a directory in place of a file"),
                       ("torch_name", "a file of another name")):
        v.invalid("base_wrong_" + name, "R7-2 F-1", "a directory as a base: %s" % rule, "BASE_WRONG", delta, ["bases/" + name])
    # the tables fit, but the fingerprint is that of the container
    tensors = [("a", "F32", [4], weights(r, 4, 4)), ("b", "F32", [4], weights(r, 4, 4))]
    file, entries = safetensors(tensors)
    swapped, moved = safetensors([("b",) + tensors[1][1:], ("a",) + tensors[0][1:]])
    base = Base([Src(data=file, tensors=entries)], [v.base("bases/two.safetensors", file)])
    assert len(file) == len(swapped)
    v.valid("delta_base_container", "7.3", "a base of the same size whose tensors stand in another order: by the container, not by the tables",
        build([
        Src(data=swapped, tensors=moved), Run([stored(swapped[:moved[0].offset])]), delta_run(
            Src(data=swapped[moved[0].offset:]), [(16, base.item(b"b"), 0), (16, base.item(b"a"), 0)], base, 4)], base=base))
    broken = file[:8] + b" " + file[9:]
    base = Base([Src(data=broken, tensors=entries)], [v.base("bases/two_broken.safetensors", broken)])
    v.valid("delta_base_tables_no_container", "7.3", "a base that is no safetensors file, and laid out like the snapshot", build([
        Src(data=file, tensors=entries), Run([stored(file[:entries[0].offset])]), delta_run(
            Src(data=file[entries[0].offset:]), [(16, base.item(b"a"), 0), (16, base.item(b"b"), 0)], base, 4)], base=base))
    log, values = [b"step 1\n", b"step 2\n"], [header + array(r)[1]]
    values.append(header + array(r, values[0][len(header):])[1])
    v.base("bases/unknown/log", log[0])
    v.base("bases/unknown/array.npy", values[0])
    against_tables("delta_base_unknown_size", "a directory as a base, by the tables of a snapshot with a file of Unknown size; a pipe cannot", *[
        [Src(b"log", log[i], size=UNKNOWN), Src(b"array.npy", values[i], [T(b"w", b"F32", (5, 4), 128, 80)])] for i in (0, 1)],
        ["bases/unknown"], refusable=["BASE_WRONG"])


def variant_vectors(v):
    """7.3: which files are safetensors files. Each delta is against a tensor of the base, or against all of it."""
    def delta(file, tensors, paths):
        """The content has another size than the base, so its own tables do not fit."""
        base = Base([Src(data=file, tensors=tensors)], paths)
        item = max(range(len(base.items)), key=lambda i: len(base.items[i]))
        data = base.items[item][:4]
        if len(data) < 3:
            return build([Src(data=b"four"), Run([stored(b"four")])], base=base)
        return build([Src(data=data), Run([predicted(data, data, 1)], prediction=1, base=(item + 1, 0))], base=base)

    for variant in base_variants.VARIANTS:
        file = base_variants.content(variant)
        start = len(file) - len(variant.data)
        path = [v.base("bases/variants/%s.bin" % variant.name, file)]
        tensors = [T(name, dtype, shape, start + at, end - at) for name, dtype, shape, at, end in variant.tensors]
        kind = "a safetensors file" if tensors else "no safetensors file"
        made = delta(file, tensors, path)
        v.valid("variant_" + variant.name, "7.3", "a base that is %s: %s" % (kind, variant.reason), made)
        if not tensors and variant.data == base_variants.DATA:
            # a tolerant reader finds this tensor
            v.invalid("base_variant_" + variant.name, "R7-2 " + variant.rule, "a delta against a tensor of a base that is no safetensors file: %s" % variant.reason,
                      "BASE_WRONG", delta(file, [T(b"a", b"U8", (4,), start, 4)], path))
        elif tensors:
            v.valid("base_variant_" + variant.name, "7.3", "a delta against the bytes of a base that is a safetensors file: %s" % variant.reason,
                    delta(file, [], path), refusable=["BASE_WRONG"])


# ---- Quantised blocks ----

ONE = 0x3F80                                   # the number g of a scale of 1.0
SCALES = [0x3A12, ONE, 0x35FF, 0x0080, 0x4000, 0x38AB]                         # far apart; 0x0080 is the least
# Values that need exceptions: NaN of both signs with payloads, infinities, -0, subnormals, negative; and usual numbers, which are allowed.
EXCEPTIONS = {2: [0x7FC0, 0xFFFF, 0x7F81, 0x7F80, 0xFF80, 0x8000, 0x0001, 0x807F, 0xBF80, 0x3F81, 0x0000],
              4: [0x7FC00000, 0xFFFFFFFF, 0x7F800001, 0xFFA5A5A5, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001, 0x807FFFFF, 0xBF800001,
                  0x3F812345, 0x00000000]}
# Second moments that may predict first ones: zeros, subnormals, negative, the largest, infinities, NaN, numbers around powers of 4.
SECONDS = [0x2B8CBCCC, 0x2B800000, 0x2B7FFFFF, 0x2C000001, 0x30123456, 0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x807FFFFF,
           0xAB8CBCCC, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F800001, 0x3F800000, 0x3F7FFFFF, 0x3F820000, 0x3F81FFFF]
ROOT = 0x3F800000 - (0x3F800000 >> 1)          # with this Bias 1.0 predicts a scale of 1.0
EPS = 0x24E69595                               # the bits of 1e-16, the square of an optimizer's eps


def rows(n, block, row):
    """A tensor's rows cut into blocks: for each block the number of elements and First_Group."""
    return [(min(block, n - i), row - i % row) for i in range(0, n, block)]


def quantised_vectors(v, pool):
    r = Random(8)
    log, signed, table = METHOD_LOG, METHOD_SIGNED, METHOD_TABLE

    def valid(name, what, *blocks, **run):
        """One run of all blocks, if log2 is given; else a run for each."""
        assert all(block.size() < len(block.data) for block in blocks if block.layout), "not smaller than the elements: %s" % name
        data = b"".join(block.data for block in blocks)
        v.valid("quantised_" + name, "quantised", what, build([Src(data=data), Run(blocks, **run)]) if run else one(*blocks))

    for width, kind in ((4, "f32"), (2, "bf16")):
        # Tables and grids
        codebook = [1, 2, 300, 5000, 5001, 20000, 41111, 65535]
        wide = some(r, 300, [0] + codebook)
        valid("log_table_" + kind, "Log with Table: rows of 64", quantised(
            wide, width, log | table, least=-40000, step=9000, table=codebook, scales=SCALES, group_size=64))
        valid("log_signed_table_" + kind, "Log, Signed, with Table", quantised(
            wide, width, log | signed | table, least=-16000, step=10001, table=codebook, scales=[ONE, 0x4012], group_size=100))
        valid("linear_table_" + kind, "linear, with Table", quantised(wide, width, table, least=-21000, table=codebook, scales=SCALES, group_size=50))
        full = list(range(3, 3 + 5 * 255, 5))
        valid("table_255_" + kind, "Table_Size 255, all of them used", quantised(
            [0] + full + some(r, 1400, full[:4]), width, table, least=-600, table=full, scales=[ONE]))
        valid("table_1_" + kind, "Table_Size 1", quantised(some(r, 90, [0, 700]), width, log | table, step=5, table=[700], scales=[ONE]))
        valid("table_zeros_" + kind, "with Table, every symbol is 0", quantised([0] * 90, width, table, table=[7], scales=[ONE]))
        grids = [some(r, 400, [0] + some(r, 12, range(3 << low_bits))) for low_bits in range(9)]
        valid("log_low_bits_" + kind, "Log: grids with Low_Bits 0 to 8", *[quantised(
            symbols, width, log, i, -(1 << i), 70000, scales=SCALES, group_size=33, first_group=20) for i, symbols in enumerate(grids)])
        valid("linear_low_bits_" + kind, "linear: grids with Low_Bits 0 to 8", *[quantised(
            symbols, width, 0, i, -(3 << i) // 2, scales=SCALES, group_size=40) for i, symbols in enumerate(grids)])
        valid("signed_low_bits_" + kind, "Log, Signed: grids with Low_Bits 0 to 8", *[quantised(
            symbols, width, log | signed, i, -(3 << i) // 4, 1 << 20, scales=SCALES, group_size=400) for i, symbols in enumerate(grids)])
        low, high = bytes(some(r, 400, [0, 1, 7, 8, 9, 100, 255])), bytes(some(r, 400, [0, 1, 2, 3]))
        valid("low_beyond_" + kind, "Low_Bits 3; elements of Low with higher bits, which are or-ed with High's", quantised(
            [l | h << 3 for l, h in zip(low, high)], width, 0, 3, -100, scales=[ONE], low=low, high=high))
        # Extremes
        edges = [0, 1, 2, 3, 32767, 32768, 65534, 65535]
        for name, least in (("least", -65535), ("middle", -32767), ("zero", 0)):
            valid("linear_%s_%s" % (name, kind), "linear: Min %d and symbols to 65,535, the least and the largest scales" % least, quantised(
                some(r, 900, edges), width, 0, 8, least, scales=[0x0080, 0x00FF, 0x3FFF, 0x76FF, 0x7700], group_size=45))
        powers = [s for i in range(16) for s in (1 << i, (1 << i) + 1, (2 << i) - 1)]
        valid("linear_powers_" + kind, "linear: products of every length", quantised(
            powers * 25, width, 0, 8, -1, scales=[0x2080, 0x20FF, 0x2081, 0x40AA], group_size=len(powers)))
        valid("log_clamp_least_" + kind, "Log: far below the least normal number, and sums that have more than 32 bits", quantised(
            some(r, 900, [0, 1, 2] + [65536 - i for i in (1, 2, 63, 127, 128, 129, 255, 256, 257, 512)]), width, log, 8, -65535, 1 << 24,
            scales=[ONE, 0x0080, 0x7F7F], group_size=30))
        valid("log_clamp_largest_" + kind, "Log: far above the largest number, and sums that have more than 32 bits", quantised(
            some(r, 900, [0, 1, 2, 64, 65, 127, 128, 129, 130, 256, 257, 258, 512, 65535]), width, log, 8, 0, 1 << 24,
            scales=[ONE, 0x0080, 0x7F7F], group_size=30))
        valid("log_edges_" + kind, "Log: just at the least normal and at the largest number, both signs", quantised(
            some(r, 400, range(40)), width, log | signed, 0, -10, 0x1000, scales=[0x0080, 0x7F7F, 0x0081, 0x7F7E], group_size=50))
        valid("log_step_1_" + kind, "Log: Step 1", quantised(
            some(r, 900, [0, 1, 40000, 65535]), width, log, 8, -32768, 1, scales=SCALES, group_size=99))
        valid("log_rounding_" + kind, "Log: all ways to round to BF16", quantised(
            some(r, 500, range(1, 120)), width, log | signed, 0, -25, 0x2000, scales=[ONE, 0x3FFF, 0x4000], group_size=99))
        valid("linear_rounding_" + kind, "linear: all ways to round to BF16", quantised(
            some(r, 900, [0, 1] + list(range(1000, 1060))), width, 0, 4, -1030 + 500, scales=[0x3FFF, 0x4001, ONE], group_size=80))
        valid("symbol_0_" + kind, "symbol 0 is +0 whatever Min and scale; with Log, q = 0 is the scale", quantised(
            some(r, 99, [0, 1]), width, log, 0, 0, 1, scales=SCALES, group_size=9, first_group=4))
        valid("q_0_" + kind, "linear: q = 0 is +0, too", quantised(some(r, 99, [0, 5, 6, 7]), width, 0, 0, -5, scales=SCALES, group_size=33))
        # Groups
        n, unbounded = 120, (1 << 31) - 1
        for name, groups in (("short", ((1, 1), (2, 1), (2, 2), (7, 1), (7, 6), (7, 7), (40, 40), (119, 119), (119, 1), (120, 119), (120, 120))),
                             ("long", ((121, 120), (121, 121), (1000, 119), (1000, 900), (unbounded, unbounded), (unbounded, 1), (unbounded, 119)))):
            valid("groups_%s_%s" % (name, kind), "120 elements in groups of (Group_Size, First_Group) %s" % (groups,), *[quantised(
                some(r, n, [0, 1, 2, 3]), width, 0, 0, -2, scales=SCALES if group_size > 2 else [ONE, 0x3F81, ONE], group_size=group_size,
                first_group=first_group, coders={"high": tree(even(range(4)))}) for group_size, first_group in groups])
        valid("groups_raw_" + kind, "the scales in raw lists", quantised(
            some(r, 150, [0, 1]), width, log, step=1, scales=SCALES, group_size=7, coders={"scales low": raw, "scales high": raw}))
        valid("groups_tree_" + kind, "300 scales in trees with nested masks", quantised(
            [1] * 1500, width, log, step=1, scales=some(r, 300, [ONE] * 20 + [0x3E80, 0x3F81, 0x4081]), group_size=5, coders={
                "scales low": tree({0x80: 1, 0x81: 1}, masks=nested_masks(9)),
                "scales high": tree({0x3F: 1, 0x3E: 2, 0x40: 2}, masks=nested_masks(11))}))
        valid("groups_largest_" + kind, "the largest and the least scales of both kinds", quantised(
            [0, 1, 2] * 50, width, log, 0, -1, 1 << 16, scales=[0x7F7F, 0x7F00, 0x0080, 0x00FF], group_size=40), quantised(
            [0, 1, 2] * 50, width, 0, 0, -1, scales=[0x7700, 0x0080, 0x76FF], group_size=50))
        # Exceptions
        special = EXCEPTIONS[width]
        n = 60 * len(special)
        for name, positions in (("first", range(len(special))), ("last", range(n - len(special), n)), ("apart", range(1, n, 60))):
            valid("exceptions_%s_%s" % (name, kind), "exceptions of every kind: %s" % name, quantised(
                some(r, n, [0, 1, 2, 3]), width, log, 0, -1, 1 << 22, scales=[ONE], exceptions=dict(zip(positions, special))))
        valid("exceptions_both_ends_" + kind, "two exceptions, the first and the last element", quantised(
            some(r, 90, [0, 1, 2, 3]), width, 0, 0, -1, scales=[ONE], exceptions={0: special[0], 89: special[1]}))
        valid("exceptions_table_" + kind, "exceptions with Table, of any symbols; Values that are usual", quantised(
            [0, 9, 99, 0] * 70, width, table, 0, -50, table=[9, 99], scales=[ONE], exceptions={
                i: ONE << 8 * (width - 2) | i for i in (0, 1, 2, 3, 7, 8, 10, 279)}))
        # Sizes of blocks
        n = 38 // width + 1
        valid("smallest_%d_%s" % (n, kind), "%d elements, the fewest that can be quantised: a payload of 38 bytes" % n,
              quantised([1] * n, width, log, step=1, scales=[ONE]))
        n, codes = (38, []) if width == 2 else (14, [1, 2])
        valid("just_smaller_" + kind, "a payload one byte smaller than the elements", quantised(
            [1, 2] * (n // 2), width, log | (table if codes else 0), step=1, table=codes, scales=[ONE], coders={"high": raw}))
        lengths = {3: 1, 0: 3, 1: 3, 2: 3, 4: 4, 9: 4}
        valid("large_" + kind, "20,001 elements in rows of 768, nested masks, exceptions around element 16,384", quantised(
            list(draw(r, lengths, 20001)), width, log, 0, -3, 1 << 21, scales=[ONE - i for i in range(0, 99, 7)], group_size=768, first_group=100,
            exceptions=dict(zip((0, 16383, 16384, 20000), special)), coders={"high": tree(lengths, masks=nested_masks(3))}), log2=17)
        blocks, row = (1 << 14) // width, 1000
        valid("rows_" + kind, "three blocks of a run, which cut rows of 1,000", *[quantised(
            some(r, n, [0, 5, 5, 5, 6, 7]), width, log, 0, -5, 1 << 22, scales=[ONE + i for i in range(9)], group_size=row, first_group=first)
            for n, first in rows(2 * blocks + 1700, blocks, row)], log2=14)
    valid("most_elements", "2^20 elements in 38 bytes of payload", quantised([1] * (1 << 20), 2, log, step=1, scales=[ONE]), log2=21)
    few = quantised([5, 6] * 50, 4, 0, 0, -5, scales=[ONE])
    valid("among_others", "blocks of every layout", few, planes([bytes(100)] * 2), stored(b"text"), few)
    # Predicted
    def own(name, what, second, *blocks, log2=None, **run):
        """second: the second moments, stored. Each block has its own run, predicted by their start, unless log2 is given."""
        file, runs = b"".join(block.data for block in blocks), dict(dict(prediction=3, base=(1, 0)), **run)
        assert all(block.size() < len(block.data) for block in blocks), "not smaller than the elements: %s" % name
        runs = [Run(blocks, log2=log2, **runs)] if log2 else [Run([block], **runs) for block in blocks]
        v.valid("quantised_own_" + name, "quantised", what, build([Src(b"v", second), Run([
            stored(second[i:i + 16384]) for i in range(0, len(second), 16384)]), Src(b"m", file)] + runs))

    for width, kind in ((4, "f32"), (2, "bf16")):
        second, seconds = moments(r, 300, width), pack([p >> 32 - 8 * width for p in SECONDS] * 20, width)
        codebook = [1, 3, 10, 100, 101, 102, 190, 197, 199]
        own("table_" + kind, "Predicted, linear with Table: updates", second, quantised(
            some(r, 300, [0] + codebook), width, table, least=-100, bias=ROOT, floor=EPS, table=codebook, base=second))
        grids = [some(r, 300, [0] + some(r, 5, range(3 << low_bits))) for low_bits in range(9)]
        own("low_bits_" + kind, "Predicted, linear: grids with Low_Bits 0 to 8", second, *[quantised(
            symbols, width, 0, i, -(3 << i) // 2, bias=ROOT - 123456, floor=EPS, base=second) for i, symbols in enumerate(grids)])
        for name, pairs in (("floor", ((ROOT, 0), (ROOT, EPS), (ROOT, 0x7F800000), (0xFFFF, 0x3F800000), (0, 0))),
                            ("bias", ((-1 << 30, 0), (1 << 30, 0), (-1 << 30, 0x7F800000), (1 << 30, 0x7F800000))),
                            ("clamp", ((0x00800000 - (0x2B800000 >> 1), 0), (0x77000000 - (0x7F7FFFFF >> 1), 0),
                                       (0x76FFFFFF - (0x7F7FFFFF >> 1), 0)))):
            own("%s_%s" % (name, kind), "Predicted: zeros, subnormals, negative, huge, infinities, NaN; (Bias, Floor) %s" % (pairs,), seconds, *[
                quantised(some(r, len(seconds) // width, [0, 1, 65534, 65535, 32768]), width, 0, 8, -32767, bias=bias, floor=floor, base=seconds)
                for bias, floor in pairs])
        special = EXCEPTIONS[width]
        places = list(range(len(special))) + list(range(300 - len(special), 300))
        own("exceptions_" + kind, "Predicted: exceptions at both ends", second, quantised(
            some(r, 300, [0, 1, 2, 3]), width, 0, 0, -2, bias=ROOT, base=second, exceptions=dict(zip(places, special * 2))))
        n = 34 // width + 1
        own("smallest_%d_%s" % (n, kind), "Predicted: %d elements, the fewest that can be quantised: a payload of 34 bytes" % n,
            second[:n * width], quantised([7] * n, width, bias=ROOT, base=second[:n * width]))
        many = second * 30
        blocks = [many[i:i + 16384] for i in range(0, len(many), 16384)]
        bound = [quantised(some(r, len(b) // width, [0, 9, 10, 10, 10, 11]), width, 0, 0, -10, bias=ROOT, floor=EPS, base=b) for b in blocks]
        bound[1] = quantised(some(r, len(blocks[1]) // width, [0, 1, 1, 1, 1]), width, log, 0, 0, 1, scales=[ONE], group_size=999)
        own("blocks_" + kind, "blocks of a run of Prediction 3: the first is Predicted, the second is not", many, *bound, log2=14)
    second = moments(r, 300, 4)
    first = quantised(some(r, 299, [0, 1, 2, 3, 4]), 4, 0, 0, -2, bias=ROOT, base=second[3:1199])
    own("unaligned", "Predicted: F32 at an odd offset", second, first, base=(1, 3))
    rounded = convert(second, 1)
    own("converted", "Predicted: BF16 rounded from F32", second, quantised(
        some(r, 300, [0, 1, 2, 3, 4]), 2, 0, 0, -2, bias=ROOT, floor=EPS, base=rounded), prediction=4)
    pieces = [(40, 0, 0), (81, 1, 2), (75, 0, 0), (4, 1, 7)]
    base = prediction_of(Run([], prediction=3), pieces, [Src(data=second)], None)
    block = quantised(some(r, 50, [1, 2, 3]), 4, 0, 0, -1, bias=ROOT, floor=EPS + 99, base=base)
    v.valid("quantised_own_segments", "quantised", "Predicted: segments that cut elements, zeros between", build([
        Src(b"v", second), Run([stored(second)]), Src(b"m", block.data), Run([block], pieces, prediction=3)]))
    for width, kind in ((4, "f32"), (2, "bf16")):
        base = pool.items[0][101:101 + 300 * width]
        block = quantised(some(r, 300, [0, 1, 2, 3, 9]), width, 0, 0, -2, bias=ROOT, floor=EPS, base=base, exceptions={17: 1})
        plain = quantised(some(r, 300, [0, 1, 2, 3, 9]), width, log, 0, -2, 1 << 20, scales=[ONE])
        v.valid("quantised_delta_" + kind, "quantised", "a Predicted block in a delta", build(
            [Src(data=block.data), Run([block], prediction=1, base=(1, 101))], base=pool))
        v.valid("quantised_delta_zero_" + kind, "quantised", "a block that is not Predicted in a run of Prediction 1", build(
            [Src(data=plain.data), Run([plain], prediction=1, base=(1, 101))], base=pool))
    data = moments(r, 4500, 4)
    base = Base([Src(data=data)], [v.base("bases/seconds.bin", data)])
    blocks = [quantised(some(r, len(b) // 4, [0, 1, 2, 3, 9]), 4, 0, 0, -2, bias=ROOT, floor=EPS, base=b, exceptions={0: 1 << 31, len(b) // 4 - 1: 1})
              for b in (data[:16384], data[16384:])]
    v.valid("quantised_delta_same_place", "quantised", "blocks that may be restored over their base", build(
        [Src(data=b"".join(block.data for block in blocks)), Run(blocks, prediction=1, base=(1, 0))], base=base))
    # 4.1: tensors
    second = quantised(some(r, 600, [0, 1, 2, 3, 5, 8]), 4, log | table, 0, -2, 1 << 21, table=[1, 2, 3, 5, 8], scales=SCALES[:2], group_size=30,
                       exceptions={0: 0x7FC00000, 599: 1})
    first = quantised(some(r, 600, [0, 1, 2, 3, 4]), 4, 0, 0, -2, bias=ROOT, floor=EPS, base=second.data)
    tensors = lambda at: [T(b"exp_avg_sq", b"F32", (20, 30), 0, 2400, (1, 2, 42949673)), T(b"exp_avg", b"F32", (20, 30), at, 2400, (2, 1, 28347))]
    v.valid("quantised_moments", "quantised", "first moments predicted by the second moments of another file, both quantised", build([
        Src(b"v", second.data, tensors(0)[:1]), Run([second]), Src(b"m", first.data, tensors(0)[1:]), Run([first], prediction=3, base=(1, 0))]))
    v.valid("quantised_moments_same_file", "quantised", "first moments predicted by the second moments in the same file", build([
        Src(b"optimizer", second.data + first.data, tensors(2400)), Run([second]), Run([first], prediction=3, base=(1, 0))]))
    data = r.data(80)
    v.valid("tensors_generations", "4.1", "Generation 0, 1, 2 and 255, each Measure, the least and the largest Error", build([
        Src(b"f", data, [T(b"%d" % i, dtype, (2,) * rank, 8 * i, 8, loss) for i, (loss, dtype, rank) in enumerate((
            ((0, 0, 0), b"F32", 1), ((1, 1, 0), b"F32", 1), ((1, 2, 1), b"F32", 1), ((1, 3, 0xFFFFFFFF), b"BF16", 2), ((0, 0, 0), b"U8", 3),
            ((2, 3, 0x80000000), b"F64", 0), ((255, 2, 258), b"no dtype", 32), ((255, 1, 1 << 24), b"I64", 0), ((255, 3, 7), b"U8", 3)))]),
        Run([stored(data)])]))
    v.valid("quantised_generation_0", "quantised", "a quantised block in a tensor of Generation 0, one that is not in a tensor of Generation 1", build([
        Src(b"f", few.data + b"12345678", [T(b"a", b"F32", (100,), 0, 400), T(b"b", b"F32", (2,), 400, 8, (1, 3, 99))]), Run([few]),
        Run([stored(b"12345678")])]))
    # Anything
    for seed in range(16):
        random = Random(4000 + seed)
        runs, data, second = [], b"", moments(random, 1500, 4)
        for _ in range(1 + random.below(3)):
            width, n = random.pick([2, 4]), 300 + random.below(900)
            method = random.pick([0, log, log | signed]) | random.pick([0, table])
            predicted_by = None if method & log or random.below(3) == 0 else second[random.below(50):][:n * width]
            if predicted_by:
                scaled = {"bias": ROOT + random.below(1 << 26), "floor": random.below(1 << 31) % 0x7F800001, "base": predicted_by}
            else:
                row = 1 + random.below(n) if random.below(2) else 20
                scaled = {"group_size": row, "first_group": 1 + random.below(row), "scales": some(random, 9, [128 + random.below(0x7600), ONE])}
            low_bits, codes = random.below(9), []
            if method & table:
                low_bits, codes = 0, sorted({1 + random.below(65535) for _ in range(1 + random.below(30))})
            symbols = [0] + (codes or some(random, 1 + random.below(20), range((1 << random.below(8 + low_bits)) + 1)))
            masks = nested_masks(*[random.below(21) for _ in range(4)])
            coder = lambda plane: fitted(plane, masks)
            block = quantised(
                some(random, n, symbols), width, method, low_bits, -random.below(65536 if random.below(2) else 200),
                1 + random.below(1 << random.below(25)) if method & log else 0, table=codes,
                exceptions={i: random.below(1 << 8 * width) for i in sorted(some(random, random.below(6), range(n)))},
                coders={"low": coder, "high": coder, "scales low": coder, "scales high": coder}, **scaled)
            if block.size() >= len(block.data):
                block, predicted_by = stored(block.data, width), None
            runs.append(Run([block], prediction=3, base=(1, second.index(predicted_by))) if predicted_by else Run([block]))
            data += block.data
        v.valid("quantised_random_%02d" % seed, "quantised", "random choices, seed %d" % seed, build(
            [Src(b"v", second), Run([stored(second)]), Src(b"q", data)] + runs))


def example_quantised(v):
    """Two rows of 12 elements."""
    symbols = [2, 2, 4, 2, 1, 2, 0, 2, 4, 2, 2, 1, 2, 4, 4, 2, 2, 2, 1, 2, 2, 4, 2, 2]
    block = quantised(symbols, 4, METHOD_LOG | METHOD_TABLE, 0, -1, 0x600000, table=[1, 2, 4], scales=[0x3580, 0x3680], group_size=12,
                      exceptions={8: 0x80000000})
    v.valid("example_quantised", "quantised", "worked example: a quantised block with Log and Table, two groups, an exception", build([
        Src(data=block.data, tensors=[T(b"v", b"F32", (2, 12), 0, 96, (1, 2, 0x30000000))]), Run([block])]))


def zeros_vectors(v):
    """Blocks of Layout 3: widths, orders, all forms of the lists; and what breaks a rule."""
    r = Random(17)
    values = [{2: 0x3FC0, 9: 0xC000}.get(i, 0) for i in range(12)]
    block = apart(values, 2, 2, [x > 0 for x in values], {(1, 0): raw, (1, 1): raw}, raw)
    v.valid("example_zeros", "zeros", "worked example: 12 elements, of which 10 are zeros", build([
        Src(data=block.data, tensors=[T(b"w", b"BF16", (12,), 0, 24)]), Run([block])]))

    def elements(n, width, part, order=2, negative=0):
        mask = [r.below(100) < part for _ in range(n)]
        sign = 1 << 8 * width - 1
        return [element(r, 100 + r.below(20), width) or 1 if bit else sign * (r.below(100) < negative) for bit in mask], mask

    for width in (1, 2, 4, 8):
        for order in (0, 1, 2):
            values, mask = elements(300, width, 40)
            v.valid("zeros_%d_%d" % (width, order), "zeros", "Width %d, Order %d" % (width, order), one(apart(values, width, order, mask)))
    values, mask = elements(700, 2, 50, negative=50)
    v.valid("zeros_negative", "zeros", "half of the zeros are -0: plane 0 has two values for them", one(apart(values, 2, 2, mask)))
    values, mask = elements(4000, 4, 2)
    v.valid("zeros_few", "zeros", "few elements that are not zero", one(apart(values, 4, 2, mask, {(1, 3): fitted}, fitted)))
    v.valid("zeros_none", "zeros", "all bits of Mask are 0", one(apart([0] * 33, 4, 2, [0] * 33)))
    v.valid("zeros_all", "zeros", "all bits of Mask are 1", one(apart([0x3F800000] * 33, 4, 2, [1] * 33)))
    values = [v_ for i in range(1024) for v_ in ((0, 0, 0x3C00 + i % 7, 0xBC01) if i % 3 else (0x3C00, 0, 0, 0x3D00 + i % 5))]
    v.valid("zeros_2_of_4", "zeros", "2 zeros in each 4 elements: Mask is a tree", one(apart(
        values, 2, 2, [x > 0 for x in values], {(1, 1): fitted, (1, 0): fitted}, fitted)))
    values, mask = elements(500, 2, 30)
    swapped = [not bit for bit in mask]
    v.valid("zeros_swapped", "zeros", "the zeros are the second kind", one(apart(values, 2, 2, swapped)))
    v.valid("zeros_any_mask", "zeros", "a Mask that has nothing to do with zeros", one(apart(
        [7 if i % 5 else 0x1234 for i in range(500)], 2, 1, [i % 5 == 0 for i in range(500)])))
    values, mask = elements(20, 2, 30)
    good = apart(values, 2, 2, mask)
    whole = join(good.payload)
    v.invalid("zeros_unused_bits", "Z-1", "an unused bit of Mask is set", "CORRUPT", one(apart(values, 2, 2, mask, mask_coder=raw, dirty=1)))
    constant_mask = apart([0] * 20, 2, 2, [1] * 20, mask_coder=lambda plane: [("Mode", b"\1"), ("constant", b"\xFF")])
    v.invalid("zeros_unused_bits_constant", "Z-1", "Mask is the constant FF, so unused bits are set", "CORRUPT", one(constant_mask))
    v.invalid("zeros_without_bit", "R3-12", "a block of Layout 3 in a file without bit 3 of Incompatible", "CORRUPT", one(good, bits=0))
    v.invalid("zeros_grouping", "R5-7", "a block of Layout 3 with a Grouping", "CORRUPT", one(good, bits=10, patch={"block0.0.Grouping": 16}))
    v.invalid("zeros_order", "R5-4", "a block of Layout 3 with Order 3", "UNSUPPORTED", one(good, patch={"block0.0.Coding": 0x63}))
    v.invalid("zeros_payload_crc", "R5-6", "a block of Layout 3 with a Payload_CRC", "CORRUPT", one(good, patch={"block0.0.Payload_CRC": crc(whole)}))
    v.invalid("zeros_predicted", "R5-7", "a block of Layout 3 with Predicted", "CORRUPT", build([
        Src(b"a", bytes(len(good.data))), Run([stored(bytes(len(good.data)))]), Src(b"b", good.data), Run([good], [(len(good.data), 1, 0)], prediction=3)],
        bits=10, patch={"block1.0.Coding": 0x66, "block1.0.Payload_CRC": crc(whole)}))
    short = Block(good.data, 2, 2, 3, [("the payload", whole[:-1])])
    v.invalid("zeros_short", "R2-7", "a payload of Layout 3 that ends early", "CORRUPT", one(short))
    v.invalid("zeros_long", "R5-11", "a byte behind a payload of Layout 3", "CORRUPT", one(Block(good.data, 2, 2, 3, [("the payload", whole + b"\0")])))
    v.invalid("zeros_empty_kind", "R5-11", "a list for a kind without elements", "CORRUPT", one(Block(bytes(40), 2, 2, 3, [
        ("Mask", b"\1\0"), ("planes", b"\1\0\1\0" * 2)])))
    v.invalid("zeros_mode", "R6-1", "Mask is a list of Mode 4", "CORRUPT", one(Block(good.data, 2, 2, 3, [("the payload", b"\4" + whole[1:])])))


def matrix_vectors(v):
    """Blocks of Layout 4: widths, orders, forms of rows and of residuals; and what breaks a rule."""
    r = Random(23)
    rows, columns = [0x77, 0x79, 0x76, 0x77], [2, 0, 1, 0, 4, 0, 0, 1]
    block = matrix([(rows[i // 8] + columns[i % 8] << 7) + 2 for i in range(2, 26)], 2, 8, 2, 7, rows, columns, columns_coder=raw, low_coder=raw)
    v.valid("example_matrix", "matrix", "worked example: 24 elements of a matrix with rows of 8", build([
        Src(data=block.data, tensors=[T(b"v", b"BF16", (24,), 0, 48)]), Run([block])]))

    def draw_matrix(n, width, row_size, first, shift, most=400, noise=4, **options):
        """Elements near the sums of drawn numbers."""
        room = (1 << 8 * width - shift) - 1
        columns = [r.below(min(room // 2, 40) + 1) for _ in range(row_size)]
        rows = [r.below(min(room - max(columns), most) + 1) for _ in range((first + n - 1) // row_size + 1)]
        sums = [rows[i // row_size] + columns[i % row_size] << shift for i in range(first, first + n)]
        elements = [x + r.below(2 * noise + 1) - noise & (1 << 8 * width) - 1 for x in sums]
        block = matrix(elements, width, row_size, first, shift, rows, columns, **options)
        assert block.size() < n * width
        return block

    for width in (1, 2, 4, 8):
        for order in (1, 2):
            v.valid("matrix_%d_%d" % (width, order), "matrix", "Width %d, Order %d" % (width, order), one(
                draw_matrix(600, width, 20, 7, 8 * width - 7, noise=1, order=order)))
    for name, what, n, row_size, first in (("whole", "whole rows", 200, 20, 0), ("row", "one row, which is the block", 200, 200, 0),
                                           ("two_rows", "two rows, each of which has less than a row", 200, 200, 199),
                                           ("columns", "rows of one element", 200, 1, 0), ("short_rows", "rows of three elements", 301, 3, 2),
                                           ("tail", "the last row has one element", 201, 20, 0), ("head", "the first row has one element", 201, 20, 19)):
        v.valid("matrix_" + name, "matrix", what, one(draw_matrix(n, 4, row_size, first, 16)))
    full = matrix([0xFFFF, 0xFF00, 0x00FF, 0] * 20, 2, 4, 0, 0, [0xFF00] * 20, [255, 0, 255, 0])
    v.valid("matrix_largest", "matrix", "Shift 0, and the largest sum", one(full))
    top = matrix([1 << 15, 0] * 40, 2, 2, 0, 15, [0] * 40, [1, 0])
    v.valid("matrix_shift", "matrix", "Shift W - 1, and the largest sum, which is a sign", one(top))
    good = draw_matrix(60, 4, 20, 7, 16)
    whole = join(good.payload)

    def bad(name, rule, what, status="CORRUPT", block=None, **options):
        v.invalid("matrix_" + name, rule, what, status, one(block or good, **options))

    bad("row_size_zero", "M-1", "Row_Size 0", block=altered(good, Row_Size=0))
    bad("row_size_more", "M-1", "Row_Size n + 1", block=draw_matrix(60, 4, 61, 0, 16))
    bad("row_size_largest", "M-1", "Row_Size 2^32 - 1", block=altered(good, Row_Size=0xFFFFFFFF))
    bad("first", "M-2", "First is Row_Size", block=draw_matrix(60, 4, 20, 20, 16))
    bad("first_largest", "M-2", "First 2^32 - 1", block=altered(good, First=0xFFFFFFFF))
    bad("shift", "M-3", "Shift 32, Width 4", block=altered(matrix([5] * 60, 4, 20, 0, 0, [0] * 3, [0] * 20), Shift=32))
    bad("shift_largest", "M-3", "Shift 255", block=altered(good, Shift=255))
    bad("sum", "M-4", "the largest sum is 2^(W - s)", block=matrix([0] * 80, 2, 2, 0, 15, [0] * 40, [2, 0], low_coder=raw))
    bad("sum_of_none", "M-4", "the largest numbers are too large together, but no element has both", block=matrix(
        [0] * 29 + [0x100] + [0xFF00] * 29, 2, 30, 0, 8, [0, 255], [0] * 29 + [1]))
    bad("sum_high", "M-4", "the number of a row is 2^(W - s), as High says", block=altered(
        matrix([0] * 60, 2, 20, 0, 8, [0] * 3, [0] * 20), High=b"\1"))
    bad("without_bit", "R3-12", "a block of Layout 4 in a file without bit 4 of Incompatible", bits=0)
    bad("order", "R5-7", "a block of Layout 4 with Order 0", patch={"block0.0.Coding": 0x80})
    bad("order_3", "R5-4", "a block of Layout 4 with Order 3", "UNSUPPORTED", patch={"block0.0.Coding": 0x83})
    bad("grouping", "R5-7", "a block of Layout 4 with Grouping", patch={"block0.0.Grouping": 16}, bits=18)
    bad("payload_crc", "R5-6", "a block of Layout 4 with a Payload_CRC", patch={"block0.0.Payload_CRC": crc(whole)})
    bad("not_smaller", "R5-7", "a block of Layout 4 that is as long as its elements", block=Block(
        good.data, 4, 2, 4, [("the payload", whole + bytes(240 - len(whole)))]))
    v.invalid("matrix_predicted", "R5-7", "a block of Layout 4 with Predicted", "CORRUPT", build([
        Src(b"a", bytes(len(good.data))), Run([stored(bytes(len(good.data)))]), Src(b"b", good.data), Run([good], [(len(good.data), 1, 0)], prediction=3)],
        bits=18, patch={"block1.0.Coding": 0x86, "block1.0.Payload_CRC": crc(whole)}))
    for name, size in (("head", 8), ("low", 9), ("high", 9 + 4), ("end", len(whole) - 1)):
        bad("short_" + name, "R2-7", "a payload of Layout 4 that ends early: %s" % name, block=Block(good.data, 4, 2, 4, [("the payload", whole[:size])]))
    bad("long", "R5-11", "a byte behind a payload of Layout 4", block=Block(good.data, 4, 2, 4, [("the payload", whole + b"\0")]))
    bad("mode", "R6-1", "Low is a list of Mode 4", block=Block(good.data, 4, 2, 4, [("the payload", whole[:9] + b"\4" + whole[10:])]))
    wrong = bytearray(good.data)
    wrong[5] ^= 1
    bad("content", "R5-12", "another element", "CHECKSUM", block=Block(bytes(wrong), 4, 2, 4, good.payload))


def codes_vectors(v):
    """Blocks of Layout 5: every code of every Mantissa and dtype, forms of groups, roundings; and what breaks a rule."""
    r = Random(29)
    numbers = [(i if i % 2 else -i) & 255 for i in range(16)] + [1, 254, 0, 255, 2, 253, 3, 252]
    block = coded(numbers, 2, scales=[0x3FC00000, 0x3EC00000], codes_coder=raw)
    v.valid("example_codes", "codes", "worked example: 24 elements in groups of 16", build([
        Src(data=block.data, tensors=[T(b"w", b"BF16", (24,), 0, 48)]), Run([block])]))
    every = bytes(range(256))
    dtypes = (("f32", 4, 0), ("bf16", 2, 0), ("f16", 2, 1))
    for mantissa in range(2, 8):
        for dtype, width, half in dtypes:
            top = 0x6E000000 if not half else 0x40000000
            scales = [0x3F800000, 0x3B123456, 0x3DFFFFFF, 0x00800000, top, 0x33800001]
            v.valid("codes_%d_%s" % (mantissa, dtype), "codes", "Mantissa %d, %s: all codes" % (mantissa, dtype.upper()), one(
                coded(every * 2, width, mantissa, half, 43, 11, scales)))
    for name, what, n, size, first in (("whole", "whole groups", 64, 16, 16), ("first", "a group that began before the block", 64, 16, 1),
                                       ("one", "one group, which ends with the block", 64, 64, 64), ("less", "less than one group", 64, 65, 65),
                                       ("behind", "the second group has one element", 64, 63, 63), ("largest", "the largest Group_Size", 64, 2 ** 31 - 1, 2 ** 31 - 1),
                                       ("tail", "the last group has one element", 65, 16, 16), ("first_of_one", "a block of less than First_Group", 20, 30, 25)):
        v.valid("codes_" + name, "codes", what, one(coded(bytes(r.below(16) for _ in range(n)), 4, 7, 0, size, first, [0x3D000000 + 977 * i for i in range(9)])))
    ties = coded(every * 4, 2, 7, 0, 16, 16, [0x3F810000, 0x3F808000, 0x3F80FFFF, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x3FFF8000])
    v.valid("codes_ties", "codes", "products halfway between two BF16", one(ties))
    v.valid("codes_ties_f32", "codes", "products halfway between two F32", one(coded(every * 4, 4, 7, 0, 16, 16, [0x3F800001 + 2 * i for i in range(40)])))
    v.valid("codes_small_f16", "codes", "subnormal F16, and halves of them", one(coded(every * 2, 2, 3, 1, 16, 16, [0x33000000, 0x33800000, 0x32FFFFFF, 0x33400000])))
    good = coded(bytes(r.below(256) for _ in range(100)), 4, 3, 0, 16, 5, [0x3D000000, 0x3E123456])
    half = coded(bytes(r.below(256) for _ in range(100)), 2, 3, 0, 40, 5, [0x3D000000, 0x3E100000])
    whole = join(good.payload)

    def bad(name, rule, what, status="CORRUPT", block=None, **options):
        v.invalid("codes_" + name, rule, what, status, one(block or good, **options))

    for mantissa in (0, 1, 8, 255):
        bad("mantissa_%d" % mantissa, "K-1", "Mantissa %d" % mantissa, block=altered(good, Mantissa=mantissa))
    bad("half_f32", "K-2", "Half with Width 4", block=altered(good, Half=1))
    bad("half_2", "K-2", "Half 2", block=altered(half, Half=2))
    bad("group_size_0", "K-3", "Group_Size 0", block=altered(good, Group_Size=0))
    bad("group_size_15", "K-3", "Group_Size 15", block=coded(bytes(90), 4, 3, 0, 15, 15))
    bad("group_size_largest", "K-3", "Group_Size 2^31", block=coded(bytes(90), 4, 3, 0, 2 ** 31, 100))
    bad("first_group_0", "K-4", "First_Group 0", block=coded(bytes(96), 4, 3, 0, 16, 0))
    bad("first_group_more", "K-4", "First_Group is Group_Size + 1", block=coded(bytes(97), 4, 3, 0, 16, 17))
    bad("first_group_largest", "K-4", "First_Group 2^32 - 1", block=altered(good, First_Group=0xFFFFFFFF))
    for name, scale in (("0", 0), ("least", 0x007FFFFF), ("most", 0x6E000001), ("infinity", 0x7F800000), ("negative", 0xBF800000)):
        bad("scale_" + name, "K-5", "the second of three scales is %08X" % scale, block=coded(bytes(48), 4, 3, 0, 16, 16, [0x3F800000, scale, 0x3F800000]))
    bad("without_bit", "R3-12 R5-4", "a block of Layout 5 in a file without bit 5 of Incompatible", ["CORRUPT", "UNSUPPORTED"], bits=0)
    bad("order", "R5-7", "a block of Layout 5 with Order 1", patch={"block0.0.Coding": 0xA1})
    bad("order_3", "R5-4", "a block of Layout 5 with Order 3", "UNSUPPORTED", patch={"block0.0.Coding": 0xA3})
    bad("grouping", "R5-7", "a block of Layout 5 with Grouping", patch={"block0.0.Grouping": 16}, bits=34)
    bad("payload_crc", "R5-6", "a block of Layout 5 with a Payload_CRC", patch={"block0.0.Payload_CRC": crc(whole)})
    for width in (1, 8):
        bad("width_%d" % width, "R5-7", "a block of Layout 5 with Width %d" % width, block=Block(good.data, width, 0, 5, good.payload))
    bad("not_smaller", "R5-7", "a block of Layout 5 that is as long as its elements", block=Block(
        good.data, 4, 0, 5, [("the payload", whole + bytes(400 - len(whole)))]))
    v.invalid("codes_predicted", "R5-7", "a block of Layout 5 with Predicted", "CORRUPT", build([
        Src(b"a", bytes(len(good.data))), Run([stored(bytes(len(good.data)))]), Src(b"b", good.data), Run([good], [(len(good.data), 1, 0)], prediction=3)],
        bits=34, patch={"block1.0.Coding": 0xA4, "block1.0.Payload_CRC": crc(whole)}))
    for name, size in (("head", 9), ("scales", 10), ("end", len(whole) - 1)):
        bad("short_" + name, "R2-7", "a payload of Layout 5 that ends early: %s" % name, block=Block(good.data, 4, 0, 5, [("the payload", whole[:size])]))
    bad("long", "R5-11", "a byte behind a payload of Layout 5", block=Block(good.data, 4, 0, 5, [("the payload", whole + b"\0")]))
    bad("mode", "R6-1", "the first list of Scales has Mode 4", block=Block(good.data, 4, 0, 5, [("the payload", whole[:10] + b"\4" + whole[11:])]))
    wrong = bytearray(good.data)
    wrong[5] ^= 1
    bad("content", "R5-12", "another element", "CHECKSUM", block=Block(bytes(wrong), 4, 0, 5, good.payload))


def more_examples(v):
    """Two files of one section, names by references, a header as text; and a mask as gaps."""
    def file(path, layer, data, **first):
        f = safetensors_of([T(b"layer.%d.up" % layer, b"BF16", (2, 1), 0, 4, **first), T(b"layer.%d.down" % layer, b"BF16", (2, 1), 4, 4, back=1,
            like=True)], data)
        return Src(path, f.data, f.tensors)

    bf16 = lambda *values: b"".join(struct.pack("<f", value)[2:] for value in values)
    a = file(b"model-1", 0, bf16(1.0, -0.5, 0.25, 2.0))
    b = file(b"model-2", 1, bf16(1.5, -1.0, 0.5, 4.0), back=2, like=True)
    text = {f: len(f.data) - 8 - 10 for f in (a, b)}
    assert all(text[f] == len(header_text(f)) for f in (a, b))
    segments = [(9, 0, 0), (text[a], 1, 0), (18, 0, 0), (text[b], 2, 0), (9, 0, 0)]
    prediction = prediction_of(Run([], prediction=2), segments, [a, b], None)
    v.valid("example_text", "4.3", "worked example: two files of a section, names by references, headers as text", build([Group(a, b), Run(
        [predicted(a.data + b.data, prediction, 1, 1)], segments, prediction=2), Section(b"note", b"hello")], [(b"lmc.writer", b"by hand")],
        extra=record(2, b"skip")))
    old = b"\x80\x3f" * 400
    new = pack([0x3F80 + {9: 1, 40: -1, 300: 2}.get(i, 0) for i in range(400)], 2)
    v.valid("example_gaps", "6.3", "worked example: 400 elements, three of which differ from another file's; a mask as gaps", build([
        Src(b"a", old), Run([planes([b"\x80" * 400, b"\x3f" * 400])]), Src(b"b", new), own_run(
            new, [(800, 1, 0)], sources=[Src(data=old)], sparse=True, masks=nested_masks(gap_mode(5)), coders={0: raw})]))


def invalid_vectors(v):
    r = Random(2)

    def simple(patch, **options):
        """A file with a mode, two tensors, two runs, metadata; then an empty one."""
        data = b"0123456789ABCDEF"
        return build([Src(b"w.bin", data, [T(b"a", b"F32", (2,), 0, 8), T(b"b", b"BF16", (2, 1), 8, 4)], mode=0o644, mtime=(1700000000, 5)),
                      Run([stored(data[:12], 4)]), Run([stored(data[12:], 2)]), Src(b"empty")],
                     metadata=[(b"format", b"pt"), (b"titles", b"x")], patch=patch, **options)

    def bad(name, rule, what, status, patch, **options):
        v.invalid(name, rule, what, status, simple(patch, **options))

    def bad_file(name, rule, what, status, items, patch=None, **options):
        v.invalid(name, rule, what, status, build(items, patch=patch, **options))

    plus = lambda k: lambda value: value + k
    flip = lambda value: value ^ 1
    flip_byte = lambda at: lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

    invalid_sections(v, simple)
    # 3
    good = bytes(simple({}).out)
    v.invalid("empty_input", "R3-1", "Magic: the input is empty", "NOT_LMC", b"")
    bad("magic", "R3-1", "Magic", "NOT_LMC", {"header.Magic": b"\x95LMD\r\n\x1a\n"})
    bad("magic_text_mode", "R3-1", "Magic: CR LF became LF", "NOT_LMC", {"header.Magic": b"\x95LMC\n\x1a\n\0"})
    bad("magic_of_trailer", "R3-1", "Magic: that of the trailer", "NOT_LMC", {"header.Magic": b"\x94LMC\r\n\x1a\n"})
    bad("magic_last_byte", "R3-1", "Magic: only its last byte is wrong", "NOT_LMC", {"header.Magic": b"\x95LMC\r\n\x1a\r"})
    v.invalid("no_lmc_file", "R3-1", "Magic: a file of another kind", "NOT_LMC",
        b"#!/bin/sh\necho this is not an LMC file, though long enough to be one; its first bytes say so.\n" * 3)
    for major in (0, 2, 255):
        bad("version_major_%d" % major, "R3-2", "Format_Major %d" % major, "VERSION", {"header.Format_Major": major})
    bad("version_before_crc", "R3-2", "order of the checks: a version whose header has another CRC", "VERSION",
        {"header.Format_Major": 200, "header.Header_CRC": 0})
    bad("header_crc", "R3-4", "Header_CRC", "CHECKSUM", {"header.Header_CRC": flip})
    for algorithm in (0, 2, 255):
        bad("algorithm_%d" % algorithm, "R3-6", "Algorithm %d" % algorithm, "UNSUPPORTED", {"header.Algorithm": algorithm})
    for bit in (6, 31, 32, 47, 48, 63):
        bad("incompatible_bit_%d" % bit, "R3-8", "Incompatible bit %d" % bit, "UNSUPPORTED", {"header.Incompatible": 1 << bit})
    for at in range(5):
        bad("header_reserved_%d" % (11 + at), "R3-7", "reserved byte %d of the header" % (11 + at), "UNSUPPORTED", {
            "header.Reserved": bytes(at) + b"\1" + bytes(4 - at)})
    for at in (0, 5, 11):
        bad("header_reserved_%d" % (48 + at), "R3-11", "reserved byte %d of the header" % (48 + at), "UNSUPPORTED", {
            "header.Reserved_2": bytes(at) + b"\x80" + bytes(11 - at)})
    bad("base_bit_without_base", "R3-10", "Incompatible bit 0, Base_Fingerprint is zero", "CORRUPT", {"header.Incompatible": 1})
    for at in (0, 15):
        bad("base_without_bit_%d" % at, "R3-10", "Base_Fingerprint is not zero, in its byte %d; Incompatible bit 0 is zero" % at, "CORRUPT", {
            "header.Base_Fingerprint": bytes(at) + b"\1" + bytes(15 - at)})
    bad("base_missing", "R7-1", "the file has a base, and none is given", "BASE_MISSING", {
        "header.Base_Fingerprint": bytes(15) + b"\1", "header.Incompatible": 1})
    # 4
    bad("section_head_crc", "R4-1", "Head_CRC", "CHECKSUM", {"run0.Head_CRC": flip})
    bad("section_body_crc_file", "R4-6", "Body_CRC of a FILE", "CHECKSUM", {"files0.Body_CRC": flip})
    bad("section_body_crc_run", "R4-6", "Body_CRC of a RUN", "CHECKSUM", {"run1.Body_CRC": flip})
    bad("section_body_crc_index", "R4-6", "Body_CRC of the index", "CHECKSUM", {"index.Body_CRC": flip})
    for name, kind in (("data", b"DATA"), ("file", b"FILe"), ("run", b"Run "), ("run_lower", b"RUn "), ("index", b"INDx"), ("run0", b"RUN0"), ("x",
        b"X   ")):
        bad("section_kind_critical_" + name, "R4-3", "an unknown critical Kind, \"%s\"" % kind.decode(), "UNSUPPORTED", {"run1.Kind": kind})
    for name, kind in (("zero", b"RUN\0"), ("zeros", bytes(4)), ("digit", b"1RUN"), ("space", b" RUN"), ("dash", b"RUN-"), ("underscore", b"RUN_"),
                       ("high", b"RUN\xc0"), ("sync", b"\xb2RUN"), ("brace", b"fi{e"), ("at", b"@ILE"), ("bracket", b"INDX"[:3] + b"["),
                       ("backquote", b"`ile"), ("colon", b"not:"), ("slash", b"not/")):
        bad("section_kind_" + name, "R4-2", "a bad character in Kind, %r" % kind, "CORRUPT", {"run1.Kind": kind})
    for owner, name in (("files0", "file"), ("run0", "run"), ("index", "index")):
        # what follows is an extension record
        bad("section_body_longer_" + name, "R4-7 R2-6", "a body with a byte too many", "CORRUPT", {owner + ".Extra": b"\0"})
    bad("section_body_shorter_file", "R4-8 R4-7", "N_Tensors counts one more than there are", "CORRUPT", {"file1.N_Tensors": 1})
    bad("section_body_empty_file", "R2-6", "an empty FILE body", "CORRUPT", {"files1.N_Files": b"", "file1.Form": b"", "file1.Path_Prefix": b"",
        "file1.Path_Rest_Size": b"", "file1.Path_Rest": b"", "file1.File_Size": b"", "file1.N_Tensors": b""})
    bad("section_body_empty_run", "R2-6", "an empty RUN body", "CORRUPT", {"run1." + f: b"" for f in (
        "Run_Size", "Block_Size", "Prediction")})
    for field in ("Prediction", "Block_Size"):
        fields = ("Run_Size", "Block_Size", "Prediction")
        bad("section_body_ends_run_%s" % field.lower(), "R2-6", "a RUN body that ends before %s" % field, "CORRUPT", {
            "run1." + f: b"" for f in fields[fields.index(field):]})
    bad("section_body_ends_file_tensors", "R2-6", "a FILE body that ends before N_Tensors", "CORRUPT", {"file1.N_Tensors": b""})
    bad("section_body_ends_index", "R2-6", "an INDX body that ends within the metadata", "CORRUPT", {"metadata1.Value": b""})
    bad("section_too_large", "R4-5", "Body_Size 2^40 + 1", ["CORRUPT", "LIMIT"], {"index.Body_Size": (1 << 40) + 1})
    bad("section_largest_missing", "R4-5 R4-6", "Body_Size 2^40, but the input ends: nothing may be allocated for it", ["TRUNCATED", "LIMIT"],
        {"index.Body_Size": 1 << 40})
    bad("section_size_overflow", "R4-5", "Body_Size 2^64 - 1", ["CORRUPT", "LIMIT"], {"files0.Body_Size": UNKNOWN})
    # 4.1
    bad("file_size_too_large", "R4-19", "File_Size 2^63", "CORRUPT", {"file0.File_Size": 1 << 63})
    bad("file_size_huge", "R4-19", "File_Size 2^64 - 1", "CORRUPT", {"file1.File_Size": UNKNOWN})
    for bit in (4, 5, 6, 7):
        bad("file_form_bit_%d" % bit, "R4-15", "Form of a file: reserved bit %d" % bit, "UNSUPPORTED", {"file1.Form": 1 << bit})
    bad_file("directory_unknown_size", "R4-16", "Form of a file: Directory and Unknown", "CORRUPT", [Src(b"d", kind=1, size=UNKNOWN)])
    bad_file("directory_unknown_size_index", "R4-16", "the same, and no File_Size in the index", "CORRUPT", [Src(b"d", kind=1, size=UNKNOWN)], {
        "entry0.File_Size": b""})
    bad("file_mode", "R4-20", "Mode 0o10000", "CORRUPT", {"file0.Mode": 0o10000})
    bad("file_mode_huge", "R4-20", "Mode 2^32 + 0o644", "CORRUPT", {"file0.Mode": (1 << 32) + 0o644})
    bad("file_nanoseconds", "R4-21", "Mtime_Nanoseconds 10^9", "CORRUPT", {"file0.Mtime_Nanoseconds": 10**9})
    bad_file("path_too_long", "R4-18", "a Path of 65,536 bytes", "CORRUPT", [Src(b"p" * 65536)])
    bad("path_beyond", "R2-6", "Path_Rest_Size beyond the body", "CORRUPT", {"file1.Path_Rest_Size": 60000})
    bad("path_size_huge", "R4-18", "Path_Rest_Size 2^64 - 1", "CORRUPT", {"file1.Path_Rest_Size": UNKNOWN})
    for name, count, rules in (("too_many", (1 << 28) + 1, None), ("most", 1 << 28, "R4-8"), ("huge", UNKNOWN, None), ("one_more", 3, "R4-8 R2-6")):
        bad("tensors_" + name, rules or "R4-22", "N_Tensors %d: the body cannot hold them" % count, "CORRUPT", {"file0.N_Tensors": count})
        bad("files_" + name, rules or "R4-14", "N_Files %d: the body cannot hold them" % count, "CORRUPT", {"files0.N_Files": count})
    bad_file("directory_with_run", "R4-11", "a directory with a run", "CORRUPT", [Src(b"d", b"x", kind=1, size=0), Run([stored(b"x")])],
             {"entry0.File_CRC": 0})
    for name, path in (("absolute", b"/etc/passwd"), ("trailing_slash", b"a/"), ("slash", b"/"), ("empty_component", b"a//b"), ("dot", b"."),
        ("dot_inside", b"a/./b"),
                       ("dotdot", b".."), ("dotdot_start", b"../x"), ("dotdot_inside", b"a/../../b"), ("dotdot_end", b"a/.."),
                       ("zero_byte", b"a\0b"), ("zero_byte_end", b"a\0")):
        bad_file("path_" + name, "R2-3" if b"\0" in path else "R4-23", "Path %s" % json.dumps(path.decode()), "CORRUPT", [Src(path, b"x"), Run([stored(b"x")])])
    bad_file("path_empty_first", "R4-24", "an empty Path, then another file", "CORRUPT", [Src(b""), Src(b"b")])
    bad_file("path_empty_second", "R4-24", "a file, then an empty Path", "CORRUPT", [Src(b"a"), Src(b"")])
    bad_file("path_twice", "R4-25", "two files of the same Path", "CORRUPT",
        [Src(b"a", b"1"), Run([stored(b"1")]), Src(b"b"), Src(b"a", b"2"), Run([stored(b"2")])])
    for name, paths in (("", (b"a", b"a/b")), ("_deep", (b"a/b", b"a/b/c/d")), ("_other_order", (b"a/b", b"a")), ("_apart", (b"a", b"a-", b"a.b", b"a/b")),
                        ("_of_three", (b"x/y/z", b"x/y-", b"x"))):
        bad_file("path_below_file" + name, "R4-26", "a file below a file: %s" % ", ".join(path.decode() for path in paths), "CORRUPT", [
            Src(path) for path in paths])
        bad_file("path_below_file_group" + name, "R4-26", "the same in one section", "CORRUPT", [Group(*[Src(path) for path in paths])])
    bad_file("path_below_file_directory", "R4-26", "a directory below a file", "CORRUPT", [Src(b"a"), Src(b"a/b", kind=1)])
    bad_file("path_twice_directory", "R4-25", "a file and a directory of the same Path", "CORRUPT", [Src(b"a"), Src(b"a", kind=1)])

    def bad_tensors(name, rule, what, tensors, patch=None, status="CORRUPT", data=b"0123456789ABCDEF"):
        # Entries that point outside get the fingerprint of the bytes that are there.
        bad_file("tensor_" + name, rule, what, status, [Src(b"f", data, tensors), Run([stored(data)])], patch)

    bad_tensors("beyond_file", "R4-40", "end after File_Size", [T(b"a", b"U8", (4,), 13, 4)])
    bad_tensors("offset_beyond_file", "R4-40", "an empty tensor after File_Size", [T(b"a", b"U8", (0,), 17, 0)])
    bad_tensors("end_overflow", "R4-40", "Gap + Size = 2^64", [T(b"a", b"??", (1,), 8, UNKNOWN - 7)])
    bad_tensors("ends_overflow", "R4-40", "the sum of two Sizes is 2^64 + 1", [T(b"a", b"??", (1,), 0, (1 << 63) - 1), T(
        b"b", b"??", (1,), (1 << 63) - 1, (1 << 63) - 1), T(b"c", b"U8", (3,), UNKNOWN - 1, 3)])
    bad_tensors("size_huge", "R4-40", "Size 2^63 of an unknown Dtype", [T(b"a", b"??", (1,), 0, 1 << 63)])
    bad_tensors("gap_overflow", "R4-40", "Gap 2^64 - 1: modulo 2^64 the tensor overlaps the one before", [T(b"a", b"U8", (4,), 0, 4), T(
        b"b", b"U8", (2,), 3, 2)])
    bad_tensors("gap_0", "R4-33", "Gap 0", [T(b"a", b"U8", (4,), 0, 4)], {"tensor0.0.Form": 2, "tensor0.0.Middle": b"a\0"})
    bad_tensors("same_name", "R4-41", "two tensors of the same Name", [T(b"a", b"U8", (1,), 0, 1), T(b"b", b"U8", (1,), 1, 1), T(b"a", b"U8", (1,), 2, 1)])
    bad_tensors("same_empty_name", "R4-41", "two tensors of empty Name", [T(b"", b"U8", (1,), 0, 1), T(b"", b"U8", (1,), 1, 1)])
    bad_tensors("name_zero_byte", "R2-3", "zero byte in a Name", [T(b"a\0", b"U8", (1,), 0, 1)])
    bad_tensors("dtype_zero_byte", "R2-3", "zero byte in a Dtype", [T(b"a", b"U8\0", (1,), 0, 1)])
    for number, dtype in enumerate(DTYPES, 1):
        size = {1: 8, 2: 4, 15: 16, 22: 64, 23: 4, 26: 2, 27: 128}.get(number)
        if size:
            bad_tensors("dtype_string_" + dtype.lower(), "R4-36", "Dtype %s as a string" % dtype, [T(b"a", dtype.encode(), (8,), 0, size)], {
                "tensor0.0.Dtype": bytes([0, len(dtype)]) + dtype.encode(), "tensor0.0.Shape0": varint(8) + varint(size)}, data=bytes(128))
    for number in (28, 29, 127, 255):
        bad_tensors("dtype_%d" % number, "R4-34", "Dtype number %d" % number, [T(b"a", b"U8", (1,), 0, 1)], {"tensor0.0.Dtype": number}, "UNSUPPORTED")
    for bit in range(3, 8):
        bad_tensors("form_bit_%d" % bit, "R4-29", "Form of a tensor: reserved bit %d" % bit, [T(b"a", b"U8", (1,), 0, 1)], {"tensor0.0.Form": 1 << bit},
                    "UNSUPPORTED")
    bad_tensors("dtype_empty", "R4-35", "Dtype_Size 0", [T(b"a", b"", (1,), 0, 1)])
    bad_tensors("dtype_too_long", "R4-35", "Dtype_Size 33", [T(b"a", b"D" * 33, (1,), 0, 1)])
    bad_tensors("rank", "R4-37", "Rank 33", [T(b"a", b"U8", (1,) * 33, 0, 1)])
    for generation, measure in ((0, 0), (0, 1), (0, 3), (1, 0), (255, 0), (0, 4)):
        what = "measure_%d_of_generation_%d" % (measure, generation)
        bad_tensors(what, "R4-38", what.replace("_", " ").capitalize(), [T(b"a", b"F32", (1,), 0, 4, (generation, measure, 5)), T(b"b", b"U8", (2,), 4, 2)])
    bad_tensors("error_missing", "R2-6", "Loss without an Error", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b""})
    bad_tensors("error_short", "R2-6", "an Error of 3 bytes", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b"abc"})
    bad_tensors("size_half_byte", "R4-39", "F4, three elements: no whole number of bytes", [T(b"a", b"F4", (3,), 0, 2)])
    bad_tensors("size_six_bits", "R4-39", "F6, two elements: no whole number of bytes", [T(b"a", b"F6_E2M3", (2,), 0, 1)])
    # all else is right for a tensor of that size
    for dtype, n, bits in ((b"F4", 3, 4), (b"F6_E3M2", 3, 6), (b"I4", 5, 4), (b"U4", 7, 4), (b"I2", 2, 2), (b"U2", 9, 2)):
        for way, size in (("down", n * bits // 8), ("up", n * bits // 8 + 1)):
            bad_tensors("size_%s_%s" % (dtype.decode().lower(), way), "R4-39", "%d bits, taken for %d bytes" % (n * bits, size), [
                T(b"a", dtype, (n,), 0, size), T(b"b", b"U8", (2,), size, 2)])
    for dtype, shape in ((b"U8", ((1 << 62) + 1, 4)), (b"F32", ((1 << 62) + 1,)), (b"F4", ((1 << 62) + 1, 8))):
        bad_tensors("shape_wraps_" + dtype.decode().lower(), "R4-39", "a Shape of 2^64 + 4 bytes, taken for 4", [
            T(b"a", dtype, shape, 0, 4), T(b"b", b"U8", (2,), 4, 2)])
    for name, dtype, shape in (("2_63", b"U8", (1 << 63,)), ("2_63_f32", b"F32", (1 << 61,)), ("2_128", b"U8", (UNKNOWN, UNKNOWN)),
                               ("rank_32", b"U64", (1 << 62,) * 32), ("f4", b"F4", (1 << 32, 1 << 32))):
        bad_tensors("shape_" + name, "R4-39", "a Size of 2^63 or more by its Shape %s" % (shape[:2],), [T(b"a", dtype, shape, 0, 0)])
    bad_tensors("shape_overflow", "R4-39", "a Shape whose product is 2^64, Size 0", [T(b"a", b"U8", (1 << 32, 1 << 32), 0, 0)])
    bad_tensors("bits_overflow", "R4-40", "a Shape whose product times Bits is 2^64, Size 0", [T(b"a", b"F32", (1 << 59,), 0, 0)])
    # 4.2
    bad("run_size", "R5-5", "Run_Size is one less than the run's block has", "CORRUPT", {"run1.Run_Size": 3})
    bad_file("run_empty", "R4-42", "Run_Size 0", "CORRUPT", [Src(b"f"), Run([])])
    bad_file("run_too_large", "R4-42", "Run_Size 2^63", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"run0.Run_Size": 1 << 63})
    bad_file("run_huge", "R4-42", "Run_Size 2^64 - 1", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"run0.Run_Size": UNKNOWN})
    for name, size in (("0", 0), ("1", 1), ("2_13", 1 << 13), ("2_23", 1 << 23), ("2_14_and_1", (1 << 14) + 1), ("3_2_13", 3 << 13), ("2_64", UNKNOWN)):
        bad("run_block_size_" + name, "R4-43", "Block_Size %d" % size, "UNSUPPORTED", {"run1.Block_Size": size})
    for prediction in (6, 255):
        bad("run_prediction_%d" % prediction, "R4-44", "Prediction %d of a RUN" % prediction, "UNSUPPORTED", {"run1.Prediction": prediction})
    bad_file("run_blocks_too_many", "R4-46", "N_Blocks 2^32", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {
        "run0.Run_Size": 1 << 46})
    bad_file("run_blocks_most", "R2-5 R4-46 R5-1 R9-1", "2^32 - 1 blocks, but the input ends after one: nothing may be allocated for the others",
             ["TRUNCATED", "LIMIT"], [Src(b"f", bytes(16384), size=UNKNOWN), Run([planes([bytes(16384)])])], {"run0.Run_Size": (1 << 46) - 16384},
             index=False, trailer=False)
    # 4
    bad_file("order_run_first", "R4-9", "a RUN before the first FILE", "CORRUPT", [Run([stored(b"x")]), Src(b"f", b"x")])
    bad_file("order_no_file", "R4-9", "no FILE", "CORRUPT", [])
    bad("order_no_index", "R4-9 R4-1", "no INDX", ["CHECKSUM", "CORRUPT", "TRUNCATED"], {}, index=False)
    for name, what, options in (
            ("no_blks", "an INDX, but no BLKS", {"blks": 0}), ("two_blks", "two BLKS", {"blks": 2}),
            ("ancillary_after_blks", "an ancillary section between BLKS and INDX", {"after_blks": [Section(b"note", b"late")]}),
            ("file_after_blks", "a FILE of an empty file between BLKS and INDX", {"after_blks": [Section(b"FILE", b"\1\0\0\1b\0\0")]})):
        bad_file("order_" + name, "R4-9 R4-10", what, "CORRUPT", [Src(b"a", b"aaaa"), Run([stored(b"aaaa")])], **options)
    two_files = lambda: [Src(b"a", b"aaaa"), Run([stored(b"aa")]), Src(b"b", b"bbbb"), Run([stored(b"bbbb")])]
    # each breaks one rule, and only this rule can find it
    for name, size, rule in (("more", 12, "R4-12"), ("less", 4, "R4-11")):
        bad_file("file_size_%s_than_runs" % name, rule, "File_Size is not what the runs have; the index has it right", "CORRUPT", [
            Src(b"f", b"abcdefgh", size=size), Run([stored(b"abcdefgh")])])
    two = [stored(bytes(100)), stored(bytes(16384))]
    bad_file("blocks_swapped_sizes", "R5-5", "the last block is full, another is not; the sum is right", "CORRUPT", [Src(data=bytes(16484)), Run(two)])
    bad_file("blocks_of_half_size", "R5-5", "two blocks of half a block's size", "CORRUPT", [Src(data=bytes(16384)), Run([stored(bytes(8192))] * 2)])
    bad_file("order_incomplete_file", "R4-12", "a file that is not complete when the next starts", "CORRUPT", two_files())
    bad_file("order_incomplete_last", "R4-12", "a file that is not complete when the index starts", "CORRUPT",
        [Src(b"a", b"aaaa"), Run([stored(b"aa")])])
    bad_file("run_beyond_file", "R4-11", "a run that ends after its file", "CORRUPT", [Src(b"a", b"abcd", size=3), Run([stored(b"abcd")])])
    bad_file("run_second_beyond_file", "R4-11", "a second run of a file that is complete", "CORRUPT", [
        Src(b"a", b"abcd"), Run([stored(b"abcd")]), Run([stored(b"d")])])
    bad_file("run_into_next_file", "R4-11", "a run that has the bytes of this file and the next", "CORRUPT", [
        Src(b"a", b"ab"), Run([stored(b"abcd")]), Src(b"b", b"cd")])
    bad_file("order_missing_run", "R4-12", "a file without any run", "CORRUPT", [Src(b"a", b"aaaa")])
    # 5
    lists = [r.data(40), b"\3" * 40]
    two_planes = lambda payload=None, change=None: Block(planes(lists).data, 2, 0, 1, payload or planes(lists).payload)

    def bad_block(name, rule, what, status, patch, block=None):
        v.invalid("block_" + name, rule, what, status, one(block or two_planes(), patch=patch and {"block0.0." + k: x for k, x in patch.items()}))

    bad_block("sync", "R5-2", "Sync", "CORRUPT", {"Sync": 0xB0})
    bad_block("header_crc", "R5-3", "Header_CRC", "CHECKSUM", {"Header_CRC": flip})
    bad_block("header_crc_without_position", "R5-3", "Header_CRC taken without the Position", "CHECKSUM",
              {"Header_CRC": lambda old: crc(struct.pack("<BBBBIIII", 0xB2, 2, 0x20, 0, 40, 43, crc(planes(lists).data), 0))})
    swapped = [stored(bytes([i]) * 16384) for i in range(2)]
    bad_file("block_position", "R5-3", "two blocks of a run in each other's place", "CHECKSUM", [Src(data=b"".join(b.data for b in swapped)), Run([
        planes([b.data]) for b in swapped])], {"block0.0.Number": 1, "block0.1.Number": 0})
    for width in (0, 3, 5, 6, 7, 9, 16, 18, 32, 255):
        bad_block("width_%d" % width, "R5-4", "Width %d" % width, "UNSUPPORTED", {"Width": width})
    bad_block("order_3", "R5-4", "Order 3", "UNSUPPORTED", {"Coding": lambda c: c | 3})
    for bit in (3, 4):
        bad_block("coding_bit_%d" % bit, "R5-4", "reserved bit %d of Coding" % bit, "UNSUPPORTED", {"Coding": lambda c, bit=bit: c | 1 << bit})
    for layout in range(6, 8):
        bad_block("layout_%d" % layout, "R5-4", "Layout %d" % layout, "UNSUPPORTED", {"Coding": lambda c, layout=layout: c & 31 | layout << 5})
    bad_block("no_elements", "R5-5", "N_Elements 0", "CORRUPT", {"N_Elements": 0})
    bad_block("elements_less", "R5-5", "N_Elements one less than the run gives", "CORRUPT", {"N_Elements": 39})
    bad_block("elements_more", "R5-5", "N_Elements one more than the run gives", "CORRUPT", {"N_Elements": 41})
    bad_block("elements_overflow", "R5-5", "N_Elements 2^31 + 40: times width it is right modulo 2^32", "CORRUPT", {"N_Elements": (1 << 31) + 40})
    bad_block("width", "R5-5", "Width 4 where N_Elements fits 2", "CORRUPT", {"Width": 4})
    bad_block("content_crc", "R5-12", "Content_CRC", "CHECKSUM", {"Content_CRC": flip})
    damaged = two_planes()
    bad_block("content", "R5-12", "one bit of a raw plane is wrong", "CHECKSUM", {},
        two_planes([(n, flip_byte(0)(d) if i == 1 else d) for i, (n, d) in enumerate(damaged.payload)]))
    bad_block("stored_content", "R5-12", "one bit of a stored block is wrong", "CHECKSUM", {}, Block(b"abcd", payload=[("", b"abce")]))
    # 5, 5.1
    bad_block("stored_size_less", "R5-7", "a stored payload shorter than the elements", "CORRUPT", {}, Block(b"abcd", payload=[("", b"abc")]))
    bad_block("stored_size_more", "R5-7", "a stored payload longer than the elements", "CORRUPT", {}, Block(b"abcd", payload=[("", b"abcde")]))
    for order in (1, 2):
        bad_block("stored_order_%d" % order, "R5-7", "a stored block of Order %d" % order, "CORRUPT", {}, Block(b"abcd", 2, order))
    for name, grouping in (("classes", 1), ("sparse", 16), ("natural", 33)):
        v.invalid("block_%s_unpredicted" % name, "R5-7", "Grouping %d of planes that are not Predicted" % grouping, "CORRUPT",
                  one(two_planes(), bits=2, patch={"block0.0.Grouping": grouping}))
    bad_block("payload_huge", "R5-7", "Payload_Size 2^32 - 1", "CORRUPT", {"Payload_Size": 0xFFFFFFFF})
    same = plane_block(b"\7" * 2, constant)
    bad_block("planes_not_smaller", "R5-7", "planes that take as many bytes as the elements", "CORRUPT", {}, same)
    bad_block("planes_larger", "R5-7", "planes that take more bytes than the elements", "CORRUPT", {}, planes([lists[0]]))
    bad_block("payload_longer", "R5-11", "a payload byte that no plane uses", "CORRUPT", {}, two_planes(damaged.payload + [("", b"\0")]))
    bad_block("payload_shorter", "R2-7", "the last plane is missing", "CORRUPT", {}, two_planes(damaged.payload[:-2]))
    bad_block("payload_shorter_value", "R2-7", "the last plane lacks its last byte", "CORRUPT", {}, two_planes(damaged.payload[:-1]))
    bad_block("payload_empty", "R2-7", "planes in an empty payload", "CORRUPT", {}, two_planes([("", b"")]))
    # 6
    def bad_plane(name, rule, what, coder, plane=None, status="CORRUPT", width=8):
        plane = plane if plane is not None else draw(r, {65: 1, 66: 2, 67: 2}, 60)
        v.invalid(name, rule, what, status, one(plane_block(plane, coder, width)))

    fine = {65: 1, 66: 2, 67: 2}
    for mode in (4, 5, 15, 16, 255):
        bad_plane("plane_mode_%d" % mode, "R6-1", "Mode %d of a plane" % mode, lambda plane, mode=mode: [("", bytes([mode]))] + tree(fine)(plane)[1:])
    bad_plane("tree_range", "R6-2", "First + Count = 257", tree(fine, first=254))
    bad_plane("tree_padding", "R6-3", "the unused high half is not zero", tree(fine, pad=1))
    bad_plane("tree_first_length", "R6-4", "the first length is zero", tree(fine, first=64, count_minus_1=3, fields=[0, 1, 2, 2]))
    bad_plane("tree_last_length", "R6-4", "the last length is zero", tree(fine, count_minus_1=3, fields=[1, 2, 2, 0]))
    bad_plane("tree_one_leaf", "R6-5", "one leaf", tree(fine, count_minus_1=0, fields=[1]))
    bad_plane("tree_incomplete", "R6-6", "the sum of 2^-length is less than 1", tree(fine, fields=[1, 2, 3]))
    bad_plane("tree_incomplete_little", "R6-6", "the sum of 2^-length is 1 - 2^-15",
        tree(merged({i: i + 1 for i in range(14)}, {14: 15, 15: 15}), count_minus_1=14, fields=list(range(1, 15)) + [15]),
        bytes(range(14)) * 5)
    bad_plane("tree_oversubscribed", "R6-6", "the sum of 2^-length is more than 1", tree(fine, fields=[1, 2, 1]))
    bad_plane("tree_oversubscribed_twice", "R6-6", "the sum of 2^-length is 2", tree(fine, count_minus_1=3, fields=[1, 1, 1, 1]))
    bad_plane("tree_escape_short", "R6-7", "the escape is shorter than another leaf", tree({65: 2, 66: 2}, 1, fields=[2, 2, 1]), b"AAxByBA" * 9)
    bad_plane("tree_escape_no_length", "R6-7", "Mode 3, the escape's length is zero", tree(fine, 0, fields=[1, 2, 2, 0]))
    bad_plane("tree_257_leaves", "R6-5", "256 symbols and the escape", tree(merged(even(range(256)), {255: 9}), 9, fields=[8] * 255 + [9, 9]),
        r.data(600))
    bad_plane("tree_header_ends", "R2-7", "the payload ends within the lengths", literal(b"\2", b"\0", b"\xff", bytes([0x88] * 20)), width=1)
    bad_plane("tree_mask_ends", "R2-7", "the payload ends within a mask", lambda plane: trimmed(tree(fine)(plane)), width=1)
    bad_plane("tree_flat_padding", "R2-2", "unused bits of a flat list are not zero", tree({i: 2 for i in range(4)}, dirty_flat=1),
        bytes([1] * 60 + [3]))
    bad_plane("tree_flat_ends", "R2-7", "the payload ends within a flat list", lambda plane: trimmed(tree({i: 2 for i in range(4)})(plane)),
        bytes([2] * 40), width=1)
    bad_plane("tree_escape_ends", "R2-7", "the payload ends within the escape's elements", lambda plane: trimmed(tree({65: 1}, 1)(plane)),
        b"A" * 50 + b"xyz", width=1)
    two = {0: 1, 1: 1}
    bad_plane("mask_padding_small", "R2-2", "unused bits of a mask of 61 bits are not zero", tree(two, masks=nested_masks((0, 1))), bytes(61))
    bad_plane("mask_padding_raw", "R2-2", "unused bits of a raw mask are not zero", tree(two, masks=nested_masks((0, 1))), bytes(301))
    bad_plane("mask_padding_nested", "R6-9", "unused bits of a nested mask are not zero", tree(two, masks=nested_masks((5, 1), 0)), bytes(301))
    bad_plane("mask_padding_polarity", "R6-9", "unused bits of a nested mask, polarity 1, are not zero after the complement",
        tree(two, masks=nested_masks((10, 1), 0)), b"\1" * 301)
    bad_plane("mask_padding_inner", "R2-2", "unused bits of a mask within a nested mask", tree(two, masks=nested_masks(5, (0, 1))),
        bytes([i % 40 == 0 for i in range(308)]))
    for mode in (65, 66, 127, 128, 255):
        bad_plane("mask_mode_%d" % mode, "R6-8", "Mode %d of a mask" % mode, tree(two, masks=nested_masks(mode)), bytes(300))
    for mode in (21, 22, 63, 64):
        bad_plane("mask_mode_tree_%d" % mode, "R6-8", "Mode %d, gaps, of a mask of a tree" % mode, tree(two, masks=nested_masks(mode)),
                  bytes([i % 30 == 0 for i in range(300)]))
    for mode in (21, 22, 63, 64, 65):
        bad_plane("mask_mode_inner_%d" % mode, "R6-8", "Mode %d of a mask within a nested mask" % mode, tree(two, masks=nested_masks(1, mode)),
                  bytes([i % 3 == 0 for i in range(2100)]), width=4)
    invalid_gaps(v)
    bad_plane("mask_ends", "R2-7", "the payload ends within a nested mask", lambda plane: trimmed(tree(two, masks=nested_masks(1))(plane)),
        bytes([i % 3 == 0 for i in range(300)]), width=1)
    # 7, 8
    bad("index_n_sections_more", "R8-5", "N_Sections one too many", "CORRUPT", {"index.N_Sections": plus(1)})
    bad("index_n_sections_less", "R8-5", "N_Sections one too few", "CORRUPT", {"index.N_Sections": plus(-1)})
    bad("index_n_sections_huge", "R8-5 R4-8", "N_Sections 2^32 - 1: nothing may be allocated for it", "CORRUPT", {"index.N_Sections": 0xFFFFFFFF})
    for name, at in (("magic", 0), ("minor", 9), ("compatible", 31), ("crc", 63)):
        bad("index_header_" + name, "R8-3", "the index has another File_Header: byte %d" % at, "CORRUPT", {"index.Header": flip_byte(at)})
    bad("index_fingerprint", "R8-4", "Snapshot_Fingerprint", "CORRUPT", {"index.Snapshot_Fingerprint": flip_byte(15)})
    bad("index_n_metadata_more", "R8-12 R2-6", "N_Metadata one too many", "CORRUPT", {"index.N_Metadata": 3})
    bad("index_n_metadata_less", "R8-12 R4-54", "N_Metadata one too few", "CORRUPT", {"index.N_Metadata": 1})
    bad("index_n_metadata_huge", "R4-8", "N_Metadata 2^32 - 1: nothing may be allocated for it", "CORRUPT", {"index.N_Metadata": 0xFFFFFFFF})
    bad("entry_stored_size", "R8-5 R8-8", "Stored_Sizes of two entries: one byte less, one more", "CORRUPT", {
        "entry0.Stored_Size": plus(-1), "entry1.Stored_Size": plus(1)})
    bad("entry_stored_size_sum", "R8-5 R8-6", "Stored_Size of the last entry: the sum is one more", "CORRUPT", {"entry3.Stored_Size": plus(1)})
    bad("entry_stored_size_run", "R8-5 R8-6 R8-8", "Stored_Size of a RUN: without its blocks", "CORRUPT", {"entry1.Stored_Size": 20 + 4})
    bad_file("entry_stored_size_files", "R8-5 R8-8", "Stored_Sizes of two FILEs: one byte more, one less; nothing stands behind them", "CORRUPT", [
        Src(b"a"), Src(b"b")], {"entry0.Stored_Size": plus(1), "entry1.Stored_Size": plus(-1)})
    bad_file("entry_stored_size_run_alone", "R8-5 R8-8", "Stored_Size of a RUN one less, that of an ancillary section behind it one more", "CORRUPT", [
        Src(b"a", b"a"), Run([stored(b"a")]), Section(b"note", b"text")], {"entry1.Stored_Size": plus(-1), "entry2.Stored_Size": plus(1)})
    bad("entry_kind", "R8-5 R8-7", "Kind of a RUN is FILE", "CORRUPT", {"entry1.Kind": b"FILE"})
    bad("entry_kind_ancillary", "R8-5", "Kind of a RUN is that of an ancillary section", "CORRUPT", {"entry1.Kind": b"run "})
    bad("entry_body_size", "R8-5", "Body_Size of a FILE one less: its last byte is taken for the next field", "CORRUPT", {"entry3.Body_Size": plus(-1)})
    bad("entry_body_path", "R8-5", "body of a FILE: the Path", "CORRUPT", {"entry0.Body": flip_byte(5)})
    bad("entry_body_run", "R8-5", "body of a RUN: Block_Size", "CORRUPT", {"entry1.Body": lambda body: body[:3] + b"\2" + body[4:]})
    v.invalid("entry_order", "R8-5", "entries in another order than the sections", "CORRUPT", build([Src(b"a"), Src(b"b")], entries=lambda told: told[::-1]))
    v.invalid("entry_of_blks", "R8-5 R8-7", "an entry of BLKS", "CORRUPT", build([Src(b"a")], entries=lambda told: told + [(Section(b"BLKS"), b"", 20)]))
    bad_file("entry_unknown_size", "R8-9", "File_Size differs from what came, FILE section: unknown", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": 2})
    bad_file("entry_still_unknown", "R8-9", "File_Size is still unknown in the index", "CORRUPT",
        [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": UNKNOWN})
    bad_file("entry_file_size_missing", "R8-9", "no File_Size, FILE section: unknown", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": b""})
    bad_file("entry_file_size_known", "R8-10", "File_Size in the index, FILE section: known", "CORRUPT", [Src(b"f", b"x"), Run([stored(b"x")])], {
        "entry0.File_CRC": struct.pack("<QI", 1, crc(b"x"))})
    bad_file("entry_directory_crc", "R8-10", "File_CRC of a directory", "CORRUPT", [Src(b"d", kind=1)], {"entry0.File_CRC": 1})
    bad("entry_file_crc", "R8-10", "File_CRC", "CORRUPT", {"entry0.File_CRC": flip})
    bad("entry_fingerprint_tensor", "R8-11", "fingerprint of a tensor", "CORRUPT", {"entry0.Fingerprint1": flip_byte(0)})
    bad("entry_fingerprint_file", "R8-11", "fingerprint of a file without tensors", "CORRUPT", {"entry3.Fingerprint0": flip_byte(9)})
    bad("row_size", "R8-2", "Size of a block", "CORRUPT", {"row0.Size": plus(1)})
    bad("row_crc", "R8-2", "Header_CRC of a block", "CORRUPT", {"row1.Header_CRC": flip})
    bad("rows_swapped", "R8-2", "two rows in each other's place", "CORRUPT", {"row0.Header_CRC": lambda crc_: b"", "row0.Size": lambda size: b"",
        "row1.Header_CRC": lambda crc_: struct.pack("<III", crc_, 24 + 12, 0)})
    bad("rows_less", "R8-1", "a row is missing", "CORRUPT", {"row1.Size": b"", "row1.Header_CRC": b""})
    bad("rows_more", "R8-1", "a row too many", "CORRUPT", {"blks.Extra": bytes(8)})
    bad("rows_records", "R8-1", "an extension record behind the rows", "CORRUPT", {"blks.Extra": record(2, b"x")})
    mine, other = (one(stored(data)) for data in (b"mine", b"that"))
    at = mine.out.index(b"mine") - 24
    v.invalid("entry_block_of_another_file", "R8-2", "a block of another file, of the same size and number, in place of the right one", "CORRUPT",
              bytes(mine.out[:at]) + bytes(other.out[at:at + 28]) + bytes(mine.out[at + 28:]))
    bad("metadata_order", "R8-14", "keys that do not ascend", "CORRUPT", {"metadata0.Key": b"zormat"})
    bad("metadata_same_key", "R8-14", "the same key twice", "CORRUPT", {"metadata0.Key": b"titles"})
    bad("metadata_no_key", "R8-13", "Key_Size 0", "CORRUPT", {"metadata0.Key": b"", "metadata0.Key_Size": 0})
    bad_file("metadata_key_too_long", "R8-13", "Key_Size 65,536", "CORRUPT", [Src(b"f")], metadata=[(b"k" * 65536, b"")])
    bad("metadata_zero_byte", "R2-3", "zero byte in a key", "CORRUPT", {"metadata0.Key": b"for\0at"})
    bad("metadata_value_huge", "R8-13", "Value_Size 2^28 + 1", ["CORRUPT", "LIMIT"], {"metadata1.Value_Size": (1 << 28) + 1})
    bad("metadata_value_longer", "R8-12 R2-6", "Value_Size beyond the body", "CORRUPT", {"metadata1.Value_Size": 2})
    bad("trailer_index_offset", "R3-20", "Index_Offset, the sum made right by Index_Size", "CORRUPT",
        {"trailer.Index_Offset": plus(1), "trailer.Index_Size": plus(-1)})
    bad("trailer_index_offset_overflow", "R3-20", "Index_Offset 2^64 - 1: the sum is right modulo 2^64", "CORRUPT", {
        "trailer.Index_Offset": UNKNOWN, "trailer.Index_Size": lambda size: len(good) - 40 + 1})
    bad("trailer_index_offset_alone", "R3-20", "Index_Offset only: Index_Size and Total_Size are right", "CORRUPT", {"trailer.Index_Offset": plus(-1)})
    bad("trailer_index_offset_section", "R3-20", "Index_Offset is that of BLKS, the sum made right by Index_Size", "CORRUPT", {
        "trailer.Index_Offset": lambda offset: simple({}).blks_offset, "trailer.Index_Size": lambda size: size + simple({}).index_offset - simple({}).blks_offset})
    for major in (0, 2, 255):
        bad("trailer_version_%d" % major, "R3-17", "Format_Major %d in the trailer" % major, "VERSION", {"trailer.Format_Major": major})
    bad("trailer_version_crc", "R3-16", "order of the checks: Format_Major 2 in a trailer of another CRC", "CHECKSUM", {
        "trailer.Format_Major": 2, "trailer.Trailer_CRC": 0})
    bad("trailer_index_size", "R3-21", "Index_Size", "CORRUPT", {"trailer.Index_Size": plus(-24)})
    bad("trailer_total_size", "R3-22", "Total_Size", "CORRUPT", {"trailer.Total_Size": plus(1)})
    bad("trailer_reserved", "R3-19", "first reserved byte of the trailer", "UNSUPPORTED", {"trailer.Reserved": 1})
    bad("trailer_reserved_second", "R3-19", "second reserved byte of the trailer", "UNSUPPORTED", {"trailer.Reserved": 1 << 8})
    bad("trailer_crc", "R3-16", "Trailer_CRC", "CHECKSUM", {"trailer.Trailer_CRC": flip})
    bad("trailer_end_magic", "R3-15", "End_Magic", ["CORRUPT", "TRUNCATED"], {"trailer.End_Magic": b"\x95LMC\r\n\x1a\n"})
    v.invalid("trailing_byte", "R3-22", "a byte after the trailer", ["CORRUPT", "TRUNCATED"], good + b"\0")
    v.invalid("trailing_file", "R3-22", "another LMC file after the trailer", "CORRUPT", good + good)
    # Plain damage
    marks = {1: "within Magic", 7: "within Magic", 8: "after Magic", 9: "after Format_Major", 10: "after the version", 63: "within the header",
             64: "after the header", 83: "within a section header", 84: "after a section header", 100: "within a FILE body"}
    b = simple({})
    ends = {}
    at = 0
    for note, data in b.notes:
        ends.setdefault(note, at + len(data))
        at += len(data)
    marks.update({ends["Run_Size"] + 1: "within a RUN body", ends["Sync"]: "within a block header",
                  ends["Payload_CRC"] + 4: "after a block header", ends["the bytes"] - 1: "within a payload", ends["N_Metadata"]: "within the index",
                  len(good) - 40: "before the trailer", len(good) - 8: "before End_Magic", len(good) - 1: "one byte missing"})
    for size, what in sorted(marks.items()):
        v.invalid("truncated_%04d" % size, "R2-5 R3-1 R3-3 R4-6 R4-9 R5-1 R5-9", "the input ends %s" % what, "NOT_LMC" if size < 8 else "TRUNCATED", good[:size])
    for at, status in ((4, "NOT_LMC"), (8, "VERSION"), (9, "CHECKSUM"), (20, "CHECKSUM"), (60, "CHECKSUM"), (66, "CHECKSUM"), (70, "CHECKSUM"),
                       (95, "CHECKSUM"),
                       (ends["the bytes"] - 3, "CHECKSUM"), (ends["N_Metadata"], "CHECKSUM"), (len(good) - 20, "CHECKSUM")):
        v.invalid("flipped_%04d" % at, "R3-1 R3-2 R3-4 R3-16 R4-1 R4-6 R5-12", "bit 4 of byte %d flipped" % at, status, flip_bit(good, at, 4))
    flat = bytes(v.builders["example_tree"].out)
    start = flat.index(b"\xb2\x02\x22")
    for at in range(start + 26, start + 44, 3):
        v.invalid("flipped_tree_%04d" % at, "R2-2 R5-12 R6-1 R6-6 R6-7", "a bit of a coded plane flipped", ["CORRUPT", "CHECKSUM"], flip_bit(flat, at, at % 8))


def invalid_gaps(v):
    """6.3: masks of a class as gaps. Predictions are zeros."""
    n = 300
    positions = [5, 100, 299]

    def bad(name, rule, what, s, parts, polarity=0, width=8, n=n):
        elements = pack([int((i in positions) != polarity) for i in range(n)], width)
        good = predicted(elements, bytes(len(elements)), width, 1, sparse=True, masks=nested_masks(gap_mode(s, polarity)))
        payload = [("mask, Mode", bytes([gap_mode(s, polarity)]))] + parts
        payload = payload[:-1] if parts[-1:] == [None] else payload + good.payload[len(gap_lists(positions, s)) + 1:]
        block = Block(elements, width, 1, 1, payload, good.base, good.grouping)
        v.invalid("mask_gaps_" + name, rule, what, "CORRUPT", build([Src(data=elements), Run([block], prediction=3)]))

    lists = gap_lists
    for polarity in (0, 1):
        end = "_polarity1" * polarity
        bad("k_0" + end, "R6-10", "K 0", 3, [("K", bytes(3))], polarity)
        bad("k_larger" + end, "R6-10", "K 301 of 300 bits", 0, lists(list(range(301)), 0), polarity)
        bad("k_huge" + end, "R6-10", "K 2^24 - 1", 0, lists(positions, 0, count=(1 << 24) - 1), polarity)
        bad("k_huge_s21" + end, "R6-10", "K 2^24 - 1, Shift 21: the list Low is beyond the payload", 21, lists(positions, 21, count=(1 << 24) - 1), polarity)
        for s in (0, 3, 8, 21):
            bad("position_n_s%d%s" % (s, end), "R6-10", "a position of n, Shift %d" % s, s, lists([5, 100, 300], s), polarity)
            bad("position_first_s%d%s" % (s, end), "R6-10", "the first position is n, Shift %d" % s, s, lists([300], s), polarity)
        for s, first in ((0, 10000), (3, 1 << 16), (8, 1 << 20), (20, 1 << 31), (21, 1 << 31)):
            bad("position_first_far_s%d%s" % (s, end), "R6-10", "the first position is %d, of 300 bits, Shift %d" % (first, s), s,
                lists([first], s), polarity)
        for s in (20, 21):
            bad("position_first_wraps_s%d%s" % (s, end), "R6-10", "all positions are 2^32 too large, Shift %d" % s, s,
                lists([(1 << 32) + p for p in positions], s), polarity)
            bad("position_later_wraps_s%d%s" % (s, end), "R6-10", "all positions but the first are 2^32 too large, Shift %d" % s, s,
                lists([(p > 5) << 32 | p for p in positions], s), polarity)
    bad("position_far", "R6-10", "a position of 2^22 - 1", 21, lists([5, (1 << 22) - 1], 21))
    bad("position_overflow", "R6-10", "gaps of 2^21 - 1 whose sum is more than 2^28", 21, lists([((i + 1) << 21) - 1 for i in range(200)], 21))
    bad("position_later_is_back", "R6-10", "a position beyond n, and others behind it", 3, lists([5, 700, 701, 702], 3))
    small = lambda s: lists(positions, s)
    bad("padding_low", "R2-2", "unused bits of Low are not zero", 3, [(note, data[:-1] + bytes([data[-1] | 128]) if note == "Low" else data) for note,
        data in small(3)])
    bad("padding_quotients", "R2-2", "unused bits of Quotients are not zero", 8, [
        (note, bytes([data[0] | 128]) if note == "Quotients" else data) for note, data in small(8)])
    bad("padding_next", "R2-2", "the first unused bit of Quotients is one: one too many", 8, lists(positions, 8, quotients=[1, 1, 1, 1][:3] + [1]))
    bad("quotients_longer", "R2-7", "a byte too many behind Quotients", 3, small(3) + [("", b"\0")])
    flat = join(small(3))
    ends = lambda name, rule, what, s, parts: bad(name, rule, what, s, parts + [None])
    for name, cut in (("k", 2), ("low", 4), ("before_quotients", 5), ("quotients", len(flat) - 1)):
        ends("ends_" + name, "R2-7", "the payload ends within a mask as gaps, after %d of its bytes" % cut, 3, [("", flat[:cut])])
    ends("ends_empty", "R2-7", "the payload ends after the Mode of a mask as gaps", 3, [])
    ends("quotients_zeros", "R2-7", "Quotients has zeros up to the end of the payload", 0, lists(positions, 0, quotients=[0] * 280))
    ends("quotients_too_few", "R6-10 R2-7", "Quotients has a one too few", 0, lists(positions, 0, count=4))


def invalid_fingerprints(v):
    """7: faults that other checks do not find."""
    good = bytes(v.builders["example_stored"].out)
    error = bytes.fromhex("F176EC0501")        # a multiple of CRC-32C's polynomial
    at = good.index(bytes.fromhex("803F00BF00004940"))
    for name, at in (("first", at), ("last", at + 3)):
        damaged = good[:at] + bytes(x ^ y for x, y in zip(good[at:], error)) + good[at + 5:]
        v.invalid("fingerprint_of_crc_collision_" + name, "R8-11", "an error of five bytes that no CRC-32C sees: the %s bytes of a tensor" % name,
            "CORRUPT", damaged)
    f = Src(b"x")
    d = Src(b"x", kind=1)
    for name, mine, other in (("file_as_directory", f, d), ("directory_as_file", d, f)):
        v.invalid("fingerprint_" + name, "R8-11", "the fingerprints are those of an empty %s \"x\"" % ("directory" if mine is f else "file"), "CORRUPT",
            build([mine], patch={
            "entry0.Fingerprint0": next(items_of([other]))[1], "index.Snapshot_Fingerprint": fingerprint_of_snapshot(items_of([other]))}))
    data = b"0123456789"
    mine, other = Src(b"x", data, [T(b"x", b"U8", (10,), 0, 10)]), Src(b"x", data)
    v.invalid("fingerprint_tensor_as_file", "R8-11", "the fingerprints are those of a file without tensors", "CORRUPT", build([mine, Run([stored(data)])],
        patch={
        "entry0.Fingerprint0": next(items_of([other]))[1], "index.Snapshot_Fingerprint": fingerprint_of_snapshot(items_of([other]))}))


def invalid_deltas(v, pool, chains, link):
    r = Random(7)
    base = chains[0]                           # a file of 300 bytes without a name
    old = base.items[0]
    new = weights(r, 0, 2, old)

    def delta(block, patch=None, base=base, **options):
        """A nameless file of one block, predicted by the first bytes of the base."""
        return build([Src(data=block.data), Run([block], prediction=1, base=(1, 0), **options)], base=base, patch=patch)

    def bad(name, rule, what, status, block, patch=None, **fields):
        """fields: of the block's header."""
        v.invalid(name, rule, what, status, delta(block, dict(patch or {}, **{"block0.0." + name: value for name, value in fields.items()})))

    def payload(block, *parts):
        return Block(block.data, block.width, block.order, 1, [("", part) for part in parts], block.base, block.grouping)

    plain = predicted(new, old, 2)
    classes = predicted(new, old, 2, thresholds=[112, 114, 116])
    sparse = predicted(new, old, 2, thresholds=[112, 114, 116], sparse=True)

    # 3: which base
    path = lambda name, data: [v.base("bases/" + name, data)]
    good = delta(plain)
    bit = flip_bit(old, 150, 3)
    v.invalid("base_missing_delta", "R7-1", "a delta, and no base", "BASE_MISSING", good, [])
    v.invalid("base_wrong", "R7-2", "the base is another file", "BASE_WRONG", good, pool.paths)
    v.invalid("base_wrong_several", "R7-2", "none of the bases is right", "BASE_WRONG", good,
              pool.paths + ["valid/chain_1.bin", "valid/example_stored.lmc"])
    v.invalid("base_wrong_next", "R7-2", "the base is the snapshot itself, as it should become", "BASE_WRONG", link(1, 0), ["valid/chain_1.bin"])
    v.invalid("base_wrong_bit", "R7-2", "one bit of the base has changed", "BASE_WRONG", good, path("wrong_bit.bin", bit))
    v.invalid("base_wrong_bit_lmc", "R7-2", "one bit of the base has changed before it was packed", "BASE_WRONG", good,
              path("wrong_bit.lmc", one(stored(bit, 2)).out))
    v.invalid("base_wrong_short", "R7-2", "the base lacks its last byte", "BASE_WRONG", good, path("wrong_short.bin", old[:-1]))
    v.invalid("base_wrong_long", "R7-2", "the base has a byte more", "BASE_WRONG", good, path("wrong_long.bin", old + b"\0"))
    named = build([Src(b"name", old), Run([stored(old)])])
    v.invalid("base_wrong_name", "R7-2", "the base has another name", "BASE_WRONG", good, path("wrong_name.lmc", named.out))
    whole = Src(data=old, tensors=[T(b"", b"BF16", (150,), 0, 300)])
    typed = build([whole, Run([stored(old)])])
    v.invalid("base_wrong_dtype", "R7-2", "the base is a tensor of another dtype", "BASE_WRONG", good, path("wrong_dtype.lmc", typed.out))
    damaged = flip_bit(bytes(one(stored(old, 2)).out), 300, 2)
    v.invalid("base_damaged", "R7-2 R7-3 R5-12", "the base is a damaged LMC file", ["CHECKSUM", "CORRUPT", "BASE_WRONG"], good, path("damaged.lmc", damaged))
    v.invalid("chain_missing", "R7-1 R7-2 R7-4", "the base is a delta, whose base is missing", ["BASE_MISSING", "BASE_WRONG"], link(2, 1), ["valid/chain_1.lmc"])
    v.invalid("chain_gap", "R7-2", "the base is missing, the base of the base is there", "BASE_WRONG", link(2, 1), ["valid/chain_0.lmc"])
    v.invalid("chain_wrong", "R7-4 R7-2", "the base is a delta, whose base is another file", "BASE_WRONG", link(2, 1),
              ["valid/chain_1.lmc", "bases/wrong_bit.bin"])
    # 4.2: runs
    zeros = predicted(bytes(40), bytes(40), 2)
    v.invalid("run_without_base", "R3-12", "Prediction 1 in a file without a base", "CORRUPT", build([Src(data=bytes(40)), Run([zeros], prediction=1)]))
    v.invalid("run_without_base_unused", "R3-12", "Prediction 1 in a file without a base; no block is Predicted", "CORRUPT", build([
        Src(data=bytes(40)), Run([planes([bytes(40)])], prediction=1)]))
    # differences from -1: 0 is the only item; 2r + 1 says that an Offset follows
    for item in (1, 2, (1 << 32) - 1, 1 << 32, (1 << 61) - 1):
        bad("segment_item_%d" % item, "R4-49", "number %d of an item: the base has one" % item, "CORRUPT", plain, {
            "segment0.0.Reference": (zigzag(item) << 1) + 1})
    for item in (-1, -2, -(1 << 32), -(1 << 62)):
        bad("segment_item_minus_%d" % -item, "R4-49", "number %d of an item" % item, "CORRUPT", plain, {
            "segment0.0.Reference": (zigzag(item) << 1) + 1})
    bad("segment_item_huge", "R4-49", "Reference 2^64 - 1", "CORRUPT", plain, {"segment0.0.Reference": UNKNOWN})
    with_offset = lambda value: {"segment0.0.Reference": varint(2) + varint(value)}
    bad("segment_base_beyond", "R4-49", "Offset + Size is one more than the item has", "CORRUPT", plain, with_offset(1))
    bad("segment_base_offset_beyond", "R4-49", "Offset is beyond the item", "CORRUPT", plain, with_offset(1 << 40))
    bad("segment_base_overflow", "R4-49", "Offset + Size = 2^64 + 299", "CORRUPT", plain, with_offset(UNKNOWN))
    bad("segment_offset_0", "R4-48", "an Offset of 0 that is stored", "CORRUPT", plain, with_offset(0))
    three = lambda patch, **options: delta(plain, patch, segments=[(100, 1, 0), (100, 1, 100), (100, 1, 200)], **options)
    for name, rule, what, patch in (
            ("segment_sum_less", "R4-47", "the sum of the segments is one less than Run_Size", {"segment0.1.Size": 99}),
            ("segment_sum_more", "R4-47", "the sum of the segments is one more than Run_Size", {"segment0.0.Size": 101}),
            ("segment_sum_overflow", "R4-47", "the sum of the segments is Run_Size modulo 2^64", {"segment0.0.Size": 1 << 63, "segment0.1.Size": (
                1 << 63) + 200}),
            ("segment_size_huge", "R4-47", "a segment of 2^64 - 1 bytes", {"segment0.2.Size": UNKNOWN}),
            ("segment_size_0", "R4-47", "a Size of 0", {"segment0.0.Size": 0, "segment0.1.Size": 200}),
            ("segments_one_more", "R4-8 R2-6", "N_Segments counts one more than there are", {"run0.N_Segments": 4}),
            ("segments_one_less", "R4-47", "N_Segments counts one less than there are", {"run0.N_Segments": 2}),
            ("run_no_segments", "R4-45", "N_Segments 0", {"run0.N_Segments": 0}),
            ("run_segments_too_many", "R4-45", "N_Segments 2^24 + 1", {"run0.N_Segments": (1 << 24) + 1}),
            ("run_segments_most", "R4-8", "N_Segments 2^24: the body cannot hold them", {"run0.N_Segments": 1 << 24}),
            ("run_segments_huge", "R4-45", "N_Segments 2^64 - 1", {"run0.N_Segments": UNKNOWN}),
            ("segment_second_negative", "R4-49", "a number that becomes negative by the second segment", {
                "segment0.1.Reference": (zigzag(-2) << 1 | 1) + 1}),
            ("segment_second_beyond", "R4-49", "a number that becomes too large by the second segment", {
                "segment0.1.Reference": (zigzag(0) << 1 | 1) + 1})):
        v.invalid(name, rule, what, "CORRUPT", three(patch))
    v.invalid("run_size_not_segments", "R4-47", "Run_Size is one more than the sum of the segments, in a file of Unknown size", "CORRUPT", build([
        Src(data=new, size=UNKNOWN), Run([plain], prediction=1, base=(1, 0))], {}, {"run0.Run_Size": 301}, base=base))

    def bad_own(name, rule, what, *items, status="CORRUPT", patch=None, bits=None):
        v.invalid("own_" + name, rule, what, status, build(list(items), patch=patch, bits=bits))

    a = old[:60]
    first = lambda: (Src(b"a", a), Run([stored(a)]))
    copy = lambda: own_run(a, [(60, 1, 0)], sources=[Src(data=a)])
    bad_own("without_bit", "R3-12", "Prediction 3 in a file without Incompatible bit 1", *first(), Src(b"b", a), copy(), bits=0)
    v.invalid("own_without_bit_in_delta", "R3-12", "Prediction 3 in a delta without Incompatible bit 1", "CORRUPT", build(
        [*first(), Src(b"b", a), copy()], base=base, bits=1))
    number = lambda n, *offset: {"segment1.0.Reference": b"".join(map(varint, ((zigzag(n) << 1 | len(offset)) + 1, *offset)))}
    bad_own("no_file", "R4-51", "number 2 of a file: there are two", *first(), Src(b"b", a), copy(), patch=number(2))
    bad_own("file_huge", "R4-51", "number 2^32 of a file: 0 modulo 2^32", *first(), Src(b"b", a), copy(), patch=number(1 << 32))
    bad_own("file_negative", "R4-51", "number -1 of a file", *first(), Src(b"b", a), copy(), patch=number(-1))
    bad_own("beyond_file", "R4-51", "a prediction that ends after its file", *first(), Src(b"b", a), copy(), patch=number(0, 1))
    bad_own("overflow", "R4-51", "Offset + Size = 2^64 + 59", *first(), Src(b"b", a), copy(), patch=number(0, UNKNOWN))
    bad_own("offset_0", "R4-48", "an Offset of 0 that is stored", *first(), Src(b"b", a), copy(), patch=number(0, 0))
    bad_own("directory", "R4-51", "a prediction from a directory", *first(), Src(b"d", kind=1), Src(b"b", a), copy(), patch=number(1))
    twice = Src(data=a + a)
    bad_own("itself", "R4-51", "a run predicted from itself", twice, Run([stored(a)]), Run([stored(a)], [(60, 1, 60)], 14, 3))
    bad_own("into_itself", "R4-51", "a prediction that ends one byte within its own run", twice, Run([stored(a)]),
            Run([stored(a)], [(60, 1, 1)], 14, 3))
    bad_own("forwards", "R4-51", "a prediction from a later run of the same file", twice, Run([stored(a)], [(60, 1, 60)], 14, 3), Run([stored(a)]))
    bad_own("forwards_file", "R4-51", "a prediction from a file that comes later", Src(b"a", a), Run([stored(a)], [(60, 2, 0)], 14, 3), Src(b"b", a),
            Run([stored(a)]))
    thrice = Src(data=a * 3)
    own = lambda start: Run([stored(a)], [(60, 1, start)], 14, 3)
    bad_own("of_own", "R4-51", "a prediction from a run of Prediction 3", thrice, Run([stored(a)]), own(0), own(60))
    bad_own("of_own_start", "R4-51", "a prediction that ends one byte within a run of Prediction 3", thrice, Run([stored(a)]), own(0), own(1))
    four = Src(data=a * 4)
    bad_own("of_own_end", "R4-51", "a prediction that starts with the last byte of a run of Prediction 3", four, Run([stored(a)]), own(0),
            Run([stored(a)]), own(119))
    bad_own("of_own_zeros", "R4-51", "a prediction from a run of Prediction 3 that has no prediction itself", thrice, Run([stored(a)]),
            Run([stored(a)], [(60, 0, 0)], 14, 3), own(60))
    bad_own("of_own_across", "R4-51", "a prediction that reaches over a run of Prediction 3", Src(data=a * 2 + bytes(180)), Run([stored(a[:30])]), Run(
            [stored(a[30:])], [(30, 1, 0)], 14, 3), Run([stored(a)]), Run([planes([bytes(120)])], [(120, 1, 0)], 14, 3),
            Run([planes([bytes(60)])]))
    floats = pack(TO_ROUND[:20], 4)
    half = convert(floats, 1)
    master = lambda: (Src(b"a", floats), Run([stored(floats)]))
    for conversion in (1, 2):
        rounded = convert(floats, conversion)
        bad_own("conversion_%d_beyond" % conversion,
                "R4-52", "conversion %d: Offset + Size lies within the file, Offset + 2 * Size does not" % conversion, *master(),
                Src(b"b", rounded), Run([stored(rounded)], [(40, 1, 1)], 14, 3 + conversion))
        bad_own("conversion_%d_odd" % conversion, "R4-47", "conversion %d: a segment of odd Size" % conversion,
                *master(), Src(b"b", half[:37]), Run([stored(half[:37])], [(37, 1, 0)], 14, 3 + conversion))
        bad_own("conversion_%d_odd_zeros" % conversion, "R4-47", "conversion %d: segments of odd Size, whose Reference is 0" % conversion,
                *master(), Src(b"b", half), Run([stored(half)], [(1, 0, 0), (38, 1, 0), (1, 0, 0)], 14, 3 + conversion))
    bad_own("payload_crc", "R5-10", "Payload_CRC in a run of Prediction 3", *first(), Src(b"b", a), copy(), patch={"block1.0.Payload_CRC": 1},
            status="CHECKSUM")
    # 5: blocks
    bad("block_payload_crc", "R5-10", "Payload_CRC, though payload and base are right", "CHECKSUM", plain, Payload_CRC=1)
    bad("block_payload_damaged", "R5-10", "a bit of the payload of a delta: found without its base, too", "CHECKSUM", payload(
        sparse, flip_bit(join(sparse.payload), sparse.size() - 1, 0)), Payload_CRC=crc(join(sparse.payload)))
    bad("block_payload_crc_unpredicted_in_run_1", "R5-6", "Payload_CRC of a block that is not Predicted", "CORRUPT", stored(new), Payload_CRC=crc(new))
    v.invalid("block_payload_crc_unpredicted", "R5-6", "Payload_CRC of a block that is not Predicted, in a run of Prediction 0", "CORRUPT",
              one(stored(b"text"), patch={"block0.0.Payload_CRC": crc(b"text")}))
    bad("block_base_wrong", "R5-13 R5-12", "the payload is right, the content is not: another prediction", EITHER, plain, Content_CRC=1)
    bad("block_base_wrong_sparse", "R5-13 R5-12", "a residual with a wrong bit, and the Payload_CRC of that", EITHER, payload(
        sparse, flip_bit(join(sparse.payload), sparse.size() - 1, 0)))
    v.invalid("block_own_wrong", "R5-12", "payload right, content wrong, in a run of Prediction 3", "CHECKSUM", build([*first(), Src(b"b", a), copy()], patch={
        "block1.0.Content_CRC": 1}))
    v.invalid("block_predicted", "R5-6", "a Predicted block in a run of Prediction 0", "CORRUPT", build([Src(data=zeros.data), Run([zeros])]))
    v.invalid("block_predicted_in_delta", "R5-6", "a Predicted block in a run of Prediction 0 of a file with a base", "CORRUPT",
              build([Src(data=zeros.data), Run([zeros])], base=base))
    bad("block_stored_predicted", "R5-7", "a stored block that is Predicted", "CORRUPT", Block(new, 2, base=old))
    bad("block_stored_sparse", "R5-7", "a stored block with Sparse", "CORRUPT", Block(new, 2, grouping=16))
    bad("block_stored_classes", "R5-7", "a stored block with classes", "CORRUPT", Block(new, 2, grouping=1))
    bad("block_stored_natural", "R5-7", "a stored block with classes and Natural 1", "CORRUPT", Block(new, 2, grouping=33))
    bad("block_planes_predicted", "R5-7", "Predicted planes that take as many bytes as the elements", "CORRUPT",
        payload(plain, join(plain.payload), bytes(300 - plain.size())))
    bad("block_order_0_predicted", "R5-7", "Order 0 with a prediction", "CORRUPT", predicted(new, old, 2, 0))
    # 5.2
    for name, thresholds in (("zero", [0, 114, 116]), ("same", [112, 112, 116]), ("order", [112, 116, 114]), ("descending", [116, 114, 112])):
        bad("classes_threshold_" + name, "R5-15", "thresholds %s" % thresholds, EITHER, predicted(new, old, 2, thresholds=thresholds))
    for name, options in (("classes", {"thresholds": [112, 114, 116]}), ("classes_9", {"thresholds": range(112, 120)}), ("sparse", {"sparse": True}),
                          ("sparse_classes", {"thresholds": [112], "sparse": True}), ("natural", {"thresholds": [112], "natural": 1})):
        block = predicted(bytes(200) + new[:40], None, 2, **options)
        v.invalid("%s_without_prediction" % name, "R5-7", "%s without Predicted" % name.replace("_", " "), "CORRUPT", one(block, base=base))
        v.invalid("%s_without_prediction_in_delta" % name, "R5-7", "%s without Predicted in a run of Prediction 1" % name.replace("_", " "), "CORRUPT",
                  build([Src(data=block.data), Run([block], prediction=1)], base=base))
    for name, thresholds in (("zero", range(8)), ("same", [*range(1, 9), 8]), ("last", [*range(1, 15), 13])):
        bad("classes_%d_threshold_%s" % (len(thresholds) + 1, name), "R5-15", "thresholds %s" % list(thresholds), EITHER,
            predicted(new, old, 2, thresholds=thresholds))
    whole = join(classes.payload)
    bad("classes_end_thresholds", "R2-7", "the payload ends within the thresholds", EITHER, payload(classes, whole[:2]))
    bad("classes_end_planes", "R2-7", "the payload ends within a class plane", EITHER, payload(classes, whole[:-1]))
    bad("classes_end_empty", "R2-7", "classes in an empty payload", EITHER, payload(classes))
    whole = join(sparse.payload)
    bad("sparse_ends_mask", "R2-7", "the payload ends within the first mask", EITHER, payload(sparse, whole[:4]))
    bad("sparse_ends_masks", "R2-7", "the payload ends after the first mask", EITHER, payload(sparse, whole[:3 + len(sparse.payload[1][1])]))
    bad("sparse_ends_planes", "R2-7", "the payload ends within a class plane", EITHER, payload(sparse, whole[:-1]))
    bad("classes_longer", "R5-11", "a payload byte behind the class planes", EITHER, payload(classes, join(classes.payload), b"\0"))
    empty = predicted(new, old, 2, 2, [112, 255])
    bad("classes_plane_of_empty", "R5-11", "planes of a class without elements", EITHER, payload(empty, join(empty.payload), b"\1\0\1\0"))
    none = predicted(old[:200], old[:200], 2, sparse=True)
    bad("sparse_plane_of_none", "R5-11", "planes of a class of which no element is coded", EITHER, payload(none, join(none.payload), b"\1\0\1\0"))
    last = predicted(old[:200], old[:200], 2, thresholds=[255], sparse=True)
    bad("sparse_mask_of_empty", "R5-11", "a mask of a class without elements", EITHER, payload(last, join(last.payload), b"\0"))
    bad("sparse_padding", "R2-2", "unused bits of a mask of 150 bits are not zero", EITHER, predicted(new, old, 2, sparse=True, padding=1))
    bad("sparse_padding_class", "R2-2", "unused bits of the mask of a class are not zero", EITHER,
        predicted(new, old, 2, thresholds=[112, 114, 116], sparse=True, padding=1))
    bad("sparse_padding_raw", "R2-2", "unused bits of a raw mask of 300 bits are not zero", EITHER,
        predicted(new, old, 1, sparse=True, masks=raw_masks, padding=1))
    bad("sparse_padding_nested", "R6-9", "unused bits of a nested mask of 300 bits are not zero", EITHER,
        predicted(new, old, 1, sparse=True, masks=nested_masks(4), padding=1))
    bad("sparse_mask_mode", "R6-8", "Mode 65 of a mask", EITHER, predicted(new, old, 1, sparse=True, masks=nested_masks(65)))
    bad("sparse_gaps_padding", "R2-2", "unused bits of the lists of a mask as gaps are not zero", EITHER,
        predicted(new, old, 1, sparse=True, masks=nested_masks(gap_mode(1)), padding=1))
    bad("classes_plane_mode", "R6-1", "Mode 4 of a class plane", EITHER, predicted(new, old, 2, thresholds=[112], coders={(1, 0): literal([4])}))
    # 5.2: natural planes
    low = bytes(x ^ (i % 12 == 0) for i, x in enumerate(old))
    for width in (1, 2, 4):
        for n in sorted({width, width + 1, 7}):
            bad("natural_%d_of_%d" % (n, width), "R5-7", "Natural %d, width %d" % (n, width), "CORRUPT",
                predicted(new, old, width, thresholds=[112, 114]), Grouping=2 | n << 5)
    bad("natural_one_class", "R5-7", "Natural 1 with one class", "CORRUPT", predicted(low, old, 4, natural=1))
    bad("natural_sparse", "R5-7", "Natural 1 with Sparse and classes", "CORRUPT", predicted(low, old, 4, 2, [112, 114], True, natural=1))
    bad("natural_sparse_one_class", "R5-7", "Natural 1 with Sparse and one class", "CORRUPT", predicted(low, old, 4, 2, [], True, natural=1))
    bad("natural_one_element", "R5-7", "Natural 1 and one element: the payload is larger", "CORRUPT",
        predicted(low[:4], old[:4], 4, thresholds=[112], natural=1))
    bad("natural_not_smaller", "R5-7", "Natural 3: a payload larger than the elements", "CORRUPT",
        predicted(low, old, 4, thresholds=[112], natural=3, coders={3: raw}))
    natural = predicted(low, old, 4, thresholds=[112, 114], natural=2)
    whole = join(natural.payload)
    for name, what, end in (("0", "before the natural planes", 2), ("first", "one byte before the end of the first natural plane", 2 + 74),
                            ("second", "one byte before the end of the second natural plane", 2 + 149),
                            ("lists", "behind the natural planes", 2 + 150), ("planes", "within a class plane", -1)):
        bad("natural_end_" + name, "R2-7", "the payload ends " + what, EITHER, payload(natural, whole[:end]))
    bad("natural_longer", "R5-11", "a payload byte behind the class planes, with Natural 2", EITHER, payload(natural, whole, b"\0"))
    empty = predicted(low, old, 4, thresholds=[112, 255], natural=2)
    bad("natural_plane_of_empty", "R5-11", "planes of a class without elements, with Natural 2", EITHER, payload(
        empty, join(empty.payload), b"\1\0\1\0"))
    bad("natural_plane_mode", "R6-1", "Mode 4 of a class plane, with Natural 2", EITHER, predicted(
        low, old, 4, thresholds=[112], natural=2, coders={(1, 3): literal([4])}))
    bad("natural_threshold_same", "R5-15", "thresholds [112, 112], with Natural 1", EITHER, predicted(low, old, 4, thresholds=[112, 112], natural=1))
    bad("natural_base_wrong", "R5-13 R5-12", "a wrong bit in a natural plane, and the Payload_CRC of that", EITHER, payload(
        natural, flip_bit(whole, 2 + 100, 0)))


def invalid_quantised(v, pool):
    r = Random(9)
    log, signed, table = METHOD_LOG, METHOD_SIGNED, METHOD_TABLE
    second = moments(r, 100, 4)

    def bad(name, rule, what, block, status="CORRUPT", prediction=3, base=None, bits=None, **fields):
        """fields: those of the block's header. A Predicted block is predicted by second, or by base in a delta."""
        patch = lambda run: {"block%d.0.%s" % (run, field): value for field, value in fields.items()}
        if block.base is None:
            made = one(block, patch=patch(0), bits=bits)
        elif base:
            made = build([Src(data=block.data), Run([block], prediction=1, base=(1, 0))], base=base, patch=patch(0))
        else:
            run = Run([block], prediction=prediction, base=(1, 0) if prediction else ())
            made = build([Src(b"v", second), Run([stored(second)]), Src(b"m", block.data), run], patch=patch(1))
        v.invalid("quantised_" + name, rule, what, status, made)

    symbols = some(r, 100, [0, 1, 2, 3])
    good = quantised(symbols, 4, log, 0, -1, 1 << 20, scales=[ONE, 0x4040], group_size=30)
    linear = lambda **change: quantised(symbols, 4, **dict(dict(least=-1, scales=[ONE, 0x4040], group_size=30), **change))
    logged = lambda **change: linear(**dict(dict(method=log, step=1 << 20), **change))
    tabled = lambda codes, **change: quantised([s and codes[(s - 1) % len(codes)] for s in symbols], 4, table, table=codes, least=-1,
                                               scales=[ONE], **change)
    own = lambda **change: quantised(symbols, 4, **dict(dict(least=-1, bias=ROOT, base=second), **change))
    whole = join(good.payload)

    # the block
    for width in (1, 8):
        data = bytes(100 * width)
        bad("width_%d" % width, "R5-7", "a quantised block of width %d" % width, Block(
            data, width, 0, 2, quantised([0] * 100, 4, log, step=1, scales=[ONE]).payload))
    for name, block in (("", good), ("_own", own())):
        for order in (1, 2):
            bad("order_%d%s" % (order, name), "R5-7", "Order %d" % order, block, Coding=lambda coding, order=order: coding | order)
        for what, grouping in (("classes", 1), ("classes_9", 8), ("sparse", 16), ("natural", 33)):
            bad(what + name, "R5-7", "Grouping %d" % grouping, block, Grouping=grouping, bits=6)
    bad("without_bit", "R5-8 R3-12", "Layout 2 in a file without Incompatible bit 2", good, bits=0)
    bad("content", "R5-12", "a wrong value of an exception", altered(logged(exceptions={5: 0x7FC00000}), Values=0x7FC00001), "CHECKSUM")
    bad("not_smaller", "R5-7", "a payload as large as the elements", quantised([1] * 37, 2, log, step=1, scales=[ONE], coders={"high": raw}))
    bad("larger", "R5-7", "a payload larger than the elements", quantised([1, 2, 3], 4, log, step=1, scales=[ONE]))
    bad("larger_own", "R5-7", "a payload larger than the elements, Predicted", quantised([1, 2, 3], 4, base=second[:12]))
    # Prediction
    bad("own_in_run_0", "R5-6", "a Predicted block in a run of Prediction 0", own(), prediction=0)
    bad("own_payload_crc", "R5-10", "Payload_CRC in a run of Prediction 3", own(), "CHECKSUM", Payload_CRC=1)
    against = pool.items[0][:400]
    bad("delta_base_wrong", "R5-13 R5-12", "payload right, content wrong in a run of Prediction 1", quantised(symbols, 4, bias=ROOT, base=against), EITHER,
        base=pool, Content_CRC=1)
    bad("payload_crc_unpredicted", "R5-6", "Payload_CRC of a block that is not Predicted", good, Payload_CRC=crc(join(good.payload)))
    # Fields of the payload: the rest is right for a careless decoder
    for bit in range(3, 8):
        bad("method_bit_%d" % bit, "Q-1", "Method: reserved bit %d" % bit, logged(method=log | 1 << bit))
    bad("signed_linear", "Q-1", "Signed without Log", linear(method=signed))
    bad("signed_linear_table", "Q-1", "Signed and Table without Log", quantised(symbols, 4, table | signed, least=-1, table=[1, 2, 3], scales=[ONE]))
    bad("signed_own", "Q-1", "Signed with Predicted", own(method=signed))
    bad("log_own", "Q-1", "Log with Predicted", own(method=log, step=1 << 20))
    bad("log_signed_own", "Q-1", "Log and Signed with Predicted", own(method=log | signed, step=1 << 20))
    for low_bits in (9, 16, 32, 255):
        bad("low_bits_%d" % low_bits, "Q-2", "Low_Bits %d" % low_bits, linear(low_bits=low_bits))
    for low_bits in (1, 8, 9):
        bad("low_bits_%d_table" % low_bits, "Q-2", "Low_Bits %d with Table" % low_bits, altered(tabled([1, 2, 3]), Low_Bits=low_bits))
    bad("low_bits_table_list", "Q-2", "Low_Bits 1 with Table, and a list Low", tabled([1, 2, 3], low_bits=1, low=bytes(100)))
    bad("table_size_0", "Q-3", "Table_Size 0 with Table", quantised([0] * 100, 4, table, scales=[ONE]))
    bad("table_size_256", "Q-3", "Table_Size 256", quantised(symbols * 20, 4, table, table=list(range(1, 257)), least=-1, scales=[ONE]))
    bad("table_size_65535", "Q-3", "Table_Size 65,535", altered(tabled([1, 2, 3]), Table_Size=65535))
    bad("table_size_without", "Q-3", "Table_Size 1 without Table", altered(linear(), Table_Size=1))
    bad("table_without", "Q-3", "a table without Table", altered(tabled([1, 2, 3]), Method=0))
    for least in (1, 65535, (1 << 31) - 1, -65536, -65537, -1 << 31):
        values = quantised([0] * 100, 4, least=least, scales=[ONE]) if abs(least) > 70000 else linear(least=least)
        bad("min_%s%d" % ("minus_" * (least < 0), abs(least)), "Q-4", "Min %d" % least, values)
        if abs(least) == 65536 or least == 1:
            bad("min_%s%d_log" % ("minus_" * (least < 0), abs(least)), "Q-4", "Min %d with Log" % least, logged(least=least))
            bad("min_%s%d_own" % ("minus_" * (least < 0), abs(least)), "Q-4", "Min %d, Predicted" % least, own(least=least))
    bad("step_0", "Q-5", "Step 0 with Log", logged(step=0))
    bad("step_too_large", "Q-5", "Step 2^24 + 1", logged(step=(1 << 24) + 1))
    bad("step_huge", "Q-5", "Step 2^32 - 1", logged(step=(1 << 32) - 1))
    bad("step_linear", "Q-5", "Step 1 without Log", linear(step=1))
    bad("step_own", "Q-5", "Step 1 with Predicted", own(step=1))
    for bias in (1, -1, 1 << 30):
        bad("bias_%s%d_unpredicted" % ("minus_" * (bias < 0), abs(bias)), "Q-6", "Bias %d without Predicted" % bias, linear(bias=bias))
    for bias in ((1 << 30) + 1, (1 << 31) - 1, -(1 << 30) - 1, -1 << 31):
        bad("bias_%s%d" % ("minus_" * (bias < 0), abs(bias)), "Q-6", "Bias %d" % bias, own(bias=bias))
    for floor in (1, 0x7F800000):
        bad("floor_%x_unpredicted" % floor, "Q-7", "Floor %#x without Predicted" % floor, linear(floor=floor))
    for floor in (0x7F800001, 0x7FC00000, 0x80000000, 0xFFFFFFFF):
        bad("floor_%x" % floor, "Q-7", "Floor %#x" % floor, own(floor=floor))
    bad("group_size_0", "Q-8", "Group_Size 0", altered(linear(group_size=100), Group_Size=0))
    bad("group_size_0_first_0", "Q-8", "Group_Size 0, First_Group 0", altered(linear(group_size=100), Group_Size=0, First_Group=0))
    for group_size in (1 << 31, (1 << 32) - 1):
        bad("group_size_%d" % group_size, "Q-8", "Group_Size %d" % group_size, altered(linear(group_size=100), Group_Size=group_size))
        bad("group_size_%d_first" % group_size, "Q-8", "Group_Size and First_Group %d" % group_size, altered(
            linear(group_size=100), Group_Size=group_size, First_Group=group_size))
    bad("first_group_0", "Q-9", "First_Group 0", linear(first_group=0))
    bad("first_group_larger", "Q-9", "First_Group one more than Group_Size", linear(first_group=31))
    bad("first_group_huge", "Q-9", "First_Group 2^32 - 1", altered(linear(group_size=100), First_Group=(1 << 32) - 1))
    bad("group_size_own", "Q-8", "Group_Size 1 with Predicted", own(group_size=1, first_group=0))
    bad("first_group_own", "Q-9", "First_Group 1 with Predicted", own(group_size=0, first_group=1))
    bad("groups_own", "Q-8", "groups with Predicted", own(group_size=100, first_group=100))
    for what, block in (("", logged(exceptions={3: 1})), ("_own", own(exceptions={3: 1}))):
        bad("exceptions_101" + what, "Q-10", "N_Exceptions one more than N_Elements", altered(block, N_Exceptions=101))
        bad("exceptions_most" + what, "Q-10", "N_Exceptions 2^32 - 1", altered(block, N_Exceptions=(1 << 32) - 1))
        bad("exceptions_overflow" + what, "Q-10", "N_Exceptions 2^29 + 1: times 8 bytes it is right modulo 2^32", altered(block, N_Exceptions=(1 << 29) + 1))
        bad("exceptions_all" + what, "R2-7", "N_Exceptions as many as N_Elements: no room for them", altered(block, N_Exceptions=100))
    # Table, Positions, Groups
    for name, codes in (("zero", [0, 1, 2]), ("same", [1, 2, 2]), ("order", [1, 3, 2]), ("descending", [3, 2, 1]), ("only_zero", [0])):
        high = bytes(min(s, len(codes)) for s in symbols)
        bad("table_" + name, "Q-11", "Table %s" % codes, quantised([[0, *codes][h] for h in high], 4, table, table=codes, least=-1, scales=[ONE], high=high))
    for name, at, index in (("first", 0, 4), ("last", 99, 4), ("largest", 50, 255)):
        high = bytearray(s and (s - 1) % 3 + 1 for s in symbols)
        high[at] = index
        bad("table_index_" + name, "Q-14", "High_%d is %d, Table_Size 3" % (at, index), tabled([1, 2, 3], high=bytes(high), coders={"high": raw}))
        bad("table_index_%s_exception" % name, "Q-14", "the same of an exception", tabled(
            [1, 2, 3], high=bytes(high), coders={"high": raw}, exceptions={at: 0x7FC00000}))
    bad("table_index_constant", "Q-14", "High is 2 everywhere, Table_Size 1", quantised([0] * 100, 4, table, table=[9], scales=[ONE], high=b"\2" * 100))
    positions = lambda *p: struct.pack("<%dI" % len(p), *p)
    several = lambda at: altered(logged(exceptions={i: 5 for i in at if i < 100}), N_Exceptions=len(at), Positions=positions(*at),
                                 Values=positions(*[5] * len(at)))
    for name, p in (("same", (2, 3, 3)), ("same_first", (2, 2, 3)), ("order", (3, 2, 99)), ("descending", (99, 3, 2)), ("100", (2, 3, 100)),
                    ("huge", (2, 3, (1 << 32) - 1)), ("huge_first", (1 << 31, 3, 4)), ("overflow", (2, 3, (1 << 30) + 4))):
        bad("position_" + name, "Q-12", "Positions %s of 100 elements" % (p,), several(p))
    bad("position_100_two", "Q-12", "Positions (2, 100) of 100 elements", several((2, 100)))
    for g in (0x0000, 0x0001, 0x007F, 0x7F80, 0x7F81, 0x7FC0, 0x8000, 0x8080, 0xBF80, 0xFF7F, 0xFFFF):
        bad("scale_%04x_log" % g, "Q-13", "a scale of %04X with Log" % g, logged(scales=[ONE, g]))
        zeros = [0] * 100 if g & 0x7FFF >= 0x7F80 else [0, 2] * 50
        bad("scale_%04x" % g, "Q-13", "a scale of %04X" % g, quantised(zeros, 4, scales=[ONE, ONE, g], group_size=30))
    for g in (0x7701, 0x7780, 0x7F7F):
        bad("scale_%04x" % g, "Q-13", "a scale of %04X without Log" % g, quantised([0, 1] * 50, 4, scales=[ONE, ONE, ONE, g], group_size=30))
    bad("scale_unused", "Q-13", "a scale of 0000 of a group whose symbols are 0", quantised([0] * 100, 4, log, step=1, scales=[ONE, 0], group_size=99))
    # The end of the payload
    one_of_all = lambda **change: quantised(symbols, 4, log, 1, -1, 1 << 20, scales=[0x3F81, 0x4040, 0x4142], group_size=30, exceptions={9: 1, 80: 2},
                                            coders={name: raw for name in ("low", "high", "scales low", "scales high")})
    coded = tabled([1, 2, 3], exceptions={9: 1, 80: 2})
    for name, block in (("grid", one_of_all()), ("table", coded), ("own", own(low_bits=1, exceptions={9: 1}, coders={"low": raw, "high": raw}))):
        at, part, places = 0, "fields", {}
        for note, data in block.payload:
            part = "fields" if at < 32 else note.lower().split(":")[0] if at == 32 or note in ("Positions", "Values") or ":" in note else part
            if note.startswith("Node"):
                part = "high"
            places.setdefault(part, []).append((at, at + len(data)))
            at += len(data)
        for part, ranges in places.items():
            for where, cut in (("before", ranges[0][0]), ("within", ranges[-1][1] - 1)):
                bad("ends_%s_%s_%s" % (where, part.replace(" ", "_"), name), "R2-7", "the payload ends %s %s" % (where, part),
                    Block(block.data, 4, 0, 2, [("bytes", join(block.payload)[:cut])], block.base))
    for name, block in (("", good), ("_table", coded), ("_own", own())):
        bad("longer" + name, "R5-11", "a payload byte behind the lists", Block(block.data, 4, 0, 2, block.payload + [("", b"\0")], block.base))
    # Lists
    for which in ("scales low", "scales high", "low", "high"):
        name = which.replace(" ", "_")
        bad("list_mode_" + name, "R6-1", "Mode 4 of a list", altered(one_of_all(), **{name: b"\4"}))
    bad("list_tree", "R6-6", "an incomplete code in a list", logged(coders={"high": tree({0: 2, 1: 2, 2: 2, 3: 2}, fields=[2, 2, 2, 3])}))
    bad("list_padding", "R2-2", "unused bits of a flat list are not zero", linear(coders={"high": tree({0: 2, 1: 2, 2: 2, 3: 2}, dirty_flat=1)}))




# ---- Command ----

def manifest_text(manifest):
    """A line for each vector."""
    lists = ["\"%s\": [\n%s\n]" % (kind, ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in manifest[kind])) for kind in ("valid",
        "invalid")]
    return "{\"format\": \"%s\",\n%s}\n" % (manifest["format"], ",\n".join(lists))


def more_vectors(v):
    """What the other functions leave out. They come last, as random numbers and bases of the others must not change."""
    r = Random(77)
    data = r.data(40)
    v.valid("tensor_like_gap_loss", "4.1", "a tensor entry with Like, Gap and Loss", build([Src(b"f", data, [
        T(b"w.0", b"F32", (2,), 0, 8, (1, 2, 3)), T(b"w.1", b"F32", (2,), 12, 8, (2, 3, 1 << 31), 1, True)]), Run([stored(data)])]))
    for measure in (4, 255):                   # R4-38
        v.valid("tensor_measure_%d_of_generation_1" % measure, "4.1", "Measure %d, of a later version" % measure, build([
            Src(b"f", b"0123456789ABCDEF", [T(b"a", b"F32", (1,), 0, 4, (1, measure, 5)), T(b"b", b"U8", (2,), 4, 2)]), Run([stored(b"0123456789ABCDEF")])]))
    time = (1700000000, 5)
    v.valid("file_form_5", "4.1", "a directory with a time and without a mode", build([Src(b"d", kind=1, mtime=time)]))
    for form, more in ((10, {"mode": 0o640}), (12, {"mtime": time}), (14, {"mode": 0o640, "mtime": time})):
        v.valid("file_form_%d" % form, "4.1", "a file of Unknown size with %s" % " and ".join(sorted(more)), build([
            Src(b"log", data, size=UNKNOWN, **more), Run([stored(data)])]))
    pool = Pool("bases/more.bin")
    pool.one("classes_13_sparse", "5.2", "13 classes and Sparse", against(r, list(range(100, 132)), 900, 2, sparse=True, thresholds=range(102, 126, 2)))
    pool.emit(v)
    for level in range(len(FROZEN)):
        for polarity in (0, 1):
            inner = 1 + 2 * level + polarity
            ones = lambda i: i % 37 == 0
            block = plane_block(bytes(1 if ones(i) else 0 for i in range(4000)), tree({0: 1, 1: 1}, masks=nested_masks(9, inner)), 1)
            v.valid("mask_inner_level%d_polarity%d" % (level, polarity), "6.3", "nested twice: level %d, polarity %d at nesting 1" % (level, polarity),
                    build([Src(data=block.data), Run([block], log2=17)]))
    block = plane_block(bytes(i in (5, 200) for i in range(256)), tree({0: 1, 1: 1}, masks=nested_masks(19)), 1)
    example = build([Src(data=block.data), Run([block], log2=17)])
    assert bytes.fromhex("13 01000002 01 0000 0001") in bytes(example.out)  # as the page has it
    v.valid("example_nested", "6.3", "worked example: a mask of 256 bits, nested once", example)
    # 7.3: the ways of foreign-bases.md
    tensors = [("w", "BF16", [30], weights(r, 30, 2)), ("b", "F32", [8], weights(r, 8, 4))]
    file, entries = safetensors(tensors)
    array = b"\x93NUMPY\1\0v\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }".ljust(117) + b"\n" + weights(r, 20, 4)
    for path, content in (("model.safetensors", file), ("array.npy", array)):
        v.base("bases/ways/" + path, content)
    other = safetensors([t[:3] + (weights(r, 0, 4 if t[1] == "F32" else 2, t[3]),) for t in tensors])
    near = bytes(b ^ (i % 20 == 19 and i > 128) for i, b in enumerate(array))
    for name, what, own, more in (
            ("container", "the tensors of a safetensors file, and a .npy file as bytes; the snapshot has a file more", entries, {}),
            ("bytes", "the same as plain bytes", [], {"refusable": ["BASE_WRONG"]})):
        base = Base([Src(b"model.safetensors", file, own), Src(b"array.npy", array)], ["bases/ways"])
        parts = [(entries[0].offset, 0, 0)] + [(t.size, base.item(t.name), 0) for t in other[1]] if own else [(len(file), base.item(b"model.safetensors"), 0)]
        b = build([Src(b"model.safetensors", other[0], other[1] if own else []), delta_run(Src(data=other[0]), parts, base, 2), Src(b"array.npy", near),
                   delta_run(Src(data=near), [(len(near), base.item(b"array.npy"), 0)], base, 1), Src(b"more")], base=base)
        v.valid("delta_base_ways_" + name, "7.3", what, b, **more)
    # invalid
    magic = bytes.fromhex("954C4D430D0A1A0A")
    for major in (0, 2):
        v.invalid("version_major_%d_9_bytes" % major, "R3-2", "Format_Major %d, and the input ends" % major, "VERSION", magic + bytes([major]))
    entry = [T(b"w", b"U8", (1,), 0, 1), T(b"x", b"U8", (1,), 1, 1)]
    for name, rule, what, patch in (
            ("back", "R4-30", "Back 1 of the first entry", {"tensor0.0.Back": b"\1\0\0", "tensor0.0.Dtype": 47}),
            ("prefix", "R4-31", "Prefix 5 of a Name of one byte", {"tensor0.1.Back": b"\1\5\0", "tensor0.1.Dtype": 47}),
            ("suffix", "R4-31", "Suffix 2 of a Name of one byte", {"tensor0.1.Back": b"\1\0\2", "tensor0.1.Dtype": 255})):
        v.invalid("tensor_order_" + name, rule, "%s; and behind it a Dtype that is not known (R2-11)" % what, "CORRUPT", build([
            Src(b"f", b"xy", entry), Run([stored(b"xy")])], patch=patch))


def order_vectors(v):
    """R2-11: of two broken rules of one header, block or entry, the first one of the page decides. All pairs whose statuses differ."""
    flip = lambda value: value ^ 1
    data, old = b"0123456789ABCDEF", bytes(range(256))
    tensors = [T(b"a", b"F32", (2,), 0, 8), T(b"b", b"BF16", (1,), 10, 2, (1, 1, 5), back=1, prefix=0, suffix=0)]

    def whole(patch, **options):
        return build([Src(b"w.bin", data, tensors, mode=0o644, mtime=(1700000000, 5)), Run([stored(data, 4)]), Src(b"log", data, size=UNKNOWN),
                      Run([stored(data, 2)])], [(b"key", b"value")], patch=patch, **options).out

    def front(patch):
        """The same without the index, so that it ends with a block."""
        return whole(patch, index=False, trailer=False)

    def own(patch):
        """A file and its copy, which is predicted by it. patch: "payload" replaces the payload of its block."""
        block = predicted(old, old, 1)
        block = Block(old, 1, block.order, 1, [("", patch["payload"])] if "payload" in patch else block.payload, old)
        return build([Src(b"a", old), Run([stored(old)]), Src(b"b", old), Run([block], prediction=3, base=(1, 0))],
                     patch={field: value for field, value in patch.items() if field != "payload"}).out

    def pairs(name, make, *breaks):
        """make: of a patch, the file. breaks: (rules, statuses, patch[, bytes that are cut off]), in the order of the page."""
        breaks = [(rule, status.split(), patch, cut[0] if cut else 0) for rule, status, patch, *cut in breaks]
        for (rule, status, patch, cut), (other, other_status, other_patch, other_cut) in itertools.combinations(breaks, 2):
            if set(patch) & set(other_patch) or set(other_status) <= set(status):
                continue
            first, second = rule.split()[0], other.split()[0]
            title = "order_%s_%s" % (name, "_".join(r.split()[0][1:] + "_cut" * (r == "R4-6 R2-5") for r in (rule, other)))
            out = make(dict(patch, **other_patch))
            v.invalid(title, rule, "%s and behind it %s, in one %s" % (first, second, name.replace("_", " ")), status, out[:len(out) - max(cut, other_cut)])

    pairs("header", whole, ("R3-1", "NOT_LMC", {"header.Magic": b"\x95LMD\r\n\x1a\n"}), ("R3-2", "VERSION", {"header.Format_Major": 2}),
          ("R3-4", "CHECKSUM", {"header.Header_CRC": flip}), ("R3-6", "UNSUPPORTED", {"header.Algorithm": 2}),
          ("R3-7", "UNSUPPORTED", {"header.Reserved": b"\0\0\1\0\0"}), ("R3-8", "UNSUPPORTED", {"header.Incompatible": 64}),
          ("R3-10", "CORRUPT", {"header.Base_Fingerprint": bytes(15) + b"\1"}), ("R3-11", "UNSUPPORTED", {"header.Reserved_2": bytes(11) + b"\1"}))
    pairs("trailer", whole, ("R3-15", "CORRUPT TRUNCATED", {"trailer.End_Magic": b"\x95LMC\r\n\x1a\n"}), ("R3-16", "CHECKSUM", {"trailer.Trailer_CRC": flip}),
          ("R3-17", "VERSION", {"trailer.Format_Major": 2}), ("R3-19", "UNSUPPORTED", {"trailer.Reserved": 1}),
          ("R3-20", "CORRUPT", {"trailer.Index_Offset": flip}))
    pairs("section", front, ("R4-1", "CHECKSUM", {"run1.Head_CRC": flip}), ("R4-2", "CORRUPT", {"run1.Kind": b"RUN-"}),
          ("R4-3", "UNSUPPORTED", {"run1.Kind": b"DATA"}), ("R4-4 R4-9", "CORRUPT", {"run1.Kind": b"INDX"}),
          ("R4-5", "CORRUPT LIMIT", {"run1.Body_Size": (1 << 40) + 1}), ("R4-6 R2-5", "TRUNCATED", {"run1.Body_Size": 1000}),
          ("R4-6", "CHECKSUM", {"run1.Body_CRC": flip}), ("R4-43", "UNSUPPORTED", {"run1.Block_Size": 3}))
    pairs("file_entry", whole, ("R4-15", "UNSUPPORTED", {"file0.Form": 0x16}), ("R4-17", "CORRUPT", {"file0.Path_Prefix": 1}),
          ("R4-18", "CORRUPT", {"file0.Path_Rest_Size": 65536}), ("R2-3", "CORRUPT", {"file0.Path_Rest": b"w\0bin"}),
          ("R4-19", "CORRUPT", {"file0.File_Size": 1 << 63}), ("R4-20", "CORRUPT", {"file0.Mode": 0o10000}),
          ("R4-21", "CORRUPT", {"file0.Mtime_Nanoseconds": 10**9}), ("R4-22", "CORRUPT", {"file0.N_Tensors": (1 << 28) + 1}),
          ("R4-23", "CORRUPT", {"file0.Path_Rest": b"/.bin"}))
    pairs("file_entry", whole, ("R4-15", "UNSUPPORTED", {"file1.Form": 0x19}), ("R4-16", "CORRUPT", {}))
    pairs("tensor_entry", whole, ("R4-29", "UNSUPPORTED", {"tensor0.1.Form": 0x0E}), ("R4-30", "CORRUPT", {"tensor0.1.Back": 2}),
          ("R4-31", "CORRUPT", {"tensor0.1.Suffix": 2}), ("R4-32", "CORRUPT", {"tensor0.1.Middle_Size": 65536}),
          ("R2-3", "CORRUPT", {"tensor0.1.Middle": b"\0"}), ("R4-33", "CORRUPT", {"tensor0.1.Gap": 0}), ("R4-34", "UNSUPPORTED", {"tensor0.1.Dtype": 28}),
          ("R4-37", "CORRUPT", {"tensor0.1.Rank": 33}), ("R4-38", "CORRUPT", {"tensor0.1.Measure": 0}),
          ("R4-39", "CORRUPT", {"tensor0.1.Shape0": 1 << 63}), ("R4-40", "CORRUPT", {"tensor0.1.Shape0": 4}), ("R4-41", "CORRUPT", {"tensor0.1.Middle": b"a"}))
    pairs("tensor_entry", whole, ("R4-29", "UNSUPPORTED", {"tensor0.1.Form": 0x0E}), ("R4-35", "CORRUPT", {"tensor0.1.Dtype": b"\0\x21" + bytes(33)}),
          ("R4-36", "CORRUPT", {"tensor0.1.Dtype": b"\0\4BF16"}))
    pairs("run", whole, ("R4-42", "CORRUPT", {"run1.Run_Size": 0}), ("R4-43", "UNSUPPORTED", {"run1.Block_Size": 3}),
          ("R4-44", "UNSUPPORTED", {"run1.Prediction": 6}), ("R3-12", "CORRUPT", {"run1.Prediction": b"\3\1\x10\1"}),
          ("R4-45", "CORRUPT", {"run1.Prediction": b"\2\0"}), ("R4-46", "CORRUPT TRUNCATED", {"run1.Run_Size": 1 << 62}))
    pairs("run_in_its_stream", whole, ("R4-43", "UNSUPPORTED", {"run0.Block_Size": 3}), ("R4-11", "CORRUPT", {"run0.Run_Size": 17}))
    for name, field in (("file", "files0.Extra"), ("run", "run1.Extra"), ("index", "index.Extra")):
        pairs("record_of_a_" + name, whole, ("R4-54", "CORRUPT", {field: record(4) + record(3)}), ("R4-55", "UNSUPPORTED", {}))
        pairs("cut_record_of_a_" + name, whole, ("R4-54 R2-6", "CORRUPT", {field: b"\3\2x"}), ("R4-55", "UNSUPPORTED", {}))
    pairs("block", whole, ("R5-2", "CORRUPT", {"block1.0.Sync": 0xB3}), ("R5-3", "CHECKSUM", {"block1.0.Header_CRC": flip}),
          ("R5-4", "UNSUPPORTED", {"block1.0.Coding": 0xC0}),
          ("R5-5", "CORRUPT", {"block1.0.N_Elements": 7}), ("R5-6", "CORRUPT", {"block1.0.Payload_CRC": 1}),
          ("R5-7", "CORRUPT", {"block1.0.Payload_Size": 17}), ("R5-12", "CHECKSUM", {"block1.0.Content_CRC": flip}))
    pairs("cut_block", front, ("R5-3", "CHECKSUM", {"block1.0.Header_CRC": flip}), ("R5-4", "UNSUPPORTED", {"block1.0.Coding": 0xC0}),
          ("R5-5", "CORRUPT", {"block1.0.N_Elements": 7}), ("R5-9 R2-5", "TRUNCATED", {}, 1), ("R5-12", "CHECKSUM", {"block1.0.Content_CRC": flip}))
    pairs("block", whole, ("R5-4", "UNSUPPORTED", {"block1.0.Width": 3}), ("R5-8", "CORRUPT", {"block1.0.Coding": 0x40}))
    pairs("predicted_block", own, ("R5-4", "UNSUPPORTED", {"block1.0.Coding": 0xCC}), ("R5-10", "CHECKSUM", {"block1.0.Payload_CRC": flip}),
          ("R5-11 R6-1", "CORRUPT", {"payload": b"\4\0"}), ("R5-12", "CHECKSUM", {"block1.0.Content_CRC": flip}))


def make():
    v = Vectors()
    valid_vectors(v)
    pool = delta_vectors(v)
    natural_vectors(v)
    base_vectors(v, pool)
    example_delta(v)
    example_quantised(v)
    zeros_vectors(v)
    matrix_vectors(v)
    codes_vectors(v)
    bases, link = chain_vectors(v)
    own_vectors(v, pool)
    quantised_vectors(v, pool)
    section_vectors(v)
    name_vectors(v)
    group_vectors(v, pool)
    text_vectors(v, pool)
    fingerprint_vectors(v, pool)
    variant_vectors(v)
    more_examples(v)
    invalid_vectors(v)
    invalid_deltas(v, pool, bases, link)
    invalid_quantised(v, pool)
    invalid_names(v)
    invalid_groups(v)
    invalid_texts(v)
    invalid_fingerprints(v)
    more_vectors(v)
    order_vectors(v)
    v.add_needs()
    v.outputs["manifest.json"] = manifest_text(v.manifest).encode()
    return v


def main(arguments):
    if arguments not in ([], ["--check-only"]):
        print(__doc__, file=sys.stderr)
        return 2
    v, root = make(), os.path.join(HERE, "vectors")
    if not arguments:
        for folder in ("valid", "invalid", "bases"):
            shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
        for path, data in v.outputs.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "wb") as file:
                file.write(data)
        print("%d valid and %d invalid vectors, %d bytes" % (len(v.manifest["valid"]), len(v.manifest["invalid"]), sum(map(len, v.outputs.values()))))
        return 0
    found = {os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for folder, _, names in os.walk(root) for name in names}
    found.discard("README.md")
    wrong = sorted(found ^ set(v.outputs))
    for path in sorted(found & set(v.outputs)):
        with open(os.path.join(root, path), "rb") as file:
            if file.read() != v.outputs[path]:
                wrong.append(path)
    for path in wrong:
        print("differs: " + path)
    print("%d files compared, %d differ" % (len(v.outputs), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
