/* restored_tree.h - a tree that appears whole or not at all
 * SPDX-License-Identifier: MIT
 *
 * It is restored below a temporary directory beside the target, which is private until the modes
 * are set, from the leaves to the root, at the very end. Then it takes the name of the target:
 *
 *   nothing there     renamed, where the system can without overwriting
 *   a tree, with -f   both names exchanged at once; where the system cannot, the old one steps
 * aside and comes back after an error. The old tree is removed last, and only what was listed in it
 *
 * At no time is there neither tree, but for a moment where names cannot be exchanged at once.
 */
#ifndef LMC_CLI_RESTORED_TREE_H
#define LMC_CLI_RESTORED_TREE_H

#include "../sys/platform.h"

#include "../../lmc.h"

struct restore;

int begin_tree(struct restore *r);

/* The temporary directory is new, private and without links: what the library has checked of a path
 * is enough. */
int begin_tree_file(struct restore *r, const lmc_file *file);

int end_tree_file(struct restore *r, const lmc_file *file);

/* From the leaves to the root: a mode may lock everything below. 0 or errno. */
int finish_directories(struct restore *r);

/* error: of the step before; then what was replaced stays, too. */
int remove_replaced(const struct restore *r, int error);

int commit_tree(struct restore *r);

#endif
