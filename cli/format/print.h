/* print.h - names and numbers on standard output
 * SPDX-License-Identifier: MIT
 *
 * Names come from files: what a terminal would obey, or hide, is escaped (formats/printable.h).
 */
#pragma once

#include "../sys/platform.h"

/* 100 for a part of nothing. */
double percent(uint64_t part, uint64_t whole);

/* "1.4 MB"; text has SIZE_TEXT bytes or more. */
#define SIZE_TEXT 16
void format_size(char *text, size_t cap, uint64_t size);

/* "[3,4]", cut to fit; of LMC_MAX_RANK * 21 + 3 bytes it is whole. */
void format_shape(char *text, size_t cap, const lmc_tensor *t);

/* As a terminal may have it. */
void print_name(const char *name);
void print_text(const void *text, size_t size);

/* The first column of a line: a dtype, which is a string from the file, too, or another word. */
void print_dtype(const char *dtype);

/* -- numbers in hexadecimal digits -- */

/* text: of 2 * size + 1 bytes */
void format_hex(char *text, const void *data, size_t size);

/* The same for a fingerprint. */
void format_fingerprint(char text[2 * LMC_FINGERPRINT_SIZE + 1], const uint8_t *fingerprint);

/* FNV-1a: goes on from hash, which begins as 0xCBF29CE484222325. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);

/* The fingerprint of which text is the form that format_fingerprint() gives; 0: it is none. */
int parse_fingerprint(uint8_t *fingerprint, const char *text);
