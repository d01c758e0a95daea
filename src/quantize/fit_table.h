#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "codec/quant_params.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"
#include "quantize/fit_scales.h"
#include "quantize/fit_error.h"
#include "quantize/fit_grid.h"

/* Finds a codebook: a table of at most n_codes values, by k-means.
 *
 * Its values are points of the finest grid (fit_scales.h), so k-means has one dimension, works on a
 * histogram of at most 65,534 symbols, and takes the same time for every tensor. Distances are
 * those of the grid: relative to the group's scale; for first moments those of updates; for second
 * moments, whose grid is logarithmic, ratios.
 *
 *   sample --> counts of symbols --> 2048 cells --merge--> k cells --Lloyd--> means --> table
 *
 * A cell is an interval of symbols. Prefix sums give the weight and the mean of any cell. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__START_CELLS 2048u
#define LMC__LLOYD_ROUNDS 256u /* at most; usually cells stop moving earlier */
#define LMC__MAX_WIDER 3u      /* how often a grid may become coarser by two octaves */

/* 1 MiB, allocated while a codebook is sought. Cell i is [ends[i - 1], ends[i]), the first one
 * begins at `first`. Means are symbols times 256. */
typedef struct lmc__cells {
    uint64_t weight[LMC__SYMBOLS],
        sum[LMC__SYMBOLS];           /* of all symbols below; sum: weight * symbol */
    uint64_t cost[LMC__START_CELLS]; /* of merging cells i and i + 1 */
    uint32_t ends[LMC__START_CELLS];
    uint32_t means[256];
    uint32_t first, fixed; /* fixed: a symbol whose cell has it as its mean; 0: none */
    size_t n;
} lmc__cells;

LMC__INLINE uint32_t lmc__begin_cell(const lmc__cells *c, size_t i)
{
    return i ? c->ends[i - 1] : c->first;
}

/* sum * 256 is below 2^22 elements * 2^16 symbols * 2^8. */
static uint32_t lmc__mean_of(const lmc__cells *c, uint32_t begin, uint32_t end)
{
    const uint64_t weight = c->weight[end] - c->weight[begin], sum = c->sum[end] - c->sum[begin];
    if (begin <= c->fixed && c->fixed < end) return c->fixed * 256;
    return weight ? (uint32_t)((sum * 256 + weight / 2) / weight) : begin * 256;
}

/* The root of what merging cells i and i + 1 adds to the squared distances: w1 * w2 / (w1 + w2)
 * times the squared distance of their means (Ward: Hierarchical grouping to optimize an objective
 * function, 1963). The first factor is at most 2^21, here times 2^10. */
static uint64_t lmc__merging_cost(const lmc__cells *c, size_t i)
{
    const uint32_t a = lmc__begin_cell(c, i), b = c->ends[i], d = c->ends[i + 1];
    const uint64_t before = c->weight[b] - c->weight[a], after = c->weight[d] - c->weight[b];
    const uint64_t factor = (before * after << 10) / (before + after);
    return (uint64_t)lmc__root_q32((lmc__q32)factor) *
           (lmc__mean_of(c, b, d) - lmc__mean_of(c, a, b));
}

/* Cuts the symbols that occur into at most LMC__START_CELLS cells. A new one begins when half a
 * share of the weight, and half a share of the symbols, have passed together: so neither a dense
 * part of the histogram nor a long tail is cut too coarsely. */
static void lmc__cut_cells(lmc__cells *c, uint32_t last)
{
    const uint64_t half = LMC__START_CELLS / 2, all = c->weight[last + 1] - c->weight[c->first];
    uint64_t share, previous = UINT64_MAX;
    uint32_t s;
    c->n = 0;
    for (s = c->first; s <= last; s++) {
        if (c->weight[s + 1] == c->weight[s]) continue;
        share = (c->weight[s] - c->weight[c->first]) * half / all +
                (s - c->first) * half / (last - c->first + 1);
        if (share == previous) continue;
        if (c->n) c->ends[c->n - 1] = s;
        c->n++;
        previous = share;
    }
    c->ends[c->n - 1] = last + 1;
}

/* k-means of the symbols c->first .. last: c->means of at most k cells, in ascending order. Merging
 * finds cells that suit any shape of the histogram. Lloyd's iteration then moves them: each symbol
 * goes to the nearest mean, each mean to the middle of its symbols. */
