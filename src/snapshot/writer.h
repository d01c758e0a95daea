#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/quant_params.h"
#include "quantise/quantizer.h"
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

/* The writer: opened, told of files and metadata, finished. What it makes of a file's bytes is in
 * writer_plan.h (runs) and writer_blocks.h (blocks); small files go by writer_groups.h. Everything
 * is written once and in its order, so any sink will do. The calls, in the order in which they are
 * legal:
 *
 *     open -> [ begin_file -> write, write_stream ... -> end_file ] -> finish -> free
 *               ^---------- once or more often, no two at once ---^
 *
 * Metadata may be added at any time before finish, free be called at any time. And what they write
 * (spec 1 and 4), while the index grows in memory:
 *
 *     | header | FILE 0 | RUN 0 | blocks | RUN 1 | blocks | FILE 1 | ... | BLKS | INDX | trailer |
 *       open     begin    as bytes come                     begin          finish
 *
 * w->offset is where the next byte goes, whether the sink has got it yet or not. */

/* Straight to the sink, behind what waits to be written. */
static enum lmc_status lmc__sink_write(lmc_writer *w, const void *data, size_t size)
{
    if (size == 0) return LMC_OK;
    LMC__TRY(lmc__drain(&w->coder));
    LMC__TRY(w->coder.sink.write(w->coder.sink.user, data, size));
    w->offset += size;
    return LMC_OK;
}

/* Writes body as a section, without an entry in the index. No wave may be planned, whose blocks
 * would come before. */
static enum lmc_status lmc__write_body(lmc_writer *w, const char *kind, const lmc__buffer *body)
{
    uint8_t head[LMC__SECTION_HEADER_SIZE];
    lmc__put_section_header(head, kind, body->data, body->size, w->coder.wave.k);
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    return lmc__sink_write(w, body->data, body->size);
}

/* Writes w->body as a section, and its entry to the index. The format limits it to 2^40 bytes. */
static enum lmc_status lmc__write_section(lmc_writer *w, const char *kind)
{
    const uint64_t size = w->body.size;
    if (size > LMC__MAX_BODY_SIZE) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__index_section(&w->index, kind, w->body.data, size));
    return lmc__write_body(w, kind, &w->body);
}

/* What the file may use, as its header says. With a read_back runs may refer to this snapshot. */
static unsigned lmc__plan_features(const lmc_writer_options *options)
{
    return (options->read_back ? (unsigned)LMC__FEATURE_OWN : 0u) |
           (options->may_quantize ? (unsigned)LMC__FEATURE_QUANTIZED : 0u);
}

/* One allocation, all zero, so that whatever fails the writer can be freed; then the header. What
 * the options point to is the caller's; the options themselves are copied. The base's fingerprint
 * is computed now; its bytes are read only where a tensor has the same name. */
LMC__COLD LMC_API enum lmc_status lmc_writer_open(lmc_writer **writer, const lmc_sink *sink,
                                                  const lmc_writer_options *options)
{
    lmc_writer_options o;
    enum lmc_status status;
    lmc_writer *w;
    LMC__TRY(lmc__take_options(&o, sizeof o, options));
    options = &o;
    if (!writer || !sink || !sink->write || !lmc__is_parallel(options->parallel) ||
        !lmc__is_level(options->level) || lmc__get_block_size(LMC_U8, options->log2_block, 0) == 0)
        return LMC_ERR_ARGUMENT;
    w = (lmc_writer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *w);
    if (!w) return LMC_ERR_MEMORY;
    memset(w, 0, sizeof *w);
    w->options = *options;
    lmc__open_coder(&w->coder, options->parallel, options->alloc_user);
    w->coder.sink = *sink;
    w->coder.task = lmc__encode_snapshot_task;
    w->coder.progress = options->progress;
    w->coder.progress_user = options->user;
    lmc__init_listing(&w->plan.listing, options->alloc_user);
    lmc__init_buffers(w, LMC__WRITER_BUFFERS, options->alloc_user);
    lmc__init_buffers(&w->plan, LMC__PLANNER_BUFFERS, options->alloc_user);
    lmc__init_buffers(&w->index, LMC__INDEX_BUFFERS, options->alloc_user);
    lmc__init_buffer(&w->hasher.hashes, options->alloc_user);
    w->index.limit = options->max_index_size ? options->max_index_size : LMC__DEFAULT_INDEX_LIMIT;
    status =
        lmc__open_origin(&w->plan.origin, &w->plan.listing, options->base, options->alloc_user);
    if (status == LMC_OK) status = lmc__list_backwards(&w->plan.origin);
    w->plan.origin.read_back = options->read_back ? lmc__read_written : NULL;
    w->plan.origin.user = &w->plan;
    w->plan.options = &w->options;
    lmc__put_header(w->header, lmc__plan_features(options),
                    options->base ? w->plan.origin.fingerprint : NULL, w->coder.wave.k);
    if (status == LMC_OK) status = lmc__sink_write(w, w->header, sizeof w->header);
    if (status != LMC_OK) {
        lmc_writer_free(w);
        return status;
    }
    *writer = w;
    return LMC_OK;
}

