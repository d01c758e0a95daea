#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "quantise/clusters.h"
#include "quantise/quantizer.h"
#include "quantise/fit_sample.h"
#include "quantise/fit_scales.h"
#include "quantise/fit_error.h"

/* A table of up to 2^bits codes: k-means over the symbols of a fine grid.
 *
 * The grid has up to 65,534 points and the table at most 256, which lie far apart on it: looking at
 * symbols instead of elements loses next to nothing. In return the tensor becomes a histogram,
 * k-means becomes exact (clusters.h), a table is some hundred bytes, and decoders need one lookup
 * in front of the arithmetic that they have anyway.
 *
 *   counts of symbols --> bins --> cells of bins --> centres --> table --> code of each symbol
 *
 * With a logarithmic grid the distances are those of logarithms: so relative errors are evened out,
 * as second moments want it. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Cells of neighbouring symbols, from k-means over bins of 2^shift symbols; centres: their means,
 * in ascending order. Returns how many of at most k there are: cells may be empty, and the means of
 * two may be rounded to one symbol. */
static unsigned lmc__find_centres(lmc__fit *f, unsigned k, size_t max_bins, uint32_t *centres)
{
    uint32_t first, last, s;
    unsigned shift = 0, n_cells, i, n = 0;
    lmc__find_range(f, &first, &last);
    /* Time is O(bins * log bins) for each price, so bins are not finer than cells need it. */
    while ((last - first) >> shift >= max_bins) shift++;
    memset(f->bins, 0, sizeof f->bins);
    for (s = first; s <= last; s++) f->bins[(s - first) >> shift] += f->counts[s];
    lmc__set_clusters(&f->clusters, f->bins, ((last - first) >> shift) + 1);
    n_cells = lmc__find_cells(&f->clusters, k, f->ends);
    for (i = 0; i < n_cells; i++) {
        const size_t from = i ? f->ends[i - 1] : 0, to = f->ends[i];
        const uint64_t count = f->clusters.count[to] - f->clusters.count[from],
                       sum = f->clusters.sum[to] - f->clusters.sum[from];
        uint32_t symbol;
        if (count == 0) continue; /* a cell that no symbol is in needs no code */
        /* The mean bin, plus a half: the middle of its symbols. */
        symbol = first + (uint32_t)(((2 * sum + count) << shift) / (2 * count));
        if (symbol > last) symbol = last;
        if (n && symbol <= centres[n - 1]) continue;
        centres[n++] = symbol;
    }
    return n;
}

/* The table of n centres. Code 0 is zero already, which on a linear grid is a point among others:
 * there the centre nearest to it is left out, so that zero itself stands in its place, unless all
 * of the k codes cannot be used otherwise. */
static void lmc__set_table(lmc__quant_params *q, const uint32_t *centres, unsigned n, unsigned k)
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
    /* table[0] is symbol 0, and what is beyond the table is looked up by no valid code: 0, so that
     * tables can be compared whole. */
    q->table[0] = 0;
    q->table_size = 0;
    for (i = 0; i < n; i++)
        if (i != skip || (n < k && nearest != 0)) q->table[++q->table_size] = (uint16_t)centres[i];
    for (i = q->table_size + 1; i < 256; i++) q->table[i] = 0;
}

/* The table of at most k codes, the first for zero, and codes for all symbols. *bits: of the
 * sample and the table when coded, times 2^16. Returns the estimated error. */
static lmc__q32 lmc__fit_table(lmc__fit *f, unsigned k, uint64_t *bits)
{
    lmc__quant_params *const q = &f->q->params;
    const uint32_t zero = lmc__zero_symbol(&q->grid);
    /* 16 bins to a code are enough; of small tensors, time counts more */
    const size_t max_bins =
        lmc__min(16 * (size_t)k, f->q->n < ((uint64_t)1 << 16) ? 1024 : LMC__MAX_BINS);
    uint32_t s, codes[256] = {0}, centres[256];
    uint64_t squares12 = 0;
    unsigned n, code;
    /* A logarithmic grid has no point for zero, so zero takes one of the codes. */
    n = lmc__find_centres(f, q->grid.is_log ? k - 1 : k, max_bins, centres);
    lmc__set_table(q, centres, n, k);
    /* Codes of all symbols, not of those alone that the sample has: the tensor may have others. */
    memset(q->codes, 0, LMC__SYMBOLS);
    for (s = 1, code = 1; s < LMC__EXCEPTION && q->table_size; s++) {
        uint32_t distance;
        const unsigned best = lmc__find_code(q, &code, s, zero, &distance);
        q->codes[s] = (uint8_t)best;
        codes[best] += f->counts[s];
        /* The symbol's own elements are spread over its interval: a 12th more. */
        squares12 += f->counts[s] * (12 * (uint64_t)distance * distance + 1);
    }
    codes[0] += f->counts[0];
    *bits = lmc__entropy_q16(codes, (uint32_t)f->total + f->counts[0]) +
            ((uint64_t)(16 * q->table_size) << 16);
    return lmc__estimate_error(f, squares12);
}

/* Moves the grid to begin and end where the sample does: then few symbols need a code, and the
 * array of codes becomes as short, at most 64 KiB before. Elements beyond become exceptions; there
 * are few of them, as the sample had none. Numbers of symbols move down with the grid's begin.
 *
 *     codes before   0 | 1 ... | first ............ last | ... 65534
 *     codes after    0 |         1 ..... last - first + 1
 *
 * Code 0, of symbol 0, stays in front. The table's symbols are within first .. last, for centres
 * are means of what occurs, so none is lost. */
static enum lmc_status lmc__narrow_table(lmc__fit *f)
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
