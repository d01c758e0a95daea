#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"

/* The header of a block: 24 bytes (spec 5).
 *
 *     0  sync B2         a mark, which salvage looks for in damaged files
 *     1  width           bytes of an element
 *     2  coding          order | predicted | layout, see wire_block.h
 *     3  grouping        classes - 1 | sparse | natural planes (spec 5.2)
 *     4  n               elements
 *     8  payload size    bytes that follow the header
 *    12  content CRC     of the decoded bytes
 *    16  payload CRC     if there is a prediction; else 0
 *    20  header CRC      of the block's number and bytes 0 .. 19
 *
 * The header does not store the block's number in its run, but its CRC covers the number. So a
 * block in the wrong place is refused like a damaged block. The payload CRC tells damage from a
 * wrong prediction. get_block.h has the order of all checks. */

LMC__INLINE unsigned lmc__count_classes_of(unsigned grouping) { return (grouping & 15) + 1; }

/* The CRC of the block's number, as 4 bytes, and of the header's bytes before Header_CRC. */
LMC__INLINE uint32_t lmc__header_crc(const lmc__kernels *k, const uint8_t *header, uint32_t number)
{
    uint8_t place[4];
    lmc__store32(place, number);
    return k->crc32c(k->crc32c(0, place, 4), header, LMC__BLOCK_CRC_AT);
}

LMC_API size_t lmc_block_bound(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

#ifndef LMC_NO_ENCODER
/* How a block has been coded, for its header. Unused fields are 0: decoders check that. */
typedef struct lmc__block_coding {
    unsigned layout, grouping;
    enum lmc__order order;
    int is_predicted;
    uint32_t content_crc;
    size_t payload_size; /* 0: stored */
    int has_sum;         /* *block->sum is the sum64 of the elements in the payload */
} lmc__block_coding;

/* Writes the header to dst. The payload must already be behind it. */
static void lmc__put_block_header(uint8_t *dst, const lmc__block_coding *coding, unsigned width,
                                  size_t n, const lmc__kernels *k, uint32_t number)
{
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)width;
    dst[2] = (uint8_t)((unsigned)coding->order | (coding->is_predicted ? LMC__PREDICTED : 0u) |
                       coding->layout << LMC__LAYOUT_SHIFT);
    dst[3] = (uint8_t)coding->grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)coding->payload_size);
    lmc__store32(dst + LMC__CONTENT_CRC_AT, coding->content_crc);
    lmc__store32(
        dst + LMC__PAYLOAD_CRC_AT,
        coding->is_predicted ? k->crc32c(0, dst + LMC_BLOCK_HEADER_SIZE, coding->payload_size) : 0);
    lmc__store32(dst + LMC__BLOCK_CRC_AT, lmc__header_crc(k, dst, number));
}
#endif

/* Parses a header whose CRC was right. The order of the checks is that of spec 5, because it
 * decides which error is reported. The conformance vectors test it. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned width = src[1], coding = src[2], grouping = src[3], order = coding & 3,
                   layout = coding >> LMC__LAYOUT_SHIFT, natural = grouping >> LMC__NATURAL_SHIFT;
    const int is_predicted = (coding & LMC__PREDICTED) != 0;
    const uint32_t payload_size = lmc__load32(src + 8);
    uint64_t size;
    LMC__CHECK((width == 1 || width == 2 || width == 4 || width == 8) &&
                   order <= LMC__ORDER_FLOAT && (coding & 0x18) == 0 && layout <= LMC__LAYOUT_CODES,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + LMC__CONTENT_CRC_AT);
    info->is_stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = is_predicted;
    info->payload_crc = lmc__load32(src + LMC__PAYLOAD_CRC_AT);
    size = (uint64_t)info->n * width;
    LMC__VALID(info->n >= 1 && size <= LMC_MAX_BLOCK_SIZE);
    if (info->is_stored) LMC__VALID(payload_size == size && !order && !is_predicted && !grouping);
    else LMC__VALID(payload_size < size);
    if (layout == LMC__LAYOUT_QUANTIZED || layout == LMC__LAYOUT_CODES)
        LMC__VALID((width == 2 || width == 4) && !order && !grouping);
    if ((layout == LMC__LAYOUT_PLANES && is_predicted) || layout == LMC__LAYOUT_MATRIX)
        LMC__VALID(order);
    if (layout >= LMC__LAYOUT_ZEROS) LMC__VALID(!is_predicted);
    LMC__VALID(is_predicted || (!grouping && info->payload_crc == 0));
    LMC__VALID(!natural || (natural < width && lmc__count_classes_of(grouping) > 1 &&
                            !(grouping & LMC__SPARSE)));
    info->size = (size_t)size;
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)payload_size;
    return LMC_OK;
}

/* Checks and parses the header of the block at src. src_size: how many bytes are there. */
static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, uint32_t number, lmc_block_info *info)
{
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__VALID(src[0] == LMC__BLOCK_SYNC);
    LMC__CHECK(lmc__header_crc(k, src, number) == lmc__load32(src + LMC__BLOCK_CRC_AT),
               LMC_ERR_CHECKSUM);
    return lmc__parse_block_info(src, info);
}

LMC_API enum lmc_status lmc_block_parse(const void *src, size_t src_size, uint32_t number,
                                        lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    memset(&found, 0, sizeof found);
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, number, &found));
    *info = found;
    return LMC_OK;
}
