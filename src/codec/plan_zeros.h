#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/count.h"
#include "codec/workspace.h"
#include "codec/cost.h"
#include "codec/plan.h"
#include "codec/sample.h"

/* Whether a block's zeros are coded apart (put_zeros.h), by a sample. */

#ifndef LMC_NO_ENCODER
/* Zeros are coded apart if more than this part of the elements is zero. */
#define LMC__ZEROS_ONE_IN 64u
/* Bits of the headers of a mask's tree, and of lists. */
#define LMC__ZEROS_HEADERS 1024u

/* Sets the mask of n elements, in planes: a bit is 1 unless the element is a zero. any: a list for
 * the work. Returns the number of ones. */
static size_t lmc__mark_others(const lmc__kernels *k, uint8_t *mask, uint8_t *any,
                               const lmc__planes *planes, size_t n, const lmc__block *block)
{
    const uint64_t sign = block->own == LMC__ORDER_FLOAT ? LMC__ONES8 : 0;
    size_t i;
    unsigned p;
    for (i = 0; i < n; i += 8) {
        uint64_t bits = lmc__load64(planes->row[0] + i) & ~sign;
        for (p = 1; p < block->width; p++) bits |= lmc__load64(planes->row[p] + i);
        lmc__store64(any + i, bits);
    }
    return k->partition(mask, NULL, NULL, any, n, 1);
}

/* Bits of `total` decisions, of which k are one way, at their entropy. */
static uint64_t lmc__decision_bits(uint32_t k, uint32_t total)
{
    uint32_t counts[256] = {0};
    counts[0] = k;
    counts[1] = total - k;
    return lmc__entropy(counts, total);
}

/* Whether zeros apart are worth their time, by a sample of n elements, in planes. A block without
 * zeros is recognised by the counts of its top plane, so this is not called for it. Times are those
 * of partitioning and merging each plane once more. */
static int lmc__are_zeros_worth(lmc__encoder *e, const lmc__planes *planes, size_t n,
                                const lmc__block *block)
{
    uint8_t *const top = e->stack.top, *const mask = lmc__push_list(&e->stack, (n + 7) / 8),
                   *const any = lmc__push_list(&e->stack, n);
    uint32_t counts[256], n_zeros, n_negative = 0;
    uint64_t as_planes = 0, apart, time;
    size_t i;
    unsigned p;
    e->stack.top = top;
    if (!mask || !any) return 0;
    n_zeros = (uint32_t)(n - lmc__mark_others(e->k, mask, any, planes, n, block));
    if (n_zeros <= n / LMC__ZEROS_ONE_IN || n_zeros == n) return 0;
    for (i = 0; i < n; i++) n_negative += any[i] == 0 && planes->row[0][i];
    apart = lmc__decision_bits(n_zeros, (uint32_t)n) + lmc__decision_bits(n_negative, n_zeros);
    for (p = 0; p < block->width; p++) {
        memset(counts, 0, sizeof counts);
        lmc__count_bytes(counts, planes->row[p], n);
        as_planes += lmc__estimate_plane(counts, n);
        counts[0] -= n_zeros - (p ? 0 : n_negative);
        counts[1] -= p ? 0 : n_negative;
        apart += lmc__estimate_plane(counts, n - n_zeros);
    }
    apart += LMC__ZEROS_HEADERS * n / block->n + as_planes / LMC__MIN_SAVING;
    time = (uint64_t)(block->width * lmc__merge_time[1]) * n;
    return apart < as_planes && (as_planes - apart) * e->worth > time;
}
#endif /* LMC_NO_ENCODER */
