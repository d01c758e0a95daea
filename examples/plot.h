/* plot.h - the pictures of lmc stats: SVG, plain and self-contained, readable on light and dark ground
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_PLOT_H
#define LMC_PLOT_H

#include "census.h"

#define PLOT_FONT 11.0           /* pixels */
#define PLOT_CHARACTER 6.7       /* width, at that size; fonts for code differ by little */
#define PLOT_COLORS 8

/* A picture in memory. */
struct plot {
    FILE *file;
    char *data;
    size_t size;
};

/* Colours that differ for all eyes and on both grounds; .kN for kinds, .hot for what the picture is about. */
static const char plot_style[] =
    "<style>"
    "svg{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".ground{fill:#fcfcfb}.ink{fill:#0b0b0b}.soft{fill:#52514e}.line{stroke:#d9d8d2;fill:none}.mark{stroke:#0b0b0b;stroke-width:2}"
    ".hot{fill:#eb6834}.trace{stroke:#eb6834;stroke-width:2;fill:none}.k0{fill:#2a78d6}.k1{fill:#1baf7a}.k2{fill:#eda100}.k3{fill:#4a3aa7}"
    ".k4{fill:#e34948}.k5{fill:#008300}.k6{fill:#e87ba4}.k7{fill:#8a8984}"
    "@media(prefers-color-scheme:dark){.ground{fill:#1a1a19}.ink{fill:#fff}.soft{fill:#c3c2b7}.line{stroke:#3a3a37}.mark{stroke:#fff}"
    ".hot{fill:#d95926}.trace{stroke:#d95926}.k0{fill:#3987e5}.k1{fill:#199e70}.k2{fill:#c98500}.k3{fill:#9085e9}.k4{fill:#e66767}"
    ".k6{fill:#d55181}}"
    "</style>\n";

static void open_plot(struct plot *p)
{
    memset(p, 0, sizeof *p);
    p->file = (FILE *)check_memory(open_memstream(&p->data, &p->size));
}

static void close_plot(struct plot *p)
{
    if (p->file && fclose(p->file) != 0)
        check_memory(NULL);
    free(p->data);
}

/* At most that many characters, the last ones. Names come from files: XML gets no character of theirs that it cannot hold. */
static void plot_text(const struct plot *p, const char *text, size_t max)
{
    json_t *clean = make_json_string(text, strlen(text));
    const char *at = json_string_value(clean);
    size_t n = 0;
    for (const char *c = at; *c; c++)
        n += ((unsigned char)*c & 0xC0) != 0x80;
    if (n > max) {
        fputs("\xE2\x80\xA6", p->file);
        for (n -= max - 1; n; at++)
            n -= ((unsigned char)at[1] & 0xC0) != 0x80;
    }
    for (; *at; at++) {
        int is_no_character = strncmp(at, "\xEF\xBF\xBE", 3) == 0 || strncmp(at, "\xEF\xBF\xBF", 3) == 0; /* U+FFFE, U+FFFF */
        if (*at == '<' || *at == '>' || *at == '&' || *at == '"' || *at == '\'')
            fprintf(p->file, "&#%d;", *at);
        else
            putc((unsigned char)*at < 32 || *at == 127 || is_no_character ? '?' : *at, p->file);
        at += is_no_character ? 2 : 0;
    }
    json_decref(clean);
}

static void begin_plot(const struct plot *p, double width, double height, const char *title, const char *subtitle)
{
    fprintf(p->file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\">\n<title>%s</title>\n%s",
            width, height, width, height, title, plot_style);
    fprintf(p->file, "<rect class=\"ground\" width=\"%.0f\" height=\"%.0f\"/>\n<text class=\"ink\" x=\"16\" y=\"24\" style=\"font-size:14px;font-weight:600\">%s</text>\n"
            "<text class=\"soft\" x=\"16\" y=\"42\">%s</text>\n", width, height, title, subtitle);
}

static void end_plot(const struct plot *p)
{
    fputs("</svg>\n", p->file);
}

/* anchor: "start", "middle" or "end"; degrees: turned about its anchor */
static void plot_label(const struct plot *p, const char *style, double x, double y, const char *anchor, double degrees, const char *text, size_t max)
{
    fprintf(p->file, "<text class=\"%s\" text-anchor=\"%s\" ", style, anchor);
    if (degrees != 0)
        fprintf(p->file, "transform=\"translate(%.1f %.1f) rotate(%.0f)\">", x, y, degrees);
    else
        fprintf(p->file, "x=\"%.1f\" y=\"%.1f\">", x, y);
    plot_text(p, text, max);
    fputs("</text>\n", p->file);
}

static int save_plot(struct plot *p, const char *path, const struct options *o)
{
    struct output out;
    struct attributes attributes;
    int code = open_output(&out, path, NULL, o->force), error;
    if (code != CODE_OK)
        return code;
    if (fflush(p->file) != 0) /* now data and size are those of the whole */
        check_memory(NULL);
    memset(&attributes, 0, sizeof attributes);
    error = write_output(&out, p->data, p->size);
    if (!error)
        return commit_output(&out, &attributes);
    code = fail_output(&out, error);
    discard_output(&out);
    return code;
}

/* -- names -- */

/* What tells name i from the others: without the directories and the end, from a '/' or '.' on, that all of them share. To be freed. */
static char *make_label(const char *const *names, size_t n, size_t i)
{
    const char *first = names[0];
    size_t size = strlen(names[i]), prefix = strlen(first), suffix = n > 1 ? prefix : 0;
    for (size_t k = 0; k < n; k++) {
        size_t length = strlen(names[k]), same = 0;
        while (same < prefix && names[k][same] == first[same])
            same++;
        prefix = same;
        for (same = 0; same < suffix && same < length && names[k][length - 1 - same] == first[strlen(first) - 1 - same];)
            same++;
        suffix = same;
    }
    while (prefix && first[prefix - 1] != '/')
        prefix--;
    while (suffix && names[i][size - suffix] != '/' && names[i][size - suffix] != '.')
        suffix--;
    return prefix + suffix < size ? copy_string(names[i] + prefix, size - prefix - suffix) : copy_string(names[i], size);
}

/* -- charts -- */

enum stats_plot { PLOT_COMPRESSIBILITY, PLOT_DENSITY, PLOTS };

static char *name_plot(const struct stats *s, enum stats_plot which)
{
    size_t size = strlen(s->o->svg) + 32;
    char *path = (char *)resize(NULL, size, 1);
    snprintf(path, size, "%s-%s.svg", s->o->svg, which == PLOT_DENSITY ? "density" : "compressibility");
    return path;
}

/* Density takes two snapshots. */
static int count_plots(const struct stats *s)
{
    return !s->o->svg ? 0 : s->n > 1 ? PLOTS : PLOT_DENSITY;
}

/* Before anything is measured. */
static int check_plots(const struct stats *s)
{
    int code = CODE_OK;
    for (int which = 0; which < count_plots(s) && code == CODE_OK; which++) {
        char *path = name_plot(s, (enum stats_plot)which);
        code = check_output(path, NULL, s->o->force);
        if (code == CODE_OK)
            code = protect_bases(NULL, path, 0, s->o);
        free(path);
    }
    return code;
}

/* The snapshots stand beside each other, a step each. */
struct chart {
    struct plot plot;
    const struct stats *stats;
    char **labels; /* of the snapshots */
    size_t first;  /* snapshot that is shown */
    double left, top, width, height, step; /* of what is drawn, without labels */
};

static void open_chart(struct chart *c, const struct stats *s, size_t first, double left, double max_step)
{
    const char **names = (const char **)resize(NULL, s->n, sizeof *names);
    memset(c, 0, sizeof *c);
    c->stats = s;
    c->first = first;
    for (size_t i = 0; i < s->n; i++)
        names[i] = s->steps[i].diff.b->name;
    c->labels = (char **)resize(NULL, s->n, sizeof *c->labels);
    for (size_t i = 0; i < s->n; i++)
        c->labels[i] = make_label(names, s->n, i);
    free(names);
    c->left = left;
    c->top = 64;
    c->step = 900 / (double)(s->n - first);
    c->step = c->step > max_step ? max_step : c->step < 4 ? 4 : c->step;
    c->width = c->step * (double)(s->n - first);
    open_plot(&c->plot);
}

static void close_chart(struct chart *c)
{
    for (size_t i = 0; i < c->stats->n; i++)
        free(c->labels[i]);
    free(c->labels);
    close_plot(&c->plot);
}

/* Of a snapshot's column. */
static double find_middle(const struct chart *c, size_t snapshot)
{
    return c->left + c->step * ((double)(snapshot - c->first) + 0.5);
}

/* More than all, as a few bytes may take, is drawn at the upper edge. */
static double find_level(const struct chart *c, double share)
{
    return c->top + c->height * (1 - (share > 1 ? 1 : share));
}

#define LABEL_CHARACTERS 28

static double find_label_height(const struct chart *c)
{
    size_t longest = 0;
    for (size_t i = 0; i < c->stats->n; i++)
        longest = strlen(c->labels[i]) > longest ? strlen(c->labels[i]) : longest;
    return (double)(longest < LABEL_CHARACTERS ? longest : LABEL_CHARACTERS) * PLOT_CHARACTER * 0.71 + 30;
}

/* The first one begins left of what it names. */
static void make_room_for_labels(struct chart *c)
{
    double width = find_label_height(c) - 24;
    c->left = c->left < width ? width : c->left;
}

/* As many as there is room for. */
static void plot_snapshot_labels(const struct chart *c)
{
    size_t every = (size_t)((PLOT_FONT + 3) / c->step) + 1;
    for (size_t i = c->first; i < c->stats->n; i += every)
        plot_label(&c->plot, "soft", find_middle(c, i) + 3, c->top + c->height + 14, "end", -45, c->labels[i], LABEL_CHARACTERS);
}

/* What a dtype is drawn in; those that are not there: -1. */
static void choose_colors(int colors[STATS_ALL], const struct stats *s)
{
    int n = 0;
    for (int kind = 0; kind < STATS_ALL; kind++)
        colors[kind] = -1;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->steps[i].diff.new_items.n; k++) {
            int *color = &colors[lmc_find_dtype(s->steps[i].diff.new_items.list[k].dtype)];
            if (*color < 0)
                *color = n < PLOT_COLORS - 1 ? n++ : PLOT_COLORS - 1;
        }
}

