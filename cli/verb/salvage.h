/* salvage.h - lmc salvage: what is intact in a damaged snapshot
 * SPDX-License-Identifier: MIT
 *
 * The output is a directory: whole/ has the files of which nothing is lost; partial/ those with
 * holes, which read as zeros; unnamed/ what belongs to files whose names and sizes are lost;
 * unplaced/ single blocks of which not even the place is known. salvage.json says what is lost
 * where, so that nobody takes holes for data.
 */
#ifndef LMC_CLI_SALVAGE_H
#define LMC_CLI_SALVAGE_H

#include "../sys/platform.h"

struct options;

int salvage_file(const char *path, const struct options *o);

#endif
