/* small_files.h - small files share sections and blocks of a snapshot: their order
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SMALL_FILES_H
#define LMC_CLI_SMALL_FILES_H

#include "../sys/platform.h"

#include "../../lmc.h"

struct members;

/* lmc_writer_options.group_files: whether there are so many small files without tensors that it is
 * worth to group them. base: NULL or what they are coded against */
int choose_grouping(const struct members *m, const lmc_base *base);

/* Files, not those of another snapshot: directories and small files come first, of one kind one
 * after another, since those that are neighbours share trees. What is left keeps its order. Nothing
 * refers to members by number yet. */
void order_members(struct members *m, const lmc_base *base);

#endif
