/* tar_stream.h - a directory as a stream for tar (POSIX.1-2001, pax)
 * SPDX-License-Identifier: MIT
 *
 *   tar_begin -> write_output ... -> tar_end, for each file; tar_link for each link -> tar_finish
 *
 * What the old header of 512 bytes cannot hold (long names, sizes of 8 GiB and more, times before
 * 1970 or with fractions) stands in an extended header before it. All functions return 0 or errno.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/links.h"
#include "../sys/output.h"

/* The header; the file's size must be known. */
int tar_begin(struct output *out, const lmc_file *file);

/* Fills up the file's last record. */
int tar_end(struct output *out, const lmc_file *file);

/* A link. target: what a symbolic one says, or of a hard one the path of a file before it. */
int tar_link(struct output *out, enum link_type type, const char *path, const char *target);

int tar_finish(struct output *out);
