#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/plan.h"

#ifndef LMC_NO_ENCODER
/* Samples of blocks, for the encoder's choices. A block of up to 8192 elements is its own sample.
 * Other blocks are cut into 128 equal *steps*. A sample has a *run* of 64 neighbours from each
 * step, as a cache line is fetched as a whole. The place of a run in its step varies: else, if a
 * matrix has rows of 2^k elements, all runs would be in the same columns. The places depend only on
 * the block's size, so that the encoded bytes depend only on the input. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

typedef struct lmc__block {
    const uint8_t *src;  /* n elements of width bytes */
    const uint8_t *base; /* their prediction; or NULL */
    size_t n;
    unsigned width;
    enum lmc__order order, own; /* with and without a prediction (see dtypes.h) */
    enum lmc_level level;
    uint64_t *sum;       /* gets the elements' sum64 if they are coded as planes; or NULL */
    int may_group;       /* 0: Grouping must be 0 (see is_ungrouped in job.h) */
    uint64_t without;    /* see job.h */
    size_t n_columns;    /* of the matrix that src is a part of; 0: there is none */
    size_t first_column; /* of src */
} lmc__block;

/* Sets what follows from src and the dtype. */
static void lmc__set_block(lmc__block *block, const uint8_t *src, size_t size, enum lmc_dtype dtype)
{
    memset(block, 0, sizeof *block);
    block->src = src;
    block->width = lmc_dtype_width(dtype);
    block->n = size / block->width;
    block->order = lmc__order_of(dtype, 0);
    block->own = lmc__order_of(dtype, 1);
}

/* The element where run i of the sample starts, for n > 8192. Runs are numbered so that each
 * quarter of them is a sample of the whole block: steps 0, 4, 8 ..., then 1, 5, 9 ..., and so on.
 *
 *     block   |  step 0   |  step 1   |  step 2   |  step 3   | ...     128 steps of n / 128
 *     runs    | [0]       |     [32]  |  [64]     |       [96]| ...     of 64 elements each
 *
 * A run starts at most `free` elements behind its step's start, so it ends in the same step. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step * 2^32 / golden ratio: the top bits of such multiples are spread evenly (Knuth, vol. 3,
     * 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* The n > 8192 elements at src have a sample. Copies its quarters [first, last) to dst, but only
 * `run` elements of each run. Runs are prefetched: the hardware does not expect their places. */
#define LMC__SAMPLE_AHEAD 16u
static void lmc__gather_runs(uint8_t *dst, const uint8_t *src, size_t n, unsigned width, size_t run,
                             unsigned first, unsigned last)
{
    const uint32_t to = LMC__SAMPLE_RUNS / 4 * last;
    const size_t size = run * width;
    uint32_t i, ahead = LMC__SAMPLE_RUNS / 4 * first;
    size_t line;
    for (i = ahead; i < to; i++) {
        for (; ahead < to && ahead <= i + LMC__SAMPLE_AHEAD; ahead++) {
            const uint8_t *const next = src + lmc__sample_place(ahead, n) * width;
            for (line = 0; line < size; line += LMC__LINE) LMC__PREFETCH(next + line);
            LMC__PREFETCH(next + size - 1); /* a run may begin within a line */
        }
        memcpy(dst, src + lmc__sample_place(i, n) * width, size);
        dst += size;
    }
}

/* The planes of a sample. The caller pops its lists from the stack when they are counted. */
typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    uint8_t *room;      /* for its elements; NULL if the sample is the whole block */
    size_t n;           /* its elements */
} lmc__sample;

/* Pushes a list of n bytes for each of `width` planes. Returns 0 if there is no room, which cannot
 * happen (workspace.h). */
static int lmc__push_planes(lmc__encoder *e, lmc__planes *planes, size_t n, unsigned width)
{
    unsigned p;
    for (p = 0; p < width; p++)
        if ((planes->row[p] = lmc__push_list(&e->stack, n)) == NULL) return 0;
    return 1;
}

/* Pushes the lists for a sample of a block of n elements. Returns 0 if there is no room. */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    sample->room = n > sample->n ? lmc__push_list(&e->stack, sample->n * width) : NULL;
    return (n <= sample->n || sample->room) &&
           lmc__push_planes(e, &sample->planes, sample->n, width);
}

