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

/* Writes a list of bytes (spec 6), which get_list.h reads: raw, a constant, or a tree of masks.
 *
 * A tree is written by partitioning. The list is mapped to ranks (tree.h). At each node, the kernel
 * partition makes a mask, one bit for each element, and the lists of the elements that go left and
 * right. The mask is written; then both lists are written in the same way. A child's n is the
 * number of ones or zeros in its parent's mask, so it is not stored.
 *
 * The bytes of a mask with few ones, or with few zeros, can be compressed again. Then the mask is
 * *nested*: its bytes are a list, coded by the same recursion with a frozen tree (tree.h). Masks of
 * that tree may be nested, too.
 *
 * Functions here return 0 if the output would go beyond e->end. Then the output is useless, and the
 * list is overwritten. They also return 0 if the list has a symbol without a code and there is no
 * escape, because elements changed after they were counted (put_block.h). Such a symbol's rank is
 * above those of all leaves: it goes right at each node, and is found at the last leaf. */

#ifndef LMC_NO_ENCODER
static int lmc__put_node(lmc__encoder *e, lmc__node node, uint8_t *list, uint8_t *spare, size_t n);

/* 1 if nesting a mask probably saves enough bits for the time that nesting takes (cost.h). A nested
 * mask takes about n / 200 bits more than its entropy. The bytes of a short mask do not reach all
 * nodes of the tree: one node for eight bytes is counted. */
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

/* The level of the frozen tree (spec 6.4) for a mask of n bits, of which `rarer` are the rarer bit.
 * From level 2 on, the level is chosen whose probability has the nearest logarithm. The limits of
 * levels 0 and 1 are where the codes of two levels are equally long (spec/frozen_trees.py). */
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

/* Writes the nested code of a mask of size bytes to `code`, which has room for size bytes. Returns
 * its size, or `size` if it would not be smaller. list and spare: lists of `size` bytes. The mask
 * may already be at e->out, and must stay there if its code is not smaller: so e->out is set to
 * `code` meanwhile. */
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

/* Writes a mask of n bits, `ones` of them set, to e->out, where it may already be. With a mode byte
 * (lmc__has_mode) it may be nested. Modes: 0 raw; 1 + 2 * level + polarity nested. */
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
            if (code) /* there always is room (workspace.h); if not, raw is correct */
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

/* The mask of a class is written as gaps if at most one bit in 2^LMC__GAPS_RARE_SHIFT is the rarer
 * one, and gaps are smaller than the mask. If the mask has at most LMC__GAPS_FEW bits, gaps are
 * also tried, and the smallest form is kept. */
#define LMC__GAPS_RARE_SHIFT 4u
#define LMC__GAPS_FEW ((size_t)1 << 15)

/* Makes a mask of n bits from the positions of its k ones; NULL if there is no room. */
static const uint8_t *lmc__make_mask(lmc__encoder *e, const uint32_t *ones, size_t n, size_t k)
{
    uint8_t *const mask = lmc__push_list(&e->stack, (n + 7) / 8);
    size_t i;
    if (mask) memset(mask, 0, (n + 7) / 8);
    for (i = 0; mask && i < k; i++) mask[ones[i] / 8] |= (uint8_t)(1u << (ones[i] & 7));
    return mask;
}

/* Writes the mask of a class of n elements, k of them coded. ones: positions of the mask's ones.
 * mask or ones may be NULL, but not both. Mode 21 + 2 * s + polarity: gaps (spec 6.3). */
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

/* Writes a partitioned inner node: its mask, which may already be in the output, and its children.
 * left and right: their two lists, each with room for n.
 *
 * Two buffers are enough for a whole tree. The left child overwrites its list, and its spare is the
 * free part of `right`. Then all of `left` is free, and is the right child's spare.
 *
 *     left    |  n - n_right elements  | free         |
 *     right   |  n_right elements      | left's spare |      while the left child is coded
 *
 *     left    |  right's spare                        |
 *     right   |  n_right elements      | free         |      while the right child is coded
 *
 * Kernels may write LMC__PAD bytes behind a list. They may do so here: behind the left child's
 * elements is free room, behind its spare the slack of `right`. */
