/* SPDX-License-Identifier: MIT */
#include "stats_census.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../format/scan.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../job/difference.h"
#include "../sys/memory.h"
#include "../sys/progress.h"
#include "../sys/report.h"

/* -- measuring -- */

static void take_scan(struct stats_row *row, const struct scan *scan)
{
    uint64_t counts[SCAN_MAX_EXPONENTS];
    unsigned n = count_exponents(scan, counts), first = 0;
    row->n_zero = scan->n_zero;
    row->n_flipped = scan->n_flipped;
    for (unsigned p = 0; p < scan->width; p++) row->entropy[p] = find_entropy(scan->planes[p], 256);
    while (n && !counts[n - 1]) n--;
    while (first < n && !counts[first]) first++;
    if (first == n) return;
    row->first_exponent = first;
    row->n_exponents = n - first;
    row->exponents = (uint64_t *)resize(NULL, row->n_exponents, sizeof *row->exponents);
    memcpy(row->exponents, counts + first, row->n_exponents * sizeof *counts);
}

/* A tensor is compared with one, and one with it: of several that would be, as of weights and
 * gradients of one name in several files, with that of the same path. The others are new. */
static void pair_rows(struct diff *d)
{
    struct diff_row **taker = (struct diff_row **)resize(NULL, d->old_items.n, sizeof *taker);
    memset(taker, 0, d->old_items.n * sizeof *taker);
    for (size_t i = 0; i < d->new_items.n; i++)
        if (d->rows[i].old) {
            struct diff_row *row = &d->rows[i], **other = &taker[row->old - d->old_items.list],
                            *left = *other;
            if (!left || strcmp(row->item->path, row->old->path) == 0) *other = row;
            else left = row;
            if (left) {
                left->old = NULL;
                left->kind = DIFF_ADDED;
            }
        }
    free(taker);
}

static int measure_step(struct stats_step *step, struct scan *scan)
{
    struct diff *d = &step->diff;
    struct diff_row **rows;
    int code = CODE_OK;
    collect_diff_items(&d->new_items, d->b);
    match_items(d);
    pair_rows(d);
    step->rows = (struct stats_row *)resize(NULL, d->new_items.n, sizeof *step->rows);
    memset(step->rows, 0, d->new_items.n * sizeof *step->rows);
    rows = sort_by_place(d);
    take_pieces(d);
    for (size_t i = 0; i < d->new_items.n && code == CODE_OK; i++) {
        code = measure_item(d, rows[i], scan);
        take_scan(&step->rows[rows[i] - d->rows], scan);
    }
    free_pieces(d);
    free((void *)rows);
    return code;
}

/* Whole snapshots share the buffers of the first, and so do the deltas that are made of them:
 * memory must not grow with the series. */
static int share_buffers(struct base *bases, size_t n, const struct common *o)
{
    lmc_reader *lender = NULL;
    int code = CODE_OK;
    for (size_t i = 0; i < n && code == CODE_OK; i++) {
        struct base *b = &bases[i];
        code = open_base(b, o);
        if (code != CODE_OK || !b->is_archive || b->archive.is_delta) continue;
        b->archive.lender = lender;
        code = identify_base(b, o);
        lender = lender ? lender : b->archive.reader;
    }
    return code;
}

int measure_steps(struct stats *s, struct base *bases)
{
    struct scan *scan = (struct scan *)resize(NULL, 1, sizeof *scan);
    int code = share_buffers(bases, s->n, s->o);
    for (size_t i = 0; i < s->n && code == CODE_OK; i++) {
        struct diff *d = &s->steps[i].diff;
        d->o = s->o;
        d->level = s->level;
        d->a = i ? &bases[i - 1] : NULL;
        d->b = &bases[i];
        if (i) d->old_items = s->steps[i - 1].diff.new_items;
        code = prepare_base(d->b, s->o);
        progress_start(d->b->name, LMC_UNKNOWN_SIZE);
        if (code == CODE_OK) code = measure_step(&s->steps[i], scan);
        progress_clear();
    }
    free(scan);
    return code;
}

void free_stats(struct stats *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct stats_step *step = &s->steps[i];
        for (size_t k = 0; step->rows && k < step->diff.new_items.n; k++)
            free(step->rows[k].exponents);
        free(step->rows);
        free(step->diff.rows);
        free(step->diff.new_items.list);
    }
    free(s->steps);
}

/* -- sums -- */

double sum_planes(const struct stats_sum *sum)
{
    double size = 0;
    for (unsigned p = 0; p < SCAN_MAX_WIDTH; p++) size += sum->plane_sizes[p];
    return size;
}

void add_row(struct stats_sum *sum, const struct diff_row *d, const struct stats_row *row)
{
    sum->n_items++;
    sum->size += d->item->size;
    sum->n += d->n;
    sum->n_zero += row->n_zero;
    sum->direct += d->direct;
    sum->delta += d->delta;
    for (unsigned p = 0; p < SCAN_MAX_WIDTH; p++)
        sum->plane_sizes[p] += row->entropy[p] * (double)d->n / 8;
    for (unsigned i = 0; i < row->n_exponents; i++)
        sum->exponents[row->first_exponent + i] += row->exponents[i];
    if (!d->old) return;
    sum->n_compared += d->n;
    sum->n_changed += d->n_changed;
    if (!has_sign_bit(lmc_dtype_find(d->item->dtype))) return;
    sum->n_signed += d->n;
    sum->n_flipped += row->n_flipped;
}

void sum_step(struct stats_sum *sums, const struct stats_step *step)
{
    memset(sums, 0, STATS_KINDS * sizeof *sums);
    for (size_t i = 0; i < step->diff.new_items.n; i++) {
        add_row(&sums[lmc_dtype_find(step->diff.rows[i].item->dtype)], &step->diff.rows[i],
                &step->rows[i]);
        add_row(&sums[STATS_ALL], &step->diff.rows[i], &step->rows[i]);
    }
}

const char *name_kind(int kind)
{
    return kind == STATS_ALL  ? "all"
           : kind == LMC_AUTO ? "bytes"
                              : lmc_dtype_name((enum lmc_dtype)kind);
}

int has_one_kind(const struct stats_sum *sums)
{
    for (int kind = 0; kind < STATS_ALL; kind++)
        if (sums[kind].n_items) return sums[kind].n_items == sums[STATS_ALL].n_items;
    return 0;
}
