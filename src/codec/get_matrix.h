#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/matrix.h"
#include "codec/get_list.h"
#include "codec/get_delta.h"

/* Decodes the payload. The prediction is made on the stack; or in dst, if dst has been kept: the
 * stack has no room for both. */
static enum lmc_status lmc__get_matrix(lmc__decoder *d, uint8_t *dst, const lmc_block_info *info,
                                       enum lmc__order order, uint32_t *crc)
{
    const size_t n = info->n;
    const uint8_t *const head = lmc__take(d, LMC__MATRIX_HEAD_SIZE);
    uint8_t *const prediction = d->kept ? dst : lmc__push_list(&d->stack, info->size),
                   *const spare = lmc__push_list(&d->stack, n);
    lmc__matrix r;
    LMC__CHECK(prediction && spare, LMC_ERR_WORKSPACE);
    LMC__VALID(head);
    r.n_columns = lmc__load32(head);
    r.first = lmc__load32(head + 4);
    r.shift = head[8];
    LMC__VALID(r.n_columns >= 1 && r.n_columns <= n && r.first < r.n_columns &&
               r.shift < 8 * info->width);                 /* M-1 to M-3 */
    r.n_rows = lmc__count_groups(r.first, n, r.n_columns); /* at most n */
    LMC__TRY(lmc__get_row(d, &r.low, spare, r.n_rows));
    LMC__TRY(lmc__get_row(d, &r.high, spare, r.n_rows));
    LMC__TRY(lmc__get_row(d, &r.column, spare, r.n_columns));
    LMC__VALID(lmc__are_sums_in_reach(&r, info->width)); /* M-4 */
    LMC__CHECK(lmc__predict_matrix(&d->stack, prediction, n, info->width, &r), LMC_ERR_WORKSPACE);
    d->stack.top = spare;
    return lmc__get_delta(d, dst, prediction, info, order, 0, crc); /* as one class */
}
