#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/identity.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/origin.h"

typedef struct lmc__restorer {
    const lmc_restore_options *options;
    uint64_t max_index;
    lmc__coder coder;
    const uint8_t *at, *end; /* what is there of the stream, in coder.in[number] */
    unsigned number;
    int is_next_read; /* the other coder.in holds what follows, from next_room on */
    size_t next_room;
    int is_other_used; /* blocks of the planned wave are in the other coder.in */
    size_t largest;    /* decoded bytes of the largest block of the run */
    uint64_t offset;   /* bytes taken from the stream, from its beginning to `at` */
    lmc__buffer index; /* what the index must say, entries only */
    lmc__buffer body;
    lmc__buffer items;
    lmc__buffer paths; /* see lmc__add_path */
    uint32_t n_files, n_runs;
    uint64_t total; /* bytes of all runs so far */
    lmc__origin origin;
    int has_base, is_sequential;
    int is_done; /* the blocks of the planned wave were written by an earlier attempt */

    int in_file, has_empty_path;
    lmc_file file;
    lmc__buffer file_memory;
    size_t identities_at;
    uint64_t position; /* bytes of the file in runs so far */
    lmc__digester digester;
} lmc__restorer;

/* Bytes of the stream that are read at once, for each worker: bf16 weights grow by half when they
 * are decoded, and a wave then has up to twice as many. */
#define LMC__READ_SIZE (LMC__WAVE_SIZE / 2)

/* Decode the wave that is planned, and read on; what was decoded is written beside the next one.
 * Before what is read there is room for the beginning of a block that ends in it. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended,
              is_coding = c->n_jobs != 0;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->number ^ 1];
    lmc__want(c, NULL, 0, 0);
    if (is_reading) {
        uint64_t size = 65536; /* at first: there may be little */
        r->next_room = lmc_bound_block(r->largest);
        if (r->largest)
            size = lmc__count_workers(c->parallel) *
                   (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE);
        next->size = 0;
        LMC__TRY(
            lmc__reserve(next, r->next_room + size)); /* so size is no more than a size_t holds */
        lmc__want(c, next->data + r->next_room, (size_t)size, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (is_coding) r->digester.identities = r->index.data + r->identities_at + 16;
    lmc__absorb_pieces(c, &r->digester);
    if (!r->is_done) LMC__TRY(lmc__add_part(c, out->data, out->size));
    c->out_number ^= 1;
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Go on to the next buffer, to whose front what is left of this one moves. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->number ^ 1];
    if (!r->is_next_read)
        LMC__TRY(
            lmc__decode_wave(r)); /* which reads, too, if no block of it is in the other buffer */
    if (!r->is_next_read && !c->ended) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read) return LMC_OK;
    if (left > r->next_room) { /* which was for smaller blocks */
        const size_t more = left - r->next_room;
        LMC__TRY(lmc__reserve(next, more));
        memmove(next->data + left, next->data + r->next_room, next->size - r->next_room);
        r->next_room = left;
        next->size += more;
    }
    if (left) memcpy(next->data + r->next_room - left, r->at, left);
    r->at = next->data + r->next_room - left;
    r->end = next->data + next->size;
    r->number ^= 1;
    r->is_next_read = 0;
    r->is_other_used = c->n_jobs != 0;
    return LMC_OK;
}

/* Makes size bytes lie at r->at; fewer only at the end of the stream. */
static enum lmc_status lmc__fetch(lmc__restorer *r, size_t size)
{
    while ((size_t)(r->end - r->at) < size && (r->is_next_read || !r->coder.ended))
        LMC__TRY(lmc__turn_buffer(r));
    return LMC_OK;
}

static enum lmc_status lmc__fetch_all(lmc__restorer *r, size_t size)
{
    LMC__TRY(lmc__fetch(r, size));
    LMC__CHECK((size_t)(r->end - r->at) >= size, LMC_ERR_TRUNCATED);
    return LMC_OK;
}

static void lmc__skip(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
}

static enum lmc_status lmc__read_all(lmc__restorer *r, uint8_t *dst, size_t size)
{
    while (size != 0) {
        size_t n;
        LMC__TRY(lmc__fetch_all(r, 1));
        n = lmc__min(size, (size_t)(r->end - r->at));
        memcpy(dst, r->at, n);
        lmc__skip(r, n);
        dst += n;
        size -= n;
    }
    return LMC_OK;
}

