#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_block.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/fingerprint.h"
#include "snapshot/names.h"
#include "snapshot/sections.h"
#include "snapshot/files.h"

/* The bodies of the sections INDX (spec 8.2) and BLKS (8.1): their layout, and how they are built.
 *
 *     INDX  head               copy of the file's header, fingerprint, counts LMC__INDEX_BODY_SIZE
 *           entry of a FILE:   kind | stored size | size | body of the section | facts of its files
 *           entry of a RUN:    kind | stored size | size | body of the section
 *           ancillary section: kind | stored size
 *           ...                one entry for each section before BLKS, in their order
 *           metadata           sorted by key
 *           extension records
 *     BLKS  a row for each block of all runs: size, Header_CRC
 *
 * The *facts* of a file are known only at its end: its size if the section does not tell it, its
 * CRC, its fingerprints.
 *
 * The writer builds both bodies while it writes blocks. Restoring builds them, too, and compares
 * them with the bodies in the file. A reader begins with the index, and must parse it (index.h). */

#define LMC__DEFAULT_INDEX_LIMIT ((uint64_t)1 << 30)

/* The bodies while they are built, without metadata. The head stays zero until the end, and the
 * facts of a file until the file ends. The entry of a run is made after its blocks, because it has
 * their total size. */
typedef struct lmc__index_builder {
    lmc__buffer entries, rows; /* the body of INDX; the body of BLKS */
    lmc__buffer run_body;      /* of the current run */
    uint64_t limit;            /* on the sum of the sizes of entries and rows */
    uint64_t run_stored;       /* bytes of the run's section and blocks; 0: there is no run */
    size_t facts_at;           /* in entries: the facts of the current file */
} lmc__index_builder;
#define LMC__INDEX_BUFFERS LMC__ROW(lmc__index_builder, entries, limit)

/* limit: bytes; 0: the default. */
static enum lmc_status lmc__open_index(lmc__index_builder *b, uint64_t limit,
                                       const lmc_allocator *allocator)
{
    lmc__init_buffers(b, LMC__INDEX_BUFFERS, allocator);
    b->limit = limit ? limit : LMC__DEFAULT_INDEX_LIMIT;
    return lmc__append(&b->entries, NULL, LMC__INDEX_BODY_SIZE);
}

/* Appends to entries or rows. The limit is needed because a pipe may be endless. */
static enum lmc_status lmc__grow_index(lmc__index_builder *b, lmc__buffer *part, const void *data,
                                       size_t size)
{
    if (b->entries.size - LMC__INDEX_BODY_SIZE + (uint64_t)b->rows.size + size > b->limit)
        return LMC_ERR_LIMIT;
    return lmc__append(part, data, size);
}

LMC__COLD static enum lmc_status lmc__index_entry(lmc__index_builder *b, const char *kind,
                                                  uint64_t stored, const uint8_t *body,
                                                  size_t body_size)
{
    LMC__TRY(lmc__grow_index(b, &b->entries, kind, 4));
    LMC__TRY(lmc__append_varint(&b->entries, stored));
    if (lmc__is_lower(*kind)) return LMC_OK;
    LMC__TRY(lmc__append_varint(&b->entries, body_size));
    return lmc__grow_index(b, &b->entries, body, body_size);
}

/* Ends the current run, if there is one. All of its blocks must have been indexed. */
static enum lmc_status lmc__index_run_end(lmc__index_builder *b)
{
    const uint64_t stored = b->run_stored;
    b->run_stored = 0;
    return stored ? lmc__index_entry(b, "RUN ", stored, b->run_body.data, b->run_body.size)
                  : LMC_OK;
}

/* Adds the next section. The body of an ancillary section is not used. */
LMC__COLD static enum lmc_status lmc__index_section(lmc__index_builder *b, const char *kind,
                                                    const uint8_t *body, uint64_t body_size)
{
    const uint64_t stored = LMC__SECTION_HEADER_SIZE + body_size;
    LMC__TRY(lmc__index_run_end(b));
    if (memcmp(kind, "RUN ", 4) != 0)
        return lmc__index_entry(b, kind, stored, body, (size_t)body_size);
    b->run_stored = stored;
    b->run_body.size = 0;
    return lmc__append(&b->run_body, body, (size_t)body_size);
}

static size_t lmc__facts_head_size(const lmc_file *file)
{
    return file->size == LMC_UNKNOWN_SIZE ? 12 : 4;
}

/* Makes room for the facts of the files of the last FILE entry. */
static enum lmc_status lmc__index_files(lmc__index_builder *b, const lmc__listing *l,
                                        const lmc__stream *stream)
{
    size_t i;
    b->facts_at = b->entries.size;
    for (i = stream->first_file; i < stream->first_file + stream->n_files; i++) {
        const lmc_file *const file = &lmc__listed_at(l, i)->file;
        LMC__TRY(lmc__grow_index(b, &b->entries, NULL,
                                 lmc__facts_head_size(file) +
                                     LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file)));
    }
    return LMC_OK;
}

