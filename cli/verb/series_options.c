/* SPDX-License-Identifier: MIT */
#include "series_options.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../input/options.h"
#include "../sys/memory.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "series_manifest.h"

static const struct {
    const char *name;
    int has_value;
} series_options[N_SERIES_OPTIONS] = {{"name", 1},       {"every", 1},   {"anchor", 0},
                                      {"verify", 0},     {"dry-run", 0}, {"keep-last", 1},
                                      {"keep-every", 1}, {"keep", 1},    {"settle", 1},
                                      {"interval", 1},   {"once", 0},    {"match", 1}};

int is_given(const struct options *o, enum series_option option)
{
    return o->series.given >> option & 1;
}

int fail_series_usage(const char *name, const char *what)
{
    say(name, "%s", what);
    fputs("See 'lmc help series'.\n", stderr);
    return CODE_USAGE;
}

int find_series_option(const char *word)
{
    size_t size = strcspn(word, "=");
    for (int i = 0; i < N_SERIES_OPTIONS; i++)
        if (strlen(series_options[i].name) == size &&
            strncmp(series_options[i].name, word, size) == 0 &&
            (series_options[i].has_value || !word[size]))
            return i;
    return -1;
}

int option_has_value(int option) { return series_options[option].has_value; }

int parse_count(uint64_t *count, const char *text, uint64_t least)
{
    char *end;
    errno = 0;
    *count = is_digit(*text) ? strtoull(text, &end, 10) : 0;
    return is_digit(*text) && !*end && !errno && *count >= least && *count <= INT64_MAX;
}

int set_series_option(struct series_options *s, int option, const char *value)
{
    uint64_t *count = option == SERIES_EVERY        ? &s->every
                      : option == SERIES_KEEP_LAST  ? &s->keep_last
                      : option == SERIES_KEEP_EVERY ? &s->keep_every
                      : option == SERIES_SETTLE     ? &s->settle
                      : option == SERIES_INTERVAL   ? &s->interval
                                                    : NULL;
    s->given |= 1u << option;
    if (series_options[option].has_value && (!value || !*value))
        return fail_series_usage(series_options[option].name, "this option wants a value");
    if (count && !parse_count(count, value, option != SERIES_SETTLE))
        return fail_series_usage(value, option == SERIES_SETTLE ? "is no number of seconds"
                                                                : "is no number from 1 up");
    if (option == SERIES_NAME) {
        s->name = value;
        if (find_fault_of_name(value)) return fail_series_usage(value, find_fault_of_name(value));
    } else if (option == SERIES_MATCH) {
        s->match = value;
    } else if (option == SERIES_KEEP) {
        s->keep = (const char **)resize(s->keep, s->n_keep + 1, sizeof *s->keep);
        s->keep[s->n_keep++] = value;
    }
    return CODE_OK;
}

void tell(const struct options *o, const char *what, const char *name, const char *link,
          const char *other)
{
    if (is_given(o, SERIES_DRY_RUN)) printf("%s %s%s%s\n", what, name, link, other);
    else if (o->verbosity >= 2) say(NULL, "%s %s%s%s", what, name, link, other);
}
