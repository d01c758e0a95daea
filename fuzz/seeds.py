#!/usr/bin/env python3
"""Makes the seed corpora from the conformance vectors:  fuzz/seeds.py DIRECTORY [NAME...]

DIRECTORY/NAME gets the seeds of harness NAME: its data, then its parameters (each fuzz_NAME.c describes them)."""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import seeds_command

VECTORS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'spec', 'vectors')
MOST = 65536  # larger seeds are left out; -max_len cuts those that are too long for fuzzing


def load(*parts):
    with open(os.path.join(VECTORS, *parts), 'rb') as f:
        return f.read()


def lmc_files():
    """All vectors that look like LMC files, by path."""
    for kind in 'valid', 'invalid', 'bases':
        for name in sorted(os.listdir(os.path.join(VECTORS, kind))):
            if name.endswith('.lmc'):
                yield kind + '/' + name, load(kind, name)


def varint(body):
    """The first number of a body, and where the next field begins."""
    value = at = 0
    while at < len(body):
        value |= (body[at] & 127) << 7 * at
        at += 1
        if body[at - 1] < 128:
            break
    return value, at


def blocks(data):
    """The blocks of a file as (block, width, bytes), as far as its sections and headers can be parsed."""
    at = 64
    while at + 20 <= len(data):
        kind, size = data[at:at + 4], struct.unpack_from('<Q', data, at + 4)[0]
        body = data[at + 20:at + 20 + size]
        at += 20 + size
        if kind == b'RUN ' and body:
            rest, field = varint(body)
            block_size, number = varint(body[field:])[0], 0
            while rest > 0 and at + 24 <= len(data) and data[at] == 0xB2 and 1 << 14 <= block_size <= 1 << 22:
                end = at + 24 + struct.unpack_from('<I', data, at + 8)[0]
                if end > len(data):
                    break
                yield number, data[at + 1], data[at:end]
                at, number, rest = end, number + 1, rest - block_size
        elif kind != b'FILE' and not kind[:1].islower():
            break


def is_predicted(block):
    return block[2] >> 2 & 1


def layout(block):
    """0 stored, 1 planes, 2 quantised."""
    return block[2] >> 5


def pack(files, base=None, options=()):
    """An LMC file of these files ({path: bytes}), against other such files, by the command build/lmc; None without the command."""
    command = os.path.join(VECTORS, '..', '..', 'build', 'lmc')
    if not os.path.exists(command):
        return None
    with tempfile.TemporaryDirectory() as d:
        for top, content in ('now', files), ('base', base or {}):
            for path, data in content.items():
                os.makedirs(os.path.dirname(os.path.join(d, top, path)), exist_ok=True)
                with open(os.path.join(d, top, path), 'wb') as f:
                    f.write(data)
        more = []
        if base is not None:
            subprocess.run([command, '-q', '-o', os.path.join(d, 'base.lmc'), os.path.join(d, 'base')], check=True)
            more = ['--base', os.path.join(d, 'base.lmc')]
        subprocess.run([command, '-q', *more, *options, '-o', os.path.join(d, 'now.lmc'), os.path.join(d, 'now')], check=True)
        with open(os.path.join(d, 'now.lmc'), 'rb') as f:
            now = f.read()
        if base is None:
            return now
        with open(os.path.join(d, 'base.lmc'), 'rb') as f:
            return f.read(), now


def safetensors(tensors):
    """{name: (dtype, shape, bytes)} in that order."""
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    return struct.pack('<Q', len(text)) + text + b''.join(data for _, _, data in tensors.values())


def skewed(n, seed, noise=64):
    """n bytes, most of them equal."""
    random.seed(seed)
    return bytes(random.choice((seed & 255, 0x3C, random.randrange(256))) if i % noise == 0 else 0x3C for i in range(n))


