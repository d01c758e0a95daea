#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "tensor/wave.h"
#include "tensor/tensor.h"
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
#include "snapshot/index.h"
#include "snapshot/work.h"

/* Random access by the index: reads any bytes of any file, and decodes only their blocks.
 *
 *     bytes of a file -> of its stream -> runs that hold them -> blocks of each -> waves -> dst
 *
 * If a whole block is needed, it is decoded to its place in dst. Its prediction is read to the same
 * place first. If the deltas of a chain have blocks of the same sizes, every reader does this. Else
 * a reader is asked for one part of a block after another. So it decodes the block to a *window*,
 * from which it answers the next requests. Work is bounded (work.h). Readers of a chain may share
 * one coder, so its buffers must not be in use while a prediction is read.
 *
 * Salvage uses this reader, too, with gaps in the tables and its own read_run. */
struct lmc_reader {
    /* bytes of the source from held_at on, or none. While the reader is opened: the end of the
     * source; later: the encoded bytes of several runs */
    lmc__buffer held;
    /* of the file or tensor that is being read whole; the section of hashes, after its first use */
    lmc__buffer fingerprints, hashes;
    /* lmc__item of all tensors; of all files; made by the first search (find.h) */
    lmc__buffer names, paths;
    /* predictions of blocks that are read in part: [0] from the base, [1] from this snapshot */
    lmc__buffer base[2];
    /* lmc__block_place, of runs whose rows were read; lmc__first_block of each run */
    lmc__buffer blocks, first_blocks;
    uint64_t held_at;
    lmc_source source;
    lmc_reader_options options;
    /* coder: the lender's, or own_coder */
    lmc__coder own_coder, *coder;
    lmc__tables tables;
    lmc_snapshot_info info; /* from the header; if that is lost, all features are allowed */
    int is_salvage;         /* it belongs to an lmc_salvage: the tables may have gaps */
    lmc__origin origin;
    lmc__windows as_base, back;   /* for readers whose base is this reader; for its own runs */
    lmc__meter own_meter, *meter; /* own_meter, or that of the reader below */
    lmc_reader *below;            /* the base, if that is a reader, or the lender; or NULL */
    uint64_t account;             /* the last one of the meter that has met this reader; 0: none */
    /* checks the fingerprints of the file or tensor that is being read whole; or NULL */
    lmc__digester *digester;
    /* set by open.h: reads bytes [offset, offset + size) of a run to dst */
    enum lmc_status (*read_run)(lmc_reader *reader, size_t number, uint64_t offset, uint8_t *dst,
                                size_t size);
    void (*free_extra)(lmc_reader *reader); /* frees what a larger struct adds; or NULL */
    size_t struct_size;                     /* of the struct that begins with this reader */
};
#define LMC__READER_BUFFERS LMC__ROW(lmc_reader, held, held_at)

static lmc__listed_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return lmc__listed_at(&r->tables.listing, i);
}
static const lmc__stream *lmc__stream_of(const lmc_reader *r, const lmc__listed_file *f)
{
    return lmc__stream_at(&r->tables.listing, f->stream);
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return lmc__table_run(&r->tables, i);
}

/* 1 + the number of the run's first block in r->blocks; 0: its rows were not read yet. */
static size_t lmc__first_block(const lmc_reader *r, size_t number)
{
    return r->first_blocks.size ? ((size_t *)(void *)r->first_blocks.data)[number] : 0;
}

/* Block i of a run whose rows were read. Valid until the rows of another run are read. */
static const lmc__block_place *lmc__block_at(const lmc_reader *r, size_t number, uint64_t i)
{
    return (const lmc__block_place *)(const void *)r->blocks.data +
           (lmc__first_block(r, number) - 1 + (size_t)i);
}

/* The first request reads this many bytes at the end of the file, because each request to a remote
 * source is slow. The index of about a thousand tensors fits into this size. */
#define LMC__TAIL_SIZE ((size_t)64 << 10)

/* Reads size bytes of the source. If the last of them are in r->held, these are copied from there.
 * If nothing is left to read, the callback is not called. */
