#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"

/* Reading a mask of few ones as the gaps between them (spec 6.3). put_gaps.h writes it.
 *
 *     mode: s, polarity | u24 K | low parts: K * s bits | quotients: zeros, then a one, K times
 *
 * The j-th one of the quotients, from 0, is bit number b: so there are b - j zeros up to it, which
 * is the sum of all quotients up to j. With the sum of the low parts up to there,
 *
 *     position_j = ((b - j) << s) + low_0 + ... + low_j + j
 *
 * so that a position waits for the one before only in two additions.
 *
 * Safety: K is at most n, so the low parts are at most n * 21 bits, and they are taken as a whole.
 * The quotients are read word by word, forwards only and never beyond the payload. Positions ascend
 * strictly and cannot overflow 64 bits (26 bits shifted by 21, and 2^22 low parts of 21 bits): if
 * one is less than n, so are those before. */

/* 64 bits of the size bytes at p, from bit `at` on; at most 7 of them are missing, and zeros stand
 * for what is behind the end. */
LMC__INLINE uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at)
{
    const size_t first = at / 8;
    uint8_t rest[8] = {0};
    if (size - first >= 8) return lmc__load64(p + first) >> (at & 7);
    memcpy(rest, p + first, size - first);
    return lmc__load64(rest) >> (at & 7);
}

/* The places of the ones of a mask of n bits, or with `flip` all ones of its zeros, to ones.
 * Returns how many, or SIZE_MAX if they are more than cap. */
static size_t lmc__list_ones(uint32_t *ones, size_t cap, const uint8_t *mask, size_t n,
                             uint64_t flip)
{
    size_t k = 0, at;
    for (at = 0; at < n; at += 64) {
        uint64_t word = lmc__load_bits(mask, (n + 7) / 8, at) ^ flip;
        if (n - at < 64) word &= ((uint64_t)1 << (n - at)) - 1;
        for (; word != 0; word &= word - 1) {
            if (k == cap) return SIZE_MAX;
            ones[k++] = (uint32_t)(at + lmc__lowest_bit(word));
        }
    }
    return k;
}

typedef struct lmc__gaps {
    unsigned s, polarity;
    size_t k, n;              /* positions in all, and what each is less than */
    const uint8_t *low;       /* room: bytes of the payload from there on, the low parts first */
    const uint8_t *quotients; /* size: bytes of the payload from there on */
    size_t low_size, room, size;
    size_t j, at, bit;  /* positions done; quotients' bytes read; bit number of the last one */
    uint64_t sum, word; /* of low parts; ones that were read but not used */
} lmc__gaps;

/* What stands before the quotients, in the payload's bytes from `in` to end, behind the mode byte
 * of a mask of n bits. mode is one of gaps. */
static enum lmc_status lmc__open_gaps(lmc__gaps *g, const uint8_t *in, const uint8_t *end,
                                      unsigned mode, size_t n)
{
    memset(g, 0, sizeof *g);
    g->s = (mode - LMC__MASK_GAPS) >> 1;
    g->polarity = (mode - LMC__MASK_GAPS) & 1;
    g->n = n;
    LMC__VALID(end - in >= 3);
    g->k = (size_t)in[0] | (size_t)in[1] << 8 | (size_t)in[2] << 16;
    LMC__VALID(g->k >= 1 && g->k <= n);
    g->low = in + 3;
    g->low_size = (g->k * g->s + 7) / 8;
    g->room = (size_t)(end - g->low);
    LMC__VALID(g->room >= g->low_size);
    LMC__VALID((g->k * g->s & 7) == 0 || g->low[g->low_size - 1] >> (g->k * g->s & 7) == 0);
    g->quotients = g->low + g->low_size;
    g->size = g->room - g->low_size;
    return LMC_OK;
}

/* The next `count` positions, at least 1 and no more than are left. Until it returns LMC_OK they
 * may be anything. */
static enum lmc_status lmc__get_positions(lmc__gaps *g, uint32_t *positions, size_t count)
{
    const lmc__gaps own = *g; /* copies, which no store can change */
    const unsigned s = own.s;
    const uint64_t low_bits = ((uint64_t)1 << s) - 1;
    uint64_t word = own.word, sum = own.sum, position = 0;
    size_t at = own.at, j = own.j, low_at = own.j * s, i = 0;
    unsigned bit = 0;
    for (;;) {
        const size_t first = 8 * (at - 8); /* bit number of the word's first bit, if there is one */
        while (word != 0) {
            /* a low part starts in one byte and ends in one of the next three: 7 + 21 bits */
            const uint64_t low = low_at / 8 + 4 <= own.room
                                     ? lmc__load32(own.low + low_at / 8) >> (low_at & 7)
                                     : lmc__load_bits(own.low, own.room, low_at);
            bit = lmc__lowest_bit(word);
            word &= word - 1;
            low_at += s;
            sum += low & low_bits;
            position = ((uint64_t)(first + bit - j) << s) + sum + j;
            j++;
            positions[i++] = (uint32_t)position;
            if (i == count) {
                LMC__VALID(position < own.n);
                g->word = word;
                g->sum = sum;
                g->at = at;
                g->j = j;
                g->bit = first + bit;
                return LMC_OK;
            }
        }
        LMC__VALID(at < own.size);
        word = lmc__load_bits(own.quotients, own.size, 8 * at);
        at += 8;
    }
}

/* When all positions are done: the end of the code, to *in. */
static enum lmc_status lmc__close_gaps(const lmc__gaps *g, const uint8_t **in)
{
    const size_t size = g->bit / 8 + 1;
    LMC__VALID(g->quotients[size - 1] >> (g->bit & 7) == 1);
    *in = g->quotients + size;
    return LMC_OK;
}

/* The mask of n bits, to list, of which the payload's bytes from *in on, to end, are the code
 * behind the mode byte; *in is moved behind it. */
static enum lmc_status lmc__get_gaps(const uint8_t **in, const uint8_t *end, unsigned mode,
                                     size_t n, uint8_t *list)
{
    uint32_t positions[128];
    lmc__gaps g;
    LMC__TRY(lmc__open_gaps(&g, *in, end, mode, n));
    memset(list, g.polarity ? 0xFF : 0, (n + 7) / 8);
    if (g.polarity && (n & 7)) list[n / 8] = (uint8_t)((1u << (n & 7)) - 1);
    while (g.j < g.k) {
        const size_t count = lmc__min(g.k - g.j, sizeof positions / sizeof *positions);
        size_t i;
        LMC__TRY(lmc__get_positions(&g, positions, count));
        for (i = 0; i < count; i++) list[positions[i] / 8] ^= (uint8_t)(1u << (positions[i] & 7));
    }
    return lmc__close_gaps(&g, in);
}
