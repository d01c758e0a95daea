/* lmc_salvage.h - v1.0.0 - what is intact in a damaged LMC file
 * SPDX-License-Identifier: MIT
 *
 * SYNOPSIS
 *       #include "lmc.h"
 *       #include "lmc_salvage.h"
 *
 *   wherever it is used; and in the file that defines LMC_IMPLEMENTATION, after lmc.h. It must have
 *   the same version as lmc.h.
 *
 * CONTENTS
 *   tools/amalgamate.py makes this file from the files of src/. Change those, not this one.
 *   snapshot   salvage_api salvage salvage_place salvage_index salvage_walk salvage_read
 *              salvage_open
 */
#ifndef LMC_SALVAGE_H
#define LMC_SALVAGE_H
#ifndef LMC_H
#include "lmc.h"
#endif
#ifdef LMC_NO_SNAPSHOT
#error "lmc_salvage.h needs what LMC_NO_SNAPSHOT leaves out"
#endif

/* == snapshot/salvage_api.h ==================================================================== */

#ifdef __cplusplus
extern "C" {
#endif

/* -- salvage: what is intact in a damaged file (spec/salvage.md) --
 * Opening reads the whole file, which may be damaged or cut short. It finds the sections and the
 * headers of blocks wherever they are. The index tells where each block belongs; if the index is
 * damaged, the sections tell. Bytes that source.read_at cannot read count as damaged.
 * lmc_salvage_next returns everything that is intact. The reader of lmc_salvage_reader lists and
 * reads files and tensors as usual; reading lost bytes returns LMC_ERR_LOST. Only blocks that were
 * coded against a base need it. It may be such a reader, too; its lost bytes are lost here.
 *
 * A block that is returned has the right Content_CRC, and its header is right for its place. This
 * finds damage, but not forgery. With BLKS, the table of blocks, each block is recognised wherever
 * it is, and blocks of other LMC files are refused. Without BLKS, a block may be mistaken for
 * another block of the same number and size; if both are found, both are refused. Fingerprints
 * confirm whole files and tensors (lmc_salvage_confirm). A file whose FILE section is lost has size
 * LMC_UNKNOWN_SIZE and path "". Without the index, files and runs are numbered as they are found.
 *
 * Errors of opening: NOT_LMC (nothing was found), BASE_WRONG (if the header is intact), VERSION,
 * UNSUPPORTED, LIMIT, MEMORY. Time is in proportion to the sizes of the file and of what is
 * decoded, for any input. Memory: as other readers; without an index also 40 bytes for each block
 * header, and the bodies of sections. */

typedef struct lmc_salvage lmc_salvage;

/* source and options: as for a reader. parallel_reads is ignored: one thread does all reads. */
LMC_STATUS lmc_salvage_open(lmc_salvage **salvage, const lmc_source *source,
                            const lmc_reader_options *options);
LMC_API void lmc_salvage_free(lmc_salvage *salvage); /* NULL allowed */
/* The reader belongs to the salvage, and is freed with it. NULL for NULL. */
LMC_API lmc_reader *lmc_salvage_reader(lmc_salvage *salvage);

typedef struct lmc_salvage_range {
    int is_end;         /* 1: there are no more ranges; size is 0 then */
    size_t file_number; /* SIZE_MAX: a block without a known place in the files */
    uint64_t offset;    /* within the file; 0 for a block without a place */
    uint64_t size;
    /* LMC_OK: intact. LOST: not found. CHECKSUM, CORRUPT: its block is damaged. READ: it cannot be
     * read. BASE_MISSING: its payload is intact, but needs the base. BASE_WRONG: the same, but this
     * base is wrong. If its payload is intact but needs lost bytes of this snapshot: the status of
     * these bytes. */
    enum lmc_status status;
    const void *data; /* with LMC_OK: size bytes, valid until the next call; else NULL */
    /* Of the block and of its run; of several lost blocks, of the first block. UINT32_MAX if no run
     * is known. */
    uint32_t run_number, block_number;
    uint64_t reserved[4]; /* zero; see "What changes within 1.x" */
} lmc_salvage_range;

/* The next range: a block, or lost bytes between blocks, from front to back through all files. The
 * last range has is_end. Errors: ARGUMENT, LIMIT (more than max_total_size), MEMORY (try again). */
LMC_STATUS lmc_salvage_next(lmc_salvage *salvage, lmc_salvage_range *range);

typedef struct lmc_damage {
    int has_header, has_index, has_trailer; /* 1: intact */
    int is_complete;                        /* 1: no file is missing from the list */
    uint64_t n_breaks;    /* places where something was found that should not follow there */
    size_t n_sections;    /* damaged sections that were found; lost sections are not counted */
    uint64_t reserved[4]; /* zero; see "What changes within 1.x" */
} lmc_damage;

LMC_STATUS lmc_salvage_get_damage(const lmc_salvage *salvage, lmc_damage *damage);
/* 1: path, size and tensors of the file are known. */
LMC_API int lmc_salvage_is_described(const lmc_salvage *salvage, size_t file_number);
/* After lmc_salvage_next has returned all of the file: whether its tensor of that number (SIZE_MAX:
 * the file) is what was written. LMC_OK: its fingerprint (the file's CRC) is that of the index.
 * CHECKSUM: it is not. LOST: nobody knows, because bytes or the index are lost. ARGUMENT: there is
 * no such tensor. */
LMC_STATUS lmc_salvage_confirm(const lmc_salvage *salvage, size_t file_number,
                               size_t tensor_number);

#ifdef __cplusplus
}
#endif

