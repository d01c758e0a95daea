#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/cost.h"
#include "codec/plan.h"
#include "codec/sample.h"
#include "codec/put_gaps.h"
#include "codec/get_gaps.h"

/* Writing a list of bytes: a constant, a mask tree, or as it is (spec 6). get_list.h reads it.
 *
 * A tree is written by partitioning. The list is mapped to ranks (tree.h). At a node, the kernel
 * partition makes a mask, one bit for each element, and the lists of those that go left and right.
 * The mask is written, then the same is done to the two lists. A child's n is a count of bits in
 * its parent's mask: so nothing but masks is stored.
 *
 * A mask in which one bit is rare is itself a list of bytes worth coding: it is *nested*, coded by
 * this same recursion with a frozen tree, and its masks may be nested in turn.
 *
 * Functions here return 0 if there is no room: the output would pass e->end. Then what has been
 * written cannot be used, and the list, which partitioning has overwritten, is gone. The same where
 * the list has a symbol without a code or an escape, since elements have changed after all of them
 * were counted (put_block.h). Such a symbol's rank is above those of all leaves: it goes right at
 * each node, so it is found where the last leaf is. */

#ifndef LMC_NO_ENCODER
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n);

/* A mask is worth nesting if the bits that it is likely to save are worth the time (cost.h). It
 * takes n / 200 bits more than its information, about. A short mask does not reach all nodes: one
 * for eight bytes is counted. */
static int lmc__is_worth_nesting(size_t n, size_t ones, unsigned level, uint32_t worth)
{
    const uint64_t information =
        (uint64_t)n * lmc__log2((uint32_t)n) -
        (uint64_t)ones * lmc__log2((uint32_t)(ones ? ones : 1)) -
        (uint64_t)(n - ones) * lmc__log2((uint32_t)(n > ones ? n - ones : 1));
    const uint64_t bits = (information >> 16) + n / 200;
    const size_t size = n / 8, nodes = lmc__min(lmc__frozen_nodes[level], size / 8);
    return bits < n && (n - bits) * worth > (uint64_t)size * lmc__frozen_time[level] +
                                                (uint64_t)nodes * LMC__NODE_TIME + LMC__NEST_TIME;
}

/* The level of the frozen tree (spec 6.4) for a mask whose rarer bit is `rarer` of n: the nearest
 * in the logarithm from level 2 on; below, where the costs of neighbouring trees are equal
 * (spec/frozen_trees.py). */
static unsigned lmc__choose_level(size_t rarer, size_t n)
{
    static const uint16_t border[LMC__FROZEN_LEVELS - 1] = {
        25690, 20289,                               /* 0.392, 0.310; in 1/65536 */
        13777, 9742,  6889, 4871, 3444, 2436, 1722, /* 2^-2.25, 2^-2.75, ... 2^-5.25 */
    };
    unsigned level = 0;
    while (level < LMC__FROZEN_LEVELS - 1 && (uint64_t)rarer << 16 < (uint64_t)n * border[level])
        level++;
    return level;
}

/* The nested code of a mask of size bytes, to code, which has room for as many: its size, or size
 * if it would not be smaller. list and spare: lists of size. The output is turned to `code`
 * meanwhile: the mask may stand in the output, and is written as it is if the code is given up. */
static size_t lmc__nest_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t size,
                             unsigned level, unsigned polarity, uint8_t *code, uint8_t *list,
                             uint8_t *spare)
{
    lmc__tree *const tree = &e->scratch->trees[nesting + 1];
    uint8_t *const out = e->out, *const end = e->end;
    size_t coded = size;
    unsigned i;
    lmc__tree_set_frozen(tree, level, polarity ? 0xFF : 0);
    for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
    e->k->map(list, mask, size, tree->rank);
    e->out = code;
    e->end = code + size - 1; /* it must save a byte */
    if (lmc__put_node(e, lmc__root_of(tree, nesting + 1), list, spare, size))
        coded = (size_t)(e->out - code);
    e->out = out;
    e->end = end;
    return coded;
}

/* A mask of n bits, `ones` of them set, to e->out; it may stand in its place already. With a mode
 * byte (lmc__has_mode) it may be nested: 0 raw; 1 + 2 * level + polarity nested. */
