/* SPDX-License-Identifier: MIT */
#include "parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "members.h"
#include "../../formats/torch_save.h"
#include "../sys/memory.h"
#include "../sys/search.h"

/* Rows [begin, end) of the tensor that the first size bytes of the name tell of. */
struct rows {
    const lmc_tensor *tensor;
    const char *path;
    size_t size;
    uint64_t begin, end, bytes; /* of a row */
};

static int describe_rows(struct rows *r, const lmc_tensor *t, const char *path)
{
    r->tensor = t;
    r->path = path;
    if (t->rank == 0 || t->size == 0) return 0;
    r->size = torch_parse_part(t->name, &r->begin, &r->end);
    if (r->size == 0) {
        r->size = strlen(t->name);
        r->begin = 0;
        r->end = t->shape[0];
    }
    r->bytes = t->size / t->shape[0]; /* not 0: the tensor has bytes */
    return r->end - r->begin == t->shape[0] && r->bytes * t->shape[0] == t->size;
}

static int compare_stems_of_rows(const struct rows *x, const struct rows *y)
{
    const int order =
        memcmp(x->tensor->name, y->tensor->name, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int compare_rows(const void *a, const void *b)
{
    const struct rows *x = (const struct rows *)a, *y = (const struct rows *)b;
    const int order = compare_stems_of_rows(x, y);
    return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Both are of the same tensor, by its dtype and all but its first dimension. */
static int is_same_tensor(const struct rows *x, const struct rows *y)
{
    const lmc_tensor *t = x->tensor, *u = y->tensor;
    return compare_stems_of_rows(x, y) == 0 && x->bytes == y->bytes && t->rank == u->rank &&
           strcmp(t->dtype, u->dtype) == 0 &&
           memcmp(t->shape + 1, u->shape + 1, (t->rank - 1) * sizeof *t->shape) == 0;
}

struct all_rows {
    struct rows *list; /* sorted */
    size_t n, room;
};

static struct all_rows list_rows(const lmc_base *base)
{
    struct all_rows all;
    memset(&all, 0, sizeof all);
    for (size_t i = 0; i < base->n_files; i++) {
        const lmc_file *f = base->get_file(base->user, i);
        for (size_t k = 0; k < f->n_tensors; k++) {
            all.list = (struct rows *)grow(all.list, all.n, &all.room, sizeof *all.list);
            all.n += (size_t)describe_rows(&all.list[all.n], &f->tensors[k], f->path);
        }
    }
    if (all.n) qsort(all.list, all.n, sizeof *all.list, compare_rows);
    return all;
}

/* The first of the base that may have rows behind r->begin: the last that begins there or before.
 */
static size_t find_first_rows(const struct all_rows *all, const struct rows *r)
{
    size_t low;
    FIND_FIRST(low, all->n, compare_rows(&all->list[low], r) <= 0);
    while (low > 0 && compare_stems_of_rows(&all->list[low - 1], r) == 0) {
        low--;
        if (all->list[low].begin < r->begin) break;
    }
    return low;
}

struct parts {
    lmc_base_part *list;
    size_t n, room;
};

static void add_part(struct parts *p, const struct rows *from, uint64_t offset, uint64_t size)
{
    lmc_base_part *part;
    if (size == 0) return;
    p->list = (lmc_base_part *)grow(p->list, p->n, &p->room, sizeof *p->list);
    part = &p->list[p->n++];
    part->path = from ? from->path : NULL;
    part->name = from ? from->tensor->name : NULL;
    part->offset = offset;
    part->size = size;
}

/* The base has the very tensor, so it is found by its name; first: see find_first_rows. Tensors of
 * other files, too, may be called so. */
static int is_in_base(const struct all_rows *all, size_t first, const struct rows *r)
{
    for (size_t i = first; i < all->n && compare_stems_of_rows(&all->list[i], r) == 0; i++) {
        const struct rows *b = &all->list[i];
        if (b->begin > r->begin) break;
        if (b->begin == r->begin && b->end == r->end && is_same_tensor(b, r) &&
            strcmp(b->tensor->name, r->tensor->name) == 0)
            return 1;
    }
    return 0;
}

/* Adds the parts of r that the base has; none, if it has the very tensor, or nothing of it. */
static void cut_rows(struct parts *p, const struct all_rows *all, const struct rows *r)
{
    const size_t n = p->n, first = find_first_rows(all, r);
    uint64_t at = r->begin;
    int has_any = 0;
    if (is_in_base(all, first, r)) return;
    for (size_t i = first;
         i < all->n && at < r->end && compare_stems_of_rows(&all->list[i], r) == 0; i++) {
        const struct rows *b = &all->list[i];
        const uint64_t end = b->end < r->end ? b->end : r->end;
        if (!is_same_tensor(b, r) || end <= at) continue;
        if (b->begin >= r->end) break;
        if (b->begin > at) {
            add_part(p, NULL, 0, (b->begin - at) * r->bytes);
            at = b->begin;
        }
        add_part(p, b, (at - b->begin) * r->bytes, (end - at) * r->bytes);
        at = end;
        has_any = 1;
    }
    if (!has_any) p->n = n;
}

size_t find_parts(struct members *m, const lmc_base *base)
{
    struct all_rows all = list_rows(base);
    struct parts p;
    size_t n = 0, at = 0;
    memset(&p, 0, sizeof p);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            lmc_tensor *t = &m->list[i].tensors[k];
            const size_t before = p.n;
            struct rows r;
            if (describe_rows(&r, t, m->list[i].path)) cut_rows(&p, &all, &r);
            t->n_base_parts = p.n - before;
            n += t->n_base_parts != 0;
        }
    free(all.list);
    free(m->parts);
    m->parts = p.list;
    for (size_t i = 0; i < m->n; i++) /* the list moves no more */
        for (size_t k = 0; k < m->list[i].n_tensors; k++) {
            lmc_tensor *t = &m->list[i].tensors[k];
            t->base_parts = t->n_base_parts ? m->parts + at : NULL;
            at += t->n_base_parts;
        }
    return n;
}
