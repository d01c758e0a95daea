#pragma once
#include "base/platform.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/sample.h"
#include "codec/plan_delta.h"
#include "codec/put_block.h"
#include "quantize/quantizer.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"

#ifndef LMC_NO_ENCODER
/* Encodes a tensor. The encoded size of a block is known only at its end, but with several workers
 * the next block begins earlier. So each block of a wave is encoded to a *slot*, which has room for
 * any block. Then it is *packed*: moved down to the end of the block before it.
 *
 *     one worker        a wave is one block, which is encoded at its place
 *     several workers   if dst has room for the slots of all blocks, block i is encoded to slot i.
 *                       While a wave is encoded, one more task packs the wave before it:
 *                           dst   |packed....|  wave i: packing  |  wave i + 1: encoding  |
 *
 *                       Else a wave's slots begin behind the packed blocks. The wave has as many
 *                       blocks as dst has room for, and is packed before the next wave begins.
 *
 * Slot i begins at dst + i * lmc_block_bound(block_size). Blocks 0 to i - 1 fit in their slots, so
 * block i is never packed above its slot, and a packed wave ends at or below the next wave's first
 * slot. So packing and encoding write to different memory. All three ways give the same output. */
typedef struct lmc__tensor_encoding {
    const uint8_t *src;
    size_t size, block_size;
    uint64_t n_blocks;
    const lmc_tensor_options *options;
    const lmc__quant_params *quant; /* how to quantise the tensor; or NULL */
    lmc__wave wave;
    uint8_t *dst;
    size_t dst_cap;
    uint8_t *packed;           /* end of the packed blocks */
    const lmc__job *made_jobs; /* an encoded wave that is not packed yet */
    size_t n_made;
} lmc__tensor_encoding;

/* Packs the encoded wave, in order. memmove: a block may move by less than its size. */
static void lmc__pack_wave(lmc__tensor_encoding *t)
{
    size_t i;
    for (i = 0; i < t->n_made; i++) {
        const lmc__job *job = &t->made_jobs[i];
        if (job->dst != t->packed) memmove(t->packed, job->dst, job->dst_size);
        t->packed += job->dst_size;
    }
    t->n_made = 0;
}

static void lmc__pack_and_encode_task(void *arg, size_t index, unsigned worker)
{
    lmc__tensor_encoding *t = (lmc__tensor_encoding *)arg;
    if (index == 0) lmc__pack_wave(t);
    else lmc__encode_task(&t->wave, index - 1, worker);
}

/* Sets t->wave.jobs to encode up to max_jobs blocks from `first` on, in slots from `place` on. The
 * wave ends where dst has no room for another slot. The wave's first block may get less room than a
 * slot: it may fit all the same. Returns the number of jobs, at least 1. */
static size_t lmc__plan_wave(const lmc__tensor_encoding *t, uint64_t first, size_t max_jobs,
                             uint8_t *place)
{
    const lmc_tensor_options *const options = t->options;
    size_t n;
    for (n = 0; n < max_jobs && first + n < t->n_blocks; n++) {
        lmc__job *const job = &t->wave.jobs[n];
        const size_t at = (size_t)(first + n) * t->block_size,
                     room = t->dst_cap - (size_t)(place - t->dst);
        size_t slot;
        memset(job, 0, sizeof *job);
        job->src = t->src + at;
        job->src_size = lmc__min(t->block_size, t->size - at);
        job->base = options->prediction ? (const uint8_t *)options->prediction + at : NULL;
        slot = lmc_block_bound(job->src_size);
        if (slot > room && n > 0) break;
        job->dst = place;
        job->dst_size = lmc__min(slot, room);
        job->dtype = options->dtype;
        job->level = options->level;
        job->without = options->without;
        job->quant = t->quant;
        job->first_element = at / lmc_dtype_width(options->dtype);
        job->row_size = options->row_size;
        job->number = (uint32_t)(first + n);
        place += job->dst_size;
    }
    return n;
}

/* Encodes all waves, of max_jobs each. slot: 0, or the size of a slot if a wave is packed while the
 * next one is encoded. Packing then needs the previous wave's jobs, so two sets of jobs alternate.
 * An error ends the call at once, and leaves dst undefined. */
