/* stats_svg.h - SVG, plain enough for any program that shows it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_SVG_H
#define LMC_CLI_STATS_SVG_H

#include "../sys/platform.h"

#include <stdio.h>

struct common;

#define PLOT_FONT 11.0     /* pixels */
#define PLOT_CHARACTER 6.7 /* width, at that size; fonts for code differ by little */
#define PLOT_COLORS 8

/* A picture in memory. */
struct plot {
    FILE *file;
    char *data;
    size_t size;
};

/* A picture in memory. */
void open_plot(struct plot *p);

void close_plot(struct plot *p);

/* At most that many characters, the last ones. Names come from files: XML gets no character of
 * theirs that it cannot hold. */
void plot_text(const struct plot *p, const char *text, size_t max);

/* The picture begins with its size, title and subtitle. */
void begin_plot(const struct plot *p, double width, double height, const char *title,
                const char *subtitle);

/* The picture is whole. */
void end_plot(const struct plot *p);

/* anchor: "start", "middle" or "end"; degrees: turned about its anchor */
void plot_label(const struct plot *p, const char *style, double x, double y, const char *anchor,
                double degrees, const char *text, size_t max);

/* Writes it to path. */
int save_plot(struct plot *p, const char *path, const struct common *o);

#endif
