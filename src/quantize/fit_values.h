#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/plan.h"
#include "codec/quant_params.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"
#include "quantize/fit_scales.h"

/* Codebooks of tensors that have few values: for example copies of elements with 4 or 8 bits. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* All values of a tensor but +0 and exceptions, in a hash table with open addressing. */
typedef struct lmc__values {
    uint32_t values[512]; /* 0: free */
    uint64_t counts[512], n_zero, n_exceptions;
    unsigned n;
} lmc__values;

/* Returns 0 if there are more than `most` values, at most 256. */
static int lmc__count_values(lmc__values *v, const uint8_t *x, size_t n, unsigned most)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t value = lmc__load32(x + 4 * i);
        uint32_t slot = value * 0x9E3779B1u >> 23;
        if (!lmc__is_normal(value)) {
            v->n_zero += value == 0;
            v->n_exceptions += value != 0;
            continue;
        }
        while (v->values[slot] && v->values[slot] != value) slot = (slot + 1) % 512;
        if (!v->values[slot] && ++v->n > most) return 0;
        v->values[slot] = value;
        v->counts[slot]++;
    }
    return 1;
}

/* Sets a logarithmic grid with one scale that has exactly these values: its step is the last bit
 * that is set in any of them. Returns 0 if that would be too many points. */
static int lmc__set_exact_table(lmc__quant_params *p, const lmc__values *v, uint32_t *scale)
{
    uint32_t least = UINT32_MAX, largest = 0, all = 0, i, j;
    unsigned shift = 0;
    for (i = 0; i < 512; i++) {
        const uint32_t magnitude = v->values[i] & 0x7FFFFFFF;
        if (!v->values[i]) continue;
        if (magnitude < least) least = magnitude;
        if (magnitude > largest) largest = magnitude;
        all |= v->values[i];
    }
    while (shift < 16 && !(all >> shift & 1)) shift++;
    *scale = least & 0xFFFF0000u;
    p->grid.is_log = 1;
    p->grid.is_signed = (int)(all >> 31);
    p->grid.step = 1u << shift;
    p->grid.n_points = ((largest - *scale) >> shift) + 1;
    if (largest > LMC__MAX_LOG_SCALE || p->grid.n_points > lmc__max_points(&p->grid)) return 0;
    for (i = 0; i < 512; i++) {
        const uint32_t t = ((v->values[i] & 0x7FFFFFFF) - *scale) >> shift,
                       symbol = (p->grid.is_signed ? t << 1 | v->values[i] >> 31 : t) + 1;
        if (!v->values[i]) continue;
        for (j = ++p->table_size; j > 1 && p->table[j - 1] > symbol; j--)
            p->table[j] = p->table[j - 1];
        p->table[j] = (uint16_t)symbol;
    }
    return 1;
}

/* A tensor that has at most n_codes values loses nothing: they become the table (is_exact), or, if
 * no grid has all of them, the tensor is kept as it is. If it has more, the quantiser does not
 * change: most tensors have too many among their first hundreds of elements. */
LMC__COLD static enum lmc_status lmc__fit_values(lmc__fit *f)
{
    lmc_quantizer *const q = f->q;
    lmc__quant_params *const p = &q->params;
    const unsigned n_codes = f->options->n_codes;
    lmc__values v;
    uint32_t counts[256] = {0}, total = 0, scale, i;
    unsigned shift = 0;
    uint64_t at;
    size_t n;
    memset(&v, 0, sizeof v);
    for (at = 0; at < q->n; at += n) {
        n = lmc__get_chunk_size(q, at);
        LMC__TRY(lmc__read_chunk(f, at, n));
        if (!lmc__count_values(&v, f->x, n, n_codes)) return LMC_OK;
    }
    if (v.n == 0 || v.n + (v.n_zero != 0) > n_codes) return LMC_OK;
    if (v.n + (v.n_zero != 0) < 2) return lmc__keep_lossless(q, "all of it is one value");
    if (v.n > 255 || v.n_exceptions > q->n / 100 || !lmc__set_exact_table(p, &v, &scale))
        return lmc__keep_lossless(q, "it has few values, but no table has exactly these");
    p->is_exact = 1;
    p->group_size = lmc__min64(q->n, 0x7FFFFFFF);
    LMC__TRY(lmc__alloc_scales(q));
    for (n = 0; n < q->n_groups; n++) p->scales[n] = (uint16_t)(scale >> 16);
    LMC__TRY(lmc__set_codes(q, 0));
    while (q->n >> shift > UINT32_MAX) shift++; /* counts have 32 bits */
    q->info.n_codes = v.n + (v.n_zero != 0);
    q->info.n_exceptions = v.n_exceptions;
    counts[255] = (uint32_t)(v.n_zero >> shift);
    for (i = 0, n = 0; i < 512; i++)
        if (v.counts[i]) counts[n++] = (uint32_t)(v.counts[i] >> shift);
    for (i = 0; i < 256; i++) total += counts[i];
    f->bits = total ? lmc__entropy_q16(counts, total) / total : 0;
    f->bits += (v.n_exceptions * (32 + 8 * p->width) << 16) / q->n;
    f->error = 0;
    return LMC_OK;
}
#endif
