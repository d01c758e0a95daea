#!/usr/bin/env python3
"""Make the conformance vectors of the LMC format: vectors/valid, vectors/invalid and vectors/manifest.json.

Usage: make_vectors.py                  write them all, and the bases of the deltas among them to vectors/bases
       make_vectors.py --check-only     compare with what is there (and the dumps and the table of section 11 in lmc-format.md); exit
                                        code 1 if they differ
       make_vectors.py --dump NAME      annotated hexdump of a vector, as in section 14 of lmc-format.md

Each entry of the manifest names its section of the page, what it exercises or breaks, and its conformance level (section 1.3), by the headers of
the file and its bases. Those that are refused name the rules, as the table of section 11.2 says it. A valid one with "or" may also be refused in that way, by who makes a check that is optional.

The encoder in here is naive and makes whatever choices it is told to, so that it writes valid files that no sensible encoder
would. It shares no code with lmc_decode.py. An invalid vector is a valid file with one field or rule broken and everything
that depends on it (CRCs, index, sizes) made right again. SPDX-License-Identifier: MIT
"""
import collections
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

import base_variants
import frozen_trees

HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_BIN = 2000                             # bytes; larger expected outputs are given by their SHA-256 only
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

def crc_table(reflected):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ reflected * (value & 1)
        table.append(value)
    return table


CRC32C, CRC64 = crc_table(0x82F63B78), crc_table(0x9A6C9329AC4BC9B5)


