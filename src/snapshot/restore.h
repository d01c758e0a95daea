#pragma once
#include "base/platform.h"
#include "base/options.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "tensor/wave.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/pipeline.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"
#include "snapshot/hashes.h"
#include "snapshot/origin.h"

/* Restores from front to back, even from a pipe to a pipe: it never seeks. Checks everything. If
 * nothing is written, a delta can be checked without its base. Blocks that cannot be decoded are
 * then checked only by the CRC of the payload, and the CRCs and fingerprints of their files are
 * taken from the index.
 *
 * The stream is read into two buffers in turns. Blocks are decoded from the buffer. If the end of a
 * buffer cuts a block, the block's first part is copied in front of the data in the other buffer:
 *     in[0]  |room|--- section --|=== block 0 ===|=== block 1 ===|=== bl|
 *                                                               at ^   ^ end
 *     in[1]  |      room     |=== bl|ock 2 ======|=== block 3 ===|== ...
 *                             at ^  ^ next_room: new bytes of the stream
 *
 * A wave ends if `out` is full, or if the next buffer to fill has one of the wave's blocks. It also
 * ends before a run that refers to this snapshot, and at the end of a stream or of the bytes that
 * done_size covers. write() gets blocks in order, after their CRCs were checked, one wave later.
 * With write_at, a stream of one file is written in the wave that decodes it. begin_file and
 * end_file are called between waves.
 *
 * lmc__fetch is called for at most a block with its header, or the fixed fields of a section.
 * Bodies are taken in parts, as they arrive, so a false size cannot make a buffer grow before the
 * bytes are there. Only the index, at the end, confirms names, sizes and fingerprints. */
typedef struct lmc__restorer {
    lmc__buffer body, segments; /* of the current section; of the current RUN */
    lmc__buffer keys, metadata; /* at the end: keys, NUL-terminated; lmc__metadata_entry */
    lmc__buffer items;          /* at the end: all items (lmc__identify_listing) */
    /* with options.check_hashes: the body of the section of hashes; the hashes of the restored
     * files */
    lmc__buffer hashes, found_hashes;
    const lmc_restore_options *options;
    lmc__coder coder;

    /* -- the stream -- */
    /* bytes that were read and not used yet: a part of coder.in[in_number] */
    const uint8_t *at, *end;
    unsigned in_number;
    /* the other coder.in has the bytes that follow, from next_room on; the rest of this buffer will
     * be copied in front of them */
    int is_next_read;
    size_t next_room;
    /* the other coder.in has blocks of the wave that is being planned: these must be decoded before
     * it gets new bytes */
    int is_other_used;
    uint64_t read_limit; /* upper limit of the next read */
    uint64_t offset;     /* bytes of the stream from its beginning to `at` */

    uint8_t header[LMC__HEADER_SIZE]; /* from this member on: what was read so far */
    lmc__index_builder index;         /* builds what the INDX section must be */
    lmc__listing listing;             /* all files so far */
    uint32_t n_runs, n_ancillary;
    int has_rows;   /* BLKS was read, so the next section must be the index */
    uint64_t total; /* bytes of all runs */
    lmc__origin origin;
    /* is_check: nothing is written, so blocks may stay undecoded. unread: LMC_OK, or the reason */
    int is_check;
    enum lmc_status unread;

    /* -- the current stream of files: the last in the listing -- */
    uint64_t position; /* bytes of the stream in runs so far */
    /* Numbers of files: blocks of planned_file are being planned, bytes of `file` are being
     * written. Each has a digester: `planner` plans pieces, `digester` absorbs them. */
    size_t planned_file, file;
    lmc__digester planner, digester;

    /* -- the current wave -- */
    size_t largest; /* decoded bytes of the largest block of the run */
} lmc__restorer;
#define LMC__RESTORER_BUFFERS LMC__ROW(lmc__restorer, body, options)

/* The most bytes that one read takes from the stream for each worker, unless a block is larger.
 * This is more than the input of a wave, since decoding makes the data larger. */
#define LMC__READ_SIZE LMC__WAVE_SIZE

static lmc__listed_file *lmc__restored_file(const lmc__restorer *r)
{
    return lmc__listed_at(&r->listing, r->file);
}

