/* torch_views.c - the tensors of a pickle: dtypes, shapes, strides, paths (torch.h)
 * SPDX-License-Identifier: MIT */
#include "torch.h"

#include "container_check.h"

/* Limits for hostile objects: depth of keys, size of a path, nested wrappers. The caller's budget
 * limits the memory for all views. */
enum { MAX_DEPTH = 200, MAX_PATH_SIZE = 4096, MAX_WRAPPERS = 16 };

/* A container in the object that is being walked. */
struct frame {
    uint32_t node, link;
    unsigned number; /* of the link */
    unsigned stage;
    size_t path_size;
};

struct walk {
    struct torch_views *views;
    struct pickle *p;
    const struct zip *z;
    const char *prefix;
    struct frame frames[MAX_DEPTH];
    unsigned depth;
    uint64_t budget;
    char path[MAX_PATH_SIZE + 1]; /* always ends with a zero byte */
};

/* -- dtypes -- */

struct torch_dtype {
    const char *name;
    unsigned bits;
    const char *torch, *storage; /* storage NULL: the dtype has no class of storages */
};

/* Storages of other classes, such as quantised ones, are bytes. */
static const struct torch_dtype torch_dtypes[] = {
    {"F32", 32, "float32", "FloatStorage"},
    {"BF16", 16, "bfloat16", "BFloat16Storage"},
    {"F16", 16, "float16", "HalfStorage"},
    {"I64", 64, "int64", "LongStorage"},
    {"U8", 8, "uint8", "ByteStorage"},
    {"BOOL", 8, "bool", "BoolStorage"},
    {"I32", 32, "int32", "IntStorage"},
    {"F64", 64, "float64", "DoubleStorage"},
    {"I8", 8, "int8", "CharStorage"},
    {"I16", 16, "int16", "ShortStorage"},
    {"C64", 64, "complex64", "ComplexFloatStorage"},
    {"C128", 128, "complex128", "ComplexDoubleStorage"},
    {"F8_E4M3", 8, "float8_e4m3fn", NULL},
    {"F8_E5M2", 8, "float8_e5m2", NULL},
    {"F8_E8M0", 8, "float8_e8m0fnu", NULL},
    {"F8_E4M3FNUZ", 8, "float8_e4m3fnuz", NULL},
    {"F8_E5M2FNUZ", 8, "float8_e5m2fnuz", NULL},
    {"U16", 16, "uint16", NULL},
    {"U32", 32, "uint32", NULL},
    {"U64", 64, "uint64", NULL},
};

/* global: may be NULL */
static const struct torch_dtype *find_dtype(const char *global)
{
    if (!global || strncmp(global, "torch.", 6) != 0) return NULL;
    for (size_t i = 0; i < sizeof torch_dtypes / sizeof *torch_dtypes; i++) {
        const struct torch_dtype *const t = &torch_dtypes[i];
        if (strcmp(global + 6, t->torch) == 0 ||
            (t->storage && strcmp(global + 6, t->storage) == 0))
            return t;
    }
    return NULL;
}

const char *torch_dtype_name(const char *global)
{
    const struct torch_dtype *const dtype = find_dtype(global);
    return dtype ? dtype->name : NULL;
}

static const struct torch_dtype *find_dtype_of(const struct pickle *p, uint32_t node)
{
    return find_dtype(pickle_text(p, node, PICKLE_GLOBAL));
}

/* -- views -- */

/* Reads a storage: ('storage', class, key, place, n). *dtype: NULL if its class has no dtype. */
static enum container_result find_storage(struct walk *w, uint32_t node, struct torch_view *view,
                                          const struct torch_dtype **dtype)
{
    const struct pickle *const p = w->p;
    const struct pickle_node *const storage = pickle_get(p, node);
    const uint32_t id = storage->arguments, key = pickle_item(p, id, 2);
    char name[512];
    uint64_t n;
    if (storage->type != PICKLE_PERSISTENT || pickle_get(p, key)->type != PICKLE_TEXT ||
        !pickle_is_text(p, pickle_item(p, id, 0), PICKLE_TEXT, "storage") ||
        !pickle_count(p, pickle_item(p, id, 4), &n))
        return container_bad(w->views, "a storage has an unknown description");
    int n_name = snprintf(name, sizeof name, "%sdata/%s", w->prefix,
                          p->texts + pickle_get(p, key)->u.text.at);
    const struct zip_member *member =
        n_name >= 0 && (size_t)n_name < sizeof name ? zip_find(w->z, name) : NULL;
    if (!member || !member->is_stored)
        return container_bad(w->views, "a storage is not in the archive, or is compressed");
    view->member = (size_t)(member - w->z->members);
    *dtype = find_dtype_of(p, pickle_item(p, id, 1));
    view->size = member->size;
    if (*dtype && (member->size % ((*dtype)->bits / 8) || n != member->size / ((*dtype)->bits / 8)))
        return container_bad(w->views, "a storage has another size than it should have");
    return CONTAINER_OK;
}

