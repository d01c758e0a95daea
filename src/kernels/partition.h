#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/*
 * partition: bit i of mask = (src[i] >= split); elements with 0 to the list left, with 1 to the
 * list right, in order. One node of a mask tree, encoded.
 *
 *     src    3 9 4 4 8 9 1 7        split 7
 *     mask   0 1 0 0 1 1 0 1
 *     left   3 4 4 1
 *     right  9 8 9 7
 *
 * src is a list. left and right may each be NULL (not wanted: a leaf has no bytes); left may be
 * src. mask is written exactly; unused bits of its last byte are zero. Returns the number of ones.
 * What is compared are ranks, the places of the symbols' leaves in the tree: so each node's leaves
 * are consecutive.
 *
 * All tiers sort a group of elements in a register by its mask, then store both parts in full
 * vectors. What a store writes behind the end of its part is overwritten by the next one, and in
 * the end lies in the slack of the list:
 *
 *     sorted by 8     l l l l l r r r    l l r r r r r r
 *     to left         l l l l l . . .    stored at 0
 *                                l l . . . . . .         stored at 5
 *     to right        r r r . . . . .    stored at 0
 *                            r r r r r r . .             stored at 3
 *
 * left may be src, for it never overtakes it: when the elements [i, i + V) are in a register, at
 * most i have gone to the left, so what is stored then ends before i + V, where the next load
 * begins. right may not.
 */

#ifndef LMC_NO_ENCODER
/* Eight elements at a time, the definition. Those of the slack count as zeros. Which sides are
 * wanted is constant in each of four copies of the loop. */
LMC__INLINE size_t lmc__partition_body(uint8_t *mask, uint8_t *left, uint8_t *right,
                                       const uint8_t *src, size_t n, unsigned split)
{
    const uint64_t s = split * LMC__ONES8;
    size_t i, n_right = 0;
    for (i = 0; i < n; i += 8) {
        uint64_t v = lmc__load64(src + i);
        unsigned m = lmc__compare8(v, s);
        if (n - i < 8) m &= (1u << (n - i)) - 1;
        mask[i >> 3] = (uint8_t)m;
        if (left || right) v = lmc__sort8(v, m);
        if (left) lmc__store64(left + (i - n_right), v);
        if (right) lmc__store64(right + n_right, lmc__reverse8(v));
        n_right += lmc__ones[m];
    }
    return n_right;
}

static size_t lmc__partition_scalar(uint8_t *mask, uint8_t *left, uint8_t *right,
                                    const uint8_t *src, size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body(mask, left, right, src, n, split);
    if (left) return lmc__partition_body(mask, left, NULL, src, n, split);
    if (right) return lmc__partition_body(mask, NULL, right, src, n, split);
    return lmc__partition_body(mask, NULL, NULL, src, n, split);
}

#if LMC__NEON

/* A step of 64 elements, of which n count. Returns the number of ones. Eight elements at a time are
 * sorted by a shuffle from lmc__sort_places: zeros to the lower half, ones to the upper. Where the
 * eight stores of a side go is known before the first, by one multiplication, so none waits:
 *
 *     m8                       a byte for 8 elements each: m0 m1 ... m7
 *     vcnt(m8)                 their numbers of ones: c0 c1 ... c7
 *     ones = that * 0x01..01   c0, c0 + c1, ..., their sum: 64 at most, so no byte overflows
 *     eight j                  before = byte j - 1 of ones; goes to right + before
 *                              and to left + 8 j - before
 *
 * The last of 8 stores of 8 bytes ends at most 64 bytes behind the step's first place on its side.
 * Where only the mask is wanted, two leaves, nothing is sorted. */
