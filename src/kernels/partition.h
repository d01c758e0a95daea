#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* partition: bit i of mask = (src[i] >= split); elements with a 0 go to the list left, those with a
 * 1 to the list right, in order. This encodes one node of a mask tree. split 0: the mask is given.
 *
 *     src    3 9 4 4 8 9 1 7        split 7
 *     mask   0 1 0 0 1 1 0 1
 *     left   3 4 4 1
 *     right  9 8 9 7
 *
 * src is a list. left and right may each be NULL (not wanted: a leaf has no bytes); left may be
 * src. mask is read or written exactly; unused bits of its last byte are zero. Returns the number
 * of ones. src has ranks, the places of symbols' leaves in the tree: consecutive below a node.
 *
 * All tiers sort a group of elements in a register by its mask, then store both parts in full
 * vectors. What is stored behind a part is overwritten by the next store, or is in the slack:
 *     sorted by 8     l l l l l r r r    l l r r r r r r
 *     to left         l l l l l . . .    stored at 0
 *                                l l . . . . . .         stored at 5
 *     to right        r r r . . . . .    stored at 0
 *                            r r r r r r . .             stored at 3
 *
 * left may be src: when a vector, elements [i, i + V), is in a register, at most i elements have
 * been stored to the left. So the vector's store to the left ends at i + V or before, and the next
 * load begins at i + V. right must not be src. */

#ifndef LMC_NO_ENCODER
/* Eight elements at a time; this defines partition. Mask bits behind n are 0. */
LMC__INLINE size_t lmc__partition_body(uint8_t *mask, uint8_t *left, uint8_t *right,
                                       const uint8_t *src, size_t n, unsigned split, int has_left,
                                       int has_right)
{
    const uint64_t s = split * LMC__ONES8;
    size_t i, n_right = 0;
    for (i = 0; i < n; i += 8) {
        uint64_t v = lmc__load64(src + i);
        unsigned m = split ? lmc__compare8(v, s) : mask[i >> 3];
        if (n - i < 8) m &= (1u << (n - i)) - 1;
        if (split) mask[i >> 3] = (uint8_t)m;
        if (has_left || has_right) v = lmc__sort8(v, m);
        if (has_left) lmc__store64(left + (i - n_right), v);
        if (has_right) lmc__store64(right + n_right, lmc__reverse8(v));
        n_right += lmc__ones[m];
    }
    return n_right;
}

static size_t lmc__partition_scalar(uint8_t *mask, uint8_t *left, uint8_t *right,
                                    const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    LMC__FOR_SIDES(left, right,
                   n_right =
                       lmc__partition_body(mask, left, right, src, n, split, has_left, has_right));
    return n_right;
}

#if LMC__NEON || LMC__AVX2_TEXT
/* Stores the elements of LMC__VECTORS_SORTED vectors behind n_left and n_right others: those with a
 * 1 in m to the right. A side that is NULL is not wanted. Returns the new n_right. A shuffle sorts
 * eight at a time: zeros to the lower half, ones to the upper. All places are computed first, so no
 * store waits:
 *     m               byte 0    byte 1    byte 2    byte 3
 *     ones before       0         r1        r2        r3
 *     to right at       0         r1        r2        r3         from n_right on
 *     to left at        0       8 - r1   16 - r2   24 - r3       from n_left on
 *
 * All stores to a side are within one step's size from its first. split_root uses this, too. */
#define LMC__EIGHTS_SORTED (LMC__VECTORS_SORTED * LMC__VECTOR_SIZE / 8)
LMC__INLINE_VEC size_t LMC__VEC(partition_step)(uint8_t *left, uint8_t *right, size_t n_left,
                                                size_t n_right, const lmc__vector *v,
                                                lmc__vector_bits m)
{
    const lmc__vector_bits sums = LMC__VEC(begin_ones)(m);
    unsigned j;
    if (left) left += n_left;
    if (right) right += n_right;
    LMC__UNROLL for (j = 0; j < LMC__EIGHTS_SORTED; j++)
    {
        const lmc__sorted x = LMC__VEC(sort8)(
            v[8 * j / LMC__VECTOR_SIZE], j % (LMC__VECTOR_SIZE / 8), (unsigned)(m >> 8 * j & 255));
        const size_t before = LMC__VEC(ones_before)(sums, j);
        if (left) LMC__VEC(store_low)(left - before + 8 * j, x);
        if (right) LMC__VEC(store_high)(right + before, x);
    }
    return n_right + LMC__VEC(ones_before)(sums, LMC__EIGHTS_SORTED);
}

/* A step of n elements, at most 64, behind `done` others, of which n_right are on the right. It
 * always loads 64 bytes: up to 63 of them are slack of the list. */