#endif /* LMC_SALVAGE_H */

#if defined(LMC_IMPLEMENTATION) && !defined(LMC__SALVAGE_IMPLEMENTED)
#define LMC__SALVAGE_IMPLEMENTED

/* == snapshot/salvage.h ======================================================================== */

/* Salvage: finds what is intact in a damaged file (spec/salvage.md). It is a reader whose tables
 * are made from what is found:
 *     salvage_place.h   without an index: lists streams and runs in the order of the file
 *     salvage_walk.h    searches the file for sections, headers of blocks, the index
 *     salvage_open.h    reads the ends of the file, starts the walk, fills the tables
 *     salvage_read.h    decodes blocks; returns ranges; compares fingerprints
 *
 * What it guarantees, and how:
 *
 *  - A block that is returned as intact has the right Content_CRC and Header_CRC. Header_CRC covers
 *    the block's number. The run of the block is found
 *        with the rows of BLKS      by its size and Header_CRC, at any place
 *        with only an index         by its place, and the sizes of the run and of the block
 *        with neither               by what was found before it
 *    Without rows, two blocks with different content may claim one place. Then neither is returned
 *    (is_doubtful).
 *
 *  - Nothing intact is skipped: the bytes that a damaged header claims are searched, too.
 *
 *  - Time is linear in the file's size: bytes that are read twice are limited (lmc__may_claim), and
 *    only LMC__MAX_COPIES copies of a block are tried.
 *
 *  - Memory is in proportion to what is found. */

/* A header of a block that was found. Other bytes may look like a header by chance. */
typedef struct lmc__found_block {
    /* The search key (lmc__block_key): run and number, or row of BLKS. The place in the file. */
    uint64_t key, at;
    /* From the header: encoded size, decoded size, CRC of the content, the header's CRC. */
    uint32_t size, length, crc, header_crc;
    uint8_t has_prediction;
    uint8_t is_doubtful; /* Another block with this key has other content. */
} lmc__found_block;

/* Copies of a block that are tried before the block counts as damaged. */
#define LMC__MAX_COPIES 4u

/* The reader is the first member, so a pointer to it is a pointer to the salvage, too. */
struct lmc_salvage {
    lmc_reader reader;
    /* Bytes of the file from view_at on, which were read at once; the body of one section. */
    lmc__buffer view, body;
    lmc__buffer blocks; /* lmc__found_block, sorted by key after the walk. */
    lmc__buffer rows;   /* The rows of BLKS, if has_rows. */
    /* The block that was decoded last, with number ranged - 1 in `blocks`, and its status. It may
     * have bytes of several files. */
    lmc__buffer range;
    /* verdicts: for each file an int8_t, followed by one for each of its tensors. verdicts_at: for
     * each file a size_t, where its verdicts begin. */
    lmc__buffer verdicts, verdicts_at;
    lmc__buffer fingerprints;         /* Fingerprints of the current file, from the digester. */
    lmc_damage damage;                /* What lmc_salvage_get_damage returns. */
    uint8_t header[LMC__HEADER_SIZE]; /* The file's header, if has_header. */

    /* -- the walk -- */
    uint64_t end; /* Where the index begins, if known; else the file's size. */
    /* Where the index is, minus the place to which its sizes add up (modulo 2^64). */
    uint64_t shift;
    uint64_t view_at;
    /* Without an index: where the body of BLKS was found, and its number of rows. */
    uint64_t rows_at, n_rows;
    uint64_t claimed; /* Bytes that were read twice. */

    /* -- what was found -- */
    int has_rows;

    /* -- lmc_salvage_next -- */
    /* The next range: file, its run and byte; after all files, the next block without a place. */
    size_t file, run, unplaced;
    uint64_t offset;
    /* Bytes that were returned, limited by max_total_size. */
    uint64_t delivered;
    size_t ranged;
    enum lmc_status ranged_status;

    /* -- lmc_salvage_confirm -- */
    /* Of the current file; is_whole: no byte of this file was lost so far. */
    lmc__digester digester;
    int is_whole;
};
#define LMC__SALVAGE_BUFFERS LMC__ROW(lmc_salvage, view, damage)

/* The salvage that begins with this reader. */
static lmc_salvage *lmc__get_salvage(const lmc_reader *r) { return (lmc_salvage *)(void *)r; }

/* -- blocks that were found -- */

/* Valid until another block is found. */
static lmc__found_block *lmc__found_at(const lmc_salvage *s, size_t i)
{
    return (lmc__found_block *)(void *)s->blocks.data + i;
}
static size_t lmc__count_found(const lmc_salvage *s)
{
    return s->blocks.size / sizeof(lmc__found_block);
}