/* Begins file number r->file, the next file of the stream. */
static enum lmc_status lmc__begin_restored(lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    const lmc_file *const file = &lmc__restored_file(r)->file;
    lmc__begin_digester(&r->digester, file);
    if (o->check_hashes) LMC__TRY(lmc__begin_hashes(&r->digester, &r->found_hashes));
    return o->begin_file ? o->begin_file(o->user, file, r->file) : LMC_OK;
}

/* For a file with blocks that were not decoded: sets its CRC and fingerprints in the built index to
 * those in `entries`, or to zero if entries is NULL. */
static void lmc__set_facts(lmc__restorer *r, lmc__listed_file *f, const uint8_t *entries)
{
    uint8_t *const facts = r->index.entries.data + f->unread_at;
    const size_t size = 4 + LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(&f->file);
    if (entries) memcpy(facts, entries + f->unread_at, size);
    else memset(facts, 0, size);
    f->file.crc = lmc__load32(facts);
    lmc__keep_fingerprints(&f->file, facts + 4);
}

/* Ends the file, all of which was decoded. Writes all parts before it calls end_file. */
static enum lmc_status lmc__end_restored(lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    lmc__listed_file *const f = lmc__restored_file(r);
    LMC__TRY(lmc__drain(&r->coder));
    lmc__index_file_end(&r->index, &r->digester, &f->file);
    if (f->is_unread) {
        f->unread_at = (size_t)(r->digester.fingerprints - r->index.entries.data) - 4;
        lmc__set_facts(r, f, NULL);
    }
    return o->end_file ? o->end_file(o->user, &f->file, r->file) : LMC_OK;
}

static enum lmc_status lmc__next_restored(lmc__restorer *r)
{
    LMC__TRY(lmc__end_restored(r));
    r->file++;
    return lmc__begin_restored(r);
}

/* Takes the decoded bytes of a wave, at data. They are written with the next wave; but if files end
 * in this wave, the bytes up to the last such end are written now. */
static enum lmc_status lmc__deliver_wave(lmc__restorer *r, const uint8_t *data)
{
    const lmc__piece *piece = (const lmc__piece *)(const void *)r->coder.pieces.data;
    const lmc__piece *const end = piece + r->coder.pieces.size / sizeof *piece;
    for (;;) {
        const uint64_t file_size = lmc__restored_file(r)->file.size;
        size_t size = 0; /* of the pieces of this file */
        lmc__index_fingerprints(&r->index, &r->digester);
        for (; piece < end && r->digester.absorbed < file_size; size += piece++->size)
            lmc__absorb_piece(&r->digester, piece, data + size);
        if (!r->coder.is_written && !r->coder.write_at)
            LMC__TRY(lmc__add_part(&r->coder, data, size));
        if (piece == end) break;
        data += size;
        LMC__TRY(lmc__next_restored(r));
    }
    r->coder.pieces.size = 0;
    return LMC_OK;
}

/* Decodes the planned wave, which may be empty. At the same time it writes the bytes of the
 * previous wave, and reads on if the other buffer is free. Without threads, decoded bytes are
 * written at once. */
static enum lmc_status lmc__decode_wave(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const int is_reading = !r->is_next_read && !r->is_other_used && !c->ended;
    lmc__buffer *out = &c->out[c->out_number], *next = &c->in[r->in_number ^ 1];
    const size_t size_of_wave = c->n_jobs ? out->size : 0;
    lmc__want(c, NULL, 0);
    if (is_reading) {
        uint64_t size;
        if (r->next_room < lmc_block_bound(r->largest)) r->next_room = lmc_block_bound(r->largest);
        size =
            lmc__min64(r->read_limit,
                       lmc__count_workers(c->parallel) *
                           (uint64_t)(r->largest > LMC__READ_SIZE ? r->next_room : LMC__READ_SIZE));
        r->read_limit = 4 * size;
        if (r->next_room + size > next->cap) lmc__free_buffer(next); /* it has nothing to keep */
        next->size = 0;
        LMC__TRY(lmc__reserve(next, r->next_room + size)); /* then size fits into a size_t */
        lmc__want(c, next->data + r->next_room, (size_t)size);
    }
    LMC__TRY(lmc__run_step(c));
    if (is_reading) next->size = r->next_room + c->read_got;
    r->is_next_read = r->is_next_read || is_reading;
    r->is_other_used = 0;
    if (c->pieces.size) LMC__TRY(lmc__deliver_wave(r, out->data));
    if (c->parallel && !c->write_at) c->out_number ^= 1;
    else LMC__TRY(lmc__drain(c)); /* while the bytes are in the caches */
    c->out[c->out_number].size = 0;
    return lmc__report_progress(c, size_of_wave);
}

