#pragma once
#include "base/platform.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/* map: dst[i] = table[src[i]], table of 256 bytes; dst == src is legal, any other overlap is not.
 * Both are accessed exactly. Encoders map symbols to ranks, the places of their leaves in the tree
 * (spec 6.2), and partition the ranks. The inverse map turns an escape's ranks into bytes. */

#ifndef LMC_NO_ENCODER
/* Four look-ups before four stores: a compiler must assume that a store changes src or the
 * table. */
static void lmc__map_scalar(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    size_t i;
    for (i = 0; i + 4 <= n; i += 4) {
        uint8_t a = table[src[i]], b = table[src[i + 1]], c = table[src[i + 2]],
                d = table[src[i + 3]];
        dst[i] = a;
        dst[i + 1] = b;
        dst[i + 2] = c;
        dst[i + 3] = d;
    }
    for (; i < n; i++) dst[i] = table[src[i]];
}

#if LMC__NEON

/* Four look-ups of 64 entries each, by places minus 0, 64, 128, 192. For places out of range tbl
 * gives 0, and tbx leaves the byte as it was: so exactly one look-up sets each byte. Subtraction
 * wraps around: places below 64 k become at least 64. The table takes 16 of the 32 registers. */
static void lmc__map_neon(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    const uint8x16x4_t t0 = lmc__load64_neon(table), t1 = lmc__load64_neon(table + 64),
                       t2 = lmc__load64_neon(table + 128), t3 = lmc__load64_neon(table + 192);
    const uint8x16_t step = vdupq_n_u8(64);
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        uint8x16_t v = vld1q_u8(src + i), out = vqtbl4q_u8(t0, v);
        out = vqtbx4q_u8(out, t1, v = vsubq_u8(v, step));
        out = vqtbx4q_u8(out, t2, v = vsubq_u8(v, step));
        vst1q_u8(dst + i, vqtbx4q_u8(out, t3, vsubq_u8(v, step)));
    }
    lmc__map_scalar(dst + i, src + i, n - i, table);
}
#endif

#if LMC__AVX2_TEXT
/* AVX2 looks up among only 16 entries, so the table is 16 rows of 16. But the table is a
 * permutation, and most of its rows just count up: there, the distance between an entry and its
 * place is constant. One shuffle, by a place's upper 4 bits, finds the row's distance. For each row
 * that does not count up, a shuffle by the lower 4 bits adds corrections. All sums are modulo 256.
 *
 *     place     00 01 02 03 ...    10 11 12 13 ...    20 21 22 23 ...
 *     entry     05 06 07 08 ...    02 15 00 16 ...    30 31 32 33 ...
 *     distance  05 in all          F2, corrected by   10 in all
 *               the row            00 12 FC 11 ... */
typedef struct lmc__rows {
    uint8_t distance[16]; /* of each row's first entry from its place */
    unsigned n;           /* rows to correct */
    uint8_t first[16];    /* places where they start */
    uint8_t more[16][16]; /* what is added there: entry - place - distance */
} lmc__rows;

LMC__AVX2 static void lmc__set_rows_avx2(lmc__rows *rows, const uint8_t *table)
{
    const __m128i up = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    unsigned i;
    rows->n = 0;
    for (i = 0; i < 16; i++) {
        const __m128i row = _mm_loadu_si128((const __m128i *)(const void *)(table + 16 * i));
        const __m128i more =
            _mm_sub_epi8(_mm_sub_epi8(row, up), _mm_set1_epi8((char)table[16 * i]));
        rows->distance[i] = (uint8_t)(table[16 * i] - 16 * i);
        if (_mm_movemask_epi8(_mm_cmpeq_epi8(more, _mm_setzero_si128())) == 0xFFFF) continue;
        rows->first[rows->n] = (uint8_t)(16 * i);
        _mm_storeu_si128((__m128i *)(void *)rows->more[rows->n++], more);
    }
}

/* 32 bytes. The loop corrects one row in each iteration. */
LMC__INLINE_AVX2 __m256i lmc__map_step_avx2(const lmc__rows *rows, __m256i v)
{
    const __m256i row = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    __m256i out = _mm256_add_epi8(v, _mm256_shuffle_epi8(lmc__load_row_avx2(rows->distance), row));
    unsigned i;
    for (i = 0; i < rows->n; i++) {
        /* v ^ first is below 16 in this row only. In all other rows adding 0x70, saturated, sets
         * bit 7, so the shuffle gives 0 */
        const __m256i place = _mm256_adds_epu8(
            _mm256_xor_si256(v, _mm256_set1_epi8((char)rows->first[i])), _mm256_set1_epi8(0x70));
        out = _mm256_add_epi8(out, _mm256_shuffle_epi8(lmc__load_row_avx2(rows->more[i]), place));
    }
    return out;
}

LMC__AVX2 static void lmc__map_avx2(uint8_t *dst, const uint8_t *src, size_t n,
                                    const uint8_t *table)
{
    lmc__rows rows;
    size_t i;
    lmc__set_rows_avx2(&rows, table);
    for (i = 0; i + 32 <= n; i += 32)
        lmc__store_avx2(dst + i, lmc__map_step_avx2(&rows, lmc__load_avx2(src + i)));
    lmc__map_scalar(dst + i, src + i, n - i, table);
}

#endif

#if LMC__X86
/* Two look-ups of 128 entries each, which ignore bit 7 of a byte; bit 7 chooses between them.
 * vpmovb2m makes a mask of just that bit of each byte. */
LMC__INLINE_AVX512 __m512i lmc__map_step_avx512(__m512i v, const __m512i table[4])
{
    const __m512i low = _mm512_permutex2var_epi8(table[0], v, table[1]),
                  high = _mm512_permutex2var_epi8(table[2], v, table[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v), high);
}

/* The last step's loads and stores are masked: bytes behind n are not touched. */
LMC__AVX512 static void lmc__map_avx512(uint8_t *dst, const uint8_t *src, size_t n,
                                        const uint8_t *table)
{
    __m512i t[4];
    size_t i;
    for (i = 0; i < 4; i++) t[i] = lmc__load_avx512(table + 64 * i);
    for (i = 0; i < n; i += 64) {
        const __mmask64 valid = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        _mm512_mask_storeu_epi8(dst + i, valid,
                                lmc__map_step_avx512(_mm512_maskz_loadu_epi8(valid, src + i), t));
    }
}
#endif
#endif /* LMC_NO_ENCODER */
