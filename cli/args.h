/* args.h - the command line
 * SPDX-License-Identifier: MIT
 *
 * Options are taken out of argv, the other arguments stay there in order. option_table.c says what
 * there is to take, and which verb takes which option. Mistakes are reported, with CODE_USAGE.
 */
#pragma once

#include "sys/platform.h"

#include "choose/quantise.h"
#include "verb/verbs.h"

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

/* What was asked for. */
struct arguments {
    enum verb verb;
    int has_word; /* the verb was asked for by a word that stands for an option */
    int is_done;  /* help or the version was printed: there is nothing more to do */
    struct options o;
    struct bases bases; /* of o */
    struct policy policy;
    long n_threads; /* 0: one for each core */
    int progress;   /* -1: if standard error is a terminal */
};

/* Reads and checks the command line. a is to be freed in any case, and must not move until then. */
int read_arguments(struct arguments *a, int argc, char **argv);

/* Whether that is the word of a verb. */
int is_verb(const char *name);

void free_arguments(struct arguments *a);

/* Prints the text of 'lmc help NAME' (help.c); CODE_USAGE, reported: there is none. */
int print_help(const char *name);

/* -- the table of verbs and options -- */

struct verb_row {
    const char *word, *command; /* NULL: it is asked for by an option; of lmc series */
    const char *said;           /* in "--json is for ..." */
    const char *usage;          /* what comes after the word */
    size_t least, most;         /* arguments */
    const char *topic;          /* of lmc help */
    int (*run)(const struct options *o);
};

/* In the order of enum verb. */
extern const struct verb_row verbs[N_VERBS];

#define V(verb) (1u << VERB_##verb)
#define ALL ((1u << N_VERBS) - 1)
#define PLAIN (V(SERIES_ADD) - 1)
#define SERIES (ALL & ~PLAIN)
/* They write the one file or stream that -o and -c name. */
#define WRITERS                                                                                    \
    (V(COMPRESS) | V(RESTORE) | V(CAT) | V(FOLD) | V(REBASE) | V(SERIES_RESTORE) | V(SERIES_CAT))
/* They look into files for tensors; the others only if a base is such a file. */
#define LOOKERS (V(COMPRESS) | V(DIFF) | V(STATS) | V(APPLY) | V(SERIES_ADD) | V(SERIES_WATCH))
#define CODERS (V(COMPRESS) | V(FOLD) | V(REBASE) | V(SERIES_ADD) | V(SERIES_GC) | V(SERIES_WATCH))
#define LEVELS (CODERS | V(DIFF) | V(STATS))
/* Their bases are looked for. */
#define BASED (PLAIN & ~V(APPLY))
#define ADDERS (V(SERIES_ADD) | V(SERIES_WATCH))

/* They make files and directories of what a snapshot says. */
#define MAKERS (V(RESTORE) | V(APPLY) | V(SALVAGE) | V(SERIES_RESTORE))

enum kind {
    MODE,  /* no value; sets the verb, to `value` */
    FLAG,  /* no value; sets the int at `at` to `value` */
    ACT,   /* no value; calls `take` */
    TEXT,  /* a value, not empty: a const char * at `at`, or what `take` makes of it */
    ANY,   /* the same, but it may be empty */
    COUNT, /* a number of at least `value`: a uint64_t at `at` */
};

/* A row says which verbs take the option; with all others it is a mistake. A name may stand here
 * twice: then the first row counts that the command line can mean. */
struct option {
    char letter;      /* 0: it has none */
    const char *name; /* "": it has none */
    enum kind kind;
    unsigned verbs;
    size_t at;
    int value;
    int (*take)(struct arguments *a, const char *text);
    const char *wants; /* what the value is */
};

extern const struct option options[];
extern const size_t n_options;

/* Reports a mistake in the command line, as say() does. */
#define fail_usage(a, ...) (say(NULL, __VA_ARGS__), refer_to_help(a))

/* Where to read more; CODE_USAGE. */
int refer_to_help(const struct arguments *a);

/* What --version prints. */
int print_version(void);
