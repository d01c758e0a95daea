#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/vec.h"

/* Quantised elements (spec/quantised.md): each is a point of a grid, named by a symbol of 16 bits;
 * symbol 0 is the element +0. Elements are the bits of F32, little-endian.
 *
 *     restore   symbols to elements
 *     quantize  elements to symbols; returns the number of exceptions
 *
 * All n elements have one scale. But if `second` is not NULL and the grid is linear, each element's
 * scale follows from its prediction, an F32 in `second`. In restore, dst may be second.
 *
 *     linear    element = q * scale                      q = grid->min + symbol - 1
 *     log       bits of element = scale + q * step, so points have nearly equal ratios; the sign,
 *               if there is one, is the lowest bit of symbol - 1
 *
 *     linear, min = -2          log, signed, min = 0
 *     symbol  1  2  3  4  5     symbol - 1    0   1   2   3   4   5
 *     q      -2 -1  0  1  2     q             0   0   1   1   2   2
 *                               sign          +   -   +   -   +   -
 *
 * All tiers, compilers and options must give the same bits. So where rounding matters, the code
 * uses integers, or operations that IEEE 754 defines exactly. FMA is not used.
 *
 * q with its sign fits in 17 bits. A scale is the bits of an F32 with 8 significant bits, at least
 * LMC__MIN_SCALE. Scales from a block have been checked (codec/get_quantized.h). All arrays are
 * read and written exactly. dst and src need no alignment. Only dst and second may overlap. */

#ifndef LMC_NO_QUANTIZE
/* The scale that follows from an element's prediction: about the prediction's square root times a
 * constant. Half of a float's bits, as a number, is about the bits of the float's root, except for
 * the exponent's bias. floor and bias are within the bounds of spec/quantised.md: half the bits are
 * less than 2^30, and bias is 2^30 at most, so the sum is less than 2^31. */
LMC__INLINE uint32_t lmc__predicted_scale(uint32_t p, const lmc__grid *grid)
{
    int32_t half;
    p &= 0x7FFFFFFF;
    half = (int32_t)((p > grid->floor ? p : grid->floor) >> 1) + grid->bias;
    if (half < (int32_t)LMC__MIN_SCALE) half = (int32_t)LMC__MIN_SCALE;
    if (half > (int32_t)LMC__MAX_SCALE) half = (int32_t)LMC__MAX_SCALE;
    return (uint32_t)half & 0xFFFF0000u;
}

/* Symbol 0 is q = 0, whatever min is. Others may give 0, too, and so +0: scales are positive. */
LMC__INLINE uint32_t lmc__restore_linear(uint32_t symbol, uint32_t scale, int32_t min)
{
    const float q = symbol ? (float)(min + (int32_t)symbol - 1) : 0.0f;
    float g, product;
    uint32_t bits;
    memcpy(&g, &scale, 4);
    product =
        q * g; /* 16 bits times 8: exact in any rounding mode and precision, never subnormal */
    memcpy(&bits, &product, 4);
    return bits;
}

/* Computes in 64 bits, since q * step needs 41. The magnitude is always a normal number. */
LMC__INLINE uint32_t lmc__restore_log(uint32_t symbol, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t t = symbol - 1, sign = grid->is_signed ? t << 31 : 0;
    const int64_t q = (int64_t)grid->min + (int64_t)(grid->is_signed ? t >> 1 : t);
    int64_t v = (int64_t)scale + q * grid->step;
    if (symbol == 0) return 0;
    if (v < (int64_t)LMC__MIN_SCALE) v = (int64_t)LMC__MIN_SCALE;
    if (v > (int64_t)LMC__MAX_LOG_SCALE) v = (int64_t)LMC__MAX_LOG_SCALE;
    return (uint32_t)v | sign;
}

