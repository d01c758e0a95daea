/* small_files.h - small files share sections and blocks of a snapshot: their order
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SMALL_FILES_H
#define LMC_CLI_SMALL_FILES_H

#include "../sys/platform.h"

struct members;

/* There are many small files without tensors, so that it is worth to group them. */
int has_small_files(const struct members *m);

/* Files, not those of another snapshot: directories and small files come first, of one kind one
 * after another, since those that are neighbours share trees. What is left keeps its order. Nothing
 * refers to members by number yet. */
void order_members(struct members *m);

#endif
