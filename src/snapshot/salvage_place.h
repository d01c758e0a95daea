#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/origin.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"

/* -- tables -- */

static void lmc__clear_tables(lmc_reader *r)
{
    size_t i;
    for (i = 0; i < r->n_files; i++) lmc__free_buffer(&lmc__file_at(r, i)->memory);
    r->n_files = r->n_metadata = 0;
    r->index.size = r->files.size = r->runs.size = r->block_at.size = r->keys.size =
        r->metadata.size = 0;
    lmc__free_buffer(&r->paths);
    r->salvage.sections.size = r->salvage.blocks.size = r->salvage.orphans.size = 0;
    memset(r->identity, 0, sizeof r->identity);
}

/* The index, if there is one at that place and it is this file's: sections before it are where it
 * says, or all of it is. Another file's could be part of a damaged block. What was found so far is
 * forgotten then, for all is searched again with its help. */
static enum lmc_status lmc__take_index(lmc_reader *r, uint64_t at, uint64_t size, int *is_foreign)
{
    lmc__salvage *const s = &r->salvage;
    lmc_reader found = *r;
    uint8_t first[LMC__SECTION_HEADER_SIZE];
    uint64_t offset;
    enum lmc_status status;
    found.index.data = found.files.data = found.runs.data = found.block_at.data = found.keys.data =
        found.metadata.data = found.paths.data = NULL;
    found.index.cap = found.files.cap = found.runs.cap = found.block_at.cap = found.keys.cap =
        found.metadata.cap = found.paths.cap = 0;
    found.index.size = found.files.size = found.runs.size = found.block_at.size = found.keys.size =
        found.metadata.size = found.paths.size = 0;
    found.n_files = found.n_metadata = 0;
    status = lmc__read_index(&found, at, size, &offset);
    if (status == LMC_OK && offset != at &&
        (!lmc__read_rest(r, LMC__HEADER_SIZE, first, sizeof first) ||
         memcmp(first, found.index.data + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + 8,
                sizeof first) != 0)) {
        *is_foreign = 1;
        status = LMC_ERR_CORRUPT;
    }
    if (status == LMC_OK) {
        lmc__section section;
        s->damage.n_sections =
            lmc__get_section(&section, found.index.data, r->coder->wave.k) != LMC_OK;
        s->damage.n_breaks = 0;
        lmc__clear_tables(r);
        lmc__free_buffer(&r->index);
        lmc__free_buffer(&r->files);
        lmc__free_buffer(&r->runs);
        lmc__free_buffer(&r->block_at);
        lmc__free_buffer(&r->keys);
        lmc__free_buffer(&r->metadata);
        r->index = found.index;
        r->files = found.files;
        r->runs = found.runs;
        r->block_at = found.block_at;
        r->keys = found.keys;
        r->metadata = found.metadata;
        r->paths = found.paths;
        r->n_files = found.n_files;
        r->n_metadata = found.n_metadata;
        memcpy(r->identity, found.identity, LMC_IDENTITY_SIZE);
        s->damage.has_index = s->damage.is_complete = 1;
        s->end = at;
        return LMC_OK;
    }
    lmc__clear_tables(&found); /* of what is shared, only the sizes in this copy */
    lmc__free_buffer(&found.index);
    lmc__free_buffer(&found.files);
    lmc__free_buffer(&found.runs);
    lmc__free_buffer(&found.block_at);
    lmc__free_buffer(&found.keys);
    lmc__free_buffer(&found.metadata);
    return status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE ? status : LMC_OK;
}

/* So many files and runs, of which nothing is known so far. */
static enum lmc_status lmc__extend_files(lmc_reader *r, size_t n)
{
    while (r->n_files < n) {
        lmc__reader_file *f;
        LMC__TRY(lmc__append(&r->files, NULL, sizeof *f));
        f = lmc__file_at(r, r->n_files++);
        f->memory.alloc_user = r->options.alloc_user;
        f->file.path = "";
        f->file.size = LMC_UNKNOWN_SIZE;
        f->first_run = r->runs.size / sizeof(lmc__reader_run);
    }
    return LMC_OK;
}

