#pragma once
#include "base/platform.h"

/* Tables and constants of the kernels. tools/tables.py writes this file and derives each number;
 * change them there. A mask m is a byte: bit i is for byte i of eight bytes. Words hold their
 * byte 0 in the lowest bits. */

/* clang-format off */
/* Facts about each value x of half a mask, four bits: N, the number of ones; P, their places,
 * without gaps; B, a byte 1 for each one; R, for each bit the number of equal bits before it,
 * plus 16 for ones. LMC__OF_MASKS: f of each m; h and l are the upper and lower half of m, H and
 * L are the halves of ~m. */
enum {
    LMC__N0 = 0, LMC__P0 = 0, LMC__B0 = 0, LMC__R0 = 0x3020100, LMC__N1 = 1, LMC__P1 = 0,
    LMC__B1 = 1, LMC__R1 = 0x2010010, LMC__N2 = 1, LMC__P2 = 1, LMC__B2 = 0x100,
    LMC__R2 = 0x2011000, LMC__N3 = 2, LMC__P3 = 0x100, LMC__B3 = 0x101, LMC__R3 = 0x1001110,
    LMC__N4 = 1, LMC__P4 = 2, LMC__B4 = 0x10000, LMC__R4 = 0x2100100, LMC__N5 = 2,
    LMC__P5 = 0x200, LMC__B5 = 0x10001, LMC__R5 = 0x1110010, LMC__N6 = 2, LMC__P6 = 0x201,
    LMC__B6 = 0x10100, LMC__R6 = 0x1111000, LMC__N7 = 3, LMC__P7 = 0x20100, LMC__B7 = 0x10101,
    LMC__R7 = 0x121110, LMC__N8 = 1, LMC__P8 = 3, LMC__B8 = 0x1000000, LMC__R8 = 0x10020100,
    LMC__N9 = 2, LMC__P9 = 0x300, LMC__B9 = 0x1000001, LMC__R9 = 0x11010010, LMC__N10 = 2,
    LMC__P10 = 0x301, LMC__B10 = 0x1000100, LMC__R10 = 0x11011000, LMC__N11 = 3,
    LMC__P11 = 0x30100, LMC__B11 = 0x1000101, LMC__R11 = 0x12001110, LMC__N12 = 2,
    LMC__P12 = 0x302, LMC__B12 = 0x1010000, LMC__R12 = 0x11100100, LMC__N13 = 3,
    LMC__P13 = 0x30200, LMC__B13 = 0x1010001, LMC__R13 = 0x12110010, LMC__N14 = 3,
    LMC__P14 = 0x30201, LMC__B14 = 0x1010100, LMC__R14 = 0x12111000, LMC__N15 = 4,
    LMC__P15 = 0x3020100, LMC__B15 = 0x1010101, LMC__R15 = 0x13121110
};
#define LMC__OF_LOW(f, h, H) \
    f(h, H, 0, 15), f(h, H, 1, 14), f(h, H, 2, 13), f(h, H, 3, 12), f(h, H, 4, 11), \
    f(h, H, 5, 10), f(h, H, 6, 9), f(h, H, 7, 8), f(h, H, 8, 7), f(h, H, 9, 6), \
    f(h, H, 10, 5), f(h, H, 11, 4), f(h, H, 12, 3), f(h, H, 13, 2), f(h, H, 14, 1), \
    f(h, H, 15, 0)
#define LMC__OF_MASKS(f) \
    {LMC__OF_LOW(f, 0, 15), LMC__OF_LOW(f, 1, 14), LMC__OF_LOW(f, 2, 13), LMC__OF_LOW(f, 3, 12), \
     LMC__OF_LOW(f, 4, 11), LMC__OF_LOW(f, 5, 10), LMC__OF_LOW(f, 6, 9), LMC__OF_LOW(f, 7, 8), \
     LMC__OF_LOW(f, 8, 7), LMC__OF_LOW(f, 9, 6), LMC__OF_LOW(f, 10, 5), LMC__OF_LOW(f, 11, 4), \
     LMC__OF_LOW(f, 12, 3), LMC__OF_LOW(f, 13, 2), LMC__OF_LOW(f, 14, 1), LMC__OF_LOW(f, 15, 0)}

/* Number of one bits of m. */
#define LMC__ONES_OF(h, H, l, L) LMC__N##h + LMC__N##l
static const uint8_t lmc__ones[256] = LMC__OF_MASKS(LMC__ONES_OF);

/* 256 numbers: number m is the exclusive or of those arguments, a to h, whose bits are set in m.
 * */
