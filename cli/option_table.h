/* option_table.h - the verbs, the options, and which verb takes which option
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_OPTION_TABLE_H
#define LMC_CLI_OPTION_TABLE_H

#include "sys/platform.h"

#include "args.h"

struct verb_row {
    const char *word, *command; /* NULL: it is asked for by an option; of lmc series */
    const char *said;           /* in "--json is for ..." */
    const char *usage;          /* what comes after the word */
    int least, most;            /* arguments */
    const char *topic;          /* of lmc help */
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

/* A row says which verbs take the option; with all others it is a mistake. Of a name that stands
 * here twice, the first row that the command line can mean counts. */
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

#endif
