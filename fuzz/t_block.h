/* t_block.h - the two calls for a block, with options as arguments. Used by the harnesses, the
 * tests and the benchmark. */
#ifndef T_BLOCK_H
#define T_BLOCK_H

#include "../lmc.h"

static inline enum lmc_status t_block_encode(void *dst, size_t dst_cap, size_t *dst_size,
                                             const void *src, size_t size, const void *prediction,
                                             enum lmc_dtype dtype, enum lmc_level level,
                                             uint32_t number, void *ws, size_t ws_size)
{
    lmc_block_options options = LMC_BLOCK_OPTIONS(dtype);
    options.level = level;
    options.number = number;
    options.prediction = prediction;
    options.prediction_size = prediction ? size : 0;
    return lmc_block_encode(dst, dst_cap, dst_size, src, size, &options, ws, ws_size);
}

static inline enum lmc_status t_block_decode(void *dst, size_t dst_cap, size_t *dst_size,
                                             const void *src, size_t src_size,
                                             const void *prediction, size_t prediction_size,
                                             uint32_t number, void *ws, size_t ws_size)
{
    lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_AUTO);
    options.number = number;
    options.prediction = prediction;
    options.prediction_size = prediction_size;
    return lmc_block_decode(dst, dst_cap, dst_size, src, src_size, &options, ws, ws_size);
}

#endif