static enum lmc_status lmc__read_at(lmc_reader *r, uint64_t offset, void *dst, size_t size)
{
    const uint64_t held_end = r->held_at + r->held.size;
    if (offset <= held_end && size <= held_end - offset && offset + size > r->held_at) {
        const size_t n = (size_t)lmc__min64(size, offset + size - r->held_at);
        memcpy((uint8_t *)dst + size - n, r->held.data + (size_t)(offset + size - n - r->held_at),
               n);
        size -= n;
    }
    return size == 0 ? LMC_OK : r->source.read_at(r->source.user, offset, dst, size);
}

/* Fills a buffer with these bytes of the source, and nothing else. */
static enum lmc_status lmc__read_to(lmc_reader *r, lmc__buffer *buffer, uint64_t offset,
                                    uint64_t size)
{
    buffer->size = 0;
    LMC__TRY(lmc__reserve(buffer, size));
    LMC__TRY(lmc__read_at(r, offset, buffer->data, (size_t)size));
    buffer->size = (size_t)size;
    return LMC_OK;
}

/* Fills r->held in the same way. After an error r->held is empty. */
static enum lmc_status lmc__hold(lmc_reader *r, uint64_t offset, uint64_t size)
{
    LMC__TRY(lmc__read_to(r, &r->held, offset, size));
    r->held_at = offset;
    return LMC_OK;
}

static uint64_t lmc__index_limit(const lmc_reader *r)
{
    return r->options.max_index_size ? r->options.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
}

/* Reads the INDX section, which must be within the file, to empty tables. If the section begins
 * before the held tail, bytes before the section are read, too, as many as the tail has. They are
 * held instead of the tail: in most files, they are the rows of BLKS. */
LMC__COLD static enum lmc_status lmc__read_index(lmc_reader *r, lmc__tables *t, uint64_t at,
                                                 uint64_t size)
{
    const size_t before = at < r->held_at ? (size_t)lmc__min64(r->held.size, at) : 0;
    LMC__VALID(size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE);
    if (size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__read_to(r, &t->index, at - before, before + size));
    t->index.size = (size_t)size;
    if (before == 0) return LMC_OK;
    memcpy(r->held.data, t->index.data, before);
    r->held.size = before;
    r->held_at = at - before;
    memmove(t->index.data, t->index.data + before, (size_t)size);
    return LMC_OK;
}

static enum lmc_status lmc__take_header(lmc_reader *r, const uint8_t *header)
{
    lmc__get_header_info(&r->info, header);
    return r->origin.base ? lmc__check_base(&r->origin, header) : LMC_OK;
}

LMC__COLD static enum lmc_status lmc__open_header(lmc_reader *r, uint8_t *header)
{
    const size_t size = (size_t)lmc__min64(r->source.size, LMC__HEADER_SIZE);
    LMC__TRY(lmc__read_at(r, 0, header, size));
    LMC__TRY(lmc_header_parse(header, size, &r->info));
    return lmc__take_header(r, header);
}

/* Finds the places of all blocks of a run, unless they are known. code: all encoded bytes of the
 * run, in which the headers of blocks tell the places. NULL: the rows of BLKS are read. The new
 * room in r->blocks has the places in its first half, the rows in its second. */
static enum lmc_status lmc__load_rows(lmc_reader *r, size_t number, const uint8_t *code)
{
    const lmc__tables *const t = &r->tables;
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const uint64_t n = run->run.n_blocks, size = LMC__BLOCK_ENTRY_SIZE * n,
                   rows_at = t->rows_offset + LMC__SECTION_HEADER_SIZE;
    uint64_t at = run->at;
    lmc__block_place *place;
    uint8_t *row;
    size_t i;
    if (lmc__first_block(r, number)) return LMC_OK;
    if (r->blocks.size / 2 + size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    if (r->first_blocks.size == 0)
        LMC__TRY(lmc__append(&r->first_blocks, NULL, lmc__count_runs(t) * sizeof i));
    LMC__TRY(lmc__reserve(&r->blocks, 2 * size));
    row = r->blocks.data + r->blocks.size + (size_t)size;
    if (!code)
        LMC__TRY(
            lmc__read_at(r, rows_at + LMC__BLOCK_ENTRY_SIZE * run->first_row, row, (size_t)size));
    place = (lmc__block_place *)(void *)(r->blocks.data + r->blocks.size);
    for (i = 0; i < n; i++, place++, row += LMC__BLOCK_ENTRY_SIZE) {
        uint32_t encoded, header_crc;
        if (code) {
            const size_t left = (size_t)(run->end - at);
            lmc_block_info info;
            LMC__TRY(lmc__read_block_info(r->coder->wave.k, code, left, (uint32_t)i, &info));
            LMC__VALID(info.encoded_size <= left);
            encoded = (uint32_t)info.encoded_size;
            header_crc = lmc__load32(code + LMC__BLOCK_CRC_AT);
            code += encoded;
        } else {
            encoded = lmc__load32(row);
            header_crc = lmc__load32(row + 4);
        }
        LMC__VALID(encoded > LMC_BLOCK_HEADER_SIZE &&
                   encoded <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&run->run, i));
        place->at = at;
        place->size = encoded;
        place->header_crc = header_crc;
        at += encoded;
    }
    LMC__VALID(at == run->end); /* R8-8 */
    ((size_t *)(void *)r->first_blocks.data)[number] = 1 + r->blocks.size / sizeof *place;
    r->blocks.size += 2 * (size_t)size;
    return LMC_OK;
}

