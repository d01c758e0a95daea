/* restore.h - lmc -d: snapshots to files and directories; lmc -t: whether they can be restored
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

struct restore_options {
    struct common common;
    int remove_source; /* --rm: when what was restored has been read again */
};

/* Restores the snapshot at path ("-": standard input) to what -o or its own name says. */
int restore_file(const char *path, const struct restore_options *options);

/* The same of the files and links that the patterns match, what is below the directories that they
 * match, and what the links lead to: into a directory that may be there; or their bytes one after
 * another to standard output. Only the blocks that hold them are read. */
int restore_parts(const char *path, char *const *patterns, size_t n,
                  const struct restore_options *options);

/* What restore_parts() does; target: NULL for standard output. */
int extract_files(const char *path, const char *target, char *const *patterns, size_t n,
                  const struct common *o);

/* Restores the snapshot at path ("-": standard input) to nowhere. CODE_OK: it is whole. */
int test_file(const char *path, const struct common *o);

/* Whether an argument of lmc -d that is not the first is a snapshot: it is named so, or is one. */
int is_named_snapshot(const char *path);
