#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/dtypes.h"
#include "codec/quant_params.h"
#include "codec/put_quantized.h"

/* lmc_quantizer: the parameters for coding blocks, their memory, and facts about the loss. fit.h
 * makes it from a tensor's elements, snapshot/requantize.h from a tensor's blocks.
 *
 * The caller keeps it until all functions and objects that use it are done. It does not change, so
 * threads may share it. A quantiser that keeps its tensor as it is (is_lossless) has the same
 * effect as NULL. */

#if !defined(LMC_NO_QUANTIZE) && !defined(LMC_NO_ENCODER)

#define LMC__SYMBOLS 65536u

/* The quantiser owns the arrays of params. scales: one for each group; NULL if they follow from a
 * prediction. codes: NULL unless there is a table. */
struct lmc_quantizer {
    lmc__quant_params params;
    lmc_quantizer_info info;
    const lmc_allocator *allocator;
    uint64_t n;      /* elements of the tensor */
    size_t n_groups; /* number of params.scales */
};

/* How a tensor is quantised; valid as long as the quantiser. NULL if there is no quantiser, or if
 * it keeps the tensor as it is. */
LMC__INLINE const lmc__quant_params *lmc__get_quant_params(const lmc_quantizer *q)
{
    return q && !q->info.is_lossless ? &q->params : NULL;
}

LMC__INLINE lmc_loss lmc__get_quantizer_loss(const lmc_quantizer *q) { return q->info.loss; }

/* Refuses a quantiser for a tensor of another dtype or size, because later lookups of its scales
 * are not checked. */
LMC__INLINE enum lmc_status lmc__check_quantizer(const lmc_quantizer *q, enum lmc_dtype dtype,
                                                 uint64_t size)
{
    if (!lmc__get_quant_params(q)) return LMC_OK;
    return (dtype == LMC_F32 || dtype == LMC_BF16) && lmc_dtype_width(dtype) == q->params.width &&
                   size == q->n * q->params.width
               ? LMC_OK
               : LMC_ERR_ARGUMENT;
}

/* Replaces bytes [offset, offset + size) of the tensor, which are at data and must be whole
 * elements, by what decoding will return. Groups count from the tensor's first byte. second: the
 * second moments of the same elements. */
static enum lmc_status lmc__quantize_range(const lmc__quant_params *q, uint8_t *data,
                                           uint64_t offset, size_t size, const uint8_t *second)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint16_t symbols[LMC__QUANTIZED_STRIP];
    const lmc__quant_source source = {data, second, offset / q->width, size / q->width};
    size_t i, n;
    if (offset % q->width || size % q->width) return LMC_ERR_ARGUMENT;
    if (q->is_exact) return LMC_OK; /* these elements stay exact */
    if (q->is_predicted && !second && size) return LMC_ERR_ARGUMENT;
    for (i = 0; i < source.n; i += n) {
        const lmc__quant_source strip =
            lmc__part_of(&source, q->width, i, lmc__min(source.n - i, LMC__QUANTIZED_STRIP));
        n = strip.n;
        (void)lmc__quantize_strip(k, q, &strip, symbols, data + i * q->width);
    }
    return LMC_OK;
}

/* The quantiser may be incomplete. The allocator gets the size of each allocation. */
LMC_API void lmc_quantizer_free(lmc_quantizer *q)
{
    if (!q) return;
    if (q->params.codes) (void)lmc__realloc(q->allocator, q->params.codes, LMC__SYMBOLS, 0);
    if (q->params.scales)
        (void)lmc__realloc(q->allocator, q->params.scales, q->n_groups * sizeof q->params.scales[0],
                           0);
    (void)lmc__realloc(q->allocator, q, sizeof *q, 0);
}

LMC_API enum lmc_status lmc_quantizer_get_info(const lmc_quantizer *q, lmc_quantizer_info *info)
{
    if (!q || !info) return LMC_ERR_ARGUMENT;
    *info = q->info;
    return LMC_OK;
}

/* The check of the range has no sum that could overflow. */
LMC_API enum lmc_status lmc_quantizer_apply(const lmc_quantizer *q, uint64_t offset, void *data,
                                            size_t size, const void *second)
{
    unsigned width;
    if (!q || (!data && size)) return LMC_ERR_ARGUMENT;
    width = q->params.width;
    if (offset % width || size % width || offset > q->n * width || size > q->n * width - offset)
        return LMC_ERR_ARGUMENT;
    if (q->info.is_lossless) return LMC_OK;
    return lmc__quantize_range(&q->params, (uint8_t *)data, offset, size, (const uint8_t *)second);
}
#elif !defined(LMC_NO_ENCODER)

/* With LMC_NO_QUANTIZE callers can only have NULL; any other pointer is refused. */
LMC__INLINE const lmc__quant_params *lmc__get_quant_params(const lmc_quantizer *q)
{
    (void)q;
    return NULL;
}

LMC__INLINE lmc_loss lmc__get_quantizer_loss(const lmc_quantizer *q)
{
    const lmc_loss none = {0, LMC_MEASURE_NONE, 0};
    (void)q;
    return none;
}

LMC__INLINE enum lmc_status lmc__check_quantizer(const lmc_quantizer *q, enum lmc_dtype dtype,
                                                 uint64_t size)
{
    (void)dtype, (void)size;
    return q ? LMC_ERR_UNSUPPORTED : LMC_OK;
}

LMC__INLINE enum lmc_status lmc__quantize_range(const lmc__quant_params *q, uint8_t *data,
                                                uint64_t offset, size_t size, const uint8_t *second)
{
    (void)q, (void)data, (void)offset, (void)size, (void)second;
    return LMC_ERR_UNSUPPORTED;
}
#endif
