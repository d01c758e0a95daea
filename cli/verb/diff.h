/* diff.h - lmc diff: what has changed, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_DIFF_H
#define LMC_CLI_DIFF_H

#include "../sys/platform.h"

struct options;

int diff_snapshots(char *from, char *to, const struct options *o);

#endif
