#!/usr/bin/env python3
"""Make the conformance vectors of the LMC format: vectors/valid, vectors/invalid and vectors/manifest.json.

Usage: make_vectors.py                  write them all, and the bases of the deltas among them to vectors/bases
       make_vectors.py --check-only     compare with what is there (and the dumps and the table of section 11 in lmc-format.md); exit
                                        code 1 if they differ
       make_vectors.py --dump NAME      annotated hexdump of a vector, as in section 14 of lmc-format.md

The encoder in here is naive and makes whatever choices it is told to, so that it writes valid files that no sensible encoder
would. It shares no code with lmc_decode.py. An invalid vector is a valid file with one field or rule broken and everything
that depends on it (CRCs, index, sizes) made right again. SPDX-License-Identifier: MIT
"""
import fnmatch
import fractions
import functools
import hashlib
import heapq
import json
import os
import re
import shutil
import struct
import sys

import frozen_trees

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_BIN = 20000                            # bytes; larger expected outputs are given by their SHA-256 only
UNKNOWN = (1 << 64) - 1


class Random:
    """xorshift64*, so that the vectors do not depend on the library of any Python version."""

    def __init__(self, seed):
        self.state = seed * 0x9E3779B97F4A7C15 + 1 & UNKNOWN

    def below(self, n):
        x = self.state
        x ^= x >> 12
        x = (x ^ x << 25) & UNKNOWN
        self.state = x = x ^ x >> 27
        return (x * 0x2545F4914F6CDD1D & UNKNOWN) * n >> 64

    def data(self, n):
        return bytes(self.below(256) for _ in range(n))

    def pick(self, items):
        return items[self.below(len(items))]


# ---- CRC, identities ----

CRC_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ 0x82F63B78 * (_byte & 1)
    CRC_TABLE.append(_byte)


@functools.lru_cache(maxsize=64)
def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = CRC_TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def identity_of_tensor(dtype, shape, data):
    leaves = [crc(data[i:i + 262144]) for i in range(0, len(data), 262144)]
    return hashlib.sha256(b"LMC tensor 1\0" + struct.pack("<%dI" % len(leaves), *leaves) + bytes([len(dtype)]) + dtype
                          + bytes([len(shape)]) + struct.pack("<%dQ" % (len(shape) + 1), *shape, len(data))).digest()


def identity_of_snapshot(items):
    return hashlib.sha256(b"LMC snapshot 1\0" + b"".join(
        struct.pack("<I", len(name)) + name + identity for name, identity in sorted(items))).digest()


# ---- Lists, trees and masks: every function returns a list of (note, bytes) ----

def pack_bits(bits, dirty=0):
    """dirty: value of the unused bits."""
    bits = list(bits) + [dirty] * (-len(bits) % 8)
    return bytes(sum(bits[i + j] << j for j in range(8)) for i in range(0, len(bits), 8))


class Tree:
    """symbols: in the order of the leaves, None for the escape. to_escape: coded symbols that go through the escape all the same."""

    def __init__(self, lengths, escape=None, masks=None, to_escape=(), order=None):
        leaves = sorted((length, order.index(s) if order else s, s) for s, length in lengths.items())
        self.leaves = [(length, s) for length, _, s in leaves] + ([(escape, None)] if escape else [])
        self.lengths, self.escape, self.masks, self.to_escape = lengths, escape, masks or raw_masks, set(to_escape)

    def header(self, **change):
        """Tree_Header; change: first, count_minus_1, pad (unused high half), fields (the list of lengths)."""
        first, last = min(self.lengths), max(self.lengths)
        fields = [self.lengths.get(s, 0) for s in range(first, last + 1)] + ([self.escape] if self.escape is not None else [])
        fields = change.get("fields", fields)
        halves = fields + [change.get("pad", 0)] * (len(fields) % 2)
        return [("First", bytes([change.get("first", first)])), ("Count_Minus_1", bytes([change.get("count_minus_1", last - first)])),
                ("Lengths " + " ".join(map(str, fields)), bytes(halves[i] | halves[i + 1] << 4 for i in range(0, len(halves), 2)))]

    def codes(self):
        codes, start = {}, 0
        for length, s in self.leaves:
            codes[s] = (length, start >> 15 - length)
            start += 1 << 15 - length
        assert start == 1 << 15, "incomplete code"
        return codes

    def nodes(self, data, nesting=0, dirty_flat=0):
        codes = self.codes()
        elements = [(s, codes[s if s in codes and s not in self.to_escape else None]) for s in data]
        return self.node(0, 0, elements, nesting, dirty_flat)

    def node(self, depth, prefix, elements, nesting, dirty_flat):
        n = len(elements)
        if n == 0:
            return []
        own, start = [], 0
        for length, s in self.leaves:
            if start >> 15 - depth == prefix:
                own.append((length, s))
            start += 1 << 15 - length
        name = "Node(%d, %s, %d)" % (depth, format(prefix, "0%db" % depth) if depth else "-", n)
        if len(own) == 1:
            return [(name + ": the escape's elements", bytes(s for s, _ in elements))] if own[0][1] is None else []
        extra = own[0][0] - depth
        if own[-1][1] is not None and own[-1][0] == own[0][0] and 2 <= extra <= 6:
            index = [code & (1 << extra) - 1 for _, (_, code) in elements]
            return [(name + ": flat, bits %d" % (extra - 1 - j), pack_bits([i >> extra - 1 - j & 1 for i in index], dirty_flat))
                    for j in range(extra)]
        bits = [code >> length - depth - 1 & 1 for _, (length, code) in elements]
        parts = encode_mask(bits, nesting, self.masks, depth)
        parts[0] = (name + ": " + parts[0][0], parts[0][1])
        for side in (0, 1):
            parts += self.node(depth + 1, prefix << 1 | side, [e for e, bit in zip(elements, bits) if bit == side], nesting, dirty_flat)
        return parts


POPCOUNT_ORDER = sorted(range(256), key=lambda s: (bin(s).count("1"), s))
FROZEN = []
for _row in frozen_trees.table():
    _lengths = [length + 1 for length in range(15) for _ in range(_row[length])]
    FROZEN.append(dict(zip(POPCOUNT_ORDER, _lengths)))


# A policy for masks: (number of bits, nesting, depth) -> 0 (raw) or 1 + 2 * level + polarity, or (that, dirty bit).
def raw_masks(n, nesting, depth):
    return 0


def nested_masks(*modes):
    """Mode by nesting, the last for all deeper ones."""
    return lambda n, nesting, depth: modes[min(nesting, len(modes) - 1)]


def encode_mask(bits, nesting, policy, depth=0):
    n, mode = len(bits), policy(len(bits), nesting, depth)
    mode, dirty = mode if isinstance(mode, tuple) else (mode, 0)
    if n < 256 or nesting == 3:
        return [("mask", pack_bits(bits, dirty))]
    if mode == 0 or mode > 2 * len(FROZEN):
        return [("mask, Mode", bytes([mode])), ("bits", pack_bits(bits, dirty))]
    packed = pack_bits(bits, dirty)
    if mode - 1 & 1:
        packed = bytes(255 - b for b in packed)
    tree = Tree(FROZEN[mode - 1 >> 1], masks=policy, order=POPCOUNT_ORDER)
    return [("mask, Mode: nested, level %d, polarity %d" % (mode - 1 >> 1, mode - 1 & 1), bytes([mode]))] + tree.nodes(packed, nesting + 1)


# Coders of a plane: plane -> parts.
def raw(plane):
    return [("Mode raw", b"\0"), ("bytes", bytes(plane))]


def constant(plane):
    assert len(set(plane)) == 1
    return [("Mode constant", b"\1"), ("value", bytes(plane[:1]))]


def tree(lengths, escape=None, masks=None, to_escape=(), dirty_flat=0, **change):
    coder = Tree(lengths, escape, masks, to_escape)

    def encode(plane):
        # change breaks the header; what follows is right all the same, for a decoder that does not look closely
        return [("Mode tree" + (" with escape" if escape else ""), bytes([3 if escape is not None else 2]))] + coder.header(**change) + coder.nodes(
            plane, 0, dirty_flat)
    return encode


def literal(*parts):
    return lambda plane: [("bytes", bytes(part)) for part in parts]


def guess(plane):
    return constant(plane) if len(set(plane)) == 1 else raw(plane)


def fitted(plane, masks=None):
    """Constant, or the least of raw, the tree that Huffman finds, and one with nothing but the most frequent symbol and the escape."""
    if len(set(plane)) == 1:
        return constant(plane)
    heap = [(plane.count(s), s, {s: 0}) for s in sorted(set(plane))]
    heapq.heapify(heap)
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (a[0] + b[0], min(a[1], b[1]), {s: length + 1 for s, length in merged(a[2], b[2]).items()}))
    often = max(sorted(set(plane)), key=plane.count)
    return min(raw(plane), tree(heap[0][2], masks=masks)(plane), tree({often: 1}, 1, masks)(plane), key=lambda parts: len(join(parts)))


# ---- Blocks ----

class Block:
    """data and payload (a list of parts) of a block; base: the bytes of its prediction, None if its Prediction is 0."""

    def __init__(self, data, width=1, residual=0, layout=0, payload=None, joint=0, base=None, grouping=0):
        self.data, self.width, self.residual, self.layout, self.joint = bytes(data), width, residual, layout, joint
        self.base, self.grouping = base, grouping
        self.payload = [("the bytes", self.data)] if payload is None else payload

    def size(self):
        return len(join(self.payload))


def stored(data, width=1):
    return Block(data, width)


