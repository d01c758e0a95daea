#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

#ifndef LMC_NO_ENCODER
/* Counting, for the plans of an encoder and the sizes of a tree's nodes (spec 6.2). All of these
 * functions read exactly the bytes that they are given.
 *
 * is_constant: 1 if src[0, n), n > 0, are all equal: each byte equals the next one. */
static int lmc__is_constant(const uint8_t *src, size_t n)
{
    return memcmp(src, src + 1, n - 1) == 0;
}

/* count_bytes: counts[v] += number of bytes v in src[0, n). All tiers use this function, so the
 * tables of kernels do not have it. It uses eight arrays of counts: a count that was stored a few
 * cycles ago is slow to load, and in many planes most bytes are equal. So equal neighbours are
 * counted in different arrays.
 *
 *     bytes of w     0  1  2  3  4  5  6  7
 *     array          0  1  2  3  4  5  6  7     its count [byte]
 *
 * Counts have 16 bits, so the arrays take 4 KiB of the first cache. A constant plane is counted at
 * once: most upper planes of a delta are constant. */
static void lmc__count_bytes(uint32_t counts[256], const uint8_t *src, size_t n)
{
    const size_t most = (size_t)8 << 15; /* bytes for which counts of 16 bits suffice: each array
                                            counts an eighth of them */
    if (n != 0 && lmc__is_constant(src, n)) {
        counts[src[0]] += (uint32_t)n;
        return;
    }
    while (n != 0) {
        const size_t part = lmc__min(n, most);
        uint16_t table[8][256];
        size_t i;
        int v;
        memset(table, 0, sizeof table);
        for (i = 0; i + 8 <= part; i += 8) {
            const uint64_t w = lmc__load64(src + i);
            table[0][w & 255]++;
            table[1][w >> 8 & 255]++;
            table[2][w >> 16 & 255]++;
            table[3][w >> 24 & 255]++;
            table[4][w >> 32 & 255]++;
            table[5][w >> 40 & 255]++;
            table[6][w >> 48 & 255]++;
            table[7][w >> 56]++;
        }
        for (; i < part; i++) table[0][src[i]]++;
        for (v = 0; v < 256; v++)
            counts[v] += (uint32_t)table[0][v] + table[1][v] + table[2][v] + table[3][v] +
                         table[4][v] + table[5][v] + table[6][v] + table[7][v];
        src += part;
        n -= part;
    }
}
#endif /* LMC_NO_ENCODER */

/* count_ones: the number of one bits in mask[0, size). In a word this adds neighbours of 1, 2, 4
 * bits; a multiplication adds all bytes into the top byte (Warren, Hacker's Delight, 5-1). */
static size_t lmc__count_ones_scalar(const uint8_t *mask, size_t size)
{
    size_t i, ones = 0;
    for (i = 0; i + 8 <= size; i += 8) {
        uint64_t v = lmc__load64(mask + i);
        v = v - (v >> 1 & 0x5555555555555555u);
        v = (v & 0x3333333333333333u) + (v >> 2 & 0x3333333333333333u);
        v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
        ones += (size_t)(v * LMC__ONES8 >> 56);
    }
    for (; i < size; i++) ones += lmc__ones[mask[i]];
    return ones;
}

#if LMC__NEON
/* vcnt counts the ones of each byte. Four results are added as bytes (at most 32), then pairs. */
static size_t lmc__count_ones_neon(const uint8_t *mask, size_t size)
{
    uint32x4_t sum = vdupq_n_u32(0);
    size_t i, ones;
    for (i = 0; i + 64 <= size; i += 64) {
        const uint8x16_t low =
            vaddq_u8(vcntq_u8(vld1q_u8(mask + i)), vcntq_u8(vld1q_u8(mask + i + 16)));
        const uint8x16_t high =
            vaddq_u8(vcntq_u8(vld1q_u8(mask + i + 32)), vcntq_u8(vld1q_u8(mask + i + 48)));
        sum = vpadalq_u16(sum, vpaddlq_u8(vaddq_u8(low, high)));
    }
    /* a lane grows by at most 128 in a step; the mask of a block has at most 2^22 bits */
    ones = (size_t)vaddlvq_u32(sum);
    for (; i < size; i++) ones += lmc__ones[mask[i]];
    return ones;
}
#endif

#if LMC__X86
/* AVX2 has no popcount of vectors. The last bytes, at most 7, make a word of their own. */
LMC__AVX2 static size_t lmc__count_ones_avx2(const uint8_t *mask, size_t size)
{
    uint64_t rest = 0;
    size_t i, ones = 0;
    for (i = 0; i + 32 <= size; i += 32) {
        ones += (size_t)(_mm_popcnt_u64(lmc__load64(mask + i)) +
                         _mm_popcnt_u64(lmc__load64(mask + i + 8)));
        ones += (size_t)(_mm_popcnt_u64(lmc__load64(mask + i + 16)) +
                         _mm_popcnt_u64(lmc__load64(mask + i + 24)));
    }
    for (; i + 8 <= size; i += 8) ones += (size_t)_mm_popcnt_u64(lmc__load64(mask + i));
    for (; i < size; i++) rest = rest << 8 | mask[i];
    return ones + (size_t)_mm_popcnt_u64(rest);
}
/* The last load is masked: it does not access bytes beyond size, and gives zeros for them. */
LMC__AVX512 static size_t lmc__count_ones_avx512(const uint8_t *mask, size_t size)
{
    __m512i ones = _mm512_setzero_si512();
    size_t i;
    for (i = 0; i < size; i += 64) {
        const __mmask64 valid = size - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (size - i)) - 1;
        ones =
            _mm512_add_epi64(ones, _mm512_popcnt_epi64(_mm512_maskz_loadu_epi8(valid, mask + i)));
    }
    return (size_t)_mm512_reduce_add_epi64(ones);
}
#endif
