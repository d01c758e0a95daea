#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/quant_params.h"
#include "quantize/quantizer.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/files.h"
#include "snapshot/put_files.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"
#include "snapshot/origin.h"
#include "snapshot/writer_plan.h"
#include "snapshot/writer_blocks.h"
#include "snapshot/writer_groups.h"
#ifndef LMC_NO_ENCODER

/* The writer's calls. writer_plan.h makes runs from a file's bytes, writer_blocks.h makes blocks
 * from runs, and writer_groups.h joins small files. All bytes are written once and in order, so any
 * sink can be used. The legal order of the calls:
 *     open -> [ begin_file -> write, write_stream ... -> end_file ] -> finish -> free
 *               ^---------- once or more often, one at a time ----^
 *
 * Metadata may be added at any time before finish. free may be called at any time. The calls write
 * this (spec 1 and 4), and the index grows in memory:
 *     | header | FILE 0 | RUN 0 | blocks | RUN 1 | blocks | FILE 1 | ... | BLKS | INDX | trailer |
 *       open     begin    as bytes come                     begin          finish
 *
 * w->offset is the place of the next byte in the file; bytes before it may still wait for the
 * sink. */

/* Allocates the writer, all zero, so that it can be freed after any error, and writes the header.
 * The options are copied, but not the objects to which they point. The base's fingerprint is
 * computed now. Bytes of the base are read only where they predict something. */
LMC__COLD LMC_API enum lmc_status lmc_writer_open(lmc_writer **writer, const lmc_sink *sink,
                                                  const lmc_writer_options *options)
{
    lmc_writer_options o;
    enum lmc_status status;
    uint64_t features; /* that the options need */
    lmc_writer *w;
    LMC__NEW_OBJECT(writer);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    options = &o;
    features = (options->base ? LMC_FEATURE_BASE : 0) | (options->read_back ? LMC_FEATURE_OWN : 0) |
               (options->may_quantize ? LMC_FEATURE_QUANTIZED : 0);
    if ((features & o.without) || !lmc__is_level(o.level) ||
        (unsigned)o.group_files > LMC_GROUP_ALL ||
        lmc__get_block_size(LMC_U8, o.log2_block, 0) == 0)
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(sink, write);
    LMC__TRY(lmc__check_parallel(options->parallel));
    LMC__TRY(lmc__check_allocator(options->allocator));
    w = (lmc_writer *)lmc__realloc(options->allocator, NULL, 0, sizeof *w);
    if (!w) return LMC_ERR_MEMORY;
    memset(w, 0, sizeof *w);
    w->options = *options;
    lmc__open_coder(&w->coder, options->parallel, options->allocator);
    w->coder.sink = *sink;
    w->coder.task = lmc__encode_snapshot_task;
    w->coder.progress = options->progress;
    w->coder.progress_user = options->user;
    lmc__init_listing(&w->listing, options->allocator);
    lmc__init_buffers(w, LMC__WRITER_BUFFERS, options->allocator);
    status = lmc__open_origin(&w->origin, &w->listing, options->base, options->allocator);
    if (status == LMC_OK)
        status = lmc__open_index(&w->index, options->max_index_size, options->allocator);
    if (status == LMC_OK) status = lmc__list_backwards(&w->origin);
    w->origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->origin.user = w;
    features |= (LMC_FEATURE_ZEROS | LMC_FEATURE_MATRIX | LMC_FEATURE_CODES) & ~options->without;
    lmc__put_header(w->header, features, options->base ? w->origin.fingerprint : NULL,
                    w->coder.wave.k);
    if (status == LMC_OK) status = lmc__sink_write(w, w->header, sizeof w->header);
    if (status != LMC_OK) {
        lmc_writer_free(w);
        return status;
    }
    *writer = w;
    return LMC_OK;
}

/* May be called at any time, even within a file: then the output has no trailer, so it is no LMC
 * file. Does not close the sink, which belongs to the caller. */