/* A box; lower planes are paler. Left open for a title. */
static void plot_plane(const struct chart *c, int color, int kind, unsigned plane, double x, double y, double width, double height)
{
    unsigned n = lmc_dtype_width((enum lmc_dtype)kind);
    fprintf(c->plot.file, "<rect class=\"k%d\" fill-opacity=\"%.2f\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">", color,
            1 - 0.7 * (n - 1 - plane) / n, x, y, width, height);
}

static void describe_plane(char text[48], int kind, unsigned plane)
{
    unsigned n = lmc_dtype_width((enum lmc_dtype)kind);
    int is_exponent = find_scan_format((enum lmc_dtype)kind) && plane == n - 1 && n > 1;
    if (n > 1)
        snprintf(text, 48, "%s plane %u%s", name_kind(kind), plane, is_exponent ? ", exponent" : "");
    else
        snprintf(text, 48, "%s", name_kind(kind));
}

static void plot_title(const struct chart *c, size_t snapshot, const char *what, double share)
{
    fputs("<title>", c->plot.file);
    plot_text(&c->plot, c->labels[snapshot], 80);
    fputs(": ", c->plot.file);
    plot_text(&c->plot, what, 80);
    fprintf(c->plot.file, ", %.2f %%</title>", 100 * share);
}

