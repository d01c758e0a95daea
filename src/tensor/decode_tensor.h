#pragma once
#include "base/platform.h"
#include "codec/workspace.h"
#include "codec/block_header.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"

/* Decodes a range of a tensor. Only a block's header says how long the block is, so all headers
 * from the first block on are read and checked. Blocks before the range are then skipped.
 *
 *     src      | h ### | h ## | h #### | h ### | h # |      h: header; ###: payload
 *     tensor   |   0   |  1   |   2    |   3   |  4  |      equal decoded sizes, except the last
 *     range                [first ......... last)
 *                       part    whole    part
 *
 * A block that is completely in the range is decoded to dst. Another block is decoded to the end of
 * the worker's workspace, and its part is copied. Each block reads the prediction only at its own
 * place. So dst may be the prediction if the whole tensor is decoded. */
typedef struct lmc__tensor_decoding {
    const uint8_t *src;
    size_t src_size;
    uint8_t *dst;         /* of the range */
    uint64_t first, last; /* the range: bytes [first, last) of the tensor */
    uint64_t total_size;
    const lmc_tensor_options *options;
    lmc__wave wave;
    size_t used;         /* bytes of src that have been read or skipped */
    uint64_t at, block;  /* offset of the next block in the tensor, and its number */
    uint64_t block_size; /* decoded bytes of all blocks but the last; 0: unknown */
} lmc__tensor_decoding;

/* Reads the next block's header into job, and moves behind the block. The decoded size must be that
 * of the first block, or the rest of the tensor: so blocks cannot overlap or leave gaps. */
static enum lmc_status lmc__next_block(lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const src = t->src + t->used;
    const size_t left = t->src_size - t->used;
    LMC__VALID(t->block <= UINT32_MAX);
    job->number = (uint32_t)t->block++;
    LMC__TRY(lmc__read_block_info(t->wave.k, src, left, job->number, &job->info));
    LMC__CHECK(job->info.encoded_size <= left, LMC_ERR_TRUNCATED);
    if (t->block_size == 0) t->block_size = job->info.size;
    LMC__VALID(job->info.size == lmc__min64(t->block_size, t->total_size - t->at));
    job->src = src;
    t->used += job->info.encoded_size;
    t->at += job->info.size;
    return LMC_OK;
}

/* Sets the other members of a job whose block ends behind the start of the range: where its bytes
 * are written, and whether past the caches. If so, the next block's bytes or prediction are
 * prefetched, because slow stores delay loads.
 *
 * A block of another log2_block may be too large for the workspace: this is checked here. */
static enum lmc_status lmc__plan_decoding(const lmc__tensor_decoding *t, lmc__job *job)
{
    const uint8_t *const base = (const uint8_t *)t->options->prediction;
    const uint64_t start = t->at - job->info.size; /* offset of the block in the tensor */
    const size_t temp_size = t->wave.temp_size;
    job->base = base && job->info.has_prediction ? base + (size_t)start : NULL;
    job->is_own = 0;
    job->skip = start < t->first ? (size_t)(t->first - start) : 0;
    job->keep = (size_t)lmc__min64(job->info.size - job->skip, t->last - (start + job->skip));
    job->dst = t->dst + (size_t)(start + job->skip - t->first);
    job->streaming = lmc__no_streaming;
    if (t->last - t->first >= LMC__STREAM_FROM && job->keep == job->info.size) {
        job->streaming.is_on = 1;
        job->streaming.next = t->src + t->used;
        job->streaming.next_size = lmc__min(t->src_size - t->used, job->info.encoded_size);
        if (job->base) { /* a prediction has more bytes than the payload */
            job->streaming.next = base + (size_t)t->at;
            job->streaming.next_size = (size_t)lmc__min64(t->total_size - t->at, job->info.size);
        }
    }
    /* before the workspace, which is larger with a prediction */
    LMC__CHECK(base || !job->info.has_prediction, LMC_ERR_BASE_MISSING);
    if (!lmc__is_workspace(t->wave.workspace_size - temp_size, job->info.n, job->info.width) ||
        (job->keep != job->info.size && job->info.size > temp_size))
        return LMC_ERR_WORKSPACE;
    return LMC_OK;
}

/* In a loop, reads up to max_jobs headers, then decodes their blocks as a wave. Bytes behind the
 * last block are an error only if the range is the whole tensor. */
LMC_API enum lmc_status lmc_tensor_decode_range(void *dst, size_t size, const void *src,
                                                size_t src_size, uint64_t offset,
                                                uint64_t total_size,
                                                const lmc_tensor_options *options, void *ws,
                                                size_t ws_size)
{
    size_t temp_size, max_jobs;
    lmc_tensor_options o;
    lmc__tensor_decoding t;
    if (!options) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, row_size, options));
    LMC__TRY(lmc__check_parallel(o.parallel));
    options = &o;
    if (!ws) {
        enum lmc_status status;
        LMC__TRY(lmc__allocate_workspace(&ws, &ws_size, options));
        status = lmc_tensor_decode_range(dst, size, src, src_size, offset, total_size, options, ws,
                                         ws_size);
        (void)lmc__realloc(NULL, ws, ws_size, 0);
        return status;
    }
    temp_size = lmc__get_tensor_block_size(options);
    if (temp_size == 0 || (!src && src_size) || (!dst && size) || offset > total_size ||
        size > total_size - offset)
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != total_size) return LMC_ERR_BASE_WRONG;
    LMC__CHECK(src_size != 0 || size == 0, LMC_ERR_TRUNCATED); /* src may be NULL */
    memset(&t, 0, sizeof t);
    t.src = (const uint8_t *)src;
    t.src_size = src_size;
    t.dst = (uint8_t *)dst;
    t.first = offset;
    t.last = offset + size;
    t.total_size = total_size;
    t.options = options;
    lmc__set_tensor_wave(&t.wave, options, temp_size, ws);
    max_jobs = lmc__count_jobs(options->parallel, temp_size);
    while (size != 0 && t.at < t.last) {
        size_t n = 0;
        while (n < max_jobs && t.at < t.last) {
            lmc__job *const job = &t.wave.jobs[n];
            LMC__TRY(lmc__next_block(&t, job));
            if (t.at <= t.first) continue; /* ends before the range */
            LMC__TRY(lmc__plan_decoding(&t, job));
            n++;
        }
        lmc__run_tasks(options->parallel, lmc__decode_task, &t.wave, n);
        LMC__TRY(lmc__wave_status(&t.wave, n));
    }
    if (offset == 0 && size == total_size) LMC__VALID(t.used == src_size);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_tensor_decode(void *dst, size_t size, const void *src, size_t src_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    return lmc_tensor_decode_range(dst, size, src, src_size, 0, size, options, ws, ws_size);
}