#define LMC__OF_2(v, a) v, v ^ a
#define LMC__OF_4(v, a, b) LMC__OF_2(v, a), LMC__OF_2(v ^ b, a)
#define LMC__OF_8(v, a, b, c) LMC__OF_4(v, a, b), LMC__OF_4(v ^ c, a, b)
#define LMC__OF_32(v, a, b, c, d, e) \
    LMC__OF_8(v, a, b, c), LMC__OF_8(v ^ d, a, b, c), \
    LMC__OF_8(v ^ e, a, b, c), LMC__OF_8(v ^ e ^ d, a, b, c)
#define LMC__OF_128(v, a, b, c, d, e, f, g) \
    LMC__OF_32(v, a, b, c, d, e), LMC__OF_32(v ^ f, a, b, c, d, e), \
    LMC__OF_32(v ^ g, a, b, c, d, e), LMC__OF_32(v ^ g ^ f, a, b, c, d, e)
#define LMC__OF_BITS(a, b, c, d, e, f, g, h) \
    {LMC__OF_128(0, a, b, c, d, e, f, g), LMC__OF_128(h, a, b, c, d, e, f, g)}

/* Byte i is 255 if bit i of m is set, else 0. */
static const uint64_t lmc__byte_mask[256] =
    LMC__OF_BITS(255,0xFF00,0xFF0000,0xFF000000,0xFF00000000,0xFF0000000000,0xFF000000000000,
                 0xFF00000000000000);

/* [m][0], [1], [2]: the bytes of a word that change places with bytes 1, 2, 4 places above them
 * when lmc__sort8 sorts it by m; [2] has both bytes of a pair. Let m have u ones, modulo 2 n,
 * before the middle of a block of 2 n bytes. Then these are the last u bytes of the block's lower
 * half or, if u > n, the first 2 n - u bytes. [3]: the upper k bytes, if m has k ones. */
#define LMC__SWAPS(n, u) \
    (UINT64_MAX >> (64 - 8 * n) << 8 * n >> 8 * ((u) % (2 * n)) & UINT64_MAX >> (64 - 8 * n))
