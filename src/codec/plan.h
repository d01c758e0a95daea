#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "codec/workspace.h"

/* log2(v) * 65536 for v >= 1, within 8; the same on every machine. Between the entries of the
 * table: straight lines. */
LMC__INLINE uint32_t lmc__log2(uint32_t v)
{
    /* round(65536 * log2(1 + i / 64)) */
    static const uint32_t table[65] = {
        0,     1466,  2909,  4331,  5732,  7112,  8473,  9814,  11136, 12440, 13727, 14996, 16248,
        17484, 18704, 19909, 21098, 22272, 23433, 24579, 25711, 26830, 27936, 29029, 30109, 31178,
        32234, 33279, 34312, 35334, 36346, 37346, 38336, 39316, 40286, 41246, 42196, 43137, 44068,
        44990, 45904, 46809, 47705, 48593, 49472, 50344, 51207, 52063, 52911, 53751, 54584, 55410,
        56229, 57040, 57845, 58643, 59434, 60219, 60997, 61769, 62534, 63294, 64047, 64794, 65536};
    unsigned exponent, i;
    uint32_t mantissa, below, fraction;
#if defined(__GNUC__)
    exponent = 31u - (unsigned)__builtin_clz(v);
#else
    for (exponent = 0; v >> exponent > 1;) exponent++;
#endif
    if (exponent <= 6)
        return (exponent << 16) +
               table[(v << (6 - exponent)) - 64]; /* most counts of a sample: between no entries */
    mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent); /* 65536 .. 131071 */
    i = (mantissa >> 10) & 63;
    fraction = mantissa & 1023;
    below = table[i];
    return (exponent << 16) + below + (((table[i + 1] - below) * fraction + 512) >> 10);
}

/* total * log2(total) - sum of counts * log2(counts), which add up to total: their order-0
 * information in units of 2^-16 bits. Not negative, for no count is more than total, and lmc__log2
 * never descends. */
static uint64_t lmc__entropy_q16(const uint32_t counts[256], uint32_t total)
{
    uint64_t bits = (uint64_t)total * lmc__log2(total), symbols = 0;
    int s;
    for (s = 0; s < 256; s++)
        if (counts[s]) symbols += (uint64_t)counts[s] * lmc__log2(counts[s]);
    return bits - symbols;
}

/* The same in bits, rounded down. */
static uint64_t lmc__entropy(const uint32_t counts[256], uint32_t total)
{
    return lmc__entropy_q16(counts, total) >> 16;
}

/* Huffman code lengths of weights[0, n) in descending order, n >= 2, at most LMC__MAX_LENGTH:
 * lengths ascend. Two queues (van Leeuwen, 1976): leaves from the lightest up, and the sums made so
 * far, which come in ascending order. */
static void lmc__huffman_lengths(uint8_t *lengths, const uint32_t *weights, unsigned n)
{
    uint32_t sum[256]; /* inner nodes, in the order they are made; node i has index n + i */
    uint16_t parent[512];
    uint8_t depth[256]; /* of inner nodes */
    unsigned leaf = n, next = 0, made, i, kraft = 0;
    const unsigned one = 1u << LMC__MAX_LENGTH;
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
    depth[n - 2] = 0;
    for (i = n - 2; i-- > 0;)
        depth[i] = (uint8_t)(depth[parent[n + i]] + 1); /* a parent is made after its children */
    for (i = 0; i < n; i++) {
        lengths[i] = (uint8_t)lmc__min(depth[parent[i]] + 1u, LMC__MAX_LENGTH);
        kraft += one >> lengths[i];
    }
    /* Cut lengths took too much of the code space: lengthen the lightest that can be, then give
     * back what is left over. */
    for (i = n; kraft > one;) {
        if (lengths[i - 1] == LMC__MAX_LENGTH) {
            i--;
            continue;
        }
        lengths[i - 1]++;
        kraft -= one >> lengths[i - 1];
    }
    for (i = 0; i < n && kraft < one; i++)
        while (lengths[i] > 1 && kraft + (one >> lengths[i]) <= one) {
            kraft += one >> lengths[i];
            lengths[i]--;
        }
    for (i = 1; i < n; i++) { /* the repair can break the order by a step or two */
        uint8_t length = lengths[i];
        unsigned j = i;
        for (; j > 0 && lengths[j - 1] > length; j--) lengths[j] = lengths[j - 1];
        lengths[j] = length;
    }
}

/* The counts of weights rise to a peak and fall again: taking the smaller of both ends all but
 * sorts them. */
static void lmc__sort_descending(uint32_t *v, unsigned n)
{
    uint32_t sorted[256];
    unsigned first = 0, last = n - 1, gap, i;
    for (i = n; i > 0;) sorted[--i] = v[first] < v[last] ? v[first++] : v[last--];
    for (gap = n > 40 ? 121 : 1; gap > 0; gap = gap / 3) /* Shell's sort; gaps by Knuth */
        for (i = gap; i < n; i++) {
            uint32_t x = sorted[i];
            unsigned j = i;
            for (; j >= gap && sorted[j - gap] < x; j -= gap) sorted[j] = sorted[j - gap];
            sorted[j] = x;
        }
    memcpy(v, sorted, n * sizeof *v);
}

