/* cat.h - lmc cat: the bytes of one tensor, or of a slice of it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_CAT_H
#define LMC_CLI_CAT_H

#include "../sys/platform.h"

struct options;

/* name NULL: the only tensor. */
int cat_tensor(const char *path, const char *name, const struct options *o);

#endif
