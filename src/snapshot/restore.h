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
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/index_entries.h"
#include "snapshot/origin.h"

/* Restoring front to back, from a pipe to a pipe if need be: everything is checked, nothing is
 * sought.
 *
 * The stream is read into two buffers in turn. Blocks are decoded from where they lie; what begins
 * at the end of one buffer is moved to before what the other one holds, where room was left for it:
 *
 *     in[0]  |room|--- section --|=== block 0 ===|=== block 1 ===|=== bl|
 *                                                               at ^   ^ end
 *     in[1]  |      room     |=== bl|ock 2 ======|=== block 3 ===|== ...
 *                             at ^  ^ next_room: what the stream brought
 *
 * Decoding a wave frees the buffer that its blocks were in, so that reading can go on there while
 * the next wave is decoded from the other. Three things bound what is in flight: the wave is full
 * (its decoded bytes do not fit into `out`), a wave may have no blocks in the buffer that is to be
 * read to (is_other_used), and a section that refers to this snapshot waits for all before it.
 *
 * What is asked for (lmc__fetch) is at most a block and its header, or a section's fixed fields;
 * bodies are taken in steps (lmc__read_body). So a hostile size makes nothing grow before as many
 * bytes have really come. The index grows with files, tensors and blocks, and is limited by the
 * caller.
 *
 * Order of things: a block goes to write() only after its CRC was compared; in its order; and one
 * wave later. begin_file and end_file come between waves. Only when lmc_restore_snapshot returns
 * LMC_OK are names, sizes and identities known to be right, since the index that repeats them comes
 * last. */
typedef struct lmc__restorer {
    const lmc_restore_options *options;
    lmc__coder coder;

    /* -- the stream -- */
    /* What is there of it and not used yet: a part of coder.in[in_number]. */
    const uint8_t *at, *end;
    unsigned in_number;
    /* The other coder.in holds what follows, from next_room on; before that there is room for what
     * is left of this one. */
    int is_next_read;
    size_t next_room;
    /* Blocks of the wave that is being planned are in the other coder.in, so nothing can be read
     * to it before they are decoded. */
    int is_other_used;
    /* Bytes of the stream from its beginning to `at`. */
    uint64_t offset;

    /* -- what has been seen -- */
    /* What the INDX section must say, byte by byte. */
    lmc__index_builder index;
    /* The body of the section at hand. */
    lmc__buffer body;
    /* Names and identities of everything, at the end. */
    lmc__buffer items;
    /* See lmc__add_path. */
    lmc__buffer paths;
    uint32_t n_files, n_runs;
    /* Bytes of all runs. */
    uint64_t total;
    int has_base, is_sequential;
    lmc__origin origin;

    /* -- the file at hand -- */
    int in_file, has_empty_path;
    lmc_file file;
    lmc__buffer file_memory;
    /* Bytes of it in runs so far. */
    uint64_t position;
    lmc__digester digester;

    /* -- the wave at hand -- */
    /* Decoded bytes of the largest block of the run. */
    size_t largest;
    /* In place: an earlier attempt has written its blocks, so they are compared, and not written
     * again. A wave has only blocks of one sort. */
    int is_written;
} lmc__restorer;

/* Bytes of the stream that are read at once, for each worker: bf16 weights grow by half when they
 * are decoded, so these are more than a wave. */
#define LMC__READ_SIZE LMC__WAVE_SIZE

/* Decodes the wave that is planned, which may be empty; beside that writes what the wave before has
 * made, and reads on if the other buffer is free. Then the pieces are absorbed, in order, and `out`
 * changes sides: what was decoded is handed to the next wave to be written. Without threads it is
 * written at once. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended,
              is_coding = c->n_jobs != 0;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->in_number ^ 1];
    lmc__want(c, NULL, 0, 0);
    if (is_reading) {
        uint64_t size = 65536; /* at first: there may be little */
        r->next_room = lmc_bound_block(r->largest);
        if (r->largest)
            size = lmc__count_workers(c->parallel) *
                   (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE);
        next->size = 0;
        /* after which size is no more than a size_t holds */
        LMC__TRY(lmc__reserve(next, r->next_room + size));
        lmc__want(c, next->data + r->next_room, (size_t)size, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (is_coding) r->digester.identities = lmc__index_identities(&r->index);
    lmc__absorb_pieces(c, &r->digester);
    if (!r->is_written) LMC__TRY(lmc__add_part(c, out->data, out->size));
    if (c->parallel) c->out_number ^= 1;
    else LMC__TRY(lmc__drain(c)); /* while it is in the caches */
    c->out[c->out_number].size = 0;
    return LMC_OK;
}