static enum lmc_status lmc__encode_waves(lmc__tensor_encoding *t, size_t max_jobs, size_t slot)
{
    lmc__job *const jobs = t->wave.jobs;
    uint64_t block;
    size_t n;
    for (block = 0; block < t->n_blocks; block += n) {
        n = lmc__plan_wave(t, block, max_jobs, slot ? t->dst + (size_t)block * slot : t->packed);
        lmc__run_tasks(t->options->parallel, lmc__pack_and_encode_task, t, n + 1);
        LMC__TRY(lmc__wave_status(&t->wave, n));
        t->made_jobs = t->wave.jobs;
        t->n_made = n;
        if (slot) t->wave.jobs = t->wave.jobs == jobs ? jobs + max_jobs : jobs;
        else lmc__pack_wave(t);
    }
    lmc__pack_wave(t);
    return LMC_OK;
}

/* 1 if a sample of the first block says that the prediction is useless. Then the smaller blocks of
 * a tensor without a prediction are better. Always 0 if the caller has chosen the block size, or
 * for a quantizer: its blocks need their prediction. */
static int lmc__is_useless(const lmc__tensor_encoding *t)
{
    const lmc_tensor_options *const options = t->options;
    lmc__block block;
    lmc__delta delta;
    lmc__encoder e;
    if (!options->prediction || t->quant || options->log2_block != 0 ||
        options->dtype == LMC_AUTO || t->size == 0)
        return 0;
    e.k = t->wave.k;
    e.scratch = lmc__open_workspace(&e.stack, t->wave.workspaces, t->wave.workspace_size);
    lmc__set_block(&block, t->src, lmc__min(t->size, t->block_size), options->dtype);
    block.base = (const uint8_t *)options->prediction;
    block.may_group = 1; /* at the default level */
    return lmc__plan_delta(&e, &delta, &block) == LMC__DIRECT;
}

LMC_API enum lmc_status lmc_tensor_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    lmc_tensor_options o, direct;
    lmc__tensor_encoding t;
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, row_size, options));
    LMC__TRY(lmc__check_parallel(o.parallel));
    options = &o;
    if (!ws) {
        enum lmc_status status;
        LMC__TRY(lmc__allocate_workspace(&ws, &ws_size, options));
        status = lmc_tensor_encode(dst, dst_cap, dst_size, src, size, options, ws, ws_size);
        (void)lmc__realloc(NULL, ws, ws_size, 0);
        return status;
    }
    memset(&t, 0, sizeof t);
    t.src = (const uint8_t *)src;
    t.size = size;
    t.block_size = lmc__get_tensor_block_size(options);
    t.options = options;
    if (t.block_size == 0 || !dst_size || (!src && size) || (!dst && dst_cap) ||
        size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;
    t.quant = lmc__get_quant_params(options->quantizer);
    if (t.quant && (options->without & LMC_FEATURE_QUANTIZED)) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__check_quantizer(options->quantizer, options->dtype, size));
    if (t.quant && t.quant->is_predicted != (options->prediction != NULL)) return LMC_ERR_ARGUMENT;
    lmc__set_tensor_wave(&t.wave, options, t.block_size, ws);
    if (lmc__is_useless(&t)) {
        direct = *options; /* the workspace is large enough: blocks do not grow */
        direct.prediction = NULL;
        t.options = &direct;
        t.block_size = lmc__get_tensor_block_size(&direct);
        lmc__set_tensor_wave(&t.wave, &direct, t.block_size, ws);
    }
    t.n_blocks = lmc__count_blocks(size, t.block_size);
    if (t.n_blocks > UINT32_MAX) return LMC_ERR_LIMIT;
    if (dst_cap == 0 && size != 0) return LMC_ERR_DST_TOO_SMALL; /* dst may be NULL */
    t.dst = t.packed = (uint8_t *)dst;
    t.dst_cap = dst_cap;
    if (lmc__count_workers(options->parallel) == 1) LMC__TRY(lmc__encode_waves(&t, 1, 0));
    else
        LMC__TRY(lmc__encode_waves(
            &t, lmc__count_jobs(options->parallel, t.block_size),
            dst_cap >= lmc_tensor_bound(size, t.options) ? lmc_block_bound(t.block_size) : 0));
    *dst_size = (size_t)(t.packed - t.dst);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
