#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/strip.h"
#include "codec/workspace.h"
#include "codec/get_list.h"

/* The payload of a block without a prediction and without classes (spec 5.1): put_planes.h
 * backwards. The rows of all planes are found or made first, then one pass (the kernel join_root)
 * puts the elements together, does the last merge of one tree on the way, and takes the CRC:
 *
 *     plane 0 .. w-2 ---------------------> row, often where it lies in the payload \
 *     plane w-1 -> sides of the root ----------------------------> merge in strips -> join -> dst
 *                                                                                        +-> CRC
 *
 * So of bf16 as it mostly is, the lower plane raw and the upper one a tree, no plane is ever
 * written as a whole.
 *
 * Nothing at dst is written before the payload is used up, so a block that breaks a rule leaves dst
 * as it was; one that only its CRC betrays does not. order: of the block's header.
 *
 * The last tree of the block is the one that the join merges; encoders make it the top plane's.
 * Masks of the roots that were merged before stay on the stack, w - 1 of n / 8 bytes at most: w
 * rows and the spare leave a row for them (workspace.h). */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       enum lmc__order order, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL; /* there is none yet */
    for (p = 0; p < width; p++) {
        lmc__side side;
        LMC__TRY(lmc__begin_list(d, &side, spare, n, 0, &root));
        if (root.mask && side.list == root.row) root.plane = p;
        planes.row[p] = lmc__row_of(d, &side, n);
        LMC__CHECK(planes.row[p], LMC_ERR_WORKSPACE);
    }
    LMC__VALID(d->in == d->end);
    *crc =
        d->k->join_root(d->k, dst, lmc__join_from(&planes, root.mask ? &root : NULL, width, order),
                        n, d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}
