#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/origin.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"
#include "snapshot/salvage_walk.h"
#ifndef LMC_NO_SALVAGE

/* From what the walk has found to tables: which bytes of which file each block is.
 *
 * With an index that is known. Without, it is put together in this order, each step from what the
 * ones before have made certain:
 *     1. sections: streams and runs whose sections are intact (lmc__collect_sections)
 *     2. orphans of known runs: blocks whose numbers fit one of those (lmc__adopt_orphans)
 *     3. orphans of unknown runs: their run's number, where only one is possible
 *        (lmc__number_orphans)
 *     4. the place of each run in the streams, where sections and runs beside it leave only one
 *        (lmc__place_runs)
 *     5. of blocks with the same position the best, and up to three copies (lmc__choose_blocks)
 *     6. blocks of runs that have no place go behind the others (lmc__part_blocks)
 *     7. what each run is predicted by, if that is still known (lmc__finish_runs)
 * What is not certain is not guessed: it stays without a place, or is not handed out. */

/* -- tables with gaps -- */

/* At least n streams; of those that are new nothing is known, not even that they exist: a later one
 * speaks of them. Each is taken for one file. Whoever asks has made sure that n is in proportion to
 * the file's size. */
static enum lmc_status lmc__extend_streams(lmc_reader *r, size_t n)
{
    while (r->tables.listing.n_streams < n) {
        lmc__listed_file *f;
        lmc__stream *stream;
        LMC__TRY(lmc__add_stream(&r->tables.listing, &stream));
        LMC__TRY(lmc__add_file(&r->tables.listing, &f));
        f->file.path = "";
        f->file.size = stream->size = LMC_UNKNOWN_SIZE;
        stream->is_unknown = 1;
    }
    return LMC_OK;
}

/* The stream of a run without a place. */
#define LMC__NO_STREAM SIZE_MAX

/* At least n runs, likewise: without a place. A prediction of LMC_ERR_LOST is what marks a run
 * as unknown; it stays when the run gets a place, as only its section would tell. */
static enum lmc_status lmc__extend_runs(lmc_reader *r, size_t n)
{
    while (lmc__count_runs(&r->tables) < n) {
        lmc__reader_run *run;
        LMC__TRY(lmc__append(&r->tables.runs, NULL, sizeof *run));
        run = lmc__run_at(r, lmc__count_runs(&r->tables) - 1);
        run->prediction = LMC_ERR_LOST;
        run->run.stream = LMC__NO_STREAM;
        run->run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* so that nothing divides by 0 */
    }
    return LMC_OK;
}

/* By its section, or by the index. Not those that lmc__place_unknown has given a place: their
 * blocks can be read, but not those that have a prediction. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_LOST;
}

/* Makes the run one of its stream's. A stream's runs are those from its first to its last; in
 * between there may be some of which nothing is known.
 *
 *     runs      0 1 2 | 3 ? 5 | ? 7        "?": not found
 *     streams     0   |   1   |  2         stream 1: first_run 3, n_runs 3 */
static void lmc__add_run_to_stream(lmc_reader *r, size_t number)
{
    lmc__stream *const f = lmc__stream_at(&r->tables.listing, lmc__run_at(r, number)->run.stream);
    if (f->n_runs == 0) f->first_run = number;
    else if (number < f->first_run) {
        f->n_runs += f->first_run - number;
        f->first_run = number;
    }
    if (number - f->first_run >= f->n_runs) f->n_runs = number - f->first_run + 1;
}

/* -- 1 -- */

static const lmc__found_section *lmc__section_at(const lmc_salvage *s, size_t i)
{
    return (const lmc__found_section *)(const void *)s->sections.data + i;
}

/* A FILE section. One that describes no valid files leaves one file of which nothing is known. Of
 * two with one number the first counts; numbers that are left out become files of which nothing is
 * known. */
static enum lmc_status lmc__collect_files(lmc_salvage *s, const lmc__found_section *found)
{
    lmc_reader *const r = &s->reader;
    lmc__listing *const l = &r->tables.listing;
    enum lmc_status status = LMC_OK;
    if (found->number < l->n_streams) return LMC_OK;
    LMC__TRY(lmc__extend_streams(r, found->number));
    if (found->is_intact)
        status =
            lmc__list_files(l, r->tables.index.data + (size_t)found->body_at, (size_t)found->size);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    return lmc__extend_streams(r, (size_t)found->number + 1);
}

