#pragma once
#include "extra_api.h"
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

/* Reads ancillary sections, and the hashes of content, which are in one of them. */

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

/* Reads the section of hashes to r->hashes, once. If several sections have the kind "hash", their
 * first bytes tell which section is known. Checks Snapshot_Hash against the tables and the
 * metadata. A caller that trusts Snapshot_Hash may trust these and the hashes of content. */
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

/* The number of a tensor in the file. n_tensors: it is a copy, or belongs to another file. */
static size_t lmc__number_of_tensor(const lmc_file *f, const lmc_tensor *tensor)
{
    const size_t i = ((uintptr_t)tensor - (uintptr_t)f->tensors) / sizeof *tensor;
    return i < f->n_tensors && tensor == &f->tensors[i] ? i : f->n_tensors;
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
