/* printable.h - text that a terminal shows without interpreting it
 * SPDX-License-Identifier: MIT
 *
 * Names come from files, and may contain anything. Characters that move the cursor, change colours,
 * end the line, change the direction of writing or are invisible are escaped: \xHH is a byte that
 * is no UTF-8 or a control character, \u{HHHH} any other character.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* For a function with a format: the numbers of the format and of the first value (0: a list). */
#if defined(__GNUC__)
#define LIKE_PRINTF(format_at, first) __attribute__((format(printf, format_at, first)))
#else
#define LIKE_PRINTF(format_at, first)
#endif

/* The character at the beginning of a text, if it is valid UTF-8: no surrogate, at most U+10FFFF,
 * and in its shortest form. *used: its size in bytes; 0: it is invalid. size is at least 1. */
uint32_t read_character(const char *text, size_t size, size_t *used);

/* The character that an escape of JSON means, which begins with the u behind its backslash, as
 * UTF-8 of at most 4 bytes; a pair of surrogates is one character. Returns its size; 0: it is
 * wrong. *used: the size of the escape; if that is wrong, 0, or not 0 if a surrogate lacks the
 * other one. out may be where the escape is. */
size_t read_escaped_character(char *out, const char *text, size_t size, size_t *used);

#define DIGITS "0123456789"

static inline int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Whether a terminal does not show the character, but is controlled by it, or shows nothing. */
int is_hidden_character(uint32_t c);

/* The most bytes that one character becomes: "\u{10FFFF}". */
#define MAX_PRINTABLE 10

/* Writes the first character of a text of size bytes to out. *used: how many bytes of the text it
 * takes. Returns how many bytes of out were written. */
size_t print_character(char out[MAX_PRINTABLE], const char *text, size_t size, size_t *used);

/* Writes text and a zero, cut between characters to cap bytes. Returns the size without zero. */
size_t format_printable(char *out, size_t cap, const char *text);

/* A printable copy of size bytes of text; to be freed. NULL: out of memory. */
char *copy_printable(const char *text, size_t size);
