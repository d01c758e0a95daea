#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/order.h"

/* Names, and what must be unique of them.
 *
 * Sets are sorted arrays, or tables of 64 bits of a hash: a snapshot has up to 2^32 files and 2^28
 * tensors each, so what grows with them is kept small, and no input makes it slower than
 * n log n. */

/* Something with a name. The name is not NUL-terminated, and belongs to someone else. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *identity;  /* or NULL: only the name counts */
    size_t file_number;       /* of the base's items: where it is */
    const lmc_tensor *tensor; /* of the base's items; NULL: the whole file */
} lmc__item;

/* By bytes, a prefix first: the order of spec 9.3 and 10. */
static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

/* For lmc__heap_sort: by name, then by identity. */
static int lmc__compare_items(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    int order = lmc__compare_names(x, y);
    return order || !x->identity ? order : memcmp(x->identity, y->identity, LMC_IDENTITY_SIZE);
}

/* By name, then by identity. */
static void lmc__sort_items(lmc__item *items, size_t n)
{
    lmc__item spare;
    lmc__heap_sort(items, n, sizeof *items, lmc__compare_items, &spare);
}

/* Of sorted items: equal names are neighbours. */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

/* Identity of the snapshot (spec 9.3), of items in any order: sorts them. Names and identities of
 * tensors count, and paths of files without tensors; in which file a tensor lies does not. So a
 * snapshot is the same one however its tensors are distributed to files. */
static void lmc__snapshot_identity(lmc__buffer *items, uint8_t identity[LMC_IDENTITY_SIZE])
{
    lmc__item *item = (lmc__item *)(void *)items->data;
    const size_t n = items->size / sizeof *item;
    lmc__sha256 sha;
    size_t i;
    lmc__sort_items(item, n);
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC snapshot 2", 15);
    for (i = 0; i < n; i++) {
        uint8_t field[4];
        lmc__store32(field, (uint32_t)item[i].size);
        lmc__sha256_update(&sha, field, 4);
        lmc__sha256_update(&sha, item[i].name, item[i].size);
        lmc__sha256_update(&sha, item[i].identity, LMC_IDENTITY_SIZE);
    }
    lmc__sha256_finish(&sha, identity);
}

typedef struct lmc__name_search {
    const lmc__item *items;
    lmc__item wanted;
} lmc__name_search;

static int lmc__is_name_before(const void *context, size_t i)
{
    const lmc__name_search *const s = (const lmc__name_search *)context;
    return lmc__compare_names(&s->items[i], &s->wanted) < 0;
}

/* The first of n sorted items that is not before name. */
static size_t lmc__find_name(const lmc__item *items, size_t n, const char *name)
{
    lmc__name_search search;
    memset(&search, 0, sizeof search);
    search.items = items;
    search.wanted.name = (const uint8_t *)name;
    search.wanted.size = strlen(name);
    return lmc__find_first(0, n, lmc__is_name_before, &search);
}

/* name and identity stay with whoever has them. */
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

/* Where key stands in a table of `size` keys, a power of two, or the free place where it should.
 * One is free, for the table is at most half full. */
static size_t lmc__place_key(const uint64_t *table, size_t size, uint64_t key)
{
    size_t i = (size_t)key & (size - 1);
    while (table[i] && table[i] != key) i = (i + 1) & (size - 1);
    return i;
}

/* A table of twice the size, or the first, with the same keys. On errors the old one stays. */
static enum lmc_status lmc__grow_paths(lmc__buffer *set)
{
    lmc__buffer grown;
    const uint64_t *const old = (const uint64_t *)(const void *)set->data;
    const size_t old_size = set->size / 8, size = old_size ? 2 * old_size : 64;
    size_t i;
    lmc__init_buffer(&grown, set->alloc_user);
    LMC__TRY(lmc__append(&grown, NULL, 8 * size));
    for (i = 0; i < old_size; i++) {
        uint64_t *const table = (uint64_t *)(void *)grown.data;
        if (old[i]) table[lmc__place_key(table, size, old[i])] = old[i];
    }
    lmc__free_buffer(set);
    *set = grown;
    return LMC_OK;
}

/* Adds the path of file number n to the set, which has at most n, or refuses it (CORRUPT) if it is
 * there already. The set holds 64 bits of each path's SHA-256, in a table of open addressing, at
 * most half full, 0 for free: 16 to 32 bytes for each file, however long its path. Nobody can
 * choose paths that fill one place of the table; two different ones are taken for the same with a
 * chance of n in 2^63. */
static enum lmc_status lmc__add_path(lmc__buffer *set, size_t n, const char *path)
{
    uint8_t digest[32];
    lmc__sha256 sha;
    uint64_t key, *table;
    size_t place;
    if (n >= set->size / 8 / 2) LMC__TRY(lmc__grow_paths(set));
    table = (uint64_t *)(void *)set->data;
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, path, strlen(path));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) | 1; /* not 0 */
    place = lmc__place_key(table, set->size / 8, key);
    LMC__CHECK(table[place] == 0, LMC_ERR_CORRUPT);
    table[place] = key;
    return LMC_OK;
}
