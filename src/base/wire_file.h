#pragma once
#include "base/platform.h"

/* Constants of files (spec 4, 5, 9, 10, 12). Sizes are in bytes. */

/* File_Header (spec 4). */
#define LMC__HEADER_SIZE 80u
#define LMC__FLAG_SEQUENTIAL 1u /* a pipe can restore the file: no run refers to this snapshot */
#define LMC__FLAGS_AT 12u
#define LMC__BASE_IDENTITY_AT 32u
#define LMC__CHAIN_DEPTH_AT 64u
#define LMC__HEADER_CRC_AT 76u

/* Section_Header (spec 5). */
#define LMC__SECTION_HEADER_SIZE 24u
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)

/* FILE body (spec 5.1). */
#define LMC__FILE_BODY_SIZE 36u    /* without path and tensors */
#define LMC__TENSOR_ENTRY_SIZE 24u /* without shape, name, dtype and error */
#define LMC__HAS_MODE 1u           /* bits of Attributes */
#define LMC__HAS_MTIME 2u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)

/* RUN body (spec 5.2). */
#define LMC__RUN_BODY_SIZE 16u /* without segments */
#define LMC__SEGMENT_SIZE 32u
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)
enum { LMC__PREDICT_ZERO = 0, LMC__PREDICT_BASE = 1, LMC__PREDICT_OWN = 2 };

/* Leaves of an identity: as many bytes of content have a CRC that is hashed (spec 9.2). */
#define LMC__LEAF_SIZE 262144u

/* INDX body and trailer (spec 10). */
#define LMC__INDEX_BODY_SIZE 48u /* without entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

/* The first and the last bytes of a file. As in PNG, a byte that is no ASCII and line ends of two
 * kinds show what a transfer as text has changed. */
static const uint8_t lmc__magic[8] = {0x8C, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
static const uint8_t lmc__end_magic[8] = {0x8D, 'L', 'M', 'C', 0x0D, 0x0A, 0x1A, 0x0A};