/* The section's body to r->body, in steps: memory grows with what is really there. */
static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section)
{
    if (section->size > r->max_index) return LMC_ERR_LIMIT;
    r->body.size = 0;
    while (r->body.size < section->size) {
        const size_t step = (size_t)lmc__min64(section->size - r->body.size, 1 << 20);
        LMC__TRY(lmc__reserve(&r->body, step));
        LMC__TRY(lmc__read_all(r, r->body.data + r->body.size, step));
        r->body.size += step;
    }
    LMC__CHECK(r->coder.wave.k->crc32c(0, r->body.data, r->body.size) == section->body_crc,
               LMC_ERR_CHECKSUM);
    return LMC_OK;
}

static enum lmc_status lmc__grow_index(lmc__restorer *r, const void *data, size_t size)
{
    if (r->index.size + (uint64_t)size > r->max_index) return LMC_ERR_LIMIT;
    return lmc__append(&r->index, data, size);
}

/* The section at hand, as the index has it. */
static enum lmc_status lmc__index_section(lmc__restorer *r, const uint8_t *head)
{
    uint8_t field[8];
    lmc__store64(field, r->offset - r->body.size - LMC__SECTION_HEADER_SIZE);
    LMC__TRY(lmc__grow_index(r, field, 8));
    LMC__TRY(lmc__grow_index(r, head, LMC__SECTION_HEADER_SIZE));
    return lmc__grow_index(r, r->body.data, r->body.size);
}

static enum lmc_status lmc__restore_file(lmc__restorer *r, const lmc__section *section,
                                         const uint8_t *head)
{
    const lmc_restore_options *o = r->options;
    LMC__CHECK(section->number == r->n_files, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__TRY(lmc__parse_file(&r->file, &r->file_memory, r->body.data, r->body.size));
    LMC__CHECK(r->n_files == 0 || (!r->has_empty_path && r->file.path[0] != 0), LMC_ERR_CORRUPT);
    r->has_empty_path = r->file.path[0] == 0;
    LMC__TRY(lmc__add_path(&r->paths, r->n_files, r->file.path));
    LMC__TRY(lmc__index_section(r, head));
    r->identities_at = r->index.size;
    LMC__TRY(lmc__grow_index(r, NULL, 16 + LMC_IDENTITY_SIZE * lmc__count_identities(&r->file)));
    if (r->file.size != LMC_UNKNOWN_SIZE) { /* before the caller makes room for it */
        uint64_t total = r->total;
        if (!lmc__add_total(&total, r->file.size, &o->limits)) return LMC_ERR_LIMIT;
    }
    r->n_files++;
    r->in_file = 1;
    r->position = 0;
    lmc__begin_digester(&r->digester, &r->file);
    if (o->begin_file && o->begin_file(o->user, &r->file, r->n_files - 1) != 0)
        return LMC_ERR_WRITE;
    return LMC_OK;
}

static enum lmc_status lmc__restore_file_end(lmc__restorer *r)
{
    const lmc_restore_options *o = r->options;
    uint8_t *info;
    if (!r->in_file) return LMC_OK;
    if (r->file.size == LMC_UNKNOWN_SIZE) r->file.size = r->position;
    LMC__CHECK(r->position == r->file.size, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__decode_wave(r));
    LMC__TRY(lmc__drain(&r->coder));
    info = r->index.data + r->identities_at;
    r->digester.identities = info + 16;
    lmc__finish_digester(&r->digester);
    lmc__store64(info, r->file.size);
    lmc__store32(info + 8, r->digester.file_crc);
    r->file.crc = r->digester.file_crc;
    r->in_file = 0;
    if (o->end_file && o->end_file(o->user, &r->file, r->n_files - 1) != 0) return LMC_ERR_WRITE;
    return LMC_OK;
}

/* Plan the block at hand. */
static enum lmc_status lmc__restore_block(lmc__restorer *r, const lmc__run *run, uint64_t block,
                                          size_t size)
{
    const uint64_t offset = block * run->block_size,
                   n_before = r->total - run->size + offset; /* within the run, of the snapshot */
    const int is_done = n_before < r->options->n_done;
    lmc__coder *c = &r->coder;
    lmc__buffer *out;
    lmc_position position;
    lmc_block_info info;
    lmc__job *job;
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    position.run = r->n_runs - 1;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, position, &info));
    LMC__CHECK(info.size == size, LMC_ERR_CORRUPT);
    if (is_done && size > r->options->n_done - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number]; /* fetching may have changed the number, and so may coding */
    if (c->n_jobs && (size > out->cap - out->size || r->is_done != is_done))
        LMC__TRY(lmc__decode_wave(r));
    r->is_done = is_done;
    out = &c->out[c->out_number];
    if (c->n_jobs == 0)
        LMC__TRY(lmc__reserve(
            out, lmc__get_wave_size(c, r->largest))); /* pointers into it from now on */
    LMC__TRY(lmc__add_job(c, &job));
    job->position = position;
    job->info = info;
    job->src = r->at;
    job->dst = out->data + out->size;
    job->skip = 0;
    job->keep = size;
    job->streaming.is_on = 0;
    job->streaming.next = NULL;
    job->streaming.next_size = 0;
    job->is_done = is_done;
    if (info.has_prediction) LMC__CHECK(run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, run->file_number, run->start + offset,
                                     job->dst, size));
    } else if (info.has_prediction) {
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst,
                                      size)); /* which is decoded over it */
        job->base = job->dst;
        job->own = run->prediction == LMC__PREDICT_OWN;
    }
    out->size += size;
    lmc__skip(r, info.encoded_size);
    lmc__store32(entry, (uint32_t)info.encoded_size);
    lmc__store32(entry + 4, lmc__load32(job->src + LMC__BLOCK_CRC_AT));
    LMC__TRY(lmc__grow_index(r, entry, sizeof entry));
    return lmc__plan_job(c, &r->digester, job, size);
}

