/* series_restore.h - lmc series DIR restore, cat, verify
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_RESTORE_H
#define LMC_CLI_SERIES_RESTORE_H

#include "../sys/platform.h"

struct options;

int series_restore(const char *directory, char **args, int n, const struct options *o);

int series_cat(const char *directory, char **args, int n, const struct options *o);

int series_verify(const char *directory, char **args, int n, const struct options *o);

#endif
