/* list.h - lmc -l: what is in a snapshot, as a table or JSON
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

/* Prints what is in the snapshot at path ("-": standard input, a file) to standard output; with
 * is_json (--json) for programs. */
int list_file(const char *path, int is_json, const struct common *o);
