#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "snapshot/buffer.h"
#include "snapshot/sha256.h"
#include "snapshot/order.h"

/* Names, and the checks that they are unique. Sets of names are sorted arrays, or tables with 64
 * bits for each name. They must be small, since a snapshot may have 2^32 files with 2^28 tensors
 * each. No input makes them slower than n log n. */

/* A file or tensor with its name. The name is not NUL-terminated, and the item does not own it. */
typedef struct lmc__item {
    const uint8_t *name;
    size_t size;
    const uint8_t *fingerprint; /* or NULL: only the name counts */
    size_t file_number;         /* of the file, or of the tensor's file */
    const lmc_tensor *tensor;   /* in that file; NULL: the whole file */
} lmc__item;

/* Compares in byte order. A prefix comes before longer names (spec 7.2 and 8.3). */
static int lmc__compare_names(const lmc__item *a, const lmc__item *b)
{
    int order = memcmp(a->name, b->name, lmc__min(a->size, b->size));
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

/* Compares by name, then by fingerprint, or by file number if one item has no fingerprint. */
static int lmc__compare_items(const void *a, const void *b)
{
    const lmc__item *const x = (const lmc__item *)a, *const y = (const lmc__item *)b;
    const int order = lmc__compare_names(x, y);
    if (order) return order;
    if (x->fingerprint && y->fingerprint)
        return memcmp(x->fingerprint, y->fingerprint, LMC_FINGERPRINT_SIZE);
    return x->file_number < y->file_number ? -1 : x->file_number > y->file_number;
}

static void lmc__sort_items(lmc__item *items, size_t n)
{
    lmc__item spare;
    lmc__heap_sort(items, n, sizeof *items, lmc__compare_items, &spare);
}

/* Whether two of n sorted items have the same name: equal names are neighbours. */
static int lmc__has_duplicates(const lmc__item *items, size_t n)
{
    size_t i;
    for (i = 1; i < n; i++)
        if (lmc__compare_names(&items[i - 1], &items[i]) == 0) return 1;
    return 0;
}

/* Fingerprint of the snapshot (spec 7.2). Sorts the items. The fingerprint does not depend on the
 * file in which a tensor is. */
LMC__COLD static void lmc__snapshot_fingerprint(lmc__buffer *items,
                                                uint8_t fingerprint[LMC_FINGERPRINT_SIZE])
{
    lmc__item *item = (lmc__item *)(void *)items->data;
    const size_t n = items->size / sizeof *item;
    lmc__sha256 sha;
    size_t i;
    lmc__sort_items(item, n);
    lmc__sha256_init(&sha);
    lmc__sha256_update(&sha, "LMC snapshot 3", 15);
    for (i = 0; i < n; i++) {
        lmc__sha256_number(&sha, item[i].size, 4);
        lmc__sha256_update(&sha, item[i].name, item[i].size);
        lmc__sha256_update(&sha, item[i].fingerprint, LMC_FINGERPRINT_SIZE);
    }
    lmc__finish_fingerprint(&sha, fingerprint);
}

/* The number of the first of n sorted items that does not come before this name and file number.
 * file_number must be 0 if the items have fingerprints. */
static size_t lmc__find_name(const lmc__item *items, size_t n, const char *name, size_t file_number)
{
    const lmc__item wanted = {(const uint8_t *)name, strlen(name), NULL, file_number, NULL};
    size_t i;
    LMC__FIND_FIRST(i, 0, n, lmc__compare_items(&items[i], &wanted) < 0);
    return i;
}

/* name and fingerprint are not copied. */
static enum lmc_status lmc__append_item(lmc__buffer *items, const void *name, size_t size,
                                        const uint8_t *fingerprint, size_t file_number,
                                        const lmc_tensor *tensor)
{
    const lmc__item item = {(const uint8_t *)name, size, fingerprint, file_number, tensor};
    return lmc__append(items, &item, sizeof item);
}

/* The items of a file (spec 7.2): its tensors, or the file itself if it has no tensors. */
static enum lmc_status lmc__append_items(lmc__buffer *items, const lmc_file *f, size_t file_number)
{
    size_t i;
    if (f->n_tensors == 0)
        return lmc__append_item(items, f->path, strlen(f->path), f->fingerprint, file_number, NULL);
    for (i = 0; i < f->n_tensors; i++) {
        const lmc_tensor *const t = &f->tensors[i];
        LMC__TRY(lmc__append_item(items, t->name, strlen(t->name), t->fingerprint, file_number, t));
    }
    return LMC_OK;
}

/* -- the paths of a snapshot -- */

/* The set of paths: a hash table with open addressing, at most half full, of 62 bits of each path's
 * SHA-256. It takes 16 to 32 bytes for each path and each directory above it. Nobody can choose
 * paths that collide often. An entry's two lowest bits describe the path: */
enum {
    LMC__PATH_IS_ENTRY = 1,    /* it has an entry */
    LMC__PATH_IS_DIRECTORY = 2 /* it is a directory: its entry says so, or a path is below it */
};

typedef struct lmc__path_set {
    lmc__buffer table; /* uint64_t; 0: free */
    size_t n;
} lmc__path_set;

/* The entry of the path with these bits, or the free entry where this path belongs. */
static uint64_t *lmc__place_path(const lmc__buffer *table, uint64_t key)
{
    uint64_t *const place = (uint64_t *)(void *)table->data;
    const size_t mask = table->size / 8 - 1;
    size_t i = (size_t)(key >> 2) & mask;
    while (place[i] && (place[i] ^ key) >> 2) i = (i + 1) & mask;
    return &place[i];
}

/* Makes the table twice as large, or makes the first table. On errors the old table stays. */
LMC__COLD static enum lmc_status lmc__grow_paths(lmc__path_set *set)
{
    const uint64_t *const old = (const uint64_t *)(const void *)set->table.data;
    const size_t old_size = set->table.size / 8;
    lmc__buffer grown;
    size_t i;
    lmc__init_buffer(&grown, set->table.allocator);
    LMC__TRY(lmc__append(&grown, NULL, 8 * (old_size ? 2 * old_size : 64)));
    for (i = 0; i < old_size; i++)
        if (old[i]) *lmc__place_path(&grown, old[i]) = old[i];
    lmc__free_buffer(&set->table);
    set->table = grown;
    return LMC_OK;
}

/* Adds a path, with flags that say what it is. sha has taken the bytes of the path. */
LMC__COLD static enum lmc_status lmc__note_path(lmc__path_set *set, lmc__sha256 sha, unsigned flags)
{
    uint8_t digest[32];
    uint64_t key, *place;
    if (set->n >= set->table.size / 16) LMC__TRY(lmc__grow_paths(set));
    lmc__sha256_finish(&sha, digest);
    key = lmc__load64(digest) & ~(uint64_t)3;
    if (key == 0) key = 4;
    place = lmc__place_path(&set->table, key);
    /* R4-25: no entry twice; R4-26: only directories have paths below them */
    LMC__VALID(!(*place & flags & LMC__PATH_IS_ENTRY));
    LMC__VALID(flags & LMC__PATH_IS_DIRECTORY || !(*place & LMC__PATH_IS_DIRECTORY));
    LMC__VALID(!(flags & LMC__PATH_IS_DIRECTORY) || (*place & 3) != LMC__PATH_IS_ENTRY);
    set->n += *place == 0;
    *place |= key | flags;
    return LMC_OK;
}

/* Adds the path of one more file, or refuses the path (CORRUPT). Its first `shared` bytes equal
 * those of the previous path, so only directories whose names end after these bytes are new. */
static enum lmc_status lmc__add_path(lmc__path_set *set, const char *path, size_t shared,
                                     int is_directory)
{
    const size_t size = strlen(path);
    size_t i, done = 0;
    lmc__sha256 sha;
    lmc__sha256_init(&sha);
    for (i = shared; i < size; i++) {
        if (path[i] != '/') continue;
        lmc__sha256_update(&sha, path + done, i - done);
        done = i;
        LMC__TRY(lmc__note_path(set, sha, LMC__PATH_IS_DIRECTORY));
    }
    lmc__sha256_update(&sha, path + done, size - done);
    return lmc__note_path(
        set, sha, is_directory ? LMC__PATH_IS_ENTRY | LMC__PATH_IS_DIRECTORY : LMC__PATH_IS_ENTRY);
}