/* At any time, also in the midst of a file: what was written is then no LMC file, as it has no
 * trailer. The sink is the caller's, and is not closed. */
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
    lmc__free_buffers(&w->plan, LMC__PLANNER_BUFFERS);
    lmc__free_buffers(&w->index, LMC__INDEX_BUFFERS);
    lmc__free_buffer(&w->hasher.hashes);
    lmc__free_listing(&w->plan.listing);
    lmc__free_origin(&w->plan.origin);
    (void)LMC_REALLOC(w->options.alloc_user, w, sizeof *w, 0);
}

/* Words of a struct of the caller that mean nothing yet. */
static int lmc__wants_unknown(const uint64_t reserved[4])
{
    return (reserved[0] | reserved[1] | reserved[2] | reserved[3]) != 0;
}

/* Begins a file. What the caller describes is written down as a FILE body, and read again by the
 * function that every reader will check it with: what a reader would refuse is a wrong argument
 * here. */
LMC__COLD static enum lmc_status lmc__begin_file(lmc_writer *w, const lmc_file *file,
                                                 enum lmc_dtype default_dtype)
{
    lmc__listing *const listing = &w->plan.listing;
    enum lmc_status status;
    int is_small;
    size_t i;
    if (!file || w->in_file || w->is_finished || (unsigned)default_dtype >= LMC_DTYPE_COUNT)
        return LMC_ERR_ARGUMENT;
    if (listing->n_files == UINT32_MAX - 1) return LMC_ERR_LIMIT;
    if (lmc__wants_unknown(file->reserved)) return LMC_ERR_UNSUPPORTED;
    for (i = 0; i < file->n_tensors && file->tensors; i++) {
        if (lmc__wants_unknown(file->tensors[i].reserved)) return LMC_ERR_UNSUPPORTED;
        if (file->tensors[i].quantizer && !w->options.may_quantize) return LMC_ERR_ARGUMENT;
        LMC__TRY(lmc__check_quantization(&file->tensors[i]));
    }
    is_small = lmc__is_small_file(w, file, default_dtype);
    if (!is_small) LMC__TRY(lmc__write_group(w));
    w->body.size = 0;
    LMC__TRY(lmc__append_file(&w->body, file));
    status = lmc__list_files(listing, w->body.data, w->body.size);
    if (status != LMC_OK) return status == LMC_ERR_CORRUPT ? LMC_ERR_ARGUMENT : status;
    if (is_small) {
        lmc__begin_waiting(w);
        return LMC_OK;
    }
    LMC__TRY(lmc__write_section(w, "FILE"));
    LMC__TRY(lmc__plan_file(&w->plan, file, default_dtype));
    LMC__TRY(lmc__index_files(&w->index, listing, lmc__stream_at(listing, listing->n_streams - 1)));
    lmc__index_file(&w->index, &w->plan.file);
    w->in_file = 1;
    w->run_left = 0;
    w->carry.size = 0;
    lmc__begin_digester(&w->digester, &w->plan.file);
    lmc__begin_hashes(&w->hasher, &w->plan.file);
    return LMC_OK;
}

/* Ends the file at hand, of which exactly as many bytes must have come as were promised; of a file
 * of unknown size, what is left becomes its last run. */