/* The search key of a block of a run. A row is the size and the Header_CRC of the block; blocks
 * with the same row have the same content and number. */
static uint64_t lmc__block_key(const lmc_salvage *s, size_t run, uint64_t block)
{
    return s->has_rows ? lmc__load64(s->rows.data +
                                     LMC__BLOCK_ENTRY_SIZE *
                                         (size_t)(lmc__run_at(&s->reader, run)->first_row + block))
                       : (uint64_t)run << 32 | block;
}

/* The first block whose key is not below `key`. */
static size_t lmc__find_key(const lmc_salvage *s, uint64_t key)
{
    size_t i;
    LMC__FIND_FIRST(i, 0, lmc__count_found(s), lmc__found_at(s, i)->key < key);
    return i;
}

/* The number of the first copy of a block, if it has the right size; else that of all blocks. */
static size_t lmc__find_copies(const lmc_salvage *s, size_t run, uint64_t block)
{
    const uint64_t key = lmc__block_key(s, run, block);
    const size_t n = lmc__count_found(s), i = lmc__find_key(s, key);
    return i < n && lmc__found_at(s, i)->key == key &&
                   lmc__found_at(s, i)->length ==
                       lmc__block_size_at(&lmc__run_at(&s->reader, run)->run, block)
               ? i
               : n;
}

/* The number of the first block of the run, from `block` on, that was found; n_blocks: none. */
static uint64_t lmc__next_found(const lmc_salvage *s, size_t run, uint64_t block)
{
    const uint64_t n_blocks = lmc__run_at(&s->reader, run)->run.n_blocks;
    const size_t n = lmc__count_found(s);
    for (; block < n_blocks && lmc__find_copies(s, run, block) == n; block++) {
        size_t i;
        if (s->has_rows) continue; /* the key is a row, not a number */
        i = lmc__find_key(s, ((uint64_t)run << 32 | block) + 1);
        if (i == n || lmc__found_at(s, i)->key >> 32 != run) return n_blocks;
        block = (lmc__found_at(s, i)->key & UINT32_MAX) - 1;
    }
    return block;
}

/* Runs a CRC register backwards over the bytes of p. Bit 31 of the polynomial is 1, and bit 31 of a
 * register after a shift is 0. So bit 31 tells whether a step has added the polynomial. */
static uint32_t lmc__rewind_crc(uint32_t state, const uint8_t *p, size_t size)
{
    unsigned bit;
    while (size != 0) {
        for (bit = 0; bit < 8; bit++)
            state = state >> 31 ? (state ^ LMC__CRC_POLYNOMIAL) << 1 | 1 : state << 1;
        state ^= p[--size];
    }
    return state;
}

/* The number of a block, which its header does not store: Header_CRC is a CRC-32C over the number
 * and the header before it. The register is run backwards over the header, then over the number as
 * if it were 0. The result is the register at the start, XOR the number. */
static uint32_t lmc__number_of(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    const uint32_t crc = ~lmc__load32(header + LMC__BLOCK_CRC_AT);
    return ~lmc__rewind_crc(lmc__rewind_crc(crc, header, LMC__BLOCK_CRC_AT), zeros, 4);
}

/* -- bytes of the file -- */

/* Reads bytes of the file. Pages of 4096 bytes that cannot be read become zero: disks fail in such
 * units. Returns 1 if everything was read. */
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

/* *p: bytes [at, at + size) of the file, which must have them, and up to `more` after them. *n: how
 * many bytes *p has. The last view is used if it has size bytes there. */
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

/* Whether size bytes may be read once more. In a hostile file a header at every byte may claim the
 * rest of the file. Eight times the file's size is enough for any real damage. */
static int lmc__may_claim(lmc_salvage *s, uint64_t size)
{
    const uint64_t file_size = lmc__min64(s->reader.source.size, (uint64_t)1 << 56);
    if (s->claimed > 8 * file_size + ((uint64_t)16 << 20)) return 0;
    s->claimed += size;
    return 1;
}

/* CRC of bytes of the file, which must have them. */
static uint32_t lmc__crc_of_file(lmc_salvage *s, uint64_t at, uint64_t size)
{
    uint8_t bytes[4096];
    uint32_t crc = 0;
    while (size != 0) {
        const size_t n = (size_t)lmc__min64(size, sizeof bytes);
        (void)lmc__read_rest(&s->reader, at, bytes, n);
        crc = s->reader.coder->wave.k->crc32c(crc, bytes, n);
        at += n;
        size -= n;
    }
    return crc;
}

/* == snapshot/salvage_place.h ================================================================== */

/* Without an index: lists streams and runs in the order in which their sections were found, and
 * finds which bytes of its stream each run has.
 *
 * Runs cover a stream in order, without a gap. So their places follow from the runs before and
 * after them. Where a section may be lost, the tables have an *unknown run*. It may be empty, or
 * have the blocks that were found there.
 *
 *     file      F R 0 1 2 R .. 0 1 .. R 0 1 F        "..": lost
 *     stream    |-- 0 ---|-- 1 ---|? 2 |- 3 -|       3 ends where the stream does
 *
 * Runs before the first unknown run are placed from the front of the stream. Runs after the last
 * unknown run are placed from the end, if the stream's size is known. Runs between unknown runs
 * have a place only if the blocks of the unknown runs tell their sizes. If the known runs fill the
 * stream, or have all rows of BLKS, the unknown runs are empty. */

