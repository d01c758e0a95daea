#!/usr/bin/env python3
"""Writes src/kernels/tables.h: the tables and constants of the kernels.

  tools/tables.py           writes src/kernels/tables.h
  tools/tables.py --check   fails if the file is not what this script makes

Most tables are plain numbers: macros that derive them would expand to a megabyte. If entry a ^ b is
entry a ^ entry b, macros derive a table from 8 of its 256 entries. Tables about masks are derived
from 16 facts about their halves of four bits. The file says what each table means; a function here
computes it.
"""
import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(TOP, "src", "kernels", "tables.h")

HEAD = """#pragma once
#include "base/platform.h"

/* Tables and constants of the kernels. tools/tables.py writes this file and derives each number;
 * change them there. A mask m is a byte: bit i is for byte i of eight bytes. Words hold their
 * byte 0 in the lowest bits. */

/* clang-format off */
"""


def word(values):
    """Eight bytes as a 64-bit word, the first in the lowest bits."""
    return sum(v << 8 * i for i, v in enumerate(values))


def bits(m):
    """The places of the one bits of a mask, from the lowest on."""
    return [i for i in range(8) if m >> i & 1]


def byte_mask(m):
    return word(255 * (m >> i & 1) for i in range(8))


def of_nibbles():
    """Of each mask of four bits: the number of its ones; their places, packed; a 1 in the bytes of
    the ones; and how many of its kind are before each bit, ones from 16 on."""
    lines = []
    for x in range(16):
        ones = [i for i in range(4) if x >> i & 1]
        ranks = [sum((x >> j & 1) == (x >> i & 1) for j in range(i)) + 16 * (x >> i & 1)
                 for i in range(4)]
        bytes_ = [x >> i & 1 for i in range(4)]
        for name, value in (("N", len(ones)), ("P", word(ones)), ("B", word(bytes_)),
                            ("R", word(ranks))):
            lines.append("LMC__%s%d = %s," % (name, x, hexadecimal(value)))
    lines[-1] = lines[-1][:-1]
    return "enum {\n%s};\n" % fill(lines, " ", "    ", 98)


class Ring:
    """Polynomials over GF(2) modulo that of a CRC, *reflected*: the highest of the bits is the
    coefficient of x^0."""

    def __init__(self, bits, polynomial):
        self.bits = bits
        self.polynomial = polynomial

    def times_x(self, a):
        return a >> 1 ^ (self.polynomial if a & 1 else 0)

    def x_to(self, n):
        a = 1 << (self.bits - 1)
        for _ in range(n):
            a = self.times_x(a)
        return a

    def square(self, a):
        product, power = 0, a
        for i in range(self.bits):
            if a >> (self.bits - 1 - i) & 1:
                product ^= power
            power = self.times_x(power)
        return product

    def squares(self, a, n):
        """a, a^2, a^4, ..."""
        out = [a]
        while len(out) < n:
            out.append(self.square(out[-1]))
        return out

    def table(self):
        table = []
        for c in range(256):
            for _ in range(8):
                c = self.times_x(c)
            table.append(c)
        return table


CRC32C = Ring(32, 0x82F63B78)
LANE4 = 2048


def powers32():
    """x^8, x^16, x^32, ...: x has the order 2^31 - 1, so the 31st squaring gives the first."""
    out = CRC32C.squares(CRC32C.x_to(8), 31)
    assert CRC32C.square(out[-1]) == out[0]
    return out


def fold(d):
    """The factors that fold 16 bytes over a distance of d bytes (crc32c.h); << 1 divides by x."""
    return [CRC32C.x_to(8 * d + 32) << 1, CRC32C.x_to(8 * d - 32) << 1]


def hexadecimal(v):
    return str(v) if v < 256 else "0x%X" % v


