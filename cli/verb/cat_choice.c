/* SPDX-License-Identifier: MIT */
#include "cat_choice.h"

#include "../input/archive.h"
#include "../../formats/pattern.h"
#include "../../formats/torch.h"

/* -- tensors -- */

/* The name of a tensor that is similar to `name`, which was not found; NULL: there is none. */
static const char *find_near_tensor(const struct archive *a, const char *name)
{
    const lmc_base files = files_of_archive(a);
    for (size_t i = 0; i < files.n_files; i++) {
        const lmc_file *const f = files.get_file(files.user, i);
        for (size_t k = 0; k < f->n_tensors; k++)
            if (is_near(name, f->tensors[k].name)) return f->tensors[k].name;
    }
    return NULL;
}

int fail_lookup(const struct archive *a, enum lmc_status status, const char *name, const char *file)
{
    if (status == LMC_ERR_AMBIGUOUS)
        return fail(CODE_ERROR, a->name,
                    "has a tensor '%.200s' in several files; choose one with --file", name);
    if (status != LMC_ERR_NOT_FOUND) return fail_archive(a, status);
    const char *const near = file ? NULL : find_near_tensor(a, name);
    if (near)
        return fail(CODE_ERROR, a->name, "has no tensor '%.200s'; did you mean '%.200s'?", name,
                    near);
    return fail(CODE_ERROR, a->name, "has no tensor '%.200s'%s%.200s%s; 'lmc -l' lists them", name,
                file ? " in the file '" : "", file ? file : "", file ? "'" : "");
}

void free_selection(struct selection *c)
{
    for (size_t i = 0; i < c->n_inside; i++) container_free(&c->inside[i]);
    free(c->inside);
    free(c->list);
    memset(c, 0, sizeof *c);
}

static struct chosen *add_chosen(struct selection *c, size_t file, const lmc_tensor *t)
{
    struct chosen *added = (struct chosen *)append(&c->list, &c->n, &c->cap, sizeof *added);
    added->file = file;
    if (t) added->tensor = *t;
    return added;
}

/* Which tensors are wanted. */
struct wanted {
    char *const *names; /* patterns, unless is_exact */
    size_t n;           /* 0: all */
    const char *file;   /* NULL: any */
    int is_exact;
    int is_listed;          /* only what the snapshot lists; containers are not parsed */
    unsigned char *is_used; /* for each name: whether a tensor has it */
};

static int is_wanted(const struct wanted *w, const char *name)
{
    int result = w->n == 0;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->names[i], name) == 0 ||
            (!w->is_exact && match_pattern(w->names[i], strlen(w->names[i]), NULL, name)))
            result = w->is_used[i] = 1;
    return result;
}

/* The names of the views, in order. To be freed. */
static const char **sort_view_names(const struct container *inside)
{
    const char **sorted = (const char **)resize(NULL, inside->n_views, sizeof *sorted);
    for (size_t i = 0; i < inside->n_views; i++) sorted[i] = inside->views[i].name;
    if (inside->n_views) qsort((void *)sorted, inside->n_views, sizeof *sorted, compare_texts);
    return sorted;
}

/* Describes a view as a tensor whose elements are in the order of its shape. */
static void describe_view(lmc_tensor *t, const struct container_view *view)
{
    t->name = view->name;
    t->dtype = view->dtype;
    t->rank = view->rank;
    t->shape = view->shape;
    t->size = view->bits / 8;
    for (unsigned i = 0; i < view->rank; i++)
        t->size *= view->shape[i]; /* no overflow: the parser checked it */
}

/* Chooses all wanted tensors of a file. Views replace listed tensors of the same name. */
static void choose_of_file(struct selection *c, struct archive *a, size_t file,
                           const struct wanted *w)
{
    const lmc_base files = files_of_archive(a);
    const lmc_file *f = files.get_file(files.user, file);
    struct container *const inside = &c->inside[file];
    const char **views;
    if (!w->is_listed) (void)look_inside(inside, a, file);
    views = sort_view_names(inside);
    for (size_t k = 0; k < f->n_tensors; k++)
        if ((w->is_exact || !torch_is_description(&f->tensors[k])) &&
            !bsearch((const void *)&f->tensors[k].name, (const void *)views, inside->n_views,
                     sizeof *views, compare_texts) &&
            is_wanted(w, f->tensors[k].name))
            add_chosen(c, file, &f->tensors[k]);
    for (size_t k = 0; k < inside->n_views; k++)
        if (is_wanted(w, inside->views[k].name)) {
            struct chosen *const added = add_chosen(c, file, NULL);
            added->view = &inside->views[k];
            describe_view(&added->tensor, added->view);
        }
    free((void *)views);
}

static void choose_all(struct selection *c, struct archive *a, const struct wanted *w)
{
    const lmc_base files = files_of_archive(a);
    free_selection(c);
    c->n_inside = files.n_files;
    c->inside = (struct container *)zeroed(c->n_inside, sizeof *c->inside);
    for (size_t i = 0; i < files.n_files; i++)
        if (!w->file || strcmp(files.get_file(files.user, i)->path, w->file) == 0)
            choose_of_file(c, a, i, w);
}

