#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"

/* The 24 bytes in front of each block (spec 7), written and read:
 *
 *     0  sync B1         a mark to look for in damaged files
 *     1  coding          width | residual | joint | layout, see below
 *     2  prediction      0: none; 1: the bytes that the caller or the run says
 *     3  grouping        classes - 1 | sparse | natural planes (spec 7.3)
 *     4  n               elements
 *     8  payload size    bytes that follow the header
 *    12  content CRC     of the decoded bytes
 *    16  base CRC        of the prediction; 0 without
 *    20  header CRC      of position and bytes 0 .. 19
 *
 * That is all it takes to find the next block and to decode this one. The position, run and number
 * of the block, is not stored, as both sides know it. The header's CRC covers it, so a block that
 * stands in another's place is refused like a damaged one.
 *
 * Why two CRCs of data: with one, a wrong base could not be told from damage, and a flipped bit in
 * a mask mostly decodes to something. Base_CRC is compared before a block is decoded, Content_CRC
 * after that: see get_block.h for the order of all checks. */

/* The parts of byte 1, Coding: bits 0-1 are the logarithm of the width, bit 2 the residual (0:
 * xor), bits 3-4 the bits of joint coding, bits 5-7 the layout. */
#define LMC__RESIDUAL_SUBTRACT 4u
#define LMC__JOINT_SHIFT 3u
#define LMC__LAYOUT_SHIFT 5u

/* Grouping, byte 3: bits 0-2 and bit 7 together are the classes less one, bit 3 says sparse, bits
 * 4-6 are the natural planes (spec 7.3). */
LMC__INLINE unsigned lmc__count_classes_of(unsigned grouping)
{
    return ((grouping & 7) | (grouping >> 7 & 1) << 3) + 1;
}

/* What a block is checked against. */
typedef struct lmc__block_crcs {
    uint32_t content, base;
} lmc__block_crcs;

/* CRC of the position, as if it stood in front, and of the header up to the CRC itself. */
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

/* The largest block: its elements stored. */
LMC_API size_t lmc_block_bound(size_t size)
{
    return size <= SIZE_MAX - LMC_BLOCK_HEADER_SIZE ? size + LMC_BLOCK_HEADER_SIZE : SIZE_MAX;
}

#ifndef LMC_NO_ENCODER
/* coding, prediction, grouping: bytes 1 to 3. */
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

/* A header whose CRC was right, so what breaks a rule was written like that.
 *
 * The order of checks is that of spec 7: it decides which error is reported where a block breaks
 * two rules, and the conformance vectors test it.
 *
 *   1  what a later version may use (UNSUPPORTED): before anything else, or its blocks would be
 *      called corrupt
 *   2  n, then the payload's size: together they bound the memory that a block can ask for, and no
 *      block is larger than its elements and a header
 *   3  which parts go together: a stored block has no coding at all; quantised elements are BF16
 *      or F32, with nothing else; joint planes need two planes and no prediction
 *   4  without a prediction there is no grouping, and no CRC of a base; natural planes are those
 *      that classes leave out, so there must be classes
 *
 * Nothing of the payload is looked at. */
static enum lmc_status lmc__parse_block_info(const uint8_t *src, lmc_block_info *info)
{
    const unsigned coding = src[1], prediction = src[2], grouping = src[3];
    const unsigned width = 1u << (coding & 3), subtract = coding & LMC__RESIDUAL_SUBTRACT,
                   joint = coding >> LMC__JOINT_SHIFT & 3, layout = coding >> LMC__LAYOUT_SHIFT;
    const unsigned n_classes = lmc__count_classes_of(grouping), sparse = grouping >> 3 & 1,
                   n_natural = grouping >> 4 & 7;
    const uint32_t payload_size = lmc__load32(src + 8);
    uint64_t size;
    LMC__CHECK(joint != 3 && layout <= LMC__LAYOUT_QUANTIZED && prediction <= 1,
               LMC_ERR_UNSUPPORTED);
    info->n = lmc__load32(src + 4);
    info->width = width;
    info->crc = lmc__load32(src + 12);
    info->is_stored = layout == LMC__LAYOUT_STORED;
    info->has_prediction = (int)prediction;
    info->base_crc = lmc__load32(src + 16);
    LMC__CHECK(info->n >= 1 && info->n <= LMC_MAX_BLOCK_ELEMENTS, LMC_ERR_CORRUPT);
    size = (uint64_t)info->n * width;
    LMC__CHECK(size <= LMC_MAX_BLOCK_SIZE, LMC_ERR_CORRUPT);
    if (info->is_stored)
        LMC__CHECK(payload_size == size && !subtract && !joint && !prediction && !grouping,
                   LMC_ERR_CORRUPT);
    else LMC__CHECK(payload_size < size, LMC_ERR_CORRUPT);
    if (layout == LMC__LAYOUT_QUANTIZED)
        LMC__CHECK((width == 2 || width == 4) && !subtract && !joint && !grouping, LMC_ERR_CORRUPT);
    if (joint) LMC__CHECK(width > 1 && !prediction && !grouping, LMC_ERR_CORRUPT);
    LMC__CHECK(prediction || (!grouping && info->base_crc == 0), LMC_ERR_CORRUPT);
    LMC__CHECK(n_natural == 0 || (n_natural < width && n_classes > 1 && !sparse), LMC_ERR_CORRUPT);
    info->size = (size_t)size;
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

LMC_API enum lmc_status lmc_block_parse(const void *src, size_t src_size, lmc_position position,
                                        lmc_block_info *info)
{
    lmc_block_info found;
    if (!src || !info) return LMC_ERR_ARGUMENT;
    memset(&found, 0, sizeof found);
    LMC__TRY(
        lmc__read_block_info(lmc__get_kernels(), (const uint8_t *)src, src_size, position, &found));
    *info = found;
    return LMC_OK;
}
