#pragma once
#include "extra_api.h"
#include "base/platform.h"

/* File descriptors as sinks, streams and sources. */
#ifdef LMC_POSIX
#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

/* `user` is the descriptor, cast to a pointer, so no memory has to live as long as the sink. */
static int lmc__get_fd(void *user) { return (int)(intptr_t)user; }

static enum lmc_status lmc__write_fd(void *user, const void *data, size_t size)
{
    const uint8_t *from = (const uint8_t *)data;
    while (size != 0) {
        const ssize_t n = write(lmc__get_fd(user), from, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
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
    while (n < 0 && errno == EINTR);
    *got = n < 0 ? 0 : (size_t)n;
    return n < 0 ? LMC_ERR_READ : LMC_OK;
}

static enum lmc_status lmc__read_fd_at(void *user, uint64_t offset, void *dst, size_t size)
{
    uint8_t *to = (uint8_t *)dst;
    size_t got;
    if (offset > INT64_MAX || (uint64_t)(off_t)offset != offset ||
        lseek(lmc__get_fd(user), (off_t)offset, SEEK_SET) < 0)
        return LMC_ERR_READ;
    for (; size != 0; to += got, size -= got)
        if (lmc__read_fd(user, to, size, &got) != LMC_OK || got == 0) return LMC_ERR_READ;
    return LMC_OK;
}

LMC_API lmc_sink lmc_fd_sink(int fd)
{
    const lmc_sink sink = {lmc__write_fd, (void *)(intptr_t)fd};
    return sink;
}

LMC_API lmc_stream lmc_fd_stream(int fd)
{
    const lmc_stream stream = {lmc__read_fd, (void *)(intptr_t)fd};
    return stream;
}

LMC_API enum lmc_status lmc_fd_source(lmc_source *source, int fd)
{
    off_t size;
    if (!source) return LMC_ERR_ARGUMENT;
    size = lseek(fd, 0, SEEK_END);
    if (size < 0) return LMC_ERR_READ;
    source->read_at = lmc__read_fd_at;
    source->user = (void *)(intptr_t)fd;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif
