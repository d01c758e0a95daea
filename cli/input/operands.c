/* SPDX-License-Identifier: MIT */
#include "operands.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source.h"
#include "../sys/attributes.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/output.h"
#include "../sys/report.h"
#include "../sys/search.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

/* A file that is read, or will be. */
struct operand {
    char *path, *real; /* real: with all links resolved; NULL: not asked for */
    dev_t dev;
    ino_t ino;
};

struct operand_list {
    struct operand *list;
    size_t n, room;
};

/* Where an output goes, be anything there or not, and what from. */
struct goal {
    char *path, *real;
    const char *from;
    dev_t dev; /* of the input */
    ino_t ino;
};

struct goals {
    struct goal *list;
    size_t n, room;
};

/* -- orders -- */

static int compare_files(const void *a, const void *b)
{
    const struct operand *x = (const struct operand *)a, *y = (const struct operand *)b;
    if (x->dev != y->dev) return x->dev < y->dev ? -1 : 1;
    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

/* A slash comes before all else: so what is in a directory stands right behind it. */
static int compare_paths(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    if (*a == *b) return 0;
    if (!*a || !*b) return *a ? 1 : -1;
    if (*a == '/' || *b == '/') return *a == '/' ? -1 : 1;
    return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

static int compare_real(const void *a, const void *b)
{
    return compare_paths(((const struct operand *)a)->real, ((const struct operand *)b)->real);
}

static int compare_goals(const void *a, const void *b)
{
    return compare_paths(((const struct goal *)a)->real, ((const struct goal *)b)->real);
}

/* Whether one resolved path is the other, or lies below it. */
static int is_at_or_below(const char *path, const char *directory)
{
    const size_t size = strlen(directory);
    return strncmp(path, directory, size) == 0 &&
           (path[size] == 0 || path[size] == '/' || strcmp(directory, "/") == 0);
}

/* -- what is read, and what is written -- */

/* NULL: it is in no directory, or in a circle of links. */
static char *resolve_goal(const char *path)
{
    char *at = follow_links(path), *directory, *real, *result = NULL;
    if (!at) return NULL;
    result = realpath(at, NULL);
    directory = directory_of(at);
    real = result ? NULL : realpath(directory, NULL);
    if (real) result = join_path(real, base_name(at));
    free(real);
    free(directory);
    free(at);
    return result;
}

char *name_output(const char *from, int is_restoring, const struct common *o)
{
    char *name = copy_without_slashes(from), *directory, *path;
    size_t size = strlen(name);
    if (is_restoring && !has_suffix(name)) {
        free(name);
        return NULL;
    }
    name = (char *)resize(name, size + sizeof SUFFIX, 1);
    if (is_restoring) name[size - strlen(SUFFIX)] = 0;
    else memcpy(name + size, SUFFIX, sizeof SUFFIX);
    if (!goes_into_directory(o)) return name;
    directory = copy_without_slashes(o->output);
    path = strcmp(directory, "/") == 0 ? join_path("", base_name(name))
                                       : join_path(directory, base_name(name));
    free(directory);
    free(name);
    return path;
}

static void add_goal(struct goals *g, const char *from, const struct stat *st, int is_restoring,
                     const struct common *o)
{
    const struct goal none = {0};
    struct goal *goal;
    char *path = name_output(from, is_restoring, o);
    if (!path) return; /* it is refused when its turn comes */
    g->list = (struct goal *)grow(g->list, g->n, &g->room, sizeof *g->list);
    goal = &g->list[g->n];
    *goal = none;
    goal->path = path;
    goal->real = resolve_goal(path);
    goal->from = from;
    goal->dev = st->st_dev;
    goal->ino = st->st_ino;
    if (goal->real) g->n++;
    else free(path);
}

static void add_operand(struct operand_list *l, const char *path, const struct stat *st)
{
    struct operand *operand;
    l->list = (struct operand *)grow(l->list, l->n, &l->room, sizeof *l->list);
    operand = &l->list[l->n++];
    operand->path = copy_string(path, strlen(path));
    operand->real = NULL;
    operand->dev = st->st_dev;
    operand->ino = st->st_ino;
}

/* Each file below a directory. A link that stays a link is not read. */
static int add_tree(struct operand_list *l, const char *root, const struct common *o)
{
    struct listing files;
    const int code = list_tree(&files, root, o->links, most_files(o));
    for (size_t i = 0; i < files.n && code == CODE_OK; i++) {
        const struct entry *e = &files.entries[i];
        char *path = join_path(root, e->path);
        struct stat st;
        if (!e->is_directory && !e->link && stat(path, &st) == 0) add_operand(l, path, &st);
        free(path);
    }
    free_listing(&files);
    return code;
}

int is_operand(const struct entry *e, int is_restoring)
{
    return !e->is_directory && (!e->link || e->is_file) && !is_temporary_name(e->path) &&
           has_suffix(e->path) == is_restoring;
}

/* Each file below a directory is an input with an output. */
static int add_each(struct operand_list *l, struct goals *g, const char *root, int is_restoring,
                    const struct common *o)
{
    struct listing files;
    const int code = list_tree(&files, root, LINKS_KEEP, 0);
    for (size_t i = 0; i < files.n && code == CODE_OK; i++) {
        char *path;
        struct stat st;
        if (!is_operand(&files.entries[i], is_restoring)) continue;
        path = join_path(root, files.entries[i].path);
        if (stat(path, &st) == 0) {
            add_operand(l, path, &st);
            add_goal(g, l->list[l->n - 1].path, &st, is_restoring, o);
        }
        free(path);
    }
    free_listing(&files);
    return code;
}

static int add_names(struct operand_list *l, struct goals *g, const struct operands *all,
                     const struct common *o)
{
    int code = CODE_OK;
    for (size_t i = 0; i < all->n && code == CODE_OK; i++) {
        const char *name = all->names[i];
        struct stat st;
        if (is_dash(name) || stat(name, &st) != 0) continue; /* told when its turn comes */
        if (S_ISDIR(st.st_mode) && all->is_recursive) {
            code = add_each(l, g, name, all->is_restoring, o);
            continue;
        }
        if (S_ISDIR(st.st_mode) && !all->is_restoring) code = add_tree(l, name, o);
        else add_operand(l, name, &st);
        add_goal(g, name, &st, all->is_restoring, o);
    }
    return code;
}

/* -- what must not be -- */

static int fail_goal(const struct goal *goal, const char *what, const char *other)
{
    return fail(CODE_ERROR, goal->path,
                "is the output of %.300s and %s %.300s, which would be lost; "
                "nothing was written; name another output with -o",
                goal->from, what, other);
}

/* A directory that is restored takes the place of all that is in the old one. */
static int check_replaced_tree(const struct goal *goal, const struct operand_list *l)
{
    size_t low;
    FIND_FIRST(low, l->n, compare_paths(l->list[low].real, goal->real) < 0);
    return low < l->n && is_at_or_below(l->list[low].real, goal->real)
               ? fail_goal(goal, "holds the input", l->list[low].path)
               : CODE_OK;
}

static int check_goal(const struct goal *goal, const struct operand_list *l)
{
    struct operand key;
    const struct operand *found;
    struct stat st;
    memset(&key, 0, sizeof key);
    if (stat(goal->path, &st) != 0) return CODE_OK;
    key.dev = st.st_dev;
    key.ino = st.st_ino;
    found = (const struct operand *)bsearch(&key, l->list, l->n, sizeof *l->list, compare_files);
    return found ? fail_goal(goal, "the input", found->path) : CODE_OK;
}

/* No two outputs by one name, unless they are made of one file. */
static int check_twice(struct goals *g)
{
    if (g->n) qsort(g->list, g->n, sizeof *g->list, compare_goals);
    for (size_t i = 1; i < g->n; i++) {
        const struct goal *a = &g->list[i - 1], *b = &g->list[i];
        if (strcmp(a->real, b->real) == 0 && (a->dev != b->dev || a->ino != b->ino))
            return fail_goal(b, "that of", a->from);
    }
    return CODE_OK;
}

static int check_goals(struct goals *g, struct operand_list *l)
{
    int code = check_twice(g);
    if (l->n) qsort(l->list, l->n, sizeof *l->list, compare_files);
    for (size_t i = 0; i < g->n && code == CODE_OK; i++) code = check_goal(&g->list[i], l);
    return code;
}

/* As check_goals(), for the outputs that are directories. */
static int check_trees(const struct goals *g, struct operand_list *l)
{
    int code = CODE_OK, is_sorted = 0;
    for (size_t i = 0; i < g->n && code == CODE_OK; i++) {
        struct stat st;
        if (stat(g->list[i].path, &st) != 0 || !S_ISDIR(st.st_mode)) continue;
        for (size_t k = 0; k < l->n && !is_sorted; k++) {
            l->list[k].real = realpath(l->list[k].path, NULL);
            if (!l->list[k].real) l->list[k].real = copy_string("", 0);
        }
        if (!is_sorted) qsort(l->list, l->n, sizeof *l->list, compare_real);
        is_sorted = 1;
        code = check_replaced_tree(&g->list[i], l);
    }
    return code;
}

static void free_operands(struct operand_list *l, struct goals *g)
{
    for (size_t i = 0; i < g->n; i++) {
        free(g->list[i].path);
        free(g->list[i].real);
    }
    for (size_t i = 0; i < l->n; i++) {
        free(l->list[i].path);
        free(l->list[i].real);
    }
    free(g->list);
    free(l->list);
}

int check_overwritten(const struct operands *all, const struct common *o)
{
    struct operand_list l;
    struct goals g;
    int code;
    if (!o->force || o->to_stdout || (o->output && !goes_into_directory(o)) ||
        (all->n < 2 && !all->is_recursive))
        return CODE_OK; /* without force nothing is replaced */
    memset(&l, 0, sizeof l);
    memset(&g, 0, sizeof g);
    code = add_names(&l, &g, all, o);
    if (code == CODE_OK) code = check_goals(&g, &l);
    if (code == CODE_OK && all->is_restoring) code = check_trees(&g, &l);
    free_operands(&l, &g);
    return code;
}

/* -- with --rm -- */

static int fail_removed(const char *name, const char *why)
{
    return fail(CODE_ERROR, name,
                "%s; with --rm nothing is done unless all inputs can be used and none is part of "
                "another one",
                why);
}

static int check_usable(const char *name, const struct operands *all, const struct common *o)
{
    struct stat st, link;
    char *plain = copy_without_slashes(name);
    const int is_link = lstat(plain, &link) == 0 && S_ISLNK(link.st_mode);
    free(plain);
    if (stat(name, &st) != 0 || access(name, R_OK) != 0) {
        char why[200];
        snprintf(why, sizeof why, "cannot open it: %s", strerror(errno));
        return fail_removed(name, why);
    }
    if (S_ISDIR(st.st_mode) && all->is_recursive) return CODE_OK;
    if (S_ISDIR(st.st_mode) && all->is_restoring) return fail_removed(name, "is a directory");
    if (S_ISDIR(st.st_mode))
        return is_link ? fail_removed(name, "is a link to a directory, which --rm would leave; "
                                            "name that directory")
                       : CODE_OK;
    if (!S_ISREG(st.st_mode) && !o->output) return fail_removed(name, "is no regular file");
    if (!all->is_restoring && has_suffix(name) && !o->force)
        return fail_removed(name, "is named " SUFFIX " already");
    return all->is_restoring && !has_suffix(name) && (!o->output || goes_into_directory(o))
               ? fail_removed(name, "is not named " SUFFIX)
               : CODE_OK;
}

int check_removed(const struct operands *all, const struct common *o)
{
    struct operand_list l;
    struct goals none;
    int code = CODE_OK;
    memset(&l, 0, sizeof l);
    memset(&none, 0, sizeof none);
    for (size_t i = 0; i < all->n && code == CODE_OK && all->n > 1; i++) {
        struct stat st;
        code = check_usable(all->names[i], all, o);
        if (code != CODE_OK || stat(all->names[i], &st) != 0) continue;
        add_operand(&l, all->names[i], &st);
        l.list[l.n - 1].real = realpath(all->names[i], NULL);
        if (!l.list[l.n - 1].real) code = fail_errno(all->names[i], errno, "cannot resolve it");
    }
    if (code == CODE_OK && l.n) qsort(l.list, l.n, sizeof *l.list, compare_real);
    for (size_t i = 1; i < l.n && code == CODE_OK; i++)
        if (is_at_or_below(l.list[i].real, l.list[i - 1].real)) {
            char why[600];
            snprintf(why, sizeof why, "is, or is in, %.300s", l.list[i - 1].path);
            code = fail_removed(l.list[i].path, why);
        }
    free_operands(&l, &none);
    return code;
}