@functools.lru_cache(maxsize=64)
def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = CRC32C[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


@functools.lru_cache(maxsize=64)
def crc64(data):
    value = UNKNOWN
    for byte in data:
        value = CRC64[(value ^ byte) & 255] ^ value >> 8
    return value ^ UNKNOWN


assert crc(b"123456789") == 0xE3069283 and crc64(b"123456789") == 0xAE8B14860A799888
A_TENSOR, A_FILE, A_DIRECTORY = range(3)


def identity_of_tensor(kind, dtype, shape, data):
    leaves = [crc64(data[i:i + 262144]) for i in range(0, len(data), 262144)]
    return hashlib.sha256(b"LMC tensor 2\0" + bytes([kind]) + struct.pack("<%dQ" % len(leaves), *leaves) + bytes([len(dtype)]) + dtype
                          + bytes([len(shape)]) + struct.pack("<%dQ" % (len(shape) + 1), *shape, len(data))).digest()


def identity_of_snapshot(items):
    return hashlib.sha256(b"LMC snapshot 2\0" + b"".join(
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


# A policy for masks: (number of bits, nesting, depth) -> 0 (raw), 1 + 2 * level + polarity or gap_mode(s, polarity), or (that, dirty bit).
def raw_masks(n, nesting, depth):
    return 0


def gap_mode(s, polarity=0):
    return 21 + 2 * s + polarity


def nested_masks(*modes):
    """Mode by nesting, the last for all deeper ones."""
    return lambda n, nesting, depth: modes[min(nesting, len(modes) - 1)]


def encode_mask(bits, nesting, policy, depth=0):
    n, mode = len(bits), policy(len(bits), nesting, depth)
    mode, dirty = mode if isinstance(mode, tuple) else (mode, 0)
    if n < 256 or nesting == 3:
        return [("mask", pack_bits(bits, dirty))]
    if 21 <= mode < 128:                       # those of invalid vectors, too: s over 21, or within another mask
        s, polarity = mode - 21 >> 1, mode - 21 & 1
        positions = [i for i, bit in enumerate(bits) if bit != polarity]
        if not positions:                      # K cannot be 0
            polarity, positions = 1 - polarity, range(n)
            mode = gap_mode(s, polarity)
        return [("mask, Mode: gaps, s %d, polarity %d" % (s, polarity), bytes([mode]))] + gap_lists(positions, s, dirty)
    if mode == 0 or mode > 2 * len(FROZEN):
        return [("mask, Mode", bytes([mode])), ("bits", pack_bits(bits, dirty))]
    packed = pack_bits(bits, dirty)
    if mode - 1 & 1:
        packed = bytes(255 - b for b in packed)
    tree = Tree(FROZEN[mode - 1 >> 1], masks=policy, order=POPCOUNT_ORDER)
    return [("mask, Mode: nested, level %d, polarity %d" % (mode - 1 >> 1, mode - 1 & 1), bytes([mode]))] + tree.nodes(packed, nesting + 1)


def gap_lists(positions, s, dirty=0, count=None, quotients=None):
    """Section 8.3: what follows the Mode byte. count: K, default the truth. quotients: their bits."""
    gaps = [p - q - 1 for p, q in zip(positions, [-1] + list(positions))]
    parts = [("K %d" % len(positions), (len(positions) if count is None else count).to_bytes(3, "little")),
             ("Low", pack_bits([g >> i & 1 for g in gaps for i in range(s)], dirty)),
             ("Quotients", pack_bits([bit for g in gaps for bit in [0] * (g >> s) + [1]] if quotients is None else quotients, dirty))]
    return [part for part in parts if part[1]]


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


def grouping_of(n_classes, sparse=False, natural=0):
    return n_classes - 1 & 7 | sparse << 3 | natural << 4 | n_classes - 1 >> 3 << 7


def predicted(data, base, width, residual=1, thresholds=(), sparse=False, natural=0, coders=None, masks=None, coded=None, padding=0):
    """A block against base (None: against zero). coders: by plane, or by class and plane. masks: a policy. coded: which residuals are stored
    though Sparse, default those that are not zero. padding: of the masks."""
    r = [residual_of(x, b, width, residual) for x, b in zip(split(data, width), split(base or bytes(len(data)), width))]
    keys = [key_of(b, width) for b in split(base or bytes(len(data)), width)]
    classes = [[i for i, key in enumerate(keys) if sum(t <= key for t in thresholds) == c] for c in range(len(thresholds) + 1)]
    grouping = grouping_of(len(thresholds) + 1, sparse, natural)
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

DTYPES = ("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64").split()
DTYPE_NUMBERS = {name.encode(): number for number, name in enumerate(DTYPES, 1)}


class Src:
    """A source file. size: what the FILE section says, default the truth; UNKNOWN: nothing. prefix: Path_Prefix, default as many as can be."""

    def __init__(self, path=b"", data=b"", tensors=(), kind=0, mode=None, mtime=None, size=None, prefix=None):
        self.path, self.data, self.tensors, self.kind, self.mode, self.mtime = path, bytes(data), list(tensors), kind, mode, mtime
        self.size = len(self.data) if size is None else size
        self.prefix = prefix


class Group:
    """The files of one FILE section. extra: what follows them."""

    def __init__(self, *files, extra=b""):
        self.files, self.extra = files, extra


class Section:
    """Of any other kind."""

    def __init__(self, kind, body=b""):
        self.kind, self.body = kind, body


class T(collections.namedtuple("T", "name dtype shape offset size loss back like prefix suffix")):
    """A tensor entry. loss: Generation, Measure, Error. back, like, prefix, suffix: as it is to be coded; of prefix and suffix None means as much
    as can be."""

    def __new__(cls, name, dtype, shape, offset, size, loss=(0, 0, 0), back=0, like=False, prefix=None, suffix=None):
        return super().__new__(cls, name, dtype, tuple(shape), offset, size, loss, back, like, prefix, suffix)


class Run:
    """blocks: in order. segments: (Size, number of the item or file plus 1 or 0, Offset); default one of all bytes, with base as its last two.
    extra: what follows them. between: Sections, by the number of the block before which they stand."""

    def __init__(self, blocks, segments=None, log2=14, prediction=0, conversion=0, base=(), extra=b"", between=None):
        self.blocks, self.segments, self.log2, self.prediction, self.conversion, self.base = blocks, segments, log2, prediction, conversion, base
        self.extra, self.between = extra, between or {}


class Rest(int):
    """A segment's size that is written as 0: the rest of the piece."""


class Base:
    """A snapshot that others are coded against; paths: of what has it, below vectors."""

    def __init__(self, files, paths, depth=0):
        contents = sorted(contents_of(files))
        self.paths, self.depth, self.identity = paths, depth, identity_of_snapshot(items_of(files))
        self.names, self.items = [name for name, _, _ in contents], [data for _, _, data in contents]

    def item(self, name):
        """As a segment's number has it."""
        return self.names.index(name) + 1


class Varint(bytes):
    """So that a dump can tell it."""


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return Varint(bytes(out) + bytes([value]))


def zigzag(d):
    return 2 * d if d >= 0 else -2 * d - 1


def record(tag, data=b""):
    """An extension record."""
    return varint(tag) + varint(len(data)) + data


def common(a, b, most=255):
    """How many bytes a and b share at their start."""
    n = 0
    while n < min(len(a), len(b), most) and a[n] == b[n]:
        n += 1
    return n


def header_text(f):
    """Section 5.2, Prediction 3."""
    first = f.tensors[0].offset if f.tensors else 0
    return b",".join(b'"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
        t.name, t.dtype, b",".join(b"%d" % dim for dim in t.shape), t.offset - first, t.offset - first + t.size) for t in f.tensors)


FIELD = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Builder:
    """Packs the parts of a file. patch: {"header.Flags": 3, ...}: a field's value, or a function of the right one; bytes: instead of the field."""

    def __init__(self, patch=None):
        self.out, self.notes, self.patch, self.used = bytearray(), [], dict(patch or {}), set()

    def value(self, name, value):
        if name not in self.patch:
            return value
        self.used.add(name)
        new = self.patch[name]
        return new(value) if callable(new) else new

    def pack(self, owner, *fields):
        """fields: (name, size, value), (name, "v", value) or (name, bytes). Returns parts."""
        parts = []
        for field in fields:
            value = self.value(owner + "." + field[0], field[-1])
            if isinstance(value, int):
                value = varint(value) if field[1] == "v" else struct.pack("<" + FIELD[field[1]], value & (1 << 8 * field[1]) - 1)
            parts.append((field[0], value))
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
    for size, number, start in segments:
        if number == 0:
            pieces.append(bytes(size))
        elif run.prediction == 1:
            pieces.append(base.items[number - 1][start:start + size])
        elif run.prediction == 3:
            pieces.append(header_text(sources[number - 1])[start:start + size])
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


def build(items, metadata=(), patch=None, index=True, trailer=True, reorder=False, base=None, bits=None, extra=b""):
    """items: Src (or Group), Section and Run in order. bits: Incompatible, default what the content needs. extra: what follows the metadata.
    Returns the Builder, with .files for the manifest."""
    b = Builder(patch)
    items = [Group(item) if isinstance(item, Src) else item for item in items]
    sources = [f for item in items if isinstance(item, Group) for f in item.files]
    header = b.pack("header", ("Magic", bytes.fromhex("834C4D430D0A1A0A")), ("Format_Major", 1, 1), ("Format_Minor", 1, 0), ("Header_Size", 2, 80),
                    ("Flags", 4, 0), ("Incompatible", 8, incompatible(items, base) if bits is None else bits), ("Compatible", 8, 0),
                    ("Base_Identity", base.identity if base else bytes(32)), ("Chain_Depth", 4, base.depth + 1 if base else 0), ("Reserved", 8, 0))
    b.add(b.with_crc("header", "Header_CRC", header))
    entries, n_files, counts = [], 0, {Group: 0, Run: 0, Section: 0}
    for item in items:
        offset, number = len(b.out), counts[type(item)]
        counts[type(item)] += 1
        if isinstance(item, Group):
            copy = b.section("files%d" % number, b"FILE", number, group_body(b, number, item, n_files))
            n_files += len(item.files)
            entries.append((offset, copy, item))
        elif isinstance(item, Section):
            copy = b.section("other%d" % number, item.kind, number, b.pack("other%d" % number, ("Body", item.body)))
            entries.append((offset, copy[:24], item))
        else:
            copy, blocks, between = b.section("run%d" % number, b"RUN ", number, run_body(b, number, item, sources, base)), [], []
            for i, block in enumerate(item.blocks):
                if i in item.between:
                    counts[Section] += 1
                    between.append((len(b.out), b.section("other0", item.between[i].kind, 0, [("Body", item.between[i].body)])[:24], item.between[i]))
                blocks.append(add_block(b, "block%d.%d" % (number, i), (number, i), block))
            entries += [(offset, copy, blocks)] + between
    index_offset = len(b.out)
    if reorder:
        entries.reverse()
    if index:
        b.section("index", b"INDX", 0, index_body(b, bytes(b.out[:80]), sources, entries, metadata, extra))
    if trailer:
        parts = b.pack("trailer", ("Index_Offset", 8, index_offset), ("Index_Size", 8, len(b.out) - index_offset),
                       ("Total_Size", 8, len(b.out) + 40), ("Format_Major", 1, 1), ("Format_Minor", 1, 0), ("Reserved", 2, 0))
        b.add(b.with_crc("trailer", "Trailer_CRC", parts) + b.pack("trailer", ("End_Magic", bytes.fromhex("824C4D430D0A1A0A"))))
    assert b.used == set(b.patch), "patches without effect: %s" % (set(b.patch) - b.used)
    b.files, b.metadata, b.base = sources, metadata, base
    return b


def incompatible(items, base):
    """The bits that the content needs."""
    runs = [item for item in items if isinstance(item, Run)]
    blocks = [block for run in runs for block in run.blocks]
    return (any(block.joint for block in blocks) | bool(base) << 1 | any(run.prediction == 2 for run in runs) << 2
            | any(block.layout == 2 for block in blocks) << 3)


def group_body(b, number, group, first):
    body = b.pack("files%d" % number, ("N_Files", "v", len(group.files)))
    entries, path = [], b""
    for i, f in enumerate(group.files, first):
        owner, unknown = "file%d" % i, f.size == UNKNOWN
        prefix = common(path, f.path) if f.prefix is None else f.prefix
        body += b.pack(owner, ("Form", 1, f.kind | (f.mode is not None) << 1 | (f.mtime is not None) << 2 | unknown << 3), ("Path_Prefix", 1, prefix),
                       ("Path_Rest_Size", "v", len(f.path) - prefix), ("Path_Rest", f.path[prefix:]))
        path = f.path
        if not (f.kind or unknown):
            body += b.pack(owner, ("File_Size", "v", f.size))
        if f.mode is not None:
            body += b.pack(owner, ("Mode", "v", f.mode))
        if f.mtime is not None:
            body += b.pack(owner, ("Mtime_Seconds", 8, f.mtime[0]), ("Mtime_Nanoseconds", 4, f.mtime[1]))
        if not (f.kind or unknown):
            body += b.pack(owner, ("N_Tensors", "v", len(f.tensors)))
        end = 0
        for j, t in enumerate(f.tensors if not (f.kind or unknown) else ()):
            body += tensor_entry(b, "tensor%d.%d" % (i, j), t, entries[len(entries) - t.back] if 0 < t.back <= len(entries) else None, end)
            entries.append(t)
            end = t.offset + t.size
    return body + b.pack("files%d" % number, ("Extra", group.extra))


def tensor_entry(b, owner, t, reference, end):
    """reference: the tensor that Back means. end: of the tensor before."""
    generation, measure, error = t.loss
    parts = b.pack(owner, ("Form", 1, t.like | (t.offset != end) << 1 | (t.loss != (0, 0, 0)) << 2), ("Back", "v", t.back))
    prefix = suffix = 0
    if t.back:
        name = reference.name if reference else b""
        prefix = common(name, t.name) if t.prefix is None else t.prefix
        longest = min(len(name), len(t.name)) - prefix
        suffix = common(name[::-1], t.name[::-1], max(0, min(255, longest))) if t.suffix is None else t.suffix
        parts += b.pack(owner, ("Prefix", 1, prefix), ("Suffix", 1, suffix))
    middle = t.name[prefix:len(t.name) - suffix]
    parts += b.pack(owner, ("Middle_Size", "v", len(middle)), ("Middle", middle))
    if t.offset != end:
        parts += b.pack(owner, ("Gap", "v", t.offset - end & UNKNOWN))
    if not t.like:
        number = DTYPE_NUMBERS.get(t.dtype, 0)
        parts += b.pack(owner, ("Dtype", 1, number))
        if not number:
            parts += b.pack(owner, ("Dtype_Size", 1, len(t.dtype)), ("Dtype_String", t.dtype))
        parts += b.pack(owner, ("Rank", 1, len(t.shape)), *[("Shape%d" % i, "v", dim) for i, dim in enumerate(t.shape)])
        if not number:
            parts += b.pack(owner, ("Size", "v", t.size))
    if t.loss != (0, 0, 0):
        parts += b.pack(owner, ("Generation", 1, generation), ("Measure", 1, measure), ("Error", 4, error))
    return parts


def run_body(b, number, run, sources, base):
    owner, size = "run%d" % number, sum(len(block.data) for block in run.blocks)
    segments = [((size,) + tuple(run.base) + (0, 0))[:3]] if run.segments is None else [(tuple(s) + (0, 0))[:3] for s in run.segments]
    if run.prediction:
        check_predictions(run.blocks, prediction_of(run, segments, sources, base))
        size = sum(s[0] for s in segments)
    body = b.pack(owner, ("Run_Size", "v", size), ("Log2_Block_Size", 1, run.log2), ("Prediction", 1, run.prediction),
                  ("Conversion", 1, run.conversion))
    if run.prediction:
        body += b.pack(owner, ("N_Segments", "v", len(segments)))
        last = -1
        for i, (length, item, start) in enumerate(segments):
            own, reference = "segment%d.%d" % (number, i), 0
            if item:
                reference = (zigzag(item - 1 - last - 1) << 1 | (start != 0)) + 1
                last = item - 1
            body += b.pack(own, ("Size", "v", 0 if isinstance(length, Rest) else length), ("Reference", "v", reference))
            if item and start:
                body += b.pack(own, ("Offset", "v", start))
    return body + b.pack(owner, ("Extra", run.extra))


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
        for t in f.tensors:
            data = f.data[t.offset:t.offset + t.size]
            yield t.name, identity_of_tensor(A_TENSOR, t.dtype, t.shape, data), data
        if not f.tensors:
            yield f.path, identity_of_tensor(A_DIRECTORY if f.kind else A_FILE, b"U8", (len(f.data),), f.data), f.data


def items_of(files):
    return ((name, identity) for name, identity, _ in contents_of(files))


def sha256(data):
    return hashlib.sha256(data).digest()


def hashes_of(f):
    """Section 9.5: of each tensor, and of what else is in the file."""
    rest, end = b"", 0
    for t in f.tensors:
        rest, end = rest + f.data[end:t.offset], t.offset + t.size
    return [sha256(f.data[t.offset:t.offset + t.size]) for t in f.tensors] + [sha256(rest + f.data[end:])]


def hash_of_snapshot(files, metadata=()):
    out = b"LMC content 1\0" + struct.pack("<Q", len(files))
    for f in sorted(files, key=lambda f: f.path):
        form = f.kind | 2 * (f.mode is not None) | 4 * (f.mtime is not None)
        hashes = hashes_of(f)
        out += struct.pack("<I", len(f.path)) + f.path + struct.pack("<BQI", form, len(f.data), f.mode or 0)
        out += struct.pack("<qIQ", *(f.mtime or (0, 0)), len(f.tensors))
        for t, own in zip(f.tensors, hashes):
            out += struct.pack("<I", len(t.name)) + t.name + struct.pack("<B", len(t.dtype)) + t.dtype + struct.pack(
                "<B%dQ" % len(t.shape), len(t.shape), *t.shape) + struct.pack("<QQ", t.offset, t.size) + struct.pack("<BBI", *t.loss) + own
        out += hashes[-1]
    return sha256(out + b"".join(struct.pack("<II", len(k), len(v)) + k + v for k, v in metadata if k == b"lmc.links" or k[:4] != b"lmc."))


def hash_section(files, metadata=()):
    return Section(b"hash", b"\1" + bytes(7) + hash_of_snapshot(files, metadata) + b"".join(sum(map(hashes_of, files), [])))


def index_body(b, header, files, entries, metadata, extra):
    body = b.pack("index", ("Header", header), ("N_Sections", 4, len(entries)), ("N_Metadata", 4, len(metadata)),
                  ("Snapshot_Identity", identity_of_snapshot(items_of(files))))
    for i, (offset, copy, what) in enumerate(entries):
        owner = "entry%d" % i
        body += b.pack(owner, ("Offset", 8, offset), ("Copy", copy))
        if isinstance(what, Group):
            for j, f in enumerate(what.files):
                owner = "entry%d.%d" % (i, j) if j else owner
                body += b.pack(owner, ("File_Size", 8, len(f.data))) if f.size == UNKNOWN else []
                body += b.pack(owner, ("File_CRC", 4, crc(f.data)))
                for k, (_, identity) in enumerate(items_of([f])):
                    body += b.pack(owner, ("Identity%d" % k, identity))
        elif not isinstance(what, Section):
            for j, (size, header_crc) in enumerate(what):
                body += b.pack(owner, ("Size%d" % j, 4, size), ("Header_CRC%d" % j, 4, header_crc))
    for i, (key, value) in enumerate(metadata):
        body += b.pack("metadata%d" % i, ("Key_Size", 4, len(key)), ("Value_Size", 4, len(value)), ("Key", key), ("Value", value))
    return body + b.pack("index", ("Extra", extra))


def one(*blocks, **options):
    """A snapshot of one nameless file; each block is a run of its own."""
    return build([Src(data=b"".join(block.data for block in blocks))] + [Run([block]) for block in blocks], **options)


# ---- The set ----

class Vectors:
    def __init__(self):
        self.outputs, self.manifest, self.builders = {}, {"format": "1.0", "valid": [], "invalid": []}, {}

    def valid(self, name, section, what, b, bases=None, refusable=()):
        """bases: paths of what the decoder is given, if not just the one. refusable: statuses that a decoder may report instead."""
        entry = {"name": name, "section": section, "exercises": what, "size": len(b.out), "sha256": hashlib.sha256(b.out).hexdigest(),
                 "base": b.base.paths if b.base and bases is None else bases or [],
                 "base_identity": b.base.identity.hex() if b.base else None,
                 "identity": identity_of_snapshot(items_of(b.files)).hex(), "files": []}
        for f in b.files:
            item = text("path", f.path)
            item.update({"kind": "directory" if f.kind else "regular", "size": len(f.data), "sha256": hashlib.sha256(f.data).hexdigest(),
                         "mode": f.mode, "mtime": f.mtime, "tensors": []})
            for t, (_, identity) in zip(f.tensors, items_of([f])):
                item["tensors"].append(dict(text("name", t.name), dtype=t.dtype.decode(), shape=t.shape, offset=t.offset, size=t.size,
                                            identity=identity.hex(), loss=t.loss))
            if not f.tensors:
                item["identity"] = next(items_of([f]))[1].hex()
            entry["files"].append(item)
        entry["metadata"] = [dict(text("key", key), **text("value", value)) for key, value in b.metadata]
        if len(b.files) == 1 and not b.files[0].kind and len(b.files[0].data) <= LARGEST_BIN:
            entry["output"] = "valid/%s.bin" % name
            self.outputs[entry["output"]] = b.files[0].data
        if refusable:
            entry["or"] = list(refusable)
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

    def add_levels(self):
        """Section 13: the least level whose decoders know the features of a file and of its bases, by their headers."""
        def level(path):
            data = self.outputs.get(path, b"")
            return (int.from_bytes(data[16:24], "little") & 15).bit_length() if data[:8] == bytes.fromhex("834C4D430D0A1A0A") else 0

        for kind in ("valid", "invalid"):
            for entry in self.manifest[kind]:
                entry["level"] = max(level(path) for path in ["%s/%s.lmc" % (kind, entry["name"])] + entry["base"])


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
        if nesting == 0 and random.below(4) == 0:
            return gap_mode(random.below(8), random.below(2))
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
    v.valid("incompatible_unused", "4", "Joint, Own and Quantised are set, and not used: an encoder that did not know it yet",
            one(stored(b"pipe"), bits=13))
    for bit, name in enumerate(("joint", "base", "own", "quantised")):
        if name != "base":
            v.valid("incompatible_unused_" + name, "4", "Incompatible bit %d is set, and not used" % bit, one(stored(b"pipe"), bits=1 << bit))
    v.valid("minor_255", "4", "Format_Minor 255 in the header and the trailer", one(stored(b"minor"), patch={
        "header.Format_Minor": 255, "trailer.Format_Minor": 255}))
    v.valid("minor_differs", "4", "Format_Minor 1 in the header, 7 in the trailer", one(stored(b"minor"), patch={
        "header.Format_Minor": 1, "trailer.Format_Minor": 7}))
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
    linked = [Src(b"d", kind=1), Src(b"d/one", b"1"), Run([stored(b"1")]), Src(b"d/same", b"1"), Run([stored(b"1")]), Src(b"e", kind=1)]
    v.valid("metadata_links", "10.2", "links: symbolic, dangling, to a directory, to what is no UTF-8, in a directory of its own; hard", build(linked, metadata=[
        (b"lmc.links", b"".join(b"%c%s\0%s\0" % link for link in [
            (b"h", b"d/same", b"d/one"), (b"s", b"dangling", b"no/where"), (b"s", b"e/file", b"../d/one"), (b"s", b"latest", b"d"), (b"s", b"odd", b"\xff")]))]))
    links_vectors(v)
    v.valid("metadata_links_broken", "10.2", "a value of lmc.links that breaks its rules: handed out, and not made", build([Src(data=b"m"), Run([stored(b"m")])], metadata=[
        (b"lmc.links", b"sa")]))
    # 5.2: runs
    for log2 in range(14, 24):
        v.valid("run_log2_%d" % log2, "5.2", "Log2_Block_Size %d, one short block" % log2,
            build([Src(data=b"log2"), Run([stored(b"log2")], log2=log2)]))
    v.valid("run_blocks", "5.2", "three full blocks of different widths and a tail",
        build([Src(b"r", bytes(16384) + b"\1" * 16384 + b"\2" * 16384 + b"\3\4\5\6\7"), Run([
        planes([bytes(16384)]), planes([b"\1" * 2048] * 8), planes([b"\2" * 8192] * 2), stored(b"\3\4\5\6\7")])]))
    v.valid("run_exact", "5.2", "a run of exactly two blocks", build([Src(b"r", bytes(65536)), Run([planes([bytes(8192)] * 4)] * 2, log2=15)]))
    v.valid("run_several", "5.2", "several runs in a file, over tensor borders", build([
        Src(b"f", b"0123456789abcdef", [T(b"a", b"U8", (5,), 1, 5), T(b"b", b"U8", (9,), 7, 9)]),
        Run([stored(b"0123456789", 2)]), Run([stored(b"a")]), Run([stored(b"bcdef")])]))
    v.valid("run_unknown_size", "5.2", "several runs in a file of unknown size, then another file", build([
        Src(b"p", bytes(20000) + b"tail", size=UNKNOWN), Run([planes([bytes(16384)]), planes([bytes(3616)])]), Run([stored(b"tail")]),
        Src(b"q", b"q"), Run([stored(b"q")])]))
    v.valid("block_largest", "7", "2^20 elements of 8 bytes in 16 bytes of payload",
        build([Src(data=b"\5" * (1 << 23)), Run([Block(b"\5" * (1 << 23), 8, 0, 1, [("eight constant planes", b"\1\5" * 8)])], log2=23)]))
    v.valid("block_elements_2_20", "7", "2^20 elements of one byte", build([Src(data=bytes(1 << 20)), Run([planes([bytes(1 << 20)])], log2=20)]))
    v.valid("block_most_elements", "7", "2^22 elements of one byte", build([Src(data=bytes(1 << 22)), Run([planes([bytes(1 << 22)])], log2=22)]))
    n = (1 << 20) + 77
    v.valid("block_elements_over_2_20", "7", "2^20 + 77 elements: a plane with a raw mask, another with a nested one", build([
        Src(data=b"\1\2" * n), Run([Block(b"\1\2" * n, 2, 0, 1, [("bytes", b"\1\1")] + tree({2: 1, 3: 1}, masks=nested_masks(19))(b"\2" * n))],
                                    log2=22)]))
    data = bytes(262144) + b"\1" * 262144 + b"\2" * 3
    v.valid("identity_leaves", "9.2", "tensors around the leaf size of identities", build([
        Src(b"f", data, [T(b"less", b"U8", (262143,), 0, 262143), T(b"more", b"U8", (262145,), 262143, 262145)]),
        Run([planes([data[i:i + 131072]], {0: constant}) for i in range(0, 524288, 131072)] + [planes([b"\2\2\2"])], log2=17),
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
        block = plane_block(bytes(1 if ones(i) else 0 for i in range(n)), tree(two, masks=nested_masks(*modes)), width)
        v.valid("mask_" + name, "8.3", what, build([Src(data=block.data), Run([block], log2=17)]))

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
    gap_vectors(v, mask)
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


def gap_vectors(v, mask):
    """8.3: masks as gaps. mask: of valid_vectors."""
    for s in range(22):
        for polarity in (0, 1):
            rare = lambda i, s=s: i % (3 + 7 * s) == s % 3
            mask("gaps_s%d_polarity%d" % (s, polarity), "gaps, s %d, polarity %d" % (s, polarity), 700,
                 (lambda i, rare=rare: not rare(i)) if polarity else rare, [gap_mode(s, polarity)], 8)
    for s in (0, 3, 8, 21):
        for name, at in (("first", 0), ("last", 599), ("middle", 300)):
            mask("gaps_one_%s_s%d" % (name, s), "gaps, K 1: the %s of 600 bits, s %d" % (name, s), 600, lambda i, at=at: i == at, [gap_mode(s)])
        mask("gaps_ends_s%d" % s, "gaps, K 2: the first and the last of 600 bits, s %d" % s, 600, lambda i: i in (0, 599), [gap_mode(s)])
        mask("gaps_zero_last_s%d" % s, "gaps, polarity 1, K 1: all bits but the last, s %d" % s, 600, lambda i: i < 599, [gap_mode(s, 1)])
        mask("gaps_all_s%d" % s, "gaps, K = n: all bits are one, s %d" % s, 300, lambda i: True, [gap_mode(s)], 8)
        mask("gaps_none_s%d" % s, "gaps, polarity 1, K = n: all bits are zero, s %d" % s, 300, lambda i: False, [gap_mode(s, 1)], 8)
    mask("gaps_dense", "gaps though two of three bits are one", 900, lambda i: i % 3 > 0, [gap_mode(0)])
    mask("gaps_255_bits", "255 bits: no Mode byte, whatever would be best", 255, lambda i: i == 77, [gap_mode(6)])
    for n in (256, 257):
        mask("gaps_%d_bits" % n, "gaps: %d bits" % n, n, lambda i: i % 51 == 0, [gap_mode(5)])
    for k in range(1, 10):
        mask("gaps_k%d" % k, "gaps, K %d, s 3: the last bytes of both lists" % k, 260, lambda i, k=k: i % 26 == 11 and i < 26 * k, [gap_mode(3)])
    random = Random(83)
    plane = bytes(random.below(8) for _ in range(3000))
    v.valid("gaps_by_depth", "8.3", "gaps in a tree, s by the depth", one(plane_block(plane, tree(
        {i: min(i + 1, 7) for i in range(8)}, masks=lambda n, nesting, depth: gap_mode(depth % 3, depth & 1)), 4)))
    v.valid("gaps_escape", "8.3", "gaps that tell the escape", one(plane_block(
        bytes(65 if i % 90 else i & 255 for i in range(2000)), tree({65: 1}, 1, masks=nested_masks(gap_mode(6))), 1)))
    rare = {5, 1 << 16, 1 << 20, (1 << 20) + 1, (1 << 21) - 1, 1500000}
    n = (1 << 21) + 3
    v.valid("gaps_large", "8.3", "gaps in a plane of 2^21 + 3 elements", build([Src(data=bytes(int(i in rare) for i in range(n))), Run([plane_block(
        bytes(int(i in rare) for i in range(n)), tree({0: 1, 1: 1}, masks=nested_masks(gap_mode(16))))], log2=22)]))


def sparse_gaps(pool, r):
    """7.3, 8.3: the masks of Sparse as gaps."""
    base = pack([element(r, 100, 2) for _ in range(2600)], 2)
    new = pack([b + (i % 260 == 77) for i, b in enumerate(split(base, 2))], 2)
    for s in (0, 4, 7, 21):
        pool.one("sparse_gaps_s%d" % s, "7.3", "Sparse: a mask of 2,600 bits as gaps, s %d" % s,
                 predicted(new, base, 2, sparse=True, masks=nested_masks(gap_mode(s))))
    pool.one("sparse_gaps_polarity", "7.3", "Sparse: gaps, polarity 1: nearly all are coded", predicted(
        pack([b + (i % 260 != 77) for i, b in enumerate(split(base[:1200], 2))], 2), base[:1200], 2, sparse=True,
        masks=nested_masks(gap_mode(7, 1))))
    pool.one("sparse_gaps_none", "7.3", "Sparse: gaps, polarity 1, K = n: none is coded",
             predicted(base[:1200], base[:1200], 2, sparse=True, masks=nested_masks(gap_mode(0, 1))))
    for n in (255, 256):
        pool.one("sparse_gaps_n%d" % n, "7.3", "Sparse: a mask of %d bits%s" % (n, " as gaps" * (n > 255)),
                 predicted(new[:2 * n], base[:2 * n], 2, sparse=True, masks=nested_masks(gap_mode(6))))
    size = 1 << 22
    block = Block(b"\x81" + bytes(size - 2) + b"\x7f", 1, 0, 1, [
        ("class 0: mask, Mode: gaps", bytes([gap_mode(21)]))] + gap_lists([0, size - 1], 21) + [("class 0, plane 0", b"\0\x81\x7f")], 0, bytes(
            size), 8)
    pool.zeros("sparse_gaps_most", "7.3", "Sparse: the first and the last of 2^22 elements, s 21", block, 22)


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
        self.later.append((name, section, what, blocks, starts, 14))

    def zeros(self, name, section, what, block, log2=14):
        """The same of a block whose prediction is zeros."""
        self.later.append((name, section, what, [block], [None], log2))

    def emit(self, v):
        base = Base([Src(data=self.data)], [v.base(self.PATH, self.data)])
        for name, section, what, blocks, starts, log2 in self.later:
            runs = [Run([block], log2=log2, prediction=0 if block.base is None else 1, base=() if block.base is None or start is None else (1, start))
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
    for n_classes in range(2, 17):
        thresholds = [101 + (4 if n_classes < 9 else 2) * i for i in range(n_classes - 1)]
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
    for width in (1, 4, 8):
        pool.one("classes_16_w%d" % width, "7.3", "16 classes, width %d" % width,
                 against(r, keys, 300, width, thresholds=range(101, 131, 2)))
    pool.one("classes_16_edges", "7.3", "16 classes, most of them empty, the thresholds 1 and 255 among them",
             against(r, edges, 160, 2, thresholds=[1, 2, 3, 50, 60, 70, 80, 90, 100, 127, 128, 129, 200, 254, 255]))
    pool.one("classes_9_sparse", "7.3", "nine classes and Sparse", against(r, keys, 400, 2, sparse=True, thresholds=range(102, 126, 3)))
    pool.one("classes_16_sparse_gaps", "7.3", "16 classes and Sparse; masks as gaps where they have 256 bits",
             against(r, [99] * 40 + keys, 900, 2, sparse=True, thresholds=range(101, 131, 2), masks=nested_masks(gap_mode(2))))
    pool.one("natural_16_classes", "7.3", "16 classes and three natural planes",
             against(r, keys, 300, 4, thresholds=range(101, 131, 2), natural=3))
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
        pool.zeros("sparse_zeros_w%d" % width, "7.3", "Sparse against zeros, width %d" % width,
                   predicted(few, bytes(len(few)), width, sparse=True))
    few = pack([r.below(200) + 1 if r.below(19) == 0 else 0 for _ in range(900)], 2)
    pool.zeros("sparse_zeros_nested", "7.3", "Sparse against zeros: a nested mask",
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
            natural = random.below(width) if thresholds and not sparse else 0
            modes = [0 if random.below(3) == 0 else 1 + random.below(20) for _ in range(4)]
            modes[0] = random.pick([modes[0], gap_mode(random.below(9), random.below(2))])
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
    run = Run([], [(s + (0, 0))[:3] for s in segments], log2, 1)
    prediction = prediction_of(run, run.segments, [], base)
    run.blocks = [predicted(src.data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options)
                  for i in range(0, len(src.data), 1 << log2)]
    return run


def own_run(data, segments, conversion=0, sources=(), log2=14, width=2, **options):
    """A run of Prediction 2 for data, in blocks against what the segments point to."""
    run = Run([], segments, log2, 2, conversion)
    prediction = prediction_of(run, segments, sources, None)
    run.blocks = [predicted(data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options) for i in range(0, len(data), 1 << log2)]
    return run


def base_vectors(v, pool):
    """Segments against a base, and its forms."""
    r = Random(4)
    pool_data = pool.items[0]
    # 5.2: segments
    segments = [(7, 1, 900), (1, 0, 0), (30, 1, 500), (13, 1, 0), (64, 0, 0), (5, 1, len(pool_data) - 5), (90, 1, 893), (3, 1, 899)]
    size = sum(p[0] for p in segments)
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 11 == 0) for i, b in enumerate(data)))
    v.valid("delta_segments", "5.2", "a block over segments whose bases lie in another order, overlap, or are zero",
            build([src, delta_run(src, segments, pool, 1, residual=0)], base=pool))
    src = Src(data=src.data[:212])
    cut = segments[:-1] + [(2,) + segments[-1][1:]]
    assert sum(s[0] for s in cut) == 212 == size - 1
    v.valid("delta_segments_w4", "5.2", "the same in elements of four bytes, which the segments cut, with classes", build([src, delta_run(
        src, cut, pool, 4, residual=0, sparse=True, thresholds=[64, 128])], base=pool))
    start = 500
    segments = [(10001, 1, start), (9000, 0, 0), (17000, 1, 10000), (3, 1, 1)]
    data = prediction_of(Run([], segments, prediction=1), segments, [], pool)
    src = Src(data=bytes(b ^ (i % 1000 == 999) for i, b in enumerate(data)))
    blocks = delta_run(src, segments, pool, 1, residual=0, sparse=True, masks=nested_masks(19)).blocks
    v.valid("delta_blocks", "5.2", "blocks and segments whose borders do not meet", build([src, Run(blocks, segments, 14, 1)], base=pool))
    segments = [(32768, 0, 0), (16384, 1, 5000), (100, 1, 77), (20, 0, 0)]
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
    v.valid("delta_unknown_size", "5.2", "a delta of a file of unknown size", build([src, delta_run(src, [(200, 1, 100)], pool)], base=pool))
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
        segments = [(entries[0].offset, 0, 0)] + [(t.size, base.item(t.name), 0) for t in entries if t.size]
        src = Src(data=file, tensors=entries)
        return build([src, delta_run(src, segments, base)], base=base)

    v.valid("delta_base_safetensors", "9.4", "a base of tensors, numbered by name, as a safetensors file", delta_of_tensors(base, *other))
    v.valid("delta_base_lmc", "9.4", "the same as an LMC file", delta_of_tensors(base, *other), ["valid/base_weights.lmc"])
    v.valid("delta_base_several", "9.4", "the same among others that are not it", delta_of_tensors(base, *other), pool.paths + [
        "valid/example_stored.lmc", "bases/weights.safetensors"])
    v.valid("delta_equal", "4", "a delta whose content is that of its base: one identity", delta_of_tensors(base, file, entries))
    weight, bias, scalar = (base.item(name) for name in (b"a.weight", b"m.bias", b"scalar"))
    segments = [(1, 0, 0), (39, weight, 361), (20, bias, 40), (2, scalar, 6), (30, weight, 1)]
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
    runs = [delta_run(text[0], [(14, base.item(b"config.json"), 0)], base, 2, residual=0),
            delta_run(text[1], [(9, base.item(b"tokenizer/vocab.txt"), 0)] * 3, base, 1)]
    v.valid("delta_base_directory", "9.4", "a base of several files: tensors, plain files, a directory",
            build([text[0], runs[0], text[1], runs[1]], base=base))
    files = [Src(b"w", b"no tensor")] + [Src(b"f%d" % i, b"w%d" % i, [T(b"w", b"U8", (2,), 0, 2)]) for i in range(3)]
    files.sort(key=lambda f: list(items_of([f])), reverse=True)
    v.valid("base_same_names", "9.3", "four items of the same name, not in the order of their identities", build([
        item for f in files for item in (f, Run([stored(f.data)]))]))
    base = Base(files, ["valid/base_same_names.lmc"])
    src = Src(data=b"".join(base.items) * 6)
    segments = [(len(item), i + 1, 0) for i, item in enumerate(base.items)] * 6
    v.valid("delta_same_names", "9.3", "items of the same name, by their identities", build([src, delta_run(src, segments, base, 1)], base=base))


def example_delta(v):
    old, new = struct.pack("<4H", 0x3F80, 0xBF00, 0x0000, 0x4049), struct.pack("<4H", 0x3F81, 0xBF00, 0x0000, 0x4048)
    old, new = (Src(b"w.bin", data, [T(b"w", b"BF16", (2, 2), 0, 8)]) for data in (old, new))
    base = Base([old], ["valid/example_stored.lmc"])
    v.valid("example_delta", "14.3", "worked example: a delta of four elements, of which two have changed",
            build([new, delta_run(new, [(8, base.item(b"w"), 0)], base, sparse=True, coders={0: raw})], base=base))


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
        return build([Src(data=data[i]), delta_run(sources[i], [(300, 1, 0)], base, thresholds=[112, 116])], base=base, patch=patch)

    v.valid("chain_0", "4", "the base of a chain", one(stored(data[0], 2)))
    v.valid("chain_1", "4", "a delta, Chain_Depth 1", link(1, 0))
    v.valid("chain_2", "4", "a delta on a delta, Chain_Depth 2", link(2, 1))
    v.valid("chain_2_other_order", "4", "the bases given in another order, among others", link(2, 1),
            ["bases/pool.bin", path % (0, "bin"), path % (1, "lmc")])
    v.valid("chain_2_plain", "4", "the base, once a delta, is a plain file now", link(2, 1), [path % (1, "bin")])
    v.valid("chain_depth_hint", "4", "Chain_Depth tells more than there are", link(1, 0, 0xFFFFFFFF))
    chain, links, paths = Random(64).data(24), [], []
    for i in range(65):
        here = Src(data=chain)
        made = one(stored(chain)) if i == 0 else build([here, delta_run(here, [(24, 1, 0)], Base([links[-1]], [], i - 1), 1)], base=Base([links[
            -1]], [], i - 1))
        if i < 64:
            paths.append(v.base("bases/chain/%02d.lmc" % i, made.out))
        links.append(here)
        chain = bytes(x + (i % 24 == at) & 255 for at, x in enumerate(chain))
    v.valid("chain_64", "12", "a chain of 64 deltas", made, paths[::-1])
    v.valid("chain_back", "4", "a delta on a delta, whose content is that of the first base", link(0, 1))
    return bases, link


def own_vectors(v, pool):
    r = Random(6)
    a, b = weights(r, 100, 2), weights(r, 60, 4)
    near = weights(r, 0, 2, a)
    first = lambda: [Src(b"a", a), Run([stored(a)])]
    v.valid("own_copy", "5.2", "Prediction 2: a file that is equal to another", build(
        first() + [Src(b"b", a), own_run(a, [(200, 1, 0)], sources=[Src(data=a)])]))
    v.valid("own_near", "5.2", "Prediction 2: a file that is near another, with classes", build(
        first() + [Src(b"b", near), own_run(near, [(200, 1, 0)], sources=[Src(data=a)], thresholds=[112, 116, 118])]))
    src = Src(data=a + a[20:], size=UNKNOWN)
    v.valid("own_same_file", "5.2", "Prediction 2: bytes of an earlier run of the same file, whose size is unknown", build(
        [src, Run([stored(a)]), own_run(a[20:], [(180, 1, 20)], sources=[src])]))
    sources = [Src(b"a", a), Src(b"b", b), Src(b"c")]
    segments = [(31, 2, 9), (7, 0, 0), (60, 1, 140), (1, 1, 0), (80, 2, 160), (45, 1, 3), (3, 0, 0)]
    data = prediction_of(Run([], segments, prediction=2), segments, sources, None)
    data = bytes(x ^ (i % 13 == 0) for i, x in enumerate(data))
    v.valid("own_segments", "5.2", "Prediction 2: a block over pieces of several files, in another order, zeros between", build(
        first() + [Src(b"b", b), Run([stored(b)]), Src(b"c", data), own_run(data, segments, 0, sources, width=1, residual=0)]))
    src = Src(data=a[:100] + a[:100] + b"between" + a[:100] + b"between")
    v.valid("own_beside_own", "5.2", "Prediction 2: references that end and start where runs of Prediction 2 do", build([
        src, Run([stored(a[:100])]), own_run(a[:100], [(60, 1, 0), (40, 1, 60)], sources=[src]), Run([stored(b"between")]),
        own_run(a[:100] + b"between", [(100, 1, 0), (7, 1, 200)], sources=[src], width=1)]))
    new = weights(r, 0, 2, pool.items[0][:200])
    middle = b"not predicted"
    tied = new[100:] + middle
    sources = [Src(b"a", new + middle), Src(b"b", tied)]
    v.valid("own_in_delta", "5.2", "a delta with tied tensors: Prediction 2 from bytes of a run of Prediction 1 and one of Prediction 0", build([
        sources[0], delta_run(Src(data=new), [(200, 1, 0)], pool), Run([stored(middle)]), sources[1],
        own_run(tied, [(113, 1, 100)], sources=sources, width=1, sparse=True)], base=pool))
    zeros = own_run(bytes(16384) + a[:50], [(16384, 0, 0), (50, 1, 10)], sources=[Src(data=a)])
    v.valid("own_block_zero", "7", "blocks of Prediction 0, planes and stored, in a run of Prediction 2", build(
        first() + [Src(b"b", bytes(16384) + a[:50]), Run([planes([bytes(4096)] * 4), stored(a[:50])], zeros.segments, 14, 2)]))
    # conversions
    floats = pack(TO_ROUND + [x | 1 << 31 for x in TO_ROUND], 4)
    for conversion, name in ((1, "bf16"), (2, "f16")):
        rounded = convert(floats, conversion)
        n, master = len(rounded), Src(b"master", floats)
        start = [master, Run([stored(floats, 4)])]
        v.valid("own_%s" % name, "5.2", "Conversion %d: all ways to round, both signs" % conversion, build(
            start + [Src(b"w", rounded), own_run(rounded, [(n, 1, 0)], conversion, [master])]))
        new = weights(r, 0, 2, rounded)
        v.valid("own_%s_near" % name, "5.2", "Conversion %d: near the rounded ones, with classes" % conversion, build(
            start + [Src(b"w", new), own_run(new, [(n, 1, 0)], conversion, [master], thresholds=[30, 100, 140])]))
        data = convert(floats[4:44], conversion) + bytes(6) + convert(floats[:12], conversion)
        v.valid("own_%s_parts" % name, "5.2", "Conversion %d: parts, zeros between" % conversion, build(
            start + [Src(b"w", data), own_run(data, [(20, 1, 4), (6, 0, 0), (6, 1, 0)], conversion, [master])]))
        shifted = Src(b"master", b"\x5a" + floats)
        v.valid("own_%s_unaligned" % name, "5.2", "Conversion %d: F32 elements at an odd offset" % conversion, build([
            shifted, Run([stored(shifted.data)]), Src(b"w", rounded), own_run(rounded, [(n, 1, 1)], conversion, [shifted])]))
        values = [pack([value], 4) for value in (0x3F80C000, 0xBF000123, 0x42F6E666)]
        counts = (8190, 8192, 8)               # elements of each value; with the zeros before them one block of each
        sources = [planes([bytes([x]) * n for x in value]) for value, n in zip(values, counts)]
        data = bytes(4) + b"".join(convert(value, conversion) * n for value, n in zip(values, counts))
        master = Src(b"master", b"".join(block.data for block in sources))
        v.valid("own_%s_blocks" % name, "5.2", "Conversion %d over several blocks" % conversion, build(
            [master] + [Run([block], log2=15) for block in sources] + [Src(b"w", data), own_run(
                data, [(4, 0, 0), (32780, 1, 0)], conversion, [Src(data=master.data)], residual=0)]))
    base = pool.items[0]
    master = Src(b"master", weights(r, 0, 4, base[:400]))
    data = convert(master.data, 1)
    v.valid("own_bf16_in_delta", "5.2", "a delta of a master copy, and the weights rounded from it", build([
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
    # 5: ancillary sections
    two = lambda *extra: [Src(b"a", b"ab"), extra[0], Run([stored(b"a")]), extra[1], Run([stored(b"b")]), extra[2], Src(b"b"), extra[3], Src(b"d",
        kind=1)]
    note = Section(b"note", b"some text")
    v.valid("ancillary_everywhere", "5.3", "an unknown ancillary section in every place", build([item for item in two(note, note, note, note)] + [
        note]))
    for i, where in enumerate(("before a run", "between runs", "between files", "between empty files")):
        items = two(*[note if j == i else None for j in range(4)])
        v.valid("ancillary_" + where.replace(" ", "_"), "5.3", "an unknown ancillary section %s" % where, build([item for item in items if item]))
    v.valid("ancillary_before_index", "5.3", "an unknown ancillary section before the INDX", build([Src(data=b"a"), Run([stored(b"a")]), note]))
    v.valid("ancillary_several", "5.3", "several ancillary sections in one place, empty ones among them", build([
        Src(data=b"a"), note, Section(b"pad "), Section(b"note"), Run([stored(b"a")]), Section(b"pad ", bytes(100)), note]))
    v.valid("ancillary_many", "5.3", "130 empty ancillary sections", build([Src(data=b"a")] + [Section(b"pad ")] * 130 + [Run([stored(b"a")])]))
    for kind in (b"file", b"run ", b"indx", b"fILE", b"iNDX", b"a1 9", b"z   ", b"note", b"noTe", b"gdir", b"x000"):
        name = kind.decode().lower().strip().replace(" ", "_") + "_upper" * (kind != kind.lower())
        v.valid("ancillary_kind_" + name, "5.3", "an ancillary section of Kind \"%s\"" %
                kind.decode(), build([Src(data=b"a"), Section(kind, b"whatever"), Run([stored(b"a")])]))
    v.valid("ancillary_is_lmc", "5.3", "an ancillary section that holds an LMC file", build([
        Src(data=b"a"), Run([stored(b"a")]), Section(b"old ", bytes(v.builders["file_empty"].out))]))
    v.valid("ancillary_unknown_size", "5.3", "an ancillary section in a file of Unknown size", build([
        Src(data=b"ab", size=UNKNOWN), note, Run([stored(b"a")]), note, Run([stored(b"b")]), note]))
    v.valid("pad", "5.3", "a \"pad \" section of 4,096 zeros", build([Src(data=b"a"), Section(b"pad ", bytes(4096)), Run([stored(b"a")])]))
    # 9: hashes
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
    v.valid("hash", "9.5", "a \"hash\" section: tensors, files and a directory", build(whole(good)))
    v.valid("hash_all", "9.5", "Snapshot_Hash: modes, times, losses, gaps, a file of Unknown size, metadata that counts and such that does not", build(
        put(hash_section(named, said)), said))
    for name, rule, metadata in (("metadata", "another value of metadata", said[:4] + [(b"z", b"y")]),
                                 ("links", "other links", said[:2] + [(b"lmc.links", b"sl\0f\0")] + said[3:]),
                                 ("metadata_missing", "an entry of metadata less", said[1:])):
        v.valid("hash_of_other_" + name, "9.5", "Snapshot_Hash: %s. CORRUPT for who checks it" % rule, build(put(hash_section(named, said)), metadata),
                refusable=["CORRUPT"])
    v.valid("hash_of_other_hint", "9.5", "Snapshot_Hash: another hint, which does not count", build(
        put(hash_section(named, said)), said[:1] + [(b"lmc.base", b"another hint")] + said[2:]))
    for name, rule, change in (("path", "another Path", {"path": b"d/v"}), ("mode", "a mode", {"mode": 0o600}), ("time", "another time", {"mtime": (1, 3)}),
                               ("tensor_name", "another Name", {"tensors": [T(b"t", b"U8", (5,), 0, 5)]}),
                               ("dtype", "another dtype", {"tensors": [T(b"s", b"I8", (5,), 0, 5)]}),
                               ("shape", "another shape", {"tensors": [T(b"s", b"U8", (1, 5), 0, 5)]})):
        first = dict(dict(path=b"d/u", data=data[:5], tensors=[T(b"s", b"U8", (5,), 0, 5)], mtime=(1, 2)))
        v.valid("hash_of_other_" + name, "9.5", "Snapshot_Hash: %s. CORRUPT for who checks it" % rule, build([
            Src(**dict(first, **change)), Run([stored(data[:5])]), hash_section([Src(**first)])]), refusable=["CORRUPT"])
    v.valid("hash_other_algorithm", "9.5", "a \"hash\" section of an unknown algorithm and any size", build(whole(Section(b"hash", b"\2abc"))))
    v.valid("hash_reserved", "9.5", "a \"hash\" section whose reserved bytes are not zero: skipped, whatever else it holds", build(
        whole(Section(b"hash", b"\1\0\0\1\0\0\0\0wrong"))))
    other = Section(b"hash", b"\2" + bytes(7) + b"other hashes")
    for name, rule, last in (
            ("not_last", "another section between it and INDX", [good, note]), ("and_other", "and one of another algorithm behind it", [good, other]),
            ("after_other", "one of another algorithm before it, and one between sections", [other, note, good, other]),
            ("tiny", "of 7 bytes, which are no Algorithm 1", [Section(b"hash", b"\1" + bytes(6))]),
            ("empty", "of no bytes, beside one", [Section(b"hash", b""), good])):
        v.valid("hash_" + name, "9.5", "a \"hash\" section: %s" % rule, build(whole(*last)))
    v.valid("hash_first", "9.5", "a \"hash\" section behind the first file", build([files[0], Run([stored(data[:40])]), good] + whole()[2:]))
    for name, rule, last in (
            ("wrong", "a wrong hash", [Section(b"hash", flip_bit(good.body, 40 + 32 * 3 + 5, 2))]),
            ("snapshot_wrong", "a wrong Snapshot_Hash", [Section(b"hash", flip_bit(good.body, 8 + 5, 2))]),
            ("content_wrong", "a wrong hash, and the Snapshot_Hash of it", [hash_section(files[:1] + [Src(b"c", data[39:-1])] + files[2:])]),
            ("order", "the hashes of the two tensors in the order of their names", [Section(b"hash", good.body[:40] + good.body[72:104] + good.body[
                40:72] + good.body[104:])]),
            ("head_only", "no hashes at all", [Section(b"hash", good.body[:8])]), ("snapshot_only", "Snapshot_Hash only", [Section(
                b"hash", good.body[:40])]),
            ("short", "a hash too few", [Section(b"hash", good.body[:-32])]), ("long", "a hash too many", [Section(b"hash", good.body + bytes(32))]),
            ("ends", "half a hash", [Section(b"hash", good.body[:-16])]),
            ("twice", "two of them", [good, good]), ("twice_apart", "two of them, a note between them", [good, note, good])):
        v.valid("hash_" + name, "9.5", "a \"hash\" section: %s. CORRUPT for who checks it" % rule, build(whole(*last)), refusable=["CORRUPT"])
    # 5.4: extension records
    records = (("empty", record(0)), ("one", record(2, b"ten bytes!")), ("several", record(0, b"x") + record(2) + record(126, b"y" * 200) + record(
        128, b"z")),
               ("largest_tag", record(UNKNOWN - 1, b"tag")), ("looks_critical", record(0, b"\1\1\1\1\3\0")))
    for name, extra in records:
        v.valid("records_file_" + name, "5.4", "extension records of a FILE: %s" % name.replace("_", " "), build([
            Group(Src(b"f", b"ab", [T(b"t", b"U8", (1,), 0, 1)]), extra=extra), Run([stored(b"ab")])]))
        v.valid("records_run_" + name, "5.4", "extension records of a RUN: %s" % name.replace("_", " "), build([
            Src(b"f", b"ab"), Run([stored(b"ab")], extra=extra)]))
        v.valid("records_index_" + name, "5.4", "extension records of the INDX: %s" % name.replace("_", " "), build([
            Src(b"f", b"ab"), Run([stored(b"ab")])], [(b"key", b"value")], extra=extra))
    extra = records[2][1]
    v.valid("records_empty_files", "5.4", "extension records after a directory, an empty file and one of Unknown size", build([
        Group(Src(b"d", kind=1), extra=extra), Group(Src(b"e"), extra=extra), Group(Src(b"u", b"u", size=UNKNOWN), extra=extra), Run([stored(
            b"u")])]))
    v.valid("records_index_no_metadata", "5.4", "extension records of an INDX without metadata", build([Src()], extra=extra))
    # An imagined version 1.1
    future = lambda **options: build([
        Group(Src(b"f", b"abcd", [T(b"t", b"F5_E2M2", (2,), 1, 3)]), extra=record(2, b"new field")), Section(b"gdir", b"where a GPU looks"),
        Run([stored(b"abcd")], extra=record(4) + record(200, b"x")), Section(b"sign", bytes(64))],
        [(b"lmc.created", b"2031-01-01T00:00:00Z"), (b"lmc.future", b"\xff\x00")], extra=record(6, b"more"),
        patch={"header.Format_Minor": 1, "header.Compatible": 1 << 5, "trailer.Format_Minor": 1}, **options)
    v.valid("future_1_1", "13.1", "an imagined file of 1.1: ancillary sections, extension records, metadata, a Compatible bit", future())


def invalid_sections(v, simple):
    bad = lambda name, section, rule, status, patch, **options: v.invalid(name, section, rule, status, simple(patch, **options))
    # 2: varints
    old = Base([Src(data=b"base" * 10)], [v.base("bases/forty.bin", b"base" * 10)])
    block = predicted(b"base" * 9, b"base" * 9, 1)
    fields = {"files0.N_Files": 1, "file0.Path_Rest_Size": 1, "file0.File_Size": 36, "file0.Mode": 0o644, "file0.N_Tensors": 2, "tensor0.0.Back": 0,
              "tensor0.0.Middle_Size": 2, "tensor0.0.Size": 4, "tensor0.1.Gap": 2, "tensor0.1.Shape0": 3, "tensor0.1.Back": 1,
              "run0.Run_Size": 36, "run0.N_Segments": 2, "segment0.0.Size": 9, "segment0.0.Reference": 1, "segment0.1.Reference": 2,
              "segment0.1.Offset": 4}

    def varints(patch):
        return build([Src(b"f", b"base" * 9, [T(b"tt", b"odd", (4,), 0, 4), T(b"t", b"U8", (3, 1), 6, 3, back=1)], mode=0o644), Run(
            [block], [(9, 1, 0), (27, 1, 1)], prediction=1, extra=record(2, b"x"))], base=old, patch=patch, extra=record(4))

    for name in fields:
        what, field = name.rsplit(".", 1)
        kind = what.rstrip("0123456789.").rstrip("s")
        field = "%s_%s" % (kind, field.lower()) + "_second" * (name in ("tensor0.1.Back", "segment0.1.Reference"))

        def overlong(value):
            short = varint(value)
            return short[:-1] + bytes([short[-1] | 128, 0])
        v.invalid("varint_overlong_" + field, "2", "%s is not in the shortest form" % name.rsplit(".", 1)[1], "CORRUPT", varints({name: overlong}))
    for owner, tag, size in (("run0", 2, b"x"), ("index", 4, b"")):
        v.invalid("varint_overlong_%s_tag" % owner.rstrip("0"), "2", "the Tag of a record is not in the shortest form", "CORRUPT", varints({
            owner + ".Extra": bytes([tag | 128, 0, len(size)]) + size}))
        v.invalid("varint_overlong_%s_record_size" % owner.rstrip("0"), "2", "the Size of a record is not in the shortest form", "CORRUPT", varints({
            owner + ".Extra": bytes([tag, len(size) | 128, 0]) + size}))
    for name, what, value in (("zeros", "zero in ten bytes", b"\x80" * 9 + b"\0"), ("11_bytes", "eleven bytes", b"\x80" * 10 + b"\1"),
                              ("2_64", "2^64", b"\x80" * 9 + b"\2"), ("2_64_and_more", "2^64 + 3", b"\x83" + b"\x80" * 8 + b"\2"),
                              ("2_70", "2^70 - 1", b"\xff" * 9 + b"\x7f"), ("100_bytes", "a hundred bytes", b"\xff" * 99 + b"\1"),
                              ("36_and_2_64", "36 + 2^64, which is 36 modulo 2^64", b"\xa4" + b"\x80" * 8 + b"\2")):
        v.invalid("varint_%s_file_size" % name, "2", "File_Size is %s" % what, "CORRUPT", varints({"file0.File_Size": value}))
        v.invalid("varint_%s_run_size" % name, "2", "Run_Size is %s" % what, "CORRUPT", varints({"run0.Run_Size": value}))
        v.invalid("varint_%s_tag" % name, "2", "the Tag of a record is %s" % what, "CORRUPT", varints({"index.Extra": value + b"\0"}))
    # and in a file without a base
    made = b'"t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}'
    fields = {"file0.File_Size": ("file_size", len(made)), "run0.Run_Size": ("run_size", len(made)), "segment0.0.Size": ("segment_size", len(made)),
              "segment0.0.Reference": ("reference", 1), "index.Extra": ("tag", 4)}
    for name, what, more in (("overlong", "in one byte too many", b"\0"), ("zeros", "in ten bytes", b"\x80" * 8 + b"\0"),
                             ("11_bytes", "in eleven bytes", b"\x80" * 9 + b"\0"), ("plus_2_64", "plus 2^64", b"\x80" * 8 + b"\2"),
                             ("plus_2_64_11_bytes", "plus 2^64, in eleven bytes", b"\x80" * 8 + b"\x82\0"),
                             ("plus_2_70", "plus 2^70", b"\x80" * 9 + b"\1")):
        for field, (short, value) in fields.items():
            v.invalid("varint_direct_%s_%s" % (name, short), "2", "%s is %d %s; the file has no base" % (field.rsplit(".", 1)[1], value, what),
                      "CORRUPT", build([Src(b"f", made, [T(b"t", b"U8", (3,), 0, 3)]), Run([predicted(made, made, 1)], prediction=3, base=(1, 0))],
                                       patch={field: bytes([value | 128]) + more + b"\0" * (short == "tag")}, extra=record(4)))
    for name, end in (("file", {"file1.N_Tensors": b"\x80"}), ("run_tag", {"run0.Extra": b"\x82"}), ("run_record_size", {"run0.Extra": b"\2\x81"}),
                      ("index_tag", {"index.Extra": b"\xfe\xff"}), ("file_many", {"file1.N_Tensors": b"\xff" * 7})):
        bad("varint_ends_" + name, "2", "a varint that the body ends in", "CORRUPT", end)
    # 5: kinds
    note = Section(b"note", b"some text")
    items = lambda *more: [Src(b"a", b"ab"), Run([stored(b"ab")]), *more, Src(b"b")]
    for kind in (b"SIGN", b"Gdir", b"RUN2", b"TREE"):
        v.invalid("section_critical_" + kind.decode().lower(), "5", "an unknown critical section, \"%s\"" % kind.decode(), "UNSUPPORTED",
                  build(items(Section(kind, b"you must know this"))))
    v.invalid("section_critical_before_index", "5", "an unknown critical section before the INDX", "UNSUPPORTED", build(
        [Src(data=b"a"), Run([stored(b"a")]), Section(b"MORE", b"")]))
    for name, patch, status in (("number", {"other0.Number": 1}, "CORRUPT"), ("number_of_run", {"other1.Number": 0}, "CORRUPT"),
                                ("head_crc", {"other0.Head_CRC": 0}, "CHECKSUM"), ("body_crc", {"other1.Body_CRC": 0}, "CHECKSUM"),
                                ("size_overflow", {"other0.Body_Size": UNKNOWN}, ["CORRUPT", "LIMIT"]),
                                ("too_large", {"other0.Body_Size": (1 << 40) + 1}, ["CORRUPT", "LIMIT"]),
                                ("largest_missing", {"other1.Body_Size": 1 << 40}, ["TRUNCATED", "LIMIT"]),
                                ("longer", {"other0.Body_Size": 10}, ["CHECKSUM", "CORRUPT"]),
                                ("entry_offset", {"entry2.Offset": lambda value: value + 1}, "CORRUPT"),
                                ("entry_copy", {"entry2.Copy": lambda copy: copy[:23] + b"x"}, "CORRUPT"),
                                ("entry_body_missing", {"entry2.Copy": lambda copy: copy[:20]}, "CORRUPT"),
                                ("entry_with_body", {"entry2.Copy": lambda copy: copy + note.body}, "CORRUPT")):
        patch = {key: (lambda value, change=change: change(value)) if callable(change) else change for key, change in patch.items()}
        v.invalid("ancillary_" + name, "5.3", "an ancillary section: %s" % name.replace("_", " "), status, build(items(note, note), patch=patch))
    v.invalid("ancillary_first", "5.3", "an ancillary section before the first FILE", "CORRUPT", build([note, Src(data=b"a"), Run([stored(b"a")])]))
    zeros = Run([planes([bytes(16384)]), stored(b"end")], between={1: note})
    v.invalid("ancillary_between_blocks", "5.3", "an ancillary section between the blocks of a run", "CORRUPT", build([
        Src(data=bytes(16384) + b"end"), zeros]))
    zeros = Run([planes([bytes(16384)]), stored(b"end")], between={0: note})
    v.invalid("ancillary_before_blocks", "5.3", "an ancillary section between a run and its blocks", "CORRUPT", build([
        Src(data=bytes(16384) + b"end"), zeros]))
    b = build([Src(data=b"a"), Run([stored(b"a")])])
    end = len(b.out) - 40
    section = bytes(build([Src(), note], index=False, trailer=False).out[-33:])
    v.invalid("ancillary_after_index", "5.3", "an ancillary section after the INDX", "CORRUPT", fixed_trailer(b.out[:end] + section, b.out[end:], 33))
    v.invalid("ancillary_not_in_index", "10", "an ancillary section that the index does not have", "CORRUPT", build(
        items(note), patch={"index.N_Sections": 3, "entry2.Offset": b"", "entry2.Copy": b""}))
    # 5.4: extension records
    def both(name, rule, status, extra, **patch):
        for owner, where in (("files0", "FILE"), ("run0", "RUN"), ("index", "INDX")):
            bad("records_%s_%s" % (name, owner.rstrip("s0")), "5.4", "extension records of a %s: %s" % (where, rule), status, {
                owner + ".Extra": extra})

    both("critical", "a critical one", "UNSUPPORTED", record(1))
    both("critical_large_tag", "a critical one of Tag 2^64 - 1", "UNSUPPORTED", record(UNKNOWN, b"x"))
    both("critical_last", "a critical one after others", "UNSUPPORTED", record(0) + record(2, b"abc") + record(129, b"x"))
    both("same_tag", "the same Tag twice", "CORRUPT", record(2) + record(2))
    both("order", "Tags descend", "CORRUPT", record(4) + record(2))
    both("order_zero", "Tag 0 after another", "CORRUPT", record(4) + record(0))
    both("no_size", "no Size", "CORRUPT", b"\2")
    both("beyond", "Size is one more than the body has", "CORRUPT", b"\2\4abc")
    both("huge", "Size 2^64 - 1", "CORRUPT", b"\2" + varint(UNKNOWN))
    both("second_beyond", "the second one ends after the body", "CORRUPT", record(0, b"abc") + b"\2\1")
    # An imagined version 1.1 that this decoder must refuse
    patch = {"header.Format_Minor": 1, "trailer.Format_Minor": 1}
    v.invalid("future_critical_record", "13.1", "an imagined file of 1.1 with a critical extension record", "UNSUPPORTED", build(
        items(), extra=record(2, b"fine") + record(3, b"not fine"), patch=patch))
    v.invalid("future_critical_section", "13.1", "an imagined file of 1.1 with a critical section", "UNSUPPORTED", build(
        items(note, Section(b"DICT", b"shared trees")), patch=patch))
    v.invalid("future_incompatible", "13.1", "an imagined file of 1.1 with an Incompatible bit", "UNSUPPORTED", build(items(note), bits=16,
        patch=patch))
    v.invalid("future_dtype", "5.1", "an imagined file of 1.1 with a Dtype number", "UNSUPPORTED", build(
        [Src(data=b"a", tensors=[T(b"t", b"U8", (1,), 0, 1)]), Run([stored(b"a")])], patch=dict(patch, **{"tensor0.0.Dtype": 23})))


def fixed_trailer(front, trailer, more):
    """A trailer for a file that has become longer by so many bytes, all of them in what it calls the index."""
    offset, size, total = struct.unpack("<3Q", trailer[:24])
    parts = struct.pack("<3Q", offset, size + more, total + more) + trailer[24:28]
    return bytes(front) + parts + struct.pack("<I", crc(parts)) + bytes(trailer[32:])


def name_vectors(v):
    """5.1: tensor entries that refer to others."""
    r = Random(11)

    def valid(name, what, tensors, size=None, **options):
        size = size or tensors[-1].offset + tensors[-1].size
        data = r.data(size)
        v.valid("tensors_" + name, "5.1", what, build([Src(b"f", data, tensors), Run([stored(data)])], **options))

    def layers(n, **options):
        """n tensors, each near the one before."""
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
        T(name, name, (1,), i, 1) for i, name in enumerate((b"bf16", b"BF16 ", b"F8", b"U4", b"F8_E4M3FN", b"MXFP4", b"B", b"F32\n", b"D" * 32))])
    data = r.data(40)
    files = [Src(b"m-1", data[:20], [T(b"layer.0.w", b"BF16", (2,), 0, 4), T(b"layer.1.w", b"BF16", (2,), 4, 4, back=1, like=True)]),
             Src(b"m-2", data[20:], [T(b"layer.2.w", b"BF16", (2,), 0, 4, back=2, like=True), T(b"layer.3.w", b"BF16", (2,), 8, 4, back=3, like=True),
                                     T(b"layer.1.w", b"BF16", (2,), 12, 4, back=3, like=True)])]
    v.valid("tensors_back_across_files", "5.1", "Back to entries of an earlier file of the section; the same Name in two files", build(
        [Group(*files), Run([stored(data)])]))


def invalid_names(v):
    data = b"0123456789ABCDEF"
    first = T(b"layer.0.w", b"BF16", (2,), 0, 4)
    second = T(b"layer.1.w", b"BF16", (2,), 4, 4, back=1, like=True)

    def bad(name, rule, tensors, patch=None, status="CORRUPT", data=data):
        v.invalid("tensor_" + name, "5.1", rule, status, build([Src(b"f", data, tensors), Run([stored(data)])], patch=patch))

    bad("like_without_back", "Like without a reference", [first, second._replace(back=0)])
    bad("like_without_back_first", "Like of the first entry", [first._replace(like=True)])
    bad("back_first", "Back 1 of the first entry", [first._replace(back=1)])
    for back in (2, 3, 1 << 32, UNKNOWN):
        bad("back_%d" % back, "Back %d of the second entry" % back, [first, second], {"tensor0.1.Back": back})
    v.invalid("tensor_back_other_section", "5.1", "Back to an entry of an earlier section", "CORRUPT", build([
        Src(b"f", data, [first]), Run([stored(data)]), Src(b"g", data, [T(b"layer.1.w", b"BF16", (2,), 0, 4, back=1, like=True)]), Run([stored(
            data)])]))
    for name, prefix, suffix in (("prefix", 10, 0), ("suffix", 0, 10), ("prefix_suffix", 5, 5), ("prefix_255", 255, 0), ("suffix_255", 0, 255),
                                 ("both_255", 255, 255)):
        bad(name + "_too_long", "Prefix %d, Suffix %d of a Name of 9 bytes" % (prefix, suffix), [first, second], {
            "tensor0.1.Prefix": prefix, "tensor0.1.Suffix": suffix})
    bad("prefix_of_empty_name", "Prefix 1 of an empty Name", [first._replace(name=b""), second], {"tensor0.1.Prefix": 1})
    bad("same_name_by_back", "the Name of the reference", [first, second._replace(name=first.name)])
    bad("same_name_by_prefix", "a Name that another entry has, too", [first, second, T(b"layer.0.w", b"U8", (1,), 8, 1, back=1)])
    bad("name_zero_byte_middle", "zero byte in a Middle", [first, second._replace(name=b"layer.\0.w")])
    bad("middle_beyond", "Middle_Size beyond the body", [first], {"tensor0.0.Middle_Size": 10000})
    bad("middle_huge", "Middle_Size 2^64 - 1", [first], {"tensor0.0.Middle_Size": UNKNOWN})
    bad("name_too_long_by_prefix", "a Name of 65,536 bytes, by a Prefix of 255", [
        first._replace(name=b"x" * 255), second._replace(name=b"x" * 255 + b"y" * 65281, suffix=0)])
    bad("like_beyond_file", "Like: the end is after File_Size", [first._replace(shape=(5,), size=10), second._replace(offset=10, shape=(5,),
        size=10)])
    bad("like_string_beyond_file", "Like of a Dtype that is not in the table: the end is after File_Size", [
        T(b"a", b"odd", (5,), 0, 9), T(b"b", b"odd", (5,), 9, 9, back=1, like=True)])
    bad("entry_ends", "the body ends within the last entry", [first], {"tensor0.0.Shape0": b""})
    bad("shape_ends", "the body ends within Shape", [first], {"tensor0.0.Rank": 2})


def links_vectors(v):
    """10.2: links that fit to their directory, and such that do not. Files: a, b (the same bytes), c (others), d/e; directory: d."""
    same, other = b"the same", b"not same"
    files = lambda: [Group(Src(b"a", same), Src(b"b", same), Src(b"c", other), Src(b"d", kind=1), Src(b"d/e", same)),
        Run([stored(same * 2 + other + same)])]

    def put(name, rule, *links, value=None, bad=True):
        value = b"".join(b"%s%s\0%s\0" % link for link in links) if value is None else value
        v.valid("links_" + name, "10.2", rule + (". CORRUPT for who makes links" if bad else ""), build(files(), [(b"lmc.links", value)]),
                refusable=["CORRUPT"] if bad else [])

    s, h = b"s", b"h"
    put("none", "an empty list of links", bad=False)
    put("new_directory", "a link in a directory that is not there otherwise; one beside a directory with the start of its name", (
        s, b"d-", b"d"), (s, b"n/o/l", b"../../a"), bad=False)
    put("hard_two", "two hard links to one file, one of them in a directory", (h, b"b", b"a"), (h, b"d/e", b"a"), bad=False)
    put("hard_chain", "a hard link to the path of another", (h, b"b", b"a"), (h, b"d/e", b"b"), bad=False)
    for name, rule, value in (("type_unknown", "Type `x`", b"xl\0a\0"), ("ends_type", "the value ends behind Type", b"s"),
                              ("ends_path", "the value ends within Path", b"sl"), ("ends_between", "the value ends behind Path", b"sl\0"),
                              ("ends_target", "the value ends within Target", b"sl\0a"), ("zero", "a zero byte", b"\0"),
                              ("target_missing", "an empty Target", b"sl\0\0"), ("path_missing", "an empty Path", b"s\0a\0"),
                              ("target_too_long", "a Target of 65,536 bytes", b"sl\0" + b"t" * 65536 + b"\0"),
                              ("path_too_long", "a Path of 65,536 bytes", b"s" + b"p/" * 32767 + b"pp\0a\0"),
                              ("hard_target_missing", "an empty Target of a hard link", b"hb\0\0")):
        put(name, rule, value=value)
    for name, rule, links in (
            ("twice", "a Path twice", [(s, b"l", b"a"), (s, b"l", b"a")]), ("order", "Paths do not ascend", [(s, b"m", b"a"), (s, b"l", b"a")]),
            ("order_prefix", "a longer Path before the one that it starts with", [(s, b"ll", b"a"), (s, b"l", b"a")]),
            ("absolute", "an absolute Path", [(s, b"/l", b"a")]), ("dotdot", "a Path with a component ..", [(s, b"d/../l", b"a")]),
            ("dot", "a Path with a component .", [(s, b"./l", b"a")]), ("slash", "a Path that ends with /", [(s, b"l/", b"a")]),
            ("backslash", "a backslash in a Path", [(s, b"l\\m", b"a")]),
            ("where_file", "a symbolic link where a file is", [(s, b"a", b"b")]),
            ("where_directory", "a symbolic link where a directory is", [(s, b"d", b"a")]),
            ("below_file", "a symbolic link below a file", [(s, b"a/l", b"b")]),
            ("below_link", "a symbolic link below another", [(s, b"l", b"d"), (s, b"l/m", b"a")]),
            ("below_link_deep", "a symbolic link two levels below another, with a name between them", [(s, b"l", b"d"), (s, b"l-", b"d"), (
                s, b"l/m/n", b"a")]),
            ("hard_itself", "a hard link to its own Path", [(h, b"a", b"a")]), ("hard_no_path", "a hard link where no file is", [(h, b"l", b"a")]),
            ("hard_no_target", "a hard link to no file", [(h, b"b", b"l")]), ("hard_directory", "a hard link to a directory", [(h, b"b", b"d")]),
            ("hard_of_directory", "a hard link where a directory is", [(h, b"d", b"a")]),
            ("hard_other_bytes", "a hard link of two files with different bytes", [(h, b"c", b"a")]),
            ("hard_to_symbolic", "a hard link to a symbolic one", [(h, b"b", b"l"), (s, b"l", b"a")]),
            ("hard_target_dotdot", "a hard link whose Target has a component ..", [(h, b"b", b"d/../a")]),
            ("hard_target_absolute", "a hard link whose Target is absolute", [(h, b"b", b"/a")])):
        put(name, rule, *links)
    v.valid("links_above_file", "10.2", "a symbolic link where the directory of a file is, which is not stored. CORRUPT for who makes links", build(
        [Src(b"d/e", same), Run([stored(same)])], [(b"lmc.links", b"sd\0x\0")]), refusable=["CORRUPT"])


def group_vectors(v, pool):
    """5.1, 5.2: several files in one FILE section."""
    r = Random(12)
    a, b, c = r.data(90), weights(r, 60, 2), r.data(33)
    v.valid("group_two", "5.1", "two files of one section, a run each", build([Group(Src(b"a", a), Src(b"b", b)), Run([stored(a)]), Run([stored(b,
        2)])]))
    v.valid("group_one_run", "6.2", "two files of one section in one block", build([Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])]))
    mixed = lambda: [Src(b"", kind=1, size=0)][1:] + [
        Src(b"dir", kind=1, mode=0o755), Src(b"dir/a", a, [T(b"t", b"U8", (9,), 3, 9)], mode=0o600, mtime=(7, 8)), Src(b"dir/b", mtime=(-1, 0)),
        Src(b"dir/empty", kind=1), Src(b"dir/sub/b", b, [T(b"u", b"BF16", (60,), 0, 120)]), Src(b"e"), Src(b"z", c), Src(b"zz"), Src(b"zzz", kind=1)]
    whole = a + b + c
    v.valid("group_mixed", "5.1", "files, empty ones and directories of one section, in one run", build([Group(*mixed()), Run([stored(whole)])]))
    for name, sizes in (("within", (40, 100, 103)), ("ends", (90, 120, 33)), ("bytes", (89, 2, 119, 33))):
        runs, at = [], 0
        for size in sizes:
            runs.append(Run([stored(whole[at:at + size])]))
            at += size
        v.valid("group_runs_" + name, "6.2", "runs that cut the files of a section: %s" % (sizes,), build([Group(*mixed())] + runs))
    files = [Src(b"%02d" % i, bytes([i]) * (1000 * i)) for i in range(14)]
    stream = b"".join(f.data for f in files)
    v.valid("group_blocks", "6.2", "blocks over several files, files over several blocks", build([Group(*files), Run([
        plane_block(stream[i:i + 16384], fitted) for i in range(0, len(stream), 16384)])]))
    v.valid("group_empty", "5.1", "empty files and directories only", build([Group(Src(b"a"), Src(b"b", kind=1), Src(b"c")), Group(Src(b"d",
        kind=1), Src(b"e"))]))
    v.valid("file_unknown_nameless", "5.1", "a file of Unknown size without a Path: an entry of three bytes", build([Src(data=a, size=UNKNOWN), Run(
        [stored(a)])]))
    v.valid("group_several", "5.1", "sections of several files, of one, of one of Unknown size", build([
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)]), Src(b"c", c), Run([stored(c)]), Src(b"u", a, size=UNKNOWN), Run([stored(a)]),
        Group(Src(b"x"), Src(b"y", b), Src(b"z")), Run([stored(b)])]))
    v.valid("group_many", "5.1", "130 empty files", build([Group(*[Src(b"%d" % i) for i in range(130)])]))
    prefixes = [b"model-00001-of-00002.safetensors", b"model-00002-of-00002.safetensors", b"model", b"model.safetensors", b"mode", b"x"]
    v.valid("paths_prefix", "5.1", "Path_Prefix: paths that share their start", build([Group(*[Src(path) for path in prefixes])]))
    v.valid("paths_prefix_less", "5.1", "Path_Prefix less than it could be", build([Group(*[Src(path, prefix=min(i, 3)) for i, path in enumerate(
        prefixes[:4])])]))
    v.valid("paths_prefix_whole", "5.1", "Path_Prefix is all of a Path: an entry of three bytes", build([
        Group(Src(b"a/b", kind=1), Src(b"a", kind=1), Src(b"ab", kind=1))]))
    long = b"d/" + b"p" * 200 + b"/" + b"q" * 100
    v.valid("paths_prefix_255", "5.1", "Path_Prefix 255, though more are shared", build([Group(Src(long), Src(long + b"q"), Src(long[:-1]))]))
    v.valid("paths_prefix_utf8", "5.1", "Path_Prefix cuts a character of UTF-8", build([Group(*[Src(x.encode()) for x in ("\u00e9", "\u00e8",
        "\u00e8x")])]))
    copy = lambda n, start=0: own_run((a + b + c)[start:start + n], [(n, 1, start)], sources=[Src(data=a + b + c)], width=1)
    v.valid("group_own", "5.2", "Prediction 2: a file of the same section, and one of another", build([
        Group(Src(b"a", a), Src(b"b", a[:40] + b[:20])), Run([stored(a)]), copy(40), Run([stored(b[:20])]), Group(Src(b"c", a), Src(b"d", a[50:])),
        own_run(a + a[50:], [(90, 1, 0), (40, 1, 50)], sources=[Src(data=a)], width=1)]))
    base = pool.items[0][:150]
    near = bytes(x ^ (i % 17 == 0) for i, x in enumerate(base))
    v.valid("group_delta", "5.2", "a delta of several files in one run", build([
        Group(Src(b"a", near[:77]), Src(b"d", kind=1), Src(b"e"), Src(b"f", near[77:])), delta_run(
            Src(data=near), [(50, 1, 0), (100, 1, 50)], pool, 1, residual=0)], base=pool))
    # 5.2: Size 0
    t = [T(b"t", b"U8", (20,), 10, 20), T(b"u", b"U8", (0,), 30, 0), T(b"w", b"U8", (30,), 30, 30)]
    pieces = lambda *sizes: [(Rest(size) if size > 0 else -size, 1, 3 * i) for i, size in enumerate(sizes)]

    def rest(name, what, files, *runs):
        """files: with how many bytes in place of them. runs: the segments of each."""
        stream = b"".join(prediction_of(Run([], prediction=1), segments, [], pool) for segments in runs)
        stream, at = bytes(x ^ (i % 50 == 49) for i, x in enumerate(stream)), 0
        for f in files:
            f.data, at = stream[at:at + f.size], at + f.size
        assert at == len(stream)
        made, at = [], 0
        for segments in runs:
            size = sum(s[0] for s in segments)
            run = delta_run(Src(data=stream[at:at + size]), segments, pool, 1, residual=0)
            made.append(run if run.blocks[0].size() < size else Run([stored(stream[at:at + size])], segments, prediction=1))
            at += size
        v.valid("rest_" + name, "6.3", "Size 0: the rest of a piece; %s" % what, build([Group(*files)] + made, base=pool))

    f = lambda size, tensors=(), path=b"f": Src(path, tensors=tensors, size=size)
    rest("file", "a file without tensors", [f(90)], pieces(90))
    rest("pieces", "before, within, between and after tensors", [f(90, t + [T(b"z", b"U8", (5,), 65, 5)])], pieces(10, 20, 30, 5, 5, 20))
    rest("parts", "after the first part of a piece", [f(90, t)], pieces(-3, 7, -19, 1, -29, 1, -29, 1))
    rest("empty_tensors", "an empty tensor is no piece, but ends one", [f(30, EMPTY_IN_GAPS)], pieces(*EMPTY_PIECES))
    rest("files", "pieces of several files, directories and empty files between", [
        f(30, (), b"a"), Src(b"b", kind=1), Src(b"c"), f(60, t, b"d"), f(20, (), b"e")], pieces(30, 10, 20, 30, 20))
    rest("runs", "runs that cut pieces", [f(90, t)], pieces(10, -5), pieces(15, -10), pieces(20, 30))
    v.valid("rest_zeros", "6.3", "Size 0 of segments without a prediction", build([Src(b"f", bytes(60), t), Run(
        [planes([bytes(60)])], [(Rest(10), 0, 0), (Rest(20), 0, 0), (Rest(30), 0, 0)], prediction=1)], base=pool))
    # 5.2: numbers by their differences
    tensors, at = [], 0
    order = [5, 0, 9, 1, 2, 3, 8, 7, 6, 4]
    items = [bytes([65 + i]) * (i + 1) for i in range(10)]
    for i in order:
        tensors.append(T(b"t%d" % i, b"U8", (i + 1,), at, i + 1))
        at += i + 1
    old = Src(data=b"".join(items[i] for i in order), tensors=tensors)
    v.valid("base_ten_items", "9.3", "ten tensors, not in the order of their names", build([old, Run([stored(old.data)])]))
    base = Base([old], ["valid/base_ten_items.lmc"])
    for name, numbers in (("ascending", range(10)), ("descending", range(9, -1, -1)), ("same", [4] * 8), ("mixed", order),
                          ("zeros", [3, None, 4, None, None, 9, None, 0])):
        segments = [(5, 0, 0) if i is None else (i + 1, i + 1, 0) for i in numbers]
        data = prediction_of(Run([], prediction=1), segments, [], base)
        v.valid("segments_" + name, "5.2", "numbers of items: %s" % list(numbers), build([Src(data=data), delta_run(Src(data=data), segments, base,
            1)], base=base))
    segments = [(1, 10, 9), (2, 10, 8), (3, 3, 0), (1, 5, 1), (1, 5, 4)]
    data = prediction_of(Run([], prediction=1), segments, [], base)
    v.valid("segments_offsets", "5.2", "Offsets to the ends of items", build([Src(data=data), delta_run(Src(data=data), segments, base, 1)],
        base=base))
    # A file of an earlier section, by a negative difference
    v.valid("own_numbers", "5.2", "Prediction 2: numbers of files, up and down", build([
        Src(b"a", a), Run([stored(a)]), Src(b"b", b), Run([stored(b)]), Src(b"c", c), Run([stored(c)]), Src(b"d", c + a + b + a[9:]), own_run(
            c + a + b + a[9:], [(33, 3, 0), (90, 1, 0), (120, 2, 0), (81, 1, 9)], sources=[Src(data=x) for x in (a, b, c)], width=1)]))


