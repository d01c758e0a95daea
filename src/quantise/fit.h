#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/put_block.h"
#include "quantise/quantizer.h"
#include "quantise/fit_sample.h"
#include "quantise/fit_scales.h"
#include "quantise/fit_error.h"
#include "quantise/fit_table.h"
#include "quantise/fit_grid.h"

/* lmc_quantizer_fit: which kind of grid a tensor gets, whether by table or bound, and whether it is
 * worth it at all. What cannot be quantised well is kept as it is, with the reason: that is no
 * error.
 *
 *                          asked by bits               asked by a bound
 *   second moment          table, logarithmic grid     logarithmic grid
 *   first, with a second   table, updates              updates; RELATIVE: logarithmic grid
 *   anything else          table, linear grid          linear grid; RELATIVE: logarithmic grid
 *
 * What is done, in this order:
 *
 *   scales, or bias and floor     one pass over all, or the sample        fit_scales.h
 *   symbols on a fine grid        a pass over the sample                  fit_error.h
 *   table by k-means, or          no pass, for a linear grid one          fit_table.h
 *   the coarsest grid in bounds   a pass for each that is tried           fit_grid.h
 *
 * A pass reads elements by the caller's callback. Nothing depends on how many threads there are or
 * on the tier, and floating point decides nothing: so the quantiser is the same on every machine.
 *
 * Any grid and table make a valid block (spec/quantised.md): a mistake here would cost size or
 * precision, not correctness. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Elements. Below, a table and scales for each block are not worth it. */
#define LMC__MIN_QUANTIZED 16384u
/* Elements of a group. Scales take about 12 bits when coded: with 16 elements nearly one bit
 * each, with 256 less than a 20th of one. */
#define LMC__DEFAULT_GROUP 256u
#define LMC__LEAST_GROUP 16u
#define LMC__SCALE_BITS 12u

/* Bits per element without loss, times 2^16: of one block of elements from the middle. There are
 * as many (LMC__MIN_QUANTIZED). */
LMC__COLD static enum lmc_status lmc__try_lossless(lmc__fit *f, uint64_t *bits)
{
    const lmc_quantizer *const q = f->q;
    const size_t ws_size = lmc_block_workspace_size(LMC__FIT_CHUNK, f->q->params.width),
                 cap = lmc_block_bound(4 * LMC__FIT_CHUNK),
                 chunk = LMC__FIT_CHUNK * q->params.width;
    lmc_block_options options;
    enum lmc_status status;
    uint8_t *ws;
    size_t size;
    LMC__TRY(f->elements.read_at(f->elements.user, (q->n - LMC__FIT_CHUNK) / 2 * q->params.width,
                                 f->chunk, chunk));
    ws = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, ws_size + cap);
    if (!ws) return LMC_ERR_MEMORY;
    options = LMC_BLOCK_OPTIONS(f->options->dtype);
    status = lmc_block_encode(ws + ws_size, cap, &size, f->chunk, chunk, &options, ws, ws_size);
    (void)LMC_REALLOC(q->alloc_user, ws, ws_size + cap, 0);
    if (status == LMC_OK) *bits = ((uint64_t)size * 8 << 16) / LMC__FIT_CHUNK;
    return status;
}

/* A row's elements, or of a flat shard 256. Short rows are joined to at least 16. What the
 * format has no number for is as if it were not said. */
static uint64_t lmc__get_group_size(uint64_t group)
{
    if (group == 0) return LMC__DEFAULT_GROUP;
    if (group < LMC__LEAST_GROUP) group *= (LMC__LEAST_GROUP + group - 1) / group;
    return group <= 0x7FFFFFFF ? group : LMC__DEFAULT_GROUP;
}

/* The kind of grid, and its scales. Relative errors are bounded by a logarithmic one, and so are
 * second moments, of which none may become zero: updates are divided by their roots. First
 * moments are of updates about as large as 1: their grid is linear. */
