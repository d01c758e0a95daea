/* test.h - lmc -t: whether a snapshot can be restored
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_TEST_H
#define LMC_CLI_TEST_H

#include "../sys/platform.h"

struct options;

int test_file(const char *path, const struct options *o);

#endif
