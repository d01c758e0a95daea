#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "kernels/strip.h"
#include "codec/dtypes.h"
#include "codec/job.h"
#include "codec/workspace.h"
#include "codec/sample.h"
#include "codec/block_header.h"
#include "codec/put_planes.h"
#include "codec/put_zeros.h"
#include "codec/put_delta.h"
#include "codec/put_matrix.h"
#include "codec/put_codes.h"

/* Encodes a block: as planes, as a delta against its prediction, or stored. It chooses the form
 * that is probably the smallest, by estimates.
 *
 * A program may change the elements while they are encoded (CONTRACT in lmc.h). The output must
 * still decode, to a mixture of old and new elements. So all of a payload, and Content_CRC, come
 * from one reading: one pass copies the elements to planes or classes, and computes the CRC of the
 * copied bytes. Other readings (samples, counts) are only for choices, and a choice can code any
 * elements. Only in a tree without an escape, a symbol that was not counted has no code: this is
 * found when the copy is coded. If the copy was overwritten and must be made again, its CRC has to
 * be the same. If either check fails, the elements have changed, and the block is stored.
 *
 *     lmc__encode_block      header; stores a block                this file
 *     lmc__encode_payload    the best of several levels            this file
 *     lmc__encode_at_level   with or without the prediction        this file
 *     lmc__put_planes        planes: choose, split, write          plan_planes.h, put_planes.h
 *     lmc__put_zeros         planes, with zeros apart              plan_zeros.h, put_zeros.h
 *     lmc__put_delta         classes: choose, group, write         plan_delta.h, put_delta.h
 *     lmc__put_matrix        a prediction by rows and columns      put_matrix.h
 *     lmc__put_planned       one list: constant, tree, raw         plan.h, put_list.h
 *
 * The bytes of a block depend only on its elements, prediction, dtype, level and number: not on the
 * tier, and not on other blocks. */

#ifndef LMC_NO_ENCODER
/* Encodes without the prediction, as planes, perhaps with zeros apart, in at most cap bytes and
 * fewer bytes than the elements. This and the next three functions return how the block is coded.
 * payload_size is 0 if the payload does not fit; dst is overwritten even then. */
static lmc__block_coding lmc__encode_direct(lmc__encoder *e, uint8_t *dst, size_t cap,
                                            const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__block_coding coding;
    int zeros_apart = 0;
    e->worth = block->width == 1 ? lmc__get_effort(block->level)->byte_worth
                                 : lmc__get_effort(block->level)->direct_worth;
    memset(&coding, 0, sizeof coding);
    coding.layout = LMC__LAYOUT_PLANES;
    coding.order = block->own;
    coding.payload_size = lmc__put_planes(e, dst, cap, block, &coding.content_crc, &zeros_apart);
    if (zeros_apart) {
        e->stack.top = top;
        coding.layout = LMC__LAYOUT_ZEROS;
        coding.payload_size = lmc__put_zeros(e, dst, cap, block, &coding.content_crc);
    }
    coding.has_sum = block->sum && coding.payload_size;
    e->stack.top = top;
    return coding;
}

/* As lmc__encode_direct, but against the prediction. matrix: what it was made from, or NULL. */
static lmc__block_coding lmc__encode_delta(lmc__encoder *e, uint8_t *dst, size_t cap,
                                           const lmc__block *block, const lmc__delta *delta,
                                           const lmc__matrix *matrix)
{
    uint8_t *const top = e->stack.top;
    lmc__block_coding coding;
    size_t head = 0;
    e->worth = lmc__get_effort(block->level)->delta_worth;
    memset(&coding, 0, sizeof coding);
    coding.layout = matrix ? LMC__LAYOUT_MATRIX : LMC__LAYOUT_PLANES;
    coding.order = delta->order;
    coding.is_predicted = !matrix;
    cap = lmc__min(cap, block->n * block->width - 1); /* as must be (spec 5) */
    if (matrix && (head = lmc__put_matrix(e, dst, cap, matrix)) == 0) return coding;
    coding.grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? LMC__SPARSE : 0u) |
                      delta->grouping.n_natural << LMC__NATURAL_SHIFT;
    coding.payload_size =
        lmc__put_delta(e, dst + head, cap - head, block, delta, &coding.content_crc);
    if (coding.payload_size) coding.payload_size += head;
    e->stack.top = top;
    return coding;
}

