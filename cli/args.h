/* args.h - the command line
 * SPDX-License-Identifier: MIT
 *
 * Options are taken out of argv, the other arguments stay there in order. Errors are reported, with
 * CODE_USAGE.
 */
#ifndef LMC_CLI_ARGS_H
#define LMC_CLI_ARGS_H

#include "sys/platform.h"

#include "input/options.h"

#define MAX_THREADS 1024

struct arguments {
    int argc, at, n_files;
    char **argv;
    int only_files;   /* after "--" */
    const char *word; /* "cat" or another verb, if that came first; NULL */
    int done;         /* help or version was printed */
};

/* Reports a mistake in the command line. format: with one %s, for what. */
int fail_usage(const char *format, const char *what);

/* What the name of the program and its first argument say. */
void set_defaults(struct options *o, struct arguments *a);

int parse_arguments(struct options *o, struct arguments *a);

/* Combinations that make no sense, or that would lose something. */
int check_options(const struct options *o, const struct arguments *a);

#endif
