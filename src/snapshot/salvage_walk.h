#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "snapshot/buffer.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"
#include "snapshot/salvage_place.h"
#include "snapshot/salvage_index.h"

/* The walk through a damaged file, from front to back. At each byte a section or a block may begin.
 * What is found decides where the search continues:
 *     an intact section                        after it
 *     a block that its successor follows       after it
 *     another block that is intact             after it: headers in its payload are content
 *     a damaged block                          one byte further, since its size may be wrong
 *
 *     |--- header ---|------------ payload of block 7 ------------|
 *     ^ at                                                        ^ last_end: block 8? If not,
 *      ^ the search goes on here unless block 7 is intact           block 7 is decoded to find out
 *
 * A section must have the right Head_CRC. If its body is damaged, the section must begin where the
 * last section or block that was found ends.
 *
 * Without an index the walk also fills the tables (salvage_place.h). A block belongs to the current
 * run if its number and size fit, and numbers rise. */
typedef struct lmc__walk {
    uint64_t at, last_end; /* Where the walk is; where the last find (section or block) ends. */
    /* The number of the block that should come next; the first block after the last gap. */
    uint64_t next_block;
    size_t chain;
    /* -- without an index: the last stream -- */
    /* Bytes of its known runs; the run after its last unknown run. */
    uint64_t covered;
    size_t certain;
    int is_ended; /* 1: BLKS was found, so all streams have ended. */
} lmc__walk;

/* Whether w->at is where the last section or block that was found ends. */
static int lmc__is_linked(const lmc__walk *w) { return w->at == w->last_end; }

/* -- without an index: makes runs from what is found -- */

/* The number of the current run: the run of the last section, or of the blocks after it. SIZE_MAX:
 * the stream has no run. */
static size_t lmc__run_at_hand(const lmc_reader *r)
{
    const lmc__listing *const l = &r->tables.listing;
    return l->n_streams && lmc__stream_at(l, l->n_streams - 1)->n_runs
               ? lmc__count_runs(&r->tables) - 1
               : SIZE_MAX;
}

/* Whether all blocks of the current run were found, or their number is not known. */
static int lmc__is_run_complete(const lmc_reader *r, const lmc__walk *w)
{
    const size_t number = lmc__run_at_hand(r);
    return number == SIZE_MAX || !lmc__is_known_run(r, number) ||
           w->next_block == lmc__run_at(r, number)->run.n_blocks;
}

/* Adds an unknown run, which becomes the current run. */
static enum lmc_status lmc__begin_unknown_run(lmc_reader *r, lmc__walk *w)
{
    w->next_block = 0;
    LMC__TRY(lmc__add_found_run(r, NULL));
    w->certain = lmc__count_runs(&r->tables);
    return LMC_OK;
}

/* The blocks since the last gap do not end where the current run ends, so they belong to another
 * run. Moves them to an unknown run. */
static enum lmc_status lmc__move_chain(lmc_salvage *s, lmc__walk *w)
{
    size_t i;
    LMC__TRY(lmc__begin_unknown_run(&s->reader, w));
    for (i = w->chain; i < lmc__count_found(s); i++)
        lmc__found_at(s, i)->key = (uint64_t)(lmc__count_runs(&s->reader.tables) - 1) << 32 |
                                   (lmc__found_at(s, i)->key & UINT32_MAX);
    return LMC_OK;
}

/* A section FILE, RUN or BLKS begins at w->at. If another section may be lost before it, adds an
 * unknown run. */
static enum lmc_status lmc__end_run(lmc_salvage *s, lmc__walk *w)
{
    if (s->reader.tables.listing.n_streams == 0) return LMC_OK;
    if (lmc__is_linked(w) && !lmc__is_run_complete(&s->reader, w) && w->chain != SIZE_MAX)
        LMC__TRY(lmc__move_chain(s, w));
    if (!lmc__is_linked(w) || !lmc__is_run_complete(&s->reader, w))
        LMC__TRY(lmc__begin_unknown_run(&s->reader, w));
    w->chain = SIZE_MAX;
    return LMC_OK;
}

/* Adds a stream for a lost FILE section. The new stream gets the runs after the last unknown run,
 * because they do not fit into the last stream. */
static enum lmc_status lmc__split_stream(lmc_reader *r, lmc__walk *w)
{
    lmc__listing *const l = &r->tables.listing;
    lmc__stream *stream;
    size_t i, n;
    LMC__TRY(lmc__add_unknown_stream(r));
    stream = lmc__stream_at(l, l->n_streams - 1);
    n = w->certain > stream[-1].first_run ? lmc__count_runs(&r->tables) - w->certain : 0;
    stream[-1].n_runs -= n;
    stream->n_runs = n;
    stream->first_run -= n;
    w->covered = 0;
    for (i = 0; i < n; i++) w->covered += lmc__run_at(r, stream->first_run + i)->run.size;
    return LMC_OK;
}

