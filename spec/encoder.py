#!/usr/bin/env python3
"""A naive encoder of LMC files, format 1.0. The caller makes all choices, so it can write valid files that no sensible encoder would write, and
broken ones: it patches a field, and repairs all that depends on it (CRCs, index, sizes). It shares no code with lmc_decode.py. make_vectors.py
makes the vectors with it, fuzz/ and tests/ their own files. SPDX-License-Identifier: MIT
"""
import collections
import fractions
import functools
import hashlib
import heapq
import json
import struct

import frozen_trees

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


# ---- CRC, fingerprints ----

CRC32C = []
for _value in range(256):
    for _ in range(8):
        _value = _value >> 1 ^ 0x82F63B78 * (_value & 1)
    CRC32C.append(_value)


@functools.lru_cache(maxsize=64)
def crc(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = CRC32C[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


assert crc(b"123456789") == 0xE3069283
A_TENSOR, A_FILE, A_DIRECTORY = range(3)


def fingerprint_of_tensor(kind, dtype, shape, data):
    sums = b""
    for i in range(0, len(data), 262144):
        chunk = data[i:i + 262144]
        words = chunk + bytes(-len(chunk) % 8)
        sums += struct.pack("<IQ", crc(chunk), sum(struct.unpack("<%dQ" % (len(words) // 8), words)) & UNKNOWN)
    return hashlib.sha256(b"LMC tensor 3\0" + bytes([kind]) + sums + bytes([len(dtype)]) + dtype
                          + bytes([len(shape)]) + struct.pack("<%dQ" % (len(shape) + 1), *shape, len(data))).digest()[:16]


def fingerprint_of_snapshot(items):
    return hashlib.sha256(b"LMC snapshot 3\0" + b"".join(
        struct.pack("<I", len(name)) + name + fingerprint for name, fingerprint in sorted(items))).digest()[:16]


# ---- Lists, trees and masks: every function returns a list of (note, bytes) ----

def pack_bits(bits, dirty=0):
    """dirty: value of the unused bits."""
    bits = list(bits) + [dirty] * (-len(bits) % 8)
    return bytes(sum(bits[i + j] << j for j in range(8)) for i in range(0, len(bits), 8))


class Tree:
    """symbols: in the order of the leaves, None for the escape. to_escape: symbols with a code that are escaped all the same."""

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


# A policy for masks: (number of bits, nesting, depth) -> mode: 0 (raw), 1 + 2 * level + polarity or gap_mode(s, polarity); or (mode, dirty bit).
def raw_masks(n, nesting, depth):
    return 0


def gap_mode(s, polarity=0):
    return 21 + 2 * s + polarity


def nested_masks(*modes):
    """Modes by nesting, the last one for all deeper masks."""
    return lambda n, nesting, depth: modes[min(nesting, len(modes) - 1)]


def encode_mask(bits, nesting, policy, depth=0):
    n, mode = len(bits), policy(len(bits), nesting, depth)
    mode, dirty = mode if isinstance(mode, tuple) else (mode, 0)
    if n < 256 or nesting == 2:
        return [("mask", pack_bits(bits, dirty))]
    if 21 <= mode < 128:                       # also modes of invalid vectors: s over 21, or in a mask of a tree
        s, polarity = mode - 21 >> 1, mode - 21 & 1
        positions = [i for i, bit in enumerate(bits) if bit != polarity]
        if not positions:                      # K cannot be 0
            polarity, positions = 1 - polarity, range(n)
            mode = gap_mode(s, polarity)
        return [("mask, Mode: gaps, Shift %d, Polarity %d" % (s, polarity), bytes([mode]))] + gap_lists(positions, s, dirty)
    if mode == 0 or mode > 2 * len(FROZEN):
        return [("mask, Mode", bytes([mode])), ("bits", pack_bits(bits, dirty))]
    packed = pack_bits(bits, dirty)
    if mode - 1 & 1:
        packed = bytes(255 - b for b in packed)
    tree = Tree(FROZEN[mode - 1 >> 1], masks=policy, order=POPCOUNT_ORDER)
    return [("mask, Mode: nested, level %d, polarity %d" % (mode - 1 >> 1, mode - 1 & 1), bytes([mode]))] + tree.nodes(packed, nesting + 1)


def gap_lists(positions, s, dirty=0, count=None, quotients=None):
    """Section 6.3: the fields behind the Mode byte. count: K, default the right one. quotients: their bits."""
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
        # change breaks only the header: a careless decoder can go on
        return [("Mode tree" + (" with escape" if escape else ""), bytes([3 if escape is not None else 2]))] + coder.header(**change) + coder.nodes(
            plane, 0, dirty_flat)
    return encode


def literal(*parts):
    return lambda plane: [("bytes", bytes(part)) for part in parts]


def guess(plane):
    return constant(plane) if len(set(plane)) == 1 else raw(plane)


def fitted(plane, masks=None):
    """Constant, or the smallest of raw, Huffman's tree, and a tree of only the most frequent symbol and the escape."""
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
    """A block: data and payload (a list of parts); base: the bytes of its prediction, None if it is not Predicted."""

    def __init__(self, data, width=1, order=0, layout=0, payload=None, base=None, grouping=0):
        self.data, self.width, self.order, self.layout = bytes(data), width, order, layout
        self.base, self.grouping = base, grouping
        self.payload = [("the bytes", self.data)] if payload is None else payload

    def size(self):
        return len(join(self.payload))


def stored(data, width=1):
    return Block(data, width)


def planes(lists, coders=None, order=0):
    """A block from the bytes of its planes."""
    width = len(lists)
    data = b"".join(element_from(int.from_bytes(bytes(column), "little"), width, order).to_bytes(width, "little") for column in zip(*lists))
    payload = []
    for p, plane in enumerate(lists):
        parts = (coders or {}).get(p, guess)(plane)
        payload += [("plane %d: %s" % (p, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(data, width, order, 1, payload)


def element_from(r, width, order):
    """The element that has the residual r without a prediction."""
    if order == 0:
        return r
    if order == 2:
        return r >> 1 | (r & 1) << 8 * width - 1
    return (r >> 1 if r & 1 == 0 else -(r >> 1) - 1) & (1 << 8 * width) - 1


def plane_block(plane, coder, width=1, at=0, order=0):
    """One plane with content, the others constant."""
    return planes([plane if p == at else bytes([17 * p]) * len(plane) for p in range(width)], {at: coder}, order)


def apart(elements, width, order, mask, coders=None, mask_coder=None, dirty=0):
    """A block with zeros apart (zeros.md): mask says which elements are of the second kind. coders: by kind and plane. dirty: the unused bits of Mask."""
    rows = [element.to_bytes(width, "little") for element in elements]
    data = b"".join(rows)
    residuals = [residual_of(element, 0, width, order).to_bytes(width, "little") for element in elements]
    parts = (mask_coder or guess)(pack_bits(mask, dirty))
    payload = [("Mask: %s" % parts[0][0], parts[0][1])] + parts[1:]
    for p in range(width):
        for kind in (0, 1):
            plane = bytes([residual[p] for residual, bit in zip(residuals, mask) if bit == kind])
            if plane:
                parts = (coders or {}).get((kind, p), guess)(plane)
                payload += [("kind %d, plane %d: %s" % (kind, p, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(data, width, order, 3, payload)


def matrix(elements, width, row_size, first, shift, rows, columns, order=2, low_coder=None, columns_coder=None, **options):
    """A block predicted by rows and columns (matrix.md). options: of predicted(). Ranges are not checked, for invalid vectors."""
    sums = [rows[i // max(row_size, 1)] + columns[i % max(row_size, 1)] << shift for i in range(first, first + len(elements))]
    base = b"".join((x % (1 << 8 * width)).to_bytes(width, "little") for x in sums)
    block = predicted(b"".join(x.to_bytes(width, "little") for x in elements), base, width, order, **options)
    payload = [("Row_Size", struct.pack("<I", row_size)), ("First", struct.pack("<I", first)), ("Shift", bytes([shift]))]
    for name, plane, coder in (("Low", bytes(x & 255 for x in rows), low_coder), ("High", bytes(x >> 8 for x in rows), None),
                               ("Columns", bytes(columns), columns_coder)):
        parts = (coder or guess)(plane)
        payload += [("%s: %s" % (name, parts[0][0]), parts[0][1])] + [("%s: %s" % (name, note), data) for note, data in parts[1:]]
    return Block(block.data, width, order, 4, payload + block.payload)


def rounded(x, bits, least):
    """The bits of a positive fraction as a float with that many bits of significand, and that exponent of the least normal number."""
    exponent = least
    while x >= fractions.Fraction(2) ** (exponent + 1):
        exponent += 1
    return (exponent - least << bits - 1) + round(x / fractions.Fraction(2) ** (exponent + 1 - bits))          # halves to even


@functools.lru_cache(None)
def coded_element(code, mantissa, scale, width, half):
    if mantissa == 7:
        sign, magnitude = code >> 7, 256 - code if code >> 7 else code
    else:
        sign, magnitude = code >> 7, code & 127
        exponent = magnitude >> mantissa
        magnitude = (magnitude - (exponent - 1 << mantissa)) << exponent - 1 if exponent else magnitude
    value = fractions.Fraction(2) ** ((scale >> 23) - 150) * (scale & 0x7FFFFF | 0x800000) * magnitude
    if value == 0:
        bits, whole = 0, 0
    else:
        whole = rounded(value, 24, -126)
        value = fractions.Fraction(2) ** ((whole >> 23) - 150) * (whole & 0x7FFFFF | 0x800000)
    if width == 4:
        return sign << 31 | whole
    bits = 0 if value == 0 else min(rounded(value, 11, -14), 0x7C00) if half else rounded(value, 8, -126)
    return sign << 15 | bits


def coded(codes, width, mantissa=7, half=0, group_size=16, first_group=None, scales=(0x3F800000,), codes_coder=None, n_groups=None):
    """A block of codes with scales (codes.md). scales: of the groups, until they end. Ranges are not checked, for invalid vectors; the data is that of
    a careless decoder."""
    first_group = group_size if first_group is None else first_group
    n, careful = len(codes), max(group_size, 1)
    n_groups = 1 + max(0, -(-(n - first_group) // careful)) if n_groups is None else n_groups
    numbers = [scales[i % len(scales)] for i in range(n_groups)]
    scale_of = [min(numbers[min((i - first_group) // careful + 1, n_groups - 1)], 0x6E000000) for i in range(n)]
    data = b"".join(coded_element(code, min(max(mantissa, 2), 7), scale, width, half).to_bytes(width, "little") for code, scale in zip(codes, scale_of))
    payload = [("Mantissa", bytes([mantissa])), ("Half", bytes([half])), ("Group_Size", struct.pack("<I", group_size)),
               ("First_Group", struct.pack("<I", first_group))]
    lists = [("Scales, byte %d" % p, bytes(number >> 8 * p & 255 for number in numbers), None) for p in range(4)]
    for name, plane, coder in lists + [("Codes", bytes(codes), codes_coder)]:
        parts = (coder or guess)(plane)
        payload += [("%s: %s" % (name, parts[0][0]), parts[0][1])] + [("%s: %s" % (name, note), data) for note, data in parts[1:]]
    return Block(data, width, 0, 5, payload)


METHOD_LOG, METHOD_SIGNED, METHOD_TABLE = 1, 2, 4


def quantised(symbols, width, method=0, low_bits=0, least=0, step=0, bias=0, floor=0, table=(), scales=(), group_size=None, first_group=None,
              exceptions=None, base=None, coders=None, low=None, high=None):
    """A block of these symbols (quantised.md). scales: the scale code of each group, until they end. exceptions: values by position. coders: of "low",
    "high", "scales low" and "scales high". low, high: lists instead of those of the symbols. Ranges are not checked, for invalid vectors; the data is
    that of a careless decoder."""
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
    return Block(data, width, 0, 2, payload, base)


def element_of(symbol, scale, method, least, step):
    """An F32, by the machine's floats, whose products are exact here; a decoder would use integers."""
    if symbol == 0:
        return bytes(4)
    t, negative = symbol - 1, 0
    if method & METHOD_SIGNED:
        t, negative = divmod(t, 2)
    if method & METHOD_LOG:
        return struct.pack("<I", negative << 31 | sorted([0x800000, scale + (least + t) * step, 0x7F7F0000])[1])
    return struct.pack("<f", (least + t) * struct.unpack("<f", struct.pack("<I", scale))[0])


def altered(block, **parts):
    """The block with parts of its payload replaced, named by their first words (_ for a space): bytes, or a number of the same size."""
    payload, used = [], set()
    for note, data in block.payload:
        for name, new in parts.items():
            if note == name or note.startswith(name.replace("_", " ") + ":"):
                used.add(name)
                data = (new % (1 << 8 * len(data))).to_bytes(len(data), "little") if isinstance(new, int) else new
        payload.append((note, data))
    assert used == set(parts), "no such parts: %s" % (set(parts) - used)
    return Block(block.data, block.width, block.order, block.layout, payload, block.base, block.grouping)


def split(data, width):
    return [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]


def residual_of(x, b, width, order):
    """Section 5.1, the encoder's side."""
    top = 1 << 8 * width - 1
    if order == 0:
        return x
    if order == 2:
        x ^= b & top
        x, b = (x if x < top else x ^ top - 1), b & top - 1
    d = x - b & 2 * top - 1
    return (d << 1 & 2 * top - 1) ^ (2 * top - 1 if d >= top else 0)


def key_of(b, width):
    """The top byte of the element rotated left by one bit."""
    bits = format(b, "0%db" % (8 * width))
    return int((bits[1:] + bits[0])[:8], 2)


def predicted(data, base, width, order=2, thresholds=(), sparse=False, coders=None, masks=None, coded=None, padding=0, natural=0):
    """A block against base (None: without a base, which is not possible with classes). coders: by plane, or by class and plane. masks: a policy.
    coded: the residuals that are stored with Sparse, default those that are not zero. padding: unused bits of the masks."""
    bases = split(base or bytes(len(data)), width)
    r = [residual_of(x, b, width, order) for x, b in zip(split(data, width), bases)]
    keys = [key_of(b, width) for b in bases]
    classes = [[i for i, key in enumerate(keys) if sum(t <= key for t in thresholds) == c] for c in range(len(thresholds) + 1)]
    grouping = len(thresholds) | sparse << 4 | natural << 5
    payload = [("Thresholds", bytes(thresholds))] if thresholds else []
    for c, members in enumerate(classes):
        if sparse and members:
            bits = [int(bool(coded(r[i]) if coded else r[i])) for i in members]
            policy = masks or raw_masks
            dirty = lambda n, nesting, depth: policy(n, nesting, depth) if nesting else (policy(n, nesting, depth), padding)
            parts = encode_mask(bits, 0, dirty)
            payload += [("class %d: %s" % (c, parts[0][0]), parts[0][1])] + parts[1:]
            classes[c] = [i for i, bit in zip(members, bits) if bit]
    payload += [("natural plane %d" % p, bytes(x >> 8 * p & 255 for x in r)) for p in range(natural)]
    for c, members in enumerate(classes):
        for p in range(natural, width) if members else ():
            coder = (coders or {}).get((c, p)) or (coders or {}).get(p, fitted)
            parts = coder(bytes(r[i] >> 8 * p & 255 for i in members))
            name = "class %d, plane %d" % (c, p) if grouping else "plane %d" % p
            payload += [("%s: %s" % (name, parts[0][0]), parts[0][1])] + parts[1:]
    return Block(data, width, order, 1, payload, base, grouping)


def convert(data, conversion):
    """F32 to BF16 (1) or F16 (2), as for runs of Prediction 4 and 5, but unlike a decoder: by searching the nearest number."""
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
        while low < high:                      # the last pattern that is not above
            middle = (low + high + 1) // 2
            low, high = (middle, high) if value(middle, bias, mantissa_bits) <= exact else (low, middle - 1)
        rest = exact - value(low, bias, mantissa_bits)
        half = (value(low + 1, bias, mantissa_bits) - value(low, bias, mantissa_bits)) / 2
        found = min(low + (rest > half or rest == half and low & 1), infinity)
    return (found | sign << exponent_bits + mantissa_bits).to_bytes(2, "little")


# ---- Files ----

DTYPES = ("BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 I4 U4 I2 U2 C128").split()
DTYPE_NUMBERS = {name.encode(): number for number, name in enumerate(DTYPES, 1)}


class Src:
    """A source file. size: that in the FILE section, default the right one; UNKNOWN: none. prefix: Path_Prefix, default the largest."""

    def __init__(self, path=b"", data=b"", tensors=(), kind=0, mode=None, mtime=None, size=None, prefix=None):
        self.path, self.data, self.tensors, self.kind, self.mode, self.mtime = path, bytes(data), list(tensors), kind, mode, mtime
        self.size = len(self.data) if size is None else size
        self.prefix = prefix


class Group:
    """The files of one FILE section. extra: bytes behind them."""

    def __init__(self, *files, extra=b""):
        self.files, self.extra = files, extra


class Section:
    """A section of any other kind."""

    def __init__(self, kind, body=b""):
        self.kind, self.body = kind, body


class T(collections.namedtuple("T", "name dtype shape offset size loss back like prefix suffix")):
    """A tensor entry. loss: Generation, Measure, Error. back, like, prefix, suffix: how to code it; None as prefix or suffix: the longest."""

    def __new__(cls, name, dtype, shape, offset, size, loss=(0, 0, 0), back=0, like=False, prefix=None, suffix=None):
        return super().__new__(cls, name, dtype, tuple(shape), offset, size, loss, back, like, prefix, suffix)


class Run:
    """blocks: in order. segments: (Size, number of the item or file plus 1 or 0, Offset); default one for all bytes, with base as its last two. log2:
    of Block_Size. extra: bytes behind them. between: Sections, by the number of the block behind them."""

    def __init__(self, blocks, segments=None, log2=14, prediction=0, base=(), extra=b"", between=None):
        self.blocks, self.segments, self.log2, self.prediction, self.base = blocks, segments, log2, prediction, base
        self.extra, self.between = extra, between or {}


class Base:
    """A snapshot that is a base; paths: files with it, below vectors."""

    def __init__(self, files, paths):
        contents = sorted(contents_of(files))
        self.paths, self.fingerprint = paths, fingerprint_of_snapshot(items_of(files))
        self.names, self.items = [name for name, _, _ in contents], [data for _, _, data in contents]

    def item(self, name):
        """The item's number in a segment."""
        return self.names.index(name) + 1


class Varint(bytes):
    """A varint, so that a dump can recognise it."""


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
    """How many bytes a and b have in common at their start."""
    n = 0
    while n < min(len(a), len(b), most) and a[n] == b[n]:
        n += 1
    return n


def header_text(f):
    """Section 4.3."""
    first = f.tensors[0].offset if f.tensors else 0
    return b",".join(b'"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
        t.name, t.dtype, b",".join(b"%d" % dim for dim in t.shape), t.offset - first, t.offset - first + t.size) for t in f.tensors)


FIELD = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Builder:
    """Packs the parts of a file. patch: {"header.Compatible": 3, ...}: a field's value, or a function of the right value; bytes replace the field."""

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

    def section(self, owner, kind, body):
        data = join(body)
        head = self.pack(owner, ("Kind", kind), ("Body_Size", 8, len(data)))
        head = self.with_crc(owner, "Head_CRC", head) + self.pack(owner, ("Body_CRC", 4, crc(data)))
        self.add(head + body)
        return data


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
        elif run.prediction == 2:
            pieces.append(header_text(sources[number - 1])[start:start + size])
        elif run.prediction > 3:
            pieces.append(convert(sources[number - 1].data[start:start + 2 * size], run.prediction - 3))
        else:
            pieces.append(sources[number - 1].data[start:start + size])
    return b"".join(pieces)


def check_predictions(blocks, prediction):
    at = 0
    for block in blocks:
        assert block.base is None or block.base == prediction[at:at + len(block.data)], "a block against another base"
        at += len(block.data)


def build(items, metadata=(), patch=None, index=True, trailer=True, base=None, bits=None, extra=b"", entries=None, blks=1, after_blks=()):
    """items: Src (or Group), Section and Run in order. bits: Incompatible, default those that the content needs. extra: bytes behind the metadata.
    entries: a function that changes the list of the index's entries. blks: how many BLKS. after_blks: Sections behind them. Returns the Builder, with
    .files for the manifest."""
    b = Builder(patch)
    items = [Group(item) if isinstance(item, Src) else item for item in items]
    sources = [f for item in items if isinstance(item, Group) for f in item.files]
    header = b.pack("header", ("Magic", bytes.fromhex("954C4D430D0A1A0A")), ("Format_Major", 1, 1), ("Format_Minor", 1, 0), ("Algorithm", 1, 1),
                    ("Reserved", bytes(5)), ("Incompatible", 8, incompatible(items, base) if bits is None else bits), ("Compatible", 8, 0),
                    ("Base_Fingerprint", base.fingerprint if base else bytes(16)), ("Reserved_2", bytes(12)))
    b.add(b.with_crc("header", "Header_CRC", header))
    told, rows, n_files, counts = [], [], 0, {Group: 0, Run: 0, Section: 0}
    for item in items:
        offset, number = len(b.out), counts[type(item)]
        counts[type(item)] += 1
        if isinstance(item, Group):
            body = b.section("files%d" % number, b"FILE", group_body(b, number, item, n_files))
            n_files += len(item.files)
        elif isinstance(item, Section):
            body = b.section("other%d" % number, item.kind, b.pack("other%d" % number, ("Body", item.body)))
        else:
            body, between = b.section("run%d" % number, b"RUN ", run_body(b, number, item, sources, base)), []
            for i, block in enumerate(item.blocks):
                if i in item.between:
                    counts[Section] += 1
                    at = len(b.out)
                    between.append((item.between[i], b.section("other0", item.between[i].kind, [("Body", item.between[i].body)]), len(b.out) - at))
                rows.append(add_block(b, "block%d.%d" % (number, i), i, block))
            told.append((item, body, len(b.out) - offset - sum(size for _, _, size in between)))
            told += between
            continue
        told.append((item, body, len(b.out) - offset))
    blks_offset = len(b.out)
    for _ in range(blks if index else 0):
        b.section("blks", b"BLKS", [part for i, (size, header_crc) in enumerate(rows)
                                    for part in b.pack("row%d" % i, ("Size", 4, size), ("Header_CRC", 4, header_crc))] + b.pack("blks", ("Extra", b"")))
    for section in after_blks:
        told.append((section, b.section("after", section.kind, [("Body", section.body)]), 20 + len(section.body)))
    index_offset = len(b.out)
    if index:
        b.section("index", b"INDX", index_body(b, bytes(b.out[:64]), sources, entries(told) if entries else told, metadata, extra))
    if trailer:
        parts = b.pack("trailer", ("Index_Offset", 8, index_offset), ("Index_Size", 8, len(b.out) - index_offset),
                       ("Total_Size", 8, len(b.out) + 40), ("Format_Major", 1, 1), ("Format_Minor", 1, 0), ("Reserved", 2, 0))
        b.add(b.with_crc("trailer", "Trailer_CRC", parts) + b.pack("trailer", ("End_Magic", bytes.fromhex("944C4D430D0A1A0A"))))
    assert b.used == set(b.patch), "patches without effect: %s" % (set(b.patch) - b.used)
    b.files, b.metadata, b.base, b.blks_offset, b.index_offset = sources, metadata, base, blks_offset, index_offset
    return b


def incompatible(items, base):
    """The bits that the content needs."""
    runs = [item for item in items if isinstance(item, Run)]
    return (base is not None) | any(run.prediction > 2 for run in runs) << 1 | any(block.layout == 2 for run in runs for block in run.blocks) << 2 \
        | sum(any(block.layout == layout for run in runs for block in run.blocks) << layout for layout in (3, 4, 5))


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
    """reference: the tensor that Back refers to. end: that of the tensor before."""
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
    body = b.pack(owner, ("Run_Size", "v", size), ("Block_Size", "v", 1 << run.log2), ("Prediction", 1, run.prediction))
    if run.prediction:
        body += b.pack(owner, ("N_Segments", "v", len(segments)))
        last = -1
        for i, (length, item, start) in enumerate(segments):
            own, reference = "segment%d.%d" % (number, i), 0
            if item:
                reference = (zigzag(item - 1 - last - 1) << 1 | (start != 0)) + 1
                last = item - 1
            body += b.pack(own, ("Size", "v", length), ("Reference", "v", reference))
            if item and start:
                body += b.pack(own, ("Offset", "v", start))
    return body + b.pack(owner, ("Extra", run.extra))


def add_block(b, owner, number, block):
    """Adds a block; returns its row of BLKS. number: of the block in its run."""
    payload = join(block.payload)
    coding = block.order | (block.base is not None) << 2 | block.layout << 5
    head = b.pack(owner, ("Sync", 1, 0xB2), ("Width", 1, block.width), ("Coding", 1, coding), ("Grouping", 1, block.grouping),
                  ("N_Elements", 4, len(block.data) // block.width), ("Payload_Size", 4, len(payload)), ("Content_CRC", 4, crc(block.data)),
                  ("Payload_CRC", 4, 0 if block.base is None else crc(payload)))
    head = b.with_crc(owner, "Header_CRC", head, struct.pack("<I", b.value(owner + ".Number", number)))
    b.add(head + block.payload)
    return len(join(head)) + len(payload), struct.unpack("<I", join(head)[20:24])[0]


def contents_of(files):
    """Names, fingerprints and bytes of the snapshot's items."""
    for f in files:
        for t in f.tensors:
            data = f.data[t.offset:t.offset + t.size]
            yield t.name, fingerprint_of_tensor(A_TENSOR, t.dtype, t.shape, data), data
        if not f.tensors:
            yield f.path, fingerprint_of_tensor(A_DIRECTORY if f.kind else A_FILE, b"U8", (len(f.data),), f.data), f.data


def items_of(files):
    return ((name, fingerprint) for name, fingerprint, _ in contents_of(files))


def sha256(data):
    return hashlib.sha256(data).digest()


def hashes_of(f):
    """hash.md: the hashes of each tensor, and of the other bytes of the file."""
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


def index_body(b, header, files, told, metadata, extra):
    body = b.pack("index", ("Header", header), ("Snapshot_Fingerprint", fingerprint_of_snapshot(items_of(files))), ("N_Sections", 4, len(told)),
                  ("N_Metadata", 4, len(metadata)))
    for i, (what, copy, stored_size) in enumerate(told):
        owner = "entry%d" % i
        kind = b"FILE" if isinstance(what, Group) else b"RUN " if isinstance(what, Run) else what.kind
        body += b.pack(owner, ("Kind", kind), ("Stored_Size", "v", stored_size))
        if not kind[:1].islower():
            body += b.pack(owner, ("Body_Size", "v", len(copy)), ("Body", copy))
        for j, f in enumerate(what.files if isinstance(what, Group) else ()):
            owner = "entry%d.%d" % (i, j) if j else owner
            body += b.pack(owner, ("File_Size", 8, len(f.data))) if f.size == UNKNOWN else []
            body += b.pack(owner, ("File_CRC", 4, crc(f.data)))
            for k, (_, fingerprint) in enumerate(items_of([f])):
                body += b.pack(owner, ("Fingerprint%d" % k, fingerprint))
    for i, (key, value) in enumerate(metadata):
        body += b.pack("metadata%d" % i, ("Key_Size", 4, len(key)), ("Value_Size", 4, len(value)), ("Key", key), ("Value", value))
    return body + b.pack("index", ("Extra", extra))


def one(*blocks, **options):
    """A snapshot of one nameless file; each block has its own run."""
    return build([Src(data=b"".join(block.data for block in blocks))] + [Run([block]) for block in blocks], **options)


# ---- Content ----

def even(symbols, length=None):
    """All symbols of the same length."""
    length = length or (len(symbols) - 1).bit_length()
    return {s: length for s in symbols}


def merged(lengths, more):
    lengths = dict(lengths)
    lengths.update(more)
    return lengths


def draw(random, lengths, n, others=()):
    """n symbols, with frequencies that fit their code lengths; `others` about once in 32."""
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


def pack(values, width):
    return b"".join(value.to_bytes(width, "little") for value in values)


def element(random, key, width):
    """An element with that key, and any sign and mantissa."""
    if width == 1:
        return key >> 1 | (key & 1) << 7
    low = 8 * width - 9
    return random.below(2) << 8 * width - 1 | key << low | random.below(1 << low)


def step(random, b, width):
    """b or, sometimes, a value near it."""
    return b + random.below(7) - 3 & (1 << 8 * width) - 1 if random.below(4) == 0 else b


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
    """Elements like weights; change: elements that these must be near to."""
    if change is not None:
        return pack([step(random, b, width) for b in split(change, width)], width)
    return pack([element(random, 110 + random.below(12), width) for _ in range(n)], width)


def delta_run(src, segments, base, width=2, log2=14, **options):
    """One run for all of src, in blocks that the segments predict. options: those of predicted."""
    run = Run([], [(s + (0, 0))[:3] for s in segments], log2, 1)
    prediction = prediction_of(run, run.segments, [], base)
    run.blocks = [predicted(src.data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options)
                  for i in range(0, len(src.data), 1 << log2)]
    return run


def own_run(data, segments, conversion=0, sources=(), log2=14, width=2, **options):
    """A run of Prediction 3 (4, 5: conversion 1, 2) for data, in blocks that the segments predict."""
    run = Run([], segments, log2, 3 + conversion)
    prediction = prediction_of(run, segments, sources, None)
    run.blocks = [predicted(data[i:i + (1 << log2)], prediction[i:i + (1 << log2)], width, **options) for i in range(0, len(data), 1 << log2)]
    return run


def safetensors_of(tensors, data, metadata=b"", tail=b""):
    """A file whose header is the header text in braces."""
    start = 9 + len(metadata) + len(header_text(Src(data=data, tensors=tensors))) + 1
    moved = [t._replace(offset=t.offset + start) for t in tensors]
    header = b"{" + metadata + header_text(Src(tensors=moved)) + b"}"
    return Src(data=struct.pack("<Q", len(header)) + header + data + tail, tensors=moved)


def text_run(f, number, front=9, log2=14, **options):
    """A run for the header of such a file, up to its first tensor, predicted by the text of file number - 1."""
    size = f.tensors[0].offset
    segments = [(front, 0, 0), (size - front - 1, number, 0), (1, 0, 0)]
    prediction = prediction_of(Run([], prediction=2), segments, [f] * number, None)
    return Run([predicted(f.data[i:min(size, i + (1 << log2))], prediction[i:i + (1 << log2)], 1, **dict({"order": 1}, **options))
                for i in range(0, size, 1 << log2)], segments, log2, 2)


def some(random, n, choices):
    return [random.pick(choices) for _ in range(n)]


def moments(random, n, width):
    """Positive floats of some orders of magnitude."""
    return pack([element(random, 84 + random.below(6), width) % (1 << 8 * width - 1) for _ in range(n)], width)


def flip_bit(data, at, bit):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


def trimmed(parts):
    """The parts without their last byte."""
    return [("bytes", join(parts)[:-1])]


# ---- Annotated hexdump ----

HEADINGS = {"Magic": "Header", "Kind": "Section_Header", "N_Files": "FILE body", "Run_Size": "RUN body", "Sync": "Block", "Header": "INDX body",
            "Index_Offset": "Trailer"}
TEXTS = ("Kind", "Path_Rest", "Middle", "Dtype_String", "Key", "Value")
SIGNED = ("Min", "Bias")


def dump(b):
    """A dump of a Builder's file: offset, bytes, field, value."""
    lines, at = [], 0
    for i, (note, data) in enumerate(b.notes):
        if note in HEADINGS and b.notes[i + 1][0] != "Stored_Size":            # an entry of the index
            lines.append("      -- %s --" % HEADINGS[note])
        text = note
        if note in TEXTS:
            text += ' "%s"' % data.decode()
        elif isinstance(data, Varint):
            text += " %d" % sum((byte & 127) << 7 * i for i, byte in enumerate(data))
        elif len(data) in FIELD and note[0].isupper() and " " not in note and not any(word in note for word in ("CRC", "Magic", "Body", "Low")):
            text += " %d" % int.from_bytes(data, "little", signed=note in SIGNED)
        if note in ("Body", "Header"):
            lines.append("%04X  (%d bytes)%s%s" % (at, len(data), " " * (49 - len("(%d bytes)" % len(data))), text))
        else:
            for i in range(0, len(data), 16):
                lines.append("%04X  %-47s  %s" % (at + i, data[i:i + 16].hex(" ").upper(), text if i == 0 else ""))
        at += len(data)
    return "\n".join(("    " + line).rstrip() for line in lines)
