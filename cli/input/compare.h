/* compare.h - a snapshot compared with the files that it was made of
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

struct common;

/* Restores the snapshot at path and compares it with the files at root. may_lack: files that are
 * gone are passed over; may_lose: what is quantised need not be equal: never before the files are
 * removed. *n_files: those that were compared, below root. */
int verify_snapshot(const char *path, const char *root, int may_lack, int may_lose,
                    const struct common *o, size_t *n_files);
