/* replace.c - moving, exchanging and removing files and trees (tree.h)
 * SPDX-License-Identifier: MIT */
#include "tree.h"

#include <dirent.h>
#include <time.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_renameat2 */
#endif

#include "../../formats/refused.h"
#include "attributes.h"
#include "temporary.h"

/* rename() with a flag. ENOSYS: not supported here. */
enum rename_flag { MOVE_ONLY = 1, EXCHANGE = 2 }; /* Linux's RENAME_NOREPLACE, RENAME_EXCHANGE */

static int rename_by(int from_dir, const char *from, int to_dir, const char *to,
                     enum rename_flag flag)
{
#if defined(__linux__) && defined(SYS_renameat2)
    if (syscall(SYS_renameat2, from_dir, from, to_dir, to, (unsigned)flag) == 0) return 0;
    return is_refused(CALL_RENAME, errno) ? ENOSYS : errno;
#else
    (void)from_dir;
    (void)from;
    (void)to_dir;
    (void)to;
    (void)flag;
    return ENOSYS;
#endif
}

int move_name(int from_dir, const char *from, int to_dir, const char *to, int may_link)
{
    struct stat st;
    const int is_tree =
        fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    int fd, error = rename_by(from_dir, from, to_dir, to, MOVE_ONLY);
    if (error != ENOSYS) return error;
    if (is_tree) { /* rename() gives it a name that is free, or that of an empty directory */
        if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
        error = renameat(from_dir, from, to_dir, to) == 0 ? 0 : errno;
        return error == ENOTEMPTY ? EEXIST : error;
    }
    if (may_link) {
        if (linkat(from_dir, from, to_dir, to, 0) == 0) {
            error = unlinkat(from_dir, from, 0) == 0 ? 0 : errno;
            if (error) unlinkat(to_dir, to, 0);
            return error;
        }
        if (errno == EEXIST) return EEXIST;
    }
    fd = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    close(fd);
    if (renameat(from_dir, from, to_dir, to) == 0) return 0;
    error = errno;
    unlinkat(to_dir, to, 0);
    return error;
}

int move_below(int dir, const char *from, const char *to, int may_link)
{
    return move_name(dir, from, dir, to, may_link);
}

/* Called with the lock of the temporary name. */
int exchange_names(int dir, const char *from, const char *to, char aside[12])
{
    int error = rename_by(dir, from, dir, to, EXCHANGE);
    *aside = 0;
    if (error != ENOSYS) return error;
    do {
        draw_temporary_name(aside);
        error = move_below(dir, to, aside, 0);
    } while (error == EEXIST);
    if (!error && renameat(dir, from, dir, to) != 0) {
        error = errno;
        if (renameat(dir, aside, dir, to) != 0)
            say(to, "could not be put back; it is kept as %s", aside);
    }
    return error;
}

/* -- removing a tree -- */

/* A tree may be very deep. So there is no recursion, no list of parents and no long path: before a
 * directory in the root is removed, all that is in it is moved up into the root. So only names in
 * the root and in its directories are ever used.
 *
 *     root/a/b/c  ->  root/0/c  ->  root/1
 *
 * Removing a file that is open only gives it another name on some file systems (FUSE's
 * .fuse_hidden..., NFS's .nfs...), so a name that is gone is not progress. What is: a directory
 * that moved up, which happens once to each; or fewer names in the root than before.
 */
struct tree_removal {
    int root;
    dev_t dev;       /* other file systems are not entered */
    uint64_t number; /* next name for what is moved up */
    uint64_t n_moved;
    int is_open;  /* a file may have kept a name because it is open */
    int releases; /* release() is called */
    int error;    /* the first one */
};

static void keep_error(struct tree_removal *r, int failed)
{
    if (failed && !r->error) r->error = errno;
}

/* Closes a file that this process has open: its descriptors, which others will use or close, become
 * those of /dev/null. */
static void release(const struct stat *file)
{
    enum { FIRST = 3, LAST = 1023 }; /* the system takes the lowest numbers */
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct stat st;
    for (int fd = FIRST; null >= 0 && fd <= LAST; fd++)
        if (fstat(fd, &st) == 0 && same_file(&st, file) && dup2(null, fd) >= 0)
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (null >= 0) close(null);
}

