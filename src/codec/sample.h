#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/plan.h"

#ifndef LMC_NO_ENCODER
/* Samples, from which the encoder learns what a block is like. A block of up to 8192 elements is
 * looked at as a whole. Others are cut into 128 equal steps, and a run of 64 neighbours is taken of
 * each: runs, not single elements, because a cache line is fetched whole anyway. Where in its step
 * a run lies changes from one to the next, or all runs of a matrix whose rows have a power of two
 * elements would lie in the same columns. It is the same for every block of a size: no random
 * numbers, so that the bytes that are written depend on the input only. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

/* What a block is encoded from. */
typedef struct lmc__block {
    const uint8_t *src;  /* n elements of width bytes */
    const uint8_t *base; /* their prediction; or NULL */
    size_t n;
    unsigned width;
    enum lmc__order order, own; /* of residuals, and by themselves (see dtypes.h) */
    enum lmc_level level;
    uint64_t *sum; /* gets the sum64 of the elements, if they are coded in planes; or NULL */
    int may_group; /* against a prediction, by classes or sparse: not in files without a base */
} lmc__block;

/* What follows of the dtype. */
static void lmc__set_block(lmc__block *block, const uint8_t *src, size_t size, enum lmc_dtype dtype)
{
    memset(block, 0, sizeof *block);
    block->src = src;
    block->width = lmc_dtype_width(dtype);
    block->n = size / block->width;
    block->order = lmc__order_of(dtype, 0);
    block->own = lmc__order_of(dtype, 1);
}

/* The element of n > 8192 where run i of the sample starts. Runs are numbered so that every quarter
 * is a sample of the whole block, too: the steps 0, 4, 8 ..., then 1, 5, 9 ..., and so on.
 *
 *     block   |  step 0   |  step 1   |  step 2   |  step 3   | ...     128 steps of n / 128
 *     runs    | [0]       |     [32]  |  [64]     |       [96]| ...     of 64 elements each
 *
 * No run leaves its step: it starts at most `free` elements behind the step's begin, so it ends
 * within the block. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step times 2^32 over the golden ratio: the top bits of its multiples are spread evenly
     * (Knuth, vol. 3, 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* Runs are fetched so many ahead, at most the 32 of a quarter: they lie where no hardware expects
 * them, and each would wait for memory. */
#define LMC__SAMPLE_AHEAD 16u

/* The planes of a sample. Its lists are the caller's, who pops them when they are counted. */
typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    size_t n;           /* elements of them */
    size_t n_block;     /* elements of the block; if they are as many, they are all taken at once */
} lmc__sample;

/* Returns 0 if there is no room, which cannot happen (see workspace.h). */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    unsigned p;
    sample->n_block = n;
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    for (p = 0; p < width; p++)
        if ((sample->planes.row[p] = lmc__push_list(&e->stack, sample->n)) == NULL) return 0;
    return 1;
}

/* Asks for the cache lines of run i, also for the last one if the run does not begin on a
 * border. */
LMC__INLINE void lmc__fetch_run(const lmc__sample *sample, uint32_t i, const uint8_t *src,
                                unsigned width)
{
    const uint8_t *const run = src + lmc__sample_place(i, sample->n_block) * width;
    const size_t size = LMC__SAMPLE_RUN * width;
    size_t line;
    for (line = 0; line <= size; line += LMC__LINE) LMC__PREFETCH(run + lmc__min(line, size - 1));
}

/* Splits quarters [first, last) of the sample into its planes: run i goes to elements [64 i, 64 i +
 * 64) of each list, whatever was taken before. Returns how many elements that are. Two quarters are
 * often enough, so callers take the rest only where it is wanted. Where the sample is the whole
 * block, all of it belongs to the first quarter, and the others are empty. */
static size_t lmc__take_sample(const lmc__kernels *k, const lmc__sample *sample, unsigned first,
                               unsigned last, const uint8_t *src, unsigned width,
                               enum lmc__order own)
{
    const uint32_t from = LMC__SAMPLE_RUNS / 4 * first, to = LMC__SAMPLE_RUNS / 4 * last;
    uint32_t i;
    unsigned p;
    if (sample->n == sample->n_block) {
        if (first == 0) k->split(&sample->planes, src, sample->n, width, own);
        return first == 0 ? sample->n : 0;
    }
    for (i = from; i < from + LMC__SAMPLE_AHEAD; i++) lmc__fetch_run(sample, i, src, width);
    for (i = from; i < to; i++) {
        lmc__planes rows;
        if (i + LMC__SAMPLE_AHEAD < to) lmc__fetch_run(sample, i + LMC__SAMPLE_AHEAD, src, width);
        for (p = 0; p < width; p++) rows.row[p] = sample->planes.row[p] + i * LMC__SAMPLE_RUN;
        k->split(&rows, src + lmc__sample_place(i, sample->n_block) * width, LMC__SAMPLE_RUN, width,
                 own);
    }
    return (to - from) * LMC__SAMPLE_RUN;
}

