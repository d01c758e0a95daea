#pragma once
#include "base/platform.h"

/* Files of the C library as sinks, streams and sources. */
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

/* Returns 0 on success. fseek takes a long, which has 32 bits on Windows and on 32-bit systems. */
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
    const lmc_sink sink = {file ? lmc__write_stdio : NULL, file, {0, 0}};
    return sink;
}

LMC_API lmc_stream lmc_stdio_stream(FILE *file)
{
    const lmc_stream stream = {file ? lmc__read_stdio : NULL, file, {0, 0}};
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
    memset(source, 0, sizeof *source);
    source->read_at = lmc__read_stdio_at;
    source->user = file;
    source->size = (uint64_t)size;
    return LMC_OK;
}
#endif
