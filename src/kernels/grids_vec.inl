/* The kernels of grids.h in the vectors of gcc and clang: a template, included once for each tier,
 * between
 *
 *     LMC__LANES        elements of 32 bits in a vector
 *     LMC__ISA(name)    lmc__name_TIER
 *     LMC__INLINE_ISA   what its inline functions begin with
 *     LMC__STATIC_ISA   what its other functions begin with
 *
 * which it undefines at its end. Each line of a step computes what the scalar text does for one
 * element. A comparison gives -1 or 0 for each element; LMC__PICK chooses by that.
 *
 * A cast between vector types of one size keeps the bits, __builtin_convertvector converts the
 * numbers. Operators wrap, also the signed ones.
 *
 *     u32, i32, f32    LMC__LANES elements                   | e0      | e1      | e2      | ...
 *     u16              as many symbols, half the bytes       | s0 | s1 | s2 | ...
 *     w16              twice as many symbols, all the bytes  | s0 | s1 | s2 | s3 | s4 | s5 | ...
 *
 * memcpy of a constant size is the unaligned load or store. Each kernel takes whole vectors and
 * leaves the rest to the scalar one. */
typedef uint32_t LMC__ISA(u32) __attribute__((vector_size(4 * LMC__LANES)));
typedef int32_t LMC__ISA(i32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint64_t LMC__ISA(u64) __attribute__((vector_size(4 * LMC__LANES)));
typedef float LMC__ISA(f32) __attribute__((vector_size(4 * LMC__LANES)));
typedef uint16_t LMC__ISA(u16) __attribute__((vector_size(2 * LMC__LANES))); /* as many */
typedef uint16_t LMC__ISA(w16) __attribute__((vector_size(4 * LMC__LANES))); /* as long */
typedef uint8_t LMC__ISA(w8) __attribute__((vector_size(2 * LMC__LANES)));   /* as many as w16 */
#define LMC__U32 LMC__ISA(u32)
#define LMC__I32 LMC__ISA(i32)
#define LMC__U64 LMC__ISA(u64)
#define LMC__F32 LMC__ISA(f32)

/* The scales that the predictions at `second` give. They are positive as signed integers. */
LMC__INLINE_ISA LMC__I32 LMC__ISA(predicted_scales)(const uint8_t *second, const lmc__grid *grid)
{
    const int32_t floor = (int32_t)grid->floor, min = (int32_t)LMC__MIN_SCALE,
                  max = (int32_t)LMC__MAX_SCALE;
    LMC__I32 p;
    memcpy(&p, second, sizeof p);
    p &= 0x7FFFFFFF;
    p = (LMC__PICK(p < floor, floor, p) >> 1) + grid->bias;
    p = LMC__PICK(p < min, min, p);
    return LMC__PICK(p > max, max, p) & (int32_t)0xFFFF0000;
}

/* q + (min - 1) is masked to 0 for symbol 0; its product with the scale is +0 then, for scales are
 * positive. Converting is exact, 17 bits to 24, and so is the product, 16 bits times 8
 * (grids.h). */
LMC__INLINE_ISA void LMC__ISA(restore_linear_step)(uint8_t *dst, const uint16_t *symbols,
                                                   LMC__I32 scale, int32_t min)
{
    LMC__ISA(u16) s;
    LMC__I32 q;
    LMC__F32 v;
    memcpy(&s, symbols, sizeof s);
    q = __builtin_convertvector(s, LMC__I32);
    q = (q + (min - 1)) & (LMC__I32)(q != 0);
    v = __builtin_convertvector(q, LMC__F32) * (LMC__F32)scale;
    memcpy(dst, &v, sizeof v);
}

/* The scalar text adds in 64 bits; here |q| is cut to `limit`, the most that times step fits in 31:
 * what is beyond gives a sum beyond both bounds as well. The bounds less the scale are compared,
 * so that the sum itself cannot overflow:
 *
 *     bits         0   MIN_SCALE            scale                            MAX_LOG_SCALE
 *     less scale       low  ................. 0 ............................. high
 *     limit * step  at least 2^31 - 2^24 = 0x7F000000, for step is at most 2^24;
 *     high, -low    at most 0x7F7F0000 - 0x00800000 = 0x7EFF0000, so the cut is never seen */
LMC__INLINE_ISA void LMC__ISA(restore_log_step)(uint8_t *dst, const uint16_t *symbols,
                                                uint32_t scale, const lmc__grid *grid,
                                                int32_t limit, int is_signed)
{
    const int32_t low = (int32_t)(LMC__MIN_SCALE - scale),
                  high = (int32_t)(LMC__MAX_LOG_SCALE - scale);
    LMC__ISA(u16) s;
    LMC__I32 q, t, sign, is;
    memcpy(&s, symbols, sizeof s);
    t = __builtin_convertvector(s, LMC__I32);
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

/* Which kind of grid is tested once, so that three loops have no test in a step. */
LMC__STATIC_ISA void LMC__ISA(restore_rows)(uint8_t *dst, const uint16_t *symbols, size_t n,
                                            uint32_t scale, const lmc__grid *grid)
{
    const int32_t limit = grid->is_log ? (int32_t)(0x7FFFFFFF / grid->step) : 0;
    const LMC__I32 zero = {0};
    size_t i = 0;
    if (grid->is_log && grid->is_signed)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 1);
    else if (grid->is_log)
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_log_step)(dst + 4 * i, symbols + i, scale, grid, limit, 0);
    else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i, zero + (int32_t)scale,
                                          grid->min);
    lmc__restore_rows_scalar(dst + 4 * i, symbols + i, n - i, scale, grid);
}

