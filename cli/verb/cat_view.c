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

/* Where elements are taken from, and put. */
struct gathering {
    const unsigned char *from;
    unsigned char *chunk;
    size_t width, filled;
    int (*write)(void *user, const void *data, size_t size);
    void *user;
};

static int flush_chunk(struct gathering *g)
{
    const int code = g->filled ? g->write(g->user, g->chunk, g->filled) : CODE_OK;
    g->filled = 0;
    return code;
}

/* A row: of the last dimension. at: in elements */
static int gather_row(struct gathering *g, uint64_t at, uint64_t n, uint64_t stride)
{
    int code = CODE_OK;
    for (uint64_t i = 0; i < n && code == CODE_OK; i++) {
        memcpy(g->chunk + g->filled, g->from + (size_t)(at + i * stride) * g->width, g->width);
        g->filled += g->width;
        if (g->filled + g->width > CHUNK_SIZE) code = flush_chunk(g);
    }
    return code;
}

static int gather(struct gathering *g, const struct container_view *v, const struct slice *s)
{
    const unsigned n_outer = v->rank ? v->rank - 1 : 0;
    uint64_t digits[LMC_MAX_RANK] = {0};
    for (;;) {
        uint64_t at = 0;
        unsigned i = n_outer;
        int code;
        for (unsigned k = 0; k < n_outer; k++) at += digits[k] * v->strides[k];
        code = v->rank ? gather_row(g, at, s->count[n_outer], v->strides[n_outer])
                       : gather_row(g, 0, 1, 0);
        if (code != CODE_OK) return code;
        while (i > 0 && ++digits[i - 1] == s->count[i - 1]) digits[--i] = 0;
        if (i == 0) return flush_chunk(g);
    }
}

int copy_view(struct archive *a, size_t file, const struct container_view *view,
              const struct slice *slice, int (*write)(void *user, const void *data, size_t size),
              void *user)
{
    const size_t width = view->bits / 8;
    uint64_t start = 0, extent = 1;
    struct gathering g;
    unsigned char *span;
    enum lmc_status status;
    int code;
    for (unsigned i = 0; i < view->rank; i++) {
        if (slice->count[i] == 0) return CODE_OK;
        start += slice->start[i] * view->strides[i]; /* within the storage, as the parser checks */
        extent += (slice->count[i] - 1) * view->strides[i];
    }
    if (extent > SIZE_MAX / width)
        return fail(CODE_ERROR, view->name, "is too large for this machine");
    memset(&g, 0, sizeof g);
    span = (unsigned char *)resize(NULL, (size_t)extent, width);
    g.chunk = (unsigned char *)resize(NULL, CHUNK_SIZE, 1);
    g.from = span;
    g.width = width;
    g.write = write;
    g.user = user;
    status = read_counted(a, file, view->offset + start * width, span, (size_t)extent * width);
    code = status == LMC_OK ? gather(&g, view, slice)
                            : fail_damage(a, status, file, view->offset + start * width);
    free(g.chunk);
    free(span);
    return code;
}
