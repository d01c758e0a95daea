/* verify.h - lmc verify: whole chains of deltas, each link decoded once
 * SPDX-License-Identifier: MIT
 *
 * The files make a forest: below each snapshot stand the deltas that are made against it. It is
 * walked from the roots. What has others below it is restored to a scratch file, from which these
 * get their base; this is closed, and thereby gone, when the last of them was restored. That one is
 * the child with the most below it: of a chain there are two scratch files at a time, and one more
 * where it branches.
 */
#pragma once

#include "../sys/platform.h"

struct common;

/* Checks all n files, and says which it could not check. CODE_OK: all are whole. */
int verify_files(char **paths, size_t n, const struct common *o);
