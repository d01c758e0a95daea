/* widen.h - floats of 8 and 16 bits as floats of 32, which hold each of them exactly
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../../lmc.h"

/* Bytes of an element that can be widened: BF16, F16, F8_E4M3, F8_E5M2; 0: none of these. */
unsigned widen_width(enum lmc_dtype dtype);

/* n elements, little-endian, to 4 * n bytes. A NaN keeps its sign and its payload. */
void widen_elements(enum lmc_dtype dtype, void *dst, const void *src, size_t n);
