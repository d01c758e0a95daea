#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"

/* Without an index: streams and runs in the order in which their sections were found, and which
 * bytes of a stream each run is.
 *
 * Runs cover a stream without a gap and in order, so their places follow from what is before and
 * behind them. Where a section may be lost, the tables have an *unknown run*: of no size, perhaps,
 * or the one of blocks that were found there.
 *
 *     file      F R 0 1 2 R .. 0 1 .. R 0 1 F        "..": lost
 *     stream    |-- 0 ---|-- 1 ---|? 2 |- 3 -|       3 ends where the stream does
 *
 * Runs before the first unknown one are placed from the front of the stream, those behind the
 * last from its end, if its size is known. What is between has a place only if the blocks of the
 * unknown runs leave no doubt how large those are. If the known ones fill the stream, or have
 * all rows of BLKS, the unknown ones are nothing. */

/* The stream of a run without a place. */
#define LMC__NO_STREAM SIZE_MAX

/* By its section, or by the index. Of those that lmc__place_unknown has placed, blocks that have
 * a prediction cannot be read. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_LOST;
}

/* One of which nothing is known, not even that it has but one file. */
static enum lmc_status lmc__add_unknown_stream(lmc_reader *r)
{
    lmc__listed_file *f;
    lmc__stream *stream;
    LMC__TRY(lmc__add_stream(&r->tables.listing, &stream));
    stream->first_run = lmc__count_runs(&r->tables);
    stream->size = LMC_UNKNOWN_SIZE;
    stream->is_unknown = 1;
    LMC__TRY(lmc__add_file(&r->tables.listing, &f));
    f->file.path = "";
    f->file.size = LMC_UNKNOWN_SIZE;
    return LMC_OK;
}

/* The last stream goes on with that run, which has no place yet; NULL: with an unknown one. */
static enum lmc_status lmc__add_found_run(lmc_reader *r, const lmc__run *run)
{
    lmc__listing *const l = &r->tables.listing;
    lmc__reader_run added;
    if (l->n_streams == 0) LMC__TRY(lmc__add_unknown_stream(r));
    memset(&added, 0, sizeof added);
    if (run) added.run = *run;
    else added.run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* so that nothing divides by 0 */
    added.run.stream = LMC__NO_STREAM;
    added.prediction = run ? LMC_OK : LMC_ERR_LOST;
    lmc__stream_at(l, l->n_streams - 1)->n_runs++;
    return lmc__append(&r->tables.runs, &added, sizeof added);
}

/* The run begins there; its segments were relative to that. */
static void lmc__set_start(lmc_reader *r, size_t number, size_t stream, uint64_t start)
{
    lmc__run *const run = &lmc__run_at(r, number)->run;
    uint32_t i;
    for (i = 0; i < run->n_segments; i++)
        ((lmc__segment *)(void *)r->tables.segments.data)[run->first_segment + i].start += start;
    run->stream = stream;
    run->start = start;
}

/* An unknown run, which begins at `start` of the stream and ends at `stop` at the latest, gets that
 * place if its blocks leave no doubt how they lie: 1 if it is complete, so that the next run begins
 * where it ends.
 *
 * Its block size is that of the first block found, if another one shows that it is not the last;
 * a lone block has a size of its own only if it is number 0. All others must agree. */
static int lmc__place_unknown(lmc_salvage *s, size_t number, size_t stream, uint64_t start,
                              uint64_t stop)
{
    lmc__run *const run = &lmc__run_at(&s->reader, number)->run;
    const size_t first = lmc__find_key(s, (uint64_t)number << 32),
                 behind = lmc__find_key(s, ((uint64_t)number + 1) << 32);
    const lmc__found_block *f;
    uint64_t last, n_missing, block = 0;
    size_t block_size, i;
    if (first == behind) return 0;
    f = lmc__found_at(s, first);
    last = f[behind - first - 1].key & UINT32_MAX;
    block_size = last == 0 ? (size_t)1 << LMC__MAX_LOG2_BLOCK : f->length; /* the only one */
    if ((f->key & UINT32_MAX) == last && last != 0) return 0;
    if (block_size < (size_t)1 << LMC__MIN_LOG2_BLOCK || (block_size & (block_size - 1)) != 0)
        return 0;
    n_missing = f->key & UINT32_MAX;
    for (i = 0; i < behind - first; i++) {
        const uint64_t before = block;
        block = f[i].key & UINT32_MAX;
        if (f[i].length > block_size || (block != last && f[i].length < block_size)) return 0;
        n_missing += i && block > before + 1;
    }
    i--;
    if (last > (stop - start) / block_size || f[i].length > stop - start - last * block_size)
        return 0;
    run->size = last * block_size + f[i].length;
    run->block_size = block_size;
    run->n_blocks = last + 1;
    lmc__set_start(&s->reader, number, stream, start);
    return n_missing == 0;
}