#ifndef LMC_NO_ENCODER
/* Magnitude / scale, rounded to F32, then to the nearest integer, halves up; at most 65536. This is
 * IEEE's division, done with integers. A mantissa of 24 bits, shifted up by 9, divided by one of 8
 * bits gives 25 or 26 bits: 24 bits, and 1 or 2 that decide the rounding. Only exact divisions give
 * ties, which are rounded to the even neighbour.
 *
 *     a      1mmmmmmm mmmmmmmm mmmmmmmm             value a * 2^(exponent of magnitude - 150)
 *     b                        1nnnnnnn             value b * 2^(exponent of scale - 134)
 *     a / b = quotient / 2^9, so magnitude / scale = quotient * 2^(exponent - 25)
 *
 *     quotient of 26 bits   qqqqqqqq qqqqqqqq qqqqqqqq rr      shift 2, half 10
 *     of 25 bits             qqqqqqqq qqqqqqqq qqqqqqqq r      shift 1, half 1
 *
 * m has the 24 bits that F32 keeps. m++ may make it 2^24, which is also right. Then
 * floor(m * 2^(-1 - drop) + 1/2) is ((m >> drop) + 1) >> 1. If drop is below 0, the result is at
 * least 2^23; if drop is above 25, at most an eighth. */
LMC__INLINE uint32_t lmc__divide(uint32_t magnitude, uint32_t scale)
{
    const uint32_t a = (magnitude & 0x7FFFFF) | 0x800000, b = (scale >> 16 & 0x7F) | 0x80;
    const int exponent = (int)(magnitude >> 23) - (int)(scale >> 23);
    const uint64_t quotient = ((uint64_t)a << 9) / b; /* 25 or 26 bits */
    const unsigned shift = quotient >> 25 ? 2 : 1;
    const uint32_t rest = (uint32_t)quotient & ((1u << shift) - 1), half = 1u << (shift - 1);
    const int is_exact = quotient * b == (uint64_t)a << 9;
    uint32_t m = (uint32_t)(quotient >> shift);
    const int drop = 24 - exponent - (int)shift; /* the quotient is m * 2^(-1 - drop) */
    if (rest > half || (rest == half && (!is_exact || (m & 1)))) m++;
    if (drop < 0) return 65536;
    if (drop > 25) return 0;
    m = ((m >> drop) + 1) >> 1;
    return m < 65536 ? m : 65536;
}

/* Whether the exponent is neither 0 nor 255: subtracting wraps smaller numbers to large ones. */
LMC__INLINE int lmc__is_normal(uint32_t v) { return (v & 0x7FFFFFFF) - 0x00800000 < 0x7F000000; }

/* The nearest point, if its q is in [min, min + n_points): one unsigned comparison tests that. +0
 * is symbol 0; -0, subnormals, infinities and NaN are exceptions. Halves are rounded away from
 * zero, since the magnitude is rounded up. */
LMC__INLINE uint32_t lmc__quantize_linear(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const int32_t magnitude = (int32_t)lmc__divide(x & 0x7FFFFFFF, scale),
                  q = x >> 31 ? -magnitude : magnitude;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (uint32_t)(q - grid->min) >= grid->n_points) return LMC__EXCEPTION;
    return q == 0 ? 0 : (uint32_t)(q - grid->min) + 1;
}

/* Distance from scale to the lower border of the lowest point. In lmc__quantize_log, elements below
 * that border wrap to 2^31 and more. An encoder's grid has n_points * step below 2^31
 * (lmc__max_points), so no distance wraps to a point. */
LMC__INLINE uint32_t lmc__lowest(const lmc__grid *grid)
{
    return (uint32_t)grid->min * grid->step - (grid->step >> 1);
}

/* t: the distance from the lowest border, in steps: the number of the element's interval. */
LMC__INLINE uint32_t lmc__quantize_log(uint32_t x, uint32_t scale, const lmc__grid *grid)
{
    const uint32_t u = (x & 0x7FFFFFFF) - scale - lmc__lowest(grid), t = u / grid->step;
    if (x == 0) return 0;
    if (!lmc__is_normal(x) || (x & 0x7FFFFFFF) > LMC__MAX_LOG_SCALE ||
        (x >> 31 && !grid->is_signed) || u >> 31 || t >= grid->n_points)
        return LMC__EXCEPTION; /* it is over half a step beyond the outermost points */
    return (grid->is_signed ? t << 1 | x >> 31 : t) + 1;
}
#endif

/* The scalar kernels, which define the results. */
static void lmc__restore_scalar(uint8_t *dst, const uint16_t *symbols, const uint8_t *second,
                                size_t n, uint32_t scale, const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (second) scale = lmc__predicted_scale(lmc__load32(second + 4 * i), grid);
        lmc__store32(dst + 4 * i, grid->is_log ? lmc__restore_log(symbols[i], scale, grid)
                                               : lmc__restore_linear(symbols[i], scale, grid->min));
    }
}

