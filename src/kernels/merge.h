#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* merge: dst[i] = the next element of left (bit i of mask is 0) or right (1). The inverse of
 * partition, for one node. A side may be a constant. dst is a list, mask is read exactly.
 *
 *     mask   0 1 0 0 1 1 0 1         place in its list   0 0 1 2 1 2 3 3
 *     left   3 4 4 1
 *     right  9 8 9 7
 *     dst    3 9 4 4 8 9 1 7
 *
 * An element's place is the number of mask bits of its kind before it. All tiers find the places of
 * a group of elements from its mask bits, shuffle both sides to them, and choose by the mask.
 *
 * Bounds. The mask decides how far the lists are read; the decoder has counted the mask's ones
 * before, and made lists of that length. A step may read up to 64 bytes behind the end of a list:
 * the list's slack. dst is written in whole groups, too, so it must not overlap the sides. */

/* Eight elements at a time; this defines merge. Arranges the next bytes of both sides as lmc__sort8
 * leaves them (the right side from the upper end down), and undoes the sort. If the left side is
 * the constant, the sides change places and the mask is inverted. Between two constants, l ^ ((l ^
 * r) & ones) is r at the ones. Each step loads 8 bytes of a list, so at most 8 behind its end. */
static void lmc__merge_scalar(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                              lmc__side right)
{
    const uint64_t l = left.value * LMC__ONES8, r = right.value * LMC__ONES8;
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    if (a && b) {
        for (i = 0; i < n; i += 8) {
            const unsigned m = mask[i >> 3], ones = lmc__ones[m];
            lmc__store64(dst + i, lmc__unsort8(lmc__load64(a), lmc__reverse8(lmc__load64(b)), m));
            a += 8 - ones;
            b += ones;
        }
    } else if (a || b) {
        const uint8_t *list = a ? a : b;
        const uint64_t constant = a ? r : l;
        const unsigned invert = a ? 0 : 255;
        for (i = 0; i < n; i += 8) {
            const unsigned m = mask[i >> 3] ^ invert;
            lmc__store64(dst + i, lmc__unsort8(lmc__load64(list), constant, m));
            list += 8 - lmc__ones[m];
        }
    } else {
        for (i = 0; i < n; i += 8)
            lmc__store64(dst + i, l ^ ((l ^ r) & lmc__byte_mask[mask[i >> 3]]));
    }
}

#if LMC__NEON
/* Where the elements of a step of 64 are in two lists. For elements [16 j, 16 j + 16), x has the
 * next 16 bytes of each side, and one look-up picks 16 of these 32; before[j] ones are before them.
 * The tables have the places of eight elements. The places of the second eight depend on c, the
 * number of ones in the first eight. lmc__merge_high stores them so that |high - c| is right for
 * zeros and for ones. counts: ones in each byte of m; ones: the sum of counts up to and including
 * that byte. LMC__PLACES16 is a macro, as clang requires a literal lane number.
 *
 *     place in x      0 ... 15: left, from 16 j - before; 16 ... 31: right, from before
 *     low[m]          0, 1, ... for zeros       16, 17, ... for ones
 *     wanted above    8 - c, 9 - c, ...         16 + c, 17 + c, ...
 *     high[m]         8, 9, ...                 -16, -17, ...         as signed bytes
 *     |high - c|      8 - c, 9 - c, ...         |-16 - c| = 16 + c, ...
 *
 * Returns the ones of m. */
#define LMC__PLACES16(j)                                                                           \
    do {                                                                                           \
        const uint8x8_t low = vcreate_u8(lmc__merge_low[m >> 16 * (j) & 255]);                     \
        const int8x8_t high = vabd_s8(vcreate_s8(lmc__merge_high[m >> (16 * (j) + 8) & 255]),      \
                                      vreinterpret_s8_u8(vdup_lane_u8(counts, 2 * (j))));          \
        places[j] = vcombine_u8(low, vreinterpret_u8_s8(high));                                    \
        before[j] = (j) ? (size_t)(ones >> ((16 * (j) - 8) & 63) & 255) : 0;                       \
    } while (0)
