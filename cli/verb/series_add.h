/* series_add.h - lmc series DIR add
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_ADD_H
#define LMC_CLI_SERIES_ADD_H

#include "../sys/platform.h"

struct options;

/* What it is called in the series. To be freed. */
char *name_of_source(const char *path);

int add_source_to_series(const char *directory, const char *path, const char *name, int is_watched,
                         const struct options *o);

int series_add(const char *directory, char **args, int n, const struct options *o);

#endif
