/* made.h - directories that are made below a root, each of them once
 * SPDX-License-Identifier: MIT
 *
 *   open_made -> enter_made ... -> finish_made -> close_made
 *
 * A snapshot needs only 4 bytes for a directory, and can ask for chains of thousands. So no path is
 * resolved from the root: one descriptor moves from directory to directory, one name at a time, up
 * to the common parent and down from there. Each directory is a node of a tree:
 *
 *   root 0 --- "a" 1 --- "b" 2 --- "c" 3          enter_made("a/b/d/f"): from node 3 one up, then
 *                           +--- "d" 4            "d" is found among the nodes, or made
 *
 * A snapshot stores only the part of a path that differs from the path before (spec 4.1): so the
 * number of steps is proportional to the stored bytes. No link is followed below the root, and ".."
 * must be the known parent. Functions that make something take the lock of the temporary name
 * (temporary.h).
 */
#pragma once

#include "platform.h"

#include "attributes.h"

struct made_directory {
    char *name;    /* within its parent; NULL: the root */
    size_t parent; /* a smaller number */
    size_t next;   /* next node with the same hash; 0: none */
    size_t depth;
    int is_there;
    int is_made;  /* it did not exist before */
    dev_t device; /* valid once it was entered */
    ino_t inode;
    int has_attributes;           /* it gets them; until then, others have no access */
    struct attributes attributes; /* set at the end */
};

struct made {
    int fd;    /* of the current directory; -1: closed */
    size_t at; /* its number */
    struct made_directory *list;
    size_t n, cap;
    size_t *table, n_slots; /* numbers by the hash of parent and name */
    size_t *way, way_cap;   /* nodes on the way down, with room for the deepest one */
    uint64_t n_entries;     /* files and directories so far */
    uint64_t max_entries;
    size_t max_depth;
};

/* Functions return 0, errno, or one of these. */
enum { MADE_TOO_MANY = -1, MADE_TOO_DEEP = -2, MADE_MOVED = -3 };

/* Begins at a root that is open; the descriptor stays the caller's. */
int open_made(struct made *m, int root, uint64_t max_entries, size_t max_depth);

/* Goes to the directory that path is in, which becomes m->fd, and makes it if it is missing. */
int enter_made(struct made *m, const char *path);

/* The number of the directory whose path is the first `size` bytes; it need not exist. */
int find_made(struct made *m, const char *path, size_t size, size_t *number);

/* Goes to a directory by its number, and makes it if it is missing. */
int go_to_made(struct made *m, size_t number);

/* Counts a file that is made in the current directory. */
int count_made_file(struct made *m);

/* Sets the attributes, from the leaves to the root; with is_synced, also syncs each directory. */
int finish_made(struct made *m, int is_synced);

/* Whether small files of this tree are synced together at the end, because they are many and the
 * system can; and whether a file of that size in the current directory is such a file. */
int is_synced_as_whole(const struct made *m);
int is_synced_at_end(const struct made *m, uint64_t size);

void close_made(struct made *m);
