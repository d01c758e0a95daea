/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <dirent.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_renameat2 */
#endif

/* rename() with a flag. ENOSYS: not supported here. */
enum rename_flag { MOVE_ONLY = 1, EXCHANGE = 2 }; /* Linux's RENAME_NOREPLACE, RENAME_EXCHANGE */

static int rename_by(const char *from, const char *to, enum rename_flag flag)
{
#if defined(__linux__) && defined(SYS_renameat2)
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, (unsigned)flag) == 0) return 0;
    return errno == EINVAL ? ENOSYS : errno; /* EINVAL: not supported by the file system */
#else
    (void)from;
    (void)to;
    (void)flag;
    return ENOSYS;
#endif
}

int move_without_overwriting(const char *from, const char *to)
{
    struct stat st;
    const int is_tree = lstat(from, &st) == 0 && S_ISDIR(st.st_mode);
    int fd, error = rename_by(from, to, MOVE_ONLY);
    if (error != ENOSYS) return error;
    if (!is_tree && link(from, to) == 0) {
        error = unlink(from) == 0 ? 0 : errno;
        if (error) unlink(to);
        return error;
    }
    if (!is_tree && errno == EEXIST) return EEXIST;
    if (is_tree && mkdir(to, 0700) != 0) return errno;
    if (!is_tree) {
        fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        close(fd);
    }
    if (rename(from, to) == 0) return 0;
    error = errno;
    if (is_tree) rmdir(to);
    else unlink(to);
    return error;
}

/* If the system cannot exchange them by one call, moves `to` to `aside` first, and back after an
 * error. Called with the lock of the temporary name. */
int exchange_names(const char *from, const char *to, char *aside, int *is_aside)
{
    int error = rename_by(from, to, EXCHANGE);
    *is_aside = error == ENOSYS;
    if (!*is_aside) return error;
    error = 0;
    if (!mkdtemp(aside)) {
        error = errno;
    } else if (rename(to, aside) != 0) {
        error = errno;
        rmdir(aside);
    } else if (rename(from, to) != 0) {
        error = errno;
        if (rename(aside, to) != 0) say(to, "could not be put back; it is kept as %s", aside);
    }
    return error;
}

/* -- removing a tree -- */

/* A tree may be very deep. So there is no recursion, no list of parents and no long path: before a
 * directory in the root is removed, all that is in it is moved up into the root. So only names in
 * the root and in its directories are ever used.
 *
 *     root/a/b/c  ->  root/0/c  ->  root/1
 */
struct removal {
    int root;
    dev_t dev;       /* other file systems are not entered */
    uint64_t number; /* next name for what is moved up */
    size_t n_gone;   /* names that were removed or moved */
    int error;       /* the first one */
};

static void keep_error(struct removal *r, int failed)
{
    if (failed && !r->error) r->error = errno;
}

/* Removes `name` unless it is a directory: then gives its owner all rights, and returns 1. */
static int open_up_or_unlink(struct removal *r, int fd, const char *name)
{
    struct stat st;
    int failed = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
    if (!failed && st.st_dev != r->dev) {
        errno = EBUSY;
        failed = 1;
    } else if (!failed && S_ISDIR(st.st_mode)) {
        /* if this fails, later steps fail, and report it */
        if ((st.st_mode & 0700) != 0700) (void)!fchmodat(fd, name, 0700, AT_SYMLINK_NOFOLLOW);
        return 1;
    } else if (!failed) failed = unlinkat(fd, name, 0) != 0;
    keep_error(r, failed);
    r->n_gone += !failed;
    return 0;
}

static int move_up(struct removal *r, int fd, const char *name)
{
    char to[24];
    int failed;
    do {
        snprintf(to, sizeof to, "%llu", (unsigned long long)r->number++);
        failed = renameat(fd, name, r->root, to) != 0;
    } while (failed && (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR));
    return failed;
}

/* Opens a directory in another one (or that one itself, if name is ".") to list it. NULL: error. */
static DIR *open_listing(struct removal *r, int fd, const char *name)
{
    const int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = inner < 0 ? NULL : fdopendir(inner);
    keep_error(r, !d);
    if (!d && inner >= 0) close(inner);
    return d;
}

static void remove_directory(struct removal *r, const char *name)
{
    DIR *d = open_listing(r, r->root, name);
    struct dirent *entry;
    int failed;
    while (d && (entry = next_entry(d, &r->error)) != NULL)
        if (open_up_or_unlink(r, dirfd(d), entry->d_name)) {
            failed = move_up(r, dirfd(d), entry->d_name);
            keep_error(r, failed);
            r->n_gone += !failed;
        }
    if (d) closedir(d);
    failed = unlinkat(r->root, name, AT_REMOVEDIR) != 0;
    keep_error(r, failed);
    r->n_gone += !failed;
}

/* Repeats until nothing is removed any more: a listing may lack what was moved up meanwhile. */
static void remove_below(struct removal *r)
{
    do {
        DIR *d = open_listing(r, r->root, ".");
        struct dirent *entry;
        r->n_gone = 0;
        while (d && (entry = next_entry(d, &r->error)) != NULL)
            if (open_up_or_unlink(r, r->root, entry->d_name)) remove_directory(r, entry->d_name);
        if (d) closedir(d);
    } while (r->n_gone);
}

int remove_tree(const char *path)
{
    struct removal r = {0};
    struct stat st;
    if (lstat(path, &st) != 0) return errno;
    if (!S_ISDIR(st.st_mode)) return unlink(path) == 0 ? 0 : errno;
    r.dev = st.st_dev;
    if ((st.st_mode & 0700) != 0700) (void)!chmod(path, 0700);
    r.root = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    keep_error(&r, r.root < 0);
    if (r.root >= 0) {
        remove_below(&r);
        close(r.root);
    }
    keep_error(&r, rmdir(path) != 0);
    return r.error;
}
