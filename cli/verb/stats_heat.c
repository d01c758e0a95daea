/* SPDX-License-Identifier: MIT */
#include "stats_heat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../format/scan.h"
#include "../job/difference.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "stats_census.h"
#include "stats_chart.h"
#include "stats_svg.h"

/* A line of the heat map: a tensor, in as many snapshots as it is found again. */
struct heat_line {
    const struct diff_item *item; /* where it is found first */
    size_t number;                /* before they are sorted */
    size_t first, last;           /* snapshots that have it */
    int is_shown;                 /* it was compared */
};

static int compare_heat_lines(const void *a, const void *b)
{
    const struct heat_line *x = (const struct heat_line *)a, *y = (const struct heat_line *)b;
    int order = compare_names(x->item->name, y->item->name);
    if (order == 0) order = compare_names(x->item->path, y->item->path);
    return order ? order : x->number < y->number ? -1 : 1;
}

struct heat {
    struct heat_line *lines;
    size_t n_lines;
    size_t **line_of; /* of each snapshot's items: a line's number */
    size_t *place_of; /* of each line: its place among those that are shown */
    size_t n_shown;
};

/* Whether a tensor that was gone is there again: it goes on in the same line. */
static int is_continued(const struct heat_line *a, const struct heat_line *b)
{
    return strcmp(a->item->name, b->item->name) == 0 && strcmp(a->item->path, b->item->path) == 0 &&
           a->last < b->first;
}

static void find_heat_lines(struct heat *h, const struct stats *s)
{
    size_t room = 0;
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < s->n; i++) room += s->steps[i].diff.new_items.n;
    h->lines = (struct heat_line *)resize(NULL, room, sizeof *h->lines);
    h->line_of = (size_t **)resize(NULL, s->n, sizeof *h->line_of);
    for (size_t i = 0; i < s->n; i++) {
        const struct diff *d = &s->steps[i].diff;
        h->line_of[i] = (size_t *)resize(NULL, d->new_items.n, sizeof **h->line_of);
        for (size_t k = 0; k < d->new_items.n; k++) {
            if (d->rows[k].old) {
                h->line_of[i][k] = h->line_of[i - 1][d->rows[k].old - d->old_items.list];
            } else {
                h->line_of[i][k] = h->n_lines;
                h->lines[h->n_lines].item = d->rows[k].item;
                h->lines[h->n_lines].number = h->n_lines;
                h->lines[h->n_lines].first = i;
                h->lines[h->n_lines++].is_shown = 0;
            }
            h->lines[h->line_of[i][k]].last = i;
            if (d->rows[k].old && d->rows[k].n) h->lines[h->line_of[i][k]].is_shown = 1;
        }
    }
    qsort(h->lines, h->n_lines, sizeof *h->lines, compare_heat_lines);
    h->place_of = (size_t *)resize(NULL, h->n_lines, sizeof *h->place_of);
    for (size_t i = 0; i < h->n_lines; i++)
        if (h->lines[i].is_shown) {
            if (h->n_shown && is_continued(&h->lines[h->n_shown - 1], &h->lines[i]))
                h->lines[h->n_shown - 1].last = h->lines[i].last;
            else h->lines[h->n_shown++] = h->lines[i];
            h->place_of[h->lines[i].number] = h->n_shown - 1;
        }
}

static void free_heat(struct heat *h, const struct stats *s)
{
    for (size_t i = 0; i < s->n; i++) free(h->line_of[i]);
    free(h->line_of);
    free(h->place_of);
    free(h->lines);
}

#define HEAT_HEIGHT 15.0
#define HEAT_CHARACTERS 72

