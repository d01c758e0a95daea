#pragma once
#include "base/platform.h"
#include "kernels/vec.h"
#include "kernels/vec_avx512.h"

/* The residual of an element against its prediction, and back (spec 5.1). Elements are integers of
 * W = 8 * width bits; zigzag makes small differences small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
 *
 * Integers: the difference modulo 2^W. Floats: three steps, each a bijection of all bit patterns:
 *     sign      x = v ^ (base's sign bit): both signs are now relative to the prediction's. So the
 *               prediction is positive: as an integer, base without its sign bit
 *     order     where x is negative, the float falls as its other bits rise: flip these bits, and
 *               the integers have the order of the floats
 *     distance  d = x - base modulo 2^W
 *
 * With prediction 0 all this is a rotation to the left by one bit: x = v; where v is negative, the
 * second step flips all bits but the sign, and zigzag flips them back. */

#ifndef LMC_NO_ENCODER
LMC__INLINE uint64_t lmc__residual(uint64_t v, uint64_t base, unsigned width, enum lmc__order order)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t sign = order == LMC__ORDER_FLOAT ? base & sign_bit : 0, x = v ^ sign,
                   flip = order == LMC__ORDER_FLOAT && x & sign_bit ? below : 0,
                   d = ((x ^ flip) - (base ^ sign)) & all;
    return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;
}
#endif

LMC__INLINE uint64_t lmc__restore_element(uint64_t r, uint64_t base, unsigned width,
                                          enum lmc__order order)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t sign = order == LMC__ORDER_FLOAT ? base & sign_bit : 0,
                   d = (r >> 1) ^ (0 - (r & 1)), x = ((base ^ sign) + d) & all,
                   flip = order == LMC__ORDER_FLOAT && x & sign_bit ? below : 0;
    return x ^ flip ^ sign;
}

#if LMC__NEON || LMC__X86
/* For each element of a vector: sign_bits, its sign bit alone; negative, all bits if it is
 * negative, else none; plus and minus, modulo 2^W; residual and restore, as lmc__residual and
 * lmc__restore_element. Operators of gcc's and clang's vector types act on each element. */
#define LMC__DEFINE_ELEMENTS(isa, INLINE, VECTOR)                                                  \
    typedef uint8_t lmc__u8s_##isa __attribute__((vector_size(sizeof(VECTOR))));                   \
    typedef uint16_t lmc__u16s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef uint32_t lmc__u32s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef uint64_t lmc__u64s_##isa __attribute__((vector_size(sizeof(VECTOR))));                 \
    typedef int8_t lmc__i8s_##isa __attribute__((vector_size(sizeof(VECTOR))));                    \
    typedef int16_t lmc__i16s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    typedef int32_t lmc__i32s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    typedef int64_t lmc__i64s_##isa __attribute__((vector_size(sizeof(VECTOR))));                  \
    INLINE VECTOR lmc__sign_bits_##isa(unsigned width)                                             \
    {                                                                                              \
        const lmc__u64s_##isa zero = {0};                                                          \
        return (VECTOR)(zero + (width == 1   ? 0x8080808080808080u                                 \
                                : width == 2 ? 0x8000800080008000u                                 \
                                : width == 4 ? 0x8000000080000000u                                 \
                                             : 0x8000000000000000u));                              \
    }                                                                                              \
    INLINE VECTOR lmc__negative_##isa(VECTOR v, unsigned width)                                    \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__i8s_##isa)v < 0)                                      \
               : width == 2 ? (VECTOR)((lmc__i16s_##isa)v >> 15)                                   \
               : width == 4 ? (VECTOR)((lmc__i32s_##isa)v >> 31)                                   \
                            : (VECTOR)((lmc__i64s_##isa)v < 0);                                    \
    }                                                                                              \
    INLINE VECTOR lmc__plus_##isa(VECTOR a, VECTOR b, unsigned width)                              \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__u8s_##isa)a + (lmc__u8s_##isa)b)                      \
               : width == 2 ? (VECTOR)((lmc__u16s_##isa)a + (lmc__u16s_##isa)b)                    \
               : width == 4 ? (VECTOR)((lmc__u32s_##isa)a + (lmc__u32s_##isa)b)                    \
                            : (VECTOR)((lmc__u64s_##isa)a + (lmc__u64s_##isa)b);                   \
    }
#ifndef LMC_NO_ENCODER
#define LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)                                                  \
    INLINE VECTOR lmc__minus_##isa(VECTOR a, VECTOR b, unsigned width)                             \
    {                                                                                              \
        return width == 1   ? (VECTOR)((lmc__u8s_##isa)a - (lmc__u8s_##isa)b)                      \
               : width == 2 ? (VECTOR)((lmc__u16s_##isa)a - (lmc__u16s_##isa)b)                    \
               : width == 4 ? (VECTOR)((lmc__u32s_##isa)a - (lmc__u32s_##isa)b)                    \
                            : (VECTOR)((lmc__u64s_##isa)a - (lmc__u64s_##isa)b);                   \
    }                                                                                              \
    INLINE VECTOR lmc__residual_##isa(VECTOR v, VECTOR base, unsigned width,                       \
                                      enum lmc__order order)                                       \
    {                                                                                              \
        const VECTOR sign = lmc__sign_bits_##isa(width), x = v ^ (base & sign),                    \
                     ordered = x ^ (lmc__negative_##isa(x, width) & ~sign),                        \
                     d = order == LMC__ORDER_FLOAT                                                 \
                             ? lmc__minus_##isa(ordered, base & ~sign, width)                      \
                             : lmc__minus_##isa(v, base, width);                                   \
        return lmc__plus_##isa(d, d, width) ^ lmc__negative_##isa(d, width);                       \
    }
#else
#define LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)
#endif
/* r rotated to the right by one bit is r >> 1, with the sign of the difference in the top bit. */
#define LMC__DEFINE_RESTORE(isa, INLINE, VECTOR)                                                   \
    INLINE VECTOR lmc__restore_##isa(VECTOR r, VECTOR base, unsigned width, enum lmc__order order) \
    {                                                                                              \
        const VECTOR sign = lmc__sign_bits_##isa(width), z = lmc__rotate_##isa(r, width, 0),       \
                     d = (z & ~sign) ^ lmc__negative_##isa(z, width);                              \
        VECTOR ordered;                                                                            \
        if (order != LMC__ORDER_FLOAT) return lmc__plus_##isa(base, d, width);                     \
        ordered = lmc__plus_##isa(base & ~sign, d, width);                                         \
        return ordered ^ (lmc__negative_##isa(ordered, width) & ~sign) ^ (base & sign);            \
    }
#define LMC__DEFINE_RESIDUALS(isa, INLINE, VECTOR)                                                 \
    LMC__DEFINE_ELEMENTS(isa, INLINE, VECTOR)                                                      \
    LMC__DEFINE_RESIDUAL(isa, INLINE, VECTOR)                                                      \
    LMC__DEFINE_RESTORE(isa, INLINE, VECTOR)
#endif

#if LMC__NEON
LMC__DEFINE_RESIDUALS(neon, LMC__INLINE, uint8x16_t)
#elif LMC__X86
LMC__DEFINE_RESIDUALS(avx2, LMC__INLINE_AVX2, __m256i)
LMC__DEFINE_RESIDUALS(avx512, LMC__INLINE_AVX512, __m512i)
#endif
