/* series_prune.h - lmc series DIR prune, keep
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_PRUNE_H
#define LMC_CLI_SERIES_PRUNE_H

#include "../sys/platform.h"

struct options;

int series_prune(const char *directory, char **args, int n, const struct options *o);

int series_keep(const char *directory, char **args, int n, const struct options *o);

#endif
