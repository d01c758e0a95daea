#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "codec/quant_params.h"
#include "quantize/quantizer.h"

/* The state of a fit, its samples, and functions for fit.h and snapshot/requantize.h.
 *
 * Each pass reads elements by a callback, because a tensor may be larger than memory. Most passes
 * read samples: chunks of 16 Ki elements at equal distances, the same on every machine. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Keeps the tensor as it is. Returns LMC_OK, as this is not an error. reason: a static string. */
static enum lmc_status lmc__keep_lossless(lmc_quantizer *q, const char *reason)
{
    q->info.is_lossless = 1;
    q->info.reason = reason;
    return LMC_OK;
}

/* The most points of a grid. Their symbols (with signs, two for each) are below LMC__EXCEPTION. A
 * logarithmic grid only needs to cover all magnitudes, whose bits as an integer are below 2^31.
 *
 *     symbols   0: zero | 1 .. n_points, or 2 n_points with signs | ... | 65535: LMC__EXCEPTION */
static uint32_t lmc__max_points(const lmc__grid *grid)
{
    const uint32_t n = grid->is_signed ? (LMC__EXCEPTION - 1) / 2 : LMC__EXCEPTION - 1;
    return grid->is_log ? (uint32_t)lmc__min(n, 0x7FFFFFFFu / grid->step) : n;
}

/* Each symbol gets the code of the nearest symbol in the table (of two, of the lower symbol), or
 * code 0, if `zero` is at least as near: a symbol that means the same as symbol 0; or 0. Symbols
 * that are not in the table need codes even if all elements are its values: BF16 may have been
 * rounded to a neighbour. */
LMC__COLD static enum lmc_status lmc__set_codes(lmc_quantizer *q, uint32_t zero)
{
    lmc__quant_params *const p = &q->params;
    uint32_t s, distance, to_zero;
    unsigned code = 1;
    p->codes = (uint8_t *)lmc__realloc(q->allocator, NULL, 0, LMC__SYMBOLS);
    if (!p->codes) return LMC_ERR_MEMORY;
    p->codes[0] = 0;
    for (s = 1; s < LMC__SYMBOLS; s++) {
        while (code < p->table_size && 2 * s > (uint32_t)p->table[code] + p->table[code + 1])
            code++;
        distance = s > p->table[code] ? s - p->table[code] : p->table[code] - s;
        to_zero = s > zero ? s - zero : zero - s;
        p->codes[s] = (uint8_t)(zero && to_zero <= distance ? 0 : code);
    }
    return LMC_OK;
}

#define LMC__FIT_CHUNK 16384u /* elements that are read at once */
/* The least elements in a sample to find a grid (SMALL), and in one to measure its loss (LARGE). A
 * sample has less than twice as many. A tensor with less than twice as many is its own sample. */
#define LMC__SMALL_SAMPLE ((uint64_t)1 << 17)
#define LMC__LARGE_SAMPLE ((uint64_t)1 << 21)

typedef uint32_t lmc__q32; /* see fit_error.h */

/* 0.5 MiB, allocated only during a fit. */
typedef struct lmc__fit {
    const lmc__kernels *k;
    const lmc_quantizer_options *options;
    lmc_source elements;
    lmc_quantizer *q; /* the result, which is not complete yet */
    /* The current chunk: elements and, with is_predicted, their second moments, as read (chunk,
     * second) and as F32 (x, s). BF16 are converted to F32 in wide and wide_second. */
    uint8_t chunk[4 * LMC__FIT_CHUNK], second[4 * LMC__FIT_CHUNK];
    uint8_t wide[4 * LMC__FIT_CHUNK], wide_second[4 * LMC__FIT_CHUNK];
    const uint8_t *x, *s;
    /* The last measured grid (fit_grid.h): elements of the sample, how many are +0, and the count
     * of each symbol; first and last symbol that the grid will have; why it cannot be used, or
     * NULL; bits per element, and per element that is not zero, times 2^16; loss. */
    uint32_t n, n_zero, counts[LMC__SYMBOLS], first, last;
    const char *obstacle;
    uint64_t bits, bits_of_others;
    lmc__q32 error;
} lmc__fit;

/* Reads elements [first, first + n), and their second moments as the decoder will have them: these
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
        o->second_elements->read_at(o->second_elements->user, first * q->width, f->second, size));
    if (o->second)
        LMC__TRY(lmc_quantizer_apply(o->second, first * q->width, f->second, size, NULL));
    f->s = lmc__widen(f->wide_second, f->second, n, q->width);
    return LMC_OK;
}

/* A sample is the chunks that begin at elements 0, stride, 2 * stride, ... A stride is a whole
 * number of chunks. The last chunk may be shorter.
 *
 *     elements    |####|    |    |####|    |    |####|    |    |####
 *                  chunk         stride = 3 chunks */
static uint64_t lmc__get_stride(const lmc_quantizer *q, uint64_t sample)
{
    return q->n < sample ? LMC__FIT_CHUNK : LMC__FIT_CHUNK * (q->n / sample);
}

static size_t lmc__get_chunk_size(const lmc_quantizer *q, uint64_t at)
{
    return (size_t)lmc__min64(q->n - at, LMC__FIT_CHUNK);
}
#endif
