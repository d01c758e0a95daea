/* liblmc.c - lmc.h as a shared library, with its tensor layer as flat functions
 * SPDX-License-Identifier: MIT
 *
 *   make build/liblmc.so, or: cc -O2 -fPIC -shared liblmc.c -o liblmc.so
 *
 * For languages in which laying out C structs is a nuisance (ctypes, cffi, JNA). dtype is a name as
 * in safetensors, "BF16"; data of unknown dtypes is coded as bytes. Functions return an enum
 * lmc_status as int. They keep no state: any number of threads may call them at once, and each call
 * works in one thread.
 */
#define LMC_IMPLEMENTATION
#include "../lmc.h"
#include "../include/lmc_salvage.h"
#include "../include/lmc_extra.h"

#include <stdlib.h>
#include <string.h>

int liblmc_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src, const void *base,
                  size_t size, const char *dtype, int level);
int liblmc_decode(void *dst, const void *base, size_t size, const void *src, size_t src_size);
uint64_t liblmc_bound(uint64_t size, const char *dtype);
const char *liblmc_status_text(int status);

static lmc_tensor_options make_options(const char *dtype, const void *base, uint64_t size)
{
    lmc_tensor_options options;
    memset(&options, 0, sizeof options);
    options.dtype = lmc_dtype_find(dtype);
    options.prediction = base;
    options.prediction_size = base ? size : 0;
    return options;
}

/* What *dst_size is at most. */
uint64_t liblmc_bound(uint64_t size, const char *dtype)
{
    const lmc_tensor_options options = make_options(
        dtype, NULL, 0); /* without a base: blocks are smaller, so their headers more */
    return lmc_tensor_bound(size, &options);
}

/* Codes size bytes at src as their difference to as many at base, or by themselves if base is
 * NULL. */
int liblmc_encode(void *dst, size_t dst_cap, size_t *dst_size, const void *src, const void *base,
                  size_t size, const char *dtype, int level)
{
    lmc_tensor_options options = make_options(dtype, base, size);
    enum lmc_status status;
    size_t ws_size;
    void *ws;
    options.level = (enum lmc_level)level;
    ws_size = lmc_tensor_workspace_size(&options);
    ws = malloc(ws_size ? ws_size : 1);
    if (!ws) return LMC_ERR_MEMORY;
    status = lmc_tensor_encode(dst, dst_cap, dst_size, src, size, &options, ws, ws_size);
    free(ws);
    return (int)status;
}

/* The size bytes that were coded against base, whatever dtype and level. dst may be base, which is
 * then updated in place: on LMC_ERR_BASE_WRONG the block in question is as it was, on other errors
 * it may be anything. */
int liblmc_decode(void *dst, const void *base, size_t size, const void *src, size_t src_size)
{
    lmc_tensor_options options = make_options("U8", base, size);
    enum lmc_status status;
    size_t ws_size;
    void *ws;
    options.log2_block = 22; /* of bytes: room for any block */
    ws_size = lmc_tensor_workspace_size(&options);
    ws = malloc(ws_size ? ws_size : 1);
    if (!ws) return LMC_ERR_MEMORY;
    status = lmc_tensor_decode(dst, size, src, src_size, &options, ws, ws_size);
    free(ws);
    return (int)status;
}

const char *liblmc_status_text(int status) { return lmc_status_text((enum lmc_status)status); }
