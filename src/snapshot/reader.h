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

/* Reading by the index: any bytes of any file, without what lies between.
 *
 *     bytes of a file -> of its stream -> runs that hold them -> blocks of each -> waves -> dst
 *
 * A block that is wanted whole is decoded where it belongs in dst, also over its own prediction,
 * which is read to that place; only the first and the last of a range may be wanted in part, and
 * take a buffer.
 *
 * Chains. A delta's predictions are read from its base, which may be a reader itself, and so on
 * down to a full snapshot. Links are mostly cut alike: then a block goes through all of them at one
 * place, from the full snapshot up, and each link's decoder turns what is there into its own.
 *
 *     dst  <- link 3: decode over <- link 2: decode over <- link 1: decode
 *
 * Where they are not cut alike, a link is asked for less than a block, again and again for
 * neighbours. It then decodes to a *window*, from which the next questions are answered: what is
 * asked for from front to back is decoded once (lmc__read_by_windows). What all of that may cost is
 * bounded, whatever a file refers to (work.h).
 *
 * Links that are used one at a time share the buffers of a lender (options.lender): so nothing of
 * the coder may be in use while a prediction is read, which may need it.
 *
 * Two kinds of snapshots are read by this: intact ones, and what salvage found of damaged ones. The
 * latter bring tables with gaps, and a way to read a run of their own (read_run). */
struct lmc_reader {
    lmc_source source;
    lmc_reader_options options;
    /* the lender's, or the own one */
    lmc__coder own_coder, *coder;
    lmc__tables tables;
    /* bytes of all runs */
    uint64_t total;
    uint8_t base_fingerprint[LMC_FINGERPRINT_SIZE];
    int has_base;
    unsigned format_minor;
    /* what the file may use; all, if its header is lost */
    unsigned features;
    /* the tables have no gaps: every byte of a file is in a run, every block's place is known */
    int is_complete;
    /* it is that of a lmc_salvage */
    int is_salvage;
    lmc__origin origin;
    /* bytes of the source that are at hand, from held_at on: its end, while it is opened; later the
     * code of several runs that are read together; else none */
    lmc__buffer held;
    uint64_t held_at;
    /* for those who read this as a base; for its own runs, as predictions of others of its runs */
    lmc__windows as_base, back;
    /* the chain's: own_meter, or that of the base or lender */
    lmc__meter own_meter, *meter;
    /* snapshots of the chain that are known to be read by this meter, this one included */
    uint64_t n_links;
    /* the file or the tensor that is being read whole, to know its fingerprint; or NULL */
    lmc__digester *digester;
    lmc__buffer fingerprints; /* where that goes */
    /* the body of the section of hashes, once they were asked for */
    lmc__buffer hashes;
    /* lmc__named: of all tensors, of all files; once one was searched (find.h) */
    lmc__buffer names, paths;
    /* predictions of blocks that are not wanted whole: by another snapshot; by this one, for which
     * the first may be needed */
    lmc__buffer base[2];
    /* What open.h sets. Bytes [offset, offset + size) of a run, to dst: */
    enum lmc_status (*read_run)(lmc_reader *reader, size_t number, uint64_t offset, uint8_t *dst,
                                size_t size);
    /* what a larger struct has beside; or NULL */
    void (*free_extra)(lmc_reader *reader);
    /* of that, which begins with this one */
    size_t struct_size;
};

static lmc__listed_file *lmc__file_at(const lmc_reader *r, size_t i)
{
    return lmc__table_file(&r->tables, i);
}
/* The stream of a file. */
static const lmc__stream *lmc__stream_of(const lmc_reader *r, const lmc__listed_file *f)
{
    return lmc__stream_at(&r->tables.listing, f->stream);
}
static lmc__reader_run *lmc__run_at(const lmc_reader *r, size_t i)
{
    return lmc__table_run(&r->tables, i);
}
static uint64_t *lmc__block_at(const lmc_reader *r) { return lmc__table_blocks(&r->tables); }

/* Of its own; coder, tables and origin have theirs. */
static void lmc__visit_reader(lmc_reader *r, lmc__visit_buffer visit, void *alloc_user)
{
    lmc__visit_windows(&r->as_base, visit, alloc_user);
    lmc__visit_windows(&r->back, visit, alloc_user);
    visit(&r->held, alloc_user);
    visit(&r->hashes, alloc_user);
    visit(&r->fingerprints, alloc_user);
    visit(&r->names, alloc_user);
    visit(&r->paths, alloc_user);
    visit(&r->base[0], alloc_user);
    visit(&r->base[1], alloc_user);
}

/* Bytes of the file's end that are read at first: in one request, for a source that is far away.
 * They hold the index of about a thousand tensors. */
#define LMC__TAIL_SIZE ((size_t)64 << 10)

/* All of it. What ends in bytes that are held comes from there, as far as they have it. The
 * callback is not called for no bytes. */
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

/* No bytes are held any more. */
static void lmc__let_go(lmc_reader *r)
{
    lmc__free_buffer(&r->held);
    r->held_at = 0;
}

/* The most bytes of index that the caller wants in memory. */
static uint64_t lmc__index_limit(const lmc_reader *r)
{
    return r->options.max_index_size ? r->options.max_index_size : LMC__DEFAULT_INDEX_LIMIT;
}

