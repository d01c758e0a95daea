#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/grids.h"
#include "codec/quant_params.h"
#include "codec/put_quantized.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"

/* Measures the error of quantising, in integers, because every machine must find the same grid.
 *
 * An error is a fraction of 1 in units of 2^-32 (lmc__q32). For each measure it is
 *
 *   RELATIVE  the largest change of an element, divided by the element
 *   NMSE      the sum of squared changes, divided by the sum of squares
 *   UPDATE    the root of the NMSE of updates m / (sqrt(v) + eps)
 *
 * With a linear grid, the sample is quantised, restored and compared (lmc__add_losses). With a
 * logarithmic grid, changes are in proportion to the elements, so the error follows from the step
 * (lmc__log_error). */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__Q32_ONE 4294967296.0
#define LMC__Q32_MAX UINT32_MAX /* stands for all larger errors, too */

/* The root of v, in the same units: sqrt(v * 2^32), rounded down. The root is found bit by bit from
 * the top: a bit is set if the square then is at most v * 2^32. */
static lmc__q32 lmc__root_q32(lmc__q32 v)
{
    uint32_t root = 0, bit;
    for (bit = (uint32_t)1 << 31; bit; bit >>= 1)
        if ((uint64_t)(root | bit) * (root | bit) <= (uint64_t)v << 32) root |= bit;
    return root;
}

/* The caller's bound; 1 % less for measures that are estimated from samples. */
static lmc__q32 lmc__get_bound(const lmc_quantizer_options *options)
{
    const lmc__q32 bound = (lmc__q32)(options->bound * LMC__Q32_ONE);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* The step of a logarithmic grid is in proportion to the error (of NMSE, to its root).
 *
 * RELATIVE holds for each element. The bits of an element and of its point, as integers, differ by
 * at most d, half a step, and a step is at most 2^24. If both are in one octave, [2^e, 2^(e + 1)),
 * one unit is 2^(e - 23), so change / element is at most d / 2^23. If the point is above 2^(e + 1),
 * and the element a units below 2^(e + 1), the d - a units above it count double: the change is
 * 2^(e - 23) (2 d - a), and the element 2^(e - 23) (2^24 - a). Their ratio is at most d / 2^23,
 * too, as d <= 2^23. The limits of spec/quantised.md only move points towards elements, and steps
 * for BF16 are whole BF16. So a step of `s` octaves makes a change of at most s / 2.
 *
 * The other measures come from a mean square. An error that is uniform within one step has the mean
 * square 1/12. A float x = 2^e * m, 1 <= m < 2, changes by 2^e times the error in octaves: relative
 * to x, by the error divided by m. If the logarithms of elements are uniform, the mean of 1 / m^2
 * is the integral of 1 / (m^3 ln 2) from 1 to 2: 3 / (8 ln 2) = 0.541. So the change is s *
 * sqrt(0.541 / 12) = s / 4.7097. An update changes by half of that: it is divided by a root. */
static uint32_t lmc__log_step(lmc__q32 bound, enum lmc_measure measure)
{
    uint64_t octaves = measure == LMC_MEASURE_NMSE ? lmc__root_q32(bound) : 2 * (uint64_t)bound;
    if (measure != LMC_MEASURE_RELATIVE) octaves = octaves * 4709 / 1000;
    return (uint32_t)lmc__min64(octaves >> 9, 1u << 24); /* from 2^32 to 2^23 units for an octave */
}

static lmc__q32 lmc__log_error(uint32_t step, enum lmc_measure measure)
{
    uint64_t error = (uint64_t)step << 9;
    if (measure != LMC_MEASURE_RELATIVE) error = error * 1000 / 4709;
    error = measure == LMC_MEASURE_NMSE ? error * error >> 32 : error / 2;
    return (lmc__q32)lmc__min64(error, LMC__Q32_MAX);
}

/* A sum of squares of up to 2^22 elements, as an integer, so that the order does not matter. */
typedef struct lmc__wide_sum {
    uint64_t high, low;
} lmc__wide_sum;

LMC__INLINE void lmc__add_wide(lmc__wide_sum *sum, uint64_t v)
{
    sum->low += v;
    sum->high += sum->low < v;
}

/* a / b, at most LMC__Q32_MAX. Both are halved until a << 32 fits in 64 bits. */
static lmc__q32 lmc__fraction(lmc__wide_sum a, lmc__wide_sum b)
{
    while (a.high | b.high | a.low >> 32) {
        a.low = a.low >> 1 | a.high << 63;
        b.low = b.low >> 1 | b.high << 63;
        a.high >>= 1;
        b.high >>= 1;
    }
    return b.low == 0 ? LMC__Q32_MAX : (lmc__q32)lmc__min64((a.low << 32) / b.low, LMC__Q32_MAX);
}

/* 2^exponent, for -1022 .. 1023, without ldexp, which needs the mathematical library. */
LMC__INLINE double lmc__power(int exponent)
{
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, 8);
    return power;
}

