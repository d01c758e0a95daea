/* operands.h - several inputs of one command, which must not destroy each other
 * SPDX-License-Identifier: MIT
 *
 * "lmc -f x x.lmc" would put the snapshot of x in the place of x.lmc, its next input. Asked before
 * anything is written, if there are several inputs.
 */
#pragma once

#include "../sys/platform.h"

#include "options.h"

/* The names on the command line of a verb that goes from one to the next, each with an output of
 * its own: NAME.lmc, or NAME without its suffix, beside it or in one directory. */
struct operands {
    char *const *names;
    size_t n;
    int is_restoring;
    int is_recursive; /* -r: each file of a directory is an input */
};

/* Where the output made of a file or directory goes: beside it, or into the directory that -o
 * names. NULL: what is restored is not named .lmc. To be freed. */
char *name_output(const char *from, int is_restoring, const struct options *o);

/* Whether an entry of a directory is an input with -r: when compressing, what is not compressed
 * yet, else the others. */
int is_operand(const struct entry *e, int is_restoring);

/* Refuses an output that replaces another input, or the output of another one. */
int check_overwritten(const struct operands *all, const struct options *o);

/* With --rm: refuses all if one of them cannot be used, or goes with another one. */
int check_removed(const struct operands *all, const struct options *o);