/* symbols[i] = high[i] << low_bits | low[i]; low is NULL if low_bits is 0 */
static void lmc__join_symbols_scalar(uint16_t *symbols, const uint8_t *high, const uint8_t *low,
                                     size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++)
        symbols[i] = (uint16_t)((unsigned)high[i] << low_bits | (low ? low[i] : 0u));
}

/* memcpy that bypasses the caches if the tier can. The caller ends with LMC__FENCE_STREAMS. */
static void lmc__stream_scalar(uint8_t *dst, const uint8_t *src, size_t size)
{
    memcpy(dst, src, size);
}

#ifndef LMC_NO_ENCODER
static size_t lmc__quantize_scalar(uint16_t *symbols, const uint8_t *src, const uint8_t *second,
                                   size_t n, uint32_t scale, const lmc__grid *grid)
{
    size_t i, exceptions = 0;
    for (i = 0; i < n; i++) {
        const uint32_t x = lmc__load32(src + 4 * i);
        if (second) scale = lmc__predicted_scale(lmc__load32(second + 4 * i), grid);
        symbols[i] = (uint16_t)(grid->is_log ? lmc__quantize_log(x, scale, grid)
                                             : lmc__quantize_linear(x, scale, grid));
        exceptions += symbols[i] == LMC__EXCEPTION;
    }
    return exceptions;
}

/* Sum of (bits of the magnitude >> 14) over those of n <= 32768 elements that are normal numbers;
 * *count: how many these are. The sum fits in 32 bits: 17 for each element, times 2^15. */
static uint32_t lmc__sum_magnitudes_scalar(const uint8_t *src, size_t n, uint32_t *count)
{
    uint32_t sum = 0;
    size_t i;
    *count = 0;
    for (i = 0; i < n; i++) {
        const uint32_t x = lmc__load32(src + 4 * i);
        if (!lmc__is_normal(x)) continue;
        sum += (x & 0x7FFFFFFF) >> 14;
        ++*count;
    }
    return sum;
}

static void lmc__cut_symbols_scalar(uint8_t *high, uint8_t *low, const uint16_t *symbols, size_t n,
                                    unsigned low_bits)
{
    size_t i;
    for (i = 0; i < n; i++) {
        high[i] = (uint8_t)(symbols[i] >> low_bits);
        if (low) low[i] = (uint8_t)(symbols[i] & ((1u << low_bits) - 1));
    }
}
#endif /* LMC_NO_ENCODER */

#if LMC__VECTORS
#ifndef LMC_NO_ENCODER
/* u / divisor for u < 2^31 is (u * magic) >> shift, shift = 31 + log2, where 2^log2 is the least
 * power of two that is at least the divisor (Warren, Hacker's Delight, 10-9). If the divisor is a
 * power of two, a shift by log2 is enough.
 *
 * magic exceeds 2^shift / divisor by at most 1, so the product, divided by 2^shift, exceeds u /
 * divisor by less than 2^31 / 2^shift = 2^-log2. That is at most 1 / divisor: too little to reach
 * the next integer, which is at least 1 / divisor above u / divisor. */
typedef struct lmc__divisor {
    uint64_t magic;
    unsigned shift;
    int is_power;
} lmc__divisor;

LMC__INLINE lmc__divisor lmc__divide_by(uint32_t divisor)
{
    lmc__divisor d;
    unsigned log2 = 0;
    while ((uint32_t)1 << log2 < divisor) log2++;
    d.shift = 31 + log2;
    d.is_power = (uint32_t)1 << log2 == divisor;
    d.magic = ((uint64_t)1 << d.shift) / divisor + 1;
    return d;
}
#endif

/* The scales that the predictions at `second` give. They are positive as signed integers. */
LMC__INLINE_VEC lmc__i32v lmc__predicted_scales_vec(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    lmc__i32v p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

/* q + (min - 1) is masked to 0 for symbol 0. Its product with the scale is then +0: scales are
 * positive. Conversion (17 bits to 24) and product (16 bits times 8) are exact. */
LMC__INLINE_VEC void lmc__restore_linear_step_vec(uint8_t *dst, const uint16_t *symbols,
                                                  lmc__i32v scale, int32_t min)
{
    lmc__u16v s;
    lmc__i32v q;
    lmc__f32v v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, lmc__i32v);
    q = (q + (min - 1)) & (lmc__i32v)(q != 0);
    v = __builtin_convertvector(q, lmc__f32v) * (lmc__f32v)scale;
    memcpy(dst, &v, sizeof v);
}

