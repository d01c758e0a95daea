#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/identity.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"

/* The body of the INDX section (spec 10): what its bytes mean, and how it grows.
 *
 *     head           counts, identity of the snapshot                   LMC__INDEX_BODY_SIZE
 *     entry of file 0: offset | header and body of its FILE section | facts
 *     entry of run 0:  offset | header and body of its RUN section  | {size, Header_CRC} per block
 *     ...            one entry for each section before, in their order
 *     metadata       sorted by key
 *
 * The *facts* of a file are what is known only at its end: File_Size, File_CRC, identities.
 *
 * Writer and restorer build the entries while blocks go by; the restorer then compares them with
 * those of the file byte for byte, so nothing else of an index that a pipe brings is to be checked.
 * A reader, which begins with the index, must parse it (index.h). */

#define LMC__DEFAULT_INDEX_LIMIT ((uint64_t)1 << 30)
#define LMC__FILE_FACTS_SIZE 16u /* without identities */

/* The entries as they grow, without head and metadata. The facts of a file stay zero until it has
 * ended; entries of its runs and blocks stand behind them meanwhile. */
typedef struct lmc__index_builder {
    lmc__buffer entries;
    uint64_t limit;  /* on their size */
    size_t facts_at; /* in entries: the facts of the file at hand */
} lmc__index_builder;

/* Appends, up to the limit: a restorer's index grows with what a pipe brings, which may be
 * endless. */
static enum lmc_status lmc__grow_index(lmc__index_builder *b, const void *data, size_t size)
{
    if (b->entries.size + (uint64_t)size > b->limit) return LMC_ERR_LIMIT;
    return lmc__append(&b->entries, data, size);
}

/* The entry of a section that begins at `offset` of the file. head: its header; its body may stand
 * elsewhere. */
static enum lmc_status lmc__index_section(lmc__index_builder *b, uint64_t offset,
                                          const uint8_t *head, const uint8_t *body,
                                          size_t body_size)
{
    uint8_t field[8];
    lmc__store64(field, offset);
    LMC__TRY(lmc__grow_index(b, field, 8));
    LMC__TRY(lmc__grow_index(b, head, LMC__SECTION_HEADER_SIZE));
    return lmc__grow_index(b, body, body_size);
}

/* Room for the facts of a file whose section was the last entry. */
static enum lmc_status lmc__index_file(lmc__index_builder *b, const lmc_file *file)
{
    b->facts_at = b->entries.size;
    return lmc__grow_index(b, NULL,
                           LMC__FILE_FACTS_SIZE + LMC_IDENTITY_SIZE * lmc__count_identities(file));
}

/* Where the digester puts the identities of the file at hand. They move when the index grows: so a
 * digester is told anew before each wave is absorbed. */
static uint8_t *lmc__index_identities(const lmc__index_builder *b)
{
    return b->entries.data + b->facts_at + LMC__FILE_FACTS_SIZE;
}

/* All of the file was absorbed by d: its facts are known now. */
static void lmc__index_file_end(lmc__index_builder *b, lmc__digester *d, uint64_t file_size)
{
    uint8_t *const facts = b->entries.data + b->facts_at;
    d->identities = lmc__index_identities(b);
    lmc__finish_digester(d);
    lmc__store64(facts, file_size);
    lmc__store32(facts + 8, d->file_crc);
}

/* The next block of the run whose section was the last. With its size a reader finds it; with its
 * Header_CRC it tells it from another one of the same numbers. */
static enum lmc_status lmc__index_block(lmc__index_builder *b, size_t encoded_size,
                                        const uint8_t *header)
{
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    lmc__store32(entry, (uint32_t)encoded_size);
    lmc__store32(entry + 4, lmc__load32(header + LMC__BLOCK_CRC_AT));
    return lmc__grow_index(b, entry, sizeof entry);
}

/* The head of the body. */
typedef struct lmc__index_head {
    uint32_t n_files, n_runs, n_metadata;
    uint8_t identity[LMC_IDENTITY_SIZE];
} lmc__index_head;