def tokens(values):
    """The words of an initialiser: {1, 2} as "{1," and "2}"."""
    if not isinstance(values, list):
        return [hexadecimal(values)]
    out = []
    for v in values:
        out += tokens(v)
        out[-1] += ","
    return ["{" + out[0]] + out[1:-1] + [out[-1].rstrip(",") + "}"]


def fill(words, space, indent, width):
    lines, line = [], indent
    for w in words:
        if len(line) + len(w) + (len(space) if line != indent else 0) > width:
            lines.append(line)
            line = indent
        line += w if line == indent else space + w
    return "\n".join(lines + [line]) + "\n"


def table(kind, name, values):
    words = tokens(values)
    words[-1] += ";"
    return "static const %s %s =\n%s" % (kind, name, fill(words, "", "    ", 100))


NIBBLES = """#define LMC__OF_LOW(f, h, H) \\
    f(h, H, 0, 15), f(h, H, 1, 14), f(h, H, 2, 13), f(h, H, 3, 12), f(h, H, 4, 11), \\
    f(h, H, 5, 10), f(h, H, 6, 9), f(h, H, 7, 8), f(h, H, 8, 7), f(h, H, 9, 6), \\
    f(h, H, 10, 5), f(h, H, 11, 4), f(h, H, 12, 3), f(h, H, 13, 2), f(h, H, 14, 1), \\
    f(h, H, 15, 0)
#define LMC__OF_MASKS(f) \\
    {LMC__OF_LOW(f, 0, 15), LMC__OF_LOW(f, 1, 14), LMC__OF_LOW(f, 2, 13), LMC__OF_LOW(f, 3, 12), \\
     LMC__OF_LOW(f, 4, 11), LMC__OF_LOW(f, 5, 10), LMC__OF_LOW(f, 6, 9), LMC__OF_LOW(f, 7, 8), \\
     LMC__OF_LOW(f, 8, 7), LMC__OF_LOW(f, 9, 6), LMC__OF_LOW(f, 10, 5), LMC__OF_LOW(f, 11, 4), \\
     LMC__OF_LOW(f, 12, 3), LMC__OF_LOW(f, 13, 2), LMC__OF_LOW(f, 14, 1), LMC__OF_LOW(f, 15, 0)}
"""

LINEAR = """#define LMC__OF_2(v, a) v, v ^ a
#define LMC__OF_4(v, a, b) LMC__OF_2(v, a), LMC__OF_2(v ^ b, a)
#define LMC__OF_8(v, a, b, c) LMC__OF_4(v, a, b), LMC__OF_4(v ^ c, a, b)
#define LMC__OF_32(v, a, b, c, d, e) \\
    LMC__OF_8(v, a, b, c), LMC__OF_8(v ^ d, a, b, c), \\
    LMC__OF_8(v ^ e, a, b, c), LMC__OF_8(v ^ e ^ d, a, b, c)
#define LMC__OF_128(v, a, b, c, d, e, f, g) \\
    LMC__OF_32(v, a, b, c, d, e), LMC__OF_32(v ^ f, a, b, c, d, e), \\
    LMC__OF_32(v ^ g, a, b, c, d, e), LMC__OF_32(v ^ g ^ f, a, b, c, d, e)
#define LMC__OF_BITS(a, b, c, d, e, f, g, h) \\
    {LMC__OF_128(0, a, b, c, d, e, f, g), LMC__OF_128(h, a, b, c, d, e, f, g)}

"""


def linear_table(kind, name, values):
    """256 values by those of the 8 bits."""
    entries = [0]
    for value in (values[1 << i] for i in range(8)):
        entries += [e ^ value for e in entries]
    assert entries == values
    words = [hexadecimal(values[1 << i]) + "," * (i < 7) for i in range(8)]
    return "static const %s %s =\n    LMC__OF_BITS(%s);\n" % (
        kind, name, fill(words, "", " " * 17, 98).strip())


def comment(text):
    return "/*" + fill(text.split() + ["*/"], " ", " * ", 98)[2:]


