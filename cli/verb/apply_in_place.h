/* apply_in_place.h - a delta that keeps the layout of its target, written into it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_APPLY_IN_PLACE_H
#define LMC_CLI_APPLY_IN_PLACE_H

#include "../sys/platform.h"

struct apply;
struct archive;
struct journal;

/* Applies an open delta of the target's layout. j: of the target; with what was recovered, if
 * is_resumed. *is_wrong: the target is something else, and nothing was changed or said. */
int apply_in_place(struct apply *a, struct archive *delta, struct journal *j, int is_trusted,
                   int is_resumed, int *is_wrong);

#endif