/* Tells the digester where to write the fingerprints of the current file. Call this before each
 * wave is absorbed, because the place moves when the index grows. */
static void lmc__index_fingerprints(const lmc__index_builder *b, lmc__digester *d)
{
    d->fingerprints = b->entries.data + b->facts_at + lmc__facts_head_size(d->file);
}

/* Copies the fingerprints of a file from its facts. The array file->tensors must be writable. */
static void lmc__keep_fingerprints(lmc_file *file, const uint8_t *fingerprints)
{
    lmc_tensor *const tensors = (lmc_tensor *)(uintptr_t)file->tensors;
    size_t i;
    if (file->n_tensors == 0) memcpy(file->fingerprint, fingerprints, LMC_FINGERPRINT_SIZE);
    for (i = 0; i < file->n_tensors; i++)
        memcpy(tensors[i].fingerprint, fingerprints + LMC_FINGERPRINT_SIZE * i,
               LMC_FINGERPRINT_SIZE);
}

/* Writes the facts of a file, after all of its bytes were absorbed. */
LMC__COLD static void lmc__index_file_end(lmc__index_builder *b, lmc__digester *d, lmc_file *file)
{
    lmc__index_fingerprints(b, d);
    lmc__finish_digester(d);
    if (file->size == LMC_UNKNOWN_SIZE) lmc__store64(d->fingerprints - 12, d->absorbed);
    lmc__store32(d->fingerprints - 4, d->file_crc);
    b->facts_at +=
        lmc__facts_head_size(file) + LMC_FINGERPRINT_SIZE * lmc__count_fingerprints(file);
    file->size = d->absorbed;
    file->crc = d->file_crc;
    lmc__keep_fingerprints(file, d->fingerprints);
}

static enum lmc_status lmc__index_block(lmc__index_builder *b, size_t encoded_size,
                                        const uint8_t *header)
{
    uint8_t entry[LMC__BLOCK_ENTRY_SIZE];
    lmc__store32(entry, (uint32_t)encoded_size);
    lmc__store32(entry + 4, lmc__load32(header + LMC__BLOCK_CRC_AT));
    b->run_stored += encoded_size;
    return lmc__grow_index(b, &b->rows, entry, sizeof entry);
}

/* Fills items with all items of the snapshot (lmc__append_items), which point into the list, and
 * computes the snapshot's fingerprint from them. */
static enum lmc_status lmc__identify_listing(lmc__buffer *items, const lmc__listing *l,
                                             uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    size_t i;
    items->size = 0;
    for (i = 0; i < l->n_files; i++)
        LMC__TRY(lmc__append_items(items, &lmc__listed_at(l, i)->file, i));
    lmc__snapshot_fingerprint(items, fingerprint);
    return LMC_OK;
}

typedef struct lmc__metadata_entry {
    size_t key_at; /* where in the buffer `keys` the key begins, NUL-terminated */
    const uint8_t *value;
    size_t size;
} lmc__metadata_entry;

/* Parses n metadata entries: each has two sizes, a key and a value. Keys ascend strictly, so they
 * are unique. They have no NUL, so they are copied to `keys` as C strings. Values stay where they
 * are. keys NULL: the entries are only checked. */
LMC__COLD static enum lmc_status lmc__parse_metadata(lmc__cursor *c, uint32_t n, lmc__buffer *keys,
                                                     lmc__buffer *entries)
{
    lmc__item last, next;
    last.name = NULL;
    last.size = 0;
    for (; n > 0; n--) {
        lmc__metadata_entry entry;
        LMC__VALID(lmc__left(c) >= 8);
        next.size = lmc__take32(c);
        entry.size = lmc__take32(c);
        LMC__VALID(next.size >= 1 && next.size <= LMC__MAX_STRING &&
                   entry.size <= LMC__MAX_VALUE_SIZE); /* R8-13 */
        LMC__VALID(lmc__left(c) >= (uint64_t)next.size + entry.size);
        next.name = lmc__take_bytes(c, next.size);
        entry.value = lmc__take_bytes(c, entry.size);
        LMC__VALID(memchr(next.name, 0, next.size) == NULL);
        LMC__VALID(last.name == NULL || lmc__compare_names(&last, &next) < 0); /* R8-14 */
        last = next;
        if (!keys) continue;
        entry.key_at = keys->size;
        LMC__TRY(lmc__append(keys, next.name, next.size));
        LMC__TRY(lmc__append(keys, NULL, 1));
        LMC__TRY(lmc__append(entries, &entry, sizeof entry));
    }
    return LMC_OK;
}
