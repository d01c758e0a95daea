#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/tables.h"
#include "kernels/vec_swar.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* Flat nodes (spec 6.2): all 2^depth leaves below a node have the same depth, 2 to 6. So an element
 * is a number of `depth` bits, and the node is `depth` planes of ceil(n / 8) bytes, top bits first:
 *     src - first     5 2 7 0 ...           = 101 010 111 000 ...
 *     plane 0         1 0 1 0 ...
 *     plane 1         0 1 1 0 ...
 *     plane 2         1 0 1 0 ...
 *
 * flatten: src is a list, first <= src[i] < first + 2^depth; bits is written exactly, its unused
 * bits as zeros. unflatten: the inverse, dst[i] = symbols[number i]; dst is a list, symbols has
 * 2^depth entries and is not read beyond them. Both go through all planes once for each vector of
 * elements: a plane's bits are shifted out of, or into, the vector's bytes.
 *
 * There are no gaps between planes, so a store of one byte too many would overwrite the next one:
 * the last step stores exactly what is left of each. bits and the list must not overlap. */

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

#if LMC__NEON || LMC__AVX2_TEXT
/* A step of 64 elements, of which n count. */
LMC__INLINE_VEC void LMC__VEC(unflatten64)(uint8_t *dst, const uint8_t *bits, size_t row, size_t n,
                                           const lmc__table64 *table, unsigned depth)
{
    lmc__vector v[LMC__VECTORS_OF_64];
    unsigned d, j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] = LMC__VEC(splat)(0);
    LMC__UNROLL for (d = 0; d < 6; d++, bits += row)
    {
        lmc__vector m;
        if (d >= depth) break;
        m = LMC__VEC(load_bits)(lmc__load_mask(bits, 0, n));
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] =
            LMC__VEC(push_bit)(v[j], LMC__VEC(spread)(m, j));
    }
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++)
        LMC__VEC(store)(dst + LMC__VECTOR_SIZE * j, LMC__VEC(look_up)(table, v[j], depth));
}

/* symbols has only 2^depth entries: a copy is padded to the 64 entries of a table. */
LMC__INLINE_VEC void LMC__VEC(unflatten_body)(uint8_t *dst, const uint8_t *bits, size_t n,
                                              const uint8_t *symbols, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    lmc__table64 table;
    uint8_t padded[64];
    memset(padded, 0, sizeof padded);
    memcpy(padded, symbols, (size_t)1 << depth);
    table = LMC__VEC(load64)(padded);
    for (; n >= 64; n -= 64, dst += 64, bits += 8)
        LMC__VEC(unflatten64)(dst, bits, row, 64, &table, depth);
    if (n != 0) LMC__VEC(unflatten64)(dst, bits, row, n, &table, depth);
}

/* The usual depth is a constant in a copy of the loop, which is faster. */
LMC__STATIC_VEC void LMC__VEC(unflatten)(uint8_t *dst, const uint8_t *bits, size_t n,
                                         const uint8_t *symbols, unsigned depth)
{
    if (depth == 2) LMC__VEC(unflatten_body)(dst, bits, n, symbols, 2);
    else LMC__VEC(unflatten_body)(dst, bits, n, symbols, depth);
}
#endif

#if LMC__X86
/* Each plane's 64 bits are the mask for adding the plane's weight. One vpermb looks up among 64
 * symbols: so LMC__MAX_FLAT is 6. The masked load reads no entries behind 2^depth. */
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
/* Eight elements as the bytes of a word. Plane d has bit depth - 1 - d of each: the bits are
 * shifted to the lowest place of their bytes and collected to a byte of the plane. Bits that the
 * shift brings in from a neighbour are above that place. */
static void lmc__flatten_scalar(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const uint64_t low = first * LMC__ONES8;
    size_t i;
    unsigned d;
    for (i = 0; i < n; i += 8) {
        /* no element borrows from the next one: src[i] >= first */
        uint64_t v = lmc__load64(src + i) - low;
        if (n - i < 8) v &= ((uint64_t)1 << 8 * (n - i)) - 1;
        for (d = 0; d < depth; d++)
            bits[d * row + (i >> 3)] =
                (uint8_t)lmc__collect_bits(v >> (depth - 1 - d) & LMC__ONES8);
    }
}

#if LMC__NEON || LMC__AVX2_TEXT
LMC__INLINE_VEC void LMC__VEC(flatten64)(uint8_t *bits, size_t row, const uint8_t *src, size_t n,
                                         lmc__vector first, unsigned depth)
{
    lmc__vector v[LMC__VECTORS_OF_64], one[LMC__VECTORS_OF_64];
    unsigned d, j;
    LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) v[j] =
        LMC__VEC(subtract)(LMC__VEC(load)(src + LMC__VECTOR_SIZE * j), first);
    LMC__UNROLL for (d = depth; d-- != 0; bits += row)
    {
        LMC__UNROLL for (j = 0; j < LMC__VECTORS_OF_64; j++) one[j] = LMC__VEC(test)(v[j], d);
        (void)lmc__store_mask(bits, LMC__VEC(to_bits)(one), n);
    }
}

LMC__INLINE_VEC void LMC__VEC(flatten_body)(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const lmc__vector low = LMC__VEC(splat)(first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        LMC__VEC(flatten64)(bits, row, src, 64, low, depth);
    if (n != 0) LMC__VEC(flatten64)(bits, row, src, n, low, depth);
}

LMC__STATIC_VEC void LMC__VEC(flatten)(uint8_t *bits, const uint8_t *src, size_t n, unsigned first,
                                       unsigned depth)
{
    if (depth == 2) LMC__VEC(flatten_body)(bits, src, n, first, 2);
    else LMC__VEC(flatten_body)(bits, src, n, first, depth);
}
#endif

#if LMC__X86
/* vptestmb tests a bit of 64 bytes and gives the plane's 64 bits at once. */
LMC__INLINE_AVX512 void lmc__flatten64_avx512(uint8_t *bits, size_t row, const uint8_t *src,
                                              size_t n, __m512i first, unsigned depth)
{
    const __m512i v = _mm512_sub_epi8(lmc__load_avx512(src), first);
    for (; depth-- != 0; bits += row)
        (void)lmc__store_mask(bits, _mm512_test_epi8_mask(v, lmc__splat_avx512(1u << depth)), n);
}

LMC__AVX512 static void lmc__flatten_avx512(uint8_t *bits, const uint8_t *src, size_t n,
                                            unsigned first, unsigned depth)
{
    const size_t row = (n + 7) / 8;
    const __m512i low = lmc__splat_avx512(first);
    for (; n >= 64; n -= 64, src += 64, bits += 8)
        lmc__flatten64_avx512(bits, row, src, 64, low, depth);
    if (n != 0) lmc__flatten64_avx512(bits, row, src, n, low, depth);
}
#endif
#endif /* LMC_NO_ENCODER */
