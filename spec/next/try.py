#!/usr/bin/env python3
"""A minimal encoder by the page, and random tests of lmc_decode.py with it. To be deleted. Usage: try.py [SEED [N]]"""
import hashlib
import io
import os
import random
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hashes  # noqa: E402
import lmc_decode as d  # noqa: E402

crc = d.crc32c
DT = {name: i for i, name in enumerate(d.DTYPES) if i}


def v(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def section(kind, body):
    head = struct.pack("<4sQ", kind, len(body))
    return head + struct.pack("<II", crc(head), crc(body)) + body


def record(tag, data):
    return v(tag) + v(len(data)) + data


# ---- the page's own pseudo code ----

def pseudo():
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lmc-format.md")).read()
    blocks, current = [], []
    for line in text.split("\n"):
        if line.startswith("     ") or (not line.strip() and current):
            current.append(line[5:])
        else:
            if current and any(one.startswith("def ") for one in current):
                blocks.append("\n".join(current))
            current = []
    space = {}
    for block in blocks:
        start = block.index("def ")
        exec(block[start:], space)
    return space


class Refused(Exception):
    pass


class Leaf:
    def __init__(self, symbol, length, start):
        self.symbol, self.length, self.start = symbol, length, start


def leaves_of(tree):
    return [Leaf(s, length, start) for s, length, start in zip(tree.symbols, tree.lengths, tree.starts)]


def by_the_page(space, payload, what, *arguments):
    at = 0

    def take(k):
        nonlocal at
        if at + k > len(payload):
            raise Refused
        at += k
        return payload[at - k:at]

    def refuse(_):
        raise Refused

    def bits_of(data, n):
        bits = [byte >> i & 1 for byte in data for i in range(8)]
        if any(bits[n:]):
            raise Refused
        return bits[:n]

    space.update(take=take, refuse=refuse, bits_of=bits_of, FROZEN=[leaves_of(t) for t in d.FROZEN_TREES])
    return space[what](*arguments), at


# ---- lists ----

def bits_to_bytes(bits):
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        out[i >> 3] |= bit << (i & 7)
    return bytes(out)


def put_mask(bits, nesting, of_class, rng):
    n = len(bits)
    if n < 256 or nesting == 2:
        return bits_to_bytes(bits)
    mode = rng.choice([0, rng.randint(1, 20), rng.randint(1, 20)] + [rng.randint(21, 64)] * of_class)
    if mode == 0:
        return b"\0" + bits_to_bytes(bits)
    if mode <= 20:
        packed = bits_to_bytes([bit ^ (mode - 1 & 1) for bit in bits])
        if (mode - 1) & 1 and n % 8:           # the unused bits are complemented, too, and zero after it is undone
            packed = packed[:-1] + bytes([packed[-1] | 0xFF << n % 8 & 0xFF])
        return bytes([mode]) + put_node(d.FROZEN_TREES[mode - 1 >> 1], 0, 0, packed, nesting + 1, rng)
    shift, polarity = mode - 21 >> 1, mode - 21 & 1
    places = [i for i, bit in enumerate(bits) if bit != polarity]
    if not places:
        return b"\0" + bits_to_bytes(bits)
    gaps = [b - a - 1 for a, b in zip([-1] + places, places)]
    low = [gap >> i & 1 for gap in gaps for i in range(shift)]
    quotients = [bit for gap in gaps for bit in [0] * (gap >> shift) + [1]]
    return bytes([mode]) + struct.pack("<I", len(places))[:3] + bits_to_bytes(low) + bits_to_bytes(quotients)


def put_node(tree, depth, start, data, nesting, rng):
    if not data:
        return b""
    end = start + (1 << 15 - depth)
    own = [i for i, s in enumerate(tree.starts) if start <= s < end]
    symbols = [tree.symbols[i] for i in own]
    if len(own) == 1:
        return bytes(data) if symbols[0] == 256 else b""
    lengths = {tree.lengths[i] for i in own}
    extra = tree.lengths[own[0]] - depth
    index = {s: i for i, s in enumerate(symbols)}
    escape = index.get(256)
    if escape is None and len(lengths) == 1 and 2 <= extra <= 6:
        return b"".join(bits_to_bytes([index[byte] >> (extra - 1 - j) & 1 for byte in data]) for j in range(extra))
    middle = start + (1 << 14 - depth)
    bits = [int(tree.starts[own[index.get(byte, escape)]] >= middle) for byte in data]
    left = bytes(b for b, bit in zip(data, bits) if not bit)
    right = bytes(b for b, bit in zip(data, bits) if bit)
    return (put_mask(bits, nesting, False, rng) + put_node(tree, depth + 1, start, left, nesting, rng)
            + put_node(tree, depth + 1, middle, right, nesting, rng))


def put_list(data, rng):
    """Any manner that can hold these bytes."""
    if len(set(data)) == 1 and rng.random() < .8:
        return b"\1" + bytes(data[:1])
    if rng.random() < .2:
        return b"\0" + bytes(data)
    present = sorted(set(data), key=lambda byte: (-data.count(byte), byte))
    has_escape = rng.random() < .5
    kept = present[:rng.randint(1, len(present))] if has_escape else present
    n = len(kept) + has_escape
    if n < 2 or n > 256:
        return b"\0" + bytes(data)
    lengths = [0]
    while len(lengths) < n:                    # split a leaf
        i = rng.choice([i for i, length in enumerate(lengths) if length < 15]) if rng.random() < .5 else lengths.index(min(lengths))
        lengths[i:i + 1] = [lengths[i] + 1] * 2
    lengths.sort()
    code = dict(zip(kept, lengths))
    first, last = min(kept), max(kept)
    fields = [code.get(s, 0) for s in range(first, last + 1)] + lengths[-1:] * has_escape
    fields += [0] * (len(fields) % 2)
    tree = d.Tree(sorted((length, s) for s, length in code.items()) + [(lengths[-1], 256)] * has_escape)
    packed = bytes(a | b << 4 for a, b in zip(fields[::2], fields[1::2]))
    return bytes([3 if has_escape else 2, first, last - first]) + packed + put_node(tree, 0, 0, data, 0, rng)


# ---- blocks ----

PSEUDO = pseudo()


def elements(data, w):
    return [int.from_bytes(data[i:i + w], "little") for i in range(0, len(data), w)]


def put_block(data, base, number, can_group, rng, quantised=False):
    size = len(data)
    widths = [w for w in (1, 2, 4, 8) if size % w == 0]
    w = rng.choice(widths)
    n, predicted = size // w, base is not None and rng.random() < .9
    payload, order, grouping, layout = data, 0, 0, 0
    if rng.random() < .9:
        layout, order = 1, rng.choice([1, 2] if predicted else [0, 1, 2])
        b = elements(base, w) if predicted else [0] * n
        r = [PSEUDO["residual"](e, p, 8 * w, order) for e, p in zip(elements(data, w), b)]
        assert [PSEUDO["element"](x, p, 8 * w, order) for x, p in zip(r, b)] == elements(data, w)
        if predicted and can_group and rng.random() < .7:
            C, sparse = rng.choice([1, 2, 3, 16]), rng.randint(0, 1)
            grouping = C - 1 | sparse << 4
        planes = lambda some: b"".join(put_list(bytes(x >> 8 * p & 255 for x in some), rng) for p in range(w) if some)  # noqa: E731
        if grouping:
            thresholds = sorted(rng.sample(range(1, 256), C - 1))
            keys = [(p >> (8 * w - 9)) & 255 if w > 1 else (p << 1 | p >> 7) & 255 for p in b]
            classes = [sum(t <= key for t in thresholds) for key in keys]
            groups = [[x for x, c in zip(r, classes) if c == one] for one in range(C)]
            payload = bytes(thresholds)
            if sparse:
                marks = [[int(x != 0 or rng.random() < .1) for x in group] for group in groups]
                payload += b"".join(put_mask(mark, 0, True, rng) for mark in marks if mark)
                groups = [[x for x, bit in zip(group, mark) if bit] for group, mark in zip(groups, marks)]
            payload += b"".join(planes(group) for group in groups)
        else:
            payload = planes(r)
        if len(payload) >= size:
            payload, order, grouping, layout, predicted = data, 0, 0, 0, False
    else:
        predicted = False
    header = struct.pack("<BBBBIIII", 0xB2, w, order | predicted << 2 | layout << 5, grouping, n, len(payload), crc(data),
                         crc(payload) if predicted else 0)
    header += struct.pack("<I", crc(struct.pack("<I", number) + header))
    return header + payload


# ---- fingerprints ----

def fingerprint(kind, data, dtype, shape, size):
    sums = b""
    for i in range(0, len(data), 262144):
        chunk = data[i:i + 262144]
        total = sum(elements(chunk + bytes(-len(chunk) % 8), 8)) % (1 << 64)
        sums += struct.pack("<IQ", crc(chunk), total)
    return hashlib.sha256(b"LMC tensor 3\0" + bytes([kind]) + sums + bytes([len(dtype)]) + dtype + bytes([len(shape)])
                          + b"".join(struct.pack("<Q", s) for s in shape) + struct.pack("<Q", size)).digest()[:16]


class T:
    def __init__(self, name, dtype, shape, offset, size, loss=None):
        self.name, self.dtype, self.shape, self.offset, self.size, self.loss = name, dtype, shape, offset, size, loss


class F:
    def __init__(self, path, data=b"", tensors=(), kind=0, mode=None, mtime=None, unknown=False):
        self.path, self.data, self.tensors, self.kind, self.mode, self.mtime, self.unknown = path, data, list(tensors), kind, mode, mtime, unknown

    def prints(self):
        if self.kind:
            return [(self.path, b"", fingerprint(2, b"", b"U8", (0,), 0))]
        if not self.tensors:
            return [(self.path, self.data, fingerprint(1, self.data, b"U8", (len(self.data),), len(self.data)))]
        cut = [(t, self.data[t.offset:t.offset + t.size]) for t in self.tensors]
        return [(t.name, part, fingerprint(0, part, t.dtype, t.shape, t.size)) for t, part in cut]


def items_of(files):
    return sorted((item for f in files for item in f.prints()), key=lambda item: (item[0], item[2]))


def snapshot_print(files):
    return hashlib.sha256(b"LMC snapshot 3\0" + b"".join(struct.pack("<I", len(n)) + n + p for n, _, p in items_of(files))).digest()[:16]


def header_text(f):
    first = f.tensors[0].offset if f.tensors else 0
    return b",".join(b'"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' % (
        t.name, t.dtype, b",".join(b"%d" % s for s in t.shape), t.offset - first, t.offset - first + t.size) for t in f.tensors)


# ---- FILE, RUN ----

def file_body(files, rng):
    out, path_before, entries = v(len(files)), b"", []
    for f in files:
        prefix = 0
        while prefix < min(255, len(path_before), len(f.path)) and path_before[prefix] == f.path[prefix]:
            prefix += 1
        form = f.kind | (f.mode is not None) << 1 | (f.mtime is not None) << 2 | f.unknown << 3
        out += bytes([form, prefix]) + v(len(f.path) - prefix) + f.path[prefix:]
        if not f.kind and not f.unknown:
            out += v(len(f.data))
        if f.mode is not None:
            out += v(f.mode)
        if f.mtime is not None:
            out += struct.pack("<qI", *f.mtime)
        if not f.kind and not f.unknown:
            out += v(len(f.tensors))
        end = 0
        for t in f.tensors:
            back = rng.randint(0, min(len(entries), 3))
            like = entries[-back] if back else None
            prefix = suffix = 0
            if like:
                room = min(len(like.name), len(t.name))
                while prefix < min(room, 255) and like.name[prefix] == t.name[prefix]:
                    prefix += 1
                while suffix < min(room - prefix, 255) and like.name[-1 - suffix] == t.name[-1 - suffix]:
                    suffix += 1
            is_like = like and (like.dtype, like.shape, like.size) == (t.dtype, t.shape, t.size)
            gap = t.offset - end
            out += bytes([bool(is_like) | (gap > 0) << 1 | (t.loss is not None) << 2]) + v(back)
            if like:
                out += bytes([prefix, suffix])
            middle = t.name[prefix:len(t.name) - suffix]
            out += v(len(middle)) + middle + (v(gap) if gap else b"")
            if not is_like:
                number = DT.get(t.dtype, 0)
                out += bytes([number]) + (b"" if number else bytes([len(t.dtype)]) + t.dtype)
                out += bytes([len(t.shape)]) + b"".join(map(v, t.shape)) + (b"" if number else v(t.size))
            if t.loss:
                out += struct.pack("<BBI", *t.loss)
            end = t.offset + t.size
            entries.append(t)
        path_before = f.path
    if rng.random() < .2:
        out += record(4, b"\0\1k\1v") + record(128, b"xyz")
    return out


def zigzag(x):
    return 2 * x if x >= 0 else -2 * x - 1


def run_body(size, block_size, prediction, segments):
    out = v(size) + v(block_size) + bytes([prediction])
    if prediction:
        out += v(len(segments))
        P = -1
        for length, number, offset in segments:
            out += v(length)
            if number is None:
                out += v(0)
            else:
                out += v((zigzag(number - P - 1) << 1 | (offset > 0)) + 1) + (v(offset) if offset else b"")
                P = number
    return out


def half(bits):
    x, = struct.unpack("<f", struct.pack("<I", bits))
    if x != x:
        return bits >> 16 & 0x8000 | 0x7C00 | 0x200 | bits >> 13 & 0x3FF
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return bits >> 16 & 0x8000 | 0x7C00


def brain(bits):
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    low, high = bits & 0xFFFF, bits >> 16
    return high + (low > 0x8000 or (low == 0x8000 and high & 1))


class Builder:
    """Random groups of files; every run and block in a random manner."""

    def __init__(self, groups, rng, base=None, own=True, mangled=0.0, only_base=False, compat=0, minor=0):
        self.only_base = only_base
        self.rng, self.base, self.groups, self.mangled = rng, base, groups, mangled
        self.files = [f for group in groups for f in group]
        incompatible = (base is not None) | own << 1
        header = bytes.fromhex("954C4D430D0A1A0A") + bytes([1, minor, 1]) + bytes(5) + struct.pack("<QQ", incompatible, compat)
        header += (snapshot_print(base) if base is not None else bytes(16)) + bytes(12)
        header += struct.pack("<I", crc(header))
        self.out, self.entries, self.rows = bytearray(header), [], b""
        self.can_group = incompatible & 3 != 0
        self.place, at = {}, 0
        self.plain = []                        # ranges of runs of Prediction 0 to 2
        self.done = 0
        n_files = 0
        self.runs = 0
        for group in groups:
            body = self.mangle(file_body(group, rng))
            s = section(b"FILE", body)
            self.out += s
            entry = b"FILE" + v(len(s)) + v(len(body)) + body
            for f in group:
                self.place[id(f)] = at
                at += len(f.data)
                entry += (struct.pack("<Q", len(f.data)) if f.unknown else b"") + struct.pack("<I", crc(f.data))
                entry += b"".join(p for _, _, p in f.prints())
            self.entries.append(entry)
            n_files += len(group)
            self.known = self.files[:n_files]
            self.stream = b"".join(f.data for f in group)
            self.stream_start = self.done
            left = 0
            while left < len(self.stream):
                if rng.random() < .1:
                    self.ancillary(rng.choice([b"note", b"abcD", b"zz Z", b"hash"]))
                size = rng.randint(1, len(self.stream) - left) if rng.random() < .5 else len(self.stream) - left
                self.run(left, size)
                left += size
        if rng.random() < .2:
            self.ancillary(b"last")

    def mangle(self, body):
        out, rng = bytearray(body), self.rng
        if rng.random() < self.mangled and out:
            for _ in range(rng.choice([1, 1, 2])):
                i = rng.randrange(min(len(out), rng.choice([8, 100, 1 << 30])))
                if rng.random() < .7:
                    out[i] = rng.choice([0, 1, 2, 127, 128, 255, out[i] ^ 1 << rng.randint(0, 7), rng.randint(0, 255)])
                elif rng.random() < .5:
                    del out[i]
                else:
                    out[i:i] = bytes([rng.randint(0, 255)] * rng.choice([1, 9]))
                if not out:
                    break
        return bytes(out)

    def mangle_block(self, block, number):
        if self.rng.random() >= self.mangled:
            return block
        out = bytearray(block)
        payload = out[24:] if self.rng.random() < .4 else self.mangle(out[24:])
        out[24:] = payload
        struct.pack_into("<I", out, 8, len(payload))
        if len(payload) == len(block) - 24 == 0 or self.rng.random() < .3:
            i = self.rng.randrange(1, 12)
            out[i] = self.rng.choice([0, 1, 2, 4, 8, 5, 6, out[i] ^ 1 << self.rng.randint(0, 7)])
        if out[2] & 4:
            struct.pack_into("<I", out, 16, crc(payload))
        struct.pack_into("<I", out, 20, crc(struct.pack("<I", number) + out[:20]))
        return bytes(out)

    def finish(self, metadata=(), with_hash=False, index_records=b""):
        rng = self.rng
        if with_hash:
            self.hash_section(metadata)
        self.out += section(b"BLKS", self.rows)
        metadata = sorted(metadata)
        body = bytes(self.out[:64]) + snapshot_print(self.files) + struct.pack("<II", len(self.entries), len(metadata)) + b"".join(self.entries)
        body += b"".join(struct.pack("<II", len(k), len(x)) + k + x for k, x in metadata)
        body += index_records or (record(2, b"q") if rng.random() < .2 else b"")
        offset, s = len(self.out), section(b"INDX", body)
        self.out += s
        trailer = struct.pack("<QQQBBH", offset, len(s), offset + len(s) + 40, 1, 0, 0)
        self.out += trailer + struct.pack("<I", crc(trailer)) + bytes.fromhex("944C4D430D0A1A0A")
        return bytes(self.out)

    def hash_section(self, metadata):
        class S:
            pass
        s = S()
        s.files, s.metadata = [], sorted(metadata)
        for f in self.files:
            file = d.File(f.path, f.kind, len(f.data))
            file.data, file.mode = f.data, f.mode
            file.mtime = None if f.mtime is None else f.mtime[0] * 10**9 + f.mtime[1]
            file.set_tensors([d.Tensor(t.name, t.dtype, t.shape, t.offset, t.size, t.loss or (0, 0, 0)) for t in f.tensors])
            s.files.append(file)
        found = [list(hashes.hashes_of(file)) for file in s.files]
        self.ancillary(b"hash", hashes.SHA256_HASHES + hashes.hash_snapshot(s, found) + b"".join(map(b"".join, found)))

    def ancillary(self, kind, body=None):
        s = section(kind, self.rng.randbytes(self.rng.randint(0, 20)) if body is None else body)
        self.out += s
        self.entries.append(kind + v(len(s)))

    def run(self, at, size):
        rng, start = self.rng, self.stream_start + at
        prediction = 1 if self.only_base else rng.choice([0, 1, 2, 3, 4, 5]) if self.can_group else rng.choice([0, 2])
        if prediction == 1 and self.base is None or prediction >= 3 and not self.out[16] & 2 or prediction >= 4 and size % 2:
            prediction = 0
        block_size = 1 << rng.choice([14, 14, 15, 22])
        segments, base, total = [], b"", 0
        items = items_of(self.base) if self.base is not None else []
        while prediction and total < size:
            step = 2 if prediction >= 4 else 1
            length = min(size - total, rng.choice([2, rng.randint(1, 50) * 2, size, size]))
            choices = [(i, len(item[1])) for i, item in enumerate(items)] if prediction == 1 else [
                (i, len(header_text(f)) if prediction == 2 else len(f.data)) for i, f in enumerate(self.known)]
            number, room = rng.choice(choices or [(None, 0)])
            offset, ok = 0, room >= length * step and rng.random() < .9
            if ok:
                offset = rng.choice([0, rng.randint(0, room - length * step)])
                if prediction >= 3:
                    first = self.place[id(self.known[number])] + offset
                    ok = all(any(a <= x < b for a, b in self.plain) for x in self.corners(first, first + length * step))
            if not ok:
                segments.append((length, None, 0))
                base += bytes(length)
            else:
                segments.append((length, number, offset))
                source = items[number][1] if prediction == 1 else header_text(self.known[number]) if prediction == 2 else self.known[number].data
                part = source[offset:offset + length * step]
                base += b"".join(struct.pack("<H", (brain if prediction == 4 else half)(x)) for x in elements(part, 4)) if step == 2 else part
            total += length
        body = self.mangle(run_body(size, block_size, prediction, segments) + (record(6, b"zz") if rng.random() < .1 else b""))
        blocks = b""
        for number in range((size - 1) // block_size + 1):
            first = number * block_size
            data = self.stream[at + first:at + min(size, first + block_size)]
            block = self.mangle_block(put_block(data, base[first:first + len(data)] if prediction else None, number, self.can_group, rng), number)
            self.rows += struct.pack("<I", len(block)) + block[20:24]
            blocks += block
        s = section(b"RUN ", body)
        self.out += s + blocks
        self.entries.append(b"RUN " + v(len(s) + len(blocks)) + v(len(body)) + body)
        if prediction < 3:
            self.plain.append((start, start + size))
        self.done = start + size

    def corners(self, first, end):
        """Places that show whether all of it lies in plain runs, before this one."""
        return [first, end - 1] + [x for a, b in self.plain for x in (a, b) if first <= x < end] + ([end - 1] if end <= self.done else [self.done])


# ---- random snapshots ----

def random_bytes(size, rng):
    kind = rng.randint(0, 3)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return bytes([rng.randint(0, 255)]) * size
    if kind == 2:
        return bytes(min(255, int(rng.expovariate(.2))) for _ in range(size))
    return bytes(rng.choices([0, 1, 2, 255], [90, 5, 3, 2], k=size))


def change(data, rng):
    out = bytearray(data)
    for _ in range(max(1, len(out) // rng.choice([2, 50, 1000]))):
        if out:
            i = rng.randrange(len(out))
            out[i] = (out[i] + rng.choice([1, 255, 7])) & 255
    return bytes(out)


def random_file(path, rng, names):
    size = rng.choice([0, 1, rng.randint(2, 300), rng.randint(2, 3000), rng.randint(16000, 40000)])
    tensors, at = [], 0
    if rng.random() < .8:
        while at < size and len(tensors) < 6:
            at += rng.choice([0, 0, 0, rng.randint(0, 20)])
            dtype = rng.choice([b"F32", b"BF16", b"U8", b"I4", b"U2", b"C128", b"weird", b"F16"])
            bits = d.DTYPE_BITS.get(dtype, 8)
            count = rng.randint(0, max(0, (size - at) * 8 // bits))
            count -= count % (8 // bits if bits < 8 else 1)
            shape = rng.choice([(count,), (1, count), (count, 1, 1)])
            length = count * bits // 8
            if at + length > size:
                break
            name = b"layer.%d.%s" % (names[0] // 3, rng.choice([b"weight", b"bias", b"w%d" % names[0]]))
            names[0] += 1
            if name not in [t.name for t in tensors]:
                tensors.append(T(name, dtype, shape, at, length, rng.choice([None, None, (1, 2, 77)])))
                at += length
    data = random_bytes(size, rng)
    f = F(path, data, tensors)
    if tensors and rng.random() < .5:
        text = header_text(f)[:tensors[0].offset or 0]
        f.data = text + data[len(text):]
    return f


def random_groups(rng):
    names = [0]
    if rng.random() < .2:
        f = random_file(b"", rng, names)
        if rng.random() < .2:
            f = F(b"", kind=1)
        elif rng.random() < .2:
            f = F(b"", f.data, unknown=True)
        return [[f]]
    groups, i = [], 0
    for _ in range(rng.randint(1, 3)):
        group = []
        if rng.random() < .2:
            group = [F(b"u%d" % i, random_bytes(rng.randint(0, 20000), rng), unknown=True)]
            i += 1
        else:
            for _ in range(rng.randint(1, 4)):
                path = b"dir/%d" % i if rng.random() < .5 else b"f%d" % i
                i += 1
                group.append(F(path, kind=1) if rng.random() < .15 else random_file(path, rng, names))
        for f in group:
            if rng.random() < .3:
                f.mode = 0o644
            if rng.random() < .3:
                f.mtime = (rng.randint(-5, 1 << 40), rng.randint(0, 999999999))
        groups.append(group)
    return groups


def changed_groups(groups, rng):
    return [[F(f.path, change(f.data, rng) if rng.random() < .8 else f.data, f.tensors, f.kind, f.mode, f.mtime, f.unknown) for f in group]
            for group in groups]


class Pipe(io.RawIOBase):
    def __init__(self, data):
        self.inner = io.BytesIO(data)

    def readable(self):
        return True

    def seekable(self):
        return False

    def read(self, n=-1):
        return self.inner.read(min(n, 777))


def same(snapshot, builder):
    assert len(snapshot.files) == len(builder.files)
    for got, f in zip(snapshot.files, builder.files):
        assert (got.path, bytes(got.data), got.kind, got.mode) == (f.path, f.data, f.kind, f.mode), f.path
        assert got.mtime == (None if f.mtime is None else f.mtime[0] * 10**9 + f.mtime[1])
        assert [(t.name, t.dtype, t.shape, t.offset, t.size, t.loss) for t in got.tensors] == [
            (t.name, t.dtype, t.shape, t.offset, t.size, t.loss or (0, 0, 0)) for t in f.tensors]
    assert snapshot.fingerprint == snapshot_print(builder.files)


def read_all(data, bases=(), rng=None):
    reader = d.Reader(io.BytesIO(data), bases)
    out = []
    for file in reader.files:
        got = reader.read(file, 0, file.size)
        if rng and file.size:
            a = rng.randrange(file.size)
            b = rng.randint(a, file.size)
            assert reader.read(file, a, b - a) == got[a:b]
        out.append(bytes(got))
        for tensor in file.tensors:
            assert reader.read_tensor(file, tensor) == got[tensor.offset:tensor.end]
    return out


def repair(data):
    """All CRCs of sections, header and trailer, as far as the walk goes."""
    out = bytearray(data)
    struct.pack_into("<I", out, 60, crc(out[:60]))
    at = 64
    number = 0
    while at + 24 <= len(out):
        if out[at] == 0xB2:
            size = struct.unpack_from("<I", out, at + 8)[0]
            if out[at + 2] & 4:
                struct.pack_into("<I", out, at + 16, crc(out[at + 24:at + 24 + size]))
            struct.pack_into("<I", out, at + 20, crc(struct.pack("<I", number) + out[at:at + 20]))
            at, number = at + 24 + size, number + 1
            continue
        kind, size = struct.unpack_from("<4sQ", out, at)
        if not re.fullmatch(rb"[A-Za-z][A-Za-z0-9 ]{3}", kind) or at + 20 + size > len(out):
            break
        struct.pack_into("<I", out, at + 12, crc(out[at:at + 12]))
        struct.pack_into("<I", out, at + 16, crc(out[at + 20:at + 20 + size]))
        at, number = at + 20 + size, 0
    if at + 40 <= len(out):
        struct.pack_into("<I", out, len(out) - 12, crc(out[len(out) - 40:len(out) - 12]))
    return bytes(out)


def corrupt(data, rng):
    out = bytearray(data)
    how = rng.randint(0, 4)
    for _ in range(rng.choice([1, 1, 2, 5])):
        i = rng.randrange(len(out))
        if how == 0:
            out[i] ^= 1 << rng.randint(0, 7)
        elif how == 1:
            out[i] = rng.choice([0, 255, 1, 128, rng.randint(0, 255)])
        elif how == 2:
            del out[i:i + rng.choice([1, 2, 40])]
        elif how == 3:
            out[i:i] = rng.randbytes(rng.choice([1, 4, 24]))
        else:
            return bytes(out[:i])
        if not out:
            return b""
    return repair(out) if rng.random() < .7 and len(out) > 70 else bytes(out)


def example():
    """example_stored.lmc of section 1.1."""
    class Fixed(random.Random):
        def random(self):
            return .99

    w = T(b"w", b"BF16", (2, 2), 0, 8)
    f = F(b"w.bin", bytes.fromhex("803F00BF00004940"), [w])
    builder = Builder([], Fixed(0), own=False)
    builder.files = [f]
    builder.rng.randint = lambda a, b: a
    body = file_body([f], builder.rng)
    s = section(b"FILE", body)
    builder.out += s
    builder.entries.append(b"FILE" + v(len(s)) + v(len(body)) + body + struct.pack("<I", crc(f.data)) + f.prints()[0][2])
    header = struct.pack("<BBBBIIII", 0xB2, 2, 0, 0, 4, 8, crc(f.data), 0)
    block = header + struct.pack("<I", crc(bytes(4) + header)) + f.data
    body = run_body(8, 1 << 14, 0, [])
    s = section(b"RUN ", body)
    builder.out += s + block
    builder.entries.append(b"RUN " + v(len(s) + len(block)) + v(len(body)) + body)
    builder.rows = struct.pack("<I", len(block)) + block[20:24]
    return builder.finish()


def check_conversions(rng):
    for _ in range(100000):
        x = rng.getrandbits(32)
        if rng.random() < .5:
            x = x & 0x807FFFFF | rng.randint(95, 145) << 23
        if rng.random() < .2:
            x &= 0xFFFFF000
        assert d.f16_of_f32(x) == half(x) and d.bf16_of_f32(x) == brain(x), hex(x)


def check_pseudo(rng):
    """Lists and masks by the page's own pseudo code, and by the decoder, good and bad ones."""
    counts = [0, 0]
    for _ in range(1500):
        n = rng.choice([1, 7, 24, 255, 256, 300, 2500])
        if rng.random() < .5:
            bits = [int(rng.random() < rng.choice([.01, .5, .99])) for _ in range(n)]
            payload, what = put_mask(bits, 0, True, rng), lambda c: c_mask(c, n)
            page = ("Mask", n, 0, True)
            wanted = bits
        else:
            data = random_bytes(n, rng)
            full = put_list(data, rng)
            if full[0] < 2:
                continue
            cursor = d.Cursor(full, "x")
            cursor.byte()
            tree = d.read_tree_header(cursor, full[0] == 3)
            payload, what = full[cursor.at:], lambda c: d.read_node(c, tree, 0, 0, n, 0)  # noqa: B023
            page = ("Node", leaves_of(tree), 0, 0, n, 0)
            wanted = data
        if rng.random() < .6:
            payload = bytearray(payload) + b"\0"
            for _ in range(rng.randint(1, 3)):
                payload[rng.randrange(min(len(payload), rng.choice([4, 5000])))] = rng.choice([0, 1, 64, 65, 20, 21, rng.randint(0, 255)])
            payload, wanted = bytes(payload), None
        try:
            found, used = by_the_page(PSEUDO, payload, *page)
            found = bytes(found)
        except Refused:
            found = used = None
        cursor = d.Cursor(payload, "x")
        try:
            mine, at = bytes(what(cursor)), cursor.at
        except d.LmcError:
            mine = at = None
        assert (mine, at) == (found, used), (page, mine and len(mine), found and len(found), at, used)
        assert wanted is None or mine == bytes(wanted)
        counts[mine is None] += 1
    print("pseudo code: %d equal, %d refused by both" % tuple(counts))


def c_mask(cursor, n):
    return d.read_mask(cursor, n, 0, True)


def status_of(what):
    try:
        return "OK", what()
    except d.LmcError as error:
        return error.status, re.findall(r"[RQ]\d*-\d+", error.text)[:1]


def mangled(rng, n):
    """Files with one or a few wrong fields, in which all else is right."""
    counts, rules = {}, set()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(n):
            groups = random_groups(rng)
            base = Builder(groups, rng)
            path = os.path.join(folder, "b.lmc")
            open(path, "wb").write(base.finish())
            builder = Builder(changed_groups(groups, rng), rng, base=base.files, mangled=.3)
            data = builder.finish([(b"k", b"v")])
            whole, snapshot = status_of(lambda: d.decode(data, [path]))  # noqa: B023
            ranges, files = status_of(lambda: read_all(data, [path]))  # noqa: B023
            if whole == "OK":
                assert ranges == "OK" and files == [bytes(f.data) for f in snapshot.files], (whole, ranges, files)
            else:
                rules |= set(snapshot)
            counts[whole, ranges] = counts.get((whole, ranges), 0) + 1
    print("mangled, whole and by ranges:", counts, "\nrules:", len(rules), sorted(rules))


def foreign(rng):
    """A directory and a file as a base; payloads of deltas without one."""
    tensors = [T(b"a", b"F32", (500,), 100, 2000), T(b"b", b"BF16", (2, 250), 2100, 1000)]
    skewed = lambda k: bytes(rng.choices([0, 1, 2, 255], [90, 5, 3, 2], k=k))  # noqa: E731
    old = F(b"d/m.safetensors", skewed(3100), tensors)
    text = b'{"a":{"dtype":"F32","shape":[500],"data_offsets":[0,2000]},"b":{"dtype":"BF16","shape":[2,250],"data_offsets":[2000,3000]}}'
    whole = F(b"", struct.pack("<Q", len(text)) + text + skewed(3000))
    whole.tensors = [T(t.name, t.dtype, t.shape, t.offset - 100 + 8 + len(text), t.size) for t in tensors]
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/x/d/e")
        open(folder + "/x/d/m.safetensors", "wb").write(old.data)
        open(folder + "/y", "wb").write(whole.data)
        for base, path, pipe in (([old, F(b"d/e", kind=1)], folder + "/x", False), ([whole], folder + "/y", True)):
            for _ in range(20):
                new = [[F(f.path, f.data, f.tensors, f.kind) for f in base]]
                for f in new[0]:
                    f.data = bytes(b ^ (rng.random() < .01) for b in f.data)
                builder = Builder(new, rng, base=base, only_base=True)
                data = builder.finish()
                same(d.decode(data, [path]), builder)
                if pipe:
                    same(d.decode_stream(Pipe(data), [path], keep=True), builder)
                assert read_all(data, [path]) == [f.data for f in builder.files]
                assert status_of(lambda: d.decode(data, [__file__]))[0] == "BASE_WRONG"  # noqa: B023
                reader = d.Reader(io.BytesIO(data))
                for run in reader.runs:
                    if run.prediction == 1:
                        reader.read_rows(run)
                        for (row, place), size in zip(run.places, [run.block_size_of(i) for i in range(run.n_blocks)]):
                            if data[place + 2] & 4:
                                bad = bytearray(data)
                                i = place + 24 + rng.randrange(struct.unpack_from("<I", data, place + 8)[0])
                                bad[i] ^= 1 << rng.randint(0, 7)
                                for one, status in ((data, ("BASE_MISSING", "OK")), (bytes(bad), ("CHECKSUM",))):
                                    blind = d.Reader(io.BytesIO(one))
                                    file = [f for f in blind.files if f.start + f.size > run.start][0]
                                    assert status_of(lambda: blind.read(file, run.start - file.start, 1))[0] in status  # noqa: B023
                                found += 1
    assert found > 5
    print("payloads that were damaged, and found without the base:", found)


def main(seed=1, n=60):
    rng = random.Random(seed)
    check_conversions(rng)
    check_pseudo(rng)
    data = example()
    open(os.path.join(tempfile.gettempdir(), "example_stored.lmc"), "wb").write(data)
    d.decode(data)
    assert d.read_tensor(io.BytesIO(data), b"w").hex() == "803f00bf00004940"
    statuses, predictions, accepted = {}, set(), 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            groups = random_groups(rng)
            chain, files = [], None
            for depth in range(rng.randint(1, 3)):
                builder = Builder(groups, rng, base=files, own=rng.random() < .7)
                metadata = [(b"k%d" % k, rng.randbytes(5)) for k in range(rng.randint(0, 3))]
                with_hash = rng.random() < .3
                data = builder.finish(metadata, with_hash)
                bases = list(chain)
                snapshot = d.decode(data, bases)
                same(snapshot, builder)
                same(d.decode_stream(Pipe(data), bases, keep=True, hashes=with_hash), builder)
                assert snapshot.metadata == metadata
                predictions |= {run.prediction for run in snapshot.runs}
                assert read_all(data, bases, rng) == [f.data for f in builder.files]
                if chain:
                    for wrong in ([], chain[:-1]):
                        if wrong and snapshot_print(files) in [d.claimed_fingerprint(path) for path in wrong]:
                            continue               # nothing had changed
                        try:
                            d.decode(data, wrong)
                            assert 0
                        except d.LmcError as error:
                            assert error.status in ("BASE_MISSING", "BASE_WRONG"), error
                for _ in range(25):
                    bad = corrupt(data, rng)
                    if bad == data:
                        continue
                    for what in (lambda: d.decode(bad, bases), lambda: read_all(bad, bases)):
                        try:
                            got = what()
                            accepted += 1
                            if isinstance(got, d.Snapshot) and got.fingerprint == snapshot.fingerprint:
                                assert [bytes(a.data) for a in got.files] == [bytes(a.data) for a in snapshot.files] or got.sections != snapshot.sections
                        except d.LmcError as error:
                            statuses[error.status] = statuses.get(error.status, 0) + 1
                path = os.path.join(folder, "%d_%d.lmc" % (i, depth))
                open(path, "wb").write(data)
                chain, files, groups = chain + [path], builder.files, changed_groups(groups, rng)
    mangled(rng, n * 5)
    foreign(rng)
    print("%d snapshots; predictions %s; corrupted: accepted %d, %s" % (n, sorted(predictions), accepted, statuses))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