LMC__INLINE_VEC size_t LMC__VEC(partition64)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                             const uint8_t *src, size_t n, lmc__vector split,
                                             size_t done, size_t n_right, int is_given)
{
    lmc__vector v[LMC__VECTORS_OF_64], one[LMC__VECTORS_OF_64];
    uint64_t m;
    unsigned j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
    {
        v[j] = LMC__VEC(load)(src + LMC__VECTOR_SIZE * j);
        if (!is_given) one[j] = LMC__VEC(not_below)(v[j], split);
    }
    m = is_given ? lmc__load_mask(mask, 0, n) : lmc__store_mask(mask, LMC__VEC(to_bits)(one), n);
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j += LMC__VECTORS_SORTED) n_right =
        LMC__VEC(partition_step)(left, right, done + LMC__VECTOR_SIZE * j - n_right, n_right, v + j,
                                 (lmc__vector_bits)(m >> LMC__VECTOR_SIZE * j));
    return n_right;
}

LMC__INLINE_VEC size_t LMC__VEC(partition_body)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split,
                                                int has_left, int has_right, int is_given)
{
    const lmc__vector s = LMC__VEC(splat)(split);
    size_t i, n_right = 0;
    if (!has_left) left = NULL;
    if (!has_right) right = NULL;
    for (i = 0; i + 64 <= n; i += 64)
        n_right =
            LMC__VEC(partition64)(mask + i / 8, left, right, src + i, 64, s, i, n_right, is_given);
    if (i < n)
        n_right = LMC__VEC(partition64)(mask + i / 8, left, right, src + i, n - i, s, i, n_right,
                                        is_given);
    return n_right;
}

LMC__STATIC_VEC size_t LMC__VEC(partition)(uint8_t *mask, uint8_t *left, uint8_t *right,
                                           const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    if (split == 0) return LMC__VEC(partition_body)(mask, left, right, src, n, 0, 1, 1, 1);
    LMC__FOR_SIDES(left, right,
                   n_right = LMC__VEC(partition_body)(mask, left, right, src, n, split, has_left,
                                                      has_right, 0));
    return n_right;
}
#endif

#if LMC__X86
/* vpcompressb sorts 64 elements at once to a register; all of the register is then stored. The form
 * with a memory operand is microcoded on Zen 4. The zero-masked form waits for the old value of its
 * destination (https://github.com/llvm/llvm-project/issues/206849).
 *
 *     v                       a b c d e f g h ...
 *     m = v >= split          0 1 1 0 0 1 0 1 ...
 *     compress(v, m, v)       b c f h . . . . ...     to right
 *     compress(v, ~m, v)      a d e g . . . . ...     to left
 *
 * The function does what lmc__partition_step_avx2 does. */
LMC__INLINE_AVX512 void lmc__partition_step_avx512(uint8_t *left, uint8_t *right, size_t *n_left,
                                                   size_t *n_right, __m512i v, uint64_t m)
{
    const size_t ones = (size_t)_mm_popcnt_u64(m);
    if (right) lmc__store_avx512(right + *n_right, _mm512_mask_compress_epi8(v, m, v));
    if (left) lmc__store_avx512(left + *n_left, _mm512_mask_compress_epi8(v, ~m, v));
    *n_right += ones;
    *n_left += 64 - ones;
}

LMC__INLINE_AVX512 size_t lmc__partition_body_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                     const uint8_t *src, size_t n, unsigned split,
                                                     int has_left, int has_right, int is_given)
{
    const __m512i s = lmc__splat_avx512(split);
    size_t i, n_left = 0, n_right = 0;
    if (!has_left) left = NULL;
    if (!has_right) right = NULL;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = lmc__load_avx512(src + i);
        const uint64_t m = is_given ? lmc__load64(mask + i / 8)
                                    : _mm512_cmpge_epu8_mask(v, s); /* m[j] = v[j] >= split */
        if (!is_given) lmc__store64(mask + i / 8, m);
        lmc__partition_step_avx512(left, right, &n_left, &n_right, v, m);
    }
    if (i < n) {
        const __m512i v = lmc__load_avx512(src + i);
        const uint64_t m = is_given
                               ? lmc__load_mask(mask, i, n)
                               : lmc__store_mask(mask + i / 8, _mm512_cmpge_epu8_mask(v, s), n - i);
        lmc__partition_step_avx512(left, right, &n_left, &n_right, v, m);
    }
    return n_right;
}

LMC__AVX512 static size_t lmc__partition_avx512(uint8_t *mask, uint8_t *left, uint8_t *right,
                                                const uint8_t *src, size_t n, unsigned split)
{
    size_t n_right;
    if (split == 0) return lmc__partition_body_avx512(mask, left, right, src, n, 0, 1, 1, 1);
    LMC__FOR_SIDES(left, right,
                   n_right = lmc__partition_body_avx512(mask, left, right, src, n, split, has_left,
                                                        has_right, 0));
    return n_right;
}
#endif
#endif /* LMC_NO_ENCODER */