static enum lmc_status lmc__extend_runs(lmc_reader *r, size_t n)
{
    while (r->runs.size / sizeof(lmc__reader_run) < n) {
        lmc__reader_run *run;
        LMC__TRY(lmc__append(&r->runs, NULL, sizeof *run));
        run = lmc__run_at(r, r->runs.size / sizeof *run - 1);
        run->prediction = LMC_ERR_NOT_FOUND;
        run->run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK;
    }
    return LMC_OK;
}

/* A run belongs to a file, and lies behind all that did so before. */
static void lmc__give_run(lmc_reader *r, size_t number)
{
    lmc__reader_file *const f = lmc__file_at(r, lmc__run_at(r, number)->run.file_number);
    if (f->n_runs == 0) f->first_run = number;
    else if (number < f->first_run) {
        f->n_runs += f->first_run - number;
        f->first_run = number;
    }
    if (number - f->first_run >= f->n_runs) f->n_runs = number - f->first_run + 1;
}

/* Without an index: files and runs by their sections. Those that contradict what came before count
 * as lost. */
static enum lmc_status lmc__collect_sections(lmc_reader *r)
{
    const lmc__salvage *const s = &r->salvage;
    const lmc__found_section *const found =
        (const lmc__found_section *)(const void *)s->sections.data;
    const size_t n = s->sections.size / sizeof *found;
    size_t i, last_file = 0;
    uint64_t last_end = 0;
    for (i = 0; i < n; i++) {
        const uint8_t *const body = r->index.data + (size_t)found[i].body_at;
        const size_t size = (size_t)found[i].size;
        if (found[i].kind == LMC__KIND_FILE) {
            lmc__reader_file *f;
            enum lmc_status status;
            if (found[i].number < r->n_files) continue;
            LMC__TRY(lmc__extend_files(r, (size_t)found[i].number + 1));
            f = lmc__file_at(r, found[i].number);
            status = lmc__parse_file(&f->file, &f->memory, body, size);
            if (status == LMC_OK && found[i].number != 0 &&
                (*f->file.path == 0 ||
                 (lmc__file_at(r, 0)->is_described && *lmc__file_at(r, 0)->file.path == 0)))
                status = LMC_ERR_CORRUPT; /* a file without a name is alone: this is one of another
                                             snapshot */
            if (status == LMC_OK) status = lmc__add_path(&r->paths, found[i].number, f->file.path);
            if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
            f->is_described = status == LMC_OK;
            if (status == LMC_OK) continue;
            memset(&f->file, 0, sizeof f->file);
            f->file.path = "";
            f->file.size = LMC_UNKNOWN_SIZE;
        } else {
            lmc__reader_run *run;
            lmc__run parsed;
            uint32_t file_number;
            uint64_t position;
            if (found[i].number < r->runs.size / sizeof *run ||
                size < LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE)
                continue;
            file_number = lmc__load32(body + LMC__RUN_BODY_SIZE);
            position = lmc__load64(body + LMC__RUN_BODY_SIZE + 8);
            if (file_number > found[i].at / 56 || file_number < last_file ||
                (file_number == last_file && position < last_end))
                continue;
            if (position > LMC__MAX_FILE_SIZE) continue;
            LMC__TRY(lmc__extend_files(r, (size_t)file_number + 1));
            if (lmc__parse_run(&parsed, body, size, file_number,
                               &lmc__file_at(r, file_number)->file, &position) != LMC_OK)
                continue;
            LMC__TRY(lmc__extend_runs(r, (size_t)found[i].number + 1));
            run = lmc__run_at(r, found[i].number);
            run->run = parsed;
            run->prediction = LMC_OK;
            lmc__give_run(r, found[i].number);
            last_file = file_number;
            last_end = position;
        }
    }
    return LMC_OK;
}

/* -- orphans: blocks of runs whose sections are lost, or that are in the wrong place -- */

/* Where an unknown run begins, if that is certain: *file_number, *start. `number` is not known, and
 * the run before it, if there is one, is. */