def invalid_groups(v):
    a, b = b"first file", b"second"
    group = lambda *names: Group(*[Src(name) for name in names])

    def bad(name, rule, items, status="CORRUPT", section="5.1", **options):
        v.invalid("group_" + name, section, rule, status, build(items, **options))

    bad("of_none", "N_Files 0", [Src(b"a", a), Run([stored(a)]), Group()])
    bad("of_none_first", "N_Files 0, no file at all", [Group()])
    bad("unknown_first", "a file of Unknown size and another", [Group(Src(b"a", a, size=UNKNOWN), Src(b"b", b)), Run([stored(a + b)])])
    bad("unknown_last", "a file, and one of Unknown size", [Group(Src(b"a", a), Src(b"b", b, size=UNKNOWN)), Run([stored(a + b)])])
    bad("unknown_and_directory", "a directory, and a file of Unknown size", [Group(Src(b"a", kind=1), Src(b"b", b, size=UNKNOWN)), Run([stored(b)])])
    bad("path_empty_first", "an empty Path, then another file", [group(b"", b"b")])
    bad("path_empty_second", "a file, then an empty Path", [group(b"a", b"")])
    bad("path_empty_directory", "an empty directory without a name, then a file", [Group(Src(b"", kind=1), Src(b"b"))])
    bad("path_twice", "the same Path twice in a section", [group(b"a", b"b", b"a")])
    bad("path_twice_next", "Path_Prefix is all of the Path, and nothing follows", [group(b"a", b"a")])
    bad("path_twice_other_section", "the same Path in two sections", [group(b"a", b"b"), group(b"c", b"b")])
    bad("path_twice_directory", "a file and a directory of the same Path in a section", [Group(Src(b"a"), Src(b"a", kind=1))])
    bad("prefix_first", "Path_Prefix 1 of the first file", [group(b"a", b"b")], patch={"file0.Path_Prefix": 1})
    bad("prefix_first_of_second", "Path_Prefix of the first file of the second section", [Src(b"abc"), Src(b"abd")], patch={
        "file1.Path_Prefix": 2, "file1.Path_Rest_Size": 1, "file1.Path_Rest": b"d"})
    for prefix in (2, 255):
        bad("prefix_%d" % prefix, "Path_Prefix %d, the Path before has one byte" % prefix, [group(b"a", b"b")], patch={"file1.Path_Prefix": prefix})
    bad("path_too_long", "Path_Prefix + Path_Rest_Size = 65,536", [group(b"p" * 255, b"p" * 255 + b"q" * 65281)])
    for name, paths in (("dotdot", (b"a/..b", b"a/..")), ("slash", (b"a/b", b"a/")), ("slash_start", (b"a", b"/b")), ("backslash", (b"a", b"a\\b")),
                        ("zero_byte", (b"a", b"a\0"))):
        bad("path_" + name, "Path_Prefix: the second Path is %r" % paths[1].decode(), [group(*paths)])
    bad("run_beyond", "a run that ends after the last file of its section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b + b"x")])],
        section="6.2")
    bad("run_beyond_into_next", "a run that ends in the next section", [
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b + a)]), Src(b"c", a)], section="6.2")
    bad("incomplete", "a section's last file is not complete when the next section starts", [
        Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b[:3])]), Src(b"c", a), Run([stored(a)])], section="6.2")
    bad("incomplete_last", "a section's last file is not complete when the index starts", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a)])],
        section="6.2")
    big = (1 << 63) - 1
    bad("sizes_overflow", "File_Sizes whose sum is 2^64 + 10, and a run of ten bytes", [
        Group(Src(b"a", a), Src(b"b", size=big), Src(b"c", size=18)), Run([stored(a)])], patch={"file0.File_Size": big}, section="5.2")
    bad("sizes_overflow_63", "File_Sizes whose sum is 2^63", [Group(Src(b"a", size=big), Src(b"b", size=1))], section="5.2")
    bad("entry_file_crc", "File_CRC of the second file of a section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])], section="10",
        patch={"entry0.1.File_CRC": 5})
    bad("entry_identity", "identity of the second file of a section", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])], section="10",
        patch={"entry0.1.Identity0": bytes(32)})
    bad("entry_swapped", "File_CRCs and identities of two files in each other's place", [Group(Src(b"a", a), Src(b"b", b)), Run([stored(a + b)])],
        section="10", patch={"entry0.File_CRC": crc(b), "entry0.1.File_CRC": crc(a), "entry0.Identity0": next(items_of([Src(b"b", b)]))[1],
                             "entry0.1.Identity0": next(items_of([Src(b"a", a)]))[1]})
    own = lambda **options: [Group(Src(b"a", a), Src(b"b", a)), Run([stored(a)]), Run([stored(a)], prediction=2, **options)]
    bad("own_itself", "Prediction 2 from the same run, in another file of the section", [
        Group(Src(b"a", a), Src(b"b", a)), Run([stored(a + a)], [(10, 0, 0), (10, 1, 0)], prediction=2)], section="5.2")
    bad("own_later_file", "Prediction 2 from a later file of the section", [
        Group(Src(b"a", a), Src(b"b", a)), Run([stored(a)], prediction=2, base=(2, 0)), Run([stored(a)])], section="5.2")
    bad("rest_beyond", "Size 0: the rest of the first file only", own(base=(1, 0)) + [Src(b"c", a + b), Run([stored(a + b)], [(Rest(16), 1, 0)],
        prediction=2)],
        section="5.2")
    bad("rest_two_files", "Size 0 for two files", [Src(b"x", a * 2), Run([stored(a * 2)]), Group(Src(b"a", a), Src(b"b", a)), Run(
        [stored(a + a)], [(Rest(20), 1, 0)], prediction=2)], section="5.2")