static enum container_result add_view(struct walk *w, const struct torch_view *view)
{
    struct torch_views *const v = w->views;
    const size_t size = strlen(w->path) + 1;
    if (v->names_size + size + (v->n + 1) * sizeof *v->list + v->shapes_size * sizeof *v->shapes >
        w->budget)
        return container_bad(v, "its names and shapes take too much for the size of the file");
    struct torch_view added = *view;
    added.name = v->names_size;
    added.order = v->n;
    TRY(container_append(&v->names, &v->names_size, &v->names_room, w->path, size, 1));
    return container_append(&v->list, &v->n, &v->room, &added, 1, sizeof added);
}

/* Appends extents or strides; add_view() checks the budget for them. */
static enum container_result add_extents(struct torch_views *v, const uint64_t *extents, int rank)
{
    return container_append(&v->shapes, &v->shapes_size, &v->shapes_room, extents, (size_t)rank,
                            sizeof *extents);
}

/* Adds a storage that is in no tensor, or is of an unknown class. */
static enum container_result add_storage(struct walk *w, uint32_t node, uint32_t arguments)
{
    const struct torch_dtype *dtype;
    struct torch_view view = {0};
    TRY(find_storage(w, node, &view, &dtype));
    view.arguments = arguments;
    view.is_dense = view.is_plain = 1;
    view.dtype = dtype ? dtype->name : "BYTES";
    view.bits = dtype ? dtype->bits : 0;
    view.logical = view.shape = w->views->shapes_size;
    view.rank = 1;
    const uint64_t layout[2] = {dtype ? view.size / (dtype->bits / 8) : view.size, 1};
    TRY(add_extents(w->views, layout, 2)); /* extent and stride */
    return add_view(w, &view);
}

/* Sorts the dimensions into the order of memory: first dimensions of one element, whose strides
 * have no meaning, then the others, the largest stride first. */
static void sort_dimensions(uint64_t *shape, uint64_t *strides, int rank)
{
    for (int i = 0; i < rank; i++)
        if (shape[i] == 1) strides[i] = UINT64_MAX;
    for (int i = 1; i < rank; i++)
        for (int k = i; k > 0 && strides[k - 1] < strides[k]; k--) {
            const uint64_t stride = strides[k], extent = shape[k];
            strides[k] = strides[k - 1];
            shape[k] = shape[k - 1];
            strides[k - 1] = stride;
            shape[k - 1] = extent;
        }
}

/* Whether the dimensions are in memory in the order of the shape, as most are. */
static int is_contiguous(const uint64_t *shape, const uint64_t *strides, int rank)
{
    uint64_t n = 1;
    for (int i = rank; i-- > 0;) {
        if (shape[i] != 1 && strides[i] != n) return 0;
        n *= shape[i]; /* no overflow: checked by container_count_bytes() */
    }
    return 1;
}

/* Finds which bytes the view has of its storage of size bytes. 0: the view exceeds the storage. */
static int measure_view(struct torch_view *view, uint64_t *shape, uint64_t *strides, int rank,
                        uint64_t size)
{
    uint64_t extent = 1, bytes;
    if (!container_count_bytes(shape, (unsigned)rank, view->bits, &bytes) ||
        view->offset > size / (view->bits / 8))
        return 0;
    view->offset *= view->bits / 8;
    view->is_dense = 1;
    view->is_plain = !view->flags;
    view->size = bytes;
    if (bytes && !is_contiguous(shape, strides, rank)) {
        sort_dimensions(shape, strides, rank);
        view->is_dense = is_contiguous(shape, strides, rank);
        view->is_plain = 0;
        for (int i = 0; i < rank; i++) {
            if (shape[i] == 1) continue;
            if (strides[i] > size || (strides[i] && shape[i] - 1 > size / strides[i])) return 0;
            extent += (shape[i] - 1) * strides[i];
            if (extent > size) return 0;
        }
        view->size = extent * (view->bits / 8);
    }
    return view->size <= size - view->offset;
}

static int is_true(const struct pickle *p, uint32_t node)
{
    return pickle_get(p, node)->type == PICKLE_BOOL && pickle_get(p, node)->u.value;
}