/* sums: of the snapshot, of more than 0 bytes */
static void plot_bar(const struct chart *c, size_t snapshot, const struct stats_sum *sums, const int *colors)
{
    double x = find_middle(c, snapshot), y = c->top + c->height, size = (double)sums[STATS_ALL].size;
    double half = c->step * 0.35 > 16 ? 16 : c->step * 0.35, gap = c->step >= 12 ? 1.5 : 0, coded = (double)sums[STATS_ALL].direct / size;
    char what[48];
    for (int kind = 0; kind < STATS_ALL; kind++)
        for (unsigned plane = 0; plane < lmc_dtype_width((enum lmc_dtype)kind); plane++) {
            double share = sums[kind].plane_sizes[plane] / size, part = share * c->height, space = part > 2 * gap ? gap : 0;
            if (share <= 0)
                continue;
            y -= part;
            describe_plane(what, kind, plane);
            plot_plane(c, colors[kind], kind, plane, x - half, y + space, 2 * half, part - space);
            plot_title(c, snapshot, what, share);
            fputs("</rect>\n", c->plot.file);
        }
    fprintf(c->plot.file, "<path class=\"mark\" d=\"M%.2f %.2fh%.2f\">", x - half - 2, find_level(c, coded), 2 * half + 4);
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
            fprintf(c->plot.file, "%s%.2f %.2f", is_drawn++ ? "L" : "M", find_middle(c, i), find_level(c, shares[i]));
    fputs("\"/>\n", c->plot.file);
    for (size_t i = 1; i < c->stats->n; i++)
        if (shares[i] >= 0) {
            fprintf(c->plot.file, "<circle class=\"hot\" cx=\"%.2f\" cy=\"%.2f\" r=\"%d\">", find_middle(c, i), find_level(c, shares[i]), c->step < 12 ? 2 : 4);
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
        fprintf(c->plot.file, "<path class=\"line\" d=\"M%.1f %.1fh%.1f\"/>\n", c->left, y, c->width);
        plot_label(&c->plot, "soft", c->left - 8, y + 4, "end", 0, text, 8);
    }
}