/* The INDX section, which is at that place and within the file, to empty tables. If it begins
 * before what is held, the tail, it is read with as many bytes before it: these are held then, and
 * have the rows of most files. */
LMC__COLD static enum lmc_status lmc__read_index(lmc_reader *r, lmc__tables *t, uint64_t at,
                                                 uint64_t size)
{
    const size_t before = at < r->held_at ? (size_t)lmc__min64(r->held.size, at) : 0;
    LMC__CHECK(size >= LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE, LMC_ERR_CORRUPT);
    if (size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__reserve(&t->index, before + size));
    LMC__TRY(lmc__read_at(r, at - before, t->index.data, before + (size_t)size));
    t->index.size = (size_t)size;
    if (before == 0) return LMC_OK;
    memcpy(r->held.data, t->index.data, before);
    r->held.size = before;
    r->held_at = at - before;
    memmove(t->index.data, t->index.data + before, (size_t)size);
    return LMC_OK;
}

/* What the reader keeps of an intact header. */
static void lmc__keep_header(lmc_reader *r, const uint8_t *header)
{
    memcpy(r->base_fingerprint, header + LMC__BASE_FINGERPRINT_AT, LMC_FINGERPRINT_SIZE);
    r->has_base = lmc__has_base(header);
    r->format_minor = header[9];
    r->features = lmc__get_features(header);
}

/* Of runs in their order: the snapshot's size is within the caller's limit, and the bytes that
 * predict them are there. Those of a base are looked for only if that is at hand: a delta may be
 * listed without. */
static enum lmc_status lmc__check_runs(lmc_reader *r)
{
    const size_t n_runs = lmc__count_runs(&r->tables);
    size_t i;
    for (i = 0; i < n_runs; i++) {
        const lmc__run *const run = &lmc__run_at(r, i)->run;
        if (!lmc__add_total(&r->total, run->size, r->options.max_total_size)) return LMC_ERR_LIMIT;
        if (run->prediction != LMC__PREDICT_BASE || r->origin.base)
            LMC__TRY(lmc__check_predictions(&r->origin, run, LMC_ERR_CORRUPT));
        LMC__TRY(lmc__add_run(&r->origin, run));
    }
    return LMC_OK;
}

/* Reads header and checks it, and that the base is the one that it names. */
LMC__COLD static enum lmc_status lmc__open_header(lmc_reader *r, uint8_t *header)
{
    const size_t size = (size_t)lmc__min64(r->source.size, LMC__HEADER_SIZE);
    LMC__TRY(lmc__read_at(r, 0, header, size));
    if (size < LMC__HEADER_SIZE) return lmc__short_header(header, size);
    LMC__TRY(lmc__check_header(header, r->coder->wave.k));
    lmc__keep_header(r, header);
    return r->origin.base ? lmc__check_base(&r->origin, header) : LMC_OK;
}

/* The rows of a run: where its blocks are. They follow each other in BLKS. Once they were read,
 * they stay.
 *
 * Who reads all of a run can do without them, if he has its code: each header says where the next
 * block begins. They are made of the headers then, and do not stay if the code was wrong. */
static enum lmc_status lmc__make_rows(const lmc_reader *r, const lmc__reader_run *run,
                                      const uint8_t *code, uint8_t *rows)
{
    size_t left = (size_t)(run->end - run->at), i;
    for (i = 0; i < run->run.n_blocks; i++, rows += LMC__BLOCK_ENTRY_SIZE) {
        lmc_block_info info;
        LMC__TRY(lmc__read_block_info(r->coder->wave.k, code, left, (uint32_t)i, &info));
        LMC__CHECK(info.encoded_size <= left, LMC_ERR_CORRUPT);
        lmc__store32(rows, (uint32_t)info.encoded_size);
        lmc__store32(rows + 4, lmc__load32(code + LMC__BLOCK_CRC_AT));
        code += info.encoded_size;
        left -= info.encoded_size;
    }
    return LMC_OK;
}

/* Loads them. code: all of the run's, or NULL. */
static enum lmc_status lmc__load_rows(lmc_reader *r, size_t number, const uint8_t *code)
{
    lmc__tables *const t = &r->tables;
    lmc__reader_run *const run = lmc__run_at(r, number);
    const size_t rows_at = t->rows.size, first_block = t->block_at.size / 8;
    const uint64_t n = run->run.n_blocks, size = LMC__BLOCK_ENTRY_SIZE * n;
    uint64_t at = run->at, *block_at;
    size_t i;
    if (run->first_block != SIZE_MAX) return LMC_OK;
    if (t->rows.size + size > lmc__index_limit(r)) return LMC_ERR_LIMIT;
    LMC__TRY(lmc__reserve(&t->rows, size));
    LMC__TRY(lmc__reserve(&t->block_at, 8 * (n + 1)));
    if (code) LMC__TRY(lmc__make_rows(r, run, code, t->rows.data + rows_at));
    else
        LMC__TRY(lmc__read_at(
            r, t->rows_offset + LMC__SECTION_HEADER_SIZE + LMC__BLOCK_ENTRY_SIZE * run->first_row,
            t->rows.data + rows_at, (size_t)size));
    block_at = lmc__table_blocks(t) + first_block;
    for (i = 0; i < n; i++) {
        const uint32_t encoded = lmc__load32(t->rows.data + rows_at + LMC__BLOCK_ENTRY_SIZE * i);
        LMC__CHECK(encoded > LMC_BLOCK_HEADER_SIZE &&
                       encoded <= LMC_BLOCK_HEADER_SIZE + lmc__block_size_at(&run->run, i),
                   LMC_ERR_CORRUPT);
        block_at[i] = at;
        at += encoded;
    }
    LMC__CHECK(at == run->end, LMC_ERR_CORRUPT); /* R8-8 */
    block_at[i] = at;
    t->rows.size += (size_t)size;
    t->block_at.size += 8 * ((size_t)n + 1);
    run->rows_at = rows_at;
    run->first_block = first_block;
    return LMC_OK;
}

