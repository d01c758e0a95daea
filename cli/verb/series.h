/* series.h - lmc series: a directory of snapshots kept as anchors and deltas between
 * SPDX-License-Identifier: MIT
 *
 * Nothing goes before what replaces it is on the disk: a source is removed after its snapshot has
 * been compared with it and is confirmed in the list; a snapshot that was forgotten, after all kept
 * ones do without it.
 */
#ifndef LMC_CLI_SERIES_H
#define LMC_CLI_SERIES_H

#include "../sys/platform.h"

struct options;

/* Options that the verb does not know would be ignored. */
int check_series_options(char **files, int n_files, const struct options *o);

int run_series(char **files, int n_files, const struct options *o);

#endif