/* Removes `name` unless it is a directory: then gives its owner all rights, and returns 1. */
static int open_up_or_unlink(struct tree_removal *r, int fd, const char *name)
{
    struct stat st;
    int failed = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
    if (!failed && S_ISDIR(st.st_mode)) {
        if (st.st_dev == r->dev) {
            open_up(fd, name, &st);
            return 1;
        }
        errno = EBUSY;
        failed = 1;
    } else if (!failed) { /* of an overlay, a file may have another device */
        if (r->releases) release(&st);
        failed = unlinkat(fd, name, 0) != 0;
        r->is_open |= !failed || errno == EBUSY;
    }
    keep_error(r, failed);
    return 0;
}

/* n: names that the root may have. */
static int move_up(struct tree_removal *r, int fd, const char *name, uint64_t n)
{
    char to[24];
    int failed;
    do {
        snprintf(to, sizeof to, "%llu", (unsigned long long)r->number++);
        failed = renameat(fd, name, r->root, to) != 0;
    } while (failed && (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) && n--);
    return failed;
}

/* Opens a directory in another one (or that one itself, if name is ".") to list it. NULL: error. */
static DIR *open_listing(struct tree_removal *r, int fd, const char *name)
{
    const int inner = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = inner < 0 ? NULL : fdopendir(inner);
    keep_error(r, !d);
    if (!d && inner >= 0) close(inner);
    return d;
}

/* A listing to the end, and back: so that names which appear meanwhile do not make it endless. */
static uint64_t count_names(struct tree_removal *r, DIR *d)
{
    uint64_t n = 0;
    while (next_entry(d, &r->error)) n++;
    rewinddir(d);
    return n;
}

static void remove_subdirectory(struct tree_removal *r, const char *name, uint64_t n_root)
{
    DIR *d = open_listing(r, r->root, name);
    struct dirent *entry;
    for (uint64_t n = d ? count_names(r, d) : 0; n && (entry = next_entry(d, &r->error)); n--)
        if (open_up_or_unlink(r, dirfd(d), entry->d_name)) {
            const int failed = move_up(r, dirfd(d), entry->d_name, n_root + r->n_moved);
            keep_error(r, failed);
            r->n_moved += !failed;
        }
    if (d) closedir(d);
    keep_error(r, unlinkat(r->root, name, AT_REMOVEDIR) != 0);
}

/* Removes what can be removed at once. Returns how many names the root had before. */
static uint64_t remove_entries(struct tree_removal *r)
{
    DIR *d = open_listing(r, r->root, ".");
    struct dirent *entry;
    const uint64_t n_root = d ? count_names(r, d) : 0;
    r->is_open = 0;
    for (uint64_t n = n_root; n && (entry = next_entry(d, &r->error)); n--)
        if (open_up_or_unlink(r, r->root, entry->d_name))
            remove_subdirectory(r, entry->d_name, n_root);
    if (d) closedir(d);
    return n_root;
}

/* Repeats while there is progress: a listing may lack what was moved up meanwhile. */
static void remove_below(struct tree_removal *r)
{
    uint64_t n = UINT64_MAX, before, n_moved;
    do {
        before = n;
        n_moved = r->n_moved;
        n = remove_entries(r);
    } while (n && (n < before || r->n_moved > n_moved));
}

/* A file system that keeps open files by other names removes them soon after they are closed. */
#define ROUNDS_OF_OPEN_FILES 40
#define PAUSE_NS 25000000

int remove_tree(int dir, const char *name, const struct stat *seen)
{
    struct tree_removal r = {0};
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno;
    if (!same_file(&st, seen)) return ENOENT;
    if (!S_ISDIR(st.st_mode)) return unlinkat(dir, name, 0) == 0 ? 0 : errno;
    r.dev = st.st_dev;
    open_up(dir, name, &st);
    r.root = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    keep_error(&r, r.root < 0);
    if (r.root >= 0 && (fstat(r.root, &st) != 0 || !same_file(&st, seen))) {
        close(r.root);
        return ENOENT;
    }
    for (int round = 0; round < ROUNDS_OF_OPEN_FILES; round++) {
        const struct timespec pause = {0, PAUSE_NS};
        if (r.root >= 0) remove_below(&r);
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
            r.error = 0; /* nothing is left */
            break;
        }
        keep_error(&r, 1);
        if (!r.is_open) break;
        r.releases = 1;
        if (round) nanosleep(&pause, NULL);
    }
    if (r.root >= 0) close(r.root);
    return r.error;
}
