#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/names.h"
#include "snapshot/files.h"
#include "snapshot/index_entries.h"

/* SHA-256 hashes of content, and the section that stores them (spec/hash.md). They protect against
 * forgery; fingerprints do not. They are slow to compute, so the caller must ask for them.
 *
 *     u8 Algorithm, 7 zero bytes | Snapshot_Hash | for each file: hash of each tensor, hash of all
 *                                                  bytes outside of tensors
 *
 * Snapshot_Hash covers everything in the snapshot, including the other hashes. */
#define LMC__HASH_HEAD_SIZE 8u                                     /* names the algorithm */
#define LMC__HASH_BODY_SIZE (LMC__HASH_HEAD_SIZE + LMC__HASH_SIZE) /* without hashes of content */
#define LMC__HASH_SHA256 1u

static uint64_t lmc__count_hashes(const lmc__listing *l)
{
    uint64_t n = l->n_files;
    size_t i;
    for (i = 0; i < l->n_files; i++) n += lmc__listed_at(l, i)->file.n_tensors;
    return n;
}

/* Whether the body has hashes of the algorithm that this library knows. */
static int lmc__is_hash_body(const uint8_t *body, uint64_t size)
{
    static const uint8_t head[LMC__HASH_HEAD_SIZE] = {LMC__HASH_SHA256};
    return size >= LMC__HASH_HEAD_SIZE && memcmp(body, head, LMC__HASH_HEAD_SIZE) == 0;
}

/* -- Snapshot_Hash: the SHA-256 of a canonical text that describes the whole snapshot -- */

static void lmc__state_tensor(lmc__sha256 *sha, const lmc_tensor *t, const uint8_t *hash)
{
    const unsigned measure = t->loss.generation ? (unsigned)t->loss.measure : 0u;
    unsigned i;
    lmc__sha256_text(sha, t->name, 4);
    lmc__sha256_text(sha, t->dtype, 1);
    lmc__sha256_number(sha, t->rank, 1);
    for (i = 0; i < t->rank; i++) lmc__sha256_number(sha, t->shape[i], 8);
    lmc__sha256_number(sha, t->offset, 8);
    lmc__sha256_number(sha, t->size, 8);
    lmc__sha256_number(sha, t->loss.generation, 1);
    lmc__sha256_number(sha, measure, 1);
    lmc__sha256_number(sha, (uint64_t)(t->loss.error * 4294967296.0), 4);
    lmc__sha256_update(sha, hash, LMC__HASH_SIZE);
}

/* hash: the first hash of the file; the others follow it. */
static void lmc__state_file(lmc__sha256 *sha, const lmc_file *f, const uint8_t *hash)
{
    unsigned form = 0;
    size_t i;
    lmc__sha256_text(sha, f->path, 4);
    if (f->kind == LMC_FILE_DIRECTORY) form |= LMC__FILE_IS_DIRECTORY;
    if (f->has_mode) form |= LMC__FILE_HAS_MODE;
    if (f->has_mtime) form |= LMC__FILE_HAS_MTIME;
    lmc__sha256_number(sha, form, 1);
    lmc__sha256_number(sha, f->size, 8);
    lmc__sha256_number(sha, f->has_mode ? f->mode : 0, 4);
    lmc__sha256_number(sha, f->has_mtime ? (uint64_t)f->mtime_s : 0, 8);
    lmc__sha256_number(sha, f->has_mtime ? f->mtime_ns : 0, 4);
    lmc__sha256_number(sha, f->n_tensors, 8);
    for (i = 0; i < f->n_tensors; i++, hash += LMC__HASH_SIZE)
        lmc__state_tensor(sha, &f->tensors[i], hash);
    lmc__sha256_update(sha, hash, LMC__HASH_SIZE);
}

/* Hashes n metadata entries, as in the index, except those that tell how the file was made. */
static void lmc__state_metadata(lmc__sha256 *sha, const uint8_t *entry, uint32_t n)
{
    for (; n != 0; n--) {
        const size_t key_size = lmc__load32(entry), size = 8 + key_size + lmc__load32(entry + 4);
        const int is_own = key_size >= 4 && memcmp(entry + 8, "lmc.", 4) == 0;
        if (!is_own || (key_size == 9 && memcmp(entry + 8, "lmc.links", 9) == 0))
            lmc__sha256_update(sha, entry, size);
        entry += size;
    }
}

/* Hashes all files, sorted by path, and n metadata entries. hashes: lmc__count_hashes(l) hashes.
 * items: a scratch buffer. */
LMC__COLD static enum lmc_status lmc__hash_snapshot(uint8_t hash[LMC__HASH_SIZE],
                                                    const lmc__listing *l, const uint8_t *hashes,
                                                    const uint8_t *metadata, uint32_t n,
                                                    lmc__buffer *items)
{
    lmc__sha256 sha;
    lmc__item *item;
    size_t i, at = 0;
    items->size = 0;
    for (i = 0; i < l->n_files; i++) {
        const lmc_file *const f = &lmc__listed_at(l, i)->file;
        LMC__TRY(lmc__append_item(items, f->path, strlen(f->path), hashes + at, i, NULL));
        at += LMC__HASH_SIZE * (f->n_tensors + 1);
    }
    item = (lmc__item *)(void *)items->data;
    lmc__sort_items(item, l->n_files); /* paths are unique, so fingerprints are not compared */
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC content 1", 14);
    lmc__sha256_number(&sha, l->n_files, 8);
    for (i = 0; i < l->n_files; i++)
        lmc__state_file(&sha, &lmc__listed_at(l, item[i].file_number)->file, item[i].fingerprint);
    lmc__state_metadata(&sha, metadata, n);
    lmc__sha256_finish(&sha, hash);
    return LMC_OK;
}

/* Checks that the body (lmc__is_hash_body) has a hash for each of these files and tensors, and that
 * its Snapshot_Hash is right. */
LMC__COLD static enum lmc_status lmc__check_snapshot_hash(const lmc__buffer *body,
                                                          const lmc__listing *l,
                                                          const uint8_t *metadata, uint32_t n,
                                                          lmc__buffer *items)
{
    uint8_t hash[LMC__HASH_SIZE];
    LMC__VALID(body->size == LMC__HASH_BODY_SIZE + LMC__HASH_SIZE * lmc__count_hashes(l)); /* H-2 */
    LMC__TRY(lmc__hash_snapshot(hash, l, body->data + LMC__HASH_BODY_SIZE, metadata, n, items));
    LMC__VALID(memcmp(body->data + LMC__HASH_HEAD_SIZE, hash, LMC__HASH_SIZE) == 0); /* H-5 */
    return LMC_OK;
}