/* PyTorch conjugates and negates lazily: it keeps the bytes, and sets a flag. */
static unsigned find_flags(const struct pickle *p, uint32_t arguments)
{
    unsigned flags = 0;
    for (unsigned i = 6; i < 8; i++) { /* version 2, version 3 */
        const uint32_t metadata = pickle_item(p, arguments, i);
        if (pickle_get(p, metadata)->type != PICKLE_DICT) continue;
        if (is_true(p, pickle_member(p, metadata, "conj"))) flags |= VIEW_CONJUGATED;
        if (is_true(p, pickle_member(p, metadata, "neg"))) flags |= VIEW_NEGATED;
    }
    return flags;
}

/* arguments: (storage, offset, shape, strides, requires_grad, hooks[, dtype]) */
static enum container_result add_tensor(struct walk *w, uint32_t arguments)
{
    const struct pickle *const p = w->p;
    uint64_t shape[LMC_MAX_RANK], strides[LMC_MAX_RANK], size;
    const struct torch_dtype *dtype;
    struct torch_view view = {0};
    const int rank = pickle_counts(p, pickle_item(p, arguments, 2), shape, LMC_MAX_RANK);
    TRY(find_storage(w, pickle_item(p, arguments, 0), &view, &dtype));
    if (!dtype) dtype = find_dtype_of(p, pickle_item(p, arguments, 6));
    if (!dtype) return add_storage(w, pickle_item(p, arguments, 0), arguments);
    size = view.size;
    view.arguments = arguments;
    view.dtype = dtype->name;
    view.bits = dtype->bits;
    view.flags = find_flags(p, arguments);
    if (rank < 0 || pickle_counts(p, pickle_item(p, arguments, 3), strides, LMC_MAX_RANK) != rank ||
        !pickle_count(p, pickle_item(p, arguments, 1), &view.offset))
        return container_bad(w->views, "a tensor does not lie within its storage");
    view.logical = w->views->shapes_size;
    view.rank = (unsigned)rank;
    TRY(add_extents(w->views, shape, rank));
    TRY(add_extents(w->views, strides, rank));
    if (!measure_view(&view, shape, strides, rank, size))
        return container_bad(w->views, "a tensor does not lie within its storage");
    view.shape = w->views->shapes_size;
    TRY(add_extents(w->views, shape, rank));
    return add_view(w, &view);
}

/* -- the walk -- */

/* Appends a key to the path. number: the place of an item, used if there is no key, or if the key
 * is neither a text nor a number. A part that does not fit is left out, with its dot: so a path
 * never has more than MAX_PATH_SIZE bytes, however deep the object is. */
static void append_key(struct walk *w, uint32_t key, unsigned number, size_t path_size)
{
    const struct pickle_node *const n = pickle_get(w->p, key);
    char digits[24];
    const char *text = digits;
    snprintf(digits, sizeof digits, "%u", number);
    if (key && (n->type == PICKLE_TEXT || n->type == PICKLE_GLOBAL)) /* such as torch.float32 */
        text = w->p->texts + n->u.text.at;
    if (key && (n->type == PICKLE_INT || n->type == PICKLE_BOOL))
        snprintf(digits, sizeof digits, "%lld", (long long)n->u.value);
    size_t size = strlen(text);
    if (path_size + (path_size > 0) + size > MAX_PATH_SIZE) {
        w->path[path_size] = 0;
        return;
    }
    if (path_size) w->path[path_size++] = '.';
    memcpy(w->path + path_size, text, size);
    w->path[path_size + size] = 0;
}

/* What a parameter wraps; 0: the node is not a parameter. */
static uint32_t unwrap(const struct pickle *p, uint32_t node)
{
    static const char *const wrappers[] = {"torch._utils._rebuild_parameter",
                                           "torch._utils._rebuild_parameter_with_state"};
    const struct pickle_node *const n = pickle_get(p, node);
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (pickle_is_text(p, n->function, PICKLE_GLOBAL, wrappers[i]))
            return pickle_item(p, n->arguments, 0);
    return 0;
}

/* The arguments by which a call makes a tensor; 0: the node makes something else. */
static uint32_t find_rebuild(const struct pickle *p, uint32_t node)
{
    static const char *const makers[] = {"torch._utils._rebuild_tensor_v2",
                                         "torch._utils._rebuild_tensor_v3",
                                         "torch._utils._rebuild_tensor"};
    const struct pickle_node *const n = pickle_get(p, node);
    uint32_t function = n->function, arguments = n->arguments;
    if (pickle_is_text(p, function, PICKLE_GLOBAL, "torch._tensor._rebuild_from_type_v2")) {
        function = pickle_item(p, n->arguments, 0);
        arguments = pickle_item(p, n->arguments, 2);
    }
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (pickle_is_text(p, function, PICKLE_GLOBAL, makers[i])) return arguments;
    return 0;
}