/* Takes a RUN body. If it breaks the rules, adds an unknown run. */
static enum lmc_status lmc__take_run(lmc_salvage *s, lmc__walk *w, const uint8_t *body, size_t size)
{
    lmc_reader *const r = &s->reader;
    lmc__tables *const t = &r->tables;
    const size_t n_segments = t->segments.size;
    const lmc__stream *stream;
    uint64_t position = 0;
    enum lmc_status status;
    lmc__run run;
    lmc__cursor c;
    c.p = body;
    c.end = body + size;
    if (t->listing.n_streams == 0) LMC__TRY(lmc__add_unknown_stream(r));
    w->next_block = 0;
    if (lmc__get_run(&c, &run) != LMC_OK) return lmc__begin_unknown_run(r, w);
    stream = lmc__stream_at(&t->listing, t->listing.n_streams - 1);
    if (run.size > lmc__min64(stream->size, LMC__MAX_FILE_SIZE) - w->covered)
        LMC__TRY(lmc__split_stream(r, w));
    if (run.size > LMC__MAX_FILE_SIZE - w->covered) return lmc__begin_unknown_run(r, w);
    status = lmc__parse_run(&run, &t->segments, body, size, &t->listing, t->listing.n_streams - 1,
                            &position);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    if (status != LMC_OK) {
        t->segments.size = n_segments;
        return lmc__begin_unknown_run(r, w);
    }
    w->covered += run.size;
    return lmc__add_found_run(r, &run);
}

/* Takes a FILE body. If it breaks the rules, adds a file of which nothing is known. */
static enum lmc_status lmc__take_files(lmc_salvage *s, lmc__walk *w, const uint8_t *body,
                                       size_t size)
{
    lmc__listing *const l = &s->reader.tables.listing;
    const enum lmc_status status = lmc__list_files(l, body, size);
    w->next_block = w->covered = 0;
    w->certain = lmc__count_runs(&s->reader.tables);
    if (status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE) return status;
    if (status != LMC_OK) return lmc__add_unknown_stream(&s->reader);
    lmc__stream_at(l, l->n_streams - 1)->first_run = w->certain;
    return LMC_OK;
}

/* Without an index: fills the tables from a section. */
static enum lmc_status lmc__take_section(lmc_salvage *s, lmc__walk *w, const lmc__section *section,
                                         int is_intact)
{
    const size_t size = is_intact ? (size_t)section->size : 0;
    if (lmc__is_ancillary(section) || lmc__is_kind(section, "INDX")) return LMC_OK;
    LMC__TRY(lmc__end_run(s, w));
    if (lmc__is_kind(section, "BLKS")) {
        w->is_ended = 1;
        s->damage.is_complete = s->damage.n_breaks == 0 && lmc__is_linked(w);
        s->rows_at = w->at + LMC__SECTION_HEADER_SIZE;
        s->n_rows = is_intact && size % LMC__BLOCK_ENTRY_SIZE == 0 ? size / LMC__BLOCK_ENTRY_SIZE
                                                                   : UINT64_MAX;
        return LMC_OK;
    }
    w->is_ended = 0;
    s->body.size = 0;
    LMC__TRY(lmc__reserve(&s->body, size + 1)); /* so that data is not NULL */
    (void)lmc__read_rest(&s->reader, w->at + LMC__SECTION_HEADER_SIZE, s->body.data, size);
    return lmc__is_kind(section, "FILE") ? lmc__take_files(s, w, s->body.data, size)
                                         : lmc__take_run(s, w, s->body.data, size);
}

/* *run_number: the run of a block of that number and size: the current run, or a new unknown run. A
 * lower number than expected is accepted only directly after the last block: one of the two blocks
 * was moved, or is of another file. After a complete run, number 0 begins another run. */
static enum lmc_status lmc__take_block(lmc_salvage *s, lmc__walk *w, uint32_t number, size_t length,
                                       size_t *run_number)
{
    lmc_reader *const r = &s->reader;
    const size_t at_hand = lmc__run_at_hand(r);
    const lmc__run *const run = at_hand == SIZE_MAX ? NULL : &lmc__run_at(r, at_hand)->run;
    if (!run || (lmc__is_known_run(r, at_hand)
                     ? number >= run->n_blocks || lmc__block_size_at(run, number) != length ||
                           (number < w->next_block &&
                            (!lmc__is_linked(w) || (number == 0 && w->next_block == run->n_blocks)))
                     : number < w->next_block &&
                           (!lmc__is_linked(w) || (number == 0 && w->next_block > 1))))
        LMC__TRY(lmc__begin_unknown_run(r, w));
    *run_number = lmc__count_runs(&r->tables) - 1;
    return LMC_OK;
}

