#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/fingerprint.h"
#include "snapshot/names.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index_entries.h"

/* A reader's tables of the files, runs and blocks of a snapshot, and the parser that makes them
 * from the index. Body_CRC is checked first. It finds damage, but not attacks: so the other checks
 * must work for any bytes. Entries are parsed one by one, and no count in the file decides how much
 * is allocated. So memory is in proportion to the size of the index, which the caller limits, and
 * time is n log n. Header, stored sizes and BLKS must add up to the offset of the index. */

typedef struct lmc__reader_run {
    lmc__run run;
    /* where in the file its blocks begin and end; the row of its first block in BLKS */
    uint64_t at, end, first_row;
    /* LMC_OK; in a damaged file, why the prediction cannot be read (LMC_ERR_LOST: the run's section
     * is lost) */
    enum lmc_status prediction;
} lmc__reader_run;

/* A block, from its row in BLKS. at: where the block begins in the file; size: its encoded size. */
typedef struct lmc__block_place {
    uint64_t at;
    uint32_t size, header_crc;
} lmc__block_place;

typedef struct lmc__ancillary {
    uint64_t at, size; /* of the section, its header included */
    char kind[4];
} lmc__ancillary;

typedef struct lmc__tables {
    lmc__buffer index;          /* the INDX section; metadata and fingerprints point into it */
    lmc__buffer runs, segments; /* lmc__reader_run; lmc__segment, of all runs */
    lmc__buffer keys, metadata; /* keys of the metadata, NUL-terminated; lmc__metadata_entry */
    /* lmc__ancillary: in the order of the file */
    lmc__buffer ancillary;
    lmc__listing listing;
    /* number of rows of all runs; where BLKS begins */
    uint64_t n_rows, rows_offset;
    const uint8_t *metadata_at; /* in the index: n_metadata entries */
    lmc__cursor records;        /* likewise: extension records */
    uint32_t n_metadata;
    uint8_t fingerprint[LMC_FINGERPRINT_SIZE];
} lmc__tables;
#define LMC__TABLE_BUFFERS LMC__ROW(lmc__tables, index, listing)

/* The pointer is valid until more runs are added. */
static lmc__reader_run *lmc__table_run(const lmc__tables *t, size_t i)
{
    return t->runs.data ? (lmc__reader_run *)(void *)t->runs.data + i : NULL;
}
static size_t lmc__count_runs(const lmc__tables *t)
{
    return t->runs.size / sizeof(lmc__reader_run);
}

static void lmc__init_tables(lmc__tables *t, const lmc_allocator *allocator)
{
    memset(t, 0, sizeof *t);
    lmc__init_listing(&t->listing, allocator);
    lmc__init_buffers(t, LMC__TABLE_BUFFERS, allocator);
}

LMC__COLD static void lmc__free_tables(lmc__tables *t)
{
    lmc__free_listing(&t->listing);
    lmc__free_buffers(t, LMC__TABLE_BUFFERS);
}

/* Sets the segments of all runs, after all segments were appended. */
static void lmc__settle_runs(lmc__tables *t)
{
    const size_t n = lmc__count_runs(t);
    size_t i;
    for (i = 0; i < n; i++) lmc__set_segments(&lmc__table_run(t, i)->run, &t->segments);
}

/* The state while the entries of an index are parsed. */
typedef struct lmc__index_parser {
    lmc__tables *t;
    lmc__cursor c;     /* what is left of the body */
    unsigned features; /* of the file */
    uint64_t offset;   /* where in the file the next section must begin */
    uint64_t position; /* bytes of the last stream that are in runs so far */
} lmc__index_parser;

static enum lmc_status lmc__check_stream_end(const lmc__index_parser *x)
{
    const lmc__listing *const l = &x->t->listing;
    LMC__VALID(l->n_streams == 0 || x->position == lmc__stream_at(l, l->n_streams - 1)->size);
    return LMC_OK;
}

/* Parses the entry of a FILE section: its body, then the CRCs and fingerprints of its files. The
 * runs before the section must cover the whole previous stream. */
static enum lmc_status lmc__parse_file_entry(lmc__index_parser *x, const uint8_t *body,
                                             size_t body_size)
{
    lmc__listing *const l = &x->t->listing;
    lmc__stream *stream;
    size_t i;
    LMC__TRY(lmc__check_stream_end(x));
    LMC__TRY(lmc__list_files(l, body, body_size));
    stream = lmc__stream_at(l, l->n_streams - 1);
    stream->first_run = lmc__count_runs(x->t);
    for (i = stream->first_file; i < l->n_files; i++) {
        lmc_file *const file = &lmc__listed_at(l, i)->file;
        const uint64_t size = LMC_FINGERPRINT_SIZE * (uint64_t)lmc__count_fingerprints(file);
        LMC__VALID(lmc__left(&x->c) >= lmc__facts_head_size(file) + size);
        if (file->size == LMC_UNKNOWN_SIZE) {
            file->size = lmc__take64(&x->c);
            LMC__VALID(file->size <= LMC__MAX_FILE_SIZE);
            stream->size = file->size; /* the stream has no other file */
        }
        file->crc = lmc__take32(&x->c);
        lmc__keep_fingerprints(file, lmc__take_bytes(&x->c, (size_t)size));
    }
    x->position = 0;
    return LMC_OK;
}

