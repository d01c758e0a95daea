/* output.h - an output that appears whole or not at all
 * SPDX-License-Identifier: MIT
 *
 * A regular file is written without a name, and gets its name when all of it is on the disk: so
 * nothing is left behind, not even by kill -9. If it replaces another file, or the system has no
 * files without names, it is written under a temporary name beside its own; so there is one output
 * at a time. Devices, pipes and standard output are written directly.
 *
 *   open_output -> write_output ... -> commit_output    the whole file is there
 *                                   -> discard_output   nothing is left
 */
#pragma once

#include "platform.h"

#include "io.h"
#include "temporary.h"

struct attributes;

struct output {
    char *path;            /* NULL: standard output */
    struct spot at;        /* of a file: its place */
    int is_file;           /* a regular file; else it is written directly */
    const char *temporary; /* registered; NULL: it has no name yet */
    int fd;
    int force;
    int open;
    struct outlet outlet;
};

/* The output's name for messages. */
const char *output_name(const struct output *out);

/* Where a link leads, link by link, even if nothing is there: an output replaces the target, not
 * the link. A copy of path if it is not a link. To be freed; NULL: the links form a loop. */
char *follow_links(const char *path);

/* Checks that an output may be written and is not the input file. input: that file's stat, or
 * NULL. */
int check_output(const char *path, const struct stat *input, int force);

/* Opens the output at path; NULL: standard output. input: the stat of the input file, which must
 * not be the output; or NULL. After an error, which is reported, there is nothing to close. */
int open_output(struct output *out, const char *path, const struct stat *input, int force);

/* Reports that writing has failed with that errno. */
int fail_output(const struct output *out, int error);

/* The errno of the last output that could not be written since the last call; 0: none. */
int take_output_error(void);

/* The write of an lmc_sink. Its error can be reported by fail_output(). */
int write_output(void *user, const void *data, size_t size);

/* Gives the output up, and leaves nothing behind. */
void discard_output(struct output *out);

/* Before a source is removed: reports that it stays, if a sync of the result was refused. */
int check_on_disk(const char *source);

/* Completes the output under its name, and syncs it; on errors reports them and discards it.
 * attributes NULL: those of a new file. */
int commit_output(struct output *out, const struct attributes *attributes);
