/* operands.c - the names of inputs and outputs of one command, which must not destroy each
 *   other (options.h)
 * SPDX-License-Identifier: MIT */
#include "options.h"

#include "archive.h"
#include "source_tree.h"

#include "../sys/output.h"

/* An input file, or an output, which may not exist yet. */
struct operand {
    char *path, *real; /* real: with all links resolved; "": impossible */
    const char *from;  /* of an output: the input that it is made from */
    dev_t dev;         /* of the input */
    ino_t ino;
};

struct operand_list {
    struct operand *list;
    size_t n, cap;
};

/* -- orders -- */

static int compare_real(const void *a, const void *b)
{
    return compare_paths(((const struct operand *)a)->real, ((const struct operand *)b)->real);
}

static void sort_operands(struct operand_list *l)
{
    if (l->n) qsort(l->list, l->n, sizeof *l->list, compare_real);
}

/* -- what is read, and what is written -- */

/* Takes ownership of real. real NULL: path cannot be resolved. */
static void add_operand(struct operand_list *l, const char *path, char *real, const char *from,
                        const struct stat *st)
{
    struct operand *operand = (struct operand *)append(&l->list, &l->n, &l->cap, sizeof *l->list);
    operand->path = copy_text(path);
    operand->real = real ? real : copy_text("");
    operand->from = from;
    operand->dev = st->st_dev;
    operand->ino = st->st_ino;
}

static void free_operands(struct operand_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->list[i].path);
        free(l->list[i].real);
    }
    free(l->list);
}

/* Resolves the links of an output's path. NULL: its directory is missing, or links form a loop. */
static char *resolve_output(const char *path)
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

char *name_output(const char *from, int is_restoring, const struct options *o)
{
    char *name = copy_without_slashes(from), *path;
    size_t size = strlen(name);
    if (is_restoring && !has_suffix(name)) {
        free(name);
        return NULL;
    }
    name = (char *)resize(name, size + sizeof SUFFIX, 1);
    if (is_restoring) name[size - strlen(SUFFIX)] = 0;
    else memcpy(name + size, SUFFIX, sizeof SUFFIX);
    if (!goes_into_directory(o)) return name;
    path = join_path(o->output, base_name(name));
    free(name);
    return path;
}

int is_named_snapshot(const char *path)
{
    struct stat st;
    int fd, result, error;
    if (has_suffix(path) || is_dash(path)) return 1;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    fd = open_file(AT_FDCWD, path, O_RDONLY);
    result = fd >= 0 && begins_as_snapshot(fd, &error);
    if (fd >= 0) close(fd);
    return result;
}

char *name_target(const char *path, int is_part, const struct options *o, int *code)
{
    *code = CODE_OK;
    if (o->output ? is_dash(o->output) : o->to_stdout || is_dash(path)) return NULL;
    if (o->output && (is_part || is_dash(path) || !goes_into_directory(o)))
        return copy_without_slashes(o->output);
    if (!has_suffix(path) && !is_named_snapshot(path)) { /* reported before faults of its name */
        *code = fail_foreign(path, o);
        return NULL;
    }
    if (!has_suffix(path)) {
        *code = fail(CODE_ERROR, path, "is not named " SUFFIX "; name the output with -o");
        return NULL;
    }
    return name_output(path, 1, o);
}

static void add_output(struct operand_list *outputs, const char *from, const struct stat *st,
                       int is_restoring, const struct options *o)
{
    char *path = name_output(from, is_restoring, o), *real = path ? resolve_output(path) : NULL;
    if (real) add_operand(outputs, path, real, from, st); /* else refused later */
    free(path);
}

int is_operand(const struct entry *e, int is_restoring)
{
    return !e->is_directory && (!e->link || e->is_file) && !is_temporary_name(e->path) &&
           has_suffix(e->path) == is_restoring;
}

/* Adds files below a directory: all that go into one snapshot; with -r, each that has an output. */
static int add_tree(struct operand_list *inputs, struct operand_list *outputs, const char *root,
                    int is_restoring, const struct options *o)
{
    struct listing files;
    struct options quiet = *o;
    quiet.verbosity = 0; /* patterns that match nothing are reported when the files are read */
    const int code = list_included(&files, root, o->recursive ? LINKS_KEEP : o->links,
                                   o->recursive ? 0 : most_files(o), &quiet);
    for (size_t i = 0; i < files.n && code == CODE_OK; i++) {
        const struct entry *e = &files.entries[i];
        char *path;
        struct stat st;
        if (o->recursive ? !is_operand(e, is_restoring) : e->is_directory || e->link) continue;
        path = join_path(root, e->path);
        if (stat(path, &st) == 0) {
            add_operand(inputs, path, realpath(path, NULL), NULL, &st);
            if (o->recursive)
                add_output(outputs, inputs->list[inputs->n - 1].path, &st, is_restoring, o);
        }
        free(path);
    }
    free_listing(&files);
    return code;
}

