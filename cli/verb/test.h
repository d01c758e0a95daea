/* test.h - lmc -t: whether a snapshot can be restored
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_TEST_H
#define LMC_CLI_TEST_H

#include "../sys/platform.h"

struct common;

/* Restores the snapshot at path ("-": standard input) to nowhere. CODE_OK: it is whole. */
int test_file(const char *path, const struct common *o);

#endif
