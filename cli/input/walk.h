/* walk.h - from section to section of a snapshot on the disk, by their sizes alone
 * SPDX-License-Identifier: MIT
 *
 * Nothing is decoded and no checksum is looked at: for snapshots that were just written, and for
 * messages about those that cannot be read.
 */
#pragma once

#include "../sys/platform.h"

/* The first and the last bytes of a snapshot. */
extern const uint8_t start_magic[8], end_magic[8];

/* Whether an open file begins as a snapshot does; *error: 0, or the errno of reading it. */
int begins_as_snapshot(int fd, int *error);

/* What part of a snapshot is coded against its base: of so many bytes in blocks. */
struct base_use {
    uint64_t size, predicted_size;
    int is_measured; /* for the caller */
};

/* Of what is there of an open file that is a snapshot, or the beginning of one. 0, or -1: there is
 * no index, or not all before it can be read. */
int measure_base_use(struct base_use *use, int fd);

/* Where the snapshot at the beginning of the file ends, if it has a trailer there; 0: it has
 * not. */
uint64_t find_snapshot_end(const char *path);

/* Whether the file's last bytes are the trailer of a snapshot of that size, whatever the first. */
int ends_as_snapshot(const char *path);

/* What the file says that it is, its fingerprint and that of its base: nothing of it is checked. 0,
 * or -1: it is no snapshot, or is damaged. */
int probe_snapshot(const char *path, uint8_t *fingerprint, uint8_t *wanted, int *is_delta);