/* A RUN section: what it says of itself. Where the run lies it does not say. Of two with one number
 * the first counts; first_block: of its section, until it has a place. */
static enum lmc_status lmc__collect_run(lmc_salvage *s, size_t i)
{
    lmc_reader *const r = &s->reader;
    const lmc__found_section *const found = lmc__section_at(s, i);
    lmc__reader_run *run;
    lmc__run parsed;
    lmc__cursor c;
    c.p = r->tables.index.data + (size_t)found->body_at;
    c.end = c.p + (size_t)found->size;
    if (found->number < lmc__count_runs(&r->tables) || !found->is_intact ||
        lmc__get_run(&c, &parsed) != LMC_OK)
        return LMC_OK;
    LMC__TRY(lmc__extend_runs(r, (size_t)found->number + 1));
    run = lmc__run_at(r, found->number);
    run->run = parsed;
    run->run.stream = LMC__NO_STREAM;
    run->prediction = LMC_OK;
    run->first_block = i;
    return LMC_OK;
}

/* By kind and number; those of one number in the order in which they lie. */
static int lmc__compare_sections(const void *x, const void *y)
{
    const lmc__found_section *const a = *(const lmc__found_section *const *)x;
    const lmc__found_section *const b = *(const lmc__found_section *const *)y;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Of sections with the same number all but one are copies, and in the wrong place: no run begins a
 * stream then because it stands behind one of them. Of FILE sections the one that continues the
 * numbers before it is kept, or the last. */
static enum lmc_status lmc__mark_copies(lmc_salvage *s)
{
    lmc__found_section *const found = (lmc__found_section *)(void *)s->sections.data;
    const size_t n = s->sections.size / sizeof *found;
    lmc__found_section **sorted, *spare;
    lmc__buffer pointers;
    uint32_t next = 0;
    size_t i;
    lmc__init_buffer(&pointers, s->reader.options.alloc_user);
    LMC__TRY(lmc__reserve(&pointers, n * sizeof *sorted));
    sorted = (lmc__found_section **)(void *)pointers.data;
    for (i = 0; i < n; i++) sorted[i] = &found[i];
    lmc__heap_sort(sorted, n, sizeof *sorted, lmc__compare_sections, &spare);
    for (i = 1; i < n; i++)
        if (sorted[i]->kind == sorted[i - 1]->kind && sorted[i]->number == sorted[i - 1]->number) {
            sorted[i - 1]->has_copy = 1; /* behind it */
            if (sorted[i]->kind == LMC__KIND_RUN)
                sorted[i]->after = sorted[i - 1]->after = UINT32_MAX;
        }
    lmc__free_buffer(&pointers);
    for (i = 0; i < n; i++) {
        if (found[i].kind != LMC__KIND_FILE) continue;
        if (found[i].number < next || (found[i].number != next && found[i].has_copy))
            found[i].kind = LMC__KIND_COPY;
        else next = found[i].number + 1;
    }
    return LMC_OK;
}

/* Sections in the order in which they lie. Those whose numbers contradict what came before them
 * count as lost. */
static enum lmc_status lmc__collect_sections(lmc_salvage *s)
{
    const size_t n = s->sections.size / sizeof(lmc__found_section);
    size_t i;
    if (n != 0) LMC__TRY(lmc__mark_copies(s));
    for (i = 0; i < n; i++) {
        if (lmc__section_at(s, i)->kind == LMC__KIND_FILE)
            LMC__TRY(lmc__collect_files(s, lmc__section_at(s, i)));
        else if (lmc__section_at(s, i)->kind == LMC__KIND_RUN) LMC__TRY(lmc__collect_run(s, i));
    }
    return LMC_OK;
}

/* -- 2 -- */

#define LMC__MAX_TRIES ((uint64_t)1 << 26)

/* Finds the known runs of orphans, trying those that follow the one before them first: blocks that
 * were moved, or whose section came later. A block that is in the wrong place is no longer one of a
 * row. The number of tries is bounded, for a hostile file can have as many orphans as runs.
 *
 * How a header tells its run: the Header_CRC covers the position, which is not stored (spec 7). As
 * a CRC is linear, header and CRC give state, and for each run number the one block number with
 * which the CRC would be right is state ^ lmc__run_state(run). A wrong run gives any number of 32
 * bits, and that must name a block of the run that has this size: a chance of n_blocks in 2^32. */
static enum lmc_status lmc__adopt_orphans(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan), n_runs = lmc__count_runs(&r->tables);
    lmc__orphan *const o = (lmc__orphan *)(void *)s->orphans.data;
    uint64_t tries = 0;
    size_t i, j, n_left = 0;
    for (i = 0; i < n; i++) {
        const size_t first = o[i].after ? o[i].after - 1 : 0;
        int is_found = 0;
        for (j = 0; j < n_runs && tries < LMC__MAX_TRIES && !is_found; j++, tries++) {
            const size_t number = (first + j) % n_runs;
            o[i].block.block = o[i].state ^ lmc__run_state(k, (uint32_t)number);
            is_found = lmc__is_known_run(r, number) &&
                       lmc__fits_run(&lmc__run_at(r, number)->run, lmc__run_at(r, number)->blocks,
                                     &o[i].block);
            if (is_found) o[i].block.run = (uint32_t)number;
        }
        if (is_found) {
            if (o[i].block.trust == LMC__TRUST_ROW) o[i].block.trust = LMC__TRUST_LONE;
            LMC__TRY(lmc__append(&s->blocks, &o[i].block, sizeof o[i].block));
        } else o[n_left++] = o[i];
    }
    s->orphans.size = n_left * sizeof *o;
    if (s->damage.has_index) s->orphans.size = 0; /* all runs are known: these are none of theirs */
    return LMC_OK;
}

