/* names.h - paths and names as texts; nothing here looks at the disk
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_NAMES_H
#define LMC_CLI_NAMES_H

#include "platform.h"

/* "directory/name", or a copy of directory where name is ""; NULL if there is no memory. */
char *try_join_path(const char *directory, const char *name);

/* The same, which never fails. To be freed. */
char *join_path(const char *directory, const char *name);

#define SUFFIX ".lmc"

int has_suffix(const char *path);

int is_dash(const char *path);

int is_dot(const char *name);

#define DIGITS "0123456789"

int is_digit(char c);

char *directory_of(const char *path);

/* Order in which numbers count: step_9 before step_10. */
int compare_names(const char *a, const char *b);

char *copy_without_slashes(const char *path);

const char *base_name(const char *path);

#endif
