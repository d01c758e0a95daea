#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "codec/get_block.h"
#include "snapshot/buffer.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"
#ifndef LMC_NO_SALVAGE

/* The walk through a damaged file: from front to back, from one thing (section or block) to the
 * next, and where that fails, byte by byte until something is found again.
 *
 *     state      what holds                            next: a section  a block    neither
 *     IN_ROW     `at` is where the last thing ends;    IN_ROW           IN_ROW     break
 *                nothing was missing since a section
 *     LINKED     `at` is where the last thing ends;    IN_ROW           LINKED     break
 *                the row began with a block
 *     SEARCHING  anything may begin at any byte        IN_ROW           LINKED     one byte on
 *     ENDED      the index, or the file's end
 *
 * The walk begins LINKED, behind the file's header.
 *
 * While linked, only what *should* follow is taken (lmc__is_next): if something else stands there,
 * what is between may lie in the bytes of the last thing, which was shortened. While searching, a
 * section is taken only if its body is intact, as nothing but its own header speaks for it.
 *
 * A break (lmc__break_link) searches on from `resume`, behind the last thing's *header*: its size
 * may be damaged, or bytes of it lost, so the next thing may begin anywhere behind. Only the body
 * of an intact section is passed over. If the last thing was a block, the bytes up to where it
 * would end are its *outer* block's: what is found there may be content, and is trusted least.
 *
 *     |--- header ---|------------ payload of block 7 ------------|
 *                    ^ resume                                     ^ at: nothing that fits
 *                    |<---------- searched again: outer = 7 ------>|
 *
 * At the end of the file, linked: ENDED if all blocks of the last run were there, else a break: the
 * last thing may be longer than it was. Searching: ENDED.
 *
 * Every step moves `at` forwards, but for breaks. Those are bounded: one needs a thing found since
 * the last, and moves to behind that thing's header; and what is read twice for it is counted
 * (lmc__may_claim). */
enum lmc__walk_state { LMC__LINKED, LMC__IN_ROW, LMC__SEARCHING, LMC__ENDED };

/* What was found last. */
enum lmc__walk_last { LMC__LAST_NOTHING, LMC__LAST_FILE, LMC__LAST_RUN, LMC__LAST_BLOCK };

typedef struct lmc__walk {
    enum lmc__walk_state state;
    enum lmc__walk_last last;
    /* Where it is. Linked: where the last thing ends. */
    uint64_t at;
    /* Of the last thing: so many bytes a break reads again, and from here on. */
    uint64_t last_size, resume;
    /* The block in which the search began: where it would end; its numbers. */
    uint64_t outer_end;
    uint32_t outer_run, outer_block;
    /* Number of the FILE section that should come next. */
    uint32_t next_file;

    /* -- the run at hand: the last whose section, or one of whose blocks, was found -- */
    /* Its number, plus 1; 0: none yet. */
    uint32_t after;
    /* No section can have been lost since. The FILE section at hand has had no run so far. */
    int is_after_known, is_stream_start;
    /* Where its section ended, if that was found. */
    uint64_t after_at;
    /* The block that should come next, of so many; 0: it is not known of how many. */
    uint64_t next_block, n_blocks;
    /* Without an index: its section was intact, so it is known. */
    int has_run;
    lmc__run run;
} lmc__walk;

/* Something should begin right here. */
static int lmc__is_linked(const lmc__walk *w) { return w->state != LMC__SEARCHING; }

/* A section that stands where the last thing ends is also what should follow that: the next one in
 * its numbers, and not before all blocks of the run. While searching, any may be. */
static int lmc__is_next(const lmc_salvage *s, const lmc__walk *w, const lmc__section *section)
{
    if (!lmc__is_linked(w)) return 1;
    if (w->n_blocks != 0 && w->next_block != w->n_blocks) return 0;
    if (lmc__is_kind(section, "INDX") || lmc__is_ancillary(section)) return 1;
    if (!lmc__is_kind(section, "FILE"))
        return section->number == w->after ||
               (section->number > w->after && !w->is_after_known && !s->damage.has_index &&
                w->last == LMC__LAST_FILE); /* those in between are lost */
    if (section->number != w->next_file) return 0;
    /* with an index it is known which runs stand before it */
    return !s->damage.has_index ||
           (section->number < s->reader.tables.listing.n_streams &&
            lmc__stream_at(&s->reader.tables.listing, section->number)->first_run == w->after);
}