LMC__COLD LMC_API void lmc_writer_free(lmc_writer *w)
{
#ifndef LMC_NO_QUANTIZE
    size_t i;
#endif
    if (!w) return;
    lmc__free_coder(&w->coder);
#ifndef LMC_NO_QUANTIZE
    for (i = 0; i < w->quantizers.size / sizeof(lmc_quantizer *); i++)
        lmc_quantizer_free(((lmc_quantizer **)(void *)w->quantizers.data)[i]);
#endif
    lmc__free_buffers(w, LMC__WRITER_BUFFERS);
    lmc__free_buffers(&w->index, LMC__INDEX_BUFFERS);
    lmc__free_listing(&w->listing);
    lmc__free_origin(&w->origin);
    (void)lmc__realloc(w->options.allocator, w, sizeof *w, 0);
}

static enum lmc_status lmc__check_hint(const lmc_writer *w, const lmc_file *file,
                                       const lmc__hint *hint)
{
    const lmc_tensor_hints *const h = &hint->hints;
    const int has_tensor = hint->tensor_number < file->n_tensors && file->tensors;
    size_t i;
    if (h->twin) LMC__CHECK_RESERVED(h->twin);
    for (i = 0; i < h->n_base_parts && h->base_parts; i++) LMC__CHECK_RESERVED(&h->base_parts[i]);
    if (has_tensor && (!h->quantizer || w->options.may_quantize))
        return lmc__check_quantization(&file->tensors[hint->tensor_number], h);
    return h->quantizer || hint->tensor_number ? LMC_ERR_ARGUMENT : LMC_OK;
}

/* Begins a file. The description is written as a FILE body and parsed by the function that readers
 * use. If readers would refuse it: LMC_ERR_ARGUMENT. */
LMC__COLD static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                                 enum lmc_dtype default_dtype)
{
    lmc__listing *const l = &w->listing;
    enum lmc_status status;
    int is_small;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC__DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (l->n_files == UINT32_MAX - 1) return LMC_ERR_LIMIT;
    LMC__CHECK_RESERVED(file);
    for (i = 0; i < file->n_tensors && file->tensors; i++) LMC__CHECK_RESERVED(&file->tensors[i]);
    for (i = 0; i < w->hints.size / sizeof(lmc__hint); i++)
        LMC__TRY(lmc__check_hint(w, file, (const lmc__hint *)(const void *)w->hints.data + i));
    is_small = lmc__is_small_file(w, file, default_dtype);
    if (!is_small) LMC__TRY(lmc__write_group(w));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file, &w->hints));
    LMC__TRY(lmc__append(&w->body, w->file_records.data, w->file_records.size));
    w->file_records.size = 0;
    status = lmc__list_files(l, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    w->file = &lmc__current_file(w)->file;
    lmc__current_file(w)->hints = w->hints;
    lmc__init_buffer(&w->hints, w->options.allocator);
    w->left = file->size == LMC_UNKNOWN_SIZE ? LMC__MAX_FILE_SIZE - 1 : file->size;
    w->default_dtype = default_dtype;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, w->file);
    if (w->options.content_hashes) LMC__TRY(lmc__begin_hashes(&w->digester, &w->hashes));
    w->in_file = 1;
    w->is_waiting = is_small;
    if (is_small) return LMC_OK;
    LMC__TRY(lmc__write_section(w, "FILE", &w->body));
    LMC__TRY(lmc__index_files(&w->index, l, lmc__stream_at(l, l->n_streams - 1)));
    return lmc__plan_file(w);
}

/* Ends the current file. All of its bytes must have been written. If the size is unknown, the bytes
 * that are left become the last run. */
static enum lmc_status lmc__end_file(lmc_writer *w)
{
    size_t rest;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (lmc__is_size_unknown(w)) {
        LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
        LMC__TRY(lmc__encode_wave(w));
    } else if (w->left != 0) return LMC_ERR_ARGUMENT;
    w->in_file = 0;
    if (w->is_waiting) return lmc__end_waiting(w);
    lmc__index_file_end(&w->index, &w->digester, w->file);
    lmc__stream_at(&w->listing, w->listing.n_streams - 1)->size = w->file->size;
    return LMC_OK;
}

/* Whether a key starts with "lmc." but has no meaning yet (spec 8.3). */
static int lmc__is_reserved_key(const char *key)
{
    static const char *const known[] = {"base",    "writer", "created", "source",
                                        "options", "policy", "links"};
    size_t i;
    if (strncmp(key, "lmc.", 4) != 0) return 0;
    for (i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key + 4, known[i]) == 0) return 0;
    return 1;
}

