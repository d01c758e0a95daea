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

/* Salvage: what is intact in a damaged file (spec, salvage.md). A reader whose tables come from
 * what was found:
 *
 *     salvage_place.h   without an index: streams and runs in the order in which they lie
 *     salvage_walk.h    goes through the file: sections, headers of blocks, the index
 *     salvage_open.h    the ends of the file, the walk, the tables
 *     salvage_read.h    decodes blocks; hands out ranges; compares fingerprints
 *
 * What it promises, and on what:
 *
 *  - What is handed out as intact has the Content_CRC that its header says, and that header has its
 *    Header_CRC, which covers the block's number. Which run it is of is known
 *        with the rows of BLKS      by size and Header_CRC, wherever it lies
 *        with an index only         by where it lies, and the sizes of the run and of the block
 *        without                    by what stands before it
 *    Without rows, where two of different content claim one place, neither is handed out
 *    (is_doubtful).
 *
 *  - Nothing intact is passed over: bytes that a damaged header claims are searched again.
 *
 *  - Time is linear in the file's size: what is read twice is counted (lmc__may_claim), and of
 *    copies of a block LMC__MAX_COPIES are tried.
 *
 *  - Memory is in proportion to what is found. */

/* The header of a block, perhaps: some bytes look like one by chance. */
typedef struct lmc__found_block {
    /* That by which it is looked for (lmc__block_key): run and number; or what its row says. */
    uint64_t key, at;
    /* Encoded size, decoded size, CRC of the content, and its own: as the header says. */
    uint32_t size, length, crc, header_crc;
    uint8_t has_prediction;
    uint8_t is_doubtful; /* Another one of that key has other content. */
} lmc__found_block;

/* Copies of a block that are tried before it counts as damaged. */
#define LMC__MAX_COPIES 4u

/* The reader is the first member, so a pointer to it is one to this, too. */
struct lmc_salvage {
    lmc_reader reader;
    /* Bytes of the file from view_at on, read at once; the body of one section. */
    lmc__buffer view, body;
    lmc__buffer blocks; /* lmc__found_block, sorted by key when all are there. */
    lmc__buffer rows;   /* Those of BLKS, of all runs: with has_rows. */
    /* The block that was decoded last: number i of those found is ranged - 1, and what it gave. It
     * may have bytes of several files. */
    lmc__buffer range;
    /* int8_t, what to say: of each file, followed by its tensors. And size_t: where in that each
     * file's begin. */
    lmc__buffer verdicts, verdicts_at;
    lmc__buffer fingerprints; /* Fingerprints of the file at hand, as the digester finds them. */
    lmc_damage damage;        /* What lmc_salvage_get_damage says. */
    uint8_t header[LMC__HEADER_SIZE]; /* The file's, if it is intact. */

    /* -- the walk -- */
    uint64_t end; /* Where the index begins, if that is known; else the file's size. */
    /* How many bytes behind the place that it says of itself the index lies (modulo 2^64). */
    uint64_t shift;
    uint64_t view_at;
    /* Of a BLKS that was found, where there is no index: its body, and how many rows. */
    uint64_t rows_at, n_rows;
    uint64_t claimed; /* Bytes that were read twice. */

    /* -- what was found -- */
    int has_rows;

    /* -- lmc_salvage_next -- */
    /* Where it is: file, byte of it, run; behind the last file, the block without a place. */
    size_t file, run, unplaced;
    uint64_t offset;
    /* Bytes that were handed out, of max_total_size. */
    uint64_t delivered;
    size_t ranged;
    enum lmc_status ranged_status;

    /* -- lmc_salvage_confirm -- */
    /* Of the file at hand; is_whole: nothing of it was lost so far. */
    lmc__digester digester;
    int is_whole;
};
#define LMC__SALVAGE_BUFFERS LMC__ROW(lmc_salvage, view, damage)

/* Of a reader that is one's first member. */
static lmc_salvage *lmc__get_salvage(const lmc_reader *r) { return (lmc_salvage *)(void *)r; }

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

/* What block of a run is looked for. A row is the size of the block and its Header_CRC; blocks
 * for which both are the same have the same content and number. */
static uint64_t lmc__block_key(const lmc_salvage *s, size_t run, uint64_t block)
{
    return s->has_rows ? lmc__load64(s->rows.data +
                                     LMC__BLOCK_ENTRY_SIZE *
                                         (size_t)(lmc__run_at(&s->reader, run)->first_row + block))
                       : (uint64_t)run << 32 | block;
}

/* Of the sorted ones the first that is not before the key. */
static size_t lmc__find_key(const lmc_salvage *s, uint64_t key)
{
    size_t i;
    LMC__FIND_FIRST(i, 0, lmc__count_found(s), lmc__found_at(s, i)->key < key);
    return i;
}

/* The first copy of a block, of that size; or the number of all found. */
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

/* The first block of the run that was found, from this one on; n_blocks: none. */
static uint64_t lmc__next_found(const lmc_salvage *s, size_t run, uint64_t block)
{
    const uint64_t n_blocks = lmc__run_at(&s->reader, run)->run.n_blocks;
    const size_t n = lmc__count_found(s);
    for (; block < n_blocks && lmc__find_copies(s, run, block) == n; block++) {
        size_t i;
        if (s->has_rows) continue; /* each has its row */
        i = lmc__find_key(s, ((uint64_t)run << 32 | block) + 1);
        if (i == n || lmc__found_at(s, i)->key >> 32 != run) return n_blocks;
        block = (lmc__found_at(s, i)->key & UINT32_MAX) - 1;
    }
    return block;
}

/* The register before the bytes of p, from the one behind them. The polynomial's bit 31 is set
 * and a shifted register's is not, so bit 31 tells whether a step had added the polynomial. */
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

/* The number of a block, which its header does not store: Header_CRC is a CRC-32C over the
 * number and the header before it. The bytes of the header are taken back from it, then four
 * steps of the number as if that were 0. What is left is the register at the start, exclusive or
 * the number. */
static uint32_t lmc__number_of(const uint8_t *header)
{
    static const uint8_t zeros[4] = {0, 0, 0, 0};
    const uint32_t crc = ~lmc__load32(header + LMC__BLOCK_CRC_AT);
    return ~lmc__rewind_crc(lmc__rewind_crc(crc, header, LMC__BLOCK_CRC_AT), zeros, 4);
}

/* -- bytes of the file -- */

/* Bytes of the file; what cannot be read is zero, by pages, which is how disks fail. 1: all
 * could. */
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

/* Bytes [at, at + size) of the file, which has them, and up to `more` behind them; *n: how many.
 * What is at hand is used first. */
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

/* What may be read twice: in a hostile file a header at every byte may claim the rest of the
 * file. Eight times the file's size is enough for any damage. */
static int lmc__may_claim(lmc_salvage *s, uint64_t size)
{
    const uint64_t file_size = lmc__min64(s->reader.source.size, (uint64_t)1 << 56);
    if (s->claimed > 8 * file_size + ((uint64_t)16 << 20)) return 0;
    s->claimed += size;
    return 1;
}

/* CRC of bytes of the file, which has them. */
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
