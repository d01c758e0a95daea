/* series_rebuild.h - lmc series DIR rebuild: the list anew, from the files
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_REBUILD_H
#define LMC_CLI_SERIES_REBUILD_H

#include "../sys/platform.h"

struct options;

/* All that is there counts, in the order of the names. The list before stays as series.json.old. */
int series_rebuild(const char *directory, char **args, int n, const struct options *o);

#endif
