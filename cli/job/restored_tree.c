/* SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include <limits.h>

#include "../input/base.h"
#include "../input/options.h"
#include "restorer.h"
#include "../sys/removal.h"
#include "../sys/tree.h"

#define NO_DIRECTORY                                                                               \
    "is no directory, so nothing is restored below it; move it away, or name another directory "   \
    "with -o"

void init_tree(struct restored_tree *t, const char *target, const struct options *o)
{
    memset(t, 0, sizeof *t);
    t->o = o;
    t->target = target;
    t->outlet.fd = t->made.fd = -1;
}

static int check_target(const struct restored_tree *t, const char *input, int force)
{
    struct stat st;
    if (lstat(t->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(t->target, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, t->target,
                    "exists already and is no directory; name another one with -o");
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

/* Makes the temporary directory in the directory of `beside`. */
static int make_root(struct restored_tree *t, const char *beside)
{
    if (t->o->verbosity > 0) say_left_behind(beside);
    int code = create_temporary(beside, NULL, &t->root);
    if (code != CODE_OK) return code;
    int error = open_made(&t->made, t->root, most_files(t->o), (size_t)most_levels(t->o));
    if (!error) return CODE_OK;
    remove_temporary();
    return fail_errno(t->target, error, "cannot create a directory beside it");
}

int begin_tree(struct restored_tree *t, const char *input, int force)
{
    if (!t->target)
        return fail(
            CODE_ERROR, input,
            "holds a directory, which cannot go to standard output; name a directory with -o");
    int code = check_target(t, input, force);
    return code == CODE_OK ? make_root(t, t->target) : code;
}

int begin_parts(struct restored_tree *t, const struct stat *input, const char *first)
{
    struct stat st;
    char *way = join_path(t->target, first), *end = way + strlen(t->target), *inside;
    int code = CODE_OK;
    t->input = input;
    t->is_merged = stat(t->target, &st) == 0;
    if (!t->is_merged && errno != ENOENT) code = fail_errno(t->target, errno, "cannot access it");
    else if (t->is_merged && !S_ISDIR(st.st_mode)) code = fail(CODE_ERROR, t->target, NO_DIRECTORY);
    t->device = st.st_dev;
    while (t->is_merged && *end) { /* `first` is "" for an empty directory */
        char *const next = end + 1 + strcspn(end + 1, "/"), behind = *next;
        *next = 0;
        if (lstat(way, &st) != 0 || !S_ISDIR(st.st_mode)) break;
        *(end = next) = behind;
        t->device = st.st_dev;
    }
    *end = 0;
    inside = join_path(way, ".");
    if (code == CODE_OK) code = make_root(t, t->is_merged ? inside : t->target);
    free(inside);
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
        t->outlet.size = 0;
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
    int fd = open(t->root, O_RDONLY | O_CLOEXEC);
    int error = fd >= 0 && fstat(fd, &st) == 0 ? 0 : errno;
    mode |= (mode & 0444) >> 2;
    if (old) attributes = attributes_of_stat(old);
    if (!error && old) error = set_attributes(fd, &attributes);
    else if (!error) error = set_mode(fd, mask_mode(mode) | (st.st_mode & S_ISGID));
    if (fd >= 0) close(fd);
    return error;
}

/* -f replaces a directory only if the new one has everything that is in the old one: the rest would
 * be lost. Fills t->replaced. */
static int check_replaced(struct restored_tree *t, int force)
{
    struct stat st, top;
    if (!force || lstat(t->target, &top) != 0) return CODE_OK;
    int code = list_tree(&t->replaced, t->target, LINKS_KEEP, 0);
    if (code == CODE_OK && t->replaced.n_others)
        code = fail(CODE_ERROR, t->target,
                    "is not replaced: it holds '%.300s', which no snapshot can; move that away, or "
                    "name another directory with -o",
                    t->replaced.others[0]);
    for (size_t i = 0; i < t->replaced.n && code == CODE_OK; i++) {
        const struct entry *e = &t->replaced.entries[i];
        char *old = join_path(t->target, e->path), *restored = join_path(t->root, e->path);
        if (lstat(old, &st) != 0) code = fail_errno(old, errno, "cannot access it");
        else if (*e->path && is_mounted(old, &st, &top))
            code = fail(CODE_ERROR, t->target,
                        "is not replaced: another file system is mounted at '%.300s'; name another "
                        "directory with -o",
                        e->path);
        else if (lstat(restored, &st) != 0 || S_ISDIR(st.st_mode) != e->is_directory)
            code = fail(CODE_ERROR, t->target,
                        "is not replaced: it holds '%.300s', which the snapshot does not; move "
                        "that away, or name another directory with -o",
                        e->path);
        free(old);
        free(restored);
    }
    return code;
}

