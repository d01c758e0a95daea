#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"
#include "snapshot/order.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"

/* Files and tensors by name. Most callers want one tensor, some want all 100,000 of a model one by
 * one: so names are sorted once, at the first search, and each search halves.
 *
 *     names    every tensor, by name, path, number of its file
 *     paths    every file, by path, number
 *
 * Names are unique within a file and paths within a snapshot, but for the files of a damaged one
 * whose paths are lost: those are "". */
typedef struct lmc__named {
    const lmc_file *file;
    const lmc_tensor *tensor; /* of paths: NULL */
    size_t file_number;
} lmc__named;

static int lmc__compare_numbers(const lmc__named *a, const lmc__named *b)
{
    return a->file_number < b->file_number ? -1 : a->file_number > b->file_number;
}

static int lmc__compare_paths(const void *a, const void *b)
{
    const lmc__named *const x = (const lmc__named *)a, *const y = (const lmc__named *)b;
    const int order = strcmp(x->file->path, y->file->path);
    return order ? order : lmc__compare_numbers(x, y);
}

static int lmc__compare_named(const void *a, const void *b)
{
    const lmc__named *const x = (const lmc__named *)a, *const y = (const lmc__named *)b;
    const int order = strcmp(x->tensor->name, y->tensor->name);
    return order ? order : lmc__compare_paths(a, b);
}

/* Fills names and paths. They stay empty if there is not enough memory for both. */
LMC__COLD static enum lmc_status lmc__sort_names(lmc_reader *r)
{
    const size_t n_files = r->tables.listing.n_files;
    lmc__named *named, *path, spare;
    uint64_t n = 0;
    size_t i, j;
    for (i = 0; i < n_files; i++) n += lmc__file_at(r, i)->file.n_tensors;
    LMC__TRY(lmc__reserve(&r->names, n * sizeof *named));
    LMC__TRY(lmc__reserve(&r->paths, n_files * (uint64_t)sizeof *path));
    named = (lmc__named *)(void *)r->names.data;
    path = (lmc__named *)(void *)r->paths.data;
    for (i = 0; i < n_files; i++) {
        path[i].file = &lmc__file_at(r, i)->file;
        path[i].tensor = NULL;
        path[i].file_number = i;
        for (j = 0; j < path[i].file->n_tensors; j++) {
            *named = path[i];
            named++->tensor = &path[i].file->tensors[j];
        }
    }
    lmc__heap_sort(r->names.data, (size_t)n, sizeof *named, lmc__compare_named, &spare);
    lmc__heap_sort(path, n_files, sizeof *path, lmc__compare_paths, &spare);
    r->names.size = (size_t)n * sizeof *named;
    r->paths.size = n_files * sizeof *path;
    return LMC_OK;
}

typedef struct lmc__named_search {
    const lmc__named *rows;
    size_t n;
    const char *name, *path; /* either may be NULL: any */
} lmc__named_search;

/* Below, at or above 0, as row i is before, at or behind what is wanted. */
static int lmc__compare_row(const lmc__named_search *s, size_t i)
{
    const int order = s->name ? strcmp(s->rows[i].tensor->name, s->name) : 0;
    return order || !s->path ? order : strcmp(s->rows[i].file->path, s->path);
}

static int lmc__is_row_before(const void *context, size_t i)
{
    return lmc__compare_row((const lmc__named_search *)context, i) < 0;
}

/* The first row that is wanted, and behind it perhaps others; or NULL. */
static const lmc__named *lmc__search_rows(lmc__named_search *s, const lmc__buffer *rows)
{
    size_t i;
    s->rows = (const lmc__named *)(const void *)rows->data;
    s->n = rows->size / sizeof *s->rows;
    i = lmc__find_first(0, s->n, lmc__is_row_before, s);
    return i < s->n && lmc__compare_row(s, i) == 0 ? s->rows + i : NULL;
}

LMC_API enum lmc_status lmc_reader_find_file(lmc_reader *r, const char *path, size_t *file_number)
{
    lmc__named_search search;
    const lmc__named *found;
    if (!r || !path || !file_number) return LMC_ERR_ARGUMENT;
    if (r->paths.size == 0) LMC__TRY(lmc__sort_names(r));
    search.name = NULL;
    search.path = path;
    found = lmc__search_rows(&search, &r->paths);
    if (!found) return LMC_ERR_NOT_FOUND;
    *file_number = found->file_number;
    return LMC_OK;
}

LMC_API enum lmc_status lmc_reader_find_tensor(lmc_reader *r, const char *path, const char *name,
                                               size_t *file_number, const lmc_tensor **tensor)
{
    lmc__named_search search;
    const lmc__named *found;
    size_t next;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    if (r->paths.size == 0) LMC__TRY(lmc__sort_names(r));
    search.name = name;
    search.path = path;
    found = lmc__search_rows(&search, &r->names);
    if (!found) return LMC_ERR_NOT_FOUND;
    next = (size_t)(found - search.rows) + 1;
    if (next < search.n && lmc__compare_row(&search, next) == 0) return LMC_ERR_AMBIGUOUS;
    *file_number = found->file_number;
    *tensor = found->tensor;
    return LMC_OK;
}