/* The scalar code adds in 64 bits. Here |q| is cut to `limit`, the largest number for which limit *
 * step fits in 31 bits. A larger |q| and `limit` both give a sum beyond the bounds. The bounds
 * minus the scale are compared, so that the sum itself cannot overflow:
 *     bits         0   MIN_SCALE            scale                            MAX_LOG_SCALE
 *     less scale       low  ................. 0 ............................. high
 *     limit * step  at least 2^31 - 2^24 = 0x7F000000, for step is at most 2^24;
 *     high, -low    at most 0x7F7F0000 - 0x00800000 = 0x7EFF0000, so the cut changes nothing */
LMC__INLINE_VEC void lmc__restore_log_step_vec(uint8_t *dst, const uint16_t *symbols,
                                               uint32_t scale, const lmc__grid *grid, int32_t limit,
                                               int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    lmc__u16v s;
    lmc__i32v q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, lmc__i32v);
    is = t != 0;
    t -= 1;
    sign = t << 31;
    q = (is_signed ? t >> 1 : t) + grid->min;
    q = LMC__PICK(q > limit, limit, q);
    q = LMC__PICK(q < -limit, -limit, q);
    q *= (int32_t)grid->step;
    q = LMC__PICK(q > high, high, q);
    q = LMC__PICK(q < low, low, q) + (int32_t)scale;
    if (is_signed) q |= sign;
    q &= is;
    memcpy(dst, &q, sizeof q);
}

LMC__STATIC_VEC void lmc__restore_vec(uint8_t *dst, const uint16_t *symbols, const uint8_t *second,
                                      size_t n, uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const lmc__i32v zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_log_step_vec(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_log_step_vec(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else if (second)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_linear_step_vec(dst + 4 * i, symbols + i,
                                         lmc__predicted_scales_vec(second + 4 * i, grid),
                                         grid->min);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__restore_linear_step_vec(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                         grid->min);
    lmc__restore_scalar(dst + 4 * i, symbols + i, second ? second + 4 * i : NULL, n - i, scale,
                        grid);
}

/* Each step takes twice as many symbols as there are elements in a vector: bytes widened to 16 bits
 * fill a vector. low is tested in the loop, but is the same in all steps. */
LMC__STATIC_VEC void lmc__join_symbols_vec(uint16_t *symbols, const uint8_t *high,
                                           const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        lmc__w8v h, l;
        lmc__w16v s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, lmc__w16v) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, lmc__w16v);
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

#ifndef LMC_NO_ENCODER
/* s: the symbols of elements x if they are on the grid; is_off: -1 where they are not. Only normal
 * numbers can be on the grid, and +0, which is symbol 0. The symbol of an x that is off the grid is
 * replaced, so any value may be there before. The exceptions are counted in each lane, and added up
 * at the end: less than 2^31, as n is. */
LMC__INLINE_VEC void lmc__finish_step_vec(uint16_t *symbols, lmc__i32v s, lmc__i32v x,
                                          lmc__i32v is_off, lmc__i32v *exceptions)
{
    const lmc__u32v from_normal = ((lmc__u32v)x & 0x7FFFFFFFu) - 0x00800000u;
    lmc__u16v narrow;
    is_off |= (lmc__i32v)(from_normal >= 0x7F000000u);
    is_off &= (lmc__i32v)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (lmc__i32v)(x != 0));
    narrow = __builtin_convertvector((lmc__u32v)s, lmc__u16v);
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

/* lmc__divide in floating point. Like lmc__divide, IEEE's division rounds once, to 24 bits.
 * Rounding to nearest is the default, and no function here changes it.
 *
 *     v = |x| / scale         the quotient as F32
 *     min(v, 65536)           compared as bits, which for positive floats have the order of the
 *                             numbers; NaN and infinity are above, and so are cut, too
 *     (int)(v + v)            floor(2 v): doubling is exact, converting cuts off the fraction
 *     (that + 1) >> 1         floor(v + 1/2), by integers: v + 0.5 in F32 could round up itself
 *
 * y = x >> 31 is the sign as 0 or -1, and (q ^ y) - y is q with that sign. */
LMC__INLINE_VEC void lmc__quantize_linear_step_vec(uint16_t *symbols, const uint8_t *src,
                                                   lmc__i32v scale, const lmc__grid *grid,
                                                   lmc__i32v *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    lmc__i32v x, y, q, is_off;
    lmc__f32v v;
    memcpy(&x, src, sizeof x);
    v = (lmc__f32v)(x & 0x7FFFFFFF) / (lmc__f32v)scale;
    y = (lmc__i32v)v;
    v = (lmc__f32v)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, lmc__i32v) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (lmc__i32v)((lmc__u32v)y >= grid->n_points);
    lmc__finish_step_vec(symbols, (y + 1) & (lmc__i32v)(q != 0), x, is_off, exceptions);
}

