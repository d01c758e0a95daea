/* tree.h - what is in a directory
 * SPDX-License-Identifier: MIT
 *
 * Links to directories are never followed.
 */
#pragma once

#include "platform.h"

#include <dirent.h>

/* The next entry but "." and ".."; NULL: there is no more, or it cannot be read: *error then,
 * unless an error stands there. */
struct dirent *next_entry(DIR *directory, int *error);

struct entry {
    char *path; /* below the root; "" is the root itself */
    int is_directory;
    char *link;      /* where a symbolic link leads, as it says; NULL: it is none */
    int is_file;     /* of a link: it leads to a regular file */
    int is_followed; /* a link to a file outside of the tree, which stands for that file */
    uint64_t size;   /* of a file, or of what a link leads to */
};

struct listing {
    struct entry *entries;
    size_t n, room;
    size_t n_followed; /* entries that are so */
    size_t n_outside;  /* links to directories outside of it, which were not followed */
    size_t n_special;  /* links to devices, pipes and sockets that were not kept as links by wish */
    size_t n_unreadable; /* directories, of which the first MOST_NAMED were said */
    char **others;       /* what is no file, directory or link: sockets, pipes, devices */
    size_t n_others;
};

/* So many things of one kind that are wrong with a tree are named; others are only counted. */
#define MOST_NAMED ((size_t)20)

/* What becomes of symbolic links. */
enum link_mode {
    LINKS_AUTO,   /* links, but what lies outside of the tree is followed, if it is a file */
    LINKS_KEEP,   /* links */
    LINKS_FOLLOW, /* what they lead to */
};

/* Adds an entry, of size 0; the pointer is valid until the next one is added. */
struct entry *add_entry(struct listing *l, const char *path, int is_directory);

void free_listing(struct listing *l);

/* The names in a directory, by which others are no entries; 0 or errno: not all could be read. */
int list_names(struct listing *l, const char *directory);

/* Everything below root, and root itself as "", in the order of the bytes of the paths. most: a
 * limit for files and directories, as a few links can lead to any number of them; 0: none. */
int list_tree(struct listing *l, const char *root, enum link_mode mode, uint64_t most);

/* Lets the owner into all directories that were listed at root; as remove_listed(). */
int open_up_listed(const struct listing *l, const char *root);

/* Removes at root what was listed and no more: a file that came later keeps its directories. 0 or
 * errno, and *stopped_at: what could not be removed. May run with the lock of temporary.h. */
int remove_listed(const struct listing *l, const char *root, const struct entry **stopped_at);

/* -- names that move, take the place of another, or go (replace.c) --
 *
 * All functions return 0 or errno, and report nothing but what could not be undone.
 */

/* Moves a file or a tree to where nothing is yet, at once where the system can. Elsewhere a link
 * claims the name, or, of a tree or without links, something empty that rename then replaces. */
int move_without_overwriting(const char *from, const char *to);

/* Puts one name in the place of the other, both at once where the system can. */
int exchange_names(const char *from, const char *to, char *aside, int *is_aside);

/* Removes the file or tree at path, however deep it is: links not followed, mounted file systems
 * not entered. What can be removed is; the error is the first one. Out of memory is an error as any
 * other here: this may run because memory was short. */
int remove_tree(const char *path);
