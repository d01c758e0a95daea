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
 * What is saved is memory traffic. A plane that was merged by itself would be written once and read
 * once more; and a raw one would be copied. With bf16 as it mostly is, the lower plane is raw and
 * the upper one a tree: then no plane is ever written as a whole.
 *
 * Every read of the payload is checked before the join; the join itself reads rows that are known
 * to have n bytes, and cannot fail. Nothing at dst is written before, so a block that breaks a rule
 * leaves dst as it was; one that only its CRC betrays does not. */

/* One plane, to *row; or, where it is a tree that ends in a merge, its sides to *root: then *row is
 * the list that it may be merged to. There is one spare, so only one plane's sides can wait: a tree
 * that was in *root before is merged to its row first.
 *
 * So the last tree of the block is the one that the join merges, whichever plane that is; encoders
 * make it the top one. root->mask says whether there is one: NULL also after a tree whose root is
 * flat, which is in *row already. Masks of the roots that were merged stay on the stack, w - 1
 * of n / 8 bytes at most: w rows and the spare leave a row for them (workspace.h). */
static enum lmc_status lmc__get_plane(lmc__decoder *d, const uint8_t **row, unsigned p,
                                      uint8_t *spare, size_t n, lmc__merged *root)
{
    unsigned mode;
    uint8_t *list;
    LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
    mode = *d->in++;
    if (mode == LMC__PLANE_RAW) { /* used where it lies: the join wants no slack behind it */
        *row = lmc__take(d, n);
        LMC__CHECK(*row, LMC_ERR_CORRUPT);
        return LMC_OK;
    }
    LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
    if (mode != LMC__PLANE_CONSTANT && root->mask) {
        d->k->merge(root->row, root->mask, n, root->left, root->right);
        root->mask = NULL;
    }
    *row = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        memset(list, *d->in++, n);
        return LMC_OK;
    }
    root->plane = p;
    root->row = list;
    return lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, root);
}

/* order: of the block's header. The whole payload must be used up before the join: what is left
 * over is an error that must not be found after the output is written. */
static enum lmc_status lmc__get_planes(lmc__decoder *d, uint8_t *dst, size_t n, unsigned width,
                                       enum lmc__order order, uint32_t *crc)
{
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    lmc__const_planes planes;
    lmc__merged root;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    root.mask = NULL; /* there is none yet */
    for (p = 0; p < width; p++) LMC__TRY(lmc__get_plane(d, &planes.row[p], p, spare, n, &root));
    LMC__CHECK(d->in == d->end, LMC_ERR_CORRUPT);
    *crc =
        d->k->join_root(d->k, dst, lmc__join_from(&planes, root.mask ? &root : NULL, width, order),
                        n, d->streaming);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return LMC_OK;
}