/* -- 3 -- */

/* Orphans of unknown runs. For each run number, the header's CRC gives a block number
 * (lmc__header_state). For the right run it is small: blocks take 25 bytes at least, so there are
 * no more of them than the bytes since the last known section can hold. For a wrong one it is a
 * random number of 32 bits, which is small with a chance of `most` in 2^32. So of the next 16
 * unknown runs the one that fits is right, if only one does; if more do, the block is given up.
 *
 * They go behind the blocks of known runs, sorted; *numbered: the first of them. */
static enum lmc_status lmc__number_orphans(lmc_salvage *s, size_t *numbered)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan), n_runs = lmc__count_runs(&r->tables);
    const lmc__orphan *const o = (const lmc__orphan *)(const void *)s->orphans.data;
    size_t i, j;
    *numbered = lmc__count_found(s);
    for (i = 0; i < n; i++) {
        const uint64_t most = o[i].block.at < o[i].after_at
                                  ? 0
                                  : (o[i].block.at - o[i].after_at) / (LMC_BLOCK_HEADER_SIZE + 1);
        const size_t from =
            o[i].after && (o[i].after > n_runs || !lmc__is_known_run(r, o[i].after - 1))
                ? o[i].after - 1
                : o[i].after;
        lmc__found_block found = o[i].block;
        unsigned n_found = 0;
        for (j = from;
             j < from + 16 && j <= UINT32_MAX && (j >= n_runs || !lmc__is_known_run(r, j)); j++) {
            const uint32_t number = o[i].state ^ lmc__run_state(k, (uint32_t)j);
            if (number > most) continue;
            n_found++;
            found.run = (uint32_t)j;
            found.block = number;
        }
        if (n_found == 1) {
            LMC__TRY(lmc__append(&s->blocks, &found, sizeof found));
            LMC__TRY(lmc__extend_runs(r, (size_t)found.run + 1));
        }
    }
    if (lmc__count_found(s) != *numbered)
        lmc__sort_found(lmc__found_at(s, *numbered), lmc__count_found(s) - *numbered);
    return LMC_OK;
}

