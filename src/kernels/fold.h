#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec_swar.h"
#include "kernels/split_join.h"

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
LMC__INLINE uint64_t lmc__load_scalar(const uint8_t *p) { return lmc__load64(p); }
LMC__INLINE void lmc__store_scalar(uint8_t *p, uint64_t v) { lmc__store64(p, v); }
LMC__INLINE uint64_t lmc__splat_scalar(unsigned v) { return v * LMC__ONES8; }
/* sums of bytes modulo 256: the top bits apart, so that nothing is carried over */
LMC__INLINE uint64_t lmc__add_scalar(uint64_t a, uint64_t b)
{
    const uint64_t top = LMC__ONES8 << 7;
    return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
}
LMC__INLINE uint64_t lmc__shl_scalar(uint64_t v, unsigned k) { return v << k; }
LMC__INLINE uint64_t lmc__shr_scalar(uint64_t v, unsigned k) { return v >> k; }
LMC__INLINE uint64_t lmc__select_scalar(uint64_t mask, uint64_t a, uint64_t b)
{
    return (a & mask) | (b & ~mask);
}
/* 255 in each byte where v >= from: the low seven bits compare by a subtraction that cannot borrow
 * from the next byte. */
LMC__INLINE uint64_t lmc__not_below_scalar(uint64_t v, uint64_t from)
{
    const uint64_t top = LMC__ONES8 << 7, low = (v | top) - (from & ~top);
    return ((((v & ~from) | (~(v ^ from) & low)) & top) >> 7) * 255;
}
LMC__DEFINE_JOINT(scalar, LMC__INLINE, uint64_t)

#if LMC__NEON
#define LMC__TARGET_neon
LMC__INLINE uint8x16_t lmc__splat_neon(unsigned v) { return vdupq_n_u8((uint8_t)v); }
LMC__INLINE uint8x16_t lmc__add_neon(uint8x16_t a, uint8x16_t b) { return vaddq_u8(a, b); }
LMC__INLINE uint8x16_t lmc__shl_neon(uint8x16_t v, unsigned k)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)k));
}
LMC__INLINE uint8x16_t lmc__shr_neon(uint8x16_t v, unsigned k)
{
    return vshlq_u8(v, vdupq_n_s8((int8_t)-(int)k));
}
LMC__INLINE uint8x16_t lmc__select_neon(uint8x16_t mask, uint8x16_t a, uint8x16_t b)
{
    return vbslq_u8(mask, a, b);
}
LMC__INLINE uint8x16_t lmc__not_below_neon(uint8x16_t v, uint8x16_t from)
{
    return vcgeq_u8(v, from);
}
LMC__DEFINE_JOINT(neon, LMC__INLINE, uint8x16_t)
#endif

#if LMC__AVX2_TEXT
#define LMC__TARGET_avx2 LMC__AVX2
LMC__INLINE2 __m256i lmc__splat_avx2(unsigned v) { return _mm256_set1_epi8((char)v); }
LMC__INLINE2 __m256i lmc__add_avx2(__m256i a, __m256i b) { return _mm256_add_epi8(a, b); }
LMC__INLINE2 __m256i lmc__shl_avx2(__m256i v, unsigned k)
{
    return _mm256_sll_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE2 __m256i lmc__shr_avx2(__m256i v, unsigned k)
{
    return _mm256_srl_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE2 __m256i lmc__select_avx2(__m256i mask, __m256i a, __m256i b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
LMC__INLINE2 __m256i lmc__not_below_avx2(__m256i v, __m256i from)
{
    return _mm256_cmpeq_epi8(_mm256_max_epu8(v, from), v);
}
LMC__DEFINE_JOINT(avx2, LMC__INLINE2, __m256i)
#endif

#if LMC__X86
#define LMC__TARGET_avx512 LMC__AVX512
LMC__INLINE512 __m512i lmc__splat_avx512(unsigned v) { return _mm512_set1_epi8((char)v); }
LMC__INLINE512 __m512i lmc__add_avx512(__m512i a, __m512i b) { return _mm512_add_epi8(a, b); }
LMC__INLINE512 __m512i lmc__shl_avx512(__m512i v, unsigned k)
{
    return _mm512_sll_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE512 __m512i lmc__shr_avx512(__m512i v, unsigned k)
{
    return _mm512_srl_epi16(v, _mm_cvtsi32_si128((int)k));
}
LMC__INLINE512 __m512i lmc__select_avx512(__m512i mask, __m512i a, __m512i b)
{
    return _mm512_ternarylogic_epi64(mask, a, b, 0xCA);
}
LMC__INLINE512 __m512i lmc__not_below_avx512(__m512i v, __m512i from)
{
    return _mm512_movm_epi8(_mm512_cmpge_epu8_mask(v, from));
}
LMC__DEFINE_JOINT(avx512, LMC__INLINE512, __m512i)
#endif
