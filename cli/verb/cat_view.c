/* SPDX-License-Identifier: MIT */
#include "cat_view.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../input/archive.h"
#include "../input/common.h"
#include "../input/damage.h"
#include "../sys/memory.h"
#include "../sys/report.h"
#include "../../formats/gather.h"

/* Elements that are handed over at once. */
#define CHUNK_SIZE ((size_t)1 << 20)

const struct container_view *find_container_view(const struct container *c, const char *name)
{
    for (size_t i = 0; i < c->n_views; i++)
        if (strcmp(c->views[i].name, name) == 0) return &c->views[i];
    return NULL;
}

void describe_view(lmc_tensor *t, const struct container_view *view)
{
    memset(t, 0, sizeof *t);
    t->name = view->name;
    t->dtype = view->dtype;
    t->rank = view->rank;
    t->shape = view->shape;
    t->size = view->bits / 8;
    for (unsigned i = 0; i < view->rank; i++)
        t->size *= view->shape[i]; /* which the parser checks */
}

int copy_view(struct archive *a, size_t file, const struct container_view *view,
              const struct slice *slice, int (*write)(void *user, const void *data, size_t size),
              void *user)
{
    const size_t width = view->bits / 8;
    uint64_t start = 0, extent = 1;
    struct gathering g;
    unsigned char *span, *chunk;
    enum lmc_status status;
    size_t n;
    int code;
    if (view->is_ambiguous)
        return fail(CODE_ERROR, view->name,
                    "is the name of several tensors of the file; restore it with -d, and read it "
                    "with PyTorch");
    if (!resolve_flags(NULL, 0, view->dtype, view->flags))
        return fail(CODE_ERROR, view->name,
                    "is conjugated or negated by a flag of PyTorch, which is not known of %s; "
                    "restore the file with -d, and read it with PyTorch",
                    view->dtype);
    for (unsigned i = 0; i < view->rank; i++) {
        if (slice->count[i] == 0) return CODE_OK;
        start += slice->start[i] * view->strides[i]; /* within the storage, as the parser checks */
        extent += (slice->count[i] - 1) * view->strides[i];
    }
    if (extent > SIZE_MAX / width)
        return fail(CODE_ERROR, view->name, "is too large for this machine");
    memset(&g, 0, sizeof g);
    span = (unsigned char *)resize(NULL, (size_t)extent, width);
    chunk = (unsigned char *)resize(NULL, CHUNK_SIZE, 1);
    g.span = span;
    g.width = width;
    g.rank = view->rank;
    g.counts = slice->count;
    g.strides = view->strides;
    status = read_counted(a, file, view->offset + start * width, span, (size_t)extent * width);
    code = status == LMC_OK ? CODE_OK : fail_damage(a, status, file, view->offset + start * width);
    while (code == CODE_OK && (n = gather_elements(&g, chunk, CHUNK_SIZE)) > 0) {
        (void)resolve_flags(chunk, n, view->dtype, view->flags);
        code = write(user, chunk, n);
    }
    free(chunk);
    free(span);
    return code;
}