/* Continues with the other buffer. The rest of this buffer is copied in front of the data there. At
 * the end of the stream nothing changes. */
static enum lmc_status lmc__turn_buffer(lmc__restorer *r)
{
    lmc__coder *c = &r->coder;
    const size_t left = (size_t)(r->end - r->at);
    lmc__buffer *next = &c->in[r->in_number ^ 1];
    /* lmc__decode_wave also reads, unless the other buffer has blocks of the wave. Then a second,
     * empty wave reads. */
    if (!r->is_next_read) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read && !c->ended) LMC__TRY(lmc__decode_wave(r));
    if (!r->is_next_read) return LMC_OK;
    if (left > r->next_room) { /* the room was made for smaller blocks */
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

/* Makes sure that size bytes are at r->at; fewer only at the end of the stream. It may decode a
 * wave, so pointers into `out`, and out_number, may change. */
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

/* Takes the next size bytes, which must be there. They stay until the next fetch. */
static const uint8_t *lmc__consume(lmc__restorer *r, size_t size)
{
    r->at += size;
    r->offset += size;
    return r->at - size;
}

/* Reads the section's body to a buffer, in the parts that arrive, and checks its CRC. body NULL: it
 * is not kept, and may have any size. */
LMC__COLD static enum lmc_status lmc__read_body(lmc__restorer *r, const lmc__section *section,
                                                lmc__buffer *body)
{
    uint64_t left = section->size;
    uint32_t crc = 0;
    size_t n;
    if (body && left > r->index.limit) return LMC_ERR_LIMIT;
    if (body) body->size = 0;
    for (; left != 0; left -= n) {
        LMC__TRY(lmc__fetch_all(r, 1));
        n = (size_t)lmc__min64(left, (uint64_t)(r->end - r->at));
        crc = r->coder.wave.k->crc32c(crc, r->at, n);
        if (body) LMC__TRY(lmc__append(body, r->at, n));
        (void)lmc__consume(r, n);
    }
    LMC__CHECK(crc == section->body_crc, LMC_ERR_CHECKSUM);
    return LMC_OK;
}

/* Takes an ancillary section. Keeps only the section of hashes, and only with check_hashes. */
LMC__COLD static enum lmc_status lmc__skip_section(lmc__restorer *r, const lmc__section *section)
{
    int is_kept = 0;
    if (r->options->check_hashes && lmc__is_kind(section, "hash") &&
        section->size >= LMC__HASH_HEAD_SIZE) {
        LMC__TRY(lmc__fetch_all(r, LMC__HASH_HEAD_SIZE));
        is_kept = lmc__is_hash_body(r->at, LMC__HASH_HEAD_SIZE);
    }
    LMC__VALID(!is_kept || r->hashes.size == 0);
    LMC__VALID(r->listing.n_streams && !r->has_rows);
    r->n_ancillary++;
    LMC__TRY(lmc__index_section(&r->index, section->kind, NULL, section->size));
    return lmc__read_body(r, section, is_kept ? &r->hashes : NULL);
}

/* Takes a FILE section. Everything is checked before begin_file is called. The built index has room
 * for facts that are not known yet. In place, each stream must be one file: a block of two files
 * could not be written. */
static enum lmc_status lmc__restore_files(lmc__restorer *r, const lmc__section *section)
{
    const lmc_restore_options *o = r->options;
    lmc__listing *const l = &r->listing;
    uint64_t total = r->total;
    const lmc__stream *stream;
    size_t i;
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__TRY(lmc__list_files(l, r->body.data, r->body.size));
    stream = lmc__stream_at(l, l->n_streams - 1);
    if (o->in_place && stream->n_files > 1) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__index_section(&r->index, section->kind, r->body.data, r->body.size));
    LMC__TRY(lmc__index_files(&r->index, l, stream));
    for (i = stream->first_file; i < l->n_files && !stream->is_unknown; i++)
        if (!lmc__add_total(&total, lmc__listed_at(l, i)->file.size, o->max_total_size))
            return LMC_ERR_LIMIT; /* before the caller allocates */
    r->coder.write_at = stream->n_files == 1 ? o->write_at : NULL;
    r->coder.file_number = stream->first_file;
    r->position = 0;
    r->file = r->planned_file = stream->first_file;
    lmc__begin_digester(&r->planner, &lmc__restored_file(r)->file);
    return lmc__begin_restored(r);
}

/* Ends the stream: it has no more runs. Its last files may be empty. */
static enum lmc_status lmc__restore_stream_end(lmc__restorer *r)
{
    lmc__listing *const l = &r->listing;
    lmc__stream *stream;
    if (l->n_streams == 0) return LMC_OK;
    stream = lmc__stream_at(l, l->n_streams - 1);
    if (stream->is_unknown) stream->size = r->position;
    LMC__VALID(r->position == stream->size);
    LMC__TRY(lmc__decode_wave(r));
    while (r->file + 1 < l->n_files) LMC__TRY(lmc__next_restored(r));
    return lmc__end_restored(r);
}

static enum lmc_status lmc__plan_stream(lmc__restorer *r, lmc__snapshot_job *job, size_t size)
{
    while (size != 0) {
        lmc__listed_file *const f = lmc__listed_at(&r->listing, r->planned_file);
        const size_t n = (size_t)lmc__min64(size, f->file.size - r->planner.planned);
        LMC__TRY(lmc__plan_pieces(&r->coder, &r->planner, job, n));
        if (n && job->is_unread) f->is_unread = 1;
        size -= n;
        if (size != 0) /* a run ends within its stream, so there is another file */
            lmc__begin_digester(&r->planner, &lmc__listed_at(&r->listing, ++r->planned_file)->file);
    }
    return LMC_OK;
}

/* Makes a job of the wave from the next block. Reads its prediction first, to the place where the
 * block will be decoded. unread: LMC_OK, or why there is no prediction.
 *
 * In place, done_size says which blocks were written already; no block may be half written. Blocks
 * that were written are read back and checked, and write() does not get them again. */
static enum lmc_status lmc__restore_block(lmc__restorer *r, const lmc__run *run, uint64_t block,
                                          enum lmc_status unread)
{
    const size_t size = lmc__block_size_at(run, block);
    const uint64_t offset = block * run->block_size,
                   n_before =
                       r->total - run->size + offset; /* bytes of the snapshot before this block */
    const int is_done = n_before < r->options->done_size;
    lmc__coder *c = &r->coder;
    lmc__buffer *out;
    lmc_block_info info;
    lmc__snapshot_job *block_job;
    lmc__job *job;
    LMC__TRY(lmc__fetch_all(r, LMC_BLOCK_HEADER_SIZE));
    LMC__TRY(lmc__read_block_info(c->wave.k, r->at, LMC_BLOCK_HEADER_SIZE, (uint32_t)block, &info));
    LMC__VALID(info.size == size); /* R5-5 */
    LMC__TRY(lmc__check_block_features(r->at, lmc__load32(r->header + LMC__FEATURES_AT)));
    if (is_done && size > r->options->done_size - n_before) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__fetch_all(r, info.encoded_size));
    out = &c->out[c->out_number];
    if (c->n_jobs && (size > out->cap - out->size || c->is_written != is_done))
        LMC__TRY(lmc__decode_wave(r));
    c->is_written = is_done;
    out = &c->out[c->out_number]; /* may be the other buffer now */
    if (c->n_jobs == 0) LMC__TRY(lmc__reserve(out, lmc__get_wave_size(c, r->largest)));
    LMC__TRY(lmc__add_job(c, &block_job));
    job = &block_job->job; /* all zero */
    job->number = (uint32_t)block;
    job->info = info;
    job->src = lmc__consume(r, info.encoded_size);
    LMC__PREFETCH(r->at); /* the header of the next block */
    job->dst = out->data + out->size;
    job->keep = size;
    job->streaming = lmc__no_streaming;
    job->is_own = lmc__is_own_prediction(run);
    block_job->file_offset = run->start + offset; /* used if the stream is one file */
    if (info.has_prediction) LMC__VALID(run->prediction != LMC__PREDICT_ZERO);
    if (is_done) {
        LMC__TRY(r->origin.read_back(r->origin.user, r->file, run->start + offset, job->dst, size));
    } else if (info.has_prediction && unread != LMC_OK) {
        r->unread = unread;
        block_job->is_unread = 1;
    } else if (info.has_prediction) {
        LMC__TRY(lmc__read_prediction(&r->origin, run, offset, job->dst, size));
        job->base = job->dst;
    }
    out->size += size;
    LMC__TRY(lmc__index_block(&r->index, info.encoded_size, job->src));
    return lmc__plan_stream(r, block_job, size);
}

