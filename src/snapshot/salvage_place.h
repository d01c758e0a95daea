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

/* Without an index: lists streams and runs in the order in which their sections were found, and
 * finds which bytes of its stream each run has.
 *
 * Runs cover a stream in order, without a gap. So their places follow from the runs before and
 * after them. Where a section may be lost, the tables have an *unknown run*. It may be empty, or
 * have the blocks that were found there.
 *
 *     file      F R 0 1 2 R .. 0 1 .. R 0 1 F        "..": lost
 *     stream    |-- 0 ---|-- 1 ---|? 2 |- 3 -|       3 ends where the stream does
 *
 * Runs before the first unknown run are placed from the front of the stream. Runs after the last
 * unknown run are placed from the end, if the stream's size is known. Runs between unknown runs
 * have a place only if the blocks of the unknown runs tell their sizes. If the known runs fill the
 * stream, or have all rows of BLKS, the unknown runs are empty. */

/* run.stream of a run without a place. */
#define LMC__NO_STREAM SIZE_MAX

/* Whether the section or the index describes the run. Blocks of an unknown run can be read only if
 * they have no prediction. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_LOST;
}

/* Adds a stream of which nothing is known. It gets one file, but may have had several. */
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

/* Adds the run, without a place, to the last stream. NULL: adds an unknown run. */
static enum lmc_status lmc__add_found_run(lmc_reader *r, const lmc__run *run)
{
    lmc__listing *const l = &r->tables.listing;
    lmc__reader_run added;
    if (l->n_streams == 0) LMC__TRY(lmc__add_unknown_stream(r));
    memset(&added, 0, sizeof added);
    if (run) added.run = *run;
    else added.run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* not 0: code divides by it */
    added.run.stream = LMC__NO_STREAM;
    added.prediction = run ? LMC_OK : LMC_ERR_LOST;
    lmc__stream_at(l, l->n_streams - 1)->n_runs++;
    return lmc__append(&r->tables.runs, &added, sizeof added);
}

/* Sets the place of the run. Its segments were relative to the start of the run. */
static void lmc__set_start(lmc_reader *r, size_t number, size_t stream, uint64_t start)
{
    lmc__run *const run = &lmc__run_at(r, number)->run;
    uint32_t i;
    for (i = 0; i < run->n_segments; i++)
        ((lmc__segment *)(void *)r->tables.segments.data)[run->first_segment + i].start += start;
    run->stream = stream;
    run->start = start;
}

/* An unknown run begins at `start` of the stream and ends at `stop` or before. It gets this place
 * if its blocks tell its block size. Returns 1 if no block is missing: then the next run begins at
 * its end.
 *
 * The block size is that of the first block that was found, if a later block was found, too. A
 * single block has a place only if its number is 0. All blocks must fit that size. */
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
    block_size = last == 0 ? (size_t)1 << LMC__MAX_LOG2_BLOCK : f->length; /* the only block */
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

/* Gives a place to every run of the stream that can have only one place. */
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
    left = stop - position; /* bytes that runs i to end do not cover */
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

/* Without an index: gives each run its place if that is certain. Other runs get size 0. */
LMC__COLD static void lmc__place_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i;
    for (i = 0; i < r->tables.listing.n_streams; i++) lmc__place_stream(s, i);
    for (i = 0; i < lmc__count_runs(&r->tables); i++)
        if (lmc__run_at(r, i)->run.stream == LMC__NO_STREAM) lmc__run_at(r, i)->run.size = 0;
    lmc__settle_runs(&r->tables);
}

/* Compares by key, then by place in the file. */
static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Sorts the blocks that were found. Of blocks with one key it keeps the first and its copies,
 * LMC__MAX_COPIES in all. If any has other content, is_doubtful is set: none is returned. */
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
            else if (n_copies < LMC__MAX_COPIES) best[n_copies++] = f[j]; /* to f[j] or before */
        }
        n_kept += n_copies;
    }
    s->blocks.size = n_kept * sizeof *f;
}

/* Puts each empty run at the end of the previous run: searching needs sorted runs. Checks the
 * predictions of each run. A segment outside of the base means BASE_WRONG here, because the header
 * with the base's fingerprint may be lost.
 *
 * If predictions cannot be read, only the blocks that need them are lost: run->prediction has the
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