static enum lmc_status lmc__restore_run(lmc__restorer *r, const lmc__section *section,
                                        const uint8_t *head)
{
    uint64_t block;
    lmc__run run;
    LMC__CHECK(section->number == r->n_runs && r->in_file, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__TRY(
        lmc__parse_run(&run, r->body.data, r->body.size, r->n_files - 1, &r->file, &r->position));
    LMC__CHECK(run.prediction != LMC__PREDICT_BASE || r->has_base, LMC_ERR_CORRUPT);
    LMC__CHECK(run.prediction != LMC__PREDICT_OWN || !r->is_sequential, LMC_ERR_CORRUPT);
    if (!lmc__add_total(&r->total, run.size, &r->options->limits)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__check_origin(&r->origin, &run));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__index_section(r, head));
    if (run.prediction == LMC__PREDICT_OWN) { /* what it refers to must have reached the caller */
        LMC__TRY(lmc__decode_wave(r));
        LMC__TRY(lmc__drain(&r->coder));
    }
    r->n_runs++;
    r->largest = lmc__block_size_at(&run, 0);
    LMC__TRY(
        lmc__set_coder(&r->coder, r->largest, lmc__min(r->largest, LMC_MAX_BLOCK_ELEMENTS), 0));
    for (block = 0; block < run.n_blocks; block++)
        LMC__TRY(lmc__restore_block(r, &run, block, lmc__block_size_at(&run, block)));
    return LMC_OK;
}

