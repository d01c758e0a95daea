/* tree.h - what is in a directory
 * SPDX-License-Identifier: MIT
 *
 * Links to directories are never followed.
 */
#ifndef LMC_CLI_TREE_H
#define LMC_CLI_TREE_H

#include "platform.h"

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

/* The next entry but "." and ".."; NULL: there is no more, or it cannot be read: *error then,
 * unless an error stands there. */
struct dirent *next_entry(DIR *directory, int *error);

struct entry {
    char *path; /* below the root; "" is the root itself */
    int is_directory;
    uint64_t size; /* of a file */
};

struct listing {
    struct entry *entries;
    size_t n, room;
};

/* Adds an entry, of size 0; the pointer is valid until the next one is added. */
struct entry *add_entry(struct listing *l, const char *path, int is_directory);

void free_listing(struct listing *l);

/* Everything below root, and root itself as "", in the order of the bytes of the paths. */
int list_tree(struct listing *l, const char *root);

/* Lets the owner into all directories that were listed at root. 0 or errno; allocates only what it
 * can do without: see remove_listed(). */
int open_up_listed(const struct listing *l, const char *root);

/* Removes at root what was listed and no more: a file that came later keeps its directories. 0 or
 * errno, and *stopped_at is what could not be removed. Out of memory is an error as any other here,
 * so that this may run with the lock of the temporary name. */
int remove_listed(const struct listing *l, const char *root, const struct entry **stopped_at);

#endif
