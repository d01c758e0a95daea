/* print.h - names and numbers on standard output
 * SPDX-License-Identifier: MIT
 *
 * Names come from files, so what a terminal would obey or hide is escaped (formats/printable.h).
 */
#pragma once

#include "../sys/platform.h"

/* 100 * part / whole; 100 if whole is 0. */
double percent(uint64_t part, uint64_t whole);

/* "1.4 MB"; text has SIZE_TEXT bytes or more. */
#define SIZE_TEXT 16
void format_size(char *text, size_t cap, uint64_t size);

/* "[3,4]", cut to fit; LMC_MAX_RANK * 21 + 3 bytes are enough for any shape. */
void format_shape(char *text, size_t cap, const lmc_tensor *t);

/* Like printf(), but escapes its whole output, except a line feed at the end of the format. */
LIKE_PRINTF(1, 2) void print(const char *format, ...);

/* -- numbers in hexadecimal digits -- */

/* Returns text, which needs 2 * size + 1 bytes. */
char *format_hex(char *text, const void *data, size_t size);

/* -- lists of lmc_tensor (tensors.c) -- */

/* A copy, with strings and shapes, in one piece of memory; NULL if n is 0. */
lmc_tensor *copy_tensors(const lmc_tensor *from, size_t n);

/* Whether both have the same dtype, size and shape. */
int is_same_kind(const lmc_tensor *a, const lmc_tensor *b);

void sort_by_path(const lmc_file **list, size_t n);

/* The files in the order of their paths. To be freed. */
const lmc_file **sort_files(const lmc_base *files);

/* The name of the measure of a loss, for messages and JSON. */
const char *name_measure(const lmc_loss *loss);

/* How many tensors of the file were quantised. */
size_t count_lossy(const lmc_file *f);
