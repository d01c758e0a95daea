/* torch_views.h - the tensors in an object that torch.save() has written
 * SPDX-License-Identifier: MIT
 *
 * A view is what PyTorch calls a tensor: a dtype, a shape and strides over a part of a storage.
 */
#pragma once

#include "pickle.h"
#include "zip.h"

struct torch_view {
    size_t member;   /* of the archive: its storage */
    uint64_t offset; /* in the storage, bytes */
    uint64_t size;   /* from its first to its last element, bytes */
    int is_dense;    /* then: each byte of them once */
    const char *dtype;
    unsigned bits;  /* of an element; 0: the dtype is not known */
    size_t name;    /* in names */
    size_t shape;   /* in shapes: of dense ones, in the order of memory */
    size_t logical; /* the same as PyTorch has it, then the strides */
    int is_kept;    /* for torch_save.c: a tensor of the list */
    int is_plain;   /* the order of memory is the logical one, and bytes are what they say */
    unsigned flags;
    unsigned rank;
    size_t order;       /* of all views, in the object */
    uint32_t arguments; /* of the pickle: what it is made of */
};

struct torch_views {
    struct torch_view *list;
    size_t n, room;
    char *names; /* paths of keys; "" of an object that is a tensor */
    size_t names_size, names_room;
    uint64_t *shapes;
    size_t shapes_size, shapes_room;
    char error[128];
};

/* The dtype that PyTorch calls so: by a storage's class or by itself, "torch.HalfStorage",
 * "torch.float16". NULL: it is not known. */
const char *torch_dtype_name(const char *global);

/* The views of the pickle, whose storages are in members PREFIXdata/K; each stands under a name
 * once. budget: bytes that they may take. OK, BAD or MEMORY; to be freed in any case. */
enum container_result torch_find_views(struct torch_views *views, struct pickle *p,
                                       const struct zip *z, const char *prefix, uint64_t budget);

void torch_free_views(struct torch_views *views);
