/* restored_tree.h - a tree that appears whole or not at all
 * SPDX-License-Identifier: MIT
 *
 *   init_tree -> begin_tree -> (begin_tree_file -> t->outlet -> end_tree_file) ...
 *             -> commit_tree or exchange_tree                 -> free_tree
 *   init_tree -> begin_parts -> check_part before each file   -> commit_parts -> free_tree
 *             or, to give up after begin_tree, remove_temporary -> free_tree
 *
 * The tree is restored in a temporary directory beside the target, which is private. At the very
 * end the modes are set, from the leaves to the root. Then it takes the name of the target:
 *
 *   nothing is there   renamed, where the system can without overwriting; elsewhere an empty
 *                      directory claims the name, which the new tree then replaces
 *   a tree, with -f    both names exchanged at once; where the system cannot, the old tree steps
 *                      aside, and comes back after an error. It is removed last, and of it only
 *                      what was listed
 *   a directory, for   what is new takes its place in it, one by one. After an error, what was not
 *   parts              there before goes again
 *
 * So a kill leaves the old tree or the new one. Where names cannot be exchanged at once, there is a
 * moment with neither: then the old tree is beside the target. Errors are reported.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/links.h"
#include "../sys/io.h"
#include "../sys/made.h"
#include "../sys/tree.h"

struct options;

struct restored_tree {
    const struct options *o;
    const char *target;      /* the caller's; NULL: standard output, which cannot take a tree */
    const char *root;        /* the temporary directory, registered until it gets its name */
    struct listing replaced; /* the old content of the target; empty: none */
    int is_empty;            /* there is only the root, and it has a mode of its own */
    char *path;              /* of the file in work */
    struct outlet outlet;    /* of the file in work; fd -1: there is none, or it is a directory */
    struct made made;        /* its directories; they get modes and times when they are complete */
    size_t number;           /* of the directory in work */
    /* Of parts: the file that is read, and whether there is a directory at the target, and where */
    const struct stat *input;
    int is_merged;
    dev_t device;
};

/* target must outlive the tree; o: says how large it may be. */
void init_tree(struct restored_tree *t, const char *target, const struct options *o);

/* Checks the target, and makes the temporary directory. input: the name of what is restored. */
int begin_tree(struct restored_tree *t, const char *input, int force);

/* The temporary directory is new, private and without links, so the library's check of a path is
 * enough. Refuses more files and directories, or deeper ones, than the user allows. */
int begin_tree_file(struct restored_tree *t, const lmc_file *file);

/* Reports an error of made.h. path: below the target, of what could not be made. */
int fail_made(const struct made *m, const char *target, const char *path, int error);

/* Ends the file; its bytes have been written to t->outlet. */
int end_tree_file(struct restored_tree *t, const lmc_file *file);

/* Gives the tree its name. With force, an existing directory is replaced, if the new one has all of
 * its content. input: the snapshot, whose mode is that of the root; NULL: unknown. */
int commit_tree(struct restored_tree *t, int force, const struct stat *input);

/* Replaces the tree at the target. All of its content, t->replaced, may be removed. The root keeps
 * the attributes of the old one. */
int exchange_tree(struct restored_tree *t, const struct stat *old);

/* Parts: if the target exists, the temporary directory is in it, as deep as directories exist on
 * the way to the first part: the target may be a mount point, or a directory of the system. input:
 * the snapshot. */
int begin_parts(struct restored_tree *t, const struct stat *input, const char *first);

/* Checks that a file, directory or link can be made below the target, before anything is restored.
 */
int check_part(const struct restored_tree *t, const char *path, int is_directory);

/* Puts all parts in their places. After an error, none; but with -f, those that have replaced
 * something stay. */
int commit_parts(struct restored_tree *t);

/* Limits links as files are limited: a small hostile snapshot can ask for many links, deep down. */
int check_links_of_tree(const struct links *l, const char *name, const struct options *o);

void free_tree(struct restored_tree *t);

/* -- links below a directory that lmc has made (restored_links.c) --
 *
 * Links are made last, after all files: so no file can be written through a link of the same
 * snapshot. Each directory on the way to a link is opened from the one above it, and must not be a
 * link: so no link is made through another. Then it does not matter where a link points: nothing
 * follows it. Errors are reported.
 */

/* Makes all links below the directory, which is private and registered as temporary. name: of the
 * snapshot. */
int make_links(const char *root, const struct links *l, const char *name);

/* Refuses a link below root that update_links() would remove, unless it is in `before`, the links
 * that lmc itself has made there. No fingerprint covers links, so any other may be the user's. */
int check_old_links(const char *root, const struct links *l, const struct links *before,
                    lmc_reader *reader, const char *name);

/* Makes the symbolic links of a directory those of the snapshot: removes others, and makes or
 * replaces the rest. It does not touch what is no link, nor links that stand for files of the
 * snapshot. *n_changed: counts up. */
int update_links(const char *root, const struct links *l, lmc_reader *reader, const char *name,
                 size_t *n_changed);
