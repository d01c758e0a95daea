#pragma once
#include "base/platform.h"

#define LMC__HEADER_SIZE 80u /* spec 4 */
#define LMC__FLAGS_AT 12u
#define LMC__FLAG_SEQUENTIAL 1u
#define LMC__BASE_IDENTITY_AT 32u
#define LMC__CHAIN_DEPTH_AT 64u
#define LMC__HEADER_CRC_AT 76u
#define LMC__SECTION_HEADER_SIZE 24u /* spec 5 */
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)
#define LMC__FILE_BODY_SIZE 36u    /* spec 5.1, without path and tensors */
#define LMC__TENSOR_ENTRY_SIZE 24u /* without shape, name and dtype */
#define LMC__HAS_MODE 1u
#define LMC__HAS_MTIME 2u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)
#define LMC__RUN_BODY_SIZE 16u /* spec 5.2, without segments */
#define LMC__SEGMENT_SIZE 32u
enum { LMC__PREDICT_ZERO = 0, LMC__PREDICT_BASE = 1, LMC__PREDICT_OWN = 2 };
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)

#define LMC__LEAF_SIZE 262144u   /* spec 9.2 */
#define LMC__INDEX_BODY_SIZE 48u /* spec 10, without entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

static const uint8_t lmc__magic[8] = {0x8C, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t lmc__end_magic[8] = {0x8D, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