/* Those of the run that were loaded last. */
static void lmc__forget_rows(lmc_reader *r, size_t number)
{
    lmc__reader_run *const run = lmc__run_at(r, number);
    r->tables.rows.size = run->rows_at;
    r->tables.block_at.size = 8 * run->first_block;
    run->first_block = run->rows_at = SIZE_MAX;
}

/* Those that came with the index: to fetch them again would be a request for nothing. Those that
 * are wrong are no reason not to open the file: whoever wants them will be told. */
static enum lmc_status lmc__keep_rows(lmc_reader *r)
{
    const uint64_t from = r->tables.rows_offset + LMC__SECTION_HEADER_SIZE;
    size_t i;
    for (i = 0; i < lmc__count_runs(&r->tables); i++) {
        enum lmc_status status = LMC_OK;
        if (from + LMC__BLOCK_ENTRY_SIZE * lmc__run_at(r, i)->first_row >= r->held_at)
            status = lmc__load_rows(r, i, NULL);
        if (status != LMC_ERR_CORRUPT) LMC__TRY(status);
    }
    return LMC_OK;
}

/* What the rows say of a block; they were read. */
static const uint8_t *lmc__row_at(const lmc__tables *t, const lmc__reader_run *run, uint64_t block)
{
    return t->rows.data + run->rows_at + LMC__BLOCK_ENTRY_SIZE * (size_t)block;
}

/* One read: the tail, which has the trailer, mostly the index and the rows of blocks, and a copy of
 * the header. A second one for what of a large index lies before it. The header itself is read
 * where it is in the tail, or where the file does not end as LMC files do, so that it tells what
 * else it may be.
 *
 * The trailer's size of the file must be that of the source, and header, index and trailer must
 * leave nothing out: what lies between them the index accounts for. */
LMC__COLD static enum lmc_status lmc__open_intact(lmc_reader *r)
{
    const uint64_t total = r->source.size;
    const size_t tail_size = (size_t)lmc__min64(total, LMC__TAIL_SIZE);
    const lmc__kernels *k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    uint64_t index_at, index_size, offset = 0;
    lmc__section section;
    int has_header;

    LMC__TRY(lmc__reserve(&r->held, tail_size));
    LMC__TRY(lmc__read_at(r, total - tail_size, r->held.data, tail_size));
    r->held.size = tail_size;
    r->held_at = total - tail_size;
    has_header = tail_size == total || memcmp(r->held.data + tail_size - 8, lmc__end_magic, 8) != 0;
    if (has_header) LMC__TRY(lmc__open_header(r, header));
    LMC__CHECK(total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE, LMC_ERR_TRUNCATED);
    LMC__TRY(lmc__read_at(r, total - LMC__TRAILER_SIZE, trailer, LMC__TRAILER_SIZE));
    LMC__CHECK(memcmp(trailer + 32, lmc__end_magic, 8) == 0, LMC_ERR_TRUNCATED);
    index_at = lmc__load64(trailer);
    index_size = lmc__load64(trailer + 8);
    LMC__TRY(lmc__check_trailer(trailer, index_at, index_size, total, k));
    LMC__CHECK(index_at >= LMC__HEADER_SIZE && index_at <= total - LMC__TRAILER_SIZE &&
                   index_size == total - LMC__TRAILER_SIZE - index_at,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__read_index(r, &r->tables, index_at, index_size));
    LMC__TRY(lmc__get_section(&section, r->tables.index.data, k));
    LMC__CHECK(lmc__is_kind(&section, "INDX") &&
                   section.size == index_size - LMC__SECTION_HEADER_SIZE,
               LMC_ERR_CORRUPT);
    LMC__TRY(lmc__parse_index(&r->tables, k, has_header ? header : NULL, total, &r->coder->in[0],
                              &offset));
    LMC__CHECK(offset == index_at, LMC_ERR_CORRUPT);
    if (!has_header) {
        const uint8_t *const copy = r->tables.index.data + LMC__SECTION_HEADER_SIZE;
        lmc__keep_header(r, copy);
        if (r->origin.base) LMC__TRY(lmc__check_base(&r->origin, copy));
    }
    LMC__TRY(lmc__check_runs(r));
    LMC__TRY(lmc__keep_rows(r));
    lmc__let_go(r);
    r->is_complete = 1;
    return LMC_OK;
}

/* In tables with gaps a byte of a stream may be in no run, or in one of which nothing but the
 * number is known. */
