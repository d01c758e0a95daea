#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/options.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/put_block.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"
#include "quantize/fit_scales.h"
#include "quantize/fit_error.h"
#include "quantize/fit_grid.h"
#include "quantize/fit_table.h"
#include "quantize/fit_values.h"

/* lmc_quantizer_fit: chooses a grid (quant_params.h) for a tensor, or a codebook: a table of a few
 * of its points; and whether the tensor is quantised at all. A tensor that cannot be quantised well
 * is kept as it is: no error, and info has the reason.
 *
 *   second moment          logarithmic grid
 *   first, with a second   updates; RELATIVE: logarithmic grid
 *   anything else          linear grid; RELATIVE: logarithmic grid
 *
 * What is done, in this order:
 *   scales, or bias and floor     a pass over all, or over the sample     fit_scales.h
 *   a grid that suffices          a pass over a sample for each trial     fit_grid.h
 *   or a codebook                 a pass over a sample, or two            fit_table.h
 *
 * Before, if a codebook is asked for, it is tried whether the tensor has no more values than that.
 *
 * A pass reads elements by the caller's callback. Nothing depends on threads or tiers, and
 * decisions use integers, so every machine finds the same quantiser.
 *
 * Any grid makes valid blocks (spec/quantised.md): a mistake here would only cost size or
 * precision. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Elements. Smaller tensors are not quantised: the scales would take too many bits. */
#define LMC__MIN_QUANTIZED 16384u
/* Elements of a group. */
#define LMC__DEFAULT_GROUP 256u
#define LMC__LEAST_GROUP 16u

/* *bits: bits per element without loss, times 2^16, of LMC__FIT_CHUNK elements in the middle. The
 * tensor has at least as many elements (LMC__MIN_QUANTIZED). */
