#pragma once
#include "base/platform.h"
#include "snapshot/buffer.h"
#include "snapshot/names.h"
#include "snapshot/index.h"
#include "snapshot/reader.h"

/* Finds files and tensors by name. The first search sorts the names. Names are unique within a
 * file, and paths within a snapshot. Only in a damaged snapshot several files may have the path "":
 * their paths are lost. */

/* Fills items with every file of a base (or of a reader that is used as a base), sorted by path. */
static enum lmc_status lmc__sort_paths(const lmc_base *base, lmc__buffer *items)
{
    size_t i;
    for (i = 0; i < base->n_files; i++) {
        const char *const path = base->get_file(base->user, i)->path;
        LMC__TRY(lmc__append_item(items, path, strlen(path), NULL, i, NULL));
    }
    lmc__sort_items((lmc__item *)(void *)items->data, base->n_files);
    return LMC_OK;
}

/* Fills r->names (every tensor, sorted by name and file) and r->paths (every file). */
LMC__COLD static enum lmc_status lmc__sort_names(lmc_reader *r)
{
    const lmc_base self = lmc_reader_base(r);
    size_t i, j;
    if (r->paths.size != 0) return LMC_OK;
    r->names.size = 0;
    LMC__TRY(lmc__reserve(&r->paths, self.n_files * (uint64_t)sizeof(lmc__item)));
    for (i = 0; i < self.n_files; i++) {
        const lmc_file *const f = &lmc__file_at(r, i)->file;
        for (j = 0; j < f->n_tensors; j++) {
            const char *const name = f->tensors[j].name;
            LMC__TRY(lmc__append_item(&r->names, name, strlen(name), NULL, i, &f->tensors[j]));
        }
    }
    lmc__sort_items((lmc__item *)(void *)r->names.data, r->names.size / sizeof(lmc__item));
    return lmc__sort_paths(&self, &r->paths); /* there is room: r->paths is complete or empty */
}

/* The first row with this name whose file is number file_number or a later file; or NULL. *next:
 * whether the row after it has this name, too. */
static const lmc__item *lmc__search_rows(const lmc__buffer *rows, const char *name,
                                         size_t file_number, int *next)
{
    const lmc__item *const row = (const lmc__item *)(const void *)rows->data;
    const size_t n = rows->size / sizeof *row, i = lmc__find_name(row, n, name, file_number);
    *next = i + 1 < n && strcmp((const char *)row[i + 1].name, name) == 0;
    return i < n && strcmp((const char *)row[i].name, name) == 0 ? &row[i] : NULL;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_find_file(lmc_reader *r, const char *path,
                                                       size_t *file_number)
{
    const lmc__item *found;
    int next;
    if (!r || !path || !file_number) return LMC_ERR_ARGUMENT;
    LMC__TRY(lmc__sort_names(r));
    found = lmc__search_rows(&r->paths, path, 0, &next);
    if (!found) return LMC_ERR_NOT_FOUND;
    *file_number = found->file_number;
    return LMC_OK;
}

LMC__COLD LMC_API enum lmc_status lmc_reader_find_tensor(lmc_reader *r, const char *path,
                                                         const char *name, size_t *file_number,
                                                         const lmc_tensor **tensor)
{
    const lmc__item *found;
    size_t wanted = 0;
    int next;
    if (!r || !name || !file_number || !tensor) return LMC_ERR_ARGUMENT;
    LMC__TRY(path ? lmc_reader_find_file(r, path, &wanted) : lmc__sort_names(r));
    found = lmc__search_rows(&r->names, name, wanted, &next);
    if (!found || (path && found->file_number != wanted)) return LMC_ERR_NOT_FOUND;
    if (!path && next) return LMC_ERR_AMBIGUOUS;
    *file_number = found->file_number;
    *tensor = found->tensor;
    return LMC_OK;
}
