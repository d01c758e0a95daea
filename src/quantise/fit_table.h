#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "quantise/quantizer.h"
#include "quantise/fit_sample.h"
#include "quantise/fit_scales.h"
#include "quantise/fit_error.h"

/* A table of up to 2^bits codes: k-means over the symbols of a fine grid.
 *
 * The grid has up to 65,534 points and the table at most 256, which lie far apart on it. So the
 * tensor becomes a histogram, a table is some hundred bytes, and decoders need one lookup in front
 * of the arithmetic that they have anyway.
 *
 *   counts of symbols --> bins --> cells of bins --> centres --> table --> code of each symbol
 *
 * With a logarithmic grid the distances are those of logarithms: so relative errors are evened out,
 * as second moments want it. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* The cube root, rounded down, bit by bit from the top; v is below 2^63. */
static uint32_t lmc__cube_root(uint64_t v)
{
    uint64_t root = 0, bit;
    for (bit = (uint64_t)1 << 20; bit; bit >>= 1)
        if ((root | bit) * (root | bit) * (root | bit) <= v) root |= bit;
    return (uint32_t)root;
}

static uint64_t lmc__count_cell(const lmc__cells *c, size_t from, size_t to)
{
    return c->count[to] - c->count[from];
}

/* Cuts anew: where there are many cells, it is best if their number grows with the cube root of
 * the density (Panter, Dite: Quantization distortion in pulse-count modulation, 1951). Densities
 * are those of the cells as they are. The last bin is not empty. */
static void lmc__spread_cells(lmc__cells *c, unsigned k)
{
    uint64_t weights[256], all = 0, before = 0; /* cells that each of the old ones should become */
    uint16_t ends[256];
    size_t from = 0;
    unsigned i, j = 0;
    for (i = 0; i < k; i++) {
        const uint64_t width = c->ends[i] - from;
        weights[i] = lmc__cube_root(lmc__count_cell(c, from, c->ends[i]) * width * width << 12);
        all += weights[i];
        from = c->ends[i];
    }
    for (i = 0, from = 0; i < k; i++) {
        for (; j < k && all * (j + 1) <= (before + weights[i]) * k; j++)
            ends[j] =
                (uint16_t)(from + (all * (j + 1) / k - before) * (c->ends[i] - from) / weights[i]);
        before += weights[i];
        from = c->ends[i];
    }
    memcpy(c->ends, ends, k * sizeof ends[0]);
}

/* The means of all cells, an empty one's where it is; then cells end halfway between these. */
static void lmc__move_cells(lmc__cells *c, unsigned k)
{
    size_t from = 0;
    unsigned i;
    for (i = 0; i < k; i++) {
        const uint64_t count = lmc__count_cell(c, from, c->ends[i]),
                       sum = c->sum[c->ends[i]] - c->sum[from];
        c->means[i] = count ? (uint32_t)((256 * sum + 128 * count) / count) : 256 * (uint32_t)from;
        from = c->ends[i];
    }
    for (i = 0; i + 1 < k; i++)
        c->ends[i] = (uint16_t)((c->means[i] + c->means[i + 1] + 255) / 512);
}

/* k-means of n bins in one dimension, the last of which is not empty: at most k cells of
 * neighbours, with small squared distances to their means. */
LMC__COLD static void lmc__find_cells(lmc__cells *c, const uint32_t *counts, size_t n, unsigned k)
{
    unsigned i, round, n_full = 0;
    size_t bin;
    c->count[0] = c->sum[0] = 0;
    for (bin = 0; bin < n; bin++) {
        c->count[bin + 1] = c->count[bin] + counts[bin];
        c->sum[bin + 1] = c->sum[bin] + (uint64_t)counts[bin] * bin;
        n_full += counts[bin] != 0;
    }
    if (n_full > k) {
        for (i = 0; i < k; i++) c->ends[i] = (uint16_t)(n * (i + 1) / k);
        for (round = 0; round < LMC__CELL_ROUNDS; round++) lmc__spread_cells(c, k);
    } else { /* a cell for each; those that are left over are empty, in front */
        memset(c->ends, 0, sizeof c->ends);
        for (bin = n, i = k; bin > 0; bin--)
            if (counts[bin - 1]) c->ends[--i] = (uint16_t)bin;
    }
    for (round = 0; round < LMC__CELL_ROUNDS; round++) lmc__move_cells(c, k);
}

/* Cells of neighbouring symbols, by bins of 2^shift symbols; centres: their means, in ascending
 * order. Returns how many of at most k there are: the means of two may be rounded to one symbol. */
