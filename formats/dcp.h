/* dcp.h - the .metadata of torch.distributed.checkpoint
 * SPDX-License-Identifier: MIT
 *
 * A pickle of its class Metadata. Of interest are where each item lies, and which part of which
 * tensor it is.
 */
#pragma once

#include "pickle.h"

/* An item: a tensor, a part of one, or another object. */
struct dcp_item {
    const char *file; /* that it lies in, relative to the directory */
    uint64_t offset, size;
    const char *name;
    unsigned rank;                   /* 0: nothing is known of its shape */
    uint64_t extents[LMC_MAX_RANK];  /* of the whole tensor */
    uint64_t position[LMC_MAX_RANK]; /* of this part in it */
};

struct dcp {
    struct pickle pickle;
    struct dcp_place *places; /* sorted by file and offset */
    size_t n;
    char error[128];
};

/* OK: to be freed; BAD: see error; MEMORY. */
enum container_result dcp_read(struct dcp *d, const void *data, size_t size, uint64_t weight);

void dcp_free(struct dcp *d);

/* The number of the first item of a file, behind which its others follow; d->n: it has none. */
size_t dcp_find(const struct dcp *d, const char *file);

void dcp_get(const struct dcp *d, size_t i, struct dcp_item *item);
