/* cat.h - lmc cat: tensors of a snapshot, or a slice of one
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

struct cat_options {
    struct common common;
    int npy;          /* --npy: with a header of NumPy before it */
    int f32;          /* --f32: floats of 8 and 16 bits become floats of 32 */
    int safetensors;  /* --safetensors: a file of whole tensors */
    const char *file; /* --file: the file that has the tensor; NULL: whichever has it */
};

/* Writes the tensor called name, which may have a slice behind it, of the snapshot at path. name
 * NULL: the only tensor; with --file, that file as it is. With --safetensors the names are
 * patterns, and all tensors that one of them matches are written. */
int cat_tensors(const char *path, char *const *names, size_t n, const struct cat_options *options);
