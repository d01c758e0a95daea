/* replica.h - a base that was restored to a scratch file, so that nobody reads through its chain
 * SPDX-License-Identifier: MIT
 *
 * Whoever reads of a delta reads of its base, and so on down: a descriptor, a reader and a frame of
 * the stack for each link. Beyond MAX_LINKS of them, the link is restored here, by reading through
 * those below, which are needed no more then:
 *
 *   links   0 1 2 ... 63 | 64 ... 127 | 128        each | is a replica
 *
 * So a chain may have any length. It takes room for two restored snapshots on the disk.
 */
#ifndef LMC_CLI_REPLICA_H
#define LMC_CLI_REPLICA_H

#include "../sys/platform.h"

#include <stddef.h>
#include <stdint.h>

#include "archive.h"

/* What is read through at most. */
#define MAX_LINKS 64

struct replica {
    int is_made;
    int fd;           /* of a file without a name */
    uint64_t *starts; /* of the snapshot's files in it */
};

/* Restores the snapshot, whose reader has its base. Errors are reported. */
int make_replica(struct replica *r, const struct archive *a);

/* Bytes of a file; 0 or errno. */
int read_replica(const struct replica *r, size_t number, uint64_t offset, void *dst, size_t size);

int fail_replica(int error);

void free_replica(struct replica *r);

#endif
