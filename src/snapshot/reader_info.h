#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/hashes.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"

/* What a reader tells of its snapshot without decoding anything: files, hashes, metadata, and where
 * coded bytes are. */

LMC__COLD LMC_API enum lmc_status lmc_reader_get_info(const lmc_reader *r, lmc_snapshot_info *info)
{
    if (!r || !info) return LMC_ERR_ARGUMENT;
    *info = r->info;
    info->n_files = r->tables.listing.n_files;
    info->n_metadata = r->tables.n_metadata;
    memcpy(info->fingerprint, r->tables.fingerprint, LMC_FINGERPRINT_SIZE);
    info->n_sections = r->tables.ancillary.size / sizeof(lmc__ancillary);
    info->has_records = (uint64_t)r->tables.listing.has_records;
    return LMC_OK;
}

LMC_API const lmc_file *lmc_reader_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->tables.listing.n_files ? &lmc__file_at(r, i)->file : NULL;
}

static const lmc__ancillary *lmc__ancillary_at(const lmc_reader *r, size_t i)
{
    return (const lmc__ancillary *)(const void *)r->tables.ancillary.data + i;
}

LMC_API enum lmc_status lmc_reader_get_section(const lmc_reader *r, size_t i, char kind[5],
                                               uint64_t *size)
{
    const lmc__ancillary *a;
    if (!r || !kind || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->tables.ancillary.size / sizeof *a) return LMC_ERR_NOT_FOUND;
    a = lmc__ancillary_at(r, i);
    memcpy(kind, a->kind, 4);
    kind[4] = 0;
    *size = a->size - LMC__SECTION_HEADER_SIZE;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_section(lmc_reader *r, size_t i, void *dst,
                                                          size_t dst_cap)
{
    const lmc__kernels *const k = r ? r->coder->wave.k : NULL;
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    char kind[5];
    lmc__section section;
    uint64_t size;
    if (!dst) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc_reader_get_section(r, i, kind, &size));
    if (size > dst_cap) return LMC_ERR_DST_TOO_SMALL;
    LMC__TRY(lmc__read_at(r, lmc__ancillary_at(r, i)->at, head, sizeof head));
    LMC__TRY(lmc__get_section(&section, head, k));
    LMC__VALID(lmc__is_kind(&section, kind) && section.size == size);
    LMC__TRY(lmc__read_at(r, lmc__ancillary_at(r, i)->at + sizeof head, dst, (size_t)size));
    LMC__CHECK(k->crc32c(0, (const uint8_t *)dst, (size_t)size) == section.body_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* The section of hashes, to r->hashes, once. Of several sections of that kind the first bytes tell.
 * It is as the tables and the metadata say: so whoever trusts Snapshot_Hash may trust these and the
 * hashes of content, too. */
LMC__COLD static enum lmc_status lmc__read_hashes(lmc_reader *r)
{
    const lmc__tables *const t = &r->tables;
    lmc__buffer *const body = &r->hashes;
    size_t i;
    for (i = 0; body->size == 0; i++) {
        enum lmc_status status;
        uint64_t size;
        char kind[5];
        int is_hash;
        LMC__TRY(lmc_reader_get_section(r, i, kind, &size));
        if (memcmp(kind, "hash", 4) != 0 || size < LMC__HASH_HEAD_SIZE) continue;
        if (size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
        LMC__TRY(lmc__append(body, NULL, (size_t)size));
        status = lmc_reader_read_section(r, i, body->data, body->size);
        is_hash = status == LMC_OK && lmc__is_hash_body(body->data, body->size);
        if (is_hash)
            status = lmc__check_snapshot_hash(body, &t->listing, t->metadata_at, t->n_metadata,
                                              &r->coder->in[0]);
        if (status != LMC_OK || !is_hash) body->size = 0;
        LMC__TRY(status);
    }
    return LMC_OK;
}

LMC_API enum lmc_status lmc_reader_read_snapshot_hash(lmc_reader *r, uint8_t hash[32])
{
    if (!r || !hash || r->is_salvage) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_hashes(r));
    memcpy(hash, r->hashes.data + LMC__HASH_HEAD_SIZE, LMC__HASH_SIZE);
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_content_hash(lmc_reader *r, size_t file_number,
                                                               const lmc_tensor *tensor,
                                                               uint8_t hash[32])
{
    const lmc_file *const file = lmc_reader_get_file(r, file_number);
    size_t i, number;
    if (!file || !hash || r->is_salvage) return LMC_ERR_ARGUMENT;
    number = tensor ? lmc__number_of_tensor(file, tensor) : file->n_tensors;
    if (tensor && number == file->n_tensors) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__read_hashes(r));
    for (i = 0; i < file_number; i++) number += lmc_reader_get_file(r, i)->n_tensors + 1;
    memcpy(hash, r->hashes.data + LMC__HASH_BODY_SIZE + LMC__HASH_SIZE * number, LMC__HASH_SIZE);
    return LMC_OK;
}

static const char *lmc__metadata_key(const lmc__tables *t, size_t i)
{
    return (const char *)t->keys.data +
           ((const lmc__metadata_entry *)(const void *)t->metadata.data)[i].key_at;
}

LMC_API enum lmc_status lmc_reader_get_metadata(const lmc_reader *r, size_t i, const char **key,
                                                const void **value, size_t *size)
{
    const lmc__metadata_entry *entry;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    if (i >= r->tables.n_metadata) return LMC_ERR_NOT_FOUND;
    entry = (const lmc__metadata_entry *)(const void *)r->tables.metadata.data + i;
    *key = lmc__metadata_key(&r->tables, i);
    *value = entry->value;
    *size = entry->size;
    return LMC_OK;
}

/* Keys ascend, and none has a NUL (index.h). */
LMC__COLD LMC_API enum lmc_status lmc_reader_find_metadata(const lmc_reader *r, const char *key,
                                                           const void **value, size_t *size)
{
    const lmc__tables *const t = r ? &r->tables : NULL;
    const char *found;
    size_t i;
    if (!r || !key || !value || !size) return LMC_ERR_ARGUMENT;
    LMC__FIND_FIRST(i, 0, t->n_metadata, strcmp(lmc__metadata_key(t, i), key) < 0);
    if (i == t->n_metadata || strcmp(lmc__metadata_key(t, i), key) != 0) return LMC_ERR_NOT_FOUND;
    return lmc_reader_get_metadata(r, i, &found, value, size);
}

/* Of `stored` bytes, which stand for `size` bytes, the share of the first x: it ascends with x, so
 * that shares add up. */
static uint64_t lmc__share(uint64_t stored, uint64_t size, uint64_t x)
{
    uint64_t rest = stored % size, whole = stored / size * x;
    unsigned shift = 0;
    while (size >> shift > UINT32_MAX) shift++;
    return whole + ((rest >> shift) * (x >> shift) / (size >> shift) << shift);
}

/* Of each run its share: a listing wants numbers that add up, and no rows. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_size(const lmc_reader *r, size_t file_number,
                                                          uint64_t offset, uint64_t size,
                                                          uint64_t *encoded_size)
{
    const lmc__stream *stream;
    if (!r || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    *encoded_size = 0;
    while (size != 0) {
        const lmc__reader_run *const run = lmc__run_at(r, lmc__find_run(r, stream, offset));
        const uint64_t at = offset - run->run.start, n = lmc__min64(size, run->run.size - at);
        *encoded_size += lmc__share(run->end - run->at, run->run.size, at + n) -
                         lmc__share(run->end - run->at, run->run.size, at);
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* The first block of the first run, and the last one of the last. */
LMC__COLD LMC_API enum lmc_status lmc_reader_encoded_range(lmc_reader *r, size_t file_number,
                                                           uint64_t offset, uint64_t size,
                                                           uint64_t *encoded_offset,
                                                           uint64_t *encoded_size)
{
    const lmc__stream *stream;
    uint64_t from = 0, to = 0, last;
    if (!r || !encoded_offset || !encoded_size) return LMC_ERR_ARGUMENT;
    if (r->is_salvage) return LMC_ERR_LOST;
    stream = lmc__stream_range(r, file_number, &offset, size);
    if (!stream) return LMC_ERR_ARGUMENT;
    if (size != 0) { /* there may be no run at all */
        last = offset + size - 1;
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, offset), offset, 0, &from));
        LMC__TRY(lmc__locate_block(r, lmc__find_run(r, stream, last), last, 1, &to));
    }
    *encoded_offset = from;
    *encoded_size = to - from;
    return LMC_OK;
}
