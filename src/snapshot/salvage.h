#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "kernels/crc32c.h"
#include "codec/get_block.h"
#include "snapshot/buffer.h"
#include "snapshot/sections.h"
#include "snapshot/index_entries.h"
#include "snapshot/reader.h"

enum { LMC__KIND_FILE = 0, LMC__KIND_RUN = 1 };

typedef struct lmc__found_section {
    uint64_t at;
    uint64_t body_at; /* in reader->index */
    uint64_t size;    /* of the body */
    uint32_t number;
    int kind;
} lmc__found_section;

/* The header of a block, right for that place. */
typedef struct lmc__found_block {
    uint64_t at;
    uint32_t run, block;
    uint32_t size, length, crc; /* encoded, decoded, of the content */
    uint32_t header_crc;
    uint8_t trust;       /* 3: where the index says; 2: in an unbroken row after its section; 1:
                            elsewhere; 0: within another block */
    uint8_t is_doubtful; /* there is another one, as good, of other content */
    uint8_t has_prediction;
    uint32_t outer_run, outer_block; /* trust 0: that other block; if it is intact, this one is but
                                        a part of its content */
} lmc__found_block;

/* The header of a block, perhaps: of which run is not known yet. Its position is the run's state
 * (lmc__run_state) ^ state. */
typedef struct lmc__orphan {
    lmc__found_block block;
    uint32_t state;
    uint32_t after;    /* number of the run that it follows, plus 1 */
    uint64_t after_at; /* and where that one's section ended */
} lmc__orphan;

#define LMC__MAX_ORPHANS ((size_t)1 << 20)
#define LMC__MAX_COPIES 4u /* of a block that are tried */

static lmc__found_block *lmc__found_at(const lmc_reader *r, size_t i)
{
    return (lmc__found_block *)(void *)r->salvage.blocks.data + i;
}

static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->run != b->run) return a->run < b->run ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    if (a->trust != b->trust) return a->trust > b->trust ? -1 : 1; /* the best first */
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Blocks of a file that was not shuffled are in order as they were found. */
static void lmc__sort_found(lmc__found_block *found, size_t n)
{
    size_t i = 1;
    while (i < n && lmc__compare_found(&found[i - 1], &found[i]) < 0) i++;
    if (i < n) lmc__heap_sort(found, n, sizeof *found, lmc__compare_found);
}

typedef struct lmc__block_search {
    const lmc_reader *reader;
    size_t run;
    uint64_t block;
} lmc__block_search;

static int lmc__is_block_before(const void *context, size_t i)
{
    const lmc__block_search *const s = (const lmc__block_search *)context;
    const lmc__found_block *const f = lmc__found_at(s->reader, i);
    return f->run < s->run || (f->run == s->run && f->block < s->block);
}

/* The first of the sorted ones that is not before (run, block). */
static size_t lmc__find_found(const lmc_reader *r, size_t run, uint64_t block)
{
    lmc__block_search search;
    search.reader = r;
    search.run = run;
    search.block = block;
    return lmc__find_first(0, r->salvage.n_blocks, lmc__is_block_before, &search);
}

/* Exclusive or of the block's number and of lmc__run_state of its run. */
static uint32_t lmc__header_state(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    return lmc__rewind_crc(
        lmc__rewind_crc(~lmc__load32(header + LMC__BLOCK_CRC_AT), header, LMC__BLOCK_CRC_AT), zeros,
        4);
}

static uint32_t lmc__run_state(const lmc__kernels *k, uint32_t run)
{
    uint8_t field[4];
    lmc__store32(field, run);
    return ~k->crc32c(0, field, 4);
}

/* -- the walk through the file -- */

/* Bytes of the file; what cannot be read is zero. 1: all could. */
static int lmc__read_rest(lmc_reader *r, uint64_t at, uint8_t *dst, size_t size)
{
    size_t i, part;
    int all = 1;
    if (lmc__read_at(r, at, dst, size) == LMC_OK) return 1;
    for (i = 0; i < size; i += part) {
        part = lmc__min(size - i, 4096 - (size_t)((at + i) % 4096));
        if (lmc__read_at(r, at + i, dst + i, part) == LMC_OK) continue;
        memset(dst + i, 0, part);
        all = 0;
    }
    return all;
}

