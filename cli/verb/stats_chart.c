/* SPDX-License-Identifier: MIT */
#include "stats_chart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../input/base.h"
#include "../input/common.h"
#include "../sys/memory.h"
#include "stats_census.h"
#include "stats_svg.h"

/* What tells name i from the others: without the directories and the end, from a '/' or '.' on,
 * that all of them share. To be freed. */
static char *make_label(const char *const *names, size_t n, size_t i)
{
    const char *first = names[0];
    size_t size = strlen(names[i]), prefix = strlen(first), suffix = n > 1 ? prefix : 0;
    for (size_t k = 0; k < n; k++) {
        size_t length = strlen(names[k]), same = 0;
        while (same < prefix && names[k][same] == first[same]) same++;
        prefix = same;
        for (same = 0; same < suffix && same < length &&
                       names[k][length - 1 - same] == first[strlen(first) - 1 - same];)
            same++;
        suffix = same;
    }
    while (prefix && first[prefix - 1] != '/') prefix--;
    while (suffix && names[i][size - suffix] != '/' && names[i][size - suffix] != '.') suffix--;
    return prefix + suffix < size ? copy_string(names[i] + prefix, size - prefix - suffix)
                                  : copy_string(names[i], size);
}

char *name_plot(const struct stats *s, enum stats_plot which)
{
    size_t size = strlen(s->svg) + 32;
    char *path = (char *)resize(NULL, size, 1);
    snprintf(path, size, "%s-%s.svg", s->svg,
             which == PLOT_DENSITY ? "density" : "compressibility");
    return path;
}

int count_plots(const struct stats *s) { return !s->svg ? 0 : s->n > 1 ? PLOTS : PLOT_DENSITY; }

void open_chart(struct chart *c, const struct stats *s, size_t first, double left, double max_step)
{
    const char **names = (const char **)resize(NULL, s->n, sizeof *names);
    memset(c, 0, sizeof *c);
    c->stats = s;
    c->first = first;
    for (size_t i = 0; i < s->n; i++) names[i] = s->steps[i].diff.b->name;
    c->labels = (char **)resize(NULL, s->n, sizeof *c->labels);
    for (size_t i = 0; i < s->n; i++) c->labels[i] = make_label(names, s->n, i);
    free(names);
    c->left = left;
    c->top = 64;
    c->step = 900 / (double)(s->n - first);
    c->step = c->step > max_step ? max_step : c->step < 4 ? 4 : c->step;
    c->width = c->step * (double)(s->n - first);
    open_plot(&c->plot);
}

void close_chart(struct chart *c)
{
    for (size_t i = 0; i < c->stats->n; i++) free(c->labels[i]);
    free(c->labels);
    close_plot(&c->plot);
}

double find_middle(const struct chart *c, size_t snapshot)
{
    return c->left + c->step * ((double)(snapshot - c->first) + 0.5);
}

double find_level(const struct chart *c, double share)
{
    return c->top + c->height * (1 - (share > 1 ? 1 : share));
}

#define LABEL_CHARACTERS 28

double find_label_height(const struct chart *c)
{
    size_t longest = 0;
    for (size_t i = 0; i < c->stats->n; i++)
        longest = strlen(c->labels[i]) > longest ? strlen(c->labels[i]) : longest;
    return (double)(longest < LABEL_CHARACTERS ? longest : LABEL_CHARACTERS) * PLOT_CHARACTER *
               0.71 +
           30;
}

void make_room_for_labels(struct chart *c)
{
    double width = find_label_height(c) - 24;
    c->left = c->left < width ? width : c->left;
}

void plot_snapshot_labels(const struct chart *c)
{
    size_t every = (size_t)((PLOT_FONT + 3) / c->step) + 1;
    for (size_t i = c->first; i < c->stats->n; i += every)
        plot_label(&c->plot, "soft", find_middle(c, i) + 3, c->top + c->height + 14, "end", -45,
                   c->labels[i], LABEL_CHARACTERS);
}

void choose_colors(int colors[STATS_ALL], const struct stats *s)
{
    int n = 0;
    for (int kind = 0; kind < STATS_ALL; kind++) colors[kind] = -1;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->steps[i].diff.new_items.n; k++) {
            int *color = &colors[lmc_dtype_find(s->steps[i].diff.new_items.list[k].dtype)];
            if (*color < 0) *color = n < PLOT_COLORS - 1 ? n++ : PLOT_COLORS - 1;
        }
}

void plot_plane(const struct chart *c, int color, int kind, unsigned plane, double x, double y,
                double width, double height)
{
    unsigned n = lmc_dtype_width((enum lmc_dtype)kind);
    fprintf(c->plot.file,
            "<rect class=\"k%d\" fill-opacity=\"%.2f\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
            "height=\"%.2f\">",
            color, 1 - 0.7 * (n - 1 - plane) / n, x, y, width, height);
}

void plot_title(const struct chart *c, size_t snapshot, const char *what, double share)
{
    fputs("<title>", c->plot.file);
    plot_text(&c->plot, c->labels[snapshot], 80);
    fputs(": ", c->plot.file);
    plot_text(&c->plot, what, 80);
    fprintf(c->plot.file, ", %.2f %%</title>", 100 * share);
}