/* -- 4 --
 *
 * A RUN section does not say where its run lies: runs cover a stream without a gap and in order, so
 * that follows from what is before and behind it. A FILE section says how long its stream is, and
 * where it was found says which runs come before it.
 *
 *     sections  F0 R0 R1 .. R3 F1 R4          "..": lost
 *     stream 0  |--- 0 ---|--- 1 ---|    ?    |--- 3 ---|    3 ends where the stream does
 *     stream 1  |--- 4 ---|
 *
 * Of an unknown run (2, here) it is known where it begins, if the one before has a place. Its
 * blocks say how long they are, so where all of them are there it has an end, too. */

typedef struct lmc__placing {
    lmc_salvage *s;
    size_t numbered;   /* blocks of unknown runs, from this one of those found on */
    size_t section;    /* the next one that may be that of a stream */
    size_t stream;     /* at hand */
    uint64_t limit_at; /* where in the file the section behind its runs begins */
    size_t run, end;   /* the next of its runs, and the one behind its last; SIZE_MAX: not known */
    size_t placed;     /* behind the last run that got a place */
    uint64_t position; /* within the stream: where the next run begins */
    uint64_t stop;     /* where what is lost must end */
} lmc__placing;

/* A known run gets that place, if it fits. */
static enum lmc_status lmc__place_known(lmc__placing *x, size_t number, uint64_t start,
                                        int *is_placed)
{
    lmc_reader *const r = &x->s->reader;
    lmc__listing *const l = &r->tables.listing;
    lmc__reader_run *const run = lmc__run_at(r, number);
    const lmc__found_section *const found = lmc__section_at(x->s, (size_t)run->first_block);
    const size_t n_segments = r->tables.segments.size;
    uint64_t position = start;
    lmc__run parsed;
    enum lmc_status status;
    *is_placed = 0;
    if (run->run.size > x->stop - start) return LMC_OK;
    status =
        lmc__parse_run(&parsed, &r->tables.segments, r->tables.index.data + (size_t)found->body_at,
                       (size_t)found->size, l, x->stream, &position);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    if (status == LMC_OK) run->run = parsed;
    else {
        /* a segment may say that it is the rest of its piece, and pieces not be known: what the
         * run is predicted by is lost, but nothing else */
        r->tables.segments.size = n_segments;
        run->prediction = LMC_ERR_CORRUPT;
        run->run.start = start;
        run->run.stream = x->stream;
    }
    lmc__add_run_to_stream(r, number);
    if (number >= x->placed) x->placed = number + 1;
    *is_placed = 1;
    return LMC_OK;
}

/* Of the numbered blocks the first one of a run that is not before that. */
static size_t lmc__find_numbered(const lmc__placing *x, size_t run)
{
    size_t first = x->numbered, n = lmc__count_found(x->s) - first;
    while (n != 0) {
        if (lmc__found_at(x->s, first + n / 2)->run < run) {
            first += n / 2 + 1;
            n -= n / 2 + 1;
        } else n /= 2;
    }
    return first;
}

/* A section begins there. */
static int lmc__is_section(const lmc_salvage *s, uint64_t at)
{
    size_t first = 0, n = s->sections.size / sizeof(lmc__found_section);
    while (n != 0) { /* they were found from front to back */
        if (lmc__section_at(s, first + n / 2)->at < at) {
            first += n / 2 + 1;
            n -= n / 2 + 1;
        } else n /= 2;
    }
    return first < s->sections.size / sizeof(lmc__found_section) &&
           lmc__section_at(s, first)->at == at;
}

/* Unknown run x->run, which begins at x->position: it gets that place if its blocks leave no doubt
 * how they lie.
 *
 * Its block size is that of the first block found, provided that another one shows that it is not
 * the last, which may be shorter; a lone block has a size of its own only if it is number 0. All
 * others must agree. The run ends with the last of its blocks that was found, and must not reach
 * into what is known. More may be lost behind it, unless none is missing and a section follows
 * right behind the last: then it is complete, and the next run begins there.
 *
 *     known      |--- run 4 ---|                         |--- run 6 ---|
 *     run 5                    |##0##|     |##2##|#3#|
 *                     position ^     block size <->  ^ at most where run 6 begins: x->stop */
