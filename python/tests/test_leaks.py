"""After any call of the extension, with or without an error, memory and reference counts are as before. LMC_ROUNDS=10000
makes that many rounds of each call."""

import ctypes
import gc
import io
import os
import sys

import lmc_codec as lmc
import numpy as np
import pytest

_lmc = lmc._lmc
ROUNDS = int(os.environ.get("LMC_ROUNDS", "100"))
N = 3000  # bytes of the tensor
DATA = (np.arange(N) % 7).astype(np.uint8).tobytes()
BASE = DATA[:1000] + bytes(500) + DATA[1500:]
TENSOR = ("w", "U8", (N,), 0, N, None, None)


class Failed(Exception):
    pass


def fail(*arguments):
    raise Failed


def write(sink=None, capacity=100_000, n=N, tensors=(TENSOR,), **options):
    w = _lmc.Writer(sink, capacity, **options)
    w.begin_file("f", N, tensors)
    w.write(DATA[:n], "w")
    w.end_file()
    w.add_metadata("key", b"value")
    return w.finish()


def bit_flipped(data, at):
    bad = bytearray(data)
    bad[at] ^= 1
    return bytes(bad)


PLAIN = bytes(write()[0])
TWO = bytes(write(content_hashes=True)[0])
DELTA = bytes(write(base=_lmc.Base([("w", "U8", (N,), BASE)]))[0])
CODED = bytes(_lmc.tensor_encode(DATA, "U8"))
MIDDLE = len(PLAIN) // 4
FLAT = np.zeros(10, np.uint16)


def from_python(data, is_short=False, fails_after=10**9):
    n = 0

    def read(offset, size):
        nonlocal n
        n += 1
        if n > fails_after:
            raise Failed
        return data[offset : offset + size - is_short]

    return read


def reader(data=PLAIN, **options):
    return _lmc.Reader(data, **options)


def read(r, size=N):
    out = bytearray(size)
    r.read(0, 0, out, "w")
    assert out == DATA


def box(r, *arguments):
    out = bytearray(20)
    r.read_box(0, 0, 1, *arguments, out, "w")
    return out


def base_gone(r):
    r.close()
    write(base=r)


def aborted():
    w = _lmc.Writer(None, 1000)
    w.abort()
    w.begin_file("f", N, [])


def abandoned(**options):
    w = _lmc.Writer(None, 100_000, **options)
    w.begin_file("f", N, [TENSOR])
    w.write(DATA[:100])


def callback_uses_its_reader():
    r = None

    def read_at(offset, size):
        if r is not None:
            r.info()
        return PLAIN[offset : offset + size]

    r = reader(read_at, size=len(PLAIN))
    read(r)


def copied(number=0):
    w = _lmc.Writer(None, 100_000)
    w.copy_file(reader(), number)
    return w.finish()


def quantizer(bits=8, **options):
    return _lmc.Quantizer(np.linspace(-1, 1, 2000, dtype=np.float32), "F32", 0, bits, 0, 0, 0.0, **options)


def quantized(q):
    data = np.linspace(-1, 1, 2000, dtype=np.float32)
    w = _lmc.Writer(None, 100_000, may_quantize=True)
    w.begin_file("f", data.nbytes, [("w", "F32", data.shape, 0, data.nbytes, q, None)])
    w.write(data)
    w.end_file()
    return w.finish()


def into_pipe():
    r, w = os.pipe()
    os.close(r)
    write(_lmc.Descriptor(lambda: w))


def from_a_file(is_closed):
    r, w = os.pipe()  # a pipe cannot be read at an offset
    os.close(w)
    file = _lmc.Descriptor(lambda: r)
    if is_closed:
        file.close()
    reader(file, size=1000)


def capsule(is_used=False):
    made = FLAT.__dlpack__()
    _lmc.from_dlpack(made)
    if is_used:
        _lmc.from_dlpack(made)


def capsule_of(code):
    """The capsule with another code for its dtype."""
    made = FLAT.__dlpack__()
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    address = ctypes.pythonapi.PyCapsule_GetPointer(ctypes.py_object(made), b"dltensor")
    ctypes.c_uint8.from_address(address + 20).value = code  # the code is after data, device and rank
    _lmc.from_dlpack(made)


def base(name="w", dtype="U8", shape=(N,), buffer=BASE):
    return _lmc.Base([(name, dtype, shape, buffer)])


