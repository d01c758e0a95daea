#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"
#include "codec/plan_zeros.h"

/* Chooses how to code each plane of a block without a prediction, by a sample. From level MAX on
 * all bytes of the top plane are counted, because this plane saves most. */

#ifndef LMC_NO_ENCODER
/* The counts of the top plane of all elements. All planes are split, which is faster than to pick
 * the top bytes one by one. NULL if there is no room, which cannot happen (workspace.h). */
static const uint32_t *lmc__count_top(lmc__encoder *e, const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__planes planes;
    const uint32_t *counts;
    if (!lmc__push_planes(e, &planes, block->n, block->width)) return NULL;
    e->k->split(&planes, block->src, block->n, block->width, block->own);
    counts = lmc__count_list(e, planes.row[block->width - 1], block->n);
    e->stack.top = top;
    return counts;
}

/* Bytes of fp8 and int8 have some 200 symbols, for which a usual sample is too small. From this
 * size on, a block of bytes has a *long sample*: an eighth of the block, but at least 16384. */
#define LMC__LONG_SAMPLE_FROM ((size_t)1 << 15)

/* Counts the long sample of a block of bytes instead of what was counted. Returns its size, or 0 if
 * there is no room. Its runs begin where those of the usual sample do. They are at most half a step
 * long: the last one begins in the first half of its step, so it ends within the block. */
static uint32_t lmc__count_long_sample(lmc__encoder *e, uint32_t counts[256],
                                       const lmc__block *block)
{
    const size_t step = block->n / LMC__SAMPLE_RUNS, run = step < 1024 ? 128 : step / 8,
                 total = run * LMC__SAMPLE_RUNS;
    uint8_t *const top = e->stack.top, *const sample = lmc__push_list(&e->stack, total);
    if (!sample) return 0;
    lmc__gather_runs(sample, block->src, block->n, 1, run, 0, 4);
    e->stack.top = top;
    memset(counts, 0, 256 * sizeof *counts);
    lmc__count_bytes(counts, sample, total);
    return (uint32_t)total;
}

/* A sample of weights has as many negative as positive elements, but for chance. If its counts say
 * so, those of a number and of its negation are added up, which is as good as a sample of twice the
 * size. Counts a and b differ by chance if (a - b)^2 / (a + b) is about 1 in the mean of all pairs;
 * 3/2 is allowed. Returns the new total. */
static uint32_t lmc__fold_signs(uint32_t counts[256], enum lmc__order order, uint32_t total)
{
    const int is_float = order == LMC__ORDER_FLOAT; /* else two's complement */
    uint64_t chi = 0;                               /* in 1/16 */
    unsigned s, pairs = 0;
    for (s = 1; s < 128; s++) {
        const uint64_t a = counts[s], b = counts[is_float ? 128 + s : 256 - s];
        if (a + b == 0) continue;
        chi += (a - b) * (a - b) * 16 / (a + b);
        pairs++;
    }
    if (chi > pairs * (uint64_t)24) return total;
    counts[0] *= 2;
    counts[128] *= 2;
    for (s = 1; s < 128; s++) {
        const unsigned negative = is_float ? 128 + s : 256 - s;
        counts[s] = counts[negative] = counts[s] + counts[negative];
    }
    return 2 * total;
}

/* The first part of a sample is enough for planes with up to this number of symbols. */
#define LMC__FIRST_PART_BELOW 32u

/* Chooses by as little of a sample as possible. One quarter is enough to find most raw planes, and
 * the first part for planes of few symbols. The second part is used only if some plane needs it.
 * The parts are halves of the sample; at level FAST quarters. Returns 0 if there is no room.
 *
 *     split quarters 0, 1 -> count quarter 0 -> raw?  enough
 *                         -> count quarter 1 -> up to 32 symbols?  enough
 *     split quarters 2, 3 -> count both, of planes with more symbols; the long sample of bytes
 *
 * A block of up to 8192 elements is counted as a whole, as the first quarter. The same counts find
 * whether there are zeros: then the first quarter says whether they are coded apart. */
static int lmc__choose_by_sample(lmc__encoder *e, enum lmc__choice choice[8], int *zeros_apart,
                                 const lmc__block *block)
{
    const unsigned width = block->width, sampled = lmc__get_effort(block->level)->sample,
                   part = sampled ? sampled / 2 : 2; /* quarters in each part */
    const size_t n = block->n;
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, first, all;
    unsigned p, wants_all = 0; /* a bit for each plane */
    const int may_be_long = width == 1 && n >= LMC__LONG_SAMPLE_FROM && sampled == 4;
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    first = lmc__take_sample(e->k, &sample, 0, part, block->src, n, width, block->own);
    quarter = sample.n < n ? first / part : first;
    for (p = 0; p < width; p++) {
        e->scratch->plans[p].bits = 8 * (uint64_t)n;
        lmc__count_bytes(counts[p], sample.planes.row[p], quarter);
        choice[p] =
            lmc__is_raw(counts[p], (uint32_t)quarter, 7) ? LMC__CHOOSE_RAW : LMC__CHOOSE_TREE;
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        lmc__count_bytes(counts[p], sample.planes.row[p] + quarter, first - quarter);
        if (lmc__count_symbols(counts[p]) > LMC__FIRST_PART_BELOW) wants_all |= 1u << p;
    }
    *zeros_apart = !(block->without & LMC_FEATURE_ZEROS) && width > 1 &&
                   counts[width - 1][0] > quarter / LMC__ZEROS_ONE_IN &&
                   lmc__are_zeros_worth(e, &sample.planes, quarter, block);
    all = first;
    if (wants_all && !may_be_long && !*zeros_apart)
        all += lmc__take_sample(e->k, &sample, part, 2 * part, block->src, n, width, block->own);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        uint32_t total = (uint32_t)(has_all ? all : first);
        if (choice[p] == LMC__CHOOSE_RAW || *zeros_apart) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + first, all - first);
        if (has_all && may_be_long) {
            if ((total = lmc__count_long_sample(e, counts[p], block)) == 0) return 0;
            if (2 * (size_t)total < n) total = lmc__fold_signs(counts[p], block->order, total);
        }
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p], total, n, e->worth);
    }
    e->stack.top = top;
    return 1;
}

/* Sets choice[p] for each plane, and e->scratch->plans[p] for trees; or *zeros_apart. Returns 0
 * without room. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], int *zeros_apart,
                              const lmc__block *block)
{
    const unsigned top = block->width - 1;
    const uint32_t *counts;
    if (!lmc__choose_by_sample(e, choice, zeros_apart, block)) return 0;
    if (*zeros_apart || lmc__get_effort(block->level)->sample) return 1;
    counts = lmc__count_top(e, block);
    if (!counts) return 0;
    choice[top] =
        lmc__choose_plane(&e->scratch->plans[top], counts, (uint32_t)block->n, block->n, e->worth);
    return 1;
}
#endif /* LMC_NO_ENCODER */
