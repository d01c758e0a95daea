#pragma once
#include "base/platform.h"

/* Sorting and searching, once for all that is sorted here. Both are inlined with their comparison
 * and the size of an element, so they cost no more than written out. */

typedef int (*lmc__compare)(const void *a, const void *b); /* below, at or above 0 */
typedef int (*lmc__is_before)(const void *context, size_t i);

/* Heap sort of n elements of `size` bytes: no memory, no recursion, and time n log n whatever the
 * input, which may be chosen by an enemy. Not stable. spare: one more element, of the same type.
 *
 * While start > 0, elements [start, n) are made a heap from the back; then the largest changes
 * places with the last, again and again, and [0, end) is made a heap anew. Either way an element is
 * taken out, to spare, and sifted down from `root`: larger children move up to the hole that it
 * leaves, until it fits. */
LMC__INLINE void lmc__heap_sort(void *array, size_t n, size_t size, lmc__compare compare,
                                void *spare)
{
    uint8_t *const a = (uint8_t *)array;
    size_t start = n / 2, end = n;
    while (end > 1) {
        size_t root, child;
        if (start > 0) {
            start--;
            memcpy(spare, a + start * size, size);
        } else {
            end--;
            memcpy(spare, a + end * size, size);
            memcpy(a + end * size, a, size);
        }
        for (root = start; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && compare(a + child * size, a + (child + 1) * size) < 0) child++;
            if (compare(spare, a + child * size) >= 0) break;
            memcpy(a + root * size, a + child * size, size);
        }
        memcpy(a + root * size, spare, size);
    }
}

/* The first i of [low, high) for which is_before(context, i) is 0, or high: those for which it is
 * 1 must stand before the others. */
LMC__INLINE size_t lmc__find_first(size_t low, size_t high, lmc__is_before is_before,
                                   const void *context)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (is_before(context, middle)) low = middle + 1;
        else high = middle;
    }
    return low;
}