def make():
    masks = range(256)
    parts = [
        HEAD,

        comment("""Facts about each value x of half a mask, four bits: N, the number of ones; P,
                their places, without gaps; B, a byte 1 for each one; R, for each bit the number of
                equal bits before it, plus 16 for ones. LMC__OF_MASKS: f of each m; h and l are the
                upper and lower half of m, H and L are the halves of ~m."""),
        of_nibbles(),
        NIBBLES + "\n",

        comment("Number of one bits of m."),
        "#define LMC__ONES_OF(h, H, l, L) LMC__N##h + LMC__N##l\n",
        "static const uint8_t lmc__ones[256] = LMC__OF_MASKS(LMC__ONES_OF);\n",

        comment("""256 numbers: number m is the exclusive or of those arguments, a to h, whose bits
                are set in m."""),
        LINEAR,

        comment("Byte i is 255 if bit i of m is set, else 0."),
        linear_table("uint64_t", "lmc__byte_mask[256]", [byte_mask(m) for m in masks]),

        comment("""[m][0], [1], [2]: the bytes of a word that change places with bytes 1, 2, 4
                places above them when lmc__sort8 sorts it by m; [2] has both bytes of a pair. Let m
                have u ones, modulo 2 n, before the middle of a block of 2 n bytes. Then these are
                the last u bytes of the block's lower half or, if u > n, the first 2 n - u bytes.
                [3]: the upper k bytes, if m has k ones."""),
        """#define LMC__SWAPS(n, u) \\
    (UINT64_MAX >> (64 - 8 * n) << 8 * n >> 8 * ((u) % (2 * n)) & UINT64_MAX >> (64 - 8 * n))
#define LMC__OF_PAIR(x) ((LMC__B##x + (LMC__B##x >> 8)) & 3)
#define LMC__SORT_SWAPS(h, H, l, L) \\
    {((LMC__B##l | (uint64_t)LMC__B##h << 32) * UINT64_C(0x0101010101010101) & \\
      UINT64_C(0x0001000100010001)) * 255, \\
     LMC__SWAPS(2, LMC__OF_PAIR(l)) | LMC__SWAPS(2, LMC__N##l + LMC__OF_PAIR(h)) << 32, \\
     LMC__SWAPS(4, LMC__N##l) * UINT64_C(0x100000001), \\
     UINT64_MAX << 8 * (4 - LMC__N##l) << 8 * (4 - LMC__N##h)}
""",
        "static const uint64_t lmc__sort_swaps[256][4] = LMC__OF_MASKS(LMC__SORT_SWAPS);\n",

        "#if LMC__AVX2_TEXT || LMC__NEON\n",
        comment("""[m]: the places of the zero bits of m, then those of its one bits: eight bytes
                each, without gaps, the rest 0. A shuffle by them sorts eight bytes."""),
        """#define LMC__PLACES(h, l) \\
    (LMC__P##l | (LMC__P##h + 4 * (UINT64_C(0x01010101) >> (32 - 8 * LMC__N##h))) << 8 * LMC__N##l)
#define LMC__SORT_PLACES(h, H, l, L) {LMC__PLACES(H, L), LMC__PLACES(h, l)}
""",
        "static const uint64_t lmc__sort_places[256][2] = LMC__OF_MASKS(LMC__SORT_PLACES);\n",
        "#endif\n",

        "#if LMC__NEON\n",
        comment("""Where the bytes of a merge come from: places 0 .. 15 are of the left list, 16 ..
                31 of the right one. low[m]: 0, 1, ... where m has zeros, 16, 17, ... where it has
                ones. high[m] is for the second of two bytes of a mask, where the first has c ones:
                |high - c|, of signed bytes, is 8 - c, 9 - c, ... for zeros, 16 + c, 17 + c, ... for
                ones. So high is 8 more than low for zeros, -low for ones."""),
        """#define LMC__MERGE_LOW(h, H, l, L) \\
    (LMC__R##l | \\
     (uint64_t)(LMC__R##h + LMC__N##l * LMC__B##h + (4 - LMC__N##l) * LMC__B##H) << 32)
#define LMC__MERGE_HIGH(h, H, l, L) \\
    ((LMC__MERGE_LOW(h, H, l, L) ^ (LMC__B##l | (uint64_t)LMC__B##h << 32) * 255) + \\
     (LMC__B##l | (uint64_t)LMC__B##h << 32) + 8 * (LMC__B##L | (uint64_t)LMC__B##H << 32))
""",
        "static const uint64_t lmc__merge_low[256] = LMC__OF_MASKS(LMC__MERGE_LOW);\n",
        "static const uint64_t lmc__merge_high[256] = LMC__OF_MASKS(LMC__MERGE_HIGH);\n",
        "#endif\n",

        "#if LMC__X86\n",
        table("uint8_t", "lmc__count_up[64]", list(range(64))),

        comment("""The places of eight rows of eight bytes, column by column."""),
        table("uint8_t", "lmc__columns[64]", [i % 8 * 8 + i // 8 for i in range(64)]),

        comment("""Places in two vectors, one behind the other: in turn, the bytes of their lower
                halves; in turn, those of their upper halves."""),
        table("uint8_t", "lmc__in_turn[2][64]",
              [[i // 2 + i % 2 * 64 for i in range(64)],
               [32 + i // 2 + i % 2 * 64 for i in range(64)]]),
        "#endif\n",

        comment("""Constants of CRC-32C, used as crc32c.h says: polynomials over GF(2) modulo the
                CRC's, whose x^32 is left out. Bit 31 is the coefficient of x^0."""),
        "#define LMC__CRC_POLYNOMIAL 0x%Xu\n\n" % CRC32C.polynomial,

        comment("[b]: the register after byte b, from register 0; that is b times x^8."),
        linear_table("uint32_t", "lmc__crc_table[256]", CRC32C.table()),

        "#ifndef LMC_NO_SNAPSHOT\n",
        comment("""[i]: x^(8 * 2^i). Each is the square of the one before; the first is the square
                of the last."""),
        table("uint32_t", "lmc__crc_powers[31]", powers32()),
        "#endif\n",

        comment("""Bytes of a lane, where a CRC is computed in four lanes at once, which fill a
                strip (LMC__STRIP_SIZE, strip.h). LANE4_SHIFTj is x^(8 j LANE4 - 33)."""),
        "#define LMC__CRC_LANE4 %du\n" % LANE4,
        "".join("#define LMC__CRC_LANE4_SHIFT%d 0x%X\n" % (j, CRC32C.x_to(8 * j * LANE4 - 33))
                for j in (1, 2, 3)) + "\n",

        "#if LMC__X86\n",
        comment("""Factors that fold 16 bytes over a distance of d bytes: x^(8 d + 31) for the first
                eight, x^(8 d - 33) for the others; x^-1 is in bit 32. [i]: d = 64 * 2^i."""),
        table("uint64_t", "lmc__crc_folds[4][2]", [fold(64 << i) for i in range(4)]),
        comment("The same for d = 48, 32, 16, one after the other, then zeros."),
        table("uint64_t", "lmc__crc_fold_last[8]", fold(48) + fold(32) + fold(16) + [0, 0]),
        "#endif\n",

        "/* clang-format on */\n",
    ]
    text = ""
    for part, after in zip(parts, parts[1:] + [""]):  # an empty line behind each table
        text += part
        is_last_table = part.startswith("static") and not after.startswith(("#endif", "static"))
        if is_last_table or part == "#endif\n":
            text += "\n"
    return text


def main():
    text = make()
    if sys.argv[1:] == ["--check"]:
        with open(PATH, encoding="ascii") as f:
            if f.read() != text:
                sys.exit("src/kernels/tables.h is not what tools/tables.py makes")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        with open(PATH, "w", encoding="ascii") as f:
            f.write(text)


if __name__ == "__main__":
    main()
