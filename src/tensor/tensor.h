#pragma once
#include "base/platform.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"
#include "codec/put_quantised.h"
#include "codec/get_block.h"
#include "tensor/wave.h"

/* Decoded tensors of this size on do not stay in caches: a block is gone when the last is done. */
#define LMC__STREAM_FROM ((size_t)8 << 20)

/* Elements per block that suit full snapshots: smaller blocks cost headers and trees, larger ones
 * follow changes in the data less well. Twice as many if they are bytes; so are bytes of unknown
 * kind, which may be 16-bit elements. */
#define LMC__DEFAULT_LOG2_BLOCK 16u

/* Deltas are of one kind for long: larger blocks have fewer headers and trees, which are most of a
 * sparse one (bf16 with 1.6 % changed: 1 Mi elements take 8 % less than 256 Ki). Wider elements are
 * not sparse, and larger blocks of them follow changes less well. */
#define LMC__DELTA_LOG2_BLOCK 20u
#define LMC__WIDE_DELTA_LOG2_BLOCK 18u

/* Bytes per block, or 0 if the options are illegal. */
static size_t lmc__get_block_size(enum lmc_dtype dtype, unsigned log2_block, int has_prediction)
{
    unsigned log2_width = lmc__log2_width(lmc_dtype_width(dtype));
    if ((unsigned)dtype >= LMC_DTYPE_COUNT ||
        (log2_block != 0 && (log2_block < 14 || log2_block > 20)))
        return 0;
    if (log2_block == 0) {
        if (has_prediction)
            log2_block = log2_width <= 1 ? LMC__DELTA_LOG2_BLOCK : LMC__WIDE_DELTA_LOG2_BLOCK;
        else log2_block = LMC__DEFAULT_LOG2_BLOCK + (log2_width == 0 ? 1 : 0);
    }
    return (size_t)1 << (log2_block + log2_width);
}

static size_t lmc__get_tensor_block_size(const lmc_tensor_options *options)
{
    if (!options || !lmc__is_parallel(options->parallel) ||
        (unsigned)options->level > LMC_LEVEL_MAX)
        return 0;
    return lmc__get_block_size(options->dtype, options->log2_block,
                               options->prediction != NULL || options->quantizer != NULL);
}

LMC_API uint64_t lmc_bound_tensor(uint64_t size, const lmc_tensor_options *options)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    uint64_t headers;
    if (block_size == 0) return UINT64_MAX;
    headers = (size / block_size + (size % block_size ? 1 : 0)) *
              LMC_BLOCK_HEADER_SIZE; /* at most size / 8 */
    return size <= UINT64_MAX - headers ? size + headers : UINT64_MAX;
}

/* Jobs, then the workspaces of the workers, each with room for a block. */
static size_t lmc__set_tensor_wave(lmc__wave *wave, const lmc_tensor_options *options,
                                   size_t block_size, void *ws)
{
    const size_t jobs_size = 2 * lmc__count_jobs(options->parallel, block_size) *
                             sizeof(lmc__job); /* encoding: two waves take turns */
    const size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    uint64_t needed;
    memset(wave, 0, sizeof *wave);
    wave->k = lmc__get_kernels();
    wave->temp_size = block_size;
    wave->workspace_size =
        lmc_workspace_size(block_size / lmc_dtype_width(options->dtype)) + block_size;
    if (ws) {
        wave->jobs = (lmc__job *)(void *)((uint8_t *)ws + skip);
        wave->workspaces = (uint8_t *)ws + skip + jobs_size;
    }
    needed =
        16 + jobs_size + (uint64_t)lmc__count_workers(options->parallel) * wave->workspace_size;
    return needed < SIZE_MAX ? (size_t)needed
                             : SIZE_MAX; /* 1024 workers can need more than 32 bits */
}

LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    lmc__wave wave;
    return block_size ? lmc__set_tensor_wave(&wave, options, block_size, NULL) : 0;
}

/* While a wave is coded, what the one before has made is moved down to its place. */
typedef struct lmc__packing {
    lmc__wave wave;
    const lmc__job *jobs; /* of the wave before */
    size_t n;
    uint8_t *end; /* of what is in its place */
} lmc__packing;

