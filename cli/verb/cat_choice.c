/* SPDX-License-Identifier: MIT */
#include "cat_choice.h"

#include <stdlib.h>
#include <string.h>

#include "../input/archive.h"
#include "../input/inside.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "cat_view.h"
#include "../../formats/pattern.h"

int fail_lookup(const struct archive *a, enum lmc_status status, const char *name, const char *file)
{
    if (status == LMC_ERR_NOT_FOUND && file)
        return fail(CODE_ERROR, a->name,
                    "has no tensor '%.200s' in the file '%.200s'; 'lmc -l' lists them", name, file);
    if (status == LMC_ERR_NOT_FOUND)
        return fail(CODE_ERROR, a->name, "has no tensor '%.200s'; 'lmc -l' lists them", name);
    if (status == LMC_ERR_AMBIGUOUS)
        return fail(CODE_ERROR, a->name,
                    "has a tensor '%.200s' in several files; choose one with --file", name);
    return fail_archive(a, status);
}

void free_choice(struct choice_of_tensors *c, const struct archive *a)
{
    for (size_t i = 0; c->inside && i < files_of_archive(a).n_files; i++)
        container_free(&c->inside[i]);
    free(c->inside);
    free(c->list);
}

static struct chosen *add_chosen(struct choice_of_tensors *c, size_t file)
{
    struct chosen *added;
    c->list = (struct chosen *)grow(c->list, c->n, &c->room, sizeof *c->list);
    added = &c->list[c->n++];
    memset(added, 0, sizeof *added);
    added->file = file;
    return added;
}

const lmc_tensor *tensor_of_chosen(const struct chosen *c)
{
    return c->view ? &c->described : c->tensor;
}

static int is_chosen(char *const *names, size_t n, const char *name, unsigned char *is_used)
{
    int result = n == 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0 || match_pattern(names[i], strlen(names[i]), NULL, name))
            result = is_used[i] = 1;
    return result;
}

/* Bytes of a container that are listed as tensors, and are none: "@data.pkl". */
static int is_no_tensor(const lmc_tensor *t)
{
    return t->name[0] == '@' && strcmp(t->dtype, "BYTES") == 0;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of the views, in order. To be freed. */
static const char **sort_view_names(const struct container *inside)
{
    const char **sorted = (const char **)resize(NULL, inside->n_views, sizeof *sorted);
    for (size_t i = 0; i < inside->n_views; i++) sorted[i] = inside->views[i].name;
    if (inside->n_views) qsort((void *)sorted, inside->n_views, sizeof *sorted, compare_texts);
    return sorted;
}

/* All tensors of a file that a pattern matches, as PyTorch has them. */
static void choose_of_file(struct choice_of_tensors *c, struct archive *a, char *const *names,
                           size_t n, size_t file, unsigned char *is_used)
{
    const lmc_base files = files_of_archive(a);
    const lmc_file *f = files.get_file(files.user, file);
    struct container *const inside = &c->inside[file];
    const char **views;
    (void)look_inside(inside, a, file);
    views = sort_view_names(inside);
    for (size_t k = 0; k < f->n_tensors; k++)
        if (!is_no_tensor(&f->tensors[k]) &&
            !bsearch((const void *)&f->tensors[k].name, (const void *)views, inside->n_views,
                     sizeof *views, compare_texts) &&
            is_chosen(names, n, f->tensors[k].name, is_used))
            add_chosen(c, file)->tensor = &f->tensors[k];
    for (size_t k = 0; k < inside->n_views; k++)
        if (is_chosen(names, n, inside->views[k].name, is_used)) {
            struct chosen *const added = add_chosen(c, file);
            added->view = &inside->views[k];
            describe_view(&added->described, added->view);
        }
    free((void *)views);
}

int choose_tensors(struct choice_of_tensors *c, struct archive *a, char *const *names, size_t n,
                   const char *file)
{
    const lmc_base files = files_of_archive(a);
    const size_t n_files = files.n_files;
    unsigned char *is_used = (unsigned char *)resize(NULL, n + 1, 1);
    int code = CODE_OK;
    memset(is_used, 0, n + 1);
    memset(c, 0, sizeof *c);
    c->inside = (struct container *)resize(NULL, n_files, sizeof *c->inside);
    memset(c->inside, 0, n_files * sizeof *c->inside);
    for (size_t i = 0; i < n_files; i++)
        if (!file || strcmp(files.get_file(files.user, i)->path, file) == 0)
            choose_of_file(c, a, names, n, i, is_used);
    if (a->is_inside_cut)
        code = fail(CODE_ERROR, a->name,
                    "not all of its tensors are known; choose a file of it with --file");
    for (size_t i = 0; i < n && code == CODE_OK; i++)
        if (!is_used[i]) {
            const char *fault = find_pattern_fault(names[i], strlen(names[i]));
            code = fault ? fail(CODE_ERROR, a->name,
                                "has no tensor '%.200s', which is no pattern: %s; 'lmc -l' lists "
                                "them",
                                names[i], fault)
                         : fail_lookup(a, LMC_ERR_NOT_FOUND, names[i], file);
        }
    if (code == CODE_OK && c->n == 0)
        code = fail(CODE_ERROR, a->name, "has no tensors; restore it with -d");
    free(is_used);
    return code;
}
