#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "kernels/crc32c.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#ifndef LMC_NO_SALVAGE

/* Salvage: what is intact in a damaged file (spec, annex C). A reader, as others, whose tables come
 * from what was found:
 *
 *     salvage_walk.h    goes through the file: sections, headers of blocks, the index
 *     salvage_place.h   says which bytes of which file each block is; fills the tables
 *     salvage_read.h    decodes them; hands out ranges; compares fingerprints
 *
 * What it promises, and on what:
 *
 *  - What is handed out as intact has the Content_CRC that its header says; the header has its
 *    Header_CRC, which covers the block's position; and that position is where it is handed out.
 *    Damage passes with a chance of 2^-32 or so for each block. A block in a wrong place does not,
 *    unless it was made for such a place: in another LMC file, with the same numbers and size. An
 *    index tells it from the right one by its Header_CRC; without an index, where both are found,
 *    neither is handed out (is_doubtful).
 *
 *  - Nothing intact is passed over, wherever it lies: bytes that a damaged header claims are
 *    searched again. The limits on work below are reached by hostile files only.
 *
 *  - Time is linear in the file's size: what is read twice is counted (lmc__may_claim), and so is
 *    what is tried (LMC__MAX_ORPHANS, LMC__MAX_TRIES, LMC__MAX_COPIES).
 *
 *  - Memory is in proportion to what is found: bodies of sections up to max_index_size, a
 *    lmc__found_block for each block, and tables as of other readers. */

enum { LMC__KIND_FILE = 0, LMC__KIND_RUN = 1, LMC__KIND_INDEX = 2, LMC__KIND_COPY = 3 };

/* A section, where there is no index. */
typedef struct lmc__found_section {
    uint64_t at;
    uint64_t body_at; /* in tables.index */
    uint64_t size;    /* of the body */
    uint32_t number;
    int kind, is_intact;
    int has_copy; /* another of its kind and number lies behind it */
    /* Of files and the index: how many runs come before it, where that is certain. Of a run: 0 if
     * the stream begins with it, for certain. Else UINT32_MAX. */
    uint32_t after;
} lmc__found_section;

/* How sure it is that a block belongs where its header says; more is better. */
enum {
    /* It lies within the bytes that another block's header claims: perhaps it is part of the
     * content of that one. */
    LMC__TRUST_INNER = 0,
    /* It lies anywhere else. */
    LMC__TRUST_LONE = 1,
    /* It follows its section, or another such block, without a gap. */
    LMC__TRUST_ROW = 2,
    /* It lies where the index says. */
    LMC__TRUST_INDEX = 3
};

/* The header of a block, which is right for that position. */
typedef struct lmc__found_block {
    uint64_t at;
    uint32_t run, block;
    /* Encoded size, decoded size, CRC of the content: as the header says. */
    uint32_t size, length, crc;
    uint32_t header_crc;
    uint8_t trust;
    /* There is another block of this position, as good, but of other content. */
    uint8_t is_doubtful;
    uint8_t has_prediction;
    /* Of LMC__TRUST_INNER the other block, in which it lies. If that is intact, this one is but a
     * part of its content. */
    uint32_t outer_run, outer_block;
} lmc__found_block;

/* The header of a block, perhaps: of which run is not known yet. Its position is state ^
 * lmc__run_state(run). */
typedef struct lmc__orphan {
    lmc__found_block block;
    uint32_t state;
    uint32_t after;    /* number of the run that it follows, plus 1 */
    uint64_t after_at; /* and where that one's section ended */
} lmc__orphan;

/* Bytes look like the header of a block by chance, too, as without its run a Header_CRC cannot be
 * compared. So many are kept at most. */
#define LMC__MAX_ORPHANS ((size_t)1 << 20)
/* Copies of a block that are tried before it counts as damaged. */
#define LMC__MAX_COPIES 4u

/* A reader of a damaged file: the reader first, so that whoever has that has this, too. */
struct lmc_salvage {
    lmc_reader reader;
    /* What lmc_salvage_get_damage says. */
    lmc_damage damage;
    /* The file's, if it is intact. */
    uint8_t header[LMC__HEADER_SIZE];

    /* -- the walk -- */
    /* Where the index begins, if that is known; else the file's size. */
    uint64_t end;
    /* Bytes of the file from view_at on, read at once. */
    lmc__buffer view;
    uint64_t view_at;
    /* lmc__found_section, where there is no index. Their bodies are in reader.tables.index. */
    lmc__buffer sections;
    /* The body of one section, where the index has them all. */
    lmc__buffer body;
    /* lmc__orphan. */
    lmc__buffer orphans;
    /* Bytes that were read twice. */
    uint64_t claimed;

    /* -- what was found -- */
    /* lmc__found_block: n_blocks that have a place in the files, sorted; then those without. */
    lmc__buffer blocks;
    size_t n_blocks;

