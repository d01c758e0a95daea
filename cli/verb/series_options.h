/* series_options.h - the options of lmc series
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_OPTIONS_H
#define LMC_CLI_SERIES_OPTIONS_H

#include "../sys/platform.h"

#include <stdint.h>
#include <unistd.h>

struct options;
struct series_options;

enum series_option {
    SERIES_NAME,
    SERIES_EVERY,
    SERIES_ANCHOR,
    SERIES_VERIFY,
    SERIES_DRY_RUN,
    SERIES_KEEP_LAST,
    SERIES_KEEP_EVERY,
    SERIES_KEEP,
    SERIES_SETTLE,
    SERIES_INTERVAL,
    SERIES_ONCE,
    SERIES_MATCH,
    N_SERIES_OPTIONS,
    /* those of lmc itself */
    SERIES_RM = N_SERIES_OPTIONS,
    SERIES_OUTPUT,
    SERIES_FORCE,
    SERIES_JSON,
    SERIES_CAT,
    SERIES_CODING,
    SERIES_KIND,
    SERIES_QUANT
};

int is_given(const struct options *o, enum series_option option);

int fail_series_usage(const char *name, const char *what);

/* The number of an option of 'lmc series', of which word is the beginning up to '='; -1: there is
 * none. */
int find_series_option(const char *word);

int option_has_value(int option);

int parse_count(uint64_t *count, const char *text, uint64_t least);

/* value: NULL if it has none, or if it is missing */
int set_series_option(struct series_options *s, int option, const char *value);

/* Tells what is done, or would be. */
void tell(const struct options *o, const char *what, const char *name, const char *link,
          const char *other);

#endif
