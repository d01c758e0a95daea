/* SPDX-License-Identifier: MIT */
#include "apply_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../input/source.h"
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

/* What was checked before may be another file now, put there by whoever may write to the target:
 * root must not be led to change files elsewhere. 0 or errno. */
static int check_opened(const struct place *p)
{
    struct stat st;
    if (!p->is_strict) return 0;
    if (fstat(p->fd, &st) != 0) return errno;
    return S_ISREG(st.st_mode) && st.st_nlink <= 1 ? 0 : -1;
}

static int go_to_file(struct place *p, size_t number)
{
    const char *below = p->get_file(p->user, number)->path;
    const int flags = (p->may_write ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    char *path;
    int error, code;
    if (p->fd >= 0 && p->number == number) return CODE_OK;
    code = close_place(p);
    if (code != CODE_OK) return code;
    path = join_path(p->root, below);
    p->number = number;
    p->fd = p->is_strict ? open_below(p->root, below, flags) : open(path, flags);
    error = p->fd < 0 ? errno : check_opened(p);
    free(path);
    if (!error) return CODE_OK;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    return fail_place(p, number, error == ELOOP ? -1 : error, "cannot open it");
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
