/* cat_view.h - tensors of PyTorch whose elements lie otherwise than their shape tells
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_CAT_VIEW_H
#define LMC_CLI_CAT_VIEW_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../../lmc.h"
#include "../../formats/container.h"
#include "cat_slice.h"

struct archive;

/* The view of that name; NULL: there is none. */
const struct container_view *find_container_view(const struct container *c, const char *name);

/* The tensor that the view is: name, dtype, shape and size, in the order of its shape. */
void describe_view(lmc_tensor *t, const struct container_view *view);

/* Hands the elements of a slice of the view to write(), in the order of its shape, some at a time.
 * write() returns an exit code. All from the first to the last of them is in memory. */
int copy_view(struct archive *a, size_t file, const struct container_view *view,
              const struct slice *slice, int (*write)(void *user, const void *data, size_t size),
              void *user);

#endif
