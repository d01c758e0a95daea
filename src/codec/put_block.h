#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "kernels/strip.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/sample.h"
#include "codec/block_header.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"

/* Encoding a block: its planes, or a delta against its prediction, or stored, whichever is the
 * smallest as far as that is known without trying everything. A payload is never larger than the
 * elements, so a block is never larger than lmc_block_bound says.
 *
 * The elements may change meanwhile, for a training loop does not wait. What is written must decode
 * all the same, to old and new ones. So all of a payload, and Content_CRC, come from one reading:
 * one pass copies the elements to planes or classes, and takes the CRC of the bytes that it has
 * copied. Other readings only choose (samples, counts), and a choice codes any elements. Where one
 * cannot, as a tree without an escape and a symbol that was not counted, that shows when the copy
 * is coded. Where the copy is used up, and is made again, its CRC has to be the same. A block that
 * is found to have changed is as one that did not get smaller: it is stored, as it is then.
 *
 *     lmc__encode_block      header, arguments, "stored"           this file
 *     lmc__encode_payload    at a level, or better by one below     this file
 *     lmc__encode_at_level   which way                             this file
 *     lmc__put_planes        planes: choose, split, write          plan_planes.h, put_planes.h
 *     lmc__put_delta         classes: choose, group, write         plan_delta.h, put_delta.h
 *     lmc__put_planned       one list: constant, tree, raw         plan.h, put_list.h
 *
 * Quantised blocks come in by put_quantised.h, and here only where they are coded without loss. The
 * bytes of a block depend on its elements, prediction, dtype, level and number, and on nothing
 * else: neither on the tier nor on the blocks before. */

#ifndef LMC_NO_ENCODER
/* Without the prediction: in planes or, if that is not smaller, stored, which is left to the
 * caller. */
static void lmc__encode_direct(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                               const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    e->worth = lmc__get_effort(block->level)->direct_worth;
    memset(coding, 0, sizeof *coding);
    coding->layout = LMC__LAYOUT_PLANES;
    coding->order = block->own;
    coding->payload_size = lmc__put_planes(e, dst, cap, block, &coding->content_crc);
    coding->has_sum = block->sum && coding->payload_size;
    e->stack.top = top;
}

/* Against the prediction, in at most cap bytes and in less than the elements have. Returns 0, and
 * leaves coding as it is, if it does not fit; what lies at dst is overwritten all the same. */
static int lmc__encode_delta(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                             const lmc__block *block, const lmc__delta *delta)
{
    uint8_t *const top = e->stack.top;
    uint32_t content_crc;
    size_t payload_size;
    e->worth = lmc__get_effort(block->level)->delta_worth;
    payload_size = lmc__put_delta(e, dst, cap, block, delta, &content_crc);
    e->stack.top = top;
    if (payload_size == 0) return 0;
    coding->layout = LMC__LAYOUT_PLANES;
    coding->order = delta->order;
    coding->is_predicted = 1;
    coding->grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? LMC__SPARSE : 0u) |
                       delta->grouping.n_natural << LMC__NATURAL_SHIFT;
    coding->content_crc = content_crc;
    coding->payload_size = payload_size;
    coding->has_sum = 0;
    return 1;
}

/* Encodes the payload in the smaller of two ways. A sample has been asked for a verdict first, so
 * that most blocks are coded once:
 *
 *   1  the delta, if it is likely to be smaller by an eighth (from max on: by half), and it is
 *   2  else without the prediction: the best so far
 *   3  then the delta in fewer bytes, unless the sample was sure that it is worth nothing, or 1
 *      has shown that it takes more than the best
 *
 *     verdict    ways tried                                          the sample says
 *     DIRECT     direct                                              no base, or a useless one
 *     DELTA      delta; where it is larger than 1 wants it, 2, 3     smaller by that
 *     EITHER     2, 3                                                in between
 *
 * There is one buffer, so where 3 fails, what it has overwritten is made once more. */
static void lmc__encode_at_level(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst,
                                 size_t cap, const lmc__block *block)
{
    lmc__delta delta;
    const enum lmc__verdict verdict = block->base ? lmc__plan_delta(e, &delta, block) : LMC__DIRECT;
    size_t best, too_small = 0; /* bytes in which the delta does not fit, as is known */
    if (verdict == LMC__DELTA) {
        too_small = delta.border;
        if (lmc__encode_delta(e, coding, dst, lmc__min(cap, too_small), block, &delta)) return;
    }
    lmc__encode_direct(e, coding, dst, cap, block);
    best = coding->payload_size ? coding->payload_size : SIZE_MAX;
    if (verdict == LMC__DIRECT || best <= too_small) return;
    if (lmc__encode_delta(e, coding, dst, lmc__min(cap, best - 1), block, &delta)) return;
    if (coding->payload_size) lmc__encode_direct(e, coding, dst, cap, block);
}

