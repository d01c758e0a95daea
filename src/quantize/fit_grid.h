#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "codec/put_quantized.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"
#include "quantize/fit_scales.h"
#include "quantize/fit_error.h"

/* Searches for the coarsest grid whose error is within a bound, or the finest grid within a size.
 *
 * Each grid is measured on a sample, which gives its error and its size. A grid that is coarser by
 * one octave doubles errors (NMSE: four times), and saves one bit for each element. So each
 * measurement tells which grid should meet the limit exactly; that grid is tried next. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* The most grids that are measured; for a bound, only the first LMC__MAX_COARSER trials may make
 * the grid coarser. If no grid is within the bound, the tensor is kept without loss. */
#define LMC__MAX_MEASURES 16u
#define LMC__MAX_COARSER 4u

/* An encoded scale takes about 12 bits: less than 1 bit per element in a group of 16, less than
 * 1/20 bit in a group of 256. */
#define LMC__SCALE_BITS 12u

/* If bits are given, the grid gets 11/32 bit less: headers and codes of whole bits need that. */
#define LMC__SPARE_BITS ((11u << 16) / 32)

static uint64_t lmc__bits_of_scales(const lmc__quant_params *p)
{
    return p->is_predicted ? 0 : (LMC__SCALE_BITS << 16) / p->group_size;
}

/* Estimates the size of the sample's symbols. The grid will begin and end with the sample's first
 * and last point. If the largest number then has more than 8 bits, the low_bits lowest are cut off,
 * so that 8 remain.
 *
 *     symbols          1 ......... first ....... last ......... n_points
 *     numbers                        1 .......... last - first + 1
 *     High, Low                    number >> low_bits, the low_bits lowest
 *
 * The point q = 0 stays in the grid, as min must be at most 0. The size is the sum of: Low, raw,
 * because it hardly compresses; High, by its entropy; 4 bytes and an element for each exception;
 * the scales.
 *
 * bits_of_others is the size of an element that is not zero, without the bits that say which
 * elements are zero. It is compared with the caller's bits: else rows of an embedding that are all
 * zero would make the grid needlessly fine. */
LMC__COLD static void lmc__measure_size(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const uint64_t n = f->n;
    const uint32_t n_zero = f->n_zero;
    const unsigned sign = q->params.grid.is_signed ? 1 : 0, width = q->params.width;
    const uint32_t scale = ((uint32_t)-q->params.grid.min << sign) + 1;
    uint32_t first, last, s, codes[256] = {0};
    const uint32_t coded = (uint32_t)n - f->counts[LMC__EXCEPTION];
    const uint64_t scales = lmc__bits_of_scales(&q->params);
    uint64_t bits;
    for (first = 1; first < scale && !f->counts[first];) first++;
    for (last = LMC__EXCEPTION - 1; last > scale && !f->counts[last];) last--;
    /* With signs, both symbols of the first and of the last point. */
    f->first = first -= (first - 1) & sign;
    f->last = last += last & sign;
    q->params.low_bits = 0;
    while ((last - first + 1) >> q->params.low_bits > 255) q->params.low_bits++;
    q->info.n_codes = 0;
    for (s = first; s <= last; s++) {
        codes[(s - first + 1) >> q->params.low_bits] += f->counts[s];
        if (f->counts[s]) q->info.n_codes++;
    }
    codes[0] += f->counts[0];
    bits = (coded ? lmc__entropy_q16(codes, coded) : 0) +
           ((uint64_t)q->params.low_bits * coded << 16) +
           ((uint64_t)f->counts[LMC__EXCEPTION] * (32 + 8 * width) << 16);
    f->bits = bits / n + scales;
    memset(codes, 0, sizeof codes);
    codes[0] = n_zero;
    codes[1] = coded - n_zero;
    bits -= (uint64_t)q->params.low_bits * n_zero << 16;
    if (coded) bits -= lmc__min64(bits, lmc__entropy_q16(codes, coded));
    f->bits_of_others = n > n_zero ? bits / (n - n_zero) + scales : 0;
}

/* Counts the symbols of a sample; measures its loss, too, if the grid is linear and that is asked
 * for. n_exceptions is an estimate for the whole tensor: one chunk counts for all chunks of its
 * stride. The limit is 1 % of exceptions, because these take 8 bytes each with F32: more than 0.6
 * bits for each element. */
