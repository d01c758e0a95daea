#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "kernels/classes.h"
#include "kernels/group.h"
#include "kernels/changes.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"
#include "codec/put_list.h"
#include "codec/block_header.h"
#include "codec/plan_delta.h"

/* Writes the payload of a block against its prediction (spec 5.2), in the form that plan_delta.h
 * has chosen. One pass over the elements and the base (the kernel group) computes the residuals,
 * sorts them into classes by the prediction, and splits them:
 *     elements \                                    class 0: plane 0 .. w-1 \
 *               residual -> by the key to ->        class 1: plane 0 .. w-1  } lists, coded
 *     base     /                                    ...                     /  one by one
 *
 * Natural planes are not sorted, and are raw in the payload. In a sparse delta each class has a
 * mask, in which bit i is 1 if its element i has changed, and its lists have only the changed
 * elements. The payload is: thresholds of the classes, masks, natural planes, then class by class
 * the lists of its planes. */

#ifndef LMC_NO_ENCODER
typedef struct lmc__grouped {
    const lmc__block *block;
    const lmc__delta *delta;
    lmc__classes lists;
    uint32_t crc;  /* of the elements that the lists were made from */
    int is_listed; /* from a list of changes; ones: their indices in each class */
    uint32_t *ones[LMC__MAX_CLASSES];
    uint8_t *masks[LMC__MAX_CLASSES]; /* else, in a sparse delta, the masks */
    size_t n_of[LMC__MAX_CLASSES];    /* elements of each class */
    size_t n_coded[LMC__MAX_CLASSES]; /* elements in the lists; the other residuals are zero */
} lmc__grouped;

/* Removes zero residuals from the lists of class c, and sets its mask: bit i is 1 if residual i is
 * kept. Kept residuals move to the front of each list. */
static void lmc__drop_zeros(lmc__grouped *g, unsigned c)
{
    const size_t n = g->n_of[c];
    const unsigned width = g->block->width;
    uint8_t *const mask = g->masks[c], *const *const row = g->lists.row[c];
    size_t i, n_kept = 0;
    unsigned p;
    for (i = 0; i < n; i += 8) {
        const unsigned in_byte = (unsigned)lmc__min(8, n - i);
        uint64_t any = 0;
        unsigned bits = 0;
        for (p = 0; p < width; p++) any |= lmc__load64(row[p] + i);
        if (in_byte < 8) any &= ((uint64_t)1 << 8 * in_byte) - 1; /* not the lists' slack */
        while (any) {
            const unsigned bit = lmc__lowest_bit(any) / 8;
            any &= ~((uint64_t)255 << 8 * bit);
            bits |= 1u << bit;
            for (p = 0; p < width; p++) row[p][n_kept] = row[p][i + bit];
            n_kept++;
        }
        mask[i / 8] = (uint8_t)bits;
    }
    g->n_coded[c] = n_kept;
}

/* 1 if the indices of each class ascend and are below its number of elements. Else the prediction
 * has changed since the changes were listed. */
static int lmc__are_ranks(const lmc__grouped *g)
{
    size_t j;
    unsigned c;
    for (c = 0; c < g->delta->grouping.n_classes; c++) {
        const uint32_t *const ones = g->ones[c];
        for (j = 0; j < g->n_coded[c]; j++)
            if (ones[j] >= g->n_of[c] || (j && ones[j] <= ones[j - 1])) return 0;
    }
    return 1;
}

/* Makes the lists, and the masks of a sparse delta. Natural planes are written to their place in
 * the payload. Sets g->crc. Returns 0 if the prediction has changed: then the classes have other
 * numbers of elements than were counted. */
static int lmc__make_classes(const lmc__kernels *k, lmc__grouped *g)
{
    const lmc__changes *const changes = &g->delta->changes;
    const lmc__block block = g->is_listed ? lmc__changed_block(g->block, changes) : *g->block;
    const lmc__grouping *const grouping = &g->delta->grouping;
    const lmc__delta_block delta = {block.base, block.n, block.width, g->delta->order, grouping};
    unsigned c;
    g->crc = k->group(k, &g->lists, block.src, &delta);
    if (g->is_listed) {
        g->crc = changes->crc;
        return lmc__are_ranks(g);
    }
    for (c = 0; c < grouping->n_classes; c++)
        if (g->lists.n[c] != g->n_of[c]) return 0;
    for (c = 0; c < grouping->n_classes; c++) {
        g->n_coded[c] = g->n_of[c];
        if (g->delta->sparse) lmc__drop_zeros(g, c);
    }
    return 1;
}

