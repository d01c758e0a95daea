#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/grids.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"

/* Finds the scale of each element's grid (spec/quantised.md; quant_params.h), and makes grids
 * coarser or finer.
 *
 * Elements have similar magnitudes within a group, such as a row of a matrix, but groups may differ
 * by orders of magnitude. Each group has its own scale, found in one pass over the whole tensor.
 *
 * Elements with a prediction have a scale that follows from it: about the root of the second
 * moment, times 2^bias. One bias and one floor (which replaces eps) are found for all elements.
 *
 * The bits of floats, read as integers, are used as logarithms: they grow by 2^23, an LMC__OCTAVE,
 * from one power of two to the next. A difference of bits is a ratio of floats, within 6 %. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Difference of a float's bits from one power of two to the next: the unit of bias and scales. */
#define LMC__OCTAVE ((int32_t)1 << 23)
#define LMC__MAX_BIAS ((int32_t)1 << 30) /* limit of the format, positive and negative */
/* Scales of groups are upper halves of floats: their unit is a 128th of an octave. */
#define LMC__SCALE_STEP ((int32_t)1 << 16)
#define LMC__SCALE_OF_ONE 0x3F80u /* of 1.0: for groups without numbers */

static int32_t lmc__clamp(int64_t v, int32_t low, int32_t high)
{
    return (int32_t)(v < low ? low : v > high ? high : v);
}

static uint16_t lmc__clamp_scale(const lmc__grid *grid, int32_t scale)
{
    return (uint16_t)lmc__clamp(
        scale, (int32_t)(LMC__MIN_SCALE >> 16),
        (int32_t)((grid->is_log ? LMC__MAX_LOG_SCALE : LMC__MAX_SCALE) >> 16));
}

static int32_t lmc__to_logarithm(float v)
{
    int32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}

static enum lmc_status lmc__alloc_scales(lmc_quantizer *q)
{
    const uint64_t group_size = q->params.group_size;
    if (q->n / group_size > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    q->n_groups = (size_t)((q->n + group_size - 1) / group_size);
    q->params.scales =
        (uint16_t *)lmc__realloc(q->allocator, NULL, 0, q->n_groups * sizeof q->params.scales[0]);
    return q->params.scales ? LMC_OK : LMC_ERR_MEMORY;
}

/* Finds the scale of each group from the mean of the bits of its elements' magnitudes: about their
 * geometric mean M, which one very large element hardly changes. Zeros and subnormals are left out;
 * a group that has only such elements gets the least scale.
 *
 * A linear grid gets the scale M * 2^-9: its 65,534 points then reach from M / 512 to 64 M, on both
 * sides of zero. A logarithmic grid has M in its middle.
 *
 * The sums are of bits >> 14 (the kernel sum_magnitudes), so that sums of 32,768 elements fit in 32
 * bits; mean >> 2 is the upper half of a float. A group may continue in the next chunk. */
static enum lmc_status lmc__fit_scales(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const uint64_t group_size = q->params.group_size;
    const int32_t down = q->params.grid.is_log ? 0 : 9 * (LMC__OCTAVE / LMC__SCALE_STEP);
    uint64_t at, sum = 0, count = 0;
    size_t n;
    LMC__TRY(lmc__alloc_scales(q));
    for (at = 0; at < q->n; at += n) {
        size_t i, part;
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const uint64_t group = (at + i) / group_size,
                           end = lmc__min64((group + 1) * group_size, q->n);
            uint32_t normal;
            part = (size_t)lmc__min64(n - i, end - at - i);
            sum += f->k->sum_magnitudes(f->x + 4 * i, part, &normal);
            count += normal;
            /* The group ends here, not only the chunk. */
            if (at + i + part == end) {
                const int32_t mean = count ? (int32_t)(sum / count) >> 2 : 0;
                q->params.scales[group] = lmc__clamp_scale(&q->params.grid, mean - down);
                sum = count = 0;
            }
        }
    }
    return LMC_OK;
}

/* If the second moment v is less than eps^2, the update m / (sqrt(v) + eps) is taken as m / eps:
 * the floor of v is eps^2. As a logarithm, eps^2 is twice eps: twice the difference between the
 * bits of eps and those of 1. */