/* Gives the tree its name. Afterwards the registered temporary is the replaced tree. 0 or errno. */
static int publish_tree(struct restored_tree *t)
{
    char *aside = temporary_name_beside(t->target);
    int error, is_aside = 0;
    lock_temporary();
    error = t->replaced.n ? exchange_names(t->root, t->target, aside, &is_aside)
                          : move_without_overwriting(t->root, t->target);
    if (!error && (is_aside || !t->replaced.n)) register_temporary(is_aside ? aside : NULL);
    unlock_temporary();
    if (error || !is_aside) free(aside);
    return error;
}

/* Removes the tree that was replaced, at `path`. 0 or errno. */
static int remove_old(const struct listing *l, const char *path)
{
    const struct entry *stopped_at;
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) open_up(AT_FDCWD, path, &st);
    const int root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = root < 0 ? errno : remove_listed(l, root, NULL, &stopped_at);
    if (root >= 0) close(root);
    return error || rmdir(path) == 0 ? error : errno;
}

/* error: of the step before, or 0. After an error, the replaced tree is kept, too. */
static int remove_replaced(const struct restored_tree *t, int error)
{
    int code = error ? fail_errno(t->target, error, "cannot sync the directory") : CODE_OK;
    lock_temporary();
    if (registered_temporary()) {
        if (!error) error = remove_old(&t->replaced, registered_temporary());
        if (error)
            code = fail(CODE_ERROR, t->target,
                        "is restored, but what was there before could not be removed (%s); what is "
                        "left of it is %.400s",
                        error == REMOVAL_CHANGED ? "it was changed meanwhile" : strerror(error),
                        registered_temporary());
    }
    register_temporary(NULL);
    unlock_temporary();
    return code;
}

