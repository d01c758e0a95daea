/* restored_tree.h - a tree that appears whole or not at all
 * SPDX-License-Identifier: MIT
 *
 *   init_tree -> begin_tree -> (begin_tree_file -> t->outlet -> end_tree_file) ...
 *             -> commit_tree or put_tree                      -> free_tree
 *   init_tree -> begin_parts -> check_part before each file   -> commit_parts -> free_tree
 *             or, to give up after begin_tree, remove_temporary -> free_tree
 *
 * The tree is restored in a temporary directory beside the target, which is private. At the very
 * end the modes are set, from the leaves to the root. Then it takes the name of the target:
 *
 *   nothing is there   renamed, if the system can do that without overwriting; else an empty
 *                      directory claims the name, which the new tree then replaces
 *   a tree, with -f    both names are exchanged at once. If the system cannot, the old tree is
 *                      moved away, and back after an error. It is removed last, but only
 *                      what was listed of it
 *   a directory, for   the parts are moved into it, one by one. After an error, parts that have
 *   parts              replaced nothing are removed again
 *
 * So a kill leaves the old tree or the new one. If names cannot be exchanged at once, there is a
 * moment with neither: a kill then leaves the old tree beside the target. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/links.h"
#include "../sys/io.h"
#include "../sys/made.h"
#include "../sys/spot.h"
#include "../sys/tree.h"

struct options;

struct restored_tree {
    const struct options *o;
    const char *target;      /* the caller's; NULL: standard output, which cannot be a tree */
    struct spot at;          /* the target's */
    const char *root;        /* the temporary directory, registered until it gets its name */
    int root_fd;             /* it, open; -1: there is none */
    struct listing replaced; /* the old content of the target; empty: none */
    struct stat old;         /* the target with that content */
    int is_empty;            /* only the root; its mode is in the snapshot */
    char *path;              /* of the present file */
    struct outlet outlet;    /* of the present file; fd -1: none, or a directory */
    struct made made;        /* its directories; they get modes and times when they are complete */
    size_t number;           /* of the present directory */
    /* For parts: the snapshot's file; whether the target is a directory; its device */
    const struct stat *input;
    int is_merged, into; /* into: the directory, open */
    dev_t device;
};

/* target must outlive the tree. o has the limits of its size. */
void init_tree(struct restored_tree *t, const char *target, const struct options *o);

/* Checks the target, and makes the temporary directory. input: the name of what is restored. */
int begin_tree(struct restored_tree *t, const char *input, int force);

/* Begins a file. The temporary directory is new, private and without links, so the library's check
 * of a path is enough. Refuses more or deeper files and directories than the options allow. */
int begin_tree_file(struct restored_tree *t, const lmc_file *file);

/* Reports an error of made.h. path: below the target, of what could not be made. */
int fail_made(const struct made *m, const char *target, const char *path, int error);

/* Ends the file; its bytes have been written to t->outlet. */
int end_tree_file(struct restored_tree *t, const lmc_file *file);

/* Gives the tree its name. With force, an existing directory is replaced, if the new one has all of
 * its content. input: of the snapshot's file, which has the root's mode; NULL: unknown. */
int commit_tree(struct restored_tree *t, int force, const struct stat *input);

/* The same without a check: may remove the whole content of an old tree, t->replaced. old: the stat
 * of an old tree whose attributes the new root gets; or NULL. */
int put_tree(struct restored_tree *t, const struct stat *input, const struct stat *old);

/* For parts. If the target exists, the temporary directory is made in the deepest existing
 * directory on the way to the first part, as the target may be a mount point or a directory of the
 * system. input: of the snapshot's file. */
int begin_parts(struct restored_tree *t, const struct stat *input, const char *first);

/* Checks, before restoring anything, that a file, directory or link can be made below target. */
int check_part(const struct restored_tree *t, const char *path, int is_directory);

/* Moves all parts to their places. After an error, moves them back, except parts that have replaced
 * something (with -f). */
int commit_parts(struct restored_tree *t);

void free_tree(struct restored_tree *t);

/* -- links below a directory that lmc has made (restored_links.c) --
 *
 * Links are made after all files: so no file can be written through a link of the same snapshot.
 * Each directory on the way to a link is opened from its parent, and must not be a link: so no link
 * is made through another link. As nothing follows a link, it may point anywhere. Errors are
 * reported.
 */

/* Makes all links below the open directory, which is private and registered as temporary. name: of
 * the snapshot. */
int make_links(int root, const struct links *l, const char *name);

/* Refuses a link below root that update_links() would remove, unless it is in `before`, the links
 * that lmc itself has made there. Fingerprints do not cover links; others may be the user's. */
int check_old_links(const char *root, const struct links *l, const struct links *before,
                    lmc_reader *reader, const char *name);

/* Makes the symbolic links of an open directory equal to those of the snapshot: removes others,
 * makes missing ones and replaces different ones. It changes only links, and none at the path of a
 * file of the snapshot. *n_changed: their number is added. */
int update_links(int fd, const char *root, const struct links *l, lmc_reader *reader,
                 const char *name, size_t *n_changed);