/* -- with an index, but not its rows -- */

/* The run that has a block of that number and size at this place; SIZE_MAX: none. After the first
 * break, places count as moved by s->shift, as the index is. */
static size_t lmc__run_of_place(const lmc_salvage *s, const lmc__walk *w, uint32_t number,
                                size_t length)
{
    const lmc_reader *const r = &s->reader;
    const lmc__reader_run *run;
    const uint64_t at = s->damage.n_breaks || !lmc__is_linked(w) ? w->at - s->shift : w->at;
    size_t i;
    LMC__FIND_FIRST(i, 0, lmc__count_runs(&r->tables), lmc__run_at(r, i)->end <= at);
    if (i == lmc__count_runs(&r->tables)) return SIZE_MAX;
    run = lmc__run_at(r, i);
    return at >= run->at && number < run->run.n_blocks &&
                   lmc__block_size_at(&run->run, number) == length
               ? i
               : SIZE_MAX;
}

/* -- headers -- */

/* *is_intact: whether a block with a right header is intact; its prediction is not read. */
static enum lmc_status lmc__check_block(lmc_salvage *s, const lmc_block_info *info, uint64_t at,
                                        int *is_intact)
{
    lmc_reader *const r = &s->reader;
    lmc__coder *const c = r->coder;
    enum lmc_status status;
    *is_intact = 0;
    if (!lmc__may_claim(s, (uint64_t)info->encoded_size + info->size)) return LMC_OK;
    LMC__TRY(lmc__set_coder(c, info->size, 1, 0));
    c->in[0].size = s->range.size = 0;
    LMC__TRY(lmc__reserve(&c->in[0], info->encoded_size));
    LMC__TRY(lmc__reserve(&s->range, info->size));
    if (lmc__read_at(r, at, c->in[0].data, info->encoded_size) != LMC_OK) return LMC_OK;
    status = lmc__decode_block(c->wave.k, s->range.data, lmc__no_streaming, c->in[0].data, info,
                               NULL, 0, c->wave.workspaces, c->wave.workspace_size);
    *is_intact = status == LMC_OK || status == LMC_ERR_BASE_MISSING;
    return LMC_OK;
}

/* The bytes at p look like the header of a block. *step: bytes to advance; 0: it is no block. */
static enum lmc_status lmc__look_at_block(lmc_salvage *s, lmc__walk *w, const uint8_t *p,
                                          uint64_t *step)
{
    const uint64_t most = s->damage.has_index ? s->reader.tables.n_rows
                                              : s->reader.source.size / (LMC_BLOCK_HEADER_SIZE + 1);
    const uint32_t header_crc = lmc__load32(p + LMC__BLOCK_CRC_AT);
    lmc_block_info info, next;
    uint32_t number;
    lmc__found_block f;
    size_t run = 0, n;
    int is_passed = 0, is_next;
    if (lmc__parse_block_info(p, &info) != LMC_OK ||
        info.encoded_size > s->reader.source.size - w->at ||
        info.encoded_size <= LMC_BLOCK_HEADER_SIZE)
        return LMC_OK;
    number = lmc__number_of(p);
    if (number >= most) return LMC_OK;
    is_next = lmc__is_linked(w) && number == w->next_block;
    if (!s->damage.has_index) LMC__TRY(lmc__take_block(s, w, number, info.size, &run));
    else if (!s->has_rows) run = lmc__run_of_place(s, w, number, info.size);
    if (run == SIZE_MAX) return LMC_OK;
    memset(&f, 0, sizeof f);
    f.key = s->damage.has_index && s->has_rows ? info.encoded_size | (uint64_t)header_crc << 32
                                               : (uint64_t)run << 32 | number;
    f.at = w->at;
    f.size = (uint32_t)info.encoded_size;
    f.length = (uint32_t)info.size;
    f.crc = info.crc;
    f.header_crc = header_crc;
    f.has_prediction = (uint8_t)info.has_prediction;
    s->damage.n_breaks += !is_next;
    if (!lmc__is_linked(w)) w->chain = lmc__count_found(s);
    LMC__TRY(lmc__append(&s->blocks, &f, sizeof f));
    w->last_end = w->at + f.size;
    w->next_block = (uint64_t)number + 1;
    *step = 1;
    if (s->end >= w->last_end && s->end - w->last_end >= LMC_BLOCK_HEADER_SIZE) {
        LMC__TRY(lmc__view(s, w->last_end, LMC_BLOCK_HEADER_SIZE, 4096, &p, &n));
        is_passed = p[0] == LMC__BLOCK_SYNC && lmc__parse_block_info(p, &next) == LMC_OK &&
                    lmc__number_of(p) == w->next_block;
    }
    if (!is_passed) LMC__TRY(lmc__check_block(s, &info, w->at, &is_passed));
    if (is_passed) *step = f.size;
    return LMC_OK;
}