/* Checks all runs in order: the size of the snapshot is within the caller's limit, and the bytes
 * that predict the runs exist. Rows in the held bytes are used at once. If they are wrong, the file
 * can still be opened; reading such a run returns the error. */
static enum lmc_status lmc__check_runs(lmc_reader *r)
{
    const uint64_t rows_at = r->tables.rows_offset + LMC__SECTION_HEADER_SIZE;
    uint64_t total = 0;
    size_t i;
    for (i = 0; i < lmc__count_runs(&r->tables); i++) {
        const lmc__reader_run *const run = lmc__run_at(r, i);
        enum lmc_status status = LMC_OK;
        if (!lmc__add_total(&total, run->run.size, r->options.max_total_size)) return LMC_ERR_LIMIT;
        LMC__TRY(lmc__check_predictions(&r->origin, &run->run, LMC_ERR_CORRUPT));
        LMC__TRY(lmc__add_run(&r->origin, &run->run));
        if (rows_at + LMC__BLOCK_ENTRY_SIZE * run->first_row >= r->held_at)
            status = lmc__load_rows(r, i, NULL);
        if (status != LMC_ERR_CORRUPT) LMC__TRY(status);
    }
    return LMC_OK;
}

/* Opens an intact file. The first read takes the tail: the trailer and, in most files, the rows and
 * the index, with a copy of the header. If the index is larger, a second read takes the rest. The
 * header itself is read only if it is in the tail, or if the end is not that of an LMC file, to
 * tell what the file is. Header, sections, index and trailer must cover the file without gaps. */
LMC__COLD static enum lmc_status lmc__open_intact(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const size_t tail_size = (size_t)lmc__min64(total, LMC__TAIL_SIZE);
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE];
    const uint8_t *trailer;
    uint64_t offset = 0;
    lmc__section section;
    int has_header;
    LMC__TRY(lmc__hold(r, total - tail_size, tail_size));
    has_header = tail_size == total || memcmp(r->held.data + tail_size - 8, LMC__END_MAGIC, 8) != 0;
    if (has_header) LMC__TRY(lmc__open_header(r, header));
    LMC__CHECK(total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE, LMC_ERR_TRUNCATED);
    trailer = r->held.data + tail_size - LMC__TRAILER_SIZE;
    LMC__CHECK(memcmp(trailer + 32, LMC__END_MAGIC, 8) == 0, LMC_ERR_TRUNCATED);
    LMC__TRY(lmc__check_trailer(&r->info, trailer, total, k));
    LMC__TRY(lmc__read_index(r, &r->tables, r->info.index_offset, r->info.index_size));
    LMC__TRY(lmc__get_section(&section, r->tables.index.data, k));
    LMC__VALID(lmc__is_kind(&section, "INDX") &&
               section.size == r->info.index_size - LMC__SECTION_HEADER_SIZE);
    LMC__TRY(lmc__parse_index(&r->tables, k, has_header ? header : NULL, total, &r->coder->in[0],
                              &offset));
    LMC__VALID(offset == r->info.index_offset);
    if (!has_header) LMC__TRY(lmc__take_header(r, r->tables.index.data + LMC__SECTION_HEADER_SIZE));
    LMC__TRY(lmc__check_runs(r));
    lmc__free_buffer(&r->held);
    return LMC_OK;
}