LMC__COLD static enum lmc_status lmc__begin_fit(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc__quant_params *const q = &f->q->params;
    int found;
    q->grid.is_log =
        f->q->info.loss.measure == LMC_MEASURE_RELATIVE || o->role == LMC_ROLE_SECOND_MOMENT;
    q->grid.is_signed = q->grid.is_log && o->role != LMC_ROLE_SECOND_MOMENT;
    q->is_predicted =
        o->role == LMC_ROLE_FIRST_MOMENT && o->second_elements.read_at && !q->grid.is_log;
    /* Points of logarithmic grids are 1/1024 of an octave apart, or of BF16, which have no
     * others, 1/128: until a bound says otherwise. */
    q->grid.step = !q->grid.is_log ? 0 : q->width == 2 ? 1u << 16 : 1u << 13;
    lmc__reset_grid(&q->grid);
    if (!q->is_predicted) {
        q->group_size = lmc__get_group_size(o->group);
        return lmc__fit_scales(f);
    }
    lmc__fit_floor(f);
    LMC__TRY(lmc__fit_bias(f, &found));
    return found ? LMC_OK : lmc__keep_lossless(f->q, "no update is a normal number");
}

/* The symbols on a fine grid. 1024 points to an octave reach 32 octaves either way from the
 * scale, with signs half as far; magnitudes that are beyond that may be within reach of 256 to
 * an octave. BF16 reach everything as it is. error: of a linear grid that a bound asks for, or
 * NULL. */
LMC__COLD static enum lmc_status lmc__find_fine_grid(lmc__fit *f, lmc__q32 *error)
{
    lmc__grid *const grid = &f->q->params.grid;
    int is_off;
    LMC__TRY(lmc__count_sample(f, error, &is_off));
    if (is_off && grid->is_log && f->q->params.width == 4) {
        grid->step <<= 2;
        LMC__TRY(lmc__count_sample(f, NULL, &is_off));
    }
    if (is_off) return lmc__keep_lossless(f->q, "more than 1 % of its elements are exceptions");
    return f->total ? LMC_OK : lmc__keep_lossless(f->q, "all of it is zero");
}

/* A table of 2^bits codes. Its loss is measured over all elements where the grid is linear;
 * relative errors depend on the symbols alone. */
LMC__COLD static enum lmc_status lmc__fit_codes(lmc__fit *f, unsigned bits)
{
    lmc_quantizer *const q = f->q;
    uint64_t squares12;
    int is_off;
    q->params.codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, LMC__SYMBOLS);
    q->n_codes = LMC__SYMBOLS;
    if (!q->params.codes) return LMC_ERR_MEMORY;
    squares12 = lmc__fit_table(f, 1u << bits, &f->bits);
    if (q->params.table_size == 0) return lmc__keep_lossless(q, "all of it is zero");
    LMC__TRY(lmc__narrow_table(f));
    if (q->params.grid.is_log) f->error = lmc__log_error(f, squares12);
    else LMC__TRY(lmc__count_sample(f, &f->error, &is_off));
    q->info.n_codes = q->params.table_size + 1;
    f->found = 1;
    return LMC_OK;
}

/* What callers are told; and whether it is worth it: a tenth must be saved of what is coded without
 * loss. Sizes are by entropy: of the sample's codes, with 4 bytes and an element for each
 * exception, and scales.
 *
 * bits is of the sample first, times 2^16, then of one element. `seen` is all elements of the
 * sample: total leaves out zeros and exceptions. */
LMC__COLD static enum lmc_status lmc__end_fit(lmc__fit *f, uint64_t lossless)
{
    lmc_quantizer *const q = f->q;
    const uint64_t exceptions = f->counts[LMC__EXCEPTION],
                   seen = f->total + f->counts[0] + exceptions, group_size = q->params.group_size;
    uint64_t bits = f->bits + (exceptions * (32 + 8 * q->params.width) << 16);
    q->info.is_grid = q->params.table_size == 0;
    q->info.loss.generation = f->options->generation + 1;
    q->info.loss.error = f->error / LMC__Q32_ONE;
    q->info.bits = (double)bits / 65536.0 / (double)seen +
                   (q->params.is_predicted ? 0.0 : (double)LMC__SCALE_BITS / (double)group_size);
    bits = bits / seen + (q->params.is_predicted ? 0 : (LMC__SCALE_BITS << 16) / group_size);
    if (10 * bits > 9 * lossless) return lmc__keep_lossless(q, "it would not be a tenth smaller");
    return LMC_OK;
}

