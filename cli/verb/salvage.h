/* salvage.h - lmc salvage: what is intact in a damaged snapshot
 * SPDX-License-Identifier: MIT
 *
 * The output is a directory: whole/ has the files of which nothing is lost; partial/ those with
 * holes, which read as zeros; unnamed/ what belongs to files whose names and sizes are lost;
 * unplaced/ single blocks of which not even the place is known. salvage.json says what is lost
 * where, so that nobody takes holes for data.
 */
#pragma once

#include "../sys/platform.h"

#include "../input/common.h"

struct salvage_options {
    struct common common;
    int json; /* --json: salvage.json to standard output, and no table */
};

/* Recovers what is intact of the snapshot at path, to a directory: -o, or PATH.salvaged. CODE_OK:
 * all is; CODE_BASE: the base would bring back more; CODE_CORRUPT: something is lost. */
int salvage_file(const char *path, const struct salvage_options *options);
