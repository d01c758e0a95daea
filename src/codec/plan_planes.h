#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"

/* How to code each plane of a block without a prediction, and whether to code the two top planes
 * jointly (spec 7.4). Everything is decided from a sample, before a byte is written; only from
 * level max on all of the top plane is counted, where there is most to gain, and only level archive
 * joins planes: their trees have five times as many leaves.
 *
 * Joint coding. A plane is a byte, a cut that the data does not know: of a rotated bf16 element,
 * the top plane is the exponent, the lower one mantissa and sign, which look like noise. But in the
 * highest octaves of a bell curve, low mantissas are more frequent than high ones. So one or two of
 * the lower plane's top bits are moved into the top plane's symbols, which then have 9 or 10 bits,
 *
 *         top plane      plane below                symbols           rest
 *         e7 ..... e0    m6 m5 m4 .. m0 s    ->     e7 .. e0 m6 m5    m4 .. m0 s
 *
 * and are coded as bytes less an offset, for no more than 256 neighbouring values of them occur in
 * real blocks. The rest is packed without the gaps. The price is a larger tree, and a decoder that
 * puts the planes together again. */

#ifndef LMC_NO_ENCODER
/* counts[0][v] = number of elements whose 10 top bits, after the rotation, are v. Four tables in
 * turn, as for bytes: one would wait for its own last increment where neighbours are equal. With W
 * bits in an element, they are its bits W-2 to W-11 if it is rotated, else W-1 to W-10: all of them
 * in its two top bytes, as they are before the rotation. */
static void lmc__count_wide(uint32_t counts[4][1024], const lmc__block *block)
{
    const unsigned width = block->width, shift = block->rotate ? 5 : 6;
    const uint8_t *top = block->src + width - 2;
    size_t i;
    memset(counts, 0, 4 * sizeof counts[0]);
    for (i = 0; i + 4 <= block->n; i += 4, top += 4 * width) {
        counts[0][lmc__load16(top) >> shift & 1023]++;
        counts[1][lmc__load16(top + width) >> shift & 1023]++;
        counts[2][lmc__load16(top + 2 * width) >> shift & 1023]++;
        counts[3][lmc__load16(top + 3 * width) >> shift & 1023]++;
    }
    for (; i < block->n; i++, top += width) counts[0][lmc__load16(top) >> shift & 1023]++;
    for (i = 0; i < 1024; i++) counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
}

/* From the counts of 10 bits those of the top 8 + joined_bits bits, less *offset: the lowest value
 * that occurs (0 if joined_bits is 0). Returns 0 if they are not within 256 of it. One pass over
 * the elements so gives the counts for 0, 1 and 2 bits more.
 *
 * With joined_bits = 0 it cannot fail. */
static int lmc__narrow_counts(uint32_t counts[256], unsigned *offset, const uint32_t wide[1024],
                              unsigned joined_bits)
{
    const unsigned shift = 2 - joined_bits;
    unsigned v, first = 0;
    memset(counts, 0, 256 * sizeof counts[0]);
    if (joined_bits)
        while (wide[first] == 0) first++;
    first >>= shift;
    *offset = first;
    for (v = first << shift; v < 1024; v++) {
        if (wide[v] == 0) continue;
        if ((v >> shift) - first >= 256) return 0;
        counts[(v >> shift) - first] += wide[v];
    }
    return 1;
}

/* Joint coding, where it takes fewer bits than the plans for the two planes say: then it replaces
 * both. scratch->wide: of lmc__count_wide.
 *
 * The symbols of all n elements were counted, so the tree needs no escape for what a sample missed,
 * and its size is known, but for rounding to bytes and for what nesting saves. If values of 9 bits
 * do not lie within 256, those of 10 do not either: hence the return. */
