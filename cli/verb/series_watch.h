/* series_watch.h - lmc series DIR watch: what appears in a directory is added when nobody writes to it any more
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_WATCH_H
#define LMC_CLI_SERIES_WATCH_H

#include "../sys/platform.h"

struct options;

int series_watch(const char *directory, char **args, int n, const struct options *o);

#endif