/* Keeps an entry in the form of the index (spec 8.3). lmc__finish_writer sorts the entries. */
static enum lmc_status lmc__add_metadata(lmc_writer *w, const char *key, const void *value,
                                         size_t size)
{
    size_t key_size;
    if (!key || (!value && size) || w->is_finished) return LMC_ERR_ARGUMENT;
    key_size = strlen(key);
    if (key_size < 1 || key_size > LMC__MAX_STRING || lmc__is_reserved_key(key))
        return LMC_ERR_ARGUMENT;
    if (size > LMC__MAX_VALUE_SIZE || w->n_metadata == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)key_size));
    LMC__TRY(lmc__append32(&w->metadata, (uint32_t)size));
    LMC__TRY(lmc__append(&w->metadata, key, key_size));
    LMC__TRY(lmc__append(&w->metadata, value, size));
    w->n_metadata++;
    return LMC_OK;
}

static enum lmc_status lmc__add_section(lmc_writer *w, const char *kind, const void *body,
                                        size_t size)
{
    const uint64_t body_size = size; /* a size_t may be too small for the limit below */
    if (!kind || (!body && size) || w->is_finished || strlen(kind) != 4 ||
        !lmc__is_kind_valid(kind) || !lmc__is_lower(*kind) || memcmp(kind, "hash", 4) == 0)
        return LMC_ERR_ARGUMENT;
    if (body_size > LMC__MAX_BODY_SIZE || w->n_sections == UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__append(&w->sections, NULL, LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__append(&w->sections, body, size));
    lmc__put_section_header(w->sections.data + w->sections.size - size - LMC__SECTION_HEADER_SIZE,
                            kind, w->sections.data + w->sections.size - size, size,
                            w->coder.wave.k);
    w->n_sections++;
    return LMC_OK;
}

LMC__COLD static enum lmc_status lmc__write_added_sections(lmc_writer *w)
{
    size_t at;
    for (at = 0; at < w->sections.size;) {
        const uint8_t *const head = w->sections.data + at;
        const uint64_t size = lmc__load64(head + 4);
        LMC__TRY(lmc__index_section(&w->index, (const char *)head, NULL, size));
        at += LMC__SECTION_HEADER_SIZE + (size_t)size;
    }
    return at ? lmc__sink_write(w, w->sections.data, w->sections.size) : LMC_OK;
}

/* Copies the metadata entries to w->carry, sorted by key. An item's name points to the key in
 * w->metadata, so the entry begins 8 bytes before the name. */
LMC__COLD static enum lmc_status lmc__sort_metadata(lmc_writer *w)
{
    const uint8_t *p = w->metadata.data;
    lmc__item *items;
    uint32_t i;
    w->body.size = w->carry.size = 0; /* body holds the items */
    for (i = 0; i < w->n_metadata; i++) {
        const uint32_t key_size = lmc__load32(p), size = lmc__load32(p + 4);
        LMC__TRY(lmc__append_item(&w->body, p + 8, key_size, NULL, 0, NULL));
        p += 8 + (size_t)key_size + size;
    }
    items = (lmc__item *)(void *)w->body.data;
    lmc__sort_items(items, w->n_metadata);
    for (i = 0; i < w->n_metadata; i++) {
        p = items[i].name - 8;
        LMC__TRY(lmc__append(&w->carry, p, 8 + (size_t)lmc__load32(p) + lmc__load32(p + 4)));
    }
    return lmc__has_duplicates(items, w->n_metadata) ? LMC_ERR_ARGUMENT : LMC_OK;
}

/* Writes the section of hashes. The sorted metadata must be in w->carry. */
LMC__COLD static enum lmc_status lmc__write_hashes(lmc_writer *w)
{
    lmc__buffer *const body = &w->run_head; /* there are no more runs */
    body->size = 0;
    LMC__TRY(lmc__append(body, NULL, LMC__HASH_BODY_SIZE)); /* zeros */
    body->data[0] = LMC__HASH_SHA256;
    LMC__TRY(lmc__hash_snapshot(body->data + LMC__HASH_HEAD_SIZE, &w->listing, w->hashes.data,
                                w->carry.data, w->n_metadata, &w->body));
    LMC__TRY(lmc__append(body, w->hashes.data, w->hashes.size));
    return lmc__write_section(w, "hash", body);
}

/* Writes the table of blocks, the index and the trailer. A file that has a trailer is complete. */
LMC__COLD static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t trailer[LMC__TRAILER_SIZE];
    lmc__buffer *const entries = &w->index.entries;
    uint64_t n_sections, body_size, index_at;
    if (w->in_file || w->is_finished || w->listing.n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__write_group(w));
    n_sections = (uint64_t)w->listing.n_streams + w->n_runs + w->n_sections +
                 (w->options.content_hashes != 0);
    if (n_sections > UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__identify_listing(&w->body, &w->listing, w->fingerprint));
    LMC__TRY(lmc__sort_metadata(w));
    LMC__TRY(lmc__write_added_sections(w));
    if (w->options.content_hashes) LMC__TRY(lmc__write_hashes(w));
    LMC__TRY(lmc__index_run_end(&w->index));
    LMC__TRY(lmc__write_body(w, "BLKS", &w->index.rows));
    index_at = w->offset;
    LMC__TRY(lmc__grow_index(&w->index, entries, w->carry.data, w->carry.size));
    LMC__TRY(lmc__grow_index(&w->index, entries, w->index_records.data, w->index_records.size));
    body_size = entries->size;
    if (body_size > LMC__MAX_BODY_SIZE || body_size + LMC__SECTION_HEADER_SIZE > w->index.limit)
        return LMC_ERR_LIMIT;
    memcpy(entries->data, w->header, LMC__HEADER_SIZE);
    memcpy(entries->data + LMC__INDEX_FINGERPRINT_AT, w->fingerprint, LMC_FINGERPRINT_SIZE);
    lmc__store32(entries->data + LMC__INDEX_SECTIONS_AT, (uint32_t)n_sections);
    lmc__store32(entries->data + LMC__INDEX_METADATA_AT, w->n_metadata);
    LMC__TRY(lmc__write_body(w, "INDX", entries));
    lmc__put_trailer(trailer, index_at, w->offset - index_at, w->coder.wave.k);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays: every later call returns it, without evaluating `call`. */
#define LMC__STICKY(call)                                                                          \
    if (!w) return LMC_ERR_ARGUMENT;                                                               \
    if (w->status == LMC_OK) w->status = (call);                                                   \
    return w->status

LMC_API enum lmc_status lmc_writer_begin_file(lmc_writer *w, const lmc_file *file,
                                              enum lmc_dtype default_dtype)
{
    LMC__STICKY(lmc__begin_file(w, file, default_dtype));
}
LMC_API enum lmc_status lmc_writer_write(lmc_writer *w, const void *data, size_t size)
{
    LMC__STICKY(lmc__write_bytes(w, (const uint8_t *)data, size));
}
LMC_API enum lmc_status lmc_writer_write_stream(lmc_writer *w, const lmc_stream *stream)
{
    LMC__STICKY(lmc__write_stream(w, stream));
}
LMC_API enum lmc_status lmc_writer_end_file(lmc_writer *w) { LMC__STICKY(lmc__end_file(w)); }
LMC_API enum lmc_status lmc_writer_add_metadata(lmc_writer *w, const char *key, const void *value,
                                                size_t size)
{
    LMC__STICKY(lmc__add_metadata(w, key, value, size));
}
LMC_API enum lmc_status lmc_writer_add_section(lmc_writer *w, const char *kind, const void *body,
                                               size_t size)
{
    LMC__STICKY(lmc__add_section(w, kind, body, size));
}
LMC_API enum lmc_status lmc_writer_finish(lmc_writer *w) { LMC__STICKY(lmc__finish_writer(w)); }

/* w->offset includes the coder's parts (pipeline.h), which the sink has not got yet. */
LMC_API enum lmc_status lmc_writer_get_info(const lmc_writer *w, lmc_writer_info *info)
{
    size_t i;
    if (!w || !info) return LMC_ERR_ARGUMENT;
    *info = w->info;
    info->size = w->offset;
    for (i = 0; i < w->coder.parts.size / sizeof(lmc__part); i++)
        info->size -= ((const lmc__part *)(const void *)w->coder.parts.data)[i].size;
    info->is_finished = w->is_finished;
    info->coded_size = w->coder.done;
    if (w->is_finished) memcpy(info->fingerprint, w->fingerprint, LMC_FINGERPRINT_SIZE);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