static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          uint8_t identity[LMC_IDENTITY_SIZE])
{
    const uint64_t n_entries = (uint64_t)r->n_files + r->n_runs;
    const uint8_t *p;
    LMC__CHECK(section->number == 0 && r->n_files > 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    p = r->body.data;
    LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE &&
                   r->body.size - LMC__INDEX_BODY_SIZE >= r->index.size,
               LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load32(p) == r->n_files && lmc__load32(p + 4) == r->n_runs, LMC_ERR_CORRUPT);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    LMC__CHECK(memcmp(p + LMC__INDEX_BODY_SIZE, r->index.data, r->index.size) == 0,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__check_metadata(p + LMC__INDEX_BODY_SIZE + r->index.size, p + r->body.size,
                                 lmc__load32(p + 40)));
    LMC__TRY(lmc__collect_items(&r->items, r->index.data, n_entries));
    lmc__snapshot_identity(&r->items, identity);
    LMC__CHECK(memcmp(p + 8, identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_CORRUPT);
    return LMC_OK;
}

static enum lmc_status lmc__restore(lmc__restorer *r, uint8_t identity[LMC_IDENTITY_SIZE])
{
    const lmc__kernels *k = r->coder.wave.k;
    uint8_t bytes[LMC__HEADER_SIZE];
    lmc__section section;
    uint64_t index_at;
    LMC__TRY(lmc__fetch(r, LMC__HEADER_SIZE));
    if (r->end - r->at < (ptrdiff_t)LMC__HEADER_SIZE)
        return lmc__short_header(r->at, (size_t)(r->end - r->at));
    LMC__TRY(lmc__check_header(r->at, k));
    LMC__TRY(lmc__check_base(&r->origin, r->at));
    r->has_base = lmc__has_base(r->at);
    r->is_sequential = (int)(lmc__load32(r->at + 12) & LMC__FLAG_SEQUENTIAL);
    lmc__skip(r, LMC__HEADER_SIZE);
    for (;;) {
        index_at = r->offset;
        LMC__TRY(lmc__read_all(r, bytes, LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__get_section(&section, bytes, k));
        if (lmc__is_kind(&section, "RUN ")) {
            LMC__TRY(lmc__restore_run(r, &section, bytes));
            continue;
        }
        LMC__TRY(lmc__restore_file_end(r));
        if (!lmc__is_kind(&section, "FILE")) break;
        LMC__TRY(lmc__restore_file(r, &section, bytes));
    }
    LMC__CHECK(lmc__is_kind(&section, "INDX"), LMC_ERR_CORRUPT);
    if (r->options->n_done > r->total) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__restore_index(r, &section, identity));
    LMC__TRY(lmc__read_all(r, bytes, LMC__TRAILER_SIZE));
    LMC__TRY(lmc__check_trailer(bytes, index_at, r->offset - LMC__TRAILER_SIZE - index_at,
                                r->offset, k));
    LMC__TRY(lmc__fetch(r, 1));
    LMC__CHECK(r->at == r->end, LMC_ERR_CORRUPT); /* nothing follows the trailer */
    return LMC_OK;
}

LMC_API enum lmc_status lmc_restore_snapshot(const lmc_stream *stream,
                                             const lmc_restore_options *options,
                                             uint8_t identity[LMC_IDENTITY_SIZE])
{
    lmc_restore_options defaults;
    uint8_t found[LMC_IDENTITY_SIZE];
    enum lmc_status status;
    lmc__restorer *r;
    memset(&defaults, 0, sizeof defaults);
    if (options == NULL) options = &defaults;
    if (!stream || !stream->read || !lmc__is_parallel(options->parallel)) return LMC_ERR_ARGUMENT;
    if (options->in_place ? !options->read_back : options->n_done != 0) return LMC_ERR_ARGUMENT;
    r = (lmc__restorer *)LMC_REALLOC(options->alloc_user, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->options = options;
    r->max_index =
        options->limits.max_index_size ? options->limits.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
    lmc__open_coder(&r->coder, options->parallel, options->alloc_user);
    r->coder.stream = *stream;
    r->coder.sink.write = options->write;
    r->coder.sink.user = options->user;
    r->coder.task = lmc__decode_task;
    r->index.alloc_user = r->body.alloc_user = r->items.alloc_user = r->paths.alloc_user =
        r->file_memory.alloc_user = options->alloc_user;
    status =
        lmc__open_origin(&r->origin, options->in_place ? NULL : options->base, options->alloc_user);
    r->origin.in_place = options->in_place;
    r->origin.read_back = options->read_back;
    r->origin.user = options->user;
    if (status == LMC_OK) status = lmc__restore(r, found);
    if (status == LMC_OK && identity) memcpy(identity, found, LMC_IDENTITY_SIZE);
    lmc__free_coder(&r->coder);
    lmc__free_buffer(&r->index);
    lmc__free_buffer(&r->body);
    lmc__free_buffer(&r->items);
    lmc__free_buffer(&r->paths);
    lmc__free_buffer(&r->file_memory);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(options->alloc_user, r, sizeof *r, 0);
    return status;
}
