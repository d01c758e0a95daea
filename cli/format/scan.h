/* scan.h - statistics of elements: zeros, byte planes and their entropies, exponents, signs
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#define SCAN_MAX_WIDTH 8
#define SCAN_MAX_EXPONENTS 2048 /* of F64 */

/* The format of floats. An element of C64 is two coded elements. */
struct scan_format {
    enum lmc_dtype dtype;
    unsigned exponent_bits, exponent_bias;
    int has_sign, has_negative_zero;
    int is_rotated; /* coded rotated by a bit, so that the exponent is the top byte (spec 5.1) */
};

/* NULL: no floats, or floats of less than a byte */
const struct scan_format *find_scan_format(enum lmc_dtype dtype);

/* Whether the top bit of an element is its sign. */
int has_sign_bit(enum lmc_dtype dtype);

struct scan {
    const struct scan_format *format; /* or NULL */
    unsigned width;
    uint64_t n, n_zero, n_flipped;        /* n_flipped: elements whose sign differs */
    uint64_t planes[SCAN_MAX_WIDTH][256]; /* how often each byte occurs; the lowest plane first, as
                                             they are coded without a prediction */
    uint64_t
        long_exponents[SCAN_MAX_EXPONENTS]; /* of F64: its top plane has not all exponent bits */
    uint32_t lanes[2][SCAN_MAX_WIDTH][256]; /* of one piece, for even and odd elements: a counter
                                             * need not wait for its last increment */
};

/* Begins to count elements of that dtype. */
void scan_begin(struct scan *s, enum lmc_dtype dtype);

/* size: whole elements, less than 2^32 */
void scan_piece(struct scan *s, const unsigned char *elements, size_t size);

/* Counts elements whose sign differs; size as for scan_piece(). */
void scan_signs(struct scan *s, const unsigned char *a, const unsigned char *b, size_t size);

/* counts: how often each biased exponent occurs. Returns the size of counts; 0: no floats. */
unsigned count_exponents(const struct scan *s, uint64_t counts[SCAN_MAX_EXPONENTS]);

/* The entropy, in bits, of all things that were counted. counts: how often each of them occurs. */
double find_entropy(const uint64_t *counts, size_t n_counts);

/* -- floats of 8 and 16 bits as floats of 32, which hold each of them exactly -- */

/* Bytes of an element that can be widened: BF16, F16, F8_E4M3, F8_E5M2; 0: none of these. */
unsigned widen_width(enum lmc_dtype dtype);

/* Widens n elements, little-endian, to 4 * n bytes. A NaN keeps sign and payload. */
void widen_elements(enum lmc_dtype dtype, void *dst, const void *src, size_t n);