LMC__COLD static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_block_workspace_size(LMC__FIT_CHUNK, f->q->params.width),
                 cap = lmc_block_bound(4 * LMC__FIT_CHUNK),
                 chunk = LMC__FIT_CHUNK * q->params.width;
    lmc_block_options options;
    enum lmc_status status;
    uint8_t *ws;
    size_t size = 0;
    LMC__TRY(f->elements.read_at(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->params.width,
                                 f->chunk, chunk));
    ws = (uint8_t *)lmc__realloc(q->allocator, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    options = LMC_BLOCK_OPTIONS(f->options->dtype);
    status = lmc_block_encode(ws + ws_size, cap, &size, f->chunk, chunk, &options, ws, ws_size);
    (void)lmc__realloc(q->allocator, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

/* Elements in a group: usually those of a row; LMC__DEFAULT_GROUP if group is 0, or more than the
 * format allows. Short rows are joined to at least LMC__LEAST_GROUP elements. */
static uint64_t lmc__get_group_size(uint64_t group)
{
    if (group == 0) return LMC__DEFAULT_GROUP;
    if (group < LMC__LEAST_GROUP) group *= (LMC__LEAST_GROUP + group - 1) / group;
    return group <= 0x7FFFFFFF ? group : LMC__DEFAULT_GROUP;
}

/* Sets the kind of grid, and its scales. A logarithmic grid bounds relative errors. Second moments
 * have a logarithmic grid, too, because no second moment may become zero: updates are divided by
 * its root. First moments are quantised as updates, whose size is near 1: their grid is linear.
 *
 * A linear grid starts as the finest one. A logarithmic grid has the step that follows from its
 * bound; without a bound, 256 points to an octave, or 128 for BF16, which has no more values. */
LMC__COLD static enum lmc_status lmc__begin_fit(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc__quant_params *const q = &f->q->params;
    q->grid.is_log =
        f->q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted = o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements && !q->grid.is_log;
    if (q->grid.is_log) {
        q->grid.step = o->bits || o->n_codes ? 1u << (q->width == 2 ? 16 : 15)
                                             : lmc__log_step(lmc__get_bound(o), o->measure);
        if (q->width == 2) q->grid.step &= 0xFFFF0000u; /* BF16 has 16 bits less */
        if (q->grid.step == 0) return lmc__keep_lossless(f->q, "no grid holds the bound");
    }
    lmc__reset_grid(&q->grid);
    if (q->is_predicted) return lmc__fit_bias(f);
    q->group_size = lmc__get_group_size(o->group);
    return lmc__fit_scales(f);
}

/* Does all passes. Each may find that the tensor must be kept as it is (is_lossless). So is a
 * tensor if quantising would not make it a tenth smaller than coding without loss. */
LMC__COLD static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    uint64_t lossless;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    if (f->options->n_codes) LMC__TRY(lmc__fit_values(f));
    if (!q->params.is_exact && !q->info.is_lossless) LMC__TRY(lmc__begin_fit(f));
    if (!q->params.is_exact && !q->info.is_lossless)
        LMC__TRY(f->options->n_codes ? lmc__fit_table(f) : lmc__fit_grid(f));
    if (q->info.is_lossless) return LMC_OK;
    q->info.is_grid = q->params.table_size == 0;
    q->info.bits = (double)f->bits / 65536.0;
    q->info.loss.generation = f->options->generation + !q->params.is_exact;
    if (q->params.is_exact) q->info.loss.measure = LMC_MEASURE_NONE;
    q->info.loss.error = f->error / LMC__Q32_ONE;
    if (10 * f->bits > 9 * lossless)
        return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

/* Checks the arguments of lmc_quantizer_fit. A second moment's quantiser must not need a
 * prediction. */
LMC__COLD static enum lmc_status lmc__check_fit_options(const lmc_source *elements,
                                                        const lmc_quantizer_options *o)
{
    const unsigned width = lmc_dtype_width(o->dtype);
    const lmc_quantizer *const second = o->second;
    if (width == 0 || elements->size % width || (unsigned)o->role > LMC_ROLE_SECOND_MOMENT ||
        o->generation > 254)
        return LMC_ERR_ARGUMENT;
    if (o->n_codes ? o->bits || o->n_codes < 2 || o->n_codes > 256
        : o->bits
            ? o->bits < 4 || o->bits > 8
            : !(o->bound > 0) || !(o->bound < 1) || (unsigned)o->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (!(o->eps >= 0)) return LMC_ERR_ARGUMENT;
    if (!o->second_elements) return LMC_OK;
    LMC__CHECK_CALLBACKS(o->second_elements, read_at);
    if (o->second_elements->size != elements->size ||
        (second && (second->n != elements->size / width || second->params.width != width ||
                    second->params.is_predicted)))
        return LMC_ERR_ARGUMENT;
    return LMC_OK;
}

static const char *lmc__find_obstacle(const lmc_quantizer *q, const lmc_quantizer_options *o)
{
    if (o->dtype != LMC_F32 && o->dtype != LMC_BF16) return "its elements are not F32 or BF16";
    if (q->n < LMC__MIN_QUANTIZED) return "it has fewer than 16,384 elements";
    if (q->info.loss.measure == LMC_MEASURE_UPDATE && o->role == LMC_ROLE_OTHER)
        return "only moments have an update";
    return NULL;
}

/* After errors nothing remains allocated. */
LMC__COLD LMC_API enum lmc_status lmc_quantizer_fit(lmc_quantizer **quantizer,
                                                    const lmc_source *elements,
                                                    const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    lmc_quantizer_options o;
    const char *obstacle;
    lmc_quantizer *q;
    lmc__fit *f;
    LMC__NEW_OBJECT(quantizer);
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(elements, read_at);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    options = &o;
    LMC__TRY(lmc__check_allocator(o.allocator));
    LMC__TRY(lmc__check_fit_options(elements, options));
    q = (lmc_quantizer *)lmc__realloc(options->allocator, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->allocator = options->allocator;
    q->info.reason = "";
    q->params.width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->params.width;
    /* Without a bound the role decides how the loss is measured. */
    q->info.loss.measure = !options->bits && !options->n_codes ? options->measure
                           : options->role == LMC_ROLE_OTHER   ? LMC_MEASURE_NMSE
                                                               : LMC_MEASURE_UPDATE;
    obstacle = lmc__find_obstacle(q, options);
    if (obstacle) (void)lmc__keep_lossless(q, obstacle);
    else {
        f = (lmc__fit *)lmc__realloc(options->allocator, NULL, 0, sizeof *f);
        if (f) {
            f->k = lmc__get_kernels();
            f->options = options;
            f->elements = *elements;
            f->q = q;
            status = lmc__fit_quantizer(f);
            (void)lmc__realloc(options->allocator, f, sizeof *f, 0);
        } else status = LMC_ERR_MEMORY;
    }
    /* A tensor that is kept as it is has no loss, whatever was measured before. */
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_quantizer_free(q);
    else *quantizer = q;
    return status;
}
#endif
