/* metadata_beside.h - the .metadata beside a .distcp file
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_METADATA_BESIDE_H
#define LMC_CLI_METADATA_BESIDE_H

#include "../sys/platform.h"

struct common;
struct dcp;

/* What the .metadata in the directory of that file says; NULL: it is no .distcp file,
 * there is none, or it is not understood, which -v tells. Valid until it is asked for another
 * directory: one is kept, as all files of a checkpoint ask for the same. Not for several threads.
 */
const struct dcp *find_metadata_beside(const char *path, const struct common *o);

#endif