static int add_names(struct operand_list *inputs, struct operand_list *outputs, int is_restoring,
                     const struct options *o)
{
    int code = CODE_OK;
    for (size_t i = 0; i < o->n_names && code == CODE_OK; i++) {
        const char *name = o->names[i];
        struct stat st;
        if (is_dash(name) || stat(name, &st) != 0) continue; /* reported later */
        int is_tree = S_ISDIR(st.st_mode) && (o->recursive || !is_restoring);
        if (is_tree) code = add_tree(inputs, outputs, name, is_restoring, o);
        else add_operand(inputs, name, realpath(name, NULL), NULL, &st);
        if (!is_tree || !o->recursive) add_output(outputs, name, &st, is_restoring, o);
    }
    return code;
}

/* -- what is refused -- */

static int fail_output_of(const struct operand *output, const char *what, const char *other)
{
    return fail(CODE_ERROR, output->path,
                "is the output of %.300s and %s %.300s, which would be lost; "
                "nothing was written; name another output with -o",
                output->from, what, other);
}

/* Refuses two outputs of one name, unless they are made from one file, and an output that is an
 * input. When restoring, also refuses a directory with an input in it: it would be replaced. */
static int check_outputs(struct operand_list *outputs, struct operand_list *inputs,
                         int is_restoring)
{
    sort_operands(outputs);
    sort_operands(inputs);
    for (size_t i = 0; i < outputs->n; i++) {
        const struct operand *a = &outputs->list[i], *b = a + 1, *in;
        size_t low;
        if (i + 1 < outputs->n && strcmp(a->real, b->real) == 0 &&
            (a->dev != b->dev || a->ino != b->ino))
            return fail_output_of(b, "that of", a->from);
        FIND_FIRST(low, inputs->n, compare_real(&inputs->list[low], a) < 0);
        in = low < inputs->n ? &inputs->list[low] : NULL;
        if (in && strcmp(in->real, a->real) == 0) return fail_output_of(a, "the input", in->path);
        if (in && is_restoring && is_at_or_below(in->real, a->real))
            return fail_output_of(a, "holds the input", in->path);
    }
    return CODE_OK;
}

int check_overwritten(int is_restoring, const struct options *o)
{
    struct operand_list inputs = {NULL, 0, 0}, outputs = {NULL, 0, 0};
    if (!o->force || o->to_stdout || (o->output && !goes_into_directory(o)) ||
        (o->n_names < 2 && !o->recursive))
        return CODE_OK; /* without force nothing is replaced */
    int code = add_names(&inputs, &outputs, is_restoring, o);
    if (code == CODE_OK) code = check_outputs(&outputs, &inputs, is_restoring);
    free_operands(&inputs);
    free_operands(&outputs);
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

static int check_usable(const char *name, int is_restoring, const struct options *o)
{
    struct stat st, link;
    char *plain = copy_without_slashes(name);
    const int is_link = lstat(plain, &link) == 0 && S_ISLNK(link.st_mode);
    free(plain);
    if (stat(name, &st) != 0 || access(name, R_OK) != 0) {
        char why[200];
        snprintf(why, sizeof why, "cannot open it: %s%s", strerror(errno),
                 hint_for_url(name, errno));
        return fail_removed(name, why);
    }
    if (S_ISDIR(st.st_mode) && o->recursive) return CODE_OK;
    if (S_ISDIR(st.st_mode) && is_restoring) return fail_removed(name, "is a directory");
    if (is_link)
        return fail_removed(name, S_ISDIR(st.st_mode)
                                      ? "is a link to a directory, which --rm would leave"
                                      : "is a link to a file, which --rm would leave");
    if (S_ISDIR(st.st_mode)) return CODE_OK;
    if (!S_ISREG(st.st_mode) && !o->output) return fail_removed(name, "is not a regular file");
    if (!is_restoring && has_suffix(name) && !o->force)
        return fail_removed(name, "is named " SUFFIX " already");
    return is_restoring && !has_suffix(name) && (!o->output || goes_into_directory(o))
               ? fail_removed(name, "is not named " SUFFIX)
               : CODE_OK;
}

int check_removed(int is_restoring, const struct options *o)
{
    struct operand_list l = {NULL, 0, 0};
    int code = CODE_OK;
    for (size_t i = 0; i < o->n_names && code == CODE_OK && o->n_names > 1; i++) {
        struct stat st;
        code = check_usable(o->names[i], is_restoring, o);
        if (code != CODE_OK || stat(o->names[i], &st) != 0) continue;
        char *real = realpath(o->names[i], NULL);
        if (!real) code = fail_errno(o->names[i], errno, "cannot resolve it");
        add_operand(&l, o->names[i], real, NULL, &st);
    }
    sort_operands(&l);
    for (size_t i = 1; i < l.n && code == CODE_OK; i++)
        if (is_at_or_below(l.list[i].real, l.list[i - 1].real)) {
            char why[600];
            snprintf(why, sizeof why, "is, or is in, %.300s", l.list[i - 1].path);
            code = fail_removed(l.list[i].path, why);
        }
    free_operands(&l);
    return code;
}