static int lmc__put_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                         size_t ones)
{
    const size_t size = (n + 7) / 8, mode_size = lmc__has_mode(nesting, n) ? 1 : 0;
    uint8_t *const top = e->stack.top;
    size_t best_size = size;
    unsigned mode = 0;
    if (mode_size) {
        const unsigned polarity = ones > n - ones,
                       level = lmc__choose_level(polarity ? n - ones : ones, n);
        if (lmc__is_worth_nesting(n, ones, level, e->worth)) {
            uint8_t *const list = lmc__push_list(&e->stack, size);
            uint8_t *const spare = lmc__push_list(&e->stack, size);
            uint8_t *const code = lmc__push_list(&e->stack, size);
            if (code) /* there always is room (workspace.h); without it, raw is correct, too */
                best_size =
                    lmc__nest_mask(e, nesting, mask, size, level, polarity, code, list, spare);
            if (best_size < size) {
                mask = code;
                mode = 1 + 2 * level + polarity;
            }
        }
    }
    e->stack.top = top;
    if (mode_size + best_size > (size_t)(e->end - e->out)) return 0;
    if (mode_size) *e->out = (uint8_t)mode;
    e->out += mode_size;
    if (mask != e->out) memcpy(e->out, mask, best_size);
    e->out += best_size;
    return 1;
}

/* The mask of a class may be gaps if one bit in 2^RARE_SHIFT is the rarer one, or fewer: then
 * nothing else is tried if they are smaller than the mask. Also if it has few bits; then what is
 * smallest stays. */
#define LMC__GAPS_RARE_SHIFT 4u
#define LMC__GAPS_FEW ((size_t)1 << 15)

/* A mask of n bits, of the places of its k ones; or NULL if there is no room. */
static const uint8_t *lmc__make_mask(lmc__encoder *e, const uint32_t *ones, size_t n, size_t k)
{
    uint8_t *const mask = lmc__push_list(&e->stack, (n + 7) / 8);
    size_t i;
    if (mask) memset(mask, 0, (n + 7) / 8);
    for (i = 0; mask && i < k; i++) mask[ones[i] / 8] |= (uint8_t)(1u << (ones[i] & 7));
    return mask;
}

/* The mask of a class of n elements, k of them coded. mask or ones may be NULL, the places of the
 * ones, but not both. Mode 21 + 2 * s + polarity: gaps (spec 6.3). */
static int lmc__put_class_mask(lmc__encoder *e, const uint8_t *mask, const uint32_t *ones, size_t n,
                               size_t k)
{
    const size_t size = (n + 7) / 8, rarer = lmc__min(k, n - k);
    const unsigned polarity = k > n - k, s = lmc__choose_gap_shift(n, rarer);
    const int is_rare = rarer <= n >> LMC__GAPS_RARE_SHIFT,
              may_be_gaps = lmc__has_mode(0, n) && rarer &&
                            (is_rare || (n <= LMC__GAPS_FEW && rarer <= n / 3));
    uint8_t *const start = e->out, *const top = e->stack.top;
    size_t gaps = SIZE_MAX;
    int fits = 0;
    if (!mask && polarity) mask = lmc__make_mask(e, ones, n, k);
    if (may_be_gaps && (polarity || !ones)) {
        uint32_t *const places = lmc__push_numbers(&e->stack, rarer);
        if (!places || !mask) return 0;
        (void)lmc__list_ones(places, rarer, mask, n, polarity ? UINT64_MAX : 0);
        ones = places;
    }
    if (may_be_gaps) gaps = lmc__count_gaps(ones, rarer, s);
    if (!is_rare || gaps >= size) {
        if (!mask) mask = lmc__make_mask(e, ones, n, k);
        fits = mask && lmc__put_mask(e, 0, mask, n, k);
    }
    if (gaps < size && (!fits || gaps < (size_t)(e->out - start))) {
        e->out = start;
        fits = gaps < (size_t)(e->end - start);
        if (fits) {
            *e->out = (uint8_t)(LMC__MASK_GAPS + 2 * s + polarity);
            lmc__put_gaps(e->out + 1, gaps, ones, rarer, s);
            e->out += gaps + 1;
        }
    }
    e->stack.top = top;
    return fits;
}

/* What is left of an inner node that is partitioned: its mask, which may lie in its place in the
 * output already, and the children; left and right are the two lists, each with room for n.
 *
 * Two buffers are enough for a whole tree. The left child works in place, with what is behind the
 * right list as its spare; after it, all of left is free, and is the spare of the right child.
 *
 *     left    |  n - n_right elements  | free         |
 *     right   |  n_right elements      | left's spare |      while the left child is coded
 *
 *     left    |  right's spare                        |
 *     right   |  n_right elements      | free         |      while the right child is coded
 *
 * The kernels' slack of LMC__PAD bytes is no danger to a neighbour: what the left child writes
 * behind its elements is free room, and what it writes behind its spare is the slack of `right`. */
