/* SPDX-License-Identifier: MIT */
#include "replica.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive.h"
#include "damage.h"
#include "../sys/io.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "../sys/temporary.h"

#define REPLICA_WINDOW ((size_t)4 << 20)

int fail_replica(int error)
{
    return fail_errno("(scratch file)", error,
                      "cannot use it; TMPDIR names the directory where it is");
}

static int copy_file(const struct archive *a, size_t number, unsigned char *window,
                     struct outlet *out)
{
    const lmc_file *f = lmc_reader_get_file(a->reader, number);
    uint32_t crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        const size_t size = (size_t)(f->size - at < REPLICA_WINDOW ? f->size - at : REPLICA_WINDOW);
        const enum lmc_status status = read_counted(a, number, at, window, size);
        int error;
        if (status != LMC_OK) return fail_damage(a, status, number, at);
        crc = lmc_crc32c(crc, window, size);
        error = outlet_write(out, window, size);
        if (error) return fail_replica(error);
        at += size;
    }
    return f->kind == LMC_FILE_DIRECTORY || crc == f->crc ? CODE_OK
                                                          : fail_archive(a, LMC_ERR_CORRUPT);
}

int make_replica(struct replica *r, const struct archive *a)
{
    const size_t n = snapshot_info(a->reader).n_files;
    unsigned char *window;
    struct outlet out;
    int code = open_scratch(a->name, &r->fd), error;
    if (code != CODE_OK) return code;
    r->is_made = 1;
    r->starts = (uint64_t *)resize(NULL, n + 1, sizeof *r->starts);
    window = (unsigned char *)resize(NULL, REPLICA_WINDOW, 1);
    memset(&out, 0, sizeof out);
    out.fd = r->fd;
    out.sparse = 1;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        r->starts[i] = out.size;
        code = copy_file(a, i, window, &out);
    }
    error = code == CODE_OK ? outlet_finish(&out) : 0;
    free(window);
    return error ? fail_replica(error) : code;
}

int read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst, size_t size)
{
    const int error = read_at(r->fd, r->starts[number] + offset, dst, size);
    return error < 0 ? EIO : error;
}

void free_replica(struct replica *r)
{
    if (r->is_made) close(r->fd);
    free(r->starts);
    memset(r, 0, sizeof *r);
}
