#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "codec/workspace.h"
#include "codec/huffman.h"
#include "codec/lengths.h"

/* Chooses how a list of bytes is coded (spec 6): raw, as a constant, or as a tree, and which tree.
 * It uses only the counts of the list's symbols, mostly in a sample.
 *
 * Sizes are estimated by the entropy of the counts, with logarithms as integers: machines differ in
 * the last digit of log2 of floats, but must write the same bytes. */

#ifndef LMC_NO_ENCODER
/* log2(v) * 65536 for v >= 1, with an error of at most 8. It is linear between entries of the
 * table. */
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
    if (exponent <= 6) return (exponent << 16) + table[(v << (6 - exponent)) - 64];
    mantissa = exponent >= 16 ? v >> (exponent - 16) : v << (16 - exponent); /* 65536 .. 131071 */
    i = (mantissa >> 10) & 63;
    fraction = mantissa & 1023;
    below = table[i];
    return (exponent << 16) + below + (((table[i + 1] - below) * fraction + 512) >> 10);
}

/* The order-0 entropy of counts that add up to total, in 2^-16 bits: total * log2(total) less the
 * sum of counts * log2(counts). It is below 2^45. */
static uint64_t lmc__entropy_q16(const uint32_t counts[256], uint32_t total)
{
    uint64_t bits = (uint64_t)total * lmc__log2(total), symbols = 0;
    int s;
    for (s = 0; s < 256; s++)
        if (counts[s]) symbols += (uint64_t)counts[s] * lmc__log2(counts[s]);
    return bits - symbols;
}

/* lmc__entropy_q16 in whole bits, rounded down. */
static uint64_t lmc__entropy(const uint32_t counts[256], uint32_t total)
{
    return lmc__entropy_q16(counts, total) >> 16;
}

static unsigned lmc__count_symbols(const uint32_t counts[256])
{
    unsigned n = 0, s;
    for (s = 0; s < 256; s++) n += counts[s] != 0;
    return n;
}

/* What the counts say about a list. lmc__put_planned may still find that a list is not constant, or
 * that its tree is too long. */
enum lmc__choice {
    LMC__CHOOSE_RAW,
    LMC__CHOOSE_CONSTANT, /* all bytes were counted, and are one symbol */
    LMC__CHOOSE_TREE
};

/* A tree must save 1 / LMC__MIN_SAVING of the list; else raw is chosen, which decodes as fast as a
 * copy. */
#define LMC__MIN_SAVING 200u

/* 1 if a tree would save too little for a list. A sample's entropy is too low, by about 1 / (2 ln
 * 2) of a bit for each symbol but one (Miller, 1955): `eighths` 6 corrects this. With 7, lists near
 * the limit count as raw, too. */
static int lmc__is_raw(const uint32_t counts[256], uint32_t total, unsigned eighths)
{
    return lmc__entropy(counts, total) + (lmc__count_symbols(counts) - 1) * eighths / 8 >=
           (uint64_t)total * 8 * (LMC__MIN_SAVING - 1) / LMC__MIN_SAVING;
}

/* Estimates the bits of a list by the counts of a sample: its entropy, corrected like that, and at
 * most its raw size. */
static uint64_t lmc__estimate_plane(const uint32_t counts[256], size_t total)
{
    if (total == 0) return 0;
    return lmc__min64(8 * (uint64_t)total, lmc__entropy(counts, (uint32_t)total) +
                                               (lmc__count_symbols(counts) - 1) * 6 / 8);
}

/* Returns how many symbols get a code. The other symbols, which are the rarest, are escaped. order:
 * count << 8, descending; *escaped: how many elements of total have no code.
 *
 * An escaped element takes 8 bits and the longest code: if S are escaped, log2(total / S) bits, or
 * as many as the rarest kept symbol. In a sample S also has the elements of symbols that it lacks:
 * about as many as symbols that it has once (Good and Turing). So each code for a rare symbol makes
 * all of these longer, and of many equally rare symbols all or none are escaped.
 *
 * Escaping saves a symbol's field in the header: 4 bits of the whole list, of a sample only its
 * share. A rare symbol's count in a sample is mostly chance, which costs 3/2 bits more. The most
 * symbols are escaped that lose at most this and 1/512 bit for each counted element. */
static unsigned lmc__choose_kept(const uint32_t *order, unsigned n_symbols, uint32_t total,
                                 size_t n, uint32_t *escaped)
{
    const uint64_t saved = ((uint64_t)total << 11) / n + (total < n ? 768 : 0); /* 1/512 bits */
    uint64_t own = 0, all_kept = 0; /* 2^-16 bits: of the escaped symbols' own codes; of the escape
                                       if no symbol is escaped */
    uint32_t unseen = 0, sum;
    unsigned n_kept = n_symbols, i;
    while (total < n && unseen < n_symbols && order[n_symbols - 1 - unseen] >> 8 == 1) unseen++;
    *escaped = 0;
    sum = unseen;
    for (i = n_symbols; i >= 1; i--) {
        const uint32_t rarest = order[i - 1] >> 8, weight = sum < rarest ? sum : rarest;
        const uint64_t bits =
            sum ? sum * ((uint64_t)(8u << 16) + lmc__log2(total) - lmc__log2(weight)) : 0;
        if (i == n_symbols) {
            all_kept = bits;
        } else if (bits <= own + all_kept + ((total + (n_symbols - i) * saved) << 7)) {
            *escaped = sum - unseen;
            n_kept = i;
        }
        sum += rarest;
        own += (uint64_t)rarest * (lmc__log2(total) - lmc__log2(rarest));
    }
    return n_kept;
}

