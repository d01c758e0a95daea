/* stats_heat.h - the chart of what part of each tensor has changed at each step
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_HEAT_H
#define LMC_CLI_STATS_HEAT_H

#include "../sys/platform.h"

struct chart;

/* Draws it. */
void plot_density(struct chart *c);

#endif