LMC__COLD static void lmc__place_unknown(lmc__placing *x, int *is_complete)
{
    lmc_reader *const r = &x->s->reader;
    const size_t first = lmc__find_numbered(x, x->run),
                 n = lmc__find_numbered(x, x->run + 1) - first;
    const lmc__found_block *block;
    size_t i, largest, n_missing;
    uint64_t end;
    lmc__run run;
    *is_complete = 0;
    if (n == 0) return;
    block = lmc__found_at(x->s, first);
    largest = block[0].length;
    for (i = 0; i + 1 < n && block[i].block == block[i + 1].block; i++) {} /* copies */
    /* a lone block, which might be the last: of what size the others are is not known */
    if (i + 1 == n && block[0].block != 0) return;
    if (largest < (size_t)1 << LMC__MIN_LOG2_BLOCK || (largest & (largest - 1)) != 0) {
        if (block[n - 1].block != 0) return;
        largest = (size_t)1 << LMC__MAX_LOG2_BLOCK; /* the only one */
    }
    n_missing = block[0].block;
    for (i = 0; i < n; i++) {
        if (block[i].length > largest ||
            (block[i].length < largest && block[i].block != block[n - 1].block))
            return;
        if (i && block[i].block > block[i - 1].block + 1) n_missing++;
    }
    if (block[n - 1].block > (x->stop - x->position) / largest) return;
    end = x->position + block[n - 1].block * (uint64_t)largest;
    if (block[n - 1].length > x->stop - end) return;
    memset(&run, 0, sizeof run);
    run.start = x->position;
    run.size = end + block[n - 1].length - run.start;
    run.block_size = largest;
    run.n_blocks = (uint64_t)block[n - 1].block + 1;
    run.stream = x->stream;
    lmc__run_at(r, x->run)->run = run; /* its prediction stays LMC_ERR_LOST */
    lmc__add_run_to_stream(r, x->run);
    if (x->run >= x->placed) x->placed = x->run + 1;
    *is_complete = n_missing == 0 && lmc__is_section(x->s, block[n - 1].at + block[n - 1].size);
}

/* The next run of the stream is one that lies behind the section of a later stream. */
static int lmc__is_of_later_stream(const lmc__placing *x)
{
    const lmc_reader *const r = &x->s->reader;
    size_t i;
    uint64_t at;
    if (x->run >= x->end || x->run >= lmc__count_runs(&r->tables)) return 1;
    if (lmc__is_known_run(r, x->run))
        at = lmc__section_at(x->s, (size_t)lmc__run_at(r, x->run)->first_block)->at;
    else {
        i = lmc__find_numbered(x, x->run);
        if (i == lmc__count_found(x->s) || lmc__found_at(x->s, i)->run != x->run) return 0;
        at = lmc__found_at(x->s, i)->at;
    }
    return at > x->limit_at;
}

/* The first run of the stream whose section is number i of those found; SIZE_MAX: not certain. */
static size_t lmc__first_run_after(const lmc_salvage *s, size_t i)
{
    const size_t n = s->sections.size / sizeof(lmc__found_section);
    if (lmc__section_at(s, i)->after != UINT32_MAX) return lmc__section_at(s, i)->after;
    if (i + 1 < n && lmc__section_at(s, i + 1)->kind == LMC__KIND_RUN &&
        lmc__section_at(s, i + 1)->after == 0)
        return lmc__section_at(s, i + 1)->number;
    return SIZE_MAX;
}

/* Which runs are those of the stream at hand, as its section and the next one that was found tell.
 * Run 0 is of the first stream. */
static void lmc__bound_stream(lmc__placing *x)
{
    const lmc_salvage *const s = x->s;
    const size_t n = s->sections.size / sizeof(lmc__found_section);
    size_t i = x->section, run;
    while (i < n && (lmc__section_at(s, i)->kind == LMC__KIND_RUN ||
                     lmc__section_at(s, i)->kind == LMC__KIND_COPY ||
                     (lmc__section_at(s, i)->kind == LMC__KIND_FILE &&
                      lmc__section_at(s, i)->number < x->stream)))
        i++;
    if (i < n && lmc__section_at(s, i)->kind == LMC__KIND_FILE &&
        lmc__section_at(s, i)->number == x->stream) {
        run = lmc__first_run_after(s, i);
        if (run != SIZE_MAX) x->run = run;
        for (i++; i < n && (lmc__section_at(s, i)->kind == LMC__KIND_RUN ||
                            lmc__section_at(s, i)->kind == LMC__KIND_COPY);)
            i++;
    }
    if (x->stream == 0) x->run = 0;
    x->section = i;
    x->limit_at = i < n ? lmc__section_at(s, i)->at : UINT64_MAX;
    x->end = SIZE_MAX;
    /* streams that are lost in between may have runs of their own */
    if (i < n && (lmc__section_at(s, i)->kind == LMC__KIND_INDEX
                      ? x->stream + 1 == s->reader.tables.listing.n_streams
                      : lmc__section_at(s, i)->number == x->stream + 1))
        x->end = lmc__first_run_after(s, i);
}

