#pragma once
#include "base/platform.h"
#include "base/bytes.h"

/* Rounds F32 to formats of 16 bits: to nearest, ties to even; NaN stays NaN (spec 4.2). Integer
 * arithmetic makes all machines round alike. Half a unit less one and the lowest kept bit are
 * added: so a tie is rounded up only if that bit is 1. A carry out of the mantissa raises the
 * exponent, up to infinity, as it should. A NaN keeps its upper half, with the quiet bit set:
 * rounding could make it infinity, or change its sign. */
LMC__INLINE unsigned lmc__to_bf16(uint32_t v)
{
    if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40;
    return (v + 0x7FFF + (v >> 16 & 1)) >> 16;
}

/* F16 has 5 bits of exponent and 10 of mantissa. */
LMC__INLINE unsigned lmc__to_f16(uint32_t v)
{
    const unsigned sign = v >> 16 & 0x8000;
    const uint32_t magnitude = v & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00 | (magnitude >> 13 & 0x3FF);
    if (magnitude >= 0x47800000) return sign | 0x7C00; /* 2^16 or more: infinity */
    if (magnitude >= 0x38800000) /* 2^-14 or more: normal; exponents differ by 127 - 15 = 112 */
        return sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13);
    if (magnitude < 0x33000000) return sign; /* below 2^-25, half of the least subnormal */
    {
        /* Subnormal: the mantissa, with its leading bit, in units of 2^-24. */
        const unsigned shift = 126 - (magnitude >> 23); /* 14 .. 24 */
        const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000,
                       half = (uint32_t)1 << (shift - 1);
        return sign | ((mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
    }
}

#ifndef LMC_NO_SNAPSHOT
LMC_API enum lmc_status lmc_conversion_apply(void *dst, const void *src, size_t n,
                                             enum lmc_conversion conversion)
{
    uint8_t *const out = (uint8_t *)dst;
    const uint8_t *const in = (const uint8_t *)src;
    size_t i;
    if (n && (!dst || !src)) return LMC_ERR_ARGUMENT;
    if (conversion == LMC_CONVERT_F32_TO_BF16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(in + 4 * i)));
    else if (conversion == LMC_CONVERT_F32_TO_F16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_f16(lmc__load32(in + 4 * i)));
    else return LMC_ERR_ARGUMENT;
    return LMC_OK;
}
#endif
