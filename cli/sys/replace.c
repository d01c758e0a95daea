/* SPDX-License-Identifier: MIT */
#include "replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_renameat2 */
#endif

#include "report.h"

int move_without_overwriting(const char *from, const char *to)
{
    int fd;
    if (link(from, to) == 0) {
        int error = unlink(from) == 0 ? 0 : errno;
        if (error) unlink(to);
        return error;
    }
    if (errno == EEXIST) return EEXIST;
    fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    close(fd);
    if (rename(from, to) != 0) {
        int error = errno;
        unlink(to);
        return error;
    }
    return 0;
}

/* rename() with a flag; 0 or errno. ENOSYS: there is no such thing here. */
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

int move_tree(const char *from, const char *to)
{
    int error = rename_by(from, to, MOVE_ONLY);
    if (error != ENOSYS) return error;
    if (mkdir(to, 0700) != 0) return errno;
    if (rename(from, to) != 0) {
        error = errno;
        rmdir(to);
        return error;
    }
    return 0;
}

/* Puts the tree where another one is. That one steps aside first, and comes back if anything fails.
 * 0 or errno. Called with the lock of the temporary name. */
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
