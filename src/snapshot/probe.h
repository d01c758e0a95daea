#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/options.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/dispatch.h"
#include "codec/block_header.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"

/* What a file is, and where its parts are, without a reader. Nothing is allocated. */

/* Bytes of the end that are read at once: the trailer and, in small files, the index. */
#define LMC__PROBED_SIZE 4096u
/* The index up to its fingerprint: the head of its section, the copy of the header. */
#define LMC__INDEX_HEAD_SIZE                                                                       \
    (LMC__SECTION_HEADER_SIZE + LMC__INDEX_FINGERPRINT_AT + LMC_FINGERPRINT_SIZE)

static enum lmc_status lmc__read_source(const lmc_source *source, uint64_t offset, void *dst,
                                        size_t size)
{
    return size ? source->read_at(source->user, offset, dst, size) : LMC_OK;
}

/* Checks a header and adds what it says to info. size: at most LMC__HEADER_SIZE */
static enum lmc_status lmc__add_header_info(lmc_snapshot_info *info, const uint8_t *header,
                                            size_t size)
{
    lmc_snapshot_info found;
    const enum lmc_status status = lmc_header_parse(header, size, &found);
    memcpy(found.fingerprint, info->fingerprint, LMC_FINGERPRINT_SIZE);
    found.size = info->size;
    found.index_offset = info->index_offset;
    found.index_size = info->index_size;
    *info = found;
    return status;
}

/* As for a reader, the end tells where the index is, which has a copy of the header. The header
 * itself is read only if there is no trailer, or if the copy is damaged. */
LMC__COLD LMC_API enum lmc_status lmc_snapshot_probe(const lmc_source *source,
                                                     lmc_snapshot_info *info)
{
    uint8_t tail[LMC__PROBED_SIZE], head[LMC__INDEX_HEAD_SIZE];
    enum lmc_status status = LMC_ERR_TRUNCATED;
    uint64_t at;
    size_t size;
    if (!info) return LMC_ERR_ARGUMENT;
    memset(info, 0, sizeof *info);
    LMC__CHECK_CALLBACKS(source, read_at);
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    size = (size_t)lmc__min64(source->size, sizeof tail);
    at = source->size - size; /* where the tail begins */
    LMC__TRY(lmc__read_source(source, at, tail, size));
    if (source->size >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE &&
        memcmp(tail + size - sizeof LMC__END_MAGIC + 1, LMC__END_MAGIC, 8) == 0)
        status = lmc__check_trailer(info, tail + size - LMC__TRAILER_SIZE, source->size,
                                    lmc__get_kernels());
    if (status == LMC_OK && info->index_size < LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE)
        status = LMC_ERR_CORRUPT;
    if (status == LMC_OK) {
        if (info->index_offset >= at)
            memcpy(head, tail + (size_t)(info->index_offset - at), sizeof head);
        else LMC__TRY(lmc__read_source(source, info->index_offset, head, sizeof head));
        memcpy(info->fingerprint, head + LMC__SECTION_HEADER_SIZE + LMC__INDEX_FINGERPRINT_AT,
               LMC_FINGERPRINT_SIZE);
        if (lmc__add_header_info(info, head + LMC__SECTION_HEADER_SIZE, LMC__HEADER_SIZE) == LMC_OK)
            return LMC_OK;
    }
    size = (size_t)lmc__min64(source->size, LMC__HEADER_SIZE);
    if (at == 0) memcpy(head, tail, size);
    else LMC__TRY(lmc__read_source(source, 0, head, size));
    LMC__TRY(lmc__add_header_info(info, head, size));
    return status;
}

/* Reads size bytes at extent->wanted, which grows by size. */
static enum lmc_status lmc__read_wanted(const lmc_source *source, lmc_snapshot_extent *extent,
                                        void *dst, size_t size)
{
    const uint64_t at = extent->wanted;
    extent->wanted += size; /* at most 2^63 + 2^40 before */
    if (extent->wanted > source->size) return LMC_ERR_TRUNCATED;
    return lmc__read_source(source, at, dst, size);
}

/* No block is shorter than the header of a section: its own is longer. */
LMC__COLD LMC_API enum lmc_status lmc_snapshot_measure(const lmc_source *source,
                                                       lmc_snapshot_extent *extent)
{
    const lmc__kernels *const k = lmc__get_kernels();
    uint8_t head[LMC__HEADER_SIZE];
    lmc_snapshot_info info;
    lmc__section section;
    lmc_block_info block;
    uint32_t number = 0; /* of the next block in its run */
    uint64_t at;
    if (!extent) return LMC_ERR_ARGUMENT;
    memset(extent, 0, sizeof *extent);
    LMC__CHECK_CALLBACKS(source, read_at);
    if (source->size > LMC__MAX_FILE_SIZE) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__read_wanted(source, extent, head, LMC__HEADER_SIZE));
    LMC__TRY(lmc_header_parse(head, sizeof head, &info));
    for (;;) {
        at = extent->wanted;
        LMC__TRY(lmc__read_wanted(source, extent, head, LMC__SECTION_HEADER_SIZE));
        if (head[0] == LMC__BLOCK_SYNC) {
            LMC__TRY(lmc__read_wanted(source, extent, head + LMC__SECTION_HEADER_SIZE,
                                      LMC_BLOCK_HEADER_SIZE - LMC__SECTION_HEADER_SIZE));
            LMC__TRY(lmc__read_block_info(k, head, LMC_BLOCK_HEADER_SIZE, number++, &block));
            extent->wanted = at + block.encoded_size;
            continue;
        }
        LMC__TRY(lmc__get_section(&section, head, k));
        if (!extent->runs_offset && lmc__is_kind(&section, "RUN ")) extent->runs_offset = at;
        number = 0;
        extent->wanted += section.size;
        if (!lmc__is_kind(&section, "INDX")) continue;
        LMC__TRY(lmc__read_wanted(source, extent, head, LMC__TRAILER_SIZE));
        LMC__TRY(lmc__check_trailer(&info, head, extent->wanted, k));
        LMC__VALID(info.index_offset == at);
        extent->end = extent->wanted;
        return LMC_OK;
    }
}
