/* cat_slice.h - slices: NAME[start:stop,index,:], as in NumPy, without steps
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_CAT_SLICE_H
#define LMC_CLI_CAT_SLICE_H

#include "../sys/platform.h"

#include <stdint.h>

#include "../../lmc.h"

struct slice {
    uint64_t start[LMC_MAX_RANK], count[LMC_MAX_RANK];
    int dropped[LMC_MAX_RANK]; /* the dimension was given as one index */
};

/* text: from behind the '[' to the end. */
int parse_slice(struct slice *s, const char *text, const lmc_tensor *t);

#endif
