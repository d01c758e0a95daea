#pragma once
#include "base/platform.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/workspace.h"
#include "codec/sample.h"
#include "codec/put_planes.h"
#include "codec/put_delta.h"

typedef struct lmc__block_coding {
    unsigned width, prediction, grouping;
    int rotate;
    lmc__joint joint;
    lmc__block_crcs crcs;
    size_t payload_size; /* 0: stored */
} lmc__block_coding;

static void lmc__encode_direct(lmc__encoder *e, lmc__block_coding *coding, uint8_t *dst, size_t cap,
                               const uint8_t *src, size_t n, enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    int has_crc = 0;
    coding->prediction = coding->grouping = 0;
    coding->crcs.base = 0;
    coding->joint.extra = 0;
    coding->payload_size = lmc__put_planes(e, dst, cap, src, n, coding->width, coding->rotate,
                                           level, &coding->joint, &coding->crcs.content, &has_crc);
    if (!has_crc) coding->crcs.content = e->k->crc32c(0, src, n * coding->width);
    e->stack.top = top;
}

/* Leaves coding as it is if that is not smaller than cap and than the elements. */
static void lmc__encode_delta(lmc__encoder *e, lmc__block_coding *coding, const lmc__delta *delta,
                              uint8_t *dst, size_t cap, const uint8_t *src, const uint8_t *base,
                              size_t n, enum lmc_level level)
{
    uint8_t *const top = e->stack.top;
    lmc__block_crcs crcs;
    const size_t payload_size =
        lmc__put_delta(e, dst, cap, src, base, n, coding->width, delta, level, &crcs);
    e->stack.top = top;
    if (payload_size == 0) return;
    coding->prediction = 1;
    coding->grouping = (delta->grouping.n_classes - 1) | (delta->sparse ? 8u : 0u) |
                       delta->grouping.n_natural << 4;
    coding->rotate = delta->subtract;
    coding->joint.extra = 0;
    coding->crcs = crcs;
    coding->payload_size = payload_size;
}

static enum lmc_status lmc__encode_block(const lmc__kernels *k, void *dst, size_t dst_cap,
                                         size_t *dst_size, const uint8_t *src, size_t size,
                                         const uint8_t *base, enum lmc_dtype dtype,
                                         enum lmc_level level, lmc_position position, void *ws,
                                         size_t ws_size)
{
    uint8_t *const out = (uint8_t *)dst, *const payload = out + LMC_BLOCK_HEADER_SIZE;
    enum lmc__verdict verdict = LMC__DIRECT;
    lmc__block_coding coding;
    lmc__delta delta;
    lmc__encoder e;
    size_t n, cap, tried = 0; /* bytes in which the delta does not fit */

    if (dst_cap < LMC_BLOCK_HEADER_SIZE) return LMC_ERR_DST_TOO_SMALL;
    cap = dst_cap - LMC_BLOCK_HEADER_SIZE;
    memset(&coding, 0, sizeof coding);
    coding.width = lmc_dtype_width(dtype);
    coding.rotate = lmc__dtypes[dtype].is_float;
    e.k = k;
    e.scratch = lmc__open_workspace(&e.stack, ws, ws_size);
    if (dtype == LMC_AUTO) lmc__guess_width(&e, src, size, &coding.width, &coding.rotate);
    n = size / coding.width;
    if (base)
        verdict = lmc__plan_delta(&e, &delta, src, base, n, coding.width, coding.rotate, level);
    if (verdict == LMC__DELTA) {
        lmc__encode_delta(&e, &coding, &delta, payload, lmc__min(cap, delta.worth), src, base, n,
                          level);
        if (coding.prediction == 0) { /* the sample has promised too much */
            verdict = LMC__EITHER;
            tried = delta.worth;
        }
    }
    if (coding.prediction == 0) lmc__encode_direct(&e, &coding, payload, cap, src, n, level);
    if (verdict == LMC__EITHER && coding.payload_size - 1 >= tried) { /* stored: payload_size 0 */
        const size_t direct_size = coding.payload_size;
        lmc__encode_delta(&e, &coding, &delta, payload, direct_size ? direct_size - 1 : cap, src,
                          base, n, level);
        if (coding.prediction == 0 && direct_size)
            lmc__encode_direct(&e, &coding, payload, cap, src, n,
                               level); /* again what was overwritten */
    }
    if (coding.payload_size) {
        const unsigned residual = coding.rotate ? 4u : 0u;
        lmc__put_block_header(out,
                              lmc__log2_width(coding.width) | residual | coding.joint.extra << 3 |
                                  LMC__LAYOUT_PLANES << 5,
                              coding.prediction, coding.grouping, n, coding.payload_size,
                              coding.crcs, k, position);
    } else {
        if (cap < size) return LMC_ERR_DST_TOO_SMALL;
        coding.payload_size = size;
        memcpy(payload, src, size);
        lmc__put_block_header(out, lmc__log2_width(coding.width) | LMC__LAYOUT_STORED << 5, 0, 0, n,
                              size, coding.crcs, k, position);
    }
    *dst_size = LMC_BLOCK_HEADER_SIZE + coding.payload_size;
    return LMC_OK;
}

LMC_API size_t lmc_bound_block(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

/* LMC_AUTO blocks count their bytes as elements, so that any width guessed stays within the limit
 * and the workspace. */
LMC_API enum lmc_status lmc_encode_block(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t size, const void *prediction,
                                         enum lmc_dtype dtype, enum lmc_level level,
                                         lmc_position position, void *ws, size_t ws_size)
{
    const unsigned width = lmc_dtype_width(dtype);
    if (!dst || !dst_size || !src || !ws || (unsigned)dtype >= LMC_DTYPE_COUNT ||
        (unsigned)level > LMC_LEVEL_MAX || size == 0 || size % width ||
        size / width > LMC_MAX_BLOCK_ELEMENTS)
        return LMC_ERR_ARGUMENT;
    if (!lmc__is_workspace(ws_size, size / width)) return LMC_ERR_WORKSPACE;
    return lmc__encode_block(lmc__get_kernels(), dst, dst_cap, dst_size, (const uint8_t *)src, size,
                             (const uint8_t *)prediction, dtype, level, position, ws, ws_size);
}