    /* -- decoding -- */
    /* The outer block of one that was asked for last, and whether it is intact; see lmc__try_outer.
     * in_outer: it is just being decoded. */
    lmc__buffer outer;
    uint32_t outer_run, outer_block;
    enum lmc_status outer_status;
    int in_outer;

    /* -- lmc_salvage_next -- */
    /* Where it is: file, byte of it, run; behind the last file, the block without a place. */
    size_t file, run, unplaced;
    uint64_t offset;
    /* Bytes that were handed out, of max_total_size. */
    uint64_t delivered;
    /* The block that was decoded last: number i of those found is ranged - 1, and what it gave. It
     * may have bytes of several files. */
    lmc__buffer range;
    size_t ranged;
    enum lmc_status ranged_status;

    /* -- lmc_salvage_confirm -- */
    /* Of the file at hand; is_whole: nothing of it was lost so far. */
    lmc__digester digester;
    int is_whole;
    /* int8_t, what to say: of each file, followed by its tensors. And size_t: where in that each
     * file's begin. */
    lmc__buffer verdicts, verdicts_at;
};

/* Of a reader that is one's first member. */
static lmc_salvage *lmc__get_salvage(const lmc_reader *r) { return (lmc_salvage *)(void *)r; }

/* Of its own; the reader has its own, too. */
static void lmc__visit_salvage(lmc_salvage *s, lmc__visit_buffer visit, void *alloc_user)
{
    visit(&s->view, alloc_user);
    visit(&s->sections, alloc_user);
    visit(&s->blocks, alloc_user);
    visit(&s->orphans, alloc_user);
    visit(&s->body, alloc_user);
    visit(&s->outer, alloc_user);
    visit(&s->range, alloc_user);
    visit(&s->verdicts, alloc_user);
    visit(&s->verdicts_at, alloc_user);
}

/* -- blocks that were found -- */

/* Valid until one more is found. */
static lmc__found_block *lmc__found_at(const lmc_salvage *s, size_t i)
{
    return (lmc__found_block *)(void *)s->blocks.data + i;
}
static size_t lmc__count_found(const lmc_salvage *s)
{
    return s->blocks.size / sizeof(lmc__found_block);
}

/* By position; of one position the best first, and of two as good the one that lies first. */
static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->run != b->run) return a->run < b->run ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    if (a->trust != b->trust) return a->trust > b->trust ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Blocks of a file that was not shuffled are in order as they were found. */
static void lmc__sort_found(lmc__found_block *found, size_t n)
{
    lmc__found_block spare;
    size_t i = 1;
    while (i < n && lmc__compare_found(&found[i - 1], &found[i]) < 0) i++;
    if (i < n) lmc__heap_sort(found, n, sizeof *found, lmc__compare_found, &spare);
}

typedef struct lmc__block_search {
    const lmc_salvage *s;
    size_t run;
    uint64_t block;
} lmc__block_search;

static int lmc__is_block_before(const void *context, size_t i)
{
    const lmc__block_search *const search = (const lmc__block_search *)context;
    const lmc__found_block *const f = lmc__found_at(search->s, i);
    return f->run < search->run || (f->run == search->run && f->block < search->block);
}

/* The first of the sorted ones that is not before (run, block). */
static size_t lmc__find_found(const lmc_salvage *s, size_t run, uint64_t block)
{
    lmc__block_search search;
    search.s = s;
    search.run = run;
    search.block = block;
    return lmc__find_first(0, s->n_blocks, lmc__is_block_before, &search);
}

/* -- the position of a block, out of its header --
 * Header_CRC is a CRC-32C over run number, block number and the header before it; neither number is
 * stored. A CRC register takes 32 bits by exclusive or, then steps: reversible, and linear. So the
 * bytes of the header can be taken back from the stored CRC, then four steps of the block's number
 * as if that were 0. What is left is the register after the run's number, exclusive or the
 * block's: with one number known, the other is. */

/* Of the header at that place: the exclusive or of its block's number and of lmc__run_state of its
 * run. */
static uint32_t lmc__header_state(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    return lmc__rewind_crc(
        lmc__rewind_crc(~lmc__load32(header + LMC__BLOCK_CRC_AT), header, LMC__BLOCK_CRC_AT), zeros,
        4);
}

