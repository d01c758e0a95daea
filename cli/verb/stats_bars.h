/* stats_bars.h - the chart of how far each byte plane of each snapshot can be compressed
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_BARS_H
#define LMC_CLI_STATS_BARS_H

#include "../sys/platform.h"

struct chart;

/* Stacked: the bytes that the planes' entropies come to, and what coding takes. */
void plot_compressibility(struct chart *c);

#endif