#define LMC__OF_PAIR(x) ((LMC__B##x + (LMC__B##x >> 8)) & 3)
#define LMC__SORT_SWAPS(h, H, l, L) \
    {((LMC__B##l | (uint64_t)LMC__B##h << 32) * UINT64_C(0x0101010101010101) & \
      UINT64_C(0x0001000100010001)) * 255, \
     LMC__SWAPS(2, LMC__OF_PAIR(l)) | LMC__SWAPS(2, LMC__N##l + LMC__OF_PAIR(h)) << 32, \
     LMC__SWAPS(4, LMC__N##l) * UINT64_C(0x100000001), \
     UINT64_MAX << 8 * (4 - LMC__N##l) << 8 * (4 - LMC__N##h)}
static const uint64_t lmc__sort_swaps[256][4] = LMC__OF_MASKS(LMC__SORT_SWAPS);

#if LMC__AVX2_TEXT || LMC__NEON
/* [m]: the places of the zero bits of m, then those of its one bits: eight bytes each, without
 * gaps, the rest 0. A shuffle by them sorts eight bytes. */
#define LMC__PLACES(h, l) \
    (LMC__P##l | (LMC__P##h + 4 * (UINT64_C(0x01010101) >> (32 - 8 * LMC__N##h))) << 8 * LMC__N##l)
#define LMC__SORT_PLACES(h, H, l, L) {LMC__PLACES(H, L), LMC__PLACES(h, l)}
static const uint64_t lmc__sort_places[256][2] = LMC__OF_MASKS(LMC__SORT_PLACES);
#endif

#if LMC__NEON
/* Where the bytes of a merge come from: places 0 .. 15 are of the left list, 16 .. 31 of the
 * right one. low[m]: 0, 1, ... where m has zeros, 16, 17, ... where it has ones. high[m] is for
 * the second of two bytes of a mask, where the first has c ones: |high - c|, of signed bytes, is
 * 8 - c, 9 - c, ... for zeros, 16 + c, 17 + c, ... for ones. So high is 8 more than low for
 * zeros, -low for ones. */
#define LMC__MERGE_LOW(h, H, l, L) \
    (LMC__R##l | \
     (uint64_t)(LMC__R##h + LMC__N##l * LMC__B##h + (4 - LMC__N##l) * LMC__B##H) << 32)
#define LMC__MERGE_HIGH(h, H, l, L) \
    ((LMC__MERGE_LOW(h, H, l, L) ^ (LMC__B##l | (uint64_t)LMC__B##h << 32) * 255) + \
     (LMC__B##l | (uint64_t)LMC__B##h << 32) + 8 * (LMC__B##L | (uint64_t)LMC__B##H << 32))
static const uint64_t lmc__merge_low[256] = LMC__OF_MASKS(LMC__MERGE_LOW);
static const uint64_t lmc__merge_high[256] = LMC__OF_MASKS(LMC__MERGE_HIGH);
#endif

#if LMC__X86
static const uint8_t lmc__count_up[64] =
    {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,
    35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63};

/* The places of eight rows of eight bytes, column by column. */
static const uint8_t lmc__columns[64] =
    {0,8,16,24,32,40,48,56,1,9,17,25,33,41,49,57,2,10,18,26,34,42,50,58,3,11,19,27,35,43,51,59,4,12,
    20,28,36,44,52,60,5,13,21,29,37,45,53,61,6,14,22,30,38,46,54,62,7,15,23,31,39,47,55,63};

/* Places in two vectors, one behind the other: in turn, the bytes of their lower halves; in turn,
 * those of their upper halves. */
static const uint8_t lmc__in_turn[2][64] =
    {{0,64,1,65,2,66,3,67,4,68,5,69,6,70,7,71,8,72,9,73,10,74,11,75,12,76,13,77,14,78,15,79,16,80,
    17,81,18,82,19,83,20,84,21,85,22,86,23,87,24,88,25,89,26,90,27,91,28,92,29,93,30,94,31,95},{32,
    96,33,97,34,98,35,99,36,100,37,101,38,102,39,103,40,104,41,105,42,106,43,107,44,108,45,109,46,
    110,47,111,48,112,49,113,50,114,51,115,52,116,53,117,54,118,55,119,56,120,57,121,58,122,59,123,
    60,124,61,125,62,126,63,127}};
#endif

/* Constants of CRC-32C, used as crc32c.h says: polynomials over GF(2) modulo the CRC's, whose
 * x^32 is left out. Bit 31 is the coefficient of x^0. */
#define LMC__CRC_POLYNOMIAL 0x82F63B78u

/* [b]: the register after byte b, from register 0; that is b times x^8. */
static const uint32_t lmc__crc_table[256] =
    LMC__OF_BITS(0xF26B8303,0xE13B70F7,0xC79A971F,0x8AD958CF,0x105EC76F,0x20BD8EDE,0x417B1DBC,
                 0x82F63B78);

#ifndef LMC_NO_SNAPSHOT
/* [i]: x^(8 * 2^i). Each is the square of the one before; the first is the square of the last. */
static const uint32_t lmc__crc_powers[31] =
    {0x800000,0x8000,0x82F63B78,0x6EA2D55C,0x18B8EA18,0x510AC59A,0xB82BE955,0xB8FDB1E7,0x88E56F72,
    0x74C360A4,0xE4172B16,0xD65762A,0x35D73A62,0x28461564,0xBF455269,0xE2EA32DC,0xFE7740E6,
    0xF946610B,0x3C204F8F,0x538586E3,0x59726915,0x734D5309,0xBC1AC763,0x7D0722CC,0xD289CABE,
    0xE94CA9BC,0x5B74F3F,0xA51E1F42,0x40000000,0x20000000,0x8000000};
#endif

/* Bytes of a lane, where a CRC is computed in four lanes at once, which fill a strip
 * (LMC__STRIP_SIZE, strip.h). LANE4_SHIFTj is x^(8 j LANE4 - 33). */
#define LMC__CRC_LANE4 2048u
#define LMC__CRC_LANE4_SHIFT1 0xA51B6135
#define LMC__CRC_LANE4_SHIFT2 0x82F89C77
#define LMC__CRC_LANE4_SHIFT3 0xB9D68D49

#if LMC__X86
/* Factors that fold 16 bytes over a distance of d bytes: x^(8 d + 31) for the first eight, x^(8 d
 * - 33) for the others; x^-1 is in bit 32. [i]: d = 64 * 2^i. */
static const uint64_t lmc__crc_folds[4][2] =
    {{0x740EEF02,0x9E4ADDF8},{0x6992CEA2,0xD3B6092},{0xDCB17AA4,0xB9E02B86},{0xBD6F81F8,
    0xDD7E3B0C}};

/* The same for d = 48, 32, 16, one after the other, then zeros. */
static const uint64_t lmc__crc_fold_last[8] =
    {0x1C291D04,0x1D82C63DA,0x1384AA63A,0xBA4FC28E,0xF20C0DFE,0x14CD00BD6,0,0};
#endif

/* clang-format on */
