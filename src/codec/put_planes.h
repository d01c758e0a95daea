#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/plan.h"
#include "codec/sample.h"
#include "codec/put_list.h"
#include "codec/block_header.h"
#include "codec/plan_planes.h"

/* Writes the payload of a block without a prediction (spec 5.1): its planes, one after another. One
 * pass over the elements (the kernel split_root) splits them, computes their CRC, and does the
 * first partition of the top plane's tree while its bytes are in registers.
 *
 * If the first planes are raw, the split writes them to their place in the payload. With bf16 these
 * are all planes except the exponents. */

#ifndef LMC_NO_ENCODER
/* The planes of a block, and what is needed to make them again: coding a plane overwrites its row.
 * If its tree was too long (LMC__PUT_SPOILED), all planes are split again. */
typedef struct lmc__split_block {
    const lmc__block *block;
    lmc__planes planes;
    lmc__parted root;    /* of the top plane's tree */
    uint8_t *root_spare; /* its right list, and the left list's spare */
    int has_root;
} lmc__split_block;

/* Splits all planes and partitions the root; returns the CRC. It may be called again at any time,
 * because it only reads the elements. */
static uint32_t lmc__split_planes(const lmc__kernels *k, lmc__split_block *split)
{
    const lmc__block *const block = split->block;
    if (block->sum) *block->sum = 0;
    return k->split_root(k, &split->planes, split->has_root ? &split->root : NULL, block->src,
                         block->n, block->width, block->own, block->sum);
}

/* Lets the split begin the top plane's tree, unless its root is flat, or the plane may be constant.
 * The plane's row becomes the left list; the plane itself is then never written. Returns 0 if there
 * is no room, which cannot happen (workspace.h). */
static int lmc__begin_root(lmc__encoder *e, lmc__split_block *split, const lmc__plan *plan)
{
    lmc__tree *const tree = &e->scratch->root_tree;
    lmc__parted *const root = &split->root;
    const size_t n = split->block->n;
    lmc__children children;
    lmc__node node;
    if (plan->is_one_symbol || !lmc__tree_set_plan(tree, plan)) return 1;
    node = lmc__root_of(tree, 0);
    if (lmc__get_flat_depth(tree, node)) return 1;
    children = lmc__get_children(tree, node);
    root->plane = split->block->width - 1;
    root->table = tree->rank;
    root->split = children.right.first_leaf;
    root->mask = lmc__push_list(&e->stack, (n + 7) / 8);
    split->root_spare = lmc__push_list(&e->stack, n);
    if (root->mask == NULL || split->root_spare == NULL) return 0;
    root->left = lmc__is_known(tree, children.left) ? NULL : split->planes.row[root->plane];
    root->right = lmc__is_known(tree, children.right) ? NULL : split->root_spare;
    split->has_root = 1;
    return 1;
}

/* Returns the size of the payload, if that is smaller than the elements, as it must be (spec 5),
 * and at most cap; else 0. *crc: of the elements in the payload. *zeros_apart: 1 if zeros should be
 * coded apart instead (put_zeros.h); then it returns 0. So it does if all planes are raw: a stored
 * block is shorter. */
static size_t lmc__put_planes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                              uint32_t *crc, int *zeros_apart)
{
    const size_t n = block->n;
    const unsigned width = block->width, top = width - 1;
    const lmc__plan *const plans = e->scratch->plans;
    uint8_t *const spare = lmc__push_list(&e->stack, n);
    enum lmc__choice choice[8];
    lmc__split_block split;
    unsigned p, n_leading = 0; /* raw planes before the first other plane */

    if (spare == NULL || !lmc__choose_planes(e, choice, zeros_apart, block) || *zeros_apart)
        return 0;
    while (n_leading < width && choice[n_leading] == LMC__CHOOSE_RAW) n_leading++;
    if (n_leading == width) return 0;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * width - 1);
    if (n_leading * (n + 1) > (size_t)(e->end - e->out)) return 0;
    split.block = block;
    split.has_root = 0;
    split.root_spare = NULL;
    for (p = 0; p < width; p++) {
        split.planes.row[p] =
            p < n_leading ? e->out + p * (n + 1) + 1 : lmc__push_list(&e->stack, n);
        if (split.planes.row[p] == NULL) return 0;
    }
    if (choice[top] == LMC__CHOOSE_TREE && !lmc__begin_root(e, &split, &plans[top])) return 0;
    *crc = lmc__split_planes(e->k, &split);
    for (p = 0; p < n_leading; p++, e->out += n + 1) e->out[0] = LMC__PLANE_RAW;
    for (; p < width; p++) {
        const int is_root = split.has_root && p == top;
        enum lmc__put put;
        put = lmc__put_planned(e, choice[p], &plans[p], is_root ? &split.root : NULL,
                               split.planes.row[p], is_root ? split.root_spare : spare, n);
        if (put == LMC__PUT_SPOILED) {
            if (p == top) split.has_root = 0;                      /* now its row is needed */
            if (lmc__split_planes(e->k, &split) != *crc) return 0; /* changed elements */
            put = lmc__put_raw(e, split.planes.row[p], n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
        }
        if (put == LMC__PUT_NO_ROOM) return 0;
    }
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */
