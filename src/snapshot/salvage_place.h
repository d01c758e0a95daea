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
 *     1. sections: files and runs whose sections are intact (lmc__collect_sections)
 *     2. orphans of known runs: blocks whose numbers fit one of those (lmc__adopt_orphans)
 *     3. orphans of unknown runs: their run's number, where only one is possible, then its place in
 *        the files, where its neighbours leave only one (lmc__number_orphans, lmc__place_run)
 *     4. of blocks with the same position the best, and up to three copies (lmc__choose_blocks)
 *     5. blocks of runs that have no place go behind the others (lmc__part_blocks)
 *     6. what each run is predicted by, if that is still known (lmc__finish_runs)
 * What is not certain is not guessed: it stays without a place, or is not handed out. */

/* -- tables with gaps -- */

/* At least n files; of those that are new nothing is known, not even that they exist: a later one,
 * or a run, speaks of them. Whoever asks has made sure that n is in proportion to the file's
 * size. */
static enum lmc_status lmc__extend_files(lmc_reader *r, size_t n)
{
    while (r->tables.listing.n_files < n) {
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

/* At least n runs, likewise: of size 0, as they are in no file. A prediction of LMC_ERR_NOT_FOUND
 * is what marks a run as unknown; it stays when the run gets a place, as only its section would
 * tell. */
static enum lmc_status lmc__extend_runs(lmc_reader *r, size_t n)
{
    while (lmc__count_runs(&r->tables) < n) {
        lmc__reader_run *run;
        LMC__TRY(lmc__append(&r->tables.runs, NULL, sizeof *run));
        run = lmc__run_at(r, lmc__count_runs(&r->tables) - 1);
        run->prediction = LMC_ERR_NOT_FOUND;
        run->run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* so that nothing divides by 0 */
    }
    return LMC_OK;
}

/* By its section, or by the index. Not those that lmc__place_run has given a place: their blocks
 * can be read, but not those that have a prediction. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_NOT_FOUND;
}

/* Makes the run one of its file's. A file's runs are those from its first to its last; in between
 * there may be some of which nothing is known. Runs come in any order, for some are found only as
 * orphans.
 *
 *     runs    0 1 2 | 3 ? 5 | ? 7        "?": not found
 *     files     0   |   1   |  2         file 1: first_run 3, n_runs 3 */
static void lmc__add_run_to_file(lmc_reader *r, size_t number)
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

/* A FILE section. One that is no valid file leaves one of which nothing is known. Of two with one
 * number the first counts; numbers that are left out become files of which nothing is known.
 * Strings and tensors are copied to the file's memory. */
static enum lmc_status lmc__collect_file(lmc_reader *r, const lmc__found_section *found,
                                         const uint8_t *body)
{
    lmc__listing *const l = &r->tables.listing;
    enum lmc_status status;
    if (found->number < l->n_streams) return LMC_OK;
    LMC__TRY(lmc__extend_files(r, found->number));
    status = lmc__list_files(l, body, (size_t)found->size, 0);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    return lmc__extend_files(r, (size_t)found->number + 1);
}

/* Where the next RUN section continues, as far as the sections before it tell. */
typedef struct lmc__collected {
    size_t stream;
    uint64_t position;
    uint32_t next_run; /* the number that it must have */
    uint64_t next_at;  /* behind a FILE section: where it must lie; 0: behind a run */
    int is_known;      /* all of this */
} lmc__collected;

/* A RUN section. It says nothing of its place: it continues the run before it, or begins the
 * stream whose section stands in front of it. Where one is lost, those behind it in its stream have
 * no place. */
static enum lmc_status lmc__collect_run(lmc_reader *r, const lmc__found_section *found,
                                        const uint8_t *body, lmc__collected *c)
{
    lmc__reader_run *run;
    lmc__run parsed;
    enum lmc_status status;
    if (found->number < lmc__count_runs(&r->tables) || r->tables.listing.n_streams == 0)
        return LMC_OK;
    c->is_known =
        c->next_at ? found->at == c->next_at : c->is_known && found->number == c->next_run;
    if (!c->is_known) return LMC_OK;
    status = lmc__parse_run(&parsed, &r->tables.segments, body, (size_t)found->size,
                            &r->tables.listing, c->stream, &c->position);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    c->next_at = 0;
    c->is_known = status == LMC_OK;
    if (!c->is_known) return LMC_OK;
    LMC__TRY(lmc__extend_runs(r, (size_t)found->number + 1));
    run = lmc__run_at(r, found->number);
    run->run = parsed;
    run->prediction = LMC_OK;
    lmc__add_run_to_file(r, found->number);
    c->next_run = found->number + 1;
    return LMC_OK;
}

/* Sections in the order in which they lie. Those that contradict what came before them (a number
 * again, a place that is taken) count as lost. */
static enum lmc_status lmc__collect_sections(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__found_section *const found =
        (const lmc__found_section *)(const void *)s->sections.data;
    const size_t n = s->sections.size / sizeof *found;
    lmc__collected c;
    size_t i;
    memset(&c, 0, sizeof c);
    for (i = 0; i < n; i++) {
        const uint8_t *const body = r->tables.index.data + (size_t)found[i].body_at;
        if (found[i].kind == LMC__KIND_FILE) {
            LMC__TRY(lmc__collect_file(r, &found[i], body));
            c.stream = found[i].number;
            c.position = 0;
            c.next_at = found[i].at + LMC__SECTION_HEADER_SIZE + found[i].size;
        } else LMC__TRY(lmc__collect_run(r, &found[i], body, &c));
    }
    lmc__settle_runs(&r->tables);
    return LMC_OK;
}

/* -- 3: where a run lies whose section is lost --
 *
 * Runs cover the files without a gap and in order (spec 6), so what is known on both sides of a
 * lost one says where it must be:
 *
 *     files   |------- file 0 --------|------- file 1 --------|
 *     runs    |  run 0  |   run 1 ?   |  run 2  |   run 3 ?   |
 *                       ^ end of run 0          ^ end of run 2; file 1 ends where its section says
 *
 * Two unknown runs in a row cannot be told apart: the second begins where nobody knows. Once the
 * first was given its blocks it is still not "known", since more of them may be lost behind it. */

/* Where unknown run number `number` begins, if that is certain: *file_number, *start. It begins
 * where the run before it ends, if that is known: in the same file, if that has more bytes, else at
 * the beginning of the next one that has any. The run behind it, if known, must agree. For run 0
 * the run before it ends at the beginning of all. */
static int lmc__locate_run(const lmc_reader *r, size_t number, size_t *file_number, uint64_t *start)
{
    const size_t n_runs = lmc__count_runs(&r->tables);
    const lmc__run *const before = number ? &lmc__run_at(r, number - 1)->run : NULL;
    const lmc__run *const behind = number + 1 < n_runs && lmc__is_known_run(r, number + 1)
                                       ? &lmc__run_at(r, number + 1)->run
                                       : NULL;
    const lmc__listed_file *f;
    if (before && !lmc__is_known_run(r, number - 1)) return 0; /* nor where that one ends */
    *file_number = before ? before->stream : 0;
    *start = before ? before->start + before->size : 0;
    if (behind && behind->stream == *file_number) return behind->start > *start;
    if (*file_number >= r->tables.listing.n_files) return 0;
    f = lmc__file_at(r, *file_number);
    if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    if (*start < f->file.size) return 1;
    /* the next file that has bytes, if all up to that are known */
    do {
        if (++*file_number >= r->tables.listing.n_files) return 0;
        f = lmc__file_at(r, *file_number);
        if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    } while (f->file.size == 0);
    *start = 0;
    return !behind || behind->stream > *file_number ||
           (behind->stream == *file_number && behind->start > 0);
}

/* n blocks of one unknown run, sorted. If their place is certain, the run gets it.
 *
 * Where it begins lmc__locate_run says. Its block size is that of the first block found, provided
 * that another one shows that it is not the last, which may be shorter; a lone block has a size of
 * its own only if it is number 0. All others must agree. The run ends with the last of its blocks
 * that was found (more may be lost behind it), and must not reach into what is known: the next run,
 * or the end of the file.
 *
 *     known      |--- run 4 ---|                         |--- run 6 ---|
 *     run 5                    |##0##|     |##2##|#3#|
 *                        start ^     block size <->  ^ end: at most where run 6 begins */
LMC__COLD static enum lmc_status lmc__place_run(lmc_reader *r, lmc__found_block *block, size_t n)
{
    const uint32_t number = block->run;
    uint64_t start, end, limit = LMC__MAX_FILE_SIZE;
    size_t file_number, i, largest = block[0].length;
    const lmc__listed_file *f;
    lmc__run run;
    LMC__TRY(lmc__extend_runs(r, (size_t)number + 1));
    if (!lmc__locate_run(r, number, &file_number, &start)) return LMC_OK;
    for (i = 0; i + 1 < n && block[i].block == block[i + 1].block; i++) {} /* copies */
    /* a lone block, which might be the last: of what size the others are is not known */
    if (i + 1 == n && block[0].block != 0) return LMC_OK;
    if (largest < (size_t)1 << LMC__MIN_LOG2_BLOCK || (largest & (largest - 1)) != 0) {
        if (block[n - 1].block != 0) return LMC_OK;
        largest = (size_t)1 << LMC__MAX_LOG2_BLOCK; /* the only one */
    }
    for (i = 0; i < n; i++)
        if (block[i].length > largest ||
            (block[i].length < largest && block[i].block != block[n - 1].block))
            return LMC_OK;
    f = lmc__file_at(r, file_number);
    if (f->file.size != LMC_UNKNOWN_SIZE) limit = f->file.size;
    if ((size_t)number + 1 < lmc__count_runs(&r->tables)) {
        const lmc__reader_run *const behind = lmc__run_at(r, (size_t)number + 1);
        if (behind->run.size != 0 && behind->run.stream == file_number) limit = behind->run.start;
    }
    if (start > limit || block[n - 1].block > (limit - start) / largest) return LMC_OK;
    end = start + block[n - 1].block * (uint64_t)largest;
    if (block[n - 1].length > limit - end) return LMC_OK;
    memset(&run, 0, sizeof run);
    run.start = start;
    run.size = end + block[n - 1].length - start;
    run.block_size = largest;
    run.n_blocks = (uint64_t)block[n - 1].block + 1;
    run.stream = file_number;
    lmc__run_at(r, number)->run = run; /* its prediction stays LMC_ERR_NOT_FOUND */
    lmc__add_run_to_file(r, number);
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
static enum lmc_status lmc__adopt_orphans(lmc__salvage *s)
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

/* -- 3 again -- */

/* Orphans of unknown runs. For each run number, the header's CRC gives a block number
 * (lmc__header_state). For the right run it is small: blocks take 25 bytes at least, so there are
 * no more of them than the bytes since the last known section can hold. For a wrong one it is a
 * random number of 32 bits, which is small with a chance of `most` in 2^32. So of the next 16
 * unknown runs the one that fits is right, if only one does; if more do, the block is given up.
 *
 * Blocks of the same run are then given a place together. */
static enum lmc_status lmc__number_orphans(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan), n_runs = lmc__count_runs(&r->tables);
    const lmc__orphan *const o = (const lmc__orphan *)(const void *)s->orphans.data;
    lmc__buffer numbered;
    enum lmc_status status = LMC_OK;
    lmc__found_block *block;
    size_t i, j, first;
    lmc__init_buffer(&numbered, r->options.alloc_user);
    for (i = 0; i < n && status == LMC_OK; i++) {
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
        if (n_found == 1) status = lmc__append(&numbered, &found, sizeof found);
    }
    block = (lmc__found_block *)(void *)numbered.data;
    lmc__sort_found(block, numbered.size / sizeof *block);
    for (first = 0; first < numbered.size / sizeof *block && status == LMC_OK; first = i) {
        for (i = first; i < numbered.size / sizeof *block && block[i].run == block[first].run;
             i++) {}
        status = lmc__place_run(r, block + first, i - first);
    }
    if (status == LMC_OK && numbered.size)
        status = lmc__append(&s->blocks, numbered.data, numbered.size);
    lmc__free_buffer(&numbered);
    return status;
}

/* -- 4 -- */

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
static void lmc__choose_blocks(lmc__salvage *s)
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

/* -- 5 -- */

/* Blocks of runs without a place go behind the others; both parts stay sorted. They are handed out
 * at the end, for whoever can make something of them.
 *
 *     s->blocks   |  run and number in order  |  run and number in order  |
 *                 0                  s->n_blocks        lmc__count_found
 *
 * A run of size 0 is one that lmc__extend_runs has made: numbers up to the highest need an
 * entry. */
static enum lmc_status lmc__part_blocks(lmc__salvage *s)
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

/* -- 6 -- */

/* Starts of unknown runs within a file, so that runs are in order for searching; and what each run
 * is predicted by. Here, unlike elsewhere, a mapping that leads outside of the base is a wrong
 * base: the header that would have told may be lost.
 *
 * A prediction that cannot be had costs the run's predicted blocks, and those of runs that are
 * predicted by it, but nothing else: run->prediction keeps the status for whoever asks. */
LMC__COLD static enum lmc_status lmc__finish_runs(lmc__salvage *s)
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

/* -- opening -- */

/* The header, if it is intact. What its CRC confirms, but is not known here, is no damage: a file
 * of a later version is refused, where a damaged header is not. An intact header names the base, so
 * a wrong one is refused at once, as by any reader (spec 4). */
static enum lmc_status lmc__salvage_header(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE];
    enum lmc_status status;
    if (r->source.size < LMC__HEADER_SIZE || !lmc__read_rest(r, 0, header, sizeof header))
        return LMC_OK;
    status = lmc__check_header(header, k);
    if ((status == LMC_ERR_VERSION || status == LMC_ERR_UNSUPPORTED) &&
        k->crc32c(0, header, LMC__HEADER_CRC_AT) == lmc__load32(header + LMC__HEADER_CRC_AT))
        return status;
    if (status != LMC_OK) return LMC_OK;
    s->damage.has_header = 1;
    memcpy(s->header, header, sizeof s->header);
    lmc__keep_header(r, header);
    return r->origin.base ? lmc__check_base(&r->origin, header) : LMC_OK;
}

/* The trailer, if it is intact, and the index that it leads to: from the file's end backwards, so
 * that bytes lost or added before it do not matter. Three things are told apart: a trailer as it
 * should be; one whose CRC is right but that says that the index begins elsewhere, as bytes are
 * missing; and none. Only the first is no damage, but the second leads to the index all the
 * same. */
static enum lmc_status lmc__salvage_trailer(lmc__salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const uint64_t total = r->source.size, end = total - LMC__TRAILER_SIZE;
    uint8_t trailer[LMC__TRAILER_SIZE];
    uint64_t index_size, index_at;
    int is_foreign = 0;
    if (total < LMC__HEADER_SIZE + LMC__TRAILER_SIZE ||
        !lmc__read_rest(r, end, trailer, sizeof trailer))
        return LMC_OK;
    index_size = lmc__load64(trailer + 8);
    index_at = index_size <= end ? end - index_size : 0;
    if (index_at < LMC__HEADER_SIZE) return LMC_OK;
    s->damage.has_trailer = lmc__check_trailer(trailer, index_at, index_size, total, k) == LMC_OK;
    if (s->damage.has_trailer) s->end = index_at;
    /* one that was moved is good enough to look there */
    if (memcmp(trailer + 32, lmc__end_magic, 8) == 0 &&
        k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28))
        return lmc__take_index(s, index_at, index_size, &is_foreign);
    return LMC_OK;
}

/* The steps of the comment at the top. With an index, 1 and 3 have nothing to find: it names all
 * files and runs, and its entries are in the tables since it was found (lmc__take_index). */
static enum lmc_status lmc__fill_tables(lmc__salvage *s)
{
    if (!s->damage.has_index) LMC__TRY(lmc__collect_sections(s));
    LMC__TRY(lmc__adopt_orphans(s));
    if (!s->damage.has_index) LMC__TRY(lmc__number_orphans(s));
    lmc__choose_blocks(s);
    LMC__TRY(lmc__part_blocks(s));
    return lmc__finish_runs(s);
}

/* Room for what lmc_confirm says: of each file, then of each of its tensors.
 *
 *     verdicts      | file 0 | its tensors ... | file 1 | its tensors ... |      0: not known yet
 *     verdicts_at     ^ [0]                      ^ [1] */
static enum lmc_status lmc__add_verdicts(lmc__salvage *s)
{
    size_t i, n = 0;
    for (i = 0; i < s->reader.tables.listing.n_files; i++) {
        LMC__TRY(lmc__append(&s->verdicts_at, &n, sizeof n));
        n += 1 + lmc__file_at(&s->reader, i)->file.n_tensors;
    }
    return lmc__append(&s->verdicts, NULL, n);
}

