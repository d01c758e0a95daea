#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/options.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/block_header.h"
#include "tensor/wave.h"

/* Tensors in memory: an array of any length becomes a sequence of blocks, without another header
 * (spec 10). All blocks have the decoded size of the first block; only the last block may be
 * smaller. Blocks are coded in *waves* (wave.h): as many blocks at once as keep all workers busy.
 *
 * The caller's workspace: the jobs of two waves, then for each worker a block's workspace with room
 * for one decoded block behind it. */

/* Decoded tensors of this size or more do not stay in caches: they are written past them. */
#define LMC__STREAM_FROM ((size_t)8 << 20)

/* Elements per block without a prediction. Smaller blocks need more headers and trees; in larger
 * blocks one tree fits less well. Bytes, whose trees are the largest, have 2^18 (of AUTO 2^17). */
#define LMC__DEFAULT_LOG2_BLOCK 16u

/* With a prediction blocks are larger: deltas hardly vary within a tensor, and headers and trees
 * are most of a sparse delta. Deltas of elements of 4 and 8 bytes are seldom sparse. */
#define LMC__DELTA_LOG2_BLOCK 20u
#define LMC__WIDE_DELTA_LOG2_BLOCK 18u

/* Decoded bytes per block, or 0 if the options are illegal: a power of two, from 2^14 to 2^22
 * elements, at most 4 MiB (spec 4.2). */
static size_t lmc__get_block_size(enum lmc_dtype dtype, unsigned log2_block, int has_prediction)
{
    unsigned log2_width;
    if ((unsigned)dtype >= LMC__DTYPE_COUNT) return 0;
    log2_width = lmc__lowest_bit(lmc_dtype_width(dtype));
    if (log2_block != 0 &&
        (log2_block < 14 || log2_block > 22 || log2_block + log2_width > LMC__MAX_LOG2_BLOCK))
        return 0;
    if (log2_block == 0) {
        if (has_prediction)
            log2_block = log2_width <= 1 ? LMC__DELTA_LOG2_BLOCK : LMC__WIDE_DELTA_LOG2_BLOCK;
        else log2_block = LMC__DEFAULT_LOG2_BLOCK + (log2_width ? 0u : dtype ? 2u : 1u);
    }
    return (size_t)1 << (log2_block + log2_width);
}

#if !defined(LMC_NO_SNAPSHOT) && !defined(LMC_NO_ENCODER)
/* Limits a log2_block that holds for all dtypes, so that wide dtypes do not exceed 4 MiB. */
static unsigned lmc__limit_log2_block(enum lmc_dtype dtype, unsigned log2_block)
{
    const unsigned most = LMC__MAX_LOG2_BLOCK - lmc__lowest_bit(lmc_dtype_width(dtype));
    return log2_block < most ? log2_block : most;
}
#endif

/* lmc__get_block_size for a tensor's options. Any quantiser counts as a prediction, so that block
 * sizes do not depend on how the quantiser was fitted. */
static size_t lmc__get_tensor_block_size(const lmc_tensor_options *options)
{
    if (lmc__check_parallel(options->parallel) || !lmc__is_level(options->level)) return 0;
    return lmc__get_block_size(options->dtype, options->log2_block,
                               options->prediction != NULL || options->quantizer != NULL);
}

static size_t lmc__take_tensor_options(lmc_tensor_options *o, const lmc_tensor_options *given)
{
    return given && LMC__TAKE_OPTIONS(o, row_size, given) == LMC_OK ? lmc__get_tensor_block_size(o)
                                                                    : 0;
}

#ifndef LMC_NO_ENCODER
/* size / block_size, rounded up; 0 for no bytes: an empty tensor has no block (spec 10). */
LMC__INLINE uint64_t lmc__count_blocks(uint64_t size, size_t block_size)
{
    return size / block_size + (size % block_size ? 1 : 0);
}

/* The worst case: all blocks are stored, and as small as without a prediction, which may be useless
 * (lmc__is_useless). This is also the size of all slots together (encode_tensor.h). */
LMC_API size_t lmc_tensor_bound(size_t size, const lmc_tensor_options *options)
{
    lmc_tensor_options o;
    size_t block_size = lmc__take_tensor_options(&o, options);
    uint64_t headers;
    if (block_size == 0) return SIZE_MAX;
    if (!o.quantizer) block_size = lmc__get_block_size(o.dtype, o.log2_block, 0);
    headers = lmc__count_blocks(size, block_size) * LMC_BLOCK_HEADER_SIZE; /* at most size / 8 */
    return size <= SIZE_MAX - headers ? size + (size_t)headers : SIZE_MAX;
}
#endif

/* Lays out the workspace ws, which may be NULL, and returns the size that it needs. It has the jobs
 * of two waves, because one wave is packed while the next one is encoded.
 *
 *     ws  | up to 15 | jobs of two waves | worker 0               | worker 1               | ...
 *         | to align |                   | workspace | temp block | workspace | temp block |
 *
 * A decoder uses the temp block for a block of which only a part is needed. */
static size_t lmc__set_tensor_wave(lmc__wave *wave, const lmc_tensor_options *options,
                                   size_t block_size, void *ws)
{
    const size_t jobs_size = 2 * lmc__count_jobs(options->parallel, block_size) * sizeof(lmc__job);
    const size_t skip = (16 - ((uintptr_t)ws & 15)) & 15;
    uint64_t needed;
    memset(wave, 0, sizeof *wave);
    wave->k = lmc__get_kernels();
    wave->temp_size = block_size;
    wave->workspace_size = lmc_block_workspace_size(block_size / lmc_dtype_width(options->dtype),
                                                    lmc_dtype_width(options->dtype)) +
                           block_size;
    if (ws) {
        wave->jobs = (lmc__job *)(void *)((uint8_t *)ws + skip);
        wave->workspaces = (uint8_t *)ws + skip + jobs_size;
    }
    needed =
        16 + jobs_size + (uint64_t)lmc__count_workers(options->parallel) * wave->workspace_size;
    return (size_t)lmc__min64(needed, SIZE_MAX); /* 1024 workers can need more than 32 bits */
}

LMC_API size_t lmc_tensor_workspace_size(const lmc_tensor_options *options)
{
    lmc_tensor_options o;
    const size_t block_size = lmc__take_tensor_options(&o, options);
    lmc__wave wave;
    return block_size ? lmc__set_tensor_wave(&wave, &o, block_size, NULL) : 0;
}

static enum lmc_status lmc__allocate_workspace(void **ws, size_t *ws_size,
                                               const lmc_tensor_options *options)
{
    *ws_size = lmc_tensor_workspace_size(options);
    if (*ws_size == 0) return LMC_ERR_ARGUMENT;
    *ws = lmc__realloc(NULL, NULL, 0, *ws_size);
    return *ws ? LMC_OK : LMC_ERR_MEMORY;
}