/* The square of v * weight / 2^24, rounded towards zero. */
LMC__INLINE uint64_t lmc__square(double v, uint32_t weight)
{
    const int64_t whole = (int64_t)v;
    const uint64_t weighted = (uint64_t)(whole < 0 ? -whole : whole) * weight >> 24;
    return weighted * weighted;
}

/* Sums of squares of losses and of elements, in the same unit, because only their ratio counts. */
typedef struct lmc__losses {
    lmc__wide_sum lost, all;
    double unit; /* elements of groups times this are integers */
} lmc__losses;

/* The unit for elements of groups: at most 2^-12 of the largest scale. Elements are below 2^15
 * scales, so below 2^27 units. */
static lmc__losses lmc__begin_losses(const lmc_quantizer *q)
{
    lmc__losses losses = {{0, 0}, {0, 0}, 0};
    uint16_t largest = (uint16_t)(LMC__MIN_SCALE >> 16);
    size_t i;
    for (i = 0; i < q->n_groups; i++)
        if (q->params.scales[i] > largest) largest = q->params.scales[i];
    losses.unit = lmc__power(11 + 127 - (largest >> 7));
    return losses;
}

/* Adds the losses of a strip of the current chunk: n elements from element `begin` on, which were
 * restored to y. Exceptions and zeros lose nothing, and are left out of both sums: one infinity
 * would hide all other elements.
 *
 * An update is measured in its scale, which is within 6 % of the update's divisor: first in units
 * of 2^-20 of the scale's power of two, then divided by twice its mantissa of 8 bits, by a
 * reciprocal of 24 bits. In the resulting units of 2^-12 scales, at most 2^15 scales have 27 bits:
 * the squares of a strip fit in 64 bits.
 *
 * Units are powers of two, so only the conversions to integers round, towards zero. The difference
 * of the floats is exact in a double: if w is not zero, v is at least half a scale, and with 2^e <=
 * scale < 2^(e + 1) both are multiples of 2^(e - 24) and less than 2^(e + 16): 40 bits of 53. */
static void lmc__add_losses(const lmc__fit *f, size_t begin, size_t n, const uint16_t *symbols,
                            const uint8_t *y, lmc__losses *losses)
{
    const lmc__quant_params *const q = &f->q->params;
    double unit = losses->unit;
    uint32_t weight = 1u << 24;
    uint64_t lost = 0, all = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t v_bits = lmc__load32(f->x + 4 * (begin + i)),
                       w_bits = lmc__load32(y + 4 * i);
        float v, w;
        if (symbols[i] == LMC__EXCEPTION || v_bits == 0) continue;
        if (q->is_predicted) {
            const uint32_t scale =
                lmc__predicted_scale(lmc__load32(f->s + 4 * (begin + i)), &q->grid);
            unit = lmc__power(20 + 127 - (int)(scale >> 23));
            weight = (1u << 24) / (2 * (0x80 | (scale >> 16 & 0x7F)));
        }
        memcpy(&v, &v_bits, 4);
        memcpy(&w, &w_bits, 4);
        lost += lmc__square(((double)v - (double)w) * unit, weight);
        all += lmc__square((double)v * unit, weight);
    }
    lmc__add_wide(&losses->lost, lost);
    lmc__add_wide(&losses->all, all);
}

static lmc__q32 lmc__get_error(const lmc__losses *losses, enum lmc_measure measure)
{
    const lmc__q32 error = lmc__fraction(losses->lost, losses->all);
    return measure == LMC_MEASURE_UPDATE ? lmc__root_q32(error) : error;
}
#endif
