/* SPDX-License-Identifier: MIT */

#include "archive.h"
#include "../../include/lmc_extra.h"
#include "../sys/io.h"
#include "../sys/spot.h"

/* Bytes of an open file. */
static enum lmc_status read_open(void *user, uint64_t offset, void *dst, size_t size)
{
    return read_at(*(const int *)user, offset, dst, size) == 0 ? LMC_OK : LMC_ERR_READ;
}

/* Opens a regular file only: opening a FIFO would wait. Negative: it cannot be read. *source reads
 * from *fd, which the caller closes. */
static int open_regular(lmc_source *source, int *fd, const char *path)
{
    struct stat st;
    *fd = stat_held(path, &st) == 0 && S_ISREG(st.st_mode) ? open_held(path, 0) : -1;
    memset(source, 0, sizeof *source);
    source->read_at = read_open;
    source->user = fd;
    source->size = *fd >= 0 && fstat(*fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    return *fd;
}

static int has_magic_at(int fd, uint64_t offset, int *error)
{
    uint8_t bytes[sizeof LMC_MAGIC - 1];
    const int result = read_at(fd, offset, bytes, sizeof bytes); /* -1: the file is shorter */
    *error = result > 0 ? result : 0;
    return result == 0 && memcmp(bytes, LMC_MAGIC, sizeof bytes) == 0;
}

int begins_as_snapshot(int fd, int *error) { return has_magic_at(fd, 0, error); }

int starts_snapshot_at(const char *path, uint64_t offset)
{
    lmc_source source;
    int fd, error;
    const int result = open_regular(&source, &fd, path) >= 0 && has_magic_at(fd, offset, &error);
    if (fd >= 0) close(fd);
    return result;
}

enum lmc_status probe_snapshot(const char *path, lmc_snapshot_info *info)
{
    lmc_source source;
    int fd;
    enum lmc_status status = LMC_ERR_READ;
    memset(info, 0, sizeof *info);
    if (open_regular(&source, &fd, path) >= 0) status = lmc_snapshot_probe(&source, info);
    if (fd >= 0) close(fd);
    return status;
}

uint64_t find_snapshot_end(const char *path)
{
    lmc_source source;
    lmc_snapshot_extent extent = {0};
    int fd;
    if (open_regular(&source, &fd, path) >= 0) (void)!lmc_snapshot_measure(&source, &extent);
    if (fd >= 0) close(fd);
    return extent.end;
}
