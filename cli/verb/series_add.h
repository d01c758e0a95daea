/* series_add.h - lmc series DIR add
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_ADD_H
#define LMC_CLI_SERIES_ADD_H

#include "../sys/platform.h"

struct series_options;

/* What it is called in the series. To be freed. */
char *name_of_source(const char *path);

/* Adds the source at path under that name. is_watched: by watch, which is content if another one
 * has done it meanwhile. */
int add_source_to_series(const char *directory, const char *path, const char *name, int is_watched,
                         const struct series_options *o);

#endif