/* Every run of the stream for which there is only one place gets it. */
static void lmc__place_stream(lmc_salvage *s, size_t number)
{
    lmc_reader *const r = &s->reader;
    const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, number);
    const int is_described = lmc__listed_at(&r->tables.listing, stream->first_file)->is_described;
    uint64_t position = 0, stop = stream->is_unknown ? LMC__MAX_FILE_SIZE : stream->size, left;
    size_t i = stream->first_run, end = i + stream->n_runs, j;
    for (; i < end && lmc__is_known_run(r, i); i++) {
        lmc__set_start(r, i, number, position);
        position += lmc__run_at(r, i)->run.size;
    }
    for (; i < end && !stream->is_unknown && lmc__is_known_run(r, end - 1); end--) {
        stop -= lmc__run_at(r, end - 1)->run.size;
        lmc__set_start(r, end - 1, number, stop);
    }
    left = stop - position; /* what those from i to end do not cover */
    for (j = i; j < end; j++) left -= lmc__run_at(r, j)->run.size;
    for (; i < end; i++) {
        const lmc__run *const run = &lmc__run_at(r, i)->run;
        if (lmc__is_known_run(r, i)) {
            if (run->size > stop - position) return;
            lmc__set_start(r, i, number, position);
        } else if (left != 0 && !s->has_rows && !lmc__place_unknown(s, i, number, position, stop) &&
                   is_described)
            return;
        position += run->size;
    }
}

/* Without an index: places, as far as they are certain. Others have no bytes. */
LMC__COLD static void lmc__place_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i;
    for (i = 0; i < r->tables.listing.n_streams; i++) lmc__place_stream(s, i);
    for (i = 0; i < lmc__count_runs(&r->tables); i++)
        if (lmc__run_at(r, i)->run.stream == LMC__NO_STREAM) lmc__run_at(r, i)->run.size = 0;
    lmc__settle_runs(&r->tables);
}

/* By key; those of one key in the order in which they lie. */
static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Sorts what was found. Of blocks with one key those stay that are like the first, as many as
 * will be tried. If another one has other content, none is handed out. */
static void lmc__choose_blocks(lmc_salvage *s)
{
    const size_t n = lmc__count_found(s);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__found_block spare;
    size_t i, j, n_kept = 0;
    for (i = 1; i < n && lmc__compare_found(&f[i - 1], &f[i]) < 0; i++) {}
    if (i < n) lmc__heap_sort(f, n, sizeof *f, lmc__compare_found, &spare);
    for (i = 0; i < n; i = j) {
        lmc__found_block *const best = &f[n_kept];
        unsigned n_copies = 1;
        *best = f[i];
        for (j = i + 1; j < n && f[j].key == best->key; j++) {
            if (f[j].crc != best->crc || f[j].length != best->length) best->is_doubtful = 1;
            else if (n_copies < LMC__MAX_COPIES) best[n_copies++] = f[j]; /* at or before j */
        }
        n_kept += n_copies;
    }
    s->blocks.size = n_kept * sizeof *f;
}

/* Runs without a place are put between others, so that these are in order for searching; and what
 * each run is predicted by. A mapping that leads outside of the base is a wrong base here: the
 * header that would have told may be lost.
 *
 * A prediction that cannot be had costs only blocks that want it: run->prediction keeps the
 * status. */
LMC__COLD static enum lmc_status lmc__finish_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i, j;
    for (i = 0; i < r->tables.listing.n_streams; i++) {
        const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, i);
        uint64_t end = 0;
        for (j = stream->first_run; j < stream->first_run + stream->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.stream == LMC__NO_STREAM) lmc__set_start(r, j, i, end);
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK)
                run->prediction = lmc__check_predictions(&r->origin, &run->run, LMC_ERR_BASE_WRONG);
            LMC__CHECK(run->prediction != LMC_ERR_MEMORY, LMC_ERR_MEMORY);
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}
