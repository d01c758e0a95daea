#pragma once
#include "base/platform.h"

/* Integers in memory, little-endian and of any alignment, as all of the format has them (spec 2).
 *
 * Why memcpy, not a cast of the pointer: a uint32_t * must be aligned and may alias nothing but
 * uint32_t; either is undefined otherwise, and compilers use that. memcpy of a constant size is one
 * instruction, where the machine is little-endian; elsewhere compilers turn the shifts into a load
 * and a byte swap. All sizes are exact: the caller sees to it that so many bytes are there.
 *
 *     p[0] p[1] p[2] p[3]        78 56 34 12  <->  0x12345678 */

/* Two bytes need no memcpy: compilers join them by themselves. The casts are for what C promotes: a
 * byte shifted is an int. */
LMC__INLINE uint16_t lmc__load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}
/* The number is the same for both byte orders; only the way to it differs. Each byte is widened
 * before it is shifted: as an int, p[3] << 24 may be negative, which is undefined in C99. */
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
/* Two halves where bytes are joined: 32-bit machines have no shifts of 64 bits. */
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
/* And back: the low byte comes first, of v that is what a cast keeps. */
LMC__INLINE void lmc__store16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
/* v's lowest byte first. A cast to uint8_t keeps the low 8 bits. */
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
/* As lmc__load64: two halves, the low one first. Where memcpy is used, it is one store. */
LMC__INLINE void lmc__store64(uint8_t *p, uint64_t v)
{
#if LMC__LITTLE_ENDIAN
    memcpy(p, &v, 8);
#else
    lmc__store32(p, (uint32_t)v);
    lmc__store32(p + 4, (uint32_t)(v >> 32));
#endif
}

/* Element i of an array whose elements have `width` bytes, 1, 2, 4 or 8, as an integer. Where width
 * is a constant, as in the kernels, one of the cases is left. */
LMC__INLINE uint64_t lmc__load_element(const uint8_t *p, size_t i, unsigned width)
{
    switch (width) {
    case 1: return p[i];
    case 2: return lmc__load16(p + 2 * i);
    case 4: return lmc__load32(p + 4 * i);
    default: return lmc__load64(p + 8 * i);
    }
}
/* The low `width` bytes of v to element i; what is above them is cut off, as residuals modulo
 * 2^(8 width) want. */
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
