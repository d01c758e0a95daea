#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"
#include "codec/workspace.h"
#include "codec/block_header.h"
#include "codec/get_list.h"
#include "codec/get_planes.h"
#include "codec/get_zeros.h"
#include "codec/get_delta.h"
#include "codec/get_matrix.h"
#include "codec/get_codes.h"
#include "codec/get_quantized.h"

/* Decodes a block. Header, payload and content are each checked before they are used. The checks in
 * order, each with its status on failure:
 *   sync, header CRC, fields      CORRUPT, CHECKSUM, UNSUPPORTED
 *   all of the payload is there   TRUNCATED
 *   a prediction has its size     BASE_WRONG
 *   Payload_CRC                   CHECKSUM
 *   there is a prediction         BASE_MISSING
 *   lists, masks, tails           CORRUPT; only then dst is written (or before, if it is kept)
 *   Content_CRC                   CHECKSUM
 *   the last two, if predicted    BASE_WRONG instead
 *
 * With a prediction the payload has its own CRC. If that CRC is right, a later error means a wrong
 * prediction; or a damaged file, if the prediction comes from the same file. No payload can cause
 * an access outside of the buffers, and time is in proportion to the number of elements. A
 * workspace of lmc_block_workspace_size() is enough for any payload. */

/* Decodes a payload that is not stored, and orders streaming stores. base: prediction, or NULL. */
static enum lmc_status lmc__get_payload(lmc__decoder *d, uint8_t *dst, const uint8_t *src,
                                        const lmc_block_info *info, const uint8_t *base,
                                        uint32_t *crc)
{
    const unsigned layout = src[2] >> LMC__LAYOUT_SHIFT;
    const enum lmc__order order = (enum lmc__order)(src[2] & 3);
    const enum lmc_status status =
        layout == LMC__LAYOUT_QUANTIZED ? lmc__get_quantized(d, dst, base, info, crc)
        : base                          ? lmc__get_delta(d, dst, base, info, order, src[3], crc)
        : layout == LMC__LAYOUT_ZEROS   ? lmc__get_zeros(d, dst, info->n, info->width, order, crc)
        : layout == LMC__LAYOUT_MATRIX  ? lmc__get_matrix(d, dst, info, order, crc)
        : layout == LMC__LAYOUT_CODES   ? lmc__get_codes(d, dst, info, crc)
                                        : lmc__get_planes(d, dst, info->n, info->width, order, crc);
    if (d->streaming.is_on) LMC__FENCE_STREAMS();
    return status;
}

/* Decodes the payload of a block with a prediction. The payload's CRC is right, so an error means a
 * wrong prediction: the status is BASE_WRONG, unless is_own. After an error, overwritten bytes of
 * the prediction are restored. */
static enum lmc_status lmc__get_predicted(lmc__decoder *d, uint8_t *dst, const uint8_t *src,
                                          const lmc_block_info *info, const uint8_t *base,
                                          int is_own)
{
    uint32_t crc;
    enum lmc_status status = lmc__get_payload(d, dst, src, info, base, &crc);
    if (status == LMC_OK && crc != info->crc) {
        if (d->kept) memcpy(dst, d->kept, info->size);
        lmc__put_back(dst, &d->undo, info->width);
        status = LMC_ERR_CHECKSUM;
    }
    if (!is_own && (status == LMC_ERR_CORRUPT || status == LMC_ERR_CHECKSUM))
        status = LMC_ERR_BASE_WRONG;
    return status;
}

