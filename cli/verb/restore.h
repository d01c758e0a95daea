/* restore.h - lmc -d: snapshots to files and directories
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_RESTORE_H
#define LMC_CLI_RESTORE_H

#include "../sys/platform.h"

struct options;

int restore_file(const char *path, const struct options *o);

#endif