/* Returns its height; is_drawn 0: that is all. */
static double plot_legend(const struct chart *c, const int *colors, int is_drawn)
{
    double x = c->left + c->width + 24, y = c->top;
    char text[48];
    for (int kind = STATS_ALL; kind-- > 0;)
        for (unsigned plane = lmc_dtype_width((enum lmc_dtype)kind); plane-- > 0 && colors[kind] >= 0; y += 18)
            if (is_drawn) {
                describe_plane(text, kind, plane);
                plot_plane(c, colors[kind], kind, plane, x, y, 12, 12);
                fputs("</rect>\n", c->plot.file);
                plot_label(&c->plot, "ink", x + 20, y + 10, "start", 0, text, 48);
            }
    for (int i = 0; i < (c->stats->n > 1 ? 2 : 1); i++, y += 18)
        if (is_drawn) {
            fprintf(c->plot.file, "<path class=\"%s\" d=\"M%.1f %.1fh12\"/>\n", i ? "trace" : "mark", x, y + 10);
            if (i)
                fprintf(c->plot.file, "<circle class=\"hot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x + 6, y + 10);
            plot_label(&c->plot, "ink", x + 20, y + 14, "start", 0, i ? "coded as a delta" : "coded alone", 48);
        }
    return y - c->top + 24;
}

/* Stacked: the bytes that the planes' entropies come to, and what coding takes. */
static void plot_compressibility(struct chart *c)
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
    begin_plot(&c->plot, c->left + c->width + 240, c->top + (plot_legend(c, colors, 0) > below ? plot_legend(c, colors, 0) : below),
               "Compressibility, in % of the input", "Bars: entropy of the byte planes");
    plot_percents(c);
    for (size_t i = 0; i < s->n; i++) {
        sum_step(sums, &s->steps[i]);
        shares[i] = sums[STATS_ALL].size ? (double)sums[STATS_ALL].delta / (double)sums[STATS_ALL].size : -1;
        if (sums[STATS_ALL].size)
            plot_bar(c, i, sums, colors);
    }
    if (s->n > 1)
        plot_deltas(c, shares);
    plot_legend(c, colors, 1);
    plot_snapshot_labels(c);
    end_plot(&c->plot);
    free(shares);
    free(sums);
}

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
    if (order == 0)
        order = compare_names(x->item->path, y->item->path);
    return order ? order : x->number < y->number ? -1 : 1;
}

struct heat {
    struct heat_line *lines;
    size_t n_lines;
    size_t **line_of;  /* of each snapshot's items: a line's number */
    size_t *place_of;  /* of each line: its place among those that are shown */
    size_t n_shown;
};

