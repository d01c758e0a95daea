/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <dirent.h>

struct dirent *next_entry(DIR *directory, int *error)
{
    struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry && is_dot(entry->d_name));
    if (!entry && !*error) *error = errno;
    return entry;
}

struct entry *add_entry(struct listing *l, const char *path, int is_directory)
{
    struct entry *e = (struct entry *)append(&l->entries, &l->n, &l->room, sizeof *l->entries);
    e->path = copy_text(path);
    e->is_directory = is_directory;
    return e;
}

int list_names(struct listing *l, const char *directory)
{
    DIR *stream = opendir(directory);
    struct dirent *entry;
    int error = stream ? 0 : errno;
    memset(l, 0, sizeof *l);
    while (stream && (entry = next_entry(stream, &error)) != NULL) add_entry(l, entry->d_name, 0);
    if (stream) closedir(stream);
    return error;
}

void free_listing(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->entries[i].path);
        free(l->entries[i].link);
    }
    for (size_t i = 0; i < l->n_others; i++) free(l->others[i]);
    free((void *)l->others);
    free(l->entries);
    memset(l, 0, sizeof *l);
}

/* A tree that is being listed. */
struct lister {
    struct listing *l;
    const char *root;
    char *real_root; /* links resolved; NULL: not needed yet */
    enum link_mode mode;
    uint64_t most;            /* entries */
    const struct stat *above; /* directories above a followed link, to detect loops */
    size_t n_above;
};

static int list_directory(struct lister *t, const char *path);

/* Whether there are more entries than allowed; the root does not count. */
static int is_full(const struct lister *t) { return t->most && t->l->n > t->most + 1; }

static int leads_outside(struct lister *t, const char *full)
{
    char *target = realpath(full, NULL);
    if (!t->real_root) t->real_root = realpath(t->root, NULL);
    int result = target && t->real_root && !is_at_or_below(target, t->real_root);
    free(target);
    return result;
}

/* Adds a link. st: of what it leads to, if is_there. */
static int list_link(struct lister *t, const char *path, const char *full, const struct stat *st,
                     int is_there)
{
    char target[65536];
    ssize_t size;
    struct entry *e;
    const int is_file = is_there && S_ISREG(st->st_mode);
    const int is_outside = t->mode == LINKS_AUTO && is_there && leads_outside(t, full);
    if (t->mode == LINKS_FOLLOW && !is_there)
        return fail_errno(full, errno, "is a link that leads nowhere");
    if (is_file && (t->mode == LINKS_FOLLOW || is_outside)) {
        t->l->n_followed += (size_t)is_outside;
        e = add_entry(t->l, path, 0);
        e->size = (uint64_t)st->st_size;
        e->is_followed = is_outside;
        return CODE_OK;
    }
    if (t->mode == LINKS_FOLLOW && S_ISDIR(st->st_mode)) return list_directory(t, path);
    size = readlink(full, target, sizeof target - 1);
    if (size <= 0) return fail_errno(full, size ? errno : ENOENT, "cannot read the link");
    if (is_there && !is_file && !S_ISDIR(st->st_mode))
        t->l->n_special += (size_t)(is_outside || t->mode == LINKS_FOLLOW);
    else t->l->n_outside += (size_t)is_outside;
    e = add_entry(t->l, path, 0);
    e->link = copy_string(target, (size_t)size);
    e->is_file = is_file;
    e->size = is_file ? (uint64_t)st->st_size : 0;
    return CODE_OK;
}

static void add_other(struct listing *l, const char *path)
{
    l->others = (char **)resize((void *)l->others, l->n_others + 1, sizeof *l->others);
    l->others[l->n_others++] = copy_text(path);
}

