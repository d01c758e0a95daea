#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"

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

/* The first part of a sample is enough for planes with up to this number of symbols. */
#define LMC__FIRST_PART_BELOW 32u

/* Chooses by as little of a sample as possible. One quarter is enough to find most raw planes, and
 * the first part for planes of few symbols. The second part is used only if some plane needs it.
 * The parts are halves of the sample; at level FAST quarters. Returns 0 if there is no room.
 *
 *     split quarters 0, 1 -> count quarter 0 -> raw?  enough
 *                         -> count quarter 1 -> up to 32 symbols?  enough
 *     split quarters 2, 3 -> count both, of planes with more symbols
 *
 * A block of up to 8192 elements is counted as a whole, as the first quarter. */
static int lmc__choose_by_sample(lmc__encoder *e, enum lmc__choice choice[8],
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
    all = first;
    if (wants_all)
        all += lmc__take_sample(e->k, &sample, part, 2 * part, block->src, n, width, block->own);
    for (p = 0; p < width; p++) {
        const int has_all = (int)(wants_all >> p & 1);
        if (choice[p] == LMC__CHOOSE_RAW) continue;
        if (has_all) lmc__count_bytes(counts[p], sample.planes.row[p] + first, all - first);
        choice[p] = lmc__choose_plane(&e->scratch->plans[p], counts[p],
                                      (uint32_t)(has_all ? all : first), n, e->worth);
    }
    e->stack.top = top;
    return 1;
}

/* Sets choice[p] for each plane, and e->scratch->plans[p] for trees. Returns 0 without room. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], const lmc__block *block)
{
    const unsigned top = block->width - 1;
    const uint32_t *counts;
    if (!lmc__choose_by_sample(e, choice, block)) return 0;
    if (lmc__get_effort(block->level)->sample) return 1;
    counts = lmc__count_top(e, block);
    if (!counts) return 0;
    choice[top] =
        lmc__choose_plane(&e->scratch->plans[top], counts, (uint32_t)block->n, block->n, e->worth);
    return 1;
}
#endif /* LMC_NO_ENCODER */
