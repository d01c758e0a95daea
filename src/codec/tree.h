#pragma once
#include "base/platform.h"
#include "base/wire_block.h"

/* The tree of a mask tree (spec 6.1, 6.2): canonical codes, and what its nodes own.
 *
 * Leaves are numbered in the order of their codes: by length, then by symbol; the escape, which
 * stands for every symbol without a code of its own, is the last. Leaf i has length[i] bits and
 * owns 2^(15 - length[i]) of a code space of 2^15, one leaf's share behind the other's. The shares
 * fill it exactly, so the path from the root to a leaf, 0 left and 1 right, is where its share
 * starts, in binary. A node at depth d owns an aligned 2^(15 - d) of the space: a range of leaves.
 * As the leaves are in order of length, one number for each length says where they start; no node
 * is stored anywhere.
 *
 * A *rank* is the number of a symbol's leaf. The encoder maps a list to ranks first. Then "goes
 * left at this node" is "rank below the first leaf of the right child": one comparison. Symbols
 * without a code have the ranks from the escape's on, each another one, so that they can be mapped
 * back.
 *
 * Symbols A to E with code lengths 1, 3, 3, 3, 3, and a list of eight, as stored:
 *
 *                 depth 0: leaves [0, 5)                 list    A C A A E A B A
 *                0 /           \ 1                       ranks   0 2 0 0 4 0 1 0
 *                 A    depth 1: leaves [1, 5)            mask    0 1 0 0 1 0 1 0   = 52 hex
 *                      flat, 4 = 2^2 of equal depth
 *                      /     |     |     \               ranks of the right child's: 2 4 1
 *                     B      C     D      E              less 1, in two bits: 01 11 00
 *                                                        high bits 0 1 0 = 02, low bits 1 1 0 = 03
 *
 * Nodes stand in pre-order: 52 of the root; nothing for A, whose elements are all alike; 02 03 for
 * the flat node. Bits are counted from the lowest of a byte. There is no length of anything: the 3
 * elements of the flat node are the ones of the root's mask. */

/* The leaves of each length 1 .. 15, of the frozen trees (spec 6.4), which code the bytes of masks
 * in which one bit is rarer than the other. A mask names one by its mode byte, and needs no header.
 *
 * Levels from 2 on: the best code of at most 15 bits for bytes whose bits are one with probability
 * 2^-(1 + level / 2), each by itself: 1/4 at level 2, 1/45 at level 9. Levels 0 and 1, for about
 * 0.42 and 0.36, as at the roots of ordinary planes, are the fast ones: nearly all leaves are in
 * flat nodes. spec/frozen_trees.py derives the numbers: --c prints this table, --why the costs. */
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

/* The symbols of all frozen trees in the order of their leaves: by their ones, then by value. */
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

/* For the tree in the picture above: n_leaves 5, length 1 3 3 3 3, symbol A B C D E, and
 *
 *     L           1      2      3      4 .. 16
 *     first[L]    0      1      1      5             leaves shorter than L
 *     start[L]    0    2^14   2^14   2^15            where the first of length L would start
 *
 * Entry 16, one behind the longest length, is the end of all: n_leaves and 2^15. */
typedef struct lmc__tree {
    unsigned n_leaves;
    unsigned escape;                     /* the escape's leaf; n_leaves if there is none */
    uint16_t first[LMC__MAX_LENGTH + 2]; /* first[L]: number of leaves shorter than L */
    uint16_t start[LMC__MAX_LENGTH + 2]; /* start[L]: their share of the code space of 2^15 */
    uint8_t length[256];                 /* of leaf i */
    uint8_t symbol[256];                 /* of leaf i; from the escape's on: all other symbols */
    uint8_t rank[256];                   /* the inverse of symbol */
} lmc__tree;

/* A node. nesting: of which tree; 0 is a list's, 1 .. code the masks of the one before. */
typedef struct lmc__node {
    unsigned nesting, depth;
    unsigned start;                /* of its share of the code space */
    unsigned first_leaf, end_leaf; /* it owns leaves [first_leaf, end_leaf) */
} lmc__node;

typedef struct lmc__children {
    lmc__node left, right;
} lmc__children;

/* From counts[L], the number of leaves of length L: first, start and length. */
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

/* Number of leaves that start below x of the code space, where x is the border of a node: all
 * shorter ones, and of the length that has its shares around x as many as fit below it. */
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

/* 1 if all elements of the node are one symbol: it takes no bytes and needs no list. */
LMC__INLINE int lmc__is_one_symbol(const lmc__tree *tree, lmc__node node)
{
    return node.end_leaf - node.first_leaf == 1 && node.first_leaf != tree->escape;
}

/* The planes of a flat node (spec 6.2, case 4), or 0 if it is none: leaves of one length, D below
 * the node, are 2^D of them. D = 1 is a mask as any other, which may be nested. Above 6 the symbols
 * would not fit in the one vector that unflatten looks them up in. The escape is no symbol. */
LMC__INLINE unsigned lmc__get_flat_depth(const lmc__tree *tree, lmc__node node)
{
    const unsigned length = tree->length[node.first_leaf], flat_depth = length - node.depth;
    return node.end_leaf <= tree->escape && tree->length[node.end_leaf - 1] == length &&
                   flat_depth >= 2 && flat_depth <= LMC__MAX_FLAT
               ? flat_depth
               : 0;
}

/* A mask of n bits has a mode byte and may be nested (spec 6.3). Others are too short to gain by
 * it, or stand at nesting 2. */
LMC__INLINE int lmc__has_mode(unsigned nesting, size_t n)
{
    return n >= LMC__MASK_MODE_MIN && nesting < LMC__MAX_NESTING;
}

#ifndef LMC_NO_ENCODER
/* Of a tree whose leaves have symbols: those of the ranks from the escape's on, and the ranks. */
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

/* The frozen tree of a level; without ranks, which only encoders need. Its symbols are the bytes of
 * a mask, exclusive-or flip: 0xFF for masks of mostly ones. */
static void lmc__tree_set_frozen(lmc__tree *tree, unsigned level, unsigned flip)
{
    unsigned counts[LMC__MAX_LENGTH + 1], i;
    counts[0] = 0;
    for (i = 0; i < LMC__MAX_LENGTH; i++) counts[i + 1] = lmc__frozen_counts[level][i];
    lmc__tree_set_counts(tree, counts);
    tree->escape = 256;
    for (i = 0; i < 256; i++) tree->symbol[i] = (uint8_t)(lmc__frozen_order[i] ^ flip);
}

/* From lengths[s - first] < 16, the code length of symbol s of [first, last] (0: it has no code),
 * and the escape's (0: there is none). Without ranks. Returns 0 if that is no tree (spec 6.1): a
 * tree of 2 to 256 leaves that fill the code space is found to be one before anything is set. Sums
 * cannot overflow: 257 leaves of length 1 would use 257 * 2^14. By Kraft's equality every sequence
 * of bits is then one of the codes, so a decoder can never be led to a place that is no leaf. */
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