/* Each element has the scale of its own prediction, so there is none that the loop could keep. */
LMC__STATIC_ISA void LMC__ISA(restore_updates)(uint8_t *dst, const uint16_t *symbols,
                                               const uint8_t *second, size_t n,
                                               const lmc__grid *grid)
{
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(restore_linear_step)(dst + 4 * i, symbols + i,
                                      LMC__ISA(predicted_scales)(second + 4 * i, grid), grid->min);
    lmc__restore_updates_scalar(dst + 4 * i, symbols + i, second + 4 * i, n - i, grid);
}

/* Twice as many symbols as elements a step: bytes become 16 bits wide, as many as fill a vector.
 * low is tested in the loop, where it is the same in all steps. */
LMC__STATIC_ISA void LMC__ISA(join_symbols)(uint16_t *symbols, const uint8_t *high,
                                            const uint8_t *low, size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w8) h, l;
        LMC__ISA(w16) s;
        memcpy(&h, high + i, sizeof h);
        s = __builtin_convertvector(h, LMC__ISA(w16)) << low_bits;
        if (low) {
            memcpy(&l, low + i, sizeof l);
            s |= __builtin_convertvector(l, LMC__ISA(w16));
        }
        memcpy(symbols + i, &s, sizeof s);
    }
    lmc__join_symbols_scalar(symbols + i, high + i, low ? low + i : NULL, n - i, low_bits);
}

#ifndef LMC_NO_ENCODER
/* s: the symbols of elements x if they are on the grid; is_off: -1 where they are not. Elements
 * that are no normal numbers are not either, but +0 always is: symbol 0. What an x that is off the
 * grid has in s is replaced, so nothing that was computed of it matters. The exceptions are counted
 * in each lane, to be added up at the end: less than 2^31, as n is. */
LMC__INLINE_ISA void LMC__ISA(finish_step)(uint16_t *symbols, LMC__I32 s, LMC__I32 x,
                                           LMC__I32 is_off, LMC__I32 *exceptions)
{
    const LMC__U32 from_normal = ((LMC__U32)x & 0x7FFFFFFFu) - 0x00800000u;
    LMC__ISA(u16) narrow;
    is_off |= (LMC__I32)(from_normal >= 0x7F000000u);
    is_off &= (LMC__I32)(x != 0);
    s = LMC__PICK(is_off, (int32_t)LMC__EXCEPTION, s & (LMC__I32)(x != 0));
    narrow = __builtin_convertvector((LMC__U32)s, LMC__ISA(u16));
    memcpy(symbols, &narrow, sizeof narrow);
    *exceptions -= is_off;
}