def planes(lists, coders=None, residual=0):
    """A block from the bytes of its planes."""
    width, bits = len(lists), 8 * len(lists)
    data = bytearray()
    for column in zip(*lists):
        r = int.from_bytes(bytes(column), "little")
        data += (r >> 1 | (r & 1) << bits - 1 if residual else r).to_bytes(width, "little")
    payload = []
    for p, plane in enumerate(lists):
        parts = (coders or {}).get(p, guess)(plane)
        payload += [("plane %d: %s" % (p, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(data, width, residual, 1, payload)


def joint_rest(values, joint):
    """Section 7.4: the packed values, as many as k * q."""
    rows = 8 // joint
    row = len(values) // rows
    packed = bytearray(values[:row * (rows - 1)])
    for i, value in enumerate(values[row * (rows - 1):]):
        for c in range(rows - 1):
            packed[c * row + i] |= (value >> c * joint & (1 << joint) - 1) << 8 - joint
    return bytes(packed)


def joint_planes(lists, joint, offset, coders=None, residual=0, beyond=()):
    """The same with Joint; lists[-1] holds the symbols, lists[-2] the rest. beyond: pairs of place and value behind the elements."""
    n, rows = len(lists[0]), 8 // joint
    wide = [(offset + symbol) % (256 << joint) for symbol in lists[-1]]
    split = lists[:-2] + [bytes(t << 8 - joint & 255 | v for t, v in zip(wide, lists[-2])), bytes(t >> joint for t in wide)]
    values = list(lists[-2]) + [0] * (-n % rows)
    for at, value in beyond:
        values[n + at] = value
    payload = [("Offset %d" % offset, struct.pack("<H", offset))]
    for p, plane in enumerate(lists):
        if p == len(lists) - 2:
            payload.append(("Rest", joint_rest(values, joint)))
            continue
        parts = (coders or {}).get(p, guess)(plane)
        payload += [("plane %d: %s" % (p, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(planes(split, {}, residual).data, len(lists), residual, 1, payload, joint)


def plane_block(plane, coder, width=1, at=0, residual=0):
    """One plane with content, the others constant."""
    return planes([plane if p == at else bytes([17 * p]) * len(plane) for p in range(width)], {at: coder}, residual)


METHOD_LOG, METHOD_SIGNED, METHOD_TABLE = 1, 2, 4


def quantised(symbols, width, method=0, low_bits=0, least=0, step=0, bias=0, floor=0, table=(), scales=(), group_size=None, first_group=None,
              exceptions=None, base=None, coders=None, low=None, high=None):
    """Section 7.6: a block of these symbols. scales: the number g of each group, until they end. exceptions: values by position. coders: of "low",
    "high", "scales low" and "scales high". low, high: lists instead of those that the symbols say. Ranges are not checked: those of invalid
    vectors are out of them, and the data is what a decoder would find that did not look closely."""
    n, coders, exceptions = len(symbols), coders or {}, exceptions or {}
    group_size = (0 if base else n) if group_size is None else group_size
    first_group = group_size if first_group is None else first_group
    payload = [("Method", bytes([method])), ("Low_Bits", bytes([low_bits])), ("Table_Size", struct.pack("<H", len(table))),
               ("Min", struct.pack("<i", least)), ("Step", struct.pack("<I", step)), ("Bias", struct.pack("<i", bias)),
               ("Floor", struct.pack("<I", floor)), ("Group_Size", struct.pack("<I", group_size)), ("First_Group", struct.pack("<I", first_group)),
               ("N_Exceptions", struct.pack("<I", len(exceptions))), ("Table", struct.pack("<%dH" % len(table), *table)),
               ("Positions", b"".join(struct.pack("<I", i) for i in exceptions)),
               ("Values", b"".join(value.to_bytes(width, "little") for value in exceptions.values()))]
    payload = [(name, data) for name, data in payload if data]
    lists = []
    if base is None:
        group_of, count, left = [], 0, first_group
        for _ in range(n):
            if left == 0:
                count, left = count + 1, group_size
            group_of.append(count)
            left -= 1
        numbers = [scales[i % len(scales)] for i in range(count + 1)]
        scale_of = [numbers[i] << 16 for i in group_of]
        lists = [("scales low", bytes(g & 255 for g in numbers)), ("scales high", bytes(g >> 8 for g in numbers))]
    else:
        magnitudes = [(p << 32 - 8 * width) % (1 << 31) for p in split(base, width)]
        scale_of = [sorted([0x800000, (max(p, floor) >> 1) + bias, 0x77000000])[1] >> 16 << 16 for p in magnitudes]
    if low_bits:
        lists.append(("low", low or bytes(s & min((1 << low_bits) - 1, 255) for s in symbols)))
    lists.append(("high", high or bytes([0, *table].index(s) if table else s >> low_bits for s in symbols)))
    for name, plane in lists:
        parts = coders.get(name, fitted)(plane)
        payload += [("%s: %s" % (name, parts[0][0]), parts[0][1])] + parts[1:]
    data = b"".join(element_of(s, g, method, least, step) for s, g in zip(symbols, scale_of))
    if width == 2:
        data = convert(data, 1)
    data = bytearray(data)
    for i, value in exceptions.items():
        data[i * width:i * width + width] = value.to_bytes(width, "little")
    return Block(data, width, 0, 2, payload, 0, base)


def element_of(symbol, scale, method, least, step):
    """An F32; by the floats of the machine, where a decoder would take integers: their products are exact."""
    if symbol == 0:
        return bytes(4)
    t, negative = symbol - 1, 0
    if method & METHOD_SIGNED:
        t, negative = divmod(t, 2)
    if method & METHOD_LOG:
        return struct.pack("<I", negative << 31 | sorted([0x800000, scale + (least + t) * step, 0x7F7F0000])[1])
    return struct.pack("<f", (least + t) * struct.unpack("<f", struct.pack("<I", scale))[0])


def altered(block, **parts):
    """With other parts of the payload, found by their names or the first words of them (_ for a space): bytes, or a number of the same size."""
    payload, used = [], set()
    for note, data in block.payload:
        for name, new in parts.items():
            if note == name or note.startswith(name.replace("_", " ") + ":"):
                used.add(name)
                data = (new % (1 << 8 * len(data))).to_bytes(len(data), "little") if isinstance(new, int) else new
        payload.append((note, data))
    assert used == set(parts), "no such parts: %s" % (set(parts) - used)
    return Block(block.data, block.width, block.residual, block.layout, payload, block.joint, block.base, block.grouping)


def split(data, width):
    return [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]


def residual_of(x, b, width, subtract):
    """Section 7.2, the encoder's side."""
    if not subtract:
        return x ^ b
    top = 1 << 8 * width - 1
    x ^= b & top
    d = (x if x < top else x ^ top - 1) - (b & top - 1) & 2 * top - 1
    return (d << 1 & 2 * top - 1) ^ (2 * top - 1 if d >= top else 0)


def key_of(b, width):
    """The top byte after the sign has gone round to the other end."""
    bits = format(b, "0%db" % (8 * width))
    return int((bits[1:] + bits[0])[:8], 2)


def predicted(data, base, width, residual=1, thresholds=(), sparse=False, natural=0, coders=None, masks=None, coded=None, padding=0):
    """A block against base (None: against zero). coders: by plane, or by class and plane. masks: a policy. coded: which residuals are stored
    though Sparse, default those that are not zero. padding: of the masks."""
    r = [residual_of(x, b, width, residual) for x, b in zip(split(data, width), split(base or bytes(len(data)), width))]
    keys = [key_of(b, width) for b in split(base or bytes(len(data)), width)]
    classes = [[i for i, key in enumerate(keys) if sum(t <= key for t in thresholds) == c] for c in range(len(thresholds) + 1)]
    grouping = len(thresholds) | sparse << 3 | natural << 4
    payload = [("Thresholds", bytes(thresholds))] if thresholds else []
    for c, members in enumerate(classes):
        if sparse and members:
            bits = [int(bool(coded(r[i]) if coded else r[i])) for i in members]
            policy = masks or raw_masks
            dirty = lambda n, nesting, depth: policy(n, nesting, depth) if nesting else (policy(n, nesting, depth), padding)
            parts = encode_mask(bits, 0, dirty)
            payload += [("class %d: %s" % (c, parts[0][0]), parts[0][1])] + parts[1:]
            classes[c] = [i for i, bit in zip(members, bits) if bit]
    plane = lambda members, p: bytes(r[i] >> 8 * p & 255 for i in members)
    payload += [("natural plane %d" % p, plane(range(len(r)), p)) for p in range(natural)]
    for c, members in enumerate(classes):
        for p in range(natural, width) if members else ():
            coder = (coders or {}).get((c, p)) or (coders or {}).get(p, fitted)
            parts = coder(plane(members, p))
            name = "class %d, plane %d" % (c, p) if grouping else "plane %d" % p
            payload += [("%s: %s" % (name, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(data, width, residual, 1, payload, 0, base, grouping)


def convert(data, conversion):
    """F32 to BF16 (1) or F16 (2), the other way than a decoder would: by looking for the nearest number."""
    return b"".join(convert_one(x, conversion) for x in split(data, 4))


@functools.lru_cache(maxsize=None)
def convert_one(x, conversion):
    exponent_bits, mantissa_bits = ((8, 7), (5, 10))[conversion - 1]
    infinity = (1 << exponent_bits) - 1 << mantissa_bits
    bias = (1 << exponent_bits - 1) - 1

    def value(bits, bias, mantissa_bits):
        exponent, mantissa = bits >> mantissa_bits, bits & (1 << mantissa_bits) - 1
        power = max(exponent, 1) - bias - mantissa_bits
        return fractions.Fraction(mantissa + ((exponent > 0) << mantissa_bits)) * fractions.Fraction(2) ** power

    sign, x = x >> 31, x & 0x7FFFFFFF
    if x >= 0x7F800000:
        m = x & 0x7FFFFF
        found = infinity | (m and m >> 23 - mantissa_bits | 1 << mantissa_bits - 1)
    else:
        exact, low, high = value(x, 127, 23), 0, infinity
        while low < high:                      # the last pattern not above
            middle = (low + high + 1) // 2
            low, high = (middle, high) if value(middle, bias, mantissa_bits) <= exact else (low, middle - 1)
        rest = exact - value(low, bias, mantissa_bits)
        half = (value(low + 1, bias, mantissa_bits) - value(low, bias, mantissa_bits)) / 2
        found = min(low + (rest > half or rest == half and low & 1), infinity)
    return (found | sign << exponent_bits + mantissa_bits).to_bytes(2, "little")


# ---- Files ----

class Src:
    """A source file. size: what the FILE section says, default the truth."""

    def __init__(self, path=b"", data=b"", tensors=(), kind=0, mode=None, mtime=None, size=None):
        self.path, self.data, self.tensors, self.kind, self.mode, self.mtime = path, bytes(data), list(tensors), kind, mode, mtime
        self.size = len(self.data) if size is None else size


def T(name, dtype, shape, offset, size, loss=(0, 0, 0)):
    """loss: Generation, Measure, Error."""
    return (name, dtype, tuple(shape), offset, size, loss)


class Run:
    """blocks: in order. segments: (file, offset, size) or, with prediction, (file, offset, size, Base, Base_Offset); default one with what
    comes next, and base as its last two."""

    def __init__(self, blocks, segments=None, log2=14, prediction=0, conversion=0, base=()):
        self.blocks, self.segments, self.log2, self.prediction, self.conversion, self.base = blocks, segments, log2, prediction, conversion, base


class Base:
    """A snapshot that others are coded against; paths: of what has it, below vectors."""

    def __init__(self, files, paths, depth=0):
        contents = sorted(contents_of(files))
        self.paths, self.depth, self.identity = paths, depth, identity_of_snapshot(items_of(files))
        self.names, self.items = [name for name, _, _ in contents], [data for _, _, data in contents]

    def item(self, name):
        """As a segment's Base has it."""
        return self.names.index(name) + 1


FIELD = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Builder:
    """Packs the parts of a file. patch: {"header.Flags": 3, ...}: a field's value, or a function of the right one."""

    def __init__(self, patch=None):
        self.out, self.notes, self.patch, self.used = bytearray(), [], dict(patch or {}), set()

    def value(self, name, value):
        if name not in self.patch:
            return value
        self.used.add(name)
        new = self.patch[name]
        return new(value) if callable(new) else new

    def pack(self, owner, *fields):
        """fields: (name, size, value) or (name, bytes). Returns parts."""
        parts = []
        for field in fields:
            value = self.value(owner + "." + field[0], field[-1])
            if isinstance(value, int):
                value = struct.pack("<" + FIELD[field[1]], value & (1 << 8 * field[1]) - 1)
            parts.append(("%s" % field[0], value))
        return parts

    def with_crc(self, owner, name, parts, prefix=b""):
        return parts + self.pack(owner, (name, 4, crc(prefix + join(parts))))

    def add(self, parts):
        for note, data in parts:
            if data:
                self.notes.append((note, data))
            self.out += data

    def section(self, owner, kind, number, body):
        data = join(body)
        head = self.pack(owner, ("Kind", kind), ("Number", 4, number), ("Body_Size", 8, len(data)))
        head = self.with_crc(owner, "Head_CRC", head) + self.pack(owner, ("Body_CRC", 4, crc(data)))
        self.add(head + body)
        return join(head + body)


def join(parts):
    return b"".join(data for _, data in parts)


def prediction_of(run, segments, sources, base):
    """The bytes that the segments point to."""
    pieces = []
    for _, _, size, number, start in segments:
        if number == 0:
            pieces.append(bytes(size))
        elif run.prediction == 1:
            pieces.append(base.items[number - 1][start:start + size])
        elif run.conversion:
            pieces.append(convert(sources[number - 1].data[start:start + 2 * size], run.conversion))
        else:
            pieces.append(sources[number - 1].data[start:start + size])
    return b"".join(pieces)


def check_predictions(blocks, prediction):
    at = 0
    for block in blocks:
        assert block.base is None or block.base == prediction[at:at + len(block.data)], "a block against another base"
        at += len(block.data)


def build(items, metadata=(), patch=None, index=True, trailer=True, reorder=False, base=None):
    """items: Src and Run in order. Returns the Builder, with .files for the manifest."""
    b = Builder(patch)
    sources = [item for item in items if isinstance(item, Src)]
    sequential = not any(isinstance(item, Run) and item.prediction == 2 for item in items)
    header = b.pack("header", ("Magic", bytes.fromhex("8C4C4D430D0A1A0A")), ("Format_Major", 1, 0), ("Format_Minor", 1, 4), ("Header_Size", 2, 80),
                    ("Flags", 4, int(sequential)), ("Incompatible", 8, 0), ("Compatible", 8, 0),
                    ("Base_Identity", base.identity if base else bytes(32)), ("Chain_Depth", 4, base.depth + 1 if base else 0), ("Reserved", 8, 0))
    b.add(b.with_crc("header", "Header_CRC", header))
    entries, files, runs = [], [], []
    for item in items:
        offset = len(b.out)
        if isinstance(item, Src):
            owner = "file%d" % len(files)
            copy = b.section(owner, b"FILE", len(files), file_body(b, owner, item))
            files.append(item)
            item.done = 0
            entries.append((offset, copy, item))
        else:
            owner, run = "run%d" % len(runs), item
            size = sum(len(block.data) for block in run.blocks)
            segments = run.segments
            if segments is None:
                segments = [(len(files) - 1, files[-1].done if files else 0, size) + tuple(run.base)]
            segments = [(s + (0, 0))[:5] for s in segments]
            if run.prediction:
                check_predictions(run.blocks, prediction_of(run, segments, sources, base))
            body = b.pack(owner, ("Run_Size", 8, sum(s[2] for s in segments)), ("Log2_Block_Size", 1, run.log2), ("Prediction", 1, run.prediction),
                          ("Conversion", 1, run.conversion), ("Reserved", 1, 0), ("N_Segments", 4, len(segments)))
            for i, (number, start, length, item, base_start) in enumerate(segments):
                body += b.pack("segment%d.%d" % (len(runs), i), ("File", 4, number), ("Base", 4, item), ("Offset", 8, start), ("Size", 8, length),
                               ("Base_Offset", 8, base_start))
            copy = b.section(owner, b"RUN ", len(runs), body)
            blocks = []
            for i, block in enumerate(run.blocks):
                blocks.append(add_block(b, "block%d.%d" % (len(runs), i), (len(runs), i), block))
            if files:
                files[-1].done += size
            entries.append((offset, copy, blocks))
            runs.append(run)
    index_offset = len(b.out)
    if reorder:
        entries.reverse()
    if index:
        b.section("index", b"INDX", 0, index_body(b, files, runs, entries, metadata))
    if trailer:
        parts = b.pack("trailer", ("Index_Offset", 8, index_offset), ("Index_Size", 8, len(b.out) - index_offset),
                       ("Total_Size", 8, len(b.out) + 40), ("Reserved", 4, 0))
        b.add(b.with_crc("trailer", "Trailer_CRC", parts) + b.pack("trailer", ("End_Magic", bytes.fromhex("8D4C4D430D0A1A0A"))))
    assert b.used == set(b.patch), "patches without effect: %s" % (set(b.patch) - b.used)
    b.files, b.metadata, b.base = files, metadata, base
    return b


def file_body(b, owner, f):
    seconds, nanoseconds = f.mtime or (0, 0)
    body = b.pack(owner, ("File_Size", 8, f.size), ("File_Kind", 1, f.kind), ("Attributes", 1, (f.mode is not None) + 2 * (f.mtime is not None)),
                  ("Reserved", 2, 0), ("Mode", 4, f.mode or 0), ("Mtime_Seconds", 8, seconds), ("Mtime_Nanoseconds", 4, nanoseconds),
                  ("Path_Size", 4, len(f.path)), ("N_Tensors", 4, len(f.tensors)), ("Path", f.path))
    for i, (name, dtype, shape, offset, size, (generation, measure, error)) in enumerate(f.tensors):
        body += b.pack("tensor%s.%d" % (owner[4:], i), ("Offset", 8, offset), ("Size", 8, size), ("Name_Size", 4, len(name)),
                       ("Dtype_Size", 1, len(dtype)), ("Rank", 1, len(shape)), ("Generation", 1, generation), ("Measure", 1, measure),
                       ("Shape", struct.pack("<%dQ" % len(shape), *shape)), ("Name", name), ("Dtype", dtype),
                       ("Error", struct.pack("<I", error) if generation else b""))
    return body + b.pack(owner, ("Extra", b"")) if owner + ".Extra" in b.patch else body


def add_block(b, owner, position, block):
    payload = join(block.payload)
    coding = (1, 2, 4, 8).index(block.width) | block.residual << 2 | block.joint << 3 | block.layout << 5
    head = b.pack(owner, ("Sync", 1, 0xB1), ("Coding", 1, coding), ("Prediction", 1, int(block.base is not None)),
                  ("Grouping", 1, block.grouping),
                  ("N_Elements", 4, len(block.data) // block.width), ("Payload_Size", 4, len(payload)), ("Content_CRC", 4, crc(block.data)),
                  ("Base_CRC", 4, 0 if block.base is None else crc(block.base)))
    head = b.with_crc(owner, "Header_CRC", head, struct.pack("<II", *b.value(owner + ".Position", position)))
    b.add(head + block.payload)
    return len(join(head)) + len(payload), struct.unpack("<I", join(head)[20:24])[0]


def contents_of(files):
    """Names, identities and bytes of the snapshot's items."""
    for f in files:
        for name, dtype, shape, offset, size, _ in f.tensors:
            data = f.data[offset:offset + size]
            yield name, identity_of_tensor(dtype, shape, data), data
        if not f.tensors:
            yield f.path, identity_of_tensor(b"U8", (len(f.data),), f.data), f.data


def items_of(files):
    return ((name, identity) for name, identity, _ in contents_of(files))


def index_body(b, files, runs, entries, metadata):
    body = b.pack("index", ("N_Files", 4, len(files)), ("N_Runs", 4, len(runs)), ("Snapshot_Identity", identity_of_snapshot(items_of(files))),
                  ("N_Metadata", 4, len(metadata)), ("Reserved", 4, 0))
    for i, (offset, copy, what) in enumerate(entries):
        owner = "entry%d" % i
        body += b.pack(owner, ("Offset", 8, offset), ("Copy", copy))
        if isinstance(what, Src):
            body += b.pack(owner, ("File_Size", 8, len(what.data)), ("File_CRC", 4, crc(what.data)), ("Reserved", 4, 0))
            for j, (_, identity) in enumerate(items_of([what])):
                body += b.pack(owner, ("Identity%d" % j, identity))
        else:
            for j, (size, header_crc) in enumerate(what):
                body += b.pack(owner, ("Size%d" % j, 4, size), ("Header_CRC%d" % j, 4, header_crc))
    for i, (key, value) in enumerate(metadata):
        body += b.pack("metadata%d" % i, ("Key_Size", 4, len(key)), ("Value_Size", 4, len(value)), ("Key", key), ("Value", value))
    return body + b.pack("index", ("Extra", b"")) if "index.Extra" in b.patch else body


def one(*blocks, **options):
    """A snapshot of one nameless file; each block is a run of its own."""
    return build([Src(data=b"".join(block.data for block in blocks))] + [Run([block]) for block in blocks], **options)


# ---- The set ----

class Vectors:
    def __init__(self):
        self.outputs, self.manifest, self.builders = {}, {"format": "0.4", "valid": [], "invalid": []}, {}

    def valid(self, name, section, what, b, bases=None):
        """bases: paths of what the decoder is given, if not just the one."""
        entry = {"name": name, "section": section, "exercises": what, "size": len(b.out), "sha256": hashlib.sha256(b.out).hexdigest(),
                 "base": b.base.paths if b.base and bases is None else bases or [],
                 "base_identity": b.base.identity.hex() if b.base else None,
                 "identity": identity_of_snapshot(items_of(b.files)).hex(), "files": []}
        for f in b.files:
            item = text("path", f.path)
            item.update({"kind": "directory" if f.kind else "regular", "size": len(f.data), "sha256": hashlib.sha256(f.data).hexdigest(),
                         "mode": f.mode, "mtime": f.mtime, "tensors": []})
            for t, (_, identity) in zip(f.tensors, items_of([f])):
                item["tensors"].append(dict(text("name", t[0]), dtype=t[1].decode(), shape=t[2], offset=t[3], size=t[4], identity=identity.hex(),
                                            loss=t[5]))
            if not f.tensors:
                item["identity"] = next(items_of([f]))[1].hex()
            entry["files"].append(item)
        entry["metadata"] = [dict(text("key", key), **text("value", value)) for key, value in b.metadata]
        if len(b.files) == 1 and not b.files[0].kind and len(b.files[0].data) <= LARGEST_BIN:
            entry["output"] = "valid/%s.bin" % name
            self.outputs[entry["output"]] = b.files[0].data
        self.put(name, "valid", entry, b.out)
        self.builders[name] = b

    def invalid(self, name, section, rule, status, data, bases=None):
        """status: a name, or several where decoders may differ. bases: as above."""
        base = data.base if isinstance(data, Builder) else None
        data = data.out if isinstance(data, Builder) else data
        entry = {"name": name, "section": section, "breaks": rule, "status": status if isinstance(status, list) else [status],
                 "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "base": base.paths if base and bases is None else bases or []}
        self.put(name, "invalid", entry, data)

    def base(self, path, data):
        """A base that is no vector itself; data None: it is one."""
        if data is not None:
            assert path not in self.outputs, path
            self.outputs[path] = bytes(data)
        return path

    def put(self, name, kind, entry, data):
        path = "%s/%s.lmc" % (kind, name)
        assert path not in self.outputs, name
        self.outputs[path] = bytes(data)
        self.manifest[kind].append(entry)


def text(name, data):
    """A byte string for JSON: as text if it is UTF-8, else in hexadecimal under name_hex."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_hex": data.hex()}


def even(symbols, length=None):
    """All symbols of the same length."""
    length = length or (len(symbols) - 1).bit_length()
    return {s: length for s in symbols}


def merged(lengths, more):
    lengths = dict(lengths)
    lengths.update(more)
    return lengths


def draw(random, lengths, n, others=()):
    """n symbols, each about as often as its code is short; the others about 1 in 32."""
    symbols = sorted(lengths)
    shortest = min(lengths.values())
    pool = [s for s in symbols for _ in range(max(1, 16 >> lengths[s] - shortest))]
    return bytes(random.pick(others) if others and random.below(32) == 0 else random.pick(pool) for _ in range(n))


def random_code(random, n_leaves):
    """Lengths of a complete code."""
    lengths = [0]
    while len(lengths) < n_leaves:
        i = random.below(len(lengths)) if random.below(3) else len(lengths) - 1
        if lengths[i] < 15:
            lengths[i] += 1
            lengths.insert(i, lengths[i])
    return sorted(lengths)


def random_block(random):
    width, n = 1 << random.below(4), 3 + random.below(60 if random.below(2) else 900)
    lists, coders = [], {}

    def policy(n_bits, nesting, depth):
        return random.below(19) if random.below(3) else 0

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
    block = planes(lists, coders, random.below(2))
    return block if len(join(block.payload)) < len(block.data) else stored(block.data, width)


def valid_vectors(v):
    r = Random(1)
    # 4, 5.1: header, files
    v.valid("file_empty", "5.1", "one empty file: no run at all", build([Src()]))
    v.valid("not_sequential", "4", "Sequential 0, though no run is predicted: an encoder that did not know it yet",
            one(stored(b"pipe"), patch={"header.Flags": 0}))
    v.valid("compatible_bits", "4", "all Compatible bits set: they do not matter",
            one(stored(b"compatible"), patch={"header.Compatible": UNKNOWN}))
    v.valid("file_unknown_size", "5.1", "File_Size unknown in the FILE section",
        build([Src(b"pipe", b"from a pipe", size=UNKNOWN), Run([stored(b"from a pipe")])]))
    v.valid("file_unknown_size_empty", "5.1", "File_Size unknown, and zero in the index", build([Src(size=UNKNOWN)]))
    v.valid("file_mode_mtime", "5.1", "Mode and Mtime valid",
        build([Src(b"m", b"mode", mode=0o640, mtime=(1700000000, 123456789)), Run([stored(b"mode")])]))
    v.valid("file_mode_only", "5.1", "Mode valid, with the set-user-ID bit; Mtime not",
        build([Src(b"m", b"mode", mode=0o4755), Run([stored(b"mode")])]))
    v.valid("file_mtime_negative", "5.1", "Mtime before 1970", build([Src(b"m", b"old", mtime=(-2, 999999999)), Run([stored(b"old")])]))
    v.valid("file_mtime_limits", "5.1", "Mtime_Seconds -2^63", build([Src(b"m", b"older", mtime=(-1 << 63, 0)), Run([stored(b"older")])]))
    v.valid("directory_only", "5.1", "a snapshot of one empty directory", build([Src(b"empty", kind=1)]))
    v.valid("directory_root", "5.1", "a directory with an empty path: the snapshot is an empty directory", build([Src(b"", kind=1)]))
    v.valid("directory_mode", "5.1", "an empty directory with Mode and Mtime beside a file", build([
        Src(b"d/e", kind=1, mode=0o750, mtime=(1600000000, 5)), Src(b"f", b"file"), Run([stored(b"file")])]))
    v.valid("files_several", "5.1", "several files, empty ones among them, in no order of their paths", build([
        Src(b"z/last", b"one"), Run([stored(b"one")]), Src(b"a/empty"), Src(b"a/b/c/deep", b"three"), Run([stored(b"th")]), Run([stored(b"ree")]),
        Src(b"dir", kind=1), Src(b"zz")]))
    v.valid("paths_odd", "5.1", "legal paths of odd looks", build([
        item for path in (b"...", b".hidden", b"a..b/..c", b"with space", "\u00e9\u4e2d".encode(), b"-dash", b"a/" + b"x" * 255, b"q\"'$*?")
        for item in (Src(path, path[:3]), Run([stored(path[:3])]))]))
    v.valid("path_not_utf8", "5.1", "a path that is not UTF-8", build([Src(b"\xff\xfe.bin", b"bytes"), Run([stored(b"bytes")])]))
    # 5.1: tensors
    names = [("BOOL", 8), ("U8", 8), ("I8", 8), ("F8_E5M2", 8), ("F8_E4M3", 8), ("F8_E8M0", 8), ("F8_E4M3FNUZ", 8), ("F8_E5M2FNUZ", 8), ("F4", 4),
             ("F6_E2M3", 6), ("F6_E3M2", 6), ("I16", 16), ("U16", 16), ("F16", 16), ("BF16", 16), ("I32", 32), ("U32", 32), ("F32", 32), ("C64", 64),
             ("F64", 64), ("I64", 64), ("U64", 64)]
    tensors, at = [], 3
    for name, bits in names:
        tensors.append(T(("t." + name).encode(), name.encode(), (2, 4), at, bits))
        at += bits
    data = r.data(at + 2)
    v.valid("tensors_dtypes", "5.1", "a tensor of every dtype, bytes before and after that belong to none",
        build([Src(b"x.safetensors", data, tensors), Run([stored(data)])]))
    data = r.data(60)
    v.valid("tensors_odd", "5.1", "unknown dtypes, rank 0 and 32, zero sizes, empty and odd names", build([Src(b"odd", data, [
        T(b"", b"F32", (), 0, 4), T(b"unknown", b"F7_E9M9", (3, 1 << 60), 4, 5), T(b"x" * 300, b"D" * 32, (), 9, 0),
        T(b"\xff\x01/../", b"I64", (1,) * 32, 9, 8),
        T(b"zero", b"BF16", (0,), 17, 0), T(b"zero too", b"F64", (1 << 63, 1 << 63, 0, UNKNOWN), 17, 0), T(b"gap", b"F4", (1, 2), 20, 1),
        T(b"lower", b"bf16", (9,), 21, 1), T(b"end", b"U8", (0,), 60, 0)]), Run([stored(data)])]))
    v.valid("tensors_same_name", "9.3", "tensors of the same name in two files; order of the items of the identity", build([
        Src(b"b", b"22", [T(b"w", b"U8", (2,), 0, 2)]), Run([stored(b"22")]), Src(b"w", b"no tensor"), Run([stored(b"no tensor")]),
        Src(b"a", b"11", [T(b"w", b"U8", (1,), 0, 1), T(b"w.b", b"U8", (1, 1), 1, 1)]), Run([stored(b"11")])]))
    v.valid("metadata", "10", "keys that are prefixes of others, empty and binary values", build([Src(data=b"m"), Run([stored(b"m")])], metadata=[
        (b"a", b""), (b"a b", b"text"), (b"ab", b"\0\1\2binary\xff"), (b"b", b"v" * 300), (b"\xff", b"\n")]))
    # 5.2: runs
    for log2 in range(14, 24):
        v.valid("run_log2_%d" % log2, "5.2", "Log2_Block_Size %d, one short block" % log2,
            build([Src(data=b"log2"), Run([stored(b"log2")], log2=log2)]))
    v.valid("run_blocks", "5.2", "three full blocks of different widths and a tail",
        build([Src(b"r", bytes(16384) + b"\1" * 16384 + b"\2" * 16384 + b"\3\4\5\6\7"), Run([
        planes([bytes(16384)]), planes([b"\1" * 2048] * 8), planes([b"\2" * 8192] * 2), stored(b"\3\4\5\6\7")])]))
    v.valid("run_exact", "5.2", "a run of exactly two blocks", build([Src(b"r", bytes(65536)), Run([planes([bytes(8192)] * 4)] * 2, log2=15)]))
    v.valid("run_segments", "5.2", "several segments in a run, several runs in a file, over tensor borders", build([
        Src(b"f", b"0123456789abcdef", [T(b"a", b"U8", (5,), 1, 5), T(b"b", b"U8", (9,), 7, 9)]),
        Run([stored(b"0123456789", 2)], [(0, 0, 1), (0, 1, 5), (0, 6, 4)]), Run([stored(b"a")]), Run([stored(b"bcdef")], [(0, 11, 2), (0, 13, 3)])]))
    v.valid("run_unknown_size", "5.2", "several runs in a file of unknown size, then another file", build([
        Src(b"p", bytes(20000) + b"tail", size=UNKNOWN), Run([planes([bytes(16384)]), planes([bytes(3616)])]), Run([stored(b"tail")]),
        Src(b"q", b"q"), Run([stored(b"q")])]))
    v.valid("block_largest", "7", "2^20 elements of 8 bytes in 16 bytes of payload",
        build([Src(data=b"\5" * (1 << 23)), Run([Block(b"\5" * (1 << 23), 8, 0, 1, [("eight constant planes", b"\1\5" * 8)])], log2=23)]))
    v.valid("block_most_elements", "7", "2^20 elements of one byte", build([Src(data=bytes(1 << 20)), Run([planes([bytes(1 << 20)])], log2=20)]))
    data = bytes(262144) + b"\1" * 262144 + b"\2" * 3
    v.valid("identity_leaves", "9.2", "tensors around the leaf size of identities", build([
        Src(b"f", data, [T(b"less", b"U8", (262143,), 0, 262143), T(b"more", b"U8", (262145,), 262143, 262145)]),
        Run([planes([data[i:i + 131072]] , {0: constant}) for i in range(0, 524288, 131072)] + [planes([b"\2\2\2"])], log2=17),
        Src(b"exact", bytes(262144)), Run([planes([bytes(131072)])] * 2, log2=17)]))
    # 7: stored, residuals, widths
    for width in (1, 2, 4, 8):
        v.valid("stored_w%d" % width, "7.1", "a stored block of width %d" % width, one(stored(r.data(3 * width), width)))
        v.valid("one_element_w%d" % width, "7.1", "N_Elements 1", one(stored(r.data(width), width)))
        for residual in (0, 1):
            lists = [r.data(21) if p else bytes([0x81]) * 21 for p in range(width)] if width > 1 else [b"\x81" * 21]
            v.valid("planes_w%d_%s" % (width, ("xor", "subtract")[residual]), "7.2", "width %d: raw and constant planes" % width,
                one(planes(lists, {}, residual)))
            lengths = {0x80: 1, 0x01: 2, 0xFF: 3, 0x7F: 3}
            lists = [draw(r, lengths, 200) for _ in range(width)]
            v.valid("trees_w%d_%s" % (width, ("xor", "subtract")[residual]), "7.2", "width %d: a tree in every plane" % width,
                    one(planes(lists, {p: tree(lengths) for p in range(width)}, residual)))
        for at in {0, width - 1}:
            lengths = {7: 1, 9: 2}
            plane = draw(r, lengths, 50, (0, 8, 255))
            v.valid("escape_w%d_plane%d" % (width, at), "7.2", "a tree with escape in plane %d, the others constant" % at,
                    one(plane_block(plane, tree(lengths, 2), width, at, 1)))
            if width > 1:
                v.valid("raw_w%d_plane%d" % (width, at), "7.2", "a raw plane %d, the others constant" % at,
                    one(plane_block(plane, raw, width, at, 1)))
    v.valid("raw_though_constant", "8", "a raw plane whose bytes are all equal", one(plane_block(bytes(9), raw, 2)))
    v.valid("planes_n2", "7.2", "two elements of 8 bytes cannot be planes; three of 8 bytes can",
        one(stored(r.data(16), 8), planes([b"abc"] + [b"\1\1\1"] * 7)))
    # 7.4: joint planes
    own = Random(73)                           # so that the vectors after these stay as they are
    for joint in (1, 2):
        lengths = {0: 2, 1: 2, 3: 2, 200: 3, 254: 4, 255: 4}
        rest = lambda n: bytes(own.below(256 >> joint) for _ in range(n))
        for width in (2, 4, 8):
            for residual in (0, 1):
                lists = [own.data(203) for _ in range(width - 2)] + [rest(203), draw(own, lengths, 203)]
                v.valid("joint%d_w%d_%s" % (joint, width, ("xor", "subtract")[residual]), "7.4", "Joint %d, width %d" % (joint, width),
                        one(joint_planes(lists, joint, 100 * joint, {width - 1: tree(lengths)}, residual)))
        for n in range(3, 13):
            v.valid("joint%d_n%d" % (joint, n), "7.4", "Joint %d, %d elements: the last row of Rest" % (joint, n),
                    one(joint_planes([b"\x51" * n] * 6 + [rest(n), b"\x52" * n], joint, 77, {}, 1)))
        for offset in sorted({0, 255, 256, (256 << joint) - 256, (256 << joint) - 255, (256 << joint) - 1}):
            v.valid("joint%d_offset_%d" % (joint, offset), "7.4", "Joint %d, Offset %d: sums modulo 2^%d" % (joint, offset, 8 + joint),
                    one(joint_planes([b"\3" * 90, b"\4" * 90, rest(90), draw(own, lengths, 90)], joint, offset, {3: tree(lengths)}, 1)))
        v.valid("joint%d_raw" % joint, "7.4", "Joint %d, the symbols are raw" % joint,
                one(joint_planes([b"\3" * 70, b"\4" * 70, rest(70), own.data(70)], joint, 5, {3: raw}, 1)))
        v.valid("joint%d_escape" % joint, "7.4", "Joint %d, an escape among the symbols; a tree in a lower plane" % joint,
                one(joint_planes([draw(own, {7: 1, 9: 2}, 300, (0, 8)), b"\4" * 300, rest(300), draw(own, {7: 1, 9: 2}, 300, (0, 255))], joint, 300,
                                 {0: tree({7: 1, 9: 2}, 2), 3: tree({7: 1, 9: 2}, 2)}, 1)))
    # 8.1, 8.2: trees
    def shape(name, what, lengths, escape=None, plane=None, n=64, others=(), **options):
        plane = plane if plane is not None else draw(r, lengths, n, others)
        width = options.pop("width", 8)        # so that the payload is smaller than the data whatever the tree costs
        v.valid("tree_" + name, "8.2", what, one(plane_block(plane, tree(lengths, escape, **options), width, width - 1)))

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
    v.valid("tree_flat_tail", "8.2", "flat lists of n bits, n = 1 .. 17 in one block each", one(*[
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
    # 8.3: masks
    two = {0: 1, 1: 1}

    def mask(name, what, n, ones, modes, width=1):
        """A list of zeros and ones, so that the root's mask is the list."""
        plane = bytes(1 if ones(i) else 0 for i in range(n))
        v.valid("mask_" + name, "8.3", what, build([Src(data=plane), Run([plane_block(plane, tree(two, masks=nested_masks(*modes)), width)],
            log2=17)]))

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
    mask("nesting_3", "nested three times", 20000, lambda i: i % 400 == 0, [19, 17, 13])
    mask("nesting_4", "nested three times; at nesting 3 masks of 256 bits and more have no Mode byte", 131072, lambda i: i % 3000 == 7, [19, 19, 19])
    mask("nesting_4_mixed", "as before, levels and polarities mixed", 131072, lambda i: i % 900 == 7, [20, 1, 12])
    plane = bytes(r.below(8) for _ in range(3000))
    v.valid("mask_by_depth", "8.3", "masks of a tree in modes that change with the depth",
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
                log2=14 + random.below(10)) for block in blocks]
        v.valid("random_%02d" % seed, "all", "random choices, seed %d" % seed,
            build(items, metadata=[(b"seed", b"%d" % seed)] if seed % 4 == 0 else []))
    # 14: worked examples
    bf16 = struct.pack("<4H", 0x3F80, 0xBF00, 0x0000, 0x4049)
    v.valid("example_stored", "14.1", "worked example: a bf16 tensor of four elements, stored",
            build([Src(b"w.bin", bf16, [T(b"w", b"BF16", (2, 2), 0, 8)]), Run([stored(bf16, 2)])]))
    plane = bytes.fromhex("7A7A797A787A7A777A7A7A7B797A7A107A76797A7A7D7A79")
    lengths = {0x76: 4, 0x77: 4, 0x78: 4, 0x79: 4, 0x7A: 1, 0x7B: 4, 0x7C: 4, 0x7D: 4}
    v.valid("example_tree", "14.2", "worked example: a block of 24 elements with a tree, a flat node and an escape",
            one(planes([b"\x40" * 24, plane], {1: tree(lengths, 4)}, 1)))


# ---- Deltas ----

SPECIALS = {                                   # sign, zero, subnormals, least and largest normal, infinity, NaN
    1: [0x00, 0x80, 0x01, 0x83, 0x04, 0x38, 0xB9, 0x7B, 0x7C, 0xFC, 0x7D, 0xFF],
    2: [0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x3F80, 0xBF81, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF],
    4: [0, 1 << 31, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF],
    8: [0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, 0xBFF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52, 0xFFF8 << 48,
        UNKNOWN]}

# F32 that round to BF16 and to F16 in every way: ties to even both ways, just beside ties, carries into the exponent, overflow, the largest
# finite results, subnormal results and their ties, too small, infinity, NaN whose payload lies above and below the cut.
TO_ROUND = [0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x3FFFFFFF, 0x3F801000,
            0x3F803000, 0x3F800FFF, 0x3F801001, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x387FC000,
            0x387FE000, 0x387FF000, 0x38800000, 0x33800000, 0x33000000, 0x33000001, 0x32FFFFFF, 0x33C00000, 0x33BFFFFF, 0x34200000, 0x34200001,
            0x00008000, 0x00018000, 0x00017FFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7F802000, 0x7FBFE000, 0x7FFFFFFF]


def pack(values, width):
    return b"".join(value.to_bytes(width, "little") for value in values)


def element(random, key, width):
    """Any sign and mantissa, but that key."""
    if width == 1:
        return key >> 1 | (key & 1) << 7
    low = 8 * width - 9
    return random.below(2) << 8 * width - 1 | key << low | random.below(1 << low)


def step(random, b, width):
    """b or, now and then, something near it."""
    return b + random.below(7) - 3 & (1 << 8 * width) - 1 if random.below(4) == 0 else b


def against(random, keys, n, width, **options):
    """A block of n elements: keys for the base, and few small steps from it."""
    own = Random(100 * width + keys[0])        # so that blocks share their bases
    base = [element(own, own.pick(keys), width) for _ in range(n)]
    return predicted(pack([step(random, b, width) for b in base], width), pack(base, width), width, **options)


class Pool:
    """A base of one file without tensors, of which blocks take parts."""

    PATH = "bases/pool.bin"

    def __init__(self):
        self.data, self.later = bytearray(), []

    def place(self, data):
        if self.data.find(data) < 0:
            self.data += data
        return self.data.find(data)

    def one(self, name, section, what, *blocks):
        """A snapshot of one nameless file, each block a run of its own against a part of the pool."""
        assert all(block.layout == 0 or block.size() < len(block.data) for block in blocks), "planes must be smaller: %s" % name
        starts = [block.base is not None and self.place(block.base) for block in blocks]
        self.later.append((name, section, what, blocks, starts))

    def emit(self, v):
        base = Base([Src(data=self.data)], [v.base(self.PATH, self.data)])
        for name, section, what, blocks, starts in self.later:
            runs = [Run([block], prediction=0 if block.base is None else 1, base=() if block.base is None else (1, start))
                    for block, start in zip(blocks, starts)]
            v.valid(name, section, what, build([Src(data=b"".join(block.data for block in blocks))] + runs, base=base))
        return base


def delta_vectors(v):
    r = Random(3)
    pool = Pool()
    # 7.2: residuals
    for width in (1, 2, 4, 8):
        for residual in (0, 1):
            kind = ("xor", "subtract")[residual]
            pool.one("delta_w%d_%s" % (width, kind), "7.2", "width %d against a base, %s" % (width, kind),
                     against(r, range(112, 130), 40 + 110 // width, width, residual=residual))
            pairs, same = [(x, b) for x in SPECIALS[width] for b in SPECIALS[width]], 30 + 300 // width
            base = pack([b for _, b in pairs] + [0] * same, width)
            pool.one("delta_specials_w%d_%s" % (width, kind), "7.2", "width %d, %s: every special float against every other" % (width, kind),
                     predicted(pack([x for x, _ in pairs] + [0] * same, width), base, width, residual))
    # 7.3: classes
    keys = list(range(100, 132))
    for n_classes in range(2, 9):
        thresholds = [101 + 4 * i for i in range(n_classes - 1)]
        pool.one("classes_%d" % n_classes, "7.3", "%d classes, width 2" % n_classes, against(r, keys, 400, 2, thresholds=thresholds))
    for width in (1, 4, 8):
        for residual in (0, 1):
            pool.one("classes_w%d_%s" % (width, ("xor", "subtract")[residual]), "7.3", "three classes, width %d" % width,
                     against(r, keys, 200, width, thresholds=[110, 120], residual=residual))
    edges = [0, 1, 2, 127, 128, 253, 254, 255]
    for width in (1, 2, 4):
        pool.one("classes_edges_w%d" % width, "7.3", "thresholds 1, 2, 128, 254 and 255, width %d: keys beside each" % width,
                 against(r, edges, 160, width, thresholds=[1, 2, 128, 254, 255]))
    for name, thresholds in (("first", [50, 115]), ("middle", [115, 116, 117]), ("last", [115, 200]),
                             ("all_but_one", [1, 50, 99, 200, 220, 230, 255]), ("several", [10, 20, 30, 115, 240, 250])):
        pool.one("classes_empty_" + name, "7.3", "empty classes: %s" % name.replace("_", " "),
                 against(r, [k for k in keys if k not in (115, 116)], 120, 2, thresholds=thresholds))
    pool.one("classes_one_element", "7.3", "classes of one element each", predicted(
        pack([0x3F80, 0x4000, 0x4081, 0x4100], 2) + bytes(20), pack([0x3F80, 0x4000, 0x4080, 0x4100], 2) + bytes(20), 2,
        thresholds=[1, 0x80, 0x81, 0x82]))
    coders = {(0, 0): raw, (0, 1): constant, (1, 0): tree({0: 1, 1: 2, 2: 3}, 3), (1, 1): tree({0: 1}, 1)}
    pool.one("classes_coders", "7.3", "planes that are raw, constant, a tree and a tree with escape in one block",
             against(r, [112, 120], 300, 2, thresholds=[118], coders=coders))
    # 7.3: natural planes
    for width in (2, 4, 8):
        for natural in range(1, width):
            base = [element(r, r.pick(keys), width) for _ in range(90)]
            new = [b ^ r.below(1 << 8 * natural) for b in base]
            pool.one("natural_w%d_%d" % (width, natural), "7.3", "width %d: %d natural planes, two classes" % (width, natural),
                     predicted(pack(new, width), pack(base, width), width, 0, [115], natural=natural))
    pool.one("natural_8_classes", "7.3", "eight classes, some empty, and a natural plane",
             against(r, keys, 200, 4, thresholds=[3, 104, 108, 112, 116, 120, 200], natural=1))
    # 7.3: sparse
    for width in (1, 2, 4, 8):
        pool.one("sparse_w%d" % width, "7.3", "Sparse, one class, width %d: a mask of less than 256 bits" % width,
                 against(r, keys, 203, width, sparse=True))
    for n in (255, 256, 257, 263):
        pool.one("sparse_n%d" % n, "7.3", "Sparse, a mask of %d bits" % n, against(r, keys, n, 2, sparse=True))
        pool.one("sparse_n%d_nested" % n, "7.3", "Sparse, a mask of %d bits%s" % (n, ": nested" if n > 255 else ""),
                 against(r, keys, n, 2, sparse=True, masks=nested_masks(4)))
    pool.one("sparse_classes", "7.3", "Sparse, four classes", against(r, keys, 300, 2, sparse=True, thresholds=[105, 112, 120]))
    pool.one("sparse_classes_nested", "7.3", "Sparse, three classes: masks nested and raw",
             against(r, [90] * 4 + [100] * 4 + [110], 900, 2, sparse=True, thresholds=[95, 105], masks=nested_masks(5)))
    base = pack([element(r, 100, 2) for _ in range(2600)], 2)
    new = pack([b + (i % 60 == 0) for i, b in enumerate(split(base, 2))], 2)
    pool.one("sparse_nested_1", "7.3", "Sparse: a mask of 600 bits, nested",
             predicted(new[:1200], base[:1200], 2, sparse=True, masks=nested_masks(15)))
    pool.one("sparse_polarity", "7.3", "Sparse: nested, polarity 1, though most bits are zero",
             predicted(new[:1200], base[:1200], 2, sparse=True, masks=nested_masks(16)))
    pool.one("sparse_nested_2", "7.3", "Sparse: a mask of 2,600 bits, nested twice",
             predicted(new, base, 2, sparse=True, masks=nested_masks(15, 10)))
    pool.one("sparse_none_coded", "7.3", "Sparse: no element is coded",
             predicted(base[:1200], base[:1200], 2, sparse=True, masks=nested_masks(19)))
    bases = split(base[:160], 2)
    bases = [b ^ i % 2 << 11 for i, b in enumerate(bases)]                     # keys 100 and 116
    one_class = lambda c: [b + (key_of(b, 2) >= 112 if c else key_of(b, 2) < 112) for b in bases]
    for c in (0, 1):
        pool.one("sparse_all_of_class_%d" % c, "7.3", "Sparse: all elements of class %d are coded, none of the other" % c,
                 predicted(pack(one_class(c), 2), pack(bases, 2), 2, sparse=True, thresholds=[112]))
    pool.one("sparse_empty_classes", "7.3", "Sparse: classes without elements have no mask",
             predicted(pack(one_class(0), 2), pack(bases, 2), 2, sparse=True, thresholds=[1, 2, 112, 254, 255]))
    pool.one("sparse_all_coded", "7.3", "Sparse: all are coded, those of residual zero, too",
             predicted(pack(one_class(0), 2), pack(bases, 2), 2, sparse=True, thresholds=[112], coded=lambda residual: True))
    pool.one("sparse_some_zeros_coded", "7.3", "Sparse: some residuals of zero are coded",
             predicted(pack(one_class(1), 2), pack(bases, 2), 2, sparse=True, coded=lambda residual: residual or r.below(2)))
    for width in (2, 4, 8):
        pool.one("sparse_one_element_w%d" % width, "7.3", "N_Elements 1, width %d, Sparse: equal to the base" % width,
                 predicted(base[:width], base[:width], width, sparse=True))
    for width in (1, 2, 4, 8):
        few = pack([r.below(1 << 8 * width) if r.below(9) == 0 else 0 for _ in range(150)], width)
        pool.one("sparse_no_prediction_w%d" % width, "7.3", "Sparse, Prediction 0, width %d" % width, predicted(few, None, width, sparse=True))
    few = pack([r.below(200) + 1 if r.below(19) == 0 else 0 for _ in range(900)], 2)
    pool.one("sparse_no_prediction_nested", "7.3", "Sparse, Prediction 0: a nested mask", predicted(few, None, 2, sparse=True, masks=nested_masks(9)))
    # Anything
    for seed in range(24):
        random = Random(3000 + seed)
        blocks = []
        for _ in range(1 + random.below(3)):
            width, n = 1 << random.below(4), 20 + random.below(300)
            at = random.below(len(pool.data) - n * width)
            base = split(bytes(pool.data[at:at + n * width]), width)
            thresholds = sorted({1 + random.below(255) if random.below(3) else 100 + random.below(32) for _ in range(random.below(8))})
            sparse = random.below(3) == 0
            natural = random.below(width) if thresholds and not sparse else 0
            modes = [0 if random.below(3) == 0 else 1 + random.below(20) for _ in range(4)]
            block = predicted(pack([step(random, b, width) for b in base], width), pack(base, width), width, random.below(2), thresholds, sparse,
                              natural, None, nested_masks(*modes))
            blocks.append(block if block.size() < len(block.data) else stored(block.data, width))
        pool.one("delta_random_%02d" % seed, "all", "random choices against a base, seed %d" % seed, *blocks)
    return pool.emit(v)


def safetensors(tensors):
    """A file of (name, dtype, shape, bytes), without gaps, and its tensors."""
    at, entries = 0, {}
    for name, dtype, shape, data in tensors:
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    start = 8 + len(header)
    return struct.pack("<Q", len(header)) + header + b"".join(t[3] for t in tensors), [
        T(name.encode(), e["dtype"].encode(), e["shape"], start + e["data_offsets"][0], e["data_offsets"][1] - e["data_offsets"][0])
        for name, e in entries.items()]


def weights(random, n, width, change=None):
    """Elements like weights; change: those that shall be near them."""
    if change is not None:
        return pack([step(random, b, width) for b in split(change, width)], width)
    return pack([element(random, 110 + random.below(12), width) for _ in range(n)], width)


def delta_run(src, segments, base, width=2, log2=14, **options):
    """One run for all of src, in blocks against what the segments point to. options: as of predicted."""
    run = Run([], [(s + (0, 0))[:5] for s in segments], log2, 1)
    prediction = prediction_of(run, run.segments, [], base)
    run.blocks = [predicted(src.data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options)
                  for i in range(0, len(src.data), 1 << log2)]
    return run


def own_run(file, start, data, pieces, conversion=0, sources=(), log2=14, width=2, **options):
    """A run of Prediction 2 for data, the bytes of file from start on. pieces: (Size, Base, Base_Offset)."""
    segments, at = [], start
    for size, number, base_start in pieces:
        segments.append((file, at, size, number, base_start))
        at += size
    run = Run([], segments, log2, 2, conversion)
    prediction = prediction_of(run, segments, sources, None)
    run.blocks = [predicted(data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options) for i in range(0, len(data), 1 << log2)]
    return run


def base_vectors(v, pool):
    """Segments against a base, and its forms."""
    r = Random(4)
    pool_data = pool.items[0]
    # 5.2: segments
    pieces = [(7, 1, 900), (1, 0, 0), (30, 1, 500), (13, 1, 0), (64, 0, 0), (5, 1, len(pool_data) - 5), (90, 1, 893), (3, 1, 899)]
    segments = [(0, sum(p[0] for p in pieces[:i])) + p for i, p in enumerate(pieces)]
    size = sum(p[0] for p in pieces)
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 11 == 0) for i, b in enumerate(data)))
    v.valid("delta_segments", "5.2", "a block over segments whose bases lie in another order, overlap, or are zero",
            build([src, delta_run(src, segments, pool, 1, residual=0)], base=pool))
    src = Src(data=src.data[:212])
    cut = segments[:-1] + [segments[-1][:2] + (2,) + segments[-1][3:]]
    assert sum(s[2] for s in cut) == 212 == size - 1
    v.valid("delta_segments_w4", "5.2", "the same in elements of four bytes, which the segments cut, with classes", build([src, delta_run(
        src, cut, pool, 4, residual=0, sparse=True, thresholds=[64, 128])], base=pool))
    start = 500
    segments = [(0, 0, 10001, 1, start), (0, 10001, 9000, 0, 0), (0, 19001, 17000, 1, 10000), (0, 36001, 3, 1, 1)]
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 1000 == 999) for i, b in enumerate(data)))
    blocks = delta_run(src, segments, pool, 1, residual=0, sparse=True, masks=nested_masks(19)).blocks
    v.valid("delta_blocks", "5.2", "blocks and segments whose borders do not meet", build([src, Run(blocks, segments, 14, 1)], base=pool))
    segments = [(0, 0, 32768, 0, 0), (0, 32768, 16384, 1, 5000), (0, 49152, 100, 1, 77), (0, 49252, 20, 0, 0)]
    data = bytes(16384) + b"\7" * 16384 + pool_data[5000:21384] + pool_data[77:177] + b"end of the last block"[:20]
    v.valid("delta_block_zero", "7", "blocks of Prediction 0, planes and stored, in a run of Prediction 1", build([Src(data=data), Run([
        planes([bytes(8192)] * 2), planes([b"\7" * 2048] * 8), predicted(data[32768:49152], pool_data[5000:21384], 4), stored(data[49152:])],
        segments, 14, 1)], base=pool))
    joint = joint_planes([bytes(100), bytes(100)], 1, 7)
    v.valid("delta_block_zero_joint", "7", "a block of Prediction 0 with Joint planes in a run of Prediction 1",
            build([Src(data=joint.data), Run([joint], prediction=1, base=(1, 40))], base=pool))
    zero = predicted(pack([3, 1, 4, 1, 5, 9, 2, 6] * 5, 2), bytes(80), 2)
    v.valid("delta_base_zero", "5.2", "a run of Prediction 1 in which every Base is 0, a block of Prediction 1",
            build([Src(data=zero.data), Run([zero], prediction=1)], base=pool))
    src = Src(b"pipe", weights(r, 0, 2, pool_data[100:300]), size=UNKNOWN)
    v.valid("delta_unknown_size", "5.2", "a delta of a file of unknown size", build([src, delta_run(src, [(0, 0, 200, 1, 100)], pool)], base=pool))
    # 4: a base that is not used, equal, not needed
    data = b"nothing of the base"
    v.valid("delta_base_unused", "4", "a file with a base and no run of Prediction 1", build([Src(data=data), Run([stored(data)])], base=pool))
    v.valid("delta_empty", "4", "a file with a base and no run", build([Src(b"empty")], base=pool))
    v.valid("base_not_needed", "4", "a file without a base does not mind one", one(stored(b"no delta")), pool.paths)
    # 9.3, 9.4: forms of a base
    tensors = [("z.norm", "F32", [8], weights(r, 8, 4)), ("a.weight", "BF16", [20, 10], weights(r, 200, 2)),
               ("m.bias", "BF16", [30], weights(r, 30, 2)), ("scalar", "I64", [], struct.pack("<q", -3)), ("m.empty", "F16", [2, 0], b"")]
    file, entries = safetensors(tensors)
    whole = Src(data=file, tensors=entries)
    v.valid("base_weights", "9.3", "a base of tensors, itself without a base", build([whole, Run([stored(file)])]))
    base = Base([whole], [v.base("bases/weights.safetensors", file)])
    other = safetensors([t[:3] + (weights(r, 0, 4 if t[1] == "F32" else 2, t[3]),) for t in tensors])

    def delta_of_tensors(base, file, entries):
        """Tensors against those of their name, the header against zeros."""
        segments = [(0, 0, entries[0][3], 0, 0)] + [(0, t[3], t[4], base.item(t[0]), 0) for t in entries if t[4]]
        src = Src(data=file, tensors=entries)
        return build([src, delta_run(src, segments, base)], base=base)

    v.valid("delta_base_safetensors", "9.4", "a base of tensors, numbered by name, as a safetensors file", delta_of_tensors(base, *other))
    v.valid("delta_base_lmc", "9.4", "the same as an LMC file", delta_of_tensors(base, *other), ["valid/base_weights.lmc"])
    v.valid("delta_base_several", "9.4", "the same among others that are not it", delta_of_tensors(base, *other), pool.paths + [
        "valid/example_stored.lmc", "bases/weights.safetensors"])
    v.valid("delta_equal", "4", "a delta whose content is that of its base: one identity", delta_of_tensors(base, file, entries))
    weight, bias, scalar = (base.item(name) for name in (b"a.weight", b"m.bias", b"scalar"))
    parts = [(1, 0, 0), (39, weight, 361), (20, bias, 40), (2, scalar, 6), (30, weight, 1)]
    segments = [(0, sum(p[0] for p in parts[:i]), p[0], p[1], p[2]) for i, p in enumerate(parts)]
    data = prediction_of(Run([], segments, prediction=1), segments, [], base)
    src = Src(data=bytes(b + (i % 9 == 0) & 255 for i, b in enumerate(data)))
    v.valid("delta_parts_of_items", "5.2", "parts of items, up to their ends", build([src, delta_run(src, segments, base, 4, thresholds=[60, 90],
            sparse=True)], base=base))
    shards = [safetensors(tensors[:2]), safetensors(tensors[2:])]
    files = [Src(b"model-1.safetensors", *shards[0]), Src(b"model-2.safetensors", *shards[1]), Src(b"config.json", b'{"layers": 1}\n'),
             Src(b"tokenizer", kind=1), Src(b"tokenizer/vocab.txt", b"the\na\nof\n")]
    for f in files:
        if not f.kind:
            v.base("bases/directory/" + f.path.decode(), f.data)
    base = Base(files, ["bases/directory"])
    text = [Src(b"config.json", b'{"layers": 2}\n'), Src(b"vocab.txt", b"the\na\nof\n" * 3)]
    runs = [delta_run(text[0], [(0, 0, 14, base.item(b"config.json"), 0)], base, 2, residual=0),
            delta_run(text[1], [(1, 9 * i, 9, base.item(b"tokenizer/vocab.txt"), 0) for i in range(3)], base, 1)]
    v.valid("delta_base_directory", "9.4", "a base of several files: tensors, plain files, a directory",
            build([text[0], runs[0], text[1], runs[1]], base=base))
    files = [Src(b"w", b"no tensor")] + [Src(b"f%d" % i, b"w%d" % i, [T(b"w", b"U8", (2,), 0, 2)]) for i in range(3)]
    files.sort(key=lambda f: list(items_of([f])), reverse=True)
    v.valid("base_same_names", "9.3", "four items of the same name, not in the order of their identities", build([
        item for f in files for item in (f, Run([stored(f.data)]))]))
    base = Base(files, ["valid/base_same_names.lmc"])
    src = Src(data=b"".join(base.items) * 6)
    segments, at = [], 0
    for _ in range(6):
        for i, item in enumerate(base.items):
            segments.append((0, at, len(item), i + 1, 0))
            at += len(item)
    v.valid("delta_same_names", "9.3", "items of the same name, by their identities", build([src, delta_run(src, segments, base, 1)], base=base))


def example_delta(v):
    old, new = struct.pack("<4H", 0x3F80, 0xBF00, 0x0000, 0x4049), struct.pack("<4H", 0x3F81, 0xBF00, 0x0000, 0x4048)
    old, new = (Src(b"w.bin", data, [T(b"w", b"BF16", (2, 2), 0, 8)]) for data in (old, new))
    base = Base([old], ["valid/example_stored.lmc"])
    v.valid("example_delta", "14.3", "worked example: a delta of four elements, of which two have changed",
            build([new, delta_run(new, [(0, 0, 8, base.item(b"w"), 0)], base, sparse=True, coders={0: raw})], base=base))


def chain_vectors(v):
    """A base, two deltas on it and one back. Returns the base, for invalid ones."""
    r = Random(5)
    data = [weights(r, 150, 2)]
    for _ in range(2):
        data.append(weights(r, 0, 2, data[-1]))
    path = "valid/chain_%d.%s"
    sources = [Src(data=d) for d in data]
    bases = [Base([src], [path % (j, "lmc") for j in range(i, -1, -1)], i) for i, src in enumerate(sources)]

    def link(i, base, depth=None):
        base = bases[base]
        patch = {} if depth is None else {"header.Chain_Depth": depth}
        return build([Src(data=data[i]), delta_run(sources[i], [(0, 0, 300, 1, 0)], base, thresholds=[112, 116])], base=base, patch=patch)

    v.valid("chain_0", "4", "the base of a chain", one(stored(data[0], 2)))
    v.valid("chain_1", "4", "a delta, Chain_Depth 1", link(1, 0))
    v.valid("chain_2", "4", "a delta on a delta, Chain_Depth 2", link(2, 1))
    v.valid("chain_2_other_order", "4", "the bases given in another order, among others", link(2, 1),
            ["bases/pool.bin", path % (0, "bin"), path % (1, "lmc")])
    v.valid("chain_2_plain", "4", "the base, once a delta, is a plain file now", link(2, 1), [path % (1, "bin")])
    v.valid("chain_depth_hint", "4", "Chain_Depth tells more than there are", link(1, 0, 0xFFFFFFFF))
    v.valid("chain_back", "4", "a delta on a delta, whose content is that of the first base", link(0, 1))
    return bases, link


def own_vectors(v, pool):
    r = Random(6)
    a, b = weights(r, 100, 2), weights(r, 60, 4)
    near = weights(r, 0, 2, a)
    first = lambda: [Src(b"a", a), Run([stored(a)])]
    v.valid("own_copy", "5.2", "Prediction 2: a file that is equal to another", build(
        first() + [Src(b"b", a), own_run(1, 0, a, [(200, 1, 0)], sources=[Src(data=a)])]))
    v.valid("own_near", "5.2", "Prediction 2: a file that is near another, with classes", build(
        first() + [Src(b"b", near), own_run(1, 0, near, [(200, 1, 0)], sources=[Src(data=a)], thresholds=[112, 116, 118])]))
    src = Src(data=a + a[20:], size=UNKNOWN)
    v.valid("own_same_file", "5.2", "Prediction 2: bytes of an earlier run of the same file, whose size is unknown", build(
        [src, Run([stored(a)]), own_run(0, 200, a[20:], [(180, 1, 20)], sources=[src])]))
    sources = [Src(b"a", a), Src(b"b", b), Src(b"c")]
    pieces = [(31, 2, 9), (7, 0, 0), (60, 1, 140), (1, 1, 0), (80, 2, 160), (45, 1, 3), (3, 0, 0)]
    segments = [(2, 0) + p for p in pieces]
    data = prediction_of(Run([], segments, prediction=2), segments, sources, None)
    data = bytes(x ^ (i % 13 == 0) for i, x in enumerate(data))
    v.valid("own_segments", "5.2", "Prediction 2: a block over pieces of several files, in another order, zeros between", build(
        first() + [Src(b"b", b), Run([stored(b)]), Src(b"c", data), own_run(2, 0, data, pieces, 0, sources, width=1, residual=0)]))
    src = Src(data=a[:100] + a[:100] + b"between" + a[:100] + b"between")
    v.valid("own_beside_own", "5.2", "Prediction 2: references that end and start where runs of Prediction 2 do", build([
        src, Run([stored(a[:100])]), own_run(0, 100, a[:100], [(60, 1, 0), (40, 1, 60)], sources=[src]), Run([stored(b"between")]),
        own_run(0, 207, a[:100] + b"between", [(100, 1, 0), (7, 1, 200)], sources=[src], width=1)]))
    new = weights(r, 0, 2, pool.items[0][:200])
    middle = b"not predicted"
    tied = new[100:] + middle
    sources = [Src(b"a", new + middle), Src(b"b", tied)]
    v.valid("own_in_delta", "5.2", "a delta with tied tensors: Prediction 2 from bytes of a run of Prediction 1 and one of Prediction 0", build([
        sources[0], delta_run(Src(data=new), [(0, 0, 200, 1, 0)], pool), Run([stored(middle)]), sources[1],
        own_run(1, 0, tied, [(113, 1, 100)], sources=sources, width=1, sparse=True)], base=pool))
    zeros = own_run(1, 0, bytes(16384) + a[:50], [(16384, 0, 0), (50, 1, 10)], sources=[Src(data=a)])
    v.valid("own_block_zero", "7", "blocks of Prediction 0, planes and stored, in a run of Prediction 2", build(
        first() + [Src(b"b", bytes(16384) + a[:50]), Run([planes([bytes(4096)] * 4), stored(a[:50])], zeros.segments, 14, 2)]))
    # conversions
    floats = pack(TO_ROUND + [x | 1 << 31 for x in TO_ROUND], 4)
    for conversion, name in ((1, "bf16"), (2, "f16")):
        rounded = convert(floats, conversion)
        n, master = len(rounded), Src(b"master", floats)
        start = [master, Run([stored(floats, 4)])]
        v.valid("own_%s" % name, "5.2", "Conversion %d: all ways to round, both signs" % conversion, build(
            start + [Src(b"w", rounded), own_run(1, 0, rounded, [(n, 1, 0)], conversion, [master])]))
        new = weights(r, 0, 2, rounded)
        v.valid("own_%s_near" % name, "5.2", "Conversion %d: near the rounded ones, with classes" % conversion, build(
            start + [Src(b"w", new), own_run(1, 0, new, [(n, 1, 0)], conversion, [master], thresholds=[30, 100, 140])]))
        data = convert(floats[4:44], conversion) + bytes(6) + convert(floats[:12], conversion)
        v.valid("own_%s_parts" % name, "5.2", "Conversion %d: parts, zeros between" % conversion, build(
            start + [Src(b"w", data), own_run(1, 0, data, [(20, 1, 4), (6, 0, 0), (6, 1, 0)], conversion, [master])]))
        shifted = Src(b"master", b"\x5a" + floats)
        v.valid("own_%s_unaligned" % name, "5.2", "Conversion %d: F32 elements at an odd offset" % conversion, build([
            shifted, Run([stored(shifted.data)]), Src(b"w", rounded), own_run(1, 0, rounded, [(n, 1, 1)], conversion, [shifted])]))
        values = [pack([value], 4) for value in (0x3F80C000, 0xBF000123, 0x42F6E666)]
        counts = (8190, 8192, 8)               # elements of each value; with the zeros before them one block of each
        sources = [planes([bytes([x]) * n for x in value]) for value, n in zip(values, counts)]
        data = bytes(4) + b"".join(convert(value, conversion) * n for value, n in zip(values, counts))
        master = Src(b"master", b"".join(block.data for block in sources))
        v.valid("own_%s_blocks" % name, "5.2", "Conversion %d over several blocks" % conversion, build(
            [master] + [Run([block], log2=15) for block in sources] + [Src(b"w", data), own_run(
                1, 0, data, [(4, 0, 0), (32780, 1, 0)], conversion, [Src(data=master.data)], residual=0)]))
    base = pool.items[0]
    master = Src(b"master", weights(r, 0, 4, base[:400]))
    data = convert(master.data, 1)
    v.valid("own_bf16_in_delta", "5.2", "a delta of a master copy, and the weights rounded from it", build([
        master, delta_run(master, [(0, 0, 400, 1, 0)], pool, 4), Src(b"w", data), own_run(1, 0, data, [(200, 1, 0)], 1, [master])], base=pool))


# ---- Quantised blocks ----

ONE = 0x3F80                                   # the number g of a scale of 1.0
SCALES = [0x3A12, ONE, 0x35FF, 0x0080, 0x4000, 0x38AB]                         # far apart; 0x0080 is the least
# What an exception is for: NaN of both signs with payloads, infinities, -0, subnormals, negative; and what it may be, usual numbers.
EXCEPTIONS = {2: [0x7FC0, 0xFFFF, 0x7F81, 0x7F80, 0xFF80, 0x8000, 0x0001, 0x807F, 0xBF80, 0x3F81, 0x0000],
              4: [0x7FC00000, 0xFFFFFFFF, 0x7F800001, 0xFFA5A5A5, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001, 0x807FFFFF, 0xBF800001,
                  0x3F812345, 0x00000000]}
# What may stand where second moments predict first ones: zeros, subnormals, negative, the largest, infinities, NaN, numbers around powers of 4.
SECONDS = [0x2B8CBCCC, 0x2B800000, 0x2B7FFFFF, 0x2C000001, 0x30123456, 0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x807FFFFF,
           0xAB8CBCCC, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F800001, 0x3F800000, 0x3F7FFFFF, 0x3F820000, 0x3F81FFFF]
ROOT = 0x3F800000 - (0x3F800000 >> 1)          # the Bias with which 1.0 predicts a scale of 1.0
EPS = 0x24E69595                               # the bits of 1e-16, the square of an optimizer's eps


def some(random, n, choices):
    return [random.pick(choices) for _ in range(n)]


def moments(random, n, width):
    """Positive floats of some orders of magnitude."""
    return pack([element(random, 84 + random.below(6), width) % (1 << 8 * width - 1) for _ in range(n)], width)


def rows(n, block, row):
    """What cuts a tensor's rows in blocks: for each the number of elements and First_Group."""
    return [(min(block, n - i), row - i % row) for i in range(0, n, block)]


def quantised_vectors(v, pool):
    r = Random(8)
    log, signed, table = METHOD_LOG, METHOD_SIGNED, METHOD_TABLE

    def valid(name, what, *blocks, **run):
        """One run of blocks, if log2 is given; else a run of each."""
        assert all(block.size() < len(block.data) for block in blocks if block.layout), "not smaller than the elements: %s" % name
        data = b"".join(block.data for block in blocks)
        v.valid("quantised_" + name, "7.6", what, build([Src(data=data), Run(blocks, **run)]) if run else one(*blocks))

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
    # Prediction 1
    def own(name, what, second, *blocks, log2=None, **run):
        """second: the second moments, stored. Each block is a run of its own against their start, unless log2 is given."""
        file, runs = b"".join(block.data for block in blocks), dict(dict(prediction=2, base=(1, 0)), **run)
        assert all(block.size() < len(block.data) for block in blocks), "not smaller than the elements: %s" % name
        runs = [Run(blocks, log2=log2, **runs)] if log2 else [Run([block], **runs) for block in blocks]
        v.valid("quantised_own_" + name, "7.6", what, build([Src(b"v", second), Run([
            stored(second[i:i + 16384]) for i in range(0, len(second), 16384)]), Src(b"m", file)] + runs))

    for width, kind in ((4, "f32"), (2, "bf16")):
        second, seconds = moments(r, 300, width), pack([p >> 32 - 8 * width for p in SECONDS] * 20, width)
        codebook = [1, 3, 10, 100, 101, 102, 190, 197, 199]
        own("table_" + kind, "Prediction 1, linear with Table: updates", second, quantised(
            some(r, 300, [0] + codebook), width, table, least=-100, bias=ROOT, floor=EPS, table=codebook, base=second))
        grids = [some(r, 300, [0] + some(r, 5, range(3 << low_bits))) for low_bits in range(9)]
        own("low_bits_" + kind, "Prediction 1, linear: grids with Low_Bits 0 to 8", second, *[quantised(
            symbols, width, 0, i, -(3 << i) // 2, bias=ROOT - 123456, floor=EPS, base=second) for i, symbols in enumerate(grids)])
        for name, pairs in (("floor", ((ROOT, 0), (ROOT, EPS), (ROOT, 0x7F800000), (0xFFFF, 0x3F800000), (0, 0))),
                            ("bias", ((-1 << 30, 0), (1 << 30, 0), (-1 << 30, 0x7F800000), (1 << 30, 0x7F800000))),
                            ("clamp", ((0x00800000 - (0x2B800000 >> 1), 0), (0x77000000 - (0x7F7FFFFF >> 1), 0),
                                       (0x76FFFFFF - (0x7F7FFFFF >> 1), 0)))):
            own("%s_%s" % (name, kind), "Prediction 1: zeros, subnormals, negative, huge, infinities, NaN; (Bias, Floor) %s" % (pairs,), seconds, *[
                quantised(some(r, len(seconds) // width, [0, 1, 65534, 65535, 32768]), width, 0, 8, -32767, bias=bias, floor=floor, base=seconds)
                for bias, floor in pairs])
        special = EXCEPTIONS[width]
        places = list(range(len(special))) + list(range(300 - len(special), 300))
        own("exceptions_" + kind, "Prediction 1: exceptions at both ends", second, quantised(
            some(r, 300, [0, 1, 2, 3]), width, 0, 0, -2, bias=ROOT, base=second, exceptions=dict(zip(places, special * 2))))
        n = 34 // width + 1
        own("smallest_%d_%s" % (n, kind), "Prediction 1: %d elements, the fewest that can be quantised: a payload of 34 bytes" % n,
            second[:n * width], quantised([7] * n, width, bias=ROOT, base=second[:n * width]))
        many = second * 60
        blocks = [many[i:i + 16384] for i in range(0, len(many), 16384)]
        bound = [quantised(some(r, len(b) // width, [0, 9, 10, 10, 10, 11]), width, 0, 0, -10, bias=ROOT, floor=EPS, base=b) for b in blocks]
        bound[1] = quantised(some(r, len(blocks[1]) // width, [0, 1, 1, 1, 1]), width, log, 0, 0, 1, scales=[ONE], group_size=999)
        own("blocks_" + kind, "blocks of a run of Prediction 2: the first of Prediction 1, the second of Prediction 0", many, *bound, log2=14)
    second = moments(r, 300, 4)
    first = quantised(some(r, 299, [0, 1, 2, 3, 4]), 4, 0, 0, -2, bias=ROOT, base=second[3:1199])
    own("unaligned", "Prediction 1: F32 at an odd offset", second, first, base=(1, 3))
    rounded = convert(second, 1)
    own("converted", "Prediction 1: BF16 rounded from F32", second, quantised(
        some(r, 300, [0, 1, 2, 3, 4]), 2, 0, 0, -2, bias=ROOT, floor=EPS, base=rounded), conversion=1)
    pieces = [(0, 0, 40, 0, 0), (0, 40, 81, 1, 2), (0, 121, 75, 0, 0), (0, 196, 4, 1, 7)]
    base = prediction_of(Run([], prediction=2), pieces, [Src(data=second)], None)
    block = quantised(some(r, 50, [1, 2, 3]), 4, 0, 0, -1, bias=ROOT, floor=EPS + 99, base=base)
    v.valid("quantised_own_segments", "7.6", "Prediction 1: segments that cut elements, zeros between", build([
        Src(b"v", second), Run([stored(second)]), Src(b"m", block.data), Run([block], [(1,) + piece[1:] for piece in pieces], prediction=2)]))
    for width, kind in ((4, "f32"), (2, "bf16")):
        base = pool.items[0][101:101 + 300 * width]
        block = quantised(some(r, 300, [0, 1, 2, 3, 9]), width, 0, 0, -2, bias=ROOT, floor=EPS, base=base, exceptions={17: 1})
        plain = quantised(some(r, 300, [0, 1, 2, 3, 9]), width, log, 0, -2, 1 << 20, scales=[ONE])
        v.valid("quantised_delta_" + kind, "7.6", "a block of Prediction 1 in a delta", build(
            [Src(data=block.data), Run([block], prediction=1, base=(1, 101))], base=pool))
        v.valid("quantised_delta_zero_" + kind, "7.6", "a block of Prediction 0 in a run of Prediction 1", build(
            [Src(data=plain.data), Run([plain], prediction=1, base=(1, 101))], base=pool))
    data = moments(r, 4500, 4)
    base = Base([Src(data=data)], [v.base("bases/seconds.bin", data)])
    blocks = [quantised(some(r, len(b) // 4, [0, 1, 2, 3, 9]), 4, 0, 0, -2, bias=ROOT, floor=EPS, base=b, exceptions={0: 1 << 31, len(b) // 4 - 1: 1})
              for b in (data[:16384], data[16384:])]
    v.valid("quantised_delta_same_place", "7.6", "blocks that may be restored over their base", build(
        [Src(data=b"".join(block.data for block in blocks)), Run(blocks, prediction=1, base=(1, 0))], base=base))
    # 5.1: tensors
    second = quantised(some(r, 600, [0, 1, 2, 3, 5, 8]), 4, log | table, 0, -2, 1 << 21, table=[1, 2, 3, 5, 8], scales=SCALES[:2], group_size=30,
                       exceptions={0: 0x7FC00000, 599: 1})
    first = quantised(some(r, 600, [0, 1, 2, 3, 4]), 4, 0, 0, -2, bias=ROOT, floor=EPS, base=second.data)
    tensors = lambda at: [T(b"exp_avg_sq", b"F32", (20, 30), 0, 2400, (1, 2, 42949673)), T(b"exp_avg", b"F32", (20, 30), at, 2400, (2, 1, 28347))]
    v.valid("quantised_moments", "7.6", "first moments predicted by the second moments of another file, both quantised", build([
        Src(b"v", second.data, tensors(0)[:1]), Run([second]), Src(b"m", first.data, tensors(0)[1:]), Run([first], prediction=2, base=(1, 0))]))
    v.valid("quantised_moments_same_file", "7.6", "first moments predicted by the second moments in the same file", build([
        Src(b"optimizer", second.data + first.data, tensors(2400)), Run([second]), Run([first], prediction=2, base=(1, 0))]))
    data = r.data(80)
    v.valid("tensors_generations", "5.1", "Generation 0, 1, 2 and 255, each Measure, the least and the largest Error", build([
        Src(b"f", data, [T(b"%d" % i, dtype, (2,) * rank, 8 * i, 8, loss) for i, (loss, dtype, rank) in enumerate((
            ((0, 0, 0), b"F32", 1), ((1, 1, 0), b"F32", 1), ((1, 2, 1), b"F32", 1), ((1, 3, 0xFFFFFFFF), b"BF16", 2), ((0, 0, 0), b"U8", 3),
            ((2, 3, 0x80000000), b"F64", 0), ((255, 2, 258), b"no dtype", 32), ((255, 1, 1 << 24), b"I64", 0), ((255, 3, 7), b"U8", 3)))]),
        Run([stored(data)])]))
    v.valid("quantised_generation_0", "7.6", "a quantised block in a tensor of Generation 0, one that is not in a tensor of Generation 1", build([
        Src(b"f", few.data + b"12345678", [T(b"a", b"F32", (100,), 0, 400), T(b"b", b"F32", (2,), 400, 8, (1, 3, 99))]), Run([few]),
        Run([stored(b"12345678")])]))
    # Anything
    for seed in range(24):
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
            runs.append(Run([block], prediction=2, base=(1, second.index(predicted_by))) if predicted_by else Run([block]))
            data += block.data
        v.valid("quantised_random_%02d" % seed, "7.6", "random choices, seed %d" % seed, build(
            [Src(b"v", second), Run([stored(second)]), Src(b"q", data)] + runs))


def example_quantised(v):
    """Two rows of 12 elements."""
    symbols = [2, 2, 4, 2, 1, 2, 0, 2, 4, 2, 2, 1, 2, 4, 4, 2, 2, 2, 1, 2, 2, 4, 2, 2]
    block = quantised(symbols, 4, METHOD_LOG | METHOD_TABLE, 0, -1, 0x600000, table=[1, 2, 4], scales=[0x3580, 0x3680], group_size=12,
                      exceptions={8: 0x80000000})
    v.valid("example_quantised", "14.4", "worked example: a quantised block with Log and Table, two groups, an exception", build([
        Src(data=block.data, tensors=[T(b"v", b"F32", (2, 12), 0, 96, (1, 2, 0x30000000))]), Run([block])]))


def invalid_vectors(v):
    r = Random(2)

    def simple(patch, **options):
        """A file with a mode, two tensors, two runs, metadata; then an empty one."""
        data = b"0123456789ABCDEF"
        return build([Src(b"w.bin", data, [T(b"a", b"F32", (2,), 0, 8), T(b"b", b"BF16", (2, 1), 8, 4)], mode=0o644, mtime=(1700000000, 5)),
                      Run([stored(data[:12], 4)]), Run([stored(data[12:], 2)]), Src(b"empty")],
                     metadata=[(b"format", b"pt"), (b"title", b"x")], patch=patch, **options)

    def bad(name, section, rule, status, patch, **options):
        v.invalid(name, section, rule, status, simple(patch, **options))

    def bad_file(name, section, rule, status, items, patch=None, **options):
        v.invalid(name, section, rule, status, build(items, patch=patch, **options))

    plus = lambda k: lambda value: value + k
    flip = lambda value: value ^ 1
    flip_byte = lambda at: lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

    # 3, 4
    good = bytes(simple({}).out)
    v.invalid("empty_input", "4", "Magic: the input is empty", "NOT_LMC", b"")
    bad("magic", "4", "Magic", "NOT_LMC", {"header.Magic": b"\x8cLMD\r\n\x1a\n"})
    bad("magic_text_mode", "4", "Magic: CR LF became LF", "NOT_LMC", {"header.Magic": b"\x8cLMC\n\x1a\n\0"})
    bad("magic_of_trailer", "4", "Magic: that of the trailer", "NOT_LMC", {"header.Magic": b"\x8dLMC\r\n\x1a\n"})
    v.invalid("no_lmc_file", "4", "Magic: a file of another kind", "NOT_LMC",
        b"#!/bin/sh\necho this is not an LMC file, though long enough to be one; its first bytes say so.\n" * 3)
    bad("version_major", "4", "Format_Major 1", "VERSION", {"header.Format_Major": 1})
    bad("version_minor_newer", "4", "Format_Minor 5", "VERSION", {"header.Format_Minor": 5})
    bad("version_minor_older", "4", "Format_Minor 3", "VERSION", {"header.Format_Minor": 3})
    bad("version_before_crc", "4", "order of the checks: a version whose header has another CRC", "VERSION",
        {"header.Format_Minor": 200, "header.Header_CRC": 0})
    bad("header_crc", "4", "Header_CRC", "CHECKSUM", {"header.Header_CRC": flip})
    for size in (0, 79, 81, 65535):
        bad("header_size_%d" % size, "4", "Header_Size %d" % size, "CORRUPT", {"header.Header_Size": size})
    for bit in (0, 1, 2, 3, 4, 5, 47, 48, 63):
        bad("incompatible_bit_%d" % bit, "4", "Incompatible bit %d" % bit, "UNSUPPORTED", {"header.Incompatible": 1 << bit})
    for bit in (1, 31):
        bad("flags_bit_%d" % bit, "4", "Flags: reserved bit %d" % bit, "UNSUPPORTED", {"header.Flags": 1 | 1 << bit})
    bad("base_without_depth", "4", "Base_Identity is not zero, Chain_Depth is", "CORRUPT", {"header.Base_Identity": bytes(31) + b"\1"})
    bad("depth_without_base", "4", "Chain_Depth is not zero, Base_Identity is", "CORRUPT", {"header.Chain_Depth": 1})
    bad("base_missing", "4", "the file has a base, and none is given", "BASE_MISSING",
        {"header.Base_Identity": bytes(31) + b"\1", "header.Chain_Depth": 1})
    bad("header_reserved", "4", "reserved field", "UNSUPPORTED", {"header.Reserved": 1 << 63})
    # 5
    bad("section_head_crc", "5", "Head_CRC", "CHECKSUM", {"run0.Head_CRC": flip})
    bad("section_body_crc_file", "5", "Body_CRC of a FILE", "CHECKSUM", {"file0.Body_CRC": flip})
    bad("section_body_crc_run", "5", "Body_CRC of a RUN", "CHECKSUM", {"run1.Body_CRC": flip})
    bad("section_body_crc_index", "5", "Body_CRC of the index", "CHECKSUM", {"index.Body_CRC": flip})
    bad("section_kind", "5", "unknown Kind", "CORRUPT", {"run1.Kind": b"DATA"})
    bad("section_kind_case", "5", "Kind in lower case", "CORRUPT", {"file1.Kind": b"file"})
    bad("section_number_file", "5", "Number of a FILE", "CORRUPT", {"file1.Number": 2})
    bad("section_number_file_again", "5", "Number of a FILE: one used before", "CORRUPT", {"file1.Number": 0})
    bad("section_number_run", "5", "Number of a RUN: counted with the FILEs", "CORRUPT", {"run0.Number": 1})
    bad("section_number_index", "5", "Number of the index", "CORRUPT", {"index.Number": 1})
    bad("section_body_longer_file", "5", "a FILE body with a byte too many", "CORRUPT", {"file0.Extra": b"\0"})
    bad("section_body_longer_run", "5", "a RUN body that holds a segment more than N_Segments says", "CORRUPT",
        {"segment0.0.Size": lambda size: struct.pack("<Q", size) + bytes(32)})
    bad("section_body_longer_index", "5", "an INDX body with a byte too many", "CORRUPT", {"index.Extra": b"\0"})
    bad("section_body_shorter_file", "5", "N_Tensors counts one more than there are", "CORRUPT", {"file0.N_Tensors": 3})
    bad("section_body_shorter_run", "5", "N_Segments counts one more than there are", "CORRUPT", {"run0.N_Segments": 2})
    bad("section_body_empty", "5", "an empty FILE body", "CORRUPT", {"file1." + f: b"" for f in (
        "File_Size", "File_Kind", "Attributes", "Reserved", "Mode", "Mtime_Seconds", "Mtime_Nanoseconds", "Path_Size", "N_Tensors", "Path")})
    bad("section_too_large", "5", "Body_Size 2^40 + 1", ["CORRUPT", "LIMIT"], {"index.Body_Size": (1 << 40) + 1})
    bad("section_largest_missing", "5", "Body_Size 2^40, but the input ends: nothing may be allocated for it", ["TRUNCATED", "LIMIT"],
        {"index.Body_Size": 1 << 40})
    bad("section_size_overflow", "5", "Body_Size 2^64 - 1", ["CORRUPT", "LIMIT"], {"file0.Body_Size": UNKNOWN})
    # 5.1
    bad("file_size_too_large", "5.1", "File_Size 2^63", "CORRUPT", {"file0.File_Size": 1 << 63})
    bad("file_size_almost_unknown", "5.1", "File_Size 2^64 - 2", "CORRUPT", {"file1.File_Size": UNKNOWN - 1})
    for kind in (2, 255):
        bad("file_kind_%d" % kind, "5.1", "File_Kind %d" % kind, "UNSUPPORTED", {"file1.File_Kind": kind})
    bad("file_attributes", "5.1", "Attributes: reserved bit 2", "UNSUPPORTED", {"file1.Attributes": 4})
    bad("file_reserved", "5.1", "reserved field of a FILE", "UNSUPPORTED", {"file1.Reserved": 1})
    bad("file_mode", "5.1", "Mode 0o10000", "CORRUPT", {"file0.Mode": 0o10000})
    bad("file_mode_not_valid", "5.1", "Mode not zero though not valid", "CORRUPT", {"file1.Mode": 0o644})
    bad("file_mtime_not_valid", "5.1", "Mtime_Seconds not zero though not valid", "CORRUPT", {"file1.Mtime_Seconds": 1})
    bad("file_nanoseconds_not_valid", "5.1", "Mtime_Nanoseconds not zero though not valid", "CORRUPT", {"file1.Mtime_Nanoseconds": 1})
    bad("file_nanoseconds", "5.1", "Mtime_Nanoseconds 10^9", "CORRUPT", {"file0.Mtime_Nanoseconds": 10**9})
    bad_file("path_too_long", "5.1", "Path_Size 65,536", "CORRUPT", [Src(b"p" * 65536)])
    bad_file("name_too_long", "5.1", "Name_Size 65,536", "CORRUPT", [Src(b"p", b"x", [T(b"n" * 65536, b"U8", (1,), 0, 1)]), Run([stored(b"x")])])
    bad("tensors_too_many", "5.1", "N_Tensors 2^28 + 1", "CORRUPT", {"file0.N_Tensors": (1 << 28) + 1})
    bad_file("directory_with_size", "5.1", "a directory with a File_Size", "CORRUPT", [Src(b"d", kind=1, size=1)], {"entry0.File_Size": 1})
    bad_file("directory_unknown_size", "5.1", "a directory of unknown size", "CORRUPT", [Src(b"d", kind=1, size=UNKNOWN)])
    bad_file("directory_with_run", "5.1", "a directory with a run", "CORRUPT", [Src(b"d", b"x", kind=1, size=0), Run([stored(b"x")])],
        {"entry0.File_Size": 0})
    bad_file("directory_with_tensors", "5.1", "a directory with a tensor", "CORRUPT", [Src(b"d", b"", [T(b"t", b"U8", (0,), 0, 0)], kind=1)])
    bad_file("unknown_size_with_tensors", "5.1", "a file of unknown size with a tensor", "CORRUPT", [
        Src(b"d", b"x", [T(b"t", b"U8", (1,), 0, 1)], size=UNKNOWN), Run([stored(b"x")])])
    for name, path in (("absolute", b"/etc/passwd"), ("trailing_slash", b"a/"), ("slash", b"/"), ("empty_component", b"a//b"), ("dot", b"."),
        ("dot_inside", b"a/./b"),
                       ("dotdot", b".."), ("dotdot_start", b"../x"), ("dotdot_inside", b"a/../../b"), ("dotdot_end", b"a/.."),
                       ("zero_byte", b"a\0b"), ("zero_byte_end", b"a\0"),
                       ("backslash", b"a\\b")):
        bad_file("path_" + name, "5.1", "Path %s" % json.dumps(path.decode()), "CORRUPT", [Src(path, b"x"), Run([stored(b"x")])])
    bad_file("path_empty_first", "5.1", "an empty Path, then another file", "CORRUPT", [Src(b""), Src(b"b")])
    bad_file("path_empty_second", "5.1", "a file, then an empty Path", "CORRUPT", [Src(b"a"), Src(b"")])
    bad_file("path_twice", "5.1", "two files of the same Path", "CORRUPT",
        [Src(b"a", b"1"), Run([stored(b"1")]), Src(b"b"), Src(b"a", b"2"), Run([stored(b"2")])])
    bad_file("path_twice_directory", "5.1", "a file and a directory of the same Path", "CORRUPT", [Src(b"a"), Src(b"a", kind=1)])

    def bad_tensors(name, rule, tensors, patch=None, status="CORRUPT", data=b"0123456789ABCDEF"):
        # Entries that point outside get the identity of what is there.
        bad_file("tensor_" + name, "5.1", rule, status, [Src(b"f", data, tensors), Run([stored(data)])], patch)

    bad_tensors("overlap", "Offset less than the end of the entry before", [T(b"a", b"U8", (8,), 0, 8), T(b"b", b"U8", (2,), 7, 2)])
    bad_tensors("order", "entries not sorted by Offset", [T(b"a", b"U8", (2,), 8, 2), T(b"b", b"U8", (2,), 0, 2)])
    bad_tensors("zero_size_inside", "a tensor of size 0 within the one before", [T(b"a", b"U8", (4,), 0, 4), T(b"z", b"U8", (0,), 2, 0)])
    bad_tensors("beyond_file", "end after File_Size", [T(b"a", b"U8", (4,), 13, 4)])
    bad_tensors("offset_beyond_file", "an empty tensor after File_Size", [T(b"a", b"U8", (0,), 17, 0)])
    bad_tensors("end_overflow", "Offset + Size = 2^64", [T(b"a", b"??", (1,), 8, UNKNOWN - 7)])
    bad_tensors("same_name", "two tensors of the same Name", [T(b"a", b"U8", (1,), 0, 1), T(b"b", b"U8", (1,), 1, 1), T(b"a", b"U8", (1,), 2, 1)])
    bad_tensors("same_empty_name", "two tensors of empty Name", [T(b"", b"U8", (1,), 0, 1), T(b"", b"U8", (1,), 1, 1)])
    bad_tensors("name_zero_byte", "zero byte in a Name", [T(b"a\0", b"U8", (1,), 0, 1)])
    bad_tensors("dtype_zero_byte", "zero byte in a Dtype", [T(b"a", b"U8\0", (1,), 0, 1)])
    bad_tensors("dtype_empty", "Dtype_Size 0", [T(b"a", b"", (1,), 0, 1)])
    bad_tensors("dtype_too_long", "Dtype_Size 33", [T(b"a", b"D" * 33, (1,), 0, 1)])
    bad_tensors("rank", "Rank 33", [T(b"a", b"U8", (1,) * 33, 0, 1)])
    for generation, measure in ((0, 1), (0, 3), (1, 0), (255, 0), (1, 4), (1, 255), (0, 255)):
        what = "measure_%d_of_generation_%d" % (measure, generation)
        bad_tensors(what, what.replace("_", " ").capitalize(), [T(b"a", b"F32", (1,), 0, 4, (generation, measure, 5)), T(b"b", b"U8", (2,), 4, 2)])
    bad_tensors("error_missing", "Generation 1 without an Error", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b""})
    bad_tensors("error_short", "an Error of 3 bytes", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b"abc"})
    bad_tensors("error_of_generation_0", "an Error after an entry of Generation 0", [T(b"a", b"F32", (1,), 0, 4)], {"tensor0.0.Error": bytes(4)})
    bad_tensors("size_small", "Size one element less than Shape says", [T(b"a", b"BF16", (2, 3), 0, 10)])
    bad_tensors("size_large", "Size one byte more than Shape says", [T(b"a", b"BF16", (2, 3), 0, 13)])
    bad_tensors("size_scalar", "a scalar of size 0", [T(b"a", b"F32", (), 0, 0)])
    bad_tensors("size_zero_shape", "Shape (0) of size 4", [T(b"a", b"F32", (0,), 0, 4)])
    bad_tensors("size_half_byte", "F4, three elements: no whole number of bytes", [T(b"a", b"F4", (3,), 0, 2)])
    bad_tensors("size_six_bits", "F6, two elements: no whole number of bytes", [T(b"a", b"F6_E2M3", (2,), 0, 1)])
    bad_tensors("shape_overflow", "a Shape whose product is 2^64, Size 0", [T(b"a", b"U8", (1 << 32, 1 << 32), 0, 0)])
    bad_tensors("bits_overflow", "a Shape whose product times Bits is 2^64, Size 0", [T(b"a", b"F32", (1 << 59,), 0, 0)])
    # 5.2
    bad("run_size", "5.2", "Run_Size is not the sum of the segments", "CORRUPT", {"run0.Run_Size": 11})
    bad_file("run_empty", "5.2", "Run_Size 0 and a segment of Size 0", "CORRUPT", [Src(b"f"), Run([], [(0, 0, 0)])])
    bad_file("run_too_large", "5.2", "Run_Size 2^63", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])],
        {"run0.Run_Size": 1 << 63, "segment0.0.Size": 1 << 63})
    for log2 in (0, 13, 24, 255):
        bad("run_log2_%d" % log2, "5.2", "Log2_Block_Size %d" % log2, "CORRUPT", {"run1.Log2_Block_Size": log2})
    for prediction in (3, 255):
        bad("run_prediction_%d" % prediction, "5.2", "Prediction %d of a RUN" % prediction, "UNSUPPORTED", {"run1.Prediction": prediction})
    bad("run_reserved", "5.2", "reserved field of a RUN", "UNSUPPORTED", {"run1.Reserved": 0x80})
    bad_file("run_no_segments", "5.2", "N_Segments 0", "CORRUPT", [Src(b"f"), Run([], [])])
    bad("run_segments_too_many", "5.2", "N_Segments 2^24 + 1", "CORRUPT", {"run1.N_Segments": (1 << 24) + 1})
    bad("segment_base", "5.2", "Base of a segment in a run of Prediction 0", "CORRUPT", {"segment1.0.Base": 1})
    bad_file("segment_empty", "5.2", "a segment of Size 0 among others", "CORRUPT",
        [Src(b"f", b"xy"), Run([stored(b"xy")], [(0, 0, 1), (0, 1, 0), (0, 1, 1)])])
    bad_file("run_blocks_too_many", "5.2", "N_Blocks 2^32", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")], [(0, 0, 1 << 46)])], {})
    bad_file("run_blocks_most", "5.2", "2^32 - 1 blocks, but the input ends after one: nothing may be allocated for the others",
        ["TRUNCATED", "LIMIT"], [
        Src(b"f", bytes(16384), size=UNKNOWN), Run([planes([bytes(16384)])], [(0, 0, (1 << 46) - 16384)])], index=False, trailer=False)
    # 6
    bad_file("order_run_first", "6.1", "a RUN before the first FILE", "CORRUPT", [Run([stored(b"x")], [(0, 0, 1)]), Src(b"f", b"x")])
    bad_file("order_no_file", "6.1", "no FILE", "CORRUPT", [])
    bad("order_no_index", "6.1", "no INDX", ["CHECKSUM", "CORRUPT", "TRUNCATED"], {}, index=False)
    two_files = lambda: [Src(b"a", b"aaaa"), Run([stored(b"aa")]), Src(b"b", b"bbbb"), Run([stored(b"bbbb")])]
    # each breaks one rule, and nothing else would tell
    for name, size in (("more", 8), ("less", 6)):
        bad_file("run_size_%s_than_segments" % name, "5.2", "Run_Size is not the sum of the segments, in a file of unknown size", "CORRUPT", [
            Src(b"f", b"abcdefgh"[:size], size=UNKNOWN), Run([stored(b"abcdefgh"[:size])], [(0, 0, 7)])], {"run0.Run_Size": size})
    for name, size in (("more", 12), ("less", 4)):
        bad_file("file_size_%s_than_runs" % name, "6.2", "File_Size is not what the runs have; the index has it right", "CORRUPT", [
            Src(b"f", b"abcdefgh", size=size), Run([stored(b"abcdefgh")])])
    for name, size in (("known", 8), ("unknown", UNKNOWN)):
        bad_file("segments_swapped_" + name, "6.3", "two segments of a run in each other's place", "CORRUPT", [
            Src(b"f", b"abcdefgh", size=size), Run([stored(b"abcdefgh")], [(0, 4, 4), (0, 0, 4)])])
        bad_file("segment_offset_" + name, "6.3", "Offset is not the sum so far", "CORRUPT", [
            Src(b"f", b"abcdefgh", size=size), Run([stored(b"abcd")]), Run([stored(b"efgh")], [(0, 5, 4)])])
    two = [stored(bytes(100)), stored(bytes(16384))]
    bad_file("blocks_swapped_sizes", "7", "the last block is full, another is not; the sum is right", "CORRUPT", [Src(data=bytes(16484)), Run(two)])
    bad_file("blocks_of_half_size", "7", "two blocks of half a block's size", "CORRUPT", [Src(data=bytes(16384)), Run([stored(bytes(8192))] * 2)])
    bad_file("order_incomplete_file", "6.3", "a file that is not complete when the next starts", "CORRUPT", two_files())
    bad_file("order_incomplete_last", "6.3", "a file that is not complete when the index starts", "CORRUPT",
        [Src(b"a", b"aaaa"), Run([stored(b"aa")])])
    bad_file("order_missing_run", "6.2", "a file without any run", "CORRUPT", [Src(b"a", b"aaaa")])
    bad_file("order_earlier_file", "6.3", "a segment of an earlier file", "CORRUPT", [
        Src(b"a", b"a", size=UNKNOWN), Run([stored(b"a")]), Src(b"b", b""), Run([stored(b"a")], [(0, 1, 1)])])
    bad_file("order_later_file", "6.3", "a segment of a file that does not exist yet", "CORRUPT", [
        Src(b"a", b""), Run([stored(b"b")], [(1, 0, 1)]), Src(b"b", b"b")])
    bad_file("segment_file", "6.3", "File of a segment: no such file", "CORRUPT", [Src(b"a", b"a"), Run([stored(b"a")])],
        {"segment0.0.File": 0xFFFFFFFF})
    bad_file("segment_gap", "6.2", "a gap between two segments", "CORRUPT", [Src(b"a", b"abcd"), Run([stored(b"ab")]), Run([stored(b"d")], [(0, 3,
        1)])])
    bad_file("segment_start", "6.2", "the first segment does not start at 0", "CORRUPT", [Src(b"a", b"abcd"), Run([stored(b"bcd")], [(0, 1, 3)])])
    bad_file("segment_overlap", "6.2", "a segment that covers bytes again", "CORRUPT",
        [Src(b"a", b"abcd"), Run([stored(b"abcd")]), Run([stored(b"d")], [(0, 3, 1)])])
    bad_file("segment_order", "6.3", "segments in another order than the bytes", "CORRUPT",
        [Src(b"a", b"abcd"), Run([stored(b"cdab")], [(0, 2, 2), (0, 0, 2)])])
    bad_file("segment_beyond_file", "6.2", "a segment that ends after its file", "CORRUPT", [Src(b"a", b"abcd", size=3), Run([stored(b"abcd")])],
        {"entry0.File_Size": 3})
    bad_file("segment_overflow", "6.2", "Offset + Size = 2^64 + 1; the sums are right modulo 2^64", "CORRUPT", [
        Src(b"a", b"abcd"), Run([stored(b"ab")]), Run([stored(b"cd")], [(0, 2, UNKNOWN), (0, 1, 3)])])
    # 7
    lists = [r.data(40), b"\3" * 40]
    two_planes = lambda payload=None, change=None: Block(planes(lists).data, 2, 0, 1, payload or planes(lists).payload)

    def bad_block(name, section, rule, status, patch, block=None):
        v.invalid("block_" + name, section, rule, status, one(block or two_planes(), patch=patch and {"block0.0." + k: x for k, x in patch.items()}))

    bad_block("sync", "7", "Sync", "CORRUPT", {"Sync": 0xB0})
    bad_block("header_crc", "7", "Header_CRC", "CHECKSUM", {"Header_CRC": flip})
    bad_block("header_crc_without_position", "7", "Header_CRC taken without the Position", "CHECKSUM",
              {"Header_CRC": lambda old: crc(struct.pack("<BBBBIIII", 0xB1, 0x21, 0, 0, 40, 43, crc(planes(lists).data), 0))})
    swapped = [stored(bytes([i]) * 16384) for i in range(2)]
    bad_file("block_position", "7", "two blocks of a run in each other's place", "CHECKSUM", [Src(data=b"".join(b.data for b in swapped)), Run([
        planes([b.data]) for b in swapped])], {"block0.0.Position": (0, 1), "block0.1.Position": (0, 0)})
    bad_file("block_position_run", "7", "a block of another run", "CHECKSUM", [Src(data=b"xy"), Run([stored(b"x")]), Run([stored(b"y")])],
        {"block1.0.Position": (0, 0)})
    bad_block("joint_3", "7", "Joint 3", "UNSUPPORTED", {"Coding": lambda c: c | 0x18})
    for layout in range(3, 8):
        bad_block("layout_%d" % layout, "7", "Layout %d" % layout, "UNSUPPORTED", {"Coding": lambda c, layout=layout: c & 31 | layout << 5})
    for prediction in (2, 255):
        bad_block("prediction_%d" % prediction, "7", "Prediction %d of a block" % prediction, "UNSUPPORTED", {"Prediction": prediction})
    bad_block("grouping_reserved", "7", "Grouping: reserved bit 7", "UNSUPPORTED", {"Grouping": 128})
    bad_block("no_elements", "7", "N_Elements 0", "CORRUPT", {"N_Elements": 0})
    bad_block("elements_less", "7", "N_Elements one less than the run gives", "CORRUPT", {"N_Elements": 39})
    bad_block("elements_more", "7", "N_Elements one more than the run gives", "CORRUPT", {"N_Elements": 41})
    bad_block("elements_overflow", "7", "N_Elements 2^31 + 40: times width it is right modulo 2^32", "CORRUPT", {"N_Elements": (1 << 31) + 40})
    bad_block("width", "7", "Log2_Width 2 where N_Elements fits 1", "CORRUPT", {"Coding": lambda c: c + 1})
    big = planes([bytes((1 << 20) + 1)])
    bad_file("block_elements_too_many", "7", "N_Elements 2^20 + 1", "CORRUPT", [Src(data=big.data), Run([big], log2=21)])
    bad_block("content_crc", "7", "Content_CRC", "CHECKSUM", {"Content_CRC": flip})
    damaged = two_planes()
    bad_block("content", "7", "one bit of a raw plane is wrong", "CHECKSUM", {},
        two_planes([(n, flip_byte(0)(d) if i == 1 else d) for i, (n, d) in enumerate(damaged.payload)]))
    bad_block("stored_content", "7", "one bit of a stored block is wrong", "CHECKSUM", {}, Block(b"abcd", payload=[("", b"abce")]))
    # 7.1, 7.2
    bad_block("stored_size_less", "7.1", "a stored payload shorter than the elements", "CORRUPT", {}, Block(b"abcd", payload=[("", b"abc")]))
    bad_block("stored_size_more", "7.1", "a stored payload longer than the elements", "CORRUPT", {}, Block(b"abcd", payload=[("", b"abcde")]))
    bad_block("stored_residual", "7.1", "a stored block with Residual 1", "CORRUPT", {}, Block(b"abcd", 2, 1))
    for joint in (1, 2):
        bad_block("stored_joint_%d" % joint, "7.1", "a stored block with Joint %d" % joint, "CORRUPT", {}, Block(b"abcd", 2, joint=joint))
        top, bits = (256 << joint) - 1, 8 - joint
        joints = [b"\1" * 41, b"\2" * 41, bytes(41), b"\3" * 41]
        good_joint = joint_planes(joints, joint, 0)
        bad_block("joint_offset_%d" % (top + 1), "7.4", "Joint %d, Offset %d" % (joint, top + 1), "CORRUPT", {}, Block(
            good_joint.data, 4, 0, 1, [("", struct.pack("<H", top + 1))] + good_joint.payload[1:], joint))
        bad_block("joint_rest_last_%d" % joint, "7.4", "Joint %d: the last value of Rest is behind the elements, and not zero" % joint, "CORRUPT", {},
                  joint_planes(joints, joint, 0, {}, 0, [(-41 % (8 // joint) - 1, 1 << bits - 1)]))
        bad_block("joint_rest_next_%d" % joint, "7.4", "Joint %d: the first value of Rest behind the elements is not zero" % joint, "CORRUPT", {},
                  joint_planes(joints, joint, 0, {}, 0, [(0, 1)]))
        few = joint_planes([b"\1" * 3] * 6 + [bytes(3), b"\3" * 3], 1, 0, {}, 0, [(0, 2)])
        cut = len(join(good_joint.payload[:3]))
        bad_block("joint_ends_offset_%d" % joint, "7.4", "Joint %d: the payload ends within Offset" % joint, "CORRUPT", {}, Block(
            good_joint.data, 4, 0, 1, [("", b"\0")], joint))
        bad_block("joint_ends_rest_%d" % joint, "7.4", "Joint %d: the payload ends within Rest" % joint, "CORRUPT", {}, Block(
            good_joint.data, 4, 0, 1, [("", join(good_joint.payload)[:cut + 8])], joint))
    bad_block("joint_rest_byte", "7.4", "Joint 1: a byte of Rest is behind the elements, and not zero", "CORRUPT", {}, few)
    bad_block("joint_w1", "7.4", "Joint 1, width 1", "CORRUPT", {"Coding": lambda c: c | 8}, plane_block(b"\7" * 40, constant))
    bad_block("payload_huge", "7", "Payload_Size 2^32 - 1", "CORRUPT", {"Payload_Size": 0xFFFFFFFF})
    same = plane_block(b"\7" * 2, constant)
    bad_block("planes_not_smaller", "7.2", "planes that take as many bytes as the elements", "CORRUPT", {}, same)
    bad_block("planes_larger", "7.2", "planes that take more bytes than the elements", "CORRUPT", {}, planes([lists[0]]))
    bad_block("payload_longer", "7", "a payload byte that no plane uses", "CORRUPT", {}, two_planes(damaged.payload + [("", b"\0")]))
    bad_block("payload_shorter", "7", "the last plane is missing", "CORRUPT", {}, two_planes(damaged.payload[:-2]))
    bad_block("payload_shorter_value", "7", "the last plane lacks its last byte", "CORRUPT", {}, two_planes(damaged.payload[:-1]))
    bad_block("payload_empty", "7", "planes in an empty payload", "CORRUPT", {}, two_planes([("", b"")]))
    # 8
    def bad_plane(name, section, rule, coder, plane=None, status="CORRUPT", width=8):
        plane = plane if plane is not None else draw(r, {65: 1, 66: 2, 67: 2}, 60)
        v.invalid(name, section, rule, status, one(plane_block(plane, coder, width)))

    fine = {65: 1, 66: 2, 67: 2}
    for mode in (4, 5, 15, 16, 255):
        bad_plane("plane_mode_%d" % mode, "8", "Mode %d of a plane" % mode, lambda plane, mode=mode: [("", bytes([mode]))] + tree(fine)(plane)[1:])
    bad_plane("tree_range", "8.1", "First + Count = 257", tree(fine, first=254))
    bad_plane("tree_padding", "8.1", "the unused high half is not zero", tree(fine, pad=1))
    bad_plane("tree_first_length", "8.1", "the first length is zero", tree(fine, first=64, count_minus_1=3, fields=[0, 1, 2, 2]))
    bad_plane("tree_last_length", "8.1", "the last length is zero", tree(fine, count_minus_1=3, fields=[1, 2, 2, 0]))
    bad_plane("tree_one_leaf", "8.1", "one leaf", tree(fine, count_minus_1=0, fields=[1]))
    bad_plane("tree_incomplete", "8.1", "the sum of 2^-length is less than 1", tree(fine, fields=[1, 2, 3]))
    bad_plane("tree_incomplete_little", "8.1", "the sum of 2^-length is 1 - 2^-15",
        tree(merged({i: i + 1 for i in range(14)}, {14: 15, 15: 15}), count_minus_1=14, fields=list(range(1, 15)) + [15]),
        bytes(range(14)) * 5)
    bad_plane("tree_oversubscribed", "8.1", "the sum of 2^-length is more than 1", tree(fine, fields=[1, 2, 1]))
    bad_plane("tree_oversubscribed_twice", "8.1", "the sum of 2^-length is 2", tree(fine, count_minus_1=3, fields=[1, 1, 1, 1]))
    bad_plane("tree_escape_short", "8.1", "the escape is shorter than another leaf", tree({65: 2, 66: 2}, 1, fields=[2, 2, 1]), b"AAxByBA" * 9)
    bad_plane("tree_escape_no_length", "8.1", "Mode 3, the escape's length is zero", tree(fine, 0, fields=[1, 2, 2, 0]))
    bad_plane("tree_257_leaves", "8.1", "256 symbols and the escape", tree(merged(even(range(256)), {255: 9}), 9, fields=[8] * 255 + [9, 9]),
        r.data(600))
    bad_plane("tree_header_ends", "8.1", "the payload ends within the lengths", literal(b"\2", b"\0", b"\xff", bytes([0x88] * 20)), width=1)
    bad_plane("tree_mask_ends", "8.2", "the payload ends within a mask", lambda plane: trimmed(tree(fine)(plane)), width=1)
    bad_plane("tree_flat_padding", "8.2", "unused bits of a flat list are not zero", tree({i: 2 for i in range(4)}, dirty_flat=1),
        bytes([1] * 60 + [3]))
    bad_plane("tree_flat_ends", "8.2", "the payload ends within a flat list", lambda plane: trimmed(tree({i: 2 for i in range(4)})(plane)),
        bytes([2] * 40), width=1)
    bad_plane("tree_escape_ends", "8.2", "the payload ends within the escape's elements", lambda plane: trimmed(tree({65: 1}, 1)(plane)),
        b"A" * 50 + b"xyz", width=1)
    two = {0: 1, 1: 1}
    bad_plane("mask_padding_small", "8.3", "unused bits of a mask of 61 bits are not zero", tree(two, masks=nested_masks((0, 1))), bytes(61))
    bad_plane("mask_padding_raw", "8.3", "unused bits of a raw mask are not zero", tree(two, masks=nested_masks((0, 1))), bytes(301))
    bad_plane("mask_padding_nested", "8.3", "unused bits of a nested mask are not zero", tree(two, masks=nested_masks((5, 1), 0)), bytes(301))
    bad_plane("mask_padding_polarity", "8.3", "unused bits of a nested mask, polarity 1, are not zero after the complement",
        tree(two, masks=nested_masks((10, 1), 0)), b"\1" * 301)
    bad_plane("mask_padding_inner", "8.3", "unused bits of a mask within a nested mask", tree(two, masks=nested_masks(5, (0, 1))),
        bytes([i % 40 == 0 for i in range(308)]))
    for mode in (21, 22, 127, 255):
        bad_plane("mask_mode_%d" % mode, "8.3", "Mode %d of a mask" % mode, tree(two, masks=nested_masks(mode)), bytes(300))
    bad_plane("mask_mode_inner", "8.3", "Mode 21 of a mask within a nested mask", tree(two, masks=nested_masks(1, 21)),
        bytes([i % 3 == 0 for i in range(2100)]), width=4)
    bad_plane("mask_ends", "8.3", "the payload ends within a nested mask", lambda plane: trimmed(tree(two, masks=nested_masks(1))(plane)),
        bytes([i % 3 == 0 for i in range(300)]), width=1)
    # 9, 10
    bad("index_n_files", "10", "N_Files", "CORRUPT", {"index.N_Files": 3})
    bad("index_n_runs", "10", "N_Runs", "CORRUPT", {"index.N_Runs": 1})
    bad("index_n_swapped", "10", "N_Files 1, N_Runs 3: their sum is right", "CORRUPT", {"index.N_Files": 1, "index.N_Runs": 3})
    bad("index_identity", "10", "Snapshot_Identity", "CORRUPT", {"index.Snapshot_Identity": flip_byte(31)})
    bad("index_reserved", "10", "reserved field of the index", "UNSUPPORTED", {"index.Reserved": 1})
    bad("index_n_metadata_more", "10", "N_Metadata one too many", "CORRUPT", {"index.N_Metadata": 3})
    bad("index_n_metadata_less", "10", "N_Metadata one too few", "CORRUPT", {"index.N_Metadata": 1})
    bad("index_n_metadata_huge", "10", "N_Metadata 2^32 - 1: nothing may be allocated for it", "CORRUPT", {"index.N_Metadata": 0xFFFFFFFF})
    bad("entry_first_offset", "10", "Offset of the first entry", "CORRUPT", {"entry0.Offset": plus(-1)})
    bad("entry_offset", "10", "Offset of another entry", "CORRUPT", {"entry2.Offset": plus(1)})
    bad("entry_copy_path", "10", "Copy of a FILE: the Path", "CORRUPT", {"entry0.Copy": flip_byte(60)})
    bad("entry_copy_head", "10", "Copy of a FILE: Body_CRC", "CORRUPT", {"entry3.Copy": flip_byte(23)})
    bad("entry_copy_run", "10", "Copy of a RUN: Log2_Block_Size", "CORRUPT", {"entry1.Copy": flip_byte(32)})
    v.invalid("entry_order", "10", "entries in another order than the sections", "CORRUPT", build([Src(b"a"), Src(b"b")], reorder=True))
    bad("entry_file_size", "10", "File_Size differs from the FILE section", "CORRUPT", {"entry0.File_Size": 17})
    bad_file("entry_unknown_size", "10", "File_Size differs from what came, FILE section: unknown", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": 2})
    bad_file("entry_still_unknown", "10", "File_Size is still unknown in the index", "CORRUPT",
        [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": UNKNOWN})
    bad("entry_file_crc", "10", "File_CRC", "CORRUPT", {"entry0.File_CRC": flip})
    bad("entry_reserved", "10", "reserved field of an entry", "CORRUPT", {"entry3.Reserved": 1})
    bad("entry_identity_tensor", "10", "identity of a tensor", "CORRUPT", {"entry0.Identity1": flip_byte(0)})
    bad("entry_identity_file", "10", "identity of a file without tensors", "CORRUPT", {"entry3.Identity0": flip_byte(9)})
    bad("entry_block_size", "10", "size of a block", "CORRUPT", {"entry1.Size0": plus(1)})
    bad("entry_block_crc", "10", "Header_CRC of a block", "CORRUPT", {"entry1.Header_CRC0": flip})
    mine, other = (one(stored(data)) for data in (b"mine", b"that"))
    at = mine.out.index(b"mine") - 24
    v.invalid("entry_block_of_another_file", "10", "a block of another file, of the same size and number, in place of the right one", "CORRUPT",
              bytes(mine.out[:at]) + bytes(other.out[at:at + 28]) + bytes(mine.out[at + 28:]))
    bad("metadata_order", "10", "keys that do not ascend", "CORRUPT", {"metadata0.Key": b"zormat"})
    bad("metadata_same_key", "10", "the same key twice", "CORRUPT", {"metadata0.Key": b"title", "metadata0.Key_Size": 5})
    bad("metadata_no_key", "10", "Key_Size 0", "CORRUPT", {"metadata0.Key": b"", "metadata0.Key_Size": 0})
    bad_file("metadata_key_too_long", "10", "Key_Size 65,536", "CORRUPT", [Src(b"f")], metadata=[(b"k" * 65536, b"")])
    bad("metadata_zero_byte", "10", "zero byte in a key", "CORRUPT", {"metadata0.Key": b"for\0at"})
    bad("metadata_value_huge", "10", "Value_Size 2^28 + 1", ["CORRUPT", "LIMIT"], {"metadata1.Value_Size": (1 << 28) + 1})
    bad("metadata_value_longer", "10", "Value_Size beyond the body", "CORRUPT", {"metadata1.Value_Size": 2})
    bad("trailer_index_offset", "10", "Index_Offset, the sum made right by Index_Size", "CORRUPT",
        {"trailer.Index_Offset": plus(1), "trailer.Index_Size": plus(-1)})
    bad("trailer_index_offset_overflow", "10", "Index_Offset 2^64 - 1: the sum is right modulo 2^64", "CORRUPT", {
        "trailer.Index_Offset": UNKNOWN, "trailer.Index_Size": lambda size: len(good) - 40 + 1})
    bad("trailer_index_size", "10", "Index_Size", "CORRUPT", {"trailer.Index_Size": plus(-24)})
    bad("trailer_total_size", "10", "Total_Size", "CORRUPT", {"trailer.Total_Size": plus(1)})
    bad("trailer_reserved", "10", "reserved field of the trailer", "UNSUPPORTED", {"trailer.Reserved": 1})
    bad("trailer_crc", "10", "Trailer_CRC", "CHECKSUM", {"trailer.Trailer_CRC": flip})
    bad("trailer_end_magic", "10", "End_Magic", ["CORRUPT", "TRUNCATED"], {"trailer.End_Magic": b"\x8cLMC\r\n\x1a\n"})
    v.invalid("trailing_byte", "10", "a byte after the trailer", ["CORRUPT", "TRUNCATED"], good + b"\0")
    v.invalid("trailing_file", "10", "another LMC file after the trailer", "CORRUPT", good + good)
    # Plain damage
    marks = {1: "within Magic", 7: "within Magic", 8: "after Magic", 9: "within the version", 10: "after the version", 79: "within the header",
        80: "after the header",
             103: "within a section header", 104: "after a section header", 150: "within a FILE body"}
    b = simple({})
    ends = {}
    at = 0
    for note, data in b.notes:
        ends.setdefault(note, at + len(data))
        at += len(data)
    marks.update({ends["N_Segments"]: "within a RUN body", ends["Sync"]: "within a block header",
                  ends["Base_CRC"] + 4: "after a block header", ends["the bytes"] - 1: "within a payload", ends["N_Metadata"]: "within the index",
                  len(good) - 40: "before the trailer", len(good) - 8: "before End_Magic", len(good) - 1: "one byte missing"})
    for size, what in sorted(marks.items()):
        v.invalid("truncated_%04d" % size, "10", "the input ends %s" % what, "NOT_LMC" if size < 8 else "TRUNCATED", good[:size])
    for at, status in ((4, "NOT_LMC"), (9, "VERSION"), (20, "CHECKSUM"), (76, "CHECKSUM"), (84, "CHECKSUM"), (90, "CHECKSUM"), (130, "CHECKSUM"),
                       (ends["the bytes"] - 3, "CHECKSUM"), (ends["N_Metadata"], "CHECKSUM"), (len(good) - 20, "CHECKSUM")):
        v.invalid("flipped_%04d" % at, "all", "bit 4 of byte %d flipped" % at, status, flip_bit(good, at, 4))
    flat = bytes(v.builders["example_tree"].out)
    start = flat.index(b"\xb1")
    for at in range(start + 26, start + 44, 3):
        v.invalid("flipped_tree_%04d" % at, "8", "a bit of a coded plane flipped", ["CORRUPT", "CHECKSUM"], flip_bit(flat, at, at % 8))


def invalid_deltas(v, pool, chains, link):
    r = Random(7)
    base = chains[0]                           # a file of 300 bytes without a name
    old = base.items[0]
    new = weights(r, 0, 2, old)

    def delta(block, patch=None, base=base, **options):
        """A nameless file of one block against the first bytes of the base."""
        return build([Src(data=block.data), Run([block], prediction=1, base=(1, 0), **options)], base=base, patch=patch)

    def bad(name, section, rule, status, block, patch=None, **fields):
        """fields: of the block's header."""
        v.invalid(name, section, rule, status, delta(block, dict(patch or {}, **{"block0.0." + name: value for name, value in fields.items()})))

    def payload(block, *parts):
        return Block(block.data, block.width, block.residual, 1, [("", part) for part in parts], 0, block.base, block.grouping)

    plain = predicted(new, old, 2)
    classes = predicted(new, old, 2, thresholds=[112, 114, 116])
    sparse = predicted(new, old, 2, thresholds=[112, 114, 116], sparse=True)
    natural = predicted(new, old, 2, thresholds=[112, 114, 116], natural=1)

    # 4: which base
    path = lambda name, data: [v.base("bases/" + name, data)]
    good = delta(plain)
    bit = flip_bit(old, 150, 3)
    v.invalid("base_missing_delta", "4", "a delta, and no base", "BASE_MISSING", good, [])
    v.invalid("base_wrong", "4", "the base is another file", "BASE_WRONG", good, pool.paths)
    v.invalid("base_wrong_several", "4", "none of the bases is right", "BASE_WRONG", good,
              pool.paths + ["valid/chain_1.bin", "valid/example_stored.lmc"])
    v.invalid("base_wrong_next", "4", "the base is the snapshot itself, as it should become", "BASE_WRONG", link(1, 0), ["valid/chain_1.bin"])
    v.invalid("base_wrong_bit", "4", "one bit of the base has changed", "BASE_WRONG", good, path("wrong_bit.bin", bit))
    v.invalid("base_wrong_bit_lmc", "4", "one bit of the base has changed before it was packed", "BASE_WRONG", good,
              path("wrong_bit.lmc", one(stored(bit, 2)).out))
    v.invalid("base_wrong_short", "4", "the base lacks its last byte", "BASE_WRONG", good, path("wrong_short.bin", old[:-1]))
    v.invalid("base_wrong_long", "4", "the base has a byte more", "BASE_WRONG", good, path("wrong_long.bin", old + b"\0"))
    named = build([Src(b"name", old), Run([stored(old)])])
    v.invalid("base_wrong_name", "4", "the base has another name", "BASE_WRONG", good, path("wrong_name.lmc", named.out))
    whole = Src(data=old, tensors=[T(b"", b"BF16", (150,), 0, 300)])
    typed = build([whole, Run([stored(old)])])
    v.invalid("base_wrong_dtype", "4", "the base is a tensor of another dtype", "BASE_WRONG", good, path("wrong_dtype.lmc", typed.out))
    damaged = flip_bit(bytes(one(stored(old, 2)).out), 300, 2)
    v.invalid("base_damaged", "4", "the base is a damaged LMC file", ["CHECKSUM", "CORRUPT", "BASE_WRONG"], good, path("damaged.lmc", damaged))
    v.invalid("chain_missing", "4", "the base is a delta, whose base is missing", ["BASE_MISSING", "BASE_WRONG"], link(2, 1), ["valid/chain_1.lmc"])
    v.invalid("chain_gap", "4", "the base is missing, the base of the base is there", "BASE_WRONG", link(2, 1), ["valid/chain_0.lmc"])
    v.invalid("chain_wrong", "4", "the base is a delta, whose base is another file", "BASE_WRONG", link(2, 1),
              ["valid/chain_1.lmc", "bases/wrong_bit.bin"])
    # 5.2: runs
    zeros = predicted(bytes(40), bytes(40), 2)
    v.invalid("run_without_base", "5.2", "Prediction 1 in a file without a base", "CORRUPT", build([Src(data=bytes(40)), Run([zeros], prediction=1)]))
    for conversion in (1, 2, 3, 255):
        bad("run_conversion_1_%d" % conversion, "5.2", "Conversion %d with Prediction 1" % conversion, "UNSUPPORTED", plain,
            {"run0.Conversion": conversion})
        v.invalid("run_conversion_0_%d" % conversion, "5.2", "Conversion %d with Prediction 0" % conversion, "UNSUPPORTED",
                  one(stored(b"half"), patch={"run0.Conversion": conversion}))
    for item in (2, 0xFFFFFFFF):
        bad("segment_item_%d" % item, "5.2", "Base of a segment: the base has one item", "CORRUPT", plain, {"segment0.0.Base": item})
    bad("segment_base_beyond", "5.2", "Base_Offset + Size is one more than the item has", "CORRUPT", plain, {"segment0.0.Base_Offset": 1})
    bad("segment_base_offset_beyond", "5.2", "Base_Offset is beyond the item", "CORRUPT", plain, {"segment0.0.Base_Offset": 1 << 40})
    bad("segment_base_overflow", "5.2", "Base_Offset + Size = 2^64 + 299", "CORRUPT", plain, {"segment0.0.Base_Offset": UNKNOWN})
    bad("segment_base_zero_offset", "5.2", "Base 0 with a Base_Offset in a run of Prediction 1", "CORRUPT", stored(new), {
        "segment0.0.Base": 0, "segment0.0.Base_Offset": 1})
    v.invalid("segment_base_zero_offset_0", "5.2", "Base 0 with a Base_Offset in a run of Prediction 0", "CORRUPT",
              one(stored(b"text"), patch={"segment0.0.Base_Offset": 1}))

    def bad_own(name, rule, *items, status="CORRUPT", patch=None, section="5.2"):
        v.invalid("own_" + name, section, rule, status, build(list(items), patch=patch))

    a = old[:60]
    first = lambda: (Src(b"a", a), Run([stored(a)]))
    copy = lambda: own_run(1, 0, a, [(60, 1, 0)], sources=[Src(data=a)])
    bad_own("sequential", "Prediction 2 in a file with Sequential 1", *first(), Src(b"b", a), copy(), patch={"header.Flags": 1})
    for conversion in (3, 255):
        bad_own("conversion_%d" % conversion, "Conversion %d" % conversion, *first(), Src(b"b", a), copy(), patch={"run1.Conversion": conversion},
                status="UNSUPPORTED")
    bad_own("no_file", "Base of a segment: no such file", *first(), Src(b"b", a), copy(), patch={"segment1.0.Base": 3})
    bad_own("file_huge", "Base of a segment: 2^32 - 1", *first(), Src(b"b", a), copy(), patch={"segment1.0.Base": 0xFFFFFFFF})
    bad_own("beyond_file", "a prediction that ends after its file", *first(), Src(b"b", a), copy(), patch={"segment1.0.Base_Offset": 1})
    bad_own("overflow", "Base_Offset + Size = 2^64 + 59", *first(), Src(b"b", a), copy(), patch={"segment1.0.Base_Offset": UNKNOWN})
    bad_own("zero_offset", "Base 0 with a Base_Offset in a run of Prediction 2", *first(), Src(b"b", a), Run([stored(a)], [(1, 0, 60, 0, 8)], 14, 2))
    twice = Src(data=a + a)
    bad_own("itself", "a run predicted from itself", twice, Run([stored(a)]), Run([stored(a)], [(0, 60, 60, 1, 60)], 14, 2))
    bad_own("into_itself", "a prediction that ends one byte within its own run", twice, Run([stored(a)]),
            Run([stored(a)], [(0, 60, 60, 1, 1)], 14, 2))
    bad_own("forwards", "a prediction from a later run of the same file", twice, Run([stored(a)], [(0, 0, 60, 1, 60)], 14, 2), Run([stored(a)]))
    bad_own("forwards_file", "a prediction from a file that comes later", Src(b"a", a), Run([stored(a)], [(0, 0, 60, 2, 0)], 14, 2), Src(b"b", a),
            Run([stored(a)]))
    thrice = Src(data=a * 3)
    own = lambda start, base_start: Run([stored(a)], [(0, start, 60, 1, base_start)], 14, 2)
    bad_own("of_own", "a prediction from a run of Prediction 2", thrice, Run([stored(a)]), own(60, 0), own(120, 60))
    bad_own("of_own_start", "a prediction that ends one byte within a run of Prediction 2", thrice, Run([stored(a)]), own(60, 0), own(120, 1))
    four = Src(data=a * 4)
    bad_own("of_own_end", "a prediction that starts with the last byte of a run of Prediction 2", four, Run([stored(a)]), own(60, 0),
            Run([stored(a)]), own(180, 119))
    bad_own("of_own_zeros", "a prediction from a run of Prediction 2 that has no prediction itself", thrice, Run([stored(a)]),
            Run([stored(a)], [(0, 60, 60, 0, 0)], 14, 2), own(120, 60))
    bad_own("of_own_across", "a prediction that reaches over a run of Prediction 2", Src(data=a * 2 + bytes(180)), Run([stored(a[:30])]), Run(
            [stored(a[30:])], [(0, 30, 30, 1, 0)], 14, 2), Run([stored(a)]), Run([planes([bytes(120)])], [(0, 120, 120, 1, 0)], 14, 2),
            Run([planes([bytes(60)])]))
    floats = pack(TO_ROUND[:20], 4)
    half = convert(floats, 1)
    master = lambda: (Src(b"a", floats), Run([stored(floats)]))
    for conversion in (1, 2):
        rounded = convert(floats, conversion)
        bad_own("conversion_%d_beyond" % conversion,
                "Conversion %d: Base_Offset + Size lies within the file, Base_Offset + 2 * Size does not" % conversion, *master(),
                Src(b"b", rounded), Run([stored(rounded)], [(1, 0, 40, 1, 1)], 14, 2, conversion))
        bad_own("conversion_%d_odd" % conversion, "Conversion %d: a segment of odd Size" % conversion,
                *master(), Src(b"b", half[:37]), Run([stored(half[:37])], [(1, 0, 37, 1, 0)], 14, 2, conversion))
        bad_own("conversion_%d_odd_zeros" % conversion, "Conversion %d: segments of odd Size, whose Base is 0" % conversion,
                *master(), Src(b"b", half), Run([stored(half)], [(1, 0, 1, 0, 0), (1, 1, 38, 1, 0), (1, 39, 1, 0, 0)], 14, 2, conversion))
    bad_own("base_crc", "Base_CRC in a run of Prediction 2", *first(), Src(b"b", a), copy(), patch={"block1.0.Base_CRC": 1}, section="7")
    # 7: blocks
    bad("block_base_crc", "7", "Base_CRC, though the base is right", "BASE_WRONG", plain, Base_CRC=1)
    bad("block_base_crc_zero_in_run_1", "7", "Base_CRC of a block of Prediction 0", "CORRUPT", stored(new), Base_CRC=1)
    v.invalid("block_base_crc_zero", "7", "Base_CRC of a block of Prediction 0 in a run of Prediction 0", "CORRUPT",
              one(stored(b"text"), patch={"block0.0.Base_CRC": 1}))
    v.invalid("block_base_crc_of_zeros", "7", "Base_CRC of a block of Prediction 0 is that of zeros", "CORRUPT",
              one(planes([bytes(40)]), patch={"block0.0.Base_CRC": crc(bytes(40))}))
    v.invalid("block_predicted", "7", "a block of Prediction 1 in a run of Prediction 0", "CORRUPT", build([Src(data=zeros.data), Run([zeros])]))
    v.invalid("block_predicted_in_delta", "7", "a block of Prediction 1 in a run of Prediction 0 of a file with a base", "CORRUPT",
              build([Src(data=zeros.data), Run([zeros])], base=base))
    bad("block_predicted_content", "7", "a residual with a wrong bit", "CHECKSUM", payload(
        sparse, flip_bit(join(sparse.payload), sparse.size() - 1, 0)))
    bad("block_stored_predicted", "7.1", "a stored block of Prediction 1", "CORRUPT", Block(new, 2, base=old))
    bad("block_stored_sparse", "7.1", "a stored block with Sparse", "CORRUPT", Block(new, 2, grouping=8))
    bad("block_stored_classes", "7.1", "a stored block with classes", "CORRUPT", Block(new, 2, grouping=1))
    bad("block_planes_predicted", "7.2", "planes with Prediction 1 that take as many bytes as the elements", "CORRUPT",
        payload(plain, join(plain.payload), bytes(300 - plain.size())))
    joint = joint_planes([bytes(100), bytes(100)], 1, 7)
    against_old = bytes(x ^ y for x, y in zip(joint.data, old))
    bad("block_joint_predicted", "7.4", "Joint with Prediction 1", "CORRUPT", Block(against_old, 2, 0, 1, joint.payload, 1, old[:200]))
    bad("block_joint_sparse", "7.3", "Joint with Sparse", "CORRUPT", Block(joint.data, 2, 0, 1, joint.payload, 1, None, 8))
    bad("block_joint_classes", "7.3", "Joint with classes and Prediction 1", "CORRUPT",
        Block(against_old, 2, 0, 1, joint.payload, 1, old[:200], 1))
    # 7.3
    for name, thresholds in (("zero", [0, 114, 116]), ("same", [112, 112, 116]), ("order", [112, 116, 114]), ("descending", [116, 114, 112])):
        bad("classes_threshold_" + name, "7.3", "thresholds %s" % thresholds, "CORRUPT", predicted(new, old, 2, thresholds=thresholds))
    v.invalid("classes_without_prediction", "7.3", "four classes with Prediction 0", "CORRUPT",
              one(predicted(bytes(60) + new[:40], None, 2, thresholds=[112, 114, 116])))
    for width in (1, 2, 4):
        for n in sorted({width, 7}):
            bad("natural_%d_of_%d" % (n, width), "7.3", "Natural %d, width %d" % (n, width), "CORRUPT",
                predicted(new, old, width, thresholds=[112, 114]), Grouping=2 | n << 4)
    low = bytes(x ^ (i % 6 == 0) for i, x in enumerate(old))
    bad("natural_one_class", "7.3", "Natural 1 with one class", "CORRUPT", predicted(low, old, 4, 0, natural=1))
    bad("natural_sparse", "7.3", "Natural 1 with Sparse and classes", "CORRUPT", predicted(low, old, 4, 0, [112, 114], True, 1))
    bad("natural_sparse_one_class", "7.3", "Natural 1 with Sparse and one class", "CORRUPT", predicted(low, old, 4, 0, [], True, 1))
    v.invalid("natural_without_prediction", "7.3", "Natural 1 with Prediction 0", "CORRUPT", one(predicted(bytes(80), None, 4, natural=1)))
    whole = join(classes.payload)
    bad("classes_end_thresholds", "7.3", "the payload ends within the thresholds", "CORRUPT", payload(classes, whole[:2]))
    bad("classes_end_planes", "7.3", "the payload ends within a class plane", "CORRUPT", payload(classes, whole[:-1]))
    bad("classes_end_natural", "7.3", "the payload ends within a natural plane", "CORRUPT", payload(natural, join(natural.payload)[:3 + 149]))
    bad("classes_end_empty", "7.3", "classes in an empty payload", "CORRUPT", payload(classes))
    whole = join(sparse.payload)
    bad("sparse_ends_mask", "7.3", "the payload ends within the first mask", "CORRUPT", payload(sparse, whole[:4]))
    bad("sparse_ends_masks", "7.3", "the payload ends after the first mask", "CORRUPT", payload(sparse, whole[:3 + len(sparse.payload[1][1])]))
    bad("sparse_ends_planes", "7.3", "the payload ends within a class plane", "CORRUPT", payload(sparse, whole[:-1]))
    bad("classes_longer", "7.3", "a payload byte behind the class planes", "CORRUPT", payload(classes, join(classes.payload), b"\0"))
    empty = predicted(new, old, 2, 0, [112, 255])
    bad("classes_plane_of_empty", "7.3", "planes of a class without elements", "CORRUPT", payload(empty, join(empty.payload), b"\1\0\1\0"))
    none = predicted(old[:200], old[:200], 2, sparse=True)
    bad("sparse_plane_of_none", "7.3", "planes of a class of which no element is coded", "CORRUPT", payload(none, join(none.payload), b"\1\0\1\0"))
    last = predicted(old[:200], old[:200], 2, thresholds=[255], sparse=True)
    bad("sparse_mask_of_empty", "7.3", "a mask of a class without elements", "CORRUPT", payload(last, join(last.payload), b"\0"))
    bad("sparse_padding", "7.3", "unused bits of a mask of 150 bits are not zero", "CORRUPT", predicted(new, old, 2, sparse=True, padding=1))
    bad("sparse_padding_class", "7.3", "unused bits of the mask of a class are not zero", "CORRUPT",
        predicted(new, old, 2, thresholds=[112, 114, 116], sparse=True, padding=1))
    bad("sparse_padding_raw", "7.3", "unused bits of a raw mask of 300 bits are not zero", "CORRUPT",
        predicted(new, old, 1, sparse=True, masks=raw_masks, padding=1))
    bad("sparse_padding_nested", "7.3", "unused bits of a nested mask of 300 bits are not zero", "CORRUPT",
        predicted(new, old, 1, sparse=True, masks=nested_masks(4), padding=1))
    bad("sparse_mask_mode", "7.3", "Mode 21 of a mask", "CORRUPT", predicted(new, old, 1, sparse=True, masks=nested_masks(21)))
    bad("classes_plane_mode", "7.3", "Mode 4 of a class plane", "CORRUPT", predicted(new, old, 2, thresholds=[112], coders={(1, 0): literal([4])}))


def invalid_quantised(v, pool):
    r = Random(9)
    log, signed, table = METHOD_LOG, METHOD_SIGNED, METHOD_TABLE
    second = moments(r, 100, 4)

    def bad(name, rule, block, status="CORRUPT", prediction=2, base=None, **fields):
        """fields: of the block's header. A block of Prediction 1 is predicted by second, or by base in a delta."""
        patch = lambda run: {"block%d.0.%s" % (run, field): value for field, value in fields.items()}
        if block.base is None:
            made = one(block, patch=patch(0))
        elif base:
            made = build([Src(data=block.data), Run([block], prediction=1, base=(1, 0))], base=base, patch=patch(0))
        else:
            run = Run([block], prediction=prediction, base=(1, 0) if prediction else ())
            made = build([Src(b"v", second), Run([stored(second)]), Src(b"m", block.data), run], patch=patch(1))
        v.invalid("quantised_" + name, "7.6", rule, status, made)

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
        bad("width_%d" % width, "a quantised block of width %d" % width, Block(
            data, width, 0, 2, quantised([0] * 100, 4, log, step=1, scales=[ONE]).payload))
    for name, block in (("", good), ("_own", own())):
        bad("residual" + name, "Residual 1", block, Coding=lambda coding: coding | 4)
        for joint in (1, 2):
            bad("joint_%d%s" % (joint, name), "Joint %d" % joint, block, Coding=lambda coding, joint=joint: coding | joint << 3)
        for what, grouping in (("classes", 1), ("sparse", 8), ("natural", 16)):
            bad(what + name, "Grouping %d" % grouping, block, Grouping=grouping)
    bad("joint_3", "Joint 3", good, "UNSUPPORTED", Coding=lambda coding: coding | 24)
    bad("grouping_reserved", "Grouping: reserved bit 7", good, "UNSUPPORTED", Grouping=128)
    bad("content", "a wrong value of an exception", altered(logged(exceptions={5: 0x7FC00000}), Values=0x7FC00001), "CHECKSUM")
    bad("not_smaller", "a payload as large as the elements", quantised([1] * 37, 2, log, step=1, scales=[ONE], coders={"high": raw}))
    bad("larger", "a payload larger than the elements", quantised([1, 2, 3], 4, log, step=1, scales=[ONE]))
    bad("larger_own", "a payload larger than the elements, Prediction 1", quantised([1, 2, 3], 4, base=second[:12]))
    # Prediction
    bad("own_in_run_0", "a block of Prediction 1 in a run of Prediction 0", own(), prediction=0)
    bad("own_base_crc", "Base_CRC in a run of Prediction 2", own(), Base_CRC=1)
    against = pool.items[0][:400]
    bad("delta_base_crc", "Base_CRC in a run of Prediction 1", quantised(symbols, 4, bias=ROOT, base=against), "BASE_WRONG", base=pool, Base_CRC=1)
    bad("base_crc_zero", "Base_CRC of a block of Prediction 0", good, Base_CRC=crc(bytes(400)))
    # Fields of the payload: what follows is as a decoder would take it that did not look
    for bit in range(3, 8):
        bad("method_bit_%d" % bit, "Method: reserved bit %d" % bit, logged(method=log | 1 << bit))
    bad("signed_linear", "Signed without Log", linear(method=signed))
    bad("signed_linear_table", "Signed and Table without Log", quantised(symbols, 4, table | signed, least=-1, table=[1, 2, 3], scales=[ONE]))
    bad("signed_own", "Signed with Prediction 1", own(method=signed))
    bad("log_own", "Log with Prediction 1", own(method=log, step=1 << 20))
    bad("log_signed_own", "Log and Signed with Prediction 1", own(method=log | signed, step=1 << 20))
    for low_bits in (9, 16, 32, 255):
        bad("low_bits_%d" % low_bits, "Low_Bits %d" % low_bits, linear(low_bits=low_bits))
    for low_bits in (1, 8, 9):
        bad("low_bits_%d_table" % low_bits, "Low_Bits %d with Table" % low_bits, altered(tabled([1, 2, 3]), Low_Bits=low_bits))
    bad("low_bits_table_list", "Low_Bits 1 with Table, and a list Low", tabled([1, 2, 3], low_bits=1, low=bytes(100)))
    bad("table_size_0", "Table_Size 0 with Table", quantised([0] * 100, 4, table, scales=[ONE]))
    bad("table_size_256", "Table_Size 256", quantised(symbols * 20, 4, table, table=list(range(1, 257)), least=-1, scales=[ONE]))
    bad("table_size_65535", "Table_Size 65,535", altered(tabled([1, 2, 3]), Table_Size=65535))
    bad("table_size_without", "Table_Size 1 without Table", altered(linear(), Table_Size=1))
    bad("table_without", "a table without Table", altered(tabled([1, 2, 3]), Method=0))
    for least in (1, 65535, (1 << 31) - 1, -65536, -65537, -1 << 31):
        values = quantised([0] * 100, 4, least=least, scales=[ONE]) if abs(least) > 70000 else linear(least=least)
        bad("min_%s%d" % ("minus_" * (least < 0), abs(least)), "Min %d" % least, values)
        if abs(least) == 65536 or least == 1:
            bad("min_%s%d_log" % ("minus_" * (least < 0), abs(least)), "Min %d with Log" % least, logged(least=least))
            bad("min_%s%d_own" % ("minus_" * (least < 0), abs(least)), "Min %d, Prediction 1" % least, own(least=least))
    bad("step_0", "Step 0 with Log", logged(step=0))
    bad("step_too_large", "Step 2^24 + 1", logged(step=(1 << 24) + 1))
    bad("step_huge", "Step 2^32 - 1", logged(step=(1 << 32) - 1))
    bad("step_linear", "Step 1 without Log", linear(step=1))
    bad("step_own", "Step 1 with Prediction 1", own(step=1))
    for bias in (1, -1, 1 << 30):
        bad("bias_%s%d_unpredicted" % ("minus_" * (bias < 0), abs(bias)), "Bias %d with Prediction 0" % bias, linear(bias=bias))
    for bias in ((1 << 30) + 1, (1 << 31) - 1, -(1 << 30) - 1, -1 << 31):
        bad("bias_%s%d" % ("minus_" * (bias < 0), abs(bias)), "Bias %d" % bias, own(bias=bias))
    for floor in (1, 0x7F800000):
        bad("floor_%x_unpredicted" % floor, "Floor %#x with Prediction 0" % floor, linear(floor=floor))
    for floor in (0x7F800001, 0x7FC00000, 0x80000000, 0xFFFFFFFF):
        bad("floor_%x" % floor, "Floor %#x" % floor, own(floor=floor))
    bad("group_size_0", "Group_Size 0", altered(linear(group_size=100), Group_Size=0))
    bad("group_size_0_first_0", "Group_Size 0, First_Group 0", altered(linear(group_size=100), Group_Size=0, First_Group=0))
    for group_size in (1 << 31, (1 << 32) - 1):
        bad("group_size_%d" % group_size, "Group_Size %d" % group_size, altered(linear(group_size=100), Group_Size=group_size))
        bad("group_size_%d_first" % group_size, "Group_Size and First_Group %d" % group_size, altered(
            linear(group_size=100), Group_Size=group_size, First_Group=group_size))
    bad("first_group_0", "First_Group 0", linear(first_group=0))
    bad("first_group_larger", "First_Group one more than Group_Size", linear(first_group=31))
    bad("first_group_huge", "First_Group 2^32 - 1", altered(linear(group_size=100), First_Group=(1 << 32) - 1))
    bad("group_size_own", "Group_Size 1 with Prediction 1", own(group_size=1, first_group=0))
    bad("first_group_own", "First_Group 1 with Prediction 1", own(group_size=0, first_group=1))
    bad("groups_own", "groups with Prediction 1", own(group_size=100, first_group=100))
    for what, block in (("", logged(exceptions={3: 1})), ("_own", own(exceptions={3: 1}))):
        bad("exceptions_101" + what, "N_Exceptions one more than N_Elements", altered(block, N_Exceptions=101))
        bad("exceptions_most" + what, "N_Exceptions 2^32 - 1", altered(block, N_Exceptions=(1 << 32) - 1))
        bad("exceptions_overflow" + what, "N_Exceptions 2^29 + 1: times 8 bytes it is right modulo 2^32", altered(block, N_Exceptions=(1 << 29) + 1))
        bad("exceptions_all" + what, "N_Exceptions as many as N_Elements: no room for them", altered(block, N_Exceptions=100))
    # Table, Positions, Groups
    for name, codes in (("zero", [0, 1, 2]), ("same", [1, 2, 2]), ("order", [1, 3, 2]), ("descending", [3, 2, 1]), ("only_zero", [0])):
        high = bytes(min(s, len(codes)) for s in symbols)
        bad("table_" + name, "Table %s" % codes, quantised([[0, *codes][h] for h in high], 4, table, table=codes, least=-1, scales=[ONE], high=high))
    for name, at, index in (("first", 0, 4), ("last", 99, 4), ("largest", 50, 255)):
        high = bytearray(s and (s - 1) % 3 + 1 for s in symbols)
        high[at] = index
        bad("table_index_" + name, "High_%d is %d, Table_Size 3" % (at, index), tabled([1, 2, 3], high=bytes(high), coders={"high": raw}))
        bad("table_index_%s_exception" % name, "the same of an exception", tabled(
            [1, 2, 3], high=bytes(high), coders={"high": raw}, exceptions={at: 0x7FC00000}))
    bad("table_index_constant", "High is 2 everywhere, Table_Size 1", quantised([0] * 100, 4, table, table=[9], scales=[ONE], high=b"\2" * 100))
    positions = lambda *p: struct.pack("<%dI" % len(p), *p)
    several = lambda at: altered(logged(exceptions={i: 5 for i in at if i < 100}), N_Exceptions=len(at), Positions=positions(*at),
                                 Values=positions(*[5] * len(at)))
    for name, p in (("same", (2, 3, 3)), ("same_first", (2, 2, 3)), ("order", (3, 2, 99)), ("descending", (99, 3, 2)), ("100", (2, 3, 100)),
                    ("huge", (2, 3, (1 << 32) - 1)), ("huge_first", (1 << 31, 3, 4)), ("overflow", (2, 3, (1 << 30) + 4))):
        bad("position_" + name, "Positions %s of 100 elements" % (p,), several(p))
    bad("position_100_two", "Positions (2, 100) of 100 elements", several((2, 100)))
    for g in (0x0000, 0x0001, 0x007F, 0x7F80, 0x7F81, 0x7FC0, 0x8000, 0x8080, 0xBF80, 0xFF7F, 0xFFFF):
        bad("scale_%04x_log" % g, "a scale of %04X with Log" % g, logged(scales=[ONE, g]))
        zeros = [0] * 100 if g & 0x7FFF >= 0x7F80 else [0, 2] * 50
        bad("scale_%04x" % g, "a scale of %04X" % g, quantised(zeros, 4, scales=[ONE, ONE, g], group_size=30))
    for g in (0x7701, 0x7780, 0x7F7F):
        bad("scale_%04x" % g, "a scale of %04X without Log" % g, quantised([0, 1] * 50, 4, scales=[ONE, ONE, ONE, g], group_size=30))
    bad("scale_unused", "a scale of 0000 of a group whose symbols are 0", quantised([0] * 100, 4, log, step=1, scales=[ONE, 0], group_size=99))
    # Where the payload ends
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
                bad("ends_%s_%s_%s" % (where, part.replace(" ", "_"), name), "the payload ends %s %s" % (where, part),
                    Block(block.data, 4, 0, 2, [("bytes", join(block.payload)[:cut])], 0, block.base))
    for name, block in (("", good), ("_table", coded), ("_own", own())):
        bad("longer" + name, "a payload byte behind the lists", Block(block.data, 4, 0, 2, block.payload + [("", b"\0")], 0, block.base))
    # Lists
    for which in ("scales low", "scales high", "low", "high"):
        name = which.replace(" ", "_")
        bad("list_mode_" + name, "Mode 4 of a list", altered(one_of_all(), **{name: b"\4"}))
    bad("list_tree", "an incomplete code in a list", logged(coders={"high": tree({0: 2, 1: 2, 2: 2, 3: 2}, fields=[2, 2, 2, 3])}))
    bad("list_padding", "unused bits of a flat list are not zero", linear(coders={"high": tree({0: 2, 1: 2, 2: 2, 3: 2}, dirty_flat=1)}))


def flip_bit(data, at, bit):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


def trimmed(parts):
    """Without the last byte."""
    return [("bytes", join(parts)[:-1])]


# ---- Command ----

HEADINGS = {"Magic": "File_Header", "Kind": "Section_Header", "File_Size": "FILE body", "Run_Size": "RUN body", "Sync": "Block_Header",
            "N_Files": "INDX body", "Index_Offset": "Trailer"}
TEXTS = ("Kind", "Path", "Name", "Dtype")
SIGNED = ("Min", "Bias")
EXAMPLES = ("example_stored", "example_tree", "example_delta", "example_quantised")


def dump(b):
    """Annotated hexdump: offset, bytes, field, value."""
    lines, at, last = [], 0, ""
    for note, data in b.notes:
        if note in HEADINGS and (note != "File_Size" or last == "Body_CRC"):
            lines.append("      -- %s --" % HEADINGS[note])
        last, text = note, note
        if note in TEXTS:
            text += ' "%s"' % data.decode()
        elif len(data) in FIELD and note[0].isupper() and " " not in note and "CRC" not in note and "Magic" not in note:
            text += " %d" % int.from_bytes(data, "little", signed=note in SIGNED)
        if note == "Copy":
            lines.append("%04X  (%d bytes)%s%s" % (at, len(data), " " * (37 - len(str(len(data)))), text))
        else:
            for i in range(0, len(data), 16):
                lines.append("%04X  %-47s  %s" % (at + i, data[i:i + 16].hex(" ").upper(), text if i == 0 else ""))
        at += len(data)
    return "\n".join(("    " + line).rstrip() for line in lines)


def make():
    v = Vectors()
    valid_vectors(v)
    pool = delta_vectors(v)
    base_vectors(v, pool)
    example_delta(v)
    bases, link = chain_vectors(v)
    own_vectors(v, pool)
    quantised_vectors(v, pool)
    example_quantised(v)
    invalid_vectors(v)
    invalid_deltas(v, pool, bases, link)
    invalid_quantised(v, pool)
    v.outputs["manifest.json"] = (json.dumps(v.manifest, indent=1) + "\n").encode()
    return v


def main(arguments):
    if arguments[:1] == ["--dump"] and len(arguments) == 2:
        print(dump(make().builders[arguments[1]]))
        return 0
    if arguments not in ([], ["--check-only"]):
        print(__doc__, file=sys.stderr)
        return 2
    v, root = make(), os.path.join(HERE, "vectors")
    if not arguments:
        shutil.rmtree(root, ignore_errors=True)
        for path, data in v.outputs.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "wb") as file:
                file.write(data)
        print("%d valid and %d invalid vectors, %d bytes" % (len(v.manifest["valid"]), len(v.manifest["invalid"]), sum(map(len, v.outputs.values()))))
        return 0
    found = {os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for folder, _, names in os.walk(root) for name in names}
    wrong = sorted(found ^ set(v.outputs))
    for path in sorted(found & set(v.outputs)):
        with open(os.path.join(root, path), "rb") as file:
            if file.read() != v.outputs[path]:
                wrong.append(path)
    with open(os.path.join(HERE, "lmc-format.md"), encoding="utf-8") as file:
        page = file.read()
    wrong += ["lmc-format.md: dump of %s" % name for name in EXAMPLES if dump(v.builders[name]) not in page]
    rows = [line.split("|") for line in page.split("## 11.")[1].split("## 12.")[0].split("\n") if line.count("|") == 5]
    for entry in v.manifest["invalid"]:
        if not any(fnmatch.fnmatchcase(entry["name"], pattern) and set(entry["status"]) <= set(re.findall("[A-Z_]+", row[3]))
                   for row in rows for pattern in re.findall(r"`([a-z0-9_*]+)`", row[4])):
            wrong.append("lmc-format.md, section 11: no row for %s and its status" % entry["name"])
    for path in wrong:
        print("differs: " + path)
    print("%d files compared, %d differ" % (len(v.outputs), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
