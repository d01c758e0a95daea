/* dump_payload.h - what a block is made of: planes, trees, nodes, masks (spec 7, 8)
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_DUMP_PAYLOAD_H
#define LMC_CLI_DUMP_PAYLOAD_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

struct payload_block {
    unsigned coding, prediction, grouping;
    uint32_t n_elements;
};

/* Prints the payload, size bytes, at offset of the file. NULL, or what is wrong with it, at *where.
 */
const char *print_payload(const struct payload_block *block, const unsigned char *payload,
                          size_t size, uint64_t offset, uint64_t *where);

#endif
