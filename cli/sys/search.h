/* search.h - the one binary search
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "platform.h"

/* Sets `at`, a size_t, to the first number below n for which `is_before`, an expression with `at`,
 * is false; n: there is none. It must be true of all numbers before that, and of none behind. */
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
