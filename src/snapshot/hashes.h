#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "base/wire_file.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/names.h"
#include "snapshot/files.h"
#include "snapshot/index_entries.h"

/* SHA-256 of the bytes of each item, and the section that has them (spec 9.5): good against
 * forgers, as identities are not. It takes several times as long as all else, so it is done only if
 * the caller asks.
 *
 *     u8 Algorithm, 7 zero bytes | 32 bytes for each item, in the order of the snapshot's identity
 *
 * The bytes of each file come in order (lmc__hash_content); what of them belongs to no tensor is
 * passed over. */
#define LMC__HASH_SIZE 32u
#define LMC__HASH_BODY_SIZE 8u /* without hashes */
#define LMC__HASH_SHA256 1u

typedef struct lmc__hasher {
    const lmc_file *file;
    /* The tensor at hand, and how many bytes of the file have come. */
    size_t tensor;
    uint64_t position;
    lmc__sha256 sha;
    /* LMC__HASH_SIZE bytes for each item that is complete, in the order of the files. */
    lmc__buffer hashes;
} lmc__hasher;

/* A file begins, whose description must stay. */
static void lmc__begin_hashes(lmc__hasher *h, const lmc_file *file)
{
    h->file = file;
    h->tensor = 0;
    h->position = 0;
    lmc__sha256_init(&h->sha);
}

/* The item at hand is complete. */
static enum lmc_status lmc__finish_hash(lmc__hasher *h)
{
    LMC__TRY(lmc__append(&h->hashes, NULL, LMC__HASH_SIZE));
    lmc__sha256_finish(&h->sha, h->hashes.data + h->hashes.size - LMC__HASH_SIZE);
    lmc__sha256_init(&h->sha);
    h->tensor++;
    return LMC_OK;
}

/* Tensors that have no more bytes to come. */
static enum lmc_status lmc__finish_hashes(lmc__hasher *h)
{
    const lmc_file *const f = h->file;
    while (h->tensor < f->n_tensors &&
           f->tensors[h->tensor].offset + f->tensors[h->tensor].size <= h->position)
        LMC__TRY(lmc__finish_hash(h));
    return LMC_OK;
}

/* The file's next bytes. */
static enum lmc_status lmc__hash_content(lmc__hasher *h, const uint8_t *data, size_t size)
{
    const lmc_file *const f = h->file;
    while (size != 0) {
        size_t n = size;
        int is_in_item = f->n_tensors == 0;
        LMC__TRY(lmc__finish_hashes(h));
        if (h->tensor < f->n_tensors) {
            const lmc_tensor *const t = &f->tensors[h->tensor];
            is_in_item = t->offset <= h->position;
            n = (size_t)lmc__min64(size, is_in_item ? t->offset + t->size - h->position
                                                    : t->offset - h->position);
        }
        if (is_in_item) lmc__sha256_update(&h->sha, data, n);
        h->position += n;
        data += n;
        size -= n;
    }
    return LMC_OK;
}

/* All of the file has come. */
static enum lmc_status lmc__end_hashes(lmc__hasher *h)
{
    return h->file->n_tensors ? lmc__finish_hashes(h) : lmc__finish_hash(h);
}

/* Items of lmc__collect_items are numbered as they come, and keep that when they are sorted. */
static void lmc__number_items(const lmc__buffer *items)
{
    lmc__item *const item = (lmc__item *)(void *)items->data;
    size_t i;
    for (i = 0; i < items->size / sizeof *item; i++) item[i].file_number = i;
}

/* A body that says what its hashes are: those of n items. */
static int lmc__is_hash_body(const uint8_t *body, uint64_t size)
{
    static const uint8_t head[LMC__HASH_BODY_SIZE] = {LMC__HASH_SHA256};
    return size >= LMC__HASH_BODY_SIZE && memcmp(body, head, LMC__HASH_BODY_SIZE) == 0;
}

#ifndef LMC_NO_ENCODER
/* The body, of items that were numbered and sorted. */
static enum lmc_status lmc__append_hashes(lmc__buffer *body, const lmc__buffer *items,
                                          const lmc__hasher *h)
{
    static const uint8_t head[LMC__HASH_BODY_SIZE] = {LMC__HASH_SHA256};
    const lmc__item *const item = (const lmc__item *)(const void *)items->data;
    size_t i;
    LMC__TRY(lmc__append(body, head, sizeof head));
    for (i = 0; i < items->size / sizeof *item; i++)
        LMC__TRY(lmc__append(body, h->hashes.data + LMC__HASH_SIZE * item[i].file_number,
                             LMC__HASH_SIZE));
    return LMC_OK;
}
#endif

/* The body, which lmc__is_hash_body, has those hashes, of items that were numbered and sorted. */
static enum lmc_status lmc__check_hashes(const lmc__buffer *body, const lmc__buffer *items,
                                         const lmc__hasher *h)
{
    const lmc__item *const item = (const lmc__item *)(const void *)items->data;
    const size_t n = items->size / sizeof *item;
    size_t i;
    LMC__CHECK(body->size == LMC__HASH_BODY_SIZE + (uint64_t)LMC__HASH_SIZE * n, LMC_ERR_CORRUPT);
    for (i = 0; i < n; i++)
        LMC__CHECK(memcmp(body->data + LMC__HASH_BODY_SIZE + LMC__HASH_SIZE * i,
                          h->hashes.data + LMC__HASH_SIZE * item[i].file_number,
                          LMC__HASH_SIZE) == 0,
                   LMC_ERR_CORRUPT);
    return LMC_OK;
}
