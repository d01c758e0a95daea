#pragma once
#include "base/platform.h"
#include "base/bytes.h"

/* F32 to BF16, to nearest, ties to even; NaN stays NaN. */
LMC__INLINE unsigned lmc__to_bf16(uint32_t v)
{
    if ((v & 0x7FFFFFFF) > 0x7F800000) return v >> 16 | 0x40;
    return (v + 0x7FFF + (v >> 16 & 1)) >> 16;
}

/* F32 to F16, likewise. */
LMC__INLINE unsigned lmc__to_f16(uint32_t v)
{
    const unsigned sign = v >> 16 & 0x8000;
    const uint32_t magnitude = v & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | 0x7E00 | (magnitude >> 13 & 0x3FF);
    if (magnitude >= 0x47800000) return sign | 0x7C00; /* 2^16 and more */
    if (magnitude >= 0x38800000) /* 2^-14 and more: exponents differ by 112; the carry may reach
                                    infinity, as it should */
        return sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13);
    if (magnitude < 0x33000000) return sign; /* below 2^-25 */
    {
        const unsigned shift = 126 - (magnitude >> 23); /* 14 .. 24: the units of 2^-24 */
        const uint32_t mantissa = (magnitude & 0x7FFFFF) | 0x800000,
                       half = (uint32_t)1 << (shift - 1);
        return sign | ((mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
    }
}

LMC_API void lmc_convert(void *dst, const void *src, size_t n, enum lmc_conversion conversion)
{
    uint8_t *const out = (uint8_t *)dst;
    const uint8_t *const in = (const uint8_t *)src;
    size_t i;
    if (conversion == LMC_CONVERT_F32_TO_BF16)
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_bf16(lmc__load32(in + 4 * i)));
    else
        for (i = 0; i < n; i++)
            lmc__store16(out + 2 * i, (uint16_t)lmc__to_f16(lmc__load32(in + 4 * i)));
}