def safetensors_of(tensors, data, metadata=b"", tail=b""):
    """A file whose header is just the header text of section 5.2 in braces."""
    start = 9 + len(metadata) + len(header_text(Src(data=data, tensors=tensors))) + 1
    moved = [t._replace(offset=t.offset + start) for t in tensors]
    header = b"{" + metadata + header_text(Src(tensors=moved)) + b"}"
    return Src(data=struct.pack("<Q", len(header)) + header + data + tail, tensors=moved)


def text_run(f, number, front=9, log2=14, **options):
    """The header of such a file, up to its first tensor, against the text of file number - 1."""
    size = f.tensors[0].offset
    segments = [(front, 0, 0), (size - front - 1, number, 0), (1, 0, 0)]
    prediction = prediction_of(Run([], prediction=3), segments, [f] * number, None)
    return Run([predicted(f.data[i:min(size, i + (1 << log2))], prediction[i:i + (1 << log2)], 1, **dict({"residual": 0}, **options))
                for i in range(0, size, 1 << log2)], segments, log2, 3)


# 30 bytes in pieces of 2, 2, 4 (a), 4, 8, 6 (b), 2 and 2: an empty tensor is no piece, but ends one (6.3).
EMPTY_IN_GAPS = [T(b"e0", b"U8", (0,), 2, 0), T(b"a", b"U8", (4,), 4, 4), T(b"e1", b"F32", (0,), 8, 0), T(b"e2", b"U8", (0, 3), 12, 0),
                 T(b"e3", b"U8", (0,), 12, 0), T(b"e4", b"U8", (0,), 20, 0), T(b"b", b"U8", (6,), 20, 6), T(b"e5", b"U8", (0,), 28, 0)]
