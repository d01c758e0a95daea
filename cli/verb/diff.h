/* diff.h - lmc diff: what has changed, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

/* Prints what has changed between two snapshots, files or directories. level: what the deltas would
 * be coded with; is_json: --json */
int diff_snapshots(char *const sides[2], enum lmc_level level, int is_json, const struct common *o);
