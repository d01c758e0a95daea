/* SPDX-License-Identifier: MIT */
#include "restored_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/options.h"
#include "restorer.h"
#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/replace.h"
#include "../sys/report.h"
#include "../sys/temporary.h"
#include "../sys/tree.h"

static int check_target(const struct restore *r)
{
    struct stat st;
    if (lstat(r->target, &st) != 0)
        return errno == ENOENT ? CODE_OK : fail_errno(r->target, errno, "cannot look at it");
    if (!S_ISDIR(st.st_mode))
        return fail(CODE_ERROR, r->target,
                    "exists already and is no directory; name another one with -o");
    if (!r->o->force)
        return fail(CODE_ERROR, r->target,
                    "exists already; use -f to replace it, or name another directory with -o");
    if (!is_dash(r->input) && lies_within(r->input, r->target))
        return fail(
            CODE_ERROR, r->target,
            "holds the snapshot itself and cannot be replaced; name another directory with -o");
    return CODE_OK;
}

int begin_tree(struct restore *r)
{
    int code;
    if (!r->target)
        return fail(
            CODE_ERROR, r->input,
            "holds a directory, which cannot go to standard output; name a directory with -o");
    code = check_target(r);
    if (code != CODE_OK) return code;
    return create_temporary(r->target, NULL, &r->root);
}

int begin_tree_file(struct restore *r, const lmc_file *file)
{
    int error;
    r->path = join_path(r->root, file->path);
    lock_temporary();
    error = *file->path ? make_parents(r->path, strlen(r->root)) : 0;
    if (!error && file->kind == LMC_FILE_DIRECTORY) {
        if (mkdir(r->path, 0777) != 0 &&
            errno != EEXIST) /* what is in it may have come before it */
            error = errno;
    } else if (!error) {
        r->outlet.fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        error = r->outlet.fd < 0 ? errno : 0;
        r->outlet.size = 0;
        r->outlet.sparse = 1;
    }
    unlock_temporary();
    return error ? fail_errno(file->path, error, "cannot create it") : CODE_OK;
}

static void add_directory_record(struct restore *r, const lmc_file *file)
{
    struct directory *d;
    if (r->n_directories == r->room_for_directories) {
        r->room_for_directories = r->room_for_directories * 2 + 16;
        r->directories =
            (struct directory *)resize(r->directories, r->room_for_directories, sizeof *d);
    }
    d = &r->directories[r->n_directories++];
    d->path = copy_string(file->path, strlen(file->path));
    d->attributes = attributes_of_file(file);
    if (!d->attributes.has_mode) d->attributes.mode = mask_mode(0777);
    d->attributes.has_mode = 1;
}

int end_tree_file(struct restore *r, const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    int error = 0;
    if (r->outlet.fd < 0) {
        add_directory_record(r, file);
    } else {
        error = outlet_finish(&r->outlet);
        if (!error) error = set_attributes(r->outlet.fd, &a);
        if (!error && fsync(r->outlet.fd) != 0 && errno != EINVAL) error = errno;
        if (close(r->outlet.fd) != 0 && !error) error = errno;
    }
    r->outlet.fd = -1;
    free(r->path);
    r->path = NULL;
    return error ? fail_errno(file->path, error, "cannot write it") : CODE_OK;
}

static int compare_directories(const void *a, const void *b)
{
    return strcmp(((const struct directory *)a)->path, ((const struct directory *)b)->path);
}

int finish_directories(struct restore *r)
{
    int error = sync_directories(r->root);
    if (r->n_directories)
        qsort(r->directories, r->n_directories, sizeof *r->directories, compare_directories);
    for (size_t i = r->n_directories; i-- > 0 && !error;) {
        char *path = join_path(r->root, r->directories[i].path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        error = fd < 0 ? errno : set_attributes(fd, &r->directories[i].attributes);
        if (!error && fsync(fd) != 0 && errno != EINVAL) error = errno;
        if (fd >= 0) close(fd);
        free(path);
    }
    return error;
}

/* mkdtemp made the root private. An empty root has got a mode of its own; for another one the
 * snapshot's file stands in, which had it from the root. 0 or errno. */
static int set_root_mode(const struct restore *r)
{
    mode_t mode = r->input_stat ? r->input_stat->st_mode & 0666 : 0666;
    mode |= (mode & 0444) >> 2;
    return r->is_empty || chmod(r->root, mask_mode(mode)) == 0 ? 0 : errno;
}

/* With -f only a directory is replaced of which everything comes back: the rest would be lost.
 * Fills r->replaced. */
static int check_replaced(struct restore *r)
{
    struct stat st, top;
    int code;
    if (!r->o->force || lstat(r->target, &top) != 0) return CODE_OK;
    code = list_tree(&r->replaced, r->target);
    for (size_t i = 0; i < r->replaced.n && code == CODE_OK; i++) {
        const struct entry *e = &r->replaced.entries[i];
        char *old = join_path(r->target, e->path), *restored = join_path(r->root, e->path);
        if (lstat(old, &st) != 0) code = fail_errno(old, errno, "cannot look at it");
        else if (st.st_dev != top.st_dev)
            code = fail(CODE_ERROR, r->target,
                        "is not replaced: another file system is mounted at '%.300s'; name another "
                        "directory "
                        "with -o",
                        e->path);
        else if (lstat(restored, &st) != 0 || S_ISDIR(st.st_mode) != e->is_directory)
            code = fail(CODE_ERROR, r->target,
                        "is not replaced: it holds '%.300s', which the snapshot does not; move "
                        "that away, or "
                        "name another directory with -o",
                        e->path);
        free(old);
        free(restored);
    }
    return code;
}

/* 0 or errno. What was replaced is the temporary name then. */
static int publish_tree(struct restore *r)
{
    char *aside = temporary_name_beside(r->target);
    int error, is_aside = 0;
    lock_temporary();
    error = r->replaced.n ? exchange_names(r->root, r->target, aside, &is_aside)
                          : move_tree(r->root, r->target);
    if (!error && (is_aside || !r->replaced.n)) register_temporary(is_aside ? aside : NULL);
    unlock_temporary();
    if (error || !is_aside) free(aside);
    return error;
}

int remove_replaced(const struct restore *r, int error)
{
    int code =
        error ? fail_errno(r->target, error, "cannot bring the directory to the disk") : CODE_OK;
    lock_temporary();
    if (registered_temporary()) {
        if (!error) error = remove_listed(&r->replaced, registered_temporary());
        if (error)
            code = fail(CODE_ERROR, r->target,
                        "is restored, but what was there before could not be removed (%s); what is "
                        "left of it "
                        "is %.400s",
                        strerror(error), registered_temporary());
    }
    register_temporary(NULL);
    unlock_temporary();
    return code;
}

int commit_tree(struct restore *r)
{
    int code = check_replaced(r), error = 0;
    if (code == CODE_OK) error = finish_directories(r);
    if (code == CODE_OK && !error) error = set_root_mode(r);
    if (code == CODE_OK && !error) error = publish_tree(r);
    if (!error && code == CODE_OK) return remove_replaced(r, sync_directory_of(r->target));
    if (error == EEXIST) code = fail(CODE_ERROR, r->target, "exists already; use -f to replace it");
    else if (error) code = fail_errno(r->target, error, "cannot put the restored directory there");
    remove_temporary();
    return code;
}