static void lmc__pack_wave(lmc__packing *packing)
{
    size_t i;
    for (i = 0; i < packing->n; i++) {
        const lmc__job *job = &packing->jobs[i];
        if (job->dst != packing->end) memmove(packing->end, job->dst, job->dst_size);
        packing->end += job->dst_size;
    }
    packing->n = 0;
}

static void lmc__pack_task(void *arg, size_t index, unsigned worker)
{
    lmc__packing *packing = (lmc__packing *)arg;
    if (index == 0) lmc__pack_wave(packing);
    else lmc__encode_task(&packing->wave, index - 1, worker);
}

/* The first block's sample says that the prediction is worth nothing: then blocks are better cut as
 * if there were none. */
static int lmc__is_useless(const lmc__wave *wave, const lmc_tensor_options *options,
                           const uint8_t *src, size_t size)
{
    const unsigned width = lmc_dtype_width(options->dtype);
    lmc__delta delta;
    lmc__encoder e;
    e.k = wave->k;
    e.scratch = lmc__open_workspace(&e.stack, wave->workspaces, wave->workspace_size);
    return lmc__plan_delta(&e, &delta, src, (const uint8_t *)options->prediction, size / width,
                           width, lmc__dtypes[options->dtype].is_float,
                           LMC_LEVEL_DEFAULT) == LMC__DIRECT;
}

LMC_API enum lmc_status lmc_encode_tensor(void *dst, size_t dst_cap, size_t *dst_size,
                                          const void *src, size_t size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    const size_t block_size = lmc__get_tensor_block_size(options);
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;
    lmc__packing packing;
    lmc__wave *const wave = &packing.wave;
    size_t max_jobs, block, n;
    uint64_t n_blocks;
    int is_serial, in_own_place;
    lmc__job *first;
    const lmc_quantizer *const quantizer =
        options && options->quantizer && !options->quantizer->info.is_lossless ? options->quantizer
                                                                               : NULL;
    if (block_size == 0 || !dst_size || !ws || (!src && size) || (!dst && dst_cap) ||
        size % lmc_dtype_width(options->dtype))
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != size) return LMC_ERR_BASE_WRONG;
    if (quantizer && (quantizer->width != lmc_dtype_width(options->dtype) ||
                      (options->dtype != LMC_F32 && options->dtype != LMC_BF16) ||
                      quantizer->n * quantizer->width != size ||
                      quantizer->is_predicted != (options->prediction != NULL)))
        return LMC_ERR_ARGUMENT;
    n_blocks = size / block_size + (size % block_size ? 1 : 0);
    if (n_blocks > UINT32_MAX) return LMC_ERR_LIMIT;
    if (dst_cap == 0 && size != 0) return LMC_ERR_DST_TOO_SMALL; /* dst may be NULL */
    lmc__set_tensor_wave(wave, options, block_size, ws);
    if (options->prediction && !quantizer && options->log2_block == 0 &&
        options->dtype != LMC_AUTO && size != 0 &&
        lmc__is_useless(wave, options, in, lmc__min(size, block_size))) {
        lmc_tensor_options direct = *options; /* which takes less workspace */
        direct.prediction = NULL;
        return lmc_encode_tensor(dst, dst_cap, dst_size, src, size, &direct, ws, ws_size);
    }
    first = wave->jobs;
    is_serial = lmc__count_workers(options->parallel) == 1;
    max_jobs = is_serial ? 1
                         : lmc__count_jobs(options->parallel,
                                           block_size); /* one lands in its place at once */
    /* Every block has a place of its own, where it would land if none gets smaller; if dst is too
     * small for that, or waits for it, blocks land behind what is packed. */
    in_own_place = !is_serial && dst_cap >= lmc_bound_tensor(size, options);
    packing.n = 0;
    packing.end = out;
    for (block = 0; block < n_blocks; block += n) {
        uint8_t *place;
        if (!in_own_place) lmc__pack_wave(&packing);
        place = in_own_place ? out + block * lmc_bound_block(block_size) : packing.end;
        for (n = 0; n < max_jobs && block + n < n_blocks; n++) {
            lmc__job *job = &wave->jobs[n];
            const size_t at = (block + n) * block_size, room = dst_cap - (size_t)(place - out);
            size_t slot;
            job->src = in + at;
            job->src_size = lmc__min(block_size, size - at);
            job->base = options->prediction ? (const uint8_t *)options->prediction + at : NULL;
            slot = lmc_bound_block(job->src_size);
            if (slot > room && n > 0) break;
            job->dst = place;
            job->dst_size = lmc__min(slot, room);
            job->dtype = options->dtype;
            job->level = options->level;
            job->quantizer = quantizer;
            job->first_element = at / lmc_dtype_width(options->dtype);
            job->position.run = options->run;
            job->position.block = (uint32_t)(block + n);
            place += job->dst_size;
        }
        if (is_serial) lmc__encode_task(wave, 0, 0);
        else options->parallel->run(options->parallel->user, lmc__pack_task, &packing, n + 1);
        LMC__TRY(lmc__wave_status(wave, n));
        packing.jobs = wave->jobs;
        packing.n = n;
        wave->jobs = wave->jobs == first ? first + max_jobs : first;
    }
    lmc__pack_wave(&packing);
    *dst_size = (size_t)(packing.end - out);
    return LMC_OK;
}