static int lmc__is_in_run(const lmc_reader *r, const lmc__stream *stream, size_t number,
                          uint64_t position)
{
    return number < stream->first_run + stream->n_runs &&
           lmc__run_at(r, number)->run.start <= position &&
           position - lmc__run_at(r, number)->run.start < lmc__run_at(r, number)->run.size;
}

typedef struct lmc__run_search {
    const lmc_reader *reader;
    uint64_t position;
} lmc__run_search;

static int lmc__is_run_before(const void *context, size_t i)
{
    const lmc__run_search *const s = (const lmc__run_search *)context;
    return lmc__run_at(s->reader, i)->run.start <= s->position;
}

/* The run of a stream that holds byte `position`, which is below the stream's size: the last that
 * does not begin behind it. Of one without runs (salvage): first_run. */
static size_t lmc__find_run(const lmc_reader *r, const lmc__stream *stream, uint64_t position)
{
    lmc__run_search search;
    if (stream->n_runs == 0) return stream->first_run;
    search.reader = r;
    search.position = position;
    return lmc__find_first(stream->first_run + 1, stream->first_run + stream->n_runs,
                           lmc__is_run_before, &search) -
           1;
}

/* Code that is fetched at once. More would be fewer requests to a source that is far away, and more
 * memory. A source that several workers read at once is near: there each reads a block. */
#define LMC__FETCH_SIZE ((uint64_t)16 << 20)

/* Byte `at` of a run is in the block that begins there; is_end: or, where that ends. Of what stands
 * at an end of the run no rows are wanted. */
static enum lmc_status lmc__locate_block(lmc_reader *r, size_t number, uint64_t at, int is_end,
                                         uint64_t *found)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    const uint64_t block = at / run->run.block_size;
    *found = is_end ? run->end : run->at;
    if (block == (is_end ? run->run.n_blocks - 1 : 0)) return LMC_OK;
    LMC__TRY(lmc__load_rows(r, number, NULL));
    *found = lmc__block_at(r)[lmc__run_at(r, number)->first_block + block + (is_end ? 1 : 0)];
    return LMC_OK;
}

/* Bytes [offset, offset + size) of a stream are wanted. Where they are of several runs, the code of
 * the first ones, as much as is fetched at once, is read in one request, with the sections between
 * them; the others follow when it is their turn. */
static enum lmc_status lmc__hold_runs(lmc_reader *r, const lmc__stream *stream, uint64_t offset,
                                      uint64_t size)
{
    const uint64_t end = offset + size;
    size_t number, first;
    uint64_t from, to;
    if (r->options.parallel_reads || r->is_salvage) return LMC_OK;
    first = number = lmc__find_run(r, stream, offset);
    if (end <= lmc__run_at(r, first)->run.start + lmc__run_at(r, first)->run.size) return LMC_OK;
    LMC__TRY(lmc__locate_block(r, first, offset - lmc__run_at(r, first)->run.start, 0, &from));
    to = lmc__run_at(r, first)->end;
    if (from >= r->held_at && to <= r->held_at + r->held.size) return LMC_OK;
    while (lmc__run_at(r, number)->run.start + lmc__run_at(r, number)->run.size < end) {
        const lmc__run *const next = &lmc__run_at(r, ++number)->run;
        uint64_t next_to;
        LMC__TRY(lmc__locate_block(r, number, lmc__min64(next->size, end - next->start) - 1, 1,
                                   &next_to));
        if (next_to - from > LMC__FETCH_SIZE) break;
        to = next_to;
    }
    if (to == lmc__run_at(r, first)->end) return LMC_OK; /* alone */
    r->held.size = 0;
    LMC__TRY(lmc__reserve(&r->held, to - from));
    LMC__TRY(lmc__read_at(r, from, r->held.data, (size_t)(to - from)));
    r->held.size = (size_t)(to - from);
    r->held_at = from;
    return LMC_OK;
}

/* The predictions of n blocks of a run, from number first on, of which bytes [offset, end) of the
 * run go to dst:
 *
 *     run     |     first     |       ...       |      last     |
 *     wanted           |---------- dst ---------------|
 *     reads   |--buffer------|---- to dst -----|--buffer-------|
 *
 * Of a block that is wanted whole, to its place in dst, where it is decoded then; of the others,
 * the first and the last at most, to buffer, that of the first in *head bytes. So what lies side by
 * side is asked for at once. */
static enum lmc_status lmc__read_predictions(lmc_reader *r, const lmc__run *run, uint64_t first,
                                             size_t n, uint64_t offset, uint64_t end, uint8_t *dst,
                                             lmc__buffer *buffer, size_t *head)
{
    const uint64_t start = first * run->block_size,
                   stop = lmc__min64(start + n * (uint64_t)run->block_size, run->size);
    const int has_head = start<offset, has_tail = stop> end && !(has_head && n == 1);
    const size_t tail = has_tail ? lmc__block_size_at(run, first + n - 1) : 0;
    *head = has_head ? lmc__block_size_at(run, first) : 0;
    LMC__TRY(lmc__reserve(buffer, (uint64_t)*head + tail));
    if (*head) LMC__TRY(lmc__read_prediction(&r->origin, run, start, buffer->data, *head));
    if (stop - start > *head + (uint64_t)tail)
        LMC__TRY(lmc__read_prediction(&r->origin, run, start + *head,
                                      dst + (size_t)(start + *head - offset),
                                      (size_t)(stop - start - *head - tail)));
    return tail ? lmc__read_prediction(&r->origin, run, stop - tail, buffer->data + *head, tail)
                : LMC_OK;
}

