#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/workspace.h"
#include "codec/plan.h"

/* The element of n where the sample's run i starts: every fourth step, then the ones behind these,
 * and so on; so every quarter is a sample of the whole block, too. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step times 2^32 over the golden ratio: the top bits of its multiples are spread evenly
     * (Knuth, vol. 3, 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* Runs are fetched so far ahead, at most the 32 of a quarter: they lie where no hardware expects
 * them. */
#define LMC__SAMPLE_AHEAD 16u

typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    size_t n;           /* elements of them */
    size_t n_block;     /* elements of the block; if they are as many, they are all taken at once */
} lmc__sample;

/* Returns 0 if there is no room, which cannot happen: see lmc_workspace_size. */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    unsigned p;
    sample->n_block = n;
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    for (p = 0; p < width; p++)
        if ((sample->planes.row[p] = lmc__push_list(&e->stack, sample->n)) == NULL) return 0;
    return 1;
}

LMC__INLINE void lmc__fetch_run(const lmc__sample *sample, uint32_t i, const uint8_t *src,
                                unsigned width)
{
    const uint8_t *const run = src + lmc__sample_place(i, sample->n_block) * width;
    const size_t size = LMC__SAMPLE_RUN * width;
    size_t line;
    for (line = 0; line <= size; line += LMC__LINE) LMC__PREFETCH(run + lmc__min(line, size - 1));
}

/* Quarters [first, last) of the sample. Returns the number of elements. */
static size_t lmc__take_sample(const lmc__kernels *k, const lmc__sample *sample, unsigned first,
                               unsigned last, const uint8_t *src, unsigned width, int rotate)
{
    const uint32_t from = LMC__SAMPLE_RUNS / 4 * first, to = LMC__SAMPLE_RUNS / 4 * last;
    uint32_t i;
    unsigned p;
    if (sample->n == sample->n_block) {
        if (first == 0) k->split(&sample->planes, src, sample->n, width, rotate);
        return first == 0 ? sample->n : 0;
    }
    for (i = from; i < from + LMC__SAMPLE_AHEAD; i++) lmc__fetch_run(sample, i, src, width);
    for (i = from; i < to; i++) {
        lmc__planes rows;
        if (i + LMC__SAMPLE_AHEAD < to) lmc__fetch_run(sample, i + LMC__SAMPLE_AHEAD, src, width);
        for (p = 0; p < width; p++) rows.row[p] = sample->planes.row[p] + i * LMC__SAMPLE_RUN;
        k->split(&rows, src + lmc__sample_place(i, sample->n_block) * width, LMC__SAMPLE_RUN, width,
                 rotate);
    }
    return (to - from) * LMC__SAMPLE_RUN;
}

/* LMC_AUTO: width and rotation whose planes have the least order-0 information, by a sample; width
 * 1 if in doubt. */
static void lmc__guess_width(lmc__encoder *e, const uint8_t *src, size_t size, unsigned *width,
                             int *rotate)
{
    uint8_t *const top = e->stack.top;
    uint64_t best = UINT64_MAX;
    unsigned w, p;
    int r;
    for (w = 1; w <= 8; w *= 2) {
        if (size % w) break;
        for (r = 0; r <= (w > 1); r++) {
            uint64_t bits = 0, total;
            lmc__sample sample;
            if (!lmc__begin_sample(e, &sample, size / w, w)) break;
            total = lmc__take_sample(e->k, &sample, 0, 4, src, w, r);
            /* Samples of different size: compare bits per byte of input. A plane that is nearly
             * incompressible counts as raw. */
            for (p = 0; p < w; p++) {
                memset(e->scratch->counts[0], 0, sizeof e->scratch->counts[0]);
                lmc__count_bytes(e->scratch->counts[0], sample.planes.row[p], sample.n);
                bits += lmc__min64(lmc__entropy(e->scratch->counts[0], (uint32_t)total) + 128,
                                   total * 8);
            }
            e->stack.top = top;
            bits = (bits << 10) / (total * w);
            if (bits + (best >> 7) < best) { /* better by a 128th */
                best = bits;
                *width = w;
                *rotate = r;
            }
        }
    }
}