/* Keeps what a section tells, where there is no index; body_at: in tables.index. */
static enum lmc_status lmc__keep_section(lmc_salvage *s, const lmc__walk *w,
                                         const lmc__section *section, int kind, size_t body_at,
                                         int is_intact)
{
    lmc__found_section found;
    found.kind = kind;
    found.is_intact = is_intact;
    found.has_copy = 0;
    found.at = w->at;
    found.body_at = body_at;
    found.size = section->size;
    found.number = section->number;
    found.after = UINT32_MAX;
    if (lmc__is_linked(w) && kind == LMC__KIND_RUN && w->is_stream_start) found.after = 0;
    if (lmc__is_linked(w) && kind != LMC__KIND_RUN && w->is_after_known) found.after = w->after;
    return lmc__append(&s->sections, &found, sizeof found);
}

/* An INDX section. If it is intact and this file's, its tables replace what was found, and all is
 * searched again with their help. Damaged, where it should be, it is the end as well. Elsewhere it
 * is part of something else. *step: its size, if it is the end. */
static enum lmc_status lmc__meet_index(lmc_salvage *s, lmc__walk *w, const lmc__section *section,
                                       uint64_t *step)
{
    const uint64_t size = LMC__SECTION_HEADER_SIZE + section->size;
    int is_foreign = 0;
    if (s->damage.has_index || section->number != 0 || !lmc__may_claim(s, section->size))
        return LMC_OK; /* where the index that is known begins the walk ends */
    LMC__TRY(lmc__take_index(s, w->at, size, &is_foreign));
    if (!s->damage.has_index) {
        if (!lmc__is_linked(w) || is_foreign) return LMC_OK;
        s->damage.is_complete = s->damage.n_breaks == 0;
        LMC__TRY(lmc__keep_section(s, w, section, LMC__KIND_INDEX, 0, 0));
    }
    w->state = LMC__ENDED; /* nothing follows it, be it damaged or not */
    s->end = w->at;
    *step = size;
    return LMC_OK;
}

/* The run at hand is now the one whose section begins at w->at. How many blocks it has is known by
 * the index, or by the section's body, if that is intact; else body is NULL. */
static void lmc__begin_walked_run(lmc_salvage *s, lmc__walk *w, const lmc__section *section,
                                  const uint8_t *body)
{
    w->after = section->number + 1;
    w->is_after_known = 1;
    w->is_stream_start = 0;
    w->after_at = w->at + LMC__SECTION_HEADER_SIZE + section->size;
    if (s->damage.has_index) {
        if (section->number < lmc__count_runs(&s->reader.tables))
            w->n_blocks = lmc__run_at(&s->reader, section->number)->run.n_blocks;
    } else if (body) {
        lmc__cursor c;
        c.p = body;
        c.end = body + (size_t)section->size;
        w->has_run = lmc__get_run(&c, &w->run) == LMC_OK;
        if (w->has_run) w->n_blocks = w->run.n_blocks;
    }
}

/* A FILE or RUN section. A damaged one is taken where it should be, since its header is right; so
 * the walk stays linked. *step: its size, if it is taken. */