/* LMC_OK, or why the predictions of a run cannot be read, which is allowed if nothing is written.
 * Without its base a delta cannot read back its own bytes either. */
static enum lmc_status lmc__why_unread(const lmc__restorer *r, const lmc__run *run)
{
    if (!r->is_check || run->prediction == LMC__PREDICT_ZERO ||
        run->prediction == LMC__PREDICT_TEXT)
        return LMC_OK;
    if (!r->origin.base && lmc__has_base(r->header)) return LMC_ERR_BASE_MISSING;
    return run->prediction == LMC__PREDICT_OWN && !r->origin.read_back ? LMC_ERR_READ_BACK : LMC_OK;
}

/* Takes a RUN section and its blocks. A run that refers to its own snapshot reads back bytes that
 * write() got. So all earlier blocks are decoded and written first. */
static enum lmc_status lmc__restore_run(lmc__restorer *r, const lmc__section *section)
{
    enum lmc_status unread;
    uint64_t block;
    lmc__run run;
    LMC__VALID(r->listing.n_streams && r->n_runs < UINT32_MAX);
    LMC__TRY(lmc__read_body(r, section, &r->body));
    r->segments.size = 0;
    LMC__TRY(lmc__parse_run(&run, &r->segments, r->body.data, r->body.size, &r->listing,
                            r->listing.n_streams - 1, &r->position));
    LMC__TRY(lmc__check_run_features(&run, lmc__load32(r->header + LMC__FEATURES_AT)));
    if (!lmc__add_total(&r->total, run.size, r->options->max_total_size)) return LMC_ERR_LIMIT;
    unread = lmc__why_unread(r, &run);
    LMC__TRY(lmc__check_predictions(&r->origin, &run, LMC_ERR_CORRUPT));
    LMC__TRY(lmc__add_run(&r->origin, &run));
    LMC__TRY(lmc__index_section(&r->index, section->kind, r->body.data, r->body.size));
    if (run.prediction == LMC__PREDICT_OWN && unread == LMC_OK) {
        LMC__TRY(lmc__decode_wave(r));
        LMC__TRY(lmc__drain(&r->coder));
    }
    r->n_runs++;
    r->largest = lmc__block_size_at(&run, 0);
    LMC__TRY(lmc__set_coder(&r->coder, r->largest, 1, 0));
    for (block = 0; block < run.n_blocks; block++)
        LMC__TRY(lmc__restore_block(r, &run, block, unread));
    return LMC_OK;
}

static enum lmc_status lmc__restore_rows(lmc__restorer *r, const lmc__section *section)
{
    const lmc__buffer *const rows = &r->index.rows;
    LMC__VALID(r->listing.n_streams);
    LMC__TRY(lmc__index_run_end(&r->index));
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__VALID(
        r->body.size == rows->size &&
        (rows->size == 0 || memcmp(r->body.data, rows->data, rows->size) == 0)); /* R8-1, R8-2 */
    r->has_rows = 1;
    return LMC_OK;
}

