#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/get_gaps.h"

/* Decodes a list of bytes (spec 6), which put_list.h writes: raw, a constant, or a tree of masks.
 * To decode a node, its left and right child are decoded, and merged by the node's mask.
 *
 * Safety: the input is not trusted. Each read first checks how many bytes are left. Only two values
 * from the input become lengths or addresses. The number of ones of a mask is at most the mask's
 * known n, because the bits behind n must be zero. Code lengths become a tree only if they fill the
 * code space exactly (tree.h). Recursion is at most 15 deep in a tree, and 3 trees deep. */

/* The state of decoding a payload. It cannot be used after an error. */
typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end; /* the rest of the payload */
    lmc__streaming streaming;
    /* If dst is the prediction: a copy of it, or the overwritten elements. */
    uint8_t *kept;
    lmc__undo undo;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* If dst is the prediction, copies it to d->kept, unless that has its bytes already:
 * lmc__get_predicted may have to restore them. */
static enum lmc_status lmc__keep(lmc__decoder *d, const uint8_t *dst, const uint8_t *base,
                                 size_t size)
{
    if (dst != base || d->kept) return LMC_OK;
    d->kept = lmc__push_list(&d->stack, size);
    LMC__CHECK(d->kept, LMC_ERR_WORKSPACE);
    memcpy(d->kept, base, size);
    return LMC_OK;
}

/* Takes the next size bytes of the payload; NULL if fewer are left. */
LMC__INLINE const uint8_t *lmc__take(lmc__decoder *d, size_t size)
{
    const uint8_t *const taken = d->in;
    if (LMC__UNLIKELY((size_t)(d->end - d->in) < size)) return NULL;
    d->in += size;
    return taken;
}

/* 1 if the unused bits of the last byte are zero: n bits are in size bytes. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* Decodes a mask of n > 0 bits: *mask points into the input, or to a list on the stack.
 *
 * Mode 0, or no mode byte (lmc__has_mode): the bits themselves. Modes from 21 on, for masks of
 * classes only: gaps. Other modes: a frozen tree codes the mask's bytes, at the next nesting. Bits
 * behind the mask must be zero, so that each mask has only one raw form. */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, int is_of_class, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (lmc__has_mode(nesting, n)) {
        LMC__VALID(d->in < d->end);
        mode = *d->in++;
    }
    if (mode == 0) {
        *mask = lmc__take(d, size);
        LMC__VALID(*mask);
    } else if (is_of_class && mode >= LMC__MASK_GAPS) {
        uint8_t *list;
        LMC__VALID(mode < LMC__MASK_MODES);
        list = lmc__push_list(&d->stack, size);
        LMC__CHECK(list, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        LMC__TRY(lmc__get_gaps(&d->in, d->end, mode, n, list));
        *mask = list;
    } else {
        lmc__tree *const tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__VALID(mode <= 2 * LMC__FROZEN_LEVELS);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, lmc__root_of(tree, nesting + 1), list, spare, size));
        d->stack.top = spare; /* frees spare, not the list */
        *mask = list;
    }
    LMC__VALID(lmc__is_tail_clear(*mask, size, n));
    return LMC_OK;
}

/* Decodes the mask and the two sides of an inner node that is not flat. list and spare: lists of n.
 * On return the sides are in spare, one behind the other. A nested mask is on the stack. list is
 * free: the caller merges the sides to it.
 *
 *     spare   | left: n - n_right elements | right: n_right elements |
 *
 * A side that is one symbol has no list, and no bytes in the payload. */
static enum lmc_status lmc__get_sides(lmc__decoder *d, lmc__node node, uint8_t *list,
                                      uint8_t *spare, size_t n, lmc__merged *sides)
{
    const lmc__tree *const tree = &d->scratch->trees[node.nesting];
    const lmc__children children = lmc__get_children(tree, node);
    size_t n_right;
    LMC__TRY(lmc__get_mask(d, node.nesting, 0, n, &sides->mask));
    n_right = d->k->count_ones(sides->mask, (n + 7) / 8);
    sides->left.list = sides->right.list = NULL;
    sides->left.value = sides->right.value = 0;
    if (lmc__is_one_symbol(tree, children.left))
        sides->left.value = tree->symbol[children.left.first_leaf];
    else {
        sides->left.list = spare;
        LMC__TRY(lmc__get_node(d, children.left, spare, list, n - n_right));
    }
    if (lmc__is_one_symbol(tree, children.right))
        sides->right.value = tree->symbol[children.right.first_leaf];
    else {
        sides->right.list = spare + (n - n_right);
        LMC__TRY(lmc__get_node(d, children.right, spare + (n - n_right), list, n_right));
    }
    return LMC_OK;
}

/* Decodes a node's n elements to list; spare: a list of n. The cases are those of spec 6.2.
 *
 * Two buffers alternate: a node's elements are written to list, its children's to spare, one child
 * behind the other, its grandchildren's to list, and so on. Each merge reads one buffer and writes
 * the other. Kernels write up to LMC__PAD bytes behind a list. The right child's list is behind the
 * left child's list, so the left child is decoded first. */