int put_tree(struct restored_tree *t, const struct stat *input, const struct stat *old)
{
    int error = finish_directories(t), code;
    if (!error) error = set_root_mode(t, input, old);
    if (!error) error = publish_tree(t);
    if (!error) return remove_replaced(t, sync_directory_of(t->target));
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

/* Parts cannot be moved to another file system. directory: where a part is restored to; full: its
 * path, for the message */
static int check_device(const struct restored_tree *t, const char *directory, const char *full)
{
    struct stat st;
    if (lstat(directory, &st) != 0 || st.st_dev == t->device) return CODE_OK;
    return fail(CODE_ERROR, full,
                "is on another file system than other parts of this command; restore it by a "
                "command of its own");
}

/* Checks what is at the place of a directory, file or link, whose parent exists. A link to a
 * directory does not count as a directory: so all that is restored stays below the target. */
static int check_place(const struct restored_tree *t, const char *path, int is_directory,
                       int *is_there)
{
    char *full = join_path(t->target, path), *parent = directory_of(full);
    struct stat st;
    int code = CODE_OK;
    *is_there = lstat(full, &st) == 0;
    if (!*is_there && errno != ENOENT) code = fail_errno(full, errno, "cannot access it");
    else if (!*is_there) code = check_device(t, parent, full);
    else if (is_directory)
        code = S_ISDIR(st.st_mode) ? check_device(t, full, full)
                                   : fail(CODE_ERROR, full, NO_DIRECTORY);
    else if (S_ISDIR(st.st_mode)) code = fail(CODE_ERROR, full, "exists already, as a directory");
    else if (same_file(&st, t->input))
        code = fail(CODE_ERROR, full,
                    "output and input are the same file; name another output with -o");
    else if (!t->o->force) code = fail(CODE_ERROR, full, "exists already; use -f to overwrite it");
    else code = protect_bases(NULL, full, 0, t->o);
    free(parent);
    free(full);
    return code;
}

int check_part(const struct restored_tree *t, const char *path, int is_directory)
{
    char *part = copy_text(path);
    int code = CODE_OK, is_there = t->is_merged && *path;
    for (char *end = part; is_there && code == CODE_OK;) {
        end += strcspn(end, "/");
        const char slash = *end;
        *end = 0;
        code = check_place(t, part, slash || is_directory, &is_there);
        if (!slash) break;
        *end++ = slash;
    }
    free(part);
    return code;
}

struct part {
    const char *path;
    int is_fresh; /* nothing was there before */
};

/* Moves a part. A directory is made writable meanwhile: else it could not be moved. 0 or errno. */
static int move_part(const char *from, const char *to, int is_there)
{
    struct stat st;
    int error = lstat(from, &st) == 0 ? 0 : errno, is_directory = !error && S_ISDIR(st.st_mode);
    lock_temporary();
    if (!error && is_directory) error = set_mode_of_seen(AT_FDCWD, from, &st, 0700);
    if (!error)
        error = !is_there ? move_without_overwriting(from, to) : rename(from, to) == 0 ? 0 : errno;
    if (!error && is_directory) error = set_mode_of_seen(AT_FDCWD, to, &st, st.st_mode & 07777);
    unlock_temporary();
    return error;
}

/* Whether both are in one directory. */
static int is_beside(const char *a, const char *b)
{
    const size_t size = (size_t)(base_name(a) - a);
    return size == (size_t)(base_name(b) - b) && memcmp(a, b, size) == 0;
}

/* Syncs the parts in their places; or, after an error, moves new ones back, so that the same
 * command can be run again. */
static int finish_parts(const struct restored_tree *t, const struct part *moved, size_t n, int code)
{
    for (int goes_back = 0; goes_back <= 1; goes_back++)
        for (size_t i = n; i && i--;) {
            char *from = join_path(t->target, moved[i].path),
                 *to = join_path(t->root, moved[i].path);
            int error = 0;
            if (goes_back && code != CODE_OK && moved[i].is_fresh) error = move_part(from, to, 1);
            if (!goes_back && code == CODE_OK &&
                (i + 1 == n || !is_beside(moved[i].path, moved[i + 1].path)))
                error = sync_directory_of(from);
            if (error) code = worse(code, fail_errno(from, error, "cannot sync it"));
            free(from);
            free(to);
        }
    return code;
}

int commit_parts(struct restored_tree *t)
{
    struct listing l;
    struct part *moved;
    size_t n = 0;
    if (!t->is_merged) return commit_tree(t, 0, t->input);
    int code = list_tree(&l, t->root, LINKS_KEEP, 0); /* before modes forbid listing */
    int error = code == CODE_OK ? finish_directories(t) : 0;
    if (error) code = fail_errno(t->target, error, "cannot sync what was restored");
    moved = (struct part *)resize(NULL, l.n + 1, sizeof *moved);
    for (size_t i = 0; i < l.n && code == CODE_OK; i++) {
        const struct entry *e = &l.entries[i];
        char *from = join_path(t->root, e->path), *to = join_path(t->target, e->path);
        int is_there = *e->path == 0;
        struct stat st;
        const int is_moved = lstat(from, &st) != 0; /* together with its directory */
        if (is_moved && errno != ENOENT) error = errno;
        if (!is_moved) {
            if (!is_there) code = check_place(t, e->path, e->is_directory, &is_there);
            if (code == CODE_OK && is_there && e->is_directory) {
                error =
                    set_mode_of_seen(AT_FDCWD, from, &st, 0700); /* its content is moved instead */
            } else if (code == CODE_OK) {
                error = move_part(from, to, is_there);
                moved[n].path = e->path;
                moved[n].is_fresh = !is_there;
                n += !error;
            }
        }
        if (error) code = fail_errno(to, error, "cannot put what was restored there");
        free(from);
        free(to);
    }
    code = finish_parts(t, moved, n, code);
    free(moved);
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
    free_listing(&t->replaced);
    init_tree(t, NULL, t->o);
}