LMC__COLD static void lmc__find_cells(lmc__cells *c, uint32_t last, unsigned k)
{
    unsigned round, has_moved = 1;
    size_t i, least;
    lmc__cut_cells(c, last);
    for (i = 0; i + 1 < c->n; i++) c->cost[i] = lmc__merging_cost(c, i);
    while (c->n > k) {
        for (i = least = 0; i + 1 < c->n; i++)
            if (c->cost[i] < c->cost[least]) least = i;
        c->n--;
        memmove(c->ends + least, c->ends + least + 1, (c->n - least) * sizeof c->ends[0]);
        memmove(c->cost + least, c->cost + least + 1, (c->n - least) * sizeof c->cost[0]);
        if (least) c->cost[least - 1] = lmc__merging_cost(c, least - 1);
        if (least + 1 < c->n) c->cost[least] = lmc__merging_cost(c, least);
    }
    for (round = 0; round < LMC__LLOYD_ROUNDS && has_moved; round++) {
        for (i = 0; i < c->n; i++) c->means[i] = lmc__mean_of(c, lmc__begin_cell(c, i), c->ends[i]);
        for (i = has_moved = 0; i + 1 < c->n; i++) {
            const uint32_t end = (c->means[i] + c->means[i + 1]) / 512 + 1;
            has_moved |= end != c->ends[i];
            c->ends[i] = end;
        }
    }
}

/* The least distance of two symbols in a table, so that quantising again changes nothing: BF16 of q
 * points are rounded by up to q / 256 points, and then to points. */
static uint32_t lmc__least_distance(const lmc__quant_params *p, int64_t a, int64_t b)
{
    a = a < 0 ? -a : a;
    b = b < 0 ? -b : b;
    return p->grid.is_log || p->width == 4 ? 1 : 2 * (uint32_t)(((a > b ? a : b) + 128) >> 8) + 1;
}

/* Moves scales so that no value of the table is beyond the normal numbers, for the same reason. */
static void lmc__clamp_scales(lmc_quantizer *q)
{
    const lmc__quant_params *const p = &q->params;
    const int64_t step = p->grid.step,
                  least = (LMC__MIN_SCALE - (p->grid.min + p->table[1] - 1) * step + 65535) / 65536,
                  most = (LMC__MAX_LOG_SCALE - (p->grid.min + p->table[p->table_size] - 1) * step) /
                         65536;
    size_t i;
    for (i = 0; i < q->n_groups; i++)
        p->scales[i] = (uint16_t)lmc__clamp(p->scales[i], (int32_t)least, (int32_t)most);
}

/* Sets the grid and the table, whose symbols are numbered from f->first on. zero: the symbol of
 * point 0, which becomes code 0; or 0: the grid has none. */
static enum lmc_status lmc__set_table(lmc__fit *f, const lmc__cells *c, uint32_t zero)
{
    lmc__quant_params *const p = &f->q->params;
    const uint32_t before = f->first - 1;
    int64_t previous = -1;
    int has_zero = 0;
    size_t i;
    for (i = 0; i < c->n; i++) {
        const uint32_t symbol = (c->means[i] + 128) >> 8;
        has_zero |= symbol == zero;
        if (symbol == zero ||
            (p->table_size &&
             symbol - previous < lmc__least_distance(p, (int64_t)symbol - zero, previous - zero)))
            continue;
        p->table[++p->table_size] = (uint16_t)(symbol - before);
        previous = symbol;
    }
    p->grid.min += (int32_t)before;
    p->grid.n_points = f->last - before;
    LMC__TRY(lmc__set_codes(f->q, has_zero ? zero - before : 0));
    if (zero && !has_zero) p->codes[0] = p->codes[zero - before];
    if (p->grid.is_log) lmc__clamp_scales(f->q);
    return LMC_OK;
}

/* The error of the update from second moments that go to the table's points. An update is divided
 * by a root, so D octaves between element and point change it by 2^(D / 2) - 1. Within some tenths
 * of an octave the bits of a float are linear, so 2^x is taken as (the float whose bits are those
 * of 1.36 plus x octaves) / 1.36. A change is D / m for a mantissa m: with 1.36, its square is the
 * mean over all mantissas (see lmc__log_step). The error of the grid itself is added. */
