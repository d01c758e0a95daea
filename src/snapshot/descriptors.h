#pragma once
#include "extra_api.h"
#include "base/platform.h"

/* File descriptors as sinks, streams and sources. */
#ifdef LMC_POSIX
#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

/* `user` is the descriptor, cast to a pointer, so no memory has to live as long as the sink. */
static int lmc__get_fd(void *user) { return (int)(intptr_t)user; }

/* Whether a failed read or write is to be tried again. A descriptor from a shell or an event loop
 * may be non-blocking: then waits. */
static int lmc__waits_for_fd(int fd, short event)
{
    struct pollfd wait;
    if (errno == EINTR) return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return 0;
    wait.fd = fd;
    wait.events = event;
    wait.revents = 0;
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

static enum lmc_status lmc__write_fd(void *user, const void *data, size_t size)
{
    const uint8_t *from = (const uint8_t *)data;
    while (size != 0) {
        const ssize_t n = write(lmc__get_fd(user), from, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLOUT)) continue;
        if (n <= 0) return LMC_ERR_WRITE;
        from += n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

static enum lmc_status lmc__read_fd(void *user, void *dst, size_t size, size_t *got)
{
    ssize_t n;
    do n = read(lmc__get_fd(user), dst, size < (1u << 30) ? size : 1u << 30);
    while (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLIN));
    *got = n < 0 ? 0 : (size_t)n;
    return n < 0 ? LMC_ERR_READ : LMC_OK;
}

static enum lmc_status lmc__read_fd_at(void *user, uint64_t offset, void *dst, size_t size)
{
    uint8_t *to = (uint8_t *)dst;
    while (size != 0) {
        ssize_t n;
        if (offset > INT64_MAX || (uint64_t)(off_t)offset != offset) return LMC_ERR_READ;
        n = pread(lmc__get_fd(user), to, size < (1u << 30) ? size : 1u << 30, (off_t)offset);
        if (n < 0 && lmc__waits_for_fd(lmc__get_fd(user), POLLIN)) continue;
        if (n <= 0) return LMC_ERR_READ;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return LMC_OK;
}

LMC_API lmc_sink lmc_fd_sink(int fd)
{
    const lmc_sink sink = {lmc__write_fd, (void *)(intptr_t)fd, {0, 0}};
    return sink;
}

LMC_API lmc_stream lmc_fd_stream(int fd)
{
    const lmc_stream stream = {lmc__read_fd, (void *)(intptr_t)fd, {0, 0}};
    return stream;
}

LMC_API enum lmc_status lmc_fd_source(lmc_source *source, int fd)
{
    off_t size;
    if (!source) return LMC_ERR_ARGUMENT;
    size = lseek(fd, 0, SEEK_END);
    if (size < 0) return LMC_ERR_READ;
    memset(source, 0, sizeof *source);
    source->read_at = lmc__read_fd_at;
    source->user = (void *)(intptr_t)fd;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif
