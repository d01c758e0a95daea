/* SPDX-License-Identifier: MIT */
#include "attributes.h"

#include <time.h>
#if defined(__linux__)
#include <sys/xattr.h>
#endif

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

static mode_t process_umask;

void read_umask(void)
{
    process_umask = umask(0);
    umask(process_umask);
}

mode_t mask_mode(mode_t mode) { return mode & ~process_umask; }

struct attributes attributes_of_directory(const lmc_file *file)
{
    struct attributes a = attributes_of_file(file);
    if (!a.has_mode) a.mode = mask_mode(0777);
    a.has_mode = 1;
    return a;
}

int set_attributes(int fd, const struct attributes *a)
{
    if (a->has_owner && fchown(fd, a->owner, a->group) != 0 && errno != EPERM && errno != EINVAL &&
        errno != ENOTSUP)
        return errno;
    if (fchmod(fd, a->has_mode ? a->mode : mask_mode(0666)) != 0 && errno != EPERM &&
        errno != ENOTSUP)
        return errno;
    if (a->has_mtime) {
        struct timespec times[2];
        times[0].tv_sec = 0;
        times[0].tv_nsec = UTIME_OMIT;
        times[1] = a->mtime;
        if (futimens(fd, times) != 0 && errno != EPERM && errno != EINVAL) return errno;
    }
    return 0;
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

int lies_within(const char *path, const char *directory)
{
    char *inner = realpath(path, NULL), *outer = realpath(directory, NULL);
    const int result = inner && outer && strcmp(inner, outer) != 0 && is_at_or_below(inner, outer);
    free(inner);
    free(outer);
    return result;
}

int same_state(const struct stat *a, const struct stat *b)
{
    return same_file(a, b) && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}
