/* list.h - lmc -l: what is in a snapshot, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_LIST_H
#define LMC_CLI_LIST_H

#include "../sys/platform.h"

#include "../input/common.h"

struct list_options {
    struct common common;
    int json; /* --json */
};

/* Prints what is in the snapshot at path ("-": standard input, a file) to standard output. */
int list_file(const char *path, const struct list_options *options);

#endif
