/* SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"
#include "sorted.h"

/* Reads an entry of storage_data: index and place. */
static enum container_result read_item_place(struct dcp *d, const struct pickle_link *link)
{
    const struct pickle *const p = &d->pickle;
    struct dcp_item *const item = &d->items[d->n];
    memset(item, 0, sizeof *item);
    item->name = pickle_text(p, pickle_member(p, link->key, "fqn"), PICKLE_TEXT);
    item->file = pickle_text(p, pickle_member(p, link->value, "relative_path"), PICKLE_TEXT);
    item->position = pickle_member(p, link->key, "offset");
    if (!item->name || !item->file ||
        !pickle_count(p, pickle_member(p, link->value, "offset"), &item->offset) ||
        !pickle_count(p, pickle_member(p, link->value, "length"), &item->size) ||
        item->offset > CONTAINER_MAX_SIZE - item->size)
        return container_bad(d, "its storage_data are not understood");
    d->n++;
    return CONTAINER_OK;
}

static int compare_items_by_place(const void *a, const void *b)
{
    const struct dcp_item *x = (const struct dcp_item *)a, *y = (const struct dcp_item *)b;
    const int order = strcmp(x->file, y->file);
    if (order) return order;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
                                  : (x->size > y->size) - (x->size < y->size);
}

/* Sets the extents of the whole tensor in all items of that name. sorted: the items by name */
static void set_extents(struct dcp_item **sorted, size_t n, const char *name, uint32_t extents)
{
    size_t low;
    FIND_FIRST(low, n, strcmp(sorted[low]->name, name) < 0);
    for (; low < n && sorted[low]->extents == 0 && strcmp(sorted[low]->name, name) == 0; low++)
        sorted[low]->extents = extents;
}

static enum container_result read_extents(struct dcp *d, uint32_t tensors)
{
    const struct pickle *const p = &d->pickle;
    struct dcp_item **sorted = (struct dcp_item **)malloc((d->n + 1) * sizeof *sorted);
    if (!sorted) return CONTAINER_MEMORY;
    for (size_t i = 0; i < d->n; i++) sorted[i] = &d->items[i];
    if (d->n) qsort((void *)sorted, d->n, sizeof *sorted, compare_named);
    for (uint32_t i = pickle_get(p, tensors)->first; i; i = p->links[i].next) {
        const char *name = pickle_text(p, p->links[i].key, PICKLE_TEXT);
        const uint32_t extents = pickle_member(p, p->links[i].value, "size");
        if (name && extents) set_extents(sorted, d->n, name, extents);
    }
    free((void *)sorted);
    return CONTAINER_OK;
}

static enum container_result read_places(struct dcp *d)
{
    const struct pickle *const p = &d->pickle;
    const uint32_t places = pickle_member(p, p->root, "storage_data"),
                   tensors = pickle_member(p, p->root, "state_dict_metadata");
    size_t n = 0;
    if (pickle_get(p, places)->type != PICKLE_DICT || pickle_get(p, tensors)->type != PICKLE_DICT)
        return container_bad(d, "it has no storage_data");
    for (uint32_t i = pickle_get(p, places)->first; i; i = p->links[i].next) n++;
    d->items = (struct dcp_item *)malloc((n + 1) * sizeof *d->items);
    if (!d->items) return CONTAINER_MEMORY;
    for (uint32_t i = pickle_get(p, places)->first; i; i = p->links[i].next)
        TRY(read_item_place(d, &p->links[i]));
    qsort(d->items, d->n, sizeof *d->items, compare_items_by_place);
    return read_extents(d, tensors);
}

enum container_result dcp_read(struct dcp *d, const void *data, size_t size, uint64_t weight)
{
    memset(d, 0, sizeof *d);
    enum container_result result = pickle_read(&d->pickle, data, size, weight);
    if (result == CONTAINER_BAD) return container_bad(d, "%s", d->pickle.error);
    if (result == CONTAINER_OK) result = read_places(d);
    if (result != CONTAINER_OK) dcp_free(d);
    return result;
}

void dcp_free(struct dcp *d)
{
    pickle_free(&d->pickle);
    free(d->items);
    d->items = NULL;
    d->n = 0;
}

size_t dcp_find(const struct dcp *d, const char *file)
{
    size_t low;
    FIND_FIRST(low, d->n, strcmp(d->items[low].file, file) < 0);
    return low < d->n && strcmp(d->items[low].file, file) == 0 ? low : d->n;
}

unsigned dcp_get_part(const struct dcp *d, const struct dcp_item *item,
                      uint64_t extents[LMC_MAX_RANK], uint64_t position[LMC_MAX_RANK])
{
    const int rank = pickle_counts(&d->pickle, item->extents, extents, LMC_MAX_RANK);
    return rank > 0 && pickle_counts(&d->pickle, item->position, position, LMC_MAX_RANK) == rank
               ? (unsigned)rank
               : 0;
}
