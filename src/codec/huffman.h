#pragma once
#include "base/platform.h"
#include "base/wire_block.h"

/* Code lengths for counted symbols, at most 15 bits. Only integers are used, and ties depend only
 * on the order of the weights: so all machines find the same lengths. */

#ifndef LMC_NO_ENCODER
/* Sorts n different numbers (see lmc__choose_plane) in descending order: counts, given in the order
 * of their symbols. Counts of exponents rise to a peak and fall again. So taking the smaller of
 * the two outer counts again and again almost sorts them; Shell's sort (Knuth's gaps) ends it. */
static void lmc__sort_descending(uint32_t *v, unsigned n)
{
    uint32_t sorted[256];
    unsigned first = 0, last = n - 1, gap, i;
    for (i = n; i > 0;) sorted[--i] = v[first] < v[last] ? v[first++] : v[last--];
    for (gap = n > 40 ? 121 : 1; gap > 0; gap = gap / 3)
        for (i = gap; i < n; i++) {
            uint32_t x = sorted[i];
            unsigned j = i;
            for (; j >= gap && sorted[j - gap] < x; j -= gap) sorted[j] = sorted[j - gap];
            sorted[j] = x;
        }
    memcpy(v, sorted, n * sizeof *v);
}

/* Huffman code lengths, at most limit, for weights[0, n) in descending order, 2 <= n <= 256.
 * lengths are set in ascending order, and the codes fill the code space exactly.
 *
 * 1. The tree, with two queues (van Leeuwen, 1976): leaves and inner nodes. The two lightest nodes
 *    without a parent get one, until one such node is left. Leaves are taken from the lightest on;
 *    parents are made in ascending order of weight, so both queues are sorted.
 *
 * 2. The number of codes of each length. Inner nodes are visited from the root down, in the reverse
 *    order of their making. n_of[L] counts the nodes at depth L that have not been visited.
 *    Visiting a node removes one node of its depth and adds two children below.
 *
 * 3. The limit, as in libdeflate: if a node's children would be deeper than the limit, the deepest
 *    leaf that is above the limit gets two children instead. The sum of 2^-length stays 1. There
 *    always is such a leaf: with all leaves at the limit, there would be 2^limit > n. The result is
 *    slightly longer than the best limited code.
 *
 * 4. The heaviest weights get the shortest codes. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n,
                                 unsigned limit)
{
    uint32_t sum[256];    /* of inner nodes, in the order of making; node i is child n + i */
    uint16_t parent[512]; /* of leaves and inner nodes: an inner node's number */
    uint8_t depth[256];   /* of inner nodes */
    unsigned n_of[LMC__MAX_LENGTH + 1] = {0};
    unsigned leaf = n, next = 0, made, length, i;
    for (made = 0; made < n - 1; made++) {
        uint32_t w = 0;
        for (i = 0; i < 2; i++) {
            unsigned child;
            if (leaf > 0 && (next == made || weights[leaf - 1] <= sum[next])) {
                child = --leaf;
                w += weights[child];
            } else {
                child = n + next;
                w += sum[next++];
            }
            parent[child] = (uint16_t)made;
        }
        sum[made] = w;
    }
    depth[n - 2] = 0; /* the root, which was made last */
    n_of[1] = 2;
    for (i = n - 2; i-- > 0;) {
        depth[i] = (uint8_t)(depth[parent[n + i]] + 1);
        length = depth[i] < limit ? depth[i] : limit - 1;
        while (n_of[length] == 0) length--;
        n_of[length]--;
        n_of[length + 1] += 2;
    }
    for (length = 1, i = 0; length <= limit; length++) {
        memset(lengths + i, (int)length, n_of[length]);
        i += n_of[length];
    }
}
#endif /* LMC_NO_ENCODER */
