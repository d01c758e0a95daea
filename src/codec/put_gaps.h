#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/plan.h"

/* Writing a mask of few ones as the gaps between them (spec 6.3). get_gaps.h reads it.
 *
 *     mask      0 0 0 0 0 1 0 1 0 0 0 0 0 0 0 0 0 1 0 ...
 *     gaps      5, 1, 9                    zeros before each one
 *     s = 2     low parts 1, 1, 1          in two bits each: 01 01 01
 *               quotients 1, 0, 2          in zeros, then a one: 01 1 001
 *
 * Where bits are independent, and one in m is a one, gaps are distributed geometrically, and
 * Golomb's code of parameter m ln 2 is the best of all codes of single gaps (Gallager and Van
 * Voorhis, 1975). Rice's restriction to powers of two costs up to 1.7 % and saves a division. A
 * frozen tree needs a few bits of each of its nodes whatever the number of ones is; gaps need 3
 * bytes and then nothing but the ones.
 *
 * Elias-Fano, the same low parts but of positions, not of gaps, needs no prefix sum and is read 2.5
 * times as fast one by one (1.2 against 3 ns for each one). But its quotients are spread evenly
 * over a list of n >> s bits, which those of gaps are not: masks of sparse deltas (0.1 to 3 %
 * changed) take 5.5 to 7 % more. */

#ifndef LMC_NO_ENCODER
/* The ones of a mask of n bits one after another, or its zeros, which are the ones if all bits are
 * flipped. The mask is read exactly. */
typedef struct lmc__one_walk {
    const uint8_t *mask;
    size_t n, word;
    uint64_t flip, bits;
} lmc__one_walk;

/* Bits [word, word + 64) of the mask, flipped; those from n on are zero. */
LMC__INLINE uint64_t lmc__load_ones(const lmc__one_walk *ones)
{
    const size_t left = ones->n - ones->word;
    uint8_t last[8] = {0};
    if (left >= 64) return lmc__load64(ones->mask + ones->word / 8) ^ ones->flip;
    memcpy(last, ones->mask + ones->word / 8, (left + 7) / 8);
    return (lmc__load64(last) ^ ones->flip) & (((uint64_t)1 << left) - 1);
}

LMC__INLINE lmc__one_walk lmc__begin_ones(const uint8_t *mask, size_t n, unsigned polarity)
{
    lmc__one_walk ones;
    ones.mask = mask;
    ones.n = n;
    ones.word = 0;
    ones.flip = polarity ? ~(uint64_t)0 : 0;
    ones.bits = lmc__load_ones(&ones);
    return ones;
}

/* The next one's position. There must be one. */
LMC__INLINE size_t lmc__next_one(lmc__one_walk *ones)
{
    size_t position;
    while (ones->bits == 0) {
        ones->word += 64;
        ones->bits = lmc__load_ones(ones);
    }
    position = ones->word + lmc__lowest_bit(ones->bits);
    ones->bits &= ones->bits - 1;
    return position;
}

/* The s for k ones of n bits. Codes with s and s + 1 cost the same where one bit in 2.08 * 2^s +
 * 0.5 is a one: 2.08 = 1 / ln golden ratio (Kiely, 2004). 123 / 256 is 1 / 2.08. */
LMC__INLINE unsigned lmc__choose_gap_shift(size_t n, size_t k)
{
    unsigned s = 0;
    while (s < 21 && (uint64_t)(2 * n - k) * 123 > ((uint64_t)k * 512) << s) s++;
    return s;
}

/* Bytes that gaps take, without the mode byte, of k ones whose quotients add up to that. */
LMC__INLINE size_t lmc__gaps_size(size_t k, size_t quotients, unsigned s)
{
    return 3 + (k * s + 7) / 8 + (quotients + k + 7) / 8;
}

/* Of a mask of n bits, k of which are the ones. */
static size_t lmc__count_gaps(const uint8_t *mask, size_t n, size_t k, unsigned polarity,
                              unsigned s)
{
    lmc__one_walk ones = lmc__begin_ones(mask, n, polarity);
    size_t quotients = 0, next = 0, i;
    for (i = 0; i < k; i++) {
        const size_t position = lmc__next_one(&ones);
        quotients += (position - next) >> s;
        next = position + 1;
    }
    return lmc__gaps_size(k, quotients, s);
}

/* Of ones whose positions are listed. */
static size_t lmc__count_listed_gaps(const uint32_t *ones, size_t k, unsigned s)
{
    size_t quotients = ones[0] >> s, i;
    for (i = 1; i < k; i++) quotients += (ones[i] - ones[i - 1] - 1) >> s;
    return lmc__gaps_size(k, quotients, s);
}

/* Where gaps are written. n_bits < 8 of the low parts' bits are not written yet. */
typedef struct lmc__gap_writer {
    uint8_t *low, *quotients;
    uint64_t bits;
    unsigned n_bits, s;
    size_t at; /* bits of quotients */
} lmc__gap_writer;

/* To out, size bytes as counted. */
LMC__INLINE lmc__gap_writer lmc__begin_gaps(uint8_t *out, size_t size, size_t k, unsigned s)
{
    lmc__gap_writer w;
    w.low = out + 3;
    w.quotients = w.low + (k * s + 7) / 8;
    w.bits = 0;
    w.n_bits = 0;
    w.s = s;
    w.at = 0;
    out[0] = (uint8_t)k;
    out[1] = (uint8_t)(k >> 8);
    out[2] = (uint8_t)(k >> 16);
    memset(w.quotients, 0, (size_t)(out + size - w.quotients));
    return w;
}

LMC__INLINE void lmc__put_gap(lmc__gap_writer *w, size_t gap)
{
    w->bits |= (uint64_t)(gap & (((size_t)1 << w->s) - 1)) << w->n_bits;
    for (w->n_bits += w->s; w->n_bits >= 8; w->n_bits -= 8, w->bits >>= 8)
        *w->low++ = (uint8_t)w->bits;
    w->at += gap >> w->s;
    w->quotients[w->at / 8] |= (uint8_t)(1u << (w->at & 7));
    w->at++;
}

LMC__INLINE void lmc__end_gaps(lmc__gap_writer *w)
{
    if (w->n_bits) *w->low = (uint8_t)w->bits;
}

/* Writes the gaps of a mask to out, size bytes as counted. */
static void lmc__put_gaps(uint8_t *out, size_t size, const uint8_t *mask, size_t n, size_t k,
                          unsigned polarity, unsigned s)
{
    lmc__one_walk ones = lmc__begin_ones(mask, n, polarity);
    lmc__gap_writer w = lmc__begin_gaps(out, size, k, s);
    size_t next = 0, i;
    for (i = 0; i < k; i++) {
        const size_t position = lmc__next_one(&ones);
        lmc__put_gap(&w, position - next);
        next = position + 1;
    }
    lmc__end_gaps(&w);
}

/* Those of ones that are listed. */
static void lmc__put_listed_gaps(uint8_t *out, size_t size, const uint32_t *ones, size_t k,
                                 unsigned s)
{
    lmc__gap_writer w = lmc__begin_gaps(out, size, k, s);
    size_t next = 0, i;
    for (i = 0; i < k; i++) {
        lmc__put_gap(&w, ones[i] - next);
        next = (size_t)ones[i] + 1;
    }
    lmc__end_gaps(&w);
}
#endif /* LMC_NO_ENCODER */
