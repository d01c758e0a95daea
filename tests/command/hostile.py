"""Hostile snapshots, made byte by byte (format 1.0), for test_hostile.py and for measuring what one costs.

    python3 tests/command/hostile.py own N [BLOCKS]      N one-byte segments that take turns in blocks of 4 MiB
    python3 tests/command/hostile.py deep FILES DEPTH    empty files, each below directories of its own
    python3 tests/command/hostile.py chain LINKS DIR     a chain of tiny deltas, c000000.lmc and so on
    python3 tests/command/hostile.py names               names, paths and dtypes with bytes that control a terminal

Each writes to standard output, except chain. The files are valid: a decoder must accept them, or return LIMIT. They are small, but need much work.
SPDX-License-Identifier: MIT
"""
import ctypes, hashlib, io, os, struct, sys, zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "spec"))
import encoder

MEBI = 1 << 20
LARGEST = 4 * MEBI  # of a block

_library = None


def crc(data):
    """CRC-32C, by the library if it is built: gigabytes of zeros take long in Python."""
    global _library
    if _library is None:
        path = os.path.join(ROOT, "build", "liblmc.so")
        _library = ctypes.CDLL(path) if os.path.exists(path) else False
        if _library: _library.lmc_crc32c.restype, _library.lmc_crc32c.argtypes = ctypes.c_uint32, [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
    return _library.lmc_crc32c(0, bytes(data), len(data)) if _library else encoder.crc(data)


_chunks = {}


def sums(data):
    """The sums of a chunk; kept, because the same chunks occur again and again."""
    if data not in _chunks:
        padded = data + bytes(-len(data) % 8)
        _chunks[data] = struct.pack("<IQ", crc(data), sum(struct.unpack("<%dQ" % (len(padded) // 8), padded)) & (1 << 64) - 1)
    return _chunks[data]


def fingerprint(kind, dtype, shape, data):
    chunks = b"".join(sums(data[i:i + 262144]) for i in range(0, len(data), 262144))
    return hashlib.sha256(b"LMC tensor 3\0" + bytes([kind]) + chunks + bytes([len(dtype)]) + dtype +
                          bytes([len(shape)]) + struct.pack("<%dQ" % (len(shape) + 1), *shape, len(data))).digest()[:16]


def fingerprint_of_file(data):
    return fingerprint(1, b"U8", (len(data),), data)


def fingerprint_of_snapshot(items):
    return hashlib.sha256(b"LMC snapshot 3\0" + b"".join(struct.pack("<I", len(name)) + name + i for name, i in sorted(items))).digest()[:16]


varint = encoder.varint


def file_body(size, path=b"", tensors=()):
    """tensors: (name, dtype as a string of its own or a number, shape, size)."""
    body = varint(1) + bytes([0, 0]) + varint(len(path)) + path + varint(size) + varint(len(tensors))
    for name, dtype, shape, n in tensors:
        body += bytes([0, 0]) + varint(len(name)) + name
        body += bytes([dtype]) if isinstance(dtype, int) else bytes([0, len(dtype)]) + dtype
        body += bytes([len(shape)]) + b"".join(map(varint, shape)) + (b"" if isinstance(dtype, int) else varint(n))
    return body


def run_body(size, log2, prediction=0, segments=()):
    """segments: (size, number of the item or file, offset)."""
    body = varint(size) + varint(1 << log2) + bytes([prediction])
    if prediction:
        last = -1
        body += varint(len(segments))
        for n, number, offset in segments:
            d = number - last - 1
            body += varint(n) + varint(1 + 2 * (2 * d if d >= 0 else -2 * d - 1) + (offset != 0)) + (varint(offset) if offset else b"")
            last = number
    return body


ORDER = 1  # of predicted blocks: two's complement


def block(number, payload, n, width, layout, content_crc, predicted=False):
    head = bytes([0xB2, width, layout << 5 | (4 | ORDER if predicted else 0), 0])
    head += struct.pack("<IIII", n, len(payload), content_crc, crc(payload) if predicted else 0)
    return head + struct.pack("<I", crc(struct.pack("<I", number) + head)) + payload


def stored(number, data):
    return block(number, data, len(data), 1, 0, crc(data))


def as_predicted(number, size):
    """A block of zeros, predicted by zeros."""
    return block(number, bytes([1, 0]), size, 1, 1, crc(bytes(size)), predicted=True)


class File:
    """A snapshot, section by section."""

    def __init__(self, base=None, own=False):
        head = bytes.fromhex("954C4D430D0A1A0A") + struct.pack("<BBB5xQQ16s12x", 1, 0, 1, (1 if base else 0) | (2 if own else 0), 0, base or bytes(16))
        self.header = head + struct.pack("<I", crc(head))
        self.parts, self.at = [self.header], 64
        self.entries, self.items, self.n_sections, self.rows, self.metadata = [], [], 0, [], []

    def put(self, data):
        self.parts.append(data)
        self.at += len(data)

    def put_section(self, kind, body):
        head = kind + struct.pack("<Q", len(body))
        self.put(head + struct.pack("<II", crc(head), crc(body)) + body)

    def section(self, kind, body, facts=b"", blocks=()):
        """facts: what the index adds to the body."""
        self.put_section(kind, body)
        for b in blocks: self.put(b)
        self.rows += [struct.pack("<I", len(b)) + b[20:24] for b in blocks]
        self.entries.append(kind + varint(20 + len(body) + sum(map(len, blocks))) + varint(len(body)) + body + facts)
        self.n_sections += 1

    def file(self, body, file_crc, items):
        """items: (name, fingerprint) of what the file holds."""
        self.section(b"FILE", body, struct.pack("<I", file_crc) + b"".join(i for _, i in items))
        self.items += items

    def run(self, body, blocks):
        self.section(b"RUN ", body, blocks=blocks)

    def done(self):
        body = self.header + fingerprint_of_snapshot(self.items) + struct.pack("<II", self.n_sections, len(self.metadata)) + b"".join(self.entries)
        body += b"".join(struct.pack("<II", len(key), len(value)) + key + value for key, value in self.metadata)
        self.put_section(b"BLKS", b"".join(self.rows))
        at = self.at
        self.put_section(b"INDX", body)
        trailer = struct.pack("<QQQBBH", at, self.at - at, self.at + 40, 1, 0, 0)
        self.put(trailer + struct.pack("<I", crc(trailer)) + bytes.fromhex("944C4D430D0A1A0A"))
        return b"".join(self.parts)


def zeros(number, size=LARGEST):
    """The block with the most decoded bytes for its size: 26 bytes give 4 MiB."""
    return block(number, bytes([1, 0]), size, 1, 1, crc(bytes(size)))


def segments_of_one_byte(n, n_blocks):
    """Own predictions of a byte each, from distant blocks in turn: a decoder that keeps fewer blocks than there are must decode each many times."""
    f = File(own=True)
    front = n_blocks * LARGEST
    data = bytes(front + n)
    f.file(file_body(len(data)), crc(data), [(b"", fingerprint_of_file(data))])
    f.run(run_body(front, 22), [zeros(i) for i in range(n_blocks)])
    segments = [(1, 0, i % n_blocks * LARGEST + 5 + i // n_blocks) for i in range(n)]
    blocks = []
    for i in range(0, n, 1 << 14):
        size = min(1 << 14, n - i)
        blocks.append(as_predicted(i >> 14, size))
    f.run(run_body(n, 14, 3, segments), blocks)
    return f.done()


def delta_of_one_byte(n, n_blocks):
    """The same with a base: (base, delta)."""
    f = File()
    data = bytes(n_blocks * LARGEST)
    f.file(file_body(len(data)), crc(data), [(b"", fingerprint_of_file(data))])
    f.run(run_body(len(data), 22), [zeros(i) for i in range(n_blocks)])
    base = f.done()
    d = File(fingerprint_of_snapshot(f.items))
    data = bytes(n)
    d.file(file_body(n), crc(data), [(b"", fingerprint_of_file(data))])
    blocks = []
    for i in range(0, n, 1 << 14):
        size = min(1 << 14, n - i)
        blocks.append(as_predicted(i >> 14, size))
    d.run(run_body(n, 14, 1, [(1, 0, i % n_blocks * LARGEST + 5 + i // n_blocks) for i in range(n)]), blocks)
    return base, d.done()


def far_places(size, n_blocks):
    return [(1, 0, k % n_blocks * LARGEST + 5 + k // n_blocks) for k in range(size)]


def put_front(f, n_blocks, path=b"a", damage=0):
    """Adds a file of blocks of 4 MiB."""
    data = bytes(n_blocks * LARGEST)
    f.file(file_body(len(data), path), crc(data), [(path, fingerprint_of_file(data))])
    f.run(run_body(len(data), 22), [block(i, bytes([1, 0]), LARGEST, 1, 1, crc(bytes(LARGEST)) ^ damage) for i in range(n_blocks)])


def files_of_far_bytes(n, n_blocks, size=60, has_base=False):
    """A large file, and n small ones with a run each. Each byte of these is predicted by another block of the large file than the byte before. The
    large file is in the same snapshot, or in its base. Returns snapshots, the base first."""
    lower = File(own=not has_base)
    put_front(lower, n_blocks)
    f = File(fingerprint_of_snapshot(lower.items)) if has_base else lower
    one = fingerprint_of_file(bytes(size))
    for i in range(n):
        path = b"b%05d" % i
        f.file(file_body(size, path), crc(bytes(size)), [(path, one)])
        f.run(run_body(size, 14, 1 if has_base else 3, far_places(size, n_blocks)), [as_predicted(0, size)])
    return [lower.done(), f.done()] if has_base else [f.done()]


def delta_of_far_bytes(base, far, n_blocks=6, path=b""):
    """A delta against a File of blocks of 4 MiB, in each of whose blocks `far` bytes are each predicted by another block."""
    delta = File(fingerprint_of_snapshot(base.items))
    data = bytes(n_blocks * LARGEST)
    delta.file(file_body(len(data), path), crc(data), [(path, fingerprint_of_file(data))])
    places = far_places(n_blocks * far, n_blocks)
    segments = [s for i in range(n_blocks) for s in [*places[i * far:(i + 1) * far], (LARGEST - far, 0, 0)]]
    delta.run(run_body(len(data), 22, 1, segments), [as_predicted(i, LARGEST) for i in range(n_blocks)])
    return delta


def delta_of_bytes(base, n, n_blocks=6):
    """A delta of n bytes, each predicted by another block."""
    top = File(fingerprint_of_snapshot(base.items))
    top.file(file_body(n), crc(bytes(n)), [(b"", fingerprint_of_file(bytes(n)))])
    top.run(run_body(n, 14, 1, far_places(n, n_blocks)), [as_predicted(0, n)])
    return top


def chain_of_far_bytes(sizes, far, n_blocks=6):
    """Two files "a" and "b" as two snapshots, and as one; a delta against both, in each block of which `far` bytes are each predicted by another block
    of "a"; and deltas of these sizes against that one, each of whose bytes is predicted by another block: [a, b, both, middle, *deltas]."""
    fronts = [File(), File(), File()]
    for f, paths in zip(fronts, ([b"a"], [b"b"], [b"a", b"b"])):
        for path in paths: put_front(f, n_blocks, path)
    middle = delta_of_far_bytes(fronts[2], far, n_blocks)
    return [x.done() for x in (*fronts, middle, *(delta_of_bytes(middle, n, n_blocks) for n in sizes))]


def delta_of_blocks(base, path=b"", n_blocks=6):
    """A delta each of whose blocks of 4 MiB is predicted by that block of the base."""
    delta = File(fingerprint_of_snapshot(base.items))
    data = bytes(n_blocks * LARGEST)
    delta.file(file_body(len(data), path), crc(data), [(path, fingerprint_of_file(data))])
    delta.run(run_body(len(data), 22, 1, [(len(data), 0, 0)]), [as_predicted(i, LARGEST) for i in range(n_blocks)])
    return delta


def shards_below_a_chain(n_shards, n_deltas, n=1000):
    """Shards, and a chain of deltas against all of them together: (shards, deltas). Decoding a block of the first delta decodes 60 blocks of shards, and
    decoding one of the second delta 60 of the first."""
    shards, whole = [File() for _ in range(n_shards)], File()
    for i, f in enumerate(shards):
        put_front(f, 6, b"s%02d" % i)
        put_front(whole, 6, b"s%02d" % i)
    deltas = [delta_of_far_bytes(whole, 60, path=b"0")]
    deltas.append(delta_of_far_bytes(deltas[0], 60, path=b"1"))
    while len(deltas) < n_deltas: deltas.append(delta_of_blocks(deltas[-1], b"%d" % len(deltas)))
    return [f.done() for f in shards], [f.done() for f in [*deltas, delta_of_bytes(deltas[-1], n)]]


def tensors_of_far_bytes(n, n_blocks, size=60):
    """The same with tensors of one file in place of the small files."""
    f = File(own=True)
    put_front(f, n_blocks)
    one = fingerprint(0, b"U8", (size,), bytes(size))
    names = [b"t%05d" % i for i in range(n)]
    f.file(file_body(n * size, b"b", [(name, 5, (size,), size) for name in names]), crc(bytes(n * size)), [(name, one) for name in names])
    for i in range(n):
        f.run(run_body(size, 14, 3, far_places(size, n_blocks)), [as_predicted(0, size)])
    return f.done()


def tensors_of_one_byte(n, n_blocks=1):
    """Blocks of 4 MiB in tensors of a byte: reading the tensors one by one, in the order of their names, decodes a block for each."""
    f = File()
    data = bytes(LARGEST * n_blocks)
    names = [b"%08x" % (i * 2654435761 & 0xFFFFFFFF) for i in range(n)]
    step = len(data) // n
    body = varint(1) + bytes([0, 0]) + varint(0) + varint(len(data)) + varint(n)
    for i, name in enumerate(names):
        body += bytes([2 if i else 0, 0]) + varint(len(name)) + name + (varint(step - 1) if i else b"") + bytes([5, 1]) + varint(1)  # U8
    one = fingerprint(0, b"U8", (1,), bytes(1))
    f.file(body, crc(data), [(name, one) for name in names])
    f.run(run_body(len(data), 22), [zeros(i) for i in range(n_blocks)])
    return f.done()


def deep(n_files, depth):
    """Each directory takes 4 bytes."""
    f = File()
    for i in range(n_files):
        path = b"%05d" % i + b"/a" * depth
        f.file(file_body(0, path), 0, [(path, fingerprint_of_file(b""))])
    return f.done()


def links(n):
    """A full snapshot of 64 bytes and n deltas, each against the one before. Yields snapshots, and what each restores to."""
    first = bytes(range(64))
    base = None
    for k in range(n + 1):
        data = b"".join((int.from_bytes(first[j:j + 8], "little") + k).to_bytes(8, "little") for j in range(0, 64, 8))
        f = File(base)
        own = fingerprint_of_file(data)
        f.file(file_body(64), crc(data), [(b"", own)])
        if k == 0:
            f.run(run_body(64, 14), [stored(0, data)])
        else:  # all residuals are 1, which zigzag makes 2
            f.run(run_body(64, 14, 1, [(64, 0, 0)]), [block(0, bytes([1, 2]) + bytes([1, 0]) * 7, 8, 8, 1, crc(data), predicted=True)])
        yield f.done(), data
        base = fingerprint_of_snapshot(f.items)


# bytes that control terminals, or that these display wrongly: C1 controls in UTF-8 and as bytes, directions, joiners, line ends, broken and overlong
# UTF-8
CONTROLS = [b"\xc2\x9b31m", b"\x9b2J", b"\xe2\x80\xae", b"\xe2\x81\xa6", b"\xe2\x80\x8b", b"\xe2\x80\xa8", b"\xc2\x85", b"\xef\xbb\xbf", b"\xc0\xaf", b"\xed\xa0\x80",
            b"\xff\xfe", b"\x1b[31m", b"\r", b"\n", b"\xe2\x80", b"\xf3\xa0\x80\x81", b"\xc2\xad", b"\xf4\x90\x80\x80", b"\x7f", b"\x01\xc2\x80", b"\xef\xbf\xbe"]


def names():
    f = File()
    tensors = [(b"t%02d" % i + control + b"e", b"D" + control, (1,), 4) for i, control in enumerate(CONTROLS)]
    size = 4 * len(tensors)
    data = bytes(size)
    f.file(file_body(size, b"d/" + CONTROLS[0] + CONTROLS[1] + CONTROLS[2] + b"f", tensors), crc(data),
           [(name, fingerprint(0, dtype, (1,), bytes(4))) for name, dtype, _, _ in tensors])
    f.run(run_body(size, 14), [stored(0, data)])
    return f.done()


# -- small files with much to list: each is listed, or refused, in memory that is proportional to its size --


def tensors_of(names, rank=0, shared=None):
    """A snapshot of empty tensors. names: each as (number back, prefix, middle, suffix) or bytes; each except the first has the dtype and shape of
    the one before."""
    f, body, known = File(), [], []
    for i, name in enumerate(names):
        if isinstance(name, bytes):
            body.append(bytes([0, 0]) + varint(len(name)) + name + bytes([5, 1 + rank]) + varint(1) * rank + varint(0))
        else:
            back, prefix, name, suffix = name
            body.append(bytes([1]) + varint(back) + bytes([prefix, suffix]) + varint(len(name)) + name)
            name = known[i - back][:prefix] + name + (known[i - back][-suffix:] if suffix else b"")
        known.append(name)
    one = fingerprint(0, b"U8", (1,) * rank + (0,), b"")
    f.file(varint(1) + bytes([0, 0]) + varint(0) + varint(0) + varint(len(known)) + b"".join(body), 0, [(name, one) for name in known])
    return f.done()


def prefix_names(n, rank=0, text=b"n"):
    """Names of 510 bytes, each of which takes 5 bytes in the file."""
    return tensors_of([text * 510] + [(i + 1, 253, b"%05x" % i, 252) for i in range(n)], rank)


def many_runs(n):
    f = File()
    f.file(file_body(n), crc(bytes(n)), [(b"", fingerprint_of_file(bytes(n)))])
    for i in range(n): f.run(run_body(1, 14), [stored(0, b"\0")])
    return f.done()


def many_files(n, path=b"%06d"):
    """Empty files in one section."""
    f, empty = File(), fingerprint_of_file(b"")
    paths = [path % i for i in range(n)]
    body = varint(n) + b"".join(bytes([0, 0]) + varint(len(p)) + p + varint(0) + varint(0) for p in paths)
    f.section(b"FILE", body, (bytes(4) + empty) * n)
    f.items += [(p, empty) for p in paths]
    return f.done()


def with_metadata(*items):
    f = File()
    f.file(file_body(0, b"a"), 0, [(b"a", fingerprint_of_file(b""))])
    f.metadata += items
    return f.done()


def many_links(paths, target=b"a"):
    return with_metadata((b"lmc.links", b"".join(b"s" + p + b"\0" + target + b"\0" for p in sorted(paths))))


# A file of torch.save(): the one storage has 16 bytes. TENSOR makes four F32 from it, and is stored in the memo as number 0.
TENSOR = (b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQK\0"
          b"%s\x89ccollections\nOrderedDict\n)RtR")
ONE = TENSOR % b"K\x04\x85K\x01\x85"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s


def torch_file(pickle, members=(), storage=bytes(16)):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in (("a/data.pkl", b"\x80\x02" + pickle + b"."), ("a/version", b"3\n"), ("a/data/0", storage), *members): z.writestr(name, data)
    return out.getvalue()


def same_keys(n):
    """One tensor, n times under one key."""
    return torch_file(b"}(" + text(b"a") + ONE + b"q\0" + (text(b"a") + b"h\0") * (n - 1) + b"u")


def torch_names(n, key=b"", tensor=ONE):
    """One tensor under n names, all of which begin with one key."""
    names = b"}(" + text(b"000000") + tensor + b"q\0" + b"".join(text(b"%06d" % i) + b"h\0" for i in range(1, n)) + b"u"
    return torch_file(b"}" + text(key) + names + b"s" if key else names)


def torch_parts(n):
    """n tensors side by side in one storage, each under two names."""
    storage = (b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ" + struct.pack("<i", n) + b"tQr\0\0\0\0000" +
               b"ctorch._utils\n_rebuild_tensor_v2\nr\1\0\0\0000ccollections\nOrderedDict\n)Rr\2\0\0\0000K\1\x85r\3\0\0\0000")
    tensor = lambda i: b"h\1(h\0J" + struct.pack("<i", i) + b"h\3h\3\x89h\2tRr" + struct.pack("<I", 4 + i)
    return torch_file(storage + b"}(" + b"".join(text(b"a%06d" % i) + tensor(i) + text(b"b%06d" % i) + b"j" + struct.pack("<I", 4 + i) for i in range(n)) + b"u",
                      storage=bytes(4 * n))


def torch_ranks(n):
    return torch_names(n, tensor=TENSOR % (2 * (b"(" + b"K\1" * 32 + b"t")))


def torch_deep(n, levels):
    """n names below that many levels of keys of 20 bytes."""
    names = b"}(" + text(b"000000") + ONE + b"q\0" + b"".join(text(b"%06d" % i) + b"h\0" for i in range(1, n)) + b"u"
    return torch_file((b"}" + text(b"k" * 20)) * levels + names + b"s" * levels)


def torch_opcodes(opcode, n, end=b""):
    """A list of n objects, all of which the opcode makes."""
    return torch_file(b"](" + opcode * n + b"e" + end)


def torch_members(n):
    return torch_file(b"}", [("a/data/%d" % i, b"") for i in range(1, n)])


def checkpoint(name_size, n):
    """(.metadata, .distcp): n items of one tensor, each of which refers to its long name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in ("a/data.pkl", b"\x80\x02" + ONE + b"."), ("a/version", b"3\n"), ("a/data/0", bytes(16)): z.writestr(name, data)
    item = out.getvalue()
    make = lambda module, name, state: b"c" + module + b"\n" + name + b"\n)\x81}(" + state + b"ub"
    entries = []
    for i in range(n):
        index = make(b"m", b"I", text(b"fqn") + (text(b"w" * name_size) + b"q\0" if i == 0 else b"h\0") + text(b"offset") + b"N" + text(b"index") + b"N")
        place = make(b"m", b"P", text(b"relative_path") + text(b"__0_0.distcp") + text(b"offset") + b"J" + struct.pack("<i", i * len(item)) +
                     text(b"length") + b"J" + struct.pack("<i", len(item)))
        entries.append(index + place)
    return b"\x80\x02" + make(b"m", b"M", text(b"state_dict_metadata") + b"}" + text(b"storage_data") + b"}(" + b"".join(entries) + b"u") + b".", item * n


def gguf_nested(depth):
    """An array of arrays of arrays."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * depth


def json_header(body):
    return struct.pack("<Q", len(body)) + body


def main(arguments):
    word, numbers = arguments[0], [int(a) for a in arguments[1:] if a.isdigit()]
    if word == "chain":
        os.makedirs(arguments[2], exist_ok=True)
        for k, (data, _) in enumerate(links(numbers[0])):
            with open(os.path.join(arguments[2], "c%06d.lmc" % k), "wb") as file: file.write(data)
        return
    made = {"own": lambda n, blocks=2: segments_of_one_byte(n, blocks), "deep": deep, "names": names}[word](*numbers)
    sys.stdout.buffer.write(made)


if __name__ == "__main__":
    main(sys.argv[1:])
