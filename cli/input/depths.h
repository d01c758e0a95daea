/* depths.h - how many deltas each snapshot of a set is made of, as far as the set tells
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_DEPTHS_H
#define LMC_CLI_DEPTHS_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

/* A snapshot; wanted: the fingerprint of its base, NULL if it needs none. */
struct link_of_chain {
    const uint8_t *fingerprint, *wanted;
    uint32_t depth; /* what measure_depths() finds */
};

/* From here on a base is missing: the depth above the delta that needs it. */
#define DEPTH_LOOSE ((uint32_t)1 << 31)

/* Deltas of the shortest chain that leads down to a snapshot without a base; DEPTH_LOOSE and more
 * if there is none. So who takes, of several with the wanted fingerprint, the one of the least
 * depth goes in no circle. A delta in which nothing has changed is no base of its like. */
void measure_depths(struct link_of_chain *list, size_t n);

#endif
