/* SPDX-License-Identifier: MIT */
#include "spot.h"

#include <time.h>

#include "attributes.h"
#include "io.h"
#include "temporary.h"

static struct {
    char *start; /* of all paths in the directory, with the slash; NULL: none is held */
    int dir, is_tree;
} held;

void hold_directory_of(const char *path, int dir, int is_tree)
{
    free(held.start);
    held.start = copy_string(path, (size_t)(base_name(path) - path));
    held.dir = dir;
    held.is_tree = is_tree;
}

void release_directory(int dir)
{
    if (!held.start || held.dir != dir) return;
    free(held.start);
    held.start = NULL;
}

/* The rest of a path in the directory that is held; NULL: it is not there. */
static const char *find_held(const char *path)
{
    const size_t size = held.start ? strlen(held.start) : 0;
    if (!held.start || strncmp(path, held.start, size) != 0) return NULL;
    return held.is_tree || !strchr(path + size, '/') ? path + size : NULL;
}

int open_spot(struct spot *s, const char *path)
{
    const char *const rest = find_held(path);
    char *directory = directory_of(path);
    s->name = base_name(path);
    s->dir = rest ? open_parent(held.dir, rest, 0) : open(directory, PARENT_FLAGS);
    const int error = s->dir < 0 ? errno : 0;
    free(directory);
    return error;
}

void close_spot(struct spot *s)
{
    if (s->dir >= 0) close(s->dir);
    s->dir = -1;
}

int sync_spot(const struct spot *s) { return sync_directory_at(s->dir); }

int look_at_spot(const struct spot *s, struct stat *st)
{
    return fstatat(s->dir, s->name, st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

static struct {
    int (*is_over)(const void *user);
    const void *user;
} waiting;

void wait_until(int (*is_over)(const void *user), const void *user)
{
    waiting.is_over = is_over;
    waiting.user = user;
}

int open_file(int dir, const char *name, int flags)
{
    const int look = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    const struct timespec pause = {0, 10000000};
    struct stat st;
    for (int left = 6000;; left--) {
        const int fd = openat(dir, name, flags | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EWOULDBLOCK) return fd;
        if (fstatat(dir, name, &st, look) != 0 || !S_ISREG(st.st_mode)) { /* a device has none */
            errno = EWOULDBLOCK;
            return -1;
        }
        if (left == 0 || (waiting.is_over && waiting.is_over(waiting.user))) {
            errno = ERROR_LEASED;
            return -1;
        }
        nanosleep(&pause, NULL);
    }
}

static int open_at(int dir, const char *name, int is_pipe)
{
    return is_pipe ? openat(dir, name, O_RDONLY | O_CLOEXEC) : open_file(dir, name, O_RDONLY);
}

int open_held(const char *path, int is_pipe)
{
    struct spot s;
    if (!find_held(path)) return open_at(AT_FDCWD, path, is_pipe);
    int error = open_spot(&s, path), fd = -1;
    if (!error) {
        fd = open_at(s.dir, s.name, is_pipe);
        error = errno;
        close_spot(&s);
    }
    errno = error;
    return fd;
}

int stat_held(const char *path, struct stat *st)
{
    struct spot s;
    if (!find_held(path)) return stat(path, st);
    int error = open_spot(&s, path), result = -1;
    if (!error) {
        result = fstatat(s.dir, s.name, st, 0);
        error = errno;
        close_spot(&s);
    }
    errno = error;
    return result;
}

/* -- below a directory -- */

static int make_step(int fd, const char *name)
{
    lock_temporary();
    const int error = mkdirat(fd, name, 0777) == 0 || errno == EEXIST ? 0 : errno;
    unlock_temporary();
    return error;
}

int open_parent(int root, const char *path, int may_make)
{
    char *copy = copy_text(path), *part = copy;
    int fd = openat(root, ".", PARENT_FLAGS), error = errno;
    for (char *slash = strchr(part, '/'); fd >= 0 && slash; slash = strchr(part, '/')) {
        int inner = -1;
        *slash = 0;
        error = may_make ? make_step(fd, part) : 0;
        if (!error) inner = openat(fd, part, PARENT_FLAGS | O_NOFOLLOW);
        if (inner < 0 && !error) error = errno;
        close(fd);
        fd = inner;
        part = slash + 1;
    }
    free(copy);
    errno = error;
    return fd;
}

int open_below(int root, const char *path, int flags)
{
    const int parent = open_parent(root, path, 0);
    if (parent < 0) return -1;
    const int fd = open_file(parent, base_name(path), flags | O_NOFOLLOW), error = errno;
    close(parent);
    errno = error;
    return fd;
}

int look_below(int root, const char *path, struct stat *st)
{
    const int parent = open_parent(root, path, 0);
    int error = parent < 0 ? errno : 0;
    if (!error && fstatat(parent, base_name(path), st, AT_SYMLINK_NOFOLLOW) != 0) error = errno;
    if (parent >= 0) close(parent);
    return error;
}

char *path_of_open(int fd, const char *path)
{
    struct stat st, by_name;
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return copy_text(
        fstat(fd, &st) == 0 && stat(name, &by_name) == 0 && same_file(&st, &by_name) ? name : path);
}
