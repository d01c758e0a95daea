#pragma once
#include "base/platform.h"
#include "base/wire_block.h"

/* The tree of a list (spec 6.1, 6.2): canonical Huffman codes, and the leaves of each node.
 *
 * Leaves are numbered in the order of their codes: by length, then by symbol. The last leaf may be
 * the escape, which stands for all symbols without a code. The *code space* has 2^15 places; the
 * share of leaf i is the next 2^(15 - length[i]) of them. The shares fill the space exactly. So the
 * start of a leaf's share, in binary, is the path from the root to the leaf: 0 is left, 1 is right.
 * The share of a node at depth d is an aligned range of 2^(15 - d) places, and so a range of
 * leaves. Leaves are sorted by length: the first leaf and place of each length are the tree.
 *
 * A *rank* is the number of a symbol's leaf. The encoder first maps a list to ranks. An element
 * then goes left at a node if its rank is below the right child's first leaf. Symbols without a
 * code have different ranks, from the escape's on, so that they can be mapped back.
 *
 * Symbols A to E with code lengths 1, 3, 3, 3, 3, and a list of eight, as stored:
 *                 depth 0: leaves [0, 5)                 list    A C A A E A B A
 *                0 /           \ 1                       ranks   0 2 0 0 4 0 1 0
 *                 A    depth 1: leaves [1, 5)            mask    0 1 0 0 1 0 1 0   = 52 hex
 *                      flat, 4 = 2^2 of equal depth
 *                      /     |     |     \               ranks in the right child: 2 4 1
 *                     B      C     D      E              less 1, in two bits: 01 11 00
 *                                                        high bits 0 1 0 = 02, low bits 1 1 0 = 03
 *
 * Nodes are stored in pre-order: 52 for the root; nothing for A, which is one symbol; 02 03 for the
 * flat node. The first bit is the lowest bit of a byte. List sizes are not stored: the flat node
 * has 3 elements, as the root's mask has three 1 bits. */

/* Number of leaves of each length 1 .. 15 in the *frozen trees* (spec 6.4). These code the bytes of
 * masks in which one bit is rarer than the other; a mask's mode byte has the level. Levels from 2
 * on are the best codes if bits are one with probability 2^-(1 + level / 2). Levels 0 and 1 are
 * fast: nearly all leaves are in flat nodes. spec/frozen_trees.py derives the numbers. */
static const uint8_t lmc__frozen_counts[LMC__FROZEN_LEVELS][LMC__MAX_LENGTH] = {
    {0, 0, 0, 0, 0, 0, 32, 160, 64, 0, 0, 0, 0, 0, 0},   /*  0 */
    {0, 0, 0, 0, 0, 16, 32, 64, 112, 32, 0, 0, 0, 0, 0}, /*  1 */
    {0, 0, 1, 0, 8, 11, 17, 56, 2, 68, 56, 0, 28, 7, 2}, /*  2 */
    {0, 1, 0, 4, 4, 0, 28, 2, 54, 1, 69, 2, 54, 3, 34},  /*  3 */
    {0, 1, 0, 7, 1, 0, 27, 1, 0, 56, 0, 2, 68, 3, 90},   /*  4 */
    {1, 0, 0, 3, 5, 0, 3, 25, 0, 1, 55, 0, 3, 68, 92},   /*  5 */
    {1, 0, 0, 4, 4, 0, 0, 27, 1, 0, 0, 47, 9, 1, 162},   /*  6 */
    {1, 0, 0, 6, 2, 0, 0, 0, 27, 1, 0, 0, 6, 51, 162},   /*  7 */
    {1, 0, 0, 6, 2, 0, 0, 0, 28, 0, 0, 0, 0, 37, 182},   /*  8 */
    {1, 0, 0, 7, 1, 0, 0, 0, 0, 22, 6, 0, 0, 5, 214},    /*  9 */
};