static uint32_t lmc__get_floor(const lmc_quantizer_options *options)
{
    const float eps = (float)(options->eps > 0 ? options->eps : 1e-8);
    return (uint32_t)lmc__clamp(2 * (int64_t)lmc__to_logarithm(eps) - 0x3F800000, 0, 0x7F800000);
}

/* Sets the floor, and the bias: with it the sample's largest update is 2^14 scales, half of the
 * grid's range. If a few updates are far larger than all others, they become exceptions: their
 * second moments may have been lost.
 *
 * With bits as logarithms: let v be the bits of an element and p those of its second moment, at
 * least the floor. The update is v - p / 2, and the scale p / 2 + bias. So the update in scales is
 * 2^((v - p / 2 - bias) / 2^23), and bias is the largest v - p / 2, less 14 octaves. */
static enum lmc_status lmc__fit_bias(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__grid *const grid = &q->params.grid;
    const uint64_t stride = lmc__get_stride(q, LMC__LARGE_SAMPLE);
    /* largest: update, as a difference of bits, from -2^31 to 2^31; octaves: number of updates in
     * each octave from 2^-256 on. */
    int64_t largest = INT64_MIN / 2;
    uint32_t octaves[512] = {0}, octave = 512, above = 0, total = 0;
    uint64_t at;
    size_t i;
    grid->floor = lmc__get_floor(f->options);
    for (at = 0; at < q->n; at += stride) {
        const size_t n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i++) {
            const uint32_t v = lmc__load32(f->x + 4 * i) & 0x7FFFFFFF,
                           p = lmc__load32(f->s + 4 * i) & 0x7FFFFFFF;
            const int64_t ratio = (int64_t)v - (int64_t)((p > grid->floor ? p : grid->floor) >> 1);
            if (!lmc__is_normal(v) || p > 0x7F800000) continue;
            if (ratio > largest) largest = ratio;
            octaves[(ratio >> 23) + 256]++;
            total++;
        }
    }
    /* `octave`: the highest octave such that more than one element in 8192 is in it or above it.
     * Updates up to 16 times its end count as normal. */
    while (octave > 0 && above <= total / 8192) above += octaves[--octave];
    if (largest > ((int64_t)octave - 256 + 5) * LMC__OCTAVE)
        largest = ((int64_t)octave - 256 + 5) * LMC__OCTAVE;
    largest -= 14 * (int64_t)LMC__OCTAVE;
    grid->bias = lmc__clamp(largest, -LMC__MAX_BIAS, LMC__MAX_BIAS);
    return grid->bias == largest ? LMC_OK : lmc__keep_lossless(q, "no update is a normal number");
}

/* Gives the grid all possible points, the same number on both sides of q = 0. */
static void lmc__reset_grid(lmc__grid *grid)
{
    grid->n_points = lmc__max_points(grid);
    grid->min = -(int32_t)(grid->n_points / 2);
}

/* Makes the grid coarser by a factor of about 2^(by / LMC__OCTAVE); finer if `by` is negative. A
 * logarithmic grid gets another step, and all points again. Else the bias changes; or the scales
 * change, by multiples of LMC__SCALE_STEP. All stay within the format's limits. */
static void lmc__coarsen(lmc_quantizer *q, int32_t by)
{
    lmc__grid *const grid = &q->params.grid;
    size_t i;
    if (grid->is_log) {
        const int32_t bits = lmc__to_logarithm((float)grid->step) + by;
        float step;
        memcpy(&step, &bits, 4);
        grid->step = step < 16777216.0f ? (uint32_t)step : 1u << 24;
        lmc__reset_grid(grid);
    } else if (q->params.is_predicted)
        grid->bias = lmc__clamp((int64_t)grid->bias + by, -LMC__MAX_BIAS, LMC__MAX_BIAS);
    else
        for (i = 0; i < q->n_groups; i++)
            q->params.scales[i] =
                lmc__clamp_scale(grid, q->params.scales[i] + by / LMC__SCALE_STEP);
}
#endif
