#pragma once
#include "base/platform.h"

/* Constants of blocks and their lists (spec 5, 6). Sizes are in bytes, depths and lengths in bits.
 * On the lowest floor, for the snapshot reader's recovery of damaged files looks for blocks too. */

/* Block sizes (spec 4.2): 16 KiB to 4 MiB. */
#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 22u

/* Block_Header (spec 5). */
#define LMC__BLOCK_SYNC 0xB2u   /* its first byte */
#define LMC__CONTENT_CRC_AT 12u /* offset of Content_CRC */
#define LMC__PAYLOAD_CRC_AT 16u /* offset of Payload_CRC */
#define LMC__BLOCK_CRC_AT 20u   /* offset of Header_CRC */
#define LMC__PREDICTED 4u       /* of Coding; bits 0-1 are the order */
#define LMC__LAYOUT_SHIFT 5u    /* of Coding */
#define LMC__SPARSE 16u         /* of Grouping; bits 0-3 are the classes less one */
#define LMC__NATURAL_SHIFT 5    /* of Grouping: planes that are not grouped */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTIZED 2u

/* How a list of bytes is stored: its Mode byte (spec 6). */
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
};

/* Trees and masks. A decoder's recursion and its memory are bounded by these: levels of a tree
 * times masks within masks. */
#define LMC__MAX_LENGTH 15u     /* of a code; so many levels has a tree (spec 6.2) */
#define LMC__MAX_FLAT 6u        /* depth of a flat node: 64 symbols, what one vpermb looks up */
#define LMC__MASK_MODE_MIN 256u /* masks of fewer bits have no mode byte (spec 6.3) */
#define LMC__MAX_NESTING 2u     /* masks within masks (spec 6.3) */
#define LMC__FROZEN_LEVELS 10u  /* trees for masks, by density (spec 6.4) */
#define LMC__MASK_GAPS 21u      /* first mode of masks as gaps, of classes only (spec 6.3) */
#define LMC__MASK_MODES 65u     /* modes of masks */
