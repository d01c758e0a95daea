#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "kernels/dispatch.h"

/* Both ends of an LMC file: the header (spec 3.1), and the trailer (spec 3.2), which says where the
 * index is. */

#ifndef LMC_NO_ENCODER
/* features: without LMC_FEATURE_BASE. base_fingerprint: NULL if there is no base. */
static void lmc__put_header(uint8_t *dst, uint64_t features, const uint8_t *base_fingerprint,
                            const lmc__kernels *k)
{
    memset(dst, 0, LMC__HEADER_SIZE);
    memcpy(dst, LMC_MAGIC, 8);
    dst[8] = LMC_FORMAT_MAJOR;
    dst[9] = LMC_FORMAT_MINOR;
    dst[LMC__ALGORITHM_AT] = 1;
    lmc__store64(dst + LMC__FEATURES_AT, features);
    if (base_fingerprint) {
        lmc__store64(dst + LMC__FEATURES_AT, features | LMC_FEATURE_BASE);
        memcpy(dst + LMC__BASE_FINGERPRINT_AT, base_fingerprint, LMC_FINGERPRINT_SIZE);
    }
    lmc__store32(dst + LMC__HEADER_CRC_AT, k->crc32c(0, dst, LMC__HEADER_CRC_AT));
}

/* The index begins at index_at and ends where the trailer begins. */
static void lmc__put_trailer(uint8_t *dst, uint64_t index_at, uint64_t index_size,
                             const lmc__kernels *k)
{
    memset(dst, 0, LMC__TRAILER_SIZE);
    lmc__store64(dst, index_at);
    lmc__store64(dst + 8, index_size);
    lmc__store64(dst + 16, index_at + index_size + LMC__TRAILER_SIZE); /* the file's size */
    dst[24] = LMC_FORMAT_MAJOR;
    dst[25] = LMC_FORMAT_MINOR;
    lmc__store32(dst + 28, k->crc32c(0, dst, 28));
    memcpy(dst + 32, LMC__END_MAGIC, 8);
}
#endif

/* Whether the snapshot is a delta: the base's fingerprint in its header is not all zero. */
static int lmc__has_base(const uint8_t *header)
{
    static const uint8_t none[LMC_FINGERPRINT_SIZE] = {0};
    return memcmp(header + LMC__BASE_FINGERPRINT_AT, none, sizeof none) != 0;
}

/* Checks the LMC__HEADER_SIZE bytes of a header. The version is checked before the CRC: a newer
 * version may change the rest of the header, and its files must not be called damaged.
 *
 *     0  magic                       16  features        48  reserved
 *     8  version                     24  ignored         60  Header_CRC of the bytes before
 *    10  algorithm of fingerprints   32  fingerprint of the base, or 0
 *    11  reserved
 *
 * An unknown feature could change what the file means, so the file is refused. */
LMC__COLD static enum lmc_status lmc__check_header(const uint8_t *header, const lmc__kernels *k)
{
    uint64_t features;
    size_t i;
    LMC__CHECK(memcmp(header, LMC_MAGIC, 8) == 0, LMC_ERR_NOT_LMC); /* R3-1 */
    LMC__CHECK(header[8] == LMC_FORMAT_MAJOR, LMC_ERR_VERSION);     /* R3-2 */
    LMC__CHECK(k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT),
               LMC_ERR_CHECKSUM);                                              /* R3-4 */
    LMC__CHECK(header[LMC__ALGORITHM_AT] == 1, LMC_ERR_UNSUPPORTED);           /* R3-6 */
    for (i = 11; i < 16; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* R3-7 */
    features = lmc__load64(header + LMC__FEATURES_AT);
    LMC__CHECK((features & ~LMC__KNOWN_FEATURES) == 0, LMC_ERR_UNSUPPORTED);   /* R3-8 */
    LMC__VALID(((features & LMC_FEATURE_BASE) != 0) == lmc__has_base(header)); /* R3-10 */
    for (i = 48; i < 60; i++) LMC__CHECK(header[i] == 0, LMC_ERR_UNSUPPORTED); /* R3-11 */
    return LMC_OK;
}

/* Adds size to *total and returns 1, if the sum is at most max_total_size (0: no limit). Otherwise
 * returns 0. Never overflows. */
static int lmc__add_total(uint64_t *total, uint64_t size, uint64_t max_total_size)
{
    const uint64_t most = max_total_size ? max_total_size : UINT64_MAX;
    if (size > most || *total > most - size) return 0;
    *total += size;
    return 1;
}

/* Sets what the header says. Its CRC and version must have been checked. */
static void lmc__get_header_info(lmc_snapshot_info *info, const uint8_t *header)
{
    memcpy(info->base_fingerprint, header + LMC__BASE_FINGERPRINT_AT, LMC_FINGERPRINT_SIZE);
    info->has_base = lmc__has_base(header);
    info->features = lmc__load64(header + LMC__FEATURES_AT); /* bits LMC__FEATURE_... */
    info->format_major = header[8];
    info->format_minor = header[9];
}

LMC__COLD LMC_API enum lmc_status lmc_header_parse(const void *src, size_t src_size,
                                                   lmc_snapshot_info *info)
{
    const uint8_t *const header = (const uint8_t *)src;
    enum lmc_status status;
    if ((!src && src_size) || !info) return LMC_ERR_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (src_size < 8 || memcmp(header, LMC_MAGIC, 8) != 0) return LMC_ERR_NOT_LMC;
    if (src_size < LMC__HEADER_SIZE)
        return src_size > 8 && header[8] != LMC_FORMAT_MAJOR ? LMC_ERR_VERSION : LMC_ERR_TRUNCATED;
    status = lmc__check_header(header, lmc__get_kernels());
    if (status == LMC_OK || status == LMC_ERR_UNSUPPORTED) lmc__get_header_info(info, header);
    info->format_major = header[8];
    info->format_minor = header[9];
    return status;
}

/* Checks the trailer of a file of `total` bytes, and sets where the index is:
 *     0  where the index begins     16  size of the file     28  CRC of the bytes before
 *     8  size of the index          24  version, reserved    32  end magic
 *
 * The file's size shows whether a file was cut and continued with the end of another file. */
LMC__COLD static enum lmc_status lmc__check_trailer(lmc_snapshot_info *info, const uint8_t *trailer,
                                                    uint64_t total, const lmc__kernels *k)
{
    const uint64_t end = total - LMC__TRAILER_SIZE, at = lmc__load64(trailer);
    LMC__VALID(memcmp(trailer + 32, LMC__END_MAGIC, 8) == 0); /* R3-15 */
    LMC__CHECK(k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28),
               LMC_ERR_CHECKSUM);                                    /* R3-16 */
    LMC__CHECK(trailer[24] == LMC_FORMAT_MAJOR, LMC_ERR_VERSION);    /* R3-17 */
    LMC__CHECK(lmc__load16(trailer + 26) == 0, LMC_ERR_UNSUPPORTED); /* R3-19 */
    LMC__VALID(at >= LMC__HEADER_SIZE && at <= end && lmc__load64(trailer + 8) == end - at &&
               lmc__load64(trailer + 16) == total); /* R3-20 to R3-22 */
    info->size = total;
    info->index_offset = at;
    info->index_size = end - at;
    return LMC_OK;
}
