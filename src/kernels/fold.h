#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/* -- 6.12 fold: high, low: the two top bytes of n elements. The wide symbol is high and the `extra`
 * top bits of low; less the offset, modulo 256, it goes to symbols; low's other bits go to packed,
 * which is zero. symbols == high is legal. --
 * -- 6.13 unfold: the inverse, of n elements from number `first` on, whose symbols are at
 * `symbols`; all rows are lists -- */

/* Whole vectors only; returns the number of elements done. The steps: shifts of bytes whose stray
 * bits a select removes. `tail`: these elements are behind packed_size, and packed is where the
 * field of the first is in row 0; else it is where its byte is. */
#define LMC__DEFINE_JOINT(isa, inline_isa, vector)                                                 \
    inline_isa size_t lmc__fold_part_##isa(uint8_t *symbols, uint8_t *packed, const uint8_t *high, \
                                           const uint8_t *low, size_t n, unsigned extra,           \
                                           unsigned offset, size_t row, int tail)                  \
    {                                                                                              \
        const vector field = lmc__splat_##isa((1u << extra) - 1),                                  \
                     rest = lmc__splat_##isa(255u >> extra);                                       \
        const vector top = lmc__splat_##isa((255u << (8 - extra)) & 255),                          \
                     zero = lmc__splat_##isa(0), to = lmc__splat_##isa((256 - offset) & 255);      \
        size_t i;                                                                                  \
        for (i = 0; i + sizeof(vector) <= n; i += sizeof(vector)) {                                \
            const vector h = lmc__load_##isa(high + i), l = lmc__load_##isa(low + i);              \
            lmc__store_##isa(symbols + i,                                                          \
                             lmc__add_##isa(lmc__select_##isa(field, lmc__shr_##isa(l, 8 - extra), \
                                                              lmc__shl_##isa(h, extra)),           \
                                            to));                                                  \
            if (tail) {                                                                            \
                unsigned b;                                                                        \
                for (b = 0; b < 8 - extra; b += extra) {                                           \
                    uint8_t *const p = packed + b / extra * row + i;                               \
                    lmc__store_##isa(p, lmc__select_##isa(top, lmc__shl_##isa(l, 8 - extra - b),   \
                                                          lmc__load_##isa(p)));                    \
                }                                                                                  \
            } else {                                                                               \
                lmc__store_##isa(packed + i, lmc__select_##isa(rest, l, zero));                    \
            }                                                                                      \
        }                                                                                          \
        return i;                                                                                  \
    }                                                                                              \
    /* the bits of elements behind packed_size; packed: the field of the first in row 0 */         \
    inline_isa vector lmc__unpack_tail_##isa(const uint8_t *packed, size_t row, unsigned extra)    \
    {                                                                                              \
        vector r = lmc__splat_##isa(0);                                                            \
        unsigned b;                                                                                \
        for (b = 0; b < 8 - extra; b += extra)                                                     \
            r = lmc__select_##isa(                                                                 \
                lmc__splat_##isa(((1u << extra) - 1) << b),                                        \
                lmc__shr_##isa(lmc__load_##isa(packed + b / extra * row), 8 - extra - b), r);      \
        return r;                                                                                  \
    }                                                                                              \
    /* *high: symbols, *low: what is packed; to the bytes */                                       \
    inline_isa void lmc__unfold_step_##isa(vector *high, vector *low, unsigned extra,              \
                                           unsigned offset)                                        \
    {                                                                                              \
        const vector from = lmc__splat_##isa(offset & 255), s = lmc__add_##isa(*high, from);       \
        const vector lower = lmc__splat_##isa((offset >> 8 << (8 - extra)) & 255),                 \
                     upper = lmc__splat_##isa((((offset >> 8) + 1) << (8 - extra)) & 255);         \
        *high = lmc__select_##isa(lmc__splat_##isa(255u >> extra), lmc__shr_##isa(s, extra),       \
                                  lmc__select_##isa(lmc__not_below_##isa(s, from), lower, upper)); \
        *low = lmc__select_##isa(lmc__splat_##isa((255u << (8 - extra)) & 255),                    \
                                 lmc__shl_##isa(s, 8 - extra), *low);                              \
    }                                                                                              \
    inline_isa size_t lmc__unfold_part_##isa(uint8_t *high, uint8_t *low, const uint8_t *symbols,  \
                                             const uint8_t *packed, size_t n, unsigned extra,      \
                                             unsigned offset, size_t row, int tail)                \
    {                                                                                              \
        size_t i;                                                                                  \
        for (i = 0; i + sizeof(vector) <= n; i += sizeof(vector)) {                                \
            vector h = lmc__load_##isa(symbols + i),                                               \
                   l = tail ? lmc__unpack_tail_##isa(packed + i, row, extra)                       \
                            : lmc__load_##isa(packed + i);                                         \
            lmc__unfold_step_##isa(&h, &l, extra, offset);                                         \
            lmc__store_##isa(high + i, h);                                                         \
            lmc__store_##isa(low + i, l);                                                          \
        }                                                                                          \
        return i;                                                                                  \
    }                                                                                              \
    LMC__TARGET_##isa static void lmc__fold_##isa(uint8_t *symbols, uint8_t *packed,               \
                                                  const uint8_t *high, const uint8_t *low,         \
                                                  size_t n, const lmc__joint *joint)               \
    {                                                                                              \
        const size_t row = joint->row, n_main = lmc__min(n, joint->packed_size);                   \
        size_t i = joint->extra == 1 ? lmc__fold_part_##isa(symbols, packed, high, low, n_main, 1, \
                                                            joint->offset, row, 0)                 \
                                     : lmc__fold_part_##isa(symbols, packed, high, low, n_main, 2, \
                                                            joint->offset, row, 0);                \
        lmc__fold_rest(symbols, packed, high, low, i, n_main, joint);                              \
        if (n == n_main) return;                                                                   \
        symbols += n_main;                                                                         \
        high += n_main;                                                                            \
        low += n_main;                                                                             \
        i = joint->extra == 1 ? lmc__fold_part_##isa(symbols, packed, high, low, n - n_main, 1,    \
                                                     joint->offset, row, 1)                        \
                              : lmc__fold_part_##isa(symbols, packed, high, low, n - n_main, 2,    \
                                                     joint->offset, row, 1);                       \
        lmc__fold_rest(symbols - n_main, packed, high - n_main, low - n_main, n_main + i, n,       \
                       joint);                                                                     \
    }                                                                                              \
    LMC__TARGET_##isa static void lmc__unfold_##isa(                                               \
        uint8_t *high, uint8_t *low, const uint8_t *symbols, const uint8_t *packed, size_t first,  \
        size_t n, const lmc__joint *joint)                                                         \
    {                                                                                              \
        const size_t row = joint->row, offset = joint->offset, size = joint->packed_size;          \
        const size_t n_main = first < size ? lmc__min(n, size - first) : 0;                        \
        size_t i = joint->extra == 1                                                               \
                       ? lmc__unfold_part_##isa(high, low, symbols, packed + first, n_main, 1,     \
                                                (unsigned)offset, row, 0)                          \
                       : lmc__unfold_part_##isa(high, low, symbols, packed + first, n_main, 2,     \
                                                (unsigned)offset, row, 0);                         \
        lmc__unfold_rest(high, low, symbols, packed, first, i, n_main, joint);                     \
        if (n == n_main) return;                                                                   \
        packed += first + n_main - size;                                                           \
        i = joint->extra == 1                                                                      \
                ? lmc__unfold_part_##isa(high + n_main, low + n_main, symbols + n_main, packed,    \
                                         n - n_main, 1, (unsigned)offset, row, 1)                  \
                : lmc__unfold_part_##isa(high + n_main, low + n_main, symbols + n_main, packed,    \
                                         n - n_main, 2, (unsigned)offset, row, 1);                 \
        lmc__unfold_rest(high, low, symbols, packed - (first + n_main - size), first, n_main + i,  \
                         n, joint);                                                                \
    }

/* The bits of element i of the byte below the top one that are packed. */
LMC__INLINE unsigned lmc__unpack(const uint8_t *packed, size_t i, const lmc__joint *joint)
{
    const unsigned extra = joint->extra;
    unsigned b, v = 0;
    if (i < joint->packed_size) return packed[i] & 255u >> extra;
    for (b = 0; b < 8 - extra; b += extra)
        v |= (unsigned)packed[b / extra * joint->row + i - joint->packed_size] >> (8 - extra) << b;
    return v;
}

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

#define LMC__TARGET_scalar
LMC__DEFINE_JOINT(scalar, LMC__INLINE, uint64_t)

#if LMC__NEON
#define LMC__TARGET_neon
LMC__DEFINE_JOINT(neon, LMC__INLINE, uint8x16_t)
#endif

#if LMC__AVX2_TEXT
#define LMC__TARGET_avx2 LMC__AVX2
LMC__DEFINE_JOINT(avx2, LMC__INLINE2, __m256i)
#endif

#if LMC__X86
#define LMC__TARGET_avx512 LMC__AVX512
LMC__DEFINE_JOINT(avx512, LMC__INLINE512, __m512i)
#endif
