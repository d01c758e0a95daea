#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "kernels/types.h"
#include "snapshot/buffer.h"
#include "snapshot/ends.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"
#include "snapshot/runs.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"
#include "snapshot/salvage.h"

/* Finds the index of a damaged file, and the rows of BLKS. */

/* Whether the first section of the file is the FILE of the index's first entry. */
static int lmc__has_first_section(lmc_reader *r, const lmc__tables *t)
{
    uint8_t first[LMC__SECTION_HEADER_SIZE];
    uint64_t stored, size = 0;
    lmc__cursor c;
    c.p = t->index.data + LMC__SECTION_HEADER_SIZE + LMC__INDEX_BODY_SIZE + 4; /* a FILE */
    c.end = t->index.data + t->index.size;
    return lmc__get_varint(&c, &stored) == LMC_OK && lmc__get_varint(&c, &size) == LMC_OK &&
           lmc__read_rest(r, LMC__HEADER_SIZE, first, sizeof first) &&
           memcmp(first, "FILE", 4) == 0 && lmc__load64(first + 4) == size &&
           lmc__load32(first + 16) == r->coder->wave.k->crc32c(0, c.p, (size_t)size);
}

/* Takes the rows of all runs from the body of BLKS, which is at `at`, if its CRC is right. */
static enum lmc_status lmc__take_rows(lmc_salvage *s, uint64_t at, uint64_t n_rows)
{
    const uint64_t size = LMC__BLOCK_ENTRY_SIZE * n_rows;
    uint8_t crc[4];
    if (size > lmc__index_limit(&s->reader)) return LMC_OK;
    LMC__TRY(lmc__reserve(&s->rows, size + 1)); /* so that data is not NULL */
    (void)lmc__read_rest(&s->reader, at - 4, crc, 4);
    (void)lmc__read_rest(&s->reader, at, s->rows.data, (size_t)size);
    if (s->reader.coder->wave.k->crc32c(0, s->rows.data, (size_t)size) != lmc__load32(crc))
        return LMC_OK;
    s->has_rows = 1;
    return LMC_OK;
}

/* If an intact index of this file is at that place, makes the tables from it. Then all blocks that
 * were found are dropped, and the walk begins again with the index.
 *
 * An index may belong to another LMC file that is stored in this file. It is this file's index if
 *
 * - it is at the place to which its sizes add up;
 * - or the first section of the file is that of its first entry (bytes were lost or inserted);
 * - or it is where the trailer says, but before the place to which its sizes add up. */
static enum lmc_status lmc__take_index(lmc_salvage *s, uint64_t at, uint64_t size, int has_trailer)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    lmc__tables found;
    lmc__section section;
    uint64_t offset = 0;
    enum lmc_status status;
    lmc__init_tables(&found, r->options.allocator);
    status = lmc__read_index(r, &found, at, size);
    if (status == LMC_OK)
        status = lmc__parse_index(&found, k, s->damage.has_header ? s->header : NULL,
                                  LMC__MAX_FILE_SIZE, &r->coder->in[0], &offset);
    if (status == LMC_OK && offset != at && !(has_trailer && offset > at) &&
        !lmc__has_first_section(r, &found))
        status = LMC_ERR_CORRUPT;
    if (status != LMC_OK) {
        lmc__free_tables(&found);
        return status == LMC_ERR_MEMORY || status == LMC_ERR_SIZE ? status : LMC_OK;
    }
    lmc__free_tables(&r->tables);
    r->tables = found;
    /* the index has a copy of the header */
    lmc__get_header_info(&r->info, r->tables.index.data + LMC__SECTION_HEADER_SIZE);
    s->blocks.size = 0;
    s->damage.n_sections = lmc__get_section(&section, found.index.data, k) != LMC_OK;
    s->damage.n_breaks = 0;
    s->damage.has_index = s->damage.is_complete = 1;
    s->end = at;
    s->shift = at - offset;
    return found.n_rows < at / LMC__BLOCK_ENTRY_SIZE
               ? lmc__take_rows(s, at - LMC__BLOCK_ENTRY_SIZE * found.n_rows, found.n_rows)
               : LMC_OK;
}