/* Returns the stream of a file. *offset becomes the place in the stream. NULL: there is no such
 * file, or it lacks bytes [*offset, *offset + size). */
static const lmc__stream *lmc__stream_range(const lmc_reader *r, size_t file_number,
                                            uint64_t *offset, uint64_t size)
{
    const lmc__listed_file *f;
    if (!r || file_number >= r->tables.listing.n_files) return NULL;
    f = lmc__file_at(r, file_number);
    if (*offset > f->file.size || size > f->file.size - *offset) return NULL;
    *offset += f->start;
    return lmc__stream_of(r, f);
}

/* The run that has byte `position` of the stream (below its size): the last run that begins there
 * or before. In salvage, with gaps, that run may end before position. For a stream without runs:
 * first_run. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__stream *stream, uint64_t position)
{
    size_t i;
    if (stream->n_runs == 0) return stream->first_run;
    LMC__FIND_FIRST(i, stream->first_run + 1, stream->first_run + stream->n_runs,
                    lmc__run_at(r, i)->run.start <= position);
    return i - 1;
}

/* The maximum of encoded bytes in one request. With parallel_reads a request is one block. */
#define LMC__FETCH_SIZE ((uint64_t)16 << 20)

/* Finds the block of the run that has byte `position` of the stream. *found: where in the file it
 * begins or, with is_end, ends. Both ends of the run are known without the rows. */
static enum lmc_status lmc__locate_block(lmc_reader *r, size_t number, uint64_t position,
                                         int is_end, uint64_t *found)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const uint64_t block = (position - run->run.start) / run->run.block_size;
    const lmc__block_place *place;
    *found = is_end ? run->end : run->at;
    if (block == (is_end ? run->run.n_blocks - 1 : 0)) return LMC_OK;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    place = lmc__block_at(r, number, block);
    *found = place->at + (is_end ? place->size : 0);
    return LMC_OK;
}

/* Prepares for reading bytes [offset, offset + size) of a stream. If they are in several runs, one
 * request reads the encoded bytes of the first runs, up to LMC__FETCH_SIZE. */
static enum lmc_status lmc__hold_runs(lmc_reader *r, const lmc__stream *stream, uint64_t offset,
                                      uint64_t size)
{
    const uint64_t end = offset + size;
    const lmc__reader_run *first, *run;
    uint64_t from, to;
    size_t number;
    if (r->options.parallel_reads || r->is_salvage) return LMC_OK;
    number = lmc__find_run(r, stream, offset);
    first = run = lmc__run_at(r, number);
    if (end <= first->run.start + first->run.size) return LMC_OK;
    LMC__TRY(lmc__locate_block(r, number, offset, 0, &from));
    to = first->end;
    if (from >= r->held_at && to <= r->held_at + r->held.size) return LMC_OK;
    while (run->run.start + run->run.size < end) {
        uint64_t next;
        run++;
        LMC__TRY(lmc__locate_block(r, ++number, lmc__min64(run->run.start + run->run.size, end) - 1,
                                   1, &next));
        if (next - from > LMC__FETCH_SIZE) break;
        to = next;
    }
    return to == first->end ? LMC_OK : lmc__hold(r, from, to - from); /* one run: not held */
}

/* Bytes [offset, end) of run `number` are wanted at dst. n blocks, from number `first` on, are read
 * at once. head: size of block `first` if only a part of it is wanted; else 0. */
typedef struct lmc__wanted {
    size_t number;
    uint64_t offset, end;
    uint8_t *dst;
    uint64_t first;
    size_t n, head;
} lmc__wanted;

static lmc__buffer *lmc__part_base(lmc_reader *r, const lmc__run *run)
{
    return &r->base[run->prediction == LMC__PREDICT_OWN];
}

/* Reads the predictions of the n blocks:
 *     run     |     first     |       ...       |      last     |
 *     wanted           |---------- dst ---------------|
 *     reads   |--buffer------|---- to dst -----|--buffer-------|
 *
 * The prediction of a whole block is read to its place in dst, where the block is then decoded. The
 * prediction of the first or last block is read to a buffer if only a part of the block is wanted.
 * So the predictions of all whole blocks are read in one request. */
