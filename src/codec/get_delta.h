#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "kernels/classes.h"
#include "codec/workspace.h"
#include "codec/block_header.h"
#include "codec/get_list.h"
#include "codec/get_sparse.h"

/* Decodes the payload of a block with a prediction (spec 5.2), which put_delta.h writes.
 *
 *     payload   | thresholds | masks, if sparse | natural planes | class 0: lists | class 1 | ...
 *               |   C - 1    | one per class    |   n bytes each | plane Natural .. w-1     |
 *
 * The prediction is read twice. First the kernel count_classes counts the elements of each class,
 * which says how long the lists of the class are. Then the kernel ungroup takes each element's
 * residual from the lists of its class and adds it to the prediction. It reads an element of the
 * prediction before it writes to the same place, so the output may be the prediction itself. */

/* What has been decoded of a payload. Masks and sides are in the payload or on the stack, so they
 * are valid until the block is done. Natural planes are sides of class 0, with n elements. */
typedef struct lmc__grouped_payload {
    lmc__grouping grouping;
    size_t n_of[LMC__MAX_CLASSES];          /* elements of each class */
    const uint8_t *masks[LMC__MAX_CLASSES]; /* sparse: which elements are coded; unset if n_of is
                                               0 */
    int sparse;
    uint8_t *tally; /* sparse: a table from count_classes for the kernel patch */
    lmc__class_sides sides;
} lmc__grouped_payload;

/* Reads the thresholds and counts the elements of each class. header: the header's Grouping.
 * Thresholds ascend strictly from 1 on: so each class has a key, and each grouping one form. */
static enum lmc_status lmc__get_grouping(lmc__decoder *d, lmc__grouped_payload *g,
                                         const uint8_t *base, const lmc_block_info *info,
                                         unsigned header)
{
    lmc__grouping *const grouping = &g->grouping;
    const size_t n = info->n;
    const uint8_t *thresholds;
    unsigned c;
    g->sparse = (header & LMC__SPARSE) != 0;
    grouping->n_natural = header >> LMC__NATURAL_SHIFT;
    grouping->n_classes = lmc__count_classes_of(header);
    thresholds = lmc__take(d, grouping->n_classes - 1);
    LMC__VALID(thresholds);
    for (c = 0; c + 1 < grouping->n_classes; c++) {
        LMC__VALID(thresholds[c] > (c ? thresholds[c - 1] : 0));
        grouping->threshold[c] = thresholds[c];
    }
    g->n_of[0] = n;
    g->tally = NULL;
    if (g->sparse) {
        g->tally = lmc__push_list(&d->stack, (grouping->n_classes - 1) * lmc__tally_row(n));
        LMC__CHECK(g->tally, LMC_ERR_WORKSPACE);
    }
    if (grouping->n_classes > 1)
        d->k->count_classes(g->n_of, base, n, info->width, grouping, g->tally);
    return LMC_OK;
}

/* Reads a list of class c, of which n_coded elements are coded, as a side of n_of[c] elements.
 * Elements that a sparse block leaves out are zeros: the class's mask says where. */
static enum lmc_status lmc__get_class_side(lmc__decoder *d, const lmc__grouped_payload *g,
                                           unsigned c, size_t n_coded, uint8_t *spare,
                                           lmc__side *side)
{
    const size_t n = g->n_of[c];
    lmc__side zero, coded;
    uint8_t *list, *top;
    side->list = zero.list = NULL;
    side->value = zero.value = 0;
    if (n_coded == 0) return LMC_OK;
    if (n_coded == n) return lmc__get_list(d, side, spare, n);
    list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    top = d->stack.top;
    LMC__TRY(lmc__get_list(d, &coded, spare, n_coded));
    d->k->merge(list, g->masks[c], n, zero, coded);
    d->stack.top = top;
    side->list = list;
    return LMC_OK;
}

/* Decodes the payload after the thresholds, then the elements. All lists are decoded before dst is
 * written, so dst is unchanged if the payload has errors. */
static enum lmc_status lmc__get_grouped(lmc__decoder *d, uint8_t *dst,
                                        const lmc__delta_block *block, lmc__grouped_payload *g,
                                        uint8_t *spare, uint32_t *crc)
{
    unsigned c, p;
    for (c = 0; c < g->grouping.n_classes && g->sparse; c++)
        if (g->n_of[c]) LMC__TRY(lmc__get_mask(d, 0, 1, g->n_of[c], &g->masks[c]));
    for (p = 0; p < g->grouping.n_natural; p++) {
        g->sides.side[0][p].list = lmc__take(d, block->n);
        LMC__VALID(g->sides.side[0][p].list);
    }
    for (c = 0; c < g->grouping.n_classes; c++) {
        const size_t n_of = g->n_of[c],
                     n_coded =
                         g->sparse && n_of ? d->k->count_ones(g->masks[c], (n_of + 7) / 8) : n_of;
        for (p = g->grouping.n_natural; p < block->width; p++)
            LMC__TRY(lmc__get_class_side(d, g, c, n_coded, spare, &g->sides.side[c][p]));
    }
    LMC__VALID(d->in == d->end);
    LMC__TRY(lmc__keep(d, dst, block->base, block->n * block->width));
    *crc = d->k->ungroup(d->k, dst, &g->sides, block, d->streaming);
    return LMC_OK;
}

/* base: info->size bytes; may be dst. order and header: Order and Grouping of the block's header. A
 * sparse block in which few elements are coded is decoded by get_sparse.h. */
static enum lmc_status lmc__get_delta(lmc__decoder *d, uint8_t *dst, const uint8_t *base,
                                      const lmc_block_info *info, enum lmc__order order,
                                      unsigned header, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, info->n);
    lmc__grouped_payload g;
    const lmc__delta_block block = {base, info->n, info->width, order, &g.grouping};
    int done = 0;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_grouping(d, &g, base, info, header));
    if (g.sparse) LMC__TRY(lmc__get_sparse(d, dst, &block, g.n_of, g.tally, spare, crc, &done));
    if (done) return LMC_OK;
    d->stack.top = spare + info->n + LMC__PAD; /* frees the tally */
    return lmc__get_grouped(d, dst, &block, &g, spare, crc);
}