int choose_tensors(struct selection *c, struct archive *a, char *const *names, size_t n,
                   const char *file)
{
    struct wanted w = {names, n, file, 0, 0, (unsigned char *)zeroed(n + 1, 1)};
    int code = CODE_OK;
    choose_all(c, a, &w);
    if (a->is_inside_cut)
        code = fail(CODE_ERROR, a->name,
                    "not all of its tensors are known; choose a file of it with --file");
    for (size_t i = 0; i < n && code == CODE_OK; i++)
        if (!w.is_used[i]) {
            const char *fault = find_pattern_fault(names[i], strlen(names[i]));
            code = fault
                       ? fail(CODE_ERROR, a->name,
                              "has no tensor '%.200s', which is not a pattern: %s; 'lmc -l' lists "
                              "them",
                              names[i], fault)
                       : fail_lookup(a, LMC_ERR_NOT_FOUND, names[i], file);
        }
    if (code == CODE_OK && c->n == 0)
        code = fail(CODE_ERROR, a->name, "has no tensors; restore it with -d");
    free(w.is_used);
    return code;
}

enum lmc_status choose_tensor(struct selection *c, struct archive *a, const char *name,
                              const char *file)
{
    const lmc_base files = files_of_archive(a);
    unsigned char is_used;
    char *names[1];
    struct wanted w = {names, name != NULL, file, 1, 1, &is_used};
    names[0] = (char *)name;
    choose_all(c, a, &w);
    if (c->n == 1) { /* only the tensor's file needs to be parsed */
        w.file = files.get_file(files.user, c->list->file)->path;
        names[0] = (char *)c->list->tensor.name;
        w.n = 1;
    }
    w.is_listed = 0;
    if (c->n == 1 || (c->n == 0 && name)) choose_all(c, a, &w);
    for (size_t i = 1; i < c->n; i++) /* in one file: equal views; cat checks is_ambiguous */
        if (!name || c->list[i].file != c->list->file) return LMC_ERR_AMBIGUOUS;
    return c->n == 0 ? LMC_ERR_NOT_FOUND : LMC_OK;
}

/* -- slices: NAME[start:stop,index,:], as in NumPy, without steps -- */

/* Parses an integer. Returns 0 if there is none. */
static int parse_index(const char **text, long long *value)
{
    char *end;
    if (**text != '-' && (**text < '0' || **text > '9')) return 0;
    errno = 0;
    *value = strtoll(*text, &end, 10);
    if (end == *text || errno == ERANGE) return 0;
    *text = end;
    return 1;
}

/* A bound of a range, clamped to 0 .. n as in NumPy. A negative one counts from the end. */
static uint64_t clamp_bound(long long bound, uint64_t n)
{
    if (bound < 0) {
        uint64_t back = (uint64_t)-(bound + 1) + 1;
        return back > n ? 0 : n - back;
    }
    return (uint64_t)bound > n ? n : (uint64_t)bound;
}

/* Parses the slice of one dimension of n elements: ":", "3", "-1", "2:", ":5", "2:5" or "2:5:1".
 * Returns 0 for any other text, -1 if the index is out of range. */
static int parse_dimension(const char **text, uint64_t n, uint64_t *start, uint64_t *count,
                           int *dropped)
{
    long long value, step;
    int has_start = parse_index(text, &value);
    uint64_t stop = n;
    *dropped = has_start && **text != ':';
    if (*dropped) {
        uint64_t back = value < 0 ? (uint64_t)-(value + 1) + 1 : 0;
        if (value < 0 ? back > n : (uint64_t)value >= n) return -1;
        *start = value < 0 ? n - back : (uint64_t)value;
        *count = 1;
        return 1;
    }
    if (**text != ':') return 0;
    ++*text;
    *start = has_start ? clamp_bound(value, n) : 0;
    if (parse_index(text, &value)) stop = clamp_bound(value, n);
    if (**text == ':') {
        ++*text;
        if (**text != ',' && **text != ']' && (!parse_index(text, &step) || step != 1)) return 0;
    }
    *count = stop > *start ? stop - *start : 0;
    return 1;
}

int parse_slice(struct slice *s, const char *text, const lmc_tensor *t)
{
    unsigned i = 0;
    while (*text != ']') {
        const size_t size = strcspn(text, ",]");
        const char *part = text;
        int result;
        if (i == t->rank)
            return fail(CODE_USAGE, t->name, "has %u dimensions, the slice has more", t->rank);
        result = parse_dimension(&text, t->shape[i], &s->start[i], &s->count[i], &s->dropped[i]);
        if (result < 0)
            return fail(CODE_USAGE, t->name,
                        "has %llu elements in dimension %u, and the slice asks for number %.*s",
                        (unsigned long long)t->shape[i], i, (int)(size < 30 ? size : 30), part);
        if (result == 0 || (*text != ',' && *text != ']'))
            return fail(CODE_USAGE, t->name,
                        "a slice looks like [0:128,:,3]; steps other than 1 are not supported");
        if (*text == ',') text++;
        i++;
    }
    if (text[1]) return fail(CODE_USAGE, t->name, "a slice ends with its first ']'");
    for (; i < t->rank; i++) {
        s->start[i] = 0;
        s->count[i] = t->shape[i];
        s->dropped[i] = 0;
    }
    return CODE_OK;
}
