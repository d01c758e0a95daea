/* look.h - whether a file or directory changes
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

struct look {
    uint64_t digest; /* of names, kinds, sizes, times */
    int64_t newest;  /* change, in nanoseconds */
    size_t n_files;
    int is_whole;   /* all could be looked at */
    int is_written; /* a file is open for writing; 0 if the system does not tell */
};

/* Two looks show whether the file or tree changes. Nothing is reported. */
struct look look_at(const char *path);

/* That the source, from before it was read to now, was not changed, and that nobody can go on
 * writing to it. To be asked last before it is removed. snapshot: what is made of it, for messages.
 */
int check_unchanged(const char *path, const struct look *before, const char *snapshot);
