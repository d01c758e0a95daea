/* npy.h - NumPy: magic, version, size of the header, a Python dictionary, the data
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "container.h"

/* See container_parse(): data is the beginning of the file, size bytes of file_size. The storage is
 * to be freed whatever is returned. */
enum container_result container_parse_npy(struct container *c, const unsigned char *data,
                                          size_t size, uint64_t file_size);

/* bf16 and the 8-bit floats have no type in NumPy; it saves them as raw bytes of that width, and so
 * do we. */
const char *npy_descr(const char *dtype);
