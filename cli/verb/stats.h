/* stats.h - lmc stats: what snapshots are made of, as table or JSON
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

struct stats_options {
    struct common common;
    enum lmc_level level; /* --max: what the sizes are measured with */
    int json;             /* --json */
};

/* Shows what the snapshots are made of, each compared with the one before. */
int show_stats(char *const *names, size_t n, const struct stats_options *options);