/* How to code a list of n bytes: by some quarters of a sample of it, or with 0 by all of it. It is
 * gathered to one place first, for counting begins and ends with eight tables.
 *
 * For lists that have no sample of their own: those of classes, whose lengths are known only when
 * they are made, and what a quantised block has. Above 2 * 8192 bytes a sample is cheaper than the
 * list by enough to be worth the copy. */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, unsigned quarters)
{
    uint32_t *const counts = e->scratch->counts[0];
    uint8_t *const top = e->stack.top, *sample = NULL;
    enum lmc__choice choice;
    size_t total = n;
    if (quarters && n > 2 * LMC__SAMPLE_SIZE) sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) {
        uint32_t i;
        for (i = 0; i < LMC__SAMPLE_RUNS / 4 * quarters; i++)
            memcpy(sample + i * LMC__SAMPLE_RUN, list + lmc__sample_place(i, n), LMC__SAMPLE_RUN);
        total = LMC__SAMPLE_SIZE / 4 * quarters;
    }
    memset(counts, 0, sizeof e->scratch->counts[0]);
    lmc__count_bytes(counts, sample ? sample : list, total);
    e->stack.top = top;
    choice = lmc__choose_plane(plan, counts, (uint32_t)total, n, e->worth);
    if (choice == LMC__CHOOSE_TREE && plan->bits >= 8 * (uint64_t)n)
        choice = LMC__CHOOSE_RAW; /* a short list, by the size of the tree's header */
    return choice;
}

/* The order-0 information of the planes of size bytes, in a sample, as elements of this width and
 * order: bits per byte, in 1/1024, since samples of different widths differ in size. A plane is
 * taken for 128 bits more than its entropy, and for raw at most, so that planes which are all but
 * incompressible do not decide by their luck. UINT64_MAX if there is no room, which cannot
 * happen. */
static uint64_t lmc__try_elements(lmc__encoder *e, const uint8_t *src, size_t size, unsigned width,
                                  enum lmc__order order)
{
    uint8_t *const top = e->stack.top;
    uint32_t *const counts = e->scratch->counts[0];
    uint64_t bits = 0, total;
    lmc__sample sample;
    unsigned p;
    if (!lmc__begin_sample(e, &sample, size / width, width)) return UINT64_MAX;
    total = lmc__take_sample(e->k, &sample, 0, 4, src, width, order);
    for (p = 0; p < width; p++) {
        memset(counts, 0, sizeof e->scratch->counts[0]);
        lmc__count_bytes(counts, sample.planes.row[p], sample.n);
        bits += lmc__min64(lmc__entropy(counts, (uint32_t)total) + 128, total * 8);
    }
    e->stack.top = top;
    return (bits << 10) / (total * width);
}

/* LMC_AUTO: sets the width and the orders whose planes have the least order-0 information, in a
 * sample; bytes before. More is chosen only if it is better by a 128th, for a wrong guess costs
 * more than a missed one gains. The order of integers is tried of the best width only. */
static void lmc__guess_width(lmc__encoder *e, lmc__block *block)
{
    static const enum lmc__order orders[] = {LMC__ORDER_NONE, LMC__ORDER_FLOAT};
    const uint8_t *const src = block->src;
    const size_t size = block->n * block->width;
    uint64_t best = UINT64_MAX;
    unsigned w, i;
    for (w = 1; w <= 8 && size % w == 0; w *= 2)
        for (i = 0; i <= (w > 1); i++) {
            const uint64_t bits = lmc__try_elements(e, src, size, w, orders[i]);
            if (bits >= best - (best >> 7)) continue;
            best = bits;
            block->width = w;
            block->own = orders[i];
        }
    w = block->width;
    if (w > 1 && lmc__try_elements(e, src, size, w, LMC__ORDER_INTEGER) < best - (best >> 7))
        block->own = LMC__ORDER_INTEGER;
    block->order = block->own == LMC__ORDER_FLOAT ? LMC__ORDER_FLOAT : LMC__ORDER_INTEGER;
    block->n = size / w;
}
#endif /* LMC_NO_ENCODER */
