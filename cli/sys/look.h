/* look.h - whether a file or directory changes
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

struct look {
    uint64_t digest; /* of names, kinds, sizes, times */
    int64_t newest;  /* newest change, in nanoseconds */
    size_t n_files;
    int is_whole;   /* all of it could be looked at */
    int is_written; /* a file is open for writing; 0 if unknown */
};

/* Two calls show whether a file or tree has changed. Reports nothing. */
struct look look_at(const char *path);

/* The last check before the source is removed: it has not changed since `before`, which was taken
 * before reading it, and no program has it open for writing. snapshot: for messages.
 */
int check_unchanged(const char *path, const struct look *before, const char *snapshot);