/* Returns the highest symbol of a short list that gets a code; higher ones are escaped. Without
 * this, each value below a few very high symbols would take 4 bits of the header. A limit costs the
 * bits of the symbols up to it, and for each other symbol the escape and 8 bits. */
static unsigned lmc__choose_last(const uint32_t counts[256], uint32_t total)
{
    uint64_t sum_log = 0, best = UINT64_MAX; /* of c log2 c, for symbols up to s */
    uint32_t coded = 0;
    unsigned s, first = 0, last = 255;
    while (counts[first] == 0) first++;
    for (s = first; s < 256; s++) {
        const uint32_t count = counts[s];
        uint32_t escaped;
        uint64_t bits;
        if (count == 0) continue;
        coded += count;
        sum_log += (uint64_t)count * lmc__log2(count);
        escaped = total - coded;
        bits = (uint64_t)total * lmc__log2(total) - sum_log;
        if (escaped) bits += escaped * ((uint64_t)(9u << 16) - lmc__log2(escaped));
        bits += (uint64_t)(s - first) << 18;
        if (bits >= best) continue;
        best = bits;
        last = s;
    }
    return last;
}

/* Adds symbols that get a code behind order[0, n_kept), until there are n_wanted: first those that
 * would have been escaped, then others, upwards from the most frequent symbol, then downwards.
 * Returns how many counted elements have a code. */
static uint32_t lmc__fill_units(uint32_t order[256], unsigned n_kept, unsigned n_symbols,
                                unsigned n_wanted, const uint32_t counts[256])
{
    const unsigned middle = 255 - (order[0] & 255);
    uint8_t is_coded[256] = {0};
    uint32_t n_coded = 0;
    unsigned i, s;
    if (n_kept < n_wanted) n_kept = n_wanted < n_symbols ? n_wanted : n_symbols;
    for (i = 0; i < n_kept; i++) is_coded[255 - (order[i] & 255)] = 1;
    for (i = 0; i < 256 && n_kept < n_wanted; i++) {
        s = middle + i < 256 ? middle + i : 255 - i;
        if (!is_coded[s]) order[n_kept++] = counts[s] << 8 | (255 - s);
    }
    for (i = 0; i < n_kept; i++) n_coded += order[i] >> 8;
    return n_coded;
}

/* Chooses how to code n bytes, of which `total`, a sample or all of them, were counted.
 *
 *   counts -> one symbol, all counted?       constant
 *          -> entropy too near 8 bits?       raw, like most planes of mantissas
 *          -> sort, escape rare symbols      kept symbols, and perhaps an escape
 *          -> lengths -> their cost too high raw
 *                     -> else                tree
 *
 * worth: of a bit, as time (cost.h). An escape is needed if symbols were escaped, if the list may
 * have symbols that the sample lacks, or if there is only one symbol: a tree has at least two
 * leaves. A count fits in 32 bits beside its symbol, as a block has at most 2^22 elements. All
 * entries of `order` differ by the symbol, so every sort gives the same result. */
static enum lmc__choice lmc__choose_plane(lmc__plan *plan, const uint32_t counts[256],
                                          uint32_t total, size_t n, uint32_t worth)
{
    uint32_t order[256]; /* count << 8 | 255 - symbol; most frequent first, then by symbol */
    uint32_t weights[256], escaped, above = 0; /* elements without a code; elements above `last` */
    uint8_t lengths[256];
    uint64_t bits = 0;
    unsigned n_symbols = 0, n_kept, n_leaves, n_wanted, i, s;
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
    if (!sampled && n_symbols > 2) {
        const unsigned last = lmc__choose_last(counts, total);
        for (s = last + 1; s < 256; s++) above += counts[s];
        for (i = n_symbols, n_symbols = 0, s = 0; s < i; s++)
            if (255 - (order[s] & 255) <= last) order[n_symbols++] = order[s];
    }
    lmc__sort_descending(order, n_symbols);
    n_kept = lmc__choose_kept(order, n_symbols, total, n, &escaped);
    escaped += above;
    has_escape = escaped || (sampled && n_symbols < 256) || n_symbols == 1;
    n_leaves = n_kept + (has_escape ? 1u : 0u); /* at most 256: there is no escape if 256 are
                                                   kept */
    for (i = 0; i < n_kept; i++) weights[i] = order[i] >> 8;
    if (has_escape) {
        const uint32_t w = escaped ? escaped : 1;
        for (i = n_kept; i > 0 && weights[i - 1] < w; i--) weights[i] = weights[i - 1];
        weights[i] = w;
    }
    /* There are at least two leaves: with one symbol there is an escape. */
    n_wanted = lmc__choose_lengths(lengths, weights, n_leaves, has_escape, worth);
    n_kept = n_wanted - (has_escape ? 1u : 0u);
    escaped = total -
              lmc__fill_units(order, n_leaves - (has_escape ? 1u : 0u), n_symbols, n_kept, counts);

    /* The escape must be the last leaf, so it gets the longest code, whatever its weight. So rarer
     * symbols get shorter codes than it; the set of lengths stays the same. */
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
    /* The code fits the sample better than the list: about one bit is added for each symbol. */
    bits += n_symbols;
    if (bits >= enough || (8 * (uint64_t)total - bits) * worth <=
                              lmc__tree_time(weights, lengths, n_wanted, has_escape))
        return LMC__CHOOSE_RAW;
    plan->bits = bits * n / total + 4 * (uint64_t)(plan->last - plan->first + 1);
    return LMC__CHOOSE_TREE;
}
#endif /* LMC_NO_ENCODER */
