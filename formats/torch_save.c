/* torch_save.c - tensors in the archives of torch.save() (torch.h)
 * SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"
#include "sorted.h"

#define PICKLE_NAME "data.pkl"
#define RECORDS "data/"

/* Whether tensors cover enough of a storage. If not, the storage is listed as one tensor. */
#define COVERED(part, size) ((part) >= (size) - (size) / 16)

/* A tensor that the snapshot lists. */
struct listed {
    const lmc_tensor *tensor;
    int is_found; /* the file describes it */
    int is_plain; /* exactly as it is listed */
};

/* A container that grows, archive by archive. Names and shapes of its tensors are offsets at first;
 * when all are read, finish_pointers() turns them into pointers. */
struct builder {
    struct container *c;
    const struct view *view;
    size_t tensors_room, names_size, names_room, shapes_size, shapes_room;
    size_t n_hidden;  /* tensors that are within others */
    size_t n_unknown; /* storages that are quantised or of unknown types */
    size_t views_room;
    int folds;                   /* all tensors become views, and the list becomes empty */
    const char *item;            /* name of the item that this archive is; or "" */
    const struct dcp *dcp;       /* where the item is listed; or NULL */
    const struct dcp_item *part; /* the item there; or NULL */
    /* The file in a snapshot whose views are to be found; else NULL */
    const lmc_file *file;
    struct listed *listed; /* its tensors, sorted by name */
    size_t n_before;       /* tensors before the archives that were read */
    char *item_name;
};

/* An archive of torch.save(). */
struct archive_of_torch {
    struct zip zip;
    char prefix[256]; /* of its members' names */
    size_t prefix_size;
    struct torch_views views;
};

/* -- names -- */

/* Writes "[0:512,128:256]" for a part of a tensor, up to the last dimension that is cut. */
static void name_part(char *text, size_t cap, const struct builder *b, const uint64_t *shape,
                      unsigned rank)
{
    uint64_t extents[LMC_MAX_RANK], position[LMC_MAX_RANK];
    size_t size = 0;
    unsigned n = 0;
    if (!b->part || dcp_get_part(b->dcp, b->part, extents, position) != rank) return;
    for (unsigned i = 0; i < rank; i++)
        if (position[i] || shape[i] != extents[i]) n = i + 1;
    for (unsigned i = 0; i < n && size < cap; i++)
        size +=
            (size_t)snprintf(text + size, cap - size, "%s%llu:%llu%s", i ? "," : "[",
                             (unsigned long long)position[i],
                             (unsigned long long)(position[i] + shape[i]), i + 1 == n ? "]" : "");
}

/* Adds the tensor's name: the item's name, then path in the item, part and suffix. */
static enum container_result add_name(struct builder *b, const char *path, const char *part,
                                      const char *suffix)
{
    const char *dot = *b->item && *path ? "." : "";
    const size_t size =
        strlen(b->item) + strlen(dot) + strlen(path) + strlen(part) + strlen(suffix) + 1;
    if (size > CONTAINER_MAX_NAME) return container_bad(b->c, "a tensor has a very long name");
    if (b->names_size + size + b->shapes_size * sizeof *b->c->shapes +
            (b->c->n_tensors + 1) * sizeof *b->c->tensors +
            (b->c->n_views + 1) * sizeof *b->c->views >
        container_budget(b->view))
        return container_bad(b->c, "its names and shapes take too much for the size of the file");
    TRY(container_grow(&b->c->strings, b->names_size + size, &b->names_room, 1));
    snprintf(b->c->strings + b->names_size, size, "%s%s%s%s%s", b->item, dot, path, part, suffix);
    b->names_size += size;
    return CONTAINER_OK;
}

/* -- tensors -- */

/* The numbers of a view, from place `at` on; NULL if it has no dimensions. */
static const uint64_t *numbers_of(const struct archive_of_torch *a, const struct torch_view *view,
                                  size_t at)
{
    return view->rank ? a->views.shapes + at : NULL;
}

