/* SPDX-License-Identifier: MIT */
#include "series.h"

#include <errno.h>
#include <string.h>

#include "../choose/policy.h"
#include "../input/base.h"
#include "../input/options.h"
#include "../sys/names.h"
#include "../sys/report.h"
#include "series_add.h"
#include "series_gc.h"
#include "series_list.h"
#include "series_options.h"
#include "series_prune.h"
#include "series_rebuild.h"
#include "series_restore.h"
#include "series_watch.h"

#define BIT(option) (1u << SERIES_##option)

static const struct series_verb {
    const char *name, *usage;
    int (*run)(const char *directory, char **args, int n, const struct options *o);
    unsigned options;
    int least, most; /* arguments; most -1: any number */
} series_verbs[] = {
    {"add", "[--name NAME] [--every N] [--anchor] [--verify] [--rm] SNAPSHOT", series_add,
     BIT(NAME) | BIT(EVERY) | BIT(ANCHOR) | BIT(VERIFY) | BIT(RM) | BIT(CODING) | BIT(KIND) |
         BIT(QUANT),
     1, 1},
    {"list", "[--json]", series_list, BIT(JSON), 0, 0},
    {"restore", "[-o OUT] [-f] NAME", series_restore, BIT(OUTPUT) | BIT(FORCE), 1, 1},
    {"cat", "[--npy] [--file PATH] [-o OUT] [-f] NAME [TENSOR[SLICE]]", series_cat,
     BIT(OUTPUT) | BIT(FORCE) | BIT(CAT), 1, 2},
    {"prune", "[--dry-run] NAME... | [--keep-last K] [--keep-every M] [--keep NAME]...",
     series_prune, BIT(KEEP_LAST) | BIT(KEEP_EVERY) | BIT(KEEP) | BIT(DRY_RUN), 0, -1},
    {"keep", "NAME...", series_keep, 0, 1, -1},
    {"gc", "[--dry-run]", series_gc, BIT(DRY_RUN) | BIT(CODING), 0, 0},
    {"verify", "[NAME...]", series_verify, 0, 0, -1},
    {"watch",
     "[--rm] [--settle SECONDS] [--interval SECONDS] [--once] [--match GLOB] [--every N] "
     "SOURCE_DIR",
     series_watch,
     BIT(EVERY) | BIT(RM) | BIT(SETTLE) | BIT(INTERVAL) | BIT(ONCE) | BIT(MATCH) | BIT(CODING) |
         BIT(KIND) | BIT(QUANT),
     1, 1},
    {"rebuild", "[--every N]", series_rebuild, BIT(EVERY), 0, 0}};

static const struct series_verb *find_series_verb(const char *name)
{
    for (size_t i = 0; i < sizeof series_verbs / sizeof *series_verbs; i++)
        if (strcmp(series_verbs[i].name, name) == 0) return &series_verbs[i];
    return NULL;
}

int check_series_options(char **files, int n_files, const struct options *o)
{
    const struct series_verb *verb = n_files > 1 ? find_series_verb(files[1]) : NULL;
    unsigned given = o->series.given;
    given |= o->remove_source ? BIT(RM) : 0;
    given |= o->output || o->to_stdout ? BIT(OUTPUT) : 0;
    given |= o->force ? BIT(FORCE) : 0;
    given |= o->json ? BIT(JSON) : 0;
    given |= o->npy || o->file ? BIT(CAT) : 0;
    given |= o->level != LMC_LEVEL_DEFAULT || o->no_twins ? BIT(CODING) : 0;
    given |= o->policy->is_given ? BIT(QUANT) : 0;
    given |= o->opaque || o->dtype != LMC_AUTO ? BIT(KIND) : 0;
    if (n_files > 1 && !verb)
        return fail_series_usage(files[1],
                                 "is no verb; after the directory comes add, list, restore, cat, "
                                 "prune, keep, gc, verify, watch or rebuild");
    if (!verb || n_files - 2 < verb->least || (verb->most >= 0 && n_files - 2 > verb->most)) {
        say(NULL, "usage: lmc series DIR %s %s", verb ? verb->name : "VERB",
            verb ? verb->usage : "...");
        return fail_series_usage(NULL, "wrong number of arguments");
    }
    if ((given & ~verb->options) || o->bases->n || o->recursive) {
        say(NULL, "usage: lmc series DIR %s %s", verb->name, verb->usage);
        return fail_series_usage(verb->name, "does not take one of these options");
    }
    if (o->output && o->to_stdout && !is_dash(o->output))
        return fail_series_usage(NULL, "-o and -c exclude each other");
    if (o->opaque && o->dtype != LMC_AUTO)
        return fail_series_usage(NULL, "--opaque and --dtype exclude each other");
    return CODE_OK;
}

int run_series(char **files, int n_files, const struct options *o)
{
    return find_series_verb(files[1])->run(files[0], files + 2, n_files - 2, o);
}
