#pragma once
#include "base/platform.h"

/* Files of the C library (LMC_NO_STDIO leaves them out) and file descriptors (LMC_POSIX) as sinks,
 * streams and sources. */
#ifndef LMC_NO_STDIO
static enum lmc_status lmc__write_stdio(void *user, const void *data, size_t size)
{
    return size == 0 || fwrite(data, 1, size, (FILE *)user) == size ? LMC_OK : LMC_ERR_WRITE;
}

static enum lmc_status lmc__read_stdio(void *user, void *dst, size_t size, size_t *got)
{
    *got = fread(dst, 1, size, (FILE *)user);
    return *got == 0 && ferror((FILE *)user) ? LMC_ERR_READ : LMC_OK;
}

/* 0: done. fseek takes a long, which has 32 bits on Windows and on 32-bit systems. */
static int lmc__seek_stdio(FILE *file, uint64_t offset, int origin)
{
#ifdef _WIN32
    return offset > INT64_MAX || _fseeki64(file, (__int64)offset, origin) != 0;
#else
    return offset > (uint64_t)LONG_MAX || fseek(file, (long)offset, origin) != 0;
#endif
}

static enum lmc_status lmc__read_stdio_at(void *user, uint64_t offset, void *dst, size_t size)
{
    FILE *const file = (FILE *)user;
    return lmc__seek_stdio(file, offset, SEEK_SET) == 0 && fread(dst, 1, size, file) == size
               ? LMC_OK
               : LMC_ERR_READ;
}

LMC_API lmc_sink lmc_stdio_sink(FILE *file)
{
    const lmc_sink sink = {lmc__write_stdio, file};
    return sink;
}

LMC_API lmc_stream lmc_stdio_stream(FILE *file)
{
    const lmc_stream stream = {lmc__read_stdio, file};
    return stream;
}

LMC_API enum lmc_status lmc_stdio_source(lmc_source *source, FILE *file)
{
#ifdef _WIN32
    __int64 size;
#else
    long size;
#endif
    if (!source || !file) return LMC_ERR_ARGUMENT;
    if (lmc__seek_stdio(file, 0, SEEK_END) != 0) return LMC_ERR_READ;
#ifdef _WIN32
    size = _ftelli64(file);
#else
    size = ftell(file);
#endif
    if (size < 0) return LMC_ERR_READ;
    source->read_at = lmc__read_stdio_at;
    source->user = file;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif

#ifdef LMC_POSIX
/* The descriptor is the value of the pointer, so nothing has to live as long as the sink. */
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