static int list_entry(struct lister *t, const char *path)
{
    char *full = join_path(t->root, path);
    struct stat st;
    int code = CODE_OK;
    if (lstat(full, &st) != 0) code = fail_errno(full, errno, "cannot access it");
    else if (S_ISLNK(st.st_mode)) {
        const int is_there = stat(full, &st) == 0;
        code = list_link(t, path, full, &st, is_there);
    } else if (S_ISREG(st.st_mode)) add_entry(t->l, path, 0)->size = (uint64_t)st.st_size;
    else if (S_ISDIR(st.st_mode)) code = list_directory(t, path);
    else add_other(t->l, path);
    free(full);
    return code;
}

/* Whether a link leads to a directory that the link is in. */
static int is_above(const struct lister *t, const struct stat *st)
{
    for (size_t i = 0; i < t->n_above; i++)
        if (t->above[i].st_dev == st->st_dev && t->above[i].st_ino == st->st_ino) return 1;
    return 0;
}

static int list_names_of(struct lister *t, const char *path, const char *full)
{
    struct listing names;
    const int error = list_names(&names, full);
    int code = CODE_OK;
    if (error && t->l->n_unreadable++ >= MOST_NAMED) code = CODE_ERROR;
    else if (error) code = fail_errno(full, error, "cannot read the directory");
    if (!error || names.n) add_entry(t->l, path, 1);
    for (size_t i = 0; i < names.n && !is_full(t); i++) {
        char *inner = join_path(path, names.entries[i].path);
        code = worse(code, list_entry(t, inner));
        free(inner);
    }
    free_listing(&names);
    return code;
}

/* Reads all names of a directory before it enters directories below: so only one directory is open
 * at a time, however deep the tree is. */
static int list_directory(struct lister *t, const char *path)
{
    char *full = join_path(t->root, path);
    struct stat *above = NULL, st;
    struct lister inner = *t;
    int code;
    if (t->mode == LINKS_FOLLOW && stat(full, &st) == 0) {
        if (is_above(t, &st)) {
            code = fail(CODE_ERROR, full, "is a link to a directory that it is in");
            free(full);
            return code;
        }
        above = (struct stat *)resize(NULL, t->n_above + 1, sizeof *above);
        if (t->n_above) memcpy(above, t->above, t->n_above * sizeof *above);
        above[t->n_above] = st;
        inner.above = above;
        inner.n_above = t->n_above + 1;
    }
    code = list_names_of(&inner, path, full);
    t->real_root = inner.real_root;
    free(above);
    free(full);
    return code;
}

int list_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most)
{
    struct lister t = {0};
    memset(l, 0, sizeof *l);
    t.l = l;
    t.root = root;
    t.mode = mode;
    t.most = most;
    int code = list_directory(&t, "");
    if (l->n_unreadable > MOST_NAMED)
        say(root, "cannot read %llu more directories of it",
            (unsigned long long)(l->n_unreadable - MOST_NAMED));
    free(t.real_root);
    if (code == CODE_OK && is_full(&t))
        code = fail(CODE_ERROR, root,
                    "holds more than %llu files and directories%s; if all of them are to be taken, "
                    "allow more with --max-files",
                    (unsigned long long)most,
                    mode == LINKS_FOLLOW ? ", with those that its links lead to" : "");
    if (l->n) qsort(l->entries, l->n, sizeof *l->entries, compare_texts);
    return code;
}

int open_up_listed(const struct listing *l, const char *root)
{
    for (size_t i = 0; i < l->n; i++) { /* from the top */
        char *path = l->entries[i].is_directory ? try_join_path(root, l->entries[i].path) : NULL;
        struct stat st;
        if (l->entries[i].is_directory && !path) return ENOMEM;
        /* if this fails, later steps fail, and report it */
        if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700)
            (void)!chmod(path, 0700);
        free(path);
    }
    return 0;
}

int remove_listed(const struct listing *l, const char *root, const struct entry **stopped_at)
{
    int error = 0;
    for (size_t i = l->n; i-- > 0 && !error;) {
        const struct entry *e = *stopped_at = &l->entries[i];
        char *path = try_join_path(root, e->path);
        if (!path) return ENOMEM;
        error = (e->is_directory ? rmdir(path) : unlink(path)) == 0 ? 0 : errno;
        free(path);
    }
    return error;
}