/* Header, trailer and index, as far as they are intact; then the walk, a second time if it has
 * found an index; then the tables. A file in which nothing is found at all is no LMC file.
 *
 * Why a second walk: an index that the trailer does not lead to is come upon in the first, and with
 * it blocks can be recognised that without it were orphans at best. Buffers of the walk are freed
 * when the tables are full; what stays is in proportion to the blocks that were found. */
LMC__COLD static enum lmc_status lmc__open_salvage(lmc_reader *r)
{
    lmc__salvage *const s = lmc__get_salvage(r);
    int had_index;
    lmc__visit_salvage(s, lmc__init_buffer, r->options.alloc_user);
    s->outer_run = UINT32_MAX;
    s->end = r->source.size;
    LMC__TRY(lmc__salvage_header(s));
    LMC__TRY(lmc__salvage_trailer(s));
    had_index = s->damage.has_index;
    LMC__TRY(lmc__walk_through(s));
    if (s->damage.has_index && !had_index)
        LMC__TRY(lmc__walk_through(s)); /* now that it is known */
    LMC__TRY(lmc__fill_tables(s));
    if (!s->damage.has_header && r->tables.listing.n_files == 0 && s->blocks.size == 0)
        return LMC_ERR_NOT_LMC;
    /* a file without a name is alone */
    if (r->tables.listing.n_files == 1 && lmc__file_at(r, 0)->is_described &&
        *lmc__file_at(r, 0)->file.path == 0 && lmc__file_at(r, 0)->file.size != LMC_UNKNOWN_SIZE)
        s->damage.is_complete = 1;
    LMC__TRY(lmc__add_verdicts(s));
    s->run = r->tables.listing.n_streams ? lmc__stream_at(&r->tables.listing, 0)->first_run : 0;
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->body);
    lmc__free_buffer(&s->view);
    return LMC_OK;
}

/* The reader's free_extra: what a salvage has beside its reader. Those freed above are empty. */
LMC__COLD static void lmc__free_salvage(lmc_reader *r)
{
    lmc__visit_salvage(lmc__get_salvage(r), lmc__free_visited, NULL);
}
#endif /* LMC_NO_SALVAGE */