/* Goes on to the other buffer, to whose front what is left of this one moves. If nothing comes any
 * more, nothing changes.
 *
 * Room before what was read is that for the largest block of the run at hand then; the next run's
 * may be larger, and then what was read moves up. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->in_number ^ 1];
    /* Decoding reads, too, if no block of the wave is in the other buffer; if one was, the second
     * wave, which is empty, does. */
    if (!r->is_next_read) LMC__TRY(lmc__decode_wave(r));
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
    r->in_number ^= 1;
    r->is_next_read = 0;
    r->is_other_used = c->n_jobs != 0;
    return LMC_OK;
}

/* Makes size bytes lie at r->at; fewer only at the end of the stream. May decode a wave, so
 * pointers into `out` and its number may change. */
static enum lmc_status lmc__fetch(lmc__restorer *r, size_t size)
{
    while ((size_t)(r->end - r->at) < size && (r->is_next_read || !r->coder.ended))
        LMC__TRY(lmc__turn_buffer(r));
    return LMC_OK;
}

/* The same, where the stream must not end. */
static enum lmc_status lmc__fetch_all(lmc__restorer *r, size_t size)
{
    LMC__TRY(lmc__fetch(r, size));
    LMC__CHECK((size_t)(r->end - r->at) >= size, LMC_ERR_TRUNCATED);
    return LMC_OK;
}

/* These bytes were used. */
static void lmc__skip(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
}

/* The next size bytes, copied. Larger than any buffer they may be: they are taken as they come. */
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

/* The section's body to r->body, in steps of 1 MiB: memory grows with what is really there, not
 * with what the section's header claims. Its CRC is compared, so whoever parses it parses what was
 * written. */
LMC__COLD static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section)
{
    if (section->size > r->index.limit) return LMC_ERR_LIMIT;
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

/* To the index: the section at hand, whose body was read last. head: its header. */
static enum lmc_status lmc__restore_section(lmc__restorer *r, const uint8_t *head)
{
    return lmc__index_section(&r->index, r->offset - r->body.size - LMC__SECTION_HEADER_SIZE, head,
                              r->body.data, r->body.size);
}

/* A FILE section. All that can be refused is refused before the caller hears of the file: a path
 * twice, a nameless file that is not alone, a size over the limit. Its size and identities are not
 * known yet: the index gets room for them. */
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
    LMC__TRY(lmc__restore_section(r, head));
    LMC__TRY(lmc__index_file(&r->index, &r->file));
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

/* What follows is no run of this file. Everything of it must be decoded and written before the
 * caller is told that it is complete. */
static enum lmc_status lmc__restore_file_end(lmc__restorer *r)
{
    const lmc_restore_options *o = r->options;
    if (!r->in_file) return LMC_OK;
    if (r->file.size == LMC_UNKNOWN_SIZE) r->file.size = r->position;
    LMC__CHECK(r->position == r->file.size, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__decode_wave(r));
    LMC__TRY(lmc__drain(&r->coder));
    lmc__index_file_end(&r->index, &r->digester, r->file.size);
    r->file.crc = r->digester.file_crc;
    r->in_file = 0;
    if (o->end_file && o->end_file(o->user, &r->file, r->n_files - 1) != 0) return LMC_ERR_WRITE;
    return LMC_OK;
}

/* Makes the block at hand a job of the wave. Its header is checked against its position and what
 * the run says of its size; a prediction is read to where the block will be decoded over it.
 *
 * In place, a block is written already (n_done) or it is not; one that n_done cuts in two cannot
 * be. What is written is read back and compared, and not handed to write() again. */
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
    lmc__snapshot_job *block_job;
    lmc__job *job;
    position.run = r->n_runs - 1;
    position.block = (uint32_t)block;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, position, &info));
    LMC__CHECK(info.size == size, LMC_ERR_CORRUPT);
    if (is_done && size > r->options->n_done - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number]; /* fetching may have changed the number, and so may coding */
    if (c->n_jobs && (size > out->cap - out->size || r->is_written != is_done))
        LMC__TRY(lmc__decode_wave(r));
    r->is_written = is_done;
    out = &c->out[c->out_number];
    /* pointers into it from now on */
    if (c->n_jobs == 0) LMC__TRY(lmc__reserve(out, lmc__get_wave_size(c, r->largest)));
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job;
    job->position = position;
    job->info = info;
    job->src = r->at;
    job->dst = out->data + out->size;
    job->skip = 0;
    job->keep = size;
    job->streaming = lmc__no_streaming;
    block_job->is_written = is_done;
    if (info.has_prediction) LMC__CHECK(run->prediction != LMC__PREDICT_ZERO, LMC_ERR_CORRUPT);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, run->file_number, run->start + offset,
                                     job->dst, size));
    } else if (info.has_prediction) {
        /* over which the block is decoded */
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst, size));
        job->base = job->dst;
        block_job->is_own_prediction = run->prediction == LMC__PREDICT_OWN;
    }
    out->size += size;
    lmc__skip(r, info.encoded_size);
    LMC__TRY(lmc__index_block(&r->index, info.encoded_size, job->src));
    return lmc__plan_pieces(c, &r->digester, block_job, size);
}