static int lmc__put_sides(lmc__encoder *e, lmc__node node, lmc__children children,
                          const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    return lmc__put_mask(e, node.nesting, mask, n, n_right) &&
           lmc__put_node(e, children.left, left, right + n_right, n - n_right) &&
           lmc__put_node(e, children.right, right, left, n_right);
}

/* The last leaf of a tree that has neither an escape nor a code for each byte is among the node's:
 * what has no code is there, if there is anything. */
LMC__INLINE int lmc__may_have_uncoded(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf == tree->n_leaves && tree->escape == tree->n_leaves &&
           tree->n_leaves < 256;
}

/* Ranks of leaves only. */
static int lmc__are_coded(const lmc__tree *tree, const uint8_t *list, size_t n)
{
    size_t i;
    unsigned highest = 0;
    for (i = 0; i < n; i++) highest = list[i] > highest ? list[i] : highest;
    return highest < tree->n_leaves;
}

/* The node's list says nothing: all of it is one symbol, which is known. */
LMC__INLINE int lmc__is_known(const lmc__tree *tree, lmc__node node)
{
    return lmc__is_one_symbol(tree, node) && !lmc__may_have_uncoded(tree, node);
}

/* A node of tree e->scratch->trees[node.nesting]; list: ranks of its n elements, overwritten;
 * spare: a list of n.
 *
 * The five cases of spec 6.2: nothing to say (no elements, or all are one symbol); the escape,
 * whose ranks are mapped back to bytes; a flat node, as planes of bits; else a mask and two
 * children. The partition writes the mask where it will stand, behind its mode byte if it has one.
 * Only where that would pass the end, the mask goes to the stack first: nested it may fit. A list
 * is not wanted where a child is one symbol.
 *
 * Recursion is 15 deep at most in each of up to three trees. Time is n for each level of the tree,
 * so at most 15 n; for a skewed list little more than n. */
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n)
{
    const lmc__tree *const tree = &e->scratch->trees[node.nesting];
    const size_t room = (size_t)(e->end - e->out), row = (n + 7) / 8;
    lmc__children children;
    unsigned flat_depth;
    size_t n_right, mode_size;
    uint8_t *mask, *const top = e->stack.top;
    int fits;

    if (n == 0 || lmc__is_known(tree, node)) return 1;
    flat_depth = lmc__get_flat_depth(tree, node);
    if ((flat_depth || lmc__is_one_symbol(tree, node)) && lmc__may_have_uncoded(tree, node) &&
        !lmc__are_coded(tree, list, n))
        return 0;
    if (lmc__is_one_symbol(tree, node)) return 1;
    if (node.end_leaf - node.first_leaf == 1) { /* the escape: the symbols themselves */
        if (n > room) return 0;
        e->k->map(e->out, list, n, tree->symbol);
        e->out += n;
        return 1;
    }
    if (flat_depth) {
        if (flat_depth * row > room) return 0;
        e->k->flatten(e->out, list, n, node.first_leaf, flat_depth);
        e->out += flat_depth * row;
        return 1;
    }
    children = lmc__get_children(tree, node);
    mode_size = lmc__has_mode(node.nesting, n) ? 1 : 0;
    mask = e->out + mode_size;
    if (mode_size + row > room) { /* it may yet fit if it is nested */
        if (!mode_size || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, lmc__is_known(tree, children.left) ? NULL : list,
                              lmc__is_known(tree, children.right) ? NULL : spare, list, n,
                              children.right.first_leaf);
    fits = lmc__put_sides(e, node, children, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* The header of a tree (spec 6.1): the mode byte, the range of symbols that have a code, and four
 * bits for the length of each, then of the escape. */
static int lmc__put_tree_header(lmc__encoder *e, const lmc__plan *plan)
{
    const unsigned count = plan->last - plan->first + 1,
                   n_fields = count + (plan->escape_length ? 1 : 0);
    const size_t size = 3 + (n_fields + 1) / 2;
    uint8_t *const o = e->out;
    unsigned i;
    if (size > (size_t)(e->end - o)) return 0;
    o[0] = plan->escape_length ? LMC__PLANE_TREE_ESCAPE : LMC__PLANE_TREE;
    o[1] = (uint8_t)plan->first;
    o[2] = (uint8_t)(count - 1);
    memset(o + 3, 0, size - 3);
    for (i = 0; i < n_fields; i++) {
        unsigned length = i < count ? plan->lengths[plan->first + i] : plan->escape_length;
        o[3 + i / 2] = (uint8_t)(o[3 + i / 2] | length << 4 * (i & 1));
    }
    e->out += size;
    return 1;
}

/* The tree of a plan, with ranks. Returns 0 if it is none, which cannot happen. */
static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* A list of n bytes as a tree, mode byte and all; row and spare are lists and are overwritten. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, lmc__root_of(tree, 0), row, spare, n);
}

/* The same for a plane whose root is done: the kernel split_root has mapped it by the ranks of
 * e->scratch->root_tree and partitioned it, to root->mask, row and spare. */
static int lmc__put_root(lmc__encoder *e, const lmc__plan *plan, const lmc__parted *root,
                         uint8_t *row, uint8_t *spare, size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    lmc__node node;
    *tree = e->scratch->root_tree;
    node = lmc__root_of(tree, 0);
    return lmc__put_tree_header(e, plan) &&
           lmc__put_sides(e, node, lmc__get_children(tree, node), root->mask, row, spare, n,
                          root->n_right);
}

static int lmc__put_constant(lmc__encoder *e, uint8_t value)
{
    if (e->end - e->out < 2) return 0;
    e->out[0] = LMC__PLANE_CONSTANT;
    e->out[1] = value;
    e->out += 2;
    return 1;
}

static int lmc__put_raw(lmc__encoder *e, const uint8_t *row, size_t n)
{
    if ((size_t)(e->end - e->out) < n + 1) return 0;
    e->out[0] = LMC__PLANE_RAW;
    memcpy(e->out + 1, row, n);
    e->out += n + 1;
    return 1;
}

/* How lmc__put_planned ends. SPOILED: as a tree the list takes more bytes than it has, against the
 * plan, which is made from a sample. Nothing is written, but the row is in pieces: the caller makes
 * it again from the elements, and writes it by lmc__put_raw. */
enum lmc__put { LMC__PUT_NO_ROOM, LMC__PUT_DONE, LMC__PUT_SPOILED };

/* A list of n bytes as its plan says; row and spare are lists and are overwritten. root: of
 * lmc__put_root, or NULL. A tree must be shorter than raw, which takes n + 1 bytes with its mode.
 * That a list is constant is looked into, for it may be a guess, or have changed; the tree of one
 * symbol has an escape. */
static enum lmc__put lmc__put_planned(lmc__encoder *e, enum lmc__choice choice,
                                      const lmc__plan *plan, const lmc__parted *root, uint8_t *row,
                                      uint8_t *spare, size_t n)
{
    uint8_t *const start = e->out, *const end = e->end;
    int fits;
    if ((choice == LMC__CHOOSE_CONSTANT || (choice == LMC__CHOOSE_TREE && plan->is_one_symbol)) &&
        lmc__is_constant(row, n))
        return lmc__put_constant(e, row[0]) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    if (choice != LMC__CHOOSE_TREE)
        return lmc__put_raw(e, row, n) ? LMC__PUT_DONE : LMC__PUT_NO_ROOM;
    e->end = start + lmc__min((size_t)(end - start), n);
    fits =
        root ? lmc__put_root(e, plan, root, row, spare, n) : lmc__put_tree(e, plan, row, spare, n);
    e->end = end;
    if (fits) return LMC__PUT_DONE;
    e->out = start;
    return LMC__PUT_SPOILED;
}

#ifndef LMC_NO_QUANTIZE
/* A list of n > 0 bytes in the best way, for callers that cannot make it again: row is not changed.
 * work and spare are lists; sample: as for lmc__choose_list. */
static int lmc__put_list(lmc__encoder *e, const uint8_t *row, uint8_t *work, uint8_t *spare,
                         size_t n, unsigned sample)
{
    lmc__plan *const plan = &e->scratch->plans[0];
    const enum lmc__choice choice = lmc__choose_list(e, plan, row, n, sample);
    if (choice == LMC__CHOOSE_CONSTANT) return lmc__put_constant(e, row[0]);
    if (choice == LMC__CHOOSE_TREE) {
        enum lmc__put put;
        memcpy(work, row, n);
        put = lmc__put_planned(e, choice, plan, NULL, work, spare, n);
        if (put != LMC__PUT_SPOILED) return put == LMC__PUT_DONE;
    }
    return lmc__put_raw(e, row, n);
}
#endif
#endif /* LMC_NO_ENCODER */