/* The passes. Each may find that the tensor must be kept as it is (is_lossless). */
LMC__COLD static enum lmc_status lmc__fit_quantizer(lmc__fit *f)
{
    const lmc_quantizer_options *const o = f->options;
    lmc_quantizer *const q = f->q;
    uint64_t lossless;
    LMC__TRY(lmc__try_lossless(f, &lossless));
    LMC__TRY(lmc__begin_fit(f));
    if (q->info.is_lossless) return LMC_OK;
    /* A logarithmic grid's step follows from the bound; others are found from the finest. */
    if (o->bits == 0 && q->params.grid.is_log) LMC__TRY(lmc__fit_log_grid(f, lmc__get_bound(o)));
    else {
        LMC__TRY(lmc__find_fine_grid(f, o->bits ? NULL : &f->error));
        if (q->info.is_lossless) return LMC_OK;
        if (o->bits) LMC__TRY(lmc__fit_codes(f, o->bits));
        else LMC__TRY(lmc__fit_linear_grid(f, lmc__get_bound(o)));
        if (q->info.is_lossless) return LMC_OK;
    }
    if (!f->found) return lmc__keep_lossless(q, "no grid holds the bound");
    return lmc__end_fit(f, lossless);
}

/* The rules of lmc_quantizer_fit for its arguments. A second moment's quantiser must not want a
 * prediction itself. */
LMC__COLD static enum lmc_status lmc__check_fit_options(const lmc_source *elements,
                                                        const lmc_quantizer_options *o)
{
    const unsigned width = (unsigned)o->dtype < LMC_DTYPE_COUNT ? lmc_dtype_width(o->dtype) : 0;
    const lmc_quantizer *const second = o->second;
    if (width == 0 || elements->size % width || (unsigned)o->role > LMC_ROLE_SECOND_MOMENT ||
        o->generation > 254)
        return LMC_ERR_ARGUMENT;
    if (o->bits
            ? o->bits < 4 || o->bits > 8
            : !(o->bound > 0) || !(o->bound < 1) || (unsigned)o->measure - 1 > LMC_MEASURE_NMSE - 1)
        return LMC_ERR_ARGUMENT;
    if (!o->second_elements.read_at) return LMC_OK;
    if (o->second_elements.size != elements->size ||
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

/* One allocation for the quantiser, which the caller gets, and one for the fit. On errors
 * nothing is left, and *quantizer is not touched. */
LMC__COLD LMC_API enum lmc_status lmc_quantizer_fit(lmc_quantizer **quantizer,
                                                    const lmc_source *elements,
                                                    const lmc_quantizer_options *options)
{
    enum lmc_status status = LMC_OK;
    lmc_quantizer_options o;
    const char *obstacle;
    lmc_quantizer *q;
    lmc__fit *f;
    if (!quantizer || !elements || !elements->read_at || !options) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__take_options(&o, sizeof o, options));
    options = &o;
    LMC__TRY(lmc__check_fit_options(elements, options));
    q = (lmc_quantizer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = options->alloc_user;
    q->info.reason = "";
    q->params.width = lmc_dtype_width(options->dtype);
    q->n = elements->size / q->params.width;
    /* With bits nothing is bounded: what moments are for tells how their loss is measured. */
    q->info.loss.measure = options->bits == 0                ? options->measure
                           : options->role == LMC_ROLE_OTHER ? LMC_MEASURE_NMSE
                                                             : LMC_MEASURE_UPDATE;
    obstacle = lmc__find_obstacle(q, options);
    if (obstacle) (void)lmc__keep_lossless(q, obstacle);
    else {
        f = (lmc__fit *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *f);
        if (f) {
            f->k = lmc__get_kernels();
            f->options = options;
            f->elements = *elements;
            f->q = q;
            f->found = 0;
            status = lmc__fit_quantizer(f);
            (void)LMC_REALLOC(options->alloc_user, f, sizeof *f, 0);
        } else status = LMC_ERR_MEMORY;
    }
    /* What is kept as it is has lost nothing, whatever was found before that was decided. */
    if (q->info.is_lossless) memset(&q->info.loss, 0, sizeof q->info.loss);
    if (status != LMC_OK) lmc_quantizer_free(q);
    else *quantizer = q;
    return status;
}

#endif
