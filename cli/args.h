/* args.h - the command line
 * SPDX-License-Identifier: MIT
 *
 * Options are taken out of argv, the other arguments stay there in order. What there is to take
 * stands in option_table.h. Mistakes are reported, with CODE_USAGE.
 */
#ifndef LMC_CLI_ARGS_H
#define LMC_CLI_ARGS_H

#include "sys/platform.h"

#include "choose/members.h"
#include "choose/policy.h"
#include "input/common.h"
#include "verb/series.h"

/* Up to VERB_LIST by an option, the others by a word; behind them the commands of lmc series. */
enum verb {
    VERB_COMPRESS,
    VERB_RESTORE,
    VERB_TEST,
    VERB_LIST,
    VERB_CAT,
    VERB_DIFF,
    VERB_STATS,
    VERB_FOLD,
    VERB_REBASE,
    VERB_VERIFY,
    VERB_APPLY,
    VERB_SALVAGE,
    VERB_DUMP,
    VERB_SERIES_ADD,
    VERB_SERIES_LIST,
    VERB_SERIES_RESTORE,
    VERB_SERIES_CAT,
    VERB_SERIES_PRUNE,
    VERB_SERIES_KEEP,
    VERB_SERIES_GC,
    VERB_SERIES_VERIFY,
    VERB_SERIES_WATCH,
    VERB_SERIES_REBUILD,
    N_VERBS
};

#define MAX_THREADS 1024

/* What was asked for. Nobody but main.c gets all of it: it makes the options of each verb of it. */
struct arguments {
    enum verb verb;
    const char *directory; /* of lmc series */
    char **names;          /* what is no option, behind the verb */
    int n_names;
    int has_word; /* the verb was asked for by a word that stands for an option */
    int is_done;  /* help or the version was printed: there is nothing more to do */
    struct common common;
    struct coding coding;
    struct bases bases;
    struct policy policy;
    struct series_options series; /* what no other verb has */
    int n_parts; /* of lmc -d: names behind the first that are paths in the snapshot */
    int remove_source, recursive, json, npy, f32, safetensors, trust_base;
    const char *file, *onto; /* NULL: not given */
    long n_threads;          /* 0: one for each core */
    int progress;            /* -1: if standard error is a terminal */
};

/* Reads and checks the command line. CODE_OK, or what was reported. a is to be freed in any case,
 * and must not move until then. */
int read_arguments(struct arguments *a, int argc, char **argv);

/* Whether that is the word of a verb. */
int is_verb(const char *name);

void free_arguments(struct arguments *a);

#endif
