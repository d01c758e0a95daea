/* common.h - what every verb is told, whatever it does
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

/* Belongs to the caller, as all that it points to, and outlives the verb. */
struct common {
    lmc_parallel parallel;
    int verbosity;        /* 0 quiet, 1 default, 2 and more verbose */
    int force;            /* -f: what exists may be overwritten */
    int to_stdout;        /* -c */
    const char *output;   /* -o; NULL: not given; "-": standard output */
    int opaque;           /* --opaque: do not look into files for tensors */
    int hashes;           /* --hash: write content hashes; of -t: check them */
    enum lmc_dtype dtype; /* --dtype; LMC_AUTO: look into the file */
    struct bases *bases;  /* --base; never NULL, may hold none */
    enum link_mode links; /* --dereference, --no-dereference */
    /* --max-files of what is restored or taken; --max-depth of what is restored; 0: the default */
    uint64_t max_files, max_depth;
};

/* Of --max-files and --max-depth, or the defaults. */
uint64_t most_files(const struct common *o);
uint64_t most_levels(const struct common *o);

/* -o, if that is a file; NULL: standard output, or it was not given. */
const char *file_of_output(const struct common *o);

/* Whether -o ends with a slash: it names a directory, which takes the outputs if it is there. */
int names_directory(const struct common *o);
int goes_into_directory(const struct common *o);

/* That -o is no directory where a file is to go, or, by a slash, one that is not there. */
int check_output_name(const struct common *o);

/* Whether tables have the columns that fit into 80: on a terminal of less than 132, without -v. */
int wants_narrow_tables(const struct common *o);

/* Whether a line at the end tells what was done: on a terminal, unless quiet, and with -v. */
int wants_summary(const struct common *o);

/* "FILE: 2808952 -> 1861234 bytes (66.26 %), 812 MB/s", if wants_summary(). start: see now() */
void say_sizes(const struct common *o, const char *name, uint64_t from, uint64_t to, uint64_t plain,
               double start);
