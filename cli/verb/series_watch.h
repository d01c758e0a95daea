/* series_watch.h - lmc series DIR watch: adds what appears in a directory, once it is settled
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_WATCH_H
#define LMC_CLI_SERIES_WATCH_H

#include "../sys/platform.h"

struct options;

int series_watch(const char *directory, char **args, int n, const struct options *o);

#endif
