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
 * With a linear grid the sample is restored and compared (lmc__count_sample). With a logarithmic
 * one, changes in proportion to elements do not depend on where these lie (lmc__log_error). */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

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

/* The error of n magnitudes on a logarithmic grid, from squares12: 12 times the sum of their
 * squared errors, in points. (An even error within one point has the mean square 1/12.) One point
 * is `step` of the 2^23 numbers of an octave. There a float x = 2^e * m, 1 <= m < 2, is off by 2^e
 * times the error in octaves, so by the error over m in proportion. In octaves that are evenly
 * filled by logarithm, the mean of 1 / m^2 is the integral of 1 / (m^3 ln 2) from 1 to 2: 3 / (8 ln
 * 2) = 0.541. An update moves half as far as its second moment, by the root. */
static lmc__q32 lmc__log_error(const lmc__fit *f, uint64_t squares12)
{
    /* (step / 2^23)^2 * 0.541 / 12 in 2^-46, and squares12 / n in 2^-8; step is at most 2^24. Both
     * are cut so that their product fits; shift: from that to units of 2^-32. */
    const uint64_t step = f->q->params.grid.step;
    uint64_t a = step * step / 12 * 541 / 1000, b = f->total ? squares12 * 256 / f->total : 0;
    int shift = 46 + 8 - 32;
    lmc__q32 error;
    for (; a >> 32; a >>= 1) shift--;
    for (; b >> 31; b >>= 1) shift--;
    error = shift < 0 || a * b >> shift > LMC__Q32_MAX ? LMC__Q32_MAX : (lmc__q32)(a * b >> shift);
    return f->q->info.loss.measure == LMC_MEASURE_UPDATE ? lmc__root_q32(error) / 2 : error;
}

/* The asked bound; a hundredth less of measures that are estimated, or of a sample. */
static lmc__q32 lmc__get_bound(const lmc_quantizer_options *options)
{
    const lmc__q32 bound = (lmc__q32)(options->bound * LMC__Q32_ONE);
    return options->measure == LMC_MEASURE_RELATIVE ? bound : bound - bound / 100;
}

/* A sum of up to 2^22 squares of 64 bits, in 128. Whole numbers add up to the same in any order. */
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

/* Sums of squares of what is lost and of what there is, in the same unit: only their ratio
 * counts. */
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

/* The unit for elements of all groups: a 2^16th of the largest scale, or less. They are below 2^15
 * scales, so below 2^31 units of 64 bits. */
static double lmc__find_unit(const lmc_quantizer *q)
{
    uint16_t largest = (uint16_t)LMC__LEAST_SCALE;
    size_t i;
    for (i = 0; i < q->n_groups; i++)
        if (q->params.scales[i] > largest) largest = q->params.scales[i];
    return lmc__power(15 + 127 - (largest >> 7));
}

/* Restores a part of the chunk at hand, which begins at number `at`, by the functions that code it,
 * and adds what it loses. Exceptions lose nothing, and are left out of both sums: one infinity
 * would be all of them. So are zeros, which are restored as zeros. Symbols are left in f->symbols.
 *
 * unit: of elements that are not predicted. An update is counted in its scale, which is the divisor
 * of the update within 6 %. It is below 2^15 scales: times 2^24, over the scale's power of two,
 * makes 40 bits, and over twice its mantissa, of 8 bits, 31. */
static void lmc__add_losses(lmc__fit *f, uint64_t at, size_t begin, size_t n, double unit,
                            lmc__losses *sums)
{
    const lmc__quant_params *const q = &f->q->params;
    uint8_t restored[4 * LMC__QUANTIZED_STRIP], wide[4 * LMC__QUANTIZED_STRIP];
    const lmc__quant_source source = {f->chunk + begin * q->width, f->second + begin * q->width,
                                      at + begin, n};
    const uint8_t *y;
    size_t i;
    (void)lmc__quantize_strip(f->k, q, &source, f->symbols, restored);
    y = lmc__widen(wide, restored, n, q->width);
    for (i = 0; i < n; i++) {
        const uint32_t v = lmc__load32(f->x + 4 * (begin + i)), w = lmc__load32(y + 4 * i);
        if (f->symbols[i] == LMC__EXCEPTION || v == 0) continue;
        if (q->is_predicted) {
            const uint32_t scale =
                lmc__predicted_scale(lmc__load32(f->s + 4 * (begin + i)), &q->grid);
            lmc__add_loss(sums, v, w, lmc__power(24 + 127 - (int)(scale >> 23)),
                          2 * (int64_t)(0x80 | (scale >> 16 & 0x7F)));
        } else lmc__add_loss(sums, v, w, unit, 1);
    }
}

/* Counts the sample's symbols on the grid. *is_off: more than a 100th of them are on none: then
 * exceptions, of 8 bytes with F32, take more than 0.6 bits for each element. n_exceptions is told
 * to the caller as of the whole tensor: one chunk stands for as many as are in a stride.
 *
 * error: what that loses, of a linear grid, or NULL; in whole numbers, so that nothing changes
 * it. */
static enum lmc_status lmc__count_sample(lmc__fit *f, lmc__q32 *error, int *is_off)
{
    lmc_quantizer *const q = f->q;
    const uint64_t stride = lmc__get_stride(q);
    const double unit = lmc__find_unit(q);
    lmc__losses sums = {{0, 0}, {0, 0}};
    uint64_t at, seen = 0;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        size_t i, j, part;
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            part = lmc__min(n - i, LMC__QUANTIZED_STRIP);
            if (error) lmc__add_losses(f, at, i, part, unit, &sums);
            else
                (void)lmc__find_symbols(f->k, &q->params, f->symbols, f->x + 4 * i,
                                        f->s ? f->s + 4 * i : NULL, at + i, part);
            for (j = 0; j < part; j++) f->counts[f->symbols[j]]++;
        }
        seen += n;
    }
    if (error) *error = lmc__wide_fraction(sums.lost, sums.all);
    if (error && q->info.loss.measure == LMC_MEASURE_UPDATE) *error = lmc__root_q32(*error);
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->total = seen - f->counts[0] - f->counts[LMC__EXCEPTION];
    *is_off = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > seen;
    return LMC_OK;
}

#endif
