#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/tables.h"

/* The basic operations of the scalar tier, on eight bytes in a 64-bit word ("SIMD within a
 * register"). Byte 0 is in the lowest bits on every machine: lmc__load64 puts it there. No carry,
 * borrow or shifted bit may get from one byte into the next: where one could, it is masked out.
 *
 * Eight elements are `width` 64-bit words: either each word has 8/width elements in order, or each
 * has the bytes of one plane. Split and join use the same swaps: a transpose is its own inverse. */
LMC__INLINE void lmc__swap_bits(uint64_t *a, uint64_t *b, uint64_t mask, unsigned shift)
{
    uint64_t t = (*a >> shift ^ *b) & mask;
    *b ^= t;
    *a ^= t << shift;
}

/* Bytes where `lower` is 255 change places with the bytes `shift` bits above them. */
LMC__INLINE uint64_t lmc__swap_bytes(uint64_t v, uint64_t lower, unsigned shift)
{
    const uint64_t t = (v ^ v >> shift) & lower;
    return v ^ t ^ t << shift;
}

/* width 4: words {e0 e4}, {e1 e5}, {e2 e6}, {e3 e7} <-> planes 0..3. In each half of the words this
 * transposes 4 by 4 bytes, by swaps in squares of 2 by 2. 21 is byte 1 of element 2:
 *     v[0]   00 01 02 03              00 10 02 12               00 10 20 30
 *     v[1]   10 11 12 13   bytes      01 11 03 13    pairs      01 11 21 31
 *     v[2]   20 21 22 23   ---->      20 30 22 32    ---->      02 12 22 32
 *     v[3]   30 31 32 33              21 31 23 33               03 13 23 33
 *
 * As elements 4 to 7 are in the upper halves, each plane's eight bytes are in order. */
LMC__INLINE void lmc__transpose4(uint64_t *v)
{
    lmc__swap_bits(&v[0], &v[1], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[2], &v[3], 0x00FF00FF00FF00FFu, 8);
    lmc__swap_bits(&v[0], &v[2], 0x0000FFFF0000FFFFu, 16);
    lmc__swap_bits(&v[1], &v[3], 0x0000FFFF0000FFFFu, 16);
}

/* width 8: words e0 .. e7 <-> planes 0..7. Transposes four squares of 4 by 4; then the two squares
 * that are not on the diagonal change places. */
LMC__INLINE void lmc__transpose8(uint64_t *v)
{
    int i;
    lmc__transpose4(v);
    lmc__transpose4(v + 4);
    for (i = 0; i < 4; i++) lmc__swap_bits(&v[i], &v[i + 4], 0x00000000FFFFFFFFu, 32);
}

/* width 2: words {e0 e1 e4 e5}, {e2 e3 e6 e7} <-> planes 0, 1. In each half the two bytes in the
 * middle change places, then pairs of bytes; the inverse begins with the pairs:
 *     v[0]   00 01 10 11   bytes      00 10 01 11    pairs      00 10 20 30
 *     v[1]   20 21 30 31   ---->      20 30 21 31    ---->      01 11 21 31 */
#define LMC__MIDDLE_BYTES 0x0000FF000000FF00u

/* Turns the elements of a word into their residuals against 0, and back (spec 5.1): a rotation by
 * one bit. With order INTEGER, the bits below the sign of negative elements are flipped before the
 * rotation. The whole word is shifted, and bits that come from a neighbour are masked out. A
 * product without carries copies a sign to all bits below it. */