EMPTY_PIECES = (2, 2, 4, 4, 8, 6, 2, 2)


def text_vectors(v, pool):
    """5.2: Prediction 3."""
    r = Random(13)
    data = r.data(64)
    tensors = [T(b"model.0.w", b"BF16", (4, 2), 0, 16), T(b"model.1.w", b"BF16", (4, 2), 16, 16, back=1, like=True), T(b"norm", b"F32", (8,), 32, 32)]
    f = safetensors_of(tensors, data)
    named = lambda f, path: Src(path, f.data, f.tensors)
    body = lambda f: Run([stored(f.data[f.tensors[0].offset:])])
    v.valid("text", "5.5", "Prediction 3: the header of a file", build([f, text_run(f, 1), body(f)]))
    g = safetensors_of(tensors, data, b'"__metadata__":{"format":"pt"},', b"tail")
    v.valid("text_metadata", "5.5", "Prediction 3: a header with other members in front", build([g, text_run(g, 1, 9 + 31), body(g)]))
    g = safetensors_of([t._replace(name=b"x" + t.name) for t in tensors], data[::-1])
    h = Src(b"other", f.data, f.tensors)
    v.valid("text_of_another_file", "5.5", "Prediction 3: the text of another file that is nearly the same", build([
        named(g, b"g"), text_run(g, 1), body(g), h, Run([stored(h.data)])], bits=0))
    text_size = len(header_text(f))
    segments = [(9, 0, 0), (text_size, 1, 0), (1 + len(data), 0, 0)]
    wrong = prediction_of(Run([], prediction=3), segments, [f], None)
    near = bytes(wrong[:9]) + header_text(f).replace(b"norm", b"nOrm") + f.data[9 + text_size:]
    v.valid("text_near", "5.5", "Prediction 3: a name differs from the text's", build([
        named(f, b"f"), text_run(f, 1), body(f), Src(b"near", near), Run([predicted(near, wrong, 1, residual=0)], segments, prediction=3)]))
    parts = [(20, 1, 30), (1, 0, 0), (7, 1, text_size - 7), (5, 1, 0), (9, 2, 3)]
    sources = [named(f, b"f"), named(g, b"g")]
    made = prediction_of(Run([], prediction=3), parts, sources, None)
    v.valid("text_parts", "5.5", "Prediction 3: parts of the texts of two files, up to the end", build([
        sources[0], Run([stored(f.data)]), sources[1], Run([stored(g.data)]), Src(b"h", made), Run([predicted(made, made, 1)], parts, prediction=3)]))
    parts = [(Rest(size), 1, 5 * i) for i, size in enumerate(EMPTY_PIECES)]
    made = prediction_of(Run([], prediction=3), parts, [Src(tensors=EMPTY_IN_GAPS)], None)
    v.valid("text_rest_empty_tensors", "6.3", "Size 0: an empty tensor is no piece, but ends one; Prediction 3", build([
        Src(data=made, tensors=EMPTY_IN_GAPS), Run([predicted(made, made, 1)], parts, prediction=3)]))
    v.valid("text_group", "5.5", "Prediction 3: the headers of two files of a section, the text of the later one, too", build([
        Group(named(f, b"f"), named(g, b"g")), text_run(f, 1), body(f), text_run(g, 2), body(g)]))
    made = header_text(g)
    v.valid("text_group_forward", "5.5", "Prediction 3: the text of a later file of the section", build([
        Group(Src(b"a", made), named(g, b"g")), Run([predicted(made, made, 1)], [(len(made), 2, 0)], prediction=3), Run([stored(g.data)])]))
    odd = [T(b'quote"d', b"BF16", (1,), 5, 2), T(b"back\\slash", b"F32", (), 7, 4), T("\u00e9\u4e2d".encode(), b"odd,}", (0, 5, UNKNOWN), 20, 3),
           T(b"\xff\x01\n", b"F4", (3, 1 << 40, 0), 23, 0), T(b"", b"U8", (0,), 23, 0), T(b"big", b"\"", (), 100, 1), T(b"z", b"I64", (1, 1, 1),
               101, 8)]
    odd = Src(b"odd", header_text(Src(tensors=odd)), odd)
    v.valid("text_odd", "5.5", "Prediction 3: names and dtypes verbatim, never escaped; Gaps, Rank 0, empty tensors, odd dtypes", build([
        odd, Run([predicted(odd.data, odd.data, 1)], [(len(odd.data), 1, 0)], prediction=3)]))
    single = Src(b"one", data[:7], [T(b"w", b"U8", (3,), 4, 3)])
    made = header_text(single)
    v.valid("text_one_tensor", "5.5", "Prediction 3: one tensor; B is 0 wherever it stands", build([
        single, Run([stored(single.data)]), Src(b"t", made), Run([predicted(made, made, 1)], [(Rest(len(made)), 1, 0)], prediction=3)]))
    v.valid("text_block_zero", "7", "a stored block in a run of Prediction 3", build([
        f, Run([stored(f.data[:f.tensors[0].offset])], text_run(f, 1).segments, prediction=3), body(f)]))
    many = [T(b"layers.%d.weight" % i, b"U8", (1,), i, 1, back=int(i > 0), like=i > 0) for i in range(260)]
    many = safetensors_of(many, r.data(260))
    v.valid("text_many", "5.5", "Prediction 3: the header of 260 tensors, in several blocks", build([many, text_run(many, 1), body(many)]))
    copy = f.data[:f.tensors[0].offset]
    v.valid("text_own", "5.5", "Prediction 2 from bytes of a run of Prediction 3", build([
        named(f, b"f"), text_run(f, 1), body(f), Src(b"copy", copy), own_run(copy, [(len(copy), 1, 0)], sources=[f], width=1)]))
    v.valid("text_sparse", "5.5", "Prediction 3 with Sparse and classes, in a file with Own", build([
        f, text_run(f, 1, sparse=True, thresholds=[60, 200]), body(f)], bits=4))
    near = bytes(x ^ (i % 9 == 0) for i, x in enumerate(pool.items[0][:64]))
    g = safetensors_of(tensors, near)
    v.valid("text_in_delta", "5.5", "Prediction 3 in a delta", build([g, text_run(g, 1, sparse=True), delta_run(
        Src(data=near), [(16, 1, 0), (16, 1, 16), (32, 1, 32)], pool, 1, residual=0)], base=pool))
    v.valid("text_unknown_size", "5.5", "Prediction 3 of a file of Unknown size, from the text of another", build([
        named(f, b"f"), Run([stored(f.data)]), Src(b"u", header_text(f), size=UNKNOWN), Run(
            [predicted(header_text(f), header_text(f), 1)], [(text_size, 1, 0)], prediction=3)]))


def invalid_texts(v):
    tensors = [T(b"model.0.w", b"BF16", (4, 2), 0, 16), T(b"model.1.w", b"BF16", (4, 2), 16, 16)]
    f = Src(b"f", bytes(range(32)), tensors)
    made = header_text(f)
    n = len(made)

    def bad(name, rule, patch=None, status="CORRUPT", block=None, section="5.5", front=None, later=(), **options):
        block = block or predicted(made, made, 1)
        v.invalid("text_" + name, section, rule, status, build((front or [f, Run([stored(f.data)])]) + [Src(b"t", made), Run(
            [block], prediction=3, base=(1, 0), **options), *later], patch=patch))

    reference = lambda number, *offset: {"segment1.0.Reference": b"".join(map(varint, ((zigzag(number) << 1 | len(offset)) + 1, *offset)))}
    bad("beyond", "Offset + Size is one more than the text has", reference(0, 1))
    bad("offset_beyond", "Offset is beyond the text", reference(0, 1 << 40))
    bad("overflow", "Offset + Size = 2^64 + Size - 1", reference(0, UNKNOWN))
    bad("offset_0", "an Offset of 0 that is stored", reference(0, 0))
    bad("no_file", "number 2 of a file: there are two", reference(2))
    bad("negative", "number -1 of a file", reference(-1))
    bad("of_no_tensors", "the text of a file without tensors", reference(1))
    bad("of_directory", "the text of a directory", reference(1), front=[f, Run([stored(f.data)]), Src(b"d", kind=1)])
    bad("later_file", "the text of a file that a later section describes", reference(2), later=[Src(b"g", f.data, tensors), Run([stored(f.data)])])
    bad("base_crc", "Base_CRC in a run of Prediction 3", {"block1.0.Base_CRC": 1}, section="7")
    for conversion in (1, 2, 3, 255):
        bad("conversion_%d" % conversion, "Conversion %d with Prediction 3" % conversion, {"run1.Conversion": conversion}, "UNSUPPORTED")
    for name, options in (("sparse", {"sparse": True}), ("classes", {"thresholds": [100]}), ("classes_9", {"thresholds": range(100, 108)})):
        bad(name + "_without_bit", "%s in a file without Incompatible bits 1 and 2" % name, block=predicted(made, made, 1, **options), section="7")
    bad("no_segments", "N_Segments 0", {"run1.Run_Size": n}, block=stored(made), section="5.2", segments=[])
    bad("segments_too_many", "N_Segments 2^24 + 1", {"run1.N_Segments": (1 << 24) + 1}, section="5.2")
    v.invalid("text_rest_unknown", "5.2", "a Size of 0 in a file of Unknown size", "CORRUPT", build([
        f, Run([stored(f.data)]), Src(b"u", made, size=UNKNOWN), Run([predicted(made, made, 1)], [(Rest(n), 1, 0)], prediction=3)]))
    segments = [(8, 1, 0), (Rest(12), 1, 8), (10, 1, 3)]
    across = prediction_of(Run([], prediction=3), segments, [Src(tensors=EMPTY_IN_GAPS)], None)
    v.invalid("text_rest_across_empty", "6.3", "a Size of 0 for a gap that an empty tensor cuts", "CORRUPT", build([
        Src(b"f", across, EMPTY_IN_GAPS), Run([predicted(across, across, 1)], segments, prediction=3)]))
    bad("own_of_own", "Prediction 2 from a run of Prediction 2, beside one of Prediction 3", later=[
        Src(b"u", made), Run([stored(made)], prediction=2, base=(2, 0)), Src(b"w", made), Run([stored(made)], prediction=2, base=(3, 0))])


