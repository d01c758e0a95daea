/* args.h - the command line
 * SPDX-License-Identifier: MIT
 *
 * Options are removed from argv; the other arguments stay there in order. option_table.c lists all
 * options, and the verbs that take them. Mistakes are reported, with CODE_USAGE.
 */
#pragma once

#include "sys/platform.h"

#include "choose/quantize.h"
#include "verb/verbs.h"

/* Options select verbs up to VERB_LIST, words the others. The last are commands of lmc series. */
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
    VERB_MOUNT,
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

typedef char verbs_fit_into_masks[N_VERBS <= 32 ? 1 : -1]; /* see V() */

#define MAX_THREADS 1024

/* The parsed command line. */
struct arguments {
    enum verb verb;
    int has_word; /* a word that is an alias of an option has selected the verb */
    int is_done;  /* help or the version was printed: nothing more to do */
    struct options o;
    struct bases bases; /* of o */
    struct policy policy;
    long n_threads; /* 0: one for each core */
    int progress;   /* -1: only if standard error is a terminal */
};

/* Reads and checks the command line. a must be freed even after an error, and not moved before. */
int read_arguments(struct arguments *a, int argc, char **argv);

/* Whether name is the word of a verb. */
int is_verb(const char *name);

void free_arguments(struct arguments *a);

/* Prints the text of 'lmc help NAME' (help.c). CODE_USAGE: there is none, which is reported. */
int print_help(const char *name);

/* Reports the usage of a verb that has a word, as its topic has it. */
void say_usage(enum verb verb);

/* -- the table of verbs and options -- */

struct verb_row {
    const char *word, *command; /* word NULL: an option selects it; command: of lmc series */
    const char *said;           /* in "--json is for ..." */
    size_t least, most;         /* number of arguments */
    const char *topic;          /* of lmc help; it begins with the usage */
    int (*run)(const struct options *o);
};

/* In the order of enum verb. */
extern const struct verb_row verbs[N_VERBS];

#define V(verb) (1u << VERB_##verb)
#define ALL ((1u << N_VERBS) - 1)
#define PLAIN (V(SERIES_ADD) - 1)
#define SERIES (ALL & ~PLAIN)
/* Verbs that write the one file or stream that -o and -c name. */
#define WRITERS                                                                                    \
    (V(COMPRESS) | V(RESTORE) | V(CAT) | V(FOLD) | V(REBASE) | V(SERIES_RESTORE) | V(SERIES_CAT))
/* Verbs that parse files for tensors; others do so only for a base. */
#define LOOKERS (V(COMPRESS) | V(DIFF) | V(STATS) | V(APPLY) | V(SERIES_ADD) | V(SERIES_WATCH))
#define CODERS (V(COMPRESS) | V(FOLD) | V(REBASE) | V(SERIES_ADD) | V(SERIES_GC) | V(SERIES_WATCH))
#define LEVELS (CODERS | V(DIFF) | V(STATS))
/* Verbs that search for bases. */
#define BASED (PLAIN & ~V(APPLY))
/* Verbs that may replace something, and that walk through directories. */
#define FORCED (PLAIN & ~V(MOUNT))
#define ADDERS (V(SERIES_ADD) | V(SERIES_WATCH))

/* Verbs that create files and directories from a snapshot, or check that this can be done. */
#define BOUNDED (FORCED | ADDERS | V(SERIES_RESTORE) | V(SERIES_VERIFY) | V(SERIES_GC))

enum kind {
    MODE,  /* no value; sets the verb, to `value` */
    FLAG,  /* no value; sets the int at `at` to `value` */
    ACT,   /* no value; calls `take` */
    TEXT,  /* a value, not empty: stored as const char * at `at`, or handled by `take` */
    ANY,   /* the same, but it may be empty */
    COUNT, /* a number of at least `value`: a uint64_t at `at` */
};

/* A row lists the verbs that take the option; for other verbs the option is a mistake. Two rows may
 * have the same name: then the first row that is valid for the command line counts. */
struct option {
    char letter;      /* 0: it has none */
    const char *name; /* "": it has none */
    enum kind kind;
    unsigned verbs;
    size_t at;
    int value;
    int (*take)(struct arguments *a, const char *text);
    const char *wants; /* what the value is, for messages */
};

extern const struct option options[];
extern const size_t n_options;

/* Reports a mistake in the command line, as say() does. */
#define fail_usage(a, ...) (say(NULL, __VA_ARGS__), refer_to_help(a))

/* Prints where to read more. Returns CODE_USAGE. */
int refer_to_help(const struct arguments *a);

/* Prints the output of --version. */
int print_version(void);
