/* compress.h - lmc FILE..., lmc DIR: files and directories to snapshots
 * SPDX-License-Identifier: MIT
 */
#pragma once

#include "../sys/platform.h"

#include "../choose/members.h"
#include "../input/common.h"

struct listing;

struct compress_options {
    struct common common;
    struct coding coding;
    int remove_source; /* --rm: when the snapshot on the disk has been compared with it */
};

/* Removes what was listed and no more: a file that came later keeps its directories. */
int remove_listing(const struct listing *l, const char *root);

/* is_named: see struct source */
int compress_file(const char *path, int is_named, const struct compress_options *o);

/* The listing must outlive the members. */
int compress_listing(const struct listing *l, const char *root, const char *snapshot,
                     const struct compress_options *o);

/* One snapshot of everything below path. */
int compress_directory(const char *path, const struct compress_options *o);
