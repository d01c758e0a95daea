/* sorted.h - lists sorted by their texts, binary search, and hashes
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For qsort() and bsearch() of texts, and of structs that begin with a text. */
static inline int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The same for pointers to such structs, and for structs that begin with such a pointer. */
static inline int compare_named(const void *a, const void *b)
{
    return compare_texts(*(const void *const *)a, *(const void *const *)b);
}

/* Sets `at`, a size_t, to the first number below n for which `is_before`, an expression with `at`,
 * is false; else n. `is_before` must be true for all smaller and false for all larger numbers. */
#define FIND_FIRST(at, n, is_before)                                                               \
    do {                                                                                           \
        size_t low_ = 0, high_ = (n);                                                              \
        while (low_ < high_) {                                                                     \
            (at) = low_ + (high_ - low_) / 2;                                                      \
            if (is_before) low_ = (at) + 1;                                                        \
            else high_ = (at);                                                                     \
        }                                                                                          \
        (at) = low_;                                                                               \
    } while (0)

/* FNV-1a: continues with hash, which is FNV_START at first. */
#define FNV_START UINT64_C(0xCBF29CE484222325)
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001B3);
    return hash;
}