/* run.stream of a run without a place. */
#define LMC__NO_STREAM SIZE_MAX

/* Whether the section or the index describes the run. Blocks of an unknown run can be read only if
 * they have no prediction. */
static int lmc__is_known_run(const lmc_reader *r, size_t number)
{
    return lmc__run_at(r, number)->prediction != LMC_ERR_LOST;
}

/* Adds a stream of which nothing is known. It gets one file, but may have had several. */
static enum lmc_status lmc__add_unknown_stream(lmc_reader *r)
{
    lmc__listed_file *f;
    lmc__stream *stream;
    LMC__TRY(lmc__add_stream(&r->tables.listing, &stream));
    stream->first_run = lmc__count_runs(&r->tables);
    stream->size = LMC_UNKNOWN_SIZE;
    stream->is_unknown = 1;
    LMC__TRY(lmc__add_file(&r->tables.listing, &f));
    f->file.path = "";
    f->file.size = LMC_UNKNOWN_SIZE;
    return LMC_OK;
}

/* Adds the run, without a place, to the last stream. NULL: adds an unknown run. */
static enum lmc_status lmc__add_found_run(lmc_reader *r, const lmc__run *run)
{
    lmc__listing *const l = &r->tables.listing;
    lmc__reader_run added;
    if (l->n_streams == 0) LMC__TRY(lmc__add_unknown_stream(r));
    memset(&added, 0, sizeof added);
    if (run) added.run = *run;
    else added.run.block_size = (size_t)1 << LMC__MIN_LOG2_BLOCK; /* not 0: code divides by it */
    added.run.stream = LMC__NO_STREAM;
    added.prediction = run ? LMC_OK : LMC_ERR_LOST;
    lmc__stream_at(l, l->n_streams - 1)->n_runs++;
    return lmc__append(&r->tables.runs, &added, sizeof added);
}

/* Sets the place of the run. Its segments were relative to the start of the run. */
static void lmc__set_start(lmc_reader *r, size_t number, size_t stream, uint64_t start)
{
    lmc__run *const run = &lmc__run_at(r, number)->run;
    uint32_t i;
    for (i = 0; i < run->n_segments; i++)
        ((lmc__segment *)(void *)r->tables.segments.data)[run->first_segment + i].start += start;
    run->stream = stream;
    run->start = start;
}

/* An unknown run begins at `start` of the stream and ends at `stop` or before. It gets this place
 * if its blocks tell its block size. Returns 1 if no block is missing: then the next run begins at
 * its end.
 *
 * The block size is that of the first block that was found, if a later block was found, too. A
 * single block has a place only if its number is 0. All blocks must fit that size. */
static int lmc__place_unknown(lmc_salvage *s, size_t number, size_t stream, uint64_t start,
                              uint64_t stop)
{
    lmc__run *const run = &lmc__run_at(&s->reader, number)->run;
    const size_t first = lmc__find_key(s, (uint64_t)number << 32),
                 behind = lmc__find_key(s, ((uint64_t)number + 1) << 32);
    const lmc__found_block *f;
    uint64_t last, n_missing, block = 0;
    size_t block_size, i;
    if (first == behind) return 0;
    f = lmc__found_at(s, first);
    last = f[behind - first - 1].key & UINT32_MAX;
    block_size = last == 0 ? (size_t)1 << LMC__MAX_LOG2_BLOCK : f->length; /* the only block */
    if ((f->key & UINT32_MAX) == last && last != 0) return 0;
    if (block_size < (size_t)1 << LMC__MIN_LOG2_BLOCK || (block_size & (block_size - 1)) != 0)
        return 0;
    n_missing = f->key & UINT32_MAX;
    for (i = 0; i < behind - first; i++) {
        const uint64_t before = block;
        block = f[i].key & UINT32_MAX;
        if (f[i].length > block_size || (block != last && f[i].length < block_size)) return 0;
        n_missing += i && block > before + 1;
    }
    i--;
    if (last > (stop - start) / block_size || f[i].length > stop - start - last * block_size)
        return 0;
    run->size = last * block_size + f[i].length;
    run->block_size = block_size;
    run->n_blocks = last + 1;
    lmc__set_start(&s->reader, number, stream, start);
    return n_missing == 0;
}

/* Gives a place to every run of the stream that can have only one place. */
static void lmc__place_stream(lmc_salvage *s, size_t number)
{
    lmc_reader *const r = &s->reader;
    const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, number);
    const int is_described = lmc__listed_at(&r->tables.listing, stream->first_file)->is_described;
    uint64_t position = 0, stop = stream->is_unknown ? LMC__MAX_FILE_SIZE : stream->size, left;
    size_t i = stream->first_run, end = i + stream->n_runs, j;
    for (; i < end && lmc__is_known_run(r, i); i++) {
        lmc__set_start(r, i, number, position);
        position += lmc__run_at(r, i)->run.size;
    }
    for (; i < end && !stream->is_unknown && lmc__is_known_run(r, end - 1); end--) {
        stop -= lmc__run_at(r, end - 1)->run.size;
        lmc__set_start(r, end - 1, number, stop);
    }
    left = stop - position; /* bytes that runs i to end do not cover */
    for (j = i; j < end; j++) left -= lmc__run_at(r, j)->run.size;
    for (; i < end; i++) {
        const lmc__run *const run = &lmc__run_at(r, i)->run;
        if (lmc__is_known_run(r, i)) {
            if (run->size > stop - position) return;
            lmc__set_start(r, i, number, position);
        } else if (left != 0 && !s->has_rows && !lmc__place_unknown(s, i, number, position, stop) &&
                   is_described)
            return;
        position += run->size;
    }
}

/* Without an index: gives each run its place if that is certain. Other runs get size 0. */
LMC__COLD static void lmc__place_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i;
    for (i = 0; i < r->tables.listing.n_streams; i++) lmc__place_stream(s, i);
    for (i = 0; i < lmc__count_runs(&r->tables); i++)
        if (lmc__run_at(r, i)->run.stream == LMC__NO_STREAM) lmc__run_at(r, i)->run.size = 0;
    lmc__settle_runs(&r->tables);
}