LMC__COLD static lmc__q32 lmc__table_error(const lmc__fit *f)
{
    const lmc__quant_params *const p = &f->q->params;
    const uint32_t middle = 0x3FAE147B; /* 1.36 */
    const int64_t before = f->first - 1;
    const lmc__q32 own = p->width == 4 ? lmc__log_error(p->grid.step, LMC_MEASURE_UPDATE) : 0;
    lmc__wide_sum lost = {0, 0}, all = {0, 0};
    lmc__q32 error;
    uint32_t s;
    for (s = f->first; s <= f->last; s++) {
        const int64_t octaves =
            (s - before - p->table[p->codes[s - before]]) * (int64_t)p->grid.step / 2;
        const uint32_t bits = (uint32_t)lmc__clamp(middle + octaves, 0x30000000, 0x41FFFFFF);
        const int exponent = (int)(bits >> 23) - 127;
        const uint64_t mantissa = (bits & 0x7FFFFF) | 0x800000;
        /* in units of 2^-16, below 2^21; so the sum fits */
        const int64_t root = (int64_t)((exponent < 0 ? mantissa << 16 >> -exponent
                                                     : mantissa << 16 << (exponent & 31)) /
                                       ((middle & 0x7FFFFF) | 0x800000)),
                      change = root - 65536;
        if (f->counts[s] == 0) continue;
        lmc__add_wide(&lost, (uint64_t)(change * change) * f->counts[s]);
        lmc__add_wide(&all, f->counts[s] * ((uint64_t)1 << 32));
    }
    error = lmc__fraction(lost, all);
    return lmc__root_q32((lmc__q32)lmc__min64(error + ((uint64_t)own * own >> 32), LMC__Q32_MAX));
}

/* Size and codes of the sample, from its counts before it had a table. */
static void lmc__measure_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    const lmc__quant_params *const p = &q->params;
    const uint32_t exceptions = f->counts[LMC__EXCEPTION];
    uint32_t codes[256] = {0}, s;
    for (s = f->first; s <= f->last; s++) codes[p->codes[s - (f->first - 1)]] += f->counts[s];
    codes[0] += f->n_zero;
    codes[p->codes[0]] += f->counts[0] - f->n_zero;
    q->info.n_codes = lmc__count_symbols(codes);
    f->bits = f->n > exceptions ? lmc__entropy_q16(codes, (uint32_t)f->n - exceptions) : 0;
    f->bits = (f->bits + ((uint64_t)exceptions * (32 + 8 * p->width) << 16)) / f->n +
              lmc__bits_of_scales(p);
}

LMC__COLD static enum lmc_status lmc__fit_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const uint64_t stride = lmc__get_stride(q, LMC__LARGE_SAMPLE);
    const uint32_t zero = p->grid.is_log ? 0 : (uint32_t)(1 - p->grid.min);
    unsigned k = f->options->n_codes, trial;
    enum lmc_status status;
    lmc__cells *c;
    int is_zero_frequent;
    uint32_t s, beyond = UINT32_MAX;
    /* A codebook can have values for far elements, too. The grid becomes coarser while this leaves
     * fewer exceptions, if these are more than one in 8192. */
    for (trial = 0;; trial++) {
        LMC__TRY(lmc__measure_sample(f, stride, 0));
        if (p->grid.is_log || p->is_predicted || trial == LMC__MAX_WIDER ||
            f->counts[LMC__EXCEPTION] <= f->n / 8192 || f->counts[LMC__EXCEPTION] == beyond)
            break;
        beyond = f->counts[LMC__EXCEPTION];
        lmc__coarsen(q, 2 * LMC__OCTAVE);
    }
    lmc__measure_size(f);
    p->low_bits = 0;
    if (!f->obstacle && q->info.n_codes == 0) f->obstacle = "all of it is zero";
    if (f->obstacle) return lmc__keep_lossless(q, f->obstacle);
    c = (lmc__cells *)lmc__realloc(q->allocator, NULL, 0, sizeof *c);
    if (!c) return LMC_ERR_MEMORY;
    /* Zeros always stay zero. If they are frequent, zero is one of the values, and on the line
     * other elements may become zero. Rare zeros come beside the values: at that share, this takes
     * as many bits as one value less would lose in precision. */
    is_zero_frequent = (uint64_t)f->n_zero * 4 * k > f->n;
    c->fixed = is_zero_frequent ? zero : 0;
    k -= c->fixed == 0 && (is_zero_frequent || k == 256); /* 255 numbers, and zero */
    c->first = f->first;
    c->weight[0] = c->sum[0] = 0;
    for (s = 0; s + 1 < LMC__SYMBOLS; s++) {
        const uint32_t count = s == 0      ? 0
                               : s != zero ? f->counts[s]
                                           : f->counts[0] - (c->fixed ? 0 : f->n_zero);
        c->weight[s + 1] = c->weight[s] + count;
        c->sum[s + 1] = c->sum[s] + (uint64_t)count * s;
    }
    lmc__find_cells(c, f->last, k);
    status = lmc__set_table(f, c, zero);
    (void)lmc__realloc(q->allocator, c, sizeof *c, 0);
    LMC__TRY(status);
    lmc__measure_table(f);
    if (!p->grid.is_log) return lmc__measure_sample(f, stride, 1);
    f->error = lmc__table_error(f);
    return LMC_OK;
}
#endif