static int lmc__locate_run(const lmc_reader *r, size_t number, size_t *file_number, uint64_t *start)
{
    const size_t n_runs = r->runs.size / sizeof(lmc__reader_run);
    const lmc__run *const before = number ? &lmc__run_at(r, number - 1)->run : NULL;
    const lmc__run *const behind =
        number + 1 < n_runs && lmc__run_at(r, number + 1)->prediction != LMC_ERR_NOT_FOUND
            ? &lmc__run_at(r, number + 1)->run
            : NULL;
    const lmc__reader_file *f;
    if (before && lmc__run_at(r, number - 1)->prediction == LMC_ERR_NOT_FOUND)
        return 0; /* nor where that one ends */
    *file_number = before ? before->file_number : 0;
    *start = before ? before->start + before->size : 0;
    if (behind && behind->file_number == *file_number) return behind->start > *start;
    if (*file_number >= r->n_files) return 0;
    f = lmc__file_at(r, *file_number);
    if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    if (*start < f->file.size) return 1;
    /* the next file that has bytes, if all up to that are known */
    do {
        if (++*file_number >= r->n_files) return 0;
        f = lmc__file_at(r, *file_number);
        if (!f->is_described || f->file.size == LMC_UNKNOWN_SIZE) return 0;
    } while (f->file.size == 0);
    *start = 0;
    return !behind || behind->file_number > *file_number ||
           (behind->file_number == *file_number && behind->start > 0);
}

/* The blocks of one unknown run: found blocks [first, first + n), sorted. If their place is
 * certain, the run gets it. */
static enum lmc_status lmc__place_run(lmc_reader *r, lmc__found_block *block, size_t n)
{
    const uint32_t number = block->run;
    uint64_t start, end, limit = LMC__MAX_FILE_SIZE;
    size_t file_number, i, largest = block[0].length;
    const lmc__reader_file *f;
    lmc__run run;
    LMC__TRY(lmc__extend_runs(r, (size_t)number + 1));
    if (!lmc__locate_run(r, number, &file_number, &start)) return LMC_OK;
    for (i = 0; i + 1 < n && block[i].block == block[i + 1].block; i++) {} /* copies */
    if (i + 1 == n && block[0].block != 0)
        return LMC_OK; /* a lone block, which might be the last: of what size the others are is not
                          known */
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
    if ((size_t)number + 1 < r->runs.size / sizeof(lmc__reader_run)) {
        const lmc__reader_run *const behind = lmc__run_at(r, (size_t)number + 1);
        if (behind->run.size != 0 && behind->run.file_number == file_number)
            limit = behind->run.start;
    }
    if (start > limit || block[n - 1].block > (limit - start) / largest) return LMC_OK;
    end = start + block[n - 1].block * (uint64_t)largest;
    if (block[n - 1].length > limit - end) return LMC_OK;
    memset(&run, 0, sizeof run);
    run.start = start;
    run.size = end + block[n - 1].length - start;
    run.block_size = largest;
    run.n_blocks = (uint64_t)block[n - 1].block + 1;
    run.file_number = file_number;
    lmc__run_at(r, number)->run = run; /* its prediction stays LMC_ERR_NOT_FOUND */
    lmc__give_run(r, number);
    return LMC_OK;
}

/* Finds the runs of orphans. */
static enum lmc_status lmc__adopt_orphans(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    lmc__orphan *const o = (lmc__orphan *)(void *)s->orphans.data;
    uint64_t tries = 0;
    size_t i, j, n_left = 0;
    for (i = 0; i < n; i++) {
        const size_t first = o[i].after ? o[i].after - 1 : 0;
        int is_found = 0;
        for (j = 0; j < n_runs && tries < (uint64_t)1 << 26 && !is_found;
             j++, tries++) { /* of known runs; those that follow first */
            const size_t number = (first + j) % n_runs;
            o[i].block.block = o[i].state ^ lmc__run_state(k, (uint32_t)number);
            is_found = lmc__run_at(r, number)->prediction != LMC_ERR_NOT_FOUND &&
                       lmc__fits_run(&lmc__run_at(r, number)->run, lmc__run_at(r, number)->blocks,
                                     &o[i].block);
            if (is_found) o[i].block.run = (uint32_t)number;
        }
        if (is_found) {
            if (o[i].block.trust == 2) o[i].block.trust = 1;
            LMC__TRY(lmc__append(&s->blocks, &o[i].block, sizeof o[i].block));
        } else o[n_left++] = o[i];
    }
    s->orphans.size = n_left * sizeof *o;
    if (s->damage.has_index) s->orphans.size = 0; /* all runs are known: these are none of theirs */
    return LMC_OK;
}

/* Of runs that nobody knows: the one number between those known for which the block's number is not
 * beyond what the bytes since then can hold. */
