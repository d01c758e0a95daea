/* hex.h - bytes as hexadecimal digits, and a hash
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_HEX_H
#define LMC_CLI_HEX_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"

/* text: of 2 * size + 1 bytes */
void format_hex(char *text, const void *data, size_t size);

void format_identity(char text[2 * LMC_IDENTITY_SIZE + 1], const uint8_t *identity);

uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);

int parse_identity(uint8_t *identity, const char *text);

#endif
