/* options.h - what the command line says: one struct for all verbs
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "places.h"
#include "../sys/tree.h"

/* The arguments of --base, see base.h. */
struct bases {
    struct base *list;
    size_t n;
    struct base *found;   /* by their fingerprint, where bases are looked for; a list */
    struct places places; /* snapshots among the arguments and there */
    size_t n_given;       /* arguments that were looked at for that */
    size_t *others;       /* the numbers of those that are no snapshots */
    size_t n_others;
    const char **search; /* --search: directories of snapshots */
    size_t n_search;
    int is_closed;  /* --no-search: nothing but the arguments is looked at */
    int is_off;     /* --no-base: what lacks its base is checked without */
    int is_quiet;   /* nobody has typed them: what is not needed is not told */
    int is_partial; /* of lmc salvage: damage costs a block of a base, not all of it */
    int code;       /* what reading from one of them, or a second look, has reported */
};

/* Files and directories that a snapshot may make, and how deep: it needs 4 bytes for each of them,
 * so a small hostile one could fill a disk with them. As many may go into one: with --dereference,
 * two links in each of 40 directories are 2^40. Far more than any checkpoint has. */
#define DEFAULT_MAX_FILES ((uint64_t)1000000)
#define DEFAULT_MAX_DEPTH ((size_t)1000)

struct policy;

/* Belongs to the caller, as all that it points to, and outlives the verb. What a verb does not take
 * is 0. */
struct options {
    char **names; /* what is no option, behind the verb */
    size_t n_names;
    size_t n_parts;        /* of lmc -d: names behind the first that are paths in the snapshot */
    const char *directory; /* of lmc series */
    lmc_parallel parallel;
    int verbosity;        /* 0 quiet, 1 default, 2 and more verbose */
    int force;            /* -f: what exists may be overwritten */
    int recursive;        /* -r */
    int to_stdout;        /* -c */
    const char *output;   /* -o; NULL: not given; "-": standard output */
    int remove_source;    /* --rm: when what was made of it is on the disk, and was compared */
    int json;             /* --json */
    int opaque;           /* --opaque: do not look into files for tensors */
    int hashes;           /* --hash: write content hashes; of -t: check them */
    enum lmc_dtype dtype; /* --dtype; LMC_AUTO: look into the file */
    struct bases *bases;  /* --base; never NULL, may hold none */
    enum link_mode links; /* --dereference, --no-dereference */
    /* --max-files of what is restored or taken; --max-depth of what is restored; 0: the default */
    uint64_t max_files, max_depth;
    /* How a snapshot is coded, and what deltas are measured with */
    enum lmc_level level;        /* --fast, --max, --archive */
    int no_twins;                /* --no-twins */
    const struct policy *policy; /* --quant and --policy; may have no rules */
    /* cat */
    int npy;          /* --npy: with a header of NumPy before it */
    int f32;          /* --f32: floats of 8 and 16 bits become floats of 32 */
    int safetensors;  /* --safetensors: a file of whole tensors */
    const char *file; /* --file: the file that has the tensor; NULL: whichever has it */
    /* apply: the target is not read first to know that it is the base */
    int trust_base;
    const char *onto; /* rebase: the new base, or "none" */
    /* series */
    const char *name;   /* add; NULL: that of the source */
    int anchor, verify; /* add: not against another one; compare with the source */
    uint64_t every;     /* add, watch, rebuild: files of the longest chain; 0: as before */
    int dry_run;        /* prune, gc: tell what would be done */
    uint64_t keep_last, keep_every; /* prune; 0: no such rule */
    const char **keep;              /* prune */
    size_t n_keep;
    uint64_t settle, interval; /* watch: seconds */
    int once;                  /* watch */
    const char *match;         /* watch: a pattern for names; NULL: all */
    int only_whole;            /* watch: what looks cut is not taken as plain bytes */
};

/* Of --max-files and --max-depth, or the defaults. */
uint64_t most_files(const struct options *o);
uint64_t most_levels(const struct options *o);

/* -o, if that is a file; NULL: standard output, or it was not given. */
const char *file_of_output(const struct options *o);

/* Whether -o ends with a slash: it names a directory, which takes the outputs if it is there. */
int names_directory(const struct options *o);
int goes_into_directory(const struct options *o);

/* That -o is no directory where a file is to go, or, by a slash, one that is not there. */
int check_output_name(const struct options *o);

/* Whether tables have the columns that fit into 80: on a terminal of less than 132, without -v. */
int wants_narrow_tables(const struct options *o);

/* Whether a line at the end tells what was done: on a terminal, unless quiet, and with -v. */
int wants_summary(const struct options *o);

/* "FILE: 2808952 -> 1861234 bytes (66.26 %), 812 MB/s", if wants_summary(). start: see now() */
void say_sizes(const struct options *o, const char *name, uint64_t from, uint64_t to,
               uint64_t plain, double start);

/* -- several inputs of one command, which must not destroy each other (operands.c) --
 *
 * "lmc -f x x.lmc" would put the snapshot of x in the place of x.lmc, its next input. Asked before
 * anything is written, if there are several inputs.
 */

/* Of a verb that goes from one name to the next, each with an output of its own: NAME.lmc, or NAME
 * without its suffix, beside it or in one directory. */

/* Where the output made of a file or directory goes: beside it, or into the directory that -o
 * names. NULL: what is restored is not named .lmc. To be freed. */
char *name_output(const char *from, int is_restoring, const struct options *o);

/* Whether an entry of a directory is an input with -r: when compressing, what is not compressed
 * yet, else the others. */
int is_operand(const struct entry *e, int is_restoring);

/* Refuses an output that replaces another input, or the output of another one. */
int check_overwritten(int is_restoring, const struct options *o);

/* With --rm: refuses all if one of them cannot be used, or goes with another one. */
int check_removed(int is_restoring, const struct options *o);
