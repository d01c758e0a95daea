#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/*
 * Flat nodes (spec 6.2): all 2^depth leaves below a node have the same depth, 2 to 6, so that an
 * element is a number of so many bits, and the node is `depth` bit planes, the most significant
 * first, of ceil(n / 8) bytes each:
 *
 *     src - first     5 2 7 0 ...           = 101 010 111 000 ...
 *     plane 0         1 0 1 0 ...
 *     plane 1         0 1 1 0 ...
 *     plane 2         1 0 1 0 ...
 *
 * flatten: src is a list, first <= src[i] < first + 2^depth; bits is written exactly, its unused
 * bits as zeros. unflatten: the inverse, dst[i] = symbols[number i]; dst is a list, symbols has
 * 2^depth entries and is not read beyond them. Both go through the planes once for each vector of
 * elements; a plane is shifted out of, or into, the bytes of that vector.
 *
 * Planes stand one behind another without a gap, and a step goes through all of them: a store of a
 * byte too many would spoil the next plane. So the last step's masks go through a word. bits and
 * the list must not overlap.
 */

static void lmc__unflatten_scalar(uint8_t *dst, const uint8_t *bits, size_t n,
                                  const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    size_t i;
    unsigned d, j;
    for (i = 0; i < n; i += 8) {
        uint64_t v = 0;
        for (d = 0; d < depth; d++)
            v = v << 1 | (lmc__byte_mask[bits[d * row + (i >> 3)]] & LMC__ONES8);
        for (j = 0; j < 8; j++) dst[i + j] = symbols[v >> 8 * j & 63];
    }
}

#if LMC__NEON
/* A step of 64 elements, of which n count, the inverse. vsli shifts v to the left by one and
 * inserts it above the lowest bit of its first operand, which is that of 0 or 255, the plane's bit:
 * 2 v + bit in one instruction. vqtbl4 looks up 64 symbols in four registers. */
LMC__INLINE void lmc__unflatten64_neon(uint8_t *dst, const uint8_t *bits, size_t row, size_t n,
                                       uint8x16x4_t table, unsigned depth)
{
    uint8x16_t v[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    unsigned j;
    for (; depth-- != 0; bits += row) {
        const uint8x8_t m = lmc__load_mask_neon(bits, n);
        LMC__UNROLL for (j = 0; j < 4; j++) v[j] =
            vsliq_n_u8(lmc__spread_neon(m, j), v[j], 1); /* v = 2 v + bit */
    }
    LMC__UNROLL for (j = 0; j < 4; j++) vst1q_u8(dst + 16 * j, vqtbl4q_u8(table, v[j]));
}

/* symbols ends with 2^depth entries: a copy is padded to the 64 that a table has. */
static void lmc__unflatten_neon(uint8_t *dst, const uint8_t *bits, size_t n, const uint8_t *symbols,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    uint8x16x4_t table;
    uint8_t padded[64];
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    table = lmc__load64_neon(padded);
    for (; n >= 64; n -= 64, dst += 64, bits += 8)
        lmc__unflatten64_neon(dst, bits, row, 64, table, depth);
    if (n != 0) lmc__unflatten64_neon(dst, bits, row, n, table, depth);
}
#endif

#if LMC__AVX2_TEXT
/* spread_bits gives -1 for a bit: 2 v + bit = v + v - that. Then a shuffle looks up one of 16
 * symbols by the low 4 bits of v. For depths 5 and 6 there are two or four rows of 16, and all are
 * looked up; bits 4 and 5 of v choose:
 *
 *     v            00 r r pppp                row r, place p
 *     row_of       r                          v >> 4, less what a 16-bit shift brings in
 *     out          row 0's, then, where row_of is 1, row 1's, and so on */
LMC__INLINE_AVX2 __m256i lmc__look_up_flat_avx2(const __m256i table[4], __m256i v, unsigned depth)
{
    __m256i out = _mm256_shuffle_epi8(table[0], v); /* looks at the low 4 bits: bit 7 is clear */
    unsigned t;
    if (depth > 4) {
        const __m256i row_of = _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(3));
        LMC__UNROLL for (t = 1; t < 4; t++)
        {
            if (depth == 5 && t == 2) break;
            out = lmc__blend_avx2(_mm256_cmpeq_epi8(row_of, _mm256_set1_epi8((char)t)),
                                  _mm256_shuffle_epi8(table[t], v), out);
        }
    }
    return out;
}

