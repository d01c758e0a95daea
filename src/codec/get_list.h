#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/get_gaps.h"

/* Reading a list of bytes: a constant, a mask tree, or as it is (spec 6). put_list.h writes it.
 *
 * A node's children are read first, the left one and then the right one, and merged by its mask:
 * the way of put_list.h backwards. How many elements a child has, the mask says by its bits.
 *
 * Safety: the input is not trusted, and these functions are all that walks it. Each read is
 * preceded by one comparison with what is left. Nothing that is read becomes an address or a
 * length, but two: the number of ones of a mask, which is at most the n that is known already,
 * because a mask has n bits and all others are checked to be zero; and the code lengths, from which
 * a tree is made only if they fill the code space exactly (tree.h), so that every node has its
 * leaves. Recursion is 15 deep at most in a tree, and 3 trees deep. */

/* What all functions that read a payload pass on. Errors leave it as it is: who called them gives
 * up the block, and stack and scratch are set anew for the next one. */
typedef struct lmc__decoder {
    const lmc__kernels *k;
    lmc__scratch *scratch;
    lmc__stack stack;
    const uint8_t *in, *end; /* of the payload: what is left */
    lmc__streaming streaming;
    /* Where the output overwrites the prediction, until its CRC is known: a copy of it, or what was
     * changed. */
    uint8_t *kept;
    lmc__undo undo;
} lmc__decoder;

static enum lmc_status lmc__get_node(lmc__decoder *d, lmc__node node, uint8_t *list, uint8_t *spare,
                                     size_t n);

/* Keeps the prediction, if dst overwrites it, until lmc__decode_block knows that the elements are
 * right. */
static enum lmc_status lmc__keep(lmc__decoder *d, const uint8_t *dst, const uint8_t *base,
                                 size_t size)
{
    if (dst != base) return LMC_OK;
    d->kept = lmc__push_list(&d->stack, size);
    LMC__CHECK(d->kept, LMC_ERR_WORKSPACE);
    memcpy(d->kept, base, size);
    return LMC_OK;
}

/* The next size bytes of the payload, or NULL if there are not so many. */
LMC__INLINE const uint8_t *lmc__take(lmc__decoder *d, size_t size)
{
    const uint8_t *const taken = d->in;
    if (LMC__UNLIKELY((size_t)(d->end - d->in) < size)) return NULL;
    d->in += size;
    return taken;
}

/* The unused bits of the last of size bytes that hold n bits are zero. */
LMC__INLINE int lmc__is_tail_clear(const uint8_t *bits, size_t size, size_t n)
{
    return (n & 7) == 0 || bits[size - 1] >> (n & 7) == 0;
}

/* A mask of n > 0 bits: *mask points into the input, or to a list that stays on the stack.
 *
 * Mode 0: the bits are there. From 21 on: gaps, of classes only. Others name a frozen tree (its
 * level, and whether the bytes are complemented), by which the mask's bytes are coded, one nesting
 * deeper. In either case the bits behind the last one must be zero: whoever counts ones may count
 * whole bytes, and a mask can be written in one way only. Without a mode byte it is as in mode 0
 * (lmc__has_mode).
 *
 * (This mode byte is a mask's, spec 6.3. That of a list is read by lmc__get_list: there 0 is raw,
 * too, but bytes.) */
static enum lmc_status lmc__get_mask(lmc__decoder *d, unsigned nesting, int is_of_class, size_t n,
                                     const uint8_t **mask)
{
    const size_t size = (n + 7) / 8;
    unsigned mode = 0;
    if (lmc__has_mode(nesting, n)) {
        LMC__CHECK(d->in < d->end, LMC_ERR_CORRUPT);
        mode = *d->in++;
    }
    if (mode == 0) {
        *mask = lmc__take(d, size);
        LMC__CHECK(*mask, LMC_ERR_CORRUPT);
    } else if (is_of_class && mode >= LMC__MASK_GAPS) {
        uint8_t *list;
        LMC__CHECK(mode < LMC__MASK_MODES, LMC_ERR_CORRUPT);
        list = lmc__push_list(&d->stack, size);
        LMC__CHECK(list, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        LMC__TRY(lmc__get_gaps(&d->in, d->end, mode, n, list));
        *mask = list;
    } else {
        lmc__tree *const tree = &d->scratch->trees[nesting + 1];
        uint8_t *list, *spare;
        LMC__CHECK(mode <= 2 * LMC__FROZEN_LEVELS, LMC_ERR_CORRUPT);
        list = lmc__push_list(&d->stack, size);
        spare = lmc__push_list(&d->stack, size);
        LMC__CHECK(list && spare, LMC_ERR_WORKSPACE); /* cannot happen: see lmc__mask_stack_size */
        lmc__tree_set_frozen(tree, (mode - 1) >> 1, (mode - 1) & 1 ? 0xFF : 0);
        LMC__TRY(lmc__get_node(d, lmc__root_of(tree, nesting + 1), list, spare, size));
        d->stack.top = spare; /* the list stays for as long as its node needs it */
        *mask = list;
    }
    LMC__CHECK(lmc__is_tail_clear(*mask, size, n), LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* The mask and the two sides of an inner node that is not flat. list and spare: lists of n. On
 * return the sides are in spare, one behind the other, and a mask that was nested is on the stack;
 * list, which lent its room to both children in turn, is free for what they are merged to.
 *
 *     spare   | left: n - n_right elements | right: n_right elements |
 *
 * A side that is one symbol has no list, and takes nothing from the payload: merge is given its
 * value. n_right is at most n, since the mask has n bits and the others are zero; that is all that
 * the sizes of the children rest on. */
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

/* A node's n elements, to list; spare: a list of n.
 *
 * The cases of spec 6.2, as in lmc__put_node. Two buffers take turns on the way down:
 *
 *     this node       wants its elements in list; spare is free
 *     its children    want theirs in spare, one behind the other; list is free for them
 *     their children  want theirs in list ...
 *
 * and on the way back each merge reads from one buffer and writes to the other. A child has as much
 * room for itself as it has elements, in both: n_left + n_right = n. Kernels write up to LMC__PAD
 * bytes behind a list: of the left child that may be the start of the right one, which is made
 * later, so left comes first.
 *
 * A nested mask is pushed on the stack and stays there until its node is merged; then the stack is
 * as high as before.
 *
 * A flat node's symbols stand side by side in tree->symbol, from its first leaf on, so an index of
 * D bits is all that an element needs. The escape's symbols are in the payload: they may be any,
 * also such as have a code (spec 6.2, case 3). */
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
            LMC__CHECK(symbols, LMC_ERR_CORRUPT);
            memcpy(list, symbols, n);
        } else memset(list, tree->symbol[node.first_leaf], n);
        return LMC_OK;
    }
    flat_depth = lmc__get_flat_depth(tree, node);
    if (flat_depth) {
        const uint8_t *const bits = lmc__take(d, flat_depth * row);
        unsigned i;
        LMC__CHECK(bits, LMC_ERR_CORRUPT);
        for (i = 0; i < flat_depth; i++)
            LMC__CHECK(lmc__is_tail_clear(bits + i * row, row, n), LMC_ERR_CORRUPT);
        d->k->unflatten(list, bits, n, tree->symbol + node.first_leaf, flat_depth);
        return LMC_OK;
    }
    LMC__TRY(lmc__get_sides(d, node, list, spare, n, &sides));
    d->k->merge(list, sides.mask, n, sides.left, sides.right);
    d->stack.top = top;
    return LMC_OK;
}