/* A RUN section and its blocks. A run that refers to its own snapshot reads back what write() was
 * given, so that must have reached the caller: the wave is decoded, and what it made is written,
 * before its first prediction is read. */
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
    LMC__TRY(lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__restore_section(r, head));
    if (run.prediction == LMC__PREDICT_OWN) {
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

/* The INDX section. Its entries must be those that were built on the way, byte for byte: that
 * checks sizes, CRCs, offsets, identities and names at once. What is left is the counts, the
 * metadata and the snapshot's identity. */
static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          uint8_t identity[LMC_IDENTITY_SIZE])
{
    const uint64_t n_entries = (uint64_t)r->n_files + r->n_runs;
    lmc__index_head head;
    const lmc__buffer *const entries = &r->index.entries;
    const uint8_t *p;
    LMC__CHECK(section->number == 0 && r->n_files > 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_body(r, section));
    LMC__CHECK(r->body.size >= LMC__INDEX_BODY_SIZE &&
                   r->body.size - LMC__INDEX_BODY_SIZE >= entries->size,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__get_index_head(&head, r->body.data));
    LMC__CHECK(head.n_files == r->n_files && head.n_runs == r->n_runs, LMC_ERR_CORRUPT);
    p = r->body.data + LMC__INDEX_BODY_SIZE;
    LMC__CHECK(memcmp(p, entries->data, entries->size) == 0, LMC_ERR_CORRUPT);
    LMC__TRY(lmc__check_metadata(p + entries->size, r->body.data + r->body.size, head.n_metadata));
    LMC__TRY(lmc__collect_items(&r->items, entries->data, n_entries));
    lmc__snapshot_identity(&r->items, identity);
    LMC__CHECK(memcmp(head.identity, identity, LMC_IDENTITY_SIZE) == 0, LMC_ERR_CORRUPT);
    return LMC_OK;
}

/* All of the stream, of which not a byte may be left. The loop takes one section at a time; a run
 * takes its blocks with it. */
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

/* See lmc__visit_buffer. */
static void lmc__visit_restorer(lmc__restorer *r, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&r->index.entries, alloc_user);
    visit(&r->body, alloc_user);
    visit(&r->items, alloc_user);
    visit(&r->paths, alloc_user);
    visit(&r->file_memory, alloc_user);
}

LMC__COLD LMC_API enum lmc_status lmc_restore_snapshot(const lmc_stream *stream,
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
    r->index.limit =
        options->limits.max_index_size ? options->limits.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
    lmc__open_coder(&r->coder, options->parallel, options->alloc_user);
    r->coder.stream = *stream;
    r->coder.sink.write = options->write;
    r->coder.sink.user = options->user;
    r->coder.task = lmc__decode_snapshot_task;
    lmc__visit_restorer(r, lmc__init_buffer, options->alloc_user);
    status =
        lmc__open_origin(&r->origin, options->in_place ? NULL : options->base, options->alloc_user);
    r->origin.in_place = options->in_place;
    r->origin.read_back = options->read_back;
    r->origin.user = options->user;
    if (status == LMC_OK) status = lmc__restore(r, found);
    if (status == LMC_OK && identity) memcpy(identity, found, LMC_IDENTITY_SIZE);
    lmc__free_coder(&r->coder);
    lmc__visit_restorer(r, lmc__free_visited, NULL);
    lmc__free_origin(&r->origin);
    (void)LMC_REALLOC(options->alloc_user, r, sizeof *r, 0);
    return status;
}