static unsigned lmc__find_centres(lmc__fit *f, unsigned k, uint32_t *centres)
{
    uint32_t first, last, s;
    unsigned shift = 0, i, n = 0;
    lmc__find_range(f, &first, &last);
    while ((last - first) >> shift >= LMC__MAX_BINS) shift++;
    memset(f->bins, 0, sizeof f->bins);
    for (s = first; s <= last; s++) f->bins[(s - first) >> shift] += f->counts[s];
    lmc__find_cells(&f->cells, f->bins, ((last - first) >> shift) + 1, k);
    for (i = 0; i < k; i++) {
        const uint32_t symbol =
            (uint32_t)lmc__min64(first + ((uint64_t)f->cells.means[i] << shift >> 8), last);
        if (n == 0 || symbol > centres[n - 1]) centres[n++] = symbol;
    }
    return n;
}

/* The table of n centres. Code 0 is zero already, which on a linear grid is a point among
 * others: the centre nearest to it is left out there, unless all of the k codes cannot be used
 * otherwise. */
LMC__COLD static void lmc__set_table(lmc__quant_params *q, const uint32_t *centres, unsigned n,
                                     unsigned k)
{
    const uint32_t zero = lmc__zero_symbol(&q->grid);
    uint32_t nearest = UINT32_MAX;
    unsigned i, skip = 256;
    for (i = 0; i < n && zero; i++) {
        const uint32_t distance = centres[i] > zero ? centres[i] - zero : zero - centres[i];
        if (distance < nearest) {
            nearest = distance;
            skip = i;
        }
    }
    /* table[0] is symbol 0, and what is beyond the table 0, so that tables can be compared
     * whole. */
    q->table[0] = 0;
    q->table_size = 0;
    for (i = 0; i < n; i++)
        if (i != skip || (n < k && nearest != 0)) q->table[++q->table_size] = (uint16_t)centres[i];
    for (i = q->table_size + 1; i < 256; i++) q->table[i] = 0;
}

/* The table of at most k codes, the first for zero, and codes for all symbols. *bits: of the
 * sample and the table when coded, times 2^16. Returns 12 times the sum of squared errors, in
 * points: see lmc__log_error. */
static uint64_t lmc__fit_table(lmc__fit *f, unsigned k, uint64_t *bits)
{
    lmc__quant_params *const q = &f->q->params;
    const uint32_t zero = lmc__zero_symbol(&q->grid);
    uint32_t s, codes[256] = {0}, centres[256];
    uint64_t squares12 = 0;
    unsigned n, code;
    /* A logarithmic grid has no point for zero, so zero takes one of the codes. */
    n = lmc__find_centres(f, q->grid.is_log ? k - 1 : k, centres);
    lmc__set_table(q, centres, n, k);
    /* Codes of all symbols, not of those alone that the sample has: the tensor may have others. */
    memset(q->codes, 0, LMC__SYMBOLS);
    for (s = 1, code = 1; s < LMC__EXCEPTION && q->table_size; s++) {
        uint32_t distance;
        const unsigned best = lmc__find_code(q, &code, s, zero, &distance);
        q->codes[s] = (uint8_t)best;
        codes[best] += f->counts[s];
        squares12 += f->counts[s] * (12 * (uint64_t)distance * distance + 1);
    }
    codes[0] += f->counts[0];
    *bits = lmc__entropy_q16(codes, (uint32_t)f->total + f->counts[0]) +
            ((uint64_t)(16 * q->table_size) << 16);
    return squares12;
}

/* Moves the grid to begin and end where the sample does: then few symbols need a code. Elements
 * beyond become exceptions. Numbers of symbols move down with the grid's begin.
 *
 *     codes before   0 | 1 ... | first ............ last | ... 65534
 *     codes after    0 |         1 ..... last - first + 1
 *
 * The table's symbols are within first .. last, for centres are means of what occurs. */
LMC__COLD static enum lmc_status lmc__narrow_table(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const uint32_t no_more = (uint32_t)(1 - p->grid.min); /* min must stay at most 0 */
    uint32_t first, last, i;
    uint8_t *codes;
    lmc__find_range(f, &first, &last);
    first = first < no_more ? first : no_more;
    if (!p->grid.is_log && last < no_more) last = no_more; /* zero is a point */
    codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, last - first + 2);
    if (!codes) return LMC_ERR_MEMORY;
    codes[0] = 0;
    memcpy(codes + 1, p->codes + first, last - first + 1);
    (void)LMC_REALLOC(q->alloc_user, p->codes, q->n_codes, 0);
    p->codes = codes;
    q->n_codes = last - first + 2;
    for (i = 1; i <= p->table_size; i++) p->table[i] = (uint16_t)(p->table[i] - (first - 1));
    p->grid.min += (int32_t)first - 1;
    p->grid.n_points = last - first + 1;
    return LMC_OK;
}

#endif