/* The header of a block that is in memory as far as the index says: it must be the very one that
 * the index knows. Its own checks do not tell it from a block of another file that has the same
 * number there, and perhaps the same size. */
static enum lmc_status lmc__read_known_block(const lmc_reader *r, size_t number, uint64_t block,
                                             const uint8_t *src, lmc_block_info *info)
{
    const lmc__reader_run *run = lmc__run_at(r, number);
    const uint8_t *entry = lmc__row_at(&r->tables, run, block);
    LMC__TRY(
        lmc__read_block_info(r->coder->wave.k, src, lmc__load32(entry), (uint32_t)block, info));
    LMC__CHECK(info->encoded_size == lmc__load32(entry) &&
                   lmc__load32(src + LMC__BLOCK_CRC_AT) == lmc__load32(entry + 4),
               LMC_ERR_CORRUPT);
    LMC__CHECK(info->size == lmc__block_size_at(&run->run, block), LMC_ERR_CORRUPT);
    return lmc__check_block_features(src, r->features);
}

/* Bytes of the run, as a job of the wave: block number job->number, of which [offset, end)
 * is wanted, at dst. Its code will be at src. */
static void lmc__plan_wanted(lmc__job *job, const lmc__run *run, uint64_t offset, uint64_t end,
                             const uint8_t *src, uint8_t *dst)
{
    const uint64_t at = job->number * (uint64_t)run->block_size;
    const size_t size = lmc__block_size_at(run, job->number);
    job->src = src;
    job->skip = at < offset ? (size_t)(offset - at) : 0;
    job->keep = (size_t)lmc__min64(size - job->skip, end - (at + job->skip));
    job->dst = dst + (size_t)(at + job->skip - offset);
    job->streaming = lmc__no_streaming;
    job->streaming.is_on = end - offset >= LMC__STREAM_FROM && job->keep == size;
}

/* A task: arg is the reader. A block that is not the one that the index knows is refused before it
 * is decoded. If the source can be read by several at once, each reads what it decodes. */
static void lmc__read_block_task(void *arg, size_t index, unsigned worker)
{
    lmc_reader *const r = (lmc_reader *)arg;
    lmc__snapshot_job *const block_job = lmc__job_at(r->coder, index);
    lmc__job *const job = &block_job->job;
    const uint64_t block = lmc__run_at(r, block_job->run)->first_block + job->number;
    job->status = LMC_OK;
    if (r->options.parallel_reads)
        job->status = lmc__read_at(r, lmc__block_at(r)[block],
                                   r->coder->in[0].data + (job->src - r->coder->in[0].data),
                                   (size_t)(lmc__block_at(r)[block + 1] - lmc__block_at(r)[block]));
    if (job->status == LMC_OK)
        job->status = lmc__read_known_block(r, block_job->run, job->number, job->src, &job->info);
    if (job->status == LMC_OK && job->info.has_prediction && !job->base)
        job->status = LMC_ERR_CORRUPT;
    if (job->status != LMC_OK) return;
    if (!job->info.has_prediction) job->base = NULL;
    lmc__decode_snapshot_task(r->coder, index, worker);
}

/* Blocks of a run that were fetched: their predictions are read, and their code is, or will be, in
 * c->in[0]. head: bytes of the prediction of the first one, if that is not wanted whole. */
typedef struct lmc__fetched {
    uint64_t first;
    size_t n, head;
} lmc__fetched;

/* Decodes n of these blocks, from number first on. */
static enum lmc_status lmc__read_wave(lmc_reader *r, size_t number, const lmc__fetched *fetched,
                                      uint64_t first, size_t n, uint64_t offset, uint64_t end,
                                      uint8_t *dst)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t *const all_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block,
                          *const block_at = all_at + first, code_at = all_at[fetched->first];
    const lmc__buffer *const base = &r->base[run->prediction == LMC__PREDICT_OWN];
    lmc__coder *const c = r->coder;
    uint64_t wanted = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        lmc__snapshot_job *const block_job = lmc__job_at(c, i);
        lmc__job *const job = &block_job->job;
        const size_t size = lmc__block_size_at(run, first + i);
        memset(block_job, 0, sizeof *block_job);
        block_job->run = number;
        job->number = (uint32_t)(first + i);
        lmc__plan_wanted(job, run, offset, end, c->in[0].data + (size_t)(block_at[i] - code_at),
                         dst);
        LMC__TRY(lmc__spend(r->meter, (uint64_t)size + (block_at[i + 1] - block_at[i])));
        wanted += job->keep;
        job->base = run->prediction == LMC__PREDICT_ZERO     ? NULL
                    : job->keep == size                      ? job->dst
                    : (first + i) * run->block_size < offset ? base->data
                                                             : base->data + fetched->head;
        block_job->job.is_own = lmc__is_own_prediction(run);
        block_job->is_identified = r->digester != NULL;
        if (r->digester) LMC__TRY(lmc__plan_pieces(c, r->digester, block_job, job->keep));
        /* of several pieces each is read again */
        if (block_job->n_pieces > 1) job->streaming.is_on = 0;
    }
    lmc__run_tasks(c->parallel, lmc__read_block_task, r, n);
    LMC__TRY(lmc__jobs_status(c, n));
    if (r->digester) lmc__absorb_pieces(c, r->digester);
    return lmc__report_progress(c, wanted);
}