LMC__INLINE_AVX2 void lmc__unflatten_body_avx2(uint8_t *dst, const uint8_t *bits, size_t n,
                                               const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    __m256i table[4];
    uint8_t padded[64];
    size_t i;
    unsigned d, t;
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    for (t = 0; t < 4; t++) table[t] = lmc__load_row_avx2(padded + 16 * t);
    for (i = 0; i + 64 <= n; i += 64) {
        const uint8_t *plane = bits + i / 8;
        __m256i v = _mm256_setzero_si256(), w = v;
        LMC__UNROLL for (d = 0; d < 6; d++, plane += row)
        { /* v = 2 v + bit */
            __m256i m;
            if (d >= depth) break;
            m = lmc__load_bits_avx2(plane);
            v = _mm256_sub_epi8(_mm256_add_epi8(v, v), lmc__spread_low_avx2(m));
            w = _mm256_sub_epi8(_mm256_add_epi8(w, w), lmc__spread_high_avx2(m));
        }
        lmc__store_avx2(dst + i, lmc__look_up_flat_avx2(table, v, depth));
        lmc__store_avx2(dst + i + 32, lmc__look_up_flat_avx2(table, w, depth));
    }
    for (; i < n; i += 32) {
        __m256i v = _mm256_setzero_si256();
        for (d = 0; d < depth; d++)
            v = _mm256_sub_epi8(
                _mm256_add_epi8(v, v),
                lmc__spread_bits_avx2((uint32_t)lmc__load_mask(bits + d * row, i, n)));
        lmc__store_avx2(dst + i, lmc__look_up_flat_avx2(table, v, depth));
    }
}

LMC__AVX2 static void lmc__unflatten_avx2(uint8_t *dst, const uint8_t *bits, size_t n,
                                          const uint8_t *symbols, unsigned depth)
{
    switch (depth) { /* what is a constant is faster */
    case 2: lmc__unflatten_body_avx2(dst, bits, n, symbols, 2); break;
    case 3: lmc__unflatten_body_avx2(dst, bits, n, symbols, 3); break;
    case 4: lmc__unflatten_body_avx2(dst, bits, n, symbols, 4); break;
    case 5: lmc__unflatten_body_avx2(dst, bits, n, symbols, 5); break;
    case 6: lmc__unflatten_body_avx2(dst, bits, n, symbols, 6); break;
    default: lmc__unflatten_body_avx2(dst, bits, n, symbols, depth);
    }
}
#endif

#if LMC__X86
/* Each plane's 64 bits are the mask of an addition of its weight. One vpermb looks up all 64
 * symbols, which is why a flat node has a depth of 6 at most (LMC__MAX_FLAT). Entries behind
 * 2^depth are not read, by a masked load. */
LMC__INLINE_AVX512 void lmc__unflatten_body_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
                                                   const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i table = _mm512_maskz_loadu_epi8(
        depth == 6 ? ~(__mmask64)0 : ((__mmask64)1 << (1 << depth)) - 1, symbols);
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 64) {
        const uint8_t *plane = bits;
        __m512i v = _mm512_setzero_si512();
        LMC__UNROLL for (d = 0; d < 6; d++, plane += row)
        {
            __mmask64 m;
            if (d >= depth) break;
            m = n - i >= 64 ? lmc__load64(plane + i / 8) : lmc__load_mask(plane, i, n);
            v = _mm512_mask_add_epi8(v, m, v, _mm512_set1_epi8((char)(1u << (depth - 1 - d))));
        }
        _mm512_storeu_si512(dst + i, _mm512_permutexvar_epi8(v, table));
    }
}

LMC__AVX512 static void lmc__unflatten_avx512(uint8_t *dst, const uint8_t *bits, size_t n,
                                              const uint8_t *symbols, unsigned depth)
{
    if (depth == 2) lmc__unflatten_body_avx512(dst, bits, n, symbols, 2);
    else lmc__unflatten_body_avx512(dst, bits, n, symbols, depth);
}
#endif

#ifndef LMC_NO_ENCODER
/* Eight elements as the bytes of a word. Bit depth - 1 - d of each, plane d, is brought to the
 * lowest bit of its byte and collected to a byte of the plane. What the shift brings in from a
 * neighbour lies above that bit. */
static void lmc__flatten_scalar(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint64_t low = first * LMC__ONES8;
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 8) {
        /* no borrow between the bytes that count: src[i] >= first */
        uint64_t v = lmc__load64(src + i) - low;
        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;
        for (d = 0; d < depth; d++)
            bits[d * row + (i >> 3)] =
                (uint8_t)lmc__collect_bits(v >> (depth - 1 - d) & LMC__ONES8);
    }
}

#if LMC__NEON
/* A step of 64 elements, of which n count: a mask of 64 bits fills the 8 bytes that a store takes
 * at least. vtst gives 255 where the bit is set; first_bits clears those of slack. */
