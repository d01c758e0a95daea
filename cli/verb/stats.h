/* stats.h - lmc stats: what snapshots are made of, as table, JSON or pictures
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_H
#define LMC_CLI_STATS_H

#include "../sys/platform.h"

#include <stddef.h>

struct options;

int show_stats(char *const *names, size_t n, const struct options *o);

#endif
