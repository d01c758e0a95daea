/* output.h - an output that appears whole or not at all
 * SPDX-License-Identifier: MIT
 *
 * A regular file is written without a name, and gets its own when all of it is on the disk: so
 * nothing is left behind, not even by kill -9. Where it replaces another one, or the system has no
 * such files, it is written under a temporary name beside its own, so there is one output at a
 * time. Devices, pipes and standard output are written as they are.
 *
 *   open_output -> write_output ... -> commit_output    the file is there, whole
 *                                   -> discard_output   nothing is left
 *
 */
#pragma once

#include "platform.h"

#include "io.h"
#include "temporary.h"

struct attributes;

struct output {
    char *path;            /* NULL: standard output */
    int is_file;           /* that appears whole or not at all; else it is written in place */
    const char *temporary; /* registered; NULL: it has no name until it appears */
    int fd;
    int held; /* a scratch file that takes what is written, until release_output(); -1: none */
    int force;
    int open;
    struct outlet outlet;
};

/* For messages. */
const char *output_name(const struct output *out);

/* Where a link leads, link by link, be anything there or not: an output replaces that, not the
 * link. A copy of path where it is none. To be freed; NULL: it leads in a circle. */
char *follow_links(const char *path);

/* An output that must not be the file that is read. input: of that file, or NULL. */
int check_output(const char *path, const struct stat *input, int force);

/* Opens the output at path; NULL: standard output. input: of the file that is read, which it must
 * not be, or NULL. After an error, which is reported, there is nothing to close. */
int open_output(struct output *out, const char *path, const struct stat *input, int force);

/* From now on what is written waits in a scratch file. */
int hold_output(struct output *out);

/* Writes what waits, and does not hold any more. 0 or errno, which is that of the outlet, too. */
int release_output(struct output *out);

/* Takes the scratch file, which is to be closed; the output begins anew. */
int take_held(struct output *out);

/* Reports that writing has failed with that errno. */
int fail_output(const struct output *out, int error);

/* As lmc_sink asks; fail_output() reports it. */
int write_output(void *user, const void *data, size_t size);

/* Gives up; nothing stays behind. */
void discard_output(struct output *out);

/* Completes the output on the disk, under its name; or discards it and reports. attributes NULL:
 * those of a new file. */
int commit_output(struct output *out, const struct attributes *attributes);
