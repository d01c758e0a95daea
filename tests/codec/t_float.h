/* t_float.h - floats and their bits, for the tests of quantisers. */
#ifndef T_FLOAT_H
#define T_FLOAT_H

#include "t.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static inline double float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static inline uint32_t bits_of(double v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline uint32_t get(const uint8_t *p, size_t i, unsigned width)
{
    return width == 4 ? t_load32(p + 4 * i) : (uint32_t)t_load16(p + 2 * i) << 16;
}

static inline void put(uint8_t *p, size_t i, unsigned width, uint32_t bits)
{
    if (width == 4) t_store32(p + 4 * i, bits);
    else t_store16(p + 2 * i, (uint16_t)(bits >> 16));
}

static inline int is_normal(uint32_t bits)
{
    bits &= 0x7FFFFFFF;
    return bits >= 0x00800000 && bits < 0x7F800000;
}

static inline double gauss(uint64_t *seed) { return (double)t_gauss(seed) / 4294967296.0; }

#endif