/* Pushes the lists of each class, whose elements were counted. Returns 0 if there is no room, which
 * cannot happen (workspace.h). */
static int lmc__push_classes(lmc__encoder *e, lmc__grouped *g)
{
    const lmc__grouping *const grouping = &g->delta->grouping;
    unsigned c, p;
    for (c = 0; c < grouping->n_classes; c++) {
        for (p = grouping->n_natural; p < g->block->width; p++)
            if ((g->lists.row[c][p] =
                     lmc__push_list(&e->stack, g->is_listed ? g->n_coded[c] : g->n_of[c])) == NULL)
                return 0;
        if (g->is_listed) {
            if ((g->ones[c] = lmc__push_numbers(&e->stack, g->n_coded[c])) == NULL) return 0;
        } else if (g->delta->sparse &&
                   (g->masks[c] = lmc__push_list(&e->stack, (g->n_of[c] + 7) / 8)) == NULL)
            return 0;
    }
    return 1;
}

/* Writes one list of a class. If its tree is longer than the list, all lists are made again from
 * the elements; the CRC shows whether the elements are the same. Returns 0 if there is no room, or
 * if elements have changed. */
static int lmc__put_class_list(lmc__encoder *e, lmc__grouped *g, unsigned c, unsigned p,
                               uint8_t *spare)
{
    uint8_t *const row = g->lists.row[c][p];
    const size_t n = g->n_coded[c];
    uint32_t crc;
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(
        e, plan, row, n, g->delta->sparse ? 0 : lmc__get_effort(g->block->level)->sample);
    const enum lmc__put put = lmc__put_planned(e, choice, plan, NULL, row, spare, n);
    if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    crc = g->crc;
    if (!lmc__make_classes(e->k, g) || g->crc != crc) return 0; /* elements have changed */
    return lmc__put_raw(e, row, n);
}

/* Returns the size of the payload; 0 if it is not smaller than the elements, exceeds cap, or if the
 * elements or the prediction have changed meanwhile.
 *
 * A first pass over the prediction counts the elements of each class: this number is the length of
 * its lists. Classes without elements have no mask and no lists; classes without coded elements
 * have no lists. */
static size_t lmc__put_delta(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             const lmc__delta *delta, uint32_t *content_crc)
{
    const lmc__grouping *const grouping = &delta->grouping;
    const unsigned n_classes = grouping->n_classes, n_natural = grouping->n_natural;
    const lmc__changes *const changes = &delta->changes;
    const size_t n = block->n;
    uint8_t *const spare = lmc__push_list(&e->stack, n);
    lmc__grouped g;
    unsigned c, p;
    if (!spare) return 0;
    g.block = block;
    g.delta = delta;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * block->width - 1);
    if (n_classes - 1 + n_natural * n > (size_t)(e->end - e->out)) return 0;
    memcpy(e->out, grouping->threshold, n_classes - 1);
    e->out += n_classes - 1;
    g.is_listed = delta->sparse && changes->list.place;
    if (g.is_listed)
        e->k->count_classes(g.n_coded, changes->list.before, changes->n, block->width, grouping,
                            NULL);
    else e->k->count_classes(g.n_of, block->base, n, block->width, grouping, NULL);
    for (p = 0; p < n_natural; p++)
        g.lists.row[0][p] = e->out + p * n; /* their place in the payload: as such a delta is */
    e->out += n_natural * n;                /* not sparse, there are no masks before them */
    if (!lmc__push_classes(e, &g)) return 0;
    if (g.is_listed)
        e->k->rank_changes(g.n_of, g.ones, block->base, n, block->width, grouping, &changes->list,
                           changes->n);
    if (!lmc__make_classes(e->k, &g)) return 0;
    *content_crc = g.crc;
    for (c = 0; c < n_classes && delta->sparse; c++)
        if (g.n_of[c] &&
            !lmc__put_class_mask(e, g.is_listed ? NULL : g.masks[c], g.is_listed ? g.ones[c] : NULL,
                                 g.n_of[c], g.n_coded[c]))
            return 0;
    for (c = 0; c < n_classes; c++) {
        if (g.n_coded[c] == 0) continue;
        for (p = n_natural; p < block->width; p++)
            if (!lmc__put_class_list(e, &g, c, p, spare)) return 0;
    }
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */
