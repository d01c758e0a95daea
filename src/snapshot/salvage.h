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
#include "snapshot/salvage_api.h"

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
