/* diff.h - lmc diff: what has changed, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_DIFF_H
#define LMC_CLI_DIFF_H

#include "../sys/platform.h"

#include "../input/common.h"

struct diff_options {
    struct common common;
    enum lmc_level level; /* --max: what the deltas would be coded with */
    int json;             /* --json */
};

/* Prints what has changed between two snapshots, files or directories. */
int diff_snapshots(char *from, char *to, const struct diff_options *options);

#endif