/* The bytes at p look like the header of a section. Its Head_CRC must be right, and the section
 * must end within the file. *step: bytes to advance; 0: it is no section. */
static enum lmc_status lmc__look_at_section(lmc_salvage *s, lmc__walk *w, const uint8_t *p,
                                            uint64_t *step)
{
    lmc_reader *const r = &s->reader;
    lmc__section section;
    uint64_t size;
    int is_intact;
    if (lmc__get_section(&section, p, r->coder->wave.k) != LMC_OK ||
        section.size > r->source.size - w->at - LMC__SECTION_HEADER_SIZE ||
        !lmc__may_claim(s, section.size))
        return LMC_OK;
    if (!lmc__is_ancillary(&section) && section.size > lmc__index_limit(r)) return LMC_OK;
    size = LMC__SECTION_HEADER_SIZE + section.size;
    is_intact =
        lmc__crc_of_file(s, w->at + LMC__SECTION_HEADER_SIZE, section.size) == section.body_crc;
    if (!is_intact && !lmc__is_linked(w)) return LMC_OK;
    if (is_intact && lmc__is_kind(&section, "INDX") && !s->damage.has_index) {
        LMC__TRY(lmc__take_index(s, w->at, size, 0));
        if (s->damage.has_index) return LMC_OK;
    }
    if (!s->damage.has_index) LMC__TRY(lmc__take_section(s, w, &section, is_intact));
    else if (lmc__is_kind(&section, "RUN ")) w->next_block = 0;
    s->damage.n_breaks += !lmc__is_linked(w);
    s->damage.n_sections += !is_intact;
    w->last_end = w->at + size;
    *step = is_intact ? size : 1;
    return LMC_OK;
}

/* The whole walk. When it finds the index, it begins again and uses the index. The search stops
 * only at bytes with which a header can begin. */
LMC__COLD static enum lmc_status lmc__walk_through(lmc_salvage *s)
{
    const int had_index = s->damage.has_index;
    uint8_t is_first[256]; /* bytes with which a header begins */
    lmc__walk w;
    memset(is_first, 0, sizeof is_first);
    is_first[LMC__BLOCK_SYNC] = is_first[(uint8_t)'F'] = is_first[(uint8_t)'R'] =
        is_first[(uint8_t)'B'] = is_first[(uint8_t)'I'] = 1;
    memset(&is_first[(uint8_t)'a'], 1, 'z' - 'a' + 1);
    memset(&w, 0, sizeof w);
    w.last_end = LMC__HEADER_SIZE;
    w.at = s->damage.has_header ? LMC__HEADER_SIZE : 0;
    w.chain = SIZE_MAX;
    while (w.at < s->end && s->end - w.at >= LMC__SECTION_HEADER_SIZE) {
        const size_t wanted = (size_t)lmc__min64(LMC_BLOCK_HEADER_SIZE, s->end - w.at);
        uint64_t step = 0; /* 0: nothing begins here */
        const uint8_t *p;
        size_t n;
        LMC__TRY(lmc__view(s, w.at, wanted, lmc__is_linked(&w) ? 4096 : (size_t)256 << 10, &p, &n));
        if (p[0] != LMC__BLOCK_SYNC) {
            if (is_first[p[0]]) LMC__TRY(lmc__look_at_section(s, &w, p, &step));
        } else if (wanted == LMC_BLOCK_HEADER_SIZE) {
            LMC__TRY(lmc__look_at_block(s, &w, p, &step));
        }
        if (s->damage.has_index != had_index) return lmc__walk_through(s); /* uses the index */
        if (step == 0) {
            LMC__TRY(lmc__view(s, w.at, 1, 0, &p, &n));
            for (step = 1; step < n && !is_first[p[step]]; step++) {}
        }
        w.at += step;
    }
    s->damage.n_breaks += w.last_end != s->end && (s->damage.has_index || s->damage.has_trailer);
    if (!s->damage.has_index && !w.is_ended && s->reader.tables.listing.n_streams)
        LMC__TRY(lmc__begin_unknown_run(&s->reader, &w));
    return LMC_OK;
}