/* Compares by key, then by place in the file. */
static int lmc__compare_found(const void *x, const void *y)
{
    const lmc__found_block *const a = (const lmc__found_block *)x;
    const lmc__found_block *const b = (const lmc__found_block *)y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Sorts the blocks that were found. Of blocks with one key it keeps the first and its copies,
 * LMC__MAX_COPIES in all. If any has other content, is_doubtful is set: none is returned. */
static void lmc__choose_blocks(lmc_salvage *s)
{
    const size_t n = lmc__count_found(s);
    lmc__found_block *const f = (lmc__found_block *)(void *)s->blocks.data;
    lmc__found_block spare;
    size_t i, j, n_kept = 0;
    for (i = 1; i < n && lmc__compare_found(&f[i - 1], &f[i]) < 0; i++) {}
    if (i < n) lmc__heap_sort(f, n, sizeof *f, lmc__compare_found, &spare);
    for (i = 0; i < n; i = j) {
        lmc__found_block *const best = &f[n_kept];
        unsigned n_copies = 1;
        *best = f[i];
        for (j = i + 1; j < n && f[j].key == best->key; j++) {
            if (f[j].crc != best->crc || f[j].length != best->length) best->is_doubtful = 1;
            else if (n_copies < LMC__MAX_COPIES) best[n_copies++] = f[j]; /* to f[j] or before */
        }
        n_kept += n_copies;
    }
    s->blocks.size = n_kept * sizeof *f;
}

/* Puts each empty run at the end of the previous run: searching needs sorted runs. Checks the
 * predictions of each run. A segment outside of the base means BASE_WRONG here, because the header
 * with the base's fingerprint may be lost.
 *
 * If predictions cannot be read, only the blocks that need them are lost: run->prediction has the
 * status. */
LMC__COLD static enum lmc_status lmc__finish_runs(lmc_salvage *s)
{
    lmc_reader *const r = &s->reader;
    size_t i, j;
    for (i = 0; i < r->tables.listing.n_streams; i++) {
        const lmc__stream *const stream = lmc__stream_at(&r->tables.listing, i);
        uint64_t end = 0;
        for (j = stream->first_run; j < stream->first_run + stream->n_runs; j++) {
            lmc__reader_run *const run = lmc__run_at(r, j);
            if (run->run.stream == LMC__NO_STREAM) lmc__set_start(r, j, i, end);
            end = run->run.start + run->run.size;
            if (run->prediction == LMC_OK)
                run->prediction = lmc__check_predictions(&r->origin, &run->run, LMC_ERR_BASE_WRONG);
            LMC__CHECK(run->prediction != LMC_ERR_MEMORY, LMC_ERR_MEMORY);
            if (run->run.size != 0) LMC__TRY(lmc__add_run(&r->origin, &run->run));
        }
    }
    return LMC_OK;
}

/* == snapshot/salvage_index.h ================================================================== */

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

/* == snapshot/salvage_walk.h =================================================================== */

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

/* == snapshot/salvage_read.h =================================================================== */

/* Decodes the blocks that were found: to read bytes of a file (lmc__read_salvaged), or range by
 * range, with the lost ranges between them (lmc_salvage_next).
 *
 *     lmc_salvage_next ---> the next block of the runs in order, or the gap before it
 *     lmc_reader_read_file ----> lmc__read_salvaged: the blocks of a range, by binary search
 *          both ---> lmc__decode_found: the first copy that is intact ---> lmc__decode_copy
 *
 * The walk has checked the CRCs of headers. Payload_CRC and Content_CRC are checked here. */

/* -- blocks -- */

/* Decodes one copy of a block of run `number` to dst, found->length bytes.
 *
 * The header is read and checked again, because the file may have changed since the walk. The
 * prediction is read to dst first, since this may need the coder, and the block is decoded over it.
 * If the prediction cannot be read, returns that error; but if the payload is damaged, too, returns
 * the payload's error. */
static enum lmc_status lmc__decode_copy(lmc_reader *r, size_t number, uint32_t block,
                                        const lmc__found_block *found, uint8_t *dst)
{
    const lmc__reader_run *const run = lmc__run_at(r, number);
    lmc__coder *const c = r->coder;
    enum lmc_status status, prediction = run->prediction;
    lmc_block_info info;
    if (found->has_prediction && prediction == LMC_OK) {
        LMC__VALID(run->run.prediction != LMC__PREDICT_ZERO);
        prediction = lmc__read_prediction(
            &r->origin, &run->run, (uint64_t)block * run->run.block_size, dst, found->length);
    }
    LMC__TRY(lmc__set_coder(c, found->length, 1, 0));
    c->in[0].size = 0;
    LMC__TRY(lmc__reserve(&c->in[0], found->size));
    LMC__TRY(lmc__read_at(r, found->at, c->in[0].data, found->size));
    LMC__TRY(lmc__read_block_info(c->wave.k, c->in[0].data, found->size, block, &info));
    LMC__VALID(info.size == found->length && info.encoded_size == found->size &&
               info.has_prediction == found->has_prediction); /* else the file has changed */
    LMC__TRY(lmc__spend(r->meter, (uint64_t)info.size + info.encoded_size));
    LMC__TRY(lmc__check_block_features(c->in[0].data, r->info.features));
    status = lmc__decode_block(c->wave.k, dst, lmc__no_streaming, c->in[0].data, &info,
                               prediction == LMC_OK ? dst : NULL, lmc__is_own_prediction(&run->run),
                               c->wave.workspaces, c->wave.workspace_size);
    return status == LMC_ERR_BASE_MISSING ? prediction : status;
}

/* Decodes the first intact copy of a block. Number i in s->blocks is its first copy. */
LMC__COLD static enum lmc_status lmc__decode_found(lmc_salvage *s, size_t number, uint32_t block,
                                                   size_t i, uint8_t *dst)
{
    const uint64_t key = lmc__found_at(s, i)->key;
    enum lmc_status status = LMC_ERR_LOST;
    if (lmc__found_at(s, i)->is_doubtful) return LMC_ERR_CORRUPT;
    for (; i < lmc__count_found(s) && lmc__found_at(s, i)->key == key; i++) {
        status = lmc__decode_copy(&s->reader, number, block, lmc__found_at(s, i), dst);
        if (status == LMC_OK || status == LMC_ERR_MEMORY || status == LMC_ERR_LIMIT) return status;
    }
    return status;
}

/* The reader's read_run. It decodes block by block, and ends at the first lost block.
 *
 * If only a part of a block is wanted, the block is decoded to a buffer. There are two such
 * buffers: to read a prediction from this snapshot, this function calls itself. */
LMC__COLD static enum lmc_status lmc__read_salvaged(lmc_reader *r, size_t number, uint64_t offset,
                                                    uint8_t *dst, size_t size)
{
    lmc_salvage *const s = lmc__get_salvage(r);
    const lmc__run *const run = &lmc__run_at(r, number)->run;
    lmc__buffer *const part = &r->base[run->prediction == LMC__PREDICT_OWN];
    while (size != 0) {
        const uint64_t block = offset / run->block_size;
        const size_t skip = (size_t)(offset - block * run->block_size),
                     length = lmc__block_size_at(run, block), n = lmc__min(length - skip, size);
        const size_t i = lmc__find_copies(s, number, block);
        uint8_t *to = dst;
        LMC__CHECK(i < lmc__count_found(s), LMC_ERR_LOST);
        if (n < length) {
            part->size = 0;
            LMC__TRY(lmc__reserve(part, length));
            to = part->data;
        }
        LMC__TRY(lmc__decode_found(s, number, (uint32_t)block, i, to));
        if (n < length) memcpy(dst, to + skip, n);
        dst += n;
        offset += n;
        size -= n;
    }
    return LMC_OK;
}

/* -- ranges -- */

/* Whether a file (by its CRC), and then each of its tensors (by their fingerprints), is what was
 * written: 1, -1 if not, 0 until that is known. */
static int8_t *lmc__verdicts_of(const lmc_salvage *s, size_t file_number)
{
    return (int8_t *)(void *)s->verdicts.data +
           ((const size_t *)(const void *)s->verdicts_at.data)[file_number];
}

/* The result of a tensor with lost bytes, until its file has ended. */
#define LMC__HAS_LOSS 2

/* Skips the next bytes of the file, which are lost, and marks their tensors. The digests of these
 * tensors are finished, though they are wrong: so the digester reaches the next tensor. */
static void lmc__skip_lost(lmc__digester *d, int8_t *verdicts, uint64_t size)
{
    const lmc_file *const file = d->file;
    d->absorbed += size;
    d->planned = d->absorbed;
    for (;;) {
        const lmc_tensor *t;
        lmc__finish_fingerprints(d);
        if (d->tensor == file->n_tensors) return;
        t = &file->tensors[d->tensor];
        if (t->offset >= d->absorbed) return;
        verdicts[1 + d->tensor] = LMC__HAS_LOSS;
        d->tensor_done = lmc__min64(t->size, d->absorbed - t->offset);
        d->leaf_size = (uint32_t)(d->tensor_done % LMC__LEAF_SIZE);
        if (d->tensor_done < t->size) return;
    }
}

/* Ends the file: compares the file and its tensors with the index, if they are whole. */
static void lmc__confirm_file(lmc_salvage *s, const lmc_file *file, int8_t *verdicts)
{
    size_t i;
    lmc__finish_fingerprints(&s->digester);
    if (s->is_whole) verdicts[0] = (int8_t)(s->digester.file_crc == file->crc ? 1 : -1);
    for (i = 0; i < file->n_tensors; i++)
        verdicts[1 + i] = (int8_t)(verdicts[1 + i] == LMC__HAS_LOSS ? 0
                                   : memcmp(file->tensors[i].fingerprint,
                                            s->fingerprints.data + LMC_FINGERPRINT_SIZE * i,
                                            LMC_FINGERPRINT_SIZE) == 0
                                       ? 1
                                       : -1);
}

/* Takes the next `size` bytes of the current file; data NULL: they are lost. */
static void lmc__digest_next(lmc_salvage *s, const uint8_t *data, uint64_t size)
{
    const lmc_file *const file = &lmc__file_at(&s->reader, s->file)->file;
    int8_t *const verdicts = lmc__verdicts_of(s, s->file);
    if (s->damage.has_index) { /* else fingerprints are not known */
        if (s->offset == 0) {
            lmc__begin_digester(&s->digester, file);
            s->digester.fingerprints = s->fingerprints.data;
            s->is_whole = 1;
        }
        if (data) lmc__absorb_bytes(&s->digester, s->reader.coder->wave.k, data, (size_t)size);
        else lmc__skip_lost(&s->digester, verdicts, size);
        s->is_whole &= data != NULL;
        if (s->offset + size == file->size) lmc__confirm_file(s, file, verdicts);
    }
    s->offset += size;
}

/* Makes a range of `size` lost bytes. */
static enum lmc_status lmc__report_lost(lmc_salvage *s, lmc_salvage_range *range, uint64_t size)
{
    range->size = size;
    range->status = LMC_ERR_LOST;
    lmc__digest_next(s, NULL, size);
    return LMC_OK;
}

/* Makes a range of at most `most` bytes of a block of run `number`, from byte `skip` on. The block
 * is number i in s->blocks. range->status says whether the block is damaged; the returned status is
 * about the call. A block with bytes of several files is decoded only once.
 *
 * The limit also counts damaged blocks, to bound the work for a hostile file. */
static enum lmc_status lmc__deliver(lmc_salvage *s, size_t number, size_t i, size_t skip,
                                    uint64_t most, lmc_salvage_range *range)
{
    const uint64_t max = s->reader.options.max_total_size, limit = max ? max : UINT64_MAX;
    const lmc__found_block *const f = lmc__found_at(s, i);
    const size_t size = (size_t)lmc__min64(f->length - skip, most);
    int is_outermost;
    if (size > limit - lmc__min64(limit, s->delivered)) return LMC_ERR_LIMIT;
    if (skip == 0 || s->ranged != i + 1) {
        s->ranged = 0;
        s->range.size = 0;
        LMC__TRY(lmc__reserve(&s->range, f->length));
        is_outermost = lmc__begin_request(&s->reader, f->length, 0);
        s->ranged_status = lmc__decode_found(s, number, range->block_number, i, s->range.data);
        lmc__end_work(s->reader.meter, is_outermost);
        if (s->ranged_status == LMC_ERR_MEMORY) return LMC_ERR_MEMORY;
        s->ranged = i + 1;
    }
    range->size = size;
    range->status = s->ranged_status;
    if (range->status == LMC_OK) range->data = s->range.data + skip;
    s->delivered += size;
    return LMC_OK;
}

/* The next range of run s->run, which has byte `position` of the stream. The file ends at byte
 * `end` of the stream. The range is the file's part of a block that was found, or the lost bytes
 * before the next block.
 *
 *     blocks of the run   |##0##|     |     |##3##|#4#|          1 and 2 were not found
 *     files               |--- a -------------|- b ---|
 *     ranges              | 0   | lost      |3| 3 | 4 | */
static enum lmc_status lmc__next_of_run(lmc_salvage *s, uint64_t position, uint64_t end,
                                        lmc_salvage_range *range)
{
    const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
    const uint64_t at = position - run->start, block = at / run->block_size,
                   next = lmc__next_found(s, s->run, block);
    range->run_number = (uint32_t)s->run;
    range->block_number = (uint32_t)block;
    if (next > block)
        return lmc__report_lost(
            s, range,
            lmc__min64(end, run->start + lmc__min64(next * run->block_size, run->size)) - position);
    LMC__TRY(lmc__deliver(s, s->run, lmc__find_copies(s, s->run, block),
                          (size_t)(at - block * run->block_size), end - position, range));
    lmc__digest_next(s, (const uint8_t *)range->data, range->size);
    return LMC_OK;
}

/* The next range of the current file; LMC_ERR_NOT_FOUND: the file has ended. Bytes that no run has
 * are lost. A file of unknown size ends with its last run. */
static enum lmc_status lmc__next_of_file(lmc_salvage *s, lmc_salvage_range *range)
{
    const lmc__listed_file *const f = lmc__file_at(&s->reader, s->file);
    const lmc__stream *const stream = lmc__stream_of(&s->reader, f);
    const uint64_t position = f->start + s->offset,
                   end = f->file.size == LMC_UNKNOWN_SIZE ? UINT64_MAX : f->start + f->file.size;
    range->file_number = s->file;
    range->offset = s->offset;
    for (; s->run < stream->first_run + stream->n_runs && position < end; s->run++) {
        const lmc__run *const run = &lmc__run_at(&s->reader, s->run)->run;
        if (position < run->start)
            return lmc__report_lost(s, range, lmc__min64(end, run->start) - position);
        if (position - run->start < run->size) return lmc__next_of_run(s, position, end, range);
    }
    if (f->file.size != LMC_UNKNOWN_SIZE && position < end)
        return lmc__report_lost(s, range, end - position);
    if (f->file.size == 0) lmc__digest_next(s, (const uint8_t *)"", 0); /* it gets no range */
    return LMC_ERR_NOT_FOUND;
}

/* The next block without a place: its run and number are known, but not its file and offset. With
 * an index, or the rows of BLKS, a block without a place is not of this file. */
static enum lmc_status lmc__next_unplaced(lmc_salvage *s, lmc_salvage_range *range)
{
    const lmc_reader *const r = &s->reader;
    const size_t n = s->damage.has_index || s->has_rows ? 0 : lmc__count_found(s);
    uint64_t key = UINT64_MAX;
    for (; s->unplaced < n; s->unplaced++) {
        const size_t i = s->unplaced;
        key = lmc__found_at(s, i)->key;
        if (lmc__run_at(r, (size_t)(key >> 32))->run.size == 0 &&
            (i == 0 || lmc__found_at(s, i - 1)->key != key))
            break; /* not a copy */
    }
    if (s->unplaced >= n) return LMC_ERR_NOT_FOUND;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    range->run_number = (uint32_t)(key >> 32);
    range->block_number = (uint32_t)key;
    LMC__TRY(lmc__deliver(s, range->run_number, s->unplaced, 0, UINT64_MAX, range));
    s->unplaced++;
    return LMC_OK;
}

/* Goes once through the files, then through the blocks without a place. range->status says whether
 * the range is intact. The status that is returned is about the call: if it is not LMC_OK (memory,
 * a limit), there is no range. */
LMC__COLD LMC_API enum lmc_status lmc_salvage_next(lmc_salvage *s, lmc_salvage_range *range)
{
    enum lmc_status status;
    lmc_reader *r;
    if (!s || !range) return LMC_ERR_ARGUMENT;
    r = &s->reader;
    memset(range, 0, sizeof *range);
    range->run_number = range->block_number = UINT32_MAX;
    while (s->file < r->tables.listing.n_files) {
        status = lmc__next_of_file(s, range);
        if (status != LMC_ERR_NOT_FOUND) return status;
        s->offset = 0;
        s->file++;
        if (s->file < r->tables.listing.n_files && lmc__file_at(r, s->file)->start == 0)
            s->run = lmc__stream_of(r, lmc__file_at(r, s->file))->first_run;
    }
    status = lmc__next_unplaced(s, range);
    if (status != LMC_ERR_NOT_FOUND) return status;
    range->is_end = 1;
    range->file_number = SIZE_MAX;
    range->offset = 0;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_salvage_get_damage(const lmc_salvage *s, lmc_damage *damage)
{
    if (!s || !damage) return LMC_ERR_ARGUMENT;
    *damage = s->damage;
    return LMC_OK;
}

LMC_API lmc_reader *lmc_salvage_reader(lmc_salvage *s) { return s ? &s->reader : NULL; }

/* Whether the file's FILE section or the index was found. */
LMC_API int lmc_salvage_is_described(const lmc_salvage *s, size_t file_number)
{
    return s && file_number < s->reader.tables.listing.n_files &&
           lmc__file_at(&s->reader, file_number)->is_described;
}

LMC_STATUS lmc_salvage_confirm(const lmc_salvage *s, size_t file_number, size_t tensor_number)
{
    const lmc_file *const file = s ? lmc_reader_get_file(&s->reader, file_number) : NULL;
    int verdict;
    if (!file || (tensor_number != SIZE_MAX && tensor_number >= file->n_tensors))
        return LMC_ERR_ARGUMENT;
    verdict = lmc__verdicts_of(s, file_number)[tensor_number + 1]; /* SIZE_MAX + 1 = 0: the file */
    return verdict == 1 ? LMC_OK : verdict == -1 ? LMC_ERR_CHECKSUM : LMC_ERR_LOST;
}

/* == snapshot/salvage_open.h =================================================================== */

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

#endif /* LMC_IMPLEMENTATION */
