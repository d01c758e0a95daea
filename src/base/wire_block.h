#pragma once
#include "base/platform.h"

#define LMC__MIN_LOG2_BLOCK 14u
#define LMC__MAX_LOG2_BLOCK 23u
#define LMC__BLOCK_SYNC 0xB1u   /* spec 7 */
#define LMC__CONTENT_CRC_AT 12u /* Content_CRC, in a block's header */
#define LMC__BLOCK_CRC_AT 20u   /* Header_CRC, in a block's header */
#define LMC__LAYOUT_STORED 0u
#define LMC__LAYOUT_PLANES 1u
#define LMC__LAYOUT_QUANTIZED 2u
enum {
    LMC__PLANE_RAW = 0,
    LMC__PLANE_CONSTANT = 1,
    LMC__PLANE_TREE = 2,
    LMC__PLANE_TREE_ESCAPE = 3
}; /* spec 8 */
#define LMC__MAX_LENGTH 15u     /* spec 8.1 */
#define LMC__MAX_FLAT 6u        /* spec 8.2: 64 symbols, what one vpermb looks up */
#define LMC__MASK_MODE_MIN 256u /* spec 8.3: masks of fewer bits have no mode byte */
#define LMC__MAX_NESTING 3u
#define LMC__FROZEN_LEVELS 10u /* spec 8.4 */