LMC__INLINE size_t lmc__merge_places_neon(uint8x16_t places[4], size_t before[4], uint64_t m)
{
    const uint8x8_t counts = vcnt_u8(vcreate_u8(m));
    const uint64_t ones = vget_lane_u64(vreinterpret_u64_u8(counts), 0) * LMC__ONES8;
    LMC__PLACES16(0);
    LMC__PLACES16(1);
    LMC__PLACES16(2);
    LMC__PLACES16(3);
    return (size_t)(ones >> 56);
}

/* 64 elements, whose bits are m. A constant fills its half of x once, so every place in this half
 * is right. Between two constants each bit, spread to a byte, chooses. Returns the ones of m. */
LMC__INLINE size_t lmc__merge64_neon(uint8x16_t out[4], uint64_t m, const uint8_t *a,
                                     const uint8_t *b, uint8x16_t l, uint8x16_t r, int has_left,
                                     int has_right)
{
    uint8x16_t places[4];
    uint8x16x2_t x;
    size_t before[4];
    const size_t ones = lmc__merge_places_neon(places, before, m);
    unsigned j;
    x.val[0] = l;
    x.val[1] = r;
    LMC__UNROLL for (j = 0; j < 4; j++)
    {
        if (has_left) x.val[0] = vld1q_u8(a - before[j] + 16 * j);
        if (has_right) x.val[1] = vld1q_u8(b + before[j]);
        out[j] = has_left || has_right
                     ? vqtbl2q_u8(x, places[j])
                     : vbslq_u8(lmc__spread_neon(lmc__load_bits_neon(m), j), r, l);
    }
    return ones;
}
#endif

#if LMC__AVX2_TEXT

/* 32 elements, in halves of 16, because a byte shuffle works within 16 bytes. The mask's bits are
 * bytes 0 or -1, so the sum s up to and including an element is minus the number of ones so far:
 *     an element of the left   is number i + s      of those that its half takes from the left
 *     one of the right         is number -s - 1 = ~s
 *
 *     i                0   1   2   3   4   5   6   7 ...     within the half
 *     mask             0   1   0   0   1   1   0   1
 *     sum              0  -1  -1  -1  -2  -3  -3  -4
 *     i + sum          0   .   1   2   .   .   3   .         places in left
 *     ~sum             .   0   .   .   1   2   .   3         places in right
 *
 * The values at the dots do not matter: the blend takes the other side there. The first half takes
 * 16 - half elements of the left list and half of the right one, and the second half continues
 * behind them. So each half is loaded from its own place, within 32 bytes from a and b. */
LMC__INLINE_AVX2 __m256i lmc__merge_spread_avx2(__m256i one, size_t half, const uint8_t *a,
                                                const uint8_t *b, __m256i l, __m256i r,
                                                int has_left, int has_right)
{
    const __m256i up = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1,
                                        2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m256i sum = one;
    if (has_left || has_right) sum = lmc__sum_up_avx2(sum);
    if (has_left)
        l = _mm256_shuffle_epi8(lmc__load_pair_avx2(a, a + 16 - half), _mm256_add_epi8(up, sum));
    if (has_right)
        r = _mm256_shuffle_epi8(lmc__load_pair_avx2(b, b + half),
                                _mm256_xor_si256(sum, _mm256_set1_epi16(-1)));
    return lmc__blend_avx2(one, r, l);
}

/* 64 elements, whose bits are m: twice 32. */
LMC__INLINE_AVX2 size_t lmc__merge64_avx2(__m256i out[2], uint64_t m, const uint8_t *a,
                                          const uint8_t *b, __m256i l, __m256i r, int has_left,
                                          int has_right)
{
    const size_t c1 = (size_t)_mm_popcnt_u64(m & 0xFFFF), c2 = (size_t)_mm_popcnt_u64((uint32_t)m),
                 c3 = (size_t)_mm_popcnt_u64(m << 16);
    const __m256i bits = lmc__load_bits_avx2(m);
    out[0] = lmc__merge_spread_avx2(lmc__spread_avx2(bits, 0), c1, a, b, l, r, has_left, has_right);
    if (has_left) a += 32 - c2;
    if (has_right) b += c2;
    out[1] =
        lmc__merge_spread_avx2(lmc__spread_avx2(bits, 1), c3 - c2, a, b, l, r, has_left, has_right);
    return (size_t)_mm_popcnt_u64(m);
}
#endif

