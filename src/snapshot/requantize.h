#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/options.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "base/wire_block.h"
#include "codec/workspace.h"
#include "codec/quant_params.h"
#include "codec/get_quantized.h"
#include "quantize/quantizer.h"
#include "quantize/fit_sample.h"
#include "quantize/fit_scales.h"
#include "snapshot/buffer.h"
#include "snapshot/sections.h"
#include "snapshot/reader.h"

/* lmc_quantizer_recover: finds the quantiser of a tensor from the heads of its blocks. The
 * elements of a restored tensor lie on a grid that only the old file has. Coded again with the same
 * quantiser, the tensor decodes to the same elements, in about the same size. A block that would
 * decode to other elements is coded without loss (is_exact, see codec/put_quantized.h).
 *
 * In a hostile file the heads may differ. If a head differs from the first one, the tensor has no
 * quantiser, which is no error. Elements are not decoded.
 *
 *     block 0   | head | table | scales 0 .. 3 |          -> grid, table; scales of groups 0 .. 3
 *     block 1   stored                                    -> nothing; scale 1 for its groups
 *     block 2   | head | table | scales 8 .. 11 |         -> the same? then scales 8 .. 11
 *     end                                                 -> code of each symbol, n_groups scales
 */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

/* Whether a block is quantised. Its header must have been checked. */
static int lmc__is_quantized(const uint8_t *block)
{
    return block[2] >> LMC__LAYOUT_SHIFT == LMC__LAYOUT_QUANTIZED;
}

/* Reads only the head of the quantised block at src, whose header is info. ws must be large enough
 * for blocks of its size. */
static enum lmc_status lmc__read_quantized_head(const lmc__kernels *k, lmc__quantized_head *head,
                                                const uint8_t *src, const lmc_block_info *info,
                                                void *ws, size_t ws_size)
{
    lmc__decoder d;
    uint8_t *spare;
    d.k = k;
    d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
    d.in = src + LMC_BLOCK_HEADER_SIZE;
    d.end = src + info->encoded_size;
    spare = lmc__push_list(&d.stack, info->n);
    LMC__CHECK(spare, LMC_ERR_WORKSPACE);
    return lmc__get_quantized_head(&d, head, info, spare);
}

/* Makes room for the scales of n groups. A file may claim a tensor of any size, so the room grows
 * only as blocks are read: it doubles. Scales that are not read are 1. */
static enum lmc_status lmc__reserve_scales(lmc_quantizer *q, uint64_t n)
{
    const uint64_t group_size = q->params.group_size,
                   all = q->n / group_size + (q->n % group_size ? 1 : 0),
                   doubled = lmc__min64(all, 2 * (uint64_t)q->n_groups),
                   more = n > doubled ? n : doubled;
    uint16_t *scales;
    if (n <= q->n_groups) return LMC_OK;
    if (more > SIZE_MAX / 4) return LMC_ERR_MEMORY;
    scales =
        (uint16_t *)lmc__realloc(q->allocator, q->params.scales, q->n_groups * sizeof scales[0],
                                 (size_t)more * sizeof scales[0]);
    if (!scales) return LMC_ERR_MEMORY;
    q->params.scales = scales;
    while (q->n_groups < more) scales[q->n_groups++] = LMC__SCALE_OF_ONE;
    return LMC_OK;
}

/* Compares everything in two heads except the scales and the place of the first group. A head does
 * not have n_points. */
static int lmc__is_same_quantization(const lmc__quant_params *a, const lmc__quant_params *b)
{
    return a->is_predicted == b->is_predicted && a->low_bits == b->low_bits &&
           a->table_size == b->table_size && a->group_size == b->group_size &&
           a->grid.is_log == b->grid.is_log && a->grid.is_signed == b->grid.is_signed &&
           a->grid.min == b->grid.min && a->grid.step == b->grid.step &&
           a->grid.bias == b->grid.bias && a->grid.floor == b->grid.floor &&
           memcmp(a->table, b->table, sizeof a->table) == 0;
}

/* Takes the parameters from the head of the tensor's first quantised block. n_points becomes the
 * largest number that the grid and, without a table, the codes allow. */
static void lmc__set_quantization(lmc__quant_params *q, const lmc__quant_params *head)
{
    q->is_predicted = head->is_predicted;
    q->grid = head->grid;
    q->low_bits = head->low_bits;
    q->table_size = head->table_size;
    memcpy(q->table, head->table, sizeof q->table);
    q->group_size = head->group_size;
    q->grid.n_points = lmc__max_points(&q->grid);
    if (!q->table_size)
        q->grid.n_points =
            (uint32_t)lmc__min(q->grid.n_points, ((256u << q->low_bits) - 1) >> q->grid.is_signed);
}

/* Takes the scales of a block, and also its parameters if the quantiser has none yet. If the
 * quantiser has other parameters, *is_other is set to 1. A block that is not quantised is skipped.
 *
 * grid.n_points is 0 until a head was seen. first: number of the block's first element in the
 * tensor. The block's first group must end where a group of the tensor ends. A group in two blocks
 * gets its scale twice; if the two scales of a hostile file differ, the last scale counts. */
