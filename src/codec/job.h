#pragma once
#include "base/platform.h"
#include "kernels/types.h"
#include "codec/quant_params.h"

/* One block that is coded, on the workspace of the worker that takes it (tensor/wave.h). It knows
 * no files, runs or snapshots: floors above put it into structs of their own (pipeline.h). */
typedef struct lmc__job {
    const uint8_t *src;
    const uint8_t *base; /* the prediction, as many bytes as the decoded block; or NULL */
    uint8_t *dst;
    uint32_t number; /* of the block in its run */

    /* Encoding. Bytes of src; room at dst, then what was written there. */
    size_t src_size, dst_size;
    enum lmc_dtype dtype;
    enum lmc_level level;
    const lmc__quant_params *quant; /* how to quantise it, or NULL */
    uint64_t first_element;         /* the number of its first in the tensor that quant is of */
    uint64_t *sum;    /* gets the sum64 of what was encoded, if has_sum is set then; or NULL */
    int has_sum;      /* *sum was taken on the way */
    int is_ungrouped; /* its header says Grouping 0, for the file may have no other */

    /* Decoding. Only bytes [skip, skip + keep) of the block go to dst: if that is all, it is
     * decoded right there, else in the worker's workspace, and copied. */
    lmc_block_info info; /* of its header */
    lmc__streaming streaming;
    size_t skip, keep;
    int is_own; /* base is made of the file that the block is in */

    enum lmc_status status; /* set when the job has run */
} lmc__job;