/* Whether a tensor that was gone is there again: it goes on in the same line. */
static int is_continued(const struct heat_line *a, const struct heat_line *b)
{
    return strcmp(a->item->name, b->item->name) == 0 && strcmp(a->item->path, b->item->path) == 0 && a->last < b->first;
}

static void find_heat_lines(struct heat *h, const struct stats *s)
{
    size_t room = 0;
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < s->n; i++)
        room += s->steps[i].diff.new_items.n;
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
            if (d->rows[k].old && d->rows[k].n)
                h->lines[h->line_of[i][k]].is_shown = 1;
        }
    }
    qsort(h->lines, h->n_lines, sizeof *h->lines, compare_heat_lines);
    h->place_of = (size_t *)resize(NULL, h->n_lines, sizeof *h->place_of);
    for (size_t i = 0; i < h->n_lines; i++)
        if (h->lines[i].is_shown) {
            if (h->n_shown && is_continued(&h->lines[h->n_shown - 1], &h->lines[i]))
                h->lines[h->n_shown - 1].last = h->lines[i].last;
            else
                h->lines[h->n_shown++] = h->lines[i];
            h->place_of[h->lines[i].number] = h->n_shown - 1;
        }
}

static void free_heat(struct heat *h, const struct stats *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(h->line_of[i]);
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
    snprintf(text, size, "%s%s%s", *item->name ? item->name : "(all)", is_alone || !*item->path ? "" : " in ", is_alone ? "" : item->path);
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
        fprintf(c->plot.file, "<rect class=\"k0\" fill-opacity=\"%.3f\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"10\"/>\n", 0.06 + 0.94 * i / 31, c->left + 20 + 8 * i, y);
    for (int i = 0; i < 5; i++)
        plot_label(&c->plot, "soft", c->left + 20 + 64 * i, y + 24, "middle", 0, ticks[i], 8);
    fprintf(c->plot.file, "<rect class=\"line\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"10\"/>\n", c->left + 320, y);
    plot_label(&c->plot, "soft", c->left + 340, y + 9, "start", 0, "unchanged", 10);
}

static void plot_density(struct chart *c)
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
    begin_plot(&c->plot, c->left + (c->width < 420 ? 420 : c->width) + 24, c->top + c->height + find_label_height(c), "Change density",
               "Share of the elements that differ from the snapshot before");
    plot_heat_scale(c, 58);
    for (size_t i = 0; i < h.n_shown; i++) {
        char *text = name_heat_line(&h, i);
        plot_label(&c->plot, "ink", c->left - 8, c->top + HEAT_HEIGHT * (double)i + 11, "end", 0, text, HEAT_CHARACTERS);
        free(text);
    }
    for (size_t i = 1; i < s->n; i++)
        for (size_t k = 0; k < s->steps[i].diff.new_items.n; k++) {
            const struct diff_row *row = &s->steps[i].diff.rows[k];
            double share = row->n ? (double)row->n_changed / (double)row->n : 0, gap = c->step >= 8 ? 1 : 0;
            size_t place;
            if (!row->old || !row->n)
                continue;
            place = h.place_of[h.line_of[i][k]];
            fprintf(c->plot.file, "<rect class=\"%s\" fill-opacity=\"%.3f\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\">", share > 0 ? "k0" : "line",
                    0.06 + 0.94 * find_heat(share), c->left + c->step * (double)(i - 1), c->top + HEAT_HEIGHT * (double)place, c->step - gap, HEAT_HEIGHT - 1);
            plot_title(c, i, row->item->name, share);
            fputs("</rect>\n", c->plot.file);
        }
    plot_snapshot_labels(c);
    end_plot(&c->plot);
    free_heat(&h, s);
}

static int write_plots(const struct stats *s)
{
    int code = CODE_OK;
    for (int which = 0; which < count_plots(s) && code == CODE_OK; which++) {
        char *path = name_plot(s, (enum stats_plot)which);
        struct chart c;
        open_chart(&c, s, which == PLOT_DENSITY, 56, which == PLOT_DENSITY ? 40 : 56);
        if (which == PLOT_DENSITY)
            plot_density(&c);
        else
            plot_compressibility(&c);
        code = save_plot(&c.plot, path, s->o);
        close_chart(&c);
        free(path);
    }
    return code;
}

#endif
