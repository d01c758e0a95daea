/* SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/common.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/made.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/replace.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

void init_tree(struct restored_tree *t, const char *target, const struct common *o)
{
    memset(t, 0, sizeof *t);
    t->o = o;
    t->target = target;
    t->outlet.fd = t->made.fd = -1;
}

/* "." and "..", also behind others: who works in a directory does not see it replaced. */
static int is_within(const char *path)
{
    const char *last = base_name(path);
    return is_dot(last) || *last == 0;
}

static int check_target(const struct restored_tree *t, const char *input, int force)
{
    struct stat st;
    if (lstat(t->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(t->target, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, t->target,
                    "exists already and is no directory; name another one with -o");
    if (is_within(t->target))
        return fail(CODE_ERROR, t->target,
                    "exists already, and cannot be replaced by this name; name another directory "
                    "with -o, or restore into it: lmc -d -o %.300s %.300s '*'",
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

int begin_tree(struct restored_tree *t, const char *input, int force)
{
    int code, error;
    if (!t->target)
        return fail(
            CODE_ERROR, input,
            "holds a directory, which cannot go to standard output; name a directory with -o");
    code = check_target(t, input, force);
    if (code == CODE_OK && t->o->verbosity > 0) say_left_behind(t->target);
    if (code == CODE_OK) code = create_temporary(t->target, NULL, &t->root);
    if (code != CODE_OK) return code;
    error = open_made(&t->made, t->root, most_files(t->o), (size_t)most_levels(t->o));
    if (!error) return CODE_OK;
    remove_temporary();
    return fail_errno(t->target, error, "cannot create a directory beside it");
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

/* What the system could make step by step, but nobody could open by its path. */
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
    int error;
    t->path = join_path(t->root, file->path);
    error = check_path_size(t, file->path);
    if (!error && file->kind == LMC_FILE_DIRECTORY) {
        error = make_directory(&t->made, file->path, &t->number);
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
        t->outlet.sparse = 1;
    }
    return error ? fail_made(&t->made, t->target, file->path, error) : CODE_OK;
}

static void keep_attributes(struct restored_tree *t, const lmc_file *file)
{
    struct made_directory *d = &t->made.list[t->number];
    d->attributes = attributes_of_directory(file);
    d->has_attributes = 1;
}

/* 0 or errno. */
static int sync_file(struct restored_tree *t)
{
    if (is_synced_at_end(&t->made, t->outlet.size)) return 0;
    return fsync(t->outlet.fd) == 0 || errno == EINVAL ? 0 : errno;
}

int end_tree_file(struct restored_tree *t, const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    int error = 0;
    if (t->outlet.fd < 0) {
        keep_attributes(t, file);
    } else {
        error = outlet_finish(&t->outlet);
        if (!error) error = set_attributes(t->outlet.fd, &a);
        if (!error) error = sync_file(t);
        if (close(t->outlet.fd) != 0 && !error) error = errno;
    }
    t->outlet.fd = -1;
    free(t->path);
    t->path = NULL;
    return error ? fail_errno(file->path, error, "cannot write it") : CODE_OK;
}

/* Modes and times of directories, and all that was made to the disk. 0 or errno. */
static int finish_directories(struct restored_tree *t)
{
    const int is_single = !is_synced_as_whole(&t->made);
    int error = finish_made(&t->made, is_single);
    if (!error && !is_single) error = sync_all(t->made.fd);
    return error;
}

/* mkdtemp made the root private, and setgid where that it is in is so. An empty root has got a mode
 * of its own; for another one the snapshot's file stands in, which had it from the root. 0 or
 * errno. */
static int set_root_mode(const struct restored_tree *t, const struct stat *input)
{
    mode_t mode = input ? input->st_mode & 0666 : 0666;
    struct stat st;
    mode |= (mode & 0444) >> 2;
    if (t->is_empty) return 0;
    if (lstat(t->root, &st) != 0) return errno;
    return chmod(t->root, mask_mode(mode) | (st.st_mode & S_ISGID)) == 0 ? 0 : errno;
}

/* With -f only a directory is replaced of which everything comes back: the rest would be lost.
 * Fills t->replaced. */
static int check_replaced(struct restored_tree *t, int force)
{
    struct stat st, top;
    int code;
    if (!force || lstat(t->target, &top) != 0) return CODE_OK;
    code = list_tree(&t->replaced, t->target, LINKS_KEEP, 0);
    if (code == CODE_OK && t->replaced.n_others)
        code = fail(CODE_ERROR, t->target,
                    "is not replaced: it holds '%.300s', which no snapshot can; move that away, or "
                    "name another directory with -o",
                    t->replaced.others[0]);
    for (size_t i = 0; i < t->replaced.n && code == CODE_OK; i++) {
        const struct entry *e = &t->replaced.entries[i];
        char *old = join_path(t->target, e->path), *restored = join_path(t->root, e->path);
        if (lstat(old, &st) != 0) code = fail_errno(old, errno, "cannot access it");
        else if (st.st_dev != top.st_dev)
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

/* 0 or errno. What was replaced is the temporary name then. */
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

/* error: of the step before; then what was replaced stays, too. */
static int remove_replaced(const struct restored_tree *t, int error)
{
    const struct entry *stopped_at;
    int code =
        error ? fail_errno(t->target, error, "cannot bring the directory to the disk") : CODE_OK;
    lock_temporary();
    if (registered_temporary()) {
        if (!error) error = open_up_listed(&t->replaced, registered_temporary());
        if (!error) error = remove_listed(&t->replaced, registered_temporary(), &stopped_at);
        if (error)
            code = fail(CODE_ERROR, t->target,
                        "is restored, but what was there before could not be removed (%s); what is "
                        "left of it is %.400s",
                        strerror(error), registered_temporary());
    }
    register_temporary(NULL);
    unlock_temporary();
    return code;
}

int commit_tree(struct restored_tree *t, int force, const struct stat *input)
{
    int code = check_replaced(t, force), error = 0;
    if (code == CODE_OK) error = finish_directories(t);
    if (code == CODE_OK && !error) error = set_root_mode(t, input);
    if (code == CODE_OK && !error) error = publish_tree(t);
    if (!error && code == CODE_OK) return remove_replaced(t, sync_directory_of(t->target));
    if (error == EEXIST) code = fail(CODE_ERROR, t->target, "exists already; use -f to replace it");
    else if (error) code = fail_errno(t->target, error, "cannot put the restored directory there");
    remove_temporary();
    return code;
}

int exchange_tree(struct restored_tree *t, const struct stat *old)
{
    struct attributes attributes = attributes_of_stat(old);
    int error = finish_directories(t), code;
    if (!error && !t->is_empty) { /* the root is the user's */
        int fd = open(t->root, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &attributes);
        if (fd >= 0) close(fd);
    }
    if (!error) error = publish_tree(t);
    if (!error) return remove_replaced(t, sync_directory_of(t->target));
    code = fail_errno(t->target, error, "cannot put what was restored there");
    remove_temporary();
    return code;
}

void free_tree(struct restored_tree *t)
{
    if (t->outlet.fd >= 0) close(t->outlet.fd); /* stopped within a file */
    free(t->path);
    close_made(&t->made);
    free_listing(&t->replaced);
    init_tree(t, NULL, t->o);
}