/* Adds the name of a view. shape: the place of the shape by which a part is named. */
static enum container_result add_name_of_view(struct builder *b, const struct archive_of_torch *a,
                                              const struct torch_view *view, size_t shape)
{
    const char *const path = a->views.names + view->name;
    char part[LMC_MAX_RANK * 44] = "";
    if (!*path) name_part(part, sizeof part, b, numbers_of(a, view, shape), view->rank);
    return add_name(b, path, part, "");
}

static enum container_result add_numbers(struct builder *b, const uint64_t *numbers, size_t n)
{
    return container_append(&b->c->shapes, &b->shapes_size, &b->shapes_room, numbers, n,
                            sizeof *numbers);
}

/* Adds a tensor, whose name was just added. */
static enum container_result add_torch_tensor(struct builder *b, size_t name, const char *dtype,
                                              const uint64_t *shape, unsigned rank, uint64_t offset,
                                              uint64_t size)
{
    struct container *const c = b->c;
    lmc_tensor t = {0};
    t.name = (const char *)(uintptr_t)name; /* see finish_pointers */
    t.dtype = dtype;
    t.rank = rank;
    t.shape = (const uint64_t *)(uintptr_t)b->shapes_size;
    t.offset = offset;
    t.size = size;
    TRY(container_append(&c->tensors, &c->n_tensors, &b->tensors_room, &t, 1, sizeof t));
    return add_numbers(b, shape, rank);
}

/* Adds a whole storage as one dimension of elements. bits: of an element; 0: unknown dtype. */
static enum container_result add_record(struct builder *b, const struct zip_member *m,
                                        const char *path, const char *suffix, const char *dtype,
                                        unsigned bits)
{
    const size_t name = b->names_size;
    const int has_dtype = bits && m->size % (bits / 8) == 0;
    const uint64_t n = has_dtype ? m->size / (bits / 8) : m->size;
    TRY(add_name(b, path, "", suffix));
    return add_torch_tensor(b, name, has_dtype ? dtype : "BYTES", &n, 1, m->offset, m->size);
}

static enum container_result add_torch_view(struct builder *b, const struct archive_of_torch *a,
                                            const struct torch_view *view)
{
    const uint64_t *const shape = numbers_of(a, view, view->shape);
    const size_t name = b->names_size;
    TRY(add_name_of_view(b, a, view, view->shape));
    return add_torch_tensor(b, name, view->dtype, shape, view->rank,
                            a->zip.members[view->member].offset + view->offset, view->size);
}

/* Adds a view of bytes of the file. The view's name was just added. */
static enum container_result add_name_of_bytes(struct builder *b, const struct archive_of_torch *a,
                                               const struct torch_view *view, size_t name)
{
    struct container *const c = b->c;
    const uint64_t *const numbers = numbers_of(a, view, view->logical);
    struct container_view added = {0};
    added.name = (const char *)(uintptr_t)name; /* see finish_pointers */
    added.shape = (const uint64_t *)(uintptr_t)b->shapes_size;
    added.dtype = view->dtype;
    added.rank = view->rank;
    added.bits = view->bits;
    added.offset = a->zip.members[view->member].offset + view->offset;
    added.flags = view->flags;
    TRY(container_append(&c->views, &c->n_views, &b->views_room, &added, 1, sizeof added));
    return add_numbers(b, numbers, 2 * (size_t)view->rank);
}

/* Adds the views of a storage that the list of tensors does not have as they are. */
static enum container_result add_other_names(struct builder *b, const struct archive_of_torch *a,
                                             const struct torch_view *views, size_t n)
{
    for (const struct torch_view *v = views; v < views + n; v++) {
        const size_t name = b->names_size;
        if (v->bits == 0 || (v->is_plain && v->is_kept)) continue;
        TRY(add_name_of_view(b, a, v, v->logical));
        TRY(add_name_of_bytes(b, a, v, name));
    }
    return CONTAINER_OK;
}

/* -- storages -- */