/* Symbols of the leaves of all frozen trees, sorted by their number of 1 bits, then by value. */
static const uint8_t lmc__frozen_order[256] = {
    0,   1,   2,   4,   8,   16,  32,  64,  128, 3,   5,   6,   9,   10,  12,  17,  18,  20,  24,
    33,  34,  36,  40,  48,  65,  66,  68,  72,  80,  96,  129, 130, 132, 136, 144, 160, 192, 7,
    11,  13,  14,  19,  21,  22,  25,  26,  28,  35,  37,  38,  41,  42,  44,  49,  50,  52,  56,
    67,  69,  70,  73,  74,  76,  81,  82,  84,  88,  97,  98,  100, 104, 112, 131, 133, 134, 137,
    138, 140, 145, 146, 148, 152, 161, 162, 164, 168, 176, 193, 194, 196, 200, 208, 224, 15,  23,
    27,  29,  30,  39,  43,  45,  46,  51,  53,  54,  57,  58,  60,  71,  75,  77,  78,  83,  85,
    86,  89,  90,  92,  99,  101, 102, 105, 106, 108, 113, 114, 116, 120, 135, 139, 141, 142, 147,
    149, 150, 153, 154, 156, 163, 165, 166, 169, 170, 172, 177, 178, 180, 184, 195, 197, 198, 201,
    202, 204, 209, 210, 212, 216, 225, 226, 228, 232, 240, 31,  47,  55,  59,  61,  62,  79,  87,
    91,  93,  94,  103, 107, 109, 110, 115, 117, 118, 121, 122, 124, 143, 151, 155, 157, 158, 167,
    171, 173, 174, 179, 181, 182, 185, 186, 188, 199, 203, 205, 206, 211, 213, 214, 217, 218, 220,
    227, 229, 230, 233, 234, 236, 241, 242, 244, 248, 63,  95,  111, 119, 123, 125, 126, 159, 175,
    183, 187, 189, 190, 207, 215, 219, 221, 222, 231, 235, 237, 238, 243, 245, 246, 249, 250, 252,
    127, 191, 223, 239, 247, 251, 253, 254, 255};

/* first[16] is n_leaves, and start[16] is 2^15. */
typedef struct lmc__tree {
    unsigned n_leaves;
    unsigned escape;                     /* the escape's leaf; n_leaves if there is none */
    uint16_t first[LMC__MAX_LENGTH + 2]; /* first[L]: number of leaves shorter than L */
    uint16_t start[LMC__MAX_LENGTH + 2]; /* start[L]: first place of the leaves of length L */
    uint8_t length[256];                 /* of leaf i */
    uint8_t symbol[256];                 /* of leaf i; from the escape on: all symbols without a
                                            code */
    uint8_t rank[256];                   /* the inverse of symbol */
} lmc__tree;

/* A node. nesting: 0 in the tree of a list, 1 in a tree of its masks, 2 in one of their masks. */
typedef struct lmc__node {
    unsigned nesting, depth;
    unsigned start;                /* of its share of the code space */
    unsigned first_leaf, end_leaf; /* its leaves: [first_leaf, end_leaf) */
} lmc__node;

typedef struct lmc__children {
    lmc__node left, right;
} lmc__children;

/* Sets first, start, length and n_leaves. counts[L]: number of leaves of length L. */
static void lmc__tree_set_counts(lmc__tree *tree, const unsigned counts[LMC__MAX_LENGTH + 1])
{
    unsigned length, leaf = 0, start = 0;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) {
        tree->first[length] = (uint16_t)leaf;
        tree->start[length] = (uint16_t)start;
        memset(tree->length + leaf, (int)length, counts[length]);
        leaf += counts[length];
        start += counts[length] << (LMC__MAX_LENGTH - length);
    }
    tree->first[length] = (uint16_t)leaf;
    tree->start[length] = (uint16_t)start;
    tree->n_leaves = leaf;
}

/* Number of leaves whose share is below place x, where x is the start of a node's share: all leaves
 * of shorter lengths, and the leaves of the length at x that fit below x. */
LMC__INLINE unsigned lmc__tree_leaves_below(const lmc__tree *tree, unsigned x)
{
    unsigned length = 1;
    while (tree->start[length + 1] <= x && length < LMC__MAX_LENGTH) length++;
    return tree->first[length] + ((x - tree->start[length]) >> (LMC__MAX_LENGTH - length));
}

LMC__INLINE lmc__node lmc__root_of(const lmc__tree *tree, unsigned nesting)
{
    lmc__node root = {0, 0, 0, 0, 0};
    root.nesting = nesting;
    root.end_leaf = tree->n_leaves;
    return root;
}