/* lmc__divide in floating point: IEEE's division rounds once, to 24 bits, as that does. Rounding to
 * the nearest is the default, which no function here changes.
 *
 *     v = |x| / scale         the quotient as F32
 *     min(v, 65536)           compared as bits, which for positive floats have the order of the
 *                             numbers; NaN and infinity are above, and so cut as well
 *     (int)(v + v)            floor(2 v): doubling is exact, converting cuts off the fraction
 *     (that + 1) >> 1         floor(v + 1/2), by integers: v + 0.5 in F32 could round up itself
 *
 * y = x >> 31 is the sign as 0 or -1, and (q ^ y) - y is q with that sign. */
LMC__INLINE_ISA void LMC__ISA(quantize_linear_step)(uint16_t *symbols, const uint8_t *src,
                                                    LMC__I32 scale, const lmc__grid *grid,
                                                    LMC__I32 *exceptions)
{
    const int32_t most = 0x47800000; /* 65536.0 */
    LMC__I32 x, y, q, is_off;
    LMC__F32 v;
    memcpy(&x, src, sizeof x);
    v = (LMC__F32)(x & 0x7FFFFFFF) / (LMC__F32)scale;
    y = (LMC__I32)v;
    v = (LMC__F32)LMC__PICK(y > most, most, y);
    q = (__builtin_convertvector(v + v, LMC__I32) + 1) >> 1; /* halves up */
    y = x >> 31;
    q = (q ^ y) - y;
    y = q - grid->min;
    is_off = (LMC__I32)((LMC__U32)y >= grid->n_points);
    LMC__ISA(finish_step)(symbols, (y + 1) & (LMC__I32)(q != 0), x, is_off, exceptions);
}

/* lowest: the scale plus the distance to the lower border of the lowest point. u is as in
 * lmc__quantize_log; its bit 31, spread, says that it is off. There is no division of integers in
 * vectors: `step` is a reciprocal (lmc__divisor), and the product of 31 bits and magic's 33 has 64
 * at most.
 *
 *     u, as 32 bits      | u0 | u1 | u2 | u3 |
 *     as 64 bits         | u0 + u1 << 32 | ...
 *     even               & 0x7FFFFFFF, times magic, >> shift: the quotient of u0, below 2^31
 *     odd                the same of >> 32: that of u1
 *     t                  even | odd << 32: each where its u was */
LMC__INLINE_ISA void LMC__ISA(quantize_log_step)(uint16_t *symbols, const uint8_t *src,
                                                 uint32_t lowest, const lmc__grid *grid,
                                                 const lmc__divisor *step, LMC__I32 *exceptions)
{
    LMC__I32 x, is_off;
    LMC__U32 u, t;
    memcpy(&x, src, sizeof x);
    u = ((LMC__U32)x & 0x7FFFFFFFu) - lowest;
    is_off = (LMC__I32)u >> 31 | (LMC__I32)((x & 0x7FFFFFFF) > (int32_t)LMC__MAX_LOG_SCALE);
    if (step->is_power) t = u >> (step->shift - 31);
    else { /* the products have 64 bits: those of the even lanes, then those of the odd ones */
        const LMC__U64 even = (((LMC__U64)u & 0x7FFFFFFFu) * step->magic) >> step->shift;
        const LMC__U64 odd = (((LMC__U64)u >> 32 & 0x7FFFFFFFu) * step->magic) >> step->shift;
        t = (LMC__U32)(even | odd << 32);
    }
    is_off |= (LMC__I32)(t >= grid->n_points);
    if (grid->is_signed) t = t << 1 | (LMC__U32)x >> 31;
    else is_off |= x >> 31;
    LMC__ISA(finish_step)(symbols, (LMC__I32)t + 1, x, is_off, exceptions);
}

