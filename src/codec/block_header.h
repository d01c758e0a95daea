#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"

/* The 24 bytes in front of each block (spec 7), written and read. They say all that is needed to
 * find the next block and to decode this one, but for its position, which their CRC covers: a block
 * that stands in another's place is refused as damaged. */

/* The parts of byte 1, Coding. */
#define LMC__RESIDUAL_SUBTRACT 4u
#define LMC__JOINT_SHIFT 3u
#define LMC__LAYOUT_SHIFT 5u

/* What a block is checked against. */
typedef struct lmc__block_crcs {
    uint32_t content, base;
} lmc__block_crcs;

LMC__INLINE uint32_t lmc__header_crc(const lmc__kernels *k, const uint8_t *header,
                                     lmc_position position)
{
    uint8_t place[8];
    lmc__store32(place, position.run);
    lmc__store32(place + 4, position.block);
    return k->crc32c(k->crc32c(0, place, 8), header, LMC__BLOCK_CRC_AT);
}

static unsigned lmc__log2_width(unsigned width)
{
    return width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3;
}

#ifndef LMC_NO_ENCODER
static void lmc__put_block_header(uint8_t *dst, unsigned coding, unsigned prediction,
                                  unsigned grouping, size_t n, size_t payload_size,
                                  lmc__block_crcs crcs, const lmc__kernels *k,
                                  lmc_position position)
{
    dst[0] = LMC__BLOCK_SYNC;
    dst[1] = (uint8_t)coding;
    dst[2] = (uint8_t)prediction;
    dst[3] = (uint8_t)grouping;
    lmc__store32(dst + 4, (uint32_t)n);
    lmc__store32(dst + 8, (uint32_t)payload_size);
    lmc__store32(dst + 12, crcs.content);
    lmc__store32(dst + 16, crcs.base);
    lmc__store32(dst + LMC__BLOCK_CRC_AT, lmc__header_crc(k, dst, position));
}
#endif

/* A header whose CRC was right, so what breaks a rule was written so. First what another version
 * may mean (UNSUPPORTED), or its blocks would be called corrupt; then numbers, from which the size
 * of the block follows; then which parts go together, by layout. Nothing of the payload is looked
 * at. The order is that of spec 7 (Checks), where a block breaks two rules. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned coding = src[1], prediction = src[2], grouping = src[3];
    const unsigned width = 1u << (coding & 3), subtract = coding & LMC__RESIDUAL_SUBTRACT,
                   joint = coding >> LMC__JOINT_SHIFT & 3, layout = coding >> LMC__LAYOUT_SHIFT;
    const unsigned n_classes = (grouping & 7) + 1, sparse = grouping >> 3 & 1,
                   n_natural = grouping >> 4;
    const uint32_t payload_size = lmc__load32(src + 8);
    uint64_t size;
    LMC__CHECK(joint != 3 && layout <= LMC__LAYOUT_QUANTIZED && prediction <= 1 && grouping < 0x80,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + 12);
    info->stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = (int)prediction;
    info->base_crc = lmc__load32(src + 16);
    LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);
    size = (uint64_t)info->n * width;
    if (info->stored)
        LMC__CHECK(payload_size == size && !subtract && !joint && !prediction && !grouping,
                   LMC_ERR_CORRUPT);
    else LMC__CHECK(payload_size < size, LMC_ERR_CORRUPT);
    if (layout == LMC__LAYOUT_QUANTIZED)
        LMC__CHECK((width == 2 || width == 4) && !subtract && !joint && !grouping, LMC_ERR_CORRUPT);
    if (joint) LMC__CHECK(width > 1 && !prediction && !grouping, LMC_ERR_CORRUPT);
    LMC__CHECK(prediction || (n_classes == 1 && info->base_crc == 0), LMC_ERR_CORRUPT);
    LMC__CHECK(n_natural == 0 || (n_natural < width && n_classes > 1 && !sparse), LMC_ERR_CORRUPT);
    info->size = (size_t)size; /* at most 8 MiB */
    info->encoded_size = LMC_BLOCK_HEADER_SIZE + (size_t)payload_size;
    return LMC_OK;
}

/* The header of the block at src, of which src_size bytes are there. Only when its CRC was found
 * right are its fields worth a look. */
static enum lmc_status lmc__read_block_info(const lmc__kernels *k, const uint8_t *src,
                                            size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    LMC__CHECK(src_size >= LMC_BLOCK_HEADER_SIZE, LMC_ERR_TRUNCATED);
    LMC__CHECK(src[0] == LMC__BLOCK_SYNC, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__header_crc(k, src, position) == lmc__load32(src + LMC__BLOCK_CRC_AT),
               LMC_ERR_CHECKSUM);
    return lmc__parse_block_info(src, info);
}

LMC_API enum lmc_status lmc_read_block_info(const void *src, size_t src_size, lmc_position position,
                                            lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, position, &found));
    *info = found;
    return LMC_OK;
}
