#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/tree.h"
#include "codec/workspace.h"
#include "codec/plan.h"

static int lmc__put_node(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                         unsigned b, uint8_t *list, uint8_t *spare, size_t n);

/* A mask is worth nesting if that is likely to save 24 bytes and a hundredth of it: a byte saved
 * then costs some 30 cycles of decoding, for 9 nodes or more and the mask's bytes. What a frozen
 * tree adds to the entropy is counted as a 200th. */
static int lmc__is_worth_nesting(size_t n, size_t ones)
{
    const uint64_t information =
        (uint64_t)n * lmc__log2((uint32_t)n) -
        (uint64_t)ones * lmc__log2((uint32_t)(ones ? ones : 1)) -
        (uint64_t)(n - ones) * lmc__log2((uint32_t)(n > ones ? n - ones : 1));
    return (information >> 16) + 8 * 24 + n / 100 + n / 200 < n;
}

/* The level (spec 8.4) for masks whose rarer bit is `ones` of n. The first two borders are where
 * the costs of the trees are equal; behind them levels are 2^-(L / 2 + 1), and the nearest in the
 * logarithm is taken. */
static unsigned lmc__choose_level(size_t ones, size_t n)
{
    static const uint16_t border[LMC__FROZEN_LEVELS - 1] = {25690, 20289, 13777, 9742, 6889,
                                                            4871,  3444,  2436,  1722};
    unsigned level = 0;
    while (level < LMC__FROZEN_LEVELS - 1 && (uint64_t)ones << 16 < (uint64_t)n * border[level])
        level++;
    return level;
}

/* A mask of n bits, `ones` of them set, as mode byte and code, to e->out; it may stand at e->out +
 * 1 already. Returns 0 if there is no room. */
static int lmc__put_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                         size_t ones)
{
    const size_t size = (n + 7) / 8, rarer = lmc__min(ones, n - ones);
    uint8_t *const mode = e->out;
    if (lmc__is_worth_nesting(n, ones)) {
        const unsigned polarity = ones > n - ones, level = lmc__choose_level(rarer, n);
        lmc__tree *tree = &e->scratch->trees[nesting + 1];
        uint8_t *const end = e->end, *const top = e->stack.top;
        uint8_t *list = lmc__push_list(&e->stack, size), *spare = lmc__push_list(&e->stack, size);
        uint8_t *code = lmc__push_list(&e->stack, size);
        size_t coded = size;
        if (code) {
            unsigned i;
            lmc__tree_set_frozen(tree, level, polarity ? 0xFF : 0);
            for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
            e->k->map(list, mask, size, tree->rank);
            e->out = code;
            e->end = code + size - 1; /* it must save a byte */
            if (lmc__put_node(e, nesting + 1, 0, 0, 0, tree->n_leaves, list, spare, size))
                coded = (size_t)(e->out - code);
        }
        e->end = end;
        e->out = mode;
        e->stack.top = top;
        if (coded < size) {
            if (coded + 1 > (size_t)(end - mode)) return 0;
            mode[0] = (uint8_t)(1 + 2 * level + polarity);
            memcpy(mode + 1, code, coded);
            e->out += coded + 1;
            return 1;
        }
    }
    if (size + 1 > (size_t)(e->end - mode)) return 0;
    mode[0] = 0;
    if (mask != mode + 1) memcpy(mode + 1, mask, size);
    e->out += size + 1;
    return 1;
}

/* The same where masks of so few bits and so deep have no mode byte. */
static int lmc__put_list_mask(lmc__encoder *e, unsigned nesting, const uint8_t *mask, size_t n,
                              size_t ones)
{
    const size_t row = (n + 7) / 8;
    if (n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING)
        return lmc__put_mask(e, nesting, mask, n, ones);
    if (row > (size_t)(e->end - e->out)) return 0;
    if (mask != e->out) memcpy(e->out, mask, row);
    e->out += row;
    return 1;
}

/* What is left of an inner node that is partitioned: its mask, which may lie at e->out already, and
 * the children; left and right are the two lists, each with room for n. Returns 0 if there is no
 * room. */
