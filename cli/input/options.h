/* options.h - the options of the command line, in one struct for all verbs
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "catalog.h"
#include "../sys/tree.h"

/* The arguments of --base, see base.h. */
struct bases {
    struct base *list;
    size_t n;
    struct base *found;      /* found in directories by their fingerprints; a linked list */
    struct base **by_name;   /* these in lists, by a hash of the name */
    size_t n_found, n_lists; /* n_lists: a power of two, or 0 */
    struct catalog catalog;  /* snapshots among the arguments and in the directories */
    size_t n_given;          /* arguments that were looked at for candidates */
    size_t *others;          /* numbers of arguments that are not intact snapshots */
    size_t n_others;
    const char **search; /* directories of snapshots: --search, and such arguments of --base */
    size_t n_search;
    int is_closed;  /* --no-search: only the arguments are tried */
    int is_off;     /* --no-base: deltas are checked without their bases */
    int is_quiet;   /* not named by the user: unused bases are not reported */
    int is_partial; /* lmc salvage: of a damaged base, intact blocks are used */
    /* Lends its buffers to all readers that are opened with these bases, and is the place of their
     * one limit of work; see lender_of(). NULL: none was needed yet. */
    lmc_reader *lender;
    lmc_parallel parallel; /* of the lender */
    int code;              /* exit code of errors in reading them, or in reading a source again */
};

/* Limits of files and directories that a snapshot may make, and of their depth. Each takes only 4
 * bytes in the snapshot, so a small hostile one could fill a disk. Compressing has the same limit:
 * with --dereference, two links in each of 40 directories lead to 2^40 files. */
#define DEFAULT_MAX_FILES ((uint64_t)1000000)
#define DEFAULT_MAX_DEPTH ((size_t)1000)

struct policy;

/* The caller owns the options and all that they point to, and frees them after the verb. Options
 * that a verb does not take are 0. */
struct options {
    char **names; /* arguments behind the verb that are no options */
    size_t n_names;
    size_t n_parts;        /* lmc -d: names behind the first, if they are paths in the snapshot */
    const char *directory; /* of lmc series */
    lmc_parallel parallel;
    int verbosity;        /* 0 quiet, 1 default, 2 and more verbose */
    int force;            /* -f: existing outputs may be overwritten */
    int recursive;        /* -r */
    int to_stdout;        /* -c */
    const char *output;   /* -o; NULL: not given; "-": standard output */
    int remove_source;    /* --rm: after the output is on the disk and was compared */
    int json;             /* --json */
    int opaque;           /* --opaque: do not look into files for tensors */
    int hashes;           /* --hash: write content hashes; -t: check them */
    enum lmc_dtype dtype; /* --dtype; LMC_AUTO: look into the file */
    struct bases *bases;  /* --base; never NULL, may hold none */
    enum link_mode links; /* --dereference, --no-dereference */
    /* --max-files, for restoring and compressing; --max-depth, for restoring; 0: the default */
    uint64_t max_files, max_depth;
    const char **excluded; /* --exclude: patterns of what is not compressed of directories */
    size_t n_excluded;
    /* How to code a snapshot, or to measure deltas */
    enum lmc_level level;        /* --fast, --max, --archive */
    int no_twins;                /* --no-twins */
    int no_zeros;                /* --no-zeros */
    int no_matrix;               /* --no-matrix */
    int no_codes;                /* --no-codes */
    const struct policy *policy; /* --quant and --policy; may have no rules */
    /* cat */
    int npy;          /* --npy: with a header of NumPy before the tensor */
    int f32;          /* --f32: floats of 8 and 16 bits become floats of 32 */
    int safetensors;  /* --safetensors: a file of whole tensors */
    const char *file; /* --file: the file that has the tensor; NULL: any */
    uint64_t top;     /* diff, stats: rows to print; 0: all */
    /* apply: do not read the target first to check that it is the base */
    int trust_base;
    const char *onto; /* rebase: the new base, or "none" */
    /* mount */
    int foreground, allow_other;
    const char *log; /* --log: the file for messages; NULL: syslog */
    /* series */
    const char *name;               /* add; NULL: that of the source */
    int anchor, verify;             /* add: without a base; compare with the source */
    uint64_t every;                 /* add, watch, rebuild: most files of a chain; 0: as before */
    int dry_run;                    /* prune, gc: tell what would be done */
    uint64_t keep_last, keep_every; /* prune; 0: no such rule */
    const char **keep;              /* prune */
    size_t n_keep;
    uint64_t settle, interval; /* watch: seconds */
    int once;                  /* watch */
    const char *match;         /* watch: a pattern for names; NULL: all */
    int only_whole;            /* watch: files that look cut are not taken as plain bytes */
};

/* The values of --max-files and --max-depth, or the defaults. */
uint64_t most_files(const struct options *o);
uint64_t most_levels(const struct options *o);

/* -o, if that is a file; NULL: standard output, or it was not given. */
const char *file_of_output(const struct options *o);

/* Whether -o ends with a slash, so that it names a directory; and whether the directory exists. */
int names_directory(const struct options *o);
int goes_into_directory(const struct options *o);

/* Checks that -o is not a directory if the output is a file, and that its directory exists. */
int check_output_name(const struct options *o);

/* Whether tables have to fit into 80 columns: without -v, on a terminal of less than 132. */
int wants_narrow_tables(const struct options *o);

/* Whether to print a summary at the end: with -v, and on a terminal unless quiet. */
int wants_summary(const struct options *o);

/* "FILE: 2808952 -> 1861234 bytes (66.26 %), 812 MB/s", if wants_summary(). start: see now() */
void say_sizes(const struct options *o, const char *name, uint64_t from, uint64_t to,
               uint64_t plain, double start);

/* -- several inputs of one command, which must not destroy each other (operands.c) --
 *
 * "lmc -f x x.lmc" would replace its own next input, x.lmc, by the snapshot of x. This is checked
 * before anything is written, if there are several inputs.
 */

/* For verbs with an output for each name: NAME.lmc, or NAME without its suffix; beside NAME or in
 * one directory. */

/* The path of the output that is made of a file or directory: beside it, or in the directory that
 * -o names. NULL: it is to be restored, but its name does not end with .lmc. To be freed. */
char *name_output(const char *from, int is_restoring, const struct options *o);

/* The path that the snapshot at path is restored to; NULL: standard output. is_part: only a part of
 * it is restored, below the path of -o. *code: an exit code; errors are reported. To be freed. */
char *name_target(const char *path, int is_part, const struct options *o, int *code);

/* Whether a later argument of lmc -d is a snapshot, by its name or its content. */
int is_named_snapshot(const char *path);

/* Whether -r takes an entry of a directory: for compressing, a file that is no .lmc file; else a
 * .lmc file. */
int is_operand(const struct entry *e, int is_restoring);

/* Refuses an output that would replace another input, or the output of another input. */
int check_overwritten(int is_restoring, const struct options *o);

/* With --rm: refuses all inputs if an input cannot be used, or is part of another input. */
int check_removed(int is_restoring, const struct options *o);