static lmc__children lmc__get_children(const lmc__tree *tree, lmc__node node)
{
    lmc__children children;
    children.left = children.right = node;
    children.left.depth = children.right.depth = node.depth + 1;
    children.right.start += 1u << (LMC__MAX_LENGTH - 1 - node.depth);
    children.left.end_leaf = children.right.first_leaf =
        lmc__tree_leaves_below(tree, children.right.start);
    return children;
}

/* 1 if all elements of the node are one symbol: it has no bytes in the payload, and no list. */
LMC__INLINE int lmc__is_one_symbol(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf - node.first_leaf == 1 && node.first_leaf != tree->escape;
}

/* The bit planes D of a *flat* node (spec 6.2, case 4), or 0. Its 2^D leaves are all D levels below
 * it: as leaves are sorted and fill its share, all are if the first is. None is the escape. D = 1
 * is an ordinary mask, which may be nested. Above 6 symbols would not fit in unflatten's vector. */
LMC__INLINE unsigned lmc__get_flat_depth(const lmc__tree *tree, lmc__node node)
{
    const unsigned flat_depth = tree->length[node.first_leaf] - node.depth;
    return node.end_leaf <= tree->escape && flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT &&
                   node.end_leaf - node.first_leaf == 1u << flat_depth
               ? flat_depth
               : 0;
}

/* 1 if a mask of n bits has a mode byte, and may be nested (spec 6.3). A mask that is short, or at
 * nesting 2, has none. */
LMC__INLINE int lmc__has_mode(unsigned nesting, size_t n)
{
    return n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
}

#ifndef LMC_NO_ENCODER
/* Completes a tree whose leaves have symbols: the symbols from the escape's rank on, all ranks. */
static void lmc__tree_set_ranks(lmc__tree *tree)
{
    unsigned n_coded = tree->escape, i, s;
    uint8_t coded[256];
    memset(coded, 0, sizeof coded);
    for (i = 0; i < n_coded; i++) coded[tree->symbol[i]] = 1;
    for (i = n_coded, s = 0; s < 256; s++)
        if (!coded[s]) tree->symbol[i++] = (uint8_t)s;
    for (i = 0; i < 256; i++) tree->rank[tree->symbol[i]] = (uint8_t)i;
}
#endif

/* Makes a level's frozen tree, without ranks. flip: 0xFF for masks of mostly ones, else 0. */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip)
{
    unsigned counts[LMC__MAX_LENGTH + 1], i;
    counts[0] = 0;
    for (i = 0; i < LMC__MAX_LENGTH; i++) counts[i + 1] = lmc__frozen_counts[level][i];
    lmc__tree_set_counts(tree, counts);
    tree->escape = 256;
    for (i = 0; i < 256; i++) tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);
}

/* Makes a tree, without ranks. lengths[s - first] < 16: code length of symbol s of [first, last]
 * (0: no code); escape_length: 0 if there is no escape. Returns 0, and changes nothing, unless
 * these are 2 to 256 leaves that fill the code space, and none is longer than the escape (spec
 * 6.1). Sums cannot overflow: they are at most 257 * 2^14. As the codes fill the space (Kraft's
 * equality), every sequence of bits leads to a leaf. */
static int lmc__tree_set_lengths(lmc__tree *tree, const uint8_t *lengths, unsigned first,
                                 unsigned last, unsigned escape_length)
{
    unsigned counts[LMC__MAX_LENGTH + 1], next[LMC__MAX_LENGTH + 1];
    unsigned length, s, used = 0, n = 0; /* used: of the code space */
    memset(counts, 0, sizeof counts);
    for (s = first; s <= last; s++) counts[lengths[s - first]]++;
    counts[0] = 0;
    if (escape_length) counts[escape_length]++;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) {
        used += counts[length] << (LMC__MAX_LENGTH - length);
        n += counts[length];
        if (escape_length && length > escape_length && counts[length]) return 0;
    }
    if (n < 2 || n > 256 || used != 1u << LMC__MAX_LENGTH) return 0;
    lmc__tree_set_counts(tree, counts);
    tree->escape = escape_length ? n - 1 : n;
    for (length = 1; length <= LMC__MAX_LENGTH; length++) next[length] = tree->first[length];
    for (s = first; s <= last; s++)
        if (lengths[s - first]) tree->symbol[next[lengths[s - first]]++] = (uint8_t)s;
    return 1;
}
