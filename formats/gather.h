/* gather.h - the elements of a view, in the order of its shape
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../lmc.h"

/* Zeros first, then: */
struct gathering {
    const unsigned char *span; /* all from the first to the last of the elements */
    size_t width;              /* of an element */
    unsigned rank;
    const uint64_t *counts, *strides; /* in elements; no count is 0 */
    uint64_t at[LMC_MAX_RANK];        /* the next one */
    int is_end;
};

/* The next elements, at most cap bytes (one or more). Returns how many bytes; 0: there are no more.
 */
size_t gather_elements(struct gathering *g, void *dst, size_t cap);

/* Conjugates and negates elements, as flags of a view say. 0: how is not known of the dtype. */
int resolve_flags(void *elements, size_t size, const char *dtype, unsigned flags);
