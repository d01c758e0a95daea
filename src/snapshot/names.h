#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"

/* Something with a name, and an identity where that counts. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *identity;  /* or NULL */
    size_t file_number;       /* of the base's items: where it is */
    const lmc_tensor *tensor; /* NULL: the whole file */
} lmc__item;

static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

static int lmc__compare_items(const lmc__item *a, const lmc__item *b)
{
    int order = lmc__compare_names(a, b);
    return order || !a->identity ? order : memcmp(a->identity, b->identity, LMC_IDENTITY_SIZE);
}

/* Heap sort: n log n whatever the input, no memory. */
static void lmc__sort_items(lmc__item *items, size_t n)
{
    size_t start = n / 2, end = n;
    while (end > 1) {
        size_t root, child;
        lmc__item item;
        if (start > 0) item = items[--start];
        else {
            item = items[--end];
            items[end] = items[0];
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && lmc__compare_items(&items[child], &items[child + 1]) < 0)
                child++;
            if (lmc__compare_items(&item, &items[child]) >= 0) break;
            items[root] = items[child];
        }
        items[root] = item;
    }
}

/* items are sorted */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

static enum lmc_status lmc__append_item(lmc__buffer *items, const void *name, size_t size,
                                        const uint8_t *identity)
{
    lmc__item item;
    item.name = (const uint8_t *)name;
    item.size = size;
    item.identity = identity;
    item.file_number = 0;
    item.tensor = NULL;
    return lmc__append(items, &item, sizeof item);
}

/* Add the path of file number n to the set, or refuse it (CORRUPT) if it is there already. The set
 * holds 64 bits of each path's SHA-256: a table of open addressing, at most half full, 0 for free.
 */
static enum lmc_status lmc__add_path(lmc__buffer *set, size_t n, const char *path)
{
    uint8_t digest[32];
    lmc__sha256 sha;
    uint64_t key, *table = (uint64_t *)(void *)set->data;
    size_t size = set->size / 8, i;
    if (n >= size / 2) {
        lmc__buffer old = *set;
        const uint64_t *const from = table;
        enum lmc_status status;
        memset(set, 0, sizeof *set);
        set->alloc_user = old.alloc_user;
        size = size ? 2 * size : 64;
        status = lmc__append(set, NULL, 8 * size);
        table = (uint64_t *)(void *)set->data;
        for (i = 0; status == LMC_OK && i < old.size / 8; i++) {
            size_t at = (size_t)from[i] & (size - 1);
            if (from[i] == 0) continue;
            while (table[at]) at = (at + 1) & (size - 1);
            table[at] = from[i];
        }
        lmc__free_buffer(&old);
        LMC__TRY(status);
    }
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, path, strlen(path));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) | 1;
    for (i = (size_t)key & (size - 1); table[i]; i = (i + 1) & (size - 1))
        LMC__CHECK(table[i] != key, LMC_ERR_CORRUPT);
    table[i] = key;
    return LMC_OK;
}