static enum lmc_status lmc__meet_section(lmc_salvage *s, lmc__walk *w, const lmc__section *section,
                                         uint64_t *step)
{
    lmc_reader *const r = &s->reader;
    const uint64_t size = LMC__SECTION_HEADER_SIZE + section->size;
    const int is_file = lmc__is_kind(section, "FILE");
    /* without an index bodies are kept, one behind the other */
    lmc__buffer *const kept = s->damage.has_index ? &s->body : &r->tables.index;
    const uint8_t *body;
    int is_intact;
    /* a section before it takes so many bytes at least */
    if (section->number > w->at / 28 + 1) return LMC_OK;
    if (!lmc__may_claim(s, section->size)) return LMC_OK;
    if (s->damage.has_index) kept->size = 0;
    LMC__TRY(lmc__reserve(kept, section->size + 1)); /* so that data is not NULL */
    body = kept->data + kept->size;
    (void)lmc__read_rest(r, w->at + LMC__SECTION_HEADER_SIZE, kept->data + kept->size,
                         (size_t)section->size);
    is_intact = r->coder->wave.k->crc32c(0, body, (size_t)section->size) == section->body_crc;
    if (!is_intact && !lmc__is_linked(w)) return LMC_OK;
    s->damage.n_sections += !is_intact;
    if (!s->damage.has_index) {
        LMC__TRY(lmc__keep_section(s, w, section, is_file ? LMC__KIND_FILE : LMC__KIND_RUN,
                                   kept->size, is_intact));
        if (is_intact) kept->size += (size_t)section->size;
    }
    w->has_run = 0;
    w->n_blocks = w->next_block = 0;
    if (is_file) {
        w->next_file = section->number + 1;
        w->is_stream_start = 1;
    } else lmc__begin_walked_run(s, w, section, is_intact ? body : NULL);
    w->state = LMC__IN_ROW;
    w->last = is_file ? LMC__LAST_FILE : LMC__LAST_RUN;
    /* Head_CRC does not cover Body_CRC, the header's last four bytes: of a damaged section, they
     * may be the first of something else */
    w->resume = w->at + (is_intact ? size : LMC__SECTION_HEADER_SIZE - 4);
    *step = size;
    return LMC_OK;
}

/* An ancillary section, of any size: it is passed over. Its body is compared with its CRC, as that
 * is all that speaks for it where it should not be. */
static void lmc__meet_ancillary(lmc_salvage *s, lmc__walk *w, const lmc__section *section,
                                uint64_t *step)
{
    const uint64_t size = LMC__SECTION_HEADER_SIZE + section->size;
    uint64_t i;
    uint32_t crc = 0;
    int is_intact;
    if (!lmc__may_claim(s, section->size)) return;
    for (i = LMC__SECTION_HEADER_SIZE; i < size;) {
        uint8_t bytes[4096];
        const size_t n = (size_t)lmc__min64(size - i, sizeof bytes);
        (void)lmc__read_rest(&s->reader, w->at + i, bytes, n);
        crc = s->reader.coder->wave.k->crc32c(crc, bytes, n);
        i += n;
    }
    is_intact = crc == section->body_crc;
    if (!is_intact && !lmc__is_linked(w)) return;
    s->damage.n_sections += !is_intact;
    w->n_blocks = w->next_block = 0; /* all of the run at hand were there, if it is linked */
    w->has_run = 0;
    w->state = LMC__IN_ROW;
    w->last = LMC__LAST_NOTHING;
    w->resume = w->at + (is_intact ? size : LMC__SECTION_HEADER_SIZE - 4);
    *step = size;
}

/* What looks like the header of a section is at p. It must have its Head_CRC, fit what should
 * follow, and lie within the file and the limits. */
static enum lmc_status lmc__look_at_section(lmc_salvage *s, lmc__walk *w, const uint8_t *p,
                                            uint64_t *step)
{
    const lmc_reader *const r = &s->reader;
    const uint64_t limit = lmc__index_limit(r);
    lmc__section section;
    if (!lmc__is_kind_valid((const char *)p) ||
        lmc__get_section(&section, p, r->coder->wave.k) != LMC_OK ||
        !lmc__is_next(s, w, &section) ||
        section.size > r->source.size - w->at - LMC__SECTION_HEADER_SIZE)
        return LMC_OK;
    if (lmc__is_ancillary(&section)) {
        lmc__meet_ancillary(s, w, &section, step);
        return LMC_OK;
    }
    if (section.size > limit || s->sections.size > limit) return LMC_OK;
    return lmc__is_kind(&section, "INDX") ? lmc__meet_index(s, w, &section, step)
                                          : lmc__meet_section(s, w, &section, step);
}

