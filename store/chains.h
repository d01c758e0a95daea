/* chains.h - which of many snapshots is the base of which
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../lmc.h"

/* A snapshot; wanted: the fingerprint of its base, NULL if it needs none. */
struct link_of_chain {
    const uint8_t *fingerprint, *wanted;
    uint32_t depth;                    /* both are set by measure_depths() */
    const struct link_of_chain *below; /* its base; NULL: it needs none, or it is missing */
};

/* From this depth on, a base is missing: DEPTH_LOOSE is the depth of the delta that needs it. */
#define DEPTH_LOOSE ((uint32_t)1 << 31)

/* Sets each depth: the number of deltas in the shortest chain to a whole snapshot; DEPTH_LOOSE or
 * more if there is none. Of the snapshots with the wanted fingerprint, the one of least depth is
 * the base: so there are no loops. A delta that changes nothing does not count as a base. Returns 0
 * if memory is lacking. */
int measure_depths(struct link_of_chain *list, size_t n);