static int compare_views(const void *a, const void *b)
{
    const struct torch_view *x = (const struct torch_view *)a, *y = (const struct torch_view *)b;
    if (x->member != y->member) return x->member < y->member ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    if (x->is_dense != y->is_dense) return x->is_dense ? -1 : 1;
    if (x->is_plain != y->is_plain) return x->is_plain ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Keeps the views that are not within others, and returns their number. If these overlap or have
 * holes, or cover too little of the storage, keeps none. All have one dtype. */
static size_t keep_views(struct torch_view *views, size_t n, uint64_t size)
{
    uint64_t end = 0, covered = 0;
    size_t kept = 0;
    int is_good = 1;
    for (struct torch_view *v = views; v < views + n; v++) {
        if (v->size == 0 ? size != 0 || kept : v->offset + v->size <= end) continue;
        is_good &= v->offset >= end && v->is_dense;
        end = v->offset + v->size;
        covered += v->size;
        v->is_kept = 1;
        kept++;
    }
    if (is_good && COVERED(covered, size)) return kept;
    for (size_t i = 0; i < n; i++) views[i].is_kept = 0;
    return 0;
}

/* -- a file in a snapshot -- */

/* The listed tensor of that name; NULL: there is none. */
static struct listed *find_listed_name(struct builder *b, const char *name)
{
    const char *const *key = &name;
    return (struct listed *)bsearch(&key, b->listed, b->file->n_tensors, sizeof *b->listed,
                                    compare_named);
}

/* The same for the name that was just added. Removes that name again. */
static struct listed *take_listed(struct builder *b, size_t name)
{
    b->names_size = name;
    return find_listed_name(b, b->c->strings + name);
}

/* Whether l is that view, `offset` bytes behind the storage's start. If so, sets this start. */
static int is_listed(struct zip_member *m, struct listed *l, const char *dtype,
                     const uint64_t *shape, unsigned rank, uint64_t offset, uint64_t size)
{
    const lmc_tensor *const t = l ? l->tensor : NULL;
    if (!t || t->size != size || strcmp(t->dtype, dtype) != 0 || t->rank != rank ||
        (rank && memcmp(t->shape, shape, rank * sizeof *shape) != 0) || t->offset < offset ||
        t->offset - offset < m->local || (m->offset && m->offset != t->offset - offset))
        return 0;
    m->offset = t->offset - offset;
    return l->is_found = 1;
}

/* Finds which views of a storage are listed as they are. If none is, reads the local header to find
 * the storage: only then, as it may be far away. first: the first view in the object's order. */
static enum container_result find_listed(struct builder *b, struct archive_of_torch *a,
                                         struct torch_view *views, size_t n,
                                         const struct torch_view *first)
{
    struct zip_member *const m = &a->zip.members[views->member];
    const size_t name = b->names_size;
    for (struct torch_view *v = views; v < views + n; v++) {
        if (!v->is_dense) continue;
        TRY(add_name_of_view(b, a, v, v->shape));
        struct listed *l = take_listed(b, name);
        v->is_kept =
            is_listed(m, l, v->dtype, numbers_of(a, v, v->shape), v->rank, v->offset, v->size);
        if (v->is_kept && v->is_plain) l->is_plain = 1;
    }
    TRY(add_name(b, a->views.names + first->name, "", "@storage"));
    struct listed *whole = take_listed(b, name);
    if (whole && whole->tensor->rank == 1)
        (void)is_listed(m, whole, whole->tensor->dtype, whole->tensor->shape, 1, 0, m->size);
    enum container_result result = zip_locate(&a->zip, b->view, m);
    if (result == CONTAINER_BAD) (void)container_bad(b->c, "%s", a->zip.error);
    return result;
}

/* Adds the storage of these views, which are in the order of memory. */
static enum container_result add_storage_of(struct builder *b, struct archive_of_torch *a,
                                            struct torch_view *views, size_t n)
{
    const struct zip_member *const m = &a->zip.members[views->member];
    const struct torch_view *first = views;
    int is_typed = 1;
    for (size_t i = 0; i < n; i++) {
        if (views[i].order < first->order) first = &views[i];
        is_typed &= views[i].bits == views->bits && strcmp(views[i].dtype, views->dtype) == 0;
    }
    b->n_unknown += views->bits == 0;
    if (views->bits == 0 && b->file) return CONTAINER_OK;
    if (views->bits == 0) return add_record(b, m, a->views.names + first->name, "", "BYTES", 0);
    if (b->file) {
        TRY(find_listed(b, a, views, n, first));
        return add_other_names(b, a, views, n);
    }
    if (b->folds) return add_other_names(b, a, views, n);
    size_t kept = is_typed ? keep_views(views, n, m->size) : 0;
    if (kept) b->n_hidden += n - kept;
    else
        TRY(add_record(b, m, a->views.names + first->name, "@storage",
                       is_typed ? views->dtype : "BYTES", is_typed ? views->bits : 0));
    for (size_t i = 0; i < n; i++)
        if (views[i].is_kept) TRY(add_torch_view(b, a, &views[i]));
    return add_other_names(b, a, views, n);
}

/* The name of a record "data/K" without the prefix; NULL: m is no such record. */
static const char *record_name(const struct archive_of_torch *a, const struct zip_member *m)
{
    const char *name = m->name;
    if (strncmp(name, a->prefix, a->prefix_size) != 0) return NULL;
    name += a->prefix_size;
    return strncmp(name, RECORDS, sizeof RECORDS - 1) == 0 && m->is_stored ? name : NULL;
}

/* Adds the records that no view uses. */
static enum container_result add_records(struct builder *b, const struct archive_of_torch *a)
{
    size_t v = 0;
    for (size_t i = 0; i < a->zip.n; i++) {
        const struct zip_member *const m = &a->zip.members[i];
        while (v < a->views.n && a->views.list[v].member < i) v++;
        if ((v < a->views.n && a->views.list[v].member == i) || m->size == 0 || !record_name(a, m))
            continue;
        TRY(add_record(b, m, record_name(a, m), "", "BYTES", 0));
    }
    return CONTAINER_OK;
}

static enum container_result add_storages(struct builder *b, struct archive_of_torch *a)
{
    struct torch_view *const list = a->views.list;
    if (a->views.n) qsort(list, a->views.n, sizeof *list, compare_views);
    if (!b->file) TRY(add_records(b, a));
    for (size_t start = 0, end; start < a->views.n; start = end) {
        for (end = start + 1; end < a->views.n && list[end].member == list[start].member;) end++;
        TRY(add_storage_of(b, a, list + start, end - start));
    }
    return CONTAINER_OK;
}

/* Bytes that describe tensors change little from step to step. As tensors they can be predicted by
 * a base. If they are shorter (TORCH_DESCRIPTION_SIZE), the entry of a tensor costs more than that
 * saves. */
#define GAP_SIZE 256u

static enum container_result add_bytes(struct builder *b, const char *name, uint64_t offset,
                                       uint64_t size, uint64_t least)
{
    const size_t at = b->names_size;
    if (size < least) return CONTAINER_OK;
    TRY(add_name(b, name, "", ""));
    return add_torch_tensor(b, at, "BYTES", &size, 1, offset, size);
}

static enum container_result add_descriptions(struct builder *b, const struct archive_of_torch *a,
                                              uint64_t end)
{
    char full[sizeof a->prefix + sizeof PICKLE_NAME];
    snprintf(full, sizeof full, "%s%s", a->prefix, PICKLE_NAME);
    const struct zip_member *m = zip_find(&a->zip, full);
    if (m && m->is_stored)
        TRY(add_bytes(b, "@" PICKLE_NAME, m->offset, m->size, TORCH_DESCRIPTION_SIZE));
    return add_bytes(b, "@directory", a->zip.directory, end - a->zip.directory,
                     TORCH_DESCRIPTION_SIZE);
}

/* -- archives -- */

/* Finds the one directory that all members are in: the path before data.pkl. */
static int find_prefix(struct archive_of_torch *a)
{
    size_t found = 0;
    for (size_t i = 0; i < a->zip.n; i++) {
        const char *name = a->zip.members[i].name, *slash = strchr(name, '/');
        const size_t size = slash ? (size_t)(slash + 1 - name) : 0;
        if (strcmp(name + size, PICKLE_NAME) != 0 || size >= sizeof a->prefix) continue;
        memcpy(a->prefix, name, size);
        a->prefix[size] = 0;
        a->prefix_size = size;
        found++;
    }
    return found == 1;
}

/* Reads a member's data; NULL: it is compressed, too large, or cannot be read. To be freed. */
static void *read_record(const struct builder *b, struct archive_of_torch *a, const char *name,
                         size_t most, size_t *size)
{
    char full[sizeof a->prefix + 32];
    snprintf(full, sizeof full, "%s%s", a->prefix, name);
    struct zip_member *m = zip_find(&a->zip, full);
    if (!m || !m->is_stored || m->size > most || zip_locate(&a->zip, b->view, m) != CONTAINER_OK)
        return NULL;
    *size = (size_t)m->size;
    void *data = malloc(*size + 1);
    if (data && b->view->read(b->view->user, m->offset, data, *size) != 0) {
        free(data);
        data = NULL;
    }
    return data;
}

static int is_little_endian(const struct builder *b, struct archive_of_torch *a)
{
    size_t size = 0;
    void *order = read_record(b, a, "byteorder", 16, &size);
    const int is_big = order && !(size == 6 && memcmp(order, "little", 6) == 0);
    free(order);
    return !is_big;
}

/* Sets the note, unless there is one already. */
#define note(c, ...)                                                                               \
    ((c)->note[0] ? (void)0 : container_say((c)->note, sizeof(c)->note, __VA_ARGS__))

/* Reads views from the pickle. If the pickle is not understood, there are no views. */
static enum container_result read_views(struct builder *b, struct archive_of_torch *a)
{
    struct pickle p;
    size_t size = 0;
    if (!is_little_endian(b, a)) {
        note(b->c, "its numbers are big-endian: they are stored as bytes");
        return CONTAINER_OK;
    }
    void *data = read_record(b, a, PICKLE_NAME, pickle_max_size(b->view->weight), &size);
    if (!data) {
        note(b->c, "its data.pkl is compressed, or too large for the size of the file: its records "
                   "are bytes");
        return CONTAINER_OK;
    }
    enum container_result result = pickle_read(&p, data, size, b->view->weight);
    free(data);
    if (result == CONTAINER_OK) {
        result = torch_find_views(&a->views, &p, &a->zip, a->prefix, container_budget(b->view));
        pickle_free(&p);
    } else snprintf(a->views.error, sizeof a->views.error, "%s", p.error);
    if (result != CONTAINER_BAD) return result;
    note(b->c, "its data.pkl is not understood, so its records are bytes: %.120s", a->views.error);
    torch_free_views(&a->views);
    return CONTAINER_OK;
}

static int is_bytes(const lmc_tensor *t) { return strcmp(t->dtype, "BYTES") == 0; }

int torch_is_description(const lmc_tensor *t) { return t->name[0] == '@' && is_bytes(t); }

/* Finds the name of an item that is not in .metadata: the name of the first listed tensor in the
 * item, without the tensor's path in the archive. */
static enum container_result name_item(struct builder *b, const struct archive_of_torch *a)
{
    static const char suffix[] = "@storage";
    const lmc_tensor *t = NULL;
    size_t size, most = 0;
    int is_found = 0;
    for (; b->n_before && b->file->tensors[b->n_before - 1].offset >= a->zip.start; b->n_before--)
        if (!is_bytes(&b->file->tensors[b->n_before - 1])) t = &b->file->tensors[b->n_before - 1];
    if (!t) return CONTAINER_OK;
    size = strlen(t->name);
    if (size >= sizeof suffix - 1 && strcmp(t->name + size - (sizeof suffix - 1), suffix) == 0)
        size -= sizeof suffix - 1;
    for (size_t i = 0; i < a->views.n; i++) {
        const char *const path = a->views.names + a->views.list[i].name;
        const size_t length = strlen(path) + (*path != 0); /* with the dot before it */
        if (length > size || length < most || strcmp(a->views.list[i].dtype, t->dtype) != 0 ||
            (*path && (t->name[size - length] != '.' ||
                       memcmp(t->name + size - length + 1, path, length - 1) != 0)))
            continue;
        most = length;
        is_found = 1;
    }
    if (!is_found) return CONTAINER_OK; /* so its tensors are not found */
    free(b->item_name);
    b->item = b->item_name = (char *)malloc(size - most + 1);
    if (!b->item_name) return CONTAINER_MEMORY;
    memcpy(b->item_name, t->name, size - most);
    b->item_name[size - most] = 0;
    return CONTAINER_OK;
}

/* Adds the archive that ends at `end`. OTHER: it is not of torch.save(). *start: its beginning. */
static enum container_result add_archive(struct builder *b, uint64_t from, uint64_t end,
                                         uint64_t *start)
{
    struct archive_of_torch a = {0};
    enum container_result result = zip_read(&a.zip, b->view, from, end);
    for (size_t i = 0; i < a.zip.n && result == CONTAINER_OK && !b->file; i++)
        result = zip_locate(&a.zip, b->view, &a.zip.members[i]);
    if (result == CONTAINER_BAD || result == CONTAINER_OTHER)
        (void)container_bad(b->c, "%s", a.zip.error);
    if (result == CONTAINER_OK && !find_prefix(&a)) result = CONTAINER_OTHER;
    *start = a.zip.start;
    if (result == CONTAINER_OK) result = read_views(b, &a);
    if (result == CONTAINER_OK && b->file && *b->item && !b->part) result = name_item(b, &a);
    if (result == CONTAINER_OK) result = add_storages(b, &a);
    if (result == CONTAINER_OK && !*b->item && !b->file) result = add_descriptions(b, &a, end);
    torch_free_views(&a.views);
    zip_free(&a.zip);
    return result;
}

/* -- files -- */

static int compare_by_place(const void *a, const void *b)
{
    const lmc_tensor *x = (const lmc_tensor *)a, *y = (const lmc_tensor *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
                                  : (x->size > y->size) - (x->size < y->size);
}

/* Lists the bytes around the tensors, too, if they are more than a little of the file. */
static enum container_result add_gaps(struct builder *b)
{
    struct container *const c = b->c;
    const size_t n = c->n_tensors;
    uint64_t end = 0, rest = b->view->size;
    for (size_t i = 0; i < n; i++) rest -= c->tensors[i].size < rest ? c->tensors[i].size : rest;
    if (n == 0 || rest <= b->view->size / 64) return CONTAINER_OK;
    qsort(c->tensors, n, sizeof *c->tensors, compare_by_place);
    b->item = "";
    for (size_t i = 0; i <= n; i++) {
        const uint64_t start = i < n ? c->tensors[i].offset : b->view->size;
        char name[32] = "@directory"; /* the file's end, see may_be_archive() in python/src */
        if (i < n) snprintf(name, sizeof name, "@%zu", i + 1);
        if (start > end) TRY(add_bytes(b, name, end, start - end, GAP_SIZE));
        if (i < n) end = start + c->tensors[i].size;
    }
    return CONTAINER_OK;
}

/* Turns offsets of names and shapes into pointers, as the arrays do not move any more. */
static void finish_pointers(struct container *c)
{
    for (size_t i = 0; i < c->n_tensors; i++) {
        c->tensors[i].name = c->strings + (uintptr_t)c->tensors[i].name;
        c->tensors[i].shape = c->shapes ? c->shapes + (uintptr_t)c->tensors[i].shape : NULL;
    }
    for (size_t i = 0; i < c->n_views; i++) {
        c->views[i].name = c->strings + (uintptr_t)c->views[i].name;
        c->views[i].shape = c->shapes ? c->shapes + (uintptr_t)c->views[i].shape : NULL;
        c->views[i].strides = c->shapes ? c->views[i].shape + c->views[i].rank : NULL;
    }
}

static enum container_result finish_builder(struct builder *b)
{
    struct container *const c = b->c;
    finish_pointers(c);
    if (b->n_unknown)
        note(c, "some of its storages are quantised or of unknown types, and stored as bytes");
    if (b->n_hidden)
        note(c, "%llu of its tensors share the bytes of others, and are listed as views",
             (unsigned long long)b->n_hidden);
    c->end = b->view->size;
    return container_check_tensors(c, 0, b->view->size, 1);
}

/* An entry of a tensor takes some 50 bytes, more than a tiny tensor saves. If the file has less
 * than TINY_SIZE bytes for each tensor, they are views of a file without tensors. This depends only
 * on the file, so the file is the same base for every program. It is not done for small files, as
 * it does not matter, nor for .distcp files, whose headers are alike and so save more. */
#define TINY_SIZE 3072u
#define SMALL_FILE_SIZE 65536u

static int is_of_tiny_tensors(const struct container *c, uint64_t size)
{
    return c->n_tensors && !c->n_views && size >= SMALL_FILE_SIZE &&
           size / c->n_tensors < TINY_SIZE;
}

#define BEFORE "something stands before its archive"

static void init_builder(struct builder *b, struct container *c, const struct view *v)
{
    memset(b, 0, sizeof *b);
    b->c = c;
    b->view = v;
    b->item = "";
    c->kind = CONTAINER_TORCH;
}

enum container_result container_parse_torch_save(struct container *c, const struct view *v)
{
    struct builder b;
    for (int folds = 0; folds < 2; folds++) {
        uint64_t start = 0;
        init_builder(&b, c, v);
        b.folds = folds;
        TRY(add_archive(&b, 0, v->size, &start));
        if (start != 0) return container_bad(c, BEFORE);
        const int is_done = !folds && !is_of_tiny_tensors(c, v->size);
        if (is_done) TRY(add_gaps(&b));
        TRY(finish_builder(&b));
        if (is_done) return CONTAINER_OK;
        if (!folds) container_free(c);
    }
    note(c, "its tensors are so small that they are stored as the bytes of the file");
    c->n_tensors = 0;
    return CONTAINER_OK;
}

/* Adds the items that are in .metadata. Items that are no archives have no tensors. */
static enum container_result add_known_items(struct builder *b, const struct dcp *d,
                                             const char *name)
{
    uint64_t end = 0, start;
    b->dcp = d;
    for (size_t i = dcp_find(d, name); i < d->n && strcmp(d->items[i].file, name) == 0; i++) {
        const struct dcp_item *const item = &d->items[i];
        if (item->offset < end || item->offset + item->size > b->view->size)
            return container_bad(b->c, "its .metadata lists items that overlap or are missing");
        end = item->offset + item->size;
        b->item = item->name;
        b->part = item;
        enum container_result result = add_archive(b, item->offset, end, &start);
        b->part = NULL;
        if (result == CONTAINER_BAD || result == CONTAINER_OTHER) {
            note(b->c, "one of its items is not an archive: %.120s", b->c->error);
            continue;
        }
        if (result != CONTAINER_OK) return result;
        if (start != item->offset) return container_bad(b->c, "its .metadata is not of this file");
    }
    return CONTAINER_OK;
}

/* Adds the archives of a file without .metadata, from the last to the first, and numbers them from
 * the end. Bytes before the archives are left as bytes. */
static enum container_result add_items_from_end(struct builder *b)
{
    uint64_t end = b->view->size;
    char name[32];
    note(b->c, "no .metadata beside it names its items: they have numbers, from the end");
    for (unsigned n = 1; end > 0; n++) {
        uint64_t start;
        snprintf(name, sizeof name, "item-%u", n);
        b->item = name;
        enum container_result result = add_archive(b, 0, end, &start);
        if (result == CONTAINER_OTHER && n > 1) break;
        if (result != CONTAINER_OK) return result;
        end = start;
    }
    return CONTAINER_OK;
}

enum container_result container_parse_distcp(struct container *c, const struct view *v,
                                             const struct dcp *d, const char *name)
{
    struct builder b;
    const int is_known = d && dcp_find(d, name) < d->n;
    init_builder(&b, c, v);
    TRY(is_known ? add_known_items(&b, d, name) : add_items_from_end(&b));
    TRY(add_gaps(&b));
    return finish_builder(&b);
}

/* -- views of a file in a snapshot -- */

static int is_same_view(const struct container_view *a, const struct container_view *b)
{
    return a->offset == b->offset && strcmp(a->dtype, b->dtype) == 0 && a->rank == b->rank &&
           a->flags == b->flags &&
           (a->rank == 0 || memcmp(a->shape, b->shape, 16 * (size_t)a->rank) == 0);
}

/* Marks views that have the same name: {"a": {"b.c": x}, "a.b": {"c": y}}. */
static enum container_result find_ambiguous(struct builder *b)
{
    struct container *const c = b->c;
    struct container_view **sorted;
    sorted = (struct container_view **)malloc((c->n_views + 1) * sizeof *sorted);
    if (!sorted) return CONTAINER_MEMORY;
    for (size_t i = 0; i < c->n_views; i++) {
        const struct listed *const l = find_listed_name(b, c->views[i].name);
        c->views[i].is_ambiguous = l && l->is_plain;
        sorted[i] = &c->views[i];
    }
    qsort((void *)sorted, c->n_views, sizeof *sorted, compare_named);
    for (size_t i = 1; i < c->n_views; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0 &&
            !is_same_view(sorted[i - 1], sorted[i]))
            sorted[i - 1]->is_ambiguous = sorted[i]->is_ambiguous = 1;
    free((void *)sorted);
    return CONTAINER_OK;
}

static void begin_finding(struct builder *b)
{
    for (size_t i = 0; i < b->file->n_tensors; i++) {
        b->listed[i].tensor = &b->file->tensors[i];
        b->listed[i].is_found = b->listed[i].is_plain = 0;
    }
    qsort(b->listed, b->file->n_tensors, sizeof *b->listed, compare_named);
    b->n_before = b->file->n_tensors;
    b->names_size = b->shapes_size = b->c->n_views = 0;
}

/* Adds the archives of the file: one, unless it is of torch.distributed.checkpoint. */
static enum container_result find_archives(struct builder *b, const struct dcp *d)
{
    const char *const slash = strrchr(b->file->path, '/');
    const char *const name = slash ? slash + 1 : b->file->path;
    uint64_t start = 0;
    enum container_result result;
    if (d && dcp_find(d, name) < d->n) return add_known_items(b, d, name);
    if (!container_is_distcp(name)) {
        result = add_archive(b, 0, b->view->size, &start);
        if (result != CONTAINER_OK || start == 0) return result;
        if (b->file->n_tensors == 0) return container_bad(b->c, BEFORE);
        begin_finding(b); /* a .distcp file with another name */
    }
    return add_items_from_end(b);
}

enum container_result container_find_torch_views(struct container *c, const struct view *v,
                                                 const lmc_file *f, const struct dcp *d)
{
    struct builder b;
    enum container_result result = CONTAINER_MEMORY;
    init_builder(&b, c, v);
    b.file = f;
    b.listed = (struct listed *)malloc((f->n_tensors + 1) * sizeof *b.listed);
    if (b.listed) {
        begin_finding(&b);
        result = find_archives(&b, d);
        for (size_t i = 0; i < f->n_tensors && result == CONTAINER_OK; i++)
            if (!b.listed[i].is_found && !is_bytes(b.listed[i].tensor))
                result = container_bad(c, "it does not describe tensor '%.100s'%s%.100s",
                                       b.listed[i].tensor->name, c->note[0] ? ": " : "", c->note);
        finish_pointers(c);
        if (result == CONTAINER_OK) result = find_ambiguous(&b);
    }
    free(b.listed);
    free(b.item_name);
    return result;
}

size_t torch_parse_part(const char *name, uint64_t *begin, uint64_t *end)
{
    const char *bracket = strrchr(name, '[');
    unsigned long long from, to;
    char rest[2];
    if (!bracket || sscanf(bracket, "[%19llu:%19llu]%1s", &from, &to, rest) != 2 ||
        name[strlen(name) - 1] != ']' || from >= to)
        return 0;
    *begin = from;
    *end = to;
    return (size_t)(bracket - name);
}
