/* removal.h - removes a tree, however deep it is
 * SPDX-License-Identifier: MIT
 *
 * Two descriptors, no recursion, no path of more than one component: what takes two bytes a level
 * to make must not take more than that, or a descriptor for each, to remove.
 */
#ifndef LMC_CLI_REMOVAL_H
#define LMC_CLI_REMOVAL_H

#include "platform.h"

/* Removes the file or tree at path, links not followed, mounted file systems not entered. 0 or
 * errno of the first failure; what can be removed is. Out of memory is an error as any other here:
 * this may run because memory was short. */
int remove_tree(const char *path);

#endif
