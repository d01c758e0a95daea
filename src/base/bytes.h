#pragma once
#include "base/platform.h"

/* Integers in memory, little-endian and of any alignment, as in the format (spec 2). Compilers make
 * one instruction of a memcpy of constant size. Loading two bytes is also one instruction. */
LMC__INLINE uint16_t lmc__load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}
LMC__INLINE uint32_t lmc__load32(const uint8_t *p)
{
#if LMC__LITTLE_ENDIAN
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
#else
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
#endif
}
LMC__INLINE uint64_t lmc__load64(const uint8_t *p)
{
#if LMC__LITTLE_ENDIAN
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
#else
    return (uint64_t)lmc__load32(p) | (uint64_t)lmc__load32(p + 4) << 32;
#endif
}
LMC__INLINE void lmc__store16(uint8_t *p, uint16_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 2);
#else
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
#endif
}
LMC__INLINE void lmc__store32(uint8_t *p, uint32_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 4);
#else
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
#endif
}
LMC__INLINE void lmc__store64(uint8_t *p, uint64_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 8);
#else
    lmc__store32(p, (uint32_t)v);
    lmc__store32(p + 4, (uint32_t)(v >> 32));
#endif
}

/* Element i of an array whose elements have `width` bytes, 1, 2, 4 or 8, as an integer. */
LMC__INLINE uint64_t lmc__load_element(const uint8_t *p, size_t i, unsigned width)
{
    switch (width) {
    case 1: return p[i];
    case 2: return lmc__load16(p + 2 * i);
    case 4: return lmc__load32(p + 4 * i);
    default: return lmc__load64(p + 8 * i);
    }
}
LMC__INLINE void lmc__store_element(uint8_t *p, size_t i, uint64_t v, unsigned width)
{
    switch (width) {
    case 1: p[i] = (uint8_t)v; break;
    case 2: lmc__store16(p + 2 * i, (uint16_t)v); break;
    case 4: lmc__store32(p + 4 * i, (uint32_t)v); break;
    default: lmc__store64(p + 8 * i, v);
    }
}

/* The number of the lowest one bit of v > 0. */
LMC__INLINE unsigned lmc__lowest_bit(uint64_t v)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(v);
#else
    unsigned n = 0;
    while (!(v >> n & 1)) n++;
    return n;
#endif
}
