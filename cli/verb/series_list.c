/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <jansson.h>

#include "../format/json.h"
#include "../format/print.h"
#include "../input/common.h"
#include "../sys/memory.h"
#include "../sys/printable.h"
#include "../sys/report.h"
#include "series_chain.h"
#include "series_manifest.h"
#include "series_open.h"

static void format_time(char text[24], int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&t, &parts) || strftime(text, 24, "%Y-%m-%d %H:%M", &parts) == 0)
        strcpy(text, "?");
}

static const char *kind_of_entry(const struct snapshot *e)
{
    return e->file == FILE_MISSING   ? "missing"
           : e->file == FILE_DAMAGED ? "damaged"
           : e->is_delta             ? "delta"
                                     : "anchor";
}

/* One word: a file that is not there yet is not missing. */
static const char *condition_of_entry(const struct snapshot *e)
{
    const int is_told =
        e->state == STATE_ADDING || (e->state != STATE_KEPT && e->file == FILE_THERE);
    return is_told ? state_names[e->state] : kind_of_entry(e);
}

/* 80 columns where names have 11; sizes in bytes, seconds and shares are in --json. */
static void print_entry(const struct series *s, const struct snapshot *e, long n, int width)
{
    const struct snapshot *base = find_base_of(s, e, 0);
    char when[24], depth[24] = "-", size[SIZE_TEXT], packed[SIZE_TEXT];
    char *name = copy_printable(e->name);
    format_time(when, e->time);
    format_size(size, sizeof size, e->size);
    format_size(packed, sizeof packed, e->packed_size);
    if (n >= 0) snprintf(depth, sizeof depth, "%ld", n);
    printf("%-*s  %-9s  %5s  %8s  %8s  %s  ", width, name, condition_of_entry(e), depth, size,
           packed, when);
    print_name(base ? base->name : e->file == FILE_THERE && e->is_delta ? "(missing)" : "");
    putchar('\n');
    free(name);
}

static json_t *make_json_entry(const struct series *s, const struct snapshot *e, long n)
{
    json_t *object = (json_t *)check_memory(json_object());
    const struct snapshot *base = find_base_of(s, e, 0);
    set_json(object, "name", json_string(e->name));
    set_json(object, "state", json_string(state_names[e->state]));
    set_json(object, "kind", json_string(kind_of_entry(e)));
    if (e->state != STATE_ADDING) set_json_fingerprint(object, "fingerprint", e->fingerprint);
    if (n >= 0) set_json(object, "depth", json_integer(n));
    set_json_number(object, "size", e->size);
    set_json_number(object, "packed_size", e->packed_size);
    if (base) set_json(object, "base", json_string(base->name));
    set_json(object, "time", json_integer(e->time));
    if (e->source) set_json(object, "source", json_string(e->source));
    return object;
}

static void print_series_as_json(const struct series *s, const long *counts)
{
    json_t *object = (json_t *)check_memory(json_object());
    struct json_writer w;
    init_json_writer(&w, NULL, NULL, JSON_COMPACT | JSON_ENSURE_ASCII);
    begin_json(&w, NULL, '{');
    set_json_text(object, "series", s->directory);
    set_json_number(object, "every", s->every);
    put_json_members(&w, object);
    begin_json(&w, "snapshots", '[');
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state != STATE_GONE)
            put_json(&w, NULL, make_json_entry(s, &s->list[i], counts[i]));
    end_json(&w, ']');
    end_json_line(&w);
}

/* " (2 forgotten, 1 missing)" of those that do not count as the others do, or "". */
static void count_others(char *text, size_t cap, const struct series *s)
{
    static const char *const words[] = {"adding", "forgotten", "missing", "damaged"};
    size_t used = 0;
    *text = 0;
    for (size_t k = 0; k < sizeof words / sizeof *words && used < cap; k++) {
        uint64_t n = 0;
        for (size_t i = 0; i < s->n; i++)
            n += s->list[i].state != STATE_GONE &&
                 strcmp(condition_of_entry(&s->list[i]), words[k]) == 0;
        if (n)
            used += (size_t)snprintf(text + used, cap - used, "%s%llu %s", used ? ", " : " (",
                                     (unsigned long long)n, words[k]);
    }
    if (used && used < cap) snprintf(text + used, cap - used, ")");
}

static void print_series(const struct series *s, const long *counts)
{
    uint64_t size = 0, packed = 0, n = 0;
    char others[200];
    int width = 4;
    for (size_t i = 0; i < s->n; i++) {
        int length = (int)strlen(s->list[i].name);
        if (s->list[i].state == STATE_GONE) continue;
        n++;
        width = length > width ? length : width;
        size += s->list[i].size;
        packed += s->list[i].packed_size;
    }
    printf("%-*s  kind       depth      size    packed  added (UTC)       base\n", width, "name");
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].state != STATE_GONE) print_entry(s, &s->list[i], counts[i], width);
    count_others(others, sizeof others, s);
    printf("%llu snapshot%s%s, %llu -> %llu bytes (%.2f %%), an anchor every %llu\n",
           (unsigned long long)n, n == 1 ? "" : "s", others, (unsigned long long)size,
           (unsigned long long)packed, percent(packed, size), (unsigned long long)s->every);
}

int series_list(const char *directory, const struct series_options *o)
{
    struct series s;
    long *counts = NULL;
    int code = open_series(&s, directory, TO_READ, o);
    if (code == CODE_OK) {
        index_series(&s);
        counts = count_all_deltas(&s);
        if (o->json) print_series_as_json(&s, counts);
        else print_series(&s, counts);
    }
    free(counts);
    close_series(&s);
    return code;
}
