/* replica.c - the restored files of a long chain's link, in a scratch file (see base.h)
 * SPDX-License-Identifier: MIT
 */
#include "base.h"
#include "../sys/io.h"
#include "../sys/temporary.h"

enum lmc_status read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst,
                             size_t size, int *code)
{
    const int error = read_at(r->fd, r->starts[number] + offset, dst, size);
    if (error) *code = fail_scratch(error < 0 ? EIO : error);
    return error ? LMC_ERR_READ : LMC_OK;
}

int make_replica(struct replica *r, const struct archive *a)
{
    const size_t n = snapshot_info(a->reader).n_files;
    struct outlet out = {0};
    int code = open_scratch(a->name, &r->fd);
    if (code != CODE_OK) return code;
    r->starts = (uint64_t *)resize(NULL, n + 1, sizeof *r->starts);
    unsigned char *window = (unsigned char *)resize(NULL, BUFFER_SIZE, 1);
    out.fd = r->fd;
    out.is_file = 1;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        r->starts[i] = out.size;
        code = copy_counted(a, i, window, &out, 0);
    }
    if (code == CODE_OK) outlet_finish(&out);
    outlet_drop(&out);
    free(window);
    if (out.error) code = fail_scratch(out.error);
    if (code != CODE_OK) free_replica(r); /* it is not whole */
    return code;
}

void free_replica(struct replica *r)
{
    if (r->starts) close(r->fd);
    free(r->starts);
    memset(r, 0, sizeof *r);
}
