/* options.h - what the command line asks for
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_OPTIONS_H
#define LMC_CLI_OPTIONS_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"
#include "../sys/progress.h"

struct base;
struct policy;

enum verb {
    VERB_COMPRESS,
    VERB_RESTORE,
    VERB_TEST,
    VERB_LIST,
    VERB_CAT,
    VERB_DIFF,
    VERB_FOLD,
    VERB_REBASE,
    VERB_VERIFY,
    VERB_APPLY,
    VERB_SERIES,
    VERB_STATS,
    VERB_SALVAGE
};

/* The arguments of --base, see base.h. */
struct bases {
    struct base *list;
    size_t n;
    int code; /* what reading from one of them, or a second look, has reported */
};

/* What only 'lmc series' takes, see series.h. Numbers that were not given are 0. */
struct series_options {
    unsigned given; /* a bit for each option */
    const char *name, *match;
    const char **keep;
    size_t n_keep;
    uint64_t every, keep_last, keep_every, settle, interval;
};

struct options {
    enum verb verb;
    int to_stdout, force, remove_source, recursive, json, npy, opaque, no_twins, trust_base;
    int verbosity;         /* 0 quiet, 1 default, 2 and more verbose */
    const char *output;    /* -o; NULL */
    enum lmc_dtype dtype;  /* --dtype; LMC_AUTO: look into the file */
    enum lmc_level level;  /* --max */
    const char *file;      /* --file; NULL */
    struct bases *bases;   /* --base; may be none */
    struct policy *policy; /* --quant and --policy; may have no rules */
    const char *onto;      /* --onto; NULL */
    const char *svg;       /* --svg; NULL */
    struct series_options series;
    long n_threads; /* 0: one for each core */
    int progress;   /* -1: if standard error is a terminal */
    lmc_parallel parallel;
};

/* "FILE: 2808952 -> 1861234 bytes (66.26 %), 812 MB/s" */
void say_sizes(const struct options *o, const char *name, uint64_t from, uint64_t to,
               uint64_t plain, double start);

#endif
