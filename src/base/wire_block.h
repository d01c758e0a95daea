#pragma once
#include "base/platform.h"

/* Constants of blocks and their lists (spec 5, 6): sizes in bytes, depths and lengths in bits. */

/* Block sizes (spec 4.2): 16 KiB to 4 MiB. */
#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 22u

/* Block_Header (spec 5). */
#define LMC__BLOCK_SYNC 0xB2u   /* first byte */
#define LMC__CONTENT_CRC_AT 12u /* offset of Content_CRC */
#define LMC__PAYLOAD_CRC_AT 16u /* offset of Payload_CRC */
#define LMC__BLOCK_CRC_AT 20u   /* offset of Header_CRC */
#define LMC__PREDICTED 4u       /* in Coding; bits 0-1 are the order */
#define LMC__LAYOUT_SHIFT 5u    /* in Coding */
#define LMC__SPARSE 16u         /* in Grouping; bits 0-3: number of classes - 1 */
#define LMC__NATURAL_SHIFT 5    /* in Grouping: planes that are not grouped */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTIZED 2u
#define LMC__LAYOUT_ZEROS 3u
#define LMC__LAYOUT_MATRIX 4u
#define LMC__LAYOUT_CODES 5u

/* Codes with scales (spec/codes.md) begin with Mantissa, Half, Group_Size, First_Group. */
#define LMC__CODES_HEADER 10u
#define LMC__LEAST_CODED_GROUP 16u

/* A list's Mode byte (spec 6). */
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
};

/* Trees and masks. Depth times nesting bounds a decoder's recursion and memory. */
#define LMC__MAX_LENGTH 15u     /* of a code; depth of a tree (spec 6.2) */
#define LMC__MAX_FLAT 6u        /* depth of a flat node: one vpermb looks up 64 symbols */
#define LMC__MASK_MODE_MIN 256u /* masks of fewer bits have no mode byte (spec 6.3) */
#define LMC__MAX_NESTING 2u     /* masks within masks (spec 6.3) */
#define LMC__FROZEN_LEVELS 10u  /* trees for masks, by density (spec 6.4) */
#define LMC__MASK_GAPS 21u      /* first mode of gaps, for masks of classes only (spec 6.3) */
#define LMC__MASK_MODES 65u     /* number of modes of masks */
