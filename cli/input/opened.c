/* SPDX-License-Identifier: MIT */
#include "opened.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../sys/attributes.h"
#include "../sys/io.h"
#include "../sys/report.h"

int fail_changed(const char *path)
{
    return fail(CODE_ERROR, path,
                "was changed while it was being read; try again when nobody writes to it");
}

void close_opened(struct opened *f)
{
    if (f->path) close(f->fd);
    f->path = NULL;
}

int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset,
                void *dst, size_t size)
{
    struct stat now_st;
    int error;
    if (f->path != path) {
        close_opened(f);
        f->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (f->fd < 0) return fail_errno(path, errno, "cannot open it");
        f->path = path;
        if (fstat(f->fd, &now_st) != 0 || !same_state(&now_st, st)) return fail_changed(path);
    }
    error = read_at(f->fd, offset, dst, size);
    return error > 0 ? fail_errno(path, error, "cannot read it")
           : error   ? fail_changed(path)
                     : CODE_OK;
}
