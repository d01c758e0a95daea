/* liblmc.c - lmc.h as a shared library, with its tensor layer as functions without structs
 * SPDX-License-Identifier: MIT
 *
 *   make build/liblmc.so, or: cc -O2 -fPIC -shared liblmc.c -o liblmc.so
 *
 * For languages in which C structs are difficult to use (ctypes, cffi, JNA). dtype is a name as in
 * safetensors, such as "BF16"; data of unknown dtypes is coded as bytes. Functions return an enum
 * lmc_status as int. They keep no state: any number of threads may call them at once. Each call
 * uses one thread.
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

static lmc_tensor_options make_options(const char *dtype, const void *base, size_t size)
{
    lmc_tensor_options options = LMC_TENSOR_OPTIONS(lmc_dtype_find(dtype));
    options.prediction = base;
    options.prediction_size = base ? size : 0;
    return options;
}

/* The largest possible *dst_size of liblmc_encode. */
uint64_t liblmc_bound(uint64_t size, const char *dtype)
{
    const lmc_tensor_options options = make_options(
        dtype, NULL, 0); /* without a base: blocks are smaller, so there are more headers */
    return lmc_tensor_bound(size, &options);
}

/* Codes size bytes at src, relative to size bytes at base. If base is NULL, it codes them alone. */
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

/* Decodes size bytes that were coded against base, with any dtype and level. dst may be base: then
 * base is updated in place. On LMC_ERR_BASE_WRONG the block with the error is unchanged; on other
 * errors its bytes are undefined. */
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