/* Splits quarters [first, last) of the sample of n elements at src into its planes: run i goes to
 * elements [64 i, 64 i + 64) of each list. Returns the number of elements. If the sample is the
 * whole block, all of it is the first quarter. */
static size_t lmc__take_sample(const lmc__kernels *k, const lmc__sample *sample, unsigned first,
                               unsigned last, const uint8_t *src, size_t n, unsigned width,
                               enum lmc__order own)
{
    const size_t at = LMC__SAMPLE_SIZE / 4 * first, part = LMC__SAMPLE_SIZE / 4 * (last - first);
    lmc__planes rows;
    unsigned p;
    if (!sample->room) {
        if (first == 0) k->split(&sample->planes, src, n, width, own);
        return first == 0 ? n : 0;
    }
    lmc__gather_runs(sample->room, src, n, width, LMC__SAMPLE_RUN, first, last);
    for (p = 0; p < width; p++) rows.row[p] = sample->planes.row[p] + at;
    k->split(&rows, sample->room, part, width, own);
    return part;
}

/* The counts of a list of n bytes, in e->scratch->counts[0]. */
static const uint32_t *lmc__count_list(lmc__encoder *e, const uint8_t *list, size_t n)
{
    uint32_t *const counts = e->scratch->counts[0];
    memset(counts, 0, sizeof e->scratch->counts[0]);
    lmc__count_bytes(counts, list, n);
    return counts;
}

/* Chooses how to code a list of n bytes. It counts only `quarters` quarters of a sample, or the
 * whole list if quarters is 0 or the list is short (at most 2 * LMC__SAMPLE_SIZE). */
static enum lmc__choice lmc__choose_list(lmc__encoder *e, lmc__plan *plan, const uint8_t *list,
                                         size_t n, unsigned quarters)
{
    uint8_t *const top = e->stack.top, *sample = NULL;
    const uint32_t *counts;
    enum lmc__choice choice;
    size_t total = n;
    if (quarters && n > 2 * LMC__SAMPLE_SIZE) sample = lmc__push_list(&e->stack, LMC__SAMPLE_SIZE);
    if (sample) {
        lmc__gather_runs(sample, list, n, 1, LMC__SAMPLE_RUN, 0, quarters);
        total = LMC__SAMPLE_SIZE / 4 * quarters;
    }
    counts = lmc__count_list(e, sample ? sample : list, total);
    e->stack.top = top;
    choice = lmc__choose_plane(plan, counts, (uint32_t)total, n, e->worth);
    if (choice == LMC__CHOOSE_TREE && plan->bits >= 8 * (uint64_t)n)
        choice = LMC__CHOOSE_RAW; /* because of the tree's header, if the list is short */
    return choice;
}

/* Splits a sample of src with this width and order, and returns its order-0 entropy, in 1/1024 bit
 * per byte. A plane is counted with 128 bits more than its entropy, but at most with its raw size,
 * so that chance does not decide between planes that hardly compress. UINT64_MAX if there is no
 * room, which cannot happen. */
static uint64_t lmc__try_elements(lmc__encoder *e, const uint8_t *src, size_t size, unsigned width,
                                  enum lmc__order order)
{
    uint8_t *const top = e->stack.top;
    uint64_t bits = 0, total;
    lmc__sample sample;
    unsigned p;
    if (!lmc__begin_sample(e, &sample, size / width, width)) return UINT64_MAX;
    total = lmc__take_sample(e->k, &sample, 0, 4, src, size / width, width, order);
    for (p = 0; p < width; p++) {
        const uint32_t *const counts = lmc__count_list(e, sample.planes.row[p], sample.n);
        bits += lmc__min64(lmc__entropy(counts, (uint32_t)total) + 128, total * 8);
    }
    e->stack.top = top;
    return (bits << 10) / (total * width);
}

/* For LMC_AUTO: sets the width and orders whose planes have the least order-0 entropy in a sample.
 * A larger width is chosen only if it is better by a 128th, because a width that is too large costs
 * more than one that is too small. The order of integers is tried only for the best width. */
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
