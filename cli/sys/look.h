/* look.h - whether a file or directory changes
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

struct look {
    uint64_t digest; /* of names, kinds, sizes, times, inodes */
    uint64_t state;  /* the same without devices and inodes, which a mount may number anew */
    double newest;   /* time of the newest change, in seconds */
    size_t n_files;
    int is_quick;   /* see look_quickly() */
    int is_whole;   /* all of it could be looked at */
    int is_written; /* a file is open for writing; 0 if unknown */
};

/* Two calls show whether a file or tree has changed. Reports nothing. */
struct look look_at(const char *path);

/* The same, but it does not find out whether files are open for writing. */
struct look look_quickly(const char *path);

/* The state of each entry of a tree, links not followed: a hash of path, file, size and times. */
struct states {
    uint64_t *list; /* sorted */
    size_t n, cap;
};

/* The same, and all states. states: zeros, to be freed by free_states(). */
struct look look_at_states(const char *path, struct states *states);
void free_states(struct states *s);

/* Whether the entry with that path, of `size` bytes, is as it was then. If the file had other
 * names, whose removal changes its ctime, that does not count. */
int is_in_state(const struct states *s, const char *path, size_t size, const struct stat *st);
