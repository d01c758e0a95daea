#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/get_list.h"

/* Decodes the payload of a block with zeros apart (spec/zeros.md), which put_zeros.h writes. Each
 * plane is two lists, one for each kind of element. The mask of elements merges them, as a node of
 * a tree merges its sides; so the last merge is left to the kernel join_root, as in get_planes.h.
 *
 * The stack has w rows, the two lists of a plane (a row together) and a spare one: as many as in
 * get_planes.h and one more. dst is written when all of the payload is decoded. */
static enum lmc_status lmc__get_zeros(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                      enum lmc__order order, uint32_t *crc)
{
    const size_t mask_size = (n + 7) / 8;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    const lmc__join_source source = {&planes, &root, width, order};
    size_t n_coded;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_row(d, &root.mask, spare, mask_size));
    LMC__VALID(lmc__is_tail_clear(root.mask, mask_size, n));
    n_coded = d->k->count_ones(root.mask, mask_size);
    for (p = 0; p < width; p++) {
        planes.row[p] = root.row = lmc__push_list(&d->stack, n);
        LMC__CHECK(root.row, LMC_ERR_WORKSPACE);
        root.plane = p;
        root.left.list = root.right.list = NULL;
        root.left.value = root.right.value = 0;
        if (n_coded < n) LMC__TRY(lmc__get_list(d, &root.left, spare, n - n_coded));
        if (n_coded) LMC__TRY(lmc__get_list(d, &root.right, spare, n_coded));
        if (p + 1 == width) break;
        d->k->merge(root.row, root.mask, n, root.left, root.right);
        d->stack.top = root.row + n + LMC__PAD;
    }
    LMC__VALID(d->in == d->end);
    *crc = d->k->join_root(d->k, dst, source, n, d->streaming);
    return LMC_OK;
}