/* Encodes in the smaller of two ways. lmc__plan_delta's verdict (or lmc__plan_matrix's, if there is
 * no prediction yet) decides what is tried, so that most blocks are coded only once:
 *   1  the delta, if the verdict is DELTA; done if it takes at most delta.border bytes
 *   2  else without the prediction (direct)
 *   3  then the delta in fewer bytes than step 2 took, unless the verdict is DIRECT, or step 1 has
 *      shown that the delta takes more; but no delta by rows and columns
 *
 * There is only one buffer. So if the delta of step 3 does not fit, step 2 is done again. */
static lmc__block_coding lmc__encode_at_level(lmc__encoder *e, uint8_t *dst, size_t cap,
                                              const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__delta delta;
    lmc__matrix matrix, *const by_matrix = block->base ? NULL : &matrix;
    lmc__block predicted = *block;
    const enum lmc__verdict verdict = by_matrix
                                          ? lmc__plan_matrix(e, &matrix, &delta, &predicted, block)
                                          : lmc__plan_delta(e, &delta, block);
    lmc__block_coding direct, by_delta;
    size_t best, too_small = 0; /* the delta is known not to fit in this many bytes */
    by_delta.payload_size = 0;
    if (verdict == LMC__DELTA) {
        too_small = delta.border;
        by_delta =
            lmc__encode_delta(e, dst, lmc__min(cap, too_small), &predicted, &delta, by_matrix);
    }
    if (!by_delta.payload_size) {
        if (by_matrix) e->stack.top = top; /* frees the prediction: zeros apart need the room */
        direct = lmc__encode_direct(e, dst, cap, block);
        best = direct.payload_size ? direct.payload_size : SIZE_MAX;
        if (verdict != LMC__DIRECT && !by_matrix && best > too_small) {
            by_delta = lmc__encode_delta(e, dst, lmc__min(cap, best - 1), block, &delta, NULL);
            if (!by_delta.payload_size && direct.payload_size)
                direct = lmc__encode_direct(e, dst, cap, block);
        }
    }
    e->stack.top = top;
    return by_delta.payload_size ? by_delta : direct;
}

/* A higher level makes most blocks smaller, but not all: by chance a sample may give a better
 * choice than all counts. So all levels from the default on are tried, and the smallest result is
 * kept. */
static lmc__block_coding lmc__encode_payload(lmc__encoder *e, uint8_t *dst, size_t cap,
                                             const lmc__block *block)
{
    lmc__block trial = *block;
    lmc__block_coding coding, best;
    enum lmc_level best_level;
    if (block->level > LMC_LEVEL_DEFAULT) trial.level = LMC_LEVEL_DEFAULT;
    coding = best = lmc__encode_at_level(e, dst, cap, &trial);
    best_level = trial.level;
    while (trial.level < block->level) {
        trial.level = (enum lmc_level)((int)trial.level + 1);
        coding = lmc__encode_at_level(
            e, dst, best.payload_size ? lmc__min(cap, best.payload_size) : cap, &trial);
        if (!coding.payload_size) continue;
        best = coding;
        best_level = trial.level;
    }
    if (coding.payload_size || !best.payload_size) return best;
    trial.level = best_level; /* a later trial has overwritten the best payload */
    return lmc__encode_at_level(e, dst, cap, &trial);
}

/* Codes the block with codes and scales instead, if that is smaller by 1/16 of *coding, which has
 * been written to dst: restoring takes longer. */
#define LMC__CODES_MIN_SAVING 16u
static void lmc__try_codes(lmc__encoder *e, uint8_t *dst, size_t cap, const lmc__block *block,
                           enum lmc_dtype dtype, lmc__block_coding *coding)
{
    const size_t other =
        coding->payload_size ? coding->payload_size : lmc__min(cap, block->n * block->width);
    uint8_t *const top = e->stack.top;
    uint32_t crc;
    size_t size;
    e->out = NULL;
    size = lmc__put_codes(e, dst, other - other / LMC__CODES_MIN_SAVING, block, dtype, &crc);
    e->stack.top = top;
    if (size) {
        memset(coding, 0, sizeof *coding);
        coding->layout = LMC__LAYOUT_CODES;
        coding->payload_size = size;
        coding->content_crc = crc;
    } else if (e->out) /* it has overwritten dst, but did not fit */
        *coding = lmc__encode_payload(e, dst, cap, block);
}

