/* opened.h - random access to many files, of which one is open at a time
 * SPDX-License-Identifier: MIT
 */
#ifndef LMC_CLI_OPENED_H
#define LMC_CLI_OPENED_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Reports that the file was changed under our hands; CODE_ERROR. */
int fail_changed(const char *path);

/* The one of several files that is open. */
struct opened {
    int fd;
    const char *path; /* NULL: none */
};

void close_opened(struct opened *f);

/* st: when it was looked at; nobody may have written to it since then. */
int read_opened(struct opened *f, const char *path, const struct stat *st, uint64_t offset,
                void *dst, size_t size);

#endif
