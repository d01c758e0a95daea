/* made.h - directories that are made below a root, each of them once
 * SPDX-License-Identifier: MIT
 *
 *   open_made -> enter_made ... -> finish_made -> close_made
 *
 * A snapshot needs 4 bytes for a directory, and can ask for chains of thousands. So no path is
 * looked up from the root: one descriptor goes from directory to directory, by names of one
 * component, up to what both have in common and down from there. Each directory that was made is a
 * node of a tree:
 *
 *   root 0 --- "a" 1 --- "b" 2 --- "c" 3          enter_made("a/b/d/f"): from node 3 one up, then
 *                           +--- "d" 4            "d" is looked for among the nodes, and made
 *
 * A snapshot spells out of a path only what it does not share with the one before (spec 4.1): so
 * the steps are in proportion to the bytes of its paths. No link is followed below the root, and
 * ".." must be the directory that we came from. What makes or removes takes the lock of the
 * temporary name (temporary.h).
 */
#pragma once

#include "platform.h"

#include "attributes.h"

struct made_directory {
    char *name;    /* within its parent; NULL: the root */
    size_t parent; /* a smaller number */
    size_t next;   /* with the same hash; 0: none */
    size_t depth;
    int is_there;
    int is_made;  /* here: it was not there before */
    dev_t device; /* once it was entered */
    ino_t inode;
    int has_attributes;           /* then it is closed to others until it gets them */
    struct attributes attributes; /* which it gets at the end */
};

struct made {
    int fd;    /* of the directory where we are; -1: closed */
    size_t at; /* its number */
    struct made_directory *list;
    size_t n, room;
    size_t *table, n_slots; /* numbers by the hash of parent and name */
    size_t *way, way_room;  /* down to where we go: room for the deepest node */
    uint64_t n_entries;     /* files and directories so far */
    uint64_t max_entries;
    size_t max_depth;
};

/* Errors are 0, errno, or one of these. */
enum { MADE_TOO_MANY = -1, MADE_TOO_DEEP = -2, MADE_MOVED = -3 };

/* Opens the root, which exists and is no link. */
int open_made(struct made *m, const char *root, uint64_t max_entries, size_t max_depth);

/* Goes to the directory that path is in, and makes what is missing of it; m->fd is that directory
 * then. */
int enter_made(struct made *m, const char *path);

/* Makes a directory, or finds it; *number: its own. */
int make_directory(struct made *m, const char *path, size_t *number);

/* The number of the directory whose path is the first `size` bytes; it need not exist. */
int find_made(struct made *m, const char *path, size_t size, size_t *number);

/* Goes to a directory by its number, and makes what is missing of it. */
int go_to_made(struct made *m, size_t number);

/* Counts a file that is made where we are. */
int count_made_file(struct made *m);

/* From the leaves to the root: sets the attributes, and with is_synced brings each to the disk. */
int finish_made(struct made *m, int is_synced);

/* Whether the system brings thousands of small files to the disk together at the end: those of this
 * tree, and a file of that size where we are. */
int is_synced_as_whole(const struct made *m);
int is_synced_at_end(const struct made *m, uint64_t size);

void close_made(struct made *m);