/* The runs that a block may belong to: number j, from that of the run at hand on; NULL: no more.
 * With an index, that and three more, for the sections of a few may be lost in between; without,
 * only the run at hand is known. entries: as of lmc__fits_run. */
static const lmc__run *lmc__walked_run(const lmc_salvage *s, const lmc__walk *w, size_t j,
                                       const uint8_t **entries)
{
    const lmc_reader *const r = &s->reader;
    const size_t first = w->after ? w->after - 1 : 0;
    *entries = NULL;
    if (!s->damage.has_index) return w->has_run && j == first ? &w->run : NULL;
    if (j >= lmc__count_runs(&r->tables) || j >= first + 4) return NULL;
    *entries = lmc__run_at(r, j)->blocks;
    return &lmc__run_at(r, j)->run;
}

/* The header of a block whose numbers are right for run number j. Linked, only the next block of
 * the run at hand is taken: what else stands there may be content of one that was shortened. *step:
 * its size, if it is taken. */
static enum lmc_status lmc__meet_block(lmc_salvage *s, lmc__walk *w, const lmc__run *run, size_t j,
                                       const lmc__found_block *block, uint64_t *step)
{
    const size_t first = w->after ? w->after - 1 : 0;
    const int is_in_run = w->last == LMC__LAST_RUN || w->last == LMC__LAST_BLOCK;
    if (lmc__is_linked(w) && (!is_in_run || j != first || block->block != w->next_block))
        return LMC_OK;
    LMC__TRY(lmc__append(&s->blocks, block, sizeof *block));
    w->after = (uint32_t)j + 1;
    w->next_block = (uint64_t)block->block + 1;
    w->n_blocks = run->n_blocks;
    w->is_after_known = 1;
    w->is_stream_start = 0;
    if (w->state == LMC__SEARCHING) w->state = LMC__LINKED;
    w->last = LMC__LAST_BLOCK;
    w->resume = w->at + LMC__SECTION_HEADER_SIZE - 4;
    *step = block->size;
    return LMC_OK;
}

/* What looks like the header of a block is at p. Run and block are not stored in it, but follow
 * from its CRC (lmc__header_state): a run is tried by working out the block's number, which must
 * then be below the run's count, and the size right for it. If no run that is known fits, it is
 * kept as an orphan: its section may be lost, or come later. */
static enum lmc_status lmc__look_at_block(lmc_salvage *s, lmc__walk *w, const uint8_t *p,
                                          uint64_t *step)
{
    const lmc__kernels *const k = s->reader.coder->wave.k;
    const lmc__run *run;
    const uint8_t *entries;
    lmc_block_info info;
    lmc__orphan o;
    size_t j;
    if (!lmc__is_linked(w) && !lmc__may_claim(s, 0)) return LMC_OK;
    if (lmc__parse_block_info(p, &info) != LMC_OK ||
        info.encoded_size > s->reader.source.size - w->at ||
        info.encoded_size <= LMC_BLOCK_HEADER_SIZE)
        return LMC_OK;
    memset(&o, 0, sizeof o);
    o.block.at = w->at;
    o.block.size = (uint32_t)info.encoded_size;
    o.block.length = (uint32_t)info.size;
    o.block.crc = info.crc;
    o.block.header_crc = lmc__load32(p + LMC__BLOCK_CRC_AT);
    o.block.has_prediction = (uint8_t)info.has_prediction;
    o.block.trust = w->state == LMC__IN_ROW ? LMC__TRUST_ROW : LMC__TRUST_LONE;
    if (w->at < w->outer_end) {
        o.block.trust = LMC__TRUST_INNER;
        o.block.outer_run = w->outer_run;
        o.block.outer_block = w->outer_block;
    }
    o.state = lmc__header_state(p);
    o.after = w->after;
    o.after_at = w->after_at;
    for (j = w->after ? w->after - 1 : 0; (run = lmc__walked_run(s, w, j, &entries)) != NULL; j++) {
        o.block.run = (uint32_t)j;
        o.block.block = o.state ^ lmc__run_state(k, (uint32_t)j);
        if (lmc__fits_run(run, entries, &o.block))
            return lmc__meet_block(s, w, run, j, &o.block, step);
    }
    if (s->orphans.size / sizeof o < LMC__MAX_ORPHANS && lmc__may_claim(s, LMC_BLOCK_HEADER_SIZE))
        return lmc__append(&s->orphans, &o, sizeof o);
    return LMC_OK;
}

