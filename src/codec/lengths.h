#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "codec/cost.h"
#include "codec/huffman.h"

/* Chooses code lengths. Huffman's lengths take the fewest bits. But in trees with many leaves (fp8,
 * fp16, int8) nearly each bit of a code takes a merge. An aligned group of 2, 4 .. 64 leaves of one
 * length is one flat node (tree.h), which replaces up to six merges.
 *
 * So the symbols, sorted by descending count, are also grouped to *units* of 2, 4 .. 32, and
 * Huffman's algorithm is run on the units. A unit of 2^D symbols at depth d is a flat node: its
 * leaves have length d + D. This costs few bits, because neighbours in that order have similar
 * counts. */

#ifndef LMC_NO_ENCODER
#define LMC__MAX_LOG2_UNIT 5u

/* The time of a tree with n leaves: weights descend, lengths ascend, and the escape, if there is
 * one, is last. Each leaf is counted in the largest possible flat node: 2^D leaves of one length
 * that begin at a multiple of 2^D. This is an estimate: a real tree sorts leaves of one length by
 * symbol. */
static uint64_t lmc__tree_time(const uint32_t *weights, const uint8_t *lengths, unsigned n,
                               int has_escape)
{
    uint64_t time = 0;
    unsigned at = 0; /* place in the code space */
    unsigned i, j, next = 0, end = 0, depth;
    for (i = 0; i < n; i += 1u << depth) {
        const unsigned length = lengths[i], place = at >> (LMC__MAX_LENGTH - length);
        uint32_t weight = 0; /* of a sample or a block: below 2^23 */
        if (i == next) {
            while (next < n && lengths[next] == length) next++;
            end = has_escape && next == n ? n - 1 : next;
        }
        depth = 0;
        while (depth < LMC__MAX_FLAT && depth < length && i + (2u << depth) <= end &&
               (place & ((2u << depth) - 1)) == 0)
            depth++;
        for (j = i; j < i + (1u << depth); j++) weight += weights[j];
        time += depth < 2 ? (uint64_t)weight *
                                ((length - 1) * lmc__merge_time[0] + lmc__merge_time[1 + depth])
                          : (uint64_t)weight *
                                ((length - depth) * lmc__merge_time[0] + lmc__flat_time[depth]);
        at += (1u << depth) << (LMC__MAX_LENGTH - length);
    }
    return time;
}

/* The cost of a code with these lengths, as time; worth: of a bit (cost.h). */
static uint64_t lmc__code_cost(const uint32_t *weights, const uint8_t *lengths, unsigned n,
                               int has_escape, uint32_t worth)
{
    uint64_t bits = 0;
    unsigned i;
    for (i = 0; i < n; i++) bits += (uint64_t)weights[i] * lengths[i];
    return bits * worth + lmc__tree_time(weights, lengths, n, has_escape);
}

/* Sets ascending code lengths for weights[0, n) in descending order, 2 <= n <= 256. Returns their
 * number: n, or n rounded up to a multiple of a unit, at most 256; the weights from n on are set to
 * 0. With has_escape one weight is the escape's, and the last code will be its code. */
static unsigned lmc__choose_lengths(uint8_t lengths[256], uint32_t weights[256], unsigned n,
                                    int has_escape, uint32_t worth)
{
    uint32_t sums[128];
    uint8_t trial[256], depths[128];
    unsigned log2_unit, best_n = n, i;
    uint64_t best;
    memset(weights + n, 0, (256 - n) * sizeof *weights);
    lmc__huffman_lengths(lengths, weights, n, LMC__MAX_LENGTH);
    if (n < 16) return n;
    best = lmc__code_cost(weights, lengths, n, has_escape, worth);
    for (log2_unit = 1; log2_unit <= LMC__MAX_LOG2_UNIT && n >= 4u << log2_unit; log2_unit++) {
        const unsigned n_units = (n + (1u << log2_unit) - 1) >> log2_unit,
                       n_leaves = n_units << log2_unit;
        uint64_t cost;
        memset(sums, 0, n_units * sizeof *sums);
        for (i = 0; i < n; i++) sums[i >> log2_unit] += weights[i];
        lmc__huffman_lengths(depths, sums, n_units, LMC__MAX_LENGTH - log2_unit);
        for (i = 0; i < n_leaves; i++) trial[i] = (uint8_t)(depths[i >> log2_unit] + log2_unit);
        cost = lmc__code_cost(weights, trial, n_leaves, has_escape, worth);
        if (cost >= best) continue;
        best = cost;
        best_n = n_leaves;
        memcpy(lengths, trial, n_leaves);
    }
    return best_n;
}
#endif /* LMC_NO_ENCODER */