static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n)
{
    const lmc__tree *const tree = &d->scratch->trees[node.nesting];
    const size_t row = (n + 7) / 8;
    uint8_t *const top = d->stack.top;
    lmc__merged sides;
    unsigned flat_depth;

    if (n == 0) return LMC_OK;
    if (node.end_leaf - node.first_leaf == 1) {
        if (node.first_leaf == tree->escape) {
            const uint8_t *const symbols = lmc__take(d, n);
            LMC__VALID(symbols);
            memcpy(list, symbols, n);
        } else memset(list, tree->symbol[node.first_leaf], n);
        return LMC_OK;
    }
    flat_depth = lmc__get_flat_depth(tree, node);
    if (flat_depth) {
        const uint8_t *const bits = lmc__take(d, flat_depth * row);
        unsigned i;
        LMC__VALID(bits);
        for (i = 0; i < flat_depth; i++) LMC__VALID(lmc__is_tail_clear(bits + i * row, row, n));
        d->k->unflatten(list, bits, n, tree->symbol + node.first_leaf, flat_depth);
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, node, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* Reads the header of a tree (spec 6.1), behind its mode byte, to d->scratch->trees[0]: the range
 * of symbols that have a code, and four bits for the length of each code. The first and the last
 * symbol must have a code, so that each tree has only one header. */
static enum lmc_status lmc__get_tree_header(lmc__decoder *d, int has_escape)
{
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    const uint8_t *const range = lmc__take(d, 2), *fields;
    LMC__VALID(range);
    first = range[0];
    count = range[1] + 1u;
    n_fields = count + (has_escape ? 1 : 0);
    LMC__VALID(first + count <= 256);
    fields = lmc__take(d, (n_fields + 1) / 2);
    LMC__VALID(fields);
    LMC__VALID(n_fields % 2 == 0 || fields[n_fields / 2] >> 4 == 0);
    for (i = 0; i < count; i++) lengths[i] = fields[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = fields[count / 2] >> 4 * (count & 1) & 15;
        LMC__VALID(escape_length);
    }
    LMC__VALID(lengths[0] && lengths[count - 1]);
    LMC__VALID(lmc__tree_set_lengths(&d->scratch->trees[0], lengths, first, first + count - 1,
                                     escape_length));
    return LMC_OK;
}

/* Decodes a list of n > 0 bytes; spare: a list of n. A raw list stays in the payload if at least
 * `slack` bytes follow it there; else it is copied.
 *
 *     mode       side                   bytes in the payload (spec 6)
 *     raw        in payload, or copied  n bytes
 *     constant   a value, no list       1 byte
 *     tree       on the stack           header, masks
 *
 * If the root of a tree needs a merge, the caller must merge: get_planes.h does so while it joins
 * planes to elements. The root's sides and mask are then in *root; root->row is the list. Else
 * root->mask is NULL. If *root already has the root of another tree, that root is merged first. */
static enum lmc_status lmc__begin_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n,
                                       size_t slack, lmc__merged *root)
{
    const lmc__tree *const tree = &d->scratch->trees[0];
    unsigned mode;
    uint8_t *list;
    lmc__node node;
    LMC__VALID(d->in < d->end);
    mode = *d->in++;
    LMC__VALID(mode <= LMC__PLANE_TREE_ESCAPE);
    side->list = NULL;
    side->value = 0;
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__VALID(d->in < d->end);
        side->value = *d->in++;
        return LMC_OK;
    }
    if (mode == LMC__PLANE_RAW) {
        const size_t left = (size_t)(d->end - d->in);
        const uint8_t *const raw = lmc__take(d, n);
        LMC__VALID(raw);
        side->list = raw;
        if (left >= n + slack) return LMC_OK;
        side->list = list = lmc__push_list(&d->stack, n);
        LMC__CHECK(list, LMC_ERR_WORKSPACE);
        memcpy(list, raw, n);
        return LMC_OK;
    }
    if (root->mask) d->k->merge(root->row, root->mask, n, root->left, root->right);
    root->mask = NULL;
    side->list = root->row = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_tree_header(d, mode == LMC__PLANE_TREE_ESCAPE));
    node = lmc__root_of(tree, 0);
    return lmc__get_flat_depth(tree, node) ? lmc__get_node(d, node, list, spare, n)
                                           : lmc__get_sides(d, node, list, spare, n, root);
}

/* As lmc__begin_list, but the root is merged, too. */
static enum lmc_status lmc__get_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n)
{
    lmc__merged root;
    root.mask = NULL;
    LMC__TRY(lmc__begin_list(d, side, spare, n, LMC__PAD, &root));
    if (root.mask) {
        d->k->merge(root.row, root.mask, n, root.left, root.right);
        d->stack.top = root.row + n + LMC__PAD;
    }
    return LMC_OK;
}

/* A side as a list of n bytes, for kernels that take no constants; NULL if there is no room. */
static const uint8_t *lmc__row_of(lmc__decoder *d, const lmc__side *side, size_t n)
{
    uint8_t *row;
    if (side->list) return side->list;
    row = lmc__push_list(&d->stack, n);
    if (row) memset(row, side->value, n);
    return row;
}

/* Reads a list of n bytes, as lmc__row_of gives it. spare: a list of n. */
static enum lmc_status lmc__get_row(lmc__decoder *d, const uint8_t **row, uint8_t *spare, size_t n)
{
    lmc__side side;
    LMC__TRY(lmc__get_list(d, &side, spare, n));
    *row = lmc__row_of(d, &side, n);
    LMC__CHECK(*row, LMC_ERR_WORKSPACE);
    return LMC_OK;
}
