/* SPDX-License-Identifier: MIT */
#include "diff.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "../format/hex.h"
#include "../format/json.h"
#include "../format/print.h"
#include "../input/base.h"
#include "../input/common.h"
#include "../job/difference.h"
#include "../sys/memory.h"
#include "../sys/progress.h"
#include "../sys/report.h"
#include "diff_rest.h"

static double bits_per_element(uint64_t size, uint64_t n)
{
    return n ? 8.0 * (double)size / (double)n : 0.0;
}

static struct diff_row sum_rows(const struct diff *d, uint64_t *size)
{
    struct diff_row sum;
    memset(&sum, 0, sizeof sum);
    *size = 0;
    for (size_t i = 0; i < d->n_rows; i++)
        if (d->rows[i].kind != DIFF_REMOVED) {
            sum.n += d->rows[i].n;
            sum.n_changed += d->rows[i].n_changed;
            sum.delta += d->rows[i].delta;
            sum.direct += d->rows[i].direct;
            *size += d->rows[i].item->size;
        }
    return sum;
}

static void print_diff_numbers(const struct diff_row *row, uint64_t size, int is_narrow)
{
    char sizes[2][SIZE_TEXT];
    format_size(sizes[0], SIZE_TEXT, size);
    format_size(sizes[1], SIZE_TEXT, row->delta);
    if (is_narrow)
        printf("%9s %9.4f %% %9s  ", sizes[0], row->n ? percent(row->n_changed, row->n) : 0.0,
               sizes[1]);
    else
        printf("%14llu %9.4f %% %14llu %8.3f %14llu %8.3f  ", (unsigned long long)size,
               row->n ? percent(row->n_changed, row->n) : 0.0, (unsigned long long)row->delta,
               bits_per_element(row->delta, row->n), (unsigned long long)row->direct,
               bits_per_element(row->direct, row->n));
}

static void print_diff(const struct diff *d, int is_narrow)
{
    char shape[LMC_MAX_RANK * 21 + 3], fingerprint[2 * LMC_FINGERPRINT_SIZE + 1];
    uint64_t size;
    struct diff_row sum = sum_rows(d, &size);
    size_t counts[DIFF_KINDS] = {0};
    const char *separator = "";
    for (int i = 0; i < 2; i++) {
        const struct base *b = i ? d->b : d->a;
        format_fingerprint(fingerprint, b->fingerprint);
        printf("%s fingerprint %s  ", i ? "to  " : "from", fingerprint);
        print_name(b->name);
        putchar('\n');
    }
    if (is_narrow)
        printf("  %-8s %-8s %9s %11s %9s  name\n", "", "dtype", "size", "changed", "delta");
    else
        printf("  %-8s %-8s %-18s %14s %11s %14s %8s %14s %8s  name\n", "", "dtype", "shape",
               "size", "changed", "delta", "bits", "direct", "bits");
    for (size_t i = 0; i < d->n_rows; i++) {
        const struct diff_row *row = &d->rows[i];
        counts[row->kind]++;
        *shape = 0;
        if (row->item->tensor) format_shape(shape, sizeof shape, row->item->tensor);
        printf("  %-8s ", diff_names[row->kind]);
        print_dtype(row->item->tensor ? row->item->dtype : "file");
        if (!is_narrow) printf("%-18s ", shape);
        if (row->kind == DIFF_REMOVED && is_narrow) {
            format_size(shape, sizeof shape, row->item->size);
            printf("%9s%23s", shape, "");
        } else if (row->kind == DIFF_REMOVED)
            printf("%14llu %73s", (unsigned long long)row->item->size, "");
        else print_diff_numbers(row, row->item->size, is_narrow);
        print_item_name(row->item);
    }
    printf("  %-*s ", is_narrow ? 17 : 36, "all");
    print_diff_numbers(&sum, size, is_narrow);
    for (int kind = 0; kind < DIFF_KINDS; kind++)
        if (counts[kind]) {
            printf("%s%llu %s", separator, (unsigned long long)counts[kind], diff_names[kind]);
            separator = ", ";
        }
    putchar('\n');
}

static json_t *make_json_row(const struct diff_row *row)
{
    json_t *object = make_json_item(row->item);
    set_json(object, "status", json_string(diff_names[row->kind]));
    if (row->kind != DIFF_REMOVED) {
        set_json_number(object, "elements", row->n);
        set_json_number(object, "changed_elements", row->n_changed);
        set_json_number(object, "delta_size", row->delta);
        set_json_number(object, "direct_size", row->direct);
    }
    return object;
}

/* The rows of tensors, or of other files. */
static void put_json_rows(struct json_writer *w, const char *key, const struct diff *d,
                          int of_tensors)
{
    begin_json(w, key, '[');
    for (size_t i = 0; i < d->n_rows; i++)
        if (!d->rows[i].item->tensor == !of_tensors) put_json(w, NULL, make_json_row(&d->rows[i]));
    end_json(w, ']');
}

static void print_json_diff(const struct diff *d, const struct diff_rest *rest)
{
    json_t *object = (json_t *)check_memory(json_object());
    struct json_writer w;
    uint64_t size;
    struct diff_row sum = sum_rows(d, &size);
    init_json_writer(&w, NULL, NULL, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    put_json(&w, "from", make_json_side(d->a));
    put_json(&w, "to", make_json_side(d->b));
    put_json_rows(&w, "tensors", d, 1);
    put_json_rows(&w, "files", d, 0);
    set_json_number(object, "size", size);
    set_json_number(object, "elements", sum.n);
    set_json_number(object, "changed_elements", sum.n_changed);
    set_json_number(object, "delta_size", sum.delta);
    set_json_number(object, "direct_size", sum.direct);
    put_json_members(&w, object);
    put_json_rest(&w, rest);
    end_json_line(&w);
}

int diff_snapshots(char *from, char *to, const struct diff_options *options)
{
    const struct common *o = &options->common;
    char *names[2];
    struct diff d;
    struct diff_rest rest;
    size_t n = o->bases->n;
    int code;
    names[0] = from;
    names[1] = to;
    code = add_snapshots(names, 2, "diff", o);
    if (code != CODE_OK) return code;
    memset(&d, 0, sizeof d);
    memset(&rest, 0, sizeof rest);
    d.o = o;
    d.level = options->level;
    d.a = &o->bases->list[n];
    d.b = &o->bases->list[n + 1];
    code = prepare_base(d.a, o);
    if (code == CODE_OK) code = prepare_base(d.b, o);
    if (code == CODE_OK) {
        collect_diff_items(&d.old_items, d.a);
        collect_diff_items(&d.new_items, d.b);
        progress_start(to, LMC_UNKNOWN_SIZE);
        match_items(&d);
        code = measure_all(&d, NULL, NULL, NULL);
        if (code == CODE_OK) code = measure_rest(&rest, &d);
        progress_clear();
    }
    if (code == CODE_OK) code = check_bases(o);
    if (code == CODE_OK && options->json) print_json_diff(&d, &rest);
    else if (code == CODE_OK) {
        print_diff(&d, wants_narrow_tables(o));
        print_rest(&rest);
    }
    free_rest(&rest);
    free(d.old_items.list);
    free(d.new_items.list);
    free(d.rows);
    return code;
}
