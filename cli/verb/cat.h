/* cat.h - lmc cat: the bytes of one tensor, or of a slice of it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_CAT_H
#define LMC_CLI_CAT_H

#include "../sys/platform.h"

#include "../input/common.h"

struct cat_options {
    struct common common;
    int npy;          /* --npy: with a header of NumPy before it */
    const char *file; /* --file: the file that has the tensor; NULL: whichever has it */
};

/* Writes the tensor called name, which may have a slice behind it, of the snapshot at path. name
 * NULL: the only tensor. */
int cat_tensor(const char *path, const char *name, const struct cat_options *options);

#endif
