"""Zeros apart: blocks of Layout 3 (zeros.md). SPDX-License-Identifier: MIT"""
from lmc_decode import deal, read_list, require


def read_apart(source, n, width):
    """The planes of the residuals."""
    mask = int.from_bytes(read_list(source, (n + 7) // 8), "little")
    require(mask >> n == 0, "unused bits of Mask (Z-1)")
    kinds = bytes([mask >> i & 1 for i in range(n)])
    sizes = kinds.count(0), kinds.count(1)
    return [deal(kinds, [read_list(source, size) if size else b"" for size in sizes]) for _ in range(width)]
