#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/get_gaps.h"
#include "codec/get_list.h"

/* Decodes a sparse block (spec 5.2) in which few elements are coded. Each class's mask becomes a
 * list of indices, and its planes a list of residuals. The kernel patch applies them.
 *
 * For other sparse blocks, get_delta.h makes whole planes, with zeros between coded elements. */

/* At most n / LMC__SPARSE_SHARE of n elements may be coded here: else get_delta.h is as fast. The
 * limit also bounds the memory (workspace.h). Blocks below LMC__MIN_SPARSE elements gain little. */
#define LMC__SPARSE_SHARE 16u
#define LMC__MIN_SPARSE 4096u

/* The coded elements of a sparse block. n_changed: their number in each class. */
typedef struct lmc__sparse {
    uint32_t *end, *cap; /* where the next index goes; the end of the room for indices */
    lmc__patches changes;
    size_t n_changed[LMC__MAX_CLASSES];
} lmc__sparse;

/* Reads the mask of a class of n elements as indices. *fits: 0 if there is no room for them; then
 * the state of s and d is undefined. */
static enum lmc_status lmc__get_numbers(lmc__decoder *d, lmc__sparse *s, size_t n, int *fits)
{
    const size_t room = (size_t)(s->cap - s->end);
    uint8_t *const top = d->stack.top;
    const uint8_t *mask;
    size_t k;
    if (lmc__has_mode(0, n) && d->in < d->end && *d->in >= LMC__MASK_GAPS) {
        const unsigned mode = *d->in;
        lmc__gaps gaps;
        LMC__VALID(mode < LMC__MASK_MODES);
        LMC__TRY(lmc__open_gaps(&gaps, d->in + 1, d->end, mode, n));
        if (!gaps.polarity) {
            *fits = gaps.k <= room;
            if (!*fits) return LMC_OK;
            LMC__TRY(lmc__get_positions(&gaps, s->end, gaps.k));
            s->end += gaps.k;
            return lmc__close_gaps(&gaps, &d->in);
        }
    }
    LMC__TRY(lmc__get_mask(d, 0, 1, n, &mask));
    k = lmc__list_ones(s->end, room, mask, n, 0);
    d->stack.top = top;
    *fits = k != SIZE_MAX;
    if (*fits) s->end += k;
    return LMC_OK;
}

/* Reads the masks of all classes that are not empty. *fits: as in lmc__get_numbers. The indices of
 * each class end with LMC__NO_CHANGE. */
static enum lmc_status lmc__get_changes(lmc__decoder *d, lmc__sparse *s, const size_t *n_of,
                                        unsigned n_classes, size_t n, int *fits)
{
    const size_t room = n / LMC__SPARSE_SHARE;
    unsigned c;
    *fits = n >= LMC__MIN_SPARSE;
    if (!*fits) return LMC_OK;
    s->end = lmc__push_numbers(&d->stack, room + n_classes);
    LMC__CHECK(s->end, LMC_ERR_WORKSPACE);
    s->cap = s->end + room; /* plus one end mark for each class so far */
    for (c = 0; c < n_classes; c++) {
        s->changes.at[c] = s->end;
        s->n_changed[c] = 0;
        if (n_of[c]) {
            LMC__TRY(lmc__get_numbers(d, s, n_of[c], fits));
            if (!*fits) return LMC_OK;
            s->n_changed[c] = (size_t)(s->end - s->changes.at[c]);
        }
        *s->end++ = LMC__NO_CHANGE;
        s->cap++;
    }
    return LMC_OK;
}

/* Decodes the payload after the thresholds. *fits: 0 if too many elements are coded; then d and dst
 * are unchanged, and lmc__get_delta decodes the block. dst is written only when all was decoded. */
static enum lmc_status lmc__get_sparse(lmc__decoder *d, uint8_t *dst, const lmc__delta_block *block,
                                       const size_t *n_of, const uint8_t *tally, uint8_t *spare,
                                       uint32_t *crc, int *fits)
{
    const unsigned width = block->width, n_classes = block->grouping->n_classes;
    const uint8_t *const in = d->in;
    uint8_t *const top = d->stack.top;
    lmc__const_planes planes;
    lmc__sparse s;
    size_t n_changed = 0;
    unsigned c, p;
    LMC__TRY(lmc__get_changes(d, &s, n_of, n_classes, block->n, fits));
    if (!*fits) {
        d->in = in;
        d->stack.top = top;
        return LMC_OK;
    }
    for (c = 0; c < n_classes; c++) {
        const size_t n = s.n_changed[c];
        uint8_t *const residuals = lmc__push_list(&d->stack, n * width), *const rows = d->stack.top;
        LMC__CHECK(residuals, LMC_ERR_WORKSPACE);
        s.changes.residual[c] = residuals;
        for (p = 0; p < width && n; p++) LMC__TRY(lmc__get_row(d, &planes.row[p], spare, n));
        if (n) d->k->join(residuals, &planes, n, width, LMC__ORDER_NONE);
        d->stack.top = rows; /* frees the planes: they are joined to residuals */
        n_changed += n;
    }
    LMC__VALID(d->in == d->end);
    if (dst == block->base) {
        d->undo.place = lmc__push_numbers(&d->stack, n_changed);
        d->undo.before = lmc__push_list(&d->stack, n_changed * width);
        LMC__CHECK(d->undo.place && d->undo.before, LMC_ERR_WORKSPACE);
    }
    *crc = d->k->patch(d->k, dst, &s.changes, block, tally, dst == block->base ? &d->undo : NULL,
                       d->streaming);
    return LMC_OK;
}
