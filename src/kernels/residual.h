#pragma once
#include "base/platform.h"
#include "kernels/vec_neon.h"
#include "kernels/vec_avx2.h"
#include "kernels/vec_avx512.h"

/* The residual of an element against its prediction, and back (spec 7.2). */

/* Integers of 8 * width bits in 64. */
LMC__INLINE uint64_t lmc__residual(uint64_t v, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t x = v ^ (base & sign_bit); /* its sign is relative to the base's */
    const uint64_t d = (((x & sign_bit) ? x ^ below : x) - (base & below)) & all;
    if (!subtract) return v ^ base;
    return ((d << 1) ^ (0 - (d >> (8 * width - 1)))) & all;
}

/* The inverse. */
LMC__INLINE uint64_t lmc__restore_element(uint64_t r, uint64_t base, unsigned width, int subtract)
{
    const uint64_t sign_bit = (uint64_t)1 << (8 * width - 1), below = sign_bit - 1,
                   all = sign_bit | below;
    const uint64_t t = ((base & below) + ((r >> 1) ^ (0 - (r & 1)))) & all;
    if (!subtract) return r ^ base;
    return ((t & sign_bit) ? t ^ below : t) ^ (base & sign_bit);
}

#if LMC__X86 || LMC__NEON
/* lmc__residual and lmc__restore_element in each element of a vector, with the compilers' own
 * operators on vectors. */
#define LMC__DEFINE_RESIDUAL(isa, inline_isa, vector)                                              \
    inline_isa vector lmc__residual_##isa(vector v, vector b, unsigned width, int subtract)        \
    {                                                                                              \
        const vector sign = lmc__sign_bits_##isa(width), x = v ^ (b & sign);                       \
        const vector d =                                                                           \
            lmc__minus_##isa(x ^ (lmc__negative_##isa(x, width) & ~sign), b & ~sign, width);       \
        return subtract ? lmc__plus_##isa(d, d, width) ^ lmc__negative_##isa(d, width) : v ^ b;    \
    }                                                                                              \
    inline_isa vector lmc__restore_##isa(vector r, vector b, unsigned width, int subtract)         \
    {                                                                                              \
        const vector sign = lmc__sign_bits_##isa(width),                                           \
                     z = lmc__rotate_##isa(r, width, 0); /* its sign: the zigzag's */              \
        const vector t =                                                                           \
            lmc__plus_##isa(b & ~sign, (z & ~sign) ^ lmc__negative_##isa(z, width), width);        \
        return subtract ? t ^ (lmc__negative_##isa(t, width) & ~sign) ^ (b & sign) : r ^ b;        \
    }

#if LMC__NEON
LMC__DEFINE_RESIDUAL(neon, LMC__INLINE, uint8x16_t)
#endif
#if LMC__X86
LMC__DEFINE_RESIDUAL(avx2, LMC__INLINE2, __m256i)
LMC__DEFINE_RESIDUAL(avx512, LMC__INLINE512, __m512i)
#endif
#endif
