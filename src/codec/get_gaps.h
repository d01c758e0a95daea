#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"

/* Reads a mask of few ones as the gaps between them (spec 6.3), which put_gaps.h writes.
 *
 *     mode: s, polarity | u24 K | low parts: K * s bits | quotients: zeros, then a one, K times
 *
 * Let bit b of the quotients be their 1 bit number j (b and j count from 0). Before it are b - j
 * zeros, which is the sum of quotients 0 to j. So
 *
 *     position_j = ((b - j) << s) + low_0 + ... + low_j + j
 *
 * and a position depends on the previous position only by two additions.
 *
 * Safety: K is at most n, so the low parts have at most n * 21 bits, and one check covers all of
 * them. The quotients are read word by word, forwards only and never beyond the payload. Positions
 * ascend strictly and cannot overflow 64 bits (26 bits shifted by 21, and 2^22 low parts of 21
 * bits). So if a position is less than n, all before it are, too. */

/* Loads bits [at, at + 64) of size bytes at p. The top at & 7, and those behind the end, are 0. */
LMC__INLINE uint64_t lmc__load_bits(const uint8_t *p, size_t size, size_t at)
{
    const size_t first = at / 8;
    uint8_t rest[8] = {0};
    if (size - first >= 8) return lmc__load64(p + first) >> (at & 7);
    memcpy(rest, p + first, size - first);
    return lmc__load64(rest) >> (at & 7);
}

/* Lists the positions of the ones of a mask of n bits; with flip UINT64_MAX, of its zeros. Returns
 * their number, or SIZE_MAX if it is more than cap. */
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
    size_t k, n;              /* number of positions; each is less than n */
    const uint8_t *low;       /* the low parts; room: bytes of the payload from there on */
    const uint8_t *quotients; /* size: bytes of the payload from there on */
    size_t low_size, room, size;
    size_t j, at, bit;  /* positions read; bytes of quotients read; bit number of the last
                           position's one */
    uint64_t sum, word; /* of low parts; bits that were read but not used */
} lmc__gaps;

/* Reads everything before the quotients. in: behind the mode byte of a mask of n bits; end: of the
 * payload; mode: LMC__MASK_GAPS or more. */
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

/* Reads the next `count` positions, at least 1, at most all. Valid only if it returns LMC_OK. */
static enum lmc_status lmc__get_positions(lmc__gaps *g, uint32_t *positions, size_t count)
{
    const lmc__gaps own = *g; /* a local copy: stores to positions cannot change it */
    const unsigned s = own.s;
    const uint64_t low_bits = ((uint64_t)1 << s) - 1;
    uint64_t word = own.word, sum = own.sum, position = 0;
    size_t at = own.at, j = own.j, low_at = own.j * s, i = 0;
    unsigned bit = 0;
    for (;;) {
        const size_t first = 8 * (at - 8); /* bit number of the word's first bit */
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

/* After the last position: sets *in to the end of the gaps. */
static enum lmc_status lmc__close_gaps(const lmc__gaps *g, const uint8_t **in)
{
    const size_t size = g->bit / 8 + 1;
    LMC__VALID(g->quotients[size - 1] >> (g->bit & 7) == 1);
    *in = g->quotients + size;
    return LMC_OK;
}

/* Decodes a mask of n bits to list. *in is behind the mode byte, and is moved to the end of the
 * gaps; end: of the payload. */
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