static int lmc__put_sides(lmc__encoder *e, lmc__node node, lmc__children children,
                          const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    return lmc__put_mask(e, node.nesting, mask, n, n_right) &&
           lmc__put_node(e, children.left, left, right + n_right, n - n_right) &&
           lmc__put_node(e, children.right, right, left, n_right);
}

/* 1 if the node has the tree's last leaf, and the tree has neither an escape nor a code for each
 * byte. Only such a node can have symbols without a code. */
LMC__INLINE int lmc__may_have_uncoded(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf == tree->n_leaves && tree->escape == tree->n_leaves &&
           tree->n_leaves < 256;
}

/* 1 if the list has only ranks of leaves. */
static int lmc__are_coded(const lmc__tree *tree, const uint8_t *list, size_t n)
{
    size_t i;
    unsigned highest = 0;
    for (i = 0; i < n; i++) highest = list[i] > highest ? list[i] : highest;
    return highest < tree->n_leaves;
}

/* 1 if the node's list is known without reading it: all of it is one symbol. */
LMC__INLINE int lmc__is_known(const lmc__tree *tree, lmc__node node)
{
    return lmc__is_one_symbol(tree, node) && !lmc__may_have_uncoded(tree, node);
}

/* Writes a node of e->scratch->trees[node.nesting]. list: ranks of its n elements, overwritten;
 * spare: a list of n.
 *
 * What is written (spec 6.2): nothing if there are no elements or one symbol; for the escape, the
 * symbols, mapped back from ranks; for a flat node, bit planes; else a mask and two children. The
 * partition writes the mask to its place in the output. Only if it does not fit there, the mask is
 * made on the stack: a nested mask may fit. A child that is one symbol needs no list.
 *
 * Recursion is at most 15 deep in each of up to three trees. Time is O(n) for each level of the
 * tree, so at most 15 n; for lists with few frequent symbols little more than n. */
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
    if (mode_size + row > room) { /* it may fit if it is nested */
        if (!mode_size || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, lmc__is_known(tree, children.left) ? NULL : list,
                              lmc__is_known(tree, children.right) ? NULL : spare, list, n,
                              children.right.first_leaf);
    fits = lmc__put_sides(e, node, children, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* Writes the header of a tree (spec 6.1): mode byte, range of symbols that have a code, and four
 * bits for the length of each code, then of the escape. */
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

/* Makes the tree of a plan, with ranks. Returns 0 if the plan is no tree, which cannot happen. */
static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* Writes a list of n bytes as a tree, with mode byte. The lists row and spare are overwritten. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *const tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, lmc__root_of(tree, 0), row, spare, n);
}

/* As lmc__put_tree, for a plane whose root the kernel split_root has partitioned by the ranks of
 * e->scratch->root_tree, to root->mask, row and spare. */
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

/* Results of lmc__put_planned. SPOILED: the tree is longer than the list, because the plan comes
 * from a sample. e->out is unchanged, but the row is overwritten: the caller makes it again from
 * the elements, and writes it by lmc__put_raw. */
enum lmc__put { LMC__PUT_NO_ROOM, LMC__PUT_DONE, LMC__PUT_SPOILED };

/* Writes a list of n bytes as its plan says. The lists row and spare are overwritten. root: as for
 * lmc__put_root, or NULL. A tree must be shorter than raw, which takes n + 1 bytes with its mode.
 * It checks whether a list is really constant: a sample may be wrong, or elements have changed. */
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

/* Writes a list of n > 0 bytes in the best way, without changing row. work and spare are lists;
 * sample: as quarters of lmc__choose_list. */
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
#endif /* LMC_NO_ENCODER */