/* Parses the entry of a run. body: of its RUN section; stored: bytes of section and blocks. */
static enum lmc_status lmc__parse_run_entry(lmc__index_parser *x, const uint8_t *body,
                                            size_t body_size, uint64_t stored)
{
    const uint64_t head_size = LMC__SECTION_HEADER_SIZE + (uint64_t)body_size;
    lmc__tables *const t = x->t;
    lmc__listing *const l = &t->listing;
    lmc__reader_run r;
    LMC__VALID(l->n_streams);
    memset(&r, 0, sizeof r);
    LMC__TRY(
        lmc__parse_run(&r.run, &t->segments, body, body_size, l, l->n_streams - 1, &x->position));
    LMC__TRY(lmc__check_run_features(&r.run, x->features));
    l->n_records += r.run.n_records;
    LMC__VALID(stored - head_size >= r.run.n_blocks * (LMC_BLOCK_HEADER_SIZE + 1) &&
               stored - head_size <= r.run.size + r.run.n_blocks * LMC_BLOCK_HEADER_SIZE);
    r.at = x->offset + head_size;
    r.end = x->offset + stored;
    r.first_row = t->n_rows;
    t->n_rows += r.run.n_blocks; /* at most a 25th of the file's size */
    lmc__stream_at(l, l->n_streams - 1)->n_runs++;
    return lmc__append(&t->runs, &r, sizeof r);
}

/* Parses the next entry. Offsets stay at or below max_offset < 2^63, so they do not overflow. */
static enum lmc_status lmc__parse_entry(lmc__index_parser *x, uint64_t max_offset)
{
    lmc__cursor *const c = &x->c;
    lmc__section section;
    uint64_t stored, size;
    const uint8_t *body;
    LMC__VALID(lmc__left(c) >= 5);
    memcpy(section.kind, lmc__take_bytes(c, 4), 4);
    LMC__VALID(lmc__is_kind_valid(section.kind));
    LMC__TRY(lmc__get_limited(c, &stored, max_offset - x->offset));
    LMC__VALID(stored >= LMC__SECTION_HEADER_SIZE);
    if (lmc__is_ancillary(&section)) { /* its body is not in the index */
        lmc__ancillary a;
        LMC__VALID(x->t->listing.n_streams);
        a.at = x->offset;
        a.size = stored;
        memcpy(a.kind, section.kind, 4);
        LMC__TRY(lmc__append(&x->t->ancillary, &a, sizeof a));
    } else {
        LMC__CHECK(lmc__is_known_kind(&section), LMC_ERR_UNSUPPORTED); /* R4-3 */
        LMC__VALID(!lmc__is_kind(&section, "BLKS") && !lmc__is_kind(&section, "INDX"));
        LMC__TRY(lmc__get_limited(c, &size, stored - LMC__SECTION_HEADER_SIZE));
        LMC__VALID(size <= lmc__left(c));
        body = lmc__take_bytes(c, (size_t)size);
        if (lmc__is_kind(&section, "FILE")) {
            LMC__VALID(stored == LMC__SECTION_HEADER_SIZE + size);
            LMC__TRY(lmc__parse_file_entry(x, body, (size_t)size));
        } else LMC__TRY(lmc__parse_run_entry(x, body, (size_t)size, stored));
    }
    x->offset += stored;
    return LMC_OK;
}

/* Fills empty tables from the INDX section in t->index. Of the section's header only Body_CRC is
 * used. header: of the file; NULL: it is lost. *offset: where the INDX section must begin if its
 * entries are right. items: a scratch buffer. Checks neither base nor predictions. */
LMC__COLD static enum lmc_status lmc__parse_index(lmc__tables *t, const lmc__kernels *k,
                                                  const uint8_t *header, uint64_t max_offset,
                                                  lmc__buffer *items, uint64_t *offset)
{
    const uint8_t *const body = t->index.data + LMC__SECTION_HEADER_SIZE;
    const size_t body_size = t->index.size - LMC__SECTION_HEADER_SIZE;
    lmc__index_parser x;
    uint32_t i, n_sections;
    memset(&x, 0, sizeof x);
    x.t = t;
    x.c.p = body + LMC__INDEX_BODY_SIZE;
    x.c.end = body + body_size;
    x.offset = LMC__HEADER_SIZE;
    LMC__CHECK(k->crc32c(0, body, body_size) == lmc__load32(t->index.data + 16), LMC_ERR_CHECKSUM);
    if (header) LMC__VALID(memcmp(body, header, LMC__HEADER_SIZE) == 0);
    else LMC__TRY(lmc__check_header(body, k));
    x.features = lmc__load32(body + LMC__FEATURES_AT);
    n_sections = lmc__load32(body + LMC__INDEX_SECTIONS_AT);
    for (i = 0; i < n_sections; i++) LMC__TRY(lmc__parse_entry(&x, max_offset));
    LMC__VALID(t->listing.n_streams > 0);
    LMC__TRY(lmc__check_stream_end(&x));
    lmc__settle_runs(t);
    t->metadata_at = x.c.p;
    t->n_metadata = lmc__load32(body + LMC__INDEX_METADATA_AT);
    LMC__TRY(lmc__parse_metadata(&x.c, t->n_metadata, &t->keys, &t->metadata));
    t->records = x.c;
    LMC__TRY(lmc__skip_records(&x.c, &t->listing.n_records));
    LMC__TRY(lmc__identify_listing(items, &t->listing, t->fingerprint));
    LMC__VALID(memcmp(body + LMC__INDEX_FINGERPRINT_AT, t->fingerprint, LMC_FINGERPRINT_SIZE) == 0);
    LMC__VALID(t->n_rows <= (max_offset - x.offset) / LMC__BLOCK_ENTRY_SIZE);
    t->rows_offset = x.offset;
    *offset = x.offset + LMC__SECTION_HEADER_SIZE + LMC__BLOCK_ENTRY_SIZE * t->n_rows;
    return LMC_OK;
}
