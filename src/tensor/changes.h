#pragma once
#include "extra_api.h"
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/split_join.h"
#include "kernels/strip.h"
#include "kernels/changes.h"

/* Finds what differs between two arrays, for receivers of a delta that take indices and values. It
 * compares decoded elements, and does not use the list of changes in a sparse block. So it works
 * for all codings, and also if the caller's array is not the base. */

/* Copies the values of changes [n_before, changes->n) while they are in the first cache. part: the
 * elements from index `from` on. */
static void lmc__take_values(const lmc_changes *changes, size_t n_before, const uint8_t *part,
                             uint32_t from, unsigned width)
{
    uint8_t *const values = (uint8_t *)changes->values;
    size_t j = n_before;
    LMC__FOR_WIDTH(for (; j < changes->n; j++)
                       memcpy(values + j * w, part + (changes->indices[j] - from) * w, w));
}

LMC_API enum lmc_status lmc_changes_add(lmc_changes *changes, const void *src, const void *base,
                                        size_t n, unsigned width, uint32_t first,
                                        size_t *n_compared)
{
    const uint8_t *const now = (const uint8_t *)src, *const before = (const uint8_t *)base;
    size_t i = 0;
    int is_full = 0;
    LMC__CHECK(changes && n_compared && changes->n <= changes->cap && changes->cap > 0 &&
                   changes->indices && changes->values && (n == 0 || (src && base)) &&
                   (width == 1 || width == 2 || width == 4 || width == 8) && n <= SIZE_MAX / 8 &&
                   (uint64_t)first + n <= (uint64_t)1 << 32,
               LMC_ERR_ARGUMENT);
    while (i < n && !is_full) {
        const size_t n_part = lmc__min(LMC__STRIP_ELEMENTS(width), n - i), n_before = changes->n;
        const uint32_t from = (uint32_t)(first + i);
        size_t listed = 0;
        LMC__FOR_WIDTH(listed = lmc__list_words(changes->indices, n_before, changes->cap,
                                                now + i * w, before + i * w, n_part, w, from));
        is_full = listed == SIZE_MAX;
        changes->n = is_full ? changes->cap : listed;
        lmc__take_values(changes, n_before, now + i * width, from, width);
        if (!is_full) i += n_part;
        else if (changes->n > n_before) /* continues after the last listed element */
            i += changes->indices[changes->n - 1] - from + 1;
    }
    *n_compared = i;
    return LMC_OK;
}
