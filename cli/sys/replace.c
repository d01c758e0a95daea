/* SPDX-License-Identifier: MIT */
#include "tree.h"

#include <ftw.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_renameat2 */
#endif

/* rename() with a flag. ENOSYS: there is no such thing here. */
enum rename_flag { MOVE_ONLY = 1, EXCHANGE = 2 }; /* Linux's RENAME_NOREPLACE, RENAME_EXCHANGE */

static int rename_by(const char *from, const char *to, enum rename_flag flag)
{
#if defined(__linux__) && defined(SYS_renameat2)
    if (syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, (unsigned)flag) == 0) return 0;
    return errno == EINVAL ? ENOSYS : errno; /* as file systems say */
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

/* Puts the tree where another one is. That one steps aside first, and comes back if anything fails.
 * Called with the lock of the temporary name. */
static int exchange_trees(const char *from, const char *to, char *aside)
{
    int error = 0;
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

int exchange_names(const char *from, const char *to, char *aside, int *is_aside)
{
    int error = rename_by(from, to, EXCHANGE);
    *is_aside = error == ENOSYS;
    return *is_aside ? exchange_trees(from, to, aside) : error;
}

/* -- removing a tree -- */

/* Of the tree that is being removed. The lock of the temporary name is held: it is the only one. */
static struct {
    size_t n_gone; /* names, and directories that their owner was let into */
    int error;
} removal;

/* Comes to a directory after what is in it. */
static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    removal.n_gone += (kind == FTW_DP || kind == FTW_DNR) && (st->st_mode & 0700) != 0700 &&
                      chmod(path, 0700) == 0;
    if (remove(path) == 0) removal.n_gone++;
    else removal.error = errno;
    return 0;
}

int remove_tree(const char *path)
{
    int failed;
    do {
        removal.n_gone = 0;
        removal.error = 0;
        failed = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0;
        if (failed && !removal.error) removal.error = errno;
    } while (removal.error && removal.n_gone);
    return removal.error;
}