static int lmc__put_sides(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                          unsigned b, const uint8_t *mask, uint8_t *left, uint8_t *right, size_t n,
                          size_t n_right)
{
    uint8_t *const top = e->stack.top;
    lmc__split split;
    lmc__set_split(&e->scratch->trees[nesting], depth, x, a, b, &split);
    if (!lmc__put_list_mask(e, nesting, mask, n, n_right)) return 0;
    e->stack.top = top;
    /* The left child works in place, with what is behind the right list as its spare; then its room
     * is the right child's spare. */
    return lmc__put_node(e, nesting, depth + 1, x, a, split.middle, left, right + n_right,
                         n - n_right) &&
           lmc__put_node(e, nesting, depth + 1, split.half, split.middle, b, right, left, n_right);
}

/* Node(depth, x) of the tree of this nesting, which owns leaves [a, b); list: ranks of its n
 * elements, overwritten; spare: a list of n. Returns 0 if there is no room. */
static int lmc__put_node(lmc__encoder *e, unsigned nesting, unsigned depth, unsigned x, unsigned a,
                         unsigned b, uint8_t *list, uint8_t *spare, size_t n)
{
    const lmc__tree *tree = &e->scratch->trees[nesting];
    const size_t room = (size_t)(e->end - e->out), row = (n + 7) / 8;
    unsigned flat, has_mode;
    size_t n_right;
    uint8_t *mask, *const top = e->stack.top;
    lmc__split split;
    int fits;

    if (n == 0 || (b - a == 1 && a != tree->escape)) return 1;
    if (b - a == 1) {
        if (n > room) return 0;
        e->k->map(e->out, list, n, tree->symbol);
        e->out += n;
        return 1;
    }
    flat = lmc__tree_flat_depth(tree, a, b, depth);
    if (flat) {
        if (flat * row > room) return 0;
        e->k->flatten(e->out, list, n, a, flat);
        e->out += flat * row;
        return 1;
    }
    lmc__set_split(tree, depth, x, a, b, &split);
    has_mode = n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
    mask = e->out + has_mode;
    if (has_mode + row > room) { /* it may yet fit if it is nested */
        if (!has_mode || (mask = lmc__push_list(&e->stack, row)) == NULL) return 0;
    }
    n_right = e->k->partition(mask, split.is_left_leaf ? NULL : list,
                              split.is_right_leaf ? NULL : spare, list, n, split.middle);
    fits = lmc__put_sides(e, nesting, depth, x, a, b, mask, list, spare, n, n_right);
    e->stack.top = top;
    return fits;
}

/* The header of a tree (spec 8.1). Returns 0 if there is no room. */
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

static int lmc__tree_set_plan(lmc__tree *tree, const lmc__plan *plan)
{
    if (!lmc__tree_set_lengths(tree, plan->lengths + plan->first, plan->first, plan->last,
                               plan->escape_length))
        return 0;
    lmc__tree_set_ranks(tree);
    return 1;
}

/* One plane of n elements (spec 8), as the plan says; row and spare are lists and are overwritten.
 * Returns 0 if there is no room. */
static int lmc__put_tree(lmc__encoder *e, const lmc__plan *plan, uint8_t *row, uint8_t *spare,
                         size_t n)
{
    lmc__tree *tree = &e->scratch->trees[0];
    if (!lmc__put_tree_header(e, plan) || !lmc__tree_set_plan(tree, plan)) return 0;
    e->k->map(row, row, n, tree->rank);
    return lmc__put_node(e, 0, 0, 0, 0, tree->n_leaves, row, spare, n);
}

/* The same for a plane that has been mapped by e->scratch->root_tree and partitioned. */
static int lmc__put_root(lmc__encoder *e, const lmc__plan *plan, const lmc__parted *root,
                         uint8_t *row, uint8_t *spare, size_t n)
{
    lmc__tree *tree = &e->scratch->trees[0];
    *tree = e->scratch->root_tree;
    return lmc__put_tree_header(e, plan) &&
           lmc__put_sides(e, 0, 0, 0, 0, tree->n_leaves, root->mask, row, spare, n, root->n_right);
}