LMC__COLD static enum lmc_status lmc__recover_block(lmc_quantizer *q, const lmc__wave *wave,
                                                    const uint8_t *src, const lmc_block_info *info,
                                                    uint64_t first, int *is_other)
{
    lmc__quant_params *const p = &q->params;
    lmc__quantized_head head;
    if (!lmc__is_quantized(src)) return LMC_OK;
    *is_other = 1;
    if (info->width != p->width) return LMC_OK;
    LMC__TRY(lmc__read_quantized_head(wave->k, &head, src, info, wave->workspaces,
                                      wave->workspace_size));
    if (p->grid.n_points == 0) lmc__set_quantization(p, &head.params);
    else if (!lmc__is_same_quantization(p, &head.params)) return LMC_OK;
    if (!p->is_predicted) {
        const uint64_t group = first / p->group_size;
        /* Groups are counted from the tensor's first element. */
        if (first % p->group_size != head.first) return LMC_OK;
        LMC__TRY(lmc__reserve_scales(q, group + head.n_groups));
        memcpy(p->scales + group, head.params.scales, head.n_groups * sizeof p->scales[0]);
    }
    *is_other = 0;
    return LMC_OK;
}

/* Recovers the quantiser from the blocks of the tensor's run. The run must have only this tensor.
 * *twin: where the run's prediction is, which is needed to code the tensor again. */
LMC__COLD static enum lmc_status lmc__recover_quantizer(lmc_quantizer *q, lmc_reader *r,
                                                        const lmc__listed_file *f,
                                                        const lmc_tensor *t, lmc_twin *twin)
{
    const size_t number = lmc__find_run(r, lmc__stream_of(r, f), f->start + t->offset);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__coder *const c = r->coder;
    uint64_t block;
    int is_other = 0;
    /* the result until all blocks agree */
    (void)lmc__keep_lossless(q, "its blocks are not of one quantiser");
    if (run->start != f->start + t->offset || run->size != t->size || run->n_segments > 1 ||
        (run->prediction != LMC__PREDICT_ZERO && run->prediction != LMC__PREDICT_OWN) ||
        run->conversion || (run->n_segments && run->segments->base == 0))
        return LMC_OK;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    LMC__TRY(lmc__set_coder(c, lmc__block_size_at(run, 0), 1, 0));
    for (block = 0; block < run->n_blocks && !is_other; block++) {
        const lmc__block_place *const place = lmc__block_at(r, number, block);
        lmc_block_info info;
        LMC__TRY(lmc__read_to(r, &c->in[0], place->at, place->size));
        LMC__TRY(lmc__read_known_block(r, number, block, c->in[0].data, &info));
        LMC__TRY(lmc__recover_block(q, &c->wave, c->in[0].data, &info,
                                    block * run->block_size / q->params.width, &is_other));
    }
    /* There must be a quantised block. The run must have a prediction exactly if its blocks use it,
     * because encoders write it so. */
    if (is_other || q->params.grid.n_points == 0 ||
        q->params.is_predicted != (run->prediction == LMC__PREDICT_OWN))
        return LMC_OK;
    if (q->params.table_size) LMC__TRY(lmc__set_codes(q, 0));
    if (!q->params.is_predicted) /* for blocks that are not quantised, too */
        LMC__TRY(lmc__reserve_scales(q, (q->n - 1) / q->params.group_size + 1));
    if (q->params.is_predicted && twin) {
        memset(twin, 0, sizeof *twin);
        twin->file_number = (size_t)run->segments->base - 1;
        twin->offset = run->segments->base_offset;
    }
    /* a caller that does not ask for the twin cannot give the prediction */
    q->info.is_lossless = q->params.is_predicted && !twin;
    q->info.reason = "";
    q->info.is_grid = q->params.table_size == 0;
    q->info.n_codes = q->params.table_size ? q->params.table_size + 1 : 0;
    return LMC_OK;
}

/* Checks the arguments, then recovers the quantiser. Even with LMC_OK, the quantiser may be
 * lossless, and has the reason. Errors: READ, MEMORY, or what is wrong with the file. */
LMC__COLD LMC_API enum lmc_status lmc_quantizer_recover(lmc_quantizer **quantizer, lmc_reader *r,
                                                        size_t file_number, const lmc_tensor *t,
                                                        lmc_twin *twin,
                                                        const lmc_allocator *allocator)
{
    enum lmc_status status = LMC_OK;
    enum lmc_dtype dtype;
    lmc_quantizer *q;
    LMC__NEW_OBJECT(quantizer);
    if (!r || r->is_salvage || file_number >= r->tables.listing.n_files || !t ||
        t->offset > lmc__file_at(r, file_number)->file.size ||
        t->size > lmc__file_at(r, file_number)->file.size - t->offset)
        return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_allocator(allocator));
    q = (lmc_quantizer *)lmc__realloc(allocator, NULL, 0, sizeof *q);
    if (!q) return LMC_ERR_MEMORY;
    memset(q, 0, sizeof *q);
    q->allocator = allocator;
    q->params.is_exact = 1;
    q->info.loss = t->loss;
    dtype = lmc_dtype_find(t->dtype);
    q->params.width = lmc_dtype_width(dtype);
    q->n = t->size / q->params.width;
    if ((dtype != LMC_F32 && dtype != LMC_BF16) || t->loss.generation == 0 || t->size == 0)
        (void)lmc__keep_lossless(q, "it was not quantised");
    else status = lmc__recover_quantizer(q, r, lmc__file_at(r, file_number), t, twin);
    if (status != LMC_OK) lmc_quantizer_free(q);
    else *quantizer = q;
    return status;
}
#endif
