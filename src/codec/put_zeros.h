#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/cost.h"
#include "codec/sample.h"
#include "codec/put_list.h"
#include "codec/plan_zeros.h"

/* Writes the payload of a block with zeros apart (spec/zeros.md). As planes, a zero element costs a
 * symbol in each plane that is not raw, and 8 bits in each that is: pruned weights are a seventh
 * larger than they need be. Here a mask tells zeros from other elements, and each plane is two
 * lists:
 *     elements -> split -> planes 0 .. w-1 -> any bit set? -> mask
 *                                          -> partition by the mask -> zeros, others: lists
 *
 * -0 is a zero, too: pruning by a product leaves the signs. With LMC__ORDER_FLOAT the sign is the
 * lowest bit of plane 0, so only this plane's list of zeros is more than a constant. */

#ifndef LMC_NO_ENCODER
/* Returns the size of the payload, if that is smaller than the elements and at most cap; else 0.
 * *crc: of the elements in the payload. It reads the elements once. */
static size_t lmc__put_zeros(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                             uint32_t *crc)
{
    const size_t n = block->n, mask_size = (n + 7) / 8;
    const unsigned sample = lmc__get_effort(block->level)->sample;
    const int has_signs = block->own == LMC__ORDER_FLOAT;
    uint8_t *const mask = lmc__push_list(&e->stack, mask_size),
                   *const lists = lmc__push_list(&e->stack, n + LMC__PAD),
                   *const work = lmc__push_list(&e->stack, n),
                   *const spare = lmc__push_list(&e->stack, n);
    lmc__planes planes;
    size_t n_zeros, n_others;
    unsigned p;
    if (!mask || !lists || !work || !spare || !lmc__push_planes(e, &planes, n, block->width))
        return 0;
    if (block->sum) *block->sum = 0;
    *crc =
        e->k->split_root(e->k, &planes, NULL, block->src, n, block->width, block->own, block->sum);
    n_others = lmc__mark_others(e->k, mask, spare, &planes, n, block);
    n_zeros = n - n_others;
    e->out = dst;
    e->end = dst + lmc__min(cap, n * block->width - 1);
    if (n_zeros == 0 || n_others == 0 || !lmc__put_list(e, mask, work, spare, mask_size, sample))
        return 0;
    for (p = 0; p < block->width; p++) {
        uint8_t *const zeros = p == 0 && has_signs ? lists : NULL, *const others =
                                                                       lists + n_zeros + LMC__PAD;
        e->k->partition(mask, zeros, others, planes.row[p], n, 0);
        if (!(zeros ? lmc__put_list(e, zeros, work, spare, n_zeros, sample)
                    : lmc__put_constant(e, 0)) ||
            !lmc__put_list(e, others, work, spare, n_others, sample))
            return 0;
    }
    return (size_t)(e->out - dst);
}
#endif /* LMC_NO_ENCODER */
