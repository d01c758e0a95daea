#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "quantise/quantizer.h"
#include "quantise/fit_sample.h"
#include "quantise/fit_scales.h"
#include "quantise/fit_error.h"

/* The coarsest grid that keeps to a bound, coded without a table.
 *
 * Logarithmic grids: the step follows from the bound. With RELATIVE the bound is hard. An element's
 * bits are at most half a step, d numbers, from those of its point, and a step is at most 2^24. If
 * both lie in one octave, [2^e, 2^(e + 1)), a number is 2^(e - 23), so the change over the element
 * is at most d / 2^23. If the point lies beyond 2^(e + 1), a numbers above the element, the d - a
 * numbers after it weigh double: the change is 2^(e - 23) (2 d - a), and the element 2^(e - 23)
 * (2^24 - a). Their ratio is at most d / 2^23, too, as d <= 2^23. The limits of spec/quantised.md
 * only move points towards elements, and BF16 have steps of whole BF16.
 *
 * Linear grids: of NMSE and UPDATE, over a sample. The finest grid is used and its loss
 * measured, then a coarser one, until it is within the bound. That loss is reported. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Grids that are measured, and the first ones of these, which may become coarser. What does not
 * hold the bound by then is kept without loss. */
#define LMC__MAX_MEASURES 16u
#define LMC__MAX_COARSER 4u

/* Ratios have 20 bits behind the point. */
#define LMC__RATIO_ONE ((uint64_t)1 << 20)
#define LMC__MAX_RATIO ((uint64_t)1 << 40)

/* Scales of groups are upper halves of floats: one of them is a 128th of an octave. */
#define LMC__SCALE_STEP ((int32_t)1 << 16)

/* The grid itself as symbols, without a table: it is moved to begin where the sample does, and as
 * many low bits are cut off as the largest number has beyond 8. Low bits hardly compress: they are
 * counted as they are, High by its entropy. Elements beyond the sample's ends become exceptions.
 *
 *     symbols before   1 ......... first ....... last ......... n_points
 *     symbols after                  1 .......... last - first + 1         min grows by as much
 *     High, Low                    symbol >> low_bits, the low_bits lowest
 *
 * min must stay at most 0 (spec/quantised.md). f->counts are still those of the numbers before. */
LMC__COLD static void lmc__narrow_grid(lmc__fit *f)
{
    lmc__quant_params *const q = &f->q->params;
    const unsigned sign = q->grid.is_signed ? 1 : 0; /* points have a symbol for each sign */
    uint32_t first, last, s, codes[256] = {0};
    lmc__find_range(f, &first, &last);
    q->table_size = 0;
    first -= (first - 1) & sign; /* both signs of the first point */
    if (!q->grid.is_log) {       /* zero is a point */
        const uint32_t zero = lmc__zero_symbol(&q->grid);
        first = first < zero ? first : zero;
        last = last > zero ? last : zero;
    }
    if (q->grid.is_log && q->grid.min + (int32_t)((first - 1) >> sign) > 0)
        first = ((uint32_t)-q->grid.min << sign) + 1; /* min must stay at most 0 */
    q->grid.min += (int32_t)((first - 1) >> sign);
    q->grid.n_points = ((last - first) >> sign) + 1;
    /* With signs, the last point's other sign needs a number, too. */
    q->low_bits = 0;
    while ((last - first + 1 + sign) >> q->low_bits > 255) q->low_bits++;
    f->q->info.n_codes = 0;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->low_bits] += f->counts[s];
        if (f->counts[s]) f->q->info.n_codes++;
    }
    codes[0] += f->counts[0];
    f->bits = lmc__entropy_q16(codes, (uint32_t)f->total + f->counts[0]) +
              ((q->low_bits * (f->total + f->counts[0])) << 16);
}

/* All points that symbols can number, as many on either side of the scale. */
static void lmc__reset_grid(lmc__grid *grid)
{
    grid->n_points = lmc__max_points(grid);
    grid->min = -(int32_t)(grid->n_points / 2);
}

