/* SPDX-License-Identifier: MIT */
#include "stats_bars.h"

#include <stdio.h>
#include <stdlib.h>

#include "../format/scan.h"
#include "../sys/memory.h"
#include "stats_census.h"
#include "stats_chart.h"
#include "stats_svg.h"

static void describe_plane(char text[48], int kind, unsigned plane)
{
    unsigned n = lmc_dtype_width((enum lmc_dtype)kind);
    int is_exponent = find_scan_format((enum lmc_dtype)kind) && plane == n - 1 && n > 1;
    if (n > 1)
        snprintf(text, 48, "%s plane %u%s", name_kind(kind), plane,
                 is_exponent ? ", exponent" : "");
    else snprintf(text, 48, "%s", name_kind(kind));
}

/* sums: of the snapshot, of more than 0 bytes */
static void plot_bar(const struct chart *c, size_t snapshot, const struct stats_sum *sums,
                     const int *colors)
{
    double x = find_middle(c, snapshot), y = c->top + c->height,
           size = (double)sums[STATS_ALL].size;
    double half = c->step * 0.35 > 16 ? 16 : c->step * 0.35, gap = c->step >= 12 ? 1.5 : 0,
           coded = (double)sums[STATS_ALL].direct / size;
    char what[48];
    for (int kind = 0; kind < STATS_ALL; kind++)
        for (unsigned plane = 0; plane < lmc_dtype_width((enum lmc_dtype)kind); plane++) {
            double share = sums[kind].plane_sizes[plane] / size, part = share * c->height,
                   space = part > 2 * gap ? gap : 0;
            if (share <= 0) continue;
            y -= part;
            describe_plane(what, kind, plane);
            plot_plane(c, colors[kind], kind, plane, x - half, y + space, 2 * half, part - space);
            plot_title(c, snapshot, what, share);
            fputs("</rect>\n", c->plot.file);
        }
    fprintf(c->plot.file, "<path class=\"mark\" d=\"M%.2f %.2fh%.2f\">", x - half - 2,
            find_level(c, coded), 2 * half + 4);
    plot_title(c, snapshot, "coded alone", coded);
    fputs("</path>\n", c->plot.file);
}

/* shares: as a delta, of each snapshot; below 0: it is empty */
static void plot_deltas(const struct chart *c, const double *shares)
{
    int is_drawn = 0;
    fputs("<path class=\"trace\" d=\"", c->plot.file);
    for (size_t i = 1; i < c->stats->n; i++)
        if (shares[i] >= 0)
            fprintf(c->plot.file, "%s%.2f %.2f", is_drawn++ ? "L" : "M", find_middle(c, i),
                    find_level(c, shares[i]));
    fputs("\"/>\n", c->plot.file);
    for (size_t i = 1; i < c->stats->n; i++)
        if (shares[i] >= 0) {
            fprintf(c->plot.file, "<circle class=\"hot\" cx=\"%.2f\" cy=\"%.2f\" r=\"%d\">",
                    find_middle(c, i), find_level(c, shares[i]), c->step < 12 ? 2 : 4);
            plot_title(c, i, "as a delta", shares[i]);
            fputs("</circle>\n", c->plot.file);
        }
}

static void plot_percents(const struct chart *c)
{
    for (int i = 0; i <= 5; i++) {
        double y = c->top + c->height * (5 - i) / 5;
        char text[16];
        snprintf(text, sizeof text, "%d %%", 20 * i);
        fprintf(c->plot.file, "<path class=\"line\" d=\"M%.1f %.1fh%.1f\"/>\n", c->left, y,
                c->width);
        plot_label(&c->plot, "soft", c->left - 8, y + 4, "end", 0, text, 8);
    }
}

/* Returns its height; is_drawn 0: that is all. */
static double plot_legend(const struct chart *c, const int *colors, int is_drawn)
{
    double x = c->left + c->width + 24, y = c->top;
    char text[48];
    for (int kind = STATS_ALL; kind-- > 0;)
        for (unsigned plane = lmc_dtype_width((enum lmc_dtype)kind);
             plane-- > 0 && colors[kind] >= 0; y += 18)
            if (is_drawn) {
                describe_plane(text, kind, plane);
                plot_plane(c, colors[kind], kind, plane, x, y, 12, 12);
                fputs("</rect>\n", c->plot.file);
                plot_label(&c->plot, "ink", x + 20, y + 10, "start", 0, text, 48);
            }
    for (int i = 0; i < (c->stats->n > 1 ? 2 : 1); i++, y += 18)
        if (is_drawn) {
            fprintf(c->plot.file, "<path class=\"%s\" d=\"M%.1f %.1fh12\"/>\n",
                    i ? "trace" : "mark", x, y + 10);
            if (i)
                fprintf(c->plot.file, "<circle class=\"hot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n",
                        x + 6, y + 10);
            plot_label(&c->plot, "ink", x + 20, y + 14, "start", 0,
                       i ? "coded as a delta" : "coded alone", 48);
        }
    return y - c->top + 24;
}

void plot_compressibility(struct chart *c)
{
    const struct stats *s = c->stats;
    struct stats_sum *sums = (struct stats_sum *)resize(NULL, STATS_KINDS, sizeof *sums);
    double *shares = (double *)resize(NULL, s->n, sizeof *shares), below;
    int colors[STATS_ALL];
    choose_colors(colors, s);
    make_room_for_labels(c);
    c->height = 320;
    c->width = c->width < 240 ? 240 : c->width;
    below = c->height + find_label_height(c);
    begin_plot(&c->plot, c->left + c->width + 240,
               c->top + (plot_legend(c, colors, 0) > below ? plot_legend(c, colors, 0) : below),
               "Compressibility, in % of the input", "Bars: entropy of the byte planes");
    plot_percents(c);
    for (size_t i = 0; i < s->n; i++) {
        sum_step(sums, &s->steps[i]);
        shares[i] = sums[STATS_ALL].size
                        ? (double)sums[STATS_ALL].delta / (double)sums[STATS_ALL].size
                        : -1;
        if (sums[STATS_ALL].size) plot_bar(c, i, sums, colors);
    }
    if (s->n > 1) plot_deltas(c, shares);
    plot_legend(c, colors, 1);
    plot_snapshot_labels(c);
    end_plot(&c->plot);
    free(shares);
    free(sums);
}