/* Bytes [at, at + size) of the file, which has them, and up to `more` behind them; *n: how many. */
static enum lmc_status lmc__view(lmc_reader *r, uint64_t at, size_t size, size_t more,
                                 const uint8_t **p, size_t *n)
{
    lmc__salvage *const s = &r->salvage;
    if (at < s->view_at || at - s->view_at > s->view.size ||
        size > s->view.size - (size_t)(at - s->view_at)) {
        const size_t wanted = (size_t)lmc__min64(size + (uint64_t)more, r->source.size - at);
        s->view.size = 0;
        LMC__TRY(lmc__reserve(&s->view, wanted));
        (void)lmc__read_rest(r, at, s->view.data, wanted);
        s->view.size = wanted;
        s->view_at = at;
    }
    *p = s->view.data + (size_t)(at - s->view_at);
    *n = s->view.size - (size_t)(at - s->view_at);
    return LMC_OK;
}

typedef struct lmc__walk {
    uint64_t at;
    uint64_t
        resume; /* if nothing is there: where to search on, behind the last header that was found */
    uint64_t last_size; /* of what begins there: its bytes are read again */
    int is_linked;      /* `at` is where that ends */
    int is_row;         /* an unbroken one since a section */
    int is_end;         /* the index has been reached */
    uint64_t outer_end; /* of the block that the search began in; its numbers */
    uint32_t outer_run, outer_block;
    uint32_t after; /* number of the run at hand, plus 1; 0: none yet */
    uint64_t after_at;
    uint32_t next_file;  /* number */
    uint64_t next_block; /* of the run at hand; */
    uint64_t n_blocks;   /* of so many; 0: not known */
    int is_in_run;       /* the last thing found was a RUN section or a block: a block may follow */
    int has_run;         /* without index: it is known */
    lmc__run run;        /* then */
    int can_pop;  /* the last thing found was a block, which would be taken back if too much were
                     read twice */
    int is_whole; /* it was a section, and is intact */
} lmc__walk;

/* What may be read twice: a hostile file can have a header at every byte. */
static int lmc__may_claim(lmc_reader *r, uint64_t size)
{
    lmc__salvage *const s = &r->salvage;
    if (s->claimed > 8 * lmc__min64(r->source.size, (uint64_t)1 << 56) + ((uint64_t)16 << 20))
        return 0;
    s->claimed += size; /* 0: only to ask */
    return 1;
}

static enum lmc_status lmc__take_index(lmc_reader *r, uint64_t at, uint64_t size, int *is_foreign);

/* What stands where the thing before it ends is also what should follow it. If it is not, what lies
 * between may be in that, shortened. */
static int lmc__is_next(const lmc_reader *r, const lmc__walk *w, const lmc__section *section)
{
    if (!w->is_linked) return 1;
    if (w->n_blocks != 0 && w->next_block != w->n_blocks) return 0;
    if (r->salvage.damage.has_index &&
        lmc__is_kind(section, "FILE")) /* which runs stand before it is known */
        return section->number == w->next_file && section->number < r->n_files &&
               lmc__file_at(r, section->number)->first_run == w->after;
    return lmc__is_kind(section, "FILE")
               ? section->number == w->next_file
               : lmc__is_kind(section, "INDX") || section->number == w->after;
}