LMC__INLINE uint64_t lmc__flip_negative(uint64_t v, unsigned width)
{
    const uint64_t all = ~(uint64_t)0 >> (64 - 8 * width), lowest = ~(uint64_t)0 / all;
    return v ^ ((v >> (8 * width - 1) & lowest) * (all >> 1));
}
#ifndef LMC_NO_ENCODER
LMC__INLINE uint64_t lmc__to_residuals(uint64_t v, unsigned width, enum lmc__order order)
{
    const uint64_t lowest = ~(uint64_t)0 / (~(uint64_t)0 >> (64 - 8 * width));
    if (order == LMC__ORDER_NONE) return v;
    if (order == LMC__ORDER_INTEGER) v = lmc__flip_negative(v, width);
    return (v << 1 & ~lowest) | (v >> (8 * width - 1) & lowest);
}
#endif
LMC__INLINE uint64_t lmc__from_residuals(uint64_t r, unsigned width, enum lmc__order order)
{
    const uint64_t highest = ~(uint64_t)0 / (~(uint64_t)0 >> (64 - 8 * width)) << (8 * width - 1);
    if (order == LMC__ORDER_NONE) return r;
    r = (r >> 1 & ~highest) | (r << (8 * width - 1) & highest);
    return order == LMC__ORDER_INTEGER ? lmc__flip_negative(r, width) : r;
}

#ifndef LMC_NO_ENCODER
/* v[p] = bytes of plane p of the residuals of the eight elements at src, which is read exactly. */
LMC__INLINE void lmc__split8(uint64_t v[8], const uint8_t *src, unsigned width,
                             enum lmc__order order)
{
    unsigned i;
    for (i = 0; i < width; i++)
        v[i] = width == 2 || width == 4
                   ? lmc__load32(src + 4 * i) | (uint64_t)lmc__load32(src + 4 * (width + i)) << 32
                   : lmc__load64(src + 8 * i);
    for (i = 0; i < width; i++) v[i] = lmc__to_residuals(v[i], width, order);
    if (width == 2) {
        for (i = 0; i < 2; i++) v[i] = lmc__swap_bytes(v[i], LMC__MIDDLE_BYTES, 8);
        lmc__swap_bits(&v[0], &v[1], 0x0000FFFF0000FFFFu, 16);
    }
    if (width == 4) lmc__transpose4(v);
    if (width == 8) lmc__transpose8(v);
}
#endif

/* From v[p], the bytes of plane p, to the eight elements at dst. v is overwritten. */
LMC__INLINE void lmc__join8(uint8_t *dst, uint64_t v[8], unsigned width, enum lmc__order order)
{
    unsigned i;
    if (width == 2) {
        lmc__swap_bits(&v[0], &v[1], 0x0000FFFF0000FFFFu, 16);
        for (i = 0; i < 2; i++) v[i] = lmc__swap_bytes(v[i], LMC__MIDDLE_BYTES, 8);
    }
    if (width == 4) lmc__transpose4(v);
    if (width == 8) lmc__transpose8(v);
    for (i = 0; i < width; i++) {
        const uint64_t e = lmc__from_residuals(v[i], width, order);
        if (width == 2 || width == 4) {
            lmc__store32(dst + 4 * i, (uint32_t)e);
            lmc__store32(dst + 4 * (width + i), (uint32_t)(e >> 32));
        } else lmc__store64(dst + 8 * i, e);
    }
}

#ifndef LMC_NO_ENCODER
/* Sixteen 16-bit elements, for loops that compilers turn into vector code by themselves. */
LMC__INLINE void lmc__load16x16(uint16_t v[16], const uint8_t *src)
{
#if LMC__LITTLE_ENDIAN
    memcpy(v, src, 32); /* clang 14 does not make a vector load of the loop */
#else
    int i;
    for (i = 0; i < 16; i++) v[i] = lmc__load16(src + 2 * i);
#endif
}
#endif

LMC__INLINE uint64_t lmc__reverse8(uint64_t v) /* the bytes, in the opposite order */
{
    v = (v >> 8 & 0x00FF00FF00FF00FFu) | (v & 0x00FF00FF00FF00FFu) << 8;
    v = (v >> 16 & 0x0000FFFF0000FFFFu) | (v & 0x0000FFFF0000FFFFu) << 16;
    return v >> 32 | v << 32;
}

LMC__INLINE uint64_t lmc__swap_halves(uint64_t v, uint64_t both)
{
    return v ^ ((v ^ (v >> 32 | v << 32)) & both);
}