/* Of all lanes, as unsigned numbers. Once for each call of a kernel, so it need not be fast. */
LMC__INLINE_ISA size_t LMC__ISA(sum)(LMC__I32 v)
{
    size_t sum = 0;
    unsigned i;
    for (i = 0; i < LMC__LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

/* One reciprocal and one lowest border for all elements, since they share scale and step. */
LMC__STATIC_ISA size_t LMC__ISA(quantize_rows)(uint16_t *symbols, const uint8_t *src, size_t n,
                                               uint32_t scale, const lmc__grid *grid)
{
    const LMC__I32 zero = {0};
    LMC__I32 exceptions = {0};
    size_t i = 0;
    if (grid->is_log) {
        const lmc__divisor step = lmc__divide_by(grid->step);
        const uint32_t lowest = scale + lmc__lowest(grid);
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_log_step)(symbols + i, src + 4 * i, lowest, grid, &step, &exceptions);
    } else
        for (; i + LMC__LANES <= n; i += LMC__LANES)
            LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i, zero + (int32_t)scale, grid,
                                           &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_rows_scalar(symbols + i, src + 4 * i, n - i, scale, grid);
}

/* As quantize_rows of a linear grid; updates have no other (spec/quantised.md). */
LMC__STATIC_ISA size_t LMC__ISA(quantize_updates)(uint16_t *symbols, const uint8_t *src,
                                                  const uint8_t *second, size_t n,
                                                  const lmc__grid *grid)
{
    LMC__I32 exceptions = {0};
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES)
        LMC__ISA(quantize_linear_step)(symbols + i, src + 4 * i,
                                       LMC__ISA(predicted_scales)(second + 4 * i, grid), grid,
                                       &exceptions);
    return LMC__ISA(sum)(exceptions) +
           lmc__quantize_updates_scalar(symbols + i, src + 4 * i, second + 4 * i, n - i, grid);
}

/* A lane sums up n / LMC__LANES numbers of 17 bits, all lanes' sum fits in 32 bits (grids.h). */
LMC__STATIC_ISA uint32_t LMC__ISA(sum_magnitudes)(const uint8_t *src, size_t n, uint32_t *count)
{
    LMC__I32 sum = {0}, counts = {0};
    uint32_t rest;
    size_t i;
    for (i = 0; i + LMC__LANES <= n; i += LMC__LANES) {
        LMC__U32 x;
        LMC__I32 is;
        memcpy(&x, src + 4 * i, sizeof x);
        x &= 0x7FFFFFFFu;
        is = (LMC__I32)(x - 0x00800000u < 0x7F000000u);
        counts -= is;
        sum += (LMC__I32)(x >> 14) & is;
    }
    rest = lmc__sum_magnitudes_scalar(src + 4 * i, n - i, count);
    *count += (uint32_t)LMC__ISA(sum)(counts);
    return rest + (uint32_t)LMC__ISA(sum)(sum);
}

/* The inverse: narrowing keeps the low byte, which for the high part is all of it. */
LMC__STATIC_ISA void LMC__ISA(cut_symbols)(uint8_t *high, uint8_t *low, const uint16_t *symbols,
                                           size_t n, unsigned low_bits)
{
    size_t i;
    for (i = 0; i + 2 * LMC__LANES <= n; i += 2 * LMC__LANES) {
        LMC__ISA(w16) s;
        LMC__ISA(w8) part;
        memcpy(&s, symbols + i, sizeof s);
        part = __builtin_convertvector(s >> low_bits, LMC__ISA(w8));
        memcpy(high + i, &part, sizeof part);
        if (!low) continue;
        part = __builtin_convertvector(s & (uint16_t)((1u << low_bits) - 1), LMC__ISA(w8));
        memcpy(low + i, &part, sizeof part);
    }
    lmc__cut_symbols_scalar(high + i, low ? low + i : NULL, symbols + i, n - i, low_bits);
}
#endif /* LMC_NO_ENCODER */
#undef LMC__U32
#undef LMC__I32
#undef LMC__U64
#undef LMC__F32
#undef LMC__LANES
#undef LMC__ISA
#undef LMC__INLINE_ISA
#undef LMC__STATIC_ISA