/* "NAME in PATH", where there are several of that name. To be freed. */
static char *name_heat_line(const struct heat *h, size_t i)
{
    const struct diff_item *item = h->lines[i].item;
    int is_alone = (i == 0 || strcmp(h->lines[i - 1].item->name, item->name) != 0) &&
                   (i + 1 == h->n_shown || strcmp(h->lines[i + 1].item->name, item->name) != 0);
    size_t size = strlen(item->name) + strlen(item->path) + 32;
    char *text = (char *)resize(NULL, size, 1);
    snprintf(text, size, "%s%s%s", *item->name ? item->name : "(all)",
             is_alone || !*item->path ? "" : " in ", is_alone ? "" : item->path);
    return text;
}

/* 0.01 % and less to 100 %, by the logarithm. */
static double find_heat(double share)
{
    return share > 1e-4 ? 1 - find_log2(1 / share) * 0.3010299957 / 4 : 0;
}

static void plot_heat_scale(const struct chart *c, double y)
{
    static const char *const ticks[] = {"0.01 %", "0.1 %", "1 %", "10 %", "100 %"};
    for (int i = 0; i < 32; i++)
        fprintf(c->plot.file,
                "<rect class=\"k0\" fill-opacity=\"%.3f\" x=\"%.1f\" y=\"%.1f\" width=\"8\" "
                "height=\"10\"/>\n",
                0.06 + 0.94 * i / 31, c->left + 20 + 8 * i, y);
    for (int i = 0; i < 5; i++)
        plot_label(&c->plot, "soft", c->left + 20 + 64 * i, y + 24, "middle", 0, ticks[i], 8);
    fprintf(c->plot.file,
            "<rect class=\"line\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"10\"/>\n",
            c->left + 320, y);
    plot_label(&c->plot, "soft", c->left + 340, y + 9, "start", 0, "unchanged", 10);
}

void plot_density(struct chart *c)
{
    const struct stats *s = c->stats;
    struct heat h;
    size_t longest = 12;
    find_heat_lines(&h, s);
    for (size_t i = 0; i < h.n_shown; i++) {
        char *text = name_heat_line(&h, i);
        longest = strlen(text) > longest ? strlen(text) : longest;
        free(text);
    }
    c->left = (double)(longest < HEAT_CHARACTERS ? longest : HEAT_CHARACTERS) * PLOT_CHARACTER + 28;
    make_room_for_labels(c);
    c->top = 100;
    c->height = HEAT_HEIGHT * (double)h.n_shown;
    begin_plot(&c->plot, c->left + (c->width < 420 ? 420 : c->width) + 24,
               c->top + c->height + find_label_height(c), "Change density",
               "Share of the elements that differ from the snapshot before");
    plot_heat_scale(c, 58);
    for (size_t i = 0; i < h.n_shown; i++) {
        char *text = name_heat_line(&h, i);
        plot_label(&c->plot, "ink", c->left - 8, c->top + HEAT_HEIGHT * (double)i + 11, "end", 0,
                   text, HEAT_CHARACTERS);
        free(text);
    }
    for (size_t i = 1; i < s->n; i++)
        for (size_t k = 0; k < s->steps[i].diff.new_items.n; k++) {
            const struct diff_row *row = &s->steps[i].diff.rows[k];
            double share = row->n ? (double)row->n_changed / (double)row->n : 0,
                   gap = c->step >= 8 ? 1 : 0;
            size_t place;
            if (!row->old || !row->n) continue;
            place = h.place_of[h.line_of[i][k]];
            fprintf(c->plot.file,
                    "<rect class=\"%s\" fill-opacity=\"%.3f\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                    "height=\"%.2f\">",
                    share > 0 ? "k0" : "line", 0.06 + 0.94 * find_heat(share),
                    c->left + c->step * (double)(i - 1), c->top + HEAT_HEIGHT * (double)place,
                    c->step - gap, HEAT_HEIGHT - 1);
            plot_title(c, i, row->item->name, share);
            fputs("</rect>\n", c->plot.file);
        }
    plot_snapshot_labels(c);
    end_plot(&c->plot);
    free_heat(&h, s);
}
