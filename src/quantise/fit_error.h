#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/grids.h"
#include "codec/quant_params.h"
#include "codec/put_quantised.h"
#include "quantise/quantizer.h"
#include "quantise/fit_sample.h"
#include "quantise/fit_scales.h"

/* What quantising loses, in integers: every machine must find the same grid.
 *
 * Errors are fractions of 1 in units of 2^-32 (lmc__q32). By measure they are
 *
 *   RELATIVE  the largest change of an element, over the element
 *   NMSE      the sum of squared changes, over the sum of squares
 *   UPDATE    the root of the same, of updates m / (sqrt(v) + eps)
 *
 * There are two ways to them. lmc__estimate_error takes the symbols' counts alone: a pass over 64
 * Ki numbers, for each grid that is tried. lmc__measure_loss restores the sample and compares it:
 * what is reported for a linear grid, and what the bound is held against. A logarithmic grid needs
 * no such pass: its relative errors do not depend on where the elements lie. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

typedef uint32_t lmc__q32;
#define LMC__Q32_ONE 4294967296.0
#define LMC__Q32_MAX UINT32_MAX /* also for everything above */

/* Square root, rounded down, bit by bit from the top: a bit stays if its square still fits. */
static uint32_t lmc__square_root(uint64_t v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= v) root |= bit;
    return root;
}

/* sqrt(v * 2^-32) in the same units, as sqrt(v * 2^32) is. */
static lmc__q32 lmc__root_q32(lmc__q32 v) { return lmc__square_root((uint64_t)v << 32); }

/* a / b, at most LMC__Q32_MAX. Both lose as many low bits until a << 32 fits. */
static lmc__q32 lmc__fraction(uint64_t a, uint64_t b)
{
    while (a >> 32) {
        a >>= 1;
        b >>= 1;
    }
    return b == 0 || (a << 32) / b > LMC__Q32_MAX ? LMC__Q32_MAX : (lmc__q32)((a << 32) / b);
}

/* The squared relative error of n magnitudes on a logarithmic grid, from squares12: 12 times the
 * sum of their squared errors, in points. One point is `step` of the 2^23 numbers of an octave.
 * There a float x = 2^e * m, 1 <= m < 2, is off by 2^e times the error in octaves, so by the error
 * over m in proportion. In octaves that are evenly filled by logarithm, the mean of 1 / m^2 is the
 * integral of 1 / (m^3 ln 2) from 1 to 2: 3 / (8 ln 2) = 0.541. */
static lmc__q32 lmc__log_error(uint64_t squares12, uint64_t n, uint32_t step)
{
    /* (step / 2^23)^2 * 0.541 * squares12 / 12 / n; step is at most 2^24 */
    const uint64_t step2 = (uint64_t)step * step; /* in 2^-46 */
    uint64_t mean = n ? squares12 * 256 / n : 0;  /* in 2^-8 */
    /* Both factors are cut to 32 bits, so that their product fits; the shift says how far it is
     * from units of 2^-32. */
    unsigned shift = 46 + 8 - 32;
    uint64_t a = step2 / 12 * 541 / 1000;
    while (a >> 32) {
        a >>= 1;
        shift--;
    }
    while (mean >> 31) {
        mean >>= 1;
        shift--;
    }
    a *= mean;
    if ((int)shift < 0 || a >> shift > LMC__Q32_MAX) return LMC__Q32_MAX;
    return (lmc__q32)(a >> shift);
}

/* What rounding to BF16 adds: an even error within 2^-7 of an octave's begin, squared 2^-14 / 12,
 * times 0.541 (see lmc__log_error), times 2^32: 11818. */
#define LMC__BF16_ERROR ((lmc__q32)11818)

/* The error by the quantiser's measure, from squares12: 12 times the sum of squared errors, in
 * points. (An even error within one point has the mean square 1/12, so squares12 is a whole
 * number.)
 *
 * Of a linear grid it is the sum over that of the points' squares, over all elements as if they
 * were of one scale: right where the loss is spread as the elements are. Of updates that is so, for
 * they are counted in scales themselves. */
