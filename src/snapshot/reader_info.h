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

/* Tells what a reader has in its tables, without reading: files and metadata. */

LMC__COLD LMC_API enum lmc_status lmc_reader_get_info(const lmc_reader *r, lmc_snapshot_info *info)
{
    if (!r || !info) return LMC_ERR_ARGUMENT;
    *info = r->info;
    info->n_files = r->tables.listing.n_files;
    info->n_metadata = r->tables.n_metadata;
    memcpy(info->fingerprint, r->tables.fingerprint, LMC_FINGERPRINT_SIZE);
    info->n_sections = r->tables.ancillary.size / sizeof(lmc__ancillary);
    info->n_records = r->tables.listing.n_records;
    return LMC_OK;
}

LMC_API const lmc_file *lmc_reader_get_file(const lmc_reader *r, size_t i)
{
    return r && i < r->tables.listing.n_files ? &lmc__file_at(r, i)->file : NULL;
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

/* Keys ascend, and have no NUL (lmc__parse_metadata). */
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
