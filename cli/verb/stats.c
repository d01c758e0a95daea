/* stats.c - lmc stats: what snapshots are made of, as table or JSON
 * SPDX-License-Identifier: MIT
 */
#include "verbs.h"

#include "../format/json.h"
#include "../format/print.h"
#include "../format/scan.h"
#include "../input/base.h"
#include "../job/difference.h"

/* What difference.h does not measure. A row is a tensor, or a file without tensors. */
struct stats_row {
    uint64_t n_zero,
        n_flipped; /* n_flipped: top bits that differ from those of the snapshot before */
    double entropy[SCAN_MAX_WIDTH]; /* bits for each element, by plane, the lowest first */
    unsigned first_exponent, n_exponents;
    uint64_t *exponents; /* counts of stored values, from first_exponent on; NULL: none */
};

/* A snapshot, compared with the one before. */
struct stats_step {
    struct diff diff; /* a: NULL in the first. Rows: new_items in their order, then removed ones */
    struct stats_row *rows; /* one for each of new_items */
};

struct stats {
    const struct options *o;
    struct stats_step *steps;
    size_t n;
};

/* -- measuring -- */

/* user: the step */
static void take_scan(void *user, size_t number, const struct scan *scan)
{
    struct stats_row *row = &((struct stats_step *)user)->rows[number];
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

/* An old tensor is compared with at most one new tensor. If several new tensors have its name
 * (weights and gradients, say), the one whose file has the same path is taken; others are new. */
static void pair_rows(struct diff *d)
{
    struct diff_row **taker = (struct diff_row **)zeroed(d->old_items.n, sizeof *taker);
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
    collect_diff_items(&d->new_items, d->b);
    const int code = match_items(d);
    if (code != CODE_OK) return code;
    pair_rows(d);
    step->rows = (struct stats_row *)zeroed(d->new_items.n, sizeof *step->rows);
    return measure_all(d, scan, take_scan, step);
}

/* bases: the snapshots */
static int measure_steps(struct stats *s, struct base *bases)
{
    struct scan *scan = (struct scan *)resize(NULL, 1, sizeof *scan);
    int code = CODE_OK;
    for (size_t i = 0; i < s->n && code == CODE_OK; i++) /* what cannot be opened is told first */
        code = open_base(&bases[i], s->o);
    for (size_t i = 0; i < s->n && code == CODE_OK; i++) {
        struct diff *d = &s->steps[i].diff;
        d->o = s->o;
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

static void free_stats(struct stats *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct stats_step *step = &s->steps[i];
        for (size_t k = 0; step->rows && k < step->diff.new_items.n; k++)
            free(step->rows[k].exponents);
        free(step->rows);
        free_diff(&step->diff);
    }
    free(s->steps);
}

/* -- sums -- */

/* Kinds of sums: a dtype, or LMC_AUTO for those that the codec takes as bytes; a role; all. */
enum {
    STATS_ROLES = 31 /* no dtype has this number */,
    STATS_ALL = STATS_ROLES + N_ROLES,
    STATS_KINDS
};

struct stats_sum {
    uint64_t n_items, size, n, n_zero, direct;
    double plane_sizes[SCAN_MAX_WIDTH]; /* bytes, computed from the entropy */
    uint64_t n_compared, n_changed, n_signed, n_flipped,
        delta; /* n_signed: compared, and with a sign */
    uint64_t exponents[SCAN_MAX_EXPONENTS];
};

/* The sum of plane_sizes. */
static double sum_planes(const struct stats_sum *sum)
{
    double size = 0;
    for (unsigned p = 0; p < SCAN_MAX_WIDTH; p++) size += sum->plane_sizes[p];
    return size;
}

/* Adds a tensor to the sum. */
static void add_row(struct stats_sum *sum, const struct diff_row *d, const struct stats_row *row)
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

/* sums: STATS_KINDS of them */
static void sum_step(struct stats_sum *sums, const struct stats_step *step)
{
    memset(sums, 0, STATS_KINDS * sizeof *sums);
    for (size_t i = 0; i < step->diff.new_items.n; i++) {
        add_row(&sums[lmc_dtype_find(step->diff.rows[i].item->dtype)], &step->diff.rows[i],
                &step->rows[i]);
        add_row(&sums[STATS_ALL], &step->diff.rows[i], &step->rows[i]);
        add_row(&sums[STATS_ROLES + (int)find_item_role(step->diff.rows[i].item)],
                &step->diff.rows[i], &step->rows[i]);
    }
}

/* The dtype, "bytes" if the codec does not know it; or the role. */
static const char *name_kind(int kind)
{
    return kind == STATS_ALL     ? "all"
           : kind >= STATS_ROLES ? role_names[kind - STATS_ROLES]
           : kind == LMC_AUTO    ? "bytes"
                                 : lmc_dtype_name((enum lmc_dtype)kind);
}

/* Whether tensors are of several of these kinds. */
static int are_several(const struct stats_sum *sums, int first, int end)
{
    int n = 0;
    for (int kind = first; kind < end; kind++) n += sums[kind].n_items != 0;
    return n > 1;
}

/* -- the table -- */

static void print_share(uint64_t part, uint64_t whole)
{
    if (whole) printf(" %8.4f %%", percent(part, whole));
    else printf(" %10s", "-");
}

static void print_exponent(const struct scan_format *f, const struct stats_sum *sum,
                           unsigned percentile)
{
    uint64_t seen = 0, wanted = sum->n / 100 * percentile + (sum->n % 100 * percentile + 99) / 100;
    unsigned e = 0;
    while (e + 1 < 1u << f->exponent_bits && (seen += sum->exponents[e]) < wanted) e++;
    if (e == 0 && f->has_sign) printf(" zero"); /* or subnormal */
    else printf(" %4d", (int)e - (int)f->exponent_bias);
}

/* sum: of one kind, or of one tensor. status: why this tensor was not compared; NULL: it was, or it
 * is a kind. n_planes 0: for a narrow table. */
static void print_numbers(const struct stats_sum *sum, int kind, int has_old, const char *status,
                          unsigned n_planes)
{
    const struct scan_format *f =
        kind >= STATS_ROLES ? NULL : find_scan_format((enum lmc_dtype)kind);
    unsigned width = kind >= STATS_ROLES ? 0 : lmc_dtype_width((enum lmc_dtype)kind);
    char size[SIZE_TEXT];
    format_size(size, sizeof size, sum->size);
    if (n_planes) {
        printf("%14llu", (unsigned long long)sum->size);
        print_share(sum->n_zero, sum->n);
        putchar(' ');
        for (unsigned i = 0; i < 3; i++)
            if (f && sum->n) print_exponent(f, sum, i == 0 ? 1 : i == 1 ? 50 : 99);
            else printf(" %4s", "-");
        putchar(' ');
        for (unsigned p = n_planes; p && p--;)
            if (p < width && sum->n) printf(" %5.2f", sum->plane_sizes[p] * 8 / (double)sum->n);
            else printf(" %5s", "");
    }
    printf("%*s %7.2f %% %7.2f %%", n_planes ? 1 : 9, n_planes ? "" : size,
           sum->size ? 100 * sum_planes(sum) / (double)sum->size : 100.0,
           percent(sum->direct, sum->size));
    if (has_old) {
        if (status) printf(" %10s", status);
        else print_share(sum->n_changed, sum->n_compared);
        if (n_planes) print_share(sum->n_flipped, sum->n_signed);
        printf(" %7.2f %%", percent(sum->delta, sum->size));
        if (n_planes) printf("  %5.3f", percent(sum->delta, sum->direct) / 100);
    } else if (n_planes) printf(" %10s %10s %9s  %5s", "-", "-", "-", "-");
    else printf(" %10s %9s", "-", "-");
    printf("  ");
}

/* n_planes 0: for a narrow table. */
static void print_items(const struct stats_step *step, unsigned n_planes)
{
    const struct diff *d = &step->diff;
    struct stats_sum *sum = (struct stats_sum *)resize(NULL, 1, sizeof *sum);
    size_t n, *const chosen = choose_rows(d, &n);
    for (size_t i = 0; i < n; i++) {
        const struct diff_row *row = &d->rows[chosen[i]];
        printf("  ");
        print_row_start(row, !n_planes);
        if (row->kind == DIFF_REMOVED) /* below 'changed' */
            printf("%*s%*s", n_planes ? (int)(60 + 6 * n_planes) : 31, "removed",
                   n_planes ? 30 : 12, "");
        else {
            memset(sum, 0, sizeof *sum); /* of this tensor alone */
            add_row(sum, row, &step->rows[chosen[i]]);
            print_numbers(sum, (int)lmc_dtype_find(row->item->dtype), d->a != NULL,
                          row->old ? NULL : diff_names[row->kind], n_planes);
        }
        print_row_name(row);
    }
    print_left_out(d, n);
    free(chosen);
    free(sum);
}

/* With -v, or for at most two snapshots, also prints single tensors. */
static void print_stats(const struct stats *s)
{
    struct stats_sum *sums = (struct stats_sum *)resize(NULL, STATS_KINDS, sizeof *sums);
    unsigned n_planes = wants_narrow_tables(s->o) ? 0 : 1;
    for (size_t i = 0; i < s->n && n_planes; i++)
        for (size_t k = 0; k < s->steps[i].diff.new_items.n; k++) {
            unsigned width =
                lmc_dtype_width(lmc_dtype_find(s->steps[i].diff.new_items.list[k].dtype));
            n_planes = width > n_planes ? width : n_planes;
        }
    if (!n_planes)
        printf("  %-8s %9s %9s %9s %10s %9s  name\n", "dtype", "size", "entropy", "coded",
               "changed", "delta");
    else
        printf("  %-8s %-18s %14s %10s  %14s  %*s  %9s %9s %10s %10s %9s  %5s  name\n", "dtype",
               "shape", "size", "zeros", "exp. 1 50 99 %", (int)(6 * n_planes),
               n_planes > 1 ? "bits by plane" : "bits", "entropy", "coded", "changed", "flipped",
               "delta", "ratio");
    for (size_t i = 0; i < s->n; i++) {
        const struct stats_step *step = &s->steps[i];
        if (s->n <= 2 || s->o->verbosity >= 2 || s->o->top) print_items(step, n_planes);
        sum_step(sums, step);
        const int has_dtypes = are_several(sums, 0, STATS_ROLES),
                  has_roles = are_several(sums, STATS_ROLES, STATS_ALL);
        for (int kind = 0; kind < STATS_KINDS; kind++)
            if (kind == STATS_ALL    ? has_dtypes || has_roles
                : kind < STATS_ROLES ? sums[kind].n_items != 0
                                     : has_roles && sums[kind].n_items) {
                char text[40];
                snprintf(text, sizeof text, "all %llu", (unsigned long long)sums[kind].n_items);
                printf("  %-8s ", kind == STATS_ALL ? "" : name_kind(kind));
                if (n_planes) printf("%-18s ", text);
                print_numbers(&sums[kind], kind, i > 0, NULL, n_planes);
                print("%s%s%s\n", n_planes ? "" : text, n_planes ? "" : ": ", step->diff.b->name);
            }
    }
    free(sums);
}

/* -- JSON -- */

/* Writes what a tensor and a sum have in common. */
static void put_json_sum(struct json_writer *w, const struct stats_sum *sum, int kind, int has_old)
{
    const struct scan_format *f =
        kind >= STATS_ROLES ? NULL : find_scan_format((enum lmc_dtype)kind);
    put_json_number(w, "elements", sum->n);
    put_json_number(w, "zeros", sum->n_zero);
    put_json_number(w, "entropy_size", (uint64_t)(sum_planes(sum) + 0.5));
    put_json_number(w, "direct_size", sum->direct);
    if (kind < STATS_ROLES) {
        begin_json(w, "plane_entropies", '[');
        for (unsigned p = 0; p < lmc_dtype_width((enum lmc_dtype)kind); p++)
            put_json(w, NULL, json_real(sum->n ? sum->plane_sizes[p] * 8 / (double)sum->n : 0));
        end_json(w, ']');
    }
    if (f) {
        unsigned first = 0, end = 1u << f->exponent_bits;
        while (end > first && !sum->exponents[end - 1]) end--;
        while (first < end && !sum->exponents[first]) first++;
        begin_json(w, "exponents", '{');
        put_json_number(w, "bias", f->exponent_bias);
        put_json_number(w, "first", first);
        put_json_numbers(w, "counts", sum->exponents + first, end - first);
        end_json(w, '}');
    }
    if (!has_old) return;
    put_json_number(w, "compared_elements", sum->n_compared);
    put_json_number(w, "changed_elements", sum->n_changed);
    if (kind >= STATS_ROLES || has_sign_bit((enum lmc_dtype)kind))
        put_json_number(w, "sign_flips", sum->n_flipped);
    put_json_number(w, "delta_size", sum->delta);
}

/* user: the step */
static void complete_row(struct json_writer *w, void *user, size_t number)
{
    const struct stats_step *const step = (const struct stats_step *)user;
    const struct diff_row *const row = &step->diff.rows[number];
    struct stats_sum *sum = (struct stats_sum *)zeroed(1, sizeof *sum);
    add_row(sum, row, &step->rows[number]);
    put_json_sum(w, sum, (int)lmc_dtype_find(row->item->dtype), step->diff.a != NULL);
    free(sum);
}

/* Writes an object for each kind that has tensors. */
static void put_json_sums(struct json_writer *w, const struct stats_sum *sums, int first, int end,
                          const char *key, int has_old)
{
    for (int kind = first; kind < end; kind++) {
        if (!sums[kind].n_items) continue;
        begin_json(w, NULL, '{');
        put_json(w, key, json_string(name_kind(kind)));
        put_json_number(w, "items", sums[kind].n_items);
        put_json_number(w, "size", sums[kind].size);
        put_json_sum(w, &sums[kind], kind, has_old);
        end_json(w, '}');
    }
}

static void put_json_step(struct json_writer *w, struct stats_step *step)
{
    const struct diff *d = &step->diff;
    struct stats_sum *sums = (struct stats_sum *)resize(NULL, STATS_KINDS, sizeof *sums);
    sum_step(sums, step);
    begin_json(w, NULL, '{');
    put_json_side(w, d->b);
    put_json_number(w, "size", sums[STATS_ALL].size);
    put_json_sum(w, &sums[STATS_ALL], STATS_ALL, d->a != NULL);
    begin_json(w, "dtypes", '[');
    put_json_sums(w, sums, 0, STATS_ROLES, "dtype", d->a != NULL);
    end_json(w, ']');
    begin_json(w, "roles", '[');
    put_json_sums(w, sums, STATS_ROLES, STATS_ALL, "role", d->a != NULL);
    end_json(w, ']');
    put_json_rows(w, d, 1, d->a != NULL, complete_row, step);
    put_json_rows(w, d, 0, d->a != NULL, complete_row, step);
    end_json(w, '}');
    free(sums);
}

static void print_json_stats(const struct stats *s)
{
    struct json_writer w;
    init_json_writer(&w, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(10));
    begin_json(&w, NULL, '{');
    begin_json(&w, "snapshots", '[');
    for (size_t i = 0; i < s->n; i++) put_json_step(&w, &s->steps[i]);
    end_json(&w, ']');
    end_json_line(&w);
}

/* -- the verb -- */

int show_stats(const struct options *o)
{
    struct stats s;
    size_t n_bases = o->bases->n;
    int code = add_snapshots("stats", o);
    if (code != CODE_OK) return code;
    s.o = o;
    s.n = o->n_names;
    s.steps = (struct stats_step *)zeroed(s.n, sizeof *s.steps);
    code = measure_steps(&s, o->bases->list + n_bases);
    if (code == CODE_OK) code = check_bases(o);
    if (code == CODE_OK && o->json) print_json_stats(&s);
    else if (code == CODE_OK) print_stats(&s);
    free_stats(&s);
    return code;
}