/* *step: the size of the section at p, 0 if there is none. */
static enum lmc_status lmc__look_at_section(lmc_reader *r, lmc__walk *w, const uint8_t *p,
                                            uint64_t *step)
{
    const lmc__kernels *const k = r->coder->wave.k;
    const uint64_t limit = r->options.limits.max_index_size ? r->options.limits.max_index_size
                                                            : LMC__DEFAULT_INDEX_LIMIT;
    lmc__salvage *const s = &r->salvage;
    const size_t size_before = r->index.size;
    lmc__found_section found;
    lmc__section section;
    lmc__buffer *body;
    int is_whole;
    *step = 0;
    if (lmc__get_section(&section, p, k) != LMC_OK) return LMC_OK;
    if (!lmc__is_next(r, w, &section) ||
        section.size > r->source.size - w->at - LMC__SECTION_HEADER_SIZE || section.size > limit ||
        s->sections.size > limit)
        return LMC_OK;
    if (lmc__is_kind(&section, "INDX")) {
        int is_foreign = 0;
        if (s->damage.has_index || section.number != 0 || !lmc__may_claim(r, section.size))
            return LMC_OK; /* where it begins the walk ends */
        LMC__TRY(lmc__take_index(r, w->at, LMC__SECTION_HEADER_SIZE + section.size, &is_foreign));
        if (!s->damage.has_index && (!w->is_linked || is_foreign)) return LMC_OK;
        w->is_end = 1; /* nothing follows it, be it damaged or not */
        if (!s->damage.has_index) s->damage.is_complete = s->damage.n_breaks == 0;
        s->end = w->at;
        *step = LMC__SECTION_HEADER_SIZE + section.size;
        return LMC_OK;
    }
    found.kind = lmc__is_kind(&section, "FILE") ? LMC__KIND_FILE : LMC__KIND_RUN;
    /* a section and a block before it take so many bytes at least */
    if ((found.kind == LMC__KIND_RUN && !lmc__is_kind(&section, "RUN ")) ||
        section.number > w->at / 56 + 1)
        return LMC_OK;
    if (!lmc__may_claim(r, section.size)) return LMC_OK;
    body = s->damage.has_index ? &s->container : &r->index;
    if (s->damage.has_index) body->size = 0;
    found.body_at = body->size;
    LMC__TRY(
        lmc__reserve(body, section.size + 1)); /* of an empty one, too, data is no null pointer */
    (void)lmc__read_rest(r, w->at + LMC__SECTION_HEADER_SIZE, body->data + body->size,
                         (size_t)section.size);
    is_whole = k->crc32c(0, body->data + body->size, (size_t)section.size) == section.body_crc;
    if (!is_whole && !w->is_linked) return LMC_OK;
    s->damage.n_sections += !is_whole;
    found.at = w->at;
    found.size = section.size;
    found.number = section.number;
    if (is_whole && !s->damage.has_index) {
        LMC__TRY(lmc__append(&s->sections, &found, sizeof found));
        r->index.size += (size_t)section.size;
    }
    w->has_run = 0;
    w->n_blocks = w->next_block = 0;
    w->is_in_run = found.kind == LMC__KIND_RUN;
    if (found.kind == LMC__KIND_FILE) w->next_file = section.number + 1;
    if (found.kind == LMC__KIND_RUN) {
        lmc_file file;
        uint64_t start;
        memset(&file, 0, sizeof file);
        file.size = LMC_UNKNOWN_SIZE;
        w->after = section.number + 1;
        w->after_at = w->at + LMC__SECTION_HEADER_SIZE + section.size;
        if (is_whole && !s->damage.has_index &&
            section.size >= LMC__RUN_BODY_SIZE + LMC__SEGMENT_SIZE) {
            const uint8_t *const segment = r->index.data + size_before + LMC__RUN_BODY_SIZE;
            start = lmc__load64(segment + 8);
            w->has_run = start <= LMC__MAX_FILE_SIZE &&
                         lmc__parse_run(&w->run, r->index.data + size_before, (size_t)section.size,
                                        lmc__load32(segment), &file, &start) == LMC_OK;
            if (w->has_run) w->n_blocks = w->run.n_blocks;
        } else if (s->damage.has_index && section.number < r->runs.size / sizeof(lmc__reader_run))
            w->n_blocks = lmc__run_at(r, section.number)->run.n_blocks;
    }
    w->is_row = 1;
    w->is_whole = is_whole;
    w->can_pop = 0;
    *step = LMC__SECTION_HEADER_SIZE + section.size;
    return LMC_OK;
}

/* The header of a block may be that of this number in the run; entries: what the index knows of the
 * run's blocks, or NULL. */
static int lmc__fits_run(const lmc__run *run, const uint8_t *entries, const lmc__found_block *f)
{
    if (f->block >= run->n_blocks || lmc__block_size_at(run, f->block) != f->length) return 0;
    if (!entries) return 1;
    entries += LMC__BLOCK_ENTRY_SIZE * (size_t)f->block;
    return lmc__load32(entries) == f->size && lmc__load32(entries + 4) == f->header_crc;
}