static lmc__q32 lmc__estimate_error(const lmc__fit *f, uint64_t squares12)
{
    const lmc__quant_params *const q = &f->q->params;
    uint64_t power = 0; /* sum of squares, in points */
    lmc__q32 error;
    uint32_t s;
    if (q->grid.is_log) error = lmc__log_error(squares12, f->total, q->grid.step);
    else {
        for (s = 1; s < LMC__EXCEPTION; s++) {
            const int64_t v = (int64_t)q->grid.min + s - 1;
            power += f->counts[s] * (uint64_t)(v * v);
        }
        error = power >> 60 ? LMC__Q32_MAX : lmc__fraction(squares12 / 12, power);
        if (q->width == 2)
            error = error > LMC__Q32_MAX - LMC__BF16_ERROR ? LMC__Q32_MAX : error + LMC__BF16_ERROR;
    }
    if (f->q->info.loss.measure != LMC_MEASURE_UPDATE) return error;
    error = lmc__root_q32(error);
    return q->grid.is_log ? error / 2 : error; /* of v: the root halves relative errors */
}

/* The error of the grid as it is, if errors are spread evenly over each point's interval: of one
 * point's width, squared, a 12th. Elements that became zero have one, too. */
static lmc__q32 lmc__even_error(const lmc__fit *f)
{
    const uint32_t lost = f->counts[0] > f->zeros ? f->counts[0] - f->zeros : 0;
    return lmc__estimate_error(f, f->total + lost);
}

/* The asked bound; of measures that are estimated or sampled a hundredth less: on real moments
 * estimates were up to 0.7 % below the truth. */
