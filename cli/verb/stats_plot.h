/* stats_plot.h - the pictures of lmc stats
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_PLOT_H
#define LMC_CLI_STATS_PLOT_H

#include "../sys/platform.h"

struct stats;

/* Before anything is measured. */
int check_plots(const struct stats *s);

/* Writes those that were asked for. */
int write_plots(const struct stats *s);

#endif
