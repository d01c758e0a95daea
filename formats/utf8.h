/* utf8.h - characters of texts
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The character at the beginning of a text, if that is UTF-8: no surrogate, nothing beyond the last
 * one, and in its shortest form. *used: its bytes; 0: it is none. size is at least 1. */
uint32_t read_character(const char *text, size_t size, size_t *used);
