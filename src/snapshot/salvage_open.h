#pragma once
#include "base/platform.h"
#include "base/options.h"
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
#include "snapshot/open.h"
#include "snapshot/salvage.h"
#include "snapshot/salvage_place.h"
#include "snapshot/salvage_index.h"
#include "snapshot/salvage_walk.h"
#include "snapshot/salvage_read.h"

/* Opens a damaged file: reads its ends, searches it (salvage_walk.h), places runs
 * (salvage_place.h). */

/* Takes the header, if it is intact. A file of a later version and a wrong base (spec 7.3) are
 * refused. A damaged header is ignored. */
static enum lmc_status lmc__salvage_header(lmc_salvage *s)
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
    return lmc__take_header(r, header);
}

/* Takes the trailer, if it is intact, and the index in front of it. If the trailer's CRC is right,
 * but the index is not where the trailer says, the index is taken, too. But the trailer counts as
 * damaged, since bytes are missing. */
static enum lmc_status lmc__salvage_trailer(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    const lmc__kernels *const k = r->coder->wave.k;
    const uint64_t total = r->source.size, end = total - LMC__TRAILER_SIZE;
    uint8_t trailer[LMC__TRAILER_SIZE];
    uint64_t index_size, index_at;
    if (total < LMC__HEADER_SIZE + LMC__TRAILER_SIZE ||
        !lmc__read_rest(r, end, trailer, sizeof trailer))
        return LMC_OK;
    index_size = lmc__load64(trailer + 8);
    index_at = index_size <= end ? end - index_size : 0;
    if (index_at < LMC__HEADER_SIZE) return LMC_OK;
    s->damage.has_trailer = lmc__check_trailer(&r->info, trailer, total, k) == LMC_OK;
    if (s->damage.has_trailer) s->end = index_at;
    /* a trailer that was moved still tells the size of the index */
    if (memcmp(trailer + 32, LMC__END_MAGIC, 8) == 0 &&
        k->crc32c(0, trailer, 28) == lmc__load32(trailer + 28))
        return lmc__take_index(s, index_at, index_size, 1);
    return LMC_OK;
}

/* Without an index: takes the rows of the BLKS that was found, if it has as many rows as the known
 * runs have blocks: then no run is lost. */
static enum lmc_status lmc__salvage_rows(lmc_salvage *s)
{
    lmc__tables *const t = &s->reader.tables;
    size_t i;
    for (i = 0; i < lmc__count_runs(t); i++) {
        lmc__table_run(t, i)->first_row = t->n_rows;
        t->n_rows += lmc__table_run(t, i)->run.n_blocks; /* below 2^64, as each is below 2^32 */
    }
    if (t->n_rows != s->n_rows) return LMC_OK;
    LMC__TRY(lmc__take_rows(s, s->rows_at, s->n_rows));
    if (!s->has_rows) return LMC_OK;
    s->damage.is_complete = 1;
    for (i = 0; i < lmc__count_found(s); i++)
        lmc__found_at(s, i)->key =
            lmc__found_at(s, i)->size | (uint64_t)lmc__found_at(s, i)->header_crc << 32;
    return LMC_OK;
}

/* With an index, lmc__take_index has already put all files and runs into the tables. */
static enum lmc_status lmc__fill_tables(lmc_salvage *s)
{
    if (!s->damage.has_index) LMC__TRY(lmc__salvage_rows(s));
    lmc__choose_blocks(s);
    if (!s->damage.has_index) lmc__place_runs(s);
    return lmc__finish_runs(s);
}

/* Makes room for the results of lmc_salvage_confirm: for each file, then for each of its tensors.
 *
 *     verdicts      | file 0 | its tensors ... | file 1 | its tensors ... |      0: not known yet
 *     verdicts_at     ^ [0]                      ^ [1] */
static enum lmc_status lmc__add_verdicts(lmc_salvage *s)
{
    size_t i, n = 0, most = 0;
    for (i = 0; i < s->reader.tables.listing.n_files; i++) {
        const size_t n_tensors = lmc__file_at(&s->reader, i)->file.n_tensors;
        LMC__TRY(lmc__append(&s->verdicts_at, &n, sizeof n));
        n += 1 + n_tensors;
        if (n_tensors > most) most = n_tensors;
    }
    LMC__TRY(lmc__append(&s->fingerprints, NULL, LMC_FINGERPRINT_SIZE * most));
    return lmc__append(&s->verdicts, NULL, n);
}

/* Takes the intact ones of header, trailer and index, walks through the file, then fills the
 * tables. If nothing is found, the file is no LMC file. */
LMC__COLD static enum lmc_status lmc__open_salvage(lmc_reader *r)
{
    lmc_salvage *const s = lmc__get_salvage(r);
    lmc__init_buffers(s, LMC__SALVAGE_BUFFERS, r->options.allocator);
    s->end = r->source.size;
    s->n_rows = UINT64_MAX;
    LMC__TRY(lmc__salvage_header(s));
    LMC__TRY(lmc__salvage_trailer(s));
    LMC__TRY(lmc__walk_through(s));
    LMC__TRY(lmc__fill_tables(s));
    if (!s->damage.has_header && r->tables.listing.n_files == 0 && s->blocks.size == 0)
        return LMC_ERR_NOT_LMC;
    /* a file with an empty path is the only file */
    if (r->tables.listing.n_files == 1 && lmc__file_at(r, 0)->is_described &&
        *lmc__file_at(r, 0)->file.path == 0 && lmc__file_at(r, 0)->file.size != LMC_UNKNOWN_SIZE)
        s->damage.is_complete = 1;
    LMC__TRY(lmc__add_verdicts(s));
    s->run = r->tables.listing.n_streams ? lmc__stream_at(&r->tables.listing, 0)->first_run : 0;
    lmc__free_buffer(&s->body);
    lmc__free_buffer(&s->view);
    return LMC_OK;
}

/* The reader's free_extra: frees the buffers of a salvage. Some buffers are already empty. */
LMC__COLD static void lmc__free_salvage(lmc_reader *r)
{
    lmc__free_buffers(lmc__get_salvage(r), LMC__SALVAGE_BUFFERS);
}

/* free_extra is set before anything can fail. */
static enum lmc_status lmc__open_by_search(lmc_reader *r)
{
    r->is_salvage = 1;
    r->read_run = lmc__read_salvaged;
    r->free_extra = lmc__free_salvage;
    return lmc__open_salvage(r);
}

LMC_API enum lmc_status lmc_salvage_open(lmc_salvage **salvage, const lmc_source *source,
                                         const lmc_reader_options *options)
{
    lmc_reader *reader;
    LMC__NEW_OBJECT(salvage);
    LMC__TRY(lmc__open_reader(&reader, sizeof(lmc_salvage), lmc__open_by_search, source, options));
    *salvage = lmc__get_salvage(reader);
    return LMC_OK;
}

LMC_API void lmc_salvage_free(lmc_salvage *s) { lmc_reader_free(lmc_salvage_reader(s)); }
