/* recode.h - lmc fold, lmc rebase: a snapshot against another base
 * SPDX-License-Identifier: MIT
 *
 * The snapshot is read through its chain, window by window, and written again: at no time does it
 * exist as a whole. Files keep their order (but see find_twins), paths, attributes and tensors, so
 * it has the same fingerprint, and restores the same bytes.
 */
#pragma once

#include "../sys/platform.h"

#include "../choose/members.h"
#include "../input/common.h"

struct recode_options {
    struct common common;
    struct coding coding; /* whose policy has no rules: what is quantised stays as it is */
};

/* Writes the snapshot at path tip, of whatever chain, against the base called onto (NULL: none) to
 * output (NULL: standard output). The bases hold all that the chain needs, and onto. */
int recode_snapshot(const char *tip, const char *onto, const char *output,
                    const struct recode_options *o);

/* One delta out of those at paths, in whatever order, against the first base that is none of
 * them. */
int fold_deltas(char **paths, size_t n, const char *output, const struct recode_options *o);

/* onto: the new base, or "none" */
int rebase_snapshot(const char *path, const char *onto, const char *output,
                    const struct recode_options *o);
