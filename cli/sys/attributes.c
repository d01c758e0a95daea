/* SPDX-License-Identifier: MIT */
#include "attributes.h"

#include <time.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <sys/xattr.h>
#endif

#include "../../formats/refused.h"

mode_t kept_mode(mode_t mode, int is_directory)
{
    return mode & (is_directory ? 0777 | S_ISGID | S_ISVTX : 0777);
}

struct attributes attributes_of_stat(const struct stat *st)
{
    struct attributes a = {0};
    a.has_mode = a.has_mtime = a.has_owner = 1;
    a.mode = kept_mode(st->st_mode, S_ISDIR(st->st_mode));
    a.mtime = st->st_mtim;
    a.owner = st->st_uid;
    a.group = st->st_gid;
    return a;
}

struct attributes attributes_of_file(const lmc_file *file)
{
    struct attributes a = {0};
    a.has_mode = file->has_mode;
    a.mode = kept_mode((mode_t)file->mode, file->kind == LMC_FILE_DIRECTORY);
    a.has_mtime = file->has_mtime;
    a.mtime.tv_sec = (time_t)file->mtime_s;
    a.mtime.tv_nsec = (long)file->mtime_ns;
    return a;
}

void complete_attributes(struct attributes *a, const struct stat *input)
{
    struct attributes own;
    if (!input) return;
    own = attributes_of_stat(input);
    if (a->has_mode) own.mode = a->mode;
    if (a->has_mtime) own.mtime = a->mtime;
    *a = own;
}

static mode_t process_umask;

void read_umask(void)
{
    process_umask = umask(0);
    umask(process_umask & ~(mode_t)0700);
}

mode_t mask_mode(mode_t mode) { return mode & ~process_umask; }

struct attributes attributes_of_directory(const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    if (!a.has_mode) a.mode = mask_mode(0777);
    a.has_mode = 1;
    return a;
}

/* The error of a call that has returned `result`. */
static int error_of(enum file_call call, int result)
{
    return result == 0 || is_refused(call, errno) ? 0 : errno;
}

int set_mode(int fd, mode_t mode) { return error_of(CALL_MODE, fchmod(fd, mode)); }

#if defined(__linux__)
/* A descriptor that needs no rights to the file holds on to it. fchmod() takes no such descriptor,
 * so its name in /proc is used; where there is no /proc, fchmodat2(), which came with Linux 6.6. */
#if !defined(SYS_fchmodat2)
#define SYS_fchmodat2 452
#endif
static int change_mode(int fd, mode_t mode)
{
    char held[48];
    snprintf(held, sizeof held, "/proc/self/fd/%d", fd);
    if (chmod(held, mode) == 0) return 0;
    return errno == ENOENT ? (int)syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) : -1;
}

int set_mode_of_seen(int at, const char *name, const struct stat *seen, mode_t mode)
{
    struct stat st;
    const int fd = openat(at, name, O_PATH | O_CLOEXEC);
    int error = fd < 0 || fstat(fd, &st) != 0 ? errno : same_file(&st, seen) ? 0 : ENOENT;
    if (!error) error = error_of(CALL_MODE, change_mode(fd, mode));
    if (fd >= 0) close(fd);
    return error;
}
#else
int set_mode_of_seen(int at, const char *name, const struct stat *seen, mode_t mode)
{
    struct stat st;
    if (fstatat(at, name, &st, 0) != 0) return errno;
    return same_file(&st, seen) ? error_of(CALL_MODE, fchmodat(at, name, mode, 0)) : ENOENT;
}
#endif

int set_present_time(int at, const char *name)
{
    return error_of(CALL_TIME, utimensat(at, name, NULL, AT_SYMLINK_NOFOLLOW));
}

int set_attributes(int fd, const struct attributes *a)
{
    int error = 0;
    if (a->has_owner) error = error_of(CALL_OWNER, fchown(fd, a->owner, a->group));
    if (!error) error = set_mode(fd, a->has_mode ? a->mode : mask_mode(0666));
    if (!error && a->has_mtime) {
        struct timespec times[2];
        times[0].tv_sec = 0;
        times[0].tv_nsec = UTIME_OMIT;
        times[1] = a->mtime;
        error = error_of(CALL_TIME, futimens(fd, times));
    }
    return error;
}

#if defined(__linux__)
static int begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

unsigned find_attached(const char *path)
{
    char list[65536]; /* the longest possible list */
    const ssize_t size = llistxattr(path, list, sizeof list);
    unsigned found = 0;
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(list + at) + 1) {
        if (begins_with(list + at, "system.posix_acl_")) found |= HAS_ACL;
        if (begins_with(list + at, "user.") || begins_with(list + at, "security.capability"))
            found |= HAS_ATTRIBUTES;
    }
    return found;
}
#else
unsigned find_attached(const char *path)
{
    (void)path;
    return 0;
}
#endif

int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int is_same_file(const char *a, const char *b)
{
    struct stat st, other;
    return stat(a, &st) == 0 && stat(b, &other) == 0 && same_file(&st, &other);
}

int is_mounted(const char *path, const struct stat *st, const struct stat *root)
{
#if defined(STATX_ATTR_MOUNT_ROOT) && defined(SYS_statx) /* glibc has statx since 2.28 */
    struct statx x; /* a part of the same file system has the same device */
    if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &x) == 0 &&
        (x.stx_attributes & STATX_ATTR_MOUNT_ROOT))
        return 1;
#else
    (void)path;
#endif
    return S_ISDIR(st->st_mode) && st->st_dev != root->st_dev;
}

int lies_within(const char *path, const char *directory)
{
    char *inner = realpath(path, NULL), *outer = realpath(directory, NULL);
    const int result = inner && outer && strcmp(inner, outer) != 0 && is_at_or_below(inner, outer);
    free(inner);
    free(outer);
    return result;
}

int same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int same_state(const struct stat *a, const struct stat *b)
{
    return same_file(a, b) && same_version(a, b);
}
