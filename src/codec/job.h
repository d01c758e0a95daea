#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/quant_params.h"

/* The work on one block, which a worker does on its workspace (tensor/wave.h). A job has no data
 * about files, runs or snapshots: src/snapshot/pipeline.h adds these in its own struct. */
typedef struct lmc__job {
    const uint8_t *src;
    size_t src_size;     /* bytes of src, of a job that encodes or hashes them */
    const uint8_t *base; /* the prediction, as many bytes as the decoded block; or NULL */
    uint8_t *dst;
    uint32_t number; /* of the block in its run */

#ifndef LMC_NO_ENCODER
    /* Encoding. */
    size_t dst_size; /* room at dst, later the bytes written there */
    enum lmc_dtype dtype;
    enum lmc_level level;
    const lmc__quant_params *quant; /* how to quantise src; or NULL */
    uint64_t first_element;         /* index of the first element in its tensor */
    uint64_t row_size;              /* elements in a row of the tensor; 0: not known */
    uint64_t *sum;    /* gets the sum64 of the encoded elements if has_sum becomes 1; or NULL */
    int has_sum;      /* *sum was computed while encoding */
    int is_ungrouped; /* the file allows only Grouping 0 */
    uint64_t without; /* LMC_FEATURE_ZEROS, _MATRIX, _CODES: Layouts 3, 4, 5 are not allowed */
#endif

    /* Decoding. Only bytes [skip, skip + keep) of the block go to dst. If these are all its bytes,
     * it is decoded in dst; else in the worker's workspace, and these bytes are copied. */
    lmc_block_info info; /* from its header */
    lmc__streaming streaming;
    size_t skip, keep;
    int is_own; /* base comes from the same file as the block */

    enum lmc_status status; /* set when the job has run */
} lmc__job;
