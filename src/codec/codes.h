#pragma once
#include "base/platform.h"
#include "base/bytes.h"
#include "kernels/types.h"
#include "kernels/codes.h"

/* Blocks of codes with scales (spec/codes.md; kernels/codes.h has the terms). */
#define LMC__CODES_HEADER 10u /* Mantissa, Half, Group_Size, First_Group */
#define LMC__LEAST_CODED_GROUP 16u

/* Groups of n elements of which the first `first` are in the first group. */
LMC__INLINE size_t lmc__count_groups(size_t n, size_t size, size_t first)
{
    return n <= first ? 1 : 1 + (n - first + size - 1) / size;
}