/* From the front of the stream as far as it is certain; then from its end; then what is between.
 * The next stream begins with x->run, if that is known then. */
static enum lmc_status lmc__place_stream(lmc__placing *x)
{
    lmc_reader *const r = &x->s->reader;
    const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, x->stream);
    const size_t n_runs = lmc__count_runs(&r->tables);
    const int has_end = !stream->is_unknown;
    int is_placed = x->run != SIZE_MAX;
    size_t i, first;
    x->position = 0;
    x->stop = has_end ? stream->size : LMC__MAX_FILE_SIZE;
    while (is_placed && x->position < x->stop && !lmc__is_of_later_stream(x)) {
        if (lmc__is_known_run(r, x->run))
            LMC__TRY(lmc__place_known(x, x->run, x->position, &is_placed));
        else lmc__place_unknown(x, &is_placed);
        if (!is_placed) break;
        x->position += lmc__run_at(r, x->run++)->run.size;
    }
    if (is_placed && (!has_end || x->position == x->stop)) return LMC_OK;
    first = x->run != SIZE_MAX ? x->run : x->placed;
    for (i = has_end && x->end <= n_runs ? x->end : 0; i > first; i--) {
        const uint64_t run_size = lmc__run_at(r, i - 1)->run.size;
        if (!lmc__is_known_run(r, i - 1) || run_size > x->stop - x->position) break;
        LMC__TRY(lmc__place_known(x, i - 1, x->stop - run_size, &is_placed));
        if (!is_placed) break;
        x->stop -= run_size;
    }
    if (x->run < n_runs && x->run < x->end && !lmc__is_known_run(r, x->run)) {
        lmc__run_at(r, x->run)->run.stream = LMC__NO_STREAM; /* it may have reached too far */
        lmc__place_unknown(x, &is_placed);
    }
    x->run = x->end;
    return LMC_OK;
}

/* Every run for which there is only one place gets it; others have no bytes. */
LMC__COLD static enum lmc_status lmc__place_runs(lmc_salvage *s, size_t numbered)
{
    lmc_reader *const r = &s->reader;
    lmc__placing x;
    size_t i;
    memset(&x, 0, sizeof x);
    x.s = s;
    x.numbered = numbered;
    LMC__TRY(lmc__extend_streams(r, lmc__count_runs(&r->tables) != 0)); /* at least one */
    for (x.stream = 0; x.stream < r->tables.listing.n_streams; x.stream++) {
        lmc__bound_stream(&x);
        LMC__TRY(lmc__place_stream(&x));
        /* the last section of a stream may be lost */
        if (x.stream + 1 == r->tables.listing.n_streams && x.run < lmc__count_runs(&r->tables) &&
            x.run >= x.placed)
            LMC__TRY(lmc__extend_streams(r, x.stream + 2));
    }
    lmc__settle_runs(&r->tables);
    for (i = 0; i < lmc__count_runs(&r->tables); i++)
        if (lmc__run_at(r, i)->run.stream == LMC__NO_STREAM) lmc__run_at(r, i)->run.size = 0;
    return LMC_OK;
}

/* -- 5 -- */

/* Of blocks with one position keeps the best and its copies (same content by CRC and length). If
 * another one, as good, has other content, there is no telling which is right, and none is handed
 * out. In place: what is kept is never more than what was looked at.
 *
 *     trust    is preferred to        doubtful, where another content has
 *     INDEX    all others             - (there is one block at one place)
 *     ROW      LONE, INNER            ROW or LONE
 *     LONE     INNER                  LONE
 *     INNER                           INNER
 *
 * The order of lmc__sort_found puts the best of a position first.
 *
 * Before that, blocks go that do not fit their run after all: without an index, two sections may
 * have had the number, of which one was taken. */