/* *step: the size of the block at p, 0 if there is none that fits the run at hand. */
static enum lmc_status lmc__look_at_block(lmc_reader *r, lmc__walk *w, const uint8_t *p,
                                          uint64_t *step)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__kernels *const k = r->coder->wave.k;
    const size_t n_known = r->runs.size / sizeof(lmc__reader_run),
                 first = w->after ? w->after - 1 : 0;
    lmc_block_info info;
    lmc__orphan o;
    size_t j;
    *step = 0;
    if (!w->is_linked && !lmc__may_claim(r, 0)) return LMC_OK;
    if (lmc__parse_block_info(p, &info) != LMC_OK || info.encoded_size > r->source.size - w->at ||
        info.encoded_size <= LMC_BLOCK_HEADER_SIZE)
        return LMC_OK;
    memset(&o, 0, sizeof o);
    o.block.at = w->at;
    o.block.size = (uint32_t)info.encoded_size;
    o.block.length = (uint32_t)info.size;
    o.block.crc = info.crc;
    o.block.header_crc = lmc__load32(p + LMC__BLOCK_CRC_AT);
    o.block.has_prediction = (uint8_t)info.has_prediction;
    o.block.trust = w->is_row ? 2 : 1;
    if (w->at < w->outer_end) {
        o.block.trust = 0;
        o.block.outer_run = w->outer_run;
        o.block.outer_block = w->outer_block;
    }
    o.state = lmc__header_state(p);
    o.after = w->after;
    o.after_at = w->after_at;
    /* with an index, the sections of a few runs may be missing in between */
    for (j = first; s->damage.has_index ? j < n_known && j < first + 4 : w->has_run && j == first;
         j++) {
        const lmc__run *const run = s->damage.has_index ? &lmc__run_at(r, j)->run : &w->run;
        o.block.run = (uint32_t)j;
        o.block.block = o.state ^ lmc__run_state(k, (uint32_t)j);
        if (!lmc__fits_run(run, s->damage.has_index ? lmc__run_at(r, j)->blocks : NULL, &o.block))
            continue;
        if (w->is_linked && (!w->is_in_run || j != first || o.block.block != w->next_block))
            return LMC_OK; /* see lmc__is_next */
        w->is_in_run = 1;
        w->after = (uint32_t)j + 1;
        w->next_block = (uint64_t)o.block.block + 1;
        w->n_blocks = run->n_blocks;
        LMC__TRY(lmc__append(&s->blocks, &o.block, sizeof o.block));
        *step = info.encoded_size;
        w->can_pop = 1;
        w->is_whole = 0;
        return LMC_OK;
    }
    if (s->orphans.size / sizeof o < LMC__MAX_ORPHANS && lmc__may_claim(r, LMC_BLOCK_HEADER_SIZE))
        return lmc__append(&s->orphans, &o, sizeof o);
    return LMC_OK;
}

/* Nothing that could be is where the last thing ends. That may be damaged itself, and shorter or
 * longer than its header says: search from there. */
static void lmc__break_link(lmc_reader *r, lmc__walk *w)
{
    lmc__salvage *const s = &r->salvage;
    const lmc__found_block *last;
    s->damage.n_breaks++;
    w->is_linked = w->is_row = 0;
    if (w->can_pop) {
        last = lmc__found_at(r, s->blocks.size / sizeof *last - 1);
        if (lmc__may_claim(r, w->last_size)) {
            w->outer_end = w->at;
            w->outer_run = last->run;
            w->outer_block = last->block;
        } else s->blocks.size -= sizeof *last;
    }
    w->can_pop = 0;
    w->at = w->resume;
}

static enum lmc_status lmc__walk_through(lmc_reader *r)
{
    lmc__salvage *const s = &r->salvage;
    uint8_t is_first[256]; /* bytes with which a header begins */
    lmc__walk w;
    memset(is_first, 0, sizeof is_first);
    is_first[LMC__BLOCK_SYNC] = is_first['F'] = is_first['R'] = is_first['I'] = 1;
    memset(&w, 0, sizeof w);
    w.at = LMC__HEADER_SIZE;
    w.resume = s->damage.has_header ? LMC__HEADER_SIZE : 0;
    w.is_linked = 1;
    while (!w.is_end) {
        uint64_t step = 0;
        const uint8_t *p;
        size_t n, i;
        if (w.at > s->end || s->end - w.at < LMC__SECTION_HEADER_SIZE) {
            const int is_last =
                (w.n_blocks == 0 || w.next_block == w.n_blocks) &&
                (!s->damage.has_index || w.after == r->runs.size / sizeof(lmc__reader_run));
            if (!w.is_linked ||
                (w.at == s->end &&
                 is_last)) { /* else behind an incomplete block, or one that was shortened */
                if (w.is_linked && s->damage.n_breaks == 0 && s->damage.has_trailer)
                    s->damage.is_complete = 1;
                break;
            }
            lmc__break_link(r, &w);
            continue;
        }
        LMC__TRY(lmc__view(r, w.at, LMC__SECTION_HEADER_SIZE,
                           w.is_linked ? 4096 : (size_t)256 << 10, &p, &n));
        if (p[0] == LMC__BLOCK_SYNC) LMC__TRY(lmc__look_at_block(r, &w, p, &step));
        else if (is_first[p[0]]) LMC__TRY(lmc__look_at_section(r, &w, p, &step));
        if (step) {
            w.resume = w.at + (w.is_whole ? step
                                          : LMC__SECTION_HEADER_SIZE -
                                                4); /* Head_CRC does not cover Body_CRC, which may
                                                       be another's first bytes */
            w.last_size = step;
            w.at += step;
            w.is_linked = 1;
        } else if (w.is_linked) {
            lmc__break_link(r, &w);
        } else {
            for (i = 1; i < n && !is_first[p[i]]; i++) {}
            w.at += i;
        }
    }
    return LMC_OK;
}