static enum lmc_status lmc__measure_sample(lmc__fit *f, uint64_t stride, int with_loss)
{
    lmc_quantizer *const q = f->q;
    const lmc__quant_params *const p = &q->params;
    lmc__losses losses = lmc__begin_losses(q);
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    uint8_t restored[4 * LMC__QUANTIZED_STRIP], wide[4 * LMC__QUANTIZED_STRIP];
    uint64_t at;
    size_t i, j, n, part;
    f->n = f->n_zero = 0;
    memset(f->counts, 0, sizeof f->counts);
    for (at = 0; at < q->n; at += stride) {
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        for (i = 0; i < n; i += part) {
            const lmc__quant_source chunk = {f->chunk, f->second, at, n},
                                    strip = lmc__part_of(&chunk, p->width, i,
                                                         lmc__min(n - i, LMC__QUANTIZED_STRIP));
            part = strip.n;
            if (p->grid.is_log || !with_loss)
                (void)lmc__find_symbols(f->k, p, symbols, f->x + 4 * i, f->s ? f->s + 4 * i : NULL,
                                        at + i, part);
            else {
                (void)lmc__quantize_strip(f->k, p, &strip, symbols, restored);
                lmc__add_losses(f, i, part, symbols, lmc__widen(wide, restored, part, p->width),
                                &losses);
            }
            for (j = 0; j < part; j++) {
                f->counts[symbols[j]]++;
                f->n_zero += lmc__load32(f->x + 4 * (i + j)) == 0;
            }
        }
        f->n += (uint32_t)n;
    }
    q->info.n_exceptions = f->counts[LMC__EXCEPTION] * (stride / LMC__FIT_CHUNK);
    f->error = p->grid.is_log ? lmc__log_error(p->grid.step, q->info.loss.measure)
                              : lmc__get_error(&losses, q->info.loss.measure);
    f->obstacle = (uint64_t)f->counts[LMC__EXCEPTION] * 100 > f->n
                      ? "more than 1 % of its elements are exceptions"
                      : NULL;
    return LMC_OK;
}

/* How far the grid is above its limit, in units of LMC__OCTAVE; negative if it is below. The limit
 * is `bits`, for its size; or, if bits is 0, `bound`, for its loss. */
static int32_t lmc__find_excess(const lmc__fit *f, unsigned bits, lmc__q32 bound)
{
    int32_t excess;
    if (bits) return ((int32_t)f->bits_of_others - (int32_t)((bits << 16) - LMC__SPARE_BITS)) * 128;
    excess = lmc__to_logarithm((float)(f->error ? f->error : 1)) - lmc__to_logarithm((float)bound);
    if (f->error > bound && excess < 2) excess = 2;             /* floats may be equal */
    if (excess < -13 * LMC__OCTAVE) excess = -13 * LMC__OCTAVE; /* as with almost no loss */
    return f->q->info.loss.measure == LMC_MEASURE_NMSE ? excess / 2 : excess;
}

/* Begins with the finest grid. For a size the grid only becomes coarser. For a bound it becomes
 * coarser until it is too coarse, then only finer; an error within two steps of the bound is good
 * enough. A logarithmic grid has the step that follows from its bound.
 *
 * A small sample is enough for logarithmic grids, of which only the size is unknown. For a linear
 * grid it finds the grid, which the large sample then checks. Only the large sample can reject a
 * tensor. */
LMC__COLD static enum lmc_status lmc__fit_grid(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    const lmc__q32 bound = o->bits ? 0 : lmc__get_bound(o);
    const uint64_t large = lmc__get_stride(f->q, LMC__LARGE_SAMPLE);
    lmc__grid *const grid = &f->q->params.grid;
    uint64_t stride = lmc__get_stride(f->q, LMC__SMALL_SAMPLE);
    int is_first = 1, was_above = o->bits || grid->is_log;
    unsigned i;
    for (i = 0; i < LMC__MAX_MEASURES; i++) {
        int32_t excess;
        LMC__TRY(lmc__measure_sample(f, stride, 1));
        lmc__measure_size(f);
        excess = lmc__find_excess(f, o->bits, bound);
        if (is_first && !f->obstacle) {
            if (f->q->info.n_codes == 0) f->obstacle = "all of it is zero";
            else if (excess > 0 && !o->bits) f->obstacle = "no grid holds the bound";
        }
        if (f->obstacle || (excess <= 0 && (was_above || i >= LMC__MAX_COARSER ||
                                            excess >= -2 * LMC__SCALE_STEP))) {
            if (stride != large && (f->obstacle || !grid->is_log)) {
                stride = large;
                if (i) i--; /* it is not another grid */
                continue;
            }
            if (f->obstacle) return lmc__keep_lossless(f->q, f->obstacle);
            grid->min += (int32_t)((f->first - 1) >> grid->is_signed);
            grid->n_points = (f->last - f->first + 1) >> grid->is_signed;
            return LMC_OK;
        }
        if (excess > 0) {
            was_above = 1;
            excess += LMC__SCALE_STEP;
        }
        is_first = 0;
        lmc__coarsen(f->q, o->bits ? excess : -excess);
    }
    return lmc__keep_lossless(f->q, o->bits ? "no grid is so small" : "no grid holds the bound");
}
#endif
