"""Calls with random arguments: each gives an exception or a result, never a crash, a hang or wrong data."""

import io
import random
import sys

import lmc_codec as lmc
import numpy as np
import pytest
import torch


def things(rng, weights, tmp_path):
    """Values that a caller might pass."""
    path = tmp_path / "x.lmc"
    if not path.exists():
        with lmc.Writer(path) as w:
            w.add_arrays({"w": weights, "i": np.arange(5)})
    data = lmc.compress(weights)
    bad = bytearray(data)
    bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    closed = lmc.open(path)
    closed.close()
    choices = [
        lambda: None, lambda: True, lambda: -1, lambda: 0, lambda: 1, lambda: 10**30, lambda: -(10**30), lambda: 1.5, lambda: float("nan"),
        lambda: "", lambda: "w", lambda: "BF16", lambda: "F32", lambda: "numpy", lambda: "torch", lambda: "bytes", lambda: "x\0y", lambda: "\ud800",
        lambda: b"", lambda: b"abc", lambda: bytes(1000), lambda: bytearray(50), lambda: memoryview(b"abcdef")[::2], lambda: memoryview(bytearray(64)),
        lambda: data, lambda: bytes(bad), lambda: data[: rng.randrange(len(data))], lambda: path, lambda: str(path), lambda: tmp_path,
        lambda: weights, lambda: weights.copy(), lambda: weights.T, lambda: weights[::2], lambda: weights[:0], lambda: weights.view(np.uint16),
        lambda: np.empty(weights.shape, weights.dtype), lambda: np.zeros(3, np.complex128), lambda: np.array([object()]), lambda: np.float32(3),
        lambda: np.zeros((2,) * 15 + (1,) * 16 + (2,), np.bool_)[..., 0], lambda: np.ma.zeros(3), lambda: np.rec.array([(1, 2.0)]), lambda: np.datetime64("2020"),
        lambda: torch.zeros(3), lambda: torch.zeros(3, 4).T, lambda: torch.zeros(3, device="meta"), lambda: torch.zeros(2).to_sparse(),
        lambda: torch.zeros(3, requires_grad=True), lambda: torch.zeros(3).expand(5, 3), lambda: torch.bfloat16, lambda: np.float32,
        lambda: {}, lambda: {"w": weights}, lambda: {1: 2}, lambda: {"w": None}, lambda: [], lambda: [1, "2"], lambda: (), lambda: (1, 2, 3),
        lambda: slice(None), lambda: ..., lambda: (slice(1, 5), ...), lambda: object(), lambda: len, lambda: (lambda *a: b""), lambda: (lambda *a: None),
        lambda: io.BytesIO(data), lambda: io.BytesIO(b"x"), lambda: io.StringIO("x"), lambda: sys.stdout, lambda: closed,
        lambda: lmc.open(path), lambda: lmc.Base({"w": weights}), lambda: lmc.open(path)._object, lambda: lmc._lmc.Base([]),
        lambda: lmc.Writer(io.BytesIO()), lambda: lmc._lmc.Writer(None, 5000), lambda: weights.view(np.uint16).__dlpack__(),
        lambda: [("w", "BF16", weights.shape, weights)], lambda: [("w", "BF16", (5,), b"abc")], lambda: [("w", "F32", (3, 10**18), 0, 12, None, None)],
        lambda: ["*=bits:8"], lambda: "*=bits:99",
    ]  # fmt: skip
    return choices


FUNCTIONS = [
    "compress", "decompress", "tensor_encode", "tensor_decode", "open", "Reader", "Base", "safe_open", "bound",
]  # fmt: skip
PRIVATE = ["probe", "new_bytes", "prepare", "overlaps", "from_dlpack", "tensor_encode", "tensor_decode", "Base", "Reader", "Writer", "Quantizer"]
KEYWORDS = [
    "base", "dtype", "level", "threads", "out", "progress", "framework", "device", "max_size", "offset", "total_size", "log2_block",
    "size", "where", "max_index_size", "sink", "capacity", "path", "metadata", "tensors", "mode", "mtime_ns", "may_quantize", "read_back",
]  # fmt: skip


def methods(thing):
    return [
        getattr(thing, name)
        for name in dir(thing)
        if (not name.startswith("_") or name in ("__getitem__", "__contains__"))
        and callable(getattr(type(thing), name, None))
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_1000_calls(seed, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    choices = things(rng, weights[:200], tmp_path)
    n_raised = n_returned = 0
    for _ in range(1000):
        arguments = [rng.choice(choices)() for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 5]))]
        keywords = {rng.choice(KEYWORDS): rng.choice(choices)() for _ in range(rng.choice([0, 0, 0, 0, 1, 2]))}
        kind = rng.random()
        if kind < 0.4:
            function = getattr(lmc, rng.choice(FUNCTIONS))
        elif kind < 0.6:
            function = getattr(lmc._lmc, rng.choice(PRIVATE))
        else:
            makers = [
                lambda: lmc.open(tmp_path / "x.lmc"),
                lambda: lmc.open(tmp_path / "x.lmc").get_slice("w"),
                lambda: lmc.open(tmp_path / "x.lmc")._object,
                lambda: lmc.Writer(io.BytesIO()),
                lambda: lmc._lmc.Writer(None, 100_000),
                lambda: lmc.safe_open(tmp_path / "x.lmc", "np"),
            ]
            function = rng.choice(methods(rng.choice(makers)()))
        if getattr(function, "__name__", "") in ("Reader", "open") and any(type(a) in (int, bool) for a in arguments[:1]):
            continue  # a descriptor, which it would own
        try:
            function(*arguments, **keywords)
            n_returned += 1
        except Exception:
            n_raised += 1
    assert n_raised > 500 and n_returned > 10


def test_damaged_files(weights, tmp_path):
    """A thousand damaged inputs: each gives an error of the library, or the right array."""
    rng = random.Random(3)
    small = weights[:100]
    data = lmc.compress(small)
    delta = lmc.compress(np.ascontiguousarray(small[::-1]), small)
    for i in range(1000):
        bad = bytearray(data if i % 2 else delta)
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(len(bad))
            bad[at] = rng.randrange(256)
        if rng.random() < 0.2:
            del bad[rng.randrange(len(bad)) :]
        try:
            back = lmc.decompress(bad, None if i % 2 else small)
        except lmc.LMCError:
            continue
        assert back.tobytes() == (small if i % 2 else small[::-1]).tobytes()
