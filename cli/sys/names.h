/* names.h - paths and names as texts; nothing here looks at the disk
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

/* "directory/name", or a copy of directory where name is ""; NULL if there is no memory. */
char *try_join_path(const char *directory, const char *name);

/* The same, which never fails. To be freed. */
char *join_path(const char *directory, const char *name);

#define SUFFIX ".lmc"

/* Whether the name ends with it, and is more than that. */
int is_suffix_of(const char *suffix, const char *name);

/* The same for SUFFIX. */
int has_suffix(const char *path);

/* "-": standard input or output. */
int is_dash(const char *path);

/* "." or "..". */
int is_dot(const char *name);

#define DIGITS "0123456789"

int is_digit(char c);

/* The directory that path is in: "." if it names none. To be freed. */
char *directory_of(const char *path);

/* Order in which numbers count: step_9 before step_10. */
int compare_names(const char *a, const char *b);

/* The same for qsort(), of structs that begin with a name. */
int compare_numbered(const void *a, const void *b);

/* Order by components: what is below a directory comes right behind it. */
int compare_paths(const char *a, const char *b);

/* Whether one resolved path is the other, or lies below it. */
int is_at_or_below(const char *path, const char *directory);

/* The path without slashes at its end. To be freed. */
char *copy_without_slashes(const char *path);

/* The part behind the last slash; points into path. */
const char *base_name(const char *path);

/* A number of decimal digits and nothing else, from least to 2^63 - 1; 0: it is none. */
int parse_count(uint64_t *count, const char *text, uint64_t least);