/* Takes the INDX section. Its entries must equal the built entries, byte for byte. Counts,
 * metadata, the snapshot's fingerprint and hashes are checked, too. CRCs and fingerprints of files
 * that could not be decoded are taken from it. */
static enum lmc_status lmc__restore_index(lmc__restorer *r, const lmc__section *section,
                                          lmc_snapshot_info *info)
{
    const uint64_t n_sections = (uint64_t)r->listing.n_streams + r->n_runs + r->n_ancillary;
    const lmc__buffer *const entries = &r->index.entries, *const found = &r->found_hashes;
    const uint8_t *head, *metadata;
    uint32_t n_metadata;
    lmc__cursor c;
    size_t i;
    LMC__TRY(lmc__read_body(r, section, &r->body));
    LMC__VALID(r->body.size >= entries->size);
    head = r->body.data;
    LMC__VALID(memcmp(head, r->header, LMC__HEADER_SIZE) == 0);           /* R8-3 */
    LMC__VALID(lmc__load32(head + LMC__INDEX_SECTIONS_AT) == n_sections); /* R8-5 */
    for (i = 0; i < r->listing.n_files; i++)
        if (lmc__listed_at(&r->listing, i)->is_unread)
            lmc__set_facts(r, lmc__listed_at(&r->listing, i), head);
    LMC__VALID(memcmp(head + LMC__INDEX_BODY_SIZE, entries->data + LMC__INDEX_BODY_SIZE,
                      entries->size - LMC__INDEX_BODY_SIZE) == 0);
    metadata = c.p = head + entries->size;
    c.end = head + r->body.size;
    n_metadata = lmc__load32(head + LMC__INDEX_METADATA_AT);
    LMC__TRY(
        lmc__parse_metadata(&c, n_metadata, r->options->metadata ? &r->keys : NULL, &r->metadata));
    LMC__TRY(lmc__skip_records(&c, &r->listing.n_records));
    LMC__TRY(lmc__identify_listing(&r->items, &r->listing, info->fingerprint));
    LMC__VALID(memcmp(head + LMC__INDEX_FINGERPRINT_AT, info->fingerprint, LMC_FINGERPRINT_SIZE) ==
               0); /* R8-4 */
    info->n_files = r->listing.n_files;
    info->n_metadata = n_metadata;
    info->n_sections = r->n_ancillary;
    info->n_records = r->listing.n_records;
    info->hashes_checked = r->hashes.size != 0;
    if (r->hashes.size == 0) return LMC_OK;
    LMC__TRY(lmc__check_snapshot_hash(&r->hashes, &r->listing, metadata, n_metadata, &r->items));
    LMC__VALID(memcmp(r->hashes.data + LMC__HASH_BODY_SIZE, found->data, found->size) == 0);
    return LMC_OK;
}

static enum lmc_status lmc__restore_metadata(const lmc__restorer *r)
{
    const lmc_restore_options *const o = r->options;
    const lmc__metadata_entry *const entries =
        (const lmc__metadata_entry *)(const void *)r->metadata.data;
    size_t i;
    for (i = 0; o->metadata && i < r->metadata.size / sizeof *entries; i++)
        LMC__TRY(o->metadata(o->user, (const char *)r->keys.data + entries[i].key_at,
                             entries[i].value, entries[i].size));
    return LMC_OK;
}

