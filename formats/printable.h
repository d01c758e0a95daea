/* printable.h - text that a terminal shows as it is, and does not obey
 * SPDX-License-Identifier: MIT
 *
 * Names come from files, and may hold anything. What would move the cursor, change colours, end the
 * line, turn the direction of writing or not be seen is escaped: \xHH for a byte that is no UTF-8
 * or a control character, \u{HHHH} for a character.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of a function that takes a format: which argument that is, and the first behind it; 0: a list. */
#if defined(__GNUC__)
#define LIKE_PRINTF(format_at, first) __attribute__((format(printf, format_at, first)))
#else
#define LIKE_PRINTF(format_at, first)
#endif

/* The character at the beginning of a text, if that is UTF-8: no surrogate, nothing beyond the last
 * one, and in its shortest form. *used: its bytes; 0: it is none. size is at least 1. */
uint32_t read_character(const char *text, size_t size, size_t *used);

/* The bytes that one character of the text becomes, at most: "\u{10FFFF}". */
#define MAX_PRINTABLE 10

/* The first character of a text of size bytes, to out; *used: how many bytes of the text it has.
 * Returns the size of what is in out. */
size_t print_character(char out[MAX_PRINTABLE], const char *text, size_t size, size_t *used);

/* A text, cut between characters to cap bytes with the zero behind. Returns its size without that.
 */
size_t format_printable(char *out, size_t cap, const char *text);

/* All of a text of size bytes; to be freed. NULL: memory has run out. */
char *copy_printable(const char *text, size_t size);
