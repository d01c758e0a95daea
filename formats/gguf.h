/* gguf.h - GGUF: magic, version, counts, metadata, tensor infos, padding, data
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_FORMATS_GGUF_H
#define LMC_FORMATS_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "container.h"

/* See container_parse(): data is the beginning of the file, size bytes of file_size. The storage is
 * to be freed whatever is returned. */
enum container_result container_parse_gguf(struct container *c, const unsigned char *data,
                                           size_t size, uint64_t file_size);

#endif
