/* series_look.h - looking whether a source changes
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_SERIES_LOOK_H
#define LMC_CLI_SERIES_LOOK_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

struct look {
    uint64_t digest; /* of names, kinds, sizes, times */
    int64_t newest;  /* change, in nanoseconds */
    size_t n_files;
    int is_whole; /* all could be looked at */
};

/* Looks at the file or tree; nothing is reported. */
struct look look_at(const char *path);

#endif