static enum lmc_status lmc__end_file(lmc_writer *w)
{
    lmc__listed_file *f;
    uint64_t size;
    size_t rest;
    if (!w->in_file) return LMC_ERR_ARGUMENT;
    if (w->is_waiting) return lmc__end_waiting(w);
    if (w->plan.file.size == LMC_UNKNOWN_SIZE) {
        LMC__TRY(lmc__plan_blocks(w, w->carry.data, w->carry.size, &rest));
        LMC__TRY(lmc__encode_wave(w));
    }
    size = w->plan.file.size == LMC_UNKNOWN_SIZE ? w->plan.position : w->plan.file.size;
    if (w->digester.absorbed != size) return LMC_ERR_ARGUMENT;
    f = lmc__listed_at(&w->plan.listing, w->plan.file_number);
    if (w->options.content_hashes) LMC__TRY(lmc__end_hashes(&w->hasher));
    lmc__index_file_end(&w->index, &w->digester, &f->file, size);
    lmc__stream_at(&w->plan.listing, f->stream)->size = size;
    w->in_file = 0;
    return LMC_OK;
}

/* Keys that start with "lmc." and have no meaning yet (spec 8.3). */
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

/* Keeps an entry, encoded as in the index (spec 8.3), until the end, when they are sorted. */
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
    const uint64_t body_size = size; /* which may be less than the format's limit can be */
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

/* The metadata entries in order of their keys: w->body becomes a list of items. An item's name
 * points at the key within w->metadata, so the entry begins 8 bytes before it. */
LMC__COLD static enum lmc_status lmc__sort_metadata(lmc_writer *w)
{
    const uint8_t *p = w->metadata.data;
    uint32_t i;
    lmc__item *items;
    w->body.size = 0; /* holds the items */
    for (i = 0; i < w->n_metadata; i++) {
        const uint32_t key_size = lmc__load32(p), size = lmc__load32(p + 4);
        LMC__TRY(lmc__append_item(&w->body, p + 8, key_size, NULL, 0, NULL));
        p += 8 + (size_t)key_size + size;
    }
    items = (lmc__item *)(void *)w->body.data;
    lmc__sort_items(items, w->n_metadata);
    return lmc__has_duplicates(items, w->n_metadata) ? LMC_ERR_ARGUMENT : LMC_OK;
}

LMC__COLD static enum lmc_status lmc__append_metadata(lmc_writer *w)
{
    const lmc__item *const items = (const lmc__item *)(const void *)w->body.data;
    uint32_t i;
    for (i = 0; i < w->n_metadata; i++) {
        const uint8_t *entry = items[i].name - 8;
        LMC__TRY(lmc__grow_index(&w->index, &w->index.entries, entry,
                                 8 + (size_t)lmc__load32(entry) + lmc__load32(entry + 4)));
    }
    return LMC_OK;
}

/* The section of hashes, by the metadata, sorted. */
LMC__COLD static enum lmc_status lmc__write_hashes(lmc_writer *w)
{
    const lmc__item *const items = (const lmc__item *)(const void *)w->body.data;
    lmc__buffer *const body = &w->run_head; /* there are no more runs */
    lmc__sha256 sha;
    uint32_t i;
    LMC__TRY(lmc__state_files(&sha, &w->plan.listing, w->hasher.hashes.data, body)); /* its items */
    for (i = 0; i < w->n_metadata; i++) lmc__state_metadata(&sha, items[i].name - 8);
    body->size = 0;
    LMC__TRY(lmc__append(body, NULL, LMC__HASH_BODY_SIZE)); /* zeros */
    body->data[0] = LMC__HASH_SHA256;
    lmc__sha256_finish(&sha, body->data + LMC__HASH_HEAD_SIZE);
    LMC__TRY(lmc__append(body, w->hasher.hashes.data, w->hasher.hashes.size));
    LMC__TRY(lmc__index_section(&w->index, "hash", NULL, body->size));
    return lmc__write_body(w, "hash", body);
}