static enum lmc_status lmc__read_predictions(lmc_reader *r, lmc__wanted *x)
{
    const lmc__run *const run = &lmc__run_at(r, x->number)->run;
    lmc__buffer *const buffer = lmc__part_base(r, run);
    const uint64_t start = x->first * run->block_size,
                   stop = lmc__min64(start + x->n * (uint64_t)run->block_size, run->size);
    const size_t head = start < x->offset ? lmc__block_size_at(run, x->first) : 0,
                 tail = stop > x->end && !(head && x->n == 1)
                            ? lmc__block_size_at(run, x->first + x->n - 1)
                            : 0;
    x->head = head;
    LMC__TRY(lmc__reserve(buffer, (uint64_t)head + tail));
    if (head) LMC__TRY(lmc__read_prediction(&r->origin, run, start, buffer->data, head));
    if (stop - start > head + (uint64_t)tail)
        LMC__TRY(lmc__read_prediction(&r->origin, run, start + head,
                                      x->dst + (size_t)(start + head - x->offset),
                                      (size_t)(stop - start - head - tail)));
    return tail ? lmc__read_prediction(&r->origin, run, stop - tail, buffer->data + head, tail)
                : LMC_OK;
}

/* Reads the header of a block. Its CRC must equal that in BLKS, because a block of another file may
 * have the same number and size. */
static enum lmc_status lmc__read_known_block(const lmc_reader *r, size_t number, uint64_t block,
                                             const uint8_t *src, lmc_block_info *info)
{
    const lmc__block_place *const place = lmc__block_at(r, number, block);
    LMC__TRY(lmc__read_block_info(r->coder->wave.k, src, place->size, (uint32_t)block, info));
    LMC__VALID(info->encoded_size == place->size &&
               lmc__load32(src + LMC__BLOCK_CRC_AT) == place->header_crc);
    LMC__VALID(info->size == lmc__block_size_at(&lmc__run_at(r, number)->run, block));
    return lmc__check_block_features(src, r->info.features);
}

/* A task; arg is the reader. With parallel_reads each task reads its own block. */
static void lmc__read_block_task(void *arg, size_t index, unsigned worker)
{
    lmc_reader *const r = (lmc_reader *)arg;
    lmc__snapshot_job *const block_job = lmc__job_at(r->coder, index);
    lmc__job *const job = &block_job->job;
    const lmc__block_place *const place = lmc__block_at(r, block_job->run, job->number);
    job->status = LMC_OK;
    if (r->options.parallel_reads) /* src points into the coder's buffer */
        job->status = lmc__read_at(r, place->at, (uint8_t *)(uintptr_t)job->src, place->size);
    if (job->status == LMC_OK)
        job->status = lmc__read_known_block(r, block_job->run, job->number, job->src, &job->info);
    if (job->status == LMC_OK && job->info.has_prediction && !job->base)
        job->status = LMC_ERR_CORRUPT;
    if (job->status != LMC_OK) return;
    if (!job->info.has_prediction) job->base = NULL;
    job->streaming.sum = lmc__whole_sum(r->coder, block_job);
    lmc__decode_snapshot_task(r->coder, index, worker);
}

/* Decodes n blocks, from number `first` on. Their predictions were read. Their encoded bytes are in
 * c->in[0], or, with parallel_reads, the tasks read them into it. */
static enum lmc_status lmc__read_wave(lmc_reader *r, const lmc__wanted *x, uint64_t first, size_t n)
{
    const lmc__run *const run = &lmc__run_at(r, x->number)->run;
    const lmc__block_place *const place = lmc__block_at(r, x->number, 0);
    const uint8_t *const base = lmc__part_base(r, run)->data;
    lmc__coder *const c = r->coder;
    uint64_t wanted = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        lmc__snapshot_job *const block_job = lmc__job_at(c, i);
        lmc__job *const job = &block_job->job;
        const uint64_t block = first + i, at = block * run->block_size;
        const size_t size = lmc__block_size_at(run, block);
        memset(block_job, 0, sizeof *block_job);
        block_job->run = x->number;
        job->number = (uint32_t)block;
        job->src = c->in[0].data + (size_t)(place[block].at - place[x->first].at);
        job->skip = at < x->offset ? (size_t)(x->offset - at) : 0;
        job->keep = (size_t)lmc__min64(size - job->skip, x->end - (at + job->skip));
        job->dst = x->dst + (size_t)(at + job->skip - x->offset);
        if (run->prediction != LMC__PREDICT_ZERO)
            job->base = job->keep == size ? job->dst : base + (at < x->offset ? 0 : x->head);
        job->is_own = lmc__is_own_prediction(run);
        LMC__TRY(lmc__spend(r->meter, (uint64_t)size + place[block].size));
        wanted += job->keep;
        if (r->digester) LMC__TRY(lmc__plan_pieces(c, r->digester, block_job, job->keep));
        /* a block of several pieces is read again, for their sums */
        job->streaming = lmc__no_streaming;
        job->streaming.is_on =
            x->end - x->offset >= LMC__STREAM_FROM && job->keep == size && block_job->n_pieces <= 1;
    }
    lmc__run_tasks(c->parallel, lmc__read_block_task, r, n);
    LMC__TRY(lmc__jobs_status(c, n));
    if (r->digester) lmc__absorb_pieces(c, r->digester);
    return lmc__report_progress(c, wanted);
}

