/* SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include <limits.h>

#include "../input/base.h"
#include "../input/options.h"
#include "restorer.h"
#include "../sys/removal.h"
#include "../sys/tree.h"

#define NO_DIRECTORY                                                                               \
    "is not a directory, so nothing is restored below it; move it away, or name another "          \
    "directory with -o"

void init_tree(struct restored_tree *t, const char *target, const struct options *o)
{
    memset(t, 0, sizeof *t);
    t->o = o;
    t->target = target;
    t->outlet.fd = t->made.fd = t->root_fd = t->into = t->at.dir = -1;
}

static int check_target(const struct restored_tree *t, const char *input, int force)
{
    struct stat st;
    if (lstat(t->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(t->target, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, t->target,
                    "exists already and is not a directory; name another one with -o");
    /* refuses "." and ".." at the end of a path: a process whose working directory is replaced
     * stays in the old one */
    if (is_dot(base_name(t->target)) || *base_name(t->target) == 0)
        return fail(
            CODE_ERROR, t->target,
            "exists already; a path that ends with '/', or whose last part is '.' or '..', is "
            "not replaced; name another one with -o, or restore into it: lmc -d -o %.300s "
            "%.300s '*'",
            t->target, is_dash(input) ? "FILE" : input);
    if (!force)
        return fail(CODE_ERROR, t->target,
                    "exists already; use -f to replace it, or name another directory with -o; "
                    "-o %.300s/ restores into it",
                    t->target);
    if (!is_dash(input) && lies_within(input, t->target))
        return fail(
            CODE_ERROR, t->target,
            "holds the snapshot itself and cannot be replaced; name another directory with -o");
    return CODE_OK;
}

/* Makes the temporary directory in the directory of a spot, whose path is `path`. */
static int make_root(struct restored_tree *t, const struct spot *beside, const char *path)
{
    if (t->o->verbosity > 0) say_left_behind(path);
    int code = create_temporary(beside, path, TEMPORARY_DIRECTORY, &t->root_fd, &t->root);
    if (code != CODE_OK) return code;
    int error = open_made(&t->made, t->root_fd, most_files(t->o), (size_t)most_levels(t->o));
    if (!error) return CODE_OK;
    remove_temporary();
    return fail_errno(t->target, error, "cannot create a directory beside it");
}

static int make_root_beside(struct restored_tree *t)
{
    const int error = open_spot(&t->at, t->target);
    return error ? fail_beside(t->target, error, TEMPORARY_DIRECTORY)
                 : make_root(t, &t->at, t->target);
}

int begin_tree(struct restored_tree *t, const char *input, int force)
{
    if (!t->target)
        return fail(
            CODE_ERROR, input,
            "holds a directory, which cannot go to standard output; name a directory with -o");
    int code = check_target(t, input, force);
    return code == CODE_OK ? make_root_beside(t) : code;
}

int begin_parts(struct restored_tree *t, const struct stat *input, const char *first)
{
    t->input = input;
    t->into = open(t->target, PARENT_FLAGS);
    t->is_merged = t->into >= 0;
    if (!t->is_merged)
        return errno == ENOENT    ? make_root_beside(t)
               : errno == ENOTDIR ? fail(CODE_ERROR, t->target, NO_DIRECTORY)
                                  : fail_errno(t->target, errno, "cannot access it");
    struct stat st;
    struct spot inside = {openat(t->into, ".", PARENT_FLAGS), "."};
    char *way = copy_text(t->target);
    for (const char *p = first; *p && inside.dir >= 0;) { /* `first` is "" for an empty directory */
        const size_t size = strcspn(p, "/");
        char *part = copy_string(p, size), *next = join_path(way, part);
        const int fd = openat(inside.dir, part, PARENT_FLAGS | O_NOFOLLOW);
        free(part);
        free(fd < 0 ? next : way);
        if (fd < 0) break;
        way = next;
        close(inside.dir);
        inside.dir = fd;
        p += size + (p[size] == '/');
    }
    char *path = join_path(way, inside.name);
    const int error = inside.dir < 0 || fstat(inside.dir, &st) != 0 ? errno : 0;
    t->device = st.st_dev;
    const int code =
        error ? fail_errno(t->target, error, "cannot access it") : make_root(t, &inside, path);
    close_spot(&inside);
    free(path);
    free(way);
    return code;
}