/* How many blocks of a run, from number first on, are fetched at once: a wave at least. */
static size_t lmc__count_fetched(const lmc_reader *r, size_t number, uint64_t first,
                                 uint64_t blocks_end, size_t wave)
{
    const uint64_t *const block_at = lmc__block_at(r) + lmc__run_at(r, number)->first_block;
    uint64_t n = lmc__min64(wave, blocks_end - first);
    if (r->options.parallel_reads) return (size_t)n;
    while (first + n < blocks_end && block_at[first + n + 1] - block_at[first] <= LMC__FETCH_SIZE)
        n++;
    return (size_t)n;
}

/* All of a run's code, which is not too much, in one request, and its rows by it: they need not be
 * read. */
static enum lmc_status lmc__fetch_whole_run(lmc_reader *r, size_t number)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    lmc__buffer *const in = &r->coder->in[0];
    const size_t size = (size_t)(run->end - run->at);
    in->size = 0;
    LMC__TRY(lmc__reserve(in, size));
    LMC__TRY(lmc__read_at(r, run->at, in->data, size));
    return lmc__load_rows(r, number, in->data);
}

/* Bytes [offset, offset + size) of run number `number`, within the run: as many blocks at a time as
 * are fetched at once, whose code lies side by side.
 *
 * First predictions, which may need the coder's buffers, as this reader or one that shares them
 * reads them; from then on the code, and wave by wave. */
static enum lmc_status lmc__read_blocks(lmc_reader *r, size_t number, uint64_t offset, uint8_t *dst,
                                        size_t size, int has_code)
{
    const lmc__run *run = &lmc__run_at(r, number)->run;
    const uint64_t end = offset + size, blocks_end = (end + run->block_size - 1) / run->block_size;
    const size_t largest = (size_t)lmc__min64(run->block_size, run->size),
                 wave = lmc__count_jobs(r->coder->parallel, largest);
    lmc__coder *const c = r->coder;
    lmc__fetched fetched;
    fetched.head = 0;
    for (fetched.first = offset / run->block_size; fetched.first < blocks_end;
         fetched.first += fetched.n) {
        size_t done, n;
        fetched.n = lmc__count_fetched(r, number, fetched.first, blocks_end, wave);
        /* by this reader, perhaps, or one that shares the coder: before that is in use */
        if (run->prediction != LMC__PREDICT_ZERO) {
            lmc__digester *const digester = r->digester;
            enum lmc_status status;
            r->digester = NULL; /* other bytes than those that are wanted */
            status =
                lmc__read_predictions(r, run, fetched.first, fetched.n, offset, end, dst,
                                      &r->base[run->prediction == LMC__PREDICT_OWN], &fetched.head);
            r->digester = digester;
            LMC__TRY(status);
        }
        LMC__TRY(lmc__set_coder(c, largest, 1, 1));
        if (!has_code) {
            const uint64_t *const block_at =
                lmc__block_at(r) + lmc__run_at(r, number)->first_block + fetched.first;
            const size_t in_size = (size_t)(block_at[fetched.n] - block_at[0]);
            c->in[0].size = 0;
            LMC__TRY(lmc__reserve(&c->in[0], in_size));
            if (!r->options.parallel_reads)
                LMC__TRY(lmc__read_at(r, block_at[0], c->in[0].data, in_size));
        }
        for (done = 0; done < fetched.n; done += n) {
            n = lmc__min(wave, fetched.n - done);
            LMC__TRY(
                lmc__read_wave(r, number, &fetched, fetched.first + done, n, offset, end, dst));
        }
    }
    return LMC_OK;
}

static enum lmc_status lmc__read_indexed_run(lmc_reader *r, size_t number, uint64_t offset,
                                             uint8_t *dst, size_t size)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    enum lmc_status status;
    if (run->first_block != SIZE_MAX || size != run->run.size || r->options.parallel_reads ||
        run->run.prediction != LMC__PREDICT_ZERO || run->end - run->at > LMC__FETCH_SIZE) {
        LMC__TRY(lmc__load_rows(r, number, NULL));
        return lmc__read_blocks(r, number, offset, dst, size, 0);
    }
    LMC__TRY(lmc__fetch_whole_run(r, number));
    status = lmc__read_blocks(r, number, offset, dst, size, 1);
    if (status != LMC_OK) lmc__forget_rows(r, number);
    return status;
}

/* A window from the block on that has byte `at` of the run. Of neighbours that were asked for one
 * after another it takes twice as many bytes as before, up to LMC__WINDOW_SIZE, and ends at a
 * multiple of that: so what is asked for from front to back is decoded once, and so asked for once
 * of the next link; and who asks here and there pays for a block. A neighbour that is lost must not
 * cost this one: then it is read alone, and of damaged files always. */
