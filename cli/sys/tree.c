/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <dirent.h>

#include "attributes.h"

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
    struct entry *e = (struct entry *)append(&l->entries, &l->n, &l->cap, sizeof *l->entries);
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

/* A tree that is being listed. Each entry has a path in the tree, and a place, where it is opened:
 * the real path, if its path leads through links. For a path of 30 links, the system would walk
 * through all of them at each call. */
struct lister {
    struct listing *l;
    const char *root;
    char *real_root; /* links resolved; NULL: not needed yet */
    enum link_mode mode;
    uint64_t most;            /* entries */
    const struct filter *but; /* NULL: all is listed */
    const struct stat *above; /* directories above a followed link, to detect loops */
    size_t n_above;
    struct followed **followed;
};

/* A directory that a followed link leads to. It was listed whole and without a fault, so no link
 * below it leads to a directory above it. A second link to it gets the same entries: a few links
 * can lead to a million entries, and each directory is read once.
 *
 * Nor can a directory X that is above such a second link be below the directory D: X leads to D, so
 * the list of D would lead from X to D again, which is a fault. */
struct followed {
    uint64_t hash;   /* of device and inode: so the order of the search tree is random */
    char *real;      /* its path, links resolved */
    size_t first, n; /* its entries: itself, and all below */
    struct followed *less, *more;
};

static int list_directory(struct lister *t, const char *path, const char *place);

/* Whether there are more entries than allowed; the root does not count. */
static int is_full(const struct lister *t) { return t->most && t->l->n > t->most + 1; }

static int leads_outside(struct lister *t, const char *place)
{
    char *target = realpath(place, NULL);
    if (!t->real_root) t->real_root = realpath(t->root, NULL);
    int result = target && t->real_root && !is_at_or_below(target, t->real_root);
    free(target);
    return result;
}

/* error 0: `what` says all. */
static int fail_listing(const struct lister *t, const char *path, int error, const char *what)
{
    char *full = join_path(t->root, path);
    const int code = error ? fail_errno(full, error, what) : fail(CODE_ERROR, full, "%s", what);
    free(full);
    return code;
}

static void list_again(struct lister *t, const char *path, const struct followed *d)
{
    struct listing *l = t->l;
    const size_t size = strlen(l->entries[d->first].path);
    for (size_t i = d->first; i < d->first + d->n && !is_full(t); i++) {
        char *inner = format_text("%s%s", path, l->entries[i].path + size);
        struct entry *e = add_entry(l, inner, l->entries[i].is_directory);
        e->size = l->entries[i].size;
        free(inner);
    }
}

/* Where in the search tree the directory is, or would be. */
static struct followed **find_followed(const struct lister *t, uint64_t hash, const char *real)
{
    struct followed **at = t->followed;
    while (*at) {
        const int order =
            hash != (*at)->hash ? (hash < (*at)->hash ? -1 : 1) : strcmp(real, (*at)->real);
        if (order == 0) break;
        at = order < 0 ? &(*at)->less : &(*at)->more;
    }
    return at;
}

static void free_followed(struct followed *d)
{
    if (!d) return;
    free_followed(d->less);
    free_followed(d->more);
    free(d->real);
    free(d);
}

/* st: of the directory that the link leads to. */
static int list_linked_directory(struct lister *t, const char *path, const char *place,
                                 const struct stat *st)
{
    const size_t first = t->l->n, n_others = t->l->n_others + t->l->n_special;
    const uint64_t device = hash_bytes(FNV_START, &st->st_dev, sizeof st->st_dev),
                   hash = hash_bytes(device, &st->st_ino, sizeof st->st_ino);
    char *real = realpath(place, NULL);
    struct followed *d = real ? *find_followed(t, hash, real) : NULL;
    int code = CODE_OK;
    if (d) list_again(t, path, d);
    else code = list_directory(t, path, real ? real : place);
    if (real && !d && !t->but && code == CODE_OK && n_others == t->l->n_others + t->l->n_special) {
        d = (struct followed *)resize(NULL, 1, sizeof *d);
        *d = (struct followed){hash, real, first, t->l->n - first, NULL, NULL};
        *find_followed(t, hash, real) = d;
    } else free(real);
    return code;
}

