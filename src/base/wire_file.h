#pragma once
#include "base/platform.h"

/* Constants of files (spec 3, 4, 7, 8, 9). Sizes are in bytes. */
#ifndef LMC_NO_SNAPSHOT

/* Header (spec 3.1). */
#define LMC__HEADER_SIZE 64u
#define LMC__ALGORITHM_AT 10u /* algorithm of fingerprints; only 1 is known */
#define LMC__FEATURES_AT 16u  /* Incompatible */
#define LMC__BASE_FINGERPRINT_AT 32u
#define LMC__HEADER_CRC_AT 60u

/* Bits of Incompatible, which tell what the file may use: all LMC_FEATURE_... of api.h. */
#define LMC__KNOWN_FEATURES ((uint64_t)63)

/* Section_Header (spec 4). */
#define LMC__SECTION_HEADER_SIZE 20u
#define LMC__MAX_BODY_SIZE ((uint64_t)1 << 40)

/* FILE body (spec 4.1). */
enum { /* bits of a file's Form */
       LMC__FILE_IS_DIRECTORY = 1,
       LMC__FILE_HAS_MODE = 2,
       LMC__FILE_HAS_MTIME = 4,
       LMC__FILE_IS_UNKNOWN = 8
};
#define LMC__FILE_FORMS 15u
enum { /* bits of a tensor's Form */
       LMC__TENSOR_IS_LIKE = 1,
       LMC__TENSOR_HAS_GAP = 2,
       LMC__TENSOR_HAS_LOSS = 4
};
#define LMC__TENSOR_FORMS 7u
#define LMC__MAX_STRING 65535u /* path, name, key */
#define LMC__MAX_DTYPE_SIZE 32u
#define LMC__MAX_TENSORS ((uint32_t)1 << 28)
#define LMC__MAX_FILES ((uint32_t)1 << 28) /* of a section */
#define LMC__MAX_FILE_SIZE ((uint64_t)INT64_MAX)

/* RUN body (spec 4.2). */
#define LMC__MAX_SEGMENTS ((uint32_t)1 << 24)
enum {
    LMC__PREDICT_ZERO = 0,
    LMC__PREDICT_BASE = 1,
    LMC__PREDICT_TEXT = 2, /* by the header text of a file in this snapshot */
    LMC__PREDICT_OWN = 3   /* by this snapshot; 3 + enum lmc_conversion: converted */
};
#define LMC__PREDICTIONS 6u

/* Bytes of a leaf: a fingerprint hashes sums of leaves of content (spec 7.1). */
#define LMC__LEAF_SIZE 262144u

/* INDX body, rows of BLKS, trailer (spec 8, 3.2). */
#define LMC__INDEX_FINGERPRINT_AT 64u /* after a copy of the header */
#define LMC__INDEX_SECTIONS_AT 80u
#define LMC__INDEX_METADATA_AT 84u
#define LMC__INDEX_BODY_SIZE 88u /* without its entries */
#define LMC__BLOCK_ENTRY_SIZE 8u /* size and Header_CRC of a block */
#define LMC__MAX_VALUE_SIZE ((uint32_t)1 << 28)
#define LMC__TRAILER_SIZE 40u

/* Ends a file. As in PNG, its line ends and non-ASCII byte show a transfer as text. */
#define LMC__END_MAGIC "\x94LMC\r\n\x1A\n"
#endif