static enum lmc_status lmc__fill_window(lmc_reader *r, lmc__windows *windows, size_t number,
                                        uint64_t at)
{
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    const uint64_t start = at - at % run->block_size;
    size_t follows, span = run->block_size, n; /* powers of two */
    enum lmc_status status;
    lmc__window *const window =
        lmc__choose_window(windows, run->stream, run->start + start, &follows);
    while (!r->is_salvage && span < 2 * (uint64_t)follows && span < LMC__WINDOW_SIZE) span *= 2;
    n = (size_t)lmc__min64(span - start % span, run->size - start);
    LMC__TRY(lmc__reserve(&window->bytes, n));
    status = r->read_run(r, number, start, window->bytes.data, n);
    if (status != LMC_OK && n > run->block_size) {
        n = run->block_size;
        status = r->read_run(r, number, start, window->bytes.data, n);
    }
    if (status == LMC_OK) window->bytes.size = n;
    return status;
}

/* Bytes of a file for somebody's prediction. Three ways, whichever fits the next bytes:
 *  - they are in a window;
 *  - they begin with a block that is wanted whole, or are the rest of the run from a block on:
 *    straight to dst, as many whole blocks as there are. The links of a chain are mostly cut alike,
 *    and then a block goes through all of them at one place;
 *  - else a window is filled, from the block that they begin in, and asked again. */
static enum lmc_status lmc__read_by_windows(lmc_reader *r, lmc__windows *windows,
                                            size_t file_number, uint64_t offset, void *dst,
                                            size_t size)
{
    const lmc_file *f = lmc_reader_get_file(r, file_number);
    const lmc__stream *stream;
    uint8_t *out = (uint8_t *)dst;
    if (!f || offset > f->size || size > f->size - offset) return LMC_ERR_ARGUMENT;
    stream = lmc__stream_of(r, lmc__file_at(r, file_number));
    offset += lmc__file_at(r, file_number)->start; /* within the stream from now on */
    while (size != 0) {
        const size_t number = lmc__find_run(r, stream, offset);
        const lmc__window *window;
        const lmc__run *run;
        uint64_t at;
        size_t part;
        LMC__CHECK(lmc__is_in_run(r, stream, number, offset), LMC_ERR_LOST);
        run = &lmc__run_at(r, number)->run;
        LMC__CHECK(windows != &r->back || run->prediction != LMC__PREDICT_OWN, LMC_ERR_LOST);
        at = offset - run->start;
        part = (size_t)lmc__min64(size, run->size - at);
        window = lmc__find_window(windows, run->stream, offset);
        if (!window) LMC__TRY(lmc__hold_runs(r, stream, offset, size));
        if (window) {
            part = lmc__min(part, (size_t)(window->start + window->bytes.size - offset));
            memcpy(out, window->bytes.data + (size_t)(offset - window->start), part);
        } else if (at % run->block_size == 0 &&
                   (part >= run->block_size || part == run->size - at)) {
            if (part < run->size - at) part -= part % run->block_size;
            LMC__TRY(r->read_run(r, number, at, out, part));
        } else { /* to be found in it now */
            LMC__TRY(lmc__fill_window(r, windows, number, at));
            continue;
        }
        out += part;
        offset += part;
        size -= part;
    }
    return LMC_OK;
}

/* lmc_base's read. What a decoder asks for on its way through a file shares what it may cost. */
static enum lmc_status lmc__read_as_base(void *user, size_t file_number, uint64_t offset, void *dst,
                                         size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    const int is_outermost = lmc__begin_work(r->meter, size, r->n_links, 0);
    const enum lmc_status status =
        lmc__read_by_windows(r, &r->as_base, file_number, offset, dst, size);
    lmc__let_go(r);
    lmc__end_work(r->meter, is_outermost);
    return status;
}

/* What a reader's origin reads back: its own file, by windows of its own, for in the others might
 * be what is just being read. What it reads refers to nothing of this snapshot (lmc__add_run), so
 * this is one level deep. In damaged files runs may lie one over the other, and then what is found
 * in a place may be another run than the one that was added: that is why it is asked again. */
static enum lmc_status lmc__read_reader_back(void *user, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    lmc_reader *const r = (lmc_reader *)user;
    return lmc__read_by_windows(r, &r->back, file_number, offset, dst, size);
}

static const lmc_file *lmc__get_reader_file(void *user, size_t file_number)
{
    return lmc_reader_get_file((const lmc_reader *)user, file_number);
}

LMC_API lmc_base lmc_reader_base(lmc_reader *reader)
{
    lmc_base base;
    base.n_files = reader ? reader->tables.listing.n_files : 0;
    base.get_file = lmc__get_reader_file;
    base.read = lmc__read_as_base;
    base.user = reader;
    return base;
}

/* Run by run. A byte that is in no run is lost (salvage), and what was read before it is of no use
 * to the caller, who learns of no sizes. */