def made():
    """Files unlike all vectors, each with a base or None."""
    yield pack({f'd/{i}': bytes([i]) * (i % 3) for i in range(40)}), None
    yield pack({'a': skewed(70000, 1, 3), 'b': skewed(30000, 2, 2)}), None
    twins = {'F32': skewed(8000, 9, 7)}
    twins['BF16'] = b''.join(twins['F32'][i + 2:i + 4] for i in range(0, 8000, 4))  # truncated, which mostly equals rounding
    files = {dtype + '.safetensors': safetensors({name: (dtype, [50, len(data) // 50 // (4 if dtype == 'F32' else 2)], data) for name in ('w', 'w2')})
             for dtype, data in twins.items()}
    for options in ((), ('--max',), ('--no-twins',)):
        yield pack(files, None, options), None
    random.seed(11)
    sparse = b''.join(struct.pack('<f', random.gauss(0, 1)) if random.random() < 0.02 else bytes(4) for _ in range(6000))
    for options in ((), ('--max',)):
        yield pack({'s.safetensors': safetensors({'a': ('F32', [6000], sparse), 'b': ('F32', [60, 100], sparse[::-1])})}, None, options), None
    changed = bytearray(sparse)
    for i in range(0, len(changed), 517):
        changed[i] ^= 3
    packed = pack({'s.safetensors': safetensors({'a': ('F32', [6000], bytes(changed))})}, {'s.safetensors': safetensors({'a': ('F32', [6000], sparse)})}, ['--max'])
    if packed:
        yield packed[1], packed[0]
    yield pack({'zeros.safetensors': safetensors({'t': ('U8', [300000], bytes(300000)), 'u': ('F32', [4], bytes(16))})}), None
    for quant in ('rel:0.05', 'bits:4', 'nmse:0.001'):
        random.seed(5)
        points = [random.choice((1, 2, 3, 4)) * random.uniform(0.999, 1.001) * 2.0 ** random.randrange(-12, -8) for _ in range(256)]
        moment = struct.pack('<256f', *points) * 64
        moments = {'x.exp_avg': ('F32', [64, 256], moment), 'x.exp_avg_sq': ('F32', [64, 256], moment[512:] + moment[:512])}
        yield pack({'o.safetensors': safetensors(moments)}, None, ['--quant', '*,role=any=' + quant]), None
        split = {'v.safetensors': safetensors({'x.exp_avg_sq': moments['x.exp_avg_sq']}), 'm.safetensors': safetensors({'x.exp_avg': moments['x.exp_avg']})}
        yield pack(split, None, ['--quant', '*,role=any=update:0.1' if quant[0] == 'n' else '*,role=any=' + quant]), None
    for width, dtype in (2, 'BF16'), (4, 'F32'), (8, 'I64'):
        old = {name: (dtype, [n], skewed(n * width, n, 5)) for name, n in (('a', 700), ('b', 900), ('c', 5000), ('d', 64))}
        new = {name: (d, shape, bytes(b ^ (i % 97 == 0) for i, b in enumerate(data))) for name, (d, shape, data) in old.items()}
        one, two = safetensors(old), safetensors(new)
        for base, now in (({'m.safetensors': one}, {'m.safetensors': two}), ({'m.safetensors': one, 'n': one[:500]}, {'m.safetensors': two, 'n': one[:499] + b'!'}),
                          ({'m.safetensors': one}, {'m.safetensors': safetensors(dict(reversed(new.items())))}),
                          ({'m.safetensors': one}, {'c/1.safetensors': safetensors({'b': new['b'], 'd': new['d']}), 'c/2.safetensors': safetensors({'a': new['a']})}),
                          ({'1.safetensors': safetensors({'a': old['a']}), '2.safetensors': safetensors({'c': old['c']}), 'e': one[100:200]},
                           {'1.safetensors': safetensors({'a': new['a']}), '2.safetensors': safetensors({'c': new['c']}), 'e': two[100:200]})):
            packed = pack(now, base)
            if packed:
                yield packed[1], packed[0]


class Bits:
    """Parameters, drawn from the lowest bits up (fuzz_bits)."""

    def __init__(self):
        self.value = self.n = 0

    def add(self, value, n):
        self.value |= (value & (1 << n) - 1) << self.n
        self.n += n
        return self

    def bytes(self, n_bytes):
        return self.value.to_bytes(n_bytes, 'little')


def block():
    for number, (_, data) in enumerate(lmc_files()):
        for place, width, b in blocks(data):
            n = struct.unpack_from('<I', b, 4)[0]
            if is_predicted(b) and n * width <= MOST:  # with a prediction: zeros, and something
                for seed in 0, number << 3 | 3:
                    yield b + Bits().add(seed, 16).add(number, 1).add(1, 1).add(number, 1).add(1, 1).add(number, 4).add(0, 20).add(0xFF if n * width > 65536 else 240, 8).bytes(8)
                base = bytes((i * 7 + number) & 0x3F | 0x80 * (i % 5 == 0) for i in range(n * width))
                yield b + base + Bits().add(0, 16).add(0, 1).add(1, 1).add(number, 1).add(1, 1).add(number, 4).add(0, 20).add(240, 8).add(1, 1).bytes(8)
            else:
                yield b + Bits().add(number, 16).add(number, 1).add(1, 1).add(0, 2).add(number, 4).add(0, 20).add(0xFF if n * width > 65536 else 240, 8).bytes(8)


    for number, (data, base) in enumerate(made()):  # large ones, which are streamed
        for place, width, b in blocks(data or b''):
            n = struct.unpack_from('<I', b, 4)[0]
            if n * width > 1 << 20:
                continue
            size_class = 255 if n * width > 65536 else 240
            for align in 1, 2, 32, 33, 48:
                tier = (number + align) % 3
                yield b[:12] + bytes(4) + b[16:] + Bits().add(8 * number + 3, 16).add(align, 1).add(1, 1).add(0, 1).add(is_predicted(b), 1).add(tier, 4).add(0, 20) \
                    .add(size_class, 8).add(0, 1).add(align, 6).bytes(8)
    for data in (skewed(49152, 9), skewed(49152, 10, 2), skewed(49152, 11, 1000), bytes(49152), bytes(range(256)) * 192):
        for dtype in 'U8', 'BF16', 'F32', 'I64':
            packed = pack({'x.safetensors': safetensors({'t': (dtype, [len(data) // {'U8': 1, 'BF16': 2, 'F32': 4, 'I64': 8}[dtype]], data)})})
            for place, width, b in blocks(packed or b''):
                for tier in 0, 1, 2:
                    for align in 7, 32:
                        yield b[:12] + bytes(4) + b[16:] + Bits().add(3, 16).add(0, 1).add(1, 1).add(0, 2).add(tier, 4).add(0, 20).add(240, 8).add(0, 1).add(align, 6).bytes(8)
    rows = {}
    for number, (_, data) in enumerate(lmc_files()):  # rows of blocks
        for _, width, b in blocks(data):
            if len(b) < 1000:
                rows.setdefault((struct.unpack_from('<I', b, 4)[0] * width, is_predicted(b)), []).append(b)
    for number, ((size, predicted), row) in enumerate(rows.items()):
        for off in range(6):
            yield b''.join(row[:1 + (number + off) % 7]) + Bits().add(8 * number + 3, 16).add(off, 1).add(1, 1).add(0, 1).add(predicted, 1).add(number, 4).add(0, 16) \
                .add(off, 4).add(0, 8).add(0, 7).add(0, 4).add(1, 1).bytes(8)
    for width, payload in (1, b'\0'), (2, b'\0'), (2, b'\xff\1\5\1\6'), (2, b'\1\1\5\1\6'):  # sparse, without a prediction and without lists
        yield struct.pack('<BBBBIIIII', 0xB2, width, 1 << 5, 16, 8, len(payload), 0, 0, 0) + payload + Bits().add(0, 17).add(1, 1).bytes(8)
    yield b'\xb2' + bytes(23) + Bits().add(0, 16).add(0, 1).add(1, 1).add(0, 2).add(0, 4).add(0, 8).add(0xA5, 8).bytes(8)


def gpu():
    """The small seeds of block, because the shim is slow. The parameters have the same bits."""
    seen = set()
    for value in block():
        if len(value) < 24000 and value[:-8] not in seen:
            seen.add(value[:-8])
            yield value


def tree():
    for number, (_, data) in enumerate(lmc_files()):
        for _, width, b in blocks(data):
            n, at = struct.unpack_from('<I', b, 4)[0], 24
            if n > 65536:
                continue
            if layout(b) == 1 and b[3] == 16:  # sparse, one class: a mask first
                yield b[at:] + Bits().add(n - 1, 16).add(number, 1).add(1, 1).add(0, 1).add(31, 5).add(0, 2).add(number, 4).bytes(8)
            elif layout(b) == 1 and b[3] == 0:
                while at < len(b) and b[at] in (0, 1):
                    at += n + 1 if b[at] == 0 else 2
                yield b[at:] + Bits().add(n - 1, 16).add(number, 1).add(0, 1).add(0, 1).add(31, 5).add(0, 2).add(number, 4).bytes(8)
            if len(b) < 4096:  # and these bytes, to be encoded as a list or mask
                for is_mask in 0, 1:
                    yield b[24:] + Bits().add(7 if is_mask else 0, 16).add(number, 1).add(is_mask, 1).add(1, 1).add(31, 5).add(0, 2).add(number, 5).bytes(8)


def decode():
    return seeds_command.decisions(240, 2)


def codings():
    return (seed + bytes(16 - len(seed) % 16) if len(seed) < 24 else seed for seed in seeds_command.decisions(240, 3))


def quantised():
    for number, (_, data) in enumerate(lmc_files()):
        for _, width, b in blocks(data):
            n = struct.unpack_from('<I', b, 4)[0]
            if layout(b) == 2 and n <= 8192 and width in (2, 4):
                yield b[24:] + Bits().add(n - 1, 13).add(width == 4, 1).add(number, 4).add(number * 8 + (4 if width == 4 else 3), 16).add(number, 1) \
                    .add(is_predicted(b), 1).add(0, 1).add(number, 1).bytes(8)


def tiers():
    for number, (_, data) in enumerate(lmc_files()):
        for _, width, b in blocks(data):
            n = struct.unpack_from('<I', b, 4)[0]
            yield b + struct.pack('<I', number * 8 + 3) + Bits().add(number, 1).add(1, 1).add(is_predicted(b), 1).add(0, 1).add(number, 1).bytes(8)
            if layout(b) == 0 and len(b) < 2048:  # stored: something to encode
                for dtype, quantises in (15, 0), (18, 0), (4, 0), (20, 0), (0, 0), (18, 1), (15, 1):
                    yield b[24:] + struct.pack('<I', number * 8 + 3) + Bits().add(number, 1).add(0, 1).add(number >> 1, 1).add(0, 1).add(0, 1).add(15 * quantises, 4) \
                        .add(0, 1).add(number >> 2, 1).add(dtype, 5).add(number, 4).add(number, 3).add(1 + number % 3, 2).add(number % 3, 2).add(4, 4) \
                        .add(number, 8).bytes(8)


def index():
    for number, (_, data) in enumerate(lmc_files()):
        if len(data) < 64 + 20 + 88 + 40:
            yield data + bytes(8)
            continue
        at = struct.unpack_from('<Q', data, len(data) - 40)[0]
        if 64 <= at < len(data) - 40:
            yield data[:64] + data[at:] + Bits().add(0, 12).add(number, 4).add(number, 8).add(0, 8).add(number, 1).bytes(8)


def snapshot():
    for number, (_, data) in enumerate(lmc_files()):
        yield data + Bits().add(0, 12).add(number, 4).bytes(12)
        if number % 16 == 0:
            yield data + Bits().add(0, 12).add(number, 4).add(0, 4).add(number, 6).add(number >> 4, 2).add(1, 1).add(255, 8).add(0xA5, 16).bytes(12)
    for number, (data, base) in enumerate(made()):
        for piece in 0, 61:
            if data and not base:
                yield data + Bits().add(0, 12).add(number, 4).add(0, 4).add(piece, 6).add(piece, 2).add(1, 1).add(255, 8).add(number, 16).bytes(12)


def salvage():
    return snapshot()


def delta():
    fingerprints = {}
    files = dict(lmc_files())
    for name in sorted(os.listdir(os.path.join(VECTORS, 'bases'))):  # those that are no LMC files are packed by the command, if it is there
        command = os.path.join(VECTORS, '..', '..', 'build', 'lmc')
        if not name.endswith('.lmc') and os.path.exists(command):
            packed = subprocess.run([command, '-c', os.path.join(VECTORS, 'bases', name)], capture_output=True)
            if packed.returncode == 0:  # some are broken containers
                files['bases/' + name] = packed.stdout
    for name, data in files.items():
        at = struct.unpack_from('<Q', data, len(data) - 40)[0] if len(data) > 192 else 0
        if 64 <= at < len(data) - 100:
            fingerprints.setdefault(data[at + 84:at + 100], data)  # section header, 64 bytes of the index
    for number, (name, data) in enumerate(files.items()):
        if len(data) >= 64 and any(data[32:48]):
            base = fingerprints.get(data[32:48], files['bases/weights.lmc'] if 'bases/weights.lmc' in files else b'')
            for fail in range(4 if len(base) < 16384 else number % 16 == 0):
                yield base + data + Bits().add(0, 12).add(number, 4).bytes(8) + struct.pack('<II', 16 + number % 2 * 8 + fail * 32, len(base))
    for number, (data, base) in enumerate(made()):
        for fail in range(6 if base and len(base) < 16384 else 1):
            if base:
                yield base + data + Bits().add(0, 12).add(number, 4).add(0, 4).add(0, 6).add(fail, 2).add(1, 1).add(255 * (fail & 1), 8).add(number, 16).bytes(8) \
                    + struct.pack('<II', 16 + fail % 2 * 8 + fail * 32, len(base))


def work():
    """Files that cost much work, small enough to be changed; and the seeds of delta."""
    sys.path.insert(0, os.path.join(VECTORS, '..', '..', 'tests', 'command'))
    import hostile
    for n, blocks in (20, 2), (40, 4), (60, 6), (200, 5):
        yield hostile.segments_of_one_byte(n, blocks) + bytes(16)
        base, delta_file = hostile.delta_of_one_byte(n, blocks)
        yield base + delta_file + bytes(12) + struct.pack('<I', len(base))
    yield hostile.files_of_far_bytes(60, 5)[0] + bytes(16)
    yield hostile.tensors_of_far_bytes(60, 5) + bytes(16)
    base, delta_file = hostile.files_of_far_bytes(60, 5, has_base=True)
    yield base + delta_file + bytes(12) + struct.pack('<I', len(base))
    yield hostile.tensors_of_one_byte(100) + bytes(16)
    yield from delta()


def main():
    out = sys.argv[1]
    makers = {k: v for k, v in globals().items() if k in ('block', 'codings', 'decode', 'gpu', 'tree', 'quantised', 'tiers', 'index', 'snapshot', 'salvage', 'delta', 'work')}
    makers.update(seeds_command.makers)
    for name in sys.argv[2:] or makers:
        os.makedirs(os.path.join(out, name), exist_ok=True)
        n = 0
        if name not in makers:
            continue
        for seed in makers[name]():
            if len(seed) <= MOST:
                with open(os.path.join(out, name, hashlib.sha1(seed).hexdigest()), 'wb') as f:
                    f.write(seed)
                n += 1
        print(f'{name}: {n} seeds')


main()
