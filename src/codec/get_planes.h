#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/strip.h"
#include "codec/workspace.h"
#include "codec/get_list.h"

/* Decodes the payload of a block without a prediction (spec 5.1), which put_planes.h writes. First
 * all planes are decoded to rows. Then one pass (the kernel join_root) joins the planes to
 * elements, does the last merge of one tree, and computes the CRC:
 *     plane 0 .. w-2 ---------------------> row, in the payload if the plane is raw \
 *     plane w-1 -> sides of the root ----------------------------> merge in strips -> join -> dst
 *                                                                                        +-> CRC
 *
 * So no plane of bf16 is written as a whole to memory if the lower is raw and the upper a tree.
 *
 * dst is written when all of the payload is decoded: only a wrong CRC is found after that.
 *
 * join_root merges the block's last tree; encoders use it for the top plane. Other roots' masks
 * stay on the stack: at most w - 1 masks of n / 8 bytes, for which workspace.h counts a row. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       enum lmc__order order, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    lmc__join_source source = {&planes, NULL, width, order};
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL; /* no root yet */
    for (p = 0; p < width; p++) {
        lmc__side side;
        LMC__TRY(lmc__begin_list(d, &side, spare, n, 0, &root));
        if (root.mask && side.list == root.row) root.plane = p;
        planes.row[p] = lmc__row_of(d, &side, n);
        LMC__CHECK(planes.row[p], LMC_ERR_WORKSPACE);
    }
    LMC__VALID(d->in == d->end);
    if (root.mask) source.root = &root;
    *crc = d->k->join_root(d->k, dst, source, n, d->streaming);
    return LMC_OK;
}