LMC_API enum lmc_status lmc_decode_tensor(void *dst, uint64_t offset, size_t size, const void *src,
                                          size_t src_size, uint64_t total_size,
                                          const lmc_tensor_options *options, void *ws,
                                          size_t ws_size)
{
    const size_t temp_size = lmc__get_tensor_block_size(options);
    const uint8_t *in = (const uint8_t *)src;
    uint8_t *out = (uint8_t *)dst;
    uint64_t at = 0, block_size = 0, block = 0;
    size_t used = 0, max_jobs;
    lmc__wave wave;
    if (temp_size == 0 || !ws || (!src && src_size) || (!dst && size) || offset > total_size ||
        size > total_size - offset)
        return LMC_ERR_ARGUMENT;
    if (ws_size < lmc_tensor_workspace_size(options)) return LMC_ERR_WORKSPACE;
    if (options->prediction && options->prediction_size != total_size) return LMC_ERR_BASE_WRONG;
    LMC__CHECK(src_size != 0 || size == 0, LMC_ERR_TRUNCATED); /* src may be NULL */
    lmc__set_tensor_wave(&wave, options, temp_size, ws);
    max_jobs = lmc__count_jobs(options->parallel, temp_size);
    while (size != 0 && at < offset + size) {
        size_t n = 0;
        while (n < max_jobs && at < offset + size) {
            lmc__job *job = &wave.jobs[n];
            LMC__CHECK(block <= UINT32_MAX, LMC_ERR_CORRUPT);
            job->position.run = options->run;
            job->position.block = (uint32_t)block++;
            LMC__TRY(lmc__read_block_info(wave.k, in + used, src_size - used, job->position,
                                          &job->info));
            LMC__CHECK(job->info.encoded_size <= src_size - used, LMC_ERR_TRUNCATED);
            if (block_size == 0) block_size = job->info.size;
            LMC__CHECK(job->info.size == lmc__min64(block_size, total_size - at), LMC_ERR_CORRUPT);
            job->src = in + used;
            job->base =
                options->prediction ? (const uint8_t *)options->prediction + (size_t)at : NULL;
            job->own = job->is_done = 0;
            used += job->info.encoded_size;
            if (at + job->info.size > offset) {
                job->skip = at < offset ? (size_t)(offset - at) : 0;
                job->keep = (size_t)lmc__min64(job->info.size - job->skip,
                                               offset + size - (at + job->skip));
                job->dst = out + (size_t)(at + job->skip - offset);
                job->streaming.is_on = size >= LMC__STREAM_FROM && job->keep == job->info.size;
                job->streaming.next = in + used;
                job->streaming.next_size =
                    job->streaming.is_on ? lmc__min(src_size - used, job->info.encoded_size) : 0;
                LMC__CHECK(options->prediction || !job->info.has_prediction,
                           LMC_ERR_BASE_MISSING); /* before the workspace: with one it is larger */
                if (!lmc__is_workspace(wave.workspace_size - temp_size, job->info.n) ||
                    (job->keep != job->info.size && job->info.size > temp_size))
                    return LMC_ERR_WORKSPACE;
                n++;
            }
            at += job->info.size;
        }
        lmc__run_wave(options->parallel, lmc__decode_task, &wave, n);
        LMC__TRY(lmc__wave_status(&wave, n));
    }
    if (offset == 0 && size == total_size) LMC__CHECK(used == src_size, LMC_ERR_CORRUPT);
    return LMC_OK;
}