/* Copies the elements. Returns the CRC of the copy, taken strip by strip while it is in the first
 * cache. */
static uint32_t lmc__store_elements(const lmc__kernels *k, uint8_t *dst, const uint8_t *src,
                                    size_t size)
{
    uint32_t crc = 0;
    size_t i, n;
    for (i = 0; i < size; i += n) {
        n = lmc__min(LMC__STRIP_SIZE, size - i);
        memcpy(dst + i, src + i, n);
        crc = k->crc32c(crc, dst + i, n);
    }
    return crc;
}

/* Stores job's block. The caller has checked that there is room. */
static void lmc__store_block(const lmc__kernels *k, lmc__job *job, unsigned width)
{
    lmc__block_coding coding;
    memset(&coding, 0, sizeof coding); /* LMC__LAYOUT_STORED */
    coding.payload_size = job->src_size;
    coding.content_crc =
        lmc__store_elements(k, job->dst + LMC_BLOCK_HEADER_SIZE, job->src, job->src_size);
    lmc__put_block_header(job->dst, &coding, width, job->src_size / width, k, job->number);
    job->dst_size = LMC_BLOCK_HEADER_SIZE + job->src_size;
}

/* Encodes job's block, but does not quantise it: the payload, then the header, which has the
 * payload's CRC. If no payload is smaller than the elements, the elements are stored.
 * DST_TOO_SMALL: there is no room for the header, or for a block that must be stored. */
static enum lmc_status lmc__encode_block(const lmc__kernels *k, lmc__job *job, void *ws,
                                         size_t ws_size)
{
    uint8_t *const payload = job->dst + LMC_BLOCK_HEADER_SIZE;
    lmc__block_coding coding;
    lmc__encoder e;
    lmc__block block;
    size_t cap;

    if (job->dst_size < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = job->dst_size - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    lmc__set_block(&block, job->src, job->src_size, job->dtype);
    block.base = job->base;
    block.level = job->level;
    block.sum = job->sum;
    block.may_group = !job->is_ungrouped;
    block.without = job->without;
    if (job->dtype == LMC_AUTO) lmc__guess_width(&e, &block);
    else if (job->row_size && job->row_size <= job->src_size) { /* a block has several rows */
        block.n_columns = (size_t)job->row_size;
        block.first_column = (size_t)(job->first_element % job->row_size);
    }
    coding = lmc__encode_payload(&e, payload, cap, &block);
    if (!(job->without & LMC_FEATURE_CODES))
        lmc__try_codes(&e, payload, cap, &block, job->dtype, &coding);
    job->has_sum = coding.payload_size && coding.has_sum;
    if (!coding.payload_size) {
        if (cap < job->src_size) return LMC_ERR_DST_TOO_SMALL;
        lmc__store_block(k, job, block.width);
        return LMC_OK;
    }
    lmc__put_block_header(job->dst, &coding, block.width, block.n, k, job->number);
    job->dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

/* For LMC_AUTO each byte counts as an element: then the limit and the workspace suffice for every
 * width that may be guessed. */
LMC_API enum lmc_status lmc_block_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size,
                                         const lmc_block_options *options, void *ws, size_t ws_size)
{
    lmc_block_options o;
    lmc__job job;
    unsigned width;
    if (!dst || !dst_size || !src || !ws || !options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, prediction_size, options));
    width = lmc_dtype_width(o.dtype);
    if ((unsigned)o.dtype >= LMC__DTYPE_COUNT || !lmc__is_level(o.level) || size == 0 ||
        size % width || size > LMC_MAX_BLOCK_SIZE)
        return LMC_ERR_ARGUMENT;
    if (!lmc__is_workspace(ws_size, size / width, width)) return LMC_ERR_WORKSPACE;
    if (o.prediction && o.prediction_size != size) return LMC_ERR_BASE_WRONG;
    memset(&job, 0, sizeof job);
    job.src = (const uint8_t *)src;
    job.src_size = size;
    job.base = (const uint8_t *)o.prediction;
    job.dst = (uint8_t *)dst;
    job.dst_size = dst_cap;
    job.dtype = o.dtype;
    job.level = o.level;
    job.number = o.number;
    job.without = o.without;
    LMC__TRY(lmc__encode_block(lmc__get_kernels(), &job, ws, ws_size));
    *dst_size = job.dst_size;
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
