/* SPDX-License-Identifier: MIT */
#include "apply_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../input/opened.h"
#include "../sys/io.h"
#include "../sys/names.h"
#include "../sys/report.h"

void open_place(struct place *p, const char *root, const lmc_file *(*get_file)(void *, size_t),
                void *user, int may_write)
{
    memset(p, 0, sizeof *p);
    p->root = root;
    p->get_file = get_file;
    p->user = user;
    p->may_write = may_write;
    p->fd = -1;
}

static int fail_place(struct place *p, size_t number, int error, const char *what)
{
    char *path = join_path(p->root, p->get_file(p->user, number)->path);
    p->code = error < 0 ? fail_changed(path) : fail_errno(path, error, what);
    free(path);
    return p->code;
}

int sync_place(struct place *p)
{
    int error = p->is_written ? sync_data(p->fd) : 0;
    p->is_written = 0;
    return error ? fail_place(p, p->number, error, "cannot bring it to the disk") : CODE_OK;
}

int close_place(struct place *p)
{
    int code = p->fd >= 0 ? sync_place(p) : CODE_OK;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    return code;
}

static int go_to_file(struct place *p, size_t number)
{
    char *path;
    int error, code;
    if (p->fd >= 0 && p->number == number) return CODE_OK;
    code = close_place(p);
    if (code != CODE_OK) return code;
    path = join_path(p->root, p->get_file(p->user, number)->path);
    p->number = number;
    p->fd = open(path, (p->may_write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    error = errno;
    free(path);
    return p->fd < 0 ? fail_place(p, number, error, "cannot open it") : CODE_OK;
}

int read_place(struct place *p, size_t number, uint64_t offset, void *dst, size_t size)
{
    int code = go_to_file(p, number), error;
    if (code != CODE_OK) return code;
    error = read_at(p->fd, offset, dst, size);
    return error ? fail_place(p, number, error, "cannot read it") : CODE_OK;
}

int write_place(struct place *p, size_t number, uint64_t offset, const void *data, size_t size)
{
    int code = go_to_file(p, number), error;
    if (code != CODE_OK) return code;
    p->is_written = 1;
    error = write_at(p->fd, offset, data, size);
    return error ? fail_place(p, number, error, "cannot write to it") : CODE_OK;
}
