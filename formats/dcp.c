/* dcp.c - the .metadata of torch.distributed.checkpoint: which items there are (torch.h)
 * SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"
#include "sorted.h"

int container_is_distcp(const char *name)
{
    static const char suffix[] = ".distcp";
    const size_t size = strlen(name), length = sizeof suffix - 1;
    return size >= length && memcmp(name + size - length, suffix, length) == 0;
}

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

uint64_t dcp_weigh(const struct dcp *d)
{
    const struct pickle *const p = &d->pickle;
    return sizeof *d + p->n_nodes * (uint64_t)sizeof *p->nodes +
           p->n_links * (uint64_t)sizeof *p->links + p->n_texts + d->n * (uint64_t)sizeof *d->items;
}

/* -- what is kept -- */

struct dcp_kept {
    size_t number;
    struct dcp *d; /* NULL: it cannot be used */
};

/* If more is parsed, it is forgotten and read again: memory has a limit, however many there are. */
#define MAX_KEPT ((uint64_t)64 << 20)

static size_t find_kept(const struct dcp_memo *m, size_t number)
{
    size_t low;
    FIND_FIRST(low, m->n, m->list[low].number < number);
    return low;
}

int dcp_recall(const struct dcp_memo *m, const struct dcp **d, size_t number)
{
    const size_t i = find_kept(m, number);
    const int is_known = i < m->n && m->list[i].number == number;
    *d = is_known ? m->list[i].d : NULL;
    return is_known;
}

/* Frees what was parsed, and keeps which files cannot be used. */
static void forget_parsed(struct dcp_memo *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (m->list[i].d) {
            dcp_free(m->list[i].d);
            free(m->list[i].d);
        } else m->list[n++] = m->list[i];
    m->n = n;
    m->weight = 0;
}

enum container_result dcp_remember(struct dcp_memo *m, const struct dcp **d, size_t number,
                                   const void *data, size_t size, uint64_t weight)
{
    static const struct dcp_kept none = {0, NULL};
    struct dcp parsed, *kept = NULL;
    const enum container_result result =
        data ? dcp_read(&parsed, data, size, weight) : CONTAINER_BAD;
    *d = NULL;
    if (result == CONTAINER_MEMORY) return result;
    if (m->weight > MAX_KEPT) forget_parsed(m);
    TRY(container_append(&m->list, &m->n, &m->room, &none, 1, sizeof none));
    if (result == CONTAINER_OK) {
        kept = (struct dcp *)malloc(sizeof *kept);
        if (!kept) dcp_free(&parsed);
        else *kept = parsed;
        if (kept) m->weight += dcp_weigh(kept);
    }
    m->n--; /* the new entry goes to its place */
    const size_t i = find_kept(m, number);
    memmove(m->list + i + 1, m->list + i, (m->n - i) * sizeof *m->list);
    m->list[i].number = number;
    m->list[i].d = kept;
    m->n++;
    *d = kept;
    return result == CONTAINER_OK && !kept ? CONTAINER_MEMORY : CONTAINER_OK;
}

void dcp_forget(struct dcp_memo *m)
{
    forget_parsed(m);
    free(m->list);
    memset(m, 0, sizeof *m);
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