/* Reads bytes [offset, offset + size) of a run, at least a wave of blocks at once. Predictions are
 * read first, since they may need the coder's buffers; then the encoded bytes, which are decoded
 * wave by wave. has_code: the encoded bytes are in c->in[0] already. */
static enum lmc_status lmc__read_blocks(lmc_reader *r, size_t number, uint64_t offset, uint8_t *dst,
                                        size_t size, int has_code)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const size_t largest = (size_t)lmc__min64(run->block_size, run->size),
                 wave = lmc__count_jobs(r->coder->parallel, largest);
    lmc__wanted x = {number, offset, offset + size, dst, offset / run->block_size, 0, 0};
    const uint64_t last = (x.end - 1) / run->block_size;
    for (; x.first <= last; x.first += x.n) {
        const lmc__block_place *place = lmc__block_at(r, number, x.first);
        const uint64_t left = last - x.first + 1, from = place->at;
        uint64_t code_size;
        size_t done, n;
        x.n = (size_t)lmc__min64(wave, left);
        while (!r->options.parallel_reads && x.n < left &&
               place[x.n].at + place[x.n].size - from <= LMC__FETCH_SIZE)
            x.n++;
        code_size = place[x.n - 1].at + place[x.n - 1].size - from;
        if (run->prediction != LMC__PREDICT_ZERO) {
            lmc__digester *const digester = r->digester;
            enum lmc_status status;
            r->digester = NULL; /* predictions are not the wanted bytes */
            status = lmc__read_predictions(r, &x);
            r->digester = digester;
            LMC__TRY(status);
        }
        LMC__TRY(lmc__set_coder(r->coder, largest, 1, 1));
        if (r->options.parallel_reads) {
            r->coder->in[0].size = 0;
            LMC__TRY(lmc__reserve(&r->coder->in[0], code_size));
        } else if (!has_code) LMC__TRY(lmc__read_to(r, &r->coder->in[0], from, code_size));
        for (done = 0; done < x.n; done += n) {
            n = lmc__min(wave, x.n - done);
            LMC__TRY(lmc__read_wave(r, &x, x.first + done, n));
        }
    }
    return LMC_OK;
}

/* The read_run for intact files. If the whole run is wanted, and is not too large, one request
 * reads its encoded bytes. The headers in them tell where its blocks are. */
static enum lmc_status lmc__read_indexed_run(lmc_reader *r, size_t number, uint64_t offset,
                                             uint8_t *dst, size_t size)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const size_t blocks_size = r->blocks.size;
    enum lmc_status status;
    if (lmc__first_block(r, number) || size != run->run.size || r->options.parallel_reads ||
        run->run.prediction != LMC__PREDICT_ZERO || run->end - run->at > LMC__FETCH_SIZE) {
        LMC__TRY(lmc__load_rows(r, number, NULL));
        return lmc__read_blocks(r, number, offset, dst, size, 0);
    }
    LMC__TRY(lmc__read_to(r, &r->coder->in[0], run->at, run->end - run->at));
    LMC__TRY(lmc__load_rows(r, number, r->coder->in[0].data));
    status = lmc__read_blocks(r, number, offset, dst, size, 1);
    if (status != LMC_OK) { /* the places from these bytes may be wrong */
        r->blocks.size = blocks_size;
        ((size_t *)(void *)r->first_blocks.data)[number] = 0;
    }
    return status;
}