/* Checks the payload of a block with a prediction by its CRC: all that is possible without it. */
static enum lmc_status lmc__check_payload(const lmc__kernels *k, const uint8_t *src,
                                          const lmc_block_info *info)
{
    LMC__CHECK(k->crc32c(0, src + LMC_BLOCK_HEADER_SIZE,
                         info->encoded_size - LMC_BLOCK_HEADER_SIZE) == info->payload_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* info was read from src, which has info->encoded_size bytes; dst has room for info->size; ws is
 * large enough. streaming.sum gets the sum64 of dst, or is NULL. base: info->size bytes, or NULL.
 * If the block has no prediction, base is used only if it equals dst: then a damaged block leaves
 * dst unchanged. is_own: base comes from the same file as the block. */
static enum lmc_status lmc__decode_block(const lmc__kernels *k, uint8_t *dst,
                                         lmc__streaming streaming, const uint8_t *src,
                                         const lmc_block_info *info, const uint8_t *base,
                                         int is_own, void *ws, size_t ws_size)
{
    uint32_t crc = info->crc;
    const unsigned layout = src[2] >> LMC__LAYOUT_SHIFT;
    const int is_joined =
        !info->has_prediction && (layout == LMC__LAYOUT_PLANES || layout == LMC__LAYOUT_ZEROS);
    uint64_t *const sum = is_joined ? NULL : streaming.sum; /* else join_root computes it */
    if (sum) streaming.is_on = 0;                           /* computed below, from dst */
#ifdef LMC__COUNT_DECODED /* fuzz/fuzz_work.c looks for files that cost too much */
    LMC__COUNT_DECODED(info->size);
#endif
    if (info->is_stored) {
        if (dst == base)
            LMC__CHECK(k->crc32c(0, src + LMC_BLOCK_HEADER_SIZE, info->size) == info->crc,
                       LMC_ERR_CHECKSUM);
        memcpy(dst, src + LMC_BLOCK_HEADER_SIZE, info->size);
        crc = k->crc32c(0, dst, info->size);
    } else {
        lmc__decoder d;
        memset(&d, 0, sizeof d);
        d.k = k;
        d.scratch = lmc__open_workspace(&d.stack, ws, ws_size);
        d.in = src + LMC_BLOCK_HEADER_SIZE;
        d.end = src + info->encoded_size;
        d.streaming = streaming;
        if (info->has_prediction) {
            LMC__TRY(lmc__check_payload(k, src, info));
            LMC__CHECK(base, LMC_ERR_BASE_MISSING);
            LMC__TRY(lmc__get_predicted(&d, dst, src, info, base, is_own));
        } else {
            enum lmc_status status;
            LMC__TRY(lmc__keep(&d, dst, base, info->size));
            status = lmc__get_payload(&d, dst, src, info, NULL, &crc);
            if ((status != LMC_OK || crc != info->crc) && d.kept) memcpy(dst, d.kept, info->size);
            LMC__TRY(status);
        }
    }
    LMC__CHECK(crc == info->crc, LMC_ERR_CHECKSUM);
#ifndef LMC_NO_SNAPSHOT
    if (sum) *sum = k->sum64(dst, info->size);
#endif
    return LMC_OK;
}

/* Errors of the header come before those of sizes: a caller needs the header to know these. */
LMC_API enum lmc_status lmc_block_decode(void *dst, size_t dst_cap, size_t *dst_size,
                                         const void *src, size_t src_size,
                                         const lmc_block_options *options, void *ws, size_t ws_size)
{
    const lmc__kernels *k = lmc__get_kernels();
    lmc_block_options o;
    lmc_block_info info;
    if (!dst || !dst_size || !src || !ws) return LMC_ERR_ARGUMENT;
    LMC__TRY(LMC__TAKE_OPTIONS(&o, prediction_size, options));
    LMC__TRY(lmc__read_block_info(k, (const uint8_t *)src, src_size, o.number, &info));
    LMC__CHECK(info.encoded_size <= src_size, LMC_ERR_TRUNCATED);
    LMC__VALID(info.encoded_size == src_size);
    if (info.size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    if (!lmc__is_workspace(ws_size, info.n, info.width)) return LMC_ERR_WORKSPACE;
    if (info.has_prediction && o.prediction)
        LMC__CHECK(o.prediction_size == info.size, LMC_ERR_BASE_WRONG);
    LMC__TRY(lmc__decode_block(k, (uint8_t *)dst, lmc__no_streaming, (const uint8_t *)src, &info,
                               (const uint8_t *)o.prediction, 0, ws, ws_size));
    *dst_size = info.size;
    return LMC_OK;
}
