/* series_list.h - lmc series DIR list
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_LIST_H
#define LMC_CLI_SERIES_LIST_H

#include "../sys/platform.h"

struct options;

int series_list(const char *directory, char **args, int n, const struct options *o);

#endif