/* The register after a run's number was taken, as a header's CRC begins. */
static uint32_t lmc__run_state(const lmc__kernels *k, uint32_t run)
{
    uint8_t field[4];
    lmc__store32(field, run);
    return ~k->crc32c(0, field, 4);
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

/* -- bytes of the file -- */

/* Bytes of the file; what cannot be read is zero. 1: all could. By pages where reading fails, which
 * is how disks fail, so that only what is really lost is. */
static int lmc__read_rest(lmc_reader *r, uint64_t at, uint8_t *dst, size_t size)
{
    size_t i, part;
    int all = 1;
    if (lmc__read_at(r, at, dst, size) == LMC_OK) return 1;
    for (i = 0; i < size; i += part) { /* by pages, which is how disks fail */
        part = lmc__min(size - i, 4096 - (size_t)((at + i) % 4096));
        if (lmc__read_at(r, at + i, dst + i, part) == LMC_OK) continue;
        memset(dst + i, 0, part);
        all = 0;
    }
    return all;
}

/* Bytes [at, at + size) of the file, which has them, and up to `more` behind them; *n: how many.
 * What is at hand is used first: a search asks for one byte after the other. */
static enum lmc_status lmc__view(lmc_salvage *s, uint64_t at, size_t size, size_t more,
                                 const uint8_t **p, size_t *n)
{
    if (at < s->view_at || at - s->view_at > s->view.size ||
        size > s->view.size - (size_t)(at - s->view_at)) {
        const size_t wanted = (size_t)lmc__min64(size + (uint64_t)more, s->reader.source.size - at);
        s->view.size = 0;
        LMC__TRY(lmc__reserve(&s->view, wanted));
        (void)lmc__read_rest(&s->reader, at, s->view.data, wanted);
        s->view.size = wanted;
        s->view_at = at;
    }
    *p = s->view.data + (size_t)(at - s->view_at);
    *n = s->view.size - (size_t)(at - s->view_at);
    return LMC_OK;
}

/* What may be read twice: a hostile file can have a header at every byte, each of which claims the
 * rest of the file. Eight times the file's size is enough for any damage. size 0: only to ask. */
static int lmc__may_claim(lmc_salvage *s, uint64_t size)
{
    const uint64_t file_size = lmc__min64(s->reader.source.size, (uint64_t)1 << 56);
    if (s->claimed > 8 * file_size + ((uint64_t)16 << 20)) return 0;
    s->claimed += size;
    return 1;
}

/* -- the index -- */

/* The index that the tables hold says that it begins at `offset`, but was found at `at`: bytes of
 * this file were lost, or came in between; or it is that of another file, of which a part or all is
 * the content of a damaged block. It is this file's if the first section is the one that it names;
 * or, where bytes were lost, if all of them are missing before the first block that can be left of
 * those that it knows. */
static int lmc__is_foreign(lmc_reader *r, const lmc__tables *t, uint64_t offset, uint64_t at)
{
    uint8_t first[LMC__SECTION_HEADER_SIZE];
    uint64_t lost;
    size_t i, j;
    if (offset == at) return 0;
    if (lmc__read_rest(r, LMC__HEADER_SIZE, first, sizeof first) &&
        memcmp(first, t->index.data + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + 8,
               sizeof first) == 0)
        return 0;
    if (offset < at) return 1;
    lost = offset - at;
    for (i = 0; i < lmc__count_runs(t); i++) {
        const lmc__reader_run *const run = lmc__table_run(t, i);
        const uint64_t *const block_at = lmc__table_blocks(t) + run->first_block;
        for (j = 0; j < run->run.n_blocks; j++)
            if (block_at[j] >= LMC__HEADER_SIZE + LMC__SECTION_HEADER_SIZE + lost)
                return !lmc__read_rest(r, block_at[j] - lost, first, sizeof first) ||
                       lmc__load32(first + LMC__BLOCK_CRC_AT) !=
                           lmc__load32(run->blocks + LMC__BLOCK_ENTRY_SIZE * j + 4);
    }
    return 1;
}

/* The index, if there is an intact one at that place and it is this file's, becomes the tables.
 * What was found so far is forgotten then, for all is searched again with its help. If it is not,
 * nothing changes but *is_foreign. */
static enum lmc_status lmc__take_index(lmc_salvage *s, uint64_t at, uint64_t size, int *is_foreign)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    lmc__tables found;
    lmc__section section;
    uint64_t offset = 0;
    enum lmc_status status;
    lmc__init_tables(&found, r->options.alloc_user);
    status = lmc__read_index(r, &found, at, size);
    if (status == LMC_OK)
        status = lmc__parse_index(&found, k, s->damage.has_header ? s->header : NULL,
                                  LMC__MAX_FILE_SIZE, &r->coder->in[0], &offset);
    if (status == LMC_OK && lmc__is_foreign(r, &found, offset, at)) {
        *is_foreign = 1;
        status = LMC_ERR_CORRUPT;
    }
    if (status != LMC_OK) {
        lmc__free_tables(&found);
        return status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE ? status : LMC_OK;
    }
    lmc__free_tables(&r->tables);
    r->tables = found;
    /* its copy of the header, which is the same if that is intact */
    lmc__keep_header(r, r->tables.index.data + LMC__SECTION_HEADER_SIZE);
    s->sections.size = s->blocks.size = s->orphans.size = 0;
    s->damage.n_sections = lmc__get_section(&section, found.index.data, k) != LMC_OK;
    s->damage.n_breaks = 0;
    s->damage.has_index = s->damage.is_complete = 1;
    s->end = at;
    return LMC_OK;
}
#endif /* LMC_NO_SALVAGE */