static lmc__q32 lmc__get_bound(const lmc_quantizer_options *options)
{
    const lmc__q32 bound = (lmc__q32)(options->bound * LMC__Q32_ONE);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* A sum of squares of 64 bits, in 128: of up to 2^22 of them. Whole numbers add up to the same in
 * any order, and no square is lost beside a large sum, as it would be in a double. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;
LMC__INLINE void lmc__add_square(lmc__wide_sum *sum, int64_t v)
{
    const uint64_t square = (uint64_t)(v * v);
    sum->low += square;
    sum->high += sum->low < square;
}

/* a / b; both lose as many bits until they fit. */
static lmc__q32 lmc__wide_fraction(lmc__wide_sum a, lmc__wide_sum b)
{
    while (a.high | b.high) {
        a.low = a.low >> 1 | a.high << 63;
        b.low = b.low >> 1 | b.high << 63;
        a.high >>= 1;
        b.high >>= 1;
    }
    return lmc__fraction(a.low, b.low);
}

/* 2^exponent, -1022 .. 1023: by its bits, as ldexp is in the mathematical library. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* The sums of squares of what is lost and of what there is, over the sample, in the same unit: only
 * their ratio counts. */
typedef struct lmc__losses {
    lmc__wide_sum lost, all;
} lmc__losses;

/* Adds an element of bits v, restored as w, in units of 1 / unit, over `divisor`. unit is a power
 * of two, so only the conversion to a whole number rounds, towards zero. The difference of the
 * floats is exact in a double: if w is not zero, v is at least half a scale, and with 2^e <= scale
 * < 2^(e + 1) both are multiples of 2^(e - 24) and less than 2^(e + 16). That is 40 bits of 53. */
LMC__INLINE void lmc__add_loss(lmc__losses *sums, uint32_t v, uint32_t w, double unit,
                               int64_t divisor)
{
    float x, y;
    memcpy(&x, &v, 4);
    memcpy(&y, &w, 4);
    lmc__add_square(&sums->lost, (int64_t)(((double)x - (double)y) * unit) / divisor);
    lmc__add_square(&sums->all, (int64_t)((double)x * unit) / divisor);
}

/* The same of an update: in units of its scale, which is the divisor of the update within 6 %. It
 * is below 2^15 scales: times 2^24, over the scale's power of two, makes 40 bits, and over twice
 * its mantissa, of 8 bits, 31. */
LMC__INLINE void lmc__add_update_loss(lmc__losses *sums, uint32_t v, uint32_t w, uint32_t scale)
{
    const int64_t mantissa = 0x80 | (scale >> 16 & 0x7F);
    lmc__add_loss(sums, v, w, lmc__power(24 + 127 - (int)(scale >> 23)), 2 * mantissa);
}

/* The bits of the largest magnitude in the sample that is no exception: a pass of its own, which
 * finds the unit for the next one. */
static enum lmc_status lmc__find_largest(lmc__fit *f, uint32_t *largest)
{
    const uint64_t stride = lmc__get_stride(f->q);
    uint64_t at;
    size_t i;
    *largest = LMC__MIN_SCALE;
    for (at = 0; at < f->q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(f->q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        (void)lmc__find_symbols(f->k, &f->q->params, f->symbols, f->x, f->s, at, n);
        for (i = 0; i < n; i++) {
            const uint32_t magnitude = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF;
            if (f->symbols[i] != LMC__EXCEPTION && magnitude > *largest) *largest = magnitude;
        }
    }
    return LMC_OK;
}

/* Restores a part of the chunk at hand, which begins at number `at`, by the functions that code it,
 * and adds what it loses. Exceptions lose nothing, and are left out of both sums: one infinity
 * would be all of them. So are zeros, which are restored as zeros. unit: of elements that are not
 * predicted. */
static void lmc__add_losses(lmc__fit *f, uint64_t at, size_t begin, size_t n, double unit,
                            lmc__losses *sums)
{
    const lmc__quant_params *const q = &f->q->params;
    uint8_t restored[4 * LMC__QUANTIZED_STRIP], wide[4 * LMC__QUANTIZED_STRIP],
        high[LMC__QUANTIZED_STRIP], low[LMC__QUANTIZED_STRIP];
    lmc__quant_strip strip;
    const uint8_t *y;
    size_t i;
    strip.source.elements = f->chunk + begin * q->width;
    strip.source.second = f->second + begin * q->width;
    strip.source.first = at + begin;
    strip.source.n = n;
    strip.dst = restored;
    strip.symbols = f->symbols;
    strip.high = high;
    strip.low = q->low_bits ? low : NULL;
    (void)lmc__quantize_strip(f->k, q, &strip);
    y = lmc__widen(wide, restored, n, q->width);
    for (i = 0; i < n; i++) {
        const uint32_t v = lmc__load32(f->x + 4 * (begin + i)), w = lmc__load32(y + 4 * i);
        if (f->symbols[i] == LMC__EXCEPTION || v == 0) continue;
        if (q->is_predicted)
            lmc__add_update_loss(
                sums, v, w, lmc__predicted_scale(lmc__load32(f->s + 4 * (begin + i)), &q->grid));
        else lmc__add_loss(sums, v, w, unit, 1);
    }
}

/* What the quantiser, complete by now, loses of a linear tensor: of the elements, in units of which
 * the largest has 30 bits, or of updates. With UPDATE the root of it.
 *
 * Sums are of whole numbers, so no order of additions, no width of vectors and no option of a
 * compiler changes them. Elements of a billionth of the largest count as zero: a tensor's loss is a
 * ratio of sums in which they have no part. */
static enum lmc_status lmc__measure_loss(lmc__fit *f, lmc__q32 *error)
{
    const lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__get_stride(q);
    lmc__losses sums = {{0, 0}, {0, 0}};
    double unit = 1;
    uint64_t at;
    if (!q->params.is_predicted) {
        uint32_t largest;
        LMC__TRY(lmc__find_largest(f, &largest));
        unit = lmc__power(30 + 127 - (int)(largest >> 23) - 1);
    }
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        size_t i, part;
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            part = lmc__min(n - i, LMC__QUANTIZED_STRIP);
            lmc__add_losses(f, at, i, part, unit, &sums);
        }
    }
    *error = lmc__wide_fraction(sums.lost, sums.all);
    if (q->info.loss.measure == LMC_MEASURE_UPDATE) *error = lmc__root_q32(*error);
    return LMC_OK;
}

#endif