#ifndef LMC_NO_ENCODER
static void lmc__put_index_head(uint8_t *dst, const lmc__index_head *head)
{
    memset(dst, 0, LMC__INDEX_BODY_SIZE);
    lmc__store32(dst, head->n_files);
    lmc__store32(dst + 4, head->n_runs);
    memcpy(dst + 8, head->identity, LMC_IDENTITY_SIZE);
    lmc__store32(dst + 40, head->n_metadata);
}
#endif

/* p: LMC__INDEX_BODY_SIZE bytes. The counts are only what the head says. */
static enum lmc_status lmc__get_index_head(lmc__index_head *head, const uint8_t *p)
{
    head->n_files = lmc__load32(p);
    head->n_runs = lmc__load32(p + 4);
    memcpy(head->identity, p + 8, LMC_IDENTITY_SIZE);
    head->n_metadata = lmc__load32(p + 40);
    LMC__CHECK(lmc__load32(p + 44) == 0, LMC_ERR_UNSUPPORTED);
    return LMC_OK;
}

/* Names and identities of everything that has them among n_entries entries. These are known to be
 * sound: they were built here, or parsed before; so the grammar is only followed, and where a check
 * of it fails nothing is leaked. Items point into the entries. */
static enum lmc_status lmc__collect_items(lmc__buffer *items, const uint8_t *entries,
                                          uint64_t n_entries)
{
    items->size = 0;
    for (; n_entries > 0; n_entries--) {
        const uint8_t *const head = entries + 8, *const body = head + LMC__SECTION_HEADER_SIZE;
        const uint8_t *const behind = body + (size_t)lmc__load64(head + 8);
        if (head[0] == 'F') {
            const uint8_t *identity = behind + LMC__FILE_FACTS_SIZE, *path;
            uint32_t path_size, n_tensors, i;
            lmc__tensor_entry tensor;
            lmc__cursor c;
            lmc_file file;
            c.p = body;
            c.end = behind;
            LMC__TRY(lmc__parse_file_head(&c, &file, &path, &path_size, &n_tensors));
            if (n_tensors == 0) LMC__TRY(lmc__append_item(items, path, path_size, identity));
            for (i = 0; i < n_tensors; i++) {
                LMC__TRY(lmc__parse_tensor(&c, &tensor));
                LMC__TRY(lmc__append_item(items, tensor.name, tensor.name_size,
                                          identity + (size_t)LMC_IDENTITY_SIZE * i));
            }
            entries = identity + (size_t)LMC_IDENTITY_SIZE * (n_tensors ? n_tensors : 1);
        } else {
            const uint64_t run_size = lmc__load64(body), block_size = (uint64_t)1 << body[8];
            entries =
                behind + LMC__BLOCK_ENTRY_SIZE * (size_t)((run_size + block_size - 1) / block_size);
        }
    }
    return LMC_OK;
}

/* Metadata entries, exactly [p, end): each two sizes, a key, a value. Keys are in strictly
 * ascending order, so none is there twice, and have no NUL, so they can be C strings. */
static enum lmc_status lmc__check_metadata(const uint8_t *p, const uint8_t *end, uint32_t n)
{
    lmc__item last, next;
    uint32_t i;
    last.name = NULL;
    last.size = 0;
    for (i = 0; i < n; i++) {
        uint32_t key_size, value_size;
        LMC__CHECK(end - p >= 8, LMC_ERR_CORRUPT);
        key_size = lmc__load32(p);
        value_size = lmc__load32(p + 4);
        p += 8;
        LMC__CHECK(key_size >= 1 && key_size <= LMC__MAX_STRING &&
                       value_size <= LMC__MAX_VALUE_SIZE,
                   LMC_ERR_CORRUPT);
        LMC__CHECK((uint64_t)(end - p) >= (uint64_t)key_size + value_size &&
                       memchr(p, 0, key_size) == NULL,
                   LMC_ERR_CORRUPT);
        next.name = p;
        next.size = key_size;
        LMC__CHECK(last.name == NULL || lmc__compare_names(&last, &next) < 0, LMC_ERR_CORRUPT);
        last = next;
        p += (size_t)key_size + value_size;
    }
    LMC__CHECK(p == end, LMC_ERR_CORRUPT);
    return LMC_OK;
}
