/* dump.h - lmc dump: every field of a snapshot, where it stands and what it says
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

/* Prints the snapshot at path, "-": standard input. */
int dump_file(const char *path);