#ifndef LMC_NO_ENCODER
/* The bytes of v sorted by the bits of m: *zeros*, the bytes whose bit is 0, from the lower end up,
 * in order; *ones* from the upper end down. In three steps some bytes change places with bytes 1,
 * 2, 4 apart, as lmc__sort_swaps says. Here ones are capitals:
 *     v          a B C d E f g H
 *     1 apart    a B C d f E H g
 *     2 apart    a d C B H E f g
 *     4 apart    a d f g H E C B
 *
 * Three steps are enough. After the step with distance n, each block of 2n bytes is a ring. If k
 * zeros are before the block, its zeros are side by side from place k modulo 2n on. Its ones fill
 * the rest, in reverse order. Each step joins two rings of n bytes: the zeros of the second
 * continue those of the first. So of two bytes n apart, exactly one belongs in its lower half. */
LMC__INLINE uint64_t lmc__sort8(uint64_t v, unsigned m)
{
    const uint64_t *swaps = lmc__sort_swaps[m];
    v = lmc__swap_bytes(v, swaps[0], 8);
    v = lmc__swap_bytes(v, swaps[1], 16);
    return lmc__swap_halves(v, swaps[2]);
}
#endif

/* The inverse of lmc__sort8, for the following word. If m has k ones, its upper k bytes come from
 * `ones`, and its other bytes from `zeros`. */
LMC__INLINE uint64_t lmc__unsort8(uint64_t zeros, uint64_t ones, unsigned m)
{
    const uint64_t *swaps = lmc__sort_swaps[m];
    const uint64_t v = lmc__swap_halves(zeros ^ ((zeros ^ ones) & swaps[3]), swaps[2]);
    return lmc__swap_bytes(lmc__swap_bytes(v, swaps[1], 16), swaps[0], 8);
}

#define LMC__ONES8 0x0101010101010101u

#ifndef LMC_NO_ENCODER
/* Bit j of the result: the lowest bit of byte j of v; the other bits of v must be zero. The
 * multiplication shifts byte j to bit 56 + j, and no two terms meet in one bit. */
LMC__INLINE unsigned lmc__collect_bits(uint64_t v)
{
    return (unsigned)(v * 0x0102040810204080u >> 56);
}

/* Bit j of the result: byte j of v >= s, unsigned. Bit 7 of each byte is set in the minuend and
 * clear in the subtrahend, so nothing is borrowed from the next byte. */
LMC__INLINE unsigned lmc__compare8(uint64_t v, uint64_t s_times_ones)
{
    const uint64_t high = 0x80 * LMC__ONES8;
    uint64_t low =
        (v | high) - (s_times_ones & ~high); /* bit 7 of a byte: its low 7 bits >= those of s */
    uint64_t ge = (v & ~s_times_ones) | (~(v ^ s_times_ones) & low);
    return (unsigned)((ge & high) * 0x0002040810204081u >> 56); /* as lmc__collect_bits, of bit 7 */
}
#endif

#if LMC__AVX2_TEXT || LMC__NEON
/* Bits [i, i + 64) of a mask of n bits, i < n and a multiple of 8; bits behind its end are 0. Reads
 * no byte behind the mask: the input may end there. */
LMC__INLINE uint64_t lmc__load_mask(const uint8_t *mask, size_t i, size_t n)
{
    uint8_t bits[8];
    if (n - i >= 64) return lmc__load64(mask + i / 8);
    memset(bits, 0, sizeof bits);
    memcpy(bits, mask + i / 8, (n - i + 7) / 8);
    return lmc__load64(bits);
}

#ifndef LMC_NO_ENCODER
/* Stores the lowest n bits of m, at most 64, as the next bits of a mask; the last byte is filled up
 * with zeros. Writes no byte behind that one. Returns the bits that are stored. */
LMC__INLINE uint64_t lmc__store_mask(uint8_t *mask, uint64_t m, size_t n)
{
    uint8_t bits[8];
    if (n >= 64) {
        lmc__store64(mask, m);
        return m;
    }
    m &= ((uint64_t)1 << n) - 1;
    lmc__store64(bits, m);
    memcpy(mask, bits, (n + 7) / 8);
    return m;
}
#endif
#endif
