/* SPDX-License-Identifier: MIT */
#include "widen.h"

/* A float of few bits: sign, exponent, mantissa. */
struct small_float {
    enum lmc_dtype dtype;
    unsigned exponent_bits, mantissa_bits, bias;
    int has_infinity; /* the highest exponent is that of infinities and NaN, as in IEEE 754; else
                         only its highest mantissa is a NaN */
};

static const struct small_float formats[] = {
    {LMC_BF16, 8, 7, 127, 1},
    {LMC_F16, 5, 10, 15, 1},
    {LMC_F8_E4M3, 4, 3, 7, 0},
    {LMC_F8_E5M2, 5, 2, 15, 1},
};

static const struct small_float *find_format(enum lmc_dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype) return &formats[i];
    return NULL;
}

unsigned widen_width(enum lmc_dtype dtype)
{
    const struct small_float *f = find_format(dtype);
    return f ? (1 + f->exponent_bits + f->mantissa_bits) / 8 : 0;
}

static uint32_t widen_bits(const struct small_float *f, uint32_t bits)
{
    const uint32_t highest = (1u << f->exponent_bits) - 1, one = 1u << f->mantissa_bits;
    const uint32_t sign = bits >> (f->exponent_bits + f->mantissa_bits) << 31;
    const unsigned shift = 23 - f->mantissa_bits;
    uint32_t exponent = bits >> f->mantissa_bits & highest, mantissa = bits & (one - 1);
    if (exponent == highest && f->has_infinity) return sign | 0x7F800000u | mantissa << shift;
    if (exponent == highest && mantissa == one - 1 && !f->has_infinity) return sign | 0x7FC00000u;
    if (exponent == 0 && f->bias == 127) return sign | mantissa << shift; /* subnormal in both */
    if (exponent == 0 && mantissa == 0) return sign;
    exponent += 127 - f->bias;
    if ((bits >> f->mantissa_bits & highest) == 0) { /* subnormal: 0.m becomes 1.m */
        for (exponent++; !(mantissa & one); exponent--) mantissa <<= 1;
        mantissa &= one - 1;
    }
    return sign | exponent << 23 | mantissa << shift;
}

void widen_elements(enum lmc_dtype dtype, void *dst, const void *src, size_t n)
{
    const struct small_float *f = find_format(dtype);
    const unsigned width = widen_width(dtype);
    const uint8_t *from = (const uint8_t *)src;
    uint8_t *to = (uint8_t *)dst;
    for (size_t i = 0; i < n; i++, from += width, to += 4) {
        const uint32_t bits =
            widen_bits(f, width == 1 ? from[0] : from[0] | (uint32_t)from[1] << 8);
        for (unsigned k = 0; k < 4; k++) to[k] = (uint8_t)(bits >> 8 * k);
    }
}