/* A level above the default makes most blocks smaller than the one below it does. It is not sure
 * to: a sample may be luckier than all counts, and with other classes a delta may be larger. So all
 * levels from the default on are tried in turn, and the smallest stays. */
static void lmc__encode_payload(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst,
                                size_t cap, const lmc__block *block)
{
    uint8_t *const top = e->stack.top;
    lmc__block trial = *block;
    enum lmc_level best_level;
    size_t best;
    if (block->level > LMC_LEVEL_DEFAULT) trial.level = LMC_LEVEL_DEFAULT;
    lmc__encode_at_level(e, coding, dst, cap, &trial);
    e->stack.top = top;
    best = coding->payload_size;
    best_level = trial.level;
    while (trial.level < block->level) {
        trial.level = (enum lmc_level)((int)trial.level + 1);
        lmc__encode_at_level(e, coding, dst, best ? lmc__min(cap, best - 1) : cap, &trial);
        e->stack.top = top;
        if (coding->payload_size == 0) continue;
        best = coding->payload_size;
        best_level = trial.level;
    }
    if (coding->payload_size || !best) return;
    trial.level = best_level;
    lmc__encode_at_level(e, coding, dst, cap, &trial);
    e->stack.top = top;
}

/* The elements as they are. Returns the CRC of what was stored. Strip by strip: so the copy is in
 * the first cache. */
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

/* One block: payload behind the place of the header, then the header, which has its CRCs. Arguments
 * are valid. sum, has_sum: where the sum64 of the elements goes, if that is taken on the way, and
 * whether it was; or NULL. A payload that would not be smaller than the elements has size 0: then
 * they are stored. So dst_cap may be too small in two ways: for the header, or for a block
 * that has to be stored; a payload is only ever made as large as there is room. */
static enum lmc_status lmc__encode_block(const lmc__kernels *k, void *dst, size_t dst_cap,
                                         size_t *dst_size, const uint8_t *src, size_t size,
                                         const uint8_t *base, enum lmc_dtype dtype, int may_group,
                                         enum lmc_level level, uint32_t number, void *ws,
                                         size_t ws_size, uint64_t *sum, int *has_sum)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    lmc__block_coding coding;
    lmc__encoder e;
    lmc__block block;
    size_t cap;

    if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = dst_cap - LMC_BLOCK_HEADER_SIZE;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    block.src = src;
    block.base = base;
    block.level = level;
    block.sum = sum;
    block.may_group = may_group;
    block.width = lmc_dtype_width(dtype);
    block.order = lmc__order_of(dtype, 0);
    block.own = lmc__order_of(dtype, 1);
    if (dtype == LMC_AUTO) lmc__guess_width(&e, src, size, &block.width, &block.order, &block.own);
    block.n = size / block.width;
    lmc__encode_payload(&e, &coding, payload, cap, &block);
    if (has_sum) *has_sum = coding.payload_size && coding.has_sum;
    if (!coding.payload_size) {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        coding.layout = LMC__LAYOUT_STORED;
        coding.order = LMC__ORDER_NONE;
        coding.payload_size = size;
        coding.content_crc = lmc__store_elements(k, payload, src, size);
    }
    lmc__put_block_header(out, &coding, block.width, block.n, k, number);
    *dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

/* Checks the arguments. LMC_AUTO blocks count their bytes as elements, so that any width guessed
 * stays within the limit and the workspace. The workspace belongs to the call: what it held before
 * does not matter, and nothing in it is of use afterwards. */
LMC_API enum lmc_status lmc_block_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size,
                                         const lmc_block_options *options, void *ws, size_t ws_size)
{
    lmc_block_options o;
    unsigned width;
    if (!dst || !dst_size || !src || !ws || !options) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__take_options(&o, sizeof o, options));
    width = lmc_dtype_width(o.dtype);
    if ((unsigned)o.dtype >= LMC_DTYPE_COUNT || !lmc__is_level(o.level) || size == 0 ||
        size % width || size > LMC_MAX_BLOCK_SIZE)
        return LMC_ERR_ARGUMENT;
    if (!lmc__is_workspace(ws_size, size / width, width)) return LMC_ERR_WORKSPACE;
    if (o.prediction && o.prediction_size != size) return LMC_ERR_BASE_WRONG;
    return lmc__encode_block(lmc__get_kernels(), dst, dst_cap, dst_size, (const uint8_t *)src, size,
                             (const uint8_t *)o.prediction, o.dtype, 1, o.level, o.number, ws,
                             ws_size, NULL, NULL);
}
#endif /* LMC_NO_ENCODER */