/* The header of a tree (spec 6.1), behind its mode byte, to d->scratch->trees[0]. It says the range
 * of symbols that have a code and four bits for the length of each, so it takes 131 bytes at most;
 * the tree itself is not described in any other way. The first and the last symbol must have a
 * code, or one tree could be written in many ways. */
static enum lmc_status lmc__get_tree_header(lmc__decoder *d, int has_escape)
{
    uint8_t lengths[256];
    unsigned first, count, n_fields, escape_length = 0, i;
    const uint8_t *const range = lmc__take(d, 2), *fields;
    LMC__CHECK(range, LMC_ERR_CORRUPT);
    first = range[0];
    count = range[1] + 1u;
    n_fields = count + (has_escape ? 1 : 0);
    LMC__CHECK(first + count <= 256, LMC_ERR_CORRUPT);
    fields = lmc__take(d, (n_fields + 1) / 2);
    LMC__CHECK(fields, LMC_ERR_CORRUPT);
    LMC__CHECK(n_fields % 2 == 0 || fields[n_fields / 2] >> 4 == 0, LMC_ERR_CORRUPT);
    for (i = 0; i < count; i++) lengths[i] = fields[i / 2] >> 4 * (i & 1) & 15;
    if (has_escape) {
        escape_length = fields[count / 2] >> 4 * (count & 1) & 15;
        LMC__CHECK(escape_length, LMC_ERR_CORRUPT);
    }
    LMC__CHECK(lengths[0] && lengths[count - 1], LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__tree_set_lengths(&d->scratch->trees[0], lengths, first, first + count - 1,
                                     escape_length),
               LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* A list that is coded as a tree, behind its mode byte: to list; or, where its root is a merge, to
 * *root, whose sides stay in spare and on the stack. Then the caller merges: the planes of a block
 * do that on the way to the elements, which saves writing and reading a plane (get_planes.h).
 * root->mask NULL: it is in list. list and spare: lists of n. */
static enum lmc_status lmc__get_tree(lmc__decoder *d, int has_escape, uint8_t *list, uint8_t *spare,
                                     size_t n, lmc__merged *root)
{
    const lmc__tree *const tree = &d->scratch->trees[0];
    lmc__node node;
    LMC__TRY(lmc__get_tree_header(d, has_escape));
    node = lmc__root_of(tree, 0);
    if (lmc__get_flat_depth(tree, node)) {
        root->mask = NULL;
        return lmc__get_node(d, node, list, spare, n);
    }
    return lmc__get_sides(d, node, list, spare, n, root);
}

/* A list of n > 0 bytes; spare: a list of n. *side may lie in the input, where LMC__PAD bytes of
 * input behind it make it a list as it is, or on the stack.
 *
 *     mode       side                   read from the payload (spec 6)
 *     raw        in the payload         n bytes
 *     constant   a value, no list       1 byte
 *     tree       merged, on the stack   header, masks
 *
 * A constant of 2^22 elements so costs nothing, neither here nor in kernels, which take sides. */
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
    if (mode == LMC__PLANE_RAW && (size_t)(d->end - d->in) >= n + LMC__PAD) {
        side->list = lmc__take(d, n);
        return LMC_OK;
    }
    side->list = list = lmc__push_list(&d->stack, n);
    LMC__CHECK(list, LMC_ERR_WORKSPACE);
    if (mode == LMC__PLANE_RAW) {
        const uint8_t *const raw = lmc__take(d, n);
        LMC__CHECK(raw, LMC_ERR_CORRUPT);
        memcpy(list, raw, n);
        return LMC_OK;
    }
    top = d->stack.top;
    LMC__TRY(lmc__get_tree(d, mode == LMC__PLANE_TREE_ESCAPE, list, spare, n, &root));
    if (root.mask) d->k->merge(list, root.mask, n, root.left, root.right);
    d->stack.top = top;
    return LMC_OK;
}