/* Nothing that fits is where the last thing ends: the search begins at w->resume. If that was a
 * block and its bytes may not be searched (too much was read twice), it is taken back: what it
 * hides would be lost silently otherwise. */
static void lmc__break_link(lmc_salvage *s, lmc__walk *w)
{
    s->damage.n_breaks++;
    if (w->last == LMC__LAST_BLOCK) {
        const lmc__found_block *const last = lmc__found_at(s, lmc__count_found(s) - 1);
        if (lmc__may_claim(s, w->last_size)) {
            w->outer_end = w->at;
            w->outer_run = last->run;
            w->outer_block = last->block;
        } else
            s->blocks.size -= sizeof *last; /* its bytes cannot be searched: it may hide others */
    }
    w->is_after_known = w->is_stream_start = 0;
    w->state = LMC__SEARCHING;
    w->at = w->resume;
}

/* No section fits into what is left of the file. Where that is also the end of what should be
 * there, nothing is missing at the end. */
static void lmc__meet_end(lmc_salvage *s, lmc__walk *w)
{
    const int has_all_blocks = w->n_blocks == 0 || w->next_block == w->n_blocks;
    const int has_all_runs = !s->damage.has_index || w->after == lmc__count_runs(&s->reader.tables);
    if (!lmc__is_linked(w)) {
        w->state = LMC__ENDED;
    } else if (w->at == s->end && has_all_blocks && has_all_runs) {
        if (s->damage.n_breaks == 0 && s->damage.has_trailer) s->damage.is_complete = 1;
        w->state = LMC__ENDED;
    } else lmc__break_link(s, w);
}

/* The whole walk. While searching, only bytes with which a header can begin are looked at: the sync
 * byte of blocks, and the first letters of the kinds of sections. */
LMC__COLD static enum lmc_status lmc__walk_through(lmc_salvage *s)
{
    uint8_t is_first[256]; /* bytes with which a header begins */
    lmc__walk w;
    memset(is_first, 0, sizeof is_first);
    is_first[LMC__BLOCK_SYNC] = is_first[(uint8_t)'F'] = is_first[(uint8_t)'R'] =
        is_first[(uint8_t)'I'] = 1;
    memset(&is_first[(uint8_t)'a'], 1, 'z' - 'a' + 1);
    memset(&w, 0, sizeof w);
    w.state = LMC__LINKED;
    w.at = LMC__HEADER_SIZE;
    w.resume = s->damage.has_header ? LMC__HEADER_SIZE : 0;
    w.is_after_known = 1;
    while (w.state != LMC__ENDED) {
        uint64_t step = 0; /* 0: nothing is taken */
        const uint8_t *p;
        size_t n, i;
        if (w.at > s->end || s->end - w.at < LMC__SECTION_HEADER_SIZE) {
            lmc__meet_end(s, &w);
            continue;
        }
        LMC__TRY(lmc__view(s, w.at, LMC__SECTION_HEADER_SIZE,
                           lmc__is_linked(&w) ? 4096 : (size_t)256 << 10, &p, &n));
        if (p[0] == LMC__BLOCK_SYNC) LMC__TRY(lmc__look_at_block(s, &w, p, &step));
        else if (is_first[p[0]]) LMC__TRY(lmc__look_at_section(s, &w, p, &step));
        if (step) {
            w.last_size = step;
            w.at += step;
        } else if (lmc__is_linked(&w)) {
            lmc__break_link(s, &w);
        } else {
            for (i = 1; i < n && !is_first[p[i]]; i++) {}
            w.at += i;
        }
    }
    return LMC_OK;
}
#endif /* LMC_NO_SALVAGE */
