/* SPDX-License-Identifier: MIT */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_syncfs */
#endif

#include "memory.h"
#include "names.h"

/* After a failed read or write: whether to try again. A shell may hand over descriptors that do not
 * block. */
static int io_retry(int fd, short event)
{
    struct pollfd wait;
    if (errno == EINTR) return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return 0;
    wait.fd = fd;
    wait.events = event;
    wait.revents = 0;
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

int read_some(int fd, void *data, size_t size, size_t *got)
{
    ssize_t n;
    *got = 0;
    do n = read(fd, data, size);
    while (n < 0 && io_retry(fd, POLLIN));
    if (n < 0) return errno;
    *got = (size_t)n;
    return 0;
}

int read_full(int fd, void *data, size_t size, size_t *got)
{
    size_t part = 1;
    int error = 0;
    for (*got = 0; *got < size && part && !error; *got += part)
        error = read_some(fd, (char *)data + *got, size - *got, &part);
    return error;
}

int write_full(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && !io_retry(fd, POLLOUT)) return errno;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}

/* What is all zero within a range that begins and ends at multiples of this becomes a hole: there
 * is no point in holes of less than a page, and each of them costs a call. */
#define HOLE_SIZE ((size_t)64 << 10)

#define MIN_HOLE_SIZE ((size_t)4 << 10)

static int is_zero(const unsigned char *data, size_t size)
{
    return !data[0] && !data[size - 1] && memcmp(data, data + 1, size - 1) == 0;
}

/* How many bytes at data, which belong at that offset of a file, are to be written; *hole: how many
 * zeros follow them that are left out. */
static size_t find_hole(uint64_t offset, const unsigned char *data, size_t size, size_t *hole)
{
    size_t at = 0;
    *hole = 0;
    while (at + *hole < size) {
        size_t part = HOLE_SIZE - (size_t)((offset + at + *hole) % HOLE_SIZE);
        if (part > size - at - *hole) part = size - at - *hole;
        if (part >= MIN_HOLE_SIZE && is_zero(data + at + *hole, part)) *hole += part;
        else if (*hole) break;
        else at += part;
    }
    return at;
}

int outlet_write(struct outlet *out, const void *data, size_t size)
{
    while (size && !out->error) {
        size_t hole = 0, n = size;
        if (out->sparse) n = find_hole(out->size, (const unsigned char *)data, size, &hole);
        out->error = write_full(out->fd, data, n);
        if (!out->error && hole && lseek(out->fd, (off_t)hole, SEEK_CUR) < 0) out->error = errno;
        data = (const char *)data + n + hole;
        size -= n + hole;
        out->size += n + hole;
    }
    return out->error;
}

int outlet_write_at(const struct outlet *out, uint64_t offset, const void *data, size_t size)
{
    int error = 0;
    while (size && !error) {
        size_t hole = 0, n = size;
        if (out->sparse) n = find_hole(offset, (const unsigned char *)data, size, &hole);
        error = write_at(out->fd, offset, data, n);
        data = (const char *)data + n + hole;
        size -= n + hole;
        offset += n + hole;
    }
    return error;
}

int outlet_finish(struct outlet *out)
{
    if (!out->error && out->sparse && ftruncate(out->fd, (off_t)out->size) != 0) out->error = errno;
    return out->error;
}

int open_directory_of(const char *path, int *fd)
{
    char *directory = directory_of(path);
    int error;
    *fd = open(directory, O_RDONLY | O_CLOEXEC);
    error = *fd < 0 && errno != EACCES ? errno : 0;
    free(directory);
    return error;
}

int sync_directory(int fd)
{
    int error = 0;
    if (fd < 0) return 0;
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP) error = errno;
    close(fd);
    return error;
}

int sync_directory_of(const char *path)
{
    int fd, error = open_directory_of(path, &fd);
    return error ? error : sync_directory(fd);
}

int open_below(const char *root, const char *path, int flags)
{
    int fd = *path ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                   : open(root, flags | O_NOFOLLOW | O_CLOEXEC);
    while (fd >= 0 && *path) {
        const size_t size = strcspn(path, "/");
        char *name = copy_string(path, size);
        const int is_last = path[size] == 0;
        const int next =
            openat(fd, name, (is_last ? flags : O_RDONLY | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
        const int error = errno;
        free(name);
        close(fd);
        errno = error;
        fd = next;
        path += size + !is_last;
    }
    return fd;
}

#if defined(__linux__) && defined(SYS_syncfs)
int can_sync_all(void) { return 1; }
int sync_all(int fd) { return syscall(SYS_syncfs, fd) == 0 ? 0 : errno; }
#else
int can_sync_all(void) { return 0; }
int sync_all(int fd)
{
    (void)fd;
    return ENOSYS;
}
#endif

int read_at(int fd, uint64_t offset, void *dst, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (char *)dst + done, size - done, (off_t)(offset + done));
        if (n > 0) done += (size_t)n;
        else if (n == 0 || errno != EINTR) return n == 0 ? -1 : errno;
    }
    return 0;
}

int sync_data(int fd)
{
#if defined(_POSIX_SYNCHRONIZED_IO) && _POSIX_SYNCHRONIZED_IO > 0 && !defined(__APPLE__)
    int result = fdatasync(fd);
#else
    int result = fsync(fd);
#endif
    return result == 0 || errno == EINVAL ? 0 : errno;
}

int write_at(int fd, uint64_t offset, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}