static enum lmc_status lmc__number_orphans(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n = s->orphans.size / sizeof(lmc__orphan),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    const lmc__orphan *const o = (const lmc__orphan *)(const void *)s->orphans.data;
    lmc__buffer numbered;
    enum lmc_status status = LMC_OK;
    lmc__found_block *block;
    size_t i, j, first;
    memset(&numbered, 0, sizeof numbered);
    numbered.alloc_user = r->options.alloc_user;
    for (i = 0; i < n && status == LMC_OK; i++) {
        const uint64_t most = o[i].block.at < o[i].after_at
                                  ? 0
                                  : (o[i].block.at - o[i].after_at) / (LMC_BLOCK_HEADER_SIZE + 1);
        const size_t from =
            o[i].after && (o[i].after > n_runs ||
                           lmc__run_at(r, o[i].after - 1)->prediction == LMC_ERR_NOT_FOUND)
                ? o[i].after - 1
                : o[i].after;
        lmc__found_block found = o[i].block;
        unsigned n_found = 0;
        for (j = from; j < from + 16 && j <= UINT32_MAX &&
                       (j >= n_runs || lmc__run_at(r, j)->prediction == LMC_ERR_NOT_FOUND);
             j++) {
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

/* Of the blocks that were found under one number, keeps the best and its copies; sets what is not
 * known yet of their worth. */
static void lmc__choose_blocks(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const size_t n_found = s->blocks.size / sizeof(lmc__found_block),
                 n_runs = r->runs.size / sizeof(lmc__reader_run);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    size_t i, j, n = 0, n_kept = 0;
    for (i = 0; i < n_found; i++) { /* without an index, two sections may have had the number:
                                       blocks of the one that was not taken go */
        const lmc__reader_run *const run = f[i].run < n_runs ? lmc__run_at(r, f[i].run) : NULL;
        if (!run || run->run.size == 0 || lmc__fits_run(&run->run, run->blocks, &f[i]))
            f[n++] = f[i];
    }
    for (i = 0; i < n && s->damage.has_index; i++)
        if (f[i].at == lmc__block_at(r)[lmc__run_at(r, f[i].run)->first_block + f[i].block])
            f[i].trust = 3;
    lmc__sort_found(f, n);
    for (i = 0; i < n; i = j) {
        const lmc__found_block best = f[i];
        size_t n_copies = 0;
        f[n_kept] = best;
        for (j = i + 1; j < n && f[j].run == best.run && f[j].block == best.block; j++) {
            if (f[j].crc == best.crc && f[j].length == best.length) {
                if (++n_copies < LMC__MAX_COPIES) f[n_kept + n_copies] = f[j]; /* at or before j */
            } else if (f[j].trust == best.trust || (f[j].trust == 1 && best.trust == 2))
                f[n_kept].is_doubtful = 1;
        }
        n_kept += 1 + lmc__min(n_copies, LMC__MAX_COPIES - 1);
    }
    s->blocks.size = n_kept * sizeof *f;
    s->n_blocks = n_kept;
}

/* Blocks of runs without a place go behind the others, which stay sorted. */
static enum lmc_status lmc__part_blocks(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__buffer unplaced;
    enum lmc_status status = LMC_OK;
    size_t i, n_kept = 0;
    memset(&unplaced, 0, sizeof unplaced);
    unplaced.alloc_user = r->options.alloc_user;
    for (i = 0; i < s->n_blocks && status == LMC_OK; i++) {
        if (f[i].run < r->runs.size / sizeof(lmc__reader_run) &&
            lmc__run_at(r, f[i].run)->run.size != 0)
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

/* Starts of unknown runs within a file, for searching; and what each run is predicted by. */
static enum lmc_status lmc__finish_runs(lmc_reader *r)
{
    size_t i, j;
    for (i = 0; i < r->n_files; i++) {
        lmc__reader_file *const f = lmc__file_at(r, i);
        uint64_t end = 0;
        for (j = f->first_run; j < f->first_run + f->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.size == 0) {
                run->run.start = end;
                run->run.file_number = i;
            }
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK && run->run.prediction == LMC__PREDICT_BASE &&
                !r->origin.base)
                run->prediction = LMC_ERR_BASE_MISSING;
            else if (run->prediction == LMC_OK)
                run->prediction = lmc__check_origin(&r->origin, &run->run);
            /* the header that would have told whose base it is may be lost */
            if (run->prediction == LMC_ERR_CORRUPT && run->run.prediction == LMC__PREDICT_BASE)
                run->prediction = LMC_ERR_BASE_WRONG;
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}

static enum lmc_status lmc__open_salvage(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    const uint64_t total = r->source.size;
    const lmc__kernels *const k = r->coder->wave.k;
    uint8_t header[LMC__HEADER_SIZE], trailer[LMC__TRAILER_SIZE];
    size_t i, n = 0;
    int had_index = 0;
    s->view.alloc_user = s->sections.alloc_user = s->blocks.alloc_user = s->orphans.alloc_user =
        r->options.alloc_user;
    s->container.alloc_user = s->range.alloc_user = s->confirmed.alloc_user = r->options.alloc_user;
    s->container_run = UINT32_MAX;
    s->end = total;
    if (total >= LMC__HEADER_SIZE && lmc__read_rest(r, 0, header, sizeof header)) {
        const enum lmc_status status = lmc__check_header(header, k);
        /* what its CRC confirms is no damage */
        if (k->crc32c(0, header, 76) == lmc__load32(header + 76) &&
            (status == LMC_ERR_VERSION || status == LMC_ERR_UNSUPPORTED))
            return status;
        s->damage.has_header = status == LMC_OK;
        if (status == LMC_OK) lmc__keep_header(r, header);
        if (status == LMC_OK && r->origin.base) LMC__TRY(lmc__check_base(&r->origin, header));
    }
    if (total >= LMC__HEADER_SIZE + LMC__TRAILER_SIZE &&
        lmc__read_rest(r, total - LMC__TRAILER_SIZE, trailer, sizeof trailer)) {
        const uint64_t index_size = lmc__load64(trailer + 8);
        const uint64_t index_at =
            index_size <= total - LMC__TRAILER_SIZE ? total - LMC__TRAILER_SIZE - index_size : 0;
        s->damage.has_trailer =
            lmc__check_trailer(trailer, index_at, index_size, total, k) == LMC_OK &&
            index_at >= LMC__HEADER_SIZE;
        if (s->damage.has_trailer) s->end = index_at;
        if (memcmp(trailer + 32, lmc__end_magic, 8) == 0 &&
            k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28) && index_at >= LMC__HEADER_SIZE)
            LMC__TRY(lmc__take_index(r, index_at, index_size, &had_index));
        had_index = s->damage.has_index;
    }
    LMC__TRY(lmc__walk_through(r));
    if (s->damage.has_index && !had_index)
        LMC__TRY(lmc__walk_through(r)); /* now that it is known */
    if (!s->damage.has_index) LMC__TRY(lmc__collect_sections(r));
    LMC__TRY(lmc__adopt_orphans(r));
    if (!s->damage.has_index) LMC__TRY(lmc__number_orphans(r));
    lmc__choose_blocks(r);
    LMC__TRY(lmc__part_blocks(r));
    LMC__TRY(lmc__finish_runs(r));
    if (!s->damage.has_header && r->n_files == 0 && s->blocks.size == 0) return LMC_ERR_NOT_LMC;
    /* a file without a name is alone */
    if (r->n_files == 1 && lmc__file_at(r, 0)->is_described &&
        *lmc__file_at(r, 0)->file.path == 0 && lmc__file_at(r, 0)->file.size != LMC_UNKNOWN_SIZE)
        s->damage.is_complete = 1;
    for (i = 0; i < r->n_files; i++) {
        lmc__file_at(r, i)->confirmed_at = n;
        n += 1 + lmc__file_at(r, i)->file.n_tensors;
    }
    LMC__TRY(lmc__append(&s->confirmed, NULL, n));
    s->run = r->n_files ? lmc__file_at(r, 0)->first_run : 0;
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->view);
    return LMC_OK;
}

static void lmc__free_salvage(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    lmc__free_buffer(&s->view);
    lmc__free_buffer(&s->sections);
    lmc__free_buffer(&s->blocks);
    lmc__free_buffer(&s->orphans);
    lmc__free_buffer(&s->container);
    lmc__free_buffer(&s->range);
    lmc__free_buffer(&s->confirmed);
}
