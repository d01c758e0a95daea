/* safetensors.h - safetensors: u64 size of the JSON, the JSON, the data
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "container.h"

/* See container_parse(): data is the beginning of the file, size bytes of file_size. The storage is
 * to be freed whatever is returned. */
enum container_result container_parse_safetensors(struct container *c, const unsigned char *data,
                                                  size_t size, uint64_t file_size);
