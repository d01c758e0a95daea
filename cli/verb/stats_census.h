/* stats_census.h - what snapshots are made of, and how each differs from the one before
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_STATS_CENSUS_H
#define LMC_CLI_STATS_CENSUS_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "../../lmc.h"
#include "../format/scan.h"
#include "../job/difference.h"

struct base;
struct common;

/* What diff.h does not measure of a tensor, or of a file that has none. */
struct stats_row {
    uint64_t n_zero,
        n_flipped; /* n_flipped: top bits that differ from those of the snapshot before */
    double entropy[SCAN_MAX_WIDTH]; /* bits for each element, by plane, the lowest first */
    unsigned first_exponent, n_exponents;
    uint64_t *exponents; /* how often each occurs, from first_exponent on, as stored; NULL: none */
};

/* A snapshot, compared with the one before. */
struct stats_step {
    struct diff diff; /* a: NULL in the first. The first new_items.n rows have them in their order,
                         then come removed ones */
    struct stats_row *rows; /* of the former */
};

struct stats {
    const struct common *o;
    enum lmc_level level; /* see struct stats_options */
    int json;
    struct stats_step *steps;
    size_t n;
};

/* bases: the snapshots */
int measure_steps(struct stats *s, struct base *bases);

void free_stats(struct stats *s);

#define STATS_KINDS                                                                                \
    (LMC_DTYPE_COUNT +                                                                             \
     1) /* the dtypes, those that are bytes to the codec as LMC_AUTO; and all together */
#define STATS_ALL LMC_DTYPE_COUNT

struct stats_sum {
    uint64_t n_items, size, n, n_zero, direct;
    double plane_sizes[SCAN_MAX_WIDTH]; /* bytes that the entropies come to */
    uint64_t n_compared, n_changed, n_signed, n_flipped,
        delta; /* n_signed: compared, and with a sign */
    uint64_t exponents[SCAN_MAX_EXPONENTS];
};

/* Bytes that all planes would take by their entropies. */
double sum_planes(const struct stats_sum *sum);

/* Adds a tensor to the sum. */
void add_row(struct stats_sum *sum, const struct diff_row *d, const struct stats_row *row);

/* sums: STATS_KINDS of them */
void sum_step(struct stats_sum *sums, const struct stats_step *step);

/* The dtype; "bytes" for what is none to the codec. */
const char *name_kind(int kind);

/* Whether all tensors have one dtype. */
int has_one_kind(const struct stats_sum *sums);

#endif
