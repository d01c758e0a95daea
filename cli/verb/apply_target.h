/* apply_target.h - what deltas are applied to, and whether it is what they need
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/archive.h"
#include "../input/options.h"
#include "apply_journal.h"

struct base;

/* What is known of the target: it was identified as the base; it is trusted to be that; or it was
 * left half applied. */
enum look { TARGET_KNOWN, TARGET_TRUSTED, TARGET_HALF };

/* What an argument is; it is opened again when it is applied. */
struct delta {
    const char *path, *name;
    uint8_t wanted[LMC_FINGERPRINT_SIZE], fingerprint[LMC_FINGERPRINT_SIZE];
    char *made_with; /* NULL: it does not say */
};

struct apply {
    const struct options *o;
    const char *name; /* of the target */
    char *path;       /* links resolved, for the target itself may be replaced */
    struct stat st;
    int is_tree, lock;
    struct delta *deltas;
    size_t n_deltas;
    size_t n_links; /* that were changed, where the files were those of the delta already */
    /* the target as a base of files */
    struct options base_options;
    struct bases bases;
    /* what was applied last, whose files are those of the target */
    struct archive last;
    int has_last;
    struct place last_place;
    lmc_base last_view;
    struct journal journal;
};

/* Whether the target, a base of files, holds every byte of the delta's files and nothing else. */
int holds_result(const struct base *b, const struct archive *delta);

/* That the target has the layout of the delta's files, can be written, and is on the disk. */
int check_files(const struct apply *a, const struct archive *delta, enum look look, int *is_wrong);

/* From the leaves to the root: a mode may lock everything below. is_strict: not through links. */
int set_all_attributes(const char *root, const struct archive *delta, int is_strict);

/* One apply at a time: locks the target itself, which another one may have replaced meanwhile. */
int lock_target(struct apply *a);

/* Finds the target by its name, locks it, and checks that it can be one. */
int open_target(struct apply *a);
