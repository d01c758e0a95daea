#pragma once
#include "base/platform.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"
#include "kernels/residual.h"

/* map: dst[i] = table[src[i]], table of 256 bytes; dst == src is legal, any other overlap is not.
 * Both are accessed exactly. Encoders map symbols to ranks, the places of their leaves in the tree
 * (spec 6.2), and partition the ranks. The inverse map turns an escape's ranks into bytes. */

#ifndef LMC_NO_ENCODER
/* Four look-ups before four stores: for a compiler, a store may change src or the table. */
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

#if LMC__NEON || LMC__X86
/* AVX2 and NEON look up among only 16 entries, so the table is 16 rows of 16. But the table is a
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
    uint8_t all[16][16];  /* for look_up_rows, if there are many rows to correct */
} lmc__rows;

/* With more rows to correct than this, look_up_rows is faster. */
#define LMC__MANY_ROWS (LMC__NEON ? 6u : 8u)

LMC__STATIC_VEC void lmc__set_rows(lmc__rows *rows, const uint8_t *table)
{
    unsigned i, j;
    rows->n = 0;
    for (i = 0; i < 16; i++) {
        uint8_t more[16];
        for (j = 0; j < 16; j++) more[j] = (uint8_t)(table[16 * i + j] - table[16 * i] - j);
        rows->distance[i] = (uint8_t)(table[16 * i] - 16 * i);
        if ((lmc__load64(more) | lmc__load64(more + 8)) == 0) continue;
        rows->first[rows->n] = (uint8_t)(16 * i);
        memcpy(rows->more[rows->n++], more, 16);
    }
    for (i = 0; i < 256 && rows->n > LMC__MANY_ROWS; i++)
        rows->all[i / 16][i % 16] =
            (uint8_t)(table[i] ^ (LMC__NEON || i % 128 < 16 ? 0 : table[i - 16]));
}

/* Looks up in all rows, like most trees of fp8 and int8 need. */
#if LMC__NEON
LMC__INLINE void lmc__look_up_rows_neon(const lmc__rows *rows, uint8x16_t v[4])
{
    const uint8x16x4_t first = lmc__load64_neon(rows->all[0]);
    uint8x16_t out[4];
    unsigned i, j;
    LMC__UNROLL for (j = 0; j < 4; j++) out[j] = vqtbl4q_u8(first, v[j]);
    LMC__UNROLL for (i = 4; i < 16; i += 4)
    {
        const uint8x16x4_t next = lmc__load64_neon(rows->all[i]);
        LMC__UNROLL for (j = 0; j < 4; j++) out[j] =
            vqtbx4q_u8(out[j], next, vsubq_u8(v[j], vdupq_n_u8((uint8_t)(16 * i))));
    }
    memcpy(v, out, sizeof out);
}
#else
/* A shuffle gives 0 if bit 7 of a place is set, and else uses the lower 4 bits. From a place in row
 * r < 8, each turn subtracts 16: rows 0 to r give an entry, those behind them 0, because the
 * difference saturates. A row has what changes against the row before it (xor), so all turns
 * together give the entry of row r. The upper 128 places, of which bit 7 is set, take the same
 * turns with this bit flipped. */
LMC__INLINE_AVX2 void lmc__look_up_rows_avx2(const lmc__rows *rows, __m256i v[1])
{
    const __m256i row = _mm256_set1_epi8(16);
    __m256i low = v[0], high = _mm256_xor_si256(v[0], _mm256_set1_epi8((char)0x80)),
            out[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    unsigned i;
    LMC__UNROLL for (i = 0; i < 8; i++)
    {
        out[0] =
            _mm256_xor_si256(out[0], _mm256_shuffle_epi8(lmc__load_row_avx2(rows->all[i]), low));
        out[1] = _mm256_xor_si256(out[1],
                                  _mm256_shuffle_epi8(lmc__load_row_avx2(rows->all[i + 8]), high));
        low = _mm256_subs_epi8(low, row);
        high = _mm256_subs_epi8(high, row);
    }
    v[0] = _mm256_xor_si256(out[0], out[1]);
}
#endif

/* As many vectors as partition_step sorts. The loop corrects one row in each iteration. */
LMC__INLINE_VEC void LMC__VEC(map_step)(const lmc__rows *rows, lmc__vector v[LMC__VECTORS_SORTED])
{
    const lmc__vector distance = LMC__VEC(load_row)(rows->distance);
    lmc__vector out[LMC__VECTORS_SORTED];
    const int is_many = rows->n > LMC__MANY_ROWS;
    unsigned i, j;
    /* NEON's registers are for the other way, which floats take, and not for tables */
    if (LMC__NEON ? __builtin_expect(is_many, 0) : is_many) {
        LMC__VEC(look_up_rows)(rows, v);
        return;
    }
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) out[j] = LMC__VEC(plus)(
        v[j], LMC__VEC(shuffle)(distance, (lmc__vector)((LMC__VEC(u8s))v[j] >> 4)), 1);
    for (i = 0; i < rows->n; i++) {
        const lmc__vector first = LMC__VEC(splat)(rows->first[i]),
                          more = LMC__VEC(load_row)(rows->more[i]);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) out[j] =
            LMC__VEC(plus)(out[j], LMC__VEC(shuffle)(more, LMC__VEC(place_in_row)(v[j], first)), 1);
    }
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) v[j] = out[j];
}

LMC__STATIC_VEC void LMC__VEC(map)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *table)
{
    lmc__vector v[LMC__VECTORS_SORTED];
    lmc__rows rows;
    size_t i;
    unsigned j;
    lmc__set_rows(&rows, table);
    for (i = 0; i + sizeof v <= n; i += sizeof v) {
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++) v[j] =
            LMC__VEC(load)(src + i + LMC__VECTOR_SIZE * j);
        LMC__VEC(map_step)(&rows, v);
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_SORTED; j++)
            LMC__VEC(store)(dst + i + LMC__VECTOR_SIZE * j, v[j]);
    }
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