LMC__INLINE size_t lmc__partition64_neon(uint8_t *mask, uint8_t *left, uint8_t *right,
                                         const uint8_t *src, size_t n, unsigned split,
                                         int want_left, int want_right)
{
    const uint8x16_t s = vdupq_n_u8((uint8_t)split),
                     v[4] = {vld1q_u8(src), vld1q_u8(src + 16), vld1q_u8(src + 32),
                             vld1q_u8(src + 48)};
    const uint8x8_t m8 =
        lmc__first_bits_neon(lmc__collect_neon(vcgeq_u8(v[0], s), vcgeq_u8(v[1], s),
                                               vcgeq_u8(v[2], s), vcgeq_u8(v[3], s)),
                             n);
    const uint64_t m = vget_lane_u64(vreinterpret_u64_u8(m8), 0);
    const uint64_t ones = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(m8)), 0) *
                          LMC__ONES8; /* byte j: the ones of bytes 0 .. j of m */
    unsigned j;
    lmc__store_mask_neon(mask, m8, n);
    if (!want_left && !want_right) return (size_t)(ones >> 56);
    LMC__UNROLL for (j = 0; j < 8; j++)
    {
        const size_t before = j ? (size_t)(ones >> (8 * j - 8) & 255) : 0;
        /* its 8 bytes in the lower half, where the table's places, 0 .. 7, find them */
        const uint8x16_t half = j & 1 ? vextq_u8(v[j / 2], v[j / 2], 8) : v[j / 2];
        const uint8x16_t x = vqtbl1q_u8(half, lmc__load_sort_places_neon(m >> 8 * j & 255));
        if (want_left) vst1_u8(left - before + 8 * j, vget_low_u8(x));
        if (want_right) vst1_u8(right + before, vget_high_u8(x));
    }
    return (size_t)(ones >> 56);
}

/* Which sides are wanted is constant in each of the four copies of this: no test in the loop. The
 * last step loads 64 bytes, however few count: at most 63 of the list's slack. */
LMC__INLINE size_t lmc__partition_body_neon(uint8_t *mask, uint8_t *left, uint8_t *right,
                                            const uint8_t *src, size_t n, unsigned split,
                                            int want_left, int want_right)
{
    size_t n_right = 0;
    for (; n >= 64; n -= 64, src += 64, mask += 8) {
        const size_t ones =
            lmc__partition64_neon(mask, left, right, src, 64, split, want_left, want_right);
        if (want_left) left += 64 - ones;
        if (want_right) right += ones;
        n_right += ones;
    }
    if (n != 0)
        n_right += lmc__partition64_neon(mask, left, right, src, n, split, want_left, want_right);
    return n_right;
}

