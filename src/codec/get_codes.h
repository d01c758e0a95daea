#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/codes.h"
#include "codec/workspace.h"
#include "codec/get_list.h"

/* Decodes the payload of a block of codes with scales (spec/codes.md):
 *
 *     head | four lists: the bytes of scales, low ones first | codes
 *
 * dst is written when all of the payload is decoded. */
static enum lmc_status lmc__get_codes(lmc__decoder *d, uint8_t *dst, const lmc_block_info *info,
                                      uint32_t *crc)
{
    const size_t n = info->n;
    const uint8_t *const head = lmc__take(d, LMC__CODES_HEADER), *codes;
    uint8_t *const spare = lmc__push_list(&d->stack, n);
    uint32_t group_size, first, *scales;
    lmc__code_form form;
    size_t n_groups, i;
    lmc__side side;
    unsigned p;
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__VALID(head);
    form.mantissa = head[0];
    form.is_half = head[1];
    form.width = info->width;
    group_size = lmc__load32(head + 2);
    first = lmc__load32(head + 6);
    LMC__VALID(head[0] >= 2 && head[0] <= 7 && head[1] <= (info->width == 2)); /* K-1, K-2 */
    LMC__VALID(group_size >= LMC__LEAST_CODED_GROUP && group_size <= 0x7FFFFFFF);
    LMC__VALID(first >= 1 && first <= group_size);
    n_groups = lmc__count_groups(group_size - first, n, group_size);
    scales = lmc__push_numbers(&d->stack, n_groups);
    LMC__CHECK(scales, LMC_ERR_WORKSPACE);
    memset(scales, 0, 4 * n_groups);
    for (p = 0; p < 4; p++) {
        uint8_t *const top = d->stack.top;
        LMC__TRY(lmc__get_list(d, &side, spare, n_groups));
        for (i = 0; i < n_groups; i++)
            scales[i] |= (uint32_t)(side.list ? side.list[i] : side.value) << 8 * p;
        d->stack.top = top;
    }
    for (i = 0; i < n_groups; i++)
        LMC__VALID(scales[i] >= LMC__MIN_SCALE && scales[i] <= LMC__MAX_CODED_SCALE); /* K-5 */
    LMC__TRY(lmc__get_row(d, &codes, spare, n));
    LMC__VALID(d->in == d->end);
    form.group_size = group_size;
    lmc__set_numbers(&form);
    d->k->restore_codes(dst, codes, n, &form, scales, first);
    *crc = d->k->crc32c(0, dst, info->size);
    return LMC_OK;
}