/* Fills a window, beginning with the block that has byte `at` of the run. If requests go from front
 * to back, each window is twice as large as the window before, up to LMC__WINDOW_SIZE. So such
 * requests decode each block once, and a single request costs only one block. If a neighbour is
 * damaged, the block is read alone. */
static enum lmc_status lmc__fill_window(lmc_reader *r, lmc__windows *windows, size_t number,
                                        uint64_t at)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t start = at - at % run->block_size;
    size_t follows, span = run->block_size, n; /* powers of two */
    enum lmc_status status;
    lmc__buffer *const bytes =
        lmc__choose_window(windows, run->stream, run->start + start, &follows);
    while (!r->is_salvage && span < 2 * (uint64_t)follows && span < LMC__WINDOW_SIZE) span *= 2;
    n = (size_t)lmc__min64(span - start % span, run->size - start);
    LMC__TRY(lmc__reserve(bytes, n));
    status = r->read_run(r, number, start, bytes->data, n);
    if (status != LMC_OK && n > run->block_size) {
        n = run->block_size;
        status = r->read_run(r, number, start, bytes->data, n);
    }
    if (status == LMC_OK) bytes->size = n;
    return status;
}

/* Reads bytes of a file, run by run. windows: NULL unless the bytes are a prediction: then bytes in
 * a window are copied; whole blocks, of which the run's last may be shorter, are decoded directly
 * to out; else a window is filled. A byte that no run has is lost (salvage). */
static enum lmc_status lmc__read_stream(lmc_reader *r, lmc__windows *windows, size_t file_number,
                                        uint64_t offset, uint8_t *out, size_t size)
{
    const lmc__stream *const stream = lmc__stream_range(r, file_number, &offset, size);
    size_t part;
    if (!stream) return LMC_ERR_ARGUMENT;
    for (; size != 0; out += part, offset += part, size -= part) {
        const size_t number = lmc__find_run(r, stream, offset);
        const lmc__run *run;
        const uint8_t *found;
        uint64_t at;
        LMC__CHECK(number < stream->first_run + stream->n_runs, LMC_ERR_LOST);
        run = &lmc__run_at(r, number)->run;
        LMC__CHECK(run->start <= offset && offset - run->start < run->size, LMC_ERR_LOST);
        LMC__CHECK(windows != &r->back || run->prediction != LMC__PREDICT_OWN, LMC_ERR_LOST);
        at = offset - run->start;
        part = (size_t)lmc__min64(size, run->size - at);
        found = windows ? lmc__find_window(windows, run->stream, offset, &part) : NULL;
        if (found) {
            memcpy(out, found, part);
            continue;
        }
        LMC__TRY(lmc__hold_runs(r, stream, offset, size));
        if (windows &&
            (at % run->block_size || (part < run->block_size && part < run->size - at))) {
            LMC__TRY(lmc__fill_window(r, windows, number, at));
            part = 0; /* the next turn finds the bytes in the window */
            continue;
        }
        if (windows && part < run->size - at) part -= part % run->block_size;
        LMC__TRY(r->read_run(r, number, at, out, part));
    }
    return LMC_OK;
}

/* Begins a request (work.h). Returns 1 if it is the outermost: the caller then ends it with
 * lmc__end_work. A snapshot without runs, which may only lend to other readers, does not count. */
static int lmc__begin_request(lmc_reader *r, uint64_t size, int is_alone)
{
    lmc__meter *const m = r->meter;
    const int is_outermost = lmc__begin_work(m, size, is_alone, !r->account);
    for (; r && r->account != m->account; r = r->below) {
        r->account = m->account;
        if (r->tables.runs.size || r->is_salvage) lmc__add_link(m);
    }
    return is_outermost;
}

/* A request of the user if windows is NULL; else of a reader whose base is this reader. */
static enum lmc_status lmc__read_range(lmc_reader *r, lmc__windows *windows, size_t file_number,
                                       uint64_t offset, void *dst, size_t size)
{
    const int is_outermost = lmc__begin_request(r, size, !windows);
    const enum lmc_status status =
        lmc__read_stream(r, windows, file_number, offset, (uint8_t *)dst, size);
    lmc__free_buffer(&r->held);
    lmc__end_work(r->meter, is_outermost);
    return status;
}

