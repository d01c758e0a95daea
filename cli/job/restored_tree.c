/* SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/replace.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

void init_tree(struct restored_tree *t, const char *target)
{
    memset(t, 0, sizeof *t);
    t->target = target;
    t->outlet.fd = -1;
}

static int check_target(const struct restored_tree *t, const char *input, int force)
{
    struct stat st;
    if (lstat(t->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(t->target, errno, "cannot access it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, t->target,
                    "exists already and is no directory; name another one with -o");
    if (!force)
        return fail(CODE_ERROR, t->target,
                    "exists already; use -f to replace it, or name another directory with -o");
    if (!is_dash(input) && lies_within(input, t->target))
        return fail(
            CODE_ERROR, t->target,
            "holds the snapshot itself and cannot be replaced; name another directory with -o");
    return CODE_OK;
}

int begin_tree(struct restored_tree *t, const char *input, int force)
{
    int code;
    if (!t->target)
        return fail(
            CODE_ERROR, input,
            "holds a directory, which cannot go to standard output; name a directory with -o");
    code = check_target(t, input, force);
    if (code != CODE_OK) return code;
    return create_temporary(t->target, NULL, &t->root);
}

int begin_tree_file(struct restored_tree *t, const lmc_file *file)
{
    int error;
    t->path = join_path(t->root, file->path);
    lock_temporary();
    error = *file->path ? make_parents(t->path, strlen(t->root)) : 0;
    if (!error && file->kind == LMC_FILE_DIRECTORY) {
        if (mkdir(t->path, 0777) != 0 &&
            errno != EEXIST) /* what is in it may have come before it */
            error = errno;
    } else if (!error) {
        t->outlet.fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        error = t->outlet.fd < 0 ? errno : 0;
        t->outlet.size = 0;
        t->outlet.sparse = 1;
    }
    unlock_temporary();
    return error ? fail_errno(file->path, error, "cannot create it") : CODE_OK;
}

static void add_directory_record(struct restored_tree *t, const lmc_file *file)
{
    struct directory *d;
    if (t->n_directories == t->room) {
        t->room = t->room * 2 + 16;
        t->directories = (struct directory *)resize(t->directories, t->room, sizeof *d);
    }
    d = &t->directories[t->n_directories++];
    d->path = copy_string(file->path, strlen(file->path));
    d->attributes = attributes_of_file(file);
    if (!d->attributes.has_mode) d->attributes.mode = mask_mode(0777);
    d->attributes.has_mode = 1;
}

int end_tree_file(struct restored_tree *t, const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    int error = 0;
    if (t->outlet.fd < 0) {
        add_directory_record(t, file);
    } else {
        error = outlet_finish(&t->outlet);
        if (!error) error = set_attributes(t->outlet.fd, &a);
        if (!error && fsync(t->outlet.fd) != 0 && errno != EINVAL) error = errno;
        if (close(t->outlet.fd) != 0 && !error) error = errno;
    }
    t->outlet.fd = -1;
    free(t->path);
    t->path = NULL;
    return error ? fail_errno(file->path, error, "cannot write it") : CODE_OK;
}

static int compare_directories(const void *a, const void *b)
{
    return strcmp(((const struct directory *)a)->path, ((const struct directory *)b)->path);
}

/* From the leaves to the root: a mode may lock everything below. 0 or errno. */
static int finish_directories(struct restored_tree *t)
{
    int error = sync_directories(t->root);
    if (t->n_directories)
        qsort(t->directories, t->n_directories, sizeof *t->directories, compare_directories);
    for (size_t i = t->n_directories; i-- > 0 && !error;) {
        char *path = join_path(t->root, t->directories[i].path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &t->directories[i].attributes);
        if (!error && fsync(fd) != 0 && errno != EINVAL) error = errno;
        if (fd >= 0) close(fd);
        free(path);
    }
    return error;
}

/* mkdtemp made the root private. An empty root has got a mode of its own; for another one the
 * snapshot's file stands in, which had it from the root. 0 or errno. */
static int set_root_mode(const struct restored_tree *t, const struct stat *input)
{
    mode_t mode = input ? input->st_mode & 0666 : 0666;
    mode |= (mode & 0444) >> 2;
    return t->is_empty || chmod(t->root, mask_mode(mode)) == 0 ? 0 : errno;
}

/* With -f only a directory is replaced of which everything comes back: the rest would be lost.
 * Fills t->replaced. */
static int check_replaced(struct restored_tree *t, int force)
{
    struct stat st, top;
    int code;
    if (!force || lstat(t->target, &top) != 0) return CODE_OK;
    code = list_tree(&t->replaced, t->target, LINKS_KEEP);
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
                          : move_tree(t->root, t->target);
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
    for (size_t i = 0; i < t->n_directories; i++) free(t->directories[i].path);
    free(t->directories);
    free_listing(&t->replaced);
    init_tree(t, NULL);
}