int fail_made(const struct made *m, const char *target, const char *path, int error)
{
    if (error == MADE_TOO_MANY)
        return fail(CODE_ERROR, target,
                    "would hold more than %llu files and directories, which a small hostile "
                    "snapshot can ask for; if you trust it, allow more with --max-files",
                    (unsigned long long)m->max_entries);
    if (error == MADE_TOO_DEEP)
        return fail(CODE_ERROR, target,
                    "would hold directories more than %llu levels deep, which a small hostile "
                    "snapshot can ask for; if you trust it, allow more with --max-depth",
                    (unsigned long long)m->max_depth);
    if (error == MADE_MOVED)
        return fail(CODE_ERROR, target,
                    "is not restored: somebody has moved a directory of it meanwhile; do it "
                    "again");
    return fail_errno(path, error, "cannot create it");
}

/* Refuses paths of PATH_MAX bytes or more: lmc could make them, but no program could open them. */
static int check_path_size(const struct restored_tree *t, const char *path)
{
#ifdef PATH_MAX
    if (strlen(t->target) + strlen(path) + 2 > PATH_MAX || strlen(t->path) + 1 > PATH_MAX)
        return ENAMETOOLONG;
#endif
    (void)t;
    (void)path;
    return 0;
}

int begin_tree_file(struct restored_tree *t, const lmc_file *file)
{
    t->path = join_path(t->root, file->path);
    int error = check_path_size(t, file->path);
    if (!error && file->kind == LMC_FILE_DIRECTORY) {
        error = find_made(&t->made, file->path, strlen(file->path), &t->number);
        if (!error) error = go_to_made(&t->made, t->number);
    } else if (!error) {
        error = enter_made(&t->made, file->path);
        if (!error) error = count_made_file(&t->made);
        lock_temporary();
        if (!error) {
            t->outlet.fd = openat(t->made.fd, base_name(file->path),
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
            error = t->outlet.fd < 0 ? errno : 0;
        }
        unlock_temporary();
        t->outlet.size = t->outlet.end = 0;
        t->outlet.is_file = t->outlet.is_kept = 1;
    }
    return error ? fail_made(&t->made, t->target, file->path, error) : CODE_OK;
}

int end_tree_file(struct restored_tree *t, const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    int error = 0;
    if (t->outlet.fd < 0) {
        struct made_directory *d = &t->made.list[t->number];
        d->attributes = attributes_of_directory(file);
        d->has_attributes = 1;
    } else {
        if (t->input) complete_attributes(&a, t->input);
        error = outlet_finish(&t->outlet);
        if (!error) error = set_attributes(t->outlet.fd, &a);
        if (!error && !is_synced_at_end(&t->made, t->outlet.size)) error = sync_file(t->outlet.fd);
        if (close(t->outlet.fd) != 0 && !error) error = errno;
    }
    t->outlet.fd = -1;
    free(t->path);
    t->path = NULL;
    return error ? fail_errno(file->path, error, "cannot write it") : CODE_OK;
}

/* Sets modes and times of directories, and syncs all that was made. Returns 0 or errno. */
static int finish_directories(struct restored_tree *t)
{
    const int is_single = !is_synced_as_whole(&t->made);
    int error = finish_made(&t->made, is_single);
    if (!error && !is_single) error = sync_all(t->made.fd);
    return error;
}

/* mkdirat has made the root private, and setgid if its parent is. An empty root has its mode from
 * the snapshot. Any other root gets the attributes of the directory that it replaces (old), or the
 * mode of the .lmc file, which got it from the compressed directory. Returns 0 or errno. */
static int set_root_mode(const struct restored_tree *t, const struct stat *input,
                         const struct stat *old)
{
    mode_t mode = input ? input->st_mode & 0666 : 0666;
    struct attributes attributes;
    struct stat st;
    if (t->is_empty) return 0;
    int error = fstat(t->root_fd, &st) == 0 ? 0 : errno;
    mode |= (mode & 0444) >> 2;
    if (old) attributes = attributes_of_stat(old);
    if (!error && old) error = set_attributes(t->root_fd, &attributes);
    else if (!error) error = set_mode(t->root_fd, mask_mode(mode) | (st.st_mode & S_ISGID));
    return error;
}

/* -f replaces a directory only if the new one has everything that is in the old one: the rest would
 * be lost. Fills t->replaced. */
static int check_replaced(struct restored_tree *t, int force)
{
    struct stat st;
    if (!force || look_at_spot(&t->at, &t->old) != 0) return CODE_OK;
    int code = list_tree(&t->replaced, t->target, LINKS_KEEP, 0);
    if (code == CODE_OK && t->replaced.n_others)
        code = fail(CODE_ERROR, t->target,
                    "is not replaced: it holds '%.300s', which no snapshot can; move that away, or "
                    "name another directory with -o",
                    t->replaced.others[0]);
    for (size_t i = 0; i < t->replaced.n && code == CODE_OK; i++) {
        const struct entry *e = &t->replaced.entries[i];
        char *old = join_path(t->target, e->path);
        if (lstat(old, &st) != 0) code = fail_errno(old, errno, "cannot access it");
        else if (*e->path && is_mounted(old, &st, &t->old))
            code = fail(CODE_ERROR, t->target,
                        "is not replaced: another file system is mounted at '%.300s'; name another "
                        "directory with -o",
                        e->path);
        else if (*e->path && (look_below(t->root_fd, e->path, &st) != 0 ||
                              S_ISDIR(st.st_mode) != e->is_directory))
            code = fail(CODE_ERROR, t->target,
                        "is not replaced: it holds '%.300s', which the snapshot does not; move "
                        "that away, or name another directory with -o",
                        e->path);
        free(old);
    }
    return code;
}

/* Gives the tree its name. Afterwards the registered temporary is the replaced tree. 0 or errno. */
static int publish_tree(struct restored_tree *t)
{
    const char *const root = base_name(t->root);
    char aside[12];
    struct stat made, st;
    int error;
    lock_temporary();
    if (fstat(t->root_fd, &made) != 0 || fstatat(t->at.dir, root, &st, AT_SYMLINK_NOFOLLOW) != 0)
        error = errno;
    else if (!same_file(&made, &st)) error = ENOENT; /* somebody has moved it away */
    else if (t->replaced.n) {
        error = exchange_names(t->at.dir, root, t->at.name, aside);
        if (!error) change_temporary(aside, &t->old);
    } else {
        error = move_below(t->at.dir, root, t->at.name, 1);
        if (!error) forget_temporary();
    }
    unlock_temporary();
    return error;
}

/* Removes the tree that was replaced, if it is the one that was listed. 0, errno, or
 * REMOVAL_CHANGED. */
static int remove_old(const struct restored_tree *t, const char *name)
{
    const int dir = t->at.dir;
    const struct entry *stopped_at;
    struct stat st;
    open_up(dir, name, &t->old);
    const int root = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = root < 0 || fstat(root, &st) != 0 ? errno : 0;
    if (!error && !same_file(&st, &t->old)) error = REMOVAL_CHANGED;
    if (!error) error = remove_listed(&t->replaced, root, NULL, &stopped_at);
    if (root >= 0) close(root);
    return error || unlinkat(dir, name, AT_REMOVEDIR) == 0 ? error : errno;
}

/* error: of the step before, or 0. After an error, the replaced tree is kept, too. */
static int remove_replaced(const struct restored_tree *t, int error)
{
    int code = error ? fail_errno(t->target, error, "cannot sync the directory") : CODE_OK;
    lock_temporary();
    if (registered_temporary()) {
        if (!error) error = remove_old(t, base_name(registered_temporary()));
        if (error)
            code = fail(CODE_ERROR, t->target,
                        "is restored, but what was there before could not be removed (%s); what is "
                        "left of it is %.400s",
                        error == REMOVAL_CHANGED ? "it was changed meanwhile" : strerror(error),
                        registered_temporary());
    }
    forget_temporary();
    unlock_temporary();
    return code;
}

int put_tree(struct restored_tree *t, const struct stat *input, const struct stat *old)
{
    int error = finish_directories(t), code;
    if (old) t->old = *old;
    if (!error) error = set_root_mode(t, input, old);
    if (!error) error = publish_tree(t);
    if (!error) return remove_replaced(t, sync_spot(&t->at));
    code = error == EEXIST ? fail(CODE_ERROR, t->target, "exists already%s",
                                  t->o->force ? "" : "; use -f to replace it")
           : error == EXDEV
               ? fail(CODE_ERROR, t->target,
                      "is not replaced: it is of a lower layer of an overlay, as in a container, "
                      "whose directories cannot be renamed; remove it first, or name another one")
               : fail_errno(t->target, error, "cannot put the restored directory there");
    remove_temporary();
    return code;
}

int commit_tree(struct restored_tree *t, int force, const struct stat *input)
{
    const int code = check_replaced(t, force);
    if (code == CODE_OK) return put_tree(t, input, NULL);
    remove_temporary();
    return code;
}

/* -- parts, into a directory that exists -- */

/* Parts cannot be moved to another file system. directory: in `dir`, where a part is restored to;
 * full: its path, for the message */
static int check_device(const struct restored_tree *t, int dir, const char *directory,
                        const char *full)
{
    struct stat st;
    if (fstatat(dir, directory, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_dev == t->device)
        return CODE_OK;
    return fail(CODE_ERROR, full,
                "is on another file system than other parts of this command; restore it by a "
                "command of its own");
}

/* Checks what is at the place of a directory, file or link, in a directory that is open. A link to
 * a directory does not count as a directory: so all that is restored stays below the target. */
static int check_place(const struct restored_tree *t, int dir, const char *path, int is_directory,
                       int *is_there)
{
    char *full = join_path(t->target, path);
    struct stat st;
    int code = CODE_OK;
    *is_there = fstatat(dir, base_name(path), &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*is_there && errno != ENOENT) code = fail_errno(full, errno, "cannot access it");
    else if (!*is_there) code = check_device(t, dir, ".", full);
    else if (is_directory)
        code = S_ISDIR(st.st_mode) ? check_device(t, dir, base_name(path), full)
                                   : fail(CODE_ERROR, full, NO_DIRECTORY);
    else if (S_ISDIR(st.st_mode)) code = fail(CODE_ERROR, full, "exists already, as a directory");
    else if (same_file(&st, t->input))
        code = fail(CODE_ERROR, full,
                    "output and input are the same file; name another output with -o");
    else if (!t->o->force) code = fail(CODE_ERROR, full, "exists already; use -f to overwrite it");
    else code = protect_bases(NULL, full, 0, t->o);
    free(full);
    return code;
}

int check_part(const struct restored_tree *t, const char *path, int is_directory)
{
    char *part = copy_text(path);
    int code = CODE_OK, is_there = t->is_merged && *path, dir = is_there ? dup(t->into) : -1;
    for (char *end = part; is_there && code == CODE_OK;) {
        end += strcspn(end, "/");
        const char slash = *end;
        *end = 0;
        code = check_place(t, dir, part, slash || is_directory, &is_there);
        if (!slash || !is_there || code != CODE_OK) break;
        const int inner = openat(dir, base_name(part), PARENT_FLAGS | O_NOFOLLOW);
        if (inner < 0) code = fail_errno(part, errno, "cannot access it");
        close(dir);
        dir = inner;
        *end++ = slash;
    }
    if (dir >= 0) close(dir);
    free(part);
    return code;
}

/* Whether both are in one directory. */
static int is_beside(const char *a, const char *b)
{
    const size_t size = (size_t)(base_name(a) - a);
    return size == (size_t)(base_name(b) - b) && memcmp(a, b, size) == 0;
}

/* The directories that a part is in, below the temporary root and below the target. Parts of one
 * directory follow each other, mostly, so these stay open. */
struct parents {
    const char *path; /* of a part in them; NULL: none is open */
    int from, to;
};

static void close_parents(struct parents *p)
{
    if (p->from >= 0) close(p->from);
    if (p->to >= 0) close(p->to);
    p->from = p->to = -1;
    p->path = NULL;
}

/* 0 or errno. */
static int open_parents(struct parents *p, const struct restored_tree *t, const char *path)
{
    if (p->path && is_beside(p->path, path)) return 0;
    close_parents(p);
    p->from = open_parent(t->root_fd, path, 0);
    if (p->from < 0) return errno;
    p->to = open_parent(t->into, path, 0);
    if (p->to < 0) return errno;
    p->path = path;
    return 0;
}

/* Moves a part. A directory is made writable meanwhile: else it could not be moved. 0 or errno. */
static int move_part(int from, int to, const char *name, int is_there)
{
    struct stat st;
    int error = fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
    const int is_directory = !error && S_ISDIR(st.st_mode);
    lock_temporary();
    if (!error && is_directory) error = set_mode_of_seen(from, name, &st, 0700);
    if (!error && !is_there) error = move_name(from, name, to, name, 1);
    else if (!error) error = renameat(from, name, to, name) == 0 ? 0 : errno;
    if (!error && is_directory) error = set_mode_of_seen(to, name, &st, st.st_mode & 07777);
    unlock_temporary();
    return error;
}

struct part {
    const char *path;
    int is_fresh; /* nothing was there before */
};

/* Syncs the parts in their places; or, after an error, moves new ones back, so that the same
 * command can be run again. */
static int finish_parts(const struct restored_tree *t, const struct part *moved, size_t n, int code)
{
    struct parents p = {NULL, -1, -1};
    for (int goes_back = 0; goes_back <= 1; goes_back++)
        for (size_t i = n; i && i--;) {
            const char *const path = moved[i].path;
            const int is_back = goes_back && code != CODE_OK && moved[i].is_fresh;
            const int is_synced = !goes_back && code == CODE_OK &&
                                  (i + 1 == n || !is_beside(path, moved[i + 1].path));
            int error = is_back || is_synced ? open_parents(&p, t, path) : 0;
            if (is_back && !error) error = move_part(p.to, p.from, base_name(path), 1);
            if (is_synced && !error) error = sync_directory_at(p.to);
            if (!error) continue;
            char *full = join_path(t->target, path);
            code = worse(code, fail_errno(full, error, "cannot sync it"));
            free(full);
        }
    close_parents(&p);
    return code;
}

/* Moves a part to its place, unless it is a directory that is there: then its content is moved
 * instead. *part: what was moved; its path is NULL if nothing was. */
static int put_part(const struct restored_tree *t, struct parents *p, const struct entry *e,
                    struct part *part)
{
    const char *const name = base_name(e->path);
    int is_there = 0, code = CODE_OK, error = open_parents(p, t, e->path);
    struct stat st;
    part->path = NULL;
    if (!error && fstatat(p->from, name, &st, AT_SYMLINK_NOFOLLOW) != 0) error = errno;
    if (!error) code = check_place(t, p->to, e->path, e->is_directory, &is_there);
    if (error || code != CODE_OK) {
    } else if (is_there && e->is_directory) {
        error = set_mode_of_seen(p->from, name, &st, 0700);
    } else {
        error = move_part(p->from, p->to, name, is_there);
        part->path = error ? NULL : e->path;
        part->is_fresh = !is_there;
    }
    if (!error) return code;
    char *full = join_path(t->target, e->path);
    code = fail_errno(full, error, "cannot put what was restored there");
    free(full);
    return code;
}

/* The entry of the directory that an entry is in; e->path is not "". */
static size_t find_parent(const struct listing *l, const struct entry *e)
{
    const size_t size = (size_t)(base_name(e->path) - e->path);
    struct entry wanted = {copy_string(e->path, size ? size - 1 : 0), 1, NULL, 0, 0, 0};
    const struct entry *found =
        (const struct entry *)bsearch(&wanted, l->entries, l->n, sizeof wanted, compare_texts);
    free(wanted.path);
    return found ? (size_t)(found - l->entries) : 0;
}

int commit_parts(struct restored_tree *t)
{
    struct listing l;
    struct parents p = {NULL, -1, -1};
    size_t n = 0;
    if (!t->is_merged) return commit_tree(t, 0, t->input);
    char *root = path_of_open(t->root_fd, t->root);
    int code = list_tree(&l, root, LINKS_KEEP, 0); /* before modes forbid listing */
    int error = code == CODE_OK ? finish_directories(t) : 0;
    if (error) code = fail_errno(t->target, error, "cannot sync what was restored");
    struct part *moved = (struct part *)resize(NULL, l.n + 1, sizeof *moved);
    unsigned char *is_moved = (unsigned char *)zeroed(l.n + 1, 1); /* maybe with its directory */
    for (size_t i = 0; i < l.n && code == CODE_OK; i++) {
        if (*l.entries[i].path == 0) continue;
        is_moved[i] = is_moved[find_parent(&l, &l.entries[i])];
        if (is_moved[i]) continue;
        code = put_part(t, &p, &l.entries[i], &moved[n]);
        is_moved[i] = moved[n].path != NULL;
        n += is_moved[i];
    }
    close_parents(&p);
    code = finish_parts(t, moved, n, code);
    free(root);
    free(moved);
    free(is_moved);
    free_listing(&l);
    remove_temporary();
    return code;
}

void free_tree(struct restored_tree *t)
{
    if (t->outlet.fd >= 0) close(t->outlet.fd); /* stopped within a file */
    outlet_drop(&t->outlet);
    free(t->path);
    close_made(&t->made);
    if (t->root_fd >= 0) close(t->root_fd);
    if (t->into >= 0) close(t->into);
    close_spot(&t->at);
    free_listing(&t->replaced);
    init_tree(t, NULL, t->o);
}
