/* tensors.h - lists of lmc_tensor
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

/* A copy in one piece of memory, strings and shapes included; NULL for none. */
lmc_tensor *copy_tensors(const lmc_tensor *from, size_t n);

int is_same_shape(const lmc_tensor *a, const lmc_tensor *b);

/* Same dtype, size and shape. */
int is_same_kind(const lmc_tensor *a, const lmc_tensor *b);

void sort_by_path(const lmc_file **list, size_t n);

/* The files in the order of their paths. To be freed. */
const lmc_file **sort_files(const lmc_base *files);

/* For messages and JSON. */
const char *name_measure(const lmc_loss *loss);

/* How many tensors of the file were quantised. */
size_t count_lossy(const lmc_file *f);