/* Visits an object only once, however often it occurs, by the first path that leads to it. A tensor
 * gets all names that it has in visited objects. */
static enum container_result visit(struct walk *w, uint32_t node)
{
    struct pickle_node *n;
    uint32_t arguments, inner;
    for (unsigned i = 0;; i++) {
        n = &w->p->nodes[node];
        if (n->type != PICKLE_CALL) break;
        arguments = find_rebuild(w->p, node);
        if (arguments) return add_tensor(w, arguments);
        inner = i < MAX_WRAPPERS ? unwrap(w->p, node) : 0;
        if (!inner) break;
        node = inner;
    }
    n = &w->p->nodes[node];
    if (n->mark || n->type == PICKLE_OTHER) return CONTAINER_OK;
    n->mark = 1;
    if (n->type == PICKLE_PERSISTENT) return add_storage(w, node, 0);
    if (n->type != PICKLE_CALL && !n->first) return CONTAINER_OK;
    if (w->depth == MAX_DEPTH) return container_bad(w->views, "its objects are nested too deep");
    memset(&w->frames[w->depth], 0, sizeof *w->frames);
    w->frames[w->depth].node = node;
    w->frames[w->depth].link = n->first;
    w->frames[w->depth++].path_size = strlen(w->path);
    return CONTAINER_OK;
}

/* Visits the next part of the innermost object: its items, then its state, then its arguments. */
static enum container_result step(struct walk *w)
{
    struct frame *const f = &w->frames[w->depth - 1];
    const struct pickle_node *const n = pickle_get(w->p, f->node);
    w->path[f->path_size] = 0;
    if (f->link) {
        const struct pickle_link link = w->p->links[f->link];
        const unsigned type = pickle_get(w->p, link.value)->type;
        f->link = link.next;
        f->number++;
        if (type < PICKLE_TUPLE || type == PICKLE_GLOBAL) return CONTAINER_OK;
        append_key(w, link.key, f->number - 1, f->path_size);
        return visit(w, link.value);
    }
    if (n->type == PICKLE_CALL && f->stage++ < 2)
        return visit(w, f->stage == 1 ? n->state : n->arguments);
    w->depth--;
    return CONTAINER_OK;
}

struct named_view {
    const char *name;
    struct torch_view *view;
};

static int compare_named_views(const void *a, const void *b)
{
    const struct named_view *x = (const struct named_view *)a, *y = (const struct named_view *)b;
    const int order = strcmp(x->name, y->name);
    if (order) return order;
    if (x->view->arguments != y->view->arguments)
        return x->view->arguments < y->view->arguments ? -1 : 1;
    return x->view < y->view ? -1 : x->view > y->view;
}

/* Removes repeated views: the same tensor with the same name. */
static enum container_result drop_repeated(struct torch_views *v)
{
    struct named_view *const list = (struct named_view *)malloc((v->n + 1) * sizeof *list);
    size_t n = 0;
    if (!list) return CONTAINER_MEMORY;
    for (size_t i = 0; i < v->n; i++) {
        list[i].name = v->names + v->list[i].name;
        list[i].view = &v->list[i];
    }
    qsort(list, v->n, sizeof *list, compare_named_views);
    for (size_t i = 1; i < v->n; i++)
        list[i].view->is_repeated = list[i].view->arguments == list[i - 1].view->arguments &&
                                    strcmp(list[i].name, list[i - 1].name) == 0;
    free(list);
    for (size_t i = 0; i < v->n; i++)
        if (!v->list[i].is_repeated) v->list[n++] = v->list[i];
    v->n = n;
    return CONTAINER_OK;
}

enum container_result torch_find_views(struct torch_views *views, struct pickle *p,
                                       const struct zip *z, const char *prefix, uint64_t budget)
{
    struct walk *const w = (struct walk *)calloc(1, sizeof *w);
    memset(views, 0, sizeof *views);
    if (!w) return CONTAINER_MEMORY;
    w->views = views;
    w->p = p;
    w->z = z;
    w->prefix = prefix;
    w->budget = budget;
    enum container_result result = visit(w, p->root);
    while (result == CONTAINER_OK && w->depth) result = step(w);
    free(w);
    return result == CONTAINER_OK ? drop_repeated(views) : result;
}

void torch_free_views(struct torch_views *views)
{
    free(views->list);
    free(views->names);
    free(views->shapes);
    memset(views, 0, sizeof *views);
}
