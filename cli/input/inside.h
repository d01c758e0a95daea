/* inside.h - what the container in a file of a snapshot says itself
 * SPDX-License-Identifier: MIT
 *
 * A snapshot lists tensors, each with bytes of its own. The file that it was made of may know more:
 * names that share bytes, orders of dimensions. This reads that from the file within the snapshot.
 */
#pragma once

#include "../sys/platform.h"

#include "../../formats/container.h"

struct archive;

/* What the file of that number holds: views of PyTorch; else nothing. Returns 1 if so: then it is
 * to be freed by container_free(). What cannot be read (a base is missing, the file is damaged)
 * holds nothing, nor does what says more than the file's weight allows (formats/container.h); with
 * -v that is said. What all files of the archive say is bounded, too: beyond that,
 * a->is_inside_cut.
 */
int look_inside(struct container *c, struct archive *a, size_t file);
