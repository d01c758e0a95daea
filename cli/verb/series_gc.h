/* series_gc.h - lmc series DIR gc: files of forgotten snapshots go, and nothing needs them
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_GC_H
#define LMC_CLI_SERIES_GC_H

#include "../sys/platform.h"

struct options;

int series_gc(const char *directory, char **args, int n, const struct options *o);

#endif
