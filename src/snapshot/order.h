#pragma once
#include "base/platform.h"

/* The sort and the search for all files of src/snapshot. The sort is inlined, so its comparison and
 * the size of an element are constants. */

typedef int (*lmc__compare)(const void *a, const void *b); /* like memcmp: < 0, 0 or > 0 */

/* Heap sort of n elements of `size` bytes. It needs no memory and no recursion, and time n log n
 * even for input that an attacker chose. It is not stable. spare: room for one element.
 *
 * While start > 0, each step adds an element to the heap [start, n). After that, each step moves
 * the largest element, [0], to the end of [0, end), lowers end, and makes the rest a heap again.
 * Each step copies one element to spare and sifts it down from `root`: larger children move up
 * until spare fits into the free place. */
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

/* Sets i to the first number of [low, high) for which the expression is_before (of i) is 0, or to
 * high if there is none. Binary search: all numbers with is_before 1 must come first. */
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
