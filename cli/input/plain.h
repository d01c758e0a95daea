/* plain.h - files that are no snapshot, read as if they were one: their tensors, as they are
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_PLAIN_H
#define LMC_CLI_PLAIN_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../../lmc.h"
#include "../../formats/container.h"
#include "archive.h"
#include "opened.h"

struct common;

struct plain_file {
    char *path, *full; /* in the directory, "" of a single file; where it is */
    struct stat st;
    struct container container;
    lmc_file file;
};

struct plain {
    struct plain_file *files;
    size_t n;
    struct opened opened;
    const struct common *o;
    lmc_base base; /* the archive's */
};

/* Opens what is at path: a snapshot, or files that have tensors (a->plain is not NULL then), or a
 * directory of them. Nothing is read of those but headers. To be closed in any case, by
 * close_archive() and close_plain(). */
int open_archive_or_plain(struct archive *a, struct plain *p, const char *path,
                          const struct common *o);
void close_plain(struct plain *p);

/* Refuses an output (NULL: there is none) in the place of one of the files. */
int protect_plain(const struct plain *p, const char *output);

#endif
