#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/grids.h"
#include "codec/quant_params.h"
#include "codec/put_quantised.h"
#include "quantise/quantizer.h"

/* The state of a fit, and its sample.
 *
 * Elements come from a callback, again in each pass: a tensor may be larger than memory. A fit
 * looks mostly at the counts of the symbols that a pass has found on a grid: 64 Ki numbers.
 *
 * The sample of a tensor below 4 Mi elements is all of it. Of a larger one it is chunks of 16 Ki
 * at equal distances, the same ones in each pass and on every machine. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__FIT_CHUNK 16384u               /* elements that are read at once */
#define LMC__FIT_SAMPLE ((uint64_t)1 << 21) /* tensors of twice as many, or more, are sampled */
#define LMC__SYMBOLS 65536u

/* k-means over bins of symbols, which are cut into cells (fit_table.h); rounds of each kind. */
#define LMC__MAX_BINS 4096u
#define LMC__CELL_ROUNDS 4u
typedef struct lmc__cells {
    uint64_t count[LMC__MAX_BINS + 1],
        sum[LMC__MAX_BINS + 1]; /* of counts, count * i; of bins before */
    uint32_t means[256];        /* in 256ths of a bin */
    uint16_t ends[256];
} lmc__cells;

typedef uint32_t lmc__q32; /* see fit_error.h */

/* 0.7 MiB, allocated while a fit lasts. */
typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_source elements;
    lmc_quantizer *q; /* What is being made; not yet of use to others. */
    /* The chunk at hand: elements and, with is_predicted, their second moments, as they come
     * (chunk, second) and as F32 (x, s), which is in `wide` where they are BF16. */
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK];
    uint8_t wide[4 * LMC__FIT_CHUNK], wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s;
    uint16_t symbols[LMC__FIT_CHUNK];
    /* Of the sample's symbols, LMC__EXCEPTION included; their sum without that and symbol 0. */
    uint32_t counts[LMC__SYMBOLS];
    uint64_t total;
    /* What was found: bits of the sample when coded, times 2^16, and its loss. */
    int found; /* there is a grid */
    uint64_t bits;
    lmc__q32 error;
    /* Of k-means (fit_table.h). */
    uint32_t bins[LMC__MAX_BINS];
    lmc__cells cells;
} lmc__fit;

/* Reads elements [first, first + n), and of the second moment what the decoder will have: that
 * may be quantised, too. */
static enum lmc_status lmc__read_chunk(lmc__fit *f, uint64_t first, size_t n)
{
    const lmc_quantizer_options *const o = f->options;
    const lmc__quant_params *const q = &f->q->params;
    const size_t size = n * q->width;
    LMC__TRY(f->elements.read_at(f->elements.user, first * q->width, f->chunk, size));
    f->x = lmc__widen(f->wide, f->chunk, n, q->width);
    f->s = NULL;
    if (!q->is_predicted) return LMC_OK;
    LMC__TRY(
        o->second_elements.read_at(o->second_elements.user, first * q->width, f->second, size));
    if (o->second)
        LMC__TRY(lmc_quantizer_apply(o->second, first * q->width, f->second, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* The sample is the chunks that begin at 0, stride, 2 * stride, ... A stride is a whole number of
 * chunks; of a small tensor it is one. The last chunk may be shorter.
 *
 *     elements    |####|    |    |####|    |    |####|    |    |####    every third, as of 7 Mi
 *                  chunk         stride = 3 chunks
 *
 * n / LMC__FIT_SAMPLE is rounded down: a sample has less than 4 Mi elements, so counts fit in 32
 * bits with room to spare. */
static uint64_t lmc__get_stride(const lmc_quantizer *q)
{
    return q->n < 2 * LMC__FIT_SAMPLE ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / LMC__FIT_SAMPLE);
}

static size_t lmc__get_chunk_size(const lmc_quantizer *q, uint64_t at)
{
    return (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
}

/* The first and the last point that occur; 0, 0 if none does. */
static void lmc__find_range(const lmc__fit *f, uint32_t *first, uint32_t *last)
{
    uint32_t s;
    *first = *last = 0;
    for (s = 1; s < LMC__EXCEPTION; s++)
        if (f->counts[s]) {
            if (!*first) *first = s;
            *last = s;
        }
}

#endif
