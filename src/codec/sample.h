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
 * each, for a cache line is fetched whole anyway. Where in its step a run lies changes from one to
 * the next, or all runs of a matrix whose rows have a power of two elements would lie in the same
 * columns. It is the same for every block of a size: bytes depend on the input only. */
#define LMC__SAMPLE_RUN 64u
#define LMC__SAMPLE_RUNS 128u
#define LMC__SAMPLE_SIZE (LMC__SAMPLE_RUN * LMC__SAMPLE_RUNS)

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
 * A run starts at most `free` elements behind its step's begin, so it does not leave it. */
LMC__INLINE size_t lmc__sample_place(uint32_t i, size_t n)
{
    const uint32_t quarter = LMC__SAMPLE_RUNS / 4, step = i % quarter * 4 + i / quarter;
    /* step times 2^32 over the golden ratio: the top bits of its multiples are spread evenly
     * (Knuth, vol. 3, 6.4) */
    const uint64_t fraction = step * 2654435769u >> 16,
                   free = n / LMC__SAMPLE_RUNS - LMC__SAMPLE_RUN;
    return (size_t)((uint64_t)n * step / LMC__SAMPLE_RUNS + (free * fraction >> 16));
}

/* Copies quarters [first, last) of the sample of n > 8192 elements at src, of each of its runs
 * `run` elements, to dst, one behind another. Runs are fetched ahead, at most the 32 of a quarter:
 * they lie where no hardware expects them. */
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

/* The planes of a sample. The caller owns its lists, and pops them when they are counted. */
typedef struct lmc__sample {
    lmc__planes planes; /* lists on the stack */
    uint8_t *room;      /* for its elements, where they are not the block's */
    size_t n;           /* elements of them */
} lmc__sample;

/* Lists of n for `width` planes. Returns 0 if there is no room, which cannot happen
 * (workspace.h). */
static int lmc__push_planes(lmc__encoder *e, lmc__planes *planes, size_t n, unsigned width)
{
    unsigned p;
    for (p = 0; p < width; p++)
        if ((planes->row[p] = lmc__push_list(&e->stack, n)) == NULL) return 0;
    return 1;
}

/* A sample of a block of n elements. Returns 0 as above. */
static int lmc__begin_sample(lmc__encoder *e, lmc__sample *sample, size_t n, unsigned width)
{
    sample->n = lmc__min(n, LMC__SAMPLE_SIZE);
    sample->room = n > sample->n ? lmc__push_list(&e->stack, sample->n * width) : NULL;
    return (n <= sample->n || sample->room) &&
           lmc__push_planes(e, &sample->planes, sample->n, width);
}

/* Splits quarters [first, last) of the sample of n elements at src into its planes: run i goes to
 * elements [64 i, 64 i + 64) of each list. Returns how many elements that are. Where the sample is
 * the whole block, all of it belongs to the first quarter. */
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

/* How to code a list of n bytes: by some quarters of a sample of it, gathered to one place, or with
 * 0 by all of it. For lists that have no sample of their own. */
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
        choice = LMC__CHOOSE_RAW; /* a short list, by the size of the tree's header */
    return choice;
}

/* The order-0 information of the planes of size bytes, in a sample, as elements of this width and
 * order: bits per byte, in 1/1024. A plane is taken for 128 bits more than its entropy, and for raw
 * at most, so that the luck of all but incompressible planes does not decide. UINT64_MAX if there
 * is no room, which cannot happen. */
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