/* Adds a link. st: of what it leads to, if is_there. */
static int list_link(struct lister *t, const char *path, const char *place, const struct stat *st,
                     int is_there)
{
    char target[65536];
    ssize_t size;
    struct entry *e;
    const int is_file = is_there && S_ISREG(st->st_mode);
    const int is_outside = t->mode == LINKS_AUTO && is_there && leads_outside(t, place);
    if (t->mode == LINKS_FOLLOW && !is_there)
        return fail_listing(t, path, errno, "is a link that leads nowhere");
    if (is_file && (t->mode == LINKS_FOLLOW || is_outside)) {
        t->l->n_followed += (size_t)is_outside;
        e = add_entry(t->l, path, 0);
        e->size = (uint64_t)st->st_size;
        e->is_followed = is_outside;
        return CODE_OK;
    }
    if (t->mode == LINKS_FOLLOW && S_ISDIR(st->st_mode))
        return list_linked_directory(t, path, place, st);
    size = readlink(place, target, sizeof target - 1);
    if (size <= 0) return fail_listing(t, path, size ? errno : ENOENT, "cannot read the link");
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

static int list_entry(struct lister *t, const char *path, const char *place)
{
    struct stat st;
    if (t->but && t->but->leaves(t->but->user, path)) return CODE_OK;
    if (lstat(place, &st) != 0) return fail_listing(t, path, errno, "cannot access it");
    if (S_ISLNK(st.st_mode)) {
        const int is_there = stat(place, &st) == 0;
        return list_link(t, path, place, &st, is_there);
    }
    if (S_ISDIR(st.st_mode)) return list_directory(t, path, place);
    if (S_ISREG(st.st_mode)) add_entry(t->l, path, 0)->size = (uint64_t)st.st_size;
    else add_other(t->l, path);
    return CODE_OK;
}

/* Whether a link leads to a directory that the link is in. */
static int is_above(const struct lister *t, const struct stat *st)
{
    for (size_t i = 0; i < t->n_above; i++)
        if (t->above[i].st_dev == st->st_dev && t->above[i].st_ino == st->st_ino) return 1;
    return 0;
}

static int list_names_of(struct lister *t, const char *path, const char *place)
{
    struct listing names;
    const int error = list_names(&names, place);
    int code = CODE_OK;
    if (error && t->l->n_unreadable++ >= MOST_NAMED) code = CODE_ERROR;
    else if (error) code = fail_listing(t, path, error, "cannot read the directory");
    if (!error || names.n) add_entry(t->l, path, 1);
    for (size_t i = 0; i < names.n && !is_full(t); i++) {
        char *inner = join_path(path, names.entries[i].path);
        char *inner_place = join_path(place, names.entries[i].path);
        code = worse(code, list_entry(t, inner, inner_place));
        free(inner_place);
        free(inner);
    }
    free_listing(&names);
    return code;
}

/* Reads all names of a directory before it enters directories below: so only one directory is open
 * at a time, however deep the tree is. */
static int list_directory(struct lister *t, const char *path, const char *place)
{
    struct stat *above = NULL, st;
    struct lister inner = *t;
    int code;
    if (t->mode == LINKS_FOLLOW && stat(place, &st) == 0) {
        if (is_above(t, &st))
            return fail_listing(t, path, 0, "is a link to a directory that it is in");
        above = (struct stat *)resize(NULL, t->n_above + 1, sizeof *above);
        if (t->n_above) memcpy(above, t->above, t->n_above * sizeof *above);
        above[t->n_above] = st;
        inner.above = above;
        inner.n_above = t->n_above + 1;
    }
    code = list_names_of(&inner, path, place);
    t->real_root = inner.real_root;
    free(above);
    return code;
}

int list_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most)
{
    return list_filtered_tree(l, root, mode, most, NULL);
}

int list_filtered_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most,
                       const struct filter *but)
{
    struct lister t = {0};
    struct followed *followed = NULL;
    memset(l, 0, sizeof *l);
    t.followed = &followed;
    t.l = l;
    t.root = root;
    t.mode = mode;
    t.most = most;
    t.but = but;
    int code = list_directory(&t, "", root);
    if (l->n_unreadable > MOST_NAMED)
        say(root, "cannot read %llu more directories of it",
            (unsigned long long)(l->n_unreadable - MOST_NAMED));
    free_followed(followed);
    free(t.real_root);
    l->is_cut = is_full(&t);
    if (code == CODE_OK && l->is_cut)
        code = fail(CODE_ERROR, root,
                    "holds more than %llu files and directories%s; if all of them are to be taken, "
                    "allow more with --max-files",
                    (unsigned long long)most,
                    mode == LINKS_FOLLOW ? ", with those that its links lead to" : "");
    if (l->n) qsort(l->entries, l->n, sizeof *l->entries, compare_texts);
    return code;
}

void open_up(int at, const char *name, const struct stat *seen)
{
    if ((seen->st_mode & 0700) != 0700) (void)set_mode_of_seen(at, name, seen, 0700);
}
