"""Codes with scales: blocks of Layout 5 (codes.md). SPDX-License-Identifier: MIT"""
import struct

from lmc_decode import bf16_of_f32, f16_of_f32, read_list, require

INTEGERS = 7                                   # Mantissa
MIN_SCALE, MAX_SCALE = 0x00800000, 0x6E000000  # bits of F32: 2^-126, 2^93


def number_of(code, mantissa):
    """A double has the sign of zero, too."""
    if mantissa == INTEGERS:
        return float(code - 256 if code >= 128 else code)
    exponent, m = (code & 0x7F) >> mantissa, code & (1 << mantissa) - 1
    magnitude = float((1 << mantissa | m) << exponent - 1 if exponent else m)
    return -magnitude if code >= 128 else magnitude


def element_of(number, scale, width, half):
    product = struct.unpack("<I", struct.pack("<f", number * struct.unpack("<f", struct.pack("<I", scale))[0]))[0]
    return product if width == 4 else f16_of_f32(product) if half else bf16_of_f32(product)


def read_codes(source, n, width):
    """The bytes of the elements."""
    mantissa, half, group_size, first_group = source.fields("BBII")
    require(2 <= mantissa <= INTEGERS, "Mantissa (K-1)")
    require(half <= (width == 2), "Half (K-2)")
    require(16 <= group_size < 1 << 31, "Group_Size (K-3)")
    require(1 <= first_group <= group_size, "First_Group (K-4)")
    n_groups = 1 + max(0, -(-(n - first_group) // group_size))
    scales = [struct.unpack("<I", bytes(b))[0] for b in zip(*[read_list(source, n_groups) for _ in range(4)])]
    require(all(MIN_SCALE <= scale <= MAX_SCALE for scale in scales), "a scale (K-5)")
    codes, made = read_list(source, n), {}
    data = []
    for i, code in enumerate(codes):
        key = code, scales[(i - first_group) // group_size + 1]
        if key not in made:
            made[key] = element_of(number_of(code, mantissa), key[1], width, half)
        data.append(made[key])
    return struct.pack("<%d%s" % (n, "H" if width == 2 else "I"), *data)