static enum lmc_status lmc__read_runs(lmc_reader *r, size_t file_number, uint64_t offset,
                                      uint8_t *out, size_t size)
{
    const lmc__listed_file *const f = lmc__file_at(r, file_number);
    const lmc__stream *const stream = lmc__stream_of(r, f);
    size_t number;
    offset += f->start; /* within the stream from now on */
    for (number = lmc__find_run(r, stream, offset); size != 0; number++) {
        const lmc__run *run;
        size_t n;
        LMC__CHECK(lmc__is_in_run(r, stream, number, offset), LMC_ERR_LOST);
        run = &lmc__run_at(r, number)->run;
        n = (size_t)lmc__min64(size, run->start + run->size - offset);
        LMC__TRY(lmc__hold_runs(r, stream, offset, size));
        LMC__TRY(r->read_run(r, number, offset - run->start, out, n));
        out += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* Bytes of a file that is the reader's, within it. */
static enum lmc_status lmc__read_range(lmc_reader *r, size_t file_number, uint64_t offset,
                                       uint8_t *dst, size_t size)
{
    enum lmc_status status;
    int is_outermost;
    if (size == 0) return LMC_OK;
    is_outermost = lmc__begin_work(r->meter, size, r->n_links, 1);
    status = lmc__read_runs(r, file_number, offset, dst, size);
    lmc__let_go(r);
    lmc__end_work(r->meter, is_outermost);
    return status;
}

/* All of `whole`, which begins at that offset of the file: its fingerprints must be what the index
 * says, which the CRCs of blocks do not tell if whole blocks, with what the index has of them, are
 * another snapshot's. *crc: of all its bytes, as blocks say. */
static enum lmc_status lmc__read_checked(lmc_reader *r, size_t file_number, const lmc_file *whole,
                                         uint64_t offset, uint8_t *dst, uint32_t *crc)
{
    const size_t n = lmc__count_fingerprints(whole);
    lmc__digester digester;
    enum lmc_status status;
    size_t i;
    LMC__TRY(lmc__reserve(&r->fingerprints, (uint64_t)LMC_FINGERPRINT_SIZE * n));
    lmc__begin_digester(&digester, whole);
    digester.fingerprints = r->fingerprints.data;
    r->digester = &digester;
    status = lmc__read_range(r, file_number, offset, dst, (size_t)whole->size);
    r->digester = NULL;
    r->coder->pieces.size = 0; /* after an error there may be some */
    if (status != LMC_OK) return status;
    lmc__finish_digester(&digester);
    *crc = digester.file_crc;
    for (i = 0; i < n; i++) {
        const uint8_t *const fingerprint =
            whole->n_tensors ? whole->tensors[i].fingerprint : whole->fingerprint;
        LMC__CHECK(memcmp(digester.fingerprints + LMC_FINGERPRINT_SIZE * i, fingerprint,
                          LMC_FINGERPRINT_SIZE) == 0,
                   LMC_ERR_CORRUPT); /* R8-11 */
    }
    return LMC_OK;
}

/* What is read whole is checked; of a damaged file nobody asks that much. */
static int lmc__checks_fingerprints(const lmc_reader *r)
{
    return !r->options.skip_fingerprints && !r->is_salvage;
}

LMC_API enum lmc_status lmc_reader_read_file(lmc_reader *r, size_t file_number, uint64_t offset,
                                             void *dst, size_t size)
{
    const lmc_file *f;
    uint32_t crc;
    if (!r || file_number >= r->tables.listing.n_files || (!dst && size)) return LMC_ERR_ARGUMENT;
    f = &lmc__file_at(r, file_number)->file;
    if (offset > f->size || size > f->size - offset) return LMC_ERR_ARGUMENT;
    if (size != f->size || !lmc__checks_fingerprints(r))
        return lmc__read_range(r, file_number, offset, (uint8_t *)dst, size);
    LMC__TRY(lmc__read_checked(r, file_number, f, 0, (uint8_t *)dst, &crc));
    return crc == f->crc ? LMC_OK : LMC_ERR_CORRUPT;
}

/* It is the reader's own, so its fingerprint is that of the index. */
static int lmc__is_listed_tensor(const lmc_reader *r, size_t file_number, const lmc_tensor *tensor)
{
    const lmc_file *const f = lmc_reader_get_file(r, file_number);
    size_t i;
    if (!f || f->n_tensors == 0) return 0;
    i = ((uintptr_t)tensor - (uintptr_t)f->tensors) / sizeof *tensor;
    return i < f->n_tensors && tensor == &f->tensors[i];
}

LMC_API enum lmc_status lmc_reader_read_tensor(lmc_reader *r, size_t file_number,
                                               const lmc_tensor *tensor, uint64_t offset, void *dst,
                                               size_t size)
{
    lmc_tensor alone;
    lmc_file file;
    uint32_t crc; /* nobody knows what it must be */
    if (!tensor || offset > tensor->size || size > tensor->size - offset) return LMC_ERR_ARGUMENT;
    if (!r || !dst || size == 0 || size != tensor->size || !lmc__checks_fingerprints(r) ||
        !lmc__is_listed_tensor(r, file_number, tensor))
        return lmc_reader_read_file(r, file_number, tensor->offset + offset, dst, size);
    alone = *tensor;
    alone.offset = 0;
    memset(&file, 0, sizeof file);
    file.n_tensors = 1;
    file.tensors = &alone;
    file.size = tensor->size;
    return lmc__read_checked(r, file_number, &file, tensor->offset, (uint8_t *)dst, &crc);
}