/* lowest: the scale plus the distance to the lower border of the lowest point. u is as in
 * lmc__quantize_log; its bit 31, copied to all bits, says that the element is off the grid. Vectors
 * cannot divide integers, so `step` is a reciprocal (lmc__divisor). The product of u's 31 bits and
 * magic's 33 has at most 64.
 *
 *     u, as 32 bits      | u0 | u1 | u2 | u3 |
 *     as 64 bits         | u0 + u1 << 32 | ...
 *     even               & 0x7FFFFFFF, times magic, >> shift: the quotient of u0, below 2^31
 *     odd                the same of >> 32: that of u1
 *     t                  even | odd << 32: each where its u was */
LMC__INLINE_VEC void lmc__quantize_log_step_vec(uint16_t *symbols, const uint8_t *src,
                                                uint32_t lowest, const lmc__grid *grid,
                                                const lmc__divisor *step, lmc__i32v *exceptions)
{
    lmc__i32v x, is_off;
    lmc__u32v u, t;
    memcpy(&x, src, sizeof x);
    u = ((lmc__u32v)x & 0x7FFFFFFFu) - lowest;
    is_off = (lmc__i32v)u >> 31 | (lmc__i32v)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const lmc__u64v even = (((lmc__u64v)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const lmc__u64v odd = (((lmc__u64v)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (lmc__u32v)(even | odd << 32);
    }
    is_off |= (lmc__i32v)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (lmc__u32v)x >> 31;
    else is_off |= x >> 31;
    lmc__finish_step_vec(symbols, (lmc__i32v)t + 1, x, is_off, exceptions);
}

LMC__INLINE_VEC size_t lmc__sum_vec(lmc__i32v v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

LMC__STATIC_VEC size_t lmc__quantize_vec(uint16_t *symbols, const uint8_t *src,
                                         const uint8_t *second, size_t n, uint32_t scale,
                                         const lmc__grid *grid)
{
    const lmc__i32v zero = {0};
    lmc__i32v exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_log_step_vec(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else if (second)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_linear_step_vec(symbols + i, src + 4 * i,
                                          lmc__predicted_scales_vec(second + 4 * i, grid), grid,
                                          &exceptions);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            lmc__quantize_linear_step_vec(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                          &exceptions);
    return lmc__sum_vec(exceptions) + lmc__quantize_scalar(symbols + i, src + 4 * i,
                                                           second ? second + 4 * i : NULL, n - i,
                                                           scale, grid);
}

/* A lane adds n / LMC__LANES numbers of 17 bits; the sum of all lanes fits in 32 bits. */
LMC__STATIC_VEC uint32_t lmc__sum_magnitudes_vec(const uint8_t *src, size_t n, uint32_t *count)
{
    lmc__i32v sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        lmc__u32v x;
        lmc__i32v is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (lmc__i32v)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (lmc__i32v)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)lmc__sum_vec(counts);
    return rest + (uint32_t)lmc__sum_vec(sum);
}

LMC__STATIC_VEC void lmc__cut_symbols_vec(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                          size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        lmc__w16v s;
        lmc__w8v part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, lmc__w8v);
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), lmc__w8v);
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#endif /* LMC_NO_ENCODER */
#endif
#endif /* LMC_NO_QUANTIZE */
