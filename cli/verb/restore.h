/* restore.h - lmc -d: snapshots to files and directories
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RESTORE_H
#define LMC_CLI_RESTORE_H

#include "../sys/platform.h"

#include "../input/common.h"

struct restore_options {
    struct common common;
    int remove_source; /* --rm: when what was restored has been read again */
};

/* Restores the snapshot at path ("-": standard input) to what -o or its own name says. */
/* lmc -d SNAPSHOT PATH...: see restore_parts.h. */
int restore_parts(const char *path, char *const *patterns, size_t n,
                  const struct restore_options *options);

int restore_file(const char *path, const struct restore_options *options);

#endif