def identity_vectors(v, pool):
    """9.2, 9.4: kinds of items, files as a base by the tables of the snapshot."""
    r = Random(14)
    v.valid("identity_empty_file", "9.2", "an empty file \"x\"", build([Src(b"x")]))
    v.valid("identity_empty_directory", "9.2", "an empty directory \"x\": another identity than that of the empty file", build([Src(b"x", kind=1)]))
    data = r.data(30)
    v.valid("identity_file", "9.2", "a file \"x\" without tensors", build([Src(b"x", data), Run([stored(data)])]))
    v.valid("identity_tensor", "9.2", "a file with a tensor \"x\" of U8: another identity than that of the file \"x\"", build([
        Src(b"y", data, [T(b"x", b"U8", (30,), 0, 30)]), Run([stored(data)])]))
    v.valid("identity_tensor_empty", "9.2", "a file with an empty tensor \"x\" of U8", build([Src(b"y", b"", [T(b"x", b"U8", (0,), 0, 0)])]))
    empty = {"file": Src(b"x"), "directory": Src(b"x", kind=1), "tensor": Src(b"y", tensors=[T(b"x", b"U8", (0,), 0, 0)])}
    paths = {"file": "valid/identity_empty_file.lmc", "directory": "valid/identity_empty_directory.lmc", "tensor": "valid/identity_tensor_empty.lmc"}
    for kind, f in empty.items():
        delta = build([Src(data=b"delta"), Run([stored(b"delta")])], base=Base([f], [paths[kind]]))
        v.valid("delta_empty_" + kind, "9.2", "a delta against an empty %s \"x\"" % kind, delta)
        for other in empty:
            if other != kind:
                v.invalid("base_wrong_empty_%s_for_%s" % (other, kind), "9.2", "a delta against an empty %s \"x\", given an empty %s \"x\"" % (kind,
                    other),
                          "BASE_WRONG", delta, [paths[other]])
    own = [Src(b"x", data), Src(b"y", data, [T(b"x", b"U8", (30,), 0, 30)])]
    for f, name, other in ((own[0], "file", "tensor"), (own[1], "tensor", "file")):
        delta = build([Src(data=b"delta"), Run([stored(b"delta")])], base=Base([f], ["valid/identity_%s.lmc" % name]))
        v.valid("delta_of_" + name, "9.2", "a delta against a %s \"x\"" % name, delta)
        v.invalid("base_wrong_%s_for_%s" % (other, name), "9.2", "a delta against a %s \"x\", given a %s \"x\" of the same bytes" % (name, other),
                  "BASE_WRONG", delta, ["valid/identity_%s.lmc" % other])
    draft = bytes.fromhex("8C4C4D430D0A1A0A") + bytes(range(72))
    v.valid("delta_base_draft", "9.4", "a base that begins like an LMC file of a draft: a file like any other", build(
        [Src(data=draft[:50]), delta_run(Src(data=draft[:50]), [(50, 1, 0)], Base([Src(data=draft)], []), 1)],
        base=Base([Src(data=draft)], [v.base("bases/draft.bin", draft)])))
    # 9.4: by the snapshot's own tables
    def array(random, change=None):
        header = b"\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }"
        header += b" " * (127 - len(header)) + b"\n"
        return header, weights(random, 20, 4, change)

    def against_tables(name, what, old, new, paths, extra=(), refusable=()):
        """Each tensor against that of its name, other bytes as they are. old, new: files of the same paths, kinds and sizes."""
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
        v.valid(name, "9.4", what, b, refusable=refusable)
        return b

    header, old = array(r)
    new = array(r, old)[1]
    tensors = [T(b"w", b"F32", (5, 4), 128, 80)]
    v.base("bases/array.npy", header + old)
    delta = against_tables("delta_base_npy", "a .npy file as a base, by the tables of the snapshot", [Src(data=header + old, tensors=tensors)],
                           [Src(data=header + new, tensors=tensors)], ["bases/array.npy"])
    v.base("bases/array_longer.npy", header + old + b"\0")
    v.invalid("base_wrong_npy_longer", "9.4", "a .npy file with a byte more: the tables of the snapshot do not fit", "BASE_WRONG", delta, [
        "bases/array_longer.npy"])
    v.base("bases/array_wrong.npy", header + flip_bit(old, 7, 1))
    v.invalid("base_wrong_npy_bit", "9.4", "a .npy file in which a bit of a tensor is wrong", "BASE_WRONG", delta, ["bases/array_wrong.npy"])
    other = header.replace(b"False", b"True ") + old
    v.base("bases/array_header.npy", other)
    v.valid("delta_base_npy_header", "9.4", "a .npy file whose header differs: bytes of no tensor do not matter", delta, ["bases/array_header.npy"])
    v.valid("delta_base_npy_among", "9.4", "the same among others", delta, ["bases/pool.bin", "bases/array_longer.npy", "bases/array.npy"])
    # a directory that looks like what torch writes
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
    delta = against_tables("delta_base_torch", "a directory of files in an unknown format as a base, by the tables of the snapshot", old, new, [
        "bases/torch"])
    against_tables("delta_base_torch_parent", "the same; the snapshot does not store the directory that files of the base are in", old[1:], new[1:], [
        "bases/torch"])
    for name, rule in (("torch_more", "a file too many"), ("torch_less", "a file is missing"), ("torch_size", "a file of another size"),
                       ("torch_text", "a file without tensors has another content"), ("torch_kind", "a directory in place of a file"),
                       ("torch_name", "a file of another name")):
        v.invalid("base_wrong_" + name, "9.4", "a directory as a base: %s" % rule, "BASE_WRONG", delta, ["bases/" + name])
    # the tables fit, and the identity is that of the container all the same
    tensors = [("a", "F32", [4], weights(r, 4, 4)), ("b", "F32", [4], weights(r, 4, 4))]
    file, entries = safetensors(tensors)
    swapped, moved = safetensors([("b",) + tensors[1][1:], ("a",) + tensors[0][1:]])
    base = Base([Src(data=file, tensors=entries)], [v.base("bases/two.safetensors", file)])
    assert len(file) == len(swapped)
    v.valid("delta_base_container", "9.4", "a base of the same size whose tensors stand in another order: by the container, not by the tables",
        build([
        Src(data=swapped, tensors=moved), Run([stored(swapped[:moved[0].offset])]), delta_run(
            Src(data=swapped[moved[0].offset:]), [(16, base.item(b"b"), 0), (16, base.item(b"a"), 0)], base, 4)], base=base))
    broken = file[:8] + b" " + file[9:]
    base = Base([Src(data=broken, tensors=entries)], [v.base("bases/two_broken.safetensors", broken)])
    v.valid("delta_base_tables_no_container", "9.4", "a base that is no safetensors file, and laid out like the snapshot", build([
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
    """9.4: what is a safetensors file. Each delta is against a tensor of the base, or against all of it."""
    def delta(file, tensors, paths):
        """The content has another size than the base, so that its own tables do not fit."""
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
        v.valid("variant_" + variant.name, "9.4", "a base that is %s: %s" % (kind, variant.reason), made)
        if not tensors and variant.data == base_variants.DATA:
            # who reads it loosely finds this tensor
            v.invalid("base_variant_" + variant.name, "9.4", "a delta against a tensor of a base that is no safetensors file: %s" % variant.reason,
                      "BASE_WRONG", delta(file, [T(b"a", b"U8", (4,), start, 4)], path))
        elif tensors:
            v.invalid("base_variant_" + variant.name, "9.4", "a delta against all of a base that is a safetensors file: %s" % variant.reason,
                      "BASE_WRONG", delta(file, [], path))


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
        many = second * 30
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
    pieces = [(40, 0, 0), (81, 1, 2), (75, 0, 0), (4, 1, 7)]
    base = prediction_of(Run([], prediction=2), pieces, [Src(data=second)], None)
    block = quantised(some(r, 50, [1, 2, 3]), 4, 0, 0, -1, bias=ROOT, floor=EPS + 99, base=base)
    v.valid("quantised_own_segments", "7.6", "Prediction 1: segments that cut elements, zeros between", build([
        Src(b"v", second), Run([stored(second)]), Src(b"m", block.data), Run([block], pieces, prediction=2)]))
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


def more_examples(v):
    """14.5: two files of one section, names by references, a header as text. 14.6: a mask as gaps."""
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
    prediction = prediction_of(Run([], prediction=3), segments, [a, b], None)
    v.valid("example_text", "14.5", "worked example: two files of a section, names by references, headers as text", build([Group(a, b), Run(
        [predicted(a.data + b.data, prediction, 1, 0)], segments, prediction=3), Section(b"note", b"hello")], [(b"lmc.writer", b"by hand")],
        extra=record(2, b"skip")))
    old = b"\x80\x3f" * 400
    new = pack([0x3F80 + {9: 1, 40: -1, 300: 2}.get(i, 0) for i in range(400)], 2)
    v.valid("example_gaps", "14.6", "worked example: 400 elements, three of which differ from another file's; a mask as gaps", build([
        Src(b"a", old), Run([planes([b"\x80" * 400, b"\x3f" * 400])]), Src(b"b", new), own_run(
            new, [(Rest(800), 1, 0)], sources=[Src(data=old)], sparse=True, masks=nested_masks(gap_mode(5)), coders={0: raw})]))


def invalid_vectors(v):
    r = Random(2)

    def simple(patch, **options):
        """A file with a mode, two tensors, two runs, metadata; then an empty one."""
        data = b"0123456789ABCDEF"
        return build([Src(b"w.bin", data, [T(b"a", b"F32", (2,), 0, 8), T(b"b", b"BF16", (2, 1), 8, 4)], mode=0o644, mtime=(1700000000, 5)),
                      Run([stored(data[:12], 4)]), Run([stored(data[12:], 2)]), Src(b"empty")],
                     metadata=[(b"format", b"pt"), (b"titles", b"x")], patch=patch, **options)

    def bad(name, section, rule, status, patch, **options):
        v.invalid(name, section, rule, status, simple(patch, **options))

    def bad_file(name, section, rule, status, items, patch=None, **options):
        v.invalid(name, section, rule, status, build(items, patch=patch, **options))

    plus = lambda k: lambda value: value + k
    flip = lambda value: value ^ 1
    flip_byte = lambda at: lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

    invalid_sections(v, simple)
    # 3, 4
    good = bytes(simple({}).out)
    v.invalid("empty_input", "4", "Magic: the input is empty", "NOT_LMC", b"")
    bad("magic", "4", "Magic", "NOT_LMC", {"header.Magic": b"\x83LMD\r\n\x1a\n"})
    bad("magic_text_mode", "4", "Magic: CR LF became LF", "NOT_LMC", {"header.Magic": b"\x83LMC\n\x1a\n\0"})
    bad("magic_of_trailer", "4", "Magic: that of the trailer", "NOT_LMC", {"header.Magic": b"\x82LMC\r\n\x1a\n"})
    bad("magic_of_drafts_trailer", "4", "Magic: that of the drafts' trailer", "NOT_LMC", {"header.Magic": b"\x8dLMC\r\n\x1a\n"})
    draft = bytes.fromhex("8C4C4D430D0A1A0A")
    bad("magic_of_drafts", "4", "Magic: that of the drafts", "VERSION", {"header.Magic": draft})
    bad("magic_of_drafts_0_4", "4", "Magic of the drafts, Format_Minor 4, another CRC", "VERSION", {
        "header.Magic": draft, "header.Format_Major": 0, "header.Format_Minor": 4, "header.Header_CRC": 0})
    v.invalid("magic_of_drafts_short", "4", "Magic of the drafts, and the input ends", ["VERSION", "TRUNCATED"], draft)
    v.invalid("no_lmc_file", "4", "Magic: a file of another kind", "NOT_LMC",
        b"#!/bin/sh\necho this is not an LMC file, though long enough to be one; its first bytes say so.\n" * 3)
    for major in (0, 2, 255):
        bad("version_major_%d" % major, "4", "Format_Major %d" % major, "VERSION", {"header.Format_Major": major})
    bad("version_before_crc", "4", "order of the checks: a version whose header has another CRC", "VERSION",
        {"header.Format_Major": 200, "header.Header_CRC": 0})
    bad("header_crc", "4", "Header_CRC", "CHECKSUM", {"header.Header_CRC": flip})
    for size in (0, 79, 81, 65535):
        bad("header_size_%d" % size, "4", "Header_Size %d" % size, "CORRUPT", {"header.Header_Size": size})
    for bit in (4, 5, 6, 31, 32, 47, 48, 63):
        bad("incompatible_bit_%d" % bit, "4", "Incompatible bit %d" % bit, "UNSUPPORTED", {"header.Incompatible": 1 << bit})
    for bit in (0, 1, 31):
        bad("flags_bit_%d" % bit, "4", "Flags: reserved bit %d" % bit, "UNSUPPORTED", {"header.Flags": 1 << bit})
    bad("base_bit_without_base", "4", "Incompatible bit 1, Base_Identity is zero", "CORRUPT", {"header.Incompatible": 2})
    bad("base_without_bit", "4", "Base_Identity is not zero, Incompatible bit 1 is", "CORRUPT", {
        "header.Base_Identity": bytes(31) + b"\1", "header.Chain_Depth": 1})
    bad("base_without_depth", "4", "Base_Identity is not zero, Chain_Depth is", "CORRUPT", {
        "header.Base_Identity": bytes(31) + b"\1", "header.Incompatible": 2})
    bad("depth_without_base", "4", "Chain_Depth is not zero, Base_Identity is", "CORRUPT", {"header.Chain_Depth": 1})
    bad("base_missing", "4", "the file has a base, and none is given", "BASE_MISSING",
        {"header.Base_Identity": bytes(31) + b"\1", "header.Chain_Depth": 1, "header.Incompatible": 2})
    bad("header_reserved", "4", "reserved field", "UNSUPPORTED", {"header.Reserved": 1 << 63})
    # 5
    bad("section_head_crc", "5", "Head_CRC", "CHECKSUM", {"run0.Head_CRC": flip})
    bad("section_body_crc_file", "5", "Body_CRC of a FILE", "CHECKSUM", {"files0.Body_CRC": flip})
    bad("section_body_crc_run", "5", "Body_CRC of a RUN", "CHECKSUM", {"run1.Body_CRC": flip})
    bad("section_body_crc_index", "5", "Body_CRC of the index", "CHECKSUM", {"index.Body_CRC": flip})
    for name, kind in (("data", b"DATA"), ("file", b"FILe"), ("run", b"Run "), ("run_lower", b"RUn "), ("index", b"INDx"), ("run0", b"RUN0"), ("x",
        b"X   ")):
        bad("section_kind_critical_" + name, "5", "an unknown critical Kind, \"%s\"" % kind.decode(), "UNSUPPORTED", {"run1.Kind": kind})
    for name, kind in (("zero", b"RUN\0"), ("zeros", bytes(4)), ("digit", b"1RUN"), ("space", b" RUN"), ("dash", b"RUN-"), ("underscore", b"RUN_"),
                       ("high", b"RUN\xc0"), ("sync", b"\xb1RUN"), ("brace", b"fi{e"), ("at", b"@ILE"), ("bracket", b"INDX"[:3] + b"["),
                       ("backquote", b"`ile"), ("colon", b"pad:"), ("slash", b"pad/")):
        bad("section_kind_" + name, "5", "a bad character in Kind, %r" % kind, "CORRUPT", {"run1.Kind": kind})
    bad("section_number_file", "5", "Number of a FILE", "CORRUPT", {"files1.Number": 2})
    bad("section_number_file_again", "5", "Number of a FILE: one used before", "CORRUPT", {"files1.Number": 0})
    bad("section_number_run", "5", "Number of a RUN: counted with the FILEs", "CORRUPT", {"run0.Number": 1})
    bad("section_number_index", "5", "Number of the index", "CORRUPT", {"index.Number": 1})
    for owner, name in (("files0", "file"), ("run0", "run"), ("index", "index")):
        # what follows is an extension record
        bad("section_body_longer_" + name, "5", "a body with a byte too many", "CORRUPT", {owner + ".Extra": b"\0"})
    bad("section_body_shorter_file", "5", "N_Tensors counts one more than there are", "CORRUPT", {"file1.N_Tensors": 1})
    bad("section_body_empty_file", "5", "an empty FILE body", "CORRUPT", {"files1.N_Files": b"", "file1.Form": b"", "file1.Path_Prefix": b"",
        "file1.Path_Rest_Size": b"", "file1.Path_Rest": b"", "file1.File_Size": b"", "file1.N_Tensors": b""})
    bad("section_body_empty_run", "5", "an empty RUN body", "CORRUPT", {"run1." + f: b"" for f in (
        "Run_Size", "Log2_Block_Size", "Prediction", "Conversion")})
    for field in ("Conversion", "Log2_Block_Size"):
        fields = ("Run_Size", "Log2_Block_Size", "Prediction", "Conversion")
        bad("section_body_ends_run_%s" % field.lower(), "5", "a RUN body that ends before %s" % field, "CORRUPT", {
            "run1." + f: b"" for f in fields[fields.index(field):]})
    bad("section_body_ends_file_tensors", "5", "a FILE body that ends before N_Tensors", "CORRUPT", {"file1.N_Tensors": b""})
    bad("section_body_ends_index", "5", "an INDX body that ends within the metadata", "CORRUPT", {"metadata1.Value": b""})
    bad("section_too_large", "5", "Body_Size 2^40 + 1", ["CORRUPT", "LIMIT"], {"index.Body_Size": (1 << 40) + 1})
    bad("section_largest_missing", "5", "Body_Size 2^40, but the input ends: nothing may be allocated for it", ["TRUNCATED", "LIMIT"],
        {"index.Body_Size": 1 << 40})
    bad("section_size_overflow", "5", "Body_Size 2^64 - 1", ["CORRUPT", "LIMIT"], {"files0.Body_Size": UNKNOWN})
    # 5.1
    bad("file_size_too_large", "5.1", "File_Size 2^63", "CORRUPT", {"file0.File_Size": 1 << 63})
    bad("file_size_huge", "5.1", "File_Size 2^64 - 1", "CORRUPT", {"file1.File_Size": UNKNOWN})
    for bit in (4, 5, 6, 7):
        bad("file_form_bit_%d" % bit, "5.1", "Form of a file: reserved bit %d" % bit, "UNSUPPORTED", {"file1.Form": 1 << bit})
    bad_file("directory_unknown_size", "5.1", "Form of a file: Directory and Unknown", "CORRUPT", [Src(b"d", kind=1, size=UNKNOWN)])
    bad_file("directory_unknown_size_index", "5.1", "the same, and no File_Size in the index", "CORRUPT", [Src(b"d", kind=1, size=UNKNOWN)], {
        "entry0.File_Size": b""})
    bad("file_mode", "5.1", "Mode 0o10000", "CORRUPT", {"file0.Mode": 0o10000})
    bad("file_mode_huge", "5.1", "Mode 2^32 + 0o644", "CORRUPT", {"file0.Mode": (1 << 32) + 0o644})
    bad("file_nanoseconds", "5.1", "Mtime_Nanoseconds 10^9", "CORRUPT", {"file0.Mtime_Nanoseconds": 10**9})
    bad_file("path_too_long", "5.1", "a Path of 65,536 bytes", "CORRUPT", [Src(b"p" * 65536)])
    bad("path_beyond", "5.1", "Path_Rest_Size beyond the body", "CORRUPT", {"file1.Path_Rest_Size": 60000})
    bad("path_size_huge", "5.1", "Path_Rest_Size 2^64 - 1", "CORRUPT", {"file1.Path_Rest_Size": UNKNOWN})
    for name, count in (("too_many", (1 << 28) + 1), ("most", 1 << 28), ("huge", UNKNOWN), ("one_more", 3)):
        bad("tensors_" + name, "5.1", "N_Tensors %d: the body cannot hold them" % count, "CORRUPT", {"file0.N_Tensors": count})
        bad("files_" + name, "5.1", "N_Files %d: the body cannot hold them" % count, "CORRUPT", {"files0.N_Files": count})
    bad_file("directory_with_run", "5.1", "a directory with a run", "CORRUPT", [Src(b"d", b"x", kind=1, size=0), Run([stored(b"x")])],
             {"entry0.File_CRC": 0})
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

    bad_tensors("beyond_file", "end after File_Size", [T(b"a", b"U8", (4,), 13, 4)])
    bad_tensors("offset_beyond_file", "an empty tensor after File_Size", [T(b"a", b"U8", (0,), 17, 0)])
    bad_tensors("end_overflow", "Gap + Size = 2^64", [T(b"a", b"??", (1,), 8, UNKNOWN - 7)])
    bad_tensors("ends_overflow", "the sum of two Sizes is 2^64 + 1", [T(b"a", b"??", (1,), 0, (1 << 63) - 1), T(
        b"b", b"??", (1,), (1 << 63) - 1, (1 << 63) - 1), T(b"c", b"U8", (3,), UNKNOWN - 1, 3)])
    bad_tensors("size_huge", "Size 2^63 of an unknown Dtype", [T(b"a", b"??", (1,), 0, 1 << 63)])
    bad_tensors("gap_overflow", "Gap 2^64 - 1: modulo 2^64 the tensor overlaps the one before", [T(b"a", b"U8", (4,), 0, 4), T(
        b"b", b"U8", (2,), 3, 2)])
    bad_tensors("gap_0", "Gap 0", [T(b"a", b"U8", (4,), 0, 4)], {"tensor0.0.Form": 2, "tensor0.0.Middle": b"a\0"})
    bad_tensors("same_name", "two tensors of the same Name", [T(b"a", b"U8", (1,), 0, 1), T(b"b", b"U8", (1,), 1, 1), T(b"a", b"U8", (1,), 2, 1)])
    bad_tensors("same_empty_name", "two tensors of empty Name", [T(b"", b"U8", (1,), 0, 1), T(b"", b"U8", (1,), 1, 1)])
    bad_tensors("name_zero_byte", "zero byte in a Name", [T(b"a\0", b"U8", (1,), 0, 1)])
    bad_tensors("dtype_zero_byte", "zero byte in a Dtype", [T(b"a", b"U8\0", (1,), 0, 1)])
    for number, dtype in enumerate(DTYPES, 1):
        if number in (1, 2, 15, 22):
            bad_tensors("dtype_string_" + dtype.lower(), "Dtype %s as a string" % dtype, [T(b"a", dtype.encode(), (8,), 0, 8 * [1, 2, 8][
                (number > 2) + (number > 15)])], {"tensor0.0.Dtype": bytes([0, len(dtype)]) + dtype.encode(), "tensor0.0.Shape0": bytes(
                    [8, 8 * [1, 2, 8][(number > 2) + (number > 15)]])})
    for number in (23, 24, 127, 255):
        bad_tensors("dtype_%d" % number, "Dtype number %d" % number, [T(b"a", b"U8", (1,), 0, 1)], {"tensor0.0.Dtype": number}, "UNSUPPORTED")
    for bit in range(3, 8):
        bad_tensors("form_bit_%d" % bit, "Form of a tensor: reserved bit %d" % bit, [T(b"a", b"U8", (1,), 0, 1)], {"tensor0.0.Form": 1 << bit},
                    "UNSUPPORTED")
    bad_tensors("dtype_empty", "Dtype_Size 0", [T(b"a", b"", (1,), 0, 1)])
    bad_tensors("dtype_too_long", "Dtype_Size 33", [T(b"a", b"D" * 33, (1,), 0, 1)])
    bad_tensors("rank", "Rank 33", [T(b"a", b"U8", (1,) * 33, 0, 1)])
    for generation, measure in ((0, 0), (0, 1), (0, 3), (1, 0), (255, 0), (1, 4), (1, 255)):
        what = "measure_%d_of_generation_%d" % (measure, generation)
        status = "CORRUPT" if measure <= 3 else "UNSUPPORTED"
        bad_tensors(what, what.replace("_", " ").capitalize(), [T(b"a", b"F32", (1,), 0, 4, (generation, measure, 5)), T(b"b", b"U8", (2,), 4, 2)],
            status=status)
    bad_tensors("error_missing", "Loss without an Error", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b""})
    bad_tensors("error_short", "an Error of 3 bytes", [T(b"a", b"F32", (1,), 0, 4, (1, 1, 5))], {"tensor0.0.Error": b"abc"})
    bad_tensors("size_half_byte", "F4, three elements: no whole number of bytes", [T(b"a", b"F4", (3,), 0, 2)])
    bad_tensors("size_six_bits", "F6, two elements: no whole number of bytes", [T(b"a", b"F6_E2M3", (2,), 0, 1)])
    # all else is right for a tensor of that size
    for dtype, n, bits in ((b"F4", 3, 4), (b"F6_E3M2", 3, 6)):
        for way, size in (("down", n * bits // 8), ("up", n * bits // 8 + 1)):
            bad_tensors("size_%s_%s" % (dtype.decode().lower(), way), "%d bits, taken for %d bytes" % (n * bits, size), [
                T(b"a", dtype, (n,), 0, size), T(b"b", b"U8", (2,), size, 2)])
    for dtype, shape in ((b"U8", ((1 << 62) + 1, 4)), (b"F32", ((1 << 62) + 1,)), (b"F4", ((1 << 62) + 1, 8))):
        bad_tensors("shape_wraps_" + dtype.decode().lower(), "a Shape of 2^64 + 4 bytes, taken for 4", [
            T(b"a", dtype, shape, 0, 4), T(b"b", b"U8", (2,), 4, 2)])
    for name, dtype, shape in (("2_63", b"U8", (1 << 63,)), ("2_63_f32", b"F32", (1 << 61,)), ("2_128", b"U8", (UNKNOWN, UNKNOWN)),
                               ("rank_32", b"U64", (1 << 62,) * 32), ("f4", b"F4", (1 << 32, 1 << 32))):
        bad_tensors("shape_" + name, "a Size of 2^63 or more by its Shape %s" % (shape[:2],), [T(b"a", dtype, shape, 0, 0)])
    bad_tensors("shape_overflow", "a Shape whose product is 2^64, Size 0", [T(b"a", b"U8", (1 << 32, 1 << 32), 0, 0)])
    bad_tensors("bits_overflow", "a Shape whose product times Bits is 2^64, Size 0", [T(b"a", b"F32", (1 << 59,), 0, 0)])
    # 5.2
    bad("run_size", "5.2", "Run_Size is one less than the file has left", "CORRUPT", {"run1.Run_Size": 3})
    bad_file("run_empty", "5.2", "Run_Size 0", "CORRUPT", [Src(b"f"), Run([])])
    bad_file("run_too_large", "5.2", "Run_Size 2^63", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"run0.Run_Size": 1 << 63})
    bad_file("run_huge", "5.2", "Run_Size 2^64 - 1", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"run0.Run_Size": UNKNOWN})
    for log2 in (0, 13, 24, 255):
        bad("run_log2_%d" % log2, "5.2", "Log2_Block_Size %d" % log2, "CORRUPT", {"run1.Log2_Block_Size": log2})
    for prediction in (4, 255):
        bad("run_prediction_%d" % prediction, "5.2", "Prediction %d of a RUN" % prediction, "UNSUPPORTED", {"run1.Prediction": prediction})
    bad_file("run_blocks_too_many", "5.2", "N_Blocks 2^32", "CORRUPT", [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {
        "run0.Run_Size": 1 << 46})
    bad_file("run_blocks_most", "5.2", "2^32 - 1 blocks, but the input ends after one: nothing may be allocated for the others",
             ["TRUNCATED", "LIMIT"], [Src(b"f", bytes(16384), size=UNKNOWN), Run([planes([bytes(16384)])])], {"run0.Run_Size": (1 << 46) - 16384},
             index=False, trailer=False)
    # 6
    bad_file("order_run_first", "6.1", "a RUN before the first FILE", "CORRUPT", [Run([stored(b"x")]), Src(b"f", b"x")])
    bad_file("order_no_file", "6.1", "no FILE", "CORRUPT", [])
    bad("order_no_index", "6.1", "no INDX", ["CHECKSUM", "CORRUPT", "TRUNCATED"], {}, index=False)
    two_files = lambda: [Src(b"a", b"aaaa"), Run([stored(b"aa")]), Src(b"b", b"bbbb"), Run([stored(b"bbbb")])]
    # each breaks one rule, and nothing else would tell
    for name, size in (("more", 12), ("less", 4)):
        bad_file("file_size_%s_than_runs" % name, "6.2", "File_Size is not what the runs have; the index has it right", "CORRUPT", [
            Src(b"f", b"abcdefgh", size=size), Run([stored(b"abcdefgh")])])
    two = [stored(bytes(100)), stored(bytes(16384))]
    bad_file("blocks_swapped_sizes", "7", "the last block is full, another is not; the sum is right", "CORRUPT", [Src(data=bytes(16484)), Run(two)])
    bad_file("blocks_of_half_size", "7", "two blocks of half a block's size", "CORRUPT", [Src(data=bytes(16384)), Run([stored(bytes(8192))] * 2)])
    bad_file("order_incomplete_file", "6.2", "a file that is not complete when the next starts", "CORRUPT", two_files())
    bad_file("order_incomplete_last", "6.2", "a file that is not complete when the index starts", "CORRUPT",
        [Src(b"a", b"aaaa"), Run([stored(b"aa")])])
    bad_file("run_beyond_file", "6.2", "a run that ends after its file", "CORRUPT", [Src(b"a", b"abcd", size=3), Run([stored(b"abcd")])])
    bad_file("run_second_beyond_file", "6.2", "a second run of a file that is complete", "CORRUPT", [
        Src(b"a", b"abcd"), Run([stored(b"abcd")]), Run([stored(b"d")])])
    bad_file("run_into_next_file", "6.2", "a run that has the bytes of this file and the next", "CORRUPT", [
        Src(b"a", b"ab"), Run([stored(b"abcd")]), Src(b"b", b"cd")])
    bad_file("order_missing_run", "6.2", "a file without any run", "CORRUPT", [Src(b"a", b"aaaa")])
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
    bad_block("no_elements", "7", "N_Elements 0", "CORRUPT", {"N_Elements": 0})
    bad_block("elements_less", "7", "N_Elements one less than the run gives", "CORRUPT", {"N_Elements": 39})
    bad_block("elements_more", "7", "N_Elements one more than the run gives", "CORRUPT", {"N_Elements": 41})
    bad_block("elements_overflow", "7", "N_Elements 2^31 + 40: times width it is right modulo 2^32", "CORRUPT", {"N_Elements": (1 << 31) + 40})
    bad_block("width", "7", "Log2_Width 2 where N_Elements fits 1", "CORRUPT", {"Coding": lambda c: c + 1})
    big = planes([bytes((1 << 22) + 1)])
    bad_file("block_elements_too_many", "7", "N_Elements 2^22 + 1", "CORRUPT", [Src(data=big.data), Run([big], log2=23)])
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
    v.invalid("joint_without_bit", "4.2", "Joint planes in a file without Incompatible bit 0", "CORRUPT", one(good_joint, bits=0))
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
    for mode in (65, 66, 127, 128, 255):
        bad_plane("mask_mode_%d" % mode, "8.3", "Mode %d of a mask" % mode, tree(two, masks=nested_masks(mode)), bytes(300))
    for mode in (21, 22, 63, 64, 65):
        bad_plane("mask_mode_inner_%d" % mode, "8.3", "Mode %d of a mask within a nested mask" % mode, tree(two, masks=nested_masks(1, mode)),
                  bytes([i % 3 == 0 for i in range(2100)]), width=4)
    bad_plane("mask_mode_inner_2", "8.3", "gaps in a mask within a mask within a nested mask", tree(two, masks=nested_masks(19, 17, 21)),
              bytes([i % 400 == 0 for i in range(20000)]), width=2)
    invalid_gaps(bad_plane)
    bad_plane("mask_ends", "8.3", "the payload ends within a nested mask", lambda plane: trimmed(tree(two, masks=nested_masks(1))(plane)),
        bytes([i % 3 == 0 for i in range(300)]), width=1)
    # 9, 10
    bad("index_n_sections_more", "10", "N_Sections one too many", "CORRUPT", {"index.N_Sections": plus(1)})
    bad("index_n_sections_less", "10", "N_Sections one too few", "CORRUPT", {"index.N_Sections": plus(-1)})
    bad("index_n_sections_huge", "10", "N_Sections 2^32 - 1: nothing may be allocated for it", "CORRUPT", {"index.N_Sections": 0xFFFFFFFF})
    for name, at in (("magic", 0), ("minor", 9), ("compatible", 31), ("crc", 79)):
        bad("index_header_" + name, "10", "the index has another File_Header: byte %d" % at, "CORRUPT", {"index.Header": flip_byte(at)})
    bad("index_identity", "10", "Snapshot_Identity", "CORRUPT", {"index.Snapshot_Identity": flip_byte(31)})
    bad("index_n_metadata_more", "10", "N_Metadata one too many", "CORRUPT", {"index.N_Metadata": 3})
    bad("index_n_metadata_less", "10", "N_Metadata one too few", "CORRUPT", {"index.N_Metadata": 1})
    bad("index_n_metadata_huge", "10", "N_Metadata 2^32 - 1: nothing may be allocated for it", "CORRUPT", {"index.N_Metadata": 0xFFFFFFFF})
    bad("entry_first_offset", "10", "Offset of the first entry", "CORRUPT", {"entry0.Offset": plus(-1)})
    bad("entry_offset", "10", "Offset of another entry", "CORRUPT", {"entry2.Offset": plus(1)})
    bad("entry_copy_path", "10", "Copy of a FILE: the Path", "CORRUPT", {"entry0.Copy": flip_byte(30)})
    bad("entry_copy_head", "10", "Copy of a FILE: Body_CRC", "CORRUPT", {"entry3.Copy": flip_byte(23)})
    bad("entry_copy_run", "10", "Copy of a RUN: Log2_Block_Size", "CORRUPT", {"entry1.Copy": flip_byte(25)})
    v.invalid("entry_order", "10", "entries in another order than the sections", "CORRUPT", build([Src(b"a"), Src(b"b")], reorder=True))
    bad_file("entry_unknown_size", "10", "File_Size differs from what came, FILE section: unknown", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": 2})
    bad_file("entry_still_unknown", "10", "File_Size is still unknown in the index", "CORRUPT",
        [Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": UNKNOWN})
    bad_file("entry_file_size_missing", "10", "no File_Size, FILE section: unknown", "CORRUPT", [
        Src(b"f", b"x", size=UNKNOWN), Run([stored(b"x")])], {"entry0.File_Size": b""})
    bad_file("entry_file_size_known", "10", "File_Size in the index, FILE section: known", "CORRUPT", [Src(b"f", b"x"), Run([stored(b"x")])], {
        "entry0.File_CRC": struct.pack("<QI", 1, crc(b"x"))})
    bad_file("entry_directory_crc", "10", "File_CRC of a directory", "CORRUPT", [Src(b"d", kind=1)], {"entry0.File_CRC": 1})
    bad("entry_file_crc", "10", "File_CRC", "CORRUPT", {"entry0.File_CRC": flip})
    bad("entry_identity_tensor", "10", "identity of a tensor", "CORRUPT", {"entry0.Identity1": flip_byte(0)})
    bad("entry_identity_file", "10", "identity of a file without tensors", "CORRUPT", {"entry3.Identity0": flip_byte(9)})
    bad("entry_block_size", "10", "size of a block", "CORRUPT", {"entry1.Size0": plus(1)})
    bad("entry_block_crc", "10", "Header_CRC of a block", "CORRUPT", {"entry1.Header_CRC0": flip})
    mine, other = (one(stored(data)) for data in (b"mine", b"that"))
    at = mine.out.index(b"mine") - 24
    v.invalid("entry_block_of_another_file", "10", "a block of another file, of the same size and number, in place of the right one", "CORRUPT",
              bytes(mine.out[:at]) + bytes(other.out[at:at + 28]) + bytes(mine.out[at + 28:]))
    bad("metadata_order", "10", "keys that do not ascend", "CORRUPT", {"metadata0.Key": b"zormat"})
    bad("metadata_same_key", "10", "the same key twice", "CORRUPT", {"metadata0.Key": b"titles"})
    bad("metadata_no_key", "10", "Key_Size 0", "CORRUPT", {"metadata0.Key": b"", "metadata0.Key_Size": 0})
    bad_file("metadata_key_too_long", "10", "Key_Size 65,536", "CORRUPT", [Src(b"f")], metadata=[(b"k" * 65536, b"")])
    bad("metadata_zero_byte", "10", "zero byte in a key", "CORRUPT", {"metadata0.Key": b"for\0at"})
    bad("metadata_value_huge", "10", "Value_Size 2^28 + 1", ["CORRUPT", "LIMIT"], {"metadata1.Value_Size": (1 << 28) + 1})
    bad("metadata_value_longer", "10", "Value_Size beyond the body", "CORRUPT", {"metadata1.Value_Size": 2})
    bad("trailer_index_offset", "10", "Index_Offset, the sum made right by Index_Size", "CORRUPT",
        {"trailer.Index_Offset": plus(1), "trailer.Index_Size": plus(-1)})
    bad("trailer_index_offset_overflow", "10", "Index_Offset 2^64 - 1: the sum is right modulo 2^64", "CORRUPT", {
        "trailer.Index_Offset": UNKNOWN, "trailer.Index_Size": lambda size: len(good) - 40 + 1})
    for major in (0, 2, 255):
        bad("trailer_version_%d" % major, "10", "Format_Major %d in the trailer" % major, "VERSION", {"trailer.Format_Major": major})
    bad("trailer_version_crc", "10", "order of the checks: Format_Major 2 in a trailer of another CRC", "CHECKSUM", {
        "trailer.Format_Major": 2, "trailer.Trailer_CRC": 0})
    bad("trailer_index_size", "10", "Index_Size", "CORRUPT", {"trailer.Index_Size": plus(-24)})
    bad("trailer_total_size", "10", "Total_Size", "CORRUPT", {"trailer.Total_Size": plus(1)})
    bad("trailer_reserved", "10", "reserved field of the trailer", "UNSUPPORTED", {"trailer.Reserved": 1})
    bad("trailer_crc", "10", "Trailer_CRC", "CHECKSUM", {"trailer.Trailer_CRC": flip})
    bad("trailer_end_magic", "10", "End_Magic", ["CORRUPT", "TRUNCATED"], {"trailer.End_Magic": b"\x83LMC\r\n\x1a\n"})
    bad("trailer_end_magic_of_drafts", "10", "End_Magic of the drafts", ["CORRUPT", "TRUNCATED"], {"trailer.End_Magic": b"\x8dLMC\r\n\x1a\n"})
    v.invalid("trailing_byte", "10", "a byte after the trailer", ["CORRUPT", "TRUNCATED"], good + b"\0")
    v.invalid("trailing_file", "10", "another LMC file after the trailer", "CORRUPT", good + good)
    # Plain damage
    marks = {1: "within Magic", 7: "within Magic", 8: "after Magic", 9: "within the version", 10: "after the version", 79: "within the header",
        80: "after the header",
             103: "within a section header", 104: "after a section header", 120: "within a FILE body"}
    b = simple({})
    ends = {}
    at = 0
    for note, data in b.notes:
        ends.setdefault(note, at + len(data))
        at += len(data)
    marks.update({ends["Run_Size"] + 1: "within a RUN body", ends["Sync"]: "within a block header",
                  ends["Base_CRC"] + 4: "after a block header", ends["the bytes"] - 1: "within a payload", ends["N_Metadata"]: "within the index",
                  len(good) - 40: "before the trailer", len(good) - 8: "before End_Magic", len(good) - 1: "one byte missing"})
    for size, what in sorted(marks.items()):
        v.invalid("truncated_%04d" % size, "10", "the input ends %s" % what, "NOT_LMC" if size < 8 else "TRUNCATED", good[:size])
    for at, status in ((4, "NOT_LMC"), (8, ["VERSION", "CHECKSUM"]), (9, "CHECKSUM"), (20, "CHECKSUM"), (76, "CHECKSUM"), (84, "CHECKSUM"), (90, "CHECKSUM"),
                       (115, "CHECKSUM"),
                       (ends["the bytes"] - 3, "CHECKSUM"), (ends["N_Metadata"], "CHECKSUM"), (len(good) - 20, "CHECKSUM")):
        v.invalid("flipped_%04d" % at, "all", "bit 4 of byte %d flipped" % at, status, flip_bit(good, at, 4))
    flat = bytes(v.builders["example_tree"].out)
    start = flat.index(b"\xb1\x25")
    for at in range(start + 26, start + 44, 3):
        v.invalid("flipped_tree_%04d" % at, "8", "a bit of a coded plane flipped", ["CORRUPT", "CHECKSUM"], flip_bit(flat, at, at % 8))


def invalid_gaps(bad_plane):
    """8.3: masks as gaps in a tree of two leaves. bad_plane: of invalid_vectors."""
    n = 300
    positions = [5, 100, 299]

    def bad(name, rule, s, parts, polarity=0, width=8, n=n):
        coder = lambda plane: [("Mode tree", b"\2")] + Tree({0: 1, 1: 1}).header() + [("mask, Mode", bytes([gap_mode(s, polarity)]))] + parts
        bad_plane("gaps_" + name, "8.3", rule, coder, bytes(int(i in positions) for i in range(n)), width=width)

    lists = gap_lists
    for polarity in (0, 1):
        end = "_polarity1" * polarity
        bad("k_0" + end, "K 0", 3, [("K", bytes(3))], polarity)
        bad("k_larger" + end, "K 301 of 300 bits", 0, lists(list(range(301)), 0), polarity)
        bad("k_huge" + end, "K 2^24 - 1", 0, lists(positions, 0, count=(1 << 24) - 1), polarity)
        bad("k_huge_s21" + end, "K 2^24 - 1, s 21: the list Low is beyond the payload", 21, lists(positions, 21, count=(1 << 24) - 1), polarity)
        for s in (0, 3, 8, 21):
            bad("position_n_s%d%s" % (s, end), "a position of n, s %d" % s, s, lists([5, 100, 300], s), polarity)
            bad("position_first_s%d%s" % (s, end), "the first position is n, s %d" % s, s, lists([300], s), polarity)
    bad("position_far", "a position of 2^22 - 1", 21, lists([5, (1 << 22) - 1], 21))
    bad("position_overflow", "gaps of 2^21 - 1 whose sum is more than 2^28", 21, lists([((i + 1) << 21) - 1 for i in range(200)], 21))
    bad("position_later_is_back", "a position beyond n, and others behind it", 3, lists([5, 700, 701, 702], 3))
    small = lambda s: lists(positions, s)
    bad("padding_low", "unused bits of Low are not zero", 3, [(note, data[:-1] + bytes([data[-1] | 128]) if note == "Low" else data) for note,
        data in small(3)])
    bad("padding_quotients", "unused bits of Quotients are not zero", 8, [
        (note, bytes([data[0] | 128]) if note == "Quotients" else data) for note, data in small(8)])
    bad("padding_next", "the first unused bit of Quotients is one: one too many", 8, lists(positions, 8, quotients=[1, 1, 1, 1][:3] + [1]))
    bad("quotients_longer", "a byte too many behind Quotients", 3, small(3) + [("", b"\0")])
    flat = join(small(3))
    for name, cut in (("k", 2), ("low", 4), ("before_quotients", 5), ("quotients", len(flat) - 1)):
        bad("ends_" + name, "the payload ends within a mask as gaps, after %d of its bytes" % cut, 3, [("", flat[:cut])], width=1)
    bad("ends_empty", "the payload ends after the Mode of a mask as gaps", 3, [], width=1)
    bad("quotients_zeros", "Quotients has zeros up to the end of the payload", 0, lists(positions, 0, quotients=[0] * 800), width=1, n=2000)
    bad("quotients_too_few", "Quotients has a one too few", 0, lists(positions, 0, count=4), width=1)


def invalid_identities(v):
    """9: what other checks do not see."""
    good = bytes(v.builders["example_stored"].out)
    error = bytes.fromhex("F176EC0501")        # a multiple of CRC-32C's polynomial
    at = good.index(bytes.fromhex("803F00BF00004940"))
    for name, at in (("first", at), ("last", at + 3)):
        damaged = good[:at] + bytes(x ^ y for x, y in zip(good[at:], error)) + good[at + 5:]
        v.invalid("identity_of_crc_collision_" + name, "9.2", "an error of five bytes that no CRC-32C sees: the %s bytes of a tensor" % name,
            "CORRUPT", damaged)
    f = Src(b"x")
    d = Src(b"x", kind=1)
    for name, mine, other in (("file_as_directory", f, d), ("directory_as_file", d, f)):
        v.invalid("identity_" + name, "9.2", "the identities are those of an empty %s \"x\"" % ("directory" if mine is f else "file"), "CORRUPT",
            build([mine], patch={
            "entry0.Identity0": next(items_of([other]))[1], "index.Snapshot_Identity": identity_of_snapshot(items_of([other]))}))
    data = b"0123456789"
    mine, other = Src(b"x", data, [T(b"x", b"U8", (10,), 0, 10)]), Src(b"x", data)
    v.invalid("identity_tensor_as_file", "9.2", "the identities are those of a file without tensors", "CORRUPT", build([mine, Run([stored(data)])],
        patch={
        "entry0.Identity0": next(items_of([other]))[1], "index.Snapshot_Identity": identity_of_snapshot(items_of([other]))}))
    old = hashlib.sha256(b"LMC tensor 1\0" + struct.pack("<I", crc(data)) + b"\2U8\1" + struct.pack("<QQ", 10, 10)).digest()
    v.invalid("identity_of_drafts", "9.2", "the identity is that of the drafts", "CORRUPT", build([other, Run([stored(data)])], patch={
        "entry0.Identity0": old, "index.Snapshot_Identity": hashlib.sha256(b"LMC snapshot 1\0" + struct.pack("<I", 1) + b"x" + old).digest()}))


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
    v.invalid("run_without_base_unused", "5.2", "Prediction 1 in a file without a base; all blocks are of Prediction 0", "CORRUPT", build([
        Src(data=bytes(40)), Run([planes([bytes(40)])], prediction=1)]))
    for conversion in (1, 2, 3, 255):
        bad("run_conversion_1_%d" % conversion, "5.2", "Conversion %d with Prediction 1" % conversion, "UNSUPPORTED", plain,
            {"run0.Conversion": conversion})
        v.invalid("run_conversion_0_%d" % conversion, "5.2", "Conversion %d with Prediction 0" % conversion, "UNSUPPORTED",
                  one(stored(b"half"), patch={"run0.Conversion": conversion}))
    # what is after -1: 0 is the one item; 2r + 1 says that an Offset follows
    for item in (1, 2, (1 << 32) - 1, 1 << 32, (1 << 61) - 1):
        bad("segment_item_%d" % item, "5.2", "number %d of an item: the base has one" % item, "CORRUPT", plain, {
            "segment0.0.Reference": (zigzag(item) << 1) + 1})
    for item in (-1, -2, -(1 << 32), -(1 << 62)):
        bad("segment_item_minus_%d" % -item, "5.2", "number %d of an item" % item, "CORRUPT", plain, {
            "segment0.0.Reference": (zigzag(item) << 1) + 1})
    bad("segment_item_huge", "5.2", "Reference 2^64 - 1", "CORRUPT", plain, {"segment0.0.Reference": UNKNOWN})
    with_offset = lambda value: {"segment0.0.Reference": varint(2) + varint(value)}
    bad("segment_base_beyond", "5.2", "Offset + Size is one more than the item has", "CORRUPT", plain, with_offset(1))
    bad("segment_base_offset_beyond", "5.2", "Offset is beyond the item", "CORRUPT", plain, with_offset(1 << 40))
    bad("segment_base_overflow", "5.2", "Offset + Size = 2^64 + 299", "CORRUPT", plain, with_offset(UNKNOWN))
    bad("segment_offset_0", "5.2", "an Offset of 0 that is stored", "CORRUPT", plain, with_offset(0))
    three = lambda patch, **options: delta(plain, patch, segments=[(100, 1, 0), (100, 1, 100), (100, 1, 200)], **options)
    for name, rule, patch in (
            ("segment_sum_less", "the sum of the segments is one less than Run_Size", {"segment0.1.Size": 99}),
            ("segment_sum_more", "the sum of the segments is one more than Run_Size", {"segment0.0.Size": 101}),
            ("segment_sum_overflow", "the sum of the segments is Run_Size modulo 2^64", {"segment0.0.Size": 1 << 63, "segment0.1.Size": (
                1 << 63) + 200}),
            ("segment_size_huge", "a segment of 2^64 - 1 bytes", {"segment0.2.Size": UNKNOWN}),
            ("segment_rest_in_front", "a Size of 0: the rest of the file, which other segments have, too", {"segment0.0.Size": 0}),
            ("segment_rest_twice", "a Size of 0 where nothing is left of the file", {"segment0.1.Size": 200, "segment0.2.Size": 0}),
            ("segments_one_more", "N_Segments counts one more than there are", {"run0.N_Segments": 4}),
            ("segments_one_less", "N_Segments counts one less than there are", {"run0.N_Segments": 2}),
            ("run_no_segments", "N_Segments 0", {"run0.N_Segments": 0}),
            ("run_segments_too_many", "N_Segments 2^24 + 1", {"run0.N_Segments": (1 << 24) + 1}),
            ("run_segments_most", "N_Segments 2^24: the body cannot hold them", {"run0.N_Segments": 1 << 24}),
            ("run_segments_huge", "N_Segments 2^64 - 1", {"run0.N_Segments": UNKNOWN}),
            ("segment_second_negative", "a number that becomes negative by the second segment", {
                "segment0.1.Reference": (zigzag(-2) << 1 | 1) + 1}),
            ("segment_second_beyond", "a number that becomes too large by the second segment", {
                "segment0.1.Reference": (zigzag(0) << 1 | 1) + 1})):
        v.invalid(name, "5.2", rule, "CORRUPT", three(patch))
    v.invalid("segment_rest_unknown", "5.2", "a Size of 0 in a file of Unknown size", "CORRUPT", build([
        Src(data=new, size=UNKNOWN), Run([plain], [(Rest(300), 1, 0)], prediction=1)], base=base))
    v.invalid("run_size_not_segments", "5.2", "Run_Size is one more than the sum of the segments, in a file of Unknown size", "CORRUPT", build([
        Src(data=new, size=UNKNOWN), Run([plain], prediction=1, base=(1, 0))], {}, {"run0.Run_Size": 301}, base=base))

    def bad_own(name, rule, *items, status="CORRUPT", patch=None, section="5.2", bits=None):
        v.invalid("own_" + name, section, rule, status, build(list(items), patch=patch, bits=bits))

    a = old[:60]
    first = lambda: (Src(b"a", a), Run([stored(a)]))
    copy = lambda: own_run(a, [(60, 1, 0)], sources=[Src(data=a)])
    bad_own("without_bit", "Prediction 2 in a file without Incompatible bit 2", *first(), Src(b"b", a), copy(), bits=0)
    v.invalid("own_without_bit_in_delta", "5.2", "Prediction 2 in a delta without Incompatible bit 2", "CORRUPT", build(
        [*first(), Src(b"b", a), copy()], base=base, bits=2))
    for conversion in (3, 255):
        bad_own("conversion_%d" % conversion, "Conversion %d" % conversion, *first(), Src(b"b", a), copy(), patch={"run1.Conversion": conversion},
                status="UNSUPPORTED")
    number = lambda n, *offset: {"segment1.0.Reference": b"".join(map(varint, ((zigzag(n) << 1 | len(offset)) + 1, *offset)))}
    bad_own("no_file", "number 2 of a file: there are two", *first(), Src(b"b", a), copy(), patch=number(2))
    bad_own("file_huge", "number 2^32 of a file: 0 modulo 2^32", *first(), Src(b"b", a), copy(), patch=number(1 << 32))
    bad_own("file_negative", "number -1 of a file", *first(), Src(b"b", a), copy(), patch=number(-1))
    bad_own("beyond_file", "a prediction that ends after its file", *first(), Src(b"b", a), copy(), patch=number(0, 1))
    bad_own("overflow", "Offset + Size = 2^64 + 59", *first(), Src(b"b", a), copy(), patch=number(0, UNKNOWN))
    bad_own("offset_0", "an Offset of 0 that is stored", *first(), Src(b"b", a), copy(), patch=number(0, 0))
    bad_own("directory", "a prediction from a directory", *first(), Src(b"d", kind=1), Src(b"b", a), copy(), patch=number(1))
    twice = Src(data=a + a)
    bad_own("itself", "a run predicted from itself", twice, Run([stored(a)]), Run([stored(a)], [(60, 1, 60)], 14, 2))
    bad_own("into_itself", "a prediction that ends one byte within its own run", twice, Run([stored(a)]),
            Run([stored(a)], [(60, 1, 1)], 14, 2))
    bad_own("forwards", "a prediction from a later run of the same file", twice, Run([stored(a)], [(60, 1, 60)], 14, 2), Run([stored(a)]))
    bad_own("forwards_file", "a prediction from a file that comes later", Src(b"a", a), Run([stored(a)], [(60, 2, 0)], 14, 2), Src(b"b", a),
            Run([stored(a)]))
    thrice = Src(data=a * 3)
    own = lambda start: Run([stored(a)], [(60, 1, start)], 14, 2)
    bad_own("of_own", "a prediction from a run of Prediction 2", thrice, Run([stored(a)]), own(0), own(60))
    bad_own("of_own_start", "a prediction that ends one byte within a run of Prediction 2", thrice, Run([stored(a)]), own(0), own(1))
    four = Src(data=a * 4)
    bad_own("of_own_end", "a prediction that starts with the last byte of a run of Prediction 2", four, Run([stored(a)]), own(0),
            Run([stored(a)]), own(119))
    bad_own("of_own_zeros", "a prediction from a run of Prediction 2 that has no prediction itself", thrice, Run([stored(a)]),
            Run([stored(a)], [(60, 0, 0)], 14, 2), own(60))
    bad_own("of_own_across", "a prediction that reaches over a run of Prediction 2", Src(data=a * 2 + bytes(180)), Run([stored(a[:30])]), Run(
            [stored(a[30:])], [(30, 1, 0)], 14, 2), Run([stored(a)]), Run([planes([bytes(120)])], [(120, 1, 0)], 14, 2),
            Run([planes([bytes(60)])]))
    floats = pack(TO_ROUND[:20], 4)
    half = convert(floats, 1)
    master = lambda: (Src(b"a", floats), Run([stored(floats)]))
    for conversion in (1, 2):
        rounded = convert(floats, conversion)
        bad_own("conversion_%d_beyond" % conversion,
                "Conversion %d: Base_Offset + Size lies within the file, Base_Offset + 2 * Size does not" % conversion, *master(),
                Src(b"b", rounded), Run([stored(rounded)], [(40, 1, 1)], 14, 2, conversion))
        bad_own("conversion_%d_odd" % conversion, "Conversion %d: a segment of odd Size" % conversion,
                *master(), Src(b"b", half[:37]), Run([stored(half[:37])], [(37, 1, 0)], 14, 2, conversion))
        bad_own("conversion_%d_odd_zeros" % conversion, "Conversion %d: segments of odd Size, whose Base is 0" % conversion,
                *master(), Src(b"b", half), Run([stored(half)], [(1, 0, 0), (38, 1, 0), (1, 0, 0)], 14, 2, conversion))
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
    for name, options in (("classes", {"thresholds": [112, 114, 116]}), ("classes_9", {"thresholds": range(112, 120)}), ("sparse", {"sparse": True}),
                          ("sparse_classes", {"thresholds": [112], "sparse": True})):
        block = predicted(bytes(200) + new[:40], None, 2, **options)
        v.invalid("%s_without_prediction" % name, "7.3", "%s with Prediction 0" % name.replace("_", " "), "CORRUPT", one(block, base=base))
        v.invalid("%s_without_prediction_in_delta" % name, "7.3", "%s with Prediction 0 in a run of Prediction 1" % name.replace("_", " "), "CORRUPT",
                  build([Src(data=block.data), Run([block], prediction=1)], base=base))
    for name, thresholds in (("zero", range(8)), ("same", [*range(1, 9), 8]), ("last", [*range(1, 15), 13])):
        bad("classes_%d_threshold_%s" % (len(thresholds) + 1, name), "7.3", "thresholds %s" % list(thresholds), "CORRUPT",
            predicted(new, old, 2, thresholds=thresholds))
    for width in (1, 2, 4):
        for n in sorted({width, 7}):
            bad("natural_%d_of_%d" % (n, width), "7.3", "Natural %d, width %d" % (n, width), "CORRUPT",
                predicted(new, old, width, thresholds=[112, 114]), Grouping=2 | n << 4)
    low = bytes(x ^ (i % 6 == 0) for i, x in enumerate(old))
    bad("natural_one_class", "7.3", "Natural 1 with one class", "CORRUPT", predicted(low, old, 4, 0, natural=1))
    bad("natural_sparse", "7.3", "Natural 1 with Sparse and classes", "CORRUPT", predicted(low, old, 4, 0, [112, 114], True, 1))
    bad("natural_sparse_one_class", "7.3", "Natural 1 with Sparse and one class", "CORRUPT", predicted(low, old, 4, 0, [], True, 1))
    v.invalid("natural_without_prediction", "7.3", "Natural 1 with Prediction 0", "CORRUPT", one(predicted(bytes(80), None, 4, natural=1), base=base))
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
    bad("sparse_mask_mode", "7.3", "Mode 65 of a mask", "CORRUPT", predicted(new, old, 1, sparse=True, masks=nested_masks(65)))
    bad("sparse_gaps_padding", "7.3", "unused bits of the lists of a mask as gaps are not zero", "CORRUPT",
        predicted(new, old, 1, sparse=True, masks=nested_masks(gap_mode(1)), padding=1))
    bad("classes_plane_mode", "7.3", "Mode 4 of a class plane", "CORRUPT", predicted(new, old, 2, thresholds=[112], coders={(1, 0): literal([4])}))


def invalid_quantised(v, pool):
    r = Random(9)
    log, signed, table = METHOD_LOG, METHOD_SIGNED, METHOD_TABLE
    second = moments(r, 100, 4)

    def bad(name, rule, block, status="CORRUPT", prediction=2, base=None, bits=None, **fields):
        """fields: of the block's header. A block of Prediction 1 is predicted by second, or by base in a delta."""
        patch = lambda run: {"block%d.0.%s" % (run, field): value for field, value in fields.items()}
        if block.base is None:
            made = one(block, patch=patch(0), bits=bits)
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
        for what, grouping in (("classes", 1), ("classes_9", 128), ("sparse", 8), ("natural", 16)):
            bad(what + name, "Grouping %d" % grouping, block, Grouping=grouping)
    bad("joint_3", "Joint 3", good, "UNSUPPORTED", Coding=lambda coding: coding | 24)
    bad("without_bit", "Layout 2 in a file without Incompatible bit 3", good, bits=0)
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

HEADINGS = {"Magic": "File_Header", "Kind": "Section_Header", "N_Files": "FILE body", "Run_Size": "RUN body", "Sync": "Block_Header",
            "Header": "INDX body", "Index_Offset": "Trailer"}
TEXTS = ("Kind", "Path_Rest", "Middle", "Dtype_String", "Key", "Value", "Body")
BYTES = ("Low", "Quotients", "Extra", "Thresholds")                 # no numbers, whatever their size
SIGNED = ("Min", "Bias")
EXAMPLES = ("example_stored", "example_tree", "example_delta", "example_quantised", "example_text", "example_gaps")
EXCERPTS = ("classes_one_element", "joint2_n8", "own_bf16_in_delta")


def dump(b):
    """Annotated hexdump: offset, bytes, field, value."""
    lines, at = [], 0
    for note, data in b.notes:
        if note in HEADINGS:
            lines.append("      -- %s --" % HEADINGS[note])
        text = note
        if note in TEXTS:
            text += ' "%s"' % data.decode()
        elif isinstance(data, Varint):
            text += " %d" % sum((byte & 127) << 7 * i for i, byte in enumerate(data))
        elif len(data) in FIELD and note[0].isupper() and " " not in note and "CRC" not in note and "Magic" not in note and (
                note not in BYTES):
            text += " %d" % int.from_bytes(data, "little", signed=note in SIGNED)
            if note == "Dtype" and 0 < data[0] <= len(DTYPES):
                text += " (%s)" % DTYPES[data[0] - 1]
        if note in ("Copy", "Header"):
            lines.append("%04X  (%d bytes)%s%s" % (at, len(data), " " * (49 - len("(%d bytes)" % len(data))), text))
        else:
            for i in range(0, len(data), 16):
                lines.append("%04X  %-47s  %s" % (at + i, data[i:i + 16].hex(" ").upper(), text if i == 0 else ""))
        at += len(data)
    return "\n".join(("    " + line).rstrip() for line in lines)


def manifest_text(manifest):
    """A line for each vector."""
    lists = ["\"%s\": [\n%s\n]" % (kind, ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in manifest[kind])) for kind in ("valid",
        "invalid")]
    return "{\"format\": \"%s\",\n%s}\n" % (manifest["format"], ",\n".join(lists))


def table_of_rules(page):
    """(rule, statuses, patterns of names) of each row of section 11.2."""
    section = page.partition("\n## 11.")[2].partition("\n## 12.")[0]
    rows = [line.split("|") for line in section.split("\n") if line.count("|") == 5]
    return [(row[1].strip(), set(re.findall("[A-Z_]+", row[3])), re.findall(r"`([a-z0-9_*]+)`", row[4])) for row in rows]


def refused(manifest):
    """The invalid vectors, and those that only decoders of hashes or links refuse."""
    return manifest["invalid"] + [entry for entry in manifest["valid"] if entry["section"] in ("9.5", "10.2") and "or" in entry]


def add_rules(manifest, page):
    """The rules that a vector breaks, as the table of the page says it."""
    table = table_of_rules(page)
    for entry in refused(manifest):
        status = set(entry["status"] if "status" in entry else entry["or"])
        entry["rules"] = [rule for rule, statuses, patterns in table
                          if status <= statuses and any(fnmatch.fnmatchcase(entry["name"], pattern) for pattern in patterns)]


def make(page):
    v = Vectors()
    valid_vectors(v)
    pool = delta_vectors(v)
    base_vectors(v, pool)
    example_delta(v)
    example_quantised(v)
    bases, link = chain_vectors(v)
    own_vectors(v, pool)
    quantised_vectors(v, pool)
    section_vectors(v)
    name_vectors(v)
    group_vectors(v, pool)
    text_vectors(v, pool)
    identity_vectors(v, pool)
    variant_vectors(v)
    more_examples(v)
    invalid_vectors(v)
    invalid_deltas(v, pool, bases, link)
    invalid_quantised(v, pool)
    invalid_names(v)
    invalid_groups(v)
    invalid_texts(v)
    invalid_identities(v)
    v.add_levels()
    add_rules(v.manifest, page)
    v.outputs["manifest.json"] = manifest_text(v.manifest).encode()
    return v


def main(arguments):
    if arguments[:1] == ["--dump"] and len(arguments) == 2:
        print(dump(make("").builders[arguments[1]]))
        return 0
    if arguments not in ([], ["--check-only"]):
        print(__doc__, file=sys.stderr)
        return 2
    with open(os.path.join(HERE, "lmc-format.md"), encoding="utf-8") as file:
        page = file.read()
    v, root = make(page), os.path.join(HERE, "vectors")
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
    wrong += ["lmc-format.md: dump of %s" % name for name in EXAMPLES if dump(v.builders[name]) not in page]
    for name in EXCERPTS:
        shown = re.findall(r"^    [0-9A-F]{4}  .*$", page.split("`%s.lmc`" % name)[1].split("\n### ")[0], re.M)
        if not shown or not set(shown) <= set(dump(v.builders[name]).split("\n")):
            wrong.append("lmc-format.md: excerpt of %s" % name)
    known = set(re.findall(r"\*\*(R[0-9.]+-[0-9]+)\*\*", page))
    wrong += ["lmc-format.md: there is no rule " + rule for rule in sorted(set(re.findall(r"\bR[0-9.]+-[0-9]+", page)) - known)]
    for pattern in {pattern for _, _, patterns in table_of_rules(page) for pattern in patterns}:
        if not any(fnmatch.fnmatchcase(entry["name"], pattern) for entry in refused(v.manifest)):
            wrong.append("lmc-format.md, section 11: no vector is called " + pattern)
    wrong += ["lmc-format.md, section 11: no row for %s and its status" % entry["name"] for entry in refused(v.manifest) if not entry["rules"]]
    for path in wrong:
        print("differs: " + path)
    print("%d files compared, %d differ" % (len(v.outputs), len(wrong)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