/* Restores the whole stream. No byte may follow the trailer. */
static enum lmc_status lmc__restore(lmc__restorer *r, lmc_snapshot_info *info)
{
    const lmc__kernels *k = r->coder.wave.k;
    lmc__section section;
    uint64_t index_at;
    LMC__TRY(lmc__fetch(r, LMC__HEADER_SIZE));
    LMC__TRY(lmc_header_parse(r->at, (size_t)(r->end - r->at), info));
    if (r->origin.base || !r->is_check) LMC__TRY(lmc__check_base(&r->origin, r->at));
    else if (lmc__has_base(r->at)) r->unread = LMC_ERR_BASE_MISSING;
    memcpy(r->header, lmc__consume(r, LMC__HEADER_SIZE), LMC__HEADER_SIZE);
    for (;;) {
        index_at = r->offset;
        LMC__TRY(lmc__fetch_all(r, LMC__SECTION_HEADER_SIZE));
        LMC__TRY(lmc__get_section(&section, lmc__consume(r, LMC__SECTION_HEADER_SIZE), k));
        LMC__VALID(r->has_rows == lmc__is_kind(&section, "INDX")); /* R4-9 */
        if (r->has_rows) break;
        if (lmc__is_ancillary(&section)) {
            LMC__TRY(lmc__skip_section(r, &section));
        } else if (lmc__is_kind(&section, "RUN ")) {
            LMC__TRY(lmc__restore_run(r, &section));
        } else {
            LMC__TRY(lmc__restore_stream_end(r));
            LMC__TRY(lmc__is_kind(&section, "BLKS") ? lmc__restore_rows(r, &section)
                                                    : lmc__restore_files(r, &section));
        }
    }
    if (r->options->done_size > r->total) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__restore_index(r, &section, info));
    LMC__TRY(lmc__fetch_all(r, LMC__TRAILER_SIZE));
    LMC__TRY(lmc__check_trailer(info, r->at, r->offset + LMC__TRAILER_SIZE, k));
    LMC__VALID(info->index_offset == index_at); /* R3-20 */
    (void)lmc__consume(r, LMC__TRAILER_SIZE);
    LMC__TRY(lmc__fetch(r, 1));
    LMC__VALID(r->at == r->end); /* R3-22: nothing follows the trailer */
    return lmc__restore_metadata(r);
}

LMC__COLD LMC_API enum lmc_status lmc_snapshot_restore(const lmc_stream *stream,
                                                       lmc_snapshot_info *info,
                                                       const lmc_restore_options *options)
{
    lmc_restore_options o;
    lmc_snapshot_info found;
    enum lmc_status status;
    lmc__restorer *r; /* 2 KiB, which would be too much for the stack */
    if (info) memset(info, 0, sizeof *info);
    LMC__TRY(LMC__TAKE_OPTIONS(&o, allocator, options));
    if ((o.in_place ? !o.read_back : o.done_size != 0) || (o.write_at && (o.in_place || !o.write)))
        return LMC_ERR_ARGUMENT;
    LMC__CHECK_CALLBACKS(stream, read);
    LMC__TRY(lmc__check_parallel(o.parallel));
    LMC__TRY(lmc__check_allocator(o.allocator));
    r = (lmc__restorer *)lmc__realloc(o.allocator, NULL, 0, sizeof *r);
    if (!r) return LMC_ERR_MEMORY;
    memset(r, 0, sizeof *r);
    r->options = &o;
    r->is_check = !o.write && !o.in_place && !o.check_hashes;
    r->read_limit = LMC__FIRST_READ_SIZE;
    lmc__open_coder(&r->coder, o.parallel, o.allocator);
    r->coder.stream = *stream;
    r->coder.sink.write = o.write;
    r->coder.sink.user = o.user;
    r->coder.task = lmc__decode_snapshot_task;
    r->coder.progress = o.progress;
    r->coder.progress_user = o.user;
    lmc__init_listing(&r->listing, o.allocator);
    lmc__init_buffers(r, LMC__RESTORER_BUFFERS, o.allocator);
    status = lmc__open_origin(&r->origin, &r->listing, o.in_place ? NULL : o.base, o.allocator);
    r->origin.in_place = o.in_place;
    r->origin.read_back = o.read_back;
    r->origin.user = o.user;
    if (status == LMC_OK) status = lmc__open_index(&r->index, o.max_index_size, o.allocator);
    if (status == LMC_OK) status = lmc__restore(r, &found);
    if (status == LMC_OK && info) *info = found;
    if (status == LMC_OK) status = r->unread; /* all that can be checked is right */
    lmc__free_coder(&r->coder);
    lmc__free_buffers(r, LMC__RESTORER_BUFFERS);
    lmc__free_buffers(&r->index, LMC__INDEX_BUFFERS);
    lmc__free_listing(&r->listing);
    lmc__free_origin(&r->origin);
    (void)lmc__realloc(o.allocator, r, sizeof *r, 0);
    return status;
}
