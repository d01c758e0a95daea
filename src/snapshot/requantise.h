#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/workspace.h"
#include "codec/get_list.h"
#include "codec/put_quantised.h"
#include "codec/get_quantised.h"
#include "quantise/fit.h"
#include "snapshot/buffer.h"
#include "snapshot/sections.h"
#include "snapshot/reader.h"

/* Room for the scales of n groups, as blocks come: a file may claim more than it has. */
static enum lmc_status lmc__reserve_scales(lmc_quantizer *q, uint64_t n)
{
    const uint64_t all = q->n / q->group_size + (q->n % q->group_size ? 1 : 0),
                   doubled = lmc__min64(all, 2 * (uint64_t)q->n_groups),
                   more = n > doubled ? n : doubled;
    uint16_t *scales;
    if (n <= q->n_groups) return LMC_OK;
    if (more > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    scales = (uint16_t *)LMC_REALLOC(q->alloc_user, q->scales, q->n_groups * sizeof q->scales[0],
                                     (size_t)more * sizeof q->scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->scales = scales;
    while (q->n_groups < more) scales[q->n_groups++] = 0x3F80;
    return LMC_OK;
}

/* The grid of a quantised block of a run, if the quantiser has none yet, else *is_other where that
 * differs; and the scales of the groups in it. A block that is not quantised, as was smaller, says
 * nothing: it will be coded so again. */
static enum lmc_status lmc__recover_block(lmc_quantizer *q, const lmc__kernels *k,
                                          const uint8_t *src, const lmc_block_info *info,
                                          uint64_t first, uint8_t *ws, size_t ws_size,
                                          int *is_other)
{
    lmc__decoder d;
    lmc__quantised head;
    uint8_t *spare;
    size_t i;
    if (src[1] >> 5 != LMC__LAYOUT_QUANTISED) return LMC_OK;
    *is_other = 1;
    if (info->width != q->width) return LMC_OK;
    d.k = k;
    d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
    d.in = src + LMC_BLOCK_HEADER_SIZE;
    d.end = src + info->encoded_size;
    spare = lmc__push_list(&d.stack, info->n);
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    LMC__TRY(lmc__get_quantised_head(&d, &head, info, spare));
    if (q->grid.n_points == 0) {
        q->grid = head.grid;
        q->grid.n_points = head.grid.is_signed ? 32767 : LMC__EXCEPTION - 1;
        if (head.grid.is_log && q->grid.n_points > 0x7FFFFFFFu / head.grid.step)
            q->grid.n_points = 0x7FFFFFFFu / head.grid.step;
        q->is_predicted = info->has_prediction;
        q->low_bits = head.low_bits;
        q->table_size = head.table_size;
        if (!q->table_size)
            q->grid.n_points =
                (uint32_t)lmc__min(q->grid.n_points, ((256u << q->low_bits) - 1) >>
                                                         q->grid.is_signed); /* that have codes */
        memcpy(q->table, head.table, sizeof q->table);
        q->group_size = head.group_size;
    } else if (q->is_predicted != info->has_prediction || q->low_bits != head.low_bits ||
               q->table_size != head.table_size || q->group_size != head.group_size ||
               q->grid.is_log != head.grid.is_log || q->grid.is_signed != head.grid.is_signed ||
               q->grid.min != head.grid.min || q->grid.step != head.grid.step ||
               q->grid.bias != head.grid.bias || q->grid.floor != head.grid.floor ||
               memcmp(q->table, head.table, sizeof q->table) != 0)
        return LMC_OK;
    if (!q->is_predicted && (first + head.first_group) % q->group_size != 0) return LMC_OK;
    if (!q->is_predicted) LMC__TRY(lmc__reserve_scales(q, first / q->group_size + head.n_groups));
    for (i = 0; i < head.n_groups && !q->is_predicted; i++)
        q->scales[first / q->group_size + i] = (uint16_t)(lmc__scale_at(&head, i) >> 16);
    *is_other = 0;
    return LMC_OK;
}

/* The codes of symbols, as they were found when the table was fitted: not only of those in it, for
 * BF16 may be rounded to a neighbour. */
static enum lmc_status lmc__set_codes(lmc_quantizer *q)
{
    const uint32_t zero = q->grid.is_log ? 0 : (uint32_t)(1 - q->grid.min);
    uint32_t s, distance;
    unsigned code = 1;
    if (q->table_size == 0) return LMC_OK;
    q->n_codes = LMC__SYMBOLS;
    q->codes = (uint8_t *)LMC_REALLOC(q->alloc_user, NULL, 0, q->n_codes);
    if (!q->codes) return LMC_ERR_MEMORY;
    memset(q->codes, 0, q->n_codes);
    for (s = 1; s < LMC__EXCEPTION; s++)
        q->codes[s] = (uint8_t)lmc__find_code(q, &code, s, zero, &distance);
    return LMC_OK;
}

static enum lmc_status lmc__recover_quantizer(lmc_quantizer *q, lmc_reader *r,
                                              const lmc__reader_file *f, const lmc_tensor *t,
                                              lmc_twin *twin)
{
    const size_t number = lmc__find_run(r, f, t->offset);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t *const block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block;
    const size_t ws_size = lmc_workspace_size(
        lmc__min((size_t)lmc__min64(run->block_size, run->size), LMC_MAX_BLOCK_ELEMENTS));
    enum lmc_status status = LMC_OK;
    lmc__buffer in, ws;
    uint64_t block;
    int is_other = 0;
    (void)lmc__keep_lossless(q, "its blocks are not of one quantiser");
    if (run->start != t->offset || run->size != t->size || run->n_segments != 1 ||
        run->prediction == LMC__PREDICT_BASE || run->conversion)
        return LMC_OK;
    memset(&in, 0, sizeof in);
    in.alloc_user = q->alloc_user;
    ws = in;
    status = lmc__reserve(&ws, ws_size);
    for (block = 0; block < run->n_blocks && status == LMC_OK && !is_other; block++) {
        const size_t size = (size_t)(block_at[block + 1] - block_at[block]);
        lmc_block_info info;
        in.size = 0;
        status = lmc__reserve(&in, size);
        if (status == LMC_OK) status = lmc__read_at(r, block_at[block], in.data, size);
        if (status == LMC_OK) status = lmc__read_known_block(r, number, block, in.data, &info);
        if (status == LMC_OK)
            status =
                lmc__recover_block(q, r->coder->wave.k, in.data, &info,
                                   block * run->block_size / q->width, ws.data, ws_size, &is_other);
    }
    lmc__free_buffer(&in);
    lmc__free_buffer(&ws);
    LMC__TRY(status);
    if (is_other || q->grid.n_points == 0 ||
        q->is_predicted != (run->prediction == LMC__PREDICT_OWN))
        return LMC_OK;
    LMC__TRY(lmc__set_codes(q));
    if (!q->is_predicted)
        LMC__TRY(lmc__reserve_scales(q, (q->n - 1) / q->group_size +
                                            1)); /* of blocks that are not quantised, too */
    if (q->is_predicted && twin) {
        twin->file_number = lmc__load32(run->segments + 4) - 1;
        twin->offset = lmc__load64(run->segments + 24);
        twin->conversion = LMC_CONVERT_NONE;
    }
    q->info.is_lossless = q->is_predicted && !twin;
    q->info.reason = "";
    q->info.is_grid = q->table_size == 0;
    q->info.n_codes = q->table_size ? q->table_size + 1 : 0;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_read_quantizer(lmc_quantizer **quantizer, lmc_reader *r,
                                           size_t file_number, const lmc_tensor *t, lmc_twin *twin)
{
    enum lmc_status status = LMC_OK;
    enum lmc_dtype dtype;
    lmc_quantizer *q;
    if (!quantizer || !r || r->options.salvage || file_number >= r->n_files || !t ||
        t->offset > lmc__file_at(r, file_number)->file.size ||
        t->size > lmc__file_at(r, file_number)->file.size - t->offset)
        return LMC_ERR_ARGUMENT;
    q = (lmc_quantizer *)LMC_REALLOC(r->options.alloc_user, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->alloc_user = r->options.alloc_user;
    q->is_recovered = 1;
    q->info.loss = t->loss;
    dtype = lmc_find_dtype(t->dtype);
    q->width = lmc_dtype_width(dtype);
    q->n = t->size / q->width;
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || t->loss.generation == 0 || t->size == 0)
        (void)lmc__keep_lossless(q, "it was not quantised");
    else status = lmc__recover_quantizer(q, r, lmc__file_at(r, file_number), t, twin);
    if (status != LMC_OK) lmc_free_quantizer(q);
    else *quantizer = q;
    return status;
}
