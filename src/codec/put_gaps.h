#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/plan.h"

/* Writes a mask of few ones as the gaps between them (spec 6.3), which get_gaps.h reads.
 *
 *     mask      0 0 0 0 0 1 0 1 0 0 0 0 0 0 0 0 0 1 0 ...
 *     gaps      5, 1, 9                    zeros before each one
 *     s = 2     low parts 1, 1, 1          in two bits each: 01 01 01
 *               quotients 1, 0, 2          in zeros, then a one: 01 1 001
 *
 * If bits are independent, and one bit in m is 1, Golomb's code with parameter m ln 2 is the best
 * code for single gaps (Gallager and Van Voorhis, 1975). Rice's restriction to powers of two costs
 * up to 1.7 % and saves a division. Unlike a frozen tree, gaps take no bytes for nodes: only 3
 * bytes, and the bits of each gap. */

#ifndef LMC_NO_ENCODER
/* Chooses s for k ones in n bits. s and s + 1 cost the same if one bit in 2.08 * 2^s + 0.5 is 1,
 * where 2.08 = 1 / ln(golden ratio) (Kiely, 2004). 123 / 256 is 1 / 2.08. */
LMC__INLINE unsigned lmc__choose_gap_shift(size_t n, size_t k)
{
    unsigned s = 0;
    while (s < 21 && (uint64_t)(2 * n - k) * 123 > ((uint64_t)k * 512) << s) s++;
    return s;
}

/* Bytes of the gaps of k > 0 ones, without the mode byte. ones: their positions, ascending. */
static size_t lmc__count_gaps(const uint32_t *ones, size_t k, unsigned s)
{
    size_t quotients = ones[0] >> s, i;
    for (i = 1; i < k; i++) quotients += (ones[i] - ones[i - 1] - 1) >> s;
    return 3 + (k * s + 7) / 8 + (quotients + k + 7) / 8;
}

static void lmc__put_gaps(uint8_t *out, size_t size, const uint32_t *ones, size_t k, unsigned s)
{
    uint8_t *low = out + 3, *const quotients = low + (k * s + 7) / 8;
    uint64_t bits = 0;   /* of low parts */
    unsigned n_bits = 0; /* of these, below 8 */
    size_t at = 0 /* bit of quotients */, next = 0, i;
    out[0] = (uint8_t)k;
    out[1] = (uint8_t)(k >> 8);
    out[2] = (uint8_t)(k >> 16);
    memset(quotients, 0, (size_t)(out + size - quotients));
    for (i = 0; i < k; i++) {
        const size_t gap = ones[i] - next;
        next = (size_t)ones[i] + 1;
        bits |= (uint64_t)(gap & (((size_t)1 << s) - 1)) << n_bits;
        for (n_bits += s; n_bits >= 8; n_bits -= 8, bits >>= 8) *low++ = (uint8_t)bits;
        at += gap >> s;
        quotients[at / 8] |= (uint8_t)(1u << (at & 7));
        at++;
    }
    if (n_bits) *low = (uint8_t)bits;
}
#endif /* LMC_NO_ENCODER */