static size_t lmc__partition_neon(uint8_t *mask, uint8_t *left, uint8_t *right, const uint8_t *src,
                                  size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_neon(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_neon(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_neon(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_neon(mask, left, right, src, n, split, 0, 0);
}
#endif

#if LMC__AVX2_TEXT

/* The 8 bytes in the lower or, if high, in the upper half of v, sorted by m: those of zeros, up to
 * 8, are stored from the lower half of x, those of ones from the upper half. */
LMC__INLINE_AVX2 void lmc__partition8_avx2(uint8_t *left, uint8_t *right, size_t n_left,
                                           size_t n_right, __m128i v, int high, unsigned m)
{
    const __m128i places = lmc__load_sort_places_avx2(m);
    const __m128i x = _mm_shuffle_epi8(high ? _mm_unpackhi_epi64(v, v) : v, places);
    if (left) _mm_storel_epi64((__m128i *)(void *)(left + n_left), x);
    if (right) lmc__store64(right + n_right, (uint64_t)_mm_extract_epi64(x, 1));
}

/* 32 elements, those in m to the right, behind n_left and n_right others: by eights, as on NEON.
 * Returns how many there are now on the right.
 *
 *     m             byte 0    byte 1    byte 2    byte 3
 *     ones before     0         r1        r2        r3
 *     to right at     0         r1        r2        r3         from n_right on
 *     to left at      0       8 - r1   16 - r2   24 - r3       from n_left on
 *
 * r1, r2, r3 are popcounts of a longer and longer part of m, so that the eight addresses do not
 * form a chain. split_root uses this step too. */
LMC__INLINE_AVX2 size_t lmc__partition_step_avx2(uint8_t *left, uint8_t *right, size_t n_left,
                                                 size_t n_right, __m256i v, uint32_t m)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    const size_t r1 = (size_t)_mm_popcnt_u64(m & 0xFF), r2 = (size_t)_mm_popcnt_u64(m & 0xFFFF),
                 r3 = (size_t)_mm_popcnt_u64(m & 0xFFFFFF);
    lmc__partition8_avx2(left, right, n_left, n_right, low, 0, m & 255);
    lmc__partition8_avx2(left, right, n_left + 8 - r1, n_right + r1, low, 1, m >> 8 & 255);
    lmc__partition8_avx2(left, right, n_left + 16 - r2, n_right + r2, high, 0, m >> 16 & 255);
    lmc__partition8_avx2(left, right, n_left + 24 - r3, n_right + r3, high, 1, m >> 24);
    return n_right + (size_t)_mm_popcnt_u64(m);
}

/* want_left and want_right are constant. The last step loads 32 bytes and stores as if all counted;
 * only m is cut to the n - i that do. */
LMC__INLINE_AVX2 size_t lmc__partition_body_avx2(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                 const uint8_t *src, size_t n, unsigned split,
                                                 int want_left, int want_right)
{
    const __m256i s = _mm256_set1_epi8((char)split);
    size_t i, n_right = 0;
    if (!want_left) left = NULL;
    if (!want_right) right = NULL;
    for (i = 0; i + 32 <= n; i += 32) {
        const __m256i v = lmc__load_avx2(src + i);
        const uint32_t m = lmc__compare_avx2(v, s);
        lmc__store32(mask + i / 8, m);
        n_right = lmc__partition_step_avx2(left, right, i - n_right, n_right, v, m);
    }
    if (i < n) {
        const __m256i v = lmc__load_avx2(src + i);
        const uint32_t m = lmc__compare_avx2(v, s) & (((uint32_t)1 << (n - i)) - 1);
        uint8_t word[4];
        lmc__store32(word, m);
        memcpy(mask + i / 8, word, (n - i + 7) / 8);
        n_right = lmc__partition_step_avx2(left, right, i - n_right, n_right, v, m);
    }
    return n_right;
}

LMC__AVX2 static size_t lmc__partition_avx2(uint8_t *mask, uint8_t *left, uint8_t *right,
                                            const uint8_t *src, size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_avx2(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_avx2(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_avx2(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_avx2(mask, left, right, src, n, split, 0, 0);
}
#endif

#if LMC__X86
/* vpcompressb sorts 64 elements at once, to a register, and a full store follows: the form with a
 * memory operand is microcoded on Zen 4, and the zero-masked form waits for the old value of its
 * destination (https://github.com/llvm/llvm-project/issues/206849).
 *
 *     v                       a b c d e f g h ...
 *     m = v >= split          0 1 1 0 0 1 0 1 ...
 *     compress(v, m, v)       b c f h . . . . ...     to right
 *     compress(v, ~m, v)      a d e g . . . . ...     to left */
LMC__INLINE_AVX512 size_t lmc__partition_body_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                     const uint8_t *src, size_t n, unsigned split,
                                                     int want_left, int want_right)
{
    const __m512i s = _mm512_set1_epi8((char)split);
    size_t i, n_right = 0, n_left = 0;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_loadu_si512(src + i);
        const __mmask64 m = _mm512_cmpge_epu8_mask(v, s); /* m[j] = v[j] >= split */
        const size_t ones = (size_t)_mm_popcnt_u64(m);
        lmc__store64(mask + i / 8, m);
        if (want_right) _mm512_storeu_si512(right + n_right, _mm512_mask_compress_epi8(v, m, v));
        if (want_left) _mm512_storeu_si512(left + n_left, _mm512_mask_compress_epi8(v, ~m, v));
        n_right += ones;
        n_left += 64 - ones;
    }
    if (i < n) {
        const __mmask64 valid = ((__mmask64)1 << (n - i)) - 1;
        const __m512i v = _mm512_loadu_si512(src + i);
        const __mmask64 m = _mm512_mask_cmpge_epu8_mask(valid, v, s);
        uint8_t bits[8];
        lmc__store64(bits, m);
        memcpy(mask + i / 8, bits, (n - i + 7) / 8);
        if (want_right) _mm512_storeu_si512(right + n_right, _mm512_mask_compress_epi8(v, m, v));
        if (want_left)
            _mm512_storeu_si512(left + n_left, _mm512_mask_compress_epi8(v, valid & ~m, v));
        n_right += (size_t)_mm_popcnt_u64(m);
    }
    return n_right;
}

LMC__AVX512 static size_t lmc__partition_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split)
{
    if (left && right) return lmc__partition_body_avx512(mask, left, right, src, n, split, 1, 1);
    if (left) return lmc__partition_body_avx512(mask, left, right, src, n, split, 1, 0);
    if (right) return lmc__partition_body_avx512(mask, left, right, src, n, split, 0, 1);
    return lmc__partition_body_avx512(mask, left, right, src, n, split, 0, 0);
}
#endif
#endif /* LMC_NO_ENCODER */
