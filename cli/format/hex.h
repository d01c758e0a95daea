/* hex.h - bytes as hexadecimal digits, and a hash
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../lmc.h"

/* text: of 2 * size + 1 bytes */
void format_hex(char *text, const void *data, size_t size);

/* The same for a fingerprint. */
void format_fingerprint(char text[2 * LMC_FINGERPRINT_SIZE + 1], const uint8_t *fingerprint);

/* FNV-1a: goes on from hash, which begins as 0xCBF29CE484222325. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);

/* The fingerprint of which text is the form that format_fingerprint() gives; 0: it is none. */
int parse_fingerprint(uint8_t *fingerprint, const char *text);