/* Table of blocks, index and trailer. The index's CRC is that of its head, continued over the
 * entries. A file that has a trailer is complete.
 *
 *     | section header |   head   | entries of files and runs | metadata |  trailer  |
 *       section          head       w->index.entries, as it has grown      trailer
 *       '- Body_CRC ----------------------------------------------'
 *
 * The fingerprint takes the items out of the entries (spec 7.2), before the metadata is there. */
LMC__COLD static enum lmc_status lmc__finish_writer(lmc_writer *w)
{
    uint8_t head[LMC__INDEX_BODY_SIZE], section[LMC__SECTION_HEADER_SIZE],
        trailer[LMC__TRAILER_SIZE];
    const lmc__kernels *k = w->coder.wave.k;
    uint64_t n_sections, body_size, index_at;
    if (w->in_file || w->is_finished || w->plan.listing.n_files == 0) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__write_group(w));
    n_sections = (uint64_t)w->plan.listing.n_streams + w->n_runs + w->n_sections +
                 (w->options.content_hashes != 0);
    if (n_sections > UINT32_MAX) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__identify_listing(&w->body, &w->plan.listing, w->fingerprint));
    LMC__TRY(lmc__sort_metadata(w));
    LMC__TRY(lmc__write_added_sections(w));
    if (w->options.content_hashes) LMC__TRY(lmc__write_hashes(w));
    LMC__TRY(lmc__index_run_end(&w->index));
    LMC__TRY(lmc__write_body(w, "BLKS", &w->index.rows));
    index_at = w->offset;
    LMC__TRY(lmc__append_metadata(w));
    memcpy(head, w->header, sizeof w->header);
    memcpy(head + LMC__INDEX_FINGERPRINT_AT, w->fingerprint, LMC_FINGERPRINT_SIZE);
    lmc__store32(head + LMC__INDEX_SECTIONS_AT, (uint32_t)n_sections);
    lmc__store32(head + LMC__INDEX_METADATA_AT, w->n_metadata);
    body_size = sizeof head + (uint64_t)w->index.entries.size;
    if (body_size > LMC__MAX_BODY_SIZE || body_size + sizeof section > w->index.limit)
        return LMC_ERR_LIMIT;
    lmc__put_section_head(
        section, "INDX", body_size,
        k->crc32c(k->crc32c(0, head, sizeof head), w->index.entries.data, w->index.entries.size),
        k);
    LMC__TRY(lmc__sink_write(w, section, sizeof section));
    LMC__TRY(lmc__sink_write(w, head, sizeof head));
    LMC__TRY(lmc__sink_write(w, w->index.entries.data, w->index.entries.size));
    lmc__put_trailer(trailer, index_at, w->offset - index_at, k);
    LMC__TRY(lmc__sink_write(w, trailer, sizeof trailer));
    w->is_finished = 1;
    return LMC_OK;
}

/* The first error stays, and is all that any later call returns. `call` is not evaluated then. */
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
    LMC__STICKY(!w->in_file     ? LMC_ERR_ARGUMENT
                : w->is_waiting ? lmc__write_waiting(w, (const uint8_t *)data, size)
                                : lmc__write_bytes(w, (const uint8_t *)data, size));
}
LMC_API enum lmc_status lmc_writer_write_stream(lmc_writer *w, const lmc_stream *stream)
{
    LMC__STICKY(!w->in_file     ? LMC_ERR_ARGUMENT
                : w->is_waiting ? lmc__stream_waiting(w, stream)
                                : lmc__write_stream(w, stream));
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

/* w->offset counts what the sink is going to get, also the coder's parts (pipeline.h). */
LMC_API enum lmc_status lmc_writer_get_info(const lmc_writer *w, lmc_writer_info *info)
{
    size_t i;
    if (!w || !info) return LMC_ERR_ARGUMENT;
    memset(info, 0, sizeof *info);
    info->size = w->offset;
    for (i = 0; i < w->coder.parts.size / sizeof(lmc__part); i++)
        info->size -= ((const lmc__part *)(const void *)w->coder.parts.data)[i].size;
    info->is_finished = w->is_finished;
    if (w->is_finished) memcpy(info->fingerprint, w->fingerprint, LMC_FINGERPRINT_SIZE);
    return LMC_OK;
}
#endif /* LMC_NO_ENCODER */