static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    return lmc__read_range(r, &r->as_base, file_number, offset, dst, size);
}

/* Reads bytes that predict other bytes of the same snapshot. This needs its own windows, because
 * as_base may be in use. The bytes are not predicted from this snapshot themselves (lmc__add_run);
 * lmc__read_stream checks this again for damaged files. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    return lmc__read_stream(r, &r->back, file_number, offset, (uint8_t *)dst, size);
}

static const lmc_file *lmc__get_reader_file(void *user, size_t file_number)
{
    return lmc_reader_get_file((const lmc_reader *)user, file_number);
}

LMC_API lmc_base lmc_reader_base(lmc_reader *reader)
{
    const lmc_base base = {reader ? reader->tables.listing.n_files : 0,
                           lmc__get_reader_file,
                           lmc__read_as_base,
                           reader,
                           {0, 0}};
    return base;
}

/* Reads bytes of a file, and checks that the fingerprints of `whole` are those of the index: of
 * some of the file's tensors in order, all of whose bytes are read, or of the file. *crc: the CRC
 * of all bytes. */
LMC__COLD static enum lmc_status lmc__read_checked(lmc_reader *r, size_t file_number,
                                                   const lmc_file *whole, uint64_t offset,
                                                   void *dst, size_t size, uint32_t *crc)
{
    const size_t n = lmc__count_fingerprints(whole);
    lmc__digester digester;
    enum lmc_status status;
    size_t i;
    LMC__TRY(lmc__reserve(&r->fingerprints, (uint64_t)LMC_FINGERPRINT_SIZE * n));
    lmc__begin_digester(&digester, whole);
    digester.planned = offset;
    digester.fingerprints = r->fingerprints.data;
    r->digester = &digester;
    status = lmc__read_range(r, NULL, file_number, offset, dst, size);
    r->digester = NULL;
    r->coder->pieces.size = 0; /* after an error, some may be left */
    if (status != LMC_OK) return status;
    lmc__finish_digester(&digester);
    *crc = digester.file_crc;
    for (i = 0; i < n; i++) {
        const uint8_t *const fingerprint =
            whole->n_tensors ? whole->tensors[i].fingerprint : whole->fingerprint;
        LMC__VALID(memcmp(digester.fingerprints + LMC_FINGERPRINT_SIZE * i, fingerprint,
                          LMC_FINGERPRINT_SIZE) == 0); /* R8-11 */
    }
    return LMC_OK;
}

static int lmc__checks_fingerprints(const lmc_reader *r)
{
    return !r->options.skip_fingerprints && !r->is_salvage;
}

/* Checks what is read whole: the file, or else all tensors in the range. */
LMC__COLD LMC_API enum lmc_status lmc_reader_read_file(lmc_reader *r, size_t file_number,
                                                       uint64_t offset, void *dst, size_t size)
{
    uint64_t position = offset;
    size_t first, end;
    lmc_file whole;
    uint32_t crc;
    if ((!dst && size) || !lmc__stream_range(r, file_number, &position, size))
        return LMC_ERR_ARGUMENT;
    whole = lmc__file_at(r, file_number)->file;
    if (size == whole.size && lmc__checks_fingerprints(r)) {
        LMC__TRY(lmc__read_checked(r, file_number, &whole, 0, dst, size, &crc));
        return crc == whole.crc ? LMC_OK : LMC_ERR_CORRUPT;
    }
    LMC__FIND_FIRST(first, 0, whole.n_tensors, whole.tensors[first].offset < offset);
    LMC__FIND_FIRST(end, first, whole.n_tensors,
                    whole.tensors[end].offset + whole.tensors[end].size <= offset + size);
    if (size == 0 || first == end || !lmc__checks_fingerprints(r))
        return lmc__read_range(r, NULL, file_number, offset, dst, size);
    whole.tensors += first;
    whole.n_tensors = end - first;
    return lmc__read_checked(r, file_number, &whole, offset, dst, size, &crc);
}

LMC__COLD LMC_API enum lmc_status lmc_reader_read_tensor(lmc_reader *r, size_t file_number,
                                                         const lmc_tensor *tensor, uint64_t offset,
                                                         void *dst, size_t size)
{
    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;
    return lmc_reader_read_file(r, file_number, tensor->offset + offset, dst, size);
}
