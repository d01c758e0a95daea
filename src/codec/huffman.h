#pragma once
#include "base/platform.h"
#include "base/wire_block.h"

/* Code lengths for counted symbols, at most 15 bits. Integers only, and ties are decided by the
 * order of the weights: the same everywhere. */

#ifndef LMC_NO_ENCODER
/* Sorts the counts of symbols, in ascending order of the symbol, for a start. They rise to a peak
 * and fall again, as exponents do: taking the smaller of both ends all but sorts them, and Shell's
 * sort (gaps by Knuth) has little left to do. No two are equal (see lmc__choose_plane). */
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

/* Huffman code lengths, at most limit, of weights[0, n) in descending order, 2 <= n <= 256. lengths
 * come out ascending, and the codes fill the code space exactly.
 *
 * 1. The tree, by two queues (van Leeuwen, 1976). The two lightest nodes that have no parent get
 *    one, until one node is left. Leaves are taken from the lightest up, and parents are made in
 *    ascending order of weight, so both queues are sorted.
 *
 * 2. The number of codes of each length. Inner nodes are visited from the root down: in the
 *    opposite order to that in which they were made. n_of[L] counts the nodes at depth L that have
 *    not been visited. To visit a node takes one of its depth away and adds its two children.
 *
 * 3. The limit, as libdeflate does it: a node whose children would lie too deep is taken for one at
 *    the greatest depth below the limit that has a leaf, and that leaf gets the children instead.
 *    The sum of 2^-length stays 1. There always is such a leaf: if all were at the limit, they
 *    would be 2^limit. With the limit this is not quite the best code: 0.03 % more bits in the mean
 *    where it is needed, which takes weights that grow like Fibonacci numbers.
 *
 * 4. Short codes to heavy weights. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n,
                                 unsigned limit)
{
    uint32_t sum[256];    /* of inner nodes, in the order they are made; node i is child n + i */
    uint16_t parent[512]; /* of leaves and inner nodes: an inner node */
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
