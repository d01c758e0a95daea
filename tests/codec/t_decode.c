/* t_decode.c - lmc_decode.h as a shared object, for blocks.py. */
#define LMC_IMPLEMENTATION
#include "../../include/lmc_decode.h"

#include <stdlib.h>
#include <string.h>

int t_decode(uint8_t *dst, const uint8_t *src, size_t src_size, uint32_t number,
             const void *prediction, size_t prediction_size);

/* Decodes a block, of at most LMC_MAX_BLOCK_SIZE bytes, and returns its status; -1: tiers differ,
 * or the size is not what the header says. */
int t_decode(uint8_t *dst, const uint8_t *src, size_t src_size, uint32_t number,
             const void *prediction, size_t prediction_size)
{
    lmc_block_options options = LMC_BLOCK_OPTIONS(LMC_AUTO);
    lmc_block_info info;
    const enum lmc_status parsed = lmc_block_parse(src, src_size, number, &info);
    const size_t ws_size = parsed == LMC_OK ? lmc_block_workspace_size(info.n, info.width) : 1;
    uint8_t *const first = (uint8_t *)malloc(LMC_MAX_BLOCK_SIZE);
    void *const ws = malloc(ws_size);
    int tier, wanted = -1;
    if (!first || !ws) abort();
    options.number = number;
    options.prediction = prediction;
    options.prediction_size = prediction_size;
    for (tier = 0; tier < LMC__N_TIERS; tier++) {
        size_t size = 0;
        int status;
        if (!lmc_tier_is_available((enum lmc_tier)tier)) continue;
        lmc_tier_limit((enum lmc_tier)tier);
        status = (int)lmc_block_decode(dst, LMC_MAX_BLOCK_SIZE, &size, src, src_size, &options, ws,
                                       ws_size);
        if (tier == LMC_TIER_SCALAR) {
            wanted = status;
            memcpy(first, dst, size);
        }
        if (status != wanted || memcmp(first, dst, size) != 0 ||
            (status == LMC_OK && (parsed != LMC_OK || size != info.size))) {
            wanted = -1;
            break;
        }
    }
    free(first);
    free(ws);
    return wanted;
}
