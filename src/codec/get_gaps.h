#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"

/* Reading a mask of few ones as the gaps between them (spec 8.3). put_gaps.h writes it, and says
 * why.
 *
 *     mode: s, polarity | u24 K | low parts: K * s bits | quotients: zeros, then a one, K times
 *
 * Safety: K is at most n, so the low parts are at most n * 21 bits, and they are taken as a whole.
 * The quotients are read bit by bit, forwards only and never beyond the payload: so the time is at
 * most in proportion to what is read. A position is compared with n before a bit is set. */

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

/* The mask of n bits, to list, of which the payload's bytes from *in on, to end, are the code
 * behind the mode byte; *in is moved behind it. */
static enum lmc_status lmc__get_gaps(const uint8_t **in, const uint8_t *end, unsigned mode,
                                     size_t n, uint8_t *list)
{
    const unsigned s = (mode - LMC__MASK_GAPS) >> 1, polarity = (mode - LMC__MASK_GAPS) & 1;
    const uint8_t *low, *quotients;
    size_t n_ones, low_size, size, at = 0, position = 0, i;
    LMC__CHECK(end - *in >= 3, LMC_ERR_CORRUPT);
    n_ones = (size_t)(*in)[0] | (size_t)(*in)[1] << 8 | (size_t)(*in)[2] << 16;
    LMC__CHECK(n_ones >= 1 && n_ones <= n, LMC_ERR_CORRUPT);
    low = *in + 3;
    low_size = (n_ones * s + 7) / 8;
    LMC__CHECK((size_t)(end - low) >= low_size, LMC_ERR_CORRUPT);
    LMC__CHECK((n_ones * s & 7) == 0 || low[low_size - 1] >> (n_ones * s & 7) == 0,
               LMC_ERR_CORRUPT);
    quotients = low + low_size;
    size = (size_t)(end - quotients);
    memset(list, polarity ? 0xFF : 0, (n + 7) / 8);
    if (polarity && (n & 7)) list[n / 8] = (uint8_t)((1u << (n & 7)) - 1);
    for (i = 0; i < n_ones; i++, position++) {
        const size_t from = at;
        uint64_t bits;
        for (;;) {
            LMC__CHECK(at < 8 * size, LMC_ERR_CORRUPT);
            bits = lmc__load_bits(quotients, size, at);
            if (bits) break;
            at = (at & ~(size_t)7) + 64;
        }
        at += lmc__lowest_bit(bits);
        LMC__CHECK(at - from <= n >> s, LMC_ERR_CORRUPT);
        position += (at++ - from) << s;
        if (s) position += (size_t)lmc__load_bits(low, low_size, i * s) & (((size_t)1 << s) - 1);
        LMC__CHECK(position < n, LMC_ERR_CORRUPT);
        list[position / 8] ^= (uint8_t)(1u << (position & 7));
    }
    LMC__CHECK((at & 7) == 0 || quotients[at / 8] >> (at & 7) == 0, LMC_ERR_CORRUPT);
    *in = quotients + (at + 7) / 8;
    return LMC_OK;
}
