#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/*
 * Joint coding (spec 7.4): the top byte of an element and the `extra` top bits of the byte below it
 * as one symbol. With extra = 2, of the two top bytes of n elements:
 *
 *     high  hhhhhhhh     low  xxllllll
 *     the wide symbol is hhhhhhhhxx; less joint->offset, modulo 256, it goes to symbols
 *     llllll, the packed bits, go to packed, which has 8 / extra - 1 rows:
 *
 *     element           0      1   ...  row-1     row  row+1  ...       packed_size ...  n-1
 *     packed, row 0   ..llllll ..llllll ...                              |
 *             row 1                              ..llllll ...            |
 *             row 2                                          ...         |
 *                     '' the fields of an element behind packed_size: its bits 1..0 in row 0,
 *                        3..2 in row 1, 5..4 in row 2
 *
 * A byte of packed has 8 - extra bits of an element of its own and, in the bits left, a field of
 * one of the last elements, those from packed_size on, of which there are at most `row`.
 *
 * fold: packed is zero before; symbols == high is legal. unfold: the inverse, of n elements from
 * number `first` on, whose symbols are at `symbols`. All rows are lists.
 */

/* The packed bits of element i. */
LMC__INLINE unsigned lmc__unpack(const uint8_t *packed, size_t i, const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    unsigned b, v = 0;
    if (i < joint->packed_size) return packed[i] & 255u >> extra;
    for (b = 0; b < 8 - extra; b += extra)
        v |= (unsigned)packed[b / extra * joint->row + i - joint->packed_size] >> (8 - extra) << b;
    return v;
}

/* Elements [first + i, first + n), one by one. */
static void lmc__unfold_rest(uint8_t *high, uint8_t *low, const uint8_t *symbols,
                             const uint8_t *packed, size_t first, size_t i, size_t n,
                             const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    for (; i < n; i++) {
        const unsigned wide = joint->offset + symbols[i];
        low[i] = (uint8_t)(wide << (8 - extra) | lmc__unpack(packed, first + i, joint));
        high[i] = (uint8_t)(wide >> extra);
    }
}

#ifndef LMC_NO_ENCODER
/* Elements [i, n), one by one. */
static void lmc__fold_rest(uint8_t *symbols, uint8_t *packed, const uint8_t *high,
                           const uint8_t *low, size_t i, size_t n, const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    for (; i < n; i++) {
        const unsigned rest = low[i] & 255u >> extra;
        unsigned b;
        symbols[i] = (uint8_t)((high[i] << extra | low[i] >> (8 - extra)) - (int)joint->offset);
        if (i < joint->packed_size) packed[i] = (uint8_t)rest;
        else
            for (b = 0; b < 8 - extra; b += extra) {
                uint8_t *const p = packed + b / extra * joint->row + i - joint->packed_size;
                *p = (uint8_t)(*p | (rest >> b) << (8 - extra));
            }
    }
}
#endif

/* The tiers. */
#define LMC__ISA(name) lmc__##name##_scalar
#define LMC__VECTOR uint64_t
#define LMC__INLINE_ISA LMC__INLINE
#define LMC__STATIC_ISA static
#include "kernels/fold_vec.inl"

#if LMC__NEON
#define LMC__ISA(name) lmc__##name##_neon
#define LMC__VECTOR uint8x16_t
#define LMC__INLINE_ISA LMC__INLINE
#define LMC__STATIC_ISA static
#include "kernels/fold_vec.inl"
#endif

#if LMC__AVX2_TEXT
#define LMC__ISA(name) lmc__##name##_avx2
#define LMC__VECTOR __m256i
#define LMC__INLINE_ISA LMC__INLINE2
#define LMC__STATIC_ISA LMC__AVX2 static
#include "kernels/fold_vec.inl"
#endif

#if LMC__X86
#define LMC__ISA(name) lmc__##name##_avx512
#define LMC__VECTOR __m512i
#define LMC__INLINE_ISA LMC__INLINE512
#define LMC__STATIC_ISA LMC__AVX512 static
#include "kernels/fold_vec.inl"
#endif