static void lmc__choose_joint(lmc__joint *joint, enum lmc__choice choice[8], lmc__scratch *scratch,
                              size_t n, unsigned width, uint32_t worth)
{
    const unsigned top = width - 1;
    uint64_t best = scratch->plans[top].bits + scratch->plans[top - 1].bits;
    unsigned joined_bits, offset;
    for (joined_bits = 1; joined_bits <= 2; joined_bits++) {
        lmc__plan *const plan = &scratch->joint_plan;
        uint64_t bits;
        if (!lmc__narrow_counts(scratch->counts[top], &offset, scratch->wide[0], joined_bits))
            return;
        if (lmc__choose_plane(plan, scratch->counts[top], (uint32_t)n, n, worth) !=
            LMC__CHOOSE_TREE)
            continue;
        bits = plan->bits + (8 - joined_bits) * (uint64_t)n;
        if (bits >= best) continue;
        /* The tree must fit in n bytes, for the rest alone says nothing and cannot fall back on
         * raw: with a header, and two bytes for each leaf, for a mask's mode and the last of its
         * bits. Else blocks of some hundred elements could end up stored. */
        if (plan->bits + 8 * (3 + 2 * (uint64_t)(plan->last - plan->first + 2)) > 8 * (uint64_t)n)
            continue;
        best = bits;
        lmc__set_joint(joint, joined_bits, offset, n);
        scratch->plans[top] = *plan;
        choice[top] = LMC__CHOOSE_TREE;
        choice[top - 1] = LMC__CHOOSE_PACKED;
    }
}

/* The first part of a sample is enough for so many different bytes: the codes of more depend on
 * luck. */
#define LMC__FIRST_PART_BELOW 32u

/* By as much of a sample as it takes: a quarter tells most raw planes, the first part is enough for
 * planes of few symbols, and the other part is taken only if some plane wants it. The parts are
 * halves of the sample; at level fast quarters, and half of it is never looked at. Returns 0 if
 * there is no room, which cannot happen (see workspace.h).
 *
 *     split quarters 0, 1 -> count quarter 0 -> raw?  done with the plane
 *                         -> count quarter 1 -> up to 32 symbols?  enough
 *     split quarters 2, 3 -> count both, of planes with more symbols
 *
 * A block of up to 8192 elements is all in the first quarter, and counted whole. */
static int lmc__choose_by_sample(lmc__encoder *e, enum lmc__choice choice[8],
                                 const lmc__block *block)
{
    const unsigned width = block->width, sampled = lmc__get_effort(block->level)->sample,
                   part = sampled ? sampled / 2 : 2; /* quarters of it */
    const size_t n = block->n;
    uint8_t *const top = e->stack.top;
    uint32_t(*const counts)[256] = e->scratch->counts;
    lmc__sample sample;
    size_t quarter, first, all;
    unsigned p, wants_all = 0; /* a bit for each plane */
    if (!lmc__begin_sample(e, &sample, n, width)) return 0;
    memset(counts, 0, width * sizeof counts[0]);
    first = lmc__take_sample(e->k, &sample, 0, part, block->src, width, block->rotate);
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
        all += lmc__take_sample(e->k, &sample, part, 2 * part, block->src, width, block->rotate);
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

/* How to code each plane: choice[p], and e->scratch->plans[p] where that is a tree.
 * joint->joined_bits is 0 before, and stays so where planes are coded each by itself. Returns 0 as
 * above. */
static int lmc__choose_planes(lmc__encoder *e, enum lmc__choice choice[8], const lmc__block *block,
                              lmc__joint *joint)
{
    const unsigned top = block->width - 1;
    uint32_t *const counts = e->scratch->counts[top];
    const lmc__effort *const effort = lmc__get_effort(block->level);
    if (!lmc__choose_by_sample(e, choice, block)) return 0;
    if (effort->sample) return 1;
    if (block->width == 1) { /* elements of one byte are not rotated */
        memset(counts, 0, sizeof e->scratch->counts[0]);
        lmc__count_bytes(counts, block->src, block->n);
    } else {
        lmc__count_wide(e->scratch->wide, block);
        lmc__narrow_counts(counts, &joint->offset, e->scratch->wide[0], 0);
    }
    choice[top] =
        lmc__choose_plane(&e->scratch->plans[top], counts, (uint32_t)block->n, block->n, e->worth);
    if (block->width > 1 && effort->is_joint)
        lmc__choose_joint(joint, choice, e->scratch, block->n, block->width, e->worth);
    return 1;
}
#endif /* LMC_NO_ENCODER */
