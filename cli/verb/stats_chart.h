/* stats_chart.h - what all charts have in common: panels, labels, scales
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_CHART_H
#define LMC_CLI_STATS_CHART_H

#include "../sys/platform.h"

#include <stddef.h>

#include "stats_census.h"
#include "stats_svg.h"

enum stats_plot { PLOT_COMPRESSIBILITY, PLOT_DENSITY, PLOTS };

/* Its path. To be freed. */
char *name_plot(const struct stats *s, enum stats_plot which);

/* Density takes two snapshots. */
int count_plots(const struct stats *s);

/* The snapshots stand beside each other, a step each. */
struct chart {
    struct plot plot;
    const struct stats *stats;
    char **labels;                         /* of the snapshots */
    size_t first;                          /* snapshot that is shown */
    double left, top, width, height, step; /* of what is drawn, without labels */
};

/* A panel for each snapshot from first on; left: room for labels there; max_step: the widest
 * panel. */
void open_chart(struct chart *c, const struct stats *s, size_t first, double left, double max_step);

void close_chart(struct chart *c);

/* Of a snapshot's column. */
double find_middle(const struct chart *c, size_t snapshot);

/* More than all, as a few bytes may take, is drawn at the upper edge. */
double find_level(const struct chart *c, double share);

/* Of the labels below the panels. */
double find_label_height(const struct chart *c);

/* The first one begins left of what it names. */
void make_room_for_labels(struct chart *c);

/* As many as there is room for. */
void plot_snapshot_labels(const struct chart *c);

/* What a dtype is drawn in; those that are not there: -1. */
void choose_colors(int colors[STATS_ALL], const struct stats *s);

/* A box; lower planes are paler. Left open for a title. */
void plot_plane(const struct chart *c, int color, int kind, unsigned plane, double x, double y,
                double width, double height);

/* Above the panel of a snapshot. */
void plot_title(const struct chart *c, size_t snapshot, const char *what, double share);

#endif
