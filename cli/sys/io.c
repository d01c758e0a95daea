/* SPDX-License-Identifier: MIT */
#include "io.h"

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>
#if defined(__linux__)
#include <sys/syscall.h> /* SYS_syncfs */
#endif

#include "../../formats/refused.h"

/* Whether to try a failed read or write again. Descriptors from a shell may be non-blocking. */
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

static int write_full(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        if (n < 0 && !io_retry(fd, POLLOUT)) return errno;
        if (n > 0) done += (size_t)n;
    }
    return 0;
}

/* Ranges between multiples of this size become holes if they are all zero. Smaller holes would cost
 * more calls, and a hole of less than a page saves nothing. */
#define HOLE_SIZE ((size_t)64 << 10)

#define MIN_HOLE_SIZE ((size_t)4 << 10)

static int is_zero(const unsigned char *data, size_t size)
{
    return !data[0] && !data[size - 1] && memcmp(data, data + 1, size - 1) == 0;
}

/* How many bytes of data are to be written at that offset of a file. *hole: how many zeros behind
 * them are left out. */
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

#define WINDOW_SIZE ((size_t)512 << 10) /* larger windows are slower, too */

/* After every SYNC_SIZE bytes, the system is told to begin to write them to the disk. */
#define SYNC_SIZE ((uint64_t)8 << 20)

static int write_window(struct outlet *out)
{
    const unsigned char *data = out->window;
    if (!out->n_waiting) return out->error;
    for (size_t left = out->n_waiting; left && !out->error;) {
        size_t hole;
        const size_t n = find_hole(out->size - left, data, left, &hole);
        out->error = write_at(out->fd, out->size - left, data, n);
        if (n) out->end = out->size - left + n;
        data += n + hole;
        left -= n + hole;
    }
    out->n_waiting = 0;
    return out->error;
}

/* Writes the waiting bytes and `size` more, which together fill the window, by one call. 0: not all
 * was written, as there may be a hole, or the call ended early. A hole across both parts is found,
 * as enough of it is in one of them. */
static int write_through(struct outlet *out, const unsigned char *data, size_t size)
{
    const uint64_t start = out->size - out->n_waiting;
    const struct iovec parts[2] = {{out->window, out->n_waiting}, {(void *)(uintptr_t)data, size}};
    size_t hole;
    if (find_hole(start, out->window, out->n_waiting, &hole) < out->n_waiting ||
        find_hole(out->size, data, size, &hole) < size ||
        pwritev(out->fd, parts, 2, (off_t)start) != (ssize_t)(out->n_waiting + size))
        return 0;
    out->n_waiting = 0;
    out->end = out->size + size;
    return 1;
}

int outlet_write(struct outlet *out, const void *data, size_t size)
{
    if (!out->is_file) {
        if (!out->error) out->error = write_full(out->fd, data, size);
        out->size += size;
        return out->error;
    }
    if (!out->window) out->window = (unsigned char *)resize(NULL, WINDOW_SIZE, 1);
    for (const unsigned char *p = (const unsigned char *)data; size && !out->error;) {
        const size_t room = WINDOW_SIZE - (size_t)(out->size % WINDOW_SIZE);
        const size_t part = size < room ? size : room;
        if (part < room || !write_through(out, p, part)) {
            memcpy(out->window + out->n_waiting, p, part);
            out->n_waiting += part;
        }
        out->size += part;
        p += part;
        size -= part;
        if (part == room) write_window(out);
        if (!out->error && out->is_kept && out->size % SYNC_SIZE == 0)
            begin_to_sync(out->fd, out->size - SYNC_SIZE, SYNC_SIZE);
    }
    return out->error;
}

int outlet_flush(struct outlet *out, uint64_t end)
{
    return end > out->size - out->n_waiting ? write_window(out) : out->error;
}

int outlet_skip(struct outlet *out, uint64_t size)
{
    write_window(out);
    if (!out->error && size > INT64_MAX - out->size) out->error = EFBIG;
    if (!out->error) out->size += size;
    return out->error;
}

int outlet_finish(struct outlet *out)
{
    write_window(out);
    outlet_drop(out);
    if (out->end == out->size) return out->error; /* as is a file whose end is no hole */
    if (!out->error && out->is_file && ftruncate(out->fd, (off_t)out->size) != 0)
        out->error = errno;
    return out->error;
}

void outlet_drop(struct outlet *out)
{
    free(out->window);
    out->window = NULL;
    out->n_waiting = 0;
}

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

void begin_to_sync(int fd, uint64_t offset, uint64_t size)
{
#if defined(SYNC_FILE_RANGE_WRITE)
    (void)!sync_file_range(fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd;
    (void)offset;
    (void)size;
#endif
}

/* -- syncing -- */

static int refused_sync; /* only one thread syncs: the main thread */

int find_refused_sync(void) { return refused_sync; }

void forget_refused_sync(void) { refused_sync = 0; }

/* The error of a sync: 0 if it was refused. */
static int note_sync(enum file_call call, int error)
{
    if (!error || !is_refused(call, error)) return error;
    if (!refused_sync) refused_sync = error;
    return 0;
}

/* 0 or errno. On macOS, fsync() only gives the data to the drive, which may keep them in its cache;
 * F_FULLFSYNC does more, but only where the file system has it. */
static int sync_by(int (*call)(int), int fd)
{
    int result;
#ifdef F_FULLFSYNC
    if (fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
    do result = call(fd);
    while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

int sync_file(int fd) { return note_sync(CALL_SYNC, sync_by(fsync, fd)); }

int sync_directory(int fd) { return note_sync(CALL_SYNC_DIRECTORY, sync_by(fsync, fd)); }

int sync_directory_at(int dir)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = fd < 0 ? note_sync(CALL_SYNC_DIRECTORY, errno) : sync_directory(fd);
    if (fd >= 0) close(fd);
    return error;
}

int sync_data(int fd)
{
#if defined(_POSIX_SYNCHRONIZED_IO) && _POSIX_SYNCHRONIZED_IO > 0 && !defined(__APPLE__)
    return note_sync(CALL_SYNC, sync_by(fdatasync, fd));
#else
    return sync_file(fd);
#endif
}

#if defined(__linux__) && defined(SYS_syncfs)
int can_sync_all(void) { return 1; }

static int sync_file_system(int fd) { return (int)syscall(SYS_syncfs, fd); }

int sync_all(int fd)
{
    const int error = sync_by(sync_file_system, fd);
    if (error && is_refused(CALL_SYNC, error)) sync(); /* waits, too, but reports no errors */
    return note_sync(CALL_SYNC, error);
}
#else
int can_sync_all(void) { return 0; }

int sync_all(int fd)
{
    (void)fd;
    return ENOSYS;
}
#endif

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