static void lmc__choose_blocks(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    const size_t n_found = lmc__count_found(s), n_runs = lmc__count_runs(&r->tables);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    size_t i, j, n = 0, n_kept = 0;
    for (i = 0; i < n_found; i++) {
        /* without an index, two sections may have had the number: blocks of the one that was not
         * taken go */
        const lmc__reader_run *const run = f[i].run < n_runs ? lmc__run_at(r, f[i].run) : NULL;
        if (!run || run->run.size == 0 || lmc__fits_run(&run->run, run->blocks, &f[i]))
            f[n++] = f[i];
    }
    for (i = 0; i < n && s->damage.has_index; i++)
        if (f[i].at == lmc__block_at(r)[lmc__run_at(r, f[i].run)->first_block + f[i].block])
            f[i].trust = LMC__TRUST_INDEX;
    lmc__sort_found(f, n);
    for (i = 0; i < n; i = j) {
        const lmc__found_block best = f[i];
        size_t n_copies = 0;
        f[n_kept] = best;
        for (j = i + 1; j < n && f[j].run == best.run && f[j].block == best.block; j++) {
            if (f[j].crc == best.crc && f[j].length == best.length) {
                if (++n_copies < LMC__MAX_COPIES) f[n_kept + n_copies] = f[j]; /* at or before j */
            } else if (f[j].trust == best.trust ||
                       (f[j].trust == LMC__TRUST_LONE && best.trust == LMC__TRUST_ROW))
                f[n_kept].is_doubtful = 1;
        }
        n_kept += 1 + lmc__min(n_copies, LMC__MAX_COPIES - 1);
    }
    s->blocks.size = n_kept * sizeof *f;
    s->n_blocks = n_kept;
}

/* -- 6 -- */

/* Blocks of runs without a place go behind the others; both parts stay sorted. They are handed out
 * at the end, for whoever can make something of them.
 *
 *     s->blocks   |  run and number in order  |  run and number in order  |
 *                 0                  s->n_blocks        lmc__count_found
 *
 * A run of size 0 is one that lmc__extend_runs has made: numbers up to the highest need an
 * entry. */
static enum lmc_status lmc__part_blocks(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__buffer unplaced;
    enum lmc_status status = LMC_OK;
    size_t i, n_kept = 0;
    lmc__init_buffer(&unplaced, r->options.alloc_user);
    for (i = 0; i < s->n_blocks && status == LMC_OK; i++) {
        if (f[i].run < lmc__count_runs(&r->tables) && lmc__run_at(r, f[i].run)->run.size != 0)
            f[n_kept++] = f[i];
        else status = lmc__append(&unplaced, &f[i], sizeof f[i]);
    }
    s->n_blocks = n_kept;
    s->blocks.size = n_kept * sizeof *f;
    if (status == LMC_OK && unplaced.size)
        status = lmc__append(&s->blocks, unplaced.data, unplaced.size);
    lmc__free_buffer(&unplaced);
    return status;
}

/* -- 7 -- */

/* Starts of unknown runs within a file, so that runs are in order for searching; and what each run
 * is predicted by. Here, unlike elsewhere, a mapping that leads outside of the base is a wrong
 * base: the header that would have told may be lost.
 *
 * A prediction that cannot be had costs the run's predicted blocks, and those of runs that are
 * predicted by it, but nothing else: run->prediction keeps the status for whoever asks. */
LMC__COLD static enum lmc_status lmc__finish_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i, j;
    for (i = 0; i < r->tables.listing.n_streams; i++) {
        const lmc__stream *const f = lmc__stream_at(&r->tables.listing, i);
        uint64_t end = 0;
        for (j = f->first_run; j < f->first_run + f->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.size == 0) {
                run->run.start = end;
                run->run.stream = i;
            }
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK)
                run->prediction = lmc__check_predictions(&r->origin, &run->run, LMC_ERR_BASE_WRONG);
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}

#endif /* LMC_NO_SALVAGE */
