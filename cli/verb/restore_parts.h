/* restore_parts.h - lmc -d SNAPSHOT PATH...: files out of a snapshot of a directory
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RESTORE_PARTS_H
#define LMC_CLI_RESTORE_PARTS_H

#include "../sys/platform.h"

#include <stddef.h>

#include "../input/common.h"

/* Whether an argument of lmc -d that is not the first is a snapshot: it is named so, or is one. */
int is_named_snapshot(const char *path);

/* Restores the files and links that the patterns match, and what is below the directories that
 * they match, to where all of the snapshot would go: target, a directory that may be there. NULL:
 * their bytes one after another to standard output. Only the blocks that hold them are read. */
int extract_files(const char *path, const char *target, char *const *patterns, size_t n,
                  const struct common *o);

#endif
