/* tree.h - what is in a directory
 * SPDX-License-Identifier: MIT
 *
 * Links to directories are never followed.
 */
#pragma once

#include "platform.h"

#include <dirent.h>

/* The next entry, without "." and ".."; NULL: no more, or an error, which sets *error unless it is
 * set. */
struct dirent *next_entry(DIR *directory, int *error);

struct entry {
    char *path; /* below the root; "" is the root itself */
    int is_directory;
    char *link;      /* the text of a symbolic link; NULL: no link */
    int is_file;     /* a link that leads to a regular file */
    int is_followed; /* a link to a file outside of the tree, taken as that file */
    uint64_t size;   /* of a file, or of what a link leads to */
};

struct listing {
    struct entry *entries;
    size_t n, room;
    size_t n_followed;   /* entries that are followed */
    size_t n_outside;    /* links to directories outside of the tree, not followed */
    size_t n_special;    /* links to devices, pipes and sockets, unless kept by LINKS_KEEP */
    size_t n_unreadable; /* directories; the first MOST_NAMED were reported */
    char **others;       /* sockets, pipes, devices */
    size_t n_others;
};

/* So many faults of one kind in a tree are reported by name; the others are only counted. */
#define MOST_NAMED ((size_t)20)

/* What to take for symbolic links. */
enum link_mode {
    LINKS_AUTO,   /* links; the file, if the link leads out of the tree */
    LINKS_KEEP,   /* links */
    LINKS_FOLLOW, /* what they lead to */
};

/* Adds an entry of size 0. The pointer is valid until the next one is added. */
struct entry *add_entry(struct listing *l, const char *path, int is_directory);

void free_listing(struct listing *l);

/* Lists the names in a directory, and nothing else. 0, or errno: not all could be read. */
int list_names(struct listing *l, const char *directory);

/* Lists everything below root, and root itself as "", in the byte order of the paths. most: a limit
 * for files and directories, as a few links can lead to any number of them; 0: none. */
int list_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most);

/* Gives the owner all rights to the listed directories below root. Returns as remove_listed(). */
int open_up_listed(const struct listing *l, const char *root);

/* Removes what was listed below root and nothing else: newer files stay, with their directories. 0,
 * or errno and *stopped_at: what could not be removed. May run with the lock of temporary.h. */
int remove_listed(const struct listing *l, const char *root, const struct entry **stopped_at);

/* -- moving, exchanging and removing (replace.c) --
 *
 * All functions return 0 or errno. They report only what they could not undo.
 */

/* Moves a file or tree to a path that must not exist, by one call if the system can. Else a hard
 * link takes the name. If it cannot (a tree), something empty does, for rename() to replace. */
int move_without_overwriting(const char *from, const char *to);

/* Exchanges two names, by one call if the system can. Else *is_aside: `to` was moved to `aside`. */
int exchange_names(const char *from, const char *to, char *aside, int *is_aside);

/* Removes the file or tree at path, however deep it is. Follows no links, and enters no mounted
 * file systems. After an error, which is returned, it goes on with the rest. Lack of memory is an
 * error like others: it may be the reason for the call. */
int remove_tree(const char *path);
