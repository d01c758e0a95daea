/* apply_beside.h - a delta that changes the layout of its target, restored beside it
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_APPLY_BESIDE_H
#define LMC_CLI_APPLY_BESIDE_H

#include "../sys/platform.h"

#include "../../lmc.h"

struct apply;
struct delta;

/* Restores the delta with the target as base and puts the result in its place. */
int apply_beside(struct apply *a, const struct delta *d, const lmc_base *base);

#endif