LMC__INLINE void lmc__flatten64_neon(uint8_t *bits, size_t row, const uint8_t *src, size_t n,
                                     uint8x16_t first, unsigned depth)
{
    const uint8x16_t v[4] = {vsubq_u8(vld1q_u8(src), first), vsubq_u8(vld1q_u8(src + 16), first),
                             vsubq_u8(vld1q_u8(src + 32), first),
                             vsubq_u8(vld1q_u8(src + 48), first)};
    for (; depth-- != 0; bits += row) {
        const uint8x16_t bit = vdupq_n_u8((uint8_t)(1u << depth));
        const uint8x8_t m = lmc__collect_neon(vtstq_u8(v[0], bit), vtstq_u8(v[1], bit),
                                              vtstq_u8(v[2], bit), vtstq_u8(v[3], bit));
        lmc__store_mask_neon(bits, lmc__first_bits_neon(m, n), n);
    }
}

static void lmc__flatten_neon(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                              unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint8x16_t low = vdupq_n_u8((uint8_t)first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        lmc__flatten64_neon(bits, row, src, 64, low, depth);
    if (n != 0) lmc__flatten64_neon(bits, row, src, n, low, depth);
}
#endif

#if LMC__AVX2_TEXT
/* vpmovmskb collects bit 7 of all bytes; so the numbers are shifted up until their top bit is
 * there, and doubled after each plane. Depth 3, two neighbouring bytes of a 16-bit lane, cba and
 * fed:
 *
 *     v = src - first       00000cba   00000fed
 *     << 5                  cba00000   fed00000     a shift of 16 bits; nothing comes from below,
 *                                                   or, in slack, only to bits that stay below
 *     plane 0               c          f
 *     v + v                 ba000000   ed000000     bytes do not carry over
 *     plane 1               b          e
 *
 * One movemask and one addition for 32 elements and a plane. */
LMC__INLINE_AVX2 void lmc__flatten_body_avx2(uint8_t *bits, const uint8_t *src, size_t n,
                                             unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m256i low = _mm256_set1_epi8((char)first);
    /* a count in a register: for SIMDe, one that is an operand must be a literal */
    const __m128i to_top = _mm_cvtsi32_si128((int)(8 - depth));
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 32) {
        /* the top one of the depth bits to bit 7; what comes from a neighbour is below the last
         * one */
        __m256i v = _mm256_sll_epi16(_mm256_sub_epi8(lmc__load_avx2(src + i), low), to_top);
        uint8_t *plane = bits + i / 8;
        LMC__UNROLL for (d = 0; d < depth; d++, plane += row, v = _mm256_add_epi8(v, v))
        {
            const uint32_t m = (uint32_t)_mm256_movemask_epi8(v);
            uint8_t word[4];
            if (n - i >= 32) {
                lmc__store32(plane, m);
            } else {
                lmc__store32(word, m & (((uint32_t)1 << (n - i)) - 1));
                memcpy(plane, word, (n - i + 7) / 8);
            }
        }
    }
}

/* A constant depth unrolls the planes: then a step takes half of the time, or less. */
LMC__AVX2 static void lmc__flatten_avx2(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                        unsigned depth)
{
    switch (depth) {
    case 2: lmc__flatten_body_avx2(bits, src, n, first, 2); break;
    case 3: lmc__flatten_body_avx2(bits, src, n, first, 3); break;
    case 4: lmc__flatten_body_avx2(bits, src, n, first, 4); break;
    case 5: lmc__flatten_body_avx2(bits, src, n, first, 5); break;
    default: lmc__flatten_body_avx2(bits, src, n, first, depth);
    }
}
#endif

#if LMC__X86
/* vptestmb tests a bit of 64 bytes and gives the plane's 64 bits at once. The last step's are
 * masked by `valid`; row - i / 8 is what a plane has left, ceil((n - i) / 8) bytes. */
LMC__AVX512 static void lmc__flatten_avx512(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i low = _mm512_set1_epi8((char)first);
    size_t i;
    unsigned d;
    for (i = 0; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_sub_epi8(_mm512_loadu_si512(src + i), low);
        for (d = 0; d < depth; d++)
            lmc__store64(bits + d * row + i / 8,
                         _mm512_test_epi8_mask(v, _mm512_set1_epi8((char)(1 << (depth - 1 - d)))));
    }
    if (i < n) {
        const __mmask64 valid = ((__mmask64)1 << (n - i)) - 1;
        const __m512i v = _mm512_sub_epi8(_mm512_loadu_si512(src + i), low);
        uint8_t word[8];
        for (d = 0; d < depth; d++) {
            lmc__store64(word, _mm512_mask_test_epi8_mask(
                                   valid, v, _mm512_set1_epi8((char)(1 << (depth - 1 - d)))));
            memcpy(bits + d * row + i / 8, word, row - i / 8);
        }
    }
}
#endif
#endif /* LMC_NO_ENCODER */
