#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"

typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end;
    lmc__streaming streaming;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                     unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* The unused bits of the last of size bytes that hold n bits are zero. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* A mask of n > 0 bits: *mask points into the input, or to the stack. Invariant: whatever the input
 * says, mask has n bits and no others, so its number of ones is at most n. */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
    }
    if (mode == 0) {
        LMC__CHECK((size_t)(d->end - d->in) >= size, LMC_ERR_CORRUPT);
        *mask = d->in;
        d->in += size;
    } else {
        lmc__tree *tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS, LMC_ERR_CORRUPT);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, nesting + 1, 0, 0, 0, tree->n_leaves, list, spare, size));
        d->stack.top = spare; /* the list stays for as long as its node needs it */
        *mask = list;
    }
    LMC__CHECK(lmc__is_tail_clear(*mask, size, n), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* The children of Node(depth, x), which owns leaves [a, b) and is neither leaf nor flat. list and
 * spare: lists of n; the sides and, if it was nested, the mask are in spare and on the stack, list
 * is free again. */
static enum lmc_status lmc__get_sides(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                      unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                      size_t n, lmc__merged *sides)
{
    const lmc__tree *tree = &d->scratch->trees[nesting];
    size_t n_right;
    lmc__split split;
    lmc__set_split(tree, depth, x, a, b, &split);
    LMC__TRY(lmc__get_mask(d, nesting, n, &sides->mask));
    n_right = d->k->count_ones(sides->mask, (n + 7) / 8);
    sides->left.list = sides->right.list = NULL;
    sides->left.value = sides->right.value = 0;
    if (split.is_left_leaf) sides->left.value = tree->symbol[a];
    else {
        sides->left.list = spare;
        LMC__TRY(
            lmc__get_node(d, nesting, depth + 1, x, a, split.middle, spare, list, n - n_right));
    }
    if (split.is_right_leaf) sides->right.value = tree->symbol[split.middle];
    else {
        sides->right.list = spare + (n - n_right);
        LMC__TRY(lmc__get_node(d, nesting, depth + 1, split.half, split.middle, b,
                               spare + (n - n_right), list, n_right));
    }
    return LMC_OK;
}

/* Node(depth, x), which owns leaves [a, b), to list; spare: a list of n.
 * Safety: every read of input is preceded by one comparison with what is left of it; nothing read
 * from the input is used as an address or a length, but the number of ones of a mask of n bits,
 * which is at most n. Recursion: at most 15 deep. */
static enum lmc_status lmc__get_node(lmc__decoder *d, unsigned nesting, unsigned depth, unsigned x,
                                     unsigned a, unsigned b, uint8_t *list, uint8_t *spare,
                                     size_t n)
{
    const lmc__tree *tree = &d->scratch->trees[nesting];
    const size_t row = (n + 7) / 8;
    uint8_t *const top = d->stack.top;
    lmc__merged sides;
    unsigned flat;

    if (n == 0) return LMC_OK;
    if (b - a == 1) {
        if (a != tree->escape) {
            memset(list, tree->symbol[a], n);
            return LMC_OK;
        }
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        memcpy(list, d->in, n);
        d->in += n;
        return LMC_OK;
    }
    flat = lmc__tree_flat_depth(tree, a, b, depth);
    if (flat) {
        unsigned i;
        LMC__CHECK((size_t)(d->end - d->in) >= flat * row, LMC_ERR_CORRUPT);
        for (i = 0; i < flat; i++)
            LMC__CHECK(lmc__is_tail_clear(d->in + i * row, row, n), LMC_ERR_CORRUPT);
        d->k->unflatten(list, d->in, n, tree->symbol + a, flat);
        d->in += flat * row;
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, nesting, depth, x, a, b, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* A plane that is coded as a tree (d->in is behind its mode byte): to list or, where its root is a
 * merge, to *root, whose sides stay in spare and on the stack. list and spare: lists of n. */
static enum lmc_status lmc__get_tree(lmc__decoder *d, int has_escape, uint8_t *list, uint8_t *spare,
                                     size_t n, lmc__merged *root)
{
    lmc__tree *tree = &d->scratch->trees[0];
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    size_t size;
    LMC__CHECK(d->end - d->in >= 2, LMC_ERR_CORRUPT);
    first = d->in[0];
    count = d->in[1] + 1u;
    d->in += 2;
    n_fields = count + (has_escape ? 1 : 0);
    size = (n_fields + 1) / 2;
    LMC__CHECK(first + count <= 256 && (size_t)(d->end - d->in) >= size, LMC_ERR_CORRUPT);
    LMC__CHECK(n_fields % 2 == 0 || d->in[size - 1] >> 4 == 0, LMC_ERR_CORRUPT);
    for (i = 0; i < count; i++) lengths[i] = d->in[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = d->in[count / 2] >> 4 * (count & 1) & 15;
        LMC__CHECK(escape_length, LMC_ERR_CORRUPT);
    }
    LMC__CHECK(lengths[0] && lengths[count - 1], LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__tree_set_lengths(tree, lengths, first, first + count - 1, escape_length),
               LMC_ERR_CORRUPT);
    d->in += size;
    if (lmc__tree_flat_depth(tree, 0, tree->n_leaves, 0)) {
        root->mask = NULL;
        return lmc__get_node(d, 0, 0, 0, 0, tree->n_leaves, list, spare, n);
    }
    return lmc__get_sides(d, 0, 0, 0, 0, tree->n_leaves, list, spare, n, root);
}

/* A list of n > 0 bytes (spec 8); spare: a list of n. *side may lie in the input or on the stack.
 */
static enum lmc_status lmc__get_list(lmc__decoder *d, lmc__side *side, uint8_t *spare, size_t n)
{
    unsigned mode;
    uint8_t *list, *top;
    lmc__merged root;
    LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
    mode = *d->in++;
    LMC__CHECK(mode <= LMC__PLANE_TREE_ESCAPE, LMC_ERR_CORRUPT);
    side->list = NULL;
    side->value = 0;
    if (mode == LMC__PLANE_CONSTANT) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        side->value = *d->in++;
        return LMC_OK;
    }
    if (mode == LMC__PLANE_RAW &&
        (size_t)(d->end - d->in) >= n + LMC__PAD) { /* a list where it lies */
        side->list = d->in;
        d->in += n;
        return LMC_OK;
    }
    side->list = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_RAW) {
        LMC__CHECK((size_t)(d->end - d->in) >= n, LMC_ERR_CORRUPT);
        memcpy(list, d->in, n);
        d->in += n;
        return LMC_OK;
    }
    top = d->stack.top;
    LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
    if (root.mask) d->k->merge(list, root.mask, n, root.left, root.right);
    d->stack.top = top;
    return LMC_OK;
}