#if LMC__NEON || LMC__AVX2_TEXT
/* A step depends on the step before only by a and b, which the ones of the mask move. The last step
 * may be short: its mask is zero behind n, but it stores 64 bytes. */
LMC__INLINE_VEC void LMC__VEC(merge_body)(uint8_t *dst, const uint8_t *mask, size_t n,
                                          lmc__side left, lmc__side right, int has_left,
                                          int has_right)
{
    const lmc__vector l = LMC__VEC(splat)(left.value), r = LMC__VEC(splat)(right.value);
    const uint8_t *a = left.list, *b = right.list;
    lmc__vector out[LMC__VECTORS_OF_64];
    size_t i;
    unsigned j;
    for (i = 0; i + 64 <= n; i += 64) {
        const size_t ones =
            LMC__VEC(merge64)(out, lmc__load64(mask + i / 8), a, b, l, r, has_left, has_right);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
            LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, out[j]);
        if (has_left) a += 64 - ones;
        if (has_right) b += ones;
    }
    if (i == n) return;
    (void)LMC__VEC(merge64)(out, lmc__load_mask(mask, i, n), a, b, l, r, has_left, has_right);
    for (j = 0; j < LMC__VECTORS_OF_64; j++)
        LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, out[j]);
}

LMC__STATIC_VEC void LMC__VEC(merge)(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                                     lmc__side right)
{
    LMC__FOR_SIDES(left.list, right.list,
                   LMC__VEC(merge_body)(dst, mask, n, left, right, has_left, has_right));
}
#endif

#if LMC__X86
/* vpexpandb is the merge of one side: it puts consecutive bytes at the places of the mask's ones
 * and leaves the other places as they are. So the right side is expanded onto the left one:
 *     m                            0 1 0 0 1 1 0 1
 *     v = expand(x, ~m, a)         A . B C . . D .
 *     expand(v, m, b)              A R B C S T D U */
LMC__INLINE_AVX512 __m512i lmc__merge_step_avx512(uint64_t m, const uint8_t *a, const uint8_t *b,
                                                  __m512i l, __m512i r, int has_left, int has_right)
{
    __m512i v = l;
    if (has_left) { /* the merge-masked form, which has no false dependency */
        const __m512i x = _mm512_loadu_si512(a);
        v = _mm512_mask_expand_epi8(x, ~m, x);
    }
    return has_right ? _mm512_mask_expand_epi8(v, m, _mm512_loadu_si512(b))
                     : _mm512_mask_mov_epi8(v, m, r);
}

/* l, r: the values of sides that are constants. Each step loads the next 64 bytes of each list.
 * Such a load may begin at the list's end, and then reads all of the slack. */
LMC__INLINE_AVX512 void lmc__merge_body_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                               lmc__side left, lmc__side right, int has_left,
                                               int has_right)
{
    const __m512i l = _mm512_set1_epi8((char)left.value), r = _mm512_set1_epi8((char)right.value);
    const uint8_t *a = left.list, *b = right.list;
    size_t i;
    for (i = 0; i + 64 <= n; i += 64) {
        const uint64_t m = lmc__load64(mask + i / 8);
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(m, a, b, l, r, has_left, has_right));
        if (has_left) a += 64 - ones;
        if (has_right) b += ones;
    }
    if (i < n)
        _mm512_storeu_si512(dst + i, lmc__merge_step_avx512(lmc__load_mask(mask, i, n), a, b, l, r,
                                                            has_left, has_right));
}

LMC__AVX512 static void lmc__merge_avx512(uint8_t *dst, const uint8_t *mask, size_t n,
                                          lmc__side left, lmc__side right)
{
    LMC__FOR_SIDES(left.list, right.list,
                   lmc__merge_body_avx512(dst, mask, n, left, right, has_left, has_right));
}
#endif

#if LMC__SIMDE
/* Between two constants the scalar kernel is faster: it has no bytes to shuffle. */
static void lmc__merge_simde(uint8_t *dst, const uint8_t *mask, size_t n, lmc__side left,
                             lmc__side right)
{
    if (left.list || right.list) lmc__merge_avx2(dst, mask, n, left, right);
    else lmc__merge_scalar(dst, mask, n, left, right);
}
#endif
