#pragma once
#include "base/platform.h"

/* Sorting and searching, once for all that is sorted here. The sort is inlined with its comparison
 * and the size of an element. */

typedef int (*lmc__compare)(const void *a, const void *b); /* below, at or above 0 */

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

/* Sets i to the first number of [low, high) for which is_before, an expression of i, is 0, or to
 * high. Those for which it is 1 must stand before the others. */
#define LMC__FIND_FIRST(i, low, high, is_before)                                                   \
    do {                                                                                           \
        size_t lmc__low = (low), lmc__high = (high);                                               \
        while (lmc__low < lmc__high) {                                                             \
            (i) = lmc__low + (lmc__high - lmc__low) / 2;                                           \
            if (is_before) lmc__low = (i) + 1;                                                     \
            else lmc__high = (i);                                                                  \
        }                                                                                          \
        (i) = lmc__low;                                                                            \
    } while (0)