LMC__COLD static enum lmc_status lmc__fit_log_grid(lmc__fit *f, lmc__q32 bound)
{
    lmc__quant_params *const q = &f->q->params;
    const enum lmc_measure measure = f->q->info.loss.measure;
    uint64_t step;
    int is_off;
    if (measure == LMC_MEASURE_RELATIVE) step = bound >> 8; /* 2^24 * bound */
    else {
        /* Errors that are spread evenly: relative^2 = (step / 2^23)^2 / 12 * 0.541
         * (lmc__log_error), so step = 2^23 * relative * sqrt(12 / 0.541), which is 4.7097. An
         * update moves half as far as its second moment. */
        const uint64_t relative =
            measure == LMC_MEASURE_NMSE ? lmc__root_q32(bound) : 2 * (uint64_t)bound;
        step = relative * 4709 / 1000 >> 9;
    }
    if (step > 1u << 24) step = 1u << 24;
    if (q->width == 2) step &= ~(uint64_t)0xFFFF; /* BF16 have 16 bits less */
    if (step == 0) return LMC_OK;
    q->grid.step = (uint32_t)step;
    lmc__reset_grid(&q->grid);
    LMC__TRY(lmc__count_sample(f, NULL, &is_off));
    if (is_off || f->total == 0) return LMC_OK;
    f->error = measure != LMC_MEASURE_RELATIVE ? lmc__log_error(f, f->total)
               : step >> 24                    ? LMC__Q32_MAX
                                               : (lmc__q32)step << 8;
    f->found = 1;
    lmc__narrow_grid(f);
    return LMC_OK;
}

/* How much wider one grid is than another, by the ratio of their errors: that of NMSE is of
 * squares. */
static uint64_t lmc__width_ratio(const lmc__fit *f, uint64_t ratio)
{
    if (f->q->info.loss.measure != LMC_MEASURE_NMSE) return ratio;
    return lmc__square_root(lmc__min64(ratio, UINT64_MAX >> 20) << 20);
}

/* The logarithm of a ratio of at least 1, in units of LMC__OCTAVE, down to what scales can be
 * changed by; 13 octaves at most. Between powers of two, log2(1 + x) is about x + 0.344 x (1 - x).
 */
static int32_t lmc__octaves(uint64_t ratio)
{
    int32_t by = 0;
    uint64_t x;
    for (; ratio >= 2 * LMC__RATIO_ONE && by < 13 * LMC__OCTAVE; ratio >>= 1) by += LMC__OCTAVE;
    x = lmc__min64(ratio, 2 * LMC__RATIO_ONE) - LMC__RATIO_ONE;
    x += (x * (LMC__RATIO_ONE - x) >> 20) * 11 / 32;
    return (by + (int32_t)(x << 3)) & ~(LMC__SCALE_STEP - 1);
}

/* The coarsest linear grid whose measured loss is nearly the bound; from the finest one on, of
 * which the loss is known. Numbers of points stay: what moves are the scales, or the bias, all
 * by as many bits. Once a grid was too coarse they only become finer, by what is missing and a
 * step. */
LMC__COLD static enum lmc_status lmc__fit_linear_grid(lmc__fit *f, lmc__q32 bound)
{
    unsigned i;
    int is_off = 0, was_above = 0;
    for (i = 0; i < LMC__MAX_MEASURES && !is_off; i++) {
        const int is_above = f->error > bound;
        const uint64_t ratio = is_above ? ((uint64_t)f->error << 20) / bound
                                        : ((uint64_t)bound << 20) / (f->error | 1);
        int32_t by = lmc__octaves(lmc__width_ratio(f, lmc__min64(ratio, LMC__MAX_RATIO)));
        if (is_above && i == 0) break; /* the finest is too coarse */
        if (!is_above && (was_above || i >= LMC__MAX_COARSER || by <= 2 * LMC__SCALE_STEP)) {
            f->found = 1;
            lmc__narrow_grid(f);
            break;
        }
        was_above |= is_above;
        lmc__coarsen(f->q, is_above ? -by - LMC__SCALE_STEP : by);
        LMC__TRY(lmc__count_sample(f, &f->error, &is_off));
    }
    return LMC_OK;
}

#endif