/* What a plane's counts say. */
enum lmc__choice {
    LMC__CHOOSE_RAW,
    LMC__CHOOSE_CONSTANT,
    LMC__CHOOSE_TREE,
    LMC__CHOOSE_PACKED /* by joint coding only */
};

/* A tree must save 1/LMC__MIN_SAVING of the plane, or raw is chosen: it decodes at the speed of a
 * copy. */
#define LMC__MIN_SAVING 200u

static unsigned lmc__count_symbols(const uint32_t counts[256])
{
    unsigned n = 0, s;
    for (s = 0; s < 256; s++) n += counts[s] != 0;
    return n;
}

/* Not worth a tree. For each symbol 1 / (2 ln 2) of a bit is added, about 6/8: by that a sample's
 * entropy is too low (Miller, 1955). With 7/8, planes near the border count as raw, too: two
 * standard deviations for 2048 elements of 256 symbols. */
static int lmc__is_raw(const uint32_t counts[256], uint32_t total, unsigned eighths)
{
    return lmc__entropy(counts, total) + (lmc__count_symbols(counts) - 1) * eighths / 8 >=
           (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
}

/* Choose how to code n elements of which `total`, a sample or all of them, were counted. CONSTANT
 * means: the sample is. The tree: Huffman lengths over the counted symbols; the rarest go to the
 * escape as long as that costs less than a 512th of a bit per element (fewer nodes to walk), as
 * does every symbol that a sample did not see. */
static enum lmc__choice lmc__choose_plane(lmc__plan *plan, const uint32_t counts[256],
                                          uint32_t total, size_t n)
{
    uint32_t order[256]; /* count << 8 | 255 - symbol; most frequent first, then by symbol */
    uint32_t weights[257], escaped = 0;
    uint8_t lengths[257];
    uint64_t bits = 0, escaped_log = 0;
    unsigned n_symbols = 0, n_kept, n_leaves, i, s;
    const uint64_t enough = (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
    const int sampled = total < n;
    int has_escape;

    for (s = 0; s < 256; s++)
        if (counts[s]) order[n_symbols++] = counts[s] << 8 | (255 - s);
    plan->is_one_symbol = n_symbols == 1;
    plan->bits = 8 * (uint64_t)n;
    if (n_symbols == 1 && !sampled) {
        plan->bits = 8;
        return LMC__CHOOSE_CONSTANT;
    }
    if (lmc__is_raw(counts, total, 6)) return LMC__CHOOSE_RAW;
    lmc__sort_descending(order, n_symbols);

    /* Escaping the symbols from rank i on costs: 8 bits each, less the information of which one of
     * them it is. */
    n_kept = n_symbols;
    for (i = n_symbols - 1; i >= 1; i--) {
        const uint32_t count = order[i] >> 8, with = escaped + count;
        const uint64_t with_log = escaped_log + (uint64_t)count * lmc__log2(count);
        uint64_t loss =
            ((uint64_t)with * (8u << 16) + with_log - (uint64_t)with * lmc__log2(with)) >>
            8; /* bits / 256 */
        if (2 * loss > (uint64_t)total + ((uint64_t)(n_symbols - i) << 11))
            break; /* a header field is worth 4 bits */
        escaped = with;
        escaped_log = with_log;
        n_kept = i;
    }
    has_escape = n_kept < n_symbols || (sampled && n_symbols < 256) || n_symbols == 1;
    n_leaves = n_kept + (has_escape ? 1u : 0u);
    for (i = 0; i < n_kept; i++) weights[i] = order[i] >> 8;
    if (has_escape) {
        uint32_t w = escaped ? escaped : 1;
        for (i = n_kept; i > 0 && weights[i - 1] < w; i--) weights[i] = weights[i - 1];
        weights[i] = w;
    }
    lmc__huffman_lengths(lengths, weights, n_leaves);

    /* The escape is the last leaf, whatever its weight: the lengths stay the same set. */
    memset(plan->lengths, 0, sizeof plan->lengths);
    plan->first = 255;
    plan->last = 0;
    for (i = 0; i < n_kept; i++) {
        s = 255 - (order[i] & 255);
        plan->lengths[s] = lengths[i];
        bits += (uint64_t)counts[s] * lengths[i];
        if (s < plan->first) plan->first = s;
        if (s > plan->last) plan->last = s;
    }
    plan->escape_length = has_escape ? lengths[n_kept] : 0;
    if (has_escape) bits += (uint64_t)escaped * (lengths[n_kept] + 8u);
    bits += n_symbols; /* the sample's luck, twice: its counts look more skewed than they are, and
                          the code fits them, not the rest */
    if (bits >= enough) return LMC__CHOOSE_RAW;
    plan->bits = bits * n / total + 4 * (uint64_t)(plan->last - plan->first + 1);
    return LMC__CHOOSE_TREE;
}