CASES = {  # what is called, what it raises
    "dtypes, versions": (lambda: (_lmc.dtypes(), _lmc.versions()), None),
    "probe": (lambda: _lmc.probe(DELTA, 0, None), None),
    "list of a series": (lambda: _lmc.series_text(b'{"lmc_series": 1, "every": 1, "snapshots": []}', False), None),
    "list that is none": (lambda: _lmc.series_text(b'{"lmc_series": 1, "every": 1, "snapshots": [{}]}', False), ValueError),
    "name of a snapshot": (lambda: [_lmc.is_snapshot_name(x) for x in ("a", ".", "\0", "\udc80", "\ud800")], None),
    "name that is no str": (lambda: _lmc.is_snapshot_name(7), TypeError),
    "steps": (lambda: _lmc.sort_series("a\nb", b"\3\0", 1), None),
    "steps of too few names": (lambda: _lmc.sort_series("a", b"\1\1\1", 1), None),
    "steps of none": (lambda: _lmc.sort_series(b"a", None, 1), TypeError),
    "chains": (lambda: _lmc.measure_chains(b"x" * 16 + b"y" * 16, bytes(16) + b"x" * 16), None),
    "chains of odd sizes": (lambda: _lmc.measure_chains(b"x" * 31, bytes(17)), None),
    "probe of none": (lambda: _lmc.probe(b"x" * 100, 0, None), lmc.LMCError),
    "overlaps": (lambda: _lmc.overlaps(DATA, DATA), None),
    "overlaps of none": (lambda: _lmc.overlaps(DATA, 3), TypeError),
    "new_bytes": (lambda: _lmc.new_bytes(10), None),
    "new_bytes below zero": (lambda: _lmc.new_bytes(-1), ValueError),
    "new_bytes too many": (lambda: _lmc.new_bytes(2**62), MemoryError),
    "prepare": (lambda: _lmc.prepare(bytearray(5 << 20)), None),
    "prepare what is read-only": (lambda: _lmc.prepare(b"x"), TypeError),
    "Memory": (lambda: bytes(_lmc.Memory(FLAT.ctypes.data, 20, True, FLAT)), None),
    "Memory of nothing": (lambda: _lmc.Memory(0, 20, True, FLAT), ValueError),
    "from_dlpack": (capsule, None),
    "from_dlpack twice": (lambda: capsule(True), ValueError),
    "from_dlpack of strides": (lambda: _lmc.from_dlpack(np.zeros((4, 4)).T.__dlpack__()), ValueError),
    "from_dlpack of complex": (lambda: _lmc.from_dlpack(np.zeros(2, np.complex128).__dlpack__()), None),
    "from_dlpack of what is not known": (lambda: capsule_of(99), TypeError),
    "tensor_encode": (lambda: _lmc.tensor_encode(DATA, "U8", threads=2), None),
    "tensor_encode, out": (lambda: _lmc.tensor_encode(DATA, "U8", BASE, bytearray(5000)), None),
    "tensor_encode, small out": (lambda: _lmc.tensor_encode(DATA, "U8", None, bytearray(50)), lmc.LMCError),
    "tensor_encode, out refused": (lambda: _lmc.tensor_encode(DATA, "U8", None, b"x"), BufferError),
    "tensor_encode, no dtype": (lambda: _lmc.tensor_encode(DATA, "U9"), ValueError),
    "tensor_encode, threads": (lambda: _lmc.tensor_encode(DATA, "U8", threads=0), ValueError),
    "tensor_encode, base": (lambda: _lmc.tensor_encode(DATA, "U8", BASE[1:]), lmc.LMCError),
    "tensor_decode": (lambda: _lmc.tensor_decode(CODED, bytearray(N)), None),
    "tensor_decode, damaged": (lambda: _lmc.tensor_decode(bit_flipped(CODED, 40), bytearray(N)), lmc.LMCError),
    "tensor_decode, range": (lambda: _lmc.tensor_decode(CODED, bytearray(N), offset=-1), ValueError),
    "tensor_size": (lambda: _lmc.tensor_size(CODED), None),
    "tensor_size, cut": (lambda: _lmc.tensor_size(CODED[:-1]), lmc.LMCError),
    "Base": (lambda: base().fingerprint, None),
    "Base, no tuple": (lambda: _lmc.Base([1]), TypeError),
    "Base, no sequence": (lambda: _lmc.Base(3), TypeError),
    "Base, name": (lambda: base(7), TypeError),
    "Base, size": (lambda: base(dtype="U16"), ValueError),
    "Base, shape": (lambda: base(shape=(-1,)), OverflowError),
    "Base, buffer": (lambda: base(buffer=5), TypeError),
    "Descriptor": (lambda: _lmc.Descriptor(os.open, os.devnull, os.O_RDONLY, temporary="none").close(), None),
    "Descriptor, none": (lambda: _lmc.Descriptor(os.open, "none", os.O_RDONLY), OSError),
    "Descriptor, no number": (lambda: _lmc.Descriptor(str), TypeError),
    "Descriptor, another number": (lambda: _lmc.Descriptor(lambda: -5), ValueError),
    "Caught": (lambda: _lmc.Caught(len, [])("abc"), None),
    "Caught error": (lambda: _lmc.Caught(fail, [])(), Failed),
    "Reader": (lambda: read(reader(threads=2)), None),
    "Reader of Python": (lambda: read(reader(from_python(PLAIN), size=len(PLAIN))), None),
    "Reader, tables": (
        lambda: [
            x()
            for r in [reader(TWO)]
            for x in (r.info, r.archives, r.metadata, r.snapshot_hash, lambda: (r.file(0), r.file_path(0), r.find("w", None)))
        ],
        None,
    ),
    "Reader, ranges": (lambda: (reader().encoded_size(0, 0, N), reader().encoded_range(0, 0, N), reader(TWO).content_hash(0, 0)), None),
    "Reader, delta": (lambda: read(reader(DELTA, base=base())), None),
    "Reader, delta of a reader": (lambda: reader(DELTA, base=reader()), lmc.WrongBaseError),
    "Reader, no base": (lambda: read(reader(DELTA)), lmc.MissingBaseError),
    "Reader, base of another kind": (lambda: reader(DELTA, base=7), TypeError),
    "Reader, damaged": (lambda: read(reader(bit_flipped(PLAIN, MIDDLE))), lmc.LMCError),
    "Reader, cut": (lambda: reader(PLAIN[:-5]), lmc.LMCError),
    "Reader, limit": (lambda: reader(max_total_size=10), lmc.LimitError),
    "Reader, read() raises at once": (lambda: reader(fail, size=1000), Failed),
    "Reader, read() raises later": (lambda: read(reader(from_python(PLAIN, fails_after=1), size=len(PLAIN))), Failed),
    "Reader, read() is short": (lambda: reader(from_python(PLAIN, True), size=len(PLAIN)), OSError),
    "Reader, read() gives no bytes": (lambda: reader(lambda *x: 5, size=1000), TypeError),
    "Reader of a pipe": (lambda: from_a_file(False), OSError),
    "Reader of what is closed": (lambda: from_a_file(True), OSError),
    "Reader, no such file": (lambda: reader().file(1), IndexError),
    "Reader, no such tensor": (lambda: reader().find("x", None), KeyError),
    "Reader, no such range": (lambda: reader().encoded_range(0, N, 1), lmc.LMCError),
    "Reader, no hash": (lambda: reader().content_hash(0, 0), lmc.LMCError),
    "Reader, out is read-only": (lambda: reader().read(0, 0, b"x", None), TypeError),
    "Reader, out too large": (lambda: read(reader(), N + 1), lmc.LMCError),
    "Reader, box": (lambda: box(reader(), (N,), (5,), (20,)), None),
    "Reader, no box": (lambda: box(reader(), (N,), (N - 1,), (20,)), ValueError),
    "Reader, box of no numbers": (lambda: box(reader(), ("x",), (1,), (20,)), TypeError),
    "Reader, closed": (lambda: [x() for r in [reader()] for x in (r.close, r.info)], ValueError),
    "Reader, a callback uses it": (callback_uses_its_reader, RuntimeError),
    "Writer": (write, None),
    "Writer, threads": (lambda: write(threads=2, level=2, progress=lambda n: None), None),
    "Writer, buffer": (lambda: write(bytearray(10_000)), None),
    "Writer, callable": (lambda: write(io.BytesIO().write), None),
    "Writer, callable fails": (lambda: write(fail), Failed),
    "Writer, progress fails": (lambda: write(progress=fail), Failed),
    "Writer, small buffer": (lambda: write(bytearray(100)), lmc.LMCError),
    "Writer, closed pipe": (into_pipe, OSError),
    "Writer, sink": (lambda: write(-5), TypeError),
    "Writer, level": (lambda: write(level=9), ValueError),
    "Writer, base": (lambda: write(base=7), TypeError),
    "Writer, base is gone": (lambda: base_gone(reader()), ValueError),
    "Writer, base is damaged": (lambda: write(base=reader(bit_flipped(PLAIN, MIDDLE))), lmc.LMCError),
    "Writer, too few bytes": (lambda: write(n=5), lmc.LMCError),
    "Writer, tensors": (lambda: write(tensors=[1]), TypeError),
    "Writer, tensor's size": (lambda: write(tensors=[("w", "U16", (N,), 0, N, None, None)]), ValueError),
    "Writer, no quantizer": (lambda: write(tensors=[(*TENSOR[:5], 1, None)]), TypeError),
    "Writer, no twin": (lambda: write(tensors=[(*TENSOR[:6], 1)]), TypeError),
    "Writer, twin": (lambda: write(tensors=[(*TENSOR[:6], (0, 0, 0))], base=base()), None),
    "Writer, aborted": (aborted, lmc.LMCError),
    "Writer, abandoned": (lambda: abandoned(base=base(), threads=2), None),
    "Writer, copies": (copied, None),
    "Writer, copies none": (lambda: copied(3), lmc.LMCError),
    "Quantizer": (lambda: (quantized(quantizer()), quantizer().info()), None),
    "Quantizer, bits": (lambda: quantizer(bits=99), lmc.LMCError),
    "Quantizer, second": (lambda: quantizer(second=5), TypeError),
    "Quantizer of bytes": (lambda: _lmc.Quantizer(DATA, "U8", 0, 8, 0, 0, 0.0).info(), None),
    "compress": (lambda: lmc.decompress(lmc.compress(FLAT)), None),
    "decompress, base": (lambda: lmc.decompress(DELTA), lmc.MissingBaseError),
    "open, file fails": (lambda: lmc.open(io.StringIO("x")), Exception),
    "open, slice": (lambda: [r.get_slice("w", framework="bytes")[5:9] for r in [lmc.open(PLAIN)]], None),
    "open, no tensor": (lambda: [r.get("x") for r in [lmc.open(PLAIN)]], KeyError),
    "open, slice too far": (lambda: [r.get_slice("w", framework="bytes")[N + 5] for r in [lmc.open(PLAIN)]], IndexError),
}  # fmt: skip


def call(function, raises):
    if raises is None:
        function()
        return
    try:
        function()
    except raises:
        return
    raise AssertionError(f"no {raises}")


class MallInfo(ctypes.Structure):
    _fields_ = [(x, ctypes.c_size_t) for x in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def allocated():
    """Bytes of the C library's malloc (0: unknown), blocks of Python's allocator, reference counts of objects that many
    calls share."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        n = 0
    else:
        mallinfo.restype = MallInfo
        info = mallinfo()
        n = info.uordblks + info.hblkhd
    shared = [DATA, BASE, PLAIN, DELTA, TWO, CODED, FLAT, fail, TENSOR, lmc._errors, Failed]
    shared += [_lmc.Base, _lmc.Reader, _lmc.Writer, _lmc.Memory, _lmc.Quantizer, lmc.LMCError, lmc.MissingBaseError]
    return n, sys.getallocatedblocks(), [sys.getrefcount(x) for x in shared]


def grown(function, raises):
    """What ROUNDS calls leave behind: bytes, blocks, references."""
    gc.collect()
    before = allocated()
    for _ in range(ROUNDS):
        call(function, raises)
    gc.collect()
    after = allocated()
    return after[0] - before[0], after[1] - before[1], sum(abs(x - y) for x, y in zip(before[2], after[2]))


def test_nothing_is_kept():
    gc.collect()
    gc.freeze()  # collections take less
    gc.disable()
    try:
        call(lambda: None, None)
        nothing = max(grown(lambda: None, None)[1] for _ in range(3))  # blocks that counting itself takes
        for name, (function, raises) in CASES.items():
            for _ in range(3):  # the first calls fill caches
                call(function, raises)
            seen = []
            for _ in range(4):  # a leak shows each time
                seen.append(grown(function, raises))
                n_bytes, n_blocks, n_kept = seen[-1]
                if n_bytes < 16 * ROUNDS and n_blocks - nothing < ROUNDS and n_kept < ROUNDS:
                    break
            else:
                raise AssertionError(f"{name}: bytes, blocks, references that {ROUNDS} calls keep: {seen}")
    finally:
        gc.enable()
        gc.unfreeze()
